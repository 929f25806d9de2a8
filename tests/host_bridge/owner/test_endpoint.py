"""The socket: whoever is at the other end is the same user."""

from __future__ import annotations

import os
import socket
from pathlib import Path

import pytest

from host_bridge.owner import endpoint


def test_a_socket_file_left_behind_is_replaced_and_closed_to_others(tmp_path: Path) -> None:
    path = str(tmp_path / "s.sock")
    endpoint.listen(path).close()
    with endpoint.listen(path) as listener:
        assert os.stat(path).st_mode & 0o077 == 0
        with endpoint.connect(path, 1.0) as client, listener.accept()[0] as served:
            assert endpoint.peer_uid(client) == os.geteuid()
            assert endpoint.peer_uid(served) == os.geteuid()
            assert endpoint.peer_pid(client) in (os.getpid(), None)


def test_a_peer_of_another_user_is_refused_on_both_ends(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = str(tmp_path / "s.sock")
    uid = os.geteuid()
    with endpoint.listen(path) as listener:
        monkeypatch.setattr(os, "geteuid", lambda: uid + 1)
        with pytest.raises(endpoint.ForeignPeer, match=str(uid)):
            endpoint.connect(path, 1.0)
        with listener.accept()[0] as served, pytest.raises(endpoint.ForeignPeer):
            endpoint.check_peer(served)


def test_nobody_at_the_socket_is_an_os_error(tmp_path: Path) -> None:
    with pytest.raises(OSError):
        endpoint.connect(str(tmp_path / "none.sock"), 1.0)
    endpoint.listen(str(tmp_path / "dead.sock")).close()
    with pytest.raises(ConnectionRefusedError):
        endpoint.connect(str(tmp_path / "dead.sock"), 1.0)


def test_the_process_id_is_read_from_the_kernel() -> None:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        assert endpoint.peer_uid(ours) == os.geteuid()
        assert endpoint.peer_pid(ours) in (os.getpid(), None)

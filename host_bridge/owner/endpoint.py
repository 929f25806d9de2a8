"""The owner's Unix socket: bind it, reach it, and know which user is at its other end.

Source: decisions.md section 8; host protocol: a peer with the owner's uid is the host.
"""

from __future__ import annotations

import os
import socket
import struct


class ForeignPeer(Exception):
    """The process at the other end belongs to another user."""


def listen(path: str) -> socket.socket:
    """A listening socket at ``path``, mode 0600. Only the holder of the owner lock calls this, so whatever lies
    at the path was left behind and is replaced."""
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        try:
            os.unlink(path)
        except FileNotFoundError:
            pass
        # Its folder is closed to others, so nobody comes in between; a umask would change other threads' files.
        listener.bind(path)
        os.chmod(path, 0o600)
        listener.listen(128)
    except BaseException:
        listener.close()
        raise
    return listener


def connect(path: str, timeout: float) -> socket.socket:
    """A connection to an owner of the same user; ``OSError`` where nobody listens, :class:`ForeignPeer` else."""
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        connection.settimeout(timeout)
        connection.connect(path)
        check_peer(connection)
    except BaseException:
        connection.close()
        raise
    return connection


def check_peer(connection: socket.socket) -> None:
    uid = peer_uid(connection)
    if uid != os.geteuid():
        raise ForeignPeer(f"the process at the other end of the socket belongs to user {uid}")


def peer_uid(connection: socket.socket) -> int:
    if hasattr(socket, "SO_PEERCRED"):
        return _linux_credentials(connection)[1]
    # struct xucred: version, uid, then the groups (sys/ucred.h; SOL_LOCAL is 0, LOCAL_PEERCRED is 1)
    uid: int = struct.unpack_from("=II", connection.getsockopt(0, 1, 76))[1]
    return uid


def peer_pid(connection: socket.socket) -> int | None:
    """The process that listened (or connected) at the other end; None where the system does not say."""
    return _linux_credentials(connection)[0] if hasattr(socket, "SO_PEERCRED") else None


def _linux_credentials(connection: socket.socket) -> tuple[int, int, int]:
    size = struct.calcsize("=iII")
    raw = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, size)
    pid, uid, gid = struct.unpack("=iII", raw)
    return pid, uid, gid

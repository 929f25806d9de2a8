"""Keys of the HTTP door on the disk: hashes alone, and a kill at every point of making and revoking one."""

from __future__ import annotations

import hmac
import os
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import apsw
import pytest

from messages.errors import InvalidArgument, NotFound
from storage import backup, http_keys
from storage.faults import installed
from storage.http_keys import KEY_SHAPE, matching
from storage.layout import Layout
from storage.registry import FORMAT, Registry
from storage.registry_audit import By
from storage.registry_schema import FIRST, FORWARD

NOW = 1_790_000_000_000
BY = By("operator:local", "socket", NOW)


@contextmanager
def opened(layout: Layout) -> Iterator[Registry]:
    registry = Registry.open(layout, at=NOW)
    try:
        yield registry
    finally:
        registry.close()


@pytest.fixture
def layout(tmp_path: Path) -> Layout:
    return Layout(tmp_path)


def make(registry: Registry) -> None:
    registry.http_keys.make(None, BY, rotate=True)


def revoke(registry: Registry) -> None:
    registry.http_keys.revoke(None, BY)


def actions(registry: Registry) -> list[object]:
    return [found["action"] for found in reversed(registry.audit(limit=100))]


def killed_at(layout: Layout, act: Callable[[Registry], None], place: int) -> int:
    """Do it in a child that is killed at the n-th point that it passes; its exit status."""
    child = os.fork()
    if child == 0:
        left = place

        def kill(_: str) -> None:
            nonlocal left
            left -= 1
            if left < 0:
                os.kill(os.getpid(), signal.SIGKILL)

        try:
            with opened(layout) as registry, installed(kill):
                act(registry)
        finally:
            os._exit(1)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def passed(layout: Layout, act: Callable[[Registry], None]) -> list[str]:
    points: list[str] = []
    with opened(layout) as registry, installed(points.append):
        act(registry)
    return points


def test_a_key_counts_after_a_restart_and_its_text_is_in_no_file(layout: Layout) -> None:
    with opened(layout) as registry:
        host = registry.http_keys.make(None, BY, rotate=False)
        ana = registry.http_keys.make("ana", BY, rotate=False)
    assert KEY_SHAPE.fullmatch(host)
    assert KEY_SHAPE.fullmatch(ana)
    with opened(layout) as registry:
        keys = registry.http_keys.all()
        assert [key.operator for key in keys] == [None, "ana"]
        assert (matching(keys, host), matching(keys, ana)) == keys
        assert matching(keys, host + "x") is None
        assert matching(keys, "") is None
        for path in layout.root.iterdir():
            assert host.encode() not in path.read_bytes()
            assert ana.encode() not in path.read_bytes()
        assert host not in repr(keys)


def test_rotating_a_key_ends_the_one_before_and_nobody_else_s(layout: Layout) -> None:
    with opened(layout) as registry:
        old = registry.http_keys.make(None, BY, rotate=False)
        ana = registry.http_keys.make("ana", BY, rotate=False)
        with pytest.raises(InvalidArgument) as caught:
            registry.http_keys.make(None, BY, rotate=False)
        assert caught.value.fields["reason"] == "key_exists"
        assert matching(registry.http_keys.all(), old) is not None
        new = registry.http_keys.make(None, BY, rotate=True)
        keys = registry.http_keys.all()
        assert matching(keys, old) is None
        assert matching(keys, new) is not None
        assert matching(keys, ana) is not None
        registry.http_keys.revoke("ana", BY)
        assert matching(registry.http_keys.all(), ana) is None
        with pytest.raises(NotFound):
            registry.http_keys.revoke("ana", BY)
        assert actions(registry) == ["httpKey.make"] * 3 + ["httpKey.revoke"]


def test_each_key_is_compared_in_constant_time_whichever_it_is(
    layout: Layout, monkeypatch: pytest.MonkeyPatch
) -> None:
    with opened(layout) as registry:
        texts = [registry.http_keys.make(name, BY, rotate=False) for name in (None, "ana", "ben")]
        keys = registry.http_keys.all()
    compared: list[bytes] = []
    compare = hmac.compare_digest

    def counting(kept: bytes, presented: bytes) -> bool:
        compared.append(kept)
        return compare(kept, presented)

    monkeypatch.setattr(hmac, "compare_digest", counting)
    for text in (*texts, "kr-host-none"):
        compared.clear()
        matching(keys, text)
        assert compared == [key.digest for key in keys]


@pytest.mark.parametrize("act", [make, revoke])
def test_a_kill_at_any_point_leaves_one_key_or_the_other_with_its_row_of_the_audit(
    tmp_path: Path, act: Callable[[Registry], None]
) -> None:
    dry = Layout(tmp_path / "dry")
    with opened(dry) as registry:
        make(registry)
    points = passed(dry, act)
    assert {"registry.httpkey.begin", "registry.httpkey.commit"} <= set(points)
    for place, name in enumerate(points):
        layout = Layout(tmp_path / str(place))
        with opened(layout) as registry:
            before = registry.http_keys.make(None, BY, rotate=False)
        assert killed_at(layout, act, place) == -signal.SIGKILL, name
        with opened(layout) as registry:
            ended = matching(registry.http_keys.all(), before) is None
            assert ended == (place > points.index("registry.httpkey.commit")), name
            assert len(actions(registry)) == 1 + ended, name


def test_a_registry_of_format_4_is_brought_forward_and_gets_its_first_key(layout: Layout) -> None:
    layout.root.mkdir(parents=True)
    layout.registry_sentinel.write_text("the-registry\n")
    connection = apsw.Connection(str(layout.registry))
    for script in (FIRST, *(FORWARD[number] for number in (2, 3, 4))):
        connection.execute(script)
    connection.execute("INSERT INTO meta VALUES (1, 'the-registry', 1)")
    connection.execute("INSERT INTO audience_token VALUES ('t', 'main', '{}', 1, 'host', 9, NULL)")
    connection.close()
    with opened(layout) as registry:
        assert registry.tokens.live() == {"t"}
        assert registry.http_keys.all() == ()
        make(registry)
    assert (layout.root / "registry.sqlite.format-4").is_file()
    copy = apsw.Connection(str(layout.registry))
    assert copy.execute("PRAGMA user_version").fetchall() == [(FORMAT,)]
    copy.close()


def test_no_key_is_in_a_backup_or_counts_after_one_was_restored(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    layout = Layout(tmp_path / "state")
    with opened(layout) as registry:
        key = registry.http_keys.make(None, BY, rotate=False)
    digest = http_keys.digest_of(key)
    taken = backup.take(layout, tmp_path / "one")
    assert digest not in (taken.path / "registry.sqlite").read_bytes()
    with monkeypatch.context() as patched:
        patched.setattr("storage.backup.taking.forget_http_keys", lambda copy: None)
        held = backup.take(layout, tmp_path / "older")
    assert digest in (held.path / "registry.sqlite").read_bytes()
    restored = Layout(tmp_path / "restored")
    restored.state_dir.mkdir()
    backup.restore(tmp_path / "older", restored, BY)
    with opened(restored) as registry:
        assert registry.http_keys.all() == ()

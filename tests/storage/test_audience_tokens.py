"""Tokens of audiences on the disk: what is kept, and a kill at every point of minting and revoking one."""

from __future__ import annotations

import os
import signal
import stat
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from messages.errors import LimitExceeded, StorageError
from storage import audience_tokens
from storage.audience_key import KEY_BYTES, KEY_NAME, make_key, read_key
from storage.audience_tokens import TokenRow
from storage.faults import installed
from storage.layout import Layout
from storage.registry import Registry
from storage.registry_audit import By

NOW = 1_790_000_000_000
BY = By("operator:ana", "host", NOW)


@contextmanager
def opened(layout: Layout) -> Iterator[Registry]:
    registry = Registry.open(layout, at=NOW)
    try:
        yield registry
    finally:
        registry.close()


@pytest.fixture
def layout(tmp_path: Path) -> Layout:
    found = Layout(tmp_path)
    Registry.open(found, at=NOW).close()
    return found


def row(token_id: str = "one", *, lasts: int = 60_000) -> TokenRow:
    return TokenRow(token_id, "main", {"kind": "owner-private", "agent": "main"}, NOW, BY.actor, NOW + lasts)


def mint(registry: Registry) -> None:
    registry.tokens.mint(row(), frozenset(["run 1"]), BY)


def revoke(registry: Registry) -> None:
    registry.tokens.revoke("one", BY)


def end_run(registry: Registry) -> None:
    registry.tokens.revoke_of_run("run 1", BY)


def actions(registry: Registry) -> list[object]:
    return [found["action"] for found in reversed(registry.audit(limit=100))]


def passed(layout: Layout, act: Callable[[Registry], None]) -> list[str]:
    points: list[str] = []
    with opened(layout) as registry, installed(points.append):
        act(registry)
    return points


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


def test_a_kill_at_any_point_of_minting_leaves_a_token_with_its_key_and_its_row_of_the_audit_or_none(
    tmp_path: Path,
) -> None:
    dry = Layout(tmp_path / "dry")
    points = passed(dry, mint)
    assert {"token.key.place", "token.key.sync", "registry.token.commit"} <= set(points)
    for place, name in enumerate(points):
        layout = Layout(tmp_path / str(place))
        assert killed_at(layout, mint, place) == -signal.SIGKILL, name
        with opened(layout) as registry:
            live = registry.tokens.live()
            assert actions(registry) == ["token.mint"] * len(live), name
            key = registry.tokens.key()
            assert key is None or len(key) == KEY_BYTES, name
            if live:
                assert live == {"one"}
                assert key is not None, name
            else:
                mint(registry)
                assert actions(registry) == ["token.mint"]
            assert key is None or registry.tokens.key() == key, "never replaced"
        left = sorted(entry.name for entry in layout.root.iterdir() if "audience" in entry.name)
        assert left == [KEY_NAME], name


@pytest.mark.parametrize("end", [revoke, end_run])
def test_a_kill_at_any_point_of_revoking_leaves_the_token_live_or_revoked_with_its_row_of_the_audit(
    tmp_path: Path, end: Callable[[Registry], None]
) -> None:
    dry = Layout(tmp_path / "dry")
    with opened(dry) as registry:
        mint(registry)
    points = passed(dry, end)
    assert "registry.token.commit" in points
    for place, name in enumerate(points):
        layout = Layout(tmp_path / str(place))
        with opened(layout) as registry:
            mint(registry)
        assert killed_at(layout, end, place) == -signal.SIGKILL, name
        with opened(layout) as registry:
            ended = not registry.tokens.live()
            assert actions(registry) == ["token.mint", *["token.revoke"] * ended], name
            assert ended == (place > points.index("registry.token.commit")), name
            end(registry)
            assert not registry.tokens.live()
            assert actions(registry) == ["token.mint", "token.revoke"]


def test_rows_of_expired_tokens_go_with_the_next_one(layout: Layout) -> None:
    with opened(layout) as registry:
        registry.tokens.mint(row("old", lasts=1), frozenset(["run 1"]), BY)
        assert registry.tokens.one("old") is not None
        registry.tokens.mint(row("new"), frozenset(), By("operator:ana", "host", NOW + 1))
        assert registry.tokens.one("old") is None
        registry.tokens.revoke_of_run("run 1", BY)
        assert registry.tokens.live() == {"new"}


def test_there_are_at_most_so_many_tokens(layout: Layout, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(audience_tokens, "TOKENS_MAX", 2)
    with opened(layout) as registry:
        for number in range(2):
            registry.tokens.mint(row(str(number)), frozenset(), BY)
        registry.tokens.revoke("0", BY)
        with pytest.raises(LimitExceeded):
            registry.tokens.mint(row("more"), frozenset(), BY)
        assert registry.tokens.live() == {"1"}


def test_the_key_is_random_made_once_and_for_its_owner_alone(tmp_path: Path, layout: Layout) -> None:
    key = make_key(layout)
    assert make_key(layout) == read_key(layout) == key
    assert stat.S_IMODE((layout.root / KEY_NAME).stat().st_mode) == 0o600
    other = Layout(tmp_path / "other")
    Registry.open(other, at=NOW).close()
    assert read_key(other) is None
    assert make_key(other) != key


@pytest.mark.parametrize("harm", ["short", "long", "readable", "link", "second name"])
def test_a_key_that_is_not_one_of_ours_is_neither_used_nor_replaced(layout: Layout, harm: str) -> None:
    make_key(layout)
    path = layout.root / KEY_NAME
    match harm:
        case "short":
            path.write_bytes(b"x")
        case "long":
            path.write_bytes(b"x" * (KEY_BYTES + 1))
        case "readable":
            path.chmod(0o604)
        case "link":
            path.rename(layout.root / "elsewhere")
            path.symlink_to(layout.root / "elsewhere")
        case _:
            os.link(path, layout.root / "second")
    before = path.read_bytes()
    for use in (read_key, make_key):
        with pytest.raises(StorageError) as refusal:
            use(layout)
        assert refusal.value.fields["reason"] == "token_key"
        assert repr(before) not in refusal.value.message
    assert path.read_bytes() == before


def test_a_full_disk_leaves_no_key_and_no_token(layout: Layout) -> None:
    def full(point: str) -> None:
        if point == "token.key.stage.write":
            raise OSError(28, "No space left on device")

    with opened(layout) as registry:
        with installed(full), pytest.raises(StorageError):
            mint(registry)
        assert read_key(layout) is None
        assert not registry.tokens.any()
        mint(registry)

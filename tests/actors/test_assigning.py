"""A move between stores is one change of two files, whatever happens (stores-and-access.md, Manage stores)."""

from __future__ import annotations

import os
import shutil
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from actors.authority import MoveAgent, Policy, SharedStore
from actors.authority.assigning import move, recover
from host_bridge.config import parse_configuration
from host_bridge.memberships import MembershipFile
from messages.access import JoinStoreRequest, OwnStoreRequest, ShareStoreRequest
from messages.errors import InvalidArgument, NotFound, StorageError, StoreUnavailable
from messages.operator import LOCAL_OPERATOR
from storage import faults
from storage.layout import Layout
from storage.registry import Isolated, Named, Registry
from storage.registry_audit import By

NOW = 1_790_000_000_000
TEXT = "# mine\nagents: {list: [{id: main}, {id: research}]}\n"
POLICY = Policy(agents=("main", "research"))
SHARE = ShareStoreRequest(name="family", label="Family", agents=("research",))
JOIN = JoinStoreRequest(name="family")
OWN = OwnStoreRequest()


class Place:
    """A state directory with a configuration, and a store that agent main uses."""

    def __init__(self, state_dir: Path) -> None:
        self.layout = Layout(state_dir)
        self.file = MembershipFile(self.layout.configuration, lambda _: None)

    @contextmanager
    def registry(self) -> Iterator[Registry]:
        """The registry as the next process opens it: what a crash left is ended first."""
        registry = Registry.open(self.layout, at=NOW)
        try:
            recover(registry, self.file, self.policy())
            yield registry
        finally:
            registry.close()

    def policy(self) -> Policy:
        return replace(POLICY, stores=self.file.stores(self.file.read()))

    def move(self, agent: str, request: ShareStoreRequest | JoinStoreRequest | OwnStoreRequest) -> None:
        message = MoveAgent(agent, request, LOCAL_OPERATOR, By("operator:x", "host", NOW))
        with self.registry() as registry:
            move(registry, self.file, self.policy(), message)

    def agents_of(self, name: str) -> tuple[str, ...] | None:
        found = parse_configuration(self.layout.configuration.read_text()).stores.get(name)
        return None if found is None else found.agents


@pytest.fixture
def place(tmp_path: Path) -> Place:
    state_dir = tmp_path / "state"
    state_dir.mkdir()
    made = Place(state_dir)
    made.layout.configuration.write_text(TEXT)
    with made.registry() as registry:
        entry = registry.ensure(Isolated("main"), at=NOW)
        entry.layout.root.mkdir(parents=True)
        registry.mark_made(entry.vault_id)
    return made


def copied(place: Place, name: str) -> Place:
    target = place.layout.state_dir.with_name(name)
    shutil.copytree(place.layout.state_dir, target)
    return Place(target)


def killed(action: Callable[[], None], wanted: str, hit: int) -> int:
    """Run in a child that is killed at a pass of a point; its exit status."""
    child = os.fork()
    if child == 0:
        left = hit

        def kill(name: str) -> None:
            nonlocal left
            left -= name == wanted
            if not left:
                os.kill(os.getpid(), signal.SIGKILL)

        try:
            with faults.installed(kill):
                action()
        finally:
            os._exit(1)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


@pytest.mark.parametrize("kind", ["share", "join", "own"])
def test_a_move_that_is_killed_at_any_point_is_finished_or_undone(place: Place, kind: str) -> None:
    if kind != "share":
        place.move("main", ShareStoreRequest(name="family"))
    if kind == "own":
        place.move("research", JOIN)
    agent = "main" if kind == "share" else "research"
    request = SHARE if kind == "share" else JOIN if kind == "join" else OWN
    before = place.agents_of("family")
    after = ("main",) if kind == "own" else ("main", "research")
    points: list[str] = []
    with faults.installed(points.append):
        copied(place, "dry").move(agent, request)
    # A statement has no effect of its own, and the registry's opening is tried out elsewhere.
    changing = [point for point in dict.fromkeys(points) if point.startswith(("registry.assignment.", "text."))]
    if kind != "share":  # which takes the same steps, at every pass
        changing = [point for point in changing if point.startswith(("registry.", "text.place"))]
    passes = [(name, hit) for name in changing for hit in range(1, points.count(name) + 1)]
    assert {"registry.assignment.begin.commit", "text.place.after", "registry.assignment.finish.commit"} <= set(points)
    outcomes = set()
    for number, (name, hit) in enumerate(passes):
        crashed = copied(place, str(number))
        assert killed(lambda at=crashed: at.move(agent, request), name, hit) == -signal.SIGKILL, (name, hit)  # type: ignore[misc] # a lambda's default has no annotation
        with crashed.registry() as registry:
            found = crashed.agents_of("family")
            assert found in (before, after), (name, hit)
            assert registry.unfinished() is None
            (entry,) = registry.entries()
            assert entry.holder == (Isolated("main") if found is None else Named("family")), (name, hit)
            outcomes.add(found)
        crashed.move(agent, request)
        assert crashed.agents_of("family") == after
        left = {path.name for path in crashed.layout.state_dir.iterdir()}
        assert left == {"knowledge", "knowledge.yaml"}, (name, hit)
    assert outcomes == {before, after}, "some were undone and some were finished"


def test_an_edit_that_comes_between_a_crash_and_the_next_start_decides_how_the_move_ended(place: Place) -> None:
    for name, text, holder in (
        ("undone", TEXT + "# edited\n", Isolated("main")),
        ("finished", TEXT + "stores: {family: {agents: [main]}}  # edited\n", Named("family")),
    ):
        crashed = copied(place, name)
        killed(lambda at=crashed: at.move("main", SHARE), "text.place.after", 1)  # type: ignore[misc] # as above
        crashed.layout.configuration.write_text(text)
        with crashed.registry() as registry:
            (entry,) = registry.entries()
            assert entry.holder == holder


def test_a_configuration_that_is_broken_after_a_crash_keeps_the_move_open_until_it_is_mended(place: Place) -> None:
    killed(lambda: place.move("main", SHARE), "text.place.after", 1)
    good = place.layout.configuration.read_text()
    place.layout.configuration.write_text("stores: [\n")
    registry = Registry.open(place.layout, at=NOW)
    with pytest.raises(StoreUnavailable):
        recover(registry, place.file, POLICY)
    registry.close()
    place.layout.configuration.write_text(good)
    with place.registry() as registry:
        assert registry.find(Named("family")) is not None


def test_a_runtime_with_a_fixed_configuration_ends_a_move_by_what_it_was_given(place: Place) -> None:
    killed(lambda: place.move("main", SHARE), "text.place.after", 1)
    registry = Registry.open(place.layout, at=NOW)
    recover(registry, None, replace(POLICY, stores={"family": SharedStore(("main",))}))
    assert registry.find(Named("family")) is not None
    message = MoveAgent("main", OWN, LOCAL_OPERATOR, By("operator:x", "host", NOW))
    with pytest.raises(InvalidArgument):
        move(registry, None, POLICY, message)
    registry.close()


def test_a_text_that_somebody_wrote_while_the_process_died_is_never_removed(place: Place) -> None:
    def edit_then_die(name: str) -> None:
        if name == "text.place":
            place.layout.configuration.write_text("operatorRead: true  # theirs\n")
        if name == "text.place.after":
            os.kill(os.getpid(), signal.SIGKILL)

    child = os.fork()
    if child == 0:
        with faults.installed(edit_then_die):
            place.move("main", SHARE)
        os._exit(1)
    os.waitpid(child, 0)
    with place.registry():
        pass
    kept = place.layout.state_dir / ".knowledge.yaml.kr-new"
    assert "theirs" in kept.read_text()
    with pytest.raises(StorageError, match="look at it"):
        place.move("main", OWN)
    assert "theirs" in kept.read_text()


def test_a_sync_that_fails_after_the_rename_still_ends_in_one_of_the_two(place: Place) -> None:
    passes = iter(range(10))

    def fail(name: str) -> None:
        if name == "text.sync" and next(passes) == 1:
            raise OSError(5, "Input/output error")

    with faults.installed(fail):
        place.move("main", SHARE)
    assert place.agents_of("family") == ("main", "research")
    with place.registry() as registry:
        assert registry.find(Named("family")) is not None


def test_a_store_that_belongs_to_nobody_is_given_a_name_by_joining_it(place: Place) -> None:
    nobodys = "33333333-3333-4333-8333-333333333333"
    with place.registry() as registry:
        registry.register(nobodys, place.layout.state_dir / "elsewhere", at=NOW)
        mains = registry.find(Isolated("main"))
        assert mains is not None
    place.move("research", JoinStoreRequest(name="found", store=nobodys))
    with place.registry() as registry:
        found = registry.find(Named("found"))
        assert found is not None
        assert found.vault_id == nobodys
    for store, name, error in (
        (mains.vault_id, "mine", InvalidArgument),
        (nobodys, "other", InvalidArgument),
        ("44444444-4444-4444-8444-444444444444", "x", NotFound),
    ):
        with pytest.raises(error):
            place.move("main", JoinStoreRequest(name=name, store=store))
    assert place.agents_of("found") == ("research",)

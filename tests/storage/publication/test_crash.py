"""A process killed anywhere in the write path, and anywhere in its recovery."""

from __future__ import annotations

import random
import shutil
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

import pytest

from storage import faults
from storage.fault_points import all_fault_points, declared_name
from tests.kit.unsynced import without_syncs
from tests.storage.publication.audit import audit
from tests.storage.publication.scenario import Points, kill_at, run, run_in_child
from tests.storage.publication.world import Event, World

NewStore = Callable[[], Path]

# Points whose effect changes nothing on the disk: being killed there leaves what the point before it left.
READ_ONLY = (".read", ".lease", ".release", ".stat", "state.statement", "open.folder", "open.vault", "open.manifest")


def hits_of(new_store: NewStore, body: Callable[[World, Points], None]) -> list[str]:
    """The names that a run passes, in order."""
    names: list[str] = []
    points = Points(lambda _hit, name: names.append(name))
    with faults.installed(points), without_syncs() as vfs:
        body(World(new_store(), vfs=vfs), points)
    return names


def numbers(names: Iterable[str], *, effects: bool) -> list[int]:
    """The hit numbers, counted from 1, of the points that change something, or of the others."""
    return [
        number
        for number, name in enumerate(names, 1)
        if effects != any(name.removesuffix(".after").endswith(end) for end in READ_ONLY)
    ]


def reopen(world: World, _points: Points) -> None:
    """What happens after a crash: open, recover, one background step, close."""
    world.open()
    world.sync()
    world.close()


def killed_and_audited(folder: Path, hit: int, *, recovery_hit: int | None = None) -> bool:
    """Kill the script at ``hit``, perhaps its recovery too, and audit what is left; whether a kill happened."""
    log = folder.parent / "log"
    killed, events = run_in_child(folder, log, run, kill_at(hit))
    if killed and recovery_hit is not None:
        run_in_child(folder, folder.parent / "recovery-log", reopen, kill_at(recovery_hit))
    audit(folder, events, machine_stop=False)
    shutil.rmtree(folder.parent)
    return killed


def test_the_script_passes_every_step_and_the_audit_holds(new_store: NewStore) -> None:
    folder = new_store()
    world, points = World(folder), Points()
    with faults.installed(points):
        run(world, points)
    names = all_fault_points()
    assert [name for name in points.names if declared_name(name, names) is None] == []
    assert sum(event.kind == "ack" for event in world.events) == 10
    assert sum('"state":"conflict"' in event.receipt for event in world.events) == 3
    audit(folder, world.events, machine_stop=False)


def test_a_process_killed_at_a_sample_of_fault_points_loses_nothing(new_store: NewStore) -> None:
    names = hits_of(new_store, run)
    chosen = random.Random(20260921)
    for hit in sorted(chosen.sample(numbers(names, effects=True), 10)):
        assert killed_and_audited(new_store(), hit), names[hit - 1]


def test_a_recovery_killed_at_a_sample_of_fault_points_can_be_repeated(new_store: NewStore) -> None:
    names = hits_of(new_store, run)
    chosen = random.Random(4)
    inside = [n for n in numbers(names, effects=True) if names[n - 1].startswith(("place.", "manifest.", "undo."))]
    for hit in sorted(chosen.sample(inside, 6)):
        assert killed_and_audited(new_store(), hit, recovery_hit=chosen.randrange(1, 120))


@pytest.mark.exhaustive
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("part", range(8))
def test_a_process_killed_at_every_fault_point_that_changes_something_loses_nothing(
    new_store: NewStore, part: int
) -> None:
    names = hits_of(new_store, run)
    for hit in numbers(names, effects=True)[part::8]:
        recovery = 7 * hit % 150 + 1 if hit % 3 == 0 else None
        assert killed_and_audited(new_store(), hit, recovery_hit=recovery), names[hit - 1]


@pytest.mark.exhaustive
@pytest.mark.timeout(3600)
def test_a_process_killed_at_a_point_that_changes_nothing_loses_nothing(new_store: NewStore) -> None:
    names = hits_of(new_store, run)
    for hit in random.Random(1).sample(numbers(names, effects=False), 100):
        assert killed_and_audited(new_store(), hit), names[hit - 1]


def interesting(names: list[str]) -> Iterator[int]:
    """One hit inside each publication, conflict and background step: where recovery has most to do."""
    for wanted in ("place.file.after", "manifest.place", "undo.commit.after", "place.back.after", "sync.file.after"):
        found = [number for number, name in enumerate(names, 1) if name == wanted]
        yield from found[:: max(1, len(found) // 3)]


@pytest.mark.exhaustive
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("part", range(8))
def test_a_recovery_killed_at_every_fault_point_can_be_repeated(new_store: NewStore, part: int) -> None:
    names = hits_of(new_store, run)
    for hit in list(interesting(names))[part::8]:
        folder = new_store()
        killed, events = run_in_child(folder, folder.parent / "log", run, kill_at(hit))
        assert killed
        base = folder.parent
        recovery_hit = 0
        while killed:
            recovery_hit += 1
            case = base.with_name(f"{base.name}-again")
            shutil.copytree(base, case)
            killed, _ = run_in_child(case / "store", case / "recovery-log", reopen, skip_reads(recovery_hit))
            audit(case / "store", events, machine_stop=False)
            shutil.rmtree(case)
        assert recovery_hit > 10


def skip_reads(wanted: int) -> Callable[[int, str], None]:
    """Kill at the ``wanted``-th hit that changes something."""
    count = 0

    def action(number: int, name: str) -> None:
        nonlocal count
        if not any(name.removesuffix(".after").endswith(end) for end in READ_ONLY):
            count += 1
            if count == wanted:
                kill_at(number)(number, name)

    return action


def create(world: World, _points: Points) -> None:
    world.create()
    world.note(Event("durable"))


def creation_goes_on(case: Path, hit: int) -> bool:
    """Kill a creation at ``hit``, create again, audit; whether it was killed."""
    case.mkdir()
    folder = case / "stores" / "vault"
    killed, events = run_in_child(folder, case / "log", create, skip_reads(hit))
    if killed:
        with without_syncs() as vfs:
            World(folder, vfs=vfs).create()
    audit(folder, events, machine_stop=False)
    shutil.rmtree(case)
    return killed


def test_a_creation_killed_at_a_sample_of_fault_points_goes_on_the_next_time(fast_path: Path) -> None:
    for hit in random.Random(7).sample(range(1, 40), 10):
        assert creation_goes_on(fast_path / "case", hit)


@pytest.mark.exhaustive
@pytest.mark.timeout(3600)
def test_a_creation_killed_at_every_fault_point_goes_on_the_next_time(fast_path: Path) -> None:
    hit = 1
    while creation_goes_on(fast_path / "case", hit):
        hit += 1
    assert hit > 40

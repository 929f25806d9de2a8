"""The background step: what it makes durable, what it forgets, what it never removes."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from pathlib import Path

import pytest

from messages.errors import StorageError
from messages.vocabulary import PRIVATE
from storage import faults
from storage.publication import Cut, FileChange, Synced, sync_files
from storage.publication.sync import STAGED_AGE_NS, STAGED_AGE_WITHOUT_LEASES_NS
from storage.state import history, journal
from storage.state.journal import digest
from storage.vault.replace import Capabilities
from stress.bench.counters import metered
from tests.storage.publication.scenario import Points
from tests.storage.publication.world import World, intent, request, staged

NewStore = Callable[[], Path]


class Clock:
    """A clock that moves only when a test says so. Nanoseconds since 1970."""

    def __init__(self) -> None:
        self.now = 1_900_000_000_000_000_000

    def __call__(self) -> int:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def world(new_store: NewStore, clock: Clock) -> Iterator[World]:
    made = World(new_store(), clock=clock)
    made.open()
    yield made
    made.close(clean=False)


def cut_of(world: World) -> Cut:
    covered = world.store.sync_cut()
    assert covered is not None
    return covered


def test_without_anything_new_there_is_no_cut_and_no_commit(world: World) -> None:
    names: list[str] = []
    with faults.installed(names.append):
        assert world.store.sync_cut() is None
    assert names == []


def test_the_file_part_runs_in_another_thread_and_touches_no_database(world: World) -> None:
    world.publish({"a.md": "one\n", "claims/2026/09/b.md": "b\n"})
    covered = cut_of(world)
    done: list[Synced] = []
    names: list[str] = []
    with faults.installed(names.append):
        thread = threading.Thread(target=lambda: done.append(sync_files(covered)))
        thread.start()
        thread.join()
    assert not any(name.startswith(("state.", "accept.")) for name in names)
    assert world.store.prune(done[0], minimum_age_ns=0).entries == 1
    assert world.store.unpruned == 0


def test_every_file_and_every_folder_up_to_the_root_is_synced(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    world.publish({"claims/2026/09/b.md": "b\n"})
    synced: list[str] = []

    class Watched:
        def fsync(self, fd: int) -> None:
            synced.append(os.readlink(f"/proc/self/fd/{fd}").removeprefix(str(world.vault)))
            os.fsync(fd)

        def __getattr__(self, name: str) -> object:
            return getattr(os, name)

    monkeypatch.setattr("storage.files.os", Watched())
    sync_files(cut_of(world))
    assert synced == [
        "/private/claims/2026/09/b.md",
        "/vault.json",
        "/private/claims/2026/09",
        "/private/claims/2026",
        "/private/claims",
        "/private",
        "",
    ]


def test_a_path_that_was_replaced_while_it_was_synced_is_synced_again(world: World) -> None:
    world.publish({"a.md": "one\n"})
    covered = cut_of(world)
    points = Points()
    points.once("sync.folder", lambda: world.person_saves("a.md", "a person's\n"))
    with faults.installed(points):
        synced = sync_files(covered)
    assert points.names["sync.file"] == 4  # opened and synced, twice
    assert world.store.prune(synced, minimum_age_ns=0).entries == 1


def test_a_path_that_was_replaced_after_it_was_synced_is_not_pruned(world: World) -> None:
    world.publish({"a.md": "one\n"})
    world.publish({"b.md": "one\n"})
    synced = sync_files(cut_of(world))
    world.person_saves("a.md", "a person's\n")
    pruned = world.store.prune(synced, minimum_age_ns=0)
    assert (pruned.entries, pruned.again) == (0, True)
    world.fold()
    assert world.sync()


def test_pruning_goes_oldest_first_and_stops_at_what_must_stay(world: World) -> None:
    world.publish({"a.md": "one\n"})
    world.publish({"b.md": "one\n"})
    world.publish({"c.md": "one\n"})
    synced = sync_files(cut_of(world))
    world.person_saves("b.md", "a person's\n")
    assert world.store.prune(synced, minimum_age_ns=0).entries == 1
    assert world.store.unpruned == 2


def test_a_publication_accepted_after_the_cut_is_not_part_of_it(world: World) -> None:
    world.publish({"a.md": "one\n"})
    covered = cut_of(world)
    world.publish({"a.md": "two\n"})
    assert world.store.prune(sync_files(covered), minimum_age_ns=0).again is False
    assert world.store.unpruned == 1
    assert world.read("a.md") == "two\n"


def test_a_displaced_text_is_removed_after_two_seconds_and_not_before(world: World, clock: Clock) -> None:
    world.publish({"a.md": "one\n"})
    world.sync()
    world.publish({"a.md": "two\n"})
    clock.now += STAGED_AGE_NS - 1
    covered = cut_of(world)
    assert world.store.prune(sync_files(covered)).again
    assert len(staged(world.vault)) == 2  # the old text and the old manifest
    clock.now += 1
    covered = cut_of(world)
    assert not world.store.prune(sync_files(covered)).again
    assert staged(world.vault) == []


def test_where_nobody_can_tell_who_has_a_file_open_it_is_kept_for_a_minute(new_store: NewStore, clock: Clock) -> None:
    world = World(new_store(), clock=clock, can=Capabilities(leases=False))
    world.open()
    world.publish({"a.md": "one\n"})
    world.sync()
    world.publish({"a.md": "two\n"})
    clock.now += STAGED_AGE_WITHOUT_LEASES_NS - 1
    assert world.store.prune(sync_files(cut_of(world))).again
    clock.now += 1
    assert not world.store.prune(sync_files(cut_of(world))).again
    world.close()


def test_a_displaced_text_that_is_open_for_writing_stays_and_a_late_save_goes_to_history(world: World) -> None:
    world.publish({"a.md": "one\n"})
    world.sync()
    path = world.vault / "private" / "a.md"
    editor: list[int] = []

    points = Points()
    # Opened after the look at the target, and written only after the answer: no look could have seen it.
    points.once("place.look.lease.release.after", lambda: editor.append(reopen(world)))
    with faults.installed(points):
        assert world.publish({"a.md": "two\n"}).state == "published"
    assert not world.sync()
    os.ftruncate(editor[0], 0)
    os.pwrite(editor[0], b"a late save\n", 0)
    assert not world.sync()
    os.close(editor[0])
    assert world.sync()
    assert staged(world.vault) == []
    assert path.read_text() == "two\n"
    kept = history.rows(world.store.db, PRIVATE, record_id="id of a.md", limit=1)[0]
    assert (kept.operation, kept.hash) == ("kept", digest(b"a late save\n"))


def reopen(world: World) -> int:
    (name,) = [name for name in staged(world.vault) if name.startswith("private/")]
    return os.open(world.vault / name, os.O_WRONLY)


def test_pruning_keeps_requests_receipts_and_history_and_drops_what_only_replay_needed(world: World) -> None:
    wanted = intent(
        request(1),
        FileChange("a.md", None, b"one\n", "a", 1, "active"),
        FileChange("artifacts/r/excerpt.txt", None, b"quoted\n"),
    )
    world.publish({"b.md": "b\n"}, number=2)
    receipt = world.store.publish(wanted, fence=nullcontext(), check=lambda: None)
    assert journal.has_blob(world.store.db, digest(b"quoted\n"))
    world.sync()
    assert not journal.has_blob(world.store.db, digest(b"quoted\n"))
    assert history.text(world.store.db, digest(b"one\n")) == b"one\n"
    assert world.store.publish(wanted, fence=nullcontext(), check=lambda: None) == receipt
    assert world.read("artifacts/r/excerpt.txt") == "quoted\n"


def test_an_excerpt_is_not_dropped_while_another_entry_needs_the_same_bytes(world: World) -> None:
    world.publish({"artifacts/r1/excerpt.txt": "quoted\n"})
    covered = cut_of(world)
    world.publish({"artifacts/r2/excerpt.txt": "quoted\n"})
    world.store.prune(sync_files(covered), minimum_age_ns=0)
    assert journal.has_blob(world.store.db, digest(b"quoted\n"))
    world.sync()
    assert not journal.has_blob(world.store.db, digest(b"quoted\n"))


def test_pruning_costs_no_more_while_a_whole_vault_waits_for_its_first_checkpoint(new_store: NewStore) -> None:
    costs: list[tuple[int, int]] = []
    for waiting in (1, 30):
        with metered() as meter:
            world = World(new_store())
            world.open()
            for number in range(waiting):
                world.publish({f"{number}.md": f"{number}\n"})
            world.sync()
            assert world.store.db.query_one("SELECT count(*) FROM step") == (waiting,)
            world.publish({"artifacts/r/excerpt.txt": "quoted\n"})
            covered = cut_of(world)
            with meter.counting() as counts:
                world.store.prune(sync_files(covered), minimum_age_ns=0)
            costs.append((counts.steps, counts.scanned))
            world.close(clean=False)
    assert costs[0] == costs[1]


def test_a_vault_folder_that_was_replaced_is_never_synced_in_its_place(world: World) -> None:
    world.publish({"a.md": "one\n"})
    covered = cut_of(world)
    world.vault.rename(world.folder / "moved")
    world.vault.mkdir()
    with pytest.raises(StorageError):
        sync_files(covered)


def test_the_floor_is_the_pair_of_the_last_pruned_publication(world: World) -> None:
    world.publish({"a.md": "one\n"})
    world.publish({"a.md": "two\n"})
    pair = world.store.pair
    covered = cut_of(world)
    world.publish({"a.md": "three\n"})
    world.store.prune(sync_files(covered), minimum_age_ns=0)
    assert journal.marks(world.store.db).floor == pair

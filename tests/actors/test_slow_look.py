"""Beside the watch, on a virtual clock: changes that send no event, and a watch that has gone deaf.

Real files, mappings and inotify. Source: PERFORMANCE.md (Freshness), stores-and-access.md (Runtime).
"""

from __future__ import annotations

import mmap
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from actors.events import EventHub, EventType
from actors.runtime import RuntimeSettings
from actors.store.auditor import Auditor
from actors.store.lane import Lane
from actors.store.messages import LookAtFiles
from actors.store.slow_look import FILES_PER_SLICE, SlowLook
from actors.supervision import Envelope
from messages.json_types import JsonObject
from messages.vocabulary import PRIVATE, Partition
from storage import faults
from storage.session import PartitionSession, StoreSession
from tests.actors.test_runtime import House
from tests.kit.scheduler import VirtualScheduler
from tests.kit.store import GROUP, GROUP_PARTITION, only_store, page_file, write_note

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="needs Linux: inotify is Linux's")

ROUND = 600.0
TEST = 10.0
TICK = 2.0
SETTINGS = RuntimeSettings(idle=1_000_000.0, git=False, look_round=ROUND, watch_test=TEST)


@contextmanager
def opened(folder: Path, settings: RuntimeSettings) -> Iterator[House]:
    house = House(folder, settings, VirtualScheduler(seed=3, max_steps=2_000_000))
    try:
        house.call()
        yield house
    finally:
        assert house.runtime.close().stuck == ()
        assert house.scheduler.alive() == []


@pytest.fixture(autouse=True)
def no_watcher(monkeypatch: pytest.MonkeyPatch) -> None:
    # A watcher waits for a descriptor, which takes real time; without one it has nothing to do.
    monkeypatch.setattr(Lane, "_send_descriptor", lambda self: None)


@pytest.fixture
def house(tmp_path: Path) -> Iterator[House]:
    with opened(tmp_path, SETTINGS) as made:
        yield made


def root(house: House) -> Path:
    return only_store(house.folder).partition(PRIVATE)


def note(house: House, name: str, body: str) -> Path:
    return write_note(root(house), f"people/{name}.md", page_file(name, name.title(), body=body))


def body(house: House, name: str) -> str:
    record = house.call(tool="record", arguments={"id": name})["record"]
    assert isinstance(record, dict)
    return str(record["body"])


def rows(house: House, name: str) -> list[JsonObject]:
    found = house.call(tool="history", arguments={"id": name})["rows"]
    assert isinstance(found, list)
    return [row for row in found if isinstance(row, dict)]


def text(house: House, row: JsonObject) -> str:
    answer = house.call(tool="revision", arguments={"id": row["id"], "sequence": row["sequence"]})
    return str(answer)


def slices(house: House) -> int:
    """How many slices the auditor has looked at, which in these tests does nothing else."""
    actors = house.runtime.health()["actors"]
    assert isinstance(actors, list)
    [auditor] = [one for one in actors if isinstance(one, dict) and str(one["name"]).endswith("/auditor")]
    return int(str(auditor["handled"]))


@contextmanager
def mapped(path: Path) -> Iterator[mmap.mmap]:
    """The file written through a mapping that stays open, with the page dirty already: nothing tells of more writes."""
    with path.open("r+b") as file, mmap.mmap(file.fileno(), 0) as mapping:
        mapping[:1] = mapping[:1]
        yield mapping


def put(mapping: mmap.mmap, old: bytes, new: bytes) -> None:
    at = mapping.find(old)
    mapping[at : at + len(old)] = new


def test_a_write_through_a_mapping_that_stays_open_is_found_within_one_round(house: House) -> None:
    path = note(house, "ann", "It ships in May.\n")
    with mapped(path) as mapping:
        assert body(house, "ann") == "It ships in May.\n"
        [first] = rows(house, "ann")
        put(mapping, b"in May", b"in Jun")
        house.scheduler.settle()
        assert body(house, "ann") == "It ships in May.\n", "nothing has told of it"
        house.scheduler.advance(ROUND)
        assert body(house, "ann") == "It ships in Jun.\n"
        last, *before = rows(house, "ann")
        assert last["external"] is True
        assert before == [first]
        assert "in May" in text(house, first)
        assert "in Jun" in text(house, last)
        put(mapping, b"in Jun", b"in Jul")
        house.scheduler.advance(ROUND)
        assert body(house, "ann") == "It ships in Jul.\n"


def test_a_look_that_finds_nothing_changes_nothing(house: House) -> None:
    note(house, "ann", "words\n")
    before = body(house, "ann"), rows(house, "ann")
    writes: list[str] = []
    with faults.installed(lambda point: writes.append(point) if point.endswith(".begin") else None):
        house.scheduler.advance(ROUND + TICK)
    assert slices(house) >= 1
    assert [point for point in writes if point.startswith("edits.")] == []
    assert (body(house, "ann"), rows(house, "ann")) == before


def test_a_round_is_made_of_small_slices_over_its_whole_time(house: House) -> None:
    for number in range(2 * FILES_PER_SLICE + 10):
        note(house, f"p{number}", "words\n")
    house.call()
    house.scheduler.advance(2 * ROUND)  # the first round began before they were there
    house.call()
    begun = slices(house)
    seen = []
    for _ in range(10):
        house.scheduler.advance(ROUND / 10)
        seen.append(slices(house) - begun)
    assert seen[-1] == 3
    assert max(after - before for before, after in zip([0, *seen], seen, strict=False)) == 1


def test_a_store_that_is_not_used_is_looked_at_once_more_and_then_left_alone(house: House) -> None:
    note(house, "ann", "words\n")
    house.call()
    house.scheduler.advance(2 * ROUND)
    done = slices(house)
    assert done >= 1
    points: list[str] = []
    with faults.installed(points.append):
        house.scheduler.advance(3 * ROUND)
    assert slices(house) == done
    assert {point.partition(".")[0] for point in points} & {"watch", "scan", "audit", "edits", "session"} == set()


def test_a_look_does_not_keep_an_idle_store_alive(tmp_path: Path) -> None:
    with opened(tmp_path, replace(SETTINGS, idle=60.0)) as house:
        note(house, "ann", "words\n")
        house.call()
        house.scheduler.advance(100)
        assert house.live() == 0


def test_a_pace_of_zero_looks_never(tmp_path: Path) -> None:
    with opened(tmp_path, replace(SETTINGS, look_round=0.0)) as house:
        note(house, "ann", "words\n")
        house.call()
        house.scheduler.advance(3 * ROUND)
        assert slices(house) == 0


def test_a_slice_that_cannot_be_looked_at_is_left_to_the_next_round(house: House) -> None:
    path = note(house, "ann", "It ships in May.\n")
    with mapped(path) as mapping:
        assert body(house, "ann") == "It ships in May.\n"
        put(mapping, b"in May", b"in Jun")

        def fail(point: str) -> None:
            if point == "audit.folder":
                raise PermissionError(13, "Permission denied")

        with faults.installed(fail):
            house.scheduler.advance(ROUND)
        assert body(house, "ann") == "It ships in May.\n"
        house.scheduler.advance(ROUND)
        assert body(house, "ann") == "It ships in Jun.\n"


def test_a_second_name_made_outside_is_found_within_one_round(house: House) -> None:
    path = note(house, "ann", "words\n")
    assert body(house, "ann") == "words\n"
    os.link(path, house.folder / "second.md")
    house.scheduler.advance(ROUND)
    assert house.call(tool="lookup", arguments={"query": "Ann"})["state"] == "missing"
    os.unlink(house.folder / "second.md")
    assert body(house, "ann") == "words\n"


# --- a watch that has gone deaf ---------------------------------------------------------------------------------------


def instances() -> set[int]:
    """The inotify instances of this process, by descriptor."""
    return {int(entry) for entry in os.listdir("/proc/self/fd") if _is_inotify(entry)}


def make_deaf(number: int) -> None:
    """Put an instance that watches nothing in the place of another."""
    from storage.vault._inotify import Inotify

    other = Inotify()
    os.dup2(other.fd, number)
    other.close()


def _is_inotify(entry: str) -> bool:
    try:
        return os.readlink(f"/proc/self/fd/{entry}") == "anon_inode:inotify"
    except FileNotFoundError:
        return False


def test_a_watch_that_went_deaf_is_noticed_within_the_stated_time_and_becomes_scans(tmp_path: Path) -> None:
    others = instances()
    with opened(tmp_path, SETTINGS) as house:
        path = note(house, "ann", "words1\n")
        assert body(house, "ann") == "words1\n"
        assert house.call()["live"] == "watching"
        [number] = instances() - others
        make_deaf(number)
        path.write_text(page_file("ann", "Ann", body="words2\n"))
        assert body(house, "ann") == "words1\n", "not noticed yet"
        house.scheduler.advance(TEST + TICK)
        assert body(house, "ann") == "words2\n"
        assert house.call()["live"] == "unavailable"
        path.write_text(page_file("ann", "Ann", body="words3\n"))
        assert body(house, "ann") == "words3\n"


def test_a_save_of_a_page_that_was_moved_while_the_watch_was_deaf_finds_it_and_the_watch_is_given_up(
    tmp_path: Path,
) -> None:
    """What the save meets is what the watch should have told of; waiting for the next test would refuse it for ever."""
    others = instances()
    with opened(tmp_path, SETTINGS) as house:
        path = note(house, "ann", "words1\n")
        found = house.call(tool="record", arguments={"id": "ann"})["record"]
        assert isinstance(found, dict)
        [number] = instances() - others
        make_deaf(number)
        moved = path.rename(path.with_name("anna.md"))
        save: JsonObject = {
            "requestId": "00000000-0000-4000-8000-000000000001",
            "id": "ann",
            "expectedRevision": found["revision"],
            "expectedHash": found["hash"],
            "title": found["title"],
            "type": found["type"],
            "body": "words2\n",
        }
        house.call(tool="save_page", arguments=save)
        assert "words2" in moved.read_text()
        assert not path.exists()
        assert house.call()["live"] == "unavailable"


def test_a_watch_that_answers_for_nobody_is_not_tested(house: House) -> None:
    house.call()
    house.scheduler.advance(TEST + TICK)
    made: list[str] = []
    with faults.installed(lambda point: made.append(point) if point == "watch.sentinel.open" else None):
        house.scheduler.advance(10 * TEST)
        assert made == []
        for _ in range(20):
            house.call()
            house.scheduler.advance(1)
        assert 1 <= len(made) <= 2, "a test each ten seconds at the most"


def heard(monkeypatch: pytest.MonkeyPatch) -> list[tuple[Partition, str]]:
    """What is told to subscribers from now on."""
    told: list[tuple[Partition, str]] = []
    real = EventHub.publish

    def publish(hub: EventHub, vault_id: str, partition: Partition, kind: EventType) -> None:
        told.append((partition, kind))
        real(hub, vault_id, partition, kind)

    monkeypatch.setattr(EventHub, "publish", publish)
    return told


def test_an_edit_whose_event_the_test_of_the_watch_read_is_told_without_a_request(
    house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = note(house, "ann", "words1\n")
    assert body(house, "ann") == "words1\n"
    told = heard(monkeypatch)
    path.write_text(page_file("ann", "Ann", body="words2\n"))
    house.scheduler.advance(TEST + TICK)
    assert told == [(PRIVATE, "changed")]
    house.call()
    house.scheduler.advance(TEST + TICK)
    assert told == [(PRIVATE, "changed")], "a test that reads nothing tells nothing"


def test_an_edit_that_a_watch_gone_deaf_did_not_hear_is_told_when_that_is_noticed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    others = instances()
    with opened(tmp_path, SETTINGS) as house:
        path = note(house, "ann", "words1\n")
        assert body(house, "ann") == "words1\n"
        [number] = instances() - others
        make_deaf(number)
        told = heard(monkeypatch)
        path.write_text(page_file("ann", "Ann", body="words2\n"))
        house.scheduler.advance(TEST + TICK)
        assert (PRIVATE, "changed") in told


def test_another_ontology_that_changes_what_records_are_is_told(house: House, monkeypatch: pytest.MonkeyPatch) -> None:
    note(house, "ann", "words\n")
    house.call()
    told = heard(monkeypatch)
    extension = "format: knowledge-ontology-v1\nextends: core\npages:\n  dish:\n    description: Food\n"
    (root(house) / "ontology.yaml").write_text(extension + "    folder: dishes\n    prefixes: [people/]\n")
    house.call()
    assert told == [(PRIVATE, "changed")]


# --- conversations that were closed -----------------------------------------------------------------------------------


def test_a_look_never_opens_a_conversation_that_was_closed(house: House, monkeypatch: pytest.MonkeyPatch) -> None:
    """The conversation is closed for others that are used while the auditor looks at its files."""
    target = only_store(house.folder).partition(GROUP_PARTITION) / "people/ann.md"
    text = page_file("ann", "Ann", body="It ships in May.\n", partition=GROUP_PARTITION)
    write_note(target.parent.parent, "people/ann.md", text)
    house.call(GROUP)
    sessions: list[StoreSession] = []
    real = Auditor.on_ask

    def close_it(auditor: Auditor, message: object, envelope: Envelope) -> object:
        if isinstance(message, LookAtFiles) and message.partition == GROUP_PARTITION:
            assert message.files
            sessions[0]._partitions.drop(GROUP_PARTITION)
            return tuple(file.path for file in message.files)
        return real(auditor, message, envelope)

    slice_ = SlowLook.slice

    def remembered(look: SlowLook, session: StoreSession) -> LookAtFiles | None:
        sessions[:] = [session]
        return slice_(look, session)

    monkeypatch.setattr(SlowLook, "slice", remembered)
    monkeypatch.setattr(Auditor, "on_ask", close_it)
    house.scheduler.advance(3 * ROUND)
    assert sessions
    assert [opened.partition for opened in sessions[0].opened()] == [PRIVATE]


def test_a_change_in_a_conversation_that_was_closed_and_opened_again_is_told(
    house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = only_store(house.folder).partition(GROUP_PARTITION)
    sessions: list[StoreSession] = []
    real = StoreSession.partition

    def remembered(session: StoreSession, partition: Partition) -> PartitionSession:
        sessions[:] = [session]
        return real(session, partition)

    monkeypatch.setattr(StoreSession, "partition", remembered)
    write_note(folder, "people/ann.md", page_file("ann", "Ann", body="one\n", partition=GROUP_PARTITION))
    house.call(GROUP)
    for text in ("two\n", "three\n"):
        sessions[0]._partitions.drop(GROUP_PARTITION)
        write_note(folder, "people/ann.md", page_file("ann", "Ann", body=text, partition=GROUP_PARTITION))
        told = heard(monkeypatch)
        house.call(GROUP)
        assert (GROUP_PARTITION, "changed") in told

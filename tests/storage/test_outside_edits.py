"""What people do to the files behind the store's back (decisions.md sections 2 and 4, stores-and-access.md, Limits)."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from messages.errors import DeletionsRefused, ScanIncomplete, StoreUnavailable
from messages.json_types import JsonValue
from messages.vocabulary import PRIVATE
from storage import outside_edits
from storage.files import Stamp
from storage.outside_edits import RecentLosses
from storage.records import BrokenRecord, ParsedRecord, parse_record
from storage.state import catalogue
from storage.vault import scan
from tests.kit.moments import at_point
from tests.kit.store import Desk, write_note

PEOPLE = 30


def note(desk: Desk, name: str, title: str, recorded_at: str = "2026-10-01T10:00:00.000Z") -> Path:
    """A person's page, written by hand; its id is its file's name."""
    text = (
        f"---\nformat: knowledge-record-v1\nid: {name}\nrevision: 1\nkind: page\ntitle: {title}\ntype: person\n"
        f"recorded_at: {recorded_at}\nupdated_at: {recorded_at}\n"
        'scope: {"visibility": "private"}\nlifecycle: active\n---\n\nAbout.\n'
    )
    return write_note(desk.folder(), f"people/{name}.md", text)


def people(desk: Desk, number: int = PEOPLE) -> list[Path]:
    return [note(desk, f"p-{n}", f"Person {n}") for n in range(number)]


def listed(desk: Desk) -> list[JsonValue]:
    answer = desk.call("records", {"limit": 100})
    rows = answer["records"]
    assert isinstance(rows, list)
    return [row["id"] for row in rows if isinstance(row, dict)]


def test_a_renamed_folder_is_no_deletion(desk: Desk) -> None:
    people(desk)
    assert len(listed(desk)) == PEOPLE
    (desk.folder() / "people").rename(desk.folder() / "folks")
    assert len(listed(desk)) == PEOPLE
    assert desk.path_of("p-3").parent.name == "folks"


def test_the_loss_of_more_than_20_records_and_more_than_half_is_refused(desk: Desk) -> None:
    paths = people(desk)
    assert len(listed(desk)) == PEOPLE
    for path in paths[:21]:
        path.unlink()
    error = desk.fails("lookup", {"query": "Person 25"})
    assert isinstance(error, DeletionsRefused)
    assert error.fields["missing"] == 21


def test_plain_notes_beside_the_records_do_not_hide_the_loss_of_all_records(desk: Desk) -> None:
    paths = people(desk)
    for number in range(3 * PEOPLE):
        write_note(desk.folder(), f"inbox/{number}.md", "A plain note.\n")
    assert len(listed(desk)) == PEOPLE
    for path in paths:
        path.unlink()
    error = desk.fails("lookup", {"query": "Person 25"})
    assert isinstance(error, DeletionsRefused)
    assert (error.fields["missing"], error.fields["known"]) == (PEOPLE, PEOPLE)


def test_the_loss_of_plain_notes_is_no_loss_of_records(desk: Desk) -> None:
    note(desk, "p-1", "Person 1")
    notes = [write_note(desk.folder(), f"inbox/{number}.md", "A plain note.\n") for number in range(3 * PEOPLE)]
    assert listed(desk) == ["p-1"]
    assert desk.partition().uncovered() == {"broken": 3 * PEOPLE}
    for path in notes:
        path.unlink()
    assert listed(desk) == ["p-1"]
    assert desk.partition().uncovered() == {}


def test_a_new_plain_note_does_not_stand_for_a_record_that_is_lost(desk: Desk) -> None:
    paths = people(desk)
    assert len(listed(desk)) == PEOPLE
    for number, path in enumerate(paths[:20]):
        path.unlink()
        write_note(desk.folder(), f"inbox/{number}.md", "A plain note.\n")
        listed(desk)
    paths[20].unlink()
    assert isinstance(desk.fails("lookup", {"query": "Person 25"}), DeletionsRefused)


def test_the_loss_of_half_is_recorded(desk: Desk) -> None:
    paths = people(desk, 60)
    assert len(listed(desk)) == 60
    for path in paths[:30]:
        path.unlink()
    assert len(listed(desk)) == 30


def test_the_loss_of_20_of_21_records_is_recorded(desk: Desk) -> None:
    paths = people(desk, 21)
    assert len(listed(desk)) == 21
    for path in paths[:20]:
        path.unlink()
    assert len(listed(desk)) == 1


def test_records_that_vanish_one_by_one_within_a_minute_count_together(desk: Desk) -> None:
    paths = people(desk)
    assert len(listed(desk)) == PEOPLE
    for path in paths[:20]:
        path.unlink()
        desk.call("lookup", {"query": "Nobody"})
    paths[20].unlink()
    error = desk.fails("lookup", {"query": "Nobody"})
    assert isinstance(error, DeletionsRefused)
    assert (error.fields["missing"], error.fields["known"]) == (21, PEOPLE)
    for path in paths[:21]:
        note(desk, path.stem, f"Person {path.stem}")
    assert len(listed(desk)) == PEOPLE
    paths[0].unlink()
    assert len(listed(desk)) == PEOPLE - 1


def test_never_more_records_are_said_to_be_lost_than_there_were(desk: Desk) -> None:
    paths = people(desk)
    assert len(listed(desk)) == PEOPLE
    paths[0].unlink()  # the minute begins
    assert len(listed(desk)) == PEOPLE - 1
    for number in range(10):
        note(desk, f"later-{number}", f"Later {number}")
    assert len(listed(desk)) == PEOPLE + 9
    for path in desk.folder().rglob("*.md"):
        path.unlink()
    error = desk.fails("records")
    assert isinstance(error, DeletionsRefused)
    assert error.fields["missing"] == error.fields["known"]


def test_losses_that_are_a_minute_apart_do_not_count_together() -> None:
    now = 0.0
    losses = RecentLosses(lambda: now)
    assert losses.known_before(lambda: 30) == 30
    losses.add(15)
    now = 59.0
    assert (losses.known_before(lambda: 15), losses.lost) == (30, 15)
    now = 119.5
    assert (losses.known_before(lambda: 15), losses.lost) == (15, 0)


def test_the_deletion_guard_answers_again_once_the_folder_is_back(desk: Desk) -> None:
    people(desk)
    assert len(listed(desk)) == PEOPLE
    (desk.folder() / "people").rename(desk.layout.root / "away")
    assert isinstance(desk.fails("records"), DeletionsRefused)
    (desk.layout.root / "away").rename(desk.folder() / "people")
    assert len(listed(desk)) == PEOPLE


def test_accepted_deletions_are_recorded_once_and_the_guard_stands_again(desk: Desk) -> None:
    paths = people(desk)
    assert len(listed(desk)) == PEOPLE
    for path in paths:
        path.unlink()
    assert isinstance(desk.fails("records"), DeletionsRefused)
    desk.session.partition(PRIVATE).accept_deletions()
    assert listed(desk) == []
    again = people(desk)
    assert len(listed(desk)) == PEOPLE
    for path in again:
        path.unlink()
    assert isinstance(desk.fails("records"), DeletionsRefused)


def test_status_and_history_answer_while_deletions_are_refused(desk: Desk) -> None:
    paths = people(desk)
    assert len(listed(desk)) == PEOPLE
    for path in paths:
        path.unlink()
    status = desk.call("status")
    assert any("vanished" in str(warning) for warning in _list(status["warnings"]))
    assert desk.call("history")["total"] == PEOPLE


def test_records_with_a_missing_invalid_or_mismatched_scope_are_withheld_and_only_counted(desk: Desk) -> None:
    note(desk, "ok", "Seen")
    for name, scope in {
        "missing": "",
        "invalid": 'scope: {"visibility": "public"}\n',
        "mismatched": 'scope: {"visibility": "conversation", "sessionId": "33333333-3333-4333-8333-333333333333"}\n',
    }.items():
        path = note(desk, name, f"Hidden {name}")
        text = path.read_text("utf-8")
        lines = [line for line in text.splitlines(keepends=True) if not line.startswith("scope:")]
        path.write_text("".join([lines[0], scope, *lines[1:]]), "utf-8")
    answer = desk.call("records", {"lifecycle": "all"})
    assert [row["id"] for row in _rows(answer["records"])] == ["ok"]
    assert answer["coverage"] == {"withheld": 3}
    assert desk.call("record", {"id": "missing"})["record"] is None
    assert "Hidden" not in str(desk.call("status"))


def test_a_broken_file_stays_as_it_is_and_is_counted(desk: Desk) -> None:
    path = desk.folder() / "people" / "broken.md"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(b"---\nid: [a\n---\nkept\n")
    assert desk.call("records")["coverage"] == {"broken": 1}
    assert path.read_bytes() == b"---\nid: [a\n---\nkept\n"


def test_a_file_over_5_000_000_bytes_is_named_and_its_last_text_stays_in_history(desk: Desk) -> None:
    page = desk.page("Big", body="small")
    path = desk.path_of(str(page["id"]))
    text = path.read_bytes()
    path.write_bytes(text + b"x" * (5_000_001 - len(text)))
    answer = desk.call("records")
    assert answer["records"] == []
    assert answer["coverage"] == {"broken": 1}
    first = desk.call("revision", {"id": page["id"], "sequence": 1})
    assert "small" in str(first["content"])
    path.write_bytes(text)
    assert len(_rows(desk.call("records")["records"])) == 1
    assert "coverage" not in desk.call("records")


def test_a_record_dated_far_ahead_by_hand_does_not_pull_later_ones_along(desk: Desk) -> None:
    note(desk, "far", "Far", recorded_at="9999-12-31T23:59:59.999Z")
    page = desk.page("Near")
    assert "2026-11-02" in desk.path_of(str(page["id"])).read_text("utf-8")
    assert any("24 h behind" in str(warning) for warning in _list(desk.call("status")["warnings"]))


def test_a_revision_written_by_hand_that_leaves_no_room_does_not_count(desk: Desk) -> None:
    page = desk.page("Plan", body="one")
    path = desk.path_of(str(page["id"]))
    path.write_text(path.read_text("utf-8").replace("revision: 1", f"revision: {2**53 - 1}"), "utf-8")
    found = desk.record(page["id"])
    assert found["revision"] == 1
    saved = desk.call(
        "save_page",
        {
            "id": page["id"],
            "expectedRevision": found["revision"],
            "expectedHash": found["hash"],
            "title": "Plan",
            "type": "project",
            "body": "two",
        },
    )
    assert saved["revision"] == 2


def test_a_lost_database_is_noticed_before_the_next_answer(desk: Desk) -> None:
    desk.page("Plan")
    os.rename(desk.layout.state_database, desk.layout.root / "elsewhere.sqlite")
    error = desk.fails("lookup", {"query": "Plan"})
    assert isinstance(error, StoreUnavailable)
    assert error.fields["reason"] == "database_lost"
    os.rename(desk.layout.root / "elsewhere.sqlite", desk.layout.state_database)
    assert desk.call("lookup", {"query": "Plan"})["state"] == "found"


def test_half_of_a_save_in_place_is_not_taken_for_the_end_of_a_record(desk: Desk) -> None:
    page = desk.page("Plan", body="one")
    path = desk.path_of(str(page["id"]))
    text = path.read_bytes()
    with path.open("r+b") as editor:
        editor.truncate(0)
        editor.flush()
        assert desk.record(page["id"])["body"] == "one\n"
        editor.write(text.replace(b"one", b"two"))
        editor.flush()
        # It reads as a record again, so it is exact although the program has not closed it.
        assert desk.record(page["id"])["body"] == "two\n"
        editor.seek(0)
        editor.truncate(0)
        editor.flush()
        assert desk.record(page["id"])["body"] == "two\n"
    # Closed and still empty: now that is what the person left.
    assert desk.call("record", {"id": page["id"]})["record"] is None
    path.write_bytes(text)
    assert desk.record(page["id"])["body"] == "one\n"


def _list(value: JsonValue) -> list[JsonValue]:
    assert isinstance(value, list)
    return value


def _rows(value: JsonValue) -> list[dict[str, JsonValue]]:
    return [row for row in _list(value) if isinstance(row, dict)]


def test_an_edited_file_is_parsed_once(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    path = note(desk, "ann", "Ann")
    assert listed(desk) == ["ann"]
    parsed: list[str] = []

    def parse(data: bytes, path: str) -> ParsedRecord | BrokenRecord:
        parsed.append(path)
        return parse_record(data, path)

    for module in (catalogue, outside_edits):
        monkeypatch.setattr(module, "parse_record", parse)
    path.write_text(path.read_text().replace("Ann", "Anna"))
    desk.partition()
    assert parsed == ["people/ann.md"]


def test_other_bytes_than_those_that_were_read_are_parsed_anew(desk: Desk) -> None:
    path = note(desk, "ann", "Ann")
    desk.partition()
    projection, db = desk.session.projection, desk.session.publisher.db
    data = path.read_bytes()
    projection.read(data, "people/ann.md")
    with desk.session.publisher.transaction(full=False, point="test"):
        projection.put(db, PRIVATE, "people/ann.md", data.replace(b"Ann", b"Eve"), None)
    assert [entry.title for entry in desk.session.partition(PRIVATE).catalogue.by_id("ann")] == ["Eve"]


@pytest.mark.parametrize("overflow", [False, True])
def test_an_edit_within_the_tick_of_the_one_before_is_in_the_next_answer(
    desk: Desk, monkeypatch: pytest.MonkeyPatch, overflow: bool
) -> None:
    """Two texts of one size, saved in place: on a file system with a coarse clock they have one stamp."""
    path = note(desk, "ann", "Ann")
    second = 1_000_000_000

    class Coarse(Stamp):
        def __new__(cls, device: int, inode: int, size: int, mtime_ns: int, ctime_ns: int) -> Coarse:
            return super().__new__(cls, device, inode, size, mtime_ns // second * second, ctime_ns // second * second)

    real = Stamp.of
    monkeypatch.setattr(Stamp, "of", lambda status: Coarse(*real(status)))
    monkeypatch.setattr(scan, "Stamp", Coarse)
    inode = path.stat().st_ino
    for title in ("Ann", "Eve", "Ida", "Eve"):
        assert note(desk, "ann", title).stat().st_ino == inode
        if overflow:
            desk.session.partition(PRIVATE)._watch.invalidate()
        assert desk.record("ann")["title"] == title


@pytest.mark.parametrize("failure", ["ENOENT", "EACCES"])
def test_a_broken_file_that_vanishes_or_is_shut_before_its_lease_is_asked_for_is_no_defect(
    desk: Desk, failure: str
) -> None:
    path = note(desk, "ann", "Ann")
    note(desk, "eve", "Eve")
    assert listed(desk) == ["ann", "eve"]
    path.write_text("---\nhalf of")
    code = getattr(errno, failure)

    def fail() -> None:
        raise OSError(code, os.strerror(code))

    with at_point("edits.read", fail, when=2):
        assert listed(desk) == ["eve"]


def test_a_disk_that_fails_where_a_lease_is_asked_for_is_scan_incomplete(desk: Desk) -> None:
    path = note(desk, "ann", "Ann")
    assert listed(desk) == ["ann"]
    path.write_text("---\nhalf of")

    def fail() -> None:
        raise OSError(errno.EIO, "Input/output error")

    with at_point("edits.read", fail, when=2):
        error = desk.fails("records")
    assert isinstance(error, ScanIncomplete)
    assert error.fields["reason"] == "EIO"
    assert listed(desk) == []


def test_a_file_that_may_not_be_read_is_no_defect_while_lost_records_are_counted(desk: Desk) -> None:
    paths = people(desk)
    assert len(listed(desk)) == PEOPLE
    for path in paths:
        path.unlink()
    note(desk, "new", "New")

    def shut() -> None:
        raise PermissionError(errno.EACCES, "Permission denied")

    with at_point("edits.read", shut):
        assert isinstance(desk.fails("records"), DeletionsRefused)


# --- a look at named files in between ---------------------------------------------------------------------------------


def test_a_look_at_other_files_leaves_one_that_is_being_saved_to_the_next_query(desk: Desk) -> None:
    other = note(desk, "eve", "Eve")
    path = note(desk, "ann", "Ann")
    text = path.read_text()
    assert listed(desk) == ["ann", "eve"]
    session = desk.session.partition(PRIVATE)
    with path.open("w") as editor:
        editor.write("---\nhalf of")
        editor.flush()
        assert listed(desk) == ["ann", "eve"]
        session.read_again([f"people/{other.name}"])
        assert session._unfinished == {"people/ann.md"}
        session.read_again(["people/ann.md"])
        assert session._unfinished == {"people/ann.md"}
    path.write_text(text)
    session.read_again(["people/ann.md"])
    assert session._unfinished == frozenset()


def test_a_look_at_named_files_does_not_use_up_what_a_person_accepted(desk: Desk) -> None:
    paths = people(desk)
    other = note(desk, "eve", "Eve")
    assert len(listed(desk)) == PEOPLE + 1
    for path in paths:
        path.unlink()
    session = desk.session.partition(PRIVATE)
    session.accept_deletions()
    session.read_again([f"people/{other.name}"])
    assert listed(desk) == ["eve"]


def test_a_look_at_named_files_is_no_way_around_the_deletion_guard(desk: Desk) -> None:
    paths = people(desk)
    assert len(listed(desk)) == PEOPLE
    for path in paths:
        path.unlink()
    session = desk.session.partition(PRIVATE)
    session.accept_deletions()
    with pytest.raises(DeletionsRefused):
        session.read_again([f"people/{path.name}" for path in paths])
    assert listed(desk) == []


@pytest.mark.parametrize("kind", ["changed", "deleted"])
def test_a_look_at_named_files_loses_no_change_of_the_ontology(desk: Desk, tmp_path: Path, kind: str) -> None:
    extension = "format: knowledge-ontology-v1\nextends: core\npages:\n  dish: {description: Food, folder: dishes}\n"
    ontology = desk.folder() / "ontology.yaml"
    if kind == "deleted":
        ontology.write_text(extension)
    path = note(desk, "ann", "Ann")
    session = desk.partition()
    if kind == "deleted":
        ontology.unlink()
    else:
        ontology.write_text(extension)
    assert session._watch.self_test(), "the events are read now, and kept"
    os.link(path, tmp_path / "second")  # a second name, so that everything is scanned
    before = session.touched
    session.read_again(["people/ann.md"])
    assert session.touched > before
    assert ("dish" in session.ontology.pages) == (kind == "changed")
    assert ("dish" in desk.partition().ontology.pages) == (kind == "changed")


@pytest.mark.parametrize("code", [errno.EIO, errno.EMFILE])
def test_an_ontology_that_a_failing_disk_hides_is_scan_incomplete_and_never_taken_for_the_shipped_one(
    desk: Desk, code: int
) -> None:
    note(desk, "ann", "Ann")
    assert listed(desk) == ["ann"]
    (desk.folder() / "ontology.yaml").write_text("format: knowledge-ontology-v1\nextends: core\n")

    def fail() -> None:
        raise OSError(code, os.strerror(code))

    with at_point("session.read", fail):
        error = desk.fails("records")
    assert isinstance(error, ScanIncomplete)
    assert error.fields["path"] == "ontology.yaml"
    assert listed(desk) == ["ann"]


def test_two_files_with_one_id_are_listed_and_named_and_neither_is_found_by_it(desk: Desk) -> None:
    original = note(desk, "one", "Person one")
    twin = original.with_name("copy.md")
    twin.write_bytes(original.read_bytes())
    identity = "one"
    assert listed(desk) == [identity, identity]
    assert desk.call("record", {"id": identity}) == {"record": None}
    found, total = desk.session.partition(PRIVATE).diagnostics(10)
    named = [(one.path, one.code) for one in found]
    assert (named, total) == ([("people/copy.md", "duplicate_id"), ("people/one.md", "duplicate_id")], 2)
    twin.unlink()
    assert desk.call("record", {"id": identity}) != {"record": None}
    assert desk.session.partition(PRIVATE).diagnostics(10) == ([], 0)


def test_each_of_two_files_with_one_id_that_changed_at_once_has_a_revision_that_can_be_read(desk: Desk) -> None:
    original = note(desk, "p-1", "Person 1")
    listed(desk)
    original.write_bytes(original.read_bytes() + b"Edited.\n")
    copy = original.with_name("p-1 (conflicted copy).md")
    copy.write_bytes(original.read_bytes() + b"On another machine.\n")
    listed(desk)
    rows = desk.call("history", {"id": "p-1"})["rows"]
    assert isinstance(rows, list)
    texts = set()
    for row in rows:
        assert isinstance(row, dict)
        revision = desk.call("revision", {"id": "p-1", "sequence": row["sequence"]})
        assert revision["hash"] == row["hash"]
        texts.add(str(revision["content"]).encode())
    assert {original.read_bytes(), copy.read_bytes()} <= texts


@pytest.mark.parametrize("new_name", ["folks", "zz"])
def test_a_folder_that_moves_in_several_batches_ends_in_history_where_it_stands(
    desk: Desk, monkeypatch: pytest.MonkeyPatch, new_name: str
) -> None:
    monkeypatch.setattr(outside_edits, "FOLD_IN_FILES", 4)
    people(desk)
    listed(desk)
    (desk.folder() / "people").rename(desk.folder() / new_name)
    assert len(listed(desk)) == PEOPLE
    for number in range(PEOPLE):
        rows = desk.call("history", {"id": f"p-{number}"})["rows"]
        assert isinstance(rows, list)
        newest = rows[0]
        assert isinstance(newest, dict)
        assert newest["path"] == f"{new_name}/p-{number}.md"
        assert newest["hash"]

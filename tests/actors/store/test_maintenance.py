"""The steps of maintenance on one partition, without a thread (decisions.md section 5)."""

from __future__ import annotations

import json
import mmap
import os
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import apsw
import pytest

from actors.store.auditor import look
from actors.store.needs import CitationKey, NeedEvidence, NeedUpkeep
from actors.store.operations import maintenance, table
from actors.store.operations.context import Prepared, refresh
from actors.store.upkeep import (
    CheckDatabase,
    CheckIndex,
    CompareFiles,
    Found,
    LinkClaims,
    ListPartitions,
    LookThroughRepository,
    MergeSegments,
    Report,
    UpkeepStep,
    VerifyRecords,
)
from messages.errors import Cancelled
from messages.json_types import JsonObject, JsonValue
from messages.vocabulary import PRIVATE, Partition
from storage import files
from storage.audit import StoreAudit
from storage.evidence import VerdictCache, verify
from storage.state import history, upkeep
from storage.state.connection import StorageCorrupt
from tests.kit.sources import chunk, upload_id
from tests.kit.store import (
    GROUP_PARTITION,
    Desk,
    claim_file,
    items_of,
    page_file,
    request_id,
    write_note,
)


def nothing() -> None: ...


def run(desk: Desk, step: UpkeepStep, partition: Partition = PRIVATE) -> JsonObject:
    """Run one step as the lane would, and do for it what its helpers do."""
    prepared = Prepared()
    while True:
        refresh(desk.session.partition(partition), step, desk.check)
        context = replace(desk.context(partition, prepared), agent="maintenance")
        outcome = table.run(context, step)
        match outcome:
            case NeedEvidence(citations, fresh):
                assert fresh
                root = files.open_root(desk.folder(partition), at="evidence.folder")
                verdicts = {CitationKey.of(each): verify(each, root, VerdictCache(), nothing) for each in citations}
                files.close(root)
                prepared = Prepared(verdicts={**prepared.verdicts, **verdicts})
            case NeedUpkeep(work):
                assert not isinstance(work, MergeSegments | LookThroughRepository)
                audit = StoreAudit(desk.layout)
                try:
                    prepared = Prepared(found=Found(look(audit, work, desk.check)))
                finally:
                    audit.close()
            case dict():
                desk.now_ms += 1_000
                return outcome
            case _:
                raise AssertionError(f"no maintenance needs {outcome}")


def slices(desk: Desk, step: LinkClaims | VerifyRecords | CompareFiles) -> Iterator[JsonObject]:
    """Every slice from the beginning to the end."""
    current: UpkeepStep | None = step
    while current is not None:
        answer = run(desk, current)
        yield answer
        match answer["next"], step:
            case None, _:
                current = None
            case int(row), LinkClaims():
                current = LinkClaims(row)
            case int(row), VerifyRecords():
                current = VerifyRecords(row)
            case str(path), CompareFiles():
                current = CompareFiles(path)


def linked(desk: Desk) -> list[JsonValue]:
    return [each for answer in slices(desk, LinkClaims()) for each in listed(answer, "linked")]


def listed(answer: JsonObject, key: str) -> list[JsonValue]:
    found = answer[key]
    assert isinstance(found, list)
    return found


def ids_of(answer: JsonObject) -> list[str]:
    return [str(item["id"]) for item in items_of(answer)]


def left(answer: JsonObject) -> JsonObject:
    found = answer["left"]
    assert isinstance(found, dict)
    return {reason: number for reason, number in found.items() if number}


# --- linking ----------------------------------------------------------------------------------------------------------


def test_a_claim_saved_before_its_page_is_linked_once_the_page_is_there(desk: Desk) -> None:
    [claim] = ids_of(desk.remember("The launch of Garden Pilot moved to May."))
    page = desk.page("Garden Pilot")["id"]
    before = desk.record(claim)
    assert linked(desk) == [claim]
    after = desk.record(claim)
    assert (before["revision"], after["revision"]) == (1, 2)
    assert after["text"] == before["text"]
    entry = desk.partition().catalogue.one(claim)
    assert entry is not None
    assert desk.partition().load(entry).entities == (page,)


def test_linking_is_a_normal_publication_with_its_receipt_and_the_actor_maintenance(desk: Desk) -> None:
    [claim] = ids_of(desk.remember("Garden Pilot ships in May."))
    desk.page("Garden Pilot")
    linked(desk)
    rows = listed(desk.call("history", {"id": claim}), "rows")
    newest = rows[0]
    assert isinstance(newest, dict)
    assert (newest["operation"], newest["actor"], newest["revision"]) == ("link", "maintenance", 2)
    assert isinstance(newest["requestId"], str)
    mutation = desk.call("mutation", {"requestId": newest["requestId"]})
    assert "link" in str(mutation)


def test_linking_touches_no_other_line_of_the_file(desk: Desk) -> None:
    desk.page("Garden Pilot")
    path = write_note(
        desk.folder(),
        "claims/a.md",
        claim_file("c-1", "It is said that Garden Pilot ships.", note="kept as it is"),
    )
    before = path.read_text().splitlines()
    linked(desk)
    after = path.read_text().splitlines()
    changed = {line.split(":")[0] for line in set(before) ^ set(after)}
    assert {key for key in changed if not key.strip().startswith("-")} == {"entities", "revision", "updated_at"}
    assert 'note: "kept as it is"' in after


@pytest.mark.parametrize(
    ("text", "reason"),
    [("Acme Works and Garden Pilot agreed.", "ambiguous"), ("Nobody we know was there.", "missing")],
)
def test_a_claim_about_several_pages_or_none_is_left_as_it_is(desk: Desk, text: str, reason: str) -> None:
    [claim] = ids_of(desk.remember(text))
    desk.page("Garden Pilot")
    desk.page("Acme Works", "company")
    answer = run(desk, LinkClaims())
    assert (answer["linked"], left(answer)) == ([], {reason: 1})
    assert desk.record(claim)["revision"] == 1


def test_a_claim_that_would_repeat_a_linked_one_is_left_as_it_is(desk: Desk) -> None:
    text = "It was said that Garden Pilot ships."
    [early] = ids_of(desk.remember(text))
    desk.page("Garden Pilot")
    [late] = ids_of(desk.remember(text))
    assert early != late
    answer = run(desk, LinkClaims())
    assert (answer["linked"], left(answer)) == ([], {"duplicate": 1})
    assert desk.record(early)["revision"] == 1


def test_of_two_unlinked_claims_with_the_same_words_exactly_one_is_linked(desk: Desk) -> None:
    for name in ("one", "two"):
        write_note(desk.folder(), f"claims/{name}.md", claim_file(name, "It is said that Garden Pilot ships."))
    desk.page("Garden Pilot")
    answer = run(desk, LinkClaims())
    assert len(listed(answer, "linked")) == 1
    assert left(answer) == {"duplicate": 1}


@pytest.mark.parametrize(
    "keys",
    [
        {"lifecycle": "withdrawn"},
        {"fixture": True},
        {"expires_at": "2026-01-01"},
        {"entities": ["somebody-else"]},
        {"format": "knowledge-record-v9"},
    ],
)
def test_what_is_not_current_or_not_ours_to_write_is_never_linked(desk: Desk, keys: JsonObject) -> None:
    desk.page("Garden Pilot")
    path = write_note(
        desk.folder(), "claims/a.md", with_keys(claim_file("c-1", "It is said that Garden Pilot ships."), keys)
    )
    before = path.read_bytes()
    assert linked(desk) == []
    assert path.read_bytes() == before


def with_keys(text: str, keys: JsonObject) -> str:
    """A record's text with other values for some keys, in a person's hand."""
    lines = [line for line in text.splitlines() if line.split(":")[0] not in keys]
    return "\n".join([lines[0], *(f"{key}: {json.dumps(value)}" for key, value in keys.items()), *lines[1:], ""])


def test_an_id_borne_by_two_files_is_never_linked(desk: Desk) -> None:
    desk.page("Garden Pilot")
    for name in ("a", "b"):
        write_note(desk.folder(), f"claims/{name}.md", claim_file("twin", f"In {name} Garden Pilot ships."))
    assert linked(desk) == []


def test_every_claim_is_looked_at_in_batches_that_are_one_publication_each(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(maintenance, "CLAIMS_PER_STEP", 3)
    monkeypatch.setattr(upkeep, "WINDOW_ROWS", 5)
    claims = ids_of(desk.remember(*(f"In week {n} the Garden Pilot was seen." for n in range(8))))
    desk.page("Garden Pilot")
    sequence = newest_sequence(desk)
    batches = [listed(answer, "linked") for answer in slices(desk, LinkClaims())]
    assert sorted(str(each) for batch in batches for each in batch) == sorted(claims)
    assert max(map(len, batches)) <= 3
    assert newest_sequence(desk) == sequence + sum(bool(batch) for batch in batches)
    assert linked(desk) == []


def newest_sequence(desk: Desk) -> int:
    return history.rows(desk.session.publisher.db, PRIVATE, limit=1)[0].sequence


def test_linking_stops_between_claims_when_its_right_ends(desk: Desk) -> None:
    [claim] = ids_of(desk.remember("Garden Pilot ships in May."))
    desk.page("Garden Pilot")

    def ended() -> None:
        raise Cancelled("stopped")

    context = replace(desk.context(), check=ended)
    with pytest.raises(Cancelled):
        table.run(context, LinkClaims())
    assert desk.record(claim)["revision"] == 1


def test_a_partition_sees_only_its_own_pages(desk: Desk) -> None:
    desk.page("Garden Pilot")
    desk.remember("In the group Garden Pilot was seen.", partition=GROUP_PARTITION)
    assert run(desk, ListPartitions()) == {"partitions": ["private", GROUP_PARTITION.key]}
    answer = run(desk, LinkClaims(), GROUP_PARTITION)
    assert (answer["linked"], left(answer)) == ([], {"missing": 1})


# --- evidence ---------------------------------------------------------------------------------------------------------


def test_a_source_that_changed_is_found_even_when_its_stamp_tells_nothing(desk: Desk) -> None:
    good, bad = (ids_of(desk.remember(text))[0] for text in ("One thing is so.", "Another is not."))
    excerpt = next((desk.folder() / "artifacts" / request_id(2)).iterdir())
    assert [listed(answer, "failed") for answer in slices(desk, VerifyRecords())] == [[]]
    status = excerpt.stat()
    data = bytearray(excerpt.read_bytes())
    data[0] ^= 1
    with excerpt.open("r+b") as file:
        file.write(data)
    os.utime(excerpt, ns=(status.st_atime_ns, status.st_mtime_ns))
    [answer] = slices(desk, VerifyRecords())
    assert (answer["records"], answer["citations"]) == (2, 2)
    assert answer["failed"] == [{"id": bad, "reason": "hash_mismatch"}]
    assert good != bad


def test_a_missing_source_is_reported_by_the_id_of_the_record(desk: Desk) -> None:
    write_note(desk.folder(), "claims/a.md", claim_file("c-1", "Something is so."))
    assert [listed(answer, "failed") for answer in slices(desk, VerifyRecords())] == [
        [{"id": "c-1", "reason": "missing"}]
    ]


def test_evidence_is_verified_in_slices_bounded_by_records_and_bytes(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    for n in range(6):
        desk.remember(f"Fact number {n} is this.")
    monkeypatch.setattr(maintenance, "RECORDS_PER_STEP", 4)
    assert [answer["records"] for answer in slices(desk, VerifyRecords())] == [4, 2]
    monkeypatch.setattr(maintenance, "EVIDENCE_BYTES_PER_STEP", 1)
    assert [answer["records"] for answer in slices(desk, VerifyRecords())] == [1] * 6


# --- files ------------------------------------------------------------------------------------------------------------


def test_a_write_through_a_mapping_that_stayed_open_is_found_and_taken_over(desk: Desk) -> None:
    page = desk.page("Garden Pilot", body="It ships in May.")["id"]
    path = desk.path_of(str(page))
    with path.open("r+b") as file, mmap.mmap(file.fileno(), 0) as mapped:
        desk.partition()
        before = path.stat()
        at = mapped.find(b"in May")
        mapped[at : at + 6] = b"in Jun"
        # The file system may give the write a new time at any later moment, or never: the worst case is never.
        os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
        forget_that_it_changed(desk, path)
        assert "May" in str(desk.record(page)["body"])
        [answer] = slices(desk, CompareFiles())
    assert (answer["changed"], answer["changedTotal"], answer["lost"]) == ([page], 1, [])
    assert "in Jun" in str(desk.record(page)["body"])
    newest = history.rows(desk.session.publisher.db, PRIVATE, limit=1)[0]
    assert newest.external
    assert [answer["changed"] for answer in slices(desk, CompareFiles())] == [[]]


def forget_that_it_changed(desk: Desk, path: Path) -> None:
    """As if the write had left no trace: the catalogue has the stamp that the file has now."""
    session = desk.session.partition(PRIVATE)
    relative = str(path.relative_to(desk.folder()))
    session._watch.drain()
    stamp = files.Stamp.of(path.stat())
    with desk.session.publisher.transaction(full=False, point="test"):
        desk.session.projection.stamp(desk.session.publisher.db, PRIVATE, [(relative, stamp)])


def test_files_are_compared_in_slices_bounded_by_their_number_and_bytes(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    for n in range(5):
        write_note(desk.folder(), f"pages/p{n}.md", page_file(f"p-{n}", f"Page {n}"))
    write_note(desk.folder(), "pages/broken.md", "---\nid: [\n---\n")
    monkeypatch.setattr(maintenance, "FILES_PER_STEP", 4)
    assert sum(int(str(answer["files"])) for answer in slices(desk, CompareFiles())) == 6
    monkeypatch.setattr(maintenance, "FILE_BYTES_PER_STEP", 1)
    assert {answer["files"] for answer in slices(desk, CompareFiles())} <= {0, 1}


def test_a_text_that_history_lost_is_reported_by_its_record(desk: Desk) -> None:
    page = desk.page("Garden Pilot")["id"]
    entry = desk.partition().catalogue.one(str(page))
    assert entry is not None
    with desk.session.publisher.transaction(full=False, point="test"):
        desk.session.publisher.db.execute("UPDATE blob SET bytes = x'00' WHERE hash = ?", (entry.hash,))
    [answer] = slices(desk, CompareFiles())
    assert (answer["changed"], answer["lost"]) == ([], [page])


# --- database, index, reports -----------------------------------------------------------------------------------------


def test_a_sound_database_is_measured(desk: Desk) -> None:
    desk.page("Garden Pilot")
    answer = run(desk, CheckDatabase())
    assert answer["sound"] is True
    for key in ("texts", "textBytes", "databaseBytes", "walBytes"):
        number = answer[key]
        assert isinstance(number, int)
        assert number > 0


def test_a_damaged_database_takes_the_store_out_of_service(desk: Desk) -> None:
    for n in range(40):
        write_note(desk.folder(), f"pages/p{n}.md", page_file(f"p-{n}", f"Page {n}", body="x" * 3_000))
    desk.partition()
    desk.close()
    tear_an_index(desk.layout.state_database)
    with pytest.raises(StorageCorrupt):
        run(desk, CheckDatabase())


def tear_an_index(path: Path) -> None:
    """Rows of a table go without those of its index, which no ordinary read would notice."""
    connection = apsw.Connection(str(path))
    connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    connection.execute("PRAGMA journal_mode=DELETE")
    [(root,)] = connection.execute("SELECT rootpage FROM sqlite_schema WHERE name = 'record_by_time'").fetchall()
    [(size,)] = connection.execute("PRAGMA page_size").fetchall()
    connection.close()
    with path.open("r+b") as file:
        offset = (int(str(root)) - 1) * int(str(size))
        file.seek(offset + 3)
        cells = int.from_bytes(file.read(2), "big")
        assert cells > 1
        file.seek(offset + 3)
        file.write((cells - 1).to_bytes(2, "big"))


def test_a_database_check_ends_when_it_is_cancelled(desk: Desk) -> None:
    for n in range(100):
        write_note(desk.folder(), f"pages/p{n}.md", page_file(f"p-{n}", f"Page {n}", body="x" * 3_000))
    desk.partition()
    audit = StoreAudit(desk.layout)

    def ended() -> None:
        raise Cancelled("stopped")

    with pytest.raises(Cancelled):
        audit.database_is_sound(ended)
    assert audit.database_is_sound(nothing)
    audit.close()


def test_a_damaged_keyword_index_is_told_to_whoever_builds_it_anew(desk: Desk) -> None:
    assert run(desk, CheckIndex()) == {"sound": None}
    desk.page("Garden Pilot")
    desk.call("grep", {"query": "garden"})
    assert run(desk, CheckIndex()) == {"sound": True}
    told: list[str] = []
    prepared = Prepared(found=Found({"sound": False}))
    context = replace(desk.context(PRIVATE, prepared), index_failed=lambda error: told.append(str(error.fields)))
    assert table.run(context, CheckIndex()) == {"sound": False}
    assert "corrupt" in told[0]


def test_pages_of_one_type_with_a_title_or_alias_in_common_are_likely_duplicates(desk: Desk) -> None:
    others: list[tuple[str, str, JsonObject]] = [
        ("a", "Garden Pilot", {}),
        ("b", "garden  PILOT", {}),
        ("c", "The Pilot", {"aliases": ["Garden Pilot"]}),
        ("d", "Garden Pilot", {"type": "company"}),
        ("e", "Garden Pilot", {"lifecycle": "withdrawn"}),
        ("f", "Alone", {}),
    ]
    for record_id, title, keys in others:
        write_note(desk.folder(), f"pages/{record_id}.md", with_keys(page_file(record_id, title), keys))
    answer = run(desk, Report())
    assert (answer["duplicates"], answer["duplicatesTotal"]) == ([["a", "b", "c"]], 1)


def test_a_source_that_nobody_cites_is_listed_by_its_request_and_never_removed(desk: Desk) -> None:
    desk.remember("One thing is so.")
    cited = next((desk.folder() / "artifacts" / request_id(1)).iterdir())
    old, new = request_id(501), request_id(502)
    for name, age in ((old, 2), (new, 0)):
        path = write_note(desk.folder(), f"artifacts/{name}/secret plan.txt", "nobody cites this")
        at = desk.now_ms // 1_000 - age * 24 * 3_600
        os.utime(path, (at, at))
    os.utime(cited, (0, 0))
    answer = run(desk, Report())
    assert (answer["uncited"], answer["uncitedTotal"]) == ([old], 1)
    assert (desk.folder() / "artifacts" / old / "secret plan.txt").exists()
    assert "secret" not in str(answer)


def test_an_upload_that_received_nothing_for_a_day_is_listed_and_may_go_on(desk: Desk) -> None:
    for number in (1, 2, 3):
        desk.call("attach", chunk(number, 0, b"secret text"))
    desk.call("attach", chunk(3, 11, b"", final=True))
    desk.now_ms += 24 * 3_600_000
    desk.call("attach", chunk(2, 11, b", more"))
    answer = run(desk, Report())
    assert (answer["unfinished"], answer["unfinishedTotal"], answer["unfinishedBytes"]) == ([upload_id(1)], 1, 11)
    assert "secret" not in str(answer)
    assert desk.call("attach", chunk(1, 11, b"", final=True))["evidence"]
    assert run(desk, Report())["unfinishedTotal"] == 0


def test_what_a_crash_left_of_an_upload_is_listed_as_a_source_that_nothing_cites(desk: Desk) -> None:
    lost = write_note(desk.folder(), f"artifacts/{request_id(505)}/.kr-upload", "its row was lost with the power")
    desk.call("attach", chunk(1, 0, b"its row is there"))
    begun = desk.folder() / "artifacts" / upload_id(1) / ".kr-upload"
    for path in (lost, begun):
        os.utime(path, (0, 0))
    answer = run(desk, Report())
    assert (answer["uncited"], answer["uncitedTotal"]) == ([request_id(505)], 1)
    assert lost.exists()


def test_a_report_says_how_full_the_partition_is(desk: Desk) -> None:
    desk.page("Garden Pilot")
    answer = run(desk, Report())
    assert answer["entriesLimit"] == desk.limits.entries
    entries = answer["entries"]
    assert isinstance(entries, int)
    assert entries >= 1


def test_reports_are_bounded(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("storage.audit.GROUPS_MAX", 2)
    monkeypatch.setattr("storage.audit.GROUP_IDS_MAX", 2)
    monkeypatch.setattr("storage.audit.UNCITED_MAX", 1)
    for n in range(12):
        write_note(desk.folder(), f"pages/p{n}.md", page_file(f"p-{n}", f"Page {n % 4}"))
    for n in range(3):
        path = write_note(desk.folder(), f"artifacts/{request_id(600 + n)}/a.txt", "a")
        os.utime(path, (0, 0))
    answer = run(desk, Report())
    groups = listed(answer, "duplicates")
    assert answer["duplicatesTotal"] == 4
    assert [len(group) for group in groups if isinstance(group, list)] == [2, 2]
    assert len(listed(answer, "uncited")) == 1
    assert answer["uncitedTotal"] == 3

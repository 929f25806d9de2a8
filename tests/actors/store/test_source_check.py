"""knowledge_source_check: a manifest of sources beside the source pages (tools.md, Ingestion and dates)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from messages.errors import InvalidArgument, LimitExceeded, SnapshotChanged
from messages.json_types import JsonObject, JsonValue
from messages.tools import json_bytes
from storage.session import PartitionSession
from storage.state.catalogue_reader import Entry
from tests.kit.store import GROUP_PARTITION, Desk, page_file, write_note, write_notes

ONE, TWO = "1" * 64, "2" * 64
FIELDS: JsonObject = {"key": "a.md", "sha256": ONE, "size": 10, "modified": "2026-09-20T10:00:00Z"}


def source(
    desk: Desk, record_id: str, fields: Mapping[str, JsonValue], *, page_type: str = "source", **keys: JsonValue
) -> None:
    values: dict[str, Any] = {"fields": dict(fields), **keys}
    text = page_file(record_id, f"Source {record_id}", type=page_type, **values)
    write_note(desk.folder(), f"sources/{record_id}.md", text)


def check(desk: Desk, *sources: JsonObject, **more: JsonValue) -> JsonObject:
    return desk.call("source_check", {"sources": list(sources), **more})


def rows(answer: JsonObject) -> list[JsonObject]:
    found = answer["sources"]
    assert isinstance(found, list)
    return found


def state(desk: Desk, **seen: JsonValue) -> tuple[object, object]:
    [row] = rows(check(desk, {"key": "a.md", **seen}))
    return row["state"], row.get("differs")


def test_a_source_without_a_page_is_new(desk: Desk) -> None:
    assert check(desk, {"key": "a.md", "sha256": ONE}) == {
        "total": 1,
        "counts": {"new": 1},
        "sources": [{"state": "new", "key": "a.md"}],
    }


@pytest.mark.parametrize(
    ("seen", "expected"),
    [
        ({"sha256": ONE}, ("unchanged", None)),
        ({"sha256": TWO}, ("changed", ["sha256"])),
        ({"sha256": ONE, "size": 11, "modified": "2027-01-01T00:00:00Z"}, ("unchanged", None)),
        ({"sha256": TWO, "size": 10}, ("changed", ["sha256"])),
        ({"size": 10, "modified": "2026-09-20T12:00:00+02:00"}, ("unchanged", None)),
        ({"size": 11, "modified": "2026-09-20T10:00:01Z"}, ("changed", ["size", "modified"])),
        ({"modified": "2026-09-20T10:00:00.000Z"}, ("unchanged", None)),
        ({}, ("changed", [])),
    ],
)
def test_a_hash_decides_alone_else_size_and_time_and_what_cannot_be_compared_has_changed(
    desk: Desk, seen: JsonObject, expected: object
) -> None:
    source(desk, "a", FIELDS)
    assert state(desk, **seen) == expected


def test_what_the_page_does_not_keep_is_not_compared(desk: Desk) -> None:
    source(desk, "a", {"key": "a.md", "size": 10})
    assert state(desk, sha256=ONE, size=10) == ("unchanged", None)
    assert state(desk, sha256=ONE) == ("changed", [])


def test_a_changed_row_carries_what_an_edit_of_its_page_needs(desk: Desk) -> None:
    source(desk, "a", FIELDS)
    [row] = rows(check(desk, {"key": "a.md", "sha256": TWO}))
    found = desk.record("a")
    assert (row["id"], row["revision"]) == ("a", found["revision"])
    assert row["hash"] == str(found["hash"])[:16]


def test_with_complete_the_sources_that_are_not_in_the_list_are_gone(desk: Desk) -> None:
    source(desk, "a", FIELDS)
    source(desk, "b", {"key": "b.md"})
    source(desk, "c", {"key": "c.md"})
    assert [row["key"] for row in rows(check(desk, {"key": "a.md", "sha256": ONE}))] == ["a.md"]
    answer = check(desk, {"key": "a.md", "sha256": ONE}, {"key": "d.md"}, complete=True)
    assert [(row["key"], row["state"]) for row in rows(answer)] == [
        ("a.md", "unchanged"),
        ("d.md", "new"),
        ("b.md", "gone"),
        ("c.md", "gone"),
    ]
    assert answer["counts"] == {"new": 1, "unchanged": 1, "gone": 2}


def test_only_active_pages_of_type_source_count_in_their_own_partition(desk: Desk) -> None:
    source(desk, "withdrawn", FIELDS, lifecycle="withdrawn")
    source(desk, "fixture", FIELDS, fixture=True)
    source(desk, "note", FIELDS, page_type="note")
    foreign = page_file("foreign", "Source", type="source", fields=FIELDS, partition=GROUP_PARTITION)
    write_note(desk.folder(GROUP_PARTITION), "sources/foreign.md", foreign)
    assert state(desk) == ("new", None)
    assert rows(check(desk, {"key": "x"}, complete=True)) == [{"state": "new", "key": "x"}]


def test_a_source_written_under_an_alias_or_by_its_folder_alone_counts(desk: Desk) -> None:
    source(desk, "a", FIELDS, page_type="document")
    write_note(desk.folder(), "sources/b.md", page_file("b", "B", type=None, fields={"key": "b.md", "size": 1}))
    answer = check(desk, {"key": "a.md", "sha256": ONE}, {"key": "b.md", "size": 1})
    assert answer["counts"] == {"unchanged": 2}


def test_a_page_that_the_ontology_finds_fault_with_still_keeps_its_source(desk: Desk) -> None:
    source(desk, "a", {**FIELDS, "size": "many"})
    assert desk.record("a")["issues"]
    assert state(desk, sha256=ONE) == ("unchanged", None)


def test_of_several_pages_of_a_key_the_newest_is_compared_and_the_others_are_named(desk: Desk) -> None:
    source(desk, "old", FIELDS, updated_at="2026-10-01T10:00:00.000Z")
    source(desk, "new", {**FIELDS, "sha256": TWO}, updated_at="2026-10-02T10:00:00.000Z")
    [row] = rows(check(desk, {"key": "a.md", "sha256": TWO}))
    assert row == {"state": "unchanged", "id": "new", "also": ["old"], "key": "a.md"}
    [_, gone] = rows(check(desk, {"key": "x"}, complete=True))
    assert (gone["id"], gone["also"]) == ("new", ["old"])


def test_a_key_is_compared_exactly(desk: Desk) -> None:
    source(desk, "a", FIELDS)
    assert check(desk, {"key": "A.md"}, {"key": "a.md "})["counts"] == {"new": 2}


def test_an_edit_of_the_key_is_seen_by_the_next_check(desk: Desk) -> None:
    source(desk, "a", FIELDS)
    assert state(desk, sha256=ONE)[0] == "unchanged"
    source(desk, "a", {**FIELDS, "key": "b.md"})
    assert state(desk, sha256=ONE)[0] == "new"


def test_it_reads_no_page_whose_key_was_not_asked_for(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    write_notes(
        desk.folder(),
        [
            (f"sources/{n}.md", page_file(f"s{n}", f"S{n}", type="source", fields={"key": f"k{n}", "size": n}))
            for n in range(300)
        ],
    )
    desk.partition()
    read: list[str] = []
    load = PartitionSession.load

    def counted(session: PartitionSession, entry: Entry) -> object:
        read.append(entry.id)
        return load(session, entry)

    monkeypatch.setattr(PartitionSession, "load", counted)
    answer = check(desk, {"key": "k7", "size": 7}, {"key": "k8", "size": 9}, {"key": "other"}, complete=True)
    assert answer["counts"] == {"new": 1, "unchanged": 1, "changed": 1, "gone": 298}
    assert read == ["s7", "s8"]


def test_a_response_stays_within_24_kib_and_nextoffset_leads_on(desk: Desk) -> None:
    for number in range(60):
        source(desk, f"s{number:02}", {"key": f"{number:02}" + "€" * 900})
    request: JsonObject = {"sources": [{"key": "x"}], "complete": True}
    found: list[object] = []
    answer = desk.call("source_check", request)
    pages = 1
    while True:
        assert json_bytes(answer) <= 24 * 1024
        found += [row.get("id") for row in rows(answer)]
        if "nextOffset" not in answer:
            break
        answer = desk.call("source_check", {**request, "offset": answer["nextOffset"], "snapshot": answer["snapshot"]})
        pages += 1
    assert found == [None, *(f"s{number:02}" for number in range(60))]
    assert pages > 2


def test_a_snapshot_that_changed_is_refused(desk: Desk) -> None:
    error = desk.fails("source_check", {"sources": [{"key": "x"}], "snapshot": "private-99"})
    assert isinstance(error, SnapshotChanged)


@pytest.mark.parametrize(
    ("arguments", "field", "error"),
    [
        ({}, "sources", InvalidArgument),
        ({"sources": []}, "sources", InvalidArgument),
        ({"sources": [{"key": str(number)} for number in range(201)]}, "sources", LimitExceeded),
        ({"sources": [{"key": ""}]}, "sources[0].key", InvalidArgument),
        ({"sources": [{"key": "k" * 1_001}]}, "sources[0].key", LimitExceeded),
        ({"sources": [{"key": "k"}, {"key": "k"}]}, "sources[1].key", InvalidArgument),
        ({"sources": [{"key": "k", "sha256": "ABC"}]}, "sources[0].sha256", InvalidArgument),
        ({"sources": [{"key": "k", "size": -1}]}, "sources[0].size", InvalidArgument),
        ({"sources": [{"key": "k", "modified": "2026-09-20"}]}, "sources[0].modified", InvalidArgument),
        ({"sources": [{"key": "k", "url": "https://example.org"}]}, "sources[0].url", InvalidArgument),
    ],
)
def test_1_to_200_sources_each_key_once(desk: Desk, arguments: JsonObject, field: str, error: type[Exception]) -> None:
    failed = desk.fails("source_check", arguments)
    assert isinstance(failed, error)
    assert failed.fields["field"] == field


def test_files_that_cannot_be_read_are_counted_beside_the_answer(desk: Desk) -> None:
    write_note(desk.folder(), "sources/broken.md", "no envelope\n")
    assert check(desk, {"key": "a.md"})["coverage"] == {"broken": 1}

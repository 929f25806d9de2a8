"""Parsed records that are kept: bounded, never of another text, and never in the way of an edit."""

from __future__ import annotations

from pathlib import Path

import pytest

from storage import session as sessions
from storage.parsed_records import KEPT_BYTES, KEPT_ONE_BYTES, ParsedRecords
from storage.records import ParsedRecord, parse_record
from tests.kit.store import Desk, make_store, page_file, write_note


def parsed(number: int) -> tuple[ParsedRecord, int]:
    text = page_file(f"p{number}", f"Page {number}")
    found = parse_record(text.encode(), f"{number}.md")
    assert isinstance(found, ParsedRecord)
    return found, len(text)


def test_the_kept_texts_are_at_most_so_many_bytes_and_the_least_used_go_first() -> None:
    kept = ParsedRecords()
    records = [parsed(number)[0] for number in range(200)]
    for record in records:
        kept.put(record, KEPT_ONE_BYTES)
        assert kept.get(records[0].hash, "0.md") is records[0]
        assert kept.bytes <= KEPT_BYTES
    assert kept.bytes == KEPT_BYTES
    assert kept.get(records[1].hash, "1.md") is None
    assert kept.get(records[-1].hash, "199.md") is records[-1]


def test_a_record_beyond_the_single_limit_is_not_kept() -> None:
    kept = ParsedRecords()
    record, _ = parsed(1)
    kept.put(record, KEPT_ONE_BYTES + 1)
    assert kept.get(record.hash, record.path) is None
    assert kept.bytes == 0


def test_the_same_text_in_another_file_is_another_record() -> None:
    kept = ParsedRecords()
    record, size = parsed(1)
    kept.put(record, size)
    assert kept.get(record.hash, "other.md") is None


def test_a_record_is_parsed_once_and_again_after_an_edit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    desk = Desk(make_store(tmp_path / "store"))
    try:
        write_note(desk.folder(), "a.md", page_file("p1", "Page one", body="Before.\n"))
        desk.partition()
        counted: list[str] = []

        def counting(data: bytes, path: str) -> object:
            counted.append(path)
            return parse_record(data, path)

        monkeypatch.setattr(sessions, "parse_record", counting)
        for _ in range(3):
            assert "Before." in str(desk.call("record", {"id": "p1"}))
        assert counted == ["a.md"]
        write_note(desk.folder(), "a.md", page_file("p1", "Page one", body="After.\n"))
        for _ in range(2):
            assert "After." in str(desk.call("record", {"id": "p1"}))
        assert counted == ["a.md", "a.md"]
    finally:
        desk.close()

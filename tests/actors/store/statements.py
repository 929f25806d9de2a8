"""Whole claims and relationships, for tests of what is done with them."""

from __future__ import annotations

from messages.json_types import JsonObject, JsonValue
from storage.records import Record
from tests.kit.store import Desk

PASSAGE = "Alex: I will deliver the release on Friday.\nSam: good.\nAlex: and Sam reviews it.\n"


def claim(desk: Desk, **more: JsonValue) -> JsonObject:
    """The arguments of a whole claim, with evidence of its own unless given."""
    return {**desk.vault(), **statement(desk, **more)}


def relationship(desk: Desk, source: JsonValue, target: JsonValue, label: str, **more: JsonValue) -> JsonObject:
    """The arguments of a whole relationship."""
    given = claim(desk, **{"from": source, "to": target, "label": label}, **more)
    return {name: value for name, value in given.items() if name not in ("claim_kind", "body")}


def statement(desk: Desk, **more: JsonValue) -> JsonObject:
    """A claim without the fences of a write."""
    given: JsonObject = {
        "body": "Alex committed to delivering the release on Friday.",
        "claim_kind": "commitment",
        "assertion_origin": "source",
        "attribution": "Alex, meeting transcript line 1",
    }
    if "evidence" not in more:
        given["evidence"] = [desk.retained(PASSAGE, start_line=1, end_line=1)]
    return {**given, **more}


def stored(desk: Desk, record_id: JsonValue) -> Record:
    """The record as its file has it."""
    partition = desk.partition()
    entry = partition.catalogue.one(str(record_id))
    assert entry is not None
    return partition.load(entry)


def fenced(desk: Desk, record_id: JsonValue, **more: JsonValue) -> JsonObject:
    """The fences of a write to one record, with a reason."""
    return {**desk.vault(), **desk.observed(record_id), "reason": "a test", **more}

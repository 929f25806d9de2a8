"""The canonical payload, its hash, and request ids derived within a flush."""

from __future__ import annotations

import hashlib
import json
import uuid
from typing import Any

import pytest

from messages.errors import InvalidArgument
from messages.json_types import JsonObject
from messages.schemas import input_schema
from messages.tools import CATALOGUE, WriteRequest, canonical_payload, parse_arguments, payload_hash
from tests.messages.tools.samples import HASH, PAGE_ID, REMEMBER, REQUEST_ID, SAMPLES, SAVE_PAGE

OTHER_ID = "00000000-0000-4000-8000-000000000021"


def hashed(tool: str, arguments: JsonObject) -> str:
    return payload_hash(parse_arguments(f"knowledge_{tool}", arguments))


def test_the_payload_is_sorted_compact_json_without_defaults_and_request_id() -> None:
    request = parse_arguments("knowledge_remember", {**REMEMBER, "attribution": "Zoë 😀"})
    payload = canonical_payload(request)
    expected = (
        '{"arguments":{"attribution":"Zoë 😀","excerpt":"User: use option B, it ships sooner.",'
        '"items":[{"kind":"decision","subject":"Garden Pilot","text":"Chose option B because it ships sooner."}]},'
        '"schemaVersion":1,"tool":"knowledge_remember"}'
    )
    assert payload.decode() == expected
    assert payload_hash(request) == hashlib.sha256(payload).hexdigest()


@pytest.mark.parametrize(
    ("tool", "one", "other"),
    [
        ("remember", REMEMBER, {**REMEMBER, "items": json.dumps(REMEMBER["items"])}),
        ("remember", REMEMBER, {**REMEMBER, "expectedVaultId": None}),
        ("remember", REMEMBER, dict(reversed(REMEMBER.items()))),
        ("remember", REMEMBER, {**REMEMBER, "requestId": OTHER_ID}),
        ("save_page", SAVE_PAGE, {**SAVE_PAGE, "allowSameTitle": "false"}),
        ("save_page", {**SAVE_PAGE, "fields": {"a": 5, "b": None}}, {**SAVE_PAGE, "fields": {"b": None, "a": 5.0}}),
        ("save_page", {**SAVE_PAGE, "fields": {"a": 0}}, {**SAVE_PAGE, "fields": '{"a": -0.0}'}),
        ("grep", {"query": "x"}, {"query": "x", "mode": "all", "limit": "10", "offset": 0.0, "lifecycle": "active"}),
    ],
)
def test_the_same_call_written_differently_has_the_same_hash(tool: str, one: JsonObject, other: JsonObject) -> None:
    assert hashed(tool, one) == hashed(tool, other)


def test_defaults_inside_items_are_dropped() -> None:
    items: Any = [{"text": "a", "kind": "fact"}]
    full: Any = [{"text": "a", "kind": "fact", "origin": "source", "infer_subject": True, "about": None}]
    assert hashed("remember", {**REMEMBER, "items": items}) == hashed("remember", {**REMEMBER, "items": full})


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ({}, {"aliases": []}),
        ({}, {"fields": {}}),
        ({"fields": {"a": None}}, {"fields": {}}),
        ({"fields": {"a": True}}, {"fields": {"a": 1}}),
        ({"fields": {"a": "1"}}, {"fields": {"a": 1}}),
        ({"aliases": ["a", "b"]}, {"aliases": ["b", "a"]}),
        ({"body": "a"}, {"body": "a "}),
        ({"allowSameTitle": True}, {}),
        ({"title": "e\u0301"}, {"title": "\u00e9"}),
    ],
)
def test_a_different_call_has_a_different_hash(one: JsonObject, other: JsonObject) -> None:
    assert hashed("save_page", {**SAVE_PAGE, **one}) != hashed("save_page", {**SAVE_PAGE, **other})


def test_the_same_arguments_of_another_tool_have_another_hash() -> None:
    assert hashed("grep", {"query": "x"}) != hashed("lookup", {"query": "x"})


def test_the_schema_version_is_part_of_the_hash(monkeypatch: pytest.MonkeyPatch) -> None:
    request = parse_arguments("knowledge_remember", REMEMBER)
    before = payload_hash(request)
    monkeypatch.setattr(type(request), "schema_version", 2)
    assert payload_hash(request) != before


def test_all_samples_have_hashes_of_their_own() -> None:
    hashes = {payload_hash(parse_arguments(tool, arguments)) for tool, arguments in SAMPLES}
    assert len(hashes) == len(SAMPLES)


# A change of arguments must raise schema_version, or a repeat of an accepted call may be taken for another.
ARGUMENTS_OF_VERSION = {
    ("knowledge_remember", 1): "1569b7427c6e11f8",
    ("knowledge_save_page", 1): "4bfd71d7e3afe388",
}


@pytest.mark.parametrize("name", ["knowledge_remember", "knowledge_save_page"])
def test_a_writes_arguments_change_only_with_its_schema_version(name: str) -> None:
    spec = CATALOGUE[name]
    shape = json.dumps(_without_descriptions(input_schema(spec.request)), sort_keys=True)
    assert hashlib.sha256(shape.encode()).hexdigest()[:16] == ARGUMENTS_OF_VERSION[name, spec.schema_version]


def _without_descriptions(node: Any) -> Any:
    if not isinstance(node, dict):
        return node
    kept = {key: _without_descriptions(value) for key, value in node.items() if key != "description"}
    if "properties" in kept:
        kept["properties"] = {key: _without_descriptions(value) for key, value in node["properties"].items()}
    return kept


def in_flush(tool: str, arguments: JsonObject, flush_id: str = "flush-1") -> str:
    request = parse_arguments(f"knowledge_{tool}", arguments, flush_id=flush_id)
    assert isinstance(request, WriteRequest)
    return request.request_id


def without_id(arguments: JsonObject, **changes: Any) -> JsonObject:
    return {key: value for key, value in {**arguments, **changes}.items() if key != "requestId"}


@pytest.mark.parametrize(("tool", "arguments"), [("remember", REMEMBER), ("save_page", SAVE_PAGE)])
def test_a_flush_may_leave_the_request_id_out_and_a_retry_has_the_same_one(tool: str, arguments: JsonObject) -> None:
    derived = in_flush(tool, without_id(arguments))
    assert uuid.UUID(derived).version == 5
    assert in_flush(tool, without_id(arguments)) == derived
    assert in_flush(tool, {**arguments, "requestId": None}) == derived
    assert in_flush(tool, json.dumps(without_id(arguments))) == derived  # type: ignore[arg-type]
    assert in_flush(tool, without_id(arguments), "flush-2") != derived


def test_derived_ids_never_change_between_releases() -> None:
    assert in_flush("save_page", without_id(SAVE_PAGE)) == "8147073f-294e-5878-acf7-8ff3b7adc32c"
    assert in_flush("remember", without_id(REMEMBER)) == "7fd86b44-f084-5d42-af9b-5adbbff9de41"


def test_a_page_is_known_by_its_title_and_a_remember_by_its_texts() -> None:
    assert in_flush("save_page", without_id(SAVE_PAGE, body="other")) == in_flush("save_page", without_id(SAVE_PAGE))
    assert in_flush("save_page", without_id(SAVE_PAGE, title="Other")) != in_flush("save_page", without_id(SAVE_PAGE))
    items: Any = [{"text": "a", "kind": "fact"}, {"text": "b", "kind": "fact"}]
    joined: Any = [{"text": "ab", "kind": "fact"}]
    ids = {
        in_flush("remember", without_id(REMEMBER, items=chosen)) for chosen in (items, items[::-1], items[:1], joined)
    }
    assert len(ids) == 4


def test_a_given_request_id_is_kept_within_a_flush() -> None:
    assert in_flush("save_page", SAVE_PAGE) == REQUEST_ID


def test_an_edit_in_a_flush_keeps_its_fences() -> None:
    fields: JsonObject = {"id": PAGE_ID, "expectedRevision": 3, "expectedHash": HASH}
    assert in_flush("save_page", without_id(SAVE_PAGE, **fields)) == in_flush("save_page", without_id(SAVE_PAGE))


@pytest.mark.parametrize(("tool", "arguments"), [("remember", REMEMBER), ("save_page", SAVE_PAGE)])
def test_outside_a_flush_the_request_id_is_required(tool: str, arguments: JsonObject) -> None:
    with pytest.raises(InvalidArgument) as caught:
        parse_arguments(f"knowledge_{tool}", without_id(arguments))
    assert (caught.value.fields["field"], caught.value.fields["reason"]) == ("requestId", "missing")


@pytest.mark.parametrize("tool", ["resume", "mutation"])
def test_a_flush_gives_no_id_to_a_call_that_must_name_an_earlier_one(tool: str) -> None:
    with pytest.raises(InvalidArgument) as caught:
        parse_arguments(f"knowledge_{tool}", {}, flush_id="flush-1")
    assert caught.value.fields["field"] == "requestId"


@pytest.mark.parametrize("flush_id", ["", " ", "a\0", "\ud800", "x" * 201])
def test_a_bad_flush_id_is_refused(flush_id: str) -> None:
    with pytest.raises(InvalidArgument) as caught:
        parse_arguments("knowledge_save_page", without_id(SAVE_PAGE), flush_id=flush_id)
    assert caught.value.fields["field"] == "flushId"


def test_bad_arguments_in_a_flush_are_refused_like_elsewhere() -> None:
    with pytest.raises(InvalidArgument) as caught:
        parse_arguments("knowledge_save_page", without_id(SAVE_PAGE, title=5), flush_id="flush-1")
    assert caught.value.fields["field"] == "title"

"""From raw arguments to requests: defaults, bounds, cross rules, and nothing but typed errors for anything at all."""

from __future__ import annotations

import copy
import json
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from messages.errors import InvalidArgument, KnowledgeError, LimitExceeded, ShortHash, UnknownTool
from messages.json_types import JsonObject
from messages.tools import (
    CATALOGUE,
    GrepRequest,
    LookupRequest,
    MutationRequest,
    OntologyRequest,
    RecordRequest,
    RecordsRequest,
    RememberRequest,
    SavePageRequest,
    StatusRequest,
    parse_arguments,
    payload_hash,
    tool_spec,
)
from tests.messages.tools.samples import HASH, PAGE_ID, REMEMBER, REQUEST_ID, SAMPLES, SAVE_PAGE


def remember_with(**item: Any) -> JsonObject:
    return {**REMEMBER, "items": [{"text": "a", "kind": "fact", **item}]}


EDIT: JsonObject = {**SAVE_PAGE, "id": PAGE_ID, "expectedRevision": 3, "expectedHash": HASH}
CITATION: JsonObject = {"path": f"artifacts/{REQUEST_ID}/a.txt", "sha256": HASH}


def cited(**changes: Any) -> JsonObject:
    return {**SAVE_PAGE, "attachments": [{**CITATION, **changes}]}


def refusal(tool: str, arguments: object) -> KnowledgeError:
    with pytest.raises(KnowledgeError) as caught:
        parse_arguments(f"knowledge_{tool}", arguments)
    return caught.value


@pytest.mark.parametrize("arguments", [{}, None, "{}", {"view": None}])
def test_no_arguments_are_written_in_many_ways(arguments: object) -> None:
    assert parse_arguments("knowledge_ontology", arguments) == OntologyRequest()
    assert OntologyRequest().view == "catalog"
    assert OntologyRequest().max_chars == 12_000
    assert parse_arguments("knowledge_status", None) == StatusRequest()


def test_the_documented_defaults_stand() -> None:
    record = parse_arguments("knowledge_record", {"id": "x"})
    assert isinstance(record, RecordRequest)
    assert (record.offset, record.max_chars, record.include_evidence, record.evidence_offset) == (0, 12_000, False, 0)
    records = parse_arguments("knowledge_records", {})
    assert isinstance(records, RecordsRequest)
    assert (records.limit, records.offset, records.lifecycle, records.time_field) == (20, 0, "active", None)
    grep = parse_arguments("knowledge_grep", {"query": "x"})
    assert isinstance(grep, GrepRequest)
    assert (grep.mode, grep.limit, grep.offset, grep.lifecycle) == ("all", 10, 0, "active")
    lookup = parse_arguments("knowledge_lookup", {"query": "x"})
    assert isinstance(lookup, LookupRequest)
    assert (lookup.limit, lookup.offset, lookup.lifecycle) == (10, 0, "active")
    remember = parse_arguments("knowledge_remember", remember_with())
    assert isinstance(remember, RememberRequest)
    assert (remember.items[0].origin, remember.items[0].infer_subject) == ("source", True)
    mutation = parse_arguments("knowledge_mutation", {"requestId": REQUEST_ID})
    assert isinstance(mutation, MutationRequest)
    assert mutation.include_files


@pytest.mark.parametrize(
    ("arguments", "size"),
    [({}, 50), ({"view": "definitions"}, 10), ({"view": "sources"}, 50), ({"view": "definitions", "limit": 100}, 100)],
)
def test_definitions_come_ten_a_page_and_other_views_fifty(arguments: JsonObject, size: int) -> None:
    request = parse_arguments("knowledge_ontology", arguments)
    assert isinstance(request, OntologyRequest)
    assert request.page_size == size


@pytest.mark.parametrize(
    ("tool", "arguments", "field"),
    [
        ("status", {"agent": "main"}, "agent"),
        ("status", {"store": "x"}, "store"),
        ("ontology", {"view": "Catalog"}, "view"),
        ("ontology", {"kind": "claim"}, "kind"),
        ("ontology", {"limit": 0}, "limit"),
        ("ontology", {"limit": 101}, "limit"),
        ("ontology", {"offset": -1}, "offset"),
        ("ontology", {"maxChars": 255}, "maxChars"),
        ("ontology", {"maxChars": 65_537}, "maxChars"),
        ("ontology", {"includeRecords": True}, "includeRecords"),
        ("ontology", {"sourcePath": "ontology.yaml"}, "sourcePath"),
        ("ontology", {"view": "sources", "sourcePath": "../x"}, "sourcePath"),
        ("ontology", {"view": "sources", "sourcePath": "/etc/passwd"}, "sourcePath"),
        ("ontology", {"view": "sources", "sourcePath": "a\\b"}, "sourcePath"),
        ("record", {}, "id"),
        ("record", {"id": "two words"}, "id"),
        ("record", {"id": "x", "maxChars": 999}, "maxChars"),
        ("record", {"id": "x", "maxChars": 48_001}, "maxChars"),
        ("record", {"id": "x", "full": True}, "full"),
        ("records", {"limit": 101}, "limit"),
        ("records", {"kind": "Page"}, "kind"),
        ("records", {"origin": "inference"}, "origin"),
        ("records", {"kind": "page", "origin": "source"}, "origin"),
        ("records", {"lifecycle": "withdrawn"}, "lifecycle"),
        ("records", {"timeField": "created"}, "timeField"),
        ("records", {"since": "2026-13"}, "since"),
        ("records", {"since": "2026-09-20", "until": "2026-09-20"}, "until"),
        ("records", {"since": "2026-09", "until": "2026"}, "until"),
        ("grep", {}, "query"),
        ("grep", {"query": " "}, "query"),
        ("grep", {"query": "x", "mode": "regex"}, "mode"),
        ("grep", {"query": "x", "limit": 51}, "limit"),
        ("grep", {"query": "x", "offset": 501}, "offset"),
        ("grep", {"query": "x", "since": "2027", "until": "2026"}, "until"),
        ("lookup", {"query": ""}, "query"),
        ("lookup", {"query": "x", "mode": "any"}, "mode"),
        ("lookup", {"query": "x", "limit": 0}, "limit"),
        ("remember", {}, "requestId"),
        ("remember", {**REMEMBER, "requestId": "now"}, "requestId"),
        ("remember", {**REMEMBER, "attribution": " "}, "attribution"),
        ("remember", {**REMEMBER, "excerpt": ""}, "excerpt"),
        ("remember", {**REMEMBER, "excerpt": "a\0"}, "excerpt"),
        ("remember", {**REMEMBER, "items": []}, "items"),
        ("remember", {**REMEMBER, "expectedVaultId": "x"}, "expectedVaultId"),
        ("remember", {**REMEMBER, "expectedOntologyFingerprint": HASH[:16]}, "expectedOntologyFingerprint"),
        ("remember", remember_with(kind="Fact"), "items[0].kind"),
        ("remember", remember_with(text=None), "items[0].text"),
        ("remember", remember_with(origin="agent_inference"), "items[0].origin"),
        ("remember", remember_with(occurredAt="2026"), "items[0].occurredAt"),
        ("remember", remember_with(due_at="soon"), "items[0].due_at"),
        ("remember", remember_with(infer_subject="maybe"), "items[0].infer_subject"),
        ("remember", remember_with(evidence=[]), "items[0].evidence"),
        ("save_page", {**SAVE_PAGE, "title": "a\nb"}, "title"),
        ("save_page", {**SAVE_PAGE, "title": ""}, "title"),
        ("save_page", {k: v for k, v in SAVE_PAGE.items() if k != "body"}, "body"),
        ("save_page", {**SAVE_PAGE, "aliases": ["a", ""]}, "aliases[1]"),
        ("save_page", {**SAVE_PAGE, "tags": "x"}, "tags"),
        ("save_page", {**SAVE_PAGE, "dependencies": ["a b"]}, "dependencies[0]"),
        ("save_page", {**SAVE_PAGE, "fields": []}, "fields"),
        ("save_page", {**SAVE_PAGE, "id": PAGE_ID}, "expectedRevision"),
        ("save_page", {k: v for k, v in EDIT.items() if k != "expectedHash"}, "expectedHash"),
        ("save_page", {k: v for k, v in EDIT.items() if k != "id"}, "expectedRevision"),
        ("save_page", {**EDIT, "expectedRevision": 0}, "expectedRevision"),
        ("save_page", {**EDIT, "expectedHash": HASH.upper()}, "expectedHash"),
        ("save_page", cited(path="/etc/passwd"), "attachments[0].path"),
        ("save_page", cited(path="artifacts/../x"), "attachments[0].path"),
        ("save_page", cited(path="artifacts/a/.."), "attachments[0].path"),
        ("save_page", cited(path="artifacts/a"), "attachments[0].path"),
        ("save_page", cited(path="artifacts/a/b\nc"), "attachments[0].path"),
        ("save_page", cited(sha256=HASH[:16]), "attachments[0].sha256"),
        ("save_page", cited(start_line=0), "attachments[0].start_line"),
        ("save_page", cited(end_line=1), "attachments[0].start_line"),
        ("save_page", cited(start_line=2, end_line=1), "attachments[0].end_line"),
        ("save_page", cited(startLine=2), "attachments[0].startLine"),
        ("history", {"limit": 0}, "limit"),
        ("revision", {"id": PAGE_ID}, "sequence"),
        ("revision", {"id": PAGE_ID, "sequence": 0}, "sequence"),
        ("mutation", {}, "requestId"),
        ("mutation", {"requestId": REQUEST_ID, "contentField": "after"}, "contentField"),
        ("mutation", {"requestId": REQUEST_ID, "charOffset": 5}, "contentField"),
        ("mutation", {"requestId": REQUEST_ID, "contentField": "before", "includeFiles": False}, "contentField"),
        ("resume", {}, "requestId"),
        ("resume", {"requestId": 5}, "requestId"),
    ],
)
def test_a_bad_argument_is_named(tool: str, arguments: JsonObject, field: str) -> None:
    error = refusal(tool, arguments)
    assert type(error) is InvalidArgument
    assert error.fields["field"] == field
    assert error.fields["reason"]
    assert "allowed" in error.fields


@pytest.mark.parametrize(
    ("tool", "arguments", "field"),
    [
        ("grep", {"query": "x" * 501}, "query"),
        ("grep", {"query": " ".join(["x"] * 65)}, "query"),
        ("lookup", {"query": "x" * 201}, "query"),
        ("records", {"match": "x" * 201}, "match"),
        ("remember", {**REMEMBER, "attribution": "x" * 501}, "attribution"),
        ("remember", {**REMEMBER, "excerpt": "é" * 8_193}, "excerpt"),
        ("remember", {**REMEMBER, "items": [{"text": "a", "kind": "fact"}] * 21}, "items"),
        ("remember", remember_with(text="😀" * 2_001), "items[0].text"),
        ("remember", remember_with(about="x" * 301), "items[0].about"),
        ("remember", remember_with(subject="x" * 201), "items[0].subject"),
        ("save_page", {**SAVE_PAGE, "title": "x" * 201}, "title"),
        ("save_page", {**SAVE_PAGE, "body": "x" * 48_001}, "body"),
        ("save_page", {**SAVE_PAGE, "aliases": ["a"] * 101}, "aliases"),
        ("save_page", {**SAVE_PAGE, "aliases": ["x" * 201]}, "aliases[0]"),
        ("save_page", {**SAVE_PAGE, "tags": ["x" * 101]}, "tags[0]"),
        ("save_page", {**SAVE_PAGE, "tags": ["a"] * 101}, "tags"),
        ("save_page", {**SAVE_PAGE, "dependencies": ["a"] * 101}, "dependencies"),
        ("save_page", {**SAVE_PAGE, "fields": {"a": "x" * 16_384}}, "fields"),
    ],
)
def test_a_size_over_its_limit_is_named(tool: str, arguments: JsonObject, field: str) -> None:
    error = refusal(tool, arguments)
    assert type(error) is LimitExceeded
    assert error.fields["field"] == field


def test_a_fence_shorter_than_sixteen_characters_is_short() -> None:
    assert type(refusal("save_page", {**EDIT, "expectedHash": HASH[:15]})) is ShortHash
    assert isinstance(parse_arguments("knowledge_save_page", {**EDIT, "expectedHash": HASH[:16]}), SavePageRequest)


def test_agent_inference_is_refused_with_the_way_to_keep_it() -> None:
    assert "page" in refusal("remember", remember_with(origin="agent_inference")).message


def test_an_empty_collection_clears_and_an_omitted_one_preserves() -> None:
    given = parse_arguments("knowledge_save_page", {**EDIT, "aliases": [], "fields": {}})
    assert isinstance(given, SavePageRequest)
    assert (given.aliases, given.fields) == ((), {})
    assert (given.tags, given.dependencies, given.attachments) == (None, None, None)
    assert not given.creates


@pytest.mark.parametrize("name", ["", "remember", "knowledge_rembember", "knowledge_delete_all", "x" * 10_000, None, 5])
def test_an_unknown_tool_is_refused_with_all_known_ones(name: Any) -> None:
    with pytest.raises(UnknownTool) as caught:
        tool_spec(name)
    assert caught.value.fields["allowed"] == list(CATALOGUE)
    assert len(caught.value.message) < 200


def test_a_misspelt_tool_is_told_the_nearest() -> None:
    with pytest.raises(UnknownTool, match="knowledge_remember"):
        parse_arguments("knowledge_rembember", {})


@pytest.mark.parametrize(("tool", "arguments"), SAMPLES)
def test_arguments_may_come_whole_or_in_part_as_json_text(tool: str, arguments: JsonObject) -> None:
    expected = parse_arguments(tool, arguments)
    assert parse_arguments(tool, json.dumps(arguments)) == expected
    stringly = {
        key: json.dumps(value) if isinstance(value, list | dict | bool | int) else value
        for key, value in arguments.items()
    }
    assert parse_arguments(tool, stringly) == expected


@pytest.mark.parametrize(("tool", "arguments"), SAMPLES)
def test_a_request_written_out_again_is_the_same_request(tool: str, arguments: JsonObject) -> None:
    request = parse_arguments(tool, arguments)
    assert parse_arguments(tool, request.model_dump(by_alias=True)) == request


JUNK = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text(max_size=20)
    | st.sampled_from(
        ["\ud800", "\0", "x" * 50_000, "[" * 500, "{}", "[]", '{"a":', "5", "true", HASH, REQUEST_ID, "2026"]
    ),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4),
    max_leaves=12,
)


@st.composite
def spoiled(draw: st.DrawFn) -> tuple[str, Any]:
    """A sample call with up to three places, at any depth, replaced, removed or added to."""
    tool, sample = draw(st.sampled_from(SAMPLES))
    root: Any = [copy.deepcopy(sample)]
    for _ in range(draw(st.integers(1, 3))):
        holder, key = root, 0
        while isinstance(holder[key], dict | list) and holder[key] and draw(st.booleans()):
            holder = holder[key]
            key = draw(st.sampled_from(sorted(holder) if isinstance(holder, dict) else range(len(holder))))
        if draw(st.booleans()) or holder is root:
            holder[key] = draw(JUNK)
        elif isinstance(holder, dict):
            del holder[key]
            holder[draw(st.text(max_size=8))] = draw(JUNK)
        else:
            holder.append(draw(JUNK))
    return tool, root[0]


@settings(max_examples=200, suppress_health_check=[HealthCheck.too_slow], deadline=None)
@given(spoiled(), st.none() | st.sampled_from(["flush-1", "", "\0", "x" * 201]))
def test_anything_at_all_gives_a_request_or_a_typed_refusal(call: tuple[str, Any], flush_id: str | None) -> None:
    tool, arguments = call
    try:
        request = parse_arguments(tool, arguments, flush_id=flush_id)
    except (InvalidArgument, LimitExceeded, ShortHash) as error:
        json.dumps(error.to_data(), allow_nan=False).encode()
        error.message.encode()
    else:
        assert isinstance(request, CATALOGUE[tool].request)
        assert payload_hash(parse_arguments(tool, arguments, flush_id=flush_id)) == payload_hash(request)
        assert parse_arguments(tool, request.model_dump(by_alias=True)) == request

"""Tool lists: flat, closed, small, the same every time, and never stricter than what the requests accept."""

from __future__ import annotations

import importlib
import json
import re
from collections.abc import Iterator
from typing import Any

import pytest

from messages.errors import InvalidArgument
from messages.json_types import JsonObject
from messages.schemas import DEFAULT_PROFILE, PROFILES, TOOL_FORMATS, export_tools, input_schema, profile_tools
from messages.tools import CATALOGUE, parse_arguments
from tests.messages.tools.samples import SAMPLES

# The validator carries no types of its own.
Draft202012Validator: Any = importlib.import_module("jsonschema").Draft202012Validator

PLAIN = {
    "type", "properties", "required", "items", "enum", "description", "minimum", "maximum", "minLength", "maxLength",
    "minItems", "maxItems", "additionalProperties",
}  # fmt: skip
STRICT = PLAIN - {"minLength", "maxLength"}
LISTS = [(format, profile) for format in TOOL_FORMATS for profile in (None, *PROFILES)]


def schema_of(format: str, tool: JsonObject) -> Any:
    if format == "mcp":
        return tool["inputSchema"]
    if format == "anthropic":
        return tool["input_schema"]
    function: Any = tool["function"]
    return function["parameters"]


def nodes(schema: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    yield path, schema
    for name, child in schema.get("properties", {}).items():
        yield from nodes(child, f"{path}.{name}")
    if "items" in schema:
        yield from nodes(schema["items"], f"{path}[]")


def all_nodes(format: str, profile: str | None) -> Iterator[tuple[str, Any]]:
    for tool in export_tools(format, profile):
        yield from nodes(schema_of(format, tool), str(tool.get("name") or tool["function"]))


@pytest.mark.parametrize(("format", "profile"), LISTS)
def test_no_schema_of_any_profile_uses_a_keyword_outside_the_dialect(format: str, profile: str | None) -> None:
    allowed = STRICT if format == "openai-strict" else PLAIN
    assert [
        (path, sorted(set(node) - allowed)) for path, node in all_nodes(format, profile) if set(node) - allowed
    ] == []


@pytest.mark.parametrize(("format", "profile"), [pair for pair in LISTS if pair[0] != "openai-strict"])
def test_every_node_has_one_type_and_only_string_enums(format: str, profile: str | None) -> None:
    for path, node in all_nodes(format, profile):
        assert node["type"] in {"object", "array", "string", "integer", "boolean"}, path
        assert all(isinstance(word, str) for word in node.get("enum", [])), path


@pytest.mark.parametrize(("format", "profile"), LISTS)
def test_every_object_is_closed_but_the_free_map_fields(format: str, profile: str | None) -> None:
    for path, node in all_nodes(format, profile):
        if "object" in node["type"]:
            assert isinstance(node["properties"], dict), path
            if path.endswith(".fields"):
                assert node["additionalProperties"] is True
                assert format != "openai-strict"
            else:
                assert node["additionalProperties"] is False, path
                assert set(node["required"]) <= set(node["properties"]), path
        if "array" in node["type"]:
            assert "items" in node, path


def test_every_strict_property_is_required_and_optional_ones_take_null() -> None:
    for tool in export_tools("openai-strict"):
        name = str(tool["function"]["name"])  # type: ignore[index, call-overload]
        plain = input_schema(CATALOGUE[name].request)
        for path, node in nodes(schema_of("openai-strict", tool), name):
            if "object" in node["type"]:
                assert node["required"] == list(node["properties"]), path
            assert node["type"] != "null"
            if isinstance(node["type"], list):
                assert node["type"][1:] == ["null"], path
                assert "enum" not in node or node["enum"][-1] is None, path
        optional = set(plain["properties"]) - set(plain["required"])  # type: ignore[arg-type]
        properties = schema_of("openai-strict", tool)["properties"]
        assert {key for key in properties if isinstance(properties[key]["type"], list)} == optional


@pytest.mark.parametrize(("format", "profile"), LISTS)
def test_lists_are_byte_identical_between_runs(format: str, profile: str | None) -> None:
    assert json.dumps(export_tools(format, profile)) == json.dumps(export_tools(format, profile))


@pytest.mark.parametrize("format", TOOL_FORMATS)
def test_changing_an_exported_list_changes_no_later_one(format: str) -> None:
    first = json.dumps(export_tools(format))
    for tool in export_tools(format):
        schema = schema_of(format, tool)
        schema["properties"].clear()
        schema["required"].clear()
        tool.clear()
    assert json.dumps(export_tools(format)) == first


@pytest.mark.parametrize("name", CATALOGUE)
def test_names_and_descriptions_fit_every_host(name: str) -> None:
    spec = CATALOGUE[name]
    assert re.fullmatch(r"[a-z][a-z0-9_]{0,39}", name)
    assert name == spec.request.tool == f"knowledge_{spec.operation}"
    assert spec.description.isascii()
    assert 80 <= len(spec.description) <= 600
    for path, node in nodes(input_schema(spec.request)):
        description = node.get("description", "")
        assert description.isascii(), path
        assert len(description) <= 120, path


def test_every_description_names_another_tool_only_if_it_exists() -> None:
    for spec in CATALOGUE.values():
        words = [spec.description, *(node.get("description", "") for _, node in nodes(input_schema(spec.request)))]
        for named in re.findall(r"knowledge_[a-z_]+", " ".join(words)):
            assert named in CATALOGUE, (spec.name, named)


def test_all_first_sentences_together_carry_the_words_that_hosts_search_for() -> None:
    first = " ".join(spec.description.split(". ")[0].lower() for spec in CATALOGUE.values())
    for word in ("remember", "search", "memory", "page", "claim", "find", "history" if "history" in first else "past"):
        assert word in first


def test_the_core_list_stays_small() -> None:
    for format in TOOL_FORMATS:
        assert len(json.dumps(export_tools(format, "core"), separators=(",", ":"))) < 12_500


@pytest.mark.parametrize(
    ("profile", "names"),
    [
        ("simple", {"knowledge_grep", "knowledge_remember"}),
        (
            "core",
            {"knowledge_status", "knowledge_ontology", "knowledge_lookup", "knowledge_grep", "knowledge_record",
             "knowledge_remember", "knowledge_save_page"},
        ),
        ("read", {name for name, spec in CATALOGUE.items() if spec.action == "read"}),
        ("full", set(CATALOGUE)),
        (None, set(CATALOGUE)),
    ],
)  # fmt: skip
def test_a_profile_has_exactly_its_tools_in_catalogue_order(profile: str | None, names: set[str]) -> None:
    found = [spec.name for spec in profile_tools(profile)]
    assert found == [name for name in CATALOGUE if name in names]


def test_the_default_profile_is_one_of_them() -> None:
    assert DEFAULT_PROFILE in PROFILES


def test_an_unknown_profile_or_format_is_refused_with_the_known_ones() -> None:
    with pytest.raises(InvalidArgument) as profile:
        export_tools("mcp", "everything")
    assert profile.value.fields["allowed"] == list(PROFILES)
    with pytest.raises(InvalidArgument) as format:
        export_tools("soap")
    assert format.value.fields["allowed"] == list(TOOL_FORMATS)


CHANGING = (
    "save_page", "edit_body", "extract_section", "reconcile_evidence", "publish_batch", "recall", "annotate", "correct",
    "withdraw", "merge", "unmerge",
)  # fmt: skip
"""Tools after which a record no longer says what it said."""


def test_hints_agree_with_the_right_that_a_tool_needs() -> None:
    for tool in export_tools("mcp"):
        spec = CATALOGUE[str(tool["name"])]
        assert tool["annotations"] == {
            "readOnlyHint": spec.action == "read",
            "destructiveHint": spec.name.removeprefix("knowledge_") in CHANGING,
            "idempotentHint": True,
            "openWorldHint": False,
        }


def test_tools_outside_core_are_deferred_only_beside_core_ones() -> None:
    full = {str(tool["name"]): tool.get("defer_loading", False) for tool in export_tools("anthropic")}
    assert full == {name: not spec.core for name, spec in CATALOGUE.items()}
    assert all("defer_loading" not in tool for tool in export_tools("anthropic", "core"))


@pytest.mark.parametrize(("tool", "arguments"), SAMPLES)
def test_what_a_schema_accepts_the_request_accepts(tool: str, arguments: JsonObject) -> None:
    plain = Draft202012Validator(input_schema(CATALOGUE[tool].request))
    plain.validate(arguments)
    parse_arguments(tool, arguments)
    strict = next(t for t in export_tools("openai-strict") if t["function"]["name"] == tool)  # type: ignore[index, call-overload]
    schema = schema_of("openai-strict", strict)
    filled = _strictly(schema, arguments)
    Draft202012Validator(schema).validate(filled)
    assert parse_arguments(tool, filled) == parse_arguments(tool, arguments)


@pytest.mark.parametrize("format", TOOL_FORMATS)
def test_every_schema_is_a_valid_json_schema(format: str) -> None:
    for tool in export_tools(format):
        Draft202012Validator.check_schema(schema_of(format, tool))


def _strictly(schema: Any, value: Any) -> Any:
    """``value`` as a strict-mode model must write it: every property there, left-out ones null, maps as text."""
    if isinstance(value, dict) and "properties" in schema:
        return {key: _strictly(child, value.get(key)) for key, child in schema["properties"].items()}
    if isinstance(value, dict):
        return json.dumps(value)
    if isinstance(value, list):
        return [_strictly(schema["items"], item) for item in value]
    return value

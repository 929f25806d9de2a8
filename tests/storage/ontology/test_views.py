"""The four views of the ontology tool."""

from __future__ import annotations

import json
from typing import Any

import pytest

from messages.errors import InvalidArgument
from messages.json_types import JsonObject
from storage.ontology import Activation, activate, core_activation, views

CORE = core_activation()
BROKEN = activate(b"format: knowledge-ontology-v1\nextends: core\npages:\n  a: {parent: b}\n  c: {parent: d}\n")


def rows(answer: JsonObject, key: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads(json.dumps(answer[key]))
    return found


def names(answer: JsonObject, key: str) -> list[str]:
    return [row["name"] for row in rows(answer, key)]


def test_the_catalog_lists_every_name_with_kind_and_description() -> None:
    answer = views.catalog(CORE)
    assert answer["fingerprint"] == CORE.ontology.fingerprint
    assert names(answer, "types") == [*CORE.ontology.pages, *CORE.ontology.relationships]
    assert "nextOffset" not in answer
    assert all({"kind", "name", "description"} <= row.keys() for row in rows(answer, "types"))


@pytest.mark.parametrize("limit", [1, 3, 29, 100])
def test_pages_follow_each_other_without_gap_or_repetition(limit: int) -> None:
    for view, key in ((views.catalog, "types"), (views.definitions, "definitions")):
        seen: list[str] = []
        offset = 0
        while True:
            answer = view(CORE, limit=limit, offset=offset)
            assert answer["total"] == 29
            seen += names(answer, key)
            if "nextOffset" not in answer:
                break
            assert isinstance(answer["nextOffset"], int)
            offset = answer["nextOffset"]
        assert seen == [*CORE.ontology.pages, *CORE.ontology.relationships]
        assert names(view(CORE, limit=limit, offset=1_000), key) == []


def test_a_kind_and_a_name_filter() -> None:
    assert names(views.catalog(CORE, kind="relationship"), "types") == list(CORE.ontology.relationships)
    assert names(views.catalog(CORE, kind="page", name="Organization"), "types") == ["company"]
    assert names(views.definitions(CORE, name="about"), "definitions") == ["about"]
    with pytest.raises(InvalidArgument) as refused:
        views.definitions(CORE, name="about", kind="page")
    assert refused.value.fields["field"] == "name"
    assert "person" in refused.value.fields["allowed"]  # type: ignore[operator]


def test_a_definition_shows_fields_values_filing_endpoints_and_provenance() -> None:
    (project,) = rows(views.definitions(CORE, name="project"), "definitions")
    assert project["fields"]["status"]["values"] == ["active", "paused", "completed", "cancelled"]
    assert project["fields"]["lead"]["of"] == ["person"]
    assert project["fields"]["website"]["inheritedFrom"] == "entity"
    assert (project["folder"], project["chain"], project["sources"]) == (
        "projects",
        ["project", "entity"],
        ["core.yaml"],
    )
    (works_at,) = rows(views.definitions(CORE, name="works_at"), "definitions")
    assert (works_at["from"], works_at["to"], works_at["inverse"]) == (["person"], ["company"], "employs")


def test_examples_are_at_most_20_and_say_whether_there_are_more() -> None:
    asked: list[tuple[str, str]] = []

    def examples(kind: views.Kind, name: str) -> tuple[list[JsonObject], bool]:
        asked.append((kind, name))
        return [{"id": str(number)} for number in range(25 if name == "person" else 2)], False

    answer = views.definitions(CORE, kind="page", limit=3, examples=examples)
    shown = {row["name"]: row for row in rows(answer, "definitions")}
    assert asked == [("page", "entity"), ("page", "person"), ("page", "company")]
    assert (len(shown["person"]["records"]), shown["person"]["recordsTruncated"]) == (20, True)
    assert (len(shown["company"]["records"]), shown["company"]["recordsTruncated"]) == (2, False)
    assert "records" not in rows(views.definitions(CORE, name="person"), "definitions")[0]


def test_sources_list_paths_validity_and_size() -> None:
    assert views.sources(BROKEN)["sources"] == [
        {"path": "core.yaml", "valid": True, "size": CORE.sources[0].size},
        {"path": "ontology.yaml", "valid": False, "size": BROKEN.sources[1].size},
    ]


def test_a_source_is_read_in_windows_of_utf16_units() -> None:
    text = "format: knowledge-ontology-v1\nextends: core\n# 😀😀😀\n" + "# é\n" * 200
    activation = activate(text.encode())
    read = ""
    offset: int | None = 0
    while offset is not None:
        answer = views.source_text(activation, "ontology.yaml", offset=offset, max_chars=47)
        read += str(answer["text"])
        following = answer.get("nextOffset")
        assert following is None or isinstance(following, int)
        offset = following
    assert read == text


@pytest.mark.parametrize(
    ("path", "offset", "field"),
    [("people/alex.md", 0, "sourcePath"), ("../core.yaml", 0, "sourcePath"), ("ontology.yaml", 3, "offset"),
     ("ontology.yaml", 9_999, "offset"), ("ontology.yaml", -1, "offset")],
)  # fmt: skip
def test_a_path_that_is_not_listed_and_an_offset_inside_a_pair_are_refused(path: str, offset: int, field: str) -> None:
    activation = activate("# 😀\nformat: knowledge-ontology-v1\nextends: core\n".encode())
    with pytest.raises(InvalidArgument) as refused:
        views.source_text(activation, path, offset=offset)
    assert refused.value.fields["field"] == field


def test_diagnostics_page_the_issues_and_say_whether_all_is_in_force() -> None:
    assert views.diagnostics(CORE) == {
        "active": True, "fingerprint": CORE.ontology.fingerprint, "total": 0, "issues": [],
    }  # fmt: skip
    first = views.diagnostics(BROKEN, limit=1)
    assert (first["active"], first["total"], first["nextOffset"]) == (False, 2, 1)
    assert first["issues"] == [
        {
            "code": "parent_missing", "source": "ontology.yaml", "path": "pages.a.parent", "line": 4,
            "message": "There is no page type `b`.", "chain": ["a", "b"],
        }
    ]  # fmt: skip
    assert "nextOffset" not in views.diagnostics(BROKEN, limit=1, offset=1)


@pytest.mark.parametrize("activation", [CORE, BROKEN])
def test_every_view_is_plain_json(activation: Activation) -> None:
    for answer in (
        views.catalog(activation),
        views.definitions(activation, limit=100),
        views.sources(activation),
        views.diagnostics(activation),
        views.source_text(activation, "core.yaml"),
    ):
        assert json.loads(json.dumps(answer)) == answer

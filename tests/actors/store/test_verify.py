"""knowledge_verify: whether records and their links hold (tools.md, Reading records; decisions.md section 5)."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from actors.store.operations import link_targets
from actors.store.operations import verify as operation
from messages.errors import InvalidArgument, LimitExceeded, SnapshotChanged
from messages.json_types import JsonObject, JsonValue
from messages.tools import json_bytes
from storage import faults
from tests.kit.store import (
    GROUP_PARTITION,
    Desk,
    claim_file,
    items_of,
    page_file,
    record_file,
    remembering,
    write_note,
)


def verify(desk: Desk, *ids: JsonValue, **more: JsonValue) -> JsonObject:
    return desk.call("verify", {"ids": list(ids), **more} if ids else dict(more))


def rows(answer: JsonObject, key: str = "records") -> list[JsonObject]:
    found = answer.get(key, [])
    assert isinstance(found, list)
    return found


def one(desk: Desk, record_id: JsonValue) -> JsonObject:
    [row] = rows(verify(desk, record_id))
    return row


def problems(row: JsonObject, aspect: str) -> list[JsonObject]:
    found = row.get(aspect, {})
    assert isinstance(found, Mapping)
    shown = found.get("problems", [])
    assert isinstance(shown, list)
    return shown


def note(desk: Desk, record_id: str, body: str = "About it.\n", **keys: JsonValue) -> None:
    values: dict[str, Any] = dict(keys)
    write_note(
        desk.folder(), f"notes/{record_id}.md", page_file(record_id, record_id, type="note", body=body, **values)
    )


# --- records ------------------------------------------------------------------------------------------------


def test_a_sound_record_is_ok_with_what_was_looked_at(desk: Desk) -> None:
    page = desk.page("Plan", body="See [[other]] and [a site](https://example.org).")
    note(desk, "other")
    [claim] = items_of(desk.remember("It ships on Friday."))
    answer = verify(desk, page["id"], claim["id"])
    assert answer == {
        "total": 2,
        "records": [
            {
                "id": page["id"], "state": "ok", "revision": 1, "hash": str(page["hash"])[:16], "kind": "page",
                "links": {"checked": 2},
            },
            {
                "id": claim["id"], "state": "ok", "revision": 1, "hash": str(claim["hash"])[:16], "kind": "claim",
                "evidence": {"checked": 1},
            },
        ],
    }  # fmt: skip
    assert desk.needs == ["evidence"]


def test_a_missing_id_and_one_that_several_files_bear_are_told_apart(desk: Desk) -> None:
    write_note(desk.folder(), "projects/a.md", page_file("twice", "A"))
    write_note(desk.folder(), "projects/b.md", page_file("twice", "B"))
    missing, twice = rows(verify(desk, "nothing", "twice"))
    assert missing == {"id": "nothing", "state": "missing"}
    assert twice["state"] == "ambiguous"
    assert problems(twice, "duplicates") == [{"path": "projects/a.md"}, {"path": "projects/b.md"}]


def test_schema_findings_are_shown_and_notes_among_them_do_not_make_a_problem(desk: Desk) -> None:
    write_note(desk.folder(), "claims/c.md", claim_file("c", "Tea.", claim_kind="rumour"))
    row = one(desk, "c")
    assert row["state"] == "problems"
    assert "claim_kind" in [found["field"] for found in problems(row, "schema")]
    write_note(desk.folder(), "projects/p.md", page_file("p", "P", tags=["t" * 101]))
    noted = one(desk, "p")
    assert (noted["state"], [found["severity"] for found in problems(noted, "schema")]) == ("ok", ["note"])


def test_ontology_findings_are_shown_with_references_judged_beside_the_other_records(desk: Desk) -> None:
    write_note(desk.folder(), "projects/p.md", page_file("p", "P", fields={"status": "asleep"}))
    assert [found["field"] for found in problems(one(desk, "p"), "ontology")] == ["fields.status"]
    person = page_file("ana", "Ana", type="person")
    write_note(desk.folder(), "people/ana.md", person)
    keys: JsonObject = {
        "from": "ana", "to": "p", "label": "works_at", "assertion_origin": "source", "attribution": "a",
        "evidence": [{"path": "artifacts/00000000-0000-4000-8000-000000000384/e.txt", "sha256": "0" * 64}],
    }  # fmt: skip
    text = record_file("relationship", "r", "Ana works", "", GROUP_PARTITION, "2026-10-01T10:00:00.000Z", keys)
    text = text.replace('"visibility": "conversation"', '"visibility": "private"')
    write_note(desk.folder(), "relationships/r.md", text.replace(f', "sessionId": "{GROUP_PARTITION.session_id}"', ""))
    row = one(desk, "r")
    assert [(found["code"], found["field"]) for found in problems(row, "ontology")] == [("reference_type", "to")]
    assert row["state"] == "problems"


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ({"sha256": "0" * 64}, "hash_mismatch"),
        ({"start_line": 3, "end_line": 9}, "line_range"),
        ({"quote": "never said"}, "quote_mismatch"),
        ({"path": "artifacts/00000000-0000-4000-8000-0000000003e7/none.txt"}, "missing"),
    ],
)
def test_evidence_is_verified_against_hash_range_and_quote(desk: Desk, change: JsonObject, expected: str) -> None:
    [claim] = items_of(desk.remember("It ships on Friday."))
    [citation] = rows(desk.record(claim["id"], includeEvidence=True), "evidence")
    citation.pop("excerpt")
    write_note(desk.folder(), "claims/c.md", claim_file("c", "It ships.", evidence=[citation, {**citation, **change}]))
    row = one(desk, "c")
    assert row["state"] == "problems"
    [found] = problems(row, "evidence")
    assert (found["index"], found["problem"]) == (1, expected)
    assert row["evidence"]["checked"] == 2  # type: ignore[index, call-overload]


def test_links_that_lead_nowhere_or_to_no_one_record_are_named_with_their_place(desk: Desk) -> None:
    write_note(desk.folder(), "projects/a.md", page_file("twice", "A"))
    write_note(desk.folder(), "projects/b.md", page_file("twice", "B"))
    note(desk, "there")
    desk.page("Garden Pilot")
    for number in (1, 2):
        desk.page("Shed", body=str(number), allowSameTitle=True)
    body = (
        "😀 [[there]] [[gone]] [[twice]] [x](there.md) [x](gone.md) [x](../projects/a.md)\n"
        "[x](../../out.md) [x](#part) [x](mailto:a@b.c) ![x](../artifacts/none.png) [[garden pilot]] "
        "[[Nobody]] [[Shed|it]] [[a [b] c]]\n"
    )
    note(desk, "from", body)
    row = one(desk, "from")
    found = {str(problem["target"]): (problem["state"], problem["at"]) for problem in problems(row, "links")}

    def at(text: str) -> int:
        return body.index(text) + 1  # one character before takes two UTF-16 units

    assert found == {
        "gone": ("nowhere", at("[[gone]]")),
        "twice": ("ambiguous", at("[[twice]]")),
        "notes/gone.md": ("nowhere", at("[x](gone.md)")),
        "projects/a.md": ("ambiguous", at("[x](../projects/a.md)")),
        "../../out.md": ("outside", at("[x](../../out.md)")),
        "artifacts/none.png": ("nowhere", at("![x]")),
        "Nobody": ("nowhere", at("[[Nobody")),
        "Shed": ("ambiguous", at("[[Shed")),
        "[[a [b] c]]": ("doubtful", at("[[a")),
    }
    assert row["state"] == "problems"


def test_links_to_files_that_are_there_and_through_merges_work(desk: Desk) -> None:
    write_note(desk.folder(), "files/plan.pdf", "bytes")
    write_note(desk.folder(), "notes/plain.md", "no envelope\n")
    note(desk, "end")
    note(desk, "old", lifecycle="merged", merged_into="end")
    note(desk, "from", "[a](../files/plan.pdf) [b](plain.md) [[old]] [c](/notes/end.md) [d](end%2Emd)\n")
    assert one(desk, "from")["state"] == "ok"


@pytest.mark.parametrize("target", ["%00", "x" * 300, "a/" * 3_000 + "b", "%FF"])
def test_a_link_to_a_path_that_no_file_can_have_leads_nowhere(desk: Desk, target: str) -> None:
    note(desk, "from", f"[x]({target})\n")
    [found] = problems(one(desk, "from"), "links")
    assert found["state"] == "nowhere"
    assert len(str(found["target"])) <= 200


def test_a_redirect_shows_where_it_ends_and_a_broken_one_is_a_problem(desk: Desk) -> None:
    note(desk, "end")
    for name, following in (("a", "b"), ("b", "end"), ("c", "nothing"), ("x", "y"), ("y", "x")):
        note(desk, name, lifecycle="merged", merged_into=following)
    write_note(desk.folder(), "claims/s.md", claim_file("s", "Tea.", lifecycle="superseded", superseded_by="nothing"))
    good, cut, circle, superseded = rows(verify(desk, "a", "c", "x", "s"))
    assert (good["state"], good["lifecycle"]) == ("ok", "merged")
    assert good["redirect"] == {"mergedInto": "b", "leadsTo": "end"}
    assert (cut["state"], cut["redirect"]) == ("problems", {"mergedInto": "nothing", "leadsTo": None})
    assert circle["redirect"] == {"mergedInto": "y", "leadsTo": None}
    assert superseded["redirect"] == {"supersededBy": "nothing", "leadsTo": None}


def test_exact_repeats_of_a_claim_are_duplicates(desk: Desk) -> None:
    [claim] = items_of(desk.remember("It ships on Friday."))
    write_note(desk.folder(), "claims/again.md", claim_file("again", "it  ships on FRIDAY."))
    write_note(desk.folder(), "claims/other.md", claim_file("other", "It ships on Monday."))
    row = one(desk, claim["id"])
    assert (row["state"], problems(row, "duplicates")) == ("problems", [{"id": "again"}])


def test_a_recall_block_that_does_not_count_is_noted(desk: Desk) -> None:
    write_note(desk.folder(), "projects/p.md", page_file("p", "P", recall={"summary": "s"}))
    row = one(desk, "p")
    assert [found["code"] for found in problems(row, "ontology")] == ["recall_not_approved"]
    assert row["state"] == "ok"


def test_records_of_another_partition_are_missing(desk: Desk) -> None:
    page = desk.page("Plan")
    answer = desk.call("verify", {"ids": [page["id"]]}, partition=GROUP_PARTITION)
    assert [row["state"] for row in rows(answer)] == ["missing"]


def test_it_changes_nothing(desk: Desk) -> None:
    page = desk.page("Plan", body="[[gone]]")
    before = desk.partition().catalogue.change
    verify(desk, page["id"], expectedLinks=[{"from": page["id"], "to": "gone"}])
    assert desk.partition().catalogue.change == before
    assert desk.call("history")["total"] == 1


# --- expected links -----------------------------------------------------------------------------------------


def link(desk: Desk, source: JsonValue, target: JsonValue) -> tuple[object, object]:
    [row] = rows(verify(desk, expectedLinks=[{"from": source, "to": target}]), "links")
    assert (row["from"], row["to"]) == (source, target)
    return row["state"], row.get("reason")


def test_an_expected_link_is_present_by_id_or_by_path_and_else_missing(desk: Desk) -> None:
    note(desk, "a", "[[b]]\n")
    note(desk, "b", "[a](a.md)\n")
    note(desk, "c", "`[[a]]` and ![picture](a.md) and [[a b]]\n")
    assert link(desk, "a", "b") == ("present", None)
    assert link(desk, "b", "a") == ("present", None)
    assert link(desk, "c", "a") == ("missing", None)
    assert link(desk, "a", "c") == ("missing", None)


def test_an_expected_link_is_present_through_a_merge_whichever_page_is_named(desk: Desk) -> None:
    note(desk, "end")
    note(desk, "old", lifecycle="merged", merged_into="end")
    note(desk, "a", "[[old]]\n")
    note(desk, "b", "[[end]]\n")
    assert {link(desk, source, target)[0] for source in "ab" for target in ("old", "end")} == {"present"}


def test_an_expected_link_is_ambiguous_when_either_id_is_borne_by_several_files(desk: Desk) -> None:
    write_note(desk.folder(), "projects/a.md", page_file("twice", "A", body="[[a]]\n"))
    write_note(desk.folder(), "projects/b.md", page_file("twice", "B", body="[[a]]\n"))
    note(desk, "a", "[[twice]]\n")
    assert link(desk, "a", "twice") == ("ambiguous", "to")
    assert link(desk, "twice", "a") == ("ambiguous", "from")


def test_an_expected_link_is_present_by_title_alias_or_file_name_and_ambiguous_where_that_means_several(
    desk: Desk,
) -> None:
    page = desk.page("Garden Pilot", aliases=["The Pilot"])
    for number, written in enumerate(["garden pilot", "The Pilot", "garden-pilot"]):
        note(desk, f"n{number}", f"[[{written}]]\n")
        assert link(desk, f"n{number}", page["id"]) == ("present", None)
    shed = desk.page("Shed")
    note(desk, "s", "[[Shed]]\n")
    assert link(desk, "s", shed["id"]) == ("present", None)
    desk.page("Shed", body="Another.", allowSameTitle=True)
    assert link(desk, "s", shed["id"]) == ("ambiguous", "link")
    note(desk, "s", f"[[Shed]] [[{shed['id']}]]\n")
    assert link(desk, "s", shed["id"]) == ("present", None)


def test_an_expected_link_of_or_to_a_record_that_is_not_there_is_missing(desk: Desk) -> None:
    note(desk, "a", "[[gone]]\n")
    assert link(desk, "a", "gone") == ("missing", "to")
    assert link(desk, "gone", "a") == ("missing", "from")


# --- bounds -------------------------------------------------------------------------------------------------


def paged(desk: Desk, request: JsonObject) -> tuple[list[JsonValue], list[JsonValue], int]:
    """The ids and links of every page of an answer, and the number of pages."""
    ids, links, pages = list[JsonValue](), list[JsonValue](), 1
    answer = desk.call("verify", request)
    while True:
        assert json_bytes(answer) <= 24 * 1024
        ids += [row["id"] for row in rows(answer)]
        links += [row["to"] for row in rows(answer, "links")]
        if "nextOffset" not in answer:
            return ids, links, pages
        answer = desk.call("verify", {**request, "offset": answer["nextOffset"], "snapshot": answer["snapshot"]})
        pages += 1


def test_a_response_stays_within_24_kib_and_nextoffset_leads_over_records_and_links(desk: Desk) -> None:
    body = "".join(f"[[gone-{number}-{'x' * 90}]]\n" for number in range(30))
    ids: list[JsonValue] = []
    for number in range(20):
        note(desk, f"n{number:02}", body)
        ids.append(f"n{number:02}")
    targets: list[JsonValue] = [f"{'t' * 100}{number}" for number in range(200)]
    request: JsonObject = {"ids": ids, "expectedLinks": [{"from": "n00", "to": target} for target in targets]}
    found, links, pages = paged(desk, request)
    assert (found, links) == (ids, targets)
    assert pages > 3


def test_a_row_that_would_fill_the_response_alone_shows_fewer_problems_and_says_how_many_more(desk: Desk) -> None:
    note(desk, "n", "".join(f"[x](gone-{number}-{'€' * 70}.md)\n\n" for number in range(30)))
    row = one(desk, "n")
    assert len(problems(row, "links")) == 20
    assert row["links"]["more"] == 10  # type: ignore[index, call-overload]
    citations: list[JsonValue] = [
        {"path": f"artifacts/00000000-0000-4000-8000-000000000384/{number}{'€' * 80}.txt", "sha256": "0" * 64}
        for number in range(40)
    ]
    keys: JsonObject = {"evidence": citations, "fields": {f"{number}{'x' * 200}": 1 for number in range(40)}}
    body = "".join(f"[x](gone-{number}-{'€' * 190}.md)\n\n" for number in range(30))
    note(desk, "long", body, **keys)
    answer = verify(desk, "long")
    assert json_bytes(answer) <= 24 * 1024
    [long] = rows(answer)
    assert 0 < len(problems(long, "links")) < 20
    assert len(problems(long, "links")) + int(str(long["links"]["more"])) == 30  # type: ignore[index, call-overload]


def test_one_call_looks_at_a_bounded_amount_of_text_and_of_evidence(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(4):
        note(desk, f"n{number}", "x" * 1_000 + "\n")
    monkeypatch.setattr(operation, "BODY_UNITS_PER_CALL", 2_500)
    ids: list[JsonValue] = ["n0", "n1", "n2", "n3"]
    assert paged(desk, {"ids": ids}) == (ids, [], 2)
    monkeypatch.setattr(operation, "BODY_UNITS_PER_CALL", 10)
    assert paged(desk, {"ids": ids}) == (ids, [], 4)
    claims: list[JsonValue] = [items_of(desk.remember(f"Fact {number}."))[0]["id"] for number in range(3)]
    monkeypatch.setattr(operation, "BODY_UNITS_PER_CALL", 250_000)
    monkeypatch.setattr(operation, "CITATIONS_PER_CALL", 2)
    assert paged(desk, {"ids": claims}) == (claims, [], 2)


def test_a_text_with_too_many_targets_is_not_called_ok_and_says_how_many_were_left(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(link_targets, "TARGETS_FOLLOWED_MAX", 2)
    note(desk, "a")
    note(desk, "from", "[[a]] [[from]] [[a]] [b](a.md) [c](https://example.org)\n")
    row = one(desk, "from")
    assert (row["state"], row["links"]) == ("problems", {"checked": 3, "unchecked": 2})
    assert link(desk, "from", "a") == ("present", None)


def test_a_link_to_a_file_reads_no_folder(desk: Desk) -> None:
    """A vault may have thousands of files in a folder, and a text thousands of links into it."""
    write_note(desk.folder(), "files/plan.pdf", "bytes")
    note(desk, "from", "[a](../files/plan.pdf) [b](../files/none.pdf) [c](../files)\n")
    desk.partition()
    points: list[str] = []
    with faults.installed(points.append):
        row = one(desk, "from")
    assert [found["target"] for found in problems(row, "links")] == ["files/none.pdf"]
    assert [point for point in points if "list" in point] == []
    assert points.count("linked.stat") == 3


def test_a_symbolic_link_in_the_vault_is_not_followed(desk: Desk, tmp_path: Path) -> None:
    (tmp_path / "secret.txt").write_text("secret", "utf-8")
    write_note(desk.folder(), "files/there.txt", "bytes")
    (desk.folder() / "files" / "out.txt").symlink_to(tmp_path / "secret.txt")
    (desk.folder() / "away").symlink_to(tmp_path)
    note(desk, "from", "[a](../files/out.txt) [b](../away/secret.txt) [c](../files/there.txt)\n")
    assert [found["target"] for found in problems(one(desk, "from"), "links")] == ["files/out.txt", "away/secret.txt"]


def test_a_snapshot_that_changed_is_refused(desk: Desk) -> None:
    note(desk, "a")
    assert isinstance(desk.fails("verify", {"ids": ["a"], "snapshot": "private-99"}), SnapshotChanged)


@pytest.mark.parametrize(
    ("arguments", "field", "error"),
    [
        ({}, "ids", InvalidArgument),
        ({"ids": []}, "ids", InvalidArgument),
        ({"ids": ["a"] * 101}, "ids", LimitExceeded),
        ({"ids": ["a b"]}, "ids[0]", InvalidArgument),
        ({"expectedLinks": []}, "expectedLinks", InvalidArgument),
        ({"expectedLinks": [{"from": "a", "to": "b"}] * 201}, "expectedLinks", LimitExceeded),
        ({"expectedLinks": [{"from": "a"}]}, "expectedLinks[0].to", InvalidArgument),
        ({"expectedLinks": [{"from": "a", "to": "b", "label": "c"}]}, "expectedLinks[0].label", InvalidArgument),
    ],
)
def test_1_to_100_ids_or_expected_links_or_both(
    desk: Desk, arguments: JsonObject, field: str, error: type[Exception]
) -> None:
    failed = desk.fails("verify", arguments)
    assert isinstance(failed, error)
    assert failed.fields["field"] == field


def test_a_file_of_another_scope_is_not_there_for_a_link(desk: Desk) -> None:
    write_note(desk.folder(), "notes/foreign.md", page_file("foreign", "F", partition=GROUP_PARTITION))
    note(desk, "from", "[x](foreign.md) [[foreign]]\n")
    assert [found["state"] for found in problems(one(desk, "from"), "links")] == ["nowhere", "nowhere"]


def test_the_same_source_cited_twice_is_verified_once(desk: Desk) -> None:
    answer = desk.call("remember", remembering("One.", "Two."))
    ids = [item["id"] for item in items_of(answer)]
    assert [row["state"] for row in rows(verify(desk, *ids))] == ["ok", "ok"]
    assert desk.needs == ["evidence"]

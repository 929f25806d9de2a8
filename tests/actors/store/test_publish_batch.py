"""knowledge_publish_batch: all or none, one receipt, refs (decisions.md section 5)."""

from __future__ import annotations

from pathlib import Path

import pytest

from messages.errors import EvidenceInvalid, InvalidArgument, KnowledgeError, LimitExceeded, RequestIdReused, StaleFence
from messages.json_types import JsonObject, JsonValue
from tests.actors.store.statements import PASSAGE, statement, stored
from tests.kit.store import Desk, items_of, request_id


def batch(desk: Desk, *items: JsonObject, **more: JsonValue) -> JsonObject:
    return {**desk.vault(), "items": list(items), **more}


def page(title: str, ref: str | None = None, **more: JsonValue) -> JsonObject:
    given: JsonObject = {"kind": "page", "title": title, "type": "person", "body": "", **more}
    return given if ref is None else {**given, "ref": ref}


def claim(desk: Desk, **more: JsonValue) -> JsonObject:
    return {"kind": "claim", **statement(desk, **more)}


def joined(desk: Desk, source: str, target: str, label: str, **more: JsonValue) -> JsonObject:
    given = claim(desk, **{"from": source, "to": target, "label": label}, **more)
    return {**{k: v for k, v in given.items() if k not in ("body", "claim_kind")}, "kind": "relationship"}


def files_of(desk: Desk) -> set[Path]:
    return {path for path in desk.folder().rglob("*") if path.is_file() and ".git" not in path.parts}


def test_a_batch_is_one_publication_with_one_receipt_in_input_order(desk: Desk) -> None:
    evidence = [desk.retained(PASSAGE)]
    before = desk.call("history")["total"]
    saved = desk.call(
        "publish_batch",
        batch(
            desk,
            {**joined(desk, "$alex", "$acme", "works_at", evidence=evidence), "ref": "joined"},
            claim(desk, entities=["$alex"], owner="$alex", dependencies=["$joined"], evidence=evidence),
            page("Alex", "alex"),
            page("Acme", "acme", type="company"),
        ),
    )
    assert set(saved) == {"items", "ontologyFingerprint"}
    records = [stored(desk, item["id"]) for item in items_of(saved)]
    assert [record.kind for record in records] == ["relationship", "claim", "page", "page"]
    relationship, made, alex, acme = records
    assert (relationship.from_id, relationship.to_id) == (alex.id, acme.id)
    assert relationship.title == "Alex works_at Acme"
    assert (made.entities, made.owner, made.dependencies) == ((alex.id,), alex.id, (relationship.id,))
    rows = desk.call("history")["rows"]
    assert isinstance(rows, list)
    assert desk.call("history")["total"] == (before if isinstance(before, int) else 0) + 4
    assert len({row["sequence"] for row in rows[:4] if isinstance(row, dict)}) == 1


def test_a_ref_is_filled_in_fields_that_name_pages_and_in_wikilinks(desk: Desk) -> None:
    extension = (
        "format: knowledge-ontology-v1\nextends: core\npages:\n"
        "  deal2: {description: A deal, parent: entity, folder: deals2, fields: "
        "{contact: {type: page, of: [person]}, note: {type: string}}}\n"
    )
    (desk.folder() / "ontology.yaml").write_text(extension)
    saved = desk.call(
        "publish_batch",
        batch(
            desk,
            page("Big deal", "deal", type="deal2", body="With [[$alex|Alex]], `[[$alex]]`.",
                 fields={"contact": "$alex", "note": "$alex"}),
            page("Alex", "alex", body="See [[$deal|the deal]]."),
        ),
    )  # fmt: skip
    deal, alex = (stored(desk, item["id"]) for item in items_of(saved))
    assert deal.fields == {"contact": alex.id, "note": "$alex"}
    assert deal.body.strip() == f"With [[{alex.id}|Alex]], `[[$alex]]`."
    assert alex.body.strip() == f"See [[{deal.id}|the deal]]."


def test_a_batch_edits_pages_behind_their_fences(desk: Desk) -> None:
    old = desk.page("Alex", "person", "Before.")
    edit = {**page("Alex", "alex", body="After."), **desk.observed(old["id"])}
    saved = desk.call("publish_batch", batch(desk, edit, claim(desk, entities=["$alex"])))
    assert items_of(saved)[0]["revision"] == 2
    assert stored(desk, old["id"]).body.strip() == "After."
    again = desk.fails("publish_batch", batch(desk, claim(desk), edit))
    assert isinstance(again, StaleFence)
    assert again.fields["field"] == "items[1].id"


@pytest.mark.parametrize(
    ("wrong", "kind", "field"),
    [
        ({"kind": "claim", "body": ""}, LimitExceeded | InvalidArgument, "items[1].body"),
        ({"kind": "claim", "body": "x" * 4_001}, LimitExceeded, "items[1].body"),
        ({"kind": "claim", "evidence": []}, EvidenceInvalid, "items[1].evidence"),
        ({"kind": "claim", "evidence": None}, EvidenceInvalid, "items[1].evidence"),
        ({"kind": "claim", "claim_kind": None}, InvalidArgument, "items[1].claim_kind"),
        ({"kind": "claim", "label": "works_at"}, InvalidArgument, "items[1].label"),
        ({"kind": "claim", "entities": ["nobody"]}, InvalidArgument, "items[1].entities[0]"),
        ({"kind": "claim", "entities": ["$nobody"]}, InvalidArgument, "items[1].entities[0]"),
        ({"kind": "claim", "owner": "$nobody"}, InvalidArgument, "items[1].owner"),
        ({"kind": "claim", "entities": ["$first claim"]}, InvalidArgument, "items[1].entities[0]"),
        ({"kind": "page"}, InvalidArgument, "items[1].title"),
    ],
)
def test_errors_carry_the_item_and_nothing_is_saved(
    desk: Desk, wrong: JsonObject, kind: type[KnowledgeError], field: str
) -> None:
    evidence = [desk.retained(PASSAGE)]
    item = {**claim(desk, evidence=evidence), **wrong}
    given = batch(desk, page("Alex", "alex"), item, claim(desk, evidence=evidence))
    before = files_of(desk)
    error = desk.fails("publish_batch", given)
    assert isinstance(error, kind)
    assert error.fields["field"] == field
    assert files_of(desk) == before


def test_evidence_of_every_item_is_verified_in_one_go(desk: Desk) -> None:
    good, bad = desk.retained(PASSAGE), desk.retained("Something else.")
    desk.needs.clear()
    error = desk.fails(
        "publish_batch",
        batch(desk, claim(desk, evidence=[good]), page("A", attachments=[{**bad, "quote": "never said"}])),
    )
    assert isinstance(error, EvidenceInvalid)
    assert (error.fields["field"], error.fields["reason"]) == ("items[1].attachments[0]", "quote_mismatch")
    assert desk.needs == ["evidence"]


@pytest.mark.parametrize("name", ["ref", "id"])
def test_no_two_items_share_a_ref_or_a_page(desk: Desk, name: str) -> None:
    old = desk.page("Alex", "person")
    same: JsonObject = {"ref": "a"} if name == "ref" else desk.observed(old["id"])
    error = desk.fails("publish_batch", batch(desk, {**page("One"), **same}, {**page("Two"), **same}))
    assert error.fields["field"] == f"items[1].{name}"


def test_a_create_never_quietly_doubles_a_page_in_a_batch_either(desk: Desk) -> None:
    old = desk.page("Alex", "person")
    rejected = desk.call("publish_batch", batch(desk, page("Sam"), page("alex")))
    assert (rejected["state"], rejected["reason"], rejected["item"]) == ("rejected", "same_title", 1)
    existing = rejected["existing"]
    assert isinstance(existing, dict)
    assert existing["id"] == old["id"]
    assert desk.call("lookup", {"query": "Sam"})["state"] == "missing"
    error = desk.fails("publish_batch", batch(desk, page("Sam"), page("Lex", aliases=["sam"]), page("SAM")))
    assert (error.fields["field"], error.fields["reason"]) == ("items[2].title", "same_title")
    saved = desk.call("publish_batch", batch(desk, page("Sam"), page("SAM", allowSameTitle=True)))
    assert len(items_of(saved)) == 2


def test_an_edit_of_the_batch_that_takes_the_title_of_a_create_is_refused(desk: Desk) -> None:
    old = desk.page("Alex", "person")
    renamed = {**page("Sam"), **desk.observed(old["id"])}
    for items in ((page("sam"), renamed), (renamed, page("sam"))):
        error = desk.fails("publish_batch", batch(desk, *items))
        at = next(index for index, item in enumerate(items) if item["title"] == "sam")
        assert (error.fields["field"], error.fields["reason"]) == (f"items[{at}].title", "same_title")
    rejected = desk.call("publish_batch", batch(desk, {**renamed, "title": "Alex"}, page("alex")))
    assert (rejected["state"], rejected["reason"]) == ("rejected", "same_title")
    desk.call("publish_batch", batch(desk, renamed, page("sam", allowSameTitle=True)))


@pytest.mark.parametrize(
    ("item", "field"),
    [
        ({"body": "Ask [[$nobody]]."}, "body"),
        ({"type": "project", "fields": {"lead": "$nobody"}}, "fields.lead"),
        ({"dependencies": ["$alex", "$nobody"]}, "dependencies[1]"),
    ],
)
def test_a_ref_that_no_item_has_is_named_with_its_place(desk: Desk, item: JsonObject, field: str) -> None:
    error = desk.fails("publish_batch", batch(desk, page("Alex", "alex"), {**page("Plan"), **item}))
    assert (error.fields["field"], error.fields["reason"]) == (f"items[1].{field}", "unknown_ref")


def test_an_item_that_depends_on_itself_is_refused_with_its_place(desk: Desk) -> None:
    error = desk.fails("publish_batch", batch(desk, page("Alex"), {**page("Plan", "plan"), "dependencies": ["$plan"]}))
    assert (error.fields["field"], error.fields["reason"]) == ("items[1].dependencies[0]", "itself")
    assert desk.call("records")["total"] == 0


def test_page_items_are_held_to_their_budgets_and_none_is_saved(desk: Desk) -> None:
    rejected = desk.call(
        "publish_batch", batch(desk, page("Small"), page("One", body="x" * 24_001), page("Two", body="x" * 25_000))
    )
    assert (rejected["state"], rejected["reason"]) == ("rejected", "budget")
    budget = rejected["budget"]
    assert isinstance(budget, dict)
    pages = budget["pages"]
    assert isinstance(pages, list)
    assert [one["title"] for one in pages if isinstance(one, dict)] == ["One", "Two"]
    assert desk.call("records")["total"] == 0


def test_a_batch_takes_1_to_50_items(desk: Desk) -> None:
    assert isinstance(desk.fails("publish_batch", batch(desk)), InvalidArgument)
    pages = [page(f"Person {number}") for number in range(51)]
    assert isinstance(desk.fails("publish_batch", batch(desk, *pages)), LimitExceeded)
    assert len(items_of(desk.call("publish_batch", batch(desk, *pages[:50])))) == 50


def test_a_repeated_batch_gives_the_same_receipt_and_another_payload_is_refused(desk: Desk) -> None:
    given = batch(desk, page("Alex", "alex"), claim(desk, entities=["$alex"]), requestId=request_id(600))
    saved = desk.call("publish_batch", given)
    assert desk.call("publish_batch", given) == saved
    items = given["items"]
    assert isinstance(items, list)
    assert isinstance(desk.fails("publish_batch", {**given, "items": items[:1]}), RequestIdReused)

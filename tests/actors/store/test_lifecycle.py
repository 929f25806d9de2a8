"""Correcting and withdrawing, merging and unmerging (decisions.md section 5, Knowledge corrections and merges)."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import pairwise

import pytest

from messages.errors import EvidenceInvalid, InvalidArgument, LimitExceeded, StaleFence
from messages.json_types import JsonObject, JsonValue
from storage.records import EvidenceCitation
from tests.actors.store.statements import PASSAGE, claim, fenced, relationship, statement, stored
from tests.kit.store import Desk, items_of, page_file, request_id, write_note


def correction(desk: Desk, record_id: JsonValue, **replacement: JsonValue) -> JsonObject:
    return fenced(desk, record_id, replacement={"kind": "claim", **statement(desk, **replacement)})


def withdrawal(desk: Desk, record_id: JsonValue, **more: JsonValue) -> JsonObject:
    given = fenced(desk, record_id, **more)
    del given["expectedOntologyFingerprint"]
    return given


def merging(desk: Desk, source: JsonValue, destination: JsonValue, **more: JsonValue) -> JsonObject:
    return {
        **desk.vault(),
        "source": desk.observed(source),
        "destination": desk.observed(destination),
        "reason": "the same person",
        **more,
    }


def impact(receipt: JsonObject) -> Mapping[str, JsonValue]:
    found = receipt.get("impact", {"records": [], "total": 0, "mentions": []})
    assert isinstance(found, dict)
    return found


def affected(receipt: JsonObject) -> set[tuple[JsonValue, JsonValue]]:
    records = impact(receipt)["records"]
    assert isinstance(records, list)
    return {(record["id"], record["why"]) for record in records if isinstance(record, dict)}


# --- correct ------------------------------------------------------------------------------------------------------


def test_a_correction_supersedes_the_original_and_keeps_its_content_and_evidence(desk: Desk) -> None:
    original = desk.call("create_claim", claim(desk))
    before = stored(desk, original["id"])
    done = desk.call("correct", correction(desk, original["id"], body="Alex delivers on Monday."))
    assert done["revision"] == 1
    old, new = stored(desk, original["id"]), stored(desk, done["id"])
    assert (old.lifecycle, old.superseded_by, old.revision) == ("superseded", new.id, 2)
    assert (old.body, old.evidence, old.title) == (before.body, before.evidence, before.title)
    assert old.lifecycle_change is not None
    assert (old.lifecycle_change.reason, old.lifecycle_change.actor) == ("a test", "main")
    assert old.lifecycle_change.request_id == request_id(_last(desk))
    assert (new.lifecycle, new.supersedes, new.body.strip()) == ("active", old.id, "Alex delivers on Monday.")


def _last(desk: Desk) -> int:
    return desk._requests


def test_original_and_replacement_land_in_one_journal_entry_with_one_receipt(desk: Desk) -> None:
    original = desk.call("create_claim", claim(desk))
    done = desk.call("correct", correction(desk, original["id"], body="Alex delivers on Monday."))
    items = done["items"]
    assert isinstance(items, list)
    assert [item["id"] for item in items if isinstance(item, dict)] == [original["id"], done["id"]]
    found = desk.call("mutation", {"requestId": request_id(_last(desk))})
    files = found["files"]
    assert isinstance(files, list)
    assert len(files) == 2


def test_a_relationship_is_corrected_by_a_relationship(desk: Desk) -> None:
    alex, acme, other = desk.page("Alex", "person"), desk.page("Acme", "company"), desk.page("Best", "company")
    original = desk.call("create_relationship", relationship(desk, alex["id"], acme["id"], "works_at"))
    given = relationship(desk, alex["id"], other["id"], "works_at")
    replacement = {k: v for k, v in given.items() if not k.startswith("expected")}
    done = desk.call("correct", fenced(desk, original["id"], replacement={"kind": "relationship", **replacement}))
    assert desk.record(done["id"])["to"] == other["id"]
    assert stored(desk, original["id"]).superseded_by == done["id"]


def test_the_replacement_must_be_of_the_same_kind_as_the_target(desk: Desk) -> None:
    alex, acme = desk.page("Alex", "person"), desk.page("Acme", "company")
    original = desk.call("create_relationship", relationship(desk, alex["id"], acme["id"], "works_at"))
    error = desk.fails("correct", correction(desk, original["id"]))
    assert (error.fields["field"], error.fields["allowed"]) == ("replacement.kind", "relationship")


def test_pages_are_never_corrected_this_way(desk: Desk) -> None:
    error = desk.fails("correct", correction(desk, desk.page("Plan")["id"]))
    assert isinstance(error, InvalidArgument)
    assert "knowledge_save_page" in error.message


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"body": None}, "replacement.body"),
        ({"claim_kind": None}, "replacement.claim_kind"),
        ({"label": "works_at"}, "replacement.label"),
        ({"entities": ["nobody"]}, "replacement.entities[0]"),
    ],
)
def test_the_replacement_is_validated_as_a_create(desk: Desk, change: JsonObject, field: str) -> None:
    original = desk.call("create_claim", claim(desk))
    error = desk.fails("correct", correction(desk, original["id"], **change))
    assert isinstance(error, InvalidArgument)
    assert error.fields["field"] == field
    assert stored(desk, original["id"]).lifecycle == "active"


def test_the_replacement_needs_evidence_of_its_own_that_holds(desk: Desk) -> None:
    original = desk.call("create_claim", claim(desk))
    for evidence in ([], [desk.retained(PASSAGE, quote="never said")]):
        error = desk.fails("correct", correction(desk, original["id"], evidence=evidence))
        assert isinstance(error, EvidenceInvalid)
        assert str(error.fields["field"]).startswith("replacement.evidence")


def test_an_expired_claim_can_be_corrected_and_a_withdrawn_or_superseded_one_not(desk: Desk) -> None:
    expired = desk.call("create_claim", claim(desk, expires_at="2020"))
    done = desk.call("correct", correction(desk, expired["id"], body="It was moved."))
    assert isinstance(desk.fails("correct", correction(desk, expired["id"])), InvalidArgument)
    desk.call("withdraw", withdrawal(desk, done["id"]))
    error = desk.fails("correct", correction(desk, done["id"]))
    assert error.fields["reason"] == "not_active"


def test_the_replacement_may_not_depend_on_the_original_nor_on_any_dependent_of_it(desk: Desk) -> None:
    original = desk.call("create_claim", claim(desk))
    near = desk.call("create_claim", claim(desk, body="Near.", dependencies=[original["id"]]))
    far = desk.call("create_claim", claim(desk, body="Far.", dependencies=[near["id"]]))
    for dependency in (original, near, far):
        error = desk.fails("correct", correction(desk, original["id"], dependencies=[dependency["id"]]))
        assert error.fields["reason"] == "depends_on_original"
    free = desk.call("create_claim", claim(desk, body="Free."))
    assert desk.call("correct", correction(desk, original["id"], dependencies=[free["id"]]))["revision"] == 1


def test_dependencies_that_run_in_a_circle_by_hand_end_the_search(desk: Desk) -> None:
    write_note(desk.folder(), "notes/a.md", page_file("a", "A", dependencies=["b"]))
    write_note(desk.folder(), "notes/b.md", page_file("b", "B", dependencies=["a"]))
    original = desk.call("create_claim", claim(desk))
    assert desk.call("correct", correction(desk, original["id"], body="Now.", dependencies=["a"]))["revision"] == 1


def test_new_evidence_never_supersedes_anything_by_itself(desk: Desk) -> None:
    original = desk.call("create_claim", claim(desk))
    desk.call("create_claim", claim(desk, body="Alex delivers on Monday after all."))
    assert stored(desk, original["id"]).lifecycle == "active"


def test_old_wording_found_in_page_prose_is_reported_as_a_mention_and_never_rewritten(desk: Desk) -> None:
    text = "Alex committed to delivering the release on Friday."
    page = desk.page("Minutes", "meeting", f"# Friday\n\nWe heard that alex committed to delivering\n{text[29:]}\n")
    desk.page("Other", "meeting", "Alex committed to delivering the other thing.\n")
    original = desk.call("create_claim", claim(desk, body=text))
    done = desk.call("correct", correction(desk, original["id"], body="Alex delivers on Monday."))
    assert impact(done)["mentions"] == [page["id"]]
    assert stored(desk, page["id"]).revision == 1
    assert "index" in desk.needs


def test_a_correction_goes_on_without_an_index_and_says_that_mentions_are_unknown(desk: Desk) -> None:
    original = desk.call("create_claim", claim(desk))
    desk.index_problem = "the index is being rebuilt"
    done = desk.call("correct", correction(desk, original["id"], body="Alex delivers on Monday."))
    assert impact(done)["mentions"] is None


def test_long_and_unspaced_wording_is_searched_as_well(desk: Desk) -> None:
    for text in ("東京の会議は金曜日です。" * 30, "long words again and again " * 100):
        page = desk.page(f"Minutes {len(text)}", "meeting", f"Before. {text.strip()} After.\n")
        original = desk.call("create_claim", claim(desk, body=text))
        done = desk.call("correct", correction(desk, original["id"], body=f"Something else {len(text)}."))
        assert impact(done)["mentions"] == [page["id"]]


def test_a_correction_is_fenced(desk: Desk) -> None:
    original = desk.call("create_claim", claim(desk))
    given = correction(desk, original["id"])
    assert isinstance(desk.fails("correct", {**given, "expectedRevision": 9}), StaleFence)
    assert isinstance(desk.fails("correct", {**given, "expectedHash": "0" * 64}), StaleFence)
    error = desk.fails("correct", {k: v for k, v in given.items() if k != "expectedOntologyFingerprint"})
    assert error.fields["field"] == "expectedOntologyFingerprint"
    blank = desk.fails("correct", {**given, "reason": "  "})
    assert (blank.fields["field"], blank.fields["reason"]) == ("reason", "blank")


def test_a_repeated_correction_gives_the_same_receipt(desk: Desk) -> None:
    original = desk.call("create_claim", claim(desk))
    given = {**correction(desk, original["id"], body="Now."), "requestId": request_id(800)}
    assert desk.call("correct", given) == desk.call("correct", given)
    assert desk.call("records", {"kind": "claim", "match": "Now"})["total"] == 1


# --- withdraw -----------------------------------------------------------------------------------------------------


def test_a_withdrawn_record_keeps_its_text_and_leaves_every_current_read(desk: Desk) -> None:
    saved = desk.call("create_claim", claim(desk))
    done = desk.call("withdraw", withdrawal(desk, saved["id"]))
    assert (done["id"], done["revision"]) == (saved["id"], 2)
    record = stored(desk, saved["id"])
    assert record.lifecycle == "withdrawn"
    assert record.text == "Alex committed to delivering the release on Friday."
    assert record.lifecycle_change is not None
    assert record.lifecycle_change.reason == "a test"
    assert desk.call("grep", {"query": "delivering release", "lifecycle": "all"})["total"] == 0
    assert desk.record(saved["id"])["lifecycle"] == "withdrawn"


def test_withdraw_does_not_cascade_and_lists_dependents_claims_relationships_and_mentions(desk: Desk) -> None:
    alex, acme = desk.page("Alexander Ito", "person"), desk.page("Acme", "company")
    depends = desk.page("Plan", dependencies=[alex["id"]])
    mention = desk.page("Minutes", "meeting", "Then Alexander Ito spoke.\n")
    link = desk.page("Seating", "meeting", f"At the head: [[{alex['id']}|him]].\n")
    about = desk.call("create_claim", claim(desk, entities=[alex["id"]]))
    owned = desk.call("create_claim", claim(desk, body="Owned.", owner=alex["id"]))
    joined = desk.call("create_relationship", relationship(desk, alex["id"], acme["id"], "works_at"))
    gone = desk.call("create_claim", claim(desk, body="Gone.", entities=[alex["id"]]))
    desk.call("withdraw", withdrawal(desk, gone["id"]))
    done = desk.call("withdraw", withdrawal(desk, alex["id"]))
    assert affected(done) == {
        (depends["id"], "dependency"),
        (about["id"], "entity"),
        (owned["id"], "owner"),
        (joined["id"], "relationship"),
        (mention["id"], "mention"),
        (link["id"], "link"),
    }
    assert impact(done)["total"] == 6
    for other in (depends, mention, link, about, owned, joined):
        assert stored(desk, other["id"]).lifecycle == "active"


def test_a_page_that_links_to_a_claim_is_affected_by_its_correction(desk: Desk) -> None:
    original = desk.call("create_claim", claim(desk))
    link = desk.page("Minutes", "meeting", f"As in [[{original['id']}|the claim]].\n")
    done = desk.call("correct", correction(desk, original["id"], body="Alex delivers on Monday."))
    assert affected(done) == {(link["id"], "link")}


def test_what_names_a_page_that_was_merged_into_a_withdrawn_one_is_affected(desk: Desk) -> None:
    first, middle, last, acme = (desk.page(title, "person")["id"] for title in ("Lex", "Alex Ito", "Alexander", "Sam"))
    about = desk.call("create_claim", claim(desk, entities=[first]))
    joined = desk.call("create_relationship", relationship(desk, first, acme, "related_to"))
    resting = desk.page("Plan", dependencies=[middle])
    desk.call("merge", merging(desk, first, middle))
    desk.call("merge", merging(desk, middle, last))
    impact = desk.call("withdraw", withdrawal(desk, last))["impact"]
    assert isinstance(impact, dict)
    named = {record["id"]: record["why"] for record in impact["records"]}
    assert named == {about["id"]: "entity", joined["id"]: "relationship", resting["id"]: "dependency"}


def test_a_field_that_names_the_page_is_affected_whenever_the_ontology_makes_it_one(desk: Desk) -> None:
    alex = desk.page("Alexander Ito", "person")
    fields: JsonObject = {"contact": alex["id"], "seen_by": [alex["id"]]}
    write_note(desk.folder(), "notes/d.md", page_file("d1", "Big deal", type="bargain", fields=fields))
    assert desk.call("records")["total"] == 1, "the type is unknown, so the page is invalid"
    write_note(
        desk.folder(),
        "ontology.yaml",
        "format: knowledge-ontology-v1\nextends: core\npages:\n  bargain:\n    description: A deal\n"
        "    parent: entity\n    folder: bargains\n    fields:\n      contact: {type: page, of: [person]}\n"
        "      seen_by: {type: list, of: {type: page}}\n",
    )
    assert desk.call("records")["total"] == 2
    done = desk.call("withdraw", withdrawal(desk, alex["id"]))
    assert affected(done) == {("d1", "field")}


def test_impact_lists_at_most_a_hundred_records_and_counts_all(desk: Desk) -> None:
    page = desk.page("Hub")
    for number in range(105):
        text = page_file(f"n{number}", f"N {number}", dependencies=[page["id"]])
        write_note(desk.folder(), f"notes/{number}.md", text)
    done = desk.call("withdraw", withdrawal(desk, page["id"]))
    records = impact(done)["records"]
    assert isinstance(records, list)
    assert (len(records), impact(done)["total"]) == (100, 105)


def test_nothing_is_withdrawn_twice_and_there_is_no_undo(desk: Desk) -> None:
    page = desk.page("Plan")
    desk.call("withdraw", withdrawal(desk, page["id"]))
    assert desk.fails("withdraw", withdrawal(desk, page["id"])).fields["reason"] == "not_active"
    assert desk.fails("unmerge", withdrawal(desk, page["id"])).fields["reason"] == "not_merged"


# --- merge and unmerge --------------------------------------------------------------------------------------------


def two_people(desk: Desk) -> tuple[JsonObject, JsonObject]:
    source = desk.call(
        "save_page",
        {
            "title": "Alex Ito",
            "type": "person",
            "body": "From the chat.\n",
            "aliases": ["Lex", "alexander  ito"],
            "tags": ["garden", "chat"],
            "attachments": [desk.retained("Alex Ito wrote this.")],
        },
    )
    destination = desk.call(
        "save_page",
        {
            "title": "Alexander Ito",
            "type": "person",
            "body": "From the minutes.\n",
            "tags": ["garden"],
            "allowSameTitle": True,
        },
    )
    return source, destination


def test_a_merge_makes_the_source_a_redirect_and_gives_the_destination_what_it_lacks(desk: Desk) -> None:
    source, destination = two_people(desk)
    about = desk.call("create_claim", claim(desk, entities=[source["id"]]))
    done = desk.call("merge", merging(desk, source["id"], destination["id"]))
    assert (done["id"], done["revision"]) == (destination["id"], 2)
    old, new = stored(desk, source["id"]), stored(desk, destination["id"])
    assert (old.lifecycle, old.merged_into) == ("merged", destination["id"])
    assert old.lifecycle_change is not None
    assert (new.title, new.aliases, new.tags) == ("Alexander Ito", ("Alex Ito", "Lex"), ("garden", "chat"))
    assert new.evidence == old.evidence
    assert new.body == "From the minutes.\n"
    assert stored(desk, about["id"]).entities == (source["id"],), "claims keep naming the source"
    shown = desk.record(about["id"])["pages"]
    assert isinstance(shown, list)
    assert [page["id"] for page in shown if isinstance(page, dict)] == [destination["id"]]
    [hit] = _hits(desk.call("lookup", {"query": "alex ito"}))
    assert hit["id"] == destination["id"]


def _hits(answer: JsonObject) -> list[Mapping[str, JsonValue]]:
    hits = answer["hits"]
    assert isinstance(hits, list)
    return [hit for hit in hits if isinstance(hit, dict)]


def test_a_merge_gives_only_fields_that_the_destination_lacks(desk: Desk) -> None:
    source = desk.page("Shed", fields={"status": "paused"})
    destination = desk.page("The shed", fields={"status": "active"})
    other = desk.page("A shed")
    desk.call("merge", merging(desk, source["id"], destination["id"]))
    assert stored(desk, destination["id"]).fields == {"status": "active"}
    desk.call("merge", merging(desk, destination["id"], other["id"]))
    assert stored(desk, other["id"]).fields == {"status": "active"}


def test_a_merge_can_combine_the_bodies(desk: Desk) -> None:
    source, destination = two_people(desk)
    desk.call("merge", merging(desk, source["id"], destination["id"], body="Both texts."))
    assert stored(desk, destination["id"]).body == "Both texts.\n"


def test_a_combined_body_is_held_to_the_page_budget_and_an_unmerge_never_is(desk: Desk) -> None:
    source, destination = two_people(desk)
    rejected = desk.call("merge", merging(desk, source["id"], destination["id"], body="x" * 24_001))
    assert (rejected["state"], rejected["reason"], rejected["id"]) == ("rejected", "budget", destination["id"])
    assert stored(desk, source["id"]).lifecycle == "active"
    path = desk.path_of(str(destination["id"]))
    path.write_text(path.read_text().replace("From the minutes.", "y" * 30_000))
    desk.call("merge", merging(desk, source["id"], destination["id"], body="Short."))
    desk.call("unmerge", withdrawal(desk, source["id"]))
    assert len(stored(desk, destination["id"]).body) == 30_001


def test_types_must_be_equal_or_one_an_ancestor_of_the_other(desk: Desk) -> None:
    write_note(
        desk.folder(),
        "ontology.yaml",
        "format: knowledge-ontology-v1\nextends: core\npages:\n"
        "  bakery: {description: A bakery, parent: company, folder: bakeries, fields: {ovens: {type: integer}}}\n",
    )
    person, firm = desk.page("Crumbs", "person"), desk.page("Crumbs", "company")
    bakery = desk.page("Crumbs Ltd", "bakery", fields={"ovens": 2})
    error = desk.fails("merge", merging(desk, person["id"], firm["id"]))
    assert error.fields["reason"] == "types_differ"
    desk.call("merge", merging(desk, bakery["id"], firm["id"]))
    assert stored(desk, firm["id"]).fields == {}, "a field that the destination's type does not know stays behind"
    assert desk.record(firm["id"]).get("issues") is None


def test_a_page_is_not_merged_into_itself_and_chains_never_run_in_a_circle(desk: Desk) -> None:
    source, destination = two_people(desk)
    error = desk.fails("merge", merging(desk, source["id"], source["id"]))
    assert error.fields["field"] == "destination.id"
    desk.call("merge", merging(desk, source["id"], destination["id"]))
    back = desk.fails("merge", merging(desk, destination["id"], source["id"]))
    assert (back.fields["field"], back.fields["reason"]) == ("destination.id", "not_active")


def test_redirects_are_followed_over_at_most_sixteen_merges(desk: Desk) -> None:
    pages = [desk.page(f"Name {number}", "person")["id"] for number in range(18)]
    for source, destination in pairwise(pages[:17]):
        desk.call("merge", merging(desk, source, destination))
    assert desk.call("lookup", {"query": "Name 0"})["state"] == "found"
    assert desk.call("lookup", {"query": str(pages[0])})["state"] == "found"
    error = desk.fails("merge", merging(desk, pages[16], pages[17]))
    assert isinstance(error, LimitExceeded)
    assert desk.call("merge", merging(desk, pages[17], pages[16]))["revision"] == 3


def test_only_pages_are_merged(desk: Desk) -> None:
    saved, page = desk.call("create_claim", claim(desk)), desk.page("Plan")
    error = desk.fails("merge", merging(desk, saved["id"], page["id"]))
    assert (error.fields["field"], error.fields["reason"]) == ("source.id", "wrong_kind")


def test_both_pages_of_a_merge_are_fenced(desk: Desk) -> None:
    source, destination = two_people(desk)
    given = merging(desk, source["id"], destination["id"])
    for name in ("source", "destination"):
        fence = given[name]
        assert isinstance(fence, dict)
        error = desk.fails("merge", {**given, name: {**fence, "expectedRevision": 7}})
        assert isinstance(error, StaleFence)
        assert error.fields["field"] == f"{name}.id"


def test_an_unmerge_gives_back_exactly_what_the_merge_took(desk: Desk) -> None:
    source, destination = two_people(desk)
    before = stored(desk, source["id"]), stored(desk, destination["id"])
    desk.call("merge", merging(desk, source["id"], destination["id"], body="Both."))
    done = desk.call("unmerge", withdrawal(desk, source["id"]))
    assert done["id"] == source["id"]
    assert "kept" not in done
    for old, now in zip(before, (stored(desk, source["id"]), stored(desk, destination["id"])), strict=True):
        assert now.lifecycle == "active"
        for part in ("title", "aliases", "tags", "evidence", "fields", "body", "merged_into", "lifecycle_change"):
            assert getattr(now, part) == getattr(old, part), part
    assert desk.call("lookup", {"query": "Alex Ito"})["state"] == "found"


def test_an_unmerge_keeps_what_was_edited_since_and_says_so(desk: Desk) -> None:
    source, destination = desk.page("Shed", fields={"status": "paused"}), desk.page("The shed")
    desk.call("merge", merging(desk, source["id"], destination["id"], body="Both."))
    observed = desk.observed(destination["id"])
    desk.call(
        "save_page",
        {
            **observed,
            "title": "The shed",
            "type": "project",
            "body": "Both, and more.",
            "fields": {"status": "completed"},
            "aliases": ["Shed", "Hut"],
        },
    )
    done = desk.call("unmerge", withdrawal(desk, source["id"]))
    assert done["kept"] == [
        {"what": "fields.status", "why": "edited_since"},
        {"what": "body", "why": "edited_since"},
    ]
    now = stored(desk, destination["id"])
    assert (now.aliases, now.fields, now.body) == (("Hut",), {"status": "completed"}, "Both, and more.\n")


def test_an_unmerge_works_when_the_destination_is_gone_or_history_does_not_know_the_merge(desk: Desk) -> None:
    source, destination = two_people(desk)
    desk.call("merge", merging(desk, source["id"], destination["id"]))
    desk.call("withdraw", withdrawal(desk, destination["id"]))
    done = desk.call("unmerge", withdrawal(desk, source["id"]))
    assert done["kept"] == [{"what": "everything", "why": "destination_not_active"}]
    kept = desk.page("Sam", "person")
    write_note(desk.folder(), "people/s.md", page_file("sammy", "Sammy", type="person", lifecycle="merged",
                                                       merged_into=kept["id"]))  # fmt: skip
    done = desk.call("unmerge", withdrawal(desk, "sammy"))
    assert done["kept"] == [{"what": "everything", "why": "history_missing"}]
    assert stored(desk, "sammy").lifecycle == "active"


def test_an_unmerge_takes_the_gifts_back_along_the_whole_chain_of_merges(desk: Desk) -> None:
    first = desk.page("Lex", "person", tags=["chat"], attachments=[desk.retained("Lex wrote this.")])
    middle, last = desk.page("Alex Ito", "person"), desk.page("Alexander Ito", "person", aliases=["Alexander"])
    desk.call("merge", merging(desk, first["id"], middle["id"], body="Both.\n"))
    desk.call("merge", merging(desk, middle["id"], last["id"]))
    done = desk.call("unmerge", withdrawal(desk, first["id"]))
    assert [item["id"] for item in items_of(done)] == [first["id"], middle["id"], last["id"]]
    assert "kept" not in done
    between, end = stored(desk, middle["id"]), stored(desk, last["id"])
    assert (between.lifecycle, between.merged_into, between.aliases) == ("merged", last["id"], ())
    assert (between.body, end.body) == ("About it.\n", "About it.\n")
    assert (end.aliases, end.tags, end.evidence) == (("Alexander", "Alex Ito"), (), ())
    [hit] = _hits(desk.call("lookup", {"query": "Lex"}))
    assert hit["id"] == first["id"], "its name means one page again"
    desk.call("unmerge", withdrawal(desk, middle["id"]))
    assert stored(desk, last["id"]).aliases == ("Alexander",)
    assert stored(desk, middle["id"]).lifecycle == "active"


def test_an_unmerge_in_the_middle_of_a_chain_keeps_what_was_merged_before_it(desk: Desk) -> None:
    first, middle, last = (desk.page(title, "person")["id"] for title in ("Lex", "Alex Ito", "Alexander Ito"))
    desk.call("merge", merging(desk, first, middle))
    desk.call("merge", merging(desk, middle, last))
    desk.call("unmerge", withdrawal(desk, middle))
    assert stored(desk, last).aliases == ()
    assert stored(desk, middle).aliases == ("Lex",)
    [hit] = _hits(desk.call("lookup", {"query": "Lex"}))
    assert hit["id"] == middle


def test_the_body_of_a_later_merge_stays_and_an_unmerge_says_so(desk: Desk) -> None:
    first, middle, last = (desk.page(title, "person")["id"] for title in ("Lex", "Alex Ito", "Alexander Ito"))
    desk.call("merge", merging(desk, first, middle, body="Two.\n"))
    desk.call("merge", merging(desk, middle, last, body="Three.\n"))
    done = desk.call("unmerge", withdrawal(desk, first))
    assert done["kept"] == [{"what": "body", "why": "edited_since"}]
    assert stored(desk, last).body == "Three.\n"


def test_an_unmerge_never_rewrites_a_destination_of_a_newer_format(desk: Desk) -> None:
    source, destination = two_people(desk)
    desk.call("merge", merging(desk, source["id"], destination["id"]))
    path = desk.path_of(str(destination["id"]))
    path.write_text(path.read_text().replace("knowledge-record-v1", "knowledge-record-v2"))
    newer = path.read_bytes()
    done = desk.call("unmerge", withdrawal(desk, source["id"]))
    assert done["kept"] == [{"what": "everything", "why": "newer_format"}]
    assert stored(desk, source["id"]).lifecycle == "active"
    assert path.read_bytes() == newer


def test_a_file_that_names_the_merge_of_another_page_takes_nothing_back(desk: Desk) -> None:
    ours, theirs = desk.page("Lex", "person", tags=["chat"])["id"], desk.page("Sandy", "person", tags=["work"])["id"]
    destination = desk.page("Alexander Ito", "person")["id"]
    for source in (ours, theirs):
        desk.call("merge", merging(desk, source, destination))
    changes = [stored(desk, source).lifecycle_change for source in (ours, theirs)]
    assert changes[0] is not None
    assert changes[1] is not None
    path = desk.path_of(str(theirs))
    path.write_text(path.read_text().replace(changes[1].request_id, changes[0].request_id))
    done = desk.call("unmerge", withdrawal(desk, theirs))
    assert done["kept"] == [{"what": "everything", "why": "history_missing"}]
    assert stored(desk, destination).tags == ("chat", "work")


def test_a_recall_approval_is_not_inherited_by_a_replacement_or_a_destination(desk: Desk) -> None:
    approval = '{"summary": "Say it.", "approved_by": "x", "approved_at": "2026-01-01T00:00:00Z"}'
    source, destination = two_people(desk)
    path = desk.path_of(str(source["id"]))
    path.write_text(path.read_text().replace("lifecycle:", f"recall: {approval}\nlifecycle:", 1))
    assert stored(desk, source["id"]).recall is not None
    desk.call("merge", merging(desk, source["id"], destination["id"]))
    assert stored(desk, destination["id"]).recall is None


def test_pages_with_thousands_of_citations_are_merged_without_comparing_each_with_each(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    def cited(numbers: range) -> list[JsonValue]:
        return [{"path": f"artifacts/{request_id(900)}/{n}.txt", "sha256": f"{n:064x}"} for n in numbers]

    write_note(desk.folder(), "people/a.md", page_file("a", "A", type="person", evidence=cited(range(1_000))))
    write_note(desk.folder(), "people/b.md", page_file("b", "B", type="person", evidence=cited(range(500, 1_500))))
    compared: list[object] = []
    usual = EvidenceCitation.__eq__

    def counted(self: EvidenceCitation, other: object) -> bool:
        compared.append(other)
        return usual(self, other)

    monkeypatch.setattr(EvidenceCitation, "__eq__", counted)
    desk.call("merge", merging(desk, "a", "b"))
    assert len(stored(desk, "b").evidence) == 1_500
    assert len(compared) < 10_000
    desk.call("unmerge", withdrawal(desk, "a"))
    assert len(stored(desk, "b").evidence) == 1_000
    assert len(compared) < 20_000

"""Creating claims and relationships, and annotating records (tools.md, Claims and relationships)."""

from __future__ import annotations

from pathlib import Path

import pytest

from messages.errors import (
    EvidenceInvalid,
    InvalidArgument,
    KnowledgeError,
    NotFound,
    OntologyChanged,
    RequestIdReused,
    ShortHash,
    StaleFence,
    VaultMismatch,
)
from messages.json_types import JsonObject, JsonValue
from messages.vocabulary import ASSERTION_ORIGINS, CLAIM_KINDS
from tests.actors.store.statements import PASSAGE, claim, fenced, relationship
from tests.kit.store import GROUP_PARTITION, Desk, page_file, request_id, write_note


def files_of(desk: Desk) -> set[Path]:
    return {path for path in desk.folder().rglob("*") if path.is_file() and ".git" not in path.parts}


# --- claims -------------------------------------------------------------------------------------------------------


def test_evidence_that_a_statement_names_twice_is_kept_once(desk: Desk) -> None:
    evidence = desk.retained(PASSAGE, start_line=1)
    saved = desk.call("create_claim", claim(desk, evidence=[evidence, evidence]))
    more = desk.retained("More.")
    desk.call("annotate", fenced(desk, saved["id"], evidence=[more, evidence, more]))
    kept = desk.record(saved["id"], includeEvidence=True)["evidence"]
    assert isinstance(kept, list)
    assert len(kept) == 2


def test_the_title_that_a_statement_is_given_is_one_line(desk: Desk) -> None:
    write_note(desk.folder(), "people/hand.md", page_file("hand", "Two\nlines\x07", type="person"))
    other = desk.page("Sam", "person")["id"]
    joined = desk.call("create_relationship", relationship(desk, "hand", other, "related_to"))
    assert desk.record(joined["id"])["title"] == "Two lines related_to Sam"


def test_a_claim_is_stored_with_everything_that_was_said_of_it(desk: Desk) -> None:
    project, person = desk.page("Garden Pilot"), desk.page("Alex", "person")
    evidence = desk.retained(PASSAGE, start_line=1, end_line=1, quote="deliver the release on Friday")
    saved = desk.call(
        "create_claim",
        claim(
            desk,
            title="Release commitment",
            entities=[project["id"]],
            owner=person["id"],
            due_at="2026-09-25",
            occurred_at="2026-09-21",
            source_page=project["id"],
            subject_hint="the release",
            dependencies=[project["id"]],
            evidence=[evidence],
        ),
    )
    assert set(saved) == {"id", "revision", "hash", "ontologyFingerprint"}
    assert saved["revision"] == 1
    record = desk.record(saved["id"], includeEvidence=True)
    assert record["text"] == "Alex committed to delivering the release on Friday."
    assert record["claimKind"] == "commitment"
    entry = desk.partition().catalogue.one(str(saved["id"]))
    assert entry is not None
    stored = desk.partition().load(entry)
    assert (stored.title, stored.owner, stored.source_page) == ("Release commitment", person["id"], project["id"])
    assert stored.entities == stored.dependencies == (project["id"],)
    assert (stored.subject_hint, stored.attribution) == ("the release", "Alex, meeting transcript line 1")
    assert stored.due_at is not None
    assert stored.due_at.text == "2026-09-25"
    [citation] = stored.evidence
    assert (citation.start_line, citation.quote) == (1, "deliver the release on Friday")


def test_a_claim_without_a_title_is_called_by_its_first_sentence(desk: Desk) -> None:
    saved = desk.call("create_claim", claim(desk, body="Beds are dug. They are deep."))
    assert "title: \"Beds are dug.\"" in desk.path_of(str(saved["id"])).read_text()


@pytest.mark.parametrize("kind", CLAIM_KINDS)
@pytest.mark.parametrize("origin", ASSERTION_ORIGINS)
def test_every_kind_and_origin_of_claim_is_accepted(desk: Desk, kind: str, origin: str) -> None:
    saved = desk.call("create_claim", claim(desk, claim_kind=kind, assertion_origin=origin))
    record = desk.record(saved["id"])
    assert record["claimKind"] == kind
    assert record.get("assertionOrigin", "source") == origin


def test_unknown_owners_and_dates_are_left_out(desk: Desk) -> None:
    text = desk.path_of(str(desk.call("create_claim", claim(desk))["id"])).read_text()
    assert not any(key in text for key in ("owner:", "due_at:", "occurred_at:", "expires_at:", "entities:"))


@pytest.mark.parametrize("evidence", [[], None])
@pytest.mark.parametrize("tool", ["create_claim", "create_relationship"])
def test_a_statement_without_evidence_is_evidence_invalid(desk: Desk, tool: str, evidence: JsonValue) -> None:
    one, two = desk.page("One", "person")["id"], desk.page("Two", "person")["id"]
    given = claim(desk) if tool == "create_claim" else relationship(desk, one, two, "related_to")
    before = files_of(desk)
    error = desk.fails(tool, {**given, "evidence": evidence})
    assert isinstance(error, EvidenceInvalid)
    assert error.fields["field"] == "evidence"
    assert files_of(desk) == before


@pytest.mark.parametrize(
    ("narrowed", "reason"),
    [
        ({"sha256": "0" * 64}, "not_retained"),
        ({"path": f"artifacts/{request_id(77)}/excerpt.txt"}, "not_retained"),
        ({"start_line": 3, "end_line": 9}, "line_range"),
        ({"start_line": 2, "end_line": 2, "quote": "deliver the release"}, "quote_mismatch"),
        ({"quote": "deliver the rocket"}, "quote_mismatch"),
    ],
)
def test_evidence_is_mandatory_and_verified_by_hash_range_and_exact_quote(
    desk: Desk, narrowed: JsonObject, reason: str
) -> None:
    evidence = {**desk.retained(PASSAGE), **narrowed}
    before = files_of(desk)
    error = desk.fails("create_claim", claim(desk, evidence=[evidence]))
    assert isinstance(error, EvidenceInvalid)
    assert (error.fields["field"], error.fields["reason"]) == ("evidence[0]", reason)
    assert files_of(desk) == before, "no draft, no receipt, no artifact is left"


def test_a_source_that_was_changed_supports_nothing_any_more(desk: Desk) -> None:
    evidence = desk.retained(PASSAGE)
    (desk.folder() / str(evidence["path"])).write_text("Alex: never mind.\n")
    error = desk.fails("create_claim", claim(desk, evidence=[evidence]))
    assert isinstance(error, EvidenceInvalid)
    assert error.fields["reason"] == "hash_mismatch"


def test_creates_never_overwrite_an_assertion(desk: Desk) -> None:
    given = claim(desk)
    first, second = desk.call("create_claim", given), desk.call("create_claim", given)
    assert first["id"] != second["id"]
    assert desk.record(first["id"])["hash"] == first["hash"]


def test_a_reused_request_id_with_a_changed_payload_or_operation_is_rejected(desk: Desk) -> None:
    given = claim(desk, requestId=request_id(500))
    saved = desk.call("create_claim", given)
    assert desk.call("create_claim", given) == saved
    assert isinstance(desk.fails("create_claim", {**given, "body": "Something else."}), RequestIdReused)
    observed = desk.observed(saved["id"])
    other = {**desk.vault(), **observed, "requestId": request_id(500), "reason": "a test", "fixture": True}
    assert isinstance(desk.fails("annotate", other), RequestIdReused)


@pytest.mark.parametrize("field", ["expectedVaultId", "expectedOntologyFingerprint"])
@pytest.mark.parametrize("tool", ["create_claim", "create_relationship", "annotate"])
def test_statements_must_name_the_vault_and_the_ontology(desk: Desk, tool: str, field: str) -> None:
    page = desk.page("One", "person")
    match tool:
        case "create_claim":
            given = claim(desk)
        case "create_relationship":
            given = relationship(desk, page["id"], desk.page("Two", "person")["id"], "related_to")
        case _:
            given = {**desk.vault(), **desk.observed(page["id"]), "reason": "a test", "fixture": True}
    error = desk.fails(tool, {name: value for name, value in given.items() if name != field})
    assert isinstance(error, InvalidArgument)
    assert error.fields["field"] == field
    wrong: KnowledgeError = desk.fails(
        tool, {**given, field: request_id(3) if field == "expectedVaultId" else "0" * 64}
    )
    assert isinstance(wrong, VaultMismatch | OntologyChanged)


@pytest.mark.parametrize("field", ["entities", "owner", "source_page", "dependencies"])
def test_what_a_claim_names_must_exist_in_its_partition(desk: Desk, field: str) -> None:
    elsewhere = desk.call(
        "save_page",
        {"title": "In the group", "type": "project", "body": "There."},
        partition=GROUP_PARTITION,
    )["id"]
    for record_id in ("nobody", elsewhere):
        value: JsonValue = [record_id] if field in ("entities", "dependencies") else record_id
        error = desk.fails("create_claim", claim(desk, **{field: value}))
        assert isinstance(error, InvalidArgument)
        assert str(error.fields["field"]).startswith(field)
        assert error.fields["reason"] in ("unknown_page", "unknown_record")


def test_a_claim_about_a_merged_page_is_about_the_page_it_was_merged_into(desk: Desk) -> None:
    kept = desk.page("Alexandra", "person")
    write_note(desk.folder(), "people/a.md", page_file("old-alex", "Alex", type="person", lifecycle="merged",
                                                       merged_into=kept["id"]))  # fmt: skip
    saved = desk.call("create_claim", claim(desk, entities=["old-alex", kept["id"]]))
    entry = desk.partition().catalogue.one(str(saved["id"]))
    assert entry is not None
    assert desk.partition().load(entry).entities == (kept["id"],)


# --- relationships ------------------------------------------------------------------------------------------------


def test_a_relationship_joins_two_pages_under_the_labels_own_name(desk: Desk) -> None:
    alex, firm = desk.page("Alex", "person"), desk.page("Acme", "company")
    saved = desk.call("create_relationship", relationship(desk, alex["id"], firm["id"], "works_at"))
    record = desk.record(saved["id"])
    assert (record["from"], record["to"], record["label"]) == (alex["id"], firm["id"], "works_at")
    entry = desk.partition().catalogue.one(str(saved["id"]))
    assert entry is not None
    assert entry.title == "Alex works_at Acme"
    assert entry.kind == "relationship"


def test_the_backend_enforces_endpoint_constraints(desk: Desk) -> None:
    alex, firm = desk.page("Alex", "person"), desk.page("Acme", "company")
    before = files_of(desk)
    given = relationship(desk, firm["id"], alex["id"], "works_at", evidence=[desk.retained(PASSAGE)])
    before = files_of(desk)
    error = desk.fails("create_relationship", given)
    assert isinstance(error, InvalidArgument)
    assert error.fields["field"] == "from"
    problems = error.fields["problems"]
    assert isinstance(problems, list)
    assert [problem["field"] for problem in problems if isinstance(problem, dict)] == ["from", "to"]
    assert files_of(desk) == before


def test_endpoint_constraints_include_the_types_below(desk: Desk) -> None:
    write_note(
        desk.folder(),
        "ontology.yaml",
        "format: knowledge-ontology-v1\nextends: core\npages:\n"
        "  bakery: {description: A bakery, parent: company, folder: bakeries}\n",
    )
    alex, firm = desk.page("Alex", "person"), desk.page("Crumbs", "bakery")
    saved = desk.call("create_relationship", relationship(desk, alex["id"], firm["id"], "works_at"))
    assert saved["revision"] == 1


def test_the_same_endpoint_pair_can_carry_several_independently_evidenced_relationships(desk: Desk) -> None:
    alex, firm = desk.page("Alex", "person"), desk.page("Acme", "company")
    first = desk.call("create_relationship", relationship(desk, alex["id"], firm["id"], "works_at"))
    other = desk.retained("Alex: I am still at Acme.")
    second = desk.call("create_relationship", relationship(desk, alex["id"], firm["id"], "works_at", evidence=[other]))
    assert first["id"] != second["id"]
    assert desk.call("records", {"kind": "relationship"})["total"] == 2


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"label": "admires"}, "label"),
        ({"to": "nobody"}, "to"),
        ({"fields": {"colour": "red"}}, "fields.colour"),
    ],
)
def test_an_unknown_label_end_or_field_is_refused_by_name(desk: Desk, change: JsonObject, field: str) -> None:
    alex, firm = desk.page("Alex", "person"), desk.page("Acme", "company")
    given = relationship(desk, alex["id"], firm["id"], "works_at")
    error = desk.fails("create_relationship", {**given, **change})
    assert isinstance(error, InvalidArgument)
    assert error.fields["field"] == field


def test_a_page_is_not_related_to_itself(desk: Desk) -> None:
    alex = desk.page("Alex", "person")
    error = desk.fails("create_relationship", relationship(desk, alex["id"], alex["id"], "related_to"))
    assert error.fields["reason"] == "same_page"


# --- annotations --------------------------------------------------------------------------------------------------


def test_annotate_adds_metadata_without_changing_assertion_text_or_lifecycle(desk: Desk) -> None:
    saved = desk.call("create_claim", claim(desk))
    page, earlier = desk.page("Minutes", "meeting"), desk.call("create_claim", claim(desk, body="Earlier."))
    path = desk.path_of(str(saved["id"]))
    before = path.read_text()
    done = desk.call(
        "annotate",
        fenced(
            desk,
            saved["id"],
            source_page=page["id"],
            identity_uncertainty="There are two people called Alex.",
            attribution_confidence="low",
            continuity=[earlier["id"]],
            entities=[page["id"]],
        ),
    )
    assert (done["id"], done["revision"]) == (saved["id"], 2)
    after = path.read_text()
    assert after.split("---\n", 2)[2] == before.split("---\n", 2)[2]
    for line in (
        f'source_page: "{page["id"]}"',
        'attribution_confidence: "low"',
        f'continuity: ["{earlier["id"]}"]',
        f'entities: ["{page["id"]}"]',
        'lifecycle: "active"',
    ):
        assert line in after, line
    unchanged = {line for line in before.splitlines() if not line.startswith(("revision", "updated_at"))}
    assert unchanged <= set(after.splitlines())


def test_annotated_evidence_is_added_to_what_is_there_and_never_twice(desk: Desk) -> None:
    evidence = desk.retained(PASSAGE)
    saved = desk.call("create_claim", claim(desk, evidence=[evidence]))
    more = desk.retained("Sam: I heard it too.")
    desk.call("annotate", fenced(desk, saved["id"], evidence=[more, evidence]))
    entry = desk.partition().catalogue.one(str(saved["id"]))
    assert entry is not None
    assert [item.path for item in desk.partition().load(entry).evidence] == [evidence["path"], more["path"]]
    bad = desk.fails("annotate", fenced(desk, saved["id"], evidence=[{**more, "quote": "never said"}]))
    assert isinstance(bad, EvidenceInvalid)


def test_a_fixture_leaves_current_reads_and_comes_back(desk: Desk) -> None:
    page = desk.page("Test data")
    desk.call("annotate", fenced(desk, page["id"], fixture=True))
    assert desk.call("records", {"kind": "page"})["total"] == 0
    assert desk.record(page["id"])["title"] == "Test data"
    desk.call("annotate", fenced(desk, page["id"], fixture=False))
    assert desk.call("records", {"kind": "page"})["total"] == 1


def test_an_annotation_that_says_nothing_new_saves_nothing(desk: Desk) -> None:
    page = desk.page("Plan")
    for more in ({}, {"fixture": False}):
        error = desk.fails("annotate", fenced(desk, page["id"], **more))
        assert isinstance(error, InvalidArgument)
    assert desk.record(page["id"])["revision"] == 1


def test_a_page_has_no_entities_and_nothing_continues_itself(desk: Desk) -> None:
    page = desk.page("Plan")
    assert desk.fails("annotate", fenced(desk, page["id"], entities=[page["id"]])).fields["reason"] == "wrong_kind"
    assert desk.fails("annotate", fenced(desk, page["id"], continuity=[page["id"]])).fields["reason"] == "itself"


def test_an_annotation_is_fenced_by_revision_and_hash(desk: Desk) -> None:
    page = desk.page("Plan")
    given = fenced(desk, page["id"], fixture=True)
    assert isinstance(desk.fails("annotate", {**given, "expectedRevision": 2}), StaleFence)
    assert isinstance(desk.fails("annotate", {**given, "expectedHash": "0" * 16}), StaleFence)
    assert isinstance(desk.fails("annotate", {**given, "expectedHash": str(page["hash"])[:15]}), ShortHash)
    assert isinstance(desk.fails("annotate", {**given, "id": "nobody"}), NotFound)
    assert desk.call("annotate", {**given, "expectedHash": str(page["hash"])[:16]})["revision"] == 2


def test_the_reason_of_an_annotation_is_kept_with_its_receipt(desk: Desk) -> None:
    page = desk.page("Plan")
    given = fenced(desk, page["id"], fixture=True, requestId=request_id(700))
    desk.call("annotate", {**given, "reason": "imported for a rehearsal"})
    complete = desk.call("mutation", {"requestId": request_id(700), "includeFiles": False})
    assert "imported for a rehearsal" in str(complete)

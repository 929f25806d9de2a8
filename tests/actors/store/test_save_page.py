"""knowledge_save_page: create, or edit behind fences (tools.md, Pages and body edits)."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pytest

from messages.errors import (
    Ambiguous,
    EvidenceInvalid,
    InvalidArgument,
    LimitExceeded,
    NotFound,
    PartitionFull,
    ShortHash,
    StaleFence,
)
from messages.json_types import JsonObject, JsonValue
from storage import faults
from storage.vault import ScanLimits
from tests.kit.store import Desk, items_of, page_file, remembering, request_id, write_note


def only_file(desk: Desk) -> Path:
    [path] = desk.folder().rglob("*.md")
    return path


def fenced(desk: Desk, record_id: JsonValue) -> JsonObject:
    """The fences of a page as a full read gives them."""
    found = desk.record(record_id)
    return {"id": found["id"], "expectedRevision": found["revision"], "expectedHash": found["hash"]}


def edit(desk: Desk, record_id: JsonValue, **changes: JsonValue) -> JsonObject:
    """Edit a page at its current revision; title, type and body stay unless given."""
    found = desk.record(record_id)
    same = {key: found[key] for key in ("title", "type", "body")}
    return desk.call("save_page", {**fenced(desk, record_id), **same, **changes})


# --- create -----------------------------------------------------------------------------------------------------------


def test_a_created_page_is_one_file_named_after_its_title_in_the_folder_of_its_type(desk: Desk) -> None:
    answer = desk.page("Garden Pilot", body="# Plan\n\nShip it.", aliases=["The Pilot"], tags=["garden"])
    path = only_file(desk)
    assert path.relative_to(desk.folder()).as_posix() == "projects/garden-pilot.md"
    assert answer["hash"] == hashlib.sha256(path.read_bytes()).hexdigest()
    assert path.read_text("utf-8").endswith("---\n\n# Plan\n\nShip it.\n")
    assert set(answer) == {"id", "revision", "hash", "ontologyFingerprint"}
    assert answer["revision"] == 1
    found = desk.record(answer["id"])
    assert (found["title"], found["type"], found["aliases"], found["tags"]) == (
        "Garden Pilot",
        "project",
        ["The Pilot"],
        ["garden"],
    )


def test_a_type_may_be_named_by_its_alias_and_is_stored_by_its_name(desk: Desk) -> None:
    assert desk.record(desk.page("Garden Pilot", type="initiative")["id"])["type"] == "project"


@pytest.mark.parametrize("page_type", ["spaceship", "entity"])
def test_an_unknown_or_abstract_type_is_refused(desk: Desk, page_type: str) -> None:
    error = desk.fails("save_page", {"title": "A", "type": page_type, "body": ""})
    assert isinstance(error, InvalidArgument)
    assert error.fields["field"] == "type"


def test_a_field_value_that_the_ontology_does_not_allow_is_refused_by_its_name(desk: Desk) -> None:
    error = desk.fails("save_page", {"title": "A", "type": "project", "body": "", "fields": {"status": "lost"}})
    assert isinstance(error, InvalidArgument)
    assert error.fields["field"] == "fields.status"


def test_a_field_that_names_a_page_needs_a_page_of_its_type(desk: Desk) -> None:
    company = desk.page("Blue Harbor", type="company")["id"]
    person = desk.page("Alex Morgan", type="person")["id"]
    for lead in (company, "nobody"):
        error = desk.fails("save_page", {"title": "A", "type": "project", "body": "", "fields": {"lead": lead}})
        assert isinstance(error, InvalidArgument)
        assert error.fields["field"] == "fields.lead"
    assert desk.record(desk.page("B", fields={"lead": person})["id"])["fields"] == {"lead": person}


def test_titles_that_give_one_file_name_get_files_of_their_own(desk: Desk) -> None:
    first, second = desk.page("Garden Pilot!"), desk.page("Garden: Pilot")
    assert len(list(desk.folder().rglob("*.md"))) == 2
    assert desk.record(first["id"])["title"] == "Garden Pilot!"
    assert desk.path_of(str(second["id"])).name == f"garden-pilot-{str(second['id'])[:8]}.md"


def test_a_name_that_a_foreign_file_has_is_left_to_it(desk: Desk) -> None:
    foreign = write_note(desk.folder(), "projects/garden-pilot.md", "just a note\n")
    answer = desk.page("Garden Pilot")
    assert foreign.read_text("utf-8") == "just a note\n"
    assert desk.path_of(str(answer["id"])) != foreign


@pytest.mark.parametrize("title", ["Garden Pilot", "garden  PILOT", "The Pilot"])
def test_a_create_whose_title_an_active_page_of_the_type_bears_is_rejected_and_shows_that_page(
    desk: Desk, title: str
) -> None:
    first = desk.page("Garden Pilot", aliases=["The Pilot"])
    before = desk.session.publisher.pair
    answer = desk.call("save_page", {"title": title, "type": "project", "body": "another", "requestId": request_id(77)})
    assert answer["state"] == "rejected"
    assert answer["reason"] == "same_title"
    assert answer["id"] == ""
    assert answer["existing"] == {"id": first["id"], "title": "Garden Pilot", "revision": 1, "hash": first["hash"]}
    assert isinstance(answer["message"], str)
    assert desk.session.publisher.pair == before
    assert desk.fails("mutation", {"requestId": request_id(77)}).code == "not_found"
    desk.call("save_page", {"title": "Other", "type": "project", "body": "", "requestId": request_id(77)})


def test_allow_same_title_creates_it_anyway(desk: Desk) -> None:
    first = desk.page("Garden Pilot")
    assert desk.page("Garden Pilot", allowSameTitle=True)["id"] != first["id"]
    assert desk.call("lookup", {"query": "Garden Pilot"})["state"] == "ambiguous"


def test_a_page_of_another_type_or_a_withdrawn_one_may_have_the_same_title(desk: Desk) -> None:
    write_note(desk.folder(), "projects/old.md", page_file("old", "Garden Pilot", lifecycle="withdrawn"))
    desk.page("Garden Pilot", type="company")
    assert desk.page("Garden Pilot").get("state") is None


def test_a_create_is_one_publication_with_one_sync(desk: Desk) -> None:
    desk.partition()
    points: list[str] = []
    with faults.installed(points.append):
        desk.page("Garden Pilot")
    assert points.count("accept.commit") == 1
    assert [p for p in points if "fsync" in p or p.startswith("sync.")] == []


def test_a_create_that_would_pass_the_scan_limit_is_refused(desk: Desk) -> None:
    desk.limits = ScanLimits(entries=3)
    assert isinstance(desk.fails("save_page", {"title": "A", "type": "project", "body": ""}), PartitionFull)
    assert not list(desk.folder().rglob("*.md"))


def test_a_dependency_must_be_a_record_of_the_partition(desk: Desk) -> None:
    claim = items_of(desk.remember("Something."))[0]["id"]
    error = desk.fails("save_page", {"title": "A", "type": "project", "body": "", "dependencies": [claim, "nobody"]})
    assert isinstance(error, InvalidArgument)
    assert error.fields["field"] == "dependencies[1]"
    page = desk.page("A", dependencies=[claim])["id"]
    assert desk.record(page)["dependencies"] == [claim]
    given: JsonObject = {**desk.observed(page), "title": "A", "type": "project", "body": "", "dependencies": [page]}
    error = desk.fails("save_page", given)
    assert isinstance(error, InvalidArgument)
    assert (error.fields["field"], error.fields["reason"]) == ("dependencies[0]", "itself")
    assert desk.record(page)["dependencies"] == [claim]


def test_a_file_that_depends_on_itself_is_read_and_edited_as_it_is_and_is_no_dependent_of_its_own(desk: Desk) -> None:
    write_note(desk.folder(), "a.md", page_file("a", "A", dependencies=["a"]))
    assert desk.call("connections", {"id": "a"})["connections"] == []
    desk.call("save_page", {**desk.observed("a"), "title": "A", "type": "project", "body": "More."})
    assert desk.record("a")["dependencies"] == ["a"]


def test_a_body_may_have_48_000_characters_and_no_more(desk: Desk) -> None:
    write_note(desk.folder(), "projects/a.md", page_file("a", "A", body="x" * 48_001))
    fences: JsonObject = {"id": "a", "expectedRevision": 1, "expectedHash": desk.record("a")["hash"]}
    desk.call("save_page", {**fences, "title": "A", "type": "project", "body": "🙂" * 24_000})
    assert desk.record("a", maxChars=48_000, offset=47_000)["body"] == "🙂" * 500
    error = desk.fails("save_page", {"title": "B", "type": "project", "body": "🙂" * 24_000 + "x"})
    assert isinstance(error, LimitExceeded)
    assert error.fields["field"] == "body"


def test_a_blank_body_is_allowed(desk: Desk) -> None:
    assert desk.record(desk.page("A", body="")["id"])["body"] == ""


# --- edit and its fences ----------------------------------------------------------------------------------------------


def test_an_edit_replaces_the_body_in_the_same_file_and_raises_the_revision_by_one(desk: Desk) -> None:
    first = desk.page("Garden Pilot", body="Old.")
    path = only_file(desk)
    answer = edit(desk, first["id"], title="Garden Pilot 2", body="New.")
    assert (answer["id"], answer["revision"]) == (first["id"], 2)
    assert only_file(desk) == path
    assert path.read_text("utf-8").endswith("\nNew.\n")
    assert answer["hash"] == hashlib.sha256(path.read_bytes()).hexdigest()
    assert desk.record(first["id"])["title"] == "Garden Pilot 2"


@pytest.mark.parametrize("length", [16, 17, 40, 64])
def test_a_fence_may_be_the_full_hash_or_a_prefix_of_at_least_16(desk: Desk, length: int) -> None:
    first = desk.page("A")
    fences: JsonObject = {"id": first["id"], "expectedRevision": 1, "expectedHash": str(first["hash"])[:length]}
    assert desk.call("save_page", {**fences, "title": "A", "type": "project", "body": "New."})["revision"] == 2


def test_the_hash_of_a_list_row_fences_an_edit_directly(desk: Desk) -> None:
    desk.page("A")
    hits = desk.call("lookup", {"query": "A"})["hits"]
    assert isinstance(hits, list)
    assert isinstance(hits[0], dict)
    row = hits[0]
    assert len(str(row["hash"])) == 16
    fences: JsonObject = {"id": row["id"], "expectedRevision": row["revision"], "expectedHash": row["hash"]}
    assert desk.call("save_page", {**fences, "title": "A", "type": "project", "body": "New."})["revision"] == 2


def test_a_prefix_of_15_is_refused_as_too_short(desk: Desk) -> None:
    first = desk.page("A")
    fences: JsonObject = {"id": first["id"], "expectedRevision": 1, "expectedHash": str(first["hash"])[:15]}
    assert isinstance(desk.fails("save_page", {**fences, "title": "A", "type": "project", "body": ""}), ShortHash)


@pytest.mark.parametrize("wrong", ["revision", "hash"])
def test_a_stale_revision_or_hash_is_refused_with_the_current_ones_and_leaves_no_trace(desk: Desk, wrong: str) -> None:
    first = desk.page("A", body="One.")
    second = edit(desk, first["id"], body="Two.")
    fences: JsonObject = {
        "id": first["id"],
        "expectedRevision": 1 if wrong == "revision" else 2,
        "expectedHash": first["hash"] if wrong == "hash" else second["hash"],
    }
    before = only_file(desk).read_bytes()
    request: JsonObject = {**fences, "title": "A", "type": "project", "body": "Three.", "requestId": request_id(60)}
    error = desk.fails("save_page", request)
    assert isinstance(error, StaleFence)
    assert (error.fields["id"], error.fields["revision"], error.fields["hash"]) == (first["id"], 2, second["hash"])
    assert only_file(desk).read_bytes() == before
    assert desk.fails("mutation", {"requestId": request_id(60)}).code == "not_found"


def test_an_edit_by_a_person_makes_the_fence_stale_though_the_revision_is_the_same(desk: Desk) -> None:
    first = desk.page("A", body="One.")
    path = only_file(desk)
    path.write_text(path.read_text("utf-8").replace("One.", "Edited by hand."), "utf-8")
    error = desk.fails(
        "save_page",
        {
            "id": first["id"],
            "expectedRevision": 1,
            "expectedHash": first["hash"],
            "title": "A",
            "type": "project",
            "body": "x",
        },
    )
    assert isinstance(error, StaleFence)
    assert error.fields["revision"] == 1
    assert error.fields["hash"] == hashlib.sha256(path.read_bytes()).hexdigest()


def test_an_unknown_id_is_not_found_and_one_that_two_files_bear_is_ambiguous(desk: Desk) -> None:
    rest: JsonObject = {"expectedRevision": 1, "expectedHash": "0" * 64, "title": "A", "type": "project", "body": ""}
    assert isinstance(desk.fails("save_page", {"id": "nobody", **rest}), NotFound)
    write_note(desk.folder(), "a.md", page_file("twice", "A"))
    write_note(desk.folder(), "b.md", page_file("twice", "B"))
    assert isinstance(desk.fails("save_page", {"id": "twice", **rest}), Ambiguous)


def test_an_edit_without_its_fences_is_refused_by_the_missing_one(desk: Desk) -> None:
    first = desk.page("A")
    for missing in ("expectedRevision", "expectedHash"):
        fences: JsonObject = {"id": first["id"], "expectedRevision": 1, "expectedHash": first["hash"]}
        del fences[missing]
        error = desk.fails("save_page", {**fences, "title": "A", "type": "project", "body": ""})
        assert isinstance(error, InvalidArgument)
        assert error.fields["field"] == missing


def test_a_claim_or_a_withdrawn_page_is_not_edited(desk: Desk) -> None:
    claim = items_of(desk.remember("Something."))[0]
    write_note(desk.folder(), "a.md", page_file("gone", "A", lifecycle="withdrawn"))
    gone = desk.record("gone")
    for record_id, revision, hash_, reason in (
        (claim["id"], claim["revision"], claim["hash"], "wrong_kind"),
        ("gone", gone["revision"], gone["hash"], "not_active"),
    ):
        error = desk.fails(
            "save_page",
            {
                "id": record_id,
                "expectedRevision": revision,
                "expectedHash": hash_,
                "title": "A",
                "type": "project",
                "body": "",
            },
        )
        assert isinstance(error, InvalidArgument)
        assert error.fields["reason"] == reason


def test_a_record_of_a_newer_format_is_read_and_never_rewritten(desk: Desk) -> None:
    path = write_note(
        desk.folder(), "a.md", page_file("new", "A").replace("knowledge-record-v1", "knowledge-record-v9")
    )
    before = path.read_bytes()
    found = desk.record("new")
    error = desk.fails(
        "save_page",
        {
            "id": "new",
            "expectedRevision": found["revision"],
            "expectedHash": found["hash"],
            "title": "A",
            "type": "project",
            "body": "",
        },
    )
    assert error.fields["reason"] == "newer_format"
    assert path.read_bytes() == before


# --- collections and fields -------------------------------------------------------------------------------------------

COLLECTIONS = {
    "aliases": (["Pilot", "GP"], ["New name"]),
    "tags": (["garden", "2026"], ["winter"]),
    "fields": ({"status": "active", "started": "2026-09"}, {"status": "paused"}),
}


@pytest.mark.parametrize("name", sorted(COLLECTIONS))
def test_a_left_out_collection_is_kept_a_given_one_replaces_it_and_an_empty_one_clears_it(
    desk: Desk, name: str
) -> None:
    before, after = COLLECTIONS[name]
    page = desk.page("A", **{name: before})["id"]  # type: ignore[arg-type]  # the table holds JSON
    edit(desk, page, body="Other.")
    assert desk.record(page)[name] == before
    edit(desk, page, **{name: after})  # type: ignore[arg-type]  # as above
    assert desk.record(page)[name] == after
    edit(desk, page, **{name: type(after)()})
    assert name not in desk.record(page)


def test_dependencies_are_kept_replaced_and_cleared_like_every_collection(desk: Desk) -> None:
    one, two = (items_of(desk.remember(text))[0]["id"] for text in ("One.", "Two."))
    page = desk.page("A", dependencies=[one])["id"]
    edit(desk, page, body="Other.")
    assert desk.record(page)["dependencies"] == [one]
    edit(desk, page, dependencies=[two])
    assert desk.record(page)["dependencies"] == [two]
    edit(desk, page, dependencies=[])
    assert "dependencies" not in desk.record(page)


def test_a_null_in_fields_clears_that_field(desk: Desk) -> None:
    page = desk.page("A", fields={"status": "active", "started": "2026-09"})["id"]
    edit(desk, page, fields={"status": "active", "started": None})
    assert desk.record(page)["fields"] == {"status": "active"}
    assert "started" not in only_file(desk).read_text("utf-8")


def test_a_null_collection_counts_as_left_out(desk: Desk) -> None:
    page = desk.page("A", tags=["garden"])["id"]
    edit(desk, page, tags=None)
    assert desk.record(page)["tags"] == ["garden"]


# --- what a person wrote ----------------------------------------------------------------------------------------------

AUTHORED = """---
# kept by hand
format: knowledge-record-v1
id: by-hand
revision: 4
kind: page
title: Garden Pilot   # working title
type: project
recorded_at: 2026-10-01T10:00:00.000Z
updated_at: 2026-10-01T10:00:00.000Z
scope: {visibility: private}
lifecycle: active
mood: [sunny, 'mostly']
aliases:
  - The Pilot
x-tool: {nested: {deep: true}}
---

Old body.
"""


@pytest.mark.parametrize("newline", ["\n", "\r\n"])
def test_unknown_frontmatter_comments_and_every_untouched_line_survive_an_edit(desk: Desk, newline: str) -> None:
    path = write_note(desk.folder(), "g.md", AUTHORED.replace("\n", newline))
    edit(desk, "by-hand", body="New body.\nSecond line.")
    after = path.read_bytes().decode()
    old = AUTHORED.replace("\n", newline).split(newline)
    new = after.split(newline)
    changed = {(before, now) for before, now in zip(old, new, strict=False) if before != now}
    assert {before.split(":")[0] for before, _ in changed} == {"revision", "updated_at", "Old body.", ""}
    assert after.endswith(f"---{newline}{newline}New body.{newline}Second line.{newline}")
    assert "\n" not in after.replace(newline, "")
    assert desk.record("by-hand")["revision"] == 5


def test_a_byte_order_mark_survives_an_edit(desk: Desk) -> None:
    path = write_note(desk.folder(), "g.md", "\ufeff" + AUTHORED)
    edit(desk, "by-hand", body="New body.")
    assert path.read_bytes().startswith("\ufeff---".encode())


def test_an_edit_keeps_the_mode_of_the_file(desk: Desk) -> None:
    path = write_note(desk.folder(), "g.md", AUTHORED)
    path.chmod(0o640)
    edit(desk, "by-hand", body="New body.")
    assert path.stat().st_mode & 0o777 == 0o640


def test_a_lowered_revision_in_the_file_does_not_lower_the_known_one(desk: Desk) -> None:
    path = write_note(desk.folder(), "g.md", AUTHORED)
    assert desk.record("by-hand")["revision"] == 4
    path.write_text(AUTHORED.replace("revision: 4", "revision: 1"), "utf-8")
    assert desk.record("by-hand")["revision"] == 4
    assert edit(desk, "by-hand", body="New.")["revision"] == 5


# --- attachments ------------------------------------------------------------------------------------------------------


def citation_of(desk: Desk, claim: JsonValue) -> JsonObject:
    evidence = desk.record(claim, includeEvidence=True)["evidence"]
    assert isinstance(evidence, list)
    assert isinstance(evidence[0], dict)
    return {key: value for key, value in evidence[0].items() if key != "excerpt"}


def test_evidence_that_a_record_of_the_partition_cites_may_be_attached_and_is_verified(desk: Desk) -> None:
    claim = items_of(desk.call("remember", {**remembering("One."), "excerpt": "first\nsecond\nthird"}))[0]["id"]
    citation = citation_of(desk, claim)
    desk.needs.clear()
    page = desk.page("A", attachments=[{**citation, "start_line": 2, "end_line": 3, "quote": "second\nth"}])["id"]
    assert desk.needs == ["evidence"]
    evidence = desk.record(page, includeEvidence=True)["evidence"]
    assert isinstance(evidence, list)
    assert isinstance(evidence[0], dict)
    assert evidence[0]["excerpt"] == "second\nthird"
    assert (evidence[0]["filename"], evidence[0]["attribution"]) == ("excerpt.txt", "user in session 8f3a, 2026-11-02")


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"sha256": "0" * 64}, "not_retained"),
        ({"path": f"artifacts/{request_id(8)}/excerpt.txt"}, "not_retained"),
        ({"start_line": 2, "end_line": 4}, "line_range"),
        ({"quote": "fourth"}, "quote_mismatch"),
        ({"start_line": 1, "end_line": 1, "quote": "second"}, "quote_mismatch"),
    ],
)
def test_evidence_that_is_not_retained_or_does_not_hold_is_refused(desk: Desk, change: JsonObject, reason: str) -> None:
    claim = items_of(desk.call("remember", {**remembering("One."), "excerpt": "first\nsecond\nthird"}))[0]["id"]
    citation = {**citation_of(desk, claim), **change}
    error = desk.fails("save_page", {"title": "A", "type": "project", "body": "", "attachments": [citation]})
    assert isinstance(error, EvidenceInvalid)
    assert error.fields["field"] == "attachments[0]"
    assert error.fields["reason"] == reason


def test_evidence_whose_file_was_changed_or_removed_is_refused(desk: Desk) -> None:
    claim = items_of(desk.call("remember", {**remembering("One."), "requestId": request_id(5)}))[0]["id"]
    citation = citation_of(desk, claim)
    retained = desk.folder() / "artifacts" / request_id(5) / "excerpt.txt"
    retained.write_text("something else", "utf-8")
    request: JsonObject = {"title": "A", "type": "project", "body": "", "attachments": [citation]}
    assert desk.fails("save_page", request).fields["reason"] == "hash_mismatch"
    retained.unlink()
    assert desk.fails("save_page", request).fields["reason"] == "missing"


def test_evidence_that_changes_after_it_was_verified_is_verified_again(desk: Desk) -> None:
    claim = items_of(desk.call("remember", {**remembering("One."), "requestId": request_id(5)}))[0]["id"]
    citation = citation_of(desk, claim)
    retained = desk.folder() / "artifacts" / request_id(5) / "excerpt.txt"
    tampered = False

    def tamper(point: str) -> None:
        nonlocal tampered
        if point == "evidence.open.after" and not tampered:
            tampered = True
        elif point == "evidence.stat" and tampered and retained.read_bytes() != b"other":
            # The verdict is there; before the operation runs again a person saves the source.
            retained.write_bytes(b"other")

    with faults.installed(tamper):
        error = desk.fails("save_page", {"title": "A", "type": "project", "body": "", "attachments": [citation]})
    assert error.fields["reason"] == "hash_mismatch"


def test_an_attachment_is_added_to_the_evidence_of_a_page_once(desk: Desk) -> None:
    one, two = (citation_of(desk, items_of(desk.remember(text))[0]["id"]) for text in ("One.", "Two."))
    page = desk.page("A", attachments=[one])["id"]
    edit(desk, page, attachments=[one, two])
    evidence = desk.record(page, includeEvidence=True)["evidence"]
    assert isinstance(evidence, list)
    assert [item["path"] for item in evidence if isinstance(item, dict)] == [one["path"], two["path"]]


def test_the_same_request_again_gives_the_stored_receipt_though_the_page_has_moved_on(desk: Desk) -> None:
    request: JsonObject = {"title": "A", "type": "project", "body": "One.", "requestId": request_id(9)}
    first = desk.call("save_page", request)
    edit(desk, first["id"], body="Two.")
    assert desk.call("save_page", request) == first
    desk.close()
    assert desk.call("save_page", request) == first
    assert desk.record(first["id"])["body"] == "Two.\n"


def test_a_create_never_doubles_a_page_whose_file_a_person_is_repairing(desk: Desk) -> None:
    page = desk.page("Garden Pilot", aliases=["The Pilot"])
    path = only_file(desk)
    text = path.read_bytes()
    path.write_bytes(text.replace(b"title: ", b"title: [", 1))
    for title in ("garden  pilot", "The Pilot"):
        error = desk.fails("save_page", {"title": title, "type": "project", "body": "again"})
        assert (error.code, error.fields["reason"], error.fields["path"]) == (
            "invalid_argument", "unreadable_page", "projects/garden-pilot.md",
        )  # fmt: skip
    path.write_bytes(text)
    assert desk.record(page["id"])["title"] == "Garden Pilot"
    assert len(list(desk.folder().rglob("*.md"))) == 1


def test_allow_same_title_creates_a_page_beside_one_that_cannot_be_read(desk: Desk) -> None:
    desk.page("Garden Pilot")
    only_file(desk).write_text("no envelope any more", "utf-8")
    desk.page("Garden Pilot", allowSameTitle=True)
    assert len(list(desk.folder().rglob("*.md"))) == 2


@pytest.mark.parametrize(
    ("file", "body", "kept"),
    [
        ("\r\n---\r\n\r\n", "a\nb\n", "a\nb\n"),
        ("\n---\n\n", "a\r\nb\n\nc\n", "a\nb\n\nc\n"),
        ("\n---\n\n", "a\r\nb\r\n\r\nc\n", "a\r\nb\r\n\r\nc\r\n"),
        ("\r\n---\r\n\r\n", "one line", "a\r\nb\r\n\r\nc"),
    ],
)
def test_a_new_body_has_the_line_ends_of_the_body_that_it_replaces(
    desk: Desk, file: str, body: str, kept: str
) -> None:
    """A body that was read and is sent back as it was must not grow by what the frontmatter's lines end with."""
    head, _, _ = page_file("hand", "Hand").partition("\n---\n")
    newline = file[: file.index("-")]
    write_note(desk.folder(), "projects/hand.md", head.replace("\n", newline) + file + body)
    edit(desk, "hand", body=kept.replace("\r\n", "\n"))
    assert (desk.folder() / "projects/hand.md").read_bytes().endswith((file + kept).encode())


def test_a_body_over_its_budget_that_is_sent_back_as_it_was_is_never_rejected(desk: Desk) -> None:
    head, _, _ = page_file("hand", "Hand").partition("\n---\n")
    body = "a line\n" * 4_000
    write_note(desk.folder(), "projects/hand.md", head.replace("\n", "\r\n") + "\r\n---\r\n\r\n" + body)
    answer = desk.call("save_page", {**fenced(desk, "hand"), "title": "Hand", "type": "project", "body": body})
    assert answer["revision"] == 2


def test_evidence_that_is_given_twice_is_kept_once(desk: Desk) -> None:
    source = desk.retained("The plan.")
    page = desk.page("Plan", attachments=[source, {**source, "start_line": 1}, source])
    edit(desk, page["id"], attachments=[source, {**source, "quote": "plan"}, {**source, "quote": "plan"}])
    evidence = desk.record(page["id"], includeEvidence=True)["evidence"]
    assert isinstance(evidence, list)
    assert len(evidence) == 3

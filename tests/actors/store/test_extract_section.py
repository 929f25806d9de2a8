"""knowledge_extract_section: tools.md, Extract a section, sentence by sentence, on a real store."""

from __future__ import annotations

import pytest

from messages.errors import (
    EvidenceInvalid,
    InvalidArgument,
    LimitExceeded,
    NotFound,
    OntologyChanged,
    RequestIdReused,
    StaleFence,
    StorageError,
    VaultMismatch,
)
from messages.json_types import JsonObject, JsonValue
from messages.vocabulary import PRIVATE
from storage import faults
from storage.records import content_hash
from storage.records.links import parse
from tests.kit.store import Desk, claim_file, items_of, page_file, record_file, request_id, write_note

_NEXT = iter(range(7_000_000, 8_000_000))
RECORDED = "2026-10-01T10:00:00.000Z"
SUMMARY = "Moved to a page of its own."


def page(desk: Desk, record_id: str, title: str, body: str, *, folder: str = "projects", **keys: JsonValue) -> str:
    """A page at a known path, as a person writes it."""
    path = f"{folder}/{record_id}.md" if folder else f"{record_id}.md"
    write_note(
        desk.folder(), path, record_file("page", record_id, title, body, PRIVATE, RECORDED, {"type": "project", **keys})
    )
    return record_id


def fences(desk: Desk, record_id: str) -> JsonObject:
    found = desk.record(record_id)
    return {"id": record_id, "expectedRevision": found["revision"], "expectedHash": found["hash"]}


def arguments(desk: Desk, source: str, heading: str, destination: JsonObject | str, **more: JsonValue) -> JsonObject:
    status = desk.call("status")
    [section] = [one for one in parse(body_of(desk, source)).sections if one.heading == heading]
    return {
        "requestId": request_id(next(_NEXT)),
        "expectedVaultId": status["vaultId"],
        "expectedOntologyFingerprint": status["ontologyFingerprint"],
        "source": fences(desk, source),
        "sectionStart": section.start,
        "destination": fences(desk, destination) if isinstance(destination, str) else destination,
        "summary": SUMMARY,
        "reason": "a test",
        **more,
    }


def extract(desk: Desk, source: str, heading: str, destination: JsonObject | str, **more: JsonValue) -> JsonObject:
    return desk.call("extract_section", arguments(desk, source, heading, destination, **more))


def refused(desk: Desk, source: str, heading: str, destination: JsonObject | str, **more: JsonValue) -> InvalidArgument:
    """The refusal of an extraction, after which every file is as it was."""
    given = arguments(desk, source, heading, destination, **more)
    before = files_of(desk)
    error = desk.fails("extract_section", given)
    assert isinstance(error, InvalidArgument), error
    assert files_of(desk) == before
    return error


def files_of(desk: Desk) -> dict[str, bytes]:
    return {str(path): path.read_bytes() for path in sorted(desk.folder().rglob("*.md"))}


def body_of(desk: Desk, record_id: str) -> str:
    entry = desk.partition().catalogue.one(record_id)
    assert entry is not None
    return desk.partition().load(entry).body


NEW: JsonObject = {"title": "Release process", "type": "project"}


def new_id(receipt: JsonObject) -> str:
    return str(items_of(receipt)[0]["id"])


# --- what moves and what stays --------------------------------------------------------------------------------------


def test_the_section_runs_to_the_next_heading_of_the_same_or_a_higher_level_and_moves_verbatim(desk: Desk) -> None:
    section = "## Releases ##\n\n* Cut  weekly\\\n  `x  y`\n\n### How\n\nBy hand. 😀\n\n"
    page(desk, "src", "OpenClaw", f"# OpenClaw\n\n😀 Intro.\n\n{section}## Next\n\nRest.\n")
    receipt = extract(desk, "src", "Releases", NEW)
    assert body_of(desk, new_id(receipt)) == section
    left = f"## Releases ##\n\n{SUMMARY}\n\n[[{new_id(receipt)}|Release process]]\n\n"
    assert body_of(desk, "src") == f"# OpenClaw\n\n😀 Intro.\n\n{left}## Next\n\nRest.\n"


def test_the_last_section_of_a_page_leaves_nothing_after_its_pointer(desk: Desk) -> None:
    page(desk, "src", "OpenClaw", "# A\n\nx\n\n# B\nlast")
    receipt = extract(desk, "src", "B", NEW)
    assert body_of(desk, "src") == f"# A\n\nx\n\n# B\n\n{SUMMARY}\n\n[[{new_id(receipt)}|Release process]]\n"
    assert body_of(desk, new_id(receipt)) == "# B\nlast\n"


def test_the_section_is_appended_to_an_existing_pages_body_after_a_blank_line(desk: Desk) -> None:
    page(desk, "src", "OpenClaw", "# A\n\nSee [[dst]].\n\n# B\n\ntext\n")
    page(desk, "dst", "Process", "Start.\n\n- item")
    receipt = extract(desk, "src", "B", "dst")
    assert body_of(desk, "dst") == "Start.\n\n- item\n\n# B\n\ntext\n"
    assert items_of(receipt)[0]["id"] == "dst"
    assert "[[dst|Process]]" in body_of(desk, "src")


def test_every_byte_keeps_its_line_end_and_what_we_add_has_the_pages_own(desk: Desk) -> None:
    source = page_file("src", "OpenClaw", body="# A\n\n[[dst]]\n\n# B\n\none\ntwo\n\n# C\n").replace("\n", "\r\n")
    write_note(desk.folder(), "projects/src.md", source)
    page(desk, "dst", "Process", "Start.\n")
    extract(desk, "src", "B", "dst", summary="Two\nlines.")
    assert body_of(desk, "dst") == "Start.\n\n# B\r\n\r\none\r\ntwo\r\n\r\n"
    assert body_of(desk, "src") == (
        "# A\r\n\r\n[[dst]]\r\n\r\n# B\r\n\r\nTwo\r\nlines.\r\n\r\n[[dst|Process]]\r\n\r\n# C\r\n"
    )


def test_a_setext_heading_stays_with_all_its_lines(desk: Desk) -> None:
    page(desk, "src", "OpenClaw", "One\nmore\n====\n\ntext\n\nTwo\n===\n")
    receipt = extract(desk, "src", "One more", NEW)
    assert body_of(desk, "src").startswith(f"One\nmore\n====\n\n{SUMMARY}\n\n[[{new_id(receipt)}|")


def test_the_title_in_the_pointer_has_nothing_that_would_end_the_link(desk: Desk) -> None:
    page(desk, "src", "OpenClaw", "# A\n\ntext\n")
    receipt = extract(desk, "src", "A", {"title": "A [b] | c", "type": "project"})
    assert f"[[{new_id(receipt)}|A b c]]" in body_of(desk, "src")


# --- links ----------------------------------------------------------------------------------------------------------


def test_relative_inline_links_are_rewritten_for_the_destinations_directory_and_only_inside_the_parsed_link(
    desk: Desk,
) -> None:
    body = (
        "# A\n\n[a](b.md) [c](<d e.md#f> 'g') ![i](../img/p.png) [r](/root.md) [h](https://x.y/b.md)\n"
        "`[a](b.md)` \\[a](b.md) <https://x.y>\n\n    [a](b.md)\n\n[s](#a) [up](../../x.md)\n"
    )
    page(desk, "src", "OpenClaw", body, folder="projects/deep")
    receipt = extract(desk, "src", "A", {"title": "Release process", "type": "person"})
    assert desk.path_of(new_id(receipt)).parent.name == "people"
    assert body_of(desk, new_id(receipt)) == (
        "# A\n\n[a](../projects/deep/b.md) [c](<../projects/deep/d e.md#f> 'g') ![i](../projects/img/p.png) "
        "[r](/root.md) [h](https://x.y/b.md)\n"
        "`[a](b.md)` \\[a](b.md) <https://x.y>\n\n    [a](b.md)\n\n[s](#a) [up](../x.md)\n"
    )


def test_a_link_to_a_heading_inside_the_section_follows_it_and_any_other_means_the_source(desk: Desk) -> None:
    page(desk, "src", "OpenClaw", "# Top\n\nx\n\n# A\n\n[own](#sub) [other](#top) [page]()\n\n## Sub\n", folder="a")
    receipt = extract(desk, "src", "A", NEW)
    assert "[own](#sub) [other](../a/src.md#top) [page](../a/src.md)" in body_of(desk, new_id(receipt))


def test_a_link_to_a_heading_that_the_destination_already_has_is_refused(desk: Desk) -> None:
    page(desk, "src", "OpenClaw", "[[dst]]\n\n# A\n\n[own](#sub)\n\n## Sub\n")
    page(desk, "dst", "Process", "## Sub\n")
    error = refused(desk, "src", "A", "dst")
    assert (error.fields["reason"], error.fields["link"]) == ("link_would_change", "[own](#sub)")


def test_a_link_of_the_source_to_a_heading_that_would_leave_it_is_refused(desk: Desk) -> None:
    page(desk, "src", "OpenClaw", "# Top\n\n[a](#a) [sub](#sub)\n\n# A\n\n## Sub\n")
    error = refused(desk, "src", "A", NEW)
    assert error.fields["link"] == "[sub](#sub)"


@pytest.mark.parametrize(
    ("section", "destination", "link"),
    [
        ("[a][r]\n", "Start.\n", "[a][r]"),  # its definition stays on the source
        ("[r]\n", "[r]: /other.md\n", "[r]"),  # and the destination has another
        ("[t](x.md)\n", "```\nopen\n", "[t](x.md)"),
        ("[t](x.md)\n", "<!-- open\n", "[t](x.md)"),
        ("[foo]\n", "[foo]: /x.md\n", "[foo]"),
    ],
)
def test_any_link_that_would_lead_elsewhere_in_the_complete_destination_rejects_the_request_and_is_named(
    desk: Desk, section: str, destination: str, link: str
) -> None:
    page(desk, "src", "OpenClaw", f"[[dst]]\n\n# A\n\n{section}\n# B\n\n[r]: /one.md\n")
    page(desk, "dst", "Process", destination)
    error = refused(desk, "src", "A", "dst")
    assert (error.fields["reason"], error.fields["link"]) == ("link_would_change", link)
    assert link in error.message


@pytest.mark.parametrize("html", ['<a href="x.md">y</a>', '<img src="p.png">', "<div>\n<a href='x.md'>\n</div>"])
def test_a_relative_raw_html_link_is_refused_when_the_folders_differ(desk: Desk, html: str) -> None:
    page(desk, "src", "OpenClaw", f"# A\n\n{html}\n", folder="projects/deep")
    assert refused(desk, "src", "A", NEW).fields["reason"] == "html_link"
    page(desk, "near", "Near", f"# A\n\n{html}\n")
    assert "items" in extract(desk, "near", "A", NEW)


def test_an_absolute_raw_html_link_moves(desk: Desk) -> None:
    page(desk, "src", "OpenClaw", '# A\n\n<a href="https://x.y">y</a> <img src="/p.png">\n', folder="deep")
    assert "items" in extract(desk, "src", "A", NEW)


def test_a_link_by_a_name_that_the_new_page_would_bear_too_is_refused(desk: Desk) -> None:
    page(desk, "other", "Release Process", "x\n", type="person")
    page(desk, "src", "OpenClaw", "# A\n\nSee [[release process]].\n")
    error = refused(desk, "src", "A", NEW)
    assert (error.fields["field"], error.fields["link"]) == ("destination.title", "[[release process]]")


@pytest.mark.parametrize("summary", ["# Heading", "```\nopen", "<!-- open", "Two\n==="])
def test_a_summary_that_would_hide_the_pointer_or_begin_a_section_is_refused(desk: Desk, summary: str) -> None:
    page(desk, "src", "OpenClaw", "# A\n\ntext\n")
    error = refused(desk, "src", "A", NEW, summary=summary)
    assert (error.fields["field"], error.fields["reason"]) == ("summary", "summary")


@pytest.mark.parametrize("shift", [1, -1, 3, 10_000])
def test_an_offset_that_is_no_heading_line_is_refused(desk: Desk, shift: int) -> None:
    page(desk, "src", "OpenClaw", "Intro 😀.\n\n# A\n\ntext\n")
    given = arguments(desk, "src", "A", NEW)
    start = given["sectionStart"]
    assert isinstance(start, int)
    error = desk.fails("extract_section", {**given, "sectionStart": start + shift})
    assert (error.fields["field"], error.fields["reason"]) == ("sectionStart", "no_section")


# --- the destination ------------------------------------------------------------------------------------------------


def relationship(desk: Desk, one: str, other: str) -> None:
    keys: JsonObject = {
        "from": one, "to": other, "label": "related_to", "assertion_origin": "source", "attribution": "somebody",
        "evidence": [{"path": f"artifacts/{request_id(900)}/excerpt.txt", "sha256": "0" * 64}],
    }  # fmt: skip
    text = record_file("relationship", "rel", "Related", "", PRIVATE, RECORDED, keys)
    write_note(desk.folder(), "relationships/rel.md", text)


@pytest.mark.parametrize("connection", ["source links", "destination links", "relationship", "relationship back"])
def test_an_existing_destination_is_connected_by_a_body_link_either_way_or_a_typed_relationship(
    desk: Desk, connection: str
) -> None:
    links = connection.endswith("links")
    page(desk, "src", "OpenClaw", f"{'[[dst]]' if connection == 'source links' else ''}\n\n# A\n\ntext\n")
    page(desk, "dst", "Process", f"{'[s](src.md)' if connection == 'destination links' else 'x'}\n")
    if not links:
        assert refused(desk, "src", "A", "dst").fields["reason"] == "not_connected"
        relationship(desk, *(("src", "dst") if connection == "relationship" else ("dst", "src")))
    assert items_of(extract(desk, "src", "A", "dst"))[0]["id"] == "dst"


def test_the_source_itself_is_no_destination(desk: Desk) -> None:
    page(desk, "src", "OpenClaw", "# A\n\ntext\n")
    assert refused(desk, "src", "A", "src").fields["reason"] == "same_page"


def test_a_new_page_whose_title_an_active_page_of_the_type_has_is_rejected_unless_allowed(desk: Desk) -> None:
    page(desk, "other", "Other", "x\n", aliases=["release  PROCESS"])
    page(desk, "src", "OpenClaw", "# A\n\ntext\n")
    before = files_of(desk)
    answer = extract(desk, "src", "A", NEW)
    assert (answer["state"], answer["reason"], answer["id"]) == ("rejected", "same_title", "")
    assert isinstance(answer["existing"], dict)
    assert answer["existing"]["id"] == "other"
    assert files_of(desk) == before
    assert "items" in extract(desk, "src", "A", {**NEW, "allowSameTitle": True})


def test_a_new_page_has_the_title_type_and_aliases_and_lies_in_its_types_folder(desk: Desk) -> None:
    page(desk, "src", "OpenClaw", "# A\n\ntext\n")
    made = desk.record(new_id(extract(desk, "src", "A", {**NEW, "aliases": ["Releases"]})))
    assert (made["title"], made["type"], made["aliases"], made["revision"]) == (
        "Release process", "project", ["Releases"], 1,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("destination", "field"),
    [
        ({}, "destination.title"),
        ({"title": "A"}, "destination.type"),
        ({"title": "A", "type": "project", "expectedRevision": 1}, "destination.expectedRevision"),
        ({"id": "x", "expectedRevision": 1}, "destination.expectedHash"),
        ({"id": "x", "expectedRevision": 1, "expectedHash": "0" * 16, "title": "A"}, "destination.title"),
        ({"id": "x", "expectedRevision": 1, "expectedHash": "0" * 16, "allowSameTitle": True},
         "destination.allowSameTitle"),
    ],
)  # fmt: skip
def test_a_destination_is_either_a_new_page_or_an_existing_one(desk: Desk, destination: JsonObject, field: str) -> None:
    page(desk, "src", "OpenClaw", "# A\n\ntext\n")
    assert refused(desk, "src", "A", destination).fields["field"] == field


def test_the_destinations_own_budget_applies(desk: Desk) -> None:
    page(desk, "src", "OpenClaw", "[[dst]]\n\n# A\n\n" + "a" * 10_000 + "\n")
    page(desk, "dst", "Process", "# Old\n\n" + "d" * 14_500 + "\n")
    before = files_of(desk)
    answer = extract(desk, "src", "A", "dst")
    assert (answer["state"], answer["reason"], answer["id"]) == ("rejected", "budget", "dst")
    assert files_of(desk) == before
    budget = answer["budget"]
    assert isinstance(budget, dict)
    assert isinstance(budget["pages"], list)
    [shown] = budget["pages"]
    assert isinstance(shown, dict)
    assert (shown["budgetChars"], shown["attemptedChars"]) == (24_000, 24_515)
    rejected = extract(desk, "src", "A", NEW)
    assert "items" in rejected


def test_a_section_beyond_a_new_pages_budget_is_rejected_with_an_empty_target(desk: Desk) -> None:
    page(desk, "src", "OpenClaw", "# A\n\n" + "a" * 25_000 + "\n")
    answer = extract(desk, "src", "A", NEW)
    assert [answer[key] for key in ("state", "reason", "id", "path", "revision", "hash")] == [
        "rejected", "budget", "", "", 0, "",
    ]  # fmt: skip


# --- evidence -------------------------------------------------------------------------------------------------------


def cited(name: str, **more: JsonValue) -> JsonObject:
    return {"path": f"artifacts/{request_id(900)}/{name}", "sha256": content_hash(name.encode()), **more}


def test_evidence_whose_quote_retained_path_or_filename_appears_in_the_section_is_copied_and_the_source_keeps_all(
    desk: Desk,
) -> None:
    evidence = [
        cited("one.txt", quote="ships\non Friday"),
        cited("two.txt"),
        cited("three.txt", filename="minutes.pdf"),
        cited("four.txt", quote="never said", filename="other.pdf"),
    ]
    body = f"Intro.\n\n# A\n\nIt ships\non Friday ({evidence[1]['path']}), see minutes.pdf.\n\n# B\n\nother.pdf\n"
    page(desk, "src", "OpenClaw", body, evidence=[*evidence])
    receipt = extract(desk, "src", "A", NEW)
    assert evidence_of(desk, new_id(receipt)) == [one["path"] for one in evidence[:3]]
    assert evidence_of(desk, "src") == [one["path"] for one in evidence]


def test_evidence_that_the_destination_has_already_is_not_copied_twice(desk: Desk) -> None:
    one = cited("one.txt", filename="minutes.pdf")
    page(desk, "src", "OpenClaw", "[[dst]]\n\n# A\n\nminutes.pdf\n", evidence=[one])
    page(desk, "dst", "Process", "x\n", evidence=[one])
    extract(desk, "src", "A", "dst")
    assert evidence_of(desk, "dst") == [one["path"]]


def test_evidence_adds_more_and_is_verified_as_attachments_are(desk: Desk) -> None:
    remembered = items_of(desk.remember("It ships on Friday."))[0]
    found = desk.record(remembered["id"], includeEvidence=True)["evidence"]
    assert isinstance(found, list)
    [retained] = found
    assert isinstance(retained, dict)
    page(desk, "src", "OpenClaw", "# A\n\ntext\n")
    given: JsonObject = {"path": retained["path"], "sha256": retained["sha256"], "quote": "ships on Friday"}
    error = desk.fails("extract_section", arguments(desk, "src", "A", NEW, evidence=[{**given, "quote": "no such"}]))
    assert isinstance(error, EvidenceInvalid)
    assert error.fields["field"] == "evidence[0]"
    unknown = desk.fails("extract_section", arguments(desk, "src", "A", NEW, evidence=[cited("nothing.txt")]))
    assert (unknown.fields["field"], unknown.fields["reason"]) == ("evidence[0]", "not_retained")
    receipt = extract(desk, "src", "A", NEW, evidence=[given])
    assert evidence_of(desk, new_id(receipt)) == [retained["path"]]
    assert evidence_of(desk, "src") == []
    assert "evidence" in desk.needs


def evidence_of(desk: Desk, record_id: str) -> list[JsonValue]:
    entry = desk.partition().catalogue.one(record_id)
    assert entry is not None
    return [citation.path for citation in desk.partition().load(entry).evidence]


# --- claims ---------------------------------------------------------------------------------------------------------


def claim(desk: Desk, record_id: str, *entities: str, lifecycle: str = "active") -> None:
    text = claim_file(record_id, f"Claim {record_id} stays.", entities=list(entities), lifecycle=lifecycle)
    write_note(desk.folder(), f"claims/{record_id}.md", text)


def entities_of(desk: Desk, record_id: str) -> tuple[str, ...]:
    entry = desk.partition().catalogue.one(record_id)
    assert entry is not None
    return desk.partition().load(entry).entities


def test_claims_that_the_section_links_to_and_that_name_the_source_get_the_destination_as_first_entity(
    desk: Desk,
) -> None:
    page(desk, "other", "Other", "x\n")
    body = "[[c4]]\n\n# A\n\n[[c1]] [two](../claims/c2.md) [[c3]] `[[c5]]` [[c1|again]]\n"
    page(desk, "src", "OpenClaw", body)
    claim(desk, "c1", "src", "other")
    claim(desk, "c2", "other", "src")
    claim(desk, "c3", "other")
    claim(desk, "c4", "src")
    claim(desk, "c5", "src")
    texts = {name: (desk.folder() / f"claims/{name}.md").read_text("utf-8") for name in ("c1", "c3", "c4", "c5")}
    receipt = extract(desk, "src", "A", NEW)
    made = new_id(receipt)
    assert entities_of(desk, "c1") == (made, "src", "other")
    assert entities_of(desk, "c2") == (made, "other", "src")
    assert [entities_of(desk, name) for name in ("c3", "c4", "c5")] == [("other",), ("src",), ("src",)]
    for name in ("c3", "c4", "c5"):
        assert (desk.folder() / f"claims/{name}.md").read_text("utf-8") == texts[name]
    changed = desk.record("c1")
    assert (changed["text"], changed["revision"]) == ("Claim c1 stays.", 2)
    now = (desk.folder() / "claims/c1.md").read_text("utf-8")
    kept = [line for line in texts["c1"].splitlines() if not line.startswith(("revision", "updated_at", "entities"))]
    assert [line for line in now.splitlines() if line in kept] == kept


def test_claims_that_name_a_page_merged_into_the_source_name_the_source(desk: Desk) -> None:
    page(desk, "src", "OpenClaw", "# A\n\n[[c1]]\n")
    page(desk, "old", "Old", "x\n", lifecycle="merged", merged_into="src")
    claim(desk, "c1", "old")
    made = new_id(extract(desk, "src", "A", NEW))
    assert entities_of(desk, "c1") == (made, "old")


def test_no_claim_gets_more_than_a_hundred_entities(desk: Desk) -> None:
    full = [f"other-{number}" for number in range(99)]
    write_note(desk.folder(), "claims/full.md", claim_file("full", "Full.", entities=["source", *full]))
    page(desk, "source", "Source", "# A\n\nSee [[full]].\n")
    given = arguments(desk, "source", "A", NEW)
    before = files_of(desk)
    error = desk.fails("extract_section", given)
    assert isinstance(error, LimitExceeded)
    assert (error.fields["field"], error.fields["id"]) == ("source", "full")
    assert files_of(desk) == before


def test_claims_no_longer_active_stay_as_they_are(desk: Desk) -> None:
    page(desk, "src", "OpenClaw", "# A\n\n[[c1]]\n")
    claim(desk, "c1", "src", lifecycle="withdrawn")
    extract(desk, "src", "A", NEW)
    assert entities_of(desk, "c1") == ("src",)


# --- fences, receipt, publication -----------------------------------------------------------------------------------


def test_all_changed_records_are_one_publication_and_the_receipt_names_source_and_items(desk: Desk) -> None:
    page(desk, "src", "OpenClaw", "# A\n\n[[c1]]\n")
    claim(desk, "c1", "src")
    given = arguments(desk, "src", "A", NEW)
    receipt = desk.call("extract_section", given)
    source = desk.record("src")
    assert (receipt["id"], receipt["revision"], receipt["hash"]) == ("src", 2, source["hash"])
    made = desk.record(new_id(receipt))
    assert items_of(receipt) == [
        {"id": made["id"], "revision": 1, "hash": made["hash"]},
        {"id": "src", "revision": 2, "hash": source["hash"]},
    ]
    assert "state" not in receipt
    complete = desk.call("mutation", {"requestId": given["requestId"]})
    stored = complete["receipt"]
    assert isinstance(stored, dict)
    assert (stored["operation"], stored["targetId"], stored["state"]) == ("extract", "src", "published")
    rows = desk.call("history")["rows"]
    assert isinstance(rows, list)
    ours = [row for row in rows if isinstance(row, dict) and row.get("requestId") == given["requestId"]]
    assert {row["id"] for row in ours} == {"src", made["id"], "c1"}
    assert {row["operation"] for row in ours} == {"extract"}


def test_the_same_request_again_gets_the_same_receipt_and_moves_nothing_twice(desk: Desk) -> None:
    page(desk, "src", "OpenClaw", "# A\n\ntext\n")
    given = arguments(desk, "src", "A", NEW)
    receipt = desk.call("extract_section", given)
    files = files_of(desk)
    assert desk.call("extract_section", given) == receipt
    assert files_of(desk) == files
    error = desk.fails("extract_section", {**given, "summary": "Another."})
    assert isinstance(error, RequestIdReused)


def test_previous_revisions_stay_in_history(desk: Desk) -> None:
    page(desk, "src", "OpenClaw", "# A\n\nthe first text\n")
    extract(desk, "src", "A", NEW)
    rows = desk.call("history", {"id": "src"})["rows"]
    assert isinstance(rows, list)
    first = rows[-1]
    assert isinstance(first, dict)
    text = desk.call("revision", {"id": "src", "sequence": first["sequence"]})["content"]
    assert "the first text" in str(text)


@pytest.mark.parametrize("which", ["source", "destination"])
def test_both_pages_are_fenced_by_revision_and_hash(desk: Desk, which: str) -> None:
    page(desk, "src", "OpenClaw", "[[dst]]\n\n# A\n\ntext\n")
    page(desk, "dst", "Process", "x\n")
    given = arguments(desk, "src", "A", "dst")
    path = desk.path_of("src" if which == "source" else "dst")
    path.write_text(path.read_text("utf-8") + "\nA person's line.\n", "utf-8")
    before = files_of(desk)
    error = desk.fails("extract_section", given)
    assert isinstance(error, StaleFence)
    assert files_of(desk) == before


def test_other_fences_are_the_vaults_and_the_ontologys(desk: Desk) -> None:
    page(desk, "src", "OpenClaw", "# A\n\ntext\n")
    given = arguments(desk, "src", "A", NEW)
    wrong = desk.fails("extract_section", {**given, "expectedVaultId": request_id(1)})
    assert isinstance(wrong, VaultMismatch)
    other = desk.fails("extract_section", {**given, "expectedOntologyFingerprint": "0" * 64})
    assert isinstance(other, OntologyChanged)
    nobody = desk.fails("extract_section", {**given, "source": {**fences(desk, "src"), "id": "nobody"}})
    assert isinstance(nobody, NotFound)
    assert nobody.fields["field"] == "source.id"


def test_a_failure_before_acceptance_leaves_every_file_unchanged(desk: Desk) -> None:
    page(desk, "src", "OpenClaw", "# A\n\ntext\n")
    given = arguments(desk, "src", "A", NEW)
    before = files_of(desk)

    def fail(point: str) -> None:
        if point == "accept.commit":
            raise OSError(28, "No space left on device")

    with faults.installed(fail), pytest.raises(StorageError):
        desk.call("extract_section", given)
    assert files_of(desk) == before
    assert "items" in desk.call("extract_section", given)


def test_an_extraction_makes_room_for_the_rejected_write(desk: Desk) -> None:
    """The way out that a budget rejection names works."""
    big = desk.page("OpenClaw", body="# Intro\n\nx\n\n# Releases\n\n" + "r" * 20_000 + "\n\n# Rest\n\n" + "s" * 3_900)
    page_id = str(big["id"])
    found = desk.record(page_id)
    start = len(body_of(desk, page_id))
    edit: JsonObject = {
        "requestId": request_id(next(_NEXT)), "id": page_id, "expectedRevision": found["revision"],
        "expectedHash": found["hash"], "expectedVaultId": desk.call("status")["vaultId"],
        "expectedOntologyFingerprint": desk.call("status")["ontologyFingerprint"], "start": start, "end": start,
        "replacement": "more " * 100, "reason": "a test",
    }  # fmt: skip
    rejection = desk.call("edit_body", edit)
    assert rejection["state"] == "rejected"
    receipt = extract(desk, page_id, "Releases", NEW)
    end = len(body_of(desk, page_id))
    again = {**edit, "expectedRevision": receipt["revision"], "expectedHash": receipt["hash"], "start": end, "end": end}
    assert desk.call("edit_body", again)["revision"] == 3

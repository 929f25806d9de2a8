"""Agent tools return what tools.md lists and nothing more (Agent response shapes): exact keys of every read."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

from messages.json_types import JsonObject, JsonValue
from messages.text import utf16_length
from messages.tools import GitState
from messages.vocabulary import PRIVATE
from storage.layout import StoreLayout
from tests.kit.desk_fixtures import made_store
from tests.kit.store import (
    Desk,
    claim_file,
    copy_store,
    items_of,
    page_file,
    record_file,
    remembering,
    request_id,
    write_note,
    write_notes,
)

__all__ = ["made_store"]

FACE = "\N{SLIGHTLY SMILING FACE}"
RECORDED = "2026-10-01T10:00:00.000Z"
CITED: list[JsonValue] = [{"path": f"artifacts/{request_id(900)}/excerpt.txt", "sha256": "0" * 64}]


def relationship(record_id: str, **keys: JsonValue) -> str:
    given: JsonObject = {"from": "ada", "to": "acme", "label": "works_at", "assertion_origin": "source",
                         "attribution": "somebody", "evidence": CITED}  # fmt: skip
    return record_file("relationship", record_id, "works at", "", PRIVATE, RECORDED, {**given, **keys})


def notes() -> Iterator[tuple[str, str]]:
    """A plain record of each kind, and one that has everything which its kind may have."""
    yield "people/ada.md", page_file("ada", "Ada Byron", type="person", body="She wrote notes. See [[Acme]].\n")
    yield "acme.md", page_file(
        "acme", "Acme", type="company", aliases=["The works"], tags=["t"], dependencies=["ada"],
        fields={"industry": ""},
    )  # fmt: skip
    yield "pilot.md", page_file(
        "pilot", "Pilot", fields={"status": "active"}, identity_uncertainty="Perhaps two.", evidence=CITED,
        attribution_confidence="low", continuity=["ada"],
        recall={"summary": "s", "triggers": [], "importance": 5, "projects": []}, mine="kept",
    )  # fmt: skip
    yield "c/plain.md", claim_file("plain", "It rained.")
    yield "c/full.md", claim_file(
        "full", "Ships on Friday.", claim_kind="commitment", assertion_origin="user_belief", entities=["acme"],
        owner="ada", occurred_at="2026-10-02", due_at="2026-10-09", expires_at="2027-01-01", source_page="pilot",
        subject_hint="release", dependencies=["pilot"], tags=["c"], supersedes="was", title="A commitment to ship",
        attribution_confidence="high",
    )  # fmt: skip
    yield "c/was.md", claim_file("was", "Ships on Thursday.", lifecycle="superseded", superseded_by="full",
                                 entities=["acme"])  # fmt: skip
    yield "r/plain.md", relationship("tie")
    yield "r/full.md", relationship("belief", assertion_origin="user_belief", fields={"since": "2020"})


@pytest.fixture(scope="module")
def desk(made_store: StoreLayout, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Desk]:
    opened = Desk(copy_store(made_store, tmp_path_factory.mktemp("shapes") / "store"))
    write_notes(opened.folder(), notes())
    yield opened
    opened.close()


@pytest.fixture
def own(made_store: StoreLayout, tmp_path: Path) -> Iterator[Desk]:
    opened = Desk(copy_store(made_store, tmp_path / "store"))
    yield opened
    opened.close()


def listed(answer: JsonObject, key: str) -> list[JsonObject]:
    found = answer[key]
    assert isinstance(found, list)
    return [row for row in found if isinstance(row, dict)]


def by_id(answer: JsonObject, key: str) -> dict[JsonValue, JsonObject]:
    return {row["id"]: row for row in listed(answer, key)}


ROW = {"id", "revision", "hash", "kind"}
ROWS = {
    "ada": ROW | {"title", "type"},
    "acme": ROW | {"title", "type"},
    "pilot": ROW | {"title", "type"},
    "plain": ROW | {"claimKind", "day", "text"},
    "full": ROW | {"claimKind", "day", "text", "assertionOrigin", "pages", "sourcePage"},
    "tie": ROW | {"from", "label", "to"},
    "belief": ROW | {"from", "label", "to", "assertionOrigin"},
}
SUPERSEDED = ROW | {"claimKind", "day", "text", "pages", "lifecycle"}


# --- list rows --------------------------------------------------------------------------------------------------------


def test_list_rows_carry_the_id_revision_and_the_first_16_characters_of_the_hash(desk: Desk) -> None:
    for record_id, row in by_id(desk.call("records", {"limit": 100}), "records").items():
        full = desk.record(record_id)["hash"]
        assert (row["revision"], row["hash"]) == (1, str(full)[:16])


def test_rows_of_the_inventory_have_exactly_these_keys(desk: Desk) -> None:
    answer = desk.call("records", {"limit": 100})
    assert answer.keys() == {"total", "records"}
    assert {name: set(row) for name, row in by_id(answer, "records").items()} == ROWS
    every = by_id(desk.call("records", {"limit": 100, "lifecycle": "all"}), "records")
    assert {name: set(row) for name, row in every.items()} == {**ROWS, "was": SUPERSEDED}


def test_lifecycle_and_assertion_origin_appear_only_when_not_active_or_source(desk: Desk) -> None:
    rows = by_id(desk.call("records", {"limit": 100, "lifecycle": "all"}), "records")
    assert {name: row["lifecycle"] for name, row in rows.items() if "lifecycle" in row} == {"was": "superseded"}
    origins = {name: row["assertionOrigin"] for name, row in rows.items() if "assertionOrigin" in row}
    assert origins == {"full": "user_belief", "belief": "user_belief"}


def test_a_claims_one_day_is_its_occurrence_else_when_it_was_recorded(desk: Desk) -> None:
    rows = by_id(desk.call("records", {"kind": "claim"}), "records")
    assert (rows["full"]["day"], rows["plain"]["day"]) == ("2026-10-02", "2026-10-01")


def test_rows_of_connections_are_the_direction_and_the_list_row(desk: Desk) -> None:
    answer = desk.call("connections", {"id": "acme", "historical": True})
    assert answer.keys() == {"total", "connections"}
    shown = {(row["direction"], row["id"]): set(row) - {"direction"} for row in listed(answer, "connections")}
    assert shown == {
        ("incoming", "tie"): ROWS["tie"],
        ("incoming", "belief"): ROWS["belief"],
        ("claims", "full"): ROWS["full"],
        ("claims", "was"): SUPERSEDED,
        ("backlinks", "ada"): ROWS["ada"],
    }


def test_rows_of_timelines_are_the_date_and_the_list_row(desk: Desk) -> None:
    for tool, arguments in (("timeline", {"limit": 100}), ("chronicle_day", {"date": "2026-10-01"})):
        answer = desk.call(tool, arguments)
        assert answer.keys() == {"total", "entries"}
        for name, row in by_id(answer, "entries").items():
            assert set(row) == ROWS[str(name)] | {"date"}
    days = desk.call("chronicle_days", {"since": "2026-10-01", "until": "2026-10-03"})
    assert days == {"days": [{"day": "2026-10-01", "page": 3, "claim": 1, "relationship": 2},
                             {"day": "2026-10-02", "claim": 1}]}  # fmt: skip
    due = desk.call("chronicle_due", {"asOf": "2026-10-08"})
    assert due.keys() == {"asOf", "totals", "overdue", "due", "upcoming"}
    assert [set(row) for row in listed(due, "upcoming")] == [ROWS["full"] | {"due", "owner"}]


def test_search_hits_are_list_rows_with_a_snippet_and_claims_omit_the_title_their_text_repeats(desk: Desk) -> None:
    answer = desk.call("grep", {"query": "ships rained wrote works", "mode": "any"})
    assert answer.keys() == {"total", "hits"}
    shown = {name: set(row) - {"snippet"} for name, row in by_id(answer, "hits").items()}
    assert shown == {
        "ada": ROWS["ada"],
        "acme": ROWS["acme"],
        "plain": ROWS["plain"],
        "full": ROWS["full"] | {"title"},
        "tie": ROWS["tie"],
        "belief": ROWS["belief"],
    }
    assert all("snippet" in row for row in listed(answer, "hits"))
    [replaced] = listed(desk.call("grep", {"query": "thursday"}), "hits")
    assert set(replaced) == ROWS["full"] | {"title", "snippet", "via"}


def test_lookup_hits_are_list_rows_without_a_snippet(desk: Desk) -> None:
    answer = desk.call("lookup", {"query": "The works"})
    assert answer.keys() == {"state", "total", "hits"}
    assert [set(row) for row in listed(answer, "hits")] == [ROWS["acme"]]


# --- single records ---------------------------------------------------------------------------------------------------


def test_a_single_record_returns_the_full_hash_and_exactly_what_its_kind_has(desk: Desk) -> None:
    page = ROW | {"title", "type", "body"}
    claim = ROW | {"claimKind", "attribution", "text"}
    assert {name: set(desk.record(name)) for name in (*ROWS, "was")} == {
        "ada": page,
        "acme": page | {"aliases", "tags", "dependencies"},  # an empty field is left out
        # The approval is no one's: it is an issue, and never shown.
        "pilot": page | {"fields", "identityUncertainty", "issues"},
        "plain": claim,
        "full": claim | {
            "assertionOrigin", "occurredAt", "dueAt", "expiresAt", "owner", "pages", "sourcePage", "subjectHint",
            "dependencies", "tags", "supersedes",
        },
        "tie": ROW | {"title", "from", "label", "to", "attribution", "body"},
        "belief": ROW | {"title", "from", "label", "to", "attribution", "body", "assertionOrigin", "fields"},
        "was": claim | {"lifecycle", "supersededBy", "pages"},
    }  # fmt: skip
    assert len(str(desk.record("ada")["hash"])) == 64


def test_there_is_no_full_mode(desk: Desk) -> None:
    for tool in ("record", "records", "connections", "grep", "lookup", "timeline", "history"):
        for argument in ("full", "mode", "verbose", "complete", "path"):
            if (tool, argument) == ("grep", "mode"):
                continue
            needed: JsonObject = {"query": "ada"} if tool in ("grep", "lookup") else {}
            if tool in ("record", "connections"):
                needed = {"id": "ada"}
            assert desk.fails(tool, {**needed, argument: True}).fields["field"] == argument


def test_evidence_is_asked_for_and_shows_locators_and_excerpts(own: Desk) -> None:
    claim = items_of(own.remember("One."))[0]["id"]
    assert "evidence" not in own.record(claim)
    [citation] = listed(own.record(claim, includeEvidence=True), "evidence")
    assert citation.keys() == {
        "path", "sha256", "attribution", "filename", "media_type", "start_line", "end_line", "excerpt",
    }  # fmt: skip


def test_a_missing_record_has_no_other_member(desk: Desk) -> None:
    assert desk.call("record", {"id": "nobody"}) == {"record": None}


# --- paging and coverage ----------------------------------------------------------------------------------------------

PAGED: Final[tuple[tuple[str, JsonObject, str], ...]] = (
    ("records", {"lifecycle": "all"}, "records"),
    ("connections", {"id": "acme", "historical": True}, "connections"),
    ("timeline", {}, "entries"),
    ("grep", {"query": "ships rained wrote works", "mode": "any"}, "hits"),
)


@pytest.mark.parametrize(("tool", "arguments", "key"), PAGED)
def test_next_offset_appears_only_while_another_page_remains_and_snapshot_only_when_paging(
    desk: Desk, tool: str, arguments: JsonObject, key: str
) -> None:
    whole = desk.call(tool, {**arguments, "limit": 50})
    assert whole.keys() == {"total", key}
    number = len(listed(whole, key))
    first = desk.call(tool, {**arguments, "limit": 1})
    assert first.keys() == {"total", "nextOffset", "snapshot", key}
    last = desk.call(tool, {**arguments, "limit": 1, "offset": number - 1})
    assert last.keys() == {"total", "snapshot", key}
    assert last["snapshot"] == first["snapshot"]


def test_lookup_pages_with_a_snapshot_to_compare(own: Desk) -> None:
    write_notes(own.folder(), ((f"{n}.md", page_file(f"m{n}", "Mercury")) for n in range(3)))
    first = own.call("lookup", {"query": "Mercury", "limit": 2})
    last = own.call("lookup", {"query": "Mercury", "limit": 2, "offset": 2})
    assert first.keys() == {"state", "total", "nextOffset", "snapshot", "hits"}
    assert last.keys() == {"state", "total", "snapshot", "hits"}
    assert first["snapshot"] == last["snapshot"]


@pytest.mark.parametrize(
    ("tool", "arguments"),
    [
        ("records", {}),
        ("lookup", {"query": "Ada"}),
        ("grep", {"query": "ada"}),
        ("timeline", {}),
        ("chronicle_day", {"date": "2026-10-01"}),
        ("chronicle_days", {"since": "2026-10-01", "until": "2026-10-03"}),
        ("chronicle_due", {}),
        ("connections", {"id": "ada"}),
    ],
)
def test_coverage_appears_only_when_incomplete(own: Desk, tool: str, arguments: JsonObject) -> None:
    write_note(own.folder(), "ada.md", page_file("ada", "Ada"))
    assert "coverage" not in own.call(tool, arguments)
    write_note(own.folder(), "torn.md", "---\nformat: [\n---\n")
    assert own.call(tool, arguments)["coverage"] == {"broken": 1}


def test_a_failed_retrieval_is_not_zero_matches(own: Desk) -> None:
    own.index_problem = "It is being rebuilt."
    assert own.call("grep", {"query": "x"}) == {
        "index": {"state": "unavailable", "reason": "It is being rebuilt."},
        "total": None,
        "hits": [],
    }


# --- status, history, receipts ----------------------------------------------------------------------------------------


def test_status_has_exactly_these_keys(own: Desk) -> None:
    assert own.call("status").keys() == {
        "vaultId", "partition", "writesEnabled", "live", "ontologyFingerprint", "counts", "publications", "git",
        "index",
    }  # fmt: skip


def test_write_receipts_return_the_fences_of_the_next_write(own: Desk) -> None:
    plain = {"id", "revision", "hash", "ontologyFingerprint"}
    page = own.page("Pilot")
    assert page.keys() == plain
    assert len(str(page["hash"])) == 64
    saved = own.remember("One.")
    assert saved.keys() == {"ontologyFingerprint", "items"}
    assert [item.keys() for item in items_of(saved)] == [{"id", "revision", "hash", "subject"}]
    own.git = GitState("unavailable", 3, "Git is off.")
    assert own.page("Other").keys() == plain | {"git"}
    own.git = GitState("pending", 1)
    assert own.page("Third").keys() == plain


def test_mutation_returns_the_complete_receipt(own: Desk) -> None:
    own.page("Pilot", requestId=request_id(7))
    answer = own.call("mutation", {"requestId": request_id(7), "includeFiles": False})
    assert answer.keys() == {"receipt", "git"}
    receipt = answer["receipt"]
    assert isinstance(receipt, dict)
    assert receipt.keys() == {
        "requestId", "operation", "state", "id", "revision", "hash", "path", "at", "ontologyFingerprint", "indexed",
    }  # fmt: skip
    assert receipt["indexed"] is False


def test_history_rows_and_revisions_have_exactly_these_keys(own: Desk) -> None:
    page = own.page("Pilot")
    ours = {"sequence", "requestId", "operation", "id", "revision", "hash", "at", "actor", "path"}
    answer = own.call("history", {"id": page["id"]})
    assert answer.keys() == {"total", "git", "rows"}
    assert [set(row) for row in listed(answer, "rows")] == [ours]
    path = own.path_of(str(page["id"]))
    path.write_text(path.read_text("utf-8") + "By hand.\n", "utf-8")
    newest = listed(own.call("history", {"id": page["id"]}), "rows")[0]
    assert set(newest) == ours - {"requestId"} | {"external"}
    shown = own.call("revision", {"id": page["id"], "sequence": newest["sequence"]})
    assert set(shown) == set(newest) | {"content"}


def test_every_view_of_the_ontology_has_exactly_these_keys(desk: Desk) -> None:
    catalog = desk.call("ontology", {"kind": "page", "limit": 2})
    assert catalog.keys() == {"fingerprint", "total", "nextOffset", "types"}
    assert [set(row) for row in listed(catalog, "types")] == [
        {"kind", "name", "description", "abstract"}, {"kind", "name", "description", "parent"},
    ]  # fmt: skip
    asked: JsonObject = {"view": "definitions", "name": "project", "includeRecords": True}
    definitions = desk.call("ontology", asked)
    assert definitions.keys() == {"fingerprint", "total", "definitions"}
    [project] = listed(definitions, "definitions")
    assert project["records"] == [{"id": "pilot", "title": "Pilot"}]
    assert project["recordsTruncated"] is False
    assert "records" not in listed(desk.call("ontology", {**asked, "includeRecords": False}), "definitions")[0]
    sources = desk.call("ontology", {"view": "sources"})
    assert [set(row) for row in listed(sources, "sources")] == [{"path", "valid", "size"}]
    path = listed(sources, "sources")[0]["path"]
    text = desk.call("ontology", {"view": "sources", "sourcePath": path, "maxChars": 256})
    assert text.keys() == {"fingerprint", "path", "valid", "size", "nextOffset", "text"}
    issues = desk.call("ontology", {"view": "diagnostics"})
    assert issues.keys() == {"active", "fingerprint", "total", "issues"}


def test_sources_and_checks_have_exactly_these_keys(own: Desk) -> None:
    claim = items_of(own.remember("One."))[0]["id"]
    [cited] = listed(own.record(claim, includeEvidence=True), "evidence")
    source: JsonObject = {"id": claim, "path": cited["path"], "sha256": cited["sha256"]}
    assert own.call("evidence_read", source).keys() == {"text", "startLine", "endLine"}
    assert own.call("attachment", {**source, "offset": 0}).keys() == {"data", "offset", "size", "nextOffset"}
    page = own.page("Pilot", body=f"See [[{claim}]].")["id"]
    answer = own.call("verify", {"ids": [page], "expectedLinks": [{"from": page, "to": claim}]})
    assert answer.keys() == {"total", "records", "links"}
    assert [set(row) for row in listed(answer, "records")] == [ROW | {"state", "links"}]
    assert [set(row) for row in listed(answer, "links")] == [{"from", "to", "state"}]
    checked = own.call("source_check", {"sources": [{"key": "k"}]})
    assert checked.keys() == {"total", "counts", "sources"}
    assert [set(row) for row in listed(checked, "sources")] == [{"state", "key"}]


# --- previews never split a surrogate pair ---------------------------------------------------------------------------


def whole(text: JsonValue) -> str:
    assert isinstance(text, str)
    text.encode("utf-8")  # half a pair has no UTF-8
    return text


def test_a_preview_preserves_surrogate_pairs_and_may_stop_one_unit_before_its_cap(own: Desk) -> None:
    text = "x" + FACE * 3_000
    write_notes(
        own.folder(),
        [
            ("t.md", page_file("titled", "y" + FACE * 300)),
            ("c.md", claim_file("long", text, occurred_at="2026-10-02", due_at="2026-10-03", claim_kind="commitment")),
        ],
    )
    for answer, key in (
        (own.call("records", {"kind": "claim"}), "records"),
        (own.call("timeline", {"kind": "claim"}), "entries"),
        (own.call("chronicle_due", {"asOf": "2026-10-03"}), "due"),
        (own.call("lookup", {"query": "long"}), "hits"),
    ):
        [row] = listed(answer, key)
        assert row["truncated"] is True
        assert utf16_length(whole(row["text"])) == 3_999
    [row] = listed(own.call("records", {"kind": "page"}), "records")
    assert utf16_length(whole(row["title"])) == 199


def test_an_evidence_excerpt_preserves_pairs_and_later_lines_do_not_fill_the_gap(own: Desk) -> None:
    quoted = "x" + FACE * 2_500 + "\nlater line"
    claim = items_of(own.call("remember", {**remembering("One."), "excerpt": quoted}))[0]["id"]
    [citation] = listed(own.record(claim, includeEvidence=True, maxChars=48_000), "evidence")
    assert whole(citation["excerpt"]) == "x" + FACE * 1_999


def test_a_snippet_preserves_surrogate_pairs(own: Desk) -> None:
    own.page("Faces", body=f"word {FACE * 500}")
    for query in ("word", "faces"):
        [hit] = listed(own.call("grep", {"query": query}), "hits")
        assert utf16_length(whole(hit["snippet"])) <= 240

"""Operators' reads: complete shapes of the same operations, on a real store without a thread."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

from messages.errors import DeletionsRefused, InvalidArgument, NotFound, SnapshotChanged
from messages.json_types import JsonObject, JsonValue
from messages.operator import LOCAL_OPERATOR, OPERATOR_METHODS, parse_operator_call
from messages.text import utf16_length
from messages.tools import json_bytes
from messages.tools.cards import CARD_MAX_BYTES, CARD_MAX_VALUES, values_in
from messages.tools.operator_reads import OPERATOR_READS
from storage import faults
from storage.layout import StoreLayout
from tests.actors.store.test_agent_shapes import FACE, by_id, listed, notes, relationship, whole
from tests.kit.desk_fixtures import made_store
from tests.kit.store import (
    GROUP_PARTITION,
    Desk,
    claim_file,
    copy_store,
    items_of,
    page_file,
    request_id,
    write_note,
    write_notes,
)

__all__ = ["made_store"]

STATE = {"lifecycle", "current", "valid", "expired", "fixture"}
CARD = {"id", "revision", "hash", "kind", "title", "recordedAt", "updatedAt", "path", "evidenceTotal"} | STATE
CARDS = {
    "ada": CARD | {"type", "bodyChars", "preview"},
    "acme": CARD | {"type", "bodyChars", "preview", "aliases", "tags", "dependencies", "fields"},
    "pilot": CARD | {"type", "bodyChars", "preview", "fields", "evidence"},
    "plain": CARD | {"claimKind", "assertionOrigin", "day", "attribution", "text", "evidence"},
    "full": CARD | {
        "claimKind", "assertionOrigin", "day", "attribution", "text", "evidence", "subjectHint", "occurredAt", "dueAt",
        "expiresAt", "owner", "pages", "sourcePage", "tags", "dependencies", "supersedes",
    },
    "tie": CARD | {"from", "label", "to", "assertionOrigin", "attribution", "evidence"},
    "belief": CARD | {"from", "label", "to", "assertionOrigin", "attribution", "evidence", "fields"},
}  # fmt: skip
PAGE = {"total", "nextOffset", "snapshot", "coverage"}


@pytest.fixture(scope="module")
def desk(made_store: StoreLayout, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Desk]:
    opened = Desk(copy_store(made_store, tmp_path_factory.mktemp("complete") / "store"))
    write_notes(opened.folder(), notes())
    yield opened
    opened.close()


@pytest.fixture
def own(made_store: StoreLayout, tmp_path: Path) -> Iterator[Desk]:
    opened = Desk(copy_store(made_store, tmp_path / "store"))
    yield opened
    opened.close()


def refused(desk: Desk, method: str, params: JsonObject) -> InvalidArgument:
    with pytest.raises(InvalidArgument) as caught:
        desk.operate(method, params)
    return caught.value


def complete(desk: Desk, record_id: JsonValue, **more: JsonValue) -> JsonObject:
    found = desk.operate("record", {"id": record_id, **more})["record"]
    assert isinstance(found, dict)
    return found


# --- lists ------------------------------------------------------------------------------------------------------------


def test_cards_have_exactly_these_keys_the_whole_hash_and_the_path(desk: Desk) -> None:
    answer = desk.operate("records")
    assert answer.keys() == PAGE | {"records"}
    assert (answer["nextOffset"], answer["coverage"]) == (None, {})
    cards = by_id(answer, "records")
    assert {name: set(card) for name, card in cards.items()} == CARDS
    assert all(len(str(card["hash"])) == 64 for card in cards.values())
    assert cards["ada"]["path"] == "people/ada.md"
    assert cards["full"]["sourcePage"] == {"id": "pilot", "title": "Pilot"}
    assert cards["tie"]["from"] == {"id": "ada", "title": "Ada Byron"}


def test_every_list_is_made_of_cards(desk: Desk) -> None:
    for method, params, key, more in (
        ("recent", {}, "records", set()),
        ("timeline", {"limit": 100}, "entries", {"date"}),
        ("chronicleDay", {"date": "2026-10-01"}, "entries", {"date"}),
        ("search", {"query": "ships rained wrote", "mode": "any"}, "hits", {"snippet"}),
        ("lookup", {"query": "Acme"}, "hits", set()),
    ):  # fmt: skip
        answer = desk.operate(method, params)
        assert answer.keys() - {"state"} == PAGE | {key}
        assert listed(answer, key)
        for name, card in by_id(answer, key).items():
            assert set(card) == CARDS[str(name)] | more, method
    due = desk.operate("chronicleDue", {"asOf": "2026-10-08"})
    assert [set(card) for card in listed(due, "upcoming")] == [CARDS["full"] | {"due"}]
    days: JsonObject = {"since": "2026-10-01", "until": "2026-10-03"}
    assert desk.operate("chronicleDays", days) == {**desk.call("chronicle_days", days), "coverage": {}}


def test_operators_get_twenty_hits_by_default_and_agents_ten(own: Desk) -> None:
    write_notes(own.folder(), ((f"{n}.md", page_file(f"m{n}", "Mercury")) for n in range(25)))
    for tool, method in (("grep", "search"), ("lookup", "lookup")):
        assert len(listed(own.call(tool, {"query": "mercury"}), "hits")) == 10
        assert len(listed(own.operate(method, {"query": "mercury"}), "hits")) == 20


def test_linked_claims_come_with_their_evidence(own: Desk) -> None:
    page = own.page("Pilot")["id"]
    own.remember({"text": "Option B was chosen.", "kind": "decision", "subject": "Pilot"})
    [claim] = listed(own.operate("connections", {"id": page, "direction": "claims"}), "connections")
    [citation] = listed(claim, "evidence")
    assert (claim["evidenceTotal"], citation["filename"], citation["start_line"]) == (1, "excerpt.txt", 1)


def test_recent_shows_what_was_updated_last_first_and_goes_on_from_its_snapshot(own: Desk) -> None:
    first, second = own.page("First")["id"], own.page("Second")["id"]
    own.call("save_page", {**own.observed(first), "title": "First", "type": "project", "body": "Changed."})
    answer = own.operate("recent", {"limit": 1})
    assert [card["id"] for card in listed(answer, "records")] == [first]
    assert answer["nextOffset"] == 1
    following: JsonObject = {"limit": 1, "offset": 1, "snapshot": answer["snapshot"]}
    assert [card["id"] for card in listed(own.operate("recent", following), "records")] == [second]
    own.page("Third")
    with pytest.raises(SnapshotChanged):
        own.operate("recent", following)


def test_browse_narrows_by_type_tag_dates_and_part_of_a_name_and_orders(own: Desk) -> None:
    write_notes(
        own.folder(),
        [
            ("a.md", page_file("a", "beta", tags=["x"], recorded_at="2026-10-01T10:00:00.000Z")),
            ("b.md", page_file("b", "Alpha", tags=["X"], type="person", recorded_at="2026-10-02T10:00:00.000Z")),
            ("c.md", page_file("c", "Gamma", recorded_at="2026-10-03T10:00:00.000Z")),
        ],
    )
    for params, expected in (
        ({}, ["a", "b", "c"]),
        ({"descending": True}, ["c", "b", "a"]),
        ({"order": "title"}, ["b", "a", "c"]),
        ({"tag": "x"}, ["a"]),
        ({"type": "person"}, ["b"]),
        ({"match": "am"}, ["c"]),
        ({"since": "2026-10-02", "until": "2026-10-03"}, ["b"]),
        ({"kind": "claim"}, []),
        ({"offset": 1, "limit": 1}, ["b"]),
    ):
        assert [card["id"] for card in listed(own.operate("records", params), "records")] == expected, params
    assert refused(own, "records", {"since": "2026", "until": "2025"}).fields["field"] == "until"
    assert refused(own, "records", {"kind": "page", "origin": "source"}).fields["field"] == "origin"
    assert refused(own, "records", {"lifecycle": "gone"}).fields["field"] == "lifecycle"
    assert refused(own, "records", {"limit": 101}).fields["field"] == "limit"


def test_the_tags_to_browse_by_come_most_used_first_and_each_finds_what_it_counts(own: Desk) -> None:
    write_notes(
        own.folder(),
        [
            ("a.md", page_file("a", "A", tags=["x", "y"])),
            ("b.md", page_file("b", "B", tags=["y", "Y"])),
            ("c.md", page_file("c", "C", tags=["x", "x"], lifecycle="withdrawn")),
        ],
    )
    answer = own.operate("tags")
    assert answer.keys() == PAGE | {"tags"}
    assert answer["tags"] == [
        {"tag": "y", "counts": {"current": 2, "total": 2}},
        {"tag": "Y", "counts": {"current": 1, "total": 1}},
        {"tag": "x", "counts": {"current": 1, "total": 2}},
    ]
    for row in listed(answer, "tags"):
        counts = row["counts"]
        assert isinstance(counts, dict)
        for lifecycle, number in (("active", counts["current"]), ("all", counts["total"])):
            assert own.operate("records", {"tag": row["tag"], "lifecycle": lifecycle})["total"] == number
    first = own.operate("tags", {"limit": 2})
    assert (first["total"], first["nextOffset"]) == (3, 2)
    assert listed(own.operate("tags", {"offset": 2}), "tags") == listed(answer, "tags")[2:]


def test_oversized_cards_come_back_as_navigable_summaries(own: Desk) -> None:
    many = [f"alias {n}" for n in range(300)]
    write_notes(
        own.folder(),
        [
            ("many.md", page_file("many", "Many", aliases=many)),
            ("wide.md", page_file("wide", "Wide", fields={"status": "active"}, aliases=["w" * 200] * 1, mine="x",
                                  tags=["t" * 90 for _ in range(1)], dependencies=["d" * 120] * 200)),
            ("small.md", page_file("small", "Small")),
        ],
    )  # fmt: skip
    cards = by_id(own.operate("records"), "records")
    assert "summary" not in cards["small"]
    for name, left_out in (("many", "aliases"), ("wide", "dependencies")):
        card = cards[name]
        assert card["summary"] is True
        omitted = card["omitted"]
        assert isinstance(omitted, list)
        assert left_out in omitted
        assert {"id", "revision", "hash", "kind", "title", "type", "path", "updatedAt"} <= card.keys()
        assert complete(own, card["id"])["title"] == card["title"]


def test_no_card_is_larger_than_its_bounds(own: Desk) -> None:
    deep: JsonValue = {"n": [FACE * 50] * 500}
    write_notes(own.folder(), [("a.md", page_file("a", "T" * 5_000, fields={"x": deep})),
                               ("b.md", claim_file("b", FACE * 60_000, attribution="a" * 50_000))])  # fmt: skip
    for card in listed(own.operate("records", {"lifecycle": "all"}), "records"):
        assert json_bytes(card) <= CARD_MAX_BYTES
        assert values_in(card) <= CARD_MAX_VALUES


def test_a_preview_of_a_page_is_one_line_and_splits_no_surrogate_pair(own: Desk) -> None:
    write_note(own.folder(), "a.md", page_file("a", "A", body="x\n\n" + FACE * 400))
    [card] = listed(own.operate("records"), "records")
    assert whole(card["preview"]) == "x " + FACE * 139
    assert utf16_length(str(card["preview"])) == 280


# --- one record -------------------------------------------------------------------------------------------------------


def test_a_record_is_shown_with_everything_that_agents_are_not_shown(desk: Desk) -> None:
    every = {"id", "revision", "hash", "kind", "title", "path", "recordedAt", "updatedAt", "bodyChars", "revisions",
             "connections", "evidence"} | STATE  # fmt: skip
    shown = {name: complete(desk, name) for name in CARDS}
    assert {name: set(record) for name, record in shown.items()} == {
        "ada": every | {"type", "body", "budget"},
        "acme": every | {"type", "body", "budget", "aliases", "tags", "dependencies", "fields"},
        "pilot": every | {
            "type", "body", "budget", "fields", "identityUncertainty", "attributionConfidence", "continuity", "recall",
            "unknownKeys", "issues", "originals",
        },
        "plain": every | {"claimKind", "assertionOrigin", "attribution", "text", "originals"},
        "full": every | {
            "claimKind", "assertionOrigin", "attribution", "text", "originals", "occurredAt", "dueAt", "expiresAt",
            "owner", "pages", "sourcePage", "subjectHint", "dependencies", "tags", "supersedes",
            "attributionConfidence",
        },
        "tie": every | {"from", "label", "to", "assertionOrigin", "attribution", "body", "originals"},
        "belief": every | {"from", "label", "to", "assertionOrigin", "attribution", "body", "originals", "fields"},
    }  # fmt: skip
    assert shown["acme"]["fields"] == {"industry": ""}
    recall = shown["pilot"]["recall"]
    assert isinstance(recall, dict)
    assert recall["counts"] is False
    assert shown["pilot"]["unknownKeys"] == ["mine"]


def test_a_record_counts_its_connections_and_its_revisions(own: Desk) -> None:
    page = own.page("Pilot")["id"]
    own.page("Log", body="About [[Pilot]].", dependencies=[page])
    own.remember({"text": "It began.", "kind": "event", "subject": "Pilot"})
    own.call("save_page", {**own.observed(page), "title": "Pilot", "type": "project", "body": "See [[Log]]."})
    record = complete(own, page)
    assert record["connections"] == {
        "incoming": 0, "outgoing": 0, "dependents": 1, "claims": 1, "links": 1, "backlinks": 1,
    }  # fmt: skip
    assert record["revisions"] == 2


def test_originals_stand_once_each_and_citations_say_whether_they_hold(own: Desk) -> None:
    claim = items_of(own.remember("One.", requestId=request_id(5)))[0]["id"]
    record = complete(own, claim)
    [original] = listed(record, "originals")
    assert (original["filename"], original["mediaType"], original["citations"]) == ("excerpt.txt", "text/plain", 1)
    [citation] = listed(record, "evidence")
    assert (citation["verified"], citation["excerpt"]) == (True, "User: One.")
    (own.folder() / str(original["path"])).write_text("tampered", "utf-8")
    [citation] = listed(complete(own, claim), "evidence")
    assert (citation["verified"], citation["problem"]) == (False, "hash_mismatch")
    assert "excerpt" not in citation
    assert complete(own, claim, includeEvidence=False).keys() == record.keys() - {"evidence"}


def test_windows_of_a_record_join_to_its_text(own: Desk) -> None:
    body = FACE * 4_000
    page = own.page("Long", body=body)["id"]
    pieces, offset = [], 0
    while True:
        answer = own.operate("record", {"id": page, "offset": offset, "maxChars": 3_000})
        record, following = answer["record"], answer["nextOffset"]
        assert isinstance(record, dict)
        pieces.append(whole(record["body"]))
        if following is None:
            break
        assert isinstance(following, int)
        offset = following
    assert "".join(pieces) == body + "\n"


def test_max_chars_bounds_the_whole_of_a_single_record_for_operators_too(own: Desk) -> None:
    page = own.page("Long", body=FACE * 4_000)["id"]
    for most in (1_000, 3_000):
        answer = own.operate("record", {"id": page, "maxChars": most})
        assert most - 10 < utf16_length(json.dumps(answer, ensure_ascii=False, separators=(",", ":"))) <= most


ALWAYS_PAGED: Final[tuple[tuple[str, JsonObject], ...]] = (
    ("records", {}), ("recent", {}), ("tags", {}), ("search", {"query": "pilot"}), ("lookup", {"query": "Pilot"}),
    ("connections", {"id": "pilot"}), ("timeline", {}), ("chronicleDay", {"date": "2026-10-01"}),
)  # fmt: skip


def test_next_offset_snapshot_and_coverage_are_always_there(own: Desk) -> None:
    write_notes(own.folder(), [("p.md", page_file("pilot", "Pilot")), ("o.md", page_file("other", "Pilot other"))])
    for torn in (0, 1):
        for method, arguments in ALWAYS_PAGED:
            answer = own.operate(method, arguments)
            assert answer["nextOffset"] is None
            assert isinstance(answer["snapshot"], str)
            assert answer["coverage"] == ({"broken": 1} if torn else {}), method
        history = own.operate("history")
        assert history["nextOffset"] is None
        first = own.operate("history", {"limit": 1})
        assert (first["nextOffset"], first["snapshot"]) == (1, history["snapshot"])
        write_notes(own.folder(), [("torn.md", "---\nformat: [\n---\n")])


def test_a_missing_id_and_one_that_several_files_bear_are_told_apart_and_each_file_can_be_read(own: Desk) -> None:
    write_notes(own.folder(), [("a.md", page_file("twice", "A")), ("b.md", page_file("twice", "B"))])
    assert own.operate("record", {"id": "nobody"}) == {"record": None, "state": "missing", "files": []}
    assert own.operate("record", {"id": "twice"}) == {"record": None, "state": "ambiguous", "files": ["a.md", "b.md"]}
    assert complete(own, "twice", path="b.md")["title"] == "B"
    missing = own.operate("record", {"id": "twice", "path": "c.md"})
    assert missing == {"record": None, "state": "missing", "files": ["a.md", "b.md"]}


def test_a_redirect_is_shown_where_a_record_names_a_merged_page(own: Desk) -> None:
    write_notes(
        own.folder(),
        [
            ("a.md", page_file("old", "Old", lifecycle="merged", merged_into="new")),
            ("b.md", page_file("new", "New")),
            ("c.md", claim_file("c", "So.", entities=["old", "nobody"])),
        ],
    )
    assert complete(own, "new")["mergedFrom"] == ["old"]
    assert complete(own, "c")["pages"] == [
        {"id": "old", "title": "New", "mergedInto": "new"}, {"id": "nobody", "title": None},
    ]  # fmt: skip


# --- originals, history, vocabulary, activity ---------------------------------------------------------------------


def test_a_passage_and_an_original_are_read_as_agents_read_them(own: Desk) -> None:
    claim = items_of(own.remember("One."))[0]["id"]
    [original] = listed(complete(own, claim), "originals")
    named: JsonObject = {"id": claim, "path": original["path"], "sha256": original["sha256"]}
    assert own.operate("evidence", named) == own.call("evidence_read", named)
    chunk: JsonObject = {**named, "offset": 0}
    assert own.operate("original", chunk) == own.call("attachment", chunk)


def test_history_says_of_each_row_whose_it_is_what_was_before_and_whether_the_file_went(own: Desk) -> None:
    page = own.page("Pilot")
    path = own.path_of(str(page["id"]))
    path.unlink()
    answer = own.operate("history", {"id": page["id"]})
    assert answer.keys() == {"total", "nextOffset", "snapshot", "git", "rows"}
    gone, made = listed(answer, "rows")
    assert (gone["external"], gone["removed"], gone["before"]) == (True, True, page["hash"])
    assert (made["external"], made["removed"], made["before"], made["actor"]) == (False, False, None, "main")
    shown = own.operate("revision", {"id": page["id"], "sequence": made["sequence"]})
    assert {**made, "content": shown["content"]} == shown


def test_a_mutation_is_shown_with_its_complete_receipt_and_texts(own: Desk) -> None:
    own.page("Pilot", requestId=request_id(7))
    asked: JsonObject = {"requestId": request_id(7)}
    assert own.operate("mutation", asked) == own.call("mutation", asked)
    with pytest.raises(NotFound):
        own.operate("mutation", {"requestId": request_id(8)})


def test_the_vocabulary_counts_the_records_of_each_type(own: Desk) -> None:
    own.page("Ada", type="person")
    write_notes(
        own.folder(),
        [
            ("a.md", page_file("acme", "Acme", type="organisation")),
            ("b.md", page_file("p", "P", type="person", lifecycle="withdrawn")),
            ("c.md", page_file("q", "Q", type="person")),
            ("r.md", relationship("tie", **{"from": "q"})),
        ],
    )
    for view, key in (("catalog", "types"), ("definitions", "definitions")):
        rows = listed(own.operate("vocabulary", {"view": view, "limit": 100}), key)
        counts = {row["name"]: row["counts"] for row in rows}
        assert counts["person"] == {"current": 2, "total": 3}
        assert counts["company"] == {"current": 1, "total": 1}, "an alias counts for its type"
        assert counts["works_at"] == {"current": 1, "total": 1}
        assert counts["deal"] == {"current": 0, "total": 0}
    agents = own.call("ontology", {"view": "definitions", "name": "person"})
    assert "counts" not in listed(agents, "definitions")[0]


def test_activity_lists_publications_newest_first_with_their_git_state_and_the_findings(own: Desk) -> None:
    page = own.page("Pilot", requestId=request_id(7))["id"]
    own.path_of(str(page)).write_text("---\nformat: [\n---\n", "utf-8")
    answer = own.operate("activity")
    assert answer.keys() == {"publications", "git", "index", "diagnostics", "nextBefore", "rows"}
    edited, made = listed(answer, "rows")
    assert edited["external"] is True
    assert made == {
        "sequence": 1, "requestId": request_id(7), "operation": "save_page", "actor": "main", "state": "published",
        "external": False, "acceptedAt": made["acceptedAt"], "settledAt": made["settledAt"],
        "git": {"commit": None, "pending": True}, "changes": 1, "records": [page],
        "titles": {},  # its file cannot be read any more
    }  # fmt: skip
    findings = answer["diagnostics"]
    assert isinstance(findings, dict)
    assert (findings["total"], findings["truncated"]) == (1, False)
    first = own.operate("activity", {"limit": 1})
    assert first["nextBefore"] == edited["sequence"]
    last = own.operate("activity", {"limit": 1, "before": first["nextBefore"]})
    assert (listed(last, "rows"), last["nextBefore"]) == ([made], None)


def test_activity_can_show_conflicts_alone_however_long_ago(own: Desk) -> None:
    page = own.page("Pilot")
    path = own.path_of(str(page["id"]))
    theirs = path.read_text("utf-8").replace("About it.", "Theirs.")

    def edited(point: str) -> None:
        if point == "accept.commit.after":
            path.write_text(theirs, "utf-8")

    with faults.installed(edited):
        own.call("save_page", {**own.observed(page["id"]), **own.vault(), "title": "Pilot", "type": "project",
                               "body": "Ours.", "requestId": request_id(7)})  # fmt: skip
    own.page("Later")
    [row] = listed(own.operate("activity", {"conflicts": True}), "rows")
    assert (row["requestId"], row["state"]) == (request_id(7), "conflict")
    [later, *_] = listed(own.operate("activity"), "rows")
    assert list(later["titles"].values()) == ["Later"] if isinstance(later["titles"], dict) else False
    assert len(listed(own.operate("activity"), "rows")) > 1


def test_the_number_of_current_records_leaves_out_what_has_expired_whatever_else_is_asked(own: Desk) -> None:
    expiries = (None, "2026-11-01", "2026-11-03T00:00:00Z", "2999-01-01")
    notes_of: list[tuple[str, str]] = []
    for number in range(24):
        expiry = expiries[number % 4]
        keys: JsonObject = {} if expiry is None else {"expires_at": expiry}
        keys |= {"lifecycle": "withdrawn"} if number % 5 == 0 else {}
        keys |= {"fixture": True} if number % 7 == 0 else {}
        keys |= {"claim_kind": "event"} if number % 2 else {}
        file = claim_file(f"c{number}", f"Claim {number} rang.", **keys)  # type: ignore[arg-type]  # its other names
        notes_of.append((f"c/{number}.md", file))
    write_notes(own.folder(), [*notes_of, ("p.md", page_file("p", "Rang", tags=["t"]))])
    asked: tuple[JsonObject, ...] = (
        {}, {"kind": "claim"}, {"kind": "page"}, {"match": "rang"}, {"tag": "t"}, {"origin": "source"},
        {"timeField": "recorded", "since": "2026"}, {"order": "title"},
    )  # fmt: skip
    for given in asked:
        answer = own.operate("records", {**given, "limit": 100})
        assert answer["total"] == len(listed(answer, "records")), given
    assert own.operate("records")["total"] == own.operate("records", {"limit": 1, "offset": 3})["total"]


# --- every read -------------------------------------------------------------------------------------------------------

ASKED: dict[str, JsonObject] = {
    "record": {"id": "plain"},
    "records": {},
    "recent": {},
    "tags": {},
    "search": {"query": "rained"},
    "lookup": {"query": "Acme"},
    "connections": {"id": "acme"},
    "timeline": {},
    "chronicleDays": {"since": "2026-10-01", "until": "2026-10-03"},
    "chronicleDay": {"date": "2026-10-01"},
    "chronicleDue": {},
    "vocabulary": {},
    "evidence": {"id": "plain", "path": f"artifacts/{request_id(900)}/excerpt.txt", "sha256": "0" * 64},
    "original": {"id": "plain", "path": f"artifacts/{request_id(900)}/excerpt.txt", "sha256": "0" * 64, "offset": 0},
    "history": {},
    "revision": {"id": "plain", "sequence": 1},
    "mutation": {"requestId": request_id(7)},
    "activity": {},
}
REFUSED = ("evidence", "original", "mutation")
"""What the store of these tests has nothing for."""


def test_every_read_of_an_operator_is_asked_for_here_and_needs_the_scope_to_read() -> None:
    assert {read.tool for read in OPERATOR_READS} == {f"operator.{name}" for name in ASKED}
    for name, params in ASKED.items():
        call = parse_operator_call(f"operator.{name}", params, peer=LOCAL_OPERATOR)
        assert call.scope == "operator.read"
        assert OPERATOR_METHODS[call.tool][0] is type(call.request)


def files_of(desk: Desk) -> dict[str, bytes]:
    vault = desk.layout.vault
    return {str(path.relative_to(vault)): path.read_bytes() for path in vault.rglob("*") if path.is_file()}


def test_operator_reads_never_save(own: Desk) -> None:
    write_notes(own.folder(), notes())
    own.operate("records")
    before = files_of(own), own.operate("history")["total"]
    for name, params in ASKED.items():
        if name not in REFUSED:
            own.operate(name, params)
    assert (files_of(own), own.operate("history")["total"]) == before


def test_operators_see_the_private_partition_only(own: Desk) -> None:
    own.remember("Said in the group.", partition=GROUP_PARTITION)
    own.remember("Said in private.")
    for name, params, key in (("records", {"lifecycle": "all"}, "records"), ("search", {"query": "said"}, "hits"),
                              ("history", {}, "rows"), ("activity", {}, "rows")):  # fmt: skip
        assert len(listed(own.operate(name, params), key)) == 1, name


def test_operator_reads_answer_from_what_is_known_while_ordinary_reads_are_blocked_and_say_why(own: Desk) -> None:
    write_notes(own.folder(), notes())
    write_notes(own.folder(), ((f"lost/{n}.md", page_file(f"lost{n}", f"Lost {n}")) for n in range(30)))
    total = own.operate("records")["total"]
    shutil.rmtree(own.folder() / "lost")
    with pytest.raises(DeletionsRefused):
        own.call("records")
    for name, params in ASKED.items():
        if name not in REFUSED:
            told = own.operate(name, params)["refusal"]
            assert isinstance(told, dict)
            assert (told["code"], told["command"]) == ("deletions_refused", "knowledge store accept-deletions"), name
    assert own.operate("records")["total"] == total
    assert complete(own, "lost7")["title"] == "Lost 7"

"""Every read is bounded, whatever lies in the files (decisions.md section 5, Limits)."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

from messages.json_types import JsonObject, JsonValue
from messages.tools import CATALOGUE, json_bytes
from messages.tools.operator_reads import CARDS_MAX_BYTES, FINDINGS_MAX_BYTES, OPERATOR_READS
from messages.vocabulary import PRIVATE
from storage.layout import StoreLayout
from storage.publication import Notice, RecoveryReport
from tests.kit.desk_fixtures import made_store
from tests.kit.store import Desk, claim_file, copy_store, page_file, record_file, request_id, write_notes

__all__ = ["made_store"]

KIB: Final = 1024
LIST: Final = 24 * KIB
MOST_BYTES: Final[dict[str, int]] = {
    "status": 4 * KIB,
    "ontology": 256 * KIB,
    "lookup": LIST,
    "grep": LIST,
    "record": 400 * KIB,
    "records": LIST,
    "connections": LIST,
    "timeline": LIST,
    "chronicle_days": LIST,
    "chronicle_day": LIST,
    "chronicle_due": LIST,
    "verify": LIST,
    "source_check": LIST,
    "attachment": 48 * KIB,
    "evidence_read": 16 * KIB,
    "history": LIST,
    "revision": 160 * KIB,
    "mutation": 200 * KIB,
}
"""What one answer of each read may take as compact UTF-8 JSON: a character is up to three bytes, or six escaped."""

CARDS: Final = CARDS_MAX_BYTES + KIB
OPERATORS_MOST_BYTES: Final[dict[str, int]] = {
    "status": 64 * KIB,
    "diagnostics": FINDINGS_MAX_BYTES + KIB,
    "record": 500 * KIB,
    "records": CARDS,
    "recent": CARDS,
    "tags": 128 * KIB,
    "search": CARDS,
    "lookup": CARDS,
    "connections": CARDS,
    "timeline": CARDS,
    "chronicleDays": LIST,
    "chronicleDay": CARDS,
    "chronicleDue": CARDS,
    "vocabulary": 256 * KIB,
    "evidence": 16 * KIB,
    "original": 48 * KIB,
    "history": LIST,
    "revision": 160 * KIB,
    "mutation": 200 * KIB,
    "activity": 128 * KIB,
}
"""The same for what operators read of a store."""

BIG: Final = "\N{SLIGHTLY SMILING FACE}\x07é"
MANY: Final = 1_200
"""So many that each list of the longest entries is larger than any budget."""
RECORDED: Final = "2026-10-01T10:00:00.000Z"


def citations(number: int) -> list[JsonValue]:
    cited: JsonObject = {"sha256": "0" * 64, "quote": "q" * 9_000, "attribution": "a" * 9_000, "filename": "f" * 9_000}
    return [{"path": f"artifacts/{request_id(900)}/{n}.txt", **cited} for n in range(number)]


def hostile() -> Iterator[tuple[str, str]]:
    """Records that no tool could have saved, and many that one id bears."""
    yield "p/body.md", page_file("body", "Body", body=BIG * 60_000)
    yield "p/title.md", page_file("title", "T\u200b" * 100_000)
    yield "p/names.md", page_file("names", "Names", aliases=[f"{n} {BIG * 60}" for n in range(MANY)])
    yield "p/tags.md", page_file("tags", "Tags", tags=[f"{n} {BIG * 40}" for n in range(MANY)])
    yield "p/needs.md", page_file("needs", "Needs", dependencies=[f"{n}-{'z' * 100}" for n in range(3_000)])
    yield "p/fields.md", page_file("fields", "Fields", fields={f"f{n}": BIG * 200 for n in range(250)})
    unknown: JsonObject = {f"key{n}": BIG * 200 for n in range(250)}
    yield "p/unknown.md", record_file("page", "unknown", "Unknown", "", PRIVATE, RECORDED, unknown)
    yield "p/cited.md", page_file("cited", "Cited", evidence=citations(50))
    yield "p/type.md", page_file("type", "Type", type="t" * 100_000)
    yield "p/links.md", page_file("links", "Links", body=" ".join(f"[[n{n}|{'l' * 50}]]" for n in range(2_000)))
    yield "c/text.md", claim_file("text", BIG * 60_000)
    yield "c/who.md", claim_file("who", "Who.", attribution=BIG * 50_000, subject_hint=BIG * 50_000)
    yield "c/about.md", claim_file("about", "About.", entities=["title", "names", "body"] * 500)
    ends: JsonObject = {"from": "title", "to": "names", "label": "l" * 50_000, "assertion_origin": "source"}
    yield "r/tie.md", record_file("relationship", "tie", "Tie", BIG * 50_000, PRIVATE, RECORDED,
                                  {**ends, "attribution": "x" * 50_000, "evidence": citations(3)})  # fmt: skip
    for n in range(200):
        yield f"d/{n}.md", page_file("same", f"Same {n} {'y' * 190}")
    for n in range(100):
        yield f"b/{n}.md", f"---\nformat: knowledge-record-v1\n{'z' * 50}{n}: [\n---\n"


IDS: Final = (
    "body", "title", "names", "tags", "needs", "fields", "unknown", "cited", "type", "links", "text", "who", "about",
    "tie", "same",
)  # fmt: skip


@pytest.fixture(scope="module")
def desk(made_store: StoreLayout, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Desk]:
    opened = Desk(copy_store(made_store, tmp_path_factory.mktemp("bounded") / "store"))
    write_notes(opened.folder(), hostile())
    yield opened
    opened.close()


def asked(tool: str) -> Iterator[JsonObject]:
    """The widest questions that the tool takes."""
    match tool:
        case "record":
            for record_id in IDS:
                yield {"id": record_id, "maxChars": 48_000}
                yield {"id": record_id, "maxChars": 1_000, "includeEvidence": True}
        case "connections" | "history":
            for record_id in IDS[:-1]:  # the last is borne by many files
                yield {"id": record_id, "limit": 100}
        case "lookup" | "grep":
            for query in (*IDS, "Same 1", "T", "l" * 100):
                yield {"query": query, "limit": 50}
        case "records":
            for kind in ("page", "claim", "relationship"):
                yield {"kind": kind, "limit": 100, "lifecycle": "all"}
            yield {"match": "s", "limit": 100}
        case "timeline":
            yield {"limit": 100}
            yield {"limit": 100, "kind": "relationship"}
        case "chronicle_days":
            yield {"since": "2026-01-01", "until": "2026-12-31"}
        case "chronicle_day":
            yield {"date": "2026-10-01"}
        case "chronicle_due" | "status":
            yield {}
        case "ontology":
            for view in ("catalog", "definitions", "sources", "diagnostics"):
                yield {"view": view, "limit": 100}
            yield {"view": "definitions", "limit": 100, "includeRecords": True}
        case "verify":
            for record_id in IDS:
                yield {"ids": [record_id], "expectedLinks": [{"from": record_id, "to": "title"}]}
        case "source_check":
            yield {"sources": [{"key": f"{n}{'k' * 900}"} for n in range(200)], "complete": True}
        case _:
            return


def test_every_read_has_a_budget() -> None:
    reads = {spec.operation for spec in CATALOGUE.values() if spec.action == "read"}
    assert reads == MOST_BYTES.keys()


@pytest.mark.parametrize(
    "tool", [tool for tool in MOST_BYTES if tool not in ("attachment", "evidence_read", "revision", "mutation")]
)
def test_no_answer_exceeds_its_budget(desk: Desk, tool: str) -> None:
    answers = [desk.call(tool, arguments) for arguments in asked(tool)]
    assert answers
    assert max(map(json_bytes, answers)) <= MOST_BYTES[tool]


def test_a_window_of_an_old_revision_is_bounded(desk: Desk) -> None:
    [row] = rows(desk.call("history", {"id": "body", "limit": 1}))
    answer = desk.call("revision", {"id": "body", "sequence": row["sequence"], "maxChars": 48_000})
    assert json_bytes(answer) <= MOST_BYTES["revision"]


def test_an_answer_names_what_it_left_out_of_a_record(desk: Desk) -> None:
    for record_id, name in (
        ("title", "title"), ("names", "aliases"), ("tags", "tags"), ("needs", "dependencies"), ("fields", "fields"),
        ("who", "attribution"), ("tie", "label"),
    ):  # fmt: skip
        omitted = desk.call("record", {"id": record_id})["omitted"]
        assert isinstance(omitted, list)
        assert name in omitted, record_id


def asked_by_operators(method: str) -> Iterator[JsonObject]:
    """The widest questions that the method takes."""
    alike = {"search": "grep", "vocabulary": "ontology", "chronicleDays": "chronicle_days",
             "chronicleDay": "chronicle_day", "chronicleDue": "chronicle_due"}  # fmt: skip
    match method:
        case "records" | "recent":
            for lifecycle in ("active", "invalid", "all"):
                yield {"lifecycle": lifecycle, "limit": 100}
                yield {"lifecycle": lifecycle, "limit": 100, "kind": "claim"}
                yield {"lifecycle": lifecycle, "limit": 100, "offset": 200}
        case "record":
            yield from asked("record")
            yield {"id": "same"}
            yield {"id": "cited", "maxChars": 48_000, "evidenceOffset": 20}
        case "activity":
            yield {"limit": 100}
        case "diagnostics" | "status" | "tags":
            yield {}
        case _:
            yield from asked(alike.get(method, method))


def test_every_read_of_an_operator_has_a_budget() -> None:
    reads = {request.tool.removeprefix("operator.") for request in OPERATOR_READS}
    assert reads | {"status", "diagnostics"} == OPERATORS_MOST_BYTES.keys()


@pytest.mark.parametrize(
    "method",
    [name for name in OPERATORS_MOST_BYTES if name not in ("evidence", "original", "revision", "mutation")],
)
def test_no_answer_to_an_operator_exceeds_its_budget(desk: Desk, method: str) -> None:
    answers = [desk.operate(method, arguments) for arguments in asked_by_operators(method)]
    assert answers
    assert max(map(json_bytes, answers)) <= OPERATORS_MOST_BYTES[method]


def test_diagnostics_are_bounded_by_bytes_and_truncation_is_reported(
    made_store: StoreLayout, tmp_path: Path
) -> None:
    opened = Desk(copy_store(made_store, tmp_path / "store"))
    try:
        folder = "/".join(letter * 200 for letter in "abcdefg")
        write_notes(opened.folder(), ((f"{folder}/{n:03}{'n' * 200}.md", "no envelope\n") for n in range(450)))
        answer = opened.operate("diagnostics")
        findings = answer["findings"]
        assert isinstance(findings, list)
        assert 0 < len(findings) < 450
        assert (answer["total"], answer["truncated"]) == (450, True)
        assert json_bytes(answer) <= OPERATORS_MOST_BYTES["diagnostics"]
        for method in ("activity", "status"):
            assert json_bytes(opened.operate(method)) <= OPERATORS_MOST_BYTES[method]
    finally:
        opened.close()


def test_status_names_a_hundred_paths_of_a_recovery_and_counts_the_rest(
    made_store: StoreLayout, tmp_path: Path
) -> None:
    opened = Desk(copy_store(made_store, tmp_path / "store"))
    try:
        notices = tuple(Notice("restored", f"private/{n}.md") for n in range(5_000))
        opened.session.publisher.report = RecoveryReport("machine", notices)
        recovery = opened.operate("status")["recovery"]
        assert isinstance(recovery, dict)
        assert isinstance(recovery["paths"], list)
        assert len(recovery["paths"]) == 100
        assert recovery["totals"] == {"finished": 0, "paths": 5_000}
    finally:
        opened.close()


def test_an_operators_window_of_an_old_revision_is_bounded(desk: Desk) -> None:
    [row] = rows(desk.operate("history", {"id": "body", "limit": 1}))
    answer = desk.operate("revision", {"id": "body", "sequence": row["sequence"], "maxChars": 48_000})
    assert json_bytes(answer) <= OPERATORS_MOST_BYTES["revision"]


def legal() -> Iterator[tuple[str, JsonObject]]:
    """The largest records that tools save: every list full, every text as long as it may be."""
    wide = "\N{CJK UNIFIED IDEOGRAPH-6587}"
    for n in range(3):
        yield "save_page", {
            "title": f"{n}{wide * 199}",
            "type": "project",
            "body": wide * 48_000 if n == 0 else wide * 12_000,
            "aliases": [f"{n}.{alias} {wide * 190}" for alias in range(100)],
            "tags": [f"{tag} {wide * 90}" for tag in range(100)],
            "fields": {"status": "active"},
        }
    for n in range(10):
        text = f"{n}{wide * 3_990}"
        item: JsonObject = {"text": text, "kind": "fact", "about": wide * 300}
        yield "remember", {"attribution": wide * 500, "excerpt": wide * 5_000, "items": [item]}


@pytest.fixture(scope="module")
def full(made_store: StoreLayout, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Desk, list[str]]]:
    opened = Desk(copy_store(made_store, tmp_path_factory.mktemp("legal") / "store"))
    saved = []
    for tool, arguments in legal():
        answer = opened.call(tool, arguments)
        if answer.get("state") == "rejected":  # a body beyond the page's budget
            answer = opened.call(tool, {**arguments, "body": "Short."})
        items = answer.get("items", [answer])
        assert isinstance(items, list)
        saved += [str(item["id"]) for item in items if isinstance(item, dict)]
    yield opened, saved
    opened.close()


def test_the_largest_records_that_tools_save_are_shown_whole_and_within_the_budgets(
    full: tuple[Desk, list[str]],
) -> None:
    desk, saved = full
    for record_id in saved:
        for tool, budget in (("record", MOST_BYTES["record"]), ("connections", LIST)):
            assert json_bytes(desk.call(tool, {"id": record_id})) <= budget
        whole = desk.operate("record", {"id": record_id, "maxChars": 48_000})
        assert json_bytes(whole) <= OPERATORS_MOST_BYTES["record"]
        assert "omitted" not in whole
        assert "omitted" not in desk.call("record", {"id": record_id, "maxChars": 48_000})
    wide: JsonObject = {"limit": 50, "query": "\N{CJK UNIFIED IDEOGRAPH-6587}" * 2}
    for tool, arguments in (("records", {"limit": 100}), ("timeline", {"limit": 100}), ("grep", wide)):
        assert json_bytes(desk.call(tool, arguments)) <= LIST
    for method, arguments in (("records", {"limit": 100}), ("recent", {"limit": 100}), ("timeline", {"limit": 100}),
                              ("search", wide), ("activity", {"limit": 100})):  # fmt: skip
        assert json_bytes(desk.operate(method, arguments)) <= OPERATORS_MOST_BYTES[method]


def test_paging_through_cards_of_any_size_reaches_every_record(full: tuple[Desk, list[str]]) -> None:
    desk, saved = full
    seen, offset = [], 0
    while True:
        answer = desk.operate("records", {"limit": 100, "offset": offset})
        found = answer["records"]
        assert isinstance(found, list)
        seen += [card["id"] for card in found if isinstance(card, dict)]
        if answer["nextOffset"] is None:
            break
        offset = len(seen)
        assert answer["nextOffset"] == offset
    assert sorted(map(str, seen)) == sorted(saved)


def rows(answer: JsonObject) -> list[JsonObject]:
    found = answer["rows"]
    assert isinstance(found, list)
    return [row for row in found if isinstance(row, dict)]

"""Where records appear that are not simply active: one row of docs/reads.md a read, proven against a real store.

Sources: tools.md (Listing and connections, Search and lookup), decisions.md section 2 ("current, eligible" and
expires_at), knowledge-more-facts.md sections 2 and 6.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

import pytest

from messages.json_types import JsonObject
from messages.tools import CATALOGUE
from messages.tools.operator_reads import OPERATOR_READS
from messages.vocabulary import PRIVATE
from storage.layout import StoreLayout
from tests.kit.desk_fixtures import made_store
from tests.kit.store import Desk, copy_store, page_file, record_file, request_id, write_notes
from tests.tree import CHECKOUT

__all__ = ["made_store"]

STATES: Final = ("active", "superseded", "withdrawn", "merged", "expired", "invalid", "fixture")
RECORDED: Final = "2026-10-05T10:00:00.000Z"
CLAIM: Final[JsonObject] = {
    "claim_kind": "commitment",
    "assertion_origin": "source",
    "attribution": "somebody, some time",
    "evidence": [{"path": f"artifacts/{request_id(900)}/excerpt.txt", "sha256": "0" * 64}],
    "due_at": "2026-11-05",
    "occurred_at": "2026-10-05",
    "entities": ["subject"],
}
OF_STATE: Final[dict[str, JsonObject]] = {
    "active": {},
    "superseded": {"lifecycle": "superseded", "superseded_by": "elsewhere"},
    "withdrawn": {"lifecycle": "withdrawn"},
    "expired": {"expires_at": "2026-10-20"},
    "invalid": {"evidence": []},
    "fixture": {"fixture": True},
}

# What is read of no record, of one that is named by other means, or of sources only.
WITHOUT_STATES: Final = {
    "knowledge_status", "knowledge_source_check", "knowledge_evidence_read", "knowledge_attachment",
    "knowledge_mutation", "operator.evidence", "operator.original", "operator.mutation", "operator.activity",
    "operator.tags",
}  # fmt: skip


def notes() -> Iterator[tuple[str, str]]:
    """A claim in each state, and pages where only pages have it: ``merged``, and the records of a type."""
    yield "subject.md", page_file("subject", "Subject", recorded_at="2025-01-01T10:00:00.000Z")
    for state, keys in OF_STATE.items():
        yield f"c/{state}.md", written("claim", state, f"Bell {state}.", {**CLAIM, **keys})
        if state != "expired":
            of_page: JsonObject = {"type": "project", "fields": {"status": "no such"}} if state == "invalid" else keys
            yield f"p/{state}.md", written("page", f"page-{state}", f"Page {state}", {"type": "deal", **of_page})
    merged: JsonObject = {"type": "deal", "lifecycle": "merged", "merged_into": "subject"}
    yield "p/merged.md", written("page", "merged", "Bell merged", merged)


def written(kind: str, record_id: str, title: str, keys: JsonObject) -> str:
    body = f"{title} See [[subject]].\n" if kind == "page" else f"{title}\n"
    return record_file(kind, record_id, title, body, PRIVATE, RECORDED, keys)


@pytest.fixture(scope="module")
def desk(made_store: StoreLayout, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Desk]:
    opened = Desk(copy_store(made_store, tmp_path_factory.mktemp("states") / "store"))
    write_notes(opened.folder(), notes())
    yield opened
    opened.close()


def table() -> dict[str, dict[str, str]]:
    """The table of the page: read -> state -> what it says."""
    text = (CHECKOUT / "docs" / "reads.md").read_text("utf-8")
    rows = re.findall(r"^\| `((?:knowledge_|operator\.)\w+)` \| (.+) \|$", text, re.MULTILINE)
    return {name: dict(zip(STATES, cells.split(" | "), strict=True)) for name, cells in rows}


def ask(desk: Desk, read: str, arguments: JsonObject) -> JsonObject:
    if read.startswith("operator."):
        return desk.operate(read.removeprefix("operator."), arguments)
    return desk.call(read.removeprefix("knowledge_"), arguments)


def ids(value: object) -> Iterator[str]:
    """Every id in an answer, wherever it stands."""
    match value:
        case dict():
            if isinstance(value.get("id"), str):
                yield value["id"]
            for member in value.values():
                yield from ids(member)
        case list():
            for item in value:
                yield from ids(item)


def seen(desk: Desk, read: str, state: str, argument: str) -> bool:
    """Whether the read shows the record in this state; ``argument`` is the page's word for how it is asked."""
    more: JsonObject = {}
    if argument == "all":
        more = {"lifecycle": "all"}
    elif argument == "historical":
        more = {"historical": True}
    record = state
    match read.removeprefix("knowledge_").removeprefix("operator."):
        case "record":
            return ask(desk, read, {"id": record})["record"] is not None
        case "history":
            return ask(desk, read, {"id": record})["total"] == 1
        case "revision":
            [row] = (row for row in rows(desk.call("history", {"id": record})))
            return state in str(ask(desk, read, {"id": record, "sequence": row["sequence"]})["content"])
        case "verify":
            [row] = rows(ask(desk, read, {"ids": [record]}), "records")
            return row["state"] in ("ok", "problems")
        case "records" | "recent":
            answer = ask(desk, read, {"limit": 100, **more})
        case "grep" | "search":
            answer = ask(desk, read, {"query": "bell", "limit": 50, **more})
        case "lookup":
            answer = ask(desk, read, {"query": record, **more})
        case "connections":
            answer = ask(desk, read, {"id": "subject", "limit": 100, **more})
        case "timeline":
            answer = ask(desk, read, {"limit": 100})
        case "chronicle_days" | "chronicleDays":
            return counted(desk, read, state)
        case "chronicle_day" | "chronicleDay":
            answer = ask(desk, read, {"date": "2026-10-05"})
        case "chronicle_due" | "chronicleDue":
            # Of what is due only claims are listed: a merged page stands for itself in no list of them.
            answer = ask(desk, read, {"asOf": "2026-11-05"})
        case "ontology" | "vocabulary":
            wanted: JsonObject = {"view": "definitions", "includeRecords": True, "limit": 100}
            answer = ask(desk, read, wanted)
            record = state if state == "merged" else f"page-{state}"
        case other:
            raise AssertionError(other)
    return record in set(ids(answer))


def counted(desk: Desk, read: str, state: str) -> bool:
    """Days have no ids: what they count are the records that the day's list shows."""
    days = rows(ask(desk, read, {"since": "2026-10-05", "until": "2026-10-06"}), "days")
    listed = rows(desk.call("chronicle_day", {"date": "2026-10-05"}), "entries")
    kinds = {kind: sum(row["kind"] == kind for row in listed) for kind in ("page", "claim", "relationship")}
    assert [{kind: n for kind, n in day.items() if kind != "day"} for day in days] == [
        {kind: n for kind, n in kinds.items() if n}
    ]
    return state in {row["id"] for row in listed}


def rows(answer: JsonObject, key: str = "rows") -> list[JsonObject]:
    found = answer[key]
    assert isinstance(found, list)
    return [row for row in found if isinstance(row, dict)]


def test_the_page_has_a_row_for_every_read_and_a_word_for_every_state() -> None:
    reads = {name for name, spec in CATALOGUE.items() if spec.action == "read"}
    reads |= {request.tool for request in OPERATOR_READS}
    assert table().keys() == reads - WITHOUT_STATES
    words = {word for row in table().values() for word in row.values()}
    assert words == {"yes", "no", "all", "historical"}


@pytest.mark.parametrize("read", table())
def test_a_record_appears_exactly_where_the_page_says(desk: Desk, read: str) -> None:
    told = table()[read]
    shown = {}
    for state, word in told.items():
        if (state, read.removeprefix("operator.").lower()) == ("expired", "vocabulary") or (
            state == "expired" and read == "knowledge_ontology"
        ):
            shown[state] = "no"  # examples are pages and relationships, and only claims expire
        elif seen(desk, read, state, ""):
            shown[state] = "yes"
        elif word in ("all", "historical") and seen(desk, read, state, word):
            shown[state] = word
        else:
            shown[state] = "no"
    assert shown == told


@pytest.mark.parametrize("read", ["knowledge_grep", "knowledge_lookup", "operator.search", "operator.lookup"])
def test_all_is_active_and_superseded_only(desk: Desk, read: str) -> None:
    found: set[str] = set()
    for query in ("bell",) if "lookup" not in read else STATES:
        found |= set(ids(ask(desk, read, {"query": query, "lifecycle": "all", "limit": 50})))
    assert found & set(STATES) == {"active", "superseded"}


@pytest.mark.parametrize("method", ["records", "recent"])
@pytest.mark.parametrize("state", STATES)
def test_an_operator_browses_each_state_alone(desk: Desk, method: str, state: str) -> None:
    answer = desk.operate(method, {"lifecycle": state, "kind": "page" if state == "merged" else "claim"})
    assert {card["id"] for card in rows(answer, "records")} == {state}


def test_agents_cannot_ask_for_states_that_are_not_theirs(desk: Desk) -> None:
    for tool, needed in (("records", {}), ("grep", {"query": "bell"}), ("lookup", {"query": "bell"})):
        for state in ("withdrawn", "merged", "expired", "invalid", "fixture"):
            error = desk.fails(tool, {**needed, "lifecycle": state})
            assert error.fields["field"] == "lifecycle"
            assert error.fields["allowed"] == ["active", "superseded", "all"]


def test_a_card_says_why_agents_do_not_find_its_record(desk: Desk) -> None:
    shown = {}
    for card in rows(desk.operate("records", {"lifecycle": "all", "kind": "claim"}), "records"):
        shown[card["id"]] = [card[name] for name in ("lifecycle", "current", "valid", "expired", "fixture")]
    assert shown == {
        "active": ["active", True, True, False, False],
        "superseded": ["superseded", False, True, False, False],
        "withdrawn": ["withdrawn", False, True, False, False],
        "expired": ["active", False, True, True, False],
        "invalid": ["active", False, False, False, False],
        "fixture": ["active", False, True, False, True],
    }


def test_a_lookup_of_a_merged_page_finds_the_page_it_was_merged_into(desk: Desk) -> None:
    for read in ("knowledge_lookup", "operator.lookup"):
        assert [row["id"] for row in rows(ask(desk, read, {"query": "Bell merged"}), "hits")] == ["subject"]


def test_no_state_of_a_record_shows_in_an_agents_answer_but_by_what_the_shapes_list(desk: Desk) -> None:
    for state in STATES:
        record = desk.record(state)
        assert not record.keys() & {"current", "valid", "expired", "fixture", "path", "recordedAt"}

"""Any arguments, against a store of hostile notes: a read is answered in its shape and within its bytes, or refused.

Shapes are those of tools.md (Agent response shapes), refusals those of decisions.md section 7, budgets those of
``test_bounded_reads``.
"""

from __future__ import annotations

import json
import random
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from messages.coercion import as_integer
from messages.errors import InvalidArgument, KnowledgeError
from messages.json_types import JsonObject, JsonValue
from messages.schemas import input_schema
from messages.text import utf16_length
from messages.tools import CATALOGUE, json_bytes
from messages.tools.operator_reads import OPERATOR_READS
from storage.layout import StoreLayout
from tests.actors.store.test_bounded_reads import MOST_BYTES, OPERATORS_MOST_BYTES
from tests.kit.desk_fixtures import made_store
from tests.kit.hostile import broken_envelopes, wrong_values
from tests.kit.store import Desk, copy_store, request_id, write_notes

__all__ = ["made_store"]

REFUSALS: Final = {
    "invalid_argument", "limit_exceeded", "short_hash", "not_found", "ambiguous", "evidence_invalid",
    "snapshot_changed",
}  # fmt: skip

# --- shapes -------------------------------------------------------------------------------------------------------

HEAD: Final = {"id", "revision", "hash", "kind"}
NEEDED: Final = {
    "page": {"title", "type"},
    "claim": {"claimKind", "day", "text"},
    "relationship": {"from", "label", "to"},
}
OPTIONAL: Final = {
    "page": {"lifecycle"},
    "claim": {"lifecycle", "assertionOrigin", "pages", "sourcePage", "truncated", "omitted"},
    "relationship": {"lifecycle", "assertionOrigin"},
}
BESIDE: Final[dict[str, set[str]]] = {
    "records": set(), "connections": {"direction"}, "timeline": {"date"}, "chronicle_day": {"date"},
    "grep": {"snippet"}, "lookup": set(), "chronicle_due": {"due"},
}  # fmt: skip
MAYBE_BESIDE: Final[dict[str, set[str]]] = {"grep": {"via", "title"}, "lookup": {"title"}, "chronicle_due": {"owner"}}
TOP: Final[dict[str, tuple[set[str], set[str]]]] = {
    "records": ({"total", "records"}, {"nextOffset", "snapshot", "coverage"}),
    "connections": ({"total", "connections"}, {"nextOffset", "snapshot", "coverage", "mergedInto"}),
    "timeline": ({"total", "entries"}, {"nextOffset", "snapshot", "coverage"}),
    "chronicle_day": ({"total", "entries"}, {"nextOffset", "snapshot", "coverage"}),
    "chronicle_days": ({"days"}, {"nextSince", "coverage"}),
    "chronicle_due": ({"asOf", "totals", "overdue", "due", "upcoming"}, {"coverage"}),
    "grep": ({"total", "hits"}, {"nextOffset", "snapshot", "coverage"}),
    "lookup": ({"state", "total", "hits"}, {"nextOffset", "snapshot", "coverage"}),
    "record": ({"record"}, {"nextOffset", "nextEvidenceOffset", "omitted"}),
    "history": ({"total", "git", "rows"}, {"nextOffset", "snapshot"}),
    "verify": ({"total"}, {"records", "links", "nextOffset", "snapshot"}),
    "source_check": ({"total", "counts", "sources"}, {"nextOffset", "snapshot", "coverage"}),
    "mutation": ({"receipt", "git"}, {"files", "nextFileOffset"}),
    "attachment": ({"data", "offset", "size", "nextOffset"}, set()),
    "evidence_read": ({"text"}, {"startLine", "endLine", "nextCursor"}),
    "status": ({"vaultId", "partition", "writesEnabled", "live", "ontologyFingerprint", "counts", "publications", "git",
                "index"}, {"warnings"}),
}  # fmt: skip
LISTS: Final = {"records": "records", "connections": "connections", "timeline": "entries", "chronicle_day": "entries",
                "grep": "hits", "lookup": "hits"}  # fmt: skip
DAY: Final = re.compile(r"\d{4}(-\d\d(-\d\d)?)?")


def check_row(tool: str, row: Mapping[str, JsonValue]) -> None:
    kind = str(row["kind"])
    needed = HEAD | NEEDED[kind] | BESIDE[tool]
    assert needed <= row.keys() <= needed | OPTIONAL[kind] | MAYBE_BESIDE.get(tool, set())
    assert re.fullmatch(r"[0-9a-f]{16}", str(row["hash"]))
    assert isinstance(row["revision"], int)
    assert row.get("lifecycle", "superseded") in ("superseded", "withdrawn", "merged")
    assert row.get("assertionOrigin", "user_belief") in ("user_belief", "agent_inference")
    assert row.get("truncated", True) is True
    for name, most in (("title", 200), ("type", 100), ("label", 100), ("text", 4_000), ("snippet", 240)):
        assert utf16_length(str(row.get(name, ""))) <= most
    if kind == "claim":
        assert DAY.fullmatch(str(row["day"]))
    if "date" in row:
        assert DAY.fullmatch(str(row["date"]))
    pages = row.get("pages", [{"id": "", "title": ""}])
    assert isinstance(pages, list)
    assert all(isinstance(page, dict) and page.keys() == {"id", "title"} for page in pages)


def check_answer(tool: str, arguments: Mapping[str, JsonValue], answer: JsonObject) -> None:
    if tool in TOP:
        needed, optional = TOP[tool]
        assert needed <= answer.keys() <= needed | optional
    assert answer.get("coverage") != {}
    if tool == "chronicle_due":
        for name in ("overdue", "due", "upcoming"):
            for row in rows_of(answer, name):
                check_row(tool, row)
    if tool not in LISTS:
        return
    found, total = rows_of(answer, LISTS[tool]), answer["total"]
    for row in found:
        check_row(tool, row)
    assert isinstance(total, int)
    offset = as_integer(arguments.get("offset")) or 0
    if tool != "grep":  # which has replacements behind its total, and a last offset
        assert (answer.get("nextOffset") == offset + len(found)) == (bool(found) and offset + len(found) < total)
    assert ("snapshot" in answer) == (offset > 0 or "nextOffset" in answer)


def rows_of(answer: JsonObject, key: str) -> list[JsonObject]:
    found = answer[key]
    assert isinstance(found, list)
    return [row for row in found if isinstance(row, dict)]


# --- arguments ----------------------------------------------------------------------------------------------------

JUNK: Final[Sequence[JsonValue]] = (
    None, True, 0, -1, 1, 2.5, 10**30, "", " ", "\n", "5", "5.0", "null", "[]", "{}", "[1]", [], {}, [[]], "a\0",
    "\ud800", "\U0001f642", "a\u202eb", "x" * 501, "x" * 100_000, "C++", "NEAR(", '"*', "v2.8.3", "C:\\XYZ\\", "İ",
    "ﷺ" * 60, "%_'", "\U0001f469\u200d\U0001f4bb", "שָׁלוֹם", "e\u0301", "2026-02-30", "0000", "../x", "private-1", "page",
    "all", "desc",
)  # fmt: skip
WORDS: Final = ("harbor", "Hub", "the HUB", "port", "harbor quay", "see", "3", "project", "nobody", "hub", "same")
DATES: Final = ("2026", "2026-10", "2026-10-01", "2026-11-02", "2026-11-03", "2027", "0001", "9999-12-31", "1970",
                "2026-11-02T10:00:00+02:00", "2016-12-31T23:59:60Z")  # fmt: skip
POOLS: Final[dict[str, Sequence[JsonValue]]] = {
    **dict.fromkeys(("query", "match", "subject", "owner"), WORDS),
    **dict.fromkeys(("since", "until", "asOf", "date"), DATES),
    **dict.fromkeys(("offset", "evidenceOffset", "charOffset", "fileOffset"), (0, 1, 3, 12, 20, 100, 500, 10**7)),
    "limit": (1, 2, 10, 20, 50, 100),
    "maxChars": (256, 1_000, 1_001, 3_000, 12_000, 48_000, 65_536),
    "type": ("project", "person", "related_to", "opportunity", "nothing"),
    "name": ("project", "opportunity", "related_to", "nothing"),
    "tag": ("t", "T"),
    "sequence": tuple(range(1, 60)),
    "requestId": (request_id(1), request_id(2)),
    "startLine": (1, 2, 9),
    "endLine": (1, 2, 9),
    "horizonDays": (0, 7, 366),
    "sourcePath": ("core.yaml", "ontology.yaml"),
    "sources": ([{"key": "k"}], [{"key": "k", "size": 3, "modified": "2026-11-02T10:00:00Z"}]),
}


@dataclass(frozen=True, slots=True)
class Read:
    """One read: the schema of its arguments, and what an answer may take."""

    name: str
    properties: Mapping[str, Mapping[str, JsonValue]]
    required: frozenset[str]
    most_bytes: int
    operator: bool = False


def reads() -> Iterator[Read]:
    for spec in CATALOGUE.values():
        if spec.action == "read":
            yield read_of(spec.operation, input_schema(spec.request), MOST_BYTES[spec.operation])
    for request in OPERATOR_READS:
        method = request.tool.removeprefix("operator.")
        yield read_of(method, input_schema(request), OPERATORS_MOST_BYTES[method], operator=True)


def read_of(name: str, schema: JsonObject, most_bytes: int, *, operator: bool = False) -> Read:
    properties, required = schema["properties"], schema["required"]
    assert isinstance(properties, dict)
    assert isinstance(required, list)
    nodes = {argument: node for argument, node in properties.items() if isinstance(node, dict)}
    return Read(name, nodes, frozenset(map(str, required)), most_bytes, operator)


READS: Final = tuple(reads())


@dataclass(frozen=True, slots=True)
class Store:
    """An open store of hostile notes, the ids in it, and ``(record, path, hash)`` of sources that records cite."""

    desk: Desk
    ids: Sequence[str]
    cited: Sequence[tuple[str, str, str]]

    def calls(self) -> st.SearchStrategy[tuple[Read, JsonObject]]:
        return st.sampled_from(READS).flatmap(lambda read: st.tuples(st.just(read), self._arguments(read)))

    def _arguments(self, read: Read) -> st.SearchStrategy[JsonObject]:
        """Likely arguments; every third time one of them is anything else."""
        values = {name: st.sampled_from(self._likely(name, node)) for name, node in read.properties.items()}
        needed = {name: value for name, value in values.items() if name in read.required}
        optional = {name: value for name, value in values.items() if name not in read.required}
        arguments: st.SearchStrategy[JsonObject] = st.fixed_dictionaries(needed, optional=optional)
        if "sha256" in values:
            cited = st.sampled_from(self.cited).map(lambda one: dict(zip(("id", "path", "sha256"), one, strict=True)))
            arguments = st.builds(lambda more, one: {**more, **one}, arguments, cited)
        anything = st.one_of(st.sampled_from(JUNK), st.text(max_size=20))
        odd = st.dictionaries(st.sampled_from([*values, "full"]), anything, min_size=1, max_size=1)
        return st.one_of(arguments, arguments, st.builds(lambda likely, one: {**likely, **one}, arguments, odd))

    def _likely(self, name: str, node: Mapping[str, JsonValue]) -> Sequence[JsonValue]:
        if name == "id":
            return self.ids
        if name == "ids":
            return [*([one] for one in self.ids), [*self.ids[:100]]]
        if name == "expectedLinks":
            return [[{"from": one, "to": "hub"}] for one in self.ids]
        if isinstance(words := node.get("enum"), list):
            return words
        if node.get("type") == "boolean":
            return (True, False)
        least, most = node.get("minimum"), node.get("maximum")
        within = [
            value
            for value in POOLS.get(name, (None,))
            if not isinstance(value, int) or not isinstance(least, int) or not isinstance(most, int)
            or least <= value <= most
        ]  # fmt: skip
        return within or (None,)


def opened(made: StoreLayout, factory: pytest.TempPathFactory, wrong: Sequence[tuple[str, str]]) -> Store:
    desk = Desk(copy_store(made, factory.mktemp("fuzz") / "store"))
    desk.remember("Chose option B.", {"text": "Ship it.", "kind": "commitment", "due_at": "2026-11-03"})
    desk.page("Garden pilot", body="\N{SLIGHTLY SMILING FACE}" * 3_000, aliases=["GP"])
    write_notes(desk.folder(), [*broken_envelopes(), *wrong])
    found = desk.operate("records", {"lifecycle": "all", "limit": 100})
    ids = [str(row["id"]) for row in rows_of(found, "records")]
    cited = [
        (record_id, str(one["path"]), str(one["sha256"]))
        for record_id in ids
        if isinstance(record := desk.call("record", {"id": record_id, "includeEvidence": True})["record"], dict)
        for one in (rows_of(record, "evidence") if "evidence" in record else [])
    ]
    return Store(desk, ids, cited)


def outcome_of(store: Store, read: Read, arguments: JsonObject) -> JsonObject | KnowledgeError:
    """The answer, or the refusal; whatever else is raised fails the test."""
    try:
        return (store.desk.operate if read.operator else store.desk.call)(read.name, arguments)
    except KnowledgeError as refusal:
        return refusal


def ask(store: Store, read: Read, arguments: JsonObject) -> None:
    outcome = outcome_of(store, read, arguments)
    if isinstance(outcome, KnowledgeError):
        assert outcome.code in REFUSALS, outcome.code
        assert outcome.message
        assert not isinstance(outcome, InvalidArgument) or {"field", "reason"} <= outcome.fields.keys()
        json.dumps(outcome.fields, allow_nan=False, ensure_ascii=False).encode()
        return
    written = json.dumps(outcome, allow_nan=False, ensure_ascii=False)
    written.encode()
    assert json.loads(written) == outcome
    assert json_bytes(outcome) <= read.most_bytes
    if not read.operator:
        check_answer(read.name, arguments, outcome)


@pytest.fixture(scope="module")
def store(made_store: StoreLayout, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Store]:
    made = opened(made_store, tmp_path_factory, random.Random(7).sample(list(wrong_values()), 150))
    yield made
    made.desk.close()


@settings(max_examples=200, deadline=None, derandomize=True, database=None,
          suppress_health_check=[HealthCheck.too_slow])  # fmt: skip
@given(data=st.data())
def test_any_arguments_are_answered_in_shape_and_within_bounds_or_refused_by_type(
    store: Store, data: st.DataObject
) -> None:
    ask(store, *data.draw(store.calls()))


def test_every_record_with_a_wrong_value_is_read_by_its_id_and_in_every_list(store: Store) -> None:
    read_of = {(read.name, read.operator): read for read in READS}
    for record_id in store.ids:
        for name in ("record", "connections", "history"):
            for operator in (False, True):
                ask(store, read_of[name, operator], {"id": record_id})
        ask(store, read_of["verify", False], {"ids": [record_id]})
        ask(store, read_of["lookup", False], {"query": record_id})


@pytest.mark.exhaustive
@pytest.mark.timeout(7_200)
def test_every_wrong_value_of_every_key_and_many_arguments(
    made_store: StoreLayout, tmp_path_factory: pytest.TempPathFactory
) -> None:
    made = opened(made_store, tmp_path_factory, list(wrong_values()))
    offset, ids = 0, list[str]()
    while True:
        page = made.desk.operate("records", {"lifecycle": "all", "limit": 100, "offset": offset})
        ids += [str(row["id"]) for row in rows_of(page, "records")]
        if page["nextOffset"] is None:
            break
        offset = len(ids)
    assert len(ids) == page["total"]
    whole = Store(made.desk, ids, made.cited)
    test_every_record_with_a_wrong_value_is_read_by_its_id_and_in_every_list(whole)

    @settings(max_examples=5_000, deadline=None, database=None, suppress_health_check=list(HealthCheck))
    @given(data=st.data())
    def many(data: st.DataObject) -> None:
        ask(whole, *data.draw(whole.calls()))

    try:
        many()
    finally:
        made.desk.close()

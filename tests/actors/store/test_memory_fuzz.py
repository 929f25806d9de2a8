"""Any parameters of the memory provider, against a store of hostile notes: an answer within its bytes, or a refusal.

Source: memory-provider.md (Shared memory reads), decisions.md section 7 (codes).
"""

from __future__ import annotations

import json
import random
from collections.abc import Iterator

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from messages.errors import InvalidArgument, KnowledgeError
from messages.json_types import JsonObject, JsonValue
from messages.tools import json_bytes
from storage.layout import StoreLayout
from tests.actors.store.test_read_fuzz import JUNK, REFUSALS, WORDS, Store, opened
from tests.kit.desk_fixtures import made_store
from tests.kit.hostile import wrong_values
from tests.kit.store import VAULT_ID

__all__ = ["made_store"]

MOST_BYTES = {"search": 24 * 1024, "read": 48 * 1024, "candidates": 1_050_000, "status": 1_024}
CODES = {*REFUSALS, "reference_changed", "reference_foreign"}
LIKELY: dict[str, dict[str, list[JsonValue]]] = {
    "search": {
        "query": [*WORDS, "Where is the harbor, please?", "猫 boats"],
        "limit": [1, 2, 10, 50],
        "minScore": [0, 0.3, 1, "0.5"],
        "kind": ["page", "claim", "relationship"],
        "sources": [["memory"]],
    },
    "read": {"startLine": [1, 2, 3, 100], "lines": [1, 2, 100, 200]},
    "candidates": {"kind": ["trigger", "project"], "projects": [[], ["a"]], "limit": [1, 48, 200]},
    "status": {},
}


@pytest.fixture(scope="module")
def store(made_store: StoreLayout, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Store]:
    made = opened(made_store, tmp_path_factory, random.Random(11).sample(list(wrong_values()), 150))
    yield made
    made.desk.close()


def ref_of(store: Store, record_id: str) -> JsonObject:
    entry = store.desk.partition().catalogue.by_id(record_id)[0]
    return {
        "provider": "knowledge", "store": VAULT_ID, "id": entry.id, "revision": entry.revision, "hash": entry.hash
    }  # fmt: skip


def outcome_of(store: Store, method: str, params: JsonObject) -> JsonObject | KnowledgeError:
    """The answer, or the refusal; whatever else is raised fails the test."""
    try:
        return store.desk.consult(method, params)
    except KnowledgeError as refusal:
        return refusal


def ask(store: Store, method: str, params: JsonObject) -> JsonObject | None:
    """The answer, checked, or ``None`` for a refusal, checked too."""
    answer = outcome_of(store, method, params)
    if isinstance(answer, KnowledgeError):
        assert answer.code in CODES, answer.code
        assert not isinstance(answer, InvalidArgument) or {"field", "reason"} <= answer.fields.keys()
        json.dumps(answer.fields, allow_nan=False, ensure_ascii=False).encode()
        return None
    written = json.dumps(answer, allow_nan=False, ensure_ascii=False)
    assert json.loads(written.encode()) == answer
    assert json_bytes(answer) <= MOST_BYTES[method]
    return answer


@settings(max_examples=150, deadline=None, derandomize=True, database=None,
          suppress_health_check=[HealthCheck.too_slow])  # fmt: skip
@given(data=st.data())
def test_any_parameters_are_answered_within_bounds_or_refused_by_type(store: Store, data: st.DataObject) -> None:
    method = data.draw(st.sampled_from(sorted(LIKELY)))
    params: JsonObject = {
        name: data.draw(st.sampled_from(values)) for name, values in LIKELY[method].items() if data.draw(st.booleans())
    }
    if method == "search":
        params.setdefault("query", "harbor")
    if method == "candidates":
        params.setdefault("kind", "trigger")
    if method == "read":
        ref = ref_of(store, data.draw(st.sampled_from(store.ids)))
        if data.draw(st.booleans()):
            ref[data.draw(st.sampled_from([*ref, "full"]))] = data.draw(st.sampled_from(JUNK))
        params["ref"] = ref
    if data.draw(st.integers(0, 2)) == 0:
        odd = data.draw(st.sampled_from([*LIKELY[method], "cursor", "ref", "purpose", "full"]))
        params[odd] = data.draw(st.sampled_from(JUNK) | st.text(max_size=20))
    ask(store, method, params)


def test_every_hit_of_hostile_notes_can_be_read_by_its_reference(store: Store) -> None:
    seen, cursor = 0, None
    while seen == 0 or cursor is not None:
        answer = ask(store, "search", {"query": "harbor hub see same quay", "limit": 50, "cursor": cursor})
        assert answer is not None
        hits = answer["hits"]
        assert isinstance(hits, list)
        for hit in hits:
            ref = hit["ref"]
            if len(store.desk.partition().catalogue.by_id(ref["id"])) == 1:
                read = ask(store, "read", {"ref": ref, "lines": 200})
                assert read is not None
                assert read["ref"] == ref
        seen += len(hits)
        cursor = answer.get("nextCursor")
    assert seen > 20


def test_every_record_that_is_read_is_current_and_every_other_is_refused_by_name(store: Store) -> None:
    now, read = store.desk.now_ms, 0
    for record_id in store.ids:
        found = store.desk.partition().catalogue.by_id(record_id)
        answer = ask(store, "read", {"ref": ref_of(store, record_id)})
        assert (answer is not None) == (len(found) == 1 and found[0].current(now))
        read += answer is not None
    assert 0 < read < len(store.ids)


def walked(store: Store, params: JsonObject, limits: list[int]) -> list[JsonObject]:
    """All hits of a search, page by page; the last limit is kept to the end."""
    found: list[JsonObject] = []
    cursor: JsonValue = None
    for number in range(10_000):
        limit = limits[min(number, len(limits) - 1)]
        answer = ask(store, "search", {**params, "limit": limit, "cursor": cursor})
        assert answer is not None
        hits = answer["hits"]
        assert isinstance(hits, list)
        assert len(hits) <= limit
        found += hits
        cursor = answer.get("nextCursor")
        if cursor is None:
            return found
        assert hits, "a page that goes on is not empty"
    raise AssertionError("it never ends")


@settings(max_examples=40, deadline=None, derandomize=True, database=None,
          suppress_health_check=[HealthCheck.too_slow])  # fmt: skip
@given(data=st.data())
def test_pages_of_any_size_are_one_list_in_the_order_of_their_scores_from_which_min_score_cuts_the_end(
    store: Store, data: st.DataObject
) -> None:
    query = " ".join(data.draw(st.lists(st.sampled_from(WORDS), min_size=1, max_size=4)))
    kind = data.draw(st.sampled_from([None, "page", "claim"]))
    whole = walked(store, {"query": query, "kind": kind}, [50])
    scores = [float(str(hit["score"])) for hit in whole]
    assert scores == sorted(scores, reverse=True)
    assert not scores or scores[0] == 1.0
    least = data.draw(st.sampled_from([0.0, 1.0, *scores, 0.5]))
    limits = data.draw(st.lists(st.integers(1, 50), min_size=1, max_size=6))
    paged = walked(store, {"query": query, "kind": kind, "minScore": least}, limits)
    assert paged == [hit for hit in whole if float(str(hit["score"])) >= least]
    assert len({json.dumps(hit["ref"]) for hit in whole}) == len(whole)

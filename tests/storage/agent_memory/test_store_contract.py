"""What all four stores guarantee, sentence by sentence, and against a model in plain Python.

Source: agent-memory-contract.md section 3.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from messages.errors import InvalidArgument
from storage.agent_memory import KnowledgeEntry, SQLiteKnowledgeStore
from storage.agent_memory.contract import ALL, KnowledgeStore, WatchedStore, to_evict
from tests.storage.agent_memory.conftest import NOON, Fresh, Hands, Opened


def entry(text: str = "", **fields: Any) -> KnowledgeEntry:
    at = fields.pop("at", NOON)
    return KnowledgeEntry(content=text, created_at=at, updated_at=at, **fields)


def texts(found: list[KnowledgeEntry]) -> list[str]:
    return [one.content for one in found]


# --- save, get, delete, count --------------------------------------------------------------------------


def test_what_is_saved_is_there_with_every_field_for_whoever_opens_it(opened: Opened) -> None:
    kept = KnowledgeEntry(
        "an id",
        "zwei Zeilen\n--- „ü“ \U0001f600 \x00".replace("\x00", ""),
        "a category: with, (everything) \"in\" it",
        0.1 + 0.2,
        True,
        7,
        NOON,
        NOON + timedelta(microseconds=1),
        {"source": ["chat", {"n": 1.5, "none": None}], "ü": "\u2028"},
    )
    assert opened().save(kept) == "an id"
    assert opened().get("an id") == kept
    assert opened().query() == [kept]


def test_saving_with_an_existing_id_replaces_that_entry_and_leaves_the_count(opened: Opened) -> None:
    store = opened()
    first = entry("first", category="a", importance=0.9, persistent=True, ttl_days=3, metadata={"n": 1})
    store.save(first)
    store.save(entry("second", id=first.id, category="b", importance=0.1))
    for one in (store, opened()):
        assert one.count() == 1
        assert texts(one.query()) == texts(one.query(category="b")) == ["second"]
        assert one.query(category="a") == one.query(min_importance=0.5) == []
        found = one.get(first.id)
        assert found is not None
        assert (found.persistent, found.ttl_days, found.metadata) == (False, None, {})


def test_saving_never_touches_updated_at(store: KnowledgeStore) -> None:
    kept = replace(entry("x"), updated_at=NOON - timedelta(days=99))
    store.save(kept)
    found = store.get(kept.id)
    assert found is not None
    assert found.updated_at == NOON - timedelta(days=99)


def test_a_missing_id_is_none(store: KnowledgeStore) -> None:
    for missing in ("missing", "", "importance", "all_ids", "changes", "category:general"):
        assert store.get(missing) is None
        assert store.delete(missing) is False
    assert store.count() == 0


def test_get_ignores_expiry_and_count_includes_expired_entries(store: KnowledgeStore) -> None:
    kept = entry("x", ttl_days=-1)
    store.save(kept)
    assert store.get(kept.id) == kept
    assert (store.count(), store.query()) == (1, [])


def test_delete_is_true_only_if_the_entry_existed(opened: Opened) -> None:
    store = opened()
    kept = entry("x", category="c")
    store.save(kept)
    store.save(entry("y", category="c"))
    assert store.delete(kept.id) is True
    assert store.delete(kept.id) is False
    for one in (store, opened()):
        assert (one.get(kept.id), one.count(), texts(one.query(category="c"))) == (None, 1, ["y"])


def test_an_entry_is_copied_in_and_out(store: KnowledgeStore) -> None:
    kept = entry("x", metadata={"list": [1]})
    store.save(kept)
    kept.metadata["list"].append(2)
    found = store.query()[0]
    assert found.metadata == {"list": [1]}
    found.metadata["list"].append(3)
    found.content = "changed"
    again = store.get(kept.id)
    assert again is not None
    assert (again.content, again.metadata) == ("x", {"list": [1]})


def test_metadata_are_at_once_what_they_will_be_when_read_again(opened: Opened) -> None:
    store = opened()
    kept = entry("x", metadata={1: (1, 2)})
    store.save(kept)
    for one in (store, opened()):
        found = one.get(kept.id)
        assert found is not None
        assert found.metadata == {"1": [1, 2]}


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("id", ""),
        ("id", 7),
        ("content", None),
        ("category", b"general"),
        ("importance", math.nan),
        ("importance", "high"),
        ("importance", 10**400),
        ("content", "a\ud800b"),
        ("importance", True),
        ("ttl_days", 1.5),
        ("ttl_days", 2**31),
        ("ttl_days", True),
        ("created_at", "2026-03-13"),
        ("updated_at", None),
        ("metadata", [1]),
    ],
)
def test_a_field_that_no_store_could_read_again_is_refused_and_nothing_is_kept(
    store: KnowledgeStore, field: str, value: object
) -> None:
    unfit = entry("x")
    setattr(unfit, field, value)
    with pytest.raises(InvalidArgument) as refused:
        store.save(unfit)
    assert refused.value.fields["field"] == field
    assert store.count() == 0


@pytest.mark.parametrize("value", [object(), {1, 2}, math.nan, math.inf])
def test_metadata_that_json_cannot_hold_are_refused_and_what_was_there_stays(
    store: KnowledgeStore, value: object
) -> None:
    kept = entry("x")
    store.save(kept)
    with pytest.raises((TypeError, ValueError)):
        store.save(replace(kept, content="y", metadata={"value": value}))
    assert store.query() == [kept]


@pytest.mark.parametrize("importance", [-math.inf, -1.0, 0.0, 5e-324, 7.0, 1e300, math.inf])
def test_importance_is_not_clamped(opened: Opened, importance: float) -> None:
    opened().save(entry("x", importance=importance))
    assert [one.importance for one in opened().query(min_importance=-math.inf)] == [importance]
    assert len(opened().query(min_importance=importance)) == 1


# --- query ---------------------------------------------------------------------------------------------


def test_the_most_important_come_first_then_the_oldest_then_by_id(store: KnowledgeStore) -> None:
    for text, importance, minutes, entry_id in [
        ("later", 0.5, 2, "a"),
        ("earlier, second id", 0.5, 1, "c"),
        ("earlier, first id", 0.5, 1, "b"),
        ("most important", 0.9, 3, "d"),
    ]:
        store.save(entry(text, importance=importance, id=entry_id, at=NOON + timedelta(minutes=minutes)))
    order = ["most important", "earlier, first id", "earlier, second id", "later"]
    assert texts(store.query()) == order
    for limit in range(5):
        assert texts(store.query(limit=limit)) == order[:limit]


def test_a_limit_below_one_finds_nothing(store: KnowledgeStore) -> None:
    store.save(entry("x"))
    assert store.query(limit=0) == store.query(limit=-1) == []


def test_no_entry_expired_is_found_not_even_a_persistent_one(store: KnowledgeStore, clock: Hands) -> None:
    store.save(entry("x", ttl_days=1))
    store.save(entry("y", ttl_days=1, persistent=True))
    clock.now = NOON + timedelta(days=1)
    assert len(store.query()) == 2  # exactly its days are not over yet
    clock.now += timedelta(microseconds=1)
    assert store.query() == []


def test_expired_entries_never_take_a_place_of_the_limit(store: KnowledgeStore) -> None:
    for number in range(30):
        store.save(entry(f"expired {number}", importance=0.9, ttl_days=-1, persistent=number % 2 == 0))
    for number in range(3):
        store.save(entry(f"live {number}", importance=0.1, at=NOON + timedelta(seconds=number)))
    assert texts(store.query(limit=2)) == ["live 0", "live 1"]
    assert texts(store.query(limit=1)) == ["live 0"]


def test_the_least_importance_is_inclusive(store: KnowledgeStore) -> None:
    for importance in (0.3, 0.5, 0.7):
        store.save(entry(str(importance), importance=importance))
    assert texts(store.query(min_importance=0.5)) == ["0.7", "0.5"]
    assert texts(store.query(category="general", min_importance=0.5)) == ["0.7", "0.5"]


def test_a_query_leaves_out_negative_importance_unless_asked_for_it(store: KnowledgeStore) -> None:
    store.save(entry("x", importance=-0.5))
    assert store.query() == store.query(category="general") == []
    assert texts(store.query(min_importance=-1)) == ["x"]


def test_since_is_inclusive_on_created_at_and_a_naive_since_means_utc(store: KnowledgeStore) -> None:
    for seconds in (-1, 0, 1):
        store.save(entry(str(seconds), at=NOON + timedelta(seconds=seconds)))
    assert texts(store.query(since=NOON)) == texts(store.query(since=NOON.replace(tzinfo=None))) == ["0", "1"]
    assert texts(store.query(category="general", since=NOON)) == ["0", "1"]


def test_since_compares_moments_not_texts_of_different_offsets(store: KnowledgeStore) -> None:
    east, west = timezone(timedelta(hours=14)), timezone(timedelta(hours=-11))
    store.save(entry("an hour before", at=(NOON - timedelta(hours=1)).astimezone(east)))
    store.save(entry("an hour after", at=(NOON + timedelta(hours=1)).astimezone(west)))
    for zone in (UTC, east, west):
        assert texts(store.query(since=NOON.astimezone(zone))) == ["an hour after"]
    assert texts(store.query()) == ["an hour before", "an hour after"]


def test_a_created_at_without_a_zone_is_utc(opened: Opened) -> None:
    opened().save(entry("x", at=NOON.replace(tzinfo=None)))
    assert opened().query(since=NOON)[0].created_at == NOON


@pytest.mark.parametrize("category", ["", "a:b", "x,y", 'q"(', "*", "[a-z]", "%", "_", "null", "ü\u2028", "a b"])
def test_a_category_is_compared_as_text_and_an_empty_one_is_no_filter(store: KnowledgeStore, category: str) -> None:
    store.save(entry("there", category=category, importance=0.9))
    store.save(entry("other", category="other"))
    assert texts(store.query(category=category)) == (["there"] if category else ["there", "other"])


# --- prune ---------------------------------------------------------------------------------------------


def test_prune_never_removes_persistent_entries(store: KnowledgeStore) -> None:
    store.save(entry("x", persistent=True, importance=0.0, ttl_days=-1, at=NOON - timedelta(days=999)))
    assert store.prune(max_age_days=0, min_importance=0.5) == 0
    assert store.count() == 1


def test_prune_removes_expired_entries(opened: Opened) -> None:
    store = opened()
    store.save(entry("x", ttl_days=-1))
    store.save(entry("y"))
    assert store.prune() == 1
    assert opened().count() == 1


def test_prune_removes_what_was_created_earlier_than_so_many_days_ago(store: KnowledgeStore) -> None:
    for days in (2.1, 2, 1):
        store.save(entry(str(days), at=NOON - timedelta(days=days)))
    assert store.prune(max_age_days=2) == 1
    assert texts(store.query()) == ["2", "1"]


def test_zero_days_is_a_real_age(store: KnowledgeStore) -> None:
    store.save(entry("before", at=NOON - timedelta(microseconds=1)))
    store.save(entry("now"))
    assert store.prune(max_age_days=0) == 1
    assert texts(store.query()) == ["now"]


def test_an_age_beyond_the_calendar_removes_nothing(store: KnowledgeStore) -> None:
    store.save(entry("x", at=datetime(1970, 1, 1, tzinfo=UTC)))
    assert store.prune(max_age_days=10**12) == 0


def test_prune_removes_importance_below_the_bound_and_by_default_none(store: KnowledgeStore) -> None:
    for importance in (-0.5, 0.0, 0.3, 0.5):
        store.save(entry(str(importance), importance=importance))
    assert store.prune() == 0
    assert store.prune(min_importance=0.5) == 3
    assert texts(store.query(min_importance=-1)) == ["0.5"]


def test_prune_counts_an_entry_once(store: KnowledgeStore) -> None:
    store.save(entry("x", importance=0.1, ttl_days=-1, at=NOON - timedelta(days=9)))
    assert store.prune(max_age_days=1, min_importance=0.5) == 1


# --- beyond the contract -------------------------------------------------------------------------------


def test_every_store_says_what_its_files_need(opened: Opened) -> None:
    store = opened()
    assert isinstance(store, KnowledgeStore)
    assert isinstance(store, WatchedStore)
    kept = [entry(str(number), ttl_days=-1 if number % 2 else None, id=f"an id, {number}") for number in range(5)]
    for one in kept:
        store.save(one)
    assert sorted(texts(store.everything())) == ["0", "1", "2", "3", "4"]
    assert store.get_many([kept[0].id, "missing", kept[1].id]) == {one.id: one for one in kept[:2]}
    assert store.get_many([]) == {}
    assert store.remove([kept[0].id, "missing", kept[1].id]) == 2
    assert sorted(texts(store.everything())) == ["2", "3", "4"]


def test_a_version_that_is_one_changes_with_every_change_by_whomever(opened: Opened) -> None:
    mine, other = opened(), opened()
    assert isinstance(mine, WatchedStore)
    kept = entry("x", ttl_days=-1)
    changes: list[Callable[[], object]] = [
        lambda: other.save(kept),
        lambda: other.save(replace(kept, content="y")),
        lambda: mine.save(entry("z")),
        lambda: other.prune(),
        lambda: mine.delete(mine.query()[0].id),
    ]
    seen = [mine.version()]
    for change in changes:
        change()
        seen.append(mine.version())
        assert mine.version() == seen[-1]
    assert seen == [None] * len(seen) or len(set(seen)) == len(seen)


# --- against a model -----------------------------------------------------------------------------------

IDS = st.sampled_from(["a", "b", "c", "d", "e", "f"])
CATEGORIES = st.sampled_from(["general", "other", "ü:1"])
IMPORTANCES = st.sampled_from([-math.inf, -0.5, 0.0, 0.25, 0.5, 1.0, math.inf])
MOMENTS = st.builds(
    lambda hours, offset: (NOON + timedelta(hours=hours)).astimezone(timezone(timedelta(hours=offset))),
    st.sampled_from([-50, -25, -24, -1, 0]),
    st.sampled_from([-11, 0, 5, 14]),
)
ENTRIES = st.builds(
    KnowledgeEntry,
    id=IDS,
    content=st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=5),
    category=CATEGORIES,
    importance=IMPORTANCES,
    persistent=st.booleans(),
    ttl_days=st.sampled_from([None, -1, 0, 1, 2, 2**31 - 1]),
    created_at=MOMENTS,
    updated_at=MOMENTS,
    metadata=st.sampled_from([{}, {"n": 1}]),
)
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("save"), ENTRIES),
        st.tuples(st.just("save"), ENTRIES),
        st.tuples(st.just("delete"), IDS),
        st.tuples(st.just("prune"), st.tuples(st.sampled_from([None, 0, 1, 2]), st.sampled_from([0.0, 0.3, 1.0]))),
        st.tuples(st.just("later"), st.sampled_from([1, 23, 24])),
        st.tuples(st.just("evict"), st.integers(0, 5)),
        st.tuples(
            st.just("query"),
            st.tuples(st.none() | CATEGORIES, IMPORTANCES, st.none() | MOMENTS, st.integers(-1, 7)),
        ),
    ),
    min_size=4,
    max_size=14,
)


class Model:
    """The contract in plain Python, with none of ours below it."""

    def __init__(self) -> None:
        self.kept: dict[str, KnowledgeEntry] = {}

    def live(self, now: datetime) -> list[KnowledgeEntry]:
        found = [
            one
            for one in self.kept.values()
            if one.ttl_days is None or one.ttl_days > 10**6 or now - one.created_at <= timedelta(days=one.ttl_days)
        ]
        found.sort(key=lambda one: one.id)
        found.sort(key=lambda one: one.created_at)
        found.sort(key=lambda one: one.importance, reverse=True)
        return found

    def prune(self, now: datetime, age: int | None, importance: float) -> int:
        live = {one.id for one in self.live(now)}
        gone = [
            one.id
            for one in self.kept.values()
            if not one.persistent
            and (
                one.id not in live
                or (age is not None and now - one.created_at > timedelta(days=age))
                or (importance > 0 and one.importance < importance)
            )
        ]
        for entry_id in gone:
            del self.kept[entry_id]
        return len(gone)

    def evict(self, now: datetime, most: int) -> None:
        live = self.live(now)
        loose = [one for one in live if not one.persistent]
        loose.sort(key=lambda one: (one.importance, one.created_at, one.id))
        for one in loose[: max(0, len(live) - most)]:
            del self.kept[one.id]


@settings(
    max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow]
)
@given(steps=STEPS)
def test_every_store_does_what_a_model_in_plain_python_does(fresh: Fresh, clock: Hands, steps: list[Any]) -> None:
    clock.now = NOON
    opened, model = fresh(), Model()
    store = opened()
    assert isinstance(store, WatchedStore)
    for what, given_value in steps:
        match what:
            case "save":
                store.save(given_value)
                model.kept[given_value.id] = given_value
            case "delete":
                assert store.delete(given_value) is (model.kept.pop(given_value, None) is not None)
            case "prune":
                assert store.prune(*given_value) == model.prune(clock.now, *given_value)
            case "later":
                clock.now += timedelta(hours=given_value)
            case "evict":
                live = [one for one in store.everything() if not one.expired_at(clock.now)]
                store.remove([one.id for one in to_evict(live, given_value)])
                model.evict(clock.now, given_value)
            case _:
                category, importance, since, limit = given_value
                wanted = [
                    one
                    for one in model.live(clock.now)
                    if (category is None or one.category == category)
                    and one.importance >= importance
                    and (since is None or one.created_at >= since)
                ]
                assert store.query(*given_value) == wanted[: max(limit, 0)]
    again = opened()
    assert again.count() == len(model.kept)
    assert again.query(min_importance=-math.inf, limit=ALL) == model.live(clock.now)
    assert {one.id: one for one in again.everything()} == model.kept  # type: ignore[attr-defined]


def test_the_log_of_the_database_does_not_grow_with_every_save(tmp_path: Path) -> None:
    store = SQLiteKnowledgeStore(tmp_path / "knowledge.db")
    sizes = []
    for number in range(3 * 128):
        store.save(KnowledgeEntry(content=f"note {number}"))
        sizes.append((tmp_path / "knowledge.db-wal").stat().st_size)
    assert max(sizes) < 2 * sizes[127]
    store.close()

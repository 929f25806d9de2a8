"""What only the stores on other machines have: their keys and rows, and what becomes of a service that fails.

Source: agent-memory-contract.md sections 3.3, 3.4 and 11.5.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import redis
from redis.backoff import NoBackoff
from redis.retry import Retry

from messages.errors import InvalidArgument, KnowledgeError, StorageError, StoreUnavailable
from storage.agent_memory import KnowledgeEntry, RedisKnowledgeStore, SupabaseKnowledgeStore
from tests.kit.postgrest import BLOBS, KNOWLEDGE, Dropped, Project, Refused
from tests.storage.agent_memory.conftest import NOON
from tests.tree import CHECKOUT


@pytest.fixture
def client(redis_url: str) -> Iterator[Any]:
    with redis.Redis.from_url(redis_url.replace("/0", "/1"), decode_responses=True) as one:
        one.flushdb()
        yield one


def entry(entry_id: str, text: str = "", category: str = "general", **fields: Any) -> KnowledgeEntry:
    return KnowledgeEntry(entry_id, text, category, created_at=NOON, updated_at=NOON, **fields)


# --- Redis ---------------------------------------------------------------------------------------------


def test_the_keys_of_redis_are_those_of_the_released_package_and_a_counter(client: Any) -> None:
    store = RedisKnowledgeStore(client, "p")
    store.save(entry("one", "ü", "a", importance=0.25, persistent=True, ttl_days=7, metadata={"n": 1}))
    store.save(entry("two", "x", "b"))
    assert sorted(client.keys()) == [
        "p:all_ids", "p:category:a", "p:category:b", "p:changes", "p:importance", "p:one", "p:two",
    ]  # fmt: skip
    assert client.hgetall("p:one") == {
        "id": "one",
        "content": "ü",
        "category": "a",
        "importance": "0.25",
        "persistent": "1",
        "ttl_days": "7",
        "created_at": "2026-03-13T12:00:00+00:00",
        "updated_at": "2026-03-13T12:00:00+00:00",
        "metadata": '{"n": 1}',
    }
    assert (client.hget("p:two", "ttl_days"), client.hget("p:two", "persistent")) == ("", "0")
    assert client.zrange("p:importance", 0, -1, withscores=True) == [("one", 0.25), ("two", 0.5)]
    assert (client.smembers("p:all_ids"), client.smembers("p:category:a")) == ({"one", "two"}, {"one"})


def test_a_changed_category_leaves_the_old_set_and_a_deleted_entry_leaves_nothing(client: Any) -> None:
    store = RedisKnowledgeStore(client, "p")
    store.save(entry("one", category="a"))
    store.save(entry("one", category="b"))
    assert sorted(client.keys("p:category:*")) == ["p:category:b"]
    assert store.delete("one") is True
    assert client.keys() == ["p:changes"]


@pytest.mark.parametrize("entry_id", ["importance", "all_ids", "changes", "category:general"])
def test_an_id_that_is_the_name_of_another_key_is_refused_and_no_key_is_touched(client: Any, entry_id: str) -> None:
    store = RedisKnowledgeStore(client, "p")
    store.save(entry("one"))
    before = sorted(client.keys())
    with pytest.raises(InvalidArgument):
        store.save(entry(entry_id))
    assert (store.get(entry_id), store.delete(entry_id), store.get_many([entry_id])) == (None, False, {})
    assert sorted(client.keys()) == before


def test_a_store_is_made_of_a_client_and_a_prefix_alone(client: Any) -> None:
    store = RedisKnowledgeStore.__new__(RedisKnowledgeStore)
    store._client = client
    store._prefix = "p"
    store.save(entry("one", ttl_days=-1))
    assert client.exists(store._entry_key("one")) == 1
    assert (store.query(), store.prune(), store.count()) == ([], 1, 0)


def test_two_prefixes_of_one_database_are_two_stores(client: Any) -> None:
    one, other = RedisKnowledgeStore(client, "p"), RedisKnowledgeStore(client, "q")
    one.save(entry("x"))
    assert (one.count(), other.count(), other.query(), other.delete("x")) == (1, 0, [], False)


def test_a_client_whose_replies_are_bytes_is_read_too(redis_url: str, client: Any) -> None:
    with redis.Redis.from_url(redis_url.replace("/0", "/1")) as raw:
        store = RedisKnowledgeStore(raw, "p")
        kept = entry("one", "ü", "ä", metadata={"n": 1})
        store.save(kept)
        store.save(kept)
        assert store.query(category="ä") == store.query() == store.everything() == [kept]
        assert store.delete("one") is True
        assert client.keys() == ["p:changes"]


def test_what_the_released_package_left_behind_is_found_by_what_its_hash_says(client: Any) -> None:
    store = RedisKnowledgeStore(client, "p")
    store.save(entry("one", category="b"))
    client.sadd("p:category:a", "one", "gone")  # two programs changed a category at once
    client.sadd("p:all_ids", "gone")
    client.hset("p:broken", mapping={"id": "broken", "content": "x", "created_at": "yesterday"})
    client.sadd("p:all_ids", "broken")
    assert store.query(category="a") == []
    assert [one.id for one in store.everything()] == ["one"]
    assert store.get("broken") is None


PROGRAM = """
import sys, redis
from storage.agent_memory import KnowledgeEntry, RedisKnowledgeStore
client = redis.Redis.from_url(sys.argv[1], decode_responses=True)
store = RedisKnowledgeStore(client, "p")
for number in range(60):
    store.save(KnowledgeEntry(id=f"{sys.argv[2]}-{number}", category=f"c{number % 3}"))
    store.save(KnowledgeEntry(id=f"shared-{number}", category=sys.argv[2]))
"""


def test_two_processes_on_one_redis_lose_nothing_and_agree_on_categories(redis_url: str, client: Any) -> None:
    url = redis_url.replace("/0", "/1")
    run = [subprocess.Popen([sys.executable, "-c", PROGRAM, url, name]) for name in "ab"]
    assert [process.wait(60) for process in run] == [0, 0]
    store = RedisKnowledgeStore(client, "p")
    found = store.everything()
    assert store.count() == len(found) == 180
    for category in {one.category for one in found}:
        of_category = {one.id for one in found if one.category == category}
        assert {one.id for one in store.query(category=category, limit=1_000)} == of_category


def test_redis_that_is_out_of_memory_refuses_a_save_and_says_that_nothing_ran(client: Any) -> None:
    store = RedisKnowledgeStore(client, "p")
    store.save(entry("one"))
    client.config_set("maxmemory", "1")
    try:
        with pytest.raises(StorageError) as refused:
            store.save(entry("two"))
    finally:
        client.config_set("maxmemory", "0")
    assert (refused.value.retry, store.count(), store.get("two")) == ("safe", 1, None)


def test_keys_of_another_type_are_an_error_that_no_repeat_mends(client: Any) -> None:
    client.set("p:importance", "not ours")
    store = RedisKnowledgeStore(client, "p")
    for ask in (lambda: store.save(entry("one")), lambda: store.query()):
        with pytest.raises(StorageError) as refused:
            ask()
        assert refused.value.retry == "never"


# --- Supabase ------------------------------------------------------------------------------------------


def test_a_row_has_the_nine_fields_and_metadata_as_an_object(project: Project) -> None:
    store = SupabaseKnowledgeStore(project.client())
    store.save(entry("one", "ü", "a", importance=0.25, ttl_days=7, metadata={"n": 1}))
    row = project.client().table("knowledge").select("*").execute().data[0]
    assert row == {
        "id": "one",
        "content": "ü",
        "category": "a",
        "importance": 0.25,
        "persistent": False,
        "ttl_days": 7,
        "created_at": "2026-03-13T12:00:00+00:00",
        "updated_at": "2026-03-13T12:00:00+00:00",
        "metadata": {"n": 1},
    }


@pytest.mark.parametrize(("table", "columns"), [("knowledge", KNOWLEDGE), ("selectools_knowledge", BLOBS)])
def test_the_documented_tables_are_those_that_the_tests_have(table: str, columns: dict[str, tuple[str, str]]) -> None:
    page = (CHECKOUT / "docs" / "agent-memory.md").read_text("utf-8")
    defined = page.partition(f"public.{table} (\n")[2].partition("\n);")[0]
    documented = {line.split()[0]: "not null" in line or "primary key" in line for line in defined.splitlines()}
    assert documented == {name: "NOT NULL" in rules for name, (_, rules) in columns.items()}


def test_metadata_that_are_json_text_are_read_too(project: Project) -> None:
    project.make("texts", {**KNOWLEDGE, "metadata": ("text", "")})
    store = SupabaseKnowledgeStore(project.client(), "texts")
    row = {"id": "one", "content": "x", "created_at": "2026-03-13T12:00:00Z", "updated_at": "2026-03-13T12:00:00Z"}
    project.client().table("texts").insert({**row, "metadata": '{"n": 1}'}).execute()
    assert store._table == "texts"
    assert [one.metadata for one in store.query()] == [{"n": 1}]


def test_more_rows_than_the_server_gives_at_once_are_all_found(project: Project) -> None:
    project.max_rows = 7
    store = SupabaseKnowledgeStore(project.client())
    for number in range(20):
        store.save(entry(f"{number:02}", importance=(number % 4) / 4, ttl_days=-1 if number % 5 == 0 else None))
    live = [number for number in range(20) if number % 5]
    wanted = [f"{number:02}" for number in sorted(live, key=lambda number: (-(number % 4), number))]
    for limit in (1, 6, 8, 15, 16, 50):
        assert [one.id for one in store.query(limit=limit)] == wanted[:limit]
    assert (len(store.everything()), store.count(), store.prune(), store.count()) == (20, 20, 4, 16)


def test_one_query_of_a_small_table_is_one_request(project: Project) -> None:
    store = SupabaseKnowledgeStore(project.client())
    for number in range(5):
        store.save(entry(str(number)))
    project.requests.clear()
    for limit in (3, 5, 50):
        store.query(category="general", since=NOON, limit=limit)
    assert len(project.requests) == 3


def test_ids_of_every_kind_are_fetched_together(project: Project) -> None:
    store = SupabaseKnowledgeStore(project.client())
    ids = [*(f"id-{number}" for number in range(250)), 'a,"b"(c)', "ü", "*"]
    for one in ids:
        store.save(entry(one))
    project.requests.clear()
    assert set(store.get_many([*ids, "missing"])) == set(ids)
    assert len(project.requests) == 3 + 3


# --- both, failing -------------------------------------------------------------------------------------


class Down:
    """A client of which every call fails."""

    def __init__(self, error: Exception) -> None:
        self._error = error

    def __getattr__(self, name: str) -> Callable[..., Any]:
        def failing(*args: object, **named: object) -> None:
            raise self._error

        return failing


ASKS: list[tuple[str, Callable[[Any], object], bool]] = [
    ("save", lambda store: store.save(entry("one")), True),
    ("delete", lambda store: store.delete("one"), True),
    ("remove", lambda store: store.remove(["one"]), True),
    ("get", lambda store: store.get("one"), False),
    ("get_many", lambda store: store.get_many(["one"]), False),
    ("query", lambda store: store.query(), False),
    ("query of a category", lambda store: store.query(category="a"), False),
    ("count", lambda store: store.count(), False),
    ("prune", lambda store: store.prune(), False),
    ("everything", lambda store: store.everything(), False),
]


@pytest.mark.parametrize("make", [RedisKnowledgeStore, SupabaseKnowledgeStore])
@pytest.mark.parametrize(("ask", "writes"), [ask[1:] for ask in ASKS], ids=[ask[0] for ask in ASKS])
@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (ConnectionRefusedError("no"), StoreUnavailable),
        (redis.ConnectionError("no"), StoreUnavailable),
        (redis.TimeoutError("no"), StoreUnavailable),
        (Exception("what nobody thought of"), StorageError),
    ],
)
def test_no_failure_of_a_service_is_reported_as_success(
    make: Any, ask: Callable[[Any], object], writes: bool, error: Exception, kind: type[KnowledgeError]
) -> None:
    with pytest.raises(kind) as failed:
        ask(make(Down(error)))
    assert failed.value.retry == ("unknown" if writes else "safe")
    assert failed.value.__cause__ is error


def test_a_password_that_redis_does_not_take_is_not_for_repeating() -> None:
    with pytest.raises(StorageError) as refused:
        RedisKnowledgeStore(Down(redis.AuthenticationError("WRONGPASS"))).save(entry("one"))
    assert refused.value.retry == "never"


def test_a_redis_that_nobody_started_is_unreachable(tmp_path: Path) -> None:
    with redis.Redis(unix_socket_path=str(tmp_path / "nobody"), retry=Retry(NoBackoff(), 0)) as client:
        with pytest.raises(StoreUnavailable):
            RedisKnowledgeStore(client).save(entry("one"))


@pytest.mark.parametrize("when", ["before", "after"])
def test_a_connection_that_breaks_leaves_a_save_unknown_and_its_repeat_harmless(project: Project, when: str) -> None:
    store = SupabaseKnowledgeStore(project.client())

    def drop(method: str) -> None:
        raise Dropped

    setattr(project, when, drop)
    with pytest.raises(StoreUnavailable) as lost:
        store.save(entry("one"))
    assert lost.value.retry == "unknown"
    setattr(project, when, lambda method: None)
    assert store.count() == (1 if when == "after" else 0)
    store.save(entry("one"))
    assert store.count() == 1


@pytest.mark.parametrize(
    ("status", "code", "retry"),
    [(400, "23502", "never"), (403, "42501", "never"), (503, "53300", "safe"), (409, "40001", "safe")],
)
def test_what_postgres_refuses_keeps_its_code_and_says_whether_to_repeat(
    project: Project, status: int, code: str, retry: str
) -> None:
    def refuse(method: str) -> None:
        raise Refused(status, code, "the text of a row, which no message may show")

    store = SupabaseKnowledgeStore(project.client())
    project.before = refuse
    with pytest.raises(StorageError) as refused:
        store.save(entry("one"))
    assert (refused.value.fields["cause"], refused.value.retry) == (code, retry)
    assert "text of a row" not in refused.value.message


def test_a_table_that_is_not_there_is_an_error_by_name(project: Project) -> None:
    with pytest.raises(StorageError, match="PGRST205"):
        SupabaseKnowledgeStore(project.client(), "missing").query()


def test_text_that_postgres_cannot_hold_is_refused_and_nothing_is_kept(project: Project) -> None:
    store = SupabaseKnowledgeStore(project.client())
    with pytest.raises(StorageError, match="22P05"):
        store.save(entry("one", "a\0b"))
    assert store.count() == 0


def test_importing_the_stores_needs_no_optional_package() -> None:
    program = (
        "import sys; import storage.agent_memory\n"
        "loaded = {'redis', 'supabase', 'postgrest', 'httpx'} & set(sys.modules)\n"
        "assert not loaded, loaded\n"
    )
    assert subprocess.run([sys.executable, "-c", program], timeout=60, check=False).returncode == 0

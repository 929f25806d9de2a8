"""The two backends, against a real Redis and the real ``supabase`` package.

Source: agent-memory-contract.md section 7, agent-memory.md (Backends for Ephemeral Infrastructure).
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import Any

import pytest
import redis
from postgrest.exceptions import APIError

from storage.agent_memory import RedisKnowledgeBackend, SupabaseKnowledgeBackend
from storage.agent_memory.backends import KEY_MAX_CHARACTERS, SERVER_SECONDS
from tests.kit.postgrest import Project

BLOBS = [b"", b"{}", '{"ü": "\u2028\U0001f600"}'.encode(), b"\xff\x00binary", b"b64:looks like one", b"a\0b", b"b64:"]


@pytest.fixture
def client(redis_url: str) -> Iterator[Any]:
    with redis.Redis.from_url(redis_url.replace("/0", "/2")) as one:
        one.flushdb()
        yield one


@pytest.fixture
def url(redis_url: str, client: Any) -> str:
    return redis_url.replace("/0", "/2")


# --- Redis ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("blob", BLOBS)
def test_redis_gives_back_the_bytes_that_were_saved_last(url: str, blob: bytes) -> None:
    backend = RedisKnowledgeBackend("user-1", url)
    try:
        assert backend.load_bytes() is None
        backend.save_bytes(b"before")
        backend.save_bytes(blob)
        assert backend.load_bytes() == blob
    finally:
        backend._client.close()


def test_the_key_of_redis_is_the_prefix_and_the_key(url: str, client: Any) -> None:
    for backend in (RedisKnowledgeBackend("user-1", url), RedisKnowledgeBackend("user-1", url, prefix="own:")):
        backend.save_bytes(b"x")
        backend._client.close()
    assert sorted(client.keys()) == [b"own:user-1", b"selectools:knowledge:user-1"]
    assert client.ttl("own:user-1") == -1


def test_with_a_ttl_each_save_begins_it_anew(url: str, client: Any) -> None:
    backend = RedisKnowledgeBackend("user-1", url, ttl=86_400)
    backend.save_bytes(b"x")
    client.expire("selectools:knowledge:user-1", 5)
    backend.save_bytes(b"y")
    assert 86_000 < client.ttl("selectools:knowledge:user-1") <= 86_400
    client.pexpire("selectools:knowledge:user-1", 0)
    assert backend.load_bytes() is None
    backend._client.close()


def test_the_url_is_positional_and_nothing_else_is_given(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[tuple[tuple[object, ...], dict[str, object]]] = []
    real = redis.from_url

    def recording(*args: Any, **named: Any) -> Any:
        seen.append((args, named))
        return real(*args, **named)

    monkeypatch.setattr(redis, "from_url", recording)
    RedisKnowledgeBackend("k")._client.close()
    assert seen == [(("redis://localhost:6379/0",), {})]


def test_a_silent_server_is_not_waited_for_for_ever_unless_the_url_says_so() -> None:
    for given, wanted in (("redis://nobody:1/0", SERVER_SECONDS), ("redis://nobody:1/0?socket_timeout=99", 99)):
        backend = RedisKnowledgeBackend("k", given)
        assert backend._client.connection_pool.connection_kwargs["socket_timeout"] == wanted
        assert backend._client.connection_pool.make_connection().socket_timeout == wanted
        backend._client.close()


# --- Supabase ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("blob", BLOBS)
def test_supabase_gives_back_the_bytes_that_were_saved_last(project: Project, blob: bytes) -> None:
    backend = SupabaseKnowledgeBackend(project.client(), "user-1")
    assert backend.load_bytes() is None
    backend.save_bytes(b"before")
    backend.save_bytes(blob)
    assert backend.load_bytes() == blob


def test_what_is_utf_8_stays_readable_and_the_rest_is_marked_base64(project: Project) -> None:
    client = project.client()
    for key, blob in (("text", '{"ü": 1}'.encode()), ("bytes", b"\xff"), ("marked", b"b64:x"), ("nul", b"\0")):
        SupabaseKnowledgeBackend(client, key).save_bytes(blob)
    rows = client.table("selectools_knowledge").select("*").execute().data
    assert {row["key"]: row["data"] for row in rows} == {
        "text": '{"ü": 1}',
        "bytes": "b64:/w==",
        "marked": "b64:YjY0Ong=",
        "nul": "b64:AA==",
    }
    assert all(row["updated_at"] > "2026-01-01T00:00:00" for row in rows)


def test_a_cell_that_says_base64_and_is_none_is_an_error_and_stays(project: Project) -> None:
    client = project.client()
    client.table("selectools_knowledge").insert({"key": "k", "data": "b64:???"}).execute()
    with pytest.raises(ValueError, match="base64"):
        SupabaseKnowledgeBackend(client, "k").load_bytes()
    assert client.table("selectools_knowledge").select("*").execute().data[0]["data"] == "b64:???"


def users(project: Project, **named: str) -> SupabaseKnowledgeBackend:
    return SupabaseKnowledgeBackend(
        project.client(), "u1", table_name="users", key_column="user_id", data_column="memory_text", **named
    )


def test_an_upsert_fails_on_a_not_null_column_of_the_row_although_the_row_is_there(project: Project) -> None:
    project.client().table("users").insert({"user_id": "u1", "email": "a@example.org"}).execute()
    with pytest.raises(APIError) as refused:
        users(project).save_bytes(b"{}")
    assert refused.value.code == "23502"


def test_an_update_changes_a_row_that_pre_exists_and_no_other_column(project: Project) -> None:
    for user in ("u1", "u2"):
        project.client().table("users").insert({"user_id": user, "email": f"{user}@example.org"}).execute()
    backend = users(project, write_mode="update")
    assert backend.load_bytes() is None  # its cell is null
    backend.save_bytes(b"{}")
    assert backend.load_bytes() == b"{}"
    rows = {row["user_id"]: row for row in project.client().table("users").select("*").execute().data}
    assert (rows["u1"]["email"], rows["u2"]["memory_text"]) == ("u1@example.org", None)


def test_an_update_without_a_row_says_that_it_must_pre_exist_and_makes_none(project: Project) -> None:
    with pytest.raises(RuntimeError, match="must pre-exist"):
        users(project, write_mode="update").save_bytes(b"{}")
    assert project.client().table("users").select("*").execute().data == []


def test_another_write_mode_is_refused(project: Project) -> None:
    for mode in ("insert", "", "UPSERT"):
        with pytest.raises(ValueError, match="write_mode"):
            users(project, write_mode=mode)


# --- both ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("key", ["", "a\0b", "k" * (KEY_MAX_CHARACTERS + 1)])
def test_a_key_is_not_empty_has_no_nul_and_at_most_512_characters(key: str) -> None:
    with pytest.raises(ValueError, match="key"):
        RedisKnowledgeBackend(key)
    with pytest.raises(ValueError, match="key"):
        SupabaseKnowledgeBackend(object(), key)


def test_the_longest_key_is_taken(project: Project, url: str) -> None:
    key = "ü" * KEY_MAX_CHARACTERS
    kept = SupabaseKnowledgeBackend(project.client(), key)
    kept.save_bytes(b"x")
    assert kept.load_bytes() == b"x"
    backend = RedisKnowledgeBackend(key, url)
    backend.save_bytes(b"x")
    assert backend.load_bytes() == b"x"
    backend._client.close()


def test_a_missing_package_is_an_import_error_at_construction_that_names_its_extra(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for package in ("redis", "supabase"):
        monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(ImportError, match=r"knowledge-runtime\[redis\]"):
        RedisKnowledgeBackend("k")
    with pytest.raises(ImportError, match=r"knowledge-runtime\[supabase\]"):
        SupabaseKnowledgeBackend(object(), "k")


@pytest.mark.parametrize("kind", [RedisKnowledgeBackend, SupabaseKnowledgeBackend])
def test_the_backends_are_marked_beta(kind: type) -> None:
    assert kind.__stability__ == "beta"  # type: ignore[attr-defined]

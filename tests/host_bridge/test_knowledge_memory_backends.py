"""``KnowledgeMemory`` with a backend, and with stores and backends that fail, hang or lie.

Source: agent-memory.md (Backends for Ephemeral Infrastructure), agent-memory-contract.md section 7.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import redis

from host_bridge import KnowledgeMemory
from host_bridge import knowledge_memory as module
from messages.errors import DeadlineExceeded, InvalidArgument, StorageError
from storage import faults
from storage.agent_memory import (
    FileKnowledgeStore,
    KnowledgeEntry,
    RedisKnowledgeBackend,
    RedisKnowledgeStore,
    SupabaseKnowledgeBackend,
    SupabaseKnowledgeStore,
)
from tests.kit.blob import Blob
from tests.kit.leaks import nothing_left
from tests.kit.postgrest import Project, project
from tests.kit.redis_server import redis_url

__all__ = ["project", "redis_url"]


def texts(memory: KnowledgeMemory) -> list[str]:
    return sorted(entry.content for entry in memory.live_entries())


@pytest.fixture(params=["redis", "supabase"])
def backend(request: pytest.FixtureRequest) -> Iterator[Any]:
    if request.param == "supabase":
        yield SupabaseKnowledgeBackend(request.getfixturevalue("project").client(), "user-1")
        return
    url = request.getfixturevalue("redis_url").replace("/0", "/3")
    with redis.Redis.from_url(url) as client:
        client.flushdb()
    made = RedisKnowledgeBackend("user-1", url)
    yield made
    made._client.close()


def test_a_real_backend_brings_a_memory_to_a_machine_without_a_disk(tmp_path: Path, backend: Any) -> None:
    for number in range(3):
        with KnowledgeMemory(storage_dir=tmp_path / str(number), backend=backend) as memory:
            memory.remember(f"fact {number}", category="ü", persistent=True)
            (tmp_path / str(number) / f"by hand {number}").write_bytes(b"\xff\x00")
            memory.flush()
    with KnowledgeMemory(storage_dir=tmp_path / "last", backend=backend) as memory:
        assert memory.get_persistent_facts() == {"ü": ["fact 0", "fact 1", "fact 2"]}
        assert (tmp_path / "last" / "by hand 0").read_bytes() == b"\xff\x00"


@pytest.fixture(params=["redis", "supabase"])
def remote_store(request: pytest.FixtureRequest) -> Iterator[Any]:
    if request.param == "supabase":
        yield SupabaseKnowledgeStore(request.getfixturevalue("project").client())
        return
    url = request.getfixturevalue("redis_url").replace("/0", "/4")
    with redis.Redis.from_url(url, decode_responses=True) as client:
        client.flushdb()
        yield RedisKnowledgeStore(client)


def test_two_machines_share_a_store_and_each_has_its_own_notes(tmp_path: Path, remote_store: Any) -> None:
    with (
        KnowledgeMemory(storage_dir=tmp_path / "one", store=remote_store) as one,
        KnowledgeMemory(storage_dir=tmp_path / "two", store=remote_store) as two,
    ):
        one.remember("Name: Alice", persistent=True)
        two.remember("Prefers Python", persistent=True)
        for memory in (one, two):
            assert sorted(memory.get_persistent_facts()["general"]) == ["Name: Alice", "Prefers Python"]
        two.clear()
        assert (one.get_persistent_facts(), one.build_context(), texts(one)) == ({}, "", [])


def test_a_context_of_many_lines_asks_supabase_a_few_times_and_not_for_each_line(
    tmp_path: Path, project: Project
) -> None:
    with KnowledgeMemory(storage_dir=tmp_path, store=SupabaseKnowledgeStore(project.client())) as memory:
        for number in range(60):
            memory.remember(f"note {number}")
        memory.build_context()
        project.requests.clear()
        assert memory.build_context().count("\n- [") == 50
        assert len(project.requests) <= 5
        project.requests.clear()
        memory.remember("one more")
        assert len(project.requests) <= 3


def test_construction_loads_exactly_once(tmp_path: Path) -> None:
    blob = Blob()
    with KnowledgeMemory(storage_dir=tmp_path, backend=blob) as memory:
        memory.remember("x")
        memory.build_context()
        memory.get_recent_entries()
    assert (blob.loads, blob.saves) == (1, 1)


def test_only_a_change_is_saved_and_a_rejected_text_is_none(tmp_path: Path) -> None:
    blob = Blob()
    with KnowledgeMemory(storage_dir=tmp_path, backend=blob, pre_save=lambda text: None) as memory:
        memory.remember("x")
        memory.prune_logs()
        memory.prune_old_logs(5)
        assert blob.saves == 0
        memory.flush()
        assert blob.saves == 1


def test_flush_saves_what_was_changed_directly(tmp_path: Path) -> None:
    blob = Blob()
    with KnowledgeMemory(storage_dir=tmp_path / "one", backend=blob) as memory:
        memory.store.save(KnowledgeEntry(content="direct", persistent=True))
        (tmp_path / "one" / "MEMORY.md").write_text("# Agent Memory\n\n## general\n- by hand\n")
        memory.flush()
    with KnowledgeMemory(storage_dir=tmp_path / "two", backend=blob) as memory:
        assert texts(memory) == ["direct"]
        assert memory.get_persistent_facts() == {"general": ["by hand", "direct"]}


@pytest.mark.parametrize("saved", [b"", b"not json", b"[]"])
def test_what_is_no_archive_lets_the_memory_start_anew(tmp_path: Path, saved: bytes) -> None:
    blob = Blob()
    blob.data = saved
    with KnowledgeMemory(storage_dir=tmp_path, backend=blob) as memory:
        assert memory.remember("x")
        assert texts(memory) == ["x"]


def test_a_hostile_archive_makes_no_memory_and_leaves_no_thread(tmp_path: Path) -> None:
    blob = Blob()
    blob.data = b'{"files": {"../out": {"encoding": "utf-8", "content": "x"}}}'
    with nothing_left(), pytest.raises(ValueError, match="path"):
        KnowledgeMemory(storage_dir=tmp_path / "memory", backend=blob)
    assert not (tmp_path / "out").exists()


def test_what_a_backend_raises_while_loading_comes_out_and_leaves_no_thread(tmp_path: Path) -> None:
    class Down(Blob):
        def load_bytes(self) -> bytes | None:
            raise ConnectionError("down")

    with nothing_left(), pytest.raises(ConnectionError, match="down"):
        KnowledgeMemory(storage_dir=tmp_path, backend=Down())


def test_a_process_that_dies_between_the_change_and_its_save_has_acknowledged_nothing(tmp_path: Path) -> None:
    blob = Blob()
    with KnowledgeMemory(storage_dir=tmp_path / "one", backend=blob) as memory:
        memory.remember("acknowledged")

    def die(name: str) -> None:
        if name == "agent_memory.pack":
            raise ConnectionError("the process ends before it is saved")

    with KnowledgeMemory(storage_dir=tmp_path / "one", backend=blob) as memory:
        with faults.installed(die), pytest.raises((ConnectionError, StorageError)):
            memory.remember("not acknowledged")
    with KnowledgeMemory(storage_dir=tmp_path / "two", backend=blob) as memory:
        assert texts(memory) == ["acknowledged"]


def test_nobody_restores_between_a_change_and_its_save(tmp_path: Path) -> None:
    """Two processes of one directory and one backend: the blob that the second restores has what the first said."""
    inside, go_on = threading.Event(), threading.Event()

    class Slow(Blob):
        def save_bytes(self, data: bytes) -> None:
            inside.set()
            assert go_on.wait(30)
            super().save_bytes(data)

    blob = Slow()
    found: list[list[str]] = []

    def restore() -> None:
        with KnowledgeMemory(storage_dir=tmp_path, backend=blob) as other:
            found.append(texts(other))

    with KnowledgeMemory(storage_dir=tmp_path, backend=blob) as memory:
        writer = threading.Thread(target=lambda: memory.remember("acknowledged"))
        writer.start()
        assert inside.wait(30)
        restorer = threading.Thread(target=restore)
        restorer.start()
        assert blob.loads == 1  # the second waits for the directory
        go_on.set()
        writer.join()
        restorer.join()
        assert texts(memory) == ["acknowledged"]
    assert found == [["acknowledged"]]


# --- stores that fail, hang or lie ----------------------------------------------------------------------


class Odd(FileKnowledgeStore):
    """A store of somebody else: not ours by its place, and with a method that a test replaces."""

    act: Callable[[], Any] | None = None

    def save(self, entry: KnowledgeEntry) -> str:
        if self.act is not None:
            kept: str = self.act()
            return kept
        return super().save(entry)


@pytest.mark.parametrize("error", [KeyError("mine"), OSError(5, "mine"), RecursionError("mine"), MemoryError("mine")])
def test_what_a_store_raises_comes_out_and_the_memory_goes_on(tmp_path: Path, error: Exception) -> None:
    class Raising:
        def __init__(self) -> None:
            self.inner = FileKnowledgeStore(tmp_path / "store")
            self.down = False

        def __getattr__(self, name: str) -> Any:
            return getattr(self.inner, name)

        def save(self, entry: KnowledgeEntry) -> str:
            if self.down:
                raise error
            return self.inner.save(entry)

    store = Raising()
    with KnowledgeMemory(storage_dir=tmp_path / "memory", store=store) as memory:
        memory.remember("before")
        for _ in range(3):
            store.down = True
            with pytest.raises(type(error), match="mine"):
                memory.remember("lost")
            store.down = False
        memory.remember("after")
        assert texts(memory) == ["after", "before"]


@pytest.mark.parametrize("answer", [None, 7, b"id", ["id"]])
def test_a_store_whose_save_answers_no_id_is_an_error_to_the_caller(tmp_path: Path, answer: Any) -> None:
    store = Odd(tmp_path / "store")
    with KnowledgeMemory(storage_dir=tmp_path / "memory", store=store, backend=Blob()) as memory:
        store.act = lambda: answer
        with pytest.raises(TypeError, match="id"):
            memory.remember("x")
        store.act = None
        assert memory.remember("y")


def test_a_store_that_hangs_costs_its_callers_a_deadline_and_no_more(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "ANSWER_SECONDS", 0.2)
    go_on, entered = threading.Event(), threading.Event()

    def hang() -> str:
        entered.set()
        assert go_on.wait(30)
        return "hung"

    store = Odd(tmp_path / "store")
    memory = KnowledgeMemory(storage_dir=tmp_path / "memory", store=store)
    try:
        store.act = hang
        with pytest.raises(DeadlineExceeded) as late:
            memory.remember("x")
        assert late.value.retry == "unknown"
        with pytest.raises(DeadlineExceeded) as queued:
            memory.remember("y")
        assert queued.value.retry == "safe"
        assert entered.is_set()
    finally:
        store.act = None
        go_on.set()
        monkeypatch.setattr(module, "ANSWER_SECONDS", 30.0)
    assert memory.remember("z")
    assert "z" in texts(memory)
    memory.close()


@pytest.mark.parametrize(
    ("field", "value"), [("importance", "high"), ("importance", float("nan")), ("ttl_days", 1.5), ("ttl_days", "1")]
)
def test_a_field_that_cannot_be_kept_is_refused_and_crashes_nothing(tmp_path: Path, field: str, value: Any) -> None:
    with KnowledgeMemory(storage_dir=tmp_path, max_entries=1) as memory:
        memory.remember("before")
        with pytest.raises(InvalidArgument):
            memory.remember("x", **{field: value})
        memory.remember("after", importance=1)
        assert texts(memory) == ["after"]

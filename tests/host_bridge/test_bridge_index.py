"""Searches while a keyword index is caught up in a process of its own; through the Python door."""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from actors.store import helpers
from messages.envelope import Call, Deadline
from messages.errors import Cancelled, KnowledgeError
from messages.json_types import JsonObject
from messages.vocabulary import PRIVATE
from storage import index_builder, python_child
from tests.kit.leaks import nothing_left
from tests.kit.store import MAIN, only_store, open_bridge, page_file, write_notes

PAGES = 40


@pytest.fixture(autouse=True)
def apart(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Few changes are as many as thousands."""
    monkeypatch.setattr(helpers, "APART_FROM_CHANGES", 5)
    with nothing_left():
        yield


@pytest.fixture
def starts(monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    """How the processes ended, as the indexer heard it."""
    ended: list[bool] = []
    build = index_builder.build_apart

    def noted(*arguments: object, **options: object) -> bool:
        ended.append(build(*arguments, **options))  # type: ignore[arg-type]
        return ended[-1]

    monkeypatch.setattr(helpers, "build_apart", noted)
    return ended


@pytest.fixture
def filled(tmp_path: Path) -> Path:
    """A state directory whose store has notes that no index knows yet."""
    with open_bridge(tmp_path) as bridge:
        bridge.call("knowledge_status", {}, MAIN)
    notes = [(f"{n}.md", page_file(f"p{n}", f"Page {n}", body=f"Lantern number {n}.\n")) for n in range(PAGES)]
    write_notes(only_store(tmp_path).partition(PRIVATE), notes)
    return tmp_path


def total(answer: JsonObject) -> object:
    return answer["total"]


def test_a_search_waits_for_the_process_that_builds_its_index_and_finds_everything(
    filled: Path, starts: list[bool]
) -> None:
    with open_bridge(filled) as bridge:
        assert total(bridge.call("knowledge_grep", {"query": "lantern"}, MAIN)) == PAGES
    assert starts == [True]


def test_where_no_process_can_be_started_the_indexer_builds_the_index_itself(
    filled: Path, starts: list[bool], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "executable", "")
    with open_bridge(filled) as bridge:
        assert total(bridge.call("knowledge_grep", {"query": "lantern"}, MAIN)) == PAGES
    assert starts == [False]


@pytest.fixture
def endless(monkeypatch: pytest.MonkeyPatch) -> threading.Event:
    """Builds that never end by themselves; set once one has begun."""
    begun = threading.Event()

    def command(module: str, *_: str) -> list[str]:
        begun.set()
        return [sys.executable, "-c", "import time; time.sleep(600)"]

    monkeypatch.setattr(python_child, "command", command)
    return begun


def test_a_cancelled_search_is_answered_while_its_index_is_still_built(filled: Path, endless: threading.Event) -> None:
    with open_bridge(filled) as bridge:
        pending = bridge.submit(Call("knowledge_grep", {"query": "lantern"}, MAIN, Deadline.after(60)))
        answered: list[object] = []
        other = bridge.submit(Call("knowledge_grep", {"query": "lantern"}, MAIN, Deadline.after(60)))
        other.add_done_callback(answered.append)
        assert endless.wait(30)
        pending.cancel()
        with pytest.raises(Cancelled):
            pending.deliver(print)
        assert answered == [], "others wait for the same index"
        bridge.close(drain_seconds=0.2)


def test_a_search_whose_deadline_passes_ends_the_process_that_builds_its_index(
    filled: Path, endless: threading.Event
) -> None:
    with open_bridge(filled) as bridge:
        answer = bridge.call("knowledge_grep", {"query": "lantern"}, MAIN, deadline_ms=1_000)
        assert endless.is_set()
        assert answer["total"] is None
        # Nothing keeps the indexer: the store stops at once.
        bridge.close(drain_seconds=0.2)


def test_a_hosts_search_whose_index_is_late_is_an_error_never_an_empty_success(
    filled: Path, endless: threading.Event
) -> None:
    with open_bridge(filled) as bridge:
        with pytest.raises(KnowledgeError) as refused:
            bridge.consult("memory.search", {"query": "lantern", "deadlineMs": 1_000}, MAIN)
        assert endless.is_set()
        assert (refused.value.code, refused.value.retry) == ("index_unavailable", "safe")
        bridge.close(drain_seconds=0.2)


def test_a_hosts_search_whose_index_cannot_be_made_is_an_error_and_answers_again_when_it_can(filled: Path) -> None:
    index = only_store(filled).search_index(PRIVATE)
    index.mkdir(parents=True)
    with open_bridge(filled) as bridge:
        with pytest.raises(KnowledgeError) as refused:
            bridge.consult("memory.search", {"query": "lantern", "deadlineMs": 1_500}, MAIN)
        assert refused.value.code == "index_unavailable"
        index.rmdir()
        assert bridge.consult("memory.search", {"query": "lantern"}, MAIN)["hits"]


def test_a_stopping_store_ends_the_process_that_builds_its_index(filled: Path, endless: threading.Event) -> None:
    with open_bridge(filled) as bridge:
        pending = bridge.submit(Call("knowledge_grep", {"query": "lantern"}, MAIN, Deadline.after(60)))
        assert endless.wait(30)
        bridge.close(drain_seconds=0.2)
    with pytest.raises(KnowledgeError) as refused:
        pending.deliver(print)
    assert refused.value.code in ("stopping", "index_unavailable")

"""Searches and lists through the real lane and indexer while another thread writes (tools.md, Search and lookup)."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path
from typing import cast

import pytest

from host_bridge.bridge import KnowledgeBridge
from messages.json_types import JsonObject
from tests.kit.leaks import nothing_left
from tests.kit.store import MAIN, items_of, open_bridge, remember, remembering, request_id

WRITES = 24


def by_tool(bridge: KnowledgeBridge) -> list[str]:
    answer = bridge.call("knowledge_grep", {"query": "harbor berth", "limit": 50}, MAIN)
    rows = cast("list[JsonObject]", answer["hits"])
    assert answer["total"] == len(rows)
    assert not any("lifecycle" in row for row in rows)
    return [str(row["id"]) for row in rows]


def by_host(bridge: KnowledgeBridge) -> list[str]:
    answer = bridge.consult("memory.search", {"query": "Which berth has it?", "limit": 50}, MAIN)
    hits = cast("list[JsonObject]", answer["hits"])
    scores = [cast("float", hit["score"]) for hit in hits]
    assert scores == sorted(scores, reverse=True)
    assert "nextCursor" not in answer
    return [str(cast("JsonObject", hit["ref"])["id"]) for hit in hits]


@pytest.mark.parametrize("search", [by_tool, by_host])
def test_every_search_beside_a_writer_holds_what_was_saved_before_it_and_nothing_that_was_withdrawn(
    tmp_path: Path, search: Callable[[KnowledgeBridge], list[str]]
) -> None:
    """A record is in an answer when it was there throughout the call, and is not when it was gone before it began."""
    with nothing_left(), open_bridge(tmp_path) as bridge:
        saved: list[str] = []
        leaving: list[str] = []
        gone: list[str] = []
        done = threading.Event()
        bridge.call(
            "knowledge_remember",
            {**remembering(*(f"The harbor has pier {n}." for n in range(12))), "requestId": request_id(1)},
            MAIN,
        )

        def write() -> None:
            try:
                for number in range(WRITES):
                    [item] = items_of(remember(bridge, f"The harbor has berth {number}.", 100 + number))
                    saved.append(str(item["id"]))
                    if number % 2:
                        leaving.append(str(item["id"]))
                        fence = {"expectedRevision": item["revision"], "expectedHash": item["hash"]}
                        given = {"id": item["id"], **fence, "reason": "not so", "requestId": request_id(500 + number)}
                        bridge.call("knowledge_withdraw", given, MAIN)
                        gone.append(str(item["id"]))
            finally:
                done.set()

        writer = threading.Thread(target=write)
        writer.start()
        answers = 0
        try:
            while not done.is_set() or not answers:
                before, over = set(saved), set(gone)
                found = search(bridge)
                after = set(leaving)
                assert len(found) == len(set(found))
                assert before - after <= set(found)
                assert not over & set(found)
                answers += 1
        finally:
            writer.join()
        assert len(saved) == WRITES
        assert set(search(bridge)) == set(saved) - set(gone)

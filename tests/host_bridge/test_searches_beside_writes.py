"""Searches and lists through the real lane and indexer while another thread writes (tools.md, Search and lookup)."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import cast

from messages.json_types import JsonObject
from tests.kit.leaks import nothing_left
from tests.kit.store import MAIN, items_of, open_bridge, remember, remembering, request_id

WRITES = 24


def test_every_search_beside_a_writer_holds_what_was_saved_before_it_and_nothing_that_was_withdrawn(
    tmp_path: Path,
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
                answer = bridge.call("knowledge_grep", {"query": "harbor berth", "limit": 50}, MAIN)
                after = set(leaving)
                rows = cast("list[JsonObject]", answer["hits"])
                found = [str(row["id"]) for row in rows]
                assert answer["total"] == len(found) == len(set(found))
                assert not any("lifecycle" in row for row in rows)
                assert before - after <= set(found)
                assert not over & set(found)
                answers += 1
        finally:
            writer.join()
        assert len(saved) == WRITES
        last = bridge.call("knowledge_grep", {"query": "harbor berth", "limit": 50}, MAIN)
        assert {str(row["id"]) for row in cast("list[JsonObject]", last["hits"])} == set(saved) - set(gone)

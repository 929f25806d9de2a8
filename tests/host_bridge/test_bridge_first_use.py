"""The first calls of a store meet helpers that are only being started."""

from __future__ import annotations

from pathlib import Path

from tests.kit.store import MAIN, open_bridge, remembering, request_id


def test_the_first_search_of_a_store_waits_for_its_indexer_instead_of_failing(tmp_path: Path) -> None:
    for number in range(4):
        with open_bridge(tmp_path / str(number)) as bridge:
            assert bridge.call("knowledge_grep", {"query": "anything"}, MAIN) == {"total": 0, "hits": []}


def test_the_first_read_with_evidence_waits_for_the_verifier(tmp_path: Path) -> None:
    with open_bridge(tmp_path) as bridge:
        given = {"requestId": request_id(1), **remembering("Frost comes in May.")}
        items = bridge.call("knowledge_remember", given, MAIN)["items"]
        assert isinstance(items, list)
        assert isinstance(items[0], dict)
        claim = items[0]["id"]
    with open_bridge(tmp_path) as bridge:
        record = bridge.call("knowledge_record", {"id": claim, "includeEvidence": True}, MAIN)["record"]
        assert isinstance(record, dict)
        evidence = record["evidence"]
        assert isinstance(evidence, list)
        assert isinstance(evidence[0], dict)
        assert evidence[0]["excerpt"] == "User: Frost comes in May."

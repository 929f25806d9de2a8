"""Approving, verifying and comparing sources, through the Python door and through MCP, on the real runtime."""

from __future__ import annotations

import json
from pathlib import Path

from host_bridge.bridge import KnowledgeBridge
from messages.errors import Denied, WritesDisabled
from messages.json_types import JsonObject, JsonValue
from messages.vocabulary import PRIVATE
from tests.host_bridge.doors import Door, bridge, door
from tests.kit.store import GROUP, MAIN, failure, items_of, only_store, open_bridge, remember, request_id

__all__ = ["bridge", "door"]


def page(bridge: KnowledgeBridge, title: str, number: int, **more: JsonValue) -> JsonObject:
    given = {"title": title, "type": "project", "body": "About it.", "requestId": request_id(number), **more}
    return bridge.call("knowledge_save_page", given, MAIN)


def listed(answer: JsonObject, key: str) -> list[JsonObject]:
    found = answer[key]
    assert isinstance(found, list)
    return found


def approval(saved: JsonObject, number: int, **more: JsonValue) -> JsonObject:
    return {
        "requestId": request_id(number),
        "id": saved["id"],
        "expectedRevision": saved["revision"],
        "expectedHash": saved["hash"],
        "summary": "It ships on Friday.",
        **more,
    }


def test_an_approval_and_its_repeat_give_one_receipt_through_every_door(bridge: KnowledgeBridge, door: Door) -> None:
    saved = page(bridge, "Plan", 1)
    receipt = door("recall", **approval(saved, 2, triggers=["release"]))
    assert (receipt["id"], receipt["revision"]) == (saved["id"], 2)
    assert door("recall", **approval(saved, 2, triggers=["release"])) == receipt
    rows = listed(door("history", id=saved["id"]), "rows")
    [row] = [row for row in rows if row["operation"] == "recall"]
    assert row["actor"] == "main"


def test_approval_requires_writes_enabled_and_the_owner(bridge: KnowledgeBridge, tmp_path: Path) -> None:
    request = approval({"id": "p", "revision": 1, "hash": "0" * 64}, 1)
    assert isinstance(failure(bridge, "recall", request, GROUP), Denied)
    closed = tmp_path / "closed"
    closed.mkdir()
    with open_bridge(closed, "writesEnabled: false") as other:
        assert isinstance(failure(other, "recall", request), WritesDisabled)


def test_a_manifest_is_compared_with_the_source_pages(bridge: KnowledgeBridge, door: Door) -> None:
    saved = page(bridge, "Notes", 1, type="source", fields={"key": "notes.md", "size": 10})
    sources: list[JsonValue] = [{"key": "notes.md", "size": 11}, {"key": "plan.md", "size": 1}]
    answer = door("source_check", sources=sources, complete=True)
    assert answer["counts"] == {"new": 1, "changed": 1}
    changed = {
        "state": "changed",
        "id": saved["id"],
        "revision": 1,
        "hash": str(saved["hash"])[:16],
        "differs": ["size"],
        "key": "notes.md",
    }
    assert answer["sources"] == [changed, {"state": "new", "key": "plan.md"}]


def test_records_and_their_links_are_verified_and_evidence_that_changed_is_found(
    bridge: KnowledgeBridge, door: Door
) -> None:
    saved = page(bridge, "Plan", 1)
    linking = page(bridge, "Log", 2, body=f"[[{saved['id']}|Plan]] and [[gone]].")
    [claim] = items_of(remember(bridge, "It ships on Friday.", 3))
    ids = [linking["id"], claim["id"]]
    links = [{"from": linking["id"], "to": saved["id"]}, {"from": saved["id"], "to": linking["id"]}]
    answer = door("verify", ids=ids, expectedLinks=links)
    assert [found["state"] for found in listed(answer, "records")] == ["problems", "ok"]
    assert [found["state"] for found in listed(answer, "links")] == ["present", "missing"]
    [excerpt] = (only_store(bridge.state_dir).partition(PRIVATE) / "artifacts").glob("*/excerpt.txt")
    excerpt.write_text("tampered", "utf-8")
    [changed] = listed(door("verify", ids=[claim["id"]]), "records")
    assert changed["state"] == "problems"
    assert "hash_mismatch" in json.dumps(changed["evidence"])

"""Connections, timelines and what is due, through the Python door and through MCP, on the real runtime."""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta

from host_bridge.bridge import KnowledgeBridge
from host_bridge.mcp import McpHost
from messages.errors import NotFound, SnapshotChanged
from messages.json_types import JsonObject, JsonValue
from messages.tools import json_bytes
from tests.host_bridge.doors import Door, bridge, door
from tests.host_bridge.mcp_session import Served, only_text
from tests.host_bridge.test_checks_over_doors import listed, page
from tests.kit.store import GROUP, MAIN, failure, items_of, remember, remembering, request_id

__all__ = ["bridge", "door"]


def saved(bridge: KnowledgeBridge, number: int, *items: Mapping[str, JsonValue]) -> list[JsonObject]:
    given = {**remembering(*items, excerpt="User: so it is."), "requestId": request_id(number)}
    return items_of(bridge.call("knowledge_remember", given, MAIN))


def test_a_page_is_asked_for_its_neighbours_in_every_direction(bridge: KnowledgeBridge, door: Door) -> None:
    alex = page(bridge, "Alex Morgan", 1, type="person")
    acme = page(bridge, "Acme", 2, type="company", body=f"Run by [[{alex['id']}|Alex]].")
    log = page(bridge, "Log", 3, dependencies=[acme["id"]], body="About [[Acme]].")
    [claim] = saved(bridge, 4, {"text": "Acme moved to Oslo.", "kind": "fact", "subject": "Acme"})
    status = bridge.call("knowledge_status", {}, MAIN)
    citation = listed_evidence(bridge, claim["id"])
    tie = bridge.call(
        "knowledge_create_relationship",
        {
            "requestId": request_id(5),
            "expectedVaultId": status["vaultId"],
            "expectedOntologyFingerprint": status["ontologyFingerprint"],
            "from": alex["id"],
            "to": acme["id"],
            "label": "works_at",
            "assertion_origin": "source",
            "attribution": "somebody",
            "evidence": [citation],
        },
        MAIN,
    )
    answer = door("connections", id=acme["id"])
    assert [(row["direction"], row["id"]) for row in listed(answer, "connections")] == [
        ("incoming", tie["id"]),
        ("dependents", log["id"]),
        ("claims", claim["id"]),
        ("links", alex["id"]),
        ("backlinks", log["id"]),
    ]
    [outgoing] = listed(door("connections", id=alex["id"], direction="outgoing"), "connections")
    assert (outgoing["from"], outgoing["label"], outgoing["to"]) == (alex["id"], "works_at", acme["id"])


def listed_evidence(bridge: KnowledgeBridge, record_id: JsonValue) -> JsonObject:
    record = bridge.call("knowledge_record", {"id": record_id, "includeEvidence": True}, MAIN)["record"]
    assert isinstance(record, dict)
    [citation] = listed(record, "evidence")
    return {"path": citation["path"], "sha256": citation["sha256"]}


def test_a_withdrawn_connection_is_gone_at_once_and_a_corrected_one_is_history(
    bridge: KnowledgeBridge, door: Door
) -> None:
    page(bridge, "Acme", 1, type="company")
    acme = listed(bridge.call("knowledge_lookup", {"query": "Acme"}, MAIN), "hits")[0]
    first, second = saved(
        bridge,
        2,
        {"text": "Acme is in Oslo.", "kind": "fact", "subject": "Acme"},
        {"text": "Acme is closed.", "kind": "fact", "subject": "Acme"},
    )
    fence: JsonObject = {"expectedRevision": 1, "reason": "It was wrong."}
    withdrawal: JsonObject = {**fence, "requestId": request_id(3), "id": second["id"], "expectedHash": second["hash"]}
    bridge.call("knowledge_withdraw", withdrawal, MAIN)
    status = bridge.call("knowledge_status", {}, MAIN)
    corrected = bridge.call(
        "knowledge_correct",
        {
            **fence,
            "requestId": request_id(4),
            "id": first["id"],
            "expectedHash": first["hash"],
            "expectedOntologyFingerprint": status["ontologyFingerprint"],
            "expectedVaultId": status["vaultId"],
            "replacement": {
                "kind": "claim",
                "body": "Acme is in Bergen.",
                "claim_kind": "fact",
                "assertion_origin": "source",
                "attribution": "somebody",
                "entities": [acme["id"]],
                "evidence": [listed_evidence(bridge, first["id"])],
            },
        },
        MAIN,
    )
    now = listed(door("connections", id=acme["id"]), "connections")
    assert [row["id"] for row in now] == [corrected["id"]]
    ever = listed(door("connections", id=acme["id"], historical=True), "connections")
    assert {(row["id"], row.get("lifecycle", "active")) for row in ever} == {
        (first["id"], "superseded"),
        (corrected["id"], "active"),
    }
    assert [row["id"] for row in listed(door("timeline", kind="claim"), "entries")] == [corrected["id"]]


def test_a_timeline_its_days_and_one_day_agree(bridge: KnowledgeBridge, door: Door) -> None:
    page(bridge, "Garden Pilot", 1)
    saved(
        bridge,
        2,
        {"text": "Option B was chosen.", "kind": "decision", "subject": "Garden Pilot", "occurred_at": "2025-09-20"},
        {"text": "The trial ran.", "kind": "event", "subject": "Garden Pilot", "occurred_at": "2025-09"},
        {"text": "The order left late.", "kind": "event", "occurred_at": "2025-09-20T23:30:00-05:00"},
    )
    span: JsonObject = {"since": "2025-09", "until": "2025-10"}
    rows = listed(door("timeline", **{**span, "subject": "garden pilot"}), "entries")
    assert [(row["date"], row["claimKind"]) for row in rows] == [("2025-09-20", "decision"), ("2025-09", "event")]
    counted = {row["day"]: row["claim"] for row in listed(door("chronicle_days", **span), "days")}
    assert (len(counted), counted["2025-09-20"], counted["2025-09-21"], counted["2025-09-01"]) == (30, 2, 2, 1)
    for date, number in counted.items():
        assert door("chronicle_day", date=date)["total"] == number


def test_commitments_come_with_their_owners_overdue_due_and_upcoming(bridge: KnowledgeBridge, door: Door) -> None:
    today = datetime.now(UTC).date()
    due = {"late": today - timedelta(days=30), "soon": today + timedelta(days=3)}
    saved(
        bridge,
        1,
        *({"text": f"It comes {name}.", "kind": "commitment", "due_at": str(day)} for name, day in due.items()),
    )
    answer = door("chronicle_due")
    assert answer["totals"] == {"overdue": 1, "due": 0, "upcoming": 1}
    [late], [soon] = listed(answer, "overdue"), listed(answer, "upcoming")
    assert (late["due"], late["text"]) == (str(due["late"]), "It comes late.")
    assert (soon["due"], "owner" in soon) == (str(due["soon"]), False)
    as_of = door("chronicle_due", asOf=str(due["soon"]), horizonDays=0)
    assert as_of["totals"] == {"overdue": 1, "due": 1, "upcoming": 0}


def test_a_conversation_sees_only_its_own_partition_in_connections_and_timelines(bridge: KnowledgeBridge) -> None:
    acme = page(bridge, "Acme", 1, type="company")
    remember(bridge, "The owner's fact.", 2)
    remember(bridge, "The group's fact.", 3, GROUP)
    rows = listed(bridge.call("knowledge_timeline", {}, GROUP), "entries")
    assert [row["text"] for row in rows] == ["The group's fact."]
    assert isinstance(failure(bridge, "connections", {"id": acme["id"]}, GROUP), NotFound)
    assert isinstance(failure(bridge, "timeline", {"subject": "Acme"}, GROUP), NotFound)


def test_pages_stay_within_24_kib_and_a_change_between_them_is_a_typed_refusal(bridge: KnowledgeBridge) -> None:
    acme = page(bridge, "Acme", 1, type="company")
    text = "é" * 3_900
    saved(bridge, 2, *({"text": f"{n} {text}", "kind": "fact", "subject": "Acme"} for n in range(8)))
    asked: list[tuple[str, str, JsonObject]] = [
        ("connections", "connections", {"id": acme["id"], "limit": 100}),
        ("timeline", "entries", {"subject": "Acme", "limit": 100}),
    ]
    for tool, key, arguments in asked:
        offset, seen = 0, []
        while True:
            answer = bridge.call(f"knowledge_{tool}", {**arguments, "offset": offset}, MAIN)
            assert json_bytes(answer) <= 24 * 1024
            seen += [row["id"] for row in listed(answer, key)]
            if "nextOffset" not in answer:
                break
            assert isinstance(answer["nextOffset"], int)
            offset = answer["nextOffset"]
        assert len(seen) == len(set(seen)) == 8
        assert isinstance(answer["snapshot"], str)
        remember(bridge, f"Meanwhile, {tool}.", 10 + len(tool))
        again: JsonObject = {**arguments, "offset": offset, "snapshot": answer["snapshot"]}
        assert isinstance(failure(bridge, tool, again), SnapshotChanged)


def test_a_refusal_through_mcp_names_the_code_and_the_field(bridge: KnowledgeBridge) -> None:
    host = McpHost(bridge)
    served = Served(host)
    served.open()
    for number, (tool, arguments, code) in enumerate(
        (
            ("knowledge_connections", {"id": "nobody"}, "not_found"),
            ("knowledge_timeline", {"since": "2026-09-20", "until": "2026-09-20"}, "invalid_argument"),
            ("knowledge_chronicle_day", {"date": "2026-02-29"}, "invalid_argument"),
        )
    ):
        served.request(number, "tools/call", {"name": tool, "arguments": arguments})
        result = served.result()
        assert result["isError"]
        assert json.dumps(code)[1:-1] in only_text(result)
    served.close()
    host.close()

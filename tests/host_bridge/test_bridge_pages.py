"""Budgets and extraction through the Python door, with everything behind it real, in both kinds of partition."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from host_bridge.bridge import KnowledgeBridge
from messages.audience import Audience
from messages.json_types import JsonObject
from messages.vocabulary import PRIVATE, Partition
from tests.kit.leaks import nothing_left
from tests.kit.store import (
    GROUP,
    GROUP_PARTITION,
    MAIN,
    failure,
    items_of,
    only_store,
    open_bridge,
    page_file,
    request_id,
    write_note,
)

PARTITIONS = [(MAIN, PRIVATE), (GROUP, GROUP_PARTITION)]
CONFIGURATION = "pageBudgets: {hubPercentile: 50}"
_NEXT = iter(range(6_000_000, 7_000_000))


@pytest.fixture
def bridge(tmp_path: Path) -> Iterator[KnowledgeBridge]:
    with nothing_left(), open_bridge(tmp_path, CONFIGURATION) as opened:
        yield opened


def save(
    bridge: KnowledgeBridge, audience: Audience, title: str, body: str, page: JsonObject | None = None
) -> JsonObject:
    given: JsonObject = {"requestId": request_id(next(_NEXT)), "title": title, "type": "project", "body": body}
    fences: JsonObject = {}
    if page is not None:
        fences = {"id": page["id"], "expectedRevision": page["revision"], "expectedHash": page["hash"]}
    return bridge.call("knowledge_save_page", given | fences, audience)


def extraction(bridge: KnowledgeBridge, audience: Audience, source: JsonObject, start: int) -> JsonObject:
    status = bridge.call("knowledge_status", {}, audience)
    return {
        "requestId": request_id(next(_NEXT)),
        "expectedVaultId": status["vaultId"],
        "expectedOntologyFingerprint": status["ontologyFingerprint"],
        "source": {"id": source["id"], "expectedRevision": source["revision"], "expectedHash": source["hash"]},
        "sectionStart": start,
        "destination": {"title": "Releases", "type": "project"},
        "summary": "It moved.",
        "reason": "a test",
    }


@pytest.mark.parametrize(("audience", "partition"), PARTITIONS)
def test_a_rejected_write_an_extraction_and_the_write_again(
    bridge: KnowledgeBridge, audience: Audience, partition: Partition
) -> None:
    body = "Intro.\n\n# Releases\n\n" + "r" * 23_000 + "\n"
    page = save(bridge, audience, "OpenClaw", body)
    rejection = save(bridge, audience, "OpenClaw", body + "m" * 2_000, page)
    assert (rejection["state"], rejection["reason"]) == ("rejected", "budget")
    budget = rejection["budget"]
    assert isinstance(budget, dict)
    [shown] = budget["pages"] if isinstance(budget["pages"], list) else []
    assert isinstance(shown, dict)
    [section] = shown["sections"] if isinstance(shown["sections"], list) else []
    assert isinstance(section, dict)
    start = section["start"]
    assert isinstance(start, int)
    receipt = bridge.call("knowledge_extract_section", extraction(bridge, audience, page, start), audience)
    made, left = items_of(receipt)
    moved = bridge.call("knowledge_record", {"id": made["id"], "maxChars": 48_000}, audience)["record"]
    assert isinstance(moved, dict)
    assert moved["body"] == body[len("Intro.\n\n") :]
    again = save(bridge, audience, "OpenClaw", f"Intro.\n\n[[{made['id']}]]\n" + "m" * 2_000, left)
    assert again["revision"] == 3
    folder = only_store(bridge.state_dir).partition(partition)
    assert sorted(path.name for path in folder.rglob("*.md")) == ["openclaw.md", "releases.md"]


def test_pages_of_one_partition_are_no_destinations_and_no_neighbours_of_the_others(bridge: KnowledgeBridge) -> None:
    ours = save(bridge, MAIN, "Ours", "# Section\n\ntext\n")
    theirs = save(bridge, GROUP, "Theirs", f"[[{ours['id']}]] [[Ours]]\n")
    given = extraction(bridge, MAIN, ours, 0)
    there: JsonObject = {"id": theirs["id"], "expectedRevision": theirs["revision"], "expectedHash": theirs["hash"]}
    error = failure(bridge, "extract_section", {**given, "destination": there})
    assert (error.code, error.fields["field"]) == ("not_found", "destination.id")
    foreign = failure(bridge, "extract_section", given, GROUP)
    assert (foreign.code, foreign.fields["field"]) == ("not_found", "source.id")


def test_the_configured_hub_percentile_decides_what_a_hub_is(bridge: KnowledgeBridge) -> None:
    page = save(bridge, MAIN, "The Hub", "x\n")
    folder = only_store(bridge.state_dir).partition(PRIVATE)
    for number in range(25):
        # Twelve pages are linked as much as the hub: above half of the others, and below nine tenths.
        body = "[[The Hub]]\n" if number < 12 else "y\n"
        links = " ".join(f"[[p{other}]]" for other in range(12)) if number < 12 else ""
        write_note(folder, f"projects/p{number}.md", page_file(f"p{number}", f"P {number}", body=f"{body}{links}\n"))
    rejection = save(bridge, MAIN, "The Hub", "z" * 12_001, page)
    budget = rejection["budget"]
    assert isinstance(budget, dict)
    [shown] = budget["pages"] if isinstance(budget["pages"], list) else []
    assert isinstance(shown, dict)
    assert shown["budgetChars"] == 12_000
    hub = shown["hub"]
    assert isinstance(hub, dict)
    assert (hub["hub"], hub["degree"], hub["hubPercentile"], hub["percentile"]) == (True, 12, 50, 50.0)

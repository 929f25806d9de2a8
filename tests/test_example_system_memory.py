"""The example of a claim's life, on a real runtime: section by section what the boundary promises."""

from __future__ import annotations

from pathlib import Path

from examples import system_memory
from host_bridge.bridge import KnowledgeBridge


def test_a_claim_is_observed_admitted_challenged_refuted_recalled_reviewed_and_promoted_without_leaving_the_store(
    tmp_path: Path,
) -> None:
    said: list[str] = []
    claim = system_memory.run(tmp_path / "state", said.append)
    steps = [line.partition(": ")[2] for line in said]
    assert steps[:4] == ["candidate", "admitted", "suspended", "admitted"]
    assert steps[4] == f"[From memory: (system, as of 2026-09-20, admitted)] {system_memory.OBSERVED}"
    assert steps[5] == "1"
    assert "`gateway-402-retired-model`" in steps[6]
    assert steps[7] == "None"
    assert claim["body"] == system_memory.OBSERVED
    assert claim["status"] == "admitted"
    assert claim["supersededBy"] is not None
    records = claim["records"]
    assert isinstance(records, list)
    assert [record["role"] for record in records if isinstance(record, dict)] == [
        "admission",
        "challenge",
        "refutation",
    ]
    counters = claim["counters"]
    assert isinstance(counters, dict)
    assert (counters["recalled"], counters["sessions"]) == (5, 5)
    with KnowledgeBridge(tmp_path / "state") as knowledge:
        rows = knowledge.ask("access.audit", {})["rows"]
        assert isinstance(rows, list)
        actions = [(row["action"], row["actor"]) for row in rows if isinstance(row, dict)]
    assert actions == [
        ("memory.promote", "steward:stella"),
        ("memory.refute", "steward:stella"),
        ("memory.admit", "steward:stella"),
    ]

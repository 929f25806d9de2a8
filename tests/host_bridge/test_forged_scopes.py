"""Files that claim another scope than their folder's: withheld, told by count only, never relabelled.

Source: stores-and-access.md (Partitions).
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.host_bridge.test_adversary import WORD, outcome
from tests.kit.leaks import nothing_left
from tests.kit.store import GROUP, GROUP_PARTITION, claim_file, only_store, open_bridge, page_file, write_note


def forged(scope: str) -> str:
    """A claim's file with this line for its scope."""
    claim = claim_file("forged-claim", f"{WORD} forged.", partition=GROUP_PARTITION)
    start = claim.index("scope: ")
    end = claim.index("\n", start) + 1
    return claim[:start] + scope + claim[end:]


@pytest.mark.parametrize(
    "scope",
    [
        'scope: {"visibility": "private"}\n',
        'scope: {"visibility": "conversation"}\n',
        'scope: {"visibility": "conversation", "sessionId": "44444444-4444-4444-8444-444444444444"}\n',
        'scope: {"visibility": "public"}\n',
        'scope: "private"\n',
        "",
    ],
)
def test_a_record_with_a_missing_invalid_or_mismatched_scope_is_withheld_and_reported_by_count_only(
    tmp_path: Path, scope: str
) -> None:
    with nothing_left(), open_bridge(tmp_path) as bridge:
        bridge.call("knowledge_status", {}, GROUP)
        folder = only_store(tmp_path).partition(GROUP_PARTITION)
        file = write_note(folder, "forged.md", forged(scope))
        before = file.read_bytes()
        assert bridge.call("knowledge_records", {}, GROUP)["total"] == 0
        assert WORD not in outcome(bridge, "grep", {"query": WORD}).replace(f'"query": "{WORD}"', "")
        assert json.loads(outcome(bridge, "record", {"id": "forged-claim"})) == json.loads(
            outcome(bridge, "record", {"id": "nothing-there"}).replace("nothing-there", "forged-claim")
        )
        told = outcome(bridge, "status", {})
        assert WORD not in told
        assert "forged" not in told
        assert file.read_bytes() == before, "never relabelled"


def test_with_its_own_scope_the_same_file_is_a_record(tmp_path: Path) -> None:
    with nothing_left(), open_bridge(tmp_path) as bridge:
        bridge.call("knowledge_status", {}, GROUP)
        folder = only_store(tmp_path).partition(GROUP_PARTITION)
        write_note(folder, "page.md", page_file("p", WORD, partition=GROUP_PARTITION))
        assert bridge.call("knowledge_records", {}, GROUP)["total"] == 1

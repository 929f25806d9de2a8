"""The memory provider's methods as hosts reach them: the Python bridge and the host protocol."""

from __future__ import annotations

from pathlib import Path

import pytest

from host_bridge.bridge import KnowledgeBridge
from messages.audience import Conversation, OwnerPrivate
from messages.errors import AudienceMissing, Denied, InvalidArgument, KnowledgeError, Sandboxed

MAIN = OwnerPrivate("main")
GROUP = Conversation("main", "chat:group", "33333333-3333-4333-8333-333333333333")


def test_health_speaks_of_the_partition_of_the_audience(tmp_path: Path) -> None:
    with KnowledgeBridge(tmp_path) as knowledge:
        knowledge.call("knowledge_status", {}, MAIN)
        private = knowledge.consult("memory.status", {}, MAIN)
        group = knowledge.consult("memory.status", {}, GROUP)
    assert (private["ready"], private["partition"], group["partition"]) == (True, "private", "conversation")


def test_host_status_handles_receive_readiness_only(tmp_path: Path) -> None:
    with KnowledgeBridge(tmp_path) as knowledge:
        knowledge.call("knowledge_status", {}, MAIN)
        assert knowledge.consult("memory.status", {"purpose": "status"}, MAIN) == {"ready": True}
        assert knowledge.consult("memory.status", {"purpose": "status"}) == {"ready": True}


def test_memory_status_never_creates_a_store(tmp_path: Path) -> None:
    with KnowledgeBridge(tmp_path) as knowledge:
        knowledge.consult("memory.status", {"purpose": "status"}, MAIN)
        knowledge.consult("memory.status", {}, MAIN)
    assert not list(tmp_path.glob("knowledge/stores/*"))


@pytest.mark.parametrize(
    ("audience", "refusal"),
    [
        (None, AudienceMissing),
        (OwnerPrivate("stranger"), Denied),
        (OwnerPrivate("main", sandboxed=True), Sandboxed),
    ],
    ids=["missing", "foreign", "sandboxed"],
)
def test_missing_foreign_and_sandboxed_callers_are_denied(
    tmp_path: Path, audience: OwnerPrivate | None, refusal: type[KnowledgeError]
) -> None:
    with KnowledgeBridge(tmp_path) as knowledge, pytest.raises(refusal):
        knowledge.consult("memory.status", {}, audience)


def test_another_method_is_refused_by_name(tmp_path: Path) -> None:
    with KnowledgeBridge(tmp_path) as knowledge, pytest.raises(InvalidArgument) as refused:
        knowledge.consult("memory.forget", {}, MAIN)
    assert refused.value.fields["field"] == "method"

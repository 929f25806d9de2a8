"""The row of many stores: a start and the first answer where a thousand agents have a store each."""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

from host_bridge.bridge import KnowledgeBridge
from messages.audience import OwnerPrivate
from storage.layout import Layout
from storage.registry import Isolated
from storage.registry_audit import By
from storage.registry_recovery import rebuild
from storage.session import StoreSession
from stress.bench.measure import Contender, Row, Sample, interleave
from stress.bench.store import BenchStore

STORES: Final = 1_000
LIMIT_SECONDS: Final = 2.0


def starts(store: BenchStore, rounds: int) -> Iterator[Row]:
    """A runtime that starts beside a thousand stores and answers one agent, against one that has this agent alone."""
    many = state_of(store.state_dir / "many", STORES)
    one = state_of(store.state_dir / "one", 1)
    taken = interleave([Contender("many", started(many)), Contender("one", started(one))], rounds, warm=1)
    yield Row(
        f"start with {STORES:,} stores, and a first answer", store.size, Sample.of(taken["many"]), "with one store",
        Sample.of(taken["one"]), f"<= {LIMIT_SECONDS:.0f} s", LIMIT_SECONDS, absolute=True,
    )  # fmt: skip


def state_of(folder: Path, number: int) -> Path:
    """A state directory in which that many agents have a store; the first one's is there."""
    layout = Layout(folder)
    layout.root.mkdir(parents=True)
    vault_ids = [str(uuid.UUID(int=index + 1, version=4)) for index in range(number)]
    StoreSession.create(layout.new_store(vault_ids[0]), vault_ids[0])
    for vault_id in vault_ids[1:]:
        layout.new_store(vault_id).root.mkdir()
    stores = [(vault_id, layout.new_store(vault_id).root, Isolated(f"a{n}")) for n, vault_id in enumerate(vault_ids)]
    rebuild(layout, stores, By("bench", "bench", 1))
    agents = [{"id": f"a{n}"} for n in range(number)]
    layout.configuration.write_text(json.dumps({"agents": {"list": agents}}), "utf-8")
    return folder


def started(state_dir: Path) -> Callable[[int], None]:
    """Start, answer, stop."""

    def run(_: int) -> None:
        with KnowledgeBridge(state_dir) as knowledge:
            knowledge.call("knowledge_status", {}, OwnerPrivate("a0"))

    return run


__all__ = ["STORES", "started", "starts", "state_of"]

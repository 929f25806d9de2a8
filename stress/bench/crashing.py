"""The row of a lane that crashes: how long its store is not answering."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Iterator
from typing import Final

from host_bridge.bridge import KnowledgeBridge
from messages.errors import KnowledgeError
from storage import faults
from stress.bench.measure import Contender, Row, Sample, interleave
from stress.bench.notes import title_of_page
from stress.bench.store import MAIN, BenchStore, configuration, remembering

LIMIT_SECONDS: Final = 1.0
ATTEMPTS: Final = 100
GIT_SECONDS: Final = 300.0


class _Defect(RuntimeError):
    """Nobody's: the lane dies of it."""


def crashed_lane(store: BenchStore, rounds: int) -> Iterator[Row]:
    """From a write over which the lane crashes to the next answer of its store: the end, the restart, the opening after
    an unclean end and the look-up itself. Each in a runtime of its own, so that no restart waits for an earlier one."""
    rng = random.Random(store.seed)
    pages = max(1, store.size // 4)
    up: list[KnowledgeBridge] = []

    def open_and_ask(turn: int) -> None:
        knowledge = KnowledgeBridge(store.state_dir, config=configuration())
        up.append(knowledge)
        look_up(turn)
        knowledge.call("knowledge_remember", remembering(turn), MAIN)
        wait_for_git(knowledge)

    def look_up(_: int) -> None:
        up[0].call("knowledge_lookup", {"query": title_of_page(rng.randrange(pages))}, MAIN)

    def crash_and_ask(turn: int) -> None:
        crash(up[0], turn)
        for _ in range(ATTEMPTS):
            try:
                look_up(turn)
            except KnowledgeError as error:
                if error.retry == "never":
                    raise
            else:
                return
        raise RuntimeError("the store did not answer again")

    def close(_: int) -> None:
        up.pop().close()

    crashing = Contender("crash", crash_and_ask, prepare=open_and_ask, tidy=close)
    asking = Contender("ask", look_up, prepare=open_and_ask, tidy=close)
    taken = interleave([crashing, asking], rounds, warm=1)
    yield Row(
        "a crashed lane answers again", store.size, Sample.of(taken["crash"]), "a look-up",
        Sample.of(taken["ask"]), f"<= {LIMIT_SECONDS:.0f} s", LIMIT_SECONDS, absolute=True,
    )  # fmt: skip


def wait_for_git(knowledge: KnowledgeBridge) -> None:
    """Until nothing waits for a commit: the first one of a vault takes long, and nobody may be closed over it."""
    until = time.monotonic() + GIT_SECONDS
    while time.monotonic() < until:
        git = knowledge.call("knowledge_status", {}, MAIN).get("git")
        if not isinstance(git, dict) or not git.get("pending"):
            return
        time.sleep(0.2)


def crash(knowledge: KnowledgeBridge, turn: int) -> None:
    """A save over whose first step in storage the lane dies. Raises ``RuntimeError`` when it does not."""
    struck = threading.Event()

    def strike(point: str) -> None:
        if not struck.is_set() and threading.current_thread().name.endswith("/lane"):
            struck.set()
            raise _Defect(point)

    with faults.installed(strike):
        try:
            knowledge.call("knowledge_remember", remembering(1_000_000 + turn), MAIN)
        except KnowledgeError:
            return
    raise RuntimeError("the lane did not crash")

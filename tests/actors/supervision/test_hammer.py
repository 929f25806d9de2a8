"""Real threads: 8 of them, 3,000 calls each, crashes below the restart intensity, a deadline on everything.

Source: DESIGN.md (rules 2 and 5). Never hangs, one typed answer each within the deadline, 90 % of the faultless
calls succeed, and at least half the throughput of the same run without faults.
"""

from __future__ import annotations

import random
import threading
import time
from collections import Counter
from dataclasses import dataclass, field

import pytest

from actors.supervision import ActorSettings, ChildSpec, Reply, Tree
from messages.envelope import Deadline
from messages.errors import Denied, InternalError, KnowledgeError
from tests.kit.actors import Echo, Park, Probe, Raise

THREADS = 8
CALLS = 3_000
CRASHES = 5
DEADLINE_SECONDS = 5.0
GRACE_SECONDS = 0.25


@dataclass
class Outcome:
    seconds: float = 0.0
    answers: Counter[str] = field(default_factory=Counter)
    faultless: int = 0
    faultless_succeeded: int = 0
    latest: float = 0.0
    twice: int = 0


def hammer(seed: int, *, faults: bool) -> Outcome:
    outcome = Outcome()
    lock = threading.Lock()
    chance = random.Random(seed)
    crashing = {(chance.randrange(THREADS), chance.randrange(CALLS)) for _ in range(CRASHES)} if faults else set()

    def caller(number: int, tree: Tree) -> None:
        handle = tree.handle("lane")
        mine = random.Random(seed * 100 + number)
        local = Outcome()
        for call in range(CALLS):
            message: object = Echo(call)
            seconds = DEADLINE_SECONDS
            fault = False
            if (number, call) in crashing:
                message, fault = Raise(mine.choice([ValueError(), SystemExit()])), True
            elif faults and mine.random() < 0.01:
                message, fault = Raise(Denied("not yours")), True
            elif faults and mine.random() < 0.002:
                message, seconds, fault = Park(), 0.02, True
            answered: list[int] = []
            begun = time.monotonic()
            reply: Reply[object] = handle.ask(
                message, deadline=Deadline.after(seconds), fairness_key=str(number), request_key=f"{number}-{call}"
            )
            reply.add_done_callback(lambda _, answered=answered: answered.append(1))  # type: ignore[misc]
            try:
                value = reply.result()
                assert value == call
                kind = "success"
            except KnowledgeError as error:
                kind = error.code
                expected = isinstance(error, Denied | InternalError) or error.retry == "safe"
                kind += "" if expected or not isinstance(message, Raise) else " unexpected"
            local.latest = max(local.latest, time.monotonic() - begun - seconds)
            local.answers[kind] += 1
            local.twice += len(answered) > 1
            if not fault:
                local.faultless += 1
                local.faultless_succeeded += kind == "success"
        with lock:
            outcome.answers += local.answers
            outcome.faultless += local.faultless
            outcome.faultless_succeeded += local.faultless_succeeded
            outcome.latest = max(outcome.latest, local.latest)
            outcome.twice += local.twice

    with Tree([ChildSpec("lane", Probe, settings=ActorSettings())]) as tree:
        threads = [threading.Thread(target=caller, args=(number, tree)) for number in range(THREADS)]
        begun = time.monotonic()
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        outcome.seconds = time.monotonic() - begun
        health = tree.handle("lane").health()
        assert health.state == "ready"
        assert health.crashes == len(crashing)
        assert health.unanswered == 0
    return outcome


@pytest.mark.slow
def test_eight_threads_of_3000_calls_with_crashes_get_one_typed_answer_each_in_time() -> None:
    calm = hammer(1, faults=False)
    stormy = hammer(1, faults=True)
    print(f"calm {calm.seconds:.2f} s, stormy {stormy.seconds:.2f} s, {dict(stormy.answers)}")
    assert calm.answers == {"success": THREADS * CALLS}
    for outcome in (calm, stormy):
        assert sum(outcome.answers.values()) == THREADS * CALLS
        assert outcome.latest <= GRACE_SECONDS
        assert outcome.twice == 0
    assert stormy.answers["internal"] == CRASHES
    assert set(stormy.answers) <= {"success", "internal", "denied", "deadline", "restarting"}
    assert stormy.faultless_succeeded >= 0.9 * stormy.faultless
    assert stormy.seconds <= 2 * calm.seconds + DEADLINE_SECONDS * 0.1

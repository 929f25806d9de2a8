"""What the agents do: a seeded mix of reads and writes through the bridge, and a record of every answer.

Each agent is a thread with its own random source, so that a seed gives every agent the same calls whatever the
others do. A write is remembered with its answer: the checkers ask for it again when the run is over.
"""

from __future__ import annotations

import random
import threading
import time
import uuid
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final, Literal, TypeAlias

from host_bridge.bridge import KnowledgeBridge
from messages.audience import Audience, OwnerPrivate
from messages.envelope import Call, Deadline
from messages.errors import KnowledgeError
from messages.json_types import JsonObject

DEADLINE_SECONDS: Final = 10.0
LONGEST_PAUSE_SECONDS: Final = 10.0
SETTLE_ATTEMPTS: Final = 8
GRACE_SECONDS: Final = 0.25
_TOPICS: Final = ("tomatoes", "irrigation", "the shed", "compost", "bees", "frost", "seedlings", "the fence")

Kind: TypeAlias = Literal["remember", "save_page", "lookup", "grep", "record", "status"]
_MIX: Final[tuple[tuple[Kind, int], ...]] = (
    ("lookup", 35),
    ("grep", 15),
    ("record", 25),
    ("remember", 15),
    ("save_page", 6),
    ("status", 4),
)


@dataclass(frozen=True, slots=True)
class Answer:
    """One call and how it ended; ``code`` is ``ok`` or the error's. Times in seconds on the monotonic clock."""

    tool: str
    code: str
    retry: str
    started: float
    answered: float
    deadline: float
    answers: int
    arguments: JsonObject
    result: JsonObject | None

    @property
    def seconds(self) -> float:
        return self.answered - self.started

    @property
    def late(self) -> bool:
        return self.answered > self.deadline + GRACE_SECONDS


@dataclass(slots=True)
class Agent:
    """One concurrent agent."""

    number: int
    audience: Audience
    random: random.Random
    answers: list[Answer] = field(default_factory=list)
    known: list[str] = field(default_factory=list)

    def run(self, knowledge: KnowledgeBridge, calls: int, stop: threading.Event) -> None:
        """Make ``calls`` calls, one after another, unless told to stop."""
        for turn in range(calls):
            if stop.is_set():
                return
            tool, arguments = self._next(turn)
            answer = call(knowledge, tool, arguments, self.audience)
            self.answers.append(answer)
            self._learn(answer)

    def _next(self, turn: int) -> tuple[str, JsonObject]:
        kind = self.random.choices([kind for kind, _ in _MIX], [weight for _, weight in _MIX])[0]
        topic = self.random.choice(_TOPICS)
        match kind:
            case "remember":
                return "knowledge_remember", self._remember(turn, topic)
            case "save_page":
                return "knowledge_save_page", {
                    "requestId": self._uuid(),
                    "title": f"Page {self.number}-{turn} on {topic}",
                    "type": "note",
                    "body": f"# {topic}\n\nWritten by agent {self.number} in turn {turn}.",
                }
            case "record" if self.known:
                return "knowledge_record", {"id": self.random.choice(self.known)}
            case "grep":
                return "knowledge_grep", {"query": topic, "mode": "any"}
            case "status":
                return "knowledge_status", {}
            case _:
                return "knowledge_lookup", {"query": f"Page {self.number}-{self.random.randrange(turn + 1)} on {topic}"}

    def _remember(self, turn: int, topic: str) -> JsonObject:
        items: list[JsonObject] = [
            {"text": f"Agent {self.number} noted in turn {turn}, item {item}, that {topic} matters.", "kind": "fact"}
            for item in range(self.random.choice((1, 1, 1, 2, 5)))
        ]
        return {
            "requestId": self._uuid(),
            "attribution": f"agent {self.number}, turn {turn}",
            "excerpt": f"User: {topic} matters, says turn {turn}.",
            "items": items,
        }

    def _uuid(self) -> str:
        return str(uuid.UUID(int=self.random.getrandbits(128), version=4))

    def _learn(self, answer: Answer) -> None:
        result = answer.result
        if result is None:
            return
        if isinstance(result.get("id"), str):
            self.known.append(str(result["id"]))
        items = result.get("items")
        if isinstance(items, list):
            self.known.extend(str(item["id"]) for item in items if isinstance(item, dict))


def call(knowledge: KnowledgeBridge, tool: str, arguments: JsonObject, audience: Audience) -> Answer:
    """One call through the bridge, with a count of how often it was answered."""
    started = time.monotonic()
    deadline = Deadline(started + DEADLINE_SECONDS)
    answered = threading.Event()
    count = 0

    def on_answer(_: object) -> None:
        nonlocal count
        count += 1
        answered.set()

    pending = knowledge.submit(Call(tool, arguments, audience, deadline))
    pending.add_done_callback(on_answer)
    in_time = answered.wait(DEADLINE_SECONDS * 2)
    results: list[JsonObject] = []
    code, retry, pause = "ok", "never", 0.0
    if not in_time:
        code = "no_answer"
    else:
        try:
            pending.deliver(results.append)
        except KnowledgeError as error:
            code, retry = error.code, error.retry
            wait = error.fields.get("retryAfterMs")
            pause = wait / 1_000 if isinstance(wait, int) else 0.0
    answer = Answer(
        tool=tool,
        code=code,
        retry=retry,
        started=started,
        answered=time.monotonic(),
        deadline=deadline.at,
        answers=count,
        arguments=arguments,
        result=results[0] if results else None,
    )
    # An agent that is told when to come back comes back then; hammering a closed door measures nothing.
    time.sleep(min(pause, LONGEST_PAUSE_SECONDS))
    return answer


def settled(knowledge: KnowledgeBridge, tool: str, arguments: JsonObject, audience: Audience) -> Answer:
    """:func:`call`, repeated as its refusals ask while the store is being restarted."""
    answer = call(knowledge, tool, arguments, audience)
    for _ in range(SETTLE_ATTEMPTS):
        if answer.code != "restarting":
            break
        answer = call(knowledge, tool, arguments, audience)
    return answer


def run_agents(
    knowledge: KnowledgeBridge,
    *,
    seed: int,
    agents: int,
    calls: int,
    stop: threading.Event,
    progress: Callable[[int], None] = lambda _: None,
) -> tuple[list[Agent], float]:
    """All agents at once; the agents with their answers, and how many seconds it took."""
    crew = [Agent(n, OwnerPrivate("main"), random.Random(f"{seed}/{n}")) for n in range(agents)]
    threads = [
        threading.Thread(target=agent.run, args=(knowledge, calls, stop), name=f"agent {agent.number}")
        for agent in crew
    ]
    began = time.monotonic()
    for thread in threads:
        thread.start()
    for thread in threads:
        while thread.is_alive():
            thread.join(0.25)
            progress(sum(len(agent.answers) for agent in crew))
    return crew, time.monotonic() - began

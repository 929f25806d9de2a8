"""A host in miniature: an agent loop whose memory is Knowledge, over the host protocol.

Standard library only; whatever language your host is written in, it does the same:

1. start ``knowledge serve --stdio`` and say who you are (``initialize``);
2. at each turn build the system prompt (``prompt.build``: how to use the memory, and the index of what it holds) and
   ask the recall gate what the user's message needs (``recall.gate``; its block stands before the message);
3. let the model call tools (``tools.list``, ``tools.call``) until it answers: it searches first, and saves before the
   reply;
4. before a session is compacted let the model save what would be lost (``flush.plan``, calls with the ``flushId``);
5. after a compaction or in a new session the index is new; within a session it never changes by a byte.

The model here is a script, so that the whole can be run and tested without one::

    python examples/host.py --state-dir /tmp/host-example

Put your model's client in the place of :class:`ScriptedModel`.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import uuid
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from types import TracebackType
from typing import Any, Protocol

PROTOCOL = "knowledge-host/1"
TOOL_ROUNDS_MAX = 12


class Refused(Exception):
    """A typed refusal: ``code``, whether a retry is ``safe``, ``unknown`` or ``never`` useful, and what to do."""

    def __init__(self, error: Mapping[str, Any]) -> None:
        super().__init__(error["message"])
        self.facts: Mapping[str, Any] = {"message": error["message"], **error.get("data", {})}


class Knowledge:
    """One connection to the runtime, which ends with it. One request at a time is enough for one agent."""

    def __init__(self, state_dir: Path, command: Sequence[str] = ("knowledge",)) -> None:
        arguments = [*command, "serve", "--stdio", "--state-dir", str(state_dir)]
        self._process = subprocess.Popen(arguments, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        self._requests = 0
        self.about = self.ask("initialize", protocol=PROTOCOL, host={"name": "host-example", "version": "1"})

    def ask(self, method: str, **params: Any) -> dict[str, Any]:
        """The result of one method. Raises :class:`Refused`."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._requests += 1
        request = {"jsonrpc": "2.0", "id": self._requests, "method": method, "params": params}
        self._process.stdin.write(json.dumps(request).encode() + b"\n")
        self._process.stdin.flush()
        while True:
            line = self._process.stdout.readline()
            if not line:
                raise EOFError("the runtime has ended")
            answer = json.loads(line)
            if answer.get("id") == self._requests:
                break
        if "error" in answer:
            raise Refused(answer["error"])
        result: dict[str, Any] = answer["result"]
        return result

    def close(self) -> None:
        """Let the runtime end in order."""
        if self._process.poll() is None:
            self.ask("shutdown")
        for stream in (self._process.stdin, self._process.stdout):
            if stream is not None:
                stream.close()
        self._process.wait(30)

    def __enter__(self) -> Knowledge:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


@dataclass(frozen=True)
class ToolCall:
    """What a model wants done."""

    tool: str
    arguments: Mapping[str, Any]


Reply = str | ToolCall
"""A final text, or a tool to call first."""


class Model(Protocol):
    """A model: what it is told and what was said so far, to what it does next."""

    def __call__(self, system: str, messages: Sequence[Mapping[str, Any]], tools: Sequence[Mapping[str, Any]]) -> Reply:
        """One step."""
        ...


Step = Reply | Callable[[Mapping[str, Any]], Reply]
"""A step of a script; one that depends on the last tool's answer is a function of it."""


@dataclass
class ScriptedModel:
    """A model that does what a test says, step by step, and keeps what it was shown."""

    steps: list[Step]
    systems: list[str] = field(default_factory=list)
    heard: list[str] = field(default_factory=list)
    offered: list[tuple[str, ...]] = field(default_factory=list)

    def __call__(self, system: str, messages: Sequence[Mapping[str, Any]], tools: Sequence[Mapping[str, Any]]) -> Reply:
        self.systems.append(system)
        self.heard.append(messages[-1]["content"])
        self.offered.append(tuple(tool["function"]["name"] for tool in tools))
        step = self.steps.pop(0)
        if callable(step):
            return step(json.loads(messages[-1]["content"]))
        return step


@dataclass
class Session:
    """One conversation of an owner with an agent. ``started_at`` is the time of its first retained message."""

    knowledge: Knowledge
    model: Model
    agent: str = "main"
    session: str = field(default_factory=lambda: str(uuid.uuid4()))
    started_at: str = ""
    messages: list[dict[str, Any]] = field(default_factory=list)
    turns: int = 0
    flushes: int = 0

    def turn(self, text: str) -> str:
        """The agent's answer to what its user says."""
        self.started_at = self.started_at or _now()
        self.turns += 1
        gate = self.knowledge.ask(
            "recall.gate",
            audience=self._audience(),
            message=text,
            turnId=f"{self.session}/{self.turns}",
            trigger="user",
        )
        self.messages.append({"role": "user", "content": "\n\n".join(filter(None, (gate["block"], text)))})
        tools = self.knowledge.ask("tools.list", format="openai")["tools"]
        return self._run(self._system(tools), tools, None)

    def compact(self) -> bool:
        """Save what would be lost, then forget the conversation; whether anything could be saved."""
        self.flushes += 1
        flush_id = f"{self.session}/flush/{self.flushes}"
        plan = self.knowledge.ask("flush.plan", audience=self._audience(), flushId=flush_id)["plan"]
        if plan is not None:
            allowed = {*plan["persistenceTools"], *plan["helperTools"]}
            every = self.knowledge.ask("tools.list", format="openai")["tools"]
            tools = [tool for tool in every if tool["function"]["name"] in allowed]
            self.messages.append({"role": "user", "content": plan["prompt"]})
            self._run(self._system(every), tools, flush_id)
        self.messages.clear()
        self.started_at = _now()
        return plan is not None

    def _system(self, tools: Iterable[Mapping[str, Any]]) -> str:
        built = self.knowledge.ask(
            "prompt.build",
            audience=self._audience(),
            sessionStartedAt=self.started_at,
            tools=[tool["function"]["name"] for tool in tools],
        )
        return "\n\n".join(filter(None, ("You are a helpful agent.", built["prompt"], built["index"])))

    def _run(self, system: str, tools: Sequence[Mapping[str, Any]], flush_id: str | None) -> str:
        for _ in range(TOOL_ROUNDS_MAX):
            reply = self.model(system, self.messages, tools)
            if isinstance(reply, str):
                self.messages.append({"role": "assistant", "content": reply})
                return reply
            self.messages.append({"role": "assistant", "content": f"{reply.tool}({json.dumps(dict(reply.arguments))})"})
            self.messages.append({"role": "tool", "content": json.dumps(self._call(reply, flush_id))})
        return "I could not finish this."

    def _call(self, call: ToolCall, flush_id: str | None) -> Mapping[str, Any]:
        """What the tool answers; a refusal is an answer too, which tells the model what to do."""
        more = {} if flush_id is None else {"flushId": flush_id}
        try:
            return self.knowledge.ask(
                "tools.call", tool=call.tool, arguments=dict(call.arguments), audience=self._audience(), **more
            )
        except Refused as refused:
            return {"refused": refused.facts}

    def _audience(self) -> dict[str, Any]:
        """Whom the call is for: minted by the host, never by the model."""
        return {"kind": "owner-private", "agent": self.agent}


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="milliseconds")


def story() -> list[tuple[str, list[Step]]]:
    """What the user says, and what the scripted model does about it; ``compact`` stands for a compaction."""
    said = "My dentist is Dr. Moreau, and I always want window seats."
    later = "We moved the Garden Pilot release to Friday."
    return [
        (
            said,
            [
                ToolCall("knowledge_lookup", {"query": "Dr. Moreau"}),
                ToolCall(
                    "knowledge_remember",
                    {
                        "requestId": str(uuid.uuid4()),
                        "attribution": "the user, in this conversation",
                        "excerpt": said,
                        "items": [
                            {"text": "The user's dentist is Dr. Moreau.", "kind": "fact", "origin": "user_belief"},
                            {"text": "The user wants window seats.", "kind": "preference", "origin": "user_belief"},
                        ],
                    },
                ),
                "Noted: Dr. Moreau, and window seats.",
            ],
        ),
        (later, ["Good to know."]),
        (
            "compact",
            [
                ToolCall(
                    "knowledge_save_page",
                    {"title": "Garden Pilot", "type": "project", "body": "The release was moved to Friday."},
                ),
                "Saved.",
            ],
        ),
        (
            "Which seat do I want, and when is Garden Pilot released?",
            [
                ToolCall("knowledge_grep", {"query": "window seats"}),
                ToolCall("knowledge_lookup", {"query": "Garden Pilot"}),
                lambda found: ToolCall("knowledge_record", {"id": found["hits"][0]["id"]}),
                lambda page: f"A window seat. {page['record']['body'].strip()}",
            ],
        ),
    ]


def run(state_dir: Path, command: Sequence[str] = ("knowledge",)) -> ScriptedModel:
    """Live through the story; after the compaction the runtime is started anew. What the model saw."""
    model = ScriptedModel([])
    knowledge = Knowledge(state_dir, command)
    session = Session(knowledge, model)
    try:
        for said, steps in story():
            model.steps.extend(steps)
            if said == "compact":
                print("(compaction)", "saved what mattered" if session.compact() else "nothing could be saved")
                knowledge.close()
                session.knowledge = knowledge = Knowledge(state_dir, command)
            else:
                print("user: ", said)
                print("agent:", session.turn(said))
    finally:
        knowledge.close()
    return model


def main() -> int:
    parser = argparse.ArgumentParser(description="A scripted agent whose memory is Knowledge.")
    parser.add_argument("--state-dir", type=Path, required=True, help="where the memory lies; made where there is none")
    run(parser.parse_args().state_dir)
    return 0


if __name__ == "__main__":
    sys.exit(main())

"""Plain tool calls of an MCP session: answered as the SDK answers them, and without its loop."""

from __future__ import annotations

import re
import threading
from collections.abc import Callable, Iterator
from typing import Final

import orjson
import pytest

from host_bridge import mcp_calls
from host_bridge.mcp import McpHost
from host_bridge.mcp_calls import PROGRESS_SECONDS, Heart, PlainCall
from messages.json_types import JsonObject
from tests.host_bridge.fake_bridge import FakePending, KnowledgeBridge
from tests.host_bridge.mcp_session import ERAS, Era, Served, mapping, only_text

PATIENCE: Final = 20.0
HANDSHAKES: Final = tuple(era for era in ERAS if era != "2026-07-28")


class Bridge(KnowledgeBridge):
    """The fake bridge; calls that ``hold`` are kept for the test."""

    def __init__(self) -> None:
        super().__init__()
        self.held: list[FakePending] = []
        self.arrived = threading.Semaphore(0)

    def hold(self, pending: FakePending) -> None:
        self.held.append(pending)
        self.arrived.release()

    def wait_held(self) -> FakePending:
        assert self.arrived.acquire(timeout=PATIENCE)
        return self.held[-1]


@pytest.fixture(scope="module")
def bridge() -> Bridge:
    return Bridge()


@pytest.fixture(scope="module")
def host(bridge: Bridge) -> Iterator[McpHost]:
    made = McpHost(bridge)
    yield made
    made.close()


@pytest.fixture
def opened(host: McpHost) -> Iterator[Callable[..., Served]]:
    sessions: list[Served] = []

    def open_session(era: Era = "2025-11-25", profile: str | None = None) -> Served:
        made = Served(host, era, profile)
        made.open()
        sessions.append(made)
        return made

    yield open_session
    for made in sessions:
        made.close()


@pytest.fixture
def wakes(host: McpHost, monkeypatch: pytest.MonkeyPatch) -> list[object]:
    """What other threads asked of the SDK's loop."""
    asked: list[object] = []
    wake = host.loop.call_soon_threadsafe

    def counted(callback: Callable[..., object], *arguments: object, **named: object) -> object:
        asked.append(callback)
        return wake(callback, *arguments, **named)  # type: ignore[arg-type]

    monkeypatch.setattr(host.loop, "call_soon_threadsafe", counted)
    return asked


@pytest.mark.parametrize("era", HANDSHAKES)
def test_a_plain_call_after_the_handshake_wakes_no_event_loop(
    opened: Callable[..., Served], wakes: list[object], era: Era
) -> None:
    session = opened(era)
    session.request("ready", "ping", {})  # whatever the handshake left is done
    assert session.answer()["id"] == "ready"
    wakes.clear()
    session.call("a", {"query": "x"})
    assert '"arguments":{"query":"x"}' in only_text(session.result())
    assert not wakes


def test_a_call_of_the_newer_protocol_is_the_sdks(opened: Callable[..., Served], wakes: list[object]) -> None:
    session = opened("2026-07-28")
    wakes.clear()
    session.call("a", {})
    assert session.result()["resultType"] == "complete"
    assert wakes


@pytest.mark.parametrize("era", HANDSHAKES)
@pytest.mark.parametrize("act", ["echo", "refuse", "defect", "revoked", "broken", "hidden", "stopping", "no arguments"])
def test_a_plain_call_is_answered_as_the_sdk_answers_it(opened: Callable[..., Served], era: Era, act: str) -> None:
    session = opened(era, "read" if act == "hidden" else None)
    if act == "stopping":
        session.session.stop_accepting()
    arguments = None if act == "no arguments" else {"act": act}
    answers = []
    for plain in (True, False):
        session.session._greeted = plain
        session.request("same", "tools/call", {"name": "knowledge_remember", "arguments": arguments})
        answer = session.answer()
        text = re.sub(r'"deadlineMs":\d+', "", only_text(mapping(answer["result"])))
        answers.append({**answer, "result": {**mapping(answer["result"]), "content": text}})
    assert answers[0] == answers[1]
    assert list(answers[0]) == list(answers[1])


def test_what_only_the_sdk_understands_is_left_to_it() -> None:
    plain: JsonObject = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": "x", "arguments": {}}}
    assert PlainCall.of(1, plain) == PlainCall(1, "x", {}, None)
    told: JsonObject = {"name": "x", "_meta": {"progressToken": 3, "claudecode/toolUseId": "y"}}
    assert PlainCall.of(1, {**plain, "params": told}) == PlainCall(1, "x", {}, 3)
    others: list[JsonObject] = [
        {**plain, "method": "tools/list"},
        {**plain, "jsonrpc": "1.0"},
        {**plain, "more": 1},
        {**plain, "params": None},
        {**plain, "params": {"arguments": {}}},
        {**plain, "params": {"name": 1}},
        {**plain, "params": {"name": "x", "arguments": []}},
        {**plain, "params": {"name": "x", "task": {}}},
        {**plain, "params": {"name": "x", "_meta": None}},
        {**plain, "params": {"name": "x", "_meta": {"progressToken": True}}},
        {**plain, "params": {"name": "x", "_meta": {"progressToken": None}}},
        {**plain, "params": {"name": "x", "_meta": {"io.modelcontextprotocol/protocolVersion": "2026-07-28"}}},
    ]
    for other in others:
        assert PlainCall.of(1, other) is None, other


@pytest.mark.parametrize(("called", "withdrawn"), [(7, "7"), ("7", 7), ("a", "a"), (7, 7)])
def test_a_withdrawn_call_is_cancelled_and_never_answered(
    opened: Callable[..., Served], bridge: Bridge, called: str | int, withdrawn: str | int
) -> None:
    session = opened()
    session.call(called, {"act": "hold"})
    pending = bridge.wait_held()
    pending.cancel_refused = True  # a write that was accepted ends with its own answer
    ended = session.session.calls.wait_idle
    message: JsonObject = {"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": withdrawn}}
    session.send(orjson.dumps(message))
    assert ended(PATIENCE)
    assert pending.call.cancellation.requested
    pending.settle({"accepted": True})
    session.call("next", {})
    assert session.answer()["id"] == "next"


def test_one_timer_tells_of_every_long_call() -> None:
    """Its loop is woken by the first call alone, and left alone once there is none."""
    loop, lines = _Loop(), _Lines()
    heart = Heart(loop, lambda: loop.now)
    first = heart.begin("a", lines)
    loop.now += 2.0
    second = heart.begin(2, lines)
    assert loop.woken == 1
    assert loop.run() == PROGRESS_SECONDS
    assert loop.run() == PROGRESS_SECONDS + 2.0
    heart.end(first)
    loop.run()
    loop.run()
    assert [(told["progressToken"], told["progress"]) for told in lines.params] == [("a", 1.0), (2, 1.0), (2, 2.0)]
    heart.end(second)
    loop.run()
    assert not loop.later
    heart.begin("b", lines)
    assert loop.woken == 2


class _Loop:
    """The event loop of a heart, run by hand."""

    def __init__(self) -> None:
        self.now = 0.0
        self.woken = 0
        self.later: list[tuple[float, Callable[[], object]]] = []

    def call_soon_threadsafe(self, callback: Callable[[], object]) -> None:
        self.woken += 1
        callback()

    def call_later(self, delay: float, callback: Callable[[], object]) -> None:
        self.later.append((self.now + delay, callback))

    def run(self) -> float:
        """Run what comes next; the time that it is then."""
        self.now, callback = self.later.pop(0)
        callback()
        return self.now


class _Lines:
    def __init__(self) -> None:
        self.params: list[JsonObject] = []

    def put(self, line: bytes) -> None:
        self.params.append(dict(mapping(orjson.loads(line)["params"])))


def test_no_progress_is_told_once_the_answer_is_there(
    opened: Callable[..., Served], bridge: Bridge, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(mcp_calls, "PROGRESS_SECONDS", 0.001)
    session = opened()
    session.call("a", {"act": "hold"}, _meta={"progressToken": "t"})
    pending = bridge.wait_held()
    assert session.answer()["method"] == "notifications/progress"
    pending.settle({})
    while "method" in (answer := session.answer()):
        pass
    assert answer["id"] == "a"
    for number in range(20):
        session.call(number, {})
        assert session.answer()["id"] == number

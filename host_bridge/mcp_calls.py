"""Plain tool calls of an MCP session that is past its handshake: run as the host protocol runs its own.

The SDK knows nothing that such a call needs, and its loop is a thread more to wake twice. So a call that is nothing
but a name and arguments (and perhaps a progress token) is submitted by the session's reading thread, and its answer
leaves by the session's outbox under the read lease. Whatever else a message says is the SDK's to judge.

Source: HOSTS.md sections 0 and 1; decisions.md sections 6 and 7.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Final, Protocol

from host_bridge import jsonrpc
from host_bridge.jsonrpc import RequestId
from host_bridge.rpc import IdInUse, OpenCalls
from host_bridge.transport import Outbox, PendingAnswer
from messages.audience import Audience
from messages.envelope import Call, Deadline
from messages.errors import Busy, InternalError, KnowledgeError
from messages.json_types import JsonObject, JsonValue
from messages.vocabulary import DEADLINE_DEFAULT_MS

PROGRESS_SECONDS: Final = 5.0
_OF_A_REQUEST: Final = {"jsonrpc", "id", "method", "params"}
_OF_A_CALL: Final = {"name", "arguments", "_meta"}
_OF_THE_PROTOCOL: Final = "io.modelcontextprotocol/"
_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class PlainCall:
    """A ``tools/call`` that says nothing but what is to be called, and where progress is to be told."""

    id: RequestId
    tool: str
    arguments: JsonObject
    progress_token: RequestId | None

    @classmethod
    def of(cls, request_id: RequestId, message: JsonObject) -> PlainCall | None:
        """The call that a message is; ``None`` where it is another one, or says more than we can judge."""
        params = message.get("params")
        if message.get("method") != "tools/call" or message.get("jsonrpc") != "2.0" or message.keys() - _OF_A_REQUEST:
            return None
        if not isinstance(params, Mapping) or params.keys() - _OF_A_CALL:
            return None
        name, arguments, meta = params.get("name"), params.get("arguments"), params.get("_meta", {})
        if not isinstance(name, str) or not isinstance(meta, Mapping):
            return None
        if arguments is not None and not isinstance(arguments, Mapping):
            return None
        token = meta.get("progressToken")
        if "progressToken" in meta and (isinstance(token, bool) or not isinstance(token, str | int)):
            return None
        if any(key.startswith(_OF_THE_PROTOCOL) for key in meta):
            return None
        return cls(request_id, name, dict(arguments or {}), token if isinstance(token, str | int) else None)


@dataclass(slots=True)
class _Running:
    """A call that was submitted; ``withdrawn`` once its caller wants no answer of it."""

    withdrawn: bool = False


class PlainCalls:
    """The plain calls of one session. ``run`` and ``withdraw`` in the session's reading thread."""

    def __init__(
        self,
        submit: Callable[[Call], PendingAnswer],
        outbox: Outbox,
        calls: OpenCalls,
        audience: Audience,
        heart: Heart,
    ) -> None:
        self._submit = submit
        self._outbox = outbox
        self._calls = calls
        self._audience = audience
        self._heart = heart
        self._running: dict[RequestId, _Running] = {}
        self._lock = threading.Lock()

    def run(self, plain: PlainCall, refusal: KnowledgeError | None) -> None:
        """Submit the call and see to its one answer, which is the ``refusal`` where there is one. Never raises."""
        call = Call(plain.tool, plain.arguments, self._audience, Deadline.after(DEADLINE_DEFAULT_MS / 1000))
        try:
            self._calls.open(plain.id, call.cancellation)
        except IdInUse:
            self._outbox.put(IdInUse.LINE)
            return
        except Busy as error:
            self._outbox.put(jsonrpc.refusal_line(plain.id, error))
            return

        def render(result: JsonObject) -> bytes:
            self._calls.settle(plain.id)
            return jsonrpc.result_line(plain.id, success(result))

        def refuse(error: KnowledgeError) -> bytes:
            self._calls.settle(plain.id)
            return jsonrpc.result_line(plain.id, failure(error))

        if refusal is not None:
            self._outbox.put(refuse(refusal))
            return
        try:
            pending = self._submit(call)
        except Exception:  # noqa: BLE001 - the bridge promises not to raise; the client still gets its one answer
            _log.exception("an MCP call could not be submitted", extra={"correlation": call.correlation_id})
            self._outbox.put(refuse(InternalError("The runtime failed on this call; its log has the details.")))
            return
        running = _Running()
        self._running[plain.id] = running
        beats = None if plain.progress_token is None else self._heart.begin(plain.progress_token, self._outbox)

        def answer(ready: PendingAnswer) -> None:
            if beats is not None:
                self._heart.end(beats)
            with self._lock:
                if running.withdrawn:
                    return
                del self._running[plain.id]
            self._outbox.put_answer(ready, render, refuse)

        self._calls.attach(plain.id, pending)
        pending.add_done_callback(answer)

    def withdraw(self, request_id: JsonValue) -> bool:
        """Cancel a call whose caller wants no answer any more, as MCP has it; whether it was one of these.

        ``"7"`` means the call 7 where there is no other, as it does to the SDK.
        """
        with self._lock:
            for known in _meant_by(request_id):
                running = self._running.pop(known, None)
                if running is not None:
                    running.withdrawn = True
                    break
            else:
                return False
        self._calls.cancel(known)
        self._calls.settle(known)
        return True


def _meant_by(request_id: JsonValue) -> list[RequestId]:
    if isinstance(request_id, bool) or not isinstance(request_id, str | int):
        return []
    found: list[RequestId] = [request_id]
    if isinstance(request_id, int):
        found.append(str(request_id))
    elif request_id.isascii() and request_id.isdigit():
        found.append(int(request_id))
    return found


class Lines(Protocol):
    """Where notifications go."""

    def put(self, line: bytes) -> None: ...


class Loop(Protocol):
    """What a heart needs of an event loop."""

    def call_soon_threadsafe(self, callback: Callable[[], object], /) -> object: ...

    def call_later(self, delay: float, callback: Callable[[], object], /) -> object: ...


@dataclass(slots=True, eq=False)
class Beats:
    """One call whose caller hears every few seconds that we are alive."""

    token: RequestId
    outbox: Lines
    due: float
    told: int = 0


class Heart:
    """Tells of long calls that they are alive, by one timer of one event loop for all of them. Any thread.

    The loop is woken for a call only where no timer runs: once in ``PROGRESS_SECONDS``, however many calls there are.
    """

    def __init__(self, loop: Loop, clock: Callable[[], float] = time.monotonic) -> None:
        self._loop = loop
        self._clock = clock
        self._lock = threading.Lock()
        self._open: set[Beats] = set()
        self._armed = False

    def begin(self, token: RequestId, outbox: Lines) -> Beats:
        """From now on progress is told under ``token`` until :meth:`end`."""
        beats = Beats(token, outbox, self._clock() + PROGRESS_SECONDS)
        with self._lock:
            self._open.add(beats)
            arm, self._armed = not self._armed, True
        if arm:
            with suppress(RuntimeError):  # the loop has ended, and every session with it
                self._loop.call_soon_threadsafe(self._rearm)
        return beats

    def end(self, beats: Beats) -> None:
        """When this returns nothing more is told."""
        with self._lock:
            self._open.discard(beats)

    def _rearm(self) -> None:
        """On the loop: tell what is due, and come back for the next, if there is any."""
        now = self._clock()
        with self._lock:
            for beats in self._open:
                if beats.due <= now:
                    beats.told += 1
                    beats.due = now + PROGRESS_SECONDS
                    params: JsonObject = {"progressToken": beats.token, "progress": float(beats.told)}
                    beats.outbox.put(jsonrpc.notification_line("notifications/progress", params))
            next_due = min((beats.due for beats in self._open), default=None)
            self._armed = next_due is not None
        if next_due is not None:
            self._loop.call_later(max(next_due - now, 0.0), self._rearm)


def success(result: JsonObject) -> JsonObject:
    """The parts of an MCP result that holds a tool's answer."""
    return {"content": [_text(result)], "isError": False}


def failure(error: KnowledgeError) -> JsonObject:
    """The parts of an MCP result that holds a typed refusal."""
    facts = error.to_data()
    return {"content": [_text({"code": facts.pop("code"), "message": error.message, **facts})], "isError": True}


def _text(value: JsonObject) -> JsonObject:
    return {"type": "text", "text": jsonrpc.dump(value).decode()}

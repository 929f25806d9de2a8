"""One peer of the host protocol ``knowledge-host/1``: requests run side by side, answers leave as they finish.

The peer knows no transport: lines come in through :meth:`RpcPeer.receive`, which never blocks on a call, and go out
through an :class:`~host_bridge.transport.Outbox`. Every request gets exactly one answer; a line that is no request
gets an error with the id it can be matched to, or null. What may be said stands in ``messages.host``.

Source: decisions.md section 7.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final, TypeAlias, TypeVar, assert_never

from host_bridge import jsonrpc
from host_bridge.dispatch import NoSuchMethod, PreparedCall, Service, Subscription, answer_at_once, prepare
from host_bridge.jsonrpc import Malformed, Notification, Request, RequestId, Response
from host_bridge.transport import Outbox, Oversize, PendingAnswer
from messages.audience import Audience
from messages.envelope import Cancellation
from messages.errors import Busy, InternalError, KnowledgeError, LimitExceeded, Stopping
from messages.host import INVALID_REQUEST, CancelParams, method_not_found, parse_params
from messages.json_types import JsonObject, JsonValue
from messages.operator import OPERATOR_METHODS, SUBSCRIBE, Operator, SubscribeCall, parse_subscription
from messages.provider import PROVIDER_METHODS
from messages.system_memory import STEWARD_METHODS, SYSTEM_MEMORY_METHODS, parse_steward_call

OPEN_CALLS_MAX = 256
SUBSCRIPTIONS_MAX = 16
_log = logging.getLogger(__name__)

Method: TypeAlias = Callable[[JsonObject], JsonValue]
R = TypeVar("R")
WAITED_FOR: Final = frozenset(("tools.call", *PROVIDER_METHODS, *SYSTEM_MEMORY_METHODS, *OPERATOR_METHODS))
"""The methods that a call of the runtime answers."""


class OpenCalls:
    """The calls of one connection between their request and their answer. Any thread."""

    def __init__(self) -> None:
        self._calls: dict[RequestId, _OpenCall] = {}
        self._changed = threading.Condition()

    def __len__(self) -> int:
        with self._changed:
            return len(self._calls)

    def open(self, request_id: RequestId, cancellation: Cancellation) -> None:
        """Register a call before its submission; raises :class:`Busy` at the limit, :class:`IdInUse` for an open id."""
        with self._changed:
            if request_id in self._calls:
                raise IdInUse
            if len(self._calls) >= OPEN_CALLS_MAX:
                raise Busy(f"This connection has {OPEN_CALLS_MAX} open calls; wait for one of them.")
            self._calls[request_id] = _OpenCall(cancellation)

    def attach(self, request_id: RequestId, pending: PendingAnswer) -> None:
        """The bridge took the call; a cancellation that came first is passed on now."""
        with self._changed:
            call = self._calls.get(request_id)
            if call is not None:
                call.pending = pending
        if call is not None and call.cancellation.requested:
            pending.cancel()

    def settle(self, request_id: RequestId) -> None:
        """The call was answered, or needs no answer any more."""
        with self._changed:
            self._calls.pop(request_id, None)
            self._changed.notify_all()

    def cancel(self, request_id: RequestId) -> None:
        """Cancel one call; an id that is not open is no error, since its answer may be on its way."""
        with self._changed:
            call = self._calls.get(request_id)
        if call is not None:
            call.cancel()

    def cancel_all(self) -> None:
        """Nobody will read the answers."""
        with self._changed:
            calls = list(self._calls.values())
        for call in calls:
            call.cancel()

    def wait_idle(self, seconds: float) -> bool:
        """Whether every open call was answered within ``seconds``."""
        until = time.monotonic() + seconds
        with self._changed:
            while self._calls:
                left = until - time.monotonic()
                if left <= 0:
                    return False
                self._changed.wait(left)
        return True


class IdInUse(Exception):
    """Two open calls cannot share an id."""

    LINE = jsonrpc.error_line(None, INVALID_REQUEST, "This id belongs to a call that is still open.")


@dataclass(slots=True)
class _OpenCall:
    cancellation: Cancellation
    pending: PendingAnswer | None = None

    def cancel(self) -> None:
        self.cancellation.cancel()
        if self.pending is not None:
            self.pending.cancel()


class RpcPeer:
    """One connected host. ``receive`` runs in the reader's thread; everything else may come from any thread."""

    def __init__(
        self,
        service: Service,
        outbox: Outbox,
        *,
        caller: Audience | None = None,
        operator: Operator | None = None,
        methods: Mapping[str, Method] | None = None,
        stewards: bool = False,
        on_shutdown: Callable[[], None] | None = None,
        after_shutdown: Callable[[], None] | None = None,
    ) -> None:
        """``caller`` is the audience of calls that carry none, ``operator`` who asks where a request names nobody;
        ``methods`` are answered in the reader's thread. ``stewards``: whether observers and stewards of system memory
        may ask here, which is so at the owner's own socket only.

        ``on_shutdown`` drains whatever this peer's ``shutdown`` ends, before the answer, in a thread of its own;
        ``after_shutdown`` runs there once the answer is in the outbox.
        """
        self.calls = OpenCalls()
        self.shut_down = threading.Event()
        self._service = service
        self._outbox = outbox
        self._caller = caller
        self._operator = operator
        self._stewards = stewards
        self._subscriptions: list[Subscription] = []
        self._methods = dict(methods or {})
        self._on_shutdown = on_shutdown
        self._after_shutdown = after_shutdown
        self._stopping = False

    def receive(self, line: bytes | Oversize) -> None:
        """Take one line; never raises."""
        match message := read_line(line, jsonrpc.parse_message, self._outbox):
            case None:
                pass
            case Request():
                self._answer(message)
            case Notification():
                if message.method == "$/cancel":
                    self._outcome(lambda: self._host_method("$/cancel", message.params))
            case Response():
                pass
            case _:
                assert_never(message)

    def stop_accepting(self) -> None:
        """From now on calls are refused with ``stopping``; open ones go on."""
        self._stopping = True

    def end_subscriptions(self) -> None:
        """The connection is over: nothing is told any more."""
        for subscription in self._subscriptions:
            subscription.end()
        self._subscriptions.clear()

    def _answer(self, request: Request) -> None:
        if request.method == SUBSCRIBE:
            self._call(request, self._prepared_subscription)
            return
        if request.method in WAITED_FOR:
            self._call(request, self._prepared)
            return
        if self._stewards and request.method in STEWARD_METHODS:
            self._call(request, self._prepared_for_stewards)
            return
        if request.method == "shutdown":
            self._shut_down(request)
            return
        method = self._methods.get(request.method)
        outcome = self._outcome(
            lambda: self._host_method(request.method, request.params) if method is None else method(request.params)
        )
        if isinstance(outcome, NoSuchMethod):
            self._outbox.put(jsonrpc.dump({"jsonrpc": "2.0", "id": request.id, "error": method_not_found()}))
        elif isinstance(outcome, KnowledgeError):
            self._outbox.put(jsonrpc.refusal_line(request.id, outcome))
        else:
            self._outbox.put(jsonrpc.result_line(request.id, outcome))

    def _host_method(self, method: str, params: JsonObject) -> JsonValue:
        """The methods that are answered at once; ``NoSuchMethod`` for one that does not exist."""
        if method == "$/cancel":
            parsed = parse_params(method, params)
            assert isinstance(parsed, CancelParams)
            self.calls.cancel(parsed.id)
            return {}
        return answer_at_once(self._service, method, params)

    def _prepared(self, request: Request) -> PreparedCall:
        prepared = prepare(
            self._service, request.method, request.params, caller=self._caller, operator=self._operator
        )
        assert prepared is not None
        return prepared

    def _prepared_for_stewards(self, request: Request) -> PreparedCall:
        call = parse_steward_call(request.method, request.params, door="socket")
        return PreparedCall(call.cancellation, call.correlation_id, lambda: self._service.attend(call))

    def _prepared_subscription(self, request: Request) -> PreparedCall:
        if len(self._subscriptions) >= SUBSCRIPTIONS_MAX:
            raise Busy(f"This connection has {SUBSCRIPTIONS_MAX} subscriptions; use one of them.")
        call = parse_subscription(request.params, caller=self._caller, peer=self._operator)
        return PreparedCall(call.cancellation, call.correlation_id, lambda: self._subscribe(call))

    def _subscribe(self, call: SubscribeCall) -> PendingAnswer:
        """From now on ``event`` notifications leave between the answers, each under its own read lease."""
        subscription = self._service.subscribe(call, self._tell)
        self._subscriptions.append(subscription)
        return subscription

    def _tell(self, event: PendingAnswer) -> None:
        self._outbox.put_answer(event, lambda told: jsonrpc.notification_line("event", told), _unheard)

    def _call(self, request: Request, prepare_it: Callable[[Request], PreparedCall]) -> None:
        try:
            call = prepare_it(request)
            if self._stopping:
                raise Stopping("The runtime is shutting down; the call did not run.")
            self.calls.open(request.id, call.cancellation)
        except KnowledgeError as error:
            self._outbox.put(jsonrpc.refusal_line(request.id, error))
            return
        except IdInUse:
            # Answered without the id: with it, the answer would be taken for the first call's.
            self._outbox.put(IdInUse.LINE)
            return

        def render(result: JsonObject) -> bytes:
            line = jsonrpc.result_line(request.id, result)
            self.calls.settle(request.id)
            return line

        def refuse(error: KnowledgeError) -> bytes:
            self.calls.settle(request.id)
            return jsonrpc.refusal_line(request.id, error)

        try:
            pending = call.submit()
        except Exception:  # noqa: BLE001 - the bridge promises not to raise; the caller still gets its one answer
            _log.exception("a call could not be submitted", extra={"correlation": call.correlation_id})
            self._outbox.put(refuse(InternalError("The call could not be submitted; the log has the details.")))
            return
        self.calls.attach(request.id, pending)
        pending.add_done_callback(lambda ready: self._outbox.put_answer(ready, render, refuse))

    def _outcome(self, method: Callable[[], JsonValue]) -> JsonValue | KnowledgeError | NoSuchMethod:
        try:
            return method()
        except (KnowledgeError, NoSuchMethod) as error:
            return error
        except Exception:  # noqa: BLE001 - a defect becomes a typed answer; its text stays in the log
            _log.exception("a host method failed")
            return InternalError("The runtime failed on this request; its log has the details.")

    def _shut_down(self, request: Request) -> None:
        self.stop_accepting()

        def drain() -> None:
            if self._on_shutdown is not None:
                self._on_shutdown()
            self._outbox.put(jsonrpc.result_line(request.id, {}))
            self.shut_down.set()
            if self._after_shutdown is not None:
                self._after_shutdown()

        threading.Thread(target=drain, name="shutdown", daemon=True).start()


def _unheard(error: KnowledgeError) -> bytes:
    """An event that could not be told is not answered for: nobody asked for it."""
    return b""


def read_line(line: bytes | Oversize, parse: Callable[[bytes], R], outbox: Outbox) -> R | None:
    """What ``parse`` makes of a line; ``None`` for an empty one, and for one that was answered here as unreadable.

    A line that was dropped unread is answered under a null id: nobody knows its own.
    """
    if isinstance(line, Oversize):
        error = LimitExceeded(f"A line is at most {line.limit} bytes; this one was dropped.", limit=line.limit)
        outbox.put(jsonrpc.refusal_line(None, error))
        return None
    if not line.strip():
        return None
    try:
        return parse(line)
    except Malformed as malformed:
        outbox.put(malformed.to_line())
        return None

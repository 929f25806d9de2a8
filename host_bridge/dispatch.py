"""What a request of the host protocol means, whichever transport brought it: socket, stdio or HTTP.

A door keeps the framing, the open calls and the way out; here a method becomes a prepared call, or an answer at once.

Source: decisions.md section 7.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Protocol, assert_never

import host_bridge
from host_bridge import jsonrpc
from host_bridge.transport import PendingAnswer
from messages.audience import Caller, parse_caller
from messages.envelope import Call, Cancellation, Deadline
from messages.errors import InvalidArgument
from messages.host import (
    CancelParams,
    InitializeParams,
    ShutdownParams,
    ToolsCallParams,
    ToolsListParams,
    initialize_result,
    parse_params,
)
from messages.json_types import JsonObject, JsonValue
from messages.operator import OPERATOR_METHODS, Operator, OperatorCall, SubscribeCall, parse_operator_call
from messages.provider import PROVIDER_METHODS, ProviderCall, parse_provider_call
from messages.schemas import ToolFormat
from messages.system_memory import (
    SYSTEM_MEMORY_METHODS,
    StewardCall,
    SystemMemoryCall,
    parse_system_memory_call,
)


class Service(Protocol):
    """What a door needs of the bridge."""

    def submit(self, call: Call) -> PendingAnswer: ...

    def provide(self, call: ProviderCall) -> PendingAnswer: ...

    def remind(self, call: SystemMemoryCall) -> PendingAnswer: ...

    def attend(self, call: StewardCall) -> PendingAnswer: ...

    def operate(self, call: OperatorCall) -> PendingAnswer: ...

    def subscribe(self, call: SubscribeCall, ready: Callable[[PendingAnswer], None]) -> Subscription: ...

    def tools(self, format: ToolFormat, profile: str | None = None) -> list[JsonObject]: ...

    def health(self) -> JsonObject: ...

    def busy(self) -> bool: ...


class Subscription(PendingAnswer, Protocol):
    """What a door holds of somebody who listens; the answer to its request until that is given."""

    def end(self) -> None:
        """Tell nothing more; idempotent."""

    def stands(self) -> bool:
        """Whether it goes on: the subscriber may still hear."""


class NoSuchMethod(Exception):
    """-32601: the protocol has no such method."""


@dataclass(frozen=True, slots=True)
class PreparedCall:
    """A valid call that was not submitted yet. ``submit`` promises not to raise."""

    cancellation: Cancellation
    correlation_id: str
    submit: Callable[[], PendingAnswer]


def prepare(
    service: Service,
    method: str,
    params: JsonObject,
    *,
    caller: Caller | None,
    operator: Operator | None,
    door: str | None = None,
) -> PreparedCall | None:
    """The call that a request asks for; ``None`` for a method that no call answers.

    ``caller`` is the audience of calls that carry none, ``operator`` who asks where a request names nobody, ``door``
    what the audit says of where it came in. What stewards ask is no call of this protocol. Raises
    :class:`InvalidArgument` and its like. Never blocks; any thread.
    """
    if method == "tools.call":
        call = tool_call(params, caller)
        return PreparedCall(call.cancellation, call.correlation_id, lambda: service.submit(call))
    if method in PROVIDER_METHODS:
        asked = parse_provider_call(method, params, caller=caller)
        return PreparedCall(asked.cancellation, asked.correlation_id, lambda: service.provide(asked))
    if method in SYSTEM_MEMORY_METHODS:
        reminded = parse_system_memory_call(method, params, caller=caller)
        return PreparedCall(reminded.cancellation, reminded.correlation_id, lambda: service.remind(reminded))
    if method in OPERATOR_METHODS:
        request = parse_operator_call(method, params, peer=operator)
        if door is not None:
            request = replace(request, door=door)
        return PreparedCall(request.cancellation, request.correlation_id, lambda: service.operate(request))
    return None


def answer_at_once(service: Service, method: str, params: JsonObject) -> JsonValue:
    """The answer to a method that asks nobody. Raises :class:`NoSuchMethod`, :class:`InvalidArgument` and its like."""
    try:
        parsed = parse_params(method, params)
    except KeyError:
        raise NoSuchMethod from None
    match parsed:
        case InitializeParams():
            return initialize_result(server_version=host_bridge.__version__)
        case ToolsListParams():
            return {"tools": service.tools(parsed.format, parsed.profile)}
        case CancelParams() | ToolsCallParams() | ShutdownParams():
            raise InvalidArgument("This method is a request, not a notification.", field="id")
        case _:
            assert_never(parsed)


def tool_call(params: JsonObject, caller: Caller | None) -> Call:
    """The call in the parameters of ``tools.call``; ``caller`` calls where they name nobody."""
    parsed = parse_params("tools.call", params)
    assert isinstance(parsed, ToolsCallParams)
    arguments = jsonrpc.unwrapped({} if parsed.arguments is None else parsed.arguments)
    if not isinstance(arguments, Mapping):
        raise InvalidArgument("`arguments` must be an object.", field="arguments", allowed="object")
    audience = caller if parsed.audience is None else parse_caller(parsed.audience)
    deadline = Deadline.after(parsed.deadline_ms / 1000)
    return Call(parsed.tool, dict(arguments), audience, deadline, flush_id=parsed.flush_id)


__all__ = ["NoSuchMethod", "PreparedCall", "Service", "Subscription", "answer_at_once", "prepare", "tool_call"]

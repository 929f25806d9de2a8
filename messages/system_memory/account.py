"""``systemMemory.*``: what an account does with its own rows, and what a turn is reminded of. Pure; any thread.

No request names an account or a field of the system bucket: the account is the audience's, and system rows are written
on the command line and in Python only.

Source: system-memory-contract.md sections 3 and 5; decisions.md section 7.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Annotated, Any, ClassVar, Final, TypeAlias

from messages.arguments import Arguments, validate
from messages.audience import (
    SESSION_KEY_MAX_CHARS,
    Audience,
    Caller,
    Conversation,
    delegation_chain,
    originating,
    parse_caller,
)
from messages.envelope import Cancellation, Deadline, new_correlation_id
from messages.errors import Denied
from messages.json_types import JsonObject
from messages.pieces import Bool, Integer, Items, RawJson, Text
from messages.tools import ToolRequest
from messages.vocabulary import DEADLINE_DEFAULT_MS, DEADLINE_MAX_MS, REQUEST_MAX_BYTES

LIST_MAX: Final = 200

_Raw: TypeAlias = Annotated[Any, RawJson()]


class CreateMemoryRequest(ToolRequest):
    """Write a row of the account: ``bucket`` is ``user`` or ``learned``, ``supersedes`` a live row of its own."""

    tool: ClassVar[str] = "systemMemory.create"
    body: _Raw = None
    bucket: _Raw = None
    source_ref: _Raw = None
    supersedes: _Raw = None


class ListMemoriesRequest(ToolRequest):
    """The account's rows, the newest first; superseded ones only where asked for."""

    tool: ClassVar[str] = "systemMemory.list"
    buckets: Annotated[tuple[Annotated[str, Text(max_units=20)], ...], Items(1, 3)] | None = None
    include_superseded: Bool = False
    limit: Annotated[int, Integer(1, LIST_MAX)] = LIST_MAX


class FetchMemoryRequest(ToolRequest):
    """One row of the account, live or not."""

    tool: ClassVar[str] = "systemMemory.fetch"
    id: _Raw = None


class DeleteMemoryRequest(ToolRequest):
    """Delete one row of the account, for good."""

    tool: ClassVar[str] = "systemMemory.delete"
    id: _Raw = None


class RecallMemoriesRequest(ToolRequest):
    """What a turn is reminded of. ``session_key`` is the turn's session, by which sessions are counted."""

    tool: ClassVar[str] = "systemMemory.recall"
    query: Annotated[str, Text(max_bytes=REQUEST_MAX_BYTES, may_be_blank=True)] = ""
    session_key: Annotated[str, Text(max_units=SESSION_KEY_MAX_CHARS)] | None = None


AccountRequest: TypeAlias = (
    CreateMemoryRequest | ListMemoriesRequest | FetchMemoryRequest | DeleteMemoryRequest | RecallMemoriesRequest
)

SYSTEM_MEMORY_METHODS: Final[Mapping[str, type[AccountRequest]]] = MappingProxyType(
    {
        model.tool: model
        for model in (
            CreateMemoryRequest,
            ListMemoriesRequest,
            FetchMemoryRequest,
            DeleteMemoryRequest,
            RecallMemoriesRequest,
        )
    }
)
"""Method -> its parameters, without those that all of them have."""


@dataclass(frozen=True, slots=True)
class SystemMemoryCall:
    """One call of an account on its way; the same envelope as a tool call's."""

    request: AccountRequest
    audience: Caller | None
    deadline: Deadline
    cancellation: Cancellation = field(default_factory=Cancellation)
    correlation_id: str = field(default_factory=new_correlation_id)

    @property
    def tool(self) -> str:
        return self.request.tool

    @property
    def writes(self) -> bool:
        return isinstance(self.request, CreateMemoryRequest | DeleteMemoryRequest)


class _Common(Arguments):
    audience: _Raw = None
    deadline_ms: Annotated[int, Integer(1, DEADLINE_MAX_MS)] = DEADLINE_DEFAULT_MS


def parse_system_memory_call(method: str, params: JsonObject, *, caller: Caller | None = None) -> SystemMemoryCall:
    """The validated call of one of :data:`SYSTEM_MEMORY_METHODS`; ``caller`` asks where it names no audience.

    Raises ``KeyError`` for another method, ``InvalidArgument`` and its like otherwise.
    """
    model = SYSTEM_MEMORY_METHODS[method]
    common = validate(_Common, {key: value for key, value in params.items() if key in _COMMON})
    request = validate(model, {key: value for key, value in params.items() if key not in _COMMON})
    audience = caller if common.audience is None else parse_caller(common.audience)
    return SystemMemoryCall(request, audience, Deadline.after(common.deadline_ms / 1000))


def account_of(audience: Audience) -> str:
    """The account of an owner-private audience: its own, else its agent's name; of a delegated one, its root's.

    Raises ``Denied`` where a conversation has any part in it.
    """
    if any(isinstance(link, Conversation) for link in delegation_chain(audience)):
        raise Denied("Conversations have no account in system memory; only an agent's owner has.")
    origin = originating(audience)
    return origin.agent if origin.account is None else origin.account


_COMMON: Final = frozenset(("audience", "deadlineMs"))

"""The methods of the memory provider, and one call of them on its way. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Annotated, Any, Final, TypeAlias

from messages.arguments import Arguments, validate
from messages.audience import Caller, parse_caller
from messages.envelope import Cancellation, Deadline, new_correlation_id
from messages.json_types import JsonObject
from messages.pieces import Integer, RawJson
from messages.provider.flush import FlushPlanRequest
from messages.provider.gate import RecallGateRequest
from messages.provider.prompt import PromptBuildRequest
from messages.provider.reads import (
    MemoryCandidatesRequest,
    MemoryReadRequest,
    MemorySearchRequest,
    MemoryStatusRequest,
)
from messages.vocabulary import DEADLINE_DEFAULT_MS, DEADLINE_MAX_MS

ProviderRequest: TypeAlias = (
    MemoryStatusRequest
    | MemorySearchRequest
    | MemoryReadRequest
    | MemoryCandidatesRequest
    | FlushPlanRequest
    | PromptBuildRequest
    | RecallGateRequest
)

PROVIDER_METHODS: Final[Mapping[str, type[ProviderRequest]]] = MappingProxyType(
    {
        model.tool: model
        for model in (
            MemorySearchRequest,
            MemoryReadRequest,
            MemoryStatusRequest,
            MemoryCandidatesRequest,
            PromptBuildRequest,
            FlushPlanRequest,
            RecallGateRequest,
        )
    }
)
"""Method -> its parameters, without those that all of them have."""


@dataclass(frozen=True, slots=True)
class ProviderCall:
    """One call of the memory provider; the same envelope as a tool call's."""

    request: ProviderRequest
    audience: Caller | None
    deadline: Deadline
    cancellation: Cancellation = field(default_factory=Cancellation)
    correlation_id: str = field(default_factory=new_correlation_id)

    @property
    def tool(self) -> str:
        return self.request.tool


class _Common(Arguments):
    audience: Annotated[Any, RawJson()] = None
    deadline_ms: Annotated[int, Integer(1, DEADLINE_MAX_MS)] = DEADLINE_DEFAULT_MS


def parse_provider_call(method: str, params: JsonObject, *, caller: Caller | None = None) -> ProviderCall:
    """The validated call of one of :data:`PROVIDER_METHODS`; ``caller`` asks where the request names no audience.

    Raises ``KeyError`` for another method, :class:`InvalidArgument` and its like otherwise.
    """
    model = PROVIDER_METHODS[method]
    common = validate(_Common, {key: value for key, value in params.items() if key in _COMMON})
    request = validate(model, {key: value for key, value in params.items() if key not in _COMMON})
    audience = caller if common.audience is None else parse_caller(common.audience)
    return ProviderCall(request, audience, Deadline.after(common.deadline_ms / 1000))


_COMMON: Final = frozenset(("audience", "deadlineMs"))

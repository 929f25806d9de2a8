"""``steward.*``: what observers and stewards ask on their own machine, over the owner's socket or in Python.

No tool and no HTTP route leads here. Who is a steward, the configuration says; a request names only the account for
which somebody acts. Pure; any thread.

Source: system-memory-boundary.md (Running a promotion); system-memory-contract.md sections 4, 8 and 11.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Annotated, Any, ClassVar, Final, Literal, Self, TypeAlias

from pydantic import model_validator

from messages.arguments import Arguments, validate
from messages.envelope import Cancellation, Deadline, new_correlation_id
from messages.json_types import JsonObject
from messages.pieces import Integer, RawJson, Text, refused
from messages.tools import ToolRequest
from messages.vocabulary import DEADLINE_DEFAULT_MS, DEADLINE_MAX_MS

_Raw: TypeAlias = Annotated[Any, RawJson()]
_Account: TypeAlias = Annotated[str, Text(max_units=128, one_line=True)]


class ObserveRequest(ToolRequest):
    """Write a claim of an account into the system bucket; a candidate until a steward admits it."""

    tool: ClassVar[str] = "steward.observe"
    account: _Account
    slug: _Raw = None
    body: _Raw = None
    tier: _Raw = None
    as_of: _Raw = None
    evidence_refs: _Raw = None
    entity: _Raw = None


class ChallengeRequest(ToolRequest):
    """Hold something against a claim; with evidence it suspends an admitted one."""

    tool: ClassVar[str] = "steward.challenge"
    account: _Account
    id: _Raw = None
    ground: _Raw = None
    evidence_refs: _Raw = None


class AdmitRequest(ToolRequest):
    """A steward's decision about a claim."""

    tool: ClassVar[str] = "steward.admit"
    steward: _Account
    id: _Raw = None
    verdict: _Raw = None
    ground: _Raw = None


class RefuteRequest(ToolRequest):
    """Close the challenge ``id``."""

    tool: ClassVar[str] = "steward.refute"
    steward: _Account
    id: _Raw = None
    ground: _Raw = None


class SupersedeRequest(ToolRequest):
    """Correct a claim, for its author (``account``) or a steward; the replacement is a candidate of its own."""

    tool: ClassVar[str] = "steward.supersede"
    account: _Account | None = None
    steward: _Account | None = None
    id: _Raw = None
    slug: _Raw = None
    body: _Raw = None
    tier: _Raw = None
    as_of: _Raw = None
    evidence_refs: _Raw = None
    entity: _Raw = None

    @model_validator(mode="after")
    def _somebody_acts(self) -> Self:
        if (self.account is None) == (self.steward is None):
            allowed = ["account", "steward"]
            raise refused("missing", "must be given, or steward: exactly one of them", allowed, field="account")
        return self


class PromoteRequest(ToolRequest):
    """Drain a claim into a reviewed stance of the knowledge base."""

    tool: ClassVar[str] = "steward.promote"
    steward: _Account
    id: _Raw = None
    stance: _Raw = None
    slug: _Raw = None
    evidence_refs: _Raw = None
    entity: _Raw = None
    as_of: _Raw = None


class StatusRequest(ToolRequest):
    """The derived status of a row, or how many rows there are of each status."""

    tool: ClassVar[str] = "steward.status"
    id: _Raw = None


class ReadyRequest(ToolRequest):
    """The claims that have stabilised, with the counts behind that."""

    tool: ClassVar[str] = "steward.ready"


class ShowRequest(ToolRequest):
    """A claim with its records and counters; without an id, the newest claims."""

    tool: ClassVar[str] = "steward.show"
    id: _Raw = None
    limit: Annotated[int, Integer(1, 200)] = 50


class EraseAccountRequest(ToolRequest):
    """Delete every row and record of an account, for good."""

    tool: ClassVar[str] = "steward.erase"
    account: _Account


StewardRequest: TypeAlias = (
    ObserveRequest
    | ChallengeRequest
    | AdmitRequest
    | RefuteRequest
    | SupersedeRequest
    | PromoteRequest
    | StatusRequest
    | ReadyRequest
    | ShowRequest
    | EraseAccountRequest
)

STEWARD_METHODS: Final[Mapping[str, type[StewardRequest]]] = MappingProxyType(
    {
        model.tool: model
        for model in (
            ObserveRequest,
            ChallengeRequest,
            AdmitRequest,
            RefuteRequest,
            SupersedeRequest,
            PromoteRequest,
            StatusRequest,
            ReadyRequest,
            ShowRequest,
            EraseAccountRequest,
        )
    }
)


@dataclass(frozen=True, slots=True)
class StewardCall:
    """One request from the owner's own machine; ``door`` is what the audit says of where it came in."""

    request: StewardRequest
    deadline: Deadline
    door: Literal["socket", "program"]
    cancellation: Cancellation = field(default_factory=Cancellation)
    correlation_id: str = field(default_factory=new_correlation_id)

    @property
    def tool(self) -> str:
        return self.request.tool

    @property
    def writes(self) -> bool:
        return not isinstance(self.request, StatusRequest | ReadyRequest | ShowRequest)


class _Common(Arguments):
    deadline_ms: Annotated[int, Integer(1, DEADLINE_MAX_MS)] = DEADLINE_DEFAULT_MS


def parse_steward_call(method: str, params: JsonObject, *, door: Literal["socket", "program"]) -> StewardCall:
    """The validated call of one of :data:`STEWARD_METHODS`.

    Raises ``KeyError`` for another method, ``InvalidArgument`` and its like otherwise.
    """
    model = STEWARD_METHODS[method]
    common = validate(_Common, {key: value for key, value in params.items() if key == "deadlineMs"})
    request = validate(model, {key: value for key, value in params.items() if key != "deadlineMs"})
    return StewardCall(request, Deadline.after(common.deadline_ms / 1000), door)

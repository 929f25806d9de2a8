"""What persons and operators may ask: the requests of ``operator.*``, who asks, and which scope each needs.

An operator browses and mends an agent's private partition; it never selects a conversation. Scopes contain each other:
``operator.admin`` may everything, ``operator.write`` may read. Pure.

Source: stores-and-access.md (Caller authority), decisions.md sections 6 and 7.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Annotated, Any, ClassVar, Final, Literal, TypeAlias

from pydantic import Field

from messages.access import ACCESS_METHODS, HOST_METHODS, AccessRequest
from messages.arguments import Arguments, validate
from messages.audience import AGENT_MAX_CHARS, Caller, parse_caller
from messages.envelope import Cancellation, Deadline, new_correlation_id
from messages.errors import InvalidArgument
from messages.json_types import JsonObject
from messages.pieces import Bool, Choice, Integer, Items, RawJson, Text, Uuid
from messages.tools import ToolRequest, WriteRequest
from messages.tools.operator_reads import OPERATOR_READS, OperatorRead
from messages.vocabulary import DEADLINE_DEFAULT_MS, DEADLINE_MAX_MS, DIAGNOSTICS_MAX_FINDINGS

Scope: TypeAlias = Literal["operator.read", "operator.write", "operator.admin"]
SCOPES: Final[tuple[Scope, ...]] = ("operator.read", "operator.write", "operator.admin")
"""Each contains those before it."""

ADOPT_MAX_PATHS: Final = 1_000
PATH_MAX_CHARS: Final = 4_096

_Name: TypeAlias = Annotated[str, Text(max_units=AGENT_MAX_CHARS, one_line=True)]
_Path: TypeAlias = Annotated[str, Text(max_units=PATH_MAX_CHARS)]
_Raw: TypeAlias = Annotated[Any, RawJson()]


@dataclass(frozen=True, slots=True)
class Operator:
    """Somebody who may look after stores; ``agents`` limits whose (``None``: everybody's)."""

    id: str
    scopes: frozenset[str]
    agents: tuple[str, ...] | None = None

    def may(self, scope: Scope) -> bool:
        """Whether one of the scopes contains this one."""
        return any(held in self.scopes for held in SCOPES[SCOPES.index(scope) :])

    def sees(self, *agents: str) -> bool:
        """Whether all of these agents, and at least one, are in the operator's role."""
        return self.agents is None or (bool(agents) and all(agent in self.agents for agent in agents))


LOCAL_OPERATOR: Final = Operator("local", frozenset(SCOPES))
"""A peer of the owner's socket that runs under the owner's user id."""
HOST_OPERATOR: Final = Operator("host", frozenset(SCOPES))
"""The host itself, in the methods that it may ask without naming an operator."""


class OperatorStatusRequest(ToolRequest):
    """How the store of an agent is, with what a person should know. Never creates a store."""

    tool: ClassVar[str] = "operator.status"


class OperatorDiagnosticsRequest(ToolRequest):
    """What is wrong with which file of an agent's private partition."""

    tool: ClassVar[str] = "operator.diagnostics"
    limit: Annotated[int, Integer(1, DIAGNOSTICS_MAX_FINDINGS)] = DIAGNOSTICS_MAX_FINDINGS


class AdoptNotesRequest(WriteRequest):
    """Give plain Markdown files their envelope, all of them or none. Paths are absolute or below the partition."""

    tool: ClassVar[str] = "operator.adopt"
    paths: Annotated[tuple[_Path, ...], Items(1, ADOPT_MAX_PATHS)] = Field()
    type: Annotated[str, Text(max_units=100, one_line=True)] | None = None


class AcceptDeletionsRequest(ToolRequest):
    """Record the loss of most of a partition, which was refused until a person says so."""

    tool: ClassVar[str] = "operator.acceptDeletions"


class AdoptStoreRequest(ToolRequest):
    """Take the vault as it is where it and the database disagree: a person's choice, never made by itself."""

    tool: ClassVar[str] = "operator.adoptStore"


class RelocateStoreRequest(ToolRequest):
    """Move a store's folder."""

    tool: ClassVar[str] = "operator.relocateStore"
    store: Uuid = Field()
    path: _Path = Field()


class ExportConversationRequest(ToolRequest):
    """Write what the agent's store holds of a conversation into a folder, which must not exist yet."""

    tool: ClassVar[str] = "operator.exportConversation"
    session: Uuid = Field()
    path: _Path = Field()


class EraseConversationRequest(ToolRequest):
    """Leave nothing of a conversation in the agent's store. Cannot be undone.

    ``dryRun``: only say what would go. ``discardGit``: also where a person's own commits go with the local history.
    """

    tool: ClassVar[str] = "operator.eraseConversation"
    session: Uuid = Field()
    dry_run: Bool = False
    discard_git: Bool = False


class ReleaseStoreRequest(ToolRequest):
    """Put a store that was taken out of service back into it; what was wrong with it has been mended."""

    tool: ClassVar[str] = "operator.releaseStore"
    store: Uuid = Field()


class BackupRequest(ToolRequest):
    """Back up every store, or one, into a new folder; answered when it has begun, not when it ends."""

    tool: ClassVar[str] = "operator.backup"
    path: _Path = Field()
    store: Uuid | None = None
    dry_run: Bool = False


class BackupStatusRequest(ToolRequest):
    """How far the backup is that was asked for last, and what became of it."""

    tool: ClassVar[str] = "operator.backupStatus"


class HealthRequest(ToolRequest):
    """What every part of the runtime says of itself, and what is wrong beside it. Asks nobody, creates nothing."""

    tool: ClassVar[str] = "operator.health"


class RunMaintenanceRequest(ToolRequest):
    """Look after the store of an agent, or after every store; answered when the run has begun, not when it ends."""

    tool: ClassVar[str] = "operator.runMaintenance"


class MaintenanceStatusRequest(ToolRequest):
    """The schedule, the next and the last run, what runs now, and the last result of each store."""

    tool: ClassVar[str] = "operator.maintenance"


OperatorRequest: TypeAlias = (
    OperatorRead
    | OperatorStatusRequest
    | OperatorDiagnosticsRequest
    | AdoptNotesRequest
    | AcceptDeletionsRequest
    | AdoptStoreRequest
    | RelocateStoreRequest
    | ExportConversationRequest
    | EraseConversationRequest
    | ReleaseStoreRequest
    | BackupRequest
    | BackupStatusRequest
    | HealthRequest
    | RunMaintenanceRequest
    | MaintenanceStatusRequest
)

OPERATOR_METHODS: Final[Mapping[str, tuple[type[OperatorRequest | AccessRequest], Scope]]] = MappingProxyType(
    {
        OperatorStatusRequest.tool: (OperatorStatusRequest, "operator.read"),
        OperatorDiagnosticsRequest.tool: (OperatorDiagnosticsRequest, "operator.read"),
        **{read.tool: (read, "operator.read") for read in OPERATOR_READS},
        AdoptNotesRequest.tool: (AdoptNotesRequest, "operator.admin"),
        AcceptDeletionsRequest.tool: (AcceptDeletionsRequest, "operator.admin"),
        AdoptStoreRequest.tool: (AdoptStoreRequest, "operator.admin"),
        RelocateStoreRequest.tool: (RelocateStoreRequest, "operator.admin"),
        ExportConversationRequest.tool: (ExportConversationRequest, "operator.admin"),
        EraseConversationRequest.tool: (EraseConversationRequest, "operator.admin"),
        ReleaseStoreRequest.tool: (ReleaseStoreRequest, "operator.admin"),
        BackupRequest.tool: (BackupRequest, "operator.admin"),
        BackupStatusRequest.tool: (BackupStatusRequest, "operator.admin"),
        HealthRequest.tool: (HealthRequest, "operator.admin"),
        RunMaintenanceRequest.tool: (RunMaintenanceRequest, "operator.admin"),
        MaintenanceStatusRequest.tool: (MaintenanceStatusRequest, "operator.admin"),
        **ACCESS_METHODS,
    }
)
SUBSCRIBE: Final = "events.subscribe"


@dataclass(frozen=True, slots=True)
class OperatorCall:
    """One request of an operator on its way; the same envelope as a tool call's."""

    operator: Operator
    request: OperatorRequest | AccessRequest
    agent: str | None
    deadline: Deadline
    cancellation: Cancellation = field(default_factory=Cancellation)
    correlation_id: str = field(default_factory=new_correlation_id)
    door: str = "host"
    """Where it came in, for the audit: ``socket`` when the connection itself says who asks."""

    @property
    def tool(self) -> str:
        return self.request.tool

    @property
    def scope(self) -> Scope:
        """The scope that this request needs."""
        return OPERATOR_METHODS[self.request.tool][1]


class _Operator(Arguments):
    id: _Name = Field()
    scopes: Annotated[tuple[Annotated[str, Choice(*SCOPES)], ...], Items(0, len(SCOPES))] = Field()
    agents: Annotated[tuple[_Name, ...], Items(0, 1_000)] | None = None


class _Common(Arguments):
    operator: _Raw = None
    agent: _Name | None = None
    deadline_ms: Annotated[int, Integer(1, DEADLINE_MAX_MS)] = DEADLINE_DEFAULT_MS


class _Subscription(Arguments):
    audience: _Raw = None
    operator: _Raw = None
    agent: _Name | None = None
    deadline_ms: Annotated[int, Integer(1, DEADLINE_MAX_MS)] = DEADLINE_DEFAULT_MS


@dataclass(frozen=True, slots=True)
class Subscriber:
    """Who wants to hear of changes: a caller with its audience, or an operator about an agent."""

    audience: Caller | None = None
    operator: Operator | None = None
    agent: str | None = None


@dataclass(frozen=True, slots=True)
class SubscribeCall:
    """One ``events.subscribe`` on its way."""

    subscriber: Subscriber
    deadline: Deadline
    cancellation: Cancellation = field(default_factory=Cancellation)
    correlation_id: str = field(default_factory=new_correlation_id)


def parse_operator(value: object) -> Operator:
    """The operator that a host minted. Raises :class:`InvalidArgument` (fields below ``operator``)."""
    found = validate(_Operator, value, under="operator")
    return Operator(found.id, frozenset(found.scopes), found.agents)


def parse_operator_call(method: str, params: JsonObject, *, peer: Operator | None) -> OperatorCall:
    """The validated call of one of :data:`OPERATOR_METHODS`. ``peer`` asks where the request names no operator; the
    host's own methods the host itself, where there is no peer either.

    Raises ``KeyError`` for another method, :class:`InvalidArgument` and its like otherwise.
    """
    model, _ = OPERATOR_METHODS[method]
    common = validate(_Common, {key: value for key, value in params.items() if key in _COMMON})
    request = validate(model, {key: value for key, value in params.items() if key not in _COMMON})
    operator = peer if common.operator is None else parse_operator(common.operator)
    if operator is None and method in HOST_METHODS:
        operator = HOST_OPERATOR
    if operator is None:
        raise _nobody()
    door = "socket" if common.operator is None and peer is not None else "host"
    return OperatorCall(operator, request, common.agent, Deadline.after(common.deadline_ms / 1000), door=door)


def parse_subscription(params: JsonObject, *, caller: Caller | None, peer: Operator | None) -> SubscribeCall:
    """Who subscribes: the audience or the operator of the request, else who the connection stands for."""
    found = validate(_Subscription, params)
    deadline = Deadline.after(found.deadline_ms / 1000)
    return SubscribeCall(_subscriber(found, caller, peer), deadline)


def _subscriber(found: _Subscription, caller: Caller | None, peer: Operator | None) -> Subscriber:
    if found.audience is not None and (found.operator is not None or found.agent is not None):
        raise InvalidArgument(
            "A subscription has an audience or an operator, not both.", field="audience", reason="conflict"
        )
    if found.audience is not None:
        return Subscriber(audience=parse_caller(found.audience))
    if found.operator is not None:
        return Subscriber(operator=parse_operator(found.operator), agent=found.agent)
    if caller is not None and found.agent is None:
        return Subscriber(audience=caller)
    if peer is None:
        raise _nobody()
    return Subscriber(operator=peer, agent=found.agent)


def _nobody() -> InvalidArgument:
    allowed = "an object {id, scopes, agents?}"
    return InvalidArgument("operator is required here", field="operator", reason="missing", allowed=allowed)


_COMMON: Final = frozenset(("operator", "agent", "deadlineMs"))

"""What operators and hosts ask about access and the registry: from the check of scope to the authority's answer.

Each is one question to the authority, which alone changes the registry; none opens a store. Any thread.

Source: stores-and-access.md (Manage stores, Conversation access, Caller authority); decisions.md sections 6 and 7.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import assert_never

from actors.authority import (
    AnnounceSessions,
    ChangeGrant,
    EndRun,
    Examine,
    ListGrants,
    ListHttpKeys,
    ListStores,
    ListTokens,
    MakeHttpKey,
    MintToken,
    MoveAgent,
    PermitGate,
    ReadAudit,
    RebuildRegistry,
    RevokeHttpKey,
    RevokeToken,
)
from actors.operators import PendingOperation, operator_by
from actors.supervision import ActorHandle, Reply, Request
from messages.access import (
    AccessRequest,
    AnnounceSessionsRequest,
    AuditRequest,
    DoctorRequest,
    EndRunRequest,
    JoinStoreRequest,
    ListGrantsRequest,
    ListHttpKeysRequest,
    ListStoresRequest,
    ListTokensRequest,
    MakeHttpKeyRequest,
    MintTokenRequest,
    OwnStoreRequest,
    RebuildRegistryRequest,
    RemoveGrantRequest,
    RevokeHttpKeyRequest,
    RevokeTokenRequest,
    SetGrantRequest,
    ShareStoreRequest,
)
from messages.audience import Audience, delegation_chain, parse_audience
from messages.errors import Cancelled, Denied, InvalidArgument
from messages.json_types import JsonObject
from messages.operator import OperatorCall

LOOKS_ONLY = (
    ListStoresRequest,
    ListGrantsRequest,
    ListTokensRequest,
    ListHttpKeysRequest,
    AuditRequest,
    DoctorRequest,
)


class AccessDesk:
    """Answers requests about access. One for each runtime."""

    def __init__(
        self,
        gate: PermitGate,
        authority: ActorHandle,
        now_ms: Callable[[], int],
        settle: Callable[[Collection[str]], Reply[bool]],
        unsettled: Callable[[], Collection[str]],
    ) -> None:
        """``settle`` opens stores that nobody has open, and is answered when nothing accepted is left in them;
        ``unsettled`` names those of all stores in which something accepted may be left."""
        self._unsettled = unsettled
        self._gate = gate
        self._settle = settle
        self._authority = authority
        self._now_ms = now_ms

    def start(self, pending: PendingOperation, request: AccessRequest) -> None:
        """Begin; what is raised is the request's answer."""
        call = pending.call
        if call.cancellation.requested:
            raise Cancelled("The operator cancelled the request before it began; nothing was done.")
        message = self._message(call, request)
        if not pending.begin():
            return
        reply: Reply[JsonObject] = self._authority.ask(
            message, deadline=call.deadline, correlation_id=call.correlation_id
        )

        settled = self._settle(self._narrowed(message))

        def answered(done: Reply[JsonObject]) -> None:
            error = done.error()
            if error is None:
                result = done.result(0)
                settled.add_done_callback(lambda both: _finish(pending, both, result))
            elif isinstance(request, LOOKS_ONLY) and error.retry == "unknown":
                pending.fail(type(error)(error.message, retry="safe", **error.fields))
            else:
                pending.fail(error)

        reply.add_done_callback(answered)

    def _narrowed(self, message: Request[JsonObject]) -> tuple[str, ...]:
        """The stores in which somebody may have less afterwards, and where a save may still be unfinished."""
        match message:
            case ChangeGrant(agent, _, access) if access != "read-save":
                agents: tuple[str, ...] = (agent,)
            case MoveAgent(agent, request):
                agents = (agent, *(request.agents if isinstance(request, ShareStoreRequest) else ()))
            case RevokeToken() | EndRun():
                # Whoever used it may have been moved since: wherever a save may be left.
                return tuple(self._unsettled())
            case _:
                return ()
        return tuple(vault for vault in self._gate.vaults_of(agents) if not self._gate.is_settled(vault))

    def _message(self, call: OperatorCall, request: AccessRequest) -> Request[JsonObject]:
        by = operator_by(call, self._now_ms())
        if isinstance(request, DoctorRequest | RebuildRegistryRequest):
            # Asked when there may be no view at all: the scope is the operator's own, and no role is wide enough.
            require_whole_admin(call)
            return Examine() if isinstance(request, DoctorRequest) else RebuildRegistry(request, by)
        self._gate.require_scope(call.operator, call.scope)
        match request:
            case ListStoresRequest():
                return ListStores(call.operator)
            case AuditRequest(limit=limit):
                require_whole_admin(call)
                return ReadAudit(limit)
            case ShareStoreRequest() | JoinStoreRequest() | OwnStoreRequest():
                return MoveAgent(_named(call), request, call.operator, by)
            case ListGrantsRequest():
                return ListGrants(_in_role(call, self._gate.first_agent(call.operator)))
            case SetGrantRequest(session_key=key, access=access):
                return ChangeGrant(_in_role(call, _named(call)), key, access, by)
            case RemoveGrantRequest(session_key=key):
                return ChangeGrant(_in_role(call, _named(call)), key, None, by)
            case MintTokenRequest(audience=given, seconds=seconds):
                return MintToken(_audience(call, given), seconds, by)
            case RevokeTokenRequest(id=token_id):
                _nobodys(call)
                return RevokeToken(token_id, by, call.operator.agents)
            case ListTokensRequest(limit=limit):
                return ListTokens(_whose(call), limit)
            case MakeHttpKeyRequest(operator_id=operator_id, rotate=rotate):
                _nobodys(call)
                require_whole_admin(call)
                return MakeHttpKey(operator_id, rotate, by)
            case RevokeHttpKeyRequest(operator_id=operator_id):
                _nobodys(call)
                require_whole_admin(call)
                return RevokeHttpKey(operator_id, by)
            case ListHttpKeysRequest():
                _nobodys(call)
                require_whole_admin(call)
                return ListHttpKeys()
            case EndRunRequest(run_id=run_id):
                _nobodys(call)
                require_whole_admin(call)  # a run is nobody's in particular
                return EndRun(run_id, by)
            case AnnounceSessionsRequest(sessions=sessions):
                _nobodys(call)
                role = call.operator.agents
                if role is not None and any(session.agent not in role for session in sessions):
                    raise Denied("There is no such agent for this operator.", field="sessions")
                return AnnounceSessions(tuple((session.agent, session.session_key) for session in sessions), by.at)
            case _:
                assert_never(request)


def _audience(call: OperatorCall, given: object) -> Audience:
    """The audience that a token is to stand for: every agent of its chain is one of the operator's."""
    _nobodys(call)
    audience = parse_audience(given)
    role = call.operator.agents
    if role is not None and any(link.agent not in role for link in delegation_chain(audience)):
        raise Denied("There is no such agent for this operator.", field="audience.agent")
    return audience


def _nobodys(call: OperatorCall) -> None:
    """The request itself says whose it is: an agent beside it could only contradict it."""
    if call.agent is not None:
        raise InvalidArgument("agent is not known here", field="agent", reason="unknown", allowed="no agent")


def _whose(call: OperatorCall) -> tuple[str, ...] | None:
    if call.agent is None:
        return call.operator.agents
    return (_in_role(call, None),)


def _finish(pending: PendingOperation, settled: Reply[bool], result: JsonObject) -> None:
    error = settled.error()
    if error is None:
        pending.succeed(result)
    else:
        pending.fail(error)


def require_whole_admin(call: OperatorCall) -> None:
    """Raise ``Denied`` unless the operator is an administrator of every agent."""
    if not call.operator.may("operator.admin") or call.operator.agents is not None:
        raise Denied("This needs the scope operator.admin for every agent.", scope="operator.admin")


def _named(call: OperatorCall) -> str:
    """A change says whose: a default would one day be somebody else."""
    if call.agent is None:
        raise InvalidArgument("agent is required here", field="agent", reason="missing", allowed="an agent's id")
    return call.agent


def _in_role(call: OperatorCall, default: str | None) -> str:
    agent = call.agent or default
    if agent is None or not call.operator.sees(agent):
        raise Denied("There is no such agent for this operator.", field="agent")
    return agent

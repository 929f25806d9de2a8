"""The authority: owns the registry, decides membership, publishes the view that every permit is resolved from.

While it is down every request is refused: its view expires, and a crash withdraws it at once.
Source: DESIGN.md (The tree), decisions.md section 6, stores-and-access.md (Stores).
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from types import MappingProxyType
from typing import Final

from actors.authority import assigning, http_keys, relocations, tokens
from actors.authority.assigning import MoveAgent, agents_of
from actors.authority.auditing import NoteStewardActions, note_actions
from actors.authority.doctor import Examine, RebuildRegistry, examination, made_anew
from actors.authority.gate import PermitGate
from actors.authority.granting import AnnounceSessions, ChangeGrant, ListGrants, announce, change, listed
from actors.authority.http_keys import ListHttpKeys, MakeHttpKey, RevokeHttpKey
from actors.authority.inventory import ListStores, inventory
from actors.authority.permit import Permit, belongs_to, leads_to, reaches_through
from actors.authority.policy import Memberships, Policy, holder_of, memberships
from actors.authority.relocations import PlanMove, SwitchStore
from actors.authority.tokens import ListTokens, MintToken, RevokeToken, TokenReader
from actors.authority.view import AuthorityView, Membership, listed_in_several
from actors.supervision import PARKED, ActorContext, Envelope, GuardedActor, Request
from messages.errors import Denied, InternalError, KnowledgeError, RevocationPending, StorageError, StoreUnavailable
from messages.json_types import JsonObject
from messages.vocabulary import Partition
from storage.layout import Layout, StoreLayout
from storage.registry import Registry
from storage.registry_audit import By
from storage.session import StoreSession

logger = logging.getLogger(__name__)

VIEW_LIFE_SECONDS: Final = 10.0
RENEW_SECONDS: Final = 0.5
BARRIER_SECONDS: Final = 10.0
BARRIER_POLL_SECONDS: Final = 0.02
SEEN_AGAIN_MS: Final = 3_600_000
SEEN_KEPT: Final = 10_000


@dataclass(frozen=True, slots=True)
class AwaitView(Request[bool]):
    """Answered once a view is published: the mailbox of a starting authority keeps it until then."""


@dataclass(frozen=True, slots=True)
class BindAgent(Request[StoreLayout]):
    """First authorised use: create the agent's store if it does not exist, and publish the binding."""

    agent: str


@dataclass(frozen=True, slots=True)
class EndRun(Request[JsonObject]):
    """The host says that a run is over: its audiences are stale, its tokens revoked, and this is a barrier."""

    run_id: str
    by: By


@dataclass(frozen=True, slots=True)
class NoteErasure(Request[bool]):
    """An operator ordered that a conversation be erased: a row of the audit, before anything is done."""

    vault_id: str
    agent: str
    session_id: str
    by: By


@dataclass(frozen=True, slots=True)
class EndErased(Request[bool]):
    """A conversation was erased, or is going to be: no answer from before leaves, and this is a barrier."""

    vault_id: str
    partition: Partition


@dataclass(frozen=True, slots=True)
class ReadAudit(Request[JsonObject]):
    """The newest rows of the audit first."""

    limit: int


@dataclass(frozen=True, slots=True)
class Reload:
    """Read the configuration again; takes effect for the next check, and is no barrier."""


@dataclass(frozen=True, slots=True)
class _Renew:
    """From its own timer."""


@dataclass(frozen=True, slots=True)
class _AwaitBarrier:
    envelope: Envelope
    until: float
    answer: object
    concerns: Callable[[Permit], bool]


class Authority(GuardedActor):
    """Permanent. Blocks on nothing but the registry; a barrier is polled by timers."""

    def __init__(
        self,
        context: ActorContext,
        layout: Layout,
        gate: PermitGate,
        policy: Callable[[], Policy],
        now_ms: Callable[[], int],
        memberships: Memberships | None = None,
    ) -> None:
        """``memberships`` is where moves edit the configuration; without it they are refused."""
        super().__init__(context)
        self._memberships = memberships
        self._layout = layout
        self._gate = gate
        self._read_policy = policy
        self._now_ms = now_ms
        self._registry: Registry | None = None
        self._published: AuthorityView | None = None
        self._seen_at: dict[tuple[str, str], int] = {}
        self._content_of: tuple[Policy, Registry, int, frozenset[str]] | None = None

    def on_ready(self) -> None:
        """A registry that a person has to put right first is no defect that a restart could mend: nothing is
        published, and every request tries again and gets the refusal."""
        self._renew()
        self.context.start_timer(RENEW_SECONDS, _Renew())

    def on_ended(self) -> None:
        self._gate.withdraw_view()
        if self._registry is not None:
            with suppress(KnowledgeError):
                self._note_seen()
            self._registry.close()

    def on_ask(self, message: object, envelope: Envelope) -> object:
        match message:
            case AwaitView():
                self._publish()
                return True
            case PlanMove():
                return relocations.plan(self._open(), message)
            case SwitchStore(move, by):
                moved = relocations.switch(self._open(), move, by)
                self._publish()
                return moved
            case BindAgent(agent):
                return self._bind(agent)
            case MoveAgent():
                answer = assigning.move(self._open(), self._memberships, self._read_policy(), message)
                self._publish()
                return self._barrier(envelope, answer)
            case ListStores(operator):
                self._publish()  # what is shown is what decides
                return inventory(self._open(), self._read_policy(), operator)
            case ListGrants(agent):
                self._note_seen()
                return listed(self._open(), self._read_policy(), agent)
            case ChangeGrant():
                answer = change(self._open(), self._read_policy(), message)
                self._publish()
                return self._barrier(envelope, answer)
            case MintToken():
                registry = self._open()
                minted = tokens.mint(
                    registry.tokens, registry.registry_id, self._read_policy(), self._gate.ended_runs, message
                )
                self._publish()
                return minted
            case RevokeToken():
                answer = tokens.revoke(self._open().tokens, message)
                self._publish()
                return self._barrier(envelope, answer)
            case MakeHttpKey():
                made_key = http_keys.make(self._open().http_keys, self._read_policy(), message)
                self._publish()
                return made_key
            case RevokeHttpKey():
                gone = http_keys.revoke(self._open().http_keys, message)
                self._publish()
                return gone
            case ListHttpKeys():
                return http_keys.listed(self._open().http_keys)
            case ListTokens():
                return tokens.listed(self._open().tokens, message, self._now_ms())
            case Examine():
                return examination(self._layout, self._try_open(), self._read_policy())
            case RebuildRegistry():
                made = made_anew(self._layout, self._try_open(), message)
                self._publish()
                return made
            case NoteErasure(vault_id, agent, session_id, by):
                subject: JsonObject = {"vaultId": vault_id, "agent": agent, "sessionId": session_id}
                self._open().note("conversation.erase", subject, by)
                return True
            case NoteStewardActions():
                return note_actions(self._open(), message)
            case EndErased(vault_id, partition):
                self._gate.erase(vault_id, partition)
                self._published = None  # a new epoch, though nobody's access has changed
                self._publish()
                return self._barrier(envelope, True)
            case ReadAudit(limit):
                return {"rows": [*self._open().audit(limit=limit)]}
            case EndRun(run_id, by):
                try:
                    self._gate.end_run(run_id)
                finally:
                    self._open().tokens.revoke_of_run(run_id, by)
                    self._publish()
                return self._barrier(envelope, {})
            case AnnounceSessions():
                return announce(self._open(), self._read_policy(), message)
            case _:
                raise InternalError(f"The authority takes no {type(message).__name__}.")

    def on_tell(self, message: object) -> None:
        match message:
            case _Renew():
                self._renew()
                self.context.start_timer(RENEW_SECONDS, message)
            case Reload():
                self._publish()
            case _AwaitBarrier():
                self._await_barrier(message)
            case _:
                raise InternalError(f"The authority takes no {type(message).__name__}.")

    # --- inside ----------------------------------------------------------------------------------------

    def _renew(self) -> None:
        try:
            self._publish()
            self._note_seen()
        except StoreUnavailable as refusal:
            logger.error("the registry cannot be opened", extra={"reason": refusal.fields.get("reason")})
        except StorageError as error:
            logger.warning("conversations were not noted", extra={"reason": error.fields.get("reason")})

    def _note_seen(self) -> None:
        """Keep which conversations called, one commit for each at most once in an hour."""
        seen = self._gate.take_seen()
        new = {key: at for key, at in seen.items() if at - self._seen_at.get(key, 0) >= SEEN_AGAIN_MS}
        if not new:
            return
        self._open().note_seen(new)
        self._seen_at.update(new)
        if len(self._seen_at) > SEEN_KEPT:
            self._seen_at = dict(new)

    def _bind(self, agent: str) -> StoreLayout:
        registry = self._open()
        policy = self._read_policy()
        listed_in = memberships(policy.stores)
        holder = holder_of(policy, listed_in, agent)
        if holder is None:
            # The configuration may have changed since the view that sent the caller here.
            if agent in policy.agents:
                raise listed_in_several(listed_in[agent])
            raise Denied("This agent has no access to a knowledge store here.")
        entry = registry.ensure(holder, at=self._now_ms(), by=agent)
        if not entry.made:
            StoreSession.create(entry.layout, entry.vault_id)
            registry.mark_made(entry.vault_id)
        self._publish()
        return entry.layout

    def _publish(self) -> None:
        """Publish the view; a new epoch only when something changed, else the old one with a longer life."""
        policy = self._read_policy()
        registry = self._open()
        ended_runs = self._gate.ended_runs
        content_of = (policy, registry, registry.changes, ended_runs)
        last = self._published
        if last is None or self._content_of is None or not _same(content_of, self._content_of):
            view = self._view(policy, registry, ended_runs)
            same = last is not None and view.content() == last.content()
        else:
            # Nothing that decides has changed: the usual case, twice a second, however many agents there are.
            view, same = last, True
        epoch = last.epoch if same and last is not None else self._gate.next_epoch()
        view = replace(view, epoch=epoch, valid_until=self.context.clock.monotonic() + VIEW_LIFE_SECONDS)
        self._gate.publish(view)
        self._published = view
        self._content_of = content_of

    def _view(self, policy: Policy, registry: Registry, ended_runs: frozenset[str]) -> AuthorityView:
        """What the configuration and the registry say now."""
        members: dict[str, Membership] = {}
        layouts: dict[str, StoreLayout] = {}
        bound = registry.bound()
        listed_in = memberships(policy.stores)
        for agent in policy.agents:
            holder = holder_of(policy, listed_in, agent)
            if holder is None:
                members[agent] = Membership(ambiguous=listed_in[agent])
                continue
            entry = bound.get(holder)
            # A store that is registered but not made yet is created again on its next use.
            known = entry if entry is not None and entry.made else None
            members[agent] = Membership(vault_id=None if known is None else known.vault_id)
            if known is not None:
                layouts[known.vault_id] = known.layout
        return AuthorityView(
            epoch=0,
            valid_until=0.0,
            writes_enabled=policy.writes_enabled,
            members=MappingProxyType(members),
            layouts=MappingProxyType(layouts),
            ended_runs=ended_runs,
            operator_read=policy.operator_read,
            shared_gateway=policy.shared_gateway,
            grants=MappingProxyType(registry.grants()),
            tokens=registry.tokens.live(),
            token_reader=self._token_reader(registry),
            http_keys=registry.http_keys.all(),
            operators=policy.operators,
        )

    def _token_reader(self, registry: Registry) -> TokenReader | None:
        """What reads tokens, once there are some. A key that is lost or unsafe ends them, and nothing else."""
        if not registry.tokens.any():
            return None
        try:
            key = registry.tokens.key()
        except StorageError as error:
            logger.error("tokens of audiences cannot be read", extra={"reason": error.fields.get("reason")})
            return None
        return None if key is None else TokenReader(registry.registry_id, key)

    def _barrier(self, envelope: Envelope, answer: object) -> object:
        """``answer``, once nobody inside whom the change concerns holds more than the published view gives.

        Work that does not end holds up those who take its own right away, and nobody else.
        """
        concerns = _concerned_by(envelope.message)
        if self._gate.await_barrier(0, concerns):
            return answer
        until = self.context.clock.monotonic() + BARRIER_SECONDS
        waiting = _AwaitBarrier(envelope, until, answer, concerns)
        self.context.start_timer(BARRIER_POLL_SECONDS, waiting, envelope)
        return PARKED

    def _await_barrier(self, waiting: _AwaitBarrier) -> None:
        reply = waiting.envelope.reply
        if reply is None or reply.done():
            return
        if self._gate.await_barrier(0, waiting.concerns):
            reply.succeed(waiting.answer)
        elif self.context.clock.monotonic() >= waiting.until:
            reply.fail(
                RevocationPending(
                    "The access is closed to new calls, but work under it has not ended yet; ask again to learn "
                    "when it has."
                )
            )
        else:
            self.context.start_timer(BARRIER_POLL_SECONDS, waiting, waiting.envelope)

    def _try_open(self) -> Registry | StoreUnavailable:
        try:
            return self._open()
        except StoreUnavailable as refusal:
            return refusal

    def _open(self) -> Registry:
        """Raises ``StoreUnavailable`` for a registry that is missing, damaged or foreign, also since it was opened."""
        if self._registry is not None and not self._registry.in_place():
            logger.warning("registry.sqlite was removed or replaced; it is opened anew")
            self._gate.withdraw_view()
            self._registry.close()
            self._registry = None
        if self._registry is None:
            registry = Registry.open(self._layout, at=self._now_ms())
            try:
                relocations.recover(self._layout, registry, self._now_ms())
                assigning.recover(registry, self._memberships, self._read_policy())
            except BaseException:
                registry.close()
                raise
            self._registry = registry
        return self._registry


def _concerned_by(message: object) -> Callable[[Permit], bool]:
    """Whether a change of access may take something from the holder of a permit."""
    match message:
        case ChangeGrant(agent=agent):
            return partial(reaches_through, agents=(agent,))
        case MoveAgent():
            return partial(reaches_through, agents=agents_of(message))
        case EndRun(run_id):
            return partial(belongs_to, run_id=run_id)
        case EndErased(vault_id, partition):
            return partial(leads_to, vault_id=vault_id, partition=partition)
        case _:
            return lambda permit: True


def _same(
    content: tuple[Policy, Registry, int, frozenset[str]], last: tuple[Policy, Registry, int, frozenset[str]]
) -> bool:
    """Whether a view of the one is a view of the other; a policy that did not change is the same object."""
    return content[0] is last[0] and content[1] is last[1] and content[2:] == last[2:]

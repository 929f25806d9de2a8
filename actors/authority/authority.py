"""The authority: owns the registry, decides membership, publishes the view that every permit is resolved from.

While it is down every request is refused: its view expires, and a crash withdraws it at once.
Source: DESIGN.md (The tree), decisions.md section 6, stores-and-access.md (Stores).
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Final

from actors.authority import relocations
from actors.authority.gate import PermitGate
from actors.authority.relocations import PlanMove, SwitchStore
from actors.authority.view import AuthorityView, Membership
from actors.supervision import PARKED, ActorContext, Envelope, GuardedActor, Request
from messages.errors import Denied, InternalError, RevocationPending, StoreUnavailable
from storage.layout import Layout, StoreLayout
from storage.registry import Holder, Isolated, Named, Registry
from storage.session import StoreSession

logger = logging.getLogger(__name__)

VIEW_LIFE_SECONDS: Final = 10.0
RENEW_SECONDS: Final = 0.5
BARRIER_SECONDS: Final = 10.0
BARRIER_POLL_SECONDS: Final = 0.02


@dataclass(frozen=True, slots=True)
class Policy:
    """What the configuration says of access: agents, and the named stores that each is listed in."""

    agents: tuple[str, ...] = ("main",)
    named_stores: Mapping[str, tuple[str, ...]] = field(default_factory=lambda: MappingProxyType({}))
    writes_enabled: bool = True
    operator_read: bool = True
    shared_gateway: bool = False


@dataclass(frozen=True, slots=True)
class AwaitView(Request[bool]):
    """Answered once a view is published: the mailbox of a starting authority keeps it until then."""


@dataclass(frozen=True, slots=True)
class BindAgent(Request[StoreLayout]):
    """First authorised use: create the agent's store if it does not exist, and publish the binding."""

    agent: str


@dataclass(frozen=True, slots=True)
class EndRun(Request[bool]):
    """The host says that a run is over: its audiences are stale, and this is a barrier."""

    run_id: str


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


class Authority(GuardedActor):
    """Permanent. Blocks on nothing but the registry; a barrier is polled by timers."""

    def __init__(
        self,
        context: ActorContext,
        layout: Layout,
        gate: PermitGate,
        policy: Callable[[], Policy],
        now_ms: Callable[[], int],
    ) -> None:
        super().__init__(context)
        self._layout = layout
        self._gate = gate
        self._read_policy = policy
        self._now_ms = now_ms
        self._registry: Registry | None = None
        self._published: AuthorityView | None = None

    def on_ready(self) -> None:
        """A registry that a person has to put right first is no defect that a restart could mend: nothing is
        published, and every request tries again and gets the refusal."""
        self._renew()
        self.context.start_timer(RENEW_SECONDS, _Renew())

    def on_ended(self) -> None:
        self._gate.withdraw_view()
        if self._registry is not None:
            self._registry.close()

    def on_ask(self, message: object, envelope: Envelope) -> object:
        match message:
            case AwaitView():
                self._publish()
                return True
            case PlanMove():
                return relocations.plan(self._open(), message)
            case SwitchStore(move):
                moved = relocations.switch(self._open(), move)
                self._publish()
                return moved
            case BindAgent(agent):
                return self._bind(agent)
            case EndRun(run_id):
                self._gate.end_run(run_id)
                self._publish()
                return self._barrier(envelope)
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
        except StoreUnavailable as refusal:
            logger.error("the registry cannot be opened", extra={"reason": refusal.fields.get("reason")})

    def _bind(self, agent: str) -> StoreLayout:
        registry = self._open()
        policy = self._read_policy()
        holder = _holder_of(policy, agent)
        if holder is None:
            raise Denied("This agent has no access to a knowledge store here.")
        entry = registry.ensure(holder, at=self._now_ms())
        if not entry.made:
            StoreSession.create(entry.layout, entry.vault_id)
            registry.mark_made(entry.vault_id)
        self._publish()
        return entry.layout

    def _publish(self) -> None:
        """Publish the view; a new epoch only when something changed, else the old one with a longer life."""
        policy = self._read_policy()
        registry = self._open()
        members: dict[str, Membership] = {}
        layouts: dict[str, StoreLayout] = {}
        for agent in policy.agents:
            stores = policy.named_stores.get(agent, ())
            holder = _holder_of(policy, agent)
            if holder is None:
                members[agent] = Membership(ambiguous=stores)
                continue
            entry = registry.find(holder)
            # A store that is registered but not made yet is created again on its next use.
            known = entry if entry is not None and entry.made else None
            members[agent] = Membership(vault_id=None if known is None else known.vault_id)
            if known is not None:
                layouts[known.vault_id] = known.layout
        ended_runs = self._gate.ended_runs
        rights = (policy.writes_enabled, policy.operator_read, policy.shared_gateway)
        content = (rights, members, layouts, ended_runs)
        last = self._published
        same = last is not None and content == (last.rights, last.members, last.layouts, last.ended_runs)
        view = AuthorityView(
            epoch=last.epoch if same and last is not None else self._gate.next_epoch(),
            valid_until=self.context.clock.monotonic() + VIEW_LIFE_SECONDS,
            writes_enabled=policy.writes_enabled,
            members=MappingProxyType(members),
            layouts=MappingProxyType(layouts),
            ended_runs=ended_runs,
            operator_read=policy.operator_read,
            shared_gateway=policy.shared_gateway,
        )
        self._gate.publish(view)
        self._published = view

    def _barrier(self, envelope: Envelope) -> object:
        if self._gate.await_barrier(0):
            return True
        until = self.context.clock.monotonic() + BARRIER_SECONDS
        self.context.start_timer(BARRIER_POLL_SECONDS, _AwaitBarrier(envelope, until), envelope)
        return PARKED

    def _await_barrier(self, waiting: _AwaitBarrier) -> None:
        reply = waiting.envelope.reply
        if reply is None or reply.done():
            return
        if self._gate.await_barrier(0):
            reply.succeed(True)
        elif self.context.clock.monotonic() >= waiting.until:
            reply.fail(
                RevocationPending(
                    "The access is closed to new calls, but work under it has not ended yet; ask again to learn "
                    "when it has."
                )
            )
        else:
            self.context.start_timer(BARRIER_POLL_SECONDS, waiting, waiting.envelope)

    def _open(self) -> Registry:
        """Raises ``StoreUnavailable`` for a registry that is missing, damaged or foreign."""
        if self._registry is None:
            registry = Registry.open(self._layout, at=self._now_ms())
            try:
                relocations.recover(self._layout, registry)
            except BaseException:
                registry.close()
                raise
            self._registry = registry
        return self._registry


def _holder_of(policy: Policy, agent: str) -> Holder | None:
    """Whose store an agent uses; ``None`` when it is unknown or listed in several named stores."""
    if agent not in policy.agents:
        return None
    stores = policy.named_stores.get(agent, ())
    if len(stores) > 1:
        return None
    return Named(stores[0]) if stores else Isolated(agent)

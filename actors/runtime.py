"""The runtime of one state directory: the supervision tree, the directory of live stores, and calls into it.

:class:`Runtime` is what doors talk to. Submitting never blocks and never raises; every call gets exactly one typed
answer by its deadline, handed over under a read lease. Source: DESIGN.md (One request, The tree), decisions.md 6, 8.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Collection
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Final, TypeVar

from actors.access import AccessDesk
from actors.authority import (
    Authority,
    AwaitView,
    EndRun,
    Memberships,
    PermitGate,
    Policy,
)
from actors.backups import Backups
from actors.calls import PendingCall, guarded
from actors.directory import StoreDirectory, StoreHandle
from actors.events import EventHub, PendingEvent, Subscription
from actors.lanes import Lanes
from actors.maintenance import Maintenance, Pace, Schedule
from actors.operators import Operators, PendingOperation, Surroundings
from actors.prompting import Prompting
from actors.providing import Providing
from actors.recall_gate import Decisions, GateSettings, Places, RecallDesk
from actors.recall_gate import children as recall_gate_children
from actors.reminding import PendingReminder, Reminding, pending_of
from actors.settling import settle
from actors.store.settings import LOOK_ROUND_SECONDS, WATCH_TEST_SECONDS, StoreSettings
from actors.supervision import (
    ROOT_SETTINGS,
    ActorHealth,
    ActorSettings,
    ChildSpec,
    ClosedTree,
    Environment,
    InboxLimits,
    Reply,
    Tree,
)
from actors.system_memory import LANE as SYSTEM_MEMORY
from actors.system_memory import SystemMemory, SystemMemorySettings
from actors.tool_calls import ToolCalls, ValidatedCall
from messages.access import AccessRequest, DoctorRequest, RebuildRegistryRequest
from messages.audience import (
    AudienceToken,
    require_well_formed,
)
from messages.envelope import Call, Deadline
from messages.errors import (
    KnowledgeError,
    Stopping,
    StoreUnavailable,
)
from messages.json_types import JsonObject
from messages.operator import OperatorCall, SubscribeCall
from messages.provider import PromptWording, ProviderCall, RecallGateRequest
from messages.system_memory import StewardCall, SystemMemoryCall
from messages.vocabulary import HUB_PERCENTILE_DEFAULT
from storage.layout import Layout, StoreLayout
from storage.registry_audit import By
from storage.store_parts import was_interrupted
from storage.vault import ScanLimits

AUTHORITY: Final = "authority"
MAINTENANCE: Final = "maintenance"

logger = logging.getLogger(__name__)

R = TypeVar("R")


@dataclass(frozen=True, slots=True)
class RuntimeSettings:
    """What the configuration decides about the tree. Times in seconds, sizes in bytes."""

    scan_entries: int = 100_000
    mailbox: int = 256
    mailbox_bytes: int = 64 * 1024 * 1024
    per_audience: int = 32
    idle: float = 600.0
    max_live_stores: int = 64
    git: bool = True
    look_round: float = LOOK_ROUND_SECONDS
    watch_test: float = WATCH_TEST_SECONDS
    maintenance: Pace = field(default_factory=Pace)

    def inbox(self) -> InboxLimits:
        return InboxLimits(requests=self.mailbox, bytes=self.mailbox_bytes, per_audience=self.per_audience)


class Runtime:
    """Start it with the owner lock held; close it, or use it as a context manager."""

    def __init__(
        self,
        layout: Layout,
        *,
        policy: Callable[[], Policy],
        settings: RuntimeSettings | None = None,
        now_ms: Callable[[], int] = lambda: time.time_ns() // 1_000_000,
        environment: Environment | None = None,
        maintenance: Callable[[], Schedule] = lambda: Schedule(enabled=False),
        hub_percentile: Callable[[], float] = lambda: HUB_PERCENTILE_DEFAULT,
        workspace: Callable[[], Path | None] = lambda: None,
        memberships: Memberships | None = None,
        flush_prompt: Callable[[], str] = lambda: "",
        prompt_wording: PromptWording = lambda request, facts: "",
        recall_gate: Callable[[], GateSettings] = GateSettings,
        decisions: Decisions = lambda agent: None,
        system_memory: Callable[[], SystemMemorySettings] = SystemMemorySettings,
        problems: Callable[[], JsonObject] = dict,
    ) -> None:
        """``policy``, ``maintenance``, ``hub_percentile``, ``workspace``, ``recall_gate`` and ``decisions`` (an agent's
        Decision model) are read again each time: what the configuration says now; an unchanged policy is the same
        object. ``memberships``: where moves edit it. ``flush_prompt`` and ``prompt_wording`` word what a flush and a
        prompt are told. ``problems``: what else health names."""
        self._problems = problems
        self._workspace = workspace
        self._settings = settings or RuntimeSettings()
        self._hub_percentile = hub_percentile
        self._now_ms = now_ms
        environment = environment or Environment()
        # A view lives on the clock on which the authority renews it.
        self.gate = PermitGate(monotonic=environment.clock.monotonic)
        self._tree = Tree(
            [
                ChildSpec(
                    AUTHORITY,
                    partial(
                        Authority,
                        layout=layout,
                        gate=self.gate,
                        policy=policy,
                        now_ms=now_ms,
                        memberships=memberships,
                    ),
                    settings=ActorSettings(label="The access authority"),
                ),
            ],
            environment=environment,
            settings=replace(ROOT_SETTINGS, label="The runtime"),
        )
        self._authority = self._tree.handle(AUTHORITY)
        self._events = EventHub(self.gate, self._tree.environment.clock)
        self._stores = StoreDirectory(
            self._tree,
            inbox=self._settings.inbox(),
            idle_seconds=self._settings.idle,
            max_live=self._settings.max_live_stores,
            wanted=lambda vault_id: self._events.wanted(vault_id),
            reopen=self._reopen,
        )
        self._lanes = Lanes(self.gate, self._stores, self._store_settings)
        self._tool_calls = ToolCalls(self.gate, self._authority, self._lanes)
        prompting = Prompting(self.gate, self._lanes, self._tree.environment.clock, prompt_wording)
        turns, gate = recall_gate_children(Places(), self._lanes, self.gate)
        self._tree.root.start_child(turns)
        gate_started = self._tree.root.start_child(gate)
        clock = self._tree.environment.clock
        recall = RecallDesk(self.gate, gate_started, clock, recall_gate, decisions, self._await_view)
        self._providing = Providing(self.gate, self._lanes, self._stores, flush_prompt, prompting, recall)
        self._maintenance = self._tree.handle(MAINTENANCE)
        maintenance_started = self._tree.root.start_child(
            ChildSpec(
                MAINTENANCE,
                partial(
                    Maintenance,
                    layout=layout,
                    gate=self.gate,
                    schedule=maintenance,
                    open_store=self._open_store,
                    pace=self._settings.maintenance,
                ),
                settings=ActorSettings(label="Maintenance"),
                stops_first=True,
            )
        )
        remembers = ChildSpec(
            SYSTEM_MEMORY,
            partial(
                SystemMemory,
                path=layout.system_memory,
                gate=self.gate,
                settings=system_memory,
                now_us=lambda: now_ms() * 1_000,
            ),
            settings=ActorSettings(label="System memory", inbox=self._settings.inbox()),
        )
        self._reminding = Reminding(self.gate, self._tree.root.start_child(remembers))
        self._backups = Backups(layout, self.gate, self._tree, self._open_store)
        self._operators = Operators(
            Surroundings(
                layout=layout,
                gate=self.gate,
                tree=self._tree,
                authority=self._authority,
                stores=self._stores,
                maintenance=maintenance_started,
                backups=self._backups,
                settings_of=self._store_settings,
                health=self.health,
                git=self._settings.git,
                now_ms=now_ms,
            )
        )
        self._access = AccessDesk(self.gate, self._authority, now_ms, self._settle, self._unsettled)
        self._closing = threading.Event()

    # --- calls -----------------------------------------------------------------------------------------

    def submit(self, call: Call) -> PendingCall:
        """Accept a call; its answer, refusals included, comes through the pending call. Never blocks, never raises."""
        pending = PendingCall(self.gate, call)
        try:
            if self._closing.is_set():
                raise Stopping("The runtime is stopping; the call did not run.")
            validated = ValidatedCall.of(call)
            self._watch(pending, call.deadline)
            self._when_ready(lambda: self._tool_calls.start(pending, validated), pending, call.deadline)
        except KnowledgeError as error:
            pending.fail(error)
        return pending

    def provide(self, call: ProviderCall) -> PendingCall:
        """The same for a call of the memory provider."""
        pending = PendingCall(self.gate, call)
        try:
            if self._providing.answers_at_once(pending, call, stopping=self._closing.is_set()):
                return pending
            if self._closing.is_set():
                raise Stopping("The runtime is stopping; the call did not run.")
            if call.audience is not None and not isinstance(call.audience, AudienceToken):
                require_well_formed(call.audience)
            self._watch(pending, call.deadline)
            if isinstance(call.request, RecallGateRequest):
                self._providing.start(pending, call)  # its budget begins now, and it waits for a view within it
            else:
                self._when_ready(lambda: self._providing.start(pending, call), pending, call.deadline)
        except KnowledgeError as error:
            pending.fail(error)
        return pending

    def remind(self, call: SystemMemoryCall) -> PendingCall:
        """The same for a call of an account to system memory."""
        pending = pending_of(self.gate, call)
        try:
            if self._closing.is_set():
                raise Stopping("The runtime is stopping; the call did not run.")
            if not isinstance(call.audience, AudienceToken):
                require_well_formed(call.audience)
            self._watch(pending, call.deadline)
            self._when_ready(lambda: self._reminding.start(pending, call), pending, call.deadline)
        except KnowledgeError as error:
            pending.fail(error)
        return pending

    def attend(self, call: StewardCall) -> PendingCall:
        """The same for what an observer or a steward asks on the owner's own machine."""
        pending = PendingReminder(self.gate, call)
        self._watch(pending, call.deadline)
        if self._closing.is_set():
            pending.fail(Stopping("The runtime is stopping; the request did not run."))
        else:
            self._reminding.attend(pending, call)
        return pending

    def operate(self, call: OperatorCall) -> PendingOperation:
        """The same for an operator's request."""
        pending = PendingOperation(self.gate, call)
        self._watch(pending, call.deadline)
        if self._closing.is_set():
            pending.fail(Stopping("The runtime is stopping; the request did not run."))
            return pending
        request = call.request
        try:
            if isinstance(request, DoctorRequest | RebuildRegistryRequest):
                # What they are for is a registry without which there is no view.
                self._access.start(pending, request)
            elif isinstance(request, AccessRequest):
                self._when_ready(partial(self._access.start, pending, request), pending, call.deadline)
            else:
                self._when_ready(lambda: self._operators.start(pending), pending, call.deadline)
        except KnowledgeError as error:
            pending.fail(error)
        return pending

    def subscribe(self, call: SubscribeCall, ready: Callable[[PendingEvent], None]) -> Subscription:
        """Tell ``ready`` of each event for this subscriber, to be delivered like an answer, until the subscription is
        ended. The store is opened and stays open, so that edits are seen; none is created.

        The subscription is its own pending answer; refusals come through it. Never blocks, never raises.
        """
        subscription = Subscription(self._events, call.subscriber, ready, call.correlation_id)

        def begin() -> None:
            permit = subscription.begin()
            layout = None if permit is None else self.gate.layout_of(permit.vault_id)
            if permit is not None and layout is not None:
                self._stores.open(permit.vault_id, self._store_settings(permit.vault_id, layout))

        try:
            if self._closing.is_set():
                raise Stopping("The runtime is stopping; nothing was subscribed.")
            self._when_ready(begin, subscription, call.deadline)
        except KnowledgeError as error:
            subscription.fail(error)
        return subscription

    def end_run(self, run_id: str, deadline: Deadline, by: By | None = None) -> Reply[bool]:
        """Make a run's audiences stale; answered when no save and no answer under them can follow any more.

        ``by`` stands in the audit where that revokes tokens of the run; left out, the program itself.
        """
        by = by or By("host", "program", self._now_ms())
        both: Reply[bool] = Reply()

        def end() -> None:
            unsettled = self._settle(self._unsettled())
            # Both at once: a fence that a crash left taken is released by the opening of its store.
            self._authority.ask(EndRun(run_id, by), deadline=deadline).add_done_callback(
                lambda done: _pass_on(done, both, lambda: unsettled.add_done_callback(partial(_pass_on, to=both)))
            )

        if self.gate.open():
            end()
        else:
            self._await_view(deadline).add_done_callback(lambda ready: _pass_on(ready, both, end))
        return both

    def health(self) -> JsonObject:
        """The published snapshots of all actors, and the problems beside them; asks nobody."""
        return {
            "stopping": self._closing.is_set(),
            "stores": self._stores.live_ids(),
            "actors": [_shown(health) for health in self._tree.health()],
            "deadLetters": dict(self._tree.environment.dead_letters.counts().items()),
            **self._problems(),
        }

    def ready(self) -> bool:
        """Whether a call would be taken now: not while it stops, or while nobody can decide access."""
        return not self._closing.is_set() and self.gate.open()

    def busy(self) -> bool:
        """Whether any store has unanswered requests, or maintenance or a backup is under way."""
        return (
            self._stores.busy() or self._backups.running() or self._maintenance.health().detail.get("running") is True
        )

    def close(self, drain_seconds: float = 5.0) -> ClosedTree:
        """Refuse, drain, stop in order and join; idempotent."""
        self._closing.set()
        self._backups.stop()
        self._stores.close()
        return self._tree.close(drain_seconds)

    def __enter__(self) -> Runtime:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # --- inside ----------------------------------------------------------------------------------------

    def _watch(self, pending: PendingCall | PendingOperation, deadline: Deadline) -> None:
        """Have it answered at its deadline, whatever it waits for: the authority, a store's opening or its stop."""
        clock = self._tree.environment.clock
        overdue = clock.call_later(max(deadline.remaining(clock.monotonic), 0.0), pending.expire)
        pending.add_done_callback(lambda _: overdue.cancel())

    def _when_ready(
        self, proceed: Callable[[], None], pending: PendingCall | PendingOperation | Subscription, deadline: Deadline
    ) -> None:
        """Run ``proceed`` now, or once the authority has published its first view."""
        if self.gate.open():
            proceed()
            return
        self._await_view(deadline).add_done_callback(lambda reply: guarded(pending, reply, lambda _: proceed()))

    def _await_view(self, deadline: Deadline) -> Reply[bool]:
        """Answered once the authority has published a view."""
        # It has only started, or is being restarted: its mailbox keeps the question meanwhile.
        return self._authority.ask(AwaitView(), deadline=deadline)

    def _settle(self, stores: Collection[str]) -> Reply[bool]:
        return settle(stores, self.gate, self._open_store, self._stores.quarantined, self._tree.environment.clock)

    def _unsettled(self) -> list[str]:
        return [vault_id for vault_id in self.gate.stores() if self._may_be_unsettled(vault_id)]

    def _may_be_unsettled(self, vault_id: str) -> bool:
        """Whether a store that nobody has open may hold an accepted save that is not in place: a run may have saved in
        any store, and not all of them can be opened for its end."""
        if self.gate.is_settled(vault_id):
            return False
        layout = self.gate.layout_of(vault_id)
        return self.gate.was_left(vault_id) or (layout is not None and was_interrupted(layout))

    def _open_store(self, vault_id: str) -> Reply[StoreHandle]:
        layout = self.gate.layout_of(vault_id)
        if layout is None:
            lost: Reply[StoreHandle] = Reply()
            lost.fail(StoreUnavailable("No agent uses this store any more.", reason="unassigned"))
            return lost
        return self._stores.open(vault_id, self._store_settings(vault_id, layout))

    def _reopen(self, vault_id: str) -> None:
        """Open a store for its subscribers; one that cannot be opened now is opened by its next call."""
        try:
            self._open_store(vault_id)
        except KnowledgeError as error:
            logger.info("a store was not opened again", extra={"store": vault_id, "code": error.code})

    def _store_settings(self, vault_id: str, layout: StoreLayout) -> StoreSettings:
        return StoreSettings(
            vault_id=vault_id,
            layout=layout,
            gate=self.gate,
            now_ms=self._now_ms,
            limits=ScanLimits(entries=self._settings.scan_entries),
            git=self._settings.git,
            look_round=self._settings.look_round,
            watch_test=self._settings.watch_test,
            hub_percentile=self._hub_percentile,
            workspace=self._workspace,
            events=self._events,
        )


def _pass_on(reply: Reply[R], to: Reply[bool], proceed: Callable[[], object] | None = None) -> None:
    """Give an answer on; a success goes on with ``proceed`` where there is one."""
    error = reply.error()
    if error is not None:
        to.fail(error)
    elif proceed is None:
        to.succeed(True)
    else:
        proceed()


def _shown(health: ActorHealth) -> JsonObject:
    """One actor as health reports show it: ids, states and numbers, never a payload."""
    shown: JsonObject = {
        "name": health.name,
        "state": health.state,
        "incarnation": health.incarnation,
        "queued": health.queued,
        "unanswered": health.unanswered,
        "handled": health.handled,
        "crashes": health.crashes,
        "busySeconds": round(health.busy_seconds, 3),
    }
    if health.last_error:
        shown["lastError"] = health.last_error
    if health.quarantine is not None:
        found: JsonObject = {"reason": health.quarantine.reason, "since": health.quarantine.since.isoformat()}
        if health.quarantine.detail:
            found["detail"] = health.quarantine.detail
        shown["quarantine"] = found
    if health.progress:
        shown["progress"] = dict(health.progress)
    if health.detail:
        shown["detail"] = dict(health.detail)
    return shown

"""The gate: resolves permits from the published view, and holds the commit fence and the read lease.

Only the fence and the lease lock. A change of access publishes the new view under the same lock that fences
and leases take, then waits until nobody inside holds a right that the new view no longer gives: that wait is
the barrier (decisions.md section 6).
"""

from __future__ import annotations

import itertools
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import Final

from actors.authority.permit import Accountholder, Inspection, Permit, Upkeep
from actors.authority.view import (
    AuthorityView,
    Unbound,
    key_holder,
    may_move,
    read_token,
    require_audience,
    require_scope,
    resolve,
    resolve_account,
    resolve_operator,
    resolve_upkeep,
)
from messages.audience import Audience, AudienceToken, Caller, Conversation, originating
from messages.errors import Denied, KnowledgeError, LimitExceeded, Restarting, StoreOpening
from messages.operator import Operator, Scope
from messages.vocabulary import Partition
from storage.layout import StoreLayout

SEEN_MAX: Final = 10_000
"""Conversations that are remembered between two renewals of the view."""
ENDED_RUNS_MAX: Final = 100_000
"""Runs that one process ends. None of them may be forgotten: an audience need not expire. About 20 MB."""


def utc_now() -> datetime:
    return datetime.now(UTC)


class PermitGate:
    """Thread-safe. Shared by doors, lanes and the authority; holds no I/O."""

    def __init__(
        self, *, monotonic: Callable[[], float] = time.monotonic, now: Callable[[], datetime] = utc_now
    ) -> None:
        self._monotonic = monotonic
        self._now = now
        self._changed = threading.Condition()
        self._view: AuthorityView | None = None
        self._inside: dict[int, tuple[Permit, bool]] = {}
        self._stranded: dict[int, tuple[Permit, bool]] = {}
        self._unfinished: dict[int, tuple[Permit, bool]] = {}
        self._settled: set[str] = set()
        self._left: set[str] = set()
        self._tokens = itertools.count()
        self._epoch = 0
        self._ended_runs: frozenset[str] = frozenset()
        self._erased: dict[tuple[str, Partition], int] = {}
        self._seen: dict[tuple[str, str], int] = {}

    # --- the authority's side -------------------------------------------------------------------------

    def publish(self, view: AuthorityView) -> None:
        """Make ``view`` the one that decides from now on. Authority thread."""
        with self._changed:
            self._view = view

    def next_epoch(self) -> int:
        """A number larger than that of every view before, whichever authority published it."""
        with self._changed:
            self._epoch += 1
            return self._epoch

    @property
    def ended_runs(self) -> frozenset[str]:
        """The runs that the host has ended; kept here, since an authority that restarts must not forget them."""
        return self._ended_runs

    def end_run(self, run_id: str) -> None:
        """Note that a run is over; in force with the next published view. Authority thread.

        Raises ``LimitExceeded`` beyond :data:`ENDED_RUNS_MAX`, rather than forget one whose audience may be used still.
        """
        with self._changed:
            if len(self._ended_runs) >= ENDED_RUNS_MAX and run_id not in self._ended_runs:
                raise LimitExceeded(
                    f"This process has ended {ENDED_RUNS_MAX} runs and can remember no more, so this one goes on; its "
                    "tokens are revoked. Restart the owner, and mint audiences that expire.",
                    field="runId",
                    limit=ENDED_RUNS_MAX,
                )
            self._ended_runs |= {run_id}

    def erase(self, vault_id: str, partition: Partition) -> None:
        """End every permit to a partition that was resolved so far: what was computed under it has been erased. In
        force with the next published view, which must have a new epoch. Authority thread.

        One number is kept for each erased partition.
        """
        with self._changed:
            self._erased[vault_id, partition] = self._epoch

    def open(self) -> bool:
        """Whether a view is in force."""
        view = self._view
        return view is not None and view.vouched_for(self._monotonic())

    def layout_of(self, vault_id: str) -> StoreLayout | None:
        """Where the current view says that a store lies."""
        return self._current().layouts.get(vault_id)

    def place_of(self, permit: Permit) -> StoreLayout:
        """Where the store of a permit lies. Raises ``StoreOpening`` when a move came between: it did not run."""
        layout = self.layout_of(permit.vault_id)
        if layout is None:
            raise StoreOpening("The agent's store changed while the call waited; the call did not run. Try again.")
        return layout

    def withdraw_view(self) -> None:
        """Refuse everything until a view is published again. Any thread; used when the authority ends."""
        with self._changed:
            self._view = None

    def await_barrier(self, timeout: float, concerns: Callable[[Permit], bool] = lambda _: True) -> bool:
        """Whether, within ``timeout`` seconds, nobody inside of those whom a change ``concerns`` holds more than the
        current view gives.

        Never called on an actor's own lane for longer than a moment: the authority polls it from timers.
        """
        limit = self._monotonic() + timeout
        with self._changed:
            while self._outdated_holders(concerns):
                left = limit - self._monotonic()
                if left <= 0 or not self._changed.wait(left):
                    return not self._outdated_holders(concerns)
            return True

    def recovered(self, vault_id: str) -> None:
        """Release fences that a crashed lane of this store took along: its recovery has finished, or it is in
        quarantine and commits nothing more."""
        with self._changed:
            self._settled.add(vault_id)
            self._left.discard(vault_id)
            self._release(self._stranded, vault_id)
            self._release(self._unfinished, vault_id)

    def finished(self, vault_id: str) -> None:
        """Release the fences of saves that were accepted and could not be put in place at once: now they are."""
        if not self._unfinished:
            return
        with self._changed:
            self._release(self._unfinished, vault_id)

    def left_unsettled(self, vault_id: str) -> None:
        """A store was closed with work that its next opening finishes: until then it is not settled."""
        with self._changed:
            self._settled.discard(vault_id)
            self._left.add(vault_id)

    def is_settled(self, vault_id: str) -> bool:
        """Whether this process has opened the store and left no accepted save in it unfinished by closing it."""
        return vault_id in self._settled

    def was_left(self, vault_id: str) -> bool:
        """Whether this process closed the store with something unfinished."""
        return vault_id in self._left

    def vaults_of(self, agents: Iterable[str]) -> tuple[str, ...]:
        """The stores that these agents use now, as far as they exist; none while no view is in force."""
        view = self._view
        if view is None:
            return ()
        found = (view.members[agent].vault_id for agent in agents if agent in view.members)
        return tuple(sorted({vault_id for vault_id in found if vault_id is not None}))

    def agents_of(self, vault_id: str) -> tuple[str, ...]:
        """The agents that use a store now; none while no view is in force."""
        view = self._view
        members = {} if view is None else view.members
        return tuple(sorted(agent for agent, member in members.items() if member.vault_id == vault_id))

    # --- the callers' side ----------------------------------------------------------------------------

    def resolve(self, audience: Audience | None, *, write: bool) -> Permit | Unbound:
        """The permit for this audience now. Raises the refusals of :func:`actors.authority.view.resolve`,
        and ``Restarting`` while no authority vouches for a view."""
        now = self._now()
        audience = require_audience(audience)
        found = resolve(self._current(), audience, write=write, now=now)
        origin = originating(audience)
        if isinstance(origin, Conversation) and len(self._seen) < SEEN_MAX:
            self._seen[origin.agent, origin.session_key] = round(now.timestamp() * 1000)
        return found

    def resolve_account(self, audience: Audience | None, *, write: bool) -> Permit:
        """The same for the audience's account in system memory. Raises the refusals of
        :func:`actors.authority.view.resolve_account`, and ``Restarting`` while no authority vouches for a view."""
        return resolve_account(self._current(), require_audience(audience), write=write, now=self._now())

    def audience_of(self, caller: Caller | None) -> Audience | None:
        """The audience of a caller that may have come with a token instead. Raises the refusals of
        :func:`actors.authority.view.read_token`, and ``Restarting`` while no authority vouches for a view."""
        if not isinstance(caller, AudienceToken):
            return caller
        return read_token(self._current(), caller.text, self._now())

    def key_holder(self, text: str) -> Operator:
        """Who speaks with a key of the HTTP door. Raises the refusals of :func:`actors.authority.view.key_holder`, and
        ``Restarting`` while no authority vouches for a view."""
        return key_holder(self._current(), text)

    def take_seen(self) -> dict[tuple[str, str], int]:
        """Agent and session key of the conversations that were let in since the last time, and when (UTC ms)."""
        seen, self._seen = self._seen, {}
        return seen

    def resolve_upkeep(self, upkeep: Upkeep, *, write: bool) -> Permit:
        """The same for the runtime itself, when it looks after a store."""
        return resolve_upkeep(self._current(), upkeep, write=write)

    def stores(self) -> tuple[str, ...]:
        """The stores that exist and that agents use, in a fixed order."""
        return tuple(sorted(self._current().layouts))

    def resolve_operator(
        self, operator: Operator, agent: str | None, *, scope: Scope, write: bool = False
    ) -> Permit | Unbound:
        """The same for an operator, on the private partition of an agent's store."""
        return resolve_operator(self._current(), operator, agent, scope=scope, write=write, now=self._now())

    def require_scope(self, operator: Operator, scope: Scope, *, vault_id: str | None = None) -> None:
        """Raise ``Denied`` unless the operator may do this now, and to this store where one is named."""
        view = self._current()
        require_scope(view, operator, scope)
        if vault_id is not None and not may_move(view, operator, vault_id):
            raise Denied("This store is not among those of this operator's agents.", vaultId=vault_id)

    def first_agent(self, operator: Operator) -> str | None:
        """The first of the host's agents that is in the operator's role."""
        return next((agent for agent in self._current().members if operator.sees(agent)), None)

    def check(self, permit: Permit, *, write: bool) -> None:
        """Raise unless the right still stands. Costs one comparison while the epoch is unchanged."""
        view = self._current()
        if view.epoch == permit.epoch and (permit.expires_at is None or self._now() < permit.expires_at):
            return
        if permit.epoch <= self._erased.get((permit.vault_id, permit.partition), -1):
            raise Denied("The conversation was erased while the call was under way.", reason="erased")
        holder = permit.audience
        match holder:
            case Upkeep():
                again: Permit | Unbound = resolve_upkeep(view, holder, write=write)
            case Inspection(operator, agent, scope):
                again = resolve_operator(view, operator, agent, scope=scope, write=write, now=self._now())
            case Accountholder(audience):
                again = resolve_account(view, audience, write=write, now=self._now())
            case _:
                again = resolve(view, holder, write=write, now=self._now())
        if isinstance(again, Unbound) or not again.covers(permit, write=write):
            raise Denied("The access under which this call was accepted has been withdrawn.")

    @contextmanager
    def fence(self, permit: Permit, unfinished: Callable[[], bool] = lambda: False) -> Iterator[None]:
        """The commit fence: inside it the save may become durable; a revocation waits for it.

        Where ``unfinished`` says at its end that the save was accepted and is not in place yet, it stays taken until
        :meth:`finished`. Left by a defect, or by an error that may have stored something (``retry: unknown``), it
        stays taken until :meth:`recovered`: the journal commit may have happened and is finished by recovery.
        """
        token = self._enter(permit, write=True)
        try:
            yield
        except BaseException as error:
            if isinstance(error, KnowledgeError) and error.retry != "unknown":
                self._leave(token)
            else:
                self._move(token, self._stranded)
            raise
        else:
            if unfinished():
                self._move(token, self._unfinished)
            else:
                self._leave(token)

    @contextmanager
    def lease(self, permit: Permit) -> Iterator[None]:
        """The read lease: the last check and the hand-over of an answer's bytes are one step."""
        token = self._enter(permit, write=False)
        try:
            yield
        finally:
            self._leave(token)

    # --- inside ----------------------------------------------------------------------------------------

    def _current(self) -> AuthorityView:
        view = self._view
        if view is None or not view.vouched_for(self._monotonic()):
            raise Restarting("Access cannot be decided at the moment; try again shortly.")
        return view

    def _enter(self, permit: Permit, *, write: bool) -> int:
        with self._changed:
            self.check(permit, write=write)
            token = next(self._tokens)
            self._inside[token] = permit, write
            return token

    def _move(self, token: int, to: dict[int, tuple[Permit, bool]]) -> None:
        with self._changed:
            to[token] = self._inside.pop(token)

    def _release(self, held: dict[int, tuple[Permit, bool]], vault_id: str) -> None:
        """Holds the lock."""
        for token in [token for token, (permit, _) in held.items() if permit.vault_id == vault_id]:
            del held[token]
        self._changed.notify_all()

    def _leave(self, token: int) -> None:
        with self._changed:
            self._inside.pop(token, None)
            self._changed.notify_all()

    def _outdated_holders(self, concerns: Callable[[Permit], bool]) -> bool:
        holders = (*self._inside.values(), *self._stranded.values(), *self._unfinished.values())
        return any(concerns(permit) and not self._still_given(permit, write) for permit, write in holders)

    def _still_given(self, permit: Permit, write: bool) -> bool:
        try:
            self.check(permit, write=write)
        except KnowledgeError:
            return False
        return True

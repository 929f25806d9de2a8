"""The gate: resolves permits from the published view, and holds the commit fence and the read lease.

Only the fence and the lease lock. A change of access publishes the new view under the same lock that fences
and leases take, then waits until nobody inside holds a right that the new view no longer gives: that wait is
the barrier (decisions.md section 6).
"""

from __future__ import annotations

import itertools
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import Final

from actors.authority.permit import Inspection, Permit, Upkeep
from actors.authority.view import (
    AuthorityView,
    Unbound,
    may_move,
    require_scope,
    resolve,
    resolve_operator,
    resolve_upkeep,
)
from messages.audience import Audience, Conversation, originating
from messages.errors import Denied, KnowledgeError, Restarting, StoreOpening
from messages.operator import Operator, Scope
from storage.layout import StoreLayout

SEEN_MAX: Final = 10_000
"""Conversations that are remembered between two renewals of the view."""


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
        self._tokens = itertools.count()
        self._epoch = 0
        self._ended_runs: frozenset[str] = frozenset()
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
        """Note that a run is over; in force with the next published view. Authority thread."""
        with self._changed:
            self._ended_runs |= {run_id}

    def open(self) -> bool:
        """Whether a view is in force."""
        view = self._view
        return view is not None and self._monotonic() < view.valid_until

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

    def await_barrier(self, timeout: float) -> bool:
        """Whether, within ``timeout`` seconds, nobody inside holds more than the current view gives.

        Never called on an actor's own lane for longer than a moment: the authority polls it from timers.
        """
        limit = self._monotonic() + timeout
        with self._changed:
            while self._outdated_holders():
                left = limit - self._monotonic()
                if left <= 0 or not self._changed.wait(left):
                    return not self._outdated_holders()
            return True

    def recovered(self, vault_id: str) -> None:
        """Release fences that a crashed lane of this store took along: its recovery has finished."""
        with self._changed:
            for token in [t for t, (permit, _) in self._stranded.items() if permit.vault_id == vault_id]:
                del self._stranded[token]
            self._changed.notify_all()

    # --- the callers' side ----------------------------------------------------------------------------

    def resolve(self, audience: Audience | None, *, write: bool) -> Permit | Unbound:
        """The permit for this audience now. Raises the refusals of :func:`actors.authority.view.resolve`,
        and ``Restarting`` while no authority vouches for a view."""
        now = self._now()
        found = resolve(self._current(), audience, write=write, now=now)
        assert audience is not None
        origin = originating(audience)
        if isinstance(origin, Conversation) and len(self._seen) < SEEN_MAX:
            self._seen[origin.agent, origin.session_key] = round(now.timestamp() * 1000)
        return found

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
        return next((a for a in self._current().members if operator.agents is None or a in operator.agents), None)

    def check(self, permit: Permit, *, write: bool) -> None:
        """Raise unless the right still stands. Costs one comparison while the epoch is unchanged."""
        view = self._current()
        if view.epoch == permit.epoch and (permit.expires_at is None or self._now() < permit.expires_at):
            return
        holder = permit.audience
        match holder:
            case Upkeep():
                again: Permit | Unbound = resolve_upkeep(view, holder, write=write)
            case Inspection(operator, agent, scope):
                again = resolve_operator(view, operator, agent, scope=scope, write=write, now=self._now())
            case _:
                again = resolve(view, holder, write=write, now=self._now())
        if isinstance(again, Unbound) or not again.covers(permit, write=write):
            raise Denied("The access under which this call was accepted has been withdrawn.")

    @contextmanager
    def fence(self, permit: Permit) -> Iterator[None]:
        """The commit fence: inside it the save may become durable; a revocation waits for it.

        Left by a defect, or by an error that may have stored something (``retry: unknown``), it stays taken until
        :meth:`recovered`: the journal commit may have happened and is finished by recovery.
        """
        token = self._enter(permit, write=True)
        try:
            yield
        except BaseException as error:
            if isinstance(error, KnowledgeError) and error.retry != "unknown":
                self._leave(token)
            else:
                self._strand(token)
            raise
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
        if view is None or self._monotonic() >= view.valid_until:
            raise Restarting("Access cannot be decided at the moment; try again shortly.")
        return view

    def _enter(self, permit: Permit, *, write: bool) -> int:
        with self._changed:
            self.check(permit, write=write)
            token = next(self._tokens)
            self._inside[token] = permit, write
            return token

    def _strand(self, token: int) -> None:
        with self._changed:
            self._stranded[token] = self._inside.pop(token)

    def _leave(self, token: int) -> None:
        with self._changed:
            self._inside.pop(token, None)
            self._changed.notify_all()

    def _outdated_holders(self) -> bool:
        holders = (*self._inside.values(), *self._stranded.values())
        return any(not self._still_given(permit, write) for permit, write in holders)

    def _still_given(self, permit: Permit, write: bool) -> bool:
        try:
            self.check(permit, write=write)
        except KnowledgeError:
            return False
        return True

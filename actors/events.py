"""Who hears that a partition changed: lanes publish, subscribers are told once until they were served.

Guarantees: an event says which kind and which partition, never what; a subscriber that is slow has at most one event of
a kind waiting; each event is authorised again at the moment it is handed over, and a subscriber whose right has ended
hears nothing any more. Publishing never blocks and never raises. Any thread.

Source: tools.md (Live state), decisions.md section 7 (events.subscribe).
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from dataclasses import replace
from typing import Final, Literal, Protocol, TypeAlias

from actors.authority import Permit, PermitGate, Unbound
from actors.supervision import Clock, Reply
from messages.errors import Cancelled, KnowledgeError, Restarting
from messages.json_types import JsonObject
from messages.operator import Subscriber
from messages.vocabulary import Partition

EventType: TypeAlias = Literal["changed", "status"]
"""``changed``: records were written or edited. ``status``: freshness, Git, pending work or health differ."""

PAUSE_SECONDS: Final = 0.25
"""At least this long between two events of a kind for one subscriber: what comes meanwhile is merged."""

logger = logging.getLogger(__name__)


class EventSink(Protocol):
    """What a lane tells."""

    def publish(self, vault_id: str, partition: Partition, kind: EventType) -> None: ...


class Silence:
    """A sink for a store that nobody listens to."""

    def publish(self, vault_id: str, partition: Partition, kind: EventType) -> None:
        """Nobody hears it."""


class PendingEvent:
    """One event that waits to be handed over, in the shape of an answer."""

    __slots__ = ("_kind", "_subscription")

    def __init__(self, subscription: Subscription, kind: EventType) -> None:
        self._subscription = subscription
        self._kind: EventType = kind

    def add_done_callback(self, callback: Callable[[PendingEvent], None], /) -> None:
        """It is ready from the beginning."""
        callback(self)

    def deliver(self, hand_over: Callable[[JsonObject], None]) -> None:
        """Hand it over under the read lease, or raise: then the subscription is over."""
        self._subscription.hand_over(self._kind, hand_over)

    def cancel(self) -> None:
        """The subscription is what ends, not one event."""


class Subscription:
    """One subscriber's interest. ``ready`` is called with each event that is to be delivered; it must not block.

    It is also the pending answer to its own request: ``{}`` once :meth:`begin` has found that the subscriber may hear.
    """

    def __init__(
        self,
        hub: EventHub,
        subscriber: Subscriber,
        ready: Callable[[PendingEvent], None],
        correlation_id: str = "",
    ) -> None:
        self.subscriber = subscriber
        self.correlation_id = correlation_id
        self._hub = hub
        self._ready = ready
        self._lock = threading.Lock()
        self._waiting: set[EventType] = set()
        self._resting: set[EventType] = set()
        self._missed: set[EventType] = set()
        self._ended = False
        self._begun: Reply[JsonObject] = Reply()

    def begin(self) -> Permit | None:
        """Hear from now on; what the subscriber may read. Raises when it has no right to hear anything."""
        self.subscriber = replace(self.subscriber, audience=self._hub.gate.audience_of(self.subscriber.audience))
        permit = self.permit()
        self._hub.remember(self)
        with self._lock:
            ended = self._ended
        if ended:
            # Whoever ended it looked for it too early to find it: ended and remembered, it would keep its store open.
            self._hub.forget(self)
            return None
        self._begun.succeed({})
        return permit

    def fail(self, error: KnowledgeError) -> None:
        """It never begins."""
        self._begun.fail(error)
        self.end()

    def add_done_callback(self, callback: Callable[[Subscription], None], /) -> None:
        """Run ``callback(self)`` once it is decided whether the subscription stands."""
        self._begun.add_done_callback(lambda _: callback(self))

    def deliver(self, hand_over: Callable[[JsonObject], None]) -> None:
        """Hand over that it stands, or raise why not."""
        hand_over(self._begun.result())

    def cancel(self) -> None:
        """Nobody waits for it any more."""
        self.end()

    def end(self) -> None:
        """Hear nothing any more; idempotent. One that has not begun never does."""
        with self._lock:
            self._ended = True
        self._hub.forget(self)
        self._begun.fail(Cancelled("The subscription was ended before it began."))

    def permit(self) -> Permit | None:
        """What the subscriber may read now; ``None`` while its agent has no store. Raises the refusals."""
        return self._hub.permit_of(self.subscriber)

    def stands(self) -> bool:
        """Whether it goes on: not once it was ended, or the subscriber's right to hear has. Any thread."""
        with self._lock:
            if self._ended:
                return False
        try:
            self.permit()
        except Restarting:
            return True  # nobody can decide at the moment
        except KnowledgeError:
            self.end()
            return False
        return True

    def offer(self, kind: EventType) -> None:
        """Something happened that the subscriber may hear of. Never raises: a lane stands behind it."""
        with self._lock:
            if self._ended or kind in self._waiting:
                return
            if kind in self._resting:
                self._missed.add(kind)
                return
            self._waiting.add(kind)
        try:
            self._ready(PendingEvent(self, kind))
        except BaseException as error:  # noqa: BLE001 - whatever a subscriber does, it must not end who tells it
            logger.error("a subscription was ended by its own defect", extra={"error_type": type(error).__name__})
            self.end()

    def hand_over(self, kind: EventType, hand_over: Callable[[JsonObject], None]) -> None:
        with self._lock:
            # From here on a change is a new event: its reader may have looked already.
            self._waiting.discard(kind)
            self._resting.add(kind)
        self._hub.later(lambda: self._rested(kind))
        try:
            permit = self.permit()
            if permit is None:
                return
            with self._hub.gate.lease(permit):
                hand_over({"type": kind, "partition": permit.partition.kind})
        except Restarting:
            self.offer(kind)  # nobody can decide at the moment; it comes with the next pause
        except KnowledgeError:
            self.end()

    def _rested(self, kind: EventType) -> None:
        with self._lock:
            self._resting.discard(kind)
            again = kind in self._missed
            self._missed.discard(kind)
        if again:
            self.offer(kind)


class EventHub:
    """All subscriptions of one runtime."""

    def __init__(self, gate: PermitGate, clock: Clock) -> None:
        self.gate = gate
        self._clock = clock
        self._lock = threading.Lock()
        self._subscriptions: tuple[Subscription, ...] = ()

    def remember(self, subscription: Subscription) -> None:
        with self._lock:
            self._subscriptions = (*self._subscriptions, subscription)

    def forget(self, subscription: Subscription) -> None:
        with self._lock:
            self._subscriptions = tuple(one for one in self._subscriptions if one is not subscription)

    def publish(self, vault_id: str, partition: Partition, kind: EventType) -> None:
        """Tell everybody whose partition it is. Costs nothing without subscribers."""
        for subscription in self._subscriptions:
            permit = self._permit_or_none(subscription)
            if permit is not None and _concerns(permit, vault_id, partition):
                subscription.offer(kind)

    def wanted(self, vault_id: str) -> bool:
        """Whether somebody listens to this store, so that it stays open and watches."""
        permits = (self._permit_or_none(subscription) for subscription in self._subscriptions)
        return any(permit is not None and permit.vault_id == vault_id for permit in permits)

    def permit_of(self, subscriber: Subscriber) -> Permit | None:
        """The permit under which a subscriber hears; ``None`` while there is no store."""
        if subscriber.operator is not None:
            found = self.gate.resolve_operator(subscriber.operator, subscriber.agent, scope="operator.read")
        else:
            found = self.gate.resolve(self.gate.audience_of(subscriber.audience), write=False)
        return None if isinstance(found, Unbound) else found

    def later(self, action: Callable[[], None]) -> None:
        self._clock.call_later(PAUSE_SECONDS, action)

    def _permit_or_none(self, subscription: Subscription) -> Permit | None:
        try:
            return subscription.permit()
        except Restarting:
            return None
        except KnowledgeError as error:
            logger.info("a subscription ended", extra={"code": error.code})
            subscription.end()
            return None


def _concerns(permit: Permit, vault_id: str, partition: Partition) -> bool:
    return (permit.vault_id, permit.partition) == (vault_id, partition)

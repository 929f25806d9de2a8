"""A slot: the place of an actor in the tree. It outlives incarnations; handles and parents hold it.

Source: DESIGN.md rules 2, 3, 6, 7 and 9.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Mapping
from typing import TYPE_CHECKING

from pykka import ActorDeadError
from pykka._envelope import Envelope as PykkaEnvelope
from pykka.messages import _ActorStop

from actors.supervision._dead_letters import DeadLetter, DeadLetterReason
from actors.supervision._health import ActorHealth, Quarantine, State
from actors.supervision._inbox import Inbox, Refusal
from actors.supervision._messages import Envelope, ForeignStop
from actors.supervision._refusals import Maker, absent, opening, overdue, quarantined, restarting, stopping, stuck
from actors.supervision._reply import Phase, deadline_error
from actors.supervision._settings import ActorSettings
from messages.errors import Busy, KnowledgeError, LimitExceeded, Restarting
from messages.json_types import JsonValue

if TYPE_CHECKING:
    from actors.supervision._environment import Environment


class Slot:
    """One named place in the tree, with the mailbox of its current or next incarnation. Any thread.

    While a start or a restart is awaited, the next incarnation's mailbox is open already: requests wait in it, bounded
    as ever, up to their own deadline; one whose deadline comes before the restart is refused at once and told when to
    come back. In every other state without an actor the mailbox is closed, and its refusal names the state of the
    nearest ancestor that explains it.
    """

    def __init__(self, environment: Environment, name: str, parent: Slot | None) -> None:
        self.environment = environment
        self.name = name
        self.parent = parent
        self.settings = ActorSettings()
        self.children: dict[str, Slot] = {}
        self.keeps_requests = False
        """Whether requests may wait here while an ancestor restarts: true for children that come back with it."""
        self.known = False
        """Whether a supervisor has this child; another slot was only looked up."""
        self.incarnation = 0
        self.live = False
        self.handled = 0
        self.crashes = 0
        self.busy_since: float | None = None
        self.last_error = ""
        self.detail: Mapping[str, JsonValue] = {}
        self.progress: Mapping[str, JsonValue] = {}
        self.quarantine: Quarantine | None = None
        self._lock = threading.Lock()
        self._state: State = "absent"
        self._restart_at = 0.0
        """When the awaited restart is due (monotonic); 0 for at once or for an ancestor's to know."""
        self._adopted = False
        self._blamed: OrderedDict[str, int] = OrderedDict()
        self._inbox = self._new_inbox()
        self._inbox.close(self._refusal(absent))

    # --- asking and telling: any thread -----------------------------------------------------------------------

    @property
    def label(self) -> str:
        """What its answers call it: a label of its own or of an ancestor, else its name."""
        place: Slot | None = self
        while place is not None:
            if place.settings.label:
                return place.settings.label
            place = place.parent
        return self.name

    @property
    def state(self) -> State:
        return self._state

    @property
    def is_awaited(self) -> bool:
        """Whether a first or a next start is still to come."""
        return self._state in ("starting", "restarting") and self._inbox.accepting

    @property
    def inbox(self) -> Inbox:
        return self._inbox

    def admit(self, envelope: Envelope, incarnation: int | None = None) -> KnowledgeError | None:
        """Queue a request for the current or the awaited incarnation, or the typed reason why not."""
        while True:
            inbox, serves = self._mailbox()
            if incarnation is not None and incarnation != serves:
                return Restarting(f"{self.label} was restarted since; the request did not run. Begin again.")
            if envelope.deadline.at < self._restart_at and self._state == "restarting":
                return self._restarting(Phase.QUEUED)
            error = inbox.admit(envelope)
            if error is None:
                return None
            if self._state == "absent" and self._await_parent():
                continue
            if inbox is self._inbox:
                return error if isinstance(error, Busy | LimitExceeded) else self._explanation() or error

    def tell(self, envelope: Envelope, incarnation: int | None = None) -> bool:
        """Queue a one-way message; a refused one becomes a dead letter."""
        while True:
            inbox, serves = self._mailbox()
            if incarnation is not None and incarnation != serves:
                self.dead_letter(envelope.message, "stale", envelope.correlation_id)
                return False
            outcome = inbox.tell(envelope)
            if outcome == "queued" or outcome == "merged":
                return True
            if outcome == "full" or inbox is self._inbox:
                self.dead_letter(envelope.message, outcome, envelope.correlation_id)
                return False

    def overdue(self, phase: Phase) -> KnowledgeError:
        """The answer at a request's deadline: a queued one learns what it was waiting for."""
        if phase is Phase.QUEUED:
            if self._state in ("starting", "opening"):
                return opening(self.label, self.progress)
            if self._state == "restarting":
                return overdue(self.label, self._until_restart())
        else:
            self.dead_letter(None, "expired")
        return deadline_error(phase)

    def health(self) -> ActorHealth:
        """The published snapshot; nobody is asked."""
        queued, unanswered, size = self._inbox.figures()
        busy_since = self.busy_since
        return ActorHealth(
            name=self.name,
            state=self._state,
            incarnation=self.incarnation,
            live=self.live,
            ready=self._state == "ready",
            queued=queued,
            unanswered=unanswered,
            unanswered_bytes=size,
            handled=self.handled,
            crashes=self.crashes,
            busy_seconds=0.0 if busy_since is None else self.environment.clock.monotonic() - busy_since,
            quarantine=self.quarantine,
            last_error=self.last_error,
            progress=self.progress if self._state in ("starting", "opening") else {},
            detail=self.detail,
        )

    # --- poison -----------------------------------------------------------------------------------------------

    def poisoned(self, request_key: str) -> bool:
        """Whether requests with this key crashed the actor often enough to be refused."""
        with self._lock:
            return self._blamed.get(request_key, 0) >= self.settings.poison_after

    def blame(self, request_key: str) -> None:
        """One more crash in the handling of ``request_key``."""
        with self._lock:
            self._blamed[request_key] = self._blamed.pop(request_key, 0) + 1
            while len(self._blamed) > self.settings.poison_keys:
                del self._blamed[min(self._blamed, key=self._blamed.__getitem__)]

    # --- states: the parent's thread, or the actor's own ------------------------------------------------------

    def await_start(self, settings: ActorSettings, *, keeps_requests: bool) -> None:
        """Known, not running yet: requests wait in the mailbox of the incarnation to come."""
        self.settings = settings
        self.known = True
        self.keeps_requests = keeps_requests
        with self._lock:
            if not self._inbox.accepting:
                self._inbox = self._new_inbox()
            if self._state != "restarting":
                self._state = "starting"
            self.quarantine = None

    def begin(self) -> tuple[int, Inbox]:
        """The next incarnation's number and mailbox."""
        with self._lock:
            self.incarnation += 1
            if not self._inbox.accepting:
                self._inbox = self._new_inbox()
            self._adopted = True
            if self._state != "restarting":
                self._state = "starting"
            self.detail = {}
            self.progress = {}
            return self.incarnation, self._inbox

    def mark_ready(self, incarnation: int) -> None:
        """The start is proven."""
        with self._lock:
            if incarnation == self.incarnation and self._state in ("starting", "restarting"):
                self._state = "opening" if self._inbox.held else "ready"
        for child in tuple(self.children.values()):
            if not child.known and child.state == "starting":
                child._close("absent", child._refusal(absent))

    def hold(self, incarnation: int, progress: Mapping[str, JsonValue]) -> None:
        """Ordinary requests wait, with ``progress`` to tell them at their deadline."""
        with self._lock:
            if incarnation != self.incarnation:
                return
            self.progress = dict(progress)
            self._inbox.hold()
            if self._state == "ready":
                self._state = "opening"

    def resume(self, incarnation: int) -> None:
        """Ordinary requests are served again."""
        with self._lock:
            if incarnation != self.incarnation:
                return
            self._inbox.resume()
            if self._state == "opening":
                self._state = "ready"

    def await_restart(self, at: float = 0.0) -> None:
        """A restart, due at ``at``: requests wait for the next incarnation, the old mailbox gets no more.

        What waits already and has a deadline before it is told so now, not then.
        """
        with self._lock:
            self._state = "restarting"
            self._restart_at = at
            left = self._inbox if self._adopted else None
            if left is not None or not self._inbox.accepting:
                self._inbox = self._new_inbox()
            coming = self._inbox
        if left is not None:
            left.refuse(self._refusal(restarting))
        coming.fail_due_before(at, self._restarting)
        for child in tuple(self.children.values()):
            if child.keeps_requests and child.state in ("stopping", "stopped", "restarting"):
                child.await_restart(at)

    def vacate(self, incarnation: int) -> None:
        """This incarnation is ending by itself: new requests wait until the parent has decided."""
        with self._lock:
            if incarnation != self.incarnation or self._state in ("quarantined", "stopping", "stuck"):
                return
            if not self._adopted:
                return
            self._state = "restarting"
            self._inbox = self._new_inbox()

    def set_quarantined(self, quarantine: Quarantine) -> None:
        """Out of service until released."""
        self.quarantine = quarantine
        self._close("quarantined", self._refusal(lambda name, phase: quarantined(name, phase, quarantine)))

    def stop_admitting(self) -> None:
        """The actor is to drain: new requests are refused, admitted ones go on."""
        with self._lock:
            self._state = "stopping"
            inbox, adopted = self._inbox, self._adopted
        if adopted:
            inbox.refuse(self._refusal(stopping))
        else:
            inbox.shut(self._refusal(stopping))

    def set_stopped(self) -> None:
        """Ended as planned, and not coming back by itself."""
        self._close("stopped", self._refusal(stopping))

    def set_stuck(self) -> None:
        """Told to end and still running: what waits is answered, nothing else gets in."""
        self._close("stuck", self._refusal(stuck))

    def dead_letter(self, message: object, reason: DeadLetterReason, correlation_id: str = "") -> None:
        """Count one message that reached nobody."""
        kind = "answer" if message is None else type(message).__name__
        at = self.environment.clock.monotonic()
        self.environment.dead_letters.add(DeadLetter(at, self.name, self.incarnation, kind, reason, correlation_id))

    # --- inside -----------------------------------------------------------------------------------------------

    def _mailbox(self) -> tuple[Inbox, int]:
        """The mailbox that takes messages now, and the incarnation that it belongs to: the next one while that is
        awaited."""
        with self._lock:
            return self._inbox, self.incarnation if self._adopted else self.incarnation + 1

    def _close(self, state: State, refusal: Refusal) -> None:
        with self._lock:
            self._state = state
            inbox = self._inbox
        inbox.shut(refusal)
        for child in tuple(self.children.values()):
            if child.inbox.accepting and not child.live:
                # What waited there is told of this place, as what comes from now on is.
                child._close("stopped", refusal)  # the same class

    def _await_parent(self) -> bool:
        """Open for requests if the supervisor above is still to start: it may well bring this child."""
        parent = self.parent
        if parent is None or not (parent.is_awaited or (parent.state == "absent" and parent._await_parent())):
            return False
        with self._lock:
            if self._state == "absent":
                self._state = "starting"
                self._inbox = self._new_inbox()
        # The parent may have come up without this child between the two looks.
        if not parent.is_awaited and not self.known:
            self._close("absent", self._refusal(absent))
        return True

    def _explanation(self) -> KnowledgeError | None:
        """The refusal of the nearest place, from here upwards, whose state explains why nothing is served."""
        place: Slot | None = self
        while place is not None:
            if place.quarantine is not None and place.state == "quarantined":
                return quarantined(place.label, Phase.QUEUED, place.quarantine)
            if place.state == "stuck":
                return stuck(place.label, Phase.QUEUED)
            if place.state == "restarting":
                return place._restarting(Phase.QUEUED)
            if place.state == "absent":
                return absent(place.label, Phase.QUEUED)
            place = place.parent
        return None

    def _restarting(self, phase: Phase) -> KnowledgeError:
        return restarting(self.label, phase, self._until_restart())

    def _until_restart(self) -> float | None:
        """Seconds until the restart is due, where that is known and still to come."""
        left = self._restart_at - self.environment.clock.monotonic()
        return left if left > 0 else None

    def _refusal(self, make: Maker) -> Refusal:
        return lambda phase: make(self.label, phase)

    def _new_inbox(self) -> Inbox:
        self._adopted = False
        return Inbox(self.label, self.settings.inbox, self._foreign)

    def _foreign(self, inbox: Inbox, envelope: PykkaEnvelope[object]) -> None:
        """Plain pykka code may only ask an actor to stop; its parent decides what follows."""
        if isinstance(envelope.message, _ActorStop):
            if inbox.control(ForeignStop(envelope.reply_to)):
                return
            if envelope.reply_to is not None:
                envelope.reply_to.set(None)
            return
        self.dead_letter(envelope.message, "foreign")
        if envelope.reply_to is not None:
            error = ActorDeadError(f"{self.name} takes messages through its handle only")
            envelope.reply_to.set_exception((ActorDeadError, error, None))

"""The kit's numbers as frozen settings: each rule's number is one field, with its unit in its name or docstring.

Source: DESIGN.md rules 2-8; mailbox defaults from decisions.md section 1 (``limits``).
"""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class InboxLimits:
    """What one mailbox holds. Requests count from admission until their answer, so parked ones count too."""

    requests: int = 256
    """Unanswered requests, all audiences together."""
    bytes: int = 64 * 1024 * 1024
    """Sum of the sizes of unanswered requests."""
    per_audience: int = 32
    """Unanswered requests of one fairness key."""
    tells: int = 1_024
    """Queued one-way messages; they have a bound of their own, so that full requests never shut out a completion."""
    control_burst: int = 16
    """Control messages served in a row while data waits; then one data message gets its turn."""


@dataclass(frozen=True, slots=True)
class RestartPolicy:
    """How often and how fast a child comes back (DESIGN.md rule 5). Times in seconds."""

    restarts: int = 5
    """Restarts allowed inside :attr:`within`; the next failure gives up."""
    within: float = 30.0
    first_delay: float = 0.1
    """Delay before the second restart in a row; the first is at once."""
    factor: float = 2.0
    longest_delay: float = 10.0
    jitter: float = 0.2
    """Each delay is moved by up to this share, either way."""
    healthy_after: float = 30.0
    """A child that was up this long starts again with the first, immediate restart."""
    forgiven_after: float = 6.0
    """Every so many seconds up undo one doubling. It is the pace that the intensity allows (30 s for 5 restarts), so
    that a child that keeps below it is never away for longer and longer."""


STORE_RESTARTS = RestartPolicy(restarts=3, within=300.0)
"""The policy of a whole store (DESIGN.md rule 5)."""


@dataclass(frozen=True, slots=True)
class ActorSettings:
    """Everything that may differ between two actors of one class. Times in seconds."""

    label: str = ""
    """What answers call it, as a sentence begins; one without is called as the nearest actor above it that has one.

    Callers learn nothing of the tree: its names are for the log and for health reports.
    """
    inbox: InboxLimits = field(default_factory=InboxLimits)
    restarts: RestartPolicy = field(default_factory=RestartPolicy)
    start_timeout: float = 5.0
    """From the start of the thread to its ``Ready`` (DESIGN.md rule 3)."""
    stop_grace: float = 1.0
    """From the end of a drain until a thread that has not ended is called stuck (DESIGN.md rule 6)."""
    drain: float = 5.0
    """Drain time of a stop that names none."""
    retry_delay: float = 0.02
    """Before the second attempt at a message that met something transient; doubles to a second."""
    retry_attempts: int = 12
    """Attempts in all, for messages whose deadline would allow more (DESIGN.md rule 4)."""
    poison_after: int = 2
    """Crashes of one request key after which the key is refused (DESIGN.md rule 2)."""
    poison_keys: int = 1_024
    """Request keys remembered with their crashes; the least recent key with the fewest crashes is dropped first."""

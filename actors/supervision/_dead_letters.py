"""Dead letters: a bounded ring of what reached nobody, without payloads, and a count by reason.

Source: DESIGN.md rule 9.
"""

from __future__ import annotations

import threading
from collections import Counter, deque
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, TypeAlias

DeadLetterReason: TypeAlias = Literal["closed", "full", "expired", "cancelled", "stale", "late_answer", "foreign"]
"""``closed``: the mailbox was closed. ``full``: a tell over the bound. ``expired``, ``cancelled``: not run any more.
``stale``: of an earlier incarnation. ``late_answer``: answered already. ``foreign``: not a message of the kit."""


@dataclass(frozen=True, slots=True)
class DeadLetter:
    """One message that reached nobody: its type's name, never its content."""

    at: float
    actor: str
    incarnation: int
    message_type: str
    reason: DeadLetterReason
    correlation_id: str = ""


class DeadLetters:
    """The last ``capacity`` dead letters and the exact number of all of them by reason. Any thread."""

    def __init__(self, capacity: int = 256) -> None:
        self._lock = threading.Lock()
        self._ring: deque[DeadLetter] = deque(maxlen=capacity)
        self._counts: Counter[DeadLetterReason] = Counter()

    def add(self, letter: DeadLetter) -> None:
        """Remember ``letter``; the oldest one falls out when the ring is full."""
        with self._lock:
            self._ring.append(letter)
            self._counts[letter.reason] += 1

    def recent(self) -> tuple[DeadLetter, ...]:
        """The ring's content, oldest first."""
        with self._lock:
            return tuple(self._ring)

    def counts(self) -> Mapping[DeadLetterReason, int]:
        """How many there were since the start, by reason."""
        with self._lock:
            return dict(self._counts)

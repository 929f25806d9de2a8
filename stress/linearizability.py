"""Is there an order of the operations on one record that explains all answers? A search after Wing and Gong, with the
memory of Lowe: a set of operations done and the state they leave is looked at once.

The record is a register with compare-and-set: its state is the hash of its text, None while it does not exist.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, TypeAlias

State: TypeAlias = str | None

FOREVER: Final = float("inf")
SEARCH_MAX: Final = 400_000
"""Looks at one record's history, after which the search gives up and says so."""


@dataclass(frozen=True, slots=True)
class Read:
    """Saw this state."""

    saw: State


@dataclass(frozen=True, slots=True)
class Swap:
    """Found ``expected`` and left ``new``. ``certain`` False: it may also never have happened."""

    expected: State
    new: State
    certain: bool = True


@dataclass(frozen=True, slots=True)
class Put:
    """Left ``new``, whatever was there: a person's save. ``certain`` False: it may have met a file that was on its way
    out, and is then in history only."""

    new: State
    certain: bool = True


@dataclass(frozen=True, slots=True)
class Refused:
    """Was refused since the state was another than ``expected``."""

    expected: State


Effect: TypeAlias = Read | Swap | Put | Refused


@dataclass(frozen=True, slots=True)
class Event:
    """An operation between the moment it was asked for and the moment its end was seen."""

    began: float
    ended: float
    effect: Effect


class TooHard(Exception):
    """The search was given up: neither yes nor no."""


def linearizable(events: Sequence[Event]) -> bool:
    """Whether some order explains every event. Raises :class:`TooHard`."""
    ordered = sorted(events, key=lambda event: (event.began, event.ended))
    wanted = frozenset(index for index, event in enumerate(ordered) if _must_happen(event))
    seen: set[tuple[int, State]] = set()
    stack: list[tuple[int, State]] = [(0, None)]  # no record is older than the run
    while stack:
        done, state = stack.pop()
        if (done, state) in seen:
            continue
        seen.add((done, state))
        if len(seen) > SEARCH_MAX:
            raise TooHard
        open_ones = [index for index in range(len(ordered)) if not done >> index & 1]
        if wanted.isdisjoint(open_ones):
            return True
        first_end = min(ordered[index].ended for index in open_ones)
        for index in open_ones:
            if ordered[index].began > first_end:
                break
            possible, after = _apply(ordered[index].effect, state)
            if possible:
                stack.append((done | 1 << index, after))
    return False


def _must_happen(event: Event) -> bool:
    return not isinstance(event.effect, Swap | Put) or event.effect.certain


def _apply(effect: Effect, state: State) -> tuple[bool, State]:
    match effect:
        case Read(saw):
            return state == saw, state
        case Swap(expected, new, _):
            return state == expected, new
        case Put(new, _):
            return True, new
        case Refused(expected):
            return state != expected, state

"""Is there an order of the operations on one record that explains all answers? A search after Wing and Gong, with the
memory of Lowe: a set of operations done and the state they leave is looked at once. An answer that fits and changes
nothing is taken at once, so that only writes at the same time make the search branch: it is linear in a long history.

The record is a register with compare-and-set: its state is the hash of its text, None while it does not exist.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
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
    """Found ``expected`` and left ``new``. ``certain`` False: it happened before its end, or never."""

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
    history = _History(events)
    seen: set[tuple[int, int, State]] = set()
    stack = [_Place(0, 0, -FOREVER, None)]  # no record is older than the run
    while stack:
        place = stack.pop()
        key = (place.base, place.mask, place.state)
        if key in seen:
            continue
        seen.add(key)
        if len(seen) > SEARCH_MAX:
            raise TooHard
        nexts, unfinished = history.nexts(place)
        if not unfinished:
            return True
        stack += filter(history.can_be_finished(place), (history.after(place, index) for index in nexts))
    return False


@dataclass(frozen=True, slots=True)
class _Place:
    """How far a search has come: every event before ``base`` is settled, and those of ``mask`` counted from there.

    An event is settled when it has happened, or when it may not have happened and ended before ``latest``, the
    latest beginning of all that have: no order has room for it any more.
    """

    base: int
    mask: int
    latest: float
    state: State

    def settled(self, index: int) -> bool:
        return index < self.base or bool(self.mask >> (index - self.base) & 1)


class _History:
    """The events in the order in which they began, and which of them need or make a state."""

    def __init__(self, events: Sequence[Event]) -> None:
        self._events = sorted(events, key=lambda event: (event.began, event.ended))
        self._needing = defaultdict[State, list[int]](list)
        self._making = defaultdict[State, list[int]](list)
        for index, event in enumerate(self._events):
            match event.effect:
                case Read(saw):
                    self._needing[saw].append(index)
                case Swap(expected, new, certain):
                    self._making[new].append(index)
                    if certain:
                        self._needing[expected].append(index)
                case Put(new, _):
                    self._making[new].append(index)
                case Refused():
                    pass

    def nexts(self, place: _Place) -> tuple[list[int], bool]:
        """Which events may happen next, the likeliest last, and whether one is left that must."""
        events = self._events
        possible = list[int]()
        first_end, first_end_of_all, unfinished = FOREVER, FOREVER, False
        for index in self._unsettled(place):
            event = events[index]
            if event.began > first_end:
                break
            # Nothing that may come now can begin after the end of one that must come before it.
            first_end_of_all = min(first_end_of_all, event.ended)
            if _must_happen(event):
                first_end, unfinished = min(first_end, event.ended), True
            if _apply(event.effect, place.state)[0]:
                possible.append(index)
        for index in possible:
            # Another time is no better for it, unless it would leave no room for one that may have come before it.
            if isinstance(events[index].effect, Read | Refused) and events[index].began <= first_end_of_all:
                return [index], unfinished
        return sorted(possible, key=lambda index: -events[index].ended), unfinished

    def after(self, place: _Place, index: int) -> _Place:
        """Where the search is when this event has happened next."""
        events = self._events
        latest = max(place.latest, events[index].began)
        base, mask = place.base, place.mask | 1 << (index - place.base)
        for other in self._unsettled(place):
            if events[other].began > latest:
                break
            if events[other].ended < latest and not _must_happen(events[other]):
                mask |= 1 << (other - base)
        done = (~mask & (mask + 1)).bit_length() - 1
        return _Place(base + done, mask >> done, latest, _apply(events[index].effect, place.state)[1])

    def can_be_finished(self, before: _Place) -> Callable[[_Place], bool]:
        """Whether a state that is left now will come again, when something that must happen still needs it."""

        def check(place: _Place) -> bool:
            if place.state == before.state or all(place.settled(index) for index in self._needing[before.state]):
                return True
            return not all(place.settled(index) for index in self._making[before.state])

        return check

    def _unsettled(self, place: _Place) -> Iterator[int]:
        left = ~place.mask
        while True:
            lowest = left & -left
            index = place.base + lowest.bit_length() - 1
            if index >= len(self._events):
                return
            yield index
            left ^= lowest


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

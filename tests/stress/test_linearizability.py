"""The judge of single records: histories with known verdicts, random ones against a slow oracle, and very long ones."""

from __future__ import annotations

import itertools
import random
from collections.abc import Sequence

import pytest

from stress import linearizability
from stress.linearizability import FOREVER, Effect, Event, Put, Read, Refused, State, Swap, TooHard, linearizable

CREATED = Event(0, 1, Swap(None, "a"))


def after(start: float, effect: Effect, length: float = 1.0) -> Event:
    return Event(start, start + length, effect)


@pytest.mark.parametrize(
    "events",
    [
        [],
        [Event(0, 1, Read(None))],
        [CREATED, after(2, Read("a"))],
        [CREATED, after(2, Swap("a", "b")), after(4, Read("b")), after(6, Read("b"))],
        [CREATED, after(2, Refused("z")), after(4, Read("a"))],
        [CREATED, after(2, Swap("a", None)), after(4, Read(None))],
        [CREATED, after(2, Put("p")), after(4, Refused("a")), after(6, Swap("p", "b"))],
    ],
    ids=["nothing", "not there", "created", "written", "refused", "removed", "a person's save"],
)
def test_what_one_after_another_explains_is_accepted(events: list[Event]) -> None:
    assert linearizable(events)


def test_a_read_beside_a_write_may_see_either_state() -> None:
    for saw in ("a", "b"):
        assert linearizable([CREATED, Event(2, 6, Swap("a", "b")), Event(3, 4, Read(saw))])


def test_two_reads_beside_a_write_may_not_go_back_in_time() -> None:
    write = Event(2, 9, Swap("a", "b"))
    assert linearizable([CREATED, write, Event(3, 4, Read("a")), Event(5, 6, Read("b"))])
    assert not linearizable([CREATED, write, Event(3, 4, Read("b")), Event(5, 6, Read("a"))])


def test_a_stale_read_is_refused() -> None:
    assert not linearizable([CREATED, after(2, Swap("a", "b")), after(4, Read("a"))])


def test_a_lost_update_is_refused() -> None:
    """Both found the same state and both were accepted."""
    assert not linearizable([CREATED, Event(2, 5, Swap("a", "b")), Event(2, 5, Swap("a", "c"))])


def test_a_write_that_is_gone_is_refused() -> None:
    assert not linearizable([CREATED, after(2, Read(None))])


def test_a_refusal_without_a_reason_is_refused() -> None:
    assert not linearizable([CREATED, after(2, Refused("a"))])
    assert linearizable([CREATED, Event(2, 5, Swap("a", "b")), Event(3, 4, Refused("a"))])


def test_a_write_without_an_answer_may_take_effect_late_but_once() -> None:
    unanswered = Event(2, FOREVER, Swap("a", "b"))
    assert linearizable([CREATED, unanswered, after(4, Read("a")), after(6, Read("b"))])
    assert not linearizable([CREATED, unanswered, after(4, Read("b")), after(6, Read("a"))])
    # It is in history, so it must have happened, and nothing leads back.
    assert not linearizable([CREATED, unanswered, after(4, Swap("a", "c"))])


def test_a_write_that_may_not_have_happened_explains_both_worlds() -> None:
    for effect in (Swap("a", "b", certain=False), Put("b", certain=False)):
        maybe = Event(2, 3, effect)
        assert linearizable([CREATED, maybe, after(4, Read("a")), after(6, Read("a"))])
        assert linearizable([CREATED, maybe, after(4, Read("b")), after(6, Read("b"))])
        assert not linearizable([CREATED, maybe, after(4, Read("a")), after(6, Read("b"))])
        assert not linearizable([CREATED, maybe, after(4, Read("b")), after(6, Read("a"))])


def test_a_persons_save_needs_no_fence_and_ends_what_was_there() -> None:
    assert linearizable([CREATED, Event(2, 6, Put("p")), Event(3, 4, Swap("a", "b")), after(7, Read("p"))])
    assert linearizable([CREATED, Event(2, 6, Put("p")), Event(3, 4, Swap("p", "b")), after(7, Read("b"))])
    assert not linearizable([CREATED, after(2, Put("p")), after(4, Read("a"))])


def test_the_search_says_so_when_it_gives_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(linearizability, "SEARCH_MAX", 2)
    with pytest.raises(TooHard):
        linearizable([CREATED, after(2, Swap("a", "b")), after(4, Swap("b", "c")), after(6, Read("c"))])


# --- random histories -------------------------------------------------------------------------------------


def register_history(seed: int, length: int, width: float) -> list[Event]:
    """What callers of a real register were answered: each takes effect at a point of its own, within its span."""
    chance = random.Random(seed)
    state: State = None
    events = []
    for number in range(length):
        point = float(number)
        span = (point - chance.random() * width, point + chance.random() * width)
        match chance.choice(("read", "read", "swap", "swap", "stale", "put", "maybe")):
            case "read":
                effect: Effect = Read(state)
            case "swap":
                effect = Swap(state, f"swap {number}")
                state = f"swap {number}"
            case "stale":
                effect = Refused("never there")
            case "put":
                effect = Put(f"put {number}")
                state = f"put {number}"
            case _:
                effect = Put(f"maybe {number}", certain=False)
                if chance.random() < 0.5:
                    state = f"maybe {number}"
        unanswered = isinstance(effect, Swap) and chance.random() < 0.1
        events.append(Event(span[0], FOREVER if unanswered else span[1], effect))
    chance.shuffle(events)
    return events


@pytest.mark.parametrize("seed", range(40))
def test_what_a_real_register_answered_is_accepted_and_with_one_answer_changed_refused(seed: int) -> None:
    chance = random.Random(f"changed/{seed}")
    events = register_history(seed, length=60, width=chance.choice((0.4, 1.5, 3.0)))
    assert linearizable(events)

    reads = [index for index, event in enumerate(events) if isinstance(event.effect, Read)]
    changed = chance.choice(reads)
    lied = [*events]
    lied[changed] = Event(events[changed].began, events[changed].ended, Read("never written"))
    assert not linearizable(lied)


@pytest.mark.parametrize("seed", range(40))
def test_a_write_that_history_lacks_leaves_what_was_read_of_it_unexplained(seed: int) -> None:
    events = register_history(seed, length=60, width=0.4)
    seen = {event.effect.saw for event in events if isinstance(event.effect, Read)}
    lost = next(e for e in events if isinstance(e.effect, Swap | Put) and e.effect.new in seen)
    assert not linearizable([event for event in events if event is not lost])


def explained(events: Sequence[Event]) -> bool:
    """The definition itself: some of the uncertain ones, in some order that time allows, with every answer right."""
    uncertain = [e for e in events if isinstance(e.effect, Swap | Put) and not e.effect.certain]
    certain = [e for e in events if e not in uncertain]
    return any(
        all(first.began <= second.ended for first, second in itertools.combinations(order, 2)) and answered_so(order)
        for count in range(len(uncertain) + 1)
        for happened in itertools.combinations(uncertain, count)
        for order in itertools.permutations([*certain, *happened])
    )


def answered_so(order: Sequence[Event]) -> bool:
    state: State = None
    for event in order:
        right = True
        match event.effect:
            case Read(saw):
                right = saw == state
            case Refused(expected):
                right = expected != state
            case Swap(expected, new):
                right, state = expected == state, new
            case Put(new):
                state = new
        if not right:
            return False
    return True


def test_the_search_agrees_with_the_definition_on_small_histories() -> None:
    chance = random.Random(11)
    states: tuple[State, ...] = (None, "a", "b")
    verdicts = []
    for _ in range(800):
        events = []
        for _ in range(chance.randrange(1, 5)):
            began = chance.randrange(8)
            one, other = chance.choice(states), chance.choice(states)
            certain = chance.random() < 0.6
            effect = chance.choice((Read(one), Read(one), Swap(one, other, certain), Put(one, certain), Refused(one)))
            events.append(Event(began, began + chance.choice((0.5, 1.5, 4.5, FOREVER)), effect))
        verdicts.append(explained(events))
        assert linearizable(events) is verdicts[-1], events
    assert 100 < sum(verdicts) < 700  # both verdicts are tried


def test_a_long_history_of_many_callers_at_once_is_decided() -> None:
    events = register_history(5, length=2_000, width=4.0)
    assert linearizable(events)
    last = max(index for index, event in enumerate(events) if isinstance(event.effect, Read))
    assert not linearizable([*events[:last], Event(2_001, 2_002, Read("never written")), *events[last + 1 :]])

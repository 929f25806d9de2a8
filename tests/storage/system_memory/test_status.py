"""What a claim counts as follows from its records alone, in whatever order they are read (contract section 4)."""

from __future__ import annotations

import itertools
import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from storage.system_memory import records
from storage.system_memory.model import EvidenceReference, Record, Role
from storage.system_memory.status import statuses
from tests.storage.system_memory.world import STEWARD, World

REFS = (EvidenceReference("url", "r", "d"),)


def made(
    number: int, memory: str, role: Role, *, author: str = "ben", at: int | None = None, **fields: object
) -> Record:
    verdict, challenge = fields.get("verdict"), fields.get("challenge")
    return Record(
        f"record-{number}",
        memory,
        author,
        role,
        "ground",
        number if at is None else at,
        verdict=verdict if verdict == "admitted" or verdict == "rejected" else None,
        challenge_id=challenge if isinstance(challenge, str) else None,
        evidence_refs=REFS if fields.get("evidence") else None,
    )


def test_the_status_is_the_same_in_all_720_orders_of_six_records() -> None:
    six = [
        made(1, "m", "admission", verdict="rejected"),
        made(2, "m", "admission", verdict="admitted"),
        made(3, "m", "challenge", evidence=True),
        made(4, "m", "refutation", challenge="record-3"),
        made(5, "m", "challenge", evidence=True),
        made(6, "m", "challenge"),
    ]
    assert {statuses(order)["m"] for order in itertools.permutations(six)} == {"suspended"}
    assert {statuses(order)["m"] for order in itertools.permutations(six[:4])} == {"admitted"}


@st.composite
def histories(draw: st.DrawFn) -> list[Record]:
    found: list[Record] = []
    for number in range(draw(st.integers(0, 24))):
        memory = f"memory-{draw(st.integers(0, 4))}"
        role = draw(st.sampled_from(["admission", "admission", "challenge", "challenge", "refutation"]))
        at, author = draw(st.integers(0, 6)), f"account-{draw(st.integers(0, 2))}"
        challenges = [record for record in found if record.role == "challenge"]
        if role == "admission":
            verdict = draw(st.sampled_from(["admitted", "admitted", "rejected"]))
            found.append(made(number, memory, "admission", at=at, verdict=verdict))
        elif role == "challenge":
            found.append(made(number, memory, "challenge", author=author, at=at, evidence=draw(st.booleans())))
        elif challenges:
            named = draw(st.sampled_from(challenges))
            found.append(made(number, named.memory_id, "refutation", at=at, challenge=named.id))
    return found


@settings(max_examples=300, deadline=None)
@given(histories(), st.randoms(use_true_random=False))
def test_the_status_never_depends_on_the_order_in_which_records_are_read(
    history: list[Record], chance: random.Random
) -> None:
    other = list(history)
    chance.shuffle(other)
    assert statuses(history) == statuses(other)


def test_a_row_without_an_admission_is_a_candidate_whatever_its_author_claims(world: World) -> None:
    assert world.status(world.observe(admission="admitted")) == "candidate"


def test_the_latest_admission_decides(world: World) -> None:
    row = world.observe()
    for verdict in ("admitted", "rejected", "admitted"):
        world.admit(row, verdict)
        assert world.status(row) == verdict


def test_what_is_written_later_is_later_though_the_clock_was_set_back(world: World) -> None:
    row = world.admitted()
    world.later(-3_600_000_000)
    world.admit(row, "rejected")
    assert world.status(row) == "rejected"
    world.reopen()
    world.admit(row, "admitted")
    assert world.status(row) == "admitted"


def test_only_an_admitted_row_can_be_suspended(world: World) -> None:
    candidate, rejected = world.observe(), world.observe("ann", "sys:other")
    world.admit(rejected, "rejected")
    world.challenge(candidate)
    world.challenge(rejected)
    assert [world.status(candidate), world.status(rejected)] == ["candidate", "rejected"]


def test_an_open_challenge_with_evidence_suspends_and_one_without_has_no_effect(world: World) -> None:
    row = world.admitted()
    world.challenge(row, evidence=False)
    assert world.status(row) == "admitted"
    world.challenge(row)
    assert world.status(row) == "suspended"


def test_a_refutation_closes_exactly_the_challenge_that_it_names(world: World) -> None:
    row = world.admitted()
    first, second = world.challenge(row), world.challenge(row, "cleo")
    world.refute(first)
    world.refute(first)
    assert world.status(row) == "suspended"
    world.refute(second)
    assert world.status(row) == "admitted"
    world.challenge(row)
    assert world.status(row) == "suspended"


def test_a_refutation_dated_before_its_challenge_still_closes_it() -> None:
    history = [
        made(1, "m", "admission", verdict="admitted"),
        made(2, "m", "challenge", at=50, evidence=True),
        made(3, "m", "refutation", at=3, challenge="record-2"),
    ]
    assert statuses(history) == {"m": "admitted"}


def test_nothing_but_a_refutation_closes_a_challenge(world: World) -> None:
    row = world.admitted()
    world.challenge(row)
    world.admit(row)
    assert world.status(row) == "suspended"


@pytest.mark.parametrize(("admitted", "cap"), [(0, 0), (1, 1), (4, 1), (5, 2), (8, 2), (100, 25)])
def test_one_account_suspends_at_most_a_quarter_of_the_admitted_rows_rounded_up(admitted: int, cap: int) -> None:
    history = [made(number, f"m{number}", "admission", verdict="admitted") for number in range(admitted)]
    history += [made(1000 + number, f"m{number}", "challenge", evidence=True) for number in range(admitted)]
    found = statuses(history)
    suspended = {memory for memory, status in found.items() if status == "suspended"}
    assert suspended == {f"m{number}" for number in range(cap)}


def test_the_cap_counts_the_earliest_first_and_a_row_once_and_each_account_by_itself(world: World) -> None:
    rows = [world.admitted(f"account-{number}", f"sys:claim-{number}") for number in range(4)]
    first = world.challenge(rows[0])
    world.challenge(rows[0])
    world.challenge(rows[1])
    assert [world.status(row) for row in rows] == ["suspended", "admitted", "admitted", "admitted"]
    world.challenge(rows[2], "cleo")
    assert [world.status(row) for row in rows] == ["suspended", "admitted", "suspended", "admitted"]
    world.refute(first)  # the second one on that row holds its place still
    assert [world.status(row) for row in rows] == ["suspended", "admitted", "suspended", "admitted"]


def test_a_queued_challenge_takes_effect_when_an_earlier_one_is_refuted(world: World) -> None:
    rows = [world.admitted(f"account-{number}", f"sys:claim-{number}") for number in range(4)]
    first = world.challenge(rows[0])
    world.challenge(rows[1])
    assert world.status(rows[1]) == "admitted"
    world.refute(first)
    assert [world.status(rows[0]), world.status(rows[1])] == ["admitted", "suspended"]


def test_a_superseded_row_keeps_its_status_and_counts_for_the_cap(world: World) -> None:
    rows = [world.admitted(f"account-{number}", f"sys:claim-{number}") for number in range(5)]
    world.promote(rows[4])
    assert world.status(rows[4]) == "admitted"
    for row in rows[:3]:
        world.challenge(row)
    assert [world.status(row) for row in rows[:3]] == ["suspended", "suspended", "admitted"]  # ceil(5 / 4)


def test_what_the_database_derives_is_what_the_records_say_also_after_a_restart(world: World) -> None:
    chance = random.Random(7)
    rows = [world.observe(f"account-{number % 3}", f"sys:claim-{number}") for number in range(12)]
    open_challenges: list[Record] = []
    for _ in range(120):
        row = chance.choice(rows)
        match chance.randrange(4):
            case 0 | 1:
                world.admit(row, chance.choice(["admitted", "admitted", "rejected"]))
            case 2:
                challenge = world.challenge(row, f"account-{chance.randrange(3)}", evidence=chance.random() < 0.8)
                open_challenges.append(challenge)
            case _:
                if open_challenges:
                    world.refute(open_challenges.pop(chance.randrange(len(open_challenges))))
        every = [record for row in rows for record in records.records_of(world.system, row.id)]
        derived = statuses(every)
        assert {row.id: world.status(row) for row in rows} == {row.id: derived.get(row.id, "candidate") for row in rows}
    before = {row.id: world.status(row) for row in rows}
    world.reopen()
    assert {row.id: world.status(row) for row in rows} == before


def test_records_are_listed_the_oldest_first(world: World) -> None:
    row = world.admitted()
    challenge = world.challenge(row)
    world.refute(challenge)
    found = records.records_of(world.system, row.id)
    assert [record.role for record in found] == ["admission", "challenge", "refutation"]
    assert [record.author for record in found] == [STEWARD.account, "ben", STEWARD.account]

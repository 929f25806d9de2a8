"""Records, corrections and promotions: who may, what is refused first, and that all of it happens or nothing."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from messages.errors import KnowledgeError
from storage import faults
from storage.knowledge_base import Corpus, Stance
from storage.state.connection import CommitUncertain
from storage.system_memory import corrections, records, rows
from storage.system_memory.model import Acting
from tests.storage.system_memory.world import EVIDENCE, STEWARD, World, draft

OUTSIDER = Acting("mallory", False)


def refusal(code: str) -> pytest.RaisesExc[KnowledgeError]:
    return pytest.RaisesExc(KnowledgeError, check=lambda error: error.code == code)


STANCE = Stance("gateway-402", "Retired models", ("What is a 402?",), "live", "It is refused.", ("docs",), "2026-11-01")


def test_the_steward_check_runs_before_anything_is_read(world: World) -> None:
    row = world.admitted()
    challenge = world.challenge(row)
    said = set()
    for target in (row.id, challenge.id, str(uuid.uuid4()), "no id", None):
        attempts: list[Callable[[], object]] = [
            partial(records.admit, world.system, OUTSIDER, target, verdict=7, ground=7),
            partial(records.refute, world.system, OUTSIDER, target, ground=7),
            partial(corrections.promote, world.system, OUTSIDER, target, stance=None, slug=None, evidence_refs=None),
        ]
        for attempt in attempts:
            with pytest.raises(KnowledgeError) as refused:
                attempt()
            said.add((refused.value.code, str(refused.value)))
    assert len(said) == 1
    assert next(iter(said))[0] == "steward_required"


def test_a_record_against_an_unreadable_unknown_own_or_promoted_row_is_not_found(world: World) -> None:
    own = rows.create(world.system, "ann", body="tea")
    claim = world.admitted()
    tombstone = world.promote(claim)
    before = world.everything()
    for target in ("no id", str(uuid.uuid4()), own.id, tombstone.id, claim.id.upper(), None):
        with refusal("not_found"):
            records.admit(world.system, STEWARD, target, verdict="admitted", ground="x")
        with refusal("not_found"):
            records.challenge(world.system, "ann", target, ground="x")
        with refusal("not_found"):
            records.refute(world.system, STEWARD, target, ground="x")
    admission = records.records_of(world.system, claim.id)[0]
    with refusal("not_found"):
        records.refute(world.system, STEWARD, admission.id, ground="an admission is no challenge")
    assert world.everything() == before
    assert world.status(tombstone) == "candidate"


def test_a_record_says_why_and_an_empty_list_of_evidence_is_an_error(world: World) -> None:
    row = world.observe()
    for ground in (None, "", " ", 7):
        with refusal("invalid_argument"):
            records.admit(world.system, STEWARD, row.id, verdict="admitted", ground=ground)
    with refusal("limit_exceeded"):
        records.admit(world.system, STEWARD, row.id, verdict="admitted", ground="x" * 2001)
    with refusal("invalid_argument"):
        records.admit(world.system, STEWARD, row.id, verdict="suspended", ground="x")
    with refusal("evidence_invalid"):
        records.challenge(world.system, "ben", row.id, ground="x", evidence_refs=[])


def test_any_account_may_challenge_its_author_too(world: World) -> None:
    row = world.admitted("ann")
    world.challenge(row, "ann")
    assert world.status(row) == "suspended"


def test_a_correction_is_for_the_author_or_a_steward_and_its_replacement_a_fresh_candidate(world: World) -> None:
    row = world.admitted("ann")
    later = corrections.supersede(world.system, Acting("ann", False), row.id, draft(body="It answers 403 now"))
    assert later.account == "ann"
    assert later.bucket == "system"
    assert world.status(later) == "candidate"
    last = corrections.supersede(world.system, STEWARD, later.id, draft(body="It answers 404 now"))
    assert last.account == STEWARD.account
    assert world.system.system_row(row.id) is not None
    assert [world.recall("ben", "gateway").rows, world.status(row)] == [(), "admitted"]


def test_what_cannot_be_corrected_is_not_supersedable_and_nothing_is_learned_of_it(world: World) -> None:
    row = world.admitted("ann")
    own = rows.create(world.system, "ann", body="tea")
    replaced = world.admitted("ann", "sys:replaced")
    corrections.supersede(world.system, STEWARD, replaced.id, draft("sys:replaced"))
    before = world.everything()
    said = set()
    for who, target in (
        (OUTSIDER, row.id),
        (OUTSIDER, str(uuid.uuid4())),
        (Acting("ann", False), own.id),
        (STEWARD, replaced.id),
        (STEWARD, "no id"),
        (STEWARD, None),
    ):
        with pytest.raises(KnowledgeError) as refused:
            corrections.supersede(world.system, who, target, draft("no slug", "", evidence_refs=[]))
        said.add((refused.value.code, str(refused.value), tuple(refused.value.fields.items())))
    assert len(said) == 1
    assert next(iter(said))[0] == "not_supersedable"
    assert world.everything() == before


def test_a_correction_under_another_slug_is_slug_mismatch_and_the_claim_stays_live(world: World) -> None:
    row = world.admitted("ann")
    with refusal("slug_mismatch"):
        corrections.supersede(world.system, STEWARD, row.id, draft("sys:other"))
    with refusal("slug_mismatch"):
        world.promote(row, slug="sys:other")
    assert rows.fetch(world.system, "ann", row.id).live


def test_a_stewards_correction_resolves_every_open_challenge_and_an_authors_none(world: World) -> None:
    row = world.admitted("ann")
    world.challenge(row)
    world.challenge(row, "cleo", evidence=False)
    corrections.supersede(world.system, Acting("ann", False), row.id, draft(body="corrected by its author"))
    assert len(records.open_challenges(world.system, row.id)) == 2
    other = world.admitted("ann", "sys:other")
    world.challenge(other)
    world.challenge(other, "cleo", evidence=False)
    corrections.supersede(world.system, STEWARD, other.id, draft("sys:other"))
    assert records.open_challenges(world.system, other.id) == []


def test_a_correction_asks_no_quota(world: World) -> None:
    row = world.observe("ann")
    for number in range(199):
        rows.create(world.system, "ann", body=f"row {number}")
    corrections.supersede(world.system, Acting("ann", False), row.id, draft(body="corrected"))


def test_a_promotion_refuses_in_the_documented_order(world: World) -> None:
    row = world.admitted()

    def promote(who: Acting, target: object, **fields: object) -> None:
        given: dict[str, object] = {"stance": None, "slug": None, "evidence_refs": None, **fields}
        corrections.promote(
            world.system,
            who,
            target,
            stance=given["stance"],
            slug=given["slug"],
            evidence_refs=given["evidence_refs"],
            corpus=lambda: Corpus((STANCE,), ()),
        )

    with refusal("steward_required"):
        promote(OUTSIDER, "no id")
    for stance in (None, "", "  ", 7):
        with refusal("stance_required"):
            promote(STEWARD, "no id", stance=stance)
    with refusal("not_supersedable"):
        promote(STEWARD, "no id", stance="No Stance")
    with refusal("invalid_argument"):
        promote(STEWARD, row.id, stance="No Stance", slug="sys:other", evidence_refs=EVIDENCE)
    with refusal("evidence_invalid"):
        promote(STEWARD, row.id, stance="other", slug="sys:other", evidence_refs=[])
    with refusal("slug_mismatch"):
        promote(STEWARD, row.id, stance="other", slug="sys:other", evidence_refs=EVIDENCE)
    with refusal("stance_required"):
        promote(STEWARD, row.id, stance="other", slug="sys:gateway", evidence_refs=EVIDENCE)
    with pytest.raises(KnowledgeError) as refused:
        promote(STEWARD, row.id, stance="gateway-402", slug="sys:gateway", evidence_refs=EVIDENCE)
    assert refused.value.fields["reason"] == "digest_mismatch"
    assert refused.value.fields["stance"] == "gateway-402"
    assert rows.fetch(world.system, "ann", row.id).live
    reviewed = [{"kind": "url", "ref": "https://example.org/stances.json", "digest": STANCE.digest}]
    promote(STEWARD, row.id, stance="gateway-402", slug="sys:gateway", evidence_refs=[*EVIDENCE, *reviewed])
    assert not rows.fetch(world.system, "ann", row.id).live


@pytest.mark.parametrize("stance", ["Gateway-402", "gateway 402", "gateway--402", "-gateway", "gateway-", "a/b", "ä-b"])
def test_a_malformed_stance_is_refused_and_the_claim_stays_live(world: World, stance: str) -> None:
    row = world.admitted()
    with refusal("invalid_argument"):
        world.promote(row, stance)
    assert rows.fetch(world.system, "ann", row.id).live


def test_a_tombstone_names_its_stance_and_says_where_the_claim_lives_now(world: World) -> None:
    row = world.admitted(entity="gateway")
    tombstone = world.promote(row, " gateway-402 ")
    system = tombstone.system
    assert system is not None
    assert system.stance == "gateway-402"
    assert "`gateway-402`" in tombstone.body
    assert tombstone.promoted
    assert (system.tier, system.admission, system.slug, tombstone.bucket) == (
        "ledger",
        "candidate",
        "sys:gateway",
        "system",
    )
    assert tombstone.account == STEWARD.account
    assert system.entity is None
    assert system.as_of == "2027-01-15"  # the day of the test's clock


def test_entity_and_date_of_a_tombstone_are_the_callers_where_given(world: World) -> None:
    tombstone = world.promote(world.admitted(), entity="the gateway", as_of="2026-10-01")
    assert tombstone.system is not None
    assert (tombstone.system.entity, tombstone.system.as_of) == ("the gateway", "2026-10-01")


def test_a_promoted_claim_leaves_recall_and_stays_readable_with_its_records(world: World) -> None:
    row = world.admitted()
    challenge = world.challenge(row)
    tombstone = world.promote(row)
    claim = world.system.system_row(row.id)
    assert claim is not None
    assert claim.superseded_by == tombstone.id
    assert claim.body == row.body
    assert world.status(row) == "admitted"
    assert [record.role for record in records.records_of(world.system, row.id)] == [
        "admission",
        "challenge",
        "refutation",
    ]
    assert records.records_of(world.system, row.id)[2].challenge_id == challenge.id
    assert world.recall("ben", "gateway").rows == ()
    with refusal("not_supersedable"):
        world.promote(row)


def test_a_sibling_of_the_same_slug_and_a_row_that_quotes_the_stance_stay_eligible(world: World) -> None:
    row = world.admitted("ann")
    sibling = world.admitted("ben")
    quoting = world.admitted("cleo", "sys:corpus", body="The corpus has a stance gateway-402 about the gateway")
    world.promote(row)
    assert {found.id for found, _ in world.recall("dora", "gateway").rows} == {sibling.id, quoting.id}


def test_a_fresh_claim_on_a_promoted_slug_may_be_admitted_and_recalled(world: World) -> None:
    world.promote(world.admitted("ann"))
    fresh = world.admitted("ben")
    assert [found.id for found, _ in world.recall("dora", "gateway").rows] == [fresh.id]


def test_two_look_alikes_without_a_promotion_between_them_both_attach(world: World) -> None:
    world.admitted("ann")
    world.admitted("ben", "sys:other")
    assert len(world.recall("dora", "gateway").rows) == 2


def test_a_tombstone_may_be_superseded_by_a_steward(world: World) -> None:
    tombstone = world.promote(world.admitted())
    later = corrections.supersede(world.system, STEWARD, tombstone.id, draft())
    assert world.status(later) == "candidate"


def test_what_a_steward_does_is_noted_for_the_audit_in_the_same_change(world: World) -> None:
    row = world.admitted()
    challenge = world.challenge(row)
    world.refute(challenge)
    corrections.supersede(world.system, STEWARD, row.id, draft())
    live = world.admitted("ben", "sys:other")
    world.promote(live)
    found = world.system.unaudited()
    assert [entry.action for entry in found] == [
        "memory.admit",
        "memory.refute",
        "memory.supersede",
        "memory.admit",
        "memory.promote",
    ]
    assert {entry.actor for entry in found} == {"steward:stella"}
    assert "looked" not in str(found)
    world.system.audited(found[1].sequence)
    assert len(world.system.unaudited()) == 3


class PowerCut(BaseException):
    """The process is gone: nothing of it runs any more."""


def points_of_a_promotion(folder: Path) -> list[str]:
    world = World(folder / "seen.sqlite")
    row = world.admitted()
    world.challenge(row)
    seen: list[str] = []
    with faults.installed(seen.append):
        world.promote(row)
    world.system.close()
    return seen


def test_killed_at_every_step_of_a_promotion_it_happened_entirely_or_not_at_all(tmp_path: Path) -> None:
    points = points_of_a_promotion(tmp_path)
    assert len(points) >= 16
    outcomes = set()
    for step in range(len(points)):
        world = World(tmp_path / f"{step}.sqlite")
        row = world.admitted()
        world.challenge(row)
        passed = 0

        def die(name: str, step: int = step) -> None:
            nonlocal passed
            if passed >= step:
                raise PowerCut  # and at every later point: a dead process undoes nothing
            passed += 1

        with faults.installed(die), pytest.raises((PowerCut, CommitUncertain)):
            world.promote(row)
        world.reopen()
        claim = world.system.system_row(row.id)
        assert claim is not None
        tombstones = world.system.database.query("SELECT id FROM memory WHERE promoted = 1")
        roles = [record.role for record in records.records_of(world.system, row.id)]
        audited = [entry.action for entry in world.system.unaudited()]
        outcome = (len(tombstones), claim.live, tuple(roles), tuple(audited))
        outcomes.add(outcome)
        if claim.superseded_by is not None:
            assert [(claim.superseded_by,)] == tombstones
        world.system.close()
    before = (0, True, ("admission", "challenge"), ("memory.admit",))
    after = (1, False, ("admission", "challenge", "refutation"), ("memory.admit", "memory.promote"))
    assert outcomes == {before, after}


@pytest.mark.parametrize("point", ["begin", "commit"])
def test_a_full_disk_during_a_change_leaves_everything_as_it_was(world: World, point: str) -> None:
    import errno

    row = world.admitted()
    before = world.everything()

    def full(name: str) -> None:
        if name == f"system_memory.change.{point}":
            raise OSError(errno.ENOSPC, "no space")

    with faults.installed(full), pytest.raises((KnowledgeError, CommitUncertain)):
        world.promote(row)
    assert world.everything() == before
    assert world.status(row) == "admitted"
    world.promote(row)

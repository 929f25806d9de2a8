"""Hostile texts in every field: each is stored as it is or refused with a typed error, and never a defect."""

from __future__ import annotations

import random
from collections.abc import Callable
from contextlib import suppress

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from messages.errors import KnowledgeError
from storage.system_memory import corrections, records, rows
from storage.system_memory.model import Acting
from storage.system_memory.shapes import ClaimDraft
from tests.storage.system_memory.redaction_set import filled
from tests.storage.system_memory.world import World, draft


@pytest.mark.parametrize(
    "account", [" ann", "ann ", "a\u00a0", "\u2003x", "a\u0085", "", " ", "a" * 129, "a\0b", "\ud800"]
)
def test_a_name_under_which_nothing_can_be_kept_is_refused_and_is_no_defect(world: World, account: str) -> None:
    row = world.observe("ben")
    before = world.everything()
    attempts: list[Callable[[], object]] = [
        lambda: rows.create(world.system, account, body="x"),
        lambda: rows.observe(world.system, account, draft()),
        lambda: records.challenge(world.system, account, row.id, ground="x"),
        lambda: records.admit(world.system, Acting(account, True), row.id, verdict="admitted", ground="x"),
        lambda: corrections.supersede(world.system, Acting(account, True), row.id, draft()),
    ]
    for attempt in attempts:
        with pytest.raises(KnowledgeError) as refusal:
            attempt()
        assert (refusal.value.code, refusal.value.fields["field"]) == ("invalid_argument", "account")
    assert world.everything() == before
    assert rows.list_rows(world.system, account.replace("\ud800", "?")) == []


_HOSTILE = st.one_of(
    st.text(st.characters(), max_size=30),
    st.text(st.sampled_from("\0\ud800\u00a0\u2028\x1b[]:sy -\n\t\u202e\U0001f600'\"%"), max_size=12),
    st.builds(lambda text: f"sys:{text}", st.text(st.characters(), max_size=12)),
    st.none(),
    st.integers(),
    st.just("x" * 2_001),
)


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(slug=_HOSTILE, body=_HOSTILE, entity=_HOSTILE, day=_HOSTILE, ref=_HOSTILE, digest=_HOSTILE, account=_HOSTILE)
def test_what_the_code_takes_the_tables_take_and_what_it_refuses_is_typed(
    world: World, slug: object, body: object, entity: object, day: object, ref: object, digest: object, account: object
) -> None:
    given_evidence = [{"kind": "url", "ref": ref, "digest": digest}]
    as_of = day if isinstance(day, str) and len(day) == 10 else "2026-09-20"
    draft = ClaimDraft(slug=slug, body=body, tier="glass", as_of=as_of, evidence_refs=given_evidence, entity=entity)
    with suppress(KnowledgeError):
        row = rows.observe(world.system, str(account), draft)
        world.admit(row)
        note = world.recall("reader", str(body)).note
        assert note is None or len(note.splitlines()) <= 3
        assert row.body == str(body).strip()
    with suppress(KnowledgeError):
        rows.create(world.system, str(account), body=body, source_ref=entity)


def test_a_secret_in_any_text_of_a_claim_or_a_record_is_refused_with_its_field(world: World) -> None:
    secret = filled("npm_{alnum:36}", random.Random(7))
    row = world.observe("ben")
    before = world.everything()
    hidden = [{"kind": "url", "ref": "r", "digest": secret}]
    attempts: dict[str, Callable[[], object]] = {
        "body": lambda: world.observe("ann", body=f"use {secret}"),
        "slug": lambda: world.observe("ann", f"sys:{secret}"),
        "entity": lambda: world.observe("ann", entity=secret),
        "evidenceRefs[0].ref": lambda: world.observe(
            "ann", evidence_refs=[{**hidden[0], "ref": secret, "digest": "d"}]
        ),
        "evidenceRefs[0].digest": lambda: world.observe("ann", evidence_refs=hidden),
        "ground": lambda: records.challenge(world.system, "ann", row.id, ground=secret),
        "sourceRef": lambda: rows.create(world.system, "ann", body="x", source_ref=secret),
    }
    for field, attempt in attempts.items():
        with pytest.raises(KnowledgeError) as refusal:
            attempt()
        assert (refusal.value.code, refusal.value.fields["field"]) == ("redaction_required", field)
        assert secret not in refusal.value.message
    with pytest.raises(KnowledgeError) as refusal:
        records.challenge(world.system, "ann", row.id, ground="x", evidence_refs=hidden)
    assert refusal.value.code == "redaction_required"
    assert world.everything() == before


def test_a_clock_that_jumps_back_or_ahead_breaks_no_order_and_no_note(world: World) -> None:
    first = world.admitted()
    mine = rows.create(world.system, "ann", body="gateway notes")
    world.later(-400 * 24 * 3_600 * 1_000_000)
    world.admit(first, "rejected")
    assert world.status(first) == "rejected", "the later word decides, whatever the clock says"
    note = world.recall("ann", "gateway").note
    assert note is not None
    assert note.startswith("[From memory: user, 1m ago]")
    world.reopen()
    world.later(3_000 * 24 * 3_600 * 1_000_000)
    assert rows.create(world.system, "ann", body="later").inserted_at > mine.inserted_at
    note = world.recall("ann", "gateway").note
    assert note is not None
    assert "d ago]" in note

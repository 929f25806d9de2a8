"""Audiences as hosts mint them: alone and in chains of delegation."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from messages.audience import (
    Audience,
    Conversation,
    OwnerPrivate,
    delegation_chain,
    earliest_expiry,
    is_sandboxed,
    originating,
    own_partition,
    parse_audience,
    require_well_formed,
    run_ids,
)
from messages.errors import AudienceMissing, InvalidArgument, LimitExceeded
from messages.vocabulary import PRIVATE, Partition

SESSION = "33333333-3333-4333-8333-33333333333a"
OWNER: dict[str, Any] = {"kind": "owner-private", "agent": "main"}
TALK: dict[str, Any] = {"kind": "conversation", "agent": "main", "sessionKey": "chat:42:7", "sessionId": SESSION}


def chain(links: int, innermost: dict[str, Any] = OWNER) -> dict[str, Any]:
    audience = innermost
    for number in range(links):
        audience = {"kind": "owner-private", "agent": f"child{number}", "root": audience}
    return audience


def test_an_owner_private_audience_is_read_with_all_its_members() -> None:
    audience = parse_audience(
        {**OWNER, "runId": "run-1", "account": "ann", "expiresAt": "2026-11-30T10:00:00+02:00", "sandboxed": True}
    )
    expires = datetime(2026, 11, 30, 8, tzinfo=UTC)
    assert audience == OwnerPrivate("main", "run-1", "ann", expires, True)


def test_a_conversation_keeps_its_key_and_the_lower_case_form_of_its_id() -> None:
    assert parse_audience({**TALK, "sessionId": SESSION.upper()}) == Conversation("main", "chat:42:7", SESSION)


def test_a_missing_audience_is_not_a_malformed_one() -> None:
    with pytest.raises(AudienceMissing):
        parse_audience(None)


@pytest.mark.parametrize(
    ("audience", "field", "reason"),
    [
        ("main", "audience", "wrong_type"),
        ([], "audience", "wrong_type"),
        ({}, "audience.kind", "missing"),
        ({**OWNER, "kind": "owner"}, "audience.kind", "not_allowed"),
        ({**OWNER, "kind": "Owner-Private"}, "audience.kind", "not_allowed"),
        ({"kind": "owner-private"}, "audience.agent", "missing"),
        ({**OWNER, "agent": ""}, "audience.agent", "blank"),
        ({**OWNER, "agent": "a\nb"}, "audience.agent", "control_character"),
        ({**OWNER, "agent": "a\0b"}, "audience.agent", "nul"),
        ({**OWNER, "agent": 5}, "audience.agent", "wrong_type"),
        ({**OWNER, "agent": "a" * 129}, "audience.agent", "too_long"),
        ({**OWNER, "readOnly": True}, "audience.readOnly", "unknown"),
        ({**OWNER, "session_key": "x"}, "audience.session_key", "unknown"),
        ({**OWNER, "sessionKey": "x"}, "audience.sessionKey", "conflict"),
        ({**OWNER, "sandboxed": "yes"}, "audience.sandboxed", "wrong_type"),
        ({**OWNER, "expiresAt": "2026-11-30"}, "audience.expiresAt", "malformed"),
        ({**OWNER, "expiresAt": 1764500000}, "audience.expiresAt", "wrong_type"),
        ({k: v for k, v in TALK.items() if k != "sessionKey"}, "audience.sessionKey", "missing"),
        ({k: v for k, v in TALK.items() if k != "sessionId"}, "audience.sessionId", "missing"),
        ({**TALK, "sessionId": "../private"}, "audience.sessionId", "malformed"),
        ({**OWNER, "root": {**OWNER, "kind": "x"}}, "audience.root.kind", "not_allowed"),
        ({**OWNER, "root": {**OWNER, "root": "x"}}, "audience.root.root", "wrong_type"),
    ],
)
def test_a_malformed_audience_is_refused_with_its_path(audience: object, field: str, reason: str) -> None:
    with pytest.raises((InvalidArgument, LimitExceeded)) as caught:
        parse_audience(audience)
    assert (caught.value.fields["field"], caught.value.fields["reason"]) == (field, reason)


def test_a_child_has_exactly_the_partition_of_its_root() -> None:
    child = parse_audience({**OWNER, "agent": "helper", "root": TALK})
    assert child.agent == "helper"
    assert own_partition(child) == Partition(SESSION)
    assert originating(child) == parse_audience(TALK)


def test_a_childs_own_conversation_does_not_count_once_it_has_a_root() -> None:
    assert own_partition(parse_audience({**TALK, "root": OWNER})) == PRIVATE


def test_chains_reach_to_eight_delegations_and_no_further() -> None:
    assert len(list(delegation_chain(parse_audience(chain(8))))) == 9
    with pytest.raises(InvalidArgument) as caught:
        parse_audience(chain(9))
    assert caught.value.fields["reason"] == "too_deep"
    assert caught.value.fields["field"] == "audience" + ".root" * 9


def test_one_sandboxed_link_sandboxes_the_chain() -> None:
    assert is_sandboxed(parse_audience(chain(3, {**OWNER, "sandboxed": True})))
    assert not is_sandboxed(parse_audience(chain(3)))


def test_the_earliest_expiry_and_every_run_of_the_chain_count() -> None:
    early, late = "2026-11-30T10:00:00Z", "2026-11-30T11:00:00Z"
    audience = parse_audience(
        {**OWNER, "runId": "b", "expiresAt": late, "root": {**OWNER, "runId": "a", "expiresAt": early}}
    )
    assert earliest_expiry(audience) == datetime(2026, 11, 30, 10, tzinfo=UTC)
    assert run_ids(audience) == {"a", "b"}
    assert earliest_expiry(parse_audience(OWNER)) is None
    assert run_ids(parse_audience(OWNER)) == frozenset()


@pytest.mark.parametrize("session_id", ["", "..", "a/b", "private", SESSION.upper(), f"{SESSION}/x", f" {SESSION}"])
def test_a_session_id_that_is_no_uuid_never_becomes_a_folder(session_id: str) -> None:
    with pytest.raises(InvalidArgument) as refused_:
        require_well_formed(Conversation("main", "chat", session_id))
    assert refused_.value.fields["field"] == "audience.sessionId"


@pytest.mark.parametrize(
    "audience",
    [
        "main",
        {"kind": "owner-private", "agent": "main"},
        OwnerPrivate(""),
        Conversation("main", "", SESSION),
        OwnerPrivate("main", expires_at=datetime(2026, 1, 1)),  # noqa: DTZ001 - the missing zone is the point
        OwnerPrivate("main", root=Conversation("main", "chat", "..")),
    ],
)
def test_an_audience_built_wrongly_in_python_is_refused_with_a_typed_error(audience: object) -> None:
    with pytest.raises(InvalidArgument):
        require_well_formed(audience)


def test_a_well_formed_audience_passes_up_to_eight_delegations() -> None:
    audience: Audience = Conversation("main", "chat", SESSION)
    for number in range(8):
        require_well_formed(audience)
        audience = OwnerPrivate(f"child-{number}", root=audience)
    require_well_formed(audience)
    with pytest.raises(InvalidArgument):
        require_well_formed(OwnerPrivate("one too many", root=audience))


def test_no_audience_at_all_is_audience_missing() -> None:
    with pytest.raises(AudienceMissing):
        require_well_formed(None)

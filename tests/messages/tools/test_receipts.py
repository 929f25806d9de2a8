"""Receipts: complete ones, and what an agent sees of them."""

from __future__ import annotations

import json

from messages.json_types import JsonObject
from messages.tools import (
    ExistingPage,
    GitState,
    Receipt,
    RememberedItem,
    Subject,
    agent_receipt,
    all_duplicates,
    budget_rejection,
    same_title_rejection,
)
from tests.messages.tools.samples import HASH, REQUEST_ID

SAVED = Receipt(
    request_id=REQUEST_ID, operation="save_page", at="2026-10-19T10:00:00.000Z", ontology_fingerprint=HASH, id="p1",
    revision=2, hash=HASH, path="private/projects/garden-pilot.md",
)  # fmt: skip


def test_a_complete_receipt_says_everything_and_that_it_is_not_indexed_yet() -> None:
    assert SAVED.to_json() == {
        "requestId": REQUEST_ID,
        "operation": "save_page",
        "state": "published",
        "id": "p1",
        "revision": 2,
        "hash": HASH,
        "path": "private/projects/garden-pilot.md",
        "at": "2026-10-19T10:00:00.000Z",
        "ontologyFingerprint": HASH,
        "indexed": False,
    }


def test_an_agent_sees_ids_and_fences_of_a_published_receipt_and_no_state() -> None:
    assert agent_receipt(SAVED.to_json()) == {"id": "p1", "revision": 2, "hash": HASH, "ontologyFingerprint": HASH}


def test_state_and_message_appear_when_a_receipt_is_not_published() -> None:
    complete = Receipt(
        request_id=REQUEST_ID, operation="save_page", at="t", ontology_fingerprint=HASH, id="p1", revision=2, hash=HASH,
        state="conflict", message="The file was edited meanwhile.",
    ).to_json()  # fmt: skip
    shown = agent_receipt(complete)
    assert (shown["state"], shown["message"]) == ("conflict", "The file was edited meanwhile.")


def test_git_appears_beside_a_receipt_only_when_it_is_given() -> None:
    assert "git" not in agent_receipt(SAVED.to_json())
    assert agent_receipt(SAVED.to_json(), GitState("unavailable", 3, "off"))["git"] == {
        "state": "unavailable",
        "message": "off",
    }


def test_the_agents_view_of_a_stored_receipt_is_the_same_after_storage() -> None:
    stored: JsonObject = json.loads(json.dumps(SAVED.to_json()))
    assert json.dumps(agent_receipt(stored)) == json.dumps(agent_receipt(SAVED.to_json()))


def test_a_remember_has_items_in_input_order_and_no_id_of_its_own() -> None:
    items = [
        RememberedItem(id="c1", revision=1, hash=HASH, subject=Subject("found", "p1")),
        RememberedItem(id="c0", revision=4, hash=HASH, subject=Subject("missing"), duplicate=True),
    ]
    complete = Receipt(
        request_id=REQUEST_ID,
        operation="remember",
        at="t",
        ontology_fingerprint=HASH,
        items=[item.to_json() for item in items],
    ).to_json()
    assert agent_receipt(complete) == {
        "ontologyFingerprint": HASH,
        "items": [
            {"id": "c1", "revision": 1, "hash": HASH, "subject": {"state": "found", "id": "p1"}},
            {"id": "c0", "revision": 4, "hash": HASH, "duplicate": True, "subject": {"state": "missing"}},
        ],
    }


def test_a_call_of_duplicates_only_has_no_receipt() -> None:
    item = RememberedItem(id="c0", revision=4, hash=HASH, subject=Subject("ambiguous"), duplicate=True)
    assert all_duplicates([item], ontology_fingerprint=HASH) == {"ontologyFingerprint": HASH, "items": [item.to_json()]}


def test_a_title_that_exists_is_rejected_with_the_page_that_has_it() -> None:
    shown = same_title_rejection(ExistingPage(id="p1", title="Garden Pilot", revision=2, hash=HASH))
    assert set(shown) == {"state", "reason", "id", "existing", "message"}
    assert (shown["state"], shown["reason"], shown["id"]) == ("rejected", "same_title", "")
    assert shown["existing"] == {"id": "p1", "title": "Garden Pilot", "revision": 2, "hash": HASH}
    assert "allowSameTitle" in str(shown["message"])


def test_a_budget_rejection_describes_the_unchanged_target_or_nothing() -> None:
    edit = budget_rejection(message="m", pages=[{"id": "p1"}], id="p1", path="a.md", revision=2, hash=HASH)
    assert (edit["id"], edit["path"], edit["revision"], edit["hash"]) == ("p1", "a.md", 2, HASH)
    assert (edit["state"], edit["reason"], edit["budget"]) == ("rejected", "budget", {"pages": [{"id": "p1"}]})
    create = budget_rejection(message="m", pages=[])
    assert (create["id"], create["path"], create["revision"], create["hash"]) == ("", "", 0, "")

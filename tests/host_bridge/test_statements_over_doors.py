"""Statements and their lifecycle through the Python door and through MCP, and what happens when two write at once."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping

import pytest

from host_bridge.bridge import KnowledgeBridge
from messages.errors import InvalidArgument, KnowledgeError, StaleFence
from messages.json_types import JsonObject, JsonValue
from messages.vocabulary import PRIVATE
from tests.host_bridge.doors import Door, bridge, door
from tests.host_bridge.mcp_session import mapping
from tests.kit.store import MAIN, items_of, only_store, remembering, request_id

__all__ = ["bridge", "door"]


def numbers() -> Iterator[str]:
    return (request_id(number) for number in range(1, 1_000))


def said(door: Door, ids: Iterator[str]) -> JsonObject:
    """What statements about Alex rest on: the vault, the ontology, and a retained source."""
    status = door("status")
    [item] = items_of(door("remember", **remembering("Alex works at Acme."), requestId=next(ids)))
    record = mapping(door("record", id=item["id"], includeEvidence=True)["record"])
    citations = record["evidence"]
    assert isinstance(citations, list)
    citation = {key: value for key, value in mapping(citations[0]).items() if key in ("path", "sha256")}
    return {
        "expectedVaultId": status["vaultId"],
        "expectedOntologyFingerprint": status["ontologyFingerprint"],
        "attribution": "Alex, in the chat",
        "evidence": [citation],
    }


def fence(receipt: Mapping[str, JsonValue]) -> JsonObject:
    return {"id": receipt["id"], "expectedRevision": receipt["revision"], "expectedHash": receipt["hash"]}


def test_a_statement_is_created_annotated_corrected_and_withdrawn(door: Door) -> None:
    ids = numbers()
    base = said(door, ids)
    vault = {name: base[name] for name in ("expectedVaultId", "expectedOntologyFingerprint")}
    alex = door("save_page", requestId=next(ids), title="Alex", type="person", body="")
    acme = door("save_page", requestId=next(ids), title="Acme", type="company", body="")
    joined = door(
        "create_relationship", requestId=next(ids), label="works_at", **base, **{"from": alex["id"], "to": acme["id"]}
    )
    assert mapping(door("record", id=joined["id"])["record"])["label"] == "works_at"
    claim = {**base, "body": "Alex likes tea.", "claim_kind": "preference", "assertion_origin": "source"}
    made = door("create_claim", requestId=next(ids), entities=[alex["id"]], **claim)
    noted = door("annotate", requestId=next(ids), reason="unsure", attribution_confidence="low", **vault, **fence(made))
    replacement = {
        "kind": "claim",
        **{name: value for name, value in claim.items() if name not in vault},
        "body": "Alex likes coffee.",
    }
    corrected = door("correct", requestId=next(ids), reason="wrong", replacement=replacement, **vault, **fence(noted))
    gone = door("withdraw", requestId=next(ids), reason="a joke", **fence(corrected))
    assert gone["revision"] == 2
    assert door("grep", query="coffee")["total"] == 0
    lifecycles = [mapping(door("record", id=made["id"])["record"])["lifecycle"]]
    assert lifecycles == ["superseded"]


def test_two_pages_are_merged_and_unmerged(door: Door) -> None:
    ids = numbers()
    vault = {name: value for name, value in said(door, ids).items() if name.startswith("expected")}
    alex = door("save_page", requestId=next(ids), title="Alex", type="person", body="One.")
    other = door("save_page", requestId=next(ids), title="Alexander", type="person", body="Two.")
    door("merge", requestId=next(ids), reason="same", source=fence(alex), destination=fence(other), **vault)
    hits = door("lookup", query="Alex")["hits"]
    assert isinstance(hits, list)
    assert [mapping(hit)["id"] for hit in hits] == [other["id"]]
    merged = mapping(door("record", id=alex["id"])["record"])
    assert merged["lifecycle"] == "merged"
    door("unmerge", requestId=next(ids), reason="not the same", **fence(merged))
    hits = door("lookup", query="Alex")["hits"]
    assert isinstance(hits, list)
    assert [mapping(hit)["id"] for hit in hits] == [alex["id"]]


def test_a_batch_is_published_as_a_whole(door: Door) -> None:
    ids = numbers()
    base = said(door, ids)
    vault = {name: value for name, value in base.items() if name.startswith("expected")}
    claim = {"kind": "claim", "body": "Alex likes tea.", "claim_kind": "fact", "assertion_origin": "source"}
    saved = door(
        "publish_batch",
        requestId=next(ids),
        items=[
            {**claim, "entities": ["$alex"], "attribution": base["attribution"], "evidence": base["evidence"]},
            {"kind": "page", "ref": "alex", "title": "Alex", "type": "person", "body": ""},
        ],
        **vault,
    )
    first, second = items_of(saved)
    pages = mapping(door("record", id=first["id"])["record"])["pages"]
    assert isinstance(pages, list)
    assert mapping(pages[0])["id"] == second["id"]


# --- at the same time ---------------------------------------------------------------------------------------------


def at_once(bridge: KnowledgeBridge, *calls: tuple[str, JsonObject]) -> list[JsonObject | KnowledgeError]:
    """Every call from a thread of its own, let go together."""
    gate = threading.Barrier(len(calls))
    answers: list[JsonObject | KnowledgeError] = [{} for _ in calls]

    def make(place: int, tool: str, arguments: JsonObject) -> None:
        gate.wait()
        try:
            answers[place] = bridge.call(f"knowledge_{tool}", arguments, MAIN)
        except KnowledgeError as error:
            answers[place] = error

    threads = [threading.Thread(target=make, args=(n, *call)) for n, call in enumerate(calls)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return answers


@pytest.fixture
def rivals(bridge: KnowledgeBridge) -> tuple[JsonObject, JsonObject, JsonObject, Iterator[str]]:
    """What statements rest on, a page, a claim."""

    def call(tool: str, **arguments: JsonValue) -> JsonObject:
        return bridge.call(f"knowledge_{tool}", arguments, MAIN)

    ids = numbers()
    base = said(call, ids)
    page = call("save_page", requestId=next(ids), title="Alex", type="person", body="One.")
    claim = call(
        "create_claim",
        requestId=next(ids),
        body="Alex likes tea.",
        claim_kind="fact",
        assertion_origin="source",
        **base,
    )
    return base, page, claim, ids


def test_of_two_writers_with_one_fence_one_wins_and_the_other_learns_the_fresh_revision(
    bridge: KnowledgeBridge, rivals: tuple[JsonObject, JsonObject, JsonObject, Iterator[str]]
) -> None:
    base, _, claim, ids = rivals
    vault = {name: value for name, value in base.items() if name.startswith("expected")}
    both = [
        ("annotate", {"requestId": next(ids), "reason": "r", "attribution_confidence": how, **vault, **fence(claim)})
        for how in ("low", "high")
    ]
    answers = at_once(bridge, *both)
    won = [answer for answer in answers if not isinstance(answer, KnowledgeError)]
    lost = [answer for answer in answers if isinstance(answer, KnowledgeError)]
    assert [receipt["revision"] for receipt in won] == [2]
    assert [type(error) for error in lost] == [StaleFence]
    assert (lost[0].fields["revision"], lost[0].fields["hash"]) == (2, won[0]["hash"])


def test_one_request_id_from_two_threads_is_one_publication(
    bridge: KnowledgeBridge, rivals: tuple[JsonObject, JsonObject, JsonObject, Iterator[str]]
) -> None:
    base, _, claim, ids = rivals
    replacement = {
        "kind": "claim", "body": "Alex likes coffee.", "claim_kind": "fact", "assertion_origin": "source",
        "attribution": base["attribution"], "evidence": base["evidence"],
    }  # fmt: skip
    vault = {name: value for name, value in base.items() if name.startswith("expected")}
    call: tuple[str, JsonObject] = (
        "correct",
        {"requestId": next(ids), "reason": "wrong", "replacement": replacement, **vault, **fence(claim)},
    )
    first, second, third = at_once(bridge, call, call, call)
    assert isinstance(first, Mapping)
    assert first == second == third
    assert bridge.call("knowledge_records", {"kind": "claim", "match": "coffee"}, MAIN)["total"] == 1


@pytest.mark.parametrize("rival", ["correct", "withdraw"])
def test_of_a_withdrawal_and_a_rival_exactly_one_happens(
    bridge: KnowledgeBridge, rivals: tuple[JsonObject, JsonObject, JsonObject, Iterator[str]], rival: str
) -> None:
    base, _, claim, ids = rivals
    replacement = {
        "kind": "claim", "body": "Alex likes coffee.", "claim_kind": "fact", "assertion_origin": "source",
        "attribution": base["attribution"], "evidence": base["evidence"],
    }  # fmt: skip
    more: JsonObject = {"expectedOntologyFingerprint": base["expectedOntologyFingerprint"], "replacement": replacement}
    answers = at_once(
        bridge,
        ("withdraw", {"requestId": next(ids), "reason": "a joke", **fence(claim)}),
        (rival, {"requestId": next(ids), "reason": "wrong", **fence(claim), **(more if rival == "correct" else {})}),
    )
    lost = [answer for answer in answers if isinstance(answer, KnowledgeError)]
    assert len(lost) == 1
    assert isinstance(lost[0], InvalidArgument | StaleFence)


def test_a_merge_against_an_edit_of_the_destination_loses_nothing(
    bridge: KnowledgeBridge, rivals: tuple[JsonObject, JsonObject, JsonObject, Iterator[str]]
) -> None:
    base, page, _, ids = rivals
    other = bridge.call(
        "knowledge_save_page", {"requestId": next(ids), "title": "Lex", "type": "person", "body": "Two."}, MAIN
    )
    vault = {name: value for name, value in base.items() if name.startswith("expected")}
    merge: JsonObject = {
        "requestId": next(ids), "reason": "same", "source": fence(other), "destination": fence(page), **vault,
    }  # fmt: skip
    edit: JsonObject = {
        "requestId": next(ids), "title": "Alex", "type": "person", "body": "One, and more.", **fence(page),
    }  # fmt: skip
    answers = at_once(bridge, ("merge", merge), ("save_page", edit))
    [lost] = [answer for answer in answers if isinstance(answer, KnowledgeError)]
    assert isinstance(lost, StaleFence)
    folder = only_store(bridge.state_dir).partition(PRIVATE)
    texts = [path.read_text("utf-8") for path in folder.rglob("*.md")]
    assert sum("One, and more." in text for text in texts) == (0 if isinstance(answers[1], KnowledgeError) else 1)
    assert sum('lifecycle: "merged"' in text for text in texts) == (0 if isinstance(answers[0], KnowledgeError) else 1)

"""Shared memory reads as hosts reach them: through the Python bridge, a pipe and a process of their own.

What is asked here is who gets what: audiences, grants, tokens and what is taken away between two requests. What the
answers hold is tested at the operations.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from host_bridge.bridge import KnowledgeBridge
from messages.audience import Audience, AudienceToken, Conversation, OwnerPrivate
from messages.errors import (
    AudienceMissing,
    AudienceStale,
    Denied,
    InvalidArgument,
    KnowledgeError,
    NotFound,
    ReferenceForeign,
    Sandboxed,
    SnapshotChanged,
)
from messages.json_types import JsonObject, JsonValue
from messages.provider import parse_provider_call
from tests.host_bridge.doors import bridge
from tests.host_bridge.test_barrier import Host
from tests.host_bridge.test_real_stdio import spoken
from tests.kit.actors import eventually
from tests.kit.store import GROUP, MAIN, only_store, open_bridge, remember, remembering, request_id, stores

__all__ = ["bridge"]

OWNER: JsonObject = {"kind": "owner-private", "agent": "main"}
GROUP_OBJECT: JsonObject = {
    "kind": "conversation",
    "agent": "main",
    "sessionKey": GROUP.session_key,
    "sessionId": GROUP.session_id,
}
TWO_STORES = "agents: {list: [{id: main}, {id: research}]}\n"
READS: dict[str, JsonObject] = {
    "memory.search": {"query": "harbor"},
    "memory.read": {
        "ref": {"provider": "knowledge", "store": "s", "id": "a", "revision": 1, "hash": "0" * 64}
    },
    "memory.status": {},
    "memory.candidates": {"kind": "trigger"},
    "flush.plan": {"flushId": "f"},
}  # fmt: skip


def listed(answer: JsonObject, key: str) -> list[JsonObject]:
    found = answer[key]
    assert isinstance(found, list)
    return found


def search(bridge: KnowledgeBridge, audience: Audience | AudienceToken, **more: JsonValue) -> list[JsonObject]:
    return listed(bridge.consult("memory.search", {"query": "harbor", **more}, audience), "hits")


def grant(bridge: KnowledgeBridge, access: str | None, key: str = GROUP.session_key) -> None:
    given: JsonObject = {"agent": "main", "sessionKey": key}
    if access is None:
        bridge.ask("access.grants.remove", given)
    else:
        bridge.ask("access.grants.set", {**given, "access": access})


def filled(bridge: KnowledgeBridge, audience: Audience = MAIN, number: int = 3) -> None:
    for one in range(number):
        remember(bridge, f"The harbor number {one} is open.", 100 + one, audience)


def approved(bridge: KnowledgeBridge, title: str = "Plan", number: int = 900) -> str:
    page = bridge.call(
        "knowledge_save_page",
        {"requestId": request_id(number), "title": title, "type": "project", "body": "About it."},
        MAIN,
    )
    bridge.call(
        "knowledge_recall",
        {
            "requestId": request_id(number + 1),
            "id": page["id"],
            "expectedRevision": 1,
            "expectedHash": page["hash"],
            "summary": "It ships on Friday.",
            "triggers": ["release"],
        },
        MAIN,
    )
    return str(page["id"])


# --- who is let in ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("method", sorted(READS))
@pytest.mark.parametrize(
    ("audience", "refusal"),
    [
        (None, AudienceMissing),
        (OwnerPrivate("stranger"), Denied),
        (OwnerPrivate("main", root=OwnerPrivate("stranger")), Denied),
        (OwnerPrivate("main", sandboxed=True), Sandboxed),
        (OwnerPrivate("main", root=replace(GROUP, sandboxed=True)), Sandboxed),
        (OwnerPrivate("main", expires_at=datetime.now(UTC) - timedelta(seconds=1)), AudienceStale),
        (AudienceToken("no token"), KnowledgeError),
    ],
    ids=["missing", "foreign", "foreign root", "sandboxed", "sandboxed root", "stale", "no token"],
)
def test_missing_foreign_sandboxed_and_stale_callers_are_denied(
    bridge: KnowledgeBridge, method: str, audience: Audience | None, refusal: type[KnowledgeError]
) -> None:
    with pytest.raises(refusal):
        bridge.consult(method, READS[method], audience)
    assert stores(bridge.state_dir) == []


def test_where_the_agent_has_no_store_an_empty_one_answers_and_none_is_created(bridge: KnowledgeBridge) -> None:
    assert bridge.consult("memory.search", {"query": "harbor"}, MAIN) == {"hits": []}
    assert bridge.consult("memory.candidates", {"kind": "project"}, GROUP) == {"candidates": []}
    assert bridge.consult("memory.status", {}, MAIN) == {"ready": True}
    with pytest.raises(ReferenceForeign):
        bridge.consult("memory.read", READS["memory.read"], MAIN)
    with pytest.raises(InvalidArgument):
        bridge.consult("memory.search", {"query": "harbor", "cursor": "x"}, MAIN)
    assert bridge.consult("flush.plan", {"flushId": "f"}, MAIN)["plan"] is not None
    assert stores(bridge.state_dir) == []


def test_requests_for_sessions_are_rejected_before_anything_is_asked(bridge: KnowledgeBridge) -> None:
    with pytest.raises(InvalidArgument) as error:
        bridge.consult("memory.search", {"query": "harbor", "sources": ["sessions"]}, OwnerPrivate("stranger"))
    assert error.value.fields["field"] == "sources[0]"


# --- partitions, grants and delegation ----------------------------------------------------------------------


def test_search_and_read_reach_the_partition_of_the_audience_and_nothing_else(bridge: KnowledgeBridge) -> None:
    filled(bridge)
    remember(bridge, "The harbor of the group is shut.", 1, GROUP)
    mine, theirs = search(bridge, MAIN), search(bridge, GROUP)
    assert (len(mine), len(theirs)) == (3, 1)
    assert bridge.consult("memory.read", {"ref": theirs[0]["ref"]}, GROUP)["totalLines"] == 4
    for audience, ref in ((MAIN, theirs[0]["ref"]), (GROUP, mine[0]["ref"])):
        with pytest.raises(NotFound) as other:
            bridge.consult("memory.read", {"ref": ref}, audience)
        assert isinstance(ref, dict)
        with pytest.raises(NotFound) as never:
            bridge.consult("memory.read", {"ref": {**ref, "id": "never-was"}}, audience)
        assert (other.value.message, other.value.to_data()) == (never.value.message, never.value.to_data())


def test_a_child_reads_as_the_audience_that_delegated_to_it(bridge: KnowledgeBridge) -> None:
    filled(bridge)
    approved(bridge)
    child = OwnerPrivate("main", root=GROUP)
    assert search(bridge, child) == []
    assert bridge.consult("memory.candidates", {"kind": "trigger"}, child) == {"candidates": []}
    assert len(search(bridge, replace(GROUP, root=MAIN))) == 3
    with pytest.raises(NotFound):
        bridge.consult("memory.read", {"ref": search(bridge, MAIN)[0]["ref"]}, child)


@pytest.mark.parametrize("access", ["read", "read-save"])
def test_a_conversation_with_a_grant_reads_the_owners_records_and_candidates(
    bridge: KnowledgeBridge, access: str
) -> None:
    filled(bridge)
    page = approved(bridge)
    assert bridge.consult("memory.candidates", {"kind": "trigger"}, GROUP) == {"candidates": []}
    grant(bridge, access)
    thread = Conversation("main", f"{GROUP.session_key}:thread", request_id(77))
    for audience in (GROUP, thread):
        assert len(search(bridge, audience)) == 3
        [candidate] = listed(bridge.consult("memory.candidates", {"kind": "trigger"}, audience), "candidates")
        assert (candidate["id"], candidate["excerpt"]) == (page, "It ships on Friday.")
    grant(bridge, None)
    assert search(bridge, thread) == []
    assert bridge.consult("memory.candidates", {"kind": "trigger"}, GROUP) == {"candidates": []}


def test_a_reference_grants_no_access_once_the_grant_is_revoked_between_search_and_read(
    bridge: KnowledgeBridge,
) -> None:
    filled(bridge)
    grant(bridge, "read")
    ref = search(bridge, GROUP)[0]["ref"]
    assert bridge.consult("memory.read", {"ref": ref}, GROUP)["lines"]
    grant(bridge, None)
    with pytest.raises(NotFound):
        bridge.consult("memory.read", {"ref": ref}, GROUP)


@pytest.mark.parametrize("method", ["memory.search", "memory.candidates", "memory.status"])
def test_an_answer_that_is_ready_is_not_handed_over_once_the_grant_is_revoked(
    bridge: KnowledgeBridge, method: str
) -> None:
    filled(bridge)
    grant(bridge, "read")
    pending = bridge.provide(parse_provider_call(method, READS[method], caller=GROUP))
    answered = threading.Event()
    pending.add_done_callback(lambda _: answered.set())
    assert answered.wait(30)
    grant(bridge, None)
    with pytest.raises(Denied):
        pending.deliver(lambda _: pytest.fail("it was handed over"))


@pytest.mark.parametrize("after", [None, "read"])
def test_a_cursor_is_rejected_once_the_grant_is_revoked_or_narrowed(bridge: KnowledgeBridge, after: str | None) -> None:
    filled(bridge)
    grant(bridge, "read-save")
    cursor = bridge.consult("memory.search", {"query": "harbor", "limit": 1}, GROUP)["nextCursor"]
    grant(bridge, after)
    with pytest.raises(InvalidArgument) as error:
        search(bridge, GROUP, cursor=cursor)
    assert error.value.fields["reason"] == "other_scope"


def test_a_revoked_token_reads_nothing_more(bridge: KnowledgeBridge) -> None:
    filled(bridge)
    minted = bridge.ask("access.tokens.mint", {"audience": OWNER})
    token = AudienceToken(str(minted["token"]))
    [hit, *_] = search(bridge, token)
    assert bridge.consult("memory.read", {"ref": hit["ref"]}, token)["lines"]
    bridge.ask("access.tokens.revoke", {"id": minted["id"]})
    for method, params in READS.items():
        with pytest.raises(AudienceStale):
            bridge.consult(method, params, token)


def test_a_reference_and_a_cursor_from_another_store_are_rejected(tmp_path: Path) -> None:
    with open_bridge(tmp_path, TWO_STORES) as bridge:
        filled(bridge)
        filled(bridge, OwnerPrivate("research"))
        answer = bridge.consult("memory.search", {"query": "harbor", "limit": 1}, OwnerPrivate("research"))
        [hit] = listed(answer, "hits")
        for method, params, field in (
            ("memory.read", {"ref": hit["ref"]}, "ref.store"),
            ("memory.search", {"query": "harbor", "cursor": answer["nextCursor"]}, "cursor"),
        ):
            with pytest.raises(ReferenceForeign) as error:
                bridge.consult(method, params, MAIN)
            assert error.value.fields["field"] == field


def test_a_cursor_goes_on_after_a_restart_and_not_after_a_save(tmp_path: Path) -> None:
    with open_bridge(tmp_path) as bridge:
        filled(bridge)
        every = search(bridge, MAIN)
        cursor = bridge.consult("memory.search", {"query": "harbor", "limit": 1}, MAIN)["nextCursor"]
    with open_bridge(tmp_path) as bridge:
        assert search(bridge, MAIN, cursor=cursor) == every[1:]
        remember(bridge, "Something else.", 999)
        with pytest.raises(SnapshotChanged):
            search(bridge, MAIN, cursor=cursor)


# --- readiness ----------------------------------------------------------------------------------------------


def ready(bridge: KnowledgeBridge, audience: Audience | AudienceToken | None = MAIN) -> bool:
    answer = bridge.consult("memory.status", {"purpose": "status"}, audience)
    assert set(answer) == {"ready"}
    assert isinstance(answer["ready"], bool)
    return answer["ready"]


def test_readiness_is_told_to_everybody_and_says_no_more_to_those_who_are_refused(bridge: KnowledgeBridge) -> None:
    filled(bridge)
    for audience in (MAIN, GROUP, None, OwnerPrivate("stranger"), OwnerPrivate("main", sandboxed=True)):
        assert ready(bridge, audience)
    assert ready(bridge, AudienceToken("no token"))
    assert ready(bridge, replace(GROUP, session_id="../private"))


def test_it_is_not_ready_while_no_authority_vouches_for_a_view(bridge: KnowledgeBridge) -> None:
    filled(bridge)
    bridge._runtime.gate.withdraw_view()
    assert not ready(bridge)
    assert not ready(bridge, None)
    eventually(lambda: ready(bridge))


def test_it_is_not_ready_while_the_store_lacks_a_part_or_is_closed_and_nothing_is_opened_or_made_for_it(
    tmp_path: Path,
) -> None:
    with open_bridge(tmp_path, TWO_STORES) as bridge:
        filled(bridge)
    manifest = only_store(tmp_path).manifest
    kept = manifest.read_bytes()
    manifest.unlink()
    with open_bridge(tmp_path, TWO_STORES) as bridge:
        eventually(lambda: not ready(bridge) and ready(bridge, OwnerPrivate("research")))
        assert bridge.health()["stores"] == []
        assert not manifest.exists()
        with pytest.raises(KnowledgeError):
            search(bridge, MAIN)
        manifest.write_bytes(kept)
        assert search(bridge, MAIN)
        eventually(lambda: ready(bridge))
    manifest.write_bytes(kept.replace(b'"generation"', b'"generatiom"'))
    with open_bridge(tmp_path, TWO_STORES) as bridge:
        with pytest.raises(KnowledgeError):
            search(bridge, MAIN)
        assert not ready(bridge)


def test_it_is_not_ready_where_the_agent_is_listed_in_two_stores(tmp_path: Path) -> None:
    two = "stores: {one: {agents: [main]}, two: {agents: [main]}}\n"
    with open_bridge(tmp_path, two) as bridge:
        eventually(lambda: ready(bridge, None))
        assert not ready(bridge)


def test_it_is_not_ready_once_the_runtime_stops(tmp_path: Path) -> None:
    with open_bridge(tmp_path) as bridge:
        filled(bridge)
        assert ready(bridge)
        bridge._runtime._closing.set()  # it drains, and what is under way is still served
        assert not ready(bridge)
    assert not ready(bridge)


# --- over a pipe and in a process ---------------------------------------------------------------------------


@contextmanager
def piped(bridge: KnowledgeBridge) -> Iterator[Callable[[str, JsonObject], JsonObject]]:
    host = Host(bridge)
    host.read()
    try:
        yield host.ask
    finally:
        host.close()


def result(answer: JsonObject) -> JsonObject:
    found = answer["result"]
    assert isinstance(found, dict)
    return found


def test_the_host_protocol_gives_the_answers_of_the_python_door(bridge: KnowledgeBridge) -> None:
    filled(bridge)
    approved(bridge)
    asked: list[tuple[str, JsonObject]] = [
        ("memory.search", {"query": "harbor", "limit": 2}),
        ("memory.status", {}),
        ("memory.status", {"purpose": "status"}),
        ("memory.candidates", {"kind": "trigger"}),
        ("flush.plan", {"flushId": "f"}),
        ("memory.read", {"ref": search(bridge, MAIN)[0]["ref"], "lines": 2}),
    ]
    with piped(bridge) as ask:
        for method, params in asked:
            expected = bridge.consult(method, params, MAIN)
            assert result(ask(method, {**params, "audience": OWNER})) == expected, method
        refused = ask("memory.search", {"query": "harbor", "sources": ["sessions"], "audience": OWNER})["error"]
    assert isinstance(refused, dict)
    assert (refused["code"], refused["data"]["code"], refused["data"]["field"]) == (
        -32602, "invalid_argument", "sources[0]"
    )  # fmt: skip


def test_a_host_in_its_own_process_searches_reads_and_lists(tmp_path: Path) -> None:
    initialize: tuple[str, JsonObject] = (
        "initialize", {"protocol": "knowledge-host/1", "host": {"name": "test", "version": "1"}},
    )  # fmt: skip
    with open_bridge(tmp_path) as bridge:
        page = approved(bridge)
        [hit] = listed(bridge.consult("memory.search", {"query": "plan"}, MAIN), "hits")
    save: JsonObject = {**remembering("The harbor is open."), "requestId": request_id(1)}
    answers = spoken(
        tmp_path,
        [
            initialize,
            ("tools.call", {"tool": "knowledge_remember", "arguments": save, "audience": GROUP_OBJECT}),
            ("memory.read", {"ref": hit["ref"], "audience": OWNER}),
            ("memory.read", {"ref": hit["ref"], "audience": GROUP_OBJECT}),
            ("memory.candidates", {"kind": "trigger", "audience": OWNER}),
            ("memory.search", {"query": "plan", "cursor": "forged", "audience": OWNER}),
            ("memory.search", {"query": "plan", "audience": OWNER}),
            ("shutdown", {}),
        ],
    )
    assert answers[2]["result"]["lines"] == ["# Plan", "", "About it."]
    assert answers[3]["error"]["data"]["code"] == "not_found"
    assert [one["id"] for one in answers[4]["result"]["candidates"]] == [page]
    assert answers[5]["error"]["data"] == {
        "code": "invalid_argument", "retry": "never", "field": "cursor", "reason": "malformed",
        "allowed": "the nextCursor of an earlier page",
    }  # fmt: skip
    assert answers[6]["result"]["hits"] == [hit]

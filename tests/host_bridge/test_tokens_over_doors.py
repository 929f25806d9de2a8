"""Tokens of audiences over the host protocol: a token in the place of an audience, and its end as a barrier.

Judged at the far end of the pipe, as ``test_barrier``. decisions.md sections 6 and 7.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from pathlib import Path

import pytest

from actors.authority import PermitGate
from host_bridge.bridge import KnowledgeBridge
from messages.audience import AudienceToken, audience_json
from messages.json_types import JsonObject
from storage import faults
from tests.host_bridge.test_barrier import BEFORE, INSIDE, SECRET, Host, Paused, claims, code
from tests.host_bridge.test_real_stdio import spoken
from tests.kit.actors import eventually
from tests.kit.leaks import nothing_left
from tests.kit.store import GROUP, MAIN, open_bridge, remember, remembering

OWNER = audience_json(MAIN)


@pytest.fixture
def bridge(tmp_path: Path) -> Iterator[KnowledgeBridge]:
    with nothing_left(), open_bridge(tmp_path) as opened:
        remember(opened, f"{SECRET} is private.", 1)
        yield opened


@pytest.fixture
def host(bridge: KnowledgeBridge) -> Iterator[Host]:
    made = Host(bridge)
    made.read()
    yield made
    made.close()


def mint(host: Host, audience: JsonObject = OWNER) -> str:
    """The id of a token that the host calls with from now on."""
    result = host.ask("access.tokens.mint", {"audience": audience})["result"]
    assert isinstance(result, dict)
    host.audience = result["token"]
    return str(result["id"])


def in_force(bridge: KnowledgeBridge, host: Host) -> bool:
    """Whether the view that is in force lets the token in."""
    try:
        bridge.audience_of(str(host.audience))
    except Exception:  # noqa: BLE001 - whatever the refusal, it is out of force
        return False
    return True


@pytest.mark.parametrize("audience", [OWNER, audience_json(GROUP)])
def test_a_token_stands_in_the_place_of_its_audience_over_json_rpc(
    bridge: KnowledgeBridge, host: Host, audience: JsonObject
) -> None:
    def seen() -> object:
        return host.answer(host.look())[1]["result"]

    host.audience = audience
    by_object = seen()
    mint(host, audience)
    assert seen() == by_object
    assert (SECRET in str(by_object)) == (audience is OWNER)


def test_an_audience_that_is_text_but_no_token_is_refused_by_its_field(host: Host) -> None:
    host.audience = "owner-private"
    error = host.answer(host.look())[1]["error"]
    assert isinstance(error, dict)
    data = error["data"]
    assert isinstance(data, dict)
    assert (error["code"], data["field"], data["reason"]) == (-32602, "audience", "token_malformed")


def revoke(host: Host, token_id: str) -> int:
    return host.send("access.tokens.revoke", {"id": token_id})


@pytest.mark.parametrize("point", BEFORE)
def test_a_save_that_stood_before_its_commit_when_its_token_was_revoked_never_happens(
    bridge: KnowledgeBridge, host: Host, point: str
) -> None:
    token = mint(host)
    paused = Paused(point)
    with faults.installed(paused):
        saving = host.save("Too late.")
        assert paused.reached.wait(20)
        assert "result" in host.answer(revoke(host, token))[1]
        paused.go_on.set()
        assert code(host.answer(saving)[1]) == "audience_stale"
    assert claims(bridge) == {f"{SECRET} is private."}
    assert code(host.answer(host.look())[1]) == "audience_stale"


@pytest.mark.parametrize("point", INSIDE)
def test_revoking_a_token_is_answered_after_a_save_that_it_met_inside_the_commit(
    bridge: KnowledgeBridge, host: Host, point: str
) -> None:
    token = mint(host)
    paused = Paused(point)
    with faults.installed(paused):
        saving = host.save("In time.")
        assert paused.reached.wait(20)
        revoking = revoke(host, token)
        eventually(lambda: not in_force(bridge, host))
        assert not host.answered(revoking)
        paused.go_on.set()
        place, message = host.answer(revoking)
        assert "result" in message
        after = claims(bridge)
        answered, told = host.answer(saving)
        assert "error" in told or answered < place
    assert claims(bridge) == after == {f"{SECRET} is private.", "In time."}


def test_without_the_fence_a_save_follows_the_end_of_its_token(
    bridge: KnowledgeBridge, host: Host, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(PermitGate, "fence", lambda self, permit, unfinished=None: nullcontext())
    monkeypatch.setattr(PermitGate, "check", lambda self, permit, *, write: None)
    token = mint(host)
    paused = Paused(BEFORE[-1])
    with faults.installed(paused):
        saving = host.save("Too late.")
        assert paused.reached.wait(20)
        host.answer(revoke(host, token))
        paused.go_on.set()
        host.answer(saving)
    assert "Too late." in claims(bridge)


def test_revoking_a_token_waits_for_a_slow_reader_and_nothing_private_follows(
    bridge: KnowledgeBridge, host: Host
) -> None:
    for number in range(2, 32):
        remember(bridge, f"{SECRET} {number} " + "is private, every word of it. " * 20, number)
    token = mint(host)
    slow = Host(bridge, patience=60, small=True)
    slow.audience = host.audience
    try:
        asked = [slow.send("tools.call", look(slow)) for _ in range(8)]
        eventually(lambda: bool(bridge._runtime.gate._inside))
        revoking = revoke(host, token)
        eventually(lambda: not in_force(bridge, host))
        assert not host.answered(revoking)
        slow.read()
        assert "result" in host.answer(revoking)[1]
        received = len(slow.private)
        for number in asked:
            slow.answer(number)
        assert not any(slow.private[received + 1 :]), "at most the line that was on its way"
        assert code(slow.answer(slow.send("tools.call", look(slow)))[1]) == "audience_stale"
    finally:
        slow.close()


def look(host: Host) -> JsonObject:
    return {"tool": "knowledge_records", "arguments": {"kind": "claim"}, "audience": host.audience}


def test_a_subscription_under_a_token_ends_with_it(bridge: KnowledgeBridge, host: Host) -> None:
    token = mint(host)
    assert "result" in host.ask("events.subscribe", {"audience": host.audience})
    hub = bridge._runtime._events
    assert len(hub._subscriptions) == 1
    host.answer(revoke(host, token))
    remember(bridge, "Another.", 2)
    eventually(lambda: not hub._subscriptions)
    assert code(host.ask("events.subscribe", {"audience": host.audience})) == "audience_stale"


def test_a_host_mints_in_its_own_name_and_its_tokens_outlive_the_process(tmp_path: Path) -> None:
    initialize: tuple[str, JsonObject] = (
        "initialize", {"protocol": "knowledge-host/1", "host": {"name": "test", "version": "1"}},
    )  # fmt: skip
    answers = spoken(tmp_path, [initialize, ("access.tokens.mint", {"audience": OWNER}), ("shutdown", {})])
    token = answers[1]["result"]
    assert token["mintedBy"] == "operator:host"
    save: JsonObject = {**remembering("By a token."), "requestId": str(uuid.uuid4())}
    eve: JsonObject = {"id": "eve", "scopes": ["operator.read"]}
    answers = spoken(
        tmp_path,
        [
            initialize,
            ("tools.call", {"tool": "knowledge_remember", "arguments": save, "audience": token["token"]}),
            ("access.tokens.mint", {"operator": eve, "audience": OWNER}),
            ("access.audit", {"operator": {"id": "ana", "scopes": ["operator.admin"]}}),
            ("shutdown", {}),
        ],
    )
    assert "result" in answers[1]
    assert answers[2]["error"]["data"]["code"] == "denied"
    rows = answers[3]["result"]["rows"]
    assert [row["door"] for row in rows if row["action"] == "token.mint"] == ["host"]


def test_a_token_is_read_by_the_same_code_at_every_door(bridge: KnowledgeBridge, host: Host) -> None:
    mint(host)
    text = str(host.audience)
    found = bridge.audience_of(text)
    assert found == bridge._runtime.gate.audience_of(AudienceToken(text))
    assert bridge.call("knowledge_records", {}, found) == bridge.call("knowledge_records", {}, AudienceToken(text))


def test_of_what_comes_after_the_end_of_a_token_nothing_is_answered(bridge: KnowledgeBridge, host: Host) -> None:
    token = mint(host)
    before: list[Callable[[], int]] = [host.look, lambda: host.save(f"{SECRET} again.")]
    numbers = [before[number % 2]() for number in range(20)]
    place, message = host.answer(revoke(host, token))
    assert "result" in message
    kept = claims(bridge)
    numbers += [before[number % 2]() for number in range(4)]
    for number in numbers:
        answered, told = host.answer(number)
        assert answered < place or "error" in told
    assert not any(host.private[place:])
    assert claims(bridge) == kept

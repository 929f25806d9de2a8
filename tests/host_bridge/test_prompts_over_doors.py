"""``prompt.build`` as hosts reach it: the Python bridge and a process on stdio (memory-provider.md)."""

from __future__ import annotations

import threading
import time
from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import apsw
import pytest

from actors import prompting
from actors.store import historian
from actors.store.operations import prompt_build
from actors.store.operations.standing_index import derive
from host_bridge.bridge import KnowledgeBridge
from host_bridge.transport import PendingAnswer
from messages.audience import Audience, AudienceToken, Conversation, OwnerPrivate
from messages.errors import AudienceStale, Denied, InvalidArgument, StoreUnavailable
from messages.json_types import JsonObject, JsonValue
from messages.provider import parse_provider_call
from messages.vocabulary import PRIVATE
from tests.host_bridge.test_real_stdio import spoken
from tests.kit.leaks import nothing_left
from tests.kit.store import (
    GROUP,
    MAIN,
    items_of,
    only_store,
    open_bridge,
    page_file,
    remembering,
    request_id,
    stores,
    write_note,
)

SAVE_GUIDANCE = "knowledge_remember"


def now() -> str:
    """An instant after everything that was done, in whole milliseconds."""
    started = time.time_ns() // 1_000_000 + 1
    while time.time_ns() // 1_000_000 <= started:
        pass
    return datetime.fromtimestamp(started / 1_000, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def built(bridge: KnowledgeBridge, started: str, audience: Audience | None = MAIN, **more: JsonValue) -> JsonObject:
    return bridge.consult("prompt.build", {"sessionStartedAt": started, **more}, audience)


def page(bridge: KnowledgeBridge, title: str, number: int) -> None:
    given: JsonObject = {"title": title, "type": "project", "body": "About it.", "requestId": request_id(number)}
    bridge.call("knowledge_save_page", given, MAIN)


def answered(bridge: KnowledgeBridge) -> PendingAnswer:
    """A prompt for the group that is there and was not handed over yet."""
    ready = threading.Event()
    pending = bridge.provide(parse_provider_call("prompt.build", {"sessionStartedAt": now()}, caller=GROUP))
    pending.add_done_callback(lambda _: ready.set())
    assert ready.wait(30)
    return pending


def grant(bridge: KnowledgeBridge, access: str) -> None:
    bridge.ask("access.grants.set", {"agent": "main", "sessionKey": GROUP.session_key, "access": access})


@pytest.fixture
def state_dir(tmp_path: Path) -> Path:
    return tmp_path


def test_an_owner_gets_a_prompt_and_an_index_and_the_prompt_does_not_contain_it(state_dir: Path) -> None:
    with nothing_left(), open_bridge(state_dir) as bridge:
        page(bridge, "Garden Pilot", 1)
        answer = built(bridge, now())
    assert set(answer) == {"prompt", "index"}
    assert "- project: Garden Pilot" in str(answer["index"])
    assert "## Knowledge Index" not in str(answer["prompt"])
    assert SAVE_GUIDANCE in str(answer["prompt"])


def test_ungranted_conversations_sandboxed_sessions_and_those_without_authority_or_store_get_no_index(
    state_dir: Path,
) -> None:
    with open_bridge(state_dir) as bridge:
        fresh = built(bridge, now())
        assert fresh["index"] is None
        assert SAVE_GUIDANCE in str(fresh["prompt"])
        assert stores(state_dir) == []
        page(bridge, "Garden Pilot", 1)
        started = now()
        group = built(bridge, started, GROUP)
        assert group["index"] is None
        assert SAVE_GUIDANCE in str(group["prompt"])
        nothing = {"prompt": "", "index": None}
        assert built(bridge, started, OwnerPrivate("main", sandboxed=True)) == nothing
        assert built(bridge, started, Conversation("main", "k", GROUP.session_id, sandboxed=True)) == nothing
        assert built(bridge, started, None) == nothing


def test_a_session_without_memory_authority_has_its_empty_prompt_while_nobody_can_decide_about_access(
    state_dir: Path,
) -> None:
    with open_bridge(state_dir) as bridge:
        page(bridge, "Garden Pilot", 1)
    (state_dir / "knowledge" / "registry.sqlite").rename(state_dir / "registry.away")
    nothing = {"prompt": "", "index": None}
    with open_bridge(state_dir) as bridge:
        assert built(bridge, now(), None) == nothing
        assert built(bridge, now(), OwnerPrivate("main", sandboxed=True)) == nothing
        assert built(bridge, now(), OwnerPrivate("main", root=OwnerPrivate("main", sandboxed=True))) == nothing
        with pytest.raises(StoreUnavailable):
            built(bridge, now())


def test_foreign_and_stale_callers_are_denied(state_dir: Path) -> None:
    with open_bridge(state_dir) as bridge:
        with pytest.raises(Denied):
            built(bridge, now(), OwnerPrivate("stranger"))
        with pytest.raises(AudienceStale):
            built(bridge, now(), OwnerPrivate("main", expires_at=datetime(2020, 1, 1, tzinfo=UTC)))


def test_granting_or_revoking_read_access_changes_the_index_on_the_conversations_next_turn(state_dir: Path) -> None:
    with open_bridge(state_dir) as bridge:
        page(bridge, "Garden Pilot", 1)
        started = now()
        owners = built(bridge, started)["index"]
        assert built(bridge, started, GROUP)["index"] is None
        grant(bridge, "read")
        granted = built(bridge, started, GROUP)
        assert granted["index"] == owners
        assert SAVE_GUIDANCE not in str(granted["prompt"])
        grant(bridge, "read-save")
        assert SAVE_GUIDANCE in str(built(bridge, started, GROUP)["prompt"])
        bridge.ask("access.grants.remove", {"agent": "main", "sessionKey": GROUP.session_key})
        revoked = built(bridge, started, GROUP)
        assert revoked["index"] is None
        assert SAVE_GUIDANCE in str(revoked["prompt"])  # to its own partition


def test_a_child_gets_the_prompt_and_the_index_of_the_audience_that_delegated_to_it(state_dir: Path) -> None:
    with open_bridge(state_dir, "agents: {list: [{id: main}, {id: helper}]}") as bridge:
        page(bridge, "Garden Pilot", 1)
        started = now()
        of_owner, of_group = OwnerPrivate("helper", root=MAIN), OwnerPrivate("helper", root=GROUP)
        grandchild = OwnerPrivate("main", root=of_group)
        assert built(bridge, started, of_owner) == built(bridge, started)
        assert built(bridge, started, OwnerPrivate("helper"))["index"] is None
        for child in (of_group, grandchild):
            assert built(bridge, started, child)["index"] is None
        grant(bridge, "read")
        for child in (of_group, grandchild):
            assert built(bridge, started, child) == built(bridge, started, GROUP)
            assert built(bridge, started, child)["index"] is not None
        assert len(stores(state_dir)) == 1  # none for the helper


def test_an_ended_run_and_a_revoked_token_get_neither_prompt_nor_index(state_dir: Path) -> None:
    with open_bridge(state_dir) as bridge:
        page(bridge, "Garden Pilot", 1)
        started = now()
        run = OwnerPrivate("main", run_id="run 1")
        minted = bridge.ask("access.tokens.mint", {"audience": {"kind": "owner-private", "agent": "main"}})
        token = AudienceToken(str(minted["token"]))
        for caller in (run, OwnerPrivate("main", root=run), token):
            assert bridge.consult("prompt.build", {"sessionStartedAt": started}, caller) == built(bridge, started)
        bridge.end_run("run 1")
        bridge.ask("access.tokens.revoke", {"id": minted["id"]})
        for caller in (run, OwnerPrivate("main", root=run), token):
            with pytest.raises(AudienceStale):
                bridge.consult("prompt.build", {"sessionStartedAt": started}, caller)


def test_a_session_is_the_same_in_whatever_time_zone_its_start_is_written(state_dir: Path) -> None:
    with open_bridge(state_dir) as bridge:
        page(bridge, "Garden Pilot", 1)
        started = now()
        first = built(bridge, started)
        page(bridge, "Tool Shed", 2)
        at = datetime.fromisoformat(started)
        for hours in (-12, 5.5, 14):
            elsewhere = at.astimezone(timezone(timedelta(hours=hours))).isoformat(timespec="milliseconds")
            assert built(bridge, elsewhere) == first
        assert built(bridge, f"{started[:-1]}000Z") == first


def test_the_project_key_reaches_only_the_prompt_and_is_never_a_default_subject(state_dir: Path) -> None:
    key = "github.com/ana/fleet"
    with open_bridge(state_dir) as bridge:
        fleet: JsonObject = {"title": "Fleet", "type": "project", "body": "Ships.", "aliases": [key]}
        fleet_id = bridge.call("knowledge_save_page", {**fleet, "requestId": request_id(1)}, MAIN)["id"]
        assert key in str(built(bridge, now(), projectKey=key)["prompt"])
        saves: list[JsonObject] = [remembering("The tests run on Fridays."), remembering("They run twice.")]
        saves[1]["items"] = [{"text": "They run twice.", "kind": "fact", "subject": key}]
        subjects = []
        for number, save in enumerate(saves):
            saved = bridge.call("knowledge_remember", {**save, "requestId": request_id(10 + number)}, MAIN)
            subjects.append(items_of(saved)[0]["subject"])
    assert subjects == [{"state": "missing"}, {"state": "found", "id": fleet_id}]


def test_a_revocation_between_the_answer_and_its_hand_over_takes_it_back(state_dir: Path) -> None:
    with open_bridge(state_dir) as bridge:
        page(bridge, "Garden Pilot", 1)
        grant(bridge, "read")
        pending = answered(bridge)
        bridge.ask("access.grants.remove", {"agent": "main", "sessionKey": GROUP.session_key})
        told: list[JsonObject] = []
        with pytest.raises(Denied):
            pending.deliver(told.append)
        assert told == []


def test_a_prompt_is_worded_by_the_rights_of_its_hand_over(state_dir: Path) -> None:
    with open_bridge(state_dir) as bridge:
        page(bridge, "Garden Pilot", 1)
        grant(bridge, "read-save")
        pending = answered(bridge)
        grant(bridge, "read")
        told: list[JsonObject] = []
        pending.deliver(told.append)
        assert SAVE_GUIDANCE not in str(told[0]["prompt"])
        assert told[0]["index"] is not None


def test_with_writes_disabled_there_is_an_index_and_no_save_guidance(state_dir: Path) -> None:
    with open_bridge(state_dir) as bridge:
        page(bridge, "Garden Pilot", 1)
    started = now()
    with open_bridge(state_dir, "writesEnabled: false\n") as bridge:
        answer = built(bridge, started)
    assert SAVE_GUIDANCE not in str(answer["prompt"])
    assert "Garden Pilot" in str(answer["index"])


def test_read_failures_omit_the_index_and_never_fail_the_call(state_dir: Path) -> None:
    with open_bridge(state_dir) as bridge:
        page(bridge, "Garden Pilot", 1)
    only_store(state_dir).manifest.write_text("not a manifest", "utf-8")
    with open_bridge(state_dir) as bridge:
        answer = built(bridge, now())
    assert answer["index"] is None
    assert SAVE_GUIDANCE in str(answer["prompt"])


def test_a_sessions_index_is_the_same_in_every_process_that_answers_for_it(state_dir: Path) -> None:
    """Through two closings, with saves and edits by hand in between, and without what was kept."""
    with open_bridge(state_dir) as bridge:
        page(bridge, "Garden Pilot", 1)
        started = now()
        first = built(bridge, started)["index"]
        for number in range(20):
            given = {**remembering(f"Fact {number}."), "requestId": request_id(100 + number)}
            bridge.call("knowledge_remember", given, MAIN)
    store = only_store(state_dir)
    write_note(store.partition(PRIVATE), "by-hand.md", page_file("by-hand", "By hand"))
    with open_bridge(state_dir) as bridge:
        page(bridge, "Tool Shed", 2)
        assert built(bridge, started)["index"] == first
    database = apsw.Connection(str(store.state_database))
    database.execute("DELETE FROM standing_index")
    database.close()
    with open_bridge(state_dir) as bridge:
        assert built(bridge, started)["index"] == first
        refreshed = str(built(bridge, now())["index"])
    assert "Tool Shed" in refreshed
    assert "By hand" in refreshed


@pytest.mark.parametrize(
    ("params", "field", "reason"),
    [
        ({}, "sessionStartedAt", "missing"),
        ({"sessionStartedAt": "yesterday"}, "sessionStartedAt", "malformed"),
        ({"sessionStartedAt": "2026-01-01T00:00:00Z", "projectKey": "two\nlines"}, "projectKey", "control_character"),
        ({"sessionStartedAt": "2026-01-01T00:00:00Z", "tools": "knowledge_grep"}, "tools", "wrong_type"),
        ({"sessionStartedAt": "2026-01-01T00:00:00Z", "session": "x"}, "session", "unknown"),
    ],
)
def test_bad_params_are_refused_with_the_field_and_the_reason(
    state_dir: Path, params: JsonObject, field: str, reason: str
) -> None:
    with open_bridge(state_dir) as bridge, pytest.raises(InvalidArgument) as refused:
        bridge.consult("prompt.build", params, MAIN)
    assert (refused.value.fields["field"], refused.value.fields["reason"]) == (field, reason)


def test_a_host_on_stdio_gets_prompt_and_index(state_dir: Path) -> None:
    with open_bridge(state_dir) as bridge:
        page(bridge, "Garden Pilot", 1)
    owner: JsonObject = {"kind": "owner-private", "agent": "main"}
    asked: JsonObject = {
        "audience": owner, "sessionStartedAt": now(), "projectKey": "github.com/acme/garden",
        "tools": ["knowledge_grep"], "skills": ["knowledge-recall"], "linkBase": "https://host/knowledge",
    }  # fmt: skip
    answers = spoken(
        state_dir,
        [
            ("initialize", {"protocol": "knowledge-host/1", "host": {"name": "test", "version": "1"}}),
            ("prompt.build", asked),
            ("prompt.build", {**asked, "audience": {**owner, "sandboxed": True}}),
            ("prompt.build", {"audience": owner}),
            ("shutdown", {}),
        ],
    )
    result = answers[1]["result"]
    assert "- project: Garden Pilot" in result["index"]
    assert '"github.com/acme/garden"' in result["prompt"]
    assert "knowledge-recall" in result["prompt"]
    assert answers[2]["result"] == {"prompt": "", "index": None}
    assert answers[3]["error"]["data"]["code"] == "invalid_argument"


def awaited(bridge: KnowledgeBridge, started: str) -> str:
    """The index of one of the session's next turns."""
    until = time.monotonic() + 30
    while time.monotonic() < until:
        found = built(bridge, started)["index"]
        if found is not None:
            return str(found)
    raise AssertionError("no turn of the session got its index")


def test_an_index_that_takes_too_long_is_left_out_and_the_sessions_next_turn_has_it(
    state_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    goes_on = threading.Event()
    derived: list[int] = []

    def slow(*given: Any) -> str | None:
        derived.append(1)
        assert goes_on.wait(30)
        return derive(*given)

    monkeypatch.setattr(prompt_build, "ROWS_MOST", 0)
    monkeypatch.setattr(historian, "derive", slow)
    with nothing_left(), open_bridge(state_dir) as bridge:
        page(bridge, "Garden Pilot", 1)
        started = now()
        first = built(bridge, started)
        assert first["index"] is None
        assert SAVE_GUIDANCE in str(first["prompt"])
        assert built(bridge, started)["index"] is None
        goes_on.set()
        found = awaited(bridge, started)
        assert "- project: Garden Pilot" in found
        page(bridge, "Tool Shed", 2)
        assert built(bridge, started)["index"] == found
    assert derived == [1]


def test_a_historian_that_fails_costs_the_index_and_never_the_call(
    state_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: Any) -> str | None:
        raise RuntimeError("a defect")

    monkeypatch.setattr(prompt_build, "ROWS_MOST", 0)
    with open_bridge(state_dir) as bridge:
        page(bridge, "Garden Pilot", 1)
        started = now()
        with monkeypatch.context() as patched:
            patched.setattr(historian, "derive", broken)
            failed = built(bridge, started)
        assert failed["index"] is None
        assert SAVE_GUIDANCE in str(failed["prompt"])
        assert "Garden Pilot" in awaited(bridge, started)


def test_a_turn_waits_a_bounded_time_for_its_index_wherever_it_is_held_up(
    state_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with open_bridge(state_dir) as bridge:
        page(bridge, "Garden Pilot", 1)
        started = now()
        with monkeypatch.context() as patched:
            patched.setattr(prompting, "INDEX_SECONDS", 0.0)
            late = built(bridge, started)
        assert late["index"] is None
        assert SAVE_GUIDANCE in str(late["prompt"])
        assert "Garden Pilot" in awaited(bridge, started)

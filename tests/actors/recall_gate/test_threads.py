"""The gate on real threads: providers that never answer, many turns at once, a real server cut off in a response."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from actors.calls import PendingCall
from actors.recall_gate import TURNS_OF_ONE_STORE_MAX, Places
from host_bridge.bridge import KnowledgeBridge
from host_bridge.decisions import DecisionProviders
from messages.audience import Audience
from messages.envelope import Deadline
from messages.json_types import JsonObject
from messages.provider import parse_provider_call
from messages.provider.decision import Decision, DecisionRequest
from tests.host_bridge.decisions.servers import Handler, results, serving
from tests.kit.actors import eventually
from tests.kit.leaks import nothing_left
from tests.kit.recall import Judge
from tests.kit.store import GROUP, MAIN, open_bridge, request_id

MESSAGE = "When does the garden pilot ship?"


@dataclass
class Stuck(Judge):
    """Does not return before it is let go, whatever the deadline; counts who is inside."""

    entered: threading.Semaphore = field(default_factory=lambda: threading.Semaphore(0))
    leave: threading.Event = field(default_factory=threading.Event)

    def evaluate(
        self, request: DecisionRequest, *, deadline: Deadline, before_dispatch: Callable[[], None]
    ) -> Decision:
        before_dispatch()
        self.entered.release()
        assert self.leave.wait(30)
        return Decision({key: self._answer(question) for key, question in request.questions.items()})

    def await_entered(self, count: int) -> None:
        for _ in range(count):
            assert self.entered.acquire(timeout=30)


@contextmanager
def bridge_with(
    folder: Path, provider: Judge, monkeypatch: pytest.MonkeyPatch, gate: str = "mode: live"
) -> Iterator[KnowledgeBridge]:
    monkeypatch.setattr(DecisionProviders, "for_agent", lambda self, agent: provider)
    with nothing_left(), open_bridge(folder, f"recallGate: {{{gate}}}") as bridge:
        save(bridge)
        yield bridge


def save(bridge: KnowledgeBridge) -> None:
    page: JsonObject = {"title": "Garden Pilot", "type": "project", "body": "It ships on Friday."}
    bridge.call("knowledge_save_page", {**page, "requestId": request_id(1)}, MAIN)


def begin(bridge: KnowledgeBridge, audience: Audience = MAIN) -> PendingCall:
    call = parse_provider_call("recall.gate", {"message": MESSAGE, "turnId": "t"}, caller=audience)
    pending = bridge.provide(call)
    assert isinstance(pending, PendingCall)
    return pending


def answer(pending: PendingCall) -> JsonObject:
    pending.wait()
    answers: list[JsonObject] = []
    pending.deliver(answers.append)
    return answers[0]


def test_a_turn_leaves_no_thread_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with bridge_with(tmp_path, Judge(default=0.9), monkeypatch) as bridge:
        before = {thread.name for thread in threading.enumerate()}
        assert [answer(begin(bridge))["outcome"] for _ in range(5)] == ["injected"] * 5
        eventually(lambda: not [t for t in threading.enumerate() if "/turn-" in t.name])
        assert {name for name in before if "/turn-" in name} == set()


def test_a_provider_that_never_answers_keeps_no_answer_from_leaving_on_time_and_costs_other_turns_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    stuck, prompt = Stuck(default=0.9), Judge(default=0.9)
    with bridge_with(tmp_path, prompt, monkeypatch, "mode: live, timeoutMs: 500") as bridge:
        assert answer(begin(bridge))["outcome"] == "injected"
        monkeypatch.setattr(bridge._runtime._providing._recall, "_decisions", lambda agent: stuck)
        first = begin(bridge)
        stuck.await_entered(1)
        assert answer(first)["reason"] == "deadline"
        monkeypatch.setattr(bridge._runtime._providing._recall, "_decisions", lambda agent: prompt)
        # The thread is still inside the provider; the next turns have threads of their own.
        assert [thread for thread in threading.enumerate() if "/turn-" in thread.name]
        assert [answer(begin(bridge))["outcome"] for _ in range(3)] == ["injected"] * 3
        stuck.leave.set()
        eventually(lambda: not [t for t in threading.enumerate() if "/turn-" in t.name])
        assert answer(first)["reason"] == "deadline"
    told = [one.getMessage() for one in caplog.records if one.getMessage().startswith("knowledge recall gate:")]
    assert len(told) == 5
    assert len([line for line in told if "stage=score reason=deadline" in line]) == 1


def test_threads_that_do_not_come_back_are_bounded_and_the_next_turn_says_overloaded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stuck = Stuck(default=0.9)
    with bridge_with(tmp_path, stuck, monkeypatch, "mode: live, timeoutMs: 10000") as bridge:
        inside = [begin(bridge) for _ in range(TURNS_OF_ONE_STORE_MAX)]
        stuck.await_entered(TURNS_OF_ONE_STORE_MAX)
        beyond = answer(begin(bridge))
        assert (beyond["outcome"], beyond["reason"], beyond["block"]) == ("unavailable", "overloaded", "")
        stuck.leave.set()
        assert {answer(one)["outcome"] for one in inside} == {"injected"}
        eventually(lambda: not [t for t in threading.enumerate() if "/turn-" in t.name])
        assert answer(begin(bridge))["outcome"] == "injected"


def test_many_turns_at_once_are_all_scored(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with bridge_with(tmp_path, Judge(default=0.9), monkeypatch, "mode: live, timeoutMs: 10000") as bridge:
        pending = [begin(bridge) for _ in range(50)]
        assert [answer(one)["outcome"] for one in pending] == ["injected"] * 50


def test_a_turn_that_is_stuck_holds_up_no_tool_call(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    stuck = Stuck(default=0.9)
    with bridge_with(tmp_path, stuck, monkeypatch, "mode: live, timeoutMs: 10000") as bridge:
        waiting = begin(bridge)
        stuck.await_entered(1)
        assert bridge.call("knowledge_lookup", {"query": "Garden Pilot"}, MAIN)["hits"]
        stuck.leave.set()
        assert answer(waiting)["outcome"] == "injected"


def test_a_place_is_given_back_once_and_also_when_its_turn_never_started() -> None:
    places = Places(2)
    first, second = places.take("a"), places.take("b")
    assert places.take("c") is None
    assert first is not None
    first.release()
    first.release()
    assert places.free == 1
    del second
    assert places.free == 2


def test_the_turns_of_one_store_leave_places_to_the_others() -> None:
    places = Places(3, of_one=2)
    mine = [places.take("a"), places.take("a")]
    assert all(mine)
    assert places.take("a") is None
    assert places.take("b") is not None
    mine.clear()
    assert places.take("a") is not None


# --- a real server ---------------------------------------------------------------------------------------------------

CONFIGURATION = """
agents: {{defaults: {{decisionModel: rerank/m}}, list: [{{id: main}}]}}
models: {{providers: {{rerank: {{baseUrl: "{url}", models: [{{id: m}}]}}}}}}
recallGate: {{mode: live, timeoutMs: {timeout}}}
"""


def test_a_reranker_scores_title_and_excerpt_against_the_bare_message(tmp_path: Path) -> None:
    with serving(lambda handler: results(handler, [0.9])) as server, nothing_left():
        configuration = CONFIGURATION.format(url=server.url, timeout=10_000)
        with open_bridge(tmp_path, configuration) as bridge:
            save(bridge)
            found = bridge.consult("recall.gate", {"message": MESSAGE, "turnId": "t"}, MAIN)
        assert (found["outcome"], found["offered"]) == ("injected", 1)
        [request] = server.seen
        assert request.body == {
            "model": "m",
            "query": MESSAGE,
            "documents": ["Garden Pilot\n\nIt ships on Friday."],
        }


def revoked_when(bridge: KnowledgeBridge, inside: threading.Event, go_on: threading.Event) -> JsonObject:
    """The answer of a turn whose grant goes while its request is at the server."""
    save(bridge)
    grant: JsonObject = {"agent": "main", "sessionKey": GROUP.session_key}
    bridge.ask("access.grants.set", {**grant, "access": "read"})
    pending = begin(bridge, GROUP)
    assert inside.wait(30)
    bridge.ask("access.grants.remove", grant)
    go_on.set()
    return answer(pending)


def test_revoked_in_the_middle_of_a_response_nothing_more_is_sent_and_nothing_is_injected(tmp_path: Path) -> None:
    inside, go_on = threading.Event(), threading.Event()

    def answer_slowly(handler: Handler) -> None:
        inside.set()
        assert go_on.wait(30)
        results(handler, [0.9])

    with serving(answer_slowly) as server, nothing_left():
        with open_bridge(tmp_path, CONFIGURATION.format(url=server.url, timeout=10_000)) as bridge:
            found = revoked_when(bridge, inside, go_on)
        assert (found["outcome"], found["reason"], found["block"], found["decisions"]) == (
            "unavailable",
            "denied",
            "",
            [],
        )
        assert len(server.seen) == 1


def test_revoked_before_the_retry_the_retry_is_not_sent(tmp_path: Path) -> None:
    """An endpoint that wants the other form of the request is asked again, after another look at the grant."""
    inside, go_on = threading.Event(), threading.Event()

    def refuse_the_form(handler: Handler) -> None:
        inside.set()
        assert go_on.wait(30)
        handler.answer(422, {"error": "texts, please"})

    with serving(refuse_the_form) as server, nothing_left():
        with open_bridge(tmp_path, CONFIGURATION.format(url=server.url, timeout=10_000)) as bridge:
            assert revoked_when(bridge, inside, go_on)["reason"] == "denied"
        assert len(server.seen) == 1


def test_a_server_that_drips_its_answer_ends_the_turn_on_time(tmp_path: Path) -> None:
    def drip(handler: Handler) -> None:
        handler.send_response(200)
        handler.send_header("Content-Length", "1000000")
        handler.end_headers()
        handler.drip(b" ")

    with serving(drip) as server, nothing_left():
        with open_bridge(tmp_path, CONFIGURATION.format(url=server.url, timeout=300)) as bridge:
            save(bridge)
            outcomes = {str(answer(begin(bridge))["reason"]) for _ in range(3)}
        assert outcomes == {"deadline"}

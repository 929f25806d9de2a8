"""The recall gate through the bridge, with a real reranker's server at its far end."""

from __future__ import annotations

import threading
import uuid
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from host_bridge.bridge import KnowledgeBridge
from host_bridge.config import parse_configuration
from messages.audience import Conversation, OwnerPrivate
from messages.json_types import JsonObject
from tests.host_bridge.decisions.servers import Endpoint, Handler, serving
from tests.kit.leaks import nothing_left

OWNER = OwnerPrivate("main")
MESSAGE = "Who repairs the boiler?"


def likes_boilers(handler: Handler) -> None:
    """One more than a half for a document about boilers."""
    documents = handler.last()["documents"]
    items = [{"index": place, "score": 0.9 if "boiler" in text else 0.1} for place, text in enumerate(documents)]
    handler.answer(200, items)


@pytest.fixture(autouse=True)
def _nothing_left() -> Iterator[None]:
    with nothing_left():
        yield


@pytest.fixture
def endpoint() -> Iterator[Endpoint]:
    with serving(likes_boilers) as found:
        yield found


def bridge(state_dir: Path, url: str, *, model: str = "rerank/one", timeout: int = 10_000) -> KnowledgeBridge:
    return KnowledgeBridge(
        state_dir,
        config=parse_configuration(
            f"agents: {{list: [{{id: main, decisionModel: {model}}}, {{id: other, decisionModel: ''}}]}}\n"
            f"models: {{providers: {{rerank: {{baseUrl: '{url}', models: [{{id: one}}]}}}}}}\n"
            f"recallGate: {{mode: live, timeoutMs: {timeout}}}\n"
        ),
    )


def save(knowledge: KnowledgeBridge, title: str, body: str) -> str:
    receipt = knowledge.call(
        "knowledge_save_page",
        {"requestId": str(uuid.uuid4()), "title": title, "type": "note", "body": body},
        OWNER,
    )
    return str(receipt["id"])


def gate(knowledge: KnowledgeBridge, audience: OwnerPrivate | Conversation = OWNER) -> JsonObject:
    return knowledge.consult("recall.gate", {"message": MESSAGE, "turnId": "turn-1"}, audience)


def test_a_page_that_the_reranker_finds_relevant_is_injected(tmp_path: Path, endpoint: Endpoint) -> None:
    with bridge(tmp_path, endpoint.url) as knowledge:
        plumber = save(knowledge, "Bob the plumber", "Fixed the boiler valve in November.")
        save(knowledge, "Mill Street", "Everybody repairs bicycles there.")
        answer = gate(knowledge)
        assert answer["outcome"] == "injected"
        assert plumber in str(answer["block"])
        assert "bicycles" not in str(answer["block"])
        [seen] = endpoint.seen
        assert seen.body["query"] == MESSAGE
        assert "Bob the plumber\n\nFixed the boiler valve in November." in seen.body["documents"]


def test_a_grant_that_is_taken_back_before_the_retry_sends_nothing_more(tmp_path: Path, endpoint: Endpoint) -> None:
    asked, revoked = threading.Event(), threading.Event()

    def refuses_the_form(handler: Handler) -> None:
        asked.set()
        revoked.wait(20)
        handler.answer(422, {})

    endpoint.behave = refuses_the_form
    key = "chat:group:1"
    conversation = Conversation("main", session_key=key, session_id=str(uuid.uuid4()))
    with bridge(tmp_path, endpoint.url) as knowledge, ThreadPoolExecutor(1) as pool:
        save(knowledge, "Bob the plumber", "Fixed the boiler valve in November.")
        knowledge.ask("access.grants.set", {"agent": "main", "sessionKey": key, "access": "read"})
        pending = pool.submit(gate, knowledge, conversation)
        assert asked.wait(20)
        knowledge.ask("access.grants.remove", {"agent": "main", "sessionKey": key})
        revoked.set()
        answer = pending.result(20)
        assert (answer["outcome"], answer["block"]) == ("unavailable", "")
        assert len(endpoint.seen) == 1


@pytest.mark.parametrize(
    ("status", "reason"),
    [(429, "overloaded"), (500, "provider-error"), (302, "provider-error"), (200, "invalid-response")],
)
def test_a_failing_reranker_injects_nothing_and_the_turn_goes_on(
    tmp_path: Path, endpoint: Endpoint, status: int, reason: str
) -> None:
    endpoint.behave = lambda handler: handler.answer(status, {})
    with bridge(tmp_path, endpoint.url) as knowledge:
        save(knowledge, "Bob the plumber", "Fixed the boiler valve in November.")
        answer = gate(knowledge)
        assert (answer["outcome"], answer["reason"], answer["block"]) == ("unavailable", reason, "")


def test_a_reranker_that_never_answers_costs_no_more_than_the_budget(tmp_path: Path, endpoint: Endpoint) -> None:
    def dripping(handler: Handler) -> None:
        handler.wfile.write(b"HTTP/1.1 200 OK\r\nX-Slow: ")
        handler.drip(b"x")

    endpoint.behave = dripping
    with bridge(tmp_path, endpoint.url, timeout=300) as knowledge:
        save(knowledge, "Bob the plumber", "Fixed the boiler valve in November.")
        answer = gate(knowledge)
        assert (answer["outcome"], answer["reason"]) == ("unavailable", "deadline")


def test_closing_waits_for_no_reranker(tmp_path: Path, endpoint: Endpoint) -> None:
    asked = threading.Event()

    def hangs(handler: Handler) -> None:
        asked.set()
        endpoint.stopping.wait(20)

    endpoint.behave = hangs
    with bridge(tmp_path, endpoint.url) as knowledge, ThreadPoolExecutor(1) as pool:
        save(knowledge, "Bob the plumber", "Fixed the boiler valve in November.")
        pending = pool.submit(gate, knowledge)
        assert asked.wait(20)
        knowledge.close()  # raises where an actor is stuck
        answer = pending.result(20)
        assert (answer["outcome"], answer["block"]) == ("unavailable", "")


def test_health_says_whose_decision_model_is_not_ready(tmp_path: Path, endpoint: Endpoint) -> None:
    with bridge(tmp_path / "ready", endpoint.url) as knowledge:
        assert "decisions" not in knowledge.health()
    with bridge(tmp_path / "missing", endpoint.url, model="rerank/two") as knowledge:
        shown = knowledge.health()["decisions"]
        assert isinstance(shown, dict)
        assert list(shown["problems"]) == ["main"]
        assert gate(knowledge)["outcome"] in ("none", "unavailable")
    assert endpoint.seen == []


def test_the_reranker_is_connected_to_before_the_first_turn_and_sent_nothing(
    tmp_path: Path, endpoint: Endpoint
) -> None:
    with bridge(tmp_path, endpoint.url):
        assert endpoint.ended.acquire(timeout=20)
        assert (endpoint.connections, endpoint.seen) == (1, [])


def test_a_reranker_that_the_configuration_names_later_is_connected_to_then(tmp_path: Path, endpoint: Endpoint) -> None:
    with KnowledgeBridge(tmp_path) as knowledge:
        knowledge.call("knowledge_status", {}, OWNER)
        assert endpoint.connections == 0
        (knowledge.state_dir / "knowledge.yaml").write_text(
            "agents: {list: [{id: main, decisionModel: rerank/one}]}\n"
            f"models: {{providers: {{rerank: {{baseUrl: '{endpoint.url}', models: [{{id: one}}]}}}}}}\n"
            "recallGate: {mode: shadow}\n",
            "utf-8",
        )
        assert endpoint.ended.acquire(timeout=20)
        assert (endpoint.connections, endpoint.seen) == (1, [])

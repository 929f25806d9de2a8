"""The registry by agent: who answers, how many at once, and what becomes of it when the configuration changes."""

from __future__ import annotations

import asyncio
import logging
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial

import pytest

from host_bridge.config import Configuration, parse_configuration
from host_bridge.decisions import DecisionProviders
from host_bridge.decisions.answering import Places, Provider
from messages.envelope import Deadline
from messages.provider.decision import (
    BooleanAnswer,
    BooleanQuestion,
    Decision,
    DecisionProvider,
    DecisionRequest,
    DecisionUnavailable,
)
from tests.host_bridge.decisions.servers import Endpoint, Handler, results, serving
from tests.kit.leaks import nothing_left

LONG, SHORT = 60.0, 0.3
REQUEST = DecisionRequest("a private message", {"q": BooleanQuestion("a stored page", "yes", "no")}, "recall-gate", "1")


@pytest.fixture(autouse=True)
def _nothing_left() -> Iterator[None]:
    with nothing_left():
        yield


@pytest.fixture
def endpoint() -> Iterator[Endpoint]:
    with serving(lambda handler: results(handler, [0.9])) as found:
        yield found


class Registry:
    """A registry whose configuration a test may edit."""

    def __init__(self, text: str = "") -> None:
        self.configuration: Configuration = parse_configuration(text)
        self.providers = DecisionProviders(lambda: self.configuration)

    def edit(self, text: str) -> None:
        self.configuration = parse_configuration(text)

    def of(self, agent: str = "main") -> DecisionProvider:
        found = self.providers.for_agent(agent)
        assert found is not None
        return found

    def ask(self, seconds: float = LONG) -> Decision:
        return self.of().evaluate(REQUEST, deadline=Deadline.after(seconds), before_dispatch=lambda: None)


@pytest.fixture
def registry() -> Iterator[Registry]:
    found = Registry()
    yield found
    found.providers.close()


def rerank(url: str, more: str = "", models: str = "{id: org/one}, {id: two}") -> str:
    return f"models: {{providers: {{rerank: {{baseUrl: '{url}', models: [{models}]{more}}}}}}}\n"


def agents(*own: str, default: str | None = "rerank/org/one") -> str:
    said = "" if default is None else f"defaults: {{decisionModel: '{default}'}}, "
    return f"agents: {{{said}list: [{', '.join(own)}]}}\n"


def reason(ask: Callable[[], Decision]) -> str:
    with pytest.raises(DecisionUnavailable) as caught:
        ask()
    return caught.value.reason


# --- which provider -------------------------------------------------------------------------------------------------


def test_without_a_decision_model_there_is_no_provider(registry: Registry) -> None:
    assert registry.providers.for_agent("main") is None
    assert registry.providers.problems() == {}


def test_an_unset_agent_inherits_the_default_and_an_empty_one_turns_decisions_off(
    registry: Registry, endpoint: Endpoint
) -> None:
    registry.edit(
        agents("{id: main}", "{id: off, decisionModel: ''}", "{id: other, decisionModel: rerank/two}")
        + rerank(endpoint.url)
    )
    for agent, model in (("main", "org/one"), ("other", "two")):
        registry.of(agent).evaluate(REQUEST, deadline=Deadline.after(LONG), before_dispatch=lambda: None)
        assert endpoint.seen[-1].body["model"] == model
    assert registry.providers.for_agent("off") is None


def test_an_empty_default_is_off(registry: Registry, endpoint: Endpoint) -> None:
    registry.edit(agents("{id: main}", default="") + rerank(endpoint.url))
    assert registry.providers.for_agent("main") is None


@pytest.mark.parametrize(("mode", "told"), [("shadow", ["main"]), ("live", ["main"]), ("off", [])])
def test_a_recall_gate_that_is_on_for_an_agent_without_a_named_model_is_a_problem(
    registry: Registry, mode: str, told: list[str]
) -> None:
    registry.edit(
        "agents: {list: [{id: main}, {id: left-out, decisionModel: ''}, {id: local, decisionModel: local}]}\n"
        f"recallGate: {{mode: {mode}}}\n"
    )
    assert list(registry.providers.problems()) == told


@pytest.mark.parametrize(
    "selector", ["rerank/three", "rerank", "rerank/", "rerank/org", "cloud/one", "rerank/org/one/"]
)
def test_a_selector_that_names_nothing_is_not_ready_and_says_what_is_missing(
    registry: Registry, endpoint: Endpoint, selector: str
) -> None:
    registry.edit(agents("{id: main}", "{id: off, decisionModel: ''}", default=selector) + rerank(endpoint.url))
    assert not registry.of().is_ready()
    assert selector in registry.providers.problems()["main"]
    assert list(registry.providers.problems()) == ["main"]
    assert reason(registry.ask) == "not-configured"
    assert endpoint.seen == []


def test_a_rerank_selector_without_an_endpoint_is_not_ready(registry: Registry) -> None:
    registry.edit(agents("{id: main}"))
    assert not registry.of().is_ready()
    assert reason(registry.ask) == "not-configured"


def test_there_is_no_fall_back_to_another_provider_or_model(registry: Registry, endpoint: Endpoint) -> None:
    registry.edit(agents("{id: main, decisionModel: rerank/two}") + rerank(endpoint.url))
    endpoint.behave = lambda handler: handler.answer(500, {})
    assert reason(registry.ask) == "provider-error"
    assert [seen.body["model"] for seen in endpoint.seen] == ["two"]


# --- connections and edits ------------------------------------------------------------------------------------------


def test_connections_stay_open_between_requests(registry: Registry, endpoint: Endpoint) -> None:
    registry.edit(agents("{id: main}") + rerank(endpoint.url))
    for _ in range(3):
        registry.ask()
    assert endpoint.connections == 1


def test_an_edit_of_the_endpoint_takes_effect_with_the_next_request(registry: Registry, endpoint: Endpoint) -> None:
    registry.edit(agents("{id: main}") + rerank(endpoint.url))
    registry.ask()
    with serving(lambda handler: results(handler, [0.2])) as other:
        registry.edit(agents("{id: main}") + rerank(other.url))
        registry.ask()
        registry.edit("")
        assert registry.providers.for_agent("main") is None
        assert (len(endpoint.seen), len(other.seen)) == (1, 1)


def test_an_edit_ends_the_connections_to_the_old_endpoint(registry: Registry, endpoint: Endpoint) -> None:
    registry.edit(agents("{id: main}") + rerank(endpoint.url))
    registry.ask()
    with serving(lambda handler: results(handler, [0.2])) as other:
        registry.edit(agents("{id: main}") + rerank(other.url))
        registry.ask()
        assert endpoint.ended.acquire(timeout=20)


def test_an_edit_of_the_key_or_the_models_takes_effect_with_the_next_request(
    registry: Registry, endpoint: Endpoint, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OLD", "old")
    monkeypatch.setenv("NEW", "new")
    for more in (", apiKeyEnv: OLD", ", apiKeyEnv: NEW", ""):
        registry.edit(agents("{id: main}") + rerank(endpoint.url, more))
        registry.ask()
    assert [seen.headers.get("Authorization") for seen in endpoint.seen] == ["Bearer old", "Bearer new", None]
    registry.edit(agents("{id: main}") + rerank(endpoint.url, models="{id: two}"))
    assert reason(registry.ask) == "not-configured"


def test_an_edit_elsewhere_keeps_the_connections(registry: Registry, endpoint: Endpoint) -> None:
    registry.edit(agents("{id: main}") + rerank(endpoint.url))
    registry.ask()
    registry.edit(agents("{id: main}") + rerank(endpoint.url) + "writesEnabled: false\n")
    registry.ask()
    assert endpoint.connections == 1


def test_a_request_under_way_ends_on_the_endpoint_that_it_began_with(registry: Registry, endpoint: Endpoint) -> None:
    began, go_on = threading.Event(), threading.Event()

    def waiting(handler: Handler) -> None:
        began.set()
        go_on.wait(20)
        results(handler, [0.9])

    endpoint.behave = waiting
    registry.edit(agents("{id: main}") + rerank(endpoint.url))
    with ThreadPoolExecutor(1) as pool, serving(lambda handler: results(handler, [0.2])) as other:
        pending = pool.submit(registry.ask)
        assert began.wait(20)
        registry.edit(agents("{id: main}") + rerank(other.url))
        registry.ask()
        go_on.set()
        assert pending.result(20).answers["q"].probability_true == 0.9  # type: ignore[union-attr]


# --- in flight ------------------------------------------------------------------------------------------------------


class Crowd:
    """Requests that wait inside the server until they are let go; ``inside`` counts them."""

    def __init__(self, endpoint: Endpoint) -> None:
        self.inside = threading.Semaphore(0)
        self.let_go = threading.Semaphore(0)
        endpoint.behave = self._behave

    def _behave(self, handler: Handler) -> None:
        self.inside.release()
        self.let_go.acquire(timeout=20)
        results(handler, [0.9])


@pytest.mark.parametrize(("more", "places"), [("", 4), (", maxInFlight: 1", 1)])
def test_at_most_max_in_flight_requests_are_under_way(
    registry: Registry, endpoint: Endpoint, more: str, places: int
) -> None:
    crowd = Crowd(endpoint)
    registry.edit(agents("{id: main}", "{id: other}") + rerank(endpoint.url, more))
    with ThreadPoolExecutor(places) as pool:
        pending: list[Future[Decision]] = [pool.submit(registry.ask) for _ in range(places)]
        for _ in range(places):
            assert crowd.inside.acquire(timeout=20)
        # The place that it would need is taken until its deadline, for every agent and model of the endpoint.
        assert reason(lambda: registry.ask(SHORT)) == "overloaded"
        assert (
            reason(
                lambda: registry.of("other").evaluate(
                    REQUEST, deadline=Deadline.after(SHORT), before_dispatch=lambda: pytest.fail("it was dispatched")
                )
            )
            == "overloaded"
        )
        crowd.let_go.release(places)
        for each in pending:
            each.result(20)
    assert len(endpoint.seen) == places
    crowd.let_go.release()
    registry.ask()


def test_who_waits_for_a_place_gets_it_when_one_becomes_free(registry: Registry, endpoint: Endpoint) -> None:
    crowd = Crowd(endpoint)
    registry.edit(agents("{id: main}") + rerank(endpoint.url, ", maxInFlight: 1"))
    with ThreadPoolExecutor(2) as pool:
        first, second = pool.submit(registry.ask), pool.submit(registry.ask)
        crowd.let_go.release(2)
        assert first.result(20) == second.result(20)


def test_a_failure_gives_its_place_back(registry: Registry, endpoint: Endpoint) -> None:
    registry.edit(agents("{id: main}") + rerank(endpoint.url, ", maxInFlight: 1"))
    for behave in (
        lambda handler: handler.answer(500, {}),
        lambda handler: handler.answer(200, []),
        lambda handler: handler.endpoint.stopping.wait(SHORT * 3),
    ):
        endpoint.behave = behave
        reason(lambda: registry.ask(SHORT))
    endpoint.behave = lambda handler: results(handler, [0.9])
    registry.ask()


class Recording:
    """An answerer that says how long it was given."""

    def __init__(self) -> None:
        self.given = 0.0

    def problem(self) -> None:
        return None

    def answer(self, request: DecisionRequest, deadline: Deadline, before_dispatch: Callable[[], None]) -> Decision:
        self.given = deadline.remaining()
        return Decision({"q": BooleanAnswer(True, 2.0)})

    async def prepare(self) -> None:
        pass


def test_every_deadline_is_capped_and_every_batch_is_checked_whoever_answers() -> None:
    answerer = Recording()
    provider = Provider("some/model", "main", answerer, Places(1))
    for _ in range(2):
        assert (
            reason(lambda: provider.evaluate(REQUEST, deadline=Deadline.after(3600), before_dispatch=lambda: None))
            == "invalid-response"
        )
    assert 29 < answerer.given <= 30


# --- the end --------------------------------------------------------------------------------------------------------


def test_closing_ends_the_requests_under_way(registry: Registry, endpoint: Endpoint) -> None:
    crowd = Crowd(endpoint)
    registry.edit(agents("{id: main}") + rerank(endpoint.url))
    with ThreadPoolExecutor(1) as pool:
        pending = pool.submit(registry.ask)
        assert crowd.inside.acquire(timeout=20)
        registry.providers.close()
        assert reason(lambda: pending.result(20)) == "provider-error"
    crowd.let_go.release()


def test_nothing_is_sent_after_closing_and_closing_twice_is_once(registry: Registry, endpoint: Endpoint) -> None:
    registry.edit(agents("{id: main}") + rerank(endpoint.url))
    registry.providers.close()
    registry.providers.close()
    assert reason(registry.ask) == "provider-error"
    assert endpoint.seen == []


# --- logs and imports -----------------------------------------------------------------------------------------------


def test_the_log_says_outcome_time_count_and_bytes_and_never_text_or_names(
    registry: Registry, endpoint: Endpoint, caplog: pytest.LogCaptureFixture
) -> None:
    registry.edit(agents("{id: main}") + rerank(endpoint.url))
    with caplog.at_level(logging.DEBUG, "decisions"):
        registry.ask()
        endpoint.behave = lambda handler: handler.answer(429, {})
        reason(registry.ask)
    first, second = [record for record in caplog.records if record.name == "decisions"]
    assert {first.levelno, second.levelno} == {logging.DEBUG}
    assert [vars(record)["outcome"] for record in (first, second)] == ["answered", "overloaded"]
    for record in (first, second):
        logged = vars(record)
        assert logged["questions"] == 1
        assert logged["json_bytes"] > 100
        assert logged["elapsed_ms"] >= 0
        for name in ("provider", "agent", "purpose"):
            assert len(logged[name]) == 12
        shown = repr({name: value for name, value in logged.items() if name not in ("pathname", "module", "filename")})
        for hidden in ("a private message", "a stored page", "org/one", "'main'", "recall-gate"):
            assert hidden not in shown


def test_the_registry_loads_no_http_library_until_it_is_asked() -> None:
    code = "import sys, host_bridge.decisions; print(sorted({'httpx', 'numpy', 'tokenizers'} & set(sys.modules)))"
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert ran.stdout.strip() == "[]"


def test_requests_that_are_given_up_while_others_wait_leave_every_place_usable(
    registry: Registry, endpoint: Endpoint
) -> None:
    """A connection that was being made for a request that is given up is not counted for ever."""
    registry.edit(agents("{id: main}") + rerank(endpoint.url, ", maxInFlight: 2"))
    answering = threading.Event()

    def hangs(handler: Handler) -> None:
        answering.wait(20)

    endpoint.behave = hangs
    with ThreadPoolExecutor(16) as pool:
        given_up = [pool.submit(reason, partial(registry.ask, 0.3 + 0.02 * number)) for number in range(16)]
        assert {one.result(20) for one in given_up} <= {"deadline", "overloaded"}
    endpoint.behave = lambda handler: results(handler, [0.9])
    answering.set()
    for _ in range(4):
        assert registry.ask(5.0).answers["q"] == BooleanAnswer(True, 0.9)


GATE = "recallGate: {mode: shadow}\n"


def settled(registry: Registry) -> None:
    """Everything that was begun on the loop has ended."""

    async def others() -> None:
        await asyncio.gather(*(asyncio.all_tasks() - {asyncio.current_task()}))

    registry.providers._loop.run(others(), Deadline.after(LONG))


def test_what_the_first_turn_would_wait_for_is_made_ready_and_nothing_is_sent(
    registry: Registry, endpoint: Endpoint
) -> None:
    registry.edit(agents("{id: main}") + rerank(endpoint.url) + GATE)
    registry.providers.prepare()
    settled(registry)
    assert endpoint.ended.acquire(timeout=20)
    assert (endpoint.connections, endpoint.seen) == (1, [])
    registry.providers.prepare()
    settled(registry)
    assert endpoint.connections == 1, "once is enough for one configuration"
    assert registry.ask().answers["q"] == BooleanAnswer(True, 0.9)
    assert (endpoint.connections, len(endpoint.seen)) == (2, 1)


def test_another_endpoint_is_made_ready_when_the_configuration_names_it(registry: Registry, endpoint: Endpoint) -> None:
    with serving(lambda handler: results(handler, [0.9])) as other:
        for url in (endpoint.url, other.url):
            registry.edit(agents("{id: main}") + rerank(url) + GATE)
            registry.providers.prepare()
            settled(registry)
        assert (endpoint.connections, other.connections) == (1, 1)
        assert endpoint.seen == other.seen == []


@pytest.mark.parametrize(
    "text",
    [
        agents("{id: main}") + "URL",
        agents("{id: main}") + "URL" + "recallGate: {mode: 'off'}\n",
        agents("{id: main, decisionModel: ''}") + "URL" + GATE,
        agents("{id: main}", default="rerank/unlisted") + "URL" + GATE,
        agents("{id: main}") + GATE,
        "",
    ],
)
def test_nothing_is_made_ready_where_no_turn_would_ask(registry: Registry, endpoint: Endpoint, text: str) -> None:
    registry.edit(text.replace("URL", rerank(endpoint.url)))
    registry.providers.prepare()
    assert registry.providers._loop._thread is None
    assert endpoint.connections == 0


def test_a_server_that_is_not_there_is_left_to_the_first_request_to_report(registry: Registry) -> None:
    with serving(lambda handler: None) as gone:
        url = gone.url
    registry.edit(agents("{id: main}") + rerank(url) + GATE)
    registry.providers.prepare()
    settled(registry)
    assert reason(registry.ask) == "provider-error"


def test_nothing_is_made_ready_once_it_is_closed(registry: Registry, endpoint: Endpoint) -> None:
    registry.edit(agents("{id: main}") + rerank(endpoint.url) + GATE)
    registry.providers.close()
    registry.providers.prepare()
    assert endpoint.connections == 0


LOADED_BEFORE_THE_FIRST_REQUEST = """
import asyncio, sys
from host_bridge.config import parse_configuration
from host_bridge.decisions import DecisionProviders
from messages.envelope import Deadline
from messages.provider.decision import BooleanQuestion, DecisionRequest

configuration = parse_configuration(sys.argv[1])
providers = DecisionProviders(lambda: configuration)

async def others():
    await asyncio.gather(*(asyncio.all_tasks() - {asyncio.current_task()}))

providers.prepare()
providers._loop.run(others(), Deadline.after(60))
before = set(sys.modules)
request = DecisionRequest("a message", {"q": BooleanQuestion("a page", "yes", "no")}, "recall-gate", "1")
providers.for_agent("main").evaluate(request, deadline=Deadline.after(60), before_dispatch=lambda: None)
print("httpx" in before, sorted(set(sys.modules) - before))
providers.close()
"""


def test_the_first_request_imports_nothing_that_could_be_made_ready(endpoint: Endpoint) -> None:
    text = agents("{id: main}") + rerank(endpoint.url) + GATE
    ran = subprocess.run(
        [sys.executable, "-c", LOADED_BEFORE_THE_FIRST_REQUEST, text], capture_output=True, text=True, check=True
    )
    assert ran.stdout.strip() == "True []"

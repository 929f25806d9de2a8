"""Which provider answers for an agent, as the configuration says now.

Source: knowledge-more-facts.md section 10 (selector, inheritance, off); decisions.md section 1 (``models``).
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Final

from host_bridge.config import Configuration, RerankProvider
from host_bridge.decisions.answering import Answerer, NotConfigured, Places, Provider
from host_bridge.decisions.exchange import Loop
from host_bridge.decisions.local import MAX_IN_FLIGHT, LocalModel
from host_bridge.decisions.rerank import RerankEndpoint, RerankModel
from messages.provider.decision import DecisionProvider

LOCAL_SELECTORS: Final = ("local", "local/wordllama")


class DecisionProviders:
    """The providers of every agent. Any thread; close it with the bridge.

    An agent's ``decisionModel`` is ``provider/model`` or ``local``; left out, the default's holds, and an empty one is
    off. One that names nothing gives a provider that is not ready and says why. Connections stay open between requests;
    an edit of a provider's configuration gives new ones, and requests under way end on the old.
    """

    def __init__(self, configuration: Callable[[], Configuration]) -> None:
        self._configuration = configuration
        self._lock = threading.Lock()
        self._loop = Loop()
        self._rerank: tuple[RerankEndpoint, Places] | None = None
        self._local = LocalModel(), Places(MAX_IN_FLIGHT)

    def for_agent(self, agent: str) -> DecisionProvider | None:
        """The agent's provider; ``None`` where decisions are off for it. At once, and without the network."""
        configuration = self._configuration()
        selector = configuration.decision_model(agent)
        if selector is None:
            return None
        answerer, places = self._find(configuration, selector)
        return Provider(selector, agent, answerer, places)

    def prepare(self) -> None:
        """Have ready what the recall gate's first turn would have to wait for: modules, certificates, the way to the
        server, or the local model's files. Returns at once, and never raises; nothing is sent.

        Nothing is loaded where the gate is off or no agent has a model, nor twice for the same provider.
        """
        configuration = self._configuration()
        gate = configuration.recall_gate
        if gate is None or gate.mode == "off":
            return
        for selector in configuration.decision_models:
            answerer, _ = self._find(configuration, selector)
            if not isinstance(answerer, NotConfigured):
                self._loop.begin(_prepare(answerer))

    def problems(self) -> dict[str, str]:
        """What keeps an agent's decisions from being asked for, by agent; agents without a problem are left out."""
        configuration = self._configuration()
        found: dict[str, str] = {}
        for agent in configuration.agent_ids:
            selector = configuration.decision_model(agent)
            problem = None if selector is None else self._find(configuration, selector)[0].problem()
            if configuration.recall_gate_lacks_model(agent):
                problem = "the recall gate is on and no decisionModel is named; an empty one leaves the agent out"
            if problem is not None:
                found[agent] = problem
        return found

    def close(self) -> None:
        """End the requests under way and close every connection; idempotent."""
        self._loop.close()

    def _find(self, configuration: Configuration, selector: str) -> tuple[Answerer, Places]:
        provider, _, model = selector.partition("/")
        if selector in LOCAL_SELECTORS:
            return self._local
        if provider != "rerank":
            return _nothing(f"decisionModel {selector!r}: there is no such provider; there are rerank and local")
        configured = configuration.models.providers.rerank
        if configured is None:
            return _nothing(f"decisionModel {selector!r}: models.providers.rerank is not configured")
        if model not in {each.id for each in configured.models}:
            return _nothing(f"decisionModel {selector!r}: models.providers.rerank lists no such model")
        endpoint, places = self._endpoint(configured)
        return RerankModel(endpoint, model), places

    def _endpoint(self, configured: RerankProvider) -> tuple[RerankEndpoint, Places]:
        with self._lock:
            old = self._rerank
            if old is not None and old[0].configured == configured:
                return old
            self._rerank = fresh = RerankEndpoint(configured, self._loop), Places(configured.max_in_flight)
        if old is not None:
            old[0].close()
        return fresh


async def _prepare(answerer: Answerer) -> None:
    if answerer.problem() is None:
        await answerer.prepare()


def _nothing(problem: str) -> tuple[Answerer, Places]:
    return NotConfigured(problem), Places(1)

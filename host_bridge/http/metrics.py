"""What ``/metrics`` shows: numbers of calls and their outcomes, and how full the runtime is.

Names are ours: methods and tools of the protocol, codes, kinds of actors. No id of a record, a store, an agent or a
caller is in a label, and no text. Prometheus' own registry of the process is not used: two servers in one process (a
test, a program) count apart.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from typing import Final

from prometheus_client import CollectorRegistry, Counter, Histogram, generate_latest
from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from messages.json_types import JsonObject

CONTENT_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"
_KINDS: Final = (
    "root",
    "authority",
    "maintenance",
    "system memory",
    "recall turns",
    "recall gate",
    "store",
    "lane",
    "helpers",
    "indexer",
    "evidence verifier",
    "source keeper",
    "git queue",
    "auditor",
    "historian",
    "file sync",
    "watcher",
    "caretaker",
    "turn",
)
_BUCKETS: Final = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60)


class Metrics:
    """The numbers of one server. Any thread."""

    def __init__(self, health: Callable[[], JsonObject], open_calls: Callable[[], Mapping[str, int]]) -> None:
        """``health``: the published state of the runtime; ``open_calls``: open now, by kind."""
        self._registry = CollectorRegistry(auto_describe=False)
        self._calls = Counter(
            "knowledge_http_calls", "Calls by method and outcome code.", ("method", "code"), registry=self._registry
        )
        self._seconds = Histogram(
            "knowledge_http_call_seconds",
            "Seconds from the request to the hand-over of its answer, by method.",
            ("method",),
            buckets=_BUCKETS,
            registry=self._registry,
        )
        self._refused = Counter(
            "knowledge_http_refused",
            "Requests refused before a method was reached, by route and code.",
            ("route", "code"),
            registry=self._registry,
        )
        self._registry.register(_Published(health, open_calls))

    def answered(self, method: str, code: str, seconds: float) -> None:
        """A call of a known method came to this end."""
        self._calls.labels(method, code).inc()
        self._seconds.labels(method).observe(seconds)

    def refused(self, route: str, code: str) -> None:
        """A request came to no method."""
        self._refused.labels(route, code).inc()

    def text(self) -> bytes:
        return generate_latest(self._registry)


class _Published(Collector):
    """What the runtime says of itself at the moment of the scrape; asks no actor."""

    def __init__(self, health: Callable[[], JsonObject], open_calls: Callable[[], Mapping[str, int]]) -> None:
        self._health = health
        self._open_calls = open_calls

    def describe(self) -> Iterable[Metric]:
        return ()

    def collect(self) -> Iterable[Metric]:
        yield _gauge("knowledge_http_open", "Open calls, streams and connections.", "kind", self._open_calls())
        health = self._health()
        stores = health.get("stores")
        yield GaugeMetricFamily(
            "knowledge_stores_live", "Stores that are open.", value=len(stores) if isinstance(stores, list) else 0
        )
        sums: dict[str, dict[str, float]] = {
            name: defaultdict(float) for name in ("queued", "crashes", "handled", "states", "restarts")
        }
        actors = health.get("actors")
        for actor in actors if isinstance(actors, list) else ():
            if not isinstance(actor, dict):
                continue
            kind = _kind(str(actor.get("name", "")))
            for number in ("queued", "crashes", "handled"):
                value = actor.get(number)
                sums[number][kind] += value if isinstance(value, int) else 0
            incarnation = actor.get("incarnation")
            sums["restarts"][kind] += max(incarnation - 1, 0) if isinstance(incarnation, int) else 0
            sums["states"][str(actor.get("state"))] += 1
        yield _gauge("knowledge_mailbox_depth", "Requests that wait, by kind of actor.", "actor", sums["queued"])
        yield _gauge("knowledge_actor_crashes", "Crashes of actors that live.", "actor", sums["crashes"])
        yield _gauge("knowledge_actor_restarts", "Restarts of actors that live.", "actor", sums["restarts"])
        yield _gauge("knowledge_actor_handled", "Messages handled by actors that live.", "actor", sums["handled"])
        yield _gauge("knowledge_actors", "Actors by state.", "state", sums["states"])


def _gauge(name: str, help_text: str, label: str, values: Mapping[str, float]) -> GaugeMetricFamily:
    family = GaugeMetricFamily(name, help_text, labels=[label])
    for value, number in sorted(values.items()):
        family.add_metric([value], number)
    return family


def _kind(name: str) -> str:
    """An actor's kind: the last part of its name, without the id of what it works for."""
    last = name.rpartition("/")[2]
    return next((kind for kind in _KINDS if last == kind or last.startswith((f"{kind} ", f"{kind}-"))), "other")


__all__ = ["CONTENT_TYPE", "Metrics"]

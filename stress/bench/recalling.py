"""The rows of the recall gate: candidates inside the lane, and many turns at once on a reranker that takes 300 ms."""

from __future__ import annotations

import json
import random
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Final

from actors.calls import PendingCall
from host_bridge.bridge import KnowledgeBridge
from host_bridge.config import parse_configuration
from messages.json_types import JsonObject
from messages.provider import parse_provider_call
from messages.provider.gate import GateCandidatesRequest
from messages.vocabulary import DEADLINE_MAX_MS
from stress.bench.measure import Contender, Row, Sample, interleave
from stress.bench.store import CONFIGURATION, MAIN, BenchStore, Desk

CANDIDATES_SECONDS: Final = 0.015
TURNS: Final = 50
SCORING_SECONDS: Final = 0.3
BUDGET_MS: Final = 1_500
ENDS_WITHIN_SECONDS: Final = 0.05
LEAST_SCORED: Final = 16


def candidates(desk: Desk, rounds: int) -> Iterator[Row]:
    """Ten pages of four passages for a question with eight content words, in the lane: the slowest of twenty."""
    messages = [message(desk.store, number) for number in range(rounds + 2)]
    found: list[int] = []

    def ask(turn: int) -> None:
        answer = desk.run(GateCandidatesRequest.model_validate({"mode": "keyword", "message": messages[turn]}))
        pages = answer["pages"]
        assert isinstance(pages, list)
        found.append(len(pages))

    taken = sorted(interleave([Contender("candidates", ask)], rounds)["candidates"])
    pages = sum(desk.partition.catalogue.counts()["page"].values())
    yield Row(
        "recall gate: candidates inside the lane (p95)", desk.store.size,
        Sample.of([taken[len(taken) * 95 // 100]]), "", None, "<= 15 ms", CANDIDATES_SECONDS, absolute=True,
        note=f"{pages:,} pages; {sum(found) / len(found):.1f} offered a turn",
    )  # fmt: skip


def turns_at_once(store: BenchStore, rounds: int) -> Iterator[Row]:
    """Fifty turns that begin together: with room for 16 requests all are scored, with 4 the rest end on time."""
    for in_flight, goal, limit in (
        (16, f"all scored, <= {BUDGET_MS / 1000:g} s", BUDGET_MS / 1000),
        (4, f"{LEAST_SCORED} scored, the last ends <= {BUDGET_MS / 1000 + ENDS_WITHIN_SECONDS:g} s",
         BUDGET_MS / 1000 + ENDS_WITHIN_SECONDS),
    ):  # fmt: skip
        took, scored = [], []
        for _ in range(rounds):
            seconds, outcomes = _begin_together(store, in_flight)
            took.append(seconds)
            scored.append(sum(outcome == "shadow" for outcome in outcomes))
        least = min(scored)
        enough = least >= (TURNS if in_flight == 16 else LEAST_SCORED)
        name = f"recall gate: {TURNS} turns at once, {in_flight} requests in flight"
        yield Row(
            name, store.size, Sample.of(took), "", None, goal, limit if enough else 0.0, absolute=True,
            note=f"at least {least} of {TURNS} scored",
        )  # fmt: skip


def message(store: BenchStore, number: int) -> str:
    """What a user may write: a question with eight content words, each in a few pages of a hundred or fewer."""
    rng = random.Random(f"message/{store.seed}/{number}")
    one, two, three, four, five, six, seven, eight = rng.sample(store.words().words[60:1_200], 8)
    return (
        f"When did we decide that the {one} {two} should be with {three}, and what was it about {four} and the {five} "
        f"of {six} {seven}? I am not sure if {eight} is still in there."
    )


def _begin_together(store: BenchStore, in_flight: int) -> tuple[float, list[str]]:
    """Seconds from the first turn's begin to the last one's end, and each outcome."""
    with slow_reranker() as url:
        configuration = parse_configuration(
            CONFIGURATION
            + f"""
agents: {{defaults: {{decisionModel: rerank/bench}}, list: [{{id: main}}]}}
models: {{providers: {{rerank: {{baseUrl: "{url}", models: [{{id: bench}}], maxInFlight: {in_flight}}}}}}}
recallGate: {{mode: shadow, timeoutMs: {BUDGET_MS}}}
"""
        )
        with KnowledgeBridge(store.state_dir, config=configuration) as knowledge:
            # The index is there before the first turn: building it is a row of its own.
            knowledge.call("knowledge_grep", {"query": "word"}, MAIN, deadline_ms=DEADLINE_MAX_MS)
            knowledge.consult("recall.gate", {"message": message(store, 0), "turnId": "warm"}, MAIN)
            messages = [message(store, number) for number in range(TURNS)]  # each draws the whole vocabulary anew
            began = time.perf_counter()
            pending = [_begin(knowledge, text) for text in messages]
            outcomes = [_outcome(one) for one in pending]
            return time.perf_counter() - began, outcomes


def _begin(knowledge: KnowledgeBridge, text: str) -> PendingCall:
    pending = knowledge.provide(parse_provider_call("recall.gate", {"message": text, "turnId": "t"}, caller=MAIN))
    assert isinstance(pending, PendingCall)
    return pending


def _outcome(pending: PendingCall) -> str:
    pending.wait()
    answers: list[JsonObject] = []
    pending.deliver(answers.append)
    return str(answers[0]["outcome"])


@contextmanager
def slow_reranker(seconds: float = SCORING_SECONDS) -> Iterator[str]:
    """A real server on loopback that takes its time; its address."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            time.sleep(seconds)
            results = [{"index": place, "relevance_score": 0.5} for place, _ in enumerate(asked["documents"])]
            body = json.dumps({"results": results}).encode()
            try:
                self.send_response(200)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)
            except OSError:
                self.close_connection = True  # the turn's budget was used, and its client has left

        def log_message(self, format: str, *args: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        server.daemon_threads = True
        thread = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_address[1]}"
        finally:
            server.shutdown()
            thread.join()

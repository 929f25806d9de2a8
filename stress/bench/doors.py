"""The rows of the doors: an ask while the index is rebuilt, MCP through a real process, memory after a mixed load."""

from __future__ import annotations

import contextlib
import json
import random
import resource
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import IO, Final

from host_bridge.bridge import KnowledgeBridge
from host_bridge.owner import spawn
from messages.envelope import Call, Deadline
from messages.json_types import JsonObject, JsonValue
from storage import python_child
from stress.bench.measure import Contender, Row, Sample, interleave
from stress.bench.notes import title_of_page
from stress.bench.store import MAIN, BenchStore, configuration, remembering
from stress.bridge_door import BridgeDoor
from stress.clients import Client
from stress.ledger import Caller, Ledger
from stress.scripts import Shelf

_REBUILD_SECONDS: Final = 600.0
_MEMORY_LIMITS: Final = ((10_000, 150.0), (100_000, 600.0))
_MIXED_AGENTS: Final = 4
_MIXED_CALLS: Final = 250


def beside_rebuild(store: BenchStore, rounds: int) -> Iterator[Row]:
    """Look-ups while the keyword index is rebuilt from nothing, against the same when the runtime is idle."""
    with KnowledgeBridge(store.state_dir, config=configuration()) as knowledge:
        # The first opening reads every file; what is measured is the rebuild alone.
        knowledge.call("knowledge_grep", {"query": store.words().words[0]}, MAIN)
    shutil.rmtree(store.layout.search)
    rng = random.Random(store.seed)
    pages = max(1, store.size // 4)
    with KnowledgeBridge(store.state_dir, config=configuration()) as knowledge:
        ask = Contender(
            "ask",
            lambda _: knowledge.call("knowledge_lookup", {"query": title_of_page(rng.randrange(pages))}, MAIN),
        )
        interleave([ask], 20)
        rebuilt = threading.Event()
        # A search asks the indexer for everything at once: the rebuild runs until it is answered.
        grep: JsonObject = {"query": " ".join(store.words().around(300, 3)), "mode": "any"}
        pending = knowledge.submit(Call("knowledge_grep", grep, MAIN, Deadline.after(_REBUILD_SECONDS)))
        pending.add_done_callback(lambda _: rebuilt.set())
        beside: list[float] = []
        while not rebuilt.is_set() and len(beside) < 20 * rounds:
            began = time.perf_counter()
            ask.run(len(beside))
            beside.append(time.perf_counter() - began)
        rebuilt.wait(_REBUILD_SECONDS)
        idle = interleave([ask], max(rounds, len(beside)))["ask"]
    yield Row(
        "ask beside our own rebuild (p50)", store.size, Sample.of(beside), "idle", Sample.of(idle), "<= 2x idle", 2.0,
        note=f"{len(beside)} asks during the rebuild",
    )  # fmt: skip


def mcp(store: BenchStore, rounds: int) -> Iterator[Row]:
    """Writes and searches of one MCP client through ``knowledge mcp`` and the owner it starts, in everyday use: after
    the first commit of a vault that was just made."""
    words = store.words()
    with _McpClient(store.state_dir) as client:
        client.call("knowledge_grep", {"query": words.words[0]})  # the owner is up and the index is built
        client.wait_for_git()
        asked: list[JsonObject] = []
        taken = interleave(
            [
                Contender(
                    "write",
                    lambda _: client.call("knowledge_remember", asked.pop()),
                    prepare=lambda n: asked.append(remembering(n)),
                ),
                Contender(
                    "search",
                    lambda n: client.call(
                        "knowledge_grep", {"query": " ".join(words.around(300 + n, 3)), "mode": "any"}
                    ),
                ),
            ],
            rounds,
        )
    for name, milliseconds in (("write", 8), ("search", 5)):
        yield Row(
            f"MCP stdio {name}", store.size, Sample.of(taken[name]), "", None, f"<= {milliseconds} ms",
            milliseconds / 1000, absolute=True,
        )  # fmt: skip


class _McpClient:
    """One MCP session over the pipes of a ``knowledge mcp`` process; one request at a time."""

    def __init__(self, state_dir: Path) -> None:
        self._state_dir = state_dir
        self._number = 0

    def __enter__(self) -> _McpClient:
        self._process = subprocess.Popen(
            spawn.command(str(self._state_dir), "mcp"),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env=python_child.environment(),
        )
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._in: IO[bytes] = self._process.stdin
        self._out: IO[bytes] = self._process.stdout
        self._request(
            "initialize",
            {
                "protocolVersion": "2025-06-18",
                "capabilities": {},
                "clientInfo": {"name": "knowledge-bench", "version": "1"},
            },
        )
        self._send({"jsonrpc": "2.0", "method": "notifications/initialized"})
        return self

    def __exit__(self, *_: object) -> None:
        with contextlib.suppress(OSError):
            self._in.close()
        self._process.wait(30)
        self._out.close()
        stop = spawn.command(str(self._state_dir), "stop")
        subprocess.run(stop, check=False, env=python_child.environment(), capture_output=True)

    def call(self, tool: str, arguments: JsonObject) -> JsonValue:
        """The tool's answer. Raises ``RuntimeError`` for an error."""
        result = self._request("tools/call", {"name": tool, "arguments": arguments})
        if not isinstance(result, dict) or result.get("isError"):
            raise RuntimeError(f"{tool} failed: {result}")
        return result

    def wait_for_git(self) -> None:
        """Until every publication has its commit, or for two minutes."""
        for _ in range(600):
            status = self.call("knowledge_status", {})
            assert isinstance(status, dict)
            [block] = status["content"]
            git = json.loads(block["text"])["git"]
            if git["state"] != "pending" or not git["pending"]:
                return
            time.sleep(0.2)

    def _request(self, method: str, params: JsonObject) -> JsonValue:
        self._number += 1
        self._send({"jsonrpc": "2.0", "id": self._number, "method": method, "params": params})
        while line := self._out.readline():
            message = json.loads(line)
            if message.get("id") == self._number:
                if "error" in message:
                    raise RuntimeError(f"{method} failed: {message['error']}")
                result: JsonValue = message["result"]
                return result
        raise RuntimeError("the MCP process ended")

    def _send(self, message: JsonObject) -> None:
        self._in.write(json.dumps(message).encode() + b"\n")
        self._in.flush()


def memory(store: BenchStore) -> Iterator[Row]:
    """The most that a process of its own held: opening the store, then agents reading and writing side by side."""
    child = subprocess.run(
        [sys.executable, "-P", "-m", "stress.bench.doors", str(store.state_dir), str(store.seed)],
        check=True,
        capture_output=True,
        env=python_child.environment(),
    )
    peak, bare = json.loads(child.stdout)
    limit = next((megabytes for size, megabytes in _MEMORY_LIMITS if store.size <= size), None)
    yield Row(
        "peak memory after a mixed load", store.size, Sample.of([peak], "MB"), "imports alone", Sample.of([bare], "MB"),
        f"<= {limit:.0f} MB" if limit else "", limit, absolute=True,
    )  # fmt: skip


def _mixed(state_dir: Path, seed: int) -> None:
    bare = _peak_megabytes()
    with KnowledgeBridge(state_dir, config=configuration()) as knowledge:
        caller, shelf = Caller("main", "main"), Shelf("")
        clients = [
            Client(str(n), Ledger(), seed=f"{seed}/{n}", doors=[(BridgeDoor(knowledge), 1)], callers=[(caller, shelf)])
            for n in range(_MIXED_AGENTS)
        ]
        with ThreadPoolExecutor(_MIXED_AGENTS) as pool:
            list(pool.map(lambda client: client.run(threading.Event(), _MIXED_CALLS), clients))
    print(json.dumps([_peak_megabytes(), bare]))


def _peak_megabytes() -> float:
    """The most this process held. ``getrusage`` would tell of the parent too: its peak survives fork and exec."""
    try:
        lines = Path("/proc/self/status").read_text("ascii").splitlines()
    except FileNotFoundError:
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / (1 << 20 if sys.platform == "darwin" else 1 << 10)
    [peak] = [line.split()[1] for line in lines if line.startswith("VmHWM:")]
    return int(peak) / 1024


if __name__ == "__main__":
    _mixed(Path(sys.argv[1]), int(sys.argv[2]))

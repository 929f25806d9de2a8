"""The example of a host lives through its story on a real runtime, process by process."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Final

import orjson
import pytest

from examples import host
from host_bridge.bridge import KnowledgeBridge
from messages.audience import OwnerPrivate
from tests.tree import CHECKOUT

COMMAND: Final = (sys.executable, "-P", "-m", "host_bridge")
MAIN = OwnerPrivate("main")


class Reranker(BaseHTTPRequestHandler):
    """Finds everything relevant."""

    def do_POST(self) -> None:
        asked = orjson.loads(self.rfile.read(int(self.headers["Content-Length"])))
        results = [{"index": number, "relevance_score": 0.9} for number in range(len(asked["documents"]))]
        body = orjson.dumps({"results": results})
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        """Quiet."""


@pytest.fixture
def reranker() -> Iterator[str]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), Reranker)
    thread = Thread(target=server.serve_forever)
    thread.start()
    yield f"http://127.0.0.1:{server.server_address[1]}"
    server.shutdown()
    thread.join()
    server.server_close()


def test_the_example_remembers_flushes_restarts_and_recalls(
    tmp_path: Path, reranker: str, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "knowledge.yaml").write_text(
        "recallGate: {mode: live}\n"
        "agents: {defaults: {decisionModel: rerank/test}}\n"
        f"models: {{providers: {{rerank: {{baseUrl: '{reranker}', models: [{{id: test}}]}}}}}}\n"
    )
    model = host.run(tmp_path, COMMAND)
    assert capsys.readouterr().out.splitlines()[-1] == "agent: A window seat. The release was moved to Friday."
    first, last = model.systems[0], model.systems[-1]
    assert len(set(model.systems[:4])) == 1, "the same until the compaction"
    assert "knowledge_remember" in first
    assert "## Knowledge Index" not in first
    assert "Garden Pilot" in last
    assert "window seats" in last
    assert [name for name in model.offered[4] if name in ("knowledge_remember", "knowledge_withdraw")] == [
        "knowledge_remember"
    ]
    gated = next(text for text in model.heard if text.endswith("when is Garden Pilot released?"))
    assert gated.startswith("## Knowledge recall\n")
    assert "The release was moved to Friday." in gated
    with KnowledgeBridge(tmp_path) as knowledge:
        page = knowledge.call("knowledge_lookup", {"query": "Garden Pilot"}, MAIN)
        assert page["state"] == "found"


def test_the_example_runs_as_it_says(tmp_path: Path) -> None:
    path = tmp_path / "bin"
    path.mkdir()
    script = path / "knowledge"
    script.write_text(f"#!/bin/sh\nexec {sys.executable} -P -m host_bridge \"$@\"\n")
    script.chmod(0o755)
    done = subprocess.run(
        [sys.executable, str(CHECKOUT / "examples" / "host.py"), "--state-dir", str(tmp_path / "state")],
        capture_output=True,
        text=True,
        timeout=120,
        env={"PATH": f"{path}:/usr/bin:/bin"},
    )
    assert done.returncode == 0, done.stderr
    assert all("knowledge recall gate:" in line for line in done.stderr.splitlines()), "a log line a turn, nothing else"
    assert done.stdout.splitlines()[-1].startswith("agent: A window seat.")

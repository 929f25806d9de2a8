"""The shell blocks of docs/http.md, run as they stand against a server of their own."""

from __future__ import annotations

import json
import re
import shutil
import signal
import subprocess
import sys

import pytest

from host_bridge.http import connection, door, eventing, mcp_route, sessions
from host_bridge.transport import HAND_OVER_SECONDS
from tests.host_bridge.http.test_owner_http import line_of
from tests.host_bridge.processes import PATIENCE, Home
from tests.test_docs import blocks
from tests.tree import CHECKOUT

PAGE = CHECKOUT / "docs" / "http.md"


@pytest.mark.skipif(shutil.which("curl") is None, reason="the page speaks to people who have curl")
def test_the_shell_blocks_of_the_page_run_in_their_order() -> None:
    serve, *rest = [block.body for block in blocks(PAGE) if block.language == "sh"]
    home = Home(fake=False)
    try:
        process = home.start(*serve.split()[1:-1], "127.0.0.1:0")
        assert process.stderr is not None
        port = line_of(process.stderr, r"serves HTTP at http://127\.0\.0\.1:([0-9]+)\.")
        line_of(process.stderr, r"(owns)")
        wrapper = home.base / "bin"
        wrapper.mkdir()
        command = wrapper / "knowledge"
        command.write_text(f'#!/bin/sh\nexec "{sys.executable}" -P -m host_bridge "$@"\n')
        command.chmod(0o755)
        script = "set -e\n" + "\necho ----\n".join(rest).replace("8765", port)
        ran = subprocess.run(
            ["sh", "-c", script],
            env={**home.env, "PATH": f"{wrapper}:{home.env['PATH']}"},
            cwd=home.base,
            capture_output=True,
            timeout=PATIENCE,
            check=False,
        )
        assert ran.returncode == 0, ran.stderr.decode()
        status, found, events, link = ran.stdout.decode().split("----\n")
        assert "result" in json.loads(status)
        assert json.loads(found)["hits"] == []
        assert events.startswith(": heartbeat")
        assert re.fullmatch(rf"http://k[0-9a-f]+\.localhost:{port}/session/\S+\n", link)
        process.send_signal(signal.SIGTERM)
        assert process.wait(PATIENCE) == 0
    finally:
        home.close()


def test_the_numbers_of_the_page_are_those_of_the_code() -> None:
    page = " ".join(PAGE.read_text("utf-8").split())
    for said in (
        f"{door.CALLS_MAX} calls at once, {door.SPEAKER_CALLS_MAX} of one bearer, {door.STREAMS_MAX} streams",
        f"{door.PAGES_MAX} pages of one session",
        f"{mcp_route.CALLER_SESSIONS_MAX} MCP sessions of one caller",
        f"{connection.CONNECTIONS_MAX} connections",
        f"longer than {connection.HEAD_SECONDS:g} seconds, a body longer than {door.BODY_SECONDS:g}",
        f"within {HAND_OVER_SECONDS:g} seconds",
        f"every {eventing.HEARTBEAT_SECONDS:g} seconds",
    ):
        assert said in page, said
    assert (sessions.LINK_SECONDS, sessions.IDLE_SECONDS, sessions.SESSION_SECONDS) == (300, 7_200, 43_200)

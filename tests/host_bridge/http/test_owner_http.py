"""A real owner process with its HTTP door: start, keys, pages' links, and the end."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import threading
from collections.abc import Iterator
from typing import IO

import httpx
import pytest

from messages.json_types import JsonObject
from tests.host_bridge.http.world import OWNER, remembering
from tests.host_bridge.processes import PATIENCE, Home

SAVED: JsonObject = remembering("The tower has nine bells.")
SAVE: JsonObject = {"tool": "knowledge_remember", "arguments": SAVED, "audience": OWNER}
GREP: JsonObject = {"tool": "knowledge_grep", "arguments": {"query": "bells"}, "audience": OWNER}


@pytest.fixture
def home() -> Iterator[Home]:
    made = Home(fake=False)
    try:
        yield made
    finally:
        made.close()


def line_of(stream: IO[bytes], pattern: str) -> str:
    """The first line that matches; the process must say it."""
    for raw in stream:
        found = re.search(pattern, raw.decode())
        if found:
            return found[1]
    raise AssertionError(f"no line like {pattern}")


def served(home: Home, *more: str) -> tuple[subprocess.Popen[bytes], str]:
    process = home.start("serve", "--http", "127.0.0.1:0", *more)
    assert process.stderr is not None
    url = line_of(process.stderr, r"serves HTTP at (http://127\.0\.0\.1:[1-9][0-9]*)\.")
    line_of(process.stderr, r"(owns)")
    return process, url


def call(url: str, key: str, params: JsonObject) -> JsonObject:
    body = {"jsonrpc": "2.0", "id": 1, "method": "tools.call", "params": params}
    answer: JsonObject = httpx.post(
        f"{url}/rpc", json=body, headers={"Authorization": f"Bearer {key}"}, timeout=20, trust_env=False
    ).json()
    return answer


def test_serve_http_answers_with_the_key_that_was_printed_once_beside_the_other_doors(home: Home) -> None:
    process, url = served(home)
    printed = home.run("http", "key")
    assert printed.returncode == 0, printed.stderr
    key = printed.stdout.decode().strip()
    assert key not in printed.stderr.decode()
    again = home.run("http", "key")
    assert again.returncode != 0
    assert b"already" in again.stderr
    assert "result" in call(url, key, SAVE)
    assert "nine bells" in json.dumps(home.call("grep", '{"query": "bells"}'))
    rotated = home.run("http", "key", "--rotate").stdout.decode().strip()
    assert httpx.get(f"{url}/metrics", headers={"Authorization": f"Bearer {key}"}, trust_env=False).status_code == 401
    assert "nine bells" in json.dumps(call(url, rotated, GREP))
    process.send_signal(signal.SIGTERM)
    out, _ = process.communicate(timeout=PATIENCE)
    assert (process.returncode, out) == (0, b""), "nothing but protocol on stdout"


def test_sigterm_with_an_open_stream_and_an_idle_connection_drains_and_exits_0(home: Home) -> None:
    process, url = served(home)
    key = home.run("http", "key").stdout.decode().strip()
    assert "result" in call(url, key, SAVE)
    heard = threading.Event()
    ended: list[str] = []

    def listen() -> None:
        headers = {"Authorization": f"Bearer {key}", "Knowledge-Audience": json.dumps(OWNER)}
        with httpx.stream("GET", f"{url}/events", headers=headers, timeout=PATIENCE, trust_env=False) as stream:
            for line in stream.iter_lines():
                if line.startswith(":"):
                    heard.set()
        ended.append("in order")

    listener = threading.Thread(target=listen)
    listener.start()
    with httpx.Client(base_url=url, trust_env=False) as idle:
        assert idle.get("/healthz").json() == {"status": "ok"}
        assert heard.wait(PATIENCE)
        process.send_signal(signal.SIGTERM)
        assert process.wait(PATIENCE) == 0
    listener.join(PATIENCE)
    assert ended == ["in order"]


def test_ui_prints_a_link_of_a_background_owner_that_serves_on_demand_and_works_once(home: Home) -> None:
    printed = home.run("ui", "--print-url")
    assert printed.returncode == 0, printed.stderr
    link = printed.stdout.decode().strip()
    found = re.fullmatch(r"http://(k[0-9a-f]{16}\.localhost):([0-9]+)(/session/[A-Za-z0-9_-]{43})", link)
    assert found is not None, link
    host, port, path = found.groups()
    head = {"Host": f"{host}:{port}"}
    with httpx.Client(base_url=f"http://127.0.0.1:{port}", headers=head, trust_env=False) as browser:
        opened = browser.get(path)
        assert opened.status_code == 200
        cookie = opened.headers["set-cookie"]
        assert "HttpOnly" in cookie
        assert "SameSite=strict" in cookie
        assert browser.get(path).status_code == 410
    second = json.loads(home.run("ui", "--print-url", "--json", "--read-only").stdout)
    assert second["url"] == f"http://127.0.0.1:{port}", "the same server"
    assert second["link"] != link
    assert json.loads(home.run("status", "--json").stdout)["http"] == second["url"]


def test_an_address_that_other_machines_reach_is_refused_without_tls_or_the_flag(home: Home) -> None:
    refused = home.run("serve", "--http", "0.0.0.0:0")
    assert refused.returncode != 0
    assert b"--insecure-bind" in refused.stderr
    process = home.start("serve", "--http", "0.0.0.0:0", "--insecure-bind")
    assert process.stderr is not None
    assert line_of(process.stderr, r"serves HTTP at http://0\.0\.0\.0:([0-9]+)")
    process.send_signal(signal.SIGTERM)
    assert process.wait(PATIENCE) == 0


def test_a_taken_port_is_named_and_nothing_is_left_behind(home: Home) -> None:
    import socket

    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        refused = home.run("serve", "--http", f"127.0.0.1:{port}")
    assert refused.returncode != 0
    assert f"127.0.0.1:{port} cannot be listened at".encode() in refused.stderr
    assert home.run("status", "--json").returncode == 0
    process, _ = served(home)
    process.send_signal(signal.SIGTERM)
    assert process.wait(PATIENCE) == 0


def test_listen_in_the_configuration_makes_a_foreground_owner_serve(home: Home) -> None:
    (home.state_dir / "knowledge.yaml").write_text('http: {listen: "127.0.0.1:0"}\n')
    process = home.start("serve")
    assert process.stderr is not None
    url = line_of(process.stderr, r"serves HTTP at (http://\S+)\.")
    assert httpx.get(f"{url}/healthz", trust_env=False).status_code == 200
    process.send_signal(signal.SIGTERM)
    assert process.wait(PATIENCE) == 0


def test_an_owner_without_http_imports_nothing_of_it(home: Home) -> None:
    code = (
        "import sys, host_bridge.owner.process, host_bridge.owner.server, host_bridge.owner.http_door, "
        "host_bridge.bridge, host_bridge.cli.serve, host_bridge.cli.ui, host_bridge.cli.http\n"
        "found = sorted(m for m in ('starlette', 'uvicorn', 'mcp', 'prometheus_client') if m in sys.modules)\n"
        "assert not found, found\n"
    )
    done = subprocess.run(
        [home.command()[0], "-c", code], env=home.env, capture_output=True, timeout=PATIENCE, check=False
    )
    assert done.returncode == 0, done.stderr.decode()

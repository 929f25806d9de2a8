"""``knowledge serve --stdio``: the host protocol on the pipes of whoever started us."""

from __future__ import annotations

import json
import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path

import pytest

from messages.json_types import JsonObject, JsonValue
from tests.host_bridge.processes import PATIENCE, Home

OWNER: JsonObject = {"kind": "owner-private", "agent": "main"}


class Host:
    """A host at the other end of the pipes."""

    def __init__(self, home: Home, *, env: Mapping[str, str] | None = None) -> None:
        self.process = home.start("serve", "--stdio", env=env)

    def write(self, text: bytes) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(text)
        self.process.stdin.flush()

    def send(self, request_id: JsonValue, method: str, params: JsonObject) -> None:
        message: JsonObject = {"jsonrpc": "2.0", "id": request_id, "method": method, "params": params}
        self.write(json.dumps(message).encode() + b"\n")

    def call(self, request_id: JsonValue, **arguments: JsonValue) -> None:
        self.send(
            request_id, "tools.call", {"tool": "knowledge_status", "arguments": dict(arguments), "audience": OWNER}
        )

    def answer(self) -> JsonObject:
        assert self.process.stdout is not None
        message: JsonObject = json.loads(self.process.stdout.readline())
        return message

    def end_input(self) -> None:
        assert self.process.stdin is not None
        self.process.stdin.close()

    def rest(self) -> list[JsonObject]:
        """Everything that was still written before the process ended, which it must do by itself."""
        assert self.process.stdout is not None
        lines = self.process.stdout.read().splitlines()
        self.process.wait(PATIENCE)
        return [json.loads(line) for line in lines]


def test_a_host_initializes_lists_and_calls_over_its_pipes(home: Home) -> None:
    host = Host(home)
    host.send(1, "initialize", {"protocol": "knowledge-host/1", "host": {"name": "test", "version": "1"}})
    host.send(2, "tools.list", {"format": "openai"})
    host.call(3, note="żółw 漢字 🐢")
    answers = {answer["id"]: answer["result"] for answer in (host.answer(), host.answer(), host.answer())}
    assert set(answers) == {1, 2, 3}
    echoed = answers[3]
    assert isinstance(echoed, dict)
    assert echoed["arguments"] == {"note": "żółw 漢字 🐢"}
    host.end_input()
    assert host.rest() == []
    assert host.process.returncode == 0


def test_nothing_but_protocol_reaches_stdout_even_from_a_print_or_a_child(home: Home) -> None:
    host = Host(home)
    host.call(1, act="print")
    host.end_input()
    assert host.rest() == [{"jsonrpc": "2.0", "id": 1, "result": {"printed": True}}]
    assert host.process.stderr is not None
    noise = host.process.stderr.read()
    assert b"stray output" in noise
    assert b"stray child output" in noise


def test_bad_lines_are_answered_and_the_connection_goes_on(home: Home) -> None:
    host = Host(home)
    host.write(b"{\n[]\n" + b"[" * 50_000 + b"\n" + b"x" * ((8 << 20) + 1) + b"\n\n")
    host.call("after")
    host.end_input()
    answers = host.rest()
    assert [answer["id"] for answer in answers] == [None, None, None, None, "after"]
    errors = [answer.get("error") for answer in answers]
    numbers = [error["code"] for error in errors if isinstance(error, dict)]
    assert numbers == [-32700, -32600, -32600, -32000]


@pytest.mark.slow
def test_a_line_of_eight_mebibytes_is_accepted(home: Home) -> None:
    host = Host(home)
    frame = b'{"jsonrpc":"2.0","id":1,"method":"tools.list","params":{"format":"mcp","profile":"%s"}}'
    host.write(frame % (b"x" * ((8 << 20) - len(frame) + 2)) + b"\n")
    host.end_input()
    (answer,) = host.rest()
    assert isinstance(answer["error"], dict)
    assert answer["error"]["code"] == -32602


@pytest.mark.slow
def test_the_end_of_input_lets_an_open_call_finish(home: Home) -> None:
    started, release = home.pipe("started"), home.pipe("release")
    host = Host(home)
    host.call(1, act="hold", name="a", started=started, release=release)
    assert Path(started).read_text(encoding="utf-8") == "a\n"
    host.end_input()
    Path(release).write_text("", encoding="utf-8")
    assert host.rest() == [{"jsonrpc": "2.0", "id": 1, "result": {"held": "a"}}]
    assert host.process.returncode == 0


@pytest.mark.slow
def test_the_end_of_input_drains_for_a_second_and_a_half_and_answers_what_is_left(home: Home) -> None:
    started = home.pipe("started")
    host = Host(home)
    host.call(1, act="hold", name="a", started=started, release=home.pipe("never"))
    assert Path(started).read_text(encoding="utf-8") == "a\n"
    begun = time.monotonic()
    host.end_input()
    (answer,) = host.rest()
    assert 1.4 < time.monotonic() - begun < 4.0  # hosts kill after four seconds
    assert isinstance(answer["error"], dict)
    assert isinstance(answer["error"]["data"], dict)
    assert (answer["error"]["data"]["code"], answer["error"]["data"]["retry"]) == ("stopping", "unknown")
    assert host.process.returncode == 0


@pytest.mark.parametrize(
    "number",
    [
        signal.SIGTERM,
        pytest.param(signal.SIGINT, marks=pytest.mark.slow),
        pytest.param(signal.SIGHUP, marks=pytest.mark.slow),
    ],
)
def test_a_signal_takes_the_same_path_as_shutdown(home: Home, number: signal.Signals) -> None:
    started, release = home.pipe("started"), home.pipe("release")
    host = Host(home)
    host.call(1, act="hold", name="a", started=started, release=release)
    assert Path(started).read_text(encoding="utf-8") == "a\n"
    host.process.send_signal(number)
    Path(release).write_text("", encoding="utf-8")
    assert host.rest() == [{"jsonrpc": "2.0", "id": 1, "result": {"held": "a"}}]
    assert host.process.returncode == 0
    assert home.holder_pid() is None


@pytest.mark.slow
def test_shutdown_drains_answers_and_ends(home: Home) -> None:
    started, release = home.pipe("started"), home.pipe("release")
    host = Host(home)
    host.call(1, act="hold", name="a", started=started, release=release)
    assert Path(started).read_text(encoding="utf-8") == "a\n"
    host.send(2, "shutdown", {})
    Path(release).write_text("", encoding="utf-8")
    assert host.rest() == [
        {"jsonrpc": "2.0", "id": 1, "result": {"held": "a"}},
        {"jsonrpc": "2.0", "id": 2, "result": {}},
    ]
    assert host.process.returncode == 0


@pytest.mark.slow
def test_a_host_that_closes_our_stdout_ends_us_quietly(home: Home) -> None:
    host = Host(home)
    host.send(1, "tools.list", {"format": "mcp"})
    host.answer()
    assert host.process.stdout is not None
    assert host.process.stderr is not None
    host.process.stdout.close()
    host.send(2, "tools.list", {"format": "mcp"})
    host.process.wait(PATIENCE)
    assert host.process.returncode == 0
    assert b"Traceback" not in host.process.stderr.read()


@pytest.mark.slow
def test_the_locale_of_the_host_does_not_matter(home: Home) -> None:
    host = Host(home, env={"LC_ALL": "C", "PYTHONIOENCODING": "ascii"})
    host.call(1, note="żółw 漢字 🐢")
    host.end_input()
    (answer,) = host.rest()
    assert isinstance(answer["result"], dict)
    assert answer["result"]["arguments"] == {"note": "żółw 漢字 🐢"}


@pytest.mark.slow
def test_a_stdio_owner_serves_other_clients_through_its_socket(home: Home) -> None:
    host = Host(home)
    host.call(1)
    own = host.answer()["result"]
    assert isinstance(own, dict)
    assert home.call("status")["pid"] == own["pid"] == host.process.pid
    host.end_input()
    host.rest()


@pytest.mark.slow
def test_beside_a_busy_owner_the_host_is_served_by_that_owner_and_told_who_it_is(home: Home) -> None:
    foreground = home.foreground()
    host = Host(home)
    host.call(1)
    answer = host.answer()["result"]
    assert isinstance(answer, dict)
    assert answer["pid"] == foreground.pid
    host.send(2, "shutdown", {})
    assert host.answer() == {"jsonrpc": "2.0", "id": 2, "result": {}}
    host.rest()
    assert host.process.returncode == 0
    assert host.process.stderr is not None
    assert str(foreground.pid).encode() in host.process.stderr.read()
    assert foreground.poll() is None


@pytest.mark.slow
def test_a_host_that_died_without_closing_its_pipes_is_noticed(home: Home) -> None:
    """The pipes of a killed host may live on in another child of its: then the end of our parent tells."""
    reader, writer = os.pipe()
    script = (
        "import signal, subprocess\n"
        f"p = subprocess.Popen({home.command('serve', '--stdio')!r}, stdin=0, stdout={writer}, pass_fds=({writer},))\n"
        "print(p.pid, flush=True)\nsignal.pause()\n"
    )
    keep_open, stdin_end = os.pipe()
    parent = subprocess.Popen(
        [sys.executable, "-c", script],
        stdin=keep_open,
        stdout=subprocess.PIPE,
        pass_fds=(writer,),
        env=home.env,
    )
    os.close(writer)
    os.close(keep_open)
    with parent:
        assert parent.stdout is not None
        pid = int(parent.stdout.readline())
        os.write(stdin_end, b'{"jsonrpc":"2.0","id":1,"method":"tools.list","params":{"format":"mcp"}}\n')
        assert os.read(reader, 10) == b'{"jsonrpc"'
        pidfd = os.pidfd_open(pid)
        parent.kill()
        poller = select.poll()
        poller.register(pidfd, select.POLLIN)
        assert poller.poll(PATIENCE * 1000), "the owner outlived its host"
        for descriptor in (pidfd, stdin_end, reader):
            os.close(descriptor)

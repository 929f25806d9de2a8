"""``events.subscribe`` and ``operator.*`` over the pipe and the socket, with a real owner and real files."""

from __future__ import annotations

import json
import socket
import subprocess
import uuid
from collections.abc import Iterator
from contextlib import closing
from typing import IO

import pytest

from host_bridge.owner.client import read_holder
from messages.json_types import JsonObject, JsonValue
from tests.host_bridge.processes import PATIENCE, Home
from tests.kit.store import only_store, remembering

OWNER: JsonObject = {"kind": "owner-private", "agent": "main"}


@pytest.fixture
def real() -> Iterator[Home]:
    place = Home(fake=False)
    yield place
    place.close()


class Speaker:
    """One connection of a host; events are kept apart from answers."""

    def __init__(self, reader: IO[bytes], writer: IO[bytes]) -> None:
        self._reader = reader
        self._writer = writer
        self._id = 0
        self.events: list[JsonObject] = []

    def ask(self, method: str, params: JsonObject) -> JsonObject:
        self._id += 1
        line = json.dumps({"jsonrpc": "2.0", "id": self._id, "method": method, "params": params})
        self._writer.write(line.encode() + b"\n")
        self._writer.flush()
        while True:
            message = self._message()
            if message.get("id") == self._id:
                return message

    def result(self, method: str, params: JsonObject) -> JsonObject:
        message = self.ask(method, params)
        assert "result" in message, message
        result = message["result"]
        assert isinstance(result, dict)
        return result

    def wait_for_event(self, kind: str) -> JsonObject:
        while True:
            found = next((event for event in self.events if event["type"] == kind), None)
            if found is not None:
                self.events.clear()
                return found
            message = self._message()
            assert "id" not in message, message

    def _message(self) -> JsonObject:
        message: JsonObject = json.loads(self._reader.readline())
        if message.get("method") == "event":
            params = message["params"]
            assert isinstance(params, dict)
            self.events.append(params)
        return message


def over_stdio(home: Home) -> tuple[Speaker, subprocess.Popen[bytes]]:
    host = home.start("serve", "--stdio")
    assert host.stdin is not None
    assert host.stdout is not None
    return Speaker(host.stdout, host.stdin), host


def remember(text: str) -> JsonObject:
    return {
        "tool": "knowledge_remember",
        "arguments": {**remembering(text), "requestId": str(uuid.uuid4())},
        "audience": OWNER,
    }


def edit_by_hand(home: Home) -> None:
    note = next((only_store(home.state_dir).vault / "private" / "claims").rglob("*.md"))
    note.write_text(note.read_text() + "Added by hand.\n")


def test_over_stdio_changes_by_tools_and_by_editors_are_told_without_data_or_paths(real: Home) -> None:
    speaker, host = over_stdio(real)
    assert speaker.result("events.subscribe", {"audience": OWNER}) == {}
    speaker.result("tools.call", remember("A first thing."))
    assert speaker.wait_for_event("changed") == {"type": "changed", "partition": "private"}
    edit_by_hand(real)
    assert speaker.wait_for_event("changed") == {"type": "changed", "partition": "private"}
    assert host.stdin is not None
    host.stdin.close()
    assert host.wait(PATIENCE) == 0


def test_on_stdio_an_operator_is_taken_as_minted_and_must_be_there(real: Home) -> None:
    speaker, _host = over_stdio(real)
    refused = speaker.ask("operator.status", {})["error"]
    assert isinstance(refused, dict)
    assert refused["code"] == -32602
    reader: JsonValue = {"id": "ana", "scopes": ["operator.read"]}
    assert speaker.result("operator.status", {"operator": reader})["state"] == "none"
    denied = speaker.ask("operator.acceptDeletions", {"operator": reader})["error"]
    assert isinstance(denied, dict)
    data = denied["data"]
    assert isinstance(data, dict)
    assert (data["code"], data["scope"]) == ("denied", "operator.admin")
    assert speaker.ask("events.subscribe", {})["error"]


def test_over_the_socket_the_peer_is_an_operator_and_hears_until_it_leaves(real: Home) -> None:
    real.call("remember", json.dumps(remember("Before anybody listens.")["arguments"]))
    holder = read_holder(real.directory)
    assert holder is not None
    assert holder.socket is not None
    with closing(socket.socket(socket.AF_UNIX)) as connection:
        connection.settimeout(PATIENCE)
        connection.connect(holder.socket)
        with connection.makefile("rb") as reader, connection.makefile("wb") as writer:
            speaker = Speaker(reader, writer)
            assert speaker.result("events.subscribe", {}) == {}
            assert speaker.result("operator.status", {})["state"] == "open"
            edit_by_hand(real)
            assert speaker.wait_for_event("changed") == {"type": "changed", "partition": "private"}
    # The next client is served as ever; nobody is told any more.
    real.call("remember", json.dumps(remember("After it left.")["arguments"]))
    status = json.loads(real.run("status", "--json").stdout)
    assert status["connections"] == 1

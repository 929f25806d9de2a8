"""One connection of a thin client, with the owner played by the test."""

from __future__ import annotations

import json
import socket

import pytest

from host_bridge.owner import client
from messages import vocabulary

PATIENCE = 20.0


@pytest.mark.parametrize("number", [-32700, -32600, -32000])
def test_an_error_without_an_id_ends_the_wait_for_the_one_request_of_a_connection(number: int) -> None:
    ours, theirs = socket.socketpair()
    connection = client.Connection(ours)
    data = {"code": "limit_exceeded", "retry": "never"} if number == -32000 else None
    error = {"code": number, "message": "No.", **({"data": data} if data else {})}
    stray = {"jsonrpc": "2.0", "method": "event", "params": {}}
    for line in (stray, {"jsonrpc": "2.0", "id": 99, "error": error}, {"jsonrpc": "2.0", "id": None, "error": error}):
        theirs.sendall(json.dumps(line).encode() + b"\n")
    with pytest.raises(client.OwnerError) as refused:
        connection.request("tools.call", {}, PATIENCE)
    assert refused.value.code == ("limit_exceeded" if data else "invalid_argument")
    assert refused.value.retry == "never"
    connection.close()
    theirs.close()


@pytest.mark.parametrize("value", [float("nan"), float("inf"), "x" * client.REQUEST_MAX_BYTES])
def test_a_request_that_no_owner_takes_is_never_sent(value: float | str) -> None:
    ours, theirs = socket.socketpair()
    connection = client.Connection(ours)
    with pytest.raises(client.OwnerError) as refused:
        connection.request("tools.call", {"a": value}, PATIENCE)
    assert refused.value.retry == "never"
    connection.close()
    assert theirs.recv(1) == b""
    theirs.close()


def test_a_clients_limit_is_the_owners() -> None:
    assert client.REQUEST_MAX_BYTES == vocabulary.REQUEST_MAX_BYTES

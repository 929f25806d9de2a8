"""``GET /events``: hearing that something changed, for as long as one may."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest

from host_bridge.http import eventing
from host_bridge.http.door import Limits
from messages.json_types import JsonObject
from tests.host_bridge.http.world import OWNER, World, serving
from tests.kit.leaks import nothing_left

GROUP: JsonObject = {
    "kind": "conversation",
    "agent": "main",
    "sessionKey": "chat:group:1",
    "sessionId": "3f0c6a5e-8c1d-4d4a-9a53-1f0f3a2b4c5d",
}


class Listener:
    """One stream, read in a thread of its own."""

    def __init__(self, world: World, bearer: str, path: str = "/events", **headers: str) -> None:
        self.lines: list[str] = []
        self.ended = threading.Event()
        self.status = 0
        self._changed = threading.Condition()
        self._thread = threading.Thread(target=self._listen, args=(world, bearer, path, headers), daemon=True)
        self._thread.start()

    def _listen(self, world: World, bearer: str, path: str, headers: dict[str, str]) -> None:
        try:
            with world.client(bearer, **headers) as client, client.stream("GET", path, timeout=30) as stream:
                self.status = stream.status_code
                for line in stream.iter_lines():
                    with self._changed:
                        self.lines.append(line)
                        self._changed.notify_all()
        except httpx.HTTPError as error:
            self.lines.append(f"broke: {type(error).__name__}")
        finally:
            self.ended.set()
            with self._changed:
                self._changed.notify_all()

    def hear(self, text: str, seconds: float = 20) -> None:
        """Wait for a line with this in it."""
        end = time.monotonic() + seconds
        with self._changed:
            while not any(text in line for line in self.lines):
                left = end - time.monotonic()
                assert left > 0, self.lines
                assert not self.ended.is_set(), self.lines
                self._changed.wait(left)

    def forget(self) -> None:
        with self._changed:
            self.lines.clear()


@contextmanager
def listening(world: World, bearer: str, **headers: str) -> Iterator[Listener]:
    listener = Listener(world, bearer, **headers)
    listener.hear(": heartbeat")
    yield listener


def test_a_change_is_told_by_its_kind_and_never_by_what_it_was(tmp_path: Path) -> None:
    with nothing_left(), serving(tmp_path / "state") as world:
        world.remember("The first one.")
        with listening(world, world.token()) as mine:
            world.remember("The tower has nine bells.")
            mine.hear('data: {"type":"changed","partition":"private"}')
            assert "event: changed" in mine.lines
            assert not any("bells" in line for line in mine.lines)


def test_a_conversation_hears_nothing_of_its_owner_s_memory(tmp_path: Path) -> None:
    with nothing_left(), serving(tmp_path / "state") as world:
        world.remember("The first one.")
        with listening(world, world.token(GROUP)) as theirs, listening(world, world.token()) as mine:
            world.remember("The tower has nine bells.")
            mine.hear("event: changed")
            assert not any("event:" in line for line in theirs.lines)


def test_an_operator_hears_of_its_agents_and_the_host_of_whom_it_names(tmp_path: Path) -> None:
    with nothing_left(), serving(tmp_path / "state") as world:
        world.remember("The first one.")
        with (
            listening(world, world.operator_key("ana"), path="/events?agent=main") as ana,
            listening(world, world.host_key, **{"Knowledge-Audience": json.dumps(OWNER)}) as host,
        ):
            world.remember("The tower has nine bells.")
            ana.hear("event: changed")
            host.hear("event: changed")
        with world.client(world.host_key) as client:
            assert client.get("/events").status_code == 400, "the host says for whom"
        with world.client(world.operator_key("other")) as client:
            assert client.get("/events?agent=main").status_code == 403


@pytest.mark.parametrize("end", ["token", "operator key", "operator reading", "run"])
def test_a_right_that_ends_in_the_middle_of_a_stream_ends_the_stream(tmp_path: Path, end: str) -> None:
    with nothing_left(), serving(tmp_path / "state") as world:
        world.remember("The first one.")
        bearer, token_id = world.token_and_id({**OWNER, "runId": "run-1"})
        if end.startswith("operator"):
            bearer = world.operator_key("ana")
        with listening(world, bearer) as stream:
            match end:
                case "token":
                    world.bridge.ask("access.tokens.revoke", {"id": token_id})
                case "operator key":
                    world.bridge.ask("access.httpKeys.revoke", {"operatorId": "ana"})
                case "operator reading":
                    (tmp_path / "state" / "knowledge.yaml").write_text("operatorRead: false\n")
                case _:
                    world.bridge.end_run("run-1")
            assert stream.ended.wait(20)
            assert not any("broke" in line for line in stream.lines), "it ends in order"


def test_a_revoked_token_hears_of_no_save_that_came_after(tmp_path: Path) -> None:
    with nothing_left(), serving(tmp_path / "state") as world:
        world.remember("The first one.")
        token, token_id = world.token_and_id()
        with listening(world, token) as stream:
            world.bridge.ask("access.tokens.revoke", {"id": token_id})
            stream.forget()
            world.remember("After the revocation.")
            assert stream.ended.wait(20)
            assert not any("event:" in line for line in stream.lines)


def test_silence_is_filled_with_comments(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(eventing, "HEARTBEAT_SECONDS", 0.05)
    monkeypatch.setattr(eventing, "LOOK_SECONDS", 0.02)
    with nothing_left(), serving(tmp_path / "state") as world:
        world.remember("The first one.")
        with listening(world, world.token()) as stream:
            stream.forget()
            stream.hear(": heartbeat")


def test_a_client_that_leaves_frees_its_place_and_its_subscription(tmp_path: Path) -> None:
    with nothing_left(), serving(tmp_path / "state", limits=Limits(streams=1)) as world:
        world.remember("The first one.")
        token = world.token()
        slots = world.server.application.door.slots
        with world.client(token) as client:
            with client.stream("GET", "/events") as stream:
                lines = stream.iter_lines()
                assert next(lines) == ": heartbeat"
                assert slots.streams == 1
                with world.client(token) as second:
                    assert second.get("/events").status_code == 429
        until(lambda: slots.streams == 0)
        with listening(world, token):
            pass


def test_streams_take_no_place_of_calls(tmp_path: Path) -> None:
    limits = Limits(calls=1, streams=4)
    with nothing_left(), serving(tmp_path / "state", limits=limits) as world:
        world.remember("The first one.")
        with listening(world, world.token()), listening(world, world.token()):
            assert "result" in world.remember("While two listen.")


def until(holds: Callable[[], bool]) -> None:
    end = time.monotonic() + 20
    while not holds():
        assert time.monotonic() < end
        time.sleep(0.01)

"""The barrier, judged at the far end of the pipe (decisions.md section 6).

A host speaks ``knowledge-host/1`` over a real pipe. What counts is what its own end received, and what can be found
in the store, after the answer to the revocation had been received.
"""

from __future__ import annotations

import fcntl
import itertools
import json
import os
import signal
import subprocess
import sys
import textwrap
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from pathlib import Path

import pytest

from actors.access import AccessDesk
from actors.authority import PermitGate, Unbound, authority
from host_bridge.bridge import KnowledgeBridge
from host_bridge.rpc import RpcPeer
from host_bridge.transport import LineReader, Outbox
from messages.audience import Conversation
from messages.json_types import JsonObject, JsonValue
from messages.operator import LOCAL_OPERATOR, Operator
from storage import faults
from tests.kit.actors import eventually
from tests.kit.leaks import nothing_left
from tests.kit.store import MAIN, only_store, open_bridge, remember, remembering, total
from tests.tree import CHECKOUT

KEY = "chat:group:1"
CHAT = Conversation("main", KEY, "33333333-3333-4333-8333-333333333333")
AUDIENCE: JsonObject = {
    "kind": "conversation",
    "agent": "main",
    "sessionKey": KEY,
    "sessionId": CHAT.session_id,
}
SECRET = "Zebrafish"
CODES = {"denied", "read_only_grant"}


@pytest.fixture(autouse=True)
def leaks() -> Iterator[None]:
    with nothing_left():
        yield


class Host:
    """The far end of one pipe: each line as it was received, with its place in the order."""

    def __init__(
        self,
        bridge: KnowledgeBridge,
        *,
        patience: float = 5.0,
        small: bool = False,
        operator: Operator | None = LOCAL_OPERATOR,
    ) -> None:
        self.reader_end, self._writer_end = os.pipe()
        if small:
            fcntl.fcntl(self._writer_end, fcntl.F_SETPIPE_SZ, 4096)
        self._outbox = Outbox(self._writer_end, name="test", patience=patience)
        self._peer = RpcPeer(bridge, self._outbox, operator=operator)
        self._numbers = itertools.count(1)
        self.audience: JsonValue = AUDIENCE
        """On whose behalf it calls: an object, or a token."""
        self.private: list[bool] = []
        """Of each line in the order in which it was received, whether something private is in it."""
        self._answers: dict[int, tuple[int, JsonObject]] = {}
        self._changed = threading.Condition()
        self._lines = LineReader(self.reader_end)
        self._thread: threading.Thread | None = None

    def read(self) -> None:
        """From now on the host reads."""
        self._thread = threading.Thread(target=self._take, name="far end")
        self._thread.start()

    def _take(self) -> None:
        for line in self._lines:
            assert isinstance(line, bytes)
            message: JsonObject = json.loads(line)
            number = message["id"]
            assert isinstance(number, int)
            with self._changed:
                self._answers[number] = len(self.private), message
                self.private.append(SECRET.encode() in line)
                self._changed.notify_all()

    def send(self, method: str, params: JsonObject) -> int:
        number = next(self._numbers)
        line = json.dumps({"jsonrpc": "2.0", "id": number, "method": method, "params": params})
        self._peer.receive(line.encode())
        return number

    def answer(self, number: int) -> tuple[int, JsonObject]:
        """The place in the order of received lines, and the line."""

        with self._changed:
            assert self._changed.wait_for(lambda: number in self._answers, 30)
            return self._answers.pop(number)

    def ask(self, method: str, params: JsonObject) -> JsonObject:
        return self.answer(self.send(method, params))[1]

    def save(self, text: str, request_id: str | None = None) -> int:
        arguments = {**remembering(text), "requestId": request_id or str(uuid.uuid4())}
        return self.call("knowledge_remember", arguments)

    def look(self) -> int:
        arguments: JsonObject = {"kind": "claim"}
        return self.call("knowledge_records", arguments)

    def call(self, tool: str, arguments: JsonObject) -> int:
        """Begin a call of the conversation."""
        return self.send("tools.call", {"tool": tool, "arguments": arguments, "audience": self.audience})

    def grant(self, access: str = "read-save") -> None:
        given: JsonObject = {"agent": "main", "sessionKey": KEY, "access": access}
        assert "result" in self.ask("access.grants.set", given)

    def answered(self, number: int) -> bool:
        with self._changed:
            return number in self._answers

    def revoke(self) -> int:
        return self.send("access.grants.remove", {"agent": "main", "sessionKey": KEY})

    def close(self) -> None:
        self._outbox.close()
        os.close(self._writer_end)
        if self._thread is not None:
            self._thread.join()
        os.close(self.reader_end)
        self._lines.close()


def code(message: JsonObject) -> object:
    error = message.get("error")
    assert isinstance(error, dict), sorted(message)
    data = error["data"]
    assert isinstance(data, dict)
    return data["code"]


def claims(bridge: KnowledgeBridge) -> set[str]:
    found = bridge.call("knowledge_records", {"kind": "claim", "limit": 100}, MAIN)["records"]
    assert isinstance(found, list)
    return {str(row["text"]) for row in found if isinstance(row, dict)}


@pytest.fixture
def bridge(tmp_path: Path) -> Iterator[KnowledgeBridge]:
    with open_bridge(tmp_path) as opened:
        remember(opened, f"{SECRET} is private.", 1)
        yield opened


@pytest.fixture
def host(bridge: KnowledgeBridge) -> Iterator[Host]:
    made = Host(bridge)
    made.read()
    yield made
    made.close()


class Paused:
    def __init__(self, point: str) -> None:
        self.point = point
        self.reached = threading.Event()
        self.go_on = threading.Event()

    def __call__(self, point: str) -> None:
        if point == self.point and not self.reached.is_set():
            self.reached.set()
            assert self.go_on.wait(30)


BEFORE = ["stage.file.write", "stage.file.write.after"]
INSIDE = ["accept.commit", "accept.commit.after", "place.file", "place.file.after", "settle.commit"]


@pytest.mark.parametrize("point", BEFORE)
def test_a_save_that_stood_before_its_commit_when_the_grant_was_revoked_never_happens(
    bridge: KnowledgeBridge, host: Host, point: str
) -> None:
    host.grant()
    paused = Paused(point)
    with faults.installed(paused):
        saving = host.save("Too late.")
        assert paused.reached.wait(20)
        assert "result" in host.answer(host.revoke())[1]
        paused.go_on.set()
        assert code(host.answer(saving)[1]) in CODES
    assert claims(bridge) == {f"{SECRET} is private."}


@pytest.mark.parametrize("point", INSIDE)
def test_a_revocation_is_answered_after_a_save_that_it_met_inside_the_commit_and_its_answer_never_leaves(
    bridge: KnowledgeBridge, host: Host, point: str
) -> None:
    host.grant()
    paused = Paused(point)
    with faults.installed(paused):
        saving = host.save("In time.")
        assert paused.reached.wait(20)
        revoking = host.revoke()
        eventually(lambda: not granted(bridge))
        assert not host.answered(revoking)
        paused.go_on.set()
        place, message = host.answer(revoking)
        assert "result" in message
        after = claims(bridge)
        answered, told = host.answer(saving)
        assert "error" in told or answered < place
    assert claims(bridge) == after == {f"{SECRET} is private.", "In time."}


def granted(bridge: KnowledgeBridge) -> bool:
    """Whether the view that is in force gives the conversation the private partition."""
    found = bridge._runtime.gate.resolve(CHAT, write=False)
    return not isinstance(found, Unbound) and found.partition.session_id is None


def test_without_the_fence_a_save_follows_the_answer_to_the_revocation(
    bridge: KnowledgeBridge, host: Host, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(PermitGate, "fence", lambda self, permit, unfinished=None: nullcontext())
    monkeypatch.setattr(PermitGate, "check", lambda self, permit, *, write: None)
    host.grant()
    paused = Paused(BEFORE[-1])
    with faults.installed(paused):
        saving = host.save("Too late.")
        assert paused.reached.wait(20)
        host.answer(host.revoke())
        paused.go_on.set()
        host.answer(saving)
    assert "Too late." in claims(bridge)


# --- the process died -------------------------------------------------------------------------------------------------

CHILD = """
import os, signal, sys, uuid
from pathlib import Path
from storage import faults
from tests.host_bridge.test_barrier import CHAT, KEY
from tests.kit.store import open_bridge, remembering, request_id

def kill(reached):
    if reached == "place.file":
        os.kill(os.getpid(), signal.SIGKILL)

with open_bridge(Path(sys.argv[1])) as bridge:
    bridge.ask("access.grants.set", {"agent": "main", "sessionKey": KEY, "access": "read-save"})
    bridge.call("knowledge_status", {}, CHAT)
    with faults.installed(kill):
        bridge.call("knowledge_remember", {**remembering("Accepted."), "requestId": request_id(2)}, CHAT)
"""


def killed_between_commit_and_rename(place: Path) -> None:
    child = subprocess.run(
        [sys.executable, "-P", "-c", textwrap.dedent(CHILD), str(place)],
        cwd=CHECKOUT, env={**os.environ, "PYTHONPATH": str(CHECKOUT)}, timeout=60, check=False,
    )  # fmt: skip
    assert child.returncode == -signal.SIGKILL


def on_disk(place: Path) -> int:
    """How many claims have their file, looked at from outside."""
    # Not a glob, which fails where a folder is taken back that a refused save had made.
    walked = os.walk(only_store(place).vault / "private" / "claims")
    return sum(name.endswith(".md") and not name.startswith(".") for _, _, names in walked for name in names)


def revoke(bridge: KnowledgeBridge) -> None:
    bridge.ask("access.grants.remove", {"agent": "main", "sessionKey": KEY})


def end_a_run(bridge: KnowledgeBridge) -> None:
    bridge.end_run("any")


def revoke_a_token(bridge: KnowledgeBridge) -> None:
    minted = bridge.ask("access.tokens.mint", {"audience": AUDIENCE})
    bridge.ask("access.tokens.revoke", {"id": minted["id"]})


@pytest.mark.parametrize("take_away", [revoke, end_a_run, revoke_a_token])
def test_a_closed_store_with_an_unsettled_journal_has_been_opened_when_the_revocation_returns(
    tmp_path: Path, take_away: Callable[[KnowledgeBridge], None]
) -> None:
    killed_between_commit_and_rename(tmp_path)
    assert on_disk(tmp_path) == 0
    with open_bridge(tmp_path) as bridge:
        take_away(bridge)
        assert on_disk(tmp_path) == 1, "finished before the answer"


def test_without_the_opening_the_save_would_appear_after_the_revocation_had_returned(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    killed_between_commit_and_rename(tmp_path)
    monkeypatch.setattr(AccessDesk, "_narrowed", lambda self, message: ())
    with open_bridge(tmp_path) as bridge:
        revoke(bridge)
        assert on_disk(tmp_path) == 0
        total(bridge)
        assert on_disk(tmp_path) == 1


def test_a_revocation_waits_for_a_save_that_was_accepted_and_could_not_be_put_in_place(
    bridge: KnowledgeBridge, host: Host
) -> None:
    host.grant()
    broken = threading.Event()
    broken.set()

    def fail(point: str) -> None:
        if point == "place.file" and broken.is_set():
            raise OSError(28, "No space left on device")

    with faults.installed(fail):
        assert "result" in host.answer(host.save("Accepted."))[1]
        revoking = host.revoke()
        eventually(lambda: not granted(bridge))
        assert on_disk(bridge.state_dir) == 1
        assert not host.answered(revoking)
        broken.clear()
        assert "result" in host.answer(revoking)[1]
        assert on_disk(bridge.state_dir) == 2


# --- answers ----------------------------------------------------------------------------------------------------------


def test_a_revocation_waits_for_a_slow_reader_that_holds_a_lease_and_nothing_private_follows(
    bridge: KnowledgeBridge, host: Host
) -> None:
    for number in range(2, 32):
        remember(bridge, f"{SECRET} {number} " + "is private, every word of it. " * 20, number)
    host.grant()
    slow = Host(bridge, patience=60, small=True)
    try:
        asked = [slow.look() for _ in range(8)]
        gate = bridge._runtime.gate
        eventually(lambda: bool(gate._inside))
        revoking = host.revoke()
        eventually(lambda: not granted(bridge))
        assert not host.answered(revoking)
        slow.read()
        assert "result" in host.answer(revoking)[1]
        for number in asked:
            slow.answer(number)
        private = list(slow.private)
        assert private == sorted(private, reverse=True), "what was handed over came first, then refusals"
        assert private[0]
        assert not private[-1]
        assert not slow.private[slow.answer(slow.look())[0]]
    finally:
        slow.close()


def test_a_revocation_that_cannot_end_in_time_says_so_and_has_closed_the_grant(
    bridge: KnowledgeBridge, host: Host, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert authority.BARRIER_SECONDS == 10.0
    monkeypatch.setattr(authority, "BARRIER_SECONDS", 0.1)
    host.grant()
    gate = bridge._runtime.gate
    held = gate.resolve(CHAT, write=False)
    assert not isinstance(held, Unbound)
    with gate.lease(held):
        refusal = host.answer(host.revoke())[1]
        assert code(refusal) == "revocation_pending"
        error = refusal["error"]
        assert isinstance(error, dict)
        assert isinstance(error["data"], dict)
        assert error["data"]["retry"] == "safe"
        assert not granted(bridge), "closed to new permits"
        assert code(host.answer(host.revoke())[1]) == "revocation_pending", "still not claimed"
        assert "result" in host.ask("access.grants.list", {"agent": "main"}), "the authority is not blocked"
    assert "result" in host.answer(host.revoke())[1]


# --- all at once ------------------------------------------------------------------------------------------------------


ROUNDS_OF_A_SESSION = 10
"""A conversation's own partition is scanned by each of its reads: one that took in what 32 threads save whenever there
is no grant would make every further round longer."""


def hammered(bridge: KnowledgeBridge, host: Host, rounds: int) -> list[str]:
    """What went wrong while 32 threads wrote and read and another granted and revoked; and that something happened."""
    stop = threading.Event()
    wrong: list[str] = []
    seen_private = 0
    longest = 0.0

    def work(number: int) -> None:
        for turn in itertools.count():
            if stop.is_set():
                return
            writes = number % 4 == 0 and turn % 2 == 0
            host.answer(host.save(f"From {number} in turn {turn}.") if writes else host.look())

    with ThreadPoolExecutor(32) as pool:
        working = [pool.submit(work, number) for number in range(32)]
        try:
            start = 0
            for turn in range(rounds):
                if turn % ROUNDS_OF_A_SESSION == 0:
                    host.audience = {**AUDIENCE, "sessionId": str(uuid.uuid4())}
                host.grant()
                host.answer(host.look())
                began = time.monotonic()
                place, message = host.answer(host.revoke())
                longest = max(longest, time.monotonic() - began)
                if "result" not in message:
                    wrong.append(f"not revoked: {code(message)}")
                before = on_disk(bridge.state_dir)
                for asked in [host.look() for _ in range(3)]:
                    host.answer(asked)
                if on_disk(bridge.state_dir) != before:
                    wrong.append("a save followed the revocation")
                if any(host.private[place + 1 :]):
                    wrong.append("private bytes followed the revocation")
                seen_private += any(host.private[start:place])
                start = len(host.private)
        finally:
            stop.set()
        for worker in working:
            worker.result(60)
    print(
        f"{rounds} revocations, {len(host.private)} answers of which {sum(host.private)} private, "
        f"{on_disk(bridge.state_dir)} private saves, the longest revocation {longest:.2f} s"
    )
    assert seen_private, "nothing private was ever read"
    assert on_disk(bridge.state_dir) > 1, "nothing private was ever saved"
    return wrong


@pytest.mark.parametrize("rounds", [8, pytest.param(30, marks=pytest.mark.slow)])
def test_of_32_threads_not_one_save_and_not_one_private_byte_follows_a_revocation(
    bridge: KnowledgeBridge, host: Host, rounds: int
) -> None:
    assert hammered(bridge, host, rounds) == []


@pytest.mark.exhaustive
@pytest.mark.timeout(3600)
def test_of_32_threads_not_one_save_and_not_one_private_byte_follows_a_thousand_revocations(
    bridge: KnowledgeBridge, host: Host
) -> None:
    assert hammered(bridge, host, 1000) == []

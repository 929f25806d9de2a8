"""Every kind of save and of read under a grant, stopped or broken at any fault point that it passes."""

from __future__ import annotations

import hashlib
import os
import threading
import uuid
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, TypeAlias

import apsw

from host_bridge.bridge import KnowledgeBridge
from messages.json_types import JsonObject, JsonValue
from storage import faults
from storage.evidence import PARTIAL_NAME
from tests.host_bridge.test_barrier import SECRET, Host, granted
from tests.kit.actors import eventually
from tests.kit.sources import chunk
from tests.kit.store import MAIN, items_of, only_store, open_bridge, remembering

BYSTANDERS: Final = ("authority", "maintenance", "git queue", "file sync", "watcher", "outbox", "auditor")
"""Threads that no call waits for."""

KEPT: Final = ("publication", "history", "record", "upload")
"""Tables of a store that say what was saved."""


@dataclass(frozen=True, slots=True)
class Moment:
    """The ``number``-th time that a call passes a point; ``inside``: while it holds the commit fence; ``lane``: on the
    lane's thread, not on that of a helper that it waits for."""

    point: str
    number: int
    inside: bool
    lane: bool = True


@dataclass(slots=True)
class World:
    """One runtime with a private partition, a host at the far end of a pipe, and a conversation to grant it to."""

    bridge: KnowledgeBridge
    host: Host
    numbers: Counter[str] = field(default_factory=Counter)

    # --- what is there -----------------------------------------------------------------------------------

    def visible(self) -> Seen:
        """The files that a reader of the private partition can see, and how much the database says was saved."""
        return visible(self.bridge.state_dir)

    def fenced(self) -> bool:
        """Whether somebody is inside the commit fence now."""
        return any(write for _, write in [*self.bridge._runtime.gate._inside.values()])

    # --- calls -------------------------------------------------------------------------------------------

    def send(self, tool: str, arguments: JsonObject) -> int:
        """Begin a call of the conversation."""
        return self.host.call(tool, arguments)

    def own(self, tool: str, **arguments: JsonValue) -> JsonObject:
        """The same for the owner, answered; a write gets its request id."""
        return self.bridge.call(f"knowledge_{tool}", arguments, MAIN)

    def unique(self, what: str) -> str:
        self.numbers[what] += 1
        return f"{what} {self.numbers[what]}"

    def vault(self) -> JsonObject:
        status = self.own("status")
        return {
            "expectedVaultId": status["vaultId"],
            "expectedOntologyFingerprint": status["ontologyFingerprint"],
        }

    def page(self) -> JsonObject:
        """The fences of a new page."""
        made = self.own(
            "save_page", requestId=str(uuid.uuid4()), title=self.unique("Page"), type="project", body=f"{SECRET} here."
        )
        return {"id": made["id"], "expectedRevision": made["revision"], "expectedHash": made["hash"]}

    def claim(self) -> tuple[JsonObject, JsonObject]:
        """The fences of a new claim, and evidence that a write can cite."""
        request_id = str(uuid.uuid4())
        given = remembering(self.unique(f"{SECRET} in claim"))
        [item] = items_of(self.own("remember", **given, requestId=request_id))
        text = str(given["excerpt"])
        evidence: JsonObject = {
            "path": f"artifacts/{request_id}/excerpt.txt",
            "sha256": hashlib.sha256(text.encode()).hexdigest(),
        }
        return {"id": item["id"], "expectedRevision": item["revision"], "expectedHash": item["hash"]}, evidence

    def forget_answers(self) -> None:
        """Let the list of received lines not grow with the number of cases."""
        del self.host.private[:]

    # --- one case ----------------------------------------------------------------------------------------

    def trace(self, tool: str, arguments: JsonObject) -> list[Moment]:
        """Run a call to its end; every moment that it passes, in order."""
        moments: list[Moment] = []
        passed: Counter[str] = Counter()

        def note(point: str) -> None:
            if serves():
                passed[point] += 1
                lane = threading.current_thread().name.endswith("/lane")
                moments.append(Moment(point, passed[point], self.fenced(), lane))

        with faults.installed(note):
            self.host.answer(self.send(tool, arguments))
        return moments

    @contextmanager
    def stopped(self, tool: str, arguments: JsonObject, moment: Moment) -> Iterator[tuple[int, threading.Event] | None]:
        """Begin a call and let it stand at a moment until the event is set; ``None`` if it ended without coming by."""
        reached, go_on = threading.Event(), threading.Event()
        left = [moment.number]

        def stand(point: str) -> None:
            if point != moment.point or not serves() or reached.is_set():
                return
            left[0] -= 1
            if not left[0]:
                reached.set()
                assert go_on.wait(60)

        try:
            with faults.installed(stand):
                calling = self.send(tool, arguments)
                eventually(lambda: reached.is_set() or self.host.answered(calling), 30)
                if reached.is_set():
                    yield calling, go_on
                else:
                    self.host.answer(calling)
                    yield None
        finally:
            go_on.set()

    def breaks(self, tool: str, arguments: JsonObject, moment: Moment, error: Exception) -> bool:
        """Run a call that meets an error at a moment, to its answer; false if it ended without coming by."""
        left = [moment.number]

        def fail(point: str) -> None:
            if point == moment.point and serves() and left[0]:
                left[0] -= 1
                if not left[0]:
                    raise error

        with faults.installed(fail):
            self.host.answer(self.send(tool, arguments))
        return not left[0]

    def revoke_meanwhile(self, go_on: threading.Event) -> tuple[int, JsonObject, bool]:
        """Revoke while a call stands; the place and the text of the answer, and whether it came at once.

        The call goes on only where the revocation waits for it.
        """
        revoking = self.host.revoke()
        # Whatever the revocation does at once is done when the authority has answered the next question.
        assert "result" in self.host.ask("access.grants.list", {"agent": "main"})
        assert not granted(self.bridge)
        at_once = self.host.answered(revoking)
        if not at_once:
            go_on.set()
        return *self.host.answer(revoking), at_once

    def rest(self) -> None:
        """Everything that was begun is over: the lane has answered a later question, and nothing is pending."""
        eventually(lambda: not self.own("status").get("pending"), 30)


def serves() -> bool:
    """Whether this thread works for the call: the lane, or a helper that it waits for."""
    name = threading.current_thread().name
    return "store " in name and not name.endswith(BYSTANDERS)


Seen: TypeAlias = tuple[dict[str, tuple[int, int, int]], dict[str, int]]
"""Inode, size and time of change of each file by its path, and the number of rows by table."""


def visible(state_dir: Path) -> Seen:
    """What a save adds to: the files of the private partition that are no staged ones, and the rows of a store."""
    store = only_store(state_dir)
    files: dict[str, tuple[int, int, int]] = {}
    # Not a glob, which fails where a folder is taken back that a refused save had made.
    for folder, _, names in os.walk(store.vault / "private"):
        for name in names:
            if name == PARTIAL_NAME or not name.startswith("."):
                path = f"{folder}/{name}"
                status = os.stat(path)
                files[path] = status.st_ino, status.st_size, status.st_mtime_ns
    # Through the runtime's own library: a second SQLite in one process would drop the first one's locks.
    with closing(apsw.Connection(str(store.state_database), flags=apsw.SQLITE_OPEN_READONLY)) as connection:
        connection.set_busy_timeout(5_000)
        rows = {name: int(str(connection.execute(f'SELECT count(*) FROM "{name}"').get)) for name in KEPT}
    return files, rows


@contextmanager
def inhabited(state_dir: Path) -> Iterator[World]:
    """A world whose owner has saved something private."""
    with open_bridge(state_dir) as bridge:
        host = Host(bridge)
        host.read()
        world = World(bridge, host)
        world.claim()
        try:
            yield world
        finally:
            host.close()


Prepare = Callable[[World], tuple[str, JsonObject]]


def _remember(world: World) -> tuple[str, JsonObject]:
    return "knowledge_remember", {**remembering(world.unique("Said")), "requestId": str(uuid.uuid4())}


def _new_page(world: World) -> tuple[str, JsonObject]:
    title = world.unique("Made")
    return "knowledge_save_page", {"requestId": str(uuid.uuid4()), "title": title, "type": "project", "body": "It."}


def _rewritten_page(world: World) -> tuple[str, JsonObject]:
    fences = world.page()
    title = world.unique("Renamed")
    return "knowledge_save_page", {
        **fences, "requestId": str(uuid.uuid4()), "title": title, "type": "project", "body": "Other.",
    }  # fmt: skip


def _edited_body(world: World) -> tuple[str, JsonObject]:
    return "knowledge_edit_body", {
        **world.vault(), **world.page(), "requestId": str(uuid.uuid4()), "start": 0, "end": 0, "replacement": "First. ",
        "reason": "a test",
    }  # fmt: skip


def _withdrawal(world: World) -> tuple[str, JsonObject]:
    fences, _ = world.claim()
    vault = world.vault()
    return "knowledge_withdraw", {
        **fences, "expectedVaultId": vault["expectedVaultId"], "requestId": str(uuid.uuid4()), "reason": "a test",
    }  # fmt: skip


def _merge(world: World) -> tuple[str, JsonObject]:
    return "knowledge_merge", {
        **world.vault(), "requestId": str(uuid.uuid4()), "source": world.page(), "destination": world.page(),
        "reason": "the same",
    }  # fmt: skip


def _correction(world: World) -> tuple[str, JsonObject]:
    fences, evidence = world.claim()
    replacement: JsonObject = {
        "kind": "claim", "body": world.unique("Right"), "claim_kind": "fact", "assertion_origin": "source",
        "attribution": "a test", "evidence": [evidence],
    }  # fmt: skip
    return "knowledge_correct", {
        **world.vault(), **fences, "requestId": str(uuid.uuid4()), "reason": "a test", "replacement": replacement,
    }  # fmt: skip


def _attached(world: World) -> tuple[str, JsonObject]:
    world.claim()  # so that there is something to take over first
    world.numbers["upload"] += 1
    data = f"{world.numbers['upload']}: an original\n".encode()
    return "knowledge_attach", chunk(world.numbers["upload"], 0, data, final=True)


def _further_chunk(world: World) -> tuple[str, JsonObject]:
    world.numbers["upload"] += 1
    number = world.numbers["upload"]
    world.own("attach", **chunk(number, 0, b"begun, "))
    return "knowledge_attach", chunk(number, 7, b"and gone on with")


SAVES: Final[dict[str, Prepare]] = {
    "remember": _remember,
    "a new page": _new_page,
    "a rewritten page": _rewritten_page,
    "an edited body": _edited_body,
    "a withdrawal": _withdrawal,
    "a merge": _merge,
    "a correction": _correction,
    "an original": _attached,
    "a further chunk": _further_chunk,
}


def _listed(world: World) -> tuple[str, JsonObject]:
    return "knowledge_records", {"kind": "claim"}


def _found(world: World) -> tuple[str, JsonObject]:
    world.claim()  # so that the index has something to catch up with
    return "knowledge_grep", {"query": SECRET}


def _read(world: World) -> tuple[str, JsonObject]:
    fences, _ = world.claim()
    return "knowledge_record", {"id": fences["id"], "includeEvidence": True}


def _passage(world: World) -> tuple[str, JsonObject]:
    fences, evidence = world.claim()
    return "knowledge_evidence_read", {"id": fences["id"], **evidence}


def _past(world: World) -> tuple[str, JsonObject]:
    fences, _ = world.claim()
    rows = world.own("history", id=fences["id"])["rows"]
    assert isinstance(rows, list)
    assert isinstance(rows[0], dict)
    return "knowledge_revision", {"id": fences["id"], "sequence": rows[0]["sequence"]}


READS: Final[dict[str, Prepare]] = {
    "a list": _listed,
    "a search": _found,
    "a record": _read,
    "a passage": _passage,
    "an old text": _past,
}

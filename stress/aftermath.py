"""What a store says of itself when everybody has left, through its doors and in the vault's files, for the judges."""

from __future__ import annotations

import hashlib
import re
import subprocess
import time
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from messages.json_types import JsonObject, JsonValue
from stress.clients import Client, audience
from stress.doors import SocketDoor
from stress.ledger import Caller, Operation

SETTLE_ATTEMPTS: Final = 40
SETTLE_SECONDS: Final = 45.0
IDLE_SECONDS: Final = 30.0
ASK_SECONDS: Final = 20.0
REPOSITORY_SECONDS: Final = 30.0
_ID: Final = re.compile(rb'^id: "?([0-9a-f-]{36})"?$', re.MULTILINE)
_HIDDEN: Final = re.compile(rb'^lifecycle: "?(?:withdrawn|merged)\b', re.MULTILINE)
_SURROGATES: Final = 48_000


@dataclass(frozen=True, slots=True)
class Row:
    """One row of a partition's history."""

    sequence: int
    request_id: str | None
    record: str | None
    content: str | None
    actor: str


@dataclass(frozen=True, slots=True)
class OnDisk:
    """One record file as it lies in the vault."""

    record: str
    content: str
    text: bytes


class Unsettled(Exception):
    """The store did not answer after the run: the judges have nothing to judge by."""


class Inspector:
    """Asks after the run, with patience for a store that is being restarted."""

    def __init__(self, door: SocketDoor) -> None:
        self._door = door

    def ask(self, method: str, params: JsonObject) -> JsonObject:
        """The answer, which must come."""
        until = time.monotonic() + SETTLE_SECONDS
        outcome = self._door.ask(method, params, patience=ASK_SECONDS)
        while outcome.code == "ok" or time.monotonic() < until:
            if outcome.code == "ok":
                assert outcome.result is not None
                return outcome.result
            if outcome.retry not in ("safe", "unknown"):
                raise Unsettled(f"{method} answers {outcome.code}: {outcome.message}")
            time.sleep(max(outcome.retry_after, 0.25))
            outcome = self._door.ask(method, params, patience=ASK_SECONDS)
        raise Unsettled(f"{method} still answers {outcome.code}")

    def call(self, tool: str, arguments: JsonObject, caller: Caller) -> JsonObject:
        return self.ask("tools.call", {"tool": tool, "arguments": arguments, "audience": audience(caller)})

    def history(self, caller: Caller) -> list[Row]:
        """A whole partition's history, oldest first."""
        rows = [
            Row(
                _number(row.get("sequence")),
                _text(row.get("requestId")),
                _text(row.get("id")),
                _text(row.get("hash")),
                str(row.get("actor")),
            )
            for row in self._pages("knowledge_history", {"limit": 100}, caller, "rows")
        ]
        return sorted(rows, key=lambda row: row.sequence)

    def records(self, caller: Caller) -> set[tuple[str, str]]:
        """Id and the first 16 characters of the hash of every record that is listed."""
        arguments: JsonObject = {"limit": 100, "lifecycle": "all"}
        rows = self._pages("knowledge_records", arguments, caller, "records")
        return {(str(row["id"]), str(row["hash"])[:16]) for row in rows}

    def revision(self, caller: Caller, record: str, sequence: int) -> str:
        """The text of one revision."""
        parts, offset = [], 0
        while True:
            arguments: JsonObject = {"id": record, "sequence": sequence, "offset": offset, "maxChars": _SURROGATES}
            answer = self.call("knowledge_revision", arguments, caller)
            parts.append(str(answer.get("content", answer.get("text", ""))))
            if not isinstance(answer.get("nextOffset"), int):
                return "".join(parts)
            offset = _number(answer["nextOffset"])

    def found(self, caller: Caller, word: str) -> set[str]:
        """Ids of the records that a search for one word finds."""
        answer = self.call("knowledge_grep", {"query": word, "limit": 50, "lifecycle": "all"}, caller)
        hits = answer.get("hits")
        return {str(hit["id"]) for hit in hits if isinstance(hit, dict)} if isinstance(hits, list) else set()

    def idle(self, caller: Caller) -> JsonObject:
        """Status once nothing is pending: no publication, no checkpoint. Raises :class:`Unsettled`."""
        until = time.monotonic() + IDLE_SECONDS
        while True:
            status = self.call("knowledge_status", {}, caller)
            publications, git = status.get("publications"), status.get("git")
            unfinished = publications.get("pending") if isinstance(publications, dict) else 0
            behind = git.get("pending") if isinstance(git, dict) else 0
            if not unfinished and not behind:
                return status
            if time.monotonic() >= until:
                raise Unsettled(f"the store does not come to rest: publications {publications}, Git {git}")
            time.sleep(0.25)

    def _pages(self, tool: str, arguments: JsonObject, caller: Caller, key: str) -> Iterator[JsonObject]:
        more: JsonObject = {}
        while True:
            answer = self.call(tool, {**arguments, **more}, caller)
            rows = answer.get(key)
            if isinstance(rows, list):
                yield from (row for row in rows if isinstance(row, dict))
            following = answer.get("nextOffset")
            if not isinstance(following, int):
                return
            more = {"offset": following}
            if tool != "knowledge_history" and isinstance(answer.get("snapshot"), str):
                more["snapshot"] = answer["snapshot"]


def settle(client: Client, door: SocketDoor, operations: Sequence[Operation]) -> None:
    """Send every write that may have run once more, until it is answered for good; the ledger notes each answer."""
    until = time.monotonic() + SETTLE_SECONDS
    for operation in operations:
        if operation.request_id is None or operation.code == "ok" or operation.retry not in ("safe", "unknown"):
            continue
        for _ in range(SETTLE_ATTEMPTS):
            _, outcome = client.call(door, operation.caller, operation.tool, operation.arguments)
            if outcome.code == "ok" or outcome.retry == "never" or time.monotonic() >= until:
                break
            time.sleep(max(outcome.retry_after, 0.1))


def on_disk(folder: Path) -> list[OnDisk]:
    """Every record file below a partition's folder."""
    found = []
    for path in sorted(folder.rglob("*.md")):
        if any(part.startswith(".") for part in path.relative_to(folder).parts):
            continue
        text = path.read_bytes()
        record = _ID.search(text)
        if record is not None:
            found.append(OnDisk(record[1].decode(), hashlib.sha256(text).hexdigest(), text))
    return found


def record_at(path: Path) -> str | None:
    """The id of the record in a file."""
    found = _ID.search(path.read_bytes())
    return None if found is None else found[1].decode()


def searchable(files: Sequence[OnDisk]) -> dict[str, set[str]]:
    """Words that one text has alone, each with the records that a search for it must find."""
    found = defaultdict[str, set[str]](set)
    for file in files:
        if _HIDDEN.search(file.text.partition(b"\n---\n")[0]):
            continue  # "all" are the active and the superseded ones: what was withdrawn or merged no search shows
        body = file.text.partition(b"\n---\n")[2].decode("utf-8", "replace")
        for word in body.replace(",", " ").replace(".", " ").split():
            if len(word) == 16 and all(character in "0123456789abcdef" for character in word):
                found[word].add(file.record)
    return found


def repository_problem(vault: Path, environment: Mapping[str, str], seconds: float = REPOSITORY_SECONDS) -> str | None:
    """What ``git fsck`` and ``git status`` object to, None when both are content. They get a while to come to rest."""
    until = time.monotonic() + seconds
    while (problem := _objection(vault, environment)) is not None and time.monotonic() < until:
        time.sleep(1.0)
    return problem


def _objection(vault: Path, environment: Mapping[str, str]) -> str | None:
    for command in (["fsck", "--full", "--strict", "--no-dangling"], ["status", "--porcelain", "--", "private"]):
        done = subprocess.run(
            ["git", *command], cwd=vault, env=dict(environment), capture_output=True, timeout=300, check=False
        )
        output = (done.stdout + (done.stderr if done.returncode else b"")).decode("utf-8", "replace").strip()
        if done.returncode != 0 or (command[0] == "status" and output):
            return f"git {command[0]}: {output.splitlines()[0] if output else done.returncode}"
    return None


def first_lines(items: Iterable[str], most: int = 3) -> str:
    """The first few of many, for a report."""
    shown = list(items)
    return "".join(f"; {item}" for item in shown[:most])


def _number(value: JsonValue) -> int:
    assert isinstance(value, int)
    return value


def _text(value: JsonValue) -> str | None:
    return value if isinstance(value, str) and value else None  # a removal has an empty hash

"""The clients of a run: each a thread that calls through its doors, one call after another, and notes every answer."""

from __future__ import annotations

import hashlib
import json
import random
import re
import threading
import time
import uuid
from collections import deque
from collections.abc import Sequence
from typing import Final

from messages.json_types import JsonObject, JsonValue
from stress.doors import Door, Outcome, ToolCall
from stress.ledger import UNIQUE, Caller, Ledger, Operation, Receipt, Sight
from stress.scripts import ABOUT_A_REQUEST, Script, Seen, Shelf, is_method

DEADLINE_SECONDS: Final = 10.0
PATIENCE_SECONDS: Final = 20.0
PROCESS_PATIENCE_SECONDS: Final = 60.0
"""For doors that may have to start an interpreter first, on a machine with much else to do."""
LONGEST_PAUSE_SECONDS: Final = 5.0
REPEATED_MAX: Final = 40
SECRET: Final = re.compile(r"secret-[0-9a-f]{12}")
_TIGHT: Final = 0.03
_REPEAT: Final = 0.03
_CANCEL: Final = 0.02
_VANISH: Final = 0.004


class Client:
    """One client: for each call it chooses a door and on whose behalf it speaks."""

    def __init__(
        self,
        name: str,
        ledger: Ledger,
        *,
        seed: str,
        doors: Sequence[tuple[Door, int]],
        callers: Sequence[tuple[Caller, Shelf]],
    ) -> None:
        """``doors`` with their weights. Only the first may speak for a conversation."""
        self.name = name
        self.calls = 0
        self.asking: Caller | None = None
        """On whose behalf a call is under way. Any thread may look."""
        self._ledger = ledger
        self._chance = random.Random(seed)
        self._doors = [door for door, _ in doors]
        self._weights = [weight for _, weight in doors]
        self._callers = [caller for caller, _ in callers]
        self._shelves = dict(callers)
        self._scripts = {caller: Script(self._chance, shelf) for caller, shelf in callers}
        self._sent = deque[tuple[Caller, str, JsonObject]](maxlen=REPEATED_MAX)

    def run(self, stop: threading.Event, most: int | None = None) -> None:
        """Call until told to stop, ``most`` times at the most."""
        while not stop.is_set() and (most is None or self.calls < most):
            outcome = self.turn()
            self.calls += 1
            # A client that is told when to come back comes back then; hammering a closed door measures nothing.
            closed = outcome.code in ("lost", "stopping", "quarantined")
            pause = 0.5 if closed else min(outcome.retry_after, LONGEST_PAUSE_SECONDS)
            if pause:
                stop.wait(pause)

    def turn(self) -> Outcome:
        """One call."""
        chance = self._chance
        caller = chance.choices(self._callers, [3, *[1] * (len(self._callers) - 1)])[0]
        private = caller.conversation is None
        door = chance.choices(self._doors, self._weights)[0] if private else self._doors[0]
        if self._sent and chance.random() < _REPEAT:
            caller, tool, arguments = chance.choice(self._sent)
            door = self._doors[0]
        else:
            tool, arguments = self._scripts[caller].next()
            if _writes(tool, arguments):
                self._sent.append((caller, tool, arguments))
        if is_method(tool):
            door = self._doors[0]
        tight = chance.random() < _TIGHT
        deadline = chance.choice((0.002, 0.01, 0.05)) if tight else DEADLINE_SECONDS
        cancel_after = chance.random() * 0.01 if chance.random() < _CANCEL else None
        operation, outcome = self.call(door, caller, tool, arguments, deadline=deadline, cancel_after=cancel_after)
        self._learn(self._shelves[caller], operation, outcome, arguments)
        if outcome.code == "stale_fence" and isinstance(arguments.get("id"), str):
            self._scripts[caller].overtaken(str(arguments["id"]))
        if chance.random() < _VANISH:
            door.leave()
        return outcome

    def call(
        self,
        door: Door,
        caller: Caller,
        tool: str,
        arguments: JsonObject,
        *,
        deadline: float = DEADLINE_SECONDS,
        cancel_after: float | None = None,
    ) -> tuple[Operation, Outcome]:
        """One call, noted. Only the socket tells the owner of the deadline."""
        self.asking = caller
        began = time.monotonic()
        outcome = door.call(
            ToolCall(
                tool,
                arguments,
                audience(caller),
                deadline_ms=max(1, round(deadline * 1000)),
                patience=PATIENCE_SECONDS if door.name == "socket" else PROCESS_PATIENCE_SECONDS,
                cancel_after=cancel_after,
            )
        )
        ended = time.monotonic()
        self.asking = None
        result = outcome.result
        operation = Operation(
            number=self._ledger.number(),
            client=self.name,
            door=door.name,
            caller=caller,
            tool=tool,
            arguments=_kept(tool, arguments, outcome),
            began=began,
            ended=ended,
            deadline=began + deadline if door.name == "socket" else None,
            code=outcome.code,
            retry=outcome.retry,
            receipt=_receipt(result) if result is not None and _writes(tool, arguments) else None,
            sight=_sight(tool, arguments, outcome),
            secrets=frozenset(SECRET.findall(json.dumps(result))) if result is not None else frozenset(),
            place=outcome.place,
            cancelled=cancel_after is not None,
        )
        self._ledger.add(operation)
        return operation, outcome

    def _learn(self, shelf: Shelf, operation: Operation, outcome: Outcome, arguments: JsonObject) -> None:
        result = outcome.result
        if operation.sight is not None and operation.sight.content is None:
            shelf.forget(operation.sight.record)
        if result is None:
            return
        for key in ("ontologyFingerprint", "fingerprint"):
            if isinstance(result.get(key), str):
                shelf.fingerprint = str(result[key])
        if isinstance(result.get("vaultId"), str):
            shelf.vault_id = str(result["vaultId"])
        kind = _kind_of(operation.tool)
        if kind is not None:
            for written in written_records(result):
                shelf.learn(
                    Seen(
                        *written,
                        kind,
                        str(arguments.get("type", "")),
                        str(arguments.get("title", "")),
                    )
                )
            cited = arguments.get("evidence")
            if isinstance(cited, list) and cited and isinstance(cited[0], dict):
                for citing, _, _ in written_records(result)[:1]:
                    shelf.learn_citation(citing, cited[0])
        for hit in _rows(result.get("hits")):
            reference = hit.get("ref")
            if isinstance(reference, dict):
                shelf.learn_reference(dict(reference))
        for shown in _rows(result.get("rows")):
            match shown:
                case {"id": str(revised), "sequence": int(sequence)}:
                    shelf.learn_row(revised, sequence)
        evidence = result.get("evidence")
        if operation.tool == "knowledge_attach" and isinstance(evidence, dict):
            shelf.retain({key: evidence[key] for key in ("path", "sha256") if key in evidence})
        record = result.get("record")
        if isinstance(record, dict):
            shelf.learn(_seen(record))


def audience(caller: Caller) -> JsonObject:
    """The caller as the host protocol writes it."""
    if caller.conversation is None:
        return {"kind": "owner-private", "agent": caller.agent}
    session = str(uuid.uuid5(uuid.NAMESPACE_URL, f"{caller.agent}/{caller.conversation}"))
    return {
        "kind": "conversation",
        "agent": caller.agent,
        "sessionKey": caller.conversation,
        "sessionId": session,
    }


def written_records(receipt: JsonObject) -> list[tuple[str, int, str]]:
    """Id, revision and hash of each record that a receipt names."""
    rows: list[JsonValue] = [receipt]
    for key in ("items", "records"):
        found = receipt.get(key)
        if isinstance(found, list):
            rows.extend(found)
    rows.extend(receipt.get(key) for key in ("original", "replacement", "source", "destination"))
    return [
        (str(row["id"]), int(row["revision"]), str(row["hash"]))
        for row in rows
        if isinstance(row, dict)
        and isinstance(row.get("id"), str)
        and row["id"]
        and isinstance(row.get("revision"), int)
        and isinstance(row.get("hash"), str)
    ]


def _receipt(result: JsonObject) -> Receipt:
    # The Git commit of a write is made later: a repetition of the same answer names it.
    lasting = json.dumps({key: value for key, value in result.items() if key != "git"}, sort_keys=True)
    return Receipt(
        records=tuple(written_records(result)),
        nothing=result.get("state") in ("rejected", "conflict", "pending", "unchanged"),
        digest=hashlib.sha256(lasting.encode("utf-8", "surrogatepass")).hexdigest()[:16],
    )


def _writes(tool: str, arguments: JsonObject) -> bool:
    return "requestId" in arguments and tool not in ABOUT_A_REQUEST


def _kept(tool: str, arguments: JsonObject, outcome: Outcome) -> JsonObject:
    """All of them when the call may be sent again, and otherwise what the judges look at."""
    if tool in ABOUT_A_REQUEST:
        return {}
    if "requestId" in arguments and outcome.code != "ok" and outcome.retry in ("safe", "unknown"):
        return arguments
    return {key: arguments[key] for key in ("requestId", "id", "expectedHash") if key in arguments}


def _sight(tool: str, arguments: JsonObject, outcome: Outcome) -> Sight | None:
    match tool, outcome.result:
        case "memory.read", {"ref": {"id": str(record), "hash": str(content)}}:
            return Sight(record, content)
    if tool != "knowledge_record":
        return None
    match outcome.result:
        case {"record": None}:
            return Sight(str(arguments["id"]), None)
        case {"record": {"id": str(record), "hash": str(content), "kind": "page", "body": str(body)}}:
            return Sight(record, content, frozenset(UNIQUE.findall(body)))
        case {"record": {"id": str(record), "hash": str(content)}}:
            return Sight(record, content)
        case _:
            return None


def _rows(value: JsonValue) -> list[JsonObject]:
    return [row for row in value if isinstance(row, dict)] if isinstance(value, list) else []


def _seen(record: JsonObject) -> Seen:
    revision = record.get("revision")
    return Seen(
        str(record["id"]),
        revision if isinstance(revision, int) else 0,
        str(record["hash"]),
        str(record.get("kind", "")),
        str(record.get("type", "")),
        str(record.get("title", "")),
    )


def _kind_of(tool: str) -> str | None:
    match tool:
        case "knowledge_remember" | "knowledge_create_claim" | "knowledge_correct" | "knowledge_annotate":
            return "claim"
        case (
            "knowledge_save_page"
            | "knowledge_edit_body"
            | "knowledge_publish_batch"
            | "knowledge_recall"
            | "knowledge_reconcile_evidence"
        ):
            return "page"
        case _:
            return None

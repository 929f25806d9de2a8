"""``knowledge memory import``: the small memory's facts and notes as claims of a store, each with its evidence.

A category becomes a page, and what stands under it in ``MEMORY.md`` claims about that page; a note of a daily log
becomes a claim with its time. One ``knowledge_remember`` for up to twenty of them keeps their lines as evidence.

Nothing is doubled: which notes a batch holds stands in ``.imported.jsonl`` before it is sent, it is sent with the same
request id until its receipt is there, and the same batch has the same id even when that file is lost.
"""

from __future__ import annotations

import hashlib
import json
import os
import uuid
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, NamedTuple

from host_bridge.cli import exits, output
from host_bridge.cli.memory import opened
from host_bridge.cli.options import STATE_DIR, parse, state_dir
from host_bridge.cli.progress import progress
from host_bridge.owner.client import Connection, Lost, OwnerError, reach

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from host_bridge.knowledge_memory import KnowledgeMemory
    from messages.json_types import JsonObject, JsonValue

LEDGER_NAME: Final = ".imported.jsonl"
_OPTIONS: Final = {
    **STATE_DIR, "--dir": True, "--agent": True, "--facts-only": False, "--dry-run": False, "--json": False,
}  # fmt: skip
_NAMESPACE: Final = uuid.UUID("5f0d3c1e-8d7e-4a3c-9a64-0f3f7c2e6b10")
_ITEMS_MAX, _TEXT_MAX, _EXCERPT_MAX_BYTES, _TITLE_MAX = 20, 4_000, 15_000, 150
_REQUEST_SECONDS: Final = 60.0
_PREFERENCES: Final = ("preference", "preferences")


class Note(NamedTuple):
    """One thing to import; ``at`` is empty for what stands in ``MEMORY.md``."""

    category: str
    text: str
    at: str

    @property
    def key(self) -> str:
        """What it is known by in the ledger, which holds no text."""
        return hashlib.sha256("\0".join(self).encode("utf-8", "replace")).hexdigest()[:32]

    @property
    def line(self) -> str:
        """As it is quoted."""
        return f"- {f'[{self.at}] ({self.category}) ' if self.at else ''}{self.text}"


@dataclass(frozen=True, slots=True)
class Plan:
    """What there is: batches of notes that are sent together, what is too long, and what is imported already."""

    batches: list[list[Note]] = field(default_factory=list)
    too_long: list[Note] = field(default_factory=list)
    already: int = 0

    @property
    def categories(self) -> list[str]:
        """Those that get a page: of facts, in their order."""
        return list(dict.fromkeys(note.category for batch in self.batches for note in batch if not note.at))


def run(arguments: Sequence[str]) -> int:
    options = parse(arguments, _OPTIONS)
    compact, agent = options.has("--json"), options.get("--agent")
    with opened(options) as memory:
        notes = list(_notes(memory, facts_only=options.has("--facts-only")))
        place = os.path.join(memory.directory, LEDGER_NAME)
    if options.has("--dry-run"):
        plan = planned(notes, Ledger(place, None))
        return _report(plan, {"dryRun": True, "receipts": []}, compact)
    try:
        with progress(quiet=compact) as show:
            plan, receipts = _import(state_dir(options), agent, notes, place, show)
    except OwnerError as error:
        return output.failure(error, compact=compact)
    return _report(plan, {"dryRun": False, "receipts": receipts}, compact)


def _notes(memory: KnowledgeMemory, *, facts_only: bool) -> Iterator[Note]:
    facts = [
        Note(category or "general", content, "")
        for category, contents in memory.get_persistent_facts().items()
        for content in contents
    ]
    yield from facts
    if facts_only:
        return
    for entry in memory.get_recent_entries(days=1_000_000, limit=1_000_000_000):
        if not entry["persistent"]:
            yield Note(entry["category"] or "general", entry["content"].strip(), entry["timestamp"])


class Ledger:
    """Which notes which batch of which store holds. ``vault`` is ``None`` for any store."""

    def __init__(self, path: str, vault: str | None) -> None:
        self._path = path
        self._vault = vault
        self.begun: dict[str, list[str]] = {}
        self.done: set[str] = set()
        try:
            with open(path, encoding="utf-8") as file:
                lines = file.read().split("\n")
        except FileNotFoundError:
            return
        for line in lines:
            self._take(line)

    def _take(self, line: str) -> None:
        try:
            value = json.loads(line)
            if self._vault not in (None, value["vault"]):
                return
            batch = str(value["batch"])
            self.begun.setdefault(batch, [str(key) for key in value["notes"]])
            if value["done"]:
                self.done.add(batch)
        except (ValueError, KeyError, TypeError):  # torn by a crash: as if it were not there
            return

    def add(self, batch: str, keys: list[str], *, done: bool) -> None:
        """Durable when it returns."""
        value = {"vault": self._vault, "batch": batch, "notes": keys, "done": done}
        with open(self._path, "ab") as file:
            file.write(b"\n" + json.dumps(value).encode("ascii") + b"\n")
            file.flush()
            os.fsync(file.fileno())
        self.begun[batch] = keys
        if done:
            self.done.add(batch)


def planned(notes: Sequence[Note], ledger: Ledger) -> Plan:
    """What is left to send: first what was begun, in the batches of then."""
    by_key = {note.key: note for note in notes}
    plan = Plan()
    settled: set[str] = set()
    already = 0
    for batch, keys in ledger.begun.items():
        there = [by_key[key] for key in keys if key in by_key]
        if batch in ledger.done:
            already += len(there)
        elif len(there) == len(keys):
            plan.batches.append(there)
        else:
            continue  # some of it is no longer there: it cannot be asked for again
        settled.update(keys)
    group: list[Note] = []
    size = 0
    for key, note in by_key.items():
        if key in settled:
            continue
        if len(note.text) > _TEXT_MAX or not note.text.strip():
            plan.too_long.append(note)
            continue
        length = len(note.line.encode("utf-8", "replace")) + 1
        if group and (_source(note) != _source(group[0]) or len(group) == _ITEMS_MAX
                      or size + length > _EXCERPT_MAX_BYTES):  # fmt: skip
            plan.batches.append(group)
            group, size = [], 0
        group.append(note)
        size += length
    if group:
        plan.batches.append(group)
    return Plan(plan.batches, plan.too_long, already)


def _source(note: Note) -> tuple[str, str]:
    """What notes of one batch have in common: a category of ``MEMORY.md``, or a day's log."""
    return ("", note.at[:10]) if note.at else (note.category, "")


def _import(
    state: str, agent: str | None, notes: Sequence[Note], place: str, show: Callable[[Mapping[str, JsonValue]], None]
) -> tuple[Plan, list[JsonValue]]:
    connection = reach(state, {"caller": {} if agent is None else {"agent": agent}})
    try:
        vault = str(_call(connection, "knowledge_status", {}).get("vaultId"))
        ledger = Ledger(place, vault)
        plan = planned(notes, ledger)
        pages = {category: _page(connection, vault, category) for category in plan.categories}
        receipts: list[JsonValue] = []
        for number, batch in enumerate(plan.batches):
            show({"what": "importing", "done": number, "of": len(plan.batches)})
            arguments = _arguments(batch, pages)
            request = _request_id(vault, arguments)
            keys = [note.key for note in batch]
            ledger.add(_batch_id(keys), keys, done=False)
            answer = _call(connection, "knowledge_remember", {"requestId": request, **arguments})
            ledger.add(_batch_id(keys), keys, done=True)
            receipts.append({"requestId": request, "ids": _ids(answer)})
        return plan, receipts
    finally:
        connection.close()


def _ids(answer: JsonObject) -> list[JsonValue]:
    items = answer.get("items")
    return [one.get("id") for one in items if isinstance(one, dict)] if isinstance(items, list) else []


def _page(connection: Connection, vault: str, category: str) -> str:
    """The id of a category's page, which is made where there is none."""
    arguments: JsonObject = {
        "title": f"Agent memory: {category}"[:_TITLE_MAX],
        "type": "note",
        "body": f"What an agent remembered under {category}. The facts are the claims about this page.",
        "tags": ["agent-memory"],
    }
    answer = _call(
        connection, "knowledge_save_page", {"requestId": _request_id(vault, arguments), **arguments}
    )
    existing = answer.get("existing")
    found = existing.get("id") if isinstance(existing, dict) else answer.get("id")
    if not isinstance(found, str) or not found:
        raise OwnerError("invalid_argument", f"No page could be made for {category}: {answer.get('message')}", "never")
    return found


def _arguments(batch: Sequence[Note], pages: Mapping[str, str]) -> JsonObject:
    first = batch[0]
    where = f"the log of {first.at[:10]}" if first.at else f"MEMORY.md, {first.category}"
    items: list[JsonValue] = []
    for note in batch:
        item: JsonObject = {"text": note.text, "kind": "preference" if note.category in _PREFERENCES else "fact"}
        if note.at:
            item |= {"about": note.category[:300], "infer_subject": False, "occurred_at": note.at}
        else:
            item["subject"] = pages[note.category]
        items.append(item)
    return {
        "attribution": f"an agent's memory, {where}"[:500],
        "excerpt": "\n".join(note.line for note in batch),
        "items": items,
    }


def _batch_id(keys: Sequence[str]) -> str:
    return hashlib.sha256("".join(keys).encode("ascii")).hexdigest()[:32]


def _request_id(vault: str, arguments: JsonObject) -> str:
    return str(uuid.uuid5(_NAMESPACE, vault + json.dumps(arguments, sort_keys=True)))


def _call(connection: Connection, tool: str, arguments: JsonObject) -> JsonObject:
    params: JsonObject = {"tool": tool, "arguments": arguments, "deadlineMs": int(_REQUEST_SECONDS * 1000)}
    try:
        result = connection.request("tools.call", params, _REQUEST_SECONDS + 5.0)
    except (Lost, TimeoutError):
        raise OwnerError(
            "restarting", "The owner ended or does not answer; run the import again: it goes on.", "unknown"
        ) from None
    return result if isinstance(result, dict) else {}


def _report(plan: Plan, result: JsonObject, compact: bool) -> int:
    claims = sum(map(len, plan.batches))
    value: JsonObject = {
        **result,
        "pages": len(plan.categories),
        "claims": claims,
        "batches": len(plan.batches),
        "already": plan.already,
        "skipped": [{"category": note.category, "characters": len(note.text)} for note in plan.too_long],
    }
    if compact:
        output.emit(output.as_json(value, compact=True))
    else:
        verb = "Would import" if result["dryRun"] else "Imported"
        sent = f"{claims} claims in {len(plan.batches)} batches, with {len(plan.categories)} pages for their categories"
        lines = [f"{verb} {sent}; {plan.already} were imported before."]
        lines += [
            f"Left out: {note.category}, {len(note.text)} characters (a claim has 1 to {_TEXT_MAX})."
            for note in plan.too_long
        ]
        output.emit(output.told(lines))
    return exits.OK

"""A state directory with one store in use: both partitions, originals, outside edits; and how two are compared."""

from __future__ import annotations

import atexit
import base64
import hashlib
import itertools
import shutil
import tempfile
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path

from messages.errors import KnowledgeError
from messages.json_types import JsonObject, JsonValue
from messages.vocabulary import PRIVATE, Partition
from storage.grants import set_grant
from storage.layout import Layout, StoreLayout
from storage.registry import Isolated, Registry
from storage.registry_audit import By
from storage.session import StoreSession
from storage.state.connection import Database
from tests.kit.store import GROUP_PARTITION, VAULT_ID, Desk, request_id, write_note

AT = 1_790_000_000_000
BY = By("operator:local", "socket", AT)
READS: tuple[tuple[str, JsonObject], ...] = (
    ("status", {}),
    ("ontology", {"view": "definitions", "includeRecords": True}),
    ("ontology", {"view": "sources"}),
    ("ontology", {"view": "diagnostics"}),
    ("records", {"limit": 100}),
    ("records", {"lifecycle": "all", "limit": 100}),
    ("grep", {"query": "garden plan"}),
    ("grep", {"query": "robin", "mode": "any"}),
    ("lookup", {"query": "Garden Pilot"}),
    ("timeline", {"timeField": "recorded"}),
    ("chronicle_days", {"since": "2026-01-01", "until": "2026-12-31"}),
    ("chronicle_day", {"date": "2026-11-02"}),
    ("chronicle_due", {"asOf": "2026-11-02"}),
    ("history", {"limit": 100}),
    ("source_check", {"sources": [{"key": "plan.txt"}]}),
)
"""Reads that name no record; the others are asked of each record and each request, see :func:`answers`."""
_SITTINGS = itertools.count(1)


def make_house(base: Path) -> None:
    """One store of the agent main with a grant, and a configuration."""
    layout = Layout(base)
    registry = Registry.open(layout, at=AT)
    entry = registry.ensure(Isolated("main"), at=AT, by="main", new_id=lambda: uuid.UUID(VAULT_ID))
    _fill(entry.layout)
    registry.mark_made(VAULT_ID)
    registry.close()
    database = Database.open(layout.registry, point_prefix="registry")
    set_grant(database, "main", "chat:group:42", "read", BY)
    set_grant(database, "other", "chat:group:43", "read-save", BY)
    database.close()
    (base / "knowledge.yaml").write_text("agents: {list: [{id: main}]}\n")


def _fill(store: StoreLayout) -> None:
    StoreSession.create(store, VAULT_ID)
    (store.vault / "private" / "ontology.yaml").write_text(
        "format: knowledge-ontology-v1\nextends: core\npages:\n"
        "  plot: {description: A piece of ground, parent: entity, folder: plots}\n"
    )
    desk = Desk(store)
    page = desk.page("Garden Pilot", body="The garden plan of [[Robin Vale]].")
    desk.page("Robin Vale", "person", body="Keeps the garden.")
    desk.page("North bed", "plot", body="Beans.")
    desk.remember("Robin waters on Monday.", {"text": "Ship the plan.", "kind": "commitment", "due_at": "2026-11-05"})
    desk.remember("Said in the group: the garden plan is late.", partition=GROUP_PARTITION)
    desk.call("withdraw", {**desk.observed(page["id"]), "reason": "a test"} | desk.vault())
    desk.page("Garden Pilot", body="The second one.")
    desk.call("attach", attaching(b"The garden plan, whole.\n", final=True))
    desk.call("attach", attaching(b"The first half of ", final=False))
    write_note(desk.folder(), "people/robin-vale.md", desk.path_of(_id(desk, "Robin Vale")).read_text() + "By hand.\n")
    write_note(desk.folder(), "readme.md", "# No record\n")
    write_note(desk.folder(), "picture.txt", "not a note\n")
    desk.partition()
    desk.partition(GROUP_PARTITION)
    desk.close()


def attaching(data: bytes, *, final: bool) -> JsonObject:
    """One chunk of an original."""
    return {
        "filename": "plan.txt" if final else "half.txt",
        "mediaType": "text/plain",
        "attribution": "Ana",
        "offset": 0,
        "data": base64.b64encode(data).decode(),
        "final": final,
    }


def _id(desk: Desk, title: str) -> str:
    found = desk.call("lookup", {"query": title})["hits"]
    assert isinstance(found, list)
    assert isinstance(found[0], dict)
    return str(found[0]["id"])


@cache
def made_house() -> Path:
    folder = Path(tempfile.mkdtemp(prefix="backup-house-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    make_house(folder / "state")
    return folder / "state"


def house(base: Path) -> Layout:
    """A copy of the house of its own."""
    shutil.copytree(made_house(), base / "state", symlinks=True)
    return Layout(base / "state")


@contextmanager
def seated(layout: Layout, vault_id: str = VAULT_ID) -> Iterator[Desk]:
    desk = Desk(layout.new_store(vault_id), _requests=next(_SITTINGS) * 1_000)
    try:
        yield desk
    finally:
        desk.close()


def answers(layout: Layout, vault_id: str = VAULT_ID) -> dict[str, JsonValue]:
    """What every read tool says in both partitions, by the call."""
    said: dict[str, JsonValue] = {}
    with seated(layout, vault_id) as desk:
        now = desk.now_ms
        for partition in (PRIVATE, GROUP_PARTITION):
            for tool, arguments in _calls(desk, partition):
                desk.now_ms = now
                said[f"{partition.kind} {tool} {arguments}"] = _said(desk, partition, tool, arguments)
    return said


def _said(desk: Desk, partition: Partition, tool: str, arguments: JsonObject) -> JsonValue:
    try:
        return desk.call(tool, arguments, partition=partition)
    except KnowledgeError as error:
        return {"error": error.code}


def _calls(desk: Desk, partition: Partition) -> list[tuple[str, JsonObject]]:
    calls = list(READS)
    rows = desk.call("history", {"limit": 100}, partition=partition)["rows"]
    assert isinstance(rows, list)
    for row in rows:
        assert isinstance(row, dict)
        identity = row.get("id")
        if row.get("requestId"):
            named: JsonObject = {"requestId": row["requestId"], "includeFiles": True}
            calls.append(("mutation", named))
            calls.append(("resume", {"requestId": row["requestId"]}))
        if identity:
            calls.append(("revision", {"id": identity, "sequence": row["sequence"]}))
            calls.append(("record", {"id": identity, "includeEvidence": True}))
            calls.append(("connections", {"id": identity, "historical": True}))
            calls.append(("verify", {"ids": [identity]}))
            calls += _evidence(desk, partition, str(identity))
    calls += [("mutation", {"requestId": request_id(number)}) for number in (1, 999)]
    return calls


def _evidence(desk: Desk, partition: Partition, record_id: str) -> list[tuple[str, JsonObject]]:
    entry = desk.partition(partition).catalogue.one(record_id)
    if entry is None:
        return []
    calls: list[tuple[str, JsonObject]] = []
    for citation in desk.session.partition(partition).load(entry).evidence:
        named: JsonObject = {"id": record_id, "path": citation.path, "sha256": citation.sha256}
        calls += [("evidence_read", named), ("attachment", named)]
    return calls


def hashes(folder: Path) -> dict[str, str]:
    """Every file below a folder with its SHA-256."""
    return {
        path.relative_to(folder).as_posix(): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }


def vault_hashes(layout: Layout, vault_id: str = VAULT_ID) -> dict[str, str]:
    """Every file of the vault but the manifest, which has another generation, and Git's own."""
    found = hashes(layout.new_store(vault_id).vault)
    return {path: digest for path, digest in found.items() if path != "vault.json" and not path.startswith(".git/")}

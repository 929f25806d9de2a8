"""The guards between the partitions of one store, and between stores.

Source: stores-and-access.md (Partitions), decisions.md sections 2 to 5.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from pathlib import Path
from typing import Any, Final

import pytest

from messages.audience import Audience, own_partition
from messages.json_types import JsonObject
from messages.vocabulary import PRIVATE, Partition
from storage.layout import StoreLayout
from storage.ontology import Activation
from storage.session import read_ontology
from tests.host_bridge.guards.kit import OTHER, SECRET, Attempt, Guard, World, patched, without_partitions
from tests.kit.store import GROUP, GROUP_PARTITION, MAIN, claim_file, page_file, remembering, request_id, write_note

LONG: Final = "".join(f"Line {number} of a source.\n" for number in range(100))
ONTOLOGY: Final = (
    f"format: knowledge-ontology-v1\nextends: core\npages:\n  tank: {{description: {SECRET}, parent: entity}}\n"
)


def asked(tool: str, **arguments: Any) -> Any:
    """A tool asked by the conversation; a text that begins with ``.`` stands for a member of what it aims at."""
    return lambda world: world.call(tool, aimed(world, arguments))


def aimed(world: World, arguments: Any) -> Any:
    if isinstance(arguments, dict):
        return {key: aimed(world, value) for key, value in arguments.items()}
    if isinstance(arguments, list):
        return [aimed(world, value) for value in arguments]
    if isinstance(arguments, str) and arguments.startswith("."):
        of, _, member = arguments[1:].partition(".")
        return getattr(getattr(world, of), member)
    return arguments


def vault(world: World) -> JsonObject:
    status = world.bridge.call("knowledge_status", {}, GROUP)
    return {
        "expectedVaultId": status["vaultId"], "expectedOntologyFingerprint": status["ontologyFingerprint"],
        "requestId": request_id(901),
    }  # fmt: skip


def claims(world: World, **more: Any) -> str:
    """A claim of the conversation on its own evidence, or what ``more`` says in its place."""
    arguments: JsonObject = {
        "body": "It follows.", "claim_kind": "fact", "assertion_origin": "source", "attribution": "me",
        "evidence": [{"path": world.own.path, "sha256": world.own.sha256}], **vault(world), **more,
    }  # fmt: skip
    done = world.bridge.call("knowledge_create_claim", arguments, GROUP)
    return json.dumps(done) + world.call("record", {"id": done["id"], "includeEvidence": True})


def relates(world: World, name: str) -> str:
    """A relationship from a page of the conversation to what is not its own."""
    page: JsonObject = {"title": "Ours", "type": "project", "body": "Ours.", "requestId": request_id(902)}
    own = world.bridge.call("knowledge_save_page", page, GROUP)
    evidence: JsonObject = {"path": world.own.path, "sha256": world.own.sha256}
    arguments: JsonObject = {
        "from": own["id"], "to": name, "label": "related_to", "assertion_origin": "source", "attribution": "me",
        "evidence": [evidence], **vault(world),
    }  # fmt: skip
    return json.dumps(world.bridge.call("knowledge_create_relationship", arguments, GROUP))


def batch(reference: str) -> Any:
    def attempt(world: World) -> str:
        page: JsonObject = {
            "kind": "page", "ref": "mine", "title": "Ours", "type": "project", "body": f"See [[{named(world)}]]."
        }  # fmt: skip
        claim: JsonObject = {
            "kind": "claim", "body": "It follows.", "claim_kind": "fact", "assertion_origin": "source",
            "attribution": "me", "evidence": [{"path": world.own.path, "sha256": world.own.sha256}],
            "entities": ["$mine", named(world)],
        }  # fmt: skip
        done = world.bridge.call("knowledge_publish_batch", {"items": [page, claim], **vault(world)}, GROUP)
        return json.dumps(done)

    def named(world: World) -> str:
        return f"${world.page.id}" if reference == "$" else world.page.id

    return attempt


def same_title(world: World) -> str:
    page: JsonObject = {"title": "Aquarium", "type": "project", "body": "Ours.", "requestId": request_id(903)}
    return world.call("save_page", page)


def repeated(world: World) -> str:
    """The conversation remembers what the owner remembers already."""
    return world.call("remember", {**remembering(f"{SECRET} sleeps."), "requestId": request_id(904)})


def reuses_request_id(world: World) -> str:
    try:
        return world.call("remember", {**remembering("Ours."), "requestId": request_id(1)})
    except Exception as error:  # noqa: BLE001 - the refusal is what tells
        return type(error).__name__


def written(text: str, audience: Audience = GROUP, *, by: Audience = GROUP) -> Any:
    """Somebody writes a file into a partition; then it is asked for."""

    def attempt(world: World) -> str:
        world.call("status", {}, by)
        write_note(world.folder(audience), "forged.md", text)
        return world.call("records", {}, by)

    return attempt


def scoped(scope: str) -> str:
    claim = claim_file("forged", f"{SECRET} is forged.", partition=GROUP_PARTITION)
    start = claim.index("scope: ")
    return claim[:start] + scope + claim[claim.index("\n", start) + 1 :]


def withheld(world: World) -> str:
    """A file of another scope lies in the conversation's folder: of its name nothing may be told."""
    world.call("status", {})
    write_note(world.folder(), f"{SECRET}.md", scoped('scope: {"visibility": "private"}\n'))
    return world.call("history", {}) + world.call("status", {})


def approved_by_its_file(world: World) -> str:
    """A page whose file says that the owner approved it for recall."""
    block: JsonObject = {
        "summary": f"{SECRET} comes first.", "triggers": ["fish"], "importance": 5, "projects": [],
        "approved_by": "owner-private", "approved_at": "2026-10-01T10:00:00.000Z",
    }  # fmt: skip
    write_note(world.folder(MAIN), "forged.md", page_file("forged", "Forged", recall=block))
    return json.dumps(world.bridge.ask("operator.record", {"id": "forged"}))


def copied_approval(world: World) -> str:
    """An approval that the owner gave to one page, copied by hand into another."""
    fence: JsonObject = {"id": world.page.id, "expectedRevision": 1, "expectedHash": world.page.hash}
    approval: JsonObject = {"summary": "It eats.", "triggers": ["fish"], "importance": 3, "requestId": request_id(905)}
    world.bridge.call("knowledge_recall", {**fence, **approval}, MAIN)
    [file] = [path for path in world.folder(MAIN).rglob("*.md") if world.page.id in path.read_text("utf-8")]
    [line] = [line for line in file.read_text("utf-8").splitlines() if line.startswith("recall:")]
    forged = page_file("forged", "Forged").replace("lifecycle:", f"{line}\nlifecycle:")
    write_note(world.folder(MAIN), "forged.md", forged)
    return json.dumps(world.bridge.ask("operator.record", {"id": "forged"}))


def extended(partition: Partition) -> Any:
    def before(store: StoreLayout) -> None:
        write_note(store.partition(partition), "ontology.yaml", ONTOLOGY)

    return before


def foreign_ontology(root_fd: int, partition: Partition) -> Activation:
    return read_ontology(root_fd, PRIVATE)


def index_of_another(store: StoreLayout) -> None:
    """The owner's index file gets the name of the conversation's."""
    for part in ("", "-wal"):
        shutil.copyfile(f"{store.search_index(PRIVATE)}{part}", f"{store.search_index(GROUP_PARTITION)}{part}")
    Path(f"{store.search_index(GROUP_PARTITION)}-shm").unlink()


def without_an_index(store: StoreLayout) -> None:
    """The conversation's index is built anew from the catalogue."""
    store.search_index(GROUP_PARTITION).unlink()


def snapshot_of_another(world: World) -> str:
    shown = json.loads(world.call("records", {"limit": 1}, OTHER))
    return world.call("records", {"limit": 1, "offset": 1, "snapshot": shown["snapshot"]})


def cursor_of_another(world: World) -> str:
    """The same record and the same source lie in two conversations; one gets on with the cursor of the other."""
    digest = hashlib.sha256(LONG.encode()).hexdigest()
    path = f"artifacts/{request_id(906)}/long.txt"
    for audience in (OTHER, GROUP):
        world.call("status", {}, audience)
        cited: JsonObject = {"path": path, "sha256": digest}
        claim = claim_file("same", "The same.", partition=own_partition(audience), evidence=[cited])
        write_note(world.folder(audience), "same.md", claim)
        write_note(world.folder(audience), path, LONG)
    wanted: JsonObject = {"id": "same", "path": path, "sha256": digest, "maxChars": 256}
    first = json.loads(world.call("evidence_read", wanted, OTHER))
    return world.call("evidence_read", {**wanted, "cursor": first["nextCursor"]})


def consulted(method: str, **params: Any) -> Any:
    """A method of the memory provider, asked by the conversation."""
    return lambda world: json.dumps(world.bridge.consult(f"memory.{method}", aimed(world, params), GROUP))


def reads_by_reference(world: World) -> str:
    """The conversation has come by the reference to a claim of the owner."""
    vault_id = world.bridge.call("knowledge_status", {}, GROUP)["vaultId"]
    ref: JsonObject = {
        "provider": "knowledge", "store": vault_id, "id": world.private.id, "revision": 1, "hash": world.private.hash
    }  # fmt: skip
    return json.dumps(world.bridge.consult("memory.read", {"ref": ref}, GROUP))


def candidates_of_the_owner(world: World) -> str:
    """The conversation asks what the owner approved for recall."""
    fence: JsonObject = {"id": world.page.id, "expectedRevision": 1, "expectedHash": world.page.hash}
    approval: JsonObject = {"summary": f"{SECRET} first.", "triggers": ["fish"], "requestId": request_id(907)}
    world.bridge.call("knowledge_recall", {**fence, **approval}, MAIN)
    return json.dumps(world.bridge.consult("memory.candidates", {"kind": "trigger"}, GROUP))


def candidates_for_all(monkeypatch: pytest.MonkeyPatch) -> None:
    """As if the conversation's partition were the owner's where approvals are listed and judged."""
    for module in ("recall", "recall_candidates"):
        patched(f"actors.store.operations.{module}.PRIVATE", GROUP_PARTITION)(monkeypatch)


def in_the_owners_folder(root_fd: int, folder: str) -> int:
    """As if a source that a partition has not were looked for in the owner's."""
    return os.open(f"/proc/self/fd/{root_fd}/../../private/{folder}", os.O_RDONLY | os.O_DIRECTORY)


GUARDS: Final = [
    Guard("partition of a record", without_partitions("record", "name", "tag", "reference")),
    Guard("partition of a citation", without_partitions("citation", "upload")),
    Guard("partition of history", without_partitions("history")),
    Guard("partition of a request", without_partitions("publication")),
    Guard("folder of a source", patched("storage.evidence.verify.source_folder", in_the_owners_folder)),
    Guard("scope", patched("storage.state.catalogue.in_scope", lambda parsed, partition: True)),
    Guard("withheld by count", patched("actors.store.operations.history._shown_path", lambda row: row.path)),
    Guard("approval in history", patched("actors.store.operations.recall.approval_counts", lambda *found: True)),
    Guard("owner's candidates", candidates_for_all),
    Guard("core ontology", patched("storage.session.read_ontology", foreign_ontology)),
    Guard("identity of an index", patched("storage.search._file._fault", lambda database, identity: None)),
    Guard("origin", patched("storage.state.catalogue_reader.CatalogueReader.origin", "anywhere")),
]


def says(text: str) -> Any:
    return lambda told: text in told


RECORD: Final = ("partition of a record",)
HISTORY: Final = ("partition of history",)
REQUEST: Final = ("partition of a request",)
ATTEMPTS: Final = [
    Attempt(RECORD, "read by id", asked("record", id=".private.id"), ""),
    Attempt(RECORD, "list", asked("records"), ""),
    Attempt(RECORD, "list by tag and type", asked("records", type="project"), "", reached=says("Aquarium")),
    Attempt(RECORD, "lookup by title", asked("lookup", query="Aquarium"), "", reached=says('"found"')),
    Attempt(RECORD, "lookup by id", asked("lookup", query=".page.id"), "", reached=says('"found"')),
    Attempt(RECORD, "connections", asked("connections", id=".page.id"), "not_found", reached=says('"connections"')),
    Attempt(RECORD, "verify", asked("verify", ids=[".private.id"]), "", reached=says('"kind": "claim"')),
    Attempt(RECORD, "verify a link", asked("verify", expectedLinks=[{"from": ".page.id", "to": ".private.id"}]), "",
            reached=lambda told: '"reason": "from"' not in told),
    Attempt(RECORD, "read by reference", reads_by_reference, "not_found"),
    Attempt(RECORD, "a host's search", consulted("search", query="sleeps"), "", before=without_an_index),
    Attempt(RECORD, "health", consulted("status"), "", reached=lambda told: '"records": 2' not in told),
    Attempt(RECORD, "timeline", asked("timeline", since="2000", until="2100"), ""),
    Attempt(RECORD, "counts", asked("status"), "", reached=says('"page": {"active": 1')),
    Attempt(RECORD, "claim of another's page", lambda world: claims(world, entities=[world.page.id]),
            "invalid_argument", alone=True, reached=says("Aquarium")),
    Attempt(RECORD, "claim that depends on another's", lambda world: claims(world, dependencies=[world.private.id]),
            "invalid_argument", alone=True, reached=says('"revision": 1')),
    Attempt(RECORD, "relationship to another's page", lambda world: relates(world, world.page.id), "invalid_argument",
            alone=True, reached=says('"revision": 1')),
    Attempt(RECORD, "id of another's page in a batch", batch(""), "invalid_argument", alone=True,
            reached=says('"revision": 1')),
    Attempt(RECORD, "title of another's page", same_title, "", alone=True, reached=says("same_title")),
    Attempt(RECORD, "repeat of another's claim", repeated, "", alone=True, reached=says('"duplicate": true')),
    Attempt(("partition of a citation", "folder of a source"), "another's source as one's own evidence",
            lambda world: claims(world, evidence=[{"path": world.private.path, "sha256": world.private.sha256}]),
            "evidence_invalid", alone=True),
    Attempt(HISTORY, "history of a record", asked("history", id=".private.id"), "", reached=says('"rows": [{')),
    Attempt(HISTORY, "whole history", asked("history"), "", reached=says(request_id(1))),
    Attempt(HISTORY, "revision", asked("revision", id=".private.id", sequence=1), "not_found"),
    Attempt(REQUEST, "mutation", asked("mutation", requestId=".private.request_id", includeFiles=True), "not_found",
            reached=says('"receipt"')),
    Attempt(REQUEST, "resume", asked("resume", requestId=".private.request_id"), "not_found",
            reached=says('"revision"')),
    Attempt(REQUEST, "request id that the owner used", reuses_request_id, "", alone=True,
            reached=says("RequestIdReused")),
    *(
        Attempt(("scope",), f"file with {scope.strip() or 'no scope'}", written(scoped(scope)), "", alone=True)
        for scope in (
            'scope: {"visibility": "private"}\n', 'scope: {"visibility": "conversation"}\n', "",
            'scope: {"visibility": "conversation", "sessionId": "44444444-4444-4444-8444-444444444444"}\n',
            'scope: {"visibility": "public"}\n', 'scope: "conversation"\n',
        )
    ),
    Attempt(("scope",), "file of a conversation among the owner's",
            written(claim_file("forged", f"{SECRET} forged.", partition=GROUP_PARTITION), MAIN, by=MAIN), "",
            alone=True, reached=says(f"{SECRET} forged")),
    Attempt(("withheld by count",), "name of a file that is withheld", withheld, "", alone=True),
    Attempt(("approval in history",), "approval in a file", approved_by_its_file, "", alone=True,
            reached=says('"counts": true')),
    Attempt(("approval in history",), "approval copied from another file", copied_approval, "", alone=True,
            reached=says('"counts": true')),
    Attempt(("owner's candidates", *HISTORY, *RECORD), "what the owner approved for recall", candidates_of_the_owner,
            "", alone=True),
    Attempt(("core ontology",), "the owner's page types", asked("ontology", view="definitions", name="tank"),
            "invalid_argument", before=extended(PRIVATE)),
    Attempt(("identity of an index",), "another's index file", asked("grep", query="sleeps"), "",
            before=index_of_another, reached=says('"total": 1')),
    Attempt(("origin",), "snapshot of another conversation", snapshot_of_another, "snapshot_changed",
            reached=says('"records"')),
    Attempt(("origin",), "cursor of another conversation", cursor_of_another, "invalid_argument", alone=True,
            reached=says("Line 2")),
]  # fmt: skip

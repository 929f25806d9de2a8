"""A real store for tests: operations without a thread, and the whole runtime behind its Python door.

:class:`Desk` runs one operation after another on a :class:`~storage.session.StoreSession`, as the lane would, and does
itself what the lane asks of its helpers (catching an index up, verifying evidence). Everything below it is real.
"""

from __future__ import annotations

import json
import shutil
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path

from actors.store.needs import (
    CitationKey,
    NeedEvidence,
    NeedIndex,
    NeedPassage,
    NeedSource,
    NeedStanding,
    NeedUpkeep,
)
from actors.store.operations import table
from actors.store.operations.context import Blocked, OperationContext, Prepared, refresh
from actors.store.source_keeper import SourceDesk
from actors.store.sources import Passage, ReadPassage
from host_bridge.bridge import KnowledgeBridge
from host_bridge.config import Configuration, parse_configuration
from messages.audience import Audience, Conversation, OwnerPrivate
from messages.errors import KnowledgeError
from messages.json_types import JsonObject, JsonValue
from messages.operator import LOCAL_OPERATOR, parse_operator_call
from messages.provider import parse_provider_call
from messages.tools import GitState, ToolRequest, WriteRequest, parse_arguments, tool_spec
from messages.vocabulary import PRIVATE, Partition
from storage import files
from storage.evidence import Spans, VerdictCache, verify
from storage.index_feed import IndexFeed
from storage.layout import Layout, StoreLayout
from storage.records import parse_instant
from storage.search import SearchIndex
from storage.session import PartitionSession, StoreSession, no_fence
from storage.state.catalogue import catalogue_identity
from storage.state.journal import unsettled
from storage.vault import ScanLimits

VAULT_ID = "22222222-2222-4222-8222-222222222222"
MAIN = OwnerPrivate("main")
GROUP = Conversation("main", "chat:group", "33333333-3333-4333-8333-333333333333")
GROUP_PARTITION = Partition(GROUP.session_id)


def instant(text: str) -> int:
    """UTC milliseconds of an RFC 3339 text."""
    found = parse_instant(text)
    assert found is not None
    return found


NOON = instant("2026-11-02T12:00:00Z")


def request_id(number: int) -> str:
    """The request id of a number, the same in every run."""
    return str(uuid.UUID(int=number, version=4))


@dataclass(slots=True)
class Desk:
    """One open store and whoever sits at it. One thread; close it.

    ``now_ms`` is the wall clock of the next operation and rises by a second with each. ``fence`` and ``check`` stand
    for the authority.
    """

    layout: StoreLayout
    limits: ScanLimits = field(default_factory=ScanLimits)
    now_ms: int = NOON
    agent: str = "main"
    writes_enabled: bool = True
    hub_percentile: float = 90.0
    git: GitState = field(default_factory=lambda: GitState("current"))
    check: Callable[[], None] = lambda: None
    fence: Callable[[], AbstractContextManager[object]] = no_fence
    needs: list[str] = field(default_factory=list)
    index_problem: str | None = None
    workspace: Path | None = None
    sources: SourceDesk = field(default_factory=SourceDesk)
    _session: StoreSession | None = None
    _feed: IndexFeed | None = None
    _indexes: dict[Partition, SearchIndex] = field(default_factory=dict)
    _verdicts: VerdictCache = field(default_factory=VerdictCache)
    _spans: Spans = field(default_factory=Spans)
    _requests: int = 0

    # --- the store -------------------------------------------------------------------------------------

    @property
    def session(self) -> StoreSession:
        if self._session is None:
            self._session = StoreSession.open(self.layout, limits=self.limits)
        return self._session

    def partition(self, partition: Partition = PRIVATE) -> PartitionSession:
        """The partition's session, fresh."""
        opened = self.session.partition(partition)
        opened.refresh(self.check)
        return opened

    def folder(self, partition: Partition = PRIVATE) -> Path:
        return self.layout.partition(partition)

    def close(self, *, clean: bool = True) -> bool:
        """Close everything; a later call opens the store again."""
        for index in self._indexes.values():
            index.close()
        self._indexes.clear()
        feed, self._feed = self._feed, None
        if feed is not None:
            feed.close()
        session, self._session = self._session, None
        return session is not None and session.close(clean=clean)

    # --- operations ------------------------------------------------------------------------------------

    def call(
        self, tool: str, arguments: Mapping[str, JsonValue] | None = None, *, partition: Partition = PRIVATE
    ) -> JsonObject:
        """The agent response of a tool (its name without ``knowledge_``); a write without ``requestId`` gets the next.

        Raises what the operation raises.
        """
        given = dict(arguments or {})
        name = f"knowledge_{tool}"
        if issubclass(tool_spec(name).request, WriteRequest) and "requestId" not in given:
            self._requests += 1
            given["requestId"] = request_id(self._requests)
        assert tool_spec(name).operation == tool
        return self._answer(parse_arguments(name, given), partition)

    def operate(self, method: str, params: Mapping[str, JsonValue] | None = None) -> JsonObject:
        """The complete response of an operator's read (its name without ``operator.``) on the private partition."""
        request = parse_operator_call(f"operator.{method}", dict(params or {}), peer=LOCAL_OPERATOR).request
        return self._answer(request, PRIVATE)

    def consult(
        self, method: str, params: Mapping[str, JsonValue] | None = None, *, partition: Partition = PRIVATE
    ) -> JsonObject:
        """The answer of a method of the memory provider (its name without ``memory.``); raises what it raises."""
        return self._answer(parse_provider_call(f"memory.{method}", dict(params or {})).request, partition)

    def build_prompt(self, session_started_at: str, *, partition: Partition = PRIVATE) -> JsonObject:
        """What the lane answers to ``prompt.build``."""
        params: JsonObject = {"sessionStartedAt": session_started_at}
        return self._answer(parse_provider_call("prompt.build", params).request, partition)
    def ask(self, request: ToolRequest, *, partition: Partition = PRIVATE) -> JsonObject:
        """The answer to a request that is no tool's: of the memory provider, or of the recall gate to a lane."""
        return self._answer(request, partition)

    def _answer(self, request: ToolRequest, partition: Partition) -> JsonObject:
        prepared = Prepared(index_problem=self.index_problem)
        while True:
            blocked = refresh(self.session.partition(partition), request, self.check)
            context = self.context(partition, prepared, blocked)
            outcome = table.run(context, request)
            match outcome:
                case NeedIndex(change):
                    self.needs.append("index")
                    self.catch_up(partition, change)
                    prepared = replace(prepared, index_change=change)
                case NeedSource(work):
                    self.needs.append("source")
                    vault = files.open_root(self.layout.vault, at="evidence.folder")
                    try:
                        prepared = replace(prepared, complete=self.sources.do(vault, work, self.check))
                    finally:
                        files.close(vault)
                case NeedPassage(reading):
                    self.needs.append("passage")
                    prepared = replace(prepared, passage=self._read(partition, reading))
                case NeedEvidence(citations, _, excerpts):
                    self.needs.append("evidence")
                    root = files.open_root(self.folder(partition), at="evidence.folder")
                    try:
                        found = {
                            CitationKey.of(c): verify(c, root, self._verdicts, lambda: None, excerpt=excerpts)
                            for c in citations
                        }
                    finally:
                        files.close(root)
                    prepared = replace(prepared, verdicts={**prepared.verdicts, **found}, passage=None)
                case NeedUpkeep():
                    raise AssertionError("no tool needs what maintenance needs")
                case NeedStanding():
                    self.needs.append("standing")
                    return {"index": None}
                case _:
                    self.now_ms += 1_000
                    return outcome

    def _read(self, partition: Partition, work: ReadPassage) -> Passage:
        root = files.open_root(self.folder(partition), at="evidence.folder")
        try:
            return Passage(
                self._spans.window(root, work.path, work.stamp, work.lines, work.point, work.max_chars, lambda: None)
            )
        finally:
            files.close(root)

    def fails(
        self, tool: str, arguments: Mapping[str, JsonValue] | None = None, *, partition: Partition = PRIVATE
    ) -> KnowledgeError:
        """The typed error that the same call ends with; fails if it is answered."""
        try:
            answer = self.call(tool, arguments, partition=partition)
        except KnowledgeError as error:
            return error
        raise AssertionError(f"expected a typed error, got {sorted(answer)}")

    def context(
        self,
        partition: Partition = PRIVATE,
        prepared: Prepared | None = None,
        blocked: Blocked | None = None,
    ) -> OperationContext:
        """What one run of an operation works with, on the partition's last snapshot."""
        return OperationContext(
            session=self.session.partition(partition),
            agent=self.agent,
            now_ms=self.now_ms,
            fence=self.fence,
            check=self.check,
            open_index=lambda: self.index(partition),
            index_state=lambda: "current",
            git_state=lambda: self.git,
            unsettled=lambda: unsettled(self.session.publisher.db, partition),
            writes_enabled=self.writes_enabled,
            scan_entries=self.limits.entries,
            hub_percentile=self.hub_percentile,
            workspace=lambda: self.workspace,
            prepared=prepared or Prepared(),
            blocked=blocked,
        )

    def index(self, partition: Partition = PRIVATE) -> SearchIndex:
        """The partition's keyword index, open for writing."""
        opened = self._indexes.get(partition)
        if opened is None:
            opened = self._indexes[partition] = SearchIndex.open(
                self.layout.search_index(partition),
                vault_id=self.session.vault_id,
                partition=partition.key,
                catalogue=catalogue_identity(self.session.publisher.db),
            )
        return opened

    def catch_up(self, partition: Partition, change: int) -> None:
        """What the indexer does: slices until the index has reached ``change``."""
        if self._feed is None:
            self._feed = IndexFeed(self.layout.state_database)
        index = self.index(partition)
        position = index.position()
        while position < change:
            found = self._feed.after(partition, position)
            assert found.position > position
            index.apply(found.changes, found.position)
            position = found.position

    # --- short ways ------------------------------------------------------------------------------------

    def remember(
        self, *items: str | Mapping[str, JsonValue], partition: Partition = PRIVATE, **more: JsonValue
    ) -> JsonObject:
        """Remember facts (texts) or whole items, with an excerpt that quotes them."""
        return self.call("remember", remembering(*items, **more), partition=partition)

    def page(self, title: str, type: str = "project", body: str = "About it.", **more: JsonValue) -> JsonObject:
        """Create a page."""
        return self.call("save_page", {"title": title, "type": type, "body": body, **more})

    def vault(self, partition: Partition = PRIVATE) -> JsonObject:
        """The arguments by which a write names the vault and the ontology that it expects."""
        status = self.call("status", partition=partition)
        return {
            "expectedVaultId": status["vaultId"],
            "expectedOntologyFingerprint": status["ontologyFingerprint"],
        }

    def observed(self, record_id: JsonValue) -> JsonObject:
        """The arguments by which a write names one record as it is now."""
        found = self.record(record_id)
        return {"id": found["id"], "expectedRevision": found["revision"], "expectedHash": found["hash"]}

    def retained(self, text: str, partition: Partition = PRIVATE, **narrowed: JsonValue) -> JsonObject:
        """Evidence that a write can cite: the excerpt of a claim that was remembered for it."""
        saved = self.call("remember", remembering(f"Noted: {text}", excerpt=text), partition=partition)
        [item] = items_of(saved)
        entry = self.partition(partition).catalogue.one(str(item["id"]))
        assert entry is not None
        [citation] = self.session.partition(partition).load(entry).evidence
        return {"path": citation.path, "sha256": citation.sha256, **narrowed}

    def record(self, record_id: JsonValue, **more: JsonValue) -> JsonObject:
        """The ``record`` member of a single read; fails when it is null."""
        found = self.call("record", {"id": record_id, **more})["record"]
        assert isinstance(found, dict), f"no record {record_id}"
        return found

    def path_of(self, record_id: str, partition: Partition = PRIVATE) -> Path:
        """The file of a record."""
        entry = self.partition(partition).catalogue.one(record_id)
        assert entry is not None
        return self.folder(partition) / entry.path


def remembering(*items: str | Mapping[str, JsonValue], **more: JsonValue) -> JsonObject:
    """The arguments of a remember, but for its ``requestId``; a text stands for a fact."""
    written = [{"text": item, "kind": "fact"} if isinstance(item, str) else dict(item) for item in items]
    excerpt = "\n".join(f"User: {item['text']}" for item in written)
    return {"attribution": "user in session 8f3a, 2026-11-02", "excerpt": excerpt, "items": written, **more}


def items_of(response: JsonObject) -> list[JsonObject]:
    """The items of a receipt."""
    found = response["items"]
    assert isinstance(found, list)
    return found


def page_file(
    record_id: str,
    title: str,
    *,
    type: str | None = "project",
    body: str = "About it.\n",
    partition: Partition = PRIVATE,
    recorded_at: str = "2026-10-01T10:00:00.000Z",
    **keys: JsonValue,
) -> str:
    """A page as a person or another machine may write it."""
    given: JsonObject = {} if type is None else {"type": type}
    return record_file("page", record_id, title, body, partition, recorded_at, {**given, **keys})


def claim_file(
    record_id: str,
    text: str,
    *,
    partition: Partition = PRIVATE,
    recorded_at: str = "2026-10-01T10:00:00.000Z",
    **keys: JsonValue,
) -> str:
    """A claim as a person or another machine may write it."""
    given: JsonObject = {
        "claim_kind": "fact",
        "assertion_origin": "source",
        "attribution": "somebody, some time",
        "evidence": [{"path": f"artifacts/{request_id(900)}/excerpt.txt", "sha256": "0" * 64}],
    }
    return record_file("claim", record_id, text[:80], f"{text}\n", partition, recorded_at, {**given, **keys})


def relationship_file(record_id: str, one: str, other: str, label: str = "related_to", **keys: JsonValue) -> str:
    """A relationship as a person may write it, in the private partition."""
    given: JsonObject = {
        "from": one,
        "to": other,
        "label": label,
        "assertion_origin": "source",
        "attribution": "somebody, some time",
        "evidence": [{"path": f"artifacts/{request_id(900)}/excerpt.txt", "sha256": "0" * 64}],
    }
    recorded_at = str(keys.pop("recorded_at", "2026-10-01T10:00:00.000Z"))
    return record_file("relationship", record_id, "Related", "", PRIVATE, recorded_at, {**given, **keys})


def record_file(
    kind: str,
    record_id: str,
    title: str,
    body: str,
    partition: Partition,
    recorded_at: str,
    keys: Mapping[str, JsonValue],
) -> str:
    scope: JsonObject = {"visibility": partition.kind}
    if partition.session_id is not None:
        scope["sessionId"] = partition.session_id
    values: JsonObject = {
        "format": "knowledge-record-v1",
        "id": record_id,
        "revision": 1,
        "kind": kind,
        "title": title,
        "recorded_at": recorded_at,
        "updated_at": recorded_at,
        "scope": scope,
        "lifecycle": "active",
        **keys,
    }
    lines = [f"{key}: {json.dumps(value, ensure_ascii=False)}" for key, value in values.items()]
    return "\n".join(["---", *lines, "---", "", body])


def write_note(folder: Path, path: str, text: str) -> Path:
    """A person saves a file of a partition in place."""
    target = folder / path
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_text(text, "utf-8", newline="")
    return target


def write_notes(folder: Path, notes: Iterable[tuple[str, str]]) -> None:
    for path, text in notes:
        write_note(folder, path, text)


def make_store(folder: Path) -> StoreLayout:
    """A new, empty store."""
    layout = StoreLayout(folder)
    folder.parent.mkdir(parents=True, exist_ok=True)
    StoreSession.create(layout, VAULT_ID)
    return layout


def copy_store(made: StoreLayout, folder: Path) -> StoreLayout:
    """Another store with the same bytes."""
    shutil.copytree(made.root, folder)
    return StoreLayout(folder)


@contextmanager
def open_bridge(state_dir: Path, configuration: str | Configuration = "") -> Iterator[KnowledgeBridge]:
    """The Python door on a state directory, with a fixed configuration (YAML)."""
    config = parse_configuration(configuration) if isinstance(configuration, str) else configuration
    with KnowledgeBridge(state_dir, config=config) as bridge:
        yield bridge


def remember(bridge: KnowledgeBridge, text: str, number: int, audience: Audience = MAIN) -> JsonObject:
    """Remember one fact through the door, as the request of that number."""
    return bridge.call("knowledge_remember", {**remembering(text), "requestId": request_id(number)}, audience)


def total(bridge: KnowledgeBridge, audience: Audience = MAIN) -> object:
    """How many records that audience finds."""
    return bridge.call("knowledge_records", {}, audience)["total"]


def failure(
    bridge: KnowledgeBridge, tool: str, arguments: Mapping[str, JsonValue], audience: Audience = MAIN
) -> KnowledgeError:
    """The typed error of a call through the door; fails if it is answered."""
    try:
        answer = bridge.call(f"knowledge_{tool}", dict(arguments), audience, deadline_ms=10_000)
    except KnowledgeError as error:
        return error
    raise AssertionError(f"expected a typed error, got {sorted(answer)}")


def only_store(state_dir: Path) -> StoreLayout:
    """The layout of the one store of a state directory; fails when there are more or none."""
    [folder] = stores(state_dir)
    return StoreLayout(folder)


def stores(state_dir: Path) -> list[Path]:
    """The folders of a state directory's stores."""
    home = Layout(state_dir).stores
    return sorted(home.iterdir()) if home.is_dir() else []

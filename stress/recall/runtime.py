"""The runtime under test: documents saved and queries asked through the Python door, as an agent would."""

from __future__ import annotations

import re
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, cast

from host_bridge.bridge import KnowledgeBridge
from messages.audience import OwnerPrivate
from messages.errors import Refusal
from messages.json_types import JsonObject
from messages.vocabulary import EXCERPT_MAX_BYTES, PRIVATE, REMEMBER_MAX_ITEMS
from storage.layout import Layout, StoreLayout
from storage.search import SearchIndex, parse_message
from storage.state.catalogue import catalogue_identity
from storage.state.catalogue_reader import CatalogueReader
from storage.state.connection import Database
from stress.recall.baseline import Mode
from stress.recall.corpus import CorpusError, Document
from stress.recall.metrics import DEPTH

NO_CANDIDATES: Final = ("source", "artifact")
"""Types of pages that the gate never offers (memory-provider.md, Recall gate)."""
_AUDIENCE: Final = OwnerPrivate("main")
_ATTRIBUTION: Final = "the corpus"
_ITEM: Final = re.compile(r"items\[(\d+)\]")


@dataclass(frozen=True, slots=True)
class _Saved:
    """A record as its receipt names it."""

    id: str
    revision: int
    hash: str

    def fence(self) -> JsonObject:
        return {"id": self.id, "expectedRevision": self.revision, "expectedHash": self.hash}


class Runtime:
    """A new store in a folder that does not exist yet, behind a bridge. One thread; a context manager."""

    name: Final = "knowledge"

    def __init__(self, state_dir: Path, mode: Mode) -> None:
        self._mode = mode
        self._state_dir = state_dir
        self._bridge = KnowledgeBridge(state_dir)
        self._saved: dict[str, _Saved] = {}
        self._documents: dict[str, str] = {}

    def save(self, documents: Sequence[Document], progress: Callable[[int], None] = lambda _: None) -> None:
        """Save every document: first the pages, then the claims as remembered, then the claims that replace another.

        Raises :class:`CorpusError` with the line of a document that the store refuses.
        """
        claims = [document for document in documents if document.kind == "claim" and document.replaces is None]
        for document in documents:
            if document.kind == "page":
                self._keep([document], [self._write([document], "knowledge_save_page", document.page())])
                progress(len(self._saved))
        for batch in _batches(claims):
            self._remember(batch)
            progress(len(self._saved))
        for document in documents:
            if document.replaces is not None:
                self._replace(document, self._saved[document.replaces])
                progress(len(self._saved))

    def search(self, query: str) -> list[str]:
        """The first ten documents, best first; on further pages where long texts leave no room on the first."""
        found: list[str] = []
        further: JsonObject = {}
        while True:
            answer = self._call("knowledge_grep", {"query": query, "mode": self._mode, "limit": DEPTH, **further})
            if answer["total"] is None:
                raise RuntimeError(f"the index could not be searched: {answer['index']}")
            found += [self._documents[str(hit["id"])] for hit in _objects(answer, "hits")]
            if len(found) >= DEPTH or "nextOffset" not in answer:
                return found[:DEPTH]
            further = {"offset": answer["nextOffset"], "snapshot": answer["snapshot"]}

    def candidates(self) -> Candidates:
        """The recall gate's candidates in this store, by the index that its searches have brought up to date."""
        self._call("knowledge_grep", {"query": "anything"})
        [folder] = Layout(self._state_dir).stores.iterdir()
        return Candidates(StoreLayout(folder), self._documents)

    def close(self) -> None:
        self._bridge.close()

    def __enter__(self) -> Runtime:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _remember(self, claims: Sequence[Document]) -> None:
        arguments: JsonObject = {
            "attribution": _ATTRIBUTION,
            "excerpt": "\n".join(claim.text for claim in claims),
            "items": [claim.claim() for claim in claims],
        }
        self._keep(claims, _objects(self._write(claims, "knowledge_remember", arguments), "items"))

    def _replace(self, document: Document, earlier: _Saved) -> None:
        """A correction, on the evidence of what it corrects."""
        read = self._call("knowledge_record", {"id": earlier.id, "includeEvidence": True})
        [citation, *_] = _objects(cast("JsonObject", read["record"]), "evidence")
        replacement: JsonObject = {
            "kind": "claim", "body": document.text, "claim_kind": document.type, "assertion_origin": "source",
            "attribution": _ATTRIBUTION, "evidence": [{name: citation[name] for name in ("path", "sha256")}],
        }  # fmt: skip
        fingerprint = self._call("knowledge_status", {})["ontologyFingerprint"]
        arguments: JsonObject = {
            **earlier.fence(), "reason": "the corpus says so", "replacement": replacement,
            "expectedOntologyFingerprint": fingerprint,
        }  # fmt: skip
        self._keep([document], [self._write([document], "knowledge_correct", arguments)])

    def _write(self, documents: Sequence[Document], tool: str, arguments: JsonObject) -> JsonObject:
        """The receipt of one publication."""
        try:
            receipt = self._call(tool, {**arguments, "requestId": str(uuid.uuid4())})
        except Refusal as error:
            raise _refused(documents, str(error.fields.get("field", "")), tool, error.message) from error
        if receipt.get("state") == "rejected":
            raise _refused(documents, "", tool, str(receipt["message"]))
        return receipt

    def _keep(self, documents: Sequence[Document], items: Sequence[JsonObject]) -> None:
        """Remember which record is which document; ``items`` are in the order of the documents."""
        for document, item in zip(documents, items, strict=True):
            saved = _Saved(str(item["id"]), cast("int", item["revision"]), str(item["hash"]))
            if saved.id in self._documents:
                raise _error(document, f"is the same claim as {self._documents[saved.id]!r}")
            self._saved[document.id] = saved
            self._documents[saved.id] = document.id

    def _call(self, tool: str, arguments: JsonObject) -> JsonObject:
        return self._bridge.call(tool, arguments, _AUDIENCE)


class Candidates:
    """The recall gate's candidates for a message: current pages, from the store's own index. One thread; close it.

    ``documents`` are the ids of a corpus by record id.
    """

    name: Final = "candidates"

    def __init__(self, layout: StoreLayout, documents: Mapping[str, str]) -> None:
        self._state = Database.open(layout.state_database, point_prefix="feed", read_only=True)
        self._catalogue = CatalogueReader(self._state, PRIVATE)
        self._index = SearchIndex.open(
            layout.search_index(PRIVATE),
            vault_id=layout.root.name,
            partition=PRIVATE.key,
            catalogue=catalogue_identity(self._state),
            read_only=True,
        )
        self._documents = documents

    def search(self, message: str) -> list[str]:
        """The first ten documents, best first."""
        found = self._index.candidates(
            parse_message(message), at_least=self._catalogue.change, without_types=NO_CANDIDATES, limit=DEPTH
        )
        entries = (self._catalogue.by_row(candidate.rowid) for candidate in found.candidates)
        return [self._documents[entry.id] for entry in entries if entry is not None]

    def close(self) -> None:
        self._index.close()
        self._state.close()


def _batches(claims: Sequence[Document]) -> Iterator[list[Document]]:
    """As many claims at a time as one request and its excerpt take."""
    batch: list[Document] = []
    size = 0
    for claim in claims:
        more = len(claim.text.encode()) + 1
        if batch and (len(batch) == REMEMBER_MAX_ITEMS or size + more > EXCERPT_MAX_BYTES):
            yield batch
            batch, size = [], 0
        batch.append(claim)
        size += more
    if batch:
        yield batch


def _refused(documents: Sequence[Document], field: str, tool: str, message: str) -> CorpusError:
    match = _ITEM.search(field)
    return _error(documents[int(match[1]) if match else 0], f"{tool} refuses this: {message}")


def _error(document: Document, reason: str) -> CorpusError:
    return CorpusError("documents.tsv", document.line, reason)


def _objects(answer: JsonObject, name: str) -> list[JsonObject]:
    return cast("list[JsonObject]", answer[name])

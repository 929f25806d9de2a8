"""A model of files and records against the real store, under random interleavings of saves and outside changes.

After every step: the catalogue equals one rebuilt from the files alone, every receipt is given again byte for byte,
and history has the exact bytes of everything that ever stood in a file while the store looked. At the end the keyword
index equals a rebuild, and so does the whole store after another opening.

Source: decisions.md sections 2 and 4, stores-and-access.md (Runtime), WRITE-PATH.md section 4.
"""

from __future__ import annotations

import json
import os
import random
import stat
import unicodedata
import uuid
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Final, TypeAlias

import apsw
import pytest

from messages.errors import (
    Ambiguous,
    DeletionsRefused,
    InvalidArgument,
    KnowledgeError,
    LimitExceeded,
    NotFound,
    OntologyChanged,
    StaleFence,
)
from messages.json_types import JsonObject
from messages.vocabulary import DIRECTORY_MAX_DEPTH, ONTOLOGY_MAX_BYTES, PRIVATE, RECORD_MAX_BYTES, Partition
from storage import faults
from storage.files import Stamp
from storage.index_feed import IndexFeed
from storage.layout import StoreLayout
from storage.ontology import Ontology, activate, core_activation
from storage.records import Finding, ParsedRecord, content_hash, parse_record
from storage.search import SearchIndex
from storage.state import history, journal
from storage.state.catalogue import CatalogueWriter, catalogue_identity, create_catalogue, known_revision
from storage.state.connection import Database, Row, SqlValue
from storage.state.schema import create_schema
from tests.kit.store import (
    GROUP_PARTITION,
    Desk,
    claim_file,
    copy_store,
    page_file,
    remembering,
    request_id,
    write_note,
)

PARTITIONS: Final = (PRIVATE, GROUP_PARTITION)
WORDS: Final = "garden pilot release option friday budget tulip river été 東京 v2.8.3 jira-summary".split()
TITLES: Final = ("Garden Pilot", "Ann Example", "Été", "Etude", "a b", "a-b", "index", "Release 2.8", "東京")
FOLDERS: Final = ("people", "projects", "deep/er", "claims/2026/11", "")
MOST_FILES: Final = 26
"""In both partitions together: a look at all of them after each step stays cheap."""

MOMENTS: Final = ("target.open", "stage.file", "manifest.stage", "place.file", "place.look", "manifest.place")
_RECIPES: Final = (
    b"format: knowledge-ontology-v1\nextends: core\npages:\n  recipe:\n    description: A dish\n    folder: recipes\n"
    b"    parent: entity\n"
)
EXTENSIONS: Final = (
    None,
    _RECIPES + b"    fields:\n      servings: {type: integer, required: true}\n",
    _RECIPES + b"    prefixes: [people/]\n",
    b"format: knowledge-ontology-v1\nextends: [\n",
    b"# " + b"x" * ONTOLOGY_MAX_BYTES,
)


# --- what the files say ---------------------------------------------------------------------------------------------


def notes_on_disk(root: Path) -> dict[str, tuple[bytes | None, Stamp]]:
    """Every note of a partition's folder by the rules alone; ``None`` for one that is too large to be read."""
    found: dict[str, tuple[bytes | None, Stamp]] = {}
    if not root.is_dir():
        return found
    for folder, folders, names in os.walk(root):
        below = os.path.relpath(folder, root)
        prefix = "" if below == "." else f"{below}/"
        depth = prefix.count("/")
        folders[:] = [
            name
            for name in folders
            if not name.startswith((".", "~$"))
            and not name.lower().endswith(".md")
            and not (not prefix and name == "artifacts")
            and depth < DIRECTORY_MAX_DEPTH
            and not os.path.islink(os.path.join(folder, name))
        ]
        for name in names:
            status = os.lstat(os.path.join(folder, name))
            if name.startswith((".", "~$")) or not name.lower().endswith(".md"):
                continue
            if not stat.S_ISREG(status.st_mode) or status.st_nlink > 1:
                continue
            large = status.st_size > RECORD_MAX_BYTES
            found[prefix + name] = (None if large else (Path(folder) / name).read_bytes(), Stamp.of(status))
    return found


def ontology_on_disk(root: Path, partition: Partition) -> Ontology:
    path = root / "ontology.yaml"
    if partition != PRIVATE or not path.is_file():
        return core_activation().ontology
    return _activated(path.read_bytes())


@lru_cache(maxsize=16)
def _activated(extension: bytes) -> Ontology:
    return activate(extension).ontology


# --- the catalogue, and the same made anew --------------------------------------------------------------------------

_DETAILS: Final = {
    "name": "r.path, d.normalised, d.source",
    "tag": "r.path, d.tag",
    "reference": "r.path, d.role, d.target, d.position",
    "citation": "r.path, d.path, d.sha256, d.position",
    "page": "r.path, d.path, d.file, d.degree",
    "body_link": "r.path, d.form, d.written, (SELECT t.path FROM record t WHERE t.row = d.target)",
}


def _columns(db: Database, table: str, *without: str) -> str:
    return ", ".join(str(row[1]) for row in db.query(f"PRAGMA table_info({table})") if row[1] not in without)


def catalogue_of(db: Database, partition: Partition) -> dict[str, list[Row]]:
    """All rows of one partition but for the numbers of rows and changes, stamps and revisions."""
    found = db.query_one("SELECT id FROM catalogue_partition WHERE key = ?", (partition.key,))
    number: SqlValue = -1 if found is None else found[0]
    rows = {
        "file": db.query("SELECT path, hash, state FROM file WHERE partition = ?", (number,)),
        "record": db.query(
            f"SELECT {_columns(db, 'record', 'row', 'partition', 'change', 'revision')} FROM record "
            "WHERE partition = ?",
            (number,),
        ),
        "finding": db.query("SELECT path, position, code, field FROM finding WHERE partition = ?", (number,)),
        "degree": db.query("SELECT degree, pages FROM degree WHERE partition = ?", (number,)),
    }
    for table, columns in _DETAILS.items():
        rows[table] = db.query(
            f"SELECT {columns} FROM {table} d JOIN record r ON r.row = d.row AND r.partition = d.partition "
            "WHERE d.partition = ?",
            (number,),
        )
        [(orphans,)] = db.query(f"SELECT count(*) FROM {table} WHERE row NOT IN (SELECT row FROM record)")
        assert orphans == 0, table
    return {table: sorted(found, key=repr) for table, found in rows.items()}


class Rebuilder:
    """Makes a partition's catalogue from nothing but its files, in a database beside the store."""

    def __init__(self, path: Path) -> None:
        self._ontology = core_activation().ontology
        self._writer = CatalogueWriter(lambda _: self._ontology)
        self._db = Database.open(path, point_prefix="state", create=True)
        with self._db.transaction(full=False, point="reopen"):
            create_schema(self._db)
            create_catalogue(self._db)

    def rebuild(
        self, partition: Partition, notes: Mapping[str, tuple[bytes | None, Stamp]], ontology: Ontology
    ) -> dict[str, list[Row]]:
        self._ontology = ontology
        with self._db.transaction(full=False, point="reopen"):
            for table in (*_DETAILS, "degree", "finding", "record", "file", "removed", "catalogue_partition"):
                self._db.execute(f"DELETE FROM {table}")
            for path, (data, stamp) in sorted(notes.items(), reverse=True):
                if data is None:
                    self._writer.refuse(self._db, partition, path, stamp, Finding("too_large", "", ""))
                else:
                    self._writer.put(self._db, partition, path, data, stamp)
        return catalogue_of(self._db, partition)

    def close(self) -> None:
        self._db.close()


def index_of(path: Path) -> dict[str, list[tuple[SqlValue, ...]]]:
    """Everything that a keyword index says of each document, whatever slot its text is in."""
    connection = apsw.Connection(str(path), flags=apsw.SQLITE_OPEN_READWRITE)
    try:
        connection.execute("CREATE VIRTUAL TABLE temp.texts USING fts5vocab('main', 'text', 'instance')")
        connection.execute("CREATE VIRTUAL TABLE temp.symbols USING fts5vocab('main', 'symbol', 'instance')")
        connection.execute("CREATE TEMP VIEW documents AS SELECT * FROM document")
        columns = [str(row[1]) for row in connection.execute("PRAGMA table_info(document)") if row[1] != "slot"]
        low = (1 << 40) - 1
        return {
            "document": list(connection.execute(f"SELECT {', '.join(columns)} FROM document ORDER BY row")),
            "tag": list(connection.execute("SELECT row, tag FROM tag ORDER BY row, tag")),
            "text": list(
                connection.execute(f"SELECT doc & {low} AS row, col, offset, term FROM texts ORDER BY 1, 2, 3, 4")
            ),
            "symbol": list(connection.execute("SELECT doc, col, offset, term FROM symbols ORDER BY 1, 2, 3, 4")),
        }
    finally:
        connection.close()


# --- one run --------------------------------------------------------------------------------------------------------


@dataclass
class Known:
    """What the model remembers of one partition from the last look."""

    notes: dict[str, tuple[bytes | None, Stamp]] = field(default_factory=dict)
    revisions: dict[str, int] = field(default_factory=dict)
    shared: set[str] = field(default_factory=set)
    """Ids that several files bore at some time: which of them has the last revision is not told."""
    sequence: int = 0


@dataclass
class Acknowledged:
    partition: Partition
    tool: str
    arguments: JsonObject
    receipt: str


class Run:
    """One seeded run of weighted ``actions``. ``log`` has every step, for the message of a failure."""

    def __init__(
        self,
        made_store: StoreLayout,
        folder: Path,
        seed: int,
        actions: Mapping[Action, int] | None = None,
        most_files: int = MOST_FILES,
    ) -> None:
        self.random = random.Random(seed)
        self.actions = ACTIONS if actions is None else actions
        self.most_files = most_files
        ids = random.Random(seed)
        self._patch = pytest.MonkeyPatch()
        # File names hold ids, and a step chooses among names: the same seed is to be the same run.
        self._patch.setattr(uuid, "uuid4", lambda: uuid.UUID(int=ids.getrandbits(128), version=4))
        self.desk = Desk(copy_store(made_store, folder / "store"))
        self.outside = folder / "outside"
        self.outside.mkdir()
        self.rebuilder = Rebuilder(folder / "rebuilt.sqlite")
        self.known = {partition: Known() for partition in PARTITIONS}
        self.receipts: list[Acknowledged] = []
        self.texts: dict[str, dict[str, bytes]] = {partition.key: {} for partition in PARTITIONS}
        self.log: list[str] = []
        self.snapshots: dict[Partition, list[dict[str, bytes]]] = {partition: [] for partition in PARTITIONS}
        """Older states of the files, as Git would have them."""
        self.made = 0
        self.outcomes: dict[str, int] = {}

    def close(self) -> None:
        self._patch.undo()
        self.desk.close()
        self.rebuilder.close()

    def step(self) -> None:
        for _ in range(self.random.choice((1, 1, 1, 2, 3))):
            self._one()
        if self.random.random() < 0.1:
            self.log.append("reopen")
            self.desk.close(clean=self.random.random() < 0.5)
        self.check()
        if self.random.random() < 0.2:
            self._keep_a_snapshot(self.random.choice(PARTITIONS))

    def _keep_a_snapshot(self, partition: Partition) -> None:
        found = notes_on_disk(self.root(partition))
        kept = self.snapshots[partition]
        kept.append({path: data for path, (data, _) in found.items() if data is not None})
        del kept[:-6]

    def _one(self) -> None:
        partition = self.random.choice((PRIVATE, PRIVATE, GROUP_PARTITION))
        action = self.random.choices(list(self.actions), weights=list(self.actions.values()))[0]
        self.log.append(f"{action.__name__} {partition.kind}")
        try:
            action(self, partition)
        except Skip:
            self.log[-1] += " (nothing to do)"
        except DeletionsRefused:
            self._accept_deletions(partition)

    def _accept_deletions(self, partition: Partition) -> None:
        """What a person does who meant it: losses of many steps count together."""
        self.log.append(f"accept deletions {partition.kind}")
        self.desk.session.partition(partition).accept_deletions()
        self.desk.partition(partition)

    # --- asking ------------------------------------------------------------------------------------------

    def root(self, partition: Partition) -> Path:
        return self.desk.folder(partition)

    def save(self, partition: Partition, tool: str, arguments: JsonObject) -> JsonObject | KnowledgeError:
        """One write with the next request id; typed refusals are outcomes."""
        self.made += 1
        arguments = {**arguments, "requestId": request_id(self.made)}
        try:
            answer = self.desk.call(tool, arguments, partition=partition)
        except (StaleFence, Ambiguous, NotFound, InvalidArgument, LimitExceeded, OntologyChanged) as refusal:
            self._note(type(refusal).__name__)
            return refusal
        # An agent sees a state only when it is not `published`; a repeat of what is known is stored nowhere.
        stored = journal.by_request(self.desk.session.publisher.db, partition, request_id(self.made)) is not None
        self._note(str(answer.get("state", "published" if stored else "repeated")))
        if stored:
            self.receipts.append(Acknowledged(partition, tool, arguments, json.dumps(answer)))
        return answer

    def _note(self, outcome: str) -> None:
        self.log[-1] += f" -> {outcome}"
        self.outcomes[outcome] = self.outcomes.get(outcome, 0) + 1

    def a_note(self, partition: Partition) -> str:
        notes = sorted(notes_on_disk(self.root(partition)))
        if not notes:
            raise Skip
        return self.random.choice(notes)

    def a_small_note(self, partition: Partition) -> tuple[str, bytes]:
        found = {path: data for path, (data, _) in notes_on_disk(self.root(partition)).items() if data is not None}
        if not found:
            raise Skip
        path = self.random.choice(sorted(found))
        self.log[-1] += f" {path}"
        return path, found[path]

    def a_page(self, partition: Partition) -> JsonObject:
        """A page as it was at some look, perhaps just now, with its fences."""
        if self.random.random() < 0.8:
            self.desk.partition(partition)
        db = self.desk.session.publisher.db
        rows = db.query(
            "SELECT r.id, r.revision, r.hash, r.title FROM record r JOIN catalogue_partition p ON p.id = r.partition "
            "WHERE p.key = ? AND r.kind = 'page' ORDER BY r.id, r.path",
            (partition.key,),
        )
        if not rows:
            raise Skip
        record_id, revision, digest, title = self.random.choice(rows)
        return {"id": record_id, "expectedRevision": revision, "expectedHash": digest, "title": title}

    def text(self) -> str:
        return " ".join(self.random.choice(WORDS) for _ in range(self.random.randint(1, 6)))

    def linked_text(self) -> str:
        """Words with links to pages that are there, that were, or that may come."""
        links = [f"[[{self.random.choice(TITLES)}]]" for _ in range(self.random.randrange(4))]
        return " ".join([self.text(), *links, "[t](/people/ann-example.md)"])

    def room(self) -> None:
        if sum(len(notes_on_disk(self.root(partition))) for partition in PARTITIONS) >= self.most_files:
            raise Skip

    # --- checking ----------------------------------------------------------------------------------------

    def check(self) -> None:
        for partition in PARTITIONS:
            self._check_partition(partition)
        if self.receipts:
            self._check_receipt(self.random.choice(self.receipts))

    def _check_partition(self, partition: Partition) -> None:
        try:
            session = self.desk.partition(partition)
        except DeletionsRefused:
            self._accept_deletions(partition)
            session = self.desk.partition(partition)
        db = self.desk.session.publisher.db
        notes = notes_on_disk(self.root(partition))
        ontology = ontology_on_disk(self.root(partition), partition)
        assert session.ontology.fingerprint == ontology.fingerprint
        assert catalogue_of(db, partition) == self.rebuilder.rebuild(partition, notes, ontology)
        for path, known in session.catalogue.files().items():
            # Without events a young file is read at each look instead of being vouched for.
            assert known.stamp in (None, notes[path][1]) or partition != PRIVATE, path
        self._check_revisions(partition, notes)
        self._check_history(partition, notes)

    def _check_revisions(self, partition: Partition, notes: Mapping[str, tuple[bytes | None, Stamp]]) -> None:
        known = self.known[partition]
        session = self.desk.session.partition(partition)
        for row in history.rows(self.desk.session.publisher.db, partition, limit=10_000):
            if row.sequence > known.sequence and row.operation not in ("external", "kept") and row.record_id:
                known.revisions[row.record_id] = max(known.revisions.get(row.record_id, 1), row.revision or 1)
        for path, (data, _) in notes.items():
            parsed = None if data is None else parse_record(data, path)
            entry = session.catalogue.by_path(path)
            if entry is None:
                continue
            assert isinstance(parsed, ParsedRecord)
            if len(session.catalogue.by_id(entry.id)) > 1:
                known.shared.add(entry.id)
            last = known.revisions.get(entry.id, 1)
            wanted = known_revision(parsed.record.revision, last)
            if entry.id not in known.shared:
                assert entry.revision == wanted, f"{path}: the file says {parsed.record.revision}, known was {last}"
            known.revisions[entry.id] = max(last, entry.revision)

    def _check_history(self, partition: Partition, notes: dict[str, tuple[bytes | None, Stamp]]) -> None:
        known, db, texts = self.known[partition], self.desk.session.publisher.db, self.texts[partition.key]
        rows = [row for row in history.rows(db, partition, limit=10_000) if row.sequence > known.sequence]
        for row in rows:
            for digest in (row.hash, row.before):
                if digest is not None:
                    text = history.text(db, digest)
                    assert text is not None
                    assert content_hash(text) == digest
                    texts[digest] = text
        now = {path: content_hash(data) for path, (data, _) in notes.items() if data is not None}
        then = {path: content_hash(data) for path, (data, _) in known.notes.items() if data is not None}
        for path, digest in now.items():
            assert history.text(db, digest) == notes[path][0]
            if then.get(path) != digest:
                assert any((row.path, row.hash) == (path, digest) for row in rows), f"no entry for {path}"
        for path, digest in then.items():
            if path not in now:
                assert any((row.before == digest and row.path != path) or row.path == path for row in rows), path
        known.notes = notes
        known.sequence = max([known.sequence, *(row.sequence for row in rows)])

    def _check_receipt(self, earlier: Acknowledged) -> None:
        answer = self.desk.call(earlier.tool, earlier.arguments, partition=earlier.partition)
        assert json.dumps(answer) == earlier.receipt

    def check_at_the_end(self, folder: Path) -> None:
        """Everything that is too slow to be compared after each step."""
        for earlier in self.receipts:
            self._check_receipt(earlier)
        self.check()
        for partition in PARTITIONS:
            self._check_revisions_are_told(partition)
            self._check_index(partition, folder / f"{partition.kind}.sqlite")
            db = self.desk.session.publisher.db
            for digest, text in self.texts[partition.key].items():
                assert history.text(db, digest) == text
        self.desk.close()
        self.check()

    def _check_revisions_are_told(self, partition: Partition) -> None:
        """``knowledge_revision`` tells the exact bytes of every revision that a record ever had."""
        rows = history.rows(self.desk.session.publisher.db, partition, limit=10_000)
        borne = Counter((row.record_id, row.sequence) for row in rows)
        for row in rows:
            # An id that several files bear has several texts in one look; what is no UTF-8 is shown as it can be.
            if row.record_id is None or row.hash is None or borne[row.record_id, row.sequence] > 1:
                continue
            data = self.texts[partition.key][row.hash]
            try:
                wanted = data.decode()
            except UnicodeDecodeError:
                continue
            told, offset = "", 0
            while True:
                given: JsonObject = {"id": row.record_id, "sequence": row.sequence, "offset": offset}
                answer = self.desk.call("revision", given, partition=partition)
                told += str(answer["content"])
                if "nextOffset" not in answer:
                    break
                assert isinstance(answer["nextOffset"], int)
                offset = answer["nextOffset"]
            assert told == wanted, f"{row.record_id} at {row.sequence}"

    def _check_index(self, partition: Partition, anew: Path) -> None:
        change = self.desk.partition(partition).catalogue.change
        self.desk.catch_up(partition, change)
        db = self.desk.session.publisher.db
        rebuilt = SearchIndex.open(
            anew, vault_id=self.desk.session.vault_id, partition=partition.key, catalogue=catalogue_identity(db)
        )
        feed = IndexFeed(self.desk.layout.state_database)
        try:
            while rebuilt.position() < change:
                found = feed.after(partition, rebuilt.position())
                rebuilt.apply(found.changes, found.position)
        finally:
            feed.close()
            rebuilt.close()
        assert index_of(self.desk.layout.search_index(partition)) == index_of(anew)


class Skip(Exception):
    """There is nothing to do this to."""


Action: TypeAlias = Callable[[Run, Partition], None]


# --- what agents do -------------------------------------------------------------------------------------------------


def remember(run: Run, partition: Partition) -> None:
    run.room()
    items = [f"{run.random.choice(TITLES)} {run.text()}." for _ in range(run.random.randint(1, 3))]
    run.save(partition, "remember", remembering(*items))


def create_page(run: Run, partition: Partition) -> None:
    run.room()
    title = run.random.choice(TITLES)
    more: JsonObject = {"aliases": [run.text()], "tags": [run.random.choice(WORDS)]}
    same = {"allowSameTitle": True} if run.random.random() < 0.3 else {}
    kind = run.random.choice(("person", "project", "concept"))
    run.save(partition, "save_page", {"title": title, "type": kind, "body": run.linked_text(), **more, **same})


def edit_page(run: Run, partition: Partition) -> None:
    kind = run.random.choice(("person", "project"))
    run.save(partition, "save_page", {**run.a_page(partition), "type": kind, "body": run.linked_text()})


def edit_body(run: Run, partition: Partition) -> None:
    page = run.a_page(partition)
    del page["title"]
    fences: JsonObject = {
        "expectedVaultId": run.desk.session.vault_id,
        "expectedOntologyFingerprint": run.desk.session.partition(partition).ontology.fingerprint,
    }
    edit: JsonObject = {"start": 0, "end": 0, "replacement": "x 𝒳 ", "reason": "a word"}
    run.save(partition, "edit_body", {**page, **fences, **edit})


def replay(run: Run, partition: Partition) -> None:
    if not run.receipts:
        raise Skip
    run._check_receipt(run.random.choice(run.receipts))


def save_while_a_person_saves(run: Run, partition: Partition) -> None:
    """The file changes at some moment inside the publication of its edit."""
    page = run.a_page(partition)
    entry = run.desk.session.partition(partition).catalogue.one(str(page["id"]))
    if entry is None:
        raise Skip
    path = run.root(partition) / entry.path
    moment = run.random.choice(MOMENTS)
    run.log[-1] += f" {entry.path} at {moment}"
    with at_point(moment, lambda: save_in_place(path, b"theirs\n" + path.read_bytes() if path.exists() else b"new")):
        run.save(partition, "save_page", {**page, "type": "project", "body": run.text()})


def search(run: Run, partition: Partition) -> None:
    run.desk.call("grep", {"query": run.random.choice(WORDS)}, partition=partition)


# --- what people do -------------------------------------------------------------------------------------------------


def save_in_place(path: Path, data: bytes) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)


def save_by_rename(path: Path, data: bytes) -> None:
    beside = path.with_name(f".{path.name}.swp")
    beside.write_bytes(data)
    beside.rename(path)


def write(run: Run, path: Path, data: bytes) -> None:
    """Save as one of the two kinds of editors does."""
    run.random.choice((save_in_place, save_by_rename))(path, data)


def edit_text(run: Run, partition: Partition) -> None:
    path, data = run.a_small_note(partition)
    write(run, run.root(partition) / path, data + run.text().encode() + b"\n")


def edit_title(run: Run, partition: Partition) -> None:
    path, data = run.a_small_note(partition)
    title = run.random.choice(TITLES).encode()
    write(run, run.root(partition) / path, replace_line(data, b"title:", b"title: " + title))


def replace_line(data: bytes, start: bytes, line: bytes) -> bytes:
    return b"".join(line + b"\n" if found.startswith(start) else found for found in data.splitlines(keepends=True))


def change_id(run: Run, partition: Partition) -> None:
    """The file becomes another record: a new one, or a second bearer of a known id."""
    path, data = run.a_small_note(partition)
    wanted = f"hand-{run.random.randint(1, 8)}".encode()
    write(run, run.root(partition) / path, replace_line(data, b"id:", b"id: " + wanted))


def change_revision(run: Run, partition: Partition) -> None:
    path, data = run.a_small_note(partition)
    revision = run.random.choice((b"1", b"7", b"-3", b"x", str(2**60).encode()))
    write(run, run.root(partition) / path, replace_line(data, b"revision:", b"revision: " + revision))


def change_scope(run: Run, partition: Partition) -> None:
    path, data = run.a_small_note(partition)
    scope = run.random.choice(
        (
            b'scope: {"visibility": "private"}',
            b'scope: {"visibility": "conversation", "sessionId": "' + str(GROUP_PARTITION.session_id).encode() + b'"}',
            b"scope: public",
            b"# no scope",
        )
    )
    write(run, run.root(partition) / path, replace_line(data, b"scope:", scope))


def change_line_ends(run: Run, partition: Partition) -> None:
    path, data = run.a_small_note(partition)
    there = data.replace(b"\r\n", b"\n")
    write(run, run.root(partition) / path, there if there != data else data.replace(b"\n", b"\r\n"))


def truncate(run: Run, partition: Partition) -> None:
    path, data = run.a_small_note(partition)
    os.truncate(run.root(partition) / path, run.random.randint(0, len(data)))


def break_yaml(run: Run, partition: Partition) -> None:
    path, data = run.a_small_note(partition)
    write(run, run.root(partition) / path, data.replace(b"---\n", b"---\nbroken: [a\n", 1))


def put_an_earlier_text_back(run: Run, partition: Partition) -> None:
    """What stood in some file of the partition at some time: a mended file, a restored backup."""
    texts = run.texts[partition.key]
    if not texts:
        raise Skip
    path = run.a_note(partition)
    write(run, run.root(partition) / path, texts[run.random.choice(sorted(texts))])


def make_huge(run: Run, partition: Partition) -> None:
    if partition == PRIVATE or run.random.random() < 0.7:
        raise Skip
    os.truncate(run.root(partition) / run.a_note(partition), RECORD_MAX_BYTES + 1)


def touch(run: Run, partition: Partition) -> None:
    os.utime(run.root(partition) / run.a_note(partition))


def same_size_and_time(run: Run, partition: Partition) -> None:
    path, data = run.a_small_note(partition)
    target = run.root(partition) / path
    before = target.stat()
    target.write_bytes(data.swapcase() if data.isascii() and run.random.random() < 0.2 else data[:-2] + b"!\n")
    os.utime(target, ns=(before.st_atime_ns, before.st_mtime_ns))


def add(run: Run, partition: Partition) -> None:
    run.room()
    record_id = f"hand-{run.random.randint(1, 8)}"
    folder, name = run.random.choice(FOLDERS), f"{run.random.choice(TITLES)}{run.random.randint(1, 4)}.md"
    text = run.random.choice(
        (
            page_file(record_id, run.random.choice(TITLES), type="person", partition=partition, tags=["tulip"]),
            page_file(record_id, run.text(), type=None, partition=partition, aliases=["Garden Pilot"]),
            page_file(record_id, run.text(), type="recipe", partition=partition),
            claim_file(record_id, run.text(), partition=partition, entities=["hand-1", "hand-2"]),
            "# only Markdown\n",
        )
    )
    write_note(run.root(partition), f"{folder}/{name}".lstrip("/"), text)


def copy(run: Run, partition: Partition) -> None:
    run.room()
    path, data = run.a_small_note(partition)
    save_in_place(run.root(partition) / f"{path[:-3]} copy.md", data)


def move(run: Run, partition: Partition) -> None:
    root, path = run.root(partition), run.a_note(partition)
    target = root / run.random.choice(FOLDERS) / f"moved-{run.random.randint(1, 9)}.md"
    target.parent.mkdir(parents=True, exist_ok=True)
    (root / path).rename(target)


def move_to_the_other_partition(run: Run, partition: Partition) -> None:
    other = PARTITIONS[1 - PARTITIONS.index(partition)]
    path = run.a_note(partition)
    target = run.root(other) / path
    target.parent.mkdir(parents=True, exist_ok=True)
    (run.root(partition) / path).rename(target)


def rename_a_folder(run: Run, partition: Partition) -> None:
    root = run.root(partition)
    folders = [found for found in sorted(root.glob("*")) if found.is_dir() and found.name != "artifacts"]
    target = root / f"folder-{run.random.randint(1, 5)}"
    if not folders or target.exists():
        raise Skip
    run.random.choice(folders).rename(target)


def swap_two_files(run: Run, partition: Partition) -> None:
    root, first, second = run.root(partition), run.a_note(partition), run.a_note(partition)
    (root / first).rename(run.outside / "held")
    if first != second:
        (root / second).rename(root / first)
    (run.outside / "held").rename(root / second)


def delete(run: Run, partition: Partition) -> None:
    (run.root(partition) / run.a_note(partition)).unlink()


def link(run: Run, partition: Partition) -> None:
    """A symbolic link in its place. (A second name elsewhere sends no event: it shows at the slow look.)"""
    path = run.root(partition) / run.a_note(partition)
    name = run.outside / f"link-{len(list(run.outside.iterdir()))}"
    path.rename(name)
    path.symlink_to(name)


def unlink_links(run: Run, partition: Partition) -> None:
    for name in run.outside.glob("link-*"):
        name.unlink()
    for found in list(run.root(partition).rglob("*")):
        if found.is_symlink():
            found.unlink()


def edit_the_ontology(run: Run, partition: Partition) -> None:
    path, data = run.root(PRIVATE) / "ontology.yaml", run.random.choice(EXTENSIONS)
    if data is not None:
        write(run, path, data)
    elif path.exists():
        path.unlink()


def folder_gone(run: Run, partition: Partition) -> None:
    """A folder is taken out of the vault, or unmounted; a query may come before it is back."""
    root = run.root(partition)
    folders = [found for found in sorted(root.glob("*")) if found.is_dir() and found.name != "artifacts"]
    if not folders:
        raise Skip
    folder = run.random.choice(folders)
    away = run.outside / f"away-{partition.kind}-{len(list(run.outside.iterdir()))}-{folder.name}"
    folder.rename(away)
    run.log[-1] += f" {folder.name}"
    if run.random.random() < 0.5:
        run.log[-1] += ", asked, and back"
        try:
            run.desk.partition(partition)
        finally:  # even when so great a loss is refused
            away.rename(folder)


def folder_back(run: Run, partition: Partition) -> None:
    """What was taken away at some time comes back, beside or in the place of what came since."""
    waiting = sorted(run.outside.glob(f"away-{partition.kind}-*"))
    if not waiting:
        raise Skip
    found = run.random.choice(waiting)
    target = run.root(partition) / found.name.split("-", 3)[3]
    if target.exists():
        target = target.with_name(f"{target.name}-again")
    if target.exists():
        raise Skip
    found.rename(target)


def check_out(run: Run, partition: Partition) -> None:
    """All files at once as they were at an earlier time, each of those that differ with another inode, as Git does."""
    if not run.snapshots[partition]:
        raise Skip
    wanted = run.random.choice(run.snapshots[partition])
    root, now = run.root(partition), notes_on_disk(run.root(partition))
    for path in sorted(now.keys() | wanted.keys()):
        if path in now and now[path][0] == wanted.get(path):
            continue
        target = root / path
        try:
            target.unlink(missing_ok=True)
            if path in wanted:
                save_in_place(target, wanted[path])
        except (FileExistsError, NotADirectoryError, IsADirectoryError):
            continue  # a folder has a file's name since, or the other way round


def twin(run: Run, partition: Partition) -> None:
    """The same text under a name that differs by case or by Unicode form only."""
    run.room()
    path, data = run.a_small_note(partition)
    folder, _, name = path.rpartition("/")
    other = run.random.choice((name.swapcase(), unicodedata.normalize("NFD", name), unicodedata.normalize("NFC", name)))
    save_in_place(run.root(partition) / folder / f"{other[:-3]}.md", data)


def replace_by_the_same(run: Run, partition: Partition) -> None:
    """Gone for a moment, and there again with the same text."""
    path, data = run.a_small_note(partition)
    (run.root(partition) / path).unlink()
    if run.random.random() < 0.5:
        run.desk.partition(partition)
    save_in_place(run.root(partition) / path, data)


# --- what the store does by itself ----------------------------------------------------------------------------------


def look_at_named_files(run: Run, partition: Partition) -> None:
    """The slow look, and maintenance, read some files whatever their stamps say; here without a query before."""
    session = run.desk.session.partition(partition)
    known = sorted(session.catalogue.files())
    if known:
        session.read_again(run.random.sample(known, run.random.randint(1, min(4, len(known)))))


def prove_the_watch(run: Run, partition: Partition) -> None:
    assert run.desk.session.partition(partition).test_watch()


def lose_the_events(run: Run, partition: Partition) -> None:
    """What an overflow of the queue comes to."""
    run.desk.session.partition(partition)._watch.invalidate()


def vanish_while_it_is_read(run: Run, partition: Partition) -> None:
    path = run.root(partition) / run.a_note(partition)
    os.utime(path)
    with at_point("edits.read", lambda: path.unlink(missing_ok=True)):
        run.desk.partition(partition)


@contextmanager
def at_point(name: str, action: Callable[[], None]) -> Iterator[None]:
    """Run ``action`` once when the point is passed."""
    passed: list[str] = []

    def handler(point: str) -> None:
        if point == name and not passed:
            passed.append(point)
            action()

    with faults.installed(handler):
        yield


ACTIONS: Final[Mapping[Action, int]] = {
    remember: 8,
    create_page: 9,
    edit_page: 9,
    edit_body: 6,
    replay: 3,
    save_while_a_person_saves: 6,
    search: 3,
    edit_text: 8,
    edit_title: 4,
    change_id: 4,
    change_revision: 4,
    change_scope: 3,
    change_line_ends: 4,
    truncate: 3,
    break_yaml: 3,
    put_an_earlier_text_back: 8,
    make_huge: 2,
    touch: 2,
    same_size_and_time: 3,
    add: 10,
    copy: 4,
    move: 6,
    move_to_the_other_partition: 3,
    rename_a_folder: 4,
    swap_two_files: 4,
    delete: 5,
    folder_gone: 3,
    folder_back: 4,
    check_out: 4,
    twin: 2,
    replace_by_the_same: 3,
    look_at_named_files: 4,
    prove_the_watch: 2,
    lose_the_events: 2,
    vanish_while_it_is_read: 2,
    link: 2,
    unlink_links: 2,
    edit_the_ontology: 4,
}


def follow(
    made_store: StoreLayout,
    folder: Path,
    seed: int,
    steps: int,
    actions: Mapping[Action, int] | None = None,
    most_files: int = MOST_FILES,
) -> dict[str, int]:
    """One run; how often each outcome of a save was met."""
    run = Run(made_store, folder, seed, actions, most_files)
    try:
        for number in range(steps):
            try:
                run.step()
            except Exception as error:
                error.add_note(f"seed {seed}, step {number}; the last steps:\n" + "\n".join(run.log[-12:]))
                raise
        run.check_at_the_end(folder)
        return run.outcomes
    finally:
        run.close()


@pytest.mark.parametrize("seed", range(3))
def test_the_store_equals_its_files_under_any_interleaving(made_store: StoreLayout, tmp_path: Path, seed: int) -> None:
    outcomes = follow(made_store, tmp_path, seed, 40)
    assert outcomes["published"] > 5


@pytest.mark.exhaustive
@pytest.mark.timeout(600)
@pytest.mark.parametrize("seed", range(101, 105))
def test_the_store_equals_its_files_under_long_interleavings(
    made_store: StoreLayout, tmp_path: Path, seed: int
) -> None:
    outcomes = follow(made_store, tmp_path, seed, 400, most_files=MOST_FILES * (1 + seed % 2))
    assert {"published", "StaleFence", "Ambiguous"} <= outcomes.keys()


def test_a_catalogue_row_that_its_file_does_not_explain_is_found(made_store: StoreLayout, tmp_path: Path) -> None:
    """The comparison above can fail: one wrong row is enough."""
    run = Run(made_store, tmp_path, 1)
    try:
        write_note(run.root(PRIVATE), "a.md", page_file("a", "A", aliases=["B"]))
        run.check()
        with run.desk.session.publisher.transaction(full=False, point="reopen"):
            run.desk.session.publisher.db.execute("UPDATE name SET normalised = 'c' WHERE source = 'alias'")
        with pytest.raises(AssertionError):
            run.check()
    finally:
        run.close()

"""The catalogue's writer: keeps one partition's rows equal to what its files say.

It is the :class:`~storage.publication.Projection` of every store: called inside the publication's transaction with
a path and its bytes, on the lane's thread. Everything here can be rebuilt from the files and history, and text is
not copied: a row refers to the blob of its hash.

Source: DESIGN.md (storage/state), decisions.md section 2.
"""

from __future__ import annotations

import hashlib
import uuid
from collections.abc import Callable, Iterable, Mapping, Sequence
from importlib import resources
from typing import Final, assert_never

from messages.vocabulary import Partition
from storage.faults import effect
from storage.files import Stamp
from storage.layout import is_artifact
from storage.ontology import Ontology, validate_page, validate_relationship
from storage.records import (
    BrokenRecord,
    Finding,
    Interval,
    ParsedRecord,
    Record,
    content_hash,
    normalise_name,
    parse_instant,
    parse_record,
    utf16,
)
from storage.records.link_keys import link_keys
from storage.state.catalogue_reader import CatalogueReader, Entry
from storage.state.connection import Database, SqlValue
from storage.state.page_links import Identity, PageLinks
from storage.state.page_ties import about

MARKDOWN_SUFFIX: Final = ".md"
REVISION_READ_MAX: Final = 2**52
"""A larger one, written by hand, could not rise with the next publication in every JSON reader."""


def create_catalogue(db: Database) -> None:
    """Create the catalogue's tables in a new state database, inside the caller's transaction."""
    with effect("schema.read"):
        schema = resources.files("storage.state").joinpath("catalogue.sql").read_text("utf-8")
    db.execute_script(schema)
    db.execute("INSERT INTO catalogue_identity VALUES (?)", (str(uuid.uuid4()),))


def replace_catalogue(db: Database) -> None:
    """Make the tables anew, in a database of an earlier version too, inside the caller's transaction.

    Which files there are is kept, and each partition is marked as judged by another ontology: its next session makes
    the rows again from the texts of these files.
    """
    for table in _KEPT:
        db.execute(f"ALTER TABLE {table} RENAME TO earlier_{table}")
    for table in _MADE_ANEW:
        db.execute(f"DROP TABLE IF EXISTS {table}")  # an earlier version has fewer
    for (index,) in db.query("SELECT name FROM sqlite_schema WHERE type = 'index' AND tbl_name LIKE 'earlier_%'"):
        if not str(index).startswith("sqlite_"):
            db.execute(f"DROP INDEX {index}")
    create_catalogue(db)
    for table, columns in _KEPT.items():
        db.execute(f"INSERT INTO {table} ({columns}) SELECT {columns} FROM earlier_{table}")
    db.execute("UPDATE catalogue_partition SET ontology = 'earlier'")
    for table in reversed(_KEPT):
        db.execute(f"DROP TABLE earlier_{table}")


_KEPT: Final = {
    "catalogue_partition": "id, key, change, withheld",
    "file": "partition, path, hash, state, device, inode, size, mtime_ns, ctime_ns",
    "finding": "partition, path, position, code, field, message",
}
# In an order in which no row is left that refers to one that is gone.
_MADE_ANEW: Final = (
    "name", "tag", "reference", "citation", "removed", "page", "degree", "body_link", "tie", "neighbour", "record",
    "ontology_file", "catalogue_identity",
)  # fmt: skip


def catalogue_identity(db: Database) -> str:
    """The catalogue whose changes are counted; another one after a rebuild, so that followers start again."""
    found = db.query_one("SELECT id FROM catalogue_identity")
    assert found is not None
    return str(found[0])


def is_note(path: str) -> bool:
    """Whether a path relative to its partition is a note, which a record must be."""
    return path.lower().endswith(MARKDOWN_SUFFIX) and not is_artifact(path)


def known_revision(written: int, last_known: int) -> int:
    """The revision that counts: the file's, or the last known one where the file lowers it or leaves no room above."""
    return max(written if written <= REVISION_READ_MAX else 0, last_known)


def claim_key(text: str, claim_kind: str, entities: Sequence[str]) -> str:
    """What two claims share exactly when one repeats the other: normalised text, kind and linked subjects."""
    parts = "\x1f".join((normalise_name(text), claim_kind, *sorted(set(entities))))
    return hashlib.sha256(parts.encode()).hexdigest()


def partition_row(db: Database, partition: Partition) -> int:
    """The catalogue's number of a partition, made on first use inside the caller's transaction."""
    found = db.query_one("SELECT id FROM catalogue_partition WHERE key = ?", (partition.key,))
    if found is not None:
        return int(found[0])
    db.execute("INSERT INTO catalogue_partition (key) VALUES (?)", (partition.key,))
    return db.last_insert_rowid


def _next_change(db: Database, partition: Partition) -> tuple[int, int]:
    """The catalogue's number of a partition, made on first use, and its next change."""
    counted = "UPDATE catalogue_partition SET change = change + 1 WHERE key = ? RETURNING id, change"
    found = db.query_one(counted, (partition.key,))
    if found is None:
        partition_row(db, partition)
        found = db.query_one(counted, (partition.key,))
        assert found is not None
    return int(found[0]), int(found[1])


class CatalogueWriter:
    """Projects files onto rows. ``ontology_of`` gives the vocabulary by which a partition's pages are judged."""

    def __init__(self, ontology_of: Callable[[Partition], Ontology]) -> None:
        self._ontology_of = ontology_of
        self._read: dict[str, ParsedRecord | BrokenRecord] = {}

    def read(self, data: bytes, path: str) -> ParsedRecord | BrokenRecord:
        """The record that ``data`` is; kept for the :meth:`put` that may follow, so that no file is parsed twice."""
        found = self._read[path] = parse_record(data, path)
        return found

    def forget_read(self) -> None:
        """Let go of what was read and not put."""
        self._read.clear()

    def put(
        self,
        db: Database,
        partition: Partition,
        path: str,
        data: bytes,
        stamp: Stamp | None,
        *,
        revision: int | None = None,
    ) -> None:
        """``path`` holds ``data`` now. Files that are no records leave no row.

        ``revision`` is the last one that history has of the record, looked up where the caller does not know it.
        """
        if not is_note(path):
            return
        parsed = self._read.pop(path, None)
        if parsed is None or parsed.hash != content_hash(data):
            parsed = parse_record(data, path)
        if isinstance(parsed, ParsedRecord) and in_scope(parsed, partition):
            number, change = _next_change(db, partition)
            self._put_file(db, number, path, parsed.hash, "record", stamp)
            if revision is None:
                revision = _last_revision(db, partition, parsed.record.id)
            self._put_record(CatalogueReader(db, partition, number), parsed, change, revision)
            return
        number = partition_row(db, partition)
        match parsed:
            case BrokenRecord():
                self._forget(db, number, partition, path)
                self._put_file(db, number, path, parsed.hash, "broken", stamp)
                self._put_findings(db, number, path, parsed.findings)
            case ParsedRecord():
                self._forget(db, number, partition, path)
                self._put_file(db, number, path, parsed.hash, "withheld", stamp)
                self._put_findings(db, number, path, ())

    def remove(self, db: Database, partition: Partition, path: str) -> None:
        """``path`` holds nothing any more."""
        number = partition_row(db, partition)
        self._forget(db, number, partition, path)
        db.execute("DELETE FROM file WHERE partition = ? AND path = ?", (number, path))
        db.execute("DELETE FROM finding WHERE partition = ? AND path = ?", (number, path))

    def refuse(self, db: Database, partition: Partition, path: str, stamp: Stamp | None, finding: Finding) -> None:
        """``path`` holds a file that is not read: named in diagnostics, looked at again when it changes, or at each
        scan when ``stamp`` is ``None``."""
        number = partition_row(db, partition)
        self._forget(db, number, partition, path)
        self._put_file(db, number, path, "", "broken", stamp)
        self._put_findings(db, number, path, (finding,))

    def stamp(self, db: Database, partition: Partition, stamps: Sequence[tuple[str, Stamp]]) -> None:
        """Note that these files were read and hold what their rows say."""
        number = partition_row(db, partition)
        db.execute_many(
            "UPDATE file SET device = ?, inode = ?, size = ?, mtime_ns = ?, ctime_ns = ? "
            "WHERE partition = ? AND path = ?",
            [(*_columns(stamp), number, path) for path, stamp in stamps],
        )

    # --- inside ----------------------------------------------------------------------------------------

    def _put_record(self, reader: CatalogueReader, parsed: ParsedRecord, change: int, last_revision: int) -> None:
        db, number, record = reader.database, reader.number, parsed.record
        ontology = self._ontology_of(reader.partition)
        page_type = type_of(ontology, record, parsed.path)
        findings = (*parsed.findings, *judged_alone(ontology, record, page_type))
        valid = not any(finding.severity == "error" for finding in findings)
        links = PageLinks(reader)
        known = reader.by_path(parsed.path)
        before = None if known is None else links.identity(known)
        values = (
            parsed.path,
            record.id,
            parsed.hash,
            known_revision(record.revision, last_revision),
            record.kind,
            page_type,
            record.title,
            record.lifecycle,
            int(valid),
            int(record.fixture),
            record.claim_kind or "",
            record.assertion_origin or "",
            claim_key(record.text, record.claim_kind or "", record.entities) if record.kind == "claim" else "",
            record.source_page or "",
            record.merged_into or "",
            record.superseded_by or "",
            utf16.length(record.body),
            parse_instant(record.recorded_at) or 0,
            parse_instant(record.updated_at) or 0,
            *_bounds(record.occurred_at),
            *_bounds(record.due_at),
            None if record.expires_at is None else record.expires_at.end_ms,
            change,
        )
        if known is None:
            db.execute(_INSERT_RECORD, (number, *values))
            row = db.last_insert_rowid
        else:
            row = known.row
            _update_record(db, known, values)
        names = {(normalise_name(record.title), "title"), *((normalise_name(a), "alias") for a in record.aliases)}
        named = [*references(record), *(("field", target) for target in field_pages(ontology, record, page_type))]
        details: Mapping[str, Iterable[tuple[SqlValue, ...]]] = {
            "name": names,
            "tag": ((tag,) for tag in record.tags),
            "reference": ((target, role, position) for position, (role, target) in enumerate(named)),
            "citation": ((item.path, item.sha256, position) for position, item in enumerate(record.evidence)),
        }
        for table, wanted in details.items():
            _put_details(db, table, number, row, set(wanted), new=known is None)
        self._put_findings(db, number, parsed.path, findings)
        after = Identity.of(row, record, path=parsed.path, valid=valid, names=(name for name, _ in names))
        links.follow(before, after, link_keys(record.body, parsed.path), about(record, valid=valid))

    def _put_file(self, db: Database, number: int, path: str, digest: str, state: str, stamp: Stamp | None) -> None:
        columns = (None,) * 5 if stamp is None else _columns(stamp)
        db.execute(
            "INSERT OR REPLACE INTO file (partition, path, hash, state, device, inode, size, mtime_ns, ctime_ns) "
            "VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)",
            (number, path, digest, state, *columns),
        )

    def _put_findings(self, db: Database, number: int, path: str, findings: Sequence[Finding]) -> None:
        db.execute("DELETE FROM finding WHERE partition = ? AND path = ?", (number, path))
        db.execute_many(
            "INSERT INTO finding (partition, path, position, code, field, message) VALUES (?, ?, ?, ?, ?, ?)",
            [(number, path, index, f.code, f.field, f.message) for index, f in enumerate(findings)],
        )

    def _forget(self, db: Database, number: int, partition: Partition, path: str) -> None:
        reader = CatalogueReader(db, partition, number)
        known = reader.by_path(path)
        if known is None:
            return
        _, change = _next_change(db, partition)
        links = PageLinks(reader)
        before = links.identity(known)
        self._forget_details(db, known.row)
        db.execute("DELETE FROM record WHERE row = ?", (known.row,))
        db.execute("INSERT INTO removed (partition, change, row) VALUES (?, ?, ?)", (number, change, known.row))
        links.follow(before, None, ())

    def _forget_details(self, db: Database, row: int) -> None:
        for table in _DETAILS:
            db.execute(f"DELETE FROM {table} WHERE row = ?", (row,))


def _update_record(db: Database, known: Entry, values: Sequence[SqlValue]) -> None:
    """Set what is different: an index with a column of the statement is written anew, be the value the same or not."""
    changed = [(name, value) for name, value in zip(_COLUMNS, values, strict=True) if getattr(known, name) != value]
    columns = ", ".join(f"{name} = ?" for name, _ in changed)
    db.execute(f"UPDATE record SET {columns} WHERE row = ?", (*(value for _, value in changed), known.row))


def _put_details(
    db: Database, table: str, number: int, row: int, wanted: set[tuple[SqlValue, ...]], *, new: bool
) -> None:
    """Make ``wanted`` the row's details in one table; what stands there already is not written again."""
    columns = _DETAILS[table]
    stored = set() if new else set(db.query(f"SELECT {', '.join(columns)} FROM {table} WHERE row = ?", (row,)))
    if stored == wanted:
        return
    if stored - wanted:
        same = " AND ".join(f"{column} = ?" for column in columns)
        db.execute_many(
            f"DELETE FROM {table} WHERE partition = ? AND row = ? AND {same}",
            [(number, row, *values) for values in stored - wanted],
        )
    marks = ", ".join("?" * (len(columns) + 2))
    db.execute_many(
        f"INSERT OR IGNORE INTO {table} (partition, row, {', '.join(columns)}) VALUES ({marks})",
        [(number, row, *values) for values in sorted(wanted - stored)],
    )


# A reference can only be judged beside the other records, and their order of arrival must not matter: it is
# judged when a record is read or written, not when its file is catalogued.
_JUDGED_BESIDE_OTHERS: Final = frozenset(("reference_missing", "reference_type"))


def type_of(ontology: Ontology, record: Record, path: str) -> str:
    """The canonical page type (by its path for an untyped page) or label; what is unknown stays as written."""
    match record.kind:
        case "page":
            named = record.type if record.type is not None else ontology.classify(path)
            known = None if named is None else ontology.page_type(named)
            return known.name if known is not None else named or ""
        case "relationship":
            label = None if record.label is None else ontology.relationship_type(record.label)
            return label.name if label is not None else record.label or ""
        case "claim":
            return ""


def judged_alone(ontology: Ontology, record: Record, resolved_type: str) -> list[Finding]:
    """What the ontology says against a record whatever other records there are."""
    match record.kind:
        case "page":
            found = validate_page(ontology, resolved_type or None, record.fields, _nobody)
        case "relationship":
            found = validate_relationship(ontology, record.label, record.from_id, record.to_id, record.fields, _nobody)
        case "claim":
            found = []
        case _:
            assert_never(record.kind)
    return [finding for finding in found if finding.code not in _JUDGED_BESIDE_OTHERS]


def _nobody(record_id: str) -> str | None:
    return None


def field_pages(ontology: Ontology, record: Record, page_type: str) -> list[str]:
    """The ids in the fields that name pages by the ontology, each once."""
    if not record.fields:
        return []
    known = ontology.relationship_type(page_type) if record.kind == "relationship" else ontology.page_type(page_type)
    fields = {} if known is None else known.fields
    found: dict[str, None] = {}
    for name, value in record.fields.items():
        kind = fields.get(name)
        if kind is not None and kind.type == "list":
            kind = kind.element
        if kind is not None and kind.type == "page":
            values = value if isinstance(value, list | tuple) else [value]
            # Digits alone are an id too, though YAML reads them as a number.
            found |= dict.fromkeys(str(item) for item in values if isinstance(item, str) or type(item) is int)
    return list(found)


SOURCE_KEY_ROLE: Final = "source_key"
"""The role of the key under which a page of type ``source`` finds its source again."""


def references(record: Record) -> list[tuple[str, str]]:
    """The ids that a record names, each with the role in which it names them; the first entity is the subject.

    A page's field ``key`` stands beside them under its own role, whatever the page's type: that is in the row.
    """
    key = record.fields.get("key") if record.kind == "page" else None
    single = (
        ("owner", record.owner),
        ("source_page", record.source_page),
        ("from", record.from_id),
        ("to", record.to_id),
        ("merged_into", record.merged_into),
        ("supersedes", record.supersedes),
        ("superseded_by", record.superseded_by),
        (SOURCE_KEY_ROLE, key if isinstance(key, str) and key else None),
    )
    many = (
        ("entity", record.entities),
        ("dependency", record.dependencies),
        ("continuity", record.continuity),
    )
    return [(role, target) for role, targets in many for target in targets] + [
        (role, target) for role, target in single if target is not None
    ]


_COLUMNS: Final = (
    "path", "id", "hash", "revision", "kind", "type", "title", "lifecycle", "valid", "fixture", "claim_kind",
    "assertion_origin", "claim_key", "source_page", "merged_into", "superseded_by", "body_size", "recorded_at",
    "updated_at", "occurred_from", "occurred_until", "due_from", "due_until", "expires_at", "change",
)  # fmt: skip
"""The columns of a record that follow from its file."""
_INSERT_RECORD: Final = (
    f"INSERT INTO record (partition, {', '.join(_COLUMNS)}) VALUES ({', '.join('?' * (len(_COLUMNS) + 1))})"
)
_DETAILS: Final[Mapping[str, tuple[str, ...]]] = {
    "name": ("normalised", "source"),
    "tag": ("tag",),
    "reference": ("target", "role", "position"),
    "citation": ("path", "sha256", "position"),
}
"""The tables with several rows of one record, and what differs between them."""


def in_scope(parsed: ParsedRecord, partition: Partition) -> bool:
    """Scope comes from the folder; a file without one, or that claims another, is withheld and never relabelled."""
    record = parsed.record
    if any(finding.field == "scope" for finding in parsed.findings):
        return False
    return record.scope.visibility == partition.kind and record.scope.session_id == partition.session_id


def _last_revision(db: Database, partition: Partition, record_id: str) -> int:
    """The last one that history has of a record: it counts where a file lowers or breaks its own."""
    found = db.query_one(
        "SELECT h.revision FROM history h JOIN partition p ON p.id = h.partition "
        "WHERE p.key = ? AND h.record_id = ? AND h.revision IS NOT NULL ORDER BY h.sequence DESC LIMIT 1",
        (partition.key, record_id),
    )
    return 1 if found is None else int(found[0])


def _bounds(interval: Interval | None) -> tuple[int | None, int | None]:
    return (None, None) if interval is None else (interval.start_ms, interval.end_ms)


def _columns(stamp: Stamp) -> tuple[int, int, int, int, int]:
    return stamp.device, stamp.inode, stamp.size, stamp.mtime_ns, stamp.ctime_ns

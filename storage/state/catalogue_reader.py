"""The catalogue's reader: one partition's rows as frozen entries. Every query names its partition first.

Runs on the thread that owns the connection; reads only. Source: decisions.md sections 2 and 5.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Literal

from messages.json_types import JsonObject
from messages.vocabulary import AssertionOrigin, ClaimKind, Lifecycle, Partition, RecordKind
from storage.files import Stamp
from storage.records import normalise_name
from storage.state.connection import Database, Row, SqlValue

REDIRECTS_MAX: Final = 16
MERGED_AWAY_MAX: Final = 100
ORIGIN_CHARS: Final = 12


@dataclass(frozen=True, slots=True)
class Entry:
    """One record as the catalogue knows it. Times are UTC milliseconds; ``type`` is the page type or the label."""

    row: int
    path: str
    id: str
    hash: str
    revision: int
    kind: RecordKind
    type: str
    title: str
    lifecycle: Lifecycle
    valid: bool
    fixture: bool
    claim_kind: ClaimKind | Literal[""]
    assertion_origin: AssertionOrigin | Literal[""]
    claim_key: str
    source_page: str
    merged_into: str
    superseded_by: str
    body_size: int
    recorded_at: int
    updated_at: int
    occurred_from: int | None
    occurred_until: int | None
    due_from: int | None
    due_until: int | None
    expires_at: int | None
    change: int

    def current(self, now_ms: int) -> bool:
        """Current, eligible: active, valid, in scope, not expired, not a fixture (decisions.md section 2)."""
        return (
            self.lifecycle == "active"
            and self.valid
            and not self.fixture
            and (self.expires_at is None or self.expires_at > now_ms)
        )


_STANDING: Final = "r.lifecycle = 'active' AND r.valid = 1 AND r.fixture = 0"
CURRENT: Final = f"{_STANDING} AND (r.expires_at IS NULL OR r.expires_at > ?)"
""":meth:`Entry.current` as a condition on the record ``r``; its one parameter is the time."""


@dataclass(frozen=True, slots=True)
class KnownFile:
    """A file as it was when it was last read; ``stamp`` is ``None`` when it must be read again."""

    hash: str
    state: Literal["record", "broken", "withheld"]
    stamp: Stamp | None


_COLUMNS: Final = (
    "row, path, id, hash, revision, kind, type, title, lifecycle, valid, fixture, claim_kind, assertion_origin, "
    "claim_key, source_page, merged_into, superseded_by, body_size, recorded_at, updated_at, occurred_from, "
    "occurred_until, due_from, due_until, expires_at, change"
)
_QUALIFIED: Final = ", ".join(f"r.{column.strip()}" for column in _COLUMNS.split(","))


class CatalogueReader:
    """Queries on one partition. An unknown partition simply has no rows."""

    def __init__(self, db: Database, partition: Partition, number: int | None = None) -> None:
        """``number`` is the catalogue's for the partition, where the caller knows it."""
        self._db = db
        self._number = number
        self._origin: str | None = None
        self.partition = partition

    @property
    def database(self) -> Database:
        """The connection that is read."""
        return self._db

    @property
    def number(self) -> int:
        """The catalogue's number of this partition; -1 before its first row. It never changes afterwards."""
        if self._number is None:
            found = self._db.query_one("SELECT id FROM catalogue_partition WHERE key = ?", (self.partition.key,))
            if found is None:
                return -1
            self._number = int(found[0])
        return self._number

    @property
    def origin(self) -> str:
        """Names this partition of this store in what callers send back: no snapshot or cursor is good elsewhere."""
        if self._origin is None:
            found = self._db.query_one("SELECT id FROM catalogue_identity")
            assert found is not None
            self._origin = hashlib.sha256(f"{found[0]}/{self.partition.key}".encode()).hexdigest()[:ORIGIN_CHARS]
        return self._origin

    @property
    def change(self) -> int:
        """Rises with every row put or removed; the partition's snapshot."""
        found = self._db.query_one("SELECT change FROM catalogue_partition WHERE key = ?", (self.partition.key,))
        return 0 if found is None else int(found[0])

    def snapshot(self, now_ms: int) -> str:
        """Names what the partition's lists hold at a time: another one after every change and after every expiry."""
        found = self._db.query_one(
            "SELECT p.change, (SELECT r.expires_at FROM record r WHERE r.partition = p.id AND r.expires_at IS NOT NULL "
            "AND r.expires_at <= ?1 ORDER BY r.expires_at DESC LIMIT 1) FROM catalogue_partition p WHERE p.key = ?2",
            (now_ms, self.partition.key),
        )
        change, expired = (0, None) if found is None else found
        name = f"{self.partition.kind}-{self.origin}-{change}"
        return name if expired is None else f"{name}-{expired}"

    def touched_after(self, change: int, limit: int) -> Sequence[int] | None:
        """The rows put or removed after a catalogue change; ``None`` where they are more than ``limit``."""
        if change >= self.change:
            return ()
        rows = [entry.row for entry in self.changed_after(change, limit + 1)]
        rows += [row for _, row in self.removed_after(change, limit + 1)]
        return rows if len(rows) <= limit else None

    def by_id(self, record_id: str) -> Sequence[Entry]:
        """Every file that carries the id: more than one means that exact reads must not choose."""
        return self._entries("r.partition = ? AND r.id = ?", (self.number, record_id))

    def last_revision(self, record_id: str) -> int | None:
        """The highest revision among the files that carry the id; where there is none, the last that history has."""
        found = self._db.query_one(
            "SELECT coalesce((SELECT max(revision) FROM record WHERE partition = ?1 AND id = ?2), "
            "(SELECT h.revision FROM partition p CROSS JOIN history h ON h.partition = p.id AND h.record_id = ?2 "
            "WHERE p.key = ?3 AND h.operation <> 'kept' ORDER BY h.sequence DESC, h.id DESC LIMIT 1))",
            (self.number, record_id, self.partition.key),
        )
        return None if found is None else found[0]

    def one(self, record_id: str) -> Entry | None:
        """The record of an id, or ``None`` when it is missing or borne by several files."""
        found = self.by_id(record_id)
        return found[0] if len(found) == 1 else None

    def by_row(self, row: int) -> Entry | None:
        """The record of a row number, as the keyword index refers to it."""
        return next(iter(self._entries("r.row = ? AND r.partition = ?", (row, self.number))), None)

    def of_rows(self, rows: Iterable[int]) -> Sequence[Entry]:
        """The records of these row numbers in their order, in one statement; those that are gone are left out."""
        wanted = list(rows)
        if not wanted:
            return []
        found = self._db.query(
            f"SELECT {_QUALIFIED} FROM json_each(?) j CROSS JOIN record r ON r.row = j.value WHERE r.partition = ?",
            (json.dumps(wanted), self.number),
        )
        entries = {entry.row: entry for entry in map(_entry, found)}
        return [entries[row] for row in wanted if row in entries]

    def by_path(self, path: str) -> Entry | None:
        """The record of a file."""
        return next(iter(self._entries("r.partition = ? AND r.path = ?", (self.number, path))), None)

    def by_name(self, name: str) -> Sequence[Entry]:
        """Records whose title or alias is this name under lookup's normalisation, whatever their kind and lifecycle."""
        rows = self._db.query(
            f"SELECT DISTINCT {_QUALIFIED} FROM name n JOIN record r ON r.row = n.row "
            "WHERE n.partition = ? AND n.normalised = ? ORDER BY r.row",
            (self.number, normalise_name(name)),
        )
        return [_entry(row) for row in rows]

    def by_names(self, normalised: Collection[str]) -> Sequence[tuple[str, Entry]]:
        """``(name, page)`` for every page that bears one of these names, already normalised, whatever its lifecycle."""
        if not normalised:
            return []
        rows = self._db.query(
            f"SELECT DISTINCT n.normalised, {_QUALIFIED} FROM json_each(?2) j "
            "CROSS JOIN name n ON n.partition = ?1 AND n.normalised = j.value "
            "CROSS JOIN record r ON r.row = n.row WHERE r.kind = 'page' ORDER BY n.normalised, r.row",
            (self.number, json.dumps(sorted(normalised))),
        )
        return [(str(row[0]), _entry(row[1:])) for row in rows]

    def names_of(self, row: int) -> Sequence[str]:
        """A record's title and aliases under lookup's normalisation, each once."""
        rows = self._db.query("SELECT DISTINCT normalised FROM name WHERE row = ? ORDER BY normalised", (row,))
        return [str(name) for (name,) in rows]

    def title_of(self, record_id: str) -> str | None:
        """The title of a record that exists exactly once."""
        found = self.one(record_id)
        return None if found is None else found.title

    def follow_merges(self, entry: Entry) -> Entry | None:
        """The page at the end of a chain of merges, or ``None`` where it breaks off or runs in a circle."""
        seen = {entry.id}
        current = entry
        while current.lifecycle == "merged":
            following = self.one(current.merged_into)
            if following is None or following.id in seen or len(seen) > REDIRECTS_MAX:
                return None
            seen.add(following.id)
            current = following
        return current

    def ends_of(self, ids: Collection[str]) -> Mapping[str, Entry]:
        """The record that each of these ids leads to, merges followed; an id that leads to no one record is left out.

        One statement, and more only for pages that were merged.
        """
        wanted = "SELECT value AS id FROM json_each(?)"
        return self._ends(wanted, json.dumps([*ids])) if ids else {}

    def ends_named(self, rows: Collection[int], roles: Collection[str]) -> Mapping[str, Entry]:
        """The same for every id that the records of these rows name in one of these roles."""
        marks = ", ".join("?" * len(roles))
        wanted = (
            "SELECT f.target AS id FROM json_each(?) j "
            f"CROSS JOIN reference f ON f.row = j.value AND f.role IN ({marks})"
        )
        return self._ends(wanted, json.dumps([*rows]), *roles) if rows else {}

    def _ends(self, ids: str, *parameters: SqlValue) -> Mapping[str, Entry]:
        rows = self._db.query(
            f"SELECT {_QUALIFIED} FROM (SELECT DISTINCT id FROM ({ids})) n "
            "CROSS JOIN record r ON r.partition = ? AND r.id = n.id",
            (*parameters, self.number),
        )
        bearers: dict[str, list[Entry]] = {}
        for entry in map(_entry, rows):
            bearers.setdefault(entry.id, []).append(entry)
        ends = ((name, self.follow_merges(found[0])) for name, found in bearers.items() if len(found) == 1)
        return {name: end for name, end in ends if end is not None}

    def follow_supersession(self, entry: Entry) -> Entry | None:
        """The record at the end of a chain of corrections, or ``None`` where it breaks off or runs in a circle."""
        seen = {entry.id}
        current = entry
        while current.lifecycle == "superseded":
            following = self.one(current.superseded_by)
            if following is None or following.id in seen:
                return None
            seen.add(following.id)
            current = following
        return current

    def repeats(self, keys: Collection[str]) -> Sequence[Entry]:
        """Active valid claims with one of these :func:`~storage.state.catalogue.claim_key`, oldest first."""
        wanted = sorted(keys)
        return self._entries(
            f"r.partition = ? AND r.claim_key IN ({', '.join('?' * len(wanted))}) AND r.claim_key <> '' "
            "AND r.lifecycle = 'active' AND r.valid = 1",
            (self.number, *wanted),
        )

    def merged_away(self, page_id: str) -> Sequence[str]:
        """The ids of pages that were merged into this one, over chains too; :data:`MERGED_AWAY_MAX` at most."""
        found = [page_id]
        for target in found:
            following = [entry.id for entry in self.naming(target, ("merged_into",)) if entry.lifecycle == "merged"]
            found += [record_id for record_id in dict.fromkeys(following) if record_id not in found]
            if len(found) > MERGED_AWAY_MAX:
                break
        return found[1 : 1 + MERGED_AWAY_MAX]

    def naming(self, target: str, roles: Iterable[str]) -> Sequence[Entry]:
        """Records that name ``target`` in one of these roles, each once."""
        wanted = tuple(roles)
        marks = ", ".join("?" * len(wanted))
        rows = self._db.query(
            f"SELECT DISTINCT {_QUALIFIED} FROM reference f JOIN record r ON r.row = f.row "
            f"WHERE f.partition = ? AND f.target = ? AND f.role IN ({marks}) ORDER BY r.row",
            (self.number, target, *wanted),
        )
        return [_entry(row) for row in rows]

    def named_by(self, row: int, role: str) -> Sequence[str]:
        """The ids that a record names in one role, in its own order."""
        rows = self._db.query("SELECT target FROM reference WHERE row = ? AND role = ? ORDER BY position", (row, role))
        return [str(found[0]) for found in rows]

    def has_links(self, row: int) -> bool:
        """Whether the text of a record links to anything that may be a record."""
        return self._db.query_one("SELECT 1 FROM body_link WHERE row = ? LIMIT 1", (row,)) is not None

    def keyed(self, types: Collection[str], role: str) -> Sequence[tuple[str, Entry]]:
        """``(what it names in this role, page)`` for the active pages of these types, by name, newest page first."""
        wanted = sorted(types)
        rows = self._db.query(
            f"SELECT f.target, {_QUALIFIED} FROM record r JOIN reference f ON f.row = r.row AND f.role = ? "
            f"WHERE r.partition = ? AND r.kind = 'page' AND r.type IN ({', '.join('?' * len(wanted))}) "
            "AND r.lifecycle = 'active' AND r.fixture = 0 ORDER BY f.target, r.updated_at DESC, r.id",
            (role, self.number, *wanted),
        )
        return [(str(row[0]), _entry(row[1:])) for row in rows]

    def citing(self, path: str, sha256: str) -> Sequence[Entry]:
        """Records that cite this retained file under this hash."""
        rows = self._db.query(
            f"SELECT DISTINCT {_QUALIFIED} FROM citation c JOIN record r ON r.row = c.row "
            "WHERE c.partition = ? AND c.path = ? AND c.sha256 = ? ORDER BY r.row",
            (self.number, path, sha256),
        )
        return [_entry(row) for row in rows]

    def tagged(self, row: int, tag: str) -> bool:
        """Whether the record has the tag, case-sensitively."""
        return (
            self._db.query_one("SELECT 1 FROM tag WHERE partition = ? AND tag = ? AND row = ?", (self.number, tag, row))
            is not None
        )

    def changed_after(self, change: int, limit: int) -> Sequence[Entry]:
        """Records put after a catalogue change, in the order of their changes."""
        return self._entries("r.partition = ? AND r.change > ?", (self.number, change), order="r.change", limit=limit)

    def removed_after(self, change: int, limit: int) -> Sequence[tuple[int, int]]:
        """``(change, row)`` of rows removed after a catalogue change."""
        rows = self._db.query(
            "SELECT change, row FROM removed WHERE partition = ? AND change > ? ORDER BY change LIMIT ?",
            (self.number, change, limit),
        )
        return [(int(at), int(row)) for at, row in rows]

    def counts(self) -> Mapping[str, Mapping[str, int]]:
        """Records by kind and lifecycle."""
        counted: dict[str, dict[str, int]] = {}
        for kind, lifecycle, number in self._db.query(
            "SELECT kind, lifecycle, count(*) FROM record WHERE partition = ? GROUP BY kind, lifecycle", (self.number,)
        ):
            counted.setdefault(str(kind), {})[str(lifecycle)] = int(number)
        return counted

    def type_counts(self, now_ms: int) -> Mapping[tuple[str, str], tuple[int, int]]:
        """``(kind, type or label)`` -> how many current records it has, and how many in all."""
        rows = self._db.query(
            f"SELECT r.kind, r.type, sum({CURRENT}), count(*) FROM record r WHERE r.partition = ? "
            "GROUP BY r.kind, r.type",
            (now_ms, self.number),
        )
        return {(str(kind), str(name)): (int(current), int(total)) for kind, name, current, total in rows}

    def tags(self, now_ms: int, limit: int, offset: int) -> tuple[Sequence[tuple[str, int, int]], int]:
        """``(tag, current records, records in all)``, most current records first, and how many tags there are."""
        counted = self._db.query_one("SELECT count(DISTINCT tag) FROM tag WHERE partition = ?", (self.number,))
        rows = self._db.query(
            f"SELECT t.tag, sum({CURRENT}) AS current, count(*) FROM tag t JOIN record r ON r.row = t.row "
            "WHERE t.partition = ? GROUP BY t.tag ORDER BY current DESC, t.tag LIMIT ? OFFSET ?",
            (now_ms, self.number, limit, offset),
        )
        found = [(str(tag), int(current), int(total)) for tag, current, total in rows]
        return found, 0 if counted is None else int(counted[0])

    def current_of_type(self, kind: RecordKind, type_name: str, now_ms: int, limit: int) -> Sequence[Entry]:
        """Up to ``limit`` current records of a kind and type, by id."""
        return self._entries(
            "r.partition = ? AND r.kind = ? AND r.type = ? AND r.lifecycle = 'active' AND r.valid = 1 "
            "AND r.fixture = 0 AND (r.expires_at IS NULL OR r.expires_at > ?)",
            (self.number, kind, type_name, now_ms),
            order="+r.id",
            limit=limit,
        )

    def latest_recorded_at(self, until: int) -> int:
        """The newest ``recorded_at`` of the partition up to ``until``; 0 without records."""
        found = self._db.query_one(
            "SELECT recorded_at FROM record WHERE partition = ? AND recorded_at <= ? ORDER BY recorded_at DESC LIMIT 1",
            (self.number, until),
        )
        return 0 if found is None else int(found[0])

    def folder_size(self, folder: str) -> int:
        """How many record files lie directly or further down in a folder, up to the number that makes it crowded."""
        found = self._db.query_one(
            "SELECT count(*) FROM (SELECT 1 FROM file WHERE partition = ? AND path >= ? AND path < ? LIMIT 1001)",
            (self.number, f"{folder}/", f"{folder}0"),
        )
        return 0 if found is None else int(found[0])

    def file(self, path: str) -> KnownFile | None:
        """What is known of one Markdown file."""
        found = self._db.query_one(f"{_FILES} AND path = ?", (self.number, path))
        return None if found is None else _known_file(found)[1]

    def files(self) -> Mapping[str, KnownFile]:
        """Every known Markdown file: for comparing a whole scan."""
        return dict(_known_file(row) for row in self._db.iterate(_FILES, (self.number,)))

    def paths_below(self, folder: str) -> Sequence[str]:
        """Known files below a folder (``""``: all)."""
        if not folder:
            rows = self._db.query("SELECT path FROM file WHERE partition = ?", (self.number,))
        else:
            rows = self._db.query(
                "SELECT path FROM file WHERE partition = ? AND path >= ? AND path < ?",
                (self.number, f"{folder}/", f"{folder}0"),
            )
        return [str(row[0]) for row in rows]

    def file_states(self) -> Mapping[str, int]:
        """How many known files are broken, and how many withheld; records are left out."""
        rows = self._db.query(
            "SELECT state, count(*) FROM file WHERE partition = ? AND state <> 'record' GROUP BY state", (self.number,)
        )
        return {str(state): int(number) for state, number in rows}

    def broken_paths(self, limit: int) -> Sequence[str]:
        """Files that cannot be read as records, by path."""
        rows = self._db.query(
            "SELECT path FROM file WHERE partition = ? AND state = 'broken' AND state <> 'record' "
            "ORDER BY path LIMIT ?",
            (self.number, limit),
        )
        return [str(row[0]) for row in rows]

    def file_count(self) -> int:
        """The number of known Markdown files."""
        found = self._db.query_one("SELECT count(*) FROM file WHERE partition = ?", (self.number,))
        return 0 if found is None else int(found[0])

    def record_count(self) -> int:
        """The number of known files that are records, withheld ones included."""
        found = self._db.query_one(
            "SELECT count(*) FROM file WHERE partition = ? AND state <> 'broken'", (self.number,)
        )
        return 0 if found is None else int(found[0])

    def unfinished_stamps(self) -> Sequence[str]:
        """Files that must be read again before the catalogue may vouch for them."""
        rows = self._db.query(
            "SELECT path FROM file WHERE partition = ? AND inode IS NULL ORDER BY path", (self.number,)
        )
        return [str(row[0]) for row in rows]

    def paths_of_repeated_ids(self) -> Sequence[str]:
        """The files whose record's id stands in another file too, by path."""
        rows = self._db.query(
            "SELECT path FROM record WHERE partition = ?1 AND id IN "
            "(SELECT id FROM record WHERE partition = ?1 GROUP BY id HAVING count(*) > 1) ORDER BY path",
            (self.number,),
        )
        return [str(row[0]) for row in rows]

    def findings(self, path: str) -> Sequence[JsonObject]:
        """What is wrong with one file."""
        rows = self._db.query(
            "SELECT code, field, message FROM finding WHERE partition = ? AND path = ? ORDER BY position",
            (self.number, path),
        )
        return [{"code": code, "field": field, "message": message} for code, field, message in rows]

    def findings_of(self, paths: Collection[str]) -> Mapping[str, Sequence[JsonObject]]:
        """What is wrong with each of these files, in one statement; files without findings are left out."""
        found: dict[str, list[JsonObject]] = {}
        for path, code, field, message in self._db.query(
            "SELECT f.path, f.code, f.field, f.message FROM json_each(?) j "
            "CROSS JOIN finding f ON f.partition = ? AND f.path = j.value ORDER BY f.path, f.position",
            (json.dumps([*paths]), self.number),
        ):
            found.setdefault(path, []).append({"code": code, "field": field, "message": message})
        return found

    def select(
        self, where: str, parameters: Sequence[SqlValue], *, order: str, limit: int, offset: int
    ) -> tuple[Sequence[Entry], int]:
        """One page of the records under a condition on ``r``, and how many there are; for the inventory."""
        rows = self._db.query(
            f"SELECT {_QUALIFIED} FROM record r WHERE {where} ORDER BY {order} LIMIT ? OFFSET ?",
            (*parameters, limit, offset),
        )
        return [_entry(row) for row in rows], self._count(where, parameters)

    def _count(self, where: str, parameters: Sequence[SqlValue]) -> int:
        """How many records pass. Those that are current are those of their state less the few of them that have
        expired: an index answers both alone, where the condition as a whole would read each row."""
        before, current, after = where.partition(CURRENT)
        if not current:
            found = self._db.query_one(f"SELECT count(*) FROM record r WHERE {where}", parameters)
            return 0 if found is None else int(found[0])
        earlier, later = parameters[: before.count("?")], parameters[before.count("?") + 1 :]
        now_ms = parameters[before.count("?")]
        standing = f"{before}{_STANDING}{after}"
        all_of_them = self._count(standing, (*earlier, *later))
        return all_of_them - self._count(f"{standing} AND r.expires_at <= ?", (*earlier, *later, now_ms))

    def _entries(
        self, where: str, parameters: Sequence[SqlValue], *, order: str = "r.row", limit: int | None = None
    ) -> Sequence[Entry]:
        tail = "" if limit is None else f" LIMIT {limit}"
        rows = self._db.query(f"SELECT {_QUALIFIED} FROM record r WHERE {where} ORDER BY {order}{tail}", parameters)
        return [_entry(row) for row in rows]


_FILES: Final = "SELECT path, hash, state, device, inode, size, mtime_ns, ctime_ns FROM file WHERE partition = ?"


def _known_file(row: Row) -> tuple[str, KnownFile]:
    path, digest, state, device, inode, size, mtime_ns, ctime_ns = row
    stamp = None if inode is None else Stamp(device, inode, size, mtime_ns, ctime_ns)
    return path, KnownFile(digest, state, stamp)


def _entry(row: Row) -> Entry:
    values = list(row)
    values[9], values[10] = bool(values[9]), bool(values[10])
    return Entry(*values)

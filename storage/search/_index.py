"""The keyword index of one partition: its own SQLite file, derived from the catalogue and always rebuildable.

Writers of ``state.sqlite`` never wait for it and it never waits for them. One writer (the indexer) applies changes
in short transactions; any number of readers see the last one committed. A file that is missing, damaged, foreign or
of another format is deleted by the writer, which then starts at position 0.

Source: decisions.md section 8 (search files), DESIGN.md (indexer), PERFORMANCE.md (FTS5), SEARCH.md.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final, NamedTuple

from messages.errors import IndexUnavailable, StoreUnavailable
from storage.search import _file, _symbols
from storage.search._candidates import POOL, Candidate, Message, find_candidates
from storage.search._documents import IndexChange, IndexDocument, SearchHit, SearchPage, SearchQuery
from storage.search._file import Identity, Rebuilt
from storage.search._filters import (
    ANY_EXPIRED,
    LISTED,
    PAGE_SLOT,
    ROW_MASK,
    Where,
    compile_filters,
    listed,
    rowid_of,
    slot_of,
)
from storage.search._fold import fold
from storage.search._lemmas import lemmatised
from storage.search._query import ParsedQuery, expression, parse_query
from storage.state.connection import CommitUncertain, Database, SqlValue, StorageCorrupt

MERGE_PAGES: Final = 64
BULK_DOCUMENTS: Final = 20
"""From so many documents a slice on, it also pays for merging. Otherwise a rebuild would pile up segments until FTS5
joins them all at once, in one slice that takes seconds."""
BULK_MERGE_PAGES: Final = 128
LOG_MAX_BYTES: Final = 4 * 1024 * 1024
LITERALS_CHECKED_MAX: Final = 2_000
"""Documents whose symbol words are compared one by one; beyond, adjacency of the same symbols counts."""

# Between two aliases stands a token that no text folds to, so that no phrase runs from one into the next.
_ALIAS_BORDER: Final = " \U0010ffff "
_TABLES: Final = ("text", "stem", "symbol")
_SCORE: Final = "bm25(text, 2.0, 2.0, 1.0)"  # a word in a name counts twice


class _Entry(NamedTuple):
    """One document as it is written: folded texts, symbol words, the columns of ``document`` and its tags.

    ``names`` are those by which a current page may be a candidate; ``None`` for every other document.
    """

    rowid: int
    title: str
    aliases: str
    body: str
    names: str | None
    symbols: str
    columns: tuple[SqlValue, ...]
    tags: list[tuple[int, str]]


class CandidatePage(NamedTuple):
    """The candidates for a message, as the index stood at the catalogue change ``position``."""

    candidates: tuple[Candidate, ...]
    position: int


class SearchIndex:
    """One connection to an index file, used by the thread that opened it; ``interrupt`` is for any thread.

    Open it with ``read_only=True`` beside the one writer. A reader notices that the writer has replaced the file and
    follows it. Errors: ``IndexUnavailable`` (with ``reason``) when the index cannot answer, which is never the same
    as no hits; ``Busy`` and ``StorageError`` as the database gives them.
    """

    def __init__(
        self, path: Path, identity: Identity, database: Database, rebuilt: Rebuilt | None, *, read_only: bool
    ) -> None:
        self.path = path
        self.rebuilt = rebuilt
        self._identity = identity
        self._database = database
        self._read_only = read_only
        self._inode = _file.inode(path)

    @classmethod
    def open(
        cls, path: Path, *, vault_id: str, partition: str, catalogue: str = "", read_only: bool = False
    ) -> SearchIndex:
        """The index in ``path``. ``catalogue`` names the database whose changes it counts; rows of another are stale.

        The writer makes the folder and the file when they are missing, and deletes a file that is not exactly this
        index; ``rebuilt`` then says why. A reader changes nothing and raises ``IndexUnavailable`` instead.
        """
        identity = Identity(vault_id, partition, catalogue)
        with _unavailable():
            if read_only:
                return cls(path, identity, _file.open_reader(path, identity), None, read_only=True)
            with _file.folder_locked(path.parent):
                database, rebuilt = _file.open_writer(path, identity)
                return cls(path, identity, database, rebuilt, read_only=False)

    @property
    def needs_rebuild(self) -> bool:
        """Whether opening found nothing usable: every document has to be applied again, from position 0."""
        return self.rebuilt is not None

    @property
    def in_place(self) -> bool:
        """Whether the file that is open is still the one at its path."""
        return self._inode is not None and _file.inode(self.path) == self._inode

    def close(self) -> None:
        """Close the connection; idempotent."""
        self._database.close()

    def interrupt(self) -> None:
        """Make a running search or slice fail. Any thread."""
        self._database.interrupt()

    def position(self) -> int:
        """The catalogue change that the index has reached; 0 for an empty one."""
        with self._available():
            return _position(self._database)

    def count(self) -> int:
        """How many documents it holds, whatever their lifecycle."""
        with self._available():
            return int(self._database.query("SELECT count(*) FROM document")[0][0])

    def apply(self, changes: Sequence[IndexChange], position: int) -> None:
        """Apply one slice and move to ``position``, both or neither. The last change of a row wins.

        Changes may be applied again. A position before the one reached is a defect (``ValueError``).
        """
        last = {change.rowid: change.document for change in changes}
        # Folding is most of the work and needs no lock.
        entries = [_entry(row, document) for row, document in last.items() if document is not None]
        with self._available():
            with self._database.transaction(full=False, point="search.apply"):
                if position < _position(self._database):
                    raise ValueError(f"the index has passed position {position}")
                self._remove(last)
                self._add(entries)
                self._database.execute("UPDATE meta SET value = ? WHERE key = 'position'", (str(position),))
            if len(entries) >= BULK_DOCUMENTS:
                self._merge(BULK_MERGE_PAGES)
            if _file.log_bytes(self.path) > LOG_MAX_BYTES:
                self._database.checkpoint()

    def search(self, query: SearchQuery, *, at_least: int, without: Collection[int] = ()) -> SearchPage:
        """The hits that pass the query's filters, best first, ``limit`` of them from ``offset``, and how many in all.

        Rows of ``without`` are none of them: the caller knows better than the index what they hold.

        Hits that hold what was literally written come first (SEARCH.md section 2), then by BM25, then by row; with
        ``by_score`` by BM25 alone. The order is total, so pages fit together. Raises ``IndexUnavailable`` (``reason:
        behind``) while the index has not reached ``at_least``, and ``LimitExceeded`` for a query that is too long.
        """
        parsed = parse_query(query.text, query.mode)
        with self._available(), self._snapshot(query.filters.eligible_at) as (position, expired):
            _require(position, at_least)
            if not parsed.phrases:
                return SearchPage((), 0, position)
            where = compile_filters(query.filters, expired=expired, without=without)
            count = f"SELECT count(*) FROM text{where.join} WHERE text MATCH ?{where.condition}"
            total = int(self._database.query(count, (parsed.match, *where.parameters))[0][0])
            hits = self._hits(parsed, where, query) if query.offset < total else ()
            return SearchPage(hits, total, position)

    def matching(self, query: SearchQuery, among: Collection[int]) -> frozenset[int]:
        """The rows of ``among`` that the query finds, filters included, whatever its ``limit`` and ``offset``."""
        parsed = parse_query(query.text, query.mode)
        if not parsed.phrases or not among:
            return frozenset()
        with self._available():
            where = compile_filters(query.filters, among=among)
            sql = f"SELECT text.rowid FROM text{where.join} WHERE text MATCH ?{where.condition}"
            found = self._database.query(sql, (parsed.match, *where.parameters))
            return frozenset(rowid & ROW_MASK for (rowid,) in found)

    def candidates(
        self, message: Message, *, at_least: int, without_types: Collection[str] = (), limit: int = POOL
    ) -> CandidatePage:
        """The current pages that share at least one word, of any script, with a message; best first.

        At most ``limit`` of them and never more than :data:`POOL`. Pages of ``without_types`` are none of them. Raises
        ``IndexUnavailable`` as :meth:`search` does. Source: memory-provider.md (Recall gate), SEARCH.md section 3.
        """
        with self._available(), self._snapshot(None) as (position, _):
            _require(position, at_least)
            found = find_candidates(self._database, message, without_types, limit)
            return CandidatePage(tuple(found), position)

    def merge_step(self, pages: int = MERGE_PAGES) -> bool:
        """Join some segments of the index, about ``pages`` pages of work; whether there is more to do.

        Small slices leave merging to this, for when nothing else is waiting. Once all is merged the log is written
        back into the file.
        """
        with self._available():
            more = self._merge(pages)
            if not more:
                self._database.checkpoint()
        return more

    def check(self) -> bool:
        """Whether the file and the index in it are whole. Reads everything: for maintenance, not for requests."""
        try:
            sound = self._database.query("PRAGMA quick_check(1)") == [("ok",)]
            with self._database.transaction(full=False, point="search.merge"):
                for table in _TABLES:
                    self._database.execute(f"INSERT INTO {table}({table}) VALUES ('integrity-check')")
        except StorageCorrupt:
            return False
        return sound

    def reset(self) -> None:
        """Delete the file and begin again at position 0: after damage, and when erased text must leave no trace."""
        with _unavailable(), _file.folder_locked(self.path.parent):
            with suppress(StorageCorrupt):
                self._database.close()
            _file.delete(self.path)
            self._database, _ = _file.open_writer(self.path, self._identity)
            self.rebuilt = "reset"
            self._inode = _file.inode(self.path)

    def _merge(self, pages: int) -> bool:
        more = False
        for table in _TABLES:
            with self._database.transaction(full=False, point="search.merge"):
                before = self._changes()
                self._database.execute(f"INSERT INTO {table}({table}, rank) VALUES ('merge', ?)", (pages,))
                more = more or self._changes() - before > 1  # the command itself counts as one
        return more

    def _remove(self, rows: Collection[int]) -> None:
        sql = f"SELECT row, slot, symbols FROM document WHERE row IN ({LISTED})"
        found = self._database.query(sql, (listed(rows),))
        run = self._database.execute_many
        run("DELETE FROM text WHERE rowid = ?", [(rowid_of(slot, row),) for row, slot, _ in found])
        run("DELETE FROM stem WHERE rowid = ?", [(rowid_of(slot, row),) for row, slot, _ in found if slot == PAGE_SLOT])
        run("DELETE FROM symbol WHERE rowid = ?", [(rowid_of(slot, row),) for row, slot, symbols in found if symbols])
        run("DELETE FROM tag WHERE row = ?", [(row,) for row, _, _ in found])
        run("DELETE FROM document WHERE row = ?", [(row,) for row, _, _ in found])

    def _add(self, entries: Sequence[_Entry]) -> None:
        run = self._database.execute_many
        run(
            "INSERT INTO text(rowid, title, aliases, body) VALUES (?, ?, ?, ?)",
            [(entry.rowid, entry.title, entry.aliases, entry.body) for entry in entries],
        )
        run(
            "INSERT INTO stem(rowid, names, body) VALUES (?, ?, ?)",
            [(entry.rowid, entry.names, lemmatised(entry.body)) for entry in entries if entry.names is not None],
        )
        symbols = [(entry.rowid, entry.symbols) for entry in entries if entry.symbols]
        run("INSERT INTO symbol(rowid, words) VALUES (?, ?)", symbols)
        run(f"INSERT INTO document VALUES ({', '.join('?' * 12)})", [entry.columns for entry in entries])
        run("INSERT INTO tag(row, tag) VALUES (?, ?)", [pair for entry in entries for pair in entry.tags])

    def _hits(self, parsed: ParsedQuery, where: Where, query: SearchQuery) -> tuple[SearchHit, ...]:
        asked = parsed.literals and not query.by_score
        literal, values = self._literal(parsed) if asked else ("1", ())
        first = "literal DESC, " if asked else ""
        rows = self._database.query(
            f"SELECT text.rowid, {_SCORE} AS score, {literal} AS literal FROM text{where.join} "
            f"WHERE text MATCH ?{where.condition} ORDER BY {first}score, text.rowid LIMIT ? OFFSET ?",
            (*values, parsed.match, *where.parameters, query.limit, query.offset),
        )
        return tuple(SearchHit(rowid & ROW_MASK, -score, bool(is_literal)) for rowid, score, is_literal in rows)

    def _literal(self, parsed: ParsedQuery) -> tuple[str, tuple[SqlValue, ...]]:
        """An SQL term that tells whether a hit holds what was literally written.

        For ``all`` and ``phrase``: every symbol word. For ``any``: at least one word that is either written so, or
        has no symbol to get wrong.
        """
        found = [self._holding(literal) for literal in parsed.literals]
        if parsed.mode != "any":
            return f"text.rowid IN ({LISTED})", (listed(frozenset.intersection(*found)),)
        held = listed(frozenset[int]().union(*found))
        if not parsed.plain:
            return f"text.rowid IN ({LISTED})", (held,)
        return (
            f"text.rowid IN (SELECT rowid FROM text WHERE text MATCH ? UNION {LISTED})",
            (expression(parsed.plain, " OR "), held),
        )

    def _holding(self, literal: _symbols.Literal) -> frozenset[int]:
        held: list[int] = []
        sql = "SELECT rowid, words FROM symbol WHERE symbol MATCH ? ORDER BY rowid"
        for number, (rowid, words) in enumerate(self._database.iterate(sql, (f'"{literal.code}"',))):
            if number >= LITERALS_CHECKED_MAX or literal.stands_in(words):
                held.append(rowid)
        return frozenset(held)

    @contextmanager
    def _snapshot(self, instant: int | None) -> Iterator[tuple[int, bool]]:
        """One unchanging view for several statements: its position, and whether a document has expired by then."""
        with self._database.snapshot():
            row = self._database.query_one(f"SELECT value, {ANY_EXPIRED} FROM meta WHERE key = 'position'", (instant,))
            if row is None:
                raise StorageCorrupt(f"{self.path.name} has lost its position")
            yield int(row[0]), bool(row[1])

    @contextmanager
    def _available(self) -> Iterator[None]:
        with _unavailable():
            if self._read_only:
                self._follow()
            yield

    def _follow(self) -> None:
        """Reopen when the writer has put another file in place."""
        current = _file.inode(self.path)
        if current is None or current != self._inode:
            self._inode = None  # once closed, the number may come back for another file
            self._database.close()
            self._database = _file.open_reader(self.path, self._identity)
            self._inode = current

    def _changes(self) -> int:
        return int(self._database.query("SELECT total_changes()")[0][0])


@contextmanager
def _unavailable() -> Iterator[None]:
    """What is wrong with the file, said as what it means for a search."""
    try:
        yield
    except (StorageCorrupt, CommitUncertain) as error:
        raise IndexUnavailable("The keyword index is damaged and must be rebuilt.", reason="corrupt") from error
    except StoreUnavailable as error:
        raise IndexUnavailable("The keyword index cannot be opened and must be rebuilt.", reason="missing") from error


def _require(position: int, at_least: int) -> None:
    if position < at_least:
        raise IndexUnavailable(
            "The keyword index is still catching up; try again.", reason="behind", position=position, target=at_least
        )


def _position(database: Database) -> int:
    row = database.query_one("SELECT value FROM meta WHERE key = 'position'")
    if row is None:
        raise StorageCorrupt(f"{database.path.name} has lost its position")
    return int(row[0])


def _entry(row: int, document: IndexDocument) -> _Entry:
    slot = slot_of(document)
    symbols = _symbols.symbol_words(document.title, *document.aliases, document.body)
    names = [fold(name) for name in (document.title, *document.aliases)]
    return _Entry(
        rowid_of(slot, row),
        names[0],
        _ALIAS_BORDER.join(names[1:]),
        fold(document.body),
        _ALIAS_BORDER.join(map(lemmatised, names)) if slot == PAGE_SLOT else None,
        symbols,
        (
            row,
            slot,
            bool(symbols),
            document.type,
            document.lifecycle,
            document.recorded_at,
            document.updated_at,
            document.occurred_from,
            document.occurred_until,
            document.due_from,
            document.due_until,
            document.expires_at,
        ),
        [(row, tag) for tag in dict.fromkeys(document.tags)],
    )

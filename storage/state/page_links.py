"""Keeps the links between pages and their degrees equal to what the bodies say, one changed record at a time.

The order in which records arrive does not matter: a link is kept as it is written, and what it leads to is decided
anew whenever a record appears, goes or changes that it could mean. A write that leaves a page's names, path, lifecycle
and validity as they are costs its own new links only. Runs inside the publication's transaction, on the lane's thread.

Source: tools.md (Page budgets).
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, TypeAlias

from storage.records import Record, path_key
from storage.records.link_keys import LinkKey
from storage.state.catalogue_reader import CatalogueReader, Entry
from storage.state.page_graph import PageGraph, is_current_page
from storage.state.page_ties import PageTies

_Place: TypeAlias = tuple[int, LinkKey]


@dataclass(frozen=True, slots=True)
class Identity:
    """All that decides which links mean a record, and whether it counts."""

    row: int
    id: str
    page: bool
    current: bool
    merged_into: str
    path: str
    names: frozenset[str]

    @classmethod
    def of(cls, row: int, found: Entry | Record, *, path: str, valid: bool, names: Iterable[str]) -> Identity:
        """Of a record in the catalogue, or of one that is being put there; ``names`` as lookup compares them."""
        page = found.kind == "page"
        return cls(
            row=row,
            id=found.id,
            page=page,
            current=page and found.lifecycle == "active" and valid and not found.fixture,
            merged_into=(found.merged_into or "") if found.lifecycle == "merged" else "",
            path=path_key(path) if page else "",
            names=frozenset(names) if page else frozenset(),
        )

    @property
    def on_disk(self) -> tuple[str, str] | None:
        """What the table of pages says of a page beside its degree."""
        return (self.id, self.path) if self.page else None


_LINKS: Final = "SELECT row, form, written, name, path, target FROM"
# The links that may mean a record, and the rows (without a form) of those that may be merged into it.
_MEANING_BY_ID: Final = (
    f"{_LINKS} body_link WHERE partition = ?1 AND form = 'wiki' AND written = ?2 "
    "UNION ALL SELECT row, NULL, '', '', '', NULL FROM reference "
    "WHERE partition = ?1 AND target = ?2 AND role = 'merged_into'"
)
_MEANING: Final = (
    f"{_MEANING_BY_ID} "
    "UNION ALL SELECT b.row, b.form, b.written, b.name, b.path, b.target FROM json_each(?3) j "
    "CROSS JOIN body_link b ON b.partition = ?1 AND b.form = 'wiki' AND b.name = j.value "
    "UNION ALL SELECT b.row, b.form, b.written, b.name, b.path, b.target FROM json_each(?4) j "
    "CROSS JOIN body_link b ON b.partition = ?1 AND b.path = j.value"
)


def _meant_by_id(identity: Identity | None) -> tuple[str, bool, str] | None:
    """What a statement that names the id leads to depends on this alone."""
    return None if identity is None else (identity.id, identity.current, identity.merged_into)


class PageLinks:
    """The links of one partition, for one change of one record: :meth:`identity` before it, :meth:`follow` after."""

    def __init__(self, reader: CatalogueReader) -> None:
        self._db = reader.database
        self._number = reader.number
        self._reader = reader
        self._graph = PageGraph(reader)
        self._changed: Counter[int] = Counter()
        self._ties = PageTies(self._reader)

    def identity(self, entry: Entry) -> Identity:
        """How a record is meant by links as its rows are now."""
        names = self._reader.names_of(entry.row) if entry.kind == "page" else ()
        return Identity.of(entry.row, entry, path=entry.path, valid=entry.valid, names=names)

    def follow(
        self,
        before: Identity | None,
        after: Identity | None,
        links: Sequence[LinkKey],
        about: Collection[str] = (),
    ) -> None:
        """Bring links and degrees up to date after a record's other rows have changed; ``links`` are its body's and
        ``about`` the ids that it states something of (:func:`storage.state.page_ties.about`).

        The links of a claim or relationship are kept as they are written and count for no degree: what they lead to is
        decided when somebody asks.
        """
        row = after.row if after is not None else None if before is None else before.row
        if row is None:
            return
        if not any(one is not None and one.page for one in (before, after)):
            self._put_links(row, links, new_row=before is None, anew=False)
            if before != after:
                self._decide(self._meaning(one for one in (before, after) if one is not None))
            self._follow_ties(row, before, after, about)
            return
        if after is not None and after.page and (before is None or after.on_disk != before.on_disk):
            self._put_page(after)
        counts = after is not None and after.current
        counted = before is not None and self._counted(row)
        if counts and not counted:
            self._db.execute("UPDATE page SET degree = 0, connected = 0 WHERE row = ?", (row,))
            self._count(0, 1)
        places = self._put_links(row, links, new_row=before is None, anew=counts != counted)
        if before != after:
            places |= self._meaning(one for one in (before, after) if one is not None)
        self._decide(places)
        self._follow_ties(row, before, after, about)
        if counted and not counts:
            # Nothing leads from it or to it any more.
            self._db.execute("UPDATE page SET degree = NULL, connected = NULL WHERE row = ?", (row,))
            self._count(0, -1)
        if after is None or not after.page:
            self._db.execute("DELETE FROM page WHERE row = ?", (row,))

    # --- inside ----------------------------------------------------------------------------------------

    def _follow_ties(self, row: int, before: Identity | None, after: Identity | None, about: Collection[str]) -> None:
        """The pages that this record connects, if it is a statement, and what statements say of it, if it means
        something else now."""
        if any(one is not None and not one.page for one in (before, after)):
            self._ties.decide(row, about, new=before is None)
        if _meant_by_id(before) != _meant_by_id(after):
            self._ties.decide_naming({one.id for one in (before, after) if one is not None})
        self._ties.settle()

    def _put_page(self, page: Identity) -> None:
        self._db.execute(
            "INSERT INTO page (row, partition, path, file, id) VALUES (?1, ?2, ?3, ?4, ?5) "
            "ON CONFLICT (row) DO UPDATE SET path = ?3, file = ?4, id = ?5 WHERE path <> ?3 OR id <> ?5",
            (page.row, self._number, page.path, page.path.rpartition("/")[2], page.id),
        )

    def _counted(self, row: int) -> bool:
        return self._db.query_one("SELECT 1 FROM page WHERE row = ? AND degree IS NOT NULL", (row,)) is not None

    def _put_links(self, row: int, links: Sequence[LinkKey], *, new_row: bool, anew: bool) -> dict[_Place, int | None]:
        """Make these the links of the record; those to be decided, with what they led to so far."""
        known = (
            ()
            if new_row
            else self._db.query("SELECT form, written, name, path, target FROM body_link WHERE row = ?", (row,))
        )
        stored = {LinkKey(form, written, name, path): target for form, written, name, path, target in known}
        wanted = set(links)
        for link in stored.keys() - wanted:
            self._set(row, link, stored[link], None)
            self._db.execute(
                "DELETE FROM body_link WHERE row = ? AND form = ? AND written = ?", (row, link.form, link.written)
            )
        new = [link for link in links if link not in stored]
        self._db.execute_many(
            "INSERT INTO body_link (partition, row, form, written, name, path) VALUES (?, ?, ?, ?, ?, ?)",
            [(self._number, row, link.form, link.written, link.name, link.path) for link in new],
        )
        undecided: dict[_Place, int | None] = {(row, link): None for link in new}
        if anew:
            undecided |= {(row, link): stored[link] for link in stored.keys() & wanted}
        return undecided

    def _meaning(self, identities: Iterable[Identity]) -> dict[_Place, int | None]:
        """The links that could mean one of these, or a record that was merged into it, with what they lead to."""
        found: dict[_Place, int | None] = {}
        waiting = list(identities)
        known = set(waiting)
        while waiting:
            one = waiting.pop()
            paths = {one.path, one.path.rpartition("/")[2]} if one.path else ()
            merged_here: list[int] = []
            for row, form, written, name, path, target in self._db.query(
                _MEANING if one.page else _MEANING_BY_ID,
                (self._number, one.id, *((json.dumps([*one.names]), json.dumps([*paths])) if one.page else ())),
            ):
                if form is None:
                    merged_here.append(int(row))
                else:
                    found[int(row), LinkKey(form, written, name, path)] = target
            for entry in self._reader.of_rows(merged_here):
                merged = self.identity(entry)
                if entry.lifecycle == "merged" and merged not in known:
                    known.add(merged)
                    waiting.append(merged)
        return found

    def _decide(self, places: Mapping[_Place, int | None]) -> None:
        """Decide where links lead now: from a current page to another one, or nowhere."""
        current = {row: self._is_current(row) for row in {row for row, _ in places}}
        for (row, link), known in places.items():
            target = self._graph.row_of(link) if current[row] else None
            self._set(row, link, known, None if target == row else target)
        self._settle()

    def _is_current(self, row: int) -> bool:
        entry = self._reader.by_row(row)
        return entry is not None and is_current_page(entry)

    def _set(self, row: int, link: LinkKey, known: int | None, target: int | None) -> None:
        if known == target:
            return
        if target is not None and not self._graph.linked(row, target):
            self._changed.update((row, target))
            self._ties.linked(row, target)
        self._db.execute(
            "UPDATE body_link SET target = ? WHERE row = ? AND form = ? AND written = ?",
            (target, row, link.form, link.written),
        )
        if known is not None and not self._graph.linked(row, known):
            self._changed.subtract((row, known))
            self._ties.unlinked(row, known)

    def _settle(self) -> None:
        """Apply what the changed links did to degrees."""
        pages: Counter[int] = Counter()
        for row, difference in sorted(self._changed.items()):
            if not difference:
                continue
            changed = self._db.query_one(
                "UPDATE page SET degree = degree + ? WHERE row = ? RETURNING degree", (difference, row)
            )
            assert changed is not None, "only pages have links"
            degree = int(changed[0])
            pages.update((degree,))
            pages.subtract((degree - difference,))
        self._changed.clear()
        for degree, difference in pages.items():
            if difference:
                self._count(degree, difference)

    def _count(self, degree: int, difference: int) -> None:
        self._db.execute(
            "INSERT INTO degree (partition, degree, pages) VALUES (?1, ?2, ?3) "
            "ON CONFLICT (partition, degree) DO UPDATE SET pages = pages + ?3",
            (self._number, degree, difference),
        )
        if difference < 0:
            self._db.execute(
                "DELETE FROM degree WHERE partition = ? AND degree = ? AND pages = 0", (self._number, degree)
            )

"""The links between pages and their degrees: kept one changed record at a time, and equal to a recount."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Iterator
from itertools import combinations
from pathlib import Path

import pytest

from messages.json_types import JsonObject, JsonValue
from messages.vocabulary import PRIVATE
from storage import faults
from storage.layout import StoreLayout
from storage.ontology import core_activation
from storage.records import normalise_name, path_key
from storage.records.link_keys import LinkKey, link_keys
from storage.session import PartitionSession
from storage.state import history
from storage.state.catalogue import CatalogueWriter, create_catalogue
from storage.state.catalogue_reader import CatalogueReader, Entry
from storage.state.connection import Database
from storage.state.page_graph import PageGraph, is_current_page
from storage.state.schema import SCHEMA_VERSION, create_schema
from tests.kit.formats import make_format_1
from tests.kit.store import (
    GROUP_PARTITION,
    Desk,
    claim_file,
    copy_store,
    make_store,
    page_file,
    record_file,
    relationship_file,
    write_note,
)


class Shelf:
    """A catalogue without a store: files come and go, and everything is asked of the rows."""

    def __init__(self, path: Path) -> None:
        self.db = Database.open(path, point_prefix="state", create=True)
        with self.db.transaction(full=False, point="reopen"):
            create_schema(self.db)
            create_catalogue(self.db)
        ontology = core_activation().ontology
        self._writer = CatalogueWriter(lambda _: ontology)
        self.reader = CatalogueReader(self.db, PRIVATE)
        self.texts: dict[str, str] = {}

    def put(self, path: str, text: str) -> None:
        self.texts[path] = text
        with self.db.transaction(full=False, point="reopen"):
            self._writer.put(self.db, PRIVATE, path, text.encode(), None)

    def remove(self, path: str) -> None:
        self.texts.pop(path, None)
        with self.db.transaction(full=False, point="reopen"):
            self._writer.remove(self.db, PRIVATE, path)

    def degree(self, path: str) -> int | None:
        [(degree,)] = self.db.query(
            "SELECT p.degree FROM page p JOIN record r ON r.row = p.row WHERE r.path = ?", (path,)
        )
        return None if degree is None else int(degree)

    def degrees(self) -> dict[str, int]:
        rows = self.db.query("SELECT r.path, p.degree FROM page p JOIN record r ON r.row = p.row")
        return {str(path): int(degree) for path, degree in rows if degree is not None}


@pytest.fixture
def shelf(tmp_path: Path) -> Iterator[Shelf]:
    made = Shelf(tmp_path / "shelf.sqlite")
    yield made
    made.db.close()


def page(record_id: str, title: str, body: str = "", type: str = "project", **keys: JsonValue) -> str:
    return record_file("page", record_id, title, body, PRIVATE, "2026-10-01T10:00:00.000Z", {"type": type, **keys})


# --- a recount ------------------------------------------------------------------------------------------------------


def recounted(db: Database, reader: CatalogueReader, texts: dict[str, str]) -> tuple[dict[str, int], dict[str, int]]:
    """Of every current page its degree, and how many it is connected with, from nothing but records and bodies."""
    entries = [entry for (row,) in db.query("SELECT row FROM record") if (entry := reader.by_row(int(row)))]
    names = {
        entry.row: {str(name) for (name,) in db.query("SELECT normalised FROM name WHERE row = ?", (entry.row,))}
        for entry in entries
    }

    def pages(candidates: list[Entry]) -> list[int]:
        ends = [reader.follow_merges(candidate) for candidate in candidates]
        return sorted({end.row for end in ends if end is not None and is_current_page(end)})

    def target(link: LinkKey) -> int | None:
        notes = [entry for entry in entries if entry.kind == "page"]
        at = [entry for entry in notes if path_key(entry.path) == link.path]
        if link.form == "path":
            found = pages(at)
            return found[0] if len(found) == 1 else None
        bearers = [entry for entry in entries if entry.id == link.written]
        if bearers:
            found = pages(bearers) if len(bearers) == 1 else []
            return found[0] if found else None
        named = [entry for entry in notes if normalise_name(link.written) in names[entry.row]]
        files = [entry for entry in notes if path_key(entry.path).rpartition("/")[2] == link.path]
        for tier in (named, at, files):
            found = pages(tier)
            if found:
                return found[0] if len(found) == 1 else None
        return None

    edges: set[frozenset[int]] = set()
    current = {entry.row: entry.path for entry in entries if is_current_page(entry)}
    for row, path in current.items():
        body = texts[path].partition("---\n")[2].partition("---\n")[2].removeprefix("\n")
        leads = {target(link) for link in link_keys(body, path)} - {None, row}
        edges |= {frozenset((row, other)) for other in leads if other is not None}
    degrees = Counter(row for edge in edges for row in edge)
    for entry in entries:
        if entry.lifecycle != "active" or not entry.valid or entry.fixture or entry.kind == "page":
            continue
        roles = ("entity", "owner") if entry.kind == "claim" else ("from", "to")
        named = [reader.by_id(target) for role in roles for target in reader.named_by(entry.row, role)]
        rows = {row for bearers in named if len(bearers) == 1 for row in pages(list(bearers))}
        edges |= {frozenset(pair) for pair in combinations(rows, 2)}
    connected = Counter(row for edge in edges for row in edge)
    return (
        {path: degrees[row] for row, path in current.items()},
        {path: connected[row] for row, path in current.items()},
    )


def assert_kept(db: Database, reader: CatalogueReader, texts: dict[str, str]) -> int:
    rows = db.query("SELECT r.path, p.degree FROM page p JOIN record r ON r.row = p.row WHERE p.degree IS NOT NULL")
    kept = {str(path): int(degree) for path, degree in rows}
    degrees, connected = recounted(db, reader, texts)
    assert kept == degrees
    rows = db.query("SELECT r.path, p.connected FROM page p JOIN record r ON r.row = p.row WHERE p.connected NOT NULL")
    assert {str(path): int(number) for path, number in rows} == connected
    [(strays,)] = db.query("SELECT count(*) FROM page p JOIN record r ON r.row = p.row WHERE p.id <> r.id")
    assert strays == 0
    [(strays,)] = db.query("SELECT count(*) FROM tie WHERE row NOT IN (SELECT row FROM record)")
    assert strays == 0
    histogram = {int(degree): int(pages) for degree, pages in db.query("SELECT degree, pages FROM degree")}
    assert histogram == Counter(kept.values())
    [(orphans,)] = db.query("SELECT count(*) FROM body_link WHERE row NOT IN (SELECT row FROM record)")
    assert orphans == 0
    [(counted,)] = db.query(
        "SELECT count(*) FROM body_link b JOIN record r ON r.row = b.row WHERE r.kind <> 'page' AND b.target NOT NULL"
    )
    assert counted == 0, "only pages count for degrees"
    [(strays,)] = db.query("SELECT count(*) FROM page WHERE row NOT IN (SELECT row FROM record WHERE kind = 'page')")
    assert strays == 0
    return sum(kept.values())


IDS = ("a1", "b2", "c3", "d4", "e5", "f6")
TITLES = ("Atlas", "Birch Hall", "C3", "Delta", "atlas", "Été", "e5")
PATHS = ("atlas.md", "people/birch.md", "people/atlas.md", "deep/er/c3.md", "Delta.md", "notes/été.md")
LINKS = (
    "[[{id}]]", "[[{id}|x]]", "[[{title}]]", "[[{path}]]", "[[{stem}]]", "[t](/{path})", "[t](<{path}#x>)",
    "![i](/{path})", "[t](../{path})", "[t](https://x.y/{path})", "`[[{id}]]`", "[r]\n\n[r]: /{path}",
)  # fmt: skip


def random_page(chance: random.Random) -> str:
    def link() -> str:
        path = chance.choice(PATHS)
        return chance.choice(LINKS).format(
            id=chance.choice(IDS), title=chance.choice(TITLES), path=path, stem=path.rpartition("/")[2][:-3]
        )

    keys: JsonObject = {}
    kind = "project"
    match chance.randrange(10):
        case 0:
            keys["lifecycle"] = "withdrawn"
        case 1 | 2:
            keys |= {"lifecycle": "merged", "merged_into": chance.choice(IDS)}
        case 3:
            keys["aliases"] = [chance.choice(TITLES)]
        case 4:
            keys["fixture"] = True
        case 5:
            kind = "no such type"
    body = "\n\n".join(link() for _ in range(chance.randrange(6))) + "\n"
    return page(chance.choice(IDS), chance.choice(TITLES), body, kind, **keys)


def random_statement(chance: random.Random, path: str) -> str:
    """A claim or a relationship that connects up to three pages, some of which may not be there."""
    named = [chance.choice(IDS) for _ in range(chance.randrange(4))]
    record_id = chance.choice((*IDS, "s1", "s2", "s3", "s4", "s5"))
    if chance.randrange(3) and len(named) > 1:
        return relationship_file(record_id, named[0], named[1])
    lifecycle = chance.choice(("active", "active", "withdrawn"))
    owner = chance.choice(IDS) if chance.randrange(3) == 0 else "nobody"
    return claim_file(record_id, f"About [[{path}]].", entities=[*named], lifecycle=lifecycle, owner=owner)


def random_step(shelf: Shelf, chance: random.Random) -> None:
    path = chance.choice(PATHS)
    match chance.randrange(14):
        case 0:
            shelf.remove(path)
        case 1 if path in shelf.texts:
            text = shelf.texts[path]
            shelf.remove(path)
            shelf.put(chance.choice(PATHS), text)
        case 2 | 3:
            shelf.put(f"claims/{chance.randrange(3)}.md", random_statement(chance, path))
        case 4:
            shelf.put(path, "no record")
        case _:
            shelf.put(path, random_page(chance))


def try_seeds(shelf: Shelf, seeds: range) -> None:
    linked = 0
    for seed in seeds:
        chance = random.Random(seed)
        for path in list(shelf.texts):
            shelf.remove(path)
        for _ in range(40):
            random_step(shelf, chance)
            linked += assert_kept(shelf.db, shelf.reader, shelf.texts)
    assert linked > 30 * len(seeds), "hardly any page was linked"


def test_kept_degrees_equal_a_recount_after_every_random_change(shelf: Shelf) -> None:
    try_seeds(shelf, range(20))


@pytest.mark.exhaustive
@pytest.mark.timeout(600)
def test_kept_degrees_equal_a_recount_for_many_seeds(shelf: Shelf) -> None:
    try_seeds(shelf, range(1_000, 2_000))


# --- a real store ---------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def made_store(tmp_path_factory: pytest.TempPathFactory) -> StoreLayout:
    return make_store(tmp_path_factory.mktemp("made") / "store")


def texts_of(session: PartitionSession) -> dict[str, str]:
    db = session.catalogue.database
    found: dict[str, str] = {}
    for path, digest in db.query("SELECT path, hash FROM record"):
        text = history.text(db, digest)
        assert text is not None
        found[str(path)] = text.decode()
    return found


def random_write(desk: Desk, chance: random.Random) -> None:
    """One tool call, or one edit by hand, with links to pages that are there, that were, and that may come."""
    pages = desk.call("records", {"kind": "page", "limit": 100})["records"]
    assert isinstance(pages, list)
    known = [str(one["id"]) for one in pages if isinstance(one, dict)]
    body = "\n\n".join(
        chance.choice(("[[{0}]]", "[[{1}]]", "[t](/projects/{2}.md)")).format(
            chance.choice([*known, "nobody"]), chance.choice(TITLES), chance.choice(("atlas", "delta", "birch-hall"))
        )
        for _ in range(chance.randrange(5))
    )
    page_id = chance.choice(known) if known else None
    path = None if page_id is None else desk.path_of(page_id)
    match chance.randrange(8):
        case 0 | 1 | 2:
            desk.page(chance.choice(TITLES), body=body, allowSameTitle=True)
        case 3 | 4 if page_id is not None:
            found = desk.record(page_id)
            given: JsonObject = {"id": page_id, "title": chance.choice(TITLES), "type": "project", "body": body}
            desk.call("save_page", {**given, "expectedRevision": found["revision"], "expectedHash": found["hash"]})
        case 5 if path is not None:
            path.unlink()
        case 6 if path is not None:
            path.rename(path.with_name(chance.choice(("atlas.md", "delta.md", "birch-hall.md"))))
        case 7 if path is not None:
            text = path.read_text("utf-8")
            other = chance.choice(known)
            text = text.replace('lifecycle: "active"', f'lifecycle: "merged"\nmerged_into: "{other}"')
            path.write_text(text + body, "utf-8")
        case _:
            desk.remember("Nothing of importance.")


def test_degrees_of_a_real_store_equal_a_recount_and_survive_another_opening(
    made_store: StoreLayout, tmp_path: Path
) -> None:
    linked = 0
    for seed in range(3):
        desk = Desk(copy_store(made_store, tmp_path / f"store-{seed}"))
        chance = random.Random(seed)
        for _ in range(30):
            random_write(desk, chance)
            session = desk.partition()
            linked += assert_kept(session.catalogue.database, session.catalogue, texts_of(session))
        desk.close()
        session = desk.partition()
        linked += assert_kept(session.catalogue.database, session.catalogue, texts_of(session))
        desk.close()
    assert linked > 90, "hardly any page was linked"


def test_a_catalogue_of_the_earlier_version_is_made_anew_from_the_files(
    made_store: StoreLayout, tmp_path: Path
) -> None:
    desk = Desk(copy_store(made_store, tmp_path / "store"))
    first = desk.page("Atlas", body="About it.")
    desk.page("Delta", body=f"[[{first['id']}]]")
    write_note(desk.folder(), "projects/broken.md", "---\nformat: [\n---\n")
    write_note(desk.folder(GROUP_PARTITION), "notes/p.md", page_file("p", "Group", partition=GROUP_PARTITION))
    desk.partition(GROUP_PARTITION)
    before = desk.call("records", {"lifecycle": "all"}), desk.call("history")
    assert desk.call("grep", {"query": "Atlas"})["total"] == 1
    desk.close()
    make_format_1(desk.layout.state_database)
    session = desk.partition()
    assert assert_kept(session.catalogue.database, session.catalogue, texts_of(session)) == 2
    assert (desk.call("records", {"lifecycle": "all"}), desk.call("history")) == before
    assert desk.call("grep", {"query": "Atlas"})["total"] == 1
    assert list(session.broken_files(10)) == ["projects/broken.md"]
    assert desk.call("records", {}, partition=GROUP_PARTITION)["total"] == 1
    desk.close()
    assert desk.partition().catalogue.database.user_version() == SCHEMA_VERSION
    desk.close()


def test_a_stop_in_the_middle_of_making_a_catalogue_anew_begins_again(made_store: StoreLayout, tmp_path: Path) -> None:
    desk = Desk(copy_store(made_store, tmp_path / "store"))
    first = desk.page("Atlas", body="About it.")
    desk.page("Delta", body=f"[[{first['id']}]]")
    desk.close()
    make_format_1(desk.layout.state_database)
    with faults.installed(stop_at("session.judge.begin")), pytest.raises(Stopped):
        desk.partition()
    desk.close(clean=False)
    session = desk.partition()
    assert assert_kept(session.catalogue.database, session.catalogue, texts_of(session)) == 2
    desk.close()


class Stopped(BaseException):
    """The process ends here."""


def stop_at(name: str) -> Callable[[str], None]:
    def passed(point: str) -> None:
        if point == name:
            raise Stopped

    return passed


# --- one change at a time -------------------------------------------------------------------------------------------


def test_a_links_page_may_come_later_under_any_of_its_names(shelf: Shelf) -> None:
    for number, link in enumerate(("[[new]]", "[[The New]]", "[[alias]]", "[[deep/new-note]]", "[[new-note]]")):
        shelf.put(f"l{number}.md", page(f"l{number}", f"Linking {number}", f"{link}\n"))
    shelf.put("l5.md", page("l5", "Linking 5", "[t](deep/new-note.md)\n"))
    shelf.put("deep/new-note.md", page("new", "the  NEW", aliases=["Alias"]))
    assert shelf.degree("deep/new-note.md") == 6
    shelf.remove("deep/new-note.md")
    assert set(shelf.degrees().values()) == {0}


def test_an_id_goes_before_a_name_a_name_before_a_path_and_a_path_before_a_file_name(shelf: Shelf) -> None:
    shelf.put("from.md", page("from", "From", "[[x]]\n"))
    pages = [("deep/x.md", "p1", "One"), ("x.md", "p2", "Two"), ("three.md", "p3", "X"), ("four.md", "x", "Four")]
    for path, record_id, title in pages:
        shelf.put(path, page(record_id, title))
        assert [found for found, degree in shelf.degrees().items() if degree and found != "from.md"] == [path]


def test_a_page_that_links_to_itself_has_no_degree_from_it(shelf: Shelf) -> None:
    shelf.put("a.md", page("a", "A", "[[a]] [[A]] [t](a.md) [t](#x)\n"))
    shelf.put("b.md", page("b", "B", lifecycle="merged", merged_into="a"))
    shelf.put("a.md", page("a", "A", "[[b]] [[a]]\n"))
    assert shelf.degrees() == {"a.md": 0}


def test_ids_that_several_files_bear_lead_nowhere_and_paths_still_lead(shelf: Shelf) -> None:
    shelf.put("from.md", page("from", "From", "[[a]] [t](a.md)\n"))
    shelf.put("a.md", page("a", "A"))
    assert shelf.degree("a.md") == 1
    shelf.put("copy.md", page("a", "A copy"))
    assert (shelf.degree("a.md"), shelf.degree("copy.md"), shelf.degree("from.md")) == (1, 0, 1)


def test_what_a_page_links_to_is_decided_for_current_pages_only(shelf: Shelf) -> None:
    shelf.put("a.md", page("a", "A", "[[b]]\n"))
    shelf.put("b.md", page("b", "B", type="no such type"))
    assert shelf.degrees() == {"a.md": 0}
    shelf.put("b.md", page("b", "B"))
    shelf.put("a.md", page("a", "A", "[[b]]\n", lifecycle="withdrawn"))
    assert shelf.degrees() == {"b.md": 0}


def test_the_standing_of_a_page_is_the_share_of_current_pages_with_a_lower_degree(shelf: Shelf) -> None:
    for number in range(9):
        shelf.put(f"p{number}.md", page(f"p{number}", f"P {number}", "[[hub]]\n" if number < 4 else ""))
    shelf.put("hub.md", page("hub", "Hub"))
    graph = PageGraph(shelf.reader)
    [hub] = shelf.reader.by_id("hub")
    standing = graph.standing(hub.row)
    assert (standing.degree, standing.lower, standing.pages, standing.percentile) == (4, 9, 10, 90.0)
    assert graph.standing(None).degree == 0

"""What every list promises while others write: pages of one snapshot are one list, and a changed one is told.

Between two pages agents save, correct, withdraw and merge, people edit, add and delete files, and claims expire. The
real store answers; before each page the whole list is read at the same moment and compared.

Source: tools.md (Agent response shapes, Listing and connections), decisions.md section 5 (snapshot).
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, cast

import pytest

from messages.errors import SnapshotChanged
from messages.json_types import JsonObject, JsonValue
from storage.layout import StoreLayout
from storage.records import format_instant
from tests.kit.store import NOON, Desk, claim_file, copy_store, items_of, page_file, write_note, write_notes

DAY: Final = format_instant(NOON)[:10]


@dataclass(frozen=True, slots=True)
class Listed:
    """A tool that lists: its name, its filters, where its rows lie, and whether it takes a snapshot back."""

    tool: str
    arguments: Mapping[str, JsonValue]
    rows: str
    takes_snapshot: bool = True
    limit: int | None = 100

    def page(self, desk: Desk, offset: int, limit: int | None, **more: JsonValue) -> JsonObject:
        size: JsonObject = {} if limit is None or self.limit is None else {"limit": limit}
        return desk.call(self.tool, {**self.arguments, "offset": offset, **size, **more})

    def keys(self, answer: JsonObject) -> list[str]:
        rows = cast("list[JsonObject]", answer[self.rows])
        names = ("direction", "sequence", "id", "via", "path", "operation")
        return [" ".join(str(row[name]) for name in names if name in row) for row in rows]


LISTS: Final = {
    "records": Listed("records", {}, "records"),
    "all records": Listed("records", {"lifecycle": "all", "kind": "claim"}, "records"),
    "connections": Listed("connections", {"id": "hub"}, "connections"),
    "historical claims": Listed("connections", {"id": "hub", "direction": "claims", "historical": True}, "connections"),
    "grep": Listed("grep", {"query": "harbor tide", "mode": "any"}, "hits", limit=50),
    "grep claims": Listed("grep", {"query": "harbor", "kind": "claim"}, "hits", limit=50),
    "timeline": Listed("timeline", {}, "entries"),
    "timeline of updates": Listed("timeline", {"order": "asc", "timeField": "updated"}, "entries"),
    "timeline of a subject": Listed("timeline", {"subject": "hub"}, "entries"),
    "lookup": Listed("lookup", {"query": "Twin"}, "hits", takes_snapshot=False, limit=50),
    "chronicle_day": Listed("chronicle_day", {"date": DAY}, "entries", takes_snapshot=False, limit=None),
    "history": Listed("history", {}, "rows", takes_snapshot=False),
    "history of a record": Listed("history", {"id": "hub"}, "rows", takes_snapshot=False),
}


@pytest.fixture(scope="module")
def harbor(made_store: StoreLayout, tmp_path_factory: pytest.TempPathFactory) -> StoreLayout:
    """A store in which every list has several pages."""
    layout = copy_store(made_store, tmp_path_factory.mktemp("harbor") / "store")
    desk = Desk(layout)
    twins = [(f"twin{n}.md", page_file(f"twin{n}", "Twin", body=f"tide [[hub]] {n}\n")) for n in range(12)]
    write_notes(desk.folder(), [("hub.md", page_file("hub", "Hub", body="the harbor\n")), *twins])
    for turn in range(3):
        desk.remember(
            *(
                {
                    "text": f"The harbor opens at {turn}:{n:02d}.", "kind": "fact", "subject": "hub",
                    "expires_at": format_instant(NOON + 3_600_000 * (n % 5 + 1)),
                }
                for n in range(12)
            )
        )  # fmt: skip
        hub = desk.record("hub")
        fence: JsonObject = {"id": "hub", "expectedRevision": hub["revision"], "expectedHash": hub["hash"]}
        desk.call("save_page", {**fence, "title": "Hub", "type": "project", "body": f"the harbor {turn}\n"})
    desk.close()
    return layout


def reopened(layout: StoreLayout, folder: Path) -> Desk:
    """A desk at a copy of the store, whose requests are new ones."""
    return Desk(copy_store(layout, folder / "store"), now_ms=NOON + 60_000, _requests=1_000)


# --- what happens between two pages ---------------------------------------------------------------------------------


@dataclass(slots=True)
class Others:
    """Everybody else, by one random source. ``log`` tells a failure's story."""

    desk: Desk
    random: random.Random
    log: list[str] = field(default_factory=list)
    made: int = 0

    def do_something(self) -> None:
        action = self.random.choice(ACTIONS)
        self.log.append(action.__name__)
        action(self)

    def ids(self, **filters: JsonValue) -> list[str]:
        found = self.desk.call("records", {**filters, "limit": 100})
        return [str(row["id"]) for row in cast("list[JsonObject]", found["records"])]

    def any_of(self, kind: str) -> str:
        """A record of a kind; never the hub, which some of the lists are about."""
        return self.random.choice([found for found in self.ids(kind=kind) if found != "hub"])

    def name(self) -> str:
        self.made += 1
        return f"new{self.made}"


def nothing(others: Others) -> None:
    """Nobody does anything."""


def save(others: Others) -> None:
    others.desk.remember({"text": f"The harbor has {others.name()}.", "kind": "fact", "subject": "hub"})


def edit_page(others: Others) -> None:
    page = others.desk.observed(others.any_of("page"))
    body = others.random.choice(("tide and harbor\n", "nothing of that kind\n", "[[hub]]\n"))
    others.desk.call("save_page", {**page, "title": "Twin", "type": "project", "body": body, "aliases": ["Twin"]})


def correct(others: Others) -> None:
    target = others.desk.observed(others.any_of("claim"))
    evidence = others.desk.retained(f"It was {others.name()}.")
    replacement: JsonObject = {
        "kind": "claim", "body": f"The tide is {others.name()}.", "claim_kind": "fact", "assertion_origin": "source",
        "attribution": "user", "entities": ["hub"], "evidence": [evidence],
    }  # fmt: skip
    others.desk.call("correct", {**others.desk.vault(), **target, "reason": "wrong", "replacement": replacement})


def withdraw(others: Others) -> None:
    kind = others.random.choice(("page", "claim"))
    others.desk.call("withdraw", {**others.desk.observed(others.any_of(kind)), "reason": "not so"})


def merge(others: Others) -> None:
    source, destination = (others.desk.observed(one) for one in others.random.sample(others.ids(kind="page"), 2))
    if source["id"] != "hub":
        fences: JsonObject = {**others.desk.vault(), "source": source, "destination": destination}
        others.desk.call("merge", {**fences, "reason": "the same"})


def edit_by_hand(others: Others) -> None:
    path = others.desk.path_of(others.any_of(others.random.choice(("page", "claim"))))
    path.write_text(path.read_text("utf-8") + "harbor, by hand\n", "utf-8")


def edit_the_hub(others: Others) -> None:
    path = others.desk.path_of("hub")
    path.write_text(path.read_text("utf-8") + "harbor, by hand\n", "utf-8")


def add_by_hand(others: Others) -> None:
    name = others.name()
    text = page_file(name, "Twin", body="tide [[hub]]\n") if others.made % 2 else claim_file(name, "harbor by hand")
    write_note(others.desk.folder(), f"notes/{name}.md", text)


def delete_by_hand(others: Others) -> None:
    others.desk.path_of(others.any_of(others.random.choice(("page", "claim")))).unlink()


def move_by_hand(others: Others) -> None:
    path = others.desk.path_of(others.any_of("page"))
    path.rename(path.with_name(f"{others.name()}.md"))


def let_claims_expire(others: Others) -> None:
    others.desk.now_ms += 3_600_000


ACTIONS: Final[Sequence[Callable[[Others], None]]] = (
    nothing, nothing, nothing, save, edit_page, correct, withdraw, merge, edit_the_hub, edit_by_hand, add_by_hand,
    delete_by_hand, move_by_hand, let_claims_expire,
)  # fmt: skip


# --- the promise ----------------------------------------------------------------------------------------------------


def whole(desk: Desk, listed: Listed) -> list[str]:
    """The list as it is at this moment, read with the largest pages and the clock standing still."""
    now, found = desk.now_ms, list[str]()
    offset: JsonValue = 0
    while offset is not None:
        desk.now_ms = now
        answer = listed.page(desk, int(str(offset)), listed.limit)
        found += listed.keys(answer)
        offset = answer.get("nextOffset")
    desk.now_ms = now
    return found


def walk(desk: Desk, listed: Listed, others: Others) -> str:
    """Read one list page by page while others act. How it ended: ``joined`` or ``changed``."""
    desk.now_ms += 1
    limit, busy = others.random.randint(1, 7), others.random.choice((0.05, 0.4))
    first = whole(desk, listed)
    answer = listed.page(desk, 0, limit)
    read = listed.keys(answer)
    assert read == first[: len(read)]
    snapshot = answer.get("snapshot")
    assert (snapshot is None) == ("nextOffset" not in answer)
    while "nextOffset" in answer:
        assert answer["nextOffset"] == len(read)
        before = len(others.log)
        if others.random.random() < busy:
            others.do_something()
        now = whole(desk, listed)
        sends = listed.takes_snapshot and others.random.random() < 0.5
        refusal = None
        try:
            answer = listed.page(desk, len(read), limit, **({"snapshot": snapshot} if sends else {}))
        except SnapshotChanged as refused:
            refusal = refused
        if refusal is not None:
            assert sends, others.log
            assert refusal.fields["snapshot"] != snapshot
            assert set(others.log[before:]) - {"nothing"}, "refused though nobody did anything"
            return "changed"
        if answer.get("snapshot") != snapshot:
            assert not sends, "another snapshot was answered where the sent one had to be refused"
            # A page behind the end of a list that shrank tells its snapshot too.
            assert "snapshot" in answer
            assert set(others.log[before:]) - {"nothing"}, "changed though nobody did anything"
            return "changed"
        read += listed.keys(answer)
        assert now == first, f"one snapshot, two lists: {others.log}"
        assert read == first[: len(read)], others.log
    assert read == first, others.log
    assert len(set(read)) == len(read)
    return "joined"


def run(layout: StoreLayout, folder: Path, name: str, seed: int, walks: int) -> set[str]:
    desk = reopened(layout, folder)
    others = Others(desk, random.Random(f"{name} {seed}"))
    try:
        return {walk(desk, LISTS[name], others) for _ in range(walks)}
    finally:
        desk.close()


@pytest.mark.parametrize("name", LISTS)
def test_pages_of_one_snapshot_are_one_list_and_a_changed_snapshot_is_told(
    harbor: StoreLayout, tmp_path: Path, name: str
) -> None:
    assert run(harbor, tmp_path, name, 1, 6) <= {"joined", "changed"}


@pytest.mark.exhaustive
@pytest.mark.timeout(900)
@pytest.mark.parametrize("name", LISTS)
def test_pages_hold_their_promise_over_long_runs(harbor: StoreLayout, tmp_path: Path, name: str) -> None:
    ends = [run(harbor, tmp_path / str(seed), name, seed, 12) for seed in range(20, 26)]
    assert set[str]().union(*ends) == {"joined", "changed"}


@pytest.mark.parametrize("name", ["records", "connections", "grep", "timeline"])
def test_a_claim_that_expires_between_two_pages_changes_the_snapshot_though_nobody_wrote(
    harbor: StoreLayout, tmp_path: Path, name: str
) -> None:
    desk = reopened(harbor, tmp_path)
    first = LISTS[name].page(desk, 0, 5)
    desk.now_ms += 3_600_000
    with pytest.raises(SnapshotChanged) as refused:
        LISTS[name].page(desk, 5, 5, snapshot=first["snapshot"])
    again = LISTS[name].page(desk, 0, 5)
    assert again["snapshot"] == refused.value.fields["snapshot"]
    assert int(str(again["total"])) < int(str(first["total"]))
    desk.close()


# --- windows of one text, and pages of what never changes -----------------------------------------------------------


def windows(read: Callable[[int], JsonObject], text: str, tell: str) -> tuple[str, set[str]]:
    """All windows joined, and every value of the key that a reader compares."""
    joined, told, offset = "", set[str](), 0
    while True:
        answer = read(offset)
        shown = answer.get("record", answer)
        assert isinstance(shown, dict)
        joined += str(shown[text])
        told.add(str(shown[tell]))
        if "nextOffset" not in answer:
            return joined, told
        offset = int(str(answer["nextOffset"]))


@pytest.mark.parametrize("seed", range(4))
def test_windows_of_a_record_under_one_hash_are_its_text_and_another_hash_tells_that_it_changed(
    desk: Desk, seed: int
) -> None:
    source = random.Random(seed)
    body = "".join(source.choice(("harbor ", "tide\n", "😀", "é")) for _ in range(2_000))
    write_note(desk.folder(), "a.md", page_file("a", "A", body=body))
    edited = False

    def read(offset: int) -> JsonObject:
        nonlocal edited
        if offset and source.random() < 0.1:
            edited = True
            path = desk.path_of("a")
            path.write_text(path.read_text("utf-8") + "more, by hand\n", "utf-8")
        return desk.call("record", {"id": "a", "offset": offset, "maxChars": 2_000})

    joined, hashes = windows(read, "body", "hash")
    assert (len(hashes) > 1) == edited
    assert edited or joined == body


def test_windows_of_a_retained_revision_join_whatever_is_written_meanwhile(desk: Desk) -> None:
    page = desk.page("A", body="harbor 😀 " * 800)
    [row] = cast("list[JsonObject]", desk.call("history", {"id": page["id"]})["rows"])
    text = desk.path_of(str(page["id"])).read_text("utf-8")

    def read(offset: int) -> JsonObject:
        path = desk.path_of(str(page["id"]))
        path.write_text(path.read_text("utf-8") + "more, by hand\n", "utf-8")
        wanted: JsonObject = {"id": page["id"], "sequence": row["sequence"], "offset": offset, "maxChars": 1_000}
        return desk.call("revision", wanted)

    joined, hashes = windows(read, "content", "hash")
    assert joined == text
    assert hashes == {page["hash"]}


def test_files_of_a_mutation_page_the_same_whatever_is_written_meanwhile(desk: Desk) -> None:
    made = desk.remember(*(f"The harbor has {n}." for n in range(10)), requestId=f"{'0' * 8}-0000-4000-8000-{'7' * 12}")
    found, offset = list[str](), 0
    while True:
        desk.remember(f"The tide is {offset}.")
        desk.call("withdraw", {**desk.observed(items_of(made)[offset // 3]["id"]), "reason": "not so"})
        answer = desk.call("mutation", {"requestId": f"{'0' * 8}-0000-4000-8000-{'7' * 12}", "fileOffset": offset})
        found += [str(file["id"]) for file in cast("list[JsonObject]", answer["files"]) if "id" in file]
        if "nextFileOffset" not in answer:
            break
        offset = int(str(answer["nextFileOffset"]))
    assert sorted(found) == sorted(str(item["id"]) for item in items_of(made))


def test_definitions_tell_by_their_fingerprint_that_the_ontology_changed_between_two_pages(desk: Desk) -> None:
    first = desk.call("ontology", {"view": "definitions", "limit": 3})
    again = desk.call("ontology", {"view": "definitions", "limit": 3, "offset": first["nextOffset"]})
    assert again["fingerprint"] == first["fingerprint"]
    pages = "pages:\n  aardvark: {description: An animal, folder: a}\n"
    write_note(desk.folder(), "ontology.yaml", f"format: knowledge-ontology-v1\nextends: core\n{pages}")
    changed = desk.call("ontology", {"view": "definitions", "limit": 3, "offset": first["nextOffset"]})
    assert changed["fingerprint"] != first["fingerprint"]

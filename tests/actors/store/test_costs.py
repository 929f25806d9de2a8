"""What an operation costs, as counters: the same whatever the store holds (DESIGN.md, PERFORMANCE.md)."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from messages.vocabulary import PRIVATE
from storage import faults
from storage.layout import StoreLayout
from storage.parsed_records import ParsedRecords
from tests.kit.sources import attach, chunk
from tests.kit.store import Desk, claim_file, make_store, page_file, remembering, request_id, write_notes

QUICK, FULL = (30, 300), (300, 3_000)
NUMBERS = itertools.count()


def filled(folder: Path, records: int) -> StoreLayout:
    """A store of that many records, a tenth of them pages, indexed and closed cleanly."""
    layout = make_store(folder)
    pages = records // 10
    notes = [(f"projects/{n:04}.md", page_file(f"page-{n}", f"Page {n}", tags=["blue"])) for n in range(pages)]
    for n in range(records - pages):
        text = claim_file(f"claim-{n}", f"Harbor number{n} is open.", entities=[f"page-{n % pages}"])
        notes.append((f"claims/{n % 32:02x}/{n:04}.md", text))
    write_notes(layout.vault / "private", notes)
    desk = Desk(layout)
    assert desk.call("grep", {"query": "number7"})["total"] == 1
    assert desk.call("records")["total"] == records
    desk.close()
    return layout


@pytest.fixture(
    scope="module", params=[QUICK, pytest.param(FULL, marks=pytest.mark.exhaustive)], ids=["30-300", "300-3000"]
)
def opened(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[Desk]]:
    desks = [Desk(filled(tmp_path_factory.mktemp("filled") / "store", size)) for size in request.param]
    try:
        yield desks
    finally:
        for desk in desks:
            desk.close()


@pytest.fixture
def desks(opened: list[Desk]) -> list[Desk]:
    """A small store and one of ten times its size, open, watched and warm."""
    for desk in opened:
        desk.call("grep", {"query": "warm"})
        desk.call("lookup", {"query": "Page 2"})
        desk.call("status")
        attach(desk, next(NUMBERS), b"the same bytes")
    return opened


def costs(desk: Desk, action: Callable[[Desk], object]) -> Counter[str]:
    """How often each effect happened."""
    counted: Counter[str] = Counter()

    def count(point: str) -> None:
        if not point.endswith(".after"):
            counted[point] += 1

    # What earlier actions happened to parse is no property of this one.
    desk.session.partition(PRIVATE)._parsed = ParsedRecords()
    with faults.installed(count):
        action(desk)
    return counted


ACTIONS: dict[str, Callable[[Desk], object]] = {
    "remember one": lambda desk: desk.remember(f"A new fact: {next(NUMBERS):06}."),
    "remember one that is linked": lambda desk: desk.remember(
        {"text": f"It is open: {next(NUMBERS):06}.", "kind": "fact", "subject": "Page 2"}
    ),
    "remember a duplicate": lambda desk: desk.remember(
        {"text": "Harbor number2 is open.", "kind": "fact", "subject": "page-2"}
    ),
    "save a page": lambda desk: desk.page(f"New page {next(NUMBERS):06}"),
    "attach an original": lambda desk: attach(desk, number := next(NUMBERS), f"original {number}".encode()),
    "attach an original again": lambda desk: attach(desk, next(NUMBERS), b"the same bytes"),
    "look a title up": lambda desk: desk.call("lookup", {"query": "Page 2"}),
    "search one word": lambda desk: desk.call("grep", {"query": "number7"}),
    "search a common word": lambda desk: desk.call("grep", {"query": "harbor"}),
    "search as a host": lambda desk: desk.consult("search", {"query": "Where is number7?"}),
    "list candidates for recall": lambda desk: desk.consult("candidates", {"kind": "trigger"}),
    "read a record": lambda desk: desk.call("record", {"id": "claim-7"}),
    "list a page of records": lambda desk: desk.call("records", {"limit": 10}),
    "read the history": lambda desk: desk.call("history"),
    "ask for status": lambda desk: desk.call("status"),
}


@pytest.mark.parametrize("name", sorted(ACTIONS))
def test_an_operation_costs_the_same_in_a_store_of_ten_times_the_size(desks: list[Desk], name: str) -> None:
    small, large = (costs(desk, ACTIONS[name]) for desk in desks)
    assert small == large
    assert small.total() < 150


@pytest.mark.parametrize("name", ["remember one", "remember one that is linked", "save a page"])
def test_a_write_has_one_durable_commit_and_syncs_no_file(desks: list[Desk], name: str) -> None:
    for desk in desks:
        found = costs(desk, ACTIONS[name])
        assert found["accept.commit"] == 1
        assert found["settle.commit"] == 1
        assert [point for point in found if point.startswith("sync.") or "fsync" in point] == []
        assert [point for point in found if point.endswith(".checkpoint")] == []


def test_a_chunk_of_an_original_is_one_sync_and_a_commit_without_one(desks: list[Desk]) -> None:
    number = next(NUMBERS)
    for desk in desks:
        desk.call("attach", chunk(number, 0, b"one"))
        found = costs(desk, lambda desk: desk.call("attach", chunk(number, 3, b"two")))
        assert (found["upload.sync"], found["upload.commit"]) == (1, 1)
        assert [point for point in found if point.endswith(".commit")] == ["upload.commit"]


def test_a_batch_of_twenty_is_one_durable_commit_and_looks_at_each_file_once(desks: list[Desk]) -> None:
    desk = desks[1]
    one = costs(desk, lambda desk: desk.remember(f"A single fact: {next(NUMBERS):06}."))
    batch = costs(desk, lambda desk: desk.remember(*[f"Fact number {next(NUMBERS):06} of twenty." for _ in range(20)]))
    assert batch["accept.commit"] == one["accept.commit"] == 1
    assert batch["stage.file.open"] - one["stage.file.open"] == 19
    assert batch["place.file"] - one["place.file"] == 19


@pytest.mark.parametrize("name", ["look a title up", "search one word", "read a record"])
def test_a_read_of_an_unchanged_store_reads_lists_and_scans_no_file(desks: list[Desk], name: str) -> None:
    for desk in desks:
        found = costs(desk, ACTIONS[name])
        assert [point for point in found if point.startswith("scan.")] == []
        assert [point for point in found if point.endswith((".read.read", ".list"))] == []
        assert [point for point in found if point.endswith(".commit")] == []


def test_one_external_edit_costs_the_next_query_the_same_whatever_the_size(desks: list[Desk]) -> None:
    found = []
    for desk in desks:
        path = desk.folder() / "claims/07/0007.md"
        path.write_text(path.read_text("utf-8").replace("is open", "is shut"), "utf-8")
        found.append(costs(desk, lambda desk: desk.call("record", {"id": "claim-7"})))
        assert "shut" in str(desk.record("claim-7")["text"])
    assert found[0] == found[1]
    assert found[0]["fold.commit"] == 1


def test_a_replay_writes_nothing(desks: list[Desk]) -> None:
    request = {**remembering(f"Once: {next(NUMBERS):06}."), "requestId": request_id(500_000 + next(NUMBERS))}
    for desk in desks:
        first = desk.call("remember", request)
        desk.call("status")  # the files of the save are looked at once more
        found = costs(desk, lambda desk: desk.call("remember", request))
        assert [point for point in found if point.endswith(".commit") or point.startswith("stage.")] == []
        assert desk.call("remember", request) == first

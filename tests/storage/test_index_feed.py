"""What the keyword index follows: every change once, in order, in slices that never skip one."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from messages.vocabulary import PRIVATE
from storage.index_feed import IndexFeed
from tests.kit.store import GROUP_PARTITION, Desk, claim_file, make_store, page_file, write_note, write_notes


@pytest.fixture
def desk(tmp_path: Path) -> Iterator[Desk]:
    opened = Desk(make_store(tmp_path / "store"))
    try:
        yield opened
    finally:
        opened.close()


@pytest.fixture
def feed(desk: Desk) -> Iterator[IndexFeed]:
    desk.partition()
    opened = IndexFeed(desk.layout.state_database)
    try:
        yield opened
    finally:
        opened.close()


def followed(feed: IndexFeed, limit: int, position: int = 0) -> tuple[dict[int, str], int]:
    """Row to title of what a follower knows after following to the end in slices of ``limit``; and its position."""
    known: dict[int, str] = {}
    while True:
        found = feed.after(PRIVATE, position, limit)
        for change in found.changes:
            if change.document is None:
                known.pop(change.rowid, None)
            else:
                known[change.rowid] = change.document.title
        if found.position >= found.end:
            return known, found.position
        assert found.position > position, "every slice moves on"
        position = found.position


@pytest.mark.parametrize("limit", [1, 2, 3, 7, 200])
def test_a_follower_in_slices_of_any_size_ends_with_what_the_catalogue_has(
    desk: Desk, feed: IndexFeed, limit: int
) -> None:
    folder = desk.folder()
    write_notes(folder, [(f"{n}.md", page_file(f"p{n}", f"Page {n}")) for n in range(8)])
    desk.partition()
    for n in (1, 3, 5):
        (folder / f"{n}.md").unlink()
        desk.partition()
        write_note(folder, f"{n + 1}.md", page_file(f"p{n + 1}", f"Page {n + 1} again"))
        desk.partition()
    write_note(folder, "1.md", page_file("p1", "Page 1 is back"))
    desk.partition()
    known, position = followed(feed, limit)
    assert sorted(known.values()) == [
        "Page 0", "Page 1 is back", "Page 2 again", "Page 4 again", "Page 6 again", "Page 7",
    ]  # fmt: skip
    assert position == desk.partition().catalogue.change
    assert followed(feed, limit, position) == ({}, position)


def test_a_row_number_is_never_given_to_another_record(desk: Desk, feed: IndexFeed) -> None:
    path = write_note(desk.folder(), "a.md", page_file("a", "A"))
    desk.partition()
    [first] = followed(feed, 10)[0]
    path.unlink()
    desk.partition()
    write_note(desk.folder(), "b.md", page_file("b", "B"))
    desk.partition()
    [second] = followed(feed, 10)[0]
    assert second != first


def test_a_document_carries_what_filters_and_ranking_need(desk: Desk, feed: IndexFeed) -> None:
    write_note(
        desk.folder(),
        "a.md",
        claim_file(
            "a",
            "We ship.",
            lifecycle="superseded",
            superseded_by="b",
            fixture=True,
            due_at="2026-09",
            expires_at="2027-01-01",
        ),
    )
    desk.partition()
    [change] = feed.after(PRIVATE, 0).changes
    document = change.document
    assert document is not None
    assert (document.kind, document.lifecycle, document.fixture, document.valid) == ("claim", "superseded", True, True)
    assert document.due_from is not None
    assert document.due_until is not None
    assert document.due_until - document.due_from == 30 * 24 * 3_600_000
    assert document.expires_at is not None


def test_a_feed_shows_one_partition_and_knows_its_catalogue(desk: Desk, feed: IndexFeed) -> None:
    desk.remember("Private.")
    desk.remember("Shared.", partition=GROUP_PARTITION)
    assert len(feed.after(PRIVATE, 0).changes) == 1
    assert len(feed.after(GROUP_PARTITION, 0).changes) == 1
    identity = feed.identity
    desk.close()
    again = IndexFeed(desk.layout.state_database)
    try:
        assert again.identity == identity
    finally:
        again.close()

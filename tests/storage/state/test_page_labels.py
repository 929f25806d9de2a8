"""Pages as labels: the most connected first, and names that a lookup resolves to one page (decisions.md section 5)."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from storage.state.page_labels import PageLabels
from tests.kit.store import (
    Desk,
    claim_file,
    copy_store,
    make_store,
    page_file,
    relationship_file,
    write_notes,
)


@pytest.fixture
def desk(tmp_path: Path) -> Iterator[Desk]:
    opened = Desk(copy_store(make_store(tmp_path / "made"), tmp_path / "store"))
    yield opened
    opened.close()


def ranked(desk: Desk, *without: str) -> list[str]:
    labels = PageLabels(desk.partition().catalogue)
    return [entry.id for entry in labels.most_connected(desk.now_ms, without)]


def names(desk: Desk, record_id: str) -> list[tuple[str, bool]]:
    entry = desk.partition().catalogue.one(record_id)
    assert entry is not None
    return list(PageLabels(desk.partition().catalogue).own_names([entry])[entry.row])


def test_pages_are_ranked_by_links_relationships_and_shared_claims_together(desk: Desk) -> None:
    write_notes(
        desk.folder(),
        [
            ("a.md", page_file("a", "A")),
            ("b.md", page_file("b", "B", body="[[a]]\n")),
            ("c.md", page_file("c", "C")),
            ("d.md", page_file("d", "D")),
            ("e.md", page_file("e", "E")),
            ("r.md", relationship_file("r", "a", "c")),
            ("k.md", claim_file("k", "They met.", entities=["a", "d"])),
            ("l.md", claim_file("l", "They met again.", entities=["d", "c"])),
        ],
    )
    # a: b by a link, c by a relationship, d by a claim; c and d two each; b one; e none.
    assert ranked(desk) == ["a", "c", "d", "b", "e"]


def test_only_current_pages_of_other_types_are_ranked(desk: Desk) -> None:
    write_notes(
        desk.folder(),
        [
            ("a.md", page_file("a", "A")),
            ("b.md", page_file("b", "B", type="source", fields={"key": "k"})),
            ("c.md", page_file("c", "C", lifecycle="withdrawn")),
            ("d.md", page_file("d", "D", fixture=True)),
            ("k.md", claim_file("k", "A claim.")),
        ],
    )
    assert ranked(desk, "source", "artifact") == ["a"]


def test_a_name_that_another_record_bears_or_has_as_its_id_is_not_its_own(desk: Desk) -> None:
    write_notes(
        desk.folder(),
        [
            ("a.md", page_file("a", "Twin", aliases=["Elder", "shared", "c"])),
            ("b.md", page_file("b", "twin", aliases=["Shared"])),
            ("c.md", page_file("c", "Third", lifecycle="withdrawn", aliases=["elder one"])),
        ],
    )
    assert names(desk, "a") == [("elder", False)]
    assert names(desk, "b") == []
    assert names(desk, "c") == [("third", True), ("elder one", False)]

"""A partition's session: what people do to files is known to the next refresh, and only complete looks count."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from messages.errors import DeletionsRefused, KnowledgeError, ScanIncomplete
from messages.vocabulary import PRIVATE, Partition
from storage import faults, outside_edits
from storage.layout import StoreLayout
from storage.session import PartitionSession, StoreSession
from storage.vault import ScanLimits
from tests.kit.store import GROUP_PARTITION, VAULT_ID, claim_file, make_store, page_file, write_note, write_notes


@pytest.fixture
def layout(tmp_path: Path) -> StoreLayout:
    return make_store(tmp_path / "store")


@pytest.fixture
def store(layout: StoreLayout) -> Iterator[StoreSession]:
    opened = StoreSession.open(layout, limits=ScanLimits())
    try:
        yield opened
    finally:
        opened.close()


def fresh(store: StoreSession, partition: Partition = PRIVATE) -> PartitionSession:
    session = store.partition(partition)
    session.refresh()
    return session


def ids(session: PartitionSession) -> list[str]:
    return sorted(session.catalogue.one(known).id for known in listed(session))  # type: ignore[union-attr]  # listed


def listed(session: PartitionSession) -> list[str]:
    entries = (session.catalogue.by_path(path) for path in session.catalogue.files())
    return [entry.id for entry in entries if entry is not None]


PARTITIONS = [PRIVATE, GROUP_PARTITION]


@pytest.mark.parametrize("partition", PARTITIONS, ids=["watched", "scanned"])
def test_every_kind_of_change_is_known_to_the_next_refresh(store: StoreSession, partition: Partition) -> None:
    folder = store.layout.partition(partition)
    path = write_note(folder, "a/b.md", claim_file("one", "First.", partition=partition))
    assert ids(fresh(store, partition)) == ["one"]
    path.write_text(claim_file("one", "Second.", partition=partition), "utf-8")
    entry = fresh(store, partition).catalogue.one("one")
    assert entry is not None
    assert store.partition(partition).load(entry).text == "Second."
    path.rename(folder / "moved.md")
    moved = fresh(store, partition).catalogue.one("one")
    assert moved is not None
    assert moved.path == "moved.md"
    write_note(folder, "c.md", claim_file("two", "Other.", partition=partition))
    assert ids(fresh(store, partition)) == ["one", "two"]
    (folder / "moved.md").write_text("no record any more", "utf-8")
    assert ids(fresh(store, partition)) == ["two"]
    (folder / "c.md").unlink()
    assert ids(fresh(store, partition)) == []


@pytest.mark.parametrize("partition", PARTITIONS, ids=["watched", "scanned"])
def test_an_edit_of_the_same_size_with_a_restored_mtime_is_known(store: StoreSession, partition: Partition) -> None:
    path = write_note(store.layout.partition(partition), "a.md", claim_file("one", "First.", partition=partition))
    fresh(store, partition)
    before = path.stat()
    path.write_text(path.read_text("utf-8").replace("First.", "Third."), "utf-8")
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
    entry = fresh(store, partition).catalogue.one("one")
    assert entry is not None
    assert store.partition(partition).load(entry).text == "Third."


def test_an_edit_while_the_store_was_closed_is_known_after_the_opening(layout: StoreLayout) -> None:
    first = StoreSession.open(layout, limits=ScanLimits())
    path = write_note(layout.partition(PRIVATE), "a.md", claim_file("one", "First."))
    fresh(first)
    assert first.close()
    path.write_text(claim_file("one", "Second."), "utf-8")
    write_note(layout.partition(PRIVATE), "b.md", claim_file("two", "New."))
    second = StoreSession.open(layout, limits=ScanLimits())
    try:
        progress = list(second.partition(PRIVATE).open_in_slices())
        assert progress[0] == (0, 2)
        assert ids(second.partition(PRIVATE)) == ["one", "two"]
        assert second.vault_id == VAULT_ID
    finally:
        second.close()


@pytest.mark.parametrize("link", ["symbolic", "hard"])
def test_links_are_never_followed_and_are_reported(store: StoreSession, tmp_path: Path, link: str) -> None:
    outside = tmp_path / "outside.md"
    outside.write_text(claim_file("one", "Secret."), "utf-8")
    target = store.layout.partition(PRIVATE) / "a.md"
    if link == "symbolic":
        target.symlink_to(outside)
    else:
        target.hardlink_to(outside)
    session = fresh(store)
    assert ids(session) == []
    assert session.uncovered() == {"refused": 1}
    assert len(session.warnings(100_000)) == 1


def test_edits_that_others_took_over_between_two_slices_of_an_opening_are_not_taken_over_again(
    layout: StoreLayout, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(outside_edits, "FOLD_IN_FILES", 2)
    write_notes(layout.partition(PRIVATE), [(f"{n}.md", page_file(f"page-{n}", f"Page {n}")) for n in range(7)])
    store = StoreSession.open(layout, limits=ScanLimits())
    try:
        session = store.partition(PRIVATE)
        opening = session.open_in_slices()
        assert next(opening) == (0, 7)
        next(opening)
        session.refresh()
        for _ in opening:
            pass
        entries = store.publisher.db.query("SELECT record_id, count(*) FROM history GROUP BY record_id")
        assert entries == [(f"page-{n}", 1) for n in range(7)]
    finally:
        store.close()


@pytest.mark.parametrize("partition", PARTITIONS, ids=["watched", "scanned"])
def test_a_refresh_that_fails_midway_is_made_up_for_by_the_next(store: StoreSession, partition: Partition) -> None:
    folder = store.layout.partition(partition)
    write_note(folder, "z.md", claim_file("zero", "There.", partition=partition))
    fresh(store, partition)
    write_notes(folder, [(f"{n}.md", claim_file(f"c{n}", f"Fact {n}.", partition=partition)) for n in range(5)])
    checks = 0

    def give_up() -> None:
        nonlocal checks
        checks += 1
        if checks == 3:
            raise ScanIncomplete("enough")

    with pytest.raises(ScanIncomplete):
        store.partition(partition).refresh(give_up)
    assert len(listed(fresh(store, partition))) == 6


def test_a_partition_past_its_scan_limit_fails_instead_of_showing_a_part(layout: StoreLayout) -> None:
    write_notes(layout.partition(PRIVATE), [(f"{n}.md", claim_file(f"c{n}", f"Fact {n}.")) for n in range(6)])
    store = StoreSession.open(layout, limits=ScanLimits(entries=5))
    try:
        for _ in range(2):
            with pytest.raises(KnowledgeError) as raised:
                fresh(store)
            assert raised.value.code == "scan_incomplete"
        assert listed(store.partition(PRIVATE)) == []
    finally:
        store.close()


def test_what_the_scan_limit_counts_follows_the_edits_between_two_scans(store: StoreSession) -> None:
    session = fresh(store)
    before = session.entries
    folder = store.layout.partition(PRIVATE)
    made = [write_note(folder, f"n{n}.md", page_file(f"n-{n}", f"N {n}")) for n in range(4)]
    assert fresh(store).entries == before + 4
    made[0].unlink()
    made[1].write_text(page_file("n-1", "N 1", body="other words\n"))
    assert fresh(store).entries == before + 3
    session._watch.invalidate()
    assert fresh(store).entries == before + 3


def fill(store: StoreSession, number: int) -> list[Path]:
    folder = store.layout.partition(PRIVATE)
    write_notes(folder, [(f"old/{n}.md", page_file(f"p{n}", f"Page {n}")) for n in range(number)])
    assert len(listed(fresh(store))) == number
    return sorted((folder / "old").iterdir())


@pytest.mark.parametrize(
    ("there", "gone", "refused"), [(42, 21, False), (41, 21, True), (20, 20, False), (21, 21, True), (100, 50, False)]
)
def test_more_than_20_and_more_than_half_gone_at_once_is_refused(
    store: StoreSession, there: int, gone: int, refused: bool
) -> None:
    for path in fill(store, there)[:gone]:
        path.unlink()
    if not refused:
        assert len(listed(fresh(store))) == there - gone
        return
    for _ in range(2):
        with pytest.raises(DeletionsRefused) as raised:
            fresh(store)
        assert raised.value.fields["missing"] == gone
    store.partition(PRIVATE).accept_deletions()
    assert len(listed(fresh(store))) == there - gone


@pytest.mark.parametrize("how", ["a folder is renamed", "files are moved one by one"])
def test_a_move_of_most_records_is_no_deletion(store: StoreSession, how: str) -> None:
    paths = fill(store, 30)
    folder = store.layout.partition(PRIVATE)
    if how == "a folder is renamed":
        (folder / "old").rename(folder / "new")
    else:
        (folder / "new").mkdir()
        for path in paths:
            path.rename(folder / "new" / path.name)
    assert len(listed(fresh(store))) == 30
    entry = store.partition(PRIVATE).catalogue.one("p7")
    assert entry is not None
    assert entry.path == "new/7.md"


def test_an_unchanged_store_is_refreshed_without_reading_a_file(store: StoreSession) -> None:
    fill(store, 5)
    fresh(store)
    points: list[str] = []
    with faults.installed(points.append):
        fresh(store)
    assert [point for point in points if point.startswith(("edits.", "scan.", "fold."))] == []


@pytest.mark.parametrize("stage", [lambda folder: (folder / "people").mkdir(), lambda folder: None])
def test_a_folder_that_appears_with_files_in_it_is_known_at_once(
    store: StoreSession, tmp_path: Path, stage: Callable[[Path], None]
) -> None:
    folder = store.layout.partition(PRIVATE)
    stage(folder)
    fresh(store)
    elsewhere = tmp_path / "elsewhere"
    write_note(elsewhere, "deep/er/a.md", page_file("deep", "Deep"))
    elsewhere.rename(folder / "arrived")
    assert ids(fresh(store)) == ["deep"]
    (folder / "arrived/deep/er/b.md").write_text(page_file("later", "Later"), "utf-8")
    assert ids(fresh(store)) == ["deep", "later"]

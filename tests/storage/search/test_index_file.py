"""The index as a file: made, caught up, damaged, replaced, and read while it is written."""

from __future__ import annotations

import errno
import os
import shutil
import sqlite3
import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from messages.errors import IndexUnavailable, KnowledgeError, StorageError
from storage.faults import installed
from storage.search import FAULT_POINTS, IndexChange, Rebuilt, SearchIndex, SearchQuery
from storage.search._file import FORMAT, log_bytes
from storage.search._index import LOG_MAX_BYTES
from tests.storage.search.samples import NOTE, bodies, fill, open_index, rows, titled, total


@pytest.fixture(scope="module")
def garden_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A closed index of one page, to be copied: making one costs several syncs."""
    made = tmp_path_factory.mktemp("garden") / "private.sqlite"
    filled(made, "garden")
    return made


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "store" / "search" / "private.sqlite"


def filled(path: Path, *titles: str) -> None:
    index = open_index(path)
    fill(index, titled(*titles))
    index.close()


def test_a_missing_index_is_made_with_its_folder_and_asks_for_a_rebuild(path: Path) -> None:
    index = open_index(path)
    assert (index.rebuilt, index.needs_rebuild, index.position(), index.count()) == ("missing", True, 0, 0)
    assert path.parent.stat().st_mode & 0o777 == 0o700
    index.close()


def test_what_was_applied_is_there_after_reopening_and_needs_no_rebuild(path: Path) -> None:
    filled(path, "garden", "pilot")
    index = open_index(path)
    assert (index.rebuilt, index.needs_rebuild, index.position(), index.count()) == (None, False, 2, 2)
    assert rows(index, "pilot") == [2]
    index.close()


def overwrite_beginning(path: Path) -> None:
    with path.open("r+b") as file:
        file.write(os.urandom(100))


def truncate(path: Path) -> None:
    os.truncate(path, path.stat().st_size // 2)


def empty(path: Path) -> None:
    path.write_bytes(b"")


def text_file(path: Path) -> None:
    path.write_text("this is no database, " * 200)


def other_database(path: Path) -> None:
    path.unlink()
    with sqlite3.connect(path) as database:
        database.execute("CREATE TABLE t (a)")
        database.execute(f"PRAGMA user_version = {FORMAT}")
    database.close()


def sql(statement: str) -> Callable[[Path], None]:
    def run(path: Path) -> None:
        with sqlite3.connect(path) as database:
            database.execute(statement)
        database.close()

    return run


DAMAGE: list[tuple[Callable[[Path], None], Rebuilt]] = [
    (overwrite_beginning, "corrupt"),
    (truncate, "corrupt"),
    (text_file, "corrupt"),
    (empty, "older"),
    (other_database, "foreign"),
    (sql("PRAGMA user_version = 99"), "older"),
    (sql("PRAGMA user_version = 0"), "older"),
    (sql("UPDATE meta SET value = '0/1.1.0' WHERE key = 'fold'"), "older"),
    (sql("DELETE FROM meta WHERE key = 'position'"), "older"),
    (sql("UPDATE meta SET value = 'other' WHERE key = 'vault'"), "foreign"),
]


@pytest.mark.parametrize(("damage", "reason"), DAMAGE)
def test_a_damaged_foreign_or_older_index_is_deleted_and_rebuilt_and_never_answers(
    path: Path, damage: Callable[[Path], None], reason: Rebuilt
) -> None:
    filled(path, "garden")
    damage(path)
    with pytest.raises(IndexUnavailable):
        open_index(path, read_only=True)
    index = open_index(path)
    assert (index.rebuilt, index.position(), index.count()) == (reason, 0, 0)
    fill(index, titled("meadow"))
    assert (rows(index, "garden"), rows(index, "meadow")) == ([], [1])
    assert index.check()
    index.close()


def test_a_log_without_its_database_is_not_replayed_into_the_next_one(path: Path) -> None:
    index = open_index(path)
    fill(index, titled("garden"))
    assert log_bytes(path) > 0
    left = Path(f"{path}-wal").read_bytes()
    index.close()
    path.unlink()
    Path(f"{path}-wal").write_bytes(left)
    index = open_index(path)
    assert (index.rebuilt, index.count(), rows(index, "garden")) == ("missing", 0, [])
    index.close()


@pytest.mark.parametrize(("partition", "catalogue"), [("conversations/x", ""), ("private", "another")])
def test_rows_of_another_partition_or_catalogue_are_never_served(path: Path, partition: str, catalogue: str) -> None:
    filled(path, "garden")
    with pytest.raises(IndexUnavailable):
        open_index(path, partition=partition, catalogue=catalogue, read_only=True)
    index = open_index(path, partition=partition, catalogue=catalogue)
    assert (index.rebuilt, index.position()) == ("foreign", 0)
    index.close()


def test_a_reader_of_a_missing_index_says_so_and_makes_nothing(path: Path) -> None:
    with pytest.raises(IndexUnavailable) as missing:
        open_index(path, read_only=True)
    assert missing.value.fields["reason"] == "missing"
    assert not path.parent.exists()


def test_an_index_that_is_behind_is_an_error_and_never_zero_hits(path: Path) -> None:
    index = open_index(path)
    fill(index, titled("garden"))
    with pytest.raises(IndexUnavailable) as behind:
        index.search(SearchQuery("meadow"), at_least=2)
    assert behind.value.fields == {"reason": "behind", "position": 1, "target": 2}
    with pytest.raises(IndexUnavailable):
        index.search(SearchQuery("!!!"), at_least=2)
    assert index.search(SearchQuery("garden"), at_least=1).position == 1
    index.close()


def test_a_slice_is_applied_with_its_position_or_not_at_all(path: Path) -> None:
    index = open_index(path)
    fill(index, titled("garden"))

    def fail(point: str) -> None:
        if point == "search.apply.commit":
            raise OSError(errno.ENOSPC, "no space left")

    with pytest.raises((OSError, KnowledgeError)), installed(fail):
        index.apply([IndexChange(1, None), IndexChange(2, titled("meadow")[0])], 7)
    assert (index.position(), rows(index, "garden"), rows(index, "meadow")) == (1, [1], [])
    index.apply([IndexChange(1, None), IndexChange(2, titled("meadow")[0])], 7)
    assert (index.position(), rows(index, "garden"), rows(index, "meadow")) == (7, [], [2])
    index.close()


def nothing(path: Path) -> None:
    """Leave the index as it is."""


def missing(path: Path) -> None:
    path.unlink()


@pytest.mark.parametrize("failing", [name for name, _ in FAULT_POINTS])
@pytest.mark.parametrize("before", [nothing, missing, overwrite_beginning])
@pytest.mark.parametrize("after", ["", ".after"])
def test_a_failure_at_any_point_leaves_a_whole_index_that_goes_on(
    path: Path, garden_file: Path, failing: str, before: Callable[[Path], None], after: str
) -> None:
    path.parent.mkdir(parents=True)
    shutil.copy(garden_file, path)
    before(path)
    failed: list[str] = []

    def fail(point: str) -> None:
        if point == failing + after:
            failed.append(point)
            raise OSError(errno.EIO, os.strerror(errno.EIO))

    opened: list[SearchIndex] = []
    raised = False
    try:
        with installed(fail):
            opened.append(open_index(path))
            opened[0].apply([IndexChange(2, replace(NOTE, title="meadow v1.2"))], 2)
            rows(opened[0], "meadow")
            opened[0].merge_step()
    except (OSError, KnowledgeError):
        raised = True
    assert raised is bool(failed)  # never swallowed
    for index in opened:
        index.close()
    again = open_index(path)
    assert again.check()
    assert again.position() in (0, 1, 2)
    again.apply([IndexChange(1, titled("garden")[0]), IndexChange(2, titled("meadow")[0])], 3)
    assert (rows(again, "garden"), rows(again, "meadow"), again.count()) == ([1], [2], 2)
    again.close()


def test_every_declared_point_is_passed_and_no_other(path: Path) -> None:
    passed: set[str] = set()
    with installed(lambda point: passed.add(point.removesuffix(".after"))):
        index = open_index(path)
        fill(index, titled("garden v1.2"))
        reader = open_index(path, read_only=True)
        rows(reader, "garden v1.2")
        index.merge_step()
        with pytest.raises(ValueError, match="passed position"):
            index.apply([], 0)
        index.reset()
        index.close()
        reader.close()
    assert passed == {name for name, _ in FAULT_POINTS}


def test_changes_may_be_applied_again_and_the_last_one_of_a_row_wins(path: Path) -> None:
    index = open_index(path)
    changes = [IndexChange(1, titled("garden")[0]), IndexChange(1, None), IndexChange(1, titled("meadow")[0])]
    for _ in range(3):
        index.apply(changes, 5)
    index.apply([IndexChange(9, None)], 5)
    assert (index.count(), rows(index, "garden"), rows(index, "meadow")) == (1, [], [1])
    index.close()


@pytest.mark.parametrize("row", [0, -1, 1 << 40])
def test_a_row_that_does_not_fit_is_refused_and_changes_nothing(path: Path, row: int) -> None:
    index = open_index(path)
    with pytest.raises(ValueError, match="not a catalogue row"):
        index.apply([IndexChange(1, titled("garden")[0]), IndexChange(row, titled("garden")[0])], 2)
    assert (index.count(), index.position()) == (0, 0)
    fill(index, titled("garden"), first=(1 << 40) - 1)
    assert rows(index, "garden") == [(1 << 40) - 1]
    index.close()


def test_a_position_never_goes_back(path: Path) -> None:
    index = open_index(path)
    index.apply([], 10)
    with pytest.raises(ValueError, match="passed position 9"):
        index.apply([IndexChange(1, titled("garden")[0])], 9)
    assert (index.position(), index.count()) == (10, 0)
    index.close()


def test_a_reader_sees_whole_slices_only_while_another_thread_applies_them(path: Path) -> None:
    writer = open_index(path)
    fill(writer, titled("garden", "garden"))
    reader = open_index(path, read_only=True)
    inside, go_on = threading.Event(), threading.Event()
    seen: list[tuple[int, int]] = []

    def hold(point: str) -> None:
        if point == "search.apply.commit" and threading.current_thread() is thread:
            inside.set()
            assert go_on.wait(10)

    def apply() -> None:
        own = open_index(path)
        own.apply([IndexChange(1, None), IndexChange(3, titled("garden")[0]), IndexChange(4, titled("garden")[0])], 5)
        own.close()

    thread = threading.Thread(target=apply)
    with installed(hold):
        thread.start()
        assert inside.wait(10)
        seen.append((reader.position(), total(reader, "garden")))  # neither waits for the writer nor sees its rows
        go_on.set()
        thread.join()
    seen.append((reader.position(), total(reader, "garden")))
    assert seen == [(2, 2), (5, 3)]
    reader.close()
    writer.close()


def test_one_search_sees_one_state_even_when_a_slice_is_committed_in_its_middle(path: Path) -> None:
    writer = open_index(path)
    fill(writer, titled("garden", "garden"))
    reader = open_index(path, read_only=True)
    statements = 0

    def write_between(point: str) -> None:
        nonlocal statements
        if point == "search.statement.after":
            statements += 1
            if statements == 3:  # BEGIN, the position, then the count
                with installed(lambda _: None):
                    writer.apply([IndexChange(1, None)], 3)

    with installed(write_between):
        page = reader.search(SearchQuery("garden"), at_least=2)
    assert (page.position, page.total, [hit.rowid for hit in page.hits]) == (2, 2, [1, 2])
    assert reader.search(SearchQuery("garden"), at_least=3).total == 1
    reader.close()
    writer.close()


def test_two_first_openings_at_once_are_both_fine(path: Path) -> None:
    barrier = threading.Barrier(4)
    rebuilt: list[Rebuilt | None] = []

    def first_open() -> None:
        barrier.wait()
        index = open_index(path)
        rebuilt.append(index.rebuilt)
        index.close()

    threads = [threading.Thread(target=first_open) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(rebuilt, key=str) == [None, None, None, "missing"]


def test_a_reader_follows_the_writer_to_a_new_file_and_closing_it_harms_nothing(path: Path) -> None:
    writer = open_index(path)
    fill(writer, titled("garden"))
    reader, idle = open_index(path, read_only=True), open_index(path, read_only=True)
    assert rows(reader, "garden") == rows(idle, "garden") == [1]
    writer.reset()
    assert (writer.rebuilt, writer.position()) == ("reset", 0)
    fill(writer, titled("meadow", "meadow"))
    idle.close()  # it still had the deleted file open
    assert (rows(reader, "garden"), rows(reader, "meadow"), reader.position()) == ([], [1, 2], 2)
    reader.close()
    writer.close()
    again = open_index(path)
    assert (again.rebuilt, again.count(), again.check()) == (None, 2, True)
    again.close()


def test_a_reader_of_a_deleted_index_says_that_it_is_missing(path: Path) -> None:
    filled(path, "garden")
    reader = open_index(path, read_only=True)
    for file in path.parent.iterdir():
        file.unlink()
    with pytest.raises(IndexUnavailable) as missing:
        rows(reader, "garden")
    assert missing.value.fields["reason"] == "missing"
    reader.close()
    filled(path, "meadow")
    assert rows(reader, "meadow") == [1]  # it comes back with the file
    reader.close()


def test_damage_behind_the_first_page_is_reported_and_reset_heals_it(path: Path) -> None:
    index = open_index(path)
    fill(index, bodies(*(f"garden word{number} " * 50 for number in range(300))))
    index.close()
    size = path.stat().st_size
    with path.open("r+b") as file:
        file.seek(4096)
        file.write(b"\xff" * (size - 4096))
    index = open_index(path)
    if index.rebuilt is None:
        assert not index.check()
        with pytest.raises(IndexUnavailable) as damaged:
            rows(index, "garden")
        assert damaged.value.fields["reason"] == "corrupt"
        index.reset()
    fill(index, titled("garden"))
    assert (rows(index, "garden"), index.check()) == ([1], True)
    index.close()


def test_reset_leaves_no_trace_of_the_text(path: Path) -> None:
    index = open_index(path)
    fill(index, titled("unmistakable", "unmistakable-v1.2"))
    index.reset()
    index.close()
    assert not any(b"unmistakable" in file.read_bytes() for file in path.parent.iterdir())


def test_merging_is_done_in_steps_and_changes_no_answer(path: Path) -> None:
    index = open_index(path)
    for number in range(12):
        texts = [" ".join(f"garden w{number}x{one}y{word} v{one}.{word}" for word in range(60)) for one in range(10)]
        fill(index, bodies(*texts), first=1 + 10 * number)
    before = rows(index, "garden", limit=500)
    steps = 1
    while index.merge_step(8):
        steps += 1
        assert steps < 1_000
    assert steps > 1
    assert rows(index, "garden", limit=500) == before
    assert index.check()
    assert not index.merge_step()
    index.close()


def test_a_rebuild_never_piles_up_segments_until_one_slice_has_to_join_them_all(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    joins_all_at_once = 16  # FTS5's crisismerge

    def most_segments() -> int:
        index = open_index(path)
        index.reset()
        seen = 0
        for number in range(40):
            fill(index, bodies(*(f"garden w{number}x{one}" for one in range(20))), first=1 + 20 * number)
            seen = max(seen, index._database.query("SELECT count(DISTINCT segid) FROM text_idx")[0][0])
        index.close()
        return seen

    assert most_segments() < joins_all_at_once / 2
    monkeypatch.setattr("storage.search._index.BULK_DOCUMENTS", 1_000)
    assert most_segments() >= joins_all_at_once - 1


def test_the_log_is_written_back_before_it_grows_without_bound(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def largest_log(limit: int) -> int:
        monkeypatch.setattr("storage.search._index.LOG_MAX_BYTES", limit)
        index = open_index(path)
        index.reset()
        sizes = []
        for number in range(30):
            texts = [" ".join(f"w{number}n{one}m{word}" for word in range(40)) for one in range(20)]
            fill(index, bodies(*texts), first=1 + 20 * number)
            sizes.append(log_bytes(path))
        index.close()
        return max(sizes)

    assert LOG_MAX_BYTES <= 8 * 1024 * 1024
    assert largest_log(100_000) < 1_000_000 < largest_log(1 << 40)


def test_the_usual_search_looks_at_no_document_but_the_expired(path: Path) -> None:
    index = open_index(path)
    fill(index, titled(*["garden"] * 200))
    statements: list[str] = []
    with installed(lambda point: statements.append(point) if point == "search.statement" else None):
        rows(index, "garden", limit=10)
    assert len(statements) == 5  # BEGIN, position, count, hits, ROLLBACK
    index.close()


def test_full_disk_is_a_typed_error_and_the_index_stays_readable(path: Path) -> None:
    index = open_index(path)
    fill(index, titled("garden"))
    pages = index._database.query("PRAGMA page_count")[0][0]
    index._database.execute(f"PRAGMA max_page_count = {pages}")
    with pytest.raises((StorageError, IndexUnavailable)):
        fill(index, bodies(*(f"word{number} " * 100 for number in range(500))), first=2)
    assert (rows(index, "garden"), index.position()) == ([1], 1)
    index.close()

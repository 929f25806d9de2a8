"""What only the stores on this machine have: hand edits, other programs' rows, crashes, and errors of the disk.

Source: agent-memory-contract.md sections 3.1 and 3.2.
"""

from __future__ import annotations

import json
import os
import signal
import sqlite3
import subprocess
import sys
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest

from messages.errors import KnowledgeError, StorageError, StoreUnavailable
from storage import faults
from storage.agent_memory import FileKnowledgeStore, KnowledgeEntry, SQLiteKnowledgeStore
from tests.storage.agent_memory.conftest import NOON, Hands
from tests.storage.agent_memory.deaths import Killed, killed_at, points_of


def entry(entry_id: str, text: str = "", **fields: object) -> KnowledgeEntry:
    return replace(KnowledgeEntry(entry_id, text, created_at=NOON, updated_at=NOON), **fields)  # type: ignore[arg-type]


def ids(store: FileKnowledgeStore | SQLiteKnowledgeStore) -> list[str]:
    return sorted(one.id for one in store.everything())


# --- the file ------------------------------------------------------------------------------------------


def test_a_line_of_the_file_has_the_nine_keys_in_their_order(tmp_path: Path) -> None:
    store = FileKnowledgeStore(tmp_path)
    store.save(entry("one", "ü"))
    line = (tmp_path / "entries.jsonl").read_text("ascii")
    assert store._entries_path == tmp_path / "entries.jsonl"
    assert list(json.loads(line)) == [
        "id", "content", "category", "importance", "persistent", "ttl_days", "created_at", "updated_at", "metadata",
    ]  # fmt: skip
    assert '"content": "\\u00fc", ' in line


ZEROS = b"0" * 400
BAD_LINES = [
    b"", b"   ", b"not json", b"[1]", b"7", b'"text"', b"null", b"\xff\xfe", b"\0" * 50, b"{}", b'{"id": "x"}',
    b'{"id": "", "content": "x", "created_at": "2026-01-01", "updated_at": "2026-01-01"}',
    b'{"id": "x", "content": "x", "created_at": "yesterday", "updated_at": "2026-01-01"}',
    b'{"id": "x", "content": "x", "created_at": "2026-01-01", "updated_at": "2026-01-01", "importance": NaN}',
    b'{"importance": 1%s, "id": "x", "content": "x", "created_at": "2026-01-01", "updated_at": "2026-01-01"}' % ZEROS,
    b'{"id": "x", "content": "x", "created_at": "2026-01-01", "updated_at": "2026-01-01", "ttl_days": "1"}',
    b'{"id": "x", "content": "x", "created_at": 5, "updated_at": "2026-01-01"}', b'{"deleted": true, "id": 5}',
    b"[" * 100_000, b"{" * 5,
]  # fmt: skip


def test_lines_that_cannot_be_read_hide_no_entry_and_are_never_lost(tmp_path: Path) -> None:
    store = FileKnowledgeStore(tmp_path)
    store.save(entry("one"))
    path = tmp_path / "entries.jsonl"
    path.write_bytes(b"\n".join(BAD_LINES) + b"\n" + path.read_bytes() + b"\n".join(BAD_LINES))
    for opened in (store, FileKnowledgeStore(tmp_path)):
        assert ids(opened) == ["one"]
    store.save(entry("two"))
    store.remove(["one"])  # writes the file anew
    assert ids(FileKnowledgeStore(tmp_path)) == ids(store) == ["two"]
    kept = path.read_bytes()
    assert [line for line in BAD_LINES if line.strip() and b"deleted" not in line and line not in kept] == []


@pytest.mark.parametrize(
    "times", ["0001-01-01T00:00:00+14:00", "9999-12-31T23:59:59.999999-12:00", "0001-01-01", "2026-01-01T00:00:00Z"]
)
def test_times_at_the_ends_of_the_calendar_and_days_beyond_it_are_read(tmp_path: Path, times: str) -> None:
    line = {"id": "x", "content": "x", "created_at": times, "updated_at": times, "ttl_days": 10**30}
    (tmp_path / "entries.jsonl").write_text(json.dumps(line))
    store = FileKnowledgeStore(tmp_path)
    assert [one.id for one in store.query()] == ["x"]
    assert store.prune(max_age_days=10**9) == 0


def test_an_edit_in_place_is_seen_whether_the_file_grows_shrinks_or_keeps_its_size(tmp_path: Path) -> None:
    store = FileKnowledgeStore(tmp_path)
    for number in range(20):
        store.save(entry(str(number), "text"))
    path = tmp_path / "entries.jsonl"
    for before, after in ((b'"text"', b'"a longer text"'), (b'"a longer text"', b'"text"'), (b'"text"', b'"TEXT"')):
        with path.open("r+b") as file:
            data = file.read()
            file.seek(0)
            file.truncate()
            file.write(data.replace(before, after, 1))
        assert store.get("0") is not None
        assert [one.content for one in store.everything()].count(json.loads(after)) >= 1
        assert {one.id: one for one in store.everything()} == {
            one.id: one for one in FileKnowledgeStore(tmp_path).everything()
        }
        store.save(entry("new", "new"))
        assert len(ids(FileKnowledgeStore(tmp_path))) == 21


def test_a_file_that_is_replaced_or_cut_is_read_again(tmp_path: Path) -> None:
    store = FileKnowledgeStore(tmp_path)
    store.save(entry("one"))
    store.save(entry("two"))
    path = tmp_path / "entries.jsonl"
    first = path.read_bytes().splitlines(keepends=True)[0]
    (tmp_path / "next").write_bytes(first.replace(b'"one"', b'"next"'))
    (tmp_path / "next").replace(path)
    assert ids(store) == ["next"]
    store.save(entry("three"))
    os.truncate(path, len(first) + 10)
    assert ids(store) == ["next"]
    path.unlink()
    assert ids(store) == []
    store.save(entry("four"))
    assert ids(FileKnowledgeStore(tmp_path)) == ["four"]


def test_a_file_that_is_a_link_or_a_folder_is_a_typed_error(tmp_path: Path) -> None:
    (tmp_path / "elsewhere").write_text("")
    for name, make in (("link", lambda path: path.symlink_to(tmp_path / "elsewhere")), ("folder", Path.mkdir)):
        (tmp_path / name).mkdir()
        make(tmp_path / name / "entries.jsonl")
        with pytest.raises(StorageError):
            FileKnowledgeStore(tmp_path / name).save(entry("one"))
    assert (tmp_path / "elsewhere").read_text() == ""


# --- the database --------------------------------------------------------------------------------------


def test_rows_of_another_program_are_read_in_the_order_of_their_times(tmp_path: Path) -> None:
    store = SQLiteKnowledgeStore(tmp_path / "knowledge.db")
    with sqlite3.connect(tmp_path / "knowledge.db") as other:
        for name, at in (
            ("first", "2026-03-13T23:00:00+14:00"),
            ("third", "2026-03-13T09:30:00+00:00"),
            ("fourth", "2026-03-12T23:00:00-11:00"),
            ("second", "2026-03-13T09:15:00"),
            ("unreadable", "yesterday"),
        ):
            other.execute(
                "INSERT INTO knowledge (id, content, created_at, updated_at) VALUES (?, ?, ?, ?)", (name, name, at, at)
            )
    other.close()
    assert [one.id for one in store.query()] == ["first", "second", "third", "fourth"]
    assert [one.id for one in store.query(limit=1)] == ["first"]
    assert (store.get("unreadable"), store.count()) == (None, 5)


def test_a_database_that_is_none_or_cannot_be_opened_is_a_typed_error(tmp_path: Path) -> None:
    (tmp_path / "text").write_text("this is no database, and longer than a header of one would be" * 50)
    (tmp_path / "folder").mkdir()
    with pytest.raises(StorageError):
        SQLiteKnowledgeStore(tmp_path / "text")
    with pytest.raises(StoreUnavailable):
        SQLiteKnowledgeStore(tmp_path / "folder")
    with pytest.raises(StoreUnavailable):
        SQLiteKnowledgeStore(tmp_path / "text" / "knowledge.db")
    with pytest.raises(ValueError, match="file"):
        SQLiteKnowledgeStore(":memory:")


def test_a_table_that_wants_more_than_an_entry_has_is_a_typed_error(tmp_path: Path) -> None:
    store = SQLiteKnowledgeStore(tmp_path / "knowledge.db")
    with sqlite3.connect(tmp_path / "knowledge.db") as other:
        other.execute("CREATE TRIGGER refuse BEFORE INSERT ON knowledge BEGIN SELECT RAISE(ABORT, 'no'); END")
    other.close()
    with pytest.raises(StorageError) as refused:
        store.save(entry("one"))
    assert (refused.value.retry, store.count()) == ("never", 0)


def test_the_log_of_the_database_does_not_grow_with_every_save(tmp_path: Path) -> None:
    store = SQLiteKnowledgeStore(tmp_path / "knowledge.db")
    sizes = []
    for number in range(1_100):
        store.save(entry("one", str(number)))
        if number % 256 == 255:
            sizes.append((tmp_path / "knowledge.db-wal").stat().st_size)
    assert len(sizes) == 4
    assert sizes[-1] <= sizes[0] * 1.1


@pytest.mark.parametrize("kind", ["file", "sqlite"])
def test_a_store_killed_at_any_point_keeps_what_it_acknowledged_and_no_more(tmp_path: Path, kind: str) -> None:
    def opened(path: Path) -> FileKnowledgeStore | SQLiteKnowledgeStore:
        return FileKnowledgeStore(path) if kind == "file" else SQLiteKnowledgeStore(path / "knowledge.db")

    def run(path: Path, done: list[str]) -> None:
        store = opened(path)
        for number in range(3):
            store.save(entry(str(number), "text", ttl_days=-1 if number == 1 else None))
            done.append(f"+{number}")
        store.prune()
        done.append("-1")
        store.delete("0")
        done.append("-0")

    for hit in range(1, points_of(lambda: run(tmp_path / "whole", [])) + 1):
        path, done = tmp_path / str(hit), list[str]()
        with faults.installed(killed_at(hit)):
            try:
                run(path, done)
            except Killed:
                pass
        there = set(ids(opened(path)))
        kept = {one[1:] for one in done if one[0] == "+"} - {"0", "1"}
        assert kept <= there, hit
        assert not {one[1:] for one in done if one[0] == "-"} & there, hit


KILLED = """
import os, signal, sys
from storage import faults
from storage.agent_memory import KnowledgeEntry, SQLiteKnowledgeStore
store = SQLiteKnowledgeStore(sys.argv[1])
left = int(sys.argv[2])
def handler(name):
    global left
    left -= 1
    if left == 0:
        os.kill(os.getpid(), signal.SIGKILL)
with faults.installed(handler):
    for number in range(100):
        store.save(KnowledgeEntry(id=f"{sys.argv[2]}-{number}"))
        print(f"{sys.argv[2]}-{number}", flush=True)
"""


def test_a_process_that_is_killed_leaves_the_database_with_all_it_acknowledged(tmp_path: Path) -> None:
    path, acknowledged = tmp_path / "knowledge.db", set[str]()
    for left in range(1, 14):
        ran = subprocess.run(
            [sys.executable, "-c", KILLED, str(path), str(left)],
            capture_output=True, text=True, timeout=60, check=False,
        )
        assert ran.returncode == -signal.SIGKILL
        acknowledged.update(ran.stdout.split())
        assert acknowledged <= set(ids(SQLiteKnowledgeStore(path)))
    assert acknowledged


WRITER = """
import sys
from storage.agent_memory import FileKnowledgeStore, KnowledgeEntry, SQLiteKnowledgeStore
store = (FileKnowledgeStore if sys.argv[2] == "file" else SQLiteKnowledgeStore)(sys.argv[1])
for number in range(60):
    store.save(KnowledgeEntry(id=f"{sys.argv[3]}-{number}"))
    store.save(KnowledgeEntry(id=f"passing-{sys.argv[3]}"))
    store.delete(f"passing-{sys.argv[3]}")
"""


@pytest.mark.parametrize("kind", ["file", "sqlite"])
def test_two_processes_on_one_store_lose_nothing(tmp_path: Path, kind: str) -> None:
    place = tmp_path / ("folder" if kind == "file" else "knowledge.db")
    run = [subprocess.Popen([sys.executable, "-c", WRITER, str(place), kind, name]) for name in "ab"]
    assert [process.wait(100) for process in run] == [0, 0]
    store = FileKnowledgeStore(place) if kind == "file" else SQLiteKnowledgeStore(place)
    assert len(ids(store)) == 120


@pytest.mark.parametrize("kind", ["file", "sqlite"])
@pytest.mark.parametrize("number", [28, 30, 5], ids=["ENOSPC", "EROFS", "EIO"])
def test_a_disk_that_refuses_anywhere_is_a_typed_error_and_loses_nothing(
    tmp_path: Path, kind: str, number: int
) -> None:
    def opened(path: Path) -> FileKnowledgeStore | SQLiteKnowledgeStore:
        return FileKnowledgeStore(path) if kind == "file" else SQLiteKnowledgeStore(path / "knowledge.db")

    def run(path: Path) -> None:
        store = opened(path)
        store.save(entry("two"))
        store.prune(max_age_days=10**6)
        store.query()

    opened(tmp_path / "whole").save(entry("one"))
    total = points_of(lambda: run(tmp_path / "whole"))
    seen = set[str]()
    for hit in range(1, total + 1):
        path, passed = tmp_path / str(hit), 0
        opened(path).save(entry("one"))

        def refuse(name: str, hit: int = hit) -> None:
            nonlocal passed
            passed += 1
            if passed == hit and not name.endswith(".after"):
                raise OSError(number, os.strerror(number))

        try:
            with faults.installed(refuse):
                run(path)
        except KnowledgeError as error:
            seen.add(error.code)
        assert "one" in ids(opened(path)), hit
    assert seen <= {"storage_error", "store_unavailable"}
    assert seen


def test_entries_expire_by_the_clock_of_the_store(tmp_path: Path, clock: Hands) -> None:
    store = FileKnowledgeStore(tmp_path, now=clock)
    store.save(entry("one", ttl_days=1))
    clock.now += timedelta(days=2)
    assert store.query() == []

"""A memory directory in the hands of people, editors and other programs: nobody's words are lost, and no call hangs."""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import suppress
from datetime import date, timedelta
from pathlib import Path
from typing import Any

import pytest

from messages.errors import Busy, StorageError, StoreUnavailable
from storage import faults, replaced_text
from storage.agent_memory import (
    FileKnowledgeStore,
    KnowledgeEntry,
    MemoryDirectory,
    SQLiteKnowledgeStore,
    notes_file,
)
from storage.agent_memory.contract import KnowledgeStore
from tests.storage.agent_memory.conftest import NOON, Hands, Opened
from tests.storage.agent_memory.deaths import Killed, killed_at, points_of
from tests.storage.agent_memory.test_directory import entry, texts


@pytest.fixture
def memory(tmp_path: Path, clock: Hands) -> MemoryDirectory:
    return MemoryDirectory(tmp_path / "memory", now=clock)


def notes(memory: MemoryDirectory) -> Path:
    return memory.path / "MEMORY.md"


def contents(memory: MemoryDirectory) -> list[str]:
    return [fact.content for fact in memory.facts()]


# --- other users of the store ---------------------------------------------------------------------------


def test_what_is_deleted_elsewhere_just_before_something_is_remembered_leaves_the_notes(
    opened: Opened, tmp_path: Path, clock: Hands
) -> None:
    store = opened()
    memory = MemoryDirectory(
        tmp_path / "memory", None if isinstance(store, FileKnowledgeStore) else store, now=clock
    )
    gone = memory.remember(entry("Name: Alice"))
    other = FileKnowledgeStore(memory.path) if isinstance(store, FileKnowledgeStore) else opened()
    other.delete(gone)
    memory.remember(entry("Prefers Python"))
    assert contents(memory) == ["Prefers Python"]


class Counting(SQLiteKnowledgeStore):
    """Counts how often it is read as a whole, and may be one that cannot tell whether it has changed."""

    tells = True

    def __init__(self, path: Path, **named: Any) -> None:
        super().__init__(path, **named)
        self.wholes = self.gets = 0

    def everything(self) -> list[KnowledgeEntry]:
        self.wholes += 1
        return super().everything()

    def get(self, entry_id: str) -> KnowledgeEntry | None:
        self.gets += 1
        return super().get(entry_id)

    def version(self) -> object:
        return super().version() if self.tells else None


@pytest.mark.parametrize("tells", [True, False])
def test_an_unchanged_store_is_not_read_as_a_whole_again(tmp_path: Path, clock: Hands, tells: bool) -> None:
    store = Counting(tmp_path / "knowledge.db", now=clock)
    store.tells = tells
    memory = MemoryDirectory(tmp_path / "memory", store, max_entries=5, now=clock)
    memory.remember(entry("first"))
    store.wholes = 0
    for number in range(20):
        memory.remember(entry(f"note {number}", persistent=number % 2 == 0))
        memory.facts()
        memory.recent(date.min, 50)
    assert (store.wholes, store.gets) == (0, 0)
    assert store.count() == 11  # persistent ones stay, the others were evicted


def test_a_store_that_cannot_tell_is_read_again_when_it_counts_another_number_or_a_minute_has_passed(
    tmp_path: Path, clock: Hands
) -> None:
    store = Counting(tmp_path / "knowledge.db", now=clock)
    store.tells = False
    memory = MemoryDirectory(tmp_path / "memory", store, now=clock)
    kept = entry("Name: Alice")
    memory.remember(kept)
    other = SQLiteKnowledgeStore(tmp_path / "knowledge.db")
    other.save(entry("Prefers Python"))
    assert contents(memory) == ["Name: Alice", "Prefers Python"]
    other.delete(kept.id)
    other.save(entry("Uses VS Code"))
    clock.now += timedelta(seconds=61)
    assert contents(memory) == ["Prefers Python", "Uses VS Code"]


class Foreign:
    """A store of somebody else with the contract's methods alone, and ids of its own."""

    def __init__(self) -> None:
        self.kept: dict[str, KnowledgeEntry] = {}

    def save(self, entry: KnowledgeEntry) -> str:
        key = f"own-{len(self.kept)}"
        self.kept[key] = KnowledgeEntry(**{**vars(entry), "id": key})
        return key

    def get(self, entry_id: str) -> KnowledgeEntry | None:
        return self.kept.get(entry_id)

    def query(self, category: Any = None, min_importance: Any = 0.0, since: Any = None, limit: int = 50) -> Any:
        return [one for one in self.kept.values() if not one.is_expired][:limit]

    def delete(self, entry_id: str) -> bool:
        return self.kept.pop(entry_id, None) is not None

    def count(self) -> int:
        return len(self.kept)

    def prune(self, max_age_days: int | None = None, min_importance: float = 0.0) -> int:
        return 0


def test_a_store_that_gives_ids_of_its_own_is_followed_under_those(tmp_path: Path, clock: Hands) -> None:
    store = Foreign()
    memory = MemoryDirectory(tmp_path, store, now=clock)
    assert memory.remember(entry("Name: Alice")) == "own-0"
    assert memory.remember(entry("today", persistent=False)) == "own-1"
    assert contents(memory) == contents(MemoryDirectory(tmp_path, store, now=clock)) == ["Name: Alice"]
    assert [line.content for line in memory.recent(date.min, 9, transient_only=True)] == ["today"]
    memory.store.delete("own-0")
    assert contents(memory) == []


def test_two_stores_on_one_directory_keep_their_entries(tmp_path: Path, clock: Hands) -> None:
    one = MemoryDirectory(tmp_path / "memory", now=clock)
    other = MemoryDirectory(tmp_path / "memory", SQLiteKnowledgeStore(tmp_path / "knowledge.db"), now=clock)
    for number in range(3):
        one.remember(entry(f"file {number}"))
        other.remember(entry(f"database {number}"))
        one.facts()
        other.facts()
    assert texts(one) == ["file 0", "file 1", "file 2"]
    assert texts(other) == ["database 0", "database 1", "database 2"]


# --- what editors make of the notes ---------------------------------------------------------------------


@pytest.mark.parametrize(
    "saved",
    [
        lambda text: text.replace("\n", "\r\n").encode(),
        lambda text: b"\xef\xbb\xbf" + text.encode(),
        lambda text: b"\xef\xbb\xbf" + text.removeprefix("# Agent Memory\n\n").encode(),
        lambda text: text.encode("utf-16"),
        lambda text: text.encode() + b"caf\xe9\n",
        lambda text: text.encode() + b"\0",
        lambda text: text.rstrip("\n").encode(),
    ],
    ids=["CRLF", "BOM", "BOM, no title", "UTF-16", "Latin-1", "NUL", "no last line break"],
)
def test_a_file_that_an_editor_saves_in_its_own_way_forgets_nothing_and_repeats_nothing(
    memory: MemoryDirectory, clock: Hands, saved: Callable[[str], bytes]
) -> None:
    for text, category in (("Name: Alice", "personal"), ("Two\nlines", "personal"), ("Python", "languages")):
        memory.remember(entry(text, category))
    data = saved(notes(memory).read_text("utf-8"))
    notes(memory).write_bytes(data)
    memory.facts()
    for again in (memory, MemoryDirectory(memory.path, now=clock)):
        assert texts(again) == ["Name: Alice", "Python", "Two\nlines"]
        assert notes(again).read_bytes() == data
    memory.remember(entry("Rust", "languages"))
    assert notes(memory).read_bytes().count(b"Python") == data.count(b"Python")
    assert texts(memory) == ["Name: Alice", "Python", "Rust", "Two\nlines"]


@pytest.mark.parametrize("there", [b"", b"# Agent Memory\n"], ids=["emptied", "half written"])
def test_a_file_that_an_editor_is_still_writing_forgets_nothing_and_is_left_to_it(
    memory: MemoryDirectory, there: bytes
) -> None:
    memory.remember(entry("Name: Alice"))
    memory.remember(entry("Prefers Python"))
    whole = notes(memory).read_bytes()
    with notes(memory).open("r+b", buffering=0) as editor:
        editor.truncate(0)
        editor.write(there)
        memory.facts()
        assert notes(memory).read_bytes() == there
        editor.seek(0)
        editor.write(whole.replace(b"- Prefers Python\n", b"- Prefers Rust\n"))
    assert contents(memory) == ["Name: Alice", "Prefers Rust"]
    assert texts(memory) == ["Name: Alice"]


@pytest.mark.parametrize("how", ["gone", "emptied", "half written"])
@pytest.mark.parametrize("opened_again", [False, True])
def test_a_file_that_goes_while_a_fact_is_written_is_an_accident_and_forgets_nothing(
    memory: MemoryDirectory, monkeypatch: pytest.MonkeyPatch, clock: Hands, how: str, opened_again: bool
) -> None:
    memory.remember(entry("Name: Alice"))
    memory.remember(entry("Prefers Python"))
    whole = notes(memory).read_bytes()
    if opened_again:
        memory.store.save(entry("From elsewhere"))
        memory = MemoryDirectory(memory.path, now=clock)
    read_text = replaced_text.read_text
    change = notes_file.NotesFile.replace

    def beaten(self: notes_file.NotesFile, *rest: Any) -> None:
        if how == "gone":
            self.path.unlink(missing_ok=True)
        else:
            self.path.write_bytes(b"" if how == "emptied" else b"# Agent Memory\n")
        change(self, *rest)

    with monkeypatch.context() as patch:
        patch.setattr(notes_file.NotesFile, "replace", beaten)
        memory.remember(entry("Uses VS Code"))
    assert read_text(notes(memory), limit=1_000) in (None, b"", b"# Agent Memory\n")
    if how == "half written":
        notes(memory).write_bytes(whole)
    there = ["Name: Alice", "Prefers Python", "Uses VS Code", *["From elsewhere"] * opened_again]
    assert sorted(contents(memory)) == texts(memory) == sorted(there)


@pytest.mark.parametrize("there", [None, b"# Agent Memory\n"], ids=["gone", "half written"])
def test_a_file_that_goes_just_after_a_fact_was_written_forgets_nothing(
    memory: MemoryDirectory, monkeypatch: pytest.MonkeyPatch, there: bytes | None
) -> None:
    memory.remember(entry("Name: Alice"))
    replace_text = replaced_text.replace_text

    def beaten(path: Path, before: bytes | None, after: bytes, *, limit: int) -> None:
        replace_text(path, before, after, limit=limit)
        path.unlink()
        if there is not None:
            path.write_bytes(there)

    with monkeypatch.context() as patch:
        patch.setattr(notes_file, "replace_text", beaten)
        memory.remember(entry("Prefers Python"))
    if there is None:
        memory.remember(entry("Uses VS Code"))
        assert texts(memory) == ["Name: Alice", "Prefers Python", "Uses VS Code"]
        assert sorted(contents(memory)) == texts(memory)
    else:
        with notes(memory).open("r+b"):
            memory.remember(entry("Uses VS Code"))
            assert notes(memory).read_bytes() == there


def test_a_fact_that_is_remembered_while_an_editor_writes_forgets_nothing(memory: MemoryDirectory) -> None:
    memory.remember(entry("Name: Alice"))
    memory.remember(entry("Prefers Python"))
    whole = notes(memory).read_bytes()
    with notes(memory).open("r+b", buffering=0) as editor:
        editor.truncate(0)
        memory.remember(entry("Uses VS Code"))
        editor.write(whole + b"- by hand\n")
    assert contents(memory) == ["Name: Alice", "Prefers Python", "by hand", "Uses VS Code"]
    assert texts(memory) == ["Name: Alice", "Prefers Python", "Uses VS Code"]


def test_what_a_person_saves_while_a_fact_is_written_stays(
    memory: MemoryDirectory, monkeypatch: pytest.MonkeyPatch
) -> None:
    memory.remember(entry("Name: Alice"))
    saves = 3
    replace_text = replaced_text.replace_text

    def beaten(path: Path, before: bytes | None, after: bytes, *, limit: int) -> None:
        nonlocal saves
        if saves:
            saves -= 1
            path.write_bytes(path.read_bytes() + f"- by hand {saves}\n".encode())
        replace_text(path, before, after, limit=limit)

    monkeypatch.setattr(notes_file, "replace_text", beaten)
    memory.remember(entry("Prefers Python"))
    assert contents(memory) == ["Name: Alice", "by hand 2", "by hand 1", "by hand 0", "Prefers Python"]


def test_a_file_that_is_saved_all_the_time_leaves_the_entry_kept_and_is_brought_after_it_later(
    memory: MemoryDirectory, monkeypatch: pytest.MonkeyPatch
) -> None:
    memory.remember(entry("Name: Alice"))
    replace_text = replaced_text.replace_text

    def beaten(path: Path, before: bytes | None, after: bytes, *, limit: int) -> None:
        path.write_bytes(path.read_bytes() + b"- by hand\n")
        replace_text(path, before, after, limit=limit)

    with monkeypatch.context() as patch:
        patch.setattr(notes_file, "replace_text", beaten)
        kept = memory.remember(entry("Prefers Python"))
        assert texts(memory) == ["Name: Alice", "Prefers Python"]
        memory.store.delete(kept)
        memory.remember(entry("Uses VS Code"))
    assert contents(memory) == ["Name: Alice", *["by hand"] * 2, "Uses VS Code"]


def test_a_removal_that_cannot_be_written_is_busy_and_not_a_crash(
    memory: MemoryDirectory, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept = memory.remember(entry("Name: Alice"))

    def beaten(path: Path, before: bytes | None, after: bytes, *, limit: int) -> None:
        raise replaced_text.EditedMeanwhile

    monkeypatch.setattr(notes_file, "replace_text", beaten)
    memory.store.delete(kept)
    with pytest.raises(Busy):
        memory.facts()


def test_notes_that_are_a_link_are_followed_kept_and_forgotten_with_what_they_lead_to(
    memory: MemoryDirectory, tmp_path: Path
) -> None:
    elsewhere = tmp_path / "synced" / "notes.md"
    elsewhere.parent.mkdir()
    elsewhere.write_text("# Agent Memory\n\n## general\n- By hand\n")
    notes(memory).symlink_to(elsewhere)
    memory.remember(entry("Name: Alice"))
    assert notes(memory).is_symlink()
    assert contents(memory) == ["By hand", "Name: Alice"]
    elsewhere.write_text(elsewhere.read_text().replace("- Name: Alice\n", ""))
    assert contents(memory) == ["By hand"]
    assert texts(memory) == []
    memory.clear()
    assert list(elsewhere.parent.iterdir()) == []
    assert not notes(memory).is_symlink()


def make_folder(path: Path) -> None:
    path.mkdir()


def make_fifo(path: Path) -> None:
    os.mkfifo(path)


def make_loop(path: Path) -> None:
    path.symlink_to(path.name)


def make_hard_link(path: Path) -> None:
    (path.parent / "other").write_text("x")
    os.link(path.parent / "other", path)


def make_huge(path: Path) -> None:
    with path.open("wb") as file:
        file.truncate(notes_file.NOTES_MAX_BYTES + 1)


@pytest.mark.parametrize("make", [make_folder, make_fifo, make_loop, make_hard_link, make_huge])
@pytest.mark.parametrize("name", ["MEMORY.md", "entries.jsonl", ".facts.jsonl", "logs", "logs/2026-03-13.jsonl"])
def test_a_name_that_stands_for_something_else_is_an_error_or_harmless_and_never_waited_for(
    tmp_path: Path, clock: Hands, name: str, make: Callable[[Path], None]
) -> None:
    memory = MemoryDirectory(tmp_path / "memory", now=clock)
    (memory.path / name).parent.mkdir(exist_ok=True)
    make(memory.path / name)
    for ask in (
        lambda: memory.remember(entry("Name: Alice")),
        lambda: memory.facts(),
        lambda: memory.recent(date.min, 9),
        lambda: memory.prune(date.max),
        lambda: memory.clear_logs(),
    ):
        with suppress(StorageError, StoreUnavailable):
            ask()


def test_a_ledger_that_a_hand_spoiled_is_passed_over(memory: MemoryDirectory, clock: Hands) -> None:
    memory.remember(entry("Name: Alice"))
    (memory.path / ".facts.jsonl").write_bytes(
        b'[1, 2, 3]\n[["a"], "b", "c"]\n["a", ["b"], "c"]\n["a", null, "c"]\n{}\n"abc"\n\xff\n[[[[\n' + b"[" * 100_000
    )
    again = MemoryDirectory(memory.path, now=clock)
    assert contents(again) == ["Name: Alice"]
    again.remember(entry("Prefers Python"))
    assert texts(again) == ["Name: Alice", "Prefers Python"]


# --- a directory that goes away, and clocks that go back ------------------------------------------------


def test_a_directory_that_is_removed_while_in_use_is_unavailable_and_works_when_it_is_back(
    memory: MemoryDirectory, tmp_path: Path
) -> None:
    memory.remember(entry("Name: Alice"))
    memory.path.rename(tmp_path / "away")
    for ask in (lambda: memory.remember(entry("lost")), memory.facts, memory.clear):
        with pytest.raises(StoreUnavailable):
            ask()
    memory.path.mkdir()
    assert contents(memory) == texts(memory) == []
    memory.remember(entry("Another"))
    assert contents(memory) == ["Another"]
    for path in memory.path.rglob("*"):
        if path.is_file():
            path.unlink()
    (memory.path / "logs").rmdir()
    memory.path.rmdir()
    (tmp_path / "away").rename(memory.path)
    assert contents(memory) == ["Name: Alice"]
    assert [line.content for line in memory.recent(date.min, 9)] == ["Name: Alice"]


def test_a_clock_that_goes_back_loses_nothing(memory: MemoryDirectory, clock: Hands) -> None:
    kept = entry("today only", persistent=True, at=NOON)
    kept.ttl_days = 1
    memory.remember(kept)
    clock.now += timedelta(days=3)
    assert contents(memory) == []
    clock.now -= timedelta(days=3)
    assert contents(MemoryDirectory(memory.path, now=clock)) == ["today only"]
    memory.clear_logs()
    clock.now -= timedelta(days=400)
    memory.remember(entry("earlier", persistent=False, at=clock.now))
    assert [line.content for line in memory.recent(date.min, 9)] == ["earlier"]
    assert texts(MemoryDirectory(memory.path, now=clock)) == ["earlier", "today only"]


# --- what a crash leaves beside the notes ---------------------------------------------------------------


FACTS = (("a", "one"), ("b", "two"), ("c", "one"))


def test_a_process_killed_anywhere_leaves_no_text_that_blocks_the_next_one(tmp_path: Path, clock: Hands) -> None:
    def run(path: Path) -> None:
        memory = MemoryDirectory(path, now=clock)
        kept = [memory.remember(entry(text, category)) for text, category in FACTS]
        memory.store.delete(kept[0])
        memory.facts()

    for hit in range(1, points_of(lambda: run(tmp_path / "whole")) + 1):
        path = tmp_path / str(hit)
        with faults.installed(killed_at(hit)):
            try:
                run(path)
            except Killed:
                pass
        memory = MemoryDirectory(path, now=clock)
        memory.remember(entry("after", "one"))
        memory.remember(entry("and after", "two"))
        assert sorted(contents(memory)) == texts(memory), hit
        assert not list(path.glob(".MEMORY*")), hit
        assert not list(path.glob("MEMORY.found*")), hit


def test_a_persons_text_that_a_crash_left_beside_the_notes_is_kept_aside(
    memory: MemoryDirectory, clock: Hands
) -> None:
    memory.remember(entry("Name: Alice"))
    for text in ("The garden faces south.\n", "- another\n"):
        (memory.path / ".MEMORY.md.kr-new").write_text(text)
        MemoryDirectory(memory.path, now=clock).remember(entry(f"after {text}"))
    assert (memory.path / "MEMORY.found-1.md").read_text() == "The garden faces south.\n"
    assert (memory.path / "MEMORY.found-2.md").read_text() == "- another\n"
    assert len(contents(memory)) == 3


def test_stores_are_those_of_the_contract() -> None:
    assert isinstance(Foreign(), KnowledgeStore)

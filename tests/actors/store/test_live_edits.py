"""Edits behind a running store: the very next query is exact, whatever became of the events.

Everything is real: the bridge, its lane and watcher, inotify, other processes. Source: stores-and-access.md (Runtime),
DESIGN.md (The tree; rule 10).
"""

from __future__ import annotations

import mmap
import os
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from host_bridge.bridge import KnowledgeBridge
from messages.errors import StoreUnavailable
from messages.json_types import JsonValue
from messages.vocabulary import PRIVATE
from storage import faults
from tests.kit.leaks import nothing_left
from tests.kit.store import MAIN, failure, only_store, open_bridge, page_file, write_note

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="needs Linux: inotify is Linux's")


@pytest.fixture
def bridge(tmp_path: Path) -> Iterator[KnowledgeBridge]:
    with nothing_left(), open_bridge(tmp_path) as opened:
        opened.call("knowledge_status", {}, MAIN)
        yield opened


def root(bridge: KnowledgeBridge) -> Path:
    return only_store(bridge.state_dir).partition(PRIVATE)


def body(bridge: KnowledgeBridge, record_id: str) -> JsonValue:
    """The body of a page as the next read has it; ``None`` without the page."""
    found = bridge.call("knowledge_record", {"id": record_id}, MAIN)["record"]
    return found["body"] if isinstance(found, dict) else None


def hits(bridge: KnowledgeBridge, query: str) -> list[JsonValue]:
    found = bridge.call("knowledge_grep", {"query": query}, MAIN)["hits"]
    assert isinstance(found, list)
    return [hit["id"] for hit in found if isinstance(hit, dict)]


def live(bridge: KnowledgeBridge) -> JsonValue:
    return bridge.call("knowledge_status", {}, MAIN)["live"]


def in_place(path: Path, text: str) -> None:
    path.write_text(text)


def by_rename(path: Path, text: str) -> None:
    beside = path.with_name(f".{path.name}.swp")
    beside.write_text(text)
    beside.rename(path)


def with_a_backup(path: Path, text: str) -> None:
    path.rename(path.with_name(f"{path.name}~"))
    path.write_text(text)


def through_a_mapping(path: Path, text: str) -> None:
    data = text.encode()
    with path.open("r+b") as file:
        file.truncate(len(data))
        with mmap.mmap(file.fileno(), len(data)) as mapped:
            mapped[:] = data


def in_small_pieces(path: Path, text: str) -> None:
    with path.open("w") as file:
        for letter in text:
            file.write(letter)
            file.flush()


@pytest.mark.parametrize("save", [in_place, by_rename, with_a_backup, through_a_mapping, in_small_pieces])
def test_a_save_of_any_kind_is_in_the_very_next_answer(
    bridge: KnowledgeBridge, save: Callable[[Path, str], None]
) -> None:
    path = write_note(root(bridge), "people/ann.md", page_file("ann", "Ann", body="words0\n"))
    assert body(bridge, "ann") == "words0\n"
    for number in range(1, 8):
        save(path, page_file("ann", "Ann", body=f"words{number}\n"))
        assert body(bridge, "ann") == f"words{number}\n"
        assert hits(bridge, f"words{number}") == ["ann"]
        assert hits(bridge, f"words{number - 1}") == []
    assert live(bridge) == "watching"


def test_saves_of_another_process_are_each_in_the_very_next_answer(bridge: KnowledgeBridge) -> None:
    path = write_note(root(bridge), "people/ann.md", page_file("ann", "Ann", body="0\n"))
    program = (
        "import os, sys\n"
        "path = sys.argv[1]\n"
        "for line in sys.stdin:\n"
        "    with open(path + '.tmp~', 'w') as file: file.write(sys.argv[2].replace('@', line.strip()))\n"
        "    os.replace(path + '.tmp~', path)\n"
        "    print('saved', flush=True)\n"
    )
    text = page_file("ann", "Ann", body="@\n")
    with subprocess.Popen(
        [sys.executable, "-P", "-c", program, str(path), text], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as other:
        assert other.stdin is not None
        assert other.stdout is not None
        for number in range(40):
            other.stdin.write(f"{number}\n")
            other.stdin.flush()
            assert other.stdout.readline() == "saved\n"
            assert body(bridge, "ann") == f"{number}\n"
        other.stdin.close()


def test_a_new_folder_with_files_in_it_is_in_the_very_next_answer_and_listened_to(bridge: KnowledgeBridge) -> None:
    for number in range(10):
        path = write_note(root(bridge), f"new{number}/deep/er/a.md", page_file(f"a{number}", f"Made {number}"))
        assert body(bridge, f"a{number}") == "About it.\n"
        path.write_text(page_file(f"a{number}", f"Made {number}", body="again\n"))
        assert body(bridge, f"a{number}") == "again\n"
    elsewhere = write_note(bridge.state_dir, "elsewhere/in/b.md", page_file("b", "Brought"))
    (bridge.state_dir / "elsewhere").rename(root(bridge) / "brought")
    assert body(bridge, "b") == "About it.\n"
    assert not elsewhere.exists()
    (root(bridge) / "brought/in/b.md").write_text(page_file("b", "Brought", body="and edited\n"))
    assert body(bridge, "b") == "and edited\n"
    (root(bridge) / "brought").rename(bridge.state_dir / "taken")
    assert body(bridge, "b") is None
    (bridge.state_dir / "taken/in/b.md").write_text(page_file("b", "Brought", body="unseen\n"))
    assert body(bridge, "b") is None
    assert live(bridge) == "watching"


def test_an_overflow_of_the_event_queue_loses_nothing(bridge: KnowledgeBridge) -> None:
    limit = int(Path("/proc/sys/fs/inotify/max_queued_events").read_text())
    folder = root(bridge)
    first = write_note(folder, "people/first.md", page_file("first", "First"))
    second = write_note(folder, "people/second.md", page_file("second", "Second"))
    gone = write_note(folder, "people/gone.md", page_file("gone", "Gone"))
    assert body(bridge, "gone") == "About it.\n"
    drains, go_on, scans = threading.Event(), threading.Event(), list[str]()

    def hold(point: str) -> None:
        if point == "watch.queued" and not go_on.is_set():
            drains.set()
            assert go_on.wait(60)
        if point == "scan.list" and go_on.is_set():
            scans.append(point)

    with faults.installed(hold):
        first.write_text(page_file("first", "First", body="begun\n"))
        assert drains.wait(30), "the watcher tells the lane of an edit"
        one, other = os.open(first, os.O_WRONLY), os.open(second, os.O_WRONLY)
        for _ in range(limit // 2 + 10):  # alternating, since equal neighbours are merged
            os.pwrite(one, b"-", 0)
            os.pwrite(other, b"-", 0)
        os.close(one)
        os.close(other)
        second.write_text(page_file("second", "Second", body="unheard\n"))
        gone.unlink()
        write_note(folder, "unheard/deep/new.md", page_file("new", "New"))
        go_on.set()
        assert body(bridge, "second") == "unheard\n"
        assert body(bridge, "gone") is None
        assert body(bridge, "new") == "About it.\n"
    assert scans, "the overflow became a scan"
    (folder / "unheard/deep/new.md").write_text(page_file("new", "New", body="heard\n"))
    assert body(bridge, "new") == "heard\n"
    assert live(bridge) == "watching"


def test_another_folder_in_the_partitions_place_is_never_answered_from(bridge: KnowledgeBridge) -> None:
    folder = root(bridge)
    path = write_note(folder, "people/ann.md", page_file("ann", "Ann", body="ours\n"))
    assert body(bridge, "ann") == "ours\n"
    folder.rename(bridge.state_dir / "aside")
    write_note(folder, "people/ann.md", page_file("ann", "Ann", body="theirs\n"))
    for _ in range(2):
        assert isinstance(failure(bridge, "record", {"id": "ann"}), StoreUnavailable)
    edited = bridge.state_dir / "aside" / path.relative_to(folder)
    edited.write_text(page_file("ann", "Ann", body="edited meanwhile\n"))
    folder.rename(bridge.state_dir / "theirs")
    (bridge.state_dir / "aside").rename(folder)
    assert body(bridge, "ann") == "edited meanwhile\n"
    path.write_text(page_file("ann", "Ann", body="heard again\n"))
    assert body(bridge, "ann") == "heard again\n"


def test_a_watch_that_hears_nothing_is_found_at_its_opening_and_every_query_scans(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from storage.vault import _inotify

    monkeypatch.setattr(_inotify.Inotify, "queued", lambda self: 0)
    with nothing_left(), open_bridge(tmp_path) as bridge:
        assert live(bridge) == "unavailable"
        path = write_note(root(bridge), "people/ann.md", page_file("ann", "Ann", body="words0\n"))
        for number in range(5):
            by_rename(path, page_file("ann", "Ann", body=f"words{number}\n"))
            assert body(bridge, "ann") == f"words{number}\n"
            in_place(path, page_file("ann", "Ann", body=f"Words{number}\n"))
            assert body(bridge, "ann") == f"Words{number}\n", "same size, same tick of the clock"
            assert hits(bridge, f"words{number}") == ["ann"]
        path.unlink()
        assert body(bridge, "ann") is None


def test_queries_beside_a_busy_writer_see_whole_texts_in_order_and_its_last_one_at_the_end(
    bridge: KnowledgeBridge,
) -> None:
    path = write_note(root(bridge), "people/ann.md", page_file("ann", "Ann", body="0\n"))
    assert body(bridge, "ann") == "0\n"
    seen: list[list[int]] = [[] for _ in range(3)]
    done = threading.Event()

    def ask(mine: list[int]) -> None:
        while not done.is_set():
            mine.append(int(str(body(bridge, "ann"))))

    askers = [threading.Thread(target=ask, args=(mine,)) for mine in seen]
    for asker in askers:
        asker.start()
    for number in range(1, 120):
        by_rename(path, page_file("ann", "Ann", body=f"{number}\n"))
    done.set()
    for asker in askers:
        asker.join(60)
    assert body(bridge, "ann") == "119\n"
    for mine in seen:
        assert mine
        assert mine == sorted(mine)

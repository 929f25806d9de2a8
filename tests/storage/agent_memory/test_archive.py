"""A directory as one blob: hostile blobs are refused before a file is written, and what is packed can be restored.

Source: agent-memory-contract.md section 7.
"""

from __future__ import annotations

import base64
import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from messages.errors import StorageError
from storage import faults
from storage.agent_memory import archive as archive_module
from storage.agent_memory import pack, restore, unpack
from storage.agent_memory.locking import DirectoryLock
from tests.storage.agent_memory.deaths import Killed, killed_at, points_of


@pytest.fixture
def home(tmp_path: Path) -> Path:
    folder = tmp_path / "memory"
    folder.mkdir()
    (folder / "MEMORY.md").write_text("as it was")
    return folder


def text(content: str = "x") -> dict[str, str]:
    return {"encoding": "utf-8", "content": content}


def blob(files: object, **more: object) -> bytes:
    return json.dumps({"version": 1, "files": files, **more}).encode()


def everything(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def refused(home: Path, data: bytes) -> None:
    before = everything(home)
    with pytest.raises(ValueError, match=r"archive|path"):
        unpack(DirectoryLock(home), data)
    assert everything(home) == before


def test_text_stays_readable_and_other_bytes_are_base64(home: Path) -> None:
    (home / "logs").mkdir()
    (home / "logs" / "ü.jsonl").write_bytes("zwei\r\nZeilen ü\0".encode())
    (home / "bytes").write_bytes(b"\xff\xfe")
    (home / "half.tmp").write_bytes(b"x")
    (home / "empty folder").mkdir()
    assert json.loads(pack(DirectoryLock(home))) == {
        "version": 1,
        "files": {
            "MEMORY.md": text("as it was"),
            "bytes": {"encoding": "base64", "content": base64.b64encode(b"\xff\xfe").decode()},
            "logs/ü.jsonl": text("zwei\r\nZeilen ü\0"),
        },
    }
    assert "as it was" in pack(DirectoryLock(home)).decode("utf-8")


def test_restoring_overwrites_files_of_the_same_name_and_deletes_nothing(home: Path) -> None:
    (home / "mine").write_text("stays")
    assert unpack(DirectoryLock(home), blob({"MEMORY.md": text("new"), "logs/a.jsonl": text("line")})) == 2
    assert everything(home) == {"MEMORY.md": b"new", "mine": b"stays", "logs/a.jsonl": b"line"}


@pytest.mark.parametrize("data", [b"", b"\xff", b"[]", b"null", b'{"files": []}', b"{}", b"[" * 100_000, blob(None)])
def test_a_blob_that_is_none_is_passed_over_with_a_warning(
    home: Path, data: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    assert unpack(DirectoryLock(home), data) == 0
    assert everything(home) == {"MEMORY.md": b"as it was"}
    assert "anew" in caplog.text


@pytest.mark.parametrize(
    "path",
    [
        "", ".", "./", "a/..", "..", "../a", "a/../../b", "/etc/passwd", "//host/share", "\\\\host\\share", "\\a",
        "C:\\a", "c:/a", "c:a", "a\0b", "..\\a", "a\\..\\..\\b", "\ud800", "n" * 252, "ü" * 126,
        "/".join("a" * 17), "x/" * 5_000,
    ],
)  # fmt: skip
def test_a_path_that_is_empty_absolute_or_leads_out_is_refused_before_a_file_is_written(home: Path, path: str) -> None:
    refused(home, blob({"a first": text(), path: text(), "z last": text()}))


@pytest.mark.parametrize(
    "entry",
    [
        None, [], "x", 7, {}, {"encoding": "utf-8"}, {"content": "x"}, {"encoding": "utf-16", "content": "x"},
        {"encoding": "utf-8", "content": 7}, {"encoding": "utf-8", "content": "\ud800"},
        {"encoding": None, "content": ""}, {"encoding": "base64", "content": "ü"},
        {"encoding": "base64", "content": "?"}, {"encoding": "base64", "content": "YQ"},
        {"encoding": ["utf-8"], "content": "x"},
    ],
)  # fmt: skip
def test_a_file_without_a_content_that_can_be_read_is_refused_before_a_file_is_written(home: Path, entry: Any) -> None:
    refused(home, blob({"a first": text(), "b": entry}))


@pytest.mark.parametrize(
    "paths",
    [("b", "a/../b"), ("a/b", "a//b"), ("b", "./b"), ("a/b", "a\\b"), ("a", "a/b"), ("a/b", "a/b/c/d"), ("b/", "b")],
)
def test_two_paths_that_mean_one_file_or_a_file_and_a_folder_are_refused(home: Path, paths: tuple[str, str]) -> None:
    refused(home, blob(dict.fromkeys(paths, text())))
    refused(home, blob(dict.fromkeys(reversed(paths), text())))


def test_a_name_that_an_object_holds_twice_is_refused(home: Path) -> None:
    entry = json.dumps(text())
    refused(home, f'{{"files": {{"a": {entry}, "a": {entry}}}}}'.encode())
    refused(home, f'{{"files": {{"a": {entry}}}, "files": {{}}}}'.encode())


def test_case_twins_are_two_files_unless_the_file_system_takes_them_for_one(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    twins = blob({"notes": text("a"), "NOTES": text("b")})
    with monkeypatch.context() as patch:
        patch.setattr(archive_module, "_folds_case", lambda directory: True)
        refused(home, twins)
        refused(home, blob({"a/B": text(), "A": text()}))
        refused(home, blob({"\u00e9": text(), "e\u0301": text()}))
    if (home.parent / home.name.upper()).exists():
        refused(home, twins)
    else:
        assert unpack(DirectoryLock(home), twins) == 2


def test_an_archive_of_more_files_than_a_memory_has_is_refused(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(archive_module, "FILES_MAX", 50)
    assert unpack(DirectoryLock(home), blob({str(number): text() for number in range(50)})) == 50
    refused(home, blob({f"more {number}": text() for number in range(51)}))


def test_a_path_with_a_detour_that_stays_inside_is_accepted(home: Path) -> None:
    assert unpack(DirectoryLock(home), blob({"a/../b/./c": text("x")})) == 1
    assert (home / "b" / "c").read_text() == "x"
    assert not (home / "a").exists()


def link_folder(home: Path) -> None:
    (home.parent / "outside").mkdir()
    (home / "logs").symlink_to(home.parent / "outside")


def link_file(home: Path) -> None:
    (home / "logs").mkdir()
    (home / "logs" / "a").symlink_to(home.parent / "outside")


def file_for_folder(home: Path) -> None:
    (home / "logs").write_text("a file")


def folder_for_file(home: Path) -> None:
    (home / "logs" / "a").mkdir(parents=True)


def folder_for_staged(home: Path) -> None:
    (home / "logs" / "a.tmp").mkdir(parents=True)


def fifo(home: Path) -> None:
    (home / "logs").mkdir()
    os.mkfifo(home / "logs" / "a")


@pytest.mark.parametrize("make", [link_folder, link_file, file_for_folder, folder_for_file, folder_for_staged, fifo])
def test_what_stands_in_the_way_is_refused_before_a_file_is_written(home: Path, make: Callable[[Path], None]) -> None:
    make(home)
    refused(home, blob({"a first": text(), "logs/a": text()}))
    outside = home.parent / "outside"
    assert not outside.exists() or list(outside.iterdir()) == []


def test_what_is_staged_can_neither_be_packed_nor_written(home: Path) -> None:
    assert unpack(DirectoryLock(home), blob({"a": text("a"), "a.tmp": text("b")})) == 2
    assert everything(home) == {"MEMORY.md": b"as it was", "a": b"a"}


@pytest.mark.parametrize("name", [b"back\\slash", b"\\first", b"C:drive", b"\xff\xfe", b"n" * 252, b"a\nb"])
def test_every_name_that_a_directory_can_have_is_restored_or_left_out_and_blocks_nothing(
    home: Path, tmp_path: Path, name: bytes
) -> None:
    (home / os.fsdecode(name)).write_bytes(b"odd")
    (tmp_path / "other").mkdir()
    unpack(DirectoryLock(tmp_path / "other"), pack(DirectoryLock(home)))
    restored = everything(tmp_path / "other")
    assert restored.pop("MEMORY.md") == b"as it was"
    assert restored == ({"a\nb": b"odd"} if name == b"a\nb" else {})


def test_the_deepest_folder_that_is_packed_can_be_restored_and_a_deeper_one_is_left_out(
    home: Path, tmp_path: Path
) -> None:
    deepest = home.joinpath(*"f" * (archive_module.DEPTH_MAX - 1))
    (deepest / "deeper").mkdir(parents=True)
    (deepest / "kept").write_text("x")
    (deepest / "deeper" / "left out").write_text("x")
    (tmp_path / "other").mkdir()
    assert unpack(DirectoryLock(tmp_path / "other"), pack(DirectoryLock(home))) == 2


def test_links_pipes_and_second_names_are_left_out_or_a_typed_error(home: Path, tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("elsewhere")
    (home / "link").symlink_to(tmp_path / "secret")
    os.mkfifo(home / "pipe")
    assert b"elsewhere" not in pack(DirectoryLock(home))
    os.link(tmp_path / "secret", home / "second name")
    with pytest.raises(StorageError):
        pack(DirectoryLock(home))


def test_a_process_killed_anywhere_while_it_restores_leaves_whole_files_and_the_next_one_restores_all(
    tmp_path: Path,
) -> None:
    data = blob({"MEMORY.md": text("new"), "entries.jsonl": text("new"), "logs/a": text("new")})

    def made(name: str) -> Path:
        folder = tmp_path / name
        folder.mkdir()
        for one in ("MEMORY.md", "entries.jsonl", "mine"):
            (folder / one).write_text("old")
        return folder

    for hit in range(1, points_of(lambda: unpack(DirectoryLock(made("whole")), data)) + 1):
        folder = made(str(hit))
        with faults.installed(killed_at(hit)):
            try:
                unpack(DirectoryLock(folder), data)
            except Killed:
                pass
        whole = {name: found for name, found in everything(folder).items() if not name.endswith(".tmp")}
        assert set(whole.values()) <= {b"old", b"new"}, hit
        assert unpack(DirectoryLock(folder), data) == 3
        assert everything(folder) == {
            "MEMORY.md": b"new", "entries.jsonl": b"new", "logs/a": b"new", "mine": b"old",
        }, hit  # fmt: skip


@pytest.mark.parametrize("number", [28, 5], ids=["ENOSPC", "EIO"])
def test_a_disk_that_refuses_while_restoring_is_a_typed_error(home: Path, number: int) -> None:
    def refuse(name: str) -> None:
        if name == "agent_memory.unpack.write":
            raise OSError(number, os.strerror(number))

    with faults.installed(refuse), pytest.raises(StorageError):
        unpack(DirectoryLock(home), blob({"MEMORY.md": text("new")}))
    assert (home / "MEMORY.md").read_text() == "as it was"


@pytest.mark.parametrize("path", ["logs", "originals", "MEMORY.md/x", "entries.jsonl/x", ".facts.jsonl/x", ".store/a"])
def test_a_file_where_a_memory_has_a_folder_is_refused_before_any_is_written(tmp_path: Path, path: str) -> None:
    blob = {"version": 1, "files": {name: {"encoding": "utf-8", "content": "x"} for name in ("a.txt", path)}}
    with pytest.raises(ValueError, match="folder"):
        restore(tmp_path / "memory", lambda: json.dumps(blob).encode())
    assert list((tmp_path / "memory").iterdir()) == []


@pytest.mark.parametrize("answer", ["text", 5, []])
def test_a_backend_that_answers_no_bytes_is_an_error_and_nothing_is_written(tmp_path: Path, answer: Any) -> None:
    with pytest.raises(TypeError, match="load_bytes"):
        restore(tmp_path / "memory", lambda: answer)
    assert list((tmp_path / "memory").iterdir()) == []

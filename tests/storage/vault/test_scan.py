"""What a scan finds and refuses (stores-and-access.md, Limits; decisions.md section 2)."""

from __future__ import annotations

import os
import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from messages.errors import Cancelled, ScanIncomplete
from storage.faults import installed
from storage.files import Stamp
from storage.vault import ScanFinding, ScanLimits, ScanResult, may_hide_a_change, scan_partition, twins
from storage.vault import scan as module
from storage.vault.scan import DEFAULT_LIMITS, look


@contextmanager
def folder(path: Path) -> Iterator[int]:
    fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        yield fd
    finally:
        os.close(fd)


def scanned(root: Path, limits: ScanLimits = DEFAULT_LIMITS, check: Callable[[], None] = lambda: None) -> ScanResult:
    before = len(os.listdir("/proc/self/fd"))
    try:
        with folder(root) as fd:
            return scan_partition(fd, limits=limits, check=check)
    finally:
        assert len(os.listdir("/proc/self/fd")) == before, "a scan left a descriptor open"


def codes(result: ScanResult) -> dict[str, str]:
    return {finding.path: finding.code for finding in result.findings}


def write(path: Path, text: str = "x") -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return path


def test_every_note_is_found_with_its_stamp_and_nothing_else(tmp_path: Path) -> None:
    note = write(tmp_path / "people/ada.md")
    for name in (
        "ontology.yaml",
        "a.md",
        "B.MD",
        "claims/2026/09/ab/c.md",
        "deep/ontology.yaml",
        "pic.png",
        "notes.txt",
    ):
        write(tmp_path / name)
    result = scanned(tmp_path)
    assert set(result.files) == {"people/ada.md", "ontology.yaml", "a.md", "B.MD", "claims/2026/09/ab/c.md"}
    assert result.files["people/ada.md"] == Stamp.of(note.stat())
    assert result.findings == ()
    assert result.folders == 7
    assert result.entries == 14


def test_artifacts_staged_names_and_hidden_files_are_passed_over(tmp_path: Path) -> None:
    for name in (
        "artifacts/r/excerpt.txt", "artifacts/r/note.md", ".kr-1.0.1", "people/.kr-2.0.1", ".obsidian/x.md",
        ".a.md.swp", ".#a.md", "~$a.md", ".trash/b.md", "people/artifacts/kept.md",
    ):  # fmt: skip
        write(tmp_path / name)
    assert set(scanned(tmp_path).files) == {"people/artifacts/kept.md"}


def test_a_scan_never_descends_into_artifacts(tmp_path: Path) -> None:
    for number in range(30):
        write(tmp_path / f"artifacts/r/{number}.md")
    assert scanned(tmp_path, ScanLimits(entries=2)).entries == 1


def test_each_file_that_is_no_plain_note_is_a_named_finding_and_the_rest_is_still_found(tmp_path: Path) -> None:
    good = write(tmp_path / "good.md")
    write(tmp_path / "outside/target.md")
    (tmp_path / "link.md").symlink_to("good.md")
    (tmp_path / "picture.png").symlink_to("good.md")
    (tmp_path / "linked").symlink_to("outside")
    (tmp_path / "dangling.md").symlink_to("nowhere")
    os.link(write(tmp_path / "first.md"), tmp_path / "second.md")
    os.mkfifo(tmp_path / "pipe.md")
    write(tmp_path / "folder.md/inside.md")
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(tmp_path / "s.md"))
    os.close(os.open(os.fsencode(tmp_path) + b"/bad\xff.md", os.O_CREAT | os.O_WRONLY))
    result = scanned(tmp_path)
    assert set(result.files) == {"good.md", "outside/target.md"}
    assert result.files["good.md"] == Stamp.of(good.stat())
    assert codes(result) == {
        "link.md": "symlink",
        "picture.png": "symlink",
        "linked": "symlink",
        "dangling.md": "symlink",
        "first.md": "hardlink",
        "second.md": "hardlink",
        "pipe.md": "not_a_file",
        "s.md": "not_a_file",
        "folder.md": "folder_named_as_note",
        "bad\\xff.md": "name_not_utf8",
    }
    assert all(finding.message for finding in result.findings)


def test_a_folder_eight_deep_is_entered_and_a_ninth_is_a_finding(tmp_path: Path) -> None:
    eight = "/".join("12345678")
    write(tmp_path / eight / "in.md")
    write(tmp_path / eight / "9" / "out.md")
    result = scanned(tmp_path)
    assert set(result.files) == {f"{eight}/in.md"}
    assert codes(result) == {f"{eight}/9": "too_deep"}


def test_one_entry_too_many_fails_the_scan_instead_of_returning_a_part(tmp_path: Path) -> None:
    for number in range(10):
        write(tmp_path / f"{number}.md")
    assert len(scanned(tmp_path, ScanLimits(entries=10)).files) == 10
    with pytest.raises(ScanIncomplete) as caught:
        scanned(tmp_path, ScanLimits(entries=9))
    assert caught.value.fields["limit"] == 9
    assert caught.value.retry == "never"


@pytest.mark.parametrize("point", ["scan.open", "scan.list"])
def test_a_folder_that_cannot_be_read_fails_the_scan_and_is_named(tmp_path: Path, point: str) -> None:
    write(tmp_path / "a/x.md")
    write(tmp_path / "b/y.md")
    passes = 0

    def fail(name: str) -> None:
        nonlocal passes
        passes += name == point
        if name == point and passes == 2:
            raise PermissionError(13, "Permission denied")

    with installed(fail), pytest.raises(ScanIncomplete) as caught:
        scanned(tmp_path)
    assert caught.value.fields["folder"] in ("a", "b")
    assert caught.value.fields["reason"] == "EACCES"


def test_a_real_folder_without_rights_fails_the_scan(tmp_path: Path) -> None:
    write(tmp_path / "locked/x.md")
    (tmp_path / "locked").chmod(0)
    child = os.fork()
    if child == 0:
        status = 1
        try:
            root = os.open(tmp_path, os.O_RDONLY | os.O_DIRECTORY)
            if os.getuid() == 0:
                os.setgroups([])
                os.setuid(65534)
            try:
                scan_partition(root)
            except ScanIncomplete as error:
                status = 0 if error.fields == {"folder": "locked", "reason": "EACCES"} else 2
        finally:
            os._exit(status)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


def test_a_file_or_folder_that_vanishes_while_it_is_scanned_is_simply_not_there(tmp_path: Path) -> None:
    write(tmp_path / "a/x.md")
    write(tmp_path / "b/y.md")

    def vanish(name: str) -> None:
        if name == "scan.list.after" and (tmp_path / "a/x.md").exists():
            (tmp_path / "a/x.md").unlink()
            (tmp_path / "a").rmdir()

    with installed(vanish):
        assert set(scanned(tmp_path).files) == {"b/y.md"}


def test_a_folder_that_becomes_a_symbolic_link_between_listing_and_opening_is_not_followed(tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    write(outside / "secret.md")
    root = tmp_path / "root"
    write(root / "a/x.md")

    def swap(name: str) -> None:
        if name == "scan.list.after" and not (root / "a").is_symlink():
            (root / "a").rename(tmp_path / "moved")
            (root / "a").symlink_to(outside)

    with installed(swap):
        assert scanned(root).files == {}


def test_a_scan_can_be_given_up_between_folders_and_within_a_large_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_CHECK_EVERY", 20)
    for number in range(21):
        (tmp_path / f"{number}.md").touch()

    def stop() -> None:
        raise Cancelled("the caller gave up")

    with pytest.raises(Cancelled):
        scanned(tmp_path, check=stop)


def test_looking_at_single_paths_judges_exactly_as_a_scan_does(tmp_path: Path) -> None:
    write(tmp_path / "good.md")
    write(tmp_path / "sub/also.md")
    write(tmp_path / "ontology.yaml")
    write(tmp_path / "sub/ontology.yaml")
    write(tmp_path / "artifacts/r/x.md")
    write(tmp_path / ".hidden/x.md")
    write(tmp_path / "folder.md/x.md")
    write(tmp_path / "pic.png")
    write(tmp_path / "/".join("123456789") / "deep.md")
    (tmp_path / "link.md").symlink_to("good.md")
    (tmp_path / "linked").symlink_to("sub")
    os.link(write(tmp_path / "first.md"), tmp_path / "second.md")
    os.mkfifo(tmp_path / "pipe.md")
    every = [str(Path(base, name).relative_to(tmp_path)) for base, _, names in os.walk(tmp_path) for name in names]
    every += [
        "linked",
        "folder.md",
        "linked/also.md",
        "absent.md",
        "/".join("123456789"),
        "sub",
        "no/such/folder.md",
        "good.md/below.md",
    ]
    result = scanned(tmp_path)
    with folder(tmp_path) as fd:
        looked = look(fd, every, ScanLimits())
    seen = looked.found
    assert looked.linked == {"first.md", "second.md"}
    assert seen.keys() == set(every)
    assert {path: found for path, found in seen.items() if isinstance(found, Stamp)} == result.files
    refused = {path for path, found in seen.items() if isinstance(found, ScanFinding)}
    assert refused == {finding.path for finding in result.findings}


def test_names_that_differ_by_case_or_unicode_form_are_twins() -> None:
    paths = ["people/Ada.md", "people/ada.md", "caf\u00e9.md", "cafe\u0301.md", "STRASSE.md", "straße.md", "other.md"]
    assert [finding.path for finding in twins(paths)] == ["people/ada.md", "caf\u00e9.md", "straße.md"]
    assert {finding.code for finding in twins(paths)} == {"name_twin"}


def test_a_file_younger_than_the_coarsest_clock_may_hide_a_change() -> None:
    stamp = Stamp(1, 2, 3, 0, 10_000_000_000)
    assert may_hide_a_change(stamp, 10_500_000_000)
    assert may_hide_a_change(stamp, 9_000_000_000)
    assert not may_hide_a_change(stamp, 12_000_000_001)


def test_a_scan_costs_one_open_a_folder_and_no_point_a_note(tmp_path: Path) -> None:
    def points(notes: int) -> list[str]:
        root = tmp_path / str(notes)
        for number in range(notes):
            write(root / "sub" / f"{number}.md")
        passed: list[str] = []
        with installed(passed.append):
            scanned(root)
        return passed

    assert points(5) == points(100)

"""What lies in one partition's folder: every note with its stamp, everything that is refused by name.

Guarantees: a scan is complete or fails with ``scan_incomplete``; no symbolic link is followed; a file with a second
name, a device, a FIFO, a folder called like a note and a name that is not UTF-8 are findings and never notes.
``artifacts/`` at the top, staged names and everything that begins with a dot (editors' and tools' own files) are passed
over. A *note* is a file called ``*.md`` in any case; ``ontology.yaml`` at the top counts as one.

Only names and stamps are looked at here; what a note says is read elsewhere. Any thread.

Source: stores-and-access.md (Limits); decisions.md section 2 (a scan does not descend into artifacts).
"""

from __future__ import annotations

import errno
import os
import stat
import unicodedata
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Final, Literal, TypeAlias

from messages.errors import ScanIncomplete
from messages.vocabulary import DIRECTORY_MAX_DEPTH
from storage import files
from storage.faults import effect
from storage.files import Stamp
from storage.layout import ARTIFACTS_NAME, ONTOLOGY_NAME

FAULT_POINTS: Final = (
    ("scan.open", "opening one folder of a partition"),
    ("scan.list", "listing one folder and looking at what it holds"),
    ("scan.look", "looking at one path that an event named"),
)

FindingCode: TypeAlias = Literal[
    "symlink", "hardlink", "not_a_file", "folder_named_as_note", "too_deep", "name_not_utf8", "name_twin"
]
_MESSAGES: Final[dict[FindingCode, str]] = {
    "symlink": "is a symbolic link and is not followed; put the file or folder itself here",
    "hardlink": "has a second name somewhere (a hard link) and is not read; make it a copy",
    "not_a_file": "is no regular file",
    "folder_named_as_note": "is a folder with the name of a note and is not entered; rename it",
    "too_deep": "lies deeper than the folder limit and is not entered; move it up",
    "name_not_utf8": "has a name that is not UTF-8; rename it",
    "name_twin": "differs from another name only by case or Unicode form, which other systems take for the same",
}
_PASSED_OVER: Final = (".", "~$")
_CHECK_EVERY: Final = 2_000
_GONE: Final = (errno.ENOENT, errno.ENOTDIR, errno.ELOOP)
_SETTLE_NS: Final = 2_000_000_000


@dataclass(frozen=True, slots=True)
class ScanFinding:
    """Something in a partition that is not a note; ``path`` is relative to the partition folder."""

    path: str
    code: FindingCode

    @property
    def message(self) -> str:
        """What is wrong and what to do, without the path."""
        return _MESSAGES[self.code]


@dataclass(frozen=True, slots=True)
class ScanLimits:
    """Guards against a runaway tree: entries of any kind in one scan, folders inside each other."""

    entries: int = 100_000
    depth: int = DIRECTORY_MAX_DEPTH


DEFAULT_LIMITS: Final = ScanLimits()


@dataclass(frozen=True, slots=True)
class ScanResult:
    """One complete scan. Paths are relative to the partition folder, with ``/``."""

    files: dict[str, Stamp]
    findings: tuple[ScanFinding, ...]
    folders: int
    entries: int


@dataclass(frozen=True, slots=True)
class Looked:
    """What stands at each of some paths: a note's stamp, a refusal, or nothing that belongs to the partition.

    ``linked``: one of them is a file with a second name. Making a second name sends no event for the first, so the
    rest of the partition has to be looked at too.
    """

    found: dict[str, Stamp | ScanFinding | None]
    linked: frozenset[str]


def _no_check() -> None:
    pass


def _no_folder(path: str, folder_fd: int) -> None:
    pass


def scan_partition(
    root_fd: int,
    *,
    below: str = "",
    limits: ScanLimits = DEFAULT_LIMITS,
    check: Callable[[], None] = _no_check,
    on_folder: Callable[[str, int], None] = _no_folder,
) -> ScanResult:
    """Every note of the partition folder ``root_fd``, or of its folder ``below``.

    ``on_folder`` gets each folder open, before it is listed; ``check`` runs every few thousand entries and may raise to
    give up. Costs one ``stat`` a note.

    Raises:
        ScanIncomplete: more entries than allowed, or a folder that cannot be read; names which.
    """
    found: dict[str, Stamp] = {}
    findings: list[ScanFinding] = []
    todo = [below]
    folders = entries = 0
    while todo:
        folder = todo.pop()
        try:
            fd = files.open_folder(root_fd, folder, at="scan.open")
        except OSError as error:
            if error.errno in _GONE and folder:
                continue  # moved or removed since its parent was listed
            raise _unreadable(folder, error) from error
        try:
            folders += 1
            on_folder(folder, fd)
            try:
                entries = _list(fd, folder, todo, found, findings, limits, entries, check)
            except OSError as error:
                raise _unreadable(folder, error) from error
        finally:
            files.close(fd)
        check()
    return ScanResult(found, tuple(findings), folders, entries)


def _list(
    fd: int,
    folder: str,
    todo: list[str],
    found: dict[str, Stamp],
    findings: list[ScanFinding],
    limits: ScanLimits,
    entries: int,
    check: Callable[[], None],
) -> int:
    """List one open folder into the four collections; the number of entries seen so far."""
    prefix = f"{folder}/" if folder else ""
    depth = prefix.count("/")
    limit, is_regular, new = limits.entries, stat.S_ISREG, Stamp
    follow, names_max = files.FOLLOW_LINKS, files.NAMES_MAX
    with effect("scan.list"), os.scandir(fd) as listing:
        for entry in listing:
            entries += 1
            if entries > limit:
                raise _too_many(limit)
            if not entries % _CHECK_EVERY:
                check()
            name = entry.name
            if name.startswith(_PASSED_OVER):
                continue
            if not name.isascii() and not is_utf8(name):
                findings.append(ScanFinding(printable(prefix + name), "name_not_utf8"))
            elif entry.is_dir(follow_symlinks=follow):
                if name == ARTIFACTS_NAME and not folder:
                    continue
                code = folder_refusal(name, depth + 1, limits)
                if code is None:
                    todo.append(prefix + name)
                else:
                    findings.append(ScanFinding(prefix + name, code))
            elif name.endswith(".md") or is_note_name(name, top=not folder):
                try:
                    status = entry.stat(follow_symlinks=follow)
                except FileNotFoundError:
                    continue
                if is_regular(status.st_mode) and 1 <= status.st_nlink <= names_max:
                    found[prefix + name] = new(
                        status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns
                    )
                elif status.st_nlink:
                    findings.append(ScanFinding(prefix + name, _refusal(status)))
            elif entry.is_symlink():
                findings.append(ScanFinding(prefix + name, "symlink"))
    return entries


def look(root_fd: int, paths: Iterable[str], limits: ScanLimits) -> Looked:
    """What stands at each path now, judged exactly as a scan would judge it.

    Raises:
        ScanIncomplete: a folder on the way cannot be read.
    """
    seen: dict[str, Stamp | ScanFinding | None] = {}
    linked: set[str] = set()
    by_folder: dict[str, list[str]] = {}
    for path in paths:
        by_folder.setdefault(path.rpartition("/")[0], []).append(path)
    for folder, members in by_folder.items():
        try:
            if not _is_entered(folder, limits):
                raise NotADirectoryError(errno.ENOTDIR, "not part of the partition")
            fd = files.open_folder(root_fd, folder, at="scan.look")
        except OSError as error:
            if error.errno not in _GONE:
                raise _unreadable(folder, error) from error
            seen.update(dict.fromkeys(members))
            continue
        try:
            for path in members:
                name = path.rpartition("/")[2]
                status = files.stat_entry(fd, name, at="scan.look")
                seen[path] = None if status is None else _judge(path, name, limits, status)
                if status is not None and stat.S_ISREG(status.st_mode) and status.st_nlink > files.NAMES_MAX:
                    linked.add(path)
        except OSError as error:
            raise _unreadable(folder, error) from error
        finally:
            files.close(fd)
    return Looked(seen, frozenset(linked))


def twins(paths: Iterable[str]) -> list[ScanFinding]:
    """The paths that a system without case or with another Unicode form would take for one another.

    The first of them in order of code points is no finding: it keeps its name.
    """
    by_key: dict[str, list[str]] = {}
    for path in paths:
        key = path.lower() if path.isascii() else unicodedata.normalize("NFC", path).casefold()
        by_key.setdefault(key, []).append(path)
    repeated = (sorted(group)[1:] for group in by_key.values() if len(group) > 1)
    return [ScanFinding(path, "name_twin") for group in repeated for path in group]


def may_hide_a_change(stamp: Stamp, read_at_ns: int) -> bool:
    """Whether the file was so young when it was read that a later change may carry the same stamp.

    For partitions without exact events: such a file is read again at the next scan, although its stamp is equal.
    ``read_at_ns`` is the wall clock at the reading. Two seconds cover the coarsest clock of a file system in use.
    """
    return read_at_ns - stamp.ctime_ns < _SETTLE_NS


def is_passed_over(name: str) -> bool:
    """Names that are never looked at: hidden ones, ours while staged, editors' locks and swap files."""
    return name.startswith(_PASSED_OVER)


def is_note_name(name: str, *, top: bool) -> bool:
    """Whether a file of that name is part of the partition; ``top`` says it lies in the partition folder itself."""
    return name[-3:].lower() == ".md" or (top and name == ONTOLOGY_NAME)


def folder_refusal(name: str, depth: int, limits: ScanLimits) -> FindingCode | None:
    """Why a folder is not entered; its depth counts from 1 for a folder in the partition folder."""
    if not is_utf8(name):
        return "name_not_utf8"
    if name[-3:].lower() == ".md":
        return "folder_named_as_note"
    return "too_deep" if depth > limits.depth else None


def _judge(path: str, name: str, limits: ScanLimits, status: os.stat_result) -> Stamp | ScanFinding | None:
    if is_passed_over(name):
        return None
    if not is_utf8(name):
        return ScanFinding(printable(path), "name_not_utf8")
    if stat.S_ISDIR(status.st_mode):
        code = folder_refusal(name, path.count("/") + 1, limits)
        return None if code is None else ScanFinding(path, code)
    if is_note_name(name, top="/" not in path):
        if stat.S_ISREG(status.st_mode) and status.st_nlink <= files.NAMES_MAX:
            return Stamp.of(status)
        return ScanFinding(path, _refusal(status))
    return ScanFinding(path, "symlink") if stat.S_ISLNK(status.st_mode) else None


def _refusal(status: os.stat_result) -> FindingCode:
    if stat.S_ISLNK(status.st_mode):
        return "symlink"
    return "hardlink" if stat.S_ISREG(status.st_mode) else "not_a_file"


def _is_entered(folder: str, limits: ScanLimits) -> bool:
    """Whether a scan enters this folder, by its names alone."""
    if not folder:
        return True
    names = folder.split("/")
    return names[0] != ARTIFACTS_NAME and all(
        not is_passed_over(name) and folder_refusal(name, depth, limits) is None
        for depth, name in enumerate(names, start=1)
    )


def is_utf8(name: str) -> bool:
    """Whether a name, or a path, is text: other names come from the system with lone surrogates in them."""
    try:
        name.encode("utf-8")
    except UnicodeEncodeError:
        return False
    return True


def printable(path: str) -> str:
    """The path as a finding shows it."""
    return os.fsencode(path).decode("utf-8", "backslashreplace")


def _too_many(limit: int) -> ScanIncomplete:
    return ScanIncomplete(
        f"The partition holds more than {limit} files and folders, so the scan was stopped and nothing of it is used. "
        "Move what is no note out of it, or raise limits.scanEntries.",
        retry="never",
        limit=limit,
    )


def _unreadable(folder: str, error: OSError) -> ScanIncomplete:
    return ScanIncomplete(
        f"The folder {printable(folder) or '.'} cannot be read ({os.strerror(error.errno or errno.EIO)}), so nothing "
        "is answered from a part of the partition. Make it readable again.",
        folder=printable(folder),
        reason=errno.errorcode.get(error.errno or 0, "EIO"),
    )

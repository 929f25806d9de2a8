"""Whether a citation holds: its file, its hash, its lines, its quote.

Guarantees: a file is hashed in a stream, never held in memory; a verdict is kept only while the file's stamp is the
one it was given for, and never for a stamp so young that it may hide a change; what a file says is never kept beyond
the call, whether the citation holds or not. Bad evidence is a verdict, not an exception.

Runs on the verifier's thread; a :class:`VerdictCache` belongs to one thread.

Source: stores-and-access.md (Runtime, Limits); decisions.md section 2; tools.md (Claims and relationships).
"""

from __future__ import annotations

import errno
import hashlib
import os
import re
import time
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Final, Literal, TypeAlias

from messages.errors import StorageError
from storage import files
from storage.evidence._passage import Passage
from storage.faults import effect
from storage.files import Stamp
from storage.records import EvidenceCitation
from storage.vault import may_hide_a_change

FAULT_POINTS: Final = (
    ("evidence.folder", "opening the folder of a retained source"),
    ("evidence.open", "opening a retained source"),
    ("evidence.read", "reading a piece of a retained source"),
    ("evidence.stat", "checking that a retained source held still"),
)

EvidenceProblem: TypeAlias = Literal["missing", "unsafe", "hash_mismatch", "line_range", "quote_mismatch"]

_PATH: Final = re.compile(r"(artifacts/[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12})/([^/\0]{1,255})")
_CHUNK_BYTES: Final = 1 << 20
_ATTEMPTS: Final = 3
_ABSENT: Final = (errno.ENOENT, errno.ENOTDIR, errno.ENAMETOOLONG)


@dataclass(frozen=True, slots=True)
class Verdict:
    """What a look at the source gave. ``problem`` is ``None`` when the citation holds.

    ``message`` says what is wrong, without text of the source. ``excerpt`` is the beginning of the cited lines (4,000
    UTF-16 units), ``""`` for a binary source or where it was not asked for. ``size`` is in bytes, 0 where there is no
    file. ``stamp`` is the file's, for :func:`unchanged`.
    """

    problem: EvidenceProblem | None
    message: str
    excerpt: str
    size: int
    stamp: Stamp | None = None


_Key: TypeAlias = tuple[str, str, int | None, int | None, str | None]


class VerdictCache:
    """Verdicts by citation, each valid for one stamp; the least recently used go first. One thread.

    ``now_ns`` is the wall clock (ns since 1970). Of a file that had just been changed when its reading began nothing is
    kept: a further change within the same tick of the file system's clock gets the same stamp.
    """

    __slots__ = ("_limit", "_verdicts", "now_ns")

    def __init__(self, limit: int = 20_000, now_ns: Callable[[], int] = time.time_ns) -> None:
        self._limit = limit
        self.now_ns = now_ns
        self._verdicts: OrderedDict[_Key, Verdict] = OrderedDict()

    def __len__(self) -> int:
        return len(self._verdicts)

    def get(self, citation: EvidenceCitation, stamp: Stamp) -> Verdict | None:
        """The verdict that was given for this citation while the file had this stamp."""
        key = _key(citation)
        verdict = self._verdicts.get(key)
        if verdict is None or verdict.stamp != stamp:
            return None
        self._verdicts.move_to_end(key)
        return verdict

    def put(self, citation: EvidenceCitation, verdict: Verdict, read_at_ns: int) -> None:
        """Keep a verdict without its excerpt, if its stamp proves the file; its reading began at ``read_at_ns``."""
        if verdict.stamp is not None and not may_hide_a_change(verdict.stamp, read_at_ns):
            self._keep(_key(citation), replace(verdict, excerpt=""))

    def take_over(self, other: VerdictCache) -> None:
        """Keep all that another cache keeps, in the place of what was known of the same citations."""
        for key, verdict in other._verdicts.items():
            self._keep(key, verdict)

    def _keep(self, key: _Key, verdict: Verdict) -> None:
        self._verdicts[key] = verdict
        self._verdicts.move_to_end(key)
        if len(self._verdicts) > self._limit:
            self._verdicts.popitem(last=False)


def verify(
    citation: EvidenceCitation,
    partition_root_fd: int,
    cache: VerdictCache,
    check: Callable[[], None],
    *,
    excerpt: bool = True,
) -> Verdict:
    """Whether the citation holds in this partition, hashing its file unless the cache knows it unchanged.

    ``check`` runs once a mebibyte and may raise to give up. ``excerpt=False`` spares reading an unchanged file again.

    Raises:
        StorageError: the disk failed; that says nothing of the evidence.
    """
    match = _PATH.fullmatch(citation.path)
    if match is None or match[2] in (".", "..") or match[2].startswith(".kr-"):
        return Verdict("unsafe", "the path is not artifacts/<request id>/<file name>", "", 0)
    try:
        for _ in range(_ATTEMPTS):
            folder = source_folder(partition_root_fd, match[1])
            try:
                fd, status = files.open_file(folder, match[2], at="evidence.open")
            finally:
                files.close(folder)
            try:
                verdict = _judge(citation, fd, Stamp.of(status), cache, check, excerpt)
            finally:
                files.close(fd)
            if verdict is not None:
                return verdict
    except files.UnsafeFile as error:
        return Verdict("unsafe", f"the source is not a plain file of one name ({error.reason})", "", 0)
    except OSError as error:
        if error.errno in _ABSENT:
            return Verdict("missing", "the retained source is not there", "", 0)
        if error.errno == errno.ELOOP:
            return Verdict("unsafe", "the path to the source leads through a symbolic link", "", 0)
        reason = os.strerror(error.errno or errno.EIO)
        raise StorageError(f"A retained source cannot be read: {reason}.", path=citation.path) from error
    return Verdict("hash_mismatch", "the source keeps changing while it is read", "", 0)


def unchanged(citation: EvidenceCitation, verdict: Verdict, partition_root_fd: int) -> bool:
    """Whether the file still has the stamp of the verdict: one ``open`` and one ``stat``, no reading."""
    match = _PATH.fullmatch(citation.path)
    if match is None or verdict.stamp is None:
        return False
    try:
        folder = source_folder(partition_root_fd, match[1])
        try:
            status = files.stat_entry(folder, match[2], at="evidence.stat")
        finally:
            files.close(folder)
    except OSError:
        return False
    return status is not None and status.st_nlink <= files.NAMES_MAX and Stamp.of(status) == verdict.stamp


def source_folder(root_fd: int, folder: str) -> int:
    """The open folder of a source, in the partition whose folder ``root_fd`` is and in no other."""
    return files.open_folder(root_fd, folder, at="evidence.folder")


def open_source_file(root_fd: int, path: str, stamp: Stamp) -> int | None:
    """A descriptor of the source while it has this stamp, else ``None``; the caller closes it."""
    match = _PATH.fullmatch(path)
    if match is None:
        return None
    try:
        folder = source_folder(root_fd, match[1])
        try:
            fd, status = files.open_file(folder, match[2], at="evidence.open")
        finally:
            files.close(folder)
    except (OSError, files.UnsafeFile):
        return None
    if Stamp.of(status) == stamp:
        return fd
    files.close(fd)
    return None


def _judge(
    citation: EvidenceCitation,
    fd: int,
    stamp: Stamp,
    cache: VerdictCache,
    check: Callable[[], None],
    excerpt: bool,
) -> Verdict | None:
    """The verdict on an open file; ``None`` when it changed under our hands."""
    known = cache.get(citation, stamp)
    if known is not None and (not excerpt or known.problem is not None):
        return known
    start, end = _range(citation)
    passage = Passage(start, end, citation.quote)
    digest = hashlib.sha256()
    read_at = cache.now_ns()
    while True:
        check()
        with effect("evidence.read"):
            chunk = os.read(fd, _CHUNK_BYTES)
        if not chunk:
            passage.finish()
            break
        passage.feed(chunk)
        if known is None:
            digest.update(chunk)
        elif passage.complete or passage.full:
            break
    if Stamp.of(files.stat_open(fd, at="evidence.stat")) != stamp:
        return None
    text = passage.excerpt() if excerpt else ""
    if known is not None:
        return replace(known, excerpt=text)
    problem, message = _problem(citation, start, end, passage, digest.hexdigest())
    verdict = Verdict(problem, message, "" if problem else text, stamp.size, stamp)
    cache.put(citation, verdict, read_at)
    return verdict


def _range(citation: EvidenceCitation) -> tuple[int | None, int | None]:
    """The cited lines; one of the two alone stands for a single line."""
    start = citation.end_line if citation.start_line is None else citation.start_line
    return start, start if citation.end_line is None else citation.end_line


def _problem(
    citation: EvidenceCitation, start: int | None, end: int | None, passage: Passage, digest: str
) -> tuple[EvidenceProblem | None, str]:
    if digest != citation.sha256:
        return "hash_mismatch", "the source is not the one that was cited: its SHA-256 differs"
    if start is not None and end is not None and not 1 <= start <= end <= passage.lines:
        return "line_range", f"lines {start} to {end} are cited, the source has {passage.lines}"
    if not passage.quote_found:
        return "quote_mismatch", "the quote does not occur " + ("in the source" if start is None else "in these lines")
    return None, ""


def _key(citation: EvidenceCitation) -> _Key:
    return citation.path, citation.sha256, citation.start_line, citation.end_line, citation.quote

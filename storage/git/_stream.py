"""Publications as the text that ``git fast-import`` reads: commits without an index and without a work tree.

Source: decisions.md section 4 (Git), ``git-fast-import(1)``.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from storage.git._run import NOBODY
from storage.layout import ARTIFACTS_NAME, MANIFEST_NAME
from storage.state.git_queue import GitJob

INCOMING_REF: Final = "refs/knowledge/checkpoint"
PUBLICATION_TRAILER: Final = "Publication"

_UNSAFE_IN_NAME: Final = re.compile(r"[\x00-\x20\x7f<>\\\"]+")


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """One settled publication as it goes into Git. ``at`` is in seconds since 1970; paths are relative to the vault."""

    publication_id: str
    operation: str
    request_id: str | None
    actor: str
    at: int
    record_ids: tuple[str, ...]
    changes: tuple[tuple[str, bytes | None], ...]

    @classmethod
    def of(cls, job: GitJob, text: Callable[[str], bytes]) -> Checkpoint:
        """The checkpoint of a queued entry; ``text`` gives the bytes of a hash, from history and never from a file."""
        changes = tuple((change.path, None if change.hash is None else text(change.hash)) for change in job.changes)
        return cls(
            job.publication_id,
            job.operation,
            job.request_id,
            job.actor,
            job.at_ns // 1_000_000_000,
            job.record_ids,
            changes,
        )

    @property
    def size(self) -> int:
        """Bytes of text in it."""
        return sum(len(data) for _, data in self.changes if data is not None)


def is_versioned(path: str) -> bool:
    """Whether a path of the vault belongs into Git: retained evidence and the manifest do not."""
    parts = path.split("/")
    if path == MANIFEST_NAME or any(part in ("", ".", "..") or part.lower() == ".git" for part in parts):
        return False
    inside = parts[1:] if parts[0] == "private" else parts[2:]
    return inside[:1] != [ARTIFACTS_NAME]


def encode(checkpoints: Sequence[Checkpoint], parent: str | None) -> bytes:
    """The stream that puts the checkpoints on top of ``parent``; Git answers with one commit id a line, in order.

    A stream that is cut off anywhere commits nothing: only ``done`` at its end counts.
    """
    parts: list[bytes] = [b"feature done\n"]
    for mark, checkpoint in enumerate(checkpoints, start=1):
        parts.append(f"commit {INCOMING_REF}\nmark :{mark}\n".encode())
        parts.append(f"author {_person(checkpoint.actor)} {checkpoint.at} +0000\n".encode())
        parts.append(f"committer {NOBODY[0]} <{NOBODY[1]}> {checkpoint.at} +0000\n".encode())
        parts.append(_data(_message(checkpoint).encode()))
        if mark == 1 and parent is not None:
            parts.append(f"from {parent}\n".encode())
        for path, data in checkpoint.changes:
            if not is_versioned(path):
                continue
            if data is None:
                parts.append(b"D %s\n" % _quoted(path))
            else:
                parts.append(b"M 100644 inline %s\n" % _quoted(path))
                parts.append(_data(data))
        parts.append(f"get-mark :{mark}\n".encode())
    parts.append(b"done\n")
    return b"".join(parts)


def _message(checkpoint: Checkpoint) -> str:
    """Operation, request and record ids; never a title, since an erasure does not rewrite messages."""
    lines = [_UNSAFE_IN_NAME.sub(" ", checkpoint.operation), ""]
    if checkpoint.request_id is not None:
        lines.append(f"Request: {checkpoint.request_id}")
    lines.append(f"{PUBLICATION_TRAILER}: {checkpoint.publication_id}")
    lines += [f"Record: {_UNSAFE_IN_NAME.sub(' ', record_id)}" for record_id in checkpoint.record_ids]
    return "\n".join(lines) + "\n"


def _person(actor: str) -> str:
    name = _UNSAFE_IN_NAME.sub(" ", actor).strip() or "unknown"
    return f"{name} <{re.sub(r'[^A-Za-z0-9._-]+', '-', name)}@knowledge.invalid>"


def _data(data: bytes) -> bytes:
    return b"data %d\n%s\n" % (len(data), data)


def _quoted(path: str) -> bytes:
    escaped = path.encode("utf-8", "surrogateescape").replace(b"\\", b"\\\\").replace(b'"', b'\\"')
    return b'"%s"' % escaped.replace(b"\n", b"\\n")

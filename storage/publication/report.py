"""What an opening found and did, and the words in which a person is told.

Guarantees: one sentence a case, with paths relative to the vault and never a text of a record; nothing is told where
nothing was changed or put in doubt.

Source: WRITE-PATH.md section 6.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final, Literal, TypeAlias, assert_never, cast

from storage.state.notices import NoticeRow

MOST_PATHS: Final = 20

Happened: TypeAlias = Literal["restored", "edited", "moved", "fragment", "older", "displaced", "created"]


@dataclass(frozen=True, slots=True)
class Notice:
    """One path to which something happened.

    ``at_ns`` is when our version of it was accepted (ns since 1970, UTC); ``revision`` the sequence of history under
    which a text that was replaced is kept, ``None`` when history had it already.
    """

    happened: Happened
    path: str
    at_ns: int = 0
    revision: int | None = None


@dataclass(frozen=True, slots=True)
class RecoveryReport:
    """``kind`` is what had stopped: nothing (``clean``), the process, or the machine; ``finished`` are the requests
    whose interrupted publication got its final receipt now."""

    kind: Literal["clean", "process", "machine"]
    notices: tuple[Notice, ...] = ()
    finished: tuple[str, ...] = ()

    def paths(self, *happened: Happened) -> tuple[str, ...]:
        """The paths to which one of these happened, in order."""
        return tuple(notice.path for notice in self.notices if notice.happened in happened)

    @property
    def rows(self) -> tuple[NoticeRow, ...]:
        """The notices as they are kept for later openings."""
        return tuple((notice.happened, notice.path, notice.at_ns, notice.revision) for notice in self.notices)

    @property
    def messages(self) -> tuple[str, ...]:
        """What a person should be told, one sentence or two a case; empty when nothing needs telling."""
        return tuple(self._messages())

    def _messages(self) -> Iterator[str]:
        restored = self.paths("restored")
        if restored:
            files = (
                "1 file was put back to its" if len(restored) == 1 else f"{len(restored)} files were put back to their"
            )
            yield (
                f"After the machine stopped uncleanly, {files} last saved version: {_some(restored)}. "
                "If you deleted or restored them on purpose, do it again."
            )
        told = [notice for notice in self.notices if notice.happened not in ("restored", "moved")]
        for notice in told[:MOST_PATHS]:
            yield _sentence(notice)
        if len(told) > MOST_PATHS:
            yield f"The stop left {len(told) - MOST_PATHS} more files in doubt; their histories tell."


def earlier_messages(at_ns: int, rows: Sequence[NoticeRow]) -> tuple[str, ...]:
    """What a person should be told of the recovery that an earlier opening made."""
    # Rows are ours, written from notices by `rows`.
    notices = tuple(Notice(cast(Happened, happened), path, at, revision) for happened, path, at, revision in rows)
    return tuple(f"{_minute(at_ns)}: {sentence}" for sentence in RecoveryReport("machine", notices).messages)


def _sentence(notice: Notice) -> str:
    path = notice.path
    kept = "in its history" if notice.revision is None else f"as revision {notice.revision}"
    match notice.happened:
        case "edited":
            return (
                f"{path} was edited outside around the time of the stop. Your text is in place; the agent's version "
                f"from {_minute(notice.at_ns)} is in its history. Please compare."
            )
        case "fragment":
            return f"{path} was incomplete after the stop and was restored; the fragment is kept {kept}."
        case "older":
            return f"{path} held an older text after the stop and was restored; that text is kept {kept}."
        case "displaced":
            return f"A text that was saved to {path} while the agent wrote it is kept {kept}. Please compare."
        case "created":
            return f"{path} was created again."
        case "restored" | "moved":
            return path
        case _ as never:
            assert_never(never)


def _minute(at_ns: int) -> str:
    return f"{datetime.fromtimestamp(at_ns // 1_000_000_000, UTC):%Y-%m-%d %H:%M} UTC"


def _some(paths: tuple[str, ...]) -> str:
    more = f" and {len(paths) - MOST_PATHS} more" if len(paths) > MOST_PATHS else ""
    return ", ".join(paths[:MOST_PATHS]) + more

"""The daily logs ``logs/YYYY-MM-DD.jsonl``: what was remembered on each day (UTC), one JSON object a line.

They follow the entries and are not what is true: a line that is lost is written again from its entry.

Source: agent-memory.md (Daily Logs, Log Pruning).
"""

from __future__ import annotations

import errno
import json
import re
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, date, datetime
from typing import Any, Final, NamedTuple

from storage import files
from storage.agent_memory.entry import KnowledgeEntry, in_utc, is_text
from storage.whole_files import put_whole

LOGS_NAME: Final = "logs"
LOG_MAX_BYTES: Final = 256 * 1024 * 1024
_LOG_NAME: Final = re.compile(r"(\d{4}-\d{2}-\d{2})\.jsonl")

FAULT_POINTS: Final = (
    ("agent_memory.logs", "the folder of the daily logs"),
    ("agent_memory.log", "reading, appending to and removing a daily log"),
)


class LogLine(NamedTuple):
    """One line; ``id`` is empty where a hand wrote it."""

    at: datetime
    category: str
    content: str
    persistent: bool
    id: str

    def shown(self) -> dict[str, Any]:
        """As callers get it."""
        return {
            "timestamp": _stamp(self.at),
            "category": self.category,
            "content": self.content,
            "persistent": self.persistent,
            "id": self.id,
        }


def day_of(entry: KnowledgeEntry) -> date:
    """The day in whose log an entry stands."""
    return in_utc(entry.created_at).date()


def append(folder: int, entries: list[KnowledgeEntry]) -> None:
    """A line for each entry at the end of its day's log. No sync."""
    by_day: dict[date, bytes] = {}
    for entry in entries:
        by_day[day_of(entry)] = by_day.get(day_of(entry), b"") + _line(entry)
    with _opened(folder, create=True) as logs:
        assert logs is not None
        for day, data in by_day.items():
            name = f"{day.isoformat()}.jsonl"
            status = files.stat_entry(logs, name, at="agent_memory.log")
            if status is None:
                files.close(files.create_file(logs, name, data, mode=0o600, at="agent_memory.log"))
                continue
            fd, status = files.open_to_write(logs, name, at="agent_memory.log.open")
            try:
                size = status.st_size
                torn = size > 0 and files.read_at(fd, 1, size - 1, at="agent_memory.log.read") != b"\n"
                files.write_at(fd, (b"\n" if torn else b"") + data, size, at="agent_memory.log.write")
            finally:
                files.close(fd)


def insert(folder: int, day: date, lines: list[LogLine]) -> None:
    """Put these lines before those of the day's log, as a whole and durable; one that is there is not repeated."""
    name = f"{day.isoformat()}.jsonl"
    with _opened(folder, create=True) as logs:
        assert logs is not None
        try:
            data, _ = files.read_file(logs, name, limit=LOG_MAX_BYTES, at="agent_memory.log")
        except FileNotFoundError:
            data = b""
        there = set(data.splitlines(keepends=True))
        new = [line for line in map(_of_line, lines) if line not in there]
        if not new:
            return
        put_whole(logs, name, b"".join([*new, data]), staged=f"{name}.tmp", at="agent_memory.log")


def days(folder: int) -> list[date]:
    """The days that have a log, the latest first. Other files are none."""
    with _opened(folder) as logs:
        if logs is None:
            return []
        names = (entry.name for entry in files.list_folder(logs, at="agent_memory.logs") if entry.kind == "file")
        return sorted(filter(None, map(_day, names)), reverse=True)


def latest_first(folder: int, day: date) -> Iterator[LogLine]:
    """The lines of a day, the last of the file first; what is none is passed over. Only what is taken is parsed."""
    with _opened(folder) as logs:
        if logs is None:
            return
        try:
            data, _ = files.read_file(logs, f"{day.isoformat()}.jsonl", limit=LOG_MAX_BYTES, at="agent_memory.log")
        except FileNotFoundError:
            return
    for text in reversed(data.split(b"\n")):
        line = _parsed(text)
        if line is not None:
            yield line


def remove(folder: int, unwanted: list[date]) -> int:
    """Delete the logs of these days; how many there were."""
    with _opened(folder) as logs:
        if logs is None:
            return 0
        return sum(files.unlink(logs, f"{day.isoformat()}.jsonl", at="agent_memory.log.unlink") for day in unwanted)


@contextmanager
def _opened(folder: int, *, create: bool = False) -> Iterator[int | None]:
    try:
        logs = files.open_folder(folder, LOGS_NAME, at="agent_memory.logs.open")
    except OSError as error:
        if error.errno != errno.ENOENT:
            raise
        if not create:
            yield None
            return
        files.make_folder(folder, LOGS_NAME, mode=0o700, at="agent_memory.logs")
        logs = files.open_folder(folder, LOGS_NAME, at="agent_memory.logs.open")
    try:
        yield logs
    finally:
        files.close(logs)


def _line(entry: KnowledgeEntry) -> bytes:
    return _of_line(LogLine(in_utc(entry.created_at), entry.category, entry.content, entry.persistent, entry.id))


def _of_line(line: LogLine) -> bytes:
    return json.dumps(line.shown()).encode("ascii") + b"\n"


def _stamp(at: datetime) -> str:
    return f"{at.astimezone(UTC).replace(tzinfo=None).isoformat(timespec='seconds')}Z"


def _day(name: str) -> date | None:
    match = _LOG_NAME.fullmatch(name)
    try:
        return None if match is None else date.fromisoformat(match[1])
    except ValueError:
        return None


def _parsed(text: bytes) -> LogLine | None:
    try:
        value = json.loads(text)
        if not isinstance(value, dict):
            return None
        at = in_utc(datetime.fromisoformat(value["timestamp"]))
        category, content = value.get("category", ""), value["content"]
    except (ValueError, KeyError, TypeError, RecursionError):
        return None
    if not isinstance(category, str) or not isinstance(content, str):
        return None
    if not is_text(category) or not is_text(content):
        return None
    return LogLine(at, category, content, bool(value.get("persistent", False)), str(value.get("id", "")))

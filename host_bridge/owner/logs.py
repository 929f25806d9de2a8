"""The owner's log: JSON lines on stderr with ids and outcomes, never a text that came from a caller or a record.

An exception is logged as its type and the places it passed through; its message may quote what it choked on.
"""

from __future__ import annotations

import json
import logging
import os
import sys
import traceback
from typing import Final, TextIO

import structlog
from structlog.typing import EventDict, WrappedLogger

KEPT_BYTES: Final = 4 * 1024 * 1024
_STANDARD: Final = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName"}

RECALL_GATE: Final = "actors.recall_gate.turn"


def configure(stream: TextIO | None = None, *, level: int = logging.INFO) -> None:
    """Send the standard library's and structlog's records to ``stream`` (stderr), one JSON object a line."""
    target = sys.stderr if stream is None else stream
    handler = logging.StreamHandler(target)
    handler.setFormatter(JsonLines())
    logging.basicConfig(level=level, handlers=[handler], force=True)
    for chatty in ("mcp", "httpx", "httpcore"):
        logging.getLogger(chatty).setLevel(logging.WARNING)
    # Its one line a turn is what the gate is tuned by; a host on stdio finds it on standard error.
    logging.getLogger(RECALL_GATE).setLevel(min(level, logging.INFO))
    structlog.configure(
        processors=[structlog.stdlib.add_log_level, _into_standard_library],
        wrapper_class=structlog.make_filtering_bound_logger(level),
        logger_factory=structlog.stdlib.LoggerFactory(),
        cache_logger_on_first_use=False,
    )


def keep_small(path: str, descriptors: tuple[int, ...] = (1, 2), limit: int = KEPT_BYTES) -> bool:
    """Set a log that grew beyond ``limit`` bytes aside as ``<path>.1`` and go on in a new one; whether it was done.

    ``descriptors`` are moved to the new file, so that whatever writes to them, ours or not, follows.
    """
    if os.fstat(descriptors[-1]).st_size <= limit:
        return False
    os.replace(path, path + ".1")
    fresh = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    for descriptor in descriptors:
        os.dup2(fresh, descriptor)
    os.close(fresh)
    return True


class JsonLines(logging.Formatter):
    """``{"at", "level", "logger", "event", ...fields}``; an exception becomes ``error`` and ``frames``."""

    def format(self, record: logging.LogRecord) -> str:
        entry: dict[str, object] = {
            "at": self.formatTime(record, "%Y-%m-%dT%H:%M:%S") + f".{int(record.msecs):03d}",
            "level": record.levelname.lower(),
            "logger": record.name,
            "event": record.getMessage(),
        }
        entry.update({name: value for name, value in vars(record).items() if name not in _STANDARD})
        if record.exc_info and record.exc_info[0] is not None:
            entry["error"] = record.exc_info[0].__name__
            entry["frames"] = [
                f"{frame.filename.rpartition('/')[2]}:{frame.lineno} {frame.name}"
                for frame in traceback.extract_tb(record.exc_info[2])
            ]
        return json.dumps(entry, ensure_ascii=True, default=str)


def _into_standard_library(_: WrappedLogger, method: str, event: EventDict) -> tuple[tuple[str], dict[str, object]]:
    exc_info = event.pop("exc_info", None)
    text = str(event.pop("event", method))
    fields = {name: value for name, value in event.items() if name != "level"}
    clean = {f"{name}_" if name in _STANDARD else name: value for name, value in fields.items()}
    return (text,), {"extra": clean, "exc_info": exc_info}

"""The configuration file: how it is read, what is wrong with it, and how an edit takes effect.

``<state dir>/knowledge.yaml`` is YAML 1.2 or JSON. Every key is optional, an unknown one is refused by name and
line, and a broken edit leaves the configuration in force as it was. The configuration decides membership;
identities and paths of stores are the registry's.

Source: decisions.md section 1; stores-and-access.md (Stores).
"""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, get_args

from pydantic import BaseModel, ValidationError

from host_bridge._config_model import (
    DEFAULT_AGENT,
    Agent,
    AgentDefaults,
    Agents,
    Configuration,
    Gateway,
    Http,
    Limits,
    Maintenance,
    Models,
    NamedStore,
    Operator,
    PageBudgets,
    Providers,
    RecallGate,
    RerankModel,
    RerankProvider,
    Runtime,
    SystemMemory,
    SystemMemoryReady,
    Tls,
)
from host_bridge._config_yaml import Document, Location, UnreadableDocument, parse_document
from messages.errors import InvalidArgument, LimitExceeded, StorageError
from messages.json_types import JsonObject

__all__ = [
    "CONFIGURATION_MAX_BYTES",
    "DEFAULT_AGENT",
    "Agent",
    "AgentDefaults",
    "Agents",
    "Configuration",
    "ConfigurationFile",
    "Gateway",
    "Http",
    "Limits",
    "Maintenance",
    "Models",
    "NamedStore",
    "Operator",
    "PageBudgets",
    "Problem",
    "Providers",
    "RecallGate",
    "RerankModel",
    "RerankProvider",
    "Runtime",
    "SystemMemory",
    "SystemMemoryReady",
    "Tls",
    "load_configuration",
    "parse_configuration",
]

CONFIGURATION_MAX_BYTES: Final = 1024 * 1024

_KEPT: Final = "The last valid configuration stays in force."
_TICK_NS: Final = 50_000_000
_EMPTIED_NS: Final = 2_000_000_000


@dataclass(frozen=True, slots=True)
class Problem:
    """One thing that is wrong with the file: ``field`` is the dotted key, ``line`` is 1-based."""

    field: str
    line: int | None
    message: str

    def __str__(self) -> str:
        where = "" if self.line is None else f"line {self.line}: "
        return f"{where}{f'`{self.field}` ' if self.field else ''}{self.message}"


def parse_configuration(text: str, name: str = "knowledge.yaml") -> Configuration:
    """The configuration that ``text`` describes; an empty text is all defaults.

    Raises:
        InvalidArgument: every problem found, each with key and line, in ``problems``; the first one also as
            ``field`` and ``line``.
    """
    try:
        document = parse_document(text.removeprefix("\ufeff"))
    except UnreadableDocument as error:
        raise _refusal(name, [Problem(_dotted(error.location), error.line, error.message)]) from None
    value = {} if document.value is None else document.value
    if not isinstance(value, dict):
        raise _refusal(name, [Problem("", document.line_of(()), "the file must hold keys and values")])
    try:
        return Configuration.model_validate(value)
    except ValidationError as error:
        problems = [
            _problem(document, tuple(item["loc"]), item["type"], item["msg"])
            for item in error.errors(include_url=False, include_context=False, include_input=False)
        ]
        raise _refusal(name, sorted(problems, key=lambda problem: problem.line or 0)) from None


def load_configuration(path: Path) -> Configuration:
    """The configuration in the file at ``path``; all defaults where there is no such file.

    Raises:
        InvalidArgument: the file is not valid; see :func:`parse_configuration`.
        LimitExceeded: it is larger than 1 MiB.
        StorageError: it cannot be read.
    """
    text = _read(path)
    return Configuration() if text is None else parse_configuration(text, path.name)


class ConfigurationFile:
    """The configuration in force, followed through edits of its file.

    :meth:`poll` is one ``stat`` while the file is unchanged; called every half second, it lets an edit take effect
    within one second. An emptied file is believed after two seconds: editors that save in place empty it first, and all
    defaults would meanwhile deny every agent. A broken or vanished file keeps the last valid configuration in force and
    says why in :attr:`problem`. One thread.
    """

    def __init__(self, path: Path) -> None:
        """Load the file once; raises as :func:`load_configuration` does, since there is nothing older to keep."""
        self._path = path
        self._seen: tuple[int, ...] | None = None
        self._empty = True
        text = self._changed_text()
        self._empty = text is None or not text.strip()
        self.current: Configuration = Configuration() if text is None else parse_configuration(text, path.name)
        self.problem: str | None = None

    def poll(self) -> bool:
        """Whether :attr:`current` became another configuration through this call."""
        was_there = self._seen is not None
        try:
            text = self._changed_text()
            if text is None:
                if was_there and self._seen is None:
                    self.problem = f"{self._path.name} is gone. {_KEPT}"
                return False
            self._empty = not text.strip()
            changed = parse_configuration(text, self._path.name)
        except (InvalidArgument, LimitExceeded, StorageError) as error:
            self.problem = f"{error.message} {_KEPT}"
            return False
        self.problem = None
        if changed == self.current:
            return False
        self.current = changed
        return True

    def take_over(self, text: str) -> None:
        """``text`` was just put into the file by us: it is in force from now on, whatever comes into the file next.

        Raises as :func:`parse_configuration` does.
        """
        self.current = parse_configuration(text, self._path.name)
        self._empty = not text.strip()
        self._seen = ()

    def _changed_text(self) -> str | None:
        """The text when it may differ from the one read last; ``None`` when it does not or there is no file."""
        try:
            stamp = _stamp(os.stat(self._path))
        except FileNotFoundError:
            self._seen = None
            return None
        except OSError as error:
            self._seen = ()
            raise StorageError(f"{self._path.name} cannot be read: {error.strerror}.", file=self._path.name) from error
        if stamp == self._seen:
            return None
        # A change in the same tick of the file system's clock leaves the stamp alone: look again until it is old.
        age = time.time_ns() - stamp[-1]
        self._seen = stamp if age > _TICK_NS else ()
        text = _read(self._path)
        if text is not None and not text.strip() and not self._empty and 0 <= age < _EMPTIED_NS:
            self._seen = ()
            return None
        return text


def _read(path: Path) -> str | None:
    """The file's text; ``None`` where there is no file."""
    try:
        with path.open("rb") as file:
            data = file.read(CONFIGURATION_MAX_BYTES + 1)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise StorageError(f"{path.name} cannot be read: {error.strerror}.", file=path.name) from error
    if len(data) > CONFIGURATION_MAX_BYTES:
        raise LimitExceeded(f"{path.name} is larger than 1 MiB.", file=path.name, limit=CONFIGURATION_MAX_BYTES)
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise _refusal(path.name, [Problem("", line, "the text is not UTF-8")]) from None


def _stamp(status: os.stat_result) -> tuple[int, ...]:
    return status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns


def _problem(document: Document, location: Location, kind: str, message: str) -> Problem:
    if location[-1:] == ("[key]",):  # pydantic's mark for a mapping's key
        location = location[:-1]
    if kind == "extra_forbidden":
        message = f"is an unknown key; allowed here: {', '.join(_allowed_keys(location[:-1]))}"
    elif kind == "missing":
        message = "is missing"
    else:
        message = message.removeprefix("Value error, ")
    return Problem(_dotted(location), document.line_of(location), message)


def _allowed_keys(location: Location) -> list[str]:
    """The keys that a mapping at ``location`` may have, read off the models."""
    model: type[BaseModel] = Configuration
    for part in location:
        field = next((field for field in model.model_fields.values() if field.alias == part), None)
        if field is not None:
            model = _section_in(field.annotation) or model
    return sorted(field.alias or name for name, field in model.model_fields.items())


def _section_in(annotation: object) -> type[BaseModel] | None:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return annotation
    return next((found for part in get_args(annotation) if (found := _section_in(part)) is not None), None)


def _dotted(location: Location) -> str:
    text = ""
    for part in location:
        text += f"[{part}]" if isinstance(part, int) else f".{part}" if text else part
    return text


def _refusal(name: str, problems: Sequence[Problem]) -> InvalidArgument:
    first = problems[0]
    listed: list[JsonObject] = [{"field": item.field, "line": item.line, "message": item.message} for item in problems]
    more = f" (and {len(problems) - 1} more)" if len(problems) > 1 else ""
    return InvalidArgument(
        f"{name} {first}{more}. Correct the file; nothing of it was applied.",
        file=name,
        field=first.field,
        line=first.line,
        problems=listed,
    )

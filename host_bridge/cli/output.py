"""What commands print: UTF-8 whatever the locale says, JSON compact for programs and indented for people.

A terminal obeys characters, and texts, names and keys of a vault may hold any: none that it would obey leaves here.
"""

from __future__ import annotations

import json
import re
import sys

from host_bridge.cli import exits

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable

    from host_bridge.owner.client import OwnerError
    from messages.json_types import JsonValue


# Control characters but for the tab and the line feed, line separators, and what turns the direction of text around.
_OBEYED = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069]")


# Failures of which a store or the registry is the reason: looking into it helps, and the same command does not.
_BROKEN = ("quarantined", "storage_error", "store_unavailable")


class Unwritten(Exception):
    """What a command answers could not be written to where its output goes: a full disk, a closed descriptor."""


def emit(text: str) -> None:
    """One text and a line end on stdout. Raises ``Unwritten``, or ``BrokenPipeError`` where nobody reads it."""
    try:
        sys.stdout.flush()
        sys.stdout.buffer.write(printable(text).encode("utf-8", "replace") + b"\n")
        sys.stdout.buffer.flush()
    except BrokenPipeError:
        raise
    except OSError as error:
        raise Unwritten(error.strerror) from error


def complain(text: str) -> None:
    """One text and a line end on stderr."""
    sys.stderr.flush()
    sys.stderr.buffer.write(printable(text).encode("utf-8", "replace") + b"\n")
    sys.stderr.buffer.flush()


def told(lines: Iterable[str]) -> str:
    """Lines in words: each stays one line, whatever stands in the names and texts that it was made of."""
    return "\n".join(printable(line.replace("\n", "?")) for line in lines)


def printable(text: str) -> str:
    """``text`` with a question mark for each character that a terminal would obey."""
    return _OBEYED.sub("?", text)


def as_json(value: JsonValue, *, compact: bool) -> str:
    """The same value to every reader; in it, what a terminal would obey is written as an escape."""
    written = (
        json.dumps(value, ensure_ascii=False, separators=(",", ":"))
        if compact
        else json.dumps(value, ensure_ascii=False, indent=2)
    )
    return _OBEYED.sub(lambda found: f"\\u{ord(found[0]):04x}", written)


def failure(error: OwnerError, *, compact: bool, of_store: bool = True) -> int:
    """Say on stderr what failed, stdout staying empty, and return the exit status for it.

    People get the sentence, its code and the field; every fact is for programs.
    ``of_store``: it concerns a state directory, which the doctor can look at.
    """
    if compact:
        complain(as_json({"error": error.to_json()}, compact=True))
    else:
        field = error.fields.get("field")
        where = f"\n  field: {field}" if isinstance(field, str) and field else ""
        again = "" if error.retry == "never" else f"\n  retry: {error.retry}"
        ill = of_store and error.code in _BROKEN
        then = "\n  next: `knowledge doctor` names what is wrong and what mends it" if ill else ""
        complain(f"knowledge: {error.message}\n  code: {error.code}{where}{again}{then}")
    return exits.status_of(error)

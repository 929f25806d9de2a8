"""What commands print: UTF-8 whatever the locale says, JSON compact for programs and indented for people."""

from __future__ import annotations

import json
import sys

from host_bridge.cli import exits

TYPE_CHECKING = False
if TYPE_CHECKING:
    from host_bridge.owner.client import OwnerError
    from messages.json_types import JsonValue


def emit(text: str) -> None:
    """One text and a line end on stdout."""
    sys.stdout.flush()
    sys.stdout.buffer.write(text.encode("utf-8", "replace") + b"\n")
    sys.stdout.buffer.flush()


def complain(text: str) -> None:
    """One text and a line end on stderr."""
    sys.stderr.flush()
    sys.stderr.buffer.write(text.encode("utf-8", "replace") + b"\n")
    sys.stderr.buffer.flush()


def as_json(value: JsonValue, *, compact: bool) -> str:
    if compact:
        return json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    return json.dumps(value, ensure_ascii=False, indent=2)


def failure(error: OwnerError, *, compact: bool) -> int:
    """Say on stderr what failed, stdout staying empty, and return the exit status for it.

    People get the sentence, its code and the field; every fact is for programs.
    """
    if compact:
        complain(as_json({"error": error.to_json()}, compact=True))
    else:
        field = error.fields.get("field")
        where = f"\n  field: {field}" if isinstance(field, str) and field else ""
        again = "" if error.retry == "never" else f"\n  retry: {error.retry}"
        complain(f"knowledge: {error.message}\n  code: {error.code}{where}{again}")
    return exits.status_of(error)

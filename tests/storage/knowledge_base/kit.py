"""Stances and folders for the tests of the knowledge base."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

from messages.errors import InvalidArgument
from messages.json_types import JsonObject, JsonValue


def stance(stance_id: str = "paid-agents", /, **changes: JsonValue) -> JsonObject:
    """A sound stance; ``changes`` replace its keys, `id` too."""
    return {
        "id": stance_id,
        "title": "Paying agents",
        "questions": ["Can agents be paid yet?"],
        "state": "planned",
        "answer": "Not yet; the ledger comes first.",
        "sources": ["docs/ledger.md"],
        "date": "2026-08-25",
        **changes,
    }


def written(*stances: JsonValue) -> bytes:
    """A ``stances.json`` with one stance a line, the first on line 2."""
    return ("[\n" + ",\n".join(json.dumps(one, ensure_ascii=False) for one in stances) + "\n]\n").encode()


def folder(place: Path, files: Mapping[str, str | bytes]) -> Path:
    for name, text in files.items():
        path = place / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return place


def problems(error: InvalidArgument) -> list[tuple[str, int | None, str]]:
    """Entry, line and message of each problem."""
    listed = error.fields["problems"]
    assert isinstance(listed, list)
    return [(one["entry"], one["line"], one["message"]) for one in listed]

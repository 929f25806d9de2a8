"""Giving a plain Markdown file its envelope: what it says of itself already, and its bytes with the envelope added.

Guarantees: the body of the adopted file is the very text that was its body before, a byte order mark stays first, line
ends stay as they are, and a frontmatter that somebody wrote keeps its keys and comments: the envelope's keys go after
the last. Pure functions.

Source: decisions.md section 2 (`knowledge adopt`).
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from messages.json_types import JsonValue
from messages.text import is_one_line
from messages.vocabulary import RECORD_ID, TITLE_MAX_CHARS
from storage.records import frontmatter, links, utf16
from storage.records.findings import Finding
from storage.records.text import text_problem

_LINE_END: Final = re.compile(r"\r\n|\n|\r")
_ENVELOPE: Final = ("format", "revision", "kind", "recorded_at", "updated_at", "scope", "lifecycle")
_RECORD_FORMAT: Final = "knowledge-record-"


@dataclass(frozen=True, slots=True)
class PlainNote:
    """A file without an envelope: what its own frontmatter and text say that an envelope needs."""

    title: str
    id: str | None = None
    type: str | None = None


def plain_note(data: bytes, path: str) -> PlainNote | Finding:
    """What ``data`` says of itself, or why it cannot be adopted: it is a record, or its frontmatter is in the way."""
    read = frontmatter.read(data)
    if isinstance(read, Finding):
        if read.code != "frontmatter_missing":
            return read
        return _plain(data.decode("utf-8"), path)
    values = read.values
    form = values.get("format")
    if isinstance(form, str) and form.startswith(_RECORD_FORMAT):
        return Finding("already_a_record", "format", "The file has an envelope already.")
    taken = next((key for key in _ENVELOPE if key in values), None)
    if taken is not None:
        return _in_the_way(taken, "the envelope needs that key; rename yours")
    own_id = values.get("id")
    if own_id is not None and not (isinstance(own_id, str) and RECORD_ID.fullmatch(own_id)):
        return _in_the_way("id", "it is no record id (letters, digits and . _ : - as a string); rename the key")
    own_type = values.get("type")
    if own_type is not None and not isinstance(own_type, str):
        return _in_the_way("type", "it is not a text; rename the key")
    title = values.get("title")
    if title is not None and not (isinstance(title, str) and _as_title(title) == title):
        return _in_the_way("title", f"it is not one line of 1 to {TITLE_MAX_CHARS} characters")
    if text_problem(read.document.body) is not None:
        return Finding("nul", "body", "The text holds a character that cannot be stored; remove it.")
    return PlainNote(title or _title_of(read.document.body, path), own_id, own_type)


def with_envelope(data: bytes, values: Mapping[str, JsonValue]) -> bytes:
    """The file's bytes with these keys in its frontmatter; keys that it has already are left as they are.

    For a file that :func:`plain_note` accepts.
    """
    read = frontmatter.read(data)
    if isinstance(read, frontmatter.Frontmatter):
        missing = {key: value for key, value in values.items() if key not in read.values}
        return frontmatter.replace_lines(read.document, missing).encode("utf-8")
    text = data.decode("utf-8")
    mark = frontmatter.BOM if text.startswith(frontmatter.BOM) else ""
    body = text[len(mark) :]
    found = _LINE_END.search(body)
    newline = "\n" if found is None else found[0]
    head = f"{mark}---{newline}{frontmatter.emit(values, newline)}---{newline}"
    # One empty line after the fence is not the body's, whatever the body begins with.
    return (head + (newline + body if body else "")).encode("utf-8")


def _plain(text: str, path: str) -> PlainNote | Finding:
    body = text.removeprefix(frontmatter.BOM)
    if text_problem(body) is not None:
        return Finding("nul", "body", "The text holds a character that cannot be stored; remove it.")
    return PlainNote(_title_of(body, path))


def _title_of(body: str, path: str) -> str:
    """The first heading that can be a title, else the file's name."""
    for section in links.parse(body).sections:
        title = _as_title(section.heading)
        if title:
            return title
    name = re.sub(r"\.md\Z", "", path.rpartition("/")[2], flags=re.IGNORECASE)
    return _as_title(unicodedata.normalize("NFC", name)) or "Untitled"


def _as_title(text: str) -> str:
    """One visible line within the limit, or ``""``."""
    line = " ".join(text.split())
    if not line or not is_one_line(line) or text_problem(line) is not None:
        return ""
    return utf16.window(line, 0, TITLE_MAX_CHARS)[0].rstrip()


def _in_the_way(key: str, why: str) -> Finding:
    return Finding("key_conflict", key, f"The frontmatter has `{key}`: {why}.")

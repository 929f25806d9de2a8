"""How the pages say things: instants, sizes, counts, and texts of others that must not act. Filters of the templates.

Pure. Source: knowledge-more-facts.md section 8.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from datetime import UTC, date, datetime, timedelta
from itertools import groupby
from typing import Final

from markupsafe import Markup, escape

from messages.errors import LimitExceeded
from storage.records import format_instant
from storage.search import parse_query

_ACTING: Final = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f\u202a-\u202e\u2066-\u2069]")
"""Controls, and marks that turn the direction of what follows them."""
_WORDS: Final = re.compile(r"\w+|\W+")
_UNITS: Final = ("bytes", "KiB", "MiB", "GiB", "TiB")

_STATES: Final = {
    "active": "Current",
    "superseded": "Replaced",
    "withdrawn": "Withdrawn",
    "merged": "Merged",
    "expired": "Expired",
    "invalid": "With findings",
    "fixture": "Test data",
    "all": "Everything",
}


def harmless(text: object) -> str:
    """One text of others, its invisible acting characters shown by their numbers."""
    return _ACTING.sub(lambda found: f"⟨U+{ord(found[0]):04X}⟩", str(text))


def moment(instant: object) -> Markup:
    """An instant (RFC 3339 text) as an element that a script puts into the reader's zone; without one, UTC."""
    text = str(instant)
    parsed = _parsed(text)
    if parsed is None:
        return escape(harmless(text))
    shown = f"{parsed:%Y-%m-%d %H:%M} UTC"
    return Markup('<time datetime="{}" data-moment title="{}">{}</time>').format(text, f"{text} (UTC)", shown)


def instant(milliseconds: object) -> Markup:
    """The same of milliseconds since 1970."""
    return moment(format_instant(milliseconds if isinstance(milliseconds, int) else 0))


def next_day(day: object) -> str:
    """The day after a UTC day."""
    return (date.fromisoformat(str(day)) + timedelta(days=1)).isoformat()


def listing(value: object) -> str:
    """A value of JSON in words: lists and objects on one line."""
    match value:
        case bool():
            return "yes" if value else "no"
        case None:
            return "nothing"
        case Mapping():
            return ", ".join(f"{name}: {listing(each)}" for name, each in value.items())
        case list() | tuple():
            return ", ".join(map(listing, value))
        case _:
            return str(value)


def size(number: object) -> str:
    """A number of bytes."""
    value = float(number) if isinstance(number, int | float) else 0.0
    for unit in _UNITS:
        if value < 1024 or unit == _UNITS[-1]:
            return f"{value:.0f} {unit}" if unit == "bytes" else f"{value:.1f} {unit}"
        value /= 1024
    raise AssertionError(value)


def amount(number: object) -> str:
    """A whole number with its thousands apart."""
    return f"{number:,}" if isinstance(number, int) else str(number)


def short(digest: object) -> str:
    """The beginning of a hash, as a fence takes it."""
    return str(digest)[:16]


def spaced(name: object) -> str:
    """``works_at`` as ``works at``."""
    return str(name).replace("_", " ")


def state_words(state: object) -> str:
    """The name of a choice of records."""
    return _STATES.get(str(state), str(state))


def marked(text: object, query: str) -> Markup:
    """A text with the words of a search marked."""
    wanted = _tokens(query)
    parts: list[Markup] = []
    for piece in _WORDS.findall(harmless(text)):
        for matched, run in _runs(piece, wanted) if piece[0].isalnum() else ((False, piece),):
            parts.append(Markup("<mark>{}</mark>").format(run) if matched else escape(run))
    return Markup("").join(parts)


def _tokens(text: str) -> frozenset[str]:
    """What the index makes of a text; nothing of one that it refuses."""
    try:
        phrases = parse_query(text).phrases
    except LimitExceeded:
        return frozenset()
    return frozenset(token for phrase in phrases for token in phrase)


def _runs(word: str, wanted: frozenset[str]) -> Iterator[tuple[bool, str]]:
    """A word, marked or not; of a script that is written without spaces, its characters."""
    tokens = _tokens(word)
    if len(tokens) <= 1:
        yield bool(tokens & wanted), word
        return
    for matched, characters in groupby(word, key=lambda character: bool(_tokens(character) & wanted)):
        yield matched, "".join(characters)


def _parsed(text: str) -> datetime | None:
    try:
        found = datetime.fromisoformat(text)
    except ValueError:
        return None
    return found.replace(tzinfo=found.tzinfo or UTC).astimezone(UTC)

"""Names: how they are compared, and which file and folder a new record gets.

Names of people and things are compared after one normalisation everywhere; file names are made to work on every
system that a vault may be carried to. Renaming a file never changes a record: identity is the ``id`` alone.

Source: decisions.md sections 2 (file names, folders) and 5 (normalisation).
"""

from __future__ import annotations

import hashlib
import re
import unicodedata
from collections.abc import Callable
from typing import Final

from messages.vocabulary import RecordKind

SLUG_MAX_BYTES: Final = 80
CROWDED_FOLDER: Final = 1_000
"""A page folder that holds this many files gets the two-hex level for further ones."""

RESERVED_NAMES: Final = frozenset(
    ["index", "con", "prn", "aux", "nul", "conin$", "conout$"]
    + [f"{device}{number}" for device in ("com", "lpt") for number in "0123456789¹²³"]
)
_NOT_PLAIN: Final = re.compile(r"[^a-z0-9]+")
_ASCII_WORD: Final = re.compile(r"[a-z0-9]+")


def normalise_name(name: str) -> str:
    """The form in which two names are the same name: NFKC, case folded, white space folded and trimmed. Idempotent."""
    if name.isascii():
        return " ".join(name.casefold().split())
    folded = unicodedata.normalize("NFKC", name)
    while True:  # folding may undo NFKC and the other way round (U+0345); two rounds settle all of Unicode
        once_more = unicodedata.normalize("NFKC", folded.casefold())
        if once_more == folded:
            return " ".join(folded.split())
        folded = once_more


def path_key(path: str) -> str:
    """Two paths are the same file on some system when their keys are equal: NFC, without regard to case."""
    if path.isascii():
        return path.lower()
    return unicodedata.normalize("NFC", unicodedata.normalize("NFC", path).casefold())


def slug(title: str) -> str:
    """The title's words in lower case, joined by ``-``, NFC, at most 80 bytes; ``untitled`` when it has no words.

    Never splits a character from its combining marks. Reserved names are not yet taken care of: see :func:`file_name`.
    """
    if title.isascii():
        return _cut("-".join(_ASCII_WORD.findall(title.lower())), SLUG_MAX_BYTES) or "untitled"
    words: list[str] = []
    word = ""
    for character in unicodedata.normalize("NFC", unicodedata.normalize("NFC", title).lower()):
        category = unicodedata.category(character)[0]
        if category in ("L", "N") or (category == "M" and word):
            word += character
        elif word:
            words.append(word)
            word = ""
    if word:
        words.append(word)
    return _cut("-".join(words), SLUG_MAX_BYTES) or "untitled"


def _cut(text: str, max_bytes: int) -> str:
    """``text`` within ``max_bytes`` of UTF-8, cut before a character and its marks, without a trailing ``-``."""
    if len(text.encode("utf-8")) <= max_bytes:
        return text
    cut = text.encode("utf-8")[:max_bytes].decode("utf-8", "ignore")
    end = len(cut)
    while end and unicodedata.category(text[end])[0] == "M":
        end -= 1
    return text[:end].rstrip("-")


def file_name(folder: str, title: str, record_id: str, taken: Callable[[str], bool]) -> str:
    """A path ``<folder>/<slug>.md`` that is not taken, relative to the partition.

    ``taken`` is asked with whole relative paths and must compare :func:`path_key`, not bytes. A reserved name, and any
    collision, gets ``-`` and the first 8 characters of the id; a further collision more of them. Raises ``ValueError``
    when even the whole id does not help: then the id itself is in use.
    """
    base = slug(title)
    mark = _NOT_PLAIN.sub("", record_id.lower()) or hashlib.sha256(record_id.encode()).hexdigest()
    candidates = [] if base in RESERVED_NAMES else [base]
    for characters in (8, 16, 40):
        tail = f"-{mark[:characters]}"
        candidates.append(_cut(base, SLUG_MAX_BYTES - len(tail)) + tail)
    for candidate in dict.fromkeys(candidates):
        path = f"{folder}/{candidate}.md" if folder else f"{candidate}.md"
        if not taken(path):
            return path
    raise ValueError(f"no free file name for record {record_id}")


def hex_level(record_id: str) -> str:
    """The two-hex folder of an id: it spreads records evenly whatever their ids look like."""
    return hashlib.sha256(record_id.encode("utf-8")).hexdigest()[:2]


def record_folder(
    kind: RecordKind, record_id: str, recorded_at: str, *, page_folder: str = "", crowded: bool = False
) -> str:
    """The folder of a new record, relative to the partition.

    Claims and relationships lie under the month of ``recorded_at`` and the id's hex level; pages in ``page_folder``
    (from the ontology), with the hex level once that folder is ``crowded`` (:data:`CROWDED_FOLDER` files).
    """
    if kind == "page":
        return f"{page_folder}/{hex_level(record_id)}" if crowded else page_folder
    return f"{kind}s/{recorded_at[:4]}/{recorded_at[5:7]}/{hex_level(record_id)}"

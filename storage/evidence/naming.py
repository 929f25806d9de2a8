"""The file name under which a source is retained: what is left of its own name that works on every system.

Source: decisions.md section 2 (names reserved on other systems; vaults are portable).
"""

from __future__ import annotations

import unicodedata
from typing import Final

from storage.records.names import RESERVED_NAMES

NAME_MAX_BYTES: Final = 120
EXTENSION_MAX_BYTES: Final = 16
_PLAIN: Final = frozenset("-_.+()")
_DEVICES: Final = RESERVED_NAMES - {"index"}
_UNNAMED: Final = "source"


def retained_name(filename: str) -> str:
    """A safe name for the folder of one request: NFC, at most 120 bytes, the extension kept, case kept.

    Letters, marks and digits of any script, and ``-_.+()``, stay; every run of anything else becomes one ``-``. Never
    empty, hidden, a folder's own name, a device's name of another system, or ending in a dot. Two file names may give
    one name: each request has a folder of its own.
    """
    stem, dot, written = filename.rpartition(".")
    extension = _plain(written)
    if not stem or not extension or len(extension.encode()) > EXTENSION_MAX_BYTES:
        stem, dot, extension = filename, "", ""
    room = NAME_MAX_BYTES - len(f"{dot}{extension}".encode())
    stem = _cut(_plain(stem), room - len(_UNNAMED) - 1).strip("-.") or _UNNAMED
    if stem.partition(".")[0].casefold() in _DEVICES:
        stem = f"{_UNNAMED}-{stem}"
    return f"{stem}{dot}{extension}"


def _plain(filename: str) -> str:
    kept = ""
    for character in unicodedata.normalize("NFC", filename):
        category = unicodedata.category(character)[0]
        if category in "LN" or character in _PLAIN or (category == "M" and kept):
            kept += character
        elif not kept.endswith("-"):
            kept += "-"
    return unicodedata.normalize("NFC", kept).strip("-.")


def _cut(text: str, max_bytes: int) -> str:
    """``text`` within ``max_bytes`` of UTF-8, cut before a character and its marks."""
    if len(text.encode()) <= max_bytes:
        return text
    cut = text.encode()[:max_bytes].decode("utf-8", "ignore")
    end = len(cut)
    while end and unicodedata.category(text[end])[0] == "M":
        end -= 1
    return text[:end]

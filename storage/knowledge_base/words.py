"""The whole words of a text, as the knowledge base compares them. Pure, linear; any thread.

Source: system-memory-contract.md section 7 (whole words, case ignored).
"""

from __future__ import annotations

import re
import unicodedata
from typing import Final

_ASCII_WORD: Final = re.compile(r"[^\W_]+")


def words(text: str) -> frozenset[str]:
    """The distinct words of a text, case and composition ignored: runs of letters and digits with their marks."""
    folded = unicodedata.normalize("NFC", unicodedata.normalize("NFC", text).casefold())
    if folded.isascii():
        return frozenset(_ASCII_WORD.findall(folded))
    kept: list[str] = []
    inside = False
    for character in folded:
        # A vowel sign or an accent without a composed form belongs to the letter before it.
        inside = character.isalnum() or (inside and unicodedata.category(character)[0] == "M")
        kept.append(character if inside else " ")
    return frozenset("".join(kept).split())

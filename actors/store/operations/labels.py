"""Labels: titles and aliases as they may stand in an agent's prompt, where a record's text must not look like orders.

A title that reads like an instruction or contains markup is never shown; its record's id stands for it. The same rule
holds for the standing index and the recall gate, and neither has pages of a source or an artifact. It is a filter on
labels, no proof: what a label says stays evidence.

Pure functions; any thread. Source: memory-provider.md (Knowledge index), decisions.md section 5 ("Reads like an
instruction or contains markup", Standing index).
"""

from __future__ import annotations

import re
import unicodedata
from typing import Final

from messages.text import clip_utf16, is_one_line, one_line, utf16_length
from storage.ontology import Ontology

LABEL_UNITS: Final = 80
"""A label's most UTF-16 code units."""
_HIDDEN_TYPES: Final = ("source", "artifact")

# Nobody sees them, and a model reads them: zero-width and bidi marks, tags, fillers, variation selectors.
_UNSEEN: Final = re.compile(
    "[\u00ad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b-\u200f\u202a-\u202e\u2060-\u206f\u3164"
    "\ufe00-\ufe0f\ufeff\uffa0\ufff0-\ufffb\U0001bca0-\U0001bca3\U0001d173-\U0001d17a\U000e0000-\U000e0fff]"
)
# Persian words and joined emoji need these, one or two at a time; a longer run hides something.
_JOINING: Final = "\u200c\u200d\ufe0f"
_JOINED_TOO_LONG: Final = re.compile(f"([{_JOINING}]{{2}})[{_JOINING}]+")

_MARKUP: Final = re.compile(r"[<>`\[\]{}|\\]")
_LEADING: Final = ("#", ">", "-", "*")
_ADDRESS: Final = re.compile(
    r"[a-z][a-z0-9+.-]*://|\bwww\.[^\s.]|\b(?:mailto|javascript|data|file):[^\s]", re.IGNORECASE
)
# Quotes, brackets and dots before the first word do not change how it reads.
_BEFORE_WORDS: Final = re.compile(r"\A[\W_]+")
_INSTRUCTION: Final = re.compile(
    r"(?:ignore|disregard|forget|override|you\s+are|you\s+must|act\s+as|do\s+not|always|never)(?![^\W_])"
    r"|(?:system|assistant|user|developer)\s*:"
)


def hidden_types(ontology: Ontology) -> frozenset[str]:
    """The page types that no label is shown of, with those below them, in every spelling."""
    within = (kind for name in _HIDDEN_TYPES for kind in ontology.types_within(name))
    return frozenset(spelling for kind in within for spelling in ontology.spellings(kind))


def label_is_safe(title: str) -> bool:
    """Whether a title may be shown: it neither reads like an instruction nor contains markup.

    Judged after NFKC, without zero-width, bidi and combining marks and without regard to case. A beginning is whole
    words: ``Nevertheless`` is none.
    """
    # Nothing in ASCII is folded or unseen, and an index has a hundred titles.
    text = title if title.isascii() else _as_read(title)
    if not is_one_line(text) or _MARKUP.search(text) or _ADDRESS.search(text):
        return False
    text = text.strip()
    return not text.startswith(_LEADING) and _INSTRUCTION.match(_BEFORE_WORDS.sub("", text.casefold())) is None


def _as_read(title: str) -> str:
    """The title after NFKC, without what cannot be seen and without marks that are drawn over another character."""
    text = _UNSEEN.sub("", unicodedata.normalize("NFKC", _UNSEEN.sub("", title)))
    return "".join(char for char in text if unicodedata.category(char) not in ("Mn", "Me"))


def label_of(title: str) -> str:
    """A title on one line, at most :data:`LABEL_UNITS` units: cut at a word where it can be, and ``…`` says so.

    What cannot be seen is left out, whether or not the title is safe.
    """
    line = one_line(seen_text(title))
    if utf16_length(line) <= LABEL_UNITS:
        return line
    cut = clip_utf16(line, LABEL_UNITS - 1)
    head, space, _ = cut.rpartition(" ")
    return f"{head if space and utf16_length(head) * 2 >= LABEL_UNITS else cut}…"


def seen_text(text: str) -> str:
    """``text`` without what nobody sees and a model reads: zero-width and bidi marks, tags, fillers.

    A joiner stays where it joins: one or two at a time.
    """
    if text.isascii():
        return text
    shown = _UNSEEN.sub(lambda found: found[0] if found[0] in _JOINING else "", text)
    return _JOINED_TOO_LONG.sub(r"\1", shown)

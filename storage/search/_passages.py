"""The passages of a page that share most with a message, for the recall gate to quote. No file, any thread.

A passage is what blank lines separate. A word counts the more the fewer of the page's passages hold it, and irregular
forms of a word are one word, as among candidates.

Source: memory-provider.md (Recall gate, step 1).
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from messages.text import clip_utf16, utf16_length
from storage.search._candidates import Message, parse_message
from storage.search._excerpt import _anchors, _beginning, _cut, spaced
from storage.search._fold import fold, tokens
from storage.search._lemmas import forms_of, lemma
from storage.search._query import ParsedQuery, Phrase
from storage.search._rarity import rarity

EXAMINED_MAX_CHARS: Final = 512 * 1024
"""So much of a body is looked through."""
MESSAGE_MAX_CHARS: Final = 32 * 1024
"""So much of a message is looked at for its words: half from its beginning, half from its end."""
PASSAGE_GAP: Final = "\n\n"

_CUT_MIN_CHARS: Final = 80
"""A passage that would have to be cut shorter is left out."""
_BLANK_LINES: Final = re.compile(r"\n(?:[^\S\n]*\n)+")
_ANY_BLANK_LINES: Final = re.compile(r"\r?\n(?:[^\S\n]*\n)+")


def clip_message(text: str) -> str:
    """The part of a message whose words count."""
    if len(text) <= MESSAGE_MAX_CHARS:
        return text
    half = MESSAGE_MAX_CHARS // 2
    return f"{text[:half]}\n{text[-half:]}"


@dataclass(frozen=True, slots=True)
class MessageWords:
    """The content words of one message, for looking into any number of pages.

    ``query`` finds a page that shares a word with it: the words as they were written. ``lemmas`` are the phrases as
    they are compared in passages, and ``tokens`` every token of theirs in every form, as UTF-8, with its lemma.
    """

    message: Message
    query: ParsedQuery
    lemmas: frozenset[Phrase]
    tokens: Mapping[bytes, str]


def message_words(text: str) -> MessageWords:
    """The content words of a message; a page with any of them as it was written shares a word with it."""
    message = parse_message(text)
    written = dict.fromkeys(form for word in message.words for form in word.written)
    lemmas = frozenset(word.indexed for word in message.words)
    forms = {_utf8(form): base for phrase in lemmas for base in phrase for form in forms_of(base)}
    return MessageWords(message, ParsedQuery("any", tuple(written), (), ()), lemmas, forms)


def passages(body: str, words: MessageWords, *, most: int, chars: int, total: int) -> Sequence[str]:
    """At most ``most`` passages of ``body``, the best matching first: none that holds no word of ``words``, unless
    no passage holds one; then the first ones.

    Each has at most ``chars`` UTF-16 units, and all of them, joined by :data:`PASSAGE_GAP`, at most ``total``. A longer
    passage is cut to the window around its matching words; no surrogate pair is split.
    """
    examined = body[:EXAMINED_MAX_CHARS]
    # A pattern that begins with a character is looked for many times faster than one that may begin with two.
    blank_lines = _ANY_BLANK_LINES if "\r" in examined else _BLANK_LINES
    found = [block for part in blank_lines.split(examined) if (block := part.strip("\r\n").rstrip())]
    held = [_held(block, words) for block in found]
    weight = {phrase: rarity(sum(phrase in one for one in held), len(found)) for one in held for phrase in one}
    scores = [sum(weight[phrase] for phrase in one) for one in held]
    ranked = sorted(range(len(found)), key=lambda place: (-scores[place], place))
    kept: list[str] = []
    used = 0
    for place in [one for one in ranked if scores[one]] or ranked:
        gap = len(PASSAGE_GAP) if kept else 0
        room = min(chars, total - used - gap)
        if len(kept) == most or room <= 0:
            break
        passage = found[place]
        if utf16_length(passage) > room:
            if kept and room < _CUT_MIN_CHARS:
                continue
            passage = window(passage, words, room)
        kept.append(passage)
        used += gap + utf16_length(passage)
    return kept


def window(passage: str, words: MessageWords, chars: int) -> str:
    """The part of a passage that holds most of the words, on one line, in at most ``chars`` UTF-16 units."""
    parts = passage.split()
    text = " ".join(parts)
    if utf16_length(text) <= chars:
        return text
    forms: dict[Phrase, None] = {(token,): None for token in tokens(passage) if (lemma(token),) in words.lemmas}
    forms |= dict.fromkeys(phrase for phrase in words.query.phrases if len(phrase) > 1)
    anchors = _anchors(parts, text, ParsedQuery("any", tuple(forms), (), ()))
    return _cut(text, _beginning(text, anchors, chars), chars, more=False)


def beginning(body: str, chars: int) -> str:
    """The start of a body in at most ``chars`` UTF-16 units, ended at a word where one ends in the second half."""
    head = body[: 2 * chars].strip("\r\n")
    if utf16_length(head) <= chars and len(body) <= 2 * chars:
        return head.rstrip()
    cut = clip_utf16(head, chars - 1)
    at = max(cut.rfind(" "), cut.rfind("\n"))
    return f"{(cut[:at] if at > len(cut) // 2 else cut).rstrip()}…"


def _held(text: str, words: MessageWords) -> Collection[Phrase]:
    """Which of the words' lemmas stand in a text."""
    found = spaced(_utf8(fold(text).lower())).split()
    there = {words.tokens[token] for token in words.tokens.keys() & found}
    # In the order of the message: sums in another order would differ in their last bit.
    held = [word.indexed for word in words.message.words if there.issuperset(word.indexed)] if there else []
    if all(len(phrase) == 1 for phrase in held):
        return held
    joined = f" {' '.join(map(lemma, tokens(text)))} "
    return [phrase for phrase in held if len(phrase) == 1 or f" {' '.join(phrase)} " in joined]


def _utf8(text: str) -> bytes:
    return text.encode("utf-8", "surrogatepass")

"""Which page a remembered claim is about: named by the caller, or inferred from what was said.

Guaranteed: only an existing page is ever named, and inference names one only when nothing else in the same words
could be meant. A claim left unlinked can be linked later; one linked wrongly misleads. Pure functions over the names
that the caller's partition holds.

Source: tools.md (Remembering claims, steps 1 and 2), decisions.md section 5 (subject inference).
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Final, Literal, Protocol

from storage.records import normalise_name
from storage.search import is_unspaced

ROLE_WORDS: Final = frozenset(["user", "assistant", "team", "client", "customer", "boss", "manager", "agent", "bot"])
NAME_MAX_WORDS: Final = 16
"""Longer names are found only as a whole hint."""
UNSPACED_NAME_MAX_CHARS: Final = 20
UNSPACED_NAME_MIN_CHARS: Final = 2

_HINT_PARTS: Final = re.compile("[,;，；、]")
_SENTENCE_END: Final = re.compile(r"[.!?…]+[\"'”’)\]]*(?=\s|$)|[。！？｡]+|[\n\r]+")
_WHITE_SPACE: Final = re.compile(r"\s+")
_ASCII_TOKEN: Final = re.compile(r"([0-9A-Za-z_]+)|[^\s]")
# ``Node`` is not named in ``Node.js``, nor ``C`` in ``C++``: these make one name of what they touch.
_JOINERS: Final = frozenset(".@-‐‑&")
_ENDINGS: Final = frozenset("+#")


@dataclass(frozen=True, slots=True)
class NamedPage:
    """An active page that bears a name, merge redirects followed. ``entity``: its type is or descends from a person,
    company, concept, project or deal; ``person``: from a person."""

    page_id: str
    entity: bool
    person: bool


class NameIndex(Protocol):
    """The names of one partition's active pages."""

    def find(self, names: Collection[str]) -> Mapping[str, Sequence[NamedPage]]:
        """The pages whose title or an alias is one of ``names``, all in lookup's normalisation; others are left out."""
        ...


@dataclass(frozen=True, slots=True)
class Subject:
    """What became of a claim's subject; ``page_id`` is set exactly when it was found."""

    state: Literal["found", "ambiguous", "missing"]
    page_id: str | None = None


MISSING: Final = Subject("missing")
AMBIGUOUS: Final = Subject("ambiguous")


@dataclass(frozen=True, slots=True)
class _Token:
    """A word, one character of an unspaced script, or one other character; places are in the text as it is read."""

    start: int
    end: int
    kind: Literal["word", "unspaced", "other"]
    opens: bool
    capital: bool


@dataclass(frozen=True, slots=True)
class _Mention:
    """The tokens ``first`` up to ``last`` are a name of these pages."""

    first: int
    last: int
    pages: tuple[NamedPage, ...]


def resolve_subject(subject: str, names: NameIndex) -> Subject:
    """The page that bears exactly this title or alias. Ids are the caller's to look up first."""
    name = normalise_name(subject)
    return _only(names.find([name]).get(name, ()))


def infer_subject(about: str | None, text: str, names: NameIndex) -> Subject:
    """The page that the hint, or else the text, is about.

    A hint or one of its parts may be a page's exact name; otherwise the hint, then the text, must name exactly one
    entity page while no other name competes. A hint that names something decides, even if not clearly.
    """
    if about is not None:
        exact = _exact_part(about, names)
        found = exact if exact is not MISSING else _named_in(about, names, sentences=False)
        if found is not MISSING:
            return found
    return _named_in(text, names, sentences=True)


def _exact_part(about: str, names: NameIndex) -> Subject:
    whole = normalise_name(about)
    parts = dict.fromkeys([whole, *(normalise_name(part) for part in _HINT_PARTS.split(about))])
    found = {
        name: [page for page in pages if not (page.person and _is_bare(list(_tokens(name))))]
        for name, pages in names.find([part for part in parts if part and part not in ROLE_WORDS]).items()
    }
    if found.get(whole):
        return _only(found[whole])
    return _only([page for pages in found.values() for page in pages])


def _named_in(text: str, names: NameIndex, *, sentences: bool) -> Subject:
    """The one entity page named in ``text``. In sentences the first word is no name by its capital or place alone."""
    readable = _WHITE_SPACE.sub(lambda run: "\n" if "\n" in run[0] else " ", unicodedata.normalize("NFKC", text))
    tokens = list(_tokens(readable))
    mentions = _mentions(readable, tokens, names)
    if sentences:
        mentions = [one for one in mentions if not (one.last - one.first == 1 and tokens[one.first].opens)]
    named = {page.page_id for mention in mentions for page in mention.pages}
    subjects = {
        page.page_id
        for mention in mentions
        for page in mention.pages
        if page.entity and not (page.person and _is_bare(tokens[mention.first : mention.last]))
    }
    if not subjects:
        return MISSING
    if len(named) > 1 or _unknown_name(tokens, mentions):
        return AMBIGUOUS
    return Subject("found", subjects.pop())


def _only(pages: Sequence[NamedPage]) -> Subject:
    ids = {page.page_id for page in pages}
    if not ids:
        return MISSING
    return Subject("found", ids.pop()) if len(ids) == 1 else AMBIGUOUS


def _tokens(text: str) -> Iterator[_Token]:
    """The tokens of ``text``, white space left out."""
    ends = [match.end() for match in _SENTENCE_END.finditer(text)]
    return _ascii_tokens(text, ends) if text.isascii() else _unicode_tokens(text, ends)


def _ascii_tokens(text: str, ends: Sequence[int]) -> Iterator[_Token]:
    """The same as for any text, without a look at each character."""
    opens = True
    coming = iter(ends)
    end_of_sentence = next(coming, None)
    for match in _ASCII_TOKEN.finditer(text):
        start, end = match.span()
        while end_of_sentence is not None and end_of_sentence <= start:
            end_of_sentence = next(coming, None)
            opens = True
        word = match[1]
        if word is None:
            yield _Token(start, end, "other", False, False)
            continue
        capital = word[0].isupper() and word != "I" and word.casefold() not in ROLE_WORDS
        yield _Token(start, end, "word", opens, capital)
        opens = False


def _unicode_tokens(text: str, ends: list[int]) -> Iterator[_Token]:
    opens = True
    start = 0
    while start < len(text):
        while ends and ends[0] <= start:
            ends.pop(0)
            opens = True
        character = text[start]
        end = start + 1
        if character.isspace():
            start = end
            continue
        while end < len(text) and unicodedata.category(text[end])[0] == "M":
            end += 1
        kind: Literal["word", "unspaced", "other"] = "other"
        if is_unspaced(text[start:end]):
            kind = "unspaced"
        elif _in_word(character):
            kind = "word"
            while end < len(text) and _in_word(text[end]) and not is_unspaced(text[end]):
                end += 1
        word = text[start:end]
        capital = (character.isupper() or character.istitle()) and word != "I" and word.casefold() not in ROLE_WORDS
        yield _Token(start, end, kind, opens and kind != "other", capital)
        if kind != "other":
            opens = False
        start = end


def _mentions(text: str, tokens: Sequence[_Token], names: NameIndex) -> list[_Mention]:
    """The names in ``text``, longest first, none overlapping another."""
    folded = text.casefold().replace("\n", " ")
    if len(folded) != len(text) or not (folded.isascii() or unicodedata.is_normalized("NFKC", folded)):
        folded = ""  # places in it are not places in the text
    starts, ends = [token.start for token in tokens], [token.end for token in tokens]
    spans: dict[str, list[tuple[int, int]]] = {}
    for first, last in _spans(text, tokens):
        begin, end = starts[first], ends[last - 1]
        name = folded[begin:end] if folded else normalise_name(text[begin:end])
        spans.setdefault(name, []).append((first, last))
    found = names.find(spans.keys() - ROLE_WORDS)
    every = [
        _Mention(first, last, tuple(pages)) for name, pages in found.items() if pages for first, last in spans[name]
    ]
    every.sort(key=lambda one: (tokens[one.first].start - tokens[one.last - 1].end, one.first))
    taken: set[int] = set()
    kept: list[_Mention] = []
    for mention in every:
        if taken.isdisjoint(range(mention.first, mention.last)):
            taken.update(range(mention.first, mention.last))
            kept.append(mention)
    return kept


def _spans(text: str, tokens: Sequence[_Token]) -> Iterator[tuple[int, int]]:
    """Runs of tokens that could be a name: whole words, or at least two characters of an unspaced script."""
    joined = [_joined(text, left, right) for left, right in pairwise(tokens)]
    whole_after = [*(not join for join in joined), True]
    counted = [(token.kind == "word", token.kind == "unspaced") for token in tokens]
    for first in range(len(tokens)):
        if first and joined[first - 1]:
            continue
        words = characters = 0
        for last in range(first, min(first + 3 * NAME_MAX_WORDS, len(tokens))):
            word, character = counted[last]
            words += word
            characters += character
            if words > NAME_MAX_WORDS or characters > UNSPACED_NAME_MAX_CHARS:
                break
            if whole_after[last] and (words or characters >= UNSPACED_NAME_MIN_CHARS):
                yield first, last + 1


def _joined(text: str, left: _Token, right: _Token) -> bool:
    """Whether no name begins or ends between two tokens, since they are written as one."""
    if left.end != right.start:
        return False
    if right.kind == "other":
        character = text[right.start]
        goes_on = right.end < len(text) and _in_word(text[right.end])
        return left.kind != "other" and (character in _ENDINGS or (character in _JOINERS and goes_on))
    if left.kind == "other":
        return text[left.start] in _JOINERS and left.start > 0 and _in_word(text[left.start - 1])
    return False


def _unknown_name(tokens: Sequence[_Token], mentions: Sequence[_Mention]) -> bool:
    """Whether two or more capitalised words stand together outside the mentions, not at the start of a sentence."""
    mentioned = {index for mention in mentions for index in range(mention.first, mention.last)}
    run: list[_Token] = []
    for index, token in enumerate([*tokens, None]):
        belongs = (
            token is not None
            and index not in mentioned
            and token.kind == "word"
            and token.capital
            and (not run or (token.start - run[-1].end <= 1 and not token.opens))
        )
        if belongs and token is not None:
            run.append(token)
            continue
        if len(run) > 1 and not run[0].opens:
            return True
        run = []
    return False


def _is_bare(name: Sequence[_Token]) -> bool:
    """Whether a person's name is one word, such as a first name."""
    return len(name) == 1 and name[0].kind == "word"


def _in_word(character: str) -> bool:
    return unicodedata.category(character)[0] in "LNM" or character == "_"

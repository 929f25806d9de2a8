"""What a person typed, as words for the index. No character of it is ever run as query syntax.

A written word is a phrase of its tokens, so ``v2.8.3`` asks for three tokens in a row and ``日本語`` for three
characters in a row. ``all`` wants every word, ``any`` at least one, ``phrase`` all of them adjacent in one field.

Source: tools.md (Search and lookup), knowledge-more-facts.md section 6, SEARCH.md sections 1 and 6.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import groupby, pairwise
from typing import Final, Literal, TypeAlias

from messages.errors import LimitExceeded
from messages.vocabulary import GREP_QUERY_MAX_CHARS, GREP_QUERY_MAX_WORDS
from storage.search import _symbols
from storage.search._fold import is_unspaced, tokens, word_count

Mode: TypeAlias = Literal["all", "any", "phrase"]
Phrase: TypeAlias = tuple[str, ...]
MODES: Final[tuple[Mode, ...]] = ("all", "any", "phrase")


@dataclass(frozen=True, slots=True)
class ParsedQuery:
    """The words of a query. ``phrases`` are what the index is asked for, each once; none means nothing matches.

    ``literals`` are its symbol words; ``plain`` are the phrases that come from words without one.
    """

    mode: Mode
    phrases: tuple[Phrase, ...]
    plain: tuple[Phrase, ...]
    literals: tuple[_symbols.Literal, ...]

    def found_in(self, *fields: str) -> bool:
        """Whether the index would find a document of these texts, each a title, an alias or a body of its own."""
        if not self.phrases:
            return False
        texts = [f" {' '.join(tokens(field))} " for field in fields]
        held = (any(f" {' '.join(phrase)} " in text for text in texts) for phrase in self.phrases)
        return any(held) if self.mode == "any" else all(held)

    @property
    def match(self) -> str:
        """The FTS5 expression; only for a query that has phrases."""
        return expression(self.phrases, " OR " if self.mode == "any" else " AND ")


def parse_query(text: str, mode: Mode = "all") -> ParsedQuery:
    """The words of ``text``. Raises ``LimitExceeded`` above 500 UTF-16 units or 64 words as a person counts them."""
    if len(text) > GREP_QUERY_MAX_CHARS or len(text.encode("utf-16-le", "surrogatepass")) > 2 * GREP_QUERY_MAX_CHARS:
        raise LimitExceeded(
            f"The query is longer than {GREP_QUERY_MAX_CHARS} characters; search for its distinctive words.",
            field="query",
            limit=GREP_QUERY_MAX_CHARS,
        )
    every: dict[Phrase, None] = {}
    plain: dict[Phrase, None] = {}
    literals: dict[_symbols.Literal, None] = {}
    whole: list[str] = []
    for word in text.split():
        phrase = tuple(tokens(word))
        if not phrase:
            continue
        whole += phrase
        wanted = dict.fromkeys(alternatives(phrase)) if mode == "any" else {phrase: None}
        every |= wanted
        if symbols := _symbols.literals(word):
            literals |= dict.fromkeys(symbols)
        else:
            plain |= wanted
    # A person's words are never more than the tokens they are cut into.
    if len(whole) > GREP_QUERY_MAX_WORDS and (count := word_count(text)) > GREP_QUERY_MAX_WORDS:
        raise LimitExceeded(
            f"The query has {count} words, at most {GREP_QUERY_MAX_WORDS} are searched; name the distinctive ones.",
            field="query",
            limit=GREP_QUERY_MAX_WORDS,
            words=count,
        )
    if mode == "phrase" and whole:
        every = {tuple(whole): None}
    return ParsedQuery(mode, tuple(every), tuple(plain), tuple(literals))


def expression(phrases: Iterable[Phrase], operator: Literal[" OR ", " AND "]) -> str:
    """Quoted phrases joined for FTS5. Tokens hold letters and digits alone, so no quote can end early."""
    return operator.join(f'"{" ".join(phrase)}"' for phrase in phrases)


def alternatives(phrase: Phrase) -> Iterator[Phrase]:
    """A word cut at the borders of unspaced scripts, and those runs into two-character phrases."""
    for unspaced, group in groupby(phrase, key=is_unspaced):
        run = tuple(group)
        if unspaced and len(run) > 2:
            yield from pairwise(run)
        else:
            yield run

"""How much of a message stands in each of a few documents. No file, any thread.

Words are those by which candidates are found: stop words left out, irregular forms brought to one, endings cut by
FTS5's ``porter``. Source: SEARCH.md section 5 (coverage).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from storage.search._candidates import parse_message
from storage.search._fold import tokens
from storage.search._rarity import rarity
from storage.search._stems import stems_of


def coverage(message: str, documents: Sequence[str]) -> list[float]:
    """The share of the message's content words that each document holds, 0 to 1, in the order of ``documents``.

    A word weighs the more the fewer of the documents hold it. A message without a word is in none.
    """
    phrases = {_joined(word.indexed) for word in parse_message(message).words}
    if not phrases:
        return [0.0] * len(documents)
    texts = [_joined(tokens(each)) for each in documents]
    held = [{phrase for phrase in phrases if phrase in text} for text in texts]
    weights = {phrase: rarity(sum(phrase in each for each in held), len(documents)) for phrase in sorted(phrases)}
    whole = sum(weights.values())
    return [sum(weights[phrase] for phrase in sorted(each)) / whole for each in held]


def _joined(words: Iterable[str]) -> str:
    """Stems, each between two spaces, so that a phrase is a part of a text."""
    return f" {' '.join(stems_of(words))} "

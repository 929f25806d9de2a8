"""Keyword search over one partition: an FTS5 index in a file of its own, and excerpts from stored text.

What is found: case, marks and width make no difference; punctuation separates words; unspaced scripts are found by
any run of their characters; no stemming, no prefixes, no query syntax. What is promised: filters apply before
ranking and counting, the order is total, and an index that cannot answer raises ``IndexUnavailable`` instead of
finding nothing. The package keeps no text but the index's own tokens.

Source: tools.md (Search and lookup), knowledge-more-facts.md section 6, decisions.md sections 5 and 8, SEARCH.md.
"""

from storage.search._candidates import POOL, Candidate, Message, parse_message
from storage.search._coverage import coverage
from storage.search._documents import (
    IndexChange,
    IndexDocument,
    LifecycleFilter,
    SearchFilters,
    SearchHit,
    SearchPage,
    SearchQuery,
    TimeField,
)
from storage.search._excerpt import EXCERPT_MAX_CHARS, LOCATED_MAX_BYTES, excerpt
from storage.search._file import FAULT_POINTS, Rebuilt
from storage.search._fold import is_unspaced
from storage.search._index import CandidatePage, SearchIndex
from storage.search._keywords import keywords
from storage.search._lemmas import STOP_WORDS
from storage.search._passages import (
    PASSAGE_GAP,
    MessageWords,
    beginning,
    clip_message,
    message_words,
    passages,
)
from storage.search._query import MODES, Mode, ParsedQuery, parse_query
from storage.search._rarity import rarity
from storage.search._stems import stems

__all__ = [
    "EXCERPT_MAX_CHARS",
    "FAULT_POINTS",
    "LOCATED_MAX_BYTES",
    "MODES",
    "PASSAGE_GAP",
    "POOL",
    "STOP_WORDS",
    "Candidate",
    "CandidatePage",
    "IndexChange",
    "IndexDocument",
    "LifecycleFilter",
    "Message",
    "MessageWords",
    "Mode",
    "ParsedQuery",
    "Rebuilt",
    "SearchFilters",
    "SearchHit",
    "SearchIndex",
    "SearchPage",
    "SearchQuery",
    "TimeField",
    "beginning",
    "clip_message",
    "coverage",
    "excerpt",
    "is_unspaced",
    "keywords",
    "message_words",
    "parse_message",
    "parse_query",
    "passages",
    "rarity",
    "stems",
]

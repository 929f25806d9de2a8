"""The knowledge base: what people have reviewed and decided, compiled into one file and found by its words.

:mod:`.stances` reads the reviewed positions, :mod:`.documents` a folder of Markdown, :mod:`.corpus` compiles both into
``kb.json`` and reads it back, :mod:`.retrieval` ranks its entries for a query, :mod:`.note` puts the best into a note.
Reading and computing alone: no actor, no state; any thread.

Source: system-memory-boundary.md, system-memory-contract.md sections 6, 7 and 11.
"""

from storage.knowledge_base.corpus import Compiled, Corpus, compile_corpus, load_corpus
from storage.knowledge_base.documents import Doc
from storage.knowledge_base.note import attached_note
from storage.knowledge_base.retrieval import Hit, Hits, Unsupported, search
from storage.knowledge_base.stances import Stance

__all__ = [
    "Compiled",
    "Corpus",
    "Doc",
    "Hit",
    "Hits",
    "Stance",
    "Unsupported",
    "attached_note",
    "compile_corpus",
    "load_corpus",
    "search",
]

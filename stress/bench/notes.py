"""A vault of record files as agents and people leave them, the same for a seed and a size, kept in a cache folder.

Three quarters are claims that cite a retained excerpt, the rest pages of four types with aliases, tags and bodies of a
few hundred words. Words follow a power law, as in any text, so that a search has common and rare ones.
"""

from __future__ import annotations

import itertools
import os
import random
import shutil
import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from storage.layout import excerpt_path
from storage.records import EvidenceCitation, Record, content_hash, format_instant, record_folder, render_new, slug

FORMAT: Final = 1
_PAGES: Final = (("person", "people"), ("project", "projects"), ("company", "companies"), ("note", "notes"))
_FIRST_MS: Final = 1_735_689_600_000  # 2025-01-01
_SPAN_MS: Final = 500 * 86_400_000
NEWEST_MS: Final = _FIRST_MS + _SPAN_MS
"""When the newest record of a vault was recorded."""
_CLAIMS_PER_EXCERPT: Final = 8
_VOCABULARY: Final = 6_000


@dataclass(frozen=True, slots=True)
class Note:
    """One file, relative to the partition."""

    path: str
    data: bytes


class Words:
    """A seeded vocabulary in which the n-th word is used in proportion to 1/n."""

    def __init__(self, seed: int) -> None:
        rng = random.Random(f"words/{seed}")
        syllables = [a + b for a in "bdfgklmnprstvz" for b in ("a", "e", "i", "o", "u", "an", "er", "ol", "in", "es")]
        found: dict[str, None] = {}
        while len(found) < _VOCABULARY:
            found["".join(rng.choices(syllables, k=rng.choice((2, 2, 3, 3, 4))))] = None
        self.words = list(found)
        self._weights = list(itertools.accumulate(1 / rank for rank in range(8, _VOCABULARY + 8)))

    def some(self, rng: random.Random, count: int) -> list[str]:
        return rng.choices(self.words, cum_weights=self._weights, k=count)

    def sentence(self, rng: random.Random) -> str:
        words = self.some(rng, rng.randint(6, 18))
        return f"{words[0].capitalize()} {' '.join(words[1:])}."

    def around(self, rank: int, count: int) -> list[str]:
        """Words of about one frequency: for searches with a known share of hits."""
        return self.words[rank : rank + count]


def generate(seed: int, size: int) -> Iterator[Note]:
    """``size`` record files and the excerpts they cite, in an order of no meaning. A page of a number is the same at
    every size, so that what is done to it can be compared."""
    rng = random.Random(f"notes/{seed}/{size}")
    words = Words(seed)
    pages = max(1, size // 4)
    page_ids: list[str] = []
    for number in range(pages):
        of_page = random.Random(f"page/{seed}/{number}")
        page_ids.append(_identity(of_page))
        yield _page(of_page, words, page_ids[number], number)
    for start in range(0, size - pages, _CLAIMS_PER_EXCERPT):
        count = min(_CLAIMS_PER_EXCERPT, size - pages - start)
        yield from _claims(rng, words, page_ids, count)


def title_of_page(number: int) -> str:
    """The title of the n-th page of every vault: what lookups ask for."""
    return f"Page {number} of the bench"


def cached_notes(cache: Path, seed: int, size: int, progress: Callable[[int], None] = lambda _: None) -> Path:
    """The folder of a vault's notes, made on first use; it is only ever read."""
    folder = cache / f"notes-{FORMAT}-{seed}-{size}"
    if folder.is_dir():
        return folder
    making = cache / f"{folder.name}.{os.getpid()}.part"
    shutil.rmtree(making, ignore_errors=True)
    made: set[str] = set()
    for number, note in enumerate(generate(seed, size)):
        parent, _, _ = note.path.rpartition("/")
        if parent not in made:
            made.add(parent)
            os.makedirs(making / parent, exist_ok=True)
        with open(making / note.path, "xb") as file:
            file.write(note.data)
        if number % 500 == 0:
            progress(number)
    os.rename(making, folder)
    return folder


def copy_notes(source: Path, target: Path) -> None:
    """The notes of a cached vault in the (new or empty) partition folder of a store."""
    shutil.copytree(source, target, dirs_exist_ok=True, copy_function=shutil.copyfile)


def _identity(rng: random.Random) -> str:
    return str(uuid.UUID(int=rng.getrandbits(128), version=4))


def _instant(rng: random.Random) -> str:
    return format_instant(_FIRST_MS + rng.randrange(_SPAN_MS))


def _page(rng: random.Random, words: Words, page_id: str, number: int) -> Note:
    page_type, folder = _PAGES[number % len(_PAGES)]
    title = title_of_page(number)
    paragraphs = [" ".join(words.sentence(rng) for _ in range(rng.randint(2, 6))) for _ in range(rng.randint(1, 6))]
    at = _instant(rng)
    record = Record(
        id=page_id,
        kind="page",
        title=title,
        recorded_at=at,
        updated_at=at,
        type=page_type,
        aliases=tuple(f"{word} {number}" for word in words.some(rng, rng.randrange(3))),
        tags=tuple(sorted(set(words.some(rng, rng.randrange(4))))),
        body=f"# {title}\n\n" + "\n\n".join(paragraphs) + "\n",
    )
    place = record_folder("page", page_id, at, page_folder=folder, crowded=True)
    return Note(f"{place}/{slug(title)}.md", render_new(record))


def _claims(rng: random.Random, words: Words, page_ids: list[str], count: int) -> Iterator[Note]:
    request = _identity(rng)
    texts = [" ".join(words.sentence(rng) for _ in range(rng.choice((1, 1, 2, 3)))) for _ in range(count)]
    excerpt = "".join(f"User: {text}\n" for text in texts).encode()
    path = excerpt_path(request)
    yield Note(path, excerpt)
    for line, text in enumerate(texts, start=1):
        claim_id, at = _identity(rng), _instant(rng)
        record = Record(
            id=claim_id,
            kind="claim",
            title=text.partition(".")[0][:80],
            recorded_at=at,
            updated_at=at,
            claim_kind="fact",
            assertion_origin="source",
            attribution="user in a session",
            entities=(rng.choice(page_ids),),
            evidence=(
                EvidenceCitation(
                    path=path,
                    sha256=content_hash(excerpt),
                    attribution="user in a session",
                    filename="excerpt.txt",
                    media_type="text/plain",
                    size=len(excerpt),
                    start_line=line,
                    end_line=line,
                ),
            ),
            body=text,
        )
        yield Note(f"{record_folder('claim', claim_id, at)}/{slug(record.title)}-{claim_id[:8]}.md", render_new(record))

"""A folder of Markdown as entries of the knowledge base: title, headings, first paragraph and tags of each file.

Source: system-memory-contract.md section 7 (doc entries and their bounds); MARKDOWN.md (the parser).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Final

from messages.json_types import JsonObject, JsonValue
from messages.text import one_line
from storage.knowledge_base.folder import Folder
from storage.knowledge_base.problems import Problem
from storage.records import events, frontmatter
from storage.records.findings import Finding

HEADINGS_MAX: Final = 12
SUMMARY_MAX_CHARS: Final = 400
LINE_MAX_CHARS: Final = 200
"""Bound of a title, a heading and a tag."""
DOC_MAX_BYTES: Final = 5_000_000

_SUFFIX: Final = ".md"
_NO_ENVELOPE: Final = ("frontmatter_missing", "frontmatter_not_closed", "frontmatter_not_a_mapping")
_LEVEL: Final = re.compile(r"H([1-6])")
_WORD: Final = re.compile(r"[^\W_]+")


@dataclass(frozen=True, slots=True)
class Doc:
    """One document. ``source`` is its path in the folder; at most 12 headings, a summary of at most 400 characters."""

    title: str
    source: str
    headings: tuple[str, ...]
    summary: str
    tags: tuple[str, ...]

    def to_json(self) -> JsonObject:
        return asdict(self)


@dataclass(frozen=True, slots=True)
class Documents:
    """The documents of a folder by path. ``skipped`` are names that are links or no files: nothing follows them."""

    docs: tuple[Doc, ...]
    skipped: tuple[str, ...]


@dataclass(slots=True)
class _Outline:
    """What a body says at its top level."""

    headings: list[tuple[int, str]]
    summary: str = ""


def read_documents(
    path: str, problems: list[Problem], *, progress: Callable[[int, int], None] = lambda done, of: None
) -> Documents:
    """Every ``.md`` file below the folder ``path``, sorted by its path; names that begin with a dot are left out.

    A file that cannot be an entry (over 5 MB, not UTF-8, a name that is none, frontmatter that is broken) goes into
    ``problems`` by its path. ``progress`` is told how many of how many were read.
    Raises ``NotFound`` and ``StorageError`` when the folder cannot be read.
    """
    docs: list[Doc] = []
    with Folder(path) as folder:
        names, skipped = folder.files(_SUFFIX)
        for done, name in enumerate(names):
            data = folder.read(name, DOC_MAX_BYTES)
            doc = data if isinstance(data, Problem) else document(data, name)
            if isinstance(doc, Problem):
                problems.append(doc)
            else:
                docs.append(doc)
            progress(done + 1, len(names))
    return Documents(tuple(docs), skipped)


def document(data: bytes, source: str) -> Doc | Problem:
    """The entry of one file.

    The title is the frontmatter's ``title``, else the first heading of the highest level, else the file's name. The
    headings are the others at the top level, in their order. Tags are the frontmatter's ``tags`` (a list, or words
    between commas), else the words of the file's name with three or more letters.
    """
    read = frontmatter.read(data)
    values: dict[str, JsonValue] = {}
    if isinstance(read, frontmatter.Frontmatter):
        values, body = read.values, read.document.body
    elif read.code in _NO_ENVELOPE:
        # A rule at the top of a page looks like an envelope; without keys it is none.
        body = data.decode("utf-8").removeprefix(frontmatter.BOM)
    else:
        return _unreadable(read, source)
    # The parser does not read NUL as U+FFFD first, as CommonMark asks.
    outline = _outline(body.replace("\x00", "\ufffd"))
    stem = source.rpartition("/")[2][: -len(_SUFFIX)]
    title, headings = _titled(values.get("title"), outline.headings, stem)
    tags = _tags(values.get("tags")) or tuple(word.lower() for word in _WORD.findall(stem) if len(word) >= 3)
    return Doc(
        title=title,
        source=source,
        headings=tuple(headings[:HEADINGS_MAX]),
        summary=_clipped(outline.summary, SUMMARY_MAX_CHARS),
        tags=tuple(dict.fromkeys(tags)),
    )


def _unreadable(finding: Finding, source: str) -> Problem:
    return Problem(source, finding.line, finding.message)


def _titled(given: JsonValue, headings: Sequence[tuple[int, str]], stem: str) -> tuple[str, list[str]]:
    """The title, and the headings that are not it."""
    if isinstance(given, str) and _line(given):
        title = _line(given)
        rest = [text for position, (_, text) in enumerate(headings) if position or text != title]
        return title, rest
    if not headings:
        return _line(stem) or "Untitled", []
    highest = min(level for level, _ in headings)
    chosen = next(position for position, (level, _) in enumerate(headings) if level == highest)
    return headings[chosen][1], [text for position, (_, text) in enumerate(headings) if position != chosen]


def _tags(value: JsonValue) -> tuple[str, ...]:
    words = value.split(",") if isinstance(value, str) else value
    items = words if isinstance(words, list) else []
    lines = (_line(str(item)) for item in items if isinstance(item, str | int) and not isinstance(item, bool))
    return tuple(line for line in lines if line)


def _outline(body: str) -> _Outline:
    """Headings with their levels and the first paragraph that has words, outside of quotes and lists."""
    outline = _Outline([])
    words: list[str] = []
    inside, images = "", 0
    for event in events.events(body):
        if event.depth == 0 and event.name in ("Heading", "Paragraph") and event.edge != "leaf":
            if event.edge == "start":
                inside, words = event.name, []
                continue
            text = one_line("".join(words))
            inside = ""
            if event.name == "Paragraph":
                outline.summary = outline.summary or text
            elif _line(text):
                level = _LEVEL.fullmatch(event.text)
                outline.headings.append((int(level[1]) if level else 6, _line(text)))
        elif event.name == "Image":
            # What stands for an image is no text of the page: pages begin with rows of badges.
            images += 1 if event.edge == "start" else -1
        elif inside and not images and event.edge == "leaf":
            if event.name in ("Text", "Code"):
                words.append(event.text)
            elif event.name in ("SoftBreak", "HardBreak"):
                words.append(" ")
    return outline


def _line(text: str) -> str:
    return _clipped(one_line(text), LINE_MAX_CHARS)


def _clipped(text: str, limit: int) -> str:
    return text if len(text) <= limit else f"{text[: limit - 1].rstrip()}…"

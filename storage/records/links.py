"""Links and heading sections of a Markdown body, with the exact place of each.

The parse is pulldown-cmark's, never a regular expression's; what is known to be wrong or lax in it is guarded here, and
each guard names its reason. Link places are code point offsets, sections UTF-16 offsets. Pure functions, any thread.

Source: MARKDOWN.md, tools.md (Page budgets, Extract a section).
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from html.entities import html5
from typing import Any, Final, Literal, TypeAlias
from urllib.parse import unquote

import pyromark

from storage.records.utf16 import Offsets

LinkKind: TypeAlias = Literal["inline", "reference", "collapsed", "shortcut", "autolink", "email", "wikilink"]

# Footnotes are on because `[^1]: word` would else define a link; the options are the same in every parse.
OPTIONS: Final = (
    pyromark.Options.ENABLE_TABLES
    | pyromark.Options.ENABLE_STRIKETHROUGH
    | pyromark.Options.ENABLE_FOOTNOTES
    | pyromark.Options.ENABLE_TASKLISTS
    | pyromark.Options.ENABLE_WIKILINKS
)

_KINDS: Final[Mapping[str, LinkKind]] = {
    "Inline": "inline", "Reference": "reference", "ReferenceUnknown": "reference", "Collapsed": "collapsed",
    "CollapsedUnknown": "collapsed", "Shortcut": "shortcut", "ShortcutUnknown": "shortcut", "Autolink": "autolink",
    "Email": "email",
}  # fmt: skip
_CONTAINERS: Final = frozenset(("BlockQuote", "List", "Item", "FootnoteDefinition"))
_MARKUP: Final = re.compile(r"[\[<#]|^[ \t>]*[=-]", re.MULTILINE)

# An id, or the name or path of a page; blanks at its ends are none of a name's.
_NAMED: Final = r"(?P<id>[^\[\]|\\\s](?:[^\[\]|\\\r\n]*[^\[\]|\\\s])?)"
_LABEL: Final = r"(?P<label>(?:[^\[\]|\\\r\n]|\\[^\r\n])*)"
_WIKILINK: Final = re.compile(rf"\[\[{_NAMED}(?:\|{_LABEL})?\]\]")
_WIKILINK_IN_TABLE: Final = re.compile(rf"\[\[{_NAMED}(?:\\\|{_LABEL})?\]\]")

_LINE_END: Final = r"(?:\r\n|\n|\r)"
# Blanks inside a link: at most one line end. A continuation line may carry the marks of its quotes.
_BLANKS: Final = tuple(re.compile(rf"[ \t]*(?:{_LINE_END}{prefix}[ \t]*)?") for prefix in ("", r"(?:[ \t]*>)*"))
_OPENING: Final = re.compile(r"\s*\]\(")
_ANGLE: Final = re.compile(r"<((?:[^<>\\\r\n]|\\.)*)>")
_TITLE: Final = re.compile(r"\"(?:[^\"\\]|\\.)*\"|'(?:[^'\\]|\\.)*'|\((?:[^()\\]|\\.)*\)", re.DOTALL)
_ESCAPE_OR_ENTITY: Final = re.compile(
    r"\\([!-/:-@\[-`{-~])|&(?:#([0-9]{1,7})|#[xX]([0-9a-fA-F]{1,6})|([A-Za-z][A-Za-z0-9]{1,31}));"
)

_RAW_HTML: Final = ("pre", "script", "style", "textarea")
_RAW_START: Final = re.compile(r"[ ]{0,3}<(pre|script|style|textarea)(?=[ \t\r\n>]|\Z)", re.IGNORECASE)
_RAW_END: Final = re.compile(r"</(pre|script|style|textarea)>", re.IGNORECASE)

# The parser takes `[r]\[e]` for one full reference, as if its second bracket were not escaped, and loses the `[r]`.
_ESCAPED_LABEL: Final = re.compile(r"\]\\\[")
_DEFINITION: Final = re.compile(r"\]:")

_SCHEME: Final = re.compile(r"[A-Za-z][A-Za-z0-9+.-]{1,31}:")
_NO_TITLE: Final = re.compile(r"[\[\]|\\\s]+")


@dataclass(frozen=True, slots=True)
class Link:
    """One link or image. ``[start, end)`` is all of it, ``[dest_start, dest_end)`` an inline destination as written.

    ``url`` is the destination as the parser reads it (escapes and entities undone), for a wikilink its target as
    written: a record id, or the name or path of a page.
    ``dest_start`` is ``None`` where there is no destination of its own, or where it could not be located beyond doubt:
    such a link is never rewritten.
    """

    kind: LinkKind
    url: str
    start: int
    end: int
    image: bool = False
    dest_start: int | None = None
    dest_end: int | None = None
    title: str = ""
    label: str = ""
    """The reference label, or the shown text of a wikilink."""


@dataclass(frozen=True, slots=True)
class Section:
    """A heading at the top level and what belongs to it: up to the next of the same or a higher level. UTF-16 units."""

    level: int
    heading: str
    start: int
    end: int


@dataclass(frozen=True, slots=True)
class Markdown:
    """What a body contains.

    ``doubtful`` are ranges where this parse and CommonMark may part: bracket forms that only a lax reader takes for a
    wikilink, raw HTML blocks that another tag's end closes, and a reference directly before an escaped bracket. They
    count as no links, and text that holds one is not moved between pages. Code points.
    """

    links: tuple[Link, ...] = ()
    sections: tuple[Section, ...] = ()
    doubtful: tuple[tuple[int, int], ...] = ()


@dataclass(frozen=True, slots=True)
class Target:
    """Where a link leads: to a record by id or name, to a file of the partition by path, elsewhere, or to its own page.

    ``value`` is the id or name, the normalised path relative to the partition, or the URL; ``rest`` is what follows the
    path as written, ``?query#fragment``. ``outside`` is a path that climbs above the partition.
    """

    kind: Literal["record", "path", "external", "self", "outside"]
    value: str
    rest: str = ""


def parse(body: str) -> Markdown:
    """Every link, image and top-level heading of ``body``, in document order (a link before those inside it)."""
    if _MARKUP.search(body) is None:
        return Markdown()
    # The parser does not read NUL as U+FFFD first, as CommonMark asks; links behind one would vanish.
    text = body.replace("\x00", "\ufffd")
    return _Walk(text).result()


def link_kind(link_type: object) -> LinkKind:
    """Our name of the parser's kind of link."""
    return "wikilink" if isinstance(link_type, dict) else _KINDS[str(link_type)]


@dataclass(slots=True)
class _OpenLink:
    tag: Mapping[str, object]
    image: bool
    start: int
    end: int
    children_end: int
    in_table: bool


@dataclass(slots=True)
class _OpenHeading:
    level: int
    start: int
    text: str = ""


class _Walk:
    """One pass over the parser's events, whose ranges count UTF-8 bytes."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._open: list[_OpenLink] = []
        self._links: list[_OpenLink] = []
        self._headings: list[_OpenHeading] = []
        self._heading: _OpenHeading | None = None
        self._html: list[tuple[int, int]] = []
        depth = tables = 0
        for event, place in pyromark.events_with_range(text, options=OPTIONS):
            start, end = place["start"], place["end"]
            if self._open and not (isinstance(event, dict) and event.get("End") in ("Link", "Image")):
                self._open[-1].children_end = max(self._open[-1].children_end, end)
            if isinstance(event, str):
                if self._heading is not None and event in ("SoftBreak", "HardBreak"):
                    self._heading.text += " "
                continue
            # The parser's events are typed case by case; here they are walked by name.
            tagged: Mapping[str, Any] = event
            ((kind, payload),) = tagged.items()
            name = payload if isinstance(payload, str) else next(iter(payload), "") if isinstance(payload, dict) else ""
            if kind == "Start":
                if name in ("Link", "Image"):
                    link = _OpenLink(payload[name], name == "Image", start, end, start, tables > 0)
                    self._open.append(link)
                    self._links.append(link)
                elif name == "Heading" and depth == 0:
                    self._heading = _OpenHeading(int(payload["Heading"]["level"][1:]), start)
                    self._headings.append(self._heading)
                elif name in _CONTAINERS:
                    depth += 1
                elif name == "Table":
                    tables += 1
                elif name == "HtmlBlock":
                    self._html.append((start, end))
            elif kind == "End":
                if name in ("Link", "Image"):
                    self._open.pop()
                    if self._open:
                        self._open[-1].children_end = max(self._open[-1].children_end, end)
                elif name == "Heading":
                    self._heading = None
                elif name in _CONTAINERS:
                    depth -= 1
                elif name == "Table":
                    tables -= 1
            elif self._heading is not None and kind in ("Text", "Code"):
                self._heading.text += str(payload)

    def result(self) -> Markdown:
        """The events put together, places in code points."""
        offsets = [offset for link in self._links for offset in (link.start, link.end, link.children_end)]
        offsets += [heading.start for heading in self._headings]
        offsets += [offset for place in self._html for offset in place]
        points = code_points(self._text, offsets)
        links: list[Link] = []
        doubtful = [(points[a], points[b]) for a, b in self._html if self._closes_early(points[a], points[b])]
        if _DEFINITION.search(self._text):
            doubtful += [found.span() for found in _ESCAPED_LABEL.finditer(self._text)]
        for opened in self._links:
            link = self._link(opened, points)
            if link is None:
                doubtful.append((points[opened.start], points[opened.end]))
            else:
                links.append(link)
        return Markdown(tuple(links), self._sections(points), tuple(sorted(doubtful)))

    def _closes_early(self, start: int, end: int) -> bool:
        """Whether another tag's end stands in a raw HTML block: CommonMark ends the block there, the parser goes on."""
        block = self._text[start:end]
        opening = _RAW_START.match(block)
        if opening is None:
            return False
        return any(found[1].lower() != opening[1].lower() for found in _RAW_END.finditer(block))

    def _link(self, opened: _OpenLink, points: Mapping[int, int]) -> Link | None:
        tag, text = opened.tag, self._text
        url, title, label = str(tag["dest_url"]), str(tag["title"]), str(tag["id"])
        start, end = points[opened.start], points[opened.end]
        kind = link_kind(tag["link_type"])
        if kind == "wikilink":
            pattern = _WIKILINK_IN_TABLE if opened.in_table else _WIKILINK
            strict = pattern.fullmatch(text, start, end)
            if strict is None:
                return None
            return Link("wikilink", strict["id"], start, end, label=strict["label"] or "")
        if kind == "collapsed" and text.startswith("[]", end):
            end += 2  # the parser's range leaves the empty brackets out
        place: tuple[int, int] | None = None
        if kind == "inline":
            begin = points[opened.children_end]
            if opened.children_end == opened.start:
                begin = start + (2 if opened.image else 1)
            place = _destination(text, begin, end, url)
        dest_start, dest_end = place if place is not None else (None, None)
        return Link(kind, url, start, end, opened.image, dest_start, dest_end, title, label)

    def _sections(self, points: Mapping[int, int]) -> tuple[Section, ...]:
        text, units = self._text, Offsets(self._text)
        starts: list[int] = []
        for heading in self._headings:
            point = points[heading.start]
            starts.append(max(text.rfind("\n", 0, point), text.rfind("\r", 0, point)) + 1)
        ends = [len(text)] * len(starts)
        unfinished: list[int] = []
        for index, heading in enumerate(self._headings):
            while unfinished and self._headings[unfinished[-1]].level >= heading.level:
                ends[unfinished.pop()] = starts[index]
            unfinished.append(index)
        return tuple(
            Section(heading.level, heading.text.strip(), units.to_units(start), units.to_units(end))
            for heading, start, end in zip(self._headings, starts, ends, strict=True)
        )


def code_points(text: str, offsets: Iterable[int]) -> Mapping[int, int]:
    """Code point offsets of UTF-8 byte offsets, in one pass over the text."""
    wanted = sorted(set(offsets))
    if text.isascii():
        return {offset: offset for offset in wanted}
    data = text.encode("utf-8")
    points: dict[int, int] = {}
    before = count = 0
    for offset in wanted:
        count += len(data[before:offset].decode("utf-8"))
        points[offset] = count
        before = offset
    return points


def _destination(text: str, begin: int, end: int, url: str) -> tuple[int, int] | None:
    """Where the destination of an inline link lies, whose text ends at ``begin`` and which ends at ``end``.

    It is only taken when everything up to the link's end is accounted for and the text, unescaped, is the URL.
    """
    opening = _OPENING.match(text, begin, end)
    if opening is None:
        return None
    for blanks in _BLANKS:
        place = _located(text, opening.end(), end, url, blanks)
        if place is not None:
            return place
    return None


def _located(text: str, position: int, end: int, url: str, blanks: re.Pattern[str]) -> tuple[int, int] | None:
    start = _after(blanks, text, position)
    if text.startswith("<", start):
        angle = _ANGLE.match(text, start, end)
        if angle is None:
            return None
        # The destination of `<>` is what stands between the brackets; the link text's place includes them.
        stop = angle.end()
        written = angle[1]
    else:
        stop = _bare_end(text, start, end)
        written = text[start:stop]
    if unescape(written) != url:
        return None
    rest = _after(blanks, text, stop)
    if rest > stop:
        title = _TITLE.match(text, rest, end)
        if title is not None:
            rest = _after(blanks, text, title.end())
    return (start, stop) if rest == end - 1 and text[rest] == ")" else None


def _after(blanks: re.Pattern[str], text: str, position: int) -> int:
    found = blanks.match(text, position)
    return found.end() if found is not None else position


def _bare_end(text: str, start: int, end: int) -> int:
    """The end of a destination without angle brackets: at a blank, a control, or an unbalanced parenthesis."""
    depth = 0
    position = start
    while position < end:
        character = text[position]
        if character <= " " or character == "\x7f":
            break
        if character == "\\" and position + 1 < end and text[position + 1] > " ":
            position += 1
        elif character == "(":
            depth += 1
        elif character == ")":
            if depth == 0:
                break
            depth -= 1
        position += 1
    return position


def unescape(text: str) -> str:
    """Backslash escapes and entities undone, as CommonMark reads a destination."""
    return _ESCAPE_OR_ENTITY.sub(_unescaped, text) if "\\" in text or "&" in text else text


def _unescaped(found: re.Match[str]) -> str:
    if found[1] is not None:
        return found[1]
    if found[4] is not None:
        return html5.get(f"{found[4]};", found[0])
    code = int(found[2]) if found[2] is not None else int(found[3], 16)
    return chr(code) if 0 < code < 0x110000 and not 0xD800 <= code < 0xE000 else "\ufffd"


def resolve(link: Link, page_path: str) -> Target:
    """Where ``link`` leads from the page at ``page_path`` (relative to its partition)."""
    if link.kind == "wikilink":
        return Target("record", link.url)
    if link.kind in ("autolink", "email") or _SCHEME.match(link.url) or link.url.startswith("//"):
        return Target("external", link.url)
    cut = min((at for mark in "?#" if (at := link.url.find(mark)) >= 0), default=len(link.url))
    written, rest = link.url[:cut], link.url[cut:]
    if not written:
        return Target("self", page_path, rest)
    try:
        path = unquote(written, errors="strict")
    except UnicodeDecodeError:
        path = written
    folders = [] if path.startswith("/") else page_path.split("/")[:-1]
    for part in path.split("/"):
        if part == "..":
            if not folders:
                return Target("outside", link.url, rest)
            folders.pop()
        elif part not in ("", "."):
            folders.append(part)
    slash = "/" if path.endswith("/") and folders else ""
    return Target("path", unicodedata.normalize("NFC", "/".join(folders)) + slash, rest)


def wikilink(record_id: str, title: str) -> str:
    """``[[id|title]]``, the title without what would end the link early. Not for use inside a table."""
    label = " ".join(_NO_TITLE.sub(" ", title).split())
    return f"[[{record_id}|{label}]]" if label else f"[[{record_id}]]"

"""A record's Markdown as HTML that can do nothing: every text is escaped, and only known elements are written.

Raw HTML is shown as the text that it is, pictures become links, and a link leads to the web, to a mailbox or to another
record; any other is shown as text. The parse is the one that links and backlinks are made of (storage.records). Pure.

Source: MARKDOWN.md; knowledge-more-facts.md section 8.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any, Final, TypeAlias
from urllib.parse import urlsplit

import pyromark
from markupsafe import Markup, escape

from host_bridge.explorer.words import harmless
from messages.json_types import JsonValue
from storage.records.links import OPTIONS, Link, Target, link_kind, resolve

LeadTo: TypeAlias = Callable[[Target], str | None]
"""The address of the page about what a link inside the store leads to, ``None`` where there is none."""

WEB_SCHEMES: Final = frozenset(("http", "https", "mailto"))
DEPTH_MAX: Final = 32
"""Elements within each other; what lies deeper is shown without its own."""
FIRST_LEVEL: Final = 2
"""The record's title is the first heading of its page; the highest of its text stands below that."""
_NO_HEADING: Final = 7

_FOLDED_MARKS: Final = re.compile(r"(?:^|(?<=\s))(?:#{1,6}|[-*+]|>)(?=\s)|\s\|[\s|:-]*(?=\s)")
"""Of headings, items and tables whose lines were joined."""

_PLAIN: Final[Mapping[str, tuple[str, str]]] = {
    "Paragraph": ("<p>", "</p>\n"),
    "Emphasis": ("<em>", "</em>"),
    "Strong": ("<strong>", "</strong>"),
    "Strikethrough": ("<del>", "</del>"),
    "Item": ("<li>", "</li>\n"),
    "BlockQuote": ("<blockquote>\n", "</blockquote>\n"),
    "TableHead": ("<thead><tr>", "</tr></thead><tbody>\n"),
    "TableRow": ("<tr>", "</tr>\n"),
    "HtmlBlock": ('<pre class="raw">', "</pre>\n"),
}
_ALIGNED: Final = {"Left": "", "None": "", "Center": ' class="center"', "Right": ' class="right"'}


def render(body: str, path: str, lead_to: LeadTo) -> Markup:
    """The HTML of the text of the record at ``path``."""
    return _Renderer(path, lead_to).render(body)


def plain(text: str) -> str:
    """The words of Markdown that was folded into one line, without its marks: what a list shows of a text."""
    words: list[str] = []
    for event in pyromark.events(text.replace("\x00", "\ufffd"), options=OPTIONS):
        if isinstance(event, str):
            words.append(" ")
            continue
        tagged: Mapping[str, Any] = event
        ((kind, payload),) = tagged.items()
        if kind in ("Text", "Code", "InlineHtml", "Html"):
            words.append(str(payload))
    return " ".join(_FOLDED_MARKS.sub(" · ", "".join(words)).split())


def web_address(url: str) -> str | None:
    """``url`` where a browser may be sent there: http, https or mailto, and nothing that only looks like them."""
    if any(character <= " " or character == "\x7f" for character in url):
        return None
    try:
        parts = urlsplit(url)
    except ValueError:
        return None
    if parts.scheme.lower() not in WEB_SCHEMES:
        return None
    return url if parts.scheme.lower() == "mailto" or parts.netloc else None


def _level(event: object) -> int:
    """The level of a heading that begins here."""
    match event:
        case {"Start": {"Heading": {"level": level}}}:
            return int(str(level).removeprefix("H"))
        case _:
            return _NO_HEADING


class _Renderer:
    def __init__(self, path: str, lead_to: LeadTo) -> None:
        self._path = path
        self._lead_to = lead_to
        self._out: list[str] = []
        self._ends: list[str] = []
        self._columns: tuple[Any, ...] = ()
        self._column = 0
        self._in_head = False
        self._highest = _NO_HEADING

    def render(self, body: str) -> Markup:
        # The parser does not read NUL as U+FFFD first, as CommonMark asks.
        found = list(pyromark.events(body.replace("\x00", "\ufffd"), options=OPTIONS))
        self._highest = min((_level(event) for event in found), default=_NO_HEADING)
        for event in found:
            if isinstance(event, str):
                self._leaf(event, "")
                continue
            # The parser's events are typed case by case; here they are walked by name.
            tagged: Mapping[str, Any] = event
            ((kind, payload),) = tagged.items()
            if kind == "Start":
                name, detail = (payload, None) if isinstance(payload, str) else next(iter(payload.items()))
                self._start(name, detail)
            elif kind == "End":
                self._out.append(self._ends.pop())
                if payload == "TableHead":
                    self._in_head = False
            else:
                self._leaf(kind, payload)
        return Markup("".join(self._out))  # made of fixed elements and escaped text alone

    def _leaf(self, kind: str, payload: object) -> None:
        match kind:
            case "SoftBreak":
                self._out.append("\n")
            case "HardBreak":
                self._out.append("<br>\n")
            case "Rule":
                self._out.append("<hr>\n")
            case "Code":
                self._out.append(f"<code>{escape(harmless(payload))}</code>")
            case "TaskListMarker":
                self._out.append("☑ " if payload else "☐ ")
            case "FootnoteReference":
                self._out.append(f"<sup>[{escape(harmless(payload))}]</sup>")
            case _:  # text, and raw HTML as the text that it is
                self._out.append(str(escape(harmless(payload))))

    def _start(self, name: str, detail: JsonValue) -> None:
        start, end = self._tags(name, detail)
        if len(self._ends) >= DEPTH_MAX and name not in ("Link", "Image"):
            start = end = ""
        self._out.append(start)
        self._ends.append(end)

    def _tags(self, name: str, detail: JsonValue) -> tuple[str, str]:
        match name:
            case "Heading":
                level = min(_level({"Start": {name: detail}}) - self._highest + FIRST_LEVEL, 6)
                return f'<h{level} dir="auto">', f"</h{level}>\n"
            case "List":
                if detail is None:
                    return "<ul>\n", "</ul>\n"
                start = f' start="{detail}"' if isinstance(detail, int) and detail != 1 else ""
                return f"<ol{start}>\n", "</ol>\n"
            case "CodeBlock":
                return "<pre><code>", "</code></pre>\n"
            case "Table":
                self._columns = tuple(detail) if isinstance(detail, (list, tuple)) else ()
                return '<div class="table"><table>\n', "</tbody></table></div>\n"
            case "TableHead":
                self._in_head, self._column = True, 0
                return _PLAIN[name]
            case "TableRow":
                self._column = 0
                return _PLAIN[name]
            case "TableCell":
                return self._cell()
            case "FootnoteDefinition":
                return f'<div class="footnote"><sup>[{escape(harmless(detail))}]</sup> ', "</div>\n"
            case "Link" | "Image":
                return self._link(detail if isinstance(detail, dict) else {}, image=name == "Image")
            case "Paragraph":
                return '<p dir="auto">', "</p>\n"
            case _:
                return _PLAIN.get(name, ("", ""))

    def _cell(self) -> tuple[str, str]:
        alignment = str(self._columns[self._column]) if self._column < len(self._columns) else "None"
        self._column += 1
        element = "th" if self._in_head else "td"
        return f'<{element}{_ALIGNED.get(alignment, "")} dir="auto">', f"</{element}>"

    def _link(self, tag: Mapping[str, Any], *, image: bool) -> tuple[str, str]:
        """Where it leads; a picture is named as one. Within another link it is only its text."""
        before = '<span class="picture">' if image else ""
        after = "</span>" if image else ""
        found = self._address(tag, image=image)
        if found is None or self._inside_a_link():
            return f'{before}<span class="unlinked">', f"</span>{after}"
        address, elsewhere = found
        rel = ' rel="noopener noreferrer nofollow" class="elsewhere"' if elsewhere else ""
        return f'{before}<a href="{escape(address)}"{rel}>', f"</a>{after}"

    def _inside_a_link(self) -> bool:
        return any(end.startswith("</a>") for end in self._ends)

    def _address(self, tag: Mapping[str, Any], *, image: bool) -> tuple[str, bool] | None:
        kind = link_kind(tag.get("link_type", "Inline"))
        url = str(tag.get("dest_url", ""))
        if kind == "wikilink":
            url = url.removesuffix("\\")  # inside a table the bar before its label is escaped
        elif kind == "email":
            url = f"mailto:{url}"
        target = resolve(Link(kind, url, 0, 0, image), self._path)
        if target.kind == "external":
            address = web_address(target.value)
            return None if address is None else (address, True)
        inside = self._lead_to(target)
        return None if inside is None else (inside, False)

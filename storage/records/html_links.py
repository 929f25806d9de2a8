"""Relative references in raw HTML, which no Markdown parser reports as links.

Source: MARKDOWN.md (Faults and pitfalls, 13).
"""

from __future__ import annotations

import re
from html.parser import HTMLParser
from typing import Final

_REFERENCES: Final = frozenset(
    ("href", "src", "srcset", "poster", "data", "action", "formaction", "cite", "background", "longdesc", "usemap")
)
_ABSOLUTE: Final = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:|/")


def relative_references(html: str) -> tuple[str, ...]:
    """The values of attributes that lead somewhere and depend on the page in which they stand, in order."""
    reader = _Reader()
    reader.feed(html)
    reader.close()
    return tuple(value for value in reader.found if _ABSOLUTE.match(value.strip()) is None)


class _Reader(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.found: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found += [value or "" for name, value in attrs if name in _REFERENCES]

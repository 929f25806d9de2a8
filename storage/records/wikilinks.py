"""Writing ids into wikilinks of a body that was composed before the ids were known.

A place is filled only where a parse of the whole body then finds exactly that wikilink: the same characters in code or
behind a backslash stay as they are. Pure functions, any thread. Source: decisions.md section 5 (batch), MARKDOWN.md.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

from storage.records import links

_UNKNOWN: Final = "unknown"
_PLACE: Final = re.compile(r"\[\[\$([A-Za-z0-9_-]{1,64})(?=[|\]\\])")


def fill_wikilinks(body: str, ids: Mapping[str, str]) -> str:
    """The body with ``[[$name`` as ``[[<id>`` in every wikilink.

    Raises ``KeyError`` with the name when one stands in a wikilink and has no id.
    """
    places = list(_PLACE.finditer(body))
    if not places:
        return body
    named = {place[1]: ids.get(place[1], _UNKNOWN) for place in places}
    filled, starts = _written(body, places, named)
    parsed = {(link.start, link.url) for link in links.parse(filled).links if link.kind == "wikilink"}
    meant = [place for place, start in zip(places, starts, strict=True) if (start, named[place[1]]) in parsed]
    for place in meant:
        if place[1] not in ids:
            raise KeyError(place[1])
    return filled if len(meant) == len(places) else _written(body, meant, named)[0]


def _written(body: str, places: list[re.Match[str]], ids: Mapping[str, str]) -> tuple[str, list[int]]:
    parts: list[str] = []
    starts: list[int] = []
    at = length = 0
    for place in places:
        kept = body[at : place.start()]
        starts.append(length + len(kept))
        parts += [kept, f"[[{ids[place[1]]}"]
        length += len(kept) + 2 + len(ids[place[1]])
        at = place.end()
    return "".join((*parts, body[at:])), starts

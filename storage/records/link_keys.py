"""What a link of a record's body says of its target before it is known which page that is.

Pure functions. Source: tools.md (Page budgets).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from storage.records.links import Link, parse, resolve
from storage.records.names import normalise_name, path_key


@dataclass(frozen=True, slots=True)
class LinkKey:
    """What a link of a record's body says of its target, before it is known which page that is.

    ``wiki``: ``written`` may be an id, ``name`` a title or alias as lookup compares them, ``path`` a path or a file
    name. ``path``: a Markdown link to a note of the partition; ``written`` and ``path`` are its :func:`path_key`.
    """

    form: Literal["wiki", "path"]
    written: str
    name: str
    path: str


def key_of(link: Link, page_path: str) -> LinkKey | None:
    """The key of one link of the record at ``page_path``; ``None`` for a link that can lead to no page."""
    target = resolve(link, page_path)
    if target.kind == "record":
        file = path_key(target.value)
        return LinkKey("wiki", target.value, normalise_name(target.value), file if _is_note(file) else f"{file}.md")
    if target.kind != "path":
        return None
    path = path_key(target.value)
    return LinkKey("path", path, "", path) if _is_note(path) else None


def link_keys(body: str, page_path: str) -> tuple[LinkKey, ...]:
    """The distinct keys of a body's links and images, in document order."""
    if "[" not in body and "<" not in body:
        return ()  # no link begins otherwise, and most claims have none
    keys = (key_of(link, page_path) for link in parse(body).links)
    return tuple(dict.fromkeys(key for key in keys if key is not None))


def _is_note(path: str) -> bool:
    return path.endswith(".md")

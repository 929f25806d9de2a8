"""The destination of a relative link, written for a page in another folder.

What is written stays, byte for byte: only the way from the new folder to the old one is put before it.

Source: MARKDOWN.md (Faults and pitfalls, 8 and 9).
"""

from __future__ import annotations

import re
from typing import Final
from urllib.parse import quote

from storage.records.links import Link, resolve, unescape

_ABSOLUTE_NOW: Final = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:|[/?#]|\Z")


def destination_for(written: str, source_path: str, page_path: str, *, to_source: bool = False) -> str | None:
    """A link destination as written on the page at ``source_path``, in angle brackets or without, as the page at
    ``page_path`` must write it to lead to the same place.

    ``to_source`` says that it means its own page. ``None`` where no such destination can be written.
    """
    angle = written.startswith("<")
    inner = written[1:-1] if angle else written
    new = _way(page_path, source_path) + inner if to_source else _from(page_path, source_path, inner)
    if new is None:
        return None
    before = resolve(_link(inner), source_path)
    after = resolve(_link(new), page_path)
    same = (after.value, after.rest) == (source_path if to_source else before.value, before.rest)
    return (f"<{new}>" if angle else new) if same and after.kind == "path" else None


def _link(written: str) -> Link:
    return Link("inline", unescape(written), 0, 0)


def _from(page_path: str, source_path: str, inner: str) -> str | None:
    folders = source_path.split("/")[:-1]
    while True:
        if inner.startswith("./"):
            inner = inner[2:]
        elif inner.startswith("../"):
            if not folders:
                return None
            folders.pop()
            inner = inner[3:]
        else:
            break
    way = _way(page_path, "/".join([*folders, ""]))
    return f"./{inner}" if not way and _ABSOLUTE_NOW.match(inner) else way + inner


def _way(page_path: str, target: str) -> str:
    """The relative path from a page's folder to a path; ``""`` for the folder itself."""
    start, end = page_path.split("/")[:-1], target.split("/")
    shared = 0
    while shared < min(len(start), len(end) - 1) and start[shared] == end[shared]:
        shared += 1
    return "../" * (len(start) - shared) + "/".join(_encoded(part) for part in end[shared:])


def _encoded(part: str) -> str:
    """A path's part as it may stand in any destination: letters and digits of every script stay."""
    return "".join(c if c.isalnum() or c in "-._~" else quote(c) for c in part)

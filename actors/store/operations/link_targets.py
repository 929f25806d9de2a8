"""Where the links of a record's text lead in this partition: to one record, to a file, nowhere, or to no one record.

Source: tools.md (Reading records), MARKDOWN.md.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Literal, TypeAlias

from actors.store.operations.context import OperationContext
from storage.records import Record, links
from storage.records.links import LinkKey, Target
from storage.records.utf16 import Offsets, clip
from storage.state.catalogue import is_note
from storage.state.catalogue_reader import Entry
from storage.state.page_graph import PageGraph

Leads: TypeAlias = Literal["record", "file", "elsewhere", "nowhere", "ambiguous", "outside", "doubtful"]

BROKEN: Final = frozenset[Leads](("nowhere", "ambiguous", "outside", "doubtful"))
"""What a link that does not work leads to; ``doubtful`` is text that only a lax reader takes for a link."""
TARGET_SHOWN_MAX_CHARS: Final = 200
_NAME_MAX_BYTES: Final = 255
_PATH_MAX_BYTES: Final = 4_000


@dataclass(frozen=True, slots=True)
class LinkTarget:
    """One link of a text. ``at`` is its first UTF-16 unit, ``target`` what it names, clipped.

    ``entry`` is the record it leads to, merges followed. An ``embed`` shows its target in place, as an image.
    """

    leads: Leads
    at: int
    target: str
    entry: Entry | None = None
    embed: bool = False


def link_targets(context: OperationContext, entry: Entry, record: Record) -> Sequence[LinkTarget]:
    """Every link of a record's body, in the order of the text; links to the web and to its own page are ``elsewhere``
    and looked at no further."""
    parsed = links.parse(record.body)
    if not parsed.links and not parsed.doubtful:
        return ()
    units = Offsets(record.body)
    found: list[LinkTarget] = []
    for link in parsed.links:
        context.check()
        target = links.resolve(link, entry.path)
        leads, led_to = _followed(context, target, links.key_of(link, entry.path))
        shown = clip(target.value, TARGET_SHOWN_MAX_CHARS)
        found.append(LinkTarget(leads, units.to_units(link.start), shown, led_to, link.image))
    for start, end in parsed.doubtful:
        found.append(LinkTarget("doubtful", units.to_units(start), clip(record.body[start:end], 80)))
    return sorted(found, key=lambda link: link.at)


def _followed(context: OperationContext, target: Target, key: LinkKey | None) -> tuple[Leads, Entry | None]:
    match target.kind:
        case "external" | "self":
            return "elsewhere", None
        case "outside":
            return "outside", None
        case "record":
            bearers = context.catalogue.by_id(target.value)
            if len(bearers) > 1:
                return "ambiguous", None
            if bearers:
                return _record(context, bearers[0])
            meant = () if key is None else PageGraph(context.catalogue).meant(key)
            return ("ambiguous", None) if len(meant) > 1 else _record(context, meant[0] if meant else None)
        case "path":
            return _file(context, target.value.rstrip("/"))


def _record(context: OperationContext, entry: Entry | None) -> tuple[Leads, Entry | None]:
    followed = None if entry is None else context.catalogue.follow_merges(entry)
    return ("nowhere", None) if followed is None else ("record", followed)


def _file(context: OperationContext, path: str) -> tuple[Leads, Entry | None]:
    """A note by its catalogued path, another file by what lies in its folder."""
    if not path:
        return "file", None
    entry = context.catalogue.by_path(path)
    if entry is not None:
        return ("ambiguous", None) if context.catalogue.one(entry.id) is None else _record(context, entry)
    if is_note(path):
        # A file that is no record yet is still there; one of another scope is not, for whoever reads here.
        known = context.catalogue.file(path)
        return ("nowhere" if known is None or known.state == "withheld" else "file"), None
    return ("file" if _could_be(path) and context.session.taken(path) else "nowhere"), None


def _could_be(path: str) -> bool:
    """Whether a file system could have a file of that path at all."""
    data = path.encode("utf-8", "replace")
    return (
        "\0" not in path
        and len(data) <= _PATH_MAX_BYTES
        and all(len(part) <= _NAME_MAX_BYTES for part in data.split(b"/"))
    )

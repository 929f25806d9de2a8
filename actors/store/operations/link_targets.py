"""Where the links of a record's text lead in this partition: to one record, to a file, nowhere, or to no one record.

Source: tools.md (Reading records, Page budgets), MARKDOWN.md.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Final, Literal, TypeAlias

from actors.store.operations.context import OperationContext
from storage.records import Record, links, normalise_name, path_key
from storage.records.link_keys import LinkKey, key_of
from storage.records.links import Target
from storage.records.utf16 import Offsets, clip
from storage.state.catalogue import is_note
from storage.state.catalogue_reader import Entry
from storage.state.page_graph import PageGraph
from storage.vault.linked import lies_there

Fault: TypeAlias = Literal["nowhere", "ambiguous", "outside", "doubtful"]
"""What is wrong with a link; ``doubtful`` is text that only a lax reader takes for one."""

TARGETS_FOLLOWED_MAX: Final = 5_000
"""Different targets of one text that are looked up; the lane serves others too."""
TARGET_SHOWN_MAX_CHARS: Final = 200
DOUBTFUL_SHOWN_MAX_CHARS: Final = 80


@dataclass(frozen=True, slots=True)
class FaultyLink:
    """One link that does not work. ``at`` is its first UTF-16 unit, ``target`` what it names, clipped."""

    fault: Fault
    at: int
    target: str


@dataclass(frozen=True, slots=True)
class FollowedLinks:
    """What following the links of a text gave: how many there are, which do not work, how many were not followed."""

    total: int
    faulty: Sequence[FaultyLink]
    unchecked: int = 0


@dataclass(frozen=True, slots=True)
class AuthoredLink:
    """One link as it is written; ``key`` is ``None`` where it can lead to no page by a name."""

    link: links.Link
    target: Target
    key: LinkKey | None


@dataclass(slots=True)
class AuthoredLinks:
    """The links of one record's text; each target is looked up when it is asked for, and once."""

    context: OperationContext
    body: str
    found: Sequence[AuthoredLink]
    doubtful: Sequence[tuple[int, int]]
    _marked: dict[str, list[AuthoredLink]] = field(default_factory=dict)
    _led: dict[tuple[str, str], Entry | Fault | None] = field(default_factory=dict)

    @classmethod
    def of(cls, context: OperationContext, entry: Entry, record: Record) -> AuthoredLinks:
        parsed = links.parse(record.body)
        found = [AuthoredLink(link, links.resolve(link, entry.path), key_of(link, entry.path)) for link in parsed.links]
        made = cls(context, record.body, found, parsed.doubtful)
        for authored in found:
            if not authored.link.image:
                for mark in _marks_of_link(authored):
                    made._marked.setdefault(mark, []).append(authored)
        return made

    def lead_to(self, end: Entry, bearers: Iterable[Record], paths: Iterable[str]) -> Literal["yes", "no", "unclear"]:
        """Whether a link, not counting pictures, leads to ``end``; ``unclear`` where one could mean it or another.

        ``bearers`` are that record and those merged into it, ``paths`` their files: only links that could mean one of
        them are looked up.
        """
        marks = {mark for record in bearers for mark in _marks_of_record(record)}
        marks |= {mark for path in paths for mark in _marks_of_path(path)}
        unclear = False
        for mark in marks:
            for authored in self._marked.get(mark, ()):
                led = self._lead(authored)
                if isinstance(led, Entry) and led.row == end.row:
                    return "yes"
                unclear = unclear or led == "ambiguous"
        return "unclear" if unclear else "no"

    def targets(self) -> Sequence[Entry]:
        """The records that the links and pictures lead to, each once; :data:`TARGETS_FOLLOWED_MAX` are looked up."""
        found: dict[int, Entry] = {}
        for authored in self.found:
            target = authored.target
            if (target.kind, target.value) not in self._led and len(self._led) >= TARGETS_FOLLOWED_MAX:
                break
            led = self._lead(authored)
            if isinstance(led, Entry):
                found.setdefault(led.row, led)
        return list(found.values())

    def follow(self) -> FollowedLinks:
        """Look each target up. Links to the web and to their own page work and are looked at no further."""
        units = Offsets(self.body)
        faulty: list[FaultyLink] = []
        unchecked = 0
        for authored in self.found:
            target = authored.target
            if (target.kind, target.value) not in self._led and len(self._led) >= TARGETS_FOLLOWED_MAX:
                unchecked += 1
                continue
            led = self._lead(authored)
            if isinstance(led, str):
                shown = clip(target.value, TARGET_SHOWN_MAX_CHARS)
                faulty.append(FaultyLink(led, units.to_units(authored.link.start), shown))
        for start, end in self.doubtful:
            shown = clip(self.body[start:end], DOUBTFUL_SHOWN_MAX_CHARS)
            faulty.append(FaultyLink("doubtful", units.to_units(start), shown))
        total = len(self.found) + len(self.doubtful)
        return FollowedLinks(total, sorted(faulty, key=lambda link: link.at), unchecked)

    def _lead(self, authored: AuthoredLink) -> Entry | Fault | None:
        """The record that the link leads to, what is wrong with it, or ``None`` where it leads elsewhere."""
        key = (authored.target.kind, authored.target.value)
        if key not in self._led:
            self.context.check()
            self._led[key] = _followed(self.context, authored)
        return self._led[key]


def _marks_of_link(authored: AuthoredLink) -> Iterable[str]:
    if authored.target.kind == "path":
        return (f"path {path_key(authored.target.value)}",)
    if authored.key is None:
        return ()
    return (f"id {authored.key.written}", f"name {authored.key.name}", f"path {authored.key.path}")


def _marks_of_record(record: Record) -> Iterable[str]:
    return (f"id {record.id}", *(f"name {normalise_name(name)}" for name in (record.title, *record.aliases)))


def _marks_of_path(path: str) -> Iterable[str]:
    key = path_key(path)
    return (f"path {key}", f"path {key.rpartition('/')[2]}")


def _followed(context: OperationContext, authored: AuthoredLink) -> Entry | Fault | None:
    target = authored.target
    match target.kind:
        case "external" | "self":
            return None
        case "outside":
            return "outside"
        case "record":
            bearers = context.catalogue.by_id(target.value)
            return _one_of(context, bearers) if bearers else _by_name(context, authored)
        case "path":
            return _by_path(context, authored)


def _one_of(context: OperationContext, entries: Sequence[Entry]) -> Entry | Fault:
    if len(entries) > 1:
        return "ambiguous"
    return (context.catalogue.follow_merges(entries[0]) if entries else None) or "nowhere"


def _by_name(context: OperationContext, authored: AuthoredLink) -> Entry | Fault:
    return _one_of(context, () if authored.key is None else PageGraph(context.catalogue).meant(authored.key))


def _by_path(context: OperationContext, authored: AuthoredLink) -> Entry | Fault | None:
    """A note by its catalogued path, then as pages are named by paths; another file by what lies in its folder."""
    path = authored.target.value.rstrip("/")
    if not path:
        return None
    entry = context.catalogue.by_path(path)
    if entry is not None:
        return _one_of(context, context.catalogue.by_id(entry.id))
    if is_note(path):
        # A file that is no record yet is still there; one of another scope is not, for whoever reads here.
        known = context.catalogue.file(path)
        return None if known is not None and known.state != "withheld" else _by_name(context, authored)
    root = context.session.root_fd
    return None if root is not None and lies_there(root, path) else "nowhere"

"""``knowledge_record`` and ``knowledge_records``: one record in full, and the exhaustive inventory.

A single record's response is bounded as a whole by shortening its text only; identity and metadata are never cut
(tools.md, Reading records), as far as a tool could have saved them: what a person wrote beyond those limits is cut and
named in ``omitted``. Sizes and offsets are UTF-16 code units.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Annotated, ClassVar, Final, Self

from pydantic import Field, model_validator

from messages.errors import InvalidArgument
from messages.json_types import JsonObject, JsonValue
from messages.pieces import Bool, DateText, Integer, RecordId, Text, refused
from messages.text import clip_utf16, utf16_length
from messages.tools._base import (
    READ_CHARS_DEFAULT,
    Kind,
    Lifecycles,
    Offset,
    Origin,
    ReadChars,
    Snapshot,
    TimeFields,
    ToolRequest,
    TypeName,
    check_interval,
)
from messages.tools._rows import ROWS_MAX_BYTES, PageRef, Shown, json_bytes, paging, rows_within
from messages.tools.pages import FILENAME_MAX_CHARS, QUOTE_MAX_CHARS
from messages.vocabulary import (
    ABOUT_MAX_CHARS,
    ATTRIBUTION_MAX_CHARS,
    FIELDS_MAX_BYTES,
    LIST_ARGUMENT_MAX_ITEMS,
    REASON_MAX_CHARS,
    RECORD_MAX_BYTES,
    TAG_MAX_CHARS,
    TITLE_MAX_CHARS,
)

EVIDENCE_PER_RESPONSE: Final = 20
EVIDENCE_EXCERPT_CHARS: Final = 4_000
# Text that a response keeps room for before it gives up excerpts and later citations.
TEXT_WINDOW_MIN: Final = 256
LARGEST_OFFSET: Final = RECORD_MAX_BYTES
PATH_MAX_CHARS: Final = 4_096
FIELDS_SHOWN_MAX_BYTES: Final = 4 * FIELDS_MAX_BYTES
"""More than a save may give: merges unite the fields of pages."""


class RecordRequest(ToolRequest):
    """One record by id, in windows of its text."""

    tool: ClassVar[str] = "knowledge_record"

    id: RecordId = Field(description="Record ID from a list row.")
    offset: Offset = Field(default=0, description="nextOffset of the previous window.")
    max_chars: ReadChars = Field(default=READ_CHARS_DEFAULT, description="Size of the response, default 12000.")
    include_evidence: Bool = Field(default=False, description="Add citations with short excerpts.")
    evidence_offset: Offset = Field(default=0, description="nextEvidenceOffset of the previous response.")


class RecordsRequest(ToolRequest):
    """The inventory: every record that passes the filters, page by page, in a stable order."""

    tool: ClassVar[str] = "knowledge_records"

    kind: Kind | None = Field(default=None, description="Only this kind of record.")
    type: TypeName | None = Field(default=None, description="Only pages of this ontology type or alias.")
    match: Annotated[str, Text(max_units=TITLE_MAX_CHARS)] | None = Field(
        default=None, description="Part of an ID, title or alias."
    )
    origin: Origin | None = Field(default=None, description="Only claims and relationships of this origin.")
    lifecycle: Lifecycles = Field(default="active", description="active (default), superseded, or all.")
    time_field: TimeFields | None = Field(
        default=None, description="Date that since and until test: default occurred, else recorded."
    )
    since: DateText | None = Field(default=None, description="First day, inclusive: YYYY, YYYY-MM or YYYY-MM-DD.")
    until: DateText | None = Field(default=None, description="End, exclusive.")
    limit: Annotated[int, Integer(1, 100)] = Field(default=20, description="Rows per page, default 20.")
    offset: Offset = Field(default=0, description="nextOffset of the previous page.")
    snapshot: Snapshot | None = Field(default=None, description="snapshot of the previous page.")

    @model_validator(mode="after")
    def _interval(self) -> Self:
        check_interval(self.since, self.until)
        if self.origin is not None and self.kind == "page":
            raise refused("conflict", "does not apply to pages", "claims and relationships", field="origin")
        return self


@dataclass(frozen=True, slots=True, kw_only=True)
class EvidenceView:
    """One citation. Its keys are those that evidence arguments take, so that a locator can be sent back as it is."""

    path: str
    sha256: str
    attribution: str | None = None
    filename: str | None = None
    media_type: str | None = None
    start_line: int | None = None
    end_line: int | None = None
    quote: str | None = None
    excerpt: str | None = None

    def to_json(self) -> JsonObject:
        """The citation, its texts no longer than a tool may save them."""
        members: JsonObject = {
            "path": self.path,
            "sha256": self.sha256,
            "attribution": _clipped(self.attribution, ATTRIBUTION_MAX_CHARS),
            "filename": _clipped(self.filename, FILENAME_MAX_CHARS),
            "media_type": _clipped(self.media_type, FILENAME_MAX_CHARS),
            "start_line": self.start_line,
            "end_line": self.end_line,
            "quote": _clipped(self.quote, QUOTE_MAX_CHARS),
        }
        return {key: member for key, member in members.items() if member is not None}


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordView:
    """Everything that a single read may show of one record; empty members are left out.

    ``body`` is the complete text: a page's or relationship's ``body``, a claim's ``text``. ``issues`` are validation
    findings, ``attribution`` and the dates belong to claims and relationships.
    """

    id: str
    revision: int
    hash: str
    kind: str
    body: str
    title: str | None = None
    type: str | None = None
    lifecycle: str = "active"
    assertion_origin: str = "source"
    aliases: Sequence[str] = ()
    tags: Sequence[str] = ()
    dependencies: Sequence[str] = ()
    fields: Mapping[str, JsonValue] = field(default_factory=dict)
    pages: Sequence[PageRef] = ()
    claim_kind: str | None = None
    occurred_at: str | None = None
    due_at: str | None = None
    expires_at: str | None = None
    owner: PageRef | None = None
    source_page: str | None = None
    attribution: str | None = None
    subject_hint: str | None = None
    relationship_source: str | None = None
    relationship_target: str | None = None
    label: str | None = None
    supersedes: str | None = None
    superseded_by: str | None = None
    merged_into: str | None = None
    identity_uncertainty: str | None = None
    issues: Sequence[JsonObject] = ()

    def metadata(self) -> tuple[JsonObject, list[str]]:
        """All members but the text, in the order in which they are shown, and the names of those that were cut.

        What a tool can save is always whole; what a person wrote beyond those limits is cut to them (decisions.md
        section 5, Limits).
        """
        shown: JsonObject = {}
        cut: list[str] = []
        for name, member in self._members().items():
            if member is None or member in ([], {}):
                continue
            shown[name] = _within_limits(name, member)
            if shown[name] != member:
                cut.append(name)
        return {name: member for name, member in shown.items() if member not in ([], {})}, cut

    def _members(self) -> JsonObject:
        filled = {name: value for name, value in self.fields.items() if value not in (None, "", [], {})}
        return {
            "id": self.id,
            "revision": self.revision,
            "hash": self.hash,
            "kind": self.kind,
            "lifecycle": None if self.lifecycle == "active" else self.lifecycle,
            "title": self.title,
            "type": self.type,
            "claimKind": self.claim_kind,
            "assertionOrigin": None if self.assertion_origin == "source" else self.assertion_origin,
            "from": self.relationship_source,
            "label": self.label,
            "to": self.relationship_target,
            "occurredAt": self.occurred_at,
            "dueAt": self.due_at,
            "expiresAt": self.expires_at,
            "owner": None if self.owner is None else self.owner.to_json(),
            "attribution": self.attribution,
            "subjectHint": self.subject_hint,
            "sourcePage": self.source_page,
            "supersedes": self.supersedes,
            "supersededBy": self.superseded_by,
            "mergedInto": self.merged_into,
            "identityUncertainty": self.identity_uncertainty,
            "aliases": list(self.aliases),
            "tags": list(self.tags),
            "dependencies": list(self.dependencies),
            "fields": filled,
            "pages": [page.to_json() for page in self.pages],
            "issues": list(self.issues),
        }


def record_response(
    record: RecordView | None,
    request: RecordRequest,
    *,
    evidence: Sequence[EvidenceView] = (),
    beside: JsonObject | None = None,
) -> JsonObject:
    """The response to one read, at most ``max_chars`` long as JSON unless metadata leaves no room for a character.

    ``evidence`` is the record's complete list of citations; the request's window of 20 is taken here. Where text
    would be left with too little room, excerpts go first (named in ``omitted``), then later citations
    (``nextEvidenceOffset`` comes sooner). ``beside`` are further members of the response. Raises
    :class:`InvalidArgument` for an offset beyond the text or inside a surrogate pair.
    """
    if record is None:
        return {"record": None}
    remaining = text_from(record.body, request.offset)
    needed = min(TEXT_WINDOW_MIN, utf16_length(_compact(remaining)))
    metadata, cut = record.metadata()
    around: JsonObject = {}
    shown: JsonObject = metadata
    room = -1
    for citations, omitted in _ever_fewer(_window(evidence, request)):
        around = {**(beside or {}), **_around(request, len(citations), len(evidence), [*cut, *omitted])}
        shown = {**metadata, "evidence": citations} if request.include_evidence else metadata
        frame = {"nextOffset": LARGEST_OFFSET, **around, "record": {**shown, _text_key(record): ""}}
        room = request.max_chars - utf16_length(_compact(frame))
        if room >= needed:
            break
    # Metadata that fills the response alone is still shown, and each window must still move on.
    window = _fitting(remaining, max(room, 0)) or _fitting(remaining, TEXT_WINDOW_MIN)
    if len(window) < len(remaining):
        around = {"nextOffset": request.offset + utf16_length(window), **around}
    return {**around, "record": {**shown, _text_key(record): window}}


def records_response(
    rows: Sequence[Shown],
    *,
    total: int,
    offset: int,
    snapshot: str,
    coverage: JsonObject | None = None,
    max_bytes: int = ROWS_MAX_BYTES,
) -> JsonObject:
    """One page of the inventory, cut to ``max_bytes``; ``coverage`` only where something could not be listed."""
    records = rows_within((row.to_json() for row in rows), max_bytes)
    shown: JsonObject = {"total": total, **paging(offset=offset, returned=len(records), total=total, snapshot=snapshot)}
    if coverage:
        shown["coverage"] = coverage
    return {**shown, "records": records}


def text_from(text: str, offset: int, *, field: str = "offset") -> str:
    """``text`` from the UTF-16 ``offset`` on; refuses one beyond the end or inside a surrogate pair."""
    head = clip_utf16(text, offset)
    if utf16_length(head) != offset:
        inside = utf16_length(text) > offset
        what = "lies inside a surrogate pair: use a returned nextOffset" if inside else "lies beyond the end"
        reason = "inside_pair" if inside else "out_of_range"
        raise InvalidArgument(f"{field} {what}", field=field, reason=reason, allowed="a returned nextOffset")
    return text[len(head) :]


def _clipped(text: str | None, max_units: int) -> str | None:
    return None if text is None else clip_utf16(text, max_units)


def _within_limits(name: str, member: JsonValue) -> JsonValue:
    """A member of a record as a tool could have saved it; ``fields`` beyond their size are left out whole."""
    if name == "fields":
        return member if json_bytes(member) <= FIELDS_SHOWN_MAX_BYTES else {}
    if isinstance(member, list):
        return [_within_limits(f"{name}[]", item) for item in member[:LIST_ARGUMENT_MAX_ITEMS]]
    if isinstance(member, dict):
        return {key: _within_limits(f"{name}.{key}", item) for key, item in member.items()}
    if isinstance(member, str):
        return clip_utf16(member, _TEXT_LIMITS.get(name, REASON_MAX_CHARS))
    return member


_TEXT_LIMITS: Final[Mapping[str, int]] = {
    "title": TITLE_MAX_CHARS,
    "type": TAG_MAX_CHARS,
    "label": TAG_MAX_CHARS,
    "aliases[]": TITLE_MAX_CHARS,
    "tags[]": TAG_MAX_CHARS,
    "attribution": ATTRIBUTION_MAX_CHARS,
    "subjectHint": ABOUT_MAX_CHARS,
    "path": PATH_MAX_CHARS,
    "originals[].path": PATH_MAX_CHARS,
}


def _text_key(record: RecordView) -> str:
    return "text" if record.kind == "claim" else "body"


def _around(request: RecordRequest, cited: int, total: int, omitted: list[str]) -> JsonObject:
    around: JsonObject = {}
    following = request.evidence_offset + cited
    if cited and following < total:
        around["nextEvidenceOffset"] = following
    if omitted:
        around["omitted"] = omitted
    return around


def _window(evidence: Sequence[EvidenceView], request: RecordRequest) -> Sequence[EvidenceView]:
    if not request.include_evidence:
        return ()
    return evidence[request.evidence_offset : request.evidence_offset + EVIDENCE_PER_RESPONSE]


def _ever_fewer(window: Sequence[EvidenceView]) -> Iterator[tuple[list[JsonObject], list[str]]]:
    """The citations with their excerpts, then without them, then one citation fewer each time, down to one.

    Beside them, the names of the excerpts that were left out.
    """
    room, shown, dry = EVIDENCE_EXCERPT_CHARS, list[JsonObject](), list[str]()
    for index, citation in enumerate(window):
        item = citation.to_json()
        excerpt = clip_utf16(citation.excerpt or "", room)
        room -= utf16_length(excerpt)
        if excerpt:
            item["excerpt"] = excerpt
        elif citation.excerpt:
            dry.append(f"evidence[{index}].excerpt")
        shown.append(item)
    yield shown, dry
    bare = [citation.to_json() for citation in window]
    names = [f"evidence[{index}].excerpt" for index, citation in enumerate(window) if citation.excerpt]
    for count in range(len(bare), 0, -1):
        kept = {f"evidence[{index}].excerpt" for index in range(count)}
        yield bare[:count], [name for name in names if name in kept]


def _compact(value: JsonValue) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def _fitting(text: str, room: int) -> str:
    """The longest beginning of ``text`` whose JSON form takes at most ``room`` UTF-16 units."""
    low, high = 0, min(len(text), room)
    while low < high:
        middle = (low + high + 1) // 2
        if utf16_length(_compact(text[:middle])) - 2 <= room:
            low = middle
        else:
            high = middle - 1
    return text[:low]

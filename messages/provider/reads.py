"""The host's shared reads over Knowledge records: their requests and answers (memory-provider.md, Shared memory reads).

Plain values in, JSON objects out; any thread.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Annotated, ClassVar, Final, Literal, TypeAlias

from messages.json_types import JsonObject
from messages.pieces import Choice, Integer, Items, Share, Text
from messages.provider.cursors import CURSOR_MAX_CHARS
from messages.provider.references import MemoryReference
from messages.text import clip_utf16, utf16_length
from messages.tools import ROWS_MAX_BYTES, Kind, ToolRequest, json_bytes, rows_within
from messages.tools.recall import ProjectKey

Purpose: TypeAlias = Literal["status"]
PURPOSES: Final[tuple[Purpose, ...]] = ("status",)
SOURCES: Final = ("memory",)
Source: TypeAlias = Annotated[Literal["memory"], Choice(*SOURCES)]
CandidateKind: TypeAlias = Literal["trigger", "project"]
CANDIDATE_KINDS: Final[tuple[CandidateKind, ...]] = ("trigger", "project")

SEARCH_QUERY_MAX_CHARS: Final = 8_000
SEARCH_LIMIT_DEFAULT: Final = 10
SEARCH_LIMIT_MAX: Final = 50
READ_LINES_DEFAULT: Final = 100
READ_LINES_MAX: Final = 200
READ_LOCATORS_MAX: Final = 20
LINES_MAX_BYTES: Final = ROWS_MAX_BYTES
"""What the lines of one read may take, as JSON."""
LOCATORS_MAX_BYTES: Final = 16 * 1024
"""What the evidence locators of one read may take, as JSON."""
CANDIDATES_DEFAULT: Final = 48
CANDIDATES_MAX: Final = 200
CANDIDATES_MAX_BYTES: Final = 1024 * 1024
"""What one list of candidates may take; 200 of them with all that each may hold would take more than a line may."""
ACTIVE_PROJECTS_MAX: Final = 100
_LINE_NUMBER_MAX: Final = 10_000_000


class MemoryStatusRequest(ToolRequest):
    """How the memory of an audience is; ``purpose: status`` asks for readiness alone. Never creates a store."""

    tool: ClassVar[str] = "memory.status"
    purpose: Annotated[Purpose, Choice(*PURPOSES)] | None = None


class MemorySearchRequest(ToolRequest):
    """Ranked keywords over current records. ``query`` is free text, a whole message too."""

    tool: ClassVar[str] = "memory.search"
    query: Annotated[str, Text(max_units=SEARCH_QUERY_MAX_CHARS)]
    limit: Annotated[int, Integer(1, SEARCH_LIMIT_MAX)] = SEARCH_LIMIT_DEFAULT
    min_score: Annotated[float, Share()] = 0.0
    sources: Annotated[tuple[Source, ...], Items(minimum=1)] | None = None
    cursor: Annotated[str, Text(max_units=CURSOR_MAX_CHARS, one_line=True)] | None = None
    kind: Kind | None = None

    def filters(self) -> str:
        """What bounds the hits beside the query; how many come at a time is no filter."""
        return json.dumps([self.min_score, self.kind])


class MemoryReadRequest(ToolRequest):
    """Lines of one record, which must be at the very revision that the reference names."""

    tool: ClassVar[str] = "memory.read"
    ref: MemoryReference
    start_line: Annotated[int, Integer(1, _LINE_NUMBER_MAX)] = 1
    lines: Annotated[int, Integer(1, READ_LINES_MAX)] = READ_LINES_DEFAULT


class MemoryCandidatesRequest(ToolRequest):
    """Approved summaries. ``projects`` are the keys that are active for the host; left out, it does not say."""

    tool: ClassVar[str] = "memory.candidates"
    kind: Annotated[CandidateKind, Choice(*CANDIDATE_KINDS)]
    projects: Annotated[tuple[ProjectKey, ...], Items(maximum=ACTIVE_PROJECTS_MAX)] | None = None
    limit: Annotated[int, Integer(1, CANDIDATES_MAX)] = CANDIDATES_DEFAULT


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryHealth:
    """How one partition's files and ontology fare; ``findings`` counts what diagnostics would name.

    ``blocked`` is the code of what keeps the partition from being read now.
    """

    partition: Literal["private", "conversation"]
    records: int
    findings: int
    ontology_fingerprint: str
    ontology_findings: int
    index_state: str
    blocked: str | None = None

    def to_json(self) -> JsonObject:
        return {
            "ready": self.blocked is None,
            **({} if self.blocked is None else {"reason": self.blocked}),
            "partition": self.partition,
            "records": self.records,
            "vault": {"valid": self.findings == 0, "findings": self.findings},
            "ontology": {
                "valid": self.ontology_findings == 0,
                "findings": self.ontology_findings,
                "fingerprint": self.ontology_fingerprint,
            },
            "index": {"state": self.index_state},
        }


def readiness(ready: bool) -> JsonObject:
    """All that ``purpose: status`` learns: no counts, scope, ids or paths."""
    return {"ready": ready}


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryHit:
    """One hit. ``score`` is 1 for the best of its query; a page has neither origin nor attribution."""

    ref: JsonObject
    title: str
    kind: str
    score: float
    snippet: str
    assertion_origin: str | None
    attribution: str | None

    def to_json(self) -> JsonObject:
        return {
            "ref": self.ref,
            "title": self.title,
            "kind": self.kind,
            "score": self.score,
            "snippet": self.snippet,
            "assertionOrigin": self.assertion_origin,
            "attribution": self.attribution,
        }


def fitting_hits(hits: Iterable[MemoryHit]) -> list[JsonObject]:
    """The leading hits that fit into the response of a list; always the first."""
    return rows_within(hit.to_json() for hit in hits)


def search_response(hits: Sequence[JsonObject], next_cursor: str | None) -> JsonObject:
    """``nextCursor`` only while more hits remain."""
    return {"hits": list(hits), **({} if next_cursor is None else {"nextCursor": next_cursor})}


@dataclass(frozen=True, slots=True, kw_only=True)
class EvidenceLocator:
    """Where one retained source lies and which of its lines are meant; never its text."""

    path: str
    sha256: str
    attribution: str | None = None
    filename: str | None = None
    media_type: str | None = None
    size: int | None = None
    start_line: int | None = None
    end_line: int | None = None

    def to_json(self) -> JsonObject:
        found: JsonObject = {
            "path": self.path,
            "sha256": self.sha256,
            "startLine": self.start_line,
            "endLine": self.end_line,
            "attribution": self.attribution,
            "filename": self.filename,
            "mediaType": self.media_type,
            "size": self.size,
        }
        return {key: value for key, value in found.items() if value is not None}


def read_response(
    *,
    ref: JsonObject,
    kind: str,
    rendered: Sequence[str],
    start_line: int,
    lines: int,
    evidence: Sequence[EvidenceLocator],
) -> JsonObject:
    """Lines ``start_line`` and following, as many as are wanted and fit, and the first locators.

    ``nextStartLine`` is there while lines remain. A line that does not fit alone is cut, and ``cut`` says which one and
    how long it is; the rest of it is read with ``knowledge_record``. ``evidenceTotal`` is there where locators are left
    out.
    """
    wanted = rendered[start_line - 1 : start_line - 1 + lines]
    shown: list[str] = []
    room = LINES_MAX_BYTES
    cut: JsonObject | None = None
    for number, line in enumerate(wanted, start_line):
        # Nothing is shorter as JSON than it is: a line of megabytes need not be written to be known as too long.
        room -= (json_bytes(line) if len(line) <= LINES_MAX_BYTES else len(line)) + 1
        if room < 0 and shown:
            break
        if room < 0:
            kept = _clipped(line, LINES_MAX_BYTES)
            shown.append(kept)
            cut = {"line": number, "chars": utf16_length(line), "shownChars": utf16_length(kept)}
            break
        shown.append(line)
    following = start_line + len(shown)
    locators = _within(evidence[:READ_LOCATORS_MAX])
    return {
        "ref": ref,
        "kind": kind,
        "startLine": start_line,
        "totalLines": len(rendered),
        **({"nextStartLine": following} if shown and following <= len(rendered) else {}),
        **({} if cut is None else {"cut": cut}),
        **({"evidenceTotal": len(evidence)} if len(locators) < len(evidence) else {}),
        "evidence": locators,
        "lines": shown,
    }


def _within(evidence: Sequence[EvidenceLocator]) -> list[JsonObject]:
    kept: list[JsonObject] = []
    room = LOCATORS_MAX_BYTES
    for locator in evidence:
        written = locator.to_json()
        room -= json_bytes(written) + 1
        if room < 0:
            break
        kept.append(written)
    return kept


def _clipped(line: str, max_bytes: int) -> str:
    """The longest beginning, by halves, that fits as JSON."""
    low, high = 0, min(utf16_length(line), max_bytes)
    while low < high:
        middle = (low + high + 1) // 2
        if json_bytes(clip_utf16(line[:middle], middle)) <= max_bytes:
            low = middle
        else:
            high = middle - 1
    return clip_utf16(line[:low], low)


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate:
    """One approved summary, which is all of its record that a turn may be given unasked."""

    id: str
    ref: JsonObject
    excerpt: str
    triggers: Sequence[str]
    importance: int
    projects: Sequence[str]

    def to_json(self) -> JsonObject:
        return {
            "id": self.id,
            "ref": self.ref,
            "excerpt": self.excerpt,
            "triggers": list(self.triggers),
            "importance": self.importance,
            "projects": list(self.projects),
        }


def candidates_response(candidates: Iterable[Candidate]) -> JsonObject:
    """The leading candidates that fit; ``omitted`` counts those that do not."""
    kept: list[JsonObject] = []
    room, omitted = CANDIDATES_MAX_BYTES, 0
    for candidate in candidates:
        written = candidate.to_json()
        room -= json_bytes(written) + 1
        if room < 0:
            omitted += 1
        else:
            kept.append(written)
    return {"candidates": kept, **({"omitted": omitted} if omitted else {})}

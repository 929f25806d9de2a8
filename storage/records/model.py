"""The record: one page, claim or relationship, as its file says it.

A :class:`Record` is what could be read; what could not is a :class:`~storage.records.findings.Finding` beside it, and
the field has its empty value. Lists are tuples, absent texts are ``None``, so a record can be compared and hashed by
parts. Source: decisions.md section 2.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final, Literal, TypeAlias

from messages.json_types import JsonValue
from messages.vocabulary import AssertionOrigin, ClaimKind, Lifecycle, RecordKind
from storage.records.dates import Interval
from storage.records.findings import Finding

Confidence: TypeAlias = Literal["low", "medium", "high"]
CONFIDENCES: Final = ("low", "medium", "high")

_NOTHING: Final[Mapping[str, JsonValue]] = {}


@dataclass(frozen=True, slots=True)
class Scope:
    """What the file says of its partition. It decides nothing: scope comes from the folder (decisions.md section 2)."""

    visibility: Literal["private", "conversation"] = "private"
    session_id: str | None = None


@dataclass(frozen=True, slots=True)
class EvidenceCitation:
    """One retained source, narrowed to lines (inclusive, 1-based) or to a quote inside them.

    ``extra`` are keys that we do not know; they survive a rewrite of the list.
    """

    path: str
    sha256: str
    attribution: str | None = None
    filename: str | None = None
    media_type: str | None = None
    size: int | None = None
    start_line: int | None = None
    end_line: int | None = None
    quote: str | None = None
    extra: Mapping[str, JsonValue] = field(default_factory=lambda: _NOTHING)


@dataclass(frozen=True, slots=True)
class LifecycleChange:
    """Why and by whom a record left the active state."""

    reason: str
    at: str
    actor: str
    request_id: str


@dataclass(frozen=True, slots=True)
class Recall:
    """An approval for automatic recall. It counts only when history has the publication that set exactly this block."""

    summary: str
    triggers: tuple[str, ...] = ()
    importance: int = 5
    projects: tuple[str, ...] = ()
    approved_by: str | None = None
    approved_at: str | None = None


@dataclass(frozen=True, slots=True)
class Record:
    """All fields of a record file. Fields that its kind does not have are empty.

    ``revision`` is 0 when the file has none that can be read: the last known one counts then, and any known one is
    larger. ``recorded_at`` and ``updated_at`` are canonical UTC instants as :mod:`storage.records.dates` writes them;
    where the file has none that can be read they stand at 1970 and the record is invalid.
    ``unknown`` are the keys that we do not know, in the file's order.
    """

    id: str
    kind: RecordKind
    title: str
    recorded_at: str
    updated_at: str
    revision: int = 1
    scope: Scope = Scope()
    lifecycle: Lifecycle = "active"
    body: str = ""

    aliases: tuple[str, ...] = ()
    tags: tuple[str, ...] = ()
    dependencies: tuple[str, ...] = ()
    evidence: tuple[EvidenceCitation, ...] = ()

    type: str | None = None
    fields: Mapping[str, JsonValue] = field(default_factory=lambda: _NOTHING)
    merged_into: str | None = None

    claim_kind: ClaimKind | None = None
    assertion_origin: AssertionOrigin | None = None
    attribution: str | None = None
    subject_hint: str | None = None
    entities: tuple[str, ...] = ()
    owner: str | None = None
    occurred_at: Interval | None = None
    due_at: Interval | None = None
    expires_at: Interval | None = None
    source_page: str | None = None

    from_id: str | None = None
    to_id: str | None = None
    label: str | None = None

    supersedes: str | None = None
    superseded_by: str | None = None
    lifecycle_change: LifecycleChange | None = None

    identity_uncertainty: str | None = None
    attribution_confidence: Confidence | None = None
    continuity: tuple[str, ...] = ()
    fixture: bool = False

    recall: Recall | None = None
    unknown: Mapping[str, JsonValue] = field(default_factory=lambda: _NOTHING)

    @property
    def text(self) -> str:
        """A claim's text: its body without the white space around it."""
        return self.body.strip()

    def expired(self, now_ms: int) -> bool:
        """Whether ``expires_at`` is past, the whole of a partial date: then exact and history reads only."""
        return self.expires_at is not None and self.expires_at.end_ms <= now_ms


@dataclass(frozen=True, slots=True)
class ParsedRecord:
    """A file that is a record, with what is to be said about it.

    ``read_only`` marks a record of a newer format: it is listed and read, never rewritten.
    """

    record: Record
    path: str
    hash: str
    findings: tuple[Finding, ...] = ()
    read_only: bool = False

    @property
    def valid(self) -> bool:
        """No finding of severity ``error``. Ontology and references are judged elsewhere."""
        return not any(finding.severity == "error" for finding in self.findings)


@dataclass(frozen=True, slots=True)
class BrokenRecord:
    """A file that stays on disk and in diagnostics: no envelope, no YAML, or no identity.

    ``adoptable`` offers ``knowledge adopt``: plain Markdown without an envelope.
    """

    path: str
    hash: str
    findings: tuple[Finding, ...]
    adoptable: bool = False

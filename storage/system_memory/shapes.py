"""What a row, a record and their parts may be: checked before anything is written, every problem named at once.

Characters are Unicode code points. An error names fields and what is allowed, never a value. Pure; any thread.

Source: system-memory-contract.md sections 2 and 4; decisions.md section 5 (Limits).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import date
from typing import Final, Literal

from messages.errors import EvidenceInvalid, InvalidArgument, KnowledgeError, LimitExceeded
from messages.json_types import JsonObject, JsonValue
from messages.text import text_fault
from storage.system_memory.model import (
    ACCOUNT_MAX_CHARS,
    BODY_MAX_CHARS,
    ENTITY_MAX_CHARS,
    EVIDENCE_KINDS,
    EVIDENCE_MAX_REFS,
    GROUND_MAX_CHARS,
    SLUG_MAX_CHARS,
    SLUG_PREFIX,
    SOURCE_REF_MAX_CHARS,
    STANCE_MAX_CHARS,
    TIERS,
    VERDICTS,
    EvidenceKind,
    EvidenceReference,
    SystemFields,
    Tier,
    Verdict,
)

_STANCE: Final = re.compile(r"[a-z0-9]+(?:-[a-z0-9]+)*")
_DAY: Final = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}")
_CLASSES: Final[Mapping[str, type[KnowledgeError]]] = {
    cls.code: cls for cls in (InvalidArgument, LimitExceeded, EvidenceInvalid)
}
REFERENCE_MAX_CHARS: Final = 2_000


def require_account(account: str) -> None:
    """Raise ``InvalidArgument`` for a name under which nothing can be kept: every door hands in names of its own."""
    if text_fault(account) is not None or not 1 <= len(account) <= ACCOUNT_MAX_CHARS or account != account.strip():
        form = f"1 to {ACCOUNT_MAX_CHARS} characters without space around them"
        raise InvalidArgument(f"An account is {form}.", field="account", reason="malformed", allowed=form)


@dataclass(frozen=True, slots=True)
class ClaimDraft:
    """A system claim as somebody wrote it: nothing is checked yet."""

    slug: object = None
    body: object = None
    tier: object = None
    as_of: object = None
    evidence_refs: object = None
    entity: object = None
    admission: object = None


@dataclass(frozen=True, slots=True)
class _Problem:
    code: str
    field: str
    what: str
    reason: str
    allowed: JsonValue


@dataclass(slots=True)
class Findings:
    """The problems of one request, in the order in which they were found."""

    problems: list[_Problem] = field(default_factory=list)

    def add(self, name: str, what: str, reason: str, allowed: JsonValue = None, code: str = "invalid_argument") -> None:
        self.problems.append(_Problem(code, name, what, reason, allowed))

    def settle(self) -> None:
        """Raise the error that names all of them, if there are any; its code is the first one's."""
        if not self.problems:
            return
        shown: list[JsonObject] = []
        for problem in self.problems:
            entry: JsonObject = {"code": problem.code, "field": problem.field, "reason": problem.reason}
            if problem.allowed is not None:
                entry["allowed"] = problem.allowed
            shown.append(entry)
        first = shown[0]
        fields: JsonObject = {key: value for key, value in first.items() if key != "code"}
        if len(shown) > 1:
            fields["problems"] = [*shown]
        said = "; ".join(f"{problem.field} {problem.what}" for problem in self.problems)
        raise _CLASSES[self.problems[0].code](f"{said}.", retry=None, **fields)

    def text(self, name: str, value: object, most: int) -> str:
        """Trimmed text of 1 to ``most`` characters."""
        if value is None:
            self.add(name, "is required", "missing", f"1 to {most} characters")
        elif not isinstance(value, str):
            self.add(name, "must be a string", "wrong_type", "a string")
        elif (fault := text_fault(value)) is not None:
            self.add(name, "holds what is no Unicode text", fault, "Unicode text without NUL")
        elif not (kept := value.strip()):
            self.add(name, "must not be blank", "blank", f"1 to {most} characters")
        elif len(kept) > most:
            self.add(
                name, f"has more than {most} characters", "too_long", f"at most {most} characters", "limit_exceeded"
            )
        else:
            return kept
        return ""

    def word(self, name: str, value: object, words: tuple[str, ...]) -> str:
        """One of some words."""
        if isinstance(value, str) and value in words:
            return value
        reason = "missing" if value is None else "not_allowed"
        self.add(name, f"must be one of: {', '.join(words)}", reason, list(words))
        return words[0]

    def slug(self, value: object) -> str:
        """``sys:`` and at least one character after it."""
        kept = self.text("slug", value, SLUG_MAX_CHARS)
        if kept and (not kept.startswith(SLUG_PREFIX) or len(kept) == len(SLUG_PREFIX)):
            form = f"{SLUG_PREFIX} and a name, {SLUG_MAX_CHARS} characters at most"
            self.add("slug", f"must be {form}", "malformed", form)
        return kept

    def day(self, name: str, value: object) -> str:
        """A day that exists, written ``YYYY-MM-DD``."""
        if isinstance(value, str) and _DAY.fullmatch(value):
            try:
                return date.fromisoformat(value).isoformat()
            except ValueError:
                pass
        reason = "missing" if value is None else "malformed"
        self.add(name, "must be a day, as 2026-09-20", reason, "YYYY-MM-DD")
        return ""

    def stance(self, value: str) -> str:
        """The id of a stance: lower-case words joined by hyphens."""
        kept = value.strip()
        if len(kept) > STANCE_MAX_CHARS or not _STANCE.fullmatch(kept):
            form = f"lower-case letters and digits in words joined by single hyphens, at most {STANCE_MAX_CHARS}"
            self.add("stance", f"must be {form}", "malformed", form)
        return kept

    def evidence(self, value: object) -> tuple[EvidenceReference, ...]:
        """1 to 20 references; other keys of each are dropped."""
        name, limit = "evidenceRefs", f"1 to {EVIDENCE_MAX_REFS} references {{kind, ref, digest}}"
        if not isinstance(value, list | tuple) or not value:
            reason = "missing" if value is None or value in ([], ()) else "wrong_type"
            self.add(name, f"must hold {limit}", reason, limit, "evidence_invalid")
            return ()
        if len(value) > EVIDENCE_MAX_REFS:
            self.add(name, f"must hold {limit}", "too_many", limit, "evidence_invalid")
            return ()
        return tuple(self._reference(f"{name}[{place}]", entry) for place, entry in enumerate(value))

    def _reference(self, name: str, entry: object) -> EvidenceReference:
        if not isinstance(entry, Mapping):
            self.add(name, "must be {kind, ref, digest}", "wrong_type", "{kind, ref, digest}", "evidence_invalid")
            return EvidenceReference("receipt", "", "")
        kind = entry.get("kind")
        chosen: EvidenceKind = "receipt"
        if kind == "receipt" or kind == "memory" or kind == "url":
            chosen = kind
        else:
            what = f"must be one of: {', '.join(EVIDENCE_KINDS)}"
            self.add(f"{name}.kind", what, "not_allowed", list(EVIDENCE_KINDS), "evidence_invalid")
        kept: dict[str, str] = {}
        for key in ("ref", "digest"):
            before = len(self.problems)
            kept[key] = self.text(f"{name}.{key}", entry.get(key), REFERENCE_MAX_CHARS)
            self.problems[before:] = [
                _Problem("evidence_invalid", found.field, found.what, found.reason, found.allowed)
                for found in self.problems[before:]
            ]
        return EvidenceReference(chosen, kept["ref"], kept["digest"])

    def own_row(self, body: object, source_ref: object) -> tuple[str, str | None]:
        """The texts of an account's own row."""
        return (
            self.text("body", body, BODY_MAX_CHARS),
            None if source_ref is None else self.text("sourceRef", source_ref, SOURCE_REF_MAX_CHARS),
        )

    def claim(self, draft: ClaimDraft) -> tuple[str, SystemFields]:
        """The body and the fields of a system row."""
        slug = self.slug(draft.slug)
        body = self.text("body", draft.body, BODY_MAX_CHARS)
        tier: Tier = "glass" if self.word("tier", draft.tier, TIERS) == "glass" else "ledger"
        as_of = self.day("asOf", draft.as_of)
        evidence = self.evidence(draft.evidence_refs)
        entity = None if draft.entity is None else self.text("entity", draft.entity, ENTITY_MAX_CHARS)
        admission: Literal["candidate", "admitted", "rejected"] = "candidate"
        if draft.admission is not None:
            claimed = self.word("admission", draft.admission, ("candidate", *VERDICTS))
            admission = "admitted" if claimed == "admitted" else "rejected" if claimed == "rejected" else "candidate"
        return body, SystemFields(slug, tier, as_of, evidence, entity, admission)

    def ground(self, value: object) -> str:
        """Why a record was made."""
        return self.text("ground", value, GROUND_MAX_CHARS)

    def verdict(self, value: object) -> Verdict:
        """What an admission decides."""
        return "rejected" if self.word("verdict", value, VERDICTS) == "rejected" else "admitted"

"""What a reader says about a file that it can still show: one finding, one named code."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal, TypeAlias

from messages.json_types import JsonObject

Severity: TypeAlias = Literal["error", "note"]


@dataclass(frozen=True, slots=True)
class Finding:
    """One diagnostic. An ``error`` makes its record invalid (listed, not eligible); a ``note`` does not.

    ``field`` is the dotted path of the value (``evidence[0].sha256``), empty for the file as a whole. ``line`` is
    1-based in the file, ``None`` where the finding has no place of its own. The message never repeats record text.
    """

    code: str
    field: str
    message: str
    severity: Severity = "error"
    line: int | None = None

    def under(self, prefix: str) -> Finding:
        """The same finding with ``field`` moved below ``prefix``."""
        return replace(self, field=f"{prefix}.{self.field}" if self.field else prefix)

    def to_json(self) -> JsonObject:
        """As diagnostics show it; ``line`` only where there is one."""
        shown: JsonObject = {"code": self.code, "field": self.field, "message": self.message, "severity": self.severity}
        if self.line is not None:
            shown["line"] = self.line
        return shown


def errors(findings: tuple[Finding, ...]) -> tuple[Finding, ...]:
    """Only those that make a record invalid."""
    return tuple(finding for finding in findings if finding.severity == "error")

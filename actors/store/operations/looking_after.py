"""What an operator asks of one open store: how it is, what is wrong with which file, and the loss that was refused.

Complete responses: paths and generations are shown, text of records never. Source: stores-and-access.md (Caller
authority), decisions.md section 7 (``operator.*``), WRITE-PATH.md section 6.
"""

from __future__ import annotations

from typing import Final

from actors.store.operations.context import OperationContext
from actors.store.operations.status import status
from messages.json_types import JsonObject
from messages.operator import AcceptDeletionsRequest, OperatorDiagnosticsRequest, OperatorStatusRequest
from messages.tools import StatusRequest, rows_within
from messages.tools.operator_reads import FINDINGS_MAX_BYTES, FIRST_FINDINGS_MAX_BYTES
from storage.publication import RecoveryReport
from storage.records import format_instant
from storage.state import journal

STATUS_FINDINGS: Final = 20
"""How many findings status carries; diagnostics has them all."""

RECOVERED_SHOWN: Final = 100
"""Of the requests that an opening finished, of the paths that it touched, and of the notices of all openings."""

COMMANDS: Final[dict[str, str]] = {
    "deletions_refused": "knowledge store accept-deletions",
    "vault_older_than_database": "knowledge store adopt",
    "database_older_than_vault": "knowledge store adopt",
    "checkpoint_conflict": "knowledge store adopt",
    "manifest_missing": "knowledge store adopt",
}
"""The command with which a person settles a state that only a person may settle."""


def operator_status(context: OperationContext, request: OperatorStatusRequest) -> JsonObject:
    """The agent's own view, and beside it the notices of recovery, an adoption, and the first findings."""
    publisher = context.session.store.publisher
    live = context.session.live
    shown = status(context, StatusRequest())
    shown["state"] = "open" if context.blocked is None else "blocked"
    if context.blocked is not None:
        shown["refusal"] = refusal(context.blocked.code, context.blocked.message, dict(context.blocked.fields))
    if live.reason:
        shown["liveReason"] = live.reason
    shown["generation"] = publisher.pair.generation
    shown["recovery"] = _recovery(publisher.report)
    shown["notices"] = list(publisher.notices[:RECOVERED_SHOWN])
    adoption = journal.last_adoption(publisher.db)
    if adoption is not None:
        at_ns, actor, what = adoption
        told: JsonObject = {key: what[key] for key in ("code", "database", "vault", "now") if key in what}
        shown["adopted"] = {"at": format_instant(at_ns // 1_000_000), "actor": actor, **told}
    shown["diagnostics"] = findings_within(context, STATUS_FINDINGS, FIRST_FINDINGS_MAX_BYTES)
    return shown


def _recovery(report: RecoveryReport) -> JsonObject:
    """What opening the store had to do; a machine that stopped may have left thousands of files behind."""
    finished, notices = report.finished[:RECOVERED_SHOWN], report.notices[:RECOVERED_SHOWN]
    shown: JsonObject = {
        "kind": report.kind,
        "finished": list(finished),
        "paths": [{"path": notice.path, "what": notice.happened} for notice in notices],
    }
    if len(finished) < len(report.finished) or len(notices) < len(report.notices):
        shown["totals"] = {"finished": len(report.finished), "paths": len(report.notices)}
    return shown


def operator_diagnostics(context: OperationContext, request: OperatorDiagnosticsRequest) -> JsonObject:
    """Findings by path, at most 1,000, their number, whether some are left out, and what recovery has to tell."""
    notices = context.session.store.publisher.notices[:RECOVERED_SHOWN]
    return {**findings_within(context, request.limit), "notices": list(notices)}


def accept_deletions(context: OperationContext, request: AcceptDeletionsRequest) -> JsonObject:
    """Record as gone what is gone, however much it is; ``removed`` counts files."""
    session = context.session
    before = context.catalogue.file_count()
    session.accept_deletions()
    try:
        session.refresh(context.check)
    finally:
        session.accept_deletions(False)
    left = context.catalogue.file_count()
    return {"removed": max(before - left, 0), "files": left}


def refusal(code: str, message: str, fields: JsonObject) -> JsonObject:
    """What keeps a store or a partition from answering, with the command that settles it where there is one."""
    shown: JsonObject = {"code": code, "message": message, **fields}
    if code in COMMANDS:
        shown["command"] = COMMANDS[code]
    return shown


def findings_within(context: OperationContext, limit: int, max_bytes: int = FINDINGS_MAX_BYTES) -> JsonObject:
    """Up to ``limit`` findings, fewer where they are long; ``truncated`` says that there are more."""
    found, total = context.session.diagnostics(limit)
    shown = rows_within((finding.to_json() for finding in found), max_bytes)
    return {
        "findings": [*shown],
        "total": total,
        "truncated": total > len(shown),
        "withheld": context.session.uncovered().get("withheld", 0),
    }

"""``knowledge backup``: a verified copy of every store, or of one, while agents go on. Standard library only."""

from __future__ import annotations

import os
import time
import uuid

from host_bridge.cli import exits, output
from host_bridge.cli.options import STATE_DIR, UsageError, parse, state_dir
from host_bridge.cli.progress import progress, size
from host_bridge.cli.stores import rows_of
from host_bridge.owner.client import Connection, Lost, OwnerError, reach

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from messages.json_types import JsonObject

_OPTIONS = {**STATE_DIR, "--store": True, "--all": False, "--dry-run": False, "--json": False}
_REQUEST_SECONDS = 60.0
_POLL_SECONDS = 0.1
_FINDINGS_SHOWN = 20


def run(arguments: Sequence[str]) -> int:
    options = parse(arguments, _OPTIONS, words=1)
    if not options.words:
        raise UsageError("name the folder to make, as in: knowledge backup ~/backups/knowledge-monday")
    params: JsonObject = {"path": os.path.abspath(os.path.expanduser(options.words[0]))}
    store = options.get("--store")
    if store is not None:
        if options.has("--all"):
            raise UsageError("--store ID and --all exclude each other")
        try:
            params["store"] = str(uuid.UUID(store))
        except ValueError:
            raise UsageError(f"{store!r} is no store's id; `knowledge stores list` names them") from None
    if options.has("--dry-run"):
        params["dryRun"] = True
    compact = options.has("--json")
    try:
        connection = reach(state_dir(options))
        try:
            begun = _request(connection, "operator.backup", params)
            with progress(quiet=compact) as show:
                result = _wait(connection, begun, show)
        finally:
            connection.close()
    except OwnerError as error:
        return output.failure(error, compact=compact)
    findings = rows_of(result, "findings")
    output.emit(output.as_json(result, compact=True) if compact else _in_words(result, findings))
    return exits.FINDINGS if findings else exits.OK


def _wait(connection: Connection, begun: JsonObject, show: Callable[[JsonObject], None]) -> JsonObject:
    """The result; raises :class:`OwnerError` for a failed one."""
    report = begun
    while report.get("state") == "running":
        step = report.get("progress")
        show(step if isinstance(step, dict) else {})
        time.sleep(_POLL_SECONDS)
        report = _request(connection, "operator.backupStatus", {})
    error = report.get("error")
    if isinstance(error, dict):
        fields = {key: value for key, value in error.items() if key not in ("code", "message", "retry")}
        raise OwnerError(str(error.get("code")), str(error.get("message")), str(error.get("retry")), fields)
    return report


def _request(connection: Connection, method: str, params: JsonObject) -> JsonObject:
    try:
        result = connection.request(method, params, _REQUEST_SECONDS)
    except (Lost, TimeoutError):
        raise OwnerError(
            "restarting", "The owner ended or does not answer; no unfinished backup counts. Begin again.", "safe"
        ) from None
    return result if isinstance(result, dict) else {}


def _in_words(result: JsonObject, findings: Sequence[JsonObject]) -> str:
    what = f"{_count(result, 'stores', 'store')}, {_count(result, 'files', 'file')}, {size(result.get('bytes'))}"
    if result.get("dryRun") is True:
        lines = [f"Nothing was written. A backup at {result.get('path')} would hold about {what}."]
    else:
        lines = [f"The backup is complete: {result.get('path')} ({what}).", "Prove it at any time, writing nothing:"]
        lines.append(f"  knowledge restore --dry-run --state-dir EMPTY-DIR {result.get('path')}")
    if findings:
        lines.append(f"Look at {_count({'n': len(findings)}, 'n', 'finding')}:")
        lines += [f"  {row.get('code')}: {row.get('message')}" for row in findings[:_FINDINGS_SHOWN]]
        if len(findings) > _FINDINGS_SHOWN:
            lines.append(f"  and {len(findings) - _FINDINGS_SHOWN} more; --json has them")
    return "\n".join(lines)


def _count(result: JsonObject, key: str, noun: str) -> str:
    number = result.get(key)
    return f"{number} {noun}{'' if number == 1 else 's'}"

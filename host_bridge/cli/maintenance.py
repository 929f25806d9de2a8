"""``knowledge maintenance``: look after the stores now, or show when that happens and what it found.

The standard library only; ``rich`` is imported for a person's terminal alone.
"""

from __future__ import annotations

import sys
import time
from contextlib import contextmanager

from host_bridge.cli import exits, output
from host_bridge.cli.asking import ask
from host_bridge.cli.options import STATE_DIR, parse, state_dir, what_to_do
from host_bridge.owner.client import Connection, Lost, OwnerError, reach

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from messages.json_types import JsonObject, JsonValue

_OPTIONS = {**STATE_DIR, "--json": False}
_REQUEST_SECONDS = 30.0
_POLL_SECONDS = 0.2
_IDS_SHOWN = 5
STEPS = {
    "partitions": "opening",
    "link": "linking claims",
    "evidence": "verifying evidence",
    "files": "comparing files",
    "index": "checking the index",
    "merge": "merging the index",
    "report": "looking for duplicates",
    "database": "checking the database",
    "repository": "checking the repository",
}


def run(arguments: Sequence[str]) -> int:
    name, rest = (arguments[0], arguments[1:]) if arguments else ("", [])
    if name == "run":
        return _run(rest)
    if name == "status":
        return _status(rest)
    raise what_to_do(name, ("run", "status"))


def _run(arguments: Sequence[str]) -> int:
    options = parse(arguments, {**_OPTIONS, "--agent": True})
    agent, compact = options.get("--agent"), options.has("--json")
    try:
        connection = reach(state_dir(options))
        try:
            begun = _request(connection, "operator.runMaintenance", {} if agent is None else {"agent": agent})
            with _progress(quiet=compact) as show:
                report = _wait(connection, begun, show)
        finally:
            connection.close()
    except OwnerError as error:
        return output.failure(error, compact=compact)
    last = _object(report.get("lastRun"))
    started = str(last.get("startedAt", ""))
    stores = [row for row in _rows(report, "stores") if str(row.get("startedAt", "")) >= started]
    if compact:
        answer: JsonObject = {"joined": begun.get("joined") is True, "run": last, "stores": [*stores]}
        output.emit(output.as_json(answer, compact=True))
    else:
        lines = ["A run was under way already; this is its result."] if begun.get("joined") else []
        for row in stores:
            lines += store_in_words(row)
        output.emit(output.told([*lines, outcome_in_words(last)]))
    return _exit_status(last)


def _status(arguments: Sequence[str]) -> int:
    options = parse(arguments, _OPTIONS)
    compact = options.has("--json")
    try:
        report = ask(state_dir(options), "operator.maintenance", {}, deadline_ms=int(_REQUEST_SECONDS * 1000))
    except OwnerError as error:
        return output.failure(error, compact=compact)
    output.emit(output.as_json(report, compact=True) if compact else _in_words(report))
    return exits.OK


def _request(connection: Connection, method: str, params: JsonObject) -> JsonObject:
    try:
        result = connection.request(method, params, _REQUEST_SECONDS)
    except (Lost, TimeoutError):
        raise OwnerError(
            "restarting", "The owner ended or does not answer; `knowledge maintenance status` shows how far it got.",
            "unknown",
        ) from None  # fmt: skip
    return _object(result)


def _wait(connection: Connection, begun: JsonObject, show: Callable[[JsonObject], None]) -> JsonObject:
    """The report once the run is over."""
    started = _object(begun.get("running")).get("startedAt")
    report = begun
    while True:
        running = _object(report.get("running"))
        if running.get("startedAt") != started:
            return report
        show(running)
        time.sleep(_POLL_SECONDS)
        report = _request(connection, "operator.maintenance", {})


@contextmanager
def _progress(*, quiet: bool) -> Iterator[Callable[[JsonObject], None]]:
    """What shows a run's progress: a bar on a person's terminal, nothing elsewhere."""
    if quiet or not sys.stderr.isatty():
        yield lambda running: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

    columns = (TextColumn("{task.description}"), BarColumn(), TextColumn("{task.fields[step]}"), TimeElapsedColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("maintenance", total=None, step="")

        def show(running: JsonObject) -> None:
            stores, index = _number(running, "stores"), _number(running, "store")
            of, done = max(_number(running, "partitions"), 1), _number(running, "partition")
            step = STEPS.get(str(running.get("step")), "")
            where = f"store {min(index + 1, stores)} of {stores}"
            bar.update(task, description=where, total=max(stores, 1), completed=index + done / (of + 1), step=step)

        yield show


def _in_words(report: JsonObject) -> str:
    schedule = _object(report.get("schedule"))
    if schedule.get("enabled"):
        hours = _number(schedule, "everySeconds") / 3_600
        due = _local(report, "nextRun")
        lines = [f"Maintenance runs every {hours:g} h from {schedule.get('at')} local time; next at {due}."]
    else:
        lines = ["Maintenance is switched off (maintenance.enabled); `knowledge maintenance run` runs it now."]
    running = _object(report.get("running"))
    if running:
        step = STEPS.get(str(running.get("step")), "beginning")
        lines.append(
            f"It runs now, since {_local(running, 'startedAt')}: store {_number(running, 'store') + 1} of "
            f"{running.get('stores')}, {step}."
        )
    last = _object(report.get("lastRun"))
    if not running:
        lines.append(outcome_in_words(last) if last else "It has not run yet.")
    for row in _rows(report, "stores"):
        lines += store_in_words(row)
    return output.told(lines)


def outcome_in_words(last: Mapping[str, JsonValue]) -> str:
    """What became of a run."""
    failed = _rows(last, "failed")
    said = {
        "done": f"Done: {last.get('stores')} stores looked after",
        "partly": f"{len(failed)} of {last.get('stores')} stores could not be looked after",
        "stopped": "The run was stopped before its end; run it again",
        "interrupted": "The process ended during the run; run it again",
    }.get(str(last.get("outcome")), f"The run is {last.get('outcome')}")
    return f"{said} ({last.get('trigger')}, {_local(last, 'startedAt')})."


def store_in_words(row: Mapping[str, JsonValue]) -> list[str]:
    """What one store's result says, in a few lines."""
    lines = [f"store {row.get('vaultId')}  {row.get('outcome')}, {_local(row, 'finishedAt')}"]
    if row.get("outcome") != "done":
        return [*lines, f"  {row.get('code')}: {row.get('message')}"]
    links, evidence, files = (_object(row.get(name)) for name in ("links", "evidence", "files"))
    index, growth = _object(row.get("index")), _object(row.get("growth"))
    if row.get("checkedOnly"):
        lines.append("  checked only: writes are disabled")
    else:
        lines.append(
            f"  claims     {_number(links, 'linked')} linked; left alone: {_number(links, 'ambiguous')} ambiguous, "
            f"{_number(links, 'missing')} without a page, {_number(links, 'duplicate')} repeats"
        )
    failed = [f"{_object(each).get('id')} ({_object(each).get('reason')})" for each in _list(evidence, "ids")]
    lines.append(
        f"  evidence   {_number(evidence, 'citations')} citations, {_number(evidence, 'failed')} records fail"
        + _few(failed)
    )
    lines.append(
        f"  files      {_number(files, 'compared')} compared, {_number(files, 'changed')} had changed without a trace"
        + _few(_list(files, "changedIds"))
    )
    if _number(files, "lost"):
        lines.append(f"  history    {_number(files, 'lost')} texts are damaged{_few(_list(files, 'lostIds'))}")
    lines.append(
        f"  database   {row.get('database', 'not checked')}; repository {row.get('repository', 'not checked')}; index "
        + ("rebuilt" if _number(index, "damaged") else "sound")
    )
    groups = [" = ".join(map(str, group)) for group in _list(_object(row.get("duplicates")), "groups")
              if isinstance(group, list)]  # fmt: skip
    lines.append(f"  duplicates {_number(_object(row.get('duplicates')), 'total')} likely{_few(groups)}")
    uncited = _object(row.get("uncited"))
    lines.append(f"  uncited    {_number(uncited, 'total')} sources{_few(_list(uncited, 'requests'))}")
    unfinished = _object(row.get("unfinished"))
    if _number(unfinished, "total"):
        lines.append(
            f"  unfinished {_number(unfinished, 'total')} uploads with {_bytes(unfinished, 'bytes')}"
            f"{_few(_list(unfinished, 'requests'))}"
        )
    lines.append(
        f"  size       fullest partition {_number(growth, 'entries')} of {_number(growth, 'entriesLimit')} entries"
        f"{', raise limits.scanEntries' if growth.get('nearlyFull') else ''}; texts {_bytes(growth, 'textBytes')}, "
        f"database {_bytes(growth, 'databaseBytes')}, its log {_bytes(growth, 'walBytes')}"
    )
    lines += [
        f"  not done   {each.get('part')} of {each.get('partition')}: {each.get('code')}"
        for each in _rows(row, "failures")
    ]
    return lines


def _exit_status(last: Mapping[str, JsonValue]) -> int:
    outcome = last.get("outcome")
    if outcome == "done":
        return exits.OK
    failed = _rows(last, "failed")
    if outcome == "partly" and failed:
        return exits.status_of(OwnerError(str(failed[0].get("code")), "", str(failed[0].get("retry"))))
    return exits.UNAVAILABLE


def _local(values: Mapping[str, JsonValue], name: str) -> str:
    """An instant by the clock that the schedule goes by, the local one; ``--json`` has it in UTC."""
    from datetime import datetime  # for words alone

    try:
        return datetime.fromisoformat(str(values.get(name))).astimezone().strftime("%Y-%m-%d %H:%M")
    except ValueError:
        return "an unknown time"


def _few(values: Sequence[JsonValue]) -> str:
    if not values:
        return ""
    more = ", ..." if len(values) > _IDS_SHOWN else ""
    return ": " + ", ".join(str(value) for value in values[:_IDS_SHOWN]) + more


def _bytes(values: Mapping[str, JsonValue], name: str) -> str:
    size = float(_number(values, name))
    for unit in ("B", "KiB", "MiB"):
        if size < 1024:
            return f"{size:.0f} {unit}"
        size /= 1024
    return f"{size:.1f} GiB"


def _object(value: JsonValue) -> JsonObject:
    return value if isinstance(value, dict) else {}


def _list(values: Mapping[str, JsonValue], name: str) -> list[JsonValue]:
    found = values.get(name)
    return found if isinstance(found, list) else []


def _rows(values: Mapping[str, JsonValue], name: str) -> list[JsonObject]:
    return [row for row in _list(values, name) if isinstance(row, dict)]


def _number(values: Mapping[str, JsonValue], name: str) -> int:
    found = values.get(name)
    return found if isinstance(found, int) else 0

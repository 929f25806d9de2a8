"""``knowledge gate``: read the recall gate's log lines back, and find a threshold from labelled turns.

Reads files only: no owner, no store. What it prints holds ids and numbers, as the log does.

Source: memory-provider.md (Recall gate: run it in shadow mode, read the scores, retune the threshold).
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from host_bridge.cli import exits, output
from host_bridge.cli.options import STATE_DIR, UsageError, parse, state_dir, what_to_do
from host_bridge.decisions.gate_log import GateLog, Unreadable, read_labels, read_log, replay, tune

if TYPE_CHECKING:
    from collections.abc import Sequence

    from host_bridge.cli.options import Options
    from messages.json_types import JsonObject

_OPTIONS = {**STATE_DIR, "--json": False, "--precision": True}
_COMMANDS = ("replay", "tune")
_PRECISION = 0.8
_FEW = 30
_SHOWN = 10
_WHERE = (
    "A host that runs `knowledge serve --stdio` has the lines on that command's standard error when no owner ran "
    "before: keep them in a file and name it."
)


def run(arguments: Sequence[str]) -> int:
    options = parse(arguments, _OPTIONS, words=3)
    command = options.words[0] if options.words else ""
    if command not in _COMMANDS:
        raise what_to_do(command, _COMMANDS)
    try:
        if command == "replay":
            return _replay(options)
        return _tune(options)
    except OSError as error:
        output.complain(f"knowledge gate: {error.filename}: {error.strerror}")
        return exits.REFUSED


def _replay(options: Options) -> int:
    if options.has("--precision"):
        raise UsageError("--precision belongs to tune")
    if len(options.words) > 2:
        raise UsageError(f"unexpected word {options.words[2]!r}")
    path, log = _log(options, 1)
    if not log.turns:
        return _no_turns(path)
    found: JsonObject = {"log": path, "unreadable": len(log.unreadable), **replay(log.turns)}
    output.emit(output.as_json(found, compact=True) if options.has("--json") else output.told(_replayed(found)))
    return exits.OK


def _tune(options: Options) -> int:
    if len(options.words) < 2:
        raise UsageError("tune needs a file with labels")
    precision = _share(options.get("--precision"))
    path = options.words[1]
    with open(path, encoding="utf-8-sig", errors="replace") as file:
        labels, wrong = read_labels(file)
    if wrong:
        _complain(path, wrong)
        output.complain("knowledge gate: mend the labels; nothing was counted")
        return exits.REFUSED
    log_path, log = _log(options, 2)
    if not any(turn.turn is not None for turn in log.turns):
        return _no_turns(log_path)
    found: JsonObject = {"log": log_path, "unreadable": len(log.unreadable)}
    found |= tune(log.turns, labels, precision=precision)
    output.emit(output.as_json(found, compact=True) if options.has("--json") else output.told(_tuned(found)))
    return exits.OK


def _log(options: Options, place: int) -> tuple[str, GateLog]:
    """The named log, or the owner's; what of it cannot be read is said on stderr."""
    given = options.words[place] if len(options.words) > place else None
    path = os.path.join(state_dir(options), "knowledge", "owner.log") if given is None else given
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            log = read_log(file)
    except FileNotFoundError as error:
        if given is not None:
            raise
        raise FileNotFoundError(error.errno, f"there is no log yet. {_WHERE}", path) from error
    _complain(path, log.unreadable)
    return path, log


def _complain(path: str, wrong: Sequence[Unreadable]) -> None:
    for one in wrong[:_SHOWN]:
        output.complain(f"{path}:{one.line}: {one.problem}")
    if len(wrong) > _SHOWN:
        output.complain(f"{path}: {len(wrong) - _SHOWN} more lines like these")


def _no_turns(path: str) -> int:
    output.complain(
        f"knowledge gate: {path} has no line of the recall gate that can be used. The gate logs one line a user turn, "
        f"from recallGate.mode: shadow on, for an agent with a decisionModel. {_WHERE}"
    )
    return exits.REFUSED


def _share(text: str | None) -> float:
    if text is None:
        return _PRECISION
    try:
        value = float(text)
    except ValueError:
        value = -1.0
    if not 0 < value <= 1:
        raise UsageError(f"--precision must be a number above 0 and at most 1, not {text!r}")
    return value


def _replayed(found: JsonObject) -> list[str]:
    turns = _int(found["turns"])
    latency = found["latencyMs"]
    assert isinstance(latency, dict)
    lines = [
        f"{turns} turns: {_pairs(found['modes'])}",
        f"outcomes: {_pairs(found['outcomes'])}",
        *([f"reasons (stage: reason): {_pairs(found['reasons'])}"] if found["reasons"] else []),
        f"latency: p50 {latency['p50']} ms, p95 {latency['p95']} ms, max {latency['max']} ms",
        f"pages a turn: {_mean(found['offered'], turns)} offered, {_mean(found['shortlisted'], turns)} shortlisted",
        f"scored pages: {found['scored']}, without a score: {found['withoutScore']}",
    ]
    if not found["scored"]:
        return lines
    lines += ["", "score         pages   best of its turn"]
    pages, best = found["scores"], found["bestOfTurn"]
    assert isinstance(pages, list)
    assert isinstance(best, list)
    for bucket, (count, top) in enumerate(zip(pages, best, strict=True)):
        lines.append(f"{bucket / 10:.1f} to {(bucket + 1) / 10:.1f} {_int(count):>8} {_int(top):>18}")
    lines += ["", "threshold   turns with a page   pages   pages a turn"]
    rows = found["thresholds"]
    assert isinstance(rows, list)
    for row in rows:
        assert isinstance(row, dict)
        lines.append(
            f"{row['threshold']:.2f} {_int(row['turns']):>21} {_int(row['pages']):>12} {_mean(row['pages'], turns):>14}"
        )
    return lines


def _tuned(found: JsonObject) -> list[str]:
    relevant = _int(found["relevant"])
    lines = [
        f"{found['labels']} labels, {found['labelsWithoutTurn']} of them of turns that are not in the log",
        f"relevant pages: {relevant}, of which {found['relevantNotScored']} were never scored",
        f"scored pages: {found['scored']} with a label, {found['scoredWithoutLabel']} without (not counted)",
        "",
        "threshold   pages   precision   recall",
    ]
    rows = found["thresholds"]
    assert isinstance(rows, list)
    lines += [_tuned_row(row) for row in rows if isinstance(row, dict)]
    suggested = found["suggested"]
    lines.append("")
    if isinstance(suggested, dict):
        lines.append(
            f"recallGate.highThreshold: {suggested['threshold']:.2f} is the lowest that reaches precision "
            f"{found['wantedPrecision']}: {_figure(suggested['precision'])}, recall {_figure(suggested['recall'])}"
        )
    else:
        lines.append(f"no threshold reaches precision {found['wantedPrecision']}: try another model, or --precision")
    hint = found["skipHint"]
    if isinstance(hint, dict):
        lines.append(
            f"recallGate.skipHintBelow: at most {hint['below']:.2f}, or a turn that a page would have helped gets the "
            f"hint; {hint['turns']} turns would get it"
        )
    if relevant < _FEW:
        lines.append(f"relevant labels are few ({relevant}): below {_FEW}, a threshold is a guess")
    return lines


def _tuned_row(row: JsonObject) -> str:
    return (
        f"{row['threshold']:.2f} {_int(row['pages']):>12} {_figure(row['precision']):>11} {_figure(row['recall']):>8}"
    )


def _pairs(value: object) -> str:
    assert isinstance(value, dict)
    return ", ".join(f"{name} {count}" for name, count in value.items())


def _int(value: object) -> int:
    assert isinstance(value, int)
    return value


def _mean(value: object, turns: int) -> str:
    return f"{_int(value) / turns:.1f}"


def _figure(value: object) -> str:
    return f"{value:.2f}" if isinstance(value, float) else "-"

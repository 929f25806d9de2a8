"""A status as a person reads it: what runs, whether all is well, where the store lies, and what there is to do.

About a dozen lines; everything else is under ``--verbose`` and ``--json``. Standard library only.
"""

from __future__ import annotations

import shlex
import time

from host_bridge.cli import output

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from messages.json_types import JsonObject, JsonValue

_SHOWN = 3
_SHOWN_VERBOSE = 20
_NOTICES = 1
_QUIET_STATES = ("absent", "opening", "ready", "starting", "stopped", "stopping")


def in_words(status: JsonObject, *, verbose: bool, options: Sequence[str] = ()) -> str:
    """``options`` are those of the command line that a command shown here needs as well to mean the same store."""
    if not status["running"]:
        lines = [f"No owner is running for {status['stateDir']}. The next command that needs one starts it."]
        if "configurationProblem" in status:
            lines.append(f"Needs a look: {status['configurationProblem']}")
        return output.told([*lines, *(["`knowledge doctor` looks at what lies there."] if status.get("used") else [])])
    if status.get("inProcess"):
        return (
            f"Process {status.get('pid')} (version {status.get('version')}) runs {status['stateDir']} in its own "
            "process; it has no socket to ask, and other clients are not served until it closes its KnowledgeBridge."
        )
    store, health = _object(status.get("store")), _object(status.get("health"))
    tail = "".join(f" {shlex.quote(word)}" for word in options)
    wrong = [*wrong_with_the_owner(health), *_wrong_with_the_store(store)]
    lines = [f"{_running(status)}. {'Needs a look: ' + '; '.join(wrong) + '.' if wrong else 'All well.'}"]
    lines.append(f"  state directory  {status['stateDir']}")
    lines += _store(store)
    to_do = _to_do(store, tail, _SHOWN_VERBOSE if verbose else _SHOWN)
    if to_do:
        lines += ["You can do:", *(f"  {line}" for line in to_do)]
    if verbose and health:
        lines += ["", "The runtime:", *_tree(health, "  ")]
    return output.told(lines)


def _running(status: JsonObject) -> str:
    kind = "in the background" if status.get("detached") else "in the foreground"
    up, connections, calls = status.get("uptimeSeconds"), status.get("connections"), status.get("openCalls")
    since = f" since {_clock(time.time() - up)}" if isinstance(up, int | float) else ""
    # The one that asks for the status is among the connections.
    clients = counted(connections - 1, "client") if isinstance(connections, int) and connections > 1 else "no client"
    waiting = f", {counted(calls, 'open call')}" if isinstance(calls, int) and calls else ""
    return f"knowledge {status.get('version')} runs{since} {kind} (pid {status.get('pid')}), {clients}{waiting}"


def _clock(at: float) -> str:
    then, now = time.localtime(at), time.localtime()
    return time.strftime("%H:%M" if then[:3] == now[:3] else "%Y-%m-%d %H:%M", then)


def wrong_with_the_owner(health: JsonObject) -> list[str]:
    """What a health names as wrong, a clause each."""
    wrong = []
    if health.get("stopping"):
        wrong.append("it is shutting down")
    configuration = _object(health.get("configuration"))
    if "problem" in configuration:
        wrong.append(f"the configuration cannot be read ({configuration['problem']}), so the one before is in force")
    for agent, problem in _object(_object(health.get("decisions")).get("problems")).items():
        wrong.append(f"the decision model of {agent} is not ready ({problem})")
    actors = _objects(health.get("actors"))
    down = [str(actor.get("name")) for actor in actors if actor.get("state") not in _QUIET_STATES]
    if down:
        wrong.append(f"{counted(len(down), 'part')} of the runtime {'is' if len(down) == 1 else 'are'} not ready")
    return wrong


def _wrong_with_the_store(store: JsonObject) -> list[str]:
    refusal = _object(store.get("refusal"))
    if refusal:
        return [f"the store is {_state(store)} ({refusal.get('code')})"]
    if store.get("state") == "unknown":
        return ["the store did not answer in time"]
    wrong = []
    waiting = _object(store.get("publications")).get("pending")
    if isinstance(waiting, int) and waiting:
        wrong.append(f"{counted(waiting, 'write')} not finished")
    git = _object(store.get("git"))
    if git.get("state") == "unavailable" or git.get("message"):
        wrong.append("the Git history is behind" if git.get("state") == "pending" else "the Git history is unavailable")
    if _object(store.get("index")).get("state") in ("unavailable", "damaged"):
        wrong.append("search is unavailable")
    total = _object(store.get("diagnostics")).get("total")
    if isinstance(total, int) and total:
        wrong.append(f"{counted(total, 'file')} cannot be read as {'a record' if total == 1 else 'records'}")
    return wrong


def _store(store: JsonObject) -> list[str]:
    if "agent" not in store:
        refusal = _object(store.get("refusal"))
        return [f"  store            {refusal['message']}"] if "message" in refusal else []
    agent = f"  agent {store['agent']}"
    if store.get("state") == "none":
        return [f"{agent}: no store yet; it is created when the agent first uses it"]
    lines = [f"{agent}: store {store.get('vaultId')}" + ("" if _is_open(store) else f", {_state(store)}")]
    if "path" in store:
        lines.append(f"  vault            {store['path']}/vault")
    refusal = _object(store.get("refusal"))
    if refusal:
        lines.append(f"  refused          {refusal.get('message')}")
        for half, whose in (("expected", "database"), ("found", "vault.json")):
            if half in refusal:
                lines.append(f"    {whose + ':':<14} {output.as_json(refusal[half], compact=True)}")
    if "counts" in store:
        lines.append(f"  holds            {counts_in_words(_object(store['counts']))}{_files(store)}")
        lines.append(f"  search           {search_in_words(_object(store.get('index')))}")
        lines.append(f"  history (Git)    {git_in_words(_object(store.get('git')))}")
    notices = [str(entry) for entry in _list(store.get("notices"))]
    lines += [f"  recovery         {notice}" for notice in notices[:_NOTICES]]
    if len(notices) > _NOTICES:
        lines.append(f"  recovery         and {len(notices) - _NOTICES} more: knowledge status --json")
    adopted = _object(store.get("adopted"))
    if adopted:
        by = f"{adopted.get('at')} by {adopted.get('actor')} ({adopted.get('code')})"
        lines.append(f"  vault adopted as it was: {by}")
    return lines


def counts_in_words(counts: JsonObject) -> str:
    """``53 claims and 10 pages``; what is not active is said beside its kind."""
    parts = []
    for kind, by_state in counts.items():
        numbers = {name: n for name, n in _object(by_state).items() if isinstance(n, int) and n}
        active = numbers.pop("active", 0)
        beside = ", ".join(f"{n} {name}" for name, n in numbers.items())
        parts.append(counted(active, kind) + (f" (and {beside})" if beside else ""))
    return ", ".join(parts) or "nothing yet"


def _files(store: JsonObject) -> str:
    writes = "" if store.get("writesEnabled", True) else "; writes are switched off in the configuration"
    if store.get("live") in (None, "watching"):
        return writes
    reason = f" ({store['liveReason']})" if "liveReason" in store else ""
    return f"; files are compared at each session instead of watched{reason}{writes}"


def search_in_words(index: JsonObject) -> str:
    """How the keyword index is."""
    state = index.get("state")
    reason = f" ({index['reason']})" if "reason" in index else ""
    return {"current": "up to date", "behind": "catching up"}.get(str(state), str(state)) + reason


def git_in_words(git: JsonObject) -> str:
    """How the Git checkpoint is."""
    if git.get("message"):
        return str(git["message"])
    if git.get("state") == "pending" and isinstance(git.get("pending"), int):
        return f"writing {_plain(git['pending'])} of the latest saves into history"
    return {"current": "up to date"}.get(str(git.get("state")), str(git.get("state")))


def _to_do(store: JsonObject, tail: str, most: int) -> list[str]:
    """One line a finding: what is wrong, where, and the command for it when there is one."""
    lines = []
    refusal = _object(store.get("refusal"))
    if "command" in refusal:
        lines.append(f"to decide: {refusal['command']}")
    elif refusal:
        lines.append("knowledge doctor names what is wrong, and what mends it")
    diagnostics = _object(store.get("diagnostics"))
    found, total = _objects(diagnostics.get("findings")), diagnostics.get("total")
    for entry in found[:most]:
        where = f"{entry.get('path')}:{entry['line']}" if isinstance(entry.get("line"), int) else f"{entry.get('path')}"
        if entry.get("code") == "frontmatter_missing":
            lines.append(
                f"{where}: plain Markdown, not a record. knowledge adopt {shlex.quote(str(entry.get('path')))}{tail}"
            )
        else:
            lines.append(f"{where}: {entry.get('code')}: {entry.get('message')} Mend it in an editor.")
    if isinstance(total, int) and total > len(found[:most]):
        option = "--verbose" if most < _SHOWN_VERBOSE and total <= _SHOWN_VERBOSE else "--json"
        lines.append(f"and {total - len(found[:most])} more: knowledge status {option}{tail}")
    return lines


def _is_open(store: JsonObject) -> bool:
    return store.get("state") == "open"


def _state(store: JsonObject) -> str:
    return str(store.get("state")).replace("_", " ")


def counted(number: int, thing: str) -> str:
    return f"{number} {thing}" if number == 1 else f"{number} {thing}s"


def _object(value: JsonValue) -> JsonObject:
    return value if isinstance(value, dict) else {}


def _list(value: JsonValue) -> list[JsonValue]:
    return value if isinstance(value, list) else []


def _objects(value: JsonValue) -> list[JsonObject]:
    return [entry for entry in _list(value) if isinstance(entry, dict)]


def _plain(value: JsonValue) -> str:
    return value if isinstance(value, str) else output.as_json(value, compact=True)


def _tree(value: Mapping[str, JsonValue], indent: str) -> list[str]:
    lines: list[str] = []
    for name, entry in value.items():
        if isinstance(entry, dict) and entry:
            lines += [f"{indent}{name}", *_tree(entry, indent + "  ")]
        elif isinstance(entry, list) and entry and all(isinstance(item, dict) for item in entry):
            for item in _objects(entry):
                lines += [f"{indent}{name}", *_tree(item, indent + "  ")]
        else:
            lines.append(f"{indent}{name}: {_plain(entry)}")
    return lines

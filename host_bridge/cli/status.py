"""``knowledge status``: what the owner publishes about itself, and how an agent's store is. Starts an owner only with
``--live``, and creates no store."""

from __future__ import annotations

from host_bridge.cli import exits, output
from host_bridge.cli.options import STATE_DIR, parse, state_dir
from host_bridge.owner.client import Lost, OwnerError, reach

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from host_bridge.owner.client import Connection
    from messages.json_types import JsonObject, JsonValue

_OPTIONS = {**STATE_DIR, "--agent": True, "--json": False, "--live": False}
_STORE_MS = 8_000
_SHOWN = 20
_STORE_LINES = ("live", "liveReason", "counts", "publications", "git", "index")


def run(arguments: Sequence[str]) -> int:
    options = parse(arguments, _OPTIONS)
    place = state_dir(options)
    compact = options.has("--json")
    status: JsonObject = {"stateDir": place, "running": False}
    try:
        connection = reach(place, start=options.has("--live"))
        try:
            found = connection.request("owner.status", {}, 5.0)
            status |= {"running": True, **(found if isinstance(found, dict) else {})}
            status["store"] = _store(connection, options.get("--agent"), complete=compact)
        finally:
            connection.close()
    except OwnerError as error:
        if error.code == "open_elsewhere":
            status |= {"running": True, "inProcess": True, **error.fields}
        elif error.code != "stopping":
            return output.failure(error, compact=compact)
    except (Lost, TimeoutError):
        return output.failure(OwnerError("store_unavailable", "The owner does not answer."), compact=compact)
    output.emit(output.as_json(status, compact=True) if compact else _in_words(status))
    return exits.OK


def _store(connection: Connection, agent: str | None, *, complete: bool) -> JsonObject:
    """The operator's status of an agent's store, with every finding where it is for a program."""
    params: JsonObject = {"deadlineMs": _STORE_MS} if agent is None else {"deadlineMs": _STORE_MS, "agent": agent}
    try:
        found = connection.request("operator.status", params, _STORE_MS / 1000 + 1)
        store: JsonObject = found if isinstance(found, dict) else {}
        if complete and "diagnostics" in store:
            store["diagnostics"] = connection.request("operator.diagnostics", params, _STORE_MS / 1000 + 1)
    except OwnerError as error:
        return {"state": "unknown", "refusal": error.to_json()}
    except (Lost, TimeoutError):
        return {"state": "unknown"}
    return store


def _in_words(status: JsonObject) -> str:
    if not status["running"]:
        return f"No owner is running for {status['stateDir']}. The next command that needs one starts it."
    if status.get("inProcess"):
        return (
            f"Process {status.get('pid')} (version {status.get('version')}) runs {status['stateDir']} in its own "
            "process; it has no socket to ask."
        )
    kind = "in the background" if status.get("detached") else "in the foreground"
    lines = [
        f"knowledge {status.get('version')} owns {status['stateDir']} (pid {status.get('pid')}, {kind})",
        f"  connections {status.get('connections')}, open calls {status.get('openCalls')}",
    ]
    store = status.get("store")
    if isinstance(store, dict):
        lines += _store_in_words(store)
    health = status.get("health")
    if isinstance(health, dict):
        lines += _tree(health, "  ")
    return "\n".join(lines)


def _store_in_words(store: JsonObject) -> list[str]:
    if store.get("state") == "none":
        return [f"  agent {store.get('agent')}: no store yet; it is created when the agent first uses it"]
    lines = [f"  store of agent {store.get('agent')}: {store.get('state')}"] if "agent" in store else []
    lines += [f"    {name}: {store[name]}" for name in ("vaultId", "path") if name in store]
    refusal = store.get("refusal")
    if isinstance(refusal, dict):
        lines.append(f"    {refusal.get('code')}: {refusal.get('message')}")
        for half in ("expected", "found"):
            if half in refusal:
                whose = "database" if half == "expected" else "vault.json"
                lines.append(f"      {whose}: {output.as_json(refusal[half], compact=True)}")
        if "command" in refusal:
            lines.append(f"      to decide: {refusal['command']}")
    lines += [f"    {name}: {_plain(store[name])}" for name in _STORE_LINES if name in store]
    for name in ("warnings", "notices"):
        entries = store.get(name)
        lines += [f"    {name[:-1]}: {entry}" for entry in entries] if isinstance(entries, list) else []
    adopted = store.get("adopted")
    if isinstance(adopted, dict):
        by = f"{adopted.get('at')} by {adopted.get('actor')} ({adopted.get('code')})"
        lines.append(f"    vault adopted as it was: {by}")
    diagnostics = store.get("diagnostics")
    return lines + (_findings(diagnostics) if isinstance(diagnostics, dict) else [])


def _findings(diagnostics: JsonObject) -> list[str]:
    found, total = diagnostics.get("findings"), diagnostics.get("total")
    if not isinstance(found, list) or not found or not isinstance(total, int):
        return []
    shown = [entry for entry in found if isinstance(entry, dict)][:_SHOWN]
    lines = [f"    {total} finding{'' if total == 1 else 's'} in files:"]
    lines += [f"      {entry.get('path')}: {entry.get('code')}: {entry.get('message')}" for entry in shown]
    if total > len(shown):
        lines.append(f"      and {total - len(shown)} more; knowledge status --json has up to 1000")
    return lines


def _plain(value: JsonValue) -> str:
    return value if isinstance(value, str) else output.as_json(value, compact=True)


def _tree(value: Mapping[str, JsonValue], indent: str) -> list[str]:
    lines: list[str] = []
    for name, entry in value.items():
        if isinstance(entry, dict) and entry:
            lines += [f"{indent}{name}", *_tree(entry, indent + "  ")]
        elif isinstance(entry, list) and entry and all(isinstance(item, dict) for item in entry):
            for item in entry:
                lines += [f"{indent}{name}", *_tree(item, indent + "  ")]
        else:
            lines.append(f"{indent}{name}: {entry if isinstance(entry, str) else output.as_json(entry, compact=True)}")
    return lines

"""``knowledge status``: what the owner publishes about itself. Starts one only with ``--live``."""

from __future__ import annotations

from host_bridge.cli import exits, output
from host_bridge.cli.options import STATE_DIR, parse, state_dir
from host_bridge.owner.client import Lost, OwnerError, reach

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from messages.json_types import JsonObject, JsonValue

_OPTIONS = {**STATE_DIR, "--json": False, "--live": False}


def run(arguments: Sequence[str]) -> int:
    options = parse(arguments, _OPTIONS)
    place = state_dir(options)
    compact = options.has("--json")
    status: JsonObject = {"stateDir": place, "running": False}
    try:
        connection = reach(place, start=options.has("--live"))
        try:
            found = connection.request("owner.status", {}, 5.0)
        finally:
            connection.close()
        status |= {"running": True, **(found if isinstance(found, dict) else {})}
    except OwnerError as error:
        if error.code == "open_elsewhere":
            status |= {"running": True, "inProcess": True, **error.fields}
        elif error.code != "stopping":
            return output.failure(error, compact=compact)
    except (Lost, TimeoutError):
        return output.failure(OwnerError("store_unavailable", "The owner does not answer."), compact=compact)
    output.emit(output.as_json(status, compact=True) if compact else _in_words(status))
    return exits.OK


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
    health = status.get("health")
    if isinstance(health, dict):
        lines += _tree(health, "  ")
    return "\n".join(lines)


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

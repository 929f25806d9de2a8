"""``knowledge status``: what the owner publishes about itself, and how an agent's store is. Starts an owner only with
``--live``, and creates no store."""

from __future__ import annotations

from host_bridge.cli import exits, output
from host_bridge.cli.options import STATE_DIR, parse, state_dir
from host_bridge.cli.status_words import in_words
from host_bridge.owner.client import Lost, OwnerError, reach

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

    from host_bridge.owner.client import Connection
    from messages.json_types import JsonObject

_OPTIONS = {**STATE_DIR, "--agent": True, "--json": False, "--live": False, "--verbose": False}
_STORE_MS = 8_000


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
    if compact:
        output.emit(output.as_json(status, compact=True))
    else:
        same = [f"{name}={value}" for name in ("--agent", "--state-dir") if (value := options.get(name)) is not None]
        output.emit(in_words(status, verbose=options.has("--verbose"), options=same))
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

"""``knowledge status``: what the owner publishes about itself, and how an agent's store is. Starts an owner only with
``--live``, and creates no store."""

from __future__ import annotations

import os

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
        if error.code == "stopping":
            status |= _at_rest(place)
        elif error.code == "open_elsewhere":
            status |= {"running": True, "inProcess": True, **error.fields}
        else:
            return output.failure(error, compact=compact)
    except (Lost, TimeoutError):
        return output.failure(OwnerError("store_unavailable", "The owner does not answer."), compact=compact)
    if compact:
        output.emit(output.as_json(status, compact=True))
    else:
        same = [f"{name}={value}" for name in ("--agent", "--state-dir") if (value := options.get(name)) is not None]
        output.emit(in_words(status, verbose=options.has("--verbose"), options=same))
    return exits.OK


def _at_rest(place: str) -> JsonObject:
    """What can be said where no owner runs: whether anything lies there, and what is wrong with the configuration."""
    found: JsonObject = {"used": True} if os.path.isdir(os.path.join(place, "knowledge")) else {}
    path = os.path.join(place, "knowledge.yaml")
    if os.path.exists(path):
        from pathlib import Path  # a configuration is there to be read, so what reads it is loaded

        from host_bridge.config import load_configuration
        from messages.errors import KnowledgeError

        try:
            load_configuration(Path(path))
        except (KnowledgeError, OSError) as error:
            found["configurationProblem"] = getattr(error, "message", str(error))
    return found


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

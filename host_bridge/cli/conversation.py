"""``knowledge conversation``: which conversations read, or read and save, an agent's memory. Standard library only."""

from __future__ import annotations

from host_bridge.cli import exits, output
from host_bridge.cli.asking import ask
from host_bridge.cli.options import STATE_DIR, UsageError, parse, state_dir
from host_bridge.cli.stores import rows_of
from host_bridge.owner.client import OwnerError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

    from host_bridge.cli.options import Options
    from messages.json_types import JsonObject

_DEADLINE_MS = 60_000
_OPTIONS = {**STATE_DIR, "--agent": True, "--json": False}
_SHOWN = 20
_ACCESS = {"read": "can read", "read-save": "can read and save"}


def run(arguments: Sequence[str]) -> int:
    name, rest = (arguments[0], arguments[1:]) if arguments else ("", [])
    if name == "list":
        options = parse(rest, _OPTIONS)
        return _done(options, "access.grants.list", {})
    if name == "grant":
        options = parse(rest, _OPTIONS, words=2)
        if len(options.words) != 2 or options.words[1] not in _ACCESS:
            raise UsageError(
                "name the conversation's session key and the access, as in: knowledge conversation grant --agent main "
                "chat:group:42 read"
            )
        return _done(options, "access.grants.set", {"sessionKey": options.words[0], "access": options.words[1]})
    if name == "revoke":
        options = parse(rest, _OPTIONS, words=1)
        if not options.words:
            raise UsageError("name the session key of the grant; `knowledge conversation list` shows them")
        return _done(options, "access.grants.remove", {"sessionKey": options.words[0]})
    raise UsageError("say what to do: list, grant or revoke")


def _done(options: Options, method: str, params: JsonObject) -> int:
    agent, compact = options.get("--agent"), options.has("--json")
    if agent is not None:
        params = {**params, "agent": agent}
    elif method != "access.grants.list":
        raise UsageError("say whose memory is meant: --agent A")
    try:
        result = ask(state_dir(options), method, params, deadline_ms=_DEADLINE_MS)
    except OwnerError as error:
        return output.failure(error, compact=compact)
    output.emit(output.as_json(result, compact=True) if compact else _in_words(result))
    return exits.OK


def _in_words(result: JsonObject) -> str:
    grants, agent = rows_of(result, "grants"), result.get("agent")
    if grants:
        lines = [f"Access to the private memory of {agent}:"]
        for row in grants:
            unknown = "" if row.get("known") else "  (no known conversation)"
            access = _ACCESS.get(str(row.get("access")), row.get("access"))
            lines.append(f"  {row.get('sessionKey')}: {access}{unknown}")
    else:
        lines = [f"Every conversation of {agent} has its own partition only."]
    granted = {row.get("sessionKey") for row in grants}
    others = [str(row.get("sessionKey")) for row in rows_of(result, "conversations")]
    others = [key for key in others if key not in granted]
    if others:
        lines += ["Other conversations of the last 90 days:", *(f"  {key}" for key in others[:_SHOWN])]
        lines += [f"  and {len(others) - _SHOWN} more; --json has them"] if len(others) > _SHOWN else []
    return output.told(lines)

"""``knowledge audience``: signed tokens that stand for a caller: mint, revoke, list. Standard library only."""

from __future__ import annotations

import json
import re
import uuid

from host_bridge.cli import exits, output
from host_bridge.cli.asking import ask
from host_bridge.cli.options import STATE_DIR, UsageError, parse, state_dir, what_to_do
from host_bridge.cli.stores import rows_of
from host_bridge.owner.client import OwnerError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from host_bridge.cli.options import Options
    from messages.json_types import JsonObject

_DEADLINE_MS = 60_000
_JSON = {**STATE_DIR, "--json": False}
_MINT = {
    **_JSON,
    "--agent": True,
    "--conversation": True,
    "--session": True,
    "--run": True,
    "--account": True,
    "--sandboxed": False,
    "--root": True,
    "--for": True,
}
_UNITS = {"s": 1, "m": 60, "h": 3_600, "d": 86_400}
_MAX_SECONDS = 30 * 86_400


def run(arguments: Sequence[str]) -> int:
    name, rest = (arguments[0], arguments[1:]) if arguments else ("", [])
    if name == "mint":
        return _mint(rest)
    if name == "revoke":
        return _revoke(rest)
    if name == "list":
        return _list(rest)
    raise what_to_do(name, ("mint", "revoke", "list"))


def _mint(arguments: Sequence[str]) -> int:
    options = parse(arguments, _MINT)
    params: JsonObject = {"audience": _audience(options)}
    lasts = options.get("--for")
    if lasts is not None:
        params["seconds"] = _seconds(lasts)

    def in_words(result: JsonObject) -> str:
        # The token alone on stdout, so that a shell can catch it; what a person should know beside it.
        output.complain(
            f"Token {result.get('id')} stands for {_whom(result)} until {result.get('expiresAt')}. It is shown once.\n"
            f"To end it earlier: knowledge audience revoke {result.get('id')}"
        )
        return str(result.get("token"))

    return _done(options, "access.tokens.mint", params, in_words)


def _revoke(arguments: Sequence[str]) -> int:
    options = parse(arguments, _JSON, words=1)
    try:
        token = str(uuid.UUID(options.words[0])) if options.words else None
    except ValueError:
        token = None
    if token is None:
        raise UsageError("name the token's id, not its text; `knowledge audience list` shows the ids")

    def in_words(result: JsonObject) -> str:
        return f"The token {token} of {_whom(result)} is revoked: nothing more is saved or answered under it."

    return _done(options, "access.tokens.revoke", {"id": token}, in_words)


def _list(arguments: Sequence[str]) -> int:
    options = parse(arguments, {**_JSON, "--agent": True, "--limit": True})
    limit, agent = options.whole_number("--limit", 1, 1_000), options.get("--agent")
    params: JsonObject = {} if limit is None else {"limit": limit}
    if agent is not None:
        params["agent"] = agent

    def in_words(result: JsonObject) -> str:
        rows = rows_of(result, "tokens")
        lines = [
            f"{row.get('id')}  {row.get('state')}, until {row.get('expiresAt')}: {_whom(row)}; by {row.get('mintedBy')}"
            for row in rows
        ]
        total = result.get("total")
        if isinstance(total, int) and total > len(rows):
            lines.append(f"and {total - len(rows)} more; --limit shows them")
        return "\n".join(lines) or "No token is in use."

    return _done(options, "access.tokens.list", params, in_words)


def _audience(options: Options) -> JsonObject:
    caller = options.caller()
    if "agent" not in caller:
        raise UsageError("say on whose behalf the token speaks: --agent A")
    audience: JsonObject = {"kind": "owner-private", "agent": caller["agent"]}
    if "conversation" in caller:
        audience |= {"kind": "conversation", "sessionKey": caller["conversation"], "sessionId": caller["session"]}
    for option, name in (("--run", "runId"), ("--account", "account")):
        value = options.get(option)
        if value is not None:
            audience[name] = value
    if options.has("--sandboxed"):
        audience["sandboxed"] = True
    root = options.get("--root")
    if root is not None:
        try:
            given = json.loads(root)
        except (ValueError, RecursionError):
            given = None
        if not isinstance(given, dict):
            raise UsageError("--root is the JSON object of the audience that delegates, as in tools.call")
        audience["root"] = given
    return audience


def _seconds(text: str) -> int:
    found = re.fullmatch(r"([0-9]{1,8})([smhd])", text)
    seconds = int(found[1]) * _UNITS[found[2]] if found else 0
    if not 1 <= seconds <= _MAX_SECONDS:
        raise UsageError(f"--for is a time of at most 30 days, as in 45m, 12h or 7d, not {text!r}")
    return seconds


def _whom(row: JsonObject) -> str:
    key = row.get("sessionKey")
    return f"the owner of {row.get('agent')}" if key is None else f"the conversation {key} of {row.get('agent')}"


def _done(options: Options, method: str, params: JsonObject, in_words: Callable[[JsonObject], str]) -> int:
    compact = options.has("--json")
    try:
        result = ask(state_dir(options), method, params, deadline_ms=_DEADLINE_MS)
    except OwnerError as error:
        return output.failure(error, compact=compact)
    output.emit(output.as_json(result, compact=True) if compact else in_words(result))
    return exits.OK

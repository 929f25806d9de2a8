"""``knowledge stores``: which agent uses which store, and moving agents between stores. Standard library only."""

from __future__ import annotations

import uuid

from host_bridge.cli import exits, output
from host_bridge.cli.asking import ask
from host_bridge.cli.options import STATE_DIR, UsageError, parse, state_dir, what_to_do
from host_bridge.owner.client import OwnerError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from host_bridge.cli.options import Options
    from messages.json_types import JsonObject, JsonValue

_DEADLINE_MS = 60_000
_AGENTS_MAX = 1_000
_JSON = {**STATE_DIR, "--json": False}
_AGENT = {**_JSON, "--agent": True}
_OF_STORE = {word: f"knowledge store {word}" for word in ("accept-deletions", "adopt", "relocate", "release")}
USE = {
    "used": "in use",
    "unused": "unused: its agent uses a named store",
    "empty": "no agent uses it",
    "unassigned": "unassigned",
}


def run(arguments: Sequence[str]) -> int:
    name, rest = (arguments[0], arguments[1:]) if arguments else ("", [])
    actions = {"list": _list, "show": _show, "share": _share, "join": _join, "own": _own, "audit": _audit}
    if name not in actions:
        raise what_to_do(name, tuple(actions), _OF_STORE)
    return actions[name](rest)


def _list(arguments: Sequence[str]) -> int:
    options = parse(arguments, _JSON)

    def in_words(result: JsonObject) -> str:
        lines = ["Agents:", *(f"  {agent_line(row)}" for row in rows_of(result, "agents"))]
        stores = rows_of(result, "stores")
        lines += ["Stores:", *(f"  {store_line(row)}" for row in stores)] if stores else ["No store yet."]
        return output.told(lines)

    return _done(options, "access.stores.list", {}, in_words)


def _show(arguments: Sequence[str]) -> int:
    options = parse(arguments, _JSON, words=1)
    if not options.words:
        raise UsageError("name a store: its id, its name, or the agent that uses it")
    word, compact = options.words[0], options.has("--json")
    try:
        result = ask(state_dir(options), "access.stores.list", {}, deadline_ms=_DEADLINE_MS)
    except OwnerError as error:
        return output.failure(error, compact=compact)
    using = {row.get("vaultId") for row in rows_of(result, "agents") if row.get("agent") == word} - {None}
    found = [
        row
        for row in rows_of(result, "stores")
        if word in (row.get("vaultId"), row.get("name")) or row.get("vaultId") in using
    ]
    if not found:
        words = f"No store has the id or name {word!r}, and no agent of that id uses one."
        missing = OwnerError("not_found", words, "never")
        return output.failure(missing, compact=compact)
    shown: JsonObject = {"stores": [*found]}
    if compact:
        output.emit(output.as_json(shown, compact=True))
    else:
        output.emit(output.told(f"{key + ':':<10} {_value(value)}" for row in found for key, value in row.items()))
    return exits.OK


def _share(arguments: Sequence[str]) -> int:
    options = parse(arguments, {**_AGENT, "--label": True}, words=_AGENTS_MAX)
    if not options.words:
        raise UsageError("name the store, and the agents to add, as in: knowledge stores share --agent main family ben")
    name, *others = options.words
    params: JsonObject = {**_agent(options), "name": name, "agents": [*others]}
    label = options.get("--label")
    if label is not None:
        params["label"] = label

    def in_words(result: JsonObject) -> str:
        return f"The store {result.get('vaultId')} is called {name} now; {_names(result)} use it."

    return _done(options, "access.stores.share", params, in_words)


def _join(arguments: Sequence[str]) -> int:
    options = parse(arguments, {**_AGENT, "--store": True}, words=1)
    if not options.words:
        raise UsageError("name the store, as in: knowledge stores join --agent ben family")
    params: JsonObject = {**_agent(options), "name": options.words[0]}
    store = options.get("--store")
    if store is not None:
        try:
            params["store"] = str(uuid.UUID(store))
        except ValueError:
            raise UsageError(f"{store!r} is no store's id; `knowledge stores list` names them") from None

    def in_words(result: JsonObject) -> str:
        return f"{_names(result)} uses {result.get('name')} now. Nothing was copied; its own store stays as it is."

    return _done(options, "access.stores.join", params, in_words)


def _own(arguments: Sequence[str]) -> int:
    options = parse(arguments, _AGENT)

    def in_words(result: JsonObject) -> str:
        vault = result.get("vaultId")
        own = "a new store, which its next use creates" if vault is None else f"its own store {vault}"
        return f"{_names(result)} uses {own}. Nothing was copied or removed."

    return _done(options, "access.stores.own", _agent(options), in_words)


def _audit(arguments: Sequence[str]) -> int:
    options = parse(arguments, {**_JSON, "--limit": True})
    limit = options.whole_number("--limit", 1, 1_000)

    def in_words(result: JsonObject) -> str:
        import time

        lines = []
        for row in rows_of(result, "rows"):
            at = row.pop("at", 0)
            when = time.strftime("%Y-%m-%d %H:%M:%SZ", time.gmtime(at / 1000 if isinstance(at, int) else 0))
            row.pop("sequence", None)
            who, action = row.pop("actor", ""), row.pop("action", "")
            rest = "  ".join(f"{key}={_value(value)}" for key, value in row.items())
            lines.append(f"{when}  {action}  {who}  {rest}")
        return output.told(lines) or "Nothing was changed yet."

    return _done(options, "access.audit", {} if limit is None else {"limit": limit}, in_words)


def agent_line(row: JsonObject) -> str:
    """One agent with its store."""
    agent = row.get("agent")
    if row.get("store") == "ambiguous":
        return f"{agent}: unavailable, listed in {_value(row.get('names'))}; join one of them, or own"
    vault = row.get("vaultId", "created on first use")
    return f"{agent}: {row.get('name')} ({vault})" if row.get("store") == "named" else f"{agent}: its own ({vault})"


def store_line(row: JsonObject) -> str:
    """One store with who may use it."""
    name = row.get("name")
    label = f' "{row.get("label")}"' if row.get("label") else ""
    what = f"{name}{label}" if name else f"own store of {_value(row.get('agents'))}" if row.get("agents") else "no name"
    using = f" by {_value(row.get('agents'))}" if name and row.get("agents") else ""
    state = row.get("state")
    gone = f" ({_value(row.get('missing'))} missing)" if row.get("missing") else ""
    shown = "" if state == "ready" else f", {str(state).replace('_', ' ')}{gone}"
    return f"{row.get('vaultId', '-')}  {what}: {USE.get(str(row.get('use')), row.get('use'))}{using}{shown}"


def rows_of(result: JsonObject, name: str) -> list[JsonObject]:
    """The objects in a list of an answer."""
    found = result.get(name)
    return [row for row in found if isinstance(row, dict)] if isinstance(found, list) else []


def _names(result: JsonObject) -> str:
    return _value(result.get("agents"))


def _value(value: JsonValue) -> str:
    return ", ".join(map(str, value)) if isinstance(value, list) else str(value)


def _agent(options: Options) -> JsonObject:
    agent = options.get("--agent")
    if agent is None:
        raise UsageError("say whose store is meant: --agent A")
    return {"agent": agent}


def _done(options: Options, method: str, params: JsonObject, in_words: Callable[[JsonObject], str]) -> int:
    compact = options.has("--json")
    try:
        result = ask(state_dir(options), method, params, deadline_ms=_DEADLINE_MS)
    except OwnerError as error:
        return output.failure(error, compact=compact)
    output.emit(output.as_json(result, compact=True) if compact else in_words(result))
    return exits.OK

"""``knowledge store``: what only a person may decide about a store. Standard library only."""

from __future__ import annotations

import os
import uuid

from host_bridge.cli import exits, output
from host_bridge.cli.asking import ask
from host_bridge.cli.options import STATE_DIR, UsageError, parse, state_dir, what_to_do
from host_bridge.owner.client import OwnerError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from host_bridge.cli.options import Options
    from messages.json_types import JsonObject

_DEADLINE_MS = 600_000
_OF_STORES = {word: f"knowledge stores {word}" for word in ("list", "show", "share", "join", "own", "audit")}
_AGENT = {**STATE_DIR, "--agent": True, "--json": False}


def run(arguments: Sequence[str]) -> int:
    name, rest = (arguments[0], arguments[1:]) if arguments else ("", [])
    if name == "accept-deletions":
        return _accept_deletions(rest)
    if name == "adopt":
        return _adopt(rest)
    if name == "relocate":
        return _relocate(rest)
    if name == "release":
        return _release(rest)
    raise what_to_do(name, ("accept-deletions", "adopt", "relocate", "release"), _OF_STORES)


def _accept_deletions(arguments: Sequence[str]) -> int:
    options = parse(arguments, _AGENT)

    def in_words(result: JsonObject) -> str:
        removed = result.get("removed")
        if not removed:
            return f"Nothing was missing: all {result.get('files')} files are there."
        return f"{removed} files are recorded as deleted, {result.get('files')} are left. History keeps their texts."

    return _done(state_dir(options), "operator.acceptDeletions", _agent(options.get("--agent")), options, in_words)


def _adopt(arguments: Sequence[str]) -> int:
    options = parse(arguments, {**_AGENT, "--yes": False})
    if not options.has("--yes"):
        raise UsageError(
            "this takes the vault as it is, what is missing in it as deleted; look at `knowledge status` first, then "
            "add --yes"
        )

    def in_words(result: JsonObject) -> str:
        lines = ["The vault was taken as it is; what differs from history is recorded as edited outside."]
        if "files" in result:
            lines.append(f"It holds {result['files']} files; what is missing is recorded as deleted, history has it.")
        if "opening" in result:
            lines.append("The store is still opening; see `knowledge status`.")
        return output.told(lines)

    return _done(state_dir(options), "operator.adoptStore", _agent(options.get("--agent")), options, in_words)


def _release(arguments: Sequence[str]) -> int:
    options = parse(arguments, {**STATE_DIR, "--json": False}, words=1)
    if not options.words:
        raise UsageError("name the store's id, as in: knowledge store release ID")
    try:
        store = str(uuid.UUID(options.words[0]))
    except ValueError:
        raise UsageError(f"{options.words[0]!r} is no store's id; `knowledge doctor` names it") from None

    def in_words(result: JsonObject) -> str:
        if result.get("released") is True:
            return f"The store {store} is in service again; its next call opens it."
        return f"The store {store} is not out of service; nothing was done."

    return _done(state_dir(options), "operator.releaseStore", {"store": store}, options, in_words)


def _relocate(arguments: Sequence[str]) -> int:
    options = parse(arguments, {**STATE_DIR, "--json": False}, words=2)
    if len(options.words) != 2:
        raise UsageError("name the store's id and its new folder, as in: knowledge store relocate ID /data/my-store")
    store, path = options.words
    try:
        store = str(uuid.UUID(store))
    except ValueError:
        raise UsageError(f"{store!r} is no store's id; `knowledge status` names it") from None

    def in_words(result: JsonObject) -> str:
        lines = [f"The store lies at {result.get('path')} now."]
        left = result.get("left")
        if isinstance(left, dict):
            files = left.get("files")
            names = ", ".join(map(str, files)) if isinstance(files, list) else ""
            lines.append(f"Changed meanwhile and left at {left.get('path')}: {names}")
        return output.told(lines)

    params: JsonObject = {"store": store, "path": os.path.abspath(os.path.expanduser(path))}
    return _done(state_dir(options), "operator.relocateStore", params, options, in_words)


def _agent(agent: str | None) -> JsonObject:
    return {} if agent is None else {"agent": agent}


def _done(place: str, method: str, params: JsonObject, options: Options, in_words: Callable[[JsonObject], str]) -> int:
    compact = options.has("--json")
    try:
        result = ask(place, method, params, deadline_ms=_DEADLINE_MS)
    except OwnerError as error:
        return output.failure(error, compact=compact)
    output.emit(output.as_json(result, compact=True) if compact else in_words(result))
    return exits.OK

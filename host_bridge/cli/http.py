"""``knowledge http``: the keys of the HTTP door: make, rotate, revoke, list. Standard library only."""

from __future__ import annotations

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

_DEADLINE_MS = 30_000
_JSON = {**STATE_DIR, "--json": False}
_WORDS = ("key", "operator", "revoke", "list")


def run(arguments: Sequence[str]) -> int:
    name, rest = (arguments[0], arguments[1:]) if arguments else ("", [])
    match name:
        case "key":
            return _make(parse(rest, {**_JSON, "--rotate": False}), None)
        case "operator":
            options = parse(rest, {**_JSON, "--rotate": False}, words=1)
            if not options.words:
                raise UsageError("name the operator, by its id in the configuration")
            return _make(options, options.words[0])
        case "revoke":
            return _revoke(rest)
        case "list":
            return _list(rest)
        case _:
            raise what_to_do(name, _WORDS)


def _make(options: Options, operator: str | None) -> int:
    params: JsonObject = {"rotate": options.has("--rotate")}
    if operator is not None:
        params["operatorId"] = operator

    def in_words(result: JsonObject) -> str:
        # The key alone on stdout, so that a shell can catch it; what a person should know beside it.
        before = " The one before counts no more." if options.has("--rotate") else ""
        output.complain(f"A key of {_whose(result)}. It is shown once; only its hash is kept.{before}")
        return str(result.get("key"))

    return _done(options, "access.httpKeys.make", params, in_words)


def _revoke(arguments: Sequence[str]) -> int:
    options = parse(arguments, {**_JSON, "--host": False}, words=1)
    if options.has("--host") == bool(options.words):
        raise UsageError("name an operator, or say --host for the host's key")
    params: JsonObject = {"operatorId": options.words[0]} if options.words else {}
    return _done(
        options,
        "access.httpKeys.revoke",
        params,
        lambda result: f"The key of {_whose(result)} counts no more.",
    )


def _list(arguments: Sequence[str]) -> int:
    options = parse(arguments, _JSON)

    def in_words(result: JsonObject) -> str:
        lines = [
            f"{_whose(row)}, since {row.get('madeAt')}; by {row.get('madeBy')}" for row in rows_of(result, "keys")
        ]
        return output.told(lines) or "Nobody has a key of the HTTP door."

    return _done(options, "access.httpKeys.list", {}, in_words)


def _whose(row: JsonObject) -> str:
    return "the host" if row.get("kind") == "host" else f"the operator {row.get('operatorId')}"


def _done(options: Options, method: str, params: JsonObject, in_words: Callable[[JsonObject], str]) -> int:
    compact = options.has("--json")
    try:
        result = ask(state_dir(options), method, params, deadline_ms=_DEADLINE_MS)
    except OwnerError as error:
        return output.failure(error, compact=compact)
    output.emit(output.as_json(result, compact=True) if compact else in_words(result))
    return exits.OK

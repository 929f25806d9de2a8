"""``knowledge mcp``: MCP on stdio by copying bytes to the owner. Standard library only, ready in under 60 ms.

With ``--simple`` it is a server itself (:mod:`host_bridge.memory_mcp`).
"""

from __future__ import annotations

from host_bridge.cli import exits, output
from host_bridge.cli.dialects import McpDialect
from host_bridge.cli.options import CALLER, STATE_DIR, Options, UsageError, parse, state_dir
from host_bridge.cli.pump import Pump
from host_bridge.owner.client import Connection, OwnerError, reach

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

    from messages.json_types import JsonObject

_OPTIONS = {**STATE_DIR, **CALLER, "--profile": True, "--simple": False, "--memory-dir": True}
_PROFILES = ("simple", "read", "core", "full")


def run(arguments: Sequence[str]) -> int:
    options = parse(arguments, _OPTIONS)
    if options.has("--simple"):
        return _simple(options)
    if options.has("--memory-dir"):
        raise UsageError("--memory-dir belongs to --simple")
    place = state_dir(options)
    profile = options.get("--profile") or "core"
    if profile not in _PROFILES:
        raise UsageError(f"--profile is one of {', '.join(_PROFILES)}, not {profile!r}")
    hello: JsonObject = {"door": "mcp", "caller": dict(options.caller()), "profile": profile}

    def connect() -> Connection:
        return reach(place, hello)

    first: Connection | None = None
    try:
        first = reach(place, hello, start=False)
    except OwnerError as error:
        if error.code != "stopping":
            return output.failure(error, compact=False)
    return Pump(connect, first, McpDialect(profile)).run()


def _simple(options: Options) -> int:
    """Two tools on one directory, without an owner."""
    others = [name for name in _OPTIONS if name not in ("--simple", "--memory-dir") and options.has(name)]
    if others:
        raise UsageError(f"--simple takes --memory-dir alone, not {others[0]}")
    import logging

    from host_bridge.cli.memory import directory_of
    from host_bridge.memory_mcp import serve
    from host_bridge.owner import logs
    from messages.errors import KnowledgeError

    logs.configure(level=logging.WARNING)  # an exception's text may hold what was remembered
    try:
        serve(directory_of(options, "--memory-dir"))
    except KnowledgeError as error:
        failure = OwnerError(error.code, error.message, error.retry, dict(error.fields))
        return output.failure(failure, compact=False, of_store=False)
    return exits.OK

"""``knowledge mcp``: MCP on stdio by copying bytes to the owner. Standard library only, ready in under 60 ms."""

from __future__ import annotations

from host_bridge.cli import output
from host_bridge.cli.dialects import McpDialect
from host_bridge.cli.options import CALLER, STATE_DIR, UsageError, parse, state_dir
from host_bridge.cli.pump import Pump
from host_bridge.owner.client import Connection, OwnerError, reach

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

    from messages.json_types import JsonObject

_OPTIONS = {**STATE_DIR, **CALLER, "--profile": True}
_PROFILES = ("simple", "read", "core", "full")


def run(arguments: Sequence[str]) -> int:
    options = parse(arguments, _OPTIONS)
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
    return Pump(connect, first, McpDialect()).run()

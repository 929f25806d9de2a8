"""``knowledge ui``: open the pages in a browser, by a link that works once. Standard library only."""

from __future__ import annotations

from host_bridge.cli import exits, output
from host_bridge.cli.options import STATE_DIR, parse, state_dir
from host_bridge.owner.client import Lost, OwnerError, reach

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

    from messages.json_types import JsonObject

_OPTIONS = {**STATE_DIR, "--print-url": False, "--read-only": False, "--plain-host": False, "--json": False}
_SECONDS = 30.0


def run(arguments: Sequence[str]) -> int:
    options = parse(arguments, _OPTIONS)
    compact = options.has("--json")
    try:
        found = _ask(
            state_dir(options), {"readOnly": options.has("--read-only"), "plainHost": options.has("--plain-host")}
        )
    except OwnerError as error:
        return output.failure(error, compact=compact)
    link = str(found.get("link"))
    if compact:
        output.emit(output.as_json(found, compact=True))
    elif options.has("--print-url"):
        output.emit(link)
    elif _opened(link):
        output.emit(f"Opened {found.get('url')} in the browser.")
    else:
        output.complain("No browser could be started. This link works once, within five minutes:")
        output.emit(link)
    return exits.OK


def _ask(place: str, params: JsonObject) -> JsonObject:
    connection = reach(place)
    try:
        result = connection.request("owner.ui", params, _SECONDS)
    except (Lost, TimeoutError):
        raise OwnerError("restarting", "The owner did not answer; ask again.") from None
    finally:
        connection.close()
    return result if isinstance(result, dict) else {}


def _opened(link: str) -> bool:
    """Whether a browser was started. One of the terminal would take it over, and keep the link in its own history."""
    import os
    import sys
    import webbrowser

    if sys.platform != "darwin" and not (os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY")):
        return False
    try:
        return webbrowser.open(link)
    except (webbrowser.Error, OSError):
        return False

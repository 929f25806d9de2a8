"""``knowledge serve``: be the owner, in the foreground, for one host on stdio, or detached for a thin client."""

from __future__ import annotations

import sys

from host_bridge.cli import exits, output
from host_bridge.cli.options import STATE_DIR, UsageError, parse, state_dir
from host_bridge.owner.client import OwnerError, reach

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

    from host_bridge.cli.options import Options
    from host_bridge.owner.http_door import HttpWish
    from messages.errors import KnowledgeError

_OPTIONS = {**STATE_DIR, "--stdio": False, "--http": True, "--insecure-bind": False}
# How a thin client starts an owner (host_bridge.owner.spawn); people have no use for them and no message names them.
_INTERNAL = {"--detached": False, "--report": True}


def run(arguments: Sequence[str]) -> int:
    options = parse(arguments, {**_OPTIONS, **_INTERNAL} if "--detached" in arguments else _OPTIONS)
    place = state_dir(options)
    from host_bridge.owner import process
    from messages.errors import KnowledgeError, OpenElsewhere

    if options.has("--detached"):
        report = options.whole_number("--report", 3, 1 << 20)
        if report is None:
            raise UsageError("--detached is for thin clients; start an owner with: knowledge serve")
        return process.run_detached(place, report)
    try:
        return process.run_foreground(place, stdio=options.has("--stdio"), http=_http(options))
    except OpenElsewhere as error:
        if options.has("--stdio") and isinstance(error.fields.get("socket"), str):
            output.complain(f"knowledge: {error.message} It serves this host too.")
            return _through_the_owner(place)
        return _refused(error)
    except KnowledgeError as error:
        return _refused(error)


def _http(options: Options) -> HttpWish | None:
    listen = options.get("--http")
    if listen is None:
        if options.has("--insecure-bind"):
            raise UsageError("--insecure-bind belongs to --http")
        return None
    host, separator, port = listen.rpartition(":")
    if not separator or not host or not (port.isascii() and port.isdigit() and int(port) <= 65_535):
        raise UsageError(f"--http is HOST:PORT, as in 127.0.0.1:8765 or [::1]:0, not {listen!r}")
    from host_bridge.owner.http_door import HttpWish

    return HttpWish(listen, options.has("--insecure-bind"))


def _through_the_owner(place: str) -> int:
    """Copy between the host's pipes and the busy owner: the host need not know whose process answers."""
    from host_bridge.cli.dialects import HostDialect
    from host_bridge.cli.pump import Pump

    try:
        first = reach(place)
    except OwnerError as error:
        return output.failure(error, compact=False)
    return Pump(lambda: reach(place), first, HostDialect()).run()


def _refused(error: KnowledgeError) -> int:
    sys.stderr.flush()
    return (
        output.failure(OwnerError(error.code, error.message, error.retry, dict(error.fields)), compact=False)
        or exits.DEFECT
    )

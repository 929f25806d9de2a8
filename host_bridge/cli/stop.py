"""``knowledge stop``: end the owner and wait until the state directory is free."""

from __future__ import annotations

import os
import signal
import time

from host_bridge.cli import exits, output
from host_bridge.cli.options import STATE_DIR, parse, state_dir
from host_bridge.owner import address, endpoint
from host_bridge.owner.client import Holder, Lost, OwnerError, is_held, reach, read_holder

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

_OPTIONS = {**STATE_DIR, "--json": False}
_WAIT_SECONDS = 15.0
_PAUSE_SECONDS = 0.02


def run(arguments: Sequence[str]) -> int:
    options = parse(arguments, _OPTIONS)
    place = state_dir(options)
    compact = options.has("--json")
    holder = read_holder(address.knowledge_dir(place))
    try:
        pid = _end(place, holder)
        ended = pid is not None and _gone(place, pid)
    except OwnerError as error:
        return output.failure(error, compact=compact)
    if pid is not None and not ended:
        message = f"Process {pid} was asked to stop and is still closing its databases after {_WAIT_SECONDS:g} s."
        return output.failure(OwnerError("stopping", message, fields={"pid": pid}), compact=compact)
    if compact:
        output.emit(output.as_json({"stateDir": place, "stopped": ended, "pid": pid}, compact=True))
    else:
        output.emit(f"No owner is running for {place}." if pid is None else f"The owner (pid {pid}) has ended.")
    return exits.OK


def _end(place: str, holder: Holder | None) -> int | None:
    """Ask the owner to end, by signal when it does not even greet; its process id, None when there is none."""
    try:
        connection = reach(place, start=False, timeout=5.0)
    except OwnerError as error:
        if error.code == "open_elsewhere":
            raise
        return _signal(holder)
    try:
        result = connection.request("owner.stop", {}, 5.0)
        return result["pid"] if isinstance(result, dict) and isinstance(result.get("pid"), int) else None
    except (Lost, TimeoutError):
        return _signal(holder)
    finally:
        connection.close()


def _signal(holder: Holder | None) -> int | None:
    """SIGTERM to the process that the kernel names as the listener: a process id from a file may be anybody's."""
    if holder is None or holder.socket is None:
        return None
    try:
        connection = endpoint.connect(holder.socket, 2.0)
    except (OSError, endpoint.ForeignPeer):
        return None
    with connection:
        pid = endpoint.peer_pid(connection)
    if pid is None or pid != holder.pid:
        return None
    os.kill(pid, signal.SIGTERM)
    return pid


def _gone(place: str, pid: int) -> bool:
    directory = address.knowledge_dir(place)
    until = time.monotonic() + _WAIT_SECONDS
    while time.monotonic() < until:
        holder = read_holder(directory)
        if holder is not None and holder.pid != pid:
            return True
        if not is_held(directory):  # whatever the file says, and whoever has that process id by now
            return True
        time.sleep(_PAUSE_SECONDS)
    return False

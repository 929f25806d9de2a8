"""A whole owner, from taking the lock to giving it back; the same path for foreground, detached and stdio owners.

Order of a start: lock, socket, then everything slow, which is why the heavy imports stand inside functions: clients
that come meanwhile wait in the socket's queue, and of eight processes that race for one directory seven leave before
they have imported anything. Order of an end: refuse, drain the bridge, flush what it answered, close, release.

Source: decisions.md section 8; DESIGN.md rule 6 (shutdown).
"""

from __future__ import annotations

import fcntl
import json
import logging
import os
import resource
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TextIO

import host_bridge
from host_bridge.owner import address, endpoint
from host_bridge.owner.lock import OwnerLock, take_owner_lock
from messages.errors import InternalError, KnowledgeError, OpenElsewhere, StoreUnavailable

TYPE_CHECKING = False
if TYPE_CHECKING:
    from host_bridge.bridge import KnowledgeBridge
    from host_bridge.owner.http_door import HttpWish
    from messages.json_types import JsonObject

DRAIN_SECONDS = 5.0
LEFT_SECONDS = 1.0  # for what the open calls of a host that has left did not finish within their own drain
_PREDECESSOR_SECONDS = 10.0
_SWITCH_INTERVAL_SECONDS = 0.0005  # the 5 ms default would let one busy lane hold up every other thread's answer
_REFUSING_SECONDS = 1.0
_DESCRIPTORS = 8_192
_log = logging.getLogger(__name__)


def run_detached(state_dir: str, report: int) -> int:
    """Leave the starting client behind, own the directory until idle, and report through descriptor ``report``.

    Returns an exit status; a directory that somebody else owns is no failure.
    """
    if os.fork():
        os._exit(0)  # the client waits for this half; the other one is nobody's child

    def tell(message: JsonObject) -> None:
        try:
            os.write(report, json.dumps(message).encode() + b"\n")
            os.close(report)
        except OSError:
            pass  # told already, or the client did not wait: the owner is useful to the next one

    try:
        lock = _take(state_dir, hand_over=False)
    except OpenElsewhere as error:
        tell({"held": True} if isinstance(error.fields.get("socket"), str) else {"error": _wire(error)})
        return 0
    except KnowledgeError as error:
        tell({"error": _wire(error)})
        return 1
    try:
        return _own(state_dir, lock, detached=True, on_listening=lambda: tell({"listening": True}))
    except KnowledgeError as error:
        tell({"error": _wire(error)})
        return 1
    finally:
        lock.release()


def run_foreground(state_dir: str, *, stdio: bool = False, http: HttpWish | None = None) -> int:
    """Own the directory until a signal, ``knowledge stop`` or, with ``stdio``, the end of the host's input.

    ``http``: serve HTTP as well, which the configuration may also say.

    Raises the :class:`KnowledgeError` for which it could not start: :class:`OpenElsewhere` names who holds it.
    """
    lock = _take(state_dir, hand_over=True)
    try:
        return _own(state_dir, lock, detached=False, stdio=stdio, http=http)
    finally:
        lock.release()


def claim_standard_streams() -> tuple[int, int]:
    """Private descriptors of what were stdin and stdout; 0 and 1 are /dev/null and stderr from now on.

    A stray ``print`` or a child process can then neither break the wire nor read from it (HOSTS.md section 2, 21).
    """
    sys.stdout.flush()
    wire_in = fcntl.fcntl(0, fcntl.F_DUPFD_CLOEXEC, 3)
    wire_out = fcntl.fcntl(1, fcntl.F_DUPFD_CLOEXEC, 3)
    null = os.open(os.devnull, os.O_RDONLY)
    os.dup2(null, 0)
    os.close(null)
    os.dup2(2, 1)
    return wire_in, wire_out


def _take(state_dir: str, *, hand_over: bool) -> OwnerLock:
    try:
        path = address.socket_path(state_dir)
        return take_owner_lock(address.knowledge_dir(state_dir), socket=path, hand_over=hand_over)
    except address.UnsafePlace as error:
        raise StoreUnavailable(str(error)) from error


def _own(
    state_dir: str,
    lock: OwnerLock,
    *,
    detached: bool,
    stdio: bool = False,
    http: HttpWish | None = None,
    on_listening: Callable[[], None] = lambda: None,
) -> int:
    assert lock.socket is not None
    sys.setswitchinterval(_SWITCH_INTERVAL_SECONDS)
    _allow_many_descriptors()
    _outlive_predecessor(lock.socket)
    wire = claim_standard_streams() if stdio else None
    listener = endpoint.listen(lock.socket)
    on_listening()
    from host_bridge.owner import logs
    from host_bridge.owner import server as serving
    from host_bridge.owner.http_door import HttpDoor
    from host_bridge.owner.http_door import HttpWish as Wish
    from host_bridge.owner.session import EOF_DRAIN_SECONDS

    log = None if detached or stdio else _open_log(lock.directory)  # a terminal gets sentences, the file the rest
    logs.configure(log, level=logging.WARNING if stdio else logging.INFO)
    bridge = None
    try:
        bridge = _open_bridge(state_dir, lock)
        door = HttpDoor(bridge)
        if http is None and not detached and not stdio and bridge.configuration.http.is_configured:
            http = Wish()
        served_at = None if http is None else door.serve(http)
    except KnowledgeError as error:
        if bridge is not None:
            _close(bridge, 0.0)
        _log.error("the owner could not start", extra={"code": error.code})
        if detached:
            serving.refuse_everybody(listener, error, _REFUSING_SECONDS)
        listener.close()
        os.unlink(lock.socket)
        raise
    written = (1, 2) if log is None else (log.fileno(),)
    server = serving.OwnerServer(
        listener,
        lock.socket,
        bridge,
        lambda: bridge.configuration.default_agent,
        detached=detached,
        idle_seconds=bridge.configuration.runtime.owner_idle.total_seconds(),
        parent=os.getppid() if stdio else None,
        http=door,
        still_owner=lock.keep,
        housekeeping=(lambda: None) if stdio else (lambda: logs.keep_small(address.log_path(lock.directory), written)),
    )
    serving.stop_on_signals(server)
    if served_at is not None:  # said once a signal ends it in order
        sys.stderr.write(f"knowledge serves HTTP at {served_at}.\n")
        sys.stderr.flush()
    _log.info("owner up", extra={"pid": os.getpid(), "version": host_bridge.__version__, "detached": detached})
    host = None
    if wire is not None:
        from host_bridge.stdio import StdioHost

        host = StdioHost(bridge, *wire, server.request_stop)
    elif not detached:
        sys.stderr.write(f"knowledge {host_bridge.__version__} owns {state_dir} (pid {os.getpid()}).\n")
        sys.stderr.flush()
    try:
        reason = server.run()
    except Exception:  # noqa: BLE001 - whatever failed, the databases are closed in order before the process ends
        _log.exception("the owner's loop failed")
        reason = "defect"
    server.refuse_new()
    if host is not None:
        host.stop_accepting()
    if host is not None and reason != "stdout closed":
        # Also those that wait for a store to open, which a closing bridge would refuse.
        host.wait_idle(EOF_DRAIN_SECONDS if reason == "stdin closed" else DRAIN_SECONDS)
    stuck = _close(bridge, LEFT_SECONDS if reason in ("stdin closed", "stdout closed") else DRAIN_SECONDS)
    if host is not None:
        host.finish()
    signal.set_wakeup_fd(-1)
    server.close()
    if not detached and not stdio:
        sys.stderr.write(f"knowledge has stopped ({reason}).\n")
        sys.stderr.flush()
    if stuck:
        # A thread that sits in a system call would keep the process, and with it the lock, for ever.
        sys.stderr.flush()
        os._exit(1)
    return 1 if reason == "defect" else 0


def _open_log(directory: str) -> TextIO | None:
    """The owner's log; None, which leaves stderr to it, where there can be none."""
    flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC | os.O_NOFOLLOW
    try:
        return os.fdopen(os.open(address.log_path(directory), flags, 0o600), "a", buffering=1, encoding="utf-8")
    except OSError:
        return None


def _outlive_predecessor(path: str) -> None:
    """Wait until an owner whose directory was replaced under it has closed: it serves at the path that becomes ours.

    A connection makes it look whether the directory is still its own, and ends when it has closed everything. Raises
    :class:`OpenElsewhere` for one that stays, such as the owner of another directory that has the same name elsewhere.
    """
    try:
        connection = endpoint.connect(path, _PREDECESSOR_SECONDS)
    except (OSError, endpoint.ForeignPeer):
        return  # nobody of ours listens there
    with connection:
        pid = endpoint.peer_pid(connection)
        try:
            while connection.recv(4096):
                pass
        except TimeoutError:
            raise OpenElsewhere(
                f"Process {pid} still serves at {path}, where this directory's owner would listen; end it, or set "
                "XDG_RUNTIME_DIR to another folder of yours.",
                pid=pid,
            ) from None
        except OSError:
            pass  # reset: it is gone


def _allow_many_descriptors() -> None:
    """A connection takes five descriptors, and some systems begin at 256."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = _DESCRIPTORS if hard == resource.RLIM_INFINITY else min(_DESCRIPTORS, hard)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


def _close(bridge: KnowledgeBridge, drain_seconds: float) -> bool:
    """Close the bridge; whether an actor was left stuck in a call."""
    try:
        bridge.close(drain_seconds=drain_seconds)
    except KnowledgeError as error:
        _log.error("the runtime did not close", extra={"code": error.code})
        return True
    return False


def _open_bridge(state_dir: str, lock: OwnerLock) -> KnowledgeBridge:
    """The runtime itself: imported only now, when clients can already queue at the socket."""
    try:
        from host_bridge.bridge import KnowledgeBridge

        return KnowledgeBridge(Path(state_dir), owner_lock=lock)
    except KnowledgeError:
        raise
    except Exception as error:
        _log.exception("the runtime could not be built")
        raise InternalError(
            f"The runtime could not start ({type(error).__name__}); see {address.log_path(lock.directory)}."
        ) from error


def _wire(error: KnowledgeError) -> JsonObject:
    return {"message": error.message, "data": error.to_data()}

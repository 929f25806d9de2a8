"""Start a detached owner and hear how it went. Standard library only; loaded when there is no owner.

The new process has its own session, so that a host that kills its children's process group leaves it alone, and
descriptors 0-2 on /dev/null and ``owner.log``. It reports one JSON line through a pipe: that it listens, that
another process owns the directory already, or why it cannot start.

Source: decisions.md section 8.
"""

from __future__ import annotations

import json
import os
import select
import subprocess
import sys
import time

from host_bridge.owner import address
from host_bridge.owner.client import OwnerError
from storage import python_child


class Report:
    """``listening``: our child owns the directory. Neither that nor a failure: somebody else does."""

    __slots__ = ("failure", "listening")

    def __init__(self, listening: bool, failure: OwnerError | None = None) -> None:
        self.listening = listening
        self.failure = failure


def command(state_dir: str, *arguments: str) -> list[str]:
    """A command line of ours for a child."""
    return python_child.command("host_bridge", *arguments, "--state-dir", state_dir)


def start_detached(state_dir: str, timeout: float) -> Report:
    """Start one and wait for its report, at most ``timeout`` seconds; a silent one counts as not listening."""
    if not sys.executable:
        return Report(
            False, OwnerError("store_unavailable", "Cannot start an owner: Python does not know its own path.")
        )
    directory = address.knowledge_dir(state_dir)
    try:
        address.make_private(directory)
        log = _open_log(address.log_path(directory))
    except OSError as error:
        return Report(False, _no_place(directory, error))
    reader, writer = os.pipe()
    try:
        try:
            child = subprocess.Popen(
                command(state_dir, "serve", "--detached", "--report", str(writer)),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                pass_fds=(writer,),
                start_new_session=True,
                cwd="/",
                env=python_child.environment(),
            )
        except OSError as error:
            return Report(False, OwnerError("store_unavailable", f"Cannot start an owner: {error}."))
        finally:
            os.close(writer)
            os.close(log)
        line = _read_line(reader, timeout)
        child.wait()  # the child forks and goes at once; the owner itself is nobody's child
    finally:
        os.close(reader)
    return _understand(line, directory)


def _understand(line: bytes, directory: str) -> Report:
    try:
        report = json.loads(line) if line else None
    except ValueError:
        report = None
    match report:
        case {"listening": True}:
            return Report(True)
        case {"held": True}:
            return Report(False)
        case {"error": dict(error)}:
            return Report(False, OwnerError.from_error(error))
    log = address.log_path(directory)
    return Report(False, OwnerError("store_unavailable", f"The owner ended before it could listen; see {log}."))


def _open_log(path: str) -> int:
    return os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)


def _no_place(directory: str, error: OSError) -> OwnerError:
    return OwnerError(
        "storage_error", f"Cannot use {directory}: {error.strerror}. Choose another with --state-dir.", "never"
    )


def _read_line(descriptor: int, timeout: float) -> bytes:
    until = time.monotonic() + timeout
    collected = b""
    while not collected.endswith(b"\n"):
        ready, _, _ = select.select([descriptor], [], [], max(until - time.monotonic(), 0))
        if not ready:
            break
        chunk = os.read(descriptor, 65536)
        if not chunk:
            break
        collected += chunk
    return collected

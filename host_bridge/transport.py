"""Lines over a descriptor: one thread reads, one thread writes, and an answer leaves under its read lease.

Handing bytes to the transport is what *answering* means (decisions.md section 6): the outbox waits, without any
lease, until the other end can take bytes, and only then asks the pending answer to check its permit and hand over.
A peer that stops reading holds a lease for at most ``HAND_OVER_SECONDS`` and is then cut off.
"""

from __future__ import annotations

import logging
import os
import select
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from typing import Protocol

from messages.errors import InternalError, KnowledgeError
from messages.json_types import JsonObject
from messages.vocabulary import REQUEST_MAX_BYTES

HAND_OVER_SECONDS = 5.0
_CHUNK = 1 << 16
_log = logging.getLogger(__name__)


class PendingAnswer(Protocol):
    """One call on its way, as the bridge returns it. See ``host_bridge.bridge``."""

    def add_done_callback(self, callback: Callable[[PendingAnswer], None], /) -> None:
        """``callback`` runs once the answer is ready to be delivered; any thread; at once when it is already."""

    def deliver(self, hand_over: Callable[[JsonObject], None]) -> None:
        """Check the permit and call ``hand_over`` in one step, or raise the ``KnowledgeError`` instead."""

    def cancel(self) -> None:
        """Ask for an early end; a write after its journal commit still gives its normal answer."""


@dataclass(frozen=True, slots=True)
class Oversize:
    """A line longer than the limit was skipped."""

    limit: int


@dataclass(frozen=True, slots=True)
class _Answer:
    pending: PendingAnswer
    render: Callable[[JsonObject], bytes]
    refuse: Callable[[KnowledgeError], bytes]


class WakePipe:
    """Wakes a thread that polls: ``wake`` may be called from any thread and from a signal handler."""

    def __init__(self) -> None:
        self.reader, self.writer = os.pipe()
        os.set_blocking(self.reader, False)
        os.set_blocking(self.writer, False)
        self._lock = threading.Lock()
        self._closed = False

    def wake(self) -> None:
        try:
            os.write(self.writer, b"x")
        except (BlockingIOError, OSError):
            pass  # full: it is awake already; closed: nobody is there to be woken

    def clear(self) -> None:
        try:
            os.read(self.reader, 4096)
        except BlockingIOError:
            pass

    def close(self) -> None:
        with self._lock:
            if not self._closed:
                self._closed = True
                os.close(self.reader)
                os.close(self.writer)


class LineReader:
    """The lines of a descriptor, without their line ends. One thread iterates; :meth:`stop` from any thread."""

    def __init__(self, descriptor: int, *, limit: int = REQUEST_MAX_BYTES, first: bytes = b"") -> None:
        self._descriptor = descriptor
        self._limit = limit
        self._rest = first
        self._wake = WakePipe()
        self._stopped = False

    def __iter__(self) -> Iterator[bytes | Oversize]:
        """Complete lines until the other end closes or :meth:`stop`; an unfinished last line counts as one."""
        parts: list[bytes] = []
        held = 0
        skipping = False
        chunk: bytes | None = self._rest
        while chunk is not None:
            *complete, tail = chunk.split(b"\n")
            for piece in complete:
                if self._stopped:
                    return
                if skipping or held + len(piece) > self._limit:
                    yield Oversize(self._limit)
                else:
                    yield b"".join((*parts, piece))
                parts, held, skipping = [], 0, False
            held += len(tail)
            if held > self._limit:
                parts, skipping = [], True
            elif tail:
                parts.append(tail)
            chunk = self._next_chunk()
        if skipping and not self._stopped:
            yield Oversize(self._limit)
        elif parts and not self._stopped:
            yield b"".join(parts)

    def _next_chunk(self) -> bytes | None:
        """What came next; None when the other end closed, the connection failed or somebody stopped us."""
        poller = select.poll()
        poller.register(self._descriptor, select.POLLIN)
        poller.register(self._wake.reader, select.POLLIN)
        while not self._stopped:
            ready = {descriptor for descriptor, _ in poller.poll()}
            if self._descriptor in ready and not self._stopped:
                try:
                    return os.read(self._descriptor, _CHUNK) or None
                except OSError:
                    return None
        return None

    def stop(self) -> None:
        self._stopped = True
        self._wake.wake()

    def close(self) -> None:
        self._wake.close()


class Outbox:
    """Writes lines to a descriptor in its own thread, in the order in which they were put. Any thread puts.

    The descriptor need not be non-blocking: pieces of at most ``PIPE_BUF`` bytes are written, each after the
    descriptor said that it has room. ``send`` is for one that can do better: it writes as much as there is room for,
    says how much that was, and raises ``BlockingIOError`` instead of waiting. ``on_broken`` runs once, in the writer's
    thread, when the other end is gone.
    """

    def __init__(
        self,
        descriptor: int,
        *,
        name: str,
        on_broken: Callable[[], None] | None = None,
        patience: float = HAND_OVER_SECONDS,
        send: Callable[[memoryview], int] | None = None,
    ) -> None:
        self._descriptor = descriptor
        self._send = send or self._send_piece
        self._on_broken = on_broken
        self._patience = patience
        self._items: deque[bytes | _Answer] = deque()
        self._changed = threading.Condition()
        self._closing = False
        self._abandoned = False
        self._broken = False
        self._wake = WakePipe()
        self._thread = threading.Thread(target=self._run, name=f"outbox-{name}", daemon=True)
        self._thread.start()

    @property
    def broken(self) -> bool:
        return self._broken

    def put(self, line: bytes) -> None:
        """Queue one line (its line end is added)."""
        self._put(line + b"\n")

    def put_answer(
        self,
        pending: PendingAnswer,
        render: Callable[[JsonObject], bytes],
        refuse: Callable[[KnowledgeError], bytes],
    ) -> None:
        """Queue an answer that is ready: it is rendered and written under its read lease, when its turn comes."""
        self._put(_Answer(pending, render, refuse))

    def close(self, flush_seconds: float = 1.0) -> None:
        """Write what is queued, for at most ``flush_seconds``, then end the thread."""
        with self._changed:
            self._closing = True
            self._changed.notify_all()
        if threading.current_thread() is self._thread:
            return
        self._thread.join(flush_seconds)
        if self._thread.is_alive():
            self._abandoned = True
            self._wake.wake()
            self._thread.join()
        self._wake.close()

    def _put(self, item: bytes | _Answer) -> None:
        with self._changed:
            self._items.append(item)
            self._changed.notify_all()

    def _run(self) -> None:
        while True:
            with self._changed:
                while not self._items and not self._closing:
                    self._changed.wait()
                if not self._items:
                    return
                item = self._items.popleft()
            if not self._broken:
                self._write_item(item)

    def _write_item(self, item: bytes | _Answer) -> None:
        try:
            self._wait_for_room(None)
            if isinstance(item, bytes):
                self._write(item)
            else:
                self._hand_over(item)
        except OSError as error:
            self._break(error)

    def _hand_over(self, answer: _Answer) -> None:
        started = False

        def hand_over(result: JsonObject) -> None:
            nonlocal started
            line = answer.render(result) + b"\n"
            started = True
            self._write(line)

        try:
            answer.pending.deliver(hand_over)
        except KnowledgeError as error:
            if started:
                raise OSError("the answer was refused in the middle of its hand-over") from error
            self._write(answer.refuse(error) + b"\n")
        except OSError:
            if started:
                raise
            self._write(answer.refuse(_defect("delivery")) + b"\n")
        except Exception:  # noqa: BLE001 - a defect in an answer costs that answer, never the connection's others
            _log.exception("an answer could not be delivered")
            if started:
                raise OSError("an answer broke off") from None
            self._write(answer.refuse(_defect("delivery")) + b"\n")

    def _write(self, data: bytes) -> None:
        until = time.monotonic() + self._patience
        view = memoryview(data)
        has_room = True  # which the hand-over has waited for
        while view:
            if not has_room:
                self._wait_for_room(until)
            has_room = False
            with suppress(BlockingIOError):
                view = view[self._send(view) :]

    def _send_piece(self, view: memoryview) -> int:
        return os.write(self._descriptor, view[: select.PIPE_BUF])

    def _wait_for_room(self, until: float | None) -> None:
        """Return once the descriptor takes bytes; ``OSError`` when its reader is gone or ``until`` has passed."""
        poller = select.poll()
        poller.register(self._descriptor, select.POLLOUT)
        poller.register(self._wake.reader, select.POLLIN)
        while True:
            left = None if until is None else max(until - time.monotonic(), 0) * 1000
            events = dict(poller.poll(left))
            if self._abandoned:
                raise BrokenPipeError("abandoned while closing")
            state = events.get(self._descriptor, 0)
            if state & (select.POLLERR | select.POLLHUP | select.POLLNVAL):
                raise BrokenPipeError("the other end is closed")
            if state & select.POLLOUT:
                return
            if until is not None and time.monotonic() >= until:
                raise TimeoutError("the other end does not read")

    def _break(self, error: OSError) -> None:
        self._broken = True
        _log.info("connection broke", extra={"reason": type(error).__name__})
        if self._on_broken is not None:
            self._on_broken()


def _defect(where: str) -> InternalError:
    return InternalError(f"The answer could not be written ({where}); the log has the details.", retry="unknown")

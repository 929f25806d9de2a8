"""The host protocol on this process's own stdin and stdout (``knowledge serve --stdio``).

The process that started us is the host. Nothing but protocol is ever written to its pipe: see
``host_bridge.owner.process.claim_standard_streams``.

Source: decisions.md section 7; HOSTS.md sections 0 (rule 10) and 2 (rows 21, 25).
"""

from __future__ import annotations

import threading
from collections.abc import Callable

from host_bridge.dispatch import Service
from host_bridge.rpc import RpcPeer
from host_bridge.transport import LineReader, Outbox

_FLUSH_SECONDS = 1.0


class StdioHost:
    """The one host at the other end of our pipes. ``on_end`` hears, once, why its connection ended."""

    def __init__(self, service: Service, wire_in: int, wire_out: int, on_end: Callable[[str], None]) -> None:
        self._on_end = on_end
        self._drained = threading.Event()
        self._reader = LineReader(wire_in)
        self._outbox = Outbox(wire_out, name="stdio", on_broken=lambda: on_end("stdout closed"))
        self._peer = RpcPeer(service, self._outbox, on_shutdown=self._shut_down)
        self._shutting_down = False
        self._thread = threading.Thread(target=self._run, name="stdio", daemon=True)
        self._thread.start()

    def stop_accepting(self) -> None:
        self._peer.stop_accepting()

    def wait_idle(self, seconds: float) -> bool:
        """Let open calls end; whether they did."""
        return self._peer.calls.wait_idle(seconds)

    def finish(self) -> None:
        """The runtime has drained: write what is left, the answer to ``shutdown`` last, and end the threads."""
        self._drained.set()
        self._peer.calls.wait_idle(_FLUSH_SECONDS)
        if self._shutting_down:
            self._peer.shut_down.wait(_FLUSH_SECONDS)
        self._reader.stop()
        self._thread.join()
        self._outbox.close(_FLUSH_SECONDS)
        self._reader.close()

    def _run(self) -> None:
        try:
            for line in self._reader:
                self._peer.receive(line)
        finally:
            self._peer.end_subscriptions()
        self._on_end("stdin closed")

    def _shut_down(self) -> None:
        self._shutting_down = True
        self._on_end("shutdown")
        self._drained.wait()

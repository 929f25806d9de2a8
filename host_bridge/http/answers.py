"""From a submitted call to bytes on the wire, without blocking the event loop.

An answer happens when its bytes are handed to the transport. The permit is checked, and the bytes are sent and drained
into the kernel, in one step under the read lease: a worker thread holds the lease while the event loop writes. A client
that does not read holds a lease for at most ``HAND_OVER_SECONDS`` and is then cut off.

Source: decisions.md section 6; host_bridge.transport (the same rule on a socket).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Final

from starlette.types import Receive, Send

from host_bridge.dispatch import PreparedCall
from host_bridge.http.connection import GuardedConnection
from host_bridge.transport import HAND_OVER_SECONDS, PendingAnswer
from messages.errors import InternalError, KnowledgeError
from messages.json_types import JsonObject

_DELIVERERS: Final = 64
JSON: Final = "application/json"
_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Reply:
    """One complete response."""

    status: int
    body: bytes
    headers: Mapping[str, str] = field(default_factory=dict)
    media_type: str = JSON


class ClientGone(Exception):
    """Nobody is there to answer: the client hung up, or did not read and was cut off."""


class Deliverer:
    """Hands answers over. One for each server; :meth:`close` when its loop has ended."""

    def __init__(self, hand_over_seconds: float = HAND_OVER_SECONDS) -> None:
        self._pool = ThreadPoolExecutor(_DELIVERERS, thread_name_prefix="http-answer")
        self._seconds = hand_over_seconds

    async def run(
        self,
        call: PreparedCall,
        receive: Receive,
        settled: Callable[[JsonObject], Awaitable[None]],
        refused: Callable[[KnowledgeError], Awaitable[None]],
        connection: GuardedConnection | None,
    ) -> str:
        """Submit the call, wait for its answer and send what ``settled`` or ``refused`` send of it; the outcome's code.

        A client that hangs up cancels a call that was not accepted yet; an accepted write is finished all the same.
        """
        try:
            pending = call.submit()
        except Exception as error:  # noqa: BLE001 - the bridge promises not to raise; the caller still gets its answer
            _log.error(
                "a call could not be submitted",
                extra={"correlation": call.correlation_id, "error_type": type(error).__name__},
            )
            defect = InternalError("The call could not be submitted; the log has the details.")
            await refused(defect)
            return defect.code
        if not await answered(pending, receive):
            raise ClientGone
        return await self.hand_over(pending, settled, refused, connection)

    async def under_leases(
        self,
        pendings: Sequence[PendingAnswer],
        write: Callable[[], Awaitable[None]],
        connection: GuardedConnection | None,
    ) -> None:
        """Run ``write`` while each of these answers may still be given, its read lease held. Raises the refusal of the
        first that may not, before anything was written; :class:`ClientGone`."""
        loop = asyncio.get_running_loop()
        started = False

        def within(rest: Sequence[PendingAnswer]) -> None:
            nonlocal started
            if rest:
                rest[0].deliver(lambda _: within(rest[1:]))
                return
            started = True
            self._wait_for(write(), loop, connection)

        try:
            await loop.run_in_executor(self._pool, within, pendings)
        except KnowledgeError as error:
            if started:
                raise ClientGone from error
            raise

    def _wait_for(
        self, writing: Awaitable[None], loop: asyncio.AbstractEventLoop, connection: GuardedConnection | None
    ) -> None:
        """In a deliverer's thread: until the loop has written, or the client is cut off."""
        written = asyncio.run_coroutine_threadsafe(_as_coroutine(writing), loop)
        try:
            written.result(self._seconds)
        except TimeoutError:
            written.cancel()
            if connection is not None:
                loop.call_soon_threadsafe(connection.abort)
            raise ClientGone from None

    async def hand_over(
        self,
        pending: PendingAnswer,
        settled: Callable[[JsonObject], Awaitable[None]],
        refused: Callable[[KnowledgeError], Awaitable[None]],
        connection: GuardedConnection | None,
    ) -> str:
        """Send the answer under its read lease, or its refusal without one. Raises :class:`ClientGone`."""
        loop = asyncio.get_running_loop()
        started = False

        def write(result: JsonObject) -> None:
            nonlocal started
            started = True
            self._wait_for(settled(result), loop, connection)

        try:
            await loop.run_in_executor(self._pool, lambda: pending.deliver(write))
        except KnowledgeError as error:
            if started:
                raise ClientGone from error
            await refused(error)
            return error.code
        except (ClientGone, asyncio.CancelledError):
            raise
        except Exception as error:  # noqa: BLE001 - a defect in an answer costs that answer, and its text is not for the log
            _log.error("an answer could not be delivered", extra={"error_type": type(error).__name__})
            if started:
                raise ClientGone from None
            defect = InternalError("The answer could not be written; the log has the details.", retry="unknown")
            await refused(defect)
            return defect.code
        return "ok"

    def close(self) -> None:
        self._pool.shutdown(wait=False, cancel_futures=True)


async def answered(pending: PendingAnswer, receive: Receive) -> bool:
    """Wait until there is an answer; ``False``, and the call asked to end, where the client has gone before."""
    done = signal_of(pending)
    waiting = asyncio.ensure_future(done.wait())
    gone = asyncio.ensure_future(_disconnected(receive))
    try:
        await asyncio.wait((waiting, gone), return_when=asyncio.FIRST_COMPLETED)
        if not done.is_set():
            pending.cancel()
            return False
        return True
    except asyncio.CancelledError:
        pending.cancel()
        raise
    finally:
        waiting.cancel()
        gone.cancel()


def signal_of(pending: PendingAnswer) -> asyncio.Event:
    """Set on the running loop once the answer is there, whichever thread gives it."""
    done = asyncio.Event()
    loop = asyncio.get_running_loop()

    def settle(_: PendingAnswer) -> None:
        with suppress(RuntimeError):  # the loop has ended: nobody waits any more
            loop.call_soon_threadsafe(done.set)

    pending.add_done_callback(settle)
    return done


async def send_reply(send: Send, reply: Reply) -> None:
    """The whole response. When this returns, the kernel has every byte of it."""
    headers = {"content-type": reply.media_type, "content-length": str(len(reply.body)), **reply.headers}
    raw = [(name.lower().encode("latin-1"), value.encode("latin-1")) for name, value in headers.items()]
    await send({"type": "http.response.start", "status": reply.status, "headers": raw})
    await send({"type": "http.response.body", "body": reply.body, "more_body": True})
    await send({"type": "http.response.body", "body": b"", "more_body": False})  # waits for the bytes before it


async def _disconnected(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


async def _as_coroutine(awaited: Awaitable[None]) -> None:
    await awaited


__all__ = ["ClientGone", "Deliverer", "Reply", "answered", "send_reply", "signal_of"]

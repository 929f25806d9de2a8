"""The way from a reply into an event loop.

Source: DESIGN.md rule 11.
"""

from __future__ import annotations

import asyncio
from typing import TypeVar

from actors.supervision._reply import Reply

R = TypeVar("R")


def as_asyncio_future(reply: Reply[R], loop: asyncio.AbstractEventLoop | None = None) -> asyncio.Future[R]:
    """A future of ``loop`` (the running one by default) with the reply's answer; the loop is never blocked.

    The answer is posted with ``call_soon_threadsafe``; a future that was cancelled, or a loop that was closed
    meanwhile, is left alone. Cancelling the future does not cancel the request.
    """
    target = loop or asyncio.get_running_loop()
    future: asyncio.Future[R] = target.create_future()

    def settle() -> None:
        if future.done():
            return
        error = reply.error()
        if error is not None:
            future.set_exception(error)
        else:
            future.set_result(reply.result(0))

    def post(_: Reply[R]) -> None:
        if not target.is_closed():
            target.call_soon_threadsafe(settle)

    reply.add_done_callback(post)
    return future

"""One HTTP exchange that ends at its deadline, whatever the server does.

The requests run on an event loop in a thread of their own, since only there can a deadline end every wait: the look-up
of a name, the handshake, a header that drips in. A read timeout ends none of these while bytes keep coming. Redirects
are not followed, so neither the key nor the text goes to another host, and an answer is read up to its bound and no
further. The thread starts with the first request, or with what is made ready before it: the client's modules, the
certificates and the way to the server cost half a second of the first turn otherwise.

Source: knowledge-more-facts.md sections 10 and 11.
"""

from __future__ import annotations

import asyncio
import ipaddress
import ssl
import threading
from collections.abc import Callable, Coroutine, Mapping
from concurrent.futures import CancelledError
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, TypeVar
from urllib.parse import urlsplit

from messages.envelope import Deadline
from messages.provider.decision import DecisionUnavailable

if TYPE_CHECKING:
    import httpx

RESPONSE_MAX_BYTES: Final = 4 * 1024 * 1024
_JOIN_SECONDS: Final = 5.0
_PREPARE_SECONDS: Final = 5.0
_KEPT_SECONDS: Final = 60.0
"""How long an idle connection is kept: people pause between their messages."""
_T = TypeVar("_T")


@dataclass(frozen=True, slots=True)
class Reply:
    """A complete answer: the status, and the body where the status is 200."""

    status: int
    body: bytes


class Loop:
    """An event loop in a daemon thread. Any thread; close it.

    ``at_the_end`` holds what is awaited on the loop before it ends; only the loop's own thread touches it.
    """

    def __init__(self) -> None:
        self.at_the_end: set[Callable[[], Coroutine[None, None, None]]] = set()
        self._lock = threading.Lock()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None
        self._closed = False

    def run(self, work: Coroutine[None, None, _T], deadline: Deadline) -> _T:
        """What ``work`` returns or raises; it is cancelled at the deadline, which raises ``deadline``."""
        if deadline.passed():
            work.close()
            raise DecisionUnavailable("deadline", "the deadline had passed before the request was sent")
        with self._lock:
            if self._closed:
                work.close()
                raise DecisionUnavailable("provider-error", "the decision providers are closed")
            future = asyncio.run_coroutine_threadsafe(work, self._started())
        try:
            return future.result(max(0.0, deadline.remaining()))
        except TimeoutError:
            raise DecisionUnavailable("deadline", "the endpoint did not answer before the deadline") from None
        except CancelledError:
            raise DecisionUnavailable("provider-error", "the decision providers were closed meanwhile") from None
        finally:
            future.cancel()

    def begin(self, work: Coroutine[None, None, None]) -> None:
        """Start ``work``, and the loop where it does not run yet; nobody waits for it. Nothing once it is closed."""
        with self._lock:
            if self._closed:
                work.close()
            else:
                asyncio.run_coroutine_threadsafe(work, self._started())

    def leave(self, work: Coroutine[None, None, None]) -> None:
        """Run ``work`` some time, where the loop runs at all; nobody waits for it."""
        with self._lock:
            if self._loop is None:
                work.close()
            else:
                asyncio.run_coroutine_threadsafe(work, self._loop)

    def close(self) -> None:
        """Ends what is under way and joins the thread; idempotent."""
        with self._lock:
            self._closed = True
            loop, thread = self._loop, self._thread
            self._loop = self._thread = None
        if loop is not None and thread is not None:
            loop.call_soon_threadsafe(loop.stop)
            thread.join(_JOIN_SECONDS)

    def _started(self) -> asyncio.AbstractEventLoop:
        """The running loop. Call it with the lock held."""
        if self._loop is None:
            self._loop = asyncio.new_event_loop()
            self._thread = threading.Thread(target=self._serve, args=(self._loop,), name="decisions", daemon=True)
            self._thread.start()
        return self._loop

    def _serve(self, loop: asyncio.AbstractEventLoop) -> None:
        try:
            loop.run_forever()
            loop.run_until_complete(self._end())
        finally:
            loop.close()

    async def _end(self) -> None:
        left = asyncio.all_tasks() - {asyncio.current_task()}
        for task in left:
            task.cancel()
        await asyncio.gather(*left, return_exceptions=True)
        for last in tuple(self.at_the_end):
            await last()
        await asyncio.sleep(0)  # a closed transport lets go of its socket in the next round


class Exchange:
    """POSTs JSON to one URL over connections that stay open. Any thread; close it."""

    def __init__(self, loop: Loop, url: str, connections: int) -> None:
        self._loop = loop
        self._url = url
        self._connections = connections
        self._pool: _Pool | None = None
        self._certificates: ssl.SSLContext | None = None
        self._retired = False

    def post(self, body: bytes, key: str | None, deadline: Deadline, before_dispatch: Callable[[], None]) -> Reply:
        """The server's complete answer. ``before_dispatch`` is called on the loop's thread once the connection is
        there, however long that took: what it raises is raised here, and no byte of the request is sent.

        Raises ``DecisionUnavailable`` without text, key or address in it.
        """
        headers = {"Content-Type": "application/json", "Accept": "application/json", "Accept-Encoding": "identity"}
        if key is not None:
            headers["Authorization"] = f"Bearer {key}"
        outcome = self._loop.run(self._post(body, headers, before_dispatch), deadline)
        if isinstance(outcome, Reply):
            return outcome
        raise outcome

    async def prepare(self) -> None:
        """Go the way of a first request up to the point where it would be sent: everything is loaded, and the server is
        connected to once. No byte of a request is sent, and whatever goes wrong is left to the first request.

        On the loop's thread. Nothing where a request has gone before."""

        def stop() -> None:
            raise _NothingToSend

        if self._pool is None and not self._retired:
            with suppress(TimeoutError):
                await asyncio.wait_for(self._post(b"", {}, stop), _PREPARE_SECONDS)

    def retire(self) -> None:
        """Close the connections as soon as no request uses them."""
        self._retired = True
        self._loop.leave(self._let_go(self._pool))

    async def _post(
        self, body: bytes, headers: Mapping[str, str], before_dispatch: Callable[[], None]
    ) -> Reply | BaseException:
        """Returned and not raised where it failed: httpx's errors hold the request, and the request holds the key."""
        import httpx  # a thin client of the owner never gets here

        async def on_event(name: str, _: object) -> None:
            if name.endswith("send_request_headers.started"):
                try:
                    before_dispatch()
                except BaseException as error:  # noqa: BLE001 - whatever it is, it belongs to the caller's thread
                    raise _Stopped(error) from None

        pool: _Pool | None = None
        try:
            pool = self._connected()
            pool.under_way += 1
            async with pool.client.stream(
                "POST", self._url, content=body, headers=headers, extensions={"trace": on_event}
            ) as response:
                if response.status_code != 200:
                    return Reply(response.status_code, b"")
                return await _complete(response)
        except asyncio.CancelledError:
            # A request that is given up while its connection is being made leaves that connection in the pool, where
            # httpcore counts it for ever (encode/httpcore issue 1093): the next request gets a pool of its own.
            if self._pool is pool:
                self._pool = None
            raise
        except _Stopped as stopped:
            return stopped.error
        except httpx.HTTPError as error:
            return DecisionUnavailable("provider-error", f"the exchange failed: {type(error).__name__}")
        except Exception as error:  # noqa: BLE001 - whatever a proxy or a certificate of the environment leads to
            return DecisionUnavailable("provider-error", f"the request could not be sent: {type(error).__name__}")
        finally:
            if pool is not None:
                pool.under_way -= 1
                await self._let_go(pool)

    def _connected(self) -> _Pool:
        import httpx

        if self._pool is None:
            client = httpx.AsyncClient(
                verify=self._trust(),
                timeout=None,  # the deadline ends every wait
                follow_redirects=False,
                trust_env=not _is_loopback(self._url),  # a proxy has no business between us and this machine
                limits=httpx.Limits(
                    max_connections=None,  # how many requests there are at once is bounded before they get here
                    max_keepalive_connections=self._connections,
                    keepalive_expiry=_KEPT_SECONDS,
                ),
            )
            self._pool = _Pool(client)
            self._loop.at_the_end.add(client.aclose)
        return self._pool

    def _trust(self) -> ssl.SSLContext:
        """Certificates are always checked; without TLS there is no reason to load who may sign them."""
        import httpx

        if self._certificates is None:
            tls = urlsplit(self._url).scheme == "https"
            self._certificates = httpx.create_ssl_context() if tls else ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        return self._certificates

    async def _let_go(self, pool: _Pool | None) -> None:
        """Close the connections of a pool that no request uses and none will use."""
        if pool is None or pool.under_way or not (self._retired or self._pool is not pool):
            return
        if self._pool is pool:
            self._pool = None
        self._loop.at_the_end.discard(pool.client.aclose)
        await pool.client.aclose()


@dataclass(slots=True)
class _Pool:
    """A client with its connections, and how many requests use it."""

    client: httpx.AsyncClient
    under_way: int = 0


class _NothingToSend(Exception):
    """The server is connected to, and there is no request."""


class _Stopped(Exception):
    """What ``before_dispatch`` raised, on its way through the client."""

    def __init__(self, error: BaseException) -> None:
        super().__init__()
        self.error = error


async def _complete(response: httpx.Response) -> Reply | DecisionUnavailable:
    if response.headers.get("content-encoding", "identity") != "identity":
        return DecisionUnavailable("invalid-response", "the answer is compressed, which was not asked for")
    body = bytearray()
    async for piece in response.aiter_raw():
        body += piece
        if len(body) > RESPONSE_MAX_BYTES:
            return DecisionUnavailable("invalid-response", f"the answer is larger than {RESPONSE_MAX_BYTES} bytes")
    return Reply(200, bytes(body))


def _is_loopback(url: str) -> bool:
    host = urlsplit(url).hostname or ""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"

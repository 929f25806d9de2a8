"""One HTTP server inside an owner: its listening socket, its thread with its event loop, its start and its end.

Guarantees: it binds to loopback, or elsewhere only with TLS or where a person says that plain text may travel; it owns
its thread and leaves none behind; its end comes in two steps, so that what the runtime answers while it drains still
leaves: :meth:`HttpServer.stop_accepting`, then :meth:`HttpServer.close`.

Source: decisions.md sections 1 (http), 7 and 8.
"""

from __future__ import annotations

import asyncio
import ipaddress
import logging
import secrets
import socket
import ssl
import threading
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Final

import uvicorn

from host_bridge.http.application import Application, ExplorerRoutes, build_application
from host_bridge.http.asking import HttpService
from host_bridge.http.connection import HEAD_MAX_BYTES, HEAD_SECONDS, Connections, GuardedConnection
from host_bridge.http.door import Limits
from host_bridge.http.heads import Places
from messages.errors import InvalidArgument, StorageError
from messages.operator import Operator

START_SECONDS: Final = 20.0
CLOSE_SECONDS: Final = 3
KEEP_ALIVE_SECONDS: Final = 30
BACKLOG: Final = 128
_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class HttpSettings:
    """Where and how to serve."""

    listen: str
    """``HOST:PORT``; port 0 takes a free one."""
    public_url: str | None = None
    """Under which address a proxy shows this server."""
    cert_file: Path | None = None
    key_file: Path | None = None
    insecure_bind: bool = False
    """Plain text on other addresses than loopback, because a person said so."""


class HttpServer:
    """Serves from construction to :meth:`close`. Constructed and closed by one thread; asked by any."""

    def __init__(
        self,
        service: HttpService,
        settings: HttpSettings,
        *,
        host_key_file: Callable[[], Path | None] = lambda: None,
        explorer_routes: ExplorerRoutes | None = None,
        limits: Limits | None = None,
    ) -> None:
        """Raises :class:`InvalidArgument` for an address that it will not bind, :class:`StorageError` for one that it
        cannot."""
        self._up = threading.Event()
        self._failed = False
        context = _tls(settings)
        host, port = split_listen(settings.listen)
        _require_safe(host, context is not None, settings.insecure_bind)
        self._listener = _bind(host, port)
        self.port: int = self._listener.getsockname()[1]
        self._local = _loopback(host)
        self._label = f"k{secrets.token_hex(8)}.localhost"
        self.secure = context is not None
        scheme = "https" if self.secure else "http"
        self.url = f"{scheme}://{_bracketed(host)}:{self.port}"
        self._private_url = f"{scheme}://{self._label}:{self.port}"
        try:
            self.application = build_application(
                service,
                places_of(host, self.port, scheme, self._label, settings.public_url),
                secure=self.secure,
                host_key_file=host_key_file,
                explorer_routes=explorer_routes,
                limits=limits,
            )
            self._server = _uvicorn(self.application, context, self._up.set)
        except BaseException:
            self._listener.close()
            raise
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread = threading.Thread(target=self._run, name="http", daemon=True)
        self._thread.start()
        if not self._up.wait(START_SECONDS) or self._failed:
            raise StorageError("The HTTP server did not start; the log has the details.", reason="http")
        _log.info("http serves", extra={"port": self.port, "tls": self.secure})

    def session_link(self, operator: Operator, *, plain_host: bool = False) -> str:
        """An address that opens one browser's session for this operator, once and within minutes.

        It leads to a name that only this server has, since cookies do not know ports; ``plain_host`` for a browser that
        does not know that names below ``localhost`` are this machine.
        """
        base = self.url if plain_host or not self._local else self._private_url
        return f"{base}{self.application.sessions.make_link(operator)}"

    def stop_accepting(self) -> None:
        """Refuse further calls with ``stopping`` and end the streams; open calls go on. Any thread."""
        self.application.stop.stopping = True
        loop = self._loop
        if loop is not None and not loop.is_closed():
            loop.call_soon_threadsafe(self.application.stop.set)

    def busy(self) -> bool:
        """Whether anybody is connected."""
        return len(self.application.connections) > 0

    def close(self) -> None:
        """Send what is answered, close the connections, and join the thread. Idempotent."""
        self.stop_accepting()
        self._server.should_exit = True
        self._thread.join(CLOSE_SECONDS + 5.0)
        if self._thread.is_alive():
            _log.warning("the HTTP server did not end in time")
        self.application.deliverer.close()

    def _run(self) -> None:
        loop = asyncio.new_event_loop()
        self._loop = loop
        try:
            loop.run_until_complete(self._server.serve(sockets=[self._listener]))
        except BaseException:  # noqa: BLE001 - uvicorn ends a failed start with SystemExit
            _log.exception("the HTTP server ended with a defect")
            self._failed = True
        finally:
            self._up.set()
            try:
                loop.run_until_complete(loop.shutdown_asyncgens())
                loop.run_until_complete(loop.shutdown_default_executor())
            finally:
                loop.close()


def split_listen(listen: str) -> tuple[str, int]:
    """``HOST:PORT`` or ``[HOST]:PORT`` in its parts."""
    host, _, port = listen.rpartition(":")
    return host.strip("[]"), int(port)


def places_of(host: str, port: int, scheme: str, label: str, public_url: str | None) -> Places:
    """The names of this server: what it is bound to, ``localhost`` where that is loopback, its private name, and the
    public address. Port 80 or 443 may be left out by a client."""
    names = {_bracketed(host).lower(), label}
    if _loopback(host):
        names |= {"localhost", "127.0.0.1", "[::1]"}
    hosts = {f"{name}:{port}" for name in names}
    if port == (443 if scheme == "https" else 80):
        hosts |= names
    origins = {f"{scheme}://{place}" for place in hosts}
    if public_url is not None:
        origin = "/".join(public_url.lower().split("/", 3)[:3])
        hosts.add(origin.partition("://")[2])
        origins.add(origin)
    everywhere = (scheme, port) if host in ("0.0.0.0", "::") else None
    return Places(frozenset(hosts), frozenset(origins), everywhere)


def _require_safe(host: str, tls: bool, insecure: bool) -> None:
    if _loopback(host) or tls or insecure:
        return
    raise InvalidArgument(
        f"{host} is reachable from other machines, and keys would travel there in plain text. Give http.tls a "
        "certificate and its key, listen on 127.0.0.1 behind a proxy that speaks TLS, or say --insecure-bind.",
        field="http.listen",
        reason="insecure_bind",
    )


def _loopback(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def _bracketed(host: str) -> str:
    return f"[{host}]" if ":" in host else host


def _bind(host: str, port: int) -> socket.socket:
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
        family, kind, protocol, _, address = found[0]
        listener = socket.socket(family, kind, protocol)
    except OSError as error:
        raise StorageError(f"{host} cannot be listened at: {error.strerror}.", reason="http", retry="never") from None
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(address)
        listener.listen(BACKLOG)
        listener.set_inheritable(False)
    except OSError as error:
        listener.close()
        raise StorageError(
            f"{_bracketed(host)}:{port} cannot be listened at: {error.strerror}. Choose another with --http.",
            reason="http",
            retry="never",
        ) from None
    return listener


def _tls(settings: HttpSettings) -> ssl.SSLContext | None:
    if settings.cert_file is None or settings.key_file is None:
        return None
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    try:
        context.load_cert_chain(settings.cert_file, settings.key_file)
    except (OSError, ssl.SSLError) as error:
        raise StorageError(
            f"http.tls cannot be used ({type(error).__name__}): the certificate and its key must be PEM files of one "
            "pair that this user may read.",
            reason="tls",
            retry="never",
        ) from None
    return context


class _Server(uvicorn.Server):
    """uvicorn's server, which says when it is up."""

    def __init__(self, config: uvicorn.Config, up: Callable[[], None]) -> None:
        super().__init__(config)
        self._is_up = up

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        if self.config.ssl is not None:
            # A stranger that never ends its handshake is no connection yet that could be counted: it is timed.
            loop = asyncio.get_running_loop()
            timed = partial(loop.create_server, ssl_handshake_timeout=HEAD_SECONDS, ssl_shutdown_timeout=HEAD_SECONDS)
            loop.create_server = timed  # type: ignore[method-assign]  # this loop serves nothing else
        await super().startup(sockets)
        self._is_up()


def _uvicorn(application: Application, context: ssl.SSLContext | None, up: Callable[[], None]) -> uvicorn.Server:
    class Connection(GuardedConnection):
        all: Connections = application.connections

    config = uvicorn.Config(
        application.asgi,
        http=Connection,
        ws="none",
        loop="none",
        lifespan="on",
        log_config=None,
        access_log=False,
        server_header=False,
        date_header=False,
        proxy_headers=False,
        timeout_keep_alive=KEEP_ALIVE_SECONDS,
        timeout_graceful_shutdown=CLOSE_SECONDS,
        h11_max_incomplete_event_size=HEAD_MAX_BYTES,
        backlog=BACKLOG,
    )
    config.load()
    config.ssl = context
    return _Server(config, up)


__all__ = ["HttpServer", "HttpSettings", "places_of", "split_listen"]

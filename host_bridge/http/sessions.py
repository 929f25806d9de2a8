"""Sessions of people's browsers: a link that works once becomes a cookie that no script reads.

Guarantees: a link opens one session, however often it is followed, and none after ``LINK_SECONDS``; a session belongs
to one operator and to the host name at which it was opened, and ends after ``IDLE_SECONDS`` without a request or
``SESSION_SECONDS`` in all; each POST proves with the session's token that a page of this session sent it. All of these
are 256 random bits, links and cookies kept as hashes, compared in constant time; a restart ends them all.

A link that another user of this machine follows, who saw it on a command line, opens nothing and stays good.

Cookies do not know ports: any server of this machine that the browser visits under the same name is sent them. So a
link leads to a name that only this server has (``<random>.localhost``), which no other page can guess.

The event loop's thread, but for :meth:`Sessions.make_link`, which any thread may call.

Source: stores-and-access.md (Control UI).
"""

from __future__ import annotations

import hashlib
import hmac
import ipaddress
import os
import secrets
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import Final
from urllib.parse import parse_qsl

from starlette.requests import Request
from starlette.responses import HTMLResponse, RedirectResponse, Response
from starlette.routing import BaseRoute, Route
from starlette.types import Scope

from host_bridge.http.peers import user_of
from messages.operator import Operator

LINK_SECONDS: Final = 300.0
IDLE_SECONDS: Final = 2 * 3_600.0
SESSION_SECONDS: Final = 12 * 3_600.0
LINKS_MAX: Final = 16
SESSIONS_MAX: Final = 64
COOKIE: Final = "knowledge-session"
SECURE_COOKIE: Final = "__Host-knowledge-session"
CSRF_FIELD: Final = "csrf"
_FIELDS_MAX: Final = 1_000

_OPENED: Final = """<!doctype html>
<html lang="en"><head><meta charset="utf-8"><title>Knowledge</title>
<meta http-equiv="refresh" content="0;url=/"></head>
<body><p><a href="/">Continue to Knowledge</a></p></body></html>
"""
_USED: Final = """<!doctype html>
<html lang="en"><head><meta charset="utf-8"><title>Knowledge</title></head>
<body><h1>This link does not open Knowledge</h1>
<p>A link works once, and for a few minutes. Make another with <code>knowledge ui</code>. If you did not follow this one
before, somebody else did: end all sessions with <code>knowledge stop</code>.</p></body></html>
"""


_ANOTHER_USER: Final = """<!doctype html>
<html lang="en"><head><meta charset="utf-8"><title>Knowledge</title></head>
<body><h1>This link is another user's</h1></body></html>
"""


@dataclass(slots=True)
class Session:
    """One browser's session."""

    operator: Operator
    host: str
    csrf: str = field(repr=False)
    opened: float
    used: float

    def is_at(self, host: str) -> bool:
        """Whether a request came by the name at which the session was opened: a cookie that got elsewhere does not."""
        return host.lower() == self.host

    def proves(self, header: str | None, content_type: str | None, body: bytes) -> bool:
        """Whether a request that changes something carries the session's token, in its header or its form."""
        presented = header if header is not None else _form_field(content_type, body)
        return presented is not None and hmac.compare_digest(presented.encode(), self.csrf.encode())


class Sessions:
    """The sessions of one server."""

    def __init__(self, *, secure: bool, clock: Callable[[], float] = time.monotonic) -> None:
        """``secure``: the server speaks TLS, and cookies never leave over anything else."""
        self._secure = secure
        self._clock = clock
        self._lock = threading.Lock()
        self._links: dict[bytes, tuple[Operator, float]] = {}
        self._sessions: dict[bytes, Session] = {}

    def make_link(self, operator: Operator) -> str:
        """The path of a link that opens one session of this operator. Any thread."""
        secret = secrets.token_urlsafe(32)
        with self._lock:
            if len(self._links) >= LINKS_MAX:
                self._links.pop(next(iter(self._links)))
            self._links[_digest(secret)] = (operator, self._clock() + LINK_SECONDS)
        return f"/session/{secret}"

    def of(self, scope: Scope) -> Session | None:
        """The session of a request; ``None`` without one that counts."""
        host = _header(scope, b"host")
        name = SECURE_COOKIE if self._secure else COOKIE
        for value in _cookies(_header(scope, b"cookie"), name):
            session = self._find(_digest(value))
            if session is not None and session.is_at(host):
                session.used = self._clock()
                return session
        return None

    def routes(self) -> list[BaseRoute]:
        """Where a link leads, and where a session ends."""
        return [
            Route("/session/end", self._end, methods=["POST"]),
            Route("/session/{secret}", self._open, methods=["GET"]),
        ]

    async def _open(self, request: Request) -> Response:
        if request.method == "HEAD" or "prefetch" in (
            request.headers.get("sec-purpose", "") + request.headers.get("purpose", "")
        ):
            # A browser or a scanner that only looks must not use the link up.
            return Response(status_code=HTTPStatus.NO_CONTENT)
        if _is_of_another_user(request.scope):
            # Whoever saw the link on a command line of this machine: it stays good for the one for whom it was made.
            return HTMLResponse(_ANOTHER_USER, status_code=HTTPStatus.FORBIDDEN)
        opened = self._use(request.path_params["secret"], request.headers.get("host", "").lower())
        if opened is None:
            return HTMLResponse(_USED, status_code=HTTPStatus.GONE)
        # A page, not a redirect: a browser that came from another site would not send the strict cookie along one.
        response = HTMLResponse(_OPENED)
        response.set_cookie(
            SECURE_COOKIE if self._secure else COOKIE,
            opened,
            max_age=int(SESSION_SECONDS),
            path="/",
            secure=self._secure,
            httponly=True,
            samesite="strict",
        )
        return response

    async def _end(self, request: Request) -> Response:
        session = self.of(request.scope)
        with self._lock:
            for key in [key for key, found in self._sessions.items() if found is session]:
                del self._sessions[key]
        response = RedirectResponse("/", status_code=HTTPStatus.SEE_OTHER)
        response.delete_cookie(SECURE_COOKIE if self._secure else COOKIE, path="/")
        return response

    def _use(self, secret: str, host: str) -> str | None:
        """The cookie of a new session for a link that was not used before."""
        now = self._clock()
        with self._lock:
            found = _matching(self._links, _digest(secret))
            if found is None:
                return None
            operator, until = self._links.pop(found)
            if now >= until:
                return None
            value = secrets.token_urlsafe(32)
            if len(self._sessions) >= SESSIONS_MAX:
                del self._sessions[min(self._sessions, key=lambda key: self._sessions[key].used)]
            self._sessions[_digest(value)] = Session(operator, host, secrets.token_urlsafe(32), now, now)
        return value

    def _find(self, digest: bytes) -> Session | None:
        now = self._clock()
        with self._lock:
            found = _matching(self._sessions, digest)
            if found is None:
                return None
            session = self._sessions[found]
            if now - session.used >= IDLE_SECONDS or now - session.opened >= SESSION_SECONDS:
                del self._sessions[found]
                return None
            return session


def still(sessions: Sessions, scope: Scope, session: Session) -> bool:
    """Whether the request's session is still this one."""
    return sessions.of(scope) is session


def _matching(kept: Iterable[bytes], digest: bytes) -> bytes | None:
    """The key that equals the digest. Each is compared, in constant time."""
    found = None
    for key in kept:
        if hmac.compare_digest(key, digest):
            found = key
    return found


def _cookies(header: str, name: str) -> Iterator[str]:
    """Every value under the name: another server of this machine may have set one of the same name beside ours."""
    for part in header.split(";"):
        found, separator, value = part.strip().partition("=")
        if separator and found == name:
            yield value


def _is_of_another_user(scope: Scope) -> bool:
    """Whether the connection comes from this machine and from a user who is neither the owner's nor root."""
    client, server = scope.get("client"), scope.get("server")
    if client is None or server is None or server[1] is None or not _is_loopback(client[0]):
        return False
    user = user_of((client[0], client[1]), (server[0], server[1]))
    return user is not None and user not in (0, os.getuid())


def _is_loopback(address: str) -> bool:
    try:
        return ipaddress.ip_address(address).is_loopback
    except ValueError:
        return False


def _header(scope: Scope, name: bytes) -> str:
    found: bytes = next((value for key, value in scope["headers"] if key == name), b"")
    return found.decode("latin-1")


def _form_field(content_type: str | None, body: bytes) -> str | None:
    if (content_type or "").partition(";")[0].strip().lower() != "application/x-www-form-urlencoded":
        return None
    try:
        fields = parse_qsl(body.decode("utf-8"), keep_blank_values=True, max_num_fields=_FIELDS_MAX)
    except ValueError:
        return None
    values = [value for name, value in fields if name == CSRF_FIELD]
    return values[0] if len(values) == 1 else None


def _digest(text: str) -> bytes:
    return hashlib.sha256(text.encode("utf-8", "replace")).digest()


__all__ = ["COOKIE", "CSRF_FIELD", "SECURE_COOKIE", "Session", "Sessions", "still"]

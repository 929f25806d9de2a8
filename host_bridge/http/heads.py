"""What the door reads of a request's head, and what it adds to every answer's. Pure.

A hostile page in the user's browser is told by ``Host`` (a name of its own that points here), ``Origin`` and the fetch
metadata; a request that a proxy would read differently by headers that contradict each other.

Source: decisions.md section 7; docs/http.md (What is refused).
"""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final
from urllib.parse import parse_qsl

from starlette.types import Scope

from messages.errors import Denied, InvalidArgument

_SECRETS_IN_QUERY: Final = frozenset(("access_token", "token", "key", "api_key", "apikey", "authorization", "bearer"))
CONTENT_SECURITY_POLICY: Final = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; font-src 'self'; connect-src 'self'; "
    "form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
)
SECURITY_HEADERS: Final[Mapping[str, str]] = {
    "content-security-policy": CONTENT_SECURITY_POLICY,
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    "x-frame-options": "DENY",
    "cross-origin-resource-policy": "same-origin",
    "cross-origin-opener-policy": "same-origin",
    "permissions-policy": "camera=(), microphone=(), geolocation=()",
    "cache-control": "no-store",
}


@dataclass(frozen=True, slots=True)
class Places:
    """By which names this server may be addressed: ``host:port``, lower case; and the origins of its own pages."""

    hosts: frozenset[str]
    origins: frozenset[str]
    addresses_at: tuple[str, int] | None = None
    """Scheme and port of a server that listens at every address of the machine: by an address it may be named as well,
    since no name that somebody else chose can be one."""

    def has_host(self, host: str) -> bool:
        """Whether a ``Host`` names this server."""
        host = host.lower()
        return host in self.hosts or (self.addresses_at is not None and _is_address(host, self.addresses_at[1]))

    def has_origin(self, origin: str) -> bool:
        """Whether an ``Origin`` is one of this server's own pages."""
        scheme, _, host = origin.lower().partition("://")
        if self.addresses_at is not None and scheme == self.addresses_at[0] and _is_address(host, self.addresses_at[1]):
            return True
        return origin.lower() in self.origins


class Headers:
    """A request's headers: those that must not stand there twice do not."""

    def __init__(self, raw: Iterable[tuple[bytes, bytes]]) -> None:
        self._values: dict[str, list[str]] = {}
        for name, value in raw:
            self._values.setdefault(name.decode("latin-1").lower(), []).append(value.decode("latin-1"))

    def all(self, name: str) -> list[str]:
        return self._values.get(name, [])

    def one(self, name: str) -> str | None:
        found = self._values.get(name)
        return None if found is None else found[0]


_ONCE: Final = (
    "host",
    "authorization",
    "content-length",
    "content-type",
    "origin",
    "cookie",
    "transfer-encoding",
    "x-csrf-token",
    "knowledge-audience",
    "knowledge-deadline-ms",
    "knowledge-flush-id",
    "mcp-session-id",
    "mcp-protocol-version",
)


def require_one_reading(headers: Headers) -> None:
    """Headers that a proxy and this server might read differently are refused: that is how requests are smuggled."""
    twice = next((name for name in _ONCE if len(headers.all(name)) > 1), None)
    if twice is not None:
        raise InvalidArgument(f"The header {twice} stands there twice.", field=twice, reason="repeated")
    if headers.one("transfer-encoding") is not None and headers.one("content-length") is not None:
        raise InvalidArgument(
            "Content-Length and Transfer-Encoding contradict each other.", field="transfer-encoding", reason="conflict"
        )
    if headers.one("content-encoding") not in (None, "identity"):
        raise InvalidArgument("A compressed body is not read.", field="content-encoding", allowed="identity")
    if headers.one("upgrade") is not None and "websocket" in (headers.one("upgrade") or "").lower():
        raise InvalidArgument("There are no WebSockets here.", field="upgrade", reason="unknown")


def require_own_page(headers: Headers, scope: Scope, places: Places) -> None:
    """Other origins, those of other ports on this machine included, may navigate here and nothing else."""
    origin = headers.one("origin")
    site = headers.one("sec-fetch-site")
    # A form of a page without referrers comes from "null"; that it is our own page, a browser says and no page can.
    own_form = origin == "null" and site == "same-origin"
    if origin is not None and not places.has_origin(origin) and not own_form:
        raise Denied("Pages of other origins may not call this server.", reason="origin")
    navigation = headers.one("sec-fetch-mode") == "navigate" and headers.one("sec-fetch-dest") == "document"
    if site in ("cross-site", "same-site") and not (navigation and scope["method"] == "GET"):
        raise Denied("Pages of other origins may not call this server.", reason="origin")


def require_plain_path(path: str) -> None:
    """A path with characters that cannot be seen is nobody's: whoever compares it must not find another than whoever
    routes it."""
    if not path.isprintable():
        raise InvalidArgument("The path holds characters that no route has.", field="path", reason="malformed")


def require_no_secret_in_query(scope: Scope) -> None:
    """Addresses are kept in histories and logs: a key in one is refused rather than accepted, or overlooked."""
    query: bytes = scope["query_string"]
    if query and any(
        name.lower() in _SECRETS_IN_QUERY for name, _ in parse_qsl(query.decode("latin-1"), keep_blank_values=True)
    ):
        raise InvalidArgument(
            "A key or token never stands in the address; send it as Authorization: Bearer, and replace this one.",
            field="query",
            reason="secret_in_query",
        )


def _is_address(host: str, port: int) -> bool:
    name, _, given = host.rpartition(":")
    try:
        ipaddress.ip_address(name[1:-1] if name.startswith("[") else name)
    except ValueError:
        return False
    return given == str(port)


def secured(headers: Iterable[tuple[bytes, bytes]]) -> list[tuple[bytes, bytes]]:
    """The response's headers with ours. A route may say how long its file may be kept, and nothing else otherwise."""
    own = [(name.lower(), value) for name, value in headers]
    names = {name for name, _ in own}
    kept = [
        (name.encode(), value.encode())
        for name, value in SECURITY_HEADERS.items()
        if name != "cache-control" or b"cache-control" not in names
    ]
    ours = {name for name, _ in kept}
    return [*((name, value) for name, value in own if name not in ours), *kept]


__all__ = [
    "CONTENT_SECURITY_POLICY",
    "SECURITY_HEADERS",
    "Headers",
    "Places",
    "require_no_secret_in_query",
    "require_one_reading",
    "require_own_page",
    "require_plain_path",
    "secured",
]

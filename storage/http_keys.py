"""Keys of the HTTP door as rows of ``registry.sqlite``: the host's and those of configured operators, as hashes alone.

Guarantees: a key's text is in no row; one key a holder, so that making another ends the one before; making and revoking
are durable, with their rows of the audit, when they return. A backup holds none. The registry's thread.

A key is 256 random bits, so that its plain SHA-256 tells nobody anything and nothing slower is needed.

Source: decisions.md sections 1 (the HTTP key's hash is in the registry), 6 (audit) and 7 (host key, operator tokens).
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import re
import secrets
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Final

from messages.errors import InvalidArgument, LimitExceeded, NotFound
from messages.json_types import JsonObject
from storage import registry_audit
from storage.registry_audit import By
from storage.state.connection import Database

KEY_BYTES: Final = 32
KEYS_MAX: Final = 1_000
KEY_SHAPE: Final = re.compile(r"kr-(host|operator)-[A-Za-z0-9_-]{43}")
"""What a key looks like, so that a scanner of secrets can find one that was published."""

FAULT_POINTS: Final = (
    ("registry.httpkey.begin", "beginning to note a key of the HTTP door, or its end"),
    ("registry.httpkey.commit", "making a key of the HTTP door, or its end, durable"),
)


@dataclass(frozen=True, slots=True)
class HttpKey:
    """One key that counts. ``operator``: whose it is; ``None``: the host's. ``made_at`` in UTC milliseconds."""

    operator: str | None
    digest: bytes = field(repr=False)
    made_at: int
    made_by: str


def digest_of(text: str) -> bytes:
    """What is kept of a key."""
    return hashlib.sha256(text.encode("utf-8", "replace")).digest()


def matching(keys: Sequence[HttpKey], text: str) -> HttpKey | None:
    """The key whose text this is. Each is compared, in constant time: how long it takes says nothing. Any thread."""
    presented = digest_of(text)
    found: HttpKey | None = None
    for key in keys:
        if hmac.compare_digest(key.digest, presented):
            found = key
    return found


class HttpKeys:
    """The keys of one open registry."""

    __slots__ = ("_changed", "_database", "_require_in_place")

    def __init__(
        self, database: Database, require_in_place: Callable[[], None], changed: Callable[[], None]
    ) -> None:
        self._database = database
        self._require_in_place = require_in_place
        self._changed = changed

    def all(self) -> tuple[HttpKey, ...]:
        """The host's key first, then the operators' by name."""
        rows = self._database.query("SELECT kind, holder, digest, made_at, made_by FROM http_key ORDER BY kind, holder")
        return tuple(
            HttpKey(None if kind == "host" else holder, bytes(digest), made_at, made_by)
            for kind, holder, digest, made_at, made_by in rows
        )

    def make(
        self, operator: str | None, by: By, *, rotate: bool, random: Callable[[int], bytes] = secrets.token_bytes
    ) -> str:
        """The text of a new key, which nobody can be shown again. Raises ``InvalidArgument`` where there is one
        already and ``rotate`` does not say that it ends, ``LimitExceeded``, ``StorageError``."""
        self._require_in_place()
        if not rotate and any(key.operator == operator for key in self.all()):
            raise InvalidArgument(
                f"There is a key for {_named(operator)} already, and only its hash is kept. Ask for rotation: the new "
                "key ends the old one.",
                field="rotate",
                reason="key_exists",
                allowed=True,
            )
        kind = "host" if operator is None else "operator"
        text = f"kr-{kind}-{_base64url(random(KEY_BYTES))}"
        with self._database.transaction(full=True, point="registry.httpkey"):
            self._database.execute(
                "INSERT OR REPLACE INTO http_key VALUES (?, ?, ?, ?, ?)",
                (kind, operator or "", digest_of(text), by.at, by.actor),
            )
            count = self._database.query_one("SELECT count(*) FROM http_key")
            if count is not None and count[0] > KEYS_MAX:
                raise LimitExceeded(f"There are {KEYS_MAX} keys of the HTTP door; revoke one.", limit=KEYS_MAX)
            registry_audit.note(self._database, by, "httpKey.make", _subject(operator))
        self._changed()
        return text

    def revoke(self, operator: str | None, by: By) -> None:
        """End the key. Raises ``NotFound`` where there is none."""
        self._require_in_place()
        with self._database.transaction(full=True, point="registry.httpkey"):
            gone = self._database.execute(
                "DELETE FROM http_key WHERE kind = ? AND holder = ?",
                ("host" if operator is None else "operator", operator or ""),
            )
            if not gone:
                raise NotFound(f"There is no key for {_named(operator)}.", field="operator")
            registry_audit.note(self._database, by, "httpKey.revoke", _subject(operator))
        self._changed()


def forget_http_keys(database: Database) -> None:
    """Inside a transaction on the copy of a registry: a key that was rotated out since must not count again."""
    if database.query_one("SELECT 1 FROM sqlite_schema WHERE name = 'http_key'") is not None:
        database.execute("DELETE FROM http_key")


def _subject(operator: str | None) -> JsonObject:
    return {"kind": "host"} if operator is None else {"kind": "operator", "operator": operator}


def _named(operator: str | None) -> str:
    return "the host" if operator is None else f"the operator {operator}"


def _base64url(raw: bytes) -> str:
    return base64.urlsafe_b64encode(raw).rstrip(b"=").decode()


__all__ = ["KEY_SHAPE", "HttpKey", "HttpKeys", "digest_of", "forget_http_keys", "matching"]

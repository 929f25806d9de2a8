"""Who speaks: what stands in ``Authorization: Bearer``, and nothing else.

Three kinds, told apart by their shape: the host's key, an operator's key, and the token of an audience. Keys are
compared in constant time (:mod:`storage.http_keys`), tokens by their signature. A speaker is looked at again when its
answer leaves: a key that was replaced or revoked meanwhile gets none.

Source: decisions.md section 7 (over HTTP).
"""

from __future__ import annotations

import hashlib
import hmac
import os
import stat
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, Protocol, TypeAlias

from messages.audience import Audience, AudienceToken
from messages.errors import Denied, StorageError
from messages.operator import HOST_OPERATOR, Operator
from messages.vocabulary import TOKEN_MAX_BYTES

HOST_KEY_MIN_CHARS: Final = 32
_KEY_PREFIX: Final = "kr-"


class Keys(Protocol):
    """What the bridge knows of bearers. Never blocks; any thread."""

    def key_holder(self, key: str) -> Operator: ...

    def audience_of(self, token: str) -> Audience: ...


class Unauthorized(Exception):
    """No bearer, or not one of ours: 401."""

    def __init__(self, refusal: Denied) -> None:
        super().__init__(refusal.message)
        self.refusal = refusal


@dataclass(frozen=True, slots=True)
class HostSpeaker:
    """The host itself: it may mint audiences and operators. ``key`` is shown to nobody."""

    key: str = field(repr=False)


@dataclass(frozen=True, slots=True)
class OperatorSpeaker:
    """A configured operator, in its own name alone."""

    operator: Operator
    key: str = field(repr=False)


@dataclass(frozen=True, slots=True)
class AudienceSpeaker:
    """A program that acts for one audience. The token goes with every call: access is decided where it always is."""

    token: AudienceToken
    audience: Audience


Speaker: TypeAlias = HostSpeaker | OperatorSpeaker | AudienceSpeaker


class Bearers:
    """Reads the ``Authorization`` header. Any thread."""

    def __init__(self, keys: Keys, host_key_file: Callable[[], Path | None] = lambda: None) -> None:
        """``host_key_file``: where the host's key lies instead of its hash in the registry, as configured now."""
        self._keys = keys
        self._host_key_file = host_key_file

    def speaker(self, authorization: str | None) -> Speaker:
        """Who speaks. Raises :class:`Unauthorized` for none and for a scheme of another kind, and the typed refusal for
        a key or token that does not count: ``Denied``, ``AudienceStale``, ``InvalidArgument``, ``Restarting``."""
        if authorization is None:
            raise Unauthorized(_refused("This needs an Authorization header: Bearer, and a key or token.", "no_bearer"))
        scheme, _, text = authorization.partition(" ")
        text = text.strip()
        if scheme.lower() != "bearer" or not text or len(text) > TOKEN_MAX_BYTES or not text.isascii():
            raise Unauthorized(_refused("The Authorization header must be: Bearer, and a key or token.", "no_bearer"))
        if self._is_in_host_key_file(text):
            return HostSpeaker(text)
        if text.startswith(_KEY_PREFIX):
            holder = self._keys.key_holder(text)
            return HostSpeaker(text) if holder is HOST_OPERATOR else OperatorSpeaker(holder, text)
        return AudienceSpeaker(AudienceToken(text), self._keys.audience_of(text))

    def require_still(self, speaker: Speaker) -> None:
        """Raise unless this speaker's bearer still counts for the same. A token is looked at where its answer leaves,
        under the read lease; a key here."""
        if isinstance(speaker, AudienceSpeaker):
            return
        again = self.speaker(f"Bearer {speaker.key}")
        if again != speaker:
            raise Denied("What this key stands for has changed while the call was under way.", reason="key_changed")

    def _is_in_host_key_file(self, text: str) -> bool:
        path = self._host_key_file()
        return path is not None and hmac.compare_digest(_digest(text), _digest(_read_key(path)))


def _read_key(path: Path) -> str:
    """The key in a file that only the owner's user may read. Raises ``StorageError``."""
    try:
        with open(path, "rb") as file:
            mode = stat.S_IMODE(os.fstat(file.fileno()).st_mode)
            text = file.read(TOKEN_MAX_BYTES + 1).decode("ascii", "replace").strip()
    except OSError as error:
        raise StorageError(f"http.hostKeyFile cannot be read: {error.strerror}.", reason="host_key_file") from None
    if mode & 0o077:
        raise StorageError(
            "http.hostKeyFile may be read by others: give it mode 600.", reason="host_key_file", retry="never"
        )
    if len(text) < HOST_KEY_MIN_CHARS:
        raise StorageError(
            f"http.hostKeyFile holds a key of less than {HOST_KEY_MIN_CHARS} characters.",
            reason="host_key_file",
            retry="never",
        )
    return text


def _digest(text: str) -> bytes:
    return hashlib.sha256(text.encode("utf-8", "replace")).digest()


def _refused(message: str, reason: str) -> Denied:
    return Denied(message, reason=reason)


__all__ = [
    "AudienceSpeaker",
    "Bearers",
    "HostSpeaker",
    "Keys",
    "OperatorSpeaker",
    "Speaker",
    "Unauthorized",
]

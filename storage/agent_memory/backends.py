"""Where a whole memory directory is kept between two requests: a key of Redis, or a cell of a Supabase table.

For machines that forget their disk. The blob (:mod:`storage.agent_memory.archive`) is replaced as a whole: of two
machines that have one key open at once, the later save wins. What a client raises comes out as it is.

Source: agent-memory.md (Backends for Ephemeral Infrastructure), agent-memory-contract.md section 7.
"""

from __future__ import annotations

import base64
import importlib
from types import ModuleType
from typing import Any, Final, TypeAlias

from storage.agent_memory.entry import utc_now

# Of an optional package; what of it is used stands below.
_Client: TypeAlias = Any

KEY_MAX_CHARACTERS: Final = 512
SERVER_SECONDS: Final = 20.0
_MARKER: Final = "b64:"
_WRITE_MODES: Final = ("upsert", "update")


class RedisKnowledgeBackend:
    """The blob under one key, for ``ttl`` seconds or for good."""

    __stability__ = "beta"

    def __init__(
        self,
        key: str,
        url: str = "redis://localhost:6379/0",
        prefix: str = "selectools:knowledge:",
        ttl: int | None = None,
    ) -> None:
        """Raises ``ValueError`` for a key that is none, and ``ImportError`` without the package ``redis``."""
        self._key = f"{prefix}{_checked(key)}"
        self._ttl = ttl
        self._client = _optional("redis").from_url(url)
        # A server that takes the connection and says nothing must not hold a memory for ever; the url may say else.
        settings = self._client.connection_pool.connection_kwargs
        for name in ("socket_timeout", "socket_connect_timeout"):
            if settings.get(name) is None:
                settings[name] = SERVER_SECONDS

    def load_bytes(self) -> bytes | None:
        """What was saved last and has not run out."""
        found: bytes | None = self._client.get(self._key)
        return found

    def save_bytes(self, data: bytes) -> None:
        """Keep this in the place of what was there, from now on for ``ttl`` seconds."""
        if self._ttl is None:
            self._client.set(self._key, data)
        else:
            self._client.setex(self._key, self._ttl, data)


class SupabaseKnowledgeBackend:
    """The blob as text in one cell of a table; readable, unless it is no UTF-8."""

    __stability__ = "beta"

    def __init__(
        self,
        client: _Client,
        key: str,
        table_name: str = "selectools_knowledge",
        key_column: str = "key",
        data_column: str = "data",
        write_mode: str = "upsert",
    ) -> None:
        """``write_mode``: ``upsert`` makes the row where there is none; ``update`` never does, for a table whose other
        columns only its owner can fill. Raises ``ValueError`` for a key or a mode that is none, and ``ImportError``
        without the package ``supabase``."""
        if write_mode not in _WRITE_MODES:
            raise ValueError(f"write_mode is one of {', '.join(_WRITE_MODES)}")
        self._key = _checked(key)
        _optional("supabase")
        self._client = client
        self._table = table_name
        self._key_column = key_column
        self._data_column = data_column
        self._write_mode = write_mode

    def load_bytes(self) -> bytes | None:
        """What was saved last; ``None`` without a row or where its cell is null. Raises ``ValueError`` for a cell that
        says it is base64 and is not: a memory that started anew would be saved over it."""
        table = self._client.table(self._table)
        found = table.select(self._data_column).eq(self._key_column, self._key).limit(1).execute().data
        text = found[0].get(self._data_column) if found else None
        return None if text is None else _from_text(text)

    def save_bytes(self, data: bytes) -> None:
        """Keep this in the place of what was there. Raises ``RuntimeError`` in the mode ``update`` without a row."""
        kept = {self._data_column: _to_text(data), "updated_at": utc_now().isoformat()}
        table = self._client.table(self._table)
        if self._write_mode == "upsert":
            table.upsert({self._key_column: self._key, **kept}, on_conflict=self._key_column).execute()
        elif not table.update(kept).eq(self._key_column, self._key).execute().data:
            raise RuntimeError(
                f"the row of a memory must pre-exist in {self._table} with write_mode='update', and this one does not"
            )


def _checked(key: str) -> str:
    if not key or "\0" in key or len(key) > KEY_MAX_CHARACTERS:
        raise ValueError(f"a key is text of 1 to {KEY_MAX_CHARACTERS} characters without NUL")
    return key


def _optional(package: str) -> ModuleType:
    try:
        return importlib.import_module(package)
    except ImportError as error:
        raise ImportError(
            f"this backend needs the package {package}: pip install 'knowledge-runtime[{package}]'"
        ) from error


def _to_text(data: bytes) -> str:
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError:
        text = None
    # A text column of Postgres holds no NUL.
    if text is None or text.startswith(_MARKER) or "\0" in text:
        return _MARKER + base64.b64encode(data).decode("ascii")
    return text


def _from_text(text: str) -> bytes:
    if not text.startswith(_MARKER):
        return text.encode("utf-8")
    try:
        return base64.b64decode(text.removeprefix(_MARKER), validate=True)
    except ValueError as error:
        raise ValueError("the saved memory is marked as base64 and is none; it stays as it is") from error

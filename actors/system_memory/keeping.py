"""The database of the lane: opened when needed, made by the first request to write, refused once it lost its name.

Lane thread. Source: decisions.md sections 1 and 7 (a lost database is ``store_unavailable``).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from actors.supervision import Corruption
from messages.errors import KnowledgeError, NotFound, Quarantined, StorageError
from storage.state.connection import CommitUncertain, StorageCorrupt
from storage.system_memory.database import SystemDatabase


class KeptDatabase:
    """One connection at a time. ``settled`` is called whenever it is certain which changes are there: the database was
    opened, or is out of service."""

    def __init__(self, path: Path, now_us: Callable[[], int], settled: Callable[[], None]) -> None:
        self._path = path
        self._now_us = now_us
        self._settled = settled
        self._system: SystemDatabase | None = None

    def opened(self, *, make: bool = False) -> SystemDatabase | None:
        """The database, made where there is none and ``make`` says so, else ``None`` then.

        Raises the refusals of :meth:`SystemDatabase.open`, ``StoreUnavailable`` once it was removed or replaced.
        """
        if self._system is None:
            self._system = SystemDatabase.open(self._path, now_us=self._now_us, create=make)
            self._settled()
        else:
            self._system.require_in_place()
        return self._system

    def made(self) -> SystemDatabase:
        """The database, made where there is none."""
        system = self.opened(make=True)
        assert system is not None
        return system

    def there(self, what: str) -> SystemDatabase:
        """The database; raises ``NotFound`` where there is none: nothing in it has any id."""
        system = self.opened()
        if system is None:
            raise NotFound(f"There is no {what} with that id.", field="id")
        return system

    def empty_log(self) -> None:
        """Copy the log into the file at an orderly end."""
        if self._system is not None:
            self._system.database.checkpoint("TRUNCATE")

    def close(self) -> None:
        """Close the connection; idempotent."""
        system, self._system = self._system, None
        if system is not None:
            system.close()

    @contextmanager
    def typed(self) -> Iterator[None]:
        """Turn what only the storage knows into what a caller and a supervisor understand."""
        try:
            yield
        except StorageCorrupt as damage:
            self._settled()
            raise Corruption(
                Quarantined("The database of system memory is damaged.", reason="damaged", retry="never")
            ) from damage
        except CommitUncertain:
            self._look_again()
            raise StorageError(
                "The change may or may not have been made durable; look before it is made again.",
                retry="unknown",
                reason="commit",
            ) from None

    def _look_again(self) -> None:
        """Only a database that was opened again tells whether the last change is in it."""
        try:
            self.close()
            self.opened()
        except (KnowledgeError, StorageCorrupt):
            self._system = None  # the next request tries again and gets the refusal

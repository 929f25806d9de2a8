"""``knowledge.yaml`` as the place where moves edit the named stores.

Source: stores-and-access.md (Stores, Manage stores): changes edit the stores configuration, and nothing else of it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

from actors.authority import SharedStore
from host_bridge._config_edit import with_stores
from host_bridge.config import CONFIGURATION_MAX_BYTES, NamedStore, parse_configuration
from messages.errors import Busy, InvalidArgument, LimitExceeded
from storage.replaced_text import EditedMeanwhile, read_text, replace_text, tidy


class MembershipFile:
    """Reads and edits the ``stores`` section of one file. One thread at a time."""

    def __init__(self, path: Path, in_force: Callable[[str], None]) -> None:
        """``in_force`` is told the text that was just put into the file."""
        self._path = path
        self._in_force = in_force

    def read(self) -> bytes | None:
        """The file's bytes now; ``None`` where there is none. Raises ``StorageError``."""
        return read_text(self._path, limit=CONFIGURATION_MAX_BYTES)

    def stores(self, text: bytes | None) -> Mapping[str, SharedStore]:
        """What the text says. Raises ``InvalidArgument``."""
        found = parse_configuration(_decoded(text), self._path.name)
        return {name: SharedStore(store.agents, store.label) for name, store in found.stores.items()}

    def edited(self, text: bytes | None, wanted: Mapping[str, SharedStore]) -> bytes:
        """The text with exactly this membership. Raises ``InvalidArgument``, ``LimitExceeded``."""
        stores = {name: NamedStore(label=store.label, agents=store.agents) for name, store in wanted.items()}
        edited = with_stores(_decoded(text), stores).encode()
        if len(edited) > CONFIGURATION_MAX_BYTES:
            raise LimitExceeded(f"{self._path.name} would become too large.", limit=CONFIGURATION_MAX_BYTES)
        return edited

    def replace(self, before: bytes | None, after: bytes) -> None:
        """Put ``after`` there, durably, if ``before`` is still there. Raises ``Busy``, ``StorageError``."""
        try:
            replace_text(self._path, before, after, limit=CONFIGURATION_MAX_BYTES)
        except EditedMeanwhile:
            raise Busy(f"{self._path.name} was edited at this very moment; nothing was changed. Try again.") from None
        # Not left to the next look at the file: bindings follow at once, and must not meet an older membership.
        self._in_force(_decoded(after))

    def tidy(self, is_known: Callable[[bytes], bool]) -> None:
        """Remove what a crash left beside the file, where the text is known."""
        tidy(self._path, limit=CONFIGURATION_MAX_BYTES, is_known=is_known)


def _decoded(text: bytes | None) -> str:
    try:
        return "" if text is None else text.decode("utf-8")
    except UnicodeDecodeError:
        raise InvalidArgument("The configuration is not UTF-8; correct the file.", field="") from None

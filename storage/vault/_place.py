"""The folders of a vault and of one partition, held open, and whether their paths still lead to them.

Source: stores-and-access.md (partition directory identity is checked before and after each query).
"""

from __future__ import annotations

import errno
import os
from pathlib import Path

from messages.errors import StoreUnavailable
from messages.vocabulary import Partition
from storage import files


class Place:
    """Open descriptors of ``vault`` and of the partition's folder in it (``None`` while a conversation has none).

    Raises ``StoreUnavailable`` when the vault's folder, or its private folder, is gone or is a symbolic link.
    """

    __slots__ = ("_path", "_root_identity", "_vault_identity", "partition", "root_fd", "vault_fd")

    def __init__(self, vault: Path, partition: Partition) -> None:
        self.partition = partition
        self._path = str(vault)
        self.root_fd: int | None = None
        self._root_identity: tuple[int, int] | None = None
        try:
            self.vault_fd = files.open_root(vault, at="watch.root")
        except OSError as error:
            raise self.gone() from error
        try:
            self._vault_identity = _identity(files.stat_open(self.vault_fd, at="watch.identity"))
            self._open_root()
        except BaseException:
            self.close()
            raise

    def reopen_conversation(self) -> None:
        """A conversation's folder is made by its first record: open what is there now. Nothing for ``private``."""
        if self.partition.session_id is None or self.vault_fd < 0:
            return
        fd, self.root_fd, self._root_identity = self.root_fd, None, None
        if fd is not None:
            files.close(fd)
        self._open_root()

    def same(self, *, at_its_start: bool = True) -> bool:
        """Whether the paths still lead to the folders that are open: a mount or a swap sends no event inside them.

        A conversation's folder may be another one ``at_its_start`` of a query, which opens it anew; not at its end.
        """
        if self.vault_fd < 0:
            return False
        try:
            vault = files.stat_entry(self.vault_fd, self._path, at="watch.identity")
            if vault is None or _identity(vault) != self._vault_identity:
                return False
            if self.partition.session_id is not None and (at_its_start or self.root_fd is None):
                return True
            root = files.stat_entry(self.vault_fd, self.partition.key, at="watch.identity")
        except OSError:  # a path that cannot be followed leads nowhere
            return False
        return root is not None and _identity(root) == self._root_identity

    def on_one_device(self) -> bool:
        """Whether the partition's folder lies on the vault's own file system."""
        return self._root_identity is None or self._root_identity[0] == self._vault_identity[0]

    def gone(self) -> StoreUnavailable:
        """The error for a folder that is not, or no longer, the one that was opened."""
        return StoreUnavailable(
            f"The vault's folder, or the {self.partition.kind} folder in it, is missing or another one stands in its "
            "place. Put it back (is a disk not mounted?); nothing was changed.",
            reason="folder_replaced",
        )

    def close(self) -> None:
        """Close both; idempotent."""
        fds = (self.root_fd, self.vault_fd)
        self.root_fd, self.vault_fd = None, -1
        for fd in fds:
            if fd is not None and fd >= 0:
                files.close(fd)

    def _open_root(self) -> None:
        try:
            fd = files.open_folder(self.vault_fd, self.partition.key, at="watch.root")
        except OSError as error:
            if self.partition.session_id is not None and error.errno == errno.ENOENT:
                return
            raise self.gone() from error
        self.root_fd = fd
        self._root_identity = _identity(files.stat_open(fd, at="watch.identity"))


def _identity(status: os.stat_result) -> tuple[int, int]:
    return status.st_dev, status.st_ino

"""A backend of an agent memory, without a server."""

from __future__ import annotations


class Blob:
    """A backend in memory that counts what is asked of it."""

    def __init__(self) -> None:
        self.data: bytes | None = None
        self.loads = self.saves = 0

    def load_bytes(self) -> bytes | None:
        self.loads += 1
        return self.data

    def save_bytes(self, data: bytes) -> None:
        self.saves += 1
        self.data = data

"""A bounded map of open things: whoever was not used for longest is closed when there are too many.

One thread, as the things themselves. What must stay open is marked when the map is made.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterator
from typing import Final, Generic, TypeVar

K = TypeVar("K")
V = TypeVar("V")

OPEN_PARTITIONS_MAX: Final = 32
"""Each open partition costs some descriptors; a store may hold thousands of conversations."""


class RecentlyUsed(Generic[K, V]):
    """At most ``limit`` values, beside those whose key ``stays``."""

    def __init__(self, limit: int, close: Callable[[V], object], stays: Callable[[K], bool] = lambda _: False) -> None:
        self._limit = limit
        self._close = close
        self._stays = stays
        self._values: OrderedDict[K, V] = OrderedDict()

    def __iter__(self) -> Iterator[V]:
        return iter(tuple(self._values.values()))

    def get(self, key: K) -> V | None:
        """The value, which is the most recently used from now on."""
        found = self._values.get(key)
        if found is not None:
            self._values.move_to_end(key)
        return found

    def put(self, key: K, value: V) -> V:
        """Keep ``value``; closes the least recently used others beyond the limit."""
        self._values[key] = value
        self._values.move_to_end(key)
        passing = [other for other in self._values if other != key and not self._stays(other)]
        for other in passing[: max(0, len(passing) + 1 - self._limit)]:
            self._close(self._values.pop(other))
        return value

    def close(self) -> None:
        """Close every value."""
        while self._values:
            self._close(self._values.popitem()[1])

    def drop(self, key: K) -> None:
        """Close one value, if it is there."""
        found = self._values.pop(key, None)
        if found is not None:
            self._close(found)

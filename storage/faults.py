"""Named fault points: the places where storage touches a file, SQLite or Git.

Every effect runs inside ``with effect(name):`` which passes ``<name>`` before it and ``<name>.after`` once it
succeeded. Outside tests the table is empty and a point costs one comparison. A test installs one handler that
may raise (``OSError(ENOSPC)``), block, kill the process or edit a file as a person would.

Source: DESIGN.md (the fault layer), WRITE-PATH.md section 5.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import TracebackType

Handler = Callable[[str], None]

_handler: Handler | None = None


def point(name: str) -> None:
    """Pass the point ``name``; whatever the installed handler raises comes out here."""
    if _handler is not None:
        _handler(name)


class effect:  # noqa: N801 - reads as a statement: ``with effect("stage.file"):``
    """The two points around one effect: ``name`` before, ``name.after`` when it did not raise."""

    __slots__ = ("_name",)

    def __init__(self, name: str) -> None:
        self._name = name

    def __enter__(self) -> None:
        if _handler is not None:
            _handler(self._name)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if _handler is not None and kind is None:
            _handler(self._name + ".after")


@contextmanager
def installed(handler: Handler) -> Iterator[None]:
    """Install ``handler`` for the whole process until the block ends. Tests and ``stress`` only."""
    global _handler
    previous, _handler = _handler, handler
    try:
        yield
    finally:
        _handler = previous

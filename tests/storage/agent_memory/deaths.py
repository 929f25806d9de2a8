"""A process that ends at the nth fault point."""

from __future__ import annotations

from collections.abc import Callable

from storage import faults


class Killed(BaseException):
    """The process ends here."""


def killed_at(hit: int) -> Callable[[str], None]:
    """A fault handler that ends the process at that point, counted from 1."""
    passed = 0

    def handler(name: str) -> None:
        nonlocal passed
        passed += 1
        if passed == hit:
            raise Killed

    return handler


def points_of(run: Callable[[], object]) -> int:
    names: list[str] = []
    with faults.installed(names.append):
        run()
    return len(names)

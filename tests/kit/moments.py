"""Something happens at a named moment of the real code, without threads."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from storage import faults


@contextmanager
def at_point(name: str, action: Callable[[], object], *, when: int = 1) -> Iterator[None]:
    """Run ``action`` when the point is passed for the ``when``-th time; fails if it never is."""
    passed = 0

    def handler(point: str) -> None:
        nonlocal passed
        if point == name:
            passed += 1
            if passed == when:
                action()

    with faults.installed(handler):
        yield
    assert passed >= when, f"{name} was passed {passed} times"

"""After each test: no actor alive, no thread left.

Source: DESIGN.md ("Races are tested without sleeping").
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

import pykka


@contextmanager
def nothing_left(seconds: float = 5.0) -> Iterator[None]:
    """Fails if the block leaves an actor in pykka's registry or a thread behind. Threads get ``seconds`` to end."""
    before = set(threading.enumerate())
    known = set(pykka.ActorRegistry.get_all())
    yield
    end = time.monotonic() + seconds
    for thread in set(threading.enumerate()) - before:
        thread.join(max(0.0, end - time.monotonic()))
    threads = sorted(thread.name for thread in set(threading.enumerate()) - before)
    actors = [str(ref) for ref in pykka.ActorRegistry.get_all() if ref not in known]
    assert threads == [], f"threads left: {threads}"
    assert actors == [], f"actors left: {actors}"

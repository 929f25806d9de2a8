"""Crashes of the lane, injected through the fault points at a pace that the supervisor must sustain."""

from __future__ import annotations

import random
import threading
import time
from collections import Counter
from typing import Final

LANE_SUFFIX: Final = "/lane"


class InjectedCrash(RuntimeError):
    """A defect of nobody's: the lane must die of it, be restarted and lose nothing."""


class CrashInjector:
    """A fault handler: now and then, at whatever point the lane passes next, it crashes the lane.

    Crashes are ``spacing`` seconds apart at least, so that they stay below the restart intensity.
    """

    def __init__(self, seed: int, spacing: float) -> None:
        self._random = random.Random(f"crashes/{seed}")
        self._spacing = spacing
        self._next = time.monotonic() + spacing * self._random.uniform(0.2, 0.6)
        self._skip = self._random.randrange(40)
        self.by_point: Counter[str] = Counter()

    @property
    def count(self) -> int:
        return self.by_point.total()

    def __call__(self, point: str) -> None:
        if time.monotonic() < self._next or not threading.current_thread().name.endswith(LANE_SUFFIX):
            return
        if self._skip > 0:
            # The first point after the pause is nearly always the same: go on to any of a request's points.
            self._skip -= 1
            return
        self._skip = self._random.randrange(120)
        self._next = time.monotonic() + self._spacing * self._random.uniform(1.0, 1.3)
        self.by_point[point] += 1
        raise InjectedCrash(point)

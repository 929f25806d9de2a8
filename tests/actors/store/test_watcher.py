"""The watcher on real descriptors and threads: what wakes it, and what does not."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from contextlib import suppress
from functools import partial

import pytest

from actors.store.helpers import PAUSE_SECONDS, Watcher
from actors.store.messages import FilesChanged, OwnedDescriptor, WatchDescriptor, WatchWanted
from actors.supervision import ActorContext, ChildSpec, GuardedActor, Supervisor, Tree
from tests.kit.actors import eventually


class Reader(GuardedActor):
    """In the lane's place: gives its descriptor away and reads when it is told to."""

    def __init__(self, context: ActorContext, reading: int, told: threading.Semaphore) -> None:
        super().__init__(context)
        self._reading = reading
        self._told = told
        self._watcher = context.tell_handle("helpers/watcher")

    def on_tell(self, message: object) -> None:
        match message:
            case WatchWanted():
                self._watcher.tell(WatchDescriptor(OwnedDescriptor(os.dup(self._reading))))
            case FilesChanged():
                with suppress(BlockingIOError):
                    os.read(self._reading, 100)
                self._told.release()


class Watched:
    """A pipe with a watcher behind it; a byte written is a change."""

    def __init__(self) -> None:
        self._reading, self._writing = os.pipe()
        os.set_blocking(self._reading, False)
        self._told = threading.Semaphore(0)
        helpers = partial(Supervisor, strategy="one_for_one", children=(ChildSpec("watcher", Watcher),))
        lane = ChildSpec("lane", partial(Reader, reading=self._reading, told=self._told))
        self.tree = Tree([lane, ChildSpec("helpers", helpers)], strategy="rest_for_one")
        self.watcher = self.tree.handle("helpers/watcher")

    def change(self) -> None:
        os.write(self._writing, b"x")

    def heard(self) -> bool:
        return self._told.acquire(timeout=10)

    def end(self) -> None:
        assert self.tree.close().stuck == ()
        os.close(self._reading)
        os.close(self._writing)


@pytest.fixture
def watched() -> Iterator[Watched]:
    made = Watched()
    yield made
    made.end()


def test_each_change_is_told_to_the_lane(watched: Watched) -> None:
    for _ in range(3):
        watched.change()
        assert watched.heard()


def test_a_watcher_of_an_idle_store_does_not_wake(watched: Watched) -> None:
    watched.change()
    assert watched.heard()
    eventually(lambda: watched.watcher.health().handled >= 2)  # the descriptor, and the look after the pause
    threading.Event().wait(2 * PAUSE_SECONDS)  # a lane that read late was told twice
    before = watched.watcher.health().handled
    threading.Event().wait(3 * PAUSE_SECONDS)
    assert watched.watcher.health().handled == before


def test_a_watcher_that_waits_hears_of_a_new_descriptor_and_closes_the_old_one(watched: Watched) -> None:
    watched.change()
    assert watched.heard()
    reading, writing = os.pipe()
    watched.watcher.tell(WatchDescriptor(OwnedDescriptor(reading)))
    eventually(lambda: watched.watcher.health().handled >= 2)
    os.write(writing, b"x")
    assert watched.heard()
    os.close(writing)


def test_a_watcher_that_waits_is_stopped_at_once_and_leaves_no_descriptor_open() -> None:
    before = len(os.listdir("/proc/self/fd"))
    watched = Watched()
    eventually(lambda: watched.watcher.health().handled >= 1)
    watched.end()
    assert watched.watcher.health().state == "stopped"
    eventually(lambda: len(os.listdir("/proc/self/fd")) == before)

"""A long catching-up of a keyword index in a process of its own, so that nobody shares an interpreter with it.

Parsing and folding thousands of texts holds the interpreter's lock: in a thread, whoever asks the lane meanwhile waits
several times as long. The child applies the same slices as the indexer does, through connections of its own; each is
whole or not there, so it may be killed at any time and the next one goes on from the position it reached. It ends by
itself when nobody reads its positions any more.

Source: PERFORMANCE.md (The GIL; ask beside our own rebuild), DESIGN.md (The tree, indexer).
"""

from __future__ import annotations

import os
import select
import subprocess
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Final

from messages.vocabulary import Partition
from storage import python_child
from storage.faults import effect
from storage.index_feed import IndexFeed
from storage.search import SearchIndex

APART_FROM_CHANGES: Final = 2_000
"""A shorter catching-up is over before a process has started."""

FAULT_POINTS: Final = (("feed.child", "starting the process that catches an index up"),)

_LOOK_SECONDS: Final = 0.05
_NICENESS: Final = 5


def build_apart(
    state_database: Path, index: Path, *, vault_id: str, partition: Partition, check: Callable[[], None]
) -> bool:
    """Catch the index up to the catalogue's present change in a process of its own and wait for it.

    ``check`` is called every 50 ms and may raise; the child has ended when this returns or raises. ``False``: it could
    not start, or failed on the way; what it had applied stays. The caller has no transaction open on the index.
    """
    arguments = [os.fspath(state_database), os.fspath(index), vault_id, partition.key]
    try:
        with effect("feed.child"):
            child = subprocess.Popen(
                python_child.command(__name__, *arguments),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                bufsize=0,  # what is read is what there is
                cwd="/",
                env=python_child.environment(),
                start_new_session=True,
            )
    except OSError:
        return False
    assert child.stdout is not None
    with child.stdout as positions:
        try:
            while True:
                check()
                readable, _, _ = select.select([positions], [], [], _LOOK_SECONDS)
                if readable and not positions.read(65_536):
                    return child.wait() == 0
        finally:
            if child.poll() is None:
                child.kill()
                child.wait()


def _build(state_database: Path, path: Path, vault_id: str, partition: Partition) -> None:
    """The child: to the change that the catalogue had when it began, a line for each slice."""
    feed = IndexFeed(state_database)
    try:
        index = SearchIndex.open(path, vault_id=vault_id, partition=partition.key, catalogue=feed.identity)
        try:
            position, goal = index.position(), None
            while goal is None or position < goal:
                found = feed.after(partition, position)
                goal = found.end if goal is None else goal
                if found.position > position:
                    index.apply(found.changes, found.position)
                    position = found.position
                if position >= found.end:
                    return
                # Fails when whoever started us is gone: so nothing goes on behind its back.
                sys.stdout.write(f"{position}\n")
                sys.stdout.flush()
        finally:
            index.close()
    finally:
        feed.close()


if __name__ == "__main__":
    with suppress(OSError):
        os.nice(_NICENESS)
    _build(Path(sys.argv[1]), Path(sys.argv[2]), sys.argv[3], Partition.parse(sys.argv[4]))

"""The rows of opening: a vault never seen before, a store closed cleanly, a store after the machine stopped."""

from __future__ import annotations

import hashlib
import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

from messages.vocabulary import PRIVATE
from storage import files
from storage.publication import Machine, open_store
from storage.session import StoreProjection, StoreSession, read_ontology
from storage.vault import scan_partition
from stress.bench.measure import Contender, Row, Sample, compared, interleave
from stress.bench.store import LIMITS, BenchStore, Desk, remember

UNPRUNED: Final = 200


def cold(stores: list[Callable[[], BenchStore]], size: int) -> Iterator[Row]:
    """A store opened over notes that it has never seen, against reading and hashing the same files.

    ``stores`` makes a new one each time; they stay opened once and closed cleanly.
    """
    opened: list[float] = []
    hashed: list[float] = []
    for make in stores:
        store = make()
        read_and_hash(store.private)  # both then find the files in the page cache
        began = time.perf_counter()
        read_and_hash(store.private)
        hashed.append(time.perf_counter() - began)
        began = time.perf_counter()
        session = StoreSession.open(store.layout, limits=LIMITS)
        session.partition(PRIVATE).refresh()
        opened.append(time.perf_counter() - began)
        session.close(clean=True)
    yield Row(
        "cold open", size, Sample.of(opened), "read + sha256", Sample.of(hashed), "<= 20x read + sha256", 20.0,
        note=f"{Sample.of(opened).median / size * 1e6:.0f} us a record",
    )  # fmt: skip


def read_and_hash(folder: Path) -> int:
    """Read and hash every note below a folder; how many."""
    found = 0
    for parent, folders, names in os.walk(folder):
        if "artifacts" in folders:
            folders.remove("artifacts")
        for name in names:
            if name.endswith(".md"):
                with open(f"{parent}/{name}", "rb") as file:
                    hashlib.sha256(file.read()).hexdigest()
                found += 1
    return found


def warm(store: BenchStore, rounds: int) -> Iterator[Row]:
    """A store closed cleanly and opened again, until it could answer; against one scan of its notes."""
    opened: list[StoreSession] = []

    def open_again(_: int) -> None:
        session = StoreSession.open(store.layout, limits=LIMITS)
        opened.append(session)
        session.partition(PRIVATE).refresh()

    root = files.open_root(store.private, at="watch.root")
    try:
        taken = interleave(
            [
                Contender("open", open_again, tidy=lambda _: opened.pop().close(clean=True)),
                Contender("scan", lambda _: scan_partition(root, limits=LIMITS)),
            ],
            rounds,
            warm=1,
        )
    finally:
        files.close(root)
    yield compared("warm open", store.size, taken, "open", "scan", goal="<= 2x scan", limit=2.0)


def recovery(store: BenchStore, rounds: int) -> Iterator[Row]:
    """An opening after the machine stopped with 200 publications not pruned, against one with none.

    Every file is intact, as after most stops; each has to be looked at and made durable all the same.
    """
    number = 0

    def stop(publications: int) -> Callable[[int], None]:
        def stopped(turn: int) -> None:
            with_desk = Desk(store)
            with_desk.partition.refresh()
            for _ in range(publications):
                with_desk.run(remember(turn))
            with_desk.close(clean=False)

        return stopped

    def recover(_: int) -> None:
        nonlocal number
        number += 1
        machine = Machine(f"another boot, {number}", "")
        publisher = open_store(store.layout.root, projection=_projection(store), this=lambda _: machine)
        assert publisher.report.kind == "machine"
        publisher.close(True)

    taken = interleave(
        [
            Contender("200 unpruned", recover, prepare=stop(UNPRUNED)),
            Contender("none", recover, prepare=stop(0)),
        ],
        rounds,
        warm=0,
    )
    yield compared(
        f"recovery, {UNPRUNED} unpruned publications", store.size, taken, "200 unpruned", "none",
        note=f"{Sample.of(taken['200 unpruned']).median / UNPRUNED * 1e3:.1f} ms a publication",
    )  # fmt: skip


def _projection(store: BenchStore) -> StoreProjection:
    vault = files.open_root(store.layout.vault, at="session.folder")
    try:
        ontology = read_ontology(vault, PRIVATE).ontology
    finally:
        files.close(vault)
    return StoreProjection(lambda _: ontology)

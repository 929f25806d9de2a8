"""The rows of the standing index: chosen at the start of a session, against counting every record's ties each time."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Iterator
from itertools import combinations
from typing import Final

from actors.store.operations.prompt_build import ROWS_MOST
from actors.store.operations.standing_index import INDEX_UNITS, Moment, derive, standing_index
from messages.text import utf16_length
from messages.vocabulary import PRIVATE
from stress.bench.measure import Contender, Row, Sample, compared, interleave
from stress.bench.notes import NEWEST_MS
from stress.bench.store import Desk, remember

GOAL_MS: Final = 20.0
_DERIVED: Final = 3
_WRITES: Final = 50


def standing(desk: Desk, rounds: int) -> Iterator[Row]:
    """What the lane does for the first turn of a session; what a helper does for one whose index was lost."""
    partition, size = desk.partition, desk.store.size
    moment = Moment(desk.partition.catalogue, partition.load, partition.ontology, NEWEST_MS, ROWS_MOST)

    def choose(_: int) -> None:
        found = standing_index(moment)
        assert found is not None
        assert utf16_length(found) <= INDEX_UNITS

    taken = interleave(
        [Contender("chosen", choose), Contender("counted", lambda _: count_ties(desk))], min(rounds, 20), warm=1
    )
    yield compared("standing index of a new session", size, taken, "chosen", "counted")
    chosen = Sample.of(taken["chosen"])
    yield Row(
        "standing index of a new session, inside the lane", size, chosen, "", None, f"<= {GOAL_MS:g} ms",
        GOAL_MS / 1000, absolute=True,
    )  # fmt: skip
    database = desk.store.layout.state_database
    began_ms = time.time_ns() // 1_000_000
    for number in range(_WRITES):
        desk.run(remember(number))
    derived = interleave(
        [Contender("derived", lambda _: derive(database, PRIVATE, partition.ontology, began_ms, lambda: None))],
        _DERIVED if size <= 10_000 else 1,
        warm=0,
    )
    sample = Sample.of(derived["derived"])
    yield Row(f"standing index from history, {_WRITES} writes taken back", size, sample, "", None, "", None)


def count_ties(desk: Desk) -> int:
    """The most pages that one page is connected with, counted from all references: what nobody has to do."""
    db = desk.partition.catalogue.database
    named: dict[int, set[str]] = defaultdict(set)
    for row, target in db.iterate("SELECT row, target FROM reference WHERE role IN ('entity', 'owner', 'from', 'to')"):
        named[row].add(target)
    ties: dict[str, set[str]] = defaultdict(set)
    for pages in named.values():
        for one, other in combinations(sorted(pages), 2):
            ties[one].add(other)
            ties[other].add(one)
    for row, target in db.iterate("SELECT row, target FROM body_link WHERE target IS NOT NULL"):
        ties[str(row)].add(str(target))
    return max(map(len, ties.values()), default=0)

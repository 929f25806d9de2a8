"""The course of maintenance through one store: which steps, in which order, and what is kept of their answers. Pure.

A course is a generator: it yields the step to ask the store for and is sent the answer, or has its refusal thrown in.
One part that fails is noted and the next goes on; a store that cannot be asked at all ends the course.

Source: decisions.md section 5 (Maintenance).
"""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import dataclass, field
from typing import Final, TypeAlias

from actors.store.upkeep import (
    CheckDatabase,
    CheckIndex,
    CheckRepository,
    CompareFiles,
    LinkClaims,
    ListPartitions,
    MergeIndex,
    Report,
    UpkeepStep,
    VerifyRecords,
)
from messages.errors import KnowledgeError
from messages.json_types import JsonObject, JsonValue
from messages.vocabulary import PRIVATE, Partition

IDS_KEPT: Final = 50
FAILURES_KEPT: Final = 20
MERGE_STEPS_MAX: Final = 1_000
NEARLY_FULL_PERCENT: Final = 80

_GOES_ON_AFTER: Final = frozenset(
    (
        "deadline",
        "deletions_refused",
        "evidence_invalid",
        "index_unavailable",
        "partition_full",
        "publication_pending",
        "scan_incomplete",
        "stale_fence",
        "storage_error",
        "writes_disabled",
    )
)


@dataclass(frozen=True, slots=True)
class Ask:
    """The next step; ``done`` of ``of`` partitions are behind it."""

    partition: Partition
    step: UpkeepStep
    done: int = 0
    of: int = 0


Course: TypeAlias = Generator[Ask, JsonObject, JsonObject]
_Part: TypeAlias = Generator[Ask, JsonObject, None]


def course(*, writes: bool) -> Course:
    """Look after one store; returns its result. Without ``writes`` it only checks."""
    kept = _Kept()
    listed = yield Ask(PRIVATE, ListPartitions())
    partitions = [Partition.parse(str(key)) for key in _list(listed, "partitions")]
    kept.numbers["partitions"] = len(partitions)
    for done, partition in enumerate(partitions):
        place = _Place(partition, done, len(partitions))
        if writes:
            yield from _noted(kept, place, "link", _link(kept, place))
        yield from _noted(kept, place, "evidence", _verify(kept, place))
        yield from _noted(kept, place, "files", _compare(kept, place))
        yield from _noted(kept, place, "index", _index(kept, place, writes))
        yield from _noted(kept, place, "report", _report(kept, place))
    place = _Place(PRIVATE, len(partitions), len(partitions))
    yield from _noted(kept, place, "database", _database(kept, place))
    yield from _noted(kept, place, "repository", _repository(kept, place, writes))
    return kept.to_json(checked_only=not writes)


@dataclass(frozen=True, slots=True)
class _Place:
    partition: Partition
    done: int
    of: int

    def ask(self, step: UpkeepStep) -> Ask:
        return Ask(self.partition, step, self.done, self.of)


@dataclass(slots=True)
class _Kept:
    """Sums over the partitions, and the first few ids of each kind."""

    numbers: dict[str, int] = field(default_factory=dict)
    lists: dict[str, list[JsonValue]] = field(default_factory=dict)
    growth: JsonObject = field(default_factory=dict)
    states: JsonObject = field(default_factory=dict)
    failures: list[JsonValue] = field(default_factory=list)

    def add(self, name: str, number: JsonValue) -> None:
        self.numbers[name] = self.numbers.get(name, 0) + (number if isinstance(number, int) else 0)

    def keep(self, name: str, values: list[JsonValue]) -> None:
        kept = self.lists.setdefault(name, [])
        kept += values[: IDS_KEPT - len(kept)]

    def count(self, name: str, values: list[JsonValue]) -> None:
        self.add(name, len(values))
        self.keep(name, values)

    def part(self, *names: str) -> JsonObject:
        return {name: self.numbers.get(name, 0) for name in names}

    def listed(self, name: str) -> list[JsonValue]:
        return self.lists.get(name, [])

    def to_json(self, *, checked_only: bool) -> JsonObject:
        result: JsonObject = {
            "checkedOnly": checked_only,
            "partitions": self.numbers.get("partitions", 0),
            "links": {
                **self.part("linked", "ambiguous", "missing", "duplicate", "conflict"),
                "ids": self.listed("linked"),
            },
            "evidence": {**self.part("records", "citations", "failed"), "ids": self.listed("failed")},
            "files": {
                **self.part("compared", "changed", "lost"),
                "changedIds": self.listed("changed"),
                "lostIds": self.listed("lost"),
            },
            "index": {**self.part("damaged", "merges")},
            "duplicates": {"total": self.numbers.get("duplicates", 0), "groups": self.listed("groups")},
            "uncited": {"total": self.numbers.get("uncited", 0), "requests": self.listed("requests")},
            "unfinished": {
                "total": self.numbers.get("unfinished", 0),
                "bytes": self.numbers.get("unfinishedBytes", 0),
                "requests": self.listed("unfinished"),
            },
            "growth": self.growth,
            **self.states,
        }
        if self.failures:
            result["failures"] = self.failures
        return result


def _noted(kept: _Kept, place: _Place, name: str, part: _Part) -> _Part:
    try:
        yield from part
    except KnowledgeError as error:
        if error.code not in _GOES_ON_AFTER:
            raise
        if len(kept.failures) < FAILURES_KEPT:
            kept.failures.append({"part": name, "partition": place.partition.key, "code": error.code})


def _link(kept: _Kept, place: _Place) -> _Part:
    after: JsonValue = 0
    while isinstance(after, int):
        answer = yield place.ask(LinkClaims(after))
        kept.count("linked", _list(answer, "linked"))
        kept.add("conflict", int(answer.get("conflict") is True))
        left = answer.get("left")
        for reason in ("ambiguous", "missing", "duplicate"):
            kept.add(reason, left.get(reason) if isinstance(left, dict) else 0)
        after = answer["next"]


def _verify(kept: _Kept, place: _Place) -> _Part:
    after: JsonValue = 0
    while isinstance(after, int):
        answer = yield place.ask(VerifyRecords(after))
        kept.add("records", answer["records"])
        kept.add("citations", answer["citations"])
        kept.count("failed", _list(answer, "failed"))
        after = answer["next"]


def _compare(kept: _Kept, place: _Place) -> _Part:
    after: JsonValue = ""
    while isinstance(after, str):
        answer = yield place.ask(CompareFiles(after))
        kept.add("compared", answer["files"])
        kept.add("changed", answer["changedTotal"])
        kept.keep("changed", _list(answer, "changed"))
        kept.count("lost", _list(answer, "lost"))
        after = answer["next"]


def _index(kept: _Kept, place: _Place, writes: bool) -> _Part:
    answer = yield place.ask(CheckIndex())
    kept.add("damaged", int(answer.get("sound") is False))
    if not writes or answer.get("sound") is not True:
        return
    for _ in range(MERGE_STEPS_MAX):
        answer = yield place.ask(MergeIndex())
        kept.add("merges", 1)
        if answer.get("more") is not True:
            return


def _report(kept: _Kept, place: _Place) -> _Part:
    answer = yield place.ask(Report())
    kept.add("duplicates", answer["duplicatesTotal"])
    kept.keep("groups", _list(answer, "duplicates"))
    kept.add("uncited", answer["uncitedTotal"])
    kept.keep("requests", _list(answer, "uncited"))
    kept.add("unfinished", answer["unfinishedTotal"])
    kept.add("unfinishedBytes", answer["unfinishedBytes"])
    kept.keep("unfinished", _list(answer, "unfinished"))
    entries, limit = answer["entries"], answer["entriesLimit"]
    if isinstance(entries, int) and isinstance(limit, int):
        fullest = kept.growth.get("entries")
        if not isinstance(fullest, int) or entries > fullest:
            kept.growth |= {"fullestPartition": place.partition.key, "entries": entries, "entriesLimit": limit}
            kept.growth["nearlyFull"] = entries * 100 >= limit * NEARLY_FULL_PERCENT


def _database(kept: _Kept, place: _Place) -> _Part:
    answer = yield place.ask(CheckDatabase())
    kept.states["database"] = "sound"
    kept.growth |= {key: answer[key] for key in ("texts", "textBytes", "databaseBytes", "walBytes")}


def _repository(kept: _Kept, place: _Place, writes: bool) -> _Part:
    answer = yield place.ask(CheckRepository(tidy=writes))
    sound = answer.get("sound")
    state = "off" if sound is None else "sound" if sound else "damaged"
    kept.states["repository"] = state
    if "packed" in answer:
        kept.states["repositoryPacked"] = answer["packed"]


def _list(answer: JsonObject, key: str) -> list[JsonValue]:
    found = answer.get(key)
    return found if isinstance(found, list) else []

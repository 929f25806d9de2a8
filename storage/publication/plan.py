"""An intent as steps of the vault: at most one a path, and one history row a record.

Guarantees: pure; the same intent gives the same plan. ``ValueError`` marks a defect of the caller: a path that is
not plain, two first texts for one path, or a change that changes nothing it claims to.

Source: WRITE-PATH.md holes 23 and 30.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Protocol

from messages.errors import LimitExceeded
from messages.vocabulary import PUBLICATION_MAX_BYTES, Lifecycle, Partition
from storage.files import checked_relative
from storage.publication.store import STAGED_PREFIX
from storage.state.journal import Step, digest
from storage.vault.replace import Capabilities, folded


class Change(Protocol):
    """What a plan needs of a change, ours or a person's."""

    @property
    def path(self) -> str: ...
    @property
    def before(self) -> str | None: ...
    @property
    def after(self) -> bytes | None: ...
    @property
    def record_id(self) -> str | None: ...
    @property
    def revision(self) -> int | None: ...
    @property
    def lifecycle(self) -> Lifecycle | None: ...


@dataclass(frozen=True, slots=True)
class RecordChange:
    """What one record's history gets: its text after the change (``None``: removed) and where it lies."""

    record_id: str | None
    revision: int | None
    hash: str | None
    before: str | None
    path: str
    lifecycle: Lifecycle | None


@dataclass(frozen=True, slots=True)
class Plan:
    """``steps`` touch files; ``texts`` are the new bytes by hash; ``records`` become history rows."""

    steps: tuple[Step, ...]
    texts: dict[str, bytes]
    records: tuple[RecordChange, ...]


def plan(partition: Partition, changes: Iterable[Change], can: Capabilities, *, external: bool = False) -> Plan:
    """The plan of ``changes``. Two changes of one path become one step; paths that the file system takes for the
    same keep the name that stands there."""
    texts: dict[str, bytes] = {}
    steps: dict[str, Step] = {}
    total = 0
    ordered = list(changes)
    for change in ordered:
        if any(part.startswith(STAGED_PREFIX) for part in checked_relative(change.path).split("/")):
            raise ValueError(f"the name is reserved: {change.path!r}")
        after = None if change.after is None else digest(change.after)
        if after is not None and change.after is not None:
            texts[after] = change.after
            total += len(change.after)
        path = f"{partition.key}/{change.path}"
        key = folded(can, path)
        other = steps.get(key)
        if other is None:
            step = Step(len(steps), path, key, change.before, after, change.record_id)
        else:
            step = _joined(other, path, change.before, after, change.record_id)
        steps[key] = step
    if total > PUBLICATION_MAX_BYTES and not external:
        raise LimitExceeded(
            f"the publication has {total} bytes, the limit is {PUBLICATION_MAX_BYTES}", limit=PUBLICATION_MAX_BYTES
        )
    effective = (step for step in steps.values() if step.before != step.after)
    renumbered = tuple(
        Step(ordinal, s.path, s.key, s.before, s.after, s.record_id) for ordinal, s in enumerate(effective)
    )
    return Plan(renumbered, texts, _records(ordered))


def _joined(first: Step, path: str, before: str | None, after: str | None, record_id: str | None) -> Step:
    if first.path == path:
        # One path twice: the second change goes on where the first ended.
        if before not in (first.after, first.before):
            raise ValueError(f"two changes of {path!r} do not follow each other")
        return Step(first.ordinal, path, first.key, first.before, after, record_id or first.record_id)
    # Two spellings of one name, so a rename that changes only case: the text changes in place under the old name.
    if (first.before is None) == (before is None):
        raise ValueError(f"{first.path!r} and {path!r} are the same file here")
    removed, created = (first, after) if first.before is not None else (None, first.after)
    if removed is not None:
        return Step(first.ordinal, first.path, first.key, first.before, created, record_id or first.record_id)
    return Step(first.ordinal, path, first.key, before, created, first.record_id or record_id)


def _records(changes: list[Change]) -> tuple[RecordChange, ...]:
    """One row for each record and path that changed; a record that left one path for another has one for both."""
    rows: dict[tuple[str | None, str], RecordChange] = {}
    for change in changes:
        after = None if change.after is None else digest(change.after)
        row = RecordChange(change.record_id, change.revision, after, change.before, change.path, change.lifecycle)
        earlier = rows.get((change.record_id, change.path))
        rows[change.record_id, change.path] = row if earlier is None else replace(row, before=earlier.before)
    of_record: dict[str | None, list[RecordChange]] = {}
    for row in rows.values():
        of_record.setdefault(row.record_id, []).append(row)
    # A text that is no record has no id that could tell where it went.
    return tuple(
        row for record_id, found in of_record.items() for row in (found if record_id is None else _moved(found))
    )


def _moved(rows: list[RecordChange]) -> list[RecordChange]:
    """The rows of one record, each that left its path joined with one that came to another, where there is one.

    Several files may bear one id, and then each has its row; the one that moved unchanged is recognised by its text.
    """
    left = [row for row in rows if row.hash is None]
    stands: list[RecordChange] = []
    for row in rows:
        if row.hash is None:
            continue
        if row.before is not None or not left:
            stands.append(row)
            continue
        source = next((other for other in left if other.before == row.hash), left[0])
        left.remove(source)
        stands.append(replace(row, before=source.before))
    return [*left, *stands]

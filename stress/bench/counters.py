"""What an operation does, counted: every fault point it passes, SQLite's statements and steps, writes and syncs.

Counts do not depend on the machine or on what else it does, which is why they can be asserted. A store that is to be
counted is opened inside :func:`metered`.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Final

import apsw

from storage import faults, files
from stress.bench.replacing import replaced

# Only the event at its start says that a statement runs inside another.
_TRACED: Final = apsw.SQLITE_TRACE_STMT | apsw.SQLITE_TRACE_PROFILE
_VFS: Final = "metered"
_STEPS: Final = "SQLITE_STMTSTATUS_VM_STEP"
_SCANNED: Final = "SQLITE_STMTSTATUS_FULLSCAN_STEP"


@dataclass(slots=True)
class Counts:
    """What happened between two readings."""

    points: Counter[str] = field(default_factory=Counter)
    statements: Counter[str] = field(default_factory=Counter)
    steps: int = 0
    scanned: int = 0
    syncs: int = 0
    file_bytes: int = 0
    database_writes: int = 0
    database_bytes: int = 0

    def of(self, *endings: str) -> int:
        """How often a point with one of these endings was passed."""
        return sum(count for name, count in self.points.items() if name.endswith(endings))

    def stable(self) -> dict[str, object]:
        """Everything that must not depend on how many records there are."""
        return {
            "points": dict(sorted(self.points.items())),
            "statements": dict(sorted(self.statements.items())),
            "steps": self.steps,
            "rows scanned": self.scanned,
            "syncs": self.syncs,
            "bytes written to files": self.file_bytes,
        }


class Meter:
    """Counts for the whole process. One is alive at a time, inside :func:`metered`."""

    def __init__(self) -> None:
        self.counts = Counts()
        self._nested: set[object] = set()

    @contextmanager
    def counting(self) -> Iterator[Counts]:
        """Counts from here to the end of the block."""
        self.counts = Counts()
        yield self.counts
        self.counts = Counts()

    def passed(self, point: str) -> None:
        if not point.endswith(".after"):
            self.counts.points[point] += 1

    def stepped(self, event: dict[str, object]) -> None:
        if event["code"] == apsw.SQLITE_TRACE_STMT:
            if event["trigger"]:
                self._nested.add(event["id"])
            return
        if event["id"] in self._nested:
            self._nested.discard(event["id"])
            return  # what an extension runs inside a statement; its steps add up over statements
        status, sql = event["stmt_status"], event["sql"]
        assert isinstance(status, dict)
        assert isinstance(sql, str)
        self.counts.statements[sql] += 1
        self.counts.steps += status[_STEPS]
        self.counts.scanned += status[_SCANNED]


@contextmanager
def metered() -> Iterator[Meter]:
    """A meter that sees every store opened inside the block, and real file effects anywhere in the process."""
    meter = Meter()
    usual = apsw.vfs_names()[0]
    vfs = _Vfs(meter, usual)
    apsw.set_default_vfs(_VFS)
    hooks = list(apsw.connection_hooks)
    apsw.connection_hooks.append(lambda connection: connection.trace_v2(_TRACED, meter.stepped))
    try:
        with replaced(files, {"os": _Os(meter)}), faults.installed(meter.passed):
            yield meter
    finally:
        apsw.connection_hooks[:] = hooks
        apsw.set_default_vfs(usual)
        vfs.unregister()


class _Os:
    """The module ``os`` as the file layer sees it: what it writes and syncs is counted."""

    def __init__(self, meter: Meter) -> None:
        self._meter = meter

    def write(self, fd: int, data: bytes | memoryview) -> int:
        written = os.write(fd, data)
        self._meter.counts.file_bytes += written
        return written

    def fsync(self, fd: int) -> None:
        os.fsync(fd)
        self._meter.counts.syncs += 1

    def __getattr__(self, name: str) -> object:
        return getattr(os, name)


class _Vfs(apsw.VFS):
    def __init__(self, meter: Meter, base: str) -> None:
        super().__init__(_VFS, base)
        self._meter = meter
        self._base = base

    def xOpen(self, name: str | apsw.URIFilename | None, flags: list[int]) -> apsw.VFSFile:  # noqa: N802 - its name
        return _File(self._meter, self._base, name, flags)


class _File(apsw.VFSFile):
    def __init__(self, meter: Meter, base: str, name: str | apsw.URIFilename | None, flags: list[int]) -> None:
        super().__init__(base, name, flags)
        self._meter = meter

    def xWrite(self, data: bytes, offset: int) -> None:  # noqa: N802 - its name
        super().xWrite(data, offset)
        self._meter.counts.database_writes += 1
        self._meter.counts.database_bytes += len(data)

    def xSync(self, flags: int) -> None:  # noqa: N802 - its name
        super().xSync(flags)
        self._meter.counts.syncs += 1

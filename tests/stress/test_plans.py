"""No statement of everyday work looks at every row of a table that grows with what people keep.

The statements are collected while a client works through the runtime as agents do; then SQLite is asked how it runs
each of them. The plans do not depend on what the tables hold: nothing is analysed, and no parameter is peeked at.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import apsw
import apsw.ext
import pytest

from host_bridge.bridge import KnowledgeBridge
from messages.audience import OwnerPrivate
from messages.vocabulary import PRIVATE
from storage.layout import Layout, StoreLayout
from storage.state.connection import Database
from stress.bridge_door import BridgeDoor
from stress.clients import Client
from stress.ledger import Caller, Ledger
from stress.scripts import Shelf

CALLS: Final = 400
GROWING: Final = frozenset(
    "record file name tag reference citation page body_link tie neighbour finding removed document "
    "blob publication step history".split()
)
"""Tables with rows for each record, publication or file."""
FEW: Final = frozenset(
    "publication_unpruned publication_unsettled publication_conflict publication_adoption file_without_record".split()
)
"""Partial indexes of what is not finished, or wrong."""
COUNTED: Final = {
    "SELECT count(*) FROM record r WHERE": "a page of a list says how many records there are",
    "SELECT count(*) FROM (SELECT coalesce(r.occurred_from, r.recorded_at)": "a page of all dates counts them",
    "SELECT kind, lifecycle, count(*) FROM record": "the status counts records by kind",
    "SELECT path, hash, state, device, inode, size, mtime_ns, ctime_ns FROM file WHERE partition = ?": "a full scan",
    "SELECT count(*), coalesce(max(h.sequence), 0) FROM history h": "a page of all history says how much there is",
}
"""What grows by its own promise (docs/performance.md), by how it begins, and why."""
_PLANNED: Final = ("SELECT", "INSERT", "UPDATE", "DELETE", "WITH")
_INNER: Final = "'main'.'"
"""Tables inside the full-text index, whose statements are SQLite's own."""
_DETAIL: Final = re.compile(r"(SCAN|SEARCH) (\w+)(?: USING .*?(?:INDEX (\w+)|PRIMARY KEY))?.*?(?: \((.*)\))?")


class Collected:
    """Every statement that connections opened in the block have run, by the name of the database's file."""

    def __init__(self) -> None:
        self.statements: dict[str, dict[str, None]] = {}
        self._open: dict[str, apsw.Connection] = {}

    def watch(self, connection: apsw.Connection) -> None:
        name = Path(connection.filename).name
        self._open[name] = connection
        found = self.statements.setdefault(name, {})

        def ran(event: dict[str, object]) -> None:
            if event["code"] == apsw.SQLITE_TRACE_STMT and not event["trigger"]:
                found[str(event["sql"])] = None

        connection.trace_v2(apsw.SQLITE_TRACE_STMT, ran)

    def plans(self, name: str) -> Iterator[tuple[str, str]]:
        """``(statement, one step of its plan)`` of each one, as the connection opened last would run it."""
        connection = self._open[name]
        for sql in list(self.statements[name]):
            if sql.lstrip().upper().startswith(_PLANNED) and _INNER not in sql:
                yield from ((sql, step) for step in steps_of(connection, sql))


def steps_of(connection: apsw.Connection, sql: str) -> list[str]:
    waiting = [apsw.ext.query_info(connection, sql, explain_query_plan=True).query_plan]
    found: list[str] = []
    while waiting:
        step = waiting.pop()
        if step is not None:
            found.append(step.detail)
            waiting += step.sub or []
    return found


@contextmanager
def collecting() -> Iterator[Collected]:
    collected = Collected()
    hooks = list(apsw.connection_hooks)
    apsw.connection_hooks.append(collected.watch)
    try:
        yield collected
    finally:
        apsw.connection_hooks[:] = hooks


def grows(sql: str, step: str) -> bool:
    """Whether this step of a statement's plan looks at as many rows as there are, and nobody said that it may."""
    parsed = _DETAIL.fullmatch(step)
    if parsed is None:
        return False
    how, name, index, terms = parsed.groups()
    tables = {name, *re.findall(rf"\b(\w+)\s+(?:AS\s+)?{name}\b", sql)}
    if not tables & GROWING or index in FEW or "VIRTUAL TABLE" in step:
        return False
    if any(" ".join(sql.split()).startswith(begin) for begin in COUNTED):
        return False
    # All rows of a partition are all that there are; the first of them in an index's order are not.
    return how == "SCAN" or (terms == "partition=?" and "LIMIT" not in sql)


@pytest.mark.timeout(300)
def test_no_statement_of_everyday_work_scans_a_table_that_grows(tmp_path: Path) -> None:
    with collecting() as collected, KnowledgeBridge(tmp_path / "state") as knowledge:
        caller = Caller("main", "main")
        client = Client("1", Ledger(), seed="plans", doors=[(BridgeDoor(knowledge), 1)], callers=[(caller, Shelf(""))])
        client.run(threading.Event(), CALLS)
        [root] = Layout(tmp_path / "state").stores.iterdir()
        layout = StoreLayout(root)
        (layout.partition(PRIVATE) / "by hand.md").write_text("No record yet.\n", "utf-8")
        knowledge.call("knowledge_status", {}, OwnerPrivate("main"))
        names = (layout.state_database.name, layout.search_index(PRIVATE).name)
        found = {name: list(collected.plans(name)) for name in names}
    for sql in ("INSERT INTO record ", "SELECT DISTINCT n.normalised", "INSERT INTO history ", "UPDATE record SET "):
        assert any(statement.startswith(sql) for statement in collected.statements[names[0]]), sql
    assert any("MATCH" in statement for statement in collected.statements[names[1]])
    assert len(found[names[0]]) > 200, "the client has done next to nothing"
    assert [(step, sql) for plans in found.values() for sql, step in plans if grows(sql, step)] == []


@pytest.mark.parametrize(
    ("sql", "expected"),
    [
        ("SELECT * FROM record", True),
        ("SELECT r.row FROM record r WHERE r.title = ?", True),
        ("SELECT r.row FROM record AS r WHERE r.partition = ?", True),
        ("SELECT r.row FROM record r WHERE r.partition = ? ORDER BY r.recorded_at LIMIT 5", False),
        ("SELECT r.row FROM record r WHERE r.partition = ? AND r.id = ?", False),
        ("SELECT h.id FROM history h WHERE h.record_id = ?", True),
        ("DELETE FROM tag WHERE tag = ?", True),
        ("SELECT n.row FROM json_each(?) j CROSS JOIN name n ON n.partition = ? AND n.normalised = j.value", False),
        ("SELECT n.row FROM json_each(?) j CROSS JOIN name n ON n.normalised = j.value", True),
        ("SELECT id FROM publication WHERE pruned = 0", False),
        ("SELECT vault_id FROM meta", False),
    ],
)
def test_a_statement_that_looks_at_every_row_is_found_out(tmp_path: Path, sql: str, expected: bool) -> None:
    with KnowledgeBridge(tmp_path / "state") as knowledge:
        knowledge.call("knowledge_status", {}, OwnerPrivate("main"))
    [root] = Layout(tmp_path / "state").stores.iterdir()
    with collecting() as collected:
        database = Database.open(StoreLayout(root).state_database, point_prefix="state", read_only=True)
    try:
        steps = steps_of(collected._open[database.path.name], sql)
    finally:
        database.close()
    assert any(grows(sql, step) for step in steps) is expected

"""An id that another partition uses is told by nothing from one that nobody uses: not by what is said, nor by the work.

Judged by twins without a clock: the same call in the same store, once with an id that is used elsewhere and once with
one that is used nowhere, runs the same statements in the same order and passes the same points of effect.

Source: stores-and-access.md (Partitions), decisions.md sections 4 and 6.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

from messages.errors import KnowledgeError
from messages.json_types import JsonObject
from messages.vocabulary import PRIVATE, Partition
from storage import faults
from storage.layout import StoreLayout
from storage.state.connection import Database
from tests.host_bridge.guards.kit import without_partitions
from tests.kit.store import GROUP_PARTITION, Desk, copy_store, items_of, make_store, remembering, request_id

OTHER: Final = Partition("44444444-4444-4444-8444-444444444444")
NOWHERE: Final = request_id(9_999)


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> tuple[StoreLayout, dict[str, tuple[str, str]]]:
    """A store in which three partitions have a claim, and the request and record ids of two of them."""
    layout = make_store(tmp_path_factory.mktemp("made") / "store")
    desk = Desk(layout)
    ids: dict[str, tuple[str, str]] = {}
    for number, (name, partition) in enumerate([("owner", PRIVATE), ("other", OTHER), ("own", GROUP_PARTITION)]):
        wanted = request_id(100 + number)
        saved = desk.call("remember", {**remembering(f"It is {name}."), "requestId": wanted}, partition=partition)
        ids[name] = wanted, str(items_of(saved)[0]["id"])
    desk.close()
    return layout, ids


class Trace:
    """Every statement with the number of its parameters, and every point of effect, in their order."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.steps: list[object] = []
        for name in ("query", "query_one", "iterate", "execute", "execute_many"):
            self._note(monkeypatch, name)

    def _note(self, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
        real = getattr(Database, name)

        def noted(database: Database, sql: str, parameters: tuple[object, ...] = ()) -> object:
            found = real(database, sql, parameters)
            rows = list(found) if isinstance(found, Iterator) else found
            self.steps.append((name, sql, len(parameters), len(rows) if isinstance(rows, list) else rows is None))
            return iter(rows) if isinstance(found, Iterator) else rows

        monkeypatch.setattr(Database, name, noted)

    def point(self, name: str) -> None:
        self.steps.append(name)


CALLS: Final[dict[str, JsonObject]] = {
    "mutation": {"requestId": "request"},
    "resume": {"requestId": "request"},
    "remember": {**remembering("It is new."), "requestId": "request"},
    "save_page": {"title": "New", "type": "project", "body": "New.", "requestId": "request"},
    "record": {"id": "record", "includeEvidence": True},
    "history": {"id": "record"},
    "revision": {"id": "record", "sequence": 1},
    "connections": {"id": "record"},
    "verify": {"ids": ["record"]},
    "evidence_read": {"id": "record", "path": f"artifacts/{request_id(100)}/excerpt.txt", "sha256": "0" * 64},
}


def done(folder: Path, made: StoreLayout, tool: str, names: tuple[str, str]) -> list[object]:
    """What a call of the conversation does and tells, its ids neutral."""
    desk = Desk(copy_store(made, folder))
    wanted, record = names
    try:
        desk.call("status", partition=GROUP_PARTITION)
        filled = {"request": wanted, "record": record}
        arguments = {
            key: filled.get(value, value) if isinstance(value, str) else [record] if value == ["record"] else value
            for key, value in CALLS[tool].items()
        }
        with pytest.MonkeyPatch.context() as monkeypatch:
            trace = Trace(monkeypatch)
            with faults.installed(trace.point):
                try:
                    told: object = sorted(desk.call(tool, arguments, partition=GROUP_PARTITION))
                except KnowledgeError as error:
                    told = (error.code, error.message.replace(wanted, "request").replace(record, "record"))
        return [told, *trace.steps]
    finally:
        desk.close()


@pytest.mark.parametrize("whose", ["owner", "other"])
@pytest.mark.parametrize("tool", CALLS)
def test_an_id_of_another_partition_does_and_tells_what_one_of_nobody_does(
    made: tuple[StoreLayout, dict[str, tuple[str, str]]], tmp_path: Path, tool: str, whose: str
) -> None:
    layout, ids = made
    theirs = done(tmp_path / "theirs", layout, tool, ids[whose])
    nobodys = done(tmp_path / "nobodys", layout, tool, (NOWHERE, NOWHERE))
    assert len(theirs) > 5
    assert theirs == nobodys


@pytest.mark.parametrize("tool", CALLS)
def test_an_id_of_the_callers_own_shows_in_what_is_done(
    made: tuple[StoreLayout, dict[str, tuple[str, str]]], tmp_path: Path, tool: str
) -> None:
    layout, ids = made
    own = done(tmp_path / "own", layout, tool, ids["own"])
    assert own != done(tmp_path / "nobodys", layout, tool, (NOWHERE, NOWHERE))


@pytest.mark.parametrize(
    ("tool", "tables"), [("remember", "publication"), ("mutation", "publication"), ("record", "record"),
                         ("history", "history")],
)  # fmt: skip
def test_without_the_condition_on_the_partition_the_id_would_show(
    made: tuple[StoreLayout, dict[str, tuple[str, str]]], tmp_path: Path, tool: str, tables: str
) -> None:
    layout, ids = made
    with pytest.MonkeyPatch.context() as monkeypatch:
        without_partitions(tables)(monkeypatch)
        theirs = done(tmp_path / "theirs", layout, tool, ids["owner"])
        assert theirs != done(tmp_path / "nobodys", layout, tool, (NOWHERE, NOWHERE))

"""state.sqlite of an older format is brought forward, with a copy beside it, whatever happens meanwhile."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import apsw
import pytest

from actors.store.operations.recall import approved_recall
from messages.errors import StorageError
from storage import faults
from storage.layout import StoreLayout
from storage.state.schema import SCHEMA_VERSION
from tests.kit.formats import make_format_1, make_format_2, make_format_3, make_format_4
from tests.kit.sources import attach, descriptor
from tests.kit.store import Desk, copy_store, relationship_file, write_note


@pytest.fixture
def older(made_store: StoreLayout, tmp_path: Path) -> StoreLayout:
    """A store of format 1 with two claims."""
    layout = copy_store(made_store, tmp_path / "store")
    desk = Desk(layout)
    desk.remember("One.", "Two.")
    desk.close()
    make_format_1(layout.state_database)
    return layout


def tables(path: Path) -> list[str]:
    connection = apsw.Connection(str(path))
    try:
        rows = connection.execute("SELECT name, sql FROM sqlite_schema WHERE sql IS NOT NULL ORDER BY name")
        return [f"{name}: {' '.join(str(sql).replace('IF NOT EXISTS ', '').split())}" for name, sql in rows]
    finally:
        connection.close()


def version(path: Path) -> object:
    connection = apsw.Connection(str(path))
    try:
        return connection.execute("PRAGMA user_version").fetchall()[0][0]
    finally:
        connection.close()


def test_an_older_store_is_brought_forward_with_all_it_holds_and_a_copy_of_its_database_is_kept(
    older: StoreLayout,
) -> None:
    desk = Desk(older)
    try:
        assert desk.call("records")["total"] == 2
        assert attach(desk, 1, b"text") == descriptor(1, b"text")
    finally:
        desk.close()
    assert version(older.state_database) == SCHEMA_VERSION
    copy = older.root / "state.sqlite.format-1"
    assert version(copy) == 1
    assert not any(row.startswith("upload:") for row in tables(copy))


def test_an_older_and_a_new_store_have_the_same_tables(older: StoreLayout, made_store: StoreLayout) -> None:
    desk = Desk(older)
    desk.call("status")
    desk.close()
    assert tables(older.state_database) == tables(made_store.state_database)


def test_a_store_of_format_2_gets_what_is_new_and_keeps_its_uploads_and_catalogue(
    made_store: StoreLayout, tmp_path: Path
) -> None:
    layout = copy_store(made_store, tmp_path / "store")
    desk = Desk(layout)
    desk.remember("One.")
    found = attach(desk, 1, b"text")
    desk.close()
    make_format_2(layout.state_database)
    assert tables(layout.state_database) != tables(made_store.state_database)
    assert desk.call("records")["total"] == 1
    assert attach(desk, 1, b"text") == found
    desk.close()
    assert tables(layout.state_database) == tables(made_store.state_database)
    assert version(layout.state_database) == SCHEMA_VERSION
    assert version(layout.root / "state.sqlite.format-2") == 2


def test_a_store_of_format_3_gets_the_index_of_approvals_and_keeps_its_approvals(
    made_store: StoreLayout, tmp_path: Path
) -> None:
    layout = copy_store(made_store, tmp_path / "store")
    desk = Desk(layout)
    page = desk.page("Plan")
    desk.call("recall", {**desk.observed(page["id"]), "summary": "It ships on Friday."})
    desk.close()
    make_format_3(layout.state_database)
    [entry] = desk.partition().catalogue.by_id(str(page["id"]))
    assert approved_recall(desk.context(), entry) is not None
    desk.close()
    assert tables(layout.state_database) == tables(made_store.state_database)
    assert version(layout.state_database) == SCHEMA_VERSION
    assert version(layout.root / "state.sqlite.format-3") == 3


def test_a_store_of_format_4_learns_which_pages_are_connected(made_store: StoreLayout, tmp_path: Path) -> None:
    layout = copy_store(made_store, tmp_path / "store")
    desk = Desk(layout)
    first, second = (desk.page(title)["id"] for title in ("One", "Two"))
    write_note(desk.folder(), "relationships/r1.md", relationship_file("r1", str(first), str(second)))
    assert desk.call("records")["total"] == 3
    desk.close()
    make_format_4(layout.state_database)
    assert desk.call("records", {"kind": "page"})["total"] == 2
    found = desk.partition().catalogue.database.query("SELECT connected FROM page")
    desk.close()
    assert found == [(1,), (1,)]
    assert tables(layout.state_database) == tables(made_store.state_database)
    assert version(layout.root / "state.sqlite.format-4") == 4


@pytest.mark.parametrize(
    "point", ["schema.copy.stage", "schema.copy.sync", "schema.copy.place", "schema.forward.begin"]
)
def test_a_failure_on_the_way_changes_nothing_and_the_next_opening_tries_again(older: StoreLayout, point: str) -> None:
    def full(reached: str) -> None:
        if reached == point:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with faults.installed(full), pytest.raises(StorageError):
        Desk(older).call("status")
    assert version(older.state_database) == 1
    desk = Desk(older)
    assert desk.call("records")["total"] == 2
    desk.close()
    assert version(older.state_database) == SCHEMA_VERSION


def test_a_store_of_this_format_is_not_copied(made_store: StoreLayout, tmp_path: Path) -> None:
    layout = copy_store(made_store, tmp_path / "store")
    desk = Desk(layout)
    desk.call("status")
    desk.close()
    assert not list(layout.root.glob("*.format-*"))

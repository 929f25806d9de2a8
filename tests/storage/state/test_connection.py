"""The connection: its settings, its transactions, its errors, its thread."""

from __future__ import annotations

import errno
import threading
from collections.abc import Iterator
from pathlib import Path

import apsw
import pytest

from messages.errors import Busy, StorageError, StoreUnavailable
from storage import faults
from storage.state.connection import CommitUncertain, Database, StorageCorrupt


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "some.sqlite"


@pytest.fixture
def db(path: Path) -> Iterator[Database]:
    opened = Database.open(path, point_prefix="state", create=True)
    with opened.transaction(full=True, point="test"):
        opened.execute("CREATE TABLE t (x INTEGER UNIQUE) STRICT")
    yield opened
    opened.close()


def rows(db: Database) -> list[int]:
    return [row[0] for row in db.query("SELECT x FROM t ORDER BY x")]


def fail_at(point: str) -> faults.Handler:
    def handler(name: str) -> None:
        if name == point:
            raise OSError(errno.EIO, "injected")

    return handler


@pytest.mark.parametrize(
    ("pragma", "value"),
    [
        ("journal_mode", "wal"),
        ("wal_autocheckpoint", 0),
        ("foreign_keys", 1),
        ("secure_delete", 1),
        ("trusted_schema", 0),
        ("cell_size_check", 1),
    ],
)
def test_every_database_has_the_settings_that_we_rely_on(db: Database, pragma: str, value: object) -> None:
    assert db.query_one(f"PRAGMA {pragma}") == (value,)


def test_a_statement_is_not_planned_again_for_another_value(db: Database) -> None:
    """SQLite does so by itself where it compared a parameter with the condition of a partial index."""
    with db.transaction(full=False, point="test"):
        db.execute("CREATE TABLE u (a INTEGER, b TEXT) STRICT")
        db.execute("CREATE INDEX some ON u(a, b) WHERE b <> ''")
    asked: list[int] = []

    def allow(*operation: object) -> int:
        asked.append(1)
        return apsw.SQLITE_OK

    db._connection.authorizer = allow  # called while a statement is planned
    sql = "SELECT a, b FROM u WHERE a = ? AND b = ? ORDER BY a"
    db.query(sql, (1, "x"))
    planned = len(asked)
    assert planned
    for value in range(5):
        db.query(sql, (value, f"value {value}"))
    assert len(asked) == planned


def test_as_many_statements_as_a_store_s_tools_use_are_prepared_once(db: Database) -> None:
    statements = [f"SELECT x FROM t WHERE x = ? AND {number} = {number}" for number in range(400)]
    for statement in statements:
        db.query(statement, (1,))
    before = db._connection.cache_stats()["misses"]
    for statement in statements:
        db.query(statement, (2,))
    assert db._connection.cache_stats()["misses"] == before


def test_full_is_the_durable_commit_and_normal_the_other(db: Database) -> None:
    for full, level in ((True, 2), (False, 1), (True, 2)):
        with db.transaction(full=full, point="test"):
            assert db.query_one("PRAGMA synchronous") == (level,)


def test_a_block_that_raises_leaves_nothing(db: Database) -> None:
    for error in (ValueError, KeyboardInterrupt):
        with pytest.raises(error), db.transaction(full=False, point="test"):
            db.execute("INSERT INTO t VALUES (1)")
            raise error
    assert rows(db) == []
    assert not db.in_transaction


@pytest.mark.parametrize("point", ["test.begin", "test.begin.after", "test.commit"])
def test_a_fault_before_the_commit_is_a_typed_error_and_leaves_nothing(db: Database, point: str) -> None:
    with faults.installed(fail_at(point)), pytest.raises(StorageError), db.transaction(full=True, point="test"):
        db.execute("INSERT INTO t VALUES (1)")
    assert rows(db) == []
    with db.transaction(full=True, point="test"):
        db.execute("INSERT INTO t VALUES (2)")
    assert rows(db) == [2]


def test_a_fault_from_the_commit_itself_is_uncertain(db: Database) -> None:
    with (
        faults.installed(fail_at("test.commit.after")),
        pytest.raises(CommitUncertain),
        db.transaction(full=True, point="test"),
    ):
        db.execute("INSERT INTO t VALUES (1)")
    assert rows(db) == [1]


def test_what_a_failed_roll_back_left_is_never_seen(db: Database) -> None:
    with (
        faults.installed(fail_at("state.rollback")),
        pytest.raises(ValueError),
        db.transaction(full=True, point="test"),
    ):
        db.execute("INSERT INTO t VALUES (1)")
        raise ValueError
    assert db.in_transaction
    with faults.installed(fail_at("state.rollback")), pytest.raises(StorageError):
        rows(db)
    assert rows(db) == []
    with db.transaction(full=False, point="test"):
        db.execute("INSERT INTO t VALUES (2)")
    assert rows(db) == [2]


def test_a_transaction_inside_a_transaction_is_a_defect(db: Database) -> None:
    with pytest.raises(RuntimeError), db.transaction(full=False, point="test"), db.transaction(full=False, point="in"):
        pass
    assert not db.in_transaction


def test_a_statement_in_an_unsuitable_state_stays_a_defect(db: Database) -> None:
    with pytest.raises(apsw.SQLError):
        db.query("SELECT nothing FROM nowhere")
    with pytest.raises(apsw.ConstraintError), db.transaction(full=False, point="test"):
        db.execute_many("INSERT INTO t VALUES (?)", [(1,), (1,)])
    assert rows(db) == []


def test_a_connection_refuses_every_other_thread(db: Database) -> None:
    caught: list[str] = []

    def other() -> None:
        for action in (lambda: db.query("SELECT 1"), lambda: db.execute("DELETE FROM t"), db.checkpoint):
            try:
                action()
            except RuntimeError as error:
                caught.append(str(error))

    thread = threading.Thread(target=other)
    thread.start()
    thread.join()
    assert len(caught) == 3


def test_a_database_that_another_connection_holds_is_busy(
    db: Database, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("storage.state.connection.BUSY_TIMEOUT_MS", 1)
    second = Database.open(path, point_prefix="state")
    with db.transaction(full=False, point="test"):
        with pytest.raises(Busy) as raised, second.transaction(full=False, point="test"):
            pass
    assert raised.value.retry == "safe"
    second.close()


def test_a_missing_database_is_unavailable_and_never_made(tmp_path: Path) -> None:
    with pytest.raises(StoreUnavailable):
        Database.open(tmp_path / "none.sqlite", point_prefix="state")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("content", [b"x" * 5000, b"SQLite format 3\0" + b"\xff" * 5000])
def test_a_file_that_is_no_database_is_corrupt(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "broken.sqlite"
    path.write_bytes(content)
    with pytest.raises(StorageCorrupt):
        Database.open(path, point_prefix="state")
    assert path.read_bytes() == content


def test_a_page_damaged_in_the_middle_is_corrupt_and_not_an_empty_result(db: Database, path: Path) -> None:
    with db.transaction(full=True, point="test"):
        db.execute_many("INSERT INTO t VALUES (?)", [(n,) for n in range(20_000)])
    db.checkpoint("TRUNCATE")
    db.close()
    data = bytearray(path.read_bytes())
    data[4096 * 3 : 4096 * 20] = b"\xa5" * (4096 * 17)
    path.write_bytes(data)
    again = Database.open(path, point_prefix="state")
    with pytest.raises(StorageCorrupt):
        again.query("SELECT count(*), sum(x) FROM t NOT INDEXED")
    again.close()


def test_a_full_database_is_a_typed_error_and_leaves_nothing(db: Database) -> None:
    pages = db.query_one("PRAGMA page_count")
    assert pages is not None
    db.query(f"PRAGMA max_page_count={pages[0]}")
    with pytest.raises(StorageError) as raised, db.transaction(full=True, point="test"):
        db.execute_many("INSERT INTO t VALUES (?)", [(n,) for n in range(20_000)])
    assert raised.value.fields["reason"] == "full"
    assert rows(db) == []


def test_a_reader_never_writes(db: Database, path: Path) -> None:
    reader = Database.open(path, point_prefix="state", read_only=True)
    with pytest.raises(StorageError) as raised:
        reader.execute("INSERT INTO t VALUES (1)")
    assert raised.value.fields["reason"] == "read_only"
    reader.close()
    assert rows(db) == []


def test_rows_can_be_stepped_without_holding_them_all(db: Database) -> None:
    with db.transaction(full=False, point="test"):
        db.execute_many("INSERT INTO t VALUES (?)", [(n,) for n in range(100)])
    assert next(db.iterate("SELECT x FROM t ORDER BY x DESC")) == (99,)
    assert db.query_one("SELECT x FROM t WHERE x = 100") is None


def test_deleted_text_does_not_survive_in_the_file(tmp_path: Path) -> None:
    path = tmp_path / "some.sqlite"
    db = Database.open(path, point_prefix="state", create=True)
    with db.transaction(full=True, point="test"):
        db.execute("CREATE TABLE note (text TEXT) STRICT")
        db.execute("INSERT INTO note VALUES (?)", ("a secret sentence " * 200,))
    db.checkpoint("TRUNCATE")
    assert b"a secret sentence" in path.read_bytes()
    with db.transaction(full=True, point="test"):
        db.execute("DELETE FROM note")
    db.checkpoint("TRUNCATE")
    assert b"a secret sentence" not in path.read_bytes()
    db.close()


def test_closing_twice_is_harmless(path: Path) -> None:
    db = Database.open(path, point_prefix="state", create=True)
    db.close()
    db.close()

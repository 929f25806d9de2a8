"""Stores as earlier versions left them."""

from __future__ import annotations

from pathlib import Path

import apsw

_LATER_TABLES = ("page", "degree", "body_link", "tie", "neighbour", "upload", "recovery_notice", "standing_index")
_LATER_INDEXES = (
    "citation_by_sha256",
    "record_by_moment",
    "record_by_update",
    "record_by_due",
    "record_by_long_moment",
    "history_recall",
)


def make_format_1(database: Path) -> None:
    """Make a closed ``state.sqlite`` what format 1 was: without uploads, links, degrees and notices."""
    connection = apsw.Connection(str(database))
    try:
        for index in _LATER_INDEXES:
            connection.execute(f"DROP INDEX {index}")
        for table in _LATER_TABLES:
            connection.execute(f"DROP TABLE {table}")
        connection.execute("PRAGMA user_version = 1")
    finally:
        connection.close()


def make_format_2(database: Path) -> None:
    """Make a closed ``state.sqlite`` what format 2 was: without notices and what format 3 lacks."""
    make_format_3(database)
    connection = apsw.Connection(str(database))
    try:
        connection.execute("DROP TABLE recovery_notice")
        connection.execute("PRAGMA user_version = 2")
    finally:
        connection.close()


def make_format_3(database: Path) -> None:
    """Make a closed ``state.sqlite`` what format 3 was: format 4 without the index of approvals."""
    make_format_4(database)
    connection = apsw.Connection(str(database))
    try:
        connection.execute("DROP INDEX history_recall")
        connection.execute("PRAGMA user_version = 3")
    finally:
        connection.close()


def make_format_4(database: Path) -> None:
    """Make a closed ``state.sqlite`` what format 4 was: without standing indexes, and no ties but links."""
    connection = apsw.Connection(str(database))
    try:
        for table in ("standing_index", "tie", "neighbour"):
            connection.execute(f"DROP TABLE {table}")
        connection.execute("DROP INDEX page_by_connected")
        for column in ("id", "connected"):
            connection.execute(f"ALTER TABLE page DROP COLUMN {column}")
        connection.execute("DROP INDEX record_by_kind")
        connection.execute("CREATE INDEX record_by_kind ON record(partition, kind, type, lifecycle)")
        connection.execute("PRAGMA user_version = 4")
    finally:
        connection.close()

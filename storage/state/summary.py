"""Counts that status and history show: how much there is, without reading it."""

from __future__ import annotations

from messages.vocabulary import Partition
from storage.state.connection import Database


def unsettled_counts(db: Database, partition: Partition) -> tuple[int, int]:
    """Publications of a partition that are not finished, and those that ended in a conflict."""
    row = db.query_one(
        "SELECT coalesce(sum(p.state IN ('pending', 'rolling_back')), 0), coalesce(sum(p.state = 'conflict'), 0) "
        "FROM publication p JOIN partition r ON r.id = p.partition WHERE r.key = ?",
        (partition.key,),
    )
    return (0, 0) if row is None else (int(row[0]), int(row[1]))


def history_count(db: Database, partition: Partition, record_id: str | None) -> int:
    """How many rows history has, of one record or of the whole partition."""
    where, parameters = "r.key = ?", [partition.key]
    if record_id is not None:
        where, parameters = "r.key = ? AND h.record_id = ?", [partition.key, record_id]
    row = db.query_one(
        f"SELECT count(*) FROM history h JOIN partition r ON r.id = h.partition WHERE {where}", parameters
    )
    return 0 if row is None else int(row[0])

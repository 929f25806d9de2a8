"""``prompt.build`` in the lane: the session's standing index.

The first turn of a session chooses it, normally from the catalogue, which is then the state at the session's start;
every later turn gets the same bytes, from what was kept or derived from history again. Nothing here costs more than a
bounded number of rows: what needs more is derived off the lane.

Source: memory-provider.md (Knowledge index), decisions.md section 5 (Standing index).
"""

from __future__ import annotations

from typing import Final

from actors.store.needs import NeedStanding
from actors.store.operations.context import OperationContext, Outcome
from actors.store.operations.standing_index import Moment, derive, keep_index, standing_index
from messages.provider import PromptBuildRequest
from messages.vocabulary import PRIVATE
from storage.standing import kept, later_changes
from storage.state.standing import TooMany

ROWS_MOST: Final = 10_000
"""Rows that one query of an index may need in the lane."""
CHANGES_MOST: Final = 1_000
"""Changes since the session's start that the lane looks through, and takes back where the partition is small."""
SMALL_PARTITION: Final = 2_000


def prompt_build(context: OperationContext, request: PromptBuildRequest) -> Outcome:
    """``{"index": text or null}``; null outside the owner's partition."""
    if context.partition != PRIVATE:
        return {"index": None}
    started_at_ms = request.started_at_ms
    db = context.catalogue.database
    known = kept(db, context.partition, started_at_ms)
    if known is not None:
        return {"index": known.body}
    # A session that is still to begin is one that begins now: what is kept of it stays.
    at_ms = min(started_at_ms, context.now_ms)
    later = later_changes(db, context.partition, at_ms, CHANGES_MOST)
    session = context.session
    if later == 0:
        moment = Moment(context.catalogue, session.load, session.ontology, at_ms, ROWS_MOST)
        try:
            body = standing_index(moment)
        except TooMany:
            return NeedStanding(started_at_ms, at_ms)
    elif later is not None and session.catalogue.record_count() <= SMALL_PARTITION:
        body = derive(session.store.layout.state_database, context.partition, session.ontology, at_ms, context.check)
    else:
        return NeedStanding(started_at_ms, at_ms)
    keep_index(session.store.publisher, context.partition, started_at_ms, body)
    return {"index": body}

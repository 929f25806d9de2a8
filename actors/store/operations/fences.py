"""The revision and hash that fence a write to one record (tools.md, Agent response shapes)."""

from __future__ import annotations

from actors.store.operations.context import OperationContext
from messages.errors import Ambiguous, InvalidArgument, NotFound, StaleFence
from messages.vocabulary import RecordKind
from storage.state.catalogue_reader import Entry


def fenced_target(
    context: OperationContext,
    record_id: str,
    expected_revision: int | None,
    expected_hash: str | None,
    *,
    kind: RecordKind | None = None,
) -> Entry:
    """The active record of an id at exactly the revision and hash that the caller read.

    The hash may be a lower-case prefix of at least 16 characters. Raises ``NotFound``, ``Ambiguous``,
    ``InvalidArgument`` for a record that cannot be edited so, and ``StaleFence`` with the current fences.
    """
    found = context.catalogue.by_id(record_id)
    if not found:
        raise NotFound("No record with this id is in this partition; look it up again.", field="id", id=record_id)
    if len(found) > 1:
        raise Ambiguous(
            "Several files carry this id, so none of them is edited; a person must give one another id.",
            field="id",
            id=record_id,
            paths=[entry.path for entry in found[:10]],
        )
    entry = found[0]
    if kind is not None and entry.kind != kind:
        raise InvalidArgument(f"id names a {entry.kind}, not a {kind}.", field="id", reason="wrong_kind", allowed=kind)
    if entry.lifecycle != "active":
        raise InvalidArgument(
            f"The {entry.kind} is {entry.lifecycle} and is not edited.",
            field="id",
            reason="not_active",
            lifecycle=entry.lifecycle,
            mergedInto=entry.merged_into or None,
        )
    if context.session.parsed(entry).read_only:
        raise InvalidArgument(
            "The record was written by a newer version and is read only here.", field="id", reason="newer_format"
        )
    if entry.revision != expected_revision or not entry.hash.startswith(expected_hash or "-"):
        raise StaleFence(
            "The record has changed since it was read. Read it again, reconcile, and send a new request.",
            id=entry.id,
            revision=entry.revision,
            hash=entry.hash,
        )
    return entry

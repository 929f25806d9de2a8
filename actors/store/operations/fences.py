"""The revision and hash that fence a write to one record (tools.md, Agent response shapes)."""

from __future__ import annotations

from actors.store.operations.context import OperationContext
from messages.errors import Ambiguous, InvalidArgument, NotFound, StaleFence
from messages.vocabulary import Lifecycle, RecordKind
from storage.state.catalogue_reader import Entry


def fenced_target(
    context: OperationContext,
    record_id: str,
    expected_revision: int | None,
    expected_hash: str | None,
    *,
    kind: RecordKind | None = None,
    lifecycle: Lifecycle = "active",
    at: str = "",
) -> Entry:
    """The record of an id, active unless said otherwise, at exactly the revision and hash that the caller read.

    The hash may be a lower-case prefix of at least 16 characters; ``at`` is the path of the fence in the request.
    Raises ``NotFound``, ``Ambiguous``, ``InvalidArgument`` for a record that cannot be edited so, and ``StaleFence``
    with the current fences.
    """
    field = f"{at}id"
    found = context.catalogue.by_id(record_id)
    if not found:
        raise NotFound("No record with this id is in this partition; look it up again.", field=field, id=record_id)
    if len(found) > 1:
        raise Ambiguous(
            "Several files carry this id, so none of them is edited; a person must give one another id.",
            field=field,
            id=record_id,
            paths=[entry.path for entry in found[:10]],
        )
    entry = found[0]
    if kind is not None and entry.kind != kind:
        raise InvalidArgument(
            f"{field} names a {entry.kind}, not a {kind}.", field=field, reason="wrong_kind", allowed=kind
        )
    if entry.lifecycle != lifecycle:
        raise InvalidArgument(
            f"The {entry.kind} is {entry.lifecycle}; only one that is {lifecycle} is changed so.",
            field=field,
            reason=f"not_{lifecycle}",
            lifecycle=entry.lifecycle,
            mergedInto=entry.merged_into or None,
        )
    if context.session.parsed(entry).read_only:
        raise InvalidArgument(
            "The record was written by a newer version and is read only here.", field=field, reason="newer_format"
        )
    if entry.revision != expected_revision or not entry.hash.startswith(expected_hash or "-"):
        raise StaleFence(
            "The record has changed since it was read. Read it again, reconcile, and send a new request.",
            field=field,
            id=entry.id,
            revision=entry.revision,
            hash=entry.hash,
        )
    return entry

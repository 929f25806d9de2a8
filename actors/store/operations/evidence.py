"""Evidence that a write cites: retained in this partition, and verified off the lane before it counts."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence

from actors.store.needs import CitationKey
from actors.store.operations.context import OperationContext
from messages.errors import EvidenceInvalid
from messages.tools import EvidenceArgument
from storage.evidence import unchanged
from storage.records import EvidenceCitation, citation_value
from storage.state import uploads
from storage.state.uploads import Upload


def attached(
    context: OperationContext, arguments: Sequence[EvidenceArgument], *, field: str = "attachments"
) -> tuple[EvidenceCitation, ...]:
    """The citations that the arguments of a field stand for, completed from the source's own descriptor.

    A finished upload may be cited as well as a source that a record cites already. Each is in the place of its
    argument, repeats included: :func:`with_added` leaves them out. Raises ``EvidenceInvalid`` for a file that nothing
    in this partition retains under that hash.
    """
    return tuple(_citation(context, argument, f"{field}[{index}]") for index, argument in enumerate(arguments))


def with_added(
    citations: Sequence[EvidenceCitation], added: Iterable[EvidenceCitation]
) -> tuple[EvidenceCitation, ...]:
    """A record's citations and those that it has not, each of these once, in their order."""
    kept = list(citations)
    known = {identity(citation) for citation in kept}
    for citation in added:
        name = identity(citation)
        if name not in known:
            known.add(name)
            kept.append(citation)
    return tuple(kept)


def identity(citation: EvidenceCitation) -> str:
    """The same for two citations exactly when they are equal: a page may have thousands, and each is compared."""
    return json.dumps(citation_value(citation), sort_keys=True)


def unverified(
    context: OperationContext, citations: Sequence[EvidenceCitation], *, field: str = "attachments"
) -> tuple[EvidenceCitation, ...]:
    """Those whose verification has still to be asked for; raises ``EvidenceInvalid`` for one that failed it."""
    missing: list[EvidenceCitation] = []
    for index, citation in enumerate(citations):
        verdict = context.prepared.verdicts.get(CitationKey.of(citation))
        root = context.session.root_fd
        if verdict is None or root is None or not (verdict.problem or unchanged(citation, verdict, root)):
            missing.append(citation)
        elif verdict.problem is not None:
            place = f"{field}[{index}]"
            raise EvidenceInvalid(f"{place}: {verdict.message}", field=place, reason=verdict.problem)
    return tuple(missing)


def _citation(context: OperationContext, argument: EvidenceArgument, place: str) -> EvidenceCitation:
    descriptor = _descriptor(context, argument)
    if descriptor is None:
        raise EvidenceInvalid(
            f"{place} names no source that is retained here under this hash.",
            field=place,
            reason="not_retained",
        )
    return EvidenceCitation(
        path=argument.path,
        sha256=argument.sha256,
        attribution=argument.attribution or descriptor.attribution,
        filename=descriptor.filename or argument.filename,
        media_type=descriptor.media_type or argument.media_type,
        size=descriptor.size if descriptor.size is not None else argument.size,
        start_line=argument.start_line,
        end_line=argument.end_line if argument.end_line is not None else argument.start_line,
        quote=argument.quote,
    )


def _descriptor(context: OperationContext, argument: EvidenceArgument) -> EvidenceCitation | Upload | None:
    """How the source is described: by the upload that retained it, else by a record that cites it already.

    Several uploads may have given the same bytes; then the one that the argument describes is meant, else the first.
    """
    database = context.catalogue.database
    uploaded = uploads.descriptors(database, context.partition, argument.path, argument.sha256)
    if uploaded:
        return max(uploaded, key=lambda upload: _likeness(upload, argument))  # the first of equals
    for entry in context.catalogue.citing(argument.path, argument.sha256):
        for citation in context.session.load(entry).evidence:
            if (citation.path, citation.sha256) == (argument.path, argument.sha256):
                return citation
    return None


def _likeness(upload: Upload, argument: EvidenceArgument) -> int:
    """How many of the descriptor's members the argument repeats."""
    return (
        2 * (upload.filename == argument.filename)
        + (upload.media_type == argument.media_type)
        + (upload.attribution == argument.attribution)
    )

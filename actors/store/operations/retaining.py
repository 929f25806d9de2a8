"""What both ways of attaching a source share: who may use a request id, and how a complete source is retained."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from actors.store.needs import CitationKey, NeedEvidence
from actors.store.operations.context import OperationContext, Outcome
from messages.errors import RequestIdReused, StorageError
from messages.tools import Descriptor, attached_response
from storage.evidence import Shelf, Staged, note, retained_name, unchanged
from storage.files import UnsafeFile
from storage.layout import artifact_folder
from storage.publication.store import reported
from storage.records import EvidenceCitation
from storage.state import journal, uploads
from storage.state.uploads import Upload

_REUSED: Final = "This requestId was used for something else; send a new UUID for a new source."


def shelf_of(context: OperationContext, request_id: str) -> Shelf:
    """The folder of a request in this partition."""
    return Shelf(context.session.store.publisher.root_fd, context.partition, request_id)


def find_upload(context: OperationContext, request_id: str) -> Upload | None:
    """The upload of a request; raises ``RequestIdReused`` for the id of a publication."""
    database = context.catalogue.database
    found = uploads.find(database, context.partition, request_id)
    if found is None and journal.by_request(database, context.partition, request_id) is not None:
        raise RequestIdReused(_REUSED, field="requestId", requestId=request_id)
    return found


def reused(request_id: str, field: str, reason: str, message: str, *, received: int | None = None) -> RequestIdReused:
    """The refusal of a call that does not repeat what its request began with."""
    if received is None:
        return RequestIdReused(message, field=field, reason=reason, requestId=request_id)
    return RequestIdReused(message, field=field, reason=reason, requestId=request_id, received=received)


def final_name(upload: Upload) -> str:
    """The name that the source gets in its folder."""
    return retained_name(upload.filename)


def is_still(context: OperationContext, request_id: str, staged: Staged) -> bool:
    """Whether a complete source of a request is the one that was hashed."""
    with reported("look at the received bytes"):
        return shelf_of(context, request_id).is_still(staged)


def retain(context: OperationContext, upload: Upload, staged: Staged) -> Outcome:
    """Make a complete source citable, and answer with its descriptor.

    Bytes that this partition retains already are not kept twice: the answer names the existing file, once it was
    verified, and the descriptor is the request's own.
    """
    shelf = shelf_of(context, upload.request_id)
    own = f"{artifact_folder(upload.request_id)}/{final_name(upload)}"
    existing = None if staged.name == final_name(upload) else _existing(context, staged.sha256, own)
    if isinstance(existing, NeedEvidence):
        return existing
    done = replace(
        upload,
        received=staged.size,
        size=staged.size,
        sha256=staged.sha256,
        path=existing or own,
        at=context.now_ms * 1_000_000,
    )
    # The name too: it is what a reader of the vault sees, and must not follow a revocation.
    with context.fence():
        context.check()
        if existing is None:
            _place(context, shelf, staged, final_name(upload), own)
        note(context.session.store.publisher, context.partition, done, check=context.check)
    return attached(context, done)


def _place(context: OperationContext, shelf: Shelf, staged: Staged, name: str, own: str) -> None:
    """Give a complete source its name. Raises ``StorageError`` where it cannot have it."""
    with reported("retain the source"):
        try:
            shelf.place(context.session.store.publisher.can, staged, name)
        except UnsafeFile as unsafe:
            raise StorageError(
                "The source was replaced by something that is no plain file; repeat the call, or attach under a "
                "new requestId.",
                reason=unsafe.reason,
                path=own,
            ) from None
        except FileExistsError:
            raise StorageError(
                "Another file has the name that the source is to get; remove it, or attach under a new requestId.",
                reason="taken",
                path=own,
            ) from None


def attached(context: OperationContext, upload: Upload) -> Outcome:
    """The answer of a retained source, the same at every repeat."""
    assert upload.path is not None
    if not upload.path.startswith(artifact_folder(upload.request_id)):
        shelf_of(context, upload.request_id).tidy()
    assert upload.sha256 is not None
    assert upload.size is not None
    return attached_response(
        Descriptor(
            path=upload.path,
            sha256=upload.sha256,
            size=upload.size,
            filename=upload.filename,
            media_type=upload.media_type,
            attribution=upload.attribution,
        )
    )


def _existing(context: OperationContext, sha256: str, own: str) -> str | NeedEvidence | None:
    """Another retained file with these bytes that holds, or the need to find that out."""
    root = context.session.root_fd
    others = [
        EvidenceCitation(path=path, sha256=sha256)
        for path in uploads.retained(context.catalogue.database, context.partition, sha256)
        if path != own
    ]
    if root is None or not others:
        return None
    verdicts = context.prepared.verdicts
    missing = tuple(other for other in others if CitationKey.of(other) not in verdicts)
    if missing:
        return NeedEvidence(missing, excerpts=False)
    for other in others:
        verdict = verdicts[CitationKey.of(other)]
        if verdict.problem is None and unchanged(other, verdict, root):
            return other.path
    return None

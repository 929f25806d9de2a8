"""``knowledge_attach``: an original, chunk by chunk (tools.md, Attachments).

How far an upload has come is a row beside its file, so that it goes on after a crash and in another session. The bytes
of a chunk are synced before the row says so: the row is never ahead of the file.
"""

from __future__ import annotations

from dataclasses import replace

from actors.store.needs import NeedSource
from actors.store.operations.context import OperationContext, Outcome, check_fences
from actors.store.operations.retaining import attached, final_name, find_upload, is_still, retain, reused, shelf_of
from actors.store.sources import HashUpload
from messages.errors import InvalidArgument, StorageError
from messages.tools import AttachRequest, payload_hash, received_response
from storage.evidence import PARTIAL_NAME, note
from storage.files import UnsafeFile
from storage.publication.store import reported
from storage.state.uploads import Upload


def attach(context: OperationContext, request: AttachRequest) -> Outcome:
    """Take the next chunk, or a repeated one; with the last, retain the source."""
    found = find_upload(context, request.request_id)
    upload = _begun(context, request) if found is None else found
    if found is not None:
        _require_same(found, request)
        if found.path is None:
            upload = _as_on_disk(context, found)
    chunk = request.chunk
    if request.offset > upload.received:
        raise InvalidArgument(
            f"offset leaves a gap: {upload.received} bytes were received. Go on there.",
            field="offset",
            reason="gap",
            received=upload.received,
            allowed=f"{upload.received}, or an earlier chunk again",
        )
    fresh = request.offset == upload.received and upload.size is None
    if fresh and (chunk or request.final):
        upload = _take(context, request, upload, chunk)
    else:
        _require_repeat(context, request, upload, chunk)
        if request.final and upload.size is None:
            # Nothing is added, but what a failed write left behind these bytes is cut off.
            upload = _take(context, request, upload, b"")
    if not request.final:
        return received_response(upload.received)
    return _end(context, upload)


def _begun(context: OperationContext, request: AttachRequest) -> Upload:
    return Upload(
        request_id=request.request_id,
        operation="attach",
        payload_hash=payload_hash(_without_chunk(request)),
        actor=context.agent,
        filename=request.filename,
        media_type=request.media_type,
        attribution=request.attribution,
    )


def _without_chunk(request: AttachRequest) -> AttachRequest:
    """What every call of an upload repeats."""
    same = {"offset": 0, "data": "", "final": True, "expected_vault_id": None, "expected_ontology_fingerprint": None}
    return request.model_copy(update=same)


def _require_same(upload: Upload, request: AttachRequest) -> None:
    if upload.operation != "attach":
        raise reused(
            request.request_id, "requestId", "other_tool",
            "This requestId belongs to a knowledge_attach_file; send a new UUID for a new source.",
        )  # fmt: skip
    given = {"filename": request.filename, "mediaType": request.media_type, "attribution": request.attribution}
    kept = {"filename": upload.filename, "mediaType": upload.media_type, "attribution": upload.attribution}
    changed = next((name for name in given if given[name] != kept[name]), None)
    if changed is not None:
        raise reused(
            request.request_id, changed, "changed",
            f"{changed} is not what this upload began with; repeat it unchanged, or begin anew with a new requestId.",
        )  # fmt: skip


def _as_on_disk(context: OperationContext, upload: Upload) -> Upload:
    """The upload as its file is: what somebody took away from it has to be sent again."""
    shelf = shelf_of(context, upload.request_id)
    with reported("look at the received bytes"):
        shelf.mend(final_name(upload))
        size = shelf.size_of(PARTIAL_NAME)
        if size is None and upload.size is not None:
            size = shelf.size_of(final_name(upload))
    if size is not None and size >= upload.received:
        return upload
    return replace(upload, received=size or 0, size=None)


def _take(context: OperationContext, request: AttachRequest, upload: Upload, chunk: bytes) -> Upload:
    """Write a new chunk behind what was received, synced, and commit how far the upload has come.

    All of it under the commit fence: once a revocation has returned, no byte of an upload is kept either.
    """
    _require_writable(context, request)
    end = upload.received + len(chunk)
    size = end if request.final else None
    noted = replace(upload, received=end, size=size, at=context.now_ms * 1_000_000)
    with context.fence():
        with reported("keep the chunk"):
            try:
                shelf_of(context, request.request_id).write_chunk(chunk, upload.received)
            except UnsafeFile as unsafe:
                raise InvalidArgument(
                    "The received file was replaced by something that is no plain file; begin anew with a new "
                    "requestId.",
                    field="requestId",
                    reason=unsafe.reason,
                ) from None
        note(context.session.store.publisher, context.partition, noted, check=context.check)
    return noted


def _require_writable(context: OperationContext, request: AttachRequest) -> None:
    if context.blocked is not None:
        raise context.blocked
    check_fences(context, request)
    context.check()


def _require_repeat(context: OperationContext, request: AttachRequest, upload: Upload, chunk: bytes) -> None:
    """The chunk is one that was received, byte for byte."""
    end = request.offset + len(chunk)
    if end > upload.received or _received(context, upload, request.offset, len(chunk)) != chunk:
        raise reused(
            request.request_id, "data", "other_chunk",
            "These bytes are not kept at this offset: others were received, or the file was changed or removed since. "
            "Repeat the chunk unchanged, or begin anew with a new requestId.",
            received=upload.received,
        )  # fmt: skip
    if request.final and end != upload.received:
        raise reused(
            request.request_id, "final", "not_last",
            f"This chunk is not the last one: {upload.received} bytes were received.", received=upload.received,
        )  # fmt: skip


def _received(context: OperationContext, upload: Upload, offset: int, size: int) -> bytes | None:
    """Bytes that were received earlier, wherever they lie now."""
    if not size:
        return b""
    with reported("read the received bytes again"):
        if upload.path is not None:
            _, request_id, name = upload.path.split("/")
            return shelf_of(context, request_id).received(name, size, offset)
        shelf = shelf_of(context, upload.request_id)
        partial = shelf.received(PARTIAL_NAME, size, offset)
        return shelf.received(final_name(upload), size, offset) if partial is None else partial


def _end(context: OperationContext, upload: Upload) -> Outcome:
    if upload.path is not None:
        return attached(context, upload)
    assert upload.size is not None
    complete = context.prepared.complete
    if complete is None:
        return NeedSource(HashUpload(context.partition, upload.request_id, final_name(upload), upload.size))
    if complete.staged is None or not is_still(context, upload.request_id, complete.staged):
        raise StorageError(
            "The received file was changed outside; repeat the call, or begin anew with a new requestId.",
            reason="changed",
        )
    return retain(context, upload, complete.staged)

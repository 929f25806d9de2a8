"""``knowledge_attach_file``: a file of the host's workspace (knowledge-more-facts.md section 4).

Nothing is noted before the copy is complete: a call that fails leaves nothing, and is repeated unchanged.
"""

from __future__ import annotations

from actors.store.needs import NeedSource
from actors.store.operations.context import OperationContext, Outcome, check_fences, require_private
from actors.store.operations.retaining import attached, find_upload, is_still, retain, reused, shelf_of
from actors.store.sources import CopyFile
from messages.errors import InvalidArgument, KnowledgeError
from messages.tools import AttachFileRequest, payload_hash
from storage.evidence import Staged, retained_name
from storage.state.uploads import Upload


def attach_file(context: OperationContext, request: AttachFileRequest) -> Outcome:
    """Copy the file off the lane, then retain it."""
    complete = context.prepared.complete
    staged = None if complete is None else complete.staged
    try:
        outcome = _attach(context, request, staged)
    except KnowledgeError:
        if staged is not None:
            shelf_of(context, request.request_id).discard(staged)
        raise
    if staged is not None and isinstance(outcome, dict):
        # Answered with another file: an identical call was faster, or the bytes are retained already.
        shelf_of(context, request.request_id).discard(staged)
    return outcome


def _attach(context: OperationContext, request: AttachFileRequest, staged: Staged | None) -> Outcome:
    payload = payload_hash(request)
    found = find_upload(context, request.request_id)
    if found is not None:
        if (found.operation, found.payload_hash) != ("attach_file", payload):
            raise reused(
                request.request_id, "requestId", "changed",
                "This requestId was used for another source; repeat the identical call, or send a new UUID.",
            )  # fmt: skip
        return attached(context, found)
    if context.blocked is not None:
        raise context.blocked
    require_private(
        context,
        "knowledge_attach_file is for the owner's private memory; in a conversation send the bytes with "
        "knowledge_attach.",
        reason="private_only",
    )
    check_fences(context, request)
    workspace = context.workspace()
    if workspace is None or not workspace.is_absolute():
        raise InvalidArgument(
            "This host has given no workspace, so no file of it can be attached; send the bytes with knowledge_attach.",
            field="filePath",
            reason="no_workspace",
            allowed="nothing before the configuration has an absolute workspace",
        )
    if staged is None or not is_still(context, request.request_id, staged):
        return NeedSource(
            CopyFile(
                context.partition,
                request.request_id,
                workspace,
                request.file_path,
                request.sha256,
                retained_name(request.filename),
            )
        )
    upload = Upload(
        request_id=request.request_id,
        operation="attach_file",
        payload_hash=payload,
        actor=context.agent,
        filename=request.filename,
        media_type=request.media_type,
        attribution=request.attribution,
        received=staged.size,
    )
    return retain(context, upload, staged)

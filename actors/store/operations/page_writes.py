"""What every write of one page's bytes shares: its size, its line ends, its publication."""

from __future__ import annotations

from actors.store.operations.context import OperationContext, Outcome, fixed_receipt, publish
from messages.errors import LimitExceeded
from messages.tools import WriteRequest, tool_spec
from messages.vocabulary import RECORD_MAX_BYTES
from storage.publication import FileChange
from storage.records import Record, content_hash


def publish_page(
    context: OperationContext,
    request: WriteRequest,
    path: str,
    before: str | None,
    data: bytes,
    record: Record,
    at_ms: int,
) -> Outcome:
    """Publish one page's complete bytes. Raises ``LimitExceeded`` for a record over 5,000,000 bytes."""
    if len(data) > RECORD_MAX_BYTES:
        raise LimitExceeded(
            f"The complete record would have {len(data)} bytes, more than {RECORD_MAX_BYTES}.",
            field="body",
            reason="record_too_large",
            allowed=f"at most {RECORD_MAX_BYTES} UTF-8 bytes with its frontmatter",
        )
    operation = tool_spec(request.tool).operation
    receipt = fixed_receipt(
        context,
        operation,
        at_ms=at_ms,
        id=record.id,
        revision=record.revision,
        hash=content_hash(data),
        path=path,
    )
    change = FileChange(path, before, data, record.id, record.revision, "active")
    return publish(context, request, operation, (change,), receipt)


def in_line_ends_of(original: bytes, before: str, body: str) -> str:
    """A complete new body in the page's own line ends, ending with one as the page did before."""
    newline = "\r\n" if b"\r\n" in original else "\n"
    if newline == "\r\n" and "\r" not in body:
        body = body.replace("\n", "\r\n")
    ended = not before or before.endswith(("\n", "\r"))
    return body + newline if body and ended and not body.endswith(("\n", "\r")) else body

"""``knowledge adopt``: plain Markdown files of the private partition become pages, all of them or none.

One publication with its receipt, history and conflict rules like any other; nothing but the envelope is added.
Source: decisions.md section 2.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from actors.store.operations.context import (
    OperationContext,
    Outcome,
    earlier_receipt,
    fixed_receipt,
    next_instant,
    publish,
)
from messages.errors import InvalidArgument, LimitExceeded, StoreUnavailable
from messages.json_types import JsonObject
from messages.operator import AdoptNotesRequest
from messages.tools import payload_hash
from messages.vocabulary import RECORD_MAX_BYTES
from storage.ontology import validate_page
from storage.publication import FileChange
from storage.records import (
    Finding,
    ParsedRecord,
    Record,
    Scope,
    content_hash,
    format_instant,
    frontmatter_values,
    parse_record,
    path_key,
)
from storage.records.adoption import PlainNote, plain_note, with_envelope
from storage.state import history
from storage.state.catalogue import is_note
from storage.state.catalogue_reader import KnownFile
from storage.vault.naming import NamingProblem, Unnamed, locate

OPERATION: Final = "adopt"
PLAIN_TYPE: Final = "note"

_PROBLEMS: Final[dict[NamingProblem, str]] = {
    "outside": "does not lie in the private partition of this agent's vault",
    "missing": "does not exist",
    "symlink": "leads through a symbolic link; name the file itself",
    "hardlink": "has a second name (a hard link); make it a copy",
    "not_a_file": "is no regular file; name the files one by one",
}


@dataclass(frozen=True, slots=True)
class _Adopted:
    path: str
    before: str
    data: bytes
    record: Record


def adopt(context: OperationContext, request: AdoptNotesRequest) -> Outcome:
    """Add the envelope to every named file. Raises ``InvalidArgument`` with the first path that cannot be adopted."""
    earlier = earlier_receipt(context, request, OPERATION)
    if earlier is not None:
        return _complete(context, request, earlier)
    page_type = None if request.type is None else _known_type(context, request.type)
    recorded = next_instant(context)
    adopted: list[_Adopted] = []
    paths: set[str] = set()
    ids: set[str] = set()
    for index, named in enumerate(request.paths):
        context.check()
        field = f"paths[{index}]"
        path = _located(context, named, field)
        if path_key(path) in paths:
            continue  # named twice: one file, one envelope
        paths.add(path_key(path))
        one = _adopted(context, path, field, page_type, recorded + len(adopted))
        if one.record.id in ids:
            raise _refused(field, "key_conflict", "has the same `id` as another file of this call; rename the key")
        ids.add(one.record.id)
        adopted.append(one)
    changes = tuple(FileChange(a.path, a.before, a.data, a.record.id, 1, "active") for a in adopted)
    receipt = fixed_receipt(context, OPERATION, at_ms=recorded, items=[_item(one) for one in adopted])
    return _complete(context, request, publish(context, request, OPERATION, changes, receipt))


def _located(context: OperationContext, named: str, field: str) -> str:
    root_fd = context.session.root_fd
    if root_fd is None:
        raise StoreUnavailable("The partition's folder is not there.", reason="missing")
    try:
        path = locate(root_fd, named)
    except Unnamed as error:
        raise _refused(field, error.problem, _PROBLEMS[error.problem]) from None
    if not is_note(path):
        raise _refused(field, "not_a_note", "is no Markdown note (*.md outside artifacts/)")
    return path


def _adopted(context: OperationContext, path: str, field: str, page_type: str | None, recorded: int) -> _Adopted:
    known = context.catalogue.file(path)
    if known is None:
        raise _refused(field, "not_read", "is not read as a note here; `knowledge status` says why")
    if known.state != "broken":
        raise _refused(field, "already_a_record", "has an envelope already")
    original = _text(context, known)
    note = plain_note(original, path)
    if isinstance(note, Finding):
        raise _refused(field, note.code, f"cannot be adopted: {note.message}")
    if note.id is not None and context.catalogue.by_id(note.id):
        raise _refused(field, "key_conflict", "has the `id` of another record; rename the key")
    record = _record(context, path, field, note, page_type, recorded)
    data = with_envelope(original, frontmatter_values(record))
    if len(data) > RECORD_MAX_BYTES:
        raise LimitExceeded(
            f"{field} would have more than {RECORD_MAX_BYTES} bytes with its envelope.", field=field, path=path
        )
    _require_valid(context, path, field, data)
    return _Adopted(path, known.hash, data, record)


def _record(
    context: OperationContext, path: str, field: str, note: PlainNote, page_type: str | None, recorded: int
) -> Record:
    own = None if note.type is None else _known_type(context, note.type, field)
    if own is not None and page_type is not None and own != page_type:
        raise _refused(field, "key_conflict", f"says of itself that it is of the type {own}; rename its key `type`")
    at = format_instant(recorded)
    return Record(
        id=note.id or context.new_id(),
        kind="page",
        title=note.title,
        recorded_at=at,
        updated_at=at,
        scope=Scope(context.partition.kind, context.partition.session_id),
        type=own or page_type or context.session.ontology.classify(path) or PLAIN_TYPE,
    )


def _known_type(context: OperationContext, name: str, field: str = "type") -> str:
    """The canonical name of a page type that a page may have."""
    found = context.session.ontology.page_type(name)
    if found is None:
        raise _refused(field, "unknown_type", "names a page type that the ontology does not have")
    return found.name


def _require_valid(context: OperationContext, path: str, field: str, data: bytes) -> None:
    """What is published is a valid page: what its own keys say counts from now on."""
    parsed = parse_record(data, path)
    assert isinstance(parsed, ParsedRecord), "an envelope was added"
    found = [*parsed.findings, *_judged(context, parsed.record)]
    wrong = next((finding for finding in found if finding.severity == "error"), None)
    if wrong is not None:
        raise _refused(field, wrong.code, f"would be no valid page: `{wrong.field}`: {wrong.message}")


def _judged(context: OperationContext, record: Record) -> Sequence[Finding]:
    return validate_page(context.session.ontology, record.type, record.fields, lambda _: None)


def _text(context: OperationContext, known: KnownFile) -> bytes:
    text = history.text(context.session.store.publisher.db, known.hash)
    if text is None:
        # Seen and never read: too large, or no file that may be read.
        said = "The file is not read here; `knowledge status` says why."
        raise InvalidArgument(said, field="paths", reason="not_read")
    return text


def _item(one: _Adopted) -> JsonObject:
    return {
        "id": one.record.id,
        "revision": 1,
        "hash": content_hash(one.data),
        "path": one.path,
        "type": one.record.type,
    }


def _complete(context: OperationContext, request: AdoptNotesRequest, shown: JsonObject) -> JsonObject:
    """The complete receipt, which an operator sees, with what stands beside it."""
    found = context.session.store.publisher.lookup(
        context.partition, request.request_id, payload_hash(request), OPERATION
    )
    body = {} if found is None else found.body
    return {**body, **{key: value for key, value in shown.items() if key in ("state", "message", "git")}}


def _refused(field: str, reason: str, what: str) -> InvalidArgument:
    return InvalidArgument(f"{field} {what}.", field=field, reason=reason)

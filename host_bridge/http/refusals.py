"""How typed errors look over HTTP: a status for each code, and one JSON object.

``{"error": {"code", "message", "retry", ...}}`` everywhere but at ``/rpc``, where it is the error of JSON-RPC. The
status is for proxies and generic clients; what to do, ``code`` and ``retry`` say.

Source: decisions.md section 7 (codes).
"""

from __future__ import annotations

from collections.abc import Mapping
from html import escape
from types import MappingProxyType
from typing import Final

from host_bridge import jsonrpc
from messages.errors import KnowledgeError, Stopping
from messages.host import error_object
from messages.json_types import JsonObject

RETRY_AFTER_SECONDS: Final = 1

_STATUSES: Final = {
    400: "invalid_argument audience_missing short_hash vault_mismatch",
    401: "audience_stale",
    403: "denied sandboxed writes_disabled read_only_grant steward_required",
    404: "unknown_tool not_found",
    409: "store_ambiguous stale_fence ontology_changed request_id_reused ambiguous snapshot_changed reference_changed "
    "reference_foreign deletions_refused duplicate_identity vault_older_than_database database_older_than_vault "
    "checkpoint_conflict foreign_vault manifest_missing slug_mismatch not_supersedable supersedes_not_found "
    "quota_reached",
    413: "limit_exceeded",
    422: "evidence_invalid poison stance_required redaction_required",
    429: "busy",
    500: "internal",
    503: "store_unavailable store_opening publication_pending open_elsewhere restarting quarantined stopping cancelled "
    "index_unavailable scan_incomplete revocation_pending storage_error",
    504: "deadline",
    507: "partition_full",
}
STATUS_OF: Final[Mapping[str, int]] = MappingProxyType(
    {code: status for status, codes in _STATUSES.items() for code in codes.split()}
)
"""The HTTP status of every code that can leave a door."""


class Refused(Exception):
    """A refusal with a status of its own, raised by whatever looks at a request before its route answers."""

    def __init__(self, error: KnowledgeError, status: int) -> None:
        super().__init__(error.message)
        self.error = error
        self.status = status


def status_of(error: KnowledgeError) -> int:
    return STATUS_OF[error.code]


def headers_of(status: int) -> dict[str, str]:
    """What a status needs beside its body."""
    if status == 401:
        return {"WWW-Authenticate": 'Bearer realm="knowledge"'}
    if status in (429, 503):
        return {"Retry-After": str(RETRY_AFTER_SECONDS)}
    return {}


def error_json(error: KnowledgeError) -> JsonObject:
    """The body of a refusal outside of JSON-RPC."""
    facts = error.to_data()
    return {"error": {"code": facts.pop("code"), "message": error.message, **facts}}


def body_of(error: KnowledgeError, *, rpc: bool) -> bytes:
    """The body of a refusal that has no request of its own."""
    if rpc:
        return jsonrpc.dump({"jsonrpc": "2.0", "id": None, "error": error_object(error)})
    return jsonrpc.dump(error_json(error))


_PAGE: Final = """<!doctype html>
<html lang="en"><head><meta charset="utf-8"><title>Refused · Knowledge</title></head>
<body><h1>This was refused</h1>
<p>{message}</p>
<p><a href="/">Back to Knowledge</a></p>
<p>Code <code>{code}</code></p></body></html>
"""


def page_of(error: KnowledgeError) -> bytes:
    """The same for a person whose browser asked for a page. Without a ``main``: an open page that asks again what is
    new keeps what it shows."""
    return _PAGE.format(message=escape(error.message), code=escape(error.code)).encode()


def stopping() -> Stopping:
    return Stopping("The runtime is shutting down; the call did not run.")


__all__ = ["STATUS_OF", "Refused", "body_of", "error_json", "headers_of", "page_of", "status_of", "stopping"]

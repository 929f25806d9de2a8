"""Arguments of the tools for retained sources: what is refused, by name, and what chunks may be."""

from __future__ import annotations

import base64
from typing import Any

import pytest

from messages.errors import InvalidArgument, KnowledgeError, LimitExceeded
from messages.tools import AttachRequest, EvidenceReadRequest, parse_arguments
from tests.messages.tools.samples import ATTACH, ATTACH_FILE, HASH, PAGE_ID, RECONCILE, RETAINED

READ = {"id": PAGE_ID, "path": RETAINED, "sha256": HASH}


def refusal(tool: str, arguments: object) -> KnowledgeError:
    with pytest.raises(KnowledgeError) as caught:
        parse_arguments(f"knowledge_{tool}", arguments)
    return caught.value


def test_a_chunk_has_at_most_48_kib_decoded() -> None:
    for size in (1, 48 * 1024 - 1, 48 * 1024):
        data = b"\xff" * size
        request = parse_arguments("knowledge_attach", {**ATTACH, "data": base64.b64encode(data).decode()})
        assert isinstance(request, AttachRequest)
        assert request.chunk == data
    error = refusal("attach", {**ATTACH, "data": base64.b64encode(b"x" * (48 * 1024 + 1)).decode()})
    assert isinstance(error, LimitExceeded)
    assert error.fields["field"] == "data"


@pytest.mark.parametrize("data", ["x", "eA", "eA=", "eA==\n", "e A=", "eB==", "_-8=", "ÿÿÿÿ", 5, [], True])
def test_data_that_is_not_exactly_base64_is_refused(data: Any) -> None:
    error = refusal("attach", {**ATTACH, "data": data})
    assert isinstance(error, InvalidArgument)
    assert error.fields["field"] == "data"


@pytest.mark.parametrize(
    ("tool", "arguments", "field"),
    [
        *(("attach", {k: v for k, v in ATTACH.items() if k != name}, name) for name in ATTACH),
        *(("attach_file", {k: v for k, v in ATTACH_FILE.items() if k != name}, name) for name in ATTACH_FILE),
        *(("attachment", {k: v for k, v in READ.items() if k != name}, name) for name in READ),
        *(("evidence_read", {k: v for k, v in READ.items() if k != name}, name) for name in READ),
        *(("reconcile_evidence", {k: v for k, v in RECONCILE.items() if k != name}, name) for name in RECONCILE),
        ("attach", {**ATTACH, "data": "", "final": False}, "data"),
        ("attach", {**ATTACH, "offset": -1}, "offset"),
        ("attach", {**ATTACH, "offset": 2**53}, "offset"),
        *(("attach", {**ATTACH, "filename": name}, "filename") for name in ("a/b", "..", ".", "a\\b", "a\nb", "a\0")),
        *(("attach_file", {**ATTACH_FILE, "filename": name}, "filename") for name in ("../b", "a\u2028b", "")),
        ("attach", {**ATTACH, "mediaType": "a\nb"}, "mediaType"),
        ("attach", {**ATTACH, "path": "x"}, "path"),
        ("attach_file", {**ATTACH_FILE, "sha256": HASH[:16]}, "sha256"),
        ("attach_file", {**ATTACH_FILE, "filePath": "a\0b"}, "filePath"),
        ("attachment", {**READ, "path": "/etc/passwd"}, "path"),
        ("attachment", {**READ, "offset": -1}, "offset"),
        ("evidence_read", {**READ, "path": "artifacts/../x"}, "path"),
        ("evidence_read", {**READ, "maxChars": 255}, "maxChars"),
        ("evidence_read", {**READ, "maxChars": 3_001}, "maxChars"),
        ("evidence_read", {**READ, "startLine": 0}, "startLine"),
        ("evidence_read", {**READ, "startLine": 3, "endLine": 2}, "endLine"),
        ("reconcile_evidence", {**RECONCILE, "reason": " "}, "reason"),
        ("reconcile_evidence", {**RECONCILE, "evidence": [{"path": "x", "sha256": HASH}]}, "evidence[0].path"),
    ],
)
def test_a_bad_argument_is_named(tool: str, arguments: Any, field: str) -> None:
    error = refusal(tool, arguments)
    assert type(error) is InvalidArgument
    assert error.fields["field"] == field
    assert error.fields["reason"]


def test_max_chars_is_3000_by_default() -> None:
    request = parse_arguments("knowledge_evidence_read", READ)
    assert isinstance(request, EvidenceReadRequest)
    assert request.max_chars == 3_000

"""One full and one least call of every tool, as a careful model would send them."""

from __future__ import annotations

from typing import Final

from messages.json_types import JsonObject

REQUEST_ID: Final = "00000000-0000-4000-8000-000000000020"
VAULT_ID: Final = "11111111-1111-4111-8111-111111111111"
PAGE_ID: Final = "6f1c1b0e-6a0e-4b7e-9d4d-3f2d8f0a4c11"
HASH: Final = "0123456789abcdef" * 4

REMEMBER: Final[JsonObject] = {
    "requestId": REQUEST_ID,
    "attribution": "user in session 8f3a, 2026-10-19",
    "excerpt": "User: use option B, it ships sooner.",
    "items": [{"text": "Chose option B because it ships sooner.", "kind": "decision", "subject": "Garden Pilot"}],
}
SAVE_PAGE: Final[JsonObject] = {"requestId": REQUEST_ID, "title": "Garden Pilot", "type": "project", "body": ""}
EXTRACT_SECTION: Final[JsonObject] = {
    "requestId": REQUEST_ID,
    "expectedVaultId": VAULT_ID,
    "expectedOntologyFingerprint": HASH,
    "source": {"id": PAGE_ID, "expectedRevision": 89, "expectedHash": HASH},
    "sectionStart": 41_230,
    "destination": {"id": PAGE_ID, "expectedRevision": 3, "expectedHash": HASH[:16]},
    "summary": "Releases are cut weekly from main; details moved to their own page.",
    "reason": "OpenClaw is over its page budget.",
}

RETAINED: Final = f"artifacts/{REQUEST_ID}/notes.txt"
ATTACH: Final[JsonObject] = {
    "requestId": REQUEST_ID,
    "filename": "notes.txt",
    "mediaType": "text/plain",
    "attribution": "Alex, meeting",
    "offset": 0,
    "data": "b24gRnJpZGF5",
    "final": True,
}
ATTACH_FILE: Final[JsonObject] = {
    "requestId": REQUEST_ID,
    "filePath": "reports/q3.pdf",
    "sha256": HASH,
    "filename": "q3.pdf",
    "attribution": "Alex, meeting",
}
RECONCILE: Final[JsonObject] = {
    "requestId": REQUEST_ID,
    "id": PAGE_ID,
    "expectedRevision": 3,
    "expectedHash": HASH,
    "evidence": [{"path": RETAINED, "sha256": HASH, "start_line": 1}],
    "reason": "a better source",
}

SAMPLES: Final[tuple[tuple[str, JsonObject], ...]] = (
    ("knowledge_status", {}),
    ("knowledge_ontology", {}),
    (
        "knowledge_ontology",
        {"view": "definitions", "name": "project", "kind": "page", "includeRecords": True, "limit": 100, "offset": 10},
    ),
    ("knowledge_ontology", {"view": "sources", "sourcePath": "ontology.yaml", "offset": 5, "maxChars": 256}),
    ("knowledge_lookup", {"query": "Garden Pilot"}),
    (
        "knowledge_lookup",
        {
            "query": "a" * 200,
            "kind": "page",
            "type": "project",
            "tag": "x",
            "lifecycle": "all",
            "limit": 50,
            "offset": 1,
        },
    ),
    ("knowledge_grep", {"query": "option b"}),
    (
        "knowledge_grep",
        {
            "query": " ".join(["word"] * 64),
            "mode": "phrase",
            "kind": "claim",
            "type": "person",
            "tag": "t",
            "lifecycle": "superseded",
            "timeField": "due",
            "since": "2026",
            "until": "2027-01",
            "limit": 1,
            "offset": 500,
            "snapshot": "17",
        },
    ),
    ("knowledge_record", {"id": PAGE_ID}),
    (
        "knowledge_record",
        {"id": "a.b:c_d-1", "offset": 12_000, "maxChars": 48_000, "includeEvidence": True, "evidenceOffset": 20},
    ),
    ("knowledge_records", {}),
    (
        "knowledge_records",
        {
            "kind": "claim",
            "type": "person",
            "match": "gar",
            "origin": "user_belief",
            "lifecycle": "all",
            "timeField": "occurred",
            "since": "2026-09-20",
            "until": "2026-09-21",
            "limit": 100,
            "offset": 20,
            "snapshot": "17",
        },
    ),
    ("knowledge_connections", {"id": PAGE_ID}),
    (
        "knowledge_connections",
        {"id": PAGE_ID, "direction": "backlinks", "historical": True, "limit": 100, "offset": 20, "snapshot": "17"},
    ),
    ("knowledge_timeline", {}),
    (
        "knowledge_timeline",
        {
            "since": "2026-09-20T00:00:00+02:00",
            "until": "2027",
            "timeField": "due",
            "kind": "claim",
            "subject": "Garden Pilot",
            "owner": PAGE_ID,
            "claimKind": "commitment",
            "order": "asc",
            "limit": 100,
            "offset": 20,
            "snapshot": "17",
        },
    ),
    ("knowledge_chronicle_days", {"since": "2026-09", "until": "2026-10"}),
    ("knowledge_chronicle_day", {"date": "2028-02-29"}),
    ("knowledge_chronicle_day", {"date": "2026-09-20", "offset": 20}),
    ("knowledge_chronicle_due", {}),
    ("knowledge_chronicle_due", {"asOf": "2026-09", "horizonDays": 366}),
    ("knowledge_remember", REMEMBER),
    (
        "knowledge_remember",
        {
            **REMEMBER,
            "expectedVaultId": VAULT_ID,
            "expectedOntologyFingerprint": HASH,
            "items": [
                {
                    "text": "x" * 4_000,
                    "kind": "commitment",
                    "subject": PAGE_ID,
                    "about": "bundled plugin hot reload",
                    "origin": "user_belief",
                    "occurred_at": "2026",
                    "due_at": "2026-09-25",
                    "expires_at": "2027-01-01T00:00:00Z",
                    "infer_subject": False,
                }
            ]
            * 20,
        },
    ),
    ("knowledge_save_page", SAVE_PAGE),
    (
        "knowledge_save_page",
        {
            **SAVE_PAGE,
            "id": PAGE_ID,
            "expectedRevision": 3,
            "expectedHash": HASH[:16],
            "body": "# Garden Pilot\n" + "x" * 1_000,
            "aliases": ["GP"],
            "tags": [],
            "dependencies": [PAGE_ID],
            "fields": {"status": "active", "amount": 5, "contact": None},
            "attachments": [
                {
                    "path": f"artifacts/{REQUEST_ID}/notes.txt",
                    "sha256": HASH,
                    "size": 1_234,
                    "attribution": "Alex, meeting",
                    "filename": "notes.txt",
                    "media_type": "text/plain",
                    "start_line": 12,
                    "end_line": 12,
                    "quote": "on Friday",
                }
            ],
            "allowSameTitle": True,
            "expectedVaultId": VAULT_ID,
            "expectedOntologyFingerprint": HASH,
        },
    ),
    (
        "knowledge_recall",
        {"requestId": REQUEST_ID, "id": PAGE_ID, "expectedRevision": 1, "expectedHash": HASH, "summary": "Ships."},
    ),
    (
        "knowledge_recall",
        {
            "requestId": REQUEST_ID,
            "id": PAGE_ID,
            "expectedRevision": 3,
            "expectedHash": HASH[:16],
            "summary": "x" * 500,
            "triggers": ["release", "garden pilot"] * 10,
            "importance": 10,
            "projects": ["github.com/ana/garden"] * 20,
            "expectedVaultId": VAULT_ID,
            "expectedOntologyFingerprint": HASH,
        },
    ),
    (
        "knowledge_recall",
        {"requestId": REQUEST_ID, "id": PAGE_ID, "expectedRevision": 1, "expectedHash": HASH, "clear": True},
    ),
    ("knowledge_verify", {"ids": [PAGE_ID]}),
    ("knowledge_verify", {"expectedLinks": [{"from": PAGE_ID, "to": "a.b:c_d-1"}]}),
    (
        "knowledge_verify",
        {
            "ids": [PAGE_ID] * 100,
            "expectedLinks": [{"from": "a", "to": "b"}] * 200,
            "offset": 7,
            "snapshot": "private-17",
        },
    ),
    ("knowledge_source_check", {"sources": [{"key": "notes/a.md"}]}),
    (
        "knowledge_source_check",
        {
            "sources": [
                {"key": f"feed:{number}", "sha256": HASH, "size": number, "modified": "2026-09-20T10:00:00Z"}
                for number in range(200)
            ],
            "complete": True,
            "offset": 100,
            "snapshot": "private-17",
        },
    ),
    ("knowledge_extract_section", EXTRACT_SECTION),
    (
        "knowledge_extract_section",
        {
            **EXTRACT_SECTION,
            "destination": {"title": "Releases", "type": "project", "aliases": ["R"], "allowSameTitle": True},
            "evidence": [{"path": f"artifacts/{REQUEST_ID}/notes.txt", "sha256": HASH}],
        },
    ),
    ("knowledge_attach", ATTACH),
    ("knowledge_attach", {**ATTACH, "offset": 2**53 - 1, "data": "", "expectedVaultId": VAULT_ID}),
    ("knowledge_attach_file", ATTACH_FILE),
    ("knowledge_attach_file", {**ATTACH_FILE, "mediaType": "application/pdf", "expectedOntologyFingerprint": HASH}),
    ("knowledge_attachment", {"id": PAGE_ID, "path": RETAINED, "sha256": HASH}),
    ("knowledge_attachment", {"id": PAGE_ID, "path": RETAINED, "sha256": HASH, "offset": 32_768}),
    ("knowledge_evidence_read", {"id": PAGE_ID, "path": RETAINED, "sha256": HASH}),
    (
        "knowledge_evidence_read",
        {
            "id": PAGE_ID,
            "path": RETAINED,
            "sha256": HASH,
            "startLine": 1,
            "endLine": 9,
            "maxChars": 256,
            "cursor": "WzBd",
        },
    ),
    ("knowledge_reconcile_evidence", RECONCILE),
    (
        "knowledge_reconcile_evidence",
        {
            **RECONCILE,
            "expectedHash": HASH[:16],
            "evidence": [],
            "expectedVaultId": VAULT_ID,
            "expectedOntologyFingerprint": HASH,
        },
    ),
    ("knowledge_history", {}),
    ("knowledge_history", {"id": PAGE_ID, "limit": 100, "offset": 20}),
    ("knowledge_revision", {"id": PAGE_ID, "sequence": 1}),
    ("knowledge_revision", {"id": PAGE_ID, "sequence": 9, "offset": 5, "maxChars": 1_000}),
    ("knowledge_mutation", {"requestId": REQUEST_ID}),
    (
        "knowledge_mutation",
        {"requestId": REQUEST_ID, "fileOffset": 3, "contentField": "displaced", "charOffset": 7, "maxChars": 48_000},
    ),
    ("knowledge_mutation", {"requestId": REQUEST_ID, "includeFiles": False}),
    ("knowledge_resume", {"requestId": REQUEST_ID}),
)

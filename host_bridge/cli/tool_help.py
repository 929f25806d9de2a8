"""What ``knowledge help TOOL`` teaches: a tool's description, its arguments and one example, from the catalogue itself.

Loaded for help alone: the request models are more than a thin client may load. Examples are parsed by a test.
"""

from __future__ import annotations

import json
import shlex
import textwrap
from types import MappingProxyType
from typing import Final

from messages.json_types import JsonObject, JsonValue
from messages.schemas import input_schema
from messages.tools import CATALOGUE

_WIDTH: Final = 110
_UUID: Final = "6f6e3f0e-52a5-4c33-8e7f-0d2f7c0f9a11"
_ID: Final = "0b8f5f43-59a7-4a6f-8a37-3c6c7c1d2e90"
_HASH: Final = "e6bd18a942230119"
_OTHER_ID: Final = "5d0c9a47-3a52-4f0e-8d7b-91b6f1f5c0aa"
_VAULT: Final = "3f0c6a5e-8c1d-4d4a-9a53-1f0f3a2b4c5d"
_FENCED: Final[JsonObject] = {
    "requestId": _UUID, "expectedVaultId": _VAULT, "expectedOntologyFingerprint": _HASH * 4,
}  # fmt: skip
_READ: Final[JsonObject] = {"id": _ID, "expectedRevision": 1, "expectedHash": _HASH}
_SAID: Final[JsonObject] = {
    "assertion_origin": "source", "attribution": "Ana, stand-up",
    "evidence": [{"path": f"artifacts/{_UUID}/excerpt.txt", "sha256": _HASH * 4, "start_line": 1, "end_line": 1}],
}  # fmt: skip

EXAMPLES: Final = MappingProxyType[str, JsonObject](
    {
        "knowledge_annotate": {**_FENCED, **_READ, "reason": "Two Anas work here.", "attribution_confidence": "low"},
        "knowledge_attach": {
            "requestId": _UUID, "filename": "minutes.txt", "mediaType": "text/plain", "attribution": "Ana, by mail",
            "offset": 0, "data": "V2Ugc2hpcCBvbiBGcmlkYXkuCg==", "final": True,
        },
        "knowledge_attach_file": {
            "requestId": _UUID, "filePath": "notes/minutes.txt", "sha256": _HASH * 4, "filename": "minutes.txt",
            "attribution": "Ana, by mail",
        },
        "knowledge_attachment": {"id": _ID, "path": f"artifacts/{_UUID}/minutes.txt", "sha256": _HASH * 4},
        "knowledge_chronicle_day": {"date": "2026-09-20"},
        "knowledge_chronicle_days": {"since": "2026-09", "until": "2026-10"},
        "knowledge_chronicle_due": {"horizonDays": 14},
        "knowledge_connections": {"id": _ID, "direction": "claims"},
        "knowledge_correct": {
            **_FENCED, **_READ, "reason": "The date was moved.",
            "replacement": {"kind": "claim", "body": "The team ships on Monday.", "claim_kind": "commitment", **_SAID},
        },
        "knowledge_create_claim": {
            **_FENCED, "body": "The team ships on Friday.", "claim_kind": "commitment", "entities": [_ID], **_SAID,
        },
        "knowledge_create_relationship": {**_FENCED, "from": _ID, "to": _OTHER_ID, "label": "works_at", **_SAID},
        "knowledge_edit_body": {
            **_FENCED, **_READ,
            "start": 14, "end": 17, "replacement": "June", "reason": "Ana moved the date.",
        },
        "knowledge_evidence_read": {"id": _ID, "path": f"artifacts/{_UUID}/minutes.txt", "sha256": _HASH * 4},
        "knowledge_extract_section": {
            **_FENCED, "source": _READ, "sectionStart": 120,
            "destination": {"title": "Lighthouse releases", "type": "project"},
            "summary": "Releases have a page of their own.", "reason": "The page is over its budget.",
        },
        "knowledge_grep": {"query": "budget", "limit": 5},
        "knowledge_history": {"id": _ID},
        "knowledge_lookup": {"query": "Lighthouse"},
        "knowledge_merge": {
            **_FENCED, "source": _READ, "destination": {**_READ, "id": _OTHER_ID}, "reason": "One project, two pages.",
        },
        "knowledge_mutation": {"requestId": _UUID},
        "knowledge_ontology": {},
        "knowledge_publish_batch": {
            **_FENCED,
            "items": [
                {"kind": "page", "ref": "lighthouse", "title": "Lighthouse", "type": "project", "body": "What it is."},
                {"kind": "claim", "body": "Lighthouse ships on Friday.", "claim_kind": "commitment",
                 "entities": ["$lighthouse"], **_SAID},
            ],
        },
        "knowledge_recall": {
            "requestId": _UUID, "id": _ID, "expectedRevision": 1, "expectedHash": _HASH,
            "summary": "Lighthouse ships on Friday.", "triggers": ["lighthouse"],
        },
        "knowledge_reconcile_evidence": {
            "requestId": _UUID, **_READ, "reason": "The minutes say more.",
            "evidence": [{"path": f"artifacts/{_UUID}/minutes.txt", "sha256": _HASH * 4}],
        },
        "knowledge_record": {"id": _ID, "includeEvidence": True},
        "knowledge_records": {"kind": "claim", "limit": 10},
        "knowledge_remember": {
            "requestId": _UUID, "attribution": "Ana, stand-up", "excerpt": "Ana: we ship on Friday.",
            "items": [{"text": "The team ships on Friday.", "kind": "commitment"}],
        },
        "knowledge_resume": {"requestId": _UUID},
        "knowledge_revision": {"id": _ID, "sequence": 12},
        "knowledge_save_page": {"requestId": _UUID, "title": "Lighthouse", "type": "project", "body": "What it is."},
        "knowledge_source_check": {"sources": [{"key": "notes/plan.md", "size": 1234}], "complete": True},
        "knowledge_status": {},
        "knowledge_timeline": {"since": "2026-09", "subject": "Lighthouse"},
        "knowledge_unmerge": {"requestId": _UUID, **_READ, "reason": "They are two projects after all."},
        "knowledge_withdraw": {"requestId": _UUID, **_READ, "reason": "It was a joke."},
        "knowledge_verify": {"ids": [_ID]},
    }
)  # fmt: skip


def full_name(word: str) -> str | None:
    """The tool that the word names, with or without ``knowledge_``; None when there is none."""
    name = word if word.startswith("knowledge_") else f"knowledge_{word}"
    return name if name in CATALOGUE else None


def tools() -> str:
    """Every tool on a line, with the first sentence of its description."""
    rows = []
    for name, spec in CATALOGUE.items():
        first = spec.description.split(". ")[0].rstrip(".")
        short = textwrap.shorten(first, _WIDTH - 15, placeholder=" ...")
        rows.append(f"  {name.removeprefix('knowledge_'):<12} {short}")
    return "\n".join(rows)


def page(name: str) -> str:
    """The page of a tool of the catalogue."""
    spec = CATALOGUE[name]
    short = name.removeprefix("knowledge_")
    arguments = _arguments(input_schema(spec.request), "  ")
    example = EXAMPLES[name]
    given = f" {shlex.quote(json.dumps(example))}" if example else ""
    return "\n".join(
        [
            f"knowledge call {short} '{{...}}' - the tool {name}",
            "",
            *textwrap.wrap(spec.description, _WIDTH),
            "",
            *(["Arguments:", *arguments] if arguments else ["It takes no arguments."]),
            "",
            "Example:",
            f"  knowledge call {short}{given}",
        ]
    )


def _arguments(schema: JsonObject, indent: str) -> list[str]:
    properties, required = schema["properties"], schema["required"]
    assert isinstance(properties, dict)
    assert isinstance(required, list)
    lines: list[str] = []
    for name, node in properties.items():
        assert isinstance(node, dict)
        need = "required" if name in required else "optional"
        lines.append(f"{indent}{name}  {', '.join([_kind(node), *_limits(node), need])}")
        described = node.get("description")
        if isinstance(described, str):
            lines += textwrap.wrap(described, _WIDTH, initial_indent=indent + "    ", subsequent_indent=indent + "    ")
        inner = node.get("items") if node["type"] == "array" else node
        if isinstance(inner, dict) and inner.get("properties"):
            lines += _arguments(inner, indent + "    ")
    return lines


def _kind(node: JsonObject) -> str:
    inner = node.get("items")
    return f"array of {inner['type']}s" if isinstance(inner, dict) else str(node["type"])


def _limits(node: JsonObject) -> list[str]:
    limits = []
    words: JsonValue = node.get("enum")
    if words is None and isinstance(inner := node.get("items"), dict):
        words = inner.get("enum")
    if isinstance(words, list):
        limits.append("one of " + " ".join(str(word) for word in words))
    for least, most, unit in (
        ("minimum", "maximum", ""),
        ("minLength", "maxLength", " characters"),
        ("minItems", "maxItems", " items"),
    ):
        low, high = node.get(least), node.get(most)
        if low is not None and high is not None:
            limits.append(f"{low} to {high}{unit}")
        elif high is not None:
            limits.append(f"at most {high}{unit}")
        elif low is not None:
            limits.append(f"at least {low}{unit}")
    return limits

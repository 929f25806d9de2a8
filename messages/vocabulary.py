"""Ids, kinds, states and limits that every layer shares. Limits carry their unit in their name.

Characters are UTF-16 code units, as every offset of Knowledge is (decisions.md section 5).
"""

from __future__ import annotations

import re
import uuid
from dataclasses import dataclass
from typing import Final, Literal, TypeAlias

RecordKind: TypeAlias = Literal["page", "claim", "relationship"]
Lifecycle: TypeAlias = Literal["active", "superseded", "withdrawn", "merged"]
ClaimKind: TypeAlias = Literal["fact", "preference", "decision", "commitment", "event", "belief"]
AssertionOrigin: TypeAlias = Literal["source", "user_belief", "agent_inference"]
ReceiptState: TypeAlias = Literal["published", "pending", "conflict", "rejected"]

RECORD_KINDS: Final = ("page", "claim", "relationship")
LIFECYCLES: Final = ("active", "superseded", "withdrawn", "merged")
CLAIM_KINDS: Final = ("fact", "preference", "decision", "commitment", "event", "belief")
ASSERTION_ORIGINS: Final = ("source", "user_belief", "agent_inference")

RECORD_FORMAT: Final = "knowledge-record-v1"
VAULT_FORMAT: Final = "knowledge-vault-v2"
ONTOLOGY_FORMAT: Final = "knowledge-ontology-v1"
PROTOCOL: Final = "knowledge-host/1"

TITLE_MAX_CHARS: Final = 200
ALIAS_MAX_CHARS: Final = 200
LOOKUP_QUERY_MAX_CHARS: Final = 200
TAG_MAX_CHARS: Final = 100
ATTRIBUTION_MAX_CHARS: Final = 500
ABOUT_MAX_CHARS: Final = 300
REASON_MAX_CHARS: Final = 1_000
SUMMARY_MAX_CHARS: Final = 4_000
CLAIM_TEXT_MAX_CHARS: Final = 4_000
BODY_ARGUMENT_MAX_CHARS: Final = 48_000
HUB_BUDGET_CHARS: Final = 12_000
PAGE_BUDGET_CHARS: Final = 24_000
HUB_MIN_PAGES: Final = 20
HUB_MIN_DEGREE: Final = 10
HUB_PERCENTILE_DEFAULT: Final = 90.0
GREP_QUERY_MAX_CHARS: Final = 500
GREP_QUERY_MAX_WORDS: Final = 64
EXCERPT_MAX_BYTES: Final = 16 * 1024
FIELDS_MAX_BYTES: Final = 16 * 1024
LIST_ARGUMENT_MAX_ITEMS: Final = 100
REMEMBER_MAX_ITEMS: Final = 20
RECORD_MAX_BYTES: Final = 5_000_000
ONTOLOGY_MAX_BYTES: Final = 64 * 1024
REQUEST_MAX_BYTES: Final = 8 * 1024 * 1024
PUBLICATION_MAX_BYTES: Final = 32 * 1024 * 1024
FRONTMATTER_MAX_DEPTH: Final = 20
DIRECTORY_MAX_DEPTH: Final = 8
DIAGNOSTICS_MAX_FINDINGS: Final = 1_000
HASH_PREFIX_MIN_CHARS: Final = 16
DEADLINE_DEFAULT_MS: Final = 30_000
DEADLINE_MAX_MS: Final = 600_000
TOKEN_DEFAULT_SECONDS: Final = 3_600
TOKEN_MAX_SECONDS: Final = 30 * 24 * 3_600
TOKEN_MAX_BYTES: Final = 16 * 1024

RECORD_ID: Final = re.compile(r"[A-Za-z0-9._:-]{1,128}")


@dataclass(frozen=True, slots=True)
class Partition:
    """One partition of a store: ``private``, or a conversation's own (stores-and-access.md, Partitions)."""

    session_id: str | None = None

    @property
    def key(self) -> str:
        """``private`` or ``conversations/<sessionId>``: also its folder below ``vault/``."""
        return "private" if self.session_id is None else f"conversations/{self.session_id}"

    @property
    def kind(self) -> Literal["private", "conversation"]:
        return "private" if self.session_id is None else "conversation"

    @classmethod
    def parse(cls, key: str) -> Partition:
        """The partition of a key made by :attr:`key`; raises ``ValueError`` for any other string."""
        if key == "private":
            return PRIVATE
        head, _, session_id = key.partition("/")
        if head != "conversations" or str(uuid.UUID(session_id)) != session_id:
            raise ValueError(f"not a partition key: {key!r}")
        return cls(session_id)


PRIVATE: Final = Partition()

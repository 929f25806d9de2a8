"""Every error that can leave a door, as one tree.

Each class is one stable ``code``. ``retry`` says what a caller may do with the same request:
``safe`` (it did not run), ``unknown`` (it may have run; a repeat with the same request id is harmless),
``never`` (repeating it unchanged gives the same refusal). ``fields`` carry the machine-readable facts.
A message says what happened, to what, and what to do; it never holds record or message text.

Source: decisions.md section 7 (codes), DESIGN.md (rules 2 and 4).

::

    KnowledgeError
      Refusal            the request itself cannot be granted as it stands
      Unavailable        the runtime cannot serve it now
      FailedClosed       the store's halves disagree; a person must choose
      InternalError      a defect of ours
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import ClassVar, Literal

from messages.json_types import JsonObject, JsonValue

Retry = Literal["safe", "unknown", "never"]


class KnowledgeError(Exception):
    """Base of all typed errors; only its subclasses with a ``code`` are raised."""

    code: ClassVar[str]
    default_retry: ClassVar[Retry] = "never"

    def __init__(self, message: str, *, retry: Retry | None = None, **fields: JsonValue) -> None:
        super().__init__(message)
        self.message = message
        self.retry: Retry = self.default_retry if retry is None else retry
        self.fields: Mapping[str, JsonValue] = fields

    def to_data(self) -> JsonObject:
        """The ``error.data`` object of the host protocol: code, retry, then the fields."""
        return {"code": self.code, "retry": self.retry, **self.fields}

    def at(self, prefix: str) -> KnowledgeError:
        """The same error with its ``field`` moved under ``prefix`` (``items[2]`` + ``text``)."""
        field = self.fields.get("field")
        moved = f"{prefix}.{field}" if isinstance(field, str) and field else prefix
        return type(self)(self.message, retry=self.retry, **{**self.fields, "field": moved})


class Refusal(KnowledgeError):
    """The request cannot be granted as it stands; nothing was stored."""


class Unavailable(KnowledgeError):
    """The runtime cannot serve the request now."""

    default_retry: ClassVar[Retry] = "safe"


class FailedClosed(KnowledgeError):
    """Vault and database disagree in a way that only a person may settle."""

    def for_agents(self) -> FailedClosed:
        """The same refusal without the two pairs: generations are shown to operators only."""
        shown = {name: value for name, value in self.fields.items() if name not in ("expected", "found")}
        return type(self)(self.message, retry=self.retry, **shown)


class InternalError(KnowledgeError):
    """A defect of ours: the details are in the log under the correlation id."""

    code = "internal"
    default_retry: ClassVar[Retry] = "unknown"


class InvalidArgument(Refusal):
    """An argument is missing, unknown, of the wrong type or outside its documented bounds."""

    code = "invalid_argument"


class UnknownTool(Refusal):
    """No tool has that name."""

    code = "unknown_tool"


class AudienceMissing(Refusal):
    """The call carried no audience."""

    code = "audience_missing"


class AudienceStale(Refusal):
    """The audience has expired or its run has ended."""

    code = "audience_stale"


class Denied(Refusal):
    """The caller has no right to what it asked for, or it does not exist for that caller."""

    code = "denied"


class Sandboxed(Refusal):
    """Sandboxed callers have no memory authority."""

    code = "sandboxed"


class StoreAmbiguous(Refusal):
    """The agent is listed in more than one named store."""

    code = "store_ambiguous"


class WritesDisabled(Refusal):
    """The configuration has ``writesEnabled: false``."""

    code = "writes_disabled"


class ReadOnlyGrant(Refusal):
    """The conversation's grant covers reads only."""

    code = "read_only_grant"


class StaleFence(Refusal):
    """The revision or hash that fenced the write is not the current one."""

    code = "stale_fence"


class ShortHash(Refusal):
    """A hash prefix has fewer than 16 characters."""

    code = "short_hash"


class OntologyChanged(Refusal):
    """The ontology fingerprint that fenced the write is not the current one."""

    code = "ontology_changed"


class VaultMismatch(Refusal):
    """The vault that the caller observed is not the one it reached."""

    code = "vault_mismatch"


class RequestIdReused(Refusal):
    """The request id belongs to another payload or operation."""

    code = "request_id_reused"


class NotFound(Refusal):
    """No such record, revision, request or file in the caller's partition."""

    code = "not_found"


class Ambiguous(Refusal):
    """The name or id stands for more than one record."""

    code = "ambiguous"


class EvidenceInvalid(Refusal):
    """Evidence is missing, or its file, hash, line range or quote does not hold."""

    code = "evidence_invalid"


class LimitExceeded(Refusal):
    """A size is over its documented limit."""

    code = "limit_exceeded"


class PartitionFull(Refusal):
    """The write would pass the partition's scan limit."""

    code = "partition_full"


class SnapshotChanged(Refusal):
    """The snapshot that paging began with is not the current one."""

    code = "snapshot_changed"


class ReferenceChanged(Refusal):
    """The referenced revision is not the current one, or its record is not current any more."""

    code = "reference_changed"


class ReferenceForeign(Refusal):
    """The reference or cursor belongs to another provider or store."""

    code = "reference_foreign"


class DeletionsRefused(Refusal):
    """Most of a partition vanished at once; a person must accept that."""

    code = "deletions_refused"


class DuplicateIdentity(Refusal):
    """A store with this identity is already registered elsewhere."""

    code = "duplicate_identity"


class Poison(Refusal):
    """This request crashed its lane twice and is not run again in this process."""

    code = "poison"


class StoreUnavailable(Unavailable):
    """The store's directory or database is gone, or a lane is stuck in it."""

    code = "store_unavailable"
    default_retry: ClassVar[Retry] = "never"


class StoreOpening(Unavailable):
    """The store is still replaying, scanning or rebuilding."""

    code = "store_opening"


class PublicationPending(Unavailable):
    """An accepted publication is not finished; the partition answers again when it is."""

    code = "publication_pending"


class OpenElsewhere(Unavailable):
    """Another program has the file open for writing."""

    code = "open_elsewhere"


class Busy(Unavailable):
    """The mailbox or a connection pool is full."""

    code = "busy"


class Restarting(Unavailable):
    """The actor crashed and is being restarted."""

    code = "restarting"


class Quarantined(Unavailable):
    """The store was taken out of service; ``knowledge status`` explains."""

    code = "quarantined"


class Stopping(Unavailable):
    """The runtime or the store is shutting down."""

    code = "stopping"


class DeadlineExceeded(Unavailable):
    """The deadline passed before the answer: ``safe`` while queued, ``unknown`` once running."""

    code = "deadline"


class Cancelled(Unavailable):
    """The caller cancelled the request before it was accepted."""

    code = "cancelled"


class IndexUnavailable(Unavailable):
    """The keyword index cannot answer; this is a failed retrieval, not zero matches."""

    code = "index_unavailable"


class ScanIncomplete(Unavailable):
    """A partition scan could not finish, so nothing is served from a part of it."""

    code = "scan_incomplete"


class RevocationPending(Unavailable):
    """The grant is closed, but work under it has not drained within the limit."""

    code = "revocation_pending"


class StorageError(Unavailable):
    """The file system or the database refused an operation (full, read-only, failing)."""

    code = "storage_error"


class VaultOlderThanDatabase(FailedClosed):
    """The vault carries an earlier publication than the database."""

    code = "vault_older_than_database"


class DatabaseOlderThanVault(FailedClosed):
    """The database carries an earlier publication than the vault."""

    code = "database_older_than_vault"


class CheckpointConflict(FailedClosed):
    """Vault and database are at the same generation with different publications."""

    code = "checkpoint_conflict"


class ForeignVault(FailedClosed):
    """The vault's identity is not the one this database belongs to."""

    code = "foreign_vault"


class ManifestMissing(FailedClosed):
    """``vault.json`` is missing or unreadable and nothing explains why."""

    code = "manifest_missing"


class SlugMismatch(Refusal):
    """The two system rows do not share a slug."""

    code = "slug_mismatch"


class StewardRequired(Refusal):
    """Only a configured steward may do this."""

    code = "steward_required"


class StanceRequired(Refusal):
    """A promotion must name a reviewed stance."""

    code = "stance_required"


class NotSupersedable(Refusal):
    """The row cannot be superseded."""

    code = "not_supersedable"


class SupersedesNotFound(Refusal):
    """The row to be superseded does not exist for this account."""

    code = "supersedes_not_found"


class QuotaReached(Refusal):
    """The account has used its quota."""

    code = "quota_reached"


class RedactionRequired(Refusal):
    """The text names a person or secret and must be redacted first."""

    code = "redaction_required"


def all_error_classes() -> tuple[type[KnowledgeError], ...]:
    """Every class with a code, in the tree's order (for docs and tests)."""

    def walk(cls: type[KnowledgeError]) -> Iterator[type[KnowledgeError]]:
        if "code" in vars(cls):
            yield cls
        for child in cls.__subclasses__():
            yield from walk(child)

    return tuple(walk(KnowledgeError))

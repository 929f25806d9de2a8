"""The error tree: every documented code exactly once, and what a refusal carries."""

from __future__ import annotations

import pytest

from messages import errors
from messages.errors import InvalidArgument, KnowledgeError, all_error_classes

CODES = """
invalid_argument unknown_tool audience_missing audience_stale denied sandboxed store_ambiguous store_unavailable
store_opening writes_disabled read_only_grant stale_fence short_hash ontology_changed vault_mismatch
request_id_reused not_found ambiguous evidence_invalid limit_exceeded partition_full snapshot_changed
reference_changed reference_foreign publication_pending open_elsewhere vault_older_than_database
database_older_than_vault checkpoint_conflict foreign_vault duplicate_identity busy restarting quarantined stopping
deadline cancelled poison index_unavailable scan_incomplete revocation_pending manifest_missing deletions_refused
storage_error slug_mismatch steward_required stance_required not_supersedable supersedes_not_found quota_reached
redaction_required internal
""".split()

SAFE = {"busy", "restarting", "store_opening", "quarantined", "stopping", "cancelled", "revocation_pending", "deadline"}


def test_every_documented_code_has_exactly_one_class() -> None:
    assert sorted(cls.code for cls in all_error_classes()) == sorted(CODES)


def test_every_class_is_public_and_says_when_it_is_raised() -> None:
    for cls in all_error_classes():
        assert vars(errors)[cls.__name__] is cls
        assert cls.__doc__
        assert cls.__doc__.strip()


@pytest.mark.parametrize("cls", all_error_classes(), ids=lambda cls: str(cls.code))
def test_data_has_the_code_then_retry_then_the_fields(cls: type[KnowledgeError]) -> None:
    error = cls("what happened", field="a", allowed=[1])
    assert list(error.to_data()) == ["code", "retry", "field", "allowed"]
    assert error.to_data()["code"] == cls.code
    assert str(error) == error.message == "what happened"


@pytest.mark.parametrize("cls", all_error_classes(), ids=lambda cls: str(cls.code))
def test_a_request_that_did_not_run_is_safe_to_repeat(cls: type[KnowledgeError]) -> None:
    if cls.code in SAFE:
        assert cls("x").retry == "safe"
    if issubclass(cls, errors.Refusal | errors.FailedClosed):
        assert cls("x").retry == "never"


def test_a_defect_may_have_run() -> None:
    assert errors.InternalError("x").retry == "unknown"


def test_retry_can_be_told_for_one_occurrence() -> None:
    assert errors.DeadlineExceeded("x", retry="unknown").to_data()["retry"] == "unknown"


@pytest.mark.parametrize(("field", "moved"), [("text", "items[2].text"), (None, "items[2]"), ("", "items[2]")])
def test_a_field_moves_under_its_item(field: str | None, moved: str) -> None:
    error = InvalidArgument("x", reason="blank") if field is None else InvalidArgument("x", field=field, reason="blank")
    found = error.at("items[2]")
    assert type(found) is InvalidArgument
    assert found.fields == {"reason": "blank", "field": moved}
    assert found.retry == error.retry

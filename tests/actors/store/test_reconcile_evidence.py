"""``knowledge_reconcile_evidence``: the complete new evidence set of a page, without a thread."""

from __future__ import annotations

import pytest

from messages.errors import EvidenceInvalid, InvalidArgument, RequestIdReused, StaleFence
from messages.json_types import JsonObject, JsonValue
from tests.kit.sources import attach
from tests.kit.store import Desk, items_of, request_id

BODY = "About it.\n\n" + "x" * 40_000
"""More than a page may grow to: written by hand."""


def page_with(desk: Desk, *evidence: JsonObject) -> JsonObject:
    page = desk.page("A", body="About it.", attachments=list(evidence))
    path = desk.path_of(str(page["id"]))
    path.write_text(path.read_text("utf-8").replace("About it.\n", BODY), "utf-8")
    return desk.observed(page["id"])


def paths(desk: Desk, record: JsonValue) -> list[JsonValue]:
    found = desk.record(record, includeEvidence=True).get("evidence", [])
    assert isinstance(found, list)
    return [one["path"] for one in found if isinstance(one, dict)]


def reconcile(fence: JsonObject, *evidence: JsonObject, **more: JsonValue) -> JsonObject:
    return {**fence, "evidence": list(evidence), "reason": "a better source", **more}


def test_the_given_set_replaces_the_evidence_of_the_page_and_nothing_else(desk: Desk) -> None:
    one, two, three = (attach(desk, number, f"source {number}".encode()) for number in (1, 2, 3))
    fence = page_with(desk, one, two)
    before = desk.path_of(str(fence["id"])).read_text("utf-8")
    desk.needs.clear()
    receipt = desk.call("reconcile_evidence", reconcile(fence, three, two))
    assert desk.needs == ["evidence"]
    assert (receipt["id"], receipt["revision"]) == (fence["id"], 2)
    assert paths(desk, fence["id"]) == [three["path"], two["path"]]
    after = desk.path_of(str(fence["id"])).read_text("utf-8")
    assert after.split("---\n", 2)[2] == before.split("---\n", 2)[2]
    changed = {line for line in after.splitlines() if line not in before.splitlines()}
    assert {line.split(":")[0].strip() for line in changed if not line.startswith("  -")} <= {"revision", "updated_at"}


def test_an_empty_set_removes_all_evidence_and_repeats_count_once(desk: Desk) -> None:
    one = attach(desk, 1, b"source")
    fence = page_with(desk)
    receipt = desk.call("reconcile_evidence", reconcile(fence, one, one))
    assert paths(desk, fence["id"]) == [one["path"]]
    fence |= {"expectedRevision": receipt["revision"], "expectedHash": str(receipt["hash"])[:16]}
    desk.call("reconcile_evidence", reconcile(fence))
    assert paths(desk, fence["id"]) == []


def test_a_stale_revision_or_hash_is_refused(desk: Desk) -> None:
    fence = page_with(desk)
    for change in ({"expectedRevision": 2}, {"expectedHash": "0" * 64}):
        assert isinstance(desk.fails("reconcile_evidence", {**reconcile(fence), **change}), StaleFence)


def test_only_pages_are_reconciled(desk: Desk) -> None:
    item = items_of(desk.remember("One."))[0]
    fence: JsonObject = {"id": item["id"], "expectedRevision": 1, "expectedHash": item["hash"]}
    error = desk.fails("reconcile_evidence", reconcile(fence))
    assert isinstance(error, InvalidArgument)
    assert error.fields["reason"] == "wrong_kind"


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"sha256": "0" * 64}, "not_retained"),
        ({"start_line": 2}, "line_range"),
        ({"quote": "absent"}, "quote_mismatch"),
    ],
)
def test_the_set_is_verified_like_attachments_and_one_that_fails_changes_nothing(
    desk: Desk, change: JsonObject, reason: str
) -> None:
    one, two = (attach(desk, number, f"source {number}".encode()) for number in (1, 2))
    fence = page_with(desk, one)
    error = desk.fails("reconcile_evidence", reconcile(fence, two, {**two, **change}))
    assert isinstance(error, EvidenceInvalid)
    assert (error.fields["field"], error.fields["reason"]) == ("evidence[1]", reason)
    assert paths(desk, fence["id"]) == [one["path"]]
    assert desk.record(fence["id"])["revision"] == 1


def test_a_page_over_its_budget_may_be_reconciled(desk: Desk) -> None:
    fence = page_with(desk)
    path = desk.path_of(str(fence["id"]))
    path.write_text(path.read_text("utf-8") + "y" * 60_000, "utf-8")
    found = desk.record(fence["id"])
    fence |= {"expectedRevision": found["revision"], "expectedHash": found["hash"]}
    assert desk.call("reconcile_evidence", reconcile(fence, attach(desk, 1, b"source")))["revision"] == 2


def test_the_same_request_again_gives_the_stored_receipt(desk: Desk) -> None:
    one = attach(desk, 1, b"source")
    request = reconcile(page_with(desk), one, requestId=request_id(80))
    receipt = desk.call("reconcile_evidence", request)
    desk.close()
    assert desk.call("reconcile_evidence", request) == receipt
    assert isinstance(desk.fails("reconcile_evidence", {**request, "reason": "another"}), RequestIdReused)


def test_a_large_set_is_one_publication(desk: Desk) -> None:
    text = "".join(f"line {number}\n" for number in range(1, 301)).encode()
    one = attach(desk, 1, text)
    fence = page_with(desk)
    evidence = [{**one, "start_line": number, "end_line": number} for number in range(1, 301)]
    assert desk.call("reconcile_evidence", reconcile(fence, *evidence))["revision"] == 2
    entry = desk.partition().catalogue.one(str(fence["id"]))
    assert entry is not None
    assert len(desk.partition().load(entry).evidence) == 300

"""knowledge_edit_body: one exact range of a page's body (tools.md, Pages and body edits)."""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from messages.errors import InvalidArgument, OntologyChanged, RequestIdReused, StaleFence, VaultMismatch
from messages.json_types import JsonObject, JsonValue
from tests.kit.store import Desk, request_id

_NEXT = iter(range(9_000_000, 10_000_000))


def edit(desk: Desk, page_id: JsonValue, start: int, end: int, replacement: str, **more: JsonValue) -> JsonObject:
    return desk.call("edit_body", arguments(desk, page_id, start, end, replacement, **more))


def arguments(
    desk: Desk, page_id: JsonValue, start: int, end: int, replacement: str, **more: JsonValue
) -> JsonObject:
    found = desk.record(page_id)
    status = desk.call("status")
    return {
        "requestId": request_id(next(_NEXT)),
        "id": found["id"],
        "expectedRevision": found["revision"],
        "expectedHash": found["hash"],
        "expectedVaultId": status["vaultId"],
        "expectedOntologyFingerprint": status["ontologyFingerprint"],
        "start": start,
        "end": end,
        "replacement": replacement,
        "reason": "a test",
        **more,
    }


def body_of(desk: Desk, page_id: JsonValue) -> str:
    return str(desk.record(page_id)["body"])


def test_start_is_inclusive_and_end_exclusive(desk: Desk) -> None:
    page = desk.page("Plan", body="abcdef\n")
    edit(desk, page["id"], 1, 3, "XY")
    assert body_of(desk, page["id"]) == "aXYdef\n"


def test_equal_offsets_insert_and_an_empty_replacement_deletes(desk: Desk) -> None:
    page = desk.page("Plan", body="abcdef\n")
    edit(desk, page["id"], 3, 3, "---")
    assert body_of(desk, page["id"]) == "abc---def\n"
    edit(desk, page["id"], 3, 6, "")
    assert body_of(desk, page["id"]) == "abcdef\n"


def test_each_call_publishes_a_complete_revision(desk: Desk) -> None:
    page = desk.page("Plan", body="one\n")
    receipt = edit(desk, page["id"], 0, 3, "two")
    assert receipt["revision"] == 2
    rows = desk.call("history", {"id": page["id"]})["rows"]
    assert isinstance(rows, list)
    assert [row["operation"] for row in rows if isinstance(row, dict)] == ["edit_body", "save_page"]
    first = desk.call("revision", {"id": page["id"], "sequence": 1})
    assert str(first["content"]).endswith("\none\n")


def test_offsets_count_utf16_units_over_the_body_without_the_frontmatter(desk: Desk) -> None:
    page = desk.page("Plan", body="a😀b\n", aliases=["😀😀"])
    edit(desk, page["id"], 3, 4, "c")
    assert body_of(desk, page["id"]) == "a😀c\n"


@pytest.mark.parametrize(("start", "end", "field"), [(2, 4, "start"), (1, 2, "end")])
def test_an_offset_inside_a_surrogate_pair_is_refused(desk: Desk, start: int, end: int, field: str) -> None:
    page = desk.page("Plan", body="a😀b\n")
    error = desk.fails("edit_body", arguments(desk, page["id"], start, end, ""))
    assert (error.code, error.fields["field"], error.fields["reason"]) == ("invalid_argument", field, "inside_pair")
    assert body_of(desk, page["id"]) == "a😀b\n"


def test_an_offset_beyond_the_end_is_refused_with_the_range_that_there_is(desk: Desk) -> None:
    page = desk.page("Plan", body="abc\n")
    error = desk.fails("edit_body", arguments(desk, page["id"], 0, 5, ""))
    assert isinstance(error, InvalidArgument)
    assert (error.fields["field"], error.fields["allowed"]) == ("end", "0 to 4")


def test_an_end_before_the_start_is_refused(desk: Desk) -> None:
    page = desk.page("Plan", body="abc\n")
    error = desk.fails("edit_body", arguments(desk, page["id"], 2, 1, ""))
    assert (error.code, error.fields["field"]) == ("invalid_argument", "end")


@pytest.mark.parametrize("missing", ["expectedVaultId", "expectedOntologyFingerprint", "expectedHash", "reason"])
def test_all_fences_and_the_reason_are_required(desk: Desk, missing: str) -> None:
    page = desk.page("Plan", body="abc\n")
    given_ = {key: value for key, value in arguments(desk, page["id"], 0, 1, "").items() if key != missing}
    error = desk.fails("edit_body", given_)
    assert (error.code, error.fields["field"]) == ("invalid_argument", missing)


def test_another_vault_or_ontology_is_refused_by_name(desk: Desk) -> None:
    page = desk.page("Plan", body="abc\n")
    foreign = arguments(desk, page["id"], 0, 1, "", expectedVaultId=request_id(1))
    assert isinstance(desk.fails("edit_body", foreign), VaultMismatch)
    changed = arguments(desk, page["id"], 0, 1, "", expectedOntologyFingerprint="0" * 64)
    assert isinstance(desk.fails("edit_body", changed), OntologyChanged)


def test_there_is_no_rebasing_onto_a_text_that_changed_meanwhile(desk: Desk) -> None:
    page = desk.page("Plan", body="abc\n")
    prepared = arguments(desk, page["id"], 0, 1, "X")
    path = desk.path_of(str(page["id"]))
    path.write_text(path.read_text("utf-8").replace("abc", "xabc"), "utf-8")
    error = desk.fails("edit_body", prepared)
    assert isinstance(error, StaleFence)
    assert error.fields["hash"] == desk.record(page["id"])["hash"]
    assert body_of(desk, page["id"]) == "xabc\n"


def test_the_same_request_gives_the_same_receipt_and_another_payload_is_refused(desk: Desk) -> None:
    page = desk.page("Plan", body="abc\n")
    given_ = arguments(desk, page["id"], 0, 1, "X")
    first = desk.call("edit_body", given_)
    assert desk.call("edit_body", given_) == first
    assert body_of(desk, page["id"]) == "Xbc\n"
    assert isinstance(desk.fails("edit_body", {**given_, "replacement": "Y"}), RequestIdReused)


def test_a_claim_has_no_body_to_edit(desk: Desk) -> None:
    items = desk.remember("Frost comes in May.")["items"]
    assert isinstance(items, list)
    assert isinstance(items[0], dict)
    error = desk.fails("edit_body", arguments(desk, items[0]["id"], 0, 1, ""))
    assert (error.code, error.fields["reason"]) == ("invalid_argument", "wrong_kind")


def test_an_edit_leaves_authored_frontmatter_and_line_ends_as_they_are(desk: Desk) -> None:
    page = desk.page("Plan", body="one\ntwo\n")
    path = desk.path_of(str(page["id"]))
    authored = path.read_bytes().replace(b"\n", b"\r\n").replace(b"lifecycle:", b"# mine\r\nmood: calm\r\nlifecycle:")
    path.write_bytes(authored)
    edit(desk, page["id"], 5, 8, "TWO")
    after = path.read_bytes()
    assert b"# mine\r\nmood: calm\r\n" in after
    assert after.endswith(b"one\r\nTWO\r\n")
    assert b"\n" not in after.replace(b"\r\n", b"")


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_any_range_gives_exactly_the_spliced_utf16_text(desk: Desk, data: st.DataObject) -> None:
    alphabet = st.sampled_from("ab\n é😀漢🏽")
    body = data.draw(st.text(alphabet, min_size=1, max_size=30)) + "x\n"
    replacement = data.draw(st.text(alphabet, max_size=10))
    page = desk.page(f"Plan {next(_NEXT)}", body=body)
    units = body.encode("utf-16-le")
    borders = [len(body[:point].encode("utf-16-le")) // 2 for point in range(len(body) + 1)]
    start = data.draw(st.sampled_from(borders))
    end = data.draw(st.sampled_from([border for border in borders if border >= start]))
    edit(desk, page["id"], start, end, replacement)
    expected = units[: start * 2] + replacement.encode("utf-16-le") + units[end * 2 :]
    assert body_of(desk, page["id"]) == expected.decode("utf-16-le")


def test_a_body_that_holds_what_cannot_be_stored_is_refused_by_name_and_left_alone(desk: Desk) -> None:
    page = desk.page("Plan", body="one two\n")
    path = desk.path_of(str(page["id"]))
    path.write_text(path.read_text("utf-8").replace("two", "t\x00wo"), "utf-8")
    before = path.read_bytes()
    error = desk.fails("edit_body", arguments(desk, page["id"], 0, 3, "1"))
    assert isinstance(error, InvalidArgument)
    assert (error.fields["field"], error.fields["reason"]) == ("body", "nul")
    assert path.read_bytes() == before

"""Single records, retained revisions and recovery material: bounded windows that always move on."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from messages.errors import InvalidArgument
from messages.json_types import JsonObject
from messages.text import utf16_length
from messages.tools import (
    EvidenceView,
    GitState,
    HistoryRow,
    MutationFile,
    MutationRequest,
    PageRef,
    RecordRequest,
    RecordView,
    RevisionRequest,
    StatusResponse,
    mutation_response,
    parse_arguments,
    record_response,
    revision_response,
)
from tests.messages.tools.samples import HASH, REQUEST_ID


def asking(**arguments: Any) -> RecordRequest:
    request = parse_arguments("knowledge_record", {"id": "x", **arguments})
    assert isinstance(request, RecordRequest)
    return request


def page(body: str, **members: Any) -> RecordView:
    return RecordView(
        id="p1", revision=3, hash=HASH, kind="page", title="Garden Pilot", type="project", body=body, **members
    )


def units(response: JsonObject) -> int:
    return utf16_length(json.dumps(response, ensure_ascii=False, separators=(",", ":")))


def test_a_missing_record_is_null() -> None:
    assert record_response(None, asking()) == {"record": None}


def test_a_page_shows_its_full_hash_and_only_filled_members() -> None:
    view = page(
        "Hello", tags=["t"], fields={"status": "active", "note": "", "contact": None, "n": 0, "b": False, "l": []}
    )
    assert record_response(view, asking()) == {
        "record": {
            "id": "p1", "revision": 3, "hash": HASH, "kind": "page", "title": "Garden Pilot", "type": "project",
            "tags": ["t"], "fields": {"status": "active", "n": 0, "b": False}, "body": "Hello",
        }
    }  # fmt: skip


def test_a_claim_shows_its_dates_owner_pages_and_text() -> None:
    view = RecordView(
        id="c1",
        revision=1,
        hash=HASH,
        kind="claim",
        body="Alex delivers.",
        claim_kind="commitment",
        occurred_at="2026-09-20",
        due_at="2026-09-25",
        owner=PageRef("a", "Alex"),
        pages=[PageRef("p", "Pilot")],
        source_page="s",
        attribution="Alex",
        subject_hint="pilot",
        lifecycle="superseded",
        superseded_by="c2",
        assertion_origin="user_belief",
        issues=[{"code": "reference_missing"}],
        identity_uncertainty="two people",
    )
    assert record_response(view, asking())["record"] == {
        "id": "c1", "revision": 1, "hash": HASH, "kind": "claim", "lifecycle": "superseded", "claimKind": "commitment",
        "assertionOrigin": "user_belief", "occurredAt": "2026-09-20", "dueAt": "2026-09-25",
        "owner": {"id": "a", "title": "Alex"}, "attribution": "Alex", "subjectHint": "pilot", "sourcePage": "s",
        "supersededBy": "c2", "identityUncertainty": "two people", "pages": [{"id": "p", "title": "Pilot"}],
        "issues": [{"code": "reference_missing"}], "text": "Alex delivers.",
    }  # fmt: skip


@settings(max_examples=60, deadline=None)
@given(
    st.text(alphabet=st.characters(codec="utf-8", exclude_characters="\0"), max_size=40).map(lambda text: text * 60),
    st.integers(1_000, 3_000),
)
def test_windows_are_bounded_and_add_up_to_the_whole_body(body: str, max_chars: int) -> None:
    read, offset = "", 0
    while True:
        response: Any = record_response(page(body), asking(offset=offset, maxChars=max_chars))
        assert units(response) <= max_chars
        read += response["record"]["body"]
        if "nextOffset" not in response:
            break
        assert response["nextOffset"] > offset
        offset = response["nextOffset"]
    assert read == body


def test_metadata_is_never_cut_and_reading_still_moves_on() -> None:
    aliases = [f"alias {number}" * 10 for number in range(100)]
    response: Any = record_response(page("x" * 5_000, aliases=aliases), asking(maxChars=1_000))
    assert response["record"]["aliases"] == aliases
    assert response["nextOffset"] == 256
    assert units(response) > 1_000


def frame(padding: str) -> int:
    """What a response with such a page takes beside its text."""
    return units({"nextOffset": 5_000_000, **record_response(page("", fields={"f": padding}), asking())})


@settings(max_examples=60, deadline=None)
@example("a" * 600, 3)
@given(st.text("a\x07é\N{SLIGHTLY SMILING FACE}", min_size=1, max_size=600), st.integers(0, 300))
def test_max_chars_bounds_the_whole_response_wherever_one_character_still_fits(body: str, room: int) -> None:
    view = page(body, fields={"f": "x" * (1_000 - room - frame("x") + 1)})
    response: Any = record_response(view, asking(maxChars=1_000))
    assert response["record"]["body"]
    if room >= units({"c": body[0]}) - len('{"c":""}'):
        assert units(response) <= 1_000


def test_what_stands_beside_a_record_counts_in_the_bound_too() -> None:
    beside: JsonObject = {"state": "found", "evidenceTotal": 1_000}
    for body in ("x" * 5_000, "\N{SLIGHTLY SMILING FACE}" * 5_000):
        response = record_response(page(body), asking(maxChars=1_000), beside=beside)
        assert (response["state"], response["evidenceTotal"]) == ("found", 1_000)
        assert 980 < units(response) <= 1_000


@pytest.mark.parametrize(("offset", "reason"), [(2, "inside_pair"), (9, "out_of_range")])
def test_an_offset_inside_a_pair_or_beyond_the_end_is_refused(offset: int, reason: str) -> None:
    with pytest.raises(InvalidArgument) as caught:
        record_response(page("a😀b"), asking(offset=offset))
    assert (caught.value.fields["field"], caught.value.fields["reason"]) == ("offset", reason)


def test_an_offset_at_the_end_reads_nothing_more() -> None:
    response: Any = record_response(page("a😀b"), asking(offset=4))
    assert response["record"]["body"] == ""


def citations(number: int, excerpt: str | None) -> list[EvidenceView]:
    return [
        EvidenceView(path=f"artifacts/{REQUEST_ID}/{index}.txt", sha256=HASH, start_line=1, end_line=2, excerpt=excerpt)
        for index in range(number)
    ]


def test_evidence_appears_only_when_asked_for() -> None:
    assert "evidence" not in json.dumps(record_response(page("x"), asking(), evidence=citations(1, "e")))
    shown: Any = record_response(page("x"), asking(includeEvidence=True), evidence=citations(1, "e"))
    assert shown["record"]["evidence"] == [
        {"path": f"artifacts/{REQUEST_ID}/0.txt", "sha256": HASH, "start_line": 1, "end_line": 2, "excerpt": "e"}
    ]


def test_citations_come_twenty_a_response() -> None:
    first: Any = record_response(page("x"), asking(includeEvidence=True, maxChars=48_000), evidence=citations(41, None))
    assert (len(first["record"]["evidence"]), first["nextEvidenceOffset"]) == (20, 20)
    last: Any = record_response(
        page("x"), asking(includeEvidence=True, evidenceOffset=40, maxChars=48_000), evidence=citations(41, None)
    )
    assert len(last["record"]["evidence"]) == 1
    assert "nextEvidenceOffset" not in last


def test_excerpts_take_4000_units_together_and_the_rest_is_named() -> None:
    shown: Any = record_response(page("x"), asking(includeEvidence=True), evidence=citations(3, "a😀" * 667))
    lengths = [utf16_length(item.get("excerpt", "")) for item in shown["record"]["evidence"]]
    assert lengths == [2_001, 1_999, 0]
    assert shown["omitted"] == ["evidence[2].excerpt"]


def test_excerpts_and_then_citations_give_way_to_the_text() -> None:
    without: Any = record_response(
        page("x" * 2_000), asking(includeEvidence=True, maxChars=3_000), evidence=citations(4, "e" * 900)
    )
    assert all("excerpt" not in item for item in without["record"]["evidence"])
    assert without["omitted"] == [f"evidence[{index}].excerpt" for index in range(4)]
    fewer: Any = record_response(
        page("x" * 2_000), asking(includeEvidence=True, maxChars=1_000), evidence=citations(20, "e" * 900)
    )
    assert fewer["nextEvidenceOffset"] == len(fewer["record"]["evidence"]) < 4
    for response in (without, fewer):
        assert len(response["record"]["body"]) >= 256
    assert units(without) <= 3_000
    assert units(fewer) <= 1_000


ROW = HistoryRow(
    sequence=7, operation="save_page", id="p1", revision=3, hash=HASH, at="t", actor="main", request_id=REQUEST_ID
)


def test_a_revision_is_read_in_windows_that_split_no_pair() -> None:
    content, read, offset = "é😀" * 700, "", 0
    while True:
        request = parse_arguments(
            "knowledge_revision", {"id": "p1", "sequence": 7, "offset": offset, "maxChars": 1_000}
        )
        assert isinstance(request, RevisionRequest)
        response: Any = revision_response(ROW, content, request)
        read += response["content"]
        if "nextOffset" not in response:
            break
        offset = response["nextOffset"]
    assert read == content
    assert response["sequence"] == 7


RECEIPT: JsonObject = {"requestId": REQUEST_ID, "state": "conflict"}
FILES = [
    MutationFile(
        path=f"people/{number}.md", id=f"p{number}", texts={"before": None, "proposed": "n" * 5_000, "displaced": "d"}
    )
    for number in range(7)
]


def inspecting(**arguments: Any) -> MutationRequest:
    request = parse_arguments("knowledge_mutation", {"requestId": REQUEST_ID, **arguments})
    assert isinstance(request, MutationRequest)
    return request


def test_a_receipt_only_check_reads_no_files() -> None:
    assert mutation_response(RECEIPT, FILES, inspecting(includeFiles=False)) == {"receipt": RECEIPT}


def test_commit_and_git_stand_beside_the_stored_receipt() -> None:
    response = mutation_response(RECEIPT, [], inspecting(), commit="abc", git=GitState("pending", 2, "locked"))
    assert response["receipt"] == {**RECEIPT, "commit": "abc"}
    assert response["git"] == {"state": "pending", "message": "locked"}
    assert "commit" not in RECEIPT


def test_files_come_three_at_a_time_and_share_the_characters() -> None:
    response: Any = mutation_response(RECEIPT, FILES, inspecting(maxChars=6_000))
    assert [file["path"] for file in response["files"]] == ["people/0.md", "people/1.md", "people/2.md"]
    assert response["nextFileOffset"] == 3
    assert response["files"][0]["proposed"] == {"nextCharOffset": 1_000, "text": "n" * 1_000}
    assert response["files"][0]["displaced"] == {"text": "d"}
    assert "before" not in response["files"][0]
    last: Any = mutation_response(RECEIPT, FILES, inspecting(fileOffset=6))
    assert len(last["files"]) == 1
    assert "nextFileOffset" not in last


def test_one_text_is_continued_alone() -> None:
    response: Any = mutation_response(
        RECEIPT, FILES, inspecting(fileOffset=1, contentField="proposed", charOffset=1_000, maxChars=1_000)
    )
    assert response["files"] == [
        {"path": "people/1.md", "id": "p1", "proposed": {"nextCharOffset": 2_000, "text": "n" * 1_000}}
    ]
    with pytest.raises(InvalidArgument) as caught:
        mutation_response(RECEIPT, FILES, inspecting(contentField="displaced", charOffset=5))
    assert caught.value.fields["field"] == "charOffset"


def test_status_says_where_the_caller_is_and_leaves_zeros_out() -> None:
    status = StatusResponse(
        vault_id="v", partition="private", writes_enabled=True, live="watching", ontology_fingerprint=HASH,
        counts={"page": {"active": 2, "merged": 0}, "claim": {}}, pending=0, conflict=1, git=GitState("current"),
        index_state="current",
    )  # fmt: skip
    assert status.to_json() == {
        "vaultId": "v", "partition": "private", "writesEnabled": True, "live": "watching", "ontologyFingerprint": HASH,
        "counts": {"page": {"active": 2}, "claim": {}}, "publications": {"pending": 0, "conflict": 1},
        "git": {"state": "current", "pending": 0}, "index": {"state": "current"},
    }  # fmt: skip

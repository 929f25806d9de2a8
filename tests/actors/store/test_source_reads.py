"""``knowledge_attachment`` and ``knowledge_evidence_read``, without a thread."""

from __future__ import annotations

import base64
import os
import random

import pytest

from messages.errors import EvidenceInvalid, InvalidArgument, NotFound
from messages.json_types import JsonObject, JsonValue
from messages.text import utf16_length
from storage import faults
from storage.evidence import VerdictCache
from tests.kit.sources import attach, digest, long_after
from tests.kit.store import GROUP_PARTITION, Desk, items_of, remembering, write_note

LINES = "".join(f"line {number}\n" for number in range(1, 21))


def cite(desk: Desk, data: bytes, **range_: JsonValue) -> JsonObject:
    """A page that cites an upload of ``data``: what a read of it names."""
    found = attach(desk, 1, data)
    page = desk.page("A", attachments=[{**found, **range_}])["id"]
    return {"id": page, "path": found["path"], "sha256": found["sha256"]}


def download(desk: Desk, source: JsonObject) -> tuple[bytes, int]:
    """The whole original, and in how many calls."""
    data, offset, calls = b"", 0, 0
    while True:
        answer = desk.call("attachment", {**source, "offset": offset})
        piece = base64.b64decode(str(answer["data"]))
        assert len(piece) <= 32 * 1024
        assert (answer["offset"], answer["size"]) == (len(data), answer["size"])
        data += piece
        calls += 1
        if answer["nextOffset"] is None:
            assert answer["size"] == len(data)
            return data, calls
        assert answer["nextOffset"] == len(data)
        offset = len(data)


def read_all(desk: Desk, source: JsonObject, **more: JsonValue) -> list[JsonObject]:
    """Every window of a passage; only id, path and hash are repeated with the cursor."""
    answers = [desk.call("evidence_read", {**source, **more})]
    size = {name: more[name] for name in ("maxChars",) if name in more}
    while "nextCursor" in answers[-1]:
        answers.append(desk.call("evidence_read", {**source, **size, "cursor": answers[-1]["nextCursor"]}))
    return answers


def text_of(answers: list[JsonObject]) -> str:
    return "".join(str(answer["text"]) for answer in answers)


# --- knowledge_attachment ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("size", [0, 1, 32 * 1024, 32 * 1024 + 1, 100_000])
def test_an_original_comes_in_chunks_of_at_most_32_kib_until_next_offset_is_null(desk: Desk, size: int) -> None:
    data = os.urandom(size)
    source = cite(desk, data)
    assert download(desk, source) == (data, max(1, -(-size // (32 * 1024))))


def test_an_offset_beyond_the_original_is_refused(desk: Desk) -> None:
    source = cite(desk, b"12345")
    assert desk.call("attachment", {**source, "offset": 5}) == {"data": "", "offset": 5, "size": 5, "nextOffset": None}
    error = desk.fails("attachment", {**source, "offset": 6})
    assert (error.code, error.fields["reason"]) == ("invalid_argument", "out_of_range")


def test_only_a_record_that_cites_exactly_this_path_and_hash_gives_it_out(desk: Desk) -> None:
    source = cite(desk, b"12345")
    other = desk.page("B")["id"]
    for tool in ("attachment", "evidence_read"):
        assert isinstance(desk.fails(tool, {**source, "id": "nobody"}), NotFound)
        error = desk.fails(tool, {**source, "sha256": "0" * 64})
        assert (error.code, error.fields["reason"], error.fields["readThrough"]) == (
            "evidence_invalid", "not_cited", [],
        )  # fmt: skip
        error = desk.fails(tool, {**source, "id": other})
        assert (error.fields["reason"], error.fields["readThrough"]) == ("not_cited", [source["id"]])


def test_a_source_aggregated_from_a_related_claim_must_be_read_through_that_claims_id(desk: Desk) -> None:
    page = desk.page("Garden Pilot")["id"]
    receipt = desk.call("remember", remembering({"text": "One.", "kind": "fact", "subject": "Garden Pilot"}))
    claim = items_of(receipt)[0]["id"]
    evidence = desk.record(claim, includeEvidence=True)["evidence"]
    assert isinstance(evidence, list)
    assert isinstance(evidence[0], dict)
    source: JsonObject = {"path": evidence[0]["path"], "sha256": evidence[0]["sha256"]}
    error = desk.fails("evidence_read", {**source, "id": page})
    assert isinstance(error, EvidenceInvalid)
    assert error.fields["readThrough"] == [claim]
    assert desk.call("evidence_read", {**source, "id": claim})["text"] == "User: One."


def test_an_upload_that_no_record_cites_is_not_given_out(desk: Desk) -> None:
    found = attach(desk, 1, b"12345")
    other = desk.page("B")["id"]
    source: JsonObject = {"id": other, "path": found["path"], "sha256": found["sha256"]}
    assert desk.fails("attachment", source).fields["reason"] == "not_cited"


def test_a_source_of_another_partition_is_not_given_out(desk: Desk) -> None:
    source = cite(desk, b"12345")
    desk.remember("One.", partition=GROUP_PARTITION)
    for tool in ("attachment", "evidence_read"):
        assert isinstance(desk.fails(tool, source, partition=GROUP_PARTITION), NotFound)


@pytest.mark.parametrize("tool", ["attachment", "evidence_read"])
def test_each_call_verifies_the_source_again(desk: Desk, tool: str) -> None:
    source = cite(desk, b"12345")
    assert desk.call(tool, source)
    retained = desk.folder() / str(source["path"])
    status = retained.stat()
    retained.write_bytes(b"1234x")
    os.utime(retained, ns=(status.st_atime_ns, status.st_mtime_ns))
    error = desk.fails(tool, source)
    assert (error.code, error.fields["reason"]) == ("evidence_invalid", "hash_mismatch")
    retained.unlink()
    assert desk.fails(tool, source).fields["reason"] == "missing"


def test_an_unchanged_source_is_hashed_once_however_many_chunks_are_read(desk: Desk) -> None:
    desk._verdicts = VerdictCache(now_ns=long_after)
    read: list[str] = []
    with faults.installed(read.append):
        source = cite(desk, os.urandom(3_000_000))
        assert download(desk, source)[1] == 92
    assert read.count("evidence.read") == 4  # three mebibytes and the end, once
    assert read.count("evidence.piece") == 92


# --- knowledge_evidence_read ------------------------------------------------------------------------------------------


def test_a_passage_comes_with_its_line_range(desk: Desk) -> None:
    source = cite(desk, LINES.encode())
    assert desk.call("evidence_read", source) == {"text": LINES, "startLine": 1, "endLine": 20}
    assert desk.call("evidence_read", {**source, "startLine": 3, "endLine": 4}) == {
        "text": "line 3\nline 4\n", "startLine": 3, "endLine": 4,
    }  # fmt: skip
    assert desk.call("evidence_read", {**source, "startLine": 20})["text"] == "line 20\n"
    assert desk.call("evidence_read", {**source, "endLine": 1})["text"] == "line 1\n"
    assert desk.call("evidence_read", {**source, "startLine": 19, "endLine": 99})["endLine"] == 20


def test_an_empty_source_has_no_lines(desk: Desk) -> None:
    assert desk.call("evidence_read", cite(desk, b"")) == {"text": ""}


def test_a_first_line_beyond_the_source_is_refused_with_the_number_of_lines(desk: Desk) -> None:
    source = cite(desk, LINES.encode())
    error = desk.fails("evidence_read", {**source, "startLine": 21})
    assert (error.fields["field"], error.fields["allowed"]) == ("startLine", "1 to 20")


def test_a_narrowed_citation_is_read_by_default_and_never_left(desk: Desk) -> None:
    source = cite(desk, LINES.encode(), start_line=5, end_line=7)
    assert desk.call("evidence_read", source) == {"text": "line 5\nline 6\nline 7\n", "startLine": 5, "endLine": 7}
    assert desk.call("evidence_read", {**source, "startLine": 6})["text"] == "line 6\nline 7\n"
    for wanted in ({"startLine": 4}, {"endLine": 8}, {"startLine": 8}, {"startLine": 1, "endLine": 20}, {"endLine": 4}):
        error = desk.fails("evidence_read", {**source, **wanted})
        assert isinstance(error, InvalidArgument), wanted
        assert (error.fields["reason"], error.fields["allowed"]) == ("out_of_range", ["5-7"])


def test_of_several_citations_the_one_that_holds_the_wanted_lines_is_read(desk: Desk) -> None:
    found = attach(desk, 1, LINES.encode())
    parts = [{**found, "start_line": 2, "end_line": 3}, {**found, "start_line": 10, "end_line": 12}]
    page = desk.page("A", attachments=parts)["id"]
    source: JsonObject = {"id": page, "path": found["path"], "sha256": found["sha256"]}
    assert desk.call("evidence_read", source)["startLine"] == 2
    assert desk.call("evidence_read", {**source, "startLine": 11, "endLine": 11})["text"] == "line 11\n"
    assert desk.fails("evidence_read", {**source, "startLine": 3, "endLine": 10}).fields["allowed"] == ["2-3", "10-12"]


@pytest.mark.parametrize("size", [256, 257, 3_000])
def test_windows_join_to_the_passage_and_split_neither_a_character_nor_a_surrogate_pair(desk: Desk, size: int) -> None:
    chosen = random.Random(size)
    text = "".join(chosen.choice("a é\n議👍\u0301𝄞\r\n") for _ in range(9_000))
    source = cite(desk, text.encode())
    answers = read_all(desk, source, maxChars=size)
    assert text_of(answers) == text
    line = 1
    for answer in answers:
        window = str(answer["text"])
        assert size - 1 <= utf16_length(window) <= size or answer is answers[-1]
        assert answer["startLine"] == line
        last = line + window.count("\n") - window.endswith("\n")
        assert answer["endLine"] == last
        line += window.count("\n")


def test_the_windows_of_a_narrowed_passage_stay_inside_it(desk: Desk) -> None:
    lines = [f"{number}:" + "x" * 400 + "\r\n" for number in range(1, 41)]
    source = cite(desk, "".join(lines).encode(), start_line=10, end_line=30)
    answers = read_all(desk, source, maxChars=500)
    assert text_of(answers) == "".join(lines[9:30])
    assert (answers[0]["startLine"], answers[-1]["endLine"]) == (10, 30)
    wanted = read_all(desk, source, startLine=12, endLine=20, maxChars=300)
    assert text_of(wanted) == "".join(lines[11:20])


def test_a_following_window_is_read_without_a_search_from_the_beginning(desk: Desk) -> None:
    desk._verdicts = VerdictCache(now_ns=long_after)
    source = cite(desk, (LINES * 40_000).encode())
    cursor = desk.call("evidence_read", source)["nextCursor"]
    read: list[str] = []
    with faults.installed(read.append):
        desk.call("evidence_read", {**source, "cursor": cursor})
    assert (read.count("evidence.read"), read.count("evidence.piece")) == (0, 1)


@pytest.mark.parametrize(
    "data", [b"\x89PNG\r\n\x1a\n\0\0", b"text\xff", "caf\u00e9".encode("latin-1"), b"a\0b", b"\xf0\x9f\x91"]
)
def test_a_binary_source_is_refused_with_a_pointer_to_knowledge_attachment(desk: Desk, data: bytes) -> None:
    source = cite(desk, data)
    error = desk.fails("evidence_read", source)
    assert (error.code, error.fields["reason"]) == ("evidence_invalid", "binary")
    assert "knowledge_attachment" in error.message
    assert download(desk, source)[0] == data


def test_a_binary_part_that_begins_late_is_refused_from_the_first_window_on(desk: Desk) -> None:
    source = cite(desk, b"a" * 3_000_000 + b"\0")
    assert desk.fails("evidence_read", source).fields["reason"] == "binary"


def test_a_cursor_is_good_for_its_id_path_hash_and_range_only(desk: Desk) -> None:
    found = attach(desk, 1, (LINES * 100).encode())
    one, two = (desk.page(title, attachments=[found])["id"] for title in ("A", "B"))
    source: JsonObject = {"id": one, "path": found["path"], "sha256": found["sha256"]}
    cursor = desk.call("evidence_read", {**source, "startLine": 2, "endLine": 1_500})["nextCursor"]
    assert desk.call("evidence_read", {**source, "cursor": cursor, "startLine": 2, "endLine": 1_500})["text"]
    assert desk.call("evidence_read", {**source, "cursor": cursor, "maxChars": 256})["text"]
    for change in ({"id": two}, {"startLine": 3}, {"endLine": 9}):
        error = desk.fails("evidence_read", {**source, "cursor": cursor, **change})
        assert (error.code, error.fields["field"], error.fields["reason"]) == ("invalid_argument", "cursor", "foreign")
    again = desk.call("evidence_read", {**source, "cursor": cursor})
    desk.close()
    assert desk.call("evidence_read", {**source, "cursor": cursor}) == again


@pytest.mark.parametrize("cursor", ["x", "W10", "bnVsbA", "WzEsMSxudWxsLG51bGwsInh4Il0", "👍", "W1tbW1tb", "MQ"])
def test_a_cursor_that_nobody_gave_is_refused(desk: Desk, cursor: str) -> None:
    error = desk.fails("evidence_read", {**cite(desk, LINES.encode()), "cursor": cursor})
    assert (error.code, error.fields["field"]) == ("invalid_argument", "cursor")


def test_a_citation_written_by_hand_leads_nowhere_outside_the_partitions_artifacts(desk: Desk) -> None:
    page = desk.page("A")["id"]
    path = desk.path_of(str(page))
    secret = b"secret"
    write_note(desk.folder(), "secret.txt", secret.decode())
    for named in ("artifacts/../secret.txt", "secret.txt", "/etc/passwd"):
        lines = path.read_text("utf-8").split("---\n", 2)[1].splitlines(keepends=True)
        kept = [line for line in lines if not line.startswith(("evidence", "  -"))]
        kept.append(f'evidence: [{{"path": "{named}", "sha256": "{digest(secret)}"}}]\n')
        path.write_text("---\n" + "".join(kept) + "---\n\nAbout it.\n", "utf-8")
        error = desk.fails("attachment", {"id": page, "path": named, "sha256": digest(secret)})
        assert error.code in ("invalid_argument", "evidence_invalid")

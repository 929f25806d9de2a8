"""``knowledge_attach``, chunk by chunk, without a thread."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from messages.errors import Denied, InvalidArgument, OntologyChanged, RequestIdReused, StorageError, VaultMismatch
from messages.json_types import JsonObject
from storage import faults
from tests.kit.sources import CHUNK, attach, chunk, chunks, descriptor, digest, upload_id
from tests.kit.store import GROUP_PARTITION, VAULT_ID, Desk, items_of, remembering

TEXT = b"first line\nsecond line\n"


def folder(desk: Desk, number: int) -> Path:
    return desk.folder() / "artifacts" / upload_id(number)


def left(desk: Desk) -> list[str]:
    """Everything that lies among the partition's artifacts."""
    root = desk.folder() / "artifacts"
    return sorted(str(path.relative_to(root)) for path in root.rglob("*") if path.is_file())


# --- the ordinary way -------------------------------------------------------------------------------------------------


def test_before_final_the_answer_is_what_was_received_and_then_the_descriptor(desk: Desk) -> None:
    assert desk.call("attach", chunk(1, 0, TEXT[:5])) == {"received": 5}
    assert desk.call("attach", chunk(1, 5, TEXT[5:9])) == {"received": 9}
    answer = desk.call("attach", chunk(1, 9, TEXT[9:], final=True))
    assert answer == {"evidence": descriptor(1, TEXT)}
    assert (folder(desk, 1) / "notes.txt").read_bytes() == TEXT
    assert left(desk) == [f"{upload_id(1)}/notes.txt"]


def test_an_empty_original_and_one_of_exactly_one_chunk_are_retained(desk: Desk) -> None:
    assert attach(desk, 1, b"") == descriptor(1, b"")
    whole = os.urandom(CHUNK)
    assert attach(desk, 2, whole)["sha256"] == digest(whole)


def test_an_empty_final_chunk_ends_an_upload_whose_bytes_are_all_there(desk: Desk) -> None:
    desk.call("attach", chunk(1, 0, TEXT))
    last = chunk(1, len(TEXT), b"", final=True)
    assert desk.call("attach", last) == {"evidence": descriptor(1, TEXT)}
    assert desk.call("attach", last) == {"evidence": descriptor(1, TEXT)}


def test_an_incomplete_original_has_no_name_that_could_be_cited(desk: Desk) -> None:
    desk.call("attach", chunk(1, 0, TEXT))
    assert left(desk) == [f"{upload_id(1)}/.kr-upload"]
    for path in (f"artifacts/{upload_id(1)}/notes.txt", f"artifacts/{upload_id(1)}/.kr-upload"):
        error = desk.fails("save_page", {
            "title": "A", "type": "project", "body": "", "attachments": [{"path": path, "sha256": digest(TEXT)}],
        })  # fmt: skip
        assert (error.code, error.fields["reason"]) == ("evidence_invalid", "not_retained")


def test_hashing_the_whole_original_is_asked_of_a_helper_once_with_the_final_chunk(desk: Desk) -> None:
    for call in chunks(1, os.urandom(3 * CHUNK + 5)):
        desk.call("attach", call)
    assert desk.needs == ["source"]


# --- repeats ----------------------------------------------------------------------------------------------------------


def test_a_retry_of_an_identical_chunk_is_harmless_before_and_after_the_end(desk: Desk) -> None:
    data = os.urandom(2 * CHUNK + 7)
    calls = list(chunks(1, data))
    desk.call("attach", calls[0])
    assert desk.call("attach", calls[0]) == {"received": CHUNK}
    desk.call("attach", calls[1])
    assert desk.call("attach", calls[0]) == {"received": 2 * CHUNK}
    answer = desk.call("attach", calls[2])
    assert desk.call("attach", calls[2]) == answer
    assert desk.call("attach", calls[0]) == {"received": len(data)}
    assert (folder(desk, 1) / "notes.txt").read_bytes() == data


def test_an_upload_goes_on_after_the_store_was_opened_again(desk: Desk) -> None:
    calls = list(chunks(1, os.urandom(3 * CHUNK)))
    for call in calls:
        answer = desk.call("attach", call)
        desk.close(clean=False)
        assert desk.call("attach", call) == answer
    assert left(desk) == [f"{upload_id(1)}/notes.txt"]


@pytest.mark.parametrize(
    ("change", "field", "reason"),
    [
        ({"data": chunk(1, 0, b"First")["data"]}, "data", "other_chunk"),
        ({"data": chunk(1, 0, TEXT)["data"]}, "data", "other_chunk"),
        ({"filename": "other.txt"}, "filename", "changed"),
        ({"mediaType": "text/html"}, "mediaType", "changed"),
        ({"attribution": "somebody else"}, "attribution", "changed"),
        ({"data": chunk(1, 0, TEXT[:3])["data"], "final": True}, "final", "not_last"),
    ],
)
def test_what_differs_from_what_the_upload_began_with_is_refused_by_name(
    desk: Desk, change: JsonObject, field: str, reason: str
) -> None:
    desk.call("attach", chunk(1, 0, TEXT[:5]))
    error = desk.fails("attach", {**chunk(1, 0, TEXT[:5]), **change})
    assert isinstance(error, RequestIdReused)
    assert (error.fields["field"], error.fields["reason"]) == (field, reason)
    assert error.fields["requestId"] == upload_id(1)
    assert desk.call("attach", chunk(1, 5, TEXT[5:], final=True)) == {"evidence": descriptor(1, TEXT)}


def test_a_gap_is_refused_with_the_offset_to_go_on_from(desk: Desk) -> None:
    for offset, received in ((6, 5), (10**12, 5)):
        desk.call("attach", chunk(1, 0, TEXT[:5]))
        error = desk.fails("attach", chunk(1, offset, b"x"))
        assert isinstance(error, InvalidArgument)
        assert (error.fields["field"], error.fields["reason"], error.fields["received"]) == ("offset", "gap", received)
    unknown = desk.fails("attach", chunk(2, 1, b"x"))
    assert (unknown.fields["reason"], unknown.fields["received"]) == ("gap", 0)
    assert not folder(desk, 2).exists()


def test_nothing_is_added_to_an_original_that_is_complete(desk: Desk) -> None:
    attach(desk, 1, TEXT)
    for final in (False, True):
        error = desk.fails("attach", chunk(1, len(TEXT), b"more", final=final))
        assert (error.code, error.fields["reason"]) == ("request_id_reused", "other_chunk")
    assert (folder(desk, 1) / "notes.txt").read_bytes() == TEXT


# --- request ids ------------------------------------------------------------------------------------------------------


def test_a_request_id_of_a_publication_takes_no_upload_and_the_other_way_round(desk: Desk) -> None:
    desk.call("remember", {**remembering("One."), "requestId": upload_id(1)})
    error = desk.fails("attach", chunk(1, 0, TEXT))
    assert (error.code, error.fields["field"]) == ("request_id_reused", "requestId")
    desk.call("attach", chunk(2, 0, TEXT))
    for tool, arguments in (
        ("remember", remembering("Two.")),
        ("save_page", {"title": "A", "type": "project", "body": ""}),
    ):
        error = desk.fails(tool, {**arguments, "requestId": upload_id(2)})
        assert (error.code, error.fields["requestId"]) == ("request_id_reused", upload_id(2))
    assert desk.call("records")["total"] == 1


def test_a_refused_first_chunk_leaves_nothing_and_its_id_free(desk: Desk) -> None:
    for more, kind in (
        ({"expectedVaultId": upload_id(7)}, VaultMismatch),
        ({"expectedOntologyFingerprint": "0" * 64}, OntologyChanged),
    ):
        assert isinstance(desk.fails("attach", {**chunk(1, 0, TEXT), **more}), kind)
    assert left(desk) == []
    desk.call("remember", {**remembering("One."), "requestId": upload_id(1)})
    good = {"expectedVaultId": VAULT_ID}
    assert desk.call("attach", {**chunk(2, 0, TEXT, final=True), **good})["evidence"] == descriptor(2, TEXT)


def test_a_fence_that_fails_later_does_not_change_the_answer_of_a_complete_original(desk: Desk) -> None:
    last = chunk(1, 0, TEXT, final=True)
    answer = desk.call("attach", last)
    assert desk.call("attach", {**last, "expectedOntologyFingerprint": "0" * 64}) == answer


# --- the same bytes ---------------------------------------------------------------------------------------------------


def test_bytes_that_are_retained_already_are_answered_with_the_existing_path_and_a_descriptor_of_their_own(
    desk: Desk,
) -> None:
    first = attach(desk, 1, TEXT)
    second = attach(desk, 2, TEXT, filename="again.txt", attribution="Alex")
    assert second == {**first, "filename": "again.txt", "attribution": "Alex"}
    assert left(desk) == [f"{upload_id(1)}/notes.txt"]
    assert not folder(desk, 2).exists()
    for number, expected in ((1, first), (2, second)):
        page = desk.page(f"Page {number}", attachments=[expected])["id"]
        [shown] = evidence_of(desk, page)
        assert (shown["filename"], shown["attribution"]) == (expected["filename"], expected["attribution"])
    last = chunk(2, 0, TEXT, final=True, filename="again.txt", attribution="Alex")
    assert desk.call("attach", last) == {"evidence": second}
    assert desk.call("attach", {**last, "final": False}) == {"received": len(TEXT)}


def test_the_bytes_of_an_excerpt_that_a_record_cites_are_not_kept_twice(desk: Desk) -> None:
    claim = items_of(desk.remember("One."))[0]["id"]
    [cited] = evidence_of(desk, claim)
    data = (desk.folder() / str(cited["path"])).read_bytes()
    assert attach(desk, 50, data)["path"] == cited["path"]


def test_an_excerpt_always_gets_a_file_of_its_own(desk: Desk) -> None:
    excerpt = "User: One."
    attach(desk, 50, excerpt.encode())
    claim = items_of(desk.remember("One.", excerpt=excerpt, requestId=upload_id(60)))[0]["id"]
    assert [shown["path"] for shown in evidence_of(desk, claim)] == [f"artifacts/{upload_id(60)}/excerpt.txt"]


@pytest.mark.parametrize("harm", [Path.unlink, lambda path: path.write_bytes(b"other bytes")])
def test_a_retained_file_that_does_not_hold_any_more_stands_for_nothing(
    desk: Desk, harm: Callable[[Path], object]
) -> None:
    attach(desk, 1, TEXT)
    harm(folder(desk, 1) / "notes.txt")
    assert attach(desk, 2, TEXT) == descriptor(2, TEXT)


def test_another_partition_neither_shares_the_bytes_nor_may_cite_them(desk: Desk) -> None:
    found = attach(desk, 1, TEXT)
    desk.remember("One.", partition=GROUP_PARTITION)
    error = desk.fails(
        "save_page",
        {"title": "A", "type": "project", "body": "", "attachments": [found], "requestId": upload_id(8)},
        partition=GROUP_PARTITION,
    )
    assert (error.code, error.fields["reason"]) == ("evidence_invalid", "not_retained")
    answer = desk.call("attach", chunk(1, 0, TEXT, final=True), partition=GROUP_PARTITION)
    assert answer == {"evidence": descriptor(1, TEXT)}
    assert (desk.folder(GROUP_PARTITION) / "artifacts" / upload_id(1) / "notes.txt").read_bytes() == TEXT


def test_the_first_call_of_a_conversation_may_be_an_upload_and_be_cited(desk: Desk) -> None:
    found = desk.call("attach", chunk(1, 0, TEXT, final=True), partition=GROUP_PARTITION)["evidence"]
    page: JsonObject = {"title": "A", "type": "project", "body": "", "attachments": [found]}
    assert desk.call("save_page", page, partition=GROUP_PARTITION)["revision"] == 1


# --- citing -----------------------------------------------------------------------------------------------------------


def evidence_of(desk: Desk, record: object) -> list[JsonObject]:
    found = desk.record(str(record), includeEvidence=True)["evidence"]
    assert isinstance(found, list)
    return [one for one in found if isinstance(one, dict)]


def test_a_finished_upload_may_be_cited_by_path_and_sha256_alone_and_its_descriptor_is_kept(desk: Desk) -> None:
    found = attach(desk, 1, TEXT)
    cited = {"path": found["path"], "sha256": found["sha256"]}
    page = desk.page("A", attachments=[{**cited, "start_line": 2, "quote": "second"}])["id"]
    [shown] = evidence_of(desk, page)
    assert shown["filename"] == "notes.txt"
    assert shown["media_type"] == "text/plain"
    assert shown["attribution"] == found["attribution"]
    assert (shown["start_line"], shown["end_line"], shown["excerpt"]) == (2, 2, "second line")
    assert "size: " not in str(shown)
    assert '"size": 23' in desk.path_of(str(page)).read_text("utf-8")


# --- file names -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("filename", "kept"),
    [
        ("notes.txt", "notes.txt"),
        ("Board Minutes (final).PDF", "Board-Minutes-(final).PDF"),
        ("Über uns – 2026.md", "Über-uns-2026.md"),
        ("Cafe\u0301.txt", "Café.txt"),
        ("議事録.pdf", "議事録.pdf"),
        ("CON", "source-CON"),
        ("aux.h", "source-aux.h"),
        ("com1.tar.gz", "source-com1.tar.gz"),
        (".kr-upload", "kr-upload"),
        (".git", "git"),
        ("...", "source"),
        ("-", "source"),
        ("name. ", "name"),
        ("a:b|c?d*e<f>.txt", "a-b-c-d-e-f.txt"),
        ("\u202egpj.exe", "gpj.exe"),
        ("👍.txt", "source.txt"),
        ("excerpt.txt", "excerpt.txt"),
        ("index.html", "index.html"),
        ("x" * 255, "x" * 113),
        ("é" * 251 + ".txt", "é" * 54 + ".txt"),
        ("a." + "b" * 60, "a." + "b" * 60),
    ],
)
def test_a_file_name_becomes_one_that_works_on_every_system_and_stays_in_the_descriptor(
    desk: Desk, filename: str, kept: str
) -> None:
    found = desk.call("attach", chunk(1, 0, TEXT, final=True, filename=filename))["evidence"]
    assert isinstance(found, dict)
    assert (found["path"], found["filename"]) == (f"artifacts/{upload_id(1)}/{kept}", filename)
    assert left(desk) == [f"{upload_id(1)}/{kept}"]
    assert desk.page("A", attachments=[found])["revision"] == 1


# --- files that do not hold still -------------------------------------------------------------------------------------


def test_bytes_that_somebody_took_from_the_received_file_are_asked_for_again(desk: Desk) -> None:
    desk.call("attach", chunk(1, 0, TEXT[:10]))
    os.truncate(folder(desk, 1) / ".kr-upload", 4)
    error = desk.fails("attach", chunk(1, 10, TEXT[10:], final=True))
    assert (error.fields["reason"], error.fields["received"]) == ("gap", 4)
    assert desk.call("attach", chunk(1, 4, TEXT[4:], final=True)) == {"evidence": descriptor(1, TEXT)}
    desk.call("attach", chunk(2, 0, b"12345"))
    (folder(desk, 2) / ".kr-upload").unlink()
    assert desk.fails("attach", chunk(2, 5, b"6")).fields["received"] == 0
    assert desk.call("attach", chunk(2, 0, b"12345")) == {"received": 5}


@pytest.mark.parametrize("kind", ["symlink", "hardlink"])
def test_a_received_file_that_somebody_replaced_by_a_link_is_never_written_through(
    desk: Desk, tmp_path: Path, kind: str
) -> None:
    desk.call("attach", chunk(1, 0, TEXT[:5]))
    partial = folder(desk, 1) / ".kr-upload"
    victim = tmp_path / "victim"
    victim.write_bytes(b"1234567890")
    partial.unlink()
    (partial.symlink_to if kind == "symlink" else partial.hardlink_to)(victim)
    error = desk.fails("attach", chunk(1, 5, b"evil!"))
    assert error.code in ("invalid_argument", "storage_error")
    assert victim.read_bytes() == b"1234567890"


def test_a_name_that_somebody_else_took_is_not_overwritten(desk: Desk) -> None:
    desk.call("attach", chunk(1, 0, TEXT))
    (folder(desk, 1) / "notes.txt").write_bytes(b"a person's")
    error = desk.fails("attach", chunk(1, len(TEXT), b"", final=True))
    assert (error.code, error.fields["reason"]) == ("storage_error", "taken")
    assert (folder(desk, 1) / "notes.txt").read_bytes() == b"a person's"
    (folder(desk, 1) / "notes.txt").unlink()
    assert desk.call("attach", chunk(1, len(TEXT), b"", final=True)) == {"evidence": descriptor(1, TEXT)}


# --- failures ---------------------------------------------------------------------------------------------------------


@contextmanager
def failing(point: str, code: int = errno.ENOSPC) -> Iterator[None]:
    def handler(reached: str) -> None:
        if reached == point:
            raise OSError(code, os.strerror(code))

    with faults.installed(handler):
        yield


@pytest.mark.parametrize("point", ["stage.mkdir", "upload.create.open", "upload.create.write", "upload.sync"])
def test_a_full_disk_at_the_first_chunk_leaves_nothing(desk: Desk, point: str) -> None:
    with failing(point):
        assert isinstance(desk.fails("attach", chunk(1, 0, TEXT)), StorageError)
    assert not folder(desk, 1).exists()
    assert attach(desk, 1, TEXT) == descriptor(1, TEXT)


@pytest.mark.parametrize("point", ["upload.open", "upload.write", "upload.write.after", "upload.sync"])
def test_a_full_disk_at_a_later_chunk_keeps_what_was_received(desk: Desk, point: str) -> None:
    desk.call("attach", chunk(1, 0, TEXT[:5]))
    with failing(point):
        assert isinstance(desk.fails("attach", chunk(1, 5, b"0123456789")), StorageError)
    # What the failed write left behind the received bytes is no part of the original.
    assert desk.call("attach", chunk(1, 5, TEXT[5:7])) == {"received": 7}
    assert desk.call("attach", chunk(1, 7, TEXT[7:], final=True)) == {"evidence": descriptor(1, TEXT)}


def test_what_a_failed_write_left_is_no_part_of_an_upload_that_is_ended_before_it(desk: Desk) -> None:
    desk.call("attach", chunk(1, 0, TEXT))
    with failing("upload.write.after"):
        desk.fails("attach", chunk(1, len(TEXT), b"lost"))
    assert desk.call("attach", chunk(1, 0, TEXT, final=True)) == {"evidence": descriptor(1, TEXT)}


def test_a_crash_between_the_two_names_of_a_file_system_without_exclusive_renames_is_mended(desk: Desk) -> None:
    desk.call("attach", chunk(1, 0, TEXT))
    last = chunk(1, len(TEXT), b"", final=True)
    with failing("upload.read", errno.EIO):
        desk.fails("attach", last)
    (folder(desk, 1) / "notes.txt").hardlink_to(folder(desk, 1) / ".kr-upload")
    assert desk.call("attach", last) == {"evidence": descriptor(1, TEXT)}
    assert left(desk) == [f"{upload_id(1)}/notes.txt"]


def lose_the_row(desk: Desk, *, back_to: int | None) -> None:
    """What a power cut does to rows that were committed without a sync: gone, or back to an earlier chunk."""
    publisher = desk.session.publisher
    with publisher.transaction(full=True, point="upload"):
        if back_to is None:
            publisher.db.execute("DELETE FROM upload")
        else:
            publisher.db.execute("UPDATE upload SET received = ?, size = NULL", (back_to,))


@pytest.mark.parametrize("back_to", [None, 5])
@pytest.mark.parametrize("pieces", [[TEXT], [TEXT[:5], TEXT[5:]]])
def test_an_upload_whose_row_was_lost_after_its_file_got_its_name_ends_under_its_request_id(
    desk: Desk, back_to: int | None, pieces: list[bytes]
) -> None:
    desk.call("attach", chunk(1, 0, TEXT[:5]))
    with failing("retain.begin", errno.EIO):
        desk.fails("attach", chunk(1, 5, TEXT[5:], final=True))
    assert left(desk) == [f"{upload_id(1)}/notes.txt"]
    lose_the_row(desk, back_to=back_to)
    answer: JsonObject = {}
    offset = 0
    for piece in pieces:
        answer = desk.call("attach", chunk(1, offset, piece, final=piece is pieces[-1]))
        offset += len(piece)
    assert answer == {"evidence": descriptor(1, TEXT)}
    assert left(desk) == [f"{upload_id(1)}/notes.txt"]


def test_a_file_with_the_wanted_name_and_size_but_other_bytes_is_not_taken_for_the_original(desk: Desk) -> None:
    desk.call("attach", chunk(1, 0, TEXT))
    (folder(desk, 1) / "notes.txt").write_bytes(TEXT.upper())
    last = chunk(1, len(TEXT), b"", final=True)
    assert desk.fails("attach", last).fields["reason"] == "taken"
    # Nor when the received one is not as long any more as it was: then the bytes are asked for again.
    os.truncate(folder(desk, 1) / ".kr-upload", len(TEXT) + 1)
    assert desk.fails("attach", last).fields["reason"] == "changed"
    assert (folder(desk, 1) / "notes.txt").read_bytes() == TEXT.upper()


def test_a_lost_row_between_the_two_names_of_a_file_is_mended_too(desk: Desk) -> None:
    desk.call("attach", chunk(1, 0, TEXT))
    (folder(desk, 1) / "notes.txt").hardlink_to(folder(desk, 1) / ".kr-upload")
    lose_the_row(desk, back_to=5)
    assert desk.fails("attach", chunk(1, 5, TEXT[5:], final=True)).fields["received"] == 0
    assert desk.call("attach", chunk(1, 0, TEXT, final=True)) == {"evidence": descriptor(1, TEXT)}
    assert left(desk) == [f"{upload_id(1)}/notes.txt"]


def test_bytes_sent_again_after_a_lost_row_leave_one_synced_file_or_both_when_the_sync_fails(desk: Desk) -> None:
    desk.call("attach", chunk(1, 0, TEXT))
    (folder(desk, 1) / "notes.txt").write_bytes(TEXT)
    last = chunk(1, len(TEXT), b"", final=True)
    with failing("upload.unlink", errno.EIO):
        assert isinstance(desk.fails("attach", last), StorageError)
    assert left(desk) == [f"{upload_id(1)}/.kr-upload", f"{upload_id(1)}/notes.txt"]
    assert desk.call("attach", last) == {"evidence": descriptor(1, TEXT)}
    assert left(desk) == [f"{upload_id(1)}/notes.txt"]


@pytest.mark.parametrize("point", ["upload.read", "upload.place", "retain.begin"])
def test_a_failure_at_the_end_of_an_upload_is_mended_by_repeating_the_last_chunk(desk: Desk, point: str) -> None:
    desk.call("attach", chunk(1, 0, TEXT[:5]))
    last = chunk(1, 5, TEXT[5:], final=True)
    with failing(point, errno.EIO):
        assert isinstance(desk.fails("attach", last), StorageError)
    assert desk.call("attach", last) == {"evidence": descriptor(1, TEXT)}
    assert left(desk) == [f"{upload_id(1)}/notes.txt"]


@pytest.mark.parametrize("when", range(1, 6))
def test_a_disk_that_fails_at_any_look_at_the_received_bytes_is_a_storage_error(desk: Desk, when: int) -> None:
    desk.call("attach", chunk(1, 0, TEXT[:5]))
    last = chunk(1, 5, TEXT[5:], final=True)
    passed = 0

    def handler(point: str) -> None:
        nonlocal passed
        passed += point == "upload.stat"
        if point == "upload.stat" and passed == when:
            raise OSError(errno.EIO, os.strerror(errno.EIO))

    with faults.installed(handler):
        try:
            desk.call("attach", last)
        except StorageError:
            assert passed >= when
        else:
            assert passed < when, "the failure was met and is told"
    assert desk.call("attach", last) == {"evidence": descriptor(1, TEXT)}


def test_a_right_that_ends_before_the_commit_keeps_nothing_citable(desk: Desk) -> None:
    ended = False

    def check() -> None:
        if ended:
            raise Denied("The grant has ended.")

    def handler(point: str) -> None:
        nonlocal ended
        ended = ended or point == "retain.begin.after"

    desk.check = check
    desk.call("attach", chunk(1, 0, TEXT))
    with faults.installed(handler):
        assert isinstance(desk.fails("attach", chunk(1, len(TEXT), b"", final=True)), Denied)
    assert ended
    ended = False
    page: JsonObject = {"title": "A", "type": "project", "body": "", "attachments": [descriptor(1, TEXT)]}
    assert desk.fails("save_page", page).fields["reason"] == "not_retained"


def test_a_repeat_of_an_upload_whose_file_was_removed_since_says_what_may_have_happened(desk: Desk) -> None:
    found = attach(desk, 1, b"text")
    (desk.folder() / str(found["path"])).unlink()
    error = desk.fails("attach", chunk(1, 0, b"text", final=True))
    assert (error.code, error.fields["reason"]) == ("request_id_reused", "other_chunk")
    assert "changed or removed" in error.message

"""knowledge_history, knowledge_revision, knowledge_mutation and knowledge_resume without a thread."""

from __future__ import annotations

import errno
import os
from pathlib import Path

from messages.errors import InvalidArgument, NotFound, PublicationPending
from messages.json_types import JsonObject, JsonValue
from messages.text import is_one_line, utf16_length
from messages.tools import GitState, json_bytes
from storage import faults
from tests.kit.store import (
    GROUP_PARTITION,
    Desk,
    claim_file,
    items_of,
    page_file,
    remembering,
    request_id,
    write_note,
)


def rows(answer: JsonObject, key: str = "rows") -> list[JsonObject]:
    found = answer[key]
    assert isinstance(found, list)
    return [row for row in found if isinstance(row, dict)]


def edit(desk: Desk, page: JsonObject, body: str, request: str | None = None) -> JsonObject:
    """Edit a page whose last receipt is ``page``."""
    fences: JsonObject = {"id": page["id"], "expectedRevision": page["revision"], "expectedHash": page["hash"]}
    extra: JsonObject = {} if request is None else {"requestId": request}
    return desk.call("save_page", {**fences, "title": "A", "type": "project", "body": body, **extra})


class Failing:
    """The disk fails at a point until it is mended."""

    def __init__(self, point: str, number: int = errno.EIO) -> None:
        self.point = point
        self.number = number
        self.mended = False

    def __call__(self, point: str) -> None:
        if point == self.point and not self.mended:
            raise OSError(self.number, os.strerror(self.number))


# --- history ----------------------------------------------------------------------------------------------------------


def test_history_lists_saves_and_external_edits_newest_first_with_their_authors(desk: Desk) -> None:
    page = desk.call("save_page", {"title": "A", "type": "project", "body": "One.", "requestId": request_id(1)})
    path = desk.path_of(str(page["id"]))
    path.write_text(path.read_text("utf-8").replace("One.", "By hand."), "utf-8")
    desk.agent = "research"
    desk.call("remember", {**remembering("A fact."), "requestId": request_id(2)})
    answer = desk.call("history")
    found = rows(answer)
    assert [(row["operation"], row["actor"], row.get("external"), row.get("requestId")) for row in found] == [
        ("remember", "research", None, request_id(2)),
        ("external", "external", True, None),
        ("save_page", "main", None, request_id(1)),
    ]
    assert [row["sequence"] for row in found] == sorted((row["sequence"] for row in found), reverse=True)  # type: ignore[type-var]  # numbers
    assert (found[1]["id"], found[1]["revision"]) == (page["id"], 1)
    assert found[1]["hash"] != page["hash"]
    assert answer["total"] == 3
    assert answer["git"] == {"state": "current", "pending": 0}


def test_history_of_one_record_lists_its_revisions_only_and_is_paged(desk: Desk) -> None:
    page = desk.page("A")
    desk.remember("A fact.")
    for number in range(4):
        page = edit(desk, page, f"Body {number}.")
    first = desk.call("history", {"id": page["id"], "limit": 3})
    assert ([row["revision"] for row in rows(first)], first["total"], first["nextOffset"]) == ([5, 4, 3], 5, 3)
    last = desk.call("history", {"id": page["id"], "limit": 3, "offset": 3})
    assert ([row["revision"] for row in rows(last)], "nextOffset" in last) == ([2, 1], False)


def test_history_of_a_deleted_record_ends_with_its_removal(desk: Desk) -> None:
    page = desk.page("A")
    desk.path_of(str(page["id"])).unlink()
    found = rows(desk.call("history", {"id": page["id"]}))
    assert [(row["operation"], row["hash"] == "") for row in found] == [("external", True), ("save_page", False)]
    assert found[0]["external"] is True
    assert desk.call("record", {"id": page["id"]}) == {"record": None}
    window = desk.call("revision", {"id": page["id"], "sequence": found[1]["sequence"]})
    assert "About it." in str(window["content"])


def test_history_never_shows_another_partition(desk: Desk) -> None:
    private = items_of(desk.remember("Private."))[0]["id"]
    desk.remember("Shared.", partition=GROUP_PARTITION)
    assert desk.call("history")["total"] == 1
    assert desk.call("history", partition=GROUP_PARTITION)["total"] == 1
    assert desk.call("history", {"id": private}, partition=GROUP_PARTITION) == {
        "total": 0, "git": {"state": "current", "pending": 0}, "rows": [],
    }  # fmt: skip
    assert [row["sequence"] for row in rows(desk.call("history", partition=GROUP_PARTITION))] == [1]


# --- revisions --------------------------------------------------------------------------------------------------------


def test_a_revision_is_the_exact_text_it_had_in_windows_that_join(desk: Desk) -> None:
    page = desk.page("A", body="🙂" * 2_000)
    original = desk.path_of(str(page["id"])).read_text("utf-8")
    edit(desk, page, "Short.")
    [_, row] = rows(desk.call("history", {"id": page["id"]}))
    pieces: list[str] = []
    arguments: JsonObject = {"id": page["id"], "sequence": row["sequence"], "maxChars": 1_001}
    while True:
        window = desk.call("revision", arguments)
        assert window["hash"] == page["hash"]
        pieces.append(str(window["content"]))
        if "nextOffset" not in window:
            break
        arguments = {**arguments, "offset": window["nextOffset"]}
    assert "".join(pieces) == original


def test_a_revision_that_history_does_not_have_is_not_found(desk: Desk) -> None:
    page = desk.page("A")
    desk.remember("A fact.")
    for record_id, sequence in ((page["id"], 2), (page["id"], 99), ("nobody", 1)):
        assert isinstance(desk.fails("revision", {"id": record_id, "sequence": sequence}), NotFound)
    assert isinstance(desk.fails("revision", {"id": page["id"], "sequence": 1}, partition=GROUP_PARTITION), NotFound)
    assert isinstance(desk.fails("revision", {"id": page["id"], "sequence": 1, "offset": 99_999}), InvalidArgument)


# --- mutations --------------------------------------------------------------------------------------------------------


def test_a_mutation_gives_the_complete_receipt_and_the_texts(desk: Desk) -> None:
    page = desk.page("A", body="One.")
    before = desk.path_of(str(page["id"])).read_text("utf-8")
    edit(desk, page, "Two.", request_id(7))
    after = desk.path_of(str(page["id"])).read_text("utf-8")
    answer = desk.call("mutation", {"requestId": request_id(7)})
    receipt = answer["receipt"]
    assert isinstance(receipt, dict)
    assert (receipt["requestId"], receipt["operation"], receipt["state"], receipt["indexed"]) == (
        request_id(7), "save_page", "published", False,
    )  # fmt: skip
    assert (receipt["id"], receipt["revision"], receipt["path"]) == (page["id"], 2, "projects/a.md")
    assert str(receipt["at"]).startswith("2026-11-02T")
    [file] = rows(answer, "files")
    assert file["path"] == "projects/a.md"
    assert file["before"] == {"text": before}
    assert file["proposed"] == {"text": after}
    assert "displaced" not in file
    bare = desk.call("mutation", {"requestId": request_id(7), "includeFiles": False})
    assert "files" not in bare
    assert bare["receipt"] == receipt


def test_files_of_a_mutation_come_three_at_a_time_and_long_texts_continue(desk: Desk) -> None:
    texts = [f"Fact {n}. " + "word " * 600 for n in range(4)]
    desk.call("remember", {**remembering(*texts), "excerpt": "short", "requestId": request_id(7)})
    first = desk.call("mutation", {"requestId": request_id(7)})
    assert (len(rows(first, "files")), first["nextFileOffset"]) == (3, 3)
    second = desk.call("mutation", {"requestId": request_id(7), "fileOffset": 3, "maxChars": 1_000})
    assert "nextFileOffset" not in second
    shown = [*rows(first, "files"), *rows(second, "files")]
    assert len({file["path"] for file in shown}) == 5
    proposed = rows(second, "files")[0]["proposed"]
    assert isinstance(proposed, dict)
    whole = str(proposed["text"])
    offset: JsonValue = proposed["nextCharOffset"]
    while offset is not None:
        more = desk.call(
            "mutation",
            {
                "requestId": request_id(7),
                "fileOffset": 3,
                "contentField": "proposed",
                "charOffset": offset,
                "maxChars": 1_000,
            },
        )  # fmt: skip
        piece = rows(more, "files")[0]["proposed"]
        assert isinstance(piece, dict)
        whole += str(piece["text"])
        offset = piece.get("nextCharOffset")
    assert whole == (desk.folder() / str(rows(second, "files")[0]["path"])).read_text("utf-8")


def test_a_request_of_another_partition_is_not_found(desk: Desk) -> None:
    desk.call("remember", {**remembering("Private."), "requestId": request_id(7)})
    for tool in ("mutation", "resume"):
        assert isinstance(desk.fails(tool, {"requestId": request_id(7)}, partition=GROUP_PARTITION), NotFound)
        assert isinstance(desk.fails(tool, {"requestId": request_id(8)}), NotFound)


def test_the_same_request_id_in_two_partitions_is_two_requests(desk: Desk) -> None:
    request = {**remembering("A fact."), "requestId": request_id(7)}
    first = items_of(desk.call("remember", request))[0]["id"]
    second = items_of(desk.call("remember", request, partition=GROUP_PARTITION))[0]["id"]
    assert first != second
    assert items_of(desk.call("remember", request))[0]["id"] == first


# --- pending, conflict, resume ----------------------------------------------------------------------------------------


def test_resume_of_a_published_request_gives_its_receipt_again(desk: Desk) -> None:
    receipt = desk.call("remember", {**remembering("A fact."), "requestId": request_id(7)})
    assert desk.call("resume", {"requestId": request_id(7)}) == receipt


def test_a_publication_whose_files_cannot_be_placed_is_pending_and_resume_finishes_it(desk: Desk) -> None:
    desk.partition()
    request = {**remembering("A fact."), "requestId": request_id(7)}
    with faults.installed(Failing("place.file")):
        answer = desk.call("remember", request)
        assert (answer["state"], answer["requestId"]) == ("pending", request_id(7))
        assert "knowledge_resume" in str(answer["message"])
    done = desk.call("resume", {"requestId": request_id(7)})
    assert "state" not in done
    assert len(items_of(done)) == 1
    assert desk.call("remember", request) == done


def test_ordinary_reads_and_other_writes_are_blocked_while_a_publication_is_pending(desk: Desk) -> None:
    page = desk.page("A")
    with faults.installed(Failing("place.file")):
        desk.call("remember", {**remembering("A fact."), "requestId": request_id(7)})
        for tool, arguments in (
            ("record", {"id": page["id"]}),
            ("lookup", {"query": "A"}),
            ("grep", {"query": "A"}),
            ("records", {}),
            ("ontology", {}),
            ("remember", remembering("Another.")),
            ("save_page", {"title": "B", "type": "project", "body": ""}),
        ):
            error = desk.fails(tool, arguments)
            assert isinstance(error, PublicationPending), tool
            assert error.retry == "safe"


def test_status_history_mutation_resume_and_the_same_request_answer_while_it_is_pending(desk: Desk) -> None:
    desk.page("A")
    request = {**remembering("A fact."), "requestId": request_id(7)}
    with faults.installed(Failing("place.file")):
        desk.call("remember", request)
        assert desk.call("status")["publications"] == {"pending": 1, "conflict": 0}
        assert "save_page" in [row["operation"] for row in rows(desk.call("history"))]
        mutation = desk.call("mutation", {"requestId": request_id(7)})
        assert mutation["receipt"] == {"state": "pending", "requestId": request_id(7)}
        assert len(rows(mutation, "files")) == 2
        assert desk.call("resume", {"requestId": request_id(7)})["state"] == "pending"
        assert desk.call("remember", request)["state"] == "pending"
        sequence = rows(desk.call("history"))[-1]["sequence"]
        assert desk.call("revision", {"id": rows(desk.call("history"))[-1]["id"], "sequence": sequence})["content"]
    assert "state" not in desk.call("remember", request)
    assert desk.call("status")["publications"] == {"pending": 0, "conflict": 0}


def test_a_pending_publication_is_finished_by_the_next_read_that_can(desk: Desk) -> None:
    desk.partition()
    with faults.installed(Failing("place.file")):
        desk.call("remember", {**remembering("A fact."), "requestId": request_id(7)})
    assert desk.call("records")["total"] == 1


class PersonSaves:
    """A person saves the page at the moment at which ours is being put in place."""

    def __init__(self, path: Path, text: str) -> None:
        self.path = path
        self.text = text
        self.done = False

    def __call__(self, point: str) -> None:
        if point == "accept.commit.after" and not self.done:
            self.done = True
            self.path.write_text(self.text, "utf-8")


def test_a_conflict_leaves_the_persons_text_and_shows_ours_and_is_final(desk: Desk) -> None:
    page = desk.page("A", body="One.")
    path = desk.path_of(str(page["id"]))
    theirs = path.read_text("utf-8").replace("One.", "Theirs.")
    request: JsonObject = {
        "id": page["id"], "expectedRevision": 1, "expectedHash": page["hash"], "title": "A", "type": "project",
        "body": "Ours.", "requestId": request_id(7),
    }  # fmt: skip
    with faults.installed(PersonSaves(path, theirs)):
        answer = desk.call("save_page", request)
    assert answer["state"] == "conflict"
    assert isinstance(answer["message"], str)
    assert path.read_text("utf-8") == theirs
    assert desk.record(page["id"])["body"] == "Theirs.\n"
    assert desk.call("status")["publications"] == {"pending": 0, "conflict": 1}
    [file] = rows(desk.call("mutation", {"requestId": request_id(7)}), "files")
    proposed, before = file["proposed"], file["before"]
    assert isinstance(proposed, dict)
    assert isinstance(before, dict)
    assert "Ours." in str(proposed["text"])
    assert "One." in str(before["text"])
    for _ in range(2):
        assert desk.call("resume", {"requestId": request_id(7)})["state"] == "conflict"
        assert desk.call("save_page", request)["state"] == "conflict"
    assert path.read_text("utf-8") == theirs
    assert all("Ours." not in str(row) for row in rows(desk.call("history")))
    assert desk.call("grep", {"query": "ours"})["total"] == 0


def test_git_stands_beside_a_receipt_only_when_it_needs_attention(desk: Desk) -> None:
    request = {**remembering("A fact."), "requestId": request_id(7)}
    quiet = desk.call("remember", request)
    desk.git = GitState("pending", 1)
    assert desk.call("remember", request) == quiet
    for state, message in (("pending", "The index is locked."), ("unavailable", "Git is off.")):
        desk.git = GitState(state, 1, message)  # type: ignore[arg-type]  # one of its states
        assert desk.call("remember", request) == {**quiet, "git": {"state": state, "message": message}}


def test_the_history_of_a_broken_and_mended_file_keeps_every_text(desk: Desk) -> None:
    path = write_note(desk.folder(), "a.md", page_file("a", "A", body="first\n"))
    assert desk.record("a")["body"] == "first\n"
    path.write_text("---\nid: [\n---\nbroken\n", "utf-8")
    assert desk.call("record", {"id": "a"}) == {"record": None}
    path.write_text(page_file("a", "A", body="second\n"), "utf-8")
    assert desk.record("a")["body"] == "second\n"
    texts = [
        desk.call("revision", {"id": "a", "sequence": row["sequence"]})["content"]
        for row in rows(desk.call("history", {"id": "a"}))
        if row["hash"]
    ]
    assert any("first" in str(text) for text in texts)
    assert any("second" in str(text) for text in texts)


def test_texts_of_other_records_never_appear_in_a_history_row(desk: Desk) -> None:
    write_note(desk.folder(), "c.md", claim_file("c1", "secret words"))
    assert "secret" not in str(desk.call("history"))


def test_what_git_says_at_length_is_cut_and_the_list_stays_within_24_kib(desk: Desk) -> None:
    for number in range(90):
        desk.page(f"Page {number}", requestId=request_id(number))
    for letter in ("x", "\N{CJK UNIFIED IDEOGRAPH-6587}", "\x07", "\n", "\N{SLIGHTLY SMILING FACE}"):
        desk.git = GitState("pending", 3, f"The checkpoint failed. Git said: {letter * 2_000}")
        answers = {tool: desk.call(tool, {"limit": 100} if tool == "history" else {}) for tool in ("history", "status")}
        answers["mutation"] = desk.call("mutation", {"requestId": request_id(1), "includeFiles": False})
        for tool, answer in answers.items():
            git = answer["git"]
            assert isinstance(git, dict)
            message = git["message"]
            assert isinstance(message, str)
            assert message.startswith("The checkpoint failed. Git said:")
            assert utf16_length(message) <= 500
            assert is_one_line(message)
            assert json_bytes(answer) <= (24 if tool == "history" else 4) * 1024, tool

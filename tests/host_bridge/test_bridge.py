"""The Python door, with everything behind it real: threads, files, SQLite, Git."""

from __future__ import annotations

import logging
import os
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import pytest

from host_bridge.bridge import KnowledgeBridge
from messages.audience import Conversation
from messages.envelope import Call, Deadline
from messages.errors import (
    InvalidArgument,
    KnowledgeError,
    OpenElsewhere,
    PublicationPending,
    Stopping,
    UnknownTool,
)
from messages.json_types import JsonObject, JsonValue
from messages.tools import CATALOGUE
from messages.vocabulary import PRIVATE, Partition
from storage import faults
from tests.kit.actors import eventually
from tests.kit.leaks import nothing_left
from tests.kit.store import (
    GROUP,
    MAIN,
    claim_file,
    failure,
    items_of,
    only_store,
    open_bridge,
    page_file,
    remember,
    remembering,
    request_id,
    stores,
    write_note,
)


@pytest.fixture
def bridge(tmp_path: Path) -> Iterator[KnowledgeBridge]:
    with nothing_left(), open_bridge(tmp_path) as opened:
        yield opened


def vault(bridge: KnowledgeBridge, partition: Partition = PRIVATE) -> Path:
    return only_store(bridge.state_dir).partition(partition)


def hits(bridge: KnowledgeBridge, query: str, audience: Conversation | None = None) -> list[JsonValue]:
    answer = bridge.call("knowledge_grep", {"query": query}, audience or MAIN)
    assert answer["total"] is not None, answer
    found = answer["hits"]
    assert isinstance(found, list)
    return [hit["id"] for hit in found if isinstance(hit, dict)]


def lookup(bridge: KnowledgeBridge, query: str, audience: Conversation | None = None) -> JsonValue:
    return bridge.call("knowledge_lookup", {"query": query}, audience or MAIN)["state"]


# --- all tools --------------------------------------------------------------------------------------------------------


def test_a_save_is_found_by_every_read_that_follows(bridge: KnowledgeBridge) -> None:
    assert bridge.call("knowledge_grep", {"query": "anything"}, MAIN) == {"total": 0, "hits": []}
    page = bridge.call(
        "knowledge_save_page",
        {"title": "Garden Pilot", "type": "project", "body": "Ships on Friday.", "requestId": request_id(1)},
        MAIN,
    )
    [claim] = items_of(
        bridge.call(
            "knowledge_remember",
            {**remembering("Garden Pilot chose option B."), "requestId": request_id(2)},
            MAIN,
        )
    )
    assert claim["subject"] == {"state": "found", "id": page["id"]}
    assert lookup(bridge, "garden pilot") == "found"
    assert set(hits(bridge, "garden")) == {page["id"], claim["id"]}
    assert bridge.call("knowledge_records", {}, MAIN)["total"] == 2
    shown = bridge.call("knowledge_record", {"id": claim["id"], "includeEvidence": True}, MAIN)["record"]
    assert isinstance(shown, dict)
    assert "option B" in str(shown["evidence"])
    status = bridge.call("knowledge_status", {}, MAIN)
    assert status["counts"] == {"page": {"active": 1}, "claim": {"active": 1}}
    assert bridge.call("knowledge_ontology", {}, MAIN)["fingerprint"] == page["ontologyFingerprint"]
    assert bridge.call("knowledge_history", {}, MAIN)["total"] == 2
    window = bridge.call("knowledge_revision", {"id": page["id"], "sequence": 1}, MAIN)
    assert "Ships on Friday." in str(window["content"])
    receipt = bridge.call("knowledge_mutation", {"requestId": request_id(1)}, MAIN)["receipt"]
    assert isinstance(receipt, dict)
    assert receipt["hash"] == page["hash"]
    assert bridge.call("knowledge_resume", {"requestId": request_id(1)}, MAIN) == page


def test_evidence_is_verified_off_the_lane_before_a_page_cites_it(bridge: KnowledgeBridge) -> None:
    [claim] = items_of(remember(bridge, "A fact.", 1))
    shown = bridge.call("knowledge_record", {"id": claim["id"], "includeEvidence": True}, MAIN)["record"]
    assert isinstance(shown, dict)
    [citation] = shown["evidence"]
    citation.pop("excerpt")
    request: JsonObject = {"title": "A", "type": "project", "body": "", "attachments": [citation]}
    page = bridge.call("knowledge_save_page", {**request, "requestId": request_id(2)}, MAIN)
    assert page["revision"] == 1
    (vault(bridge) / citation["path"]).write_text("tampered", "utf-8")
    error = failure(bridge, "save_page", {**request, "title": "B", "requestId": request_id(3)})
    assert (error.code, error.fields["reason"]) == ("evidence_invalid", "hash_mismatch")


def test_arguments_are_refused_with_field_and_reason_before_any_store_is_made(bridge: KnowledgeBridge) -> None:
    error = failure(bridge, "lookup", {"query": "x", "store": "other"})
    assert isinstance(error, InvalidArgument)
    assert error.fields["field"] == "store"
    with pytest.raises(UnknownTool):
        bridge.call("knowledge_nothing", {}, MAIN)
    for deadline_ms in (0, 600_001):
        with pytest.raises(InvalidArgument):
            bridge.call("knowledge_status", {}, MAIN, deadline_ms=deadline_ms)
    assert stores(bridge.state_dir) == []


def test_every_tool_is_listed_for_every_host(bridge: KnowledgeBridge) -> None:
    for form in ("mcp", "openai", "anthropic"):
        assert len(bridge.tools(form)) == len(CATALOGUE)


def test_a_flush_that_repeats_a_save_without_an_id_repeats_the_same_request(bridge: KnowledgeBridge) -> None:
    request = remembering("A fact.")
    first = bridge.call("knowledge_remember", request, MAIN, flush_id="flush 1")
    assert bridge.call("knowledge_remember", request, MAIN, flush_id="flush 1") == first
    again = items_of(bridge.call("knowledge_remember", request, MAIN, flush_id="flush 2"))
    assert again[0]["duplicate"] is True
    assert bridge.call("knowledge_records", {}, MAIN)["total"] == 1


# --- external edits ---------------------------------------------------------------------------------------------------


def in_place(path: Path, text: str) -> None:
    path.write_text(text, "utf-8")


def renamed_over(path: Path, text: str) -> None:
    other = path.with_name(f"{path.name}.tmp~")
    other.write_text(text, "utf-8")
    os.replace(other, path)


def removed_and_made_again(path: Path, text: str) -> None:
    path.unlink()
    path.write_text(text, "utf-8")


@pytest.mark.parametrize("save", [in_place, renamed_over, removed_and_made_again])
def test_an_edit_by_a_person_is_seen_by_the_next_query(
    bridge: KnowledgeBridge, save: Callable[[Path, str], None]
) -> None:
    bridge.call("knowledge_status", {}, MAIN)
    path = write_note(vault(bridge), "projects/g.md", page_file("garden", "Garden", body="old words\n"))
    assert lookup(bridge, "Garden") == "found"
    for number in range(5):
        save(path, page_file("garden", f"Garden {number}", body=f"words number{number}\n"))
        assert lookup(bridge, f"Garden {number}") == "found"
        assert hits(bridge, f"number{number}") == ["garden"]
        assert lookup(bridge, f"Garden {number - 1}") == "missing"


def test_added_moved_broken_mended_and_deleted_files_are_seen_by_the_next_query(bridge: KnowledgeBridge) -> None:
    bridge.call("knowledge_status", {}, MAIN)
    path = write_note(vault(bridge), "new/folder/g.md", page_file("garden", "Garden"))
    assert lookup(bridge, "Garden") == "found"
    (vault(bridge) / "new").rename(vault(bridge) / "moved")
    assert lookup(bridge, "Garden") == "found"
    moved = vault(bridge) / "moved/folder/g.md"
    assert moved.exists()
    assert not path.exists()
    moved.write_text("---\nid: garden\ntitle: [\n", "utf-8")
    assert lookup(bridge, "Garden") == "missing"
    moved.write_text(page_file("garden", "Garden again"), "utf-8")
    assert lookup(bridge, "Garden again") == "found"
    moved.unlink()
    assert lookup(bridge, "Garden again") == "missing"
    assert hits(bridge, "garden") == []


def test_an_edit_in_a_conversation_is_seen_by_its_next_query(bridge: KnowledgeBridge) -> None:
    [claim] = items_of(remember(bridge, "The group meets on Monday.", 1, GROUP))
    partition = Partition(GROUP.session_id)
    [path] = vault(bridge, partition).rglob("*.md")
    path.write_text(path.read_text("utf-8").replace("Monday", "Tuesday"), "utf-8")
    assert hits(bridge, "tuesday", GROUP) == [claim["id"]]
    assert hits(bridge, "monday.", GROUP) == []
    write_note(vault(bridge, partition), "c.md", claim_file("by-hand", "Bring cake.", partition=partition))
    assert hits(bridge, "cake", GROUP) == ["by-hand"]


# --- partitions -------------------------------------------------------------------------------------------------------


def test_partitions_never_see_each_other(bridge: KnowledgeBridge) -> None:
    request: JsonObject = {"title": "Garden", "type": "project", "body": "Private plans.", "requestId": request_id(1)}
    private = bridge.call("knowledge_save_page", request, MAIN)
    shared = bridge.call("knowledge_save_page", request, GROUP)
    assert shared["id"] != private["id"], "the same request id in another partition is another request"
    assert shared.get("state") is None, "a title in another partition is no same title"
    assert hits(bridge, "plans") == [private["id"]]
    assert hits(bridge, "plans", GROUP) == [shared["id"]]
    for record_id, audience in ((private["id"], GROUP), (shared["id"], MAIN)):
        assert bridge.call("knowledge_record", {"id": record_id}, audience) == {"record": None}
        assert bridge.call("knowledge_lookup", {"query": record_id}, audience)["state"] == "missing"
    [mine] = items_of(remember(bridge, "It is so.", 2))
    [theirs] = items_of(remember(bridge, "It is so.", 2, GROUP))
    assert "duplicate" not in theirs
    assert mine["id"] != theirs["id"]
    other = Conversation("main", "chat:other", request_id(99))
    assert hits(bridge, "plans", other) == []
    for audience in (MAIN, GROUP):
        rows = bridge.call("knowledge_history", {}, audience)["rows"]
        assert isinstance(rows, list)
        assert [row["sequence"] for row in rows if isinstance(row, dict)] == [2, 1]
    assert bridge.call("knowledge_history", {}, other)["total"] == 0


def test_a_record_whose_scope_is_not_its_folders_is_withheld_and_never_relabelled(bridge: KnowledgeBridge) -> None:
    bridge.call("knowledge_status", {}, MAIN)
    foreign = page_file("garden", "Garden", partition=Partition(GROUP.session_id))
    path = write_note(vault(bridge), "g.md", foreign)
    assert lookup(bridge, "Garden") == "missing"
    assert bridge.call("knowledge_records", {"lifecycle": "all"}, MAIN)["total"] == 0
    assert path.read_text("utf-8") == foreign


# --- the keyword index ------------------------------------------------------------------------------------------------


def test_an_index_that_is_deleted_while_it_is_open_is_built_anew(bridge: KnowledgeBridge) -> None:
    [claim] = items_of(remember(bridge, "The harbor is closed.", 1))
    assert hits(bridge, "harbor") == [claim["id"]]
    for _ in range(2):
        for file in only_store(bridge.state_dir).search.iterdir():
            file.unlink()
        assert hits(bridge, "harbor") == [claim["id"]]
    [second] = items_of(remember(bridge, "The harbor is open.", 2))
    assert set(hits(bridge, "harbor")) == {claim["id"], second["id"]}


def test_an_index_that_is_damaged_while_it_is_open_never_gives_zero_hits_and_is_built_anew(
    bridge: KnowledgeBridge,
) -> None:
    [claim] = items_of(remember(bridge, "The harbor is closed.", 1))
    assert hits(bridge, "harbor") == [claim["id"]]
    path = only_store(bridge.state_dir).search_index(PRIVATE)
    for file in path.parent.iterdir():
        file.write_bytes(os.urandom(max(4096, file.stat().st_size)))

    def answered() -> bool:
        answer = bridge.call("knowledge_grep", {"query": "harbor"}, MAIN)
        if answer["total"] is None:
            assert answer["hits"] == []
            assert isinstance(answer["index"], dict)
            assert answer["index"]["state"] == "unavailable"
            return False
        assert answer["total"] == 1
        return True

    eventually(answered)
    assert hits(bridge, "harbor") == [claim["id"]]


def _missing(path: Path) -> None:
    path.unlink()


def _corrupt(path: Path) -> None:
    path.write_bytes(os.urandom(8_192))


def _older(path: Path) -> None:
    with closing(sqlite3.connect(path)) as database:
        database.execute("PRAGMA user_version = 1")


@pytest.mark.parametrize("damage", [_missing, _corrupt, _older])
def test_a_missing_corrupt_or_older_index_is_rebuilt_reported_and_answers_when_done(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, damage: Callable[[Path], None]
) -> None:
    caplog.set_level(logging.INFO)
    with open_bridge(tmp_path) as bridge:
        [claim] = items_of(remember(bridge, "The harbor is closed.", 1))
        assert hits(bridge, "harbor") == [claim["id"]]
        path = only_store(bridge.state_dir).search_index(PRIVATE)
    caplog.clear()
    for log in path.parent.glob("*-*"):
        log.unlink()
    damage(path)
    with open_bridge(tmp_path) as bridge:
        assert hits(bridge, "harbor") == [claim["id"]]
        assert hits(bridge, "nothing") == []
    reported = [record for record in caplog.records if record.message == "the keyword index is built anew"]
    assert [vars(record)["reason"] for record in reported] == [damage.__name__.removeprefix("_")]


def test_a_search_whose_index_cannot_catch_up_in_time_is_unavailable(bridge: KnowledgeBridge) -> None:
    remember(bridge, "The harbor is closed.", 1)
    assert len(hits(bridge, "harbor")) == 1

    def full(point: str) -> None:
        if point == "search.apply.commit":
            raise OSError(28, "No space left on device")

    with faults.installed(full):
        remember(bridge, "The harbor is open.", 2)
        answer = bridge.call("knowledge_grep", {"query": "harbor"}, MAIN, deadline_ms=3_000)
    assert (answer["total"], answer["hits"]) == (None, [])
    assert isinstance(answer["index"], dict)
    assert answer["index"]["state"] == "unavailable"
    assert len(hits(bridge, "harbor")) == 2


# --- a publication that is not finished -------------------------------------------------------------------------------


def test_reads_are_blocked_while_a_publication_is_pending_and_recovery_answers(bridge: KnowledgeBridge) -> None:
    bridge.call("knowledge_status", {}, MAIN)

    def failing(point: str) -> None:
        if point == "place.file":
            raise OSError(5, "Input/output error")

    request = {**remembering("A fact."), "requestId": request_id(1)}
    with faults.installed(failing):
        assert bridge.call("knowledge_remember", request, MAIN)["state"] == "pending"
        assert bridge.call("knowledge_remember", request, MAIN)["state"] == "pending"
        assert isinstance(failure(bridge, "lookup", {"query": "x"}), PublicationPending)
        assert isinstance(failure(bridge, "grep", {"query": "x"}), PublicationPending)
        status = bridge.call("knowledge_status", {}, MAIN)
        assert status["publications"] == {"pending": 1, "conflict": 0}
        assert bridge.call("knowledge_resume", {"requestId": request_id(1)}, MAIN)["state"] == "pending"
        assert bridge.call("knowledge_mutation", {"requestId": request_id(1)}, MAIN)["files"]
        assert bridge.call("knowledge_history", {}, MAIN)["rows"] is not None
    done = bridge.call("knowledge_resume", {"requestId": request_id(1)}, MAIN)
    assert bridge.call("knowledge_remember", request, MAIN) == done
    assert len(hits(bridge, "fact")) == 1


# --- life -------------------------------------------------------------------------------------------------------------


def test_a_directory_has_one_bridge_at_a_time(bridge: KnowledgeBridge) -> None:
    with pytest.raises(OpenElsewhere):
        KnowledgeBridge(bridge.state_dir)
    assert lookup(bridge, "x") == "missing"


def test_after_close_every_call_is_refused_as_stopping_and_close_may_be_repeated(tmp_path: Path) -> None:
    with nothing_left():
        with open_bridge(tmp_path) as bridge:
            remember(bridge, "A fact.", 1)
        error = failure(bridge, "status", {})
        assert isinstance(error, Stopping)
        assert error.retry == "safe"
        bridge.close()


def test_close_leaves_no_thread_actor_or_open_file_of_the_directory(tmp_path: Path) -> None:
    watches = inotify_instances()  # of a runtime that another module shares between its tests
    with nothing_left():
        with open_bridge(tmp_path) as bridge:
            remember(bridge, "A fact.", 1)
            remember(bridge, "A fact.", 1, GROUP)
            assert len(hits(bridge, "fact")) == len(hits(bridge, "fact", GROUP)) == 1
            assert open_below(tmp_path), "the check sees what is open"
    assert open_below(tmp_path) == []
    assert inotify_instances() == watches


def open_below(folder: Path) -> list[str]:
    found = []
    for name in os.listdir("/proc/self/fd"):
        try:
            target = os.readlink(f"/proc/self/fd/{name}")
        except FileNotFoundError:
            continue
        if target.startswith(f"{folder}/"):
            found.append(target)
    return found


def inotify_instances() -> int:
    count = 0
    for name in os.listdir("/proc/self/fd"):
        try:
            count += os.readlink(f"/proc/self/fd/{name}") == "anon_inode:inotify"
        except FileNotFoundError:
            continue
    return count


def test_health_is_published_without_asking_and_creates_nothing(bridge: KnowledgeBridge) -> None:
    health = bridge.health()
    assert health["stores"] == []
    assert stores(bridge.state_dir) == []
    bridge.call("knowledge_status", {}, MAIN)
    assert len(bridge.health()["stores"]) == 1  # type: ignore[arg-type]  # a list
    assert "harbor" not in str(bridge.health())


def test_a_callback_is_called_once_and_the_answer_delivered_under_the_lease(bridge: KnowledgeBridge) -> None:
    pending = bridge.submit(Call("knowledge_status", {}, MAIN, Deadline.after(10)))
    called: list[object] = []
    pending.add_done_callback(called.append)
    eventually(lambda: len(called) == 1)
    pending.add_done_callback(called.append)
    assert called == [pending, pending]
    answers: list[JsonObject] = []
    pending.deliver(answers.append)
    assert answers[0]["partition"] == "private"


def test_a_failed_call_is_delivered_as_its_typed_error_and_never_handed_over(bridge: KnowledgeBridge) -> None:
    pending = bridge.submit(Call("knowledge_lookup", {"query": ""}, MAIN, Deadline.after(10)))
    answers: list[JsonObject] = []
    with pytest.raises(KnowledgeError):
        pending.deliver(answers.append)
    assert answers == []

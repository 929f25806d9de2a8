"""Originals through the Python door: restarts, races, other agents, and what a large one costs."""

from __future__ import annotations

import hashlib
import os
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from host_bridge.bridge import KnowledgeBridge
from messages.audience import Audience, OwnerPrivate
from messages.errors import KnowledgeError, RequestIdReused
from messages.json_types import JsonObject
from storage import faults
from tests.kit.actors import eventually
from tests.kit.leaks import nothing_left
from tests.kit.sources import CHUNK, chunk, chunks, descriptor, digest, upload_id
from tests.kit.store import GROUP, MAIN, failure, only_store, open_bridge, remember, request_id, stores

TEXT = b"first line\nsecond line\n"
AGENTS = "agents: {list: [{id: main}, {id: research}]}\n"
SHARED = AGENTS + "stores: {team: {label: Team, agents: [main, research]}}\n"
RESEARCH = OwnerPrivate("research")
MIB = 1 << 20


@pytest.fixture(autouse=True)
def leaks() -> Iterator[None]:
    with nothing_left():
        yield


def upload(bridge: KnowledgeBridge, number: int, data: bytes, audience: Audience = MAIN) -> JsonObject:
    *_, last = [bridge.call("knowledge_attach", call, audience) for call in chunks(number, data)]
    found = last["evidence"]
    assert isinstance(found, dict)
    return found


def citing_page(bridge: KnowledgeBridge, number: int, evidence: JsonObject, audience: Audience = MAIN) -> JsonObject:
    page = bridge.call(
        "knowledge_save_page",
        {
            "requestId": request_id(number), "title": f"Page {number}", "type": "project", "body": "",
            "attachments": [evidence],
        },
        audience,
    )  # fmt: skip
    return {"id": page["id"], "path": evidence["path"], "sha256": evidence["sha256"]}


def at_once(number: int, call: object) -> list[object]:
    """What each of some threads got from the same call, begun together."""
    assert callable(call)
    gate = threading.Barrier(number)
    found: list[object] = []

    def body() -> None:
        gate.wait()
        try:
            found.append(call())
        except KnowledgeError as error:
            found.append(error)

    threads = [threading.Thread(target=body) for _ in range(number)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return found


def test_an_original_is_attached_cited_read_and_downloaded(tmp_path: Path) -> None:
    with open_bridge(tmp_path) as bridge:
        found = upload(bridge, 1, TEXT)
        assert found == descriptor(1, TEXT)
        source = citing_page(bridge, 1, found)
        read = bridge.call("knowledge_evidence_read", {**source, "startLine": 2}, MAIN)
        assert read == {"text": "second line\n", "startLine": 2, "endLine": 2}
        chunk_of = bridge.call("knowledge_attachment", source, MAIN)
        assert chunk_of == {"data": chunk(1, 0, TEXT)["data"], "offset": 0, "size": len(TEXT), "nextOffset": None}
        page = bridge.call("knowledge_record", {"id": source["id"]}, MAIN)["record"]
        assert isinstance(page, dict)
        receipt = bridge.call(
            "knowledge_reconcile_evidence",
            {
                "requestId": request_id(2), "id": source["id"], "expectedRevision": page["revision"],
                "expectedHash": page["hash"], "evidence": [], "reason": "not needed",
            },
            MAIN,
        )  # fmt: skip
        assert receipt["revision"] == 2
        assert failure(bridge, "attachment", source).fields["reason"] == "not_cited"


def test_an_upload_goes_on_in_another_session_and_after_a_restart(tmp_path: Path) -> None:
    data = os.urandom(3 * CHUNK)
    calls = list(chunks(1, data))
    with open_bridge(tmp_path) as bridge:
        bridge.call("knowledge_attach", calls[0], OwnerPrivate("main", run_id="one"))
        bridge.call("knowledge_attach", calls[1], OwnerPrivate("main", run_id="two"))
    with open_bridge(tmp_path) as bridge:
        gap = failure(bridge, "attach", chunk(1, len(data), b"", final=True))
        assert gap.fields["received"] == 2 * CHUNK
        assert bridge.call("knowledge_attach", calls[2], MAIN) == {"evidence": descriptor(1, data)}


def test_a_lane_that_dies_at_a_chunk_answers_typed_and_the_same_chunk_again_is_taken(tmp_path: Path) -> None:
    crashed = threading.Event()

    def crash(point: str) -> None:
        if point == "upload.sync.after" and not crashed.is_set():
            crashed.set()
            raise RuntimeError("a defect of ours")

    with open_bridge(tmp_path) as bridge:
        bridge.call("knowledge_attach", chunk(1, 0, TEXT[:5]), MAIN)
        with faults.installed(crash):
            error = failure(bridge, "attach", chunk(1, 5, TEXT[5:9]))
        assert (error.code, error.retry) == ("internal", "unknown")
        assert bridge.call("knowledge_attach", chunk(1, 5, TEXT[5:9]), MAIN) == {"received": 9}
        assert bridge.call("knowledge_attach", chunk(1, 9, TEXT[9:], final=True), MAIN)["evidence"]


@pytest.mark.parametrize("first", [True, False])
def test_threads_that_send_one_chunk_at_once_all_get_the_same_answer(tmp_path: Path, first: bool) -> None:
    with open_bridge(tmp_path) as bridge:
        if not first:
            bridge.call("knowledge_attach", chunk(1, 0, TEXT[:5]), MAIN)
        call = chunk(1, 0 if first else 5, TEXT if first else TEXT[5:], final=True)
        found = at_once(4, lambda: bridge.call("knowledge_attach", call, MAIN))
        assert found == [{"evidence": descriptor(1, TEXT)}] * 4
    retained = only_store(tmp_path).vault / "private" / "artifacts" / upload_id(1)
    assert [path.name for path in retained.iterdir()] == ["notes.txt"]


def test_threads_that_use_one_request_id_for_different_originals_get_one_original(tmp_path: Path) -> None:
    data = iter([b"one", b"two", b"three"])
    with open_bridge(tmp_path) as bridge:
        found = at_once(3, lambda: bridge.call("knowledge_attach", chunk(1, 0, next(data), final=True), MAIN))
        answers = [one for one in found if isinstance(one, dict)]
        assert len(answers) == 1
        assert all(isinstance(one, RequestIdReused) for one in found if not isinstance(one, dict))


def test_threads_that_attach_one_file_at_once_all_get_the_same_answer(tmp_path: Path) -> None:
    work = tmp_path / "work"
    work.mkdir()
    data = os.urandom(5 * MIB)
    (work / "big.bin").write_bytes(data)
    call: JsonObject = {
        "requestId": upload_id(1), "filePath": "big.bin", "sha256": digest(data), "filename": "big.bin",
        "attribution": "Alex",
    }  # fmt: skip
    with open_bridge(tmp_path / "state", f"workspace: {work}\n") as bridge:
        found = at_once(4, lambda: bridge.call("knowledge_attach_file", call, MAIN))
        assert all(one == found[0] and isinstance(one, dict) for one in found)
    retained = only_store(tmp_path / "state").vault / "private" / "artifacts" / upload_id(1)
    assert [path.name for path in retained.iterdir()] == ["big.bin"]


def test_another_agent_and_a_conversation_neither_see_nor_continue_an_upload(tmp_path: Path) -> None:
    with open_bridge(tmp_path, AGENTS) as bridge:
        bridge.call("knowledge_attach", chunk(1, 0, TEXT[:5]), MAIN)
        found = upload(bridge, 2, TEXT)
        source = citing_page(bridge, 1, found)
        for audience in (RESEARCH, GROUP):
            remember(bridge, "One.", 9, audience)
            assert failure(bridge, "attach", chunk(1, 5, TEXT[5:]), audience).fields["received"] == 0
            assert failure(bridge, "attachment", source, audience).code == "not_found"
            assert failure(bridge, "evidence_read", source, audience).code == "not_found"
            page: JsonObject = {"title": "A", "type": "project", "body": "", "attachments": [found]}
            error = failure(bridge, "save_page", {**page, "requestId": request_id(8)}, audience)
            assert (error.code, error.fields["reason"]) == ("evidence_invalid", "not_retained")
    assert len(stores(tmp_path)) == 2


def test_agents_that_share_a_store_continue_each_others_uploads(tmp_path: Path) -> None:
    with open_bridge(tmp_path, SHARED) as bridge:
        bridge.call("knowledge_attach", chunk(1, 0, TEXT[:5]), MAIN)
        answer = bridge.call("knowledge_attach", chunk(1, 5, TEXT[5:], final=True), RESEARCH)
        assert answer == {"evidence": descriptor(1, TEXT)}


def test_where_writes_are_off_nothing_is_attached_and_reading_goes_on(tmp_path: Path) -> None:
    with open_bridge(tmp_path) as bridge:
        source = citing_page(bridge, 1, upload(bridge, 1, TEXT))
    with open_bridge(tmp_path, "writesEnabled: false\n") as bridge:
        assert failure(bridge, "attach", chunk(2, 0, TEXT)).code == "writes_disabled"
        assert bridge.call("knowledge_evidence_read", source, MAIN)["text"] == TEXT.decode()


def test_a_conversation_and_a_host_without_a_workspace_attach_no_file(tmp_path: Path) -> None:
    call: JsonObject = {
        "requestId": upload_id(1), "filePath": "a", "sha256": "0" * 64, "filename": "a", "attribution": "Alex",
    }  # fmt: skip
    with open_bridge(tmp_path) as bridge:
        assert failure(bridge, "attach_file", call).fields["reason"] == "no_workspace"
    with open_bridge(tmp_path, f"workspace: {tmp_path}\n") as bridge:
        assert failure(bridge, "attach_file", call, GROUP).code == "denied"


@pytest.mark.parametrize(("tool", "helper", "point"), [
    ("attach_file", "source keeper", "upload.write"), ("save_page", "evidence verifier", "evidence.read"),
])  # fmt: skip
def test_a_stop_does_not_wait_for_a_large_original_and_leaves_nothing_of_a_copy(
    tmp_path: Path, tool: str, helper: str, point: str
) -> None:
    sha256 = sparse(tmp_path / "big.bin", 64 * MIB)
    attached: JsonObject = {
        "requestId": upload_id(1), "filePath": "big.bin", "sha256": sha256, "filename": "big.bin",
        "attribution": "Alex",
    }  # fmt: skip
    page: JsonObject = {"requestId": request_id(1), "title": "Big", "type": "project", "body": ""}
    watch = Watch((point,))
    found: list[KnowledgeError] = []
    with open_bridge(tmp_path / "state", f"workspace: {tmp_path}\n") as bridge:
        remember(bridge, "One.", 50)
        if tool == "save_page":
            page["attachments"] = [bridge.call("knowledge_attach_file", attached, MAIN)["evidence"]]
        [store] = stores(tmp_path / "state")
        inbox = bridge._runtime._tree.handle(f"store {store.name}/helpers/{helper}")._slot.inbox
        arguments = attached if tool == "attach_file" else page
        caller = threading.Thread(target=lambda: found.append(failure(bridge, tool, arguments)))
        closer = threading.Thread(target=lambda: bridge.close(drain_seconds=0.05))
        with faults.installed(watch):
            caller.start()
            assert watch.middle.wait(60)
            closer.start()
            eventually(inbox.leaving)
            watch.go_on.set()
            closer.join()  # raises, and fails the test, if an actor is stuck
            caller.join()
    assert watch.pieces <= 10
    assert [error.code for error in found] == ["stopping"]
    artifacts = only_store(tmp_path / "state").vault / "private" / "artifacts"
    left = [path.relative_to(artifacts) for path in artifacts.rglob("*") if path.is_file()]
    assert [path for path in left if str(path).startswith(".kr-") or path.name.startswith(".kr-")] == []


# --- large originals --------------------------------------------------------------------------------------------------


def resident_bytes() -> int:
    """What this process has in memory now."""
    pages = Path("/proc/self/statm").read_text("ascii").split()[1]
    return int(pages) * os.sysconf("SC_PAGE_SIZE")


def sparse(path: Path, size: int) -> str:
    """A file of that size, mostly holes; its hash."""
    with path.open("wb") as file:
        file.truncate(size)
        for at in range(0, size, 64 * MIB):
            file.seek(at)
            file.write(b"a passage\n")
    hashed = hashlib.sha256()
    with path.open("rb") as file:
        while piece := file.read(MIB):
            hashed.update(piece)
    return hashed.hexdigest()


class Watch:
    """Counts pieces of a long read, and looks at this process's memory at each; runs something once in the middle."""

    def __init__(self, points: tuple[str, ...], at: int = 8) -> None:
        self.pieces = 0
        self.highest = 0
        self.middle = threading.Event()
        self.go_on = threading.Event()
        self._points, self._at = points, at

    def __call__(self, point: str) -> None:
        if point not in self._points:
            return
        self.pieces += 1
        self.highest = max(self.highest, resident_bytes())
        if self.pieces == self._at:
            self.middle.set()
            assert self.go_on.wait(60), "whoever was to be served meanwhile was not"


@pytest.mark.parametrize(
    "size", [96 * MIB, pytest.param(1 << 30, marks=[pytest.mark.slow, pytest.mark.timeout(600)])], ids=["96M", "1G"]
)
def test_a_large_original_costs_little_memory_and_a_lookup_is_answered_while_it_is_read(
    tmp_path: Path, size: int
) -> None:
    """Copying, then hashing for a citation: each stands still in its middle until a lookup was answered."""
    work = tmp_path / "work"
    work.mkdir()
    name = work / "big.bin"
    sha256 = sparse(name, size)
    with open_bridge(tmp_path / "state", SHARED + f"workspace: {work}\n") as bridge:
        remember(bridge, "One.", 50)
        before = resident_bytes()
        call: JsonObject = {
            "requestId": upload_id(1), "filePath": "big.bin", "sha256": sha256, "filename": "big.bin",
            "attribution": "Alex",
        }  # fmt: skip
        copied = Watch(("upload.write",))
        found = serving(bridge, copied, "knowledge_attach_file", call)["evidence"]
        assert isinstance(found, dict)
        assert (found["size"], found["sha256"]) == (size, sha256)
        hashed = Watch(("evidence.read",))
        page = serving(bridge, hashed, "knowledge_save_page", {
            "requestId": request_id(51), "title": "Big", "type": "project", "body": "", "attachments": [found],
        })  # fmt: skip
        source: JsonObject = {"id": page["id"], "path": found["path"], "sha256": sha256}
        assert len(str(bridge.call("knowledge_attachment", {**source, "offset": size - 5}, MAIN)["data"])) == 8
        assert failure(bridge, "evidence_read", source).fields["reason"] == "binary"
        assert copied.pieces >= size // MIB
        assert hashed.pieces >= size // MIB
        assert max(copied.highest, hashed.highest) - before < 64 * MIB


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_an_original_of_many_chunks_costs_little_memory_and_is_hashed_beside_the_lane(tmp_path: Path) -> None:
    data = os.urandom(CHUNK)
    number = 96 * MIB // CHUNK
    with open_bridge(tmp_path, SHARED) as bridge:
        remember(bridge, "One.", 50)
        before = resident_bytes()
        for at in range(number):
            bridge.call("knowledge_attach", chunk(1, at * CHUNK, data), MAIN)
        hashed = Watch(("upload.read",))
        last = chunk(1, number * CHUNK, b"", final=True)
        found = serving(bridge, hashed, "knowledge_attach", last)["evidence"]
        assert isinstance(found, dict)
        assert (found["size"], found["sha256"]) == (number * CHUNK, digest(data * number))
        assert hashed.highest - before < 64 * MIB


def serving(bridge: KnowledgeBridge, watch: Watch, tool: str, arguments: JsonObject) -> JsonObject:
    """The answer of a long call, in whose middle another agent's lookup is answered."""
    answers: list[JsonObject] = []
    thread = threading.Thread(
        target=lambda: answers.append(bridge.call(tool, arguments, MAIN, deadline_ms=300_000))
    )
    with faults.installed(watch):
        thread.start()
        assert watch.middle.wait(60)
        assert bridge.call("knowledge_lookup", {"query": "Nobody"}, RESEARCH)["state"] == "missing"
        assert not answers
        watch.go_on.set()
        thread.join()
    return answers[0]

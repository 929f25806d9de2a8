"""Operators on the real runtime: scopes, status, adoption of notes and vaults, refused losses, moved stores."""

from __future__ import annotations

import json
import os
import shutil
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from actors.operators import PendingOperation
from host_bridge.bridge import KnowledgeBridge
from messages.errors import (
    Busy,
    DeletionsRefused,
    Denied,
    DuplicateIdentity,
    InvalidArgument,
    KnowledgeError,
    NotFound,
    StorageError,
    StoreOpening,
    VaultOlderThanDatabase,
    WritesDisabled,
)
from messages.json_types import JsonObject, JsonValue
from messages.operator import LOCAL_OPERATOR, Operator, parse_operator_call
from storage import faults
from storage.layout import StoreLayout
from storage.state import notices
from storage.state.connection import Database
from tests.kit.actors import eventually
from tests.kit.store import MAIN, only_store, open_bridge, remembering, stores, write_note


def answer(pending: PendingOperation) -> JsonObject:
    pending.wait()
    got: list[JsonObject] = []
    pending.deliver(got.append)
    return got[0]


def operate(
    bridge: KnowledgeBridge,
    method: str,
    operator: Operator = LOCAL_OPERATOR,
    given: JsonObject | None = None,
    **params: JsonValue,
) -> JsonObject:
    call = parse_operator_call(f"operator.{method}", {**(given or {}), **params}, peer=operator)
    return answer(bridge.operate(call))


def refused(
    bridge: KnowledgeBridge,
    method: str,
    operator: Operator = LOCAL_OPERATOR,
    given: JsonObject | None = None,
    **params: JsonValue,
) -> KnowledgeError:
    try:
        found = operate(bridge, method, operator, {**(given or {}), **params})
    except KnowledgeError as error:
        return error
    raise AssertionError(f"answered: {sorted(found)}")


def adopt(bridge: KnowledgeBridge, *paths: str, **more: JsonValue) -> JsonObject:
    return operate(bridge, "adopt", given={"requestId": str(uuid.uuid4()), "paths": list(paths), **more})


def adopt_refused(bridge: KnowledgeBridge, *paths: str, **more: JsonValue) -> KnowledgeError:
    return refused(bridge, "adopt", given={"requestId": str(uuid.uuid4()), "paths": list(paths), **more})


def save_page(bridge: KnowledgeBridge, title: str, body: str = "About it.") -> JsonObject:
    arguments: JsonObject = {"requestId": str(uuid.uuid4()), "title": title, "type": "project", "body": body}
    return bridge.call("knowledge_save_page", arguments, MAIN)


def listed(value: JsonValue) -> list[JsonObject]:
    assert isinstance(value, list)
    assert all(isinstance(item, dict) for item in value)
    return [item for item in value if isinstance(item, dict)]


def member(value: JsonObject, name: str) -> JsonObject:
    found = value[name]
    assert isinstance(found, dict)
    return found


@pytest.fixture
def bridge(tmp_path: Path) -> Iterator[KnowledgeBridge]:
    with open_bridge(tmp_path / "state") as opened:
        yield opened


@pytest.fixture
def layout(bridge: KnowledgeBridge) -> StoreLayout:
    """The store of agent main, made by its first call."""
    bridge.call("knowledge_status", {}, MAIN)
    return only_store(bridge.state_dir)


# --- who may ask ---------------------------------------------------------------------------------------------


READER = Operator("reader", frozenset(("operator.read",)))
WRITER = Operator("writer", frozenset(("operator.write",)))
NOBODY = Operator("nobody", frozenset())


def test_an_operators_question_never_creates_a_store(bridge: KnowledgeBridge) -> None:
    assert operate(bridge, "status") == {"agent": "main", "state": "none"}
    assert isinstance(refused(bridge, "diagnostics"), NotFound)
    assert isinstance(adopt_refused(bridge, "a.md"), NotFound)
    assert isinstance(refused(bridge, "adoptStore"), NotFound)
    assert stores(bridge.state_dir) == []


def test_each_request_needs_its_scope(bridge: KnowledgeBridge, layout: StoreLayout) -> None:
    for operator in (READER, WRITER):
        assert operate(bridge, "status", operator)["state"] == "open"
        assert operate(bridge, "diagnostics", operator)["total"] == 0
        cases: tuple[tuple[str, JsonObject], ...] = (
            ("adopt", {"requestId": str(uuid.uuid4()), "paths": ["a.md"]}),
            ("acceptDeletions", {}),
            ("adoptStore", {}),
            ("relocateStore", {"store": layout.root.name, "path": "/nowhere"}),
        )
        for method, params in cases:
            error = refused(bridge, method, operator, params)
            assert isinstance(error, Denied)
            assert error.fields["scope"] == "operator.admin"
    assert isinstance(refused(bridge, "status", NOBODY), Denied)


def test_an_operator_limited_to_agents_sees_no_others_and_moves_no_store_of_others(tmp_path: Path) -> None:
    with open_bridge(tmp_path / "state", "agents: {list: [{id: main}, {id: ben}]}") as bridge:
        bridge.call("knowledge_status", {}, MAIN)
        bens = Operator("of ben", frozenset(("operator.admin",)), ("ben",))
        assert operate(bridge, "status", bens)["agent"] == "ben"
        assert isinstance(refused(bridge, "status", bens, agent="main"), Denied)
        assert isinstance(refused(bridge, "status", LOCAL_OPERATOR, agent="eve"), Denied)
        store = only_store(bridge.state_dir).root.name
        error = refused(bridge, "relocateStore", bens, store=store, path=str(tmp_path / "else"))
        assert isinstance(error, Denied)


def test_operator_reading_can_be_switched_off_and_a_shared_gateway_needs_an_admin(tmp_path: Path) -> None:
    with open_bridge(tmp_path / "off", "operatorRead: false") as bridge:
        assert isinstance(refused(bridge, "status"), Denied)
    with open_bridge(tmp_path / "shared", "gateway: {shared: true}") as bridge:
        assert isinstance(refused(bridge, "status", READER), Denied)
        assert operate(bridge, "status")["state"] == "none"


# --- status and diagnostics ----------------------------------------------------------------------------------


def test_status_shows_the_store_as_an_operator_needs_it(bridge: KnowledgeBridge, layout: StoreLayout) -> None:
    save_page(bridge, "Orchard")
    shown = operate(bridge, "status")
    assert (shown["agent"], shown["state"], shown["path"]) == ("main", "open", str(layout.root))
    assert member(shown, "counts") == {"page": {"active": 1}}
    assert shown["generation"] == 1
    assert member(shown, "recovery")["kind"] == "clean"
    assert member(shown, "diagnostics") == {"findings": [], "total": 0, "truncated": False, "withheld": 0}


def test_diagnostics_name_path_code_and_message_and_are_bounded(bridge: KnowledgeBridge, layout: StoreLayout) -> None:
    private = layout.vault / "private"
    for number in range(3):
        write_note(private, f"plain{number}.md", "no envelope\n")
    (private / "link.md").symlink_to("plain0.md")
    write_note(private, "ontology.yaml", "format: wrong\n")
    found = operate(bridge, "diagnostics")
    rows = listed(found["findings"])
    codes = {(row["path"], row["code"]) for row in rows}
    assert {(f"plain{number}.md", "frontmatter_missing") for number in range(3)} <= codes
    assert ("link.md", "symlink") in codes
    assert any(row["path"] == "ontology.yaml" for row in rows)
    assert all(row["message"] for row in rows)
    bounded = operate(bridge, "diagnostics", limit=2)
    assert (len(listed(bounded["findings"])), bounded["total"], bounded["truncated"]) == (2, found["total"], True)
    assert isinstance(refused(bridge, "diagnostics", limit=1001), InvalidArgument)


def test_what_an_earlier_recovery_did_is_in_status_and_diagnostics(tmp_path: Path) -> None:
    with open_bridge(tmp_path / "state") as bridge:
        save_page(bridge, "Orchard")
    database = Database.open(only_store(tmp_path / "state").state_database, point_prefix="state")
    with database.transaction(full=True, point="test"):
        notices.keep(database, time.time_ns(), [("created", "private/projects/orchard.md", 0, None)])
    database.close()
    with open_bridge(tmp_path / "state") as bridge:
        bridge.call("knowledge_status", {}, MAIN)
        for name in ("status", "diagnostics"):
            (told,) = strings(operate(bridge, name)["notices"])
            assert told.endswith("UTC: private/projects/orchard.md was created again.")


def strings(value: JsonValue) -> list[str]:
    assert isinstance(value, list)
    return [str(each) for each in value]


# --- adopting notes ------------------------------------------------------------------------------------------


def test_a_plain_file_becomes_a_page_with_its_text_untouched(bridge: KnowledgeBridge, layout: StoreLayout) -> None:
    private = layout.vault / "private"
    body = "\ufeff\r\nIntro\r\n# Ada *Byron*\r\n\r\nText without an end"
    write_note(private, "people/ada.md", body)
    receipt = adopt(bridge, "people/ada.md")
    (item,) = listed(receipt["items"])
    assert (receipt["state"], receipt["operation"], item["path"], item["type"]) == (
        "published", "adopt", "people/ada.md", "person",
    )  # fmt: skip
    data = (private / "people" / "ada.md").read_bytes()
    assert data.endswith(body.removeprefix("\ufeff").encode())
    assert data.startswith("\ufeff---\r\n".encode())
    record = member(bridge.call("knowledge_record", {"id": item["id"]}, MAIN), "record")
    assert (record["title"], record["type"]) == ("Ada Byron", "person")
    rows = listed(bridge.call("knowledge_history", {}, MAIN)["rows"])
    assert rows[0]["operation"] == "adopt"
    (complete,) = [row for row in rows if row.get("operation") == "adopt"]
    assert complete["id"] == item["id"]
    assert operate(bridge, "diagnostics")["total"] == 0


def test_a_file_is_named_by_its_absolute_path_too_and_gets_the_wanted_type(
    bridge: KnowledgeBridge, layout: StoreLayout
) -> None:
    note = write_note(layout.vault / "private", "people/firm.md", "A firm.\n")
    (item,) = listed(adopt(bridge, str(note), type="company")["items"])
    assert item["type"] == "company"
    plain = write_note(layout.vault / "private", "loose.md", "Loose.\n")
    (item,) = listed(adopt(bridge, str(plain))["items"])
    assert item["type"] == "note"


def test_several_files_are_all_adopted_or_none(bridge: KnowledgeBridge, layout: StoreLayout) -> None:
    private = layout.vault / "private"
    write_note(private, "a.md", "a\n")
    write_note(private, "b.md", "---\nlifecycle: odd\n---\nb\n")
    error = adopt_refused(bridge, "a.md", "b.md")
    assert isinstance(error, InvalidArgument)
    assert (error.fields["field"], error.fields["reason"]) == ("paths[1]", "key_conflict")
    assert (private / "a.md").read_text() == "a\n"
    write_note(private, "b.md", "b\n")
    assert len(listed(adopt(bridge, "a.md", "b.md", "a.md")["items"])) == 2


def test_the_same_request_gets_the_same_receipt_and_a_record_is_refused(
    bridge: KnowledgeBridge, layout: StoreLayout
) -> None:
    write_note(layout.vault / "private", "a.md", "a\n")
    request_id = str(uuid.uuid4())
    first = operate(bridge, "adopt", requestId=request_id, paths=["a.md"])
    again = operate(bridge, "adopt", requestId=request_id, paths=["a.md"])
    assert {k: v for k, v in first.items() if k != "git"} == {k: v for k, v in again.items() if k != "git"}
    error = adopt_refused(bridge, "a.md")
    assert error.fields["reason"] == "already_a_record"


@pytest.mark.parametrize(
    ("make", "path", "reason"),
    [
        (lambda private: (private / "link.md").symlink_to("real.md"), "link.md", "symlink"),
        (lambda private: None, "../../state.sqlite", "outside"),
        (lambda private: None, "/etc/hostname", "outside"),
        (lambda private: None, "none.md", "missing"),
        (lambda private: (private / "folder").mkdir(), "folder", "not_a_file"),
        (lambda private: (private / "x.txt").write_text("x"), "x.txt", "not_a_note"),
        (lambda private: os.link(private / "real.md", private / "twin.md"), "twin.md", "hardlink"),
        (lambda private: (private / "n.md").write_bytes(b"a\0b"), "n.md", "nul"),
        (lambda private: (private / "t.md").write_text("---\ntype: nonsense\n---\n"), "t.md", "unknown_type"),
        (lambda private: (private / "tags.md").write_text("---\ntags: {a: 1}\n---\n"), "tags.md", None),
    ],
)  # fmt: skip
def test_what_cannot_be_adopted_is_refused_by_its_path(
    bridge: KnowledgeBridge, layout: StoreLayout, make: Callable[[Path], None], path: str, reason: str | None
) -> None:
    private = layout.vault / "private"
    (private / "real.md").write_text("real\n")
    make(private)
    error = adopt_refused(bridge, path)
    assert isinstance(error, InvalidArgument)
    assert error.fields["field"] == "paths[0]"
    if reason is not None:
        assert error.fields["reason"] == reason
    assert (private / "real.md").read_text() == "real\n"


def test_an_unknown_type_is_refused_before_any_file_is_looked_at(bridge: KnowledgeBridge, layout: StoreLayout) -> None:
    assert adopt_refused(bridge, "none.md", type="nonsense").fields["field"] == "type"


def test_nothing_is_adopted_while_writes_are_disabled(tmp_path: Path) -> None:
    with open_bridge(tmp_path / "state") as bridge:
        bridge.call("knowledge_status", {}, MAIN)
    with open_bridge(tmp_path / "state", "writesEnabled: false") as bridge:
        assert isinstance(adopt_refused(bridge, "a.md"), WritesDisabled)


# --- refused losses ------------------------------------------------------------------------------------------


def with_claims(bridge: KnowledgeBridge, number: int) -> None:
    for start in range(0, number, 20):
        texts = [f"The bell number {start + n} rang." for n in range(min(20, number - start))]
        bridge.call("knowledge_remember", {**remembering(*texts), "requestId": str(uuid.uuid4())}, MAIN)


def test_a_loss_that_was_refused_is_recorded_once_a_person_says_so(
    bridge: KnowledgeBridge, layout: StoreLayout
) -> None:
    with_claims(bridge, 30)
    assert bridge.call("knowledge_grep", {"query": "bell"}, MAIN)["total"] == 30  # and every event so far is drained
    os.rename(layout.vault / "private" / "claims", layout.root / "aside")
    with pytest.raises(DeletionsRefused):
        bridge.call("knowledge_grep", {"query": "bell"}, MAIN)
    shown = operate(bridge, "status")
    assert shown["state"] == "blocked"
    assert member(shown, "refusal")["command"] == "knowledge store accept-deletions"
    assert operate(bridge, "acceptDeletions") == {"removed": 30, "files": 0}
    assert bridge.call("knowledge_grep", {"query": "bell"}, MAIN)["total"] == 0
    assert operate(bridge, "acceptDeletions") == {"removed": 0, "files": 0}


def test_the_guard_answers_again_by_itself_once_the_folder_is_back_and_guards_the_next_loss(
    bridge: KnowledgeBridge, layout: StoreLayout
) -> None:
    with_claims(bridge, 30)
    claims, aside = layout.vault / "private" / "claims", layout.root / "aside"
    os.rename(claims, aside)
    with pytest.raises(DeletionsRefused):
        bridge.call("knowledge_grep", {"query": "bell"}, MAIN)
    os.rename(aside, claims)
    assert bridge.call("knowledge_grep", {"query": "bell"}, MAIN)["total"] == 30
    assert operate(bridge, "acceptDeletions") == {"removed": 0, "files": 30}
    os.rename(claims, aside)
    with pytest.raises(DeletionsRefused):
        bridge.call("knowledge_grep", {"query": "bell"}, MAIN)


# --- adopting a vault ----------------------------------------------------------------------------------------


def older_vault(state_dir: Path, *, claims: int = 0) -> str:
    """A store whose vault is from before its last saves; the id of a page that it lacks."""
    with open_bridge(state_dir) as bridge:
        save_page(bridge, "First")
    layout = only_store(state_dir)
    shutil.copytree(layout.vault, state_dir / "earlier")
    with open_bridge(state_dir) as bridge:
        page = save_page(bridge, "Second")
        with_claims(bridge, claims)
    shutil.rmtree(layout.vault)
    shutil.move(state_dir / "earlier", layout.vault)
    return str(page["id"])


def test_a_store_that_fails_closed_says_so_with_both_pairs_and_the_command(tmp_path: Path) -> None:
    older_vault(tmp_path)
    with open_bridge(tmp_path) as bridge:
        with pytest.raises(VaultOlderThanDatabase):
            bridge.call("knowledge_status", {}, MAIN)
        shown = operate(bridge, "status")
        assert shown["state"] == "failed_closed"
        told = member(shown, "refusal")
        assert (told["code"], told["command"]) == ("vault_older_than_database", "knowledge store adopt")
        assert (member(told, "expected")["generation"], member(told, "found")["generation"]) == (2, 1)


@pytest.mark.parametrize("claims", [0, 30])
def test_a_vault_is_adopted_as_it_is_even_where_most_of_it_is_missing(tmp_path: Path, claims: int) -> None:
    lost = older_vault(tmp_path, claims=claims)
    with open_bridge(tmp_path) as bridge:
        with pytest.raises(VaultOlderThanDatabase):
            bridge.call("knowledge_status", {}, MAIN)
        done = operate(bridge, "adoptStore", deadlineMs=60_000)
        assert member(done, "adopted")["code"] == "vault_older_than_database"
        assert done["files"] == 1
        assert bridge.call("knowledge_record", {"id": lost}, MAIN)["record"] is None
        assert bridge.call("knowledge_lookup", {"query": "First"}, MAIN)["state"] == "found"
        rows = listed(bridge.call("knowledge_history", {"id": lost}, MAIN)["rows"])
        assert len(rows) == 2
        adopted = member(operate(bridge, "status"), "adopted")
        assert (adopted["actor"], adopted["code"]) == ("operator:local", "vault_older_than_database")
        save_page(bridge, "Third")
        assert refused(bridge, "adoptStore").fields["reason"] == "not_failed_closed"
        assert bridge.call("knowledge_lookup", {"query": "Third"}, MAIN)["state"] == "found"
    with open_bridge(tmp_path) as bridge:
        assert bridge.call("knowledge_lookup", {"query": "Third"}, MAIN)["state"] == "found"


def test_a_foreign_vault_is_refused_and_stays(tmp_path: Path) -> None:
    with open_bridge(tmp_path) as bridge:
        save_page(bridge, "First")
    manifest = only_store(tmp_path).manifest
    content = json.loads(manifest.read_text())
    manifest.write_text(json.dumps({**content, "vaultId": str(uuid.uuid4())}))
    before = manifest.read_bytes()
    with open_bridge(tmp_path) as bridge:
        assert member(operate(bridge, "status"), "refusal").get("command") is None
        assert refused(bridge, "adoptStore").code == "foreign_vault"
        assert manifest.read_bytes() == before


# --- moving a store ------------------------------------------------------------------------------------------


def test_a_live_store_is_moved_and_goes_on_at_its_new_place(
    bridge: KnowledgeBridge, layout: StoreLayout, tmp_path: Path
) -> None:
    page = save_page(bridge, "Orchard")
    target = tmp_path / "data" / "my store"
    target.parent.mkdir()
    moved = operate(bridge, "relocateStore", store=layout.root.name, path=str(target), deadlineMs=60_000)
    assert moved == {"vaultId": layout.root.name, "path": str(target), "how": "renamed"}
    assert not layout.root.exists()
    assert member(bridge.call("knowledge_record", {"id": page["id"]}, MAIN), "record")["title"] == "Orchard"
    save_page(bridge, "Second")
    assert (target / "vault" / "private" / "projects" / "second.md").is_file()
    assert operate(bridge, "status")["path"] == str(target)


def test_a_moved_store_is_found_by_the_next_process(tmp_path: Path) -> None:
    state, target = tmp_path / "state", tmp_path / "moved"
    with open_bridge(state) as bridge:
        save_page(bridge, "Orchard")
        store = only_store(state).root.name
        operate(bridge, "relocateStore", store=store, path=str(target), deadlineMs=60_000)
    with open_bridge(state) as bridge:
        assert bridge.call("knowledge_lookup", {"query": "Orchard"}, MAIN)["state"] == "found"


def test_a_copy_beside_its_original_is_refused_and_the_store_answers(
    bridge: KnowledgeBridge, layout: StoreLayout, tmp_path: Path
) -> None:
    save_page(bridge, "Orchard")
    shutil.copytree(layout.root, tmp_path / "copy", symlinks=True)
    error = refused(bridge, "relocateStore", store=layout.root.name, path=str(tmp_path / "copy"))
    assert isinstance(error, DuplicateIdentity)
    assert bridge.call("knowledge_lookup", {"query": "Orchard"}, MAIN)["state"] == "found"
    assert isinstance(refused(bridge, "relocateStore", store=str(uuid.uuid4()), path=str(tmp_path / "no")), NotFound)


def test_a_store_that_fails_closed_can_be_moved_and_still_fails_closed(tmp_path: Path) -> None:
    older_vault(tmp_path)
    with open_bridge(tmp_path) as bridge:
        with pytest.raises(VaultOlderThanDatabase):
            bridge.call("knowledge_status", {}, MAIN)
        store = only_store(tmp_path).root.name
        operate(bridge, "relocateStore", store=store, path=str(tmp_path / "moved"), deadlineMs=60_000)
        with pytest.raises(VaultOlderThanDatabase):
            bridge.call("knowledge_status", {}, MAIN)
        assert operate(bridge, "status")["path"] == str(tmp_path / "moved")


def test_while_a_store_is_moved_calls_wait_for_nobody_and_are_told_to_come_again(
    bridge: KnowledgeBridge, layout: StoreLayout, tmp_path: Path
) -> None:
    save_page(bridge, "Orchard")
    begun, go_on = threading.Event(), threading.Event()

    def slow(name: str) -> None:
        if name == "relocate.rename":
            begun.set()
            assert go_on.wait(30)

    params: JsonObject = {"store": layout.root.name, "path": str(tmp_path / "moved"), "deadlineMs": 60_000}
    with faults.installed(slow):
        moving = bridge.operate(parse_operator_call("operator.relocateStore", params, peer=LOCAL_OPERATOR))
        assert begun.wait(30)
        with pytest.raises(StoreOpening) as caught:
            bridge.call("knowledge_status", {}, MAIN)
        assert caught.value.retry == "safe"
        assert isinstance(refused(bridge, "relocateStore", given=params), Busy)
        assert operate(bridge, "status")["state"] == "unavailable"
        go_on.set()
        assert answer(moving)["how"] == "renamed"
    assert bridge.call("knowledge_lookup", {"query": "Orchard"}, MAIN)["state"] == "found"


def test_a_move_that_fails_leaves_the_store_where_it_was_and_answering(
    bridge: KnowledgeBridge, layout: StoreLayout, tmp_path: Path
) -> None:
    save_page(bridge, "Orchard")

    def full(name: str) -> None:
        if name == "relocate.rename":
            raise OSError(28, "No space left on device")

    with faults.installed(full):
        error = refused(bridge, "relocateStore", store=layout.root.name, path=str(tmp_path / "moved"))
    assert isinstance(error, StorageError)
    assert bridge.call("knowledge_lookup", {"query": "Orchard"}, MAIN)["state"] == "found"
    assert not (tmp_path / "moved").exists()


def test_an_operators_request_is_answered_by_its_deadline_while_the_work_goes_on(
    bridge: KnowledgeBridge, layout: StoreLayout, tmp_path: Path
) -> None:
    go_on = threading.Event()

    def slow(name: str) -> None:
        if name == "relocate.rename":
            assert go_on.wait(30)

    with faults.installed(slow):
        error = refused(bridge, "relocateStore", store=layout.root.name, path=str(tmp_path / "moved"), deadlineMs=300)
        assert (error.code, error.retry) == ("deadline", "unknown")
        go_on.set()
        eventually(lambda: (tmp_path / "moved").exists())
    eventually(lambda: operate(bridge, "status")["state"] == "open")
    assert operate(bridge, "status")["path"] == str(tmp_path / "moved")
    assert bridge.call("knowledge_status", {}, MAIN)["partition"] == "private"


def test_health_is_for_an_admin_of_every_agent_and_is_what_the_bridge_says(tmp_path: Path) -> None:
    with open_bridge(tmp_path / "state") as bridge:
        shown = operate(bridge, "health")
        assert shown.keys() == bridge.health().keys()
        assert "root/authority" in [actor["name"] for actor in listed(shown["actors"])]
        assert stores(bridge.state_dir) == []
        assert isinstance(refused(bridge, "health", WRITER), Denied)
        mains = Operator("of main", frozenset(("operator.admin",)), ("main",))
        assert isinstance(refused(bridge, "health", mains), Denied)

"""Backups and restoring: whole or not at all, and the same answers afterwards."""

from __future__ import annotations

import atexit
import errno
import hashlib
import os
import shutil
import signal
import tempfile
import threading
from collections.abc import Callable, Iterator
from functools import cache, partial
from pathlib import Path

import orjson
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from messages.errors import DuplicateIdentity, InvalidArgument, KnowledgeError, NotFound, Quarantined, StorageError
from messages.json_types import JsonObject
from messages.tools import CATALOGUE
from messages.vocabulary import PRIVATE
from storage import backup, erasure, faults
from storage.audience_tokens import TokenRow
from storage.backup.manifest import BackupManifest
from storage.backup.taking import PENDING_ATTEMPTS
from storage.conversation_erase import erase
from storage.layout import Layout, StoreLayout
from storage.manifest import Manifest, parse_manifest
from storage.peeking import peek
from storage.registry import Isolated, Registry
from storage.repair import agreement
from storage.session import StoreSession
from storage.state import journal
from storage.state.connection import Database
from storage.state.upkeep import partitions
from storage.vault import ScanLimits
from tests.kit.hostile import nested
from tests.kit.store import GROUP_PARTITION, VAULT_ID, Desk, page_file, request_id, write_note
from tests.kit.unsynced import without_syncs
from tests.storage.backup.house import BY, answers, attaching, hashes, house, make_house, seated, vault_hashes


@pytest.fixture(autouse=True)
def _unsynced() -> Iterator[None]:
    with without_syncs():
        yield


@cache
def made_backup() -> Path:
    """One backup of the house, which nobody changes."""
    folder = Path(tempfile.mkdtemp(prefix="backup-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    backup.take(house(folder), folder / "backup")
    return folder / "backup"


def copied(base: Path) -> Path:
    """A backup that a test may damage."""
    shutil.copytree(made_backup(), base / "damaged")
    return base / "damaged"


def empty(base: Path, name: str = "copy") -> Layout:
    layout = Layout(base / name)
    layout.root.mkdir(parents=True)
    (layout.root / "owner.lock").touch()
    return layout


def add_store(layout: Layout, agent: str) -> StoreLayout:
    """An empty store of another agent."""
    registry = Registry.open(layout, at=1)
    entry = registry.ensure(Isolated(agent), at=1)
    StoreSession.create(entry.layout, entry.vault_id)
    registry.mark_made(entry.vault_id)
    registry.close()
    return entry.layout


def refused(source: Path, layout: Layout) -> KnowledgeError:
    """The refusal, the same with and without a dry run; nothing is there afterwards."""
    before = hashes(layout.state_dir)
    errors = []
    for dry in (True, False):
        with pytest.raises(KnowledgeError) as caught:
            backup.restore(source, layout, BY, dry_run=dry)
        errors.append(caught.value)
        assert hashes(layout.state_dir) == before
        assert sorted(path.name for path in layout.state_dir.iterdir()) == sorted(
            {Path(path).parts[0] for path in before} | {"knowledge"}
        )
    assert [errors[0].code, errors[0].fields] == [errors[1].code, errors[1].fields]
    return errors[0]


# --- the same answers ------------------------------------------------------------------------------------------------


def test_after_a_restore_every_read_tools_answers_and_every_files_hash_equal_the_originals(tmp_path: Path) -> None:
    layout = house(tmp_path)
    said, held = answers(layout), vault_hashes(layout)
    answered = {call.split()[1] for call, answer in said.items() if isinstance(answer, dict) and "error" not in answer}
    assert answered >= {spec.operation for spec in CATALOGUE.values() if spec.action == "read"}
    taken = backup.take(layout, tmp_path / "backup")
    assert taken.findings == ()
    copy = empty(tmp_path)
    restored = backup.restore(taken.path, copy, BY)
    assert (restored.configuration, restored.manifest.whole) == ("restored", True)
    assert (copy.configuration.read_bytes()) == layout.configuration.read_bytes()
    assert vault_hashes(copy) == held
    assert answers(copy) == said
    assert not (copy.state_dir / ".kr-restoring").exists()


def test_the_registry_comes_along_and_says_where_the_stores_lie_now(tmp_path: Path) -> None:
    copy = empty(tmp_path)
    backup.restore(made_backup(), copy, BY)
    registry = Registry.open(copy, at=1)
    try:
        [entry] = registry.entries()
        assert (entry.holder, entry.layout.root) == (Isolated("main"), copy.new_store(VAULT_ID).root)
        assert registry.grants() == {"main": {"chat:group:42": "read"}, "other": {"chat:group:43": "read-save"}}
        assert registry.audit(limit=1)[0]["action"] == "registry.restore"
        assert copy.registry_sentinel.read_text().strip() == registry.registry_id
    finally:
        registry.close()


def test_a_new_generation_makes_old_halves_and_old_lanes_fail(tmp_path: Path) -> None:
    layout = house(tmp_path)
    old = layout.new_store(VAULT_ID)
    taken = backup.take(layout, tmp_path / "backup")
    copy = empty(tmp_path)
    backup.restore(taken.path, copy, BY)
    new = copy.new_store(VAULT_ID)
    before, after = (parse_manifest(store.manifest.read_bytes()) for store in (old, new))
    assert isinstance(before, Manifest)
    assert isinstance(after, Manifest)
    assert (before.vault_id, before.pair.generation + 1) == (after.vault_id, after.pair.generation)
    assert before.pair.publication_id != after.pair.publication_id
    incarnations = []
    for store in (old, new):
        database = Database.open(store.state_database, point_prefix="state", read_only=True)
        incarnations.append(journal.marks(database).incarnation)
        database.close()
    assert incarnations[1] > incarnations[0]
    # Either half of before beside the other half of now fails closed.
    mixed = tmp_path / "mixed"
    shutil.copytree(new.root, mixed)
    shutil.copy(old.manifest, mixed / "vault" / "vault.json")
    with pytest.raises(KnowledgeError) as caught:
        StoreSession(type(new)(mixed), ScanLimits(), git=True)
    assert caught.value.code == "vault_older_than_database"


def test_a_restored_store_goes_on_and_a_repeated_request_is_answered_with_its_receipt(tmp_path: Path) -> None:
    layout = house(tmp_path)
    with seated(layout) as desk:
        page = {"title": "New", "type": "project", "body": "Once.", "requestId": request_id(700)}
        receipt = desk.call("save_page", page)
    taken = backup.take(layout, tmp_path / "backup")
    copy = empty(tmp_path)
    backup.restore(taken.path, copy, BY)
    with seated(copy) as desk:
        assert desk.call("save_page", page) == receipt
        desk.page("Another", body="After the restore.")
        assert desk.record(receipt["id"])["revision"] == 1
    with seated(copy) as desk:
        assert desk.call("grep", {"query": "restore"})["total"] == 1


def test_an_unfinished_upload_goes_on_after_a_restore(tmp_path: Path) -> None:
    layout = house(tmp_path)
    with seated(layout) as desk:
        first = attaching(b"One, ", final=False) | {"requestId": request_id(701)}
        assert desk.call("attach", first)["received"] == 5
    taken = backup.take(layout, tmp_path / "backup")
    copy = empty(tmp_path)
    backup.restore(taken.path, copy, BY)
    with seated(copy) as desk:
        last = attaching(b"two.", final=True) | {"filename": "half.txt", "offset": 5, "requestId": request_id(701)}
        evidence = desk.call("attach", last)["evidence"]
        assert isinstance(evidence, dict)
        assert evidence["size"] == 9


# --- one generation --------------------------------------------------------------------------------------------------


def test_a_file_whose_text_is_not_that_generations_is_taken_from_history(tmp_path: Path) -> None:
    layout = house(tmp_path)
    held = vault_hashes(layout)
    note = layout.new_store(VAULT_ID).vault / "private" / "people" / "robin-vale.md"
    note.write_text("Nobody has looked at this yet.")
    taken = backup.take(layout, tmp_path / "backup")
    copy = empty(tmp_path)
    backup.restore(taken.path, copy, BY)
    assert vault_hashes(copy) == held


def test_an_edit_that_nobody_took_over_is_named_where_nobody_could(tmp_path: Path) -> None:
    layout = house(tmp_path)
    note = layout.new_store(VAULT_ID).vault / "private" / "people" / "robin-vale.md"
    note.write_text(note.read_text() + "One line more.\n")
    assert backup.take(layout, tmp_path / "fresh", fresh={VAULT_ID}).findings == ()
    [finding] = backup.take(layout, tmp_path / "stale", fresh=()).findings
    assert (finding.code, finding.path) == ("edit_left_out", "private/people/robin-vale.md")


def test_what_agents_save_while_a_backup_is_taken_is_in_it_whole_or_not_at_all(tmp_path: Path) -> None:
    layout = Layout(tmp_path / "busy")
    make_house(layout.state_dir)
    with seated(layout) as desk:
        desk.session.partition(PRIVATE)
        number = 0

        def between(progress: backup.Progress) -> None:
            nonlocal number
            number += 1
            if number % 3 == 0 and number < 60:
                desk.page(f"Meanwhile {number}", body=f"Page {number}.")
                desk.remember(f"Fact {number} came meanwhile.")

        taken = backup.take(layout, tmp_path / "backup", report=between)
        assert number > 3
        later = desk.call("records", {"limit": 1})["total"]
        everything = desk.call("history", {"limit": 100})["rows"]
        assert isinstance(everything, list)
    copy = empty(tmp_path)
    backup.restore(taken.path, copy, BY)
    with seated(copy) as desk:
        found = desk.call("records", {"limit": 1})["total"]
        assert isinstance(found, int)
        assert isinstance(later, int)
        assert found < later
        rows = desk.call("history", {"limit": 100})["rows"]
        assert isinstance(rows, list)
        assert rows == everything[-len(rows) :], "the first look after a restore found nothing changed outside"


def test_a_backup_that_is_taken_while_four_threads_write_is_one_generation(tmp_path: Path) -> None:
    layout = Layout(tmp_path / "busy")
    make_house(layout.state_dir)
    stop = threading.Event()
    failures: list[BaseException] = []
    turn = threading.Lock()
    layouts = [add_store(layout, f"agent{number}") for number in range(4)]

    def write(store: Desk, name: str) -> None:
        try:
            count = 0
            while not stop.is_set() or count < 3:
                count += 1
                store.page(f"{name} {count}", body="Written meanwhile.", allowSameTitle=True)
        except BaseException as error:  # noqa: BLE001 - whatever it is, the test must hear of it
            failures.append(error)
        finally:
            store.close()

    def start(number: int) -> None:
        with turn:
            desk = Desk(layouts[number])
        write(desk, f"Agent {number}")

    threads = [threading.Thread(target=start, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    try:
        taken = backup.take(layout, tmp_path / "backup")
    finally:
        stop.set()
        for thread in threads:
            thread.join(60)
    assert failures == []
    assert taken.stores == 5
    assert taken.manifest is not None
    copy = empty(tmp_path)
    backup.restore(taken.path, copy, BY)
    for store in (copy.new_store(mark.vault_id) for mark in taken.manifest.stores):
        desk = Desk(store)
        try:
            rows = desk.call("history", {"limit": 100})["rows"]
            assert isinstance(rows, list)
            assert [row for row in rows if isinstance(row, dict) and row.get("actor") == "external"][3:] == []
            total = desk.call("records", {"limit": 1})["total"]
            assert desk.call("grep", {"query": "Written meanwhile", "limit": 1})["total"] in (total, 0)
        finally:
            desk.close()


def test_a_publication_that_stays_pending_comes_along_and_is_finished_by_the_restore(
    tmp_path: Path,
) -> None:
    layout = house(tmp_path)
    desk = Desk(layout.new_store(VAULT_ID))

    def full(name: str) -> None:
        if name == "place.file" or name.startswith("place.file."):
            raise OSError(errno.EIO, "Input/output error")

    desk.partition()
    with faults.installed(full):
        receipt = desk.call(
            "save_page", {"title": "Stuck", "type": "project", "body": "x", "requestId": request_id(708)}
        )
    desk.close(clean=False)
    pauses: list[float] = []
    taken = backup.take(layout, tmp_path / "backup", pause=pauses.append)
    assert receipt["state"] == "pending"
    assert len(pauses) == PENDING_ATTEMPTS - 1
    copy = empty(tmp_path)
    backup.restore(taken.path, copy, BY)
    with seated(copy) as desk:
        again = {"title": "Stuck", "type": "project", "body": "x", "requestId": request_id(708)}
        assert desk.call("save_page", again).keys() >= {"id", "revision", "hash"}
        assert desk.call("lookup", {"query": "Stuck"})["state"] == "found"


# --- what is left out, and what is said ------------------------------------------------------------------------------


def test_a_damaged_or_missing_original_a_link_and_a_hard_link_are_named(tmp_path: Path) -> None:
    layout = house(tmp_path)
    private = layout.new_store(VAULT_ID).vault / "private"
    [plan] = list(private.rglob("plan.txt"))
    plan.write_bytes(b"Something else.\n")
    excerpts = sorted(private.rglob("excerpt.txt"))
    excerpts[0].unlink()
    os.symlink("picture.txt", private / "link.txt")
    os.link(private / "picture.txt", private / "second.txt")
    taken = backup.take(layout, tmp_path / "backup")
    found = {(finding.code, finding.path.removeprefix("private/")) for finding in taken.findings}
    assert ("original_changed", plan.relative_to(private).as_posix()) in found
    assert ("original_missing", excerpts[0].relative_to(private).as_posix()) in found
    assert {("left_out", "link.txt"), ("left_out", "picture.txt"), ("left_out", "second.txt")} <= found


def test_folders_without_end_are_left_out_and_named_and_the_rest_is_taken(tmp_path: Path) -> None:
    layout = house(tmp_path)
    with nested(layout.new_store(VAULT_ID).partition(GROUP_PARTITION)):
        taken = backup.take(layout, tmp_path / "backup")
    assert [finding.code for finding in taken.findings if "/deep" in finding.path] == ["left_out"]
    backup.restore(taken.path, empty(tmp_path), BY, dry_run=True)


def test_a_note_that_nobody_has_looked_at_yet_is_in_the_backup(tmp_path: Path) -> None:
    layout = house(tmp_path)
    private = layout.new_store(VAULT_ID).vault / "private"
    write_note(private, "projects/fresh.md", page_file("fresh", "Fresh"))
    (private / ".obsidian").mkdir()
    (private / ".obsidian" / "app.json").write_text("{}")
    held = vault_hashes(layout)
    taken = backup.take(layout, tmp_path / "backup")
    copy = empty(tmp_path)
    backup.restore(taken.path, copy, BY)
    assert vault_hashes(copy) == held


def test_git_history_is_not_in_a_backup(tmp_path: Path) -> None:
    layout = house(tmp_path)
    git = layout.new_store(VAULT_ID).vault / ".git"
    git.mkdir(exist_ok=True)
    (git / "HEAD").write_text("ref: refs/heads/main\n")
    taken = backup.take(layout, tmp_path / "backup")
    assert taken.manifest is not None
    assert not any("/.git/" in part.path for part in taken.manifest.parts)


def test_one_store_is_taken_with_its_binding_and_its_agents_grants_alone(tmp_path: Path) -> None:
    layout = house(tmp_path)
    other = add_store(layout, "other").root.name
    taken = backup.take(layout, tmp_path / "one", only=VAULT_ID)
    assert taken.manifest is not None
    assert not taken.manifest.whole
    copy = empty(tmp_path)
    backup.restore(taken.path, copy, BY)
    registry = Registry.open(copy, at=1)
    try:
        assert [entry.vault_id for entry in registry.entries()] == [VAULT_ID]
        assert registry.grants() == {"main": {"chat:group:42": "read"}}
        assert other not in str(registry.audit(limit=100))
    finally:
        registry.close()
    assert backup.take(layout, tmp_path / "both").stores == 2
    with pytest.raises(NotFound):
        backup.take(layout, tmp_path / "none", only="77777777-7777-4777-8777-777777777777")


def test_no_token_comes_along_and_none_of_an_older_backup_stands_after_a_restore(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nor do the names of other agents' conversations, with one store."""
    layout = house(tmp_path)
    registry = Registry.open(layout, at=1)
    audience: JsonObject = {"kind": "conversation", "agent": "other", "sessionKey": "chat:group:43"}
    registry.tokens.mint(TokenRow("t", "other", audience, BY.at, "host", BY.at + 1_000), frozenset(["run"]), BY)
    registry.close()
    taken = backup.take(layout, tmp_path / "one", only=VAULT_ID)
    assert b"chat:group:43" not in (taken.path / "registry.sqlite").read_bytes()
    copied = Database.open(backup.take(layout, tmp_path / "all").path / "registry.sqlite", point_prefix="registry")
    for table in ("audience_token", "audience_token_run"):
        assert copied.query_one(f"SELECT count(*) FROM {table}") == (0,)
    copied.close()
    with monkeypatch.context() as patched:
        patched.setattr("storage.backup.taking.forget_tokens", lambda copy: None)
        backup.take(layout, tmp_path / "older")
    copy = empty(tmp_path)
    backup.restore(tmp_path / "older", copy, BY)
    restored = Registry.open(copy, at=1)
    assert (restored.tokens.live(), restored.tokens.any()) == (frozenset(), False)
    restored.close()


def test_a_backup_that_is_taken_in_the_middle_of_an_erasure_does_not_bring_the_conversation_back(
    tmp_path: Path,
) -> None:
    layout = house(tmp_path)
    erasure.begin(layout.new_store(VAULT_ID), GROUP_PARTITION)
    taken = backup.take(layout, tmp_path / "backup")
    copy = empty(tmp_path)
    backup.restore(taken.path, copy, BY)
    store = copy.new_store(VAULT_ID)
    assert not (store.root / erasure.NOTE_NAME).exists()
    assert not store.partition(GROUP_PARTITION).exists()
    assert not [path for path in store.root.rglob("*") if path.is_file() and b"plan is late" in path.read_bytes()]
    with seated(copy) as desk:
        assert desk.call("records", {}, partition=GROUP_PARTITION)["total"] == 0
        assert desk.call("records", {})["total"]
    assert not agreement_is_broken(store)


def agreement_is_broken(store: StoreLayout) -> bool:
    with peek(store.state_database) as database:
        return not all(agreement(store, database, partition).whole for partition in partitions(database))


def test_a_backup_of_before_an_erasure_brings_the_conversation_back_as_the_manual_says(tmp_path: Path) -> None:
    layout = house(tmp_path)
    taken = backup.take(layout, tmp_path / "backup")
    erase(layout.new_store(VAULT_ID), GROUP_PARTITION, limits=ScanLimits(), git=True)
    copy = empty(tmp_path)
    backup.restore(taken.path, copy, BY)
    with seated(copy) as desk:
        assert desk.call("records", {}, partition=GROUP_PARTITION)["total"] == 1


def test_a_store_that_cannot_be_copied_is_named_and_the_others_are_copied(tmp_path: Path) -> None:
    layout = house(tmp_path)
    lost, damaged = add_store(layout, "lost"), add_store(layout, "damaged")
    lost.vault.rename(tmp_path / "away")
    damaged.state_database.write_bytes(b"no database" * 1_000)
    taken = backup.take(layout, tmp_path / "backup")
    found = {(finding.code, finding.path) for finding in taken.findings}
    assert found == {("store_left_out", lost.root.name), ("store_left_out", damaged.root.name)}
    assert taken.manifest is not None
    assert ([store.vault_id for store in taken.manifest.stores], taken.manifest.whole) == ([VAULT_ID], False)
    copy = empty(tmp_path)
    backup.restore(taken.path, copy, BY)
    registry = Registry.open(copy, at=1)
    try:
        # Their agents get no new, empty stores instead.
        assert {entry.vault_id for entry in registry.entries()} == {VAULT_ID, lost.root.name, damaged.root.name}
    finally:
        registry.close()
    for store in (lost, damaged):
        with pytest.raises(KnowledgeError):
            backup.take(layout, tmp_path / "one", only=store.root.name)


# --- refusals --------------------------------------------------------------------------------------------------------


def _places() -> list[str]:
    return ["backup.json", *(part.path for part in backup.read_manifest(made_backup()).parts)]


@pytest.mark.parametrize("number", range(19))
def test_a_flipped_bit_in_any_file_of_the_backup_is_refused_by_name(tmp_path: Path, number: int) -> None:
    places = _places()
    assert len(places) == 19
    source = copied(tmp_path)
    target = source / places[number]
    data = bytearray(target.read_bytes())
    for position, bit in ((0, 0), (len(data) // 2, 3), (len(data) - 1, 7)):
        data[position] ^= 1 << bit
        target.write_bytes(data)
        with pytest.raises(StorageError) as caught:
            backup.restore(source, empty(tmp_path, f"to {position}"), BY)
        assert (caught.value.fields["reason"], caught.value.fields["path"]) == ("damaged", places[number])
        assert places[number] in caught.value.message
        assert set(hashes(tmp_path / f"to {position}" / "knowledge")) == {"owner.lock"}
        data[position] ^= 1 << bit
    data[0] ^= 1
    target.write_bytes(data)
    refused(source, empty(tmp_path))


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(seed=st.integers(0, 2**32), bit=st.integers(0, 7))
def test_a_flipped_bit_anywhere_is_refused(tmp_path: Path, seed: int, bit: int) -> None:
    places = _places()
    sizes = [(made_backup() / place).stat().st_size for place in places]
    position = seed % sum(sizes)
    number = 0
    while position >= sizes[number]:
        position -= sizes[number]
        number += 1
    if not (tmp_path / "damaged").exists():
        copied(tmp_path)
    target = tmp_path / "damaged" / places[number]
    before = target.read_bytes()
    data = bytearray(before)
    data[position] ^= 1 << bit
    target.write_bytes(data)
    try:
        with pytest.raises(StorageError) as caught:
            backup.restore(tmp_path / "damaged", Layout(tmp_path / "nowhere"), BY, dry_run=True)
        assert caught.value.fields["path"] == places[number]
    finally:
        target.write_bytes(before)


def test_a_missing_and_an_extra_file_are_refused_by_name(tmp_path: Path) -> None:
    source = copied(tmp_path)
    extra = source / "stores" / VAULT_ID / "vault" / "private" / "extra.md"
    extra.write_text("x")
    assert refused(source, empty(tmp_path, "a")).fields["path"] == extra.relative_to(source).as_posix()
    extra.unlink()
    (source / "registry.sqlite").rename(tmp_path / "away")
    assert refused(source, empty(tmp_path, "b")).fields["path"] == "registry.sqlite"
    (source / "registry.sqlite").symlink_to(tmp_path / "away")
    assert refused(source, empty(tmp_path, "c")).fields["path"] == "registry.sqlite"
    (source / "registry.sqlite").unlink()
    shutil.copy(tmp_path / "away", source / "registry.sqlite")
    backup.restore(source, empty(tmp_path, "d"), BY)


def test_a_folder_that_is_no_backup_and_a_newer_format_are_refused(tmp_path: Path) -> None:
    (tmp_path / "nothing").mkdir()
    assert refused(tmp_path / "nothing", empty(tmp_path)).fields["reason"] == "no_backup"
    assert refused(tmp_path / "missing", empty(tmp_path, "b")).fields["reason"] == "missing"
    source = copied(tmp_path)
    manifest = source / "backup.json"
    content = orjson.loads(manifest.read_bytes())
    del content["sha256"]
    content["format"] = "knowledge-backup-v2"
    seal = hashlib.sha256(orjson.dumps(content, option=orjson.OPT_INDENT_2)).hexdigest()
    manifest.write_bytes(orjson.dumps({**content, "sha256": seal}))
    assert refused(source, empty(tmp_path, "c")).fields["reason"] == "newer_format"


@pytest.mark.parametrize("path", ["../outside", "/etc/passwd", "a/../../b"])
def test_a_sealed_manifest_that_leads_outside_is_refused(tmp_path: Path, path: str) -> None:
    source = copied(tmp_path)
    found = backup.read_manifest(source)
    forged = BackupManifest(
        found.backup_id, found.taken_at, found.registry_id, True, found.stores, (backup.Part(path, 1, "0" * 64),)
    )
    (source / "backup.json").write_bytes(forged.encode())
    assert refused(source, empty(tmp_path)).fields["path"] == "backup.json"


def test_restoring_refuses_a_state_directory_that_is_not_empty_and_a_duplicate_identity(tmp_path: Path) -> None:
    layout = house(tmp_path)
    assert isinstance(refused(made_backup(), layout), DuplicateIdentity)
    other = empty(tmp_path)
    (other.root / "registry.id").write_text("x")
    error = refused(made_backup(), other)
    assert isinstance(error, InvalidArgument)
    assert error.fields["reason"] == "not_empty"


def test_a_configuration_that_is_there_stays(tmp_path: Path) -> None:
    copy = empty(tmp_path)
    copy.configuration.write_text("agents: {list: [{id: mine}]}\n")
    assert backup.restore(made_backup(), copy, BY).configuration == "kept"
    assert copy.configuration.read_text() == "agents: {list: [{id: mine}]}\n"
    assert not (copy.root / "knowledge.yaml").exists()


@pytest.mark.parametrize(
    ("place", "reason"),
    [
        ("state/knowledge/b", "nested"),
        ("taken", "taken"),
        ("none/b", "no_parent"),
        ("state/knowledge/stores/x", "nested"),
    ],
)
def test_a_place_that_cannot_hold_a_backup_is_refused(tmp_path: Path, place: str, reason: str) -> None:
    layout = house(tmp_path)
    (tmp_path / "taken").mkdir()
    for act in (backup.take, backup.estimate):
        with pytest.raises(InvalidArgument) as caught:
            act(layout, tmp_path / place)
        assert (caught.value.fields["field"], caught.value.fields["reason"]) == ("path", reason)
    with pytest.raises(InvalidArgument):
        backup.take(layout, Path("relative"))


def test_no_backup_is_made_of_a_damaged_database(tmp_path: Path) -> None:
    layout = house(tmp_path)
    database = layout.new_store(VAULT_ID).state_database
    with open(database, "r+b") as file:
        file.seek(8192)
        file.write(b"\xff" * 4096)
    with pytest.raises(Quarantined, match="knowledge doctor"):
        backup.take(layout, tmp_path / "backup", only=VAULT_ID)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["state"]


# --- nothing half ----------------------------------------------------------------------------------------------------


def test_a_dry_run_writes_nothing(tmp_path: Path) -> None:
    layout = house(tmp_path)
    before = hashes(tmp_path)
    estimated = backup.estimate(layout, tmp_path / "backup")
    assert (estimated.stores, estimated.manifest) == (1, None)
    assert {path for path in hashes(tmp_path) if not path.endswith(("-shm", "-wal"))} == set(before)
    taken = backup.take(layout, tmp_path / "backup")
    assert abs(estimated.files - taken.files) <= 4
    told: list[backup.Progress] = []
    place = Layout(tmp_path / "never")
    planned = backup.restore(tmp_path / "backup", place, BY, dry_run=True, report=told.append)
    assert planned.configuration == "restored"
    assert not place.state_dir.exists()
    assert told[-1].what == "verifying"


def _passed(act: Callable[[], object]) -> dict[str, int]:
    """The points that an act passes, each with how often."""
    counts: dict[str, int] = {}

    def count(name: str) -> None:
        counts[name] = counts.get(name, 0) + 1

    with faults.installed(count):
        act()
    return counts


def _killed(act: Callable[[], object], point: str, hit: int) -> bool:
    child = os.fork()
    if child == 0:
        try:
            left = hit

            def kill(name: str) -> None:
                nonlocal left
                left -= name == point
                if left == 0:
                    os.kill(os.getpid(), signal.SIGKILL)

            with faults.installed(kill):
                act()
        finally:
            os._exit(0)
    _, status = os.waitpid(child, 0)
    return os.WIFSIGNALED(status)


_OURS = ("backup.place", "backup.sync", "backup.remove", "restore.", "registry.sentinel.place")
_EVERY = [
    pytest.param(_OURS, id="ours"),
    pytest.param(("",), marks=[pytest.mark.slow, pytest.mark.timeout(600)], id="all"),
]


@pytest.mark.parametrize("prefixes", _EVERY)
def test_a_restore_killed_at_any_fault_point_leaves_nothing_half_restored(
    tmp_path: Path, prefixes: tuple[str, ...]
) -> None:
    first, source = empty(tmp_path, "first"), made_backup()
    counts = _passed(lambda: backup.restore(source, first, BY))
    points = {name: hits for name, hits in counts.items() if name.startswith(prefixes)}
    whole = set(hashes(first.root))
    assert len(points) > 15
    outcomes = set()
    for number, (point, hits) in enumerate(points.items()):
        layout = empty(tmp_path, f"at {number}")
        assert _killed(partial(backup.restore, source, layout, BY), point, hits), point
        found = set(hashes(layout.root))
        outcomes.add(found == whole)
        assert found in ({"owner.lock"}, whole), point
        if number % 16 == 0 and found != whole:
            backup.restore(made_backup(), layout, BY)
            assert set(hashes(layout.root)) == whole
        shutil.rmtree(layout.state_dir)
    assert outcomes == {True, False}


@pytest.mark.parametrize("prefixes", _EVERY)
def test_a_backup_killed_at_any_fault_point_leaves_a_whole_backup_or_none(
    tmp_path: Path, prefixes: tuple[str, ...]
) -> None:
    layout = house(tmp_path)
    counts = _passed(lambda: backup.take(layout, tmp_path / "first"))
    points = {name: hits for name, hits in counts.items() if name.startswith(prefixes)}
    places = set(hashes(tmp_path / "first"))
    outcomes = set()
    for number, (point, hits) in enumerate(points.items()):
        target = tmp_path / f"at {number}"
        assert _killed(partial(backup.take, layout, target), point, hits), point
        outcomes.add(target.exists())
        if target.exists():
            assert set(hashes(target)) == places
            backup.restore(target, Layout(tmp_path / "nowhere"), BY, dry_run=True)
            shutil.rmtree(target)
        for left in tmp_path.glob(".kr-backup-*"):
            shutil.rmtree(left)
    assert outcomes == {True, False}


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EROFS, errno.EIO])
@pytest.mark.parametrize(
    "point", ["backup.write", "backup.sync", "backup.place", "backup.source.copy", "backup.copied.open"]
)
def test_a_full_or_failing_disk_leaves_no_backup(tmp_path: Path, point: str, code: int) -> None:
    layout = house(tmp_path)

    def fail(name: str) -> None:
        if name == point:
            raise OSError(code, os.strerror(code))

    with faults.installed(fail), pytest.raises(StorageError) as caught:
        backup.take(layout, tmp_path / "backup")
    assert caught.value.code == "storage_error"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["state"]


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EROFS])
@pytest.mark.parametrize(
    "point", ["backup.write", "backup.sync", "restored.statement", "restore.manifest", "restore.place"]
)
def test_a_full_or_failing_disk_restores_nothing(tmp_path: Path, point: str, code: int) -> None:
    layout = empty(tmp_path)

    def fail(name: str) -> None:
        if name == point or name.startswith(f"{point}."):
            raise OSError(code, os.strerror(code))

    with faults.installed(fail), pytest.raises(StorageError):
        backup.restore(made_backup(), layout, BY)
    assert set(hashes(layout.root)) == {"owner.lock"}
    assert not (layout.state_dir / ".kr-restoring").exists()
    backup.restore(made_backup(), layout, BY)


def test_progress_is_told_and_whoever_hears_it_may_end_the_backup(tmp_path: Path) -> None:
    layout = house(tmp_path)
    told: list[str] = []
    backup.take(layout, tmp_path / "backup", report=lambda progress: told.append(progress.what))
    assert list(dict.fromkeys(told)) == ["registry", "database", "checking", "files", "originals", "done"]

    def end(progress: backup.Progress) -> None:
        if progress.what == "files":
            raise StorageError("Enough.", reason="test")

    with pytest.raises(StorageError, match="Enough"):
        backup.take(layout, tmp_path / "another", report=end)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["backup", "state"]

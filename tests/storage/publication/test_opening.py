"""Creating, opening and closing: what is refused, what is recovered, what is told."""

from __future__ import annotations

import os
import shutil
import sqlite3
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from messages.errors import (
    CheckpointConflict,
    DatabaseOlderThanVault,
    ForeignVault,
    KnowledgeError,
    ManifestMissing,
    StoreUnavailable,
    VaultOlderThanDatabase,
)
from messages.vocabulary import PRIVATE
from storage import faults
from storage.manifest import Manifest, Pair, parse_manifest
from storage.publication import Machine, RecoveryReport, create_store
from storage.publication.opening import this_machine
from storage.state import history, notices
from storage.state.connection import Database, StorageCorrupt
from storage.state.journal import digest, marks
from storage.state.schema import SCHEMA_VERSION
from tests.storage.publication.audit import audit
from tests.storage.publication.scenario import BIG, Points
from tests.storage.publication.world import HERE, OTHER_BOOT, VAULT_ID, Shown, World, read_vault, shown, staged

NewStore = Callable[[], Path]
OTHER_VAULT = "44444444-4444-4444-8444-444444444444"


def used(folder: Path, *, clean: bool = False) -> World:
    """A store with three publications, closed; not synced unless ``clean``."""
    world = World(folder)
    world.open()
    for number in (1, 2, 3):
        world.publish({"a.md": f"version {number}\n", f"b{number}.md": f"b {number}\n"})
    world.close(clean=clean)
    return world


def reopened(world: World, machine: Machine = HERE) -> World:
    again = World(world.folder, this=machine)
    again.events = world.events
    again.open()
    return again


# --- creating ------------------------------------------------------------------------------------------------


def test_creating_a_made_store_again_changes_nothing(new_store: NewStore) -> None:
    world = used(new_store(), clean=True)
    before = dict(read_vault(world.vault))
    world.create()
    world = reopened(world)
    assert world.store.report.kind == "clean"
    assert dict(read_vault(world.vault)) == before
    world.close()


def test_a_new_store_has_generation_0_and_a_strict_manifest(new_store: NewStore) -> None:
    world = World(new_store())
    world.open()
    manifest = parse_manifest((world.vault / "vault.json").read_bytes())
    assert isinstance(manifest, Manifest)
    assert (manifest.vault_id, manifest.pair.generation) == (VAULT_ID, 0)
    assert manifest.pair == world.store.pair
    assert (world.vault / "private").is_dir()
    world.close()


def test_a_store_is_never_created_over_another_vault(new_store: NewStore) -> None:
    world = used(new_store(), clean=True)
    with pytest.raises(ForeignVault):
        create_store(world.folder, vault_id=OTHER_VAULT, projection=Shown())
    (world.folder / "state.sqlite").unlink()
    with pytest.raises(ForeignVault):
        create_store(world.folder, vault_id=OTHER_VAULT, projection=Shown())


def test_a_lost_database_is_never_made_anew_beside_a_used_vault(new_store: NewStore) -> None:
    world = used(new_store(), clean=True)
    (world.folder / "state.sqlite").unlink()
    with pytest.raises(DatabaseOlderThanVault):
        create_store(world.folder, vault_id=VAULT_ID, projection=Shown())
    assert world.read("a.md") == "version 3\n"


# --- opening: refusals ---------------------------------------------------------------------------------------


def refused(world: World, expected: type[KnowledgeError], machine: Machine = HERE) -> None:
    before = {path: path.read_bytes() for path in world.vault.rglob("*") if path.is_file()}
    with pytest.raises(expected):
        World(world.folder, this=machine).open()
    assert {path: path.read_bytes() for path in world.vault.rglob("*") if path.is_file()} == before


def put_manifest(world: World, vault_id: str, pair: Pair) -> None:
    (world.vault / "vault.json").write_bytes(Manifest(vault_id, pair).encode())


def earlier_pair(world: World, generation: int) -> Pair:
    with sqlite3.connect(world.folder / "state.sqlite") as db:
        row = db.execute("SELECT publication_id FROM publication WHERE generation = ?", (generation,)).fetchone()
    db.close()
    return Pair(generation, row[0])


def test_a_vault_of_another_store_is_refused_with_nothing_touched(new_store: NewStore) -> None:
    world = used(new_store())
    put_manifest(world, OTHER_VAULT, earlier_pair(world, 3))
    refused(world, ForeignVault)
    refused(world, ForeignVault, OTHER_BOOT)


def test_an_old_vault_copied_back_is_refused_unless_the_machine_stopped(new_store: NewStore) -> None:
    world = used(new_store())
    put_manifest(world, VAULT_ID, earlier_pair(world, 2))
    refused(world, VaultOlderThanDatabase)
    world = reopened(world, OTHER_BOOT)
    assert world.store.report.kind == "machine"
    assert world.store.pair.generation == 3
    world.close()


def test_an_old_database_copied_back_is_refused(new_store: NewStore) -> None:
    world = used(new_store(), clean=True)
    copy = world.folder.with_name("copy")
    shutil.copytree(world.folder, copy)
    world = reopened(world)
    world.publish({"c.md": "c\n"}, number=40)
    world.close()
    shutil.copy(copy / "state.sqlite", world.folder / "state.sqlite")
    refused(world, DatabaseOlderThanVault)
    refused(world, DatabaseOlderThanVault, OTHER_BOOT)


def test_a_manifest_with_another_publication_of_the_same_generation_is_refused(new_store: NewStore) -> None:
    world = used(new_store())
    put_manifest(world, VAULT_ID, Pair(3, OTHER_VAULT))
    refused(world, CheckpointConflict)
    refused(world, CheckpointConflict, OTHER_BOOT)


@pytest.mark.parametrize("damage", ["missing", "empty", "torn", "zeros", "symlink"])
def test_a_missing_or_torn_manifest_is_explained_only_by_a_machine_stop(new_store: NewStore, damage: str) -> None:
    world = used(new_store())
    path = world.vault / "vault.json"
    data = path.read_bytes()
    path.unlink()
    match damage:
        case "empty":
            path.touch()
        case "torn":
            path.write_bytes(data[:20])
        case "zeros":
            path.write_bytes(bytes(len(data)))
        case "symlink":
            path.symlink_to("private")
    refused(world, ManifestMissing)
    world = reopened(world, OTHER_BOOT)
    world.store.verify()
    assert world.store.pair.generation == 3
    world.close()


def test_a_missing_manifest_in_another_folder_is_an_unmounted_disk_not_a_lost_file(new_store: NewStore) -> None:
    world = used(new_store())
    world.vault.rename(world.folder / "the disk")
    (world.vault / "private").mkdir(parents=True)
    refused(world, ManifestMissing, OTHER_BOOT)
    assert list(read_vault(world.vault)) == []


def test_a_lost_vault_or_database_is_unavailable_and_never_created_empty(new_store: NewStore) -> None:
    world = used(new_store(), clean=True)
    world.vault.rename(world.folder / "moved")
    with pytest.raises(StoreUnavailable):
        World(world.folder).open()
    (world.folder / "moved").rename(world.vault)
    (world.folder / "state.sqlite").unlink()
    with pytest.raises(StoreUnavailable):
        World(world.folder).open()
    assert not (world.folder / "state.sqlite").exists()


def test_a_database_of_a_newer_format_is_refused_by_name(new_store: NewStore) -> None:
    world = used(new_store(), clean=True)
    with sqlite3.connect(world.folder / "state.sqlite") as db:
        db.execute(f"PRAGMA user_version={SCHEMA_VERSION + 1}")
    db.close()
    with pytest.raises(StoreUnavailable) as raised:
        World(world.folder).open()
    assert "state.sqlite" in raised.value.message
    assert raised.value.fields == {"format": SCHEMA_VERSION + 1, "supported": SCHEMA_VERSION}


def test_a_damaged_database_is_taken_out_of_service(new_store: NewStore) -> None:
    world = used(new_store(), clean=True)
    path = world.folder / "state.sqlite"
    path.write_bytes(b"not a database at all" * 1000)
    with pytest.raises(StorageCorrupt):
        World(world.folder).open()


# --- opening: recovery ---------------------------------------------------------------------------------------


def test_the_machine_is_told_by_its_boot_and_mount(tmp_path: Path) -> None:
    fd = os.open(tmp_path, os.O_RDONLY)
    try:
        machine = this_machine(fd)
        assert machine == this_machine(fd)
        assert machine.boot_id
        assert machine.mount_id
    finally:
        os.close(fd)


@pytest.mark.parametrize("other", [Machine("another boot", "this mount"), Machine("this boot", "another mount")])
def test_the_mark_of_the_machine_moves_only_when_recovery_has_finished(new_store: NewStore, other: Machine) -> None:
    world = used(new_store())
    (world.vault / "private" / "a.md").unlink()

    def fail(name: str) -> None:
        if name == "recovered.begin":
            raise OSError(5, "injected")

    with faults.installed(fail), pytest.raises(KnowledgeError):
        World(world.folder, this=other).open()
    (world.vault / "private" / "b1.md").unlink()
    again = reopened(world, other)
    assert again.store.report.kind == "machine"
    again.close(clean=False)
    assert reopened(world, other).store.report.kind == "process"


def test_the_first_opening_of_a_store_recovers_nothing(new_store: NewStore) -> None:
    folder = new_store()
    for machine in (HERE, OTHER_BOOT):
        copy = folder.with_name(machine.boot_id)
        shutil.copytree(folder, copy)
        (copy / "vault" / ".kr-create-left").write_text("by a creation that was cut short")
        world = World(copy, this=machine)
        world.open()
        assert world.store.report == RecoveryReport("clean")
        assert staged(world.vault) == []
        world.close()


def test_a_new_file_that_is_gone_before_its_publication_is_settled_is_created_again_and_it_is_said(
    new_store: NewStore,
) -> None:
    world = World(new_store())
    world.open()

    def fail(name: str) -> None:
        if name == "manifest.place":
            raise OSError(5, "injected")

    with faults.installed(fail):
        assert world.publish({"a.md": "one\n"}, number=1).state == "pending"
    (world.vault / "private" / "a.md").unlink()
    world.close(clean=False)
    world = reopened(world)
    assert world.read("a.md") == "one\n"
    assert world.store.report.messages == ("private/a.md was created again.",)
    world.close()


def test_after_a_process_stop_a_persons_deletion_and_revert_stand(new_store: NewStore) -> None:
    world = used(new_store())
    (world.vault / "private" / "b1.md").unlink()
    (world.vault / "private" / "a.md").write_text("version 2\n")
    (world.vault / "private" / "b2.md").write_text("")
    world = reopened(world)
    assert world.store.report == RecoveryReport("process")
    assert (world.read("b1.md"), world.read("a.md"), world.read("b2.md")) == (None, "version 2\n", "")
    world.close()


def test_after_a_machine_stop_lost_old_and_torn_files_are_put_back_and_it_is_said(new_store: NewStore) -> None:
    world = World(new_store())
    world.open()
    world.publish({"a.md": "version 1\n" + BIG, "b.md": "b\n" + BIG, "c.md": "c\n" + BIG, "d.md": "d\n", "e.md": "e\n"})
    world.publish({"a.md": "version 2\n" + BIG, "e.md": None})
    world.close(clean=False)
    private = world.vault / "private"
    (private / "a.md").write_text("version 1\n" + BIG)
    (private / "b.md").unlink()
    (private / "c.md").write_bytes(("c\n" + BIG).encode()[:4096])
    (private / "d.md").write_bytes(b"")
    (private / "e.md").write_text("e\n")
    world = reopened(world, OTHER_BOOT)
    report = world.store.report
    assert report.kind == "machine"
    assert set(report.paths("restored")) == {f"private/{name}.md" for name in "abde"}
    assert report.paths("fragment") == ("private/c.md",)
    assert [world.read(f"{name}.md") for name in "abcde"] == [
        "version 2\n" + BIG,
        "b\n" + BIG,
        "c\n" + BIG,
        "d\n",
        None,
    ]
    kept = history.rows(world.store.db, PRIVATE, record_id="id of c.md", limit=9)
    assert (kept[0].operation, kept[0].external) == ("kept", True)
    first, second = report.messages
    assert first == (
        "After the machine stopped uncleanly, 4 files were put back to their last saved version: private/a.md, "
        "private/b.md, private/d.md, private/e.md. If you deleted or restored them on purpose, do it again."
    )
    assert second.startswith("private/c.md was incomplete after the stop and was restored; the fragment is kept as")
    assert second.endswith(f"revision {kept[0].sequence}.")
    assert history.text(world.store.db, kept[0].hash or "") == ("c\n" + BIG).encode()[:4096]
    assert world.store.unpruned == 0
    world.close()
    audit(world.folder, world.events, machine_stop=True, this=OTHER_BOOT)


def test_what_recovery_did_is_told_for_30_days_whatever_openings_come_between(new_store: NewStore) -> None:
    world = World(new_store())
    world.open()
    world.publish({"a.md": "a\n" + BIG, "b.md": "b\n"})
    world.close(clean=False)
    (world.vault / "private" / "a.md").unlink()
    world = reopened(world, OTHER_BOOT)
    (told,) = world.store.report.messages
    assert "private/a.md" in told
    assert world.store.notices == (told,)
    [(at, rows)] = notices.kept(world.store.db, time.time_ns())
    assert tuple(rows) == world.store.report.rows
    later = ""
    for _ in range(2):
        world.close()
        world = reopened(world, OTHER_BOOT)
        assert world.store.report.messages == ()
        (later,) = world.store.notices
        assert later.endswith(f" UTC: {told}")
    assert notices.kept(world.store.db, at + notices.KEPT_NS) != ()
    assert notices.kept(world.store.db, at + notices.KEPT_NS + 1) == ()
    world.publish({"b.md": "b 2\n"}, number=9)
    world.close(clean=False)
    (world.vault / "private" / "b.md").unlink()
    world = reopened(world, Machine("a third boot", "mount"))
    newest, older = world.store.notices
    assert newest == world.store.report.messages[0]
    assert "private/b.md" in newest
    assert older == later
    world.close()


def test_notices_are_kept_for_30_days_and_the_newest_1000(new_store: NewStore) -> None:
    world = World(new_store())
    world.open()
    db, at = world.store.db, time.time_ns()
    with db.transaction(full=False, point="test"):
        notices.keep(db, at, [("restored", f"private/{number}.md", 0, None) for number in range(600)])
        notices.keep(db, at + 1, [("restored", f"private/x{number}.md", 0, None) for number in range(600)])
    counted = {when: len(rows) for when, rows in notices.kept(db, at + 1)}
    assert counted == {at + 1: 600, at: 400}
    with db.transaction(full=False, point="test"):
        notices.keep(db, at + notices.KEPT_NS + 1, [("created", "private/new.md", 0, None)])
    assert db.query_one("SELECT count(*) FROM recovery_notice") == (601,)
    world.close()


def test_after_a_machine_stop_a_text_that_came_later_stays_on_top_and_is_reported(new_store: NewStore) -> None:
    world = used(new_store())
    (world.vault / "private" / "a.md").write_text("a person's, synced by chance\n")
    world = reopened(world, OTHER_BOOT)
    assert world.store.report.paths("edited") == ("private/a.md",)
    assert world.read("a.md") == "a person's, synced by chance\n"
    (sentence,) = (text for text in world.store.report.messages if "Please compare" in text)
    assert sentence.startswith("private/a.md was edited outside around the time of the stop.")
    assert " UTC is in its history." in sentence
    assert shown(world.store.db)["private/a.md"] == digest(b"version 3\n")
    world.close()


def test_after_a_machine_stop_an_older_text_that_came_back_is_kept_but_does_not_hide_a_publication(
    new_store: NewStore,
) -> None:
    later = 10**18 * 3
    world = World(new_store(), clock=lambda: later)
    world.open()
    world.publish({"a.md": "version 1\n"})
    world.close(clean=False)
    # Its ctime is older than the acceptance, whose first look did not see it: an unsynced version came back.
    (world.vault / "private" / "a.md").write_text("a person's older version\n")
    world = reopened(world, OTHER_BOOT)
    assert world.read("a.md") == "version 1\n"
    assert history.text(world.store.db, digest(b"a person's older version\n")) is not None
    world.close()


def test_after_a_machine_stop_a_file_moved_by_hand_is_not_written_a_second_time(new_store: NewStore) -> None:
    world = used(new_store())
    (world.vault / "private" / "moved").mkdir()
    (world.vault / "private" / "b1.md").rename(world.vault / "private" / "moved" / "elsewhere.md")
    world = reopened(world, OTHER_BOOT)
    assert world.read("b1.md") is None
    assert world.read("moved/elsewhere.md") == "b 1\n"
    assert world.store.report.paths("moved") == ("private/b1.md",)
    world.close()


def test_after_a_machine_stop_an_equal_excerpt_elsewhere_proves_no_move(new_store: NewStore) -> None:
    world = World(new_store())
    world.open()
    world.publish({"artifacts/r1/excerpt.txt": "the same words\n"})
    world.sync()
    world.publish({"artifacts/r2/excerpt.txt": "the same words\n"})
    world.close(clean=False)
    shutil.rmtree(world.vault / "private" / "artifacts" / "r2")
    world = reopened(world, OTHER_BOOT)
    assert world.read("artifacts/r2/excerpt.txt") == "the same words\n"
    world.close()


@pytest.mark.parametrize("machine", [HERE, OTHER_BOOT])
@pytest.mark.parametrize("trap", ["symlink", "file"])
def test_a_folder_that_a_person_replaced_is_left_alone_and_stops_no_opening(
    new_store: NewStore, machine: Machine, trap: str
) -> None:
    world = World(new_store())
    world.open()
    world.publish({"people/a.md": "one\n", "b.md": "one\n"})
    world.close(clean=False)
    outside = world.folder / "outside"
    (world.vault / "private" / "people").rename(outside)
    (outside / "a.md").write_text("moved away and edited\n")
    if trap == "symlink":
        (world.vault / "private" / "people").symlink_to(outside)
    else:
        (world.vault / "private" / "people").write_text("no folder\n")
    world = reopened(world, machine)
    assert (outside / "a.md").read_text() == "moved away and edited\n"
    assert sorted(path.name for path in outside.iterdir()) == ["a.md"]
    assert world.store.report.paths("edited") == (("private/people/a.md",) if machine == OTHER_BOOT else ())
    assert world.sync()
    assert world.close()


def test_after_a_machine_stop_a_pending_publication_is_published(new_store: NewStore) -> None:
    world = World(new_store())
    world.open()
    world.publish({"a.md": "one\n"}, number=1)

    def fail(name: str) -> None:
        if name == "place.file":
            raise OSError(5, "injected")

    with faults.installed(fail):
        assert world.publish({"a.md": "two\n"}, number=2).state == "pending"
    world.close(clean=False)
    world = reopened(world, OTHER_BOOT)
    assert world.store.report.finished == ("00000000-0000-4000-8000-000000000002",)
    assert world.read("a.md") == "two\n"
    assert world.store.pending() is None
    world.close()


def test_a_publication_that_was_rolling_back_stays_a_conflict_after_a_machine_stop(new_store: NewStore) -> None:
    world = World(new_store())
    world.open()
    world.publish({"a.md": "one\n"}, number=1)
    points = Points()
    points.once("place.file", lambda: world.person_saves("a.md", "a person's\n"))

    def handler(name: str) -> None:
        points(name)
        if name == "conflict.begin":
            raise OSError(5, "injected")

    with faults.installed(handler):
        assert world.publish({"a.md": "two\n"}, number=2).state == "pending"
    world.close(clean=False)
    world = reopened(world, OTHER_BOOT)
    receipt = world.store.resume(PRIVATE, "00000000-0000-4000-8000-000000000002")
    assert receipt.state == "conflict"
    assert world.read("a.md") == "a person's\n"
    assert shown(world.store.db)["private/a.md"] == digest(b"one\n")
    world.close()


def test_staged_names_of_requests_that_were_never_accepted_are_gone_after_an_opening(new_store: NewStore) -> None:
    for machine in (HERE, OTHER_BOOT):
        world = used(new_store())
        stray = world.vault / "private" / ".kr-55555555-5555-4555-8555-555555555555.0.1"
        stray.write_text("never accepted\n")
        (world.vault / ".kr-probe-a").write_text("")
        world = reopened(world, machine)
        assert not stray.exists()
        world.sync()
        assert staged(world.vault) == []
        world.close()


def test_a_clean_stop_leaves_nothing_to_recover(new_store: NewStore) -> None:
    world = used(new_store(), clean=True)
    assert staged(world.vault) == []
    with sqlite3.connect(world.folder / "state.sqlite") as db:
        assert db.execute("SELECT clean FROM meta").fetchone() == (1,)
        assert db.execute("SELECT count(*) FROM step").fetchone() == (6,)  # they wait for Git
    db.close()
    world = reopened(world, OTHER_BOOT)
    assert world.store.report.kind == "clean"
    world.close(clean=False)
    assert reopened(world, OTHER_BOOT).store.report.kind == "process"


def test_a_store_that_cannot_be_synced_is_not_closed_as_clean(new_store: NewStore) -> None:
    world = World(new_store())
    world.open()
    world.publish({"a.md": "one\n"})

    def fail(name: str) -> None:
        if name == "sync.file":
            raise OSError(30, "injected")

    with faults.installed(fail):
        assert not world.close()
    world = reopened(world)
    assert world.store.report.kind == "process"
    assert world.close()


def test_each_opening_is_a_new_incarnation(new_store: NewStore) -> None:
    world = used(new_store(), clean=True)
    first = reopened(world)
    number = first.store.incarnation
    first.close()
    second = reopened(world)
    assert second.store.incarnation == number + 1
    second.close()
    db = Database.open(world.folder / "state.sqlite", point_prefix="state", read_only=True)
    assert marks(db).incarnation == number + 1
    db.close()

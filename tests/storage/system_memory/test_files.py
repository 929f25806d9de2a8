"""The file of system memory: what may stand in its place, what a full disk leaves, what an erasure leaves, backups."""

from __future__ import annotations

import errno
import os
import shutil
import stat
from collections.abc import Callable
from pathlib import Path

import apsw
import pytest

from messages.errors import KnowledgeError
from storage import backup, faults
from storage.checkup import checkup
from storage.layout import Layout
from storage.state.connection import CommitUncertain, StorageCorrupt
from storage.system_memory import corrections, records, rows
from storage.system_memory.database import SystemDatabase
from storage.system_memory.examining import condition
from tests.storage.backup.house import BY, hashes, house
from tests.storage.backup.test_backup import empty
from tests.storage.system_memory.world import EVIDENCE, STEWARD, World, draft


def refused(path: Path) -> KnowledgeError:
    with pytest.raises(KnowledgeError) as raised:
        SystemDatabase.open(path, now_us=lambda: 1, create=True)
    return raised.value


def database(path: Path, *statements: str) -> bytes:
    connection = apsw.Connection(str(path))
    for statement in statements:
        connection.execute(statement)
    connection.close()
    return path.read_bytes()


# --- what stands in its place ----------------------------------------------------------------------------------------


def test_a_link_in_its_place_is_refused_and_what_it_leads_to_is_left_alone(tmp_path: Path) -> None:
    target = tmp_path / "elsewhere.sqlite"
    before = database(target, "CREATE TABLE somebody (x)")
    os.chmod(target, 0o644)
    path = tmp_path / "system-memory.sqlite"
    for leads_to in (target, tmp_path / "nowhere"):
        path.symlink_to(leads_to)
        assert refused(path).fields["reason"] == "foreign"
        assert condition(path, whole=True)[0] == "foreign"
        path.unlink()
    assert target.read_bytes() == before
    assert stat.S_IMODE(target.stat().st_mode) == 0o644
    assert not (tmp_path / "nowhere").exists()


def test_a_folder_or_a_pipe_in_its_place_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "system-memory.sqlite"
    path.mkdir()
    assert refused(path).fields["reason"] == "foreign"
    path.rmdir()
    os.mkfifo(path)
    assert refused(path).fields["reason"] == "foreign"


@pytest.mark.parametrize("version", [0, 1, 7])
def test_a_foreign_database_of_any_version_is_refused_by_name_and_no_byte_of_it_changes(
    tmp_path: Path, version: int
) -> None:
    path = tmp_path / "system-memory.sqlite"
    before = database(path, "CREATE TABLE somebody (x)", f"PRAGMA user_version = {version}")
    assert refused(path).fields["reason"] == "foreign"
    assert path.read_bytes() == before
    assert condition(path, whole=True)[0] == "foreign"


def test_a_newer_format_is_refused_by_name_and_no_byte_of_it_changes(world: World) -> None:
    world.observe()
    world.system.close()
    before = database(world.path, "PRAGMA user_version = 2")
    assert refused(world.path).fields["reason"] == "newer_format"
    assert world.path.read_bytes() == before
    assert condition(world.path, whole=True)[0] == "newer_format"
    database(world.path, "PRAGMA user_version = 1")
    world.system = world.opened()


def test_a_file_that_is_no_database_is_damage_and_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "system-memory.sqlite"
    path.write_bytes(b"not a database at all, but long enough to have a header of its own" * 20)
    before = path.read_bytes()
    with pytest.raises(StorageCorrupt):
        SystemDatabase.open(path, now_us=lambda: 1, create=True)
    assert path.read_bytes() == before
    assert condition(path, whole=True)[0] == "damaged"


def test_only_the_owner_of_the_file_may_read_it_whatever_the_mask(tmp_path: Path) -> None:
    mask = os.umask(0)
    try:
        made = World(tmp_path / "deep" / "system-memory.sqlite")
    finally:
        os.umask(mask)
    made.observe()
    for path in (tmp_path / "deep").iterdir():
        assert stat.S_IMODE(path.stat().st_mode) == 0o600, path.name
    assert stat.S_IMODE((tmp_path / "deep").stat().st_mode) == 0o700
    made.system.close()


def test_a_folder_that_cannot_be_reached_is_a_typed_refusal_and_no_defect(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    found = refused(tmp_path / "file" / "system-memory.sqlite")
    assert (found.code, found.fields["reason"]) == ("storage_error", "io")


def test_a_file_that_was_removed_or_replaced_while_it_is_open_is_noticed(world: World) -> None:
    world.system.require_in_place()
    aside = world.path.with_name("aside")
    os.rename(world.path, aside)
    for stands in (None, aside):
        if stands is not None:
            shutil.copyfile(stands, world.path)
        with pytest.raises(KnowledgeError) as raised:
            world.system.require_in_place()
        assert (raised.value.code, raised.value.fields["reason"]) == ("store_unavailable", "lost")
    os.replace(aside, world.path)
    world.system.require_in_place()


# --- a full disk -----------------------------------------------------------------------------------------------------

WRITES: dict[str, Callable[[World, str, str], object]] = {
    "create": lambda world, row, challenge: rows.create(world.system, "ann", body="x"),
    "observe": lambda world, row, challenge: world.observe("ann", "sys:second"),
    "delete": lambda world, row, challenge: rows.delete(world.system, "ann", row),
    "erase": lambda world, row, challenge: rows.erase_account(world.system, "ann", "socket"),
    "admit": lambda world, row, challenge: records.admit(
        world.system, STEWARD, row, verdict="rejected", ground="looked again"
    ),
    "challenge": lambda world, row, challenge: records.challenge(world.system, "cem", row, ground="not so"),
    "refute": lambda world, row, challenge: records.refute(world.system, STEWARD, challenge, ground="it is"),
    "supersede": lambda world, row, challenge: corrections.supersede(world.system, STEWARD, row, draft()),
    "promote": lambda world, row, challenge: corrections.promote(
        world.system, STEWARD, row, stance="gateway-402", slug="sys:gateway", evidence_refs=EVIDENCE
    ),
}


@pytest.mark.parametrize("name", sorted(WRITES))
def test_a_disk_that_is_full_at_any_point_of_a_write_leaves_all_of_it_or_nothing(tmp_path: Path, name: str) -> None:
    def begun(place: Path) -> tuple[World, str, str]:
        world = World(place / "system-memory.sqlite")
        row = world.admitted()
        return world, row.id, world.challenge(row).id

    world, row, challenge = begun(tmp_path / "points")
    reached: list[str] = []
    with faults.installed(reached.append):
        WRITES[name](world, row, challenge)
    after = len(world.everything())
    world.system.close()
    assert len(reached) > 4
    for number in range(len(reached)):
        world, row, challenge = begun(tmp_path / str(number))
        before = world.everything()
        passed = 0

        def full(point: str, number: int = number) -> None:
            nonlocal passed
            passed += 1
            if passed == number + 1:
                raise OSError(errno.ENOSPC, "no space")

        failed = True
        with faults.installed(full):
            try:
                WRITES[name](world, row, challenge)
                failed = False
            except (KnowledgeError, CommitUncertain):
                pass
        world.reopen()
        left = world.everything()
        if failed and left != before:
            assert reached[number].startswith("system_memory.change.commit"), reached[number]
        assert left == before or len(left) == after, reached[number]
        world.system.close()


def test_a_change_that_is_durable_is_answered_so_though_its_log_cannot_be_copied(world: World) -> None:
    def full(point: str) -> None:
        if point == "system_memory.checkpoint":
            raise OSError(errno.ENOSPC, "no space")

    with faults.installed(full):
        made = [rows.create(world.system, "ann", body=f"row {number}") for number in range(130)]
        rows.delete(world.system, "ann", made[0].id)
    assert len(rows.list_rows(world.system, "ann")) == 129


# --- what an erasure leaves ------------------------------------------------------------------------------------------


def everything_beside(path: Path) -> bytes:
    return b"".join(found.read_bytes() for found in path.parent.iterdir() if found.name.startswith(path.name))


@pytest.mark.parametrize("how", ["delete", "erase"])
def test_what_was_deleted_is_in_no_byte_of_the_files_when_it_returns(world: World, how: str) -> None:
    mine = rows.create(world.system, "ann", body="the zebrafish swims at night")
    world.challenge(world.observe("ben"), "ann")
    assert b"zebrafish" in everything_beside(world.path)
    if how == "delete":
        rows.delete(world.system, "ann", mine.id)
    else:
        rows.erase_account(world.system, "ann", "socket")
        assert b"not so" not in everything_beside(world.path)
    assert b"zebrafish" not in everything_beside(world.path)


def test_deleting_a_tombstone_brings_back_the_claim_that_it_drained(world: World) -> None:
    claim = world.admitted()
    tombstone = world.promote(claim)
    rows.delete(world.system, STEWARD.account, tombstone.id)
    found = world.system.system_row(claim.id)
    assert found is not None
    assert found.live
    assert world.status(claim) == "admitted"


# --- backups and the doctor ------------------------------------------------------------------------------------------


@pytest.fixture
def layout(tmp_path: Path) -> Layout:
    """A state directory with a store and a promoted claim."""
    found = house(tmp_path)
    world = World(found.system_memory)
    world.promote(world.admitted())
    rows.create(world.system, "ann", body="my own")
    world.system.close()
    return found


def tables(layout: Layout) -> list[tuple[object, ...]]:
    world = World(layout.system_memory)
    try:
        return world.everything()
    finally:
        world.system.close()


def test_a_backup_has_system_memory_and_a_restore_its_rows_and_records(layout: Layout, tmp_path: Path) -> None:
    taken = backup.take(layout, tmp_path / "backup")
    assert taken.findings == ()
    copy = empty(tmp_path)
    backup.restore(tmp_path / "backup", copy, BY)
    assert tables(copy) == tables(layout)
    assert condition(copy.system_memory, whole=True)[0] == "sound"


def test_a_backup_of_one_bit_less_or_more_is_refused_and_nothing_is_restored(layout: Layout, tmp_path: Path) -> None:
    backup.take(layout, tmp_path / "backup")
    path = tmp_path / "backup" / "system-memory.sqlite"
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(bytes(data))
    copy = empty(tmp_path)
    with pytest.raises(KnowledgeError) as raised:
        backup.restore(tmp_path / "backup", copy, BY)
    assert "system-memory.sqlite" in raised.value.message
    assert not copy.system_memory.exists()


def damaged(layout: Layout) -> None:
    data = bytearray(layout.system_memory.read_bytes())
    data[100:4_096] = b"\xff" * (4_096 - 100)
    layout.system_memory.write_bytes(bytes(data))


def test_a_damaged_system_memory_is_left_out_and_keeps_nothing_else_from_being_backed_up(
    layout: Layout, tmp_path: Path
) -> None:
    damaged(layout)
    taken = backup.take(layout, tmp_path / "backup")
    assert [finding.code for finding in taken.findings] == ["system_memory_left_out"]
    assert not (tmp_path / "backup" / "system-memory.sqlite").exists()
    copy = empty(tmp_path)
    backup.restore(tmp_path / "backup", copy, BY)
    assert copy.registry.exists()
    assert not copy.system_memory.exists()


def test_the_doctor_looks_at_system_memory_changes_no_byte_and_says_what_to_do(layout: Layout) -> None:
    def found() -> list[str]:
        before = hashes(layout.state_dir)
        defects, _ = checkup(layout, owned=False)
        assert hashes(layout.state_dir) == before
        assert all(defect.mend for defect in defects)
        return [defect.code for defect in defects]

    assert found() == []
    whole = layout.system_memory.read_bytes()
    damaged(layout)
    assert found() == ["system_memory_damaged"]
    layout.system_memory.write_bytes(whole)
    database(layout.system_memory, "PRAGMA journal_mode=DELETE", "PRAGMA user_version = 2")
    assert found() == ["newer_format"]
    layout.system_memory.unlink()
    database(layout.system_memory, "CREATE TABLE somebody (x)")
    assert found() == ["system_memory_foreign"]
    layout.system_memory.unlink()
    assert found() == []

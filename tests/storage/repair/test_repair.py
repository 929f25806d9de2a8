"""Mending a store: a database built anew, and files, index and Git from history; nothing is lost on the way."""

from __future__ import annotations

import errno
import os
import shutil
import signal
from collections.abc import Callable, Iterator
from pathlib import Path

import apsw
import pytest

from messages.errors import FailedClosed, StorageError, StoreUnavailable
from messages.json_types import JsonValue
from messages.vocabulary import PRIVATE
from storage import faults, git, repair
from storage.layout import Layout, StoreLayout
from storage.manifest import Manifest, parse_manifest
from storage.peeking import peek
from storage.records import content_hash
from storage.repair import Repaired, agreement
from storage.session import StoreSession
from storage.state import journal
from storage.state.approvals import approval_counts, recall_block
from storage.state.upkeep import partitions
from storage.vault import ScanLimits
from storage.vault.replace import Capabilities
from tests.kit.store import GROUP_PARTITION, VAULT_ID, Desk, items_of, request_id
from tests.kit.unsynced import without_syncs
from tests.storage.backup.house import answers, hashes, house, seated, vault_hashes


@pytest.fixture(autouse=True)
def _unsynced() -> Iterator[None]:
    with without_syncs():
        yield


def store_of(layout: Layout) -> StoreLayout:
    return layout.new_store(VAULT_ID)


def mended(layout: Layout, *parts: repair.Part, dry_run: bool = False) -> Repaired:
    return repair.repair(store_of(layout), VAULT_ID, parts, dry_run=dry_run)


def agree(layout: Layout) -> None:
    """The full check: files, catalogue and history, the index against the catalogue, Git, the manifest."""
    store = store_of(layout)
    assert repair.database_state(store) == ("sound", "")
    with peek(store.state_database) as database:
        marks = journal.marks(database)
        manifest = parse_manifest(store.manifest.read_bytes())
        assert manifest == Manifest(VAULT_ID, marks.current)
        for partition in partitions(database):
            found = agreement(store, database, partition)
            assert found.whole, found
    assert git.repository_state(store.vault)[0] in ("sound", "absent")
    with seated(layout) as desk:
        for partition in (PRIVATE, GROUP_PARTITION):
            opened = desk.partition(partition)
            total = desk.call("grep", {"query": "garden plan robin", "mode": "any"}, partition=partition)["total"]
            assert isinstance(total, int)
            assert total > 0
            assert desk.index(partition).position() == opened.catalogue.change
    mended(layout)  # Git may be left to build
    again = mended(layout)
    assert (again.changed, again.findings) == (False, []), "a second run finds nothing to do"


def corrupt_page(path: Path) -> None:
    with open(path, "r+b") as file:
        file.seek(3 * 4096)
        file.write(b"\xa5" * 4096)


def overwritten(path: Path) -> None:
    with open(path, "r+b") as file:
        file.write(b"\xff" * 100)


def truncated(path: Path) -> None:
    os.truncate(path, path.stat().st_size // 2)


def emptied(path: Path) -> None:
    os.truncate(path, 0)


def deleted(path: Path) -> None:
    path.unlink()


DAMAGES: tuple[Callable[[Path], None], ...] = (corrupt_page, overwritten, truncated, emptied, deleted)


# --- the database ----------------------------------------------------------------------------------------------------


def records(layout: Layout) -> dict[str, JsonValue]:
    """What lists and exact reads say of the records, without what only history and this database know."""
    return {
        call: answer
        for call, answer in answers(layout).items()
        if call.split()[1] in ("records", "lookup", "timeline", "chronicle_due")
    }


def without_snapshot(said: dict[str, JsonValue]) -> dict[str, JsonValue]:
    return {
        call: {key: value for key, value in answer.items() if key not in ("snapshot", "git", "rows")}
        for call, answer in said.items()
        if isinstance(answer, dict)
    }


@pytest.mark.parametrize("damage", DAMAGES, ids=lambda damage: damage.__name__)
def test_a_lost_database_is_built_anew_from_the_vault(tmp_path: Path, damage: Callable[[Path], None]) -> None:
    layout = house(tmp_path)
    store = store_of(layout)
    said, held = without_snapshot(records(layout)), vault_hashes(layout)
    with peek(store.state_database) as database:
        before = journal.marks(database).current
    damage(store.state_database)
    old = store.state_database.read_bytes() if store.state_database.exists() else None
    planned = mended(layout, dry_run=True)
    assert planned.changed
    assert planned.database in ("missing", "damaged")
    done = mended(layout)
    assert done.database == planned.database
    shown = done.to_json()
    assert any("receipts" in str(line) for line in _list(shown["lost"]))
    assert any("history" in str(line) for line in _list(shown["lost"]))
    assert any("approvals" in str(line) for line in _list(shown["lost"]))
    assert any("every record" in str(line) for line in _list(shown["stays"]))
    assert vault_hashes(layout) == held, "no file of a person was touched"
    if old is not None:
        aside = store.root / f"state.sqlite.{done.set_aside}"
        assert aside.read_bytes() == old, "set aside, never deleted"
    with peek(store.state_database) as database:
        assert journal.marks(database).current.generation > before.generation
    agree(layout)
    assert without_snapshot(records(layout)) == said


def _list(value: JsonValue) -> list[JsonValue]:
    assert isinstance(value, list)
    return value


def test_old_fences_old_halves_and_old_receipts_fail_after_a_database_was_lost(tmp_path: Path) -> None:
    layout = house(tmp_path)
    store = store_of(layout)
    with seated(layout) as desk:
        page = {"title": "Before", "type": "project", "body": "x", "requestId": request_id(800)}
        desk.call("save_page", page)
    shutil.copytree(store.root, tmp_path / "old")
    store.state_database.unlink()
    mended(layout)
    with seated(layout) as desk:
        # The request id is not known any more: the same request is judged anew, and does not double the page.
        assert desk.call("save_page", page)["reason"] == "same_title"
        assert desk.fails("mutation", {"requestId": request_id(1)}).code == "not_found"
    for half in ("state.sqlite", "vault"):
        mixed = tmp_path / f"mixed {half}"
        shutil.copytree(store.root, mixed)
        place = mixed / half
        shutil.rmtree(place) if place.is_dir() else place.unlink()
        (shutil.copytree if half == "vault" else shutil.copy)(tmp_path / "old" / half, place)
        with pytest.raises(FailedClosed):
            StoreSession.open(StoreLayout(mixed), limits=ScanLimits())


def test_an_approval_is_asked_for_again_after_a_database_was_lost(tmp_path: Path) -> None:
    layout = house(tmp_path)
    with seated(layout) as desk:
        [item] = items_of(desk.remember({"text": "Robin likes tea.", "kind": "preference", "origin": "user_belief"}))
        desk.call("recall", {**desk.observed(item["id"]), "summary": "Robin likes tea"})
        assert approved(desk, str(item["id"]))
    store_of(layout).state_database.unlink()
    mended(layout)
    with seated(layout) as desk:
        assert not approved(desk, str(item["id"]))


def approved(desk: Desk, record_id: str) -> bool:
    data = desk.path_of(record_id).read_bytes()
    assert b"recall:" in data
    return recall_block(data) is not None and approval_counts(
        desk.session.publisher.db, PRIVATE, record_id, content_hash(data), lambda: data
    )


def test_without_a_persons_word_a_lost_database_is_left(tmp_path: Path) -> None:
    layout = house(tmp_path)
    overwritten(store_of(layout).state_database)
    before = hashes(tmp_path)
    left = repair.repair(store_of(layout), VAULT_ID, rebuild=False)
    assert (left.dry_run, left.changed, left.database) == (True, True, "damaged")
    assert hashes(tmp_path) == before


def test_a_displaced_text_behind_a_staged_name_is_set_aside_with_the_database(tmp_path: Path) -> None:
    layout = house(tmp_path)
    store = store_of(layout)
    staged = store.vault / "private" / "people" / ".kr-11111111-1111-4111-8111-111111111111.0.3"
    staged.write_text("A person's text that was displaced.\n")
    store.state_database.unlink()
    done = mended(layout)
    kept = list((store.root / f"staged.{done.set_aside}").iterdir())
    assert [path.read_text() for path in kept] == ["A person's text that was displaced.\n"]


def test_a_lost_manifest_beside_a_lost_database_is_written_with_the_stores_identity(tmp_path: Path) -> None:
    layout = house(tmp_path)
    store = store_of(layout)
    store.state_database.unlink()
    store.manifest.unlink()
    mended(layout)
    agree(layout)


def test_without_a_vault_or_with_anothers_nothing_is_built(tmp_path: Path) -> None:
    layout = house(tmp_path)
    store = store_of(layout)
    store.state_database.unlink()
    manifest = store.manifest.read_text()
    store.manifest.write_text(manifest.replace(VAULT_ID, "99999999-9999-4999-8999-999999999999"))
    before = hashes(store.root)
    with pytest.raises(StoreUnavailable, match="another store"):
        mended(layout)
    assert hashes(store.root) == before
    store.vault.rename(tmp_path / "away")
    with pytest.raises(StoreUnavailable, match="vault is gone"):
        mended(layout)
    assert not store.vault.exists()


def test_halves_that_disagree_are_left_to_a_person(tmp_path: Path) -> None:
    layout = house(tmp_path)
    store_of(layout).manifest.unlink()
    before = vault_hashes(layout)
    with pytest.raises(FailedClosed, match="store adopt"):
        mended(layout)
    assert vault_hashes(layout) == before


def test_a_rebuild_of_the_database_killed_at_any_point_can_be_run_again(tmp_path: Path) -> None:
    counts: dict[str, int] = {}
    layout = house(tmp_path / "count")
    store_of(layout).state_database.unlink()

    def count(name: str) -> None:
        counts[name] = counts.get(name, 0) + 1

    with faults.installed(count):
        mended(layout)
    held = vault_hashes(layout)
    points = [
        name for name in counts if name.startswith(("repair.aside", "repair.place", "repair.fill", "restore.manifest"))
    ]
    assert len(points) > 6
    for number, point in enumerate(points):
        layout = house(tmp_path / str(number))
        overwritten(store_of(layout).state_database)
        child = os.fork()
        if child == 0:
            try:

                def kill(name: str, point: str = point) -> None:
                    if name == point:
                        os.kill(os.getpid(), signal.SIGKILL)

                with faults.installed(kill):
                    mended(layout)
            finally:
                os._exit(0)
        assert os.WIFSIGNALED(os.waitpid(child, 0)[1]), point
        mended(layout)
        assert repair.database_state(store_of(layout)) == ("sound", ""), point
        assert vault_hashes(layout) == held
        shutil.rmtree(layout.state_dir)


# --- files -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("parts", [(), ("files",)])
def test_a_missing_file_is_written_from_history(tmp_path: Path, parts: tuple[repair.Part, ...]) -> None:
    layout = house(tmp_path)
    said, held = without_snapshot(records(layout)), vault_hashes(layout)
    note = store_of(layout).vault / "private" / "people" / "robin-vale.md"
    note.unlink()
    planned = mended(layout, *parts, dry_run=True)
    assert planned.restored == ["private/people/robin-vale.md"]
    assert not note.exists()
    assert mended(layout, *parts).restored == ["private/people/robin-vale.md"]
    assert vault_hashes(layout) == held
    agree(layout)
    assert without_snapshot(records(layout)) == said


def test_a_whole_partition_that_is_gone_is_written_from_history(tmp_path: Path) -> None:
    layout = house(tmp_path)
    held = vault_hashes(layout)
    for path in (store_of(layout).vault / "private").rglob("*.md"):
        path.unlink()
    mended(layout)
    assert vault_hashes(layout) == held
    agree(layout)


@pytest.mark.parametrize(("keep", "parts"), [(30, ()), (0, ()), (280, ("files",))])
def test_a_truncated_file_is_written_from_history_and_what_was_left_of_it_is_in_history(
    tmp_path: Path, keep: int, parts: tuple[repair.Part, ...]
) -> None:
    layout = house(tmp_path)
    held = vault_hashes(layout)
    note = store_of(layout).vault / "private" / "people" / "robin-vale.md"
    left = note.read_bytes()[:keep]
    note.write_bytes(left)
    assert mended(layout, *parts, dry_run=True).damaged == ["private/people/robin-vale.md"]
    assert note.read_bytes() == left
    assert mended(layout, *parts).damaged == ["private/people/robin-vale.md"]
    assert vault_hashes(layout) == held
    with peek(store_of(layout).state_database) as database:
        assert journal.has_blob(database, journal.digest(left)) or not left
    agree(layout)


def test_an_edit_is_taken_over_and_never_overwritten(tmp_path: Path) -> None:
    layout = house(tmp_path)
    note = store_of(layout).vault / "private" / "people" / "robin-vale.md"
    edited = note.read_text().replace("By hand.", "By hand, and better.")
    note.write_text(edited)
    broken = store_of(layout).vault / "private" / "plots" / "north-bed.md"
    mess = broken.read_text().replace("kind:", "kind")
    broken.write_text(mess)
    shorter = store_of(layout).vault / "private" / "projects" / "garden-pilot.md"
    shorter.write_text(shorter.read_text().removesuffix("By hand.\n")[:-5])
    cut = shorter.read_text()
    done = mended(layout)
    assert (note.read_text(), broken.read_text(), shorter.read_text()) == (edited, mess, cut)
    assert done.restored == []
    with peek(store_of(layout).state_database) as database:
        for text in (edited, mess, cut):
            assert journal.has_blob(database, journal.digest(text.encode()))


def test_a_renamed_file_is_not_written_a_second_time(tmp_path: Path) -> None:
    layout = house(tmp_path)
    people = store_of(layout).vault / "private" / "people"
    (people / "robin-vale.md").rename(people / "robin.md")
    assert mended(layout).restored == []
    assert [path.name for path in people.iterdir()] == ["robin.md"]


def test_a_text_that_history_lost_is_taken_from_its_file(tmp_path: Path) -> None:
    layout = house(tmp_path)
    store = store_of(layout)
    note = store.vault / "private" / "people" / "robin-vale.md"
    connection = apsw.Connection(str(store.state_database))
    connection.execute("DELETE FROM blob WHERE hash = ?", (journal.digest(note.read_bytes()),))
    connection.close()
    assert mended(layout, dry_run=True).findings[0].code == "text_lost"
    assert mended(layout).restored == ["history of private/people/robin-vale.md"]
    agree(layout)


# --- catalogue, index, Git ------------------------------------------------------------------------------------------


def test_a_catalogue_made_anew_says_the_same_and_history_has_no_new_row(tmp_path: Path) -> None:
    layout = house(tmp_path)
    said = without_snapshot(answers(layout))
    assert mended(layout, "catalogue").catalogue
    assert without_snapshot(answers(layout)) == said
    agree(layout)


@pytest.mark.parametrize(
    "damage", [overwritten, truncated, deleted, None], ids=["overwritten", "truncated", "deleted", "asked"]
)
def test_a_damaged_index_is_built_anew(tmp_path: Path, damage: Callable[[Path], None] | None) -> None:
    layout = house(tmp_path)
    said = found(layout)
    index = store_of(layout).search_index(PRIVATE)
    if damage is not None:
        damage(index)
    done = mended(layout, *(("index",) if damage is None else ()))
    assert "private" in done.indexes
    agree(layout)
    assert found(layout) == said


def found(layout: Layout) -> dict[str, JsonValue]:
    """What searches find."""
    return {call: answer for call, answer in without_snapshot(answers(layout)).items() if " grep " in call}


@pytest.mark.parametrize("how", ["missing", "damaged", "asked"])
def test_git_history_is_built_anew_and_the_old_one_set_aside(tmp_path: Path, how: str) -> None:
    layout = house(tmp_path)
    store = store_of(layout)
    assert mended(layout).git == "built"
    agree(layout)
    repository = store.vault / ".git"
    if how == "missing":
        shutil.rmtree(repository)
    elif how == "damaged":
        (repository / "HEAD").write_text("nonsense")
    planned = mended(layout, *(("git",) if how == "asked" else ()), dry_run=True)
    assert planned.git == "to build"
    done = mended(layout, *(("git",) if how == "asked" else ()))
    assert done.git == "built"
    assert (done.git_set_aside is None) == (how == "missing")
    if done.git_set_aside is not None:
        assert (store.vault / done.git_set_aside).is_dir()
    assert (repository / "refs" / "heads" / "main").read_text()
    agree(layout)


def test_a_git_pointer_to_elsewhere_is_left_alone(tmp_path: Path) -> None:
    layout = house(tmp_path)
    pointer = store_of(layout).vault / ".git"
    pointer.write_text("gitdir: /somewhere/else\n")
    done = mended(layout)
    assert (done.git, [finding.code for finding in done.findings]) == ("foreign", ["git"])
    assert pointer.read_text() == "gitdir: /somewhere/else\n"


# --- dry runs and refusals ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("parts", [(), *((part,) for part in repair.PARTS)], ids=str)
def test_a_dry_run_changes_no_byte(tmp_path: Path, parts: tuple[repair.Part, ...]) -> None:
    layout = house(tmp_path)
    store = store_of(layout)
    (store.vault / "private" / "people" / "robin-vale.md").unlink()
    before = hashes(tmp_path)
    planned = mended(layout, *parts, dry_run=True)
    assert planned.changed
    assert hashes(tmp_path) == before


def test_a_database_of_a_newer_format_is_refused_by_name(tmp_path: Path) -> None:
    layout = house(tmp_path)
    connection = apsw.Connection(str(store_of(layout).state_database))
    connection.execute("PRAGMA user_version = 99")
    connection.close()
    with pytest.raises(StoreUnavailable, match="format 99") as caught:
        mended(layout)
    assert caught.value.fields["reason"] == "newer_format"


def test_a_whole_store_is_left_as_it_is(tmp_path: Path) -> None:
    layout = house(tmp_path)
    mended(layout)
    before = vault_hashes(layout)
    done = mended(layout)
    assert (done.changed, done.findings, done.database, done.git) == (False, [], "sound", "sound")
    assert vault_hashes(layout) == before
    assert isinstance(done.to_json()["findings"], list)


@pytest.mark.parametrize("point", ["repair.write", "repair.put", "repair.sync"])
@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EROFS])
def test_a_full_or_failing_disk_is_a_typed_refusal_and_the_next_run_mends(
    tmp_path: Path, point: str, code: int
) -> None:
    layout = house(tmp_path)
    held = vault_hashes(layout)
    (store_of(layout).vault / "private" / "people" / "robin-vale.md").unlink()

    def fail(name: str) -> None:
        if name == point or name.startswith(f"{point}."):
            raise OSError(code, os.strerror(code))

    with faults.installed(fail), pytest.raises(StorageError):
        mended(layout)
    mended(layout)
    assert vault_hashes(layout) == held
    agree(layout)


def test_where_names_cannot_be_exchanged_a_truncated_file_is_mended_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    layout = house(tmp_path)
    held = vault_hashes(layout)
    note = store_of(layout).vault / "private" / "people" / "robin-vale.md"
    note.write_bytes(note.read_bytes()[:30])
    monkeypatch.setattr("storage.repair.mending.replace.probe", lambda root: Capabilities(exchange=False))
    assert mended(layout).damaged == ["private/people/robin-vale.md"]
    assert vault_hashes(layout) == held

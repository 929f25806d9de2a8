"""A lost registry: what is found of the stores, and a new one on request (stores-and-access.md, Storage layout)."""

from __future__ import annotations

import os
import shutil
import signal
from pathlib import Path

import apsw
import pytest

from messages.errors import DuplicateIdentity, StoreUnavailable
from storage.faults import installed
from storage.layout import Layout
from storage.registry import Holder, Isolated, Named, Registry
from storage.registry_audit import KEPT, By
from storage.registry_recovery import FoundStore, find_stores, look_at, rebuild
from storage.session import StoreSession

NOW = 1_790_000_000_000
BY = By("operator:x", "host", NOW + 5)


@pytest.fixture
def layout(tmp_path: Path) -> Layout:
    """A state directory with a store of agent main and one that is named."""
    made = Layout(tmp_path / "state")
    registry = Registry.open(made, at=NOW)
    for holder in (Isolated("main"), Named("family")):
        entry = registry.ensure(holder, at=NOW)
        StoreSession.create(entry.layout, entry.vault_id)
        registry.mark_made(entry.vault_id)
    registry.close()
    return made


def lose(layout: Layout) -> None:
    for path in layout.root.glob("registry.sqlite*"):
        path.unlink()


def files_of(layout: Layout) -> dict[str, bytes]:
    found = (path for path in layout.root.rglob("*") if path.is_file() and not path.name.endswith(("-wal", "-shm")))
    return {str(path.relative_to(layout.root)): path.read_bytes() for path in found}


def wanted(layout: Layout) -> list[tuple[str, Path, Holder | None]]:
    holders: list[Holder | None] = [Isolated("main"), None]
    found = find_stores(layout)
    return [(str(store.vault_id), store.root, holder) for store, holder in zip(found, holders, strict=True)]


def test_looking_finds_each_store_by_its_own_halves_and_changes_nothing(layout: Layout) -> None:
    lose(layout)
    before = files_of(layout)
    found = find_stores(layout)
    assert files_of(layout) == before
    assert [store.root.name for store in found] == [store.vault_id for store in found]
    assert all(store.problem is None for store in found)


def test_a_store_that_lost_a_half_is_found_by_the_other_and_said_to_be_broken(layout: Layout) -> None:
    first, second = find_stores(layout)
    (first.root / "vault" / "vault.json").unlink()
    (second.root / "state.sqlite").unlink()
    without_manifest, without_database = find_stores(layout)
    assert (without_manifest.vault_id, without_database.vault_id) == (first.vault_id, second.vault_id)
    assert without_manifest.problem is not None
    assert without_database.problem is not None
    assert "vault.json" in without_manifest.problem
    assert "database" in without_database.problem


def test_halves_of_different_stores_and_other_folders_are_no_store(layout: Layout, tmp_path: Path) -> None:
    first, second = find_stores(layout)
    shutil.copy(second.root / "vault" / "vault.json", first.root / "vault" / "vault.json")
    (layout.stores / "notes").mkdir()
    mixed, other = find_stores(layout)[0], look_at(layout.stores / "notes")
    assert (mixed.vault_id, other.vault_id) == (None, None)
    database = tmp_path / "x" / "state.sqlite"
    database.parent.mkdir()
    apsw.Connection(str(database)).execute("CREATE TABLE meta (a)")
    assert look_at(database.parent).vault_id is None


def test_a_manifest_behind_a_link_is_not_read(layout: Layout, tmp_path: Path) -> None:
    first = find_stores(layout)[0]
    (first.root / "vault").rename(tmp_path / "vault")
    (first.root / "vault").symlink_to(tmp_path / "vault")
    assert look_at(first.root).problem is not None


@pytest.mark.parametrize("damage", ["missing", "emptied", "damaged", "foreign"])
def test_a_rebuilt_registry_knows_exactly_the_stores_that_were_named(layout: Layout, damage: str) -> None:
    lose(layout)
    if damage == "emptied":
        layout.registry.touch()
    elif damage == "damaged":
        layout.registry.write_bytes(b"no database" * 500)
    elif damage == "foreign":
        other = Layout(layout.state_dir.with_name("other"))
        Registry.open(other, at=NOW).close()
        shutil.copy(other.registry, layout.registry)
    stores = wanted(layout)
    with pytest.raises(StoreUnavailable, match="knowledge doctor"):
        Registry.open(layout, at=NOW)
    aside = rebuild(layout, stores, BY)
    assert (layout.root / aside).exists() == (damage != "missing")
    registry = Registry.open(layout, at=NOW)
    found = {entry.vault_id: (entry.layout.root, entry.holder, entry.made) for entry in registry.entries()}
    assert found == {vault_id: (root, holder, True) for vault_id, root, holder in stores}
    (row,) = registry.audit(limit=10)
    assert (row["action"], row["actor"], row["stores"]) == ("registry.rebuild", "operator:x", [s[0] for s in stores])
    assert registry.strangers() == ()
    registry.close()


def test_two_folders_of_one_store_are_refused(layout: Layout) -> None:
    lose(layout)
    first = find_stores(layout)[0]
    shutil.copytree(first.root, layout.stores / "copy")
    stores: list[tuple[str, Path, Holder | None]] = [
        (str(store.vault_id), store.root, None) for store in find_stores(layout)
    ]
    before = files_of(layout)
    with pytest.raises(DuplicateIdentity):
        rebuild(layout, stores, BY)
    assert files_of(layout) == before


def test_a_rebuild_that_is_killed_at_any_point_leaves_a_lost_registry_or_the_whole_new_one(
    layout: Layout, tmp_path: Path
) -> None:
    lose(layout)
    layout.registry.write_bytes(b"no database" * 500)

    def copied(name: str) -> Layout:
        shutil.copytree(layout.state_dir, tmp_path / name)
        return Layout(tmp_path / name)

    points: list[str] = []
    dry = copied("dry")
    stores = wanted(dry)
    with installed(points.append):
        rebuild(dry, stores, BY)
    ends = set()
    for number, name in enumerate(point for point in dict.fromkeys(points) if "statement" not in point):
        place = copied(str(number))
        stores = wanted(place)
        child = os.fork()
        if child == 0:

            def kill(passed: str, at: str = name) -> None:
                if passed == at:
                    os.kill(os.getpid(), signal.SIGKILL)

            with installed(kill):
                rebuild(place, stores, BY)
            os._exit(1)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == -signal.SIGKILL, name
        try:
            registry = Registry.open(place, at=NOW)
        except StoreUnavailable:
            rebuild(place, stores, BY)
            registry = Registry.open(place, at=NOW)
            ends.add("lost")
        else:
            ends.add("new")
        assert len(registry.entries()) == 2, name
        registry.close()
        kept = [path.read_bytes() for path in place.root.glob("registry.sqlite.lost-*")]
        assert b"no database" * 500 in kept, name
    assert ends == {"lost", "new"}


def test_a_registry_that_is_removed_while_it_is_open_takes_nothing_more(layout: Layout) -> None:
    registry = Registry.open(layout, at=NOW)
    for path in layout.root.glob("registry.sqlite*"):
        path.rename(path.with_name(f"moved-{path.name}"))
    with pytest.raises(StoreUnavailable) as caught:
        registry.ensure(Isolated("ben"), at=NOW)
    assert caught.value.fields["reason"] == "registry_missing"
    assert registry.find(Isolated("ben")) is None
    assert registry.find(Isolated("main")) is not None
    registry.close()


def test_the_audit_keeps_a_bounded_number_of_rows_the_newest(layout: Layout) -> None:
    registry = Registry.open(layout, at=NOW)
    registry.grant("main", "chat:1", "read", BY)
    registry.close()
    connection = apsw.Connection(str(layout.registry))
    last = int(str(connection.execute("SELECT max(sequence) FROM audit").fetchall()[0][0]))
    connection.execute("UPDATE sqlite_sequence SET seq = ? WHERE name = 'audit'", (last + KEPT - 2,))
    connection.close()
    registry = Registry.open(layout, at=NOW)
    registry.grant("main", "chat:1", None, BY)
    rows = registry.audit(limit=KEPT)
    assert [row["sequence"] for row in rows] == [last + KEPT - 1, last]
    registry.grant("main", "chat:1", "read", BY)
    assert [row["action"] for row in registry.audit(limit=KEPT)] == ["grant.set", "grant.remove"]
    registry.close()


def test_a_found_store_is_told_with_its_writers() -> None:
    found = FoundStore(Path("/x"), "id", 3, ("main",))
    assert found.to_json() == {"path": "/x", "vaultId": "id", "revisions": 3, "writers": ["main"]}

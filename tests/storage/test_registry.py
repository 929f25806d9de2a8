"""The registry of stores (stores-and-access.md, Stores and Storage layout)."""

from __future__ import annotations

import os
import shutil
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import apsw
import pytest

from messages.errors import DuplicateIdentity, NotFound, StoreUnavailable
from storage import registry, registry_sentinel
from storage.faults import installed
from storage.layout import Layout
from storage.registry import FORMAT, Isolated, Named, Registry

NOW = 1_790_000_000_000
MAIN = Isolated("main")


@contextmanager
def opened(layout: Layout) -> Iterator[Registry]:
    registry = Registry.open(layout, at=NOW)
    try:
        yield registry
    finally:
        registry.close()


@pytest.fixture
def layout(tmp_path: Path) -> Layout:
    return Layout(tmp_path)


def refusal(layout: Layout) -> str:
    with pytest.raises(StoreUnavailable) as caught:
        Registry.open(layout, at=NOW)
    assert caught.value.retry == "never"
    return str(caught.value.fields["reason"])


def with_a_made_store(layout: Layout) -> str:
    with opened(layout) as registry:
        entry = registry.ensure(MAIN, at=NOW)
        entry.layout.root.mkdir(parents=True)
        registry.mark_made(entry.vault_id)
    return entry.vault_id


def remove_database(layout: Layout) -> None:
    for path in layout.root.glob("registry.sqlite*"):
        path.unlink()


def test_first_use_creates_the_registry_and_its_sentinel(layout: Layout) -> None:
    with opened(layout) as registry:
        assert registry.entries() == ()
        assert layout.registry_sentinel.read_text() == f"{registry.registry_id}\n"
        identity = registry.registry_id
    with opened(layout) as registry:
        assert registry.registry_id == identity
    assert layout.root.stat().st_mode & 0o077 == 0


def test_finding_a_store_never_creates_one(layout: Layout) -> None:
    with opened(layout) as registry:
        assert registry.find(MAIN) is None
        assert registry.find(Named("personal")) is None
        assert registry.entries() == ()


def test_a_store_is_registered_before_its_folder_exists_and_its_binding_never_changes(layout: Layout) -> None:
    with opened(layout) as registry:
        entry = registry.ensure(MAIN, at=NOW)
        assert not entry.made
        assert not entry.layout.root.exists()
        assert entry.layout.root == layout.stores / entry.vault_id
        assert registry.ensure(MAIN, at=NOW + 5) == entry
        other = registry.ensure(Isolated("other"), at=NOW)
        assert other.vault_id != entry.vault_id
    with opened(layout) as registry:
        assert registry.find(MAIN) == entry


def test_an_agent_and_a_named_store_of_one_name_are_two_stores(layout: Layout) -> None:
    with opened(layout) as registry:
        assert registry.ensure(Isolated("x"), at=NOW).vault_id != registry.ensure(Named("x"), at=NOW).vault_id


def test_a_made_store_stays_made(layout: Layout) -> None:
    vault_id = with_a_made_store(layout)
    with opened(layout) as registry:
        entry = registry.entry(vault_id)
        assert entry is not None
        assert entry.made
        with pytest.raises(NotFound):
            registry.mark_made("00000000-0000-4000-8000-000000000000")


def test_a_state_directory_that_moved_still_knows_its_stores(layout: Layout, tmp_path: Path) -> None:
    vault_id = with_a_made_store(layout)
    moved = Layout(tmp_path / "moved")
    moved.state_dir.mkdir()
    layout.root.rename(moved.root)
    with opened(moved) as registry:
        entry = registry.entry(vault_id)
        assert entry is not None
        assert entry.layout.root == moved.stores / vault_id


@pytest.mark.parametrize("keep_sentinel", [True, False])
def test_a_missing_registry_beside_stores_needs_recovery_and_is_never_made_anew(
    layout: Layout, keep_sentinel: bool
) -> None:
    with_a_made_store(layout)
    remove_database(layout)
    if not keep_sentinel:
        layout.registry_sentinel.unlink()
    assert refusal(layout) == "registry_missing"
    assert not layout.registry.exists()


def test_a_sentinel_without_a_registry_needs_recovery_even_without_stores(layout: Layout) -> None:
    with opened(layout):
        pass
    remove_database(layout)
    assert refusal(layout) == "registry_missing"


def test_an_emptied_registry_needs_recovery(layout: Layout) -> None:
    with_a_made_store(layout)
    remove_database(layout)
    layout.registry.touch()
    assert refusal(layout) == "registry_emptied"
    assert layout.registry.stat().st_size == 0


def test_a_registry_that_lists_no_store_beside_stores_needs_recovery(layout: Layout) -> None:
    with opened(layout):
        pass
    (layout.stores / "11111111-1111-4111-8111-111111111111").mkdir(parents=True)
    assert refusal(layout) == "registry_emptied"


def test_a_damaged_registry_is_refused(layout: Layout) -> None:
    with_a_made_store(layout)
    remove_database(layout)
    layout.registry.write_bytes(b"not a database at all, but long enough to be read as one" * 40)
    assert refusal(layout) == "registry_damaged"


def test_the_registry_of_another_state_directory_is_refused(layout: Layout, tmp_path: Path) -> None:
    with_a_made_store(layout)
    other = Layout(tmp_path / "other")
    with_a_made_store(other)
    remove_database(layout)
    shutil.copy(other.registry, layout.registry)
    assert refusal(layout) == "registry_foreign"


def test_a_database_of_another_program_is_refused(layout: Layout) -> None:
    layout.root.mkdir()
    connection = apsw.Connection(str(layout.registry))
    connection.execute("CREATE TABLE theirs (x)")
    connection.close()
    assert refusal(layout) == "registry_foreign"


def test_a_newer_format_is_refused_by_name(layout: Layout) -> None:
    with_a_made_store(layout)
    connection = apsw.Connection(str(layout.registry))
    connection.execute(f"PRAGMA user_version = {FORMAT + 1}")
    connection.close()
    assert refusal(layout) == "newer_format"


def test_a_sentinel_that_is_a_symbolic_link_is_refused(layout: Layout) -> None:
    with_a_made_store(layout)
    layout.registry_sentinel.rename(layout.root / "elsewhere")
    layout.registry_sentinel.symlink_to("elsewhere")
    assert refusal(layout) == "registry_foreign"


def test_a_lost_sentinel_is_written_again_from_the_registry(layout: Layout) -> None:
    with_a_made_store(layout)
    layout.registry_sentinel.unlink()
    with opened(layout) as registry:
        assert layout.registry_sentinel.read_text() == f"{registry.registry_id}\n"


def test_a_folder_that_nobody_registered_is_reported_and_never_adopted(layout: Layout) -> None:
    vault_id = with_a_made_store(layout)
    copy = layout.stores / "22222222-2222-4222-8222-222222222222"
    copy.mkdir()
    with opened(layout) as registry:
        assert registry.strangers() == (copy,)
        assert [entry.vault_id for entry in registry.entries()] == [vault_id]


def test_a_copy_beside_its_original_is_refused_as_a_duplicate_identity(layout: Layout, tmp_path: Path) -> None:
    vault_id = with_a_made_store(layout)
    with opened(layout) as registry:
        with pytest.raises(DuplicateIdentity):
            registry.register(vault_id, tmp_path / "copy", at=NOW)
        with pytest.raises(DuplicateIdentity):
            registry.register("33333333-3333-4333-8333-333333333333", layout.stores / vault_id, at=NOW)
        entry = registry.register("33333333-3333-4333-8333-333333333333", tmp_path / "elsewhere", at=NOW)
        assert entry.layout.root == tmp_path / "elsewhere"
        assert entry.holder is None
        assert registry.entry(entry.vault_id) == entry


def first_use(layout: Layout) -> None:
    with opened(layout) as registry:
        entry = registry.ensure(MAIN, at=NOW)
        entry.layout.root.mkdir(parents=True, exist_ok=True)
        registry.mark_made(entry.vault_id)


def killed_at(layout: Layout, wanted: str, hit: int) -> int:
    """Run a first use in a child that is killed at the given pass of a point; its exit status."""
    child = os.fork()
    if child == 0:
        remaining = hit

        def kill(name: str) -> None:
            nonlocal remaining
            remaining -= name == wanted
            if not remaining:
                os.kill(os.getpid(), signal.SIGKILL)

        try:
            with installed(kill):
                first_use(layout)
        finally:
            os._exit(1)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def passed_points(layout: Layout) -> list[str]:
    points: list[str] = []
    with installed(points.append):
        first_use(layout)
    return points


def test_every_point_that_the_registry_passes_is_declared(layout: Layout) -> None:
    declared = (*registry.FAULT_POINTS, *registry_sentinel.FAULT_POINTS)
    names = {name for name, _ in declared}
    assert {point.removesuffix(".after") for point in passed_points(layout)} <= names
    assert all(description for _, description in declared)
    assert len(names) == len(declared)


def test_a_kill_at_any_point_leaves_a_registry_that_opens_with_one_store_at_most(tmp_path: Path) -> None:
    counted: dict[str, int] = {}
    for point in passed_points(Layout(tmp_path / "dry")):
        counted[point] = counted.get(point, 0) + 1
    hits = [(name, hit) for name, total in counted.items() for hit in range(1, total + 1)]
    assert len(hits) > 50
    for number, (name, hit) in enumerate(hits):
        layout = Layout(tmp_path / str(number))
        assert killed_at(layout, name, hit) == -signal.SIGKILL, (name, hit)
        with opened(layout) as registry:
            assert len(registry.entries()) <= 1, (name, hit)
            entry = registry.ensure(MAIN, at=NOW)
            assert not registry.strangers(), (name, hit)
            assert entry.made is False or os.path.isdir(entry.layout.root), (name, hit)
            assert layout.registry_sentinel.read_text().strip() == registry.registry_id


# --- older formats ----------------------------------------------------------------------------------------------------

FORMAT_1 = """
CREATE TABLE meta (one INTEGER PRIMARY KEY CHECK (one = 1), registry_id TEXT NOT NULL, created_at INTEGER NOT NULL)
STRICT;
CREATE TABLE store (vault_id TEXT PRIMARY KEY, location TEXT NOT NULL UNIQUE,
made INTEGER NOT NULL DEFAULT 0 CHECK (made IN (0, 1)), created_at INTEGER NOT NULL) STRICT, WITHOUT ROWID;
CREATE TABLE binding (kind TEXT NOT NULL CHECK (kind IN ('isolated', 'named')), holder TEXT NOT NULL,
vault_id TEXT NOT NULL UNIQUE REFERENCES store(vault_id), PRIMARY KEY (kind, holder)) STRICT, WITHOUT ROWID;
INSERT INTO meta VALUES (1, 'the-registry', 1);
INSERT INTO store VALUES ('22222222-2222-4222-8222-222222222222', 'stores/22222222-2222-4222-8222-222222222222', 1, 5);
INSERT INTO binding VALUES ('isolated', 'main', '22222222-2222-4222-8222-222222222222');
PRAGMA user_version = 1;
"""


def with_format_1(layout: Layout) -> None:
    (layout.stores / "22222222-2222-4222-8222-222222222222").mkdir(parents=True)
    layout.registry_sentinel.write_text("the-registry\n")
    connection = apsw.Connection(str(layout.registry))
    connection.execute(FORMAT_1)
    connection.close()


def version_of(path: Path) -> int:
    connection = apsw.Connection(str(path))
    try:
        return int(str(connection.execute("PRAGMA user_version").fetchall()[0][0]))
    finally:
        connection.close()


def test_an_older_registry_is_brought_forward_with_all_it_says_and_a_copy_of_it_is_kept(layout: Layout) -> None:
    with_format_1(layout)
    with opened(layout) as registry:
        found = registry.find(MAIN)
        assert found is not None
        assert found.made
        assert registry.registry_id == "the-registry"
    assert version_of(layout.registry) == FORMAT
    assert version_of(layout.root / "registry.sqlite.format-1") == 1
    with opened(layout) as registry:
        assert len(registry.entries()) == 1


def test_an_older_and_a_new_registry_have_the_same_tables(tmp_path: Path) -> None:
    def tables(layout: Layout) -> list[str]:
        Registry.open(layout, at=NOW).close()
        connection = apsw.Connection(str(layout.registry))
        try:
            return [str(name) for (name,) in connection.execute("SELECT name FROM sqlite_schema ORDER BY name")]
        finally:
            connection.close()

    older, new = Layout(tmp_path / "older"), Layout(tmp_path / "new")
    with_format_1(older)
    assert tables(older) == tables(new)


def test_a_kill_at_any_point_of_the_migration_leaves_a_registry_that_is_brought_forward_next_time(
    tmp_path: Path,
) -> None:
    def passed(layout: Layout) -> list[str]:
        points: list[str] = []
        with installed(points.append):
            Registry.open(layout, at=NOW).close()
        return points

    dry = Layout(tmp_path / "dry")
    with_format_1(dry)
    points = [point for point in dict.fromkeys(passed(dry)) if ".copy." in point or ".forward." in point]
    assert {"registry.copy.place", "registry.forward.commit.after"} <= set(points)
    for number, name in enumerate(points):
        layout = Layout(tmp_path / str(number))
        with_format_1(layout)
        assert killed_at(layout, name, 1) == -signal.SIGKILL, name
        with opened(layout) as registry:
            assert len(registry.entries()) == 1, name
        assert version_of(layout.registry) == FORMAT
        assert version_of(layout.root / "registry.sqlite.format-1") == 1

"""``knowledge doctor`` over broken worlds: it starts, names each defect with what mends it, and changes no byte."""

from __future__ import annotations

import fcntl
import json
import os
import shutil
import subprocess
import sys
import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import apsw
import pytest

from host_bridge.cli import exits, main
from messages.json_types import JsonObject
from storage import erasure
from storage.layout import Layout, StoreLayout
from storage.registry import Isolated, Registry
from storage.session import StoreSession
from tests.kit.store import GROUP_PARTITION, VAULT_ID
from tests.kit.unsynced import without_syncs
from tests.storage.backup.house import answers, house


@pytest.fixture(autouse=True)
def _unsynced() -> Iterator[None]:
    with without_syncs():
        yield


@pytest.fixture
def layout(tmp_path: Path) -> Layout:
    return house(tmp_path)


def looked(layout: Layout, capfdbinary: pytest.CaptureFixture[bytes], *words: str) -> tuple[int, JsonObject]:
    """The exit status and the report, in this process; every byte and every time stays as it was."""
    before = everything(layout.state_dir)
    status = main(["doctor", *words, "--state-dir", str(layout.state_dir), "--json"])
    out, err = capfdbinary.readouterr()
    assert everything(layout.state_dir) == before, "looking changed something"
    assert err == b""
    report: JsonObject = json.loads(out)
    return status, report


def everything(folder: Path) -> dict[str, tuple[int, int, int, bytes]]:
    """Every name with its mode, times and bytes; folders too, so that a file that came and went shows."""
    found = {}
    for path in [folder, *sorted(folder.rglob("*"))]:
        status = path.lstat()
        readable = path.is_file() and not path.is_symlink() and os.access(path, os.R_OK)
        data = path.read_bytes() if readable else b""
        found[str(path.relative_to(folder))] = (status.st_mode, status.st_mtime_ns, status.st_ino, data)
    return found


def codes(report: JsonObject) -> list[str]:
    findings = report["findings"]
    assert isinstance(findings, list)
    assert report["healthy"] == (not findings)
    for row in findings:
        assert isinstance(row, dict)
        assert row["message"]
        assert row["mend"], f"{row['code']} says not how to mend it"
    return [str(row["code"]) for row in findings if isinstance(row, dict)]


def store_of(layout: Layout) -> StoreLayout:
    return layout.new_store(VAULT_ID)


def note_of(layout: Layout) -> Path:
    return store_of(layout).root / erasure.NOTE_NAME


# --- the worlds ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class World:
    """One way to be broken: what is done to the state directory, which code is found, and the command that is named."""

    name: str
    breaks: Callable[[Layout], object]
    code: str
    command: str


def overwrite(path: Path) -> None:
    with open(path, "r+b") as file:
        file.write(b"\xff" * 100)


def sql(path: Path, statement: str) -> None:
    connection = apsw.Connection(str(path))
    connection.execute(statement)
    connection.close()


def page(path: Path) -> None:
    with open(path, "r+b") as file:
        file.seek(3 * 4096)
        file.write(b"\xa5" * 4096)


def half(path: Path) -> None:
    os.truncate(path, 9_000)


def foreign(path: Path) -> None:
    path.unlink()
    sql(path, "CREATE TABLE t (x)")


def a_folder(path: Path) -> None:
    path.unlink()
    path.mkdir()


def link_store(layout: Layout) -> None:
    store_of(layout).root.rename(layout.state_dir / "real")
    store_of(layout).root.symlink_to(layout.state_dir / "real")


def remove_registry(layout: Layout) -> None:
    layout.registry.unlink()


def copy_store(layout: Layout) -> None:
    shutil.copytree(store_of(layout).root, layout.stores / "copy")


def other_manifest(layout: Layout) -> None:
    manifest = store_of(layout).manifest
    manifest.write_text(manifest.read_text().replace(VAULT_ID, str(uuid.UUID(int=7, version=4))))


def older_vault(layout: Layout) -> None:
    content = json.loads(store_of(layout).manifest.read_text())
    content["generation"] = 0
    store_of(layout).manifest.write_text(json.dumps(content))


def newer_vault(layout: Layout) -> None:
    content = json.loads(store_of(layout).manifest.read_text())
    content["generation"] += 1
    store_of(layout).manifest.write_text(json.dumps(content))


def move_away(path: Path) -> None:
    path.rename(path.with_name("away elsewhere"))


TWICE = "stores: {a: {agents: [x]}, b: {agents: [x]}}\n"
WORLDS = (
    World("no registry", remove_registry, "registry_missing", "doctor rebuild"),
    World("corrupt registry", lambda at: overwrite(at.registry), "registry_damaged", "doctor rebuild"),
    World("truncated registry", lambda at: os.truncate(at.registry, 5000), "registry_damaged", "doctor rebuild"),
    World("emptied registry", lambda at: os.truncate(at.registry, 0), "registry_emptied", "doctor rebuild"),
    World("registry without stores", lambda at: sql(at.registry, "DELETE FROM binding; DELETE FROM store"),
          "registry_emptied", "doctor rebuild"),
    World("foreign registry", lambda at: at.registry_sentinel.write_text("another\n"), "registry_foreign", "rebuild"),
    World("newer registry", lambda at: sql(at.registry, "PRAGMA user_version = 99"), "newer_format", "newer version"),
    World("registry is a folder", lambda at: a_folder(at.registry), "registry_foreign", "rebuild"),
    World("broken configuration", lambda at: at.configuration.write_text("agents: ["), "configuration_invalid", "mend"),
    World("unknown key", lambda at: at.configuration.write_text("agent: x\n"), "configuration_invalid", "mend"),
    World("configuration is a folder", lambda at: a_folder(at.configuration),
          "configuration_invalid", "mend"),
    World("agent in two stores", lambda at: at.configuration.write_text(TWICE), "store_ambiguous", "stores join"),
    World("corrupt page", lambda at: page(store_of(at).state_database), "database_damaged", "knowledge repair"),
    World("overwritten head", lambda at: overwrite(store_of(at).state_database), "database_damaged", "repair --store"),
    World("truncated database", lambda at: half(store_of(at).state_database), "database_damaged", "repair"),
    World("emptied database", lambda at: os.truncate(store_of(at).state_database, 0), "database_damaged", "repair"),
    World("another program's database", lambda at: foreign(store_of(at).state_database), "database_damaged", "repair"),
    World("missing database", lambda at: store_of(at).state_database.unlink(), "database_lost", "knowledge repair"),
    World("newer database", lambda at: sql(store_of(at).state_database, "PRAGMA user_version = 99"), "newer_format",
          "newer version"),
    World("unreadable erasure", lambda at: note_of(at).write_text("{"), "erasure_unreadable", "again"),
    World("unfinished erasure", lambda at: erasure.begin(store_of(at), GROUP_PARTITION), "erasure_unfinished", "next"),
    World("missing manifest", lambda at: store_of(at).manifest.unlink(), "manifest_missing", "store adopt"),
    World("torn manifest", lambda at: store_of(at).manifest.write_text("{"), "manifest_missing", "store adopt"),
    World("another store's manifest", other_manifest, "foreign", "put back"),
    World("older vault", older_vault, "vault_older_than_database", "store adopt"),
    World("newer vault", newer_vault, "database_older_than_vault", "store adopt"),
    World("missing vault", lambda at: move_away(store_of(at).vault), "store_unavailable", "store relocate"),
    World("missing store", lambda at: move_away(store_of(at).root), "store_unavailable", "store relocate"),
    World("store is a link", link_store, "store_unavailable", "store relocate"),
    World("a copy beside the original", copy_store, "duplicate_identity", "move it away"),
    World("a stranger", lambda at: (at.stores / "notes").mkdir(), "stranger", "move it away"),
    World("a move cut short", lambda at: (at.root / "relocation.json").write_text("{}"), "relocation_unfinished",
          "status"),
    World("a restore cut short", lambda at: (at.state_dir / ".kr-restoring").mkdir(), "restore_unfinished", "restore"),
)  # fmt: skip


@pytest.mark.parametrize("world", WORLDS, ids=lambda world: world.name)
def test_doctor_starts_when_everything_is_broken_and_names_the_defect_and_its_mending(
    layout: Layout, capfdbinary: pytest.CaptureFixture[bytes], world: World
) -> None:
    world.breaks(layout)
    status, report = looked(layout, capfdbinary)
    assert status == exits.FINDINGS
    assert world.code in codes(report)
    findings = report["findings"]
    assert isinstance(findings, list)
    mends = [str(row["mend"]) for row in findings if isinstance(row, dict) and row["code"] == world.code]
    assert any(world.command in mend for mend in mends), mends


def test_a_whole_state_directory_and_an_empty_one_are_healthy(
    layout: Layout, tmp_path: Path, capfdbinary: pytest.CaptureFixture[bytes]
) -> None:
    assert looked(layout, capfdbinary)[0] == exits.OK
    assert looked(layout, capfdbinary, "--store", VAULT_ID)[0] == exits.OK
    (tmp_path / "new").mkdir()
    status, report = looked(Layout(tmp_path / "new"), capfdbinary)
    assert (status, codes(report), report["stores"]) == (exits.OK, [], [])
    assert main(["doctor", "--state-dir", str(tmp_path / "nowhere"), "--json"]) == exits.OK
    assert not (tmp_path / "nowhere").exists()


def test_several_defects_are_all_named(layout: Layout, capfdbinary: pytest.CaptureFixture[bytes]) -> None:
    registry = Registry.open(layout, at=1)
    other = registry.ensure(Isolated("other"), at=1)
    StoreSession.create(other.layout, other.vault_id)
    registry.mark_made(other.vault_id)
    registry.close()
    layout.configuration.write_text("agents: [")
    overwrite(store_of(layout).state_database)
    move_away(other.layout.vault)
    found = codes(looked(layout, capfdbinary)[1])
    assert {"configuration_invalid", "database_damaged", "store_unavailable"} <= set(found)


def test_a_database_whose_owner_died_is_read_with_its_log_and_nothing_beside_it_changes(
    layout: Layout, capfdbinary: pytest.CaptureFixture[bytes]
) -> None:
    script = (
        "import os, sys, pathlib\n"
        "from tests.kit.store import Desk\n"
        "from storage.layout import StoreLayout\n"
        "desk = Desk(StoreLayout(pathlib.Path(sys.argv[1])), _requests=90_000)\n"
        "desk.page('Left in the log', body='x')\n"
        "os._exit(9)\n"
    )
    root = Path(__file__).resolve().parents[3]
    died = subprocess.run([sys.executable, "-c", script, str(store_of(layout).root)], cwd=root, check=False)
    assert died.returncode == 9
    assert store_of(layout).state_database.with_name("state.sqlite-wal").stat().st_size > 0
    assert looked(layout, capfdbinary)[0] == exits.OK


@pytest.mark.skipif(os.getuid() == 0, reason="needs limits: the superuser may read everything")
def test_a_folder_that_may_not_be_read_is_named(layout: Layout, capfdbinary: pytest.CaptureFixture[bytes]) -> None:
    layout.stores.chmod(0)
    try:
        assert codes(looked(layout, capfdbinary)[1]) == ["unreadable"]
    finally:
        layout.stores.chmod(0o700)


def test_a_read_only_place_is_named_and_looked_into(
    layout: Layout, capfdbinary: pytest.CaptureFixture[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    access = os.access
    monkeypatch.setattr(os, "access", lambda path, mode: mode != os.W_OK and access(path, mode))
    status, report = looked(layout, capfdbinary)
    assert (status, codes(report)) == (exits.FINDINGS, ["read_only"])


def test_an_owner_that_holds_the_directory_and_says_nothing_is_named(
    layout: Layout, capfdbinary: pytest.CaptureFixture[bytes]
) -> None:
    lock = layout.root / "owner.lock"
    lock.write_text(json.dumps({"pid": os.getpid(), "version": "99.0", "socket": "/nowhere/at/all.sock"}) + "\n")
    folder = os.open(layout.root, os.O_RDONLY)
    fcntl.flock(folder, fcntl.LOCK_EX)
    try:
        status, report = looked(layout, capfdbinary)
        assert (status, codes(report)) == (exits.FINDINGS, ["owner_version", "owner_silent"])
        assert report["owner"] == "silent"
        lock.write_text(json.dumps({"pid": os.getpid(), "version": "99.0", "socket": None}) + "\n")
        assert codes(looked(layout, capfdbinary)[1]) == ["owner_version", "open_elsewhere"]
        lock.write_text("nonsense")
        assert codes(looked(layout, capfdbinary)[1]) == ["owner_silent"]
    finally:
        os.close(folder)


# --- one store -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("breaks", "code", "command"),
    [
        (lambda at: (at.vault / "private/people/robin-vale.md").unlink(), "files_missing", "files"),
        (lambda at: (at.vault / "private/people/robin-vale.md").write_text("x"), "files_edited", "--dry-run"),
        (lambda at: overwrite(next(at.search.glob("private.sqlite"))), "index_damaged", "index"),
        (lambda at: sql(at.state_database, "DELETE FROM blob"), "text_lost", "knowledge repair"),
    ],
)
def test_one_store_is_looked_at_in_all_its_parts(
    layout: Layout,
    capfdbinary: pytest.CaptureFixture[bytes],
    breaks: Callable[[StoreLayout], object],
    code: str,
    command: str,
) -> None:
    answers(layout)  # so that there is an index
    breaks(store_of(layout))
    status, report = looked(layout, capfdbinary, "--store", VAULT_ID)
    assert status == exits.FINDINGS
    assert code in codes(report)
    findings = report["findings"]
    assert isinstance(findings, list)
    assert any(command in str(row["mend"]) for row in findings if isinstance(row, dict) and row["code"] == code)


def test_an_unknown_store_is_said_to_be_unknown(layout: Layout, capfdbinary: pytest.CaptureFixture[bytes]) -> None:
    status, report = looked(layout, capfdbinary, "--store", str(uuid.UUID(int=9, version=4)))
    assert (status, codes(report)) == (exits.FINDINGS, ["not_found"])
    assert main(["doctor", "--store", "x"]) == exits.USAGE

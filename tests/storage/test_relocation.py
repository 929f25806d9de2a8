"""A store's folder moves: by rename, by a verified copy, killed anywhere, and never onto anything."""

from __future__ import annotations

import atexit
import errno
import os
import shutil
import signal
import tempfile
import uuid
from collections.abc import Callable
from functools import cache
from pathlib import Path

import pytest

from messages.errors import DuplicateIdentity, InvalidArgument, KnowledgeError, StorageError, StoreUnavailable
from storage import faults, relocation
from storage.layout import Layout, StoreLayout
from storage.registry import Isolated, Registry
from storage.relocation import Move, Moved
from storage.session import StoreSession

VAULT_ID = "77777777-7777-4777-8777-777777777777"
OTHER_ID = "88888888-8888-4888-8888-888888888888"


def make_state(base: Path) -> None:
    """A state directory with one store in use."""
    layout = Layout(base)
    registry = Registry.open(layout, at=1)
    entry = registry.ensure(Isolated("main"), at=1, new_id=lambda: uuid.UUID(VAULT_ID))
    StoreSession.create(entry.layout, VAULT_ID)
    registry.mark_made(VAULT_ID)
    registry.close()
    private = entry.layout.vault / "private"
    (private / "people").mkdir()
    (private / "people" / "ada.md").write_text("# Ada\n")
    (entry.layout.vault / ".git").mkdir()
    (entry.layout.vault / ".git" / "empty folder").mkdir()
    os.symlink("people/ada.md", private / "link.md")
    os.chmod(private / "people" / "ada.md", 0o640)


@cache
def made_state() -> Path:
    folder = Path(tempfile.mkdtemp(prefix="relocation-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    make_state(folder)
    return folder


class House:
    """A state directory with one store in use, and a second place for it."""

    def __init__(self, base: Path) -> None:
        self.base = base
        self.layout = Layout(base / "state")
        self.target = base / "elsewhere" / "my store"
        self.target.parent.mkdir(parents=True)
        shutil.copytree(made_state(), base / "state", symlinks=True)
        self.source = self.layout.new_store(VAULT_ID).root

    def registry(self) -> Registry:
        return Registry.open(self.layout, at=2)

    def plan(self, target: Path | None = None) -> Move:
        registry = self.registry()
        try:
            entry = registry.entry(VAULT_ID)
            assert entry is not None
            return relocation.plan_move(
                VAULT_ID, entry.layout.root, target or self.target, lambda at: registry.registered_around(VAULT_ID, at)
            )
        finally:
            registry.close()

    def move(self) -> Moved:
        """The whole move, as the authority and its worker do it."""
        move = self.plan()
        moved = relocation.move_folder(self.layout, move)
        self.switch(move)
        assert relocation.finish(self.layout, move) == ()
        return moved

    def switch(self, move: Move) -> None:
        registry = self.registry()
        registry.relocate(VAULT_ID, move.target)
        registry.close()

    def recover(self) -> None:
        registry = self.registry()
        entry_of = registry.entry

        def registered(vault_id: str) -> StoreLayout | None:
            entry = entry_of(vault_id)
            return None if entry is None else entry.layout

        move = relocation.recover(self.layout, registered)
        if move is not None:
            registry.relocate(move.vault_id, move.target)
            relocation.finish(self.layout, move)
        registry.close()

    def place(self) -> Path:
        registry = self.registry()
        entry = registry.entry(VAULT_ID)
        registry.close()
        assert entry is not None
        return entry.layout.root


@pytest.fixture
def house(tmp_path: Path) -> House:
    return House(tmp_path)


def contents(folder: Path) -> dict[str, tuple[int, bytes]]:
    found: dict[str, tuple[int, bytes]] = {}
    for path in sorted(folder.rglob("*")):
        status = path.lstat()
        data = os.readlink(path).encode() if path.is_symlink() else path.read_bytes() if path.is_file() else b""
        found[path.relative_to(folder).as_posix()] = (status.st_mode, data)
    return found


def no_rename(name: str) -> None:
    """Another file system: a rename cannot cross."""
    if name == "relocate.rename":
        raise OSError(errno.EXDEV, "Invalid cross-device link")


def test_on_one_file_system_the_folder_is_renamed(house: House) -> None:
    before, inode = contents(house.source), house.source.stat().st_ino
    assert house.move() == Moved("renamed")
    assert house.place() == house.target
    assert contents(house.target) == before
    assert house.target.stat().st_ino == inode
    assert not house.source.exists()
    assert not (house.layout.root / relocation.NOTE_NAME).exists()


def test_across_file_systems_it_is_copied_verified_and_then_the_original_goes(house: House) -> None:
    before = contents(house.source)
    with faults.installed(no_rename):
        moved = house.move()
    assert (moved.how, moved.files) == ("copied", 3)
    assert house.place() == house.target
    assert contents(house.target) == before
    assert not house.source.exists()
    assert [path.name for path in house.target.parent.iterdir()] == ["my store"]


def test_a_store_that_was_moved_by_hand_is_found_at_its_new_place(house: House) -> None:
    shutil.move(house.source, house.target)
    assert house.move() == Moved("found")
    assert house.place() == house.target


def test_a_copy_beside_its_original_is_refused(house: House) -> None:
    shutil.copytree(house.source, house.target, symlinks=True)
    with pytest.raises(DuplicateIdentity):
        house.plan()
    assert house.target.exists()
    assert house.source.exists()


@pytest.mark.parametrize("place", ["file", "folder", "link"])
def test_nothing_that_stands_at_the_new_place_is_touched(house: House, place: str) -> None:
    match place:
        case "file":
            house.target.write_text("mine")
        case "folder":
            house.target.mkdir()
        case _:
            house.target.symlink_to("nowhere")
    with pytest.raises(InvalidArgument) as caught:
        house.plan()
    assert caught.value.fields["reason"] == "taken"


@pytest.mark.parametrize(
    ("target", "reason"),
    [
        (lambda house: Path("relative"), "not_absolute"),
        (lambda house: house.source, "same_place"),
        (lambda house: house.source / "vault" / "inside", "nested"),
        (lambda house: house.base / "no" / "such", "no_parent"),
    ],
)
def test_a_place_that_cannot_hold_the_store_is_refused(
    house: House, target: Callable[[House], Path], reason: str
) -> None:
    with pytest.raises(InvalidArgument) as caught:
        house.plan(target(house))
    assert caught.value.fields == {"field": "path", "reason": reason}


def test_another_stores_place_is_refused(house: House) -> None:
    registry = house.registry()
    registry.register(OTHER_ID, house.target.parent, at=3)
    registry.close()
    with pytest.raises(DuplicateIdentity):
        house.plan()


def test_a_store_that_is_nowhere_is_unavailable(house: House) -> None:
    shutil.rmtree(house.source)
    with pytest.raises(StoreUnavailable):
        house.plan()


def test_a_file_that_changes_while_it_is_copied_ends_the_move_and_stays_at_the_old_place(house: House) -> None:
    note = house.source / "vault" / "private" / "people" / "ada.md"

    def edit(name: str) -> None:
        no_rename(name)
        if name == "relocate.verify" and note.read_text() == "# Ada\n":
            note.write_text("# Ada, edited\n")

    with faults.installed(edit), pytest.raises(StorageError):
        relocation.move_folder(house.layout, house.plan())
    assert note.read_text() == "# Ada, edited\n"
    assert not house.target.exists()
    assert list(house.target.parent.iterdir()) == []
    assert not (house.layout.root / relocation.NOTE_NAME).exists()


def test_what_a_person_saves_into_the_original_after_the_copy_is_left_and_named(house: House) -> None:
    move = house.plan()
    with faults.installed(no_rename):
        relocation.move_folder(house.layout, move)
    note = house.source / "vault" / "private" / "people" / "ada.md"
    note.write_text("# Saved late\n")
    house.switch(move)
    assert relocation.finish(house.layout, move) == ("vault/private/people/ada.md",)
    assert note.read_text() == "# Saved late\n"
    assert (house.target / "vault" / "private" / "people" / "ada.md").read_text() == "# Ada\n"


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EIO, errno.EROFS])
@pytest.mark.parametrize("copies", [False, True])
def test_an_error_at_any_step_leaves_the_store_complete_at_its_registered_place(
    tmp_path: Path, code: int, copies: bool
) -> None:
    points = ["relocate.note.stage.write", "relocate.note.place", "relocate.sync"]
    points += ["relocate.copy", "relocate.verify", "relocate.place"] if copies else ["relocate.rename", "relocate.sync"]
    for number, point in enumerate(points):
        house = House(tmp_path / f"{number}")
        before = contents(house.source)
        hit = False

        def fail(name: str) -> None:
            nonlocal hit
            if copies:
                no_rename(name)
            if name == point and not hit:  # noqa: B023 - called before the next turn
                hit = True
                raise OSError(code, "no")

        with faults.installed(fail), pytest.raises(StorageError):
            relocation.move_folder(house.layout, house.plan())
        assert hit, point
        assert contents(house.source) == before
        assert list(house.target.parent.iterdir()) == []


def hits(house: House, handler: Callable[[str], None]) -> int:
    count = 0

    def counting(name: str) -> None:
        nonlocal count
        handler(name)
        if name.startswith(("relocate.", "registry.change")):
            count += 1

    with faults.installed(counting):
        house.move()
    return count


def killed(house: House, handler: Callable[[str], None], hit: int) -> bool:
    child = os.fork()
    if child == 0:
        try:
            count = 0

            def counting(name: str) -> None:
                nonlocal count
                handler(name)
                if name.startswith(("relocate.", "registry.change")):
                    count += 1
                    if count == hit:
                        os.kill(os.getpid(), signal.SIGKILL)

            with faults.installed(counting):
                house.move()
        finally:
            os._exit(0)
    _, status = os.waitpid(child, 0)
    return os.WIFSIGNALED(status)


@pytest.mark.parametrize("every", [9, pytest.param(1, marks=[pytest.mark.slow, pytest.mark.timeout(600)])])
@pytest.mark.parametrize("copies", [False, True])
def test_a_process_killed_anywhere_in_a_move_leaves_one_complete_store_where_the_registry_says(
    tmp_path: Path, copies: bool, every: int
) -> None:
    handler: Callable[[str], None] = no_rename if copies else lambda _name: None
    total = hits(House(tmp_path / "count"), handler)
    places = set()
    for hit in range(1, total + 1, every):
        house = House(tmp_path / f"{hit}")
        before = contents(house.source)
        assert killed(house, handler, hit)
        house.recover()
        place = house.place()
        places.add(place == house.target)
        assert contents(place) == before, hit
        other = house.source if place == house.target else house.target
        assert not other.exists(), hit
        assert not (house.layout.root / relocation.NOTE_NAME).exists()
        house.recover()
        assert house.place() == place
        shutil.rmtree(house.base)
    assert places == {True, False}


def test_a_note_that_cannot_be_read_is_said_and_nothing_is_moved(house: House) -> None:
    (house.layout.root / relocation.NOTE_NAME).write_text("{")
    with pytest.raises(KnowledgeError, match=relocation.NOTE_NAME):
        house.recover()
    assert house.source.exists()

"""Seeded random runs: publications, editors of every habit at any fault point, errors and crashes."""

from __future__ import annotations

import os
import random
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from messages.errors import KnowledgeError
from storage import faults
from storage.state.connection import StorageCorrupt
from storage.state.journal import digest
from storage.vault.replace import Capabilities
from tests.kit.powercut import MODES
from tests.kit.unsynced import without_syncs
from tests.storage.publication.audit import ELSEWHERE, audit
from tests.storage.publication.scenario import BIG, Points
from tests.storage.publication.test_power_cut import Explorer
from tests.storage.publication.world import Event, World

NewStore = Callable[[], Path]
PATHS = ("claims/a.md", "claims/b.md", "people/p.md", "people/deep/q.md")


class Crash(BaseException):
    """The process ends here: nothing that would run after it runs."""


class Editor:
    """A person at any moment: saves by rename, in place or through a file held open, reverts, deletes, truncates."""

    def __init__(self, world: World, rng: random.Random) -> None:
        self.world = world
        self.rng = rng
        self.held: tuple[int, str] | None = None
        self.past: list[str] = []
        self.saves = 0

    def text(self) -> str:
        self.saves += 1
        text = f"person {self.saves} {self.rng.random()}\n" + (BIG if self.rng.random() < 0.2 else "")
        self.past.append(text)
        return text

    def acts(self) -> None:
        path = self.rng.choice(PATHS)
        match self.rng.randrange(7):
            case 0 | 1:
                self.world.person_saves(path, self.text())
            case 2:
                if (self.world.vault / "private" / path).exists():
                    self.world.person_saves(path, self.text(), how="in place")
            case 3:
                self.world.person_deletes(path)
            case 4:
                self.opens(path)
            case 5:
                self.writes_late()
            case _:
                if self.past:
                    self.world.person_saves(path, self.rng.choice(self.past))

    def opens(self, path: str) -> None:
        self.closes()
        target = self.world.vault / "private" / path
        if target.exists():
            self.held = (os.open(target, os.O_RDWR), path)

    def writes_late(self) -> None:
        """Save in place through the descriptor that was opened earlier, wherever its inode is by now."""
        if self.held is None:
            return
        fd, path = self.held
        status = os.fstat(fd)
        target = self.world.vault / "private" / path
        standing = target.exists() and target.stat().st_ino == status.st_ino
        text = self.text()
        name = f"private/{path}" if standing else ELSEWHERE
        if status.st_nlink:
            old = os.pread(fd, status.st_size, 0)
            self.world.note(Event("person", texts={name: text}, destroyed=[digest(old)]))
        os.ftruncate(fd, 0)
        os.pwrite(fd, text.encode(), 0)
        if status.st_nlink:
            self.world.note(Event("person done"))

    def closes(self) -> None:
        if self.held is not None:
            os.close(self.held[0])
            self.held = None


def one_run(world: World, rng: random.Random, editor: Editor, rounds: int) -> None:
    """Some rounds of everything; typed errors are answers like any other."""
    world.open()
    for _ in range(rounds):
        try:
            match rng.randrange(8):
                case 0 | 1 | 2 | 3:
                    chosen = rng.sample(PATHS, rng.randint(1, 3))
                    texts: dict[str, str | None] = {}
                    for path in chosen:
                        gone = rng.random() < 0.2 and world.change(path, None).before is not None
                        long = BIG if rng.random() < 0.2 else ""
                        texts[path] = None if gone else f"ours {world.requests} {path} {rng.random()}\n{long}"
                    world.publish(texts)
                case 4 | 5:
                    world.fold()
                case 6:
                    editor.closes()
                    world.sync()
                case _:
                    editor.acts()
        except KnowledgeError:
            pass
    editor.closes()


def process_run(folder: Path, seed: int, can: Capabilities | None = None) -> None:
    """A run with an editor at random points that ends at a random one, then the audit."""
    rng = random.Random(seed)
    with without_syncs() as vfs:
        world = World(folder, vfs=vfs, can=can)
        editor = Editor(world, rng)
        crash_at = rng.randrange(100, 3000)

        def at_hit(hit: int, name: str) -> None:
            if hit == crash_at:
                raise Crash
            if world.publisher is None:
                return
            if rng.random() < 0.01 and not name.endswith(("statement", "statement.after")):
                editor.acts()
            elif rng.random() < 0.001:
                raise OSError(28, "injected")

        points = Points(at_hit)
        try:
            with faults.installed(points):
                one_run(world, rng, editor, 25)
        except (Crash, StorageCorrupt):
            pass
        finally:
            editor.closes()
            if world.publisher is not None:
                # As the kernel does at the end of a process: descriptors are closed, nothing is finished.
                world.publisher._state.db._connection.close(True)
                os.close(world.publisher.root_fd)
        audit(folder, world.events, machine_stop=False, ambiguous=deleted_in_flight(world.events))
    shutil.rmtree(folder.parent)


def deleted_in_flight(events: list[Event]) -> frozenset[str]:
    """Paths that a person deleted while a publication was being placed: created again, and said so (section 6)."""
    found: set[str] = set()
    running: set[str] = set()
    for event in events:
        if event.kind == "begin":
            running = set(event.texts)
        elif event.kind in ("ack", "rejected"):
            running = set()
        elif event.kind == "person":
            found |= {path for path, text in event.texts.items() if text is None and path in running}
    return frozenset(found)


@pytest.mark.parametrize("seed", range(10))
def test_no_text_is_lost_when_people_edit_at_any_moment_and_the_process_dies(new_store: NewStore, seed: int) -> None:
    process_run(new_store(), seed)


@pytest.mark.parametrize("seed", range(100, 104))
def test_no_text_is_lost_where_the_file_system_cannot_exchange(new_store: NewStore, seed: int) -> None:
    process_run(new_store(), seed, Capabilities(exchange=False, noreplace=seed % 2 == 0))


@pytest.mark.exhaustive
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("part", range(8))
def test_no_text_is_lost_in_many_runs_of_people_editing_and_processes_dying(new_store: NewStore, part: int) -> None:
    for seed in range(1000 + 250 * part, 1250 + 250 * part):
        process_run(new_store(), seed)


@pytest.mark.exhaustive
@pytest.mark.timeout(3600)
def test_no_text_is_lost_in_many_runs_without_exchange(new_store: NewStore) -> None:
    for seed in range(5000, 5200):
        process_run(new_store(), seed, Capabilities(exchange=False, noreplace=seed % 2 == 0))


def power_run(folder: Path, seed: int) -> list[str]:
    """A run with an editor between the steps, and power cuts at random points."""
    rng = random.Random(seed)
    explorer = Explorer(folder, seed=seed)

    def body(world: World, _points: Points) -> None:
        editor = Editor(world, rng)
        one_run(world, rng, editor, 15)
        world.close(clean=rng.random() < 0.5)

    cuts = random.Random(seed + 1)

    def chosen(_hit: int, name: str) -> tuple[()] | tuple[str]:
        if name.endswith(("statement", "statement.after")) or cuts.random() > 0.01:
            return ()
        return (cuts.choice(MODES),)

    return explorer.explore(body, chosen)  # type: ignore[arg-type]  # a mode chosen from all of them is one


@pytest.mark.parametrize("seed", range(2))
def test_no_text_is_lost_when_the_power_goes_in_a_random_run(new_store: NewStore, seed: int) -> None:
    assert power_run(new_store(), seed) == []


@pytest.mark.exhaustive
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("part", range(6))
def test_no_text_is_lost_in_many_random_runs_when_the_power_goes(new_store: NewStore, part: int) -> None:
    for seed in range(100 + 100 * part, 200 + 100 * part):
        assert power_run(new_store(), seed) == [], seed

"""A power cut anywhere: whatever was not synced may be missing, old, torn or zeros."""

from __future__ import annotations

import hashlib
import random
import shutil
from collections.abc import Callable, Collection
from pathlib import Path

import pytest

from storage.state.connection import Database
from tests.kit.powercut import MODES, Disk, Mode, times_of, watched
from tests.kit.unsynced import UNSYNCED, without_syncs
from tests.storage.publication.audit import AuditFailure, audit
from tests.storage.publication.scenario import Points, run, run_short
from tests.storage.publication.world import OTHER_BOOT, Event, World

NewStore = Callable[[], Path]


class Explorer:
    """Runs the script once and audits images of the disk taken at chosen hits, in chosen modes."""

    def __init__(self, folder: Path, *, seed: int, skipped: frozenset[str] = frozenset()) -> None:
        self.enough = 1 if skipped else 10
        self.folder = folder
        self.top = folder.parent
        self.images = folder.parent.with_name(folder.parent.name + "-images")
        self.disk = Disk(self.top, skipped=skipped)
        self.disk.adopt_databases()
        self.rng = random.Random(seed)
        self.failures: list[str] = []
        self.audited = 0

    def explore(
        self, body: Callable[[World, Points], None], chosen: Callable[[int, str], Collection[Mode]]
    ) -> list[str]:
        world = World(self.folder, this=OTHER_BOOT, vfs=self.disk.vfs, clock=self.disk.clock)
        taken: list[tuple[Path, list[Event], str]] = []

        def at_hit(hit: int, name: str) -> None:
            for mode in chosen(hit, name):
                self.disk.look()
                image = self.images / f"{hit}-{mode.replace(' ', '-')}-{len(taken)}"
                image.parent.mkdir(exist_ok=True)
                self.disk.image(image, mode, self.rng)
                taken.append((image, list(world.events), f"hit {hit} ({name}), {mode}"))

        points = Points(at_hit)
        with watched(self.disk, points):
            body(world, points)
        for image, events, where in taken:
            if len(self.failures) < self.enough:
                self._audit(image, events, where)
        return self.failures

    def _audit(self, image: Path, events: list[Event], where: str) -> None:
        folder = image / self.folder.relative_to(self.top)
        try:
            with times_of(self.disk):
                if not prepare(folder):
                    if any(event.kind == "durable" for event in events):
                        raise AuditFailure("a store that was reported as made is not")
                    with without_syncs() as vfs:
                        World(folder, vfs=vfs).create()
                held = frozenset(
                    hashlib.sha256(path.read_bytes()).hexdigest()
                    for path in (folder / "vault").rglob("*")
                    if path.is_file()
                )
                audit(folder, events, machine_stop=True, held=held)
        except Exception as error:  # noqa: BLE001 - every failure is counted, whatever it is
            self.failures.append(f"{where}: {type(error).__name__}: {error}")
        self.audited += 1
        shutil.rmtree(image)


def prepare(folder: Path) -> bool:
    """Record the image's own vault folder, which has another inode than the original; whether the store is made."""
    path = folder / "state.sqlite"
    if not path.exists():
        return False
    database = Database.open(path, point_prefix="state", vfs=UNSYNCED)
    try:
        if database.user_version() == 0:
            return False
        with database.transaction(full=True, point="test"):
            vault = folder / "vault"
            if vault.exists():
                status = vault.stat()
                database.execute("UPDATE meta SET vault_device = ?, vault_inode = ?", (status.st_dev, status.st_ino))
        row = database.query_one("SELECT made FROM meta")
        return row is not None and bool(row[0])
    finally:
        database.close()


def sampled(seed: int, share: float) -> Callable[[int, str], Collection[Mode]]:
    """One random mode at that share of the hits that change something."""
    rng = random.Random(seed)

    def chosen(_hit: int, name: str) -> Collection[Mode]:
        if name.endswith(("statement", "statement.after")) or rng.random() > share:
            return ()
        return (rng.choice(MODES),)

    return chosen


def every(_hit: int, name: str) -> Collection[Mode]:
    return () if name.endswith(("statement", "statement.after", ".read", ".read.after")) else MODES


def test_a_power_cut_at_a_sample_of_fault_points_loses_nothing_that_was_acknowledged(new_store: NewStore) -> None:
    explorer = Explorer(new_store(), seed=1)
    assert explorer.explore(run, sampled(1, 0.03)) == []
    assert explorer.audited > 15


@pytest.mark.exhaustive
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("seed", range(3))
def test_a_power_cut_at_every_fault_point_loses_nothing_that_was_acknowledged(new_store: NewStore, seed: int) -> None:
    explorer = Explorer(new_store(), seed=seed)
    assert explorer.explore(run, every) == []
    assert explorer.audited > 1000


def create_and_publish(world: World, points: Points) -> None:
    del points
    world.create()
    world.note(Event("durable"))
    world.open()
    world.publish({"claims/a.md": "a one\n"})
    world.close()


def test_a_power_cut_while_a_store_is_created_never_leaves_one_that_cannot_be_opened(fast_path: Path) -> None:
    top = fast_path / "state" / "stores"
    top.mkdir(parents=True)
    explorer = Explorer(top / "vault", seed=3)
    assert explorer.explore(create_and_publish, sampled(5, 0.15)) == []
    assert explorer.audited > 15


SYNCS = {
    "accept.commit": "the one sync in the caller's path",
    "conflict.commit": "a conflict is final only when it is durable",
    "sync.cut.commit": "a settle mark or fold-in must be durable before its files are the only copy",
    "sync.file": "a pruned entry cannot be written again",
    "sync.folder": "nor can its name",
    "create.sync": "a store without its manifest cannot be opened",
}


# Where an answer has just become visible, or something has just been forgotten.
ANSWERED = (
    "settle.commit.after",
    "conflict.commit.after",
    "fold.commit.after",
    "prune.commit.after",
    "keep.commit.after",
    "create.made.commit.after",
    "recovered.commit.after",
    "clean.commit",
    "state.close",
)


def after_answers(_hit: int, name: str) -> Collection[Mode]:
    return ("all lost", "data lost", "names lost") if name in ANSWERED else ()


BODIES = {"create": create_and_publish, "short": run_short, "long": run}


def explored(new_store: NewStore, top: Path, body: str, skipped: frozenset[str]) -> list[str]:
    if body == "create":
        top.mkdir(parents=True)
        folder = top / "vault"
    else:
        folder = new_store()
    return Explorer(folder, seed=1, skipped=skipped).explore(BODIES[body], after_answers)


@pytest.mark.parametrize("body", ["create", "short", pytest.param("long", marks=pytest.mark.exhaustive)])
def test_a_power_cut_right_after_an_answer_takes_nothing_back(new_store: NewStore, fast_path: Path, body: str) -> None:
    assert explored(new_store, fast_path / "stores", body, frozenset()) == []


@pytest.mark.parametrize("left_out", sorted(SYNCS))
def test_a_build_with_one_sync_left_out_fails(new_store: NewStore, fast_path: Path, left_out: str) -> None:
    body = "create" if left_out.startswith("create.") else "short"
    assert explored(new_store, fast_path / "stores", body, frozenset({left_out})) != []

"""A disk that is full, read-only or failing, at every step."""

from __future__ import annotations

import errno
import os
import random
import shutil
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path

import pytest

from messages.errors import KnowledgeError, PublicationPending, StorageError
from messages.vocabulary import PRIVATE
from storage import faults
from storage.publication import FileChange
from storage.state.connection import StorageCorrupt
from tests.kit.unsynced import without_syncs
from tests.storage.publication.audit import audit
from tests.storage.publication.scenario import Points
from tests.storage.publication.world import World, intent, request

NewStore = Callable[[], Path]
ERRORS = (errno.ENOSPC, errno.EIO, errno.EROFS)


def raise_at(hit: int, code: int) -> Callable[[int, str], None]:
    def action(number: int, name: str) -> None:
        if number == hit:
            raise OSError(code, f"injected at {name}")

    return action


def raise_from(hit: int, code: int, prefixes: tuple[str, ...] = ("",)) -> Callable[[int, str], None]:
    """From that hit on every effect before it fails, as on a disk that stays full."""

    def action(number: int, name: str) -> None:
        if number >= hit and not name.endswith(".after") and name.startswith(prefixes):
            raise OSError(code, f"injected at {name}")

    return action


def prepare(world: World) -> None:
    world.open()
    world.publish({"claims/a.md": "a one\n", "people/gone.md": "gone\n"})
    world.person_saves("people/p.md", "a person's\n")
    world.fold()


def everything(world: World) -> None:
    """One publication of every kind of change, a fold-in, a background step."""
    world.publish({"claims/a.md": "a two\n", "claims/new/b.md": "b\n", "people/gone.md": None}, number=50)
    world.person_saves("people/p.md", "a person's second\n")
    world.fold()
    world.sync()


def attempt(world: World, at_hit: Callable[[int, str], None]) -> int:
    """Run :func:`everything` with a fault; the number of hits it passed. Only typed errors may come out."""
    points = Points(at_hit)
    with faults.installed(points):
        try:
            everything(world)
        except (KnowledgeError, StorageCorrupt):
            pass
    return points.hits


def one_error(folder: Path, at_hit: Callable[[int, str], None], *, reopen: bool) -> int:
    with without_syncs() as vfs:
        world = World(folder, vfs=vfs)
        prepare(world)
        hits = attempt(world, at_hit)
        if reopen:
            world.close(clean=False)
            world.open()
        try:
            world.store.resume(PRIVATE, request(50))
        except KnowledgeError:
            pass
        # The same request again, without the fault: whatever the first answer was, this one is final.
        if world.store.db.query_one("SELECT 1 FROM publication WHERE request_id = ?", (request(50),)) is None:
            world.publish({"claims/a.md": "a two\n", "claims/new/b.md": "b\n", "people/gone.md": None}, number=50)
        world.fold()
        world.close()
        audit(folder, [event for event in world.events if event.kind != "rejected"], machine_stop=False)
    shutil.rmtree(folder.parent)
    return hits


def hits_of_everything(folder: Path) -> int:
    return one_error(folder, lambda _hit, _name: None, reopen=False)


def test_an_error_at_a_sample_of_points_leaves_a_store_that_goes_on(new_store: NewStore) -> None:
    total = hits_of_everything(new_store())
    rng = random.Random(5)
    for hit in rng.sample(range(1, total), 15):
        one_error(new_store(), raise_at(hit, rng.choice(ERRORS)), reopen=rng.random() < 0.5)
    for hit in rng.sample(range(1, total), 6):
        one_error(new_store(), raise_from(hit, rng.choice(ERRORS)), reopen=rng.random() < 0.5)


@pytest.mark.exhaustive
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("code", ERRORS)
@pytest.mark.parametrize("lasting", [False, True])
def test_an_error_at_every_point_leaves_a_store_that_goes_on(new_store: NewStore, code: int, lasting: bool) -> None:
    total = hits_of_everything(new_store())
    for hit in range(1, total + 1):
        fault = raise_from(hit, code) if lasting else raise_at(hit, code)
        one_error(new_store(), fault, reopen=hit % 2 == 0)


@pytest.mark.parametrize("code", ERRORS)
@pytest.mark.parametrize("point", ["stage.mkdir", "stage.file.open", "stage.file.write", "manifest.stage.open"])
def test_an_error_before_acceptance_is_a_rejection_that_leaves_no_trace(
    new_store: NewStore, point: str, code: int
) -> None:
    world = World(new_store())
    prepare(world)
    before = sorted(str(path) for path in world.vault.rglob("*"))
    with faults.installed(fail_at(point, code)), pytest.raises(StorageError) as raised:
        world.publish({"claims/deep/er/x.md": "x\n", "claims/a.md": "a two\n"})
    assert raised.value.retry == "safe"
    assert sorted(str(path) for path in world.vault.rglob("*")) == before
    assert world.publish({"claims/deep/er/x.md": "x\n"}, number=2).state == "published"
    world.close()


def fail_at(point: str, code: int) -> Callable[[str], None]:
    def handler(name: str) -> None:
        if name == point:
            raise OSError(code, "injected")

    return handler


@pytest.mark.parametrize("code", ERRORS)
@pytest.mark.parametrize("point", ["place.file", "manifest.place", "settle.begin", "settle.commit"])
def test_an_error_after_acceptance_leaves_it_pending_and_a_repeat_publishes_it(
    new_store: NewStore, point: str, code: int
) -> None:
    world = World(new_store())
    prepare(world)
    with faults.installed(fail_at(point, code)):
        assert world.publish({"claims/a.md": "a two\n"}, number=9).state == "pending"
        assert world.store.pending() is not None
        with pytest.raises(PublicationPending):
            world.publish({"claims/c.md": "c\n"}, number=10)
    again = world.store.publish(
        intent(request(9), FileChange("anything", None, b"")), fence=nullcontext(), check=lambda: None
    )
    assert again.state == "published"
    assert world.store.pending() is None
    assert world.read("claims/a.md") == "a two\n"
    assert world.publish({"claims/c.md": "c\n"}, number=10).state == "published"
    world.close()


def test_a_failed_commit_that_is_not_there_is_a_rejection(new_store: NewStore) -> None:
    world = World(new_store())
    prepare(world)
    with faults.installed(fail_at("accept.commit", errno.EIO)), pytest.raises(StorageError) as raised:
        world.publish({"claims/a.md": "a two\n"}, number=9)
    assert raised.value.retry == "safe"
    assert world.publish({"claims/a.md": "a two\n"}, number=9).state == "published"
    world.close()


def test_a_failed_commit_that_is_there_is_finished(new_store: NewStore) -> None:
    world = World(new_store())
    prepare(world)
    with faults.installed(fail_at("accept.commit.after", errno.EIO)):
        assert world.publish({"claims/a.md": "a two\n"}, number=9).state == "published"
    assert world.read("claims/a.md") == "a two\n"
    world.close()
    audit(world.folder, world.events, machine_stop=False)


def test_while_nothing_tells_whether_a_commit_is_there_the_answer_is_unknown(new_store: NewStore) -> None:
    world = World(new_store())
    prepare(world)

    def handler(name: str) -> None:
        if name in ("accept.commit.after", "reopen.commit"):
            raise OSError(errno.EIO, "injected")

    with faults.installed(handler), pytest.raises(StorageError) as raised:
        world.publish({"claims/a.md": "a two\n"}, number=9)
    assert raised.value.retry == "unknown"
    assert world.store.broken
    with pytest.raises(KnowledgeError) as unusable:
        world.store.lookup(PRIVATE, request(9), f"payload {request(9)}", "remember")
    assert unusable.value.retry == "unknown"
    world.close(clean=False)
    world.open()
    receipt = world.store.lookup(PRIVATE, request(9), f"payload {request(9)}", "remember")
    assert receipt is not None
    assert receipt.state == "published"
    world.close()


class _FailingSync:
    """The module ``os`` as the file layer sees it; ``fsync`` of files with that word in their path fails so often."""

    def __init__(self, word: str, times: int) -> None:
        self._word = word
        self._left = times

    def fsync(self, fd: int) -> None:
        path = os.readlink(f"/proc/self/fd/{fd}")
        if os.path.isfile(path) and self._word in path and self._left:
            self._left -= 1
            raise OSError(errno.EIO, "injected")

    def __getattr__(self, name: str) -> object:
        return getattr(os, name)


@pytest.mark.parametrize(("word", "path"), [("private", "private/claims/a.md"), ("vault.json", "vault.json")])
def test_a_file_that_could_not_be_synced_is_written_to_a_new_inode_before_it_is_pruned(
    new_store: NewStore, monkeypatch: pytest.MonkeyPatch, word: str, path: str
) -> None:
    world = World(new_store())
    world.open()
    world.publish({"claims/a.md": "a one\n"})
    inode = (world.vault / path).stat().st_ino
    monkeypatch.setattr("storage.files.os", _FailingSync(word, 1))
    assert not world.sync()
    assert world.store.unpruned == 1
    assert (world.vault / path).stat().st_ino != inode
    assert world.sync()
    assert world.read("claims/a.md") == "a one\n"
    world.close()


@pytest.mark.parametrize("word", ["private", "vault"])
def test_a_file_that_cannot_be_synced_twice_takes_the_store_out_of_service(
    new_store: NewStore, monkeypatch: pytest.MonkeyPatch, word: str
) -> None:
    world = World(new_store())
    world.open()
    world.publish({"claims/a.md": "a one\n"})
    monkeypatch.setattr("storage.files.os", _FailingSync(word, 3))
    with pytest.raises(StorageCorrupt):
        world.sync()
    assert world.store.unpruned == 1
    world.close(clean=False)


def test_a_full_database_is_a_typed_rejection(new_store: NewStore) -> None:
    world = World(new_store())
    world.open()
    pages = world.store.db.query_one("PRAGMA page_count")
    assert pages is not None
    world.store.db.query(f"PRAGMA max_page_count={pages[0] + 1}")
    with pytest.raises(StorageError) as raised:
        world.publish({"claims/a.md": "x" * 200_000})
    assert raised.value.fields["reason"] == "full"
    world.store.db.query("PRAGMA max_page_count=1000000")
    assert world.publish({"claims/a.md": "x" * 200_000}).state == "published"
    world.close()

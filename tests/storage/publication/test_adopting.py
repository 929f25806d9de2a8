"""A person takes the vault as it is: every fail-closed state but a foreign vault, and a kill at every step of it."""

from __future__ import annotations

import os
import shutil
import signal
import sqlite3
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path

import pytest

from messages.errors import (
    CheckpointConflict,
    DatabaseOlderThanVault,
    FailedClosed,
    ForeignVault,
    InvalidArgument,
    ManifestMissing,
    VaultOlderThanDatabase,
)
from messages.vocabulary import PRIVATE
from storage import faults
from storage.manifest import Manifest, Pair, parse_manifest
from storage.publication import Adoption, adopt_store
from storage.state import history
from storage.state.journal import ADOPT_STORE, last_adoption, marks
from tests.kit.unsynced import UNSYNCED, without_syncs
from tests.storage.publication.world import HERE, VAULT_ID, Shown, World, intent, read_vault, request, shown, staged

NewStore = Callable[[], Path]
Breaks = Callable[[Path], None]
OTHER_ID = "55555555-5555-4555-8555-555555555555"


def used(folder: Path, upto: int = 3) -> World:
    world = World(folder)
    world.open()
    for number in range(1, upto + 1):
        world.publish({"a.md": f"version {number}\n", f"b{number}.md": f"b {number}\n"}, number=number)
    world.close()
    return world


def vault_restored_from_an_earlier_copy(folder: Path) -> None:
    world = used(folder, 1)
    shutil.copytree(world.vault, folder.parent / "earlier vault")
    world.open()
    for number in (2, 3):
        world.publish({"a.md": f"version {number}\n", f"b{number}.md": f"b {number}\n"}, number=number)
    world.close()
    shutil.rmtree(world.vault)
    shutil.move(folder.parent / "earlier vault", world.vault)


def database_restored_from_an_earlier_copy(folder: Path) -> None:
    world = used(folder, 1)
    shutil.copy(folder / "state.sqlite", folder.parent / "earlier.sqlite")
    world.open()
    for number in (2, 3):
        world.publish({"a.md": f"version {number}\n", f"b{number}.md": f"b {number}\n"}, number=number)
    world.close()
    shutil.move(folder.parent / "earlier.sqlite", folder / "state.sqlite")


def both_went_on(folder: Path) -> None:
    world = used(folder, 3)
    manifest = Manifest(VAULT_ID, Pair(3, "66666666-6666-4666-8666-666666666666"))
    (world.vault / "vault.json").write_bytes(manifest.encode())
    world.person_saves("a.md", "version 3 of the other half\n")


def manifest_lost(folder: Path) -> None:
    world = used(folder, 3)
    (world.vault / "vault.json").unlink()


def manifest_torn(folder: Path) -> None:
    world = used(folder, 3)
    (world.vault / "vault.json").write_bytes(b'{"format": "know')


STATES: list[tuple[Breaks, type[FailedClosed]]] = [
    (vault_restored_from_an_earlier_copy, VaultOlderThanDatabase),
    (database_restored_from_an_earlier_copy, DatabaseOlderThanVault),
    (both_went_on, CheckpointConflict),
    (manifest_lost, ManifestMissing),
    (manifest_torn, ManifestMissing),
]


def adopt(folder: Path, vfs: str | None = None) -> Adoption:
    return adopt_store(folder, projection=Shown(), actor="operator:ana", vfs=vfs, this=lambda _fd: HERE)


def manifest_of(folder: Path) -> Manifest:
    found = parse_manifest((folder / "vault" / "vault.json").read_bytes())
    assert isinstance(found, Manifest)
    return found


@pytest.mark.parametrize(("breaks", "refusal"), STATES)
def test_a_store_that_fails_closed_opens_after_its_vault_was_adopted_as_it_is(
    new_store: NewStore, breaks: Breaks, refusal: type[FailedClosed]
) -> None:
    folder = new_store()
    breaks(folder)
    with pytest.raises(refusal):
        World(folder).open()
    before = dict(read_vault(folder / "vault"))
    adoption = adopt(folder)
    assert adoption.code == refusal.code
    assert dict(read_vault(folder / "vault")) == before, "no note was touched"

    world = World(folder)
    world.open()
    pair = world.store.pair
    assert pair == adoption.now == manifest_of(folder).pair
    assert pair.generation > max(adoption.expected.generation, adoption.found.generation if adoption.found else 0)
    world.fold()
    assert {path: data.decode() for path, data in read_vault(world.vault)} == {
        path: (history.text(world.store.db, text) or b"").decode() for path, text in shown(world.store.db).items()
    }
    world.publish({"a.md": "goes on\n"}, number=9)
    assert world.store.pair.generation == pair.generation + 1
    world.close()
    again = World(folder)
    again.open()
    assert again.store.report.kind == "clean"
    assert staged(folder / "vault") == []
    again.close()


def test_earlier_request_ids_keep_their_receipts_and_earlier_texts_stay_in_history(new_store: NewStore) -> None:
    folder = new_store()
    world = used(folder, 1)
    shutil.copytree(world.vault, folder.parent / "earlier")
    world.open()
    receipt = world.publish({"a.md": "version 2\n", "artifacts/r/excerpt.txt": "the evidence\n"}, number=2)
    world.close(clean=False)  # not pruned: the journal alone may hold these texts
    shutil.rmtree(world.vault)
    shutil.move(folder.parent / "earlier", world.vault)
    adopt(folder)
    world.open()
    known = world.store.lookup(PRIVATE, request(2), f"payload {request(2)}", "remember")
    assert known is not None
    assert known.encoded == receipt.encoded
    world.fold()
    rows = history.rows(world.store.db, PRIVATE, record_id="id of a.md", limit=10)
    assert rows[0].external
    assert (history.text(world.store.db, rows[0].hash or ""), rows[1].revision) == (b"version 1\n", 1)
    assert history.text(world.store.db, rows[1].hash or "") == b"version 2\n"
    assert world.store.db.query("SELECT 1 FROM blob WHERE bytes = ?", (b"the evidence\n",))
    world.close()


def test_an_old_fence_does_not_hold_on_what_was_adopted(new_store: NewStore) -> None:
    folder = new_store()
    vault_restored_from_an_earlier_copy(folder)
    adopt(folder)
    world = World(folder)
    world.open()
    stale = world.change("a.md", "over the old version\n")  # the catalogue still shows version 3
    with pytest.raises(Exception, match="changed outside"):
        world.store.publish(intent(request(8), stale), fence=nullcontext(), check=lambda: None)
    assert world.read("a.md") == "version 1\n"
    world.close()


def test_a_publication_that_was_pending_ends_published_and_the_vault_stands_on_top(new_store: NewStore) -> None:
    folder = new_store()
    world = used(folder, 2)
    world.open()

    def full(name: str) -> None:
        if name == "place.file":
            raise OSError(28, "No space left on device")

    with faults.installed(full):
        assert world.publish({"a.md": "pending\n"}, number=3).state == "pending"
    world.close(clean=False)
    (world.vault / "vault.json").unlink()
    with pytest.raises(ManifestMissing):
        World(folder).open()
    adopt(folder)
    world.open()
    assert world.store.pending() is None
    known = world.store.lookup(PRIVATE, request(3), f"payload {request(3)}", "remember")
    assert known is not None
    assert known.state == "published"
    world.fold()
    rows = history.rows(world.store.db, PRIVATE, record_id="id of a.md", limit=2)
    assert [history.text(world.store.db, row.hash or "") for row in rows] == [b"version 2\n", b"pending\n"]
    assert rows[0].external
    world.close()


def test_what_was_adopted_by_whom_is_in_history_and_for_status(new_store: NewStore) -> None:
    folder = new_store()
    both_went_on(folder)
    adoption = adopt(folder)
    world = World(folder)
    world.open()
    (row,) = [r for r in history.rows(world.store.db, PRIVATE, limit=50) if r.operation == ADOPT_STORE]
    assert (row.actor, row.path, row.external) == ("operator:ana", "vault.json", True)
    last = last_adoption(world.store.db)
    assert last is not None
    at, actor, what = last
    assert (at, actor) == (adoption.at_ns, "operator:ana")
    assert what["code"] == "checkpoint_conflict"
    assert what["now"] == {"generation": 4, "publicationId": adoption.now.publication_id}
    assert world.store.db.query_one(
        "SELECT count(*) FROM git_queue q JOIN publication p ON p.id = q.publication WHERE p.operation = ?",
        (ADOPT_STORE,),
    ) == (0,)
    world.close()


def test_a_foreign_vault_is_never_adopted(new_store: NewStore) -> None:
    folder = new_store()
    world = used(folder)
    before = Manifest(OTHER_ID, Pair(1, OTHER_ID)).encode()
    (world.vault / "vault.json").write_bytes(before)
    with pytest.raises(ForeignVault):
        adopt(folder)
    assert (world.vault / "vault.json").read_bytes() == before


def test_a_store_that_opens_has_nothing_to_adopt(new_store: NewStore) -> None:
    folder = new_store()
    world = used(folder)
    with pytest.raises(InvalidArgument) as caught:
        adopt(folder)
    assert caught.value.fields["reason"] == "not_failed_closed"
    world.open()
    assert world.store.pair.generation == 3
    world.close()


def hits(folder: Path) -> list[int]:
    """The numbers of the points at which an adoption changes something."""
    names: list[str] = []
    with without_syncs(), faults.installed(names.append):
        adopt(folder, UNSYNCED)
    return [number for number, name in enumerate(names, 1) if not name.removesuffix(".after").endswith(READS)]


def killed_in_adoption(folder: Path, hit: int) -> bool:
    child = os.fork()
    if child == 0:
        status = 1
        try:
            count = 0

            def handler(_name: str) -> None:
                nonlocal count
                count += 1
                if count == hit:
                    os.kill(os.getpid(), signal.SIGKILL)

            with without_syncs(), faults.installed(handler):
                adopt(folder, UNSYNCED)
            status = 0
        finally:
            os._exit(status)
    _, ended = os.waitpid(child, 0)
    assert os.WIFSIGNALED(ended) or os.WEXITSTATUS(ended) == 0
    return os.WIFSIGNALED(ended)


READS = (".read", ".stat", "state.statement", "open.vault", "open.manifest", "sweep.list")


@pytest.mark.parametrize("every", [6, pytest.param(1, marks=[pytest.mark.slow, pytest.mark.timeout(900)])])
@pytest.mark.parametrize(("breaks", "refusal"), STATES[:4])
def test_a_process_killed_anywhere_in_an_adoption_leaves_a_store_that_opens_or_can_be_adopted_again(
    new_store: NewStore, breaks: Breaks, refusal: type[FailedClosed], every: int
) -> None:
    first = new_store()
    breaks(first)
    template = first.parent / "template"
    shutil.copytree(first, template)
    before = dict(read_vault(first / "vault"))
    states = set()
    for hit in hits(first)[::every]:
        shutil.rmtree(first)
        shutil.copytree(template, first)
        assert killed_in_adoption(first, hit)
        assert dict(read_vault(first / "vault")) == before
        world = World(first)
        with without_syncs():
            try:
                world.open()
                states.add("opened")
            except refusal:
                states.add("refused")
                adopt(first, UNSYNCED)
                world.open()
        assert world.store.pending() is None
        assert manifest_of(first).pair == marks(world.store.db).current
        if breaks is not database_restored_from_an_earlier_copy:
            for number in (1, 2, 3):
                known = world.store.lookup(PRIVATE, request(number), f"payload {request(number)}", "remember")
                assert known is not None
        world.close(clean=False)
    assert states == {"opened", "refused"}
    with sqlite3.connect(first / "state.sqlite") as db:
        assert db.execute("SELECT count(*) FROM publication WHERE operation = ?", (ADOPT_STORE,)).fetchone()[0] >= 1
    db.close()

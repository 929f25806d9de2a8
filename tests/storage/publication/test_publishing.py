"""What a caller sees: receipts, replays, rejections, conflicts, fences."""

from __future__ import annotations

import errno
import os
import stat
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path

import pytest

from messages.errors import (
    Cancelled,
    DeadlineExceeded,
    Denied,
    LimitExceeded,
    NotFound,
    OpenElsewhere,
    PublicationPending,
    RequestIdReused,
    Restarting,
    StaleFence,
    StorageError,
    StoreUnavailable,
)
from messages.json_types import JsonObject
from messages.vocabulary import PRIVATE, PUBLICATION_MAX_BYTES, Partition
from storage import faults
from storage.publication import ExternalChange, FileChange, Intent, Receipt
from storage.state import git_queue, history
from storage.state.journal import digest
from tests.storage.publication.audit import audit
from tests.storage.publication.scenario import Points
from tests.storage.publication.world import Shown, World, intent, read_vault, request, shown, staged

NewStore = Callable[[], Path]
ELSEWHERE = Partition("33333333-3333-4333-8333-333333333333")


@pytest.fixture
def world(new_store: NewStore) -> Iterator[World]:
    made = World(new_store())
    made.open()
    yield made
    made.close(clean=False)


def send(world: World, wanted: Intent) -> Receipt:
    return world.store.publish(wanted, fence=nullcontext(), check=lambda: None)


def fault(world: World, point: str, code: int = errno.EIO) -> Callable[[str], None]:
    del world

    def handler(name: str) -> None:
        if name == point:
            raise OSError(code, "injected")

    return handler


# --- receipts ------------------------------------------------------------------------------------------------


def test_the_same_request_gives_the_same_receipt_byte_for_byte_before_and_after_reopening(world: World) -> None:
    wanted = intent(request(1), FileChange("a.md", None, b"one\n", "id", 1, "active"))
    first = send(world, wanted)
    assert first.state == "published"
    assert first.body == {"state": "published", "requestId": request(1), "id": "id"}
    assert send(world, wanted) == first
    world.sync()
    assert send(world, wanted) == first
    for clean in (True, False):
        world.close(clean=clean)
        world.open()
        assert send(world, wanted) == first
    assert world.read("a.md") == "one\n"


@pytest.mark.parametrize("state", ["published", "conflict", "pending", "rolling back"])
def test_another_payload_or_operation_under_a_known_request_id_is_refused_in_every_state(
    world: World, state: str
) -> None:
    bring_to(world, state)
    for other in (
        intent(request(7), FileChange("x.md", None, b"x\n"), payload="another"),
        intent(request(7), FileChange("x.md", None, b"x\n"), operation="another"),
    ):
        with pytest.raises(RequestIdReused):
            send(world, other)


def bring_to(world: World, state: str) -> None:
    """Leave request 7, a replacement of ``a.md``, in that state."""
    world.publish({"a.md": "one\n", "b.md": "one\n"}, number=6)
    points = Points()
    if state in ("conflict", "rolling back"):
        points.once("place.file", lambda: world.person_saves("a.md", "a person's\n"))

    def handler(name: str) -> None:
        points(name)
        if name == {"pending": "place.file", "rolling back": "conflict.begin"}.get(state):
            raise OSError(errno.EIO, "injected")

    with faults.installed(handler):
        receipt = world.publish({"a.md": "two\n", "b.md": "two\n"}, number=7)
    assert receipt.state == {"pending": "pending", "rolling back": "pending"}.get(state, state)


@pytest.mark.parametrize(
    ("state", "final"),
    [("published", "published"), ("conflict", "conflict"), ("pending", "published"), ("rolling back", "conflict")],
)
@pytest.mark.parametrize("how", ["the same request", "resume", "another request", "reopening"])
def test_a_known_request_ends_in_its_final_receipt_however_it_is_asked_for(
    world: World, state: str, final: str, how: str
) -> None:
    bring_to(world, state)
    if how == "another request":
        world.publish({"c.md": "c\n"}, number=8)
    elif how == "reopening":
        world.close(clean=False)
        world.open()
    elif how == "resume":
        world.store.resume(PRIVATE, request(7))
    assert world.store.pending() is None or how == "the same request"
    again = send(world, intent(request(7), FileChange("whatever", None, b"")))
    assert again.state == final
    assert send(world, intent(request(7), FileChange("whatever", None, b""))) == again
    expected = ("two\n", "two\n") if final == "published" else ("a person's\n", "one\n")
    assert (world.read("a.md"), world.read("b.md")) == expected


def test_while_a_publication_is_pending_every_other_one_is_refused_and_its_partition_named(world: World) -> None:
    bring_to(world, "pending")
    assert world.store.pending() == PRIVATE
    with faults.installed(fault(world, "place.file")):
        with pytest.raises(PublicationPending):
            world.publish({"c.md": "c\n"}, number=8)
        with pytest.raises(PublicationPending):
            world.store.fold_in(PRIVATE, [ExternalChange("z.md", None, b"z\n")], looked_at=0)
        assert send(world, intent(request(7), FileChange("whatever", None, b""))).state == "pending"
    assert world.store.finish_pending()
    assert world.store.pending() is None


def test_a_request_id_belongs_to_its_partition(world: World) -> None:
    first = send(world, intent(request(1), FileChange("a.md", None, b"one\n")))
    other = Intent(ELSEWHERE, request(1), "h", "op", "main", (FileChange("a.md", None, b"two\n"),), {"n": 2})
    second = send(world, other)
    assert (first.sequence, second.sequence) == (1, 1)
    assert second.body["n"] == 2
    assert world.store.pair.generation == 2
    vault = dict(read_vault(world.vault))
    assert vault[f"conversations/{ELSEWHERE.session_id}/a.md"] == b"two\n"
    with pytest.raises(NotFound):
        world.store.resume(ELSEWHERE, request(2))


def test_the_receipt_may_be_made_from_the_sequence(world: World) -> None:
    wanted = Intent(PRIVATE, request(1), "h", "op", "main", (FileChange("a.md", None, b"x\n"),), lambda n: {"n": n})
    assert send(world, wanted).body["n"] == 1


# --- rejections ----------------------------------------------------------------------------------------------


def nothing_happened(world: World, before: dict[str, bytes]) -> None:
    assert dict(read_vault(world.vault)) == before
    assert staged(world.vault) == []
    row = world.store.db.query_one("SELECT count(*) FROM publication WHERE request_id = ?", (request(9),))
    assert row == (0,)


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (FileChange("a.md", digest(b"other"), b"x\n"), "changed"),
        (FileChange("missing.md", digest(b"other"), b"x\n"), "changed"),
        (FileChange("no/folder/a.md", digest(b"other"), b"x\n"), "changed"),
        (FileChange("a.md", None, b"x\n"), "taken"),
        (FileChange("a.md", digest(b"other"), None), "changed"),
    ],
)
def test_a_target_that_is_not_what_was_validated_is_a_stale_fence_and_nothing_is_stored(
    world: World, change: FileChange, reason: str
) -> None:
    world.publish({"a.md": "one\n"}, number=1)
    world.sync()
    before = dict(read_vault(world.vault))
    with pytest.raises(StaleFence) as raised:
        send(world, intent(request(9), FileChange("ok.md", None, b"ok\n"), change))
    assert raised.value.fields["reason"] == reason
    nothing_happened(world, before)


@pytest.mark.parametrize("trap", ["symlink", "hardlink", "fifo", "folder"])
def test_a_target_that_is_no_plain_file_is_never_followed(world: World, trap: str) -> None:
    world.publish({"a.md": "one\n"}, number=1)
    path = world.vault / "private" / "a.md"
    outside = world.folder / "outside"
    outside.write_text("one\n")
    path.unlink()
    match trap:
        case "symlink":
            path.symlink_to(outside)
        case "hardlink":
            path.hardlink_to(outside)
        case "fifo":
            os.mkfifo(path)
        case "folder":
            path.mkdir()
    with pytest.raises(StaleFence):
        world.publish({"a.md": "two\n"}, number=9)
    assert outside.read_text() == "one\n"


def test_a_folder_that_is_a_symbolic_link_is_never_followed(world: World, tmp_path: Path) -> None:
    (world.vault / "private" / "claims").symlink_to(tmp_path)
    with pytest.raises(StorageError):
        world.publish({"claims/a.md": "one\n"}, number=9)
    assert list(tmp_path.glob("*.md")) == []


def test_a_file_that_is_open_for_writing_elsewhere_is_refused_as_safe_to_retry(world: World) -> None:
    world.publish({"a.md": "one\n"}, number=1)
    world.sync()
    before = dict(read_vault(world.vault))
    with open(world.vault / "private" / "a.md", "r+"), pytest.raises(OpenElsewhere) as raised:
        world.publish({"a.md": "two\n"}, number=9)
    assert raised.value.retry == "safe"
    nothing_happened(world, before)
    assert world.publish({"a.md": "two\n"}, number=9).state == "published"


def give_up(*_: object, **__: object) -> None:
    raise Cancelled("the caller gave up")


@contextmanager
def closed_fence() -> Iterator[None]:
    give_up()
    yield


def no_receipt(_sequence: int) -> JsonObject:
    raise Cancelled("the caller gave up")


@pytest.mark.parametrize("where", ["check", "fence", "catalogue", "receipt"])
def test_a_refusal_before_the_commit_stores_nothing_and_leaves_the_id_free(
    world: World, where: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.publish({"a.md": "one\n"}, number=1)
    world.sync()
    before = dict(read_vault(world.vault))
    pair = world.store.pair
    change = FileChange("deep/new.md", None, b"two\n")
    wanted = Intent(PRIVATE, request(9), "h", "op", "main", (change,), no_receipt if where == "receipt" else {})
    with monkeypatch.context() as patch:
        if where == "catalogue":
            patch.setattr(Shown, "put", give_up)
        with pytest.raises(Cancelled):
            world.store.publish(
                wanted,
                fence=closed_fence() if where == "fence" else nullcontext(),
                check=give_up if where == "check" else lambda: None,
            )
    nothing_happened(world, before)
    assert world.store.pair == pair
    assert not (world.vault / "private" / "deep").exists()
    assert send(world, intent(request(9), change)).state == "published"


def test_a_refusal_whose_outcome_its_caller_calls_unknown_leaves_no_staged_name(world: World) -> None:
    def late() -> None:
        raise DeadlineExceeded("the deadline passed", retry="unknown")

    with pytest.raises(DeadlineExceeded):
        world.store.publish(intent(request(9), FileChange("a.md", None, b"x\n")), fence=nullcontext(), check=late)
    nothing_happened(world, {})


def test_the_fence_is_held_from_before_the_commit_until_the_answer(world: World) -> None:
    seen: list[str] = []

    @contextmanager
    def fence() -> Iterator[None]:
        seen.append("fence taken")
        yield
        seen.append("fence released")

    def handler(name: str) -> None:
        if name in ("stage.file.write", "accept.commit", "settle.commit.after"):
            seen.append(name)

    with faults.installed(handler):
        world.store.publish(
            intent(request(1), FileChange("a.md", None, b"x\n")), fence=fence(), check=lambda: seen.append("check")
        )
    assert seen == [
        "stage.file.write",
        "fence taken",
        "check",
        "accept.commit",
        "settle.commit.after",
        "fence released",
    ]


def test_after_acceptance_nothing_that_the_caller_wants_stops_it(world: World) -> None:
    ended = threading.Event()

    def check() -> None:
        if ended.is_set():
            raise Denied("revoked")

    points = Points()
    points.once("accept.commit.after", ended.set)
    with faults.installed(points):
        receipt = world.store.publish(
            intent(request(1), FileChange("a.md", None, b"x\n")), fence=nullcontext(), check=check
        )
    assert receipt.state == "published"


def test_a_publication_over_its_limit_is_refused_by_size(world: World) -> None:
    half = b"x" * (PUBLICATION_MAX_BYTES // 2 + 1)
    with pytest.raises(LimitExceeded):
        send(world, intent(request(9), FileChange("a.md", None, half), FileChange("b.md", None, half + b"y")))


@pytest.mark.parametrize(
    "path", ["", "/a.md", "../a.md", "a/../b.md", "a//b.md", "./a.md", "a\0.md", ".kr-x", "a/.kr-b/c.md"]
)
def test_a_path_that_is_not_plain_is_a_defect_of_the_caller(world: World, path: str) -> None:
    with pytest.raises(ValueError):
        send(world, intent(request(9), FileChange(path, None, b"x\n")))


# --- what is written -----------------------------------------------------------------------------------------


def test_one_request_may_create_replace_remove_and_move_and_is_one_generation(world: World) -> None:
    world.publish({"a.md": "a one\n", "b.md": "b one\n", "old/c.md": "c one\n"}, number=1)
    moved = digest(b"c one\n")
    receipt = send(
        world,
        intent(
            request(2),
            FileChange("a.md", digest(b"a one\n"), b"a two\n", "a", 2, "active"),
            FileChange("b.md", digest(b"b one\n"), None, "b"),
            FileChange("old/c.md", moved, None, "c"),
            FileChange("new/c.md", None, b"c two\n", "c", 2, "active"),
            FileChange("artifacts/r/excerpt.txt", None, b"quoted\n"),
        ),
    )
    assert receipt.state == "published"
    assert dict(read_vault(world.vault)) == {
        "private/a.md": b"a two\n",
        "private/new/c.md": b"c two\n",
        "private/artifacts/r/excerpt.txt": b"quoted\n",
    }
    assert world.store.pair.generation == 2
    rows = [row for row in history.rows(world.store.db, PRIVATE, limit=50) if row.sequence == receipt.sequence]
    assert {(row.record_id, row.hash, row.before, row.path) for row in rows} == {
        ("a", digest(b"a two\n"), digest(b"a one\n"), "a.md"),
        ("b", None, digest(b"b one\n"), "b.md"),
        ("c", digest(b"c two\n"), moved, "new/c.md"),
    }


def test_two_files_may_swap_their_texts(world: World) -> None:
    world.publish({"a.md": "one\n", "b.md": "two\n"}, number=1)
    world.publish({"a.md": "two\n", "b.md": "one\n"}, number=2)
    assert (world.read("a.md"), world.read("b.md")) == ("two\n", "one\n")


def test_two_changes_of_one_path_become_one_step(world: World) -> None:
    world.publish({"a.md": "one\n"}, number=1)
    one, two = digest(b"one\n"), digest(b"two\n")
    send(world, intent(request(2), FileChange("a.md", one, b"two\n", "a"), FileChange("a.md", two, b"three\n", "a")))
    assert world.read("a.md") == "three\n"
    found = history.mutation(world.store.db, PRIVATE, request(2))
    assert found is not None
    assert [(step.before, step.after) for step in found[0].steps] == [(one, digest(b"three\n"))]


def test_a_replaced_file_keeps_its_mode_and_attributes(world: World) -> None:
    world.publish({"a.md": "one\n"}, number=1)
    path = world.vault / "private" / "a.md"
    path.chmod(0o640)
    try:
        os.setxattr(path, "user.colour", b"red")
        attributes = True
    except OSError:
        attributes = False
    world.publish({"a.md": "two\n"}, number=2)
    assert stat.S_IMODE(path.stat().st_mode) == 0o640
    assert not attributes or os.getxattr(path, "user.colour") == b"red"


def test_the_catalogue_and_the_git_queue_follow_in_the_same_commits(world: World) -> None:
    world.publish({"a.md": "one\n", "artifacts/r/excerpt.txt": "quoted\n"}, number=1)
    assert shown(world.store.db).keys() == {"private/a.md", "private/artifacts/r/excerpt.txt"}
    (job,) = git_queue.jobs(world.store.db, 10)
    assert (job.request_id, job.operation, job.actor, job.record_ids) == (
        request(1),
        "remember",
        "main",
        ("id of a.md",),
    )
    assert [(change.path, change.hash) for change in job.changes] == [("private/a.md", digest(b"one\n"))]
    world.sync()
    assert git_queue.jobs(world.store.db, 10) == [job]
    with world.store.transaction(full=False, point="test"):
        git_queue.committed(world.store.db, [job.publication], "c" * 40)
    assert git_queue.jobs(world.store.db, 10)[0].commit_id == "c" * 40
    with world.store.transaction(full=False, point="test"):
        git_queue.done(world.store.db, {job.publication: "c" * 40})
    assert git_queue.count(world.store.db, job.partition) == 0
    assert world.store.db.query("SELECT * FROM step") == []


def test_taken_sees_every_kind_of_name(world: World) -> None:
    (world.vault / "private" / "folder").mkdir()
    (world.vault / "private" / "link").symlink_to("nowhere")
    assert [world.store.taken(PRIVATE, name) for name in ("folder", "link", "free", "no/such")] == [
        True,
        True,
        False,
        False,
    ]


# --- conflicts -----------------------------------------------------------------------------------------------


def test_a_conflict_rolls_everything_back_and_keeps_both_texts(world: World) -> None:
    bring_to(world, "conflict")
    assert (world.read("a.md"), world.read("b.md")) == ("a person's\n", "one\n")
    assert shown(world.store.db)["private/a.md"] == digest(b"one\n")
    found = history.mutation(world.store.db, PRIVATE, request(7))
    assert found is not None
    entry, rows = found
    assert rows == []
    (step,) = (step for step in entry.steps if step.path == "private/a.md")
    texts = [history.text(world.store.db, name or "") for name in (step.before, step.after, step.displaced)]
    assert texts == [b"one\n", b"two\n", b"a person's\n"]
    world.fold()
    world.sync()
    assert [history.text(world.store.db, name or "") for name in (step.before, step.after)] == [b"one\n", b"two\n"]
    audit(world.folder, world.events, machine_stop=False)


def test_a_conflict_says_which_file_and_which_text_stands_there(world: World) -> None:
    bring_to(world, "conflict")
    body = world.store.resume(PRIVATE, request(7)).body
    assert (body["state"], body["path"], body["id"], body["hash"]) == (
        "conflict",
        "a.md",
        "id of a.md",
        digest(b"a person's\n"),
    )
    assert "a person's" not in str(body["message"])
    assert request(7) in str(body["message"])


def test_a_file_deleted_in_between_is_a_conflict_and_stays_deleted(world: World) -> None:
    world.publish({"a.md": "one\n", "b.md": "one\n"}, number=1)
    points = Points()
    points.once("accept.commit.after", lambda: world.person_deletes("b.md"))
    with faults.installed(points):
        assert world.publish({"a.md": "two\n", "b.md": "two\n"}, number=2).state == "conflict"
    assert (world.read("a.md"), world.read("b.md")) == ("one\n", None)


def test_a_name_taken_in_between_is_a_conflict_and_the_stranger_stays(world: World) -> None:
    points = Points()
    points.once("accept.commit.after", lambda: world.person_saves("b.md", "a stranger\n"))
    with faults.installed(points):
        assert world.publish({"a.md": "ours\n", "b.md": "ours\n"}, number=2).state == "conflict"
    assert (world.read("a.md"), world.read("b.md")) == (None, "a stranger\n")
    assert shown(world.store.db) == {}


def test_an_edit_after_the_answer_never_changes_a_receipt(world: World) -> None:
    receipt = world.publish({"a.md": "one\n"}, number=1)
    world.person_saves("a.md", "a person's\n")
    world.close(clean=False)
    world.open()
    assert send(world, intent(request(1), FileChange("a.md", None, b""))) == receipt
    assert world.read("a.md") == "a person's\n"
    world.fold()
    last = history.latest(world.store.db, PRIVATE, "id of a.md")
    assert last is not None
    assert (last.external, last.operation, last.hash) == (True, "external", digest(b"a person's\n"))


def test_the_manifest_advances_with_a_conflict_too(world: World) -> None:
    bring_to(world, "conflict")
    assert world.store.pair.generation == 2
    world.store.verify()
    world.close()
    world.open()


# --- owners --------------------------------------------------------------------------------------------------


def test_a_lane_that_was_superseded_can_neither_commit_nor_rename(new_store: NewStore) -> None:
    folder = new_store()
    old = World(folder)
    old.open()
    old.publish({"a.md": "one\n"})
    new = World(folder)
    points = Points()
    # The new lane opens the store while the old one is between its commit and its renames.
    points.once("accept.commit.after", lambda: opened(new))
    with faults.installed(points), pytest.raises(Restarting) as raised:
        old.publish({"a.md": "two\n"}, number=5)
    assert raised.value.retry == "unknown"
    assert new.read("a.md") == "two\n"
    new.publish({"a.md": "three\n"}, number=6)
    with pytest.raises(Restarting):
        old.publish({"b.md": "late\n"}, number=7)
    with pytest.raises(Restarting):
        old.sync()
    assert new.read("a.md") == "three\n"
    assert new.read("b.md") is None
    old.close(clean=False)
    new.close()


def opened(world: World) -> None:
    world.open()


def test_a_publisher_belongs_to_the_thread_that_opened_it(world: World) -> None:
    caught: list[BaseException] = []

    def other() -> None:
        try:
            world.publish({"a.md": "one\n"})
        except RuntimeError as error:
            caught.append(error)

    thread = threading.Thread(target=other)
    thread.start()
    thread.join()
    assert len(caught) == 1


def test_verify_refuses_a_vault_folder_that_was_replaced(world: World) -> None:
    world.store.verify()
    world.vault.rename(world.folder / "moved")
    with pytest.raises(StoreUnavailable):
        world.store.verify()
    world.vault.mkdir()
    with pytest.raises(StoreUnavailable):
        world.store.verify()


def test_verify_accepts_a_manifest_reformatted_by_hand(world: World) -> None:
    path = world.vault / "vault.json"
    path.write_text(path.read_text().replace("\n", " "))
    world.store.verify()
    assert world.publish({"a.md": "one\n"}).state == "published"
    world.store.verify()

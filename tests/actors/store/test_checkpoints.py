"""What waits for the Git checkpoint, without threads and without Git (decisions.md section 4)."""

from __future__ import annotations

from actors.store.checkpoints import Checkpoints
from actors.store.messages import Checkpointed
from actors.supervision import Reply
from storage.git import Committed, IndexState, Outcome, Waiting
from tests.kit.store import Desk, write_note


def answered(outcome: Outcome) -> Checkpointed:
    reply: Reply[Outcome] = Reply()
    reply.succeed(outcome)
    return Checkpointed(reply)


def settled(desk: Desk) -> Checkpoints:
    """A queue whose every publication has its commit."""
    (desk.layout.vault / ".git").mkdir()  # there is a repository; nobody asks what is in it
    queue = Checkpoints(enabled=True)
    desk.partition()
    run = queue.next(desk.session)
    assert run is not None
    queue.finished(desk.session, answered(Committed({item.publication_id: "1" * 40 for item in run.checkpoints})))
    assert queue.next(desk.session) is None
    return queue


def test_what_somebody_elses_commit_took_back_is_put_back_as_the_store_has_it_and_nothing_of_theirs(desk: Desk) -> None:
    kept = desk.path_of(str(desk.page("Kept")["id"]))
    gone = desk.path_of(str(desk.page("Gone")["id"]))
    desk.partition()
    gone.unlink()
    queue = settled(desk)
    write_note(desk.folder(), "theirs.md", "Not looked at yet.\n")
    root = desk.layout.vault
    paths = (str(kept.relative_to(root)), str(gone.relative_to(root)), "private/theirs.md", "drafts/a.md")
    queue.index_synced(IndexState("current", differing=paths))
    run = queue.next(desk.session)
    assert run is not None
    assert run.restores
    assert [item.changes for item in run.checkpoints] == [((paths[0], kept.read_bytes()), (paths[1], None))]


def test_what_is_to_be_restored_waits_like_every_checkpoint_and_is_done_once(desk: Desk) -> None:
    path = desk.path_of(str(desk.page("Kept")["id"]))
    queue = settled(desk)
    queue.index_synced(IndexState("current", differing=(str(path.relative_to(desk.layout.vault)),)))
    first = queue.next(desk.session)
    assert first is not None
    assert queue.next(desk.session) is None, "one run at a time"
    queue.finished(desk.session, answered(Waiting("branch", "The branch side is checked out.")))
    again = queue.next(desk.session)
    assert again is not None
    assert again.checkpoints[0].changes == first.checkpoints[0].changes
    queue.finished(desk.session, answered(Committed({})))
    assert queue.next(desk.session) is None

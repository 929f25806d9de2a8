"""What the Git queue does when idle (decisions.md section 4): the index follows, packs become few."""

from __future__ import annotations

import os
import signal
import subprocess
from pathlib import Path

import pytest

from storage.faults import installed
from storage.git import Checkpoint, Committed, IndexState, commit, idle, sync_index, tidy
from storage.git.idle import FAULT_POINTS
from tests.storage.test_git import Swap, checkpoint, committed, git

CURRENT = IndexState("current")


def publish(vault: Path, number: int, path: str, data: bytes | None, *, whole_history: bool = False) -> None:
    """A publication as the store makes it: the file first, then its checkpoint."""
    file = vault / path
    if data is None:
        file.unlink()
    else:
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(data)
    committed(vault, [checkpoint(number, (path, data))], whole_history=whole_history)


def status(vault: Path) -> list[str]:
    return git(vault, "status", "--porcelain").splitlines()


@pytest.fixture
def vault(tmp_path: Path) -> Path:
    path = tmp_path / "vault"
    path.mkdir()
    publish(path, 1, "private/a.md", b"a\n", whole_history=True)
    publish(path, 2, "private/b.md", b"b\r\n")
    (path / "vault.json").write_text("{}")
    (path / "private/artifacts/r").mkdir(parents=True)
    (path / "private/artifacts/r/excerpt.txt").write_text("x")
    (path / "conversations/s/artifacts/r").mkdir(parents=True)
    (path / "conversations/s/artifacts/r/excerpt.txt").write_text("x")
    (path / "private/.kr-1.0.1").write_text("staged")
    return path


def test_a_persons_status_is_clean_when_idle_and_shows_their_edits_only(vault: Path) -> None:
    assert sync_index(vault) == CURRENT
    assert status(vault) == []
    publish(vault, 3, "private/people/c.md", b"c\n")
    publish(vault, 4, "private/a.md", b"changed\n")
    publish(vault, 5, "private/b.md", None)
    assert status(vault) != []
    assert sync_index(vault) == CURRENT
    assert status(vault) == []
    (vault / "private/a.md").write_text("edited by hand\n")
    assert status(vault) == [" M private/a.md"]
    assert git(vault, "fsck", "--strict") == ""


def test_an_index_that_is_current_costs_no_process(vault: Path) -> None:
    sync_index(vault)
    passed: list[str] = []
    with installed(passed.append):
        assert sync_index(vault) == CURRENT
    assert {name for name in passed if name.startswith("git.index")} == set()


def test_an_edit_before_the_index_follows_is_still_shown_as_an_edit(vault: Path) -> None:
    sync_index(vault)
    publish(vault, 3, "private/a.md", b"published\n")
    (vault / "private/a.md").write_text("edited on top\n")
    assert sync_index(vault) == CURRENT
    assert status(vault) == [" M private/a.md"]
    assert "-published" in git(vault, "diff")


@pytest.mark.parametrize("deed", ["reset", "commit", "stash"])
@pytest.mark.parametrize("synced_before", [True, False])
def test_an_index_with_nothing_staged_follows_whether_or_not_it_ever_had_before(
    vault: Path, deed: str, synced_before: bool
) -> None:
    if synced_before:
        sync_index(vault)
    publish(vault, 3, "private/c.md", b"c\n")
    match deed:
        case "reset":
            git(vault, "reset", "-q")
        case "commit":
            (vault / "private/a.md").write_text("by hand\n")
            git(vault, "add", "-A", "private")
            git(vault, "commit", "-q", "-m", "by hand")
        case _:
            git(vault, "reset", "-q")
            (vault / "private/a.md").write_text("by hand\n")
            git(vault, "stash", "-q")
    publish(vault, 4, "private/d.md", b"d\n")
    publish(vault, 5, "private/e.md", b"e\n")
    assert sync_index(vault) == CURRENT
    assert [line for line in status(vault) if not line.startswith("??")] == []


def test_files_that_did_not_change_are_not_read_again(vault: Path) -> None:
    sync_index(vault)
    before = git(vault, "ls-files", "--debug", "private/b.md")
    publish(vault, 3, "private/a.md", b"changed\n")
    assert sync_index(vault) == CURRENT
    assert git(vault, "ls-files", "--debug", "private/b.md") == before


def test_staged_changes_of_a_person_are_left_as_they_are(vault: Path) -> None:
    sync_index(vault)
    (vault / "private/mine.md").write_text("mine\n")
    git(vault, "add", "private/mine.md")
    publish(vault, 3, "private/c.md", b"c\n")
    index = (vault / ".git/index").read_bytes()
    left = sync_index(vault)
    assert left.state == "left_alone"
    assert "staged" in left.message
    assert (vault / ".git/index").read_bytes() == index
    assert not (vault / ".git/index.lock").exists()
    git(vault, "reset", "-q")
    assert sync_index(vault) == CURRENT
    assert status(vault) == ["?? private/mine.md"]


def test_a_commit_of_a_person_moves_the_index_and_ours_follow_it(vault: Path) -> None:
    sync_index(vault)
    (vault / "private/mine.md").write_text("mine\n")
    git(vault, "add", "private/mine.md")
    git(vault, "commit", "-q", "-m", "mine")
    publish(vault, 3, "private/c.md", b"c\n")
    assert git(vault, "show", "main:private/mine.md") == "mine\n"
    # The index is at their commit, not where we had left it: nothing is staged in it all the same.
    assert sync_index(vault) == CURRENT
    assert status(vault) == []


def test_an_index_that_a_person_brought_to_any_commit_since_ours_is_not_taken_for_their_staged_changes(
    vault: Path,
) -> None:
    sync_index(vault)
    publish(vault, 3, "private/c.md", b"c\n")
    publish(vault, 4, "private/d.md", b"d\n")
    git(vault, "reset", "-q", "main~1", "--", ".")
    publish(vault, 5, "private/a.md", b"changed\n")
    objects = git(vault, "count-objects", "-v")
    assert sync_index(vault) == CURRENT
    assert status(vault) == []
    assert git(vault, "count-objects", "-v") == objects, "asking leaves nothing behind"
    assert not list((vault / ".git").glob("knowledge-index.*"))


def test_an_index_with_staged_changes_is_never_locked_by_us(vault: Path) -> None:
    sync_index(vault)
    (vault / "private/mine.md").write_text("mine\n")
    git(vault, "add", "private/mine.md")
    publish(vault, 3, "private/c.md", b"c\n")
    passed: list[str] = []
    with installed(passed.append):
        assert sync_index(vault).state == "left_alone"
    assert "git.index.take" not in passed


def test_what_a_person_stages_after_we_looked_and_before_we_locked_is_theirs(vault: Path) -> None:
    sync_index(vault)
    publish(vault, 3, "private/c.md", b"c\n")
    (vault / "private/mine.md").write_text("mine\n")

    def stage(point: str) -> None:
        if point == "git.index.take":
            git(vault, "add", "private/mine.md")

    with installed(stage):
        assert "staged changes of yours" in sync_index(vault).message
    assert "A  private/mine.md" in status(vault)
    assert not (vault / ".git/index.lock").exists()


def test_what_a_persons_commit_took_back_unawares_is_named(vault: Path) -> None:
    sync_index(vault)
    publish(vault, 3, "private/c.md", b"c\n")
    publish(vault, 4, "private/a.md", b"changed\n")
    publish(vault, 5, "private/b.md", None)
    (vault / "mine.txt").write_text("mine\n")
    git(vault, "add", "mine.txt")
    git(vault, "commit", "-q", "-m", "mine")  # of an index that has not followed ours
    assert sync_index(vault, compare=False) == CURRENT, "left to the next time"
    found = sync_index(vault)
    assert found == IndexState("current", differing=("private/a.md", "private/b.md", "private/c.md"))
    changes = (("private/a.md", b"changed\n"), ("private/b.md", None), ("private/c.md", b"c\n"))
    outcome = commit(vault, [checkpoint(6, *changes)], whole_history=False, look_back=False, restores=True)
    assert isinstance(outcome, Committed)
    assert sync_index(vault) == CURRENT
    assert status(vault) == []
    assert git(vault, "log", "-1", "--format=%s", "--", "mine.txt") == "mine\n"


def test_what_a_commit_holds_already_is_not_committed_again(vault: Path) -> None:
    tip = git(vault, "rev-parse", "main")
    outcome = commit(
        vault,
        [checkpoint(6, ("private/a.md", b"a\n"), ("private/gone.md", None))],
        whole_history=False,
        look_back=False,
        restores=True,
    )
    assert outcome == Committed({})
    assert git(vault, "rev-parse", "main") == tip


def test_commits_of_our_own_are_not_compared(vault: Path) -> None:
    sync_index(vault)
    publish(vault, 3, "private/c.md", b"c\n")
    passed: list[str] = []
    with installed(passed.append):
        assert sync_index(vault) == CURRENT
    assert "git.difference.who" in passed
    assert "git.difference.status" not in passed


def test_an_older_state_that_a_person_staged_is_theirs(vault: Path) -> None:
    publish(vault, 3, "private/c.md", b"c\n")
    sync_index(vault)
    git(vault, "reset", "-q", "main~1", "--", ".")
    publish(vault, 4, "private/d.md", b"d\n")
    before = git(vault, "diff", "--cached", "--name-status")
    assert "staged changes of yours" in sync_index(vault).message
    assert git(vault, "diff", "--cached", "--name-status") == before


@pytest.mark.parametrize("damage", [b"", b"garbage" * 10, b"DIRC\0\0\0\2\0\0\0\7"])
def test_a_damaged_index_is_set_aside_and_built_again_and_a_person_is_told(vault: Path, damage: bytes) -> None:
    sync_index(vault)
    publish(vault, 3, "private/c.md", b"c\n")
    (vault / ".git/index").write_bytes(damage)
    left = sync_index(vault)
    assert left.state == "current"
    (aside,) = (vault / ".git").glob("index.damaged-*")
    assert aside.name in left.message
    assert aside.read_bytes() == damage
    assert status(vault) == []


def test_a_repository_that_is_gone_is_said_to_be_gone(vault: Path) -> None:
    sync_index(vault)
    (vault / ".git").rename(vault.parent / "gone")
    assert "the next save builds it again" in sync_index(vault).message


def test_an_index_that_cannot_follow_for_want_of_an_object_makes_the_repository_suspect(vault: Path) -> None:
    sync_index(vault)
    publish(vault, 3, "private/c.md", b"c\n")
    for path in (vault / ".git/objects").rglob("*"):
        if path.is_file():
            path.chmod(0o644)
            path.write_bytes(b"")
    assert sync_index(vault).suspect


def test_a_half_finished_merge_keeps_its_index(vault: Path) -> None:
    sync_index(vault)
    (vault / ".git/MERGE_HEAD").write_text(git(vault, "rev-parse", "main"))
    index = (vault / ".git/index").read_bytes()
    assert sync_index(vault).state == "left_alone"
    assert (vault / ".git/index").read_bytes() == index


@pytest.mark.parametrize("content", [b"", b"DIRC\0\0\0\2"])
def test_a_lock_of_another_git_program_is_explained_and_never_removed(vault: Path, content: bytes) -> None:
    (vault / ".git/index.lock").write_bytes(content)
    left = sync_index(vault)
    assert left.state == "left_alone"
    assert "index.lock since 20" in left.message
    assert (vault / ".git/index.lock").read_bytes() == content
    (vault / ".git/index.lock").unlink()
    assert sync_index(vault) == CURRENT


def test_a_lock_that_we_left_when_we_were_killed_is_taken_over(vault: Path) -> None:
    (vault / ".git/index.lock").write_bytes(idle._LOCK_TEXT)
    assert sync_index(vault) == CURRENT
    assert not (vault / ".git/index.lock").exists()


def test_a_person_who_stages_meanwhile_is_told_to_wait_and_loses_nothing(vault: Path) -> None:
    sync_index(vault)
    publish(vault, 3, "private/c.md", b"c\n")
    (vault / "private/mine.md").write_text("mine\n")
    refused: list[int] = []

    def stage(name: str) -> None:
        # The index is compared once before it is locked, which hinders nobody.
        locked = (vault / ".git/index.lock").exists()
        if locked and name in ("git.index.compare", "git.index.read", "git.index.place"):
            refused.append(subprocess.run(["git", "add", "private/mine.md"], cwd=vault, capture_output=True).returncode)

    with installed(stage):
        assert sync_index(vault) == CURRENT
    assert refused
    assert all(refused)
    assert status(vault) == ["?? private/mine.md"]


def test_a_kill_at_any_point_leaves_an_index_that_is_brought_up_next_time(vault: Path) -> None:
    sync_index(vault)
    hits = 0
    for number, name in enumerate(sorted(name for name, _ in FAULT_POINTS if name.startswith("git.index"))):
        for point in (name, f"{name}.after"):
            publish(vault, 100 + 2 * number + point.endswith(".after"), f"private/{point}.md", point.encode())
            child = os.fork()
            if child == 0:

                def kill(passed: str, point: str = point) -> None:
                    if passed == point:
                        os.kill(os.getpid(), signal.SIGKILL)

                try:
                    with installed(kill):
                        sync_index(vault)
                finally:
                    os._exit(0)
            hits += os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == -signal.SIGKILL
            assert sync_index(vault) == CURRENT, point
            assert status(vault) == [], point
            assert not (vault / ".git/index.lock").exists()
    assert hits > 15


@pytest.mark.parametrize("name", [name for name, _ in FAULT_POINTS if name.startswith("git.index")])
def test_a_failing_disk_leaves_the_index_alone(vault: Path, name: str) -> None:
    sync_index(vault)
    publish(vault, 3, "private/c.md", b"c\n")

    def fail(passed: str) -> None:
        if passed == name:
            raise OSError(28, "No space left on device")

    with installed(fail):
        sync_index(vault)
    assert sync_index(vault) == CURRENT
    assert status(vault) == []


def test_small_packs_are_packed_together_and_nothing_of_a_persons_is_lost(
    vault: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(idle, "PACKS_MAX", 6)
    git(vault, "reset", "-q")
    (vault / "private/a.md").write_text("stashed\n")
    git(vault, "stash")
    assert not tidy(vault)
    for number in range(3, 9):
        outcome = commit(vault, [one(number)], whole_history=False, look_back=False)
        assert isinstance(outcome, Committed)
    assert len(list((vault / ".git/objects/pack").glob("*.pack"))) > 6
    assert tidy(vault)
    assert len(list((vault / ".git/objects/pack").glob("*.pack"))) < 4
    assert git(vault, "rev-list", "--count", "main").strip() == "8"
    assert "stashed" in git(vault, "stash", "show", "-p")
    assert git(vault, "fsck", "--strict", "--no-dangling") == ""


def one(number: int) -> Checkpoint:
    return checkpoint(number, ("private/a.md", f"{number}\n".encode()))


def test_without_git_nothing_is_done_and_it_is_said(vault: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nonexistent")
    assert not tidy(vault)
    left = sync_index(vault)
    assert left.state == "left_alone"
    assert "not installed" in left.message
    assert not (vault / ".git/index.lock").exists()


@pytest.mark.parametrize(
    "point", ["git.index.lock.open", "git.index.copy", "git.index.read", "git.index.place", "git.index.mark.open"]
)
def test_a_git_folder_swapped_for_a_link_meanwhile_is_not_followed_by_the_index(vault: Path, point: str) -> None:
    sync_index(vault)
    publish(vault, 3, "private/c.md", b"c\n")
    swap = Swap(vault, point)
    with installed(swap):
        sync_index(vault)
    assert (vault / ".git").is_symlink(), "swapped"
    assert swap.seen() == swap.before


@pytest.mark.parametrize("point", ["git.index.compare", "git.index.copy", "git.index.tree", "git.index.find"])
def test_asking_which_commit_an_index_is_at_follows_no_link_in_the_place_of_the_git_folder(
    vault: Path, point: str
) -> None:
    sync_index(vault)
    publish(vault, 3, "private/c.md", b"c\n")
    publish(vault, 4, "private/d.md", b"d\n")
    git(vault, "reset", "-q", "main~1", "--", ".")
    publish(vault, 5, "private/a.md", b"changed\n")
    swap = Swap(vault, point)
    with installed(swap):
        sync_index(vault)
    assert (vault / ".git").is_symlink(), "swapped"
    assert swap.seen() == swap.before


@pytest.mark.parametrize("point", ["git.count", "git.repack"])
def test_packing_follows_no_link_in_the_place_of_the_git_folder(
    vault: Path, monkeypatch: pytest.MonkeyPatch, point: str
) -> None:
    monkeypatch.setattr(idle, "PACKS_MAX", 1)
    swap = Swap(vault, point)
    with installed(swap):
        tidy(vault)
    assert (vault / ".git").is_symlink(), "swapped"
    assert swap.seen() == swap.before


def test_a_repository_whose_objects_lie_behind_a_link_is_not_packed(
    vault: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(idle, "PACKS_MAX", 1)
    (vault / ".git/objects").rename(vault.parent / "objects")
    (vault / ".git/objects").symlink_to(vault.parent / "objects")
    assert not tidy(vault)
    assert len(list((vault.parent / "objects/pack").glob("*.pack"))) == 2


def test_a_link_in_the_place_of_the_folder_for_passing_objects_is_not_followed(vault: Path) -> None:
    sync_index(vault)
    (vault / "private/mine.md").write_text("mine\n")
    git(vault, "add", "private/mine.md")
    publish(vault, 3, "private/c.md", b"c\n")
    (vault.parent / "other").mkdir()
    (vault / ".git/knowledge-index.objects").symlink_to(vault.parent / "other")
    assert "in the way" in sync_index(vault).message
    assert list((vault.parent / "other").iterdir()) == []


@pytest.mark.parametrize("how", ["symlink", "hardlink"])
def test_an_index_that_is_a_link_is_left_alone(vault: Path, how: str) -> None:
    sync_index(vault)
    publish(vault, 3, "private/c.md", b"c\n")
    (vault / ".git/index").rename(vault.parent / "index")
    (vault / ".git/index").symlink_to(vault.parent / "index")
    if how == "hardlink":
        (vault / ".git/index").unlink()
        os.link(vault.parent / "index", vault / ".git/index")
    before = (vault.parent / "index").read_bytes()
    assert sync_index(vault).state == "left_alone"
    assert (vault.parent / "index").read_bytes() == before


def test_every_point_that_idle_work_passes_is_declared(vault: Path) -> None:
    passed: set[str] = set()
    with installed(passed.add):
        sync_index(vault)
        publish(vault, 3, "private/c.md", b"c\n")
        sync_index(vault)
        tidy(vault)
        (vault / ".git/index").write_bytes(b"")
        publish(vault, 4, "private/d.md", b"d\n")
        sync_index(vault)
        git(vault, "rm", "-q", "--cached", "private/d.md")
        git(vault, "commit", "-q", "-m", "mine")
        publish(vault, 5, "private/e.md", b"e\n")
        sync_index(vault)
    mine = {name.removesuffix(".after") for name in passed if name.startswith(("git.index", "git.count", "git.repack"))}
    assert mine == {name for name, _ in FAULT_POINTS} - {"git.repack"}

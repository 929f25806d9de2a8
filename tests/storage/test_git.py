"""The Git checkpoint against the real Git (decisions.md section 4)."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import threading
import time
from collections.abc import Sequence
from pathlib import Path

import pytest

from messages.vocabulary import PRIVATE
from storage.faults import installed
from storage.git import (
    Checkpoint,
    Committed,
    Rebuild,
    Unavailable,
    Waiting,
    _run,
    check,
    commit,
    is_versioned,
    repository_state,
)
from storage.git import checkpoint as module
from storage.git._repository import Ready, look
from storage.git._run import Opened, without_places
from storage.git.checkpoint import FAULT_POINTS
from storage.state.git_queue import GitChange, GitJob

PERSON = {
    "GIT_AUTHOR_NAME": "Ada", "GIT_AUTHOR_EMAIL": "ada@example.org", "GIT_COMMITTER_NAME": "Ada",
    "GIT_COMMITTER_EMAIL": "ada@example.org", "GIT_CONFIG_GLOBAL": "/dev/null", "GIT_CONFIG_NOSYSTEM": "1",
}  # fmt: skip
AT = 1_790_000_000


def git(vault: Path, *arguments: str, ok: bool = True, **environ: str) -> str:
    """What a person's own Git says in the vault."""
    result = subprocess.run(
        ["git", *arguments], cwd=vault, capture_output=True, text=True, check=False,
        env={**os.environ, **PERSON, **environ},
    )  # fmt: skip
    assert not ok or result.returncode == 0, result.stderr
    return result.stdout


def checkpoint(number: int, *changes: tuple[str, bytes | None], actor: str = "main") -> Checkpoint:
    return Checkpoint(
        f"22222222-2222-4222-8222-{number:012d}",
        "remember",
        f"00000000-0000-4000-8000-{number:012d}",
        actor,
        AT + number,
        (f"record-{number}",),
        changes or ((f"private/claims/2026/09/ab/{number}.md", f"claim {number}\n".encode()),),
    )


def committed(
    vault: Path, checkpoints: Sequence[Checkpoint], *, whole_history: bool = False, look_back: bool = False
) -> list[str]:
    outcome = commit(vault, checkpoints, whole_history=whole_history, look_back=look_back)
    assert isinstance(outcome, Committed), outcome
    assert list(outcome.commits) == [item.publication_id for item in checkpoints]
    return list(outcome.commits.values())


def waiting(vault: Path, number: int = 99) -> Waiting:
    before = git(vault, "for-each-ref")
    outcome = commit(vault, [checkpoint(number)], whole_history=False, look_back=False)
    assert isinstance(outcome, Waiting), outcome
    assert git(vault, "for-each-ref") == before
    return outcome


@pytest.fixture
def vault(tmp_path: Path) -> Path:
    path = tmp_path / "vault"
    (path / "private").mkdir(parents=True)
    return path


@pytest.fixture
def begun(vault: Path) -> Path:
    committed(vault, [checkpoint(1)], whole_history=True)
    return vault


def test_the_first_checkpoint_makes_a_repository_with_branch_main(vault: Path) -> None:
    oids = committed(vault, [checkpoint(1), checkpoint(2)], whole_history=True)
    assert git(vault, "symbolic-ref", "HEAD").strip() == "refs/heads/main"
    assert git(vault, "rev-list", "--reverse", "main").split() == oids
    assert git(vault, "show", "main:private/claims/2026/09/ab/2.md") == "claim 2\n"
    assert git(vault, "for-each-ref", "--format=%(refname)").split() == ["refs/heads/main"]
    assert not list((vault / ".git").glob("hooks/*"))
    assert sorted(path.name for path in vault.iterdir()) == [".git", "private"]


def test_a_commit_has_the_agent_as_author_and_ids_but_no_titles_in_its_message(begun: Path) -> None:
    committed(begun, [checkpoint(2, ("private/people/ada-lovelace.md", b"title: Ada Lovelace\n"), actor="research")])
    assert git(begun, "log", "-1", "--format=%an%n%ae%n%cn%n%at%n%B").splitlines() == [
        "research",
        "research@knowledge.invalid",
        "Knowledge Runtime",
        str(AT + 2),
        "remember",
        "",
        "Request: 00000000-0000-4000-8000-000000000002",
        "Publication: 22222222-2222-4222-8222-000000000002",
        "Record: record-2",
        "",
    ]


def test_each_publication_is_one_commit_and_the_log_of_a_file_reads_as_its_history(vault: Path) -> None:
    path = "private/people/ada.md"
    history = [
        checkpoint(1, (path, b"one\n"), ("private/other.md", b"x\n")),
        checkpoint(2, (path, b"two\n")),
        checkpoint(3, ("private/other.md", b"y\n")),
        checkpoint(4, (path, None), ("private/people/renamed.md", b"two\n")),
    ]
    oids = committed(vault, history, whole_history=True)
    assert git(vault, "log", "--format=%H", "--", path).split() == [oids[3], oids[1], oids[0]]
    assert git(vault, "log", "--follow", "--format=%H", "--", "private/people/renamed.md").split()[:2] == [
        oids[3],
        oids[1],
    ]
    assert git(vault, "ls-tree", "-r", "--name-only", "main").split() == [
        "private/other.md",
        "private/people/renamed.md",
    ]
    assert git(vault, "fsck", "--strict") == ""


def test_the_same_history_gives_the_same_commits(tmp_path: Path) -> None:
    history = [checkpoint(number) for number in range(1, 6)]
    results = []
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
        results.append(committed(tmp_path / name, history, whole_history=True))
    assert results[0] == results[1]


NAMES = [
    "private/ünïcode 語 👍.md", 'private/a "quoted" name.md', "private/new\nline.md", "private/back\\slash.md",
    "private/ leading and trailing .md", "private/tab\there.md", "private/-dash.md", "private/semi;colon$(x).md",
    "private/:(exclude)x.md", "private/cafe\u0301.md",
]  # fmt: skip


def test_names_of_every_kind_arrive_unchanged(vault: Path) -> None:
    changes = tuple((name, name.encode()) for name in NAMES)
    committed(vault, [checkpoint(1, *changes)], whole_history=True)
    listed = git(vault, "ls-tree", "-r", "-z", "--name-only", "main").split("\0")[:-1]
    assert sorted(listed) == sorted(NAMES)
    committed(vault, [checkpoint(2, *((name, None) for name in NAMES))])
    assert git(vault, "ls-tree", "-r", "main") == ""


def test_bytes_of_every_kind_arrive_unchanged(begun: Path) -> None:
    texts = [b"", b"\0\xff\xfe", b"a\r\nb\r\n", b"done\n", b"commit refs/heads/main\nmark :1\n", b"x" * 100_000]
    committed(begun, [checkpoint(2, *((f"private/{n}.md", text) for n, text in enumerate(texts)))])
    for number, text in enumerate(texts):
        shown = subprocess.run(["git", "show", f"main:private/{number}.md"], cwd=begun, capture_output=True, check=True)
        assert shown.stdout == text


def test_an_agent_id_cannot_break_out_of_its_place(begun: Path) -> None:
    committed(begun, [checkpoint(2, actor="a <b@c>\nfrom 0000\ncommit refs/heads/evil")])
    assert git(begun, "log", "-1", "--format=%an").strip() == "a b@c from 0000 commit refs/heads/evil"
    assert "evil" not in git(begun, "for-each-ref")


@pytest.mark.parametrize(
    ("path", "versioned"),
    [
        ("private/people/ada.md", True),
        ("private/ontology.yaml", True),
        ("private/people/artifacts/x.md", True),
        ("conversations/33333333-3333-4333-8333-333333333333/claims/x.md", True),
        ("vault.json", False),
        ("private/artifacts/r/excerpt.txt", False),
        ("conversations/33333333-3333-4333-8333-333333333333/artifacts/r/excerpt.txt", False),
        ("private/.git/config", False),
        ("private/.GIT/config", False),
        ("private/../x.md", False),
        ("private//x.md", False),
    ],
)
def test_artifacts_the_manifest_and_paths_that_git_refuses_are_left_out(
    begun: Path, path: str, versioned: bool
) -> None:
    assert is_versioned(path) == versioned
    committed(begun, [checkpoint(2, (path, b"x"))])
    assert (path in git(begun, "ls-tree", "-r", "--name-only", "main").split()) == versioned


def test_a_checkpoint_of_a_queued_entry_takes_its_bytes_from_history() -> None:
    job = GitJob(
        7, "p", PRIVATE, 3, None, "external", "external", AT * 1_000_000_000 + 5, ("r",),
        (GitChange("private/a.md", "hash"), GitChange("private/b.md", None)), None,
    )  # fmt: skip
    made = Checkpoint.of(job, {"hash": b"text"}.__getitem__)
    assert made == Checkpoint(
        "p", "external", None, "external", AT, ("r",), (("private/a.md", b"text"), ("private/b.md", None))
    )
    assert made.size == 4


def test_a_persons_commits_become_parents(begun: Path) -> None:
    (begun / "private/mine.md").write_text("mine\n")
    git(begun, "read-tree", "main")
    git(begun, "add", "private/mine.md")
    git(begun, "commit", "-q", "-m", "mine")
    theirs = git(begun, "rev-parse", "main").strip()
    oids = committed(begun, [checkpoint(2)])
    assert git(begun, "rev-parse", "main^").strip() == theirs
    assert git(begun, "rev-parse", "main").strip() == oids[0]
    assert git(begun, "show", "main:private/mine.md") == "mine\n"


def test_a_commit_made_at_the_same_moment_is_built_upon_and_never_lost(begun: Path) -> None:
    raced: list[str] = []

    def race(name: str) -> None:
        if name == "git.update" and not raced:
            tree = git(begun, "rev-parse", "main^{tree}").strip()
            theirs = git(begun, "commit-tree", "-p", "main", "-m", "raced", tree).strip()
            git(begun, "update-ref", "refs/heads/main", theirs)
            raced.append(theirs)

    with installed(race):
        committed(begun, [checkpoint(2)])
    assert git(begun, "rev-parse", "main^").strip() == raced[0]
    assert git(begun, "for-each-ref", "--format=%(refname)").split() == ["refs/heads/main"]


def test_a_main_that_keeps_moving_is_waited_for_and_never_overwritten(begun: Path) -> None:
    def race(name: str) -> None:
        if name == "git.update":
            tree = git(begun, "rev-parse", "main^{tree}").strip()
            git(
                begun, "update-ref", "refs/heads/main", git(begun, "commit-tree", "-p", "main", "-m", "r", tree).strip()
            )

    with installed(race):
        outcome = commit(begun, [checkpoint(2)], whole_history=False, look_back=False)
    assert isinstance(outcome, Waiting)
    assert outcome.reason == "moved"
    assert git(begun, "log", "--format=%s", "main").split() == ["r", "r", "r", "remember"]


def test_a_main_that_was_moved_back_meanwhile_is_not_moved_forward_again(begun: Path) -> None:
    committed(begun, [checkpoint(2)])
    moved: list[str] = []

    def reset(name: str) -> None:
        if name == "git.update" and not moved:
            moved.append(git(begun, "rev-parse", "main^").strip())
            git(begun, "update-ref", "refs/heads/main", moved[0])

    with installed(reset):
        committed(begun, [checkpoint(3)])
    assert git(begun, "rev-parse", "main^").strip() == moved[0]


def merge_in_progress(vault: Path) -> None:
    git(vault, "read-tree", "main")
    git(vault, "checkout-index", "-a")
    git(vault, "checkout", "-q", "-b", "side")
    (vault / "private/claims/2026/09/ab/1.md").write_text("side\n")
    git(vault, "commit", "-q", "-a", "-m", "side")
    git(vault, "checkout", "-q", "main")
    (vault / "private/claims/2026/09/ab/1.md").write_text("main\n")
    git(vault, "commit", "-q", "-a", "-m", "main")
    git(vault, "merge", "side", ok=False)
    assert (vault / ".git/MERGE_HEAD").exists()


def rebase_in_progress(vault: Path) -> None:
    merge_in_progress(vault)
    git(vault, "merge", "--abort")
    git(vault, "rebase", "side", ok=False)
    assert (vault / ".git/rebase-merge").exists()


def other_branch(vault: Path) -> None:
    git(vault, "checkout", "-q", "-b", "experiment")


def detached(vault: Path) -> None:
    git(vault, "checkout", "-q", "--detach", "main")


@pytest.mark.parametrize(
    ("arrange", "reason", "leave"),
    [
        (other_branch, "branch", ("symbolic-ref", "HEAD", "refs/heads/main")),
        (detached, "detached", ("symbolic-ref", "HEAD", "refs/heads/main")),
        (merge_in_progress, "in_progress", ("merge", "--abort")),
        (rebase_in_progress, "in_progress", ("rebase", "--abort")),
    ],
    ids=lambda value: getattr(value, "__name__", None),
)  # fmt: skip
def test_another_branch_a_detached_head_or_a_half_finished_merge_is_waited_for(
    begun: Path, arrange: object, reason: str, leave: tuple[str, ...]
) -> None:
    assert callable(arrange)
    arrange(begun)
    status = git(begun, "status", "--porcelain=v2", "--branch")
    outcome = waiting(begun)
    assert outcome.reason == reason
    assert outcome.message
    assert git(begun, "status", "--porcelain=v2", "--branch") == status
    git(begun, *leave)
    committed(begun, [checkpoint(2)])


def test_branches_and_stashes_survive(begun: Path) -> None:
    git(begun, "read-tree", "main")
    git(begun, "checkout-index", "-a")
    git(begun, "branch", "keep")
    (begun / "private/claims/2026/09/ab/1.md").write_text("stashed\n")
    git(begun, "stash")
    before = git(begun, "for-each-ref", "refs/stash", "refs/heads/keep")
    committed(begun, [checkpoint(2)])
    assert git(begun, "for-each-ref", "refs/stash", "refs/heads/keep") == before
    assert "stashed" in git(begun, "stash", "show", "-p")


@pytest.mark.parametrize("lock", ["refs/heads/main.lock", "packed-refs.lock", "HEAD.lock"])
def test_a_left_over_lock_file_is_explained_and_tried_again(begun: Path, lock: str) -> None:
    git(begun, "pack-refs", "--all")
    (begun / ".git" / lock).parent.mkdir(parents=True, exist_ok=True)
    (begun / ".git" / lock).touch()
    outcome = commit(begun, [checkpoint(2)], whole_history=False, look_back=False)
    if isinstance(outcome, Waiting):
        assert outcome.reason == "locked"
        assert lock in outcome.message
        (begun / ".git" / lock).unlink()
        committed(begun, [checkpoint(2)])
    else:
        assert lock == "HEAD.lock"  # a lock that is not in our way


def test_a_lock_on_the_index_is_not_in_our_way(begun: Path) -> None:
    (begun / ".git/index.lock").touch()
    committed(begun, [checkpoint(2)])
    assert (begun / ".git/index.lock").exists()


def test_the_index_and_the_work_tree_are_not_touched(begun: Path) -> None:
    git(begun, "read-tree", "main")
    index = (begun / ".git/index").read_bytes()
    committed(begun, [checkpoint(2)])
    assert (begun / ".git/index").read_bytes() == index
    assert not (begun / "private/claims").exists()


def test_hooks_and_foreign_configuration_have_no_effect(
    begun: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    hook = f"#!/bin/sh\ntouch '{tmp_path}/hooked'\nexit 1\n"
    (begun / ".git/hooks").mkdir()
    for name in ("reference-transaction", "pre-commit", "post-commit", "post-index-change", "fsmonitor-watchman"):
        (begun / ".git/hooks" / name).write_text(hook)
        (begun / ".git/hooks" / name).chmod(0o755)
    (tmp_path / "home").mkdir()
    (tmp_path / "home/.gitconfig").write_text(f"[core]\n\thooksPath = {begun}/.git/hooks\n[user]\n\tname = Mallory\n")
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    for name, value in {
        "GIT_DIR": "/nonexistent", "GIT_INDEX_FILE": "/nonexistent", "GIT_AUTHOR_NAME": "Mallory",
        "GIT_CONFIG_COUNT": "1", "GIT_CONFIG_KEY_0": "core.hooksPath", "GIT_CONFIG_VALUE_0": f"{begun}/.git/hooks",
        "GIT_OBJECT_DIRECTORY": "/nonexistent", "GIT_WORK_TREE": "/", "GIT_TRACE": f"{tmp_path}/trace",
    }.items():  # fmt: skip
        monkeypatch.setenv(name, value)
    committed(begun, [checkpoint(2)])
    monkeypatch.undo()
    assert not (tmp_path / "hooked").exists()
    assert not (tmp_path / "trace").exists()
    assert git(begun, "log", "-1", "--format=%an %cn").strip() == "main Knowledge Runtime"


def test_a_vault_inside_another_repository_has_its_own(tmp_path: Path) -> None:
    git(tmp_path, "init", "-q")
    vault = tmp_path / "vault"
    vault.mkdir()
    committed(vault, [checkpoint(1)], whole_history=True)
    assert git(tmp_path, "for-each-ref") == ""
    assert (vault / ".git").is_dir()


def test_a_repository_that_a_person_made_before_is_used(vault: Path) -> None:
    git(vault, "init", "-q", "-b", "main")
    (vault / "private/mine.md").write_text("mine\n")
    git(vault, "add", ".")
    git(vault, "commit", "-q", "-m", "mine")
    theirs = git(vault, "rev-parse", "main").strip()
    committed(vault, [checkpoint(1)], whole_history=True)
    assert git(vault, "rev-parse", "main^").strip() == theirs


def test_a_missing_repository_asks_for_the_whole_history(begun: Path) -> None:
    (begun / ".git").rename(begun.parent / "elsewhere")
    outcome = commit(begun, [checkpoint(2)], whole_history=False, look_back=False)
    assert isinstance(outcome, Rebuild)
    assert outcome.set_aside is None
    committed(begun, [checkpoint(1), checkpoint(2)], whole_history=True)
    assert git(begun, "rev-list", "--count", "main").strip() == "2"


def lose_head(git_folder: Path) -> None:
    (git_folder / "HEAD").unlink()


def empty_head(git_folder: Path) -> None:
    (git_folder / "HEAD").write_bytes(b"")


def lose_objects(git_folder: Path) -> None:
    (git_folder / "objects").rename(git_folder / "gone")


def empty_branch(git_folder: Path) -> None:
    (git_folder / "refs/heads/main").write_bytes(b"")


def nul_in_head(git_folder: Path) -> None:
    (git_folder / "HEAD").write_bytes(b"ref: refs/heads/main\0\0\0")


def zero_branch(git_folder: Path) -> None:
    (git_folder / "refs/heads/main").write_bytes(b"\0" * 41)


def object_files(git_folder: Path) -> list[Path]:
    return [path for path in (git_folder / "objects").rglob("*") if path.is_file()]


def lose_every_object(git_folder: Path) -> None:
    for path in object_files(git_folder):
        path.unlink()


def empty_every_object(git_folder: Path) -> None:
    for path in object_files(git_folder):
        path.chmod(0o644)
        path.write_bytes(b"")


@pytest.mark.parametrize(
    "damage",
    [
        lose_head,
        empty_head,
        nul_in_head,
        lose_objects,
        empty_branch,
        zero_branch,
        lose_every_object,
        empty_every_object,
    ],
    ids=lambda damage: damage.__name__,
)
def test_a_damaged_repository_is_set_aside_whole_and_built_again(begun: Path, damage: object) -> None:
    assert callable(damage)
    damage(begun / ".git")
    outcome = commit(begun, [checkpoint(2)], whole_history=False, look_back=False)
    assert isinstance(outcome, Rebuild), outcome
    assert outcome.set_aside is not None
    assert outcome.set_aside.startswith(".git.damaged-2")
    assert (begun / outcome.set_aside / "config").exists()
    assert not (begun / ".git").exists()
    committed(begun, [checkpoint(1), checkpoint(2)], whole_history=True)
    assert git(begun, "fsck", "--strict") == ""


def cut_a_pack(pack: Path) -> None:
    pack.write_bytes(pack.read_bytes()[: pack.stat().st_size // 2])


def spoil_a_pack(pack: Path) -> None:
    data = bytearray(pack.read_bytes())
    data[-26] ^= 0xFF  # the end of the last object, before the checksum
    pack.write_bytes(data)


@pytest.mark.parametrize("damage", [cut_a_pack, spoil_a_pack], ids=lambda damage: damage.__name__)
def test_a_damaged_pack_is_found_by_a_check_and_set_aside_when_it_is_suspected(begun: Path, damage: object) -> None:
    assert callable(damage)
    committed(begun, [checkpoint(2)])
    for pack in (begun / ".git/objects/pack").glob("*.pack"):
        pack.chmod(0o644)
        damage(pack)
    assert "damaged" in (check(begun) or "")
    outcome = commit(begun, [checkpoint(3)], whole_history=False, look_back=False, suspect=True)
    assert isinstance(outcome, Rebuild), outcome
    assert outcome.set_aside is not None
    committed(begun, [checkpoint(number) for number in (1, 2, 3)], whole_history=True)
    assert check(begun) is None


def test_a_checkpoint_that_a_cut_pack_makes_impossible_is_not_waited_for_for_ever(begun: Path) -> None:
    for pack in (begun / ".git/objects/pack").glob("*.pack"):
        pack.chmod(0o644)
        cut_a_pack(pack)
    assert isinstance(commit(begun, [checkpoint(2)], whole_history=False, look_back=False), Rebuild)


def test_a_sound_repository_that_is_suspected_is_committed_to(begun: Path) -> None:
    outcome = commit(begun, [checkpoint(2)], whole_history=False, look_back=False, suspect=True)
    assert isinstance(outcome, Committed)


def test_what_is_broken_beside_main_does_not_set_a_persons_repository_aside(begun: Path) -> None:
    (begun / ".git/refs/heads/theirs").write_text("1" * 40 + "\n")
    assert check(begun) is None
    outcome = commit(begun, [checkpoint(2)], whole_history=False, look_back=False, suspect=True)
    assert isinstance(outcome, Committed)


def test_a_submodule_stays_a_persons_and_its_notes_are_no_part_of_our_commits(begun: Path, tmp_path: Path) -> None:
    theirs = tmp_path / "theirs"
    theirs.mkdir()
    git(theirs, "init", "-q")
    (theirs / "x.md").write_text("x\n")
    git(theirs, "add", ".")
    git(theirs, "commit", "-q", "-m", "theirs")
    git(begun, "read-tree", "main")
    git(begun, "-c", "protocol.file.allow=always", "submodule", "--quiet", "add", str(theirs), "private/sub")
    git(begun, "commit", "-q", "-m", "a submodule")
    committed(begun, [checkpoint(2, ("private/sub/x.md", b"x\n"), ("private/sub/deep/y.md", b"y\n")), checkpoint(3)])
    assert git(begun, "ls-tree", "-r", "main", "private/sub").startswith("160000 commit ")
    assert git(begun, "cat-file", "-e", "main:private/claims/2026/09/ab/3.md") == ""


def test_a_check_names_what_is_missing_and_says_nothing_of_a_sound_repository(begun: Path) -> None:
    assert check(begun) is None
    lose_every_object(begun / ".git")
    assert "missing" in (check(begun) or "")


@pytest.mark.parametrize("kind", ["file", "link"])
def test_a_git_folder_that_is_a_pointer_to_another_place_is_left_alone(begun: Path, kind: str) -> None:
    (begun / ".git").rename(begun.parent / "elsewhere")
    if kind == "file":
        (begun / ".git").write_text(f"gitdir: {begun.parent}/elsewhere\n")
    else:
        (begun / ".git").symlink_to(begun.parent / "elsewhere")
    before = git(begun, "for-each-ref")
    outcome = commit(begun, [checkpoint(2)], whole_history=True, look_back=False)
    assert isinstance(outcome, Unavailable)
    assert git(begun, "for-each-ref") == before


@pytest.mark.parametrize("part", ["objects", "refs"])
def test_a_repository_that_leads_elsewhere_by_a_link_inside_is_left_alone(begun: Path, part: str) -> None:
    (begun / ".git" / part).rename(begun.parent / part)
    (begun / ".git" / part).symlink_to(begun.parent / part)
    assert isinstance(commit(begun, [checkpoint(2)], whole_history=True, look_back=False), Unavailable)


class Swap:
    """Somebody puts a link to a repository of another vault in the place of ``.git``, at one point of a run."""

    def __init__(self, vault: Path, point: str) -> None:
        self.point = point
        self.vault = vault
        self.other = vault.parent / "other"
        shutil.copytree(vault, self.other)
        self.before = self.seen()

    def __call__(self, point: str) -> None:
        if point == self.point and not (self.vault / ".git").is_symlink():
            (self.vault / ".git").rename(self.vault.parent / "taken")
            (self.vault / ".git").symlink_to(self.other / ".git")

    def seen(self) -> tuple[str, list[str]]:
        """All that a run could have changed in the other repository."""
        names = sorted(str(path.relative_to(self.other)) for path in (self.other / ".git").rglob("*"))
        return git(self.other, "for-each-ref"), names


SWAPPED = ["git.look", "git.look.after", "git.refs", "git.log", "git.import", "git.import.after", "git.update"]


@pytest.mark.parametrize("point", SWAPPED)
def test_a_git_folder_swapped_for_a_link_between_look_and_start_is_not_followed(begun: Path, point: str) -> None:
    git(begun, "pack-refs", "--all")
    swap = Swap(begun, point)
    with installed(swap):
        commit(begun, [checkpoint(2)], whole_history=False, look_back=True)
    assert (begun / ".git").is_symlink(), "swapped"
    assert swap.seen() == swap.before


@pytest.mark.parametrize("point", ["git.init", "git.init.after", "git.config", "git.config.open"])
def test_a_repository_that_is_being_made_is_not_written_through_a_link(vault: Path, point: str) -> None:
    other = vault.parent / "other"
    other.mkdir()

    def swap(reached: str) -> None:
        if reached == point and not (vault / ".kr-git").is_symlink():
            if (vault / ".kr-git").exists():
                (vault / ".kr-git").rename(vault.parent / "taken")
            (vault / ".kr-git").symlink_to(other)

    with installed(swap):
        assert not isinstance(commit(vault, [checkpoint(1)], whole_history=True, look_back=False), Committed)
    assert list(other.iterdir()) == []


@pytest.mark.parametrize("point", ["git.import", "git.update", "git.update.after"])
def test_a_checkpoint_is_reported_only_from_the_repository_that_is_the_vaults_afterwards(
    begun: Path, point: str
) -> None:
    shutil.copytree(begun / ".git", begun.parent / "restored")

    def swap(reached: str) -> None:
        if reached == point and (begun.parent / "restored").exists():
            (begun / ".git").rename(begun.parent / "taken")
            (begun.parent / "restored").rename(begun / ".git")

    with installed(swap):
        outcome = commit(begun, [checkpoint(2)], whole_history=False, look_back=False)
        if isinstance(outcome, Waiting):  # Git was not started, on a system where no path leads to an open folder
            outcome = commit(begun, [checkpoint(2)], whole_history=False, look_back=False)
    assert isinstance(outcome, Committed)
    assert git(begun, "rev-parse", "main").split() == list(outcome.commits.values())
    assert git(begun, "rev-list", "--count", "main").strip() == "2"


def test_a_sound_repository_that_took_the_place_of_a_damaged_one_is_not_set_aside(begun: Path) -> None:
    shutil.copytree(begun / ".git", begun.parent / "restored")
    lose_every_object(begun / ".git")

    def swap(reached: str) -> None:
        if reached == "git.check.after" and (begun.parent / "restored").exists():
            (begun / ".git").rename(begun.parent / "taken")
            (begun.parent / "restored").rename(begun / ".git")

    with installed(swap):
        (made,) = committed(begun, [checkpoint(2)])
    assert git(begun, "rev-parse", "main").strip() == made
    assert not list(begun.glob(".git.damaged-*"))


def test_with_the_name_given_to_git_instead_of_the_open_folder_the_link_is_followed(
    begun: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_run, "place_of", lambda vault, git: str(vault / ".git"))
    swap = Swap(begun, "git.import")
    with installed(swap):
        commit(begun, [checkpoint(2)], whole_history=False, look_back=False)
    assert swap.seen() != swap.before


def test_where_no_path_leads_to_an_open_folder_git_is_not_started_once_another_stands_there(
    begun: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os.path, "isdir", lambda path: False)
    committed(begun, [checkpoint(2)])
    swap = Swap(begun, "git.import")
    with installed(swap):
        assert isinstance(commit(begun, [checkpoint(3)], whole_history=False, look_back=False), Waiting)
    assert swap.seen() == swap.before


def test_without_git_the_history_is_unavailable_and_says_so(begun: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nonexistent")
    outcome = commit(begun, [checkpoint(2)], whole_history=False, look_back=False)
    assert isinstance(outcome, Unavailable)
    assert "not installed" in outcome.message


def test_a_vault_that_is_gone_is_waited_for(tmp_path: Path) -> None:
    outcome = commit(tmp_path / "gone", [checkpoint(1)], whole_history=True, look_back=False)
    assert isinstance(outcome, Waiting)
    assert outcome.reason == "storage"


@pytest.mark.parametrize("code", [28, 30, 5])
@pytest.mark.parametrize("point", ["git.look", "git.init", "git.config", "git.place", "git.import", "git.update"])
def test_a_failing_disk_is_a_state_and_the_next_run_succeeds(vault: Path, point: str, code: int) -> None:
    def fail(name: str) -> None:
        if name == point:
            raise OSError(code, os.strerror(code))

    with installed(fail):
        outcome = commit(vault, [checkpoint(1)], whole_history=True, look_back=False)
    assert isinstance(outcome, Waiting)
    assert outcome.reason == "storage"
    committed(vault, [checkpoint(1)], whole_history=True)
    assert git(vault, "rev-list", "--count", "main").strip() == "1"


def test_packed_references_are_read(begun: Path) -> None:
    git(begun, "pack-refs", "--all", "--prune")
    assert not (begun / ".git/refs/heads/main").exists()
    committed(begun, [checkpoint(2)])
    assert git(begun, "rev-list", "--count", "main").strip() == "2"


def test_publications_that_a_run_before_a_crash_committed_are_not_committed_again(begun: Path) -> None:
    first = committed(begun, [checkpoint(2), checkpoint(3)])
    again = committed(begun, [checkpoint(2), checkpoint(3), checkpoint(4)], look_back=True)
    assert again[:2] == first
    assert git(begun, "rev-list", "--count", "main").strip() == "4"


def test_a_kill_at_any_point_loses_nothing_and_doubles_nothing(tmp_path: Path) -> None:
    def work(vault: Path) -> None:
        commit(vault, [checkpoint(1), checkpoint(2)], whole_history=True, look_back=True)
        commit(vault, [checkpoint(3)], whole_history=False, look_back=True)

    points: list[str] = []
    (tmp_path / "dry").mkdir()
    with installed(points.append):
        work(tmp_path / "dry")
    hits = {(name, hit) for name in set(points) for hit in {1, points.count(name)}}
    assert len(hits) > 25
    for number, (name, hit) in enumerate(sorted(hits)):
        vault = tmp_path / str(number)
        vault.mkdir()
        child = os.fork()
        if child == 0:
            remaining = hit

            def kill(passed: str, name: str = name) -> None:
                nonlocal remaining
                remaining -= passed == name
                if not remaining:
                    os.kill(os.getpid(), signal.SIGKILL)

            try:
                with installed(kill):
                    work(vault)
            finally:
                os._exit(1)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == -signal.SIGKILL, (name, hit)
        committed(vault, [checkpoint(1), checkpoint(2), checkpoint(3)], whole_history=True, look_back=True)
        assert git(vault, "log", "--reverse", "--format=%at", "main").split() == [str(AT + n) for n in (1, 2, 3)]
        assert git(vault, "for-each-ref", "--format=%(refname)").split() == ["refs/heads/main"], (name, hit)
        assert not [path for path in vault.iterdir() if path.name.startswith(".git.damaged")], (name, hit)


def test_a_stream_that_is_cut_off_commits_nothing(begun: Path) -> None:
    from storage.git._stream import encode

    tip = git(begun, "rev-parse", "main").strip()
    stream = encode([checkpoint(2), checkpoint(3)], tip)
    with look(begun) as state:
        assert isinstance(state, Ready)
        opened = Opened(begun, state.git, timeout=60.0)
        for length in (len(stream) // 2, len(stream) - 5):
            assert not opened.run(["fast-import", "--quiet", "--force"], at="git.import", stdin=stream[:length]).ok
    assert git(begun, "for-each-ref", "--format=%(refname)").split() == ["refs/heads/main"]


def test_a_git_that_does_not_end_is_stopped_with_its_whole_group(
    begun: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin/git").write_text(f"#!/bin/sh\nsleep 1000 &\necho $! > '{tmp_path}/pid'\nwait\n")
    (tmp_path / "bin/git").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}/bin:{os.environ['PATH']}")
    began = time.monotonic()
    outcome = commit(begun, [checkpoint(2)], whole_history=False, look_back=False, timeout=0.5)
    assert isinstance(outcome, Waiting)
    assert outcome.reason == "storage"
    assert time.monotonic() - began < 10
    status = Path(f"/proc/{(tmp_path / 'pid').read_text().strip()}/stat")
    assert not status.exists() or status.read_text().rpartition(")")[2].split()[0] == "Z"


def test_a_run_is_bounded_by_bytes_and_gives_back_what_it_did(begun: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    half = 50_000
    monkeypatch.setattr(module, "RUN_MAX_BYTES", 2 * half)
    given = [checkpoint(number, (f"private/{number}.md", bytes([number]) * half)) for number in (2, 3, 4)]
    outcome = commit(begun, given, whole_history=False, look_back=False)
    assert isinstance(outcome, Committed)
    assert list(outcome.commits) == [item.publication_id for item in given[:2]]
    committed(begun, given[2:])


def test_more_publications_than_a_pipe_holds_answers_for_are_committed_in_one_run(vault: Path) -> None:
    history = [checkpoint(number, ("private/same.md", b"%d" % number)) for number in range(1, 2_001)]
    assert len(committed(vault, history, whole_history=True)) == 2_000
    assert git(vault, "rev-list", "--count", "main").strip() == "2000"


def test_two_processes_are_started_for_a_checkpoint_whatever_the_size_of_the_vault(vault: Path) -> None:
    committed(vault, [checkpoint(number) for number in range(1, 301)], whole_history=True)
    points: list[str] = []
    with installed(points.append):
        committed(vault, [checkpoint(301)])
    assert [name for name in points if name in ("git.refs", "git.log", "git.import", "git.update")] == [
        "git.import",
        "git.update",
    ]


def test_a_persons_git_at_work_and_ours_do_not_disturb_each_other(begun: Path) -> None:
    stop = threading.Event()
    failures: list[str] = []

    def person() -> None:
        number = 0
        while not stop.wait(0.05):  # as fast as anybody's script, and still leaving us a moment to build on their tip
            number += 1
            result = subprocess.run(
                # Their Git would tidy up in the background after the loop, and the check below would meet it half-way.
                ["git", "-c", "gc.auto=0", "-c", "maintenance.auto=false",
                 "commit", "-q", "--allow-empty", "-m", f"mine {number}"],
                cwd=begun, env={**os.environ, **PERSON}, capture_output=True, text=True, check=False,
            )  # fmt: skip
            if result.returncode and "cannot lock ref" not in result.stderr:
                failures.append(result.stderr)

    git(begun, "read-tree", "main")
    thread = threading.Thread(target=person)
    thread.start()
    done: list[str] = []
    try:
        for number in range(2, 102):
            if len(done) == 10:
                break
            outcome = commit(begun, [checkpoint(number)], whole_history=False, look_back=False)
            if isinstance(outcome, Committed):
                done += outcome.commits.values()
            else:
                assert isinstance(outcome, Waiting)
                assert outcome.reason in ("moved", "locked")
    finally:
        stop.set()
        thread.join()
    assert failures == []
    assert done
    assert set(done) <= set(git(begun, "rev-list", "main").split())
    assert git(begun, "fsck", "--strict", "--no-dangling") == ""


def test_every_point_that_a_checkpoint_passes_is_declared(vault: Path) -> None:
    passed: set[str] = set()
    with installed(passed.add):
        committed(vault, [checkpoint(1)], whole_history=True)
        git(vault, "pack-refs", "--all")
        committed(vault, [checkpoint(1)], look_back=True)
        lose_objects(vault / ".git")
        commit(vault, [checkpoint(2)], whole_history=False, look_back=False)
        committed(vault, [checkpoint(1)], whole_history=True)
        lose_every_object(vault / ".git")
        commit(vault, [checkpoint(2)], whole_history=False, look_back=False)
    assert {name.removesuffix(".after") for name in passed} == {name for name, _ in FAULT_POINTS}


# --- what Git says reaches agents ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("said", "told"),
    [
        ("fatal: Unable to create '{vault}/.git/refs/heads/main.lock': File exists.",
         "fatal: Unable to create '.git/refs/heads/main.lock': File exists."),
        ("fatal: cannot chdir to {vault}: gone", "fatal: cannot chdir to the vault: gone"),
        ("error: object file {vault}/.git/objects/ab/cd is empty", "error: object file .git/objects/ab/cd is empty"),
        ("fatal: not a git repository: '/home/Ana Maria/private notes/.git'", "fatal: not a git repository: '.git'"),
        ("warning: unable to access '~/.config/git/attributes': Permission denied",
         "warning: unable to access 'attributes': Permission denied"),
        ("error: /mnt/disk 2/alternates: none", "error: disk 2/alternates: none"),
        ("error: cannot open /srv/a/b.pack (/var/tmp/x)", "error: cannot open b.pack (x)"),
        ("fatal: bad object refs/heads/main", "fatal: bad object refs/heads/main"),
        ("either this or that; see https://git.invalid/docs", "either this or that; see https://git.invalid/docs"),
    ],
)  # fmt: skip
def test_what_git_says_is_told_without_where_on_the_machine_anything_lies(vault: Path, said: str, told: str) -> None:
    assert without_places(said.format(vault=vault), vault) == told


def test_a_vault_behind_a_link_is_not_told_by_either_of_its_paths(vault: Path) -> None:
    link = vault.parent / "link"
    link.symlink_to(vault)
    for place in (vault, link):
        assert without_places(f"fatal: '{place}/.git/HEAD'", link) == "fatal: '.git/HEAD'"


@pytest.mark.parametrize("why", ["lock", "damage"])
def test_no_answer_of_the_local_history_names_a_path_of_the_machine(begun: Path, why: str) -> None:
    if why == "lock":
        (begun / ".git/refs/heads/main.lock").touch()
        outcome = commit(begun, [checkpoint(98, ("private/y.md", b"y"))], whole_history=False, look_back=False)
    else:
        lose_every_object(begun / ".git")
        outcome = commit(
            begun, [checkpoint(98, ("private/y.md", b"y"))], whole_history=False, look_back=False, suspect=True
        )
    assert isinstance(outcome, Waiting | Rebuild)
    assert "lock" in outcome.message or "damaged" in outcome.message
    assert str(begun.parent) not in outcome.message


def test_a_repository_that_cannot_be_looked_at_is_not_called_damaged(
    begun: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Damage is set aside: without Git on the machine a whole history would be."""
    assert repository_state(begun) == ("sound", "")
    monkeypatch.setenv("PATH", "/nowhere")
    state, why = repository_state(begun)
    assert (state, "not installed" in why) == ("occupied", True)

    def refuse(point: str) -> None:
        if point == "git.check":
            raise OSError(24, "Too many open files")

    monkeypatch.undo()
    with installed(refuse):
        assert repository_state(begun)[0] == "occupied"

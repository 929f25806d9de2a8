"""What an intent becomes: one step a path, as the file system compares paths."""

from __future__ import annotations

import unicodedata
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path

import pytest

from messages.vocabulary import PRIVATE, Partition
from storage import files
from storage.publication import FileChange
from storage.publication.plan import plan
from storage.publication.store import staging_folder
from storage.state.journal import digest
from storage.vault.replace import Capabilities, folded, is_staged, probe
from tests.storage.publication.world import World, intent, request, staged

FOLDING = Capabilities(folds_case=True)
ONE, TWO = digest(b"one\n"), digest(b"two\n")


def steps(*changes: FileChange, can: Capabilities = FOLDING) -> list[tuple[str, str | None, str | None]]:
    return [(s.path, s.before, s.after) for s in plan(PRIVATE, changes, can).steps]


def test_paths_are_compared_as_the_file_system_does() -> None:
    composed, decomposed = unicodedata.normalize("NFC", "Été.md"), unicodedata.normalize("NFD", "été.md")
    assert folded(FOLDING, composed) == folded(FOLDING, decomposed)
    assert folded(Capabilities(), composed) != folded(Capabilities(), decomposed)


@pytest.mark.parametrize("order", [0, 1])
def test_a_rename_that_changes_only_case_changes_the_text_under_the_old_name(order: int) -> None:
    changes = [FileChange("People/Ann.md", ONE, None, "a"), FileChange("people/ann.md", None, b"two\n", "a", 2)]
    if order:
        changes.reverse()
    assert steps(*changes) == [("private/People/Ann.md", ONE, TWO)]
    made = plan(PRIVATE, changes, FOLDING)
    assert [(r.record_id, r.hash, r.before) for r in made.records] == [("a", TWO, ONE)]


def test_where_case_counts_the_same_rename_is_two_steps() -> None:
    found = steps(
        FileChange("People/Ann.md", ONE, None, "a"),
        FileChange("people/ann.md", None, b"two\n", "a", 2),
        can=Capabilities(),
    )
    assert found == [("private/People/Ann.md", ONE, None), ("private/people/ann.md", None, TWO)]


def test_two_files_that_are_one_here_are_never_both_written() -> None:
    with pytest.raises(ValueError):
        steps(FileChange("a.md", None, b"one\n"), FileChange("A.md", None, b"two\n"))


def test_two_first_texts_for_one_path_are_a_defect() -> None:
    with pytest.raises(ValueError):
        steps(FileChange("a.md", ONE, b"two\n"), FileChange("a.md", digest(b"other"), b"three\n"))


def test_a_change_to_the_same_text_touches_no_file_but_is_history() -> None:
    made = plan(PRIVATE, [FileChange("a.md", ONE, b"one\n", "a", 5)], Capabilities())
    assert made.steps == ()
    assert [(r.record_id, r.revision, r.hash) for r in made.records] == [("a", 5, ONE)]


@pytest.mark.parametrize(
    ("path", "folder"),
    [
        ("private/a.md", "private"),
        ("private/claims/2026/09/ab/x.md", "private/claims/2026/09/ab"),
        ("private/artifacts/r/excerpt.txt", "private/artifacts"),
        ("private/notes/artifacts/x.md", "private/notes/artifacts"),
        ("conversations/s/a.md", "conversations/s"),
        ("conversations/s/artifacts/r/excerpt.txt", "conversations/s/artifacts"),
    ],
)
def test_a_text_is_staged_in_its_own_folder_and_evidence_one_level_up(path: str, folder: str) -> None:
    assert staging_folder(path) == folder


def test_the_probe_tells_what_this_file_system_can_do_and_leaves_nothing(tmp_path: Path) -> None:
    (tmp_path / ".kr-probe-b").write_text("left by an interrupted probe")
    root = files.open_root(tmp_path, at="test")
    found = probe(root)
    files.close(root)
    assert found.noreplace
    assert found.folds_case == (tmp_path / "A").exists()
    assert list(tmp_path.iterdir()) == []
    assert is_staged(".kr-probe-a")
    assert not is_staged("a.kr-b.md")


@pytest.mark.parametrize("noreplace", [True, False])
def test_without_exchange_every_kind_of_change_still_works(new_store: Callable[[], Path], noreplace: bool) -> None:
    world = World(new_store(), can=Capabilities(exchange=False, noreplace=noreplace))
    world.open()
    world.publish({"a.md": "one\n", "b.md": "one\n"}, number=1)
    world.publish({"a.md": "two\n", "b.md": None, "c.md": "three\n"}, number=2)
    assert [world.read(name) for name in ("a.md", "b.md", "c.md")] == ["two\n", None, "three\n"]
    world.sync()
    assert staged(world.vault) == []
    assert (world.vault / "private" / "a.md").stat().st_nlink == 1
    world.close()


def test_a_partition_of_a_conversation_has_its_own_folder(new_store: Callable[[], Path]) -> None:
    world = World(new_store())
    world.open()
    session = Partition("33333333-3333-4333-8333-333333333333")
    wanted = intent(request(1), FileChange("a.md", None, b"one\n"))
    object.__setattr__(wanted, "partition", session)
    assert world.store.publish(wanted, fence=nullcontext(), check=lambda: None).state == "published"
    assert (world.vault / session.key / "a.md").read_bytes() == b"one\n"
    world.close()

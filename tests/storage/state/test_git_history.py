"""The Git jobs of the whole history (decisions.md section 4: rebuilt from history)."""

from __future__ import annotations

from storage.state.git_history import jobs_from_history
from storage.state.git_queue import GitJob
from storage.state.journal import digest
from tests.kit.store import Desk


def tree(jobs: list[GitJob]) -> dict[str, str]:
    """What a repository holds after these commits."""
    files: dict[str, str] = {}
    for job in jobs:
        for change in job.changes:
            if change.hash is None:
                files.pop(change.path, None)
            else:
                files[change.path] = change.hash
    return files


def held(desk: Desk) -> dict[str, str]:
    """What the vault's notes hold."""
    root = desk.layout.vault
    return {str(path.relative_to(root)): digest(path.read_bytes()) for path in root.rglob("*.md")}


def rebuilt(desk: Desk) -> dict[str, str]:
    desk.partition()
    return tree(jobs_from_history(desk.session.publisher.db, 0, 1_000))


def test_a_rebuilt_history_ends_with_exactly_the_files_that_there_are(desk: Desk) -> None:
    ids = [str(desk.page(f"Page {number}", body=f"text {number}\n")["id"]) for number in range(4)]
    assert rebuilt(desk) == held(desk)
    moved = desk.path_of(ids[0])
    moved.rename(moved.with_name("renamed.md"))
    assert rebuilt(desk) == held(desk)
    edited = moved.with_name("renamed.md")
    edited.write_bytes(edited.read_bytes() + b"more\n")
    edited.rename(edited.with_name("edited-and-renamed.md"))
    assert rebuilt(desk) == held(desk)
    first, second = desk.path_of(ids[1]), desk.path_of(ids[2])
    aside = first.with_name("aside.txt")
    first.rename(aside)
    second.rename(first)
    aside.rename(second)
    assert rebuilt(desk) == held(desk), "two records that changed places"
    (first.parent / "copy.md").write_bytes(first.read_bytes() + b"copied\n")
    assert rebuilt(desk) == held(desk), "a second file with the same id"
    first.rename(first.with_name("third-place.md"))
    assert rebuilt(desk) == held(desk)
    folder = first.parent
    folder.rename(folder.with_name("another"))
    assert rebuilt(desk) == held(desk)
    desk.path_of(ids[3]).unlink()
    assert rebuilt(desk) == held(desk)

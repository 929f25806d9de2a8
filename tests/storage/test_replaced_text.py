"""A person's file is replaced as a whole, and nothing that somebody wrote meanwhile is lost."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from messages.errors import StorageError
from storage import faults, files
from storage.replaced_text import EditedMeanwhile, read_text, replace_text, tidy

LIMIT = 1_000


@pytest.fixture(params=["exchange", "no exchange"])
def path(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A place for the file, on a file system that can exchange two names and on one that cannot."""
    if request.param == "no exchange":

        def unable(*_: object, **__: object) -> None:
            raise OSError(errno.EINVAL, os.strerror(errno.EINVAL))

        monkeypatch.setattr(files, "exchange", unable)
        monkeypatch.setattr(files, "move", unable)
    return tmp_path / "x.yaml"


def test_a_file_is_replaced_with_its_mode_and_one_that_is_not_there_is_made_private(path: Path) -> None:
    assert read_text(path, limit=LIMIT) is None
    replace_text(path, None, b"one", limit=LIMIT)
    assert path.stat().st_mode & 0o777 == 0o600
    path.chmod(0o644)
    replace_text(path, b"one", b"two", limit=LIMIT)
    assert (read_text(path, limit=LIMIT), path.stat().st_mode & 0o777) == (b"two", 0o644)
    assert path.stat().st_nlink == 1


@pytest.mark.parametrize(("before", "there"), [(b"one", b"other"), (None, b"other"), (b"one", None)])
def test_a_file_that_is_not_what_the_change_was_made_from_stays_as_it_is(
    path: Path, before: bytes | None, there: bytes | None
) -> None:
    if there is not None:
        path.write_bytes(there)
    with pytest.raises(EditedMeanwhile):
        replace_text(path, before, b"two", limit=LIMIT)
    assert read_text(path, limit=LIMIT) == there
    assert [entry.name for entry in path.parent.iterdir()] == ([] if there is None else ["x.yaml"])


def test_an_edit_at_the_very_moment_is_put_back(path: Path) -> None:
    path.write_bytes(b"one")

    def edit(point: str) -> None:
        if point == "text.sync":
            path.write_bytes(b"theirs")

    with faults.installed(edit), pytest.raises(EditedMeanwhile):
        replace_text(path, b"one", b"two", limit=LIMIT)
    assert path.read_bytes() == b"theirs"
    assert [entry.name for entry in path.parent.iterdir()] == ["x.yaml"]


@pytest.mark.parametrize("kind", ["hard link", "folder", "too large"])
def test_what_is_no_plain_file_of_its_own_is_refused(path: Path, kind: str) -> None:
    if kind == "folder":
        path.mkdir()
    else:
        path.write_bytes(b"x" * (LIMIT + 1 if kind == "too large" else 1))
    if kind == "hard link":
        path.with_name("other").hardlink_to(path)
    with pytest.raises(StorageError):
        read_text(path, limit=LIMIT)


def test_what_a_crash_left_is_removed_only_where_it_is_known(path: Path) -> None:
    left = path.parent / ".x.yaml.kr-new"
    tidy(path, limit=LIMIT, is_known=lambda _: True)
    left.write_bytes(b"theirs")
    tidy(path, limit=LIMIT, is_known=lambda found: found == b"ours")
    with pytest.raises(StorageError):
        replace_text(path, None, b"two", limit=LIMIT)
    assert left.read_bytes() == b"theirs"
    tidy(path, limit=LIMIT, is_known=lambda found: found == b"theirs")
    replace_text(path, None, b"two", limit=LIMIT)
    assert not left.exists()

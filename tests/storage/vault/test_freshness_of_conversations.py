"""A conversation hears of changes through the private partition's watch, and is right whatever becomes of that."""

from __future__ import annotations

import os
import random
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from messages.vocabulary import PRIVATE, Partition
from storage.faults import installed
from storage.vault import freshness
from tests.storage.vault.test_freshness import SESSION, Known

OTHER = Partition("44444444-4444-4444-8444-444444444444")

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="needs Linux: inotify is Linux's")


@pytest.fixture
def private(tmp_path: Path) -> Iterator[Known]:
    vault = tmp_path / "vault"
    (vault / "private/people").mkdir(parents=True)
    (vault / "vault.json").write_text("{}")
    (vault / "private/note.md").write_text("note")
    for session in (SESSION, OTHER):
        (vault / session.key / "claims").mkdir(parents=True)
        (vault / session.key / "claims/said.md").write_text("said")
    known = Known(vault)
    yield known
    known.watch.close()


def guest(private: Known, session: Partition = SESSION) -> Known:
    return Known(private.vault, session, host=private.watch)


def watches() -> int:
    """How many watches this process has."""
    found = 0
    for name in os.listdir("/proc/self/fd"):
        try:
            if os.readlink(f"/proc/self/fd/{name}") == "anon_inode:inotify":
                lines = Path(f"/proc/self/fdinfo/{name}").read_text().splitlines()
                found += sum(line.startswith("inotify wd:") for line in lines)
        except OSError:
            continue
    return found


def test_a_conversation_that_nobody_touched_is_not_listed_again(private: Known) -> None:
    heard = guest(private)
    passed: list[str] = []
    with installed(passed.append):
        assert heard.refresh() == set()
    assert not [name for name in passed if name.startswith("scan.")]
    assert heard.watch.state == "watching"


def test_a_change_in_a_conversation_is_seen_by_its_next_drain_and_by_no_other_partition(private: Known) -> None:
    heard, other = guest(private), guest(private, OTHER)
    scans = heard.scans
    (heard.root / "claims/said.md").write_text("said otherwise")
    (heard.root / "claims/new").mkdir()
    (heard.root / "claims/new/more.md").write_text("more")
    assert private.refresh() == set()
    assert other.refresh() == set()
    assert heard.refresh() == {"claims/said.md", "claims/new/more.md"}
    (heard.root / "claims/said.md").unlink()
    assert heard.refresh() == {"claims/said.md"}
    assert heard.scans == scans
    heard.assert_exact()
    other.assert_exact()


def test_a_change_in_the_private_partition_that_a_conversation_drained_is_kept_for_it(private: Known) -> None:
    heard = guest(private)
    (private.root / "note.md").write_text("changed")
    assert heard.refresh() == set()
    assert private.watch.waiting
    assert private.refresh() == {"note.md"}


@pytest.mark.parametrize("there_first", [True, False], ids=["with a folder", "before it has a folder"])
def test_another_folder_in_a_conversation_s_place_is_scanned(private: Known, there_first: bool) -> None:
    root = private.vault / SESSION.key
    if not there_first:
        shutil.rmtree(root)
    heard = guest(private)
    assert bool(heard.files) == there_first
    shutil.rmtree(root, ignore_errors=True)
    root.mkdir(parents=True)
    (root / "another.md").write_text("another")
    heard.refresh()
    assert heard.files.keys() == {"another.md"}
    (root / "another.md").write_text("changed")
    assert heard.refresh() == {"another.md"}
    shutil.rmtree(root)
    heard.refresh()
    assert heard.files == {}


def test_a_folder_that_moves_between_partitions_is_right_in_both_whoever_drains_first(private: Known) -> None:
    heard = guest(private)
    for number, first in enumerate((private, heard) * 4):
        second = heard if first is private else private
        source, target = (private, heard) if number % 4 < 2 else (heard, private)
        (source.root / "moving").mkdir(exist_ok=True)
        (source.root / "moving/x.md").write_text(str(number))
        first.refresh()
        (source.root / "moving").rename(target.root / f"moved{number}")
        first.refresh()
        (target.root / f"moved{number}/x.md").write_text(f"{number} changed")
        second.refresh()
        first.refresh()
        private.assert_exact()
        heard.assert_exact()
    assert (private.watch.state, heard.watch.state) == ("watching", "watching")


def test_random_edits_in_three_partitions_are_each_seen_by_the_next_drain(private: Known) -> None:
    chance = random.Random(7)
    partitions = [private, guest(private), guest(private, OTHER)]
    scans = [known.scans for known in partitions]
    for step in range(400):
        known = chance.choice(partitions)
        folder = known.root / chance.choice(("a", "a/b", "c"))
        match chance.randrange(5):
            case 0 | 1:
                folder.mkdir(parents=True, exist_ok=True)
                (folder / f"{chance.randrange(4)}.md").write_text(str(step))
            case 2 if folder.is_dir():
                shutil.rmtree(folder)
            case 3 if folder.is_dir() and not (other := chance.choice(partitions).root / "moved").exists():
                folder.rename(other)
            case 4 if (known.root / "moved").is_dir():
                (known.root / "moved").rename(known.root / f"kept{step}")
        if chance.random() < 0.6:
            looked = chance.choice(partitions)
            looked.refresh()
            looked.assert_exact()
    for known in partitions:
        known.refresh()
        known.assert_exact()
        assert known.watch.state == "watching"
    assert all(known.scans - before < 100 for known, before in zip(partitions, scans, strict=True))


def test_lost_events_make_every_partition_scan(private: Known) -> None:
    from storage.vault import _inotify

    heard = guest(private)
    private.watch._handle(_inotify.Event(-1, _inotify.OVERFLOW, b""))
    heard.watch._overhear(_inotify.Event(-1, _inotify.OVERFLOW, b""))
    assert private.watch.drain().rescan
    assert heard.watch.drain().rescan


def test_a_conversation_scans_once_the_private_watch_is_given_up(private: Known) -> None:
    heard = guest(private)
    private.watch._give_up("deaf")
    assert (heard.watch.state, heard.watch.reason) == ("unavailable", "deaf")
    for text in ("changed", "changed again"):
        (heard.root / "claims/said.md").write_text(text)
        assert heard.refresh() == {"claims/said.md"}
    heard.watch.close()


def test_a_deaf_conversation_is_found_by_its_own_test_and_leaves_the_others_theirs(private: Known) -> None:
    heard, other = guest(private), guest(private, OTHER)
    assert heard.watch.self_test()
    watched = heard.watch._watched
    assert watched is not None
    heard.watch._watched = None  # it hears nothing from here on
    assert not heard.watch.self_test()
    assert heard.watch.state == "unavailable"
    assert other.watch.self_test()
    assert private.watch.self_test()


def test_closing_a_conversation_takes_its_watches_off_and_leaves_the_others(private: Known) -> None:
    before = watches()
    heard = guest(private)
    assert watches() == before + 2
    heard.watch.close()
    heard.watch.close()
    assert watches() == before
    (private.root / "note.md").write_text("still heard")
    assert private.refresh() == {"note.md"}


def test_closing_the_private_watch_first_leaves_nothing_and_conversations_right(private: Known) -> None:
    heard = guest(private)
    before = watches()  # also of whatever else this process still holds
    private.watch.close()
    assert watches() < before
    (heard.root / "claims/said.md").write_text("changed")
    assert heard.refresh() == {"claims/said.md"}
    heard.watch.close()


def test_conversations_with_more_folders_than_may_be_watched_are_scanned(
    private: Known, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(freshness, "GUEST_FOLDERS_MAX", 3)
    heard, other = guest(private), guest(private, OTHER)
    assert (heard.watch.state, other.watch.state) == ("watching", "unavailable")
    assert "too many folders" in (other.watch.reason or "")
    for known in (heard, other):
        (known.root / "claims/said.md").write_text("changed")
        assert known.refresh() == {"claims/said.md"}
    assert private.watch.state == "watching"


def test_a_conversation_on_another_file_system_is_scanned(private: Known, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("storage.vault._place.Place.on_one_device", lambda self: False)
    heard = guest(private)
    assert heard.watch.state == "unavailable"
    (heard.root / "claims/said.md").write_text("changed")
    assert heard.refresh() == {"claims/said.md"}


def test_a_conversation_has_no_descriptor_to_wait_for(private: Known) -> None:
    assert guest(private).watch.fileno() is None
    assert private.watch.partition == PRIVATE

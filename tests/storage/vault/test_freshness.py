"""Whether every change is seen by the next drain (PERFORMANCE.md, Freshness; DESIGN.md rule 10)."""

from __future__ import annotations

import mmap
import os
import random
import select
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from messages.errors import ScanIncomplete, StoreUnavailable
from messages.vocabulary import PRIVATE, Partition
from storage import files
from storage.faults import installed
from storage.files import Stamp
from storage.vault import Changes, ScanLimits, Watch, freshness, open_watch
from storage.vault.scan import DEFAULT_LIMITS
from storage.vault.scan import FAULT_POINTS as SCAN_POINTS
from tests.kit.moments import at_point

SESSION = Partition("33333333-3333-4333-8333-333333333333")

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="needs Linux: inotify is Linux's")


class Known:
    """A caller's idea of the partition, kept up to date as the module's docstring says."""

    def __init__(
        self,
        vault: Path,
        partition: Partition = PRIVATE,
        limits: ScanLimits = DEFAULT_LIMITS,
        host: Watch | None = None,
    ) -> None:
        self.vault = vault
        self.root = vault / partition.key
        self.watch = open_watch(vault, partition, limits=limits, host=host)
        self.files: dict[str, Stamp] = {}
        self.scans = 0
        self.refresh()

    def refresh(self) -> set[str]:
        """Bring ``files`` up to date; the paths whose stamp differs from before."""
        changes = self.watch.drain()
        before = dict(self.files)
        assert not changes.replaced
        if changes.rescan:
            self.scans += 1
            self.files = self.watch.scan().files
        else:
            for path, stamp in self.watch.observe(changes, self.below).items():
                if stamp is None:
                    self.files.pop(path, None)
                else:
                    self.files[path] = stamp
        return {path for path in before.keys() | self.files.keys() if before.get(path) != self.files.get(path)}

    def below(self, folder: str) -> list[str]:
        return [path for path in self.files if not folder or path.startswith(f"{folder}/")]

    def assert_exact(self) -> None:
        """What is known equals a scan from nothing, findings included."""
        fresh = open_watch(self.vault, self.watch.partition, limits=self.watch._limits, events=False)
        try:
            result = fresh.scan()
        finally:
            fresh.close()
        assert self.files == result.files
        assert {(found.path, found.code) for found in self.watch.findings} == {
            (found.path, found.code) for found in result.findings
        }


@pytest.fixture
def vault(tmp_path: Path) -> Path:
    path = tmp_path / "vault"
    (path / "private/people").mkdir(parents=True)
    (path / "vault.json").write_text("{}")
    (path / "private/people/ada.md").write_text("Ada")
    (path / "private/note.md").write_text("note")
    return path


@pytest.fixture
def known(vault: Path) -> Iterator[Known]:
    known = Known(vault)
    assert known.watch.state == "watching", known.watch.reason
    yield known
    known.watch.close()


def save_in_place(root: Path) -> set[str]:
    with (root / "note.md").open("a") as file:
        file.write("more")
    return {"note.md"}


def save_by_rename(root: Path) -> set[str]:
    (root / ".note.md.tmp").write_text("new")
    (root / ".note.md.tmp").rename(root / "note.md")
    return {"note.md"}


def save_with_a_backup(root: Path) -> set[str]:
    (root / "note.md").rename(root / "note.md~")
    (root / "note.md").write_text("new")
    (root / "note.md~").unlink()
    return {"note.md"}


def same_size_with_restored_mtime(root: Path) -> set[str]:
    status = (root / "note.md").stat()
    (root / "note.md").write_text("NOTE")
    os.utime(root / "note.md", ns=(status.st_atime_ns, status.st_mtime_ns))
    return {"note.md"}


def write_through_a_mapping(root: Path) -> set[str]:
    with (root / "note.md").open("r+b") as file, mmap.mmap(file.fileno(), 4) as mapping:
        mapping[:4] = b"NOTE"
    return {"note.md"}


def truncate(root: Path) -> set[str]:
    os.truncate(root / "note.md", 1)
    return {"note.md"}


def create(root: Path) -> set[str]:
    (root / "new.md").write_text("new")
    return {"new.md"}


def delete(root: Path) -> set[str]:
    (root / "note.md").unlink()
    return {"note.md"}


def rename(root: Path) -> set[str]:
    (root / "note.md").rename(root / "people/renamed.md")
    return {"note.md", "people/renamed.md"}


def move_out(root: Path) -> set[str]:
    (root / "note.md").rename(root.parent / "gone.md")
    return {"note.md"}


def move_in(root: Path) -> set[str]:
    (root.parent / "in.md").write_text("in")
    (root.parent / "in.md").rename(root / "in.md")
    return {"in.md"}


def new_folders(root: Path) -> set[str]:
    (root / "a/b/c").mkdir(parents=True)
    (root / "a/b/c/deep.md").write_text("deep")
    (root / "a/shallow.md").write_text("shallow")
    return {"a/b/c/deep.md", "a/shallow.md"}


def move_a_folder(root: Path) -> set[str]:
    (root / "people").rename(root / "persons")
    return {"people/ada.md", "persons/ada.md"}


def move_a_folder_out(root: Path) -> set[str]:
    (root / "people").rename(root.parent / "people")
    return {"people/ada.md"}


def remove_a_folder(root: Path) -> set[str]:
    (root / "people/ada.md").unlink()
    (root / "people").rmdir()
    return {"people/ada.md"}


def replace_a_folder(root: Path) -> set[str]:
    (root.parent / "other").mkdir()
    (root.parent / "other/bob.md").write_text("Bob")
    (root / "people").rename(root.parent / "old")
    (root.parent / "other").rename(root / "people")
    return {"people/ada.md", "people/bob.md"}


def move_a_folder_then_write_into_it(root: Path) -> set[str]:
    (root / "people").rename(root / "persons")
    (root / "persons/ada.md").write_text("changed")
    (root / "persons/new.md").write_text("new")
    (root / "persons").rename(root / "team")
    (root / "team/later.md").write_text("later")
    return {"people/ada.md", "team/ada.md", "team/new.md", "team/later.md"}


def give_it_a_second_name(root: Path) -> set[str]:
    os.link(root / "note.md", root / "people/second.md")
    return {"note.md"}


def replace_by_a_symbolic_link(root: Path) -> set[str]:
    (root / "note.md").unlink()
    (root / "note.md").symlink_to("people/ada.md")
    return {"note.md"}


def make_a_note_a_folder(root: Path) -> set[str]:
    (root / "note.md").unlink()
    (root / "note.md").mkdir()
    (root / "note.md/inside.md").write_text("x")
    return {"note.md"}


def edit_the_ontology(root: Path) -> set[str]:
    (root / "ontology.yaml").write_text("format: knowledge-ontology-v1\n")
    return {"ontology.yaml"}


def exchange(root: Path) -> set[str]:
    (root / ".kr-1.0.1").write_text("proposed")
    swap(root / ".kr-1.0.1", root / "note.md")
    return {"note.md"}


def swap(first: Path, second: Path) -> None:
    root = os.open("/", os.O_RDONLY)
    try:
        files.exchange(root, str(first), root, str(second), at="test")
    finally:
        os.close(root)


def exchange_two_folders(root: Path) -> set[str]:
    (root / "team").mkdir()
    (root / "team/bob.md").write_text("Bob")
    swap(root / "people", root / "team")
    (root / "people/later.md").write_text("heard in what was team")
    (root / "team/later.md").write_text("heard in what was people")
    return {"people/ada.md", "people/bob.md", "people/later.md", "team/ada.md", "team/later.md"}


def exchange_a_folder_and_a_note(root: Path) -> set[str]:
    swap(root / "people", root / "note.md")
    return {"people/ada.md", "note.md"}


KINDS = [
    save_in_place, save_by_rename, save_with_a_backup, same_size_with_restored_mtime, write_through_a_mapping, truncate,
    create, delete, rename, move_out, move_in, new_folders, move_a_folder, move_a_folder_out, remove_a_folder,
    replace_a_folder, move_a_folder_then_write_into_it, give_it_a_second_name, replace_by_a_symbolic_link,
    make_a_note_a_folder, edit_the_ontology, exchange, exchange_two_folders, exchange_a_folder_and_a_note,
]  # fmt: skip


@pytest.mark.parametrize("change", KINDS, ids=lambda change: change.__name__)
def test_the_next_drain_names_every_change_of_any_kind_without_a_scan(
    known: Known, change: Callable[[Path], set[str]]
) -> None:
    expected = change(known.root)
    assert known.refresh() == expected
    assert known.scans == 1
    known.assert_exact()
    assert known.refresh() == set()
    heard = {Path(folder, "heard.md") for folder, _, _ in os.walk(known.root) if not folder.endswith(".md")}
    for path in heard:
        path.write_text("every folder is still listened to")
    assert known.refresh() == {path.relative_to(known.root).as_posix() for path in heard}


def test_an_unchanged_partition_is_told_by_three_calls_whatever_its_size(tmp_path: Path) -> None:
    def points(notes: int) -> list[str]:
        vault = tmp_path / str(notes)
        (vault / "private").mkdir(parents=True)
        for number in range(notes):
            (vault / f"private/{number}.md").touch()
        known = Known(vault)
        passed: list[str] = []
        known.watch.drain()
        with installed(passed.append):
            assert not known.watch.drain()
        known.watch.close()
        return [name for name in passed if not name.endswith(".after")]

    assert points(3) == points(60) == ["watch.queued", "watch.identity", "watch.identity"]


def test_one_edit_costs_the_same_whatever_the_size_of_the_partition(tmp_path: Path) -> None:
    def points(notes: int) -> list[str]:
        vault = tmp_path / str(notes)
        (vault / "private/folder").mkdir(parents=True)
        for number in range(notes):
            (vault / f"private/folder/{number}.md").touch()
        known = Known(vault)
        (vault / "private/folder/1.md").write_text("edited")
        passed: list[str] = []
        with installed(passed.append):
            assert known.refresh() == {"folder/1.md"}
        known.watch.close()
        return passed

    assert points(3) == points(60)


def test_hundreds_of_edits_by_another_process_are_each_seen_by_the_drain_that_follows(known: Known) -> None:
    editor = subprocess.Popen(
        [sys.executable, "-uc",
         "import sys\nfor line in sys.stdin:\n    open(sys.argv[1], 'w').write(line)\n    print('saved')",
         str(known.root / "note.md")],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
    )  # fmt: skip
    assert editor.stdin is not None
    assert editor.stdout is not None
    with editor:
        for number in range(300):
            editor.stdin.write(f"{number}\n")
            editor.stdin.flush()
            assert editor.stdout.readline() == "saved\n"
            assert known.refresh() == {"note.md"}
        editor.stdin.close()
    assert known.scans == 1


@pytest.mark.parametrize("seed", [1, 2, *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(3, 40))])
def test_random_changes_are_followed_exactly(known: Known, seed: int) -> None:
    rng = random.Random(seed)
    names = ["a", "b", "c.md", "d.md", "e.md", "f.txt", ".h.md", "artifacts", "G.MD"]
    root = known.root

    def places() -> list[Path]:
        return sorted(Path(base) for base, _, _ in os.walk(root))

    def step() -> None:
        target = rng.choice(places()) / rng.choice(names)
        entries = sorted(Path(base, name) for base, below, names in os.walk(root) for name in below + names)
        victim = rng.choice(entries) if entries else target
        action = rng.randrange(9)
        try:
            if action < 3:
                target.write_text(str(rng.random()))
            elif action < 5:
                target.mkdir()
            elif action == 5:
                victim.rename(target)
            elif action == 6:
                victim.rmdir() if victim.is_dir() and not victim.is_symlink() else victim.unlink()
            elif action == 7:
                target.symlink_to(victim)
            else:
                swap(victim, rng.choice(entries))
        except OSError:
            pass

    def link() -> None:
        # A link made where nobody looks sends no event: the known limit, so it is made in the open and by itself.
        visible = [path for path in sorted(known.files) if "/" not in path]
        target = root / rng.choice(names[:6])
        if visible and not os.path.lexists(target):
            os.link(root / rng.choice(visible), target)

    for round_number in range(60):
        if round_number % 7 == 6:
            link()
        else:
            for _ in range(rng.randrange(1, 6)):
                step()
        known.refresh()
        try:
            known.assert_exact()
        except AssertionError as error:
            raise AssertionError(f"round {round_number}") from error
    assert known.scans == 1


def test_a_change_while_new_folders_are_entered_is_not_lost(known: Known) -> None:
    def write_while_entering(name: str) -> None:
        if name == "watch.add" and (known.root / "new").exists():
            (known.root / "new/before.md").write_text("before the watch")
        if name == "scan.list.after" and (known.root / "new").exists():
            (known.root / "new/sub").mkdir(exist_ok=True)
            (known.root / "new/sub/after.md").write_text("after the listing")

    (known.root / "new").mkdir()
    with installed(write_while_entering):
        known.refresh()
    known.refresh()
    known.assert_exact()
    assert {"new/before.md", "new/sub/after.md"} <= known.files.keys()
    assert known.scans == 1


def test_an_overflowing_queue_becomes_one_rescan_and_never_a_loss(known: Known) -> None:
    limit = int(Path("/proc/sys/fs/inotify/max_queued_events").read_text())
    (known.root / "leaves").mkdir()
    known.refresh()
    note = os.open(known.root / "note.md", os.O_RDWR)
    other = os.open(known.root / "people/ada.md", os.O_RDWR)
    for _ in range(limit // 2 + 10):  # alternating, since equal neighbours are merged
        os.pwrite(note, b"x", 0)
        os.pwrite(other, b"x", 0)
    os.close(note)
    os.close(other)
    (known.root / "unheard").mkdir()
    (known.root / "unheard/new.md").write_text("new")
    (known.root / "people").rename(known.root / "persons")
    (known.root / "leaves").rename(known.vault / "left")
    changes = known.watch.drain()
    assert changes.rescan
    assert changes.paths == frozenset()
    known.refresh()
    known.assert_exact()
    (known.root / "unheard/later.md").write_text("the unheard folder is watched now")
    (known.root / "persons/later.md").write_text("so is the renamed one, under its new name")
    assert known.refresh() == {"unheard/later.md", "persons/later.md"}
    (known.vault / "left/x.md").write_text("the folder that left unheard is no longer listened to")
    assert not known.watch.drain()


def test_a_busy_writer_cannot_hold_a_drain_up(known: Known) -> None:
    def keep_writing(name: str) -> None:
        if name == "watch.read.after":
            (known.root / "note.md").write_text("again")

    (known.root / "note.md").write_text("once")
    with installed(keep_writing):
        assert known.watch.drain().paths == {"note.md"}
    assert known.watch.drain().paths == {"note.md"}


def test_our_own_manifest_and_a_persons_edit_of_it_are_reported(known: Known, vault: Path) -> None:
    (vault / "vault.json").write_text('{"a": 1}')
    assert known.watch.drain().manifest
    assert not known.watch.drain()
    (vault / "new.json").write_text("{}")
    assert not known.watch.drain()
    (vault / "new.json").rename(vault / "vault.json")
    assert known.watch.drain().manifest


@pytest.mark.parametrize("folder", ["vault", "vault/private"])
def test_another_folder_in_the_place_of_the_vault_or_partition_is_never_answered_from(
    known: Known, vault: Path, folder: str
) -> None:
    path = vault.parent / folder
    path.rename(vault.parent / "aside")
    for _ in range(2):
        assert known.watch.drain().replaced
        with pytest.raises(StoreUnavailable):
            known.watch.scan()
    (vault / "private").mkdir(parents=True, exist_ok=True)
    assert known.watch.drain().replaced
    with pytest.raises(StoreUnavailable):
        known.watch.scan()
    again = Known(vault)
    assert again.files == {}
    again.watch.close()


def test_the_same_folder_put_back_in_place_is_scanned_again(known: Known, vault: Path) -> None:
    (vault / "private").rename(vault / "aside")
    assert known.watch.drain().replaced
    (vault / "aside/unheard.md").write_text("x")
    (vault / "aside").rename(vault / "private")
    changes = known.watch.drain()
    assert changes.rescan
    assert not changes.replaced
    known.refresh()
    known.assert_exact()


@pytest.mark.parametrize("missing", ["vault", "vault/private"])
def test_a_missing_vault_or_private_folder_is_unavailable_and_never_empty(vault: Path, missing: str) -> None:
    (vault.parent / missing).rename(vault.parent / "aside")
    with pytest.raises(StoreUnavailable):
        open_watch(vault, PRIVATE)


def test_a_vault_that_is_a_symbolic_link_is_refused(vault: Path) -> None:
    vault.rename(vault.parent / "real")
    vault.symlink_to("real")
    with pytest.raises(StoreUnavailable):
        open_watch(vault, PRIVATE)


def test_changes_that_were_not_applied_are_asked_for_again(known: Known) -> None:
    (known.root / "note.md").write_text("changed")
    known.watch.drain()
    known.watch.invalidate()
    assert known.watch.drain().rescan
    assert known.watch.drain().rescan
    assert known.refresh() == {"note.md"}
    assert not known.watch.drain()


def test_a_failed_observation_is_followed_by_a_scan(known: Known) -> None:
    (known.root / "people/ada.md").write_text("changed")
    changes = known.watch.drain()

    def fail(name: str) -> None:
        if name == "scan.look":
            raise PermissionError(13, "Permission denied")

    with installed(fail), pytest.raises(ScanIncomplete) as caught:
        known.watch.observe(changes, lambda folder: [])
    assert caught.value.fields["folder"] == "people"
    assert known.watch.drain().rescan
    assert known.refresh() == {"people/ada.md"}


def test_a_failed_scan_is_asked_for_until_one_succeeds(vault: Path) -> None:
    watch = open_watch(vault, PRIVATE, limits=ScanLimits(entries=2))
    for _ in range(2):
        assert watch.drain().rescan
        with pytest.raises(ScanIncomplete):
            watch.scan()
    (vault / "private/people/ada.md").unlink()
    assert watch.drain().rescan
    assert watch.scan().files.keys() == {"note.md"}
    assert not watch.drain()
    watch.close()


def test_a_new_folder_with_more_than_a_scan_may_hold_fails_the_scan_that_follows(vault: Path) -> None:
    known = Known(vault, limits=ScanLimits(entries=10))
    (known.root / "many").mkdir()
    for number in range(20):
        (known.root / f"many/{number}.md").touch()
    with pytest.raises(ScanIncomplete):
        known.refresh()
    known.watch.close()


def test_a_deaf_watch_is_found_by_the_self_test_and_becomes_scans(known: Known) -> None:
    assert known.watch.self_test()
    (known.root / "note.md").write_text("heard during the test")
    assert known.watch.self_test()
    assert known.refresh() == {"note.md"}
    fd = known.watch.fileno()
    assert fd is not None
    from storage.vault._inotify import Inotify  # only Linux has it

    other = Inotify()  # it watches nothing, and takes the place of the one that does
    os.dup2(other.fd, fd)
    other.close()
    (known.root / "note.md").write_text("unheard")
    assert not known.watch.self_test()
    assert known.watch.state == "unavailable"
    assert known.watch.fileno() is None
    assert "does not report changes" in (known.watch.reason or "")
    assert known.refresh() == {"note.md"}
    (known.root / "note.md").write_text("found by a scan")
    assert known.refresh() == {"note.md"}


def test_a_queue_that_overflows_during_the_self_test_is_proof_of_life_and_a_full_scan(known: Known) -> None:
    limit = int(Path("/proc/sys/fs/inotify/max_queued_events").read_text())
    note = os.open(known.root / "note.md", os.O_RDWR)
    other = os.open(known.root / "people/ada.md", os.O_RDWR)

    def flood() -> None:
        for _ in range(limit // 2 + 10):  # alternating, since equal neighbours are merged
            os.pwrite(note, b"x", 0)
            os.pwrite(other, b"x", 0)

    with at_point("watch.sentinel.open", flood):
        assert known.watch.self_test()
    os.close(note)
    os.close(other)
    assert known.watch.state == "watching"
    assert known.watch.waiting
    scans = known.scans
    assert known.refresh() >= {"note.md", "people/ada.md"}
    assert known.scans == scans + 1
    (known.root / "note.md").write_text("heard again")
    assert known.refresh() == {"note.md"}


def test_what_the_self_test_heard_is_waiting_until_it_is_drained(known: Known) -> None:
    waiting = [known.watch.waiting]
    assert known.watch.self_test()
    waiting.append(known.watch.waiting)
    (known.root / "note.md").write_text("heard during the test")
    assert known.watch.self_test()
    waiting.append(known.watch.waiting)
    assert known.refresh() == {"note.md"}
    waiting.append(known.watch.waiting)
    assert waiting == [False, False, True, False]


def test_watches_taken_off_behind_our_back_are_set_again_without_losing_a_change(known: Known) -> None:
    kernel = known.watch._kernel
    assert kernel is not None
    for number in range(1, 10):
        kernel.remove(number)
    (known.root / "note.md").write_text("unheard")
    (known.root / "people/ada.md").write_text("unheard too")
    (known.vault / "vault.json").write_text("{ }")
    changes = known.watch.drain()
    assert changes.rescan
    assert changes.manifest
    assert known.refresh() == {"note.md", "people/ada.md"}
    assert known.watch.state == "watching"
    (known.root / "people/ada.md").write_text("heard")
    (known.vault / "vault.json").write_text("{}")
    changes = known.watch.drain()
    assert changes == Changes(paths=frozenset({"people/ada.md"}), manifest=True)


def test_the_self_test_leaves_nothing_behind_and_survives_what_a_killed_one_left(known: Known) -> None:
    (known.root / ".kr-watch").touch()
    assert known.watch.self_test()
    assert not (known.root / ".kr-watch").exists()
    assert not known.watch.drain()


def test_a_self_test_on_a_disk_that_cannot_be_written_proves_nothing(known: Known) -> None:
    def read_only(name: str) -> None:
        if name == "watch.sentinel.open":
            raise OSError(30, "Read-only file system")

    with installed(read_only):
        assert known.watch.self_test()
    assert known.watch.state == "watching"


@pytest.mark.parametrize(
    ("point", "code", "words"),
    [
        ("watch.open", 24, "max_user_instances"),
        ("watch.add", 28, "max_user_watches"),
        ("watch.add", 12, "inotify failed"),
    ],
)
def test_a_limit_of_the_kernel_becomes_scans_that_are_right_and_a_reason(
    vault: Path, point: str, code: int, words: str
) -> None:
    def refuse(name: str) -> None:
        if name == point:
            raise OSError(code, os.strerror(code))

    with installed(refuse):
        known = Known(vault)
    assert known.watch.state == "unavailable"
    assert words in (known.watch.reason or "")
    (known.root / "note.md").write_text("changed")
    assert known.refresh() == {"note.md"}
    known.watch.close()


@pytest.mark.parametrize("point", ["watch.queued", "watch.read"])
def test_a_watch_that_fails_becomes_scans_without_losing_a_change(known: Known, point: str) -> None:
    def fail(name: str) -> None:
        if name == point:
            raise OSError(5, "Input/output error")

    (known.root / "note.md").write_text("changed")
    with installed(fail):
        assert known.refresh() == {"note.md"}
    assert known.watch.state == "unavailable"
    known.assert_exact()


def test_a_vault_whose_path_cannot_be_followed_is_never_answered_from(known: Known) -> None:
    def refuse(name: str) -> None:
        if name == "watch.identity":
            raise PermissionError(13, "Permission denied")

    with installed(refuse):
        assert known.watch.drain().replaced
        with pytest.raises(StoreUnavailable):
            known.watch.scan()
    assert known.watch.drain().rescan
    known.refresh()
    known.assert_exact()


def test_running_out_of_watches_later_becomes_scans_without_losing_a_change(known: Known) -> None:
    def refuse(name: str) -> None:
        if name == "watch.add":
            raise OSError(28, os.strerror(28))

    (known.root / "one/two").mkdir(parents=True)
    (known.root / "one/two/x.md").write_text("x")
    (known.root / "note.md").write_text("changed")
    with installed(refuse):
        assert known.refresh() == {"one/two/x.md", "note.md"}
    assert known.watch.state == "unavailable"
    known.assert_exact()


def test_a_file_system_that_others_change_unseen_is_scanned(vault: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(freshness, "remote_kind", lambda fd: "nfs")
    known = Known(vault)
    assert known.watch.state == "unavailable"
    assert "nfs" in (known.watch.reason or "")
    assert known.watch.drain().rescan
    known.watch.close()


def test_a_conversation_alone_is_scanned_even_before_it_has_a_folder(vault: Path) -> None:
    known = Known(vault, SESSION)
    assert known.watch.state == "unavailable"
    assert known.files == {}
    known.root.mkdir(parents=True)
    (known.root / "said.md").write_text("x")
    assert known.refresh() == {"said.md"}
    (known.root / "said.md").write_text("y")
    assert known.refresh() == {"said.md"}
    (known.root / "said.md").unlink()
    known.root.rmdir()
    assert known.refresh() == {"said.md"}
    known.watch.close()


def test_the_descriptor_is_readable_exactly_when_something_waits(known: Known) -> None:
    descriptor = known.watch.fileno()
    assert descriptor is not None
    assert not os.get_inheritable(descriptor)
    assert select.select([descriptor], [], [], 0)[0] == []
    (known.root / "note.md").write_text("changed")
    assert select.select([descriptor], [], [], 5)[0] == [descriptor]
    known.watch.drain()
    assert select.select([descriptor], [], [], 0)[0] == []


def test_closing_releases_every_descriptor_and_may_be_repeated(vault: Path) -> None:
    before = len(os.listdir("/proc/self/fd"))
    watch = open_watch(vault, PRIVATE)
    watch.scan()
    assert len(os.listdir("/proc/self/fd")) > before
    watch.close()
    watch.close()
    assert len(os.listdir("/proc/self/fd")) == before
    assert watch.drain().replaced


def test_every_point_that_freshness_passes_is_declared(vault: Path) -> None:
    passed: set[str] = set()
    with installed(passed.add):
        known = Known(vault)
        (known.root / "a/b").mkdir(parents=True)
        known.refresh()
        (known.root / "a").rename(known.root / "c")
        (known.root / "note.md").write_text("changed")
        known.refresh()
        known.watch.close()
    declared = {name for name, _ in (*freshness.FAULT_POINTS, *SCAN_POINTS)}
    assert {name.removesuffix(".after") for name in passed} == declared

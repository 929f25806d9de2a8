"""Erasing a conversation: nothing of it is left anywhere, nothing else is touched, and no crash stops half-way."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from messages.errors import NotFound, StorageError, StoreUnavailable
from messages.json_types import JsonObject
from messages.vocabulary import PRIVATE, Partition
from storage import erasure, repair, standing
from storage.conversation_erase import erase, look
from storage.erasure import NOTE_NAME
from storage.faults import installed
from storage.git import Checkpoint, Committed, commit
from storage.layout import Layout, StoreLayout
from storage.session import StoreSession
from storage.state import git_queue, history
from storage.vault import ScanLimits
from tests.actors.test_operators import listed
from tests.kit.hostile import nest
from tests.kit.store import GROUP_PARTITION, VAULT_ID, Desk, items_of, request_id

SECRET = b"Zebrafish"
OTHER = Partition("44444444-4444-4444-8444-444444444444")
LIMITS = ScanLimits()


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store in which a private partition and two conversations saved, edited, searched and committed."""
    layout = Layout(tmp_path_factory.mktemp("made")).new_store(VAULT_ID)
    layout.root.parent.mkdir(parents=True)
    StoreSession.create(layout, VAULT_ID)
    desk = Desk(layout)
    desk.remember("The owner likes oak.")
    desk.remember("Others like elm.", partition=OTHER)
    desk.remember("Shared words.", partition=GROUP_PARTITION, excerpt="Said to everybody.")
    desk.remember("Shared words.", partition=OTHER, excerpt="Said to everybody.")
    [item] = items_of(desk.remember(f"{SECRET.decode()} is red.", partition=GROUP_PARTITION))
    path = desk.path_of(str(item["id"]), GROUP_PARTITION)
    path.write_text(path.read_text().replace("red", "blue"))
    page: JsonObject = {"title": SECRET.decode(), "type": "project", "body": "About it."}
    desk.call("save_page", page, partition=GROUP_PARTITION)
    upload = {"filename": f"{SECRET.decode()}.txt", "mediaType": "text/plain", "attribution": SECRET.decode()}
    desk.call(
        "attach",
        {**upload, "offset": 0, "data": "WmVicmFmaXNo", "final": True, "requestId": request_id(77)},
        partition=GROUP_PARTITION,
    )
    (desk.folder(GROUP_PARTITION) / "plain.md").write_bytes(SECRET)
    standing.keep(desk.session.publisher, GROUP_PARTITION, 1, f"Labels of {SECRET.decode()}")
    standing.keep(desk.session.publisher, PRIVATE, 1, "Labels")
    desk.call("grep", {"query": SECRET.decode()}, partition=GROUP_PARTITION)
    desk.call("grep", {"query": "oak"})
    checkpoints(desk.session)
    assert desk.close()
    return layout.root


def checkpoints(session: StoreSession) -> None:
    """What the Git queue does."""
    db = session.publisher.db
    jobs = git_queue.jobs(db, 100)

    def text(digest: str) -> bytes:
        found = history.text(db, digest)
        assert found is not None
        return found

    done = commit(session.layout.vault, [Checkpoint.of(job, text) for job in jobs], whole_history=True, look_back=False)
    assert isinstance(done, Committed)
    numbers = {job.publication_id: job.publication for job in jobs}
    with session.publisher.transaction(full=False, point="git.queue"):
        git_queue.done(db, {numbers[name]: oid for name, oid in done.commits.items()})


@pytest.fixture
def store(made: Path, tmp_path: Path) -> StoreLayout:
    root = tmp_path / "stores" / VAULT_ID
    shutil.copytree(made, root, symlinks=True)
    return StoreLayout(root)


def traces(root: Path, *words: bytes) -> list[str]:
    """Files below ``root`` that hold a word, packed Git objects included, or have it in their name."""
    found = []
    for path in root.rglob("*"):
        name = str(path.relative_to(root))
        if path.is_file() and any(word in path.read_bytes() or word.decode() in name for word in words):
            found.append(name)
    git = root / "vault" / ".git"
    if git.exists():
        listed = subprocess.run(
            ["git", "--git-dir", str(git), "cat-file", "--batch", "--batch-all-objects", "--buffer"],
            capture_output=True, check=True,
        )  # fmt: skip
        found += [f"git: {word!r}" for word in words if word in listed.stdout]
    return sorted(found)


def rest(store: StoreLayout) -> dict[str, object]:
    """What agents see of the other partitions, and every file of them."""
    desk = Desk(store)
    shown: dict[str, object] = {}
    for partition in (PRIVATE, OTHER):
        for tool in ("records", "history", "timeline"):
            arguments = {"since": "2000-01-01", "until": "2100-01-01"} if tool == "timeline" else {}
            answer = desk.call(tool, arguments, partition=partition)
            answer.pop("snapshot", None)
            for row in listed(answer.get("rows", [])):
                row.pop("commit", None)  # a history that was built anew has other ids
            shown[f"{partition.key} {tool}"] = answer
        shown[f"{partition.key} verify"] = desk.call("grep", {"query": "like OR likes"}, partition=partition)
        for path in sorted(desk.folder(partition).rglob("*")):
            if path.is_file():
                shown[str(path.relative_to(store.root))] = path.read_bytes()
    desk.close()
    return shown


def run(store: StoreLayout, partition: Partition = GROUP_PARTITION) -> None:
    erase(store, partition, limits=LIMITS, git=True)


SESSION = GROUP_PARTITION.session_id
assert SESSION is not None
NAME = SESSION.encode()


def test_nothing_of_an_erased_conversation_is_left_in_any_file_database_page_index_or_git_object(
    store: StoreLayout,
) -> None:
    before = traces(store.root, SECRET, SECRET.lower())
    for place in ("state.sqlite", "search/", "vault/conversations/", "artifacts/", "git: "):
        assert any(place in name for name in before), place
    run(store)
    assert traces(store.root, SECRET, SECRET.lower(), NAME) == []
    assert not (store.root / NOTE_NAME).exists()


def test_nothing_of_another_partition_is_touched(store: StoreLayout) -> None:
    manifest, before = store.manifest.read_bytes(), rest(store)
    run(store)
    assert rest(store) == before
    assert store.manifest.read_bytes() == manifest


def test_a_text_that_another_partition_has_too_is_kept_for_it(store: StoreLayout) -> None:
    run(store)
    desk = Desk(store)
    found = desk.call("records", {}, partition=OTHER)["records"]
    assert isinstance(found, list)
    ids = [str(row["id"]) for row in found if isinstance(row, dict)]
    checked = desk.call("verify", {"ids": list(ids)}, partition=OTHER)
    assert "missing" not in str(checked), checked
    desk.close()


def test_an_erased_conversation_begins_anew_and_its_request_ids_are_free(store: StoreLayout) -> None:
    run(store)
    desk = Desk(store)
    assert desk.call("records", {}, partition=GROUP_PARTITION)["total"] == 0
    assert desk.call("history", {}, partition=GROUP_PARTITION)["total"] == 0
    saved = desk.remember("A fresh start.", partition=GROUP_PARTITION)
    assert len(items_of(saved)) == 1
    assert desk.call("grep", {"query": "fresh"}, partition=GROUP_PARTITION)["total"] == 1
    assert desk.call("grep", {"query": SECRET.decode()}, partition=GROUP_PARTITION)["total"] == 0
    assert desk.close()


def test_the_store_goes_on_saving_and_recovers_from_a_crash_after_an_erasure(store: StoreLayout) -> None:
    run(store)
    desk = Desk(store)

    def broken(point: str) -> None:
        if point == "place.file":
            raise OSError(5, "Input/output error")

    with installed(broken):
        desk.remember("Accepted.", requestId=request_id(90))
    desk.close(clean=False)
    assert Desk(store).call("records", {"kind": "claim"})["total"] == 2


def test_looking_tells_what_would_go_and_takes_nothing(store: StoreLayout) -> None:
    (store.root / "state.sqlite.format-2").write_bytes(SECRET)
    (store.vault / ".git.damaged-20260101T000000.0Z").mkdir()
    before = traces(store.root, SECRET)
    found = look(store, GROUP_PARTITION, limits=LIMITS, git=True)
    files = [path for path in store.partition(GROUP_PARTITION).rglob("*") if path.is_file()]
    assert (found.records, found.files) == (3, len(files))
    assert found.bytes == sum(path.stat().st_size for path in files)
    assert not found.git.any
    assert found.copies == ("state.sqlite.format-2", "vault/.git.damaged-20260101T000000.0Z")
    assert traces(store.root, SECRET) == before


def test_what_mending_set_aside_is_named_among_the_copies_that_may_still_hold_it(store: StoreLayout) -> None:
    (store.partition(GROUP_PARTITION) / "claims" / ".kr-11111111-1111-4111-8111-111111111111").write_bytes(SECRET)
    repair.repair(store, VAULT_ID, ["database"])
    repair.repair(store, VAULT_ID, ["git"])
    erase(store, GROUP_PARTITION, limits=LIMITS, git=True)
    copies = look(store, PRIVATE, limits=LIMITS, git=True).copies
    left = {"/".join(Path(path).parts[: 2 if path.startswith("vault/") else 1]) for path in traces(store.root, SECRET)}
    assert left <= {*copies}, "whatever still holds it is named"
    assert [name.partition("damaged-")[0] for name in copies] == ["staged.", "state.sqlite.", "vault/.git."]


def test_a_persons_commits_and_branches_are_told(store: StoreLayout) -> None:
    def git(*words: str) -> None:
        whose = ["-c", "user.name=Ana", "-c", "user.email=ana@example.org"]
        subprocess.run(["git", *whose, *words], cwd=store.vault, check=True, capture_output=True)

    git("branch", "mine")
    git("commit", "--allow-empty", "--no-verify", "-m", "By hand")
    found = look(store, GROUP_PARTITION, limits=LIMITS, git=True).git
    assert (found.commits, found.references, found.known) == (1, 1, True)


@pytest.mark.parametrize("partition", [Partition("99999999-9999-4999-8999-999999999999")])
def test_a_conversation_that_the_store_never_had_is_not_found(store: StoreLayout, partition: Partition) -> None:
    for act in (look, erase):
        with pytest.raises(NotFound):
            act(store, partition, limits=LIMITS, git=True)
    assert traces(store.root, SECRET)


def test_the_private_partition_is_never_erased(store: StoreLayout) -> None:
    with pytest.raises(ValueError):
        erasure.begin(store, PRIVATE)
    (store.root / NOTE_NAME).write_text('{"format": 1, "partition": "private"}')
    with pytest.raises(StoreUnavailable):
        StoreSession.open(store, limits=LIMITS)


@pytest.mark.parametrize("note", ["", "{", "[]", '{"partition": "conversations/.."}', '{"partition": 5}'])
def test_a_decision_that_cannot_be_read_keeps_the_store_closed_and_says_so(store: StoreLayout, note: str) -> None:
    (store.root / NOTE_NAME).write_text(note)
    with pytest.raises(StoreUnavailable) as refusal:
        StoreSession.open(store, limits=LIMITS)
    assert refusal.value.fields["reason"] == "erasure_note"
    assert traces(store.root, SECRET)


def test_hostile_names_links_and_folders_without_end_are_removed_and_nothing_that_they_lead_to(
    store: StoreLayout, tmp_path: Path
) -> None:
    """Undone half-way it would keep the whole store closed."""
    folder, outside = store.partition(GROUP_PARTITION), tmp_path / "outside"
    outside.mkdir()
    (outside / "kept.md").write_text("Kept.")
    note = next(store.partition(PRIVATE).rglob("*.md"))
    (folder / "link").symlink_to(outside)
    (folder / "claims" / "note.md").symlink_to(outside / "kept.md")
    os.link(note, folder / "hard.md")
    os.mkfifo(folder / "fifo.md")
    (folder / os.fsdecode(b"\xff\n.md")).write_bytes(SECRET)
    nest(folder)
    text = note.read_bytes()
    assert look(store, GROUP_PARTITION, limits=LIMITS, git=True).records == 3
    erase(store, GROUP_PARTITION, limits=LIMITS, git=True)
    assert traces(store.root, SECRET) == []
    assert not folder.exists()
    assert ((outside / "kept.md").read_text(), note.read_bytes()) == ("Kept.", text)


def test_a_folder_of_conversations_that_is_a_link_is_not_followed(store: StoreLayout, tmp_path: Path) -> None:
    elsewhere = tmp_path / "elsewhere"
    (store.vault / "conversations").rename(elsewhere)
    (store.vault / "conversations").symlink_to(elsewhere)
    erasure.begin(store, GROUP_PARTITION)
    StoreSession.open(store, limits=LIMITS).close()
    assert (elsewhere / str(SESSION)).is_dir()


def passed(store: StoreLayout, act: Callable[[StoreLayout], None]) -> list[str]:
    points: list[str] = []
    with installed(points.append):
        act(store)
    return points


def firsts(points: list[str]) -> Iterator[tuple[int, str]]:
    """Where each point is passed for the first and for the last time."""
    last = {name: number for number, name in enumerate(points)}
    first = {name: number for number, name in reversed(list(enumerate(points)))}
    yield from sorted({(number, name) for places in (first, last) for name, number in places.items()})


def relevant(points: list[str]) -> list[tuple[int, str]]:
    """From the decision to its end, what happens before and after being the openings' own."""
    begin, end = points.index("erase.note.stage.open"), len(points) - points[::-1].index("erase.note.remove.after")
    inside = [(number, name) for number, name in firsts(points) if begin <= number <= end]
    assert {"erase.commit", "erase.files", "erase.search", "erase.git", "state.checkpoint"} <= {n for _, n in inside}
    return inside


@pytest.mark.parametrize("every", [False, pytest.param(True, marks=pytest.mark.exhaustive)])
def test_a_kill_at_any_point_of_an_erasure_leaves_everything_or_is_finished_by_the_next_opening(
    store: StoreLayout, tmp_path: Path, every: bool
) -> None:
    whole, before = traces(store.root, SECRET), rest(store)
    dry = StoreLayout(tmp_path / "dry" / VAULT_ID)
    shutil.copytree(store.root, dry.root, symlinks=True)
    points = passed(dry, run)
    decided = points.index("erase.note.place.after")
    outcomes = set()
    chosen = relevant(points)
    for place, name in chosen if every else [one for one in chosen if one[1] in QUICKLY]:
        case = StoreLayout(tmp_path / "case" / VAULT_ID)
        shutil.rmtree(case.root, ignore_errors=True)
        shutil.copytree(store.root, case.root, symlinks=True)
        assert killed_at(case, place) == -signal.SIGKILL, name
        noted = (case.root / NOTE_NAME).exists()
        StoreSession.open(case, limits=LIMITS).close()
        left = traces(case.root, SECRET, SECRET.lower(), NAME)
        if noted or place > decided:
            assert left == [], (place, name)
            outcomes.add("erased")
        else:
            assert traces(case.root, SECRET) == whole, (place, name)
            outcomes.add("untouched")
        if every or name == "erase.git":
            assert rest(case) == before, (place, name)
    assert outcomes == {"erased", "untouched"}


QUICKLY = {
    "erase.note.stage.write", "erase.note.place", "erase.note.place.after", "erase.commit", "erase.commit.after",
    "erase.files", "erase.search", "erase.git", "state.checkpoint", "erase.note.remove",
}  # fmt: skip


def killed_at(store: StoreLayout, place: int) -> int:
    child = os.fork()
    if child == 0:
        left = place

        def kill(_: str) -> None:
            nonlocal left
            left -= 1
            if left < 0:
                os.kill(os.getpid(), signal.SIGKILL)

        try:
            with installed(kill):
                run(store)
        finally:
            os._exit(1)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


@pytest.mark.parametrize("point", ["erase.begin", "erase.commit", "erase.files", "erase.search", "erase.git"])
def test_an_erasure_that_a_failing_disk_stops_keeps_the_store_closed_and_goes_on_with_the_next_opening(
    store: StoreLayout, point: str
) -> None:
    def fail(name: str) -> None:
        if name == point:
            raise OSError(5, "Input/output error")

    with installed(fail):
        with pytest.raises(StorageError) as refusal:
            run(store)
        assert (refusal.value.fields["reason"], refusal.value.retry) == ("erasure_unfinished", "unknown")
        with pytest.raises(Exception):  # noqa: B017 - whatever it is, nothing is served
            StoreSession.open(store, limits=LIMITS)
    StoreSession.open(store, limits=LIMITS).close()
    assert traces(store.root, SECRET, SECRET.lower(), NAME) == []


def test_without_the_decision_being_finished_first_the_conversation_would_come_back(
    store: StoreLayout, monkeypatch: pytest.MonkeyPatch
) -> None:
    erasure.begin(store, GROUP_PARTITION)
    monkeypatch.setattr(erasure, "finish", lambda state: None)
    assert Desk(store).call("records", {}, partition=GROUP_PARTITION)["total"] == 3

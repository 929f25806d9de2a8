"""Exporting a conversation: what the folder holds, and that it is there whole or not at all."""

from __future__ import annotations

import hashlib
import json
import os
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from messages.errors import InvalidArgument, NotFound, StorageError
from messages.json_types import JsonObject
from messages.vocabulary import PRIVATE, Partition
from storage.conversation_export import FORMAT, Exported, export_conversation, plan_export
from storage.faults import installed
from storage.layout import Layout
from storage.session import StoreSession
from tests.kit.hostile import nested
from tests.kit.store import GROUP_PARTITION, NOON, VAULT_ID, Desk, items_of

WORD = "Zebrafish"


@pytest.fixture
def layout(tmp_path: Path) -> Layout:
    return Layout(tmp_path / "state")


@pytest.fixture
def desk(layout: Layout) -> Iterator[Desk]:
    store = layout.new_store(VAULT_ID)
    store.root.parent.mkdir(parents=True)
    StoreSession.create(store, VAULT_ID)
    opened = Desk(store)
    opened.remember(f"{WORD} is private.")
    [item] = items_of(opened.remember("The gate is green.", partition=GROUP_PARTITION))
    path = opened.path_of(str(item["id"]), GROUP_PARTITION)
    path.write_text(path.read_text().replace("green", "blue"))
    opened.call("records", partition=GROUP_PARTITION)
    yield opened
    opened.close()


def export(desk: Desk, target: Path, partition: Partition = GROUP_PARTITION) -> Exported:
    return export_conversation(desk.session, partition, target, agent="main", at=NOON)


def everything(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_an_export_holds_records_evidence_and_history_with_a_checksum_of_each(desk: Desk, tmp_path: Path) -> None:
    target = tmp_path / "chat"
    done = export(desk, target)
    found = everything(target)
    for path in desk.folder(GROUP_PARTITION).rglob("*"):
        if path.is_file():
            assert found[f"files/{path.relative_to(desk.folder(GROUP_PARTITION))}"] == path.read_bytes()
    assert any("artifacts" in name for name in found)
    rows = [json.loads(line) for line in found["history.jsonl"].splitlines()]
    assert [(row["operation"], row["external"]) for row in rows] == [("remember", False), (rows[1]["operation"], True)]
    for row in rows:
        text = found[f"texts/{row['hash']}"]
        assert hashlib.sha256(text).hexdigest() == row["hash"]
    assert b"green" in found[f"texts/{rows[0]['hash']}"]
    assert b"blue" in found[f"texts/{rows[1]['hash']}"]
    head = json.loads(found["export.json"])
    assert (head["format"], head["vaultId"], head["sessionId"]) == (FORMAT, VAULT_ID, GROUP_PARTITION.session_id)
    assert (head["records"], head["revisions"]) == (done.records, done.revisions) == (1, 2)
    lines = [line.split("  ", 1) for line in found["SHA256SUMS"].decode().splitlines()]
    listed = {path: digest for digest, path in lines}
    assert listed == {
        name: hashlib.sha256(data).hexdigest() for name, data in found.items() if name != "SHA256SUMS"
    }
    checked = subprocess.run(["sha256sum", "--check", "--quiet", "SHA256SUMS"], cwd=target, check=False)
    assert checked.returncode == 0


def test_nothing_of_another_partition_is_in_an_export(desk: Desk, tmp_path: Path) -> None:
    export(desk, tmp_path / "chat")
    assert WORD.encode() not in b"".join(everything(tmp_path / "chat").values())


def test_an_export_is_for_its_owner_alone_and_changes_nothing_in_the_store(desk: Desk, tmp_path: Path) -> None:
    before = everything(desk.layout.vault)
    history = desk.call("history", partition=GROUP_PARTITION)
    export(desk, tmp_path / "chat")
    assert everything(desk.layout.vault) == before
    assert desk.call("history", partition=GROUP_PARTITION) == history
    for path in (tmp_path / "chat", *(tmp_path / "chat").rglob("*")):
        assert path.stat().st_mode & 0o077 == 0, path


def test_an_edit_made_before_the_export_is_in_it(desk: Desk, tmp_path: Path) -> None:
    [path] = desk.folder(GROUP_PARTITION).glob("claims/*/*/*/*.md")
    path.write_text(path.read_text().replace("blue", "red"))
    assert export(desk, tmp_path / "chat").revisions == 3


def test_links_are_not_followed_and_what_is_not_complete_is_left_out(desk: Desk, tmp_path: Path) -> None:
    folder = desk.folder(GROUP_PARTITION)
    secret = tmp_path / "secret"
    secret.write_text(WORD)
    (folder / "link.txt").symlink_to(secret)
    (folder / "second.txt").hardlink_to(secret)
    (folder / "linked").symlink_to(desk.folder(PRIVATE))
    (folder / ".kr-upload").write_text("half")
    done = export(desk, tmp_path / "chat")
    assert done.skipped == 3
    found = everything(tmp_path / "chat")
    assert WORD.encode() not in b"".join(found.values())
    assert not any(".kr-" in name for name in found)


def test_a_conversation_that_the_store_never_had_is_not_found_and_makes_nothing(desk: Desk, tmp_path: Path) -> None:
    stranger = Partition("99999999-9999-4999-8999-999999999999")
    with pytest.raises(NotFound):
        export(desk, tmp_path / "chat", stranger)
    assert not (tmp_path / "chat").exists()
    assert not desk.folder(stranger).exists()


@pytest.mark.parametrize(
    ("place", "reason"),
    [
        ("chat", "not_absolute"),
        ("{tmp}/no/chat", "no_parent"),
        ("{tmp}/there", "taken"),
        ("{tmp}/dangling", "taken"),
        ("{tmp}/state/knowledge/chat", "inside"),
        ("{tmp}/way/knowledge/stores/chat", "inside"),
    ],
)
def test_a_place_that_cannot_be_is_refused_by_its_field(
    layout: Layout, tmp_path: Path, place: str, reason: str
) -> None:
    layout.stores.mkdir(parents=True)
    (tmp_path / "there").mkdir()
    (tmp_path / "dangling").symlink_to(tmp_path / "nowhere")
    (tmp_path / "way").symlink_to(tmp_path / "state")
    with pytest.raises(InvalidArgument) as refusal:
        plan_export(layout, place.format(tmp=tmp_path))
    assert (refusal.value.fields["field"], refusal.value.fields["reason"]) == ("path", reason)
    assert plan_export(layout, f"{tmp_path}/way/../new") == tmp_path / "new"


def test_what_came_to_stand_there_meanwhile_is_never_replaced(desk: Desk, tmp_path: Path) -> None:
    target = tmp_path / "chat"

    def take(point: str) -> None:
        if point == "export.place":
            target.mkdir()
            (target / "mine").write_text("mine")

    with installed(take), pytest.raises(InvalidArgument) as refusal:
        export(desk, target)
    assert refusal.value.fields["reason"] == "taken"
    assert everything(target) == {"mine": b"mine"}
    assert left(tmp_path) == []


def left(folder: Path) -> list[str]:
    return [path.name for path in folder.iterdir() if path.name.startswith(".kr-")]


def test_a_file_that_changes_while_it_is_exported_fails_the_export(desk: Desk, tmp_path: Path) -> None:
    [path] = desk.folder(GROUP_PARTITION).glob("claims/*/*/*/*.md")
    changed = False

    def edit(point: str) -> None:
        nonlocal changed
        if point == "export.folder" and not changed:
            changed = True
            path.write_text(path.read_text().replace("blue", "red"))

    with installed(edit), pytest.raises(StorageError) as refusal:
        export(desk, tmp_path / "chat")
    assert (refusal.value.fields["reason"], refusal.value.retry) == ("changed", "safe")
    assert not (tmp_path / "chat").exists()
    assert left(tmp_path) == []


def points_of(desk: Desk, target: Path) -> list[str]:
    points: list[str] = []
    with installed(points.append):
        export(desk, target)
    return [point for point in points if point.startswith("export.")]


def firsts(points: list[str]) -> list[tuple[int, str]]:
    """Where each point is passed for the first and for the last time."""
    last = {name: number for number, name in enumerate(points)}
    first = {name: number for number, name in reversed(list(enumerate(points)))}
    return sorted({(number, name) for places in (first, last) for name, number in places.items()})


def test_a_full_disk_at_any_point_leaves_nothing_there(desk: Desk, tmp_path: Path) -> None:
    points = points_of(desk, tmp_path / "dry")
    assert {"export.file.open", "export.file.write", "export.sync", "export.place"} <= set(points)
    place = points.index("export.place.after")
    for number, name in firsts(points[:place]):
        seen = -1

        def fail(point: str, number: int = number) -> None:
            nonlocal seen
            seen += point.startswith("export.")
            if point.startswith("export.") and seen == number:
                raise OSError(28, "No space left on device")

        with installed(fail), pytest.raises(StorageError):
            export(desk, tmp_path / "chat")
        assert not (tmp_path / "chat").exists(), name
    assert export(desk, tmp_path / "chat").records == 1
    assert left(tmp_path) == []


def test_a_kill_at_any_point_leaves_the_whole_export_or_none_under_its_name(desk: Desk, tmp_path: Path) -> None:
    points = points_of(desk, tmp_path / "dry")
    whole = everything(tmp_path / "dry")
    desk.close()
    for number, name in firsts(points):
        target = tmp_path / "chat"
        child = os.fork()
        if child == 0:
            seen = -1

            def kill(point: str, number: int = number) -> None:
                nonlocal seen
                seen += point.startswith("export.")
                if point.startswith("export.") and seen == number:
                    os.kill(os.getpid(), signal.SIGKILL)

            try:
                session = StoreSession.open(desk.layout, limits=desk.limits)
                with installed(kill):
                    export_conversation(session, GROUP_PARTITION, target, agent="main", at=NOON)
            finally:
                os._exit(1)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == -signal.SIGKILL, name
        if target.exists():
            assert everything(target) == whole, name
            target.rename(tmp_path / f"done-{number}")
    export(desk, tmp_path / "chat")
    assert everything(tmp_path / "chat") == whole
    assert left(tmp_path) == []


def test_an_export_says_what_it_wrote(desk: Desk, tmp_path: Path) -> None:
    done = export(desk, tmp_path / "chat")
    found = everything(tmp_path / "chat")
    shown: JsonObject = done.to_json()
    assert shown["path"] == str(tmp_path / "chat")
    assert done.files == len(found) - 2, "all but the two that name the others"
    assert done.bytes == sum(len(data) for name, data in found.items() if name not in ("export.json", "SHA256SUMS"))


def test_names_with_line_breaks_backslashes_and_other_bytes_are_checked_as_sha256sum_does(
    desk: Desk, tmp_path: Path
) -> None:
    names = (b"a\nb", b"c\\d", b"e\rf", b"\xff", b"0" * 64 + b"  g")
    for name in names:
        (desk.folder(GROUP_PARTITION) / os.fsdecode(name)).write_bytes(name)
    target = tmp_path / "chat"
    export(desk, target)
    subprocess.run(["sha256sum", "--check", "--strict", "--quiet", "SHA256SUMS"], cwd=target, check=True)
    (target / "files" / "a\nb").write_bytes(b"other")
    checked = subprocess.run(
        ["sha256sum", "--check", "--quiet", "SHA256SUMS"], cwd=target, check=False, capture_output=True
    )
    assert checked.returncode == 1


def test_folders_without_end_are_refused_and_nothing_is_left(desk: Desk, tmp_path: Path) -> None:
    with nested(desk.folder(GROUP_PARTITION)), pytest.raises(StorageError) as refusal:
        export(desk, tmp_path / "chat")
    assert refusal.value.fields["reason"] == "depth"
    assert not [path.name for path in tmp_path.iterdir() if "chat" in path.name or "export" in path.name]

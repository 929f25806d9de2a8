"""``knowledge_attach_file``: files of the host's workspace, without a thread."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from actors.store.source_keeper import SourceDesk
from messages.errors import Denied, EvidenceInvalid, InvalidArgument, RequestIdReused, StorageError
from messages.json_types import JsonObject, JsonValue
from storage import faults
from tests.kit.sources import ATTRIBUTION, attach, chunk, descriptor, digest, upload_id
from tests.kit.store import GROUP_PARTITION, Desk, items_of, remembering

DATA = b"quarterly figures\n" * 20_000


@pytest.fixture
def workspace(desk: Desk, tmp_path: Path) -> Path:
    """The host's workspace, with one file in a folder."""
    desk.workspace = root = tmp_path / "work"
    (root / "reports").mkdir(parents=True)
    (root / "reports" / "q3.txt").write_bytes(DATA)
    return root


def asked(number: int = 1, path: str | Path = "reports/q3.txt", **more: JsonValue) -> JsonObject:
    return {
        "requestId": upload_id(number),
        "filePath": str(path),
        "sha256": digest(DATA),
        "filename": "q3.txt",
        "attribution": ATTRIBUTION,
        "mediaType": "text/plain",
        **more,
    }


def left(desk: Desk) -> list[str]:
    root = desk.folder() / "artifacts"
    return sorted(str(path.relative_to(root)) for path in root.rglob("*") if path.is_file())


def test_a_file_of_the_workspace_is_retained_and_may_be_cited(desk: Desk, workspace: Path) -> None:
    found = desk.call("attach_file", asked())["evidence"]
    assert found == descriptor(1, DATA, "q3.txt")
    assert left(desk) == [f"{upload_id(1)}/q3.txt"]
    assert (desk.folder() / "artifacts" / upload_id(1) / "q3.txt").read_bytes() == DATA
    assert desk.page("A", attachments=[found])["revision"] == 1


def test_an_absolute_path_inside_the_workspace_is_the_same_file_and_the_media_type_may_be_left_out(
    desk: Desk, workspace: Path
) -> None:
    request = asked(path=workspace / "reports" / "q3.txt")
    del request["mediaType"]
    found = desk.call("attach_file", request)["evidence"]
    assert isinstance(found, dict)
    assert "media_type" not in found


def test_a_workspace_may_be_named_by_a_link(desk: Desk, workspace: Path, tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(workspace)
    desk.workspace = tmp_path / "link"
    assert desk.call("attach_file", asked())["evidence"] == descriptor(1, DATA, "q3.txt")


def test_a_retry_with_identical_arguments_gives_the_same_answer_without_the_file(desk: Desk, workspace: Path) -> None:
    answer = desk.call("attach_file", asked())
    (workspace / "reports" / "q3.txt").unlink()
    desk.close()
    desk.needs.clear()
    assert desk.call("attach_file", asked()) == answer
    assert desk.needs == []


@pytest.mark.parametrize(
    "change",
    [{"sha256": "0" * 64}, {"filename": "b.txt"}, {"attribution": "x"}, {"filePath": "b"}, {"mediaType": "text/html"}],
)
def test_a_retry_with_other_arguments_is_refused(desk: Desk, workspace: Path, change: JsonObject) -> None:
    desk.call("attach_file", asked())
    assert isinstance(desk.fails("attach_file", {**asked(), **change}), RequestIdReused)


def test_the_two_ways_of_attaching_and_publications_do_not_share_a_request_id(desk: Desk, workspace: Path) -> None:
    desk.call("attach_file", asked(1))
    error = desk.fails("attach", chunk(1, 0, DATA[:100], filename="q3.txt"))
    assert (error.code, error.fields["reason"]) == ("request_id_reused", "other_tool")
    attach(desk, 2, b"text")
    assert desk.fails("attach_file", asked(2)).code == "request_id_reused"
    desk.call("remember", {**remembering("One."), "requestId": upload_id(3)})
    assert desk.fails("attach_file", asked(3)).code == "request_id_reused"
    assert desk.fails("remember", {**remembering("Two."), "requestId": upload_id(1)}).code == "request_id_reused"


def link(path: Path, workspace: Path) -> None:
    path.symlink_to(workspace / "reports" / "q3.txt")


def link_to_folder(path: Path, workspace: Path) -> None:
    path.parent.rmdir()
    path.parent.symlink_to(workspace / "reports")


def hard_link(path: Path, workspace: Path) -> None:
    path.hardlink_to(workspace / "reports" / "q3.txt")


def pipe(path: Path, _workspace: Path) -> None:
    os.mkfifo(path)


def a_folder(path: Path, _workspace: Path) -> None:
    path.mkdir()


def nothing(_path: Path, _workspace: Path) -> None:
    pass


@pytest.mark.parametrize(
    ("make", "reason"),
    [
        (link, "symlink"),
        (link_to_folder, "symlink"),
        (hard_link, "hardlink"),
        (pipe, "not_a_file"),
        (a_folder, "not_a_file"),
        (nothing, "missing"),
    ],
)
def test_symlinks_hardlinks_and_what_is_no_regular_file_are_refused(
    desk: Desk, workspace: Path, make: Callable[[Path, Path], None], reason: str
) -> None:
    odd = workspace / "odd" / "q3.txt"
    odd.parent.mkdir()
    make(odd, workspace)
    error = desk.fails("attach_file", asked(path="odd/q3.txt"))
    assert isinstance(error, InvalidArgument)
    assert (error.fields["field"], error.fields["reason"]) == ("filePath", reason)
    assert left(desk) == []


@pytest.mark.parametrize(
    "path",
    [
        "../secret.txt",
        "reports/../../secret.txt",
        "reports/../reports/q3.txt",
        "/etc/passwd",
        "~/secret.txt",
        "reports//q3.txt",
        "./reports/q3.txt",
        "\u2025/secret.txt",
    ],
)
def test_no_path_leads_out_of_the_workspace(desk: Desk, workspace: Path, path: str) -> None:
    (workspace.parent / "secret.txt").write_bytes(DATA)
    error = desk.fails("attach_file", asked(path=path))
    assert (error.code, error.fields["field"]) == ("invalid_argument", "filePath")
    assert error.fields["reason"] in ("outside", "missing")
    assert left(desk) == []


def test_an_absolute_path_that_climbs_out_of_the_workspace_is_refused(desk: Desk, workspace: Path) -> None:
    (workspace.parent / "secret.txt").write_bytes(DATA)
    error = desk.fails("attach_file", asked(path=f"{workspace}/../secret.txt"))
    assert error.fields["reason"] == "outside"


def test_a_folder_swapped_for_a_link_between_the_look_and_the_opening_leads_nowhere(
    desk: Desk, workspace: Path
) -> None:
    outside = workspace.parent / "outside"
    outside.mkdir()
    (outside / "q3.txt").write_bytes(DATA)
    swapped = False

    def swap(point: str) -> None:
        nonlocal swapped
        if point == "workspace.stat" and not swapped:  # the path was judged a moment ago
            swapped = True
            (workspace / "reports").rename(workspace / "moved")
            (workspace / "reports").symlink_to(outside)

    with faults.installed(swap):
        error = desk.fails("attach_file", asked())
    assert swapped
    assert (error.code, error.fields["field"]) == ("invalid_argument", "filePath")
    assert left(desk) == []


def test_files_of_a_state_directory_are_never_attached_even_inside_the_workspace(desk: Desk, tmp_path: Path) -> None:
    desk.remember("One.")
    desk.workspace = tmp_path
    record = next(desk.folder().rglob("claims/**/*.md"))
    for path in (record, desk.layout.state_database):
        error = desk.fails("attach_file", asked(path=path, sha256=digest(path.read_bytes())))
        assert (error.code, error.fields["reason"]) == ("invalid_argument", "knowledge_state")


def test_the_given_hash_must_be_that_of_the_bytes(desk: Desk, workspace: Path) -> None:
    error = desk.fails("attach_file", asked(sha256="0" * 64))
    assert isinstance(error, EvidenceInvalid)
    assert (error.fields["field"], error.fields["reason"]) == ("sha256", "hash_mismatch")
    assert not (desk.folder() / "artifacts" / upload_id(1)).exists()
    assert desk.call("attach_file", asked())["evidence"] == descriptor(1, DATA, "q3.txt")


def test_a_source_that_changes_in_between_is_refused_and_nothing_of_it_is_kept(desk: Desk, workspace: Path) -> None:
    def change(point: str) -> None:
        if point == "upload.write":
            with (workspace / "reports" / "q3.txt").open("ab") as file:
                file.write(b"x")

    with faults.installed(change):
        error = desk.fails("attach_file", asked())
    assert (error.code, error.fields["reason"]) == ("invalid_argument", "changed")
    assert left(desk) == []


def test_where_the_host_gives_no_workspace_the_tool_says_so(desk: Desk) -> None:
    for given in (None, Path("relative"), desk.layout.root / "gone"):
        desk.workspace = given
        error = desk.fails("attach_file", asked())
        assert (error.code, error.fields["reason"]) == ("invalid_argument", "no_workspace")


def test_a_conversation_without_a_grant_attaches_no_file_of_the_workspace(desk: Desk, workspace: Path) -> None:
    error = desk.fails("attach_file", asked(), partition=GROUP_PARTITION)
    assert isinstance(error, Denied)
    assert not (desk.folder(GROUP_PARTITION) / "artifacts").exists()


def test_bytes_that_are_retained_already_are_not_kept_twice(desk: Desk, workspace: Path) -> None:
    first = attach(desk, 5, DATA)
    found = desk.call("attach_file", asked())["evidence"]
    assert found == {**first, "filename": "q3.txt"}
    assert left(desk) == [f"{upload_id(5)}/notes.txt"]


def test_two_identical_calls_at_once_give_one_file_and_one_answer(desk: Desk, workspace: Path) -> None:
    """The second call's copy is asked for before the first one's is named, and after."""
    second: list[JsonObject] = []
    keeper = desk.sources

    class Interleaved(SourceDesk):
        def do(self, *arguments, **more):  # type: ignore[no-untyped-def]
            done = keeper.do(*arguments, **more)
            if not second:
                desk.sources = keeper
                second.append(desk.call("attach_file", asked()))
            return done

    desk.sources = Interleaved()
    assert desk.call("attach_file", asked()) == second[0]
    assert left(desk) == [f"{upload_id(1)}/q3.txt"]


@pytest.mark.parametrize("point", ["upload.create.open", "upload.write", "upload.sync", "upload.place", "retain.begin"])
def test_a_full_disk_leaves_nothing_that_a_retry_does_not_mend(desk: Desk, workspace: Path, point: str) -> None:
    def full(reached: str) -> None:
        if reached == point:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with faults.installed(full):
        assert isinstance(desk.fails("attach_file", asked()), StorageError)
    assert [name for name in left(desk) if "/." in name] == []
    assert desk.call("attach_file", asked())["evidence"] == descriptor(1, DATA, "q3.txt")
    assert left(desk) == [f"{upload_id(1)}/q3.txt"]


def test_a_claim_keeps_its_evidence_when_a_refused_call_shares_its_folder(desk: Desk, workspace: Path) -> None:
    claim = desk.call("remember", {**remembering("One."), "requestId": upload_id(3)})
    assert desk.fails("attach_file", asked(3, sha256="0" * 64)).code == "request_id_reused"
    assert desk.record(items_of(claim)[0]["id"], includeEvidence=True)["evidence"]
    assert left(desk) == [f"{upload_id(3)}/excerpt.txt"]


@pytest.mark.parametrize("path", [f"{'a' * 300}/x.txt", f"reports/{'a' * 300}/x.txt", "reports/q3.txt/x.txt"])
def test_a_path_that_no_file_can_have_is_refused_as_any_other_that_leads_nowhere(
    desk: Desk, workspace: Path, path: str
) -> None:
    error = desk.fails("attach_file", asked(path=path))
    assert (error.code, error.fields["field"], error.fields["reason"]) == ("invalid_argument", "filePath", "missing")
    assert left(desk) == []


def test_the_next_opening_removes_copies_that_nobody_named_and_nothing_else(desk: Desk, workspace: Path) -> None:
    found = desk.call("attach_file", asked())["evidence"]
    desk.call("attach", chunk(2, 0, b"goes on"))
    copies = desk.folder() / "artifacts" / ".kr-copies"
    for name in (f"{upload_id(3)}.{upload_id(4)}", "whatever else lies here"):
        (copies / name).write_bytes(DATA)
    (copies / "folder").mkdir()
    desk.close()
    assert desk.call("attach_file", asked())["evidence"] == found
    assert left(desk) == sorted([f"{upload_id(1)}/q3.txt", f"{upload_id(2)}/.kr-upload"])
    assert desk.call("attach", chunk(2, 7, b".", final=True))["evidence"]


def test_a_store_whose_copies_cannot_be_removed_opens_all_the_same(desk: Desk, workspace: Path) -> None:
    desk.call("attach_file", asked())
    (desk.folder() / "artifacts" / ".kr-copies" / "old").write_bytes(DATA)
    desk.close()

    def fail(point: str) -> None:
        if point == "upload.unlink":
            raise OSError(errno.EROFS, os.strerror(errno.EROFS))

    with faults.installed(fail):
        assert desk.call("status")["live"]
    assert len(left(desk)) == 2


def test_a_copy_that_was_named_in_vain_is_not_left_when_the_bytes_are_retained_elsewhere(
    desk: Desk, workspace: Path
) -> None:
    attach(desk, 5, DATA)
    desk.call("attach_file", asked())
    assert left(desk) == [f"{upload_id(5)}/notes.txt"]
    assert not (desk.folder() / "artifacts" / upload_id(1)).exists()


def test_a_name_that_somebody_else_took_is_not_overwritten_and_no_copy_is_left(desk: Desk, workspace: Path) -> None:
    other = desk.folder() / "artifacts" / upload_id(1) / "q3.txt"
    other.parent.mkdir(parents=True)
    other.write_bytes(b"a person's")
    error = desk.fails("attach_file", asked())
    assert (error.code, error.fields["reason"]) == ("storage_error", "taken")
    assert other.read_bytes() == b"a person's"
    assert left(desk) == [f"{upload_id(1)}/q3.txt"]


# --- a workspace inside our own state ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "below", ["store", "store/vault", "store/vault/private", "store/vault/private/claims", "linked"]
)
def test_a_workspace_that_lies_inside_a_state_directory_gives_nothing_away(
    desk: Desk, tmp_path: Path, below: str
) -> None:
    desk.remember("One.")
    root = desk.layout.root
    (tmp_path / "linked").symlink_to(root / "vault" / "private" / "claims")
    workspace = tmp_path / "linked" if below == "linked" else root / Path(below).relative_to("store")
    record = next(desk.folder().rglob("claims/**/*.md"))
    desk.workspace = workspace
    path = Path(os.path.relpath(record, os.path.realpath(workspace)))
    error = desk.fails("attach_file", asked(path=path, sha256=digest(record.read_bytes())))
    assert (error.code, error.fields["reason"]) == ("invalid_argument", "knowledge_state")


def test_a_workspace_in_the_folder_of_all_state_gives_nothing_away(desk: Desk, tmp_path: Path) -> None:
    state = tmp_path / "knowledge"
    (state / "deeper" / "work").mkdir(parents=True)
    for mark in ("registry.id", "registry.sqlite"):
        (state / mark).touch()
    (state / "deeper" / "work" / "q3.txt").write_bytes(DATA)
    desk.workspace = state / "deeper" / "work"
    assert desk.fails("attach_file", asked(path="q3.txt")).fields["reason"] == "knowledge_state"
    (state / "registry.id").unlink()
    assert desk.call("attach_file", asked(path="q3.txt"))["evidence"]


def test_a_folder_above_the_workspace_that_may_not_be_looked_into_is_no_hindrance(desk: Desk, workspace: Path) -> None:
    def closed(point: str) -> None:
        if point == "workspace.above":
            raise PermissionError(errno.EACCES, "Permission denied")

    with faults.installed(closed):
        assert desk.call("attach_file", asked())["evidence"] == descriptor(1, DATA, "q3.txt")

"""Files as they must not be, and records in the wrong file: each is named, nothing is lost, everything else answers.

Source: stores-and-access.md (Limits, Partitions), decisions.md section 2.
"""

from __future__ import annotations

import json
import os
import socket
import stat
import tempfile
import unicodedata
from collections.abc import Callable, Iterable
from pathlib import Path

import pytest

from messages.errors import Ambiguous, FailedClosed, KnowledgeError, LimitExceeded, PartitionFull, ScanIncomplete
from messages.json_types import JsonObject, JsonValue
from messages.vocabulary import ONTOLOGY_MAX_BYTES, PRIVATE, RECORD_MAX_BYTES, Partition
from storage import faults
from storage.layout import StoreLayout
from storage.manifest import MANIFEST_MAX_BYTES
from storage.records import content_hash
from storage.state import history
from storage.vault import ScanFinding, ScanLimits, twins
from tests.kit.moments import at_point
from tests.kit.store import (
    GROUP_PARTITION,
    Desk,
    claim_file,
    copy_store,
    page_file,
    request_id,
    write_note,
    write_notes,
)


def findings(desk: Desk, partition: Partition = PRIVATE) -> dict[str, list[str]]:
    """The codes of what is wrong, by path."""
    listed, total = desk.partition(partition).diagnostics(1_000)
    assert total == len(listed)
    found: dict[str, list[str]] = {}
    for finding in listed:
        found.setdefault(finding.path, []).append(finding.code)
    return found


def ids(desk: Desk, partition: Partition = PRIVATE) -> list[str]:
    return sorted(str(row["id"]) for row in rows(desk.call("records", {"limit": 100}, partition=partition)["records"]))


def rows(value: JsonValue) -> list[JsonObject]:
    assert isinstance(value, list)
    return [row for row in value if isinstance(row, dict)]


def histories(desk: Desk, record_id: str, partition: Partition = PRIVATE) -> list[tuple[str, str | None, str | None]]:
    """``(path, hash before, hash after)`` of a record's history, oldest first."""
    desk.partition(partition)
    found = history.rows(desk.session.publisher.db, partition, record_id=record_id, limit=100)
    return [(row.path, row.before, row.hash) for row in reversed(found)]


def kept(desk: Desk, data: bytes) -> bool:
    """Whether history has exactly these bytes."""
    return history.text(desk.session.publisher.db, content_hash(data)) == data


# --- texts ----------------------------------------------------------------------------------------------------------

PLAIN = page_file("bad", "Bad").encode()
BOMB = b"a: &a [x, x]\n" + b"".join(b"b%d: &b%d [*a, *a]\n" % (n, n) for n in range(40))


def with_line(line: bytes) -> bytes:
    return PLAIN.replace(b"lifecycle:", line + b"\nlifecycle:", 1)


UNREADABLE = {
    "broken YAML": (PLAIN.replace(b"title:", b"title: [a\nx:"), "yaml_syntax"),
    "a tab as indent": (PLAIN.replace(b"title:", b"\ttitle:"), "yaml_syntax"),
    "a NUL in the frontmatter": (PLAIN.replace(b"Bad", b"B\0d"), "nul"),
    "bytes that are not UTF-8": (PLAIN + b"\xff\xfe\n", "not_utf8"),
    "a character cut in half": (PLAIN + "é".encode()[:1], "not_utf8"),
    "UTF-16": (PLAIN.decode().encode("utf-16"), "not_utf8"),
    "a key twice": (with_line(b'title: "Other"'), "yaml_duplicate_key"),
    "21 levels": (with_line(b"fields: " + b"{a: " * 20 + b"1" + b"}" * 20), "yaml_depth"),
    "thousands of levels": (with_line(b"x: " + b"[" * 9_000 + b"]" * 9_000), "yaml_depth"),
    "an alias bomb": (with_line(BOMB), "yaml_anchor"),
    "a tag": (with_line(b"x: !!python/object/apply:os.system [id]"), "yaml_tag"),
    "a lone surrogate": (with_line(b'x: "\\ud800"'), "yaml_syntax"),
    "no frontmatter": (b"# only Markdown\n", "frontmatter_missing"),
    "nothing": (b"", "frontmatter_missing"),
    "a frontmatter without an end": (b"---\nid: a\n", "frontmatter_not_closed"),
    "a list as frontmatter": (b"---\n- a\n---\n", "frontmatter_not_a_mapping"),
    "5,000,001 bytes": (PLAIN + b"x" * (RECORD_MAX_BYTES + 1 - len(PLAIN)), "too_large"),
}


@pytest.mark.parametrize("what", UNREADABLE)
def test_an_unreadable_text_is_named_and_kept_and_everything_else_answers(desk: Desk, what: str) -> None:
    data, code = UNREADABLE[what]
    path = write_note(desk.folder(), "bad.md", PLAIN.decode())
    write_note(desk.folder(), "good.md", page_file("good", "Good"))
    assert ids(desk) == ["bad", "good"]
    path.write_bytes(data)
    assert code in findings(desk)["bad.md"]
    assert desk.call("record", {"id": "bad"}) == {"record": None}
    assert desk.call("lookup", {"query": "Good"})["state"] == "found"
    assert desk.call("grep", {"query": "good"})["total"] == 1
    assert desk.call("records")["coverage"] == {"broken": 1}
    assert desk.page("Another")["id"]
    assert path.read_bytes() == data
    assert kept(desk, PLAIN)
    assert kept(desk, data) == (len(data) <= RECORD_MAX_BYTES)
    path.write_bytes(PLAIN)
    assert desk.record("bad")["title"] == "Bad"
    assert "bad.md" not in findings(desk)


READABLE = {
    "a byte order mark": (b"\xef\xbb\xbf" + PLAIN, "About it.\n"),
    "CRLF": (PLAIN.replace(b"\n", b"\r\n"), "About it.\r\n"),
    "lone CR": (PLAIN.replace(b"\n", b"\r"), "About it.\r"),
    "both ends mixed": (PLAIN + b"a\r\nb\rc\n", "About it.\na\r\nb\rc\n"),
    "other line breaks": (PLAIN + "a\u2028b\u0085c\n".encode(), "About it.\na\u2028b\u0085c\n"),
    "rules inside the body": (PLAIN + b"---\nid: other\n---\n", "About it.\n---\nid: other\n---\n"),
    "no end of line": (PLAIN.removesuffix(b"\n"), "About it."),
}


@pytest.mark.parametrize("what", READABLE)
def test_an_unusual_text_is_a_record_and_an_edit_keeps_every_other_byte(desk: Desk, what: str) -> None:
    data, body = READABLE[what]
    path = desk.folder() / "bad.md"
    path.write_bytes(data)
    found = desk.record("bad")
    assert (found["title"], found["body"], found["hash"]) == ("Bad", body, content_hash(data))
    assert findings(desk) == {}
    edited = desk.call(
        "edit_body",
        {
            "requestId": request_id(91),
            "id": "bad",
            "expectedRevision": found["revision"],
            "expectedHash": found["hash"],
            "expectedVaultId": desk.session.vault_id,
            "expectedOntologyFingerprint": desk.session.partition(PRIVATE).ontology.fingerprint,
            "start": 0,
            "end": 5,
            "replacement": "Around",
            "reason": "another word",
        },
    )
    after = path.read_bytes()
    assert edited["hash"] == content_hash(after)
    assert desk.record("bad")["body"] == body.replace("About", "Around", 1)
    before_lines, after_lines = data.splitlines(keepends=True), after.splitlines(keepends=True)
    changed = (
        [(old, new) for old, new in zip(before_lines, after_lines, strict=True) if old != new]
        if b"\r" not in data.replace(b"\r\n", b"")
        else []
    )
    assert all(old.startswith((b"revision", b"updated_at", b"About")) for old, _ in changed)


def test_a_nul_in_the_body_is_named_and_its_record_is_read_but_not_current(desk: Desk) -> None:
    (desk.folder() / "bad.md").write_bytes(PLAIN + b"a\0b\n")
    assert findings(desk) == {"bad.md": ["nul"]}
    assert desk.record("bad")["body"] == "About it.\na\0b\n"
    assert desk.call("grep", {"query": "Bad"})["total"] == 0


def test_exactly_5_000_000_bytes_are_a_record_and_a_save_beyond_them_is_refused(desk: Desk) -> None:
    path = desk.folder() / "bad.md"
    path.write_bytes(PLAIN + b"x" * (RECORD_MAX_BYTES - len(PLAIN)))
    found = desk.record("bad")
    assert findings(desk) == {}
    error = desk.fails(
        "edit_body",
        {
            "requestId": request_id(91),
            "id": "bad",
            "expectedRevision": found["revision"],
            "expectedHash": found["hash"],
            "expectedVaultId": desk.session.vault_id,
            "expectedOntologyFingerprint": desk.session.partition(PRIVATE).ontology.fingerprint,
            "start": 0,
            "end": 1,
            "replacement": "東",  # as many characters: no matter of its budget
            "reason": "too much",
        },
    )
    assert isinstance(error, LimitExceeded)
    assert path.stat().st_size == RECORD_MAX_BYTES


# --- kinds of files -------------------------------------------------------------------------------------------------


def symlink(path: Path, outside: Path) -> None:
    path.symlink_to(outside)


def hardlink(path: Path, outside: Path) -> None:
    os.link(outside, path)


def fifo(path: Path, outside: Path) -> None:
    os.mkfifo(path)


def unix_socket(path: Path, outside: Path) -> None:
    here = os.open(path.parent, os.O_RDONLY)
    try:  # by a short path: a socket's is bounded
        with socket.socket(socket.AF_UNIX) as bound:
            bound.bind(f"/proc/self/fd/{here}/{path.name}")
    finally:
        os.close(here)


def folder(path: Path, outside: Path) -> None:
    path.mkdir()
    (path / "inside.md").write_text(page_file("inside", "Inside"))


def symlink_to_nothing(path: Path, outside: Path) -> None:
    path.symlink_to(outside.with_name("missing"))


def symlink_to_itself(path: Path, outside: Path) -> None:
    path.symlink_to(path)


KINDS: dict[Callable[[Path, Path], None], str] = {
    symlink: "symlink",
    symlink_to_nothing: "symlink",
    symlink_to_itself: "symlink",
    hardlink: "hardlink",
    fifo: "not_a_file",
    unix_socket: "not_a_file",
    folder: "folder_named_as_note",
}


@pytest.mark.parametrize("partition", [PRIVATE, GROUP_PARTITION], ids=["watched", "scanned"])
@pytest.mark.parametrize("make", KINDS, ids=lambda make: make.__name__)
def test_what_is_no_plain_file_is_named_never_read_and_blocks_nothing(
    desk: Desk, tmp_path: Path, make: Callable[[Path, Path], None], partition: Partition
) -> None:
    root = desk.folder(partition)
    outside = write_note(tmp_path, "outside.md", page_file("secret", "Secret", partition=partition))
    path = write_note(root, "people/bad.md", page_file("bad", "Bad", partition=partition))
    write_note(root, "people/good.md", page_file("good", "Good", partition=partition))
    assert ids(desk, partition) == ["bad", "good"]
    original = path.read_bytes()
    path.unlink()
    make(path, outside)
    assert ids(desk, partition) == ["good"]
    assert findings(desk, partition) == {"people/bad.md": [KINDS[make]]}
    assert desk.call("records", partition=partition)["coverage"] == {"refused": 1}
    assert desk.call("lookup", {"query": "Secret"}, partition=partition)["state"] == "missing"
    assert kept(desk, original)
    desk.close()
    assert ids(desk, partition) == ["good"]
    if stat.S_ISDIR(path.lstat().st_mode):
        path.rename(tmp_path / "taken away")
    else:
        path.unlink()
    path.write_bytes(original)
    assert ids(desk, partition) == ["bad", "good"]
    assert findings(desk, partition) == {}


@pytest.mark.parametrize("partition", [PRIVATE, GROUP_PARTITION], ids=["watched", "scanned"])
def test_a_linked_folder_is_named_and_never_entered(desk: Desk, tmp_path: Path, partition: Partition) -> None:
    write_note(tmp_path, "outside/note.md", page_file("secret", "Secret", partition=partition))
    write_note(desk.folder(partition), "good.md", page_file("good", "Good", partition=partition))
    (desk.folder(partition) / "linked").symlink_to(tmp_path / "outside")
    assert ids(desk, partition) == ["good"]
    assert findings(desk, partition) == {"linked": ["symlink"]}


def test_a_note_that_becomes_a_link_between_the_look_and_the_read_is_not_followed(desk: Desk, tmp_path: Path) -> None:
    outside = write_note(tmp_path, "outside.md", page_file("secret", "Secret"))
    path = write_note(desk.folder(), "bad.md", page_file("bad", "Bad"))

    def swap() -> None:
        path.unlink()
        path.symlink_to(outside)

    with at_point("edits.read", swap):
        assert ids(desk) == []
    assert findings(desk) == {"bad.md": ["symlink"]}
    assert not kept(desk, outside.read_bytes())


def test_a_folder_that_becomes_a_link_between_the_look_and_the_read_is_not_followed(desk: Desk, tmp_path: Path) -> None:
    outside = write_note(tmp_path, "outside/bad.md", page_file("secret", "Secret")).parent
    here = write_note(desk.folder(), "people/bad.md", page_file("bad", "Bad")).parent
    write_note(desk.folder(), "good.md", page_file("good", "Good"))

    def swap() -> None:
        here.rename(tmp_path / "moved away")
        here.symlink_to(outside)

    desk.session.partition(PRIVATE)
    with at_point("edits.folder", swap, when=2):
        assert ids(desk) == ["good"]
    assert findings(desk) == {"people": ["symlink"]}


def test_a_file_that_vanishes_while_it_is_read_is_simply_gone(desk: Desk) -> None:
    path = write_note(desk.folder(), "bad.md", page_file("bad", "Bad"))
    write_note(desk.folder(), "good.md", page_file("good", "Good"))
    with at_point("edits.read", path.unlink):
        assert ids(desk) == ["good"]
    known = write_note(desk.folder(), "good.md", page_file("good", "Gone"))
    with at_point("edits.read", known.unlink):
        assert ids(desk) == []
    assert histories(desk, "good")[-1][2] is None
    assert findings(desk) == {}


def test_a_folder_that_vanishes_while_its_file_is_read_is_simply_gone(desk: Desk, tmp_path: Path) -> None:
    path = write_note(desk.folder(), "people/bad.md", page_file("bad", "Bad"))
    with at_point("edits.folder", lambda: path.parent.rename(tmp_path / "away")):
        assert ids(desk) == []
    assert findings(desk) == {}


def test_a_file_that_grows_past_the_limit_while_it_is_read_is_named(desk: Desk) -> None:
    path = write_note(desk.folder(), "bad.md", page_file("bad", "Bad"))
    with at_point("edits.read.read", lambda: os.truncate(path, RECORD_MAX_BYTES + 1)):
        assert ids(desk) == []
    assert findings(desk) == {"bad.md": ["too_large"]}


def test_a_file_that_keeps_changing_while_it_is_read_is_answered_from_no_part(desk: Desk) -> None:
    path = write_note(desk.folder(), "bad.md", page_file("bad", "Bad"))

    def append(point: str) -> None:
        if point == "edits.read.stat":
            with path.open("a") as file:
                file.write("more\n")

    with faults.installed(append):
        assert isinstance(desk.fails("records"), ScanIncomplete)
    assert ids(desk) == ["bad"]
    assert str(desk.record("bad")["body"]).endswith("more\n")


@pytest.mark.parametrize("point", ["edits.read", "edits.read.read", "edits.read.stat", "edits.folder"])
def test_a_failing_disk_is_scan_incomplete_and_no_defect(desk: Desk, point: str) -> None:
    write_note(desk.folder(), "bad.md", page_file("bad", "Bad"))

    def fail() -> None:
        raise OSError(5, "Input/output error")

    with at_point(point, fail):
        error = desk.fails("records")
    assert isinstance(error, ScanIncomplete)
    assert error.fields["path"] == "bad.md"
    assert error.fields["reason"] == "EIO"
    assert ids(desk) == ["bad"]


@pytest.mark.parametrize("point", ["target.stat", "target.list", "open.folder"])
def test_a_disk_that_fails_where_a_free_name_is_looked_for_is_a_storage_error(desk: Desk, point: str) -> None:
    desk.page("Kept")
    met = False

    def handler(reached: str) -> None:
        nonlocal met
        if reached == point and not met:
            met = True
            raise OSError(5, "Input/output error")

    with faults.installed(handler):
        error = desk.fails("save_page", {"title": "New", "type": "project", "body": ""})
    assert met
    assert error.code == "storage_error"
    assert desk.page("New")["revision"] == 1


# --- rights ---------------------------------------------------------------------------------------------------------


def test_an_unreadable_file_is_named_and_an_unreadable_folder_fails_the_scan(made_store: StoreLayout) -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        folder.chmod(0o755)
        layout = copy_store(made_store, folder / "store")
        write_note(layout.partition(PRIVATE), "people/good.md", page_file("good", "Good"))
        write_note(layout.partition(PRIVATE), "projects/bad.md", page_file("bad", "Bad"))
        warm_up(layout)
        assert without_privileges(folder, lambda: deny(layout)) == {
            "at first": ["bad", "good"],
            "file denied": ["good"],
            "findings": {"projects/bad.md": ["unreadable"]},
            "saved beside it": True,
            "opened anew": ["good"],
            "file allowed": ["bad", "good"],
            "findings then": {},
            "folder denied": ["scan_incomplete", "projects"],
            "folder denied, opened anew": ["scan_incomplete", "projects"],
            "receipt meanwhile": True,
            "folder allowed": ["bad", "good"],
            "ontology denied": ["unreadable"],
            "texts": True,
        }


def warm_up(layout: StoreLayout) -> None:
    """Import all that a child without rights to the interpreter's folders will use."""
    desk = Desk(layout)
    ids(desk)
    desk.page("Warm", type="concept")
    path = desk.path_of(str(rows(desk.call("lookup", {"query": "Warm"})["hits"])[0]["id"]))
    path.unlink()
    desk.fails("record", {"id": ""})
    desk.close()


def deny(layout: StoreLayout) -> JsonObject:
    desk = Desk(layout)
    desk._requests = 100
    bad = desk.folder() / "projects/bad.md"
    text = bad.read_bytes()
    said: JsonObject = {"at first": list(ids(desk))}
    bad.chmod(0)
    said["file denied"] = ids(desk)
    said["findings"] = {path: list(codes) for path, codes in findings(desk).items()}
    said["saved beside it"] = bool(desk.page("Extra", type="concept")["id"])
    extra = desk.path_of(str(rows(desk.call("lookup", {"query": "Extra"})["hits"])[0]["id"]))
    extra.unlink()
    desk.close()
    said["opened anew"] = ids(desk)
    bad.chmod(0o600)
    said["file allowed"] = list(ids(desk))
    said["findings then"] = {path: list(codes) for path, codes in findings(desk).items()}
    page: JsonObject = {"title": "Last", "type": "concept", "body": "x", "requestId": request_id(90)}
    receipt = desk.call("save_page", page)
    assert desk.close()  # all that was saved is in place and synced before the folder is shut
    ids(desk)
    bad.parent.chmod(0)
    said["folder denied"] = refusal_of(desk)
    desk.close()
    said["folder denied, opened anew"] = refusal_of(desk)
    said["receipt meanwhile"] = desk.call("save_page", page) == receipt
    bad.parent.chmod(0o700)
    desk.path_of(str(receipt["id"])).unlink()
    said["folder allowed"] = list(ids(desk))
    ontology = desk.folder() / "ontology.yaml"
    ontology.write_text("format: knowledge-ontology-v1\nextends: core\n")
    ontology.chmod(0)
    said["ontology denied"] = list(findings(desk)["ontology.yaml"])
    said["texts"] = kept(desk, text) and bad.read_bytes() == text
    desk.close()
    return said


def refusal_of(desk: Desk) -> JsonValue:
    error = desk.fails("records")
    return [error.code, error.fields.get("folder", "")]


def without_privileges(folder: Path, act: Callable[[], JsonObject]) -> JsonObject:
    """What ``act`` gives in a child process that may read only what its own user may; it owns ``folder``."""
    read, write = os.pipe()
    privileged = os.getuid() == 0
    if privileged:
        for found in (folder, *folder.rglob("*")):
            os.chown(found, 65534, 65534, follow_symlinks=False)
    child = os.fork()
    if child == 0:
        answer: JsonObject
        try:
            if privileged:
                os.setgroups([])
                os.setgid(65534)
                os.setuid(65534)
            answer = act()
        except BaseException as error:  # noqa: BLE001 - the parent shows it
            import traceback

            answer = {"failed": repr(error), "at": traceback.format_exc()[-2_000:]}
        os.write(write, json.dumps(answer).encode())
        os._exit(0)
    os.close(write)
    with os.fdopen(read, "rb") as pipe:
        said: JsonObject = json.loads(pipe.read())
    os.waitpid(child, 0)
    assert "failed" not in said, said["at"]
    return said


# --- names ----------------------------------------------------------------------------------------------------------


def test_names_that_differ_by_case_or_unicode_form_are_all_read_and_named(desk: Desk) -> None:
    composed, decomposed = unicodedata.normalize("NFC", "été.md"), unicodedata.normalize("NFD", "été.md")
    write_notes(
        desk.folder(),
        [
            ("people/Ann.md", page_file("a1", "Ann One")),
            ("people/ann.md", page_file("a2", "Ann Two")),
            (composed, page_file("e1", "Summer One")),
            (decomposed, page_file("e2", "Summer Two")),
        ],
    )
    assert list(ids(desk)) == ["a1", "a2", "e1", "e2"]
    assert findings(desk) == {"people/ann.md": ["name_twin"], max(composed, decomposed): ["name_twin"]}
    (desk.folder() / "people/ann.md").unlink()
    (desk.folder() / decomposed).unlink()
    assert findings(desk) == {}


def test_names_are_compared_again_only_once_something_was_written(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    compared: list[int] = []

    def comparing(paths: Iterable[str]) -> list[ScanFinding]:
        listed = list(paths)
        compared.append(len(listed))
        return twins(listed)

    monkeypatch.setattr("storage.session.twins", comparing)
    write_notes(desk.folder(), [("people/Ann.md", page_file("a1", "Ann One"))])
    for _ in range(3):
        assert findings(desk) == {}
    assert compared == [1]
    write_notes(desk.folder(), [("people/ann.md", "no envelope")])
    for _ in range(3):
        assert findings(desk)["people/ann.md"][-1] == "name_twin"
    assert compared == [1, 2]
    desk.page("Pilot")
    findings(desk)
    assert compared == [1, 2, 3]


def test_a_new_page_never_takes_a_name_that_differs_by_case_or_form_only(desk: Desk) -> None:
    write_note(desk.folder(), "projects/ÉTÉ.md", page_file("e1", "Something"))
    page = desk.page(unicodedata.normalize("NFD", "été"))
    path = desk.path_of(str(page["id"]))
    assert path.name.startswith("été-")
    assert (desk.folder() / "projects/ÉTÉ.md").read_text() == page_file("e1", "Something")


@pytest.mark.parametrize(
    "title", ["index", "CON", "aux", "nul.txt", "com1", "..", ".", "-", "a/b", "a\\b:c*?", "x" * 200]
)
def test_a_title_is_never_a_reserved_or_unsafe_file_name(desk: Desk, title: str) -> None:
    page = desk.page(title)
    path = desk.path_of(str(page["id"]))
    stem = path.name.removesuffix(".md").split(".")[0]
    assert path.parent == desk.folder() / "projects"
    assert stem.upper() not in {"INDEX", "CON", "PRN", "AUX", "NUL", "COM1", "LPT1", ""}
    assert len(path.name.encode()) <= 255
    assert not set(path.name) & set('<>:"/\\|?*')
    assert desk.record(page["id"])["title"] == title


@pytest.mark.parametrize("length", [201, 300])
def test_a_title_longer_than_200_characters_is_refused_and_nothing_is_saved(desk: Desk, length: int) -> None:
    before = sorted(desk.folder().rglob("*"))
    error = desk.fails("save_page", {"title": "x" * length, "type": "project", "body": "b"})
    assert error.fields["field"] == "title"
    assert sorted(desk.folder().rglob("*")) == before


def test_a_300_character_title_written_by_hand_is_shown_and_can_be_found(desk: Desk) -> None:
    write_note(desk.folder(), "long.md", page_file("long", "y" * 300))
    found = desk.call("record", {"id": "long"})["record"]
    assert isinstance(found, dict)
    assert desk.call("records")["records"]


@pytest.mark.parametrize(
    "name",
    [
        "CON.md",
        "aux.md",
        "a\nb.md",
        "a\tb.md",
        "a'b\"c.md",
        "..md",
        " .md",
        "-rf.md",
        "%2e.md",
        "é" * 120 + ".md",
        "x.MD",
    ],
)
def test_a_name_of_a_person_is_read_whatever_other_systems_think_of_it(desk: Desk, name: str) -> None:
    write_note(desk.folder(), f"people/{name}", page_file("p", "Person"))
    if name.startswith("."):
        assert ids(desk) == []
        return
    found = desk.record("p")
    saved = desk.call(
        "save_page",
        {
            "id": "p",
            "expectedRevision": found["revision"],
            "expectedHash": found["hash"],
            "title": "Person",
            "type": "project",
            "body": "saved\n",
        },
    )
    path = desk.folder() / "people" / name
    assert saved["hash"] == content_hash(path.read_bytes())
    desk.close()
    assert desk.record("p")["body"] == "saved\n"


@pytest.mark.parametrize("partition", [PRIVATE, GROUP_PARTITION], ids=["watched", "scanned"])
def test_a_name_that_is_not_utf8_is_named_and_blocks_nothing(desk: Desk, partition: Partition) -> None:
    root = desk.folder(partition)
    write_note(root, "good.md", page_file("good", "Good", partition=partition))
    assert ids(desk, partition) == ["good"]
    raw = os.fsencode(root)
    Path(os.fsdecode(raw + b"/b\xffd.md")).write_text(page_file("bad", "Bad", partition=partition))
    os.mkdir(raw + b"/f\xfe")
    Path(os.fsdecode(raw + b"/f\xfe/inside.md")).write_text(page_file("inside", "Inside", partition=partition))
    assert ids(desk, partition) == ["good"]
    assert findings(desk, partition) == {"b\\xffd.md": ["name_not_utf8"], "f\\xfe": ["name_not_utf8"]}
    json.dumps(desk.call("status", partition=partition), ensure_ascii=False).encode()
    os.rename(raw + b"/b\xffd.md", raw + b"/bad.md")
    assert ids(desk, partition) == ["bad", "good"]
    assert findings(desk, partition) == {"f\\xfe": ["name_not_utf8"]}


@pytest.mark.parametrize(
    "name",
    [
        *(".note.md.swp", ".#note.md", "#note.md#", "note.md~", "~$note.md", "4913"),
        *(".goutputstream-X1", "note.md.tmp", "note.md.sb-1a2b", ".syncthing.note.md.tmp", ".~lock.note.md#"),
    ],
)
def test_an_editors_temporary_file_is_never_a_record(desk: Desk, name: str) -> None:
    text = page_file("note", "Note")
    write_note(desk.folder(), "note.md", text)
    write_note(desk.folder(), name, text.replace("About it.", "half of a"))
    assert desk.record("note")["body"] == "About it.\n"
    assert findings(desk) == {}
    (desk.folder() / name).rename(desk.folder() / "note.md")
    assert desk.record("note")["body"] == "half of a\n"


# --- amounts --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("number", [600, pytest.param(2_000, marks=pytest.mark.slow)])
def test_a_flood_of_new_files_is_exact_in_the_next_answer(desk: Desk, number: int) -> None:
    assert ids(desk) == []
    for n in range(number):
        write_note(desk.folder(), f"people/{n % 7}/p{n}.md", page_file(f"p{n}", f"Person {n}", type="person"))
    assert desk.call("records", {"limit": 1})["total"] == number
    assert desk.call("lookup", {"query": f"person {number - 1}"})["state"] == "found"
    assert desk.call("grep", {"query": "person"})["total"] == number
    assert desk.call("history", {"limit": 1})["total"] == number


@pytest.mark.parametrize("partition", [PRIVATE, GROUP_PARTITION], ids=["watched", "scanned"])
def test_more_entries_than_the_limit_fail_as_scan_incomplete_and_fewer_answer_again(
    made_store: StoreLayout, tmp_path: Path, partition: Partition
) -> None:
    desk = Desk(copy_store(made_store, tmp_path / "store"), limits=ScanLimits(entries=20))
    try:
        write_note(desk.folder(partition), "good.md", page_file("good", "Good", partition=partition))
        assert ids(desk, partition) == ["good"]
        junk = [write_note(desk.folder(partition), f"junk/{n}.txt", "no note") for n in range(25)]
        desk.close()
        error = desk.fails("records", partition=partition)
        assert isinstance(error, ScanIncomplete)
        assert error.fields["limit"] == 20
        for path in junk[:10]:
            path.unlink()
        assert ids(desk, partition) == ["good"]
        full = desk.fails("save_page", {"title": "More", "type": "project", "body": "b"}, partition=partition)
        assert isinstance(full, PartitionFull)
    finally:
        desk.close()


def test_diagnostics_list_at_most_what_was_asked_and_tell_how_many_there_are(desk: Desk) -> None:
    write_notes(desk.folder(), ((f"broken/{n:04}.md", "---\nid: [\n---\n") for n in range(1_005)))
    listed, total = desk.partition().diagnostics(1_000)
    assert (len(listed), total) == (1_000, 1_005)
    assert [found.path for found in listed] == [f"broken/{n:04}.md" for n in range(1_000)]


# --- identity -------------------------------------------------------------------------------------------------------


def fenced(desk: Desk, path: Path, record_id: str) -> JsonObject:
    entry = next(e for e in desk.partition().catalogue.by_id(record_id) if desk.folder() / e.path == path)
    return {"id": record_id, "expectedRevision": entry.revision, "expectedHash": entry.hash}


def test_two_files_with_one_id_are_all_listed_never_chosen_from_and_never_written(desk: Desk) -> None:
    first = write_note(desk.folder(), "a.md", page_file("same", "First", aliases=["Shared"]))
    second = write_note(desk.folder(), "b.md", page_file("same", "Second"))
    assert ids(desk) == ["same", "same"]
    assert {row["title"] for row in rows(desk.call("records")["records"])} == {"First", "Second"}
    assert desk.call("record", {"id": "same"}) == {"record": None}
    assert desk.call("lookup", {"query": "same"})["state"] == "missing"
    texts = {path: path.read_bytes() for path in (first, second)}
    for path in (first, second):
        error = desk.fails("save_page", {**fenced(desk, path, "same"), "title": "X", "type": "project", "body": "x"})
        assert isinstance(error, Ambiguous)
        assert error.fields["paths"] == ["a.md", "b.md"]
    assert {path: path.read_bytes() for path in (first, second)} == texts
    second.unlink()
    assert desk.record("same")["title"] == "First"
    saved = desk.call("save_page", {**fenced(desk, first, "same"), "title": "X", "type": "project", "body": "x"})
    assert saved["revision"] == 2


def test_each_of_two_files_with_one_id_has_its_own_history(desk: Desk) -> None:
    first = write_note(desk.folder(), "a.md", page_file("same", "First"))
    second = write_note(desk.folder(), "b.md", page_file("same", "Second"))
    old = [content_hash(path.read_bytes()) for path in (first, second)]
    assert sorted(histories(desk, "same")) == [("a.md", None, old[0]), ("b.md", None, old[1])]
    for path in (first, second):
        path.write_text(path.read_text() + "more\n")
    new = [content_hash(path.read_bytes()) for path in (first, second)]
    assert sorted(histories(desk, "same")[2:]) == [("a.md", old[0], new[0]), ("b.md", old[1], new[1])]
    first.unlink()
    second.write_text(second.read_text() + "last\n")
    last = content_hash(second.read_bytes())
    assert histories(desk, "same")[4:] == [("a.md", new[0], None), ("b.md", new[1], last)]


def test_an_id_that_moves_between_files_is_one_record_and_one_entry(desk: Desk) -> None:
    first = write_note(desk.folder(), "a.md", page_file("one", "One"))
    second = write_note(desk.folder(), "b.md", page_file("two", "Two"))
    before = {path: content_hash(path.read_bytes()) for path in (first, second)}
    assert ids(desk) == ["one", "two"]
    first.rename(desk.layout.root / "held.md")
    second.rename(first)
    (desk.layout.root / "held.md").rename(second)
    assert desk.path_of("one") == second
    assert desk.path_of("two") == first
    assert histories(desk, "one")[1:] == [("b.md", before[first], before[first])]
    assert histories(desk, "two")[1:] == [("a.md", before[second], before[second])]


def test_a_file_that_becomes_another_record_ends_the_first_and_begins_the_second(desk: Desk) -> None:
    path = write_note(desk.folder(), "a.md", page_file("one", "One"))
    old = content_hash(path.read_bytes())
    assert ids(desk) == ["one"]
    path.write_text(page_file("two", "Two"))
    new = content_hash(path.read_bytes())
    assert ids(desk) == ["two"]
    assert desk.call("record", {"id": "one"}) == {"record": None}
    assert histories(desk, "one")[1:] == [("a.md", old, None)]
    assert histories(desk, "two") == [("a.md", None, new)]
    path.write_text(page_file("one", "One"))
    assert desk.record("one")["title"] == "One"
    assert histories(desk, "two")[-1] == ("a.md", new, None)


def test_a_page_that_becomes_a_claim_is_a_claim(desk: Desk) -> None:
    path = write_note(desk.folder(), "a.md", page_file("one", "One", aliases=["Uno"]))
    assert desk.call("lookup", {"query": "uno"})["state"] == "found"
    path.write_text(claim_file("one", "One is a claim now."))
    assert desk.call("lookup", {"query": "uno"})["state"] == "missing"
    [row] = rows(desk.call("records")["records"])
    assert row["kind"] == "claim"


@pytest.mark.parametrize("meanwhile", ["broken", "away", "copied"])
def test_a_lowered_revision_counts_from_the_last_known_one(desk: Desk, meanwhile: str) -> None:
    path = write_note(desk.folder(), "a.md", page_file("one", "One").replace("revision: 1", "revision: 7"))
    assert desk.record("one")["revision"] == 7
    if meanwhile == "broken":
        path.write_text("---\nid: [\n---\n")
    elif meanwhile == "away":
        path.unlink()
    else:
        write_note(desk.folder(), "b.md", path.read_text())
    ids(desk)
    path.write_text(page_file("one", "One"))
    (desk.folder() / "b.md").unlink(missing_ok=True)
    found = desk.record("one")
    assert found["revision"] == 7
    saved = desk.call("save_page", {**fenced(desk, path, "one"), "title": "One", "type": "project", "body": "x"})
    assert saved["revision"] == 8


# --- scope ----------------------------------------------------------------------------------------------------------


def everything(desk: Desk, partition: Partition) -> str:
    """All that the tools say of a partition."""
    said = [
        desk.call(tool, arguments, partition=partition)
        for tool, arguments in (
            ("status", {}),
            ("records", {"lifecycle": "all"}),
            ("history", {"limit": 100}),
            ("history", {"id": "moved"}),
            ("record", {"id": "moved"}),
            ("lookup", {"query": "Confidential Plan"}),
            ("grep", {"query": "confidential"}),
        )
    ]
    return json.dumps(said)


@pytest.mark.parametrize(
    ("source", "target"), [(PRIVATE, GROUP_PARTITION), (GROUP_PARTITION, PRIVATE)], ids=["into", "out of"]
)
def test_a_record_moved_between_private_and_a_conversation_is_withheld_and_told_by_its_number_only(
    desk: Desk, source: Partition, target: Partition
) -> None:
    text = page_file("moved", "Confidential Plan", body="Confidential words.\n", partition=source)
    path = write_note(desk.folder(source), "projects/confidential-plan.md", text)
    write_note(desk.folder(target), "good.md", page_file("good", "Good", partition=target))
    assert ids(desk, source) == ["moved"]
    assert ids(desk, target) == ["good"]
    there = write_note(desk.folder(target), "projects/confidential-plan.md", text)
    path.unlink()
    assert ids(desk, source) == []
    assert ids(desk, target) == ["good"]
    assert desk.call("records", partition=target)["coverage"] == {"withheld": 1}
    assert "onfidential" not in everything(desk, target)
    for row in rows(desk.call("history", {"limit": 100}, partition=target)["rows"]):
        error = _refused(desk, {"id": "moved", "sequence": row["sequence"]}, target)
        assert error is not None
        assert error.code == "not_found"
    assert there.read_text() == text
    assert kept(desk, text.encode())
    there.rename(path)
    assert ids(desk, source) == ["moved"]
    assert ids(desk, target) == ["good"]
    assert "coverage" not in desk.call("records", partition=target)
    assert "onfidential" not in everything(desk, target)


def _refused(desk: Desk, arguments: JsonObject, partition: Partition) -> KnowledgeError | None:
    try:
        desk.call("revision", arguments, partition=partition)
    except KnowledgeError as error:
        return error
    return None


def test_a_record_whose_scope_is_changed_in_place_is_gone_from_its_history_and_comes_back(desk: Desk) -> None:
    text = page_file("moved", "Plan", body="before\n")
    path = write_note(desk.folder(), "plan.md", text)
    assert ids(desk) == ["moved"]
    other = text.replace('scope: {"visibility": "private"}', "scope: nobody").replace("before", "Confidential")
    path.write_text(other)
    assert ids(desk) == []
    assert histories(desk, "moved")[-1] == ("plan.md", content_hash(text.encode()), None)
    assert "onfidential" not in everything(desk, PRIVATE)
    assert kept(desk, other.encode())
    path.write_text(text)
    assert desk.record("moved")["body"] == "before\n"


# --- below ----------------------------------------------------------------------------------------------------------


# --- the limits of frontmatter and folders, at their edge -----------------------------------------------------------


def test_20_levels_of_frontmatter_are_a_record(desk: Desk) -> None:
    path = write_note(desk.folder(), "bad.md", "")
    path.write_bytes(with_line(b"x: " + b"{a: " * 19 + b"1" + b"}" * 19))
    assert ids(desk) == ["bad"]
    assert findings(desk) == {}
    path.write_bytes(with_line(b"x: " + b"{a: " * 20 + b"1" + b"}" * 20))
    assert findings(desk) == {"bad.md": ["yaml_depth"]}


@pytest.mark.parametrize("partition", [PRIVATE, GROUP_PARTITION], ids=["watched", "scanned"])
def test_a_ninth_folder_is_named_and_never_entered_and_the_eighth_is(desk: Desk, partition: Partition) -> None:
    eight = "/".join("12345678")
    write_note(desk.folder(partition), f"{eight}/good.md", page_file("good", "Good", partition=partition))
    deep = write_note(desk.folder(partition), f"{eight}/9/bad.md", page_file("bad", "Bad", partition=partition))
    assert ids(desk, partition) == ["good"]
    assert findings(desk, partition) == {f"{eight}/9": ["too_deep"]}
    deep.rename(deep.parent.parent / "bad.md")
    assert ids(desk, partition) == ["bad", "good"]


# --- the ontology's file --------------------------------------------------------------------------------------------

DISH = b"format: knowledge-ontology-v1\nextends: core\npages:\n  dish:\n    description: Food\n    folder: dishes\n"
BAD_ONTOLOGIES = {
    "broken YAML": DISH + b"x: [\n",
    "a NUL": DISH + b"# \0\n",
    "bytes that are not UTF-8": DISH + b"# \xff\n",
    "a key twice": DISH + b"extends: core\n",
    "21 levels": DISH + b"x: " + b"[" * 20 + b"]" * 20 + b"\n",
    "an alias bomb": DISH + BOMB,
    "a tag": DISH + b"x: !!python/object/apply:os.system [id]\n",
    "65,537 bytes": DISH + b"#" + b"x" * (ONTOLOGY_MAX_BYTES - len(DISH) - 1) + b"\n",
    "nothing": b"",
}


@pytest.mark.parametrize("what", BAD_ONTOLOGIES)
def test_an_ontology_with_any_error_is_named_and_core_stays_effective(desk: Desk, what: str) -> None:
    write_note(desk.folder(), "good.md", page_file("good", "Good"))
    path = desk.folder() / "ontology.yaml"
    path.write_bytes(BAD_ONTOLOGIES[what])
    assert ids(desk) == ["good"]
    assert "dish" not in desk.session.partition(PRIVATE).ontology.pages
    assert "ontology.yaml" in findings(desk)
    assert desk.page("Another")["id"]
    assert path.read_bytes() == BAD_ONTOLOGIES[what]
    path.write_bytes(DISH)
    assert "dish" in desk.partition().ontology.pages
    assert findings(desk) == {}


def test_exactly_64_kib_of_ontology_are_activated(desk: Desk) -> None:
    data = DISH + b"#" + b"x" * (ONTOLOGY_MAX_BYTES - len(DISH) - 2) + b"\n"
    assert len(data) == ONTOLOGY_MAX_BYTES
    (desk.folder() / "ontology.yaml").write_bytes(data)
    assert "dish" in desk.partition().ontology.pages


@pytest.mark.parametrize("make", KINDS, ids=lambda make: make.__name__)
def test_an_ontology_that_is_no_plain_file_is_named_and_never_read(
    desk: Desk, tmp_path: Path, make: Callable[[Path, Path], None]
) -> None:
    write_note(desk.folder(), "good.md", page_file("good", "Good"))
    outside = tmp_path / "outside.yaml"
    outside.write_bytes(DISH)
    make(desk.folder() / "ontology.yaml", outside)
    for _ in range(2):
        # A folder of that name is a folder like any other.
        assert ids(desk) == (["good", "inside"] if make is folder else ["good"])
        assert "dish" not in desk.session.partition(PRIVATE).ontology.pages
        assert "ontology.yaml" in findings(desk)
        desk.close()
    assert outside.read_bytes() == DISH


def test_an_ontology_that_vanishes_while_it_is_read_is_simply_gone(desk: Desk) -> None:
    write_note(desk.folder(), "good.md", page_file("good", "Good"))
    path = desk.folder() / "ontology.yaml"
    path.write_bytes(DISH)
    with at_point("session.read", path.unlink):
        assert ids(desk) == ["good"]
    assert findings(desk) == {}


# --- the store's manifest -------------------------------------------------------------------------------------------


def oversize(path: Path, outside: Path) -> None:
    path.write_bytes(outside.read_bytes() + b" " * MANIFEST_MAX_BYTES)


def nothing_at_all(path: Path, outside: Path) -> None:
    assert not path.exists()


@pytest.mark.parametrize("opened", [True, False], ids=["open", "closed"])
@pytest.mark.parametrize(
    "make", [*(kind for kind in KINDS if kind is not folder), oversize, nothing_at_all], ids=lambda make: make.__name__
)
def test_a_manifest_that_is_no_plain_small_file_fails_closed_and_is_never_replaced(
    desk: Desk, tmp_path: Path, make: Callable[[Path, Path], None], opened: bool
) -> None:
    write_note(desk.folder(), "good.md", page_file("good", "Good"))
    assert ids(desk) == ["good"]
    manifest, outside = desk.layout.vault / "vault.json", tmp_path / "outside.json"
    if not opened:
        desk.close()
    manifest.rename(outside)
    make(manifest, outside)
    seen = manifest.lstat() if make is not nothing_at_all else None
    for _ in range(2):
        with pytest.raises(FailedClosed):
            desk.partition()
    assert (manifest.lstat() if seen is not None else None) == seen
    assert make is not nothing_at_all or not os.path.lexists(manifest)
    if seen is not None:
        manifest.unlink()
    outside.rename(manifest)
    assert ids(desk) == ["good"]

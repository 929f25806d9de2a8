"""What happens to a store's files behind its owner's back: done, looked at through a door, put right, looked at again.

Between two spells of work, so that what must be answered is known: each damage concerns one store, the patient. While
it lasts a call gets the right answer or a typed refusal and never a wrong answer, another store answers, and the
process lives. Afterwards the patient answers as before, and everybody goes on working.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import threading
import time
import uuid
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from io import FileIO
from pathlib import Path
from typing import Final

from messages.json_types import JsonObject
from stress.aftermath import Inspector, on_disk, searchable
from stress.clients import audience, written_records
from stress.doors import SocketDoor
from stress.ledger import Caller
from stress.owner import Owner

PROBES: Final = 4
PATIENCE_SECONDS: Final = 30.0
HEADER_BYTES: Final = 100
PAGE_BYTES: Final = 4_096
QUEUED_EVENTS: Final = Path("/proc/sys/fs/inotify/max_queued_events")
FAKETIME: Final = next(Path("/usr/lib").glob("*/faketime/libfaketime.so.1"), None)
UNTYPED: Final = frozenset({"internal", "protocol_error", "no_answer", "lost", "None"})


class NotHere(Exception):
    """This machine cannot do that damage; says why."""


@dataclass(frozen=True, slots=True)
class Patient:
    """The store that is damaged: whose it is, where it lies, and a record that is known to be in it."""

    owner: Owner
    caller: Caller
    folder: Path
    record: str
    path: Path
    content: str
    records: frozenset[str]
    words: Mapping[str, frozenset[str]]
    """Words and the records that hold them, at most one."""

    @property
    def vault(self) -> Path:
        return self.folder / "vault"


@dataclass(slots=True)
class Finding:
    """How one damage went: ``wrong`` is empty when it was contained; ``skipped`` says why it was not done."""

    name: str
    answers: Counter[str] = field(default_factory=Counter)
    wrong: list[str] = field(default_factory=list)
    skipped: str | None = None


Treatment = Callable[[Patient], AbstractContextManager[None]]


@contextmanager
def _database_header(patient: Patient) -> Iterator[None]:
    with asleep_copy(patient) as database, database.open("r+b") as file:
        file.write(os.urandom(HEADER_BYTES))
    try:
        patient.owner.start()
        yield
    finally:
        put_back(patient)


@contextmanager
def spoiled_pages(patient: Patient, *, every: int) -> Iterator[None]:
    """The owner on a database of which each so many-th page after the first is random; put back afterwards."""
    with asleep_copy(patient) as database, database.open("r+b") as file:
        for page in range(1, database.stat().st_size // PAGE_BYTES, every):
            file.seek(page * PAGE_BYTES)
            file.write(os.urandom(PAGE_BYTES))
    try:
        patient.owner.start()
        yield
    finally:
        put_back(patient)


@contextmanager
def _database_page(patient: Patient) -> Iterator[None]:
    with spoiled_pages(patient, every=3):
        yield


@contextmanager
def _no_index(patient: Patient) -> Iterator[None]:
    patient.owner.kill()
    for path in (patient.folder / "search").glob("private.sqlite*"):
        path.unlink()
    patient.owner.start()
    yield


@contextmanager
def _broken_index(patient: Patient) -> Iterator[None]:
    patient.owner.stop()
    for path in (patient.folder / "search").glob("private.sqlite*"):
        path.write_bytes(os.urandom(8_192))
    patient.owner.start()
    yield


@contextmanager
def _cut_off_file(patient: Patient) -> Iterator[None]:
    """Under the owner's eyes: the record's file ends in the middle."""
    text = patient.path.read_bytes()
    os.truncate(patient.path, len(text) // 2)
    try:
        yield
    finally:
        other = patient.path.with_name(f".{patient.path.name}.back")
        other.write_bytes(text)
        os.replace(other, patient.path)


@contextmanager
def _no_repository(patient: Patient) -> Iterator[None]:
    patient.owner.kill()
    aside = patient.folder / "git.away"
    (patient.vault / ".git").rename(aside)
    try:
        patient.owner.start()
        yield
    finally:
        # The runtime may have made a new one, or do so now; a person who then has two keeps the new one.
        with contextlib.suppress(OSError):
            if not (patient.vault / ".git").exists():
                aside.rename(patient.vault / ".git")
        shutil.rmtree(aside, ignore_errors=True)


@contextmanager
def _empty_mount(patient: Patient) -> Iterator[None]:
    """Under the owner's eyes: an empty file system lies over the vault."""
    mount(patient.vault)
    try:
        yield
    finally:
        patient.owner.kill()  # what it had opened in there would keep the mount busy
        unmount(patient.vault)
        patient.owner.start()


@contextmanager
def _unreadable_folder(patient: Patient) -> Iterator[None]:
    if patient.owner.reads_everything():
        raise NotHere("the owner is somebody who reads every folder")
    folder = patient.path.parent
    mode = folder.stat().st_mode & 0o777
    folder.chmod(0)
    try:
        yield
    finally:
        folder.chmod(mode)


@contextmanager
def _watcher_overflows(patient: Patient) -> Iterator[None]:
    """More happens to the folder than the system keeps for a watcher that sleeps."""
    try:
        events = int(QUEUED_EVENTS.read_text())
    except OSError as error:
        raise NotHere("this system does not say how many events it keeps") from error
    noise = patient.path.with_name(".noise.swp")
    with patient.owner.suspended():
        for _ in range(events // 2 + 100):
            noise.touch()
            noise.unlink()
    yield


@contextmanager
def _clock_jumps(patient: Patient) -> Iterator[None]:
    """A day forward and a week back, for everything but the monotonic clock."""
    if FAKETIME is None:
        raise NotHere("libfaketime is not installed")
    at = patient.folder.parent.parent / "faketime"
    at.write_text("+0")
    before = dict(patient.owner.environment)
    patient.owner.environment.update(
        LD_PRELOAD=str(FAKETIME),
        FAKETIME_TIMESTAMP_FILE=str(at),
        FAKETIME_NO_CACHE="1",
        DONT_FAKE_MONOTONIC="1",
        FAKETIME_DONT_FAKE_MONOTONIC="1",
        NO_FAKE_STAT="1",
    )
    try:
        patient.owner.kill()
        patient.owner.start()
        if FAKETIME.name not in Path(f"/proc/{patient.owner.pid}/maps").read_text():
            raise NotHere("libfaketime does not load here")
        for jump in ("+1d", "-7d"):
            at.write_text(jump)
            door = SocketDoor(patient.owner.state_dir)
            door.ask("tools.call", _call(patient.caller, "knowledge_status", {}))
            door.leave()
        yield
    finally:
        patient.owner.environment.clear()
        patient.owner.environment.update(before)
        patient.owner.kill()
        at.unlink()
        patient.owner.start()


@contextmanager
def _full_disk(patient: Patient) -> Iterator[None]:
    """A real one: the owner's temporary file system is filled to its last byte."""
    disk = patient.owner.state_dir.parent
    if not os.path.ismount(disk):
        raise NotHere("the state directory does not lie on a file system of its own")
    filler, over = disk / "filler", threading.Event()
    with filler.open("wb", buffering=0) as file:
        _fill(file)
        # What the owner gives back meanwhile, a log or a temporary file, is taken too.
        thread = threading.Thread(target=lambda: _keep_full(file, over))
        thread.start()
        try:
            yield
        finally:
            over.set()
            thread.join()
            filler.unlink()


def _keep_full(file: FileIO, over: threading.Event) -> None:
    while not over.wait(0.02):
        _fill(file)


def _fill(file: FileIO) -> None:
    for size in (1 << 20, PAGE_BYTES, 1):
        with contextlib.suppress(OSError):
            while True:
                file.write(b"\0" * size)


DAMAGES: Final[Mapping[str, Treatment]] = {
    "the first 100 bytes of state.sqlite overwritten": _database_header,
    "corrupt pages in state.sqlite": _database_page,
    "a deleted index": _no_index,
    "a corrupt index": _broken_index,
    "a truncated Markdown file": _cut_off_file,
    "a missing .git": _no_repository,
    "an empty mount": _empty_mount,
    "an unreadable folder": _unreadable_folder,
    "a watcher that overflows": _watcher_overflows,
    "a clock that jumps": _clock_jumps,
    "a full disk": _full_disk,
}


RESTORED: Final = frozenset({"the first 100 bytes of state.sqlite overwritten", "corrupt pages in state.sqlite"})
"""After these a copy from before is put back: what was acknowledged meanwhile is not in it."""


def suffer(name: str, patient: Patient, other: Caller, may_differ: bool) -> Finding:
    """Do it, look, put it right, look again. ``may_differ``: the record itself may read as its file does meanwhile."""
    finding = Finding(name)
    write = _Write(patient)
    try:
        with DAMAGES[name](patient):
            pid = patient.owner.pid
            write.send(finding)
            for _ in range(PROBES):
                _look(patient, finding, may_differ=may_differ)
                _other_answers(patient, other, finding)
                time.sleep(0.2)
            if patient.owner.pid != pid or patient.owner.usage() is None:
                finding.wrong.append("the process ended")
    except NotHere as reason:
        finding.skipped = str(reason)
        return finding
    if name in RESTORED:
        write.forget()
    _recovers(patient, finding)
    write.send_again(finding)
    return finding


def patient_of(owner: Owner, caller: Caller, folder: Path) -> Patient | None:
    """The store as it is while nobody works; None when there is nothing in it to know it by."""
    files = on_disk(folder / "vault" / "private")
    found = {file.record: file for file in files}
    for path in sorted((folder / "vault" / "private").rglob("*.md")):
        for file in found.values():
            if path.read_bytes() == file.text and not path.name.startswith("."):
                mine = searchable([file])
                held = searchable(files)
                words = {word: frozenset(held[word]) for word in sorted(mine)[:1]}
                return Patient(owner, caller, folder, file.record, path, file.content, frozenset(found), words)
    return None


class _Write:
    """One fact that is told during the damage and once more after it: what was acknowledged must still be there."""

    def __init__(self, patient: Patient) -> None:
        self._patient = patient
        self._acknowledged: set[str] = set()
        # One that was never told before: what is known already is acknowledged without a write.
        request = str(uuid.uuid4())
        self._arguments: JsonObject = {
            "requestId": request,
            "attribution": "a client, in a run",
            "excerpt": f"User: gate {request} was left open.",
            "items": [{"text": f"Gate {request} was left open.", "kind": "fact"}],
        }

    def send(self, finding: Finding) -> None:
        door = SocketDoor(self._patient.owner.state_dir)
        try:
            outcome = door.ask("tools.call", _call(self._patient.caller, "knowledge_remember", self._arguments))
        finally:
            door.leave()
        finding.answers[f"write {outcome.code}"] += 1
        if outcome.code in UNTYPED:
            finding.wrong.append(f"a write answers {outcome.code}: {outcome.message}")
        if outcome.result is not None:
            self._acknowledged = {record for record, _, _ in written_records(outcome.result)}

    def forget(self) -> None:
        self._acknowledged = set()

    def send_again(self, finding: Finding) -> None:
        door = SocketDoor(self._patient.owner.state_dir)
        inspector = Inspector(door)
        try:
            receipt = inspector.call("knowledge_remember", self._arguments, self._patient.caller)
            now = {record for record, _, _ in written_records(receipt)}
            if self._acknowledged and now != self._acknowledged:
                finding.wrong.append(f"a write that was acknowledged as {self._acknowledged} is now {now}")
            for record in now:
                if inspector.call("knowledge_record", {"id": record}, self._patient.caller).get("record") is None:
                    finding.wrong.append(f"{record} was acknowledged and is not there")
        finally:
            door.leave()


def _look(patient: Patient, finding: Finding, *, may_differ: bool) -> None:
    """Reads and a search: each is right or refused."""
    door = SocketDoor(patient.owner.state_dir)
    try:
        asked: list[tuple[str, JsonObject]] = [
            ("knowledge_status", {}),
            ("knowledge_record", {"id": patient.record}),
            *(("knowledge_grep", _search(word)) for word in patient.words),
        ]
        for tool, arguments in asked:
            outcome = door.ask("tools.call", _call(patient.caller, tool, arguments))
            finding.answers[outcome.code] += 1
            if outcome.code in UNTYPED:
                finding.wrong.append(f"{tool} answers {outcome.code}: {outcome.message}")
            answer = outcome.result or {}
            record, hits = answer.get("record"), answer.get("hits")
            # A search says that its index is not there with a total that is nothing.
            if tool == "knowledge_grep" and answer.get("total") is not None and not may_differ:
                seen = {str(hit["id"]) for hit in hits if isinstance(hit, dict)} if isinstance(hits, list) else set()
                if seen != patient.words[str(arguments["query"])]:
                    finding.wrong.append(f"a search finds {len(seen)} records")
            if outcome.code == "ok" and tool == "knowledge_record" and not may_differ:
                shown = record.get("hash") if isinstance(record, dict) else None
                if shown != patient.content:
                    finding.wrong.append(f"{patient.record} reads as {shown}")
    finally:
        door.leave()


def _other_answers(patient: Patient, other: Caller, finding: Finding) -> None:
    door = SocketDoor(patient.owner.state_dir)
    try:
        until = time.monotonic() + PATIENCE_SECONDS
        while True:
            outcome = door.ask("tools.call", _call(other, "knowledge_records", {"limit": 1}))
            if outcome.code == "ok":
                return
            if outcome.retry not in ("safe", "unknown") or time.monotonic() >= until:
                finding.wrong.append(f"another store answers {outcome.code}: {outcome.message}")
                return
            time.sleep(max(outcome.retry_after, 0.2))
    finally:
        door.leave()


def _recovers(patient: Patient, finding: Finding) -> None:
    """Everything is listed and reads as before."""
    door = SocketDoor(patient.owner.state_dir)
    inspector = Inspector(door)
    try:
        until = time.monotonic() + PATIENCE_SECONDS
        while True:
            listed = {record for record, _ in inspector.records(patient.caller)}
            read = inspector.call("knowledge_record", {"id": patient.record}, patient.caller).get("record")
            shown = read.get("hash") if isinstance(read, dict) else None
            if listed >= patient.records and shown == patient.content:
                return
            if time.monotonic() >= until:
                missing = len(patient.records - listed)
                finding.wrong.append(f"afterwards {missing} records are missing, and {patient.record} reads as {shown}")
                return
            time.sleep(0.25)
    finally:
        door.leave()


def _search(word: str) -> JsonObject:
    return {"query": word, "limit": 50, "lifecycle": "all"}


def _call(caller: Caller, tool: str, arguments: JsonObject) -> JsonObject:
    return {"tool": tool, "arguments": arguments, "audience": audience(caller), "deadlineMs": 10_000}


@contextmanager
def asleep_copy(patient: Patient) -> Iterator[Path]:
    """End the owner in order, keep a copy of the database beside it, and give the file to damage."""
    patient.owner.stop()
    database = patient.folder / "state.sqlite"
    for path in _parts(database):
        shutil.copy2(path, _copy_of(path))
    yield database


def put_back(patient: Patient) -> None:
    patient.owner.kill()
    database = patient.folder / "state.sqlite"
    for path in _parts(database):
        path.unlink()
    for path in sorted(patient.folder.glob("state.sqlite*.kept")):
        path.rename(path.with_suffix(""))
    patient.owner.start()


def _parts(database: Path) -> Sequence[Path]:
    return [path for end in ("", "-wal", "-shm") if (path := database.with_name(database.name + end)).exists()]


def _copy_of(path: Path) -> Path:
    return path.with_name(f"{path.name}.kept")


def unmount(folder: Path) -> None:
    # A Git command that outlived its owner for a moment may still stand in there.
    subprocess.run(["umount", "--lazy", str(folder)], check=True)


def mount(folder: Path, options: str = "size=16m") -> None:
    """Lay an empty temporary file system over a folder. Raises :class:`NotHere`."""
    if os.geteuid() != 0:
        raise NotHere("needs mounts: only the superuser may mount")
    done = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", options, "knowledge-stress", str(folder)], capture_output=True, check=False
    )
    if done.returncode != 0:
        raise NotHere("needs mounts: this machine does not let anybody mount")

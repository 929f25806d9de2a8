"""Damages to a store's files: each is undone, and one that a machine cannot do is skipped with its reason."""

from __future__ import annotations

import errno
import json
import os
import subprocess
import sys
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Final

import pytest

from stress import damages
from stress.damages import DAMAGES, Patient, suffer
from stress.doors import Outcome, SocketDoor
from stress.ledger import Caller
from stress.owner import Owner

ROOT: Final = Path(__file__).resolve().parents[2]
CALLER: Final = Caller("ana", "store0")
OTHER: Final = Caller("ben", "store1")
RECORD: Final = "11111111-1111-4111-8111-111111111111"


class Idle(Owner):
    """An owner that notes what is done with it and owns nothing."""

    def __init__(self, state_dir: Path) -> None:
        super().__init__(state_dir, {}, state_dir / "log")
        self.done: list[str] = []

    def start(self) -> None:
        self.done.append("start")

    def stop(self) -> int:
        self.done.append("stop")
        return 0

    def kill(self) -> None:
        self.done.append("kill")


@pytest.fixture
def patient(tmp_path: Path) -> Patient:
    folder = tmp_path / "stores" / "one"
    notes = folder / "vault" / "private" / "notes"
    notes.mkdir(parents=True)
    path = notes / "a.md"
    path.write_bytes(b"---\nid: %s\n---\n\nA page of a few words.\n" % RECORD.encode())
    (folder / "search").mkdir()
    (folder / "search" / "private.sqlite").write_bytes(b"index")
    (folder / "vault" / ".git").mkdir()
    (folder / "state.sqlite").write_bytes(bytes(range(256)) * 64)
    found = damages.patient_of(Idle(tmp_path), CALLER, folder)
    assert found is not None
    return found


def test_a_patient_is_known_by_a_record_of_its_own(patient: Patient) -> None:
    assert patient.record == RECORD
    assert patient.records == {RECORD}
    assert patient.path.name == "a.md"


def test_a_store_without_a_record_is_no_patient(tmp_path: Path) -> None:
    assert damages.patient_of(Idle(tmp_path), CALLER, tmp_path) is None


@pytest.mark.parametrize("name", ["the first 100 bytes of state.sqlite overwritten", "corrupt pages in state.sqlite"])
def test_a_database_is_damaged_while_nobody_has_it_and_put_back(patient: Patient, name: str) -> None:
    database = patient.folder / "state.sqlite"
    before = database.read_bytes()
    owner = patient.owner
    assert isinstance(owner, Idle)
    with DAMAGES[name](patient):
        during = database.read_bytes()
        assert during != before
        assert len(during) == len(before)
        assert (during[100:] == before[100:]) is (name != "corrupt pages in state.sqlite")
        assert owner.done == ["stop", "start"]
    assert database.read_bytes() == before
    assert owner.done == ["stop", "start", "kill", "start"]
    assert not list(patient.folder.glob("*.kept"))


def test_an_index_is_taken_away_or_made_unreadable(patient: Patient) -> None:
    index = patient.folder / "search" / "private.sqlite"
    with DAMAGES["a corrupt index"](patient):
        assert index.read_bytes() != b"index"
    with DAMAGES["a deleted index"](patient):
        assert not index.exists()


def test_a_record_is_cut_off_and_written_back(patient: Patient) -> None:
    before = patient.path.read_bytes()
    with DAMAGES["a truncated Markdown file"](patient):
        assert patient.path.read_bytes() == before[: len(before) // 2]
    assert patient.path.read_bytes() == before


def test_a_repository_is_put_back_unless_a_new_one_was_made(patient: Patient) -> None:
    repository = patient.vault / ".git"
    (repository / "old").touch()
    with DAMAGES["a missing .git"](patient):
        assert not repository.exists()
    assert (repository / "old").exists()
    with DAMAGES["a missing .git"](patient):
        repository.mkdir()
    assert repository.is_dir()
    assert not (repository / "old").exists()


def test_an_empty_mount_hides_the_vault_or_is_skipped(patient: Patient) -> None:
    try:
        with DAMAGES["an empty mount"](patient):
            assert list(patient.vault.iterdir()) == []
    except damages.NotHere as reason:
        pytest.skip(str(reason))
    assert patient.path.exists()


def test_a_full_disk_has_not_a_byte_left_and_then_all_of_it(tmp_path: Path, patient: Patient) -> None:
    disk = tmp_path / "disk"
    disk.mkdir()
    owner = Idle(disk / "state")
    small = Patient(owner, CALLER, patient.folder, RECORD, patient.path, "", frozenset(), {})
    with pytest.raises(damages.NotHere, match="file system of its own"), DAMAGES["a full disk"](small):
        pass
    try:
        damages.mount(disk, "size=1m")
    except damages.NotHere as reason:
        pytest.skip(str(reason))
    try:
        with DAMAGES["a full disk"](small):
            descriptor = os.open(disk / "one", os.O_CREAT | os.O_WRONLY)
            with pytest.raises(OSError, match="No space") as refused:
                os.write(descriptor, b"x" * 8_192)
            os.close(descriptor)
            assert refused.value.errno == errno.ENOSPC
        (disk / "two").write_bytes(b"x" * 8_192)
    finally:
        damages.unmount(disk)


def test_what_a_machine_cannot_do_is_skipped_with_its_reason(patient: Patient, monkeypatch: pytest.MonkeyPatch) -> None:
    def impossible(_patient: Patient) -> AbstractContextManager[None]:
        raise damages.NotHere("no such thing here")

    monkeypatch.setattr(damages, "DAMAGES", {"a flood": impossible})
    finding = suffer("a flood", patient, OTHER, may_differ=False)
    assert finding.skipped == "no such thing here"
    assert finding.wrong == []


def test_a_wrong_answer_during_a_damage_is_found(patient: Patient, monkeypatch: pytest.MonkeyPatch) -> None:
    """An owner that shows an older text, loses a fact that it acknowledged, and is gone in the end."""

    def ask(self: SocketDoor, method: str, params: dict[str, object], **_: object) -> Outcome:
        tool = params["tool"]
        if tool == "knowledge_record" and params["arguments"] == {"id": "fact"}:
            return Outcome("ok", "never", {"record": None})
        match tool:
            case "knowledge_record":
                return Outcome("ok", "never", {"record": {"id": RECORD, "hash": "older"}})
            case "knowledge_remember":
                return Outcome("ok", "never", {"items": [{"id": "fact", "revision": 1, "hash": "h"}]})
            case _:
                return Outcome("ok", "never", {"records": [{"id": RECORD, "hash": "older"}]})

    monkeypatch.setattr(SocketDoor, "ask", ask)
    monkeypatch.setattr(damages, "PATIENCE_SECONDS", 0.0)
    monkeypatch.setattr(damages, "PROBES", 1)
    finding = suffer("a deleted index", patient, OTHER, may_differ=False)
    assert finding.wrong == [
        f"{RECORD} reads as older",
        "the process ended",
        f"afterwards 0 records are missing, and {RECORD} reads as older",
        "fact was acknowledged and is not there",
    ]


@pytest.mark.slow
def test_every_damage_is_contained() -> None:
    options = "--seed 4 --seconds 6 --agents 4 --stores 2 --spacing 0 --damages --json".split()
    done = subprocess.run(
        [sys.executable, "-m", "stress", *options], cwd=ROOT, capture_output=True, text=True, check=False
    )
    found = json.loads(done.stdout)
    assert [verdict for verdict in found["verdicts"] if not verdict["kept"]] == []
    assert set(found["damages"]) == set(DAMAGES)
    assert done.returncode == 0

"""Damages that are done while clients work, and what the judges may excuse because of them: nearly nothing.

A damage concerns one store, or the whole owner. Meanwhile a call may be refused by name; an answer is as right as ever,
what was acknowledged before stays, and nothing is acknowledged that is lost with what is put back. Nobody else touches
the files of a store whose folder is away, as a person would not.
"""

from __future__ import annotations

import os
import random
import resource
import subprocess
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from stress.damages import DAMAGES, NotHere, Patient, Treatment, spoiled_pages, unmount
from stress.ledger import Caller
from stress.owner import Owner

HEARING_SECONDS: Final = 20.0
"""A deaf watch is found 12 seconds after a request; the rest is the machine's, which may have much else to do."""
DEAF: Final = "a deaf watcher"


@dataclass(frozen=True, slots=True)
class Trial:
    """How a damage is done and for how long. ``alone``: nobody else touches the store's files meanwhile.
    ``everybody``: it concerns all stores. ``no_way_in``: no new client reaches the owner meanwhile."""

    treat: Treatment
    seconds: float
    alone: bool = False
    everybody: bool = False
    no_way_in: bool = False
    record: bool = False
    """The record at the patient's path is its file's, whatever that says meanwhile."""
    unheard: float = 0.0
    """For so many seconds edits may go unnoticed."""


@contextmanager
def _deaf(patient: Patient) -> Iterator[None]:
    """For good: nobody gives the watches back but the runtime itself."""
    if not patient.owner.deafen(patient.vault / "private"):
        raise NotHere("nothing watches this store")
    yield


@contextmanager
def _no_page(patient: Patient) -> Iterator[None]:
    """Every page after the first: no part of the database can be used, so nothing may be acknowledged."""
    with spoiled_pages(patient, every=1):
        yield


@contextmanager
def _lock_left(patient: Patient) -> Iterator[None]:
    lock = patient.vault / ".git" / "index.lock"
    try:
        lock.touch(exist_ok=False)
    except FileExistsError as error:
        raise NotHere("somebody has the lock") from error
    try:
        yield
    finally:
        lock.unlink(missing_ok=True)


@contextmanager
def _read_only(patient: Patient) -> Iterator[None]:
    """A mount of the vault onto itself that takes no write; an owner that had it open would still write beside it."""
    if os.geteuid() != 0:
        raise NotHere("needs mounts: only the superuser may mount")
    vault = str(patient.vault)
    patient.owner.kill()
    for command in (["mount", "--bind", vault, vault], ["mount", "-o", "remount,bind,ro", vault]):
        if subprocess.run(command, capture_output=True, check=False).returncode != 0:
            patient.owner.start()
            raise NotHere("needs mounts: this machine does not let anybody mount")
    try:
        patient.owner.start()
        yield
    finally:
        patient.owner.kill()  # what it had opened in there would keep the mount busy
        unmount(patient.vault)
        patient.owner.start()


@contextmanager
def _no_descriptor(patient: Patient) -> Iterator[None]:
    """The owner may open nothing more than it has open."""
    usage, pid = patient.owner.usage(), patient.owner.pid
    if usage is None:
        raise NotHere("the owner is not there")
    before = resource.prlimit(pid, resource.RLIMIT_NOFILE)
    resource.prlimit(pid, resource.RLIMIT_NOFILE, (usage.descriptors, before[1]))
    try:
        yield
    finally:
        if patient.owner.usage() is not None:
            resource.prlimit(pid, resource.RLIMIT_NOFILE, before)


ORDEALS: Final[Mapping[str, Trial]] = {
    DEAF: Trial(_deaf, 0.0, unheard=HEARING_SECONDS),
    "the first 100 bytes of state.sqlite overwritten": Trial(
        DAMAGES["the first 100 bytes of state.sqlite overwritten"], 2.0
    ),
    "corrupt pages in state.sqlite": Trial(_no_page, 2.0),
    "a deleted index": Trial(DAMAGES["a deleted index"], 0.5),
    "a corrupt index": Trial(DAMAGES["a corrupt index"], 0.5),
    "a truncated Markdown file": Trial(DAMAGES["a truncated Markdown file"], 2.0, alone=True, record=True),
    "a missing .git": Trial(DAMAGES["a missing .git"], 2.0, alone=True),
    "an index.lock left behind": Trial(_lock_left, 4.0, alone=True),
    "an empty mount": Trial(DAMAGES["an empty mount"], 2.0, alone=True),
    "a read-only vault": Trial(_read_only, 2.0, alone=True),
    "an unreadable folder": Trial(DAMAGES["an unreadable folder"], 2.0, alone=True),
    "a watcher that overflows": Trial(DAMAGES["a watcher that overflows"], 0.0),
    "a full disk": Trial(DAMAGES["a full disk"], 2.0, alone=True, everybody=True),
    "no descriptor left": Trial(_no_descriptor, 2.0, everybody=True, no_way_in=True),
}


def ordeals(seed: int, names: Sequence[str] = tuple(ORDEALS)) -> Iterator[str]:
    """An endless, seeded order in which every one of them comes again and again."""
    chance = random.Random(f"ordeals/{seed}")
    while True:
        yield from chance.sample(names, len(names))


def somebody(owner: Owner, caller: Caller, folder: Path, choose: Callable[[list[Path]], Path]) -> Patient:
    """A store at work, with one of its files. Raises :class:`NotHere` while it has none."""
    private = folder / "vault" / "private"
    files = sorted(path for path in private.rglob("*.md") if not path.name.startswith("."))
    if not files:
        raise NotHere("the store has no file yet")
    return Patient(owner, caller, folder, "", choose(files), "", frozenset(), {})

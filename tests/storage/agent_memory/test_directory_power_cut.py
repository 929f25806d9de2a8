"""The power goes while memories are kept: what was acknowledged is there, and what was forgotten stays forgotten."""

from __future__ import annotations

import random
import shutil
from datetime import date
from pathlib import Path

import pytest

from storage.agent_memory import MemoryDirectory
from tests.kit.powercut import MODES, Disk, watched
from tests.storage.agent_memory.conftest import Hands
from tests.storage.agent_memory.test_directory import entry, texts

_NO_CHANGE = ("read", "stat", "open", "folder", "lock", "lease", "release", "logs", "directory", "found", "entries")


class Promises:
    """What was answered so far: what must be there, and what must not come back."""

    def __init__(self) -> None:
        self.kept: set[str] = set()
        self.doubtful: set[str] = set()  # being remembered or forgotten just now
        self.forgotten: set[str] = set()

    def broken(self, path: Path, clock: Hands) -> str | None:
        memory = MemoryDirectory(path, now=clock)
        there = set(texts(memory))
        facts = {fact.content for fact in memory.facts()}
        recent = {line.content for line in memory.recent(date.min, 99)}
        again = set(texts(memory))
        if not self.kept <= there & again:
            return f"lost: {self.kept - (there & again)}"
        if self.forgotten & (there | facts | recent):
            return f"came back: {self.forgotten & (there | facts | recent)}"
        if facts != {text for text in again if not text.startswith("note")}:
            return f"facts {facts} of {again}"
        if recent != again:
            return f"recent {recent} of {again}"
        return None


def run(path: Path, clock: Hands, promises: Promises) -> None:
    memory = MemoryDirectory(path, now=clock)
    for text, category in (("a", "one"), ("note b", "one"), ("c", "two"), ("d", "one")):
        promises.doubtful = {text}
        memory.remember(entry(text, category, persistent=not text.startswith("note")))
        promises.kept.add(text)
    promises.doubtful = {"c"}
    promises.kept.discard("c")
    notes = path / "MEMORY.md"
    notes.write_text(notes.read_text().replace("- c\n", ""))
    memory.facts()
    promises.forgotten.add("c")
    memory.remember(entry("e", "two"))
    promises.kept.add("e")
    promises.kept.clear()
    memory.clear()
    promises.forgotten |= {"a", "note b", "d", "e"}
    memory.remember(entry("f", "two"))
    promises.kept.add("f")


@pytest.mark.parametrize(
    "mode", [pytest.param(mode, marks=() if mode == "random" else pytest.mark.slow) for mode in MODES]
)
def test_a_power_cut_at_any_point_keeps_every_promise(tmp_path: Path, clock: Hands, mode: str) -> None:
    (tmp_path / "disk").mkdir()
    disk, rng, promises = Disk(tmp_path / "disk"), random.Random(5), Promises()
    problems: list[str] = []
    inside = False

    def cut(point: str) -> None:
        nonlocal inside
        changed = point.endswith(".after") and not point.removesuffix(".after").endswith(_NO_CHANGE)
        if inside or not changed:
            return
        inside = True
        image = tmp_path / "image"
        disk.image(image, mode, rng)  # type: ignore[arg-type]
        found = promises.broken(image / "home" / "memory", clock)
        if found is not None:
            problems.append(f"{point}: {found}")
        shutil.rmtree(image)
        inside = False

    with watched(disk, cut):
        run(tmp_path / "disk" / "home" / "memory", clock, promises)
    assert problems == []
    assert promises.kept == {"f"}

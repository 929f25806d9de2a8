"""The rows of writing: one claim and a batch, against the same steps with everything synced; one Git checkpoint."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

from host_bridge.bridge import KnowledgeBridge
from messages.tools import ToolRequest
from stress.bench.measure import Contender, Row, Sample, compared, interleave
from stress.bench.store import MAIN, BenchStore, Desk, configuration, remember, remembering
from stress.bench.synced import EverythingSynced, everything_synced

BATCH: Final = 20
SINGLE_LIMIT, BATCH_LIMIT, BATCH_BY_SINGLE = 0.65, 0.45, 4.0
_GIT_ROUNDS: Final = 9


def through_session(desk: Desk, rounds: int) -> Iterator[Row]:
    """The path of a write without threads: look at the vault, judge, publish, settle."""
    requests: list[ToolRequest] = []

    def writing(claims: int) -> tuple[Callable[[int], object], Callable[[int], object]]:
        def prepare(turn: int) -> None:
            desk.partition.refresh()  # what the turn before wrote was looked at: nobody pays for another
            requests.append(remember(turn, claims))

        return prepare, (lambda _: desk.run(requests.pop()))

    yield from _writes(desk.store, "session", writing, rounds, after=lambda n: desk.sync() if n % 20 == 0 else None)
    desk.sync()


def through_bridge(store: BenchStore, rounds: int) -> Iterator[Row]:
    """The same from a caller's thread through the Python door: validation, permit, mailbox, lane, hand-over."""
    with KnowledgeBridge(store.state_dir, config=configuration()) as knowledge:
        arguments = [remembering(0)]

        def writing(claims: int) -> tuple[Callable[[int], object], Callable[[int], object]]:
            def prepare(turn: int) -> None:
                knowledge.call("knowledge_lookup", {"query": "nobody"}, MAIN)
                arguments.append(remembering(turn, claims))

            return prepare, (lambda _: knowledge.call("knowledge_remember", arguments.pop(), MAIN))

        yield from _writes(store, "bridge", writing, rounds, after=None)


def _writes(
    store: BenchStore,
    where: str,
    writing: Callable[[int], tuple[Callable[[int], object], Callable[[int], object]]],
    rounds: int,
    *,
    after: Callable[[int], object] | None,
) -> Iterator[Row]:
    with everything_synced() as switch:
        contenders = []
        for claims in (1, BATCH):
            for on in (False, True):
                prepare, run = writing(claims)
                contenders.append(Contender(_name(claims, on), _switched(switch, run, on), prepare=prepare, tidy=after))
        taken = interleave(contenders, rounds)
        counted = {on: _syncs(switch, writing(1), on) for on in (False, True)}
        batched = {on: _syncs(switch, writing(BATCH), on) for on in (False, True)}
    one, batch = taken[_name(1, False)], taken[_name(BATCH, False)]
    yield compared(
        f"durable write of one claim ({where})", store.size, taken, _name(1, False), _name(1, True),
        goal="<= 0.65x everything synced", limit=SINGLE_LIMIT, note=f"{counted[False]} sync against {counted[True]}",
    )  # fmt: skip
    yield compared(
        f"batch of {BATCH} claims ({where})", store.size, taken, _name(BATCH, False), _name(BATCH, True),
        goal="<= 0.45x everything synced", limit=BATCH_LIMIT, note=f"{batched[False]} sync against {batched[True]}",
    )  # fmt: skip
    yield Row(
        f"batch of {BATCH} by one claim ({where})", store.size, Sample.of(batch), "one claim", Sample.of(one),
        "<= 4x one claim", BATCH_BY_SINGLE,
    )  # fmt: skip


def _name(claims: int, on: bool) -> str:
    return f"{claims}, everything synced" if on else f"{claims}, ours"


def _switched(switch: EverythingSynced, run: Callable[[int], object], on: bool) -> Callable[[int], None]:
    def switched(turn: int) -> None:
        switch.on = on
        try:
            run(turn)
        finally:
            switch.on = False

    return switched


def _syncs(switch: EverythingSynced, writing: tuple[Callable[[int], object], Callable[[int], object]], on: bool) -> int:
    prepare, run = writing
    prepare(0)
    before = switch.syncs
    _switched(switch, run, on)(0)
    return switch.syncs - before


def git_checkpoint(desk: Desk) -> Iterator[Row]:
    """One publication of one file into Git, against ``git add`` and ``git commit`` of one file in the same tree."""
    desk.commit_all()
    vault = desk.store.layout.vault
    other = desk.store.state_dir / "other.git"
    shutil.copytree(desk.store.layout.git, other)
    _git(other, vault, "reset", "--quiet")
    note = next(iter(sorted(desk.store.private.glob("notes/*/*.md"))))
    path = str(note.relative_to(vault))
    original = note.read_bytes()

    def publish(turn: int) -> None:
        desk.run(remember(turn))

    commits: dict[str, str] = {}

    def commit(_: int) -> None:
        commits.update(desk.commit(desk.checkpoints()))

    def edit(turn: int) -> None:
        note.write_bytes(original + f"\nEdited for the checkpoint of turn {turn}.\n".encode())

    def add_and_commit(_: int) -> None:
        _git(other, vault, "add", path)
        _git(other, vault, "commit", "--quiet", "-m", "one file")

    taken = interleave(
        [
            Contender("ours", commit, prepare=publish, tidy=lambda _: desk.committed(commits)),
            Contender("git", add_and_commit, prepare=edit, tidy=lambda _: _fold_in(desk)),
        ],
        _GIT_ROUNDS,
        warm=1,
    )
    big = desk.store.size >= 100_000
    yield compared(
        "Git checkpoint of one file", desk.store.size, taken, "ours", "git",
        goal="<= 1/10 of git add + commit at 100,000", limit=0.1 if big else None,
    )  # fmt: skip
    shutil.rmtree(other)


def _fold_in(desk: Desk) -> None:
    """Take the edit over, so that the next checkpoint has the publication alone."""
    desk.partition.refresh()
    desk.commit_all()


def _git(repository: Path, vault: Path, *arguments: str) -> None:
    environment = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")} | {
        "GIT_CONFIG_GLOBAL": "/dev/null",
        "GIT_CONFIG_NOSYSTEM": "1",
    }
    identity = ["-c", "user.name=Bench", "-c", "user.email=bench@knowledge.invalid", "-c", "gc.auto=0"]
    subprocess.run(
        ["git", f"--git-dir={repository}", f"--work-tree={vault}", *identity, *arguments],
        check=True,
        env=environment,
        stdout=subprocess.DEVNULL,
    )

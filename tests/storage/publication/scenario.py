"""One script that takes a store through every step of the write path, with a person who gets in between."""

from __future__ import annotations

import os
import signal
import traceback
from collections import Counter
from collections.abc import Callable
from pathlib import Path

from storage import faults
from tests.kit.unsynced import without_syncs
from tests.storage.publication.world import HERE, Event, World

BIG = "".join(f"line {number} of a long note\n" for number in range(500))  # several blocks


class Points:
    """The handler of one run: counts every hit, does what is due at a name once, and what is due at a hit."""

    def __init__(self, at_hit: Callable[[int, str], None] = lambda _hit, _name: None) -> None:
        self.hits = 0
        self.names: Counter[str] = Counter()
        self._at_hit = at_hit
        self._once: dict[str, list[Callable[[], None]]] = {}
        self._inside = False

    def once(self, name: str, action: Callable[[], None]) -> None:
        """Run ``action`` at the next hit of ``name``."""
        self._once.setdefault(name, []).append(action)

    def __call__(self, name: str) -> None:
        if self._inside:
            return
        self._inside = True
        try:
            due = self._once.get(name)
            if due:
                due.pop(0)()
            self.hits += 1
            self.names[name] += 1
            self._at_hit(self.hits, name)
        finally:
            self._inside = False


def kill_at(hit: int) -> Callable[[int, str], None]:
    """End the process, as ``kill -9`` does, at the hit with that number."""

    def action(number: int, _name: str) -> None:
        if number == hit:
            os.kill(os.getpid(), signal.SIGKILL)

    return action


def run(world: World, points: Points) -> None:
    """Open, publish every kind of change, fold in, conflict in three ways, sync, and close."""
    world.open()
    world.publish({"claims/a.md": "a one\n", "artifacts/r1/excerpt.txt": "an excerpt\n"})
    world.publish({"claims/a.md": "a two\n" + BIG})
    world.person_saves("people/p.md", "a person wrote this\n" + BIG)
    world.fold()
    world.publish({"people/p.md": "ours over the person's\n"})
    world.publish(
        {
            "claims/a.md": "a three\n",
            "claims/2026/09/b.md": "b one\n" + BIG,
            "people/p.md": None,
            "people/q.md": "moved\n",
        }
    )
    _conflict_by_rename(world, points)
    world.fold()
    world.sync()
    _conflict_in_the_middle_of_a_batch(world, points)
    world.fold()
    _conflict_by_an_open_file(world, points)
    world.fold()
    world.publish({"claims/a.md": "a five\n", "people/q.md": None})
    world.person_saves("claims/2026/09/b.md", "b, edited outside\n", how="in place")
    world.fold()
    world.person_deletes("people/r.md")
    world.fold()
    world.sync()
    world.publish({"claims/z.md": "z one\n"})
    world.close()


def run_short(world: World, points: Points) -> None:
    """The least that needs every sync: publications over publications, a fold-in, a conflict, a background step."""
    world.open()
    world.publish({"claims/2026/a.md": "a one\n" + BIG})
    world.publish({"claims/2026/a.md": "a two\n"})
    world.person_saves("people/p.md", "a person wrote this\n")
    world.fold()
    world.sync()
    world.publish({"claims/2026/b.md": "b one\n", "people/p.md": None})
    _conflict_by_rename(world, points, "claims/2026/b.md")
    world.fold()
    world.sync()
    world.publish({"claims/2026/a.md": "a three\n"})
    world.person_deletes("claims/2026/a.md")
    world.fold()
    world.sync()
    world.close()


def _conflict_by_rename(world: World, points: Points, path: str = "claims/a.md") -> None:
    points.once("place.file", lambda: world.person_saves(path, "saved over ours\n"))
    world.publish({path: "never seen\n"})


def _conflict_in_the_middle_of_a_batch(world: World, points: Points) -> None:
    world.publish({"people/r.md": "r one\n"})

    def second() -> None:
        points.once("place.file", lambda: None)
        points.once("place.file", lambda: world.person_saves("people/q.md", "q saved outside\n", how="in place"))

    points.once("accept.commit", second)
    world.publish(
        {"claims/new.md": "new, never seen\n", "claims/2026/09/b.md": None, "people/q.md": "q two, never seen\n"}
    )


def _conflict_by_an_open_file(world: World, points: Points) -> None:
    """An editor opens the file for writing after our look, and saves in place once ours stands at the name."""
    path = world.vault / "private" / "people" / "q.md"
    editor: list[int] = []

    def opens() -> None:
        editor.append(os.open(path, os.O_WRONLY))

    def saves() -> None:
        text = "q saved through an open file\n"
        world.note(Event("person", texts={"private/people/q.md": text}))
        os.ftruncate(editor[0], 0)
        os.pwrite(editor[0], text.encode(), 0)
        world.note(Event("person done"))

    points.once("place.file", opens)
    points.once("place.file.after", saves)
    world.publish({"people/q.md": "q three, never seen\n"})
    os.close(editor[0])


def run_in_child(
    folder: Path, log: Path, body: Callable[[World, Points], None], at_hit: Callable[[int, str], None]
) -> tuple[bool, list[Event]]:
    """Run ``body`` in a child process; whether it was killed, and what it noted before."""
    child = os.fork()
    if child == 0:
        status = 1
        try:
            fd = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
            points = Points(at_hit)
            with faults.installed(points), without_syncs() as vfs:
                body(World(folder, this=HERE, log_fd=fd, vfs=vfs), points)
            status = 0
        except BaseException:  # noqa: BLE001 - the child must not return into the test runner
            traceback.print_exc()
        finally:
            os._exit(status)
    _, status = os.waitpid(child, 0)
    if os.WIFSIGNALED(status):
        assert os.WTERMSIG(status) == signal.SIGKILL
    else:
        assert os.WEXITSTATUS(status) == 0, "the child failed; its traceback is above"
    return os.WIFSIGNALED(status), read_log(log)


def read_log(log: Path) -> list[Event]:
    if not log.exists():
        return []
    return [Event.of_line(line) for line in log.read_bytes().splitlines(keepends=True) if line.endswith(b"\n")]

"""The barrier at each fault point of each kind of save and of read (decisions.md section 6).

A call stands at a point, or meets an error there, while the grant that it runs under is taken away. Judged at the far
end of the pipe and in the vault: nothing lands and nothing private leaves after the revocation was answered.

Every point belongs to a phase; the quick suite takes one moment of each phase on either side of the commit fence, the
exhaustive one every point of every kind of call.
"""

from __future__ import annotations

import errno
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Final

import pytest

from actors import runtime
from actors.store import tree
from actors.store.settings import StoreSettings
from actors.supervision import ActorSettings, RestartPolicy
from host_bridge.bridge import KnowledgeBridge
from tests.host_bridge.barrier_world import READS, SAVES, Moment, Prepare, World, inhabited, visible
from tests.host_bridge.test_barrier import CODES, code, end_a_run, revoke
from tests.kit.leaks import nothing_left
from tests.kit.store import open_bridge, total
from tests.tree import CHECKOUT

PHASES: Final = {
    "find the store as it was opened": ("open.vault", "open.database", "open.manifest"),
    "take over edits": ("watch.", "scan.", "edits."),
    "read and write rows": ("state.statement",),
    "catch up with the index": ("feed.", "search."),
    "check evidence": ("evidence.",),
    "receive an original": ("upload.unlink", "upload.create", "upload.write", "upload.sync", "upload.truncate"),
    "note how far it came": ("upload.begin", "upload.commit"),
    "look at an original": ("upload.open", "upload.read", "upload.stat", "upload.list"),
    "retain an original": ("upload.place", "retain."),
    "look at names and what is replaced": ("open.folder", "target.", "session."),
    "stage": ("stage.", "manifest.stage"),
    "accept": ("accept.",),
    "place": ("place.", "manifest.place", "manifest.displaced", "manifest.stat"),
    "settle": ("settle.",),
}
"""What a call does at a point, by how the point's name begins."""


WHEN_THEY_COME: Final = ("take over edits", "catch up with the index")
"""Phases that a call passes only if there is something to be taken over just then."""


def phase_of(point: str) -> str | None:
    return next((phase for phase, names in PHASES.items() if point.startswith(names)), None)


@contextmanager
def quiet(place: Path) -> Iterator[World]:
    """A world whose lane does nothing by itself, so that what it passes belongs to a call."""
    with pytest.MonkeyPatch.context() as patch, nothing_left():
        patch.setattr(runtime, "StoreSettings", partial(StoreSettings, tick=3_600.0))
        with inhabited(place) as made:
            yield made


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    with quiet(tmp_path_factory.mktemp("points")) as made:
        yield made


@pytest.fixture(scope="module")
def moments(world: World) -> dict[str, list[Moment]]:
    """Of each kind of call, every moment that it passes, but for what only the first of its kind does."""
    world.host.grant()
    kinds = {**SAVES, **READS}
    warm = {kind: world.trace(*prepare(world)) for kind, prepare in kinds.items()}
    assert all(warm.values())
    return {kind: world.trace(*prepare(world)) for kind, prepare in kinds.items()}


def one_of_each(moments: dict[str, list[Moment]], kinds: dict[str, Prepare]) -> list[tuple[str, Moment]]:
    """The first moment of each phase before its effect and after it, on either side of the fence, whatever kind of
    call comes by."""
    found: dict[tuple[str | None, bool, bool], tuple[str, Moment]] = {}
    for kind in kinds:
        for moment in moments[kind]:
            key = phase_of(moment.point), moment.point.endswith(".after"), moment.inside
            found.setdefault(key, (kind, moment))
    return list(found.values())


def every_point(moments: list[Moment]) -> list[Moment]:
    """Each point on either side of the fence once; inside it the last time too."""
    first: dict[tuple[str, bool], Moment] = {}
    last: dict[str, Moment] = {}
    for moment in moments:
        first.setdefault((moment.point, moment.inside), moment)
        if moment.inside:
            last[moment.point] = moment
    return list(dict.fromkeys((*first.values(), *last.values())))


def judged(world: World, kind: str, moment: Moment) -> bool:
    """One case; false when the call came to its end without passing the moment this time."""
    world.host.grant()
    world.forget_answers()
    tool, arguments = {**SAVES, **READS}[kind](world)
    with world.stopped(tool, arguments, moment) as standing:
        if standing is None:
            return False
        calling, go_on = standing
        inside = world.fenced()
        place, message, at_once = world.revoke_meanwhile(go_on)
        assert "result" in message
        assert at_once is not inside, "a revocation waits for a save inside the fence, and for nothing else"
        after = world.visible()
        go_on.set()
        told_at, told = world.host.answer(calling)
    world.rest()
    assert world.visible() == after, "nothing landed after the answer to the revocation"
    assert told_at < place or code(told) in CODES
    assert not any(world.host.private[place + 1 :]), "no private byte followed"
    return True


def judge(world: World, cases: list[tuple[str, Moment]]) -> None:
    """Judge every case; nearly all must be met as they were foreseen, but for what is passed when it comes."""
    missed = [(kind, moment) for kind, moment in cases if not judged(world, kind, moment)]
    still = [(kind, moment) for kind, moment in missed if not judged(world, kind, moment)]
    assert_met(cases, still)


def assert_met(cases: list[tuple[str, Moment]], missed: list[tuple[str, Moment]]) -> None:
    lost = [case for case in missed if phase_of(case[1].point) not in WHEN_THEY_COME]
    assert len(lost) <= len(cases) // 10, lost


def test_every_point_of_a_save_or_a_read_belongs_to_a_phase(moments: dict[str, list[Moment]]) -> None:
    passed = {moment.point for kind in moments.values() for moment in kind}
    assert [point for point in sorted(passed) if phase_of(point) is None] == []
    assert {phase_of(point) for point in passed} == set(PHASES), "a phase that nothing passes any more"


def test_a_save_that_stands_in_any_phase_has_landed_or_is_refused_when_the_revocation_is_answered(
    world: World, moments: dict[str, list[Moment]]
) -> None:
    cases = one_of_each(moments, SAVES)
    assert {phase_of(moment.point) for _, moment in cases} == set(PHASES)
    judge(world, cases)


def test_a_read_that_stands_in_any_phase_when_the_revocation_is_answered_hands_nothing_over(
    world: World, moments: dict[str, list[Moment]]
) -> None:
    judge(world, one_of_each(moments, READS))


# --- errors -----------------------------------------------------------------------------------------------------------

ERRORS: Final[dict[str, Callable[[], Exception]]] = {
    "a full disk": lambda: OSError(errno.ENOSPC, "No space left on device"),
    "a defect": lambda: RuntimeError("a defect of ours"),
}


@pytest.fixture(scope="module")
def fragile(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    """A world whose lane comes back at once however often it crashes: how often it may is no matter here."""
    patient = RestartPolicy(restarts=100_000, first_delay=0.0, longest_delay=0.0)
    with pytest.MonkeyPatch.context() as patch, nothing_left():
        patch.setattr(tree, "ActorSettings", partial(ActorSettings, restarts=patient))
        patch.setattr(tree, "STORE_RESTARTS", patient)
        with inhabited(tmp_path_factory.mktemp("fragile")) as made:
            yield made


def endured(world: World, kind: str, moment: Moment, error: Exception) -> bool:
    """A call meets an error, then the grant is taken away; false when the call did not come by."""
    world.host.grant()
    world.forget_answers()
    tool, arguments = {**SAVES, **READS}[kind](world)
    met = world.breaks(tool, arguments, moment, error)
    revoking = world.host.revoke()
    assert "result" in world.host.ask("access.grants.list", {"agent": "main"})
    at_once = world.host.answered(revoking)
    after = world.visible()
    world.rest()  # what the error left behind is finished or taken back
    place, message = world.host.answer(revoking)
    assert "result" in message
    if at_once:
        assert world.visible() == after, "nothing landed after the answer to the revocation"
    settled = world.visible()
    world.claim()
    assert len(settled[0]) + 2 == len(world.visible()[0]), "the owner's claim and its excerpt, and nothing else"
    assert not any(world.host.private[place + 1 :]), "no private byte followed"
    return met


def endure(world: World, cases: list[tuple[str, Moment]], error: str) -> None:
    # Helpers hold no fence, and are given up when they crash that often.
    cases = [case for case in cases if case[1].lane]
    assert_met(cases, [case for case in cases if not endured(world, *case, ERRORS[error]())])


@pytest.mark.parametrize("error", ERRORS)
def test_a_revocation_after_an_error_inside_the_fence_of_a_save_is_followed_by_nothing(
    fragile: World, moments: dict[str, list[Moment]], error: str
) -> None:
    endure(fragile, [case for case in one_of_each(moments, SAVES) if case[1].inside], error)


# --- the process dies -------------------------------------------------------------------------------------------------

CHILD: Final = """
import os, signal, sys
from pathlib import Path
from storage import faults
from tests.host_bridge.barrier_world import SAVES, inhabited, serves

state_dir, kind, point, number = Path(sys.argv[1]), sys.argv[2], sys.argv[3], int(sys.argv[4])
left = [number]

def kill(reached):
    if reached == point and serves():
        left[0] -= 1
        if not left[0]:
            os.kill(os.getpid(), signal.SIGKILL)

with inhabited(state_dir) as world:
    world.host.grant()
    tool, arguments = SAVES[kind](world)
    with faults.installed(kill):
        world.host.answer(world.send(tool, arguments))
"""


def killed(place: Path, kind: str, moment: Moment) -> bool:
    """Whether a process of its own met its death at a moment of a save."""
    child = subprocess.run(
        [sys.executable, "-P", "-c", CHILD, str(place), kind, moment.point, str(moment.number)],
        cwd=CHECKOUT, env={**os.environ, "PYTHONPATH": str(CHECKOUT)}, timeout=60, check=False,
    )  # fmt: skip
    assert child.returncode in (0, -signal.SIGKILL)
    return child.returncode != 0


def revoked_after_death(place: Path, take_away: Callable[[KnowledgeBridge], None]) -> None:
    """Take access away as the first thing that another process does: by then the store is as it stays."""
    with open_bridge(place) as bridge:
        take_away(bridge)
        after = visible(place)
        total(bridge)
        assert visible(place) == after, "nothing landed after the answer to the revocation"


@pytest.mark.slow
@pytest.mark.parametrize("take_away", [revoke, end_a_run])
@pytest.mark.parametrize("point", ["accept.commit", "accept.commit.after", "place.file.after", "settle.commit"])
def test_a_revocation_after_a_death_in_the_middle_of_a_merge_is_followed_by_nothing(
    tmp_path: Path, point: str, take_away: Callable[[KnowledgeBridge], None]
) -> None:
    assert killed(tmp_path, "a merge", Moment(point, 1, inside=True))
    revoked_after_death(tmp_path, take_away)


# --- every point of every kind ----------------------------------------------------------------------------------------


@pytest.mark.exhaustive
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("kind", [*SAVES, *READS])
def test_a_call_that_stands_at_any_point_is_over_or_refused_when_the_revocation_is_answered(
    tmp_path: Path, moments: dict[str, list[Moment]], kind: str
) -> None:
    # One of its own: what all kinds leave to be synced would take longer than a stop may.
    with quiet(tmp_path) as world:
        judge(world, [(kind, moment) for moment in every_point(moments[kind])])


@pytest.mark.exhaustive
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("error", ERRORS)
@pytest.mark.parametrize("kind", SAVES)
def test_a_revocation_after_an_error_at_any_point_of_a_save_is_followed_by_nothing(
    fragile: World, moments: dict[str, list[Moment]], kind: str, error: str
) -> None:
    endure(fragile, [(kind, moment) for moment in every_point(moments[kind])], error)


@pytest.mark.exhaustive
@pytest.mark.timeout(2400)
@pytest.mark.parametrize("kind", ["a merge", "an original"])
def test_a_revocation_after_a_death_at_any_point_of_a_save_is_followed_by_nothing(
    tmp_path: Path, moments: dict[str, list[Moment]], kind: str
) -> None:
    met = 0
    for number, moment in enumerate(moment for moment in every_point(moments[kind]) if moment.inside):
        place = tmp_path / str(number)
        met += killed(place, kind, moment)
        revoked_after_death(place, revoke if number % 2 else end_a_run)
    assert met

"""The barrier at each fault point of each kind of save and of read (decisions.md section 6).

A call stands at a point, or meets an error there, while the grant that it runs under is taken away. Judged at the far
end of the pipe and in the vault: nothing lands and nothing private leaves after the revocation was answered.

Every point belongs to a phase; the quick suite takes one moment of each phase on either side of the commit fence, the
exhaustive one every point of every kind of call.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import pytest

from tests.host_bridge.barrier_world import READS, SAVES, Moment, Prepare, World, inhabited
from tests.host_bridge.test_barrier import CODES, code
from tests.kit.leaks import nothing_left

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
    "look at what is replaced": ("open.folder", "target."),
    "stage": ("stage.", "manifest.stage"),
    "accept": ("accept.",),
    "place": ("place.", "manifest.place", "manifest.displaced", "manifest.stat"),
    "settle": ("settle.",),
}
"""What a call does at a point, by how the point's name begins."""


def phase_of(point: str) -> str | None:
    return next((phase for phase, names in PHASES.items() if point.startswith(names)), None)


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    with nothing_left(), inhabited(tmp_path_factory.mktemp("points")) as made:
        yield made


@pytest.fixture(scope="module")
def moments(world: World) -> dict[str, list[Moment]]:
    """Of each kind of call, every moment that it passed once."""
    world.host.grant()
    return {kind: world.trace(*prepare(world)) for kind, prepare in {**SAVES, **READS}.items()}


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
    """Judge every case; most must have been met as they were foreseen, since edits are taken over when they come."""
    missed = [(kind, moment) for kind, moment in cases if not judged(world, kind, moment)]
    still = [(kind, moment) for kind, moment in missed if not judged(world, kind, moment)]
    assert len(still) <= len(cases) // 5, still


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


@pytest.mark.exhaustive
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("kind", [*SAVES, *READS])
def test_a_call_that_stands_at_any_point_is_over_or_refused_when_the_revocation_is_answered(
    world: World, moments: dict[str, list[Moment]], kind: str
) -> None:
    judge(world, [(kind, moment) for moment in every_point(moments[kind])])

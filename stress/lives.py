"""Who fell over an injury, who came back, in what order, and when callers were answered again.

From the notes of the owner's process (:mod:`stress.subject`): each actor's incarnations with the moments at which they
began and ended.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from stress.ledger import Ledger, Life, Struck

FALL_SECONDS: Final = 2.0
BACK_SECONDS: Final = 6.0
"""Five restarts in 30 s are the most, the last after 0.8 s; a start is proven in 5 s. The rest is the machine's."""
LANE: Final = "/lane"
HELPERS: Final = "/helpers/"


@dataclass(frozen=True, slots=True)
class Fall:
    """One injury that was meant to end an actor. ``ended`` None: it withstood. ``back``: its next incarnation began."""

    struck: Struck
    actor: str
    ended: float | None
    back: float | None
    problems: tuple[str, ...] = ()

    @property
    def role(self) -> str:
        return self.actor.rsplit("/", 1)[-1]


def falls(ledger: Ledger, outages: Sequence[tuple[float, float]], until: float) -> list[Fall]:
    """Every injury that was meant to end an actor, with what followed. Left out is what an outage or the end of
    the run took off the stage before all was as it should be."""
    lives = defaultdict[int, list[Life]](list)
    for life in ledger.lives:
        lives[life.pid].append(life)
    for noted in lives.values():
        noted.sort(key=lambda life: life.at)
    found = []
    for struck in ledger.struck:
        if not struck.kind.endswith(("crashes", "dies")):
            continue
        fall = _fall(struck, lives[struck.pid])
        end = (struck.at + FALL_SECONDS if fall.ended is None else fall.ended) + BACK_SECONDS
        if fall.problems and (end > until or any(start < end and struck.at < over for start, over in outages)):
            continue
        found.append(fall)
    return found


def answered_again(ledger: Ledger, found: Sequence[Fall], stores: Mapping[str, str]) -> list[float]:
    """Seconds from each crash of a lane to the first answer of its store that was asked for afterwards, as a client saw
    it. ``stores`` by vault id."""
    times = []
    answered = defaultdict[str, list[tuple[float, float]]](list)
    for op in ledger.operations:
        if op.code == "ok":
            answered[op.caller.store].append((op.began, op.ended))
    for fall in found:
        if fall.role != "lane" or fall.ended is None:
            continue
        store = stores.get(fall.actor.removesuffix(LANE).rsplit(" ", 1)[-1])
        after = [ended for began, ended in answered.get(store or "", ()) if began >= fall.struck.at]
        if after:
            times.append(min(after) - fall.struck.at)
    return times


def _fall(struck: Struck, lives: Sequence[Life]) -> Fall:
    actor = struck.place.split(": ")[0]
    role = actor.rsplit("/", 1)[-1]
    own = [life for life in lives if life.actor == actor and life.at >= struck.at]
    ended = next((life.at for life in own if life.what == "ended" and life.at <= struck.at + FALL_SECONDS), None)
    if ended is None:
        said = (f"{role} was to die and lives",) if struck.kind.endswith("dies") else ()
        return Fall(struck, actor, None, None, said)
    back = next((life.at for life in own if life.what == "started" and life.at >= ended), None)
    if back is None or back - ended > BACK_SECONDS:
        return Fall(struck, actor, ended, back, (f"{role} did not come back",))
    return Fall(struck, actor, ended, back, tuple(_out_of_order(actor, struck.at, back, lives)))


def _out_of_order(actor: str, since: float, back: float, lives: Sequence[Life]) -> list[str]:
    """A lane takes its helpers along and comes before them; a helper, or an actor of the whole runtime, comes alone."""
    if not actor.endswith(LANE):
        lane = actor.split(HELPERS)[0] + LANE if HELPERS in actor else LANE
        return [
            f"{actor.rsplit('/', 1)[-1]} took a lane along"
            for life in lives
            if life.what == "ended" and life.actor.endswith(lane) and since <= life.at <= back
        ][:1]
    place = actor.removesuffix(LANE) + HELPERS
    helpers = {life.actor for life in lives if life.actor.startswith(place) and life.at <= since}
    wrong = []
    for helper in sorted(helpers):
        before = [life for life in lives if life.actor == helper and life.at <= back]
        if before and before[-1].what == "started":
            wrong.append(f"{helper.rsplit('/', 1)[-1]} outlived its lane")
        after = [life for life in lives if life.actor == helper and life.what == "started" and life.at > back]
        if not after or after[0].at - back > BACK_SECONDS:
            wrong.append(f"{helper.rsplit('/', 1)[-1]} did not follow its lane")
    return wrong

"""What can be done to a running owner from inside, and the order in which a run does it.

An :class:`Injury` is armed in the owner's process (:mod:`stress.subject`) and strikes when a matching thread passes a
matching fault point, or when a matching actor takes its next message. :func:`plan` makes them from a seed.
"""

from __future__ import annotations

import errno
import random
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import Final, Literal

from messages.json_types import JsonObject

Action = Literal["crash", "stall", "errno", "die"]

HELPERS: Final = ("git queue", "indexer", "evidence verifier", "file sync", "auditor", "source keeper")
"""Actors with fault points of their own, besides the lane."""
MESSENGERS: Final = (
    *("authority", "watcher", "maintenance", "lane", "git queue", "indexer", "evidence verifier", "file sync"),
    *("auditor", "source keeper", "recall gate"),
)
"""Actors that may be made to die over a message."""
ERRNOS: Final = (errno.ENOSPC, errno.EIO, errno.EROFS, errno.EMFILE, errno.EACCES)
STALL_SECONDS: Final = (0.05, 0.3, 1.2)


@dataclass(frozen=True, slots=True)
class Injury:
    """``crash``: a defect at the point; ``errno``: the system refuses there, ``times`` in a row; ``stall``: the
    point takes ``seconds`` longer; ``die``: the actor's thread ends over its next message.

    It strikes at the ``skip``-th match. ``actor`` is the end of an actor's name, ``""`` any thread.
    """

    action: Action
    actor: str
    skip: int = 0
    times: int = 1
    seconds: float = 0.0
    errno: int = 0
    point: str = ""

    def to_json(self) -> JsonObject:
        return asdict(self)

    @property
    def kind(self) -> str:
        """What a report calls it."""
        match self.action:
            case "errno":
                return errno.errorcode[self.errno]
            case "stall":
                return f"{self.actor} stalls"
            case "die":
                return f"{self.actor} dies"
            case "crash":
                return f"{self.actor} crashes"


def plan(seed: int) -> Iterator[Injury]:
    """An endless, seeded order of injuries in which every kind comes again and again. A short run has those first
    after which somebody must be started again: a lane with all its helpers, and a helper alone."""
    chance = random.Random(f"injuries/{seed}")
    yield Injury("die", "lane", chance.randrange(20))
    yield Injury("die", chance.choice(("git queue", "indexer")))
    while True:
        kinds: list[Action] = ["crash", "crash", "crash", "stall", "stall", "errno", "errno", "errno", "die", "die"]
        chance.shuffle(kinds)
        for kind in kinds:
            yield _injury(kind, chance)


def _injury(kind: Action, chance: random.Random) -> Injury:
    skip = chance.randrange(120)
    match kind:
        case "crash":
            actor = "lane" if chance.random() < 0.6 else chance.choice(HELPERS)
            return Injury("crash", actor, skip if actor == "lane" else skip % 7)
        case "stall":
            actor = "lane" if chance.random() < 0.5 else chance.choice(HELPERS)
            return Injury("stall", actor, skip if actor == "lane" else skip % 7, seconds=chance.choice(STALL_SECONDS))
        case "errno":
            actor = "lane" if chance.random() < 0.7 else chance.choice(HELPERS)
            return Injury("errno", actor, skip % 40, times=chance.choice((1, 1, 3)), errno=chance.choice(ERRNOS))
        case "die":
            return Injury("die", chance.choice(MESSENGERS), skip % 5)

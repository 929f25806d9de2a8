"""How much a word tells by how few hold it. Pure."""

from __future__ import annotations

import math


def rarity(holding: int, of: int) -> float:
    """The weight of a word that ``holding`` of ``of`` texts hold: the fewer, the higher.

    Never 0, as FTS5's own is for a word on more than half of the pages, which names of a person's store are.
    """
    return math.log(1 + (of - holding + 0.5) / (holding + 0.5))

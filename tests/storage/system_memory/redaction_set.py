"""The frozen set that the redaction gate is measured on. ``python -m tests.storage.system_memory.redaction_set``.

Negatives lie in a file as they are. Positives are made from templates and a seeded source: no secret stands anywhere.
It was written before the gate was tuned; a case is never taken out because the gate fails it.
"""

from __future__ import annotations

import json
import random
import re
import string
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from storage.system_memory.redaction import secrets_in

SEED: Final = 20260825
HERE: Final = Path(__file__).parent
CONTEXTS_OF_A_SHAPE: Final = 6

_DRAW: Final = re.compile(r"\{([a-zA-Z0-9]+):([0-9]+)\}")
_ALPHABETS: Final = {
    "alnum": string.ascii_letters + string.digits,
    "letter": string.ascii_letters,
    "upper": string.ascii_uppercase + string.digits,
    "digit": string.digits,
    "hex": "0123456789abcdef",
    "HEX": "0123456789ABCDEF",
    "base32": string.ascii_uppercase + "234567",
    "bech": "QPZRY9X8GF2TVDW0S3JN54KHCE6MUA7L",
    "url": string.ascii_letters + string.digits + "-_",
    "b64": string.ascii_letters + string.digits + "+/",
}


@dataclass(frozen=True, slots=True)
class Score:
    """Counts of the set, and what the gate got wrong: its templates and texts, never a secret."""

    positives: int
    negatives: int
    missed: tuple[str, ...]
    false_alarms: tuple[str, ...]

    @property
    def recall(self) -> float:
        return (self.positives - len(self.missed)) / self.positives

    @property
    def precision(self) -> float:
        found = self.positives - len(self.missed)
        return found / (found + len(self.false_alarms))

    def told(self) -> str:
        return (
            f"redaction: precision {self.precision:.4f}, recall {self.recall:.4f} "
            f"({self.positives} positives, {len(self.missed)} missed; "
            f"{self.negatives} negatives, {len(self.false_alarms)} false alarms)"
        )


def templates() -> list[tuple[str, bool]]:
    """Every template of a positive, and whether its secret is to be cut by line breaks."""
    data: dict[str, Any] = json.loads((HERE / "redaction_positives.json").read_text("utf-8"))
    contexts: list[str] = data["contexts"]
    made = [(sentence, False) for sentence in data["sentences"]]
    at = 0
    for shapes in data["shapes"].values():
        for shape in shapes:
            for _ in range(CONTEXTS_OF_A_SHAPE):
                made.append((contexts[at % len(contexts)].replace("{S}", shape), False))
                at += 1
            if "://" not in shape:
                made += ((text.replace("{S}", f"{{cut}}{shape}{{uncut}}"), True) for text in data["broken"])
    return made


def filled(template: str, source: random.Random) -> str:
    """The template with characters drawn for it."""

    def draw(match: re.Match[str]) -> str:
        return "".join(source.choice(_ALPHABETS[match[1]]) for _ in range(int(match[2])))

    text = _DRAW.sub(draw, template.replace("{br}", "\n").replace("{PRIVATE}", "PRIVATE"))
    if "{cut}" in text:
        before, _, rest = text.partition("{cut}")
        secret, _, after = rest.partition("{uncut}")
        place = source.randrange(len(secret) // 3, len(secret) - 2)
        line_end = source.choice(("\n", "\r\n", "\\\n", "\n    ", "\n> "))
        text = f"{before}{secret[:place]}{line_end}{secret[place:]}{after}"
    return text


def positives(seed: int = SEED) -> list[tuple[str, str]]:
    """Template and text of every positive."""
    source = random.Random(seed)
    return [(template, filled(template, source)) for template, _ in templates()]


def negatives() -> list[str]:
    texts: list[str] = json.loads((HERE / "redaction_negatives.json").read_text("utf-8"))
    return [text.replace("{PRIVATE}", "PRIVATE") for text in texts]


def measured(seed: int = SEED) -> Score:
    """The gate on the whole set."""
    made, clean = positives(seed), negatives()
    return Score(
        len(made),
        len(clean),
        tuple(template for template, text in made if not secrets_in(text)),
        tuple(text for text in clean if secrets_in(text)),
    )


if __name__ == "__main__":
    sys.stdout.write(measured().told() + "\n")

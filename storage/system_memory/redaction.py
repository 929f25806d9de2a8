"""Secrets in a text: found by their shapes and refused before anything is written.

Private keys, bearer tokens, API keys of the usual issuers, values that only chance can have written behind a name
that says what they are, and passwords in connection strings. Not found: a password that a person thought up, outside
of a connection string. Linear in the text; pure, any thread. No error and no log holds what was found.

Source: system-memory-contract.md section 11, point 3.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Iterator, Set
from dataclasses import dataclass
from itertools import pairwise
from typing import Final, assert_never

from messages.errors import RedactionRequired
from storage.system_memory import secret_shapes as shapes
from storage.system_memory.secret_shapes import Shape

_ALNUM: Final = re.compile(r"[A-Za-z0-9]")
_KEY_WINDOW: Final = 1_000
_NAME_WINDOW: Final = 16
_ISSUED_LEAST: Final = -0.05
_CAPITALS_LEAST: Final = -0.3
_RANDOM_LEAST: Final = 0.1


@dataclass(frozen=True, slots=True, order=True)
class Finding:
    """A secret in ``[start, end)``, in code points. ``kind`` names its shape, as ``github_token``."""

    start: int
    end: int
    kind: str


def refuse_secrets(field: str, text: str) -> None:
    """Raise ``RedactionRequired`` when ``text`` holds a secret; the error names the field and the kinds alone."""
    kinds = sorted({finding.kind for finding in secrets_in(text)})
    if kinds:
        named = " and ".join(kind.replace("_", " ") for kind in kinds)
        message = f"{field} holds what looks like a secret ({named}); take it out, and rotate it if it is a real one"
        raise RedactionRequired(message, field=field, kinds=kinds)


def secrets_in(text: str) -> tuple[Finding, ...]:
    """The secrets of a text in their order; of findings that overlap the one that begins first."""
    found = [*_private_keys(text)]
    folded = text.lower()
    for shape in shapes.SHAPES:
        found += _matches(shape, text, folded)
    joined, cuts = _joined(text)
    if cuts:
        folded = joined.lower()
        edges = {start for start, _ in cuts}
        for shape in shapes.SHAPES:
            found += (_moved(finding, cuts) for finding in _cut_matches(shape, joined, folded, edges))
    return _apart(found)


def _matches(shape: Shape, text: str, folded: str) -> Iterator[Finding]:
    if not shape.hints or any(hint in folded for hint in shape.hints):
        for match in shape.pattern.finditer(text):
            if _is_secret(shape, match):
                yield _finding(shape, match)


def _cut_matches(shape: Shape, joined: str, folded: str, edges: Set[int]) -> Iterator[Finding]:
    """The same in a text without its line breaks, which stood at ``edges``: there a secret may begin and end, too."""
    if shape.joined is None or (shape.hints and not any(hint in folded for hint in shape.hints)):
        return
    for match in shape.joined.finditer(joined):
        inside = match.start() not in edges and _ALNUM.fullmatch(joined[match.start() - 1 : match.start()])
        runs_on = (
            shape.runs_on is not None
            and match.end() not in edges
            and shape.runs_on.fullmatch(joined[match.end() : match.end() + 1])
        )
        if not inside and not runs_on and _is_secret(shape, match):
            yield _finding(shape, match)


def _finding(shape: Shape, match: re.Match[str]) -> Finding:
    whole = shape.judge in ("shape", "issued", "capitals")
    return Finding(match.start() if whole else match.start("s"), match.end("s"), shape.kind)


def _is_secret(shape: Shape, found: re.Match[str]) -> bool:
    value = found["s"]
    match shape.judge:
        case "shape":
            return True
        case "issued":
            return not is_stand_in(value) and chance(value) > _ISSUED_LEAST
        case "capitals":
            return not is_stand_in(value) and chance(value) > _CAPITALS_LEAST
        case "random":
            return _is_random(value)
        case "assigned":
            before = found.string[max(0, found.start() - _NAME_WINDOW) : found.start()]
            named = shapes.NO_SECRET_NAME.search(before) is None and shapes.UUID.fullmatch(value) is None
            called = found.string[found.end() : found.end() + 1] in ("(", "[")
            return named and not called and _is_random(value)
        case "password":
            common = value == found["user"] or shapes.STAND_IN_PASSWORD.fullmatch(value) is not None
            return not common and not (shapes.STAND_IN.search(value) or _is_sequence(value))
        case _:
            assert_never(shape.judge)


def _is_random(value: str) -> bool:
    if is_stand_in(value):
        return False
    return shapes.HEX.fullmatch(value) is not None or chance(value) > _RANDOM_LEAST


def is_stand_in(value: str) -> bool:
    """Whether the value stands for one: words of documentation, few characters again and again, or the alphabet."""
    few = len(set(value)) < min(8, len(value) // 2)
    return few or shapes.STAND_IN.search(value) is not None or _is_sequence(value)


def chance(value: str) -> float:
    """How much more a value changes between small letters, capitals and digits than it has vowels; by its length.

    Words, identifiers and paths are below 0.1, values drawn by chance above it: words change seldom, and every third
    of their letters is a vowel.
    """
    classes = [_character_class(character) for character in value]
    changes = sum(one != other for one, other in pairwise(classes) if one and other)
    return (changes - sum(character in "aeiouAEIOU" for character in value)) / max(1, sum(map(bool, classes)))


def _character_class(character: str) -> str:
    if character.isdigit():
        return "digit"
    if character.isupper():
        return "capital"
    return "small" if character.isalpha() else ""


def _is_sequence(value: str) -> bool:
    steps = sum(ord(other) - ord(one) == 1 for one, other in pairwise(value))
    return steps * 2 >= len(value)


def _private_keys(text: str) -> Iterator[Finding]:
    for header in shapes.KEY_HEADER.finditer(text):
        window = text[header.end() : header.end() + _KEY_WINDOW]
        if header[0].startswith("PuTTY"):
            lines = shapes.PUTTY_PRIVATE.search(window)
            if lines is None:
                continue
            window = window[lines.end() :]
        else:
            footer = shapes.KEY_FOOTER.search(window)
            window = window if footer is None else window[: footer.start()]
        body = shapes.KEY_PADDING.sub("", shapes.KEY_HEADER_LINE.sub("", window))
        key = shapes.KEY_BODY.search(body)
        if key is not None and chance(key[0]) > _RANDOM_LEAST:
            yield Finding(header.start(), header.end() + len(window), "private_key")
    if '"kty"' in text:
        for match in shapes.JWK.finditer(text):
            if not is_stand_in(match["s"]):
                yield Finding(match.start("s"), match.end("s"), "private_key")


def _joined(text: str) -> tuple[str, list[tuple[int, int]]]:
    """The text without the line breaks inside its runs, and for each piece its start there and in ``text``."""
    pieces: list[str] = []
    cuts: list[tuple[int, int]] = []
    length = position = 0
    for cut in shapes.LINE_CUT.finditer(text):
        pieces.append(text[position : cut.start()])
        length += len(pieces[-1])
        position = cut.end()
        cuts.append((length, position))
    return "".join((*pieces, text[position:])), cuts


def _moved(finding: Finding, cuts: list[tuple[int, int]]) -> Finding:
    """The finding as a place of the text that was joined."""

    def place(offset: int) -> int:
        number = bisect_right(cuts, offset, key=lambda cut: cut[0])
        start, original = cuts[number - 1] if number else (0, 0)
        return original + offset - start

    return Finding(place(finding.start), place(finding.end - 1) + 1, finding.kind)


def _apart(found: list[Finding]) -> tuple[Finding, ...]:
    kept: list[Finding] = []
    for finding in sorted(found, key=lambda one: (one.start, -one.end, one.kind)):
        if not kept or finding.start >= kept[-1].end:
            kept.append(finding)
    return tuple(kept)

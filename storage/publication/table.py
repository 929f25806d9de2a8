"""The decision tables of recovery as pure functions: what two names hold decides what is done.

Source: WRITE-PATH.md tables 3a and 3b.
"""

from __future__ import annotations

from collections.abc import Iterable
from enum import Enum, auto
from typing import assert_never

from storage.state.journal import StepKind


class Holds(Enum):
    """What a name holds, seen from one step: its old text, its new text, any other text, or nothing."""

    BEFORE = auto()
    AFTER = auto()
    OTHER = auto()
    NOTHING = auto()


class Action(Enum):
    """What to do with one step of a pending entry."""

    PLACE = auto()  # the staged text is ready: exchange or move it, then look
    RESTAGE = auto()  # write the staged text again from the journal, then place
    DONE = auto()  # it is placed, whatever a person did to it since
    CONFLICT = auto()  # a person got in between: undo the whole publication


def decide(kind: StepKind, path: Holds, staged: Holds) -> Action:
    """Table 3a, for a live retry and after a process stop. Total: every combination has an answer."""
    match kind:
        case "replace":
            return _replace(path, staged)
        case "create":
            return _create(path, staged)
        case "remove":
            return _remove(path, staged)
        case _:
            assert_never(kind)


def _replace(path: Holds, staged: Holds) -> Action:
    if staged is Holds.OTHER:
        return Action.CONFLICT  # we displaced a text that nobody told us about
    if path is Holds.AFTER or staged is Holds.BEFORE:
        return Action.DONE  # the exchange happened; what differs now came after it
    if path is Holds.BEFORE:
        return Action.PLACE if staged is Holds.AFTER else Action.RESTAGE
    return Action.CONFLICT


def _create(path: Holds, staged: Holds) -> Action:
    match path:
        case Holds.AFTER:
            return Action.DONE
        case Holds.NOTHING:
            return Action.PLACE if staged is Holds.AFTER else Action.RESTAGE
        case _:
            return Action.CONFLICT


def _remove(path: Holds, staged: Holds) -> Action:
    if staged is Holds.OTHER:
        return Action.CONFLICT
    if path is Holds.NOTHING or staged is Holds.BEFORE:
        return Action.DONE
    return Action.PLACE if path is Holds.BEFORE else Action.CONFLICT


def is_torn(data: bytes, known: Iterable[bytes], block: int) -> bool:
    """Whether ``data`` is what a power loss can leave of one of the ``known`` texts: nothing, zeros, a prefix that
    ends on a block boundary, or a prefix followed by zeros."""
    written = data.rstrip(b"\0")
    if not written:
        return True
    for text in known:
        if len(data) > len(text) or data == text:
            continue
        if len(written) < len(data) and text.startswith(written):
            return True
        if len(data) % block == 0 and text.startswith(data):
            return True
    return False

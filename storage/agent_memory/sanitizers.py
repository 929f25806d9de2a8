"""What a text is put through before it is remembered.

Pure; any thread. Source: agent-memory.md (Pre-Save Sanitization), agent-memory-contract.md sections 5 and 6.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from difflib import SequenceMatcher
from typing import TypeAlias

PreSaveHook: TypeAlias = Callable[[str], str | None]
"""Answers the text to go on with, or ``None`` to reject it."""


def strip_surrogates(text: str | None) -> str:
    """The text without what UTF-8 cannot encode: lone surrogates. ``None`` gives ``""``."""
    return "" if text is None else text.encode("utf-8", errors="ignore").decode("utf-8")


def dedupe_against(existing_fetcher: Callable[[], Iterable[str]], threshold: float = 0.9) -> PreSaveHook:
    """A hook that rejects a text as similar as ``threshold`` (0 to 1) to any of the existing ones, and gives every
    other back as it is. The fetcher is called each time."""

    def hook(text: str) -> str | None:
        for existing in existing_fetcher():
            matcher = SequenceMatcher(None, text, existing, autojunk=False)
            # Each of the first two is an upper bound of the next, and much cheaper.
            if (
                matcher.real_quick_ratio() >= threshold
                and matcher.quick_ratio() >= threshold
                and matcher.ratio() >= threshold
            ):
                return None
        return text

    return hook


dedupe_against.__stability__ = "beta"  # type: ignore[attr-defined]  # a mark of maturity, no member
strip_surrogates.__stability__ = "beta"  # type: ignore[attr-defined]  # a mark of maturity, no member

"""What a text is put through before it is remembered.

Pure; any thread; in time that grows as the text does. Each sanitizer changes nothing in what it has given back.

Source: agent-memory.md (Pre-Save Sanitization), agent-memory-contract.md sections 5 and 6.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from difflib import SequenceMatcher
from typing import Final, TypeAlias

PreSaveHook: TypeAlias = Callable[[str], str | None]
"""Answers the text to go on with, or ``None`` to reject it."""


def strip_surrogates(text: str | None) -> str:
    """The text without what UTF-8 cannot encode: lone surrogates. ``None`` gives ``""``."""
    return "" if text is None else text.encode("utf-8", errors="ignore").decode("utf-8")


# White space is taken possessively: two runs side by side would else be shared out in every possible way.
_ROLE_MARKER: Final = re.compile(
    r"(?P<square>\[)[ \t]*+(?=\s*+/?+\s*+(?:INST|SYS|ASSISTANT|USER|SYSTEM)\s*+\])"
    r"|(?P<double><)\s*+<[ \t]*+(?=\s*+/?+\s*+SYS\s*+>\s*+>)"
    r"|(?P<angle><)[ \t]*+(?=\s*+(?:\|\s*+)?+(?:/\s*+)?+"
    r"(?:im_start|im_end|system|assistant|user|endoftext|start|end)\s*+(?:\|\s*+)?+>)",
    re.IGNORECASE,
)
_SPEAKER: Final = re.compile(
    "(\\s*+(?:User|Assistant|System|Human|Usu(?:\u00e1|a\u0301|a)rio|Sistema|Assistente|Humano))\\s*+(?=[:\uff1a])",
    re.IGNORECASE,
)
_FENCE: Final = re.compile(r"([ \t]{0,3}+)(`{3,}+|~{3,}+)")
_INDENT: Final = re.compile(r"[ \t]{0,3}+(?=---)")
_LOOKALIKES: Final = str.maketrans("`~", "\u02cb\u02dc")
_BLANKS: Final = " \t"


def defang_delimiters(text: str | None) -> str:
    """The text with what a prompt could take for structure made harmless and still readable: ``--- label ---`` lines,
    role markers of chat templates, speaker labels at the beginning of a line, and code fences. ``None`` gives ``""``.

    Not every marker there is: see agent-memory.md, Known Limitations. Lines end where ``str.splitlines`` ends them.
    """
    if text is None:
        return ""
    return "".join(map(_defanged_line, _ROLE_MARKER.sub(_parted, text).splitlines(keepends=True)))


def _parted(match: re.Match[str]) -> str:
    if match["square"]:
        return "[ "
    return "< < " if match["double"] else "< "


def _defanged_line(line: str) -> str:
    body = line.rstrip("\n\r\v\f\x1c\x1d\x1e\x85\u2028\u2029")
    end = line[len(body) :]
    indent = _INDENT.match(body)
    if indent is not None:
        return indent[0] + _undelimited(body[indent.end() :]) + end
    speaker = _SPEAKER.match(body)
    if speaker is not None:
        return f"{speaker[1]} {body[speaker.end() :]}{end}"
    fence = _FENCE.match(body)
    if fence is not None:
        return f"{fence[1]}{fence[2].translate(_LOOKALIKES)}{body[fence.end() :]}{end}"
    return line


def _undelimited(line: str) -> str:
    """A line that begins with three dashes, with em dashes where they part it from others."""
    stripped = line.rstrip(_BLANKS)
    if len(stripped) > 6 and stripped.endswith("---") and stripped[3] != "-":
        inner = stripped[3:-3]
        label = inner.strip(_BLANKS)
        if not label or label.startswith("-"):
            # The blank before it is then what the label begins with.
            at = len(inner) - len(inner.lstrip(_BLANKS))
            label = inner[at - 1 :].rstrip(_BLANKS) or inner[-1]
        return f"\u2014 {label} \u2014"
    label = stripped[3:].lstrip(_BLANKS)
    return f"\u2014 {label}" if label and label[0] != "-" and line[3] in _BLANKS else line


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


defang_delimiters.__stability__ = "beta"  # type: ignore[attr-defined]  # a mark of maturity, no member
dedupe_against.__stability__ = "beta"  # type: ignore[attr-defined]  # a mark of maturity, no member
strip_surrogates.__stability__ = "beta"  # type: ignore[attr-defined]  # a mark of maturity, no member

"""``MEMORY.md``: the persistent facts under a heading for each category, for people to read and to edit.

Only ``## `` at the very beginning of a line is a heading and only ``- `` there begins a fact; further lines of a fact
are indented, so that no text of a fact can forge either. Two facts are the same when their lines are, white space at
their ends and empty lines aside: an editor may trim them. Pure; text in, text out.

Source: agent-memory.md (Architecture, Categories).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, NamedTuple

NAME: Final = "MEMORY.md"
FACTS_NAME: Final = ".facts.jsonl"
"""Which facts of entries stand there."""
TITLE: Final = "# Agent Memory"
_HEADING: Final = "## "
_FACT: Final = "- "
_FURTHER: Final = "  "


class Fact(NamedTuple):
    """A fact and the category under whose heading it stands."""

    category: str
    content: str


def one_line(category: str) -> str:
    """A category as a heading can hold it: one line, single spaces."""
    return " ".join(category.split())


def bullet(content: str) -> list[str]:
    """The lines of a fact: the first after ``- ``, each further one indented."""
    first, *further = content.strip().splitlines() or [""]
    return [f"{_FACT}{first}".rstrip(), *(f"{_FURTHER}{line}".rstrip() for line in further)]


def sameness(category: str, content: str) -> Fact:
    """Equal for facts that are the same."""
    lines = (line.strip() for line in content.splitlines())
    return Fact(one_line(category), "\n".join(line for line in lines if line))


def facts(text: str) -> list[Fact]:
    """Every fact in the order of the file, written by whomever."""
    return [Fact(category, content) for category, content, _, _ in _found(_lines(text))]


def with_fact(text: str, category: str, content: str) -> str:
    """The text with this fact at the end of its category, which comes last where it is new. Nothing else changes; a
    fact that is there already is not repeated."""
    wanted = sameness(category, content)
    beginning = wanted.content.partition("\n")[0]
    # Most facts begin otherwise, which is seen without looking at all their lines.
    alike = (fact for fact in facts(text) if fact.content.lstrip().startswith(beginning))
    if any(sameness(*fact) == wanted for fact in alike):
        return text
    lines = _lines(text) or [TITLE]
    heading = f"{_HEADING}{one_line(category)}"
    if heading not in (line.rstrip() for line in lines):
        return _joined([*_without_blank_end(lines), "", heading, *bullet(content)])
    start = next(number for number, line in enumerate(lines) if line.rstrip() == heading)
    end = next((n for n in range(start + 1, len(lines)) if lines[n].startswith(("# ", _HEADING))), len(lines))
    while end > start + 1 and not lines[end - 1].strip():
        end -= 1
    return _joined([*lines[:end], *bullet(content), *lines[end:]])


def without_facts(text: str, unwanted: frozenset[Fact]) -> str:
    """The text without these facts (:func:`sameness`); a heading that nothing stands under any more goes too."""
    lines = _lines(text)
    gone = [(start, end) for category, content, start, end in _found(lines) if sameness(category, content) in unwanted]
    if not gone:
        return text
    emptied = {_heading_of(lines, start) for start, _ in gone}
    for start, end in reversed(gone):
        del lines[start:end]
    for heading in sorted((number for number in emptied if number is not None), reverse=True):
        end = next((n for n in range(heading + 1, len(lines)) if lines[n].startswith(("# ", _HEADING))), len(lines))
        if not any(line.strip() for line in lines[heading + 1 : end]):
            del lines[heading:end]
    return _joined(_without_blank_end(lines))


def _found(lines: list[str]) -> Iterator[tuple[str, str, int, int]]:
    """Category, content, and the lines from and to which each fact stands."""
    category, number = "", 0
    while number < len(lines):
        line = lines[number] if number else lines[0].removeprefix("\ufeff")  # as some editors begin a file
        number += 1
        if line.startswith(_HEADING):
            category = line[len(_HEADING) :].strip()
        elif line.startswith(_FACT) or line.rstrip() == "-":
            start, content = number - 1, [line[len(_FACT) :].rstrip()]
            end = number
            while number < len(lines) and (lines[number].startswith((" ", "\t")) or not lines[number].strip()):
                content.append(lines[number].removeprefix(_FURTHER).rstrip())
                number += 1
                if content[-1]:
                    end = number
            number = end
            yield category, "\n".join(content[: end - start]), start, end


def _lines(text: str) -> list[str]:
    """Split at line feeds alone: what else breaks lines stays as a person wrote it."""
    lines = text.split("\n")
    return lines[:-1] if not lines[-1] else lines


def _heading_of(lines: list[str], number: int) -> int | None:
    return next((above for above in range(number, -1, -1) if lines[above].startswith(_HEADING)), None)


def _without_blank_end(lines: list[str]) -> list[str]:
    end = len(lines)
    while end and not lines[end - 1].strip():
        end -= 1
    return lines[:end]


def _joined(lines: list[str]) -> str:
    return "\n".join(lines) + "\n"

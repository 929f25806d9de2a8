"""``stances.json``: the reviewed positions, each with the digest of exactly what was reviewed.

Source: system-memory-contract.md section 7 (the array's keys), section 11 (the digest that a promotion checks).
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import date
from functools import cached_property
from typing import Final

from messages.json_types import JsonObject
from messages.text import is_blank, is_one_line
from storage.knowledge_base import located_json
from storage.knowledge_base.located_json import Located, Member
from storage.knowledge_base.problems import Problem, refusal

STANCE_ID: Final = re.compile(r"[a-z0-9]+(?:-[a-z0-9]+)*")
STANCE_ID_MAX_CHARS: Final = 200
KEYS: Final = ("id", "title", "questions", "state", "answer", "sources", "date")

_DATE: Final = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}")
_DIGEST_PREFIX: Final = "sha256:"


@dataclass(frozen=True)
class Stance:
    """One reviewed position. ``date`` is the day of its review, ``sources`` are citations in free text."""

    id: str
    title: str
    questions: tuple[str, ...]
    state: str
    answer: str
    sources: tuple[str, ...]
    date: str

    @cached_property
    def digest(self) -> str:
        """``sha256:`` and the lower-case hex over the stance in canonical JSON.

        Canonical is RFC 8785: the seven keys of ``stances.json`` and nothing else, sorted, without blanks, in UTF-8,
        every character as itself but for those that JSON must escape. Layout and order of keys in the file, and where
        in the file the stance stands, change nothing; any change of a text does.
        """
        text = json.dumps(self.to_json(), ensure_ascii=False, sort_keys=True, separators=(",", ":"))
        return _DIGEST_PREFIX + hashlib.sha256(text.encode()).hexdigest()

    def to_json(self) -> JsonObject:
        """The stance as ``stances.json`` has it."""
        return asdict(self)


def parse(data: bytes, file: str) -> tuple[Stance, ...]:
    """The stances of a file in their order. ``file`` is its name in errors.

    Raises ``InvalidArgument`` with every problem at once, each with the stance's id or position and its line.
    """
    root, problems = read_json(data, file)
    if not isinstance(root.value, tuple):
        raise refusal(file, [*problems, Problem("", root.line, "the file must be an array of stances")])
    stances = read_stances(root.value, problems)
    if problems:
        raise refusal(file, problems)
    return stances


def read_json(data: bytes, file: str) -> tuple[Located, list[Problem]]:
    """The file's value and what is wrong with its JSON; a byte order mark is accepted."""
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise refusal(file, [Problem("", line, f"the file is not UTF-8 at byte {error.start}")]) from None
    try:
        root, troubles = located_json.parse(text)
    except located_json.Unreadable as error:
        raise refusal(file, [Problem("", error.line, error.message)]) from None
    return root, [Problem("", trouble.line, trouble.message) for trouble in troubles]


def read_stances(
    items: Iterable[Located], problems: list[Problem], *, also: Sequence[str] = ()
) -> tuple[Stance, ...]:
    """The stances among ``items`` that have no problem of their own; all problems go into ``problems``.

    ``also`` are keys beside the seven that the caller reads itself.
    """
    found: list[Stance] = []
    lines: dict[str, int] = {}
    for position, item in enumerate(items):
        reader = _StanceReader(item, f"[{position}]", problems)
        stance = reader.stance(also)
        if reader.entry in lines:
            reader.note(item.line, f"the id is taken by the stance on line {lines[reader.entry]}; each id once")
            continue
        if reader.has_id:
            lines[reader.entry] = item.line
        if stance is not None:
            found.append(stance)
    return tuple(found)


class _StanceReader:
    """Reads one stance and notes what is wrong with it."""

    def __init__(self, item: Located, position: str, problems: list[Problem]) -> None:
        self._item = item
        self._problems = problems
        self._members: Mapping[str, Member] = item.value if isinstance(item.value, Mapping) else {}
        identity = self._members.get("id")
        named = identity.value.value if identity is not None else None
        self.has_id = isinstance(named, str) and is_stance_id(named)
        self.entry = str(named) if self.has_id else position

    def note(self, line: int, message: str) -> None:
        self._problems.append(Problem(self.entry, line, message))

    def stance(self, also: Sequence[str]) -> Stance | None:
        if not isinstance(self._item.value, Mapping):
            self.note(self._item.line, "a stance must be an object")
            return None
        before = len(self._problems)
        for key, member in self._members.items():
            if key not in KEYS and key not in also:
                self.note(member.line, f"there is no key {json.dumps(key)[:60]}; the keys are {', '.join(KEYS)}")
        found = Stance(
            id=self._id(),
            title=self._text("title", one_line=True),
            questions=self._texts("questions"),
            state=self._text("state", one_line=True),
            answer=self._text("answer"),
            sources=self._texts("sources"),
            date=self._date(),
        )
        return found if len(self._problems) == before else None

    def _id(self) -> str:
        value = self._text("id")
        if value and not is_stance_id(value):
            rule = f"words of a-z and 0-9 joined by single hyphens, at most {STANCE_ID_MAX_CHARS} characters"
            self.note(self._members["id"].line, f"`id` must be {rule}")
        return value

    def _date(self) -> str:
        value = self._text("date")
        if value and not is_date(value):
            self.note(self._members["date"].line, "`date` must be a day that exists, as YYYY-MM-DD")
        return value

    def _text(self, key: str, *, one_line: bool = False) -> str:
        member = self._member(key)
        if member is None:
            return ""
        value = member.value.value
        if not isinstance(value, str) or is_blank(value):
            self.note(member.line, f"`{key}` must be a text that is not blank")
            return ""
        if one_line and not is_one_line(value):
            self.note(member.line, f"`{key}` must be one line")
        return value

    def _texts(self, key: str) -> tuple[str, ...]:
        member = self._member(key)
        if member is None:
            return ()
        items = member.value.value
        if not isinstance(items, tuple):
            self.note(member.line, f"`{key}` must be an array of texts")
            return ()
        texts: list[str] = []
        for position, item in enumerate(items):
            if isinstance(item.value, str) and not is_blank(item.value):
                texts.append(item.value)
            else:
                self.note(item.line, f"`{key}[{position}]` must be a text that is not blank")
        return tuple(texts)

    def _member(self, key: str) -> Member | None:
        member = self._members.get(key)
        if member is None:
            self.note(self._item.line, f"`{key}` is missing")
        return member


def is_stance_id(text: str) -> bool:
    """Whether the text has the shape of a stance's id."""
    return len(text) <= STANCE_ID_MAX_CHARS and STANCE_ID.fullmatch(text) is not None


def is_date(text: str) -> bool:
    """Whether the text is a day of the calendar written YYYY-MM-DD."""
    if _DATE.fullmatch(text) is None:
        return False
    try:
        date.fromisoformat(text)
    except ValueError:
        return False
    return True

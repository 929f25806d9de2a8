"""JSON with the line of every value and key, so that an error can say where a person finds it.

Scalars are read by the standard decoder; this module walks what is around them. Refused beyond RFC 8259's grammar:
a name that stands twice in one object, ``NaN`` and ``Infinity``, nesting beyond the limit, and text with a NUL or half
a surrogate pair. Pure, linear in the text; any thread.
"""

from __future__ import annotations

import json
import re
from bisect import bisect_right
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, NoReturn, TypeAlias

from messages.json_types import JsonScalar
from messages.text import text_fault

MAX_DEPTH: Final = 20

_BLANKS: Final = re.compile(r"[ \t\r\n]*")
_LINE_END: Final = re.compile(r"\r\n|\n|\r")
_CLOSING: Final[Mapping[str, str]] = {"[": "]", "{": "}"}


@dataclass(frozen=True, slots=True)
class Member:
    """One member of an object; ``line`` is its name's."""

    value: Located
    line: int


@dataclass(frozen=True, slots=True)
class Located:
    """A value and the 1-based line on which it begins."""

    value: LocatedValue
    line: int


LocatedValue: TypeAlias = "JsonScalar | tuple[Located, ...] | Mapping[str, Member]"


@dataclass(frozen=True, slots=True)
class Trouble:
    """Something wrong on a line."""

    line: int
    message: str


class Unreadable(ValueError):
    """The text is no JSON from ``line`` on; nothing behind it was read."""

    def __init__(self, line: int, message: str) -> None:
        super().__init__(message)
        self.line = line
        self.message = message


def parse(text: str) -> tuple[Located, tuple[Trouble, ...]]:
    """The value of a whole JSON text, and what is wrong with it although it can be read. Raises :class:`Unreadable`.

    Of a name that stands twice the first value is kept.
    """
    reader = _Reader(text)
    return reader.whole(), tuple(reader.troubles)


class _Reader:
    def __init__(self, text: str) -> None:
        self._text = text
        self._starts = [0, *(end.end() for end in _LINE_END.finditer(text))]
        self._decoder = json.JSONDecoder(parse_constant=_refuse_constant)
        self.troubles: list[Trouble] = []

    def whole(self) -> Located:
        found, end = self._value(self._skip(0), 1)
        end = self._skip(end)
        if end != len(self._text):
            self._fail(end, "something follows the end of the JSON value")
        return found

    def _value(self, start: int, depth: int) -> tuple[Located, int]:
        opening = self._text[start : start + 1]
        if opening in _CLOSING:
            if depth > MAX_DEPTH:
                self._fail(start, f"the JSON is nested deeper than {MAX_DEPTH} levels")
            return self._array(start, depth) if opening == "[" else self._object(start, depth)
        value, end = self._scalar(start)
        return Located(value, self._line(start)), end

    def _scalar(self, start: int) -> tuple[JsonScalar, int]:
        try:
            value, end = self._decoder.raw_decode(self._text, start)
        except json.JSONDecodeError as error:
            self._fail(error.pos, f"this is no JSON: {error.msg}")
        except ValueError as error:
            self._fail(start, f"this is no JSON that is read here: {error}")
        if isinstance(value, str):
            fault = text_fault(value)
            if fault is not None:
                self.troubles.append(Trouble(self._line(start), f"a text holds what cannot be stored ({fault})"))
        return value, end

    def _array(self, start: int, depth: int) -> tuple[Located, int]:
        items: list[Located] = []
        position = self._skip(start + 1)
        more = not self._ends(position, "]")
        while more:
            item, end = self._value(position, depth + 1)
            items.append(item)
            position, more = self._next(end, "]")
        return Located(tuple(items), self._line(start)), position + 1

    def _object(self, start: int, depth: int) -> tuple[Located, int]:
        members: dict[str, Member] = {}
        position = self._skip(start + 1)
        more = not self._ends(position, "}")
        while more:
            if self._text[position : position + 1] != '"':
                self._fail(position, "a name in double quotes is missing here")
            name, end = self._scalar(position)
            line = self._line(position)
            end = self._skip(end)
            if self._text[end : end + 1] != ":":
                self._fail(end, "a colon is missing here")
            value, end = self._value(self._skip(end + 1), depth + 1)
            if str(name) in members:
                shown = json.dumps(name)[:60]
                self.troubles.append(Trouble(line, f"the name {shown} stands twice in one object; keep one of the two"))
            else:
                members[str(name)] = Member(value, line)
            position, more = self._next(end, "}")
        return Located(members, self._line(start)), position + 1

    def _next(self, end: int, closing: str) -> tuple[int, bool]:
        """Where the next item stands after one that ended at ``end``, or the container's end; and which it is."""
        position = self._skip(end)
        if self._ends(position, closing):
            return position, False
        if self._text[position] != ",":
            self._fail(position, f"a comma or a `{closing}` is missing here")
        position = self._skip(position + 1)
        if self._ends(position, closing):
            self._fail(position, f"a value is missing between the comma and the `{closing}`")
        return position, True

    def _ends(self, position: int, closing: str) -> bool:
        found = self._text[position : position + 1]
        if not found:
            self._fail(position, f"the text ends before a `{closing}`")
        return found == closing

    def _skip(self, position: int) -> int:
        found = _BLANKS.match(self._text, position)
        return position if found is None else found.end()

    def _line(self, position: int) -> int:
        return bisect_right(self._starts, position)

    def _fail(self, position: int, message: str) -> NoReturn:
        raise Unreadable(self._line(position), message)


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is no JSON number")

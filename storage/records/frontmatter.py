"""The envelope of a record file: where its frontmatter lies, what it says, and how one key of it is replaced.

Reading never raises: :func:`read` answers values or one finding that says why there are none. Writing touches only the
lines of the keys whose value changes; every other byte (comments, unknown keys, line ends, byte order mark) stays.

Source: decisions.md section 2.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Final, Literal, TypeAlias

from messages.json_types import JsonValue
from storage.records import _yaml_fast, yaml_core
from storage.records.findings import Finding
from storage.records.yaml_core import CORE_WORDS, Loaded, Span


class Absent(Enum):
    """The type of :data:`ABSENT`."""

    ABSENT = "absent"


ABSENT: Final = Absent.ABSENT
"""In a mapping of changes: the key goes away."""

Change: TypeAlias = JsonValue | Literal[Absent.ABSENT]

BOM: Final = "\ufeff"
_OPENING: Final = re.compile(r"---[ \t]*(\r\n|\n|\r)")
_CLOSING: Final = re.compile(r"---[ \t]*(?:(\r\n|\n|\r)|\Z)")
_LINE_END: Final = re.compile(r"\r\n|\n|\r")
_PLAIN_KEY: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,127}")
_ESCAPED: Final = re.compile("[\x7f-\x9f\u2028\u2029\ufeff\ufffe\uffff]")
_INDENTED_COMMENT: Final = re.compile(r"(\A|[\r\n])[ \t]+(?=#)")
_TRAILING_COMMENT: Final = re.compile(r"[ \t]+#.*")
_encode = json.JSONEncoder(ensure_ascii=False, allow_nan=False).encode
_quote = json.encoder.encode_basestring


@dataclass(frozen=True, slots=True)
class Document:
    """A file cut at its fences, as offsets into its text.

    The opening fence begins at ``fence_start`` (after a byte order mark), the YAML lies in ``[yaml_start, yaml_end)``,
    the closing fence ends at ``fence_end``, an empty line may follow, and the body begins at ``body_start``.
    """

    text: str
    fence_start: int
    yaml_start: int
    yaml_end: int
    fence_end: int
    body_start: int
    newline: str

    @property
    def body(self) -> str:
        return self.text[self.body_start :]

    @property
    def yaml(self) -> str:
        return self.text[self.yaml_start : self.yaml_end]


@dataclass(frozen=True, slots=True)
class Frontmatter:
    """What the frontmatter says: its values and what is to be said about them."""

    document: Document
    values: dict[str, JsonValue]
    findings: tuple[Finding, ...] = ()


def read(data: bytes) -> Frontmatter | Finding:
    """The frontmatter of a file, or the one finding that says why it has none."""
    document = cut(data)
    if isinstance(document, Finding):
        return document
    values = _yaml_fast.parse(document.yaml)
    if values is not None:
        return Frontmatter(document, values)
    loaded = _load(document)
    if loaded.broken is not None:
        return loaded.broken
    if not isinstance(loaded.value, dict):
        return Finding("frontmatter_not_a_mapping", "", "The frontmatter must be `key: value` lines.", line=1)
    return Frontmatter(document, loaded.value, tuple(loaded.findings))


def cut(data: bytes) -> Document | Finding:
    """The file decoded and cut at its fences, or the finding that names what is in the way."""
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        return Finding("not_utf8", "", f"The file is not UTF-8 at byte {error.start}.", line=line)
    start = 1 if text.startswith(BOM) else 0
    if text.startswith("---\n", start):  # the usual file, without a regular expression
        yaml_start, newline = start + 4, "\n"
    else:
        opening = _OPENING.match(text, start)
        if opening is None:
            message = "The file does not begin with a `---` line; `knowledge adopt` adds the envelope."
            return Finding("frontmatter_missing", "", message, line=1)
        yaml_start, newline = opening.end(), opening[1]
    closing = _closing_fence(text, yaml_start)
    if closing is None:
        return Finding("frontmatter_not_closed", "", "The frontmatter has no closing `---` line.", line=1)
    nul = text.find("\x00", start, closing.end())
    if nul >= 0:
        line = text.count("\n", 0, nul) + 1
        return Finding("nul", "", "The frontmatter holds a NUL character; remove it.", line=line)
    blank = _LINE_END.match(text, closing.end()) if closing[1] else None
    body_start = blank.end() if blank is not None else closing.end()
    return Document(text, start, yaml_start, closing.start(), closing.end(), body_start, newline)


def _closing_fence(text: str, start: int) -> re.Match[str] | None:
    """The first line from ``start`` on that is a fence, whatever its line ends are."""
    found: re.Match[str] | None = None
    limit = len(text)
    for line_end in ("\n", "\r"):
        position = text.find(line_end + "---", start - 1, limit)
        while position >= 0:
            closing = _CLOSING.match(text, position + 1)
            if closing is not None:
                found, limit = closing, closing.start()
                break
            position = text.find(line_end + "---", position + 1, limit)
    return found


def read_with_c_loader(data: bytes) -> Frontmatter | Finding:
    """What :func:`read` answers, without the fast parser: the reference of the differential test."""
    document = cut(data)
    if isinstance(document, Finding):
        return document
    loaded = _load(document)
    if loaded.broken is not None:
        return loaded.broken
    if not isinstance(loaded.value, dict):
        return Finding("frontmatter_not_a_mapping", "", "The frontmatter must be `key: value` lines.", line=1)
    return Frontmatter(document, loaded.value, tuple(loaded.findings))


def lines_of(document: Document) -> dict[str, int]:
    """The 1-based line of each value, by its dotted path; for diagnostics, not for the usual read."""
    return {yaml_core.shown(path): line for path, line in _load(document).lines.items()}


def _load(document: Document) -> Loaded:
    # From the opening fence on, so that offsets and lines are the file's (a byte order mark apart).
    return yaml_core.load(document.text[document.fence_start : document.yaml_end])


def emit(values: Mapping[str, JsonValue], newline: str = "\n") -> str:
    """The lines of a frontmatter, without fences: one ``key: <json>`` each, mappings in lists as ``  - <json>``."""
    return "".join(_entry(key, value, newline) for key, value in values.items())


def to_json(value: JsonValue) -> str:
    """One line that reads equally as JSON and as YAML 1.2. Raises ``ValueError`` for what JSON cannot hold."""
    text = _quote(value) if type(value) is str else _encode(value)
    if not text.isascii():
        text.encode("utf-8")  # a lone surrogate is a broken promise of the caller
        if _ESCAPED.search(text):
            text = _ESCAPED.sub(_escape, text)
    elif "\x7f" in text:
        text = text.replace("\x7f", "\\u007f")
    return text


def _escape(found: re.Match[str]) -> str:
    return f"\\u{ord(found[0]):04x}"


def _entry(key: str, value: JsonValue, newline: str, indent: str = "", rest: str = "") -> str:
    name = key if _PLAIN_KEY.fullmatch(key) and key not in CORE_WORDS else to_json(key)
    if isinstance(value, (list, tuple)) and value and all(isinstance(item, Mapping) for item in value):
        lines = [f"{indent}{name}:{rest}", *(f"{indent}  - {to_json(item)}" for item in value)]
        return newline.join(lines) + newline
    return f"{indent}{name}: {to_json(value)}{rest}{newline}"


def replace_lines(document: Document, changes: Mapping[str, Change]) -> str:
    """The whole text with the lines of the changed keys replaced; new keys go after the last.

    A key whose value is already the wanted one keeps its bytes. The result is read back before it is returned: where a
    layout defeats line ranges (an explicit ``? key``, say), the frontmatter is written anew from its values, so that
    the values are right whatever the layout. Raises ``ValueError`` when the document's YAML cannot be read.
    """
    loaded = _load(document)
    if loaded.broken is not None or not isinstance(loaded.value, dict):
        raise ValueError("a frontmatter that cannot be read cannot be changed")
    before: dict[str, JsonValue] = loaded.value
    wanted = dict(before)
    real: dict[str, Change] = {}
    for key, change in changes.items():
        if change is ABSENT:
            if wanted.pop(key, ABSENT) is not ABSENT:
                real[key] = ABSENT
        elif key not in before or not same(before[key], change):
            wanted[key] = change
            real[key] = change
    if not real:
        return document.text
    if loaded.flow_root is None:
        yaml = _with_lines_replaced(document, loaded.spans, real)
        if _says(yaml, wanted):
            return _around(document, yaml)
    return _around(document, emit(wanted, document.newline))


def same(one: JsonValue, other: JsonValue) -> bool:
    """Equal as JSON: unlike ``==``, ``true`` is not ``1`` and ``1`` is not ``1.0``."""
    return to_json(one) == to_json(other) if one == other else False


def _says(yaml: str, wanted: Mapping[str, JsonValue]) -> bool:
    """Whether these lines read as exactly the wanted values, in any order of keys."""
    loaded = yaml_core.load("---\n" + yaml)
    value = loaded.value
    if loaded.broken is not None or not isinstance(value, dict) or value.keys() != wanted.keys():
        return not wanted and value is None and loaded.broken is None
    return all(same(value[key], wanted[key]) for key in wanted)


def _around(document: Document, yaml: str) -> str:
    return document.text[: document.yaml_start] + yaml + document.text[document.yaml_end :]


def _with_lines_replaced(document: Document, spans: Mapping[str, Span], changes: Mapping[str, Change]) -> str:
    text, shift = document.text, document.fence_start
    pieces: list[str] = []
    position = document.yaml_start
    indent = ""
    # Where a removed key parted a block text from an indented comment, that comment would become part of the text.
    open_block = removed = False
    for key, span in spans.items():
        start, end, rest = _line_range(text, span, shift, document.yaml_end)
        gap = text[position:start]
        pieces.append(_INDENTED_COMMENT.sub(r"\1", gap) if open_block and removed else gap)
        open_block = open_block and not gap.strip()
        indent = text[start : span.key_start + shift]
        change = changes.get(key, ABSENT)
        removed = key in changes and change is ABSENT
        if key not in changes:
            pieces.append(text[start:end])
            open_block = span.block_scalar
        elif change is not ABSENT:
            pieces.append(_entry(key, change, document.newline, indent, rest))
            open_block = False
        position = end
    indent = indent if not indent.strip(" ") else ""
    added = [
        _entry(key, change, document.newline, indent)
        for key, change in changes.items()
        if key not in spans and change is not ABSENT
    ]
    tail = text[position : document.yaml_end]
    pieces += added
    pieces.append(_INDENTED_COMMENT.sub(r"\1", tail) if open_block and removed and not added else tail)
    return "".join(pieces)


def _line_range(text: str, span: Span, shift: int, limit: int) -> tuple[int, int, str]:
    """Start and end of the lines that hold one entry, and the comment that ends its last line (kept)."""
    key_start, end = span.key_start + shift, min(span.end + shift, limit)
    start = max(text.rfind("\n", 0, key_start), text.rfind("\r", 0, key_start)) + 1
    if span.block_scalar:
        return start, _without_blank_lines(text, start, end), ""
    line_end = _LINE_END.search(text, end, limit)
    stop = line_end.start() if line_end is not None else limit
    rest = text[end:stop]
    comment = rest if _TRAILING_COMMENT.fullmatch(rest) else ""
    return start, line_end.end() if line_end is not None else limit, comment


def _without_blank_lines(text: str, start: int, end: int) -> int:
    """``end`` of a block scalar, moved back before the blank lines that follow its last line of text."""
    kept = text[start:end].rstrip(" \t\r\n")
    line_end = _LINE_END.search(text, start + len(kept), end)
    return line_end.end() if line_end is not None else end

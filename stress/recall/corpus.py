"""A judged corpus in a folder: ``documents.tsv``, ``queries.tsv`` and ``judgements.tsv``.

UTF-8, one record a line, columns apart by tabs and named by the first line, in any order; empty lines count for
nothing. ``\\n``, ``\\t`` and ``\\\\`` in a value are a line break, a tab and a backslash; quotes are plain characters.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final, Literal, TypeAlias, cast, get_args

from messages.errors import KnowledgeError
from messages.json_types import JsonObject
from messages.tools import parse_arguments
from messages.vocabulary import ClaimKind

SHIPPED: Final = Path(__file__).with_name("corpus")
GRADE_MAX: Final = 2
_REQUEST_ID: Final = "00000000-0000-4000-8000-000000000000"
_ESCAPE: Final = re.compile(r"\\(.?)", re.DOTALL)
_ESCAPED: Final = {"n": "\n", "t": "\t", "\\": "\\"}
_LANGUAGE: Final = re.compile(r"[a-z]{2,3}(?:-[A-Za-z0-9]{2,8})*")

DocumentKind: TypeAlias = Literal["page", "claim"]


class CorpusError(Exception):
    """A corpus that cannot be used: which file, which line (0 for the file as a whole), and why."""

    def __init__(self, file: str, line: int, reason: str) -> None:
        super().__init__(f"{file}:{line}: {reason}" if line else f"{file}: {reason}")
        self.file = file
        self.line = line
        self.reason = reason


@dataclass(frozen=True, slots=True)
class Document:
    """One record to save. ``type`` is a page's ontology type or a claim's kind; ``replaces`` an earlier claim's id.

    A claim has no title of its own and no aliases.
    """

    id: str
    kind: DocumentKind
    type: str
    title: str
    text: str
    aliases: tuple[str, ...]
    replaces: str | None
    line: int

    def page(self) -> JsonObject:
        """The page's arguments but for those of the write."""
        return {
            "title": self.title, "type": self.type, "body": self.text, "aliases": list(self.aliases),
            "allowSameTitle": True,
        }  # fmt: skip

    def claim(self) -> JsonObject:
        """The claim as an item of ``knowledge_remember``."""
        return {"text": self.text, "kind": self.type}


@dataclass(frozen=True, slots=True)
class Query:
    """What somebody asks, and what answers it: document ids with grades from 1 to 2, at least one."""

    id: str
    language: str
    text: str
    grades: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class Corpus:
    """Documents in their order, queries in theirs, each with its judgements."""

    documents: Sequence[Document]
    queries: Sequence[Query]

    @property
    def languages(self) -> list[str]:
        """The languages of the queries, in the order of their first query."""
        return list(dict.fromkeys(query.language for query in self.queries))

    def pages(self) -> Corpus:
        """The pages alone, and the queries that a page answers or helps: what candidates of the gate are judged by."""
        pages = [document for document in self.documents if document.kind == "page"]
        ids = {page.id for page in pages}
        graded = (
            replace(query, grades={name: grade for name, grade in query.grades.items() if name in ids})
            for query in self.queries
        )
        return Corpus(tuple(pages), tuple(query for query in graded if query.grades))


def read_corpus(folder: Path) -> Corpus:
    """The corpus of a folder. Raises :class:`CorpusError` at the first line that cannot be used."""
    documents = _documents(folder / "documents.tsv")
    return Corpus(tuple(documents.values()), _queries(folder, documents))


# --- documents ----------------------------------------------------------------------------------------------------


def _documents(path: Path) -> dict[str, Document]:
    found: dict[str, Document] = {}
    replaced: set[str] = set()
    for row in _rows(path, ("id", "kind", "type", "text"), ("title", "aliases", "replaces")):
        document = _document(row)
        if document.id in found:
            raise row.error(f"the id {document.id!r} is also that of line {found[document.id].line}")
        if document.replaces is not None:
            earlier = found.get(document.replaces)
            if earlier is None or earlier.kind != "claim":
                raise row.error(f"replaces must be the id of a claim further up, not {document.replaces!r}")
            if document.replaces in replaced:
                raise row.error(f"{document.replaces!r} is replaced twice")
            replaced.add(document.replaces)
        found[document.id] = document
    if not found:
        raise CorpusError(path.name, 0, "has no documents")
    return found


def _document(row: _Row) -> Document:
    kind = row.required("kind")
    if kind not in get_args(DocumentKind):
        raise row.error(f"kind must be page or claim, not {kind!r}")
    aliases = row.get("aliases")
    document = Document(
        id=row.required("id"),
        kind=cast("DocumentKind", kind),
        type=row.required("type"),
        title=row.get("title"),
        text=row.required("text"),
        aliases=tuple(alias.strip() for alias in aliases.split("|")) if aliases else (),
        replaces=row.get("replaces") or None,
        line=row.line,
    )
    if kind == "page":
        row.required("title")
        if document.replaces is not None:
            raise row.error("only a claim replaces another")
        row.checked("knowledge_save_page", {**document.page(), "requestId": _REQUEST_ID})
    else:
        if document.title or document.aliases:
            raise row.error("a claim has no title and no aliases; only a page has")
        if document.type not in get_args(ClaimKind):
            raise row.error(f"type of a claim must be one of {', '.join(get_args(ClaimKind))}, not {document.type!r}")
        row.checked(
            "knowledge_remember",
            {"requestId": _REQUEST_ID, "attribution": "a corpus", "excerpt": "one", "items": [document.claim()]},
        )
    return document


# --- queries ------------------------------------------------------------------------------------------------------


def _queries(folder: Path, documents: Mapping[str, Document]) -> tuple[Query, ...]:
    path = folder / "queries.tsv"
    rows: dict[str, _Row] = {}
    for row in _rows(path, ("id", "language", "query"), ()):
        name, language = row.required("id"), row.required("language")
        if name in rows:
            raise row.error(f"the id {name!r} is also that of line {rows[name].line}")
        if not _LANGUAGE.fullmatch(language):
            raise row.error(f"language must be a tag such as en or pt-BR, not {language!r}")
        row.checked("knowledge_grep", {"query": row.required("query")})
        rows[name] = row
    if not rows:
        raise CorpusError(path.name, 0, "has no queries")
    grades = _grades(folder / "judgements.tsv", documents, rows)
    for name, row in rows.items():
        if not any(grades[name].values()):
            raise row.error(f"no judgement gives {name!r} a document of grade 1 or {GRADE_MAX}")
    return tuple(
        Query(name, row.get("language"), row.get("query"), {one: grade for one, grade in grades[name].items() if grade})
        for name, row in rows.items()
    )


def _grades(
    path: Path, documents: Mapping[str, Document], queries: Mapping[str, _Row]
) -> Mapping[str, Mapping[str, int]]:
    grades: dict[str, dict[str, int]] = {name: {} for name in queries}
    for row in _rows(path, ("query", "document", "grade"), ()):
        query, document, grade = (row.required(name) for name in ("query", "document", "grade"))
        if query not in grades:
            raise row.error(f"there is no query {query!r}")
        if document not in documents:
            raise row.error(f"there is no document {document!r}")
        if document in grades[query]:
            raise row.error(f"{document!r} is judged twice for {query!r}")
        if grade not in {str(known) for known in range(GRADE_MAX + 1)}:
            raise row.error(f"grade must be 0, 1 or {GRADE_MAX}, not {grade!r}")
        grades[query][document] = int(grade)
    return grades


# --- lines --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Row:
    """One line, by the names of its columns."""

    file: str
    line: int
    values: Mapping[str, str]

    def get(self, name: str) -> str:
        return self.values.get(name, "")

    def required(self, name: str) -> str:
        value = self.get(name)
        if not value.strip():
            raise self.error(f"{name} is empty")
        return value

    def checked(self, tool: str, arguments: JsonObject) -> None:
        """Refuse what the tool would refuse."""
        try:
            parse_arguments(tool, arguments)
        except KnowledgeError as error:
            raise self.error(f"{tool} refuses this: {error.message}") from error

    def error(self, reason: str) -> CorpusError:
        return CorpusError(self.file, self.line, reason)


def _rows(path: Path, required: Sequence[str], optional: Sequence[str]) -> Iterator[_Row]:
    names: Sequence[str] | None = None
    for number, line in enumerate(_lines(path), 1):
        if not line:
            continue
        cells = line.split("\t")
        if names is None:
            names = _header(path.name, number, cells, required, optional)
        elif len(cells) > len(names):
            raise CorpusError(path.name, number, f"has {len(cells)} columns, and the first line names {len(names)}")
        else:
            values = [_unescaped(path.name, number, cell) for cell in cells]
            yield _Row(path.name, number, dict(zip(names, values, strict=False)))
    if names is None:
        raise CorpusError(path.name, 0, f"is empty; its first line names the columns: {', '.join(required)}")


def _lines(path: Path) -> list[str]:
    try:
        data = path.read_bytes()
    except OSError as error:
        raise CorpusError(path.name, 0, f"cannot be read from {path.parent}: {error.strerror}") from error
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise CorpusError(path.name, line, f"is not UTF-8: {error.reason}") from error
    return [line.removesuffix("\r") for line in text.split("\n")]


def _header(
    file: str, line: int, cells: Sequence[str], required: Sequence[str], optional: Sequence[str]
) -> Sequence[str]:
    known = (*required, *optional)
    if unknown := [cell for cell in cells if cell not in known]:
        raise CorpusError(file, line, f"unknown column {unknown[0]!r}; the columns are {', '.join(known)}")
    if twice := [cell for cell in cells if cells.count(cell) > 1]:
        raise CorpusError(file, line, f"names the column {twice[0]!r} twice")
    if missing := [name for name in required if name not in cells]:
        raise CorpusError(file, line, f"lacks the column {missing[0]!r}; the first line names the columns")
    return cells


def _unescaped(file: str, line: int, cell: str) -> str:
    def one(match: re.Match[str]) -> str:
        meant = _ESCAPED.get(match[1])
        if meant is None:
            raise CorpusError(file, line, f"unknown escape {match[0]!r}; a backslash is written \\\\")
        return meant

    return _ESCAPE.sub(one, cell)

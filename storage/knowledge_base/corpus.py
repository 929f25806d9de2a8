"""``kb.json``: reviewed stances and documents compiled into one file, and read back with nothing taken on trust.

Source: system-memory-contract.md section 7 (the file), section 11 (a stance keeps its id and has a digest, which a
promotion checks).
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Final

from messages.json_types import JsonObject
from messages.text import is_blank, is_one_line
from storage.knowledge_base import folder, stances
from storage.knowledge_base.documents import Doc, read_documents
from storage.knowledge_base.located_json import Located, LocatedValue
from storage.knowledge_base.problems import Problem, refusal
from storage.knowledge_base.stances import Stance
from storage.knowledge_base.words import words

VERSION: Final = 1
STANCES_MAX_BYTES: Final = 16 * 1024 * 1024
CORPUS_MAX_BYTES: Final = 256 * 1024 * 1024

_DOC_KEYS: Final = ("kind", "title", "source", "headings", "summary", "tags")
_LISTS: Final = ("headings", "tags")
_LINES: Final = ("title", "source")


@dataclass(frozen=True)
class Corpus:
    """What a knowledge base holds, in the file's order: stances first, then documents by path."""

    stances: tuple[Stance, ...]
    docs: tuple[Doc, ...]

    def stance(self, stance_id: str) -> Stance | None:
        """The stance with exactly this id; its ``digest`` is that of what was reviewed."""
        return self._by_id.get(stance_id)

    def encode(self) -> bytes:
        """The bytes of ``kb.json``: equal corpora give equal bytes, on every machine and at every time."""
        entries: list[JsonObject] = [
            {"kind": "stance", **stance.to_json(), "digest": stance.digest} for stance in self.stances
        ]
        entries += [{"kind": "doc", **doc.to_json()} for doc in self.docs]
        text = json.dumps({"version": VERSION, "entries": entries}, ensure_ascii=False, indent=1)
        return f"{text}\n".encode()

    @cached_property
    def places(self) -> tuple[tuple[frozenset[str], ...], ...]:
        """For each entry, in the file's order, the words of its places, those first that say most about it.

        A stance: title and questions, state, answer; a document: title, headings and tags, summary.
        """
        stances = (
            (words("\n".join((stance.title, *stance.questions))), words(stance.state), words(stance.answer))
            for stance in self.stances
        )
        docs = (
            (words(doc.title), words("\n".join((*doc.headings, *doc.tags))), words(doc.summary)) for doc in self.docs
        )
        return (*stances, *docs)

    @cached_property
    def _by_id(self) -> Mapping[str, Stance]:
        return {stance.id: stance for stance in self.stances}


@dataclass(frozen=True, slots=True)
class Compiled:
    """A corpus, and the names in the documents' folder that were left out since they are links or no files."""

    corpus: Corpus
    skipped: tuple[str, ...]


def compile_corpus(
    stances_path: str, docs_path: str, *, progress: Callable[[int, int], None] = lambda done, of: None
) -> Compiled:
    """Read ``stances.json`` and a folder of Markdown. ``docs_path`` itself is no symbolic link.

    Raises ``InvalidArgument`` with every problem of either, ``NotFound``, ``LimitExceeded`` or ``StorageError``.
    """
    reviewed = stances.parse(folder.read_file(stances_path, STANCES_MAX_BYTES), stances_path)
    problems: list[Problem] = []
    found = read_documents(docs_path, problems, progress=progress)
    if problems:
        raise refusal(docs_path, problems)
    return Compiled(Corpus(reviewed, found.docs), found.skipped)


def load_corpus(path: str) -> Corpus:
    """The corpus of a compiled file.

    Raises ``InvalidArgument`` (``reason``: ``invalid``, ``newer_version``, or ``digest_mismatch`` for a stance that
    says something else than what was reviewed), ``NotFound``, ``LimitExceeded`` or ``StorageError``.
    """
    return decode(folder.read_file(path, CORPUS_MAX_BYTES), path)


def decode(data: bytes, file: str) -> Corpus:
    """The corpus of a compiled file's bytes; ``file`` is its name in errors, which are those of :func:`load_corpus`."""
    root, problems = stances.read_json(data, file)
    if not isinstance(root.value, Mapping):
        raise refusal(file, [Problem("", root.line, "the file must be the object that `knowledge kb build` writes")])
    members = {key: member.value for key, member in root.value.items()}
    _check_version(members.get("version"), file)
    problems += [
        Problem("", member.line, f"there is no key {json.dumps(key)[:60]}; the keys are version, entries")
        for key, member in root.value.items()
        if key not in ("version", "entries")
    ]
    entries = members.get("entries")
    if entries is None or not isinstance(entries.value, tuple):
        raise refusal(file, [*problems, Problem("", root.line, "`entries` must be an array")])
    reviewed, docs = _split(entries.value, problems)
    found = stances.read_stances([item for _, item in reviewed], problems, also=("kind", "digest"))
    corpus = Corpus(found, tuple(doc for doc in (_doc(at, item, problems) for at, item in docs) if doc is not None))
    if problems:
        raise refusal(file, problems)
    mismatches = _digest_problems(corpus, [item for _, item in reviewed])
    if mismatches:
        raise refusal(file, mismatches, reason="digest_mismatch")
    return corpus


def _check_version(version: Located | None, file: str) -> None:
    value = None if version is None else version.value
    line = None if version is None else version.line
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise refusal(file, [Problem("", line, f"`version` must be {VERSION}; `knowledge kb build` writes it")])
    if value > VERSION:
        message = f"the file has version {value}, and this program reads up to {VERSION}: use the newer program"
        raise refusal(file, [Problem("", line, message)], reason="newer_version")


def _split(
    entries: tuple[Located, ...], problems: list[Problem]
) -> tuple[list[tuple[int, Located]], list[tuple[int, Located]]]:
    """The stances and the documents, with their positions."""
    found: dict[str, list[tuple[int, Located]]] = {"stance": [], "doc": []}
    for position, item in enumerate(entries):
        kind = _member(item, "kind")
        if isinstance(kind, str) and kind in found:
            found[kind].append((position, item))
        else:
            problems.append(Problem(f"[{position}]", item.line, "an entry's `kind` must be stance or doc"))
    return found["stance"], found["doc"]


def _doc(position: int, item: Located, problems: list[Problem]) -> Doc | None:
    members = item.value if isinstance(item.value, Mapping) else {}
    source = _member(item, "source")
    entry = source if isinstance(source, str) and _is_line(source) else f"[{position}]"
    wrong = [Problem(entry, item.line, f"`{key}` is missing") for key in _DOC_KEYS if key not in members]
    for key, member in members.items():
        if key not in _DOC_KEYS:
            wrong.append(Problem(entry, member.line, f"there is no key {json.dumps(key)[:60]} in a doc"))
        elif key in _LISTS and _texts(member.value.value) is None:
            wrong.append(Problem(entry, member.line, f"`{key}` must be an array of texts"))
        elif key not in _LISTS and not isinstance(member.value.value, str):
            wrong.append(Problem(entry, member.line, f"`{key}` must be a text"))
        elif key in _LINES and not _is_line(member.value.value):
            wrong.append(Problem(entry, member.line, f"`{key}` must be one line that is not blank"))
    problems += wrong
    if wrong:
        return None
    values = {key: str(member.value.value) for key, member in members.items()}
    headings, tags = (_texts(members[key].value.value) or () for key in _LISTS)
    return Doc(values["title"], values["source"], headings, values["summary"], tags)


def _is_line(value: LocatedValue) -> bool:
    return isinstance(value, str) and is_one_line(value) and not is_blank(value)


def _digest_problems(corpus: Corpus, items: list[Located]) -> list[Problem]:
    """A problem for each stance whose digest is not that of what it says."""
    found: list[Problem] = []
    for item in items:
        stance_id = _member(item, "id")
        stance = corpus.stance(stance_id) if isinstance(stance_id, str) else None
        if stance is not None and _member(item, "digest") != stance.digest:
            message = "its digest is not that of what it says; build the file again from the reviewed stances"
            found.append(Problem(stance.id, item.line, message))
    return found


def _member(item: Located, key: str) -> LocatedValue:
    member = item.value.get(key) if isinstance(item.value, Mapping) else None
    return None if member is None else member.value.value


def _texts(value: LocatedValue) -> tuple[str, ...] | None:
    if not isinstance(value, tuple):
        return None
    texts = tuple(item.value for item in value if isinstance(item.value, str))
    return texts if len(texts) == len(value) else None

"""``knowledge kb``: compile the knowledge base, and search it. It needs no owner and no state directory.

Source: system-memory-boundary.md, system-memory-contract.md sections 6 and 7.
"""

from __future__ import annotations

import os

from host_bridge.cli import exits, output
from host_bridge.cli.in_process import run_word
from host_bridge.cli.options import STATE_DIR, UsageError, parse
from host_bridge.cli.progress import progress
from host_bridge.owner.client import OwnerError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

    from messages.json_types import JsonObject, JsonValue
    from storage.knowledge_base import Compiled, Corpus, Hit

_COMMON = {**STATE_DIR, "--json": False}
_LIMIT_MAX = 10


def run(arguments: Sequence[str]) -> int:
    return run_word(arguments, _WORDS)


def _build(arguments: Sequence[str]) -> int:
    long = ["--output" if argument == "-o" else argument for argument in arguments]
    options = parse(long, {**_COMMON, "--output": True}, words=2)
    target = options.get("--output")
    if len(options.words) != 2 or not target:
        raise UsageError("say what of and where to: build STANCES DOCS -o FILE")
    stances_path, docs_path = options.words
    _spare_the_sources(target, stances_path, docs_path)
    from storage.knowledge_base import compile_corpus
    from storage.knowledge_base.folder import write_file

    with progress(quiet=options.has("--json")) as show:
        compiled = compile_corpus(
            stances_path,
            os.path.realpath(docs_path),  # the folder that a person names may be a link; those in it are not followed
            progress=lambda done, of: show({"what": "reading", "done": done, "of": of}),
        )
        write_file(os.path.realpath(target), compiled.corpus.encode())
    if options.has("--json"):
        output.emit(output.as_json(_built(target, compiled), compact=True))
        return exits.OK
    corpus = compiled.corpus
    lines = [f"{target}: {_count(len(corpus.stances), 'stance')} and {_count(len(corpus.docs), 'document')}"]
    lines += [f"  not followed: {name}" for name in compiled.skipped]
    output.emit(output.told(lines))
    return exits.OK


def _search(arguments: Sequence[str]) -> int:
    options = parse(arguments, {**_COMMON, "--limit": True, "--note": False}, words=2)
    if len(options.words) != 2:
        raise UsageError("say where and what for: search FILE QUERY, the query in quotes")
    path, query = options.words
    limit = options.whole_number("--limit", 1, _LIMIT_MAX)
    from storage.knowledge_base import Unsupported, attached_note, load_corpus, search
    from storage.knowledge_base.retrieval import DEFAULT_LIMIT

    corpus = load_corpus(path)
    found = search(corpus, query, DEFAULT_LIMIT if limit is None else limit)
    if isinstance(found, Unsupported):
        error = OwnerError(found.code, found.message, "never", {"field": "query"})
        return output.failure(error, compact=options.has("--json"), of_store=False)
    note = attached_note(found.hits) if options.has("--note") else None
    if options.has("--json"):
        shown: JsonObject = {"hits": [_hit(hit, corpus) for hit in found.hits]}
        output.emit(output.as_json({**shown, "note": note} if options.has("--note") else shown, compact=True))
    elif options.has("--note"):
        if note is not None:
            output.emit(note)
    else:
        output.emit("\n".join(_told(hit) for hit in found.hits) or "Nothing in it shares a word with the question.")
    return exits.OK


_WORDS = {"build": _build, "search": _search}


def _spare_the_sources(target: str, stances_path: str, docs_path: str) -> None:
    """Refuse to write the result over what it is made of."""
    place, docs = os.path.realpath(target), os.path.realpath(docs_path)
    inside = os.path.commonpath((place, docs)) == docs
    if place == os.path.realpath(stances_path) or (inside and place.lower().endswith(".md")):
        raise UsageError(f"{target} is one of the sources; write the result elsewhere")


def _built(target: str, compiled: Compiled) -> JsonValue:
    corpus = compiled.corpus
    return {
        "path": target,
        "stances": [{"id": stance.id, "digest": stance.digest} for stance in corpus.stances],
        "docs": len(corpus.docs),
        "skipped": compiled.skipped,
    }


def _hit(hit: Hit, corpus: Corpus) -> JsonObject:
    """The hit, and of a stance what a promotion names: its id and digest."""
    stance = None if hit.stance_id is None else corpus.stance(hit.stance_id)
    return hit.to_json() if stance is None else {**hit.to_json(), "id": stance.id, "digest": stance.digest}


def _told(hit: Hit) -> str:
    origin = f"stance {hit.stance_id}, {hit.state}; reviewed {hit.date}" if hit.kind == "stance" else hit.sources[0]
    body = " ".join(hit.body.split())
    return output.told([f"{hit.score:>3}  {hit.title} ({origin})", f"     {body}"])


def _count(number: int, of: str) -> str:
    return f"{number} {of}{'' if number == 1 else 's'}"

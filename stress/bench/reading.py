"""The rows of reading: is the vault unchanged, one edit, one file's frontmatter, a search."""

from __future__ import annotations

import os
import shutil
import stat
import subprocess
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Final

import orjson
import yaml

from messages.json_types import JsonValue
from messages.tools import ToolRequest, parse_arguments
from messages.vocabulary import PRIVATE
from storage import files
from storage.records import frontmatter
from storage.records.frontmatter import Frontmatter
from storage.search import SearchFilters, SearchQuery
from storage.state.connection import Database
from storage.vault import Watch, open_watch, scan_partition
from stress.bench.measure import Contender, Row, Sample, compared, interleave
from stress.bench.store import LIMITS, NOW_MS, Desk, grep, lookup

_SCAN_ROUNDS: Final = 7
_RANK_OF_SEARCHED: Final = 300
"""Words of this rank stand in a few records of a hundred: common enough that ranking them is work."""


def freshness(desk: Desk, rounds: int) -> Iterator[Row]:
    """A query with the look at the vault and without; the look alone against a scan; a scan against a bare one."""
    words = desk.store.words().around(_RANK_OF_SEARCHED, 3)
    pages = max(1, desk.store.size // 4)
    yield _checked(desk, "lookup", [lookup(n * 7 % pages) for n in range(rounds + 2)])
    yield _checked(desk, "3-word search", [grep(words)] * (rounds + 2))
    watch = open_watch(desk.store.layout.vault, PRIVATE, limits=LIMITS)
    root = files.open_root(desk.store.private, at="watch.root")
    try:
        yield from _scans(desk, watch, root, rounds)
    finally:
        watch.close()
        files.close(root)


def _checked(desk: Desk, name: str, requests: Sequence[ToolRequest]) -> Row:
    taken = interleave(
        [
            Contender("checked", lambda n: desk.run(requests[n])),
            Contender("unchecked", lambda n: desk.run(requests[n], fresh=False)),
        ],
        len(requests) - 2,
    )
    return compared(
        f"freshness: {name} with the check", desk.store.size, taken, "checked", "unchecked",
        goal="<= 1.1x without", limit=1.1,
    )  # fmt: skip


def _scans(desk: Desk, watch: Watch, root: int, rounds: int) -> Iterator[Row]:
    size = desk.store.size
    watch.scan()
    note = "" if watch.state == "watching" else f"no events here: {watch.reason}"
    drained = Sample.of(interleave([Contender("drain", lambda _: watch.drain())], rounds)["drain"])
    taken = interleave(
        [
            Contender("scan", lambda _: scan_partition(root, limits=LIMITS)),
            Contender("bare", lambda _: bare_scan(str(desk.store.private))),
        ],
        _SCAN_ROUNDS,
        warm=1,
    )
    scan = Sample.of(taken["scan"])
    yield Row("freshness: draining events", size, drained, "full scan", scan, "<= 1/100 of a scan", 0.01, note=note)
    yield compared("scan", size, taken, "scan", "bare", goal="<= 1.2x bare scandir + stat", limit=1.2)


def bare_scan(folder: str) -> int:
    """How many notes there are, by ``scandir`` and ``stat`` alone: what a scan cannot cost less than in Python."""
    found = 0
    waiting = [folder]
    while waiting:
        with os.scandir(waiting.pop()) as entries:
            for entry in entries:
                if entry.is_dir(follow_symlinks=False):
                    if entry.name != "artifacts":
                        waiting.append(entry.path)
                elif entry.name.endswith(".md"):
                    found += stat.S_ISREG(entry.stat(follow_symlinks=False).st_mode)
    return found


def reads(desk: Desk, rounds: int) -> Iterator[Row]:
    """What each read of an agent takes inside the lane, the look at the vault included: the slowest of twenty."""
    words = desk.store.words()
    pages = max(1, desk.store.size // 4)
    found = [_hit_of(desk, n * 7 % pages) for n in range(min(rounds, pages))]
    big = desk.store.size > 10_000
    asked: dict[str, tuple[float, Callable[[int], ToolRequest]]] = {
        "grep": (25.0 if big else 5.0, lambda n: grep(words.around(_RANK_OF_SEARCHED + n, 3))),
        "lookup": (2.0, lambda n: lookup(n * 7 % pages)),
        "record": (2.0, lambda n: parse_arguments("knowledge_record", {"id": found[n % len(found)]})),
        "connections": (2.0, lambda n: parse_arguments("knowledge_connections", {"id": found[n % len(found)]})),
        "records": (0.0, lambda n: parse_arguments("knowledge_records", {"offset": n})),
        "timeline": (0.0, lambda n: parse_arguments("knowledge_timeline", {"offset": n})),
    }

    def contender(name: str) -> Contender:
        _, make = asked[name]
        return Contender(name, lambda n: desk.run(make(n)))

    taken = interleave([contender(name) for name in asked], rounds)
    for name, (milliseconds, _) in asked.items():
        values = sorted(taken[name])
        goal = f"<= {milliseconds:g} ms" if milliseconds else ""
        yield Row(
            f"{name} inside the lane (p95)", desk.store.size, Sample.of([values[len(values) * 95 // 100]]), "", None,
            goal, milliseconds / 1000 if milliseconds else None, absolute=True,
            note=f"median {Sample.of(values).median * 1e3:.2f} ms",
        )  # fmt: skip


def _hit_of(desk: Desk, page: int) -> str:
    hits = desk.run(lookup(page))["hits"]
    assert isinstance(hits, list)
    assert isinstance(hits[0], dict)
    return str(hits[0]["id"])


def external_edit(desk: Desk, rounds: int) -> Iterator[Row]:
    """A person saves one file; the next query knows it. Against the same query when nobody saved anything."""
    paths = sorted(desk.store.private.glob("people/*/*.md"))[: rounds + 2]
    originals = [path.read_bytes() for path in paths]
    # A look-up finds pages by name, whose titles an edit of the body leaves alone.
    request = lookup(0)

    def edit(turn: int) -> None:
        number = turn % len(paths)
        paths[number].write_bytes(originals[number] + f"\nEdited in turn {turn}.\n".encode())

    taken = interleave(
        [
            Contender("edited", lambda _: desk.run(request), prepare=edit),
            Contender("unedited", lambda _: desk.run(request)),
        ],
        rounds,
    )
    yield compared(
        "one external edit, found by the next lookup", desk.store.size, taken, "edited", "unedited",
        goal="<= 3x unedited", limit=3.0,
    )  # fmt: skip
    desk.run(request)


def one_frontmatter(desk: Desk, rounds: int) -> Iterator[Row]:
    """One record's frontmatter, parsed by us, by PyYAML's C loader, and as the JSON it could have been."""
    path = next(iter(sorted(desk.store.private.glob("claims/*/*/*/*.md"))))
    data = path.read_bytes()
    parsed = frontmatter.read(data)
    assert isinstance(parsed, Frontmatter)
    text = parsed.document.yaml
    encoded = orjson.dumps(parsed.values)
    loaded: JsonValue = yaml.load(text, yaml.CSafeLoader)
    assert loaded == parsed.values, "the parsers disagree"
    taken = interleave(
        [
            Contender("ours", _often(lambda: frontmatter.read(data))),
            Contender("C loader", _often(lambda: yaml.load(text, yaml.CSafeLoader))),
            Contender("orjson", _often(lambda: orjson.loads(encoded))),
        ],
        rounds,
    )
    taken = {name: [seconds / _REPEATS for seconds in values] for name, values in taken.items()}
    yield compared(
        "frontmatter of one record", desk.store.size, taken, "ours", "C loader",
        goal="<= 1/5 of the C loader", limit=0.2,
        note=f"orjson on the same values: {Sample.of(taken['orjson']).median * 1e6:.1f} us",
    )  # fmt: skip


_REPEATS: Final = 50


def _often(run: Callable[[], object]) -> Callable[[int], None]:
    def repeated(_: int) -> None:
        for _ in range(_REPEATS):
            run()

    return repeated


def search(desk: Desk, rounds: int) -> Iterator[Row]:
    """Three words, any of them: our index against FTS5 alone on the same file, and against ripgrep on the notes."""
    size = desk.store.size
    words = desk.store.words().around(_RANK_OF_SEARCHED, 3)
    desk.catch_up()
    desk.merge()
    index = desk.index
    # As the tool asks: records that are current now.
    query = SearchQuery(" ".join(words), "any", SearchFilters(eligible_at=NOW_MS), limit=20)
    match = " OR ".join(f'"{word}"' for word in words)
    bare = Database.open(index.path, point_prefix="search", read_only=True)
    sql = "SELECT rowid FROM text WHERE text MATCH ? ORDER BY bm25(text) LIMIT 20"
    try:
        page = index.search(query, at_least=0)
        contenders = [
            Contender("ours", lambda _: index.search(query, at_least=0)),
            Contender("FTS5", lambda _: bare.query(sql, (match,))),
        ]
        taken = interleave(contenders, rounds)
        yield compared(
            "3-word OR search", size, taken, "ours", "FTS5", goal="<= 1.5x bare FTS5", limit=1.5,
            note=f"{page.total} hits",
        )  # fmt: skip
        ripgrep = shutil.which("rg")
        if ripgrep is not None:
            grepped = interleave([*contenders[:1], Contender("rg", _ripgrep(ripgrep, words, desk.store.private))], 7)
            yield compared("3-word OR search", size, grepped, "ours", "rg", goal="<= 1/50 of ripgrep", limit=0.02)
    finally:
        bare.close()


def _ripgrep(program: str, words: list[str], folder: Path) -> Callable[[int], None]:
    command = [program, "--no-config", "-l", "-i", "-w", "|".join(words), str(folder)]

    def run(_: int) -> None:
        subprocess.run(command, stdout=subprocess.DEVNULL, check=False)

    return run

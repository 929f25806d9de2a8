"""Notes that no tool could have saved: every value of YAML in every key of every kind, and envelopes that break.

For reads, which must answer whatever lies in the files (decisions.md section 2, knowledge-more-facts.md section 2).
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from messages.json_types import JsonObject
from messages.vocabulary import PRIVATE
from storage import files
from storage.records._fields import ENVELOPE, OF_KIND
from storage.trees import remove_tree
from tests.kit.store import claim_file, page_file, record_file, request_id

_OF_KIND: Final = dict.fromkeys(key for of_kind in OF_KIND.values() for key in of_kind)
KEYS: Final = ("format", "id", "revision", "kind", *ENVELOPE, *_OF_KIND)
"""Every key of frontmatter that means something to us."""

_HEX: Final = "0" * 64
_PATH: Final = f"artifacts/{request_id(900)}/excerpt.txt"

VALUES: Final = (
    "null", "~", "true", "0", "-1", "1.5", "1e400", ".inf", ".nan", "9" * 23, '""', '" "', '"\\n"', "[]", "[null]",
    "[[]]", "[{}]", "[1, 2]", '["a", "a"]', "{}", '{"a": 1}', '{"": ""}', '"2026-13-45"', '"0000-01-01"', '"0001"',
    '"9999-12-31"', "9999", '"2016-12-31T23:59:60Z"', '"9999-12-31T23:59:59.999-00:00"', '"2999-01-01T00:00:00Z"',
    '"2026-11-02T00:00:00+01:75"', "2026-01-01", "12:30:45", "0o17", "0x1F", "1_000", "yes", '"x"', '"\\U0001f642"',
    '"\\0"', '"\\ud800"', '"../../etc"', '"' + "z" * 5_000 + '"', "!!str x", "&a b", "*a", '"<!-- x"',
    "|\n  text\n  more",
    json.dumps([f"i{n}" for n in range(300)]), '{"a": ' * 25 + "1" + "}" * 25, '"\\u202e abc"', '"[[hub]] | ` \\\\"',
    '["\\0"]', f'["{"y" * 3_000}"]', '{"sha256": "x"}',
    f'[{{"path": "{_PATH}", "sha256": "{_HEX}", "start_line": -1}}]',
    f'[{{"path": "{_PATH}", "sha256": "{_HEX}", "start_line": 5, "end_line": 2, "quote": "{"q" * 9_000}"}}]',
    '"merged"', '"superseded"', '"withdrawn"', '"hub"',
)  # fmt: skip
"""Values as they stand in a file, among them some that no YAML or no JSON has."""


def wrong_values() -> Iterator[tuple[str, str]]:
    """One note for each kind, key and value, with the id ``<kind>-<key>-<number>``."""
    for kind in ("page", "claim", "relationship"):
        for key in KEYS:
            for number, value in enumerate(VALUES):
                record_id = f"{kind}-{key}-{number}"
                written = {**_sound(kind, record_id), key: value}
                head = "".join(f"{name}: {member}\n" for name, member in written.items())
                yield f"{kind}/{key}/{number}.md", f"---\n{head}---\n\nThe harbor of {record_id}, see [[hub]].\n"


def broken_envelopes() -> Iterator[tuple[str, str]]:
    """Notes without a readable envelope, with one id, in circles, and at the ends of time."""
    yield "x/doubled.md", "---\nformat: knowledge-record-v1\nid: a\nid: b\nkind: page\ntitle: Doubled\n---\n"
    yield "x/broken.md", "---\nformat: [\n---\n"
    yield "x/open.md", "---\nformat: knowledge-record-v1\n"
    yield "x/empty.md", ""
    yield "x/plain.md", "no envelope\n"
    yield "x/merged1.md", page_file("m1", "M1", lifecycle="merged", merged_into="m2")
    yield "x/merged2.md", page_file("m2", "M2", lifecycle="merged", merged_into="m1")
    yield "x/self.md", page_file("self", "Self", lifecycle="merged", merged_into="self")
    yield "x/was1.md", claim_file("w1", "The harbor was 1.", lifecycle="superseded", superseded_by="w2")
    yield "x/was2.md", claim_file("w2", "The harbor was 2.", lifecycle="superseded", superseded_by="w1")
    yield "x/was3.md", claim_file("w3", "The quay was 3.", lifecycle="superseded", superseded_by="now")
    yield "x/now.md", claim_file("now", "The harbor is now.", entities=["hub"], owner="hub")
    yield "x/future.md", claim_file("future", "The harbor will be.", recorded_at="9999-12-31T23:59:59.999Z")
    yield "x/past.md", claim_file("past", "The harbor was.", recorded_at="0001-01-01T00:00:00Z", occurred_at="0001",
                                  due_at="9999", claim_kind="commitment")  # fmt: skip
    yield "x/long.md", page_file("long", "Long", body="The harbor \N{SLIGHTLY SMILING FACE} opens. " * 5_000)
    for number in range(3):
        yield f"x/same{number}.md", page_file("same", f"Same {number}")
    yield "hub.md", page_file("hub", "Hub", aliases=["The hub", "Port"], tags=["t"], body="See [[now]], [[Self]].\n")
    yield "hub2.md", page_file("hub2", "Hub", type="person", body="[x](hub.md) [y](../../../etc/passwd) [[nope]]\n")


def _sound(kind: str, record_id: str) -> dict[str, str]:
    keys: JsonObject = {"type": "project"}
    if kind != "page":
        keys = {"assertion_origin": "source", "attribution": "a", "evidence": [{"path": _PATH, "sha256": _HEX}]}
    if kind == "claim":
        keys |= {"claim_kind": "commitment", "due_at": "2026-11-02", "entities": ["hub"]}
    if kind == "relationship":
        keys |= {"from": "hub", "to": "hub2", "label": "related_to"}
    written = record_file(kind, record_id, f"T {record_id}", "", PRIVATE, "2026-10-01T10:00:00.000Z", keys)
    lines = written.split("---\n")[1].splitlines()
    return dict(line.split(": ", 1) for line in lines)


@contextmanager
def nested(folder: Path, depth: int = 1_500) -> Iterator[None]:
    """Folders one in the other, more than a path can name; gone again afterwards, since little else removes them."""
    nest(folder, depth)
    try:
        yield
    finally:
        above = files.open_root(folder, at="erase.look")
        remove_tree(above, "deep", at="erase.files")
        files.close(above)


def nest(folder: Path, depth: int = 1_500) -> None:
    """Folders one in the other."""
    above = os.open(folder, os.O_RDONLY)
    for _ in range(depth):
        os.mkdir("deep", dir_fd=above)
        below = os.open("deep", os.O_RDONLY, dir_fd=above)
        os.close(above)
        above = below
    os.close(above)

"""The decision tables as they are written down, row by row, and that they answer every combination."""

from __future__ import annotations

import itertools
import json

import pytest

from messages.errors import (
    CheckpointConflict,
    DatabaseOlderThanVault,
    ForeignVault,
    KnowledgeError,
    ManifestMissing,
    VaultOlderThanDatabase,
)
from messages.vocabulary import PRIVATE
from storage.files import Stamp
from storage.manifest import (
    MISSING,
    UNREADABLE,
    Binding,
    Found,
    Manifest,
    Pair,
    judge,
    parse_manifest,
)
from storage.publication.machine import Chain, Verdict, chains, judge_path
from storage.publication.slot import Observed
from storage.publication.table import Action, Holds, decide, is_torn
from storage.state.journal import EntryState, JournalEntry, Step, StepKind

B, P, E, N = Holds.BEFORE, Holds.AFTER, Holds.OTHER, Holds.NOTHING


@pytest.mark.parametrize(
    ("kind", "path", "staged", "action"),
    [
        ("replace", B, P, Action.PLACE),
        ("replace", B, N, Action.RESTAGE),
        ("replace", B, B, Action.DONE),
        ("replace", P, B, Action.DONE),
        ("replace", P, N, Action.DONE),
        ("replace", P, P, Action.DONE),
        ("replace", P, E, Action.CONFLICT),
        ("replace", E, P, Action.CONFLICT),
        ("replace", E, N, Action.CONFLICT),
        ("replace", E, B, Action.DONE),
        ("replace", E, E, Action.CONFLICT),
        ("replace", N, P, Action.CONFLICT),
        ("replace", N, N, Action.CONFLICT),
        ("replace", N, B, Action.DONE),
        ("create", N, P, Action.PLACE),
        ("create", N, N, Action.RESTAGE),
        ("create", P, N, Action.DONE),
        ("create", P, P, Action.DONE),
        ("create", P, E, Action.DONE),
        ("create", E, P, Action.CONFLICT),
        ("create", E, N, Action.CONFLICT),
        ("remove", B, N, Action.PLACE),
        ("remove", E, N, Action.CONFLICT),
        ("remove", N, B, Action.DONE),
        ("remove", N, N, Action.DONE),
        ("remove", N, E, Action.CONFLICT),
        ("remove", B, E, Action.CONFLICT),
        ("remove", E, E, Action.CONFLICT),
        ("remove", E, B, Action.DONE),
    ],
)
def test_a_pending_step_is_decided_as_table_3a_says(kind: StepKind, path: Holds, staged: Holds, action: Action) -> None:
    assert decide(kind, path, staged) is action


def test_every_combination_of_a_pending_step_has_an_answer() -> None:
    kinds: tuple[StepKind, ...] = ("create", "replace", "remove")
    for kind, path, staged in itertools.product(kinds, Holds, Holds):
        assert decide(kind, path, staged) in Action


def test_a_displaced_text_that_nobody_knows_is_never_taken_for_done() -> None:
    kinds: tuple[StepKind, ...] = ("replace", "remove")
    for kind, path in itertools.product(kinds, Holds):
        assert decide(kind, path, E) is Action.CONFLICT


TEXT = bytes(range(256)) * 40


@pytest.mark.parametrize(
    "data", [b"", bytes(10), bytes(len(TEXT)), TEXT[:4096], TEXT[:8192], TEXT[:4096] + bytes(100), TEXT[:77] + bytes(9)]
)
def test_what_a_power_loss_leaves_of_a_known_text_is_torn(data: bytes) -> None:
    assert is_torn(data, [TEXT], 4096)


@pytest.mark.parametrize("data", [TEXT, TEXT[:4095], TEXT[:100], b"another text", TEXT + bytes(1), TEXT[1:4097]])
def test_a_text_cut_or_written_by_a_person_is_not_torn(data: bytes) -> None:
    assert not is_torn(data, [TEXT], 4096)


# --- table 3b ------------------------------------------------------------------------------------------------


def entry(number: int, state: EntryState, *steps: tuple[str | None, str | None]) -> JournalEntry:
    made = tuple(Step(n, f"private/{n}.md", f"private/{n}.md", b, a, "id") for n, (b, a) in enumerate(steps))
    return JournalEntry(
        id=number,
        publication_id=f"p{number}",
        partition=PRIVATE,
        sequence=number,
        generation=number,
        request_id=None,
        payload_hash=None,
        operation="op",
        actor="a",
        accepted_at=1000 * number,
        settled_at=None,
        state=state,
        fixed=None,
        receipt=None,
        git_commit=None,
        steps=made,
    )


def test_a_chain_ends_at_the_last_text_that_was_not_undone() -> None:
    found = chains(
        [
            entry(1, "published", (None, "one")),
            entry(2, "conflict", ("one", "two")),
            entry(3, "folded", ("one", "three")),
        ]
    )
    assert [(c.last, c.texts, c.absent) for c in found] == [("three", ("one", "two", "three"), True)]


def test_an_undone_entry_at_the_end_leaves_the_text_before_it() -> None:
    found = chains([entry(1, "published", (None, "one")), entry(2, "rolling_back", ("one", None))])
    assert [(c.last, c.texts) for c in found] == [("one", ("one",))]


def test_a_pending_entry_is_rolled_forward() -> None:
    assert chains([entry(1, "pending", ("one", "two"))])[0].last == "two"


CHAIN = Chain(
    entry(5, "published", ("old", "new")),
    Step(0, "private/0.md", "k", "old", "new", "id"),
    ("old", "new"),
    False,
    "new",
)
GONE = Chain(
    entry(5, "published", ("old", None)), Step(0, "private/0.md", "k", "old", None, "id"), ("old",), True, None
)


def observed(text: str | None, *, data: bytes = b"some bytes of a person", ctime: int = 9000) -> Observed:
    if text is None:
        return Observed(N, "0.md")
    return Observed(E, "0.md", text, data, Stamp(1, 1, len(data), ctime, ctime))


@pytest.mark.parametrize(
    ("chain", "found", "moved", "verdict"),
    [
        (CHAIN, observed("new"), False, "right"),
        (CHAIN, observed("old"), False, "write"),
        (CHAIN, observed(None), True, "moved"),
        (CHAIN, observed(None), False, "write"),
        (CHAIN, observed("?", data=b""), False, "write"),
        (CHAIN, observed("?", data=bytes(4096)), False, "torn"),
        (CHAIN, observed("?", ctime=4999), False, "older"),
        (CHAIN, observed("?", ctime=5000), False, "left"),
        (CHAIN, Observed(E, "0.md"), False, "left"),
        (GONE, observed(None), False, "right"),
        (GONE, observed("old"), False, "write"),
        (GONE, observed("?"), False, "left"),
    ],
)
def test_a_path_after_a_machine_stop_is_decided_as_table_3b_says(
    chain: Chain, found: Observed, moved: bool, verdict: Verdict
) -> None:
    known = {"old": b"x" * 9000, "new": b"y" * 9000}
    assert judge_path(chain, found, known, block=4096, moved=moved) == verdict


# --- table 3c ------------------------------------------------------------------------------------------------

VAULT, FOREIGN = "11111111-1111-4111-8111-111111111111", "33333333-3333-4333-8333-333333333333"


def pair(generation: int, letter: str = "a") -> Pair:
    return Pair(generation, f"{letter * 8}-0000-4000-8000-{generation:012d}")


def manifest(generation: int, letter: str = "a") -> Manifest:
    return Manifest(VAULT, pair(generation, letter))


def binding(*, pending: bool = False, machine: bool = False, same: bool = True, unpruned: bool = True) -> Binding:
    return Binding(
        VAULT,
        pair(9),
        pair(5),
        frozenset(pair(n) for n in range(6, 10)) if unpruned else frozenset(),
        pair(8) if pending else None,
        machine,
        same,
    )


@pytest.mark.parametrize(
    ("found", "pending", "process", "machine"),
    [
        (manifest(9), False, "open", "open"),
        (manifest(8), True, "replay", "replay"),
        (manifest(8), False, VaultOlderThanDatabase, "replay"),
        (manifest(5), False, VaultOlderThanDatabase, "replay"),
        (manifest(4), False, VaultOlderThanDatabase, VaultOlderThanDatabase),
        (manifest(10), False, DatabaseOlderThanVault, DatabaseOlderThanVault),
        (manifest(9, "b"), False, CheckpointConflict, CheckpointConflict),
        (manifest(7, "b"), False, CheckpointConflict, CheckpointConflict),
        (Manifest(FOREIGN, pair(9)), False, ForeignVault, ForeignVault),
        (MISSING, False, ManifestMissing, "replay"),
        (UNREADABLE, False, ManifestMissing, "replay"),
    ],
)
def test_a_manifest_is_judged_as_table_3c_says(
    found: Found, pending: bool, process: str | type[KnowledgeError], machine: str | type[KnowledgeError]
) -> None:
    for expected, stop in ((process, False), (machine, True)):
        verdict = judge(found, binding(pending=pending, machine=stop))
        assert verdict == expected if isinstance(expected, str) else type(verdict) is expected


def test_a_missing_manifest_is_never_explained_in_another_folder_or_without_unpruned_entries() -> None:
    assert isinstance(judge(MISSING, binding(machine=True, same=False)), ManifestMissing)
    assert isinstance(judge(MISSING, binding(machine=True, unpruned=False)), ManifestMissing)


def test_a_refusal_names_both_pairs_and_a_command() -> None:
    refusal = judge(manifest(4), binding())
    assert isinstance(refusal, VaultOlderThanDatabase)
    assert refusal.fields["expected"] != refusal.fields["found"]
    assert "knowledge store" in refusal.message


GOOD = json.dumps({"format": "knowledge-vault-v2", "vaultId": VAULT, "generation": 3, "publicationId": FOREIGN})


@pytest.mark.parametrize("text", [GOOD, GOOD.replace(", ", ",\n\t"), "\ufeff" + GOOD, GOOD + "\n\n"])
def test_a_manifest_reformatted_by_hand_is_the_same_manifest(text: str) -> None:
    assert parse_manifest(text.encode()) == Manifest(VAULT, Pair(3, FOREIGN))


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{",
        "[]",
        "null",
        GOOD[:-1],
        GOOD.replace("v2", "v3"),
        GOOD.replace("3,", "-3,"),
        GOOD.replace("3,", "true,"),
        GOOD.replace("3,", '"3",'),
        GOOD.replace("3,", "3.0,"),
        GOOD.replace(VAULT, VAULT.upper().replace("1", "A")),
        GOOD.replace("}", ', "more": 1}'),
        GOOD.replace('"generation": 3', '"generation": 2, "generation": 3'),
        "\0" * 300,
        "[" * 100_000,
        GOOD + " " * 70_000,
    ],
)
def test_anything_else_is_no_manifest(text: str) -> None:
    assert parse_manifest(text.encode()) is UNREADABLE


def test_what_we_write_is_what_we_read() -> None:
    wanted = manifest(12)
    assert parse_manifest(wanted.encode()) == wanted

"""``knowledge memory import``: facts and notes become claims with evidence, once, however often it runs or stops."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from host_bridge import KnowledgeMemory
from host_bridge.cli.memory_import import Ledger, Note, planned
from messages.json_types import JsonObject
from tests.host_bridge.processes import Home


@pytest.fixture(scope="module")
def real() -> Iterator[Home]:
    place = Home(fake=False)
    yield place
    place.close()


@pytest.fixture
def memory(tmp_path: Path) -> Path:
    path = tmp_path / "memory"
    with KnowledgeMemory(path) as opened:
        opened.remember("Prefers tea", category="preferences", persistent=True)
        for number in range(23):
            opened.remember(f"{tmp_path.name} fact {number}\nand a second line", category="personal", persistent=True)
        opened.remember("x" * 4_001, category="personal", persistent=True)
        opened.remember(f"{tmp_path.name} standup moved", category="context")
    return path


def imported(home: Home, memory: Path, *words: str) -> JsonObject:
    done = home.run("memory", "import", "--dir", str(memory), *words, "--json")
    assert (done.returncode, done.stderr) == (0, b""), done.stderr.decode()
    answer: JsonObject = json.loads(done.stdout)
    return answer


def counts(answer: JsonObject) -> tuple[object, ...]:
    return tuple(answer[name] for name in ("pages", "claims", "batches", "already"))


def claims(home: Home, query: str) -> int:
    total = home.call("grep", json.dumps({"query": query}))["total"]
    assert isinstance(total, int)
    return total


def test_a_dry_run_says_what_it_would_do_and_starts_no_owner(home: Home, memory: Path) -> None:
    answer = imported(home, memory, "--dry-run")
    assert (answer["dryRun"], answer["receipts"], counts(answer)) == (True, [], (2, 25, 4, 0))
    assert answer["skipped"] == [{"category": "personal", "characters": 4_001}]
    assert list(home.state_dir.iterdir()) == []
    assert not (memory / ".imported.jsonl").exists()


def test_facts_and_notes_become_claims_with_evidence_and_a_repeat_doubles_nothing(real: Home, memory: Path) -> None:
    name = memory.parent.name
    first = imported(real, memory)
    assert counts(first) == (2, 25, 4, 0)
    assert (claims(real, f"{name} fact"), claims(real, f"{name} standup")) == (23, 1)
    receipts = first["receipts"]
    assert isinstance(receipts, list)
    [last] = [one for one in receipts[-1:] if isinstance(one, dict)]
    ids = last["ids"]
    assert isinstance(ids, list)
    record = json.dumps(real.call("record", json.dumps({"id": ids[0], "includeEvidence": True})))
    assert f"(context) {name} standup moved" in record  # as it is quoted, with its time and category
    assert counts(imported(real, memory)) == (0, 0, 0, 25)
    (memory / ".imported.jsonl").unlink()
    assert imported(real, memory)["receipts"] == receipts
    assert claims(real, f"{name} fact") == 23


def test_an_import_that_was_interrupted_goes_on_and_takes_what_is_new_apart(real: Home, memory: Path) -> None:
    name = memory.parent.name
    imported(real, memory)
    ledger = memory / ".imported.jsonl"
    lines = [line for line in ledger.read_text().splitlines() if line]
    # As if it had been killed after the third batch was sent and before its receipt was noted.
    ledger.write_text("\n".join(lines[:5]) + '\n{"vault": "to')
    with KnowledgeMemory(memory) as opened:
        opened.remember(f"{name} fact that is new", category="personal", persistent=True)
    answer = imported(real, memory)
    assert answer["already"] == 21
    assert claims(real, f"{name} fact") == 24
    assert claims(real, f"{name} standup") == 1
    assert counts(imported(real, memory)) == (0, 0, 0, 26)


def test_facts_alone_can_be_taken(home: Home, memory: Path) -> None:
    assert counts(imported(home, memory, "--dry-run", "--facts-only")) == (2, 24, 3, 0)


def test_without_an_owner_that_can_start_nothing_is_noted_as_sent(home: Home, memory: Path) -> None:
    done = home.run("memory", "import", "--dir", str(memory), "--agent", "nobody such", "--json")
    assert done.returncode != 0
    assert done.stdout == b""
    assert not (memory / ".imported.jsonl").exists()


def test_no_batch_is_larger_than_a_call_takes_and_each_is_of_one_source(tmp_path: Path) -> None:
    notes = [Note("a", "é" * 3_000, "")] + [Note("a", f"{n} " + "é" * 3_000, "") for n in range(9)]
    notes += [Note("a", f"{n}", f"2026-03-1{n % 3}T00:00:00Z") for n in range(45)]
    plan = planned(notes, Ledger(str(tmp_path / "none"), None))
    assert sum(map(len, plan.batches)) == len(notes)
    for batch in plan.batches:
        assert len(batch) <= 20
        assert len("\n".join(note.line for note in batch).encode()) <= 16_384
        assert len({note.at[:10] for note in batch}) == 1


def test_a_batch_of_which_something_is_gone_is_not_asked_for_again(tmp_path: Path) -> None:
    one, two = Note("a", "one", ""), Note("a", "two", "")
    ledger = Ledger(str(tmp_path / "ledger"), "v")
    ledger.add("batch", [one.key, two.key], done=False)
    assert planned([one, two], Ledger(str(tmp_path / "ledger"), "v")).batches == [[one, two]]
    assert planned([two], Ledger(str(tmp_path / "ledger"), "v")).batches == [[two]]
    assert planned([one, two], Ledger(str(tmp_path / "ledger"), "another store")).already == 0

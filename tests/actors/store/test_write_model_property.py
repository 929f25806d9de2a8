"""The model of tests/storage/test_model_property.py for the tools that write more than one record, or a lifecycle.

Agents create, edit, annotate, approve, correct, withdraw, merge, unmerge, extract and publish batches at random, while
people save beside them and processes die in the middle of a write. After every step the catalogue equals a rebuild from
the files, and history has the exact bytes of every revision; at the end each receipt is given again byte for byte and
``knowledge_revision`` tells every revision.

Source: decisions.md sections 2, 4 and 5, tools.md (Receipts, history, and recovery).
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Final

import pytest

from messages.json_types import JsonObject, JsonValue
from messages.vocabulary import Partition
from storage import faults
from storage.layout import StoreLayout
from storage.records.links import parse
from storage.state.catalogue_reader import Entry
from tests.storage.test_model_property import (
    MOMENTS,
    TITLES,
    Action,
    Run,
    Skip,
    at_point,
    change_id,
    change_line_ends,
    change_revision,
    copy,
    create_page,
    delete,
    edit_body,
    edit_page,
    edit_text,
    edit_the_ontology,
    edit_title,
    follow,
    move,
    put_an_earlier_text_back,
    remember,
    replay,
    search,
)

MOST_FILES: Final = 44


class Crash(BaseException):
    """The process dies here."""


# --- what a call is made of -----------------------------------------------------------------------------------------


def vault(run: Run, partition: Partition) -> JsonObject:
    return {
        "expectedVaultId": run.desk.session.vault_id,
        "expectedOntologyFingerprint": run.desk.session.partition(partition).ontology.fingerprint,
    }


def entries(run: Run, partition: Partition) -> list[Entry]:
    catalogue = run.desk.partition(partition).catalogue
    found = [catalogue.by_path(path) for path in sorted(catalogue.files())]
    return [entry for entry in found if entry is not None]


def a_record(run: Run, partition: Partition, *kinds: str, lifecycle: str = "active") -> JsonObject:
    """The fences of a record, mostly of one that can be written so."""
    found = entries(run, partition)
    fit = [entry for entry in found if entry.kind in kinds and entry.lifecycle == lifecycle]
    if run.random.random() < 0.05:
        fit = found
    if not fit:
        raise Skip
    entry = run.random.choice(fit)
    revision = entry.revision if run.random.random() < 0.95 else entry.revision + 1
    return {"id": entry.id, "expectedRevision": revision, "expectedHash": entry.hash[: run.random.choice((16, 64))]}


def ids(run: Run, partition: Partition, *kinds: str, most: int = 3) -> list[JsonValue]:
    found = [entry.id for entry in entries(run, partition) if not kinds or entry.kind in kinds]
    return [run.random.choice(found) for _ in range(run.random.randint(0, most))] if found else []


def evidence(run: Run, partition: Partition) -> JsonObject:
    """A source that some record cites; one is retained where there is none."""
    citing = [entry for entry in entries(run, partition) if entry.kind == "claim"]
    session = run.desk.session.partition(partition)
    cited = [(one.path, one.sha256) for entry in citing for one in session.load(entry).evidence]
    there = [(path, sha256) for path, sha256 in cited if (run.root(partition) / path).is_file()]
    if not there:
        remember(run, partition)
        raise Skip
    path, sha256 = run.random.choice(there)
    return {"path": path, "sha256": sha256}


def claim(run: Run, partition: Partition) -> JsonObject:
    return {
        "body": f"{run.text()}.",
        "claim_kind": run.random.choice(("fact", "event", "commitment")),
        "assertion_origin": run.random.choice(("source", "user_belief")),
        "attribution": "Ann, in the chat",
        "entities": ids(run, partition, "page"),
        "dependencies": ids(run, partition, most=2),
        "evidence": [evidence(run, partition)],
    }


def relationship(run: Run, partition: Partition) -> JsonObject:
    source, target = (a_record(run, partition, "page")["id"] for _ in range(2))
    given: JsonObject = {"from": source, "to": target, "label": run.random.choice(("related_to", "works_at"))}
    return {**given, "attribution": "Ann", "evidence": [evidence(run, partition)]}


def page(run: Run) -> JsonObject:
    sections = [f"# {run.text()}\n\n{run.linked_text()}\n" for _ in range(run.random.randint(0, 3))]
    return {
        "title": run.random.choice(TITLES),
        "type": run.random.choice(("person", "project", "concept")),
        "body": "\n".join([run.linked_text(), "", *sections]),
        "aliases": [run.text() for _ in range(run.random.randint(0, 2))],
        "tags": [run.text()],
        "allowSameTitle": run.random.random() < 0.8,
    }


# --- what agents do -------------------------------------------------------------------------------------------------


def create_sections(run: Run, partition: Partition) -> None:
    run.room()
    run.save(partition, "save_page", page(run))


def create_claim(run: Run, partition: Partition) -> None:
    run.room()
    run.save(partition, "create_claim", {**vault(run, partition), **claim(run, partition)})


def create_relationship(run: Run, partition: Partition) -> None:
    run.room()
    run.save(partition, "create_relationship", {**vault(run, partition), **relationship(run, partition)})


def annotate(run: Run, partition: Partition) -> None:
    notes: tuple[JsonObject, ...] = (
        {"fixture": run.random.random() < 0.5},
        {"identity_uncertainty": run.text()},
        {"continuity": ids(run, partition)},
        {"entities": ids(run, partition, "page")},
        {"evidence": [evidence(run, partition)] * 2},
    )
    target = a_record(run, partition, "page", "claim", "relationship")
    run.save(partition, "annotate", {**vault(run, partition), **target, "reason": "r", **run.random.choice(notes)})


def approve(run: Run, partition: Partition) -> None:
    block: JsonObject = {"clear": True} if run.random.random() < 0.3 else {"summary": run.text(), "importance": 7}
    if partition.session_id is not None:
        raise Skip
    run.save(partition, "recall", {**a_record(run, partition, "page"), **block})


def correct(run: Run, partition: Partition) -> None:
    run.room()
    kind = run.random.choice(("claim", "claim", "relationship"))
    target = a_record(run, partition, kind)
    statement = claim(run, partition) if kind == "claim" else relationship(run, partition)
    more: JsonObject = {"reason": "wrong", "replacement": {"kind": kind, **statement}}
    run.save(partition, "correct", {**vault(run, partition), **target, **more})


def withdraw(run: Run, partition: Partition) -> None:
    target = a_record(run, partition, "page", "claim", "relationship")
    run.save(partition, "withdraw", {**target, "reason": "not so"})


def merge(run: Run, partition: Partition) -> None:
    source, destination = a_record(run, partition, "page"), a_record(run, partition, "page")
    types = {entry.id: entry.type for entry in entries(run, partition)}
    for _ in range(8):  # pages of different types are not merged
        if source["id"] != destination["id"] and types.get(str(source["id"])) == types.get(str(destination["id"])):
            break
        destination = a_record(run, partition, "page")
    body: JsonObject = {"body": run.linked_text()} if run.random.random() < 0.4 else {}
    fences: JsonObject = {**vault(run, partition), "source": source, "destination": destination}
    run.save(partition, "merge", {**fences, "reason": "the same", **body})


def unmerge(run: Run, partition: Partition) -> None:
    target = a_record(run, partition, "page", lifecycle="merged")
    run.save(partition, "unmerge", {**target, "reason": "not the same"})


def extract(run: Run, partition: Partition) -> None:
    run.room()
    source = a_record(run, partition, "page")
    entry = run.desk.session.partition(partition).catalogue.one(str(source["id"]))
    if entry is None or entry.kind != "page":
        raise Skip
    sections = parse(run.desk.session.partition(partition).load(entry).body).sections
    if not sections:
        raise Skip
    new: JsonObject = {"title": f"{run.text()} {run.made}", "type": "concept"}
    destination = new if run.random.random() < 0.6 else a_record(run, partition, "page")
    given: JsonObject = {
        **vault(run, partition),
        "source": source,
        "sectionStart": run.random.choice(sections).start,
        "destination": destination,
        "summary": "It moved.",
        "reason": "room",
    }
    run.save(partition, "extract_section", given)


def batch(run: Run, partition: Partition) -> None:
    run.room()
    items: list[JsonValue] = [{"kind": "page", "ref": "new", **page(run)}]
    if run.random.random() < 0.7:
        items.append({"kind": "claim", **claim(run, partition), "entities": ["$new"]})
    if run.random.random() < 0.6:
        items.append({"kind": "page", "ref": "old", **page(run), **a_record(run, partition, "page")})
        items.append({"kind": "relationship", **relationship(run, partition), "from": "$new", "to": "$old"})
    run.random.shuffle(items)
    run.save(partition, "publish_batch", {**vault(run, partition), "items": items})


def while_a_person_saves(run: Run, partition: Partition) -> None:
    """Some files change at some moment inside a write of several."""
    paths = [run.root(partition) / run.a_note(partition) for _ in range(run.random.randint(1, 40))]
    write = run.random.choice((correct, merge, extract, batch, unmerge))
    moment = run.random.choice((*MOMENTS, "place.file", "place.file"))
    run.log[-1] += f" {write.__name__}, {len(paths)} files at {moment}"

    def save() -> None:
        for path in paths:
            if path.is_file() and path.stat().st_size < 100_000:
                path.write_bytes(path.read_bytes() + b"theirs\n")

    with at_point(moment, save):
        write(run, partition)


def crash(run: Run, partition: Partition) -> None:
    """The process dies at some point of a write."""
    write = run.random.choice((correct, merge, extract, batch, withdraw, unmerge))
    left = run.random.randint(1, 700)
    run.log[-1] += f" {write.__name__}, {left} points on"

    def handler(_: str) -> None:
        nonlocal left
        left -= 1
        if left == 0:
            raise Crash

    try:
        with faults.installed(handler):
            write(run, partition)
        return
    except Crash:
        run.log[-1] += " -> died"
        run.outcomes["died"] = run.outcomes.get("died", 0) + 1
    run.desk.close(clean=False)


AGENTS: Final[Mapping[Action, int]] = {
    create_page: 4,
    create_sections: 10,
    remember: 4,
    create_claim: 8,
    create_relationship: 6,
    edit_page: 3,
    edit_body: 2,
    annotate: 6,
    approve: 3,
    correct: 12,
    withdraw: 4,
    merge: 9,
    unmerge: 8,
    extract: 8,
    batch: 10,
    while_a_person_saves: 8,
    crash: 6,
    replay: 6,
    search: 2,
}
PEOPLE: Final[Mapping[Action, int]] = {
    edit_text: 3,
    edit_title: 2,
    change_id: 1,
    change_revision: 1,
    change_line_ends: 3,
    put_an_earlier_text_back: 2,
    copy: 1,
    move: 2,
    delete: 8,
    edit_the_ontology: 1,
}


@pytest.mark.parametrize("seed", range(3))
def test_history_and_catalogue_hold_under_random_writes_of_every_tool(
    made_store: StoreLayout, tmp_path: Path, seed: int
) -> None:
    outcomes = follow(made_store, tmp_path, seed, 40, {**AGENTS, **PEOPLE}, MOST_FILES)
    assert outcomes["published"] > 10


@pytest.mark.exhaustive
@pytest.mark.timeout(900)
@pytest.mark.parametrize("seed", range(201, 207))
def test_history_and_catalogue_hold_under_long_runs_of_every_tool(
    made_store: StoreLayout, tmp_path: Path, seed: int
) -> None:
    outcomes = follow(made_store, tmp_path, seed, 400, {**AGENTS, **PEOPLE}, MOST_FILES)
    assert {"published", "died", "StaleFence", "InvalidArgument"} <= outcomes.keys()

"""A keyword index that a process of its own catches up: the same index, and no process that outlives its purpose."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from messages.vocabulary import PRIVATE
from storage import index_builder, python_child
from storage.index_builder import build_apart
from storage.index_feed import SLICE_ROWS
from storage.search import SearchFilters, SearchIndex, SearchQuery
from storage.state.catalogue import catalogue_identity
from tests.kit.store import NOON, VAULT_ID, Desk, make_store, page_file, write_notes

PAGES = 2 * SLICE_ROWS + 50


@pytest.fixture
def desk(tmp_path: Path) -> Iterator[Desk]:
    opened = Desk(make_store(tmp_path / "store"))
    notes = [(f"{n}.md", page_file(f"p{n}", f"Page {n}", body=f"Body of number {n}.\n")) for n in range(PAGES)]
    write_notes(opened.folder(), notes)
    opened.partition()
    try:
        yield opened
    finally:
        opened.close()


@pytest.fixture
def children(monkeypatch: pytest.MonkeyPatch) -> list[subprocess.Popen[bytes]]:
    """The processes that are started."""
    started: list[subprocess.Popen[bytes]] = []

    class Noted(subprocess.Popen[bytes]):
        def __init__(self, *arguments: object, **options: object) -> None:
            super().__init__(*arguments, **options)  # type: ignore[call-overload]
            started.append(self)

    monkeypatch.setattr(subprocess, "Popen", Noted)
    return started


def build(desk: Desk, path: Path, check: Callable[[], None] = lambda: None) -> bool:
    return build_apart(desk.layout.state_database, path, vault_id=VAULT_ID, partition=PRIVATE, check=check)


def opened_index(desk: Desk, path: Path) -> SearchIndex:
    identity = catalogue_identity(desk.session.publisher.db)
    return SearchIndex.open(path, vault_id=VAULT_ID, partition=PRIVATE.key, catalogue=identity, read_only=True)


def found(index: SearchIndex, text: str) -> list[tuple[int, float]]:
    query = SearchQuery(text, "any", SearchFilters(eligible_at=NOON), limit=50)
    return [(hit.rowid, hit.score) for hit in index.search(query, at_least=0).hits]


def test_an_index_built_apart_finds_what_one_built_beside_the_requests_finds(desk: Desk, tmp_path: Path) -> None:
    apart = tmp_path / "apart" / "private.sqlite"
    assert build(desk, apart)
    beside = desk.index()
    desk.catch_up(PRIVATE, desk.partition().catalogue.change)
    index = opened_index(desk, apart)
    try:
        assert index.position() == beside.position() == desk.partition().catalogue.change
        assert index.count() == beside.count() == PAGES
        for text in ("body", "number 17", "page 3 449"):
            assert found(index, text) == found(beside, text) != []
    finally:
        index.close()


def test_a_killed_build_is_reported_and_the_next_one_goes_on(
    desk: Desk, tmp_path: Path, children: list[subprocess.Popen[bytes]]
) -> None:
    path = tmp_path / "apart" / "private.sqlite"
    assert not build(desk, path, lambda: children[-1].kill())
    assert build(desk, path)
    index = opened_index(desk, path)
    try:
        assert index.position() == desk.partition().catalogue.change
        assert index.count() == PAGES
    finally:
        index.close()


def test_a_caller_who_gives_up_leaves_no_process_behind(
    desk: Desk, tmp_path: Path, children: list[subprocess.Popen[bytes]]
) -> None:
    class GivenUp(Exception):
        pass

    def check() -> None:
        raise GivenUp

    with pytest.raises(GivenUp):
        build(desk, tmp_path / "apart" / "private.sqlite", check)
    assert [child.poll() is not None for child in children] == [True]


def test_a_build_whose_starter_is_gone_ends_by_itself(desk: Desk, tmp_path: Path) -> None:
    path = tmp_path / "apart" / "private.sqlite"
    arguments = [str(desk.layout.state_database), str(path), VAULT_ID, PRIVATE.key]
    child = subprocess.Popen(
        python_child.command(index_builder.__name__, *arguments),
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        env=python_child.environment(),
    )
    assert child.stdout is not None
    child.stdout.close()
    assert child.wait(60) != 0
    index = opened_index(desk, path)
    try:
        assert 0 < index.position() < desk.partition().catalogue.change
    finally:
        index.close()


def test_without_an_interpreter_to_start_nothing_is_built(
    desk: Desk, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "executable", "")
    assert not build(desk, tmp_path / "apart" / "private.sqlite")

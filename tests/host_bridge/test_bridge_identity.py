"""The folders and files of a store are the ones that were opened, before and after each query.

stores-and-access.md (Storage layout, Limits).
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from messages.errors import DatabaseOlderThanVault, KnowledgeError, ManifestMissing, StoreUnavailable
from messages.json_types import JsonObject, JsonValue
from messages.vocabulary import PRIVATE
from storage import faults
from storage.layout import StoreLayout
from tests.kit.store import (
    GROUP,
    GROUP_PARTITION,
    failure,
    only_store,
    open_bridge,
    remember,
    remembering,
    request_id,
    total,
)


def link_folder(layout: StoreLayout, aside: Path) -> None:
    layout.root.rename(aside)
    layout.root.symlink_to(aside)


def link_vault(layout: StoreLayout, aside: Path) -> None:
    layout.vault.rename(aside)
    layout.vault.symlink_to(aside)


def link_private(layout: StoreLayout, aside: Path) -> None:
    private = layout.partition(PRIVATE)
    private.rename(aside)
    private.symlink_to(aside)


def link_database(layout: StoreLayout, aside: Path) -> None:
    layout.state_database.rename(aside)
    layout.state_database.symlink_to(aside)


def second_name_of_the_database(layout: StoreLayout, aside: Path) -> None:
    aside.hardlink_to(layout.state_database)


def link_manifest(layout: StoreLayout, aside: Path) -> None:
    layout.manifest.rename(aside)
    layout.manifest.symlink_to(aside)


def second_name_of_the_manifest(layout: StoreLayout, aside: Path) -> None:
    aside.hardlink_to(layout.manifest)


LINKS = [
    link_folder,
    link_vault,
    link_private,
    link_database,
    second_name_of_the_database,
    link_manifest,
    second_name_of_the_manifest,
]


@pytest.mark.parametrize("link", LINKS)
def test_nothing_of_a_store_is_opened_through_a_link(
    tmp_path: Path, link: Callable[[StoreLayout, Path], None]
) -> None:
    state = tmp_path / "state"
    with open_bridge(state) as bridge:
        remember(bridge, "A fact.", 1)
    layout = only_store(state)
    link(layout, tmp_path / "aside")
    with open_bridge(state) as bridge:
        for _ in range(2):
            assert isinstance(failure(bridge, "records", {}), StoreUnavailable | ManifestMissing)
            error = failure(bridge, "remember", {**remembering("Another."), "requestId": request_id(2)})
            assert isinstance(error, StoreUnavailable | ManifestMissing)


SWAPS = [("vault", StoreUnavailable), ("vault/private", StoreUnavailable), ("vault/vault.json", DatabaseOlderThanVault)]


@pytest.mark.parametrize(("part", "expected"), SWAPS)
def test_identity_and_manifest_are_checked_after_each_query_too(
    tmp_path: Path, part: str, expected: type[KnowledgeError]
) -> None:
    with open_bridge(tmp_path) as bridge:
        remember(bridge, "A fact.", 1)
        assert total(bridge) == 1
        layout = only_store(tmp_path)
        path, aside = layout.root / part, layout.root / "aside"
        looked = swapped = False

        def swap(point: str) -> None:
            """Once the look before the query is over: at its first statement on the catalogue."""
            nonlocal looked, swapped
            looked |= point == "watch.identity.after"
            if looked and not swapped and point == "state.statement":
                swapped = True
                path.rename(aside)
                if part.endswith(".json"):
                    found = json.loads(aside.read_text())
                    path.write_text(json.dumps({**found, "generation": found["generation"] + 1}))
                else:
                    shutil.copytree(aside, path)

        with faults.installed(swap):
            assert type(failure(bridge, "records", {})) is expected
        assert swapped
        assert type(failure(bridge, "records", {})) is expected
        path.unlink() if path.is_file() else shutil.rmtree(path)
        aside.rename(path)
        assert total(bridge) == 1


def test_the_identity_of_a_folder_is_taken_at_the_opening_and_never_kept(tmp_path: Path) -> None:
    """A store that was copied, restored or unpacked has other inodes, and is the same store."""
    state, restored = tmp_path / "state", tmp_path / "restored"
    with open_bridge(state) as bridge:
        remember(bridge, "A fact.", 1)
    shutil.copytree(state, restored)
    shutil.rmtree(state)
    with open_bridge(restored) as bridge:
        assert total(bridge) == 1
        remember(bridge, "Another.", 2)
        assert total(bridge) == 2


def test_a_conversations_folder_that_is_swapped_during_a_query_fails_it_and_the_next_one_looks_anew(
    tmp_path: Path,
) -> None:
    with open_bridge(tmp_path) as bridge:
        remember(bridge, "Ours.", 1, GROUP)
        path = only_store(tmp_path).partition(GROUP_PARTITION)
        aside = path.with_name("aside")
        looked = swapped = False

        def swap(point: str) -> None:
            nonlocal looked, swapped
            looked |= point == "watch.root.after"  # the query has opened the folder
            if looked and not swapped and point == "state.statement":
                swapped = True
                path.rename(aside)
                shutil.copytree(aside, path)

        with faults.installed(swap):
            assert isinstance(failure(bridge, "records", {}, GROUP), StoreUnavailable)
        assert swapped
        assert len(items_of_list(bridge.call("knowledge_records", {}, GROUP))) == 1


def items_of_list(response: JsonObject) -> list[JsonValue]:
    found = response["records"]
    assert isinstance(found, list)
    return found

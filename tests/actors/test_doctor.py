"""The doctor on the real runtime, and a lost registry made anew (stores-and-access.md, Storage layout)."""

from __future__ import annotations

import shutil
import uuid
from collections.abc import Iterator
from pathlib import Path

import apsw
import pytest

from host_bridge.bridge import KnowledgeBridge
from messages.errors import DuplicateIdentity, InvalidArgument, KnowledgeError, NotFound, StoreUnavailable
from messages.json_types import JsonObject, JsonValue
from storage.layout import Layout, StoreLayout
from storage.registry import FORMAT
from tests.actors.test_access import CONFIGURATION, MAIN, RESEARCH, ask, refused, remember, texts, vault_of
from tests.actors.test_operators import listed
from tests.kit.store import stores


@pytest.fixture
def state_dir(tmp_path: Path) -> Path:
    place = tmp_path / "state"
    place.mkdir()
    (place / "knowledge.yaml").write_text(CONFIGURATION)
    return place


@pytest.fixture
def lost(state_dir: Path) -> Iterator[tuple[KnowledgeBridge, list[str]]]:
    """A runtime whose registry is gone, and the stores of main and research."""
    with KnowledgeBridge(state_dir) as bridge:
        remember(bridge, "Main's.")
        remember(bridge, "Research's.", RESEARCH)
        vaults = [vault_of(bridge, MAIN), vault_of(bridge, RESEARCH)]
    for path in Layout(state_dir).root.glob("registry.sqlite*"):
        path.unlink()
    with KnowledgeBridge(state_dir) as bridge:
        yield bridge, vaults


def codes(bridge: KnowledgeBridge) -> list[JsonValue]:
    report = ask(bridge, "operator.doctor")
    found = [row["code"] for row in listed(report["findings"])]
    assert report["healthy"] == (not found)
    return found


def test_a_whole_state_directory_is_healthy_and_looking_at_an_empty_one_creates_no_store(state_dir: Path) -> None:
    with KnowledgeBridge(state_dir) as bridge:
        assert codes(bridge) == []
        assert stores(state_dir) == []
        vault_of(bridge, MAIN)
        assert codes(bridge) == []


def test_copies_strangers_and_agents_in_two_stores_are_found(state_dir: Path) -> None:
    with KnowledgeBridge(state_dir) as bridge:
        vault_of(bridge, MAIN)
        (store,) = stores(state_dir)
        shutil.copytree(store, store.with_name("copy"))
        store.with_name("other").mkdir()
        twice = "stores: {a: {agents: [main]}, b: {agents: [main]}}\n"
        (state_dir / "knowledge.yaml").write_text(CONFIGURATION + twice)
        ask(bridge, "access.stores.list")
        assert codes(bridge) == ["duplicate_identity", "stranger", "store_ambiguous"]
        listing = sorted(path.name for path in store.parent.iterdir())
        assert listing == sorted([store.name, "copy", "other"])


def test_a_rebuilt_registry_serves_at_once_and_every_agent_has_its_store(
    lost: tuple[KnowledgeBridge, list[str]],
) -> None:
    bridge, (main, research) = lost
    with pytest.raises(StoreUnavailable, match="knowledge doctor"):
        texts(bridge)
    report = ask(bridge, "operator.doctor")
    found = {row["vaultId"]: row["writers"] for row in listed(report["found"])}
    assert found == {main: ["main"], research: ["research"]}
    wanted: list[JsonValue] = [{"store": main, "agent": "main"}, {"store": research, "name": "lab"}]
    made = ask(bridge, "operator.rebuildRegistry", stores=wanted)
    assert sorted(map(str, listed_texts(made["stores"]))) == sorted([main, research])
    assert texts(bridge) == {"Main's."}
    ask(bridge, "access.stores.join", agent="research", name="lab")
    assert texts(bridge, RESEARCH) == {"Research's."}
    assert codes(bridge) == []
    rows = listed(ask(bridge, "access.audit")["rows"])
    assert [row["action"] for row in rows] == ["store.join", "registry.rebuild"]


def listed_texts(value: JsonValue) -> list[JsonValue]:
    assert isinstance(value, list)
    return value


def test_a_store_that_nobody_has_after_a_rebuild_is_given_to_an_agent_by_joining_it(
    lost: tuple[KnowledgeBridge, list[str]],
) -> None:
    bridge, (main, research) = lost
    wanted: list[JsonValue] = [{"store": main, "agent": "main"}, {"store": research}]
    ask(bridge, "operator.rebuildRegistry", stores=wanted)
    ask(bridge, "access.stores.join", agent="research", name="lab", store=research)
    assert texts(bridge, RESEARCH) == {"Research's."}


def test_a_store_that_lies_elsewhere_is_named_by_its_place(state_dir: Path, tmp_path: Path) -> None:
    with KnowledgeBridge(state_dir) as bridge:
        remember(bridge, "Elsewhere.")
        vault = vault_of(bridge, MAIN)
        ask(bridge, "operator.relocateStore", store=vault, path=str(tmp_path / "elsewhere"))
    for path in Layout(state_dir).root.glob("registry.sqlite*"):
        path.unlink()
    with KnowledgeBridge(state_dir) as bridge:
        wanted: list[JsonValue] = [{"store": vault, "agent": "main"}]
        assert isinstance(refused(bridge, "operator.rebuildRegistry", stores=wanted), NotFound)
        ask(bridge, "operator.rebuildRegistry", stores=wanted, places=[str(tmp_path / "elsewhere")])
        assert texts(bridge) == {"Elsewhere."}
        assert [path.name for path in Layout(state_dir).stores.iterdir()] == []


def rebuilding(*stores: dict[str, str]) -> JsonObject:
    return {"stores": [{**store} for store in stores]}


def test_a_rebuild_that_is_not_exact_is_refused_and_leaves_everything_as_it_was(
    lost: tuple[KnowledgeBridge, list[str]],
) -> None:
    bridge, (main, research) = lost
    unknown = str(uuid.uuid4())
    cases: list[tuple[JsonObject, type[KnowledgeError], str]] = [
        (rebuilding(), InvalidArgument, "left_out"),
        (rebuilding({"store": main, "agent": "main"}), InvalidArgument, "left_out"),
        (rebuilding({"store": main}, {"store": main}, {"store": research}), InvalidArgument, "duplicate"),
        (rebuilding({"store": main, "agent": "a"}, {"store": research, "agent": "a"}), InvalidArgument, "duplicate"),
        (rebuilding({"store": main, "agent": "a", "name": "b"}, {"store": research}), InvalidArgument, "conflict"),
        (rebuilding({"store": main}, {"store": research}, {"store": unknown}), NotFound, ""),
    ]
    for given, error, reason in cases:
        found = refused(bridge, "operator.rebuildRegistry", given=given)
        assert isinstance(found, error)
        assert found.fields.get("reason", "") == reason
    assert not Layout(bridge.state_dir).registry.exists()


def test_a_copy_of_a_store_beside_it_stops_a_rebuild_until_it_is_moved_away(
    lost: tuple[KnowledgeBridge, list[str]],
) -> None:
    bridge, vaults = lost
    (store, _) = stores(bridge.state_dir)
    shutil.copytree(store, store.with_name("copy"))
    given = rebuilding(*({"store": vault} for vault in vaults))
    assert isinstance(refused(bridge, "operator.rebuildRegistry", given=given), DuplicateIdentity)
    shutil.rmtree(store.with_name("copy"))
    ask(bridge, "operator.rebuildRegistry", given=given)


def test_a_registry_that_is_whole_or_of_a_newer_format_is_never_made_anew(state_dir: Path) -> None:
    with KnowledgeBridge(state_dir) as bridge:
        vault = vault_of(bridge, MAIN)
        found = refused(bridge, "operator.rebuildRegistry", given=rebuilding({"store": vault, "agent": "main"}))
        assert found.fields["reason"] == "whole"
    registry = Layout(state_dir).registry
    connection = apsw.Connection(str(registry))
    connection.execute(f"PRAGMA user_version = {FORMAT + 1}")
    connection.close()
    before = registry.read_bytes()
    with KnowledgeBridge(state_dir) as bridge:
        assert codes(bridge) == ["newer_format"]
        found = refused(bridge, "operator.rebuildRegistry", given=rebuilding({"store": vault, "agent": "main"}))
        assert found.fields["reason"] == "newer_format"
    assert registry.read_bytes() == before


def test_a_store_without_its_manifest_is_entered_and_stays_unavailable_until_a_person_mends_it(
    lost: tuple[KnowledgeBridge, list[str]],
) -> None:
    bridge, (main, research) = lost
    layout = StoreLayout(Layout(bridge.state_dir).stores / main)
    layout.manifest.unlink()
    ask(bridge, "operator.rebuildRegistry", given=rebuilding({"store": main, "agent": "main"}, {"store": research}))
    with pytest.raises(KnowledgeError) as error:
        texts(bridge)
    assert error.value.code == "manifest_missing"
    assert not layout.manifest.exists()


def test_a_registry_that_is_lost_while_it_is_used_is_refused_and_serves_again_when_it_is_back(
    state_dir: Path, tmp_path: Path
) -> None:
    def reason() -> object:
        try:
            texts(bridge)
        except KnowledgeError as error:
            return error.fields.get("reason")
        return None

    with KnowledgeBridge(state_dir) as bridge:
        remember(bridge, "Kept.")
        files = sorted(Layout(state_dir).root.glob("registry.sqlite*"))
        for path in files:
            path.rename(tmp_path / path.name)
        assert codes(bridge) == ["registry_missing"]
        assert reason() == "registry_missing"
        with pytest.raises(KnowledgeError):
            vault_of(bridge, RESEARCH)
        assert len(stores(state_dir)) == 1
        assert not Layout(state_dir).registry.exists()
        for path in files:
            (tmp_path / path.name).rename(path)
        assert codes(bridge) == []
        assert texts(bridge) == {"Kept."}
        vault_of(bridge, RESEARCH)
        assert len(stores(state_dir)) == 2

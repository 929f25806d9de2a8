"""A thousand stores in one state directory cost what is used of them (DESIGN.md, The tree; decisions.md section 1)."""

from __future__ import annotations

import json
import os
import threading
import uuid
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from host_bridge.bridge import KnowledgeBridge
from messages.audience import OwnerPrivate
from messages.operator import LOCAL_OPERATOR, parse_operator_call
from storage import faults
from storage.layout import Layout
from storage.registry import Isolated
from storage.registry_audit import By
from storage.registry_recovery import rebuild
from storage.session import StoreSession
from tests.actors.test_operators import answer, listed
from tests.kit.leaks import nothing_left

MANY = 1_000
USED = 5
LIVE = 2
WATCHES = 5
"""Of a store whose folders are empty: the vault, its partition, and what Git adds."""
RENEWALS = 2


@pytest.fixture(autouse=True)
def leaks() -> Iterator[None]:
    with nothing_left():
        yield


def state_of(folder: Path, number: int) -> Path:
    """A state directory of that many registered stores, one an agent; the first few can be opened."""
    layout = Layout(folder)
    layout.root.mkdir(parents=True)
    vault_ids = [str(uuid.UUID(int=index + 1, version=4)) for index in range(number)]
    for index, vault_id in enumerate(vault_ids):
        store = layout.new_store(vault_id)
        if index < USED:
            StoreSession.create(store, vault_id)
        else:
            store.root.mkdir(parents=True)
    stores = [(vault_id, layout.new_store(vault_id).root, Isolated(f"a{n}")) for n, vault_id in enumerate(vault_ids)]
    rebuild(layout, stores, By("test", "test", 1))
    agents = [{"id": f"a{n}"} for n in range(number)]
    configuration = {"agents": {"list": agents}, "runtime": {"maxLiveStores": LIVE}}
    layout.configuration.write_text(json.dumps(configuration))
    return folder


@pytest.fixture(scope="module")
def thousand(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return state_of(tmp_path_factory.mktemp("thousand") / "state", MANY)


def watches() -> int:
    """The inotify watches of this process."""
    found = 0
    for name in os.listdir("/proc/self/fdinfo"):
        try:
            text = Path(f"/proc/self/fdinfo/{name}").read_text()
        except OSError:
            continue
        found += text.count("inotify wd:")
    return found


def live(bridge: KnowledgeBridge) -> int:
    stores = bridge.health()["stores"]
    assert isinstance(stores, list)
    return len(stores)


def lanes() -> list[str]:
    return [thread.name for thread in threading.enumerate() if thread.name.endswith("/lane")]


def test_a_store_that_is_not_in_use_has_no_thread_no_watch_and_no_open_file(thousand: Path) -> None:
    threads, watched, files = threading.active_count(), watches(), len(os.listdir("/proc/self/fd"))
    with KnowledgeBridge(thousand) as bridge:
        answer(bridge.operate(parse_operator_call("access.stores.list", {}, peer=LOCAL_OPERATOR)))
        idle = threading.active_count() - threads
        assert live(bridge) == 0
        assert watches() == watched
        assert idle < 10, "the runtime's own"
        assert len(os.listdir("/proc/self/fd")) - files < 20
        bridge.call("knowledge_status", {}, OwnerPrivate("a0"))
        assert live(bridge) == 1
        assert watched < watches() <= watched + WATCHES
        assert len(lanes()) == 1


def test_at_most_max_live_stores_are_open_the_least_recently_used_is_closed_first(thousand: Path) -> None:
    watched = watches()
    with KnowledgeBridge(thousand) as bridge:
        most = 0
        for agent in (0, 1, 2, 3, 4, 0, 1):
            bridge.call("knowledge_status", {}, OwnerPrivate(f"a{agent}"))
            most = max(most, live(bridge))
            assert watches() <= watched + LIVE * WATCHES
            assert len(lanes()) <= LIVE
        assert most == LIVE
        stores = bridge.health()["stores"]
        assert stores == [str(uuid.UUID(int=index + 1, version=4)) for index in (0, 1)]
    assert watches() == watched


def effects(folder: Path) -> tuple[Counter[str], Counter[str]]:
    """What a start costs, and what the runtime does afterwards while nobody asks it anything."""
    counted: Counter[str] = Counter()
    renewed = threading.Semaphore(0)

    def count(point: str) -> None:
        # System memory has no stores, and looks whether it has a file when its lane gets a turn.
        if not point.endswith(".after") and not point.startswith("system_memory."):
            counted[point] += 1

    with faults.installed(count), KnowledgeBridge(folder) as bridge:
        authority = bridge._runtime._authority
        gate = bridge._runtime.gate
        publish = gate.publish

        def seen(view: object) -> None:
            publish(view)  # type: ignore[arg-type] # passed through as it came
            renewed.release()

        gate.publish = seen  # type: ignore[method-assign] # to be told of each renewal
        assert renewed.acquire(timeout=20)
        start = counted.copy()
        for _ in range(RENEWALS):
            assert renewed.acquire(timeout=20)
        assert authority.health().crashes == 0
        return start, counted - start


def test_starting_and_idling_run_as_many_statements_for_a_thousand_stores_as_for_ten(
    thousand: Path, tmp_path: Path
) -> None:
    small, large = effects(state_of(tmp_path / "state", 10)), effects(thousand)
    assert large == small
    assert small[1]["registry.statement"] == 0, "nothing is read again while nothing changes"


def test_the_inventory_of_a_thousand_stores_is_read_with_the_statements_of_one(thousand: Path, tmp_path: Path) -> None:
    counts = []
    for folder, number in ((state_of(tmp_path / "state", 10), 10), (thousand, MANY)):
        counted: Counter[str] = Counter()
        with KnowledgeBridge(folder) as bridge:
            call = parse_operator_call("access.stores.list", {}, peer=LOCAL_OPERATOR)
            answer(bridge.operate(call))
            with faults.installed(lambda point, found=counted: found.update([point])):  # type: ignore[misc] # a lambda
                shown = answer(bridge.operate(parse_operator_call("access.stores.list", {}, peer=LOCAL_OPERATOR)))
            assert len(listed(shown["stores"])) == number
        counts.append(counted["registry.statement"])
    assert counts[0] == counts[1] < 5

"""``KnowledgeMemory`` as a program has it: threads, processes, forks, hooks, errors, and its end."""

from __future__ import annotations

import subprocess
import sys
import threading
from pathlib import Path

import pytest

from host_bridge import KnowledgeMemory
from messages.errors import Stopping
from storage.agent_memory import KnowledgeEntry
from tests.kit.blob import Blob
from tests.kit.leaks import nothing_left

pytestmark = pytest.mark.usefixtures("nothing_left_behind")


@pytest.fixture
def nothing_left_behind():  # type: ignore[no-untyped-def]
    with nothing_left():
        yield


def test_the_context_has_persistent_facts_and_recent_notes(tmp_path: Path) -> None:
    with KnowledgeMemory(storage_dir=tmp_path) as memory:
        assert memory.build_context() == ""
        memory.remember("Preferred language: Python", category="preferences", persistent=True)
        memory.remember("Working on Project Atlas today", category="context")
        head, _, recent = memory.build_context().partition("\n\n")
    assert head == "[Long-term Memory]\n## preferences\n- Preferred language: Python"
    assert recent.startswith("[Recent Memory]\n- [")
    assert recent.endswith("] (context) Working on Project Atlas today")


def test_threads_of_one_memory_lose_nothing(tmp_path: Path) -> None:
    with KnowledgeMemory(storage_dir=tmp_path) as memory:
        threads = [
            threading.Thread(target=lambda n=n: [memory.remember(f"{n}-{i}", persistent=i == 0) for i in range(20)])
            for n in range(4)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert len({entry.content for entry in memory.live_entries()}) == 80
        assert len(memory.get_persistent_facts()["general"]) == 4


def test_processes_on_one_directory_lose_nothing(tmp_path: Path) -> None:
    program = (
        "import sys; from host_bridge import KnowledgeMemory\n"
        "memory = KnowledgeMemory(storage_dir=sys.argv[1])\n"
        "for number in range(15): memory.remember(f'{sys.argv[2]}-{number}', persistent=number % 5 == 0)\n"
    )
    run = [subprocess.Popen([sys.executable, "-c", program, str(tmp_path), name]) for name in "abcd"]
    assert [process.wait(60) for process in run] == [0, 0, 0, 0]
    with KnowledgeMemory(storage_dir=tmp_path) as memory:
        assert len({entry.content for entry in memory.live_entries()}) == 60
        assert len(memory.get_persistent_facts()["general"]) == 12
        assert len(memory.get_recent_entries(limit=1_000)) == 60


def test_a_forked_child_goes_on_with_threads_of_its_own(tmp_path: Path) -> None:
    program = (
        "import os, sys; from host_bridge import KnowledgeMemory\n"
        "memory = KnowledgeMemory(storage_dir=sys.argv[1]); memory.remember('parent')\n"
        "child = os.fork()\n"
        "memory.remember('both' if child else 'child')\n"
        "if not child: memory.close(); os._exit(0)\n"
        "sys.exit(os.waitpid(child, 0)[1])\n"
    )
    assert subprocess.run([sys.executable, "-c", program, str(tmp_path)], timeout=60).returncode == 0
    with KnowledgeMemory(storage_dir=tmp_path) as memory:
        assert sorted(entry.content for entry in memory.live_entries()) == ["both", "child", "parent"]


@pytest.mark.parametrize("end", ["memory.close(); os._exit(0)", "del memory; os._exit(0)", "sys.exit(0)"])
def test_a_forked_child_that_asked_nothing_ends(tmp_path: Path, end: str) -> None:
    program = (
        "import os, sys; from host_bridge import KnowledgeMemory\n"
        "memory = KnowledgeMemory(storage_dir=sys.argv[1]); memory.remember('parent')\n"
        "child = os.fork()\n"
        f"if not child:\n    {end}\n"
        "memory.remember('parent still')\n"
        "sys.exit(os.waitpid(child, 0)[1])\n"
    )
    assert subprocess.run([sys.executable, "-c", program, str(tmp_path)], timeout=20).returncode == 0


def test_a_closed_memory_refuses_in_a_forked_child_too(tmp_path: Path) -> None:
    program = (
        "import os, sys; from host_bridge import KnowledgeMemory; from messages.errors import Stopping\n"
        "memory = KnowledgeMemory(storage_dir=sys.argv[1]); memory.close()\n"
        "child = os.fork()\n"
        "if not child:\n"
        "    try: memory.remember('x')\n"
        "    except Stopping: os._exit(0)\n"
        "    os._exit(1)\n"
        "sys.exit(os.waitpid(child, 0)[1])\n"
    )
    assert subprocess.run([sys.executable, "-c", program, str(tmp_path)], timeout=20).returncode == 0


def test_a_program_that_never_closes_it_ends(tmp_path: Path) -> None:
    program = "import sys; from host_bridge import KnowledgeMemory; KnowledgeMemory(sys.argv[1]).remember('x')"
    assert subprocess.run([sys.executable, "-c", program, str(tmp_path)], timeout=60).returncode == 0


def test_a_closed_memory_refuses(tmp_path: Path) -> None:
    memory = KnowledgeMemory(storage_dir=tmp_path)
    memory.close()
    memory.close()
    with pytest.raises(Stopping):
        memory.remember("x")


def test_hooks_run_in_order_and_none_rejects_before_anything_is_written(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("DEBUG")
    seen: list[str] = []

    def shout(text: str) -> str:
        seen.append(text)
        return text.upper()

    with KnowledgeMemory(storage_dir=tmp_path, pre_save=[shout, lambda text: None if "NO" in text else text]) as memory:
        assert memory.remember("yes", persistent=True)
        assert memory.remember("no", persistent=True) == ""
        assert memory.get_persistent_facts() == {"general": ["YES"]}
        assert memory.store.count() == 1
    assert seen == ["yes", "no"]
    assert "pre_save" in caplog.text


def test_an_exception_of_a_hook_comes_out_and_nothing_is_written(tmp_path: Path) -> None:
    def broken(text: str) -> str:
        raise KeyError("mine")

    with KnowledgeMemory(storage_dir=tmp_path, pre_save=broken) as memory:
        with pytest.raises(KeyError, match="mine"):
            memory.remember("x")
        assert memory.store.count() == 0


def test_near_duplicates_are_rejected_within_their_window(tmp_path: Path) -> None:
    with KnowledgeMemory(storage_dir=tmp_path, dedupe=True, dedupe_window=1) as memory:
        assert memory.remember("The user prefers dark mode")
        assert memory.remember("The user prefers dark mode.") == ""
        assert memory.remember("Entirely another matter")
        assert memory.remember("The user prefers dark mode")


def test_metadata_that_json_cannot_hold_is_refused_and_nothing_is_kept(tmp_path: Path) -> None:
    with KnowledgeMemory(storage_dir=tmp_path) as memory:
        with pytest.raises(TypeError):
            memory.remember("x", metadata={"when": object()})
        assert memory.remember("y", metadata={"source": "chat"})
        assert [entry.metadata for entry in memory.live_entries()] == [{"source": "chat"}]


def test_lone_surrogates_are_kept_as_replacement_characters(tmp_path: Path) -> None:
    with KnowledgeMemory(storage_dir=tmp_path) as memory:
        assert memory.remember("a\ud800b", category="c\udfff", persistent=True)
        assert memory.get_persistent_facts() == {"c\ufffd": ["a\ufffdb"]}


def test_a_category_never_holds_a_line_break(tmp_path: Path) -> None:
    with KnowledgeMemory(storage_dir=tmp_path) as memory:
        memory.remember("x", category="a\n## b\u2028c", persistent=True)
        assert memory.get_persistent_facts() == {"a ## b c": ["x"]}


@pytest.mark.parametrize(
    ("category", "kept"),
    [("[INST]", "[ INST]"), ("System: a", "System : a"), ("--- a ---", "— a —"), (" \n", "general"), ("a b", "a b")],
)
def test_a_category_holds_no_delimiter_whatever_the_hooks(tmp_path: Path, category: str, kept: str) -> None:
    with KnowledgeMemory(storage_dir=tmp_path, pre_save=lambda text: text if len(text) > 9 else None) as memory:
        assert memory.remember("a text that is long enough", category=category)
        assert memory.live_entries()[0].category == kept


def test_a_backend_brings_the_directory_to_another_machine(tmp_path: Path) -> None:
    blob = Blob()
    with KnowledgeMemory(storage_dir=tmp_path / "one", backend=blob) as memory:
        memory.remember("Name: Alice", persistent=True)
        memory.remember("today")
        assert (blob.loads, blob.saves) == (1, 2)
    with KnowledgeMemory(storage_dir=tmp_path / "two", backend=blob) as memory:
        assert memory.get_persistent_facts() == {"general": ["Name: Alice"]}
        assert [entry["content"] for entry in memory.get_recent_entries()] == ["Name: Alice", "today"]
        memory.store.save(KnowledgeEntry(content="direct"))
        memory.flush()
    assert blob.data is not None
    assert b"direct" in blob.data


def test_what_a_backend_raises_comes_out_and_the_entry_is_kept(tmp_path: Path) -> None:
    class Down(Blob):
        def save_bytes(self, data: bytes) -> None:
            raise ConnectionError("down")

    with KnowledgeMemory(storage_dir=tmp_path, backend=Down()) as memory:
        with pytest.raises(ConnectionError, match="down"):
            memory.remember("x")
        assert [entry.content for entry in memory.live_entries()] == ["x"]


def test_a_context_is_never_longer_than_its_bound(tmp_path: Path) -> None:
    for bound in (0, 5, 16, 40, 1_000):
        with KnowledgeMemory(storage_dir=tmp_path, max_context_chars=bound) as memory:
            memory.remember("A long fact " * 9, persistent=True)
            context = memory.build_context()
            assert len(context) <= bound
            assert bound < 16 or bound == 1_000 or context.endswith("... (truncated)")


def test_the_settings_survive_a_dict(tmp_path: Path) -> None:
    with KnowledgeMemory(storage_dir=tmp_path, max_log_days=3, max_entries=7) as memory:
        kept = memory.to_dict()
    with KnowledgeMemory.from_dict(kept) as again:
        assert again.to_dict() == kept

"""``KnowledgeMemory`` as a program has it: threads, processes, forks, hooks, errors, and its end."""

from __future__ import annotations

import subprocess
import sys
import threading
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

from host_bridge import KnowledgeMemory, make_recall_tool
from messages.errors import InvalidArgument, Stopping
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


# --- arguments that are none ----------------------------------------------------------------------------


def nested(depth: int) -> dict[str, Any]:
    value: dict[str, Any] = {}
    for _ in range(depth - 1):
        value = {"a": value}
    return value


@pytest.mark.parametrize(
    ("name", "value"),
    [("content", None), ("content", b"x"), ("category", 5), ("category", None), ("persistent", "false"),
     ("importance", "0.5"), ("ttl_days", 0.5)],
)  # fmt: skip
def test_a_field_of_a_wrong_type_is_refused_by_its_name_and_nothing_is_kept(
    tmp_path: Path, name: str, value: object
) -> None:
    with KnowledgeMemory(tmp_path) as memory:
        arguments: dict[str, Any] = {"content": "x", name: value}
        with pytest.raises(InvalidArgument) as refused:
            memory.remember(**arguments)
        assert refused.value.fields["field"] == name
        assert memory.live_entries() == []


@pytest.mark.parametrize("metadata", [{"a": float("nan")}, {"a": {1}}, nested(900), nested(100_000), nested(65)])
def test_metadata_that_no_store_could_read_again_is_refused_and_nothing_is_kept(
    tmp_path: Path, metadata: dict[str, Any]
) -> None:
    with KnowledgeMemory(tmp_path) as memory:
        with pytest.raises((TypeError, ValueError)):
            memory.remember("x", metadata=metadata)
        memory.remember("y", metadata=nested(64))
        assert [(entry.content, entry.metadata) for entry in memory.live_entries()] == [("y", nested(64))]


@pytest.mark.parametrize(
    "name", ["max_log_days", "max_context_entries", "recent_days", "dedupe_window", "max_context_chars", "max_entries"]
)
@pytest.mark.parametrize("value", ["5", 5.5, True])
def test_a_bound_that_is_no_whole_number_is_refused_before_anything_is_made(
    tmp_path: Path, name: str, value: object
) -> None:
    bounds: dict[str, Any] = {name: value}
    with pytest.raises(InvalidArgument) as refused:
        KnowledgeMemory(tmp_path / "memory", **bounds)
    assert refused.value.fields["field"] == name
    assert not (tmp_path / "memory").exists()


@pytest.mark.parametrize("value", ["5", 5.5])
def test_a_number_that_is_none_is_refused_and_the_memory_goes_on(tmp_path: Path, value: Any) -> None:
    with KnowledgeMemory(tmp_path) as memory:
        for ask in (
            lambda: memory.get_recent_entries(days=value), lambda: memory.get_recent_entries(limit=value),
            lambda: memory.prune_logs(value), lambda: memory.prune_old_logs(value),
            lambda: memory.get_recent_logs(value), lambda: memory.live_entries(value),
        ):  # fmt: skip
            with pytest.raises(InvalidArgument):
                ask()
        assert memory.remember("x") != ""


@pytest.mark.parametrize("bound", [10**30, 0, -1])
def test_bounds_of_every_size_are_kept(tmp_path: Path, bound: int) -> None:
    with KnowledgeMemory(tmp_path, max_context_entries=bound) as memory:
        memory.remember("x")
        there = int(bound > 0)
        assert len(memory.get_recent_entries(limit=bound)) == len(memory.live_entries(bound)) == there
        assert ("x" in memory.build_context()) == bool(there)


@pytest.mark.parametrize("answer", [5, b"x", [], False])
def test_a_hook_that_answers_no_text_is_an_error_and_nothing_is_kept(tmp_path: Path, answer: Any) -> None:
    with KnowledgeMemory(tmp_path, pre_save=lambda _: answer) as memory:
        with pytest.raises(TypeError, match="pre_save"):
            memory.remember("x")
        assert memory.live_entries() == []


def test_a_clock_without_a_zone_tells_utc(tmp_path: Path) -> None:
    with KnowledgeMemory(tmp_path, now=lambda: datetime.fromisoformat("2026-05-01T12:00:00")) as memory:
        memory.remember("a", ttl_days=1, persistent=True)
        memory.remember("b", ttl_days=1)
        assert [one["timestamp"] for one in memory.get_recent_entries()] == ["2026-05-01T12:00:00Z"] * 2
        assert memory.build_context().endswith("[Recent Memory]\n- [2026-05-01 12:00] (general) b")


@pytest.mark.parametrize(
    "fields",
    ['"content": "\\ud800"', '"content": "x", "category": "\\ud800"', '"content": "x", "id": "\\ud800"',
     '"content": "x", "metadata": ' + '{"a":' * 600 + "1" + "}" * 600],
)  # fmt: skip
def test_a_line_that_no_store_would_have_written_is_kept_and_passed_over(tmp_path: Path, fields: str) -> None:
    times = '"created_at": "2026-12-01T00:00:00Z", "updated_at": "2026-12-01T00:00:00Z"'
    line = f'{{"id": "q", "persistent": true, {fields}, {times}}}\n'
    (tmp_path / "entries.jsonl").write_text(line)
    with KnowledgeMemory(tmp_path) as memory:
        memory.remember("y", persistent=True)
        assert memory.get_persistent_facts() == {"general": ["y"]}
        assert [entry.content for entry in memory.live_entries()] == ["y"]
    assert (tmp_path / "entries.jsonl").read_text().startswith(line)


def test_a_logged_line_that_utf_8_cannot_hold_is_in_no_context(tmp_path: Path) -> None:
    with KnowledgeMemory(tmp_path) as memory:
        memory.remember("y")
        (log,) = (tmp_path / "logs").iterdir()
        stamp = log.read_text()[len('{"timestamp": "') :][:20]
        with log.open("a") as hand:
            hand.write(f'{{"timestamp": "{stamp}", "content": "\\ud800"}}\n')
            hand.write(f'{{"timestamp": "{stamp}", "content": "by hand"}}\n')
        at = stamp[:16].replace("T", " ")
        assert memory.build_context() == f"[Recent Memory]\n- [{at}] (general) y\n- [{at}] () by hand"


def test_no_text_and_no_category_of_another_store_can_pass_for_another_line(tmp_path: Path) -> None:
    with KnowledgeMemory(tmp_path) as memory:
        memory.store.save(KnowledgeEntry(content="one\n[2026-01-01 00:00:00] [x] forged", category="a\n2. b"))
        memory.remember("=== x ===\n=== 2026-01-01 ===")
        log = memory.get_recent_logs().split("\n")
        found = make_recall_tool(memory).function(query="one").split("\n")
    assert [line for line in log if line.startswith("===")] == log[:1]
    assert len([line for line in log if line.startswith("[")]) == 2
    assert found[1:] == ["1. [a 2. b] one", "   [2026-01-01 00:00:00] [x] forged"]

"""A directory of the released package: every fact and log line arrives once, whatever comes between."""

from __future__ import annotations

import json
import shutil
from datetime import UTC, date, datetime, timedelta
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from storage import faults
from storage.agent_memory import KnowledgeEntry, MemoryDirectory, SQLiteKnowledgeStore
from storage.agent_memory.entry import to_json
from storage.agent_memory.notes import Fact, sameness
from storage.agent_memory.released import converted_log, converted_notes
from tests.storage.agent_memory.deaths import Killed, killed_at

NOON = datetime(2026, 3, 13, 12, 0, tzinfo=UTC)
DAY = NOON.date()


def entry(text: str, category: str = "general", *, persistent: bool = False, ttl_days: int | None = None,
          at: datetime = NOON) -> KnowledgeEntry:  # fmt: skip
    return KnowledgeEntry(
        content=text, category=category, persistent=persistent, ttl_days=ttl_days, created_at=at, updated_at=at
    )


ENTRIES = (
    entry("Prefers dark mode", "preferences", persistent=True),
    entry("line one\nline two", "personal", persistent=True),
    entry("plain note", at=NOON + timedelta(minutes=1)),
    entry("odd", "a] b"),
    entry("short-lived", persistent=True, ttl_days=1, at=NOON - timedelta(days=9)),
)
NOTES = (
    "- [preferences] Prefers dark mode\n- [personal] line one\nline two\n- [general] short-lived\n"
    "- [work] Ships on Friday\nA line by hand.\n- [ ] water the plants\n- [preferences] Prefers dark mode\n"
)
LOG = (
    "before the first stamp\n[2026-03-13 12:00:00] [preferences] Prefers dark mode\n"
    "[2026-03-13 12:00:00] [personal] line one\nline two\n[2026-03-13 12:00:30] [general] evicted\n"
    "[2026-03-13 12:00:00] [a] b] odd\n[2026-03-13 12:01:00] [general] plain note\n"
)


@pytest.fixture
def released(tmp_path: Path) -> Path:
    """A directory as the released package leaves it."""
    path = tmp_path / "memory"
    path.mkdir()
    (path / "entries.jsonl").write_text("".join(json.dumps(to_json(one)) + "\n" for one in ENTRIES))
    (path / "MEMORY.md").write_text(NOTES)
    (path / "2026-03-13.log").write_text(LOG)
    (path / "2026-03-04.log").write_text("[2026-03-04 12:00:00] [general] short-lived\n")
    (path / "notes.log").write_text("somebody else's\n")
    return path


def opened(path: Path) -> MemoryDirectory:
    return MemoryDirectory(path, now=lambda: NOON + timedelta(hours=1))


FACTS = [
    Fact("", "[ ] water the plants"),
    Fact("preferences", "Prefers dark mode"),
    Fact("personal", "line one\nline two"),
    Fact("work", "Ships on Friday"),
]
LOGGED = ["Prefers dark mode", "line one\nline two", "odd", "plain note"]


def tree(path: Path) -> dict[str, bytes]:
    return {str(one.relative_to(path)): one.read_bytes() for one in path.rglob("*") if one.is_file()}


def assert_converted(path: Path) -> None:
    memory = opened(path)
    memory.convert()
    assert memory.facts() == FACTS
    assert [line.content for line in memory.recent(date.min, 100)] == LOGGED
    kept = {one.name: one.read_text() for one in (path / "originals").iterdir() if not one.name.endswith(".tmp")}
    assert kept.pop("entries.jsonl").count("\n") == len(ENTRIES)
    assert kept == {"MEMORY.md": NOTES, "2026-03-13.log": LOG,
                    "2026-03-04.log": "[2026-03-04 12:00:00] [general] short-lived\n"}  # fmt: skip
    assert "A line by hand.\n" in (path / "MEMORY.md").read_text()
    assert sorted(one.name for one in path.glob("*.log")) == ["notes.log"]


def test_facts_logs_and_entries_arrive_and_the_originals_are_kept(released: Path) -> None:
    assert opened(released).convert() == 3
    assert_converted(released)


def test_a_second_opening_converts_nothing(released: Path) -> None:
    opened(released).convert()
    opened(released).facts()
    before = tree(released)
    assert opened(released).convert() == 0
    assert tree(released) == before


def test_what_was_evicted_stays_in_the_file_and_out_of_every_context(released: Path) -> None:
    memory = opened(released)
    memory.convert()
    assert "evicted" in (released / "logs" / "2026-03-13.jsonl").read_text()
    assert "evicted" not in [line.content for line in memory.recent(date.min, 100)]


def test_without_entries_every_logged_line_is_shown(released: Path) -> None:
    (released / "entries.jsonl").unlink()
    memory = opened(released)
    memory.convert()
    assert len(memory.recent(date.min, 100)) == 7
    assert Fact("personal", "line one") in memory.facts()


def test_a_process_killed_anywhere_in_a_conversion_loses_and_doubles_nothing(released: Path, tmp_path: Path) -> None:
    names: list[str] = []
    whole = tmp_path / "whole"
    shutil.copytree(released, whole)
    with faults.installed(names.append):
        opened(whole).convert()
    assert len(names) > 40
    for hit in range(1, len(names) + 1):
        path = tmp_path / str(hit)
        shutil.copytree(released, path)
        with faults.installed(killed_at(hit)), pytest.raises(Killed):
            opened(path).convert()
        assert_converted(path)
        shutil.rmtree(path)


def test_a_log_of_ours_on_the_same_day_keeps_its_lines_after_the_converted_ones(released: Path) -> None:
    (released / "2026-03-13.log").rename(released / "aside")
    memory = opened(released)
    memory.convert()
    memory.remember(entry("later", at=NOON + timedelta(minutes=5)))
    (released / "aside").rename(released / "2026-03-13.log")
    opened(released).convert()
    lines = [json.loads(line)["content"] for line in (released / "logs" / "2026-03-13.jsonl").read_bytes().splitlines()]
    assert lines.index("evicted") < lines.index("later")
    shown = [line.content for line in opened(released).recent(date.min, 100)]
    assert sorted(shown) == sorted([*LOGGED, "later"])


def test_another_original_of_the_same_name_is_kept_beside_the_first(released: Path) -> None:
    opened(released).convert()
    (released / "2026-03-13.log").write_text("[2026-03-13 13:00:00] [general] by the old program again\n")
    opened(released).convert()
    assert (released / "originals" / "2026-03-13.log.2").read_text().endswith("again\n")


def test_clearing_forgets_the_originals_too(released: Path) -> None:
    memory = opened(released)
    memory.convert()
    memory.clear_logs()
    assert [one.name for one in (released / "originals").iterdir()] == ["MEMORY.md"]
    memory.clear()
    assert list((released / "originals").iterdir()) == []


@pytest.mark.parametrize(
    "text",
    ["# Agent Memory\n\n## work\n- [x] done\n", "## mine\n- [a] b\n", "Only prose.\n", "", "- plain\n", "- [ ] todo\n"],
)
def test_notes_that_are_not_the_released_packages_are_left_alone(tmp_path: Path, text: str) -> None:
    (tmp_path / "MEMORY.md").write_text(text)
    assert opened(tmp_path).convert() == 0
    assert (tmp_path / "MEMORY.md").read_text() == text


def test_entries_in_a_database_in_the_directory_are_used_where_they_are(tmp_path: Path) -> None:
    SQLiteKnowledgeStore(tmp_path / "knowledge.db").save(entry("in the database", persistent=True))
    (tmp_path / "MEMORY.md").write_text("- [general] in the database\n")
    memory = opened(tmp_path)
    memory.convert()
    assert isinstance(memory.store, SQLiteKnowledgeStore)
    assert memory.facts() == [Fact("general", "in the database")]
    memory.remember(entry("new"))
    assert sorted(one.content for one in opened(tmp_path).live(10)) == ["in the database", "new"]
    assert not (tmp_path / "entries.jsonl").exists()
    memory.close_thread()


@pytest.mark.parametrize("data", [b"", b"no database at all" * 400])
def test_a_file_of_that_name_that_holds_no_entries_is_left_alone(tmp_path: Path, data: bytes) -> None:
    (tmp_path / "knowledge.db").write_bytes(data)
    memory = opened(tmp_path)
    memory.remember(entry("x"))
    assert (tmp_path / "entries.jsonl").exists()
    assert (tmp_path / "knowledge.db").read_bytes() == data


def test_the_longest_text_that_an_entry_explains_is_one_fact() -> None:
    entries = [entry("a", persistent=True), entry("a\nb", persistent=True)]
    assert "- a\n  b\n" in converted_notes("- [general] a\nb\nc\n", entries, NOON)
    assert "\nc\n" in converted_notes("- [general] a\nb\nc\n", entries, NOON)


def test_of_two_equal_texts_each_log_line_gets_the_entry_of_its_time() -> None:
    entries = [entry("tea", at=NOON), entry("tea", at=NOON + timedelta(hours=2))]
    text = "[2026-03-13 12:00:01] [general] tea\n[2026-03-13 14:00:00] [general] tea\n"
    assert [line.id for line in converted_log(text, DAY, entries)] == [one.id for one in entries]


_LINES = st.sampled_from(
    ["plain", "", "  indented", "- [a] b", "## head", "# Agent Memory", "[2026-03-13 12:00:00] [a] b", "]", "é\u2028x",
     "\r", "- [ ] box", "[a] b"]
)  # fmt: skip
_CONTENTS = st.lists(_LINES, min_size=1, max_size=4).map("\n".join)
_CATEGORIES = st.sampled_from(["general", "a", "a] b", "## x", "x", " ", "two  words"])


@settings(max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(st.lists(st.tuples(_CONTENTS, _CATEGORIES, st.booleans()), min_size=1, max_size=6))
def test_whatever_the_texts_every_entry_is_there_once_after_a_conversion(
    tmp_path_factory: pytest.TempPathFactory, kept: list[tuple[str, str, bool]]
) -> None:
    path = tmp_path_factory.mktemp("memory")
    entries = [
        entry(text, category, persistent=persistent, at=NOON + timedelta(minutes=number))
        for number, (text, category, persistent) in enumerate(kept)
    ]
    (path / "entries.jsonl").write_text("".join(json.dumps(to_json(one)) + "\n" for one in entries))
    (path / "MEMORY.md").write_text(
        "".join(f"- [{one.category}] {one.content}\n" for one in entries if one.persistent), "utf-8", newline=""
    )
    (path / "2026-03-13.log").write_text(
        "".join(f"[{one.created_at:%Y-%m-%d %H:%M:%S}] [{one.category}] {one.content}\n" for one in entries),
        "utf-8", newline="",
    )  # fmt: skip
    opened(path).convert()
    memory = opened(path)
    there = {sameness(*fact) for fact in memory.facts()}
    assert {sameness(one.category, one.content) for one in entries if one.persistent} <= there
    assert sorted(one.id for one in memory.live(100)) == sorted(one.id for one in entries)
    logged = [line.id for line in memory.recent(date.min, 1_000)]
    assert sorted(logged) == sorted(one.id for one in entries)
    assert opened(path).convert() == 0

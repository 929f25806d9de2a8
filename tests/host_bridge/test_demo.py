"""The demo: its texts are as messy as real ones, and its story comes out as it promises."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path
from typing import cast

import pytest

import host_bridge
from host_bridge.cli import demo_story
from messages.json_types import JsonObject
from messages.vocabulary import EXCERPT_MAX_BYTES, REMEMBER_MAX_ITEMS
from storage.python_child import environment

DATA = Path(host_bridge.__file__).parent / "demo_data"
TWO_SCREENS = 48


@pytest.fixture(scope="module")
def reading() -> demo_story.Reading:
    return demo_story.read_input(DATA)


def run(*arguments: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-P", "-m", "host_bridge", "demo", *arguments],
        cwd=cwd, env=environment() | {"TMPDIR": str(cwd)}, capture_output=True, text=True, timeout=100, check=False,
    )


def items(batch: JsonObject) -> list[JsonObject]:
    return cast("list[JsonObject]", batch["items"])


def test_the_chat_runs_over_two_weeks(reading: demo_story.Reading) -> None:
    days = sorted({line[1:11] for line in reading.texts["chat.txt"] if line.startswith("[")})
    assert (days[0], days[-1], len(days)) == ("2026-09-07", "2026-09-20", 14)


def test_the_texts_are_messy(reading: demo_story.Reading) -> None:
    chat = "\n".join(reading.texts["chat.txt"])
    assert re.search("[\u3040-\u30ff]", chat), "Japanese"
    assert re.search("[\U0001f300-\U0001faff]", chat), "emoji"
    assert "Correction" in chat
    assert max(map(len, reading.texts["chat.txt"])) > 800, "a long line"
    raw = [path.read_bytes() for path in (DATA / "notes").iterdir()]
    assert any(b"\r\n" in text for text in raw)
    assert any(text.startswith(b"\xef\xbb\xbf") for text in raw)
    aliases = [alias for page in reading.pages for alias in cast("list[str]", page["aliases"])]
    assert aliases.count("Alex") == 2, "a first name that two people share"


def test_every_note_becomes_one_page(reading: demo_story.Reading) -> None:
    assert sorted(str(page["note"]) for page in reading.pages) == sorted(reading.notes)


def test_a_batch_cites_lines_that_exist_and_fit(reading: demo_story.Reading) -> None:
    for batch in reading.remember:
        first, last = cast("list[int]", batch["lines"])
        assert 1 <= first <= last <= len(reading.texts[str(batch["source"])])
        assert 0 < len(demo_story.excerpt_of(reading, batch).encode()) <= EXCERPT_MAX_BYTES
        assert 1 <= len(items(batch)) <= REMEMBER_MAX_ITEMS


def test_every_number_in_a_claim_from_the_chat_stands_in_its_excerpt(reading: demo_story.Reading) -> None:
    for batch in reading.remember:
        if batch["source"] == "chat.txt" and batch["lines"] != [63, 64]:  # there the meeting's words are repeated
            excerpt = demo_story.excerpt_of(reading, batch)
            for item in items(batch):
                assert [n for n in re.findall(r"\d+(?:[.,]\d+)*", str(item["text"])) if n not in excerpt] == []


def test_the_batches_for_the_crash_are_twenty_different_claims_each(reading: demo_story.Reading) -> None:
    batches = demo_story.raw_batches(reading)
    texts = [str(item["text"]) for batch in batches for item in items(batch)]
    assert len(batches) >= 3
    assert len(texts) == len(set(texts)) == 20 * len(batches)


@pytest.mark.slow
def test_the_demo_tells_its_story_in_two_screens_and_leaves_nothing(tmp_path: Path) -> None:
    ran = run(cwd=tmp_path)
    assert ran.returncode == 0, ran.stderr
    assert ran.stderr == ""
    assert len(ran.stdout.splitlines()) <= TWO_SCREENS
    assert "\x1b" not in ran.stdout, "plain in a pipe"
    assert "exit status of the owner: -9" in ran.stdout
    assert "mcpServers" in ran.stdout
    told = "33 statements: 32 saved with their source (21 filed as told, 6 by inference,"
    assert told in ran.stdout
    assert "5 left open: “Sven” is missing, “Alex” is ambiguous), 1 was a repeat" in ran.stdout
    assert "…version: ask again" in ran.stdout, "nothing is cut but the excerpt of the search itself"
    assert "nothing of the half-done write is left" in ran.stdout or "all of it is there" in ran.stdout
    assert list(tmp_path.glob("knowledge-demo-*")) == []


@pytest.mark.slow
@pytest.mark.parametrize("ending", [signal.SIGTERM, signal.SIGHUP, None])
def test_an_interrupted_demo_leaves_neither_process_nor_folder(tmp_path: Path, ending: signal.Signals | None) -> None:
    """``None``: whoever reads the story goes away."""
    process = subprocess.Popen(
        [sys.executable, "-P", "-u", "-m", "host_bridge", "demo"],
        cwd=tmp_path, env=environment() | {"TMPDIR": str(tmp_path)}, stdout=subprocess.PIPE, text=True,
    )
    assert process.stdout is not None
    told = [process.stdout.readline() for _ in range(2)]
    owner = int(re.findall(r"pid (\d+)", told[1])[0])
    if ending is not None:
        process.send_signal(ending)
    process.stdout.close()
    assert process.wait(60) == (130 if ending else 0)
    with pytest.raises(ProcessLookupError):
        os.kill(owner, 0)
    assert list(tmp_path.glob("knowledge-demo-*")) == []


@pytest.mark.parametrize("installed", [True, False])
def test_without_git_the_demo_finds_no_commits_and_does_not_fail(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, installed: bool
) -> None:
    person = ["-c", "user.name=Ana", "-c", "user.email=ana@example.org"]
    for words in (["init", "--quiet"], [*person, "commit", "--quiet", "--allow-empty", "--message", "first"]):
        subprocess.run(["git", *words], cwd=tmp_path, check=True)
    if not installed:
        monkeypatch.setenv("PATH", str(tmp_path))
    subjects = [line.split(" ", 1)[1] for line in demo_story.commits_of(tmp_path)]
    assert subjects == (["Ana: first"] if installed else [])


def test_a_folder_that_cannot_be_made_is_a_usage_error(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    ran = run("--state-dir", str(tmp_path / "file" / "below"), cwd=tmp_path)
    assert (ran.returncode, ran.stdout) == (2, "")
    assert "cannot work in" in ran.stderr
    assert "Traceback" not in ran.stderr


def test_the_demo_keeps_its_state_and_gives_its_results_as_json(tmp_path: Path) -> None:
    state = tmp_path / "kept here"
    ran = run("--json", "--state-dir", str(state), cwd=tmp_path)
    assert ran.returncode == 0, ran.stderr
    document = json.loads(ran.stdout)
    steps = document["steps"]
    assert document["ok"] is True
    assert list(steps) == [name for name, _, _ in demo_story.STEPS]
    assert steps["pages"]["pages"] == 10
    assert steps["remember"]["claims"] == 33
    assert steps["remember"]["duplicate"] == 1
    assert steps["remember"]["notGuessed"] == ["“Sven” is missing", "“Alex” is ambiguous"]
    assert steps["lookup"]["alex"]["titles"] == ["Alex Chen", "Alex Novák"]
    assert steps["crash"]["exitStatus"] == -9
    assert steps["crash"]["midWrite"] is True
    assert steps["crash"]["stagedWhenKilled"] > 0
    assert steps["crash"]["claimsAfter"] == steps["crash"]["claimsBefore"] + 20
    page = next((state / "knowledge" / "stores").glob("*/vault")) / steps["edit"]["file"]
    assert "boathouse loft" in page.read_text("utf-8")
    assert not list(state.rglob(".kr-*")), "no staged or displaced file is left after an orderly stop"
    assert [path.name for path in state.iterdir()] == ["knowledge"]
    again = run("--state-dir", str(state), cwd=tmp_path)
    assert (again.returncode, again.stdout) == (2, "")
    assert "already holds a store" in again.stderr

"""``knowledge maintenance`` on a real owner: from the command line to the disk and back."""

from __future__ import annotations

import json
import os
import pty
import re
import subprocess
import uuid
from collections.abc import Iterator

import pytest

from messages.json_types import JsonObject, JsonValue
from tests.host_bridge.processes import PATIENCE, Home


@pytest.fixture(scope="module")
def real() -> Iterator[Home]:
    place = Home(fake=False)
    (place.state_dir / "knowledge.yaml").write_text("agents: {list: [{id: ana}, {id: ben}]}\n", encoding="utf-8")
    yield place
    place.close()


def save(home: Home, tool: str, **arguments: JsonValue) -> JsonObject:
    return home.call(tool, json.dumps({"requestId": str(uuid.uuid4()), **arguments}))


def remember(home: Home, text: str) -> str:
    receipt = save(
        home, "remember", attribution="the test", excerpt=f"It was said: {text}", items=[{"text": text, "kind": "fact"}]
    )
    items = receipt["items"]
    assert isinstance(items, list)
    assert isinstance(items[0], dict)
    return str(items[0]["id"])


def run(home: Home, *options: str) -> JsonObject:
    done = home.run("maintenance", "run", *options, "--json")
    assert (done.returncode, done.stderr) == (0, b""), done.stderr.decode()
    answer: JsonObject = json.loads(done.stdout)
    return answer


def stores(answer: JsonObject) -> list[JsonObject]:
    found = answer["stores"]
    assert isinstance(found, list)
    return [row for row in found if isinstance(row, dict)]


def test_maintenance_creates_no_store(real: Home) -> None:
    answer = run(real)
    assert stores(answer) == []
    assert not (real.state_dir / "knowledge" / "stores").exists()
    refused = real.run("maintenance", "run", "--agent", "ben", "--json")
    assert (refused.returncode, json.loads(refused.stderr)["error"]["code"]) == (3, "not_found")
    assert not (real.state_dir / "knowledge" / "stores").exists()


def test_a_run_links_a_claim_on_disk_and_the_result_is_there_for_the_next_owner(real: Home) -> None:
    claim = remember(real, "It is said that Garden Pilot ships in May.")
    save(real, "save_page", title="Garden Pilot", type="project", body="About it.")
    before = real.call("record", json.dumps({"id": claim}))
    [row] = stores(run(real))
    assert row["outcome"] == "done"
    assert row["links"] == {
        "linked": 1, "ambiguous": 0, "missing": 0, "duplicate": 0, "conflict": 0, "ids": [claim],
    }  # fmt: skip
    for part in ("database", "repository"):
        assert row[part] == "sound"
    evidence = row["evidence"]
    assert isinstance(evidence, dict)
    assert (evidence["citations"], evidence["failed"]) == (1, 0)
    after = real.call("record", json.dumps({"id": claim}))
    assert isinstance(before["record"], dict)
    assert isinstance(after["record"], dict)
    assert (before["record"]["revision"], after["record"]["revision"]) == (1, 2)
    history = real.call("history", json.dumps({"id": claim}))["rows"]
    assert isinstance(history, list)
    assert isinstance(history[0], dict)
    assert history[0]["actor"] == "maintenance"
    assert real.run("stop", "--json").returncode == 0
    status = json.loads(real.run("maintenance", "status", "--json").stdout)
    assert status["stores"] == [row]
    assert status["lastRun"]["outcome"] == "done"
    assert status["running"] is None
    assert status["nextRun"] is not None


def test_a_run_for_one_agent_looks_after_its_store_alone(real: Home) -> None:
    remember(real, "Something else is so.")
    real.call(
        "remember",
        json.dumps(
            {
                "requestId": str(uuid.uuid4()),
                "attribution": "the test",
                "excerpt": "Ben has a store.",
                "items": [{"text": "Ben has a store.", "kind": "fact"}],
            }
        ),
        "--agent",
        "ben",
    )
    assert len(stores(run(real))) == 2
    [one] = stores(run(real, "--agent", "ben"))
    evidence = one["evidence"]
    assert isinstance(evidence, dict)
    assert evidence["citations"] == 1


def test_evidence_that_was_tampered_with_is_reported_by_id_and_in_words(real: Home) -> None:
    text = "The vault was opened by nobody at all."
    claim = remember(real, text)
    [excerpt] = [
        path
        for path in (real.state_dir / "knowledge" / "stores").rglob("excerpt.txt")
        if text in path.read_text(encoding="utf-8")
    ]
    excerpt.write_text("The vault was opened by somebody else.", encoding="utf-8")
    found = [each for row in stores(run(real)) for each in ids(row, "evidence")]
    assert found == [{"id": claim, "reason": "hash_mismatch"}]
    words = real.run("maintenance", "run").stdout.decode()
    assert f"{claim} (hash_mismatch)" in words
    assert "opened" not in words
    assert words.count("store ") >= 2
    shown = real.run("maintenance", "status").stdout.decode()
    assert "03:30 local time" in shown
    assert re.search(r"; next at \d{4}-\d\d-\d\d 03:30\.$", shown, re.MULTILINE), "by the clock of the schedule"
    assert not re.search(r"\d:\d\d\.\d+Z", shown)
    assert f"{claim} (hash_mismatch)" in shown


def ids(row: JsonObject, part: str) -> list[JsonValue]:
    found = row[part]
    assert isinstance(found, dict)
    assert isinstance(found["ids"], list)
    return found["ids"]


def test_on_a_terminal_a_bar_is_drawn_on_stderr_and_stdout_stays_clean(real: Home) -> None:
    leader, follower = pty.openpty()
    done = subprocess.run(
        real.command("maintenance", "run"),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=follower,
        env={**real.env, "TERM": "xterm"},
        timeout=PATIENCE,
        check=False,
    )
    os.close(follower)
    drawn = os.read(leader, 1 << 16)
    os.close(leader)
    assert done.returncode == 0
    assert b"store" in drawn
    assert b"\x1b" not in done.stdout
    assert b"Done:" in done.stdout


@pytest.mark.parametrize("words", [[], ["walk"], ["run", "now"], ["status", "--agent", "ana"]])
def test_what_cannot_be_understood_is_said_with_status_2(real: Home, words: list[str]) -> None:
    done = real.run("maintenance", *words)
    assert (done.returncode, done.stdout) == (2, b"")
    assert b"knowledge help maintenance" in done.stderr


def test_a_store_that_cannot_be_looked_after_decides_the_exit_status(real: Home) -> None:
    assert real.run("stop", "--json").returncode == 0
    folders = sorted((real.state_dir / "knowledge" / "stores").iterdir())
    manifest = folders[0] / "vault" / "vault.json"
    kept = manifest.read_bytes()
    manifest.unlink()
    try:
        done = real.run("maintenance", "run", "--json")
        answer = json.loads(done.stdout)
        outcomes = {row["vaultId"]: row for row in stores(answer)}
        assert outcomes[folders[0].name]["outcome"] == "failed"
        assert outcomes[folders[1].name]["outcome"] == "done"
        assert done.returncode == 3
        assert outcomes[folders[0].name]["code"] == "manifest_missing"
    finally:
        real.run("stop", "--json")
        manifest.write_bytes(kept)

"""``knowledge backup`` and ``knowledge restore`` on real owners: while agents write, and from a terminal or a pipe."""

from __future__ import annotations

import json
import os
import pty
import subprocess
import threading
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

from messages.json_types import JsonObject, JsonValue
from tests.host_bridge.processes import PATIENCE, Home


@pytest.fixture(scope="module")
def real() -> Iterator[Home]:
    place = Home(fake=False)
    (place.state_dir / "knowledge.yaml").write_text("agents: {list: [{id: ana}, {id: ben}]}\n", encoding="utf-8")
    remember(place, "The garden opens in May.")
    remember(place, "Ben keeps bees.", "--agent", "ben")
    yield place
    place.close()


def remember(home: Home, text: str, *caller: str) -> JsonObject:
    arguments: JsonObject = {
        "requestId": str(uuid.uuid4()),
        "attribution": "the test",
        "excerpt": f"It was said: {text}",
        "items": [{"text": text, "kind": "fact"}],
    }
    return home.call("remember", json.dumps(arguments), *caller)


def taken(home: Home, *arguments: str, status: int = 0) -> JsonObject:
    done = home.run("backup", *arguments, "--json")
    assert done.returncode == status, done.stderr.decode()
    answer: JsonObject = json.loads(done.stdout if not status or done.stdout else done.stderr)
    return answer


def elsewhere(home: Home, name: str) -> str:
    """Another state directory, empty."""
    place = home.base / name
    place.mkdir()
    return str(place)


def without_git(answer: JsonObject) -> JsonObject:
    """Checkpoints follow later, here and there."""
    rows = answer.get("rows", [])
    assert isinstance(rows, list)
    kept: list[JsonValue] = [
        {key: value for key, value in row.items() if key != "commit"} for row in rows if isinstance(row, dict)
    ]
    return {**{key: value for key, value in answer.items() if key != "git"}, "rows": kept}


def count(home: Home, *caller: str) -> JsonValue:
    return home.call("records", "{}", *caller)["total"]


def test_a_backup_that_is_restored_elsewhere_answers_the_same(real: Home) -> None:
    answer = taken(real, str(real.base / "first"))
    assert (answer["state"], answer["stores"], answer["whole"], answer["findings"]) == ("done", 2, True, [])
    place = elsewhere(real, "copy")
    done = real.run("restore", str(real.base / "first"), "--state-dir", place, "--json")
    assert (done.returncode, done.stderr) == (0, b""), done.stderr.decode()
    restored: JsonObject = json.loads(done.stdout)
    assert (restored["vaultIds"], restored["configuration"]) == (answer["vaultIds"], "restored")
    for caller in ([], ["--agent", "ben"]):
        for call in (("records", "{}"), ("history", "{}"), ("grep", '{"query": "garden bees", "mode": "any"}')):
            before = real.call(*call, *caller)
            after = real.call(*call, *caller, "--state-dir", place)
            assert without_git(before) == without_git(after)
    remember(real, "Saved after the restore.", "--state-dir", place)
    assert real.run("stop", "--json", "--state-dir", place).returncode == 0


def test_an_edit_that_nobody_has_looked_at_is_in_the_backup(real: Home) -> None:
    [claim] = list((real.state_dir / "knowledge").rglob("the-garden*.md"))
    edited = claim.read_bytes() + b"A line by hand.\n"
    claim.write_bytes(edited)
    taken(real, str(real.base / "edited"))
    [copied] = list((real.base / "edited").rglob("the-garden*.md"))
    assert copied.read_bytes() == edited


def test_a_backup_while_four_threads_write_through_the_owner_is_sound(real: Home) -> None:
    stop = threading.Event()
    failures: list[BaseException] = []

    def write(number: int) -> None:
        try:
            while not stop.is_set():
                remember(real, f"Thread {number} said {uuid.uuid4()}.", *(("--agent", "ben") if number % 2 else ()))
        except BaseException as error:  # noqa: BLE001 - whatever it is, the test must hear of it
            failures.append(error)

    threads = [threading.Thread(target=write, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    try:
        answers = [taken(real, str(real.base / f"busy-{number}")) for number in range(2)]
    finally:
        stop.set()
        for thread in threads:
            thread.join(PATIENCE)
    assert failures == []
    assert [answer["findings"] for answer in answers] == [[], []]
    place = elsewhere(real, "busy-copy")
    assert real.run("restore", str(real.base / "busy-1"), "--state-dir", place).returncode == 0
    for caller in ([], ["--agent", "ben"]):
        rows = real.call("history", '{"limit": 100}', *caller, "--state-dir", place)["rows"]
        assert isinstance(rows, list)
        assert sum(isinstance(row, dict) and row.get("external") is True for row in rows) <= 1
        found = real.call("grep", '{"query": "said"}', *caller, "--state-dir", place)["total"]
        listed = count(real, *caller, "--state-dir", place)
        assert isinstance(found, int)
        assert isinstance(listed, int)
        assert 0 < found <= listed
    assert real.run("stop", "--json", "--state-dir", place).returncode == 0


def test_a_dry_run_of_both_writes_nothing(real: Home) -> None:
    answer = taken(real, str(real.base / "never"), "--dry-run")
    assert answer["dryRun"] is True
    assert not (real.base / "never").exists()
    taken(real, str(real.base / "proven"))
    place = real.base / "no such place"
    done = real.run("restore", str(real.base / "proven"), "--dry-run", "--state-dir", str(place))
    assert done.returncode == 0
    assert b"is sound" in done.stdout
    assert not place.exists()


def test_one_store_alone(real: Home) -> None:
    listing = json.loads(real.run("stores", "list", "--json").stdout)
    [bens] = [row["vaultId"] for row in listing["agents"] if row["agent"] == "ben"]
    answer = taken(real, str(real.base / "bens"), "--store", bens)
    assert (answer["vaultIds"], answer["whole"]) == ([bens], False)
    unknown = taken(real, str(real.base / "none"), "--store", str(uuid.uuid4()), status=3)
    error = unknown["error"]
    assert isinstance(error, dict)
    assert error["code"] == "not_found"


def test_refusals_have_an_exit_status_and_a_reason(real: Home) -> None:
    (real.base / "taken").mkdir()
    refused = taken(real, str(real.base / "taken"), status=3)["error"]
    assert isinstance(refused, dict)
    assert (refused["code"], refused["field"], refused["reason"]) == ("invalid_argument", "path", "taken")
    taken(real, str(real.base / "sound"))
    full = real.run("restore", str(real.base / "sound"), "--json")
    assert (full.returncode, json.loads(full.stderr)["error"]["code"]) == (3, "duplicate_identity")
    [part] = (real.base / "sound").glob("registry.sqlite")
    data = bytearray(part.read_bytes())
    data[100] ^= 1
    part.write_bytes(data)
    place = elsewhere(real, "refused")
    damaged = real.run("restore", str(real.base / "sound"), "--state-dir", place, "--json")
    error = json.loads(damaged.stderr)["error"]
    assert (damaged.returncode, error["reason"], error["path"]) == (3, "damaged", "registry.sqlite")
    assert sorted(path.name for path in Path(place).rglob("*")) == ["knowledge", "owner.lock"]
    for words in (["backup"], ["restore"], ["backup", "a", "b"], ["backup", "a", "--store", "x"]):
        assert real.run(*words).returncode == 2


def test_a_finding_ends_with_its_own_exit_status(real: Home) -> None:
    [excerpt, *_] = list((real.state_dir / "knowledge").rglob("excerpt.txt"))
    before = excerpt.read_bytes()
    excerpt.write_bytes(b"Tampered with.\n")
    try:
        answer = taken(real, str(real.base / "found"), status=6)
    finally:
        excerpt.write_bytes(before)
    findings = answer["findings"]
    assert isinstance(findings, list)
    assert [row["code"] for row in findings if isinstance(row, dict)] == ["original_changed"]


def test_a_terminal_shows_progress_and_a_pipe_does_not(real: Home) -> None:
    done = real.run("backup", str(real.base / "piped"))
    assert (done.returncode, done.stderr) == (0, b"")
    assert b"is complete" in done.stdout
    controller, terminal = pty.openpty()
    try:
        shown = subprocess.run(
            real.command("restore", "--dry-run", "--state-dir", str(real.base / "nowhere"), str(real.base / "piped")),
            stdout=subprocess.PIPE,
            stderr=terminal,
            env={**real.env, "TERM": "xterm-256color"},
            timeout=PATIENCE,
            check=False,
        )
        assert shown.returncode == 0
        assert "verifying" in os.read(controller, 65_536).decode()
    finally:
        os.close(controller)
        os.close(terminal)

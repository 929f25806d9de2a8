"""``knowledge repair`` on real state directories: with no owner, beside an idle one, and beside a busy one."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from messages.json_types import JsonObject
from tests.host_bridge.cli.test_backup import remember
from tests.host_bridge.processes import Home


@pytest.fixture
def real() -> Iterator[Home]:
    place = Home(fake=False)
    remember(place, "The garden opens in May.")
    yield place
    place.close()


def repaired(home: Home, *arguments: str, status: int = 0) -> JsonObject:
    done = home.run("repair", *arguments, "--json")
    assert done.returncode == status, (done.returncode, done.stdout, done.stderr)
    answer: JsonObject = json.loads(done.stdout)
    return answer


def store_of(home: Home) -> Path:
    [store] = (home.state_dir / "knowledge" / "stores").iterdir()
    return store


def test_an_idle_owner_makes_room_and_a_lost_database_is_built_anew(real: Home) -> None:
    total = real.call("records", "{}")["total"]
    assert real.run("stop", "--json").returncode == 0
    (store_of(real) / "state.sqlite").write_bytes(b"\xff" * 50_000)
    planned = repaired(real, "--dry-run", status=6)
    assert b"state.sqlite is damaged: its beginning is not that of a database" in real.run("doctor").stdout
    assert (store_of(real) / "state.sqlite").read_bytes() == b"\xff" * 50_000
    asked = real.run("repair")
    assert (asked.returncode, b"say so with --yes" in asked.stdout) == (6, True)
    assert (store_of(real) / "state.sqlite").read_bytes() == b"\xff" * 50_000
    done = real.run("repair", "--yes")
    assert done.returncode == 0
    for words in (b"cannot bring back", b"receipts", b"approvals", b"what stays", b"the old one is kept as"):
        assert words in done.stdout
    assert planned["dryRun"] is True
    assert real.call("records", "{}")["total"] == total
    assert real.call("grep", '{"query": "garden"}')["total"] == total
    [row] = json.loads(real.run("stores", "audit", "--limit", "1", "--json").stdout)["rows"]
    assert row["action"] == "store.repair"
    # The owner that answered just now is idle: it makes room.
    assert repaired(real)["healthy"] is True


def test_what_lost_database_there_was_not_is_not_said_to_be_set_aside(real: Home) -> None:
    assert real.run("stop", "--json").returncode == 0
    (store_of(real) / "state.sqlite").unlink()
    refused = real.run("call", "status")
    assert refused.returncode == 3
    assert b"next: `knowledge doctor`" in refused.stderr
    assert b"next" not in real.run("call", "status", "--json").stderr
    assert real.run("stop", "--json").returncode == 0
    planned = real.run("repair", "--dry-run").stdout
    assert b"state.sqlite is missing: it would be built anew." in planned
    done = real.run("repair").stdout
    assert b"built anew from the vault\n" in done
    assert b"kept as" not in done


def test_a_busy_owner_is_named_and_nothing_is_touched(real: Home) -> None:
    assert real.run("stop", "--json").returncode == 0
    real.foreground()
    refused = real.run("repair", "--json")
    assert refused.returncode == 4
    error = json.loads(refused.stderr)["error"]
    assert (error["code"], error["pid"]) == ("open_elsewhere", real.holder_pid())


def test_each_part_and_what_is_not_understood(real: Home) -> None:
    store = store_of(real)
    assert real.run("stop", "--json").returncode == 0
    shutil.rmtree(store / "vault" / ".git", ignore_errors=True)
    answer = repaired(real, "catalogue", "files", "index", "git")
    rows = answer["stores"]
    assert isinstance(rows, list)
    [row] = rows
    assert isinstance(row, dict)
    assert (row["catalogue"], row["git"], row["indexes"]) == ("rebuilt", "built", ["private"])
    for words in (["other"], ["database"], ["--store", "x"]):
        assert real.run("repair", *words).returncode == 2
    unknown = real.run("repair", "--store", "99999999-9999-4999-8999-999999999999", "--json")
    assert (unknown.returncode, json.loads(unknown.stderr)["error"]["code"]) == (3, "not_found")
    (store / "vault" / "vault.json").unlink()
    left = repaired(real, status=6)["stores"]
    assert isinstance(left, list)
    assert isinstance(left[0], dict)
    assert isinstance(left[0]["refused"], dict)
    assert left[0]["refused"]["code"] == "manifest_missing"

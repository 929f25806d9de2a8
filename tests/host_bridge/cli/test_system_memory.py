"""``knowledge system-memory``: what each command sends, prints and refuses, and a promotion that is killed."""

from __future__ import annotations

import json
import os
import signal
import textwrap
from collections.abc import Iterator
from pathlib import Path

import pytest

from host_bridge.cli import exits
from messages.json_types import JsonObject
from tests.host_bridge.processes import ROOT, Home, Typed
from tests.storage.backup.house import house

EVIDENCE = "url:https://example.org:8443/report:sha256:2c26b46b"
REFERENCE: JsonObject = {"kind": "url", "ref": "https://example.org:8443/report", "digest": "sha256:2c26b46b"}
CLAIM = (
    "--slug", "sys:gateway", "--body", "It answers 402", "--tier", "glass", "--as-of", "2026-09-20",
    "--evidence", EVIDENCE,
)  # fmt: skip
SENT: JsonObject = {
    "slug": "sys:gateway",
    "body": "It answers 402",
    "tier": "glass",
    "asOf": "2026-09-20",
    "evidenceRefs": [REFERENCE],
    "entity": None,
}
ID = "00000000-0000-4000-8000-000000000001"
CONFIGURATION = "systemMemory: {stewards: [stella, ann], systemBucketEnabled: true}\n"


@pytest.fixture(scope="module")
def fake() -> Iterator[Home]:
    """Doors without a runtime: what is asked comes back."""
    place = Home(fake=True)
    yield place
    place.close()


@pytest.fixture
def real() -> Iterator[Home]:
    place = Home(fake=False)
    (place.state_dir / "knowledge.yaml").write_text(CONFIGURATION)
    yield place
    place.close()


def did(home: Home, *words: str) -> JsonObject:
    done = home.run("system-memory", *words, "--json")
    assert done.returncode == exits.OK, done.stderr.decode()
    assert done.stdout.count(b"\n") == 1
    answer: JsonObject = json.loads(done.stdout)
    return answer


def said(home: Home, *words: str) -> str:
    done = home.run("system-memory", *words)
    assert (done.returncode, done.stderr) == (exits.OK, b"")
    return done.stdout.decode()


def refused(home: Home, *words: str) -> JsonObject:
    done = home.run("system-memory", *words, "--json")
    assert (done.returncode, done.stdout) == (exits.REFUSED, b"")
    error: JsonObject = json.loads(done.stderr)["error"]
    return error


# --- what is sent ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("words", "method", "request_"),
    [
        (("observe", "--account", "ann", *CLAIM), "observe", {"account": "ann", **SENT}),
        (
            ("challenge", ID, "--account", "ben", "--ground", "not so", "--evidence", EVIDENCE),
            "challenge",
            {"account": "ben", "id": ID, "ground": "not so", "evidenceRefs": [REFERENCE]},
        ),
        (
            ("admit", ID, "--steward", "stella", "--verdict", "rejected", "--ground", "no"),
            "admit",
            {"steward": "stella", "id": ID, "verdict": "rejected", "ground": "no"},
        ),
        (("refute", ID, "--steward", "stella", "--ground", "it is"), "refute", None),
        (
            ("supersede", ID, "--account", "ann", *CLAIM),
            "supersede",
            {"account": "ann", "steward": None, "id": ID, **SENT},
        ),
        (("supersede", ID, "--steward", "stella", *CLAIM), "supersede", None),
        (
            ("promote", ID, "--steward", "stella", "--stance", "g-402", "--slug", "sys:g", "--evidence", EVIDENCE),
            "promote",
            {
                "steward": "stella", "id": ID, "stance": "g-402", "slug": "sys:g", "evidenceRefs": [REFERENCE],
                "entity": None, "asOf": None,
            },
        ),
        (("status",), "status", {"id": None}),
        (("status", ID), "status", {"id": ID}),
        (("ready",), "ready", {}),
        (("show", "--limit", "3"), "show", {"id": None, "limit": 3}),
        (("show", ID), "show", {"id": ID, "limit": 50}),
        (("erase", "--account", "ann", "--yes"), "erase", {"account": "ann"}),
    ],
)  # fmt: skip
def test_each_command_asks_its_method_on_the_owners_socket(
    fake: Home, words: tuple[str, ...], method: str, request_: JsonObject | None
) -> None:
    sent = did(fake, *words)
    assert (sent["method"], sent["door"]) == (f"steward.{method}", "socket")
    if request_ is not None:
        assert sent["request"] == request_


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("receipt:r1:d1", ("receipt", "r1", "d1")),
        ("url:http://[::1]:80/x:sha256:ab", ("url", "http://[::1]:80/x", "sha256:ab")),
        ("url:https://a:1/b:c:sha512:AB+/=", ("url", "https://a:1/b:c", "sha512:AB+/=")),
        ("memory:sha256:ab:sha256:cd", ("memory", "sha256:ab", "sha256:cd")),
        ("url:https://a/b?x=md5:1:blake2b:99", ("url", "https://a/b?x=md5:1", "blake2b:99")),
        ("url:https://a:443/plain:deadbeef", ("url", "https://a:443/plain", "deadbeef")),
    ],
)
def test_evidence_is_read_with_colons_ports_and_the_digests_algorithm(
    fake: Home, text: str, parts: tuple[str, str, str]
) -> None:
    request = did(fake, "challenge", ID, "--account", "a", "--ground", "g", "--evidence", text)["request"]
    assert isinstance(request, dict)
    assert request["evidenceRefs"] == [dict(zip(("kind", "ref", "digest"), parts, strict=True))]


@pytest.mark.parametrize(
    "words",
    [
        (),
        ("nonsense",),
        ("observe", *CLAIM),
        ("challenge", "--account", "a", "--ground", "g"),
        ("challenge", ID, "--ground", "g"),
        ("challenge", ID, "--account", "a"),
        ("challenge", ID, "--account", "a", "--ground", "g", "--evidence", "url:only"),
        ("challenge", ID, "--account", "a", "--ground", "g", "--evidence", ""),
        ("admit", ID, "--steward", "s", "--ground", "g"),
        ("admit", ID, "--steward", "s", "--ground", "g", "--verdict", "maybe"),
        ("admit", ID, "--verdict", "admitted", "--ground", "g"),
        ("admit", ID, "--account", "s", "--verdict", "admitted", "--ground", "g"),
        ("refute", ID, "--steward", "s"),
        ("supersede", ID, *CLAIM),
        ("supersede", ID, "--account", "a", "--steward", "s", *CLAIM),
        ("promote", ID, "--stance", "s", "--slug", "sys:x"),
        ("show", "--limit", "0"),
        ("show", ID, "more"),
        ("erase", "--account", "a"),
        ("erase", "--yes"),
    ],
)
def test_a_command_line_that_lacks_something_is_a_usage_error_and_asks_nobody(
    typed: Typed, words: tuple[str, ...]
) -> None:
    done = typed("system-memory", *words)
    assert (done.returncode, done.stdout) == (exits.USAGE, b"")
    assert done.stderr


# --- the life of a claim ---------------------------------------------------------------------------------------------


def test_a_claim_is_observed_admitted_challenged_refuted_and_promoted_in_words_and_as_json(real: Home) -> None:
    made = said(real, "observe", "--account", "ann", *CLAIM)
    claim = made.split()[2].rstrip(";")
    assert said(real, "status", claim) == "candidate\n"
    assert "admitted now" in said(
        real, "admit", claim, "--steward", "stella", "--verdict", "admitted", "--ground", "looked"
    )
    challenge = did(real, "challenge", claim, "--account", "ben", "--ground", "not so", "--evidence", EVIDENCE)
    assert challenge["status"] == "suspended"
    assert did(real, "refute", str(challenge["id"]), "--steward", "stella", "--ground", "it is")["status"] == "admitted"
    assert "No claim is ready" in said(real, "ready")
    assert did(real, "ready")["thresholds"] == {"unchallengedDays": 30, "sessions": 5}
    promotion = ("promote", claim, "--steward", "stella", "--evidence", EVIDENCE)
    assert refused(real, *promotion, "--slug", "sys:gateway")["code"] == "stance_required"
    assert refused(real, *promotion, "--slug", "sys:other", "--stance", "g-402")["code"] == "slug_mismatch"
    assert "the stance g-402 now" in said(real, *promotion, "--slug", "sys:gateway", "--stance", "g-402")
    assert refused(real, *promotion, "--slug", "sys:gateway", "--stance", "g-402")["code"] == "not_supersedable"
    assert "superseded:  1" in said(real, "status")
    shown = did(real, "show", claim)
    assert shown["status"] == "admitted"
    assert shown["supersededBy"]
    audit = real.run("stores", "audit", "--json")
    actions = [row["action"] for row in json.loads(audit.stdout)["rows"]]
    assert actions == ["memory.promote", "memory.refute", "memory.admit"]


def test_who_is_no_steward_is_told_so_alike_for_real_and_invented_ids(real: Home) -> None:
    claim = str(did(real, "observe", "--account", "ben", *CLAIM)["id"])
    words = ("--steward", "mallory", "--ground", "g")
    found = [refused(real, "admit", target, *words, "--verdict", "admitted") for target in (claim, ID, "no id")]
    found.append(refused(real, "refute", claim, *words))
    assert {json.dumps(error) for error in found} == {json.dumps(found[0])}
    assert found[0]["code"] == "steward_required"
    assert refused(real, "supersede", claim, "--account", "mallory", *CLAIM)["code"] == "not_supersedable"


def test_an_account_that_is_also_a_steward_corrects_with_a_stewards_word(real: Home) -> None:
    claim = str(did(real, "observe", "--account", "ben", *CLAIM)["id"])
    did(real, "challenge", claim, "--account", "cem", "--ground", "not so")
    did(real, "supersede", claim, "--account", "ann", *CLAIM)
    records = did(real, "show", claim)["records"]
    assert isinstance(records, list)
    assert [row["role"] for row in records if isinstance(row, dict)] == ["challenge", "refutation"]


def test_nothing_that_a_terminal_would_obey_leaves_a_command_and_a_body_begins_no_line_of_its_own(real: Home) -> None:
    evil = "red \x1b[31m\x07 back\r‮ up\n  admitted by stella"
    claim = did(real, "observe", "--account", "ann", *CLAIM[:2], "--body", evil, *CLAIM[4:])
    for words in (("show",), ("show", str(claim["id"])), ("status", "\x1b[31m")):
        text = said(real, *words)
        assert not any(sign in text for sign in ("\x1b", "\x07", "\r", "‮"))
        assert "\n  admitted by stella" not in text


# --- killed ----------------------------------------------------------------------------------------------------------

OWNER = """
import os, signal, sys
from pathlib import Path
from host_bridge.cli import main
from storage import faults

point, mark = sys.argv[1], Path(sys.argv[2])

def kill(reached):
    if reached == point and mark.exists():
        mark.unlink()
        os.kill(os.getpid(), signal.SIGKILL)

with faults.installed(kill):
    sys.exit(main(["serve"]))
"""


@pytest.mark.parametrize(
    ("point", "happened"),
    [
        ("system_memory.change.begin.after", False),
        ("system_memory.change.commit", False),
        ("system_memory.change.commit.after", True),
    ],
)
def test_an_owner_that_is_killed_during_a_promotion_made_all_of_it_or_nothing(
    real: Home, tmp_path: Path, point: str, happened: bool
) -> None:
    import subprocess
    import sys

    claim = str(did(real, "observe", "--account", "ben", *CLAIM)["id"])
    did(real, "admit", claim, "--steward", "stella", "--verdict", "admitted", "--ground", "looked")
    did(real, "challenge", claim, "--account", "cem", "--ground", "not so")
    assert real.run("stop").returncode == exits.OK
    mark = tmp_path / "mark"
    owner = subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(OWNER), point, str(mark)],
        cwd=ROOT, env=real.env, stderr=subprocess.PIPE, stdin=subprocess.PIPE,
    )  # fmt: skip
    try:
        assert owner.stderr is not None
        while b" owns " not in (line := owner.stderr.readline()):
            assert line, "the owner ended at its start"
        did(real, "status")
        mark.touch()
        promotion = ("promote", claim, "--steward", "stella", "--slug", "sys:gateway", "--stance", "g-402")
        done = real.run("system-memory", *promotion, "--evidence", EVIDENCE)
        assert done.returncode in (exits.UNKNOWN, exits.UNAVAILABLE), done.stderr
        assert owner.wait(20) == -signal.SIGKILL
    finally:
        if owner.poll() is None:
            os.kill(owner.pid, signal.SIGKILL)
            owner.wait(20)
        for stream in (owner.stderr, owner.stdin):
            if stream is not None:
                stream.close()
    shown = did(real, "show", claim)
    records = shown["records"]
    assert isinstance(records, list)
    roles = [row["role"] for row in records if isinstance(row, dict)]
    assert roles == ["admission", "challenge", *(["refutation"] if happened else [])]
    assert (shown["supersededBy"] is not None) is happened
    audit = json.loads(real.run("stores", "audit", "--json").stdout)["rows"]
    assert [row["action"] for row in audit].count("memory.promote") == (1 if happened else 0)


def test_a_second_owner_is_refused_while_one_has_the_directory(real: Home) -> None:
    real.foreground()
    did(real, "observe", "--account", "ben", *CLAIM)
    second = real.run("serve")
    assert second.returncode != exits.OK
    assert did(real, "status")["claims"]


def test_repair_leaves_a_damaged_system_memory_alone_and_the_doctor_says_what_to_do(
    tmp_path: Path, typed: Typed
) -> None:
    layout = house(tmp_path)
    layout.system_memory.write_bytes(b"not a database at all, but long enough to have a header of its own" * 20)
    before = layout.system_memory.read_bytes()
    place = ("--state-dir", str(layout.state_dir), "--json")
    typed("repair", "--yes", *place)
    assert layout.system_memory.read_bytes() == before
    looked = typed("doctor", *place)
    assert looked.returncode == exits.FINDINGS
    [finding] = json.loads(looked.stdout)["findings"]
    assert finding["code"] == "system_memory_damaged"
    assert "backup" in finding["mend"]

"""What owners and thin clients say to each other."""

from __future__ import annotations

import subprocess
import sys

import pytest

from messages.control import (
    OWNER_LOCK_MAX_BYTES,
    Candidate,
    Holder,
    OwnerRecord,
    hand_over_refusal,
    version_key,
)

RECORD = OwnerRecord(4711, "0.1.0", "/run/user/1000/knowledge/ab.sock")


def test_a_record_is_read_back_as_it_was_written() -> None:
    assert OwnerRecord.decode(RECORD.encode()) == RECORD
    assert RECORD.encode().endswith(b"}\n")


def test_a_record_of_a_later_release_is_read_by_its_known_members() -> None:
    assert OwnerRecord.decode(b'{"pid": 1, "version": "9", "socket": "/s", "more": [1]}') == OwnerRecord(1, "9", "/s")


@pytest.mark.parametrize(
    "data",
    [b"", b"{", b"null", b"[]", b"\xff\xfe", b'{"pid": 1}', b'{"pid": true, "version": "1", "socket": "/s"}',
     b'{"pid": 0, "version": "1", "socket": "/s"}', b'{"pid": "1", "version": "1", "socket": "/s"}',
     b'{"pid": 1, "version": 1, "socket": "/s"}', b'{"pid": 1, "version": "1", "socket": ""}', RECORD.encode()[:-5],
     b"[" * 4000, RECORD.encode() + b" " * OWNER_LOCK_MAX_BYTES],
)  # fmt: skip
def test_anything_else_is_no_record(data: bytes) -> None:
    assert OwnerRecord.decode(data) is None


@pytest.mark.parametrize(
    ("holder", "candidate", "refusal"),
    [
        (Holder("1.0", "detached", 0), Candidate("1.0", "foreground"), None),
        (Holder("1.0", "detached", 0), Candidate("0.9", "foreground"), None),
        (Holder("1.0", "detached", 0), Candidate("1.1", "detached"), None),
        (Holder("1.9", "detached", 0), Candidate("1.10", "detached"), None),
        (Holder("1.0", "detached", 0), Candidate("1.0", "detached"), "not_newer"),
        (Holder("1.1", "detached", 0), Candidate("1.0", "detached"), "not_newer"),
        (Holder("1.0", "detached", 1), Candidate("2.0", "foreground"), "busy"),
        (Holder("1.0", "foreground", 0), Candidate("2.0", "foreground"), "foreground"),
        (Holder("1.0", "detached", 0, stopping=True), Candidate("2.0", "foreground"), "stopping"),
    ],
)
def test_only_an_idle_detached_owner_gives_way(holder: Holder, candidate: Candidate, refusal: str | None) -> None:
    assert hand_over_refusal(holder, candidate) == refusal


def test_versions_are_compared_by_number() -> None:
    assert version_key("1.10.0") > version_key("1.9.9")
    assert version_key("1.0") < version_key("1.0.1")
    assert version_key("1.0+local") == version_key("1.0")
    assert version_key("1.x") < version_key("1.0")
    assert version_key("9" * 5000) == (-1,)


def test_a_thin_client_imports_the_standard_library_only() -> None:
    code = (
        "import sys; before = set(sys.modules); import messages.control;"
        "new = {name.partition('.')[0] for name in set(sys.modules) - before};"
        "print(sorted(new - set(sys.stdlib_module_names)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "['messages']"

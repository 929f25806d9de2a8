"""``knowledge kb``: what building and searching print, write, refuse, and with which status they end."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from host_bridge.cli import exits, main
from storage.knowledge_base import load_corpus
from tests.storage.knowledge_base.kit import folder, stance, written

Printed = pytest.CaptureFixture[bytes]


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A working directory with the sources."""
    folder(tmp_path / "docs", {"guides/pay.md": "# Paying\n\nHow agents are paid.", "x.md": "# X"})
    (tmp_path / "stances.json").write_bytes(written(stance()))
    monkeypatch.chdir(tmp_path)
    return tmp_path


def build(*more: str) -> int:
    return main(["kb", "build", "stances.json", "docs/", "-o", "kb.json", *more])


def test_a_build_writes_the_file_and_says_what_it_holds(place: Path, capsysbinary: Printed) -> None:
    (place / "docs" / "link.md").symlink_to("x.md")
    assert build() == exits.OK
    said = capsysbinary.readouterr()
    assert said.out == b"kb.json: 1 stance and 2 documents\n  not followed: link.md\n"
    assert said.err == b""
    assert [doc.source for doc in load_corpus("kb.json").docs] == ["guides/pay.md", "x.md"]


def test_a_build_as_json_has_the_id_and_digest_of_each_stance(place: Path, capsysbinary: Printed) -> None:
    assert main(["kb", "build", "--json", "--output=kb.json", "stances.json", "docs"]) == exits.OK
    shown = json.loads(capsysbinary.readouterr().out)
    [found] = load_corpus("kb.json").stances
    assert shown == {
        "path": "kb.json", "stances": [{"id": "paid-agents", "digest": found.digest}], "docs": 2, "skipped": [],
    }  # fmt: skip


def test_the_same_sources_give_the_same_bytes_and_a_folder_named_by_a_link_is_read(place: Path) -> None:
    assert build() == exits.OK
    first = (place / "kb.json").read_bytes()
    (place / "other").symlink_to("docs")
    assert main(["kb", "build", "stances.json", "other", "-o", "again.json"]) == exits.OK
    assert (place / "again.json").read_bytes() == first


def test_problems_are_all_listed_with_stance_and_line_and_the_old_file_stays(
    place: Path, capsysbinary: Printed
) -> None:
    assert build() == exits.OK
    before = (place / "kb.json").read_bytes()
    (place / "stances.json").write_bytes(written(stance(date="soon"), stance("b", answer="")))
    capsysbinary.readouterr()
    assert build() == exits.REFUSED
    said = capsysbinary.readouterr()
    assert said.out == b""
    assert b"line 2: paid-agents: `date`" in said.err
    assert b"line 3: b: `answer`" in said.err
    assert build("--json") == exits.REFUSED
    error = json.loads(capsysbinary.readouterr().err)["error"]
    assert [(one["entry"], one["line"]) for one in error["problems"]] == [("paid-agents", 2), ("b", 3)]
    assert (place / "kb.json").read_bytes() == before


def test_a_result_is_never_written_over_what_it_is_made_of(place: Path, capsysbinary: Printed) -> None:
    before = {path: path.read_bytes() for path in place.rglob("*") if path.is_file()}
    for target in ("stances.json", "./docs/../stances.json", "docs/x.md", "docs/new.md"):
        assert main(["kb", "build", "stances.json", "docs", "-o", target]) == exits.USAGE
        assert b"one of the sources" in capsysbinary.readouterr().err
    assert {path: path.read_bytes() for path in place.rglob("*") if path.is_file()} == before


@pytest.mark.parametrize(
    ("words", "named"),
    [
        (["none.json", "docs", "-o", "kb.json"], "none.json"),
        (["stances.json", "none", "-o", "kb.json"], "none"),
        (["stances.json", "stances.json", "-o", "kb.json"], "stances.json"),
        (["stances.json", "docs", "-o", "none/kb.json"], "none/kb.json"),
        (["stances.json", "docs", "-o", "docs"], "docs"),
    ],
)
def test_a_file_or_folder_that_is_not_there_is_refused_by_name(
    place: Path, words: list[str], named: str, capsysbinary: Printed
) -> None:
    assert main(["kb", "build", *words]) == exits.REFUSED
    assert named in capsysbinary.readouterr().err.decode()
    assert not (place / "kb.json").exists()


def test_a_search_shows_the_best_first_with_origin_and_score(place: Path, capsysbinary: Printed) -> None:
    build()
    capsysbinary.readouterr()
    assert main(["kb", "search", "kb.json", "Can agents be paid?"]) == exits.OK
    assert capsysbinary.readouterr().out.decode().splitlines() == [
        "  9  Paying agents (stance paid-agents, planned; reviewed 2026-08-25)",
        "     Not yet; the ledger comes first.",
        "  2  Paying (guides/pay.md)",
        "     How agents are paid.",
    ]
    assert main(["kb", "search", "kb.json", "Can agents be paid?", "--limit", "1", "--json"]) == exits.OK
    [found] = load_corpus("kb.json").stances
    assert json.loads(capsysbinary.readouterr().out) == {
        "hits": [
            {
                "kind": "stance", "title": "Paying agents", "body": "Not yet; the ledger comes first.",
                "state": "planned", "sources": ["docs/ledger.md"], "date": "2026-08-25", "score": 9,
                "id": "paid-agents", "digest": found.digest,
            }
        ]
    }  # fmt: skip


def test_the_note_is_printed_alone_and_nothing_where_nothing_is_strong_enough(
    place: Path, capsysbinary: Printed
) -> None:
    build()
    capsysbinary.readouterr()
    assert main(["kb", "search", "kb.json", "Can agents be paid?", "--note"]) == exits.OK
    note = capsysbinary.readouterr().out.decode()
    assert note.startswith("[From the OpenAgents knowledge base — ")
    assert note.endswith("- Paying agents (stance, planned; reviewed 2026-08-25): Not yet; the ledger comes first.]\n")
    assert main(["kb", "search", "kb.json", "ledger", "--note"]) == exits.OK
    assert capsysbinary.readouterr().out == b""
    assert main(["kb", "search", "kb.json", "ledger", "--note", "--json"]) == exits.OK
    shown = json.loads(capsysbinary.readouterr().out)
    assert shown["note"] is None
    assert len(shown["hits"]) == 1


def test_a_question_without_a_word_of_three_bytes_is_unsupported(place: Path, capsysbinary: Printed) -> None:
    build()
    capsysbinary.readouterr()
    assert main(["kb", "search", "kb.json", "a & b", "--json"]) == exits.REFUSED
    said = capsysbinary.readouterr()
    assert said.out == b""
    assert json.loads(said.err)["error"]["code"] == "unsupported"
    assert main(["kb", "search", "kb.json", "quaternion"]) == exits.OK
    assert b"Nothing" in capsysbinary.readouterr().out


@pytest.mark.parametrize(
    ("content", "told"),
    [(b'{"version": 2}', "use the newer program"), (b"[]", "knowledge kb build"), (None, "kb.json")],
)
def test_a_file_that_is_no_knowledge_base_is_refused(
    place: Path, content: bytes | None, told: str, capsysbinary: Printed
) -> None:
    if content is not None:
        (place / "kb.json").write_bytes(content)
    assert main(["kb", "search", "kb.json", "agents"]) == exits.REFUSED
    assert told in capsysbinary.readouterr().err.decode()


@pytest.mark.parametrize(
    ("words", "named"),
    [
        ([], "build or search"),
        (["biuld"], "did you mean build?"),
        (["build", "stances.json", "docs"], "-o FILE"),
        (["build", "stances.json", "-o", "kb.json"], "STANCES DOCS"),
        (["build", "stances.json", "docs", "-o"], "--output needs a value"),
        (["build", "stances.json", "docs", "more", "-o", "kb.json"], "'more'"),
        (["search", "kb.json"], "FILE QUERY"),
        (["search", "kb.json", "can", "agents"], "'agents'"),
        (["search", "kb.json", "agents", "--limit", "0"], "from 1 to 10"),
        (["search", "kb.json", "agents", "--limit", "11"], "from 1 to 10"),
        (["search", "kb.json", "agents", "--notes"], "did you mean --note?"),
    ],
)
def test_a_command_line_that_cannot_be_understood_says_what_would_do(
    place: Path, words: list[str], named: str, capsysbinary: Printed
) -> None:
    assert main(["kb", *words]) == exits.USAGE
    assert named in capsysbinary.readouterr().err.decode()
    assert not (place / "kb.json").exists()


def test_it_needs_no_owner_and_creates_no_state_directory(place: Path) -> None:
    env = {**os.environ, "KNOWLEDGE_STATE_DIR": str(place / "state")}
    for words in (["build", "stances.json", "docs", "-o", "kb.json"], ["search", "kb.json", "agents"]):
        done = subprocess.run(
            [sys.executable, "-m", "host_bridge", "kb", *words], env=env, capture_output=True, timeout=60, check=False
        )
        assert (done.returncode, done.stderr) == (0, b"")
    assert not (place / "state").exists()


def test_what_a_terminal_would_obey_does_not_reach_it(place: Path, capsysbinary: Printed) -> None:
    (place / "stances.json").write_bytes(written(stance(answer="agents \u001b[31m \u202e paid")))
    build()
    for words in ([], ["--json"], ["--note"]):
        capsysbinary.readouterr()
        assert main(["kb", "search", "kb.json", "Can agents be paid?", *words]) == exits.OK
        shown = capsysbinary.readouterr().out.decode()
        assert "\u001b" not in shown
        assert "\u202e" not in shown

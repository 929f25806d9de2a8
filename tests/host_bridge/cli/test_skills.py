"""``knowledge skills``: what is listed, and what an export writes and leaves alone."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from host_bridge.cli import exits, main, skills

CAPTURE, RECALL = "knowledge-capture", "knowledge-recall"


def files(folder: Path) -> list[str]:
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file())


@pytest.mark.parametrize("words", [[], ["list"]])
def test_the_list_has_each_skill_with_what_it_is_for(
    words: list[str], capsysbinary: pytest.CaptureFixture[bytes]
) -> None:
    assert main(["skills", *words]) == exits.OK
    shown = capsysbinary.readouterr().out.decode()
    for name in skills.names():
        assert f"{name}\n    {skills.description(name)}\n" in shown


def test_the_list_as_json_has_name_description_and_path(capsysbinary: pytest.CaptureFixture[bytes]) -> None:
    assert main(["skills", "--json"]) == exits.OK
    rows = json.loads(capsysbinary.readouterr().out)["skills"]
    assert [row["name"] for row in rows] == skills.names()
    for row in rows:
        assert Path(row["path"]).read_bytes() == skills.text(row["name"])
        assert row["description"] == skills.description(row["name"])


def test_an_export_copies_all_or_the_named_ones_byte_for_byte(
    tmp_path: Path, capsysbinary: pytest.CaptureFixture[bytes]
) -> None:
    assert main(["skills", "export", str(tmp_path / "some"), RECALL, CAPTURE, RECALL, "--json"]) == exits.OK
    exported = json.loads(capsysbinary.readouterr().out)["exported"]
    assert [row["name"] for row in exported] == [RECALL, CAPTURE]
    assert files(tmp_path / "some") == [f"{CAPTURE}/SKILL.md", f"{RECALL}/SKILL.md"]
    assert main(["skills", "export", str(tmp_path / "all")]) == exits.OK
    assert files(tmp_path / "all") == [f"{name}/SKILL.md" for name in skills.names()]
    for name in skills.names():
        assert (tmp_path / "all" / name / "SKILL.md").read_bytes() == skills.text(name)


def test_an_export_refuses_to_overwrite_and_then_writes_nothing_at_all(
    tmp_path: Path, capsysbinary: pytest.CaptureFixture[bytes]
) -> None:
    mine = tmp_path / RECALL / "SKILL.md"
    mine.parent.mkdir()
    mine.write_text("mine", "utf-8")
    assert main(["skills", "export", str(tmp_path)]) == exits.REFUSED
    said = capsysbinary.readouterr()
    assert said.out == b""
    assert str(mine) in said.err.decode()
    assert files(tmp_path) == [f"{RECALL}/SKILL.md"]
    assert mine.read_text("utf-8") == "mine"


def test_an_export_overwrites_when_told_to(tmp_path: Path) -> None:
    mine = tmp_path / RECALL / "SKILL.md"
    mine.parent.mkdir()
    mine.write_text("mine", "utf-8")
    assert main(["skills", "export", str(tmp_path), RECALL, "--overwrite"]) == exits.OK
    assert mine.read_bytes() == skills.text(RECALL)
    assert files(tmp_path) == [f"{RECALL}/SKILL.md"]


def test_an_export_onto_the_same_bytes_is_done_already(tmp_path: Path) -> None:
    assert main(["skills", "export", str(tmp_path), RECALL]) == exits.OK
    before = (tmp_path / RECALL / "SKILL.md").stat()
    assert main(["skills", "export", str(tmp_path)]) == exits.OK
    assert (tmp_path / RECALL / "SKILL.md").stat().st_ino == before.st_ino


def test_a_link_under_the_name_is_not_written_through(tmp_path: Path) -> None:
    elsewhere = tmp_path / "elsewhere"
    (tmp_path / RECALL).mkdir()
    os.symlink(elsewhere, tmp_path / RECALL / "SKILL.md")
    assert main(["skills", "export", str(tmp_path), RECALL]) == exits.REFUSED
    assert main(["skills", "export", str(tmp_path), RECALL, "--overwrite"]) == exits.OK
    assert not elsewhere.exists()
    assert not (tmp_path / RECALL / "SKILL.md").is_symlink()


def test_a_folder_that_cannot_be_made_is_said_by_its_path(
    tmp_path: Path, capsysbinary: pytest.CaptureFixture[bytes]
) -> None:
    (tmp_path / "file").write_text("", "utf-8")
    assert main(["skills", "export", str(tmp_path / "file")]) == exits.REFUSED
    assert str(tmp_path / "file") in capsysbinary.readouterr().err.decode()


@pytest.mark.parametrize(
    ("words", "named"),
    [
        (["export"], "needs a folder"),
        (["export", "x", "knowledge-nothing"], RECALL),
        (["show"], "'show'"),
        (["list", "more"], "'list'"),
        (["--overwrite"], "--overwrite"),
        (["--force"], "--force"),
    ],
)
def test_a_command_line_that_cannot_be_understood_says_what_would_do(
    words: list[str], named: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
    capsysbinary: pytest.CaptureFixture[bytes],
) -> None:  # fmt: skip
    monkeypatch.chdir(tmp_path)
    assert main(["skills", *words]) == exits.USAGE
    assert named in capsysbinary.readouterr().err.decode()
    assert files(tmp_path) == []

"""What the README and the pages in ``docs/`` say is tried out: code runs, data parses, links lead somewhere."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tomllib
import unicodedata
from dataclasses import dataclass
from pathlib import Path

import pytest
import yaml

from messages.errors import FailedClosed, InternalError, Refusal, Unavailable, all_error_classes
from tests.errors_page import page
from tests.tree import CHECKOUT, PACKAGES_ROOT

_FENCE = re.compile(r"^(?P<fence>`{3,})(?P<info>[^\n`]*)\n(?P<body>.*?)^(?P=fence)[ ]*$", re.MULTILINE | re.DOTALL)
_LINK = re.compile(r"(?<!!)\[[^\]\n]*\]\((?P<target>[^)\s]+)\)")
_MODULE = re.compile(r"`((?:messages|storage|actors|host_bridge|stress|tests)/[\w./]+)`")
_KNOWN = {"", "text", "sh", "python", "json", "yaml", "toml", "markdown"}


@dataclass(frozen=True, slots=True)
class Block:
    """One fenced block: what it is and where it stands."""

    language: str
    body: str
    where: str


def documents() -> list[Path]:
    return [CHECKOUT / "README.md", CHECKOUT / "CHANGELOG.md", *sorted((CHECKOUT / "docs").glob("*.md"))]


def blocks(path: Path) -> list[Block]:
    text = path.read_text("utf-8")
    return [
        Block(match["info"].strip(), match["body"], f"{path.name}:{text.count(chr(10), 0, match.start()) + 1}")
        for match in _FENCE.finditer(text)
    ]


def all_blocks(language: str) -> list[Block]:
    return [block for path in documents() for block in blocks(path) if block.language == language]


def anchors(text: str) -> set[str]:
    """The anchors of a page's headings, as common Markdown hosts make them."""
    plain = _FENCE.sub("", text)
    found = set()
    for heading in re.findall(r"^#{1,6} (.+?)\s*$", plain, re.MULTILINE):
        kept = [c for c in heading.lower() if c in " -_" or unicodedata.category(c)[0] in "LN"]
        found.add("".join(kept).replace(" ", "-"))
    return found


def test_every_code_block_names_a_language_that_is_checked() -> None:
    unknown = [block.where for path in documents() for block in blocks(path) if block.language not in _KNOWN]
    assert unknown == []


@pytest.mark.parametrize("path", [path for path in documents() if any(b.language == "python" for b in blocks(path))])
def test_the_python_blocks_of_a_page_run_in_their_order(path: Path, tmp_path: Path) -> None:
    program = "\n".join(
        f"# {block.where}\n{block.body}" for block in blocks(path) if block.language == "python"
    )
    environment = {**os.environ, "KNOWLEDGE_STATE_DIR": str(tmp_path / "state"), "PYTHONPATH": str(PACKAGES_ROOT)}
    ran = subprocess.run(
        [sys.executable, "-P", "-W", "error", "-c", program],
        cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=60, check=False,
    )
    assert ran.returncode == 0, f"{path.name}\n{ran.stdout}\n{ran.stderr}"


@pytest.mark.parametrize("block", all_blocks("json"), ids=lambda block: block.where)
def test_a_json_block_is_json(block: Block) -> None:
    lines = block.body.strip().splitlines()
    try:
        json.loads(block.body)
    except ValueError:
        for line in lines:
            json.loads(line)  # one object a line, as the host protocol has it


@pytest.mark.parametrize("block", all_blocks("yaml"), ids=lambda block: block.where)
def test_a_yaml_block_is_yaml(block: Block) -> None:
    assert yaml.safe_load(block.body) is not None


@pytest.mark.parametrize("block", all_blocks("toml"), ids=lambda block: block.where)
def test_a_toml_block_is_toml(block: Block) -> None:
    assert tomllib.loads(block.body)


@pytest.mark.parametrize("path", documents(), ids=lambda path: path.name)
def test_every_link_leads_somewhere(path: Path) -> None:
    text = path.read_text("utf-8")
    dead = []
    for match in _LINK.finditer(_FENCE.sub("", text)):
        file, _, anchor = match["target"].partition("#")
        if re.match(r"[a-z]+:", file):
            continue
        target = (path.parent / file).resolve() if file else path
        if not target.exists() or (anchor and anchor not in anchors(target.read_text("utf-8"))):
            dead.append(match["target"])
    assert dead == []


def test_every_page_is_linked_from_the_readme() -> None:
    readme = (CHECKOUT / "README.md").read_text("utf-8")
    missing = [path.name for path in sorted((CHECKOUT / "docs").glob("*.md")) if f"docs/{path.name}" not in readme]
    assert missing == []


def test_the_modules_that_the_pages_name_exist() -> None:
    missing = set()
    for path in documents():
        for name in _MODULE.findall(path.read_text("utf-8")):
            if not (CHECKOUT / name).exists() and not (PACKAGES_ROOT / name).exists():
                missing.add(f"{path.name}: {name}")
    assert missing == set()


def test_the_page_of_errors_is_the_one_made_from_the_classes() -> None:
    assert (CHECKOUT / "docs" / "errors.md").read_text("utf-8") == page(), "run: python -m tests.errors_page"


def test_every_error_class_stands_on_the_page_exactly_once() -> None:
    for cls in all_error_classes():
        assert page().count(f"\n| `{cls.code}` |") == 1
        assert issubclass(cls, Refusal | Unavailable | FailedClosed | InternalError)

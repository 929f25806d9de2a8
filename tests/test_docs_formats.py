"""The examples in ``docs/`` are read by the code that they describe."""

from __future__ import annotations

import json
import re
from typing import get_args

import pytest

from actors.events import EventType
from host_bridge.config import Configuration, parse_configuration
from messages.audience import parse_audience
from messages.host import METHODS, parse_params
from messages.operator import OPERATOR_METHODS, SUBSCRIBE
from messages.provider import PROVIDER_METHODS
from messages.system_memory import SYSTEM_MEMORY_METHODS
from storage.ontology import activate
from storage.records import ParsedRecord, parse_record
from storage.records._fields import ENVELOPE, OF_KIND
from tests.test_docs import Block, all_blocks
from tests.tree import CHECKOUT


def test_the_example_record_has_no_findings() -> None:
    records = [block for block in all_blocks("markdown") if block.body.startswith("---\n")]
    assert records
    for block in records:
        parsed = parse_record(block.body.encode(), "projects/garden-pilot.md")
        assert isinstance(parsed, ParsedRecord), block.where
        assert parsed.findings == ()


def test_every_key_of_a_record_is_described() -> None:
    page = (CHECKOUT / "docs" / "vault-format.md").read_text("utf-8")
    rows = "".join(line.split("|")[1] for line in page.splitlines() if line.startswith("| `"))
    keys = {*ENVELOPE, *(key for kind in OF_KIND.values() for key in kind), "format", "id", "kind", "revision"}
    assert keys - set(re.findall(r"`(\w+)`", rows)) == set()


def _is_ontology(block: Block) -> bool:
    return block.body.startswith("format: knowledge-ontology")


@pytest.mark.parametrize(
    "block", [block for block in all_blocks("yaml") if _is_ontology(block)], ids=lambda block: block.where
)
def test_an_example_ontology_activates(block: Block) -> None:
    activation = activate(block.body.encode())
    assert activation.issues == ()
    assert activation.sources[-1].valid


@pytest.mark.parametrize(
    "block", [block for block in all_blocks("yaml") if not _is_ontology(block)], ids=lambda block: block.where
)
def test_an_example_configuration_is_accepted(block: Block) -> None:
    parse_configuration(block.body)


def test_the_example_requests_and_audiences_are_accepted() -> None:
    seen = set()
    for block in all_blocks("json"):
        if block.where.startswith("host-protocol.md"):
            for line in block.body.splitlines():
                given = json.loads(line)
                if given.get("method") == "event":
                    assert set(given["params"]) == {"type", "partition"}
                    assert given["params"]["type"] in get_args(EventType)
                elif "method" in given:
                    parse_params(given["method"], given["params"])
                    seen.add(given["method"])
                else:
                    parse_audience(given)
    assert seen == set(METHODS)


def test_the_table_of_methods_is_the_protocols() -> None:
    page = (CHECKOUT / "docs" / "host-protocol.md").read_text("utf-8")
    assert re.findall(r"^\| `([\w.$/]+)` \|", page, re.MULTILINE) == [
        "initialize", "tools.list", "tools.call", "$/cancel", "shutdown", SUBSCRIBE, *PROVIDER_METHODS,
        *SYSTEM_MEMORY_METHODS, *OPERATOR_METHODS,
    ]  # fmt: skip


def test_the_table_of_operators_methods_names_the_scope_of_each() -> None:
    page = (CHECKOUT / "docs" / "host-protocol.md").read_text("utf-8")
    row = r"^\| `((?:operator|access|sessions)\.[\w.]+)` \| `(operator\.\w+)` \|"
    shown = dict(re.findall(row, page, re.MULTILINE))
    assert shown == {name: scope for name, (_, scope) in OPERATOR_METHODS.items()}


def test_every_section_of_the_configuration_is_said_to_have_an_effect_or_to_have_none() -> None:
    page = (CHECKOUT / "docs" / "operations.md").read_text("utf-8").partition("\n## Configuration\n")[2]
    working = re.findall(r"^\| `(\w+)` \|", page, re.MULTILINE)
    idle = page.partition("without effect in this version:")[2]
    waiting = re.findall(r"`(\w+)`", idle)
    there = {info.alias or name for name, info in Configuration.model_fields.items()}
    assert sorted([*working, *waiting]) == sorted(there)

"""What every tool of the catalogue answers to every kind of caller, through Python and MCP.

Source: stores-and-access.md (Caller authority, Conversation access, Stores), decisions.md section 6.
"""

from __future__ import annotations

import json
import os
import uuid
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Final, Literal, cast

import apsw
import pytest

from host_bridge.bridge import KnowledgeBridge
from host_bridge.cli.tool_help import EXAMPLES
from host_bridge.mcp import McpHost
from messages.audience import Audience, Conversation, OwnerPrivate
from messages.errors import KnowledgeError
from messages.json_types import JsonObject, JsonValue
from messages.tools import CATALOGUE
from storage.layout import Layout
from tests.host_bridge.mcp_session import Served, only_text
from tests.kit.leaks import nothing_left
from tests.kit.store import MAIN, items_of, open_bridge, remember, request_id, stores

AGENTS: Final = "agents: {list: [{id: main}, {id: unused}]}\n"
PAST: Final = datetime.now(UTC) - timedelta(seconds=1)
SECRET: Final = "quokka"
NO_GRANT: Final = Conversation("main", "chat:none", request_id(701))
TWIN: Final = Conversation("main", "chat:twin", request_id(705))
READ: Final = Conversation("main", "chat:read", request_id(702))
SAVE: Final = Conversation("main", "chat:save", request_id(703))
UNUSED: Final = Conversation("unused", "chat:read", request_id(704))
NOBODY: Final = cast(Audience, None)
REFUSED: Final[dict[str, tuple[Audience, str]]] = {
    "missing": (NOBODY, "audience_missing"),
    "sandboxed": (replace(MAIN, sandboxed=True), "sandboxed"),
    "sandboxed conversation with a grant": (replace(SAVE, sandboxed=True), "sandboxed"),
    "child of a sandboxed root": (OwnerPrivate("main", root=replace(MAIN, sandboxed=True)), "sandboxed"),
    "expired": (replace(MAIN, expires_at=PAST), "audience_stale"),
    "of an ended run": (replace(MAIN, run_id="ended"), "audience_stale"),
    "foreign agent": (OwnerPrivate("stranger"), "denied"),
    "foreign agent in a granted conversation": (replace(SAVE, agent="stranger"), "denied"),
    "foreign child": (OwnerPrivate("stranger", root=MAIN), "denied"),
    "sandboxed, and never used": (OwnerPrivate("unused", sandboxed=True), "sandboxed"),
}
ACCESS_CODES: Final = {code for _, code in REFUSED.values()} | {"read_only_grant", "writes_disabled", "internal"}
TOOLS: Final = sorted(CATALOGUE)
READS: Final = [name for name in TOOLS if CATALOGUE[name].action == "read"]
WRITES: Final = [name for name in TOOLS if CATALOGUE[name].action == "write"]
DoorName = Literal["python", "mcp"]


@dataclass(frozen=True, slots=True)
class Answer:
    """An answer, or a refusal's code with all that the caller is told."""

    code: str | None
    facts: JsonObject


@dataclass(frozen=True, slots=True)
class Site:
    """One runtime, its state directory, and what its owner keeps there, by the argument that would name it."""

    bridge: KnowledgeBridge
    host: McpHost
    state_dir: Path
    owned: JsonObject
    sessions: dict[Audience, Served] = field(default_factory=dict)

    def ask(self, door: DoorName, tool: str, arguments: JsonObject, audience: Audience) -> Answer:
        if door == "python":
            try:
                return Answer(None, self.bridge.call(tool, arguments, audience))
            except KnowledgeError as error:
                return Answer(error.code, {"message": error.message, **error.to_data()})
        if audience not in self.sessions:
            self.sessions[audience] = Served(self.host, audience=audience)
            self.sessions[audience].open()
        served = self.sessions[audience]
        served.request(1, "tools/call", {"name": tool, "arguments": arguments})
        result = served.result()
        facts: JsonObject = json.loads(only_text(result))
        return Answer(str(facts["code"]) if result.get("isError") else None, facts)

    def close(self) -> None:
        for served in self.sessions.values():
            served.close()
        self.host.close()

    def left(self) -> tuple[dict[str, bytes], dict[str, int]]:
        """Every file of the stores with its bytes, and the number of rows of every table, the registry's too."""
        home = Layout(self.state_dir).root
        databases = [Layout(self.state_dir).registry, *home.glob("stores/*/state.sqlite")]
        files = {
            str(path.relative_to(home)): path.read_bytes()
            for store in stores(self.state_dir)
            for folder, _, names in os.walk(store)
            for path in (Path(folder) / name for name in names if ".sqlite" not in name)
            if _stays(path)
        }
        return files, {f"{path}:{name}": count for path in databases for name, count in row_counts(path)}


def _stays(path: Path) -> bool:
    """Whether a file is no part of what Git, the index and the publisher make beside the requests."""
    return not any(part in (".git", "search") or part.startswith(".kr-") for part in path.parts)


KEPT: Final = frozenset(
    "publication history record partition upload store member binding conversation_grant assignment audit".split()
)
"""Tables that only requests write: what waits for Git or for a sync comes and goes by itself."""


def row_counts(database: Path) -> list[tuple[str, int]]:
    # Through the runtime's own library: a second SQLite in one process would drop the first one's locks.
    with closing(apsw.Connection(str(database), flags=apsw.SQLITE_OPEN_READONLY)) as connection:
        connection.set_busy_timeout(5_000)
        names = [str(name) for (name,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
        return [
            (name, int(str(connection.execute(f'SELECT count(*) FROM "{name}"').get)))
            for name in names
            if name in KEPT
        ]


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    with nothing_left(), open_bridge(tmp_path_factory.mktemp("site"), AGENTS) as bridge:
        yield from inhabited(bridge)


@pytest.fixture(scope="module")
def unwritable(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    folder = tmp_path_factory.mktemp("unwritable")
    with nothing_left():
        owned: JsonObject = {}
        with open_bridge(folder, AGENTS) as bridge:
            for made in inhabited(bridge):
                owned = made.owned
        with open_bridge(folder, AGENTS + "writesEnabled: false\n") as bridge:
            made = Site(bridge, McpHost(bridge), folder, owned)
            yield made
            made.close()


def inhabited(bridge: KnowledgeBridge) -> Iterator[Site]:
    [claim] = items_of(remember(bridge, f"The {SECRET} sleeps.", 1))
    found = bridge.call("knowledge_record", {"id": claim["id"], "includeEvidence": True}, MAIN)["record"]
    assert isinstance(found, dict)
    for agent, key, access in (("main", "chat:read", "read"), ("main", "chat:save", "read-save"),
                               ("unused", "chat:read", "read")):  # fmt: skip
        bridge.ask("access.grants.set", {"agent": agent, "sessionKey": key, "access": access})
    bridge.end_run("ended")
    owned: JsonObject = {"id": found["id"], "expectedHash": found["hash"], "query": SECRET}
    made = Site(bridge, McpHost(bridge), bridge.state_dir, owned)
    yield made
    made.close()


def aimed(tool: str, names: JsonObject) -> JsonObject:
    """The tool's documented example, under a new request id, pointed at ``names``."""

    def point(key: str, value: JsonValue) -> JsonValue:
        if key == "destination":
            return value  # Another record than the source, or the call is refused for that.
        if isinstance(value, dict):
            return {inner: point(inner, found) for inner, found in value.items()}
        if isinstance(value, list):
            return [point(key, found) for found in value]
        if key == "requestId":
            observes = tool in ("knowledge_mutation", "knowledge_resume")
            return names.get("requestId", request_id(1)) if observes else str(uuid.uuid4())
        return names.get(key, value)

    pointed = point("", EXAMPLES[tool])
    assert isinstance(pointed, dict)
    return pointed


def told(answer: Answer) -> str:
    return json.dumps(answer.facts).lower()


@pytest.fixture(params=["python", "mcp"])
def door(request: pytest.FixtureRequest) -> DoorName:
    return cast(DoorName, request.param)


@pytest.mark.parametrize("caller", REFUSED)
def test_a_caller_without_authority_is_denied_by_every_tool_and_leaves_nothing(
    site: Site, door: DoorName, caller: str
) -> None:
    audience, code = REFUSED[caller]
    before = site.left()
    for tool in TOOLS:
        answer = site.ask(door, tool, aimed(tool, site.owned), audience)
        assert (tool, answer.code, answer.facts["retry"]) == (tool, code, "never")
        assert set(answer.facts) == {"code", "retry", "message"}, tool
        assert not [kept for kept in site.owned.values() if str(kept) in told(answer)], tool
    assert site.left() == before


@pytest.mark.parametrize("tool", TOOLS)
def test_a_conversation_without_a_grant_reaches_its_own_partition_only_and_cannot_tell_what_the_owner_has(
    site: Site, door: DoorName, tool: str
) -> None:
    absent: JsonObject = {"id": request_id(8), "expectedHash": "0" * 64, "query": "absent", "requestId": request_id(9)}
    before = private_files(site)
    there = site.ask(door, tool, aimed(tool, site.owned), NO_GRANT)
    missing = site.ask(door, tool, aimed(tool, absent), TWIN)  # Its partition has had the same calls.
    assert SECRET not in told(there).replace(f'"query": "{SECRET}"', "")
    assert there.code == missing.code
    assert there.facts.keys() == missing.facts.keys()
    if there.code is not None:
        assert neutral(there, site.owned) == neutral(missing, absent)
    assert private_files(site) == before


def neutral(answer: Answer, names: JsonObject) -> str:
    text = told(answer).replace(request_id(1), "requestId")  # What the owner's mutation is asked by, by default.
    for name, value in names.items():
        text = text.replace(str(value), name)
    return text


def private_files(site: Site) -> dict[str, bytes]:
    return {name: data for name, data in site.left()[0].items() if "/private/" in name}


@pytest.mark.parametrize("granted", [READ, SAVE])
def test_a_grant_answers_every_read_as_the_owner_is_answered(site: Site, door: DoorName, granted: Audience) -> None:
    for tool in READS:
        arguments = aimed(tool, site.owned)
        answer, owners = (site.ask(door, tool, arguments, audience) for audience in (granted, MAIN))
        assert (tool, answer.code) == (tool, owners.code)
        assert answer.facts.keys() == owners.facts.keys(), tool
        if tool != "knowledge_status":  # It says whether this caller may save.
            assert answer == owners, tool
    assert not [name for name in site.left()[0] if str(cast(Conversation, granted).session_id) in name]


@pytest.mark.parametrize("audience", [READ, UNUSED], ids=["used", "never used"])
def test_a_read_grant_refuses_every_save_and_leaves_nothing(site: Site, door: DoorName, audience: Audience) -> None:
    before, count = site.left(), len(stores(site.state_dir))
    for tool in WRITES:
        answer = site.ask(door, tool, aimed(tool, site.owned), audience)
        assert (tool, answer.code, answer.facts.get("retry")) == (tool, "read_only_grant", "never")
        assert set(answer.facts) == {"code", "retry", "message"}
    assert len(stores(site.state_dir)) == count
    assert site.left() == before


@pytest.mark.parametrize("tool", WRITES)
def test_a_read_and_save_grant_saves_in_the_private_partition_and_makes_none_of_its_own(
    site: Site, door: DoorName, tool: str
) -> None:
    answer = site.ask(door, tool, aimed(tool, {**site.owned, "id": str(uuid.uuid4())}), SAVE)
    assert answer.code not in ACCESS_CODES
    assert not [name for name in site.left()[0] if SAVE.session_id in name]


@pytest.mark.parametrize("audience", [MAIN, NO_GRANT, SAVE], ids=["owner", "conversation", "granted"])
def test_with_writes_disabled_every_save_is_refused_and_leaves_nothing(
    unwritable: Site, door: DoorName, audience: Audience
) -> None:
    before = unwritable.left()
    for tool in WRITES:
        answer = unwritable.ask(door, tool, aimed(tool, unwritable.owned), audience)
        assert (tool, answer.code, answer.facts.get("retry")) == (tool, "writes_disabled", "never")
    assert unwritable.left() == before


def test_with_writes_disabled_every_read_is_answered(unwritable: Site, door: DoorName) -> None:
    for tool in READS:
        answer = unwritable.ask(door, tool, aimed(tool, unwritable.owned), MAIN)
        assert answer.code not in ACCESS_CODES, tool

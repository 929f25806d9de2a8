"""What the table of guards is made of, and the runtimes that its attempts are made on.

Every attempt runs on a real runtime: in the shared one where it changes nothing for the others, else in a copy of it.
"""

from __future__ import annotations

import importlib
import json
import re
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final

import pytest

from actors.runtime import RuntimeSettings
from host_bridge import bridge as door
from host_bridge.bridge import KnowledgeBridge
from host_bridge.config import Configuration, parse_configuration
from messages.audience import Audience, Conversation, OwnerPrivate, own_partition
from messages.errors import KnowledgeError
from messages.json_types import JsonObject
from storage.layout import Layout, StoreLayout
from storage.state.connection import Database
from tests.kit.store import GROUP, MAIN, items_of, remembering, request_id

SECRET: Final = "Zebrafish"
"""Stands in what the caller may not reach, and in nothing that a caller sends."""
RESEARCH: Final = OwnerPrivate("research")
OTHER: Final = Conversation("main", "chat:other", "44444444-4444-4444-8444-444444444444")
TEAM: Final = Conversation("main", "chat:team", "55555555-5555-4555-8555-555555555555")
AGENTS: Final = "agents: {list: [{id: main}, {id: research}]}\n"
Switch = Callable[[pytest.MonkeyPatch], None]


@dataclass(frozen=True, slots=True)
class Aim:
    """What the caller may not reach, by everything that names it."""

    id: str
    hash: str
    request_id: str
    path: str
    sha256: str


@dataclass(frozen=True, slots=True)
class World:
    """A running runtime and what lies in it. ``private`` is a claim of the owner, ``page`` a page of the same."""

    bridge: KnowledgeBridge
    private: Aim
    page: Aim
    own: Aim
    research: Aim

    def call(self, tool: str, arguments: JsonObject, audience: Audience | None = GROUP) -> str:
        """What a caller of a tool is told."""
        return json.dumps(self.bridge.call(f"knowledge_{tool}", arguments, audience))  # type: ignore[arg-type]

    @property
    def store(self) -> StoreLayout:
        """The store of the agent ``main``."""
        return self._store("main")

    @property
    def store_of_research(self) -> StoreLayout:
        return self._store("research")

    def _store(self, agent: str) -> StoreLayout:
        gate = self.bridge._runtime.gate
        if not gate.open():
            self.bridge.call("knowledge_status", {}, OwnerPrivate(agent))
        view = gate._current()
        vault_id = view.members[agent].vault_id
        assert vault_id is not None
        return view.layouts[vault_id]

    def folder(self, audience: Audience = GROUP) -> Path:
        return self.store.partition(own_partition(audience))


@dataclass(frozen=True, slots=True)
class Guard:
    """One check, by the name that it has in docs/access.md, and how it is switched off: the one place that makes it is
    replaced by one that is as lenient as can be."""

    name: str
    off: Switch


@dataclass(frozen=True, slots=True)
class Attempt:
    """``guards`` are all that stand in its way, in the order in which it meets them; each alone suffices.

    ``refused`` is the code with which it ends, ``""`` where it is answered without what it is after.
    """

    guards: tuple[str, ...]
    what: str
    run: Callable[[World], str]
    refused: str
    configuration: str = ""
    """Of a runtime of its own, which it gets with ``alone`` too: it leaves something behind."""
    alone: bool = False
    before: Callable[[StoreLayout], None] | None = None
    """What is done to the store of ``main``, in a state directory of its own, before the runtime starts."""
    reached: Callable[[str], bool] = field(default=lambda told: SECRET in told)

    @property
    def name(self) -> str:
        return f"{' + '.join(self.guards)}: {self.what}"


def patched(target: str, value: object) -> Switch:
    """The switch that replaces one name of the code: a module's, or a class's in it."""
    place, name = target.rsplit(".", 1)

    def switch(monkeypatch: pytest.MonkeyPatch) -> None:
        # Not by pytest's own reading of such a path: a package may offer a function by the name of its module.
        module, _, cls = place.rpartition(".") if place.rpartition(".")[2][0].isupper() else (place, "", "")
        owner = importlib.import_module(module)
        monkeypatch.setattr(getattr(owner, cls) if cls else owner, name, value)

    return switch


def without_partitions(*tables: str) -> Switch:
    """The switch that takes the condition on the partition out of every query of some tables, writes apart."""
    wanted = re.compile(rf"\b(FROM|JOIN) ({'|'.join(tables)})\b")
    condition = re.compile(r"\b((?:[a-z]\.)?(?:partition|key)) = (\?\d*)")

    def loosened(sql: str) -> str:
        if not wanted.search(sql) or not sql.lstrip().startswith("SELECT"):
            return sql
        return condition.sub(r"\2 IS NOT NULL", sql).replace("INDEXED BY upload_retained ", "")

    def switch(monkeypatch: pytest.MonkeyPatch) -> None:
        query, query_one, iterate = Database.query, Database.query_one, Database.iterate
        monkeypatch.setattr(Database, "query", lambda self, sql, p=(): query(self, loosened(sql), p))
        monkeypatch.setattr(Database, "query_one", lambda self, sql, p=(): query_one(self, loosened(sql), p))
        monkeypatch.setattr(Database, "iterate", lambda self, sql, p=(): iterate(self, loosened(sql), p))

    return switch


class Refused(Exception):
    """How an attempt says that it was refused where no typed error leaves the door; ``code`` is what is stable."""

    def __init__(self, code: str, answer: str = "") -> None:
        super().__init__(code)
        self.code = code
        self.answer = answer


def told(world: World, attempt: Attempt) -> tuple[str, str]:
    """The code of the refusal (``""``: none), and all that the caller is told."""
    try:
        return "", attempt.run(world)
    except Refused as refused:
        return refused.code, refused.answer
    except KnowledgeError as error:
        return error.code, json.dumps({"message": error.message, **error.to_data()})


# --- runtimes ---------------------------------------------------------------------------------------------------------


@contextmanager
def opened(state_dir: Path, configuration: str | Configuration = AGENTS) -> Iterator[KnowledgeBridge]:
    """The Python door without Git, which no attempt of these needs and each publication would start."""
    settings = door._settings

    def without_git(found: Configuration) -> RuntimeSettings:
        return replace(settings(found), git=False)

    config = parse_configuration(configuration) if isinstance(configuration, str) else configuration
    with pytest.MonkeyPatch.context() as monkeypatch:
        monkeypatch.setattr(door, "_settings", without_git)
        made = KnowledgeBridge(state_dir, config=config)
    with made:
        yield made


@dataclass(frozen=True, slots=True)
class Made:
    """A state directory that was left clean, to be copied."""

    state_dir: Path
    vault_id: str
    """Of the store of ``main``."""
    aims: tuple[Aim, Aim, Aim, Aim]

    @contextmanager
    def world(
        self, folder: Path, configuration: str = "", before: Callable[[StoreLayout], None] | None = None
    ) -> Iterator[World]:
        """A runtime on a copy, to which ``before`` is done first."""
        shutil.copytree(self.state_dir, folder)
        if before is not None:
            before(StoreLayout(Layout(folder).stores / self.vault_id))
        with opened(folder, configuration or AGENTS) as bridge:
            yield World(bridge, *self.aims)


def make(state_dir: Path) -> Made:
    """Two agents with private memory, two conversations with their own, and a grant."""
    with opened(state_dir) as bridge:
        private = saved(bridge, MAIN, f"{SECRET} sleeps.", 1)
        saved(bridge, OTHER, f"{SECRET} belongs to others.", 2)
        saved(bridge, OTHER, "They meet on Monday.", 6)
        saved(bridge, GROUP, "The fence is white.", 7)
        own = saved(bridge, GROUP, "The gate is green.", 3)
        research = saved(bridge, RESEARCH, f"{SECRET} is studied.", 4)
        body = f"{SECRET} eats."
        page: JsonObject = {"title": "Aquarium", "type": "project", "body": body, "requestId": request_id(5)}
        done = bridge.call("knowledge_save_page", page, MAIN)
        vault_id = str(bridge.call("knowledge_status", {}, MAIN)["vaultId"])
        for audience in (MAIN, GROUP):
            bridge.call("knowledge_grep", {"query": "sleeps"}, audience)  # each has its index file
        bridge.ask("access.grants.set", {"agent": "main", "sessionKey": "chat:team", "access": "read"})
        bridge.ask("access.grants.set", {"agent": "main", "sessionKey": "chat:team:open", "access": "read-save"})
        bridge.ask("access.grants.set", {"agent": "main", "sessionKey": "chat:wide", "access": "read-save"})
        bridge.ask("access.grants.set", {"agent": "main", "sessionKey": "chat:wide:narrow", "access": "read"})
    found = Aim(str(done["id"]), str(done["hash"]), request_id(5), private.path, private.sha256)
    return Made(state_dir, vault_id, (private, found, own, research))


def saved(bridge: KnowledgeBridge, audience: Audience, text: str, number: int) -> Aim:
    arguments = {**remembering(text), "requestId": request_id(number)}
    [item] = items_of(bridge.call("knowledge_remember", arguments, audience))
    found = bridge.call("knowledge_record", {"id": item["id"], "includeEvidence": True}, audience)["record"]
    assert isinstance(found, dict)
    evidence = found["evidence"]
    assert isinstance(evidence, list)
    [citation] = evidence
    assert isinstance(citation, dict)
    return Aim(
        str(item["id"]), str(item["hash"]), request_id(number), str(citation["path"]), str(citation["sha256"])
    )

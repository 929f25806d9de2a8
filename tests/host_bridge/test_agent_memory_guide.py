"""The guide's code runs as printed; and what it promises, in our own words, for where the guide is not at hand."""

from __future__ import annotations

import ast
import inspect
import os
import re
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any, Final

import pytest

import host_bridge
from host_bridge import KnowledgeBackend, KnowledgeMemory, make_recall_tool
from tests.host_bridge.guide import code_blocks, digest, guide_path
from tests.tree import PACKAGES_ROOT

RELEASED: Final = "selectools==1.3.0"

PLAIN: Final = {
    "3f9a161d2ee0": "the first sample",
    "4ba29871158b": "transient and persistent",
    "2c922b81fb58": "categories",
    "030953d8f36b": "the context",
    "4f8d1524bcee": "recall with its answer",
    "dad2d79cc059": "pruning",
    "8e6d486c90cb": "sanitizers",
    "bbc3b026d931": "retention",
    "102c75db2d0d": "conventions for categories",
    "5979ff9a157c": "what to flag",
    "79b505ac3501": "looking at what is stored",
}
BACKENDS: Final = {
    "d7eb1b3744dc": "a directory that a backend keeps",
    "4e9f3f5f4fcc": "a Supabase backend",
    "1097fd762932": "a Supabase backend on a table of one's own",
    "c6ee7738d4e3": "a Redis backend",
}
SIGNATURES: Final = {
    "441acc780bef": "the constructor",
    "c62ccdc828b5": "the methods",
    "0cbc7211701c": "the backend's protocol",
}
WITH_AGENT: Final = {
    "35caf6a18d9c": "the quick start",
    "0b64ae54d69b": "the tool by hand",
    "9c1c6c7f2c42": "an agent's configuration",
    "1d30d4cf988b": "beside sessions",
    "d42c1803c48b": "beside other memories",
    "dfcdfc7c6005": "a directory for each user",
    "7d02e897cc0b": "its tests",
}
_MODULES: Final = (
    "selectools", "selectools.knowledge", "selectools.knowledge_backends", "selectools.knowledge_sanitizers",
)  # fmt: skip


def blocks() -> list[str]:
    path = guide_path()
    return [] if path is None else code_blocks(path.read_text("utf-8"))


GUIDE: Final = {digest(block): block for block in blocks()}


def of_guide(known: str) -> str:
    if not GUIDE:
        pytest.skip("needs guide: agent-memory.md lies outside the repository")
    return GUIDE[known]


def test_every_block_of_the_guide_is_run_or_compared() -> None:
    of_guide(next(iter(GUIDE), ""))
    assert set(GUIDE) == {*PLAIN, *BACKENDS, *SIGNATURES, *WITH_AGENT}


@pytest.fixture
def scratch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty working directory, and the module names of the guide leading here."""
    monkeypatch.chdir(tmp_path)
    for name in _MODULES:
        monkeypatch.setitem(sys.modules, name, host_bridge)
    return tmp_path


@pytest.fixture
def names(scratch: Path) -> Iterator[dict[str, Any]]:
    """What the guide's shorter blocks take for granted; every memory is closed afterwards."""
    memory = KnowledgeMemory(storage_dir="./agent_memory")
    memory.remember("User prefers dark mode", category="preferences", persistent=True)
    found: dict[str, Any] = {"__name__": "guide", "KnowledgeMemory": KnowledgeMemory, "knowledge": memory}
    found["recall"] = make_recall_tool(memory).function
    yield found
    for value in [memory, *found.values()]:
        if isinstance(value, KnowledgeMemory):
            value.close()


def run_block(code: str, names: dict[str, Any]) -> None:
    exec(compile(code, "guide", "exec"), names)  # noqa: S102 - the guide's code is what is tested


@pytest.mark.parametrize("known", PLAIN, ids=PLAIN.get)
def test_a_sample_runs_as_printed(known: str, names: dict[str, Any]) -> None:
    run_block(of_guide(known), names)


def test_the_recall_sample_answers_what_it_says(names: dict[str, Any]) -> None:
    call, *lines = of_guide("4f8d1524bcee").splitlines()
    assert eval(call, names) == "\n".join(line.removeprefix("# ") for line in lines)  # noqa: S307 - as above


class Rows:
    """As much of a Supabase table as a backend asks of it."""

    def __init__(self) -> None:
        self.data: list[dict[str, object]] = []

    def __getattr__(self, name: str) -> object:
        return lambda *_, **__: self


@pytest.mark.parametrize("known", BACKENDS, ids=BACKENDS.get)
def test_a_backend_sample_runs_as_printed(
    known: str, names: dict[str, Any], scratch: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    code = of_guide(known)
    wanted = set(re.findall(r"[A-Z]\w+KnowledgeBackend", code))
    if "supabase" in code:
        module = ModuleType("supabase")
        vars(module).update(create_client=lambda *_: Rows())
        monkeypatch.setitem(sys.modules, "supabase", module)
    names.update({name: getattr(host_bridge, name) for name in wanted})
    names.update(client=Rows(), user_id="ana", SUPABASE_URL="https://example.org", SERVICE_ROLE_KEY="k")
    # The one path that is absolute is kept inside the scratch directory.
    run_block(code.replace('"/tmp/', f'"{scratch}/'), names)


@pytest.mark.parametrize("known", SIGNATURES, ids=SIGNATURES.get)
def test_a_signature_is_the_beginning_of_ours(known: str) -> None:
    tree = ast.parse(of_guide(known))
    owner = KnowledgeBackend if "Protocol" in of_guide(known) else KnowledgeMemory
    functions = [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)]
    assert functions
    for function in functions:
        theirs = [one.arg for one in function.args.args]
        defaults = [ast.literal_eval(one) for one in function.args.defaults]
        ours = list(inspect.signature(getattr(owner, function.name)).parameters.values())[: len(theirs)]
        assert [one.name for one in ours] == theirs
        given = [one.default for one in ours[len(theirs) - len(defaults) :]]
        assert given == defaults


# --- with the released package's Agent -----------------------------------------------------------------


@pytest.fixture(scope="module")
def released(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the released package and what it needs."""
    folder = tmp_path_factory.mktemp("released")
    command = [sys.executable, "-m", "pip", "install", "-q", "--disable-pip-version-check", "--target", str(folder)]
    ran = subprocess.run([*command, RELEASED], capture_output=True, text=True, timeout=600, check=False)
    if ran.returncode:
        pytest.skip(f"needs registry: {RELEASED} cannot be installed")
    return folder


_WITH_OURS: Final = """
import sys
sys.path.append(sys.argv[1])
import selectools, selectools.knowledge
from selectools.providers.stubs import LocalProvider
from host_bridge import KnowledgeMemory
for module in (selectools, selectools.knowledge):
    module.KnowledgeMemory = KnowledgeMemory
selectools.OpenAIProvider = LocalProvider
names = {name: getattr(selectools, name) for name in selectools.__all__ if hasattr(selectools, name)}
names.update(__name__="guide", LocalProvider=LocalProvider, KnowledgeMemory=KnowledgeMemory)
names["knowledge_memory"] = KnowledgeMemory("./by_hand")
exec(compile(sys.stdin.read(), "guide", "exec"), names)
for name, value in list(names.items()):
    if name.startswith("test_"):
        value()
if "create_agent_for_user" in names:
    names["agent"] = names["create_agent_for_user"]("ana")
agents = [value for value in names.values() if isinstance(value, selectools.Agent)]
for agent in agents:
    memory = agent.config.knowledge_memory
    tools = {tool.name: tool for tool in agent.tools}
    assert isinstance(memory, KnowledgeMemory) and {"remember", "recall"} <= set(tools), tools
    assert tools["remember"].function("User prefers dark mode", category="preferences", persistent="true")
    assert tools["recall"].function("dark") == "Found 1 memory:\\n1. [preferences] User prefers dark mode"
    agent.run([selectools.Message(role=selectools.Role.USER, content="hello")])
    said = [one.content for one in agent._history if one.role == selectools.Role.SYSTEM]
    assert any("[Long-term Memory]\\n## preferences\\n- User prefers dark mode" in one for one in said), said
    memory.clear()
print(len(agents))
"""


def with_ours(released: Path, code: str, folder: Path) -> int:
    """Run a block with the released package, our class in the place of its own; how many agents came of it."""
    ran = subprocess.run(
        [sys.executable, "-c", _WITH_OURS, str(released)],
        input=code, cwd=folder, env={**os.environ, "PYTHONPATH": str(PACKAGES_ROOT)},
        capture_output=True, text=True, timeout=100, check=False,
    )  # fmt: skip
    assert ran.returncode == 0, ran.stderr
    return int(ran.stdout.split()[-1])


@pytest.mark.slow
@pytest.mark.timeout(700)
@pytest.mark.parametrize("known", WITH_AGENT, ids=WITH_AGENT.get)
def test_a_sample_with_an_agent_runs_with_our_class_in_it(known: str, released: Path, tmp_path: Path) -> None:
    code = of_guide(known).replace("[...]", "[]")
    # The released package's graph memory has another name for its store than the guide.
    agents = with_ours(released, code.replace("store=SQLiteTripleStore", "storage=SQLiteTripleStore"), tmp_path)
    assert (agents > 0) == (known not in ("0b64ae54d69b", "7d02e897cc0b"))


@pytest.mark.slow
@pytest.mark.timeout(700)
def test_the_released_agent_takes_our_memory(released: Path, tmp_path: Path) -> None:
    code = textwrap.dedent("""
        first = Agent(
            tools=[], provider=LocalProvider(), memory=ConversationMemory(),
            config=AgentConfig(knowledge_memory=KnowledgeMemory("./one")),
        )
    """)
    assert with_ours(released, code, tmp_path) == 1


# --- the same in our own words ------------------------------------------------------------------------


def test_transient_knowledge_stands_in_the_log_alone_and_persistent_in_both(tmp_path: Path) -> None:
    with KnowledgeMemory(storage_dir=tmp_path) as memory:
        memory.remember("Chasing a memory leak", category="context", persistent=False)
        assert not (tmp_path / "MEMORY.md").exists()
        memory.remember("Speaks Portuguese", category="personal", persistent=True)
        assert (tmp_path / "MEMORY.md").read_text("utf-8") == "# Agent Memory\n\n## personal\n- Speaks Portuguese\n"
        [log] = (tmp_path / "logs").iterdir()
        assert re.fullmatch(r"\d{4}-\d{2}-\d{2}\.jsonl", log.name)
        logged = [(entry["content"], entry["persistent"]) for entry in memory.get_recent_entries()]
        assert logged == [("Chasing a memory leak", False), ("Speaks Portuguese", True)]


def test_facts_come_back_by_category_after_a_restart(tmp_path: Path) -> None:
    with KnowledgeMemory(storage_dir=tmp_path) as memory:
        for text, category in (("Lives in Porto", "personal"), ("Likes tea", "tastes"), ("Has a dog", "personal")):
            memory.remember(text, category=category, persistent=True)
    with KnowledgeMemory(storage_dir=tmp_path) as memory:
        assert memory.get_persistent_facts() == {"personal": ["Lives in Porto", "Has a dog"], "tastes": ["Likes tea"]}


def test_an_empty_section_is_left_out_of_the_context(tmp_path: Path) -> None:
    with KnowledgeMemory(storage_dir=tmp_path) as memory:
        assert memory.build_context() == ""
        memory.remember("Meeting at noon", category="context")
        assert memory.build_context().startswith("[Recent Memory]\n- [")
        memory.clear()
        memory.remember("Lives in Porto", persistent=True)
        assert memory.build_context() == "[Long-term Memory]\n## general\n- Lives in Porto"


def test_the_context_has_the_latest_entries_only(tmp_path: Path) -> None:
    with KnowledgeMemory(storage_dir=tmp_path, max_context_entries=2) as memory:
        for number in range(4):
            memory.remember(f"note {number}")
        lines = memory.build_context().splitlines()[1:]
    assert [line.rpartition(") ")[2] for line in lines] == ["note 2", "note 3"]


def test_clearing_logs_keeps_facts_and_clearing_keeps_nothing(tmp_path: Path) -> None:
    with KnowledgeMemory(storage_dir=tmp_path) as memory:
        memory.remember("Lives in Porto", persistent=True)
        memory.remember("passing")
        memory.clear_logs()
        assert (memory.get_persistent_facts(), memory.get_recent_entries()) == ({"general": ["Lives in Porto"]}, [])
        memory.clear()
        assert (memory.get_persistent_facts(), memory.build_context()) == ({}, "")


def test_stale_logs_are_pruned_before_a_context_is_built_and_facts_never(tmp_path: Path) -> None:
    (tmp_path / "logs").mkdir()
    old = tmp_path / "logs" / "2020-01-01.jsonl"
    old.write_text('{"timestamp": "2020-01-01T10:00:00Z", "category": "a", "content": "b", "persistent": false}\n')
    with KnowledgeMemory(storage_dir=tmp_path, max_log_days=30) as memory:
        memory.remember("Lives in Porto", persistent=True)
        assert memory.build_context() == "[Long-term Memory]\n## general\n- Lives in Porto"
        assert not old.exists()
        assert memory.prune_logs(max_days=0) == 0


def test_a_rejected_text_is_nowhere_and_a_changed_one_is_changed_everywhere(tmp_path: Path) -> None:
    def hook(text: str) -> str | None:
        return None if "password" in text else text.replace("tea", "coffee")

    with KnowledgeMemory(directory=tmp_path, pre_save=hook) as memory:
        assert memory.remember("my password is x", persistent=True) == ""
        assert list(tmp_path.rglob("*.*")) == []
        memory.remember("Likes tea", persistent=True)
    left = b"".join(path.read_bytes() for path in tmp_path.rglob("*") if path.is_file())
    assert (b"tea" in left, b"coffee" in left) == (False, True)


def test_equal_texts_with_different_delimiters_are_duplicates_once_they_are_sanitized(tmp_path: Path) -> None:
    sanitizers = [host_bridge.strip_surrogates, host_bridge.defang_delimiters]
    with KnowledgeMemory(directory=tmp_path, pre_save=sanitizers, dedupe=True, dedupe_threshold=1.0) as memory:
        assert memory.remember("--- plan ---")
        assert memory.remember("---plan---\ud800") == ""
        assert [entry.content for entry in memory.live_entries()] == ["— plan —"]

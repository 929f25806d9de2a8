"""The doors: a Python bridge in process, JSON-RPC over stdio and a Unix socket, MCP, and the command line.

Importing this package costs nothing: every thin client imports through it, and a thin client may use the
standard library only. Names are loaded when they are first asked for (DESIGN.md, The house).
"""

from __future__ import annotations

TYPE_CHECKING = False  # typing itself takes longer to import than a thin client may take to start

if TYPE_CHECKING:
    from host_bridge.bridge import KnowledgeBridge
    from host_bridge.knowledge_memory import KnowledgeMemory
    from host_bridge.memory_tools import add_memory_tools, make_recall_tool, make_remember_tool
    from storage.agent_memory import (
        FileKnowledgeStore,
        KnowledgeBackend,
        KnowledgeEntry,
        KnowledgeStore,
        PreSaveHook,
        RedisKnowledgeBackend,
        RedisKnowledgeStore,
        SQLiteKnowledgeStore,
        SupabaseKnowledgeBackend,
        SupabaseKnowledgeStore,
        dedupe_against,
        defang_delimiters,
        strip_surrogates,
    )

__all__ = [
    "FileKnowledgeStore",
    "KnowledgeBackend",
    "KnowledgeBridge",
    "KnowledgeEntry",
    "KnowledgeMemory",
    "KnowledgeStore",
    "PreSaveHook",
    "RedisKnowledgeBackend",
    "RedisKnowledgeStore",
    "SQLiteKnowledgeStore",
    "SupabaseKnowledgeBackend",
    "SupabaseKnowledgeStore",
    "__version__",
    "add_memory_tools",
    "dedupe_against",
    "defang_delimiters",
    "make_recall_tool",
    "make_remember_tool",
    "strip_surrogates",
]

__version__ = "0.1.0"

_HOMES = {
    "KnowledgeBridge": "host_bridge.bridge",
    "KnowledgeMemory": "host_bridge.knowledge_memory",
    "add_memory_tools": "host_bridge.memory_tools",
    "make_recall_tool": "host_bridge.memory_tools",
    "make_remember_tool": "host_bridge.memory_tools",
    "FileKnowledgeStore": "storage.agent_memory",
    "KnowledgeBackend": "storage.agent_memory",
    "KnowledgeEntry": "storage.agent_memory",
    "KnowledgeStore": "storage.agent_memory",
    "PreSaveHook": "storage.agent_memory",
    "RedisKnowledgeBackend": "storage.agent_memory",
    "RedisKnowledgeStore": "storage.agent_memory",
    "SupabaseKnowledgeBackend": "storage.agent_memory",
    "SupabaseKnowledgeStore": "storage.agent_memory",
    "SQLiteKnowledgeStore": "storage.agent_memory",
    "dedupe_against": "storage.agent_memory",
    "defang_delimiters": "storage.agent_memory",
    "strip_surrogates": "storage.agent_memory",
}


def __getattr__(name: str) -> object:
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    import importlib

    return getattr(importlib.import_module(home), name)


def __dir__() -> list[str]:
    return sorted(__all__)

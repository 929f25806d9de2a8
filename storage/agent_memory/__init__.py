"""Agent memory on disk: entries in a store, and ``MEMORY.md`` and daily logs that follow them.

Source: agent-memory.md, agent-memory-contract.md.
"""

from storage.agent_memory.archive import pack, restore, unpack
from storage.agent_memory.backends import RedisKnowledgeBackend, SupabaseKnowledgeBackend
from storage.agent_memory.context import Context, ContextBounds, build_context, first_kept_day
from storage.agent_memory.contract import KnowledgeBackend, KnowledgeStore
from storage.agent_memory.daily_logs import LogLine
from storage.agent_memory.directory import MemoryDirectory
from storage.agent_memory.entry import KnowledgeEntry, utc_now
from storage.agent_memory.file_store import FileKnowledgeStore
from storage.agent_memory.notes import Fact
from storage.agent_memory.redis_store import RedisKnowledgeStore
from storage.agent_memory.sanitizers import PreSaveHook, dedupe_against, defang_delimiters, strip_surrogates
from storage.agent_memory.sqlite_store import SQLiteKnowledgeStore
from storage.agent_memory.supabase_store import SupabaseKnowledgeStore

__all__ = [
    "Context",
    "ContextBounds",
    "Fact",
    "FileKnowledgeStore",
    "KnowledgeBackend",
    "KnowledgeEntry",
    "KnowledgeStore",
    "LogLine",
    "MemoryDirectory",
    "PreSaveHook",
    "RedisKnowledgeBackend",
    "RedisKnowledgeStore",
    "SQLiteKnowledgeStore",
    "SupabaseKnowledgeBackend",
    "SupabaseKnowledgeStore",
    "build_context",
    "dedupe_against",
    "defang_delimiters",
    "first_kept_day",
    "pack",
    "restore",
    "strip_surrogates",
    "unpack",
    "utc_now",
]

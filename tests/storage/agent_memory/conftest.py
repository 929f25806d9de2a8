"""The four stores, each with real things below it, and a clock that a test sets."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from itertools import count
from pathlib import Path
from typing import Final

import pytest
import redis

from storage.agent_memory import (
    FileKnowledgeStore,
    RedisKnowledgeStore,
    SQLiteKnowledgeStore,
    SupabaseKnowledgeStore,
)
from storage.agent_memory.contract import KnowledgeStore
from tests.kit.postgrest import KNOWLEDGE, Project, project
from tests.kit.redis_server import redis_url

__all__ = ["project", "redis_url"]

NOON: Final = datetime(2026, 3, 13, 12, 0, tzinfo=UTC)
STORES: Final = ("file", "sqlite", "redis", "supabase")
_PREFIXES: Final = count()


class Hands:
    """A clock that a test sets."""

    def __init__(self, now: datetime = NOON) -> None:
        self.now = now

    def __call__(self) -> datetime:
        return self.now


Opened = Callable[[], KnowledgeStore]
Fresh = Callable[[], Opened]


@pytest.fixture
def clock() -> Hands:
    return Hands()


@pytest.fixture(params=STORES)
def fresh(request: pytest.FixtureRequest, tmp_path: Path, clock: Hands) -> Fresh:
    """Each call makes a place without entries, and answers what opens it as another process would."""
    numbers = count()

    def made() -> Opened:
        place = tmp_path / f"place-{next(numbers)}"
        match request.param:
            case "file":
                return lambda: FileKnowledgeStore(place, now=clock)
            case "sqlite":
                return lambda: SQLiteKnowledgeStore(place / "knowledge.db", now=clock)
            case "redis":
                url = request.getfixturevalue("redis_url")
                prefix = f"of-{next(_PREFIXES)}"
                client = redis.Redis.from_url(url, decode_responses=True)
                request.addfinalizer(client.close)
                return lambda: RedisKnowledgeStore(client, prefix, now=clock)
            case _:
                of: Project = request.getfixturevalue("project")
                of.make("knowledge", KNOWLEDGE)
                supabase_client = of.client()
                return lambda: SupabaseKnowledgeStore(supabase_client, now=clock)

    return made


@pytest.fixture
def opened(fresh: Fresh) -> Opened:
    """One place without entries."""
    return fresh()


@pytest.fixture
def store(opened: Opened) -> KnowledgeStore:
    return opened()

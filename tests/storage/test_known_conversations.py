"""Conversations are known for ninety days and in a bounded number (decisions.md section 7)."""

from __future__ import annotations

from pathlib import Path

import pytest

from storage import known_conversations
from storage.known_conversations import KEPT_MS
from storage.layout import Layout
from storage.registry import Registry

NOW = 1_790_000_000_000


def test_a_conversation_is_known_until_ninety_days_after_it_called_last(tmp_path: Path) -> None:
    registry = Registry.open(Layout(tmp_path), at=NOW)
    registry.note_seen({("main", "old"): NOW, ("main", "kept"): NOW + 1, ("ben", "old"): NOW})
    registry.note_seen({("main", "old"): NOW - 5})
    assert registry.conversations("main") == {"kept": NOW + 1, "old": NOW}
    registry.note_seen({("main", "new"): NOW + KEPT_MS + 1})
    assert list(registry.conversations("main")) == ["new", "kept"]
    assert registry.conversations("ben") == {}
    registry.close()


def test_no_more_are_kept_than_the_limit_the_newest(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(known_conversations, "KNOWN_MAX", 3)
    registry = Registry.open(Layout(tmp_path), at=NOW)
    registry.note_seen({("main", f"chat:{n}"): NOW + n for n in range(5)})
    assert list(registry.conversations("main")) == ["chat:4", "chat:3", "chat:2"]
    registry.close()

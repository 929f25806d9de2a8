"""Tests of this folder sit at a store of their own."""

from __future__ import annotations

from tests.kit.desk_fixtures import desk, made_store

__all__ = ["desk", "made_store"]

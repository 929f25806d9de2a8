"""Attributes replaced for a block: how the bench looks into, or changes, what the product does."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager


@contextmanager
def replaced(owner: object, values: Mapping[str, object]) -> Iterator[None]:
    """``owner`` (a module or a class) has these attributes until the block ends, however it ends."""
    before = {name: getattr(owner, name) for name in values}
    try:
        for name, value in values.items():
            setattr(owner, name, value)
        yield
    finally:
        for name, value in before.items():
            setattr(owner, name, value)

"""Where the sources under test lie, in a checkout and beside an installed wheel alike."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Final

import messages

PACKAGES: Final = ("messages", "storage", "actors", "host_bridge")
"""The four packages, lowest first: each may import itself and what stands before it."""

PACKAGES_ROOT: Final = Path(messages.__file__).resolve().parent.parent
CHECKOUT: Final = Path(__file__).resolve().parent.parent


@dataclass(frozen=True, slots=True)
class Source:
    """One module of the house and its parsed text."""

    name: str
    path: Path
    is_package: bool
    tree: ast.Module


@cache
def sources() -> tuple[Source, ...]:
    """Every module of the four packages."""

    def walk() -> Iterator[Source]:
        for package in PACKAGES:
            for path in sorted((PACKAGES_ROOT / package).rglob("*.py")):
                parts = path.relative_to(PACKAGES_ROOT).with_suffix("").parts
                is_package = parts[-1] == "__init__"
                name = ".".join(parts[:-1] if is_package else parts)
                yield Source(name, path, is_package, ast.parse(path.read_text("utf-8"), str(path)))

    return tuple(walk())


@cache
def imports(source: Source) -> tuple[tuple[str, int], ...]:
    """Every module that ``source`` names in an import, with the line. ``from a import b`` gives ``a`` and ``a.b``."""
    return tuple(_imports(source))


def _imports(source: Source) -> Iterator[tuple[str, int]]:
    for node in ast.walk(source.tree):
        match node:
            case ast.Import(names=names):
                for alias in names:
                    yield alias.name, node.lineno
            case ast.ImportFrom(module=module, names=names, level=level):
                base = module or ""
                if level:
                    parent = source.name.split(".") if source.is_package else source.name.split(".")[:-1]
                    base = ".".join([*parent[: len(parent) - level + 1], *([module] if module else [])])
                yield base, node.lineno
                for alias in names:
                    yield f"{base}.{alias.name}", node.lineno

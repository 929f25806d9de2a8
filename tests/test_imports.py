"""The house's shape: imports run downwards only, and each layer keeps to its own tools."""

from __future__ import annotations

import ast
import importlib
import re

import pytest

from tests.tree import PACKAGES, PACKAGES_ROOT, Source, imports, sources

_OURS = {*PACKAGES, "tests", "stress"}
_SQL = re.compile(
    r"\s*(?:SELECT\s.+\sFROM\s|INSERT\s+(?:OR\s+\w+\s+)?INTO\s|UPDATE\s+\w+\s+SET\s|DELETE\s+FROM\s"
    r"|CREATE\s+(?:TABLE|INDEX|VIRTUAL|TRIGGER)\s|PRAGMA\s|BEGIN\s+IMMEDIATE)",
    re.DOTALL,
)


def _top(name: str) -> str:
    return name.partition(".")[0]


def _offences(package: str, allowed: set[str]) -> list[str]:
    return sorted(
        {
            f"{source.name}:{line} imports {name}"
            for source in sources()
            if _top(source.name) == package
            for name, line in imports(source)
            if _top(name) in _OURS and _top(name) not in allowed
        }
    )


@pytest.mark.parametrize("package", PACKAGES)
def test_a_package_imports_only_itself_and_what_lies_below(package: str) -> None:
    below = set(PACKAGES[: PACKAGES.index(package) + 1])
    assert _offences(package, below) == []


def test_every_package_has_modules_that_were_looked_at() -> None:
    assert {_top(source.name) for source in sources()} == set(PACKAGES)


def test_an_upward_import_would_be_found() -> None:
    tree = ast.parse("def late():\n    from host_bridge.cli import main\n")
    offender = Source("storage.offender", PACKAGES_ROOT / "storage" / "offender.py", False, tree)
    assert ("host_bridge.cli", 2) in list(imports(offender))


def test_a_relative_import_is_resolved_before_it_is_judged() -> None:
    tree = ast.parse("from . import files\nfrom ..state import connection\n")
    module = Source("storage.vault.scan", PACKAGES_ROOT / "storage" / "vault" / "scan.py", False, tree)
    assert {name for name, _ in imports(module)} == {
        "storage.vault",
        "storage.vault.files",
        "storage.state",
        "storage.state.connection",
    }


@pytest.mark.parametrize(
    ("package", "forbidden"),
    [
        ("messages", {"apsw", "sqlite3", "pykka", "git", "watchdog", "httpx", "mcp", "starlette", "rich", "typer"}),
        ("storage", {"pykka", "mcp", "starlette", "uvicorn", "rich", "typer"}),
        ("actors", {"apsw", "sqlite3", "git", "subprocess", "mcp", "starlette", "uvicorn", "rich", "typer"}),
    ],
)
def test_a_layer_keeps_to_its_own_tools(package: str, forbidden: set[str]) -> None:
    found = {
        f"{source.name}:{line} imports {name}"
        for source in sources()
        if _top(source.name) == package
        for name, line in imports(source)
        if _top(name) in forbidden
    }
    assert found == set()


def test_actors_hold_no_sql() -> None:
    found = [
        f"{source.name}:{node.lineno}"
        for source in sources()
        if _top(source.name) == "actors"
        for node in ast.walk(source.tree)
        if isinstance(node, ast.Constant)
        and isinstance(node.value, str)
        and _SQL.match(node.value)
    ]
    assert found == []


def test_the_sql_pattern_knows_sql_when_it_sees_it() -> None:
    for text in ("SELECT id FROM record WHERE id = ?", "INSERT INTO blob VALUES (?)", "PRAGMA user_version"):
        assert _SQL.match(text)
    assert not _SQL.match("Select a project from the list")


def test_a_private_module_is_imported_only_inside_its_own_package() -> None:
    found = {
        f"{source.name}:{line} imports {name}"
        for source in sources()
        for name, line in imports(source)
        if _top(name) in PACKAGES
        for index, part in enumerate(name.split("."))
        if re.fullmatch(r"_[a-z]\w*", part)
        and (PACKAGES_ROOT.joinpath(*name.split(".")[: index + 1]).with_suffix(".py")).exists()
        and not f"{source.name}.".startswith(".".join(name.split(".")[:index]) + ".")
    }
    assert found == set()


@pytest.mark.parametrize("package", PACKAGES)
def test_every_public_name_can_be_imported(package: str) -> None:
    missing = []
    for source in sources():
        if _top(source.name) == package and not source.name.endswith("__main__"):
            module = importlib.import_module(source.name)
            missing += [f"{source.name}.{name}" for name in getattr(module, "__all__", ()) if not hasattr(module, name)]
    assert missing == []

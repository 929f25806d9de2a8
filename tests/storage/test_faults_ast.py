"""Storage touches files, SQLite and Git only inside ``with effect(...)``, and the table of points is complete."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

import storage
from storage.fault_points import DERIVED_PARTS, all_fault_points, declared_name

ROOT = Path(storage.__file__).parent

OS_EFFECTS = frozenset(
    "open read pread write pwrite fsync fdatasync sync rename replace renames link symlink unlink remove mkdir "
    "makedirs rmdir removedirs stat lstat fstat listdir scandir walk fwalk statvfs fstatvfs truncate ftruncate chmod "
    "fchmod chown fchown utime readlink listxattr getxattr setxattr removexattr access mkfifo mknod system popen "
    "posix_spawn execv sendfile copy_file_range".split()
)
PATH_EFFECTS = frozenset(
    "read_text read_bytes write_text write_bytes mkdir rmdir unlink touch exists is_file is_dir is_symlink iterdir "
    "glob rglob stat lstat chmod rename symlink_to hardlink_to samefile resolve readlink".split()
)
SQLITE_EFFECTS = frozenset("execute executemany wal_checkpoint backup blobopen".split())
MODULES = {"os": OS_EFFECTS, "fcntl": None, "_libc": None, "shutil": None, "subprocess": None, "apsw": {"Connection"}}
# Functions that hold an effect without a point of their own: each of their callers is inside one.
INSIDE_THEIR_CALLERS = {
    "files.py": {"_walk", "_rename"},
}


class Calls(ast.NodeVisitor):
    """Calls that touch the outside world, with whether they lie inside ``with effect(...)``."""

    def __init__(self) -> None:
        self.outside: list[tuple[int, str, str]] = []
        self._depth = 0
        self._functions: list[str] = []
        self._kept: set[str] = set()

    def visit_Module(self, node: ast.Module) -> None:
        # ``self._statement = effect(name)``: an effect that is entered often is made once.
        self._kept = {
            target.attr
            for found in ast.walk(node)
            if isinstance(found, ast.Assign) and is_effect(found.value)
            for target in found.targets
            if isinstance(target, ast.Attribute)
        }
        self.generic_visit(node)

    def _keeps_one(self, expression: ast.expr) -> bool:
        return isinstance(expression, ast.Attribute) and expression.attr in self._kept

    def visit_FunctionDef(self, node: ast.FunctionDef) -> None:
        # A function defined inside an effect runs later, outside it.
        depth, self._depth = self._depth, 0
        self._functions.append(node.name)
        self.generic_visit(node)
        self._functions.pop()
        self._depth = depth

    def visit_With(self, node: ast.With) -> None:
        inside = any(is_effect(item.context_expr) or self._keeps_one(item.context_expr) for item in node.items)
        seen = False
        for item in node.items:
            # ``with effect("x"), open(y):`` - what follows the effect is inside it.
            self._depth += seen
            self.visit(item.context_expr)
            self._depth -= seen
            seen = seen or inside
        self._depth += inside
        for statement in node.body:
            self.visit(statement)
        self._depth -= inside

    def visit_Call(self, node: ast.Call) -> None:
        name = touched(node.func)
        if name is not None and not self._depth:
            self.outside.append((node.lineno, name, self._functions[-1] if self._functions else ""))
        self.generic_visit(node)


def is_effect(expression: ast.expr) -> bool:
    """Whether an expression makes the two points of an effect."""
    return isinstance(expression, ast.Call) and isinstance(expression.func, ast.Name) and expression.func.id == "effect"


def touched(function: ast.expr) -> str | None:
    """The name of an effect that a call has, ``None`` when it has none that we know."""
    if isinstance(function, ast.Name):
        return "open" if function.id == "open" else None
    if not isinstance(function, ast.Attribute):
        return None
    owner = function.value
    if isinstance(owner, ast.Name) and owner.id in MODULES:
        names = MODULES[owner.id]
        return f"{owner.id}.{function.attr}" if names is None or function.attr in names else None
    if isinstance(owner, ast.Name) and owner.id == "files":
        return None  # the file layer: its functions have their points inside
    if function.attr in SQLITE_EFFECTS and ast.unparse(owner).endswith(("connection", "cursor")):
        return f"{ast.unparse(owner)}.{function.attr}"
    if function.attr in PATH_EFFECTS and not isinstance(owner, ast.Constant):
        return f".{function.attr}"
    return None


def sources() -> Iterator[Path]:
    yield from sorted(ROOT.rglob("*.py"))


def violations(path: Path) -> list[str]:
    calls = Calls()
    calls.visit(ast.parse(path.read_text("utf-8")))
    relative = path.relative_to(ROOT).as_posix()
    exempt = INSIDE_THEIR_CALLERS.get(relative, set())
    return [
        f"{relative}:{line}: {name} in {function or 'the module'}"
        for line, name, function in calls.outside
        if function not in exempt
    ]


@pytest.mark.parametrize("path", list(sources()), ids=lambda path: path.relative_to(ROOT).as_posix())
def test_storage_touches_files_sqlite_and_git_only_inside_an_effect(path: Path) -> None:
    assert violations(path) == []


@pytest.mark.parametrize(
    "code",
    [
        "os.fsync(1)",
        "open('x')",
        "Path('x').read_text()",
        "connection.execute('x')",
        "with effect('a'):\n    pass\nos.unlink('x')",
        "with effect('a'):\n    def later(): os.unlink('x')",
        "with open('x'), effect('a'):\n    pass",
        "subprocess.run(['git'])",
    ],
)
def test_the_check_finds_an_effect_without_a_point(code: str) -> None:
    calls = Calls()
    calls.visit(ast.parse(code))
    assert calls.outside


@pytest.mark.parametrize(
    "code", ["with effect('a'):\n    os.fsync(1)", "with effect('a'), open('x'):\n    pass", "'a'.replace('b', 'c')"]
)
def test_the_check_accepts_an_effect_inside_a_point(code: str) -> None:
    calls = Calls()
    calls.visit(ast.parse(code))
    assert not calls.outside


@cache
def literals() -> tuple[tuple[str, str], ...]:
    """Every point that the code names literally, as the base names a handler sees, with where."""
    return tuple(_literals())


def _literals() -> Iterator[tuple[str, str]]:
    for path in sources():
        relative = path.relative_to(ROOT).as_posix()
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            if isinstance(node, ast.FunctionDef):
                for argument, default in zip(node.args.kwonlyargs, node.args.kw_defaults, strict=True):
                    if argument.arg == "at" and isinstance(default, ast.Constant):
                        yield str(default.value), relative
            if not isinstance(node, ast.Call):
                continue
            callee = node.func.id if isinstance(node.func, ast.Name) else getattr(node.func, "attr", "")
            if callee in ("effect", "point") and node.args and isinstance(node.args[0], ast.Constant):
                yield str(node.args[0].value), relative
            for keyword in node.keywords:
                value = keyword.value
                if not isinstance(value, ast.Constant) or not isinstance(value.value, str):
                    continue
                if keyword.arg == "at":
                    yield value.value, relative
                elif keyword.arg == "point":
                    yield from ((f"{value.value}.{part}", relative) for part in ("begin", "commit"))
                elif keyword.arg == "point_prefix":
                    yield f"{value.value}.statement", relative


def test_every_point_that_the_code_names_is_declared() -> None:
    names = all_fault_points()
    unknown = {
        f"{name} ({where})"
        for name, where in literals()
        if declared_name(name, names) is None and not any(f"{name}.{part}" in names for part in DERIVED_PARTS)
    }
    assert sorted(unknown) == []


def test_every_declared_point_is_named_by_the_code_and_explained() -> None:
    names = all_fault_points()
    used = {name for name, _ in literals()}
    prefixes = {name.removesuffix(".statement") for name in used if name.endswith(".statement")}
    used |= {f"{prefix}.{part}" for prefix in prefixes for part in ("open", "rollback", "checkpoint", "close", "copy")}
    used |= {f"{name}.{part}" for name in used for part in DERIVED_PARTS}
    unused = {name for name in names if name not in used and f"{name}.begin" not in used}
    assert sorted(unused) == []
    assert sorted(name for name, line in names.items() if not line) == []


def test_the_table_of_fault_points_is_printed_with_its_count() -> None:
    printed = subprocess.run(
        [sys.executable, "-m", "storage.fault_points"], capture_output=True, text=True, check=True, cwd=ROOT.parent
    ).stdout.splitlines()
    assert printed[-1] == f"{len(all_fault_points())} fault points"
    assert len(printed) == len(all_fault_points()) + 1
    assert any(line.startswith("accept.commit ") for line in printed)


def test_a_derived_part_belongs_to_the_point_it_is_derived_from() -> None:
    names = {"stage.file": "", "place.look": ""}
    assert declared_name("stage.file.write.after", names) == "stage.file"
    assert declared_name("place.look.lease.release", names) == "place.look"
    assert declared_name("nowhere.write", names) is None
    assert "write" in DERIVED_PARTS

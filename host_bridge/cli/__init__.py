"""The ``knowledge`` command. This module and what it needs before it dispatches is the standard library only.

Each subcommand is a module with ``run(arguments) -> exit status``, imported when it is called for.
"""

from __future__ import annotations

import os
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["main"]

_PACKAGES = ("actors", "messages", "storage")
_COMMANDS = {
    "adopt": "host_bridge.cli.adopt",
    "audience": "host_bridge.cli.audience",
    "backup": "host_bridge.cli.backup",
    "call": "host_bridge.cli.call",
    "conversation": "host_bridge.cli.conversation",
    "demo": "host_bridge.cli.demo",
    "doctor": "host_bridge.cli.doctor",
    "gate": "host_bridge.cli.gate",
    "grants": "host_bridge.cli.grants",
    "http": "host_bridge.cli.http",
    "inspect": "host_bridge.cli.inspect",
    "kb": "host_bridge.cli.kb",
    "maintenance": "host_bridge.cli.maintenance",
    "mcp": "host_bridge.cli.mcp",
    "memory": "host_bridge.cli.memory",
    "repair": "host_bridge.cli.repair",
    "restore": "host_bridge.cli.restore",
    "serve": "host_bridge.cli.serve",
    "skills": "host_bridge.cli.skills",
    "status": "host_bridge.cli.status",
    "stop": "host_bridge.cli.stop",
    "store": "host_bridge.cli.store",
    "stores": "host_bridge.cli.stores",
    "system-memory": "host_bridge.cli.system_memory",
    "ui": "host_bridge.cli.ui",
}


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command and return its exit status (``host_bridge.cli.exits``); never raises."""
    if sys.platform == "win32":
        sys.stderr.write("knowledge: Windows is not supported; Linux is, and macOS with scans instead of inotify.\n")
        return 2
    arguments = list(sys.argv[1:] if argv is None else argv)
    from host_bridge.cli import exits, output

    try:
        return _run(arguments)
    except output.Unwritten as error:
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)  # Python must not try once more while it shuts down
        output.complain(f"knowledge: the answer could not be written: {error}. What was asked may have been done.")
        return exits.UNKNOWN
    except KeyboardInterrupt:
        return 130
    except BrokenPipeError:
        # Whoever read our output has gone; Python must not complain about it once more while it shuts down.
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        return 0


def _run(arguments: list[str]) -> int:
    from host_bridge.cli import exits, output
    from host_bridge.cli.options import UsageError, near

    name = arguments[0] if arguments else "--help"
    if name == "--version":
        import host_bridge

        output.emit(f"knowledge {host_bridge.__version__}")
        return exits.OK
    if name in ("--help", "-h", "help"):
        from host_bridge.cli import help as teaching

        return teaching.show(arguments[1] if len(arguments) > 1 else None)
    if name not in _COMMANDS:
        output.complain(f"knowledge: there is no command {name!r}{near(name, _COMMANDS)}. Try: knowledge --help")
        return exits.USAGE
    if "--help" in arguments[1:]:
        from host_bridge.cli import help as teaching

        if name == "call" and not arguments[1].startswith("-"):
            return teaching.show_tool(arguments[1])
        return teaching.show(name)
    scattered = _scattered()
    if scattered is not None:
        output.complain(f"knowledge: {scattered}")
        return exits.DEFECT
    import importlib

    try:
        status: int = importlib.import_module(_COMMANDS[name]).run(arguments[1:])
    except UsageError as error:
        output.complain(f"knowledge {name}: {error}. Try: knowledge help {name}")
        return exits.USAGE
    return status


def _scattered() -> str | None:
    """What is wrong when the four packages do not lie side by side: one of somebody else's was found instead."""
    import host_bridge

    home = os.path.dirname(os.path.dirname(os.path.abspath(host_bridge.__file__ or "")))
    for name in _PACKAGES:
        if os.path.isfile(os.path.join(home, name, "__init__.py")) and _found_first(home, name):
            continue
        return (
            f"the package `{name}` that Python finds is not the one beside host_bridge in {home}. Install "
            "knowledge-runtime into an environment of its own (venv, pipx, uv tool), or start it with python -P."
        )
    return None


def _found_first(home: str, name: str) -> bool:
    """Whether no earlier entry of the import path holds a package or module of that name."""
    loaded = sys.modules.get(name)
    if loaded is not None:
        return os.path.dirname(os.path.dirname(os.path.abspath(loaded.__file__ or ""))) == home
    for entry in sys.path:
        folder = os.path.abspath(entry)
        if folder == home:
            return True
        found = os.path.join(folder, name)
        if os.path.exists(os.path.join(found, "__init__.py")) or os.path.exists(f"{found}.py"):
            return False
    return True

"""The doors: a Python bridge in process, JSON-RPC over stdio and a Unix socket, MCP, and the command line.

Importing this package costs nothing: every thin client imports through it, and a thin client may use the
standard library only. Names are loaded when they are first asked for (DESIGN.md, The house).
"""

from __future__ import annotations

TYPE_CHECKING = False  # typing itself takes longer to import than a thin client may take to start

if TYPE_CHECKING:
    from host_bridge.bridge import KnowledgeBridge
    from host_bridge.knowledge_memory import KnowledgeMemory

__all__ = ["KnowledgeBridge", "KnowledgeMemory", "__version__"]

__version__ = "0.1.0"


def __getattr__(name: str) -> object:
    if name == "KnowledgeBridge":
        from host_bridge.bridge import KnowledgeBridge

        return KnowledgeBridge
    if name == "KnowledgeMemory":
        from host_bridge.knowledge_memory import KnowledgeMemory

        return KnowledgeMemory
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)

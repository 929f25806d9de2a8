"""What crosses a mailbox or a door: audiences, calls, tool requests and responses, errors. Imports nothing of ours.

Modules, lightest first: :mod:`~messages.json_types`, :mod:`~messages.errors`, :mod:`~messages.vocabulary`,
:mod:`~messages.control` (standard library only); :mod:`~messages.audience`, :mod:`~messages.envelope`,
:mod:`~messages.tools`, :mod:`~messages.schemas`, :mod:`~messages.host` (pydantic). The names below are loaded when
they are first used, so that importing the package costs nothing.
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from messages.audience import Audience, Conversation, OwnerPrivate, parse_audience
    from messages.envelope import Call, Cancellation, Deadline
    from messages.errors import KnowledgeError
    from messages.tools import CATALOGUE, ToolRequest, ToolSpec, parse_arguments, payload_hash

__all__ = [
    "CATALOGUE",
    "Audience",
    "Call",
    "Cancellation",
    "Conversation",
    "Deadline",
    "KnowledgeError",
    "OwnerPrivate",
    "ToolRequest",
    "ToolSpec",
    "parse_arguments",
    "parse_audience",
    "payload_hash",
]

_HOMES = {
    "messages.audience": ("Audience", "Conversation", "OwnerPrivate", "parse_audience"),
    "messages.envelope": ("Call", "Cancellation", "Deadline"),
    "messages.errors": ("KnowledgeError",),
    "messages.tools": ("CATALOGUE", "ToolRequest", "ToolSpec", "parse_arguments", "payload_hash"),
}


def __getattr__(name: str) -> object:
    for module, names in _HOMES.items():
        if name in names:
            return getattr(import_module(module), name)
    raise AttributeError(f"module 'messages' has no attribute {name!r}")

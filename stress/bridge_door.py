"""The Python door: a client in the owner's own process."""

from __future__ import annotations

from host_bridge.bridge import KnowledgeBridge
from messages.audience import parse_audience
from messages.errors import KnowledgeError
from stress.doors import Outcome, ToolCall, refusal_of


class BridgeDoor:
    """Calls a bridge that somebody else opened and closes."""

    name = "bridge"
    surplus = 0

    def __init__(self, knowledge: KnowledgeBridge) -> None:
        self._knowledge = knowledge

    def call(self, call: ToolCall) -> Outcome:
        """One call, which is never cancelled."""
        try:
            caller = parse_audience(call.audience)
            result = self._knowledge.call(call.tool, call.arguments, caller, deadline_ms=call.deadline_ms)
        except KnowledgeError as error:
            return refusal_of({**error.to_data(), "message": error.message})
        return Outcome("ok", "never", result)

    def leave(self) -> None:
        """There is nothing to leave."""

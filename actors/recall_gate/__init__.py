"""The recall gate: asks the agent's Decision model, per user turn, which stored pages the message needs.

What is promised: exactly one answer and one log line a turn, within the turn's budget, whatever store and provider do;
nothing is sent or injected once access is gone; no stored text, title or message is logged, or forges the block.

Source: memory-provider.md (Recall gate), DESIGN.md (The tree), decisions.md section 7 (``recall.gate``).
"""

from actors.recall_gate.desk import Decisions, RecallDesk
from actors.recall_gate.gate import RECALL_GATE, RECALL_TURNS, RecallGate, children
from actors.recall_gate.places import TURNS_MAX, TURNS_OF_ONE_STORE_MAX, Places
from actors.recall_gate.settings import GateSettings

__all__ = [
    "RECALL_GATE",
    "RECALL_TURNS",
    "TURNS_MAX",
    "TURNS_OF_ONE_STORE_MAX",
    "Decisions",
    "GateSettings",
    "Places",
    "RecallDesk",
    "RecallGate",
    "children",
]

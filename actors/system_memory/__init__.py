"""System memory under supervision: one lane, its database, and what it tells the audit."""

from actors.system_memory.lane import LANE, NOTHING_RECALLED, OfAccount, OfSteward, SystemMemory
from actors.system_memory.stewarding import SystemMemorySettings

__all__ = [
    "LANE",
    "NOTHING_RECALLED",
    "OfAccount",
    "OfSteward",
    "SystemMemory",
    "SystemMemorySettings",
]

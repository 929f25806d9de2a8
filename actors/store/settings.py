"""What one store's actors are started with."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from actors.authority.gate import PermitGate
from actors.events import EventSink, Silence
from messages.vocabulary import HUB_PERCENTILE_DEFAULT
from storage.layout import StoreLayout
from storage.vault import ScanLimits

LOOK_ROUND_SECONDS: Final = 600.0
WATCH_TEST_SECONDS: Final = 10.0


@dataclass(frozen=True, slots=True)
class StoreSettings:
    """What a store needs to run; the same for every incarnation of its lane. Times in seconds."""

    vault_id: str
    layout: StoreLayout
    gate: PermitGate
    now_ms: Callable[[], int]
    limits: ScanLimits = field(default_factory=ScanLimits)
    git: bool = True
    hub_percentile: Callable[[], float] = lambda: HUB_PERCENTILE_DEFAULT
    """As the configuration says now; asked on the lane's thread."""
    workspace: Callable[[], Path | None] = lambda: None
    """The root of what ``knowledge_attach_file`` may retain, as the configuration says now."""
    tick: float = 2.0
    sync_at_entries: int = 256
    look_round: float = LOOK_ROUND_SECONDS
    """A slow look at the bytes of every file takes so long; 0: none. Ten minutes: a store lives so long after its last
    use, and 100,000 files are then a slice of 64 every 0.4 s, about 1 % of one core."""
    watch_test: float = WATCH_TEST_SECONDS
    """A watch that answers for requests is tested no more often than this: two folder entries made and removed."""
    events: EventSink = field(default_factory=Silence)

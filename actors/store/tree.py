"""The supervision tree of one store (DESIGN.md, The tree)."""

from __future__ import annotations

from functools import partial
from typing import Final

from actors.store.auditor import Auditor
from actors.store.helpers import EvidenceVerifier, FileSync, GitQueue, Indexer, Watcher
from actors.store.historian import Historian
from actors.store.lane import Lane
from actors.store.settings import StoreSettings
from actors.store.source_keeper import SourceKeeper
from actors.supervision import STORE_RESTARTS, ActorSettings, ChildSpec, InboxLimits, Supervisor

LANE_STOP_GRACE_SECONDS: Final = 5.0


def store_name(vault_id: str) -> str:
    """The name of a store's supervisor below the root."""
    return f"store {vault_id}"


def store_spec(settings: StoreSettings, inbox: InboxLimits) -> ChildSpec:
    """A supervisor with the lane first and the helpers after it; a lane that dies takes its helpers along."""
    helpers = (
        ChildSpec("git queue", partial(GitQueue, settings=settings)),
        ChildSpec("indexer", partial(Indexer, settings=settings)),
        ChildSpec("evidence verifier", partial(EvidenceVerifier, settings=settings)),
        ChildSpec("source keeper", partial(SourceKeeper, settings=settings)),
        ChildSpec("file sync", FileSync),
        ChildSpec("auditor", partial(Auditor, settings=settings)),
        ChildSpec("historian", partial(Historian, settings=settings)),
        ChildSpec("watcher", Watcher, stops_first=True),
    )
    children = (
        ChildSpec(
            "lane",
            partial(Lane, settings=settings),
            settings=ActorSettings(inbox=inbox, stop_grace=LANE_STOP_GRACE_SECONDS),
            on_give_up="escalate",
            drains_first=True,
        ),
        ChildSpec("helpers", partial(Supervisor, strategy="one_for_one", children=helpers), on_give_up="escalate"),
    )
    return ChildSpec(
        store_name(settings.vault_id),
        partial(Supervisor, strategy="rest_for_one", children=children),
        settings=ActorSettings(restarts=STORE_RESTARTS, label="The store"),
    )

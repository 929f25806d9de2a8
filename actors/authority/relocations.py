"""The registry's part in moving a store: is the move allowed, the switch itself, and what a crash left of one.

Source: decisions.md section 6 (Stores are moved only by ...).
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from actors.supervision import Request
from messages.errors import NotFound
from storage import relocation
from storage.layout import Layout, StoreLayout
from storage.registry import Registry
from storage.registry_audit import By
from storage.relocation import Move


@dataclass(frozen=True, slots=True)
class PlanMove(Request[Move]):
    """To the authority: may this store move there? Nothing is changed."""

    vault_id: str
    target: str


@dataclass(frozen=True, slots=True)
class SwitchStore(Request[StoreLayout]):
    """To the authority: the folder is at its new place; from now on the store lies there."""

    move: Move
    by: By


def plan(registry: Registry, message: PlanMove) -> Move:
    """The checked move. Raises what :func:`storage.relocation.plan_move` raises, and ``NotFound``."""
    entry = registry.entry(message.vault_id)
    if entry is None or not entry.made:
        raise NotFound("No store of that identity is registered here.", vaultId=message.vault_id)
    return relocation.plan_move(
        message.vault_id,
        entry.layout.root,
        Path(message.target),
        lambda place: registry.registered_around(message.vault_id, place),
    )


def switch(registry: Registry, move: Move, by: By) -> StoreLayout:
    """One durable transaction; the store's layout at its new place."""
    return registry.relocate(move.vault_id, move.target, by=by).layout


def recover(layout: Layout, registry: Registry, at: int) -> None:
    """End or undo a move that a crash cut short, before any store is opened."""

    def registered(vault_id: str) -> StoreLayout | None:
        entry = registry.entry(vault_id)
        return None if entry is None else entry.layout

    move = relocation.recover(layout, registered)
    if move is not None:
        switch(registry, move, By("recovery", "start", at))
        relocation.finish(layout, move)

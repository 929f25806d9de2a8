"""What a revocation owes to stores that nobody has open: saves that a crash cut short are finished before it answers.

A save happens at its journal commit. One that was accepted and not put in place stands in the journal until its store
is opened; a revocation that answered before that would be followed by it.

Source: decisions.md section 6 (A save happens at its journal commit).
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Final, Protocol, TypeVar

from actors.supervision import Clock, Reply
from messages.errors import FailedClosed, KnowledgeError, Quarantined, RevocationPending

SETTLE_SECONDS: Final = 10.0
POLL_SECONDS: Final = 0.02

R = TypeVar("R")


class Settled(Protocol):
    """What is known of stores. See :class:`actors.authority.PermitGate`."""

    def is_settled(self, vault_id: str) -> bool: ...

    def recovered(self, vault_id: str) -> None: ...


def settle(
    stores: Collection[str],
    gate: Settled,
    open_store: Callable[[str], Reply[R]],
    quarantined: Callable[[str], bool],
    clock: Clock,
) -> Reply[bool]:
    """Open these stores; answered when each has finished what its journal held, or serves nothing.

    One in quarantine, or that fails closed, commits nothing until a person has mended it. Fails with
    ``RevocationPending`` where a store is not settled within ``SETTLE_SECONDS``. Any thread; never blocks.
    """
    settled: Reply[bool] = Reply()
    until = clock.monotonic() + SETTLE_SECONDS

    def opened(vault_id: str, error: KnowledgeError | None) -> None:
        if isinstance(error, Quarantined | FailedClosed):
            gate.recovered(vault_id)

    def look() -> None:
        left = [vault_id for vault_id in stores if not gate.is_settled(vault_id)]
        for vault_id in left:
            if quarantined(vault_id):
                gate.recovered(vault_id)
        if not left:
            settled.succeed(True)
        elif clock.monotonic() >= until:
            settled.fail(
                RevocationPending(
                    "The access is closed to new calls, but a store that was left in the middle of a save could not "
                    "be opened; ask again to learn when it was."
                )
            )
        else:
            clock.call_later(POLL_SECONDS, look)

    def begin(vault_id: str) -> None:
        try:
            open_store(vault_id).add_done_callback(lambda reply: opened(vault_id, reply.error()))
        except KnowledgeError as error:
            opened(vault_id, error)

    for vault_id in stores:
        begin(vault_id)
    look()
    return settled

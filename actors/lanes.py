"""The way into a store's lane for somebody who holds a permit: open the store, then ask. Any thread; never blocks."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from actors.authority import Permit, PermitGate
from actors.directory import StoreDirectory, StoreHandle
from actors.replies import then
from actors.store.messages import RunTool
from actors.store.settings import StoreSettings
from actors.supervision import Reply
from messages.audience import Conversation, OwnerPrivate, own_partition
from messages.envelope import Cancellation, Deadline
from messages.json_types import JsonObject
from messages.tools import ToolRequest, WriteRequest
from storage.layout import StoreLayout


@dataclass(frozen=True, slots=True, kw_only=True)
class Errand:
    """One request for a lane, with the right to make it. ``size`` in bytes, as the mailbox counts it.

    ``share`` names a share of the mailbox beside the caller's own: what is asked on their behalf must not keep out
    what they ask themselves.
    """

    request: ToolRequest
    permit: Permit
    deadline: Deadline
    writes: bool = False
    size: int = 0
    cancellation: Cancellation = field(default_factory=Cancellation)
    correlation_id: str = ""
    share: str = ""


class Lanes:
    """Opens stores for permits and runs requests in their lanes."""

    def __init__(
        self, gate: PermitGate, stores: StoreDirectory, settings_of: Callable[[str, StoreLayout], StoreSettings]
    ) -> None:
        self._gate = gate
        self._stores = stores
        self._settings_of = settings_of

    def open(self, permit: Permit) -> Reply[StoreHandle]:
        """The store of a permit, opened. Raises ``StoreOpening`` when a move came between."""
        layout = self._gate.place_of(permit)
        return self._stores.open(permit.vault_id, self._settings_of(permit.vault_id, layout))

    def run(self, handle: StoreHandle, errand: Errand) -> Reply[JsonObject]:
        """Ask the lane of an open store."""
        caller = errand.permit.audience
        assert isinstance(caller, OwnerPrivate | Conversation), "lanes are asked for audiences only"
        return handle.ask(
            RunTool(errand.request, errand.permit, errand.writes),
            deadline=errand.deadline,
            # By who asks, not by what is reached: a conversation with a grant has a share of its own.
            fairness_key=f"{errand.share}{errand.permit.agent}:{own_partition(caller).key}",
            size=errand.size,
            cancellation=errand.cancellation,
            correlation_id=errand.correlation_id,
            request_key=errand.request.request_id if isinstance(errand.request, WriteRequest) else "",
        )

    def ask(self, errand: Errand) -> Reply[JsonObject]:
        """Open the store and ask its lane. What :meth:`open` raises is raised; all else comes through the reply."""
        answer: Reply[JsonObject] = Reply()

        def settle(done: Reply[JsonObject]) -> None:
            error = done.error()
            if error is None:
                answer.succeed(done.result(0))
            else:
                answer.fail(error)

        then(
            self.open(errand.permit),
            lambda handle: self.run(handle, errand).add_done_callback(settle),
            answer.fail,
        )
        return answer

"""Work on a store that must be at rest: it is stopped and held, a caretaker does the work, and it is let go again.

Nothing here blocks; what goes on between two replies runs on whichever thread answers.

Source: DESIGN.md (The tree), decisions.md section 6.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol, TypeVar

from actors.directory import StoreDirectory
from actors.replies import then
from actors.store.caretaker import caretaker_name, caretaker_spec
from actors.store.settings import StoreSettings
from actors.supervision import ActorHandle, Reply, Request, Tree
from messages.envelope import Deadline
from messages.errors import Cancelled, KnowledgeError
from messages.operator import OperatorCall

R = TypeVar("R")


class Waiting(Protocol):
    """Whose request waits for a store to rest. See :class:`actors.operators.PendingOperation`."""

    call: OperatorCall

    def begin(self) -> bool: ...

    def fail(self, error: KnowledgeError) -> None: ...


class RestingStores:
    """Holds stores down for caretakers. One for each runtime."""

    def __init__(self, tree: Tree, stores: StoreDirectory) -> None:
        self._tree = tree
        self._stores = stores

    def held(self, vault_id: str, pending: Waiting, proceed: Callable[[], None]) -> None:
        """Go on once the store is down and nobody can open it."""

        def down(_: bool) -> None:
            if pending.call.cancellation.requested:
                pending.fail(cancelled())
            if pending.begin():
                proceed()
            else:
                self._stores.release(vault_id)

        then(self._stores.hold(vault_id), down, pending.fail)

    def within(self, seconds: float) -> Deadline:
        """A deadline that is not the caller's: what was begun goes on."""
        return Deadline.after(seconds, self._tree.environment.clock.monotonic)

    def release(self, vault_id: str, settings: StoreSettings | None, proceed: Callable[[], None]) -> None:
        """Let the store be opened again, at its place in ``settings`` where they are given, then go on."""
        self._stores.release(vault_id, settings).add_done_callback(lambda _: proceed())

    def cared_for(
        self,
        vault_id: str,
        message: Request[R],
        seconds: float,
        succeed: Callable[[R], None],
        fail: Callable[[KnowledgeError], None],
    ) -> None:
        """Have a caretaker of its own do it: started for this one task and stopped after it."""
        root = self._tree.root

        def started(caretaker: ActorHandle) -> None:
            reply = caretaker.ask(message, deadline=self.within(seconds))

            def done(answered: Reply[R]) -> None:
                # Stopped before anything goes on: the next task's caretaker has the same name.
                stop = root.stop_child(caretaker_name(vault_id))
                stop.add_done_callback(lambda _: then(answered, succeed, fail))

            reply.add_done_callback(done)

        then(root.start_child(caretaker_spec(vault_id)), started, fail)


def cancelled() -> Cancelled:
    """The answer to who cancelled in time."""
    return Cancelled("The operator cancelled the request before it began; nothing was done.")

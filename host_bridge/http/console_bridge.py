"""The pages' way to the runtime: see :class:`host_bridge.http.console.Console`."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import aclosing
from dataclasses import dataclass
from typing import Final

from starlette.requests import Request

from host_bridge.dispatch import PreparedCall, prepare
from host_bridge.http.answers import answered
from host_bridge.http.asking import HttpService, Stop
from host_bridge.http.door import ASKED_KEY
from host_bridge.http.eventing import Heartbeat, heard
from host_bridge.http.methods import OPERATORS
from host_bridge.http.sessions import Session, Sessions
from host_bridge.transport import PendingAnswer
from messages.envelope import Deadline
from messages.errors import Cancelled, Denied, InvalidArgument
from messages.json_types import JsonObject
from messages.operator import Operator, SubscribeCall, Subscriber
from messages.vocabulary import DEADLINE_DEFAULT_MS

EXPLORER_DOOR: Final = "explorer"


@dataclass(frozen=True, slots=True)
class _OfSession:
    """An answer that may be given while the session stands to which it belongs."""

    pending: PendingAnswer
    stands: Callable[[], bool]

    def add_done_callback(self, callback: Callable[[PendingAnswer], None], /) -> None:
        self.pending.add_done_callback(callback)

    def deliver(self, hand_over: Callable[[JsonObject], None]) -> None:
        def checked(result: JsonObject) -> None:
            if not self.stands():
                raise no_session()
            hand_over(result)

        self.pending.deliver(checked)

    def cancel(self) -> None:
        self.pending.cancel()


class ConsoleBridge:
    """The console of one server."""

    def __init__(self, service: HttpService, sessions: Sessions, stop: Stop) -> None:
        self._service = service
        self._sessions = sessions
        self._stop = stop

    def operator(self, request: Request) -> Operator | None:
        """See :meth:`Console.operator`."""
        session = self._sessions.of(request.scope)
        return None if session is None else session.operator

    def csrf(self, request: Request) -> str:
        """See :meth:`Console.csrf`."""
        return self._session(request).csrf

    async def ask(self, request: Request, method: str, params: JsonObject) -> JsonObject:
        """See :meth:`Console.ask`."""
        session = self._session(request)
        self._stop.require_going()
        if method not in OPERATORS:
            raise InvalidArgument("There is no such method for pages.", field="method", reason="unknown")
        if params.get("operator") is not None:
            raise InvalidArgument("The session says who asks.", field="operator")
        call = prepare(
            self._service, method, params, caller=None, operator=session.operator, door=EXPLORER_DOOR
        )
        assert call is not None
        return await self._answer(call, request, session)

    async def _answer(self, call: PreparedCall, request: Request, session: Session) -> JsonObject:
        pending = _OfSession(call.submit(), lambda: self._sessions.of(request.scope) is session)
        if not await answered(pending, request.receive):
            raise Cancelled("The browser has left the page before the answer came.")
        taken: list[JsonObject] = []
        await asyncio.to_thread(pending.deliver, taken.append)
        # The page leaves under the leases of all that it was made of: see the door.
        request.scope.setdefault(ASKED_KEY, []).append(pending)
        return taken[0]

    async def events(self, request: Request, agent: str | None = None) -> AsyncIterator[JsonObject]:
        """See :meth:`Console.events`."""
        session = self._session(request)
        self._stop.require_going()
        call = SubscribeCall(
            Subscriber(operator=session.operator, agent=agent), Deadline.after(DEADLINE_DEFAULT_MS / 1000)
        )
        def still() -> bool:
            return self._sessions.of(request.scope) is session

        stream = heard(self._service, call, self._stop, request.receive, still)
        async with aclosing(stream):
            async for event in stream:
                if isinstance(event, Heartbeat):
                    yield {"type": "heartbeat"}
                    continue
                told: list[JsonObject] = []
                await asyncio.to_thread(event.deliver, told.append)
                for shown in told:
                    yield shown

    def _session(self, request: Request) -> Session:
        session = self._sessions.of(request.scope)
        if session is None:
            raise no_session()
        return session


def no_session() -> Denied:
    return Denied("This needs a session; open the pages with `knowledge ui`.", reason="no_session")


__all__ = ["ConsoleBridge"]

"""What a host's prompt gets: the words for its turn, and its session's standing index, in bounded time.

Nothing goes wrong with a prompt because of an index: what cannot be read, or not in time, is left out. Any thread;
never blocks, never creates a store.

Source: memory-provider.md (Memory prompt, Knowledge index), decisions.md section 7 (``prompt.build``).
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Final

from actors.authority import PermitGate, Unbound
from actors.calls import PendingCall
from actors.lanes import Errand, Lanes
from actors.supervision import Clock, Reply
from messages.envelope import Deadline
from messages.errors import AudienceMissing, KnowledgeError, Sandboxed
from messages.json_types import JsonObject
from messages.provider import PromptBuildRequest, PromptFacts, PromptWording, ProviderCall
from messages.provider.prompt import built
from messages.vocabulary import PRIVATE

INDEX_SECONDS: Final = 2.0
"""A turn waits no longer for its standing index, wherever it is held up: in a queue, or by a store that is opened."""


class Prompting:
    """Answers ``prompt.build`` of one runtime."""

    def __init__(self, gate: PermitGate, lanes: Lanes, clock: Clock, wording: PromptWording) -> None:
        self._gate = gate
        self._lanes = lanes
        self._clock = clock
        self._wording = wording

    def without_memory(self, pending: PendingCall, request: PromptBuildRequest) -> None:
        """Answer a session without memory authority: there is nothing that it may be told, and nothing to ask of it."""
        words = self._wording(request, PromptFacts(remembers=False, may_save=False))
        pending.answer(built(words, None), lambda: None)

    def start(self, pending: PendingCall, call: ProviderCall, request: PromptBuildRequest) -> None:
        """Word the prompt as access is when it is handed over; the index comes, or is left out, in bounded time."""

        def worded(facts: Callable[[], PromptFacts]) -> Callable[[JsonObject], JsonObject]:
            def shape(found: JsonObject) -> JsonObject:
                index = found["index"]
                return built(self._wording(request, facts()), index if isinstance(index, str) else None)

            return shape

        none: JsonObject = {"index": None}
        try:
            audience = self._gate.audience_of(call.audience)
            permit = self._gate.resolve(audience, write=False)
        except (AudienceMissing, Sandboxed):
            self.without_memory(pending, request)
            return

        def facts() -> PromptFacts:
            try:
                found = self._gate.resolve(audience, write=True)
            except KnowledgeError:
                return PromptFacts(remembers=True, may_save=False)
            return PromptFacts(remembers=True, may_save=isinstance(found, Unbound) or found.may_write)

        shape = worded(facts)
        if isinstance(permit, Unbound) or permit.partition != PRIVATE:
            pending.answer(none, partial(self._gate.resolve, audience, write=False), shape)
            return
        if not pending.claim():
            return
        answer: Reply[JsonObject] = Reply()
        pending.take(permit, answer, shape)
        seconds = max(0.0, min(INDEX_SECONDS, call.deadline.remaining(self._clock.monotonic)))
        overdue = self._clock.call_later(seconds, lambda: answer.succeed(none))
        answer.add_done_callback(lambda _: overdue.cancel())
        errand = Errand(
            request=request,
            permit=permit,
            deadline=Deadline.after(seconds, self._clock.monotonic),
            cancellation=call.cancellation,
            correlation_id=call.correlation_id,
        )

        def settle(done: Reply[JsonObject]) -> None:
            answer.succeed(none if done.error() is not None else done.result(0))

        try:
            self._lanes.ask(errand).add_done_callback(settle)
        except KnowledgeError:
            answer.succeed(none)

"""The gate: a permanent child of the root that gives each user turn an actor of its own: turns run side by side.

It waits for nobody: a turn is told of its end by whoever ends it, so that turns outlive a defect of the gate.

Source: DESIGN.md (The tree), memory-provider.md (Recall gate).
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from functools import partial
from typing import Final

from actors.authority import PermitGate
from actors.lanes import Lanes
from actors.recall_gate.places import Places
from actors.recall_gate.turn import TurnWork
from actors.recall_gate.turn_actor import RunTurn, TurnActor
from actors.replies import then
from actors.supervision import (
    ActorContext,
    ActorHandle,
    ActorSettings,
    ChildSpec,
    Envelope,
    GuardedActor,
    InboxLimits,
    Request,
    StartChild,
    Supervisor,
)
from messages.errors import Busy, InternalError

RECALL_GATE: Final = "recall gate"
RECALL_TURNS: Final = "recall turns"
"""The supervisor of the turns' actors, a sibling: a gate that is restarted finds the turns as they were."""

# Both only pass turns on: how many there are at once is bounded by their places.
_MANY: Final = ActorSettings(label="The recall gate", inbox=InboxLimits(requests=1_024, per_audience=1_024))
_TURN: Final = ActorSettings(label="The recall gate's turn", drain=1.0)


@dataclass(frozen=True, slots=True)
class BeginTurn(Request[bool]):
    """Start a turn. Answered once it has its place; its result comes through the turn."""

    work: TurnWork


def children(places: Places, lanes: Lanes, gate: PermitGate) -> tuple[ChildSpec, ChildSpec]:
    """What the root starts, in this order."""
    return (
        ChildSpec(RECALL_TURNS, partial(Supervisor, strategy="one_for_one"), settings=_MANY),
        ChildSpec(RECALL_GATE, partial(RecallGate, places=places, lanes=lanes, gate=gate), settings=_MANY),
    )


class RecallGate(GuardedActor):
    """Asks store handles only, through its turns. Refuses with ``Busy`` when no place is free."""

    def __init__(self, context: ActorContext, places: Places, lanes: Lanes, gate: PermitGate) -> None:
        super().__init__(context)
        self._places = places
        self._lanes = lanes
        self._gate = gate
        self._turns = context.ask_handle(RECALL_TURNS)
        self._numbers = itertools.count(1)

    def on_ask(self, message: object, envelope: Envelope) -> object:
        match message:
            case BeginTurn(work):
                self._start_turn(work)
                return True
            case _:
                raise InternalError(f"The recall gate takes no {type(message).__name__}.")

    def _start_turn(self, work: TurnWork) -> None:
        turn = work.turn
        place = self._places.take(work.permit.vault_id)
        if place is None:
            raise Busy("Too many turns ask the recall gate at once; this one goes on without it.")
        spec = ChildSpec(
            f"turn-{self.context.incarnation}-{next(self._numbers)}",
            partial(TurnActor, work=work, lanes=self._lanes, gate=self._gate, place=place),
            restart="temporary",
            settings=_TURN,
        )

        def run(handle: ActorHandle) -> None:
            asked = handle.ask(RunTurn(), deadline=work.deadline, correlation_id=turn.correlation_id)
            then(asked, lambda _: None, turn.fail)

        then(self._turns.ask(StartChild(spec), deadline=work.deadline), run, turn.fail)

"""The rows of access: the permit and every re-check of one save, by how many grants its agent has given."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from types import MappingProxyType
from typing import Final

from actors.authority import AuthorityView, Membership, Permit, PermitGate
from host_bridge.bridge import KnowledgeBridge
from messages.audience import Conversation
from messages.json_types import JsonObject
from storage.grants import Access
from storage.layout import StoreLayout
from stress.bench.measure import Contender, Row, Sample, interleave
from stress.bench.replacing import replaced
from stress.bench.store import MAIN, BenchStore, configuration, remembering

GRANTS: Final = (1, 1_000)
LIMIT_SECONDS: Final = 100e-6
REPEATS: Final = 10
"""Calls in one turn: a single one is near the clock's own grain."""
STEPS: Final = ("resolve", "check", "fence", "lease")
CALLER: Final = Conversation("main", "chat:group:1:topic:2", "33333333-3333-4333-8333-333333333333")


def cost(store: BenchStore, rounds: int) -> Iterator[Row]:
    """As many steps of the gate as one save through the door takes, on views with few and with many grants.

    Once with the epoch of the permit, which a check compares, and once with another one, on which it resolves again.
    """
    with KnowledgeBridge(store.state_dir, config=configuration()) as knowledge:
        steps = steps_of(knowledge, "knowledge_remember", remembering(1))
    taken = interleave(
        [
            Contender(f"{grants} {changed}", turn_of(gate_with(grants), steps, changed=changed))
            for grants in GRANTS
            for changed in (False, True)
        ],
        rounds,
    )
    counted = f"{steps['check']} re-checks"
    for grants in GRANTS:
        for changed in (False, True):
            times = [seconds / REPEATS for seconds in taken[f"{grants} {changed}"]]
            yield Row(
                f"permit and re-checks of a save, {grants:,} grant{'s' * (grants > 1)}"
                + (", another one changed meanwhile" if changed else ""),
                store.size, Sample.of(times), "", None, "<= 100 us", LIMIT_SECONDS, absolute=True, note=counted,
            )  # fmt: skip


def steps_of(knowledge: KnowledgeBridge, tool: str, arguments: JsonObject) -> Counter[str]:
    """How often one call takes each step of the gate, checks inside fence and lease included."""
    counted: Counter[str] = Counter()

    def counting(name: str) -> Callable[..., object]:
        step = getattr(PermitGate, name)

        def run(gate: PermitGate, *given: object, **named: object) -> object:
            counted[name] += 1
            return step(gate, *given, **named)

        return run

    with replaced(PermitGate, {name: counting(name) for name in STEPS}):
        knowledge.call(tool, arguments, MAIN)
    return counted


def gate_with(grants: int) -> PermitGate:
    """A gate on which an agent has given that many grants, one of them the caller's."""
    gate = PermitGate()
    keys = [CALLER.session_key.rpartition(":topic")[0], *(f"chat:group:{n}" for n in range(2, grants + 1))]
    given: dict[str, Access] = dict.fromkeys(keys, "read-save")
    vault = "22222222-2222-4222-8222-222222222222"
    gate.publish(
        AuthorityView(
            epoch=gate.next_epoch(),
            valid_until=float("inf"),
            writes_enabled=True,
            members=MappingProxyType({"main": Membership(vault)}),
            layouts=MappingProxyType({vault: StoreLayout(Path("nowhere"))}),
            grants=MappingProxyType({"main": MappingProxyType(given)}),
        )
    )
    return gate


def one_call(gate: PermitGate, steps: Counter[str], *, changed: bool) -> None:
    """The steps of one call, in their order; with ``changed`` the permit is of an earlier epoch."""
    permit = gate.resolve(CALLER, write=True)
    assert isinstance(permit, Permit)
    if changed:
        permit = earlier(permit)
    inside = steps["fence"] + steps["lease"]
    for _ in range(steps["check"] - inside):
        gate.check(permit, write=True)
    for _ in range(steps["fence"]):
        with gate.fence(permit):
            pass
    for _ in range(steps["lease"]):
        with gate.lease(permit):
            pass


def earlier(permit: Permit) -> Permit:
    """The same permit, of the epoch before: a re-check has to resolve it again."""
    return Permit(
        permit.audience, permit.agent, permit.vault_id, permit.partition, permit.may_write, permit.epoch - 1,
        permit.expires_at,
    )  # fmt: skip


def turn_of(gate: PermitGate, steps: Counter[str], *, changed: bool) -> Callable[[int], None]:
    def run(turn: int) -> None:
        for _ in range(REPEATS):
            one_call(gate, steps, changed=changed)

    return run


__all__ = ["GRANTS", "STEPS", "cost", "gate_with", "one_call", "steps_of"]

"""The guards of the authority: audiences, grants, permits, operators.

Source: stores-and-access.md (Caller authority, Conversation access), decisions.md section 6.
"""

from __future__ import annotations

import json
import unicodedata
import uuid
from collections.abc import Iterator, Mapping
from contextlib import nullcontext
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any, Final

import pytest

from actors.authority import authority
from actors.authority.policy import SharedStore, memberships
from actors.authority.view import covering_keys
from messages.arguments import Arguments
from messages.audience import Audience, Conversation, OwnerPrivate, parse_audience
from messages.envelope import Call, Deadline
from messages.errors import KnowledgeError
from messages.json_types import JsonObject
from messages.operator import Operator
from messages.vocabulary import PRIVATE
from storage import faults
from tests.host_bridge.guards.kit import AGENTS, RESEARCH, SECRET, TEAM, Attempt, Guard, World, patched
from tests.kit.store import GROUP, MAIN, remembering, request_id

EVERYTHING: Final = frozenset(("operator.read", "operator.write", "operator.admin"))
OPEN: Final = Conversation("main", "chat:team:open", "66666666-6666-4666-8666-666666666666")
BEFORE_COMMIT: Final = "stage.file.write.after"


def every_prefix(key: str) -> Iterator[str]:
    """As if ``:`` meant nothing in a key."""
    return (key[:length] for length in range(len(key), 0, -1))


def shortest_first(key: str) -> Iterator[str]:
    return iter(sorted(covering_keys(key), key=len))


def as_people_read(key: str) -> Iterator[str]:
    read = unicodedata.normalize("NFKC", key).casefold().replace("\u0430", "a").replace("\u200b", "").strip()
    return covering_keys(read)


def first_match(stores: Mapping[str, SharedStore]) -> dict[str, tuple[str, ...]]:
    return {agent: found[:1] for agent, found in memberships(stores).items()}


def lenient(cls: type[Arguments], value: object, /, **more: Any) -> Arguments:
    """As if names that nobody knows were passed over."""
    known = {info.alias or name for name, info in cls.model_fields.items()}
    assert isinstance(value, dict)
    kept = {name: member for name, member in value.items() if name in known}
    found: Arguments = super(Arguments, cls).model_validate(kept, **more)
    return found


def records(audience: Audience | None, **arguments: str) -> Any:
    return lambda world: world.call("records", {**arguments}, audience)


def saves(audience: Audience) -> Any:
    arguments: JsonObject = {**remembering("Forged."), "requestId": request_id(900)}
    return lambda world: world.call("remember", arguments, audience)


def asks(method: str, operator: Operator, **params: str) -> Any:
    return lambda world: json.dumps(world.bridge.ask(method, {**params}, operator=operator))


def is_saved(told: str) -> bool:
    return '"revision": 1' in told


def saved_while(point: str, audience: Conversation = OPEN) -> Any:
    """A save during which, at one point of it, its grant is taken away: what both are told."""

    def attempt(world: World) -> str:
        told: list[str] = []

        def revoke(reached: str) -> None:
            if reached == point and not told:
                told.append("revoked")
                removed: JsonObject = {"agent": "main", "sessionKey": audience.session_key}
                try:
                    world.bridge.ask("access.grants.remove", removed)
                except KnowledgeError as error:
                    told[:] = [error.code]

        with pytest.MonkeyPatch.context() as monkeypatch, faults.installed(revoke):
            monkeypatch.setattr(authority, "BARRIER_SECONDS", 0.05)
            saved = saves(audience)(world)
        return f"{told[0]} {saved}"

    return attempt


def read_then(world: World, audience: Audience, change: Any) -> str:
    """An answer that is ready, and is handed over after ``change``."""
    pending = world.bridge.submit(Call("knowledge_records", {}, audience, Deadline.after(30)))
    pending.wait()  # type: ignore[attr-defined]
    change()
    handed: list[JsonObject] = []
    pending.deliver(handed.append)
    return json.dumps(handed)


def answered_after_its_run(world: World) -> str:
    run = str(uuid.uuid4())
    return read_then(world, replace(MAIN, run_id=run), lambda: world.bridge.end_run(run))


def answered_after_its_erasure(world: World) -> str:
    chat = Conversation("main", "chat:passing", str(uuid.uuid4()))
    world.call("remember", {**remembering(f"{SECRET} was said."), "requestId": str(uuid.uuid4())}, chat)
    erased: JsonObject = {"agent": "main", "session": chat.session_id, "discardGit": True}
    return read_then(world, chat, lambda: world.bridge.ask("operator.eraseConversation", erased))


def run_ended_during_hand_over(world: World) -> str:
    """The bytes are being handed over when the run ends: what the end is told meanwhile."""
    run = str(uuid.uuid4())
    pending = world.bridge.submit(Call("knowledge_records", {}, replace(MAIN, run_id=run), Deadline.after(30)))
    pending.wait()  # type: ignore[attr-defined]

    def hand_over(answer: JsonObject) -> None:
        world.bridge.end_run(run)

    with pytest.MonkeyPatch.context() as monkeypatch:
        monkeypatch.setattr(authority, "BARRIER_SECONDS", 0.05)
        pending.deliver(hand_over)
    return "ended before the bytes had left"


def answered_without_an_authority(world: World) -> str:
    gate = world.bridge._runtime.gate
    with pytest.MonkeyPatch.context() as monkeypatch:
        return read_then(world, MAIN, lambda: monkeypatch.setattr(gate, "_monotonic", lambda: 1e12))


def ended_run(world: World) -> str:
    world.bridge.end_run("over")
    return world.call("records", {}, replace(MAIN, run_id="over"))


def in_the_first_of_two_stores(world: World) -> str:
    world.call("remember", {**remembering(f"{SECRET} is shared."), "requestId": request_id(50)}, RESEARCH)
    return world.call("records", {}, MAIN)


def misspelt_narrowing(world: World) -> str:
    return world.call("records", {}, parse_audience({"kind": "owner-private", "agent": "main", "sandbox": True}))


def ill_formed_audiences(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in ("runtime", "tool_calls", "providing"):
        patched(f"actors.{module}.require_well_formed", lambda audience: None)(monkeypatch)


GUARDS: Final = [
    # Where each kind of call is taken in: the one that an attempt makes, and the others.
    Guard("audience well-formed", ill_formed_audiences),
    Guard("audience there", patched("actors.authority.gate.require_audience", lambda audience: audience or MAIN)),
    Guard("not sandboxed", patched("actors.authority.view.is_sandboxed", lambda audience: False)),
    Guard("not expired", patched("actors.authority.view.earliest_expiry", lambda audience: None)),
    Guard("run not ended", patched("actors.authority.view.run_ids", lambda audience: frozenset())),
    Guard("agents known", patched("actors.authority.view._knows_delegates", lambda view, audience: True)),
    Guard("one store an agent", patched("actors.authority.authority.memberships", first_match)),
    Guard("own partition", patched("actors.authority.view.own_partition", lambda audience: PRIVATE)),
    Guard("grant at `:`", patched("actors.authority.view.covering_keys", every_prefix)),
    Guard("longest grant", patched("actors.authority.view.covering_keys", shortest_first)),
    Guard("keys as they are", patched("actors.authority.view.covering_keys", as_people_read)),
    Guard("grant of one agent", patched("actors.authority.view._grants_of", lambda view, agent: view.grants["main"])),
    Guard("read grant", patched("actors.tool_calls.require_may_save", lambda permit: None)),
    Guard("writes enabled", patched("actors.authority.view._require_writes_enabled", lambda view, write: None)),
    Guard("permit stands", patched("actors.authority.gate.PermitGate.check", lambda self, permit, *, write: None)),
    Guard("permit equal", patched("actors.authority.permit.Permit.covers", lambda self, other, *, write: True)),
    Guard("erased since", patched("actors.authority.gate.PermitGate.erase", lambda self, vault_id, partition: None)),
    Guard("commit fence", patched("actors.authority.gate.PermitGate.fence", lambda self, permit, left: nullcontext())),
    Guard("read lease", patched("actors.authority.gate.PermitGate.lease", lambda self, permit: nullcontext())),
    Guard("barrier", patched("actors.authority.authority.Authority._barrier", lambda self, envelope, answer: answer)),
    Guard("authority alive", patched("actors.authority.view.AuthorityView.vouched_for", lambda self, now: True)),
    Guard("operator's scope", patched("messages.operator.Operator.may", lambda self, scope: True)),
    Guard("operator's role", patched("messages.operator.Operator.sees", lambda self, *agents: True)),
    Guard("operatorRead", patched("actors.authority.view._require_operator_read", lambda view: None)),
    Guard("shared gateway", patched("actors.authority.view._require_sole_user", lambda view, operator, scope: None)),
    Guard("whole administrator", patched("actors.access.require_whole_admin", lambda call: None)),
    Guard("no unknown argument", patched("messages.arguments.Arguments.model_validate", classmethod(lenient))),
]

PAST: Final = datetime(2020, 1, 1, tzinfo=UTC)
STRANGER: Final = OwnerPrivate("stranger", root=MAIN)
SANDBOXED: Final = replace(MAIN, sandboxed=True)
ROLE: Final = Operator("limited", EVERYTHING, ("main",))
READER: Final = Operator("reader", frozenset(("operator.read",)))
UNREADABLE: Final = f"{AGENTS}operatorRead: false\n"
UNWRITABLE: Final = f"{AGENTS}writesEnabled: false\n"
TWICE: Final = f"{AGENTS}stores: {{one: {{agents: [research, main]}}, two: {{agents: [main]}}}}\n"


def chat(key: str, agent: str = "main") -> Conversation:
    return Conversation(agent, key, "77777777-7777-4777-8777-777777777777")


ATTEMPTS: Final = [
    Attempt(("audience well-formed", "audience there"), "no audience", records(None), "audience_missing"),
    Attempt(("not sandboxed",), "as the owner", records(SANDBOXED), "sandboxed"),
    Attempt(("not sandboxed",), "child", records(OwnerPrivate("main", root=SANDBOXED)), "sandboxed"),
    Attempt(("not expired",), "yesterday's audience", records(replace(MAIN, expires_at=PAST)), "audience_stale"),
    Attempt(("run not ended",), "audience of an ended run", ended_run, "audience_stale"),
    Attempt(("agents known",), "a stranger as a delegate", records(STRANGER), "denied"),
    Attempt(("one store an agent",), "first match", in_the_first_of_two_stores, "store_ambiguous", TWICE),
    Attempt(("own partition",), "a conversation without a grant", records(GROUP), ""),
    *(
        Attempt(("grant at `:`",), f"key {key!r}", records(chat(key)), "")
        for key in ("chat:teams", "chat:team2", "chat:team/1", "chat:team;1", "chat:team.1")
    ),
    Attempt(("longest grant",), "save below a narrower grant", saves(chat("chat:wide:narrow:1")), "read_only_grant",
            alone=True, reached=is_saved),
    *(
        Attempt(("keys as they are",), f"key {key!a}", records(chat(key)), "")
        for key in ("Chat:Team", "chat:te\u0430m", "chat:team\u200b", "chat\uff1ateam", "chat:team ", "chat:TEAM:1")
    ),
    Attempt(("grant of one agent",), "another agent's grant", records(chat("chat:team", "research")), ""),
    Attempt(("read grant",), "save under a grant to read", saves(TEAM), "read_only_grant", alone=True,
            reached=is_saved),
    Attempt(("writes enabled", "read grant"), "save", saves(MAIN), "writes_disabled", UNWRITABLE, reached=is_saved),
    Attempt(("permit stands",), "save after a revocation", saved_while(BEFORE_COMMIT), "denied", alone=True,
            reached=is_saved),
    Attempt(("permit equal",), "save after a revocation", saved_while(BEFORE_COMMIT), "denied", alone=True,
            reached=is_saved),
    Attempt(("commit fence",), "revocation inside a commit", saved_while("accept.commit"), "", alone=True,
            reached=lambda told: told.startswith("revoked ")),
    Attempt(("barrier",), "revocation inside a commit", saved_while("accept.commit"), "", alone=True,
            reached=lambda told: told.startswith("revoked ")),
    Attempt(("read lease",), "answer after the end of its run", answered_after_its_run, "audience_stale"),
    Attempt(("read lease",), "end of a run during the hand-over", run_ended_during_hand_over, "revocation_pending",
            reached=lambda told: told.startswith("ended ")),
    Attempt(("erased since",), "answer after an erasure", answered_after_its_erasure, "denied"),
    Attempt(("authority alive",), "answer without an authority", answered_without_an_authority, "restarting"),
    Attempt(("operator's scope",), "no scope", asks("operator.records", Operator("nobody", frozenset())), "denied"),
    Attempt(("operator's role",), "another's agent", asks("operator.records", ROLE, agent="research"), "denied"),
    Attempt(("operator's role",), "another's grants", asks("access.grants.list", ROLE, agent="research"), "denied",
            reached=lambda told: '"grants"' in told),
    Attempt(("operator's role",), "another's store", asks("access.stores.list", ROLE), "",
            reached=lambda told: '"research"' in told),
    Attempt(("operatorRead",), "reader", asks("operator.records", READER), "denied", UNREADABLE),
    Attempt(("shared gateway",), "reader", asks("operator.records", READER), "denied",
            f"{AGENTS}gateway: {{shared: true}}\n"),
    Attempt(("whole administrator",), "audit", asks("access.audit", ROLE), "denied",
            reached=lambda told: '"rows"' in told),
    *(
        Attempt(("no unknown argument",), f"argument {name}", records(GROUP, **{name: "private"}), "invalid_argument",
                reached=lambda told: '"records"' in told)
        for name in ("scope", "partition", "store", "sessionId", "agent")
    ),
    Attempt(("no unknown argument",), "misspelt narrowing of an audience", misspelt_narrowing, "invalid_argument"),
]  # fmt: skip

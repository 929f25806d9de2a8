"""The Python door: the runtime in process, under the same owner lock as every other door.

::

    with KnowledgeBridge(state_dir) as knowledge:
        knowledge.call("knowledge_remember", {...}, OwnerPrivate("main"))

Source: decisions.md sections 7 and 8, DESIGN.md (One request).
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from types import MappingProxyType
from typing import Literal, Protocol

from actors.authority import Policy, SharedStore
from actors.calls import PendingCall
from actors.events import PendingEvent, Subscription
from actors.maintenance import Schedule
from actors.operators import PendingOperation
from actors.recall_gate import GateSettings
from actors.runtime import Runtime, RuntimeSettings
from actors.system_memory import SystemMemorySettings
from host_bridge.config import Configuration, ConfigurationFile
from host_bridge.decisions import DecisionProviders
from host_bridge.memberships import MembershipFile
from host_bridge.owner.lock import OwnerLock, take_owner_lock
from host_bridge.provider.flush import FLUSH_PROMPT
from host_bridge.provider.prompt import prompt_words
from messages.audience import Audience, AudienceToken, Caller
from messages.envelope import Call, Deadline
from messages.errors import InvalidArgument, Stopping
from messages.json_types import JsonObject
from messages.operator import (
    LOCAL_OPERATOR,
    OPERATOR_METHODS,
    Operator,
    OperatorCall,
    SubscribeCall,
    parse_operator_call,
)
from messages.provider import PROVIDER_METHODS, ProviderCall, parse_provider_call
from messages.schemas import export_tools
from messages.system_memory import (
    STEWARD_METHODS,
    SYSTEM_MEMORY_METHODS,
    StewardCall,
    SystemMemoryCall,
    parse_steward_call,
    parse_system_memory_call,
)
from messages.vocabulary import DEADLINE_DEFAULT_MS, DEADLINE_MAX_MS
from storage.knowledge_base import load_corpus
from storage.layout import Layout, resolve_state_dir

ToolFormat = Literal["mcp", "openai", "openai-strict", "anthropic"]


class PendingAnswer(Protocol):
    """A submitted call. Any thread."""

    def add_done_callback(self, callback: Callable[[PendingCall], None], /) -> None:
        """Run the callback once the answer is there; it must not block."""

    def deliver(self, hand_over: Callable[[JsonObject], None]) -> None:
        """Hand the answer over under the read lease, or raise its typed error."""

    def cancel(self) -> None:
        """Ask for the call to end before it is accepted."""


class KnowledgeBridge:
    """All of Knowledge for one state directory. Any thread; close it, or use it as a context manager.

    Raises at construction: ``OpenElsewhere`` (another process owns the directory), ``StoreUnavailable`` (the lock
    cannot be held there), ``InvalidArgument`` (a broken configuration, by line).
    """

    def __init__(
        self,
        state_dir: Path | str | None = None,
        *,
        config: Configuration | None = None,
        owner_lock: OwnerLock | None = None,
    ) -> None:
        """``config`` replaces the file and is not watched; ``owner_lock`` is one that the caller holds and keeps."""
        explicit = None if state_dir is None else Path(state_dir)
        self._layout = Layout(resolve_state_dir(explicit))
        self._file = None if config is not None else ConfigurationFile(self._layout.configuration)
        self._fixed = config
        self._policy_of: tuple[Configuration, Policy] | None = None
        self._own_lock = take_owner_lock(self._layout.root) if owner_lock is None else None
        self._decisions = DecisionProviders(lambda: self.configuration)
        try:
            self._runtime = Runtime(
                self._layout,
                policy=self._policy,
                settings=_settings(self.configuration),
                maintenance=self._schedule,
                hub_percentile=lambda: self.configuration.page_budgets.hub_percentile,
                workspace=lambda: self.configuration.workspace,
                flush_prompt=lambda: FLUSH_PROMPT,
                recall_gate=self._recall_gate,
                decisions=self._decisions.for_agent,
                memberships=None
                if self._file is None
                else MembershipFile(self._layout.configuration, self._file.take_over),
                prompt_wording=prompt_words,
                system_memory=self._system_memory,
                problems=self._problems,
            )
        except BaseException:
            self._release()
            raise

    @property
    def state_dir(self) -> Path:
        """The state directory, absolute."""
        return self._layout.state_dir

    @property
    def configuration(self) -> Configuration:
        """The configuration in force."""
        if self._fixed is not None:
            return self._fixed
        assert self._file is not None
        return self._file.current

    def call(
        self,
        tool: str,
        arguments: JsonObject,
        audience: Caller,
        *,
        deadline_ms: int = DEADLINE_DEFAULT_MS,
        flush_id: str | None = None,
    ) -> JsonObject:
        """The tool's agent response. Blocks until the answer or the deadline; raises ``KnowledgeError``."""
        if not isinstance(deadline_ms, int) or not 1 <= deadline_ms <= DEADLINE_MAX_MS:
            raise InvalidArgument(
                f"deadlineMs must be 1 to {DEADLINE_MAX_MS}.",
                field="deadlineMs",
                reason="out_of_range",
                allowed=f"1 to {DEADLINE_MAX_MS}",
            )
        return _answer_of(
            self._runtime.submit(Call(tool, arguments, audience, Deadline.after(deadline_ms / 1000), flush_id=flush_id))
        )

    def ask(self, method: str, params: JsonObject, *, operator: Operator = LOCAL_OPERATOR) -> JsonObject:
        """The complete response of an operator's method (``operator.recent``, ...), its params as on the host protocol.

        Blocks until the answer or its ``deadlineMs``; raises ``KnowledgeError``. ``operator`` asks where ``params``
        names none; by default the program itself, which may do everything.
        """
        if method not in OPERATOR_METHODS:
            raise InvalidArgument(
                "There is no such method for operators.",
                field="method",
                reason="unknown",
                allowed=list(OPERATOR_METHODS),
            )
        return _answer_of(self._runtime.operate(parse_operator_call(method, params, peer=operator)))

    def consult(self, method: str, params: JsonObject, audience: Caller | None = None) -> JsonObject:
        """The answer of a method of the memory provider (``memory.search``, ...) or of an account's system memory
        (``systemMemory.recall``, ...), its params as on the host protocol.

        Blocks until the answer or its ``deadlineMs``; raises ``KnowledgeError``. ``audience`` asks where ``params``
        names none.
        """
        if method in SYSTEM_MEMORY_METHODS:
            return _answer_of(self._runtime.remind(parse_system_memory_call(method, params, caller=audience)))
        if method not in PROVIDER_METHODS:
            raise InvalidArgument(
                "The memory provider and system memory have no such method.",
                field="method",
                reason="unknown",
                allowed=[*PROVIDER_METHODS, *SYSTEM_MEMORY_METHODS],
            )
        return _answer_of(self._runtime.provide(parse_provider_call(method, params, caller=audience)))

    def steward(self, method: str, params: JsonObject) -> JsonObject:
        """The answer of a request about system memory (``steward.observe``, ``steward.admit``, ...) of whoever runs
        this program: an observer or steward on their own machine. Who is a steward, the configuration says.

        Blocks until the answer or its ``deadlineMs``; raises ``KnowledgeError``.
        """
        if method not in STEWARD_METHODS:
            raise InvalidArgument(
                "Observers and stewards have no such method.",
                field="method",
                reason="unknown",
                allowed=list(STEWARD_METHODS),
            )
        return _answer_of(self._runtime.attend(parse_steward_call(method, params, door="program")))

    def audience_of(self, token: str) -> Audience:
        """The audience that a token stands for now. Raises the refusals that a call with it would get; never blocks."""
        found = self._runtime.gate.audience_of(AudienceToken(token))
        assert found is not None
        return found

    def key_holder(self, key: str) -> Operator:
        """Who speaks with a key of the HTTP door: ``HOST_OPERATOR``, or a configured operator. Raises ``Denied``, and
        ``Restarting`` while access cannot be decided; never blocks."""
        return self._runtime.gate.key_holder(key)

    def submit(self, call: Call) -> PendingAnswer:
        """Accept a call of a door; never blocks, never raises."""
        return self._runtime.submit(call)

    def provide(self, call: ProviderCall) -> PendingAnswer:
        """Accept a call of the memory provider; never blocks, never raises."""
        return self._runtime.provide(call)

    def remind(self, call: SystemMemoryCall) -> PendingAnswer:
        """Accept a call of an account to system memory; never blocks, never raises."""
        return self._runtime.remind(call)

    def attend(self, call: StewardCall) -> PendingAnswer:
        """Accept what an observer or a steward asks on the owner's own machine; never blocks, never raises."""
        return self._runtime.attend(call)

    def operate(self, call: OperatorCall) -> PendingOperation:
        """Accept an operator's request of a door; never blocks, never raises."""
        return self._runtime.operate(call)

    def subscribe(self, call: SubscribeCall, ready: Callable[[PendingEvent], None]) -> Subscription:
        """Hear of changes until the subscription, a pending answer of its own, is ended; ``ready`` must not block."""
        return self._runtime.subscribe(call, ready)

    def tools(self, format: ToolFormat, profile: str | None = None) -> list[JsonObject]:
        """The tools in a host's shape; all of them unless a profile is named."""
        return export_tools(format, profile)

    def end_run(self, run_id: str, *, deadline_ms: int = DEADLINE_DEFAULT_MS) -> None:
        """Make a run's audiences stale; when this returns nothing is saved or answered under them any more."""
        self._runtime.end_run(run_id, Deadline.after(deadline_ms / 1000)).result()

    def health(self) -> JsonObject:
        """The published state of everything; asks nobody, creates nothing."""
        return self._runtime.health()

    def _problems(self) -> JsonObject:
        """What is wrong beside the runtime itself. Any thread."""
        shown: JsonObject = {}
        if self._file is not None and self._file.problem is not None:
            shown["configuration"] = {"problem": str(self._file.problem)}
        problems = self._decisions.problems()
        if problems:
            shown["decisions"] = {"problems": dict(problems)}
        return shown

    def ready(self) -> bool:
        """Whether a call would be taken now: access can be decided, and nothing is stopping. Asks nobody."""
        return self._runtime.ready()

    def busy(self) -> bool:
        """Whether any request is unanswered."""
        return self._runtime.busy()

    def close(self, *, drain_seconds: float = 5.0) -> None:
        """Refuse, drain, sync, stop and join; idempotent. Raises ``Stopping`` when an actor is stuck in a call."""
        self._decisions.close()  # first: a turn that waits for its model would hold the others up
        closed = self._runtime.close(drain_seconds)
        self._release()
        if closed.stuck:
            raise Stopping(
                f"{len(closed.stuck)} actor(s) did not return from a call: {', '.join(closed.stuck)}.", retry="unknown"
            )

    def __enter__(self) -> KnowledgeBridge:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _release(self) -> None:
        self._decisions.close()
        if self._own_lock is not None:
            self._own_lock.release()

    def _schedule(self) -> Schedule:
        """When maintenance runs, as the configuration says now. Maintenance's thread."""
        found = self.configuration.maintenance
        return Schedule(found.enabled, found.every, found.at)

    def _recall_gate(self) -> GateSettings:
        """What the configuration says of the recall gate now: off where it says nothing. Any thread."""
        found = self.configuration.recall_gate
        return GateSettings() if found is None else GateSettings(**found.model_dump())

    def _system_memory(self) -> SystemMemorySettings:
        """What the configuration says of system memory now. System memory's thread."""
        found = self.configuration.system_memory
        return SystemMemorySettings(
            stewards=frozenset(found.stewards),
            system_bucket=found.system_bucket_enabled,
            unchallenged_days=found.ready.unchallenged_days,
            sessions=found.ready.sessions,
            corpus=lambda: None if found.corpus is None else load_corpus(str(found.corpus)),
        )

    def _policy(self) -> Policy:
        """What the configuration says of access now; the same object while it says the same. Authority thread.

        Asked first when the runtime starts and then again and again, it is also where a new configuration is noticed.
        """
        if self._file is not None:
            self._file.poll()
        current = self.configuration
        if self._policy_of is None or self._policy_of[0] is not current:
            policy = Policy(
                agents=current.agent_ids,
                stores=MappingProxyType(
                    {name: SharedStore(store.agents, store.label) for name, store in current.stores.items()}
                ),
                writes_enabled=current.writes_enabled,
                operator_read=current.operator_read,
                shared_gateway=current.gateway.shared,
                operators=MappingProxyType(
                    {
                        operator.id: Operator(operator.id, frozenset(operator.scopes), operator.agents)
                        for operator in current.operators
                    }
                ),
            )
            self._policy_of = current, policy
            self._decisions.prepare()
        return self._policy_of[1]


def _settings(configuration: Configuration) -> RuntimeSettings:
    limits, runtime = configuration.limits, configuration.runtime
    return RuntimeSettings(
        scan_entries=limits.scan_entries,
        mailbox=limits.mailbox,
        mailbox_bytes=limits.mailbox_bytes,
        per_audience=limits.per_audience,
        idle=runtime.idle.total_seconds(),
        max_live_stores=runtime.max_live_stores,
    )


def _answer_of(pending: PendingCall | PendingOperation) -> JsonObject:
    pending.wait()
    answers: list[JsonObject] = []
    pending.deliver(answers.append)
    return answers[0]

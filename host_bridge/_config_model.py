"""What a configuration may say: one frozen model a section, camelCase in the file, snake_case here.

Every key has a default but those that name something (an agent's ``id``, an endpoint's ``baseUrl``). Durations are
written ``10m`` and read as ``timedelta``, sizes ``64MiB`` and read as bytes.

Source: decisions.md section 1; memory-provider.md (Recall gate); stores-and-access.md (Stores).
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from datetime import timedelta
from pathlib import Path
from typing import Annotated, Final, Literal, TypeAlias
from urllib.parse import urlsplit

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    StrictBool,
    StrictInt,
    model_validator,
)
from pydantic.alias_generators import to_camel

DEFAULT_AGENT: Final = "main"

_DURATION: Final = re.compile(r"([0-9]+(?:\.[0-9]+)?)(ms|s|m|h|d)")
_DURATION_UNITS: Final = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
_SIZE: Final = re.compile(r"([0-9]+)(B|KiB|MiB|GiB)")
_SIZE_UNITS: Final = {"B": 1, "KiB": 1024, "MiB": 1024**2, "GiB": 1024**3}
_LISTEN: Final = re.compile(r"(?:\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9.-]+):([0-9]{1,5})")


def parse_duration(value: object) -> timedelta:
    """``10m``, ``24h``, ``1.5s`` or ``0`` as a timedelta; ``ValueError`` says what is accepted."""
    if isinstance(value, timedelta):
        return value
    match = _DURATION.fullmatch(value) if isinstance(value, str) else None
    if match is not None:
        try:
            return timedelta(seconds=float(match[1]) * _DURATION_UNITS[match[2]])
        except OverflowError:
            raise ValueError("this duration is longer than a calendar") from None
    if value == 0 and not isinstance(value, bool):
        return timedelta(0)
    raise ValueError("write a number and a unit: 500ms, 30s, 10m, 24h or 7d")


def parse_size(value: object) -> int:
    """``64MiB`` or a plain number of bytes as bytes; ``ValueError`` says what is accepted."""
    if isinstance(value, int) and not isinstance(value, bool):
        return value
    match = _SIZE.fullmatch(value) if isinstance(value, str) else None
    if match is None:
        raise ValueError("write a number of bytes, or a number and a unit: 512KiB, 64MiB, 1GiB")
    return int(match[1]) * _SIZE_UNITS[match[2]]


def _refuse_repeats(what: str, names: Sequence[str]) -> None:
    repeated = sorted({name for name in names if names.count(name) > 1})
    if repeated:
        raise ValueError(f"the {what} {', '.join(repeated)} is listed twice")


def _checked_listen(value: str) -> str:
    match = _LISTEN.fullmatch(value)
    if match is None or int(match[1]) > 65535:
        raise ValueError("write HOST:PORT, for example 127.0.0.1:8765 or [::1]:8765")
    return value


def _parse_path(value: object) -> Path:
    if isinstance(value, Path):
        return value
    if not isinstance(value, str) or not value or "\0" in value:
        raise ValueError("write a path; a leading ~ stands for the home folder")
    return Path(os.path.expanduser(value))


Positive: TypeAlias = Annotated[StrictInt, Field(ge=1)]
Share: TypeAlias = Annotated[float, Field(ge=0, le=1, strict=True)]
Duration: TypeAlias = Annotated[timedelta, BeforeValidator(parse_duration), Field(gt=timedelta(0))]
Size: TypeAlias = Annotated[int, BeforeValidator(parse_size), Field(ge=1)]
ConfiguredPath: TypeAlias = Annotated[Path, BeforeValidator(_parse_path)]
AgentId: TypeAlias = Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._:@-]{0,127}\z")]
Name: TypeAlias = Annotated[str, Field(min_length=1, max_length=100)]
Scope: TypeAlias = Literal["operator.read", "operator.write", "operator.admin"]


class _Section(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", alias_generator=to_camel, allow_inf_nan=False)


class AgentDefaults(_Section):
    """What holds for every agent that does not say otherwise."""

    decision_model: str | None = None


class Agent(_Section):
    """One agent of the host. An empty ``decisionModel`` turns decisions off for it."""

    id: AgentId
    decision_model: str | None = None


class Agents(_Section):
    """The host's agents; the first is the default one. Left out, ``main`` is the only agent."""

    defaults: AgentDefaults = AgentDefaults()
    list_: tuple[Agent, ...] = Field(default=(), alias="list")

    @model_validator(mode="after")
    def _ids_are_unique(self) -> Agents:
        _refuse_repeats("agent", [agent.id for agent in self.list_])
        return self


class NamedStore(_Section):
    """A store that several agents share. Without agents it stays in the inventory."""

    label: Name | None = None
    agents: tuple[AgentId, ...] = ()

    @model_validator(mode="after")
    def _agents_are_unique(self) -> NamedStore:
        _refuse_repeats("agent", self.agents)
        return self


class Operator(_Section):
    """Who may inspect or administer over HTTP, and for which agents (all where left out)."""

    id: Name
    scopes: tuple[Scope, ...]
    agents: tuple[AgentId, ...] | None = None


class Gateway(_Section):
    """Whether several people share this runtime."""

    shared: StrictBool = False


class PageBudgets(_Section):
    """From which share of a partition's pages on a page counts as a hub."""

    hub_percentile: Annotated[float, Field(ge=0, le=100, strict=True)] = 90


class RecallGate(_Section):
    """The recall gate; it is off unless this section is written."""

    mode: Literal["off", "shadow", "live"] = "shadow"
    candidates: Literal["keyword", "model"] = "keyword"
    max_candidates: Annotated[StrictInt, Field(ge=1, le=10)] = 10
    high_threshold: Share = 0.75
    excerpts: Annotated[StrictInt, Field(ge=1, le=10)] = 4
    excerpt_chars: Annotated[StrictInt, Field(ge=100, le=4000)] = 1000
    page_chars: Annotated[StrictInt, Field(ge=200, le=6000)] = 2800
    medium_threshold: Share | None = None
    skip_hint_below: Share | None = None
    timeout_ms: Annotated[StrictInt, Field(ge=100, le=10000)] = 1500
    max_index_chars: Positive = 24000


class Maintenance(_Section):
    """When maintenance runs; ``at`` is the machine's local time."""

    enabled: StrictBool = True
    every: Duration = timedelta(hours=24)
    at: Annotated[str, Field(pattern=r"^([01][0-9]|2[0-3]):[0-5][0-9]\z")] = "03:30"


def _checked_base_url(value: str) -> str:
    parts = urlsplit(value)
    if parts.username is not None or parts.password is not None:
        raise ValueError("a key does not belong into the address: name apiKeyEnv or apiKeyFile")
    if not parts.hostname or parts.port == 0 or parts.query or parts.fragment:
        raise ValueError("write http://HOST[:PORT][/PATH] or https://..., to which /rerank is added")
    return value


class RerankModel(_Section):
    """One model that a rerank endpoint serves."""

    id: Name
    name: Name | None = None


class RerankProvider(_Section):
    """A ``/rerank`` endpoint. The key itself is never in this file, only where it is found."""

    base_url: Annotated[str, Field(pattern=r"^https?://[^\s]+\z"), AfterValidator(_checked_base_url)]
    models: tuple[RerankModel, ...]
    api_key_env: Name | None = None
    api_key_file: ConfiguredPath | None = None
    max_in_flight: Positive = 4

    @model_validator(mode="after")
    def _one_key_source(self) -> RerankProvider:
        if self.api_key_env is not None and self.api_key_file is not None:
            raise ValueError("name apiKeyEnv or apiKeyFile, not both")
        _refuse_repeats("model", [model.id for model in self.models])
        return self


class Providers(_Section):
    """The decision providers that are set up."""

    rerank: RerankProvider | None = None


class Models(_Section):
    """Where decision models are served."""

    providers: Providers = Providers()


class SystemMemoryReady(_Section):
    """When a system memory counts as stabilised."""

    unchallenged_days: Annotated[StrictInt, Field(ge=0)] = 30
    sessions: Annotated[StrictInt, Field(ge=0)] = 5


class SystemMemory(_Section):
    """Who are stewards, and whether the system bucket is open."""

    stewards: tuple[Name, ...] = ()
    system_bucket_enabled: StrictBool = False
    corpus: ConfiguredPath | None = None
    ready: SystemMemoryReady = SystemMemoryReady()


class Tls(_Section):
    """Certificate and key of the HTTP door."""

    cert_file: ConfiguredPath
    key_file: ConfiguredPath


class Http(_Section):
    """The HTTP door."""

    listen: Annotated[str, AfterValidator(_checked_listen)] = "127.0.0.1:8765"
    public_url: Annotated[str, Field(pattern=r"^https?://[^\s]+\z")] | None = None
    tls: Tls | None = None
    host_key_file: ConfiguredPath | None = None

    @property
    def is_configured(self) -> bool:
        """Whether a foreground owner serves HTTP without being told to on its command line: `listen` is written."""
        return "listen" in self.model_fields_set


class Limits(_Section):
    """Bounds of one partition's scan and of one store's mailbox."""

    scan_entries: Positive = 100_000
    mailbox: Positive = 256
    mailbox_bytes: Size = 64 * 1024**2
    per_audience: Positive = 32


class Runtime(_Section):
    """How long idle stores and an idle owner stay up, and how many stores are live at once."""

    idle: Duration = timedelta(minutes=10)
    owner_idle: Duration = timedelta(minutes=10)
    max_live_stores: Positive = 64


class Configuration(_Section):
    """One valid configuration, immutable; a change is a new object."""

    writes_enabled: StrictBool = True
    operator_read: StrictBool = True
    workspace: ConfiguredPath | None = None
    agents: Agents = Agents()
    stores: Mapping[Name, NamedStore] = Field(default_factory=dict)
    operators: tuple[Operator, ...] = ()
    gateway: Gateway = Gateway()
    page_budgets: PageBudgets = PageBudgets()
    recall_gate: RecallGate | None = None
    maintenance: Maintenance = Maintenance()
    models: Models = Models()
    system_memory: SystemMemory = SystemMemory()
    http: Http = Http()
    limits: Limits = Limits()
    runtime: Runtime = Runtime()

    @model_validator(mode="after")
    def _operators_are_unique(self) -> Configuration:
        _refuse_repeats("operator", [operator.id for operator in self.operators])
        return self

    @property
    def agent_ids(self) -> tuple[str, ...]:
        """Every agent of the host; never empty."""
        return tuple(agent.id for agent in self.agents.list_) or (DEFAULT_AGENT,)

    @property
    def default_agent(self) -> str:
        return self.agent_ids[0]

    def decision_model(self, agent: str) -> str | None:
        """The agent's effective decision model; ``None`` where decisions are off."""
        return self._decision_model(agent) or None

    @property
    def decision_models(self) -> frozenset[str]:
        """The effective decision models of all agents."""
        own = {agent.decision_model for agent in self.agents.list_} or {None}
        named = {self.agents.defaults.decision_model if model is None else model for model in own}
        return frozenset(model for model in named if model)

    def recall_gate_lacks_model(self, agent: str) -> bool:
        """Whether the recall gate is on and nothing says which model the agent has; an empty one says none."""
        gate = self.recall_gate
        return gate is not None and gate.mode != "off" and self._decision_model(agent) is None

    def _decision_model(self, agent: str) -> str | None:
        own = next((entry.decision_model for entry in self.agents.list_ if entry.id == agent), None)
        return self.agents.defaults.decision_model if own is None else own

    def named_stores_of(self, agent: str) -> tuple[str, ...]:
        """The named stores that list the agent. More than one makes it unavailable; never the first match."""
        return tuple(name for name, store in self.stores.items() if agent in store.agents)

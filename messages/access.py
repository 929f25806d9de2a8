"""What an operator or a host may ask about access: stores, grants, tokens, runs, known conversations; and the doctor.

Nothing here edits knowledge. Listing is reading; every change needs ``operator.admin``. The agent whose store or grant
is meant is the ``agent`` of the call. :data:`HOST_METHODS` a host asks in its own name, without an operator. Pure.

Source: stores-and-access.md (Manage stores, Conversation access, Caller authority); decisions.md section 7.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Annotated, Any, ClassVar, Final, Literal, TypeAlias

from pydantic import Field

from messages.arguments import Arguments
from messages.audience import AGENT_MAX_CHARS, SESSION_KEY_MAX_CHARS
from messages.pieces import Bool, Choice, Integer, Items, RawJson, Text, Uuid
from messages.tools import ToolRequest
from messages.vocabulary import TOKEN_DEFAULT_SECONDS, TOKEN_MAX_SECONDS

STORE_NAME_MAX_CHARS: Final = 100
SHARE_MAX_AGENTS: Final = 1_000
STORES_SHOWN_MAX: Final = 10_000
AUDIT_SHOWN_MAX: Final = 1_000
TOKENS_SHOWN_MAX: Final = 1_000
SESSIONS_MAX: Final = 1_000
PATH_MAX_CHARS: Final = 4_096

Scope: TypeAlias = Literal["operator.read", "operator.admin"]
_Agent: TypeAlias = Annotated[str, Text(max_units=AGENT_MAX_CHARS, one_line=True)]
_Name: TypeAlias = Annotated[str, Text(max_units=STORE_NAME_MAX_CHARS, one_line=True)]
_SessionKey: TypeAlias = Annotated[str, Text(max_units=SESSION_KEY_MAX_CHARS, one_line=True)]
_Path: TypeAlias = Annotated[str, Text(max_units=PATH_MAX_CHARS)]


class ListStoresRequest(ToolRequest):
    """Each agent with its store, and every known store: unused and unassigned ones too. Never creates one."""

    tool: ClassVar[str] = "access.stores.list"


class ShareStoreRequest(ToolRequest):
    """Name the agent's own store and let other agents use it; the store is renamed, not copied."""

    tool: ClassVar[str] = "access.stores.share"
    name: _Name = Field()
    label: _Name | None = None
    agents: Annotated[tuple[_Agent, ...], Items(0, SHARE_MAX_AGENTS)] = ()


class JoinStoreRequest(ToolRequest):
    """Let the agent use a named store; nothing of its present store moves. ``store``: one that has no name yet."""

    tool: ClassVar[str] = "access.stores.join"
    name: _Name = Field()
    store: Uuid | None = None


class OwnStoreRequest(ToolRequest):
    """Let the agent use its own store again, or a new one that its next use creates; nothing is copied or removed."""

    tool: ClassVar[str] = "access.stores.own"


class AuditRequest(ToolRequest):
    """Who bound, moved and granted what, and when; the newest first."""

    tool: ClassVar[str] = "access.audit"
    limit: Annotated[int, Integer(1, AUDIT_SHOWN_MAX)] = 100


class ListGrantsRequest(ToolRequest):
    """Which conversations may read, or read and save, the private partition of the agent's store."""

    tool: ClassVar[str] = "access.grants.list"


class SetGrantRequest(ToolRequest):
    """Let a conversation, and every session whose key extends its key with ``:``, use the private partition."""

    tool: ClassVar[str] = "access.grants.set"
    session_key: _SessionKey = Field()
    access: Annotated[Literal["read", "read-save"], Choice("read", "read-save")] = Field()


class RemoveGrantRequest(ToolRequest):
    """Take the grant of exactly this key away: the conversation has its own partition again."""

    tool: ClassVar[str] = "access.grants.remove"
    session_key: _SessionKey = Field()


class MintTokenRequest(ToolRequest):
    """A signed token that stands for this audience until it expires, is revoked, or its run ends.

    ``audience``: as in ``tools.call``. The token is in the answer and nowhere else.
    """

    tool: ClassVar[str] = "access.tokens.mint"
    audience: Annotated[Any, RawJson()] = Field()
    seconds: Annotated[int, Integer(1, TOKEN_MAX_SECONDS)] = TOKEN_DEFAULT_SECONDS


class RevokeTokenRequest(ToolRequest):
    """From the answer on, nothing is saved or answered under the token of this id."""

    tool: ClassVar[str] = "access.tokens.revoke"
    id: Uuid = Field()


class ListTokensRequest(ToolRequest):
    """The tokens that have not expired, the newest first: whom each stands for, never its text."""

    tool: ClassVar[str] = "access.tokens.list"
    limit: Annotated[int, Integer(1, TOKENS_SHOWN_MAX)] = 100


class MakeHttpKeyRequest(ToolRequest):
    """A key of the HTTP door, the host's or an operator's. It is in the answer and nowhere else.

    ``rotate``: there is one already, and the new key ends it.
    """

    tool: ClassVar[str] = "access.httpKeys.make"
    operator_id: _Name | None = None
    rotate: Bool = False


class RevokeHttpKeyRequest(ToolRequest):
    """End a key of the HTTP door, the host's or an operator's."""

    tool: ClassVar[str] = "access.httpKeys.revoke"
    operator_id: _Name | None = None


class ListHttpKeysRequest(ToolRequest):
    """Who has a key of the HTTP door, and since when; never a key."""

    tool: ClassVar[str] = "access.httpKeys.list"


class EndRunRequest(ToolRequest):
    """From the answer on, nothing is saved or answered under an audience or a token of this run."""

    tool: ClassVar[str] = "access.runs.end"
    run_id: _Agent = Field()


class AnnouncedSession(Arguments):
    """One conversation that the host has."""

    agent: _Agent = Field()
    session_key: _SessionKey = Field()


class AnnounceSessionsRequest(ToolRequest):
    """Conversations that exist, for whoever grants access to choose from; never a reason for access.

    Each is known for 90 days from its last announcement or call; those that are left out are not forgotten.
    """

    tool: ClassVar[str] = "sessions.announce"
    sessions: Annotated[tuple[AnnouncedSession, ...], Items(0, SESSIONS_MAX)] = Field()


class DoctorRequest(ToolRequest):
    """What is wrong with the registry and with each store, and what to do. Looks only; works without a registry."""

    tool: ClassVar[str] = "operator.doctor"


class BoundStore(Arguments):
    """Whose store a store is in a rebuilt registry: an agent's own, or a named one; neither: unassigned."""

    store: Uuid = Field()
    agent: _Agent | None = None
    name: _Name | None = None


class RebuildRegistryRequest(ToolRequest):
    """Make a new registry from the stores that are on disk, because the old one is lost: a person's choice.

    Every store found must be in ``stores``. ``places``: stores that do not lie in the state directory.
    """

    tool: ClassVar[str] = "operator.rebuildRegistry"
    stores: Annotated[tuple[BoundStore, ...], Items(0, STORES_SHOWN_MAX)] = Field()
    places: Annotated[tuple[_Path, ...], Items(0, SHARE_MAX_AGENTS)] = ()


AccessRequest: TypeAlias = (
    ListStoresRequest
    | ShareStoreRequest
    | JoinStoreRequest
    | OwnStoreRequest
    | AuditRequest
    | ListGrantsRequest
    | SetGrantRequest
    | RemoveGrantRequest
    | MintTokenRequest
    | RevokeTokenRequest
    | ListTokensRequest
    | MakeHttpKeyRequest
    | RevokeHttpKeyRequest
    | ListHttpKeysRequest
    | EndRunRequest
    | AnnounceSessionsRequest
    | DoctorRequest
    | RebuildRegistryRequest
)

ACCESS_METHODS: Final[Mapping[str, tuple[type[AccessRequest], Scope]]] = MappingProxyType(
    {
        ListStoresRequest.tool: (ListStoresRequest, "operator.read"),
        ShareStoreRequest.tool: (ShareStoreRequest, "operator.admin"),
        JoinStoreRequest.tool: (JoinStoreRequest, "operator.admin"),
        OwnStoreRequest.tool: (OwnStoreRequest, "operator.admin"),
        AuditRequest.tool: (AuditRequest, "operator.admin"),
        ListGrantsRequest.tool: (ListGrantsRequest, "operator.read"),
        SetGrantRequest.tool: (SetGrantRequest, "operator.admin"),
        RemoveGrantRequest.tool: (RemoveGrantRequest, "operator.admin"),
        MintTokenRequest.tool: (MintTokenRequest, "operator.admin"),
        RevokeTokenRequest.tool: (RevokeTokenRequest, "operator.admin"),
        ListTokensRequest.tool: (ListTokensRequest, "operator.admin"),
        MakeHttpKeyRequest.tool: (MakeHttpKeyRequest, "operator.admin"),
        RevokeHttpKeyRequest.tool: (RevokeHttpKeyRequest, "operator.admin"),
        ListHttpKeysRequest.tool: (ListHttpKeysRequest, "operator.admin"),
        EndRunRequest.tool: (EndRunRequest, "operator.admin"),
        AnnounceSessionsRequest.tool: (AnnounceSessionsRequest, "operator.admin"),
        DoctorRequest.tool: (DoctorRequest, "operator.admin"),
        RebuildRegistryRequest.tool: (RebuildRegistryRequest, "operator.admin"),
    }
)

HOST_METHODS: Final = frozenset(
    request.tool
    for request in (
        MintTokenRequest,
        RevokeTokenRequest,
        ListTokensRequest,
        EndRunRequest,
        AnnounceSessionsRequest,
    )
)
"""What a host may ask without naming an operator."""

__all__ = [
    "ACCESS_METHODS",
    "AUDIT_SHOWN_MAX",
    "HOST_METHODS",
    "AccessRequest",
    "AnnounceSessionsRequest",
    "AnnouncedSession",
    "AuditRequest",
    "BoundStore",
    "DoctorRequest",
    "EndRunRequest",
    "JoinStoreRequest",
    "ListGrantsRequest",
    "ListHttpKeysRequest",
    "ListStoresRequest",
    "ListTokensRequest",
    "MakeHttpKeyRequest",
    "MintTokenRequest",
    "OwnStoreRequest",
    "RebuildRegistryRequest",
    "RemoveGrantRequest",
    "RevokeHttpKeyRequest",
    "RevokeTokenRequest",
    "SetGrantRequest",
    "ShareStoreRequest",
]

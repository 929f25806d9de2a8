"""Who may reach what: the authority publishes a view, and the gate decides from it at every step."""

from actors.authority.assigning import MoveAgent
from actors.authority.auditing import NoteStewardActions
from actors.authority.authority import (
    Authority,
    AwaitView,
    BindAgent,
    EndErased,
    EndRun,
    NoteErasure,
    ReadAudit,
    Reload,
)
from actors.authority.doctor import Examine, RebuildRegistry
from actors.authority.gate import PermitGate
from actors.authority.granting import AnnounceSessions, ChangeGrant, ListGrants
from actors.authority.http_keys import ListHttpKeys, MakeHttpKey, RevokeHttpKey
from actors.authority.inventory import ListStores
from actors.authority.permit import SYSTEM_MEMORY, Permit
from actors.authority.policy import Memberships, Policy, SharedStore
from actors.authority.relocations import PlanMove, SwitchStore
from actors.authority.tokens import ListTokens, MintToken, RevokeToken, TokenReader
from actors.authority.view import AuthorityView, Membership, Unbound, require_may_save, resolve

__all__ = [
    "SYSTEM_MEMORY",
    "AnnounceSessions",
    "Authority",
    "AuthorityView",
    "AwaitView",
    "BindAgent",
    "ChangeGrant",
    "EndErased",
    "EndRun",
    "Examine",
    "ListGrants",
    "ListHttpKeys",
    "ListStores",
    "ListTokens",
    "MakeHttpKey",
    "Membership",
    "Memberships",
    "MintToken",
    "MoveAgent",
    "NoteErasure",
    "NoteStewardActions",
    "Permit",
    "PermitGate",
    "PlanMove",
    "Policy",
    "ReadAudit",
    "RebuildRegistry",
    "Reload",
    "RevokeHttpKey",
    "RevokeToken",
    "SharedStore",
    "SwitchStore",
    "TokenReader",
    "Unbound",
    "require_may_save",
    "resolve",
]

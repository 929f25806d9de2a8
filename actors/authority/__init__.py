"""Who may reach what: the authority publishes a view, and the gate decides from it at every step."""

from actors.authority.authority import Authority, AwaitView, BindAgent, EndRun, Policy, Reload
from actors.authority.gate import PermitGate
from actors.authority.permit import Permit
from actors.authority.relocations import PlanMove, SwitchStore
from actors.authority.view import AuthorityView, Membership, Unbound, resolve

__all__ = [
    "Authority",
    "AuthorityView",
    "AwaitView",
    "BindAgent",
    "EndRun",
    "Membership",
    "Permit",
    "PermitGate",
    "PlanMove",
    "Policy",
    "Reload",
    "SwitchStore",
    "Unbound",
    "resolve",
]

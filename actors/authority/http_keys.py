"""Keys of the HTTP door: what the authority does with them.

Source: decisions.md section 7 (host key, operator tokens).
"""

from __future__ import annotations

from dataclasses import dataclass

from actors.authority.policy import Policy
from actors.supervision import Request
from messages.errors import Denied
from messages.json_types import JsonObject
from storage.http_keys import HttpKey, HttpKeys
from storage.records import format_instant
from storage.registry_audit import By


@dataclass(frozen=True, slots=True)
class MakeHttpKey(Request[JsonObject]):
    """To the authority: a new key for the host (``None``) or a configured operator."""

    operator: str | None
    rotate: bool
    by: By


@dataclass(frozen=True, slots=True)
class RevokeHttpKey(Request[JsonObject]):
    """To the authority: the key counts no more for what is asked or answered from now on."""

    operator: str | None
    by: By


@dataclass(frozen=True, slots=True)
class ListHttpKeys(Request[JsonObject]):
    """To the authority: who has a key."""


def make(keys: HttpKeys, policy: Policy, message: MakeHttpKey) -> JsonObject:
    """``key``, which the answer alone holds, and whose it is. Raises ``Denied`` for an operator that the configuration
    does not name, ``InvalidArgument``, ``LimitExceeded``, ``StorageError``."""
    if message.operator is not None and message.operator not in policy.operators:
        raise Denied("The configuration names no such operator: add it to `operators` first.", field="operatorId")
    text = keys.make(message.operator, message.by, rotate=message.rotate)
    made = next(key for key in keys.all() if key.operator == message.operator)
    return {"key": text, **_shown(made)}


def revoke(keys: HttpKeys, message: RevokeHttpKey) -> JsonObject:
    """Whose key it was. Raises ``NotFound``, ``StorageError``."""
    keys.revoke(message.operator, message.by)
    return _holder(message.operator)


def listed(keys: HttpKeys) -> JsonObject:
    """``keys``: whose, since when, and who made them."""
    return {"keys": [_shown(key) for key in keys.all()]}


def _shown(key: HttpKey) -> JsonObject:
    return {**_holder(key.operator), "madeAt": format_instant(key.made_at), "madeBy": key.made_by}


def _holder(operator: str | None) -> JsonObject:
    return {"kind": "host"} if operator is None else {"kind": "operator", "operatorId": operator}

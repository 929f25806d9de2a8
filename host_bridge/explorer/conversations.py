"""Conversation access: which conversations of the viewed agent may use its private partition, and changing that.

Source: stores-and-access.md (Conversation access).
"""

from __future__ import annotations

from typing import Final

from starlette.responses import Response

from host_bridge.cli.conversation import ACCESS
from host_bridge.explorer.site import Look, rows
from messages.audience import SESSION_KEY_MAX_CHARS
from messages.json_types import JsonObject
from messages.operator import parse_operator_call

NO_ACCESS: Final = "none"


async def conversations(look: Look) -> Response:
    """The grants, and the conversations to choose from."""
    found = await look.ask("access.grants.list", {"agent": look.agent})
    granted = {str(row.get("sessionKey")): str(row.get("access")) for row in rows(found, "grants")}
    done, of = look.text("done"), look.text("conversation")
    return look.page(
        "conversations.html",
        grants=rows(found, "grants"),
        conversations=[row for row in rows(found, "conversations") if row.get("sessionKey") not in granted],
        access=ACCESS,
        key_max=SESSION_KEY_MAX_CHARS,
        done=done if of is not None and done == granted.get(of, NO_ACCESS) else None,
        of=of,
    )


async def grant(look: Look) -> Response:
    """What the change will do, to be confirmed."""
    key, access = look.text("conversation"), look.text("access") or NO_ACCESS
    if key is None or (access not in ACCESS and access != NO_ACCESS):
        return look.moved("/settings/conversations")
    method, params = _change(look.agent, key, access)
    parse_operator_call(method, params, peer=look.operator)
    await look.ask("access.grants.list", {"agent": look.agent})  # an agent that is not there, or not in the role
    return look.page(
        "confirm.html",
        title="Conversation access",
        question=_question(key, access, look.agent),
        consequences=consequences(key, access, look.agent),
        fields=[("conversation", key), ("access", access)],
        action=look.link("/settings/conversations/grant"),
        back=look.link("/settings/conversations"),
        dangerous=access == NO_ACCESS,
    )


async def granted(look: Look) -> Response:
    """Do what was confirmed; when this answers, nothing under a right that was taken can follow."""
    fields = await look.form()
    key, access = (fields.get(name, [""])[-1] for name in ("conversation", "access"))
    await look.ask(*_change(look.agent, key, access))
    return look.moved("/settings/conversations", done=access, conversation=key)


def _change(agent: str, key: str, access: str) -> tuple[str, JsonObject]:
    """The method that makes a change, and its parameters."""
    whose: JsonObject = {"agent": agent, "sessionKey": key}
    if access == NO_ACCESS:
        return "access.grants.remove", whose
    return "access.grants.set", {**whose, "access": access}


def consequences(key: str, access: str, agent: str) -> list[str]:
    """What the change will do and what it cannot, a sentence each."""
    extends = f"Threads, topics and other sessions whose key extends {key} with “:” follow it, unless they have a grant"
    match access:
        case "read":
            return [
                f"The conversation reads the private partition of {agent}: records, index and recall candidates.",
                "It cannot save: its saves fail, and guidance to save is left out of its prompt.",
                f"{extends} of their own.",
            ]
        case "read-save":
            return [
                f"The conversation reads and saves the private partition of {agent}, like a turn with the owner alone.",
                "It may approve automatic recall. What it saves stands in the history with the writing agent.",
                f"{extends} of their own.",
            ]
        case _:
            return [
                "The conversation returns to its own partition. Work under way fails at its next check.",
                "Removing access stops future reads and saves.",
                "It cannot remove what the conversation already retrieved.",
                f"Sessions whose key extends {key} with “:” lose it too, unless they have a grant of their own.",
            ]


def _question(key: str, access: str, agent: str) -> str:
    if access == NO_ACCESS:
        return f"Take the access of {key} to the private memory of {agent} away?"
    return f"Let {key} {ACCESS[access].removeprefix('can ')} the private memory of {agent}?"

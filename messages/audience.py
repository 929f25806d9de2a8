"""Who is calling: what the host minted (decisions.md section 6).

Nothing in tool arguments selects an agent, store, path or scope; the audience alone does. A child that an agent
spawned carries the audience that delegated to it as its ``root``: the outermost root decides partition and grants,
the child's own agent is the author, and one sandboxed or stale link spoils the whole chain.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import datetime
from typing import Annotated, Any, Final, Literal, Self, TypeAlias

from pydantic import model_validator

from messages.arguments import Arguments, validate
from messages.dates import instant_of
from messages.errors import AudienceMissing, InvalidArgument
from messages.json_types import JsonObject
from messages.pieces import Bool, Choice, InstantText, RawJson, Text, Uuid, refused
from messages.vocabulary import Partition

AGENT_MAX_CHARS: Final = 128
SESSION_KEY_MAX_CHARS: Final = 512
_SESSION_ID: Final = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")
DELEGATIONS_MAX: Final = 8

_Name: TypeAlias = Annotated[str, Text(max_units=AGENT_MAX_CHARS, one_line=True)]


@dataclass(frozen=True, slots=True)
class OwnerPrivate:
    """The owner talking to their agent: reaches the private partition of the agent's store."""

    agent: str
    run_id: str | None = None
    account: str | None = None
    expires_at: datetime | None = None
    sandboxed: bool = False
    root: Audience | None = None
    token_id: str | None = None
    """The signed token that it was read from; set by the authority alone, never by a host's object."""


@dataclass(frozen=True, slots=True)
class Conversation:
    """A group or channel conversation: reaches its own partition unless an owner granted more."""

    agent: str
    session_key: str
    session_id: str
    run_id: str | None = None
    account: str | None = None
    expires_at: datetime | None = None
    sandboxed: bool = False
    root: Audience | None = None
    token_id: str | None = None


Audience: TypeAlias = OwnerPrivate | Conversation


@dataclass(frozen=True, slots=True)
class AudienceToken:
    """A signed audience as its bearer presents it; the authority reads it. Its text is never shown."""

    text: str = field(repr=False)


Caller: TypeAlias = Audience | AudienceToken
"""Who calls, as a door hands it in."""


class _AudienceArguments(Arguments):
    kind: Annotated[Literal["owner-private", "conversation"], Choice("owner-private", "conversation")]
    agent: _Name
    session_key: Annotated[str, Text(max_units=SESSION_KEY_MAX_CHARS, one_line=True)] | None = None
    session_id: Uuid | None = None
    run_id: _Name | None = None
    account: _Name | None = None
    expires_at: InstantText | None = None
    sandboxed: Bool = False
    root: Annotated[Any, RawJson()] = None

    @model_validator(mode="after")
    def _addressed(self) -> Self:
        for name, value in (("sessionKey", self.session_key), ("sessionId", self.session_id)):
            if self.kind == "conversation" and value is None:
                raise refused("missing", "is required for a conversation", ["sessionKey", "sessionId"], field=name)
            if self.kind == "owner-private" and value is not None:
                raise refused("conflict", "belongs to conversations only", "no session", field=name)
        return self


def parse_audience(value: object) -> Audience:
    """The audience that a host minted, with the chain that delegated to it.

    Unknown keys are refused, since one that narrows access must never be overlooked. Raises
    :class:`AudienceMissing` for null, :class:`InvalidArgument` (fields below ``audience``) for anything malformed
    and for a chain of more than eight delegations.
    """
    if value is None:
        raise AudienceMissing("the call carries no audience; the host must send the one it minted")
    links: list[_AudienceArguments] = []
    while value is not None:
        field = ".".join(["audience", *["root"] * len(links)])
        if len(links) > DELEGATIONS_MAX:
            message = f"{field} is one delegation too many; at most {DELEGATIONS_MAX} are allowed"
            raise InvalidArgument(message, field=field, reason="too_deep", allowed=DELEGATIONS_MAX)
        link = validate(_AudienceArguments, value, under=field)
        links.append(link)
        value = link.root
    audience: Audience | None = None
    for link in reversed(links):
        audience = _linked(link, audience)
    assert audience is not None
    return audience


def parse_caller(value: object) -> Caller:
    """The audience of a host's request: an object, or the text of a signed token. Raises as :func:`parse_audience`."""
    if isinstance(value, str) and not value.lstrip().startswith("{"):
        return AudienceToken(value)
    return parse_audience(value)


def audience_json(audience: Audience) -> JsonObject:
    """The object from which :func:`parse_audience` makes this audience again; without the token it came from."""
    shown: JsonObject = {}
    for link in reversed(list(delegation_chain(audience))):
        shown = {
            "kind": "conversation" if isinstance(link, Conversation) else "owner-private",
            "agent": link.agent,
            **({"root": shown} if shown else {}),
        }
        if isinstance(link, Conversation):
            shown |= {"sessionKey": link.session_key, "sessionId": link.session_id}
        for name, value in (("runId", link.run_id), ("account", link.account)):
            if value is not None:
                shown[name] = value
        if link.expires_at is not None:
            shown["expiresAt"] = link.expires_at.isoformat()
        if link.sandboxed:
            shown["sandboxed"] = True
    return shown


def require_well_formed(audience: object) -> None:
    """Refuse an audience that was built in Python and could not have come from a host.

    A session id is a folder's name: anything but a UUID in its usual form must never reach the disk. Raises
    :class:`AudienceMissing` for ``None`` and :class:`InvalidArgument`.
    """
    if audience is None:
        raise AudienceMissing("This call carries no audience; the host must mint one for it.")
    links = 0
    link: object = audience
    while link is not None:
        links += 1
        if not isinstance(link, OwnerPrivate | Conversation) or not _is_text(link.agent):
            raise _malformed("audience", "must be an owner-private or conversation audience with an agent")
        if links > DELEGATIONS_MAX + 1:
            raise _malformed("audience", f"is delegated more than {DELEGATIONS_MAX} times")
        if isinstance(link, Conversation):
            if not _is_text(link.session_key):
                raise _malformed("audience.sessionKey", "must not be empty")
            if not isinstance(link.session_id, str) or not _SESSION_ID.fullmatch(link.session_id):
                raise _malformed("audience.sessionId", "must be a lower-case UUID")
        if link.expires_at is not None and (
            not isinstance(link.expires_at, datetime) or link.expires_at.tzinfo is None
        ):
            raise _malformed("audience.expiresAt", "must carry a time zone")
        link = link.root


def _is_text(value: object) -> bool:
    return isinstance(value, str) and value != ""


def _malformed(field: str, what: str) -> InvalidArgument:
    return InvalidArgument(f"{field} {what}", field=field, reason="malformed")


def delegation_chain(audience: Audience) -> Iterator[Audience]:
    """The audience itself, then its root, and so on outwards."""
    link: Audience | None = audience
    while link is not None:
        yield link
        link = link.root


def originating(audience: Audience) -> Audience:
    """The outermost root: the audience whose partition and grants the call has."""
    while audience.root is not None:
        audience = audience.root
    return audience


def own_partition(audience: Audience) -> Partition:
    """The partition that the call reaches without any grant."""
    origin = originating(audience)
    return Partition(origin.session_id) if isinstance(origin, Conversation) else Partition()


def is_sandboxed(audience: Audience) -> bool:
    """Whether any link of the chain is sandboxed."""
    while not audience.sandboxed and audience.root is not None:
        audience = audience.root
    return audience.sandboxed


def earliest_expiry(audience: Audience) -> datetime | None:
    """The instant from which the audience is stale: the earliest of its chain."""
    earliest = audience.expires_at
    while audience.root is not None:
        audience = audience.root
        if audience.expires_at is not None and (earliest is None or audience.expires_at < earliest):
            earliest = audience.expires_at
    return earliest


def run_ids(audience: Audience) -> frozenset[str]:
    """The runs whose end makes the audience stale: those of its whole chain."""
    return frozenset(link.run_id for link in delegation_chain(audience) if link.run_id is not None)


def token_ids(audience: Audience) -> frozenset[str]:
    """The tokens whose revocation makes the audience stale: those of its whole chain."""
    return frozenset(link.token_id for link in delegation_chain(audience) if link.token_id is not None)


def _linked(link: _AudienceArguments, root: Audience | None) -> Audience:
    expires_at = None if link.expires_at is None else instant_of(link.expires_at)
    if link.session_key is not None and link.session_id is not None:
        return Conversation(
            link.agent, link.session_key, link.session_id, link.run_id, link.account, expires_at, link.sandboxed, root
        )
    return OwnerPrivate(link.agent, link.run_id, link.account, expires_at, link.sandboxed, root)

"""Tokens of audiences: a signed text that gives exactly the audience for which it was minted, until it ends.

Guarantees: only a token that this installation signed, with HS256 and no other algorithm, is read; it carries an expiry
of at most :data:`~messages.vocabulary.TOKEN_MAX_SECONDS`, without leeway; what comes out is what
:func:`messages.audience.parse_audience` makes of the host's object, so that access is decided in one place. Whether its
id was revoked is the view's to say, at each check (:mod:`actors.authority.view`). Neither the key nor a token's text is
in a message, a log or a representation.

::

    token = gate.audience_of(AudienceToken(bearer))    # any door, any thread

Source: decisions.md sections 6 and 7 (signed, expiring, revocable by id); RFC 8725 (one algorithm, typed, bound to one
issuer and one audience).
"""

from __future__ import annotations

import re
import uuid
from collections.abc import Callable, Collection
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Final

from actors.authority.policy import Policy
from actors.supervision import Request
from messages.audience import (
    Audience,
    Conversation,
    audience_json,
    delegation_chain,
    earliest_expiry,
    parse_audience,
    run_ids,
)
from messages.errors import AudienceStale, Denied, InvalidArgument, KnowledgeError, LimitExceeded
from messages.json_types import JsonObject
from messages.vocabulary import TOKEN_MAX_BYTES, TOKEN_MAX_SECONDS
from storage.audience_tokens import AudienceTokens, TokenRow
from storage.records import format_instant
from storage.registry_audit import By

ALGORITHM: Final = "HS256"
TYPE: Final = "knowledge-audience+jwt"
_CLAIMS: Final = ("iss", "aud", "jti", "iat", "exp", "audience")
_SHAPE: Final = re.compile(r"[A-Za-z0-9_-]+\.[A-Za-z0-9_-]+\.[A-Za-z0-9_-]*")


@dataclass(frozen=True, slots=True)
class MintToken(Request[JsonObject]):
    """To the authority: a new token for this audience, for at most so many seconds."""

    audience: Audience
    seconds: int
    by: By


@dataclass(frozen=True, slots=True)
class RevokeToken(Request[JsonObject]):
    """To the authority: the token counts no more. A barrier: answered when nothing under it can follow."""

    token_id: str
    by: By
    agents: Collection[str] | None
    """Whose tokens the operator may end; ``None``: everybody's."""


@dataclass(frozen=True, slots=True)
class ListTokens(Request[JsonObject]):
    """To the authority: the tokens of these agents (``None``: of all) that have not expired."""

    agents: tuple[str, ...] | None
    limit: int


@dataclass(frozen=True, slots=True)
class TokenReader:
    """Reads the tokens of one installation. Pure; any thread. Published with the view."""

    registry_id: str
    key: bytes = field(repr=False)

    def read(self, text: str, now: datetime) -> Audience:
        """The audience that the token stands for, expiring with it.

        Raises ``LimitExceeded``, ``InvalidArgument`` (no token), ``Denied`` (``reason`` ``token_foreign``,
        ``token_algorithm``, ``token_signature``), ``AudienceStale`` (``reason`` ``token_expired``).
        """
        import jwt  # loaded with the first token: with its cryptography it costs more than the rest of the authority

        require_shape(text)
        try:
            header = jwt.get_unverified_header(text)
            if header.get("kid") != self.registry_id:
                raise _foreign()
            if header.get("typ") != TYPE:
                raise _malformed()
            claims = jwt.decode(
                text,
                self.key,
                algorithms=[ALGORITHM],
                issuer=issuer_of(self.registry_id),
                audience=issuer_of(self.registry_id),
                # The clock is the authority's, so that it is one clock that decides; see below.
                options={"require": list(_CLAIMS), "verify_exp": False, "verify_iat": False, "strict_aud": True},
            )
        except jwt.InvalidAlgorithmError:
            raise Denied(
                f"A token is signed with {ALGORITHM}, and with nothing else.", reason="token_algorithm"
            ) from None
        except jwt.InvalidSignatureError:
            raise Denied("The token was not signed here, or was changed since.", reason="token_signature") from None
        except (jwt.InvalidIssuerError, jwt.InvalidAudienceError):
            raise _foreign() from None
        except (jwt.InvalidTokenError, ValueError, RecursionError):
            raise _malformed() from None
        return _audience_of(claims, now)


def require_shape(text: str) -> None:
    """Raise for what no installation can have signed: ``LimitExceeded``, ``InvalidArgument``."""
    if len(text) > TOKEN_MAX_BYTES:
        raise LimitExceeded(
            f"The token is longer than {TOKEN_MAX_BYTES} characters.", field="audience", limit=TOKEN_MAX_BYTES
        )
    if not _SHAPE.fullmatch(text):
        raise _malformed()


def sign(reader: TokenReader, audience: Audience, token_id: str, *, issued: int, expires: int) -> str:
    """The text of a token; times in seconds since 1970. Raises ``LimitExceeded`` for one that nobody could present."""
    import jwt

    issuer = issuer_of(reader.registry_id)
    claims: JsonObject = {
        "iss": issuer,
        "aud": issuer,
        "jti": token_id,
        "iat": issued,
        "exp": expires,
        "audience": audience_json(replace(audience, expires_at=None)),
    }
    text = jwt.encode(claims, reader.key, algorithm=ALGORITHM, headers={"typ": TYPE, "kid": reader.registry_id})
    if len(text) > TOKEN_MAX_BYTES:
        raise LimitExceeded(
            f"The token would be longer than {TOKEN_MAX_BYTES} characters; shorten the chain of audiences.",
            field="audience",
            limit=TOKEN_MAX_BYTES,
        )
    return text


def issuer_of(registry_id: str) -> str:
    """Who signs and who is meant: this installation, and no other."""
    return f"knowledge-runtime:{registry_id}"


def mint(
    tokens: AudienceTokens,
    registry_id: str,
    policy: Policy,
    ended_runs: frozenset[str],
    message: MintToken,
    new_id: Callable[[], uuid.UUID] = uuid.uuid4,
) -> JsonObject:
    """A new token, which the answer alone holds. It never outlives the audience that it stands for.

    The authority's thread. Raises ``Denied`` (an agent that the host does not know), ``AudienceStale``,
    ``LimitExceeded``, ``StorageError``.
    """
    audience, by = message.audience, message.by
    if any(link.agent not in policy.agents for link in delegation_chain(audience)):
        raise Denied("There is no such agent for this operator.", field="audience.agent")
    issued = by.at // 1000
    expires = issued + message.seconds
    own = earliest_expiry(audience)
    if own is not None:
        expires = min(expires, int(own.timestamp()))
    if expires <= issued or run_ids(audience) & ended_runs:
        raise AudienceStale("The audience has expired, or its run has ended; a token could not be used.")
    token_id = str(new_id())
    # Tried with a key of the same length, so that a token that would be too long leaves no row and no key behind.
    sign(TokenReader(registry_id, bytes(32)), audience, token_id, issued=issued, expires=expires)
    shown = audience_json(replace(audience, expires_at=None))
    row = TokenRow(token_id, audience.agent, shown, by.at, by.actor, expires * 1000)
    key = tokens.mint(row, run_ids(audience), by)
    text = sign(TokenReader(registry_id, key), audience, token_id, issued=issued, expires=expires)
    return {"token": text, **_shown(row)}


def revoke(tokens: AudienceTokens, message: RevokeToken) -> JsonObject:
    """Who the token stood for. Raises ``NotFound``, ``Denied`` (another's agent)."""
    found = tokens.one(message.token_id)
    if found is not None and message.agents is not None and not _agents_of(found) <= set(message.agents):
        raise Denied("This token is not one of this operator's agents.", field="id")
    tokens.revoke(message.token_id, message.by)
    row = tokens.one(message.token_id)
    assert row is not None
    return _shown(row)


def listed(tokens: AudienceTokens, message: ListTokens, now: int) -> JsonObject:
    """``tokens``, the newest first, and their ``total``."""
    rows, total = tokens.newest(now=now, limit=message.limit, agents=message.agents)
    return {"tokens": [_shown(row) for row in rows], "total": total}


def _audience_of(claims: JsonObject, now: datetime) -> Audience:
    """The audience in claims whose signature holds."""
    token_id, issued, expires = claims["jti"], claims["iat"], claims["exp"]
    if not isinstance(token_id, str) or not _is_seconds(issued) or not _is_seconds(expires):
        raise _malformed()
    assert isinstance(issued, int)
    assert isinstance(expires, int)
    if not 0 < expires - issued <= TOKEN_MAX_SECONDS:
        raise _malformed()
    if not issued <= now.timestamp() < expires:
        raise AudienceStale(
            "The token has expired, or its time has not come; the host must mint a new one.", reason="token_expired"
        )
    try:
        audience = parse_audience(claims["audience"])
    except KnowledgeError:
        raise _malformed() from None
    return replace(audience, expires_at=datetime.fromtimestamp(expires, UTC), token_id=token_id)


def _is_seconds(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 < value < 1 << 40


def _agents_of(row: TokenRow) -> set[str]:
    return {link.agent for link in delegation_chain(parse_audience(row.audience))}


def _shown(row: TokenRow) -> JsonObject:
    audience = parse_audience(row.audience)
    shown: JsonObject = {"id": row.id, "agent": audience.agent}
    if isinstance(audience, Conversation):
        shown["sessionKey"] = audience.session_key
    shown |= {
        "audience": row.audience,
        "mintedAt": format_instant(row.minted_at),
        "mintedBy": row.minted_by,
        "expiresAt": format_instant(row.expires_at),
        "state": "live" if row.revoked_at is None else "revoked",
    }
    if row.revoked_at is not None:
        shown["revokedAt"] = format_instant(row.revoked_at)
    return shown


def _malformed() -> InvalidArgument:
    return InvalidArgument(
        "This is no token of an audience.", field="audience", reason="token_malformed", allowed="a token, or an object"
    )


def _foreign() -> Denied:
    return Denied("The token is one of another installation.", reason="token_foreign")

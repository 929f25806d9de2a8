"""Tokens of audiences as rows of ``registry.sqlite``: which were minted, for whom, until when, and which were revoked.

Guarantees: a token counts only while its row is here, so that one that was revoked stays so, and one that is not known
after the registry was lost is none; minting and revoking are durable, with their rows of the audit, when they return;
the text of a token is in no row. Rows of expired tokens go with the next one that is minted. The registry's thread.

Source: decisions.md section 6 (barriers, audit), section 7 (signed, expiring, revocable by id).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final, cast

import orjson

from messages.errors import LimitExceeded, NotFound
from messages.json_types import JsonObject
from storage import registry_audit
from storage.audience_key import make_key, read_key
from storage.layout import Layout
from storage.registry_audit import By
from storage.state.connection import Database, SqlValue

TOKENS_MAX: Final = 10_000
"""Of one state directory, revoked ones included until they expire."""

FAULT_POINTS: Final = (
    ("registry.token.begin", "beginning to note a token, or its end"),
    ("registry.token.commit", "making a token, or its end, durable"),
)


@dataclass(frozen=True, slots=True)
class TokenRow:
    """One token that was minted. Times are UTC milliseconds; ``audience`` is the host's object."""

    id: str
    agent: str
    audience: JsonObject
    minted_at: int
    minted_by: str
    expires_at: int
    revoked_at: int | None = None


class AudienceTokens:
    """The tokens of one open registry."""

    __slots__ = ("_changed", "_database", "_key", "_layout", "_require_in_place")

    def __init__(
        self,
        layout: Layout,
        database: Database,
        require_in_place: Callable[[], None],
        changed: Callable[[], None],
    ) -> None:
        self._layout = layout
        self._database = database
        self._require_in_place = require_in_place
        self._changed = changed
        self._key: bytes | None = None

    def live(self) -> frozenset[str]:
        """The ids that are not revoked; some may have expired."""
        return frozenset(
            token for (token,) in self._database.query("SELECT id FROM audience_token WHERE revoked_at IS NULL")
        )

    def any(self) -> bool:
        """Whether there is one at all, whatever became of it."""
        return self._database.query_one("SELECT 1 FROM audience_token LIMIT 1") is not None

    def key(self) -> bytes | None:
        """What they are signed with; ``None`` before the first one, or when it was lost. Raises ``StorageError``."""
        if self._key is None:
            self._key = read_key(self._layout)
        return self._key

    def newest(self, *, now: int, limit: int, agents: Sequence[str] | None = None) -> tuple[list[TokenRow], int]:
        """The newest tokens that have not expired, of these agents (``None``: of all), and how many there are."""
        of = "" if agents is None else f"AND agent IN ({', '.join('?' * len(agents))}) "
        parameters: list[SqlValue] = [now, *(agents or ())]
        condition = f"FROM audience_token WHERE expires_at > ? {of}"
        rows = self._database.query(
            "SELECT id, agent, audience, minted_at, minted_by, expires_at, revoked_at "
            f"{condition}ORDER BY minted_at DESC, id LIMIT ?",
            (*parameters, limit),
        )
        total = self._database.query_one(f"SELECT count(*) {condition}", parameters)
        assert total is not None
        return [_row(*row) for row in rows], total[0]

    def one(self, token_id: str) -> TokenRow | None:
        """The token of that id."""
        row = self._database.query_one(
            "SELECT id, agent, audience, minted_at, minted_by, expires_at, revoked_at FROM audience_token WHERE id = ?",
            (token_id,),
        )
        return None if row is None else _row(*row)

    def mint(self, row: TokenRow, runs: frozenset[str], by: By) -> bytes:
        """Note a new token; the key to sign it with. Raises ``LimitExceeded``, ``StorageError``.

        A key that had to be made anew ends every token of the one that was lost.
        """
        self._require_in_place()
        lost = self.key() is None
        self._key = make_key(self._layout)
        with self._database.transaction(full=True, point="registry.token"):
            self._database.execute("DELETE FROM audience_token WHERE expires_at <= ?", (by.at,))
            if lost:
                self._revoke("SELECT id FROM audience_token WHERE revoked_at IS NULL", (), by, {"reason": "key_lost"})
            count = self._database.query_one("SELECT count(*) FROM audience_token")
            if count is not None and count[0] >= TOKENS_MAX:
                raise LimitExceeded(
                    f"There are {TOKENS_MAX} tokens that have not expired; mint shorter ones.", limit=TOKENS_MAX
                )
            self._database.execute(
                "INSERT INTO audience_token VALUES (?, ?, ?, ?, ?, ?, NULL)",
                (row.id, row.agent, orjson.dumps(row.audience).decode(), row.minted_at, row.minted_by, row.expires_at),
            )
            self._database.execute_many(
                "INSERT INTO audience_token_run VALUES (?, ?)", [(run, row.id) for run in sorted(runs)]
            )
            subject: JsonObject = {"tokenId": row.id, "agent": row.agent, "kind": row.audience["kind"]}
            if "sessionKey" in row.audience:
                subject["sessionKey"] = row.audience["sessionKey"]
            registry_audit.note(self._database, by, "token.mint", {**subject, "expiresAt": row.expires_at})
        self._changed()
        return self._key

    def revoke(self, token_id: str, by: By) -> None:
        """End a token; one that is revoked already stays so. Raises ``NotFound``."""
        self._require_in_place()
        found = self.one(token_id)
        if found is None:
            raise NotFound("There is no token of that id; `knowledge audience list` names them.", field="id")
        if found.revoked_at is None:
            self._end("SELECT id FROM audience_token WHERE id = ?", (token_id,), by, {})

    def revoke_of_run(self, run_id: str, by: By) -> None:
        """End the tokens of a run that has ended: a restart must not bring them back."""
        chosen = (
            "SELECT t.id FROM audience_token_run r JOIN audience_token t ON t.id = r.id "
            "WHERE r.run_id = ? AND t.revoked_at IS NULL"
        )
        if self._database.query_one(chosen, (run_id,)) is not None:
            self._require_in_place()
            self._end(chosen, (run_id,), by, {"runId": run_id})

    def _end(self, chosen: str, parameters: tuple[str, ...], by: By, why: JsonObject) -> None:
        with self._database.transaction(full=True, point="registry.token"):
            self._revoke(chosen, parameters, by, why)
        self._changed()

    def _revoke(self, chosen: str, parameters: tuple[str, ...], by: By, why: JsonObject) -> None:
        """Inside a transaction."""
        for (token_id,) in self._database.query(f"{chosen} ORDER BY 1", parameters):
            found = self.one(token_id)
            assert found is not None
            self._database.execute("UPDATE audience_token SET revoked_at = ? WHERE id = ?", (by.at, token_id))
            registry_audit.note(
                self._database, by, "token.revoke", {"tokenId": token_id, "agent": found.agent, **why}
            )


def forget_tokens(database: Database) -> None:
    """Inside a transaction on the copy of a registry: none of its tokens is known any more.

    A token that was revoked after the copy was made would stand again, wherever the same ``audience.key`` lies.
    """
    if database.query_one("SELECT 1 FROM sqlite_schema WHERE name = 'audience_token'") is not None:
        database.execute("DELETE FROM audience_token_run")
        database.execute("DELETE FROM audience_token")


def _row(
    token_id: str, agent: str, audience: str, minted_at: int, minted_by: str, expires_at: int, revoked_at: int | None
) -> TokenRow:
    shown = cast(JsonObject, orjson.loads(audience))
    return TokenRow(token_id, agent, shown, minted_at, minted_by, expires_at, revoked_at)


__all__ = ["TOKENS_MAX", "AudienceTokens", "TokenRow", "forget_tokens"]

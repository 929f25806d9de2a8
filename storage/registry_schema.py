"""The tables of ``registry.sqlite``: made once, brought forward format by format.

Source: stores-and-access.md (Storage layout); decisions.md sections 1 (formats) and 6 (audit).
"""

from __future__ import annotations

from typing import Final

FORMAT: Final = 5
"""1: stores and bindings. 2: what maintenance remembers. 3: the journal of moves, grants, conversations, the audit.
4: tokens of audiences. 5: keys of the HTTP door."""

FIRST: Final = """
CREATE TABLE meta (
    one         INTEGER PRIMARY KEY CHECK (one = 1),
    registry_id TEXT NOT NULL,                          -- also in registry.id
    created_at  INTEGER NOT NULL
) STRICT;
CREATE TABLE store (
    vault_id    TEXT PRIMARY KEY,
    location    TEXT NOT NULL UNIQUE,                   -- below knowledge/ where it can be, else absolute
    made        INTEGER NOT NULL DEFAULT 0 CHECK (made IN (0, 1)),
    created_at  INTEGER NOT NULL
) STRICT, WITHOUT ROWID;
CREATE TABLE binding (
    kind        TEXT NOT NULL CHECK (kind IN ('isolated', 'named')),
    holder      TEXT NOT NULL,                          -- an agent id, or a store's configured name
    vault_id    TEXT NOT NULL UNIQUE REFERENCES store(vault_id),
    PRIMARY KEY (kind, holder)
) STRICT, WITHOUT ROWID;
PRAGMA user_version = 1;
"""
FORWARD: Final = {
    2: """
CREATE TABLE maintenance_schedule (
    one         INTEGER PRIMARY KEY CHECK (one = 1),
    rule        TEXT NOT NULL,                          -- what `next_at` was reckoned from; another one: reckon anew
    next_at     INTEGER
) STRICT;
CREATE TABLE maintenance_run (                          -- the last one only
    one         INTEGER PRIMARY KEY CHECK (one = 1),
    body        TEXT NOT NULL                           -- JSON: times, outcome, counts; never text of a record
) STRICT;
CREATE TABLE maintenance_store (                        -- the last result of each store
    vault_id    TEXT PRIMARY KEY REFERENCES store(vault_id) ON DELETE CASCADE,
    body        TEXT NOT NULL
) STRICT, WITHOUT ROWID;
PRAGMA user_version = 2;
""",
    3: """
CREATE TABLE assignment (                               -- the change of membership that is under way, if any
    one         INTEGER PRIMARY KEY CHECK (one = 1),
    body        TEXT NOT NULL                           -- JSON: ids, names and hashes
) STRICT;
CREATE TABLE conversation_grant (
    agent       TEXT NOT NULL,                          -- whose private partition
    session_key TEXT NOT NULL,
    access      TEXT NOT NULL CHECK (access IN ('read', 'read-save')),
    PRIMARY KEY (agent, session_key)
) STRICT, WITHOUT ROWID;
CREATE TABLE conversation (                             -- those that called lately, for whoever grants access
    agent       TEXT NOT NULL,
    session_key TEXT NOT NULL,
    seen_at     INTEGER NOT NULL,                       -- UTC milliseconds, to the hour or so
    PRIMARY KEY (agent, session_key)
) STRICT, WITHOUT ROWID;
CREATE TABLE audit (                                    -- bounded: the oldest rows go
    sequence    INTEGER PRIMARY KEY AUTOINCREMENT,
    at          INTEGER NOT NULL,                       -- UTC milliseconds
    actor       TEXT NOT NULL,
    door        TEXT NOT NULL,
    action      TEXT NOT NULL,
    subject     TEXT NOT NULL                           -- JSON: ids and names; never text of a record
) STRICT;
PRAGMA user_version = 3;
""",
    4: """
CREATE TABLE audience_token (                           -- those that may still be presented; never their text
    id          TEXT PRIMARY KEY,
    agent       TEXT NOT NULL,
    audience    TEXT NOT NULL,                          -- JSON, as the host wrote it: ids and names
    minted_at   INTEGER NOT NULL,                       -- UTC milliseconds
    minted_by   TEXT NOT NULL,
    expires_at  INTEGER NOT NULL,
    revoked_at  INTEGER
) STRICT, WITHOUT ROWID;
CREATE TABLE audience_token_run (                       -- the runs whose end revokes a token
    run_id      TEXT NOT NULL,
    id          TEXT NOT NULL REFERENCES audience_token(id) ON DELETE CASCADE,
    PRIMARY KEY (run_id, id)
) STRICT, WITHOUT ROWID;
CREATE INDEX audience_token_run_of ON audience_token_run(id);
PRAGMA user_version = 4;
""",
    5: """
CREATE TABLE http_key (                                 -- who may speak over HTTP: hashes, never a key
    kind        TEXT NOT NULL CHECK (kind IN ('host', 'operator')),
    holder      TEXT NOT NULL,                          -- an operator's configured id; empty for the host
    digest      BLOB NOT NULL CHECK (length(digest) = 32),
    made_at     INTEGER NOT NULL,                       -- UTC milliseconds
    made_by     TEXT NOT NULL,
    PRIMARY KEY (kind, holder)
) STRICT, WITHOUT ROWID;
PRAGMA user_version = 5;
""",
}
"""The statements that lead to each later format from the one before."""

__all__ = ["FIRST", "FORMAT", "FORWARD"]

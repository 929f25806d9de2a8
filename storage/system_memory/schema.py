"""The tables of ``system-memory.sqlite``, with every rule of a row's and a record's shape as a constraint.

A row that these tables hold is well formed whoever inserted it: a system row has all its fields and its evidence, a
tombstone names its stance, a record never names an account's own row or a tombstone, a refutation names a challenge
of the same row, and what was written is never edited. ``PRAGMA foreign_keys`` is on for every connection of ours.

Source: system-memory-contract.md sections 2, 4 and 11 (4); decisions.md section 1 (formats).
"""

from __future__ import annotations

from typing import Final

FORMAT: Final = 1
TABLES: Final = frozenset(("memory", "record", "recalled", "recalled_in", "steward_action"))

# What Python's str.strip() takes off, so that "trimmed" is one rule.
_WHITE: Final = (
    "char(9,10,11,12,13,28,29,30,31,32,133,160,5760,8192,8193,8194,8195,8196,8197,8198,8199,8200,8201,8202,8232,8233,"
    "8239,8287,12288)"
)


def _text(column: str, low: int, high: int) -> str:
    """That a column holds trimmed text of so many characters. A NUL ends what SQLite counts, so there is none."""
    return (
        f"(typeof({column}) = 'text' AND length({column}) BETWEEN {low} AND {high} AND instr({column}, char(0)) = 0 "
        f"AND trim({column}, {_WHITE}) = {column})"
    )


def _wrong_evidence(row: str) -> str:
    """That a row's evidence is no list of 1 to 20 references, each with a kind, what it refers to and a digest."""
    named = " AND ".join(
        f"json_type(entry.value, '$.{key}') IS 'text' AND trim(entry.value ->> '$.{key}', {_WHITE}) <> ''"
        for key in ("ref", "digest")
    )
    return f"""
        CASE WHEN json_valid({row}.evidence_refs) = 0 OR json_type({row}.evidence_refs) IS NOT 'array' THEN 1
        ELSE json_array_length({row}.evidence_refs) NOT BETWEEN 1 AND 20
            OR EXISTS (
                SELECT 1 FROM json_each({row}.evidence_refs) AS entry
                WHERE CASE WHEN entry.type IS NOT 'object' THEN 1
                      ELSE coalesce(entry.value ->> '$.kind' NOT IN ('receipt', 'memory', 'url'), 1)
                          OR NOT ({named})
                          OR (SELECT count(*) FROM json_each(entry.value)) <> 3
                      END
            )
        END"""


SCHEMA: Final = f"""
CREATE TABLE memory (
    id            TEXT PRIMARY KEY CHECK (length(id) = 36),
    account       TEXT NOT NULL CHECK ({_text("account", 1, 128)}),
    bucket        TEXT NOT NULL DEFAULT 'user' CHECK (bucket IN ('user', 'learned', 'system')),
    body          TEXT NOT NULL CHECK ({_text("body", 1, 2000)}),
    source_ref    TEXT CHECK (source_ref IS NULL OR {_text("source_ref", 1, 200)}),
    superseded_by TEXT REFERENCES memory(id) ON DELETE SET NULL CHECK (superseded_by IS NULL OR superseded_by <> id),
    inserted_at   INTEGER NOT NULL,                     -- UTC microseconds, rising with each row and record
    updated_at    INTEGER NOT NULL,
    slug          TEXT,
    entity        TEXT,
    tier          TEXT,
    as_of         TEXT,                                 -- the day on which the claim was observed true
    admission     TEXT,                                 -- what its author claims; read by nothing
    evidence_refs TEXT,                                 -- JSON: a list of {{kind, ref, digest}}
    stance        TEXT,                                 -- of a promotion tombstone
    promoted      INTEGER NOT NULL GENERATED ALWAYS AS (stance IS NOT NULL) STORED,
    UNIQUE (id, bucket, promoted),
    CONSTRAINT system_shape CHECK (
        CASE WHEN bucket = 'system' THEN
            slug IS NOT NULL AND {_text("slug", 5, 200)} AND substr(slug, 1, 4) = 'sys:'
            AND (entity IS NULL OR {_text("entity", 1, 200)})
            AND tier IS NOT NULL AND tier IN ('ledger', 'glass')
            AND as_of IS NOT NULL AND length(as_of) = 10 AND date(as_of) IS as_of
            AND admission IS NOT NULL AND admission IN ('candidate', 'admitted', 'rejected')
            AND evidence_refs IS NOT NULL
            AND (stance IS NULL OR (
                {_text("stance", 1, 200)} AND stance NOT GLOB '*[^a-z0-9-]*' AND stance NOT GLOB '-*'
                AND stance NOT GLOB '*-' AND stance NOT GLOB '*--*' AND instr(body, stance) > 0
                AND admission = 'candidate'))
        ELSE
            slug IS NULL AND entity IS NULL AND tier IS NULL AND as_of IS NULL AND admission IS NULL
            AND evidence_refs IS NULL AND stance IS NULL
        END
    )
) STRICT;
CREATE INDEX memory_of ON memory(account, inserted_at DESC, id DESC);
CREATE INDEX memory_live_of ON memory(account, bucket, inserted_at DESC, id DESC) WHERE superseded_by IS NULL;
CREATE INDEX memory_live_system ON memory(inserted_at DESC, id DESC)
    WHERE bucket = 'system' AND superseded_by IS NULL AND stance IS NULL;
CREATE INDEX memory_replaced ON memory(superseded_by) WHERE superseded_by IS NOT NULL;

CREATE TRIGGER memory_evidence BEFORE INSERT ON memory WHEN NEW.evidence_refs IS NOT NULL BEGIN
    SELECT RAISE(ABORT, 'evidence_shape') WHERE {_wrong_evidence("NEW")};
END;
CREATE TRIGGER memory_is_born_live BEFORE INSERT ON memory WHEN NEW.superseded_by IS NOT NULL BEGIN
    SELECT RAISE(ABORT, 'born_superseded');
END;
CREATE TRIGGER memory_is_never_edited BEFORE UPDATE ON memory BEGIN
    SELECT RAISE(ABORT, 'never_edited')
    WHERE NEW.id IS NOT OLD.id OR NEW.account IS NOT OLD.account OR NEW.bucket IS NOT OLD.bucket
       OR NEW.body IS NOT OLD.body OR NEW.source_ref IS NOT OLD.source_ref OR NEW.inserted_at IS NOT OLD.inserted_at
       OR NEW.slug IS NOT OLD.slug OR NEW.entity IS NOT OLD.entity OR NEW.tier IS NOT OLD.tier
       OR NEW.as_of IS NOT OLD.as_of OR NEW.admission IS NOT OLD.admission
       OR NEW.evidence_refs IS NOT OLD.evidence_refs OR NEW.stance IS NOT OLD.stance
       OR (OLD.superseded_by IS NOT NULL AND NEW.superseded_by IS NOT NULL
           AND NEW.superseded_by IS NOT OLD.superseded_by);
END;
CREATE TRIGGER memory_replacement BEFORE UPDATE OF superseded_by ON memory WHEN NEW.superseded_by IS NOT NULL BEGIN
    SELECT RAISE(ABORT, 'foreign_replacement')
    WHERE NOT EXISTS (
        SELECT 1 FROM memory AS later
        WHERE later.id = NEW.superseded_by
          AND CASE WHEN NEW.bucket = 'system' THEN later.bucket = 'system' AND later.slug = NEW.slug
              ELSE later.bucket <> 'system' AND later.account = NEW.account END
    );
END;

CREATE TABLE record (                                   -- append-only
    id              TEXT PRIMARY KEY CHECK (length(id) = 36),
    memory_id       TEXT NOT NULL,
    memory_bucket   TEXT NOT NULL CHECK (memory_bucket = 'system'),
    memory_promoted INTEGER NOT NULL CHECK (memory_promoted = 0),
    author          TEXT NOT NULL CHECK ({_text("author", 1, 128)}),
    role            TEXT NOT NULL CHECK (role IN ('admission', 'challenge', 'refutation')),
    verdict         TEXT,
    ground          TEXT NOT NULL CHECK ({_text("ground", 1, 2000)}),
    slug            TEXT NOT NULL,
    challenge_id    TEXT,
    challenge_role  TEXT,
    evidence_refs   TEXT,
    inserted_at     INTEGER NOT NULL,
    UNIQUE (id, memory_id, role),
    FOREIGN KEY (memory_id, memory_bucket, memory_promoted) REFERENCES memory(id, bucket, promoted) ON DELETE CASCADE,
    FOREIGN KEY (challenge_id, memory_id, challenge_role) REFERENCES record(id, memory_id, role) ON DELETE CASCADE,
    CONSTRAINT record_shape CHECK (
        CASE role
        WHEN 'admission' THEN
            verdict IS NOT NULL AND verdict IN ('admitted', 'rejected') AND slug = 'adm:' || memory_id
            AND challenge_id IS NULL AND challenge_role IS NULL AND evidence_refs IS NULL
        WHEN 'challenge' THEN
            verdict IS NULL AND slug = 'chl:' || memory_id AND challenge_id IS NULL AND challenge_role IS NULL
        ELSE
            verdict IS NULL AND evidence_refs IS NULL
            AND challenge_id IS NOT NULL AND challenge_role IS NOT NULL AND challenge_role = 'challenge'
            AND slug = 'ref:' || challenge_id
        END
    )
) STRICT;
CREATE INDEX record_of ON record(memory_id, inserted_at, id);
CREATE INDEX record_by ON record(author);
CREATE INDEX record_admission ON record(inserted_at, id) WHERE role = 'admission';
CREATE INDEX record_evidenced ON record(inserted_at, id) WHERE role = 'challenge' AND evidence_refs IS NOT NULL;
CREATE INDEX record_refutes ON record(challenge_id) WHERE challenge_id IS NOT NULL;

CREATE TRIGGER record_evidence BEFORE INSERT ON record WHEN NEW.evidence_refs IS NOT NULL BEGIN
    SELECT RAISE(ABORT, 'evidence_shape') WHERE {_wrong_evidence("NEW")};
END;
CREATE TRIGGER record_is_never_edited BEFORE UPDATE ON record BEGIN
    SELECT RAISE(ABORT, 'never_edited');
END;

CREATE TABLE recalled (                                 -- how often a system row was attached to a turn
    memory_id TEXT PRIMARY KEY REFERENCES memory(id) ON DELETE CASCADE,
    times     INTEGER NOT NULL,
    last_at   INTEGER NOT NULL
) STRICT, WITHOUT ROWID;
CREATE TABLE recalled_in (                              -- the sessions in which it was, each once; never their keys
    memory_id TEXT NOT NULL REFERENCES memory(id) ON DELETE CASCADE,
    session   BLOB NOT NULL CHECK (length(session) = 16),
    PRIMARY KEY (memory_id, session)
) STRICT, WITHOUT ROWID;

CREATE TABLE steward_action (                           -- committed with what they did, until the audit has them
    sequence  INTEGER PRIMARY KEY AUTOINCREMENT,
    at        INTEGER NOT NULL,                         -- UTC milliseconds
    actor     TEXT NOT NULL,
    door      TEXT NOT NULL,
    action    TEXT NOT NULL,
    subject   TEXT NOT NULL                             -- JSON: ids
) STRICT;
PRAGMA user_version = {FORMAT};
"""

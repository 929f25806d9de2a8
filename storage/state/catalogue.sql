-- The catalogue: what the files say now, one row per Markdown file, derived and rebuildable from them.
-- Record text is never copied here: it is the blob of the row's hash. Times are UTC milliseconds.

CREATE TABLE catalogue_identity (                           -- one row: a rebuilt catalogue counts its changes anew
    id          TEXT NOT NULL
) STRICT;

CREATE TABLE catalogue_partition (
    id          INTEGER PRIMARY KEY,
    key         TEXT NOT NULL UNIQUE,              -- Partition.key
    change      INTEGER NOT NULL DEFAULT 0,        -- rises with every row put or removed: snapshots, index position
    ontology    TEXT NOT NULL DEFAULT '',          -- fingerprint under which rows were judged
    withheld    INTEGER NOT NULL DEFAULT 0         -- files whose scope is not this partition's: counted, never shown
) STRICT;

CREATE TABLE file (
    partition   INTEGER NOT NULL REFERENCES catalogue_partition(id),
    path        TEXT NOT NULL,
    hash        TEXT NOT NULL,
    state       TEXT NOT NULL CHECK (state IN ('record', 'broken', 'withheld')),
    device      INTEGER, inode INTEGER, size INTEGER, mtime_ns INTEGER, ctime_ns INTEGER,
    PRIMARY KEY (partition, path)
) STRICT, WITHOUT ROWID;

CREATE INDEX file_without_record ON file(partition, state) WHERE state <> 'record';

CREATE TABLE record (
    row              INTEGER PRIMARY KEY AUTOINCREMENT,   -- never reused: the keyword index refers to it
    partition        INTEGER NOT NULL REFERENCES catalogue_partition(id),
    path             TEXT NOT NULL,
    id               TEXT NOT NULL,
    hash             TEXT NOT NULL,
    revision         INTEGER NOT NULL,
    kind             TEXT NOT NULL,
    type             TEXT NOT NULL DEFAULT '',
    title            TEXT NOT NULL,
    lifecycle        TEXT NOT NULL,
    valid            INTEGER NOT NULL,
    fixture          INTEGER NOT NULL,
    claim_kind       TEXT NOT NULL DEFAULT '',
    assertion_origin TEXT NOT NULL DEFAULT '',
    claim_key        TEXT NOT NULL DEFAULT '',            -- normalised text, kind and entities: exact repeats
    source_page      TEXT NOT NULL DEFAULT '',
    merged_into      TEXT NOT NULL DEFAULT '',
    superseded_by    TEXT NOT NULL DEFAULT '',
    body_size        INTEGER NOT NULL,                    -- UTF-16 code units
    recorded_at      INTEGER NOT NULL,
    updated_at       INTEGER NOT NULL,
    occurred_from    INTEGER, occurred_until INTEGER,
    due_from         INTEGER, due_until INTEGER,
    expires_at       INTEGER,
    change           INTEGER NOT NULL
) STRICT;
CREATE UNIQUE INDEX record_by_path ON record(partition, path);
CREATE INDEX record_by_id ON record(partition, id);
CREATE INDEX record_by_change ON record(partition, change);
CREATE INDEX record_by_claim_key ON record(partition, claim_key) WHERE claim_key <> '';
CREATE INDEX record_by_time ON record(partition, recorded_at);
-- What had expired by a time is part of a snapshot: the clock changes lists without a write.
CREATE INDEX record_by_expiry ON record(partition, expires_at) WHERE expires_at IS NOT NULL;
CREATE INDEX record_by_kind ON record(partition, kind, type, lifecycle, valid, fixture);   -- counts need no row
-- When active records happened, else were recorded, and their other dates: storage.state.timeline.
CREATE INDEX record_by_moment ON record(partition, coalesce(occurred_from, recorded_at)) WHERE lifecycle = 'active';
CREATE INDEX record_by_update ON record(partition, updated_at) WHERE lifecycle = 'active';
CREATE INDEX record_by_due ON record(partition, due_from) WHERE lifecycle = 'active' AND due_from IS NOT NULL;
CREATE INDEX record_by_long_moment ON record(partition, occurred_from)          -- longer than a day: a month or a year
    WHERE lifecycle = 'active' AND occurred_until - occurred_from > 86400000;

CREATE TABLE removed (                                     -- rows that are gone, for readers that follow changes
    partition   INTEGER NOT NULL,
    change      INTEGER NOT NULL,
    row         INTEGER NOT NULL,
    PRIMARY KEY (partition, change)
) STRICT, WITHOUT ROWID;

CREATE TABLE name (                                        -- titles and aliases as lookup compares them
    partition   INTEGER NOT NULL,
    normalised  TEXT NOT NULL,
    row         INTEGER NOT NULL REFERENCES record(row) ON DELETE CASCADE,
    source      TEXT NOT NULL CHECK (source IN ('title', 'alias')),
    PRIMARY KEY (partition, normalised, row, source)
) STRICT, WITHOUT ROWID;
CREATE INDEX name_by_row ON name(row);

CREATE TABLE tag (
    partition   INTEGER NOT NULL,
    tag         TEXT NOT NULL,
    row         INTEGER NOT NULL REFERENCES record(row) ON DELETE CASCADE,
    PRIMARY KEY (partition, tag, row)
) STRICT, WITHOUT ROWID;
CREATE INDEX tag_by_row ON tag(row);

CREATE TABLE reference (                                   -- ids that a record names, by role; and a source's key
    partition   INTEGER NOT NULL,
    target      TEXT NOT NULL,
    role        TEXT NOT NULL,
    row         INTEGER NOT NULL REFERENCES record(row) ON DELETE CASCADE,
    position    INTEGER NOT NULL,
    PRIMARY KEY (partition, target, role, row, position)
) STRICT, WITHOUT ROWID;
CREATE INDEX reference_by_row ON reference(row, role, position);

CREATE TABLE citation (                                    -- which record cites which retained file
    partition   INTEGER NOT NULL,
    path        TEXT NOT NULL,
    sha256      TEXT NOT NULL,
    row         INTEGER NOT NULL REFERENCES record(row) ON DELETE CASCADE,
    position    INTEGER NOT NULL,
    PRIMARY KEY (partition, path, row, position)
) STRICT, WITHOUT ROWID;
CREATE INDEX citation_by_row ON citation(row);
CREATE INDEX citation_by_sha256 ON citation(partition, sha256);   -- whether some bytes are retained already

CREATE TABLE page (                                        -- every page's names on disk, and its place among the others
    row         INTEGER PRIMARY KEY,                       -- gone after its record, when its links are settled
    partition   INTEGER NOT NULL,
    id          TEXT NOT NULL,
    path        TEXT NOT NULL,                             -- storage.records.path_key
    file        TEXT NOT NULL,                             -- the same of its last part
    degree      INTEGER,                                   -- distinct current pages linked with; NULL: not current
    connected   INTEGER                                    -- the same by links, relationships and shared claims
) STRICT;
CREATE INDEX page_by_path ON page(partition, path);
CREATE INDEX page_by_file ON page(partition, file);
CREATE INDEX page_by_connected ON page(partition, connected DESC, id) WHERE connected IS NOT NULL;

CREATE TABLE degree (                                      -- how many current pages have this degree
    partition   INTEGER NOT NULL,
    degree      INTEGER NOT NULL,
    pages       INTEGER NOT NULL,
    PRIMARY KEY (partition, degree)
) STRICT, WITHOUT ROWID;

CREATE TABLE body_link (                                   -- the links of bodies, as written; those of pages as they lead now
    partition   INTEGER NOT NULL,
    row         INTEGER NOT NULL,
    form        TEXT NOT NULL CHECK (form IN ('wiki', 'path')),
    written     TEXT NOT NULL,                             -- an id, a name or a path; for form 'path' its path_key
    name        TEXT NOT NULL,                             -- a wikilink's target as lookup compares names, else ''
    path        TEXT NOT NULL,                             -- path_key of the file that it could mean
    target      INTEGER,                                   -- the row of another current page, whoever came first
    PRIMARY KEY (row, form, written)
) STRICT, WITHOUT ROWID;
CREATE INDEX body_link_by_written ON body_link(partition, written) WHERE form = 'wiki';
CREATE INDEX body_link_by_name ON body_link(partition, name) WHERE form = 'wiki';
CREATE INDEX body_link_by_path ON body_link(partition, path);
CREATE INDEX body_link_by_target ON body_link(target, row) WHERE target IS NOT NULL;

CREATE TABLE tie (                                         -- current pages of a statement that connects two or more
    partition   INTEGER NOT NULL,
    row         INTEGER NOT NULL,                          -- the claim or relationship
    page        INTEGER NOT NULL,
    PRIMARY KEY (row, page)
) STRICT, WITHOUT ROWID;

CREATE TABLE neighbour (                                   -- how many statements connect two pages
    partition   INTEGER NOT NULL,
    page        INTEGER NOT NULL,                          -- the lower row of the two
    other       INTEGER NOT NULL,
    statements  INTEGER NOT NULL,
    PRIMARY KEY (page, other)
) STRICT, WITHOUT ROWID;

CREATE TABLE finding (                                     -- what is wrong with a file, for diagnostics
    partition   INTEGER NOT NULL,
    path        TEXT NOT NULL,
    position    INTEGER NOT NULL,
    code        TEXT NOT NULL,
    field       TEXT NOT NULL,
    message     TEXT NOT NULL,
    PRIMARY KEY (partition, path, position)
) STRICT, WITHOUT ROWID;

CREATE TABLE ontology_file (                               -- the partition's extension as the rows were judged by it
    partition   INTEGER PRIMARY KEY REFERENCES catalogue_partition(id),
    hash        TEXT NOT NULL,
    device      INTEGER, inode INTEGER, size INTEGER, mtime_ns INTEGER, ctime_ns INTEGER
) STRICT;

-- state.sqlite, version 2: the journal of publications, every published text, and the marks that recovery reads.
-- Times are nanoseconds since 1970 (UTC); hashes are SHA-256 in lower-case hex; booleans are 0 and 1.

-- One row. `incarnation` is the write fence; (generation, publication_id) is the pair that vault.json must carry;
-- the floor is the pair up to which files were durable when their entries were pruned.
CREATE TABLE meta (
  id INTEGER PRIMARY KEY CHECK (id = 1),
  vault_id TEXT NOT NULL,
  made INTEGER NOT NULL DEFAULT 0,
  clean INTEGER NOT NULL DEFAULT 0,
  incarnation INTEGER NOT NULL DEFAULT 0,
  boot_id TEXT NOT NULL DEFAULT '',
  mount_id TEXT NOT NULL DEFAULT '',
  vault_device INTEGER NOT NULL DEFAULT 0,
  vault_inode INTEGER NOT NULL DEFAULT 0,
  generation INTEGER NOT NULL DEFAULT 0,
  publication_id TEXT NOT NULL,
  floor_generation INTEGER NOT NULL DEFAULT 0,
  floor_publication_id TEXT NOT NULL,
  cuts INTEGER NOT NULL DEFAULT 0
) STRICT;

CREATE TABLE partition (
  id INTEGER PRIMARY KEY,
  key TEXT NOT NULL UNIQUE,
  sequence INTEGER NOT NULL DEFAULT 0
) STRICT;

-- The only table that holds text. `kept` = history refers to it; the others go when their entry is pruned.
CREATE TABLE blob (
  hash TEXT PRIMARY KEY,
  kept INTEGER NOT NULL,
  bytes BLOB NOT NULL
) STRICT;

-- One row for each accepted publication, fold-in of an external edit, or keeping of a displaced text; never deleted.
-- A fold-in has no generation: vault.json does not change with it. `git_commit` is the checkpoint that holds it.
CREATE TABLE publication (
  id INTEGER PRIMARY KEY,
  publication_id TEXT NOT NULL,
  partition INTEGER NOT NULL REFERENCES partition,
  sequence INTEGER NOT NULL,
  generation INTEGER,
  request_id TEXT,
  payload_hash TEXT,
  operation TEXT NOT NULL,
  actor TEXT NOT NULL,
  accepted_at INTEGER NOT NULL,
  settled_at INTEGER,
  state TEXT NOT NULL CHECK (state IN ('pending', 'rolling_back', 'published', 'conflict', 'folded')),
  pruned INTEGER NOT NULL DEFAULT 0,
  fixed TEXT,
  receipt TEXT,
  git_commit TEXT
) STRICT;
CREATE UNIQUE INDEX publication_request ON publication (partition, request_id) WHERE request_id IS NOT NULL;
CREATE INDEX publication_unpruned ON publication (id) WHERE pruned = 0;
CREATE INDEX publication_unsettled ON publication (partition) WHERE state IN ('pending', 'rolling_back');
CREATE INDEX publication_conflict ON publication (partition) WHERE state = 'conflict';
CREATE INDEX publication_adoption ON publication (id) WHERE operation = 'adopt_store';

-- What an entry does to one path of the vault (relative to it). `key` is the path as the file system compares it.
CREATE TABLE step (
  publication INTEGER NOT NULL REFERENCES publication,
  ordinal INTEGER NOT NULL,
  path TEXT NOT NULL,
  key TEXT NOT NULL,
  before TEXT,
  after TEXT,
  displaced TEXT,
  record_id TEXT,
  PRIMARY KEY (publication, ordinal)
) STRICT, WITHOUT ROWID;

-- One row for each revision of each record. `hash` NULL = removed. `path` is relative to the partition's folder.
CREATE TABLE history (
  id INTEGER PRIMARY KEY,
  partition INTEGER NOT NULL REFERENCES partition,
  sequence INTEGER NOT NULL,
  publication INTEGER NOT NULL REFERENCES publication,
  record_id TEXT,
  revision INTEGER,
  hash TEXT,
  before TEXT,
  path TEXT NOT NULL,
  operation TEXT NOT NULL,
  actor TEXT NOT NULL,
  at INTEGER NOT NULL,
  external INTEGER NOT NULL,
  request_id TEXT,
  lifecycle TEXT
) STRICT;
CREATE INDEX history_publication ON history (publication);
CREATE INDEX history_sequence ON history (partition, sequence);
CREATE INDEX history_record ON history (partition, record_id, sequence);

-- Settled entries that are not in the Git checkpoint yet, or whose Git objects are not known to be durable.
CREATE TABLE git_queue (
  publication INTEGER PRIMARY KEY REFERENCES publication,
  commit_id TEXT,
  attempts INTEGER NOT NULL DEFAULT 0,
  error TEXT
) STRICT;

-- state.sqlite, since version 2: the descriptors of attached sources.
-- Retained sources that were attached, one row for each request; never deleted. While `path` is NULL the `received`
-- bytes lie, synced, in artifacts/<requestId>/.kr-upload; then `path` names the retained file and the row is its
-- immutable descriptor. `size` is known once the final chunk is there. Times are nanoseconds since 1970 (UTC).
CREATE TABLE upload (
  partition INTEGER NOT NULL REFERENCES partition,
  request_id TEXT NOT NULL,
  operation TEXT NOT NULL,
  payload_hash TEXT NOT NULL,
  actor TEXT NOT NULL,
  filename TEXT NOT NULL,
  media_type TEXT,
  attribution TEXT NOT NULL,
  received INTEGER NOT NULL,
  size INTEGER,
  sha256 TEXT,
  path TEXT,
  at INTEGER NOT NULL,
  PRIMARY KEY (partition, request_id)
) STRICT, WITHOUT ROWID;
CREATE INDEX upload_retained ON upload (partition, sha256, path) WHERE path IS NOT NULL;

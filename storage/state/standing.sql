-- state.sqlite, since version 5: standing indexes as sessions were given them, so that each stays the same; standing.py.
-- Derivable from history. `started_at` is the session's start in UTC milliseconds, `body` NULL where there was nothing
-- to list. Few: the oldest go.
CREATE TABLE standing_index (
  id INTEGER PRIMARY KEY,
  partition INTEGER NOT NULL REFERENCES partition,
  started_at INTEGER NOT NULL,
  body TEXT
) STRICT;
CREATE UNIQUE INDEX standing_index_of_session ON standing_index (partition, started_at);

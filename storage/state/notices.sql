-- state.sqlite, since version 3: what recoveries did to files of the vault, for people to read; see notices.py.
-- `at` is when the store was opened, `accepted_at` when our version of the file was; both nanoseconds since 1970 (UTC).
CREATE TABLE recovery_notice (
  id INTEGER PRIMARY KEY,
  at INTEGER NOT NULL,
  happened TEXT NOT NULL,
  path TEXT NOT NULL,
  accepted_at INTEGER NOT NULL,
  revision INTEGER
) STRICT;

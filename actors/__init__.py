"""Who runs, in which lane, under whose supervision, with whose permission. Holds no SQL and no Git commands."""

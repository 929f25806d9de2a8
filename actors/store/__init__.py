"""One store: its lane, its helpers and its operations."""

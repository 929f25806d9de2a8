"""One store: a lane that commits, and the helpers that work for it."""

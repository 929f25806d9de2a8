"""The store, its lane and its operations."""

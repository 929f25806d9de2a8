"""Maintenance: its schedule, its course through a store, its actor."""

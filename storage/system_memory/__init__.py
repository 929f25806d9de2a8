"""System memory on disk: what a network of agents has observed and can evidence, in a database of its own.

Rows are never edited and records never changed: what holds is derived. The shapes that a row and a record may have hold
twice, in :mod:`storage.system_memory.shapes` with a message for whoever wrote it, and in the database's own constraints
whatever writes it.

Source: system-memory-boundary.md, system-memory-contract.md.
"""

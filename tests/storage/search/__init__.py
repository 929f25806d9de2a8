"""Keyword search, with real files and threads."""

"""The guards between an attempt and private data: how each is switched off, and an attempt that it stops."""

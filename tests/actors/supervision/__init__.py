"""Tests of actors.supervision: DESIGN.md rules 1-11."""

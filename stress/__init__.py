"""Concurrent agents against the real runtime, faults injected, the outcome judged by checkers of its own."""

"""Retained sources: whether what a record cites is still there, unchanged, and says what is quoted.

Sources are kept as they were given, under ``artifacts/<request id>/`` of their partition, and are never rewritten.
"""

from storage.evidence.verify import EvidenceProblem, Verdict, VerdictCache, unchanged, verify
from storage.layout import excerpt_path

__all__ = ["EvidenceProblem", "Verdict", "VerdictCache", "excerpt_path", "unchanged", "verify"]

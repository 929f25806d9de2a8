"""Retained sources: how they are retained, whether what a record cites is still there, and reading them in pieces.

Sources are kept as they were given, under ``artifacts/<request id>/`` of their partition, and are never rewritten.
"""

from storage.evidence.naming import retained_name
from storage.evidence.reading import NoWindow, Point, Spans, Window, read_piece
from storage.evidence.retaining import (
    PARTIAL_NAME,
    RunningHashes,
    Shelf,
    Staged,
    note,
    sweep_copies,
)
from storage.evidence.verify import EvidenceProblem, Verdict, VerdictCache, unchanged, verify
from storage.evidence.workspace import SourceProblem, SourceRefused, open_source
from storage.layout import excerpt_path

__all__ = [
    "PARTIAL_NAME",
    "EvidenceProblem",
    "NoWindow",
    "Point",
    "RunningHashes",
    "Shelf",
    "SourceProblem",
    "SourceRefused",
    "Spans",
    "Staged",
    "Verdict",
    "VerdictCache",
    "Window",
    "excerpt_path",
    "note",
    "open_source",
    "read_piece",
    "retained_name",
    "sweep_copies",
    "unchanged",
    "verify",
]

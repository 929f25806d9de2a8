"""What a ranked list is worth, from its judgements. Pure functions; a document is relevant from grade 1 on."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Final

DEPTH: Final = 10
"""Hits that are looked at: a page of an agent's search."""


@dataclass(frozen=True, slots=True)
class Scores:
    """The means over some queries, from 0 to 1."""

    queries: int
    recall_1: float
    recall_5: float
    recall_10: float
    mrr: float
    ndcg_10: float


def scores(judged: Sequence[tuple[Sequence[str], Mapping[str, int]]]) -> Scores:
    """The means over lists and their grades; at least one."""
    recall_1, recall_5, recall_10 = (
        fmean(recall(found, grades, depth) for found, grades in judged) for depth in (1, 5, DEPTH)
    )
    return Scores(
        queries=len(judged),
        recall_1=recall_1,
        recall_5=recall_5,
        recall_10=recall_10,
        mrr=fmean(reciprocal_rank(found, grades) for found, grades in judged),
        ndcg_10=fmean(ndcg(found, grades) for found, grades in judged),
    )


def recall(found: Sequence[str], grades: Mapping[str, int], depth: int) -> float:
    """The share of the relevant documents that stands among the first ``depth``; below 1 where they are more."""
    relevant = {document for document, grade in grades.items() if grade}
    return len(relevant & set(found[:depth])) / len(relevant)


def first_relevant(found: Sequence[str], grades: Mapping[str, int]) -> int | None:
    """The rank, from 1, of the first relevant document among the first ten."""
    return next((rank for rank, document in enumerate(found[:DEPTH], 1) if grades.get(document, 0)), None)


def reciprocal_rank(found: Sequence[str], grades: Mapping[str, int]) -> float:
    """1 by the rank of the first relevant document; 0 without one among the first ten."""
    rank = first_relevant(found, grades)
    return 0.0 if rank is None else 1 / rank


def ndcg(found: Sequence[str], grades: Mapping[str, int], depth: int = DEPTH) -> float:
    """Discounted cumulative gain by that of the best order. Gain ``2**grade - 1``, discount ``log2(rank + 1)``."""
    best = _gain(sorted(grades.values(), reverse=True)[:depth])
    return _gain([grades.get(document, 0) for document in found[:depth]]) / best


def _gain(grades: Sequence[int]) -> float:
    return math.fsum((2**grade - 1) / math.log2(rank + 1) for rank, grade in enumerate(grades, 1))


def percentile(values: Sequence[float], share: float) -> float:
    """The smallest of the values that at least this share of them does not exceed (nearest rank)."""
    return sorted(values)[max(0, math.ceil(share * len(values)) - 1)]

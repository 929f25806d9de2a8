"""``python -m stress gate-fit``: the weights of the local decision model, from one half of a judged corpus.

Each query is taken as a message, its candidates are those of the recall gate, and a page that a judgement names counts
as relevant. Queries that only claims answer stay in: for them every page is wrong. The other half of the queries says
what the gate would inject at each threshold.
"""

from __future__ import annotations

import argparse
import json
import logging
import math
import random
import sys
import tempfile
import time
from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from host_bridge.decisions.local import FITTED, Features, LocalModel, Logistic, Vectors, load_vectors, look_at
from messages.envelope import Deadline
from messages.json_types import JsonObject
from stress.recall.corpus import SHIPPED, Corpus, CorpusError, read_corpus
from stress.recall.runtime import Runtime

SEED: Final = 11
THRESHOLDS: Final = (0.3, 0.4, 0.5, 0.6, 0.7, 0.75, 0.8, 0.9)
_SHRINK: Final = 1.0
"""What a weight costs: the queries are few."""
_STEPS: Final = 50
_SECONDS: Final = 600.0


@dataclass(frozen=True, slots=True)
class Turn:
    """One query's candidates: their features, whether each is relevant, and whether any page of the corpus is."""

    features: tuple[Features, ...]
    relevant: tuple[bool, ...]
    answered_by_a_page: bool


def main(arguments: Sequence[str]) -> int:
    """Fit and report: 0, or 2 where the corpus or the model's files cannot be used."""
    parser = argparse.ArgumentParser(
        prog="python -m stress gate-fit",
        description="Fit the local decision model on one half of a judged corpus and judge it on the other.",
    )
    parser.add_argument("--corpus", type=Path, default=SHIPPED, metavar="DIR", help="as of `python -m stress recall`")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    options = parser.parse_args(arguments)
    problem = LocalModel().problem()
    if problem is not None:
        print(problem, file=sys.stderr)
        return 2
    logging.disable(logging.CRITICAL)
    try:
        began = time.perf_counter()
        vectors = load_vectors()
        loaded = time.perf_counter() - began
        corpus = read_corpus(options.corpus)
        turns, seconds = look(corpus, vectors)
    except CorpusError as error:
        print(error, file=sys.stderr)
        return 2
    finally:
        logging.disable(logging.NOTSET)
    found = report(turns) | {"loadMs": round(loaded * 1000), "turnMs": round(1000 * seconds / len(turns), 2)}
    print(json.dumps(found) if options.json else "\n".join(_in_words(found)))
    return 0


def look(corpus: Corpus, vectors: Vectors) -> tuple[list[Turn], float]:
    """Every query as a turn, in an order that the seed gives, and the seconds that the model took for all of them."""
    documents = {document.id: document for document in corpus.documents}
    turns: list[Turn] = []
    seconds = 0.0
    with tempfile.TemporaryDirectory(prefix="knowledge-gate-fit-") as scratch:
        with Runtime(Path(scratch) / "state", "any") as runtime:
            runtime.save(corpus.documents)
            with closing(runtime.candidates()) as candidates:
                for query in corpus.queries:
                    hits = candidates.search(query.text)
                    texts = [f"{documents[hit].title}\n\n{documents[hit].text}" for hit in hits]
                    began = time.perf_counter()
                    features = tuple(look_at(vectors, query.text, texts, Deadline.after(_SECONDS)))
                    seconds += time.perf_counter() - began
                    pages = {name for name in query.grades if documents[name].kind == "page"}
                    turns.append(Turn(features, tuple(hit in pages for hit in hits), bool(pages)))
    random.Random(SEED).shuffle(turns)
    return turns, seconds


def report(turns: Sequence[Turn]) -> JsonObject:
    """The weights fitted on the first half, and what they and the shipped ones do on the second."""
    choosing, reporting = turns[: len(turns) // 2], turns[len(turns) // 2 :]
    fitted = fit(choosing)
    return {
        "turns": len(turns),
        "fitted": _weights(fitted),
        "shipped": _weights(FITTED),
        "thresholds": [_row(FITTED, reporting, threshold) for threshold in THRESHOLDS],
    }


def fit(turns: Sequence[Turn]) -> Logistic:
    """Newton's method on the log loss of all pages, with a ridge on the weights but not on the constant."""
    rows = [
        ((*features, 1.0), relevant)
        for turn in turns
        for features, relevant in zip(turn.features, turn.relevant, strict=True)
    ]
    weights = [0.0] * 4
    for _ in range(_STEPS):
        slope = [_SHRINK * weight for weight in weights[:3]] + [0.0]
        curve = [[_SHRINK if row == column < 3 else 0.0 for column in range(4)] for row in range(4)]
        for row, relevant in rows:
            probability = 1 / (1 + math.exp(-sum(weight * value for weight, value in zip(weights, row, strict=True))))
            for one in range(4):
                slope[one] += row[one] * (probability - relevant)
                for other in range(4):
                    curve[one][other] += row[one] * row[other] * probability * (1 - probability)
        weights = [weight - step for weight, step in zip(weights, _solve(curve, slope), strict=True)]
    return Logistic(*weights)


def _solve(matrix: list[list[float]], right: list[float]) -> list[float]:
    """Gauss with pivots; the curve of a ridge is never singular."""
    rows = [[*row, value] for row, value in zip(matrix, right, strict=True)]
    for column in range(len(rows)):
        pivot = max(range(column, len(rows)), key=lambda row: abs(rows[row][column]))
        rows[column], rows[pivot] = rows[pivot], rows[column]
        for row in range(len(rows)):
            if row != column:
                factor = rows[row][column] / rows[column][column]
                rows[row] = [value - factor * other for value, other in zip(rows[row], rows[column], strict=True)]
    return [row[-1] / row[place] for place, row in enumerate(rows)]


def _row(model: Logistic, turns: Sequence[Turn], threshold: float) -> JsonObject:
    injected = [[model.probability(each) >= threshold for each in turn.features] for turn in turns]
    right = sum(
        hit and relevant
        for turn, hits in zip(turns, injected, strict=True)
        for hit, relevant in zip(hits, turn.relevant, strict=True)
    )
    answered = [
        any(hit and relevant for hit, relevant in zip(hits, turn.relevant, strict=True))
        for turn, hits in zip(turns, injected, strict=True)
        if turn.answered_by_a_page
    ]
    others = [any(hits) for turn, hits in zip(turns, injected, strict=True) if not turn.answered_by_a_page]
    pages = sum(map(sum, injected))
    return {
        "threshold": threshold,
        "turnsWithTheirPage": sum(answered) / len(answered) if answered else None,
        "precision": right / pages if pages else None,
        "otherTurnsWithAPage": sum(others) / len(others) if others else None,
    }


def _weights(model: Logistic) -> JsonObject:
    return {
        "cosine": round(model.cosine, 2),
        "coverage": round(model.coverage, 2),
        "place": round(model.place, 2),
        "constant": round(model.constant, 2),
    }


def _in_words(found: JsonObject) -> list[str]:
    rows = found["thresholds"]
    assert isinstance(rows, list)
    lines = [
        f"{found['turns']} turns, loaded in {found['loadMs']} ms, {found['turnMs']} ms a turn",
        f"fitted on one half: {found['fitted']}",
        f"shipped:            {found['shipped']}",
        "",
        "the other half: threshold   turns that get their page   precision   turns without a page that get one",
    ]
    for row in rows:
        assert isinstance(row, dict)
        lines.append(
            f"{row['threshold']:>25} {_share(row['turnsWithTheirPage']):>27} {_share(row['precision']):>11} "
            f"{_share(row['otherTurnsWithAPage']):>37}"
        )
    return lines


def _share(value: object) -> str:
    return f"{value:.3f}" if isinstance(value, float) else "-"

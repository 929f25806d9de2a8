"""How a run is shown: a table on the terminal, the same in Markdown, and JSON for scripts."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Literal

from rich.table import Table

from messages.json_types import JsonObject
from stress.recall.corpus import Corpus, Query
from stress.recall.metrics import Scores, first_relevant, percentile, scores

_HEADINGS: Final = ("queries", "searched with", "R@1", "R@5", "R@10", "MRR", "nDCG@10", "p50 ms", "p95 ms")


@dataclass(frozen=True, slots=True)
class Answers:
    """What one contender answered: its hits by query id, and the seconds of each turn of each query."""

    name: str
    hits: Mapping[str, Sequence[str]]
    seconds: Mapping[str, Sequence[float]]

    def scores(self, queries: Sequence[Query]) -> Scores:
        return scores([(self.hits[query.id], query.grades) for query in queries])

    def milliseconds(self, queries: Sequence[Query], share: float) -> float:
        return 1_000 * percentile([taken for query in queries for taken in self.seconds[query.id]], share)


@dataclass(frozen=True, slots=True)
class Run:
    """One set of queries, asked of several contenders: whole searches, or candidates for the recall gate."""

    of: Literal["searches", "candidates"]
    corpus: Corpus
    answers: Sequence[Answers]

    @property
    def title(self) -> str:
        what = "" if self.of == "searches" else "Candidates for the recall gate: "
        return f"{what}{len(self.corpus.documents)} {_COUNTED[self.of]}, {len(self.corpus.queries)} queries"


_COUNTED: Final = {"searches": "documents", "candidates": "pages"}


def table(run: Run) -> Table:
    """For a terminal."""
    shown = Table(title=run.title)
    for heading in _HEADINGS:
        shown.add_column(heading, justify="left" if heading in _HEADINGS[:2] else "right")
    for name, queries in _groups(run.corpus):
        for answer in run.answers:
            shown.add_row(*_cells(name, queries, answer), end_section=answer is run.answers[-1])
    return shown


def markdown(run: Run) -> str:
    """The same as Markdown."""
    lines = [run.title, "", f"| {' | '.join(_HEADINGS)} |", "|" + "---|" * len(_HEADINGS)]
    lines += [
        f"| {' | '.join(_cells(name, queries, answer))} |"
        for name, queries in _groups(run.corpus)
        for answer in run.answers
    ]
    return "\n".join(lines) + "\n"


def document(runs: Sequence[Run], *, mode: str, rounds: int) -> JsonObject:
    """The whole run as data, that of the candidates as ``candidates`` where there is one.

    ``firstRelevant`` is a rank from 1, or null where none of ten hits is relevant.
    """
    shown: JsonObject = {"format": "knowledge-recall-v1", "mode": mode, "rounds": rounds}
    for run in runs:
        if run.of == "searches":
            shown |= _document(run)
        else:
            shown[run.of] = _document(run)
    return shown


def _document(run: Run) -> JsonObject:
    corpus, answers = run.corpus, run.answers
    return {
        "documents": len(corpus.documents),
        "groups": [
            {"queries": name, "count": len(queries), "results": {one.name: _result(queries, one) for one in answers}}
            for name, queries in _groups(corpus)
        ],
        "queries": [
            {
                "id": query.id,
                "language": query.language,
                "firstRelevant": {one.name: first_relevant(one.hits[query.id], query.grades) for one in answers},
                "hits": {one.name: list(one.hits[query.id]) for one in answers},
            }
            for query in corpus.queries
        ],
    }


def _groups(corpus: Corpus) -> Iterator[tuple[str, Sequence[Query]]]:
    """All queries, then those of each language."""
    yield "all", corpus.queries
    for language in corpus.languages:
        yield language, [query for query in corpus.queries if query.language == language]


def _result(queries: Sequence[Query], answer: Answers) -> JsonObject:
    found = answer.scores(queries)
    return {
        "R@1": round(found.recall_1, 4),
        "R@5": round(found.recall_5, 4),
        "R@10": round(found.recall_10, 4),
        "MRR": round(found.mrr, 4),
        "nDCG@10": round(found.ndcg_10, 4),
        "p50Ms": round(answer.milliseconds(queries, 0.5), 3),
        "p95Ms": round(answer.milliseconds(queries, 0.95), 3),
    }


def _cells(name: str, queries: Sequence[Query], answer: Answers) -> tuple[str, ...]:
    found = answer.scores(queries)
    values = (found.recall_1, found.recall_5, found.recall_10, found.mrr, found.ndcg_10)
    times = (answer.milliseconds(queries, share) for share in (0.5, 0.95))
    return (
        f"{name} ({len(queries)})", answer.name, *(f"{value:.3f}" for value in values), *(f"{ms:.2f}" for ms in times)
    )  # fmt: skip

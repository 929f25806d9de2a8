"""``python -m stress recall``: a judged corpus, searched by the runtime and by plain FTS5, as two tables."""

from __future__ import annotations

import argparse
import json
import logging
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Final, Protocol

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

from stress.recall import report
from stress.recall.baseline import TOKENIZERS, Mode, PlainFts
from stress.recall.corpus import SHIPPED, Corpus, CorpusError, read_corpus
from stress.recall.report import Answers, Run
from stress.recall.runtime import Runtime

UNREADABLE: Final = 2
"""The exit code of a corpus that cannot be used."""

_DESCRIPTION: Final = """\
Measure what a search finds. The documents of a corpus are saved through the Python door as pages and claims, each of
its queries is sent to knowledge_grep, and the first ten hits are compared with judgements. Beside it stands plain FTS5
(tokenizers unicode61 and porter) over the same texts, asked for the same words in the same mode.

  R@1, R@5, R@10   share of a query's relevant documents (grade 1 or 2) among the first 1, 5, 10 hits
  MRR              1 by the rank of the first relevant hit, 0 without one among ten
  nDCG@10          how near the order is to the best one, with a gain of 2**grade - 1
  p50, p95         milliseconds a query; ours goes through threads, freshness, access and excerpts, FTS5 is one table

The second table is that of the recall gate's candidates: the pages that a whole message could need, asked of the same
store's index with the query as the message. Its queries are those that a page answers or helps, its judgements those of
pages, and plain FTS5 searches the pages alone.

All are means over queries, and shown for all of them and by language. Times depend on the machine, scores do not.
"""
_EPILOG: Final = """\
A corpus is a folder with three files: UTF-8, one record a line, columns apart by tabs. The first line names the
columns, in any order. A line break, a tab and a backslash in a value are written \\n, \\t and \\\\; quotes are plain
characters. An empty line counts for nothing.

documents.tsv    id        any name, used once
                 kind      page or claim
                 type      a page's ontology type (person, project, note, ...), or a claim's kind (fact, preference,
                           decision, commitment, event, belief)
                 text      the body of the page, or the claim
                 title     a page needs one, a claim has none
                 aliases   of a page, apart by |                                    (column may be left out)
                 replaces  id of a claim further up which this claim corrects       (column may be left out)

queries.tsv      id        any name, used once
                 language  a tag such as en, de or pt-BR; figures are shown for each
                 query     what is asked for, at most 64 words

judgements.tsv   query     id of a query
                 document  id of a document
                 grade     2 answers it, 1 helps, 0 does not (the same as no line)

Every query needs a judgement of 1 or 2. For example, with tabs between the columns:

  documents.tsv    id   kind    type       text                      title
                   d1   page    project    Ships on Friday.          Garden Pilot
                   d2   claim   decision   We use PostgreSQL 16.
  queries.tsv      id   language   query
                   q1   en         when does the garden pilot ship
  judgements.tsv   query   document   grade
                   q1      d1         2

Exit code 0 when the corpus was searched, whatever was found; 2 when it cannot be used, with file, line and reason.
"""


class Contender(Protocol):
    """Something that searches the documents. One thread."""

    @property
    def name(self) -> str: ...

    def search(self, query: str, /) -> list[str]: ...


def main(arguments: Sequence[str]) -> int:
    """Measure and show it: 0, or 2 for a corpus that cannot be used."""
    options = _options(arguments)
    quiet = logging.root.manager.disable
    logging.disable(logging.CRITICAL)
    try:
        corpus = read_corpus(options.corpus)
        runs = _run(corpus, options.mode, options.rounds)
    except CorpusError as error:
        print(error, file=sys.stderr)
        return UNREADABLE
    finally:
        logging.disable(quiet)
    output = Console()
    if options.json:
        print(json.dumps(report.document(runs, mode=options.mode, rounds=options.rounds)))
    elif output.is_terminal:
        output.print(*map(report.table, runs), sep="\n")
    else:
        print("\n".join(map(report.markdown, runs)), end="")
    return 0


def _run(corpus: Corpus, mode: Mode, rounds: int) -> list[Run]:
    """The searches, and behind them the candidates where the corpus has a page that answers a query."""
    console = Console(stderr=True)
    progress = Progress(
        SpinnerColumn(), TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn(),
        console=console, disable=not console.is_terminal,
    )  # fmt: skip
    with tempfile.TemporaryDirectory(prefix="knowledge-recall-") as scratch, progress:
        with Runtime(Path(scratch) / "state", mode) as runtime:
            saving = progress.add_task("saving", total=len(corpus.documents))
            runtime.save(corpus.documents, lambda done: progress.update(saving, completed=done))
            pages = corpus.pages()
            asking = progress.add_task("asking", total=(len(corpus.queries) + len(pages.queries)) * rounds)
            runs: list[Run] = []
            with _plain(mode, corpus) as plain:
                answers = ask(corpus, [runtime, *plain], rounds, lambda: progress.advance(asking))
                runs.append(Run("searches", corpus, answers))
            if pages.queries:
                with closing(runtime.candidates()) as candidates, _plain("any", pages) as plain:
                    answers = ask(pages, [candidates, *plain], rounds, lambda: progress.advance(asking))
                    runs.append(Run("candidates", pages, answers))
            return runs


@contextmanager
def _plain(mode: Mode, corpus: Corpus) -> Iterator[list[PlainFts]]:
    plain = [PlainFts(tokenizer, mode, corpus.documents) for tokenizer in TOKENIZERS]
    try:
        yield plain
    finally:
        for one in plain:
            one.close()


def ask(
    corpus: Corpus, contenders: Sequence[Contender], rounds: int, progress: Callable[[], None] = lambda: None
) -> list[Answers]:
    """Every query in every round, the contenders in rotating order; the hits are those of the last round."""
    hits: dict[str, dict[str, list[str]]] = {contender.name: {} for contender in contenders}
    seconds: dict[str, dict[str, list[float]]] = {contender.name: {} for contender in contenders}
    for contender in contenders:
        contender.search(corpus.queries[0].text)  # whoever comes first would pay for the index
    for turn in range(rounds):
        for number, query in enumerate(corpus.queries):
            first = (turn + number) % len(contenders)
            for contender in (*contenders[first:], *contenders[:first]):
                began = time.perf_counter()
                found = contender.search(query.text)
                seconds[contender.name].setdefault(query.id, []).append(time.perf_counter() - began)
                hits[contender.name][query.id] = found
            progress()
    return [Answers(name, hits[name], seconds[name]) for name in hits]


def _options(arguments: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m stress recall", description=_DESCRIPTION, epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )  # fmt: skip
    parser.add_argument("--corpus", type=Path, default=SHIPPED, metavar="DIR", help="the corpus (default: our own)")
    parser.add_argument(
        "--mode", choices=("any", "all"), default="any", help="a hit has any word of the query (default), or all"
    )
    parser.add_argument("--rounds", type=_count, default=3, help="how often each query is timed (default 3)")
    parser.add_argument("--json", action="store_true", help="print the run as one JSON object, hits of each query too")
    return parser.parse_args(arguments)


def _count(text: str) -> int:
    value = int(text)
    if value < 1:
        raise argparse.ArgumentTypeError(f"must be at least 1, not {value}")
    return value

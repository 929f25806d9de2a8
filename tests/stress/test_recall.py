"""The ranking bench: its figures against hand-computed ones, tiny corpora, and what the shipped one says."""

from __future__ import annotations

import hashlib
import io
import json
import math
import os
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import pytest
from rich.console import Console

from stress.__main__ import main
from stress.recall import report
from stress.recall.baseline import TOKENIZERS, PlainFts
from stress.recall.corpus import SHIPPED, CorpusError, read_corpus
from stress.recall.main import ask
from stress.recall.metrics import first_relevant, ndcg, percentile, recall, reciprocal_rank, scores
from stress.recall.report import Answers, Run
from stress.recall.runtime import Runtime
from tests.kit.leaks import nothing_left
from tests.stress.test_recall_corpus import FILES, corpus

# --- the figures ------------------------------------------------------------------------------------------------------

GRADES: Final = {"a": 2, "b": 1, "c": 1}


@pytest.mark.parametrize(
    ("found", "depth", "value"),
    [("a", 1, 1 / 3), ("xabc", 1, 0), ("xabc", 3, 2 / 3), ("xabc", 10, 1), ("", 10, 0), ("xxxxxabc", 5, 0)],
)
def test_recall_is_the_share_of_the_relevant_documents_among_the_first_hits(
    found: str, depth: int, value: float
) -> None:
    assert recall(found, GRADES, depth) == pytest.approx(value)


@pytest.mark.parametrize(
    ("found", "rank", "value"), [("axb", 1, 1), ("xxb", 3, 1 / 3), ("x" * 10 + "a", None, 0), ("", None, 0)]
)
def test_the_reciprocal_rank_is_that_of_the_first_relevant_hit_among_ten(
    found: str, rank: int | None, value: float
) -> None:
    assert first_relevant(found, GRADES) == rank
    assert reciprocal_rank(found, GRADES) == pytest.approx(value)


def test_ndcg_is_the_discounted_gain_by_that_of_the_best_order() -> None:
    best = 3 + 1 / math.log2(3) + 1 / 2  # gains 3, 1, 1 at the discounts of the ranks 1, 2, 3
    assert ndcg("abc", GRADES) == ndcg("acbx", GRADES) == 1
    assert ndcg("xba", GRADES) == pytest.approx((1 / math.log2(3) + 3 / 2) / best)
    assert ndcg("b", GRADES) == pytest.approx(1 / best)
    assert ndcg("x", GRADES) == 0
    assert ndcg("x" * 10 + "a", GRADES) == 0


def test_the_best_order_has_no_more_documents_than_are_looked_at() -> None:
    assert ndcg("abcdefghij", dict.fromkeys("abcdefghijklmno", 1)) == 1


def test_the_scores_are_means_over_the_queries() -> None:
    found = scores([("a", {"a": 2}), ("xxxxxxb", {"b": 1, "c": 1})])
    assert (found.queries, found.recall_1, found.recall_5, found.recall_10) == (2, 0.5, 0.5, 0.75)
    assert found.mrr == pytest.approx((1 + 1 / 7) / 2)
    assert found.ndcg_10 == pytest.approx((1 + (1 / 3) / (1 + 1 / math.log2(3))) / 2)


def test_a_percentile_is_one_of_the_values() -> None:
    values = [float(value) for value in range(20, 0, -1)]
    assert [percentile(values, share) for share in (0.5, 0.95, 1)] == [10, 19, 20]
    assert percentile([7.0], 0.95) == 7


# --- the contenders ---------------------------------------------------------------------------------------------------


def test_nothing_in_a_query_is_syntax_for_plain_fts5(tmp_path: Path) -> None:
    read = corpus(tmp_path, {})
    plain = PlainFts("unicode61", "any", read.documents)
    try:
        assert plain.search('nowhere" OR ships NEAR(') == ["d1"]
        assert plain.search('" * ^') == []
        assert sorted(plain.search("path path:C")) == ["d2", "d3"]
    finally:
        plain.close()


def test_plain_fts5_wants_every_word_in_the_mode_all(tmp_path: Path) -> None:
    read = corpus(tmp_path, {})
    plain = PlainFts("porter", "all", read.documents)
    try:
        assert plain.search("shipping fridays") == ["d1"]
        assert plain.search("shipping nowhere") == []
    finally:
        plain.close()


@dataclass
class Scripted:
    """Answers the same whatever is asked, and writes down its turns."""

    name: str
    turns: list[str]
    queries: list[str] = field(default_factory=list)

    def search(self, query: str) -> list[str]:
        self.turns.append(self.name)
        self.queries.append(query)
        return ["d1"]


def test_every_query_is_asked_in_every_round_in_rotating_order_after_one_that_does_not_count(tmp_path: Path) -> None:
    turns: list[str] = []
    contenders = [Scripted("a", turns), Scripted("b", turns)]
    read = corpus(tmp_path, {})
    answers = ask(read, contenders, 2)
    assert "".join(turns) == "ab" + "ab" + "ba" + "ba" + "ab"
    assert all(one.queries[1:] == [query.text for query in read.queries] * 2 for one in contenders)
    assert [len(taken) for one in answers for taken in one.seconds.values()] == [2] * 4


def test_the_runtime_saves_what_the_corpus_has_and_a_replaced_claim_leads_to_its_replacement(tmp_path: Path) -> None:
    long = "本" * 3_999  # two of them are more than an excerpt holds, and more than a page of hits
    more = f"d4\tclaim\tbelief\t{long}甲\nd5\tclaim\tbelief\t{long}乙\n"
    read = corpus(tmp_path, {"documents.tsv": FILES["documents.tsv"] + more})
    done: list[int] = []
    with nothing_left(), Runtime(tmp_path / "state", "any") as runtime:
        runtime.save(read.documents, done.append)
        assert runtime.search("ships when") == ["d1"]
        assert runtime.search("GP") == ["d1"]
        assert runtime.search("new") == ["d3"], "the words are those of the claim that was replaced"
        assert runtime.search("old") == ["d3"]
        assert runtime.search("本甲") == ["d4"]
        assert sorted(runtime.search("本本")) == ["d4", "d5"]
        assert runtime.search("nowhere") == []
    assert done == sorted(done)
    assert done[-1] == 5


@pytest.mark.parametrize(
    ("more", "line", "reason"),
    [
        ("d4\tpage\tspaceship\tFlies.\tIt\n", 5, "knowledge_save_page refuses this"),
        (f"d4\tpage\tnote\tFine.\tIt\nd5\tpage\tnote\t{'long ' * 5_000}\tHeavy\n", 6, "more than the 24000"),
        ("d4\tclaim\tfact\tThe path is C:\\\\new.\n", 5, "is the same claim as 'd2'"),
    ],
)
def test_what_the_store_refuses_is_named_by_its_line(tmp_path: Path, more: str, line: int, reason: str) -> None:
    read = corpus(tmp_path, {"documents.tsv": FILES["documents.tsv"] + more})
    with Runtime(tmp_path / "state", "any") as runtime, pytest.raises(CorpusError) as caught:
        runtime.save(read.documents)
    assert (caught.value.file, caught.value.line) == ("documents.tsv", line)
    assert reason in caught.value.reason


# --- the command ------------------------------------------------------------------------------------------------------


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with a tiny corpus; scratch files of a run would stand beside it."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    made = tmp_path / "corpus"
    made.mkdir()
    corpus(made, {})
    return made


def test_a_pipe_gets_the_markdown_table_and_nothing_else(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with nothing_left():
        assert main(["recall", "--corpus", str(folder), "--rounds", "1"]) == 0
    output, errors = capsys.readouterr()
    lines = output.splitlines()
    assert lines[0] == "3 documents, 2 queries"
    rows = [tuple(cell.strip() for cell in line.split("|")[1:3]) for line in lines]
    rivals = ("FTS5 unicode61", "FTS5 porter")
    assert rows[4:13] == [(group, one) for group in ("all (2)", "en (1)", "de (1)") for one in ("knowledge", *rivals)]
    assert lines[13:15] == ["", "Candidates for the recall gate: 1 pages, 1 queries"]
    assert rows[18:] == [(group, one) for group in ("all (1)", "en (1)") for one in ("candidates", *rivals)]
    assert errors == ""
    assert os.listdir(folder.parent) == ["corpus"], "no store is left behind"


def test_a_script_gets_one_object_with_the_hits_of_every_query(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["recall", "--corpus", str(folder), "--rounds", "2", "--json", "--mode", "all"]) == 0
    output, errors = capsys.readouterr()
    run = json.loads(output)
    assert errors == ""
    assert (run["format"], run["mode"], run["rounds"], run["documents"]) == ("knowledge-recall-v1", "all", 2, 3)
    assert [(group["queries"], group["count"]) for group in run["groups"]] == [("all", 2), ("en", 1), ("de", 1)]
    scored = run["groups"][0]["results"]["knowledge"]
    assert list(scored) == ["R@1", "R@5", "R@10", "MRR", "nDCG@10", "p50Ms", "p95Ms"]
    assert scored["R@10"] == 0, "no document has every word of a query"
    assert run["queries"][0]["firstRelevant"] == {"knowledge": None, "FTS5 unicode61": None, "FTS5 porter": None}
    assert run["queries"][0]["hits"]["knowledge"] == []
    assert (run["candidates"]["documents"], run["candidates"]["queries"][0]["hits"]["candidates"]) == (1, ["d1"])


def test_a_corpus_that_cannot_be_read_ends_with_its_file_line_and_reason(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (folder / "judgements.tsv").write_text("query\tdocument\tgrade\nq1\td1\tvery\n")
    assert main(["recall", "--corpus", str(folder)]) == 2
    output, errors = capsys.readouterr()
    assert output == ""
    assert errors == "judgements.tsv:2: grade must be 0, 1 or 2, not 'very'\n"


def test_the_help_teaches_every_column(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as left:
        main(["recall", "--help"])
    assert left.value.code == 0
    shown = capsys.readouterr().out
    for name in ("documents.tsv", "queries.tsv", "judgements.tsv", "\\n, \\t and \\\\", "--corpus DIR", "--json"):
        assert name in shown
    columns = {column for content in FILES.values() for column in content.split("\n", 1)[0].split("\t")}
    assert columns <= set(shown.split())


@pytest.mark.parametrize("rounds", ["0", "-1", "many"])
def test_rounds_are_at_least_one(rounds: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as left:
        main(["recall", "--rounds", rounds])
    assert left.value.code == 2
    assert "--rounds" in capsys.readouterr().err


def test_a_terminal_gets_the_same_table(tmp_path: Path) -> None:
    read = corpus(tmp_path, {})
    answers = [Answers("it", {"q1": ["d1"], "q2": ["d1", "d3"]}, {"q1": [0.002], "q2": [0.004]})]
    output = io.StringIO()
    Console(file=output, width=160).print(report.table(Run("searches", read, answers)))
    shown = output.getvalue()
    lines = report.markdown(Run("searches", read, answers)).splitlines()[4:]
    rows = [[cell.strip() for cell in line.split("|")[1:-1]] for line in lines]
    assert rows[0] == ["all (2)", "it", "0.500", "1.000", "1.000", "0.750", "0.815", "2.00", "4.00"]
    for cells in rows:
        assert any(all(cell in line for cell in cells) for line in shown.splitlines()), cells


# --- the shipped corpus -----------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def shipped() -> Mapping[str, Any]:
    """One run over the shipped corpus, as data."""
    read = read_corpus(SHIPPED)
    with tempfile.TemporaryDirectory() as scratch, Runtime(Path(scratch) / "state", "any") as runtime:
        runtime.save(read.documents)
        plain = PlainFts("unicode61", "any", read.documents)
        try:
            searches = Run("searches", read, ask(read, [runtime, plain], 1))
        finally:
            plain.close()
        pages = read.pages()
        rivals = [PlainFts(tokenizer, "any", pages.documents) for tokenizer in TOKENIZERS]
        with closing(runtime.candidates()) as candidates:
            chosen = Run("candidates", pages, ask(pages, [candidates, *rivals], 1))
        for rival in rivals:
            rival.close()
        return report.document([searches, chosen], mode="any", rounds=1)


def test_over_all_queries_no_less_is_found_and_it_stands_no_lower_than_with_plain_fts5(
    shipped: Mapping[str, Any],
) -> None:
    results = shipped["groups"][0]["results"]
    ours, plain = results["knowledge"], results["FTS5 unicode61"]
    assert ours["R@10"] >= plain["R@10"]
    assert ours["nDCG@10"] >= plain["nDCG@10"]


def test_chinese_and_japanese_queries_are_found_where_plain_fts5_finds_nothing(shipped: Mapping[str, Any]) -> None:
    ranks = [query["firstRelevant"] for query in shipped["queries"] if query["language"] in ("ja", "zh")]
    ours_alone = [rank for rank in ranks if rank["knowledge"] and not rank["FTS5 unicode61"]]
    plain_alone = [rank for rank in ranks if rank["FTS5 unicode61"] and not rank["knowledge"]]
    assert plain_alone == []
    assert len(ours_alone) >= 30


def test_a_replaced_claim_is_never_a_hit(shipped: Mapping[str, Any]) -> None:
    replaced = {one.replaces for one in read_corpus(SHIPPED).documents if one.replaces}
    hits: Sequence[str] = [hit for query in shipped["queries"] for hit in query["hits"]["knowledge"]]
    assert replaced.isdisjoint(hits)
    assert not replaced.isdisjoint(hit for query in shipped["queries"] for hit in query["hits"]["FTS5 unicode61"])


@pytest.mark.parametrize("half", [None, 0, 1])
@pytest.mark.parametrize("rival", ["FTS5 unicode61", "FTS5 porter"])
def test_candidates_are_no_worse_than_plain_fts5_over_all_queries_and_over_each_half_of_them(
    shipped: Mapping[str, Any], half: int | None, rival: str
) -> None:
    """Halves by the hash of a query's id: what holds for one by chance does not hold for both."""
    grades = {query.id: query.grades for query in read_corpus(SHIPPED).pages().queries}
    queries = [
        query
        for query in shipped["candidates"]["queries"]
        if half is None or hashlib.sha256(query["id"].encode()).digest()[0] % 2 == half
    ]
    assert len(queries) >= 40
    ours, theirs = (
        scores([(query["hits"][name], grades[query["id"]]) for query in queries]) for name in ("candidates", rival)
    )
    assert ours.recall_1 >= theirs.recall_1
    assert ours.recall_5 >= theirs.recall_5
    assert ours.recall_10 >= theirs.recall_10
    assert ours.mrr >= theirs.mrr
    assert ours.ndcg_10 >= theirs.ndcg_10


def test_candidates_are_pages(shipped: Mapping[str, Any]) -> None:
    kinds = {document.id: document.kind for document in read_corpus(SHIPPED).documents}
    found = [hit for query in shipped["candidates"]["queries"] for hit in query["hits"]["candidates"]]
    assert {kinds[hit] for hit in found} == {"page"}

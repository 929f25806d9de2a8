"""Judged corpora: what the reader takes, what it refuses by file and line, and that the shipped one stays as it is."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from pathlib import Path
from typing import Final

import pytest

from stress.recall.corpus import SHIPPED, Corpus, CorpusError, read_corpus

FROZEN: Final = {
    "documents.tsv": "1543d8f9e7b8a8b33ddb9d68c15aafbc940e410acaf70497a43d1a3e4ea64437",
    "queries.tsv": "c00048a8bed09214cd44c5c9fba8fec0837cb46771daaa05265d1df65659751f",
    "judgements.tsv": "5208fe885bd577c103e541e7bcd09e96ae186274e367bb75bdb61b8ee02dfef3",
}
"""SHA-256 of what the figures are measured with. It was written before anything was searched, and is no place for
putting right what a search does not find: a new question goes into a corpus of its own."""

FILES: Final = {
    "documents.tsv": (
        "id\tkind\ttype\ttext\ttitle\taliases\treplaces\n"
        "d1\tpage\tproject\tShips on Friday.\\nNot before.\tGarden Pilot\tpilot|GP\n"
        "d2\tclaim\tfact\tThe path is C:\\\\new.\n"
        "d3\tclaim\tfact\tThe path is D:\\\\old.\t\t\td2\n"
    ),
    "queries.tsv": "id\tlanguage\tquery\nq1\ten\twhen does the pilot ship\nq2\tde\tPfad\n",
    "judgements.tsv": "query\tdocument\tgrade\nq1\td1\t2\nq1\td2\t0\nq2\td3\t1\n",
}


def corpus(folder: Path, files: Mapping[str, str | bytes]) -> Corpus:
    for name, content in {**FILES, **files}.items():
        (folder / name).write_bytes(content if isinstance(content, bytes) else content.encode())
    return read_corpus(folder)


def test_a_corpus_is_read_as_it_stands_in_its_lines(tmp_path: Path) -> None:
    read = corpus(tmp_path, {})
    first, second, third = read.documents
    assert (first.title, first.aliases) == ("Garden Pilot", ("pilot", "GP"))
    assert first.text == "Ships on Friday.\nNot before."
    assert (second.kind, second.text, second.replaces) == ("claim", "The path is C:\\new.", None)
    assert (third.replaces, third.line) == ("d2", 4)
    assert [(one.id, one.language, one.text) for one in read.queries] == [
        ("q1", "en", "when does the pilot ship"),
        ("q2", "de", "Pfad"),
    ]
    assert [dict(one.grades) for one in read.queries] == [{"d1": 2}, {"d3": 1}], "grade 0 is the same as no judgement"
    assert read.languages == ["en", "de"]


def test_the_order_of_columns_empty_lines_a_byte_order_mark_and_line_ends_do_not_matter(tmp_path: Path) -> None:
    queries = "\ufeffquery\tid\tlanguage\r\n\r\nwhen does the pilot ship\tq1\ten\r\nPfad\tq2\tde\r\n"
    assert corpus(tmp_path, {"queries.tsv": queries}).queries == corpus(tmp_path, FILES).queries


DOCUMENTS: Final = FILES["documents.tsv"]
QUERIES: Final = FILES["queries.tsv"]
JUDGEMENTS: Final = FILES["judgements.tsv"]


@pytest.mark.parametrize(
    ("file", "content", "line", "reason"),
    [
        ("documents.tsv", "", 0, "is empty"),
        ("documents.tsv", "id\tkind\ttype\ttext\n", 0, "has no documents"),
        ("documents.tsv", "id\tkind\ttext\n", 1, "lacks the column 'type'"),
        ("documents.tsv", "id\tkind\ttype\ttext\tcolour\n", 1, "unknown column 'colour'"),
        ("documents.tsv", "id\tkind\ttype\ttext\tid\n", 1, "names the column 'id' twice"),
        ("documents.tsv", DOCUMENTS + "d4\tclaim\tfact\tone\t\t\t\ttoo many\n", 5, "has 8 columns"),
        ("documents.tsv", DOCUMENTS + "d4\tclaim\tfact\n", 5, "text is empty"),
        ("documents.tsv", DOCUMENTS + "d1\tclaim\tfact\tone\n", 5, "also that of line 2"),
        ("documents.tsv", DOCUMENTS + "d4\tpoem\tfact\tone\n", 5, "kind must be page or claim"),
        ("documents.tsv", DOCUMENTS + "d4\tclaim\trumour\tone\n", 5, "type of a claim must be one of fact"),
        ("documents.tsv", DOCUMENTS + "d4\tclaim\tfact\tone\tTitle\n", 5, "a claim has no title"),
        ("documents.tsv", DOCUMENTS + "d4\tpage\tproject\tone\n", 5, "title is empty"),
        ("documents.tsv", DOCUMENTS + "d4\tpage\tproject\tone\tTitle\t\td2\n", 5, "only a claim replaces"),
        ("documents.tsv", DOCUMENTS + "d4\tclaim\tfact\tone\t\t\td1\n", 5, "replaces must be the id of a claim"),
        ("documents.tsv", DOCUMENTS + "d4\tclaim\tfact\tone\t\t\td2\n", 5, "'d2' is replaced twice"),
        ("documents.tsv", DOCUMENTS + "d4\tclaim\tfact\tC:\\new\\x\n", 5, "unknown escape"),
        ("documents.tsv", DOCUMENTS + f"d4\tclaim\tfact\t{'long ' * 1000}\n", 5, "knowledge_remember refuses this"),
        ("documents.tsv", DOCUMENTS + f"d4\tpage\tproject\tone\t{'T' * 201}\n", 5, "knowledge_save_page refuses this"),
        ("documents.tsv", DOCUMENTS.encode() + b"d4\tclaim\tfact\t\xff\n", 5, "is not UTF-8"),
        ("queries.tsv", "id\tlanguage\tquery\n", 0, "has no queries"),
        ("queries.tsv", QUERIES + "q2\tde\tandere\n", 4, "also that of line 3"),
        ("queries.tsv", QUERIES + "q3\tEnglish please\tone\n", 4, "language must be a tag"),
        ("queries.tsv", QUERIES + f"q3\ten\t{'word ' * 65}\n", 4, "knowledge_grep refuses this"),
        ("queries.tsv", QUERIES + "q3\ten\tnobody judged this\n", 4, "no judgement gives 'q3'"),
        ("judgements.tsv", JUDGEMENTS.replace("d3\t1", "d3\t0"), 0, "no judgement gives 'q2'"),
        ("judgements.tsv", JUDGEMENTS + "q9\td1\t1\n", 5, "there is no query 'q9'"),
        ("judgements.tsv", JUDGEMENTS + "q1\td9\t1\n", 5, "there is no document 'd9'"),
        ("judgements.tsv", JUDGEMENTS + "q1\td1\t1\n", 5, "'d1' is judged twice"),
        ("judgements.tsv", JUDGEMENTS + "q1\td3\t3\n", 5, "grade must be 0, 1 or 2, not '3'"),
        ("judgements.tsv", JUDGEMENTS + "q1\td3\n", 5, "grade is empty"),
    ],
)  # fmt: skip
def test_a_line_that_cannot_be_used_is_named_with_its_reason(
    tmp_path: Path, file: str, content: str | bytes, line: int, reason: str
) -> None:
    with pytest.raises(CorpusError) as caught:
        corpus(tmp_path, {file: content})
    if "no judgement" in reason:  # said of the query, which is what lacks something
        assert caught.value.file == "queries.tsv"
    else:
        assert (caught.value.file, caught.value.line) == (file, line)
        assert str(caught.value).startswith(f"{file}:{line}: " if line else f"{file}: ")
    assert reason in caught.value.reason


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(CorpusError, match=r"^documents\.tsv: cannot be read from "):
        read_corpus(tmp_path)


def test_the_shipped_documents_queries_and_judgements_are_frozen() -> None:
    found = {name: hashlib.sha256((SHIPPED / name).read_bytes()).hexdigest() for name in FROZEN}
    assert found == FROZEN


def test_the_shipped_corpus_has_the_size_and_the_languages_that_its_page_states() -> None:
    read = read_corpus(SHIPPED)
    assert len(read.documents) >= 300
    assert len(read.queries) >= 120
    assert set(read.languages) == {"en", "de", "fr", "es", "ja", "zh", "ru", "ar"}
    assert {document.kind for document in read.documents} == {"page", "claim"}
    assert sum(document.replaces is not None for document in read.documents) >= 5
    assert {grade for query in read.queries for grade in query.grades.values()} == {1, 2}

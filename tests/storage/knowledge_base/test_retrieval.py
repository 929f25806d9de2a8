"""Retrieval by the documented scoring, and the note made of it."""

from __future__ import annotations

import pytest

from messages.errors import InvalidArgument
from storage.knowledge_base import Corpus, Doc, Hit, Hits, Stance, Unsupported, attached_note, search
from storage.knowledge_base.words import words


def stance(
    stance_id: str, title: str = "t", questions: tuple[str, ...] = (), state: str = "s", answer: str = "a"
) -> Stance:
    return Stance(stance_id, title, questions, state, answer, ("one", "two"), "2026-08-25")


def doc(
    source: str, title: str = "t", headings: tuple[str, ...] = (), summary: str = "", tags: tuple[str, ...] = ()
) -> Doc:
    return Doc(title, source, headings, summary, tags)


def found(corpus: Corpus, query: str, limit: int = 10) -> list[tuple[str, int]]:
    outcome = search(corpus, query, limit)
    assert isinstance(outcome, Hits)
    return [(hit.stance_id or hit.sources[0], hit.score) for hit in outcome.hits]


ONE_PLACE = Corpus(
    (
        stance("answered", answer="the harbor."),
        stance("stated", state="harbor, disabled"),
        stance("asked", questions=("Where?", "Which harbor?")),
        stance("titled", title="Harbor"),
    ),
    (
        doc("summary.md", summary="A (harbor)"),
        doc("tag.md", tags=("harbor",)),
        doc("heading.md", headings=("x", "harbor!")),
        doc("title.md", title="HARBOR"),
        doc("none.md", title="harbors harbour harbor_master"),
    ),
)


def test_a_word_weighs_three_in_titles_and_questions_two_in_states_headings_and_tags_one_in_texts() -> None:
    assert found(ONE_PLACE, "harbor") == [
        ("asked", 3), ("titled", 3), ("title.md", 3), ("none.md", 3),
        ("stated", 2), ("tag.md", 2), ("heading.md", 2), ("answered", 1), ("summary.md", 1),
    ]  # fmt: skip


def test_a_word_counts_once_at_the_heaviest_place_and_each_distinct_word_of_the_query_once() -> None:
    corpus = Corpus((stance("a", "Red red", ("red?",), "red", "red blue green"),), ())
    assert found(corpus, "red") == [("a", 3)]
    assert found(corpus, "RED, red; Red! blue?") == [("a", 4)]


def test_only_whole_words_count_and_case_is_ignored() -> None:
    corpus = Corpus((), (doc("a.md", summary="The Straße of Ünïted CAFÉ"),))
    assert found(corpus, "harbors") == []
    for query in ("STRASSE", "straße", "üNÏTED", "cafe\u0301", "café"):
        assert found(corpus, query) == [("a.md", 1)], query
    for query in ("stra", "cafe", "caf"):
        assert found(corpus, query) == [], query


def test_words_of_scripts_with_vowel_signs_are_not_cut() -> None:
    assert words("हिन्दी में") == {"हिन्दी", "में"}
    assert words("❤️ a_b, c-d\u200be") == {"a", "b", "c", "d", "e"}
    assert words("知识库 知识") == {"知识库", "知识"}


def test_a_word_of_three_bytes_is_enough_and_a_query_without_one_is_unsupported() -> None:
    corpus = Corpus((), (doc("a.md", title="猫 in api éa"),))
    assert found(corpus, "猫") == [("a.md", 3)]
    assert found(corpus, "éa") == [("a.md", 3)]
    for query in ("", "a & b", "in", "é", "❤️", "—…!"):
        assert search(corpus, query) == Unsupported()
    assert Unsupported().code == "unsupported"


def test_a_short_word_beside_a_long_one_does_not_count() -> None:
    assert found(Corpus((), (doc("a.md", title="in api"),)), "in api") == [("a.md", 3)]


def test_nothing_that_shares_no_word_is_returned() -> None:
    assert search(ONE_PLACE, "quaternion spline") == Hits(())


def test_ties_put_stances_before_documents_then_the_files_order() -> None:
    corpus = Corpus((stance("b", "harbor"), stance("a", "harbor")), (doc("a.md", "harbor"), doc("b.md", "harbor town")))
    assert [name for name, _ in found(corpus, "harbor")] == ["b", "a", "a.md", "b.md"]
    assert [name for name, _ in found(corpus, "harbor town")] == ["b.md", "b", "a", "a.md"]


def test_the_limit_is_three_unless_given_and_from_one_to_ten() -> None:
    corpus = Corpus((), tuple(doc(f"{number:02}.md", "harbor") for number in range(20)))
    assert [hit.sources[0] for hit in hits(corpus, "harbor")] == ["00.md", "01.md", "02.md"]
    assert len(found(corpus, "harbor", 1)) == 1
    assert len(found(corpus, "harbor", 10)) == 10
    for limit in (0, 11, -1):
        with pytest.raises(InvalidArgument) as caught:
            search(corpus, "harbor", limit)
        assert caught.value.fields["field"] == "limit"


def hits(corpus: Corpus, query: str) -> tuple[Hit, ...]:
    outcome = search(corpus, query)
    assert isinstance(outcome, Hits)
    return outcome.hits


def test_a_hit_is_shown_with_what_its_kind_has_and_without_the_id() -> None:
    [one] = hits(Corpus((stance("a", "Harbor", answer="Yes."),), ()), "harbor")
    assert one.stance_id == "a"
    assert one.to_json() == {
        "kind": "stance", "title": "Harbor", "body": "Yes.", "state": "s", "sources": ("one", "two"),
        "date": "2026-08-25", "score": 3,
    }  # fmt: skip
    [other] = hits(Corpus((), (doc("a.md", "Harbor", summary="Text."),)), "harbor")
    assert other.to_json() == {"kind": "doc", "title": "Harbor", "body": "Text.", "sources": ("a.md",), "score": 3}


def hit(score: int, body: str = "Body.", title: str = "T") -> Hit:
    return Hit("stance", title, body, ("x",), score, "live", "2026-08-25", "t")


def test_the_note_is_exactly_as_the_contract_has_it() -> None:
    note = attached_note([hit(9), Hit("doc", "D", "Sum.", ("guides/d.md",), 5)])
    assert note is not None
    opening, *lines = note.split("\n")
    assert opening.startswith("[From the OpenAgents knowledge base — ")
    assert opening.endswith(":")
    assert "parked or planned" in opening
    assert lines == ["- T (stance, live; reviewed 2026-08-25): Body.", "- D (doc, guides/d.md): Sum.]"]


def test_a_note_needs_a_score_of_five_and_has_at_most_two_hits() -> None:
    assert attached_note([]) is None
    assert attached_note([hit(4)]) is None
    note = attached_note([hit(9, title="A"), hit(5, title="B"), hit(5, title="C")])
    assert note is not None
    assert note.count("\n- ") == 2
    assert "- C" not in note
    assert (attached_note([hit(5), hit(4)]) or "").count("\n- ") == 1


def test_a_body_is_clipped_to_seven_hundred_characters_that_end_in_an_ellipsis() -> None:
    bodies = ("😀" * 700, "😀" * 701, "x" * 690 + " " * 20 + "y")
    whole, cut, blank = (attached_note([hit(5, body)]) or "" for body in bodies)
    assert whole.endswith("): " + "😀" * 700 + "]")
    assert cut.endswith("): " + "😀" * 699 + "…]")
    assert blank.endswith("x" * 690 + "…]")

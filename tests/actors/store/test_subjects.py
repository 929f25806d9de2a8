"""Subject inference, as a golden table: what is linked, and above all what is left alone."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from actors.store.operations import subjects
from actors.store.operations.subjects import (
    AMBIGUOUS,
    MISSING,
    ROLE_WORDS,
    NamedPage,
    Subject,
    infer_subject,
    resolve_subject,
)
from storage.records import normalise_name

# name or alias -> page; two pages of one name stand in two entries
PAGES = [
    ("Garden Pilot", "garden", "project"),
    ("the pilot", "garden", "project"),
    ("Blue Harbor", "harbor", "company"),
    ("Alex Morgan", "alex-m", "person"),
    ("Alex", "alex-m", "person"),
    ("Alex Stone", "alex-s", "person"),
    ("Priya", "priya", "person"),
    ("Redis", "redis", "concept"),
    ("C", "c", "concept"),
    ("C++", "cpp", "concept"),
    ("Node", "node", "concept"),
    ("Use", "use", "concept"),
    ("Team", "team", "company"),
    ("Garden Pilot kickoff", "kickoff", "note"),
    ("Weekly notes", "weekly", "note"),
    ("Mercury", "mercury-1", "project"),
    ("Mercury", "mercury-2", "company"),
    ("庭園計画", "teien", "project"),
    ("青い港", "minato", "company"),
    ("港", "one-sign", "concept"),
    ("가든 파일럿", "gadeun", "project"),
    ("OpenClaw設計", "openclaw", "project"),
    ("Straße", "strasse", "project"),
    ("O'Brien & Co.", "obrien", "company"),
    ("Big Deal 2026", "deal", "deal"),
]
ENTITIES = {"person", "company", "concept", "project", "deal"}


class Names:
    """The table above as an index; it also checks that it is only asked for normalised names."""

    def __init__(self) -> None:
        self._pages: dict[str, list[NamedPage]] = {}
        for name, page_id, kind in PAGES:
            page = NamedPage(page_id, entity=kind in ENTITIES, person=kind == "person")
            self._pages.setdefault(normalise_name(name), []).append(page)
        self.asked = 0

    def find(self, names: Collection[str]) -> Mapping[str, Sequence[NamedPage]]:
        self.asked += len(names)
        assert all(name == normalise_name(name) for name in names)
        return {name: self._pages[name] for name in names if name in self._pages}


def found(page_id: str) -> Subject:
    return Subject("found", page_id)


# Each row: why, the hint, the text, and what becomes of the subject.
GOLDEN: list[tuple[str, str | None, str, Subject]] = [
    ("a title in the middle of a sentence", None, "We ship Garden Pilot on Friday.", found("garden")),
    ("in any case", None, "we ship GARDEN pilot on friday", found("garden")),
    ("across a line break and double spaces", None, "we ship garden\n  pilot on friday", found("garden")),
    ("in full width", None, "we ship Ｇａｒｄｅｎ Pilot", found("garden")),
    ("an alias", None, "On Friday the pilot starts.", found("garden")),
    ("with a possessive", None, "We moved Garden Pilot's date.", found("garden")),
    ("in quotes and brackets", None, "We moved the date (\"Garden Pilot\").", found("garden")),
    ("twice, by title and by alias", None, "When Garden Pilot starts, the pilot needs a budget.", found("garden")),
    ("two words at the start of a sentence", None, "Garden Pilot ships on Friday.", found("garden")),
    ("an abbreviation's title with punctuation", None, "the invoice of O'Brien & Co. is open", found("obrien")),
    ("a case fold that changes lengths", None, "we drive on STRASSE today", found("strasse")),
    ("a person by the full name", None, "The date was moved by Alex Morgan.", found("alex-m")),
    ("a person by full and by first name", None, "Later Alex Morgan said that Alex agrees.", found("alex-m")),
    ("a deal with a number", None, "we close big deal 2026 in May", found("deal")),
    ("nothing named", None, "we ship on Friday", MISSING),
    ("an empty text", None, "", MISSING),
    ("a part of a longer word", None, "we ship gardenpilots and Redistribution", MISSING),
    ("a part of a joined name", None, "we run Node.js and non-Redis caches", MISSING),
    ("C inside C++", None, "we write C++ here", found("cpp")),
    ("C inside C#", None, "we write C# here", MISSING),
    ("C alone", None, "we write C here", found("c")),
    ("C at the end", None, "here we write C.", found("c")),
    ("the longest name wins, and is no entity", None, "see the Garden Pilot kickoff", MISSING),
    # what is not guessed
    ("a bare first name", None, "The date was moved by Priya.", MISSING),
    ("a bare first name that is an alias", None, "The date was moved by Alex.", MISSING),
    ("a first name competes with a project", None, "The date of Garden Pilot was moved by Priya.", AMBIGUOUS),
    ("the first word of a sentence", None, "Redis is slow.", MISSING),
    ("the first word of a later sentence", None, "It is slow. Redis needs memory.", MISSING),
    ("the first word after a line break", None, "it is slow\nRedis needs memory", MISSING),
    ("the first word after a bullet and a quote", None, "- \"Redis\" needs memory", MISSING),
    ("the first word after a full stop in Chinese", None, "很慢。Redis很慢", MISSING),
    ("not the first word", None, "It is slow because Redis needs memory.", found("redis")),
    ("a version number ends no sentence", None, "we had v2.Redis of old", MISSING),
    ("a sentence opener that is a page does not compete", None, "Use Garden Pilot for this.", found("garden")),
    ("a first name that opens a sentence does not compete", None, "Alex moved Garden Pilot to May.", found("garden")),
    ("role words are no names", None, "The team and the user met.", MISSING),
    ("role words do not compete", None, "The Team of Garden Pilot met the Client Manager.", found("garden")),
    # what competes
    ("two projects", None, "We move from Garden Pilot to Blue Harbor.", AMBIGUOUS),
    ("a page that is no entity", None, "see the weekly notes about Garden Pilot", AMBIGUOUS),
    ("a name that two pages bear", None, "we fund Mercury in May", AMBIGUOUS),
    ("an unknown name of two words", None, "We move Garden Pilot to Silver Lake.", AMBIGUOUS),
    ("an unknown name of two words before", None, "Later with Silver Lake we do Garden Pilot.", AMBIGUOUS),
    ("a run of capitals that opens the sentence", None, "With Silver Lake we do Garden Pilot.", found("garden")),
    ("an unknown name that opens the sentence", None, "Silver Lake hosts Garden Pilot.", found("garden")),
    ("an unknown name that opens a later sentence", None, "We do Garden Pilot. Silver Lake hosts.", found("garden")),
    ("one unknown capitalised word", None, "We move Garden Pilot to Paris.", found("garden")),
    ("capitalised words with a comma between", None, "We move Garden Pilot to Paris, Lyon.", found("garden")),
    ("capitalised words over a sentence end", None, "We move Garden Pilot to Paris. Lyon is next.", found("garden")),
    ("the pronoun I is no name", None, "For Garden Pilot Friday I Googled.", found("garden")),
    ("an unknown name in Greek", None, "το Garden Pilot με την Αγγελική Παπαδάκη", AMBIGUOUS),
    ("an unknown name alone", None, "We talked to Silver Lake.", MISSING),
    # scripts written without spaces
    ("a substring of two characters or more", None, "来月庭園計画が始まる", found("teien")),
    ("at the start of a sentence too", None, "庭園計画が始まる", found("teien")),
    ("one character is too short", None, "船は港にある", MISSING),
    ("two of them", None, "庭園計画と青い港", AMBIGUOUS),
    ("Korean with a particle", None, "다음 달 가든 파일럿은 시작한다", found("gadeun")),
    ("mixed scripts", None, "今日OpenClaw設計を見た", found("openclaw")),
    ("a spaced name inside unspaced text", None, "来月はGarden Pilotを始める", found("garden")),
    # the hint
    ("the whole hint", "Garden Pilot", "it ships sooner", found("garden")),
    ("the whole hint, one word", "redis", "it ships sooner", found("redis")),
    ("the whole hint names a page that is no entity", "Weekly notes", "it ships sooner", found("weekly")),
    ("a part of the hint", "hot reload, Garden Pilot; PR #180466", "it ships sooner", found("garden")),
    ("a part after a Chinese comma", "热重载，庭園計画", "it ships sooner", found("teien")),
    ("two parts, two pages", "Garden Pilot, Blue Harbor", "it ships sooner", AMBIGUOUS),
    ("two parts, one page", "Garden Pilot, the pilot", "it ships sooner", found("garden")),
    ("a hint that two pages bear", "Mercury", "Garden Pilot ships sooner", AMBIGUOUS),
    ("inside the hint", "release date of Garden Pilot", "it ships sooner", found("garden")),
    ("a hint is no sentence: its first word counts", "Redis migration", "it ships sooner", found("redis")),
    ("a first name as the hint", "Priya", "it ships sooner", MISSING),
    ("a role word as the hint", "the team", "it ships sooner", MISSING),
    ("a role word that is a page's title", "team", "it ships sooner", MISSING),
    ("the hint goes before the text", "Garden Pilot", "We chose Blue Harbor over Silver Lake.", found("garden")),
    ("an unclear hint is not overruled by the text", "Garden Pilot and Blue Harbor", "we do big deal 2026", AMBIGUOUS),
    ("a hint that names nothing leaves it to the text", "hot reload", "we ship Garden Pilot", found("garden")),
    ("an empty hint", "", "we ship Garden Pilot", found("garden")),
    ("a hint of separators", ",;,", "we ship Garden Pilot", found("garden")),
]  # fmt: skip


@pytest.mark.parametrize(("about", "text", "outcome"), [row[1:] for row in GOLDEN], ids=[row[0] for row in GOLDEN])
def test_the_subject_is_inferred_as_the_golden_table_says(about: str | None, text: str, outcome: Subject) -> None:
    assert infer_subject(about, text, Names()) == outcome


@pytest.mark.parametrize(
    ("subject", "outcome"),
    [
        ("Garden Pilot", found("garden")),
        ("  garden   PILOT ", found("garden")),
        ("Priya", found("priya")),
        ("team", found("team")),
        ("Mercury", AMBIGUOUS),
        ("Garden", MISSING),
        ("Garden Pilot, Blue Harbor", MISSING),
        ("", MISSING),
    ],
)
def test_a_subject_that_the_caller_names_is_looked_up_exactly(subject: str, outcome: Subject) -> None:
    assert resolve_subject(subject, Names()) == outcome


@pytest.mark.parametrize("word", sorted(ROLE_WORDS))
def test_a_role_word_never_names_a_page_by_inference(word: str) -> None:
    class OneName:
        def find(self, names: Collection[str]) -> Mapping[str, Sequence[NamedPage]]:
            return {name: [NamedPage("page", entity=True, person=False)] for name in names if name == word}

    assert infer_subject(word, f"we asked the {word} again", OneName()) == MISSING


def test_the_index_is_asked_once_for_the_hint_s_parts_its_words_and_the_text() -> None:
    class Counting(Names):
        calls = 0

        def find(self, names: Collection[str]) -> Mapping[str, Sequence[NamedPage]]:
            self.calls += 1
            return super().find(names)

    names = Counting()
    infer_subject("hot reload", "we ship " * 50, names)
    assert names.calls == 3


def test_the_longest_legal_text_asks_for_a_bounded_number_of_names() -> None:
    for text in ("word " * 800, "庭" * 4_000, "a.b " * 1_000, "A" * 4_000, "- " * 2_000):
        names = Names()
        infer_subject(None, text, names)
        assert names.asked <= 4_000 * 20


@given(st.text(st.sampled_from("aBz0_ .,!?'\"-@&+#\n\t\x0b\x1c\x00I)]"), max_size=40))
def test_ascii_is_cut_into_the_tokens_that_any_text_is_cut_into(text: str) -> None:
    ends = [match.end() for match in subjects._SENTENCE_END.finditer(text)]
    assert list(subjects._ascii_tokens(text, ends)) == list(subjects._unicode_tokens(text, list(ends)))

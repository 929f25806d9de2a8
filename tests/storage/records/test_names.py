"""Names and the files that are named after them."""

from __future__ import annotations

import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from storage.records.names import (
    RESERVED_NAMES,
    SLUG_MAX_BYTES,
    file_name,
    hex_level,
    normalise_name,
    path_key,
    record_folder,
    slug,
)

ID = "6f1c1b0e-6a0e-4b7e-9d4d-3f2d8f0a4c11"


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("Alex  Meyer", " alex meyer\t"),
        ("STRASSE", "Straße"),
        ("Ｗｉｄｅ", "wide"),
        ("e\u0301", "é"),
        ("ﬁle", "FILE"),
        ("a\u00a0b", "A B"),
        ("a\u3000b", "a b"),
        ("Σίσυφος", "ΣΊΣΥΦΟΣ"),
        ("①", "1"),
    ],
)
def test_names_are_compared_by_nfkc_case_folding_and_folded_white_space(one: str, other: str) -> None:
    assert normalise_name(one) == normalise_name(other)


def test_punctuation_and_accents_count_in_names() -> None:
    assert normalise_name("A-B") != normalise_name("A B")
    assert normalise_name("résumé") != normalise_name("resume")


@given(st.text())
def test_normalising_a_name_twice_changes_nothing(name: str) -> None:
    once = normalise_name(name)
    assert normalise_name(once) == once
    assert once == once.strip()


def test_every_character_normalises_to_a_fixed_point() -> None:
    for code in (*range(0xD800), *range(0xE000, 0x30000)):
        once = normalise_name(f"x{chr(code)}\u0345y")
        assert normalise_name(once) == once


@pytest.mark.parametrize(
    ("title", "expected"),
    [
        ("Release commitment", "release-commitment"),
        ("  What's — “new”?  ", "what-s-new"),
        ("Ångström & Ünïcode", "ångström-ünïcode"),
        ("e\u0301cole", "école"),
        ("日本語 のメモ", "日本語-のメモ"),
        ("हिन्दी", "हिन्दी"),
        ("snake_case.name/../x", "snake-case-name-x"),
        ("😀", "untitled"),
        ("", "untitled"),
        ("../../etc/passwd", "etc-passwd"),
        ("\u0301x", "x"),
        (".hidden", "hidden"),
    ],
)
def test_a_slug_is_the_words_of_the_title(title: str, expected: str) -> None:
    assert slug(title) == expected


@given(st.text(max_size=300))
def test_a_slug_is_at_most_80_bytes_of_safe_lower_case_nfc(title: str) -> None:
    name = slug(title)
    assert 0 < len(name.encode()) <= SLUG_MAX_BYTES
    assert unicodedata.is_normalized("NFC", name)
    assert not set(name) & set('/\\:*?"<>|. \x00')
    assert not name.startswith("-")
    assert not name.endswith("-")


@given(st.text(st.characters(max_codepoint=127), max_size=40))
def test_a_slug_of_ascii_is_what_it_would_be_among_other_letters(title: str) -> None:
    other = slug(f"é {title}")
    assert (other.removeprefix("é-") if other != "é" else "untitled") == slug(title)


def test_a_cut_slug_never_splits_a_character_from_its_marks() -> None:
    for length in range(60, 90):
        name = slug("a" * length + "q\u0323\u0307" * 9)
        assert not name or unicodedata.category(name[-1])[0] == "M" or name.endswith("a")


@pytest.mark.parametrize("title", ["Index", "CON", "nul", "COM1", "lpt9", "com¹", "Aux"])
def test_reserved_names_get_a_suffix(title: str) -> None:
    assert file_name("notes", title, ID, lambda path: False) == f"notes/{title.lower()}-6f1c1b0e.md"
    assert title.lower() in RESERVED_NAMES


def test_a_collision_gets_the_first_8_characters_of_the_id() -> None:
    taken = {path_key("people/Alex.md")}
    assert file_name("people", "ALEX", ID, lambda path: path_key(path) in taken) == "people/alex-6f1c1b0e.md"


def test_a_further_collision_gets_more_of_the_id_and_an_id_in_use_is_refused() -> None:
    assert file_name("p", "A", ID, lambda path: len(path) < 20) == "p/a-6f1c1b0e6a0e4b7e.md"
    with pytest.raises(ValueError, match="no free file name"):
        file_name("p", "A", ID, lambda path: True)


def test_collisions_are_seen_without_regard_to_case_and_composition() -> None:
    assert path_key("people/E\u0301cole.md") == path_key("PEOPLE/école.MD")
    assert path_key("straße.md") == path_key("STRASSE.md")
    assert path_key("a.md") != path_key("á.md")


@given(st.text(max_size=200), st.text(st.sampled_from("abXYZ019._:-"), min_size=1, max_size=128))
def test_a_file_name_stays_within_80_bytes_whatever_the_id_is(title: str, record_id: str) -> None:
    asked: list[str] = []

    def taken(path: str) -> bool:
        asked.append(path)
        return True

    with pytest.raises(ValueError):
        file_name("", title, record_id, taken)
    assert len(asked) == len(set(asked))
    for path in asked:
        assert len(path.removesuffix(".md").encode()) <= SLUG_MAX_BYTES
        assert "/" not in path


def test_claims_and_relationships_are_filed_by_month_and_hash() -> None:
    assert record_folder("claim", ID, "2026-09-21T10:00:00.000Z") == f"claims/2026/09/{hex_level(ID)}"
    assert record_folder("relationship", ID, "2026-09-21T10:00:00.000Z") == f"relationships/2026/09/{hex_level(ID)}"


def test_a_page_folder_gets_the_hash_level_once_it_is_crowded() -> None:
    assert record_folder("page", ID, "2026-09-21T10:00:00.000Z", page_folder="people") == "people"
    crowded = record_folder("page", ID, "2026-09-21T10:00:00.000Z", page_folder="people", crowded=True)
    assert crowded == f"people/{hex_level(ID)}"
    assert len(hex_level(ID)) == 2

"""What the recall gate is offered by a store, without a thread (memory-provider.md, Recall gate, step 1)."""

from __future__ import annotations

from collections import Counter

import pytest

from messages.errors import IndexUnavailable
from messages.json_types import JsonValue
from messages.provider.gate import GateCandidatesRequest, GatePage, GatePagesRequest, pages_from_json
from messages.text import utf16_length
from messages.vocabulary import Partition
from storage import faults, session
from storage.parsed_records import ParsedRecords
from storage.search import excerpt
from tests.kit.store import Desk, claim_file, page_file, write_note, write_notes


def by_words(desk: Desk, message: str, **more: JsonValue) -> tuple[GatePage, ...]:
    request = GateCandidatesRequest.model_validate({"mode": "keyword", "message": message, **more})
    return pages_from_json(desk.ask(request))


def labels(desk: Desk, **more: JsonValue) -> tuple[GatePage, ...]:
    return pages_from_json(desk.ask(GateCandidatesRequest.model_validate({"mode": "model", **more})))


def starts(desk: Desk, *ids: JsonValue, chars: int = 2_800) -> tuple[GatePage, ...]:
    return pages_from_json(desk.ask(GatePagesRequest.model_validate({"ids": list(ids), "pageChars": chars})))


def ids(pages: tuple[GatePage, ...]) -> list[str]:
    return [page.id for page in pages]


def test_pages_that_share_no_word_with_the_message_are_never_offered(desk: Desk) -> None:
    garden = desk.page("Garden Pilot", body="Ships on Friday.")["id"]
    desk.page("Harbor", body="Closed.")
    assert ids(by_words(desk, "when does the garden ship?")) == [garden]
    assert by_words(desk, "unrelated") == ()
    assert by_words(desk, "") == ()


def test_every_current_page_is_considered_except_source_and_artifact(desk: Desk) -> None:
    desk.page("Harbor note", type="note", body="harbor")
    write_notes(
        desk.folder(),
        [
            ("s.md", page_file("s", "Harbor source", type="source", body="harbor\n", fields={"key": "k"})),
            ("a.md", page_file("a", "Harbor artifact", type="artifact", body="harbor\n")),
            ("c.md", claim_file("c", "harbor harbor harbor")),
            ("w.md", page_file("w", "Harbor withdrawn", body="harbor\n", lifecycle="withdrawn")),
            ("f.md", page_file("f", "Harbor fixture", body="harbor\n", fixture=True)),
        ],
    )
    assert [page.title for page in by_words(desk, "harbor")] == ["Harbor note"]
    assert [page.title for page in labels(desk)] == ["Harbor note"]


@pytest.mark.parametrize("title", ["Ignore the harbor", "Harbor <b>", "system: harbor", "https://harbor.example"])
def test_titles_that_read_like_instructions_or_contain_markup_are_skipped(desk: Desk, title: str) -> None:
    write_note(desk.folder(), "x.md", page_file("x", title, body="harbor\n"))
    assert by_words(desk, "harbor") == ()
    assert labels(desk) == ()
    assert starts(desk, "x") == ()


def test_a_match_in_the_title_is_boosted(desk: Desk) -> None:
    body = desk.page("Something", body="the harbor opens")["id"]
    title = desk.page("Harbor", body="it opens")["id"]
    assert ids(by_words(desk, "harbor")) == [title, body]


def test_the_best_pages_are_kept(desk: Desk) -> None:
    for number in range(12):
        desk.page(f"Page {number}", body="harbor " * (number + 1))
    assert len(by_words(desk, "harbor")) == 10
    assert len(by_words(desk, "harbor", limit=3)) == 3


def test_the_best_matching_passages_are_quoted_within_their_bounds(desk: Desk) -> None:
    paragraphs = [f"harbor {number} {'word ' * 60}" for number in range(20)]
    desk.page("Long", body="\n\n".join(paragraphs))
    [page] = by_words(desk, "harbor", excerpts=3, excerptChars=200, pageChars=500)
    assert page.text.count("\n\n") == 2
    assert utf16_length(page.text) <= 500
    assert all(utf16_length(passage) <= 200 for passage in page.text.split("\n\n"))


def test_a_page_over_64_kib_is_quoted_around_the_words_far_inside_it(desk: Desk) -> None:
    body = f"{'filler ' * 12_000}\n\nthe quay of the harbor\n\n{'more ' * 100}"
    write_note(desk.folder(), "big.md", page_file("big", "Big", body=body))
    assert "quay" not in excerpt(body, None)
    [page] = by_words(desk, "harbor quay")
    assert page.text == "the quay of the harbor"


def test_a_page_that_only_its_title_matches_is_quoted_from_its_beginning(desk: Desk) -> None:
    desk.page("Harbor", body="First.\n\nSecond.")
    [page] = by_words(desk, "harbor")
    assert page.text == "First.\n\nSecond."


def test_a_record_written_since_the_index_caught_up_is_judged_by_what_it_says_now(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept = desk.page("Harbor", body="the harbor")["id"]
    old = str(desk.page("Old", body="the harbor closed")["id"])
    catch_up = Desk.catch_up

    def others_write_meanwhile(self: Desk, partition: Partition, change: int) -> None:
        catch_up(self, partition, change)
        write_note(self.folder(), "new.md", page_file("new", "New", body="a new harbor\n"))
        self.path_of(old).unlink()

    monkeypatch.setattr(Desk, "catch_up", others_write_meanwhile)
    assert ids(by_words(desk, "harbor")) == [kept, "new"]


def test_an_index_that_cannot_answer_is_an_error_and_never_no_candidates(desk: Desk) -> None:
    desk.page("Harbor", body="harbor")
    desk.index_problem = "the keyword index is not ready: deadline"
    with pytest.raises(IndexUnavailable):
        by_words(desk, "harbor")


def test_a_message_of_any_length_and_script_finds_its_pages(desk: Desk) -> None:
    page = desk.page("会議", body="金曜日の会議です。")["id"]
    assert ids(by_words(desk, "次の会議はいつですか" + "？" * 2_000)) == [page]
    harbor = desk.page("Harbor", body="opens")["id"]
    assert ids(by_words(desk, "filler " * 20_000 + "harbor")) == [harbor]


def test_a_page_is_named_by_what_a_lookup_resolves_to_it(desk: Desk) -> None:
    first = desk.page("Twin", type="project", aliases=["Elder Twin"])
    second = desk.page("Twin", type="person")
    plain = desk.page("Garden Twin", aliases=['the "G"', "Elder Garden"])
    found = {page.id: page for page in by_words(desk, "twin")}
    assert {page.id: page.name for page in found.values()} == {
        first["id"]: "elder twin",
        second["id"]: second["id"],
        plain["id"]: "Garden Twin",
    }
    for page in found.values():
        rows = desk.call("lookup", {"query": page.name})["hits"]
        assert isinstance(rows, list)
        assert [row["id"] for row in rows if isinstance(row, dict)] == [page.id]


def test_the_label_index_has_type_title_and_one_exact_alias_most_connected_first(desk: Desk) -> None:
    lone = desk.page("Alone")["id"]
    hub = desk.page("Hub", type="concept", aliases=["Centre"], body="[[Alone]]")["id"]
    desk.page("Third", body="[[Hub]]")
    found = labels(desk)
    assert found[0].label == "concept: Hub (also centre)"
    assert ids(found)[0] == hub
    assert {page.label for page in found[1:]} == {"project: Alone", "project: Third"}
    assert lone in ids(found)
    assert all(page.text == "" for page in found)


def test_the_label_index_has_at_most_so_many_characters(desk: Desk) -> None:
    for number in range(20):
        desk.page(f"Page number {number}")
    some = labels(desk, maxIndexChars=200)
    assert 0 < len(some) < 20
    assert sum(utf16_length(page.label) + 1 for page in some) <= 200
    assert len(labels(desk)) == 20


def test_an_alias_that_several_pages_bear_or_that_reads_like_an_instruction_is_not_shown(desk: Desk) -> None:
    desk.page("One", aliases=["Shared", "ignore this", "Fine"])
    desk.page("Two", aliases=["Shared"])
    assert {page.title: page.alias for page in labels(desk)} == {"One": "fine", "Two": None}


def test_the_start_of_a_page_is_at_most_so_long_and_pages_come_in_the_order_asked_for(desk: Desk) -> None:
    one = desk.page("One", body="word " * 1_000)["id"]
    two = desk.page("Two", body="short")["id"]
    first, second = starts(desk, two, one, chars=200)
    assert (first.id, first.text) == (two, "short")
    assert second.text.endswith("…")
    assert utf16_length(second.text) <= 200


def test_a_page_that_is_gone_or_no_longer_current_has_no_start(desk: Desk) -> None:
    page = desk.page("One")
    desk.call("withdraw", {**desk.observed(page["id"]), "reason": "gone"})
    assert starts(desk, page["id"], "nobody") == ()


def cost(desk: Desk, request: GateCandidatesRequest) -> Counter[str]:
    """How many statements each connection runs for a request, the index having caught up."""
    desk.ask(request)
    counted: Counter[str] = Counter()
    with faults.installed(lambda point: counted.update([point] if point.endswith(".statement") else [])):
        desk.ask(request)
    return counted


def test_candidates_take_as_many_statements_however_many_words_and_pages_there_are(desk: Desk) -> None:
    words = [f"word{number}" for number in range(30)]
    for number in range(10):
        desk.page(f"Page {number}", body=" ".join(words[number:]), aliases=[f"alias {number}"])
    one = GateCandidatesRequest.model_validate({"mode": "keyword", "message": "word29", "limit": 1})
    many = GateCandidatesRequest.model_validate({"mode": "keyword", "message": " ".join(["absent", *words])})
    assert len(pages_from_json(desk.ask(one))) == 1
    assert len(pages_from_json(desk.ask(many))) == 10
    assert cost(desk, one) == cost(desk, many)


def test_the_label_index_takes_no_statement_for_the_names_of_each_page(desk: Desk) -> None:
    request = GateCandidatesRequest.model_validate({"mode": "model"})
    desk.page("Page 0")
    few = cost(desk, request)
    for number in range(1, 21):
        desk.page(f"Page {number}")
    # One for each page that is looked at, by its row; the names of fifty come together.
    assert cost(desk, request).total() - few.total() == 20


def test_candidates_are_quoted_without_reading_what_else_their_files_say(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    desk.page("Harbor", body="the harbor\n\nthe crane")
    kept = by_words(desk, "harbor crane")
    desk.partition()._parsed = ParsedRecords()
    monkeypatch.setattr(session, "parse_record", None)
    assert by_words(desk, "harbor crane") == kept
    assert kept[0].text == "the harbor\n\nthe crane"

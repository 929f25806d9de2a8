"""knowledge_grep without a thread: fresh, filtered, honest (tools.md, Search and lookup)."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from messages.errors import InvalidArgument, LimitExceeded, SnapshotChanged
from messages.json_types import JsonObject, JsonValue
from messages.tools import json_bytes
from messages.vocabulary import Partition
from storage.layout import StoreLayout
from tests.kit.store import (
    GROUP_PARTITION,
    Desk,
    claim_file,
    copy_store,
    items_of,
    page_file,
    write_note,
    write_notes,
)


def hits(answer: JsonObject) -> list[JsonObject]:
    found = answer["hits"]
    assert isinstance(found, list)
    return [hit for hit in found if isinstance(hit, dict)]


def ids(answer: JsonObject) -> list[JsonValue]:
    return [hit["id"] for hit in hits(answer)]


def found(desk: Desk, query: str, **more: JsonValue) -> set[JsonValue]:
    return set(ids(desk.call("grep", {"query": query, **more})))


def test_titles_aliases_and_bodies_are_searched(desk: Desk) -> None:
    page = desk.page("Garden Pilot", body="Ships on Friday.", aliases=["Greenhouse"])["id"]
    claim = items_of(desk.remember("The harbor is closed."))[0]["id"]
    for query in ("garden", "greenhouse", "friday", "GARDEN friday"):
        assert found(desk, query) == {page}
    assert found(desk, "harbor") == {claim}
    assert desk.call("grep", {"query": "nothing"}) == {"total": 0, "hits": []}


@pytest.mark.parametrize(
    ("mode", "expected"), [(None, {"a", "b"}), ("all", {"a", "b"}), ("any", {"a", "b", "c"}), ("phrase", {"a"})]
)
def test_all_needs_every_word_any_one_of_them_and_phrase_their_order(
    desk: Desk, mode: str | None, expected: set[str]
) -> None:
    write_notes(
        desk.folder(),
        [
            ("a.md", page_file("a", "A", body="the blue harbor opens\n")),
            ("b.md", page_file("b", "B", body="a harbor that is blue\n")),
            ("c.md", page_file("c", "C", body="a harbor\n")),
        ],
    )
    assert found(desk, "blue harbor", mode=mode) == expected


@pytest.mark.parametrize("query", ["a OR b", "col:umn", 'un"closed', "(", "NEAR(a b)", "-minus", "star*", "^start"])
def test_there_is_no_query_syntax(desk: Desk, query: str) -> None:
    desk.page("Garden Pilot", body="nothing of that kind")
    answer = desk.call("grep", {"query": query})
    assert (answer["total"], answer["hits"]) == (0, [])


def test_punctuation_alone_finds_nothing_and_not_everything(desk: Desk) -> None:
    desk.page("Garden Pilot")
    assert desk.call("grep", {"query": "?!"}) == {"total": 0, "hits": []}


def test_a_query_has_at_most_64_words_and_500_characters(desk: Desk) -> None:
    desk.call("grep", {"query": "a " * 64})
    for query in ("a " * 65, "x" * 501):
        assert isinstance(desk.fails("grep", {"query": query}), LimitExceeded)
    assert isinstance(desk.fails("grep", {"query": " "}), InvalidArgument)


# --- freshness --------------------------------------------------------------------------------------------------------


def test_a_search_sees_every_change_made_before_it_began(desk: Desk) -> None:
    path = write_note(desk.folder(), "a.md", page_file("a", "A", body="old words\n"))
    assert found(desk, "old words") == {"a"}
    path.write_text(page_file("a", "A", body="new words\n"), "utf-8")
    assert found(desk, "old") == set()
    assert found(desk, "new") == {"a"}
    path.unlink()
    assert found(desk, "new") == set()
    claim = items_of(desk.remember("A new fact."))[0]["id"]
    assert found(desk, "new") == {claim}


class BusyDesk(Desk):
    """A desk at which others write between the index's catching up and the search."""

    busy: Callable[[], object] | None = None

    def catch_up(self, partition: Partition, change: int) -> None:
        super().catch_up(partition, change)
        change_now, self.busy = self.busy, None
        if change_now is not None:
            change_now()


@pytest.fixture
def busy(made_store: StoreLayout, tmp_path: Path) -> Iterator[BusyDesk]:
    opened = BusyDesk(copy_store(made_store, tmp_path / "busy"))
    write_notes(
        opened.folder(), [(f"{name}.md", page_file(name, name, body=f"harbor {name}\n")) for name in ("a", "b", "c")]
    )
    assert found(opened, "harbor") == {"a", "b", "c"}
    yield opened
    opened.close()


def while_searching(desk: BusyDesk, change: Callable[[], object], **more: JsonValue) -> JsonObject:
    """The answer of a search during which the change is made, after the index has caught up."""
    write_note(desk.folder(), "d.md", page_file("d", "D", body="so that the index has something to do\n"))
    desk.busy = change
    return desk.call("grep", {"query": "harbor", **more})


def test_a_record_that_ends_while_a_search_runs_is_no_hit_of_it(busy: BusyDesk) -> None:
    entry = busy.partition().catalogue.one("b")
    assert entry is not None
    text = page_file("b", "b", body="harbor b\n", lifecycle="withdrawn")
    answer = while_searching(busy, lambda: write_note(busy.folder(), "b.md", text))
    assert (ids(answer), answer["total"]) == (["a", "c"], 2)
    answer = while_searching(busy, (busy.folder() / "a.md").unlink)
    assert (ids(answer), answer["total"]) == (["c"], 1)


def test_a_record_saved_while_a_search_runs_is_judged_by_what_it_says_now_and_stands_last(busy: BusyDesk) -> None:
    new = page_file("new", "harbor", body="harbor harbor\n")
    answer = while_searching(busy, lambda: write_note(busy.folder(), "new.md", new))
    assert (ids(answer), answer["total"]) == (["a", "b", "c", "new"], 4)
    answer = while_searching(busy, lambda: write_note(busy.folder(), "a.md", page_file("a", "a", body="no port\n")))
    assert set(ids(answer)) == {"b", "c", "new"}
    assert found(busy, "harbor") == {"b", "c", "new"}


def test_pages_of_a_search_that_others_wrote_into_join_and_the_next_search_has_another_snapshot(
    busy: BusyDesk,
) -> None:
    new = page_file("new", "harbor", body="harbor harbor\n")
    first = while_searching(busy, lambda: write_note(busy.folder(), "new.md", new), limit=2)
    assert (ids(first), first["nextOffset"], first["total"]) == (["a", "b"], 2, 4)
    sent: JsonObject = {"query": "harbor", "offset": 2, "snapshot": first["snapshot"]}
    assert isinstance(busy.fails("grep", sent), SnapshotChanged)
    assert ids(busy.call("grep", {"query": "harbor"}))[0] == "new"


def test_a_claim_corrected_while_a_search_runs_leads_to_its_replacement(busy: BusyDesk) -> None:
    claim = str(items_of(busy.remember("The harbor is blue."))[0]["id"])
    evidence = busy.retained("The port is red.")
    statement: JsonObject = {
        "kind": "claim", "body": "The port is red.", "claim_kind": "fact", "assertion_origin": "source",
        "attribution": "user", "evidence": [evidence],
    }  # fmt: skip
    fences = {**busy.vault(), **busy.observed(claim), "reason": "wrong", "replacement": statement}
    made: list[JsonObject] = []
    answer = while_searching(busy, lambda: made.append(busy.call("correct", fences)), kind="claim")
    assert [(hit["id"], hit["via"]) for hit in hits(answer)] == [(made[0]["id"], claim)]
    assert answer["total"] == 0


def test_a_record_that_moved_is_found_once(desk: Desk) -> None:
    path = write_note(desk.folder(), "a.md", page_file("a", "A", body="old words\n"))
    assert found(desk, "old") == {"a"}
    path.rename(desk.folder() / "b.md")
    answer = desk.call("grep", {"query": "old"})
    assert (answer["total"], ids(answer)) == (1, ["a"])


def test_an_index_that_cannot_answer_is_unavailable_and_never_zero_hits(desk: Desk) -> None:
    desk.page("Garden Pilot")
    desk.index_problem = "the keyword index is not ready: it did not catch up in time"
    assert desk.call("grep", {"query": "garden"}) == {
        "index": {"state": "unavailable", "reason": desk.index_problem}, "total": None, "hits": [],
    }  # fmt: skip


# --- filters ----------------------------------------------------------------------------------------------------------


def many(desk: Desk) -> None:
    """Fifteen projects that match well, one company that matches badly."""
    write_notes(
        desk.folder(),
        [(f"p{n}.md", page_file(f"p{n:02}", f"Harbor {n}", body="harbor harbor\n", tags=["blue"])) for n in range(15)],
    )
    write_note(
        desk.folder(), "z.md",
        page_file("zulu", "Zulu", type="company", body="word " * 500 + "harbor\n", tags=["red"]),
    )  # fmt: skip
    write_note(desk.folder(), "c.md", claim_file("c1", "harbor " + "word " * 300, occurred_at="2026-09-20"))


@pytest.mark.parametrize(
    "filters",
    [
        {"type": "company"},
        {"type": "organisation"},
        {"tag": "red"},
        {"kind": "claim"},
        {"since": "2026-09-20", "until": "2026-09-21"},
        {"timeField": "occurred", "until": "2026-09-21"},
    ],
)
def test_filters_apply_before_the_limit(desk: Desk, filters: JsonObject) -> None:
    many(desk)
    answer = desk.call("grep", {"query": "harbor", "limit": 1, **filters})
    assert answer["total"] == 1
    assert ids(answer) in (["zulu"], ["c1"])


def test_tags_and_types_that_do_not_exist_filter_everything_out(desk: Desk) -> None:
    many(desk)
    for filters in ({"tag": "Red"}, {"type": "spaceship"}, {"kind": "relationship"}, {"since": "2027"}):
        assert desk.call("grep", {"query": "harbor", **filters})["total"] == 0


def test_pages_of_hits_join_without_gap_or_repeat_under_one_snapshot(desk: Desk) -> None:
    many(desk)
    seen: list[JsonValue] = []
    arguments: JsonObject = {"query": "harbor", "limit": 5}
    while True:
        answer = desk.call("grep", arguments)
        assert answer["total"] == 17
        seen += ids(answer)
        if "nextOffset" not in answer:
            break
        arguments = {**arguments, "offset": answer["nextOffset"], "snapshot": answer["snapshot"]}
    assert len(seen) == len(set(seen)) == 17
    assert "snapshot" in answer, "the last page carries it too"


def test_a_snapshot_that_is_sent_back_after_a_change_is_refused(desk: Desk) -> None:
    many(desk)
    first = desk.call("grep", {"query": "harbor"})
    desk.remember("Something else.")
    error = desk.fails("grep", {"query": "harbor", "offset": 10, "snapshot": first["snapshot"]})
    assert isinstance(error, SnapshotChanged)
    desk.call("grep", {"query": "harbor", "offset": 10, "snapshot": error.fields["snapshot"]})


def test_hits_are_list_rows_with_a_snippet_and_a_claim_omits_the_title_its_text_repeats(desk: Desk) -> None:
    write_notes(
        desk.folder(),
        [
            ("a.md", page_file("a", "Garden Pilot", body="word " * 200 + "the harbor opens " + "word " * 200)),
            ("b.md", claim_file("b", "The harbor is closed.")),
            ("c.md", claim_file("c", "Harbor fees rise.", title="Ports and money")),
        ],
    )
    shown = {str(hit["id"]): hit for hit in hits(desk.call("grep", {"query": "harbor"}))}
    assert "harbor opens" in str(shown["a"]["snippet"])
    assert len(str(shown["a"]["snippet"])) < 500
    assert (shown["a"]["title"], shown["a"]["type"], len(str(shown["a"]["hash"]))) == ("Garden Pilot", "project", 16)
    assert "title" not in shown["b"]
    assert (shown["b"]["text"], shown["b"]["claimKind"], shown["b"]["day"]) == (
        "The harbor is closed.", "fact", "2026-10-01",
    )  # fmt: skip
    assert shown["c"]["title"] == "Ports and money"


def test_bodies_over_64_kib_have_opening_excerpts(desk: Desk) -> None:
    write_note(desk.folder(), "a.md", page_file("a", "A", body="opening words " + "x " * 40_000 + "harbor"))
    [hit] = hits(desk.call("grep", {"query": "harbor"}))
    assert str(hit["snippet"]).startswith("opening words")


def test_a_response_stays_within_24_kib_and_goes_on_behind_what_was_cut(desk: Desk) -> None:
    write_notes(desk.folder(), [(f"{n}.md", claim_file(f"c{n}", f"harbor {n} " + "word " * 700)) for n in range(20)])
    seen: list[JsonValue] = []
    arguments: JsonObject = {"query": "harbor", "limit": 50}
    while True:
        answer = desk.call("grep", arguments)
        assert json_bytes(answer) <= 24 * 1024
        seen += ids(answer)
        if "nextOffset" not in answer:
            break
        arguments = {**arguments, "offset": answer["nextOffset"]}
    assert sorted(map(str, seen)) == sorted(f"c{n}" for n in range(20))


# --- superseded wording -----------------------------------------------------------------------------------------------


def corrected(desk: Desk) -> None:
    write_notes(
        desk.folder(),
        [
            ("a.md", claim_file("old", "The quay opens in spring.", lifecycle="superseded", superseded_by="mid")),
            ("b.md", claim_file("mid", "The pier opens in summer.", lifecycle="superseded", superseded_by="new")),
            ("c.md", claim_file("new", "The dock opens in autumn.", supersedes="mid")),
        ],
    )


def test_superseded_wording_leads_to_the_current_replacement_at_the_end_of_the_chain(desk: Desk) -> None:
    corrected(desk)
    answer = desk.call("grep", {"query": "quay"})
    assert answer["total"] == 0, "via rows count in the limit, not in the total"
    [hit] = hits(answer)
    assert (hit["id"], hit["via"], hit["text"]) == ("new", "old", "The dock opens in autumn.")


def test_a_replacement_comes_after_direct_hits_once_and_not_when_it_is_one(desk: Desk) -> None:
    corrected(desk)
    write_note(desk.folder(), "d.md", page_file("direct", "Quay", body="quay opens\n"))
    answer = desk.call("grep", {"query": "quay"})
    assert [(hit["id"], hit.get("via")) for hit in hits(answer)] == [("direct", None), ("new", "old")]
    both = desk.call("grep", {"query": "opens"})
    assert both["total"] == 2
    assert sorted(map(str, ids(both))) == ["direct", "new"]
    assert all("via" not in hit for hit in hits(both))


def test_replacements_follow_behind_a_full_last_page_of_direct_hits(desk: Desk) -> None:
    corrected(desk)
    write_notes(desk.folder(), [(f"d{n}.md", page_file(f"d{n}", f"Quay {n}", body="quay\n")) for n in range(3)])
    seen: list[tuple[JsonValue, JsonValue]] = []
    arguments: JsonObject = {"query": "quay", "limit": 3}
    for _ in range(3):
        answer = desk.call("grep", arguments)
        assert answer["total"] == 3
        seen += [(hit["id"], hit.get("via")) for hit in hits(answer)]
        if "nextOffset" not in answer:
            break
        arguments = {**arguments, "offset": answer["nextOffset"], "snapshot": answer["snapshot"]}
    assert sorted(str(record) for record, via in seen if via is None) == ["d0", "d1", "d2"]
    assert seen[-1] == ("new", "old")
    assert len(seen) == 4


def test_every_matching_superseded_record_leads_to_its_replacement_however_many_there_are(desk: Desk) -> None:
    """Those whose replacement is gone take no place of those whose replacement is current."""
    for number in range(70):
        lifecycle = "withdrawn" if number < 55 else "active"
        quay = "quay " * (70 - number)  # what leads nowhere matches best
        was = claim_file(f"o{number}", quay, lifecycle="superseded", superseded_by=f"n{number}")
        write_note(desk.folder(), f"o{number}.md", was)
        write_note(desk.folder(), f"n{number}.md", claim_file(f"n{number}", "Harbor.", lifecycle=lifecycle))
    seen: list[JsonValue] = []
    arguments: JsonObject = {"query": "quay", "limit": 10}
    while True:
        answer = desk.call("grep", arguments)
        assert answer["total"] == 0
        seen += ids(answer)
        if "nextOffset" not in answer:
            break
        arguments = {**arguments, "offset": answer["nextOffset"]}
    assert sorted(map(str, seen)) == [f"n{number}" for number in range(55, 70)]


@pytest.mark.parametrize("keys", [{"lifecycle": "withdrawn"}, {"fixture": True}, {"expires_at": "2026-10-02"}])
def test_an_end_of_the_chain_that_is_not_current_gives_nothing(desk: Desk, keys: JsonObject) -> None:
    corrected(desk)
    [(key, value)] = keys.items()
    path = desk.folder() / "c.md"
    lines = [line for line in path.read_text("utf-8").split("\n") if not line.startswith(f"{key}:")]
    path.write_text("\n".join([*lines[:2], f"{key}: {json.dumps(value)}", *lines[2:]]), "utf-8")
    assert desk.call("grep", {"query": "quay"}) == {"total": 0, "hits": []}


def test_an_expired_earlier_claim_still_leads_to_its_replacement(desk: Desk) -> None:
    corrected(desk)
    write_note(
        desk.folder(), "a.md",
        claim_file("old", "The quay opens.", lifecycle="superseded", superseded_by="new", expires_at="2026-10-02"),
    )  # fmt: skip
    assert [hit["via"] for hit in hits(desk.call("grep", {"query": "quay"}))] == ["old"]


def test_the_filters_of_the_request_hold_for_replacements_too(desk: Desk) -> None:
    corrected(desk)
    assert found(desk, "quay", kind="claim") == {"new"}
    assert found(desk, "quay", kind="page") == set()
    assert found(desk, "quay", tag="x") == set()
    assert found(desk, "quay", since="2026-10-01", until="2026-10-02") == {"new"}
    assert found(desk, "quay", since="2026-10-02") == set()


@pytest.mark.parametrize(("lifecycle", "expected"), [("superseded", {"old"}), ("all", {"old"})])
def test_a_search_for_superseded_records_gives_them_and_no_replacements(
    desk: Desk, lifecycle: str, expected: set[str]
) -> None:
    corrected(desk)
    answer = desk.call("grep", {"query": "quay", "lifecycle": lifecycle})
    assert set(ids(answer)) == expected
    assert all("via" not in hit for hit in hits(answer))


@pytest.mark.parametrize("lifecycle", [None, "all", "superseded"])
def test_withdrawn_invalid_expired_and_fixture_records_are_not_found(desk: Desk, lifecycle: str | None) -> None:
    write_notes(
        desk.folder(),
        [
            ("w.md", claim_file("w", "quay", lifecycle="withdrawn")),
            ("m.md", page_file("m", "Quay", lifecycle="merged", merged_into="x")),
            ("i.md", page_file("i", "Quay", type="spaceship")),
            ("f.md", page_file("f", "Quay", fixture=True)),
            ("e.md", claim_file("e", "quay", expires_at="2026-10-02")),
        ],
    )
    assert desk.call("grep", {"query": "quay", "lifecycle": lifecycle})["total"] == 0


def test_a_claim_that_expires_is_no_longer_found_without_anything_being_written(desk: Desk) -> None:
    desk.remember({"text": "The quay is open.", "kind": "fact", "expires_at": "2026-11-03"})
    assert len(found(desk, "quay")) == 1
    desk.now_ms += 36 * 3_600_000  # the whole of the third is over
    assert found(desk, "quay") == set()


def test_partitions_are_searched_apart(desk: Desk) -> None:
    private = items_of(desk.remember("The quay is open."))[0]["id"]
    shared = items_of(desk.remember("The quay is closed.", partition=GROUP_PARTITION))[0]["id"]
    assert found(desk, "quay") == {private}
    assert ids(desk.call("grep", {"query": "quay"}, partition=GROUP_PARTITION)) == [shared]

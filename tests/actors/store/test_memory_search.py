"""``memory.search``: the host's shared search, sentence by sentence (memory-provider.md, Shared memory reads)."""

from __future__ import annotations

import base64
import json
import re
from dataclasses import replace
from pathlib import Path

import apsw
import pytest

from actors.store.operations import table
from actors.store.operations.context import Prepared
from messages.errors import IndexUnavailable, InvalidArgument, KnowledgeError, ReferenceForeign, SnapshotChanged
from messages.json_types import JsonObject, JsonValue
from messages.provider import MemorySearchRequest, parse_provider_call
from messages.tools import json_bytes
from storage.layout import StoreLayout
from storage.search import SearchIndex
from storage.session import StoreSession
from tests.kit.store import (
    GROUP_PARTITION,
    VAULT_ID,
    Desk,
    claim_file,
    items_of,
    page_file,
    write_note,
)

OTHER_VAULT = "99999999-9999-4999-8999-999999999999"


def search(desk: Desk, query: str, **more: JsonValue) -> list[JsonObject]:
    return hits(desk.consult("search", {"query": query, **more}))


def hits(answer: JsonObject) -> list[JsonObject]:
    found = answer["hits"]
    assert isinstance(found, list)
    return found


def ref_of(hit: JsonObject) -> JsonObject:
    ref = hit["ref"]
    assert isinstance(ref, dict)
    return ref


def titles(found: list[JsonObject]) -> list[JsonValue]:
    return [hit["title"] for hit in found]


def refused(desk: Desk, **params: JsonValue) -> KnowledgeError:
    with pytest.raises(KnowledgeError) as error:
        desk.consult("search", params)
    return error.value


def filled(desk: Desk, number: int = 7) -> None:
    for one in range(number):
        desk.page(f"Harbor {one}", body=f"The harbor is open. {'Boats. ' * one}")


# --- what is found ------------------------------------------------------------------------------------------


def test_a_hit_has_a_reference_a_title_a_kind_a_score_a_snippet_and_who_is_behind_it(desk: Desk) -> None:
    page = desk.page("Garden Pilot", body="It ships in autumn.")
    [claim] = items_of(desk.remember({"text": "The pilot ships on Friday.", "kind": "commitment"}))
    found = {str(hit["kind"]): hit for hit in search(desk, "pilot")}
    assert found["page"] == {
        "ref": {
            "provider": "knowledge",
            "store": VAULT_ID,
            "id": page["id"],
            "revision": 1,
            "hash": page["hash"],
        },
        "title": "Garden Pilot",
        "kind": "page",
        "score": found["page"]["score"],
        "snippet": "It ships in autumn.",
        "assertionOrigin": None,
        "attribution": None,
    }
    assert found["claim"]["ref"] == {**ref_of(found["page"]), "id": claim["id"], "hash": claim["hash"]}
    assert found["claim"]["snippet"] == "The pilot ships on Friday."
    assert found["claim"]["assertionOrigin"] == "source"
    assert found["claim"]["attribution"] == "user in session 8f3a, 2026-11-02"


def test_a_whole_message_finds_the_records_that_share_a_content_word_with_it(desk: Desk) -> None:
    desk.page("Garden Pilot", body="The greenhouse by the river.")
    desk.page("Payroll", body="Salaries are paid on the last day, and that is what it is.")
    question = "Hey, could you please tell me again where we wanted to put the greenhouse, and why?"
    assert titles(search(desk, question)) == ["Garden Pilot"]
    assert titles(search(desk, "what is it and why")) == ["Payroll"]  # stop words alone are searched for
    assert search(desk, "?!") == []


@pytest.mark.parametrize(
    "query", ["word " * 1_600, "a" * 8_000, "猫" * 8_000, "".join(f"w{n} " for n in range(1_400)), "  greenhouse  "]
)
def test_a_query_of_up_to_8000_characters_is_searched_for(desk: Desk, query: str) -> None:
    desk.page("Garden Pilot", body="The greenhouse by the river. w3 w1399 猫猫")
    assert len(search(desk, query)) == (0 if query[0] == "a" or query.startswith("word") else 1)
    assert refused(desk, query="x " * 4_001).fields["field"] == "query"


def test_search_uses_current_eligible_records_of_the_partition_only(desk: Desk) -> None:
    good = page_file("good", "Good harbor")
    write_note(desk.folder(), "projects/good.md", good)
    bad: dict[str, str] = {
        "withdrawn": page_file("withdrawn", "Bad harbor", lifecycle="withdrawn"),
        "superseded": page_file("superseded", "Bad harbor", lifecycle="superseded"),
        "merged": page_file("merged", "Bad harbor", lifecycle="merged", merged_into="good"),
        "fixture": page_file("fixture", "Bad harbor", fixture=True),
        "invalid": page_file("invalid", "Bad harbor", type="no_such_type"),
    }
    for record_id, text in bad.items():
        write_note(desk.folder(), f"projects/{record_id}.md", text)
    write_note(desk.folder(), "claims/e.md", claim_file("expired", "The harbor is shut.", expires_at="2026-10-02"))
    write_note(desk.folder(), "claims/f.md", claim_file("later", "The harbor opens.", expires_at="2027-10-02"))
    write_note(desk.folder(), "projects/broken.md", "---\nharbor\n")
    write_note(
        desk.folder(GROUP_PARTITION), "p.md", page_file("group", "Group harbor", partition=GROUP_PARTITION)
    )
    assert {ref_of(hit)["id"] for hit in search(desk, "harbor")} == {"good", "later"}
    group = desk.consult("search", {"query": "harbor"}, partition=GROUP_PARTITION)
    assert titles(hits(group)) == ["Group harbor"]


def test_an_edited_file_is_found_by_what_it_says_now(desk: Desk) -> None:
    page = desk.page("Plan", body="About boats.")
    assert titles(search(desk, "boats")) == ["Plan"]
    path = desk.path_of(str(page["id"]))
    path.write_text(path.read_text("utf-8").replace("boats", "trains"), "utf-8")
    assert search(desk, "boats") == []
    assert titles(search(desk, "trains")) == ["Plan"]


def test_kind_bounds_the_hits(desk: Desk) -> None:
    desk.page("Harbor")
    desk.remember("The harbor is open.")
    assert [hit["kind"] for hit in search(desk, "harbor", kind="claim")] == ["claim"]
    assert refused(desk, query="harbor", kind="note").fields["field"] == "kind"


# --- scores -------------------------------------------------------------------------------------------------


def test_scores_are_query_local_so_that_the_best_hit_has_1_and_they_fall_from_hit_to_hit(desk: Desk) -> None:
    filled(desk)
    desk.page("Another", body="The C++ harbor of C and C#.")
    for query in ("harbor", "boats", "c++ open"):
        scores = [float(str(hit["score"])) for hit in search(desk, query)]
        assert scores[0] == 1.0
        assert scores == sorted(scores, reverse=True)
        assert all(0 < score <= 1 for score in scores)


def test_bm25_alone_orders_the_hits_whatever_was_literally_written(desk: Desk) -> None:
    desk.page("Long", body=f"It is written in C++. {'Boats go by. ' * 50}")
    desk.page("Short", body="C c c C.")
    for number in range(5):
        desk.page(f"Other {number}")
    found = search(desk, "c++")
    assert titles(found) == ["Short", "Long"]
    assert [float(str(hit["score"])) < 1 for hit in found] == [False, True]
    tool = desk.call("grep", {"query": "c++"})["hits"]
    assert isinstance(tool, list)
    assert titles(tool) == ["Long", "Short"]


def test_min_score_is_enforced_on_every_page(desk: Desk) -> None:
    filled(desk)
    every = search(desk, "harbor boats")
    least = float(str(every[3]["score"]))
    expected = [hit for hit in every if float(str(hit["score"])) >= least]
    assert 0 < len(expected) < len(every)
    assert search(desk, "harbor boats", minScore=least) == expected
    paged, cursor = list[JsonObject](), None
    for _ in expected:
        page = desk.consult("search", {"query": "harbor boats", "minScore": least, "limit": 1, "cursor": cursor})
        paged += hits(page)
        cursor = page.get("nextCursor")
    assert (paged, cursor) == (expected, None)
    assert [hit["score"] for hit in search(desk, "harbor boats", minScore=1)] == [1.0]
    assert refused(desk, query="harbor", minScore=1.01).fields["field"] == "minScore"
    assert refused(desk, query="harbor", minScore="much").fields["field"] == "minScore"


# --- sources ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("sources", [["sessions"], ["memory", "sessions"], [], ["wiki"]])
def test_requests_for_sessions_are_rejected_before_they_reach_knowledge(desk: Desk, sources: list[JsonValue]) -> None:
    desk.page("Harbor")
    desk.needs.clear()
    error = refused(desk, query="harbor", sources=sources)
    assert isinstance(error, InvalidArgument)
    assert str(error.fields["field"]).startswith("sources")
    assert desk.needs == []
    assert len(search(desk, "harbor", sources=["memory"])) == 1


def test_it_does_not_filter_by_project_during_search(desk: Desk) -> None:
    assert refused(desk, query="harbor", projects=["a"]).fields["reason"] == "unknown"


# --- pages of hits ------------------------------------------------------------------------------------------


def test_pages_of_hits_fit_together_and_the_limit_may_differ_from_page_to_page(desk: Desk) -> None:
    filled(desk)
    every = search(desk, "harbor", limit=50)
    found, cursor = list[JsonObject](), None
    for limit in (1, 3, 2, 50):
        page = desk.consult("search", {"query": "harbor", "limit": limit, "cursor": cursor})
        found += hits(page)
        cursor = page.get("nextCursor")
    assert found == every
    assert cursor is None


def test_a_list_of_hits_is_bounded_in_bytes_and_the_cursor_goes_on_behind_what_fitted(desk: Desk) -> None:
    for one in range(30):
        keys: JsonObject = {"attribution": f"{one} {'ü' * 5_000}", "title": f"Harbor {one} {'ö' * 300}"}
        text = claim_file(f"claim-{one}", f"The harbor {one} is open. {'ä' * 400}")
        for key, value in keys.items():
            line = next(found for found in text.splitlines() if found.startswith(f"{key}:"))
            text = text.replace(line, f"{key}: {json.dumps(value)}")
        write_note(desk.folder(), f"claims/{one}.md", text)
    found, cursor, pages = list[JsonObject](), None, 0
    while pages == 0 or cursor is not None:
        page = desk.consult("search", {"query": "harbor", "limit": 50, "cursor": cursor})
        assert json_bytes(page) <= 24 * 1024
        found += hits(page)
        cursor, pages = page.get("nextCursor"), pages + 1
    assert len({str(hit["ref"]) for hit in found}) == len(found) == 30
    assert pages > 1


def cursor_of(desk: Desk, query: str = "harbor", **more: JsonValue) -> str:
    cursor = desk.consult("search", {"query": query, "limit": 2, **more})["nextCursor"]
    assert isinstance(cursor, str)
    return cursor


def test_a_cursor_of_another_query_or_of_other_filters_is_rejected(desk: Desk) -> None:
    filled(desk)
    cursor = cursor_of(desk)
    others: list[tuple[JsonObject, str]] = [
        ({"query": "boats"}, "other_query"),
        ({"query": "harbor "}, "other_query"),
        ({"query": "harbor", "kind": "page"}, "other_filters"),
        ({"query": "harbor", "minScore": 0.1}, "other_filters"),
    ]
    for params, reason in others:
        error = refused(desk, **params, cursor=cursor)
        assert (error.code, error.fields["field"], error.fields["reason"]) == ("invalid_argument", "cursor", reason)
    assert len(hits(desk.consult("search", {"query": "harbor", "cursor": cursor, "sources": ["memory"]}))) == 5


def test_a_cursor_of_another_scope_is_rejected(desk: Desk) -> None:
    filled(desk)
    for one in range(3):
        write_note(
            desk.folder(GROUP_PARTITION), f"{one}.md", page_file(f"g{one}", f"Harbor {one}", partition=GROUP_PARTITION)
        )
    cursor = cursor_of(desk)
    with pytest.raises(InvalidArgument) as other:
        desk.consult("search", {"query": "harbor", "cursor": cursor}, partition=GROUP_PARTITION)
    desk.writes_enabled = False  # a grant that was narrowed from saving to reading
    narrowed = refused(desk, query="harbor", cursor=cursor)
    assert other.value.fields["reason"] == narrowed.fields["reason"] == "other_scope"


def test_a_changed_snapshot_rejects_the_continuation(desk: Desk) -> None:
    filled(desk)
    cursor = cursor_of(desk)
    desk.page("Elsewhere", body="Nothing of it.")
    assert isinstance(refused(desk, query="harbor", cursor=cursor), SnapshotChanged)


def test_an_expiry_between_two_pages_rejects_the_continuation(desk: Desk) -> None:
    filled(desk)
    write_note(desk.folder(), "claims/e.md", claim_file("e", "The harbor is shut.", expires_at="2026-11-02"))
    cursor = cursor_of(desk)
    desk.now_ms += 24 * 3_600_000
    assert isinstance(refused(desk, query="harbor", cursor=cursor), SnapshotChanged)


def test_a_catalogue_that_was_built_anew_is_another_snapshot(desk: Desk) -> None:
    filled(desk)
    cursor = cursor_of(desk)
    desk.close()
    database = apsw.Connection(str(desk.layout.state_database))
    database.execute("UPDATE catalogue_identity SET id = 'another'")
    database.close()
    assert isinstance(refused(desk, query="harbor", cursor=cursor), SnapshotChanged)
    assert len(search(desk, "harbor")) == 7


def test_a_cursor_from_another_store_is_rejected(desk: Desk, tmp_path: Path) -> None:
    filled(desk)
    layout = StoreLayout(tmp_path / "other")
    StoreSession.create(layout, OTHER_VAULT)
    other = Desk(layout)
    try:
        filled(other)
        error = refused(desk, query="harbor", cursor=cursor_of(other))
        assert isinstance(error, ReferenceForeign)
        assert error.fields["field"] == "cursor"
    finally:
        other.close()


def forgeries(cursor: str) -> dict[str, str]:
    raw = base64.urlsafe_b64decode(cursor + "=" * (-len(cursor) % 4))
    seal, said = raw[:16], json.loads(raw[16:])

    def forged(place: int, value: object) -> str:
        changed = json.dumps([*said[:place], value, *said[place + 1 :]], separators=(",", ":")).encode()
        return base64.urlsafe_b64encode(seal + changed).decode().rstrip("=")

    return {
        "no cursor": "x",
        "no base64": cursor + "!",
        "not ASCII": cursor + "é",
        "cut": cursor[:-5],
        "longer": cursor + "AAAA",
        "other offset": forged(7, 0),
        "offset below zero": forged(7, -1),
        "offset of another type": forged(7, "1"),
        "true offset": forged(7, True),
        "huge offset": forged(7, 10**400),
        "other best": forged(8, 1e-300),
        "best is no number": forged(8, float("nan")),
        "best is zero": forged(8, 0.0),
        "other query": forged(3, "0" * 32),
        "other version": forged(0, 2),
        "list in a list": base64.urlsafe_b64encode(seal + b"[" * 900).decode(),
        "an object": base64.urlsafe_b64encode(seal + b'{"a": 1}').decode(),
        "seal of something else": base64.urlsafe_b64encode(bytes(16) + raw[16:]).decode(),
    }


FORGERIES = sorted(forgeries(base64.urlsafe_b64encode(bytes(16) + b"[1,2,3,4,5,6,7,8,9]").decode()))


@pytest.mark.parametrize("name", FORGERIES)
def test_a_forged_or_broken_cursor_is_an_invalid_argument_and_never_an_exception(desk: Desk, name: str) -> None:
    filled(desk, 3)
    error = refused(desk, query="harbor", cursor=forgeries(cursor_of(desk))[name])
    assert (error.code, error.fields["field"]) == ("invalid_argument", "cursor")


def test_a_cursor_tells_nothing_of_query_titles_or_partition(desk: Desk) -> None:
    for one in range(3):
        write_note(
            desk.folder(GROUP_PARTITION), f"{one}.md", page_file(f"g{one}", f"Harbor {one}", partition=GROUP_PARTITION)
        )
    answer = desk.consult("search", {"query": "harbor", "limit": 1}, partition=GROUP_PARTITION)
    said = base64.urlsafe_b64decode(str(answer["nextCursor"]) + "==")[16:].decode()
    assert str(GROUP_PARTITION.session_id) not in said
    assert "arbor" not in said


# --- the index ----------------------------------------------------------------------------------------------


def test_failed_indexing_is_an_error_never_an_empty_success(desk: Desk) -> None:
    filled(desk)
    desk.index_problem = "the keyword index is not ready: corrupt"
    assert isinstance(refused(desk, query="harbor"), IndexUnavailable)
    desk.index_problem = None
    assert search(desk, "harbor")
    desk.index().close()
    desk._indexes.clear()
    path = desk.layout.search_index(desk.partition().partition)
    path.write_bytes(b"x" * 5_000)
    assert search(desk, "harbor")  # a damaged file is built anew by its writer


def test_an_index_that_fails_during_the_search_is_an_error_and_its_keeper_is_told(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    filled(desk)
    told: list[IndexUnavailable] = []

    def broken(*_: object, **__: object) -> object:
        raise IndexUnavailable("damaged", reason="corrupt")

    context = replace(desk.context(prepared=_caught_up(desk)), index_failed=told.append)
    monkeypatch.setattr(SearchIndex, "search", broken)
    with pytest.raises(IndexUnavailable):
        table.run(context, MemorySearchRequest(query="harbor"))
    assert [error.fields["reason"] for error in told] == ["corrupt"]


def _caught_up(desk: Desk) -> Prepared:
    change = desk.partition().catalogue.change
    desk.catch_up(desk.partition().partition, change)
    return Prepared(index_change=change)


def test_records_written_since_the_index_caught_up_come_behind_and_only_where_no_score_is_asked_for(
    desk: Desk,
) -> None:
    filled(desk, 3)
    [gone] = [hit for hit in search(desk, "harbor") if hit["title"] == "Harbor 1"]
    path = desk.path_of(str(ref_of(gone)["id"]))
    prepared = _caught_up(desk)
    desk.page("Late harbor", body="The harbor, too.")
    desk.page("Late elsewhere")
    path.write_text(re.sub("lifecycle: .*", "lifecycle: withdrawn", path.read_text("utf-8")), "utf-8")
    desk.partition()

    def ask(**more: JsonValue) -> JsonObject:
        request = parse_provider_call("memory.search", {"query": "harbor", **more}).request
        outcome = table.run(desk.context(prepared=prepared), request)
        assert isinstance(outcome, dict)
        return outcome

    found = hits(ask())
    assert sorted(map(str, titles(found[:2]))) == ["Harbor 0", "Harbor 2"]
    assert [(hit["title"], hit["score"]) for hit in found[2:]] == [("Late harbor", 0.0)]
    assert hits(ask(minScore=0.01)) == found[:2]
    assert hits(ask(kind="claim")) == []
    for limit in (1, 2):
        first = ask(limit=limit)
        assert hits(first) == found[:limit]
        assert hits(ask(limit=50, cursor=first["nextCursor"])) == found[limit:]

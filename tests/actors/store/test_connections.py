"""knowledge_connections without a thread; most names are sentences of tools.md, Listing and connections."""

from __future__ import annotations

from collections import Counter

import pytest

from messages.errors import Ambiguous, InvalidArgument, NotFound, SnapshotChanged
from messages.json_types import JsonObject, JsonValue
from messages.tools import json_bytes
from messages.tools.connections import DIRECTIONS
from storage import faults
from storage.state import connections as stored
from storage.state.page_graph import PageGraph
from tests.actors.store.test_reads import ids, relationship_file, rows
from tests.kit.store import GROUP_PARTITION, Desk, claim_file, items_of, page_file, write_note, write_notes


def connections(desk: Desk, record_id: JsonValue, **arguments: JsonValue) -> JsonObject:
    return desk.call("connections", {"id": record_id, **arguments})


def pairs(answer: JsonObject) -> list[tuple[JsonValue, JsonValue]]:
    return [(row["direction"], row["id"]) for row in rows(answer, "connections")]


def neighbourhood(desk: Desk) -> None:
    """A page with a neighbour in every direction."""
    write_notes(
        desk.folder(),
        [
            ("people/a.md", page_file("alex", "Alex Morgan", type="person", body="See [[acme|Acme]].\n")),
            ("companies/a.md", page_file("acme", "Acme", type="company")),
            ("projects/g.md", page_file("garden", "Garden Pilot", dependencies=["alex"])),
            ("notes/n.md", page_file("note", "Log", type="note", body="With [Alex](../people/a.md) and [[Acme]].\n")),
            ("r/1.md", relationship_file("works", "alex", "acme")),
            ("r/2.md", relationship_file("reports", "garden", "alex", label="about")),
            ("c/1.md", claim_file("entity", "Alex is here.", entities=["alex", "acme"])),
            ("c/2.md", claim_file("owned", "The release ships.", owner="alex")),
            ("c/3.md", claim_file("both", "Alex ships.", owner="alex", entities=["alex"])),
        ],
    )


def test_there_is_one_row_per_connection_its_direction_plus_the_list_row_of_the_connected_record(desk: Desk) -> None:
    neighbourhood(desk)
    answer = connections(desk, "alex")
    assert pairs(answer) == [
        ("incoming", "reports"),
        ("outgoing", "works"),
        ("dependents", "garden"),
        ("claims", "entity"),
        ("claims", "owned"),
        ("claims", "both"),
        ("links", "acme"),
        ("backlinks", "note"),
    ]
    assert answer["total"] == 8
    assert list(answer) == ["total", "connections"], "no paging keys where nothing is paged"
    listed = {row["id"]: row for row in rows(desk.call("records"), "records")}
    for row in rows(answer, "connections"):
        assert row == {"direction": row["direction"], **listed[row["id"]]}


@pytest.mark.parametrize("direction", DIRECTIONS)
def test_a_direction_filters_to_its_own_rows(desk: Desk, direction: str) -> None:
    neighbourhood(desk)
    everything = pairs(connections(desk, "alex"))
    assert pairs(connections(desk, "alex", direction=direction)) == [
        pair for pair in everything if pair[0] == direction
    ]


def test_a_claim_that_names_a_page_as_entity_and_owner_is_one_row(desk: Desk) -> None:
    neighbourhood(desk)
    assert Counter(ids(connections(desk, "alex", direction="claims"), "connections"))["both"] == 1


def test_the_same_endpoint_pair_can_carry_several_relationships_and_each_is_a_row(desk: Desk) -> None:
    neighbourhood(desk)
    write_note(desk.folder(), "r/3.md", relationship_file("again", "alex", "acme"))
    found = rows(connections(desk, "alex", direction="outgoing"), "connections")
    assert [(row["id"], row["from"], row["to"]) for row in found] == [
        ("works", "alex", "acme"),
        ("again", "alex", "acme"),
    ]


def test_a_relationship_of_a_page_with_itself_is_both_incoming_and_outgoing(desk: Desk) -> None:
    write_notes(
        desk.folder(), [("a.md", page_file("a", "A")), ("r.md", relationship_file("r", "a", "a", label="related_to"))]
    )
    assert pairs(connections(desk, "a")) == [("incoming", "r"), ("outgoing", "r")]


# --- links ------------------------------------------------------------------------------------------------------------


def test_links_are_the_records_that_the_text_links_to_of_any_kind_each_once(desk: Desk) -> None:
    neighbourhood(desk)
    body = "[[alex]] [[Alex Morgan]] [A](../people/a.md) [[entity]] [o](/c/2.md) ![p](../companies/a.md) [[gone]]\n"
    write_note(desk.folder(), "notes/m.md", page_file("mixed", "Mixed", type="note", body=f"{body} [[mixed]]\n"))
    found = ids(connections(desk, "mixed", direction="links"), "connections")
    assert sorted(map(str, found)) == ["acme", "alex", "entity", "owned"]


@pytest.mark.parametrize(
    "link",
    [
        "[[garden]]", "[[Garden Pilot]]", "[[garden  PILOT|it]]", "[[pilot]]", "[[projects/g]]", "[[projects/g.md]]",
        "[[g]]", "[it](../projects/g.md)", "![it](/projects/g.md)",
    ],
)  # fmt: skip
@pytest.mark.parametrize("kind", ["claim", "relationship"])
def test_wikilinks_resolve_by_id_title_alias_path_or_file_name_and_have_a_backlink_from_any_record(
    desk: Desk, link: str, kind: str
) -> None:
    neighbourhood(desk)
    page = page_file("garden", "Garden Pilot", aliases=["Pilot"])
    text = f"It is {link}, see [[entity]].\n"
    statement = relationship_file("linking", "alex", "acme") + text
    linking = claim_file("linking", text) if kind == "claim" else statement
    write_notes(desk.folder(), [("projects/g.md", page), ("c/9.md", linking)])
    found = ids(connections(desk, "linking", direction="links"), "connections")
    assert sorted(map(str, found)) == ["entity", "garden"]
    for target in ("garden", "entity"):
        assert ids(connections(desk, target, direction="backlinks"), "connections") == ["linking"]
    write_note(desk.folder(), "c/9.md", claim_file("linking", "It is nobody's."))
    assert ids(connections(desk, "garden", direction="backlinks"), "connections") == []


def test_a_claims_link_that_could_mean_two_pages_is_a_backlink_of_neither(desk: Desk) -> None:
    twins = [(f"{name}.md", page_file(name, "Twin")) for name in ("a", "b")]
    write_notes(desk.folder(), [*twins, ("c.md", claim_file("c", "It is [[Twin]]."))])
    for name in ("a", "b"):
        assert ids(connections(desk, name, direction="backlinks"), "connections") == []
    (desk.folder() / "b.md").unlink()
    assert ids(connections(desk, "a", direction="backlinks"), "connections") == ["c"]


def test_a_claims_link_to_a_merged_page_is_a_backlink_of_the_page_it_was_merged_into(desk: Desk) -> None:
    write_notes(
        desk.folder(),
        [
            ("old.md", page_file("old", "Old", lifecycle="merged", merged_into="new")),
            ("new.md", page_file("new", "New")),
            ("c.md", claim_file("c", "It is [[Old]].")),
            ("d.md", claim_file("d", "It is [old](old.md).")),
        ],
    )
    assert ids(connections(desk, "new", direction="backlinks"), "connections") == ["c", "d"]
    assert ids(connections(desk, "c", direction="links"), "connections") == ["new"]


def test_links_of_claims_count_for_no_degree_but_name_what_a_withdrawal_affects(desk: Desk) -> None:
    page = desk.page("Garden Pilot")
    [claim] = items_of(desk.remember("It is [[Garden Pilot]], so they say."))
    entry = desk.partition().catalogue.one(str(page["id"]))
    assert entry is not None
    assert PageGraph(desk.partition().catalogue).standing(entry.row).degree == 0
    desk.call("annotate", {**desk.vault(), **desk.observed(claim["id"]), "reason": "r", "entities": []})
    receipt = desk.call("withdraw", {**desk.observed(page["id"]), "reason": "not so"})
    impact = receipt["impact"]
    assert isinstance(impact, dict)
    assert impact["records"] == [{"id": claim["id"], "kind": "claim", "why": "link"}]


def test_a_pages_link_to_a_claim_by_id_or_by_path_is_the_claims_backlink(desk: Desk) -> None:
    neighbourhood(desk)
    write_notes(
        desk.folder(),
        [
            ("notes/x.md", page_file("x", "X", type="note", body="[[entity]]\n")),
            ("notes/y.md", page_file("y", "Y", type="note", body="[it](../c/1.md)\n")),
        ],
    )
    assert sorted(map(str, ids(connections(desk, "entity", direction="backlinks"), "connections"))) == ["x", "y"]


def test_links_and_backlinks_are_each_others_reverse(desk: Desk) -> None:
    neighbourhood(desk)
    claims = [f"[[Acme]] and [[{name}]]" for name in ("alex", "Log", "entity", "c/2", "nobody", "9")]
    write_notes(desk.folder(), [(f"c/{n}.md", claim_file(f"c{n}", text)) for n, text in enumerate(claims, 4)])
    every = [str(row["id"]) for row in rows(desk.call("records", {"limit": 100}), "records")]
    forward = {(a, b) for a in every for b in ids(connections(desk, a, direction="links"), "connections")}
    reverse = {(b, a) for a in every for b in ids(connections(desk, a, direction="backlinks"), "connections")}
    assert forward == reverse
    assert len(forward) > 10


def test_a_record_is_not_connected_with_itself(desk: Desk) -> None:
    write_note(desk.folder(), "a.md", page_file("a", "A", body="[[a]] [[A]]\n", dependencies=["a"]))
    assert connections(desk, "a") == {"total": 0, "connections": []}


# --- what counts ------------------------------------------------------------------------------------------------------


def with_lifecycles(desk: Desk) -> None:
    write_notes(
        desk.folder(),
        [
            ("p.md", page_file("p", "P")),
            ("c1.md", claim_file("now", "One.", entities=["p"])),
            ("c2.md", claim_file("before", "Two.", entities=["p"], lifecycle="superseded", superseded_by="now")),
            ("c3.md", claim_file("taken", "Three.", entities=["p"], lifecycle="withdrawn")),
            ("c4.md", claim_file("test", "Four.", entities=["p"], fixture=True)),
            ("c5.md", claim_file("gone", "Five.", entities=["p"], expires_at="2026-10-02")),
            ("d.md", page_file("d", "D", dependencies=["p"], lifecycle="withdrawn", body="[[p]]\n")),
            (
                "r1.md",
                relationship_file("r1", "p", "d", label="related_to", lifecycle="superseded", superseded_by="r2"),
            ),
            ("r2.md", relationship_file("r2", "p", "d", label="related_to")),
        ],
    )


def test_connections_are_current_records_by_default(desk: Desk) -> None:
    with_lifecycles(desk)
    assert pairs(connections(desk, "p")) == [("outgoing", "r2"), ("claims", "now")]


def test_historical_includes_superseded_records_never_withdrawn_ones(desk: Desk) -> None:
    with_lifecycles(desk)
    answer = connections(desk, "p", historical=True)
    assert set(pairs(answer)) == {("outgoing", "r1"), ("outgoing", "r2"), ("claims", "now"), ("claims", "before")}
    marked = {row["id"]: row.get("lifecycle") for row in rows(answer, "connections")}
    assert marked == {"r1": "superseded", "r2": None, "now": None, "before": "superseded"}


def test_a_link_to_a_withdrawn_page_is_no_connection(desk: Desk) -> None:
    with_lifecycles(desk)
    write_note(desk.folder(), "l.md", page_file("l", "L", body="[[d]] [[before]]\n"))
    assert ids(connections(desk, "l"), "connections") == []
    assert ids(connections(desk, "l", historical=True), "connections") == ["before"]


def test_a_withdrawn_record_still_shows_what_it_is_connected_with(desk: Desk) -> None:
    with_lifecycles(desk)
    write_note(desk.folder(), "l.md", page_file("l", "L", body="[[d]]\n"))
    assert pairs(connections(desk, "d")) == [("incoming", "r2"), ("links", "p"), ("backlinks", "l")]


def test_merge_redirects_are_followed_from_both_sides(desk: Desk) -> None:
    write_notes(
        desk.folder(),
        [
            ("old.md", page_file("old", "Old", lifecycle="merged", merged_into="mid")),
            ("mid.md", page_file("mid", "Mid", lifecycle="merged", merged_into="new")),
            ("new.md", page_file("new", "New")),
            ("c.md", claim_file("c", "So.", entities=["old"])),
            ("r.md", relationship_file("r", "other", "mid", label="related_to")),
            ("other.md", page_file("other", "Other", body="[[old]]\n", dependencies=["mid"])),
        ],
    )
    expected = [("incoming", "r"), ("dependents", "other"), ("claims", "c"), ("backlinks", "other")]
    assert pairs(connections(desk, "new")) == expected
    for merged in ("old", "mid"):
        answer = connections(desk, merged)
        assert pairs(answer) == expected
        assert answer["mergedInto"] == "new"
    assert pairs(connections(desk, "other", direction="links")) == [("links", "new")]


def test_a_merge_circle_is_answered_for_the_record_itself(desk: Desk) -> None:
    write_notes(
        desk.folder(),
        [
            ("x.md", page_file("x", "X", lifecycle="merged", merged_into="y")),
            ("y.md", page_file("y", "Y", lifecycle="merged", merged_into="x")),
            ("c.md", claim_file("c", "So.", entities=["x"])),
        ],
    )
    answer = connections(desk, "x")
    assert (ids(answer, "connections"), "mergedInto" in answer) == (["c"], False)


def test_a_missing_id_and_one_that_several_files_carry_are_refused(desk: Desk) -> None:
    write_notes(desk.folder(), [("a.md", page_file("twice", "A")), ("b.md", page_file("twice", "B"))])
    missing, twice = (desk.fails("connections", {"id": record_id}) for record_id in ("nobody", "twice"))
    assert isinstance(missing, NotFound)
    assert isinstance(twice, Ambiguous)
    assert missing.fields["id"] == "nobody"
    assert twice.fields["paths"] == ["a.md", "b.md"]


def test_another_partitions_records_are_no_connections(desk: Desk) -> None:
    write_note(desk.folder(), "p.md", page_file("p", "P"))
    write_note(desk.folder(GROUP_PARTITION), "c.md", claim_file("c", "So.", entities=["p"], partition=GROUP_PARTITION))
    assert connections(desk, "p")["total"] == 0
    assert isinstance(desk.fails("connections", {"id": "p"}, partition=GROUP_PARTITION), NotFound)


# --- pages ------------------------------------------------------------------------------------------------------------


def crowd(desk: Desk, claims: int, text: str = "So.") -> None:
    write_note(desk.folder(), "p.md", page_file("p", "P"))
    write_notes(desk.folder(), [(f"c/{n:03}.md", claim_file(f"c{n:03}", text, entities=["p"])) for n in range(claims)])


def every_page(desk: Desk, **arguments: JsonValue) -> list[JsonObject]:
    pages, offset = [], 0
    while True:
        page = connections(desk, "p", offset=offset, **arguments)
        pages.append(page)
        if "nextOffset" not in page:
            return pages
        assert isinstance(page["nextOffset"], int)
        assert page["nextOffset"] > offset
        offset = page["nextOffset"]


def test_connections_return_20_rows_by_default_at_most_100(desk: Desk) -> None:
    crowd(desk, 120)
    assert len(rows(connections(desk, "p"), "connections")) == 20
    assert len(rows(connections(desk, "p", limit=100), "connections")) == 100
    error = desk.fails("connections", {"id": "p", "limit": 101})
    assert isinstance(error, InvalidArgument)
    assert error.fields["field"] == "limit"


def test_the_snapshot_is_returned_while_more_pages_remain_and_on_the_last_page(desk: Desk) -> None:
    crowd(desk, 45)
    pages = every_page(desk)
    assert [len(rows(page, "connections")) for page in pages] == [20, 20, 5]
    assert len({str(page["snapshot"]) for page in pages}) == 1
    assert [page["total"] for page in pages] == [45, 45, 45]
    seen = [record_id for page in pages for record_id in ids(page, "connections")]
    assert len(seen) == len(set(seen)) == 45
    assert [pages[n].get("nextOffset") for n in range(3)] == [20, 40, None]


def test_a_snapshot_that_is_sent_back_after_a_change_is_refused(desk: Desk) -> None:
    crowd(desk, 25)
    snapshot = connections(desk, "p")["snapshot"]
    assert len(rows(connections(desk, "p", offset=20, snapshot=snapshot), "connections")) == 5
    desk.remember("Another.")
    assert isinstance(desk.fails("connections", {"id": "p", "offset": 20, "snapshot": snapshot}), SnapshotChanged)


def test_a_response_stays_within_24_kib(desk: Desk) -> None:
    crowd(desk, 30, "é" * 3_900)
    pages = every_page(desk, limit=100)
    assert len(pages) > 5
    assert all(json_bytes(page) <= 24 * 1024 for page in pages)
    assert sum(len(rows(page, "connections")) for page in pages) == 30


def test_one_row_that_is_larger_than_a_response_is_shortened_and_says_so(desk: Desk) -> None:
    names = [f"page-{n}" for n in range(100)]
    write_notes(desk.folder(), [(f"p/{name}.md", page_file(name, f"{name} " + "界" * 190)) for name in names])
    write_note(desk.folder(), "c.md", claim_file("c", "文" * 4_000, entities=list(names)))
    answer = connections(desk, "page-7")
    assert json_bytes(answer) <= 24 * 1024
    [row] = rows(answer, "connections")
    assert row["omitted"] == ["pages"]
    assert row["text"] == "文" * 4_000
    assert len(rows(row, "pages")) in range(1, 100)


# --- cost -------------------------------------------------------------------------------------------------------------


def test_the_cost_is_bounded_by_the_connections_of_the_record_never_a_scan(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each table is searched by an index; what is walked through is what another search gave."""
    neighbourhood(desk)
    catalogue = desk.partition().catalogue
    entry = catalogue.one("alex")
    assert entry is not None
    filters = stored.ConnectionFilters(directions=DIRECTIONS, historical=True, now_ms=desk.now_ms)
    statements: list[str] = []
    query = type(catalogue.database).query

    def noting(self: object, sql: str, parameters: object = ()) -> list[tuple[object, ...]]:
        statements.append(sql)
        plan = query(catalogue.database, f"EXPLAIN QUERY PLAN {sql}", parameters)  # type: ignore[arg-type]
        steps = [str(step[3]) for step in plan]
        walked = [step for step in steps if step.startswith("SCAN")]
        assert [step for step in walked if step.split()[1] not in ("c", "j", "json_each")] == [], steps
        return query(catalogue.database, sql, parameters)  # type: ignore[arg-type]

    monkeypatch.setattr(type(catalogue.database), "query", noting)
    assert stored.connections(catalogue, entry, ("alex",), (1, 2), (3,), filters)
    assert len(statements) == 1
    stored.linking_statements(catalogue, entry, ("alex",))


def test_a_read_of_connections_writes_nothing(desk: Desk) -> None:
    neighbourhood(desk)
    connections(desk, "alex")
    passed: list[str] = []
    with faults.installed(passed.append):
        connections(desk, "alex")
    assert [point for point in passed if "commit" in point or "write" in point] == []

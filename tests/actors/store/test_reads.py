"""knowledge_record, knowledge_lookup, knowledge_records, knowledge_status and knowledge_ontology without a thread."""

from __future__ import annotations

import json

import pytest

from messages.errors import InvalidArgument, LimitExceeded, SnapshotChanged
from messages.json_types import JsonObject, JsonValue
from messages.text import utf16_length
from messages.tools import GitState, json_bytes
from messages.vocabulary import PRIVATE
from storage.vault import ScanLimits
from tests.kit.store import (
    GROUP_PARTITION,
    VAULT_ID,
    Desk,
    claim_file,
    items_of,
    page_file,
    record_file,
    remembering,
    request_id,
    write_note,
    write_notes,
)


def compact(value: JsonValue) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def rows(answer: JsonObject, key: str = "hits") -> list[JsonObject]:
    found = answer[key]
    assert isinstance(found, list)
    return [row for row in found if isinstance(row, dict)]


def ids(answer: JsonObject, key: str = "hits") -> list[JsonValue]:
    return [row["id"] for row in rows(answer, key)]


def relationship_file(record_id: str, source: str, target: str, **keys: JsonValue) -> str:
    given: JsonObject = {
        "from": source,
        "to": target,
        "label": "works_at",
        "assertion_origin": "source",
        "attribution": "somebody",
        "evidence": [{"path": f"artifacts/{request_id(900)}/excerpt.txt", "sha256": "0" * 64}],
    }
    return record_file(
        "relationship", record_id, "works at", "", PRIVATE, "2026-10-01T10:00:00.000Z", {**given, **keys}
    )


# --- one record -------------------------------------------------------------------------------------------------------


def test_a_missing_or_duplicate_id_reads_as_null(desk: Desk) -> None:
    write_notes(desk.folder(), [("a.md", page_file("twice", "A")), ("b.md", page_file("twice", "B"))])
    for record_id in ("nobody", "twice"):
        assert desk.call("record", {"id": record_id}) == {"record": None}


def test_a_page_shows_identity_title_type_collections_fields_and_body(desk: Desk) -> None:
    claim = items_of(desk.remember("One."))[0]["id"]
    answer = desk.page("A", body="Text.", aliases=["B"], tags=["t"], dependencies=[claim], fields={"status": "active"})
    assert desk.record(answer["id"]) == {
        "id": answer["id"],
        "revision": 1,
        "hash": answer["hash"],
        "kind": "page",
        "title": "A",
        "type": "project",
        "aliases": ["B"],
        "tags": ["t"],
        "dependencies": [claim],
        "fields": {"status": "active"},
        "body": "Text.\n",
    }


def test_a_claim_shows_kind_dates_owner_pages_source_attribution_hint_and_text(desk: Desk) -> None:
    write_notes(
        desk.folder(),
        [
            ("people/p.md", page_file("alex", "Alex Morgan", type="person")),
            ("projects/g.md", page_file("garden", "Garden Pilot")),
            (
                "claims/c.md",
                claim_file(
                    "c1",
                    "We ship on Friday.",
                    claim_kind="commitment",
                    assertion_origin="user_belief",
                    owner="alex",
                    entities=["garden"],
                    occurred_at="2026-09-20",
                    due_at="2026-09-25",
                    source_page="garden",
                    subject_hint="release",
                    expires_at="2027-01-01",
                ),
            ),
        ],
    )
    found = desk.record("c1")
    assert len(str(found.pop("hash"))) == 64
    assert found == {
        "id": "c1",
        "revision": 1,
        "kind": "claim",
        "claimKind": "commitment",
        "assertionOrigin": "user_belief",
        "occurredAt": "2026-09-20",
        "dueAt": "2026-09-25",
        "expiresAt": "2027-01-01",
        "owner": {"id": "alex", "title": "Alex Morgan"},
        "attribution": "somebody, some time",
        "subjectHint": "release",
        "sourcePage": "garden",
        "pages": [{"id": "garden", "title": "Garden Pilot"}],
        "text": "We ship on Friday.",
    }


def test_an_expired_claim_is_read_by_its_id(desk: Desk) -> None:
    write_note(desk.folder(), "claims/c.md", claim_file("c1", "It was so.", expires_at="2026-10-02"))
    assert desk.record("c1")["text"] == "It was so."
    assert ids(desk.call("records"), "records") == []


def test_lifecycle_supersession_and_merge_redirects_are_shown_when_present(desk: Desk) -> None:
    write_notes(
        desk.folder(),
        [
            ("a.md", page_file("old", "Old", lifecycle="merged", merged_into="new")),
            ("b.md", page_file("new", "New")),
            ("c.md", claim_file("c1", "Was.", lifecycle="superseded", superseded_by="c2")),
            ("d.md", claim_file("c2", "Is.", supersedes="c1")),
        ],
    )
    assert (desk.record("old")["lifecycle"], desk.record("old")["mergedInto"]) == ("merged", "new")
    assert (desk.record("c1")["lifecycle"], desk.record("c1")["supersededBy"]) == ("superseded", "c2")
    assert desk.record("c2")["supersedes"] == "c1"
    assert "lifecycle" not in desk.record("c2")


def test_a_claim_about_a_merged_page_names_the_page_it_was_merged_into(desk: Desk) -> None:
    write_notes(
        desk.folder(),
        [
            ("a.md", page_file("old", "Old", lifecycle="merged", merged_into="new")),
            ("b.md", page_file("new", "New")),
            ("c.md", claim_file("c1", "So.", entities=["old", "new"])),
        ],
    )
    assert desk.record("c1")["pages"] == [{"id": "new", "title": "New"}]


def test_validation_issues_are_shown_on_the_record_that_has_them(desk: Desk) -> None:
    write_notes(
        desk.folder(),
        [
            ("a.md", page_file("bad", "Bad", fields={"status": "lost", "lead": "nobody"})),
            ("b.md", claim_file("c1", "So.", entities=["nobody"])),
        ],
    )
    issues = desk.record("bad")["issues"]
    assert isinstance(issues, list)
    assert {issue["field"] for issue in issues if isinstance(issue, dict)} == {"fields.status", "fields.lead"}
    assert desk.record("c1")["issues"] == [
        {"code": "reference_missing", "field": "entities[0]", "message": "names no existing page"}
    ]


def test_every_page_that_a_claim_names_and_that_is_not_there_is_an_issue(desk: Desk) -> None:
    claim = claim_file("c", "It opens.", entities=["p", "gone"], owner="gone", source_page="w")
    withdrawn = page_file("w", "Was", lifecycle="withdrawn")
    write_notes(desk.folder(), [("c.md", claim), ("p.md", page_file("p", "Port")), ("w.md", withdrawn)])
    issues = desk.record("c")["issues"]
    assert isinstance(issues, list)
    named = [(issue["code"], issue["field"]) for issue in issues if isinstance(issue, dict)]
    assert named == [("reference_missing", field) for field in ("entities[1]", "owner", "source_page")]
    write_note(desk.folder(), "c.md", claim_file("c", "It opens.", entities=["p"], owner="p", source_page="p"))
    assert "issues" not in desk.record("c")


@pytest.mark.parametrize("max_chars", [1_000, 2_345, 12_000, 48_000])
@pytest.mark.parametrize("text", ["plain words ", 'quotes " and \\ and \n', "🙂", "\x01"])
def test_windows_join_to_the_whole_text_and_none_is_larger_than_max_chars(
    desk: Desk, text: str, max_chars: int
) -> None:
    body = (text * 9_000)[: 9_000 if text != "🙂" else 4_500]
    page = desk.page("A", body=body, tags=[f"tag {n}" for n in range(10)])["id"]
    pieces: list[str] = []
    offset: JsonValue = 0
    while offset is not None:
        answer = desk.call("record", {"id": page, "offset": offset, "maxChars": max_chars})
        assert utf16_length(compact(answer)) <= max_chars
        assert isinstance(answer["record"], dict)
        assert answer["record"]["tags"] == [f"tag {n}" for n in range(10)]
        pieces.append(str(answer["record"]["body"]))
        offset = answer.get("nextOffset")
    assert "".join(pieces) == body.removesuffix("\n") + "\n"


def test_identity_and_metadata_are_never_cut_even_where_they_fill_the_response(desk: Desk) -> None:
    aliases = [f"{n} " + "x" * 150 for n in range(20)]
    page = desk.page("A", body="some text " * 100, aliases=aliases)["id"]
    answer = desk.call("record", {"id": page, "maxChars": 1_000})
    assert isinstance(answer["record"], dict)
    assert answer["record"]["aliases"] == aliases
    assert isinstance(answer["nextOffset"], int)
    assert answer["nextOffset"] > 0


def test_an_offset_inside_a_surrogate_pair_or_beyond_the_text_is_refused(desk: Desk) -> None:
    page = desk.page("A", body="a🙂b")["id"]
    assert desk.call("record", {"id": page, "offset": 3})["record"] is not None
    for offset, reason in ((2, "inside_pair"), (6, "out_of_range")):
        error = desk.fails("record", {"id": page, "offset": offset})
        assert isinstance(error, InvalidArgument)
        assert (error.fields["field"], error.fields["reason"]) == ("offset", reason)


def test_evidence_comes_with_locators_and_verified_excerpts_of_4_000_characters_in_all(desk: Desk) -> None:
    excerpts = ["a" * 3_000, "b" * 3_000, "c" * 3_000]
    claims = [
        items_of(desk.call("remember", {**remembering(f"Fact {n}."), "excerpt": text}))[0]["id"]
        for n, text in enumerate(excerpts)
    ]
    citations = [
        {k: v for k, v in rows(desk.record(claim, includeEvidence=True), "evidence")[0].items() if k != "excerpt"}
        for claim in claims
    ]
    page = desk.page("A", attachments=[*citations])["id"]
    answer = desk.call("record", {"id": page, "includeEvidence": True, "maxChars": 48_000})
    assert isinstance(answer["record"], dict)
    shown = rows(answer["record"], "evidence")
    assert [len(str(item.get("excerpt", ""))) for item in shown] == [3_000, 1_000, 0]
    assert answer["omitted"] == ["evidence[2].excerpt"]
    small = desk.call("record", {"id": page, "includeEvidence": True, "maxChars": 2_500})
    assert isinstance(small["record"], dict)
    assert all("excerpt" not in item for item in rows(small["record"], "evidence"))
    assert small["omitted"] == [f"evidence[{n}].excerpt" for n in range(3)]
    assert "body" in small["record"]


def test_a_citation_that_no_longer_holds_comes_without_an_excerpt(desk: Desk) -> None:
    claim = items_of(desk.call("remember", {**remembering("One."), "requestId": request_id(5)}))[0]["id"]
    (desk.folder() / "artifacts" / request_id(5) / "excerpt.txt").write_text("tampered", "utf-8")
    [citation] = rows(desk.record(claim, includeEvidence=True), "evidence")
    assert "excerpt" not in citation
    assert citation["path"] == f"artifacts/{request_id(5)}/excerpt.txt"


def test_citations_continue_20_at_a_time(desk: Desk) -> None:
    evidence: list[JsonValue] = [
        {"path": f"artifacts/{request_id(900)}/excerpt.txt", "sha256": "0" * 64, "start_line": n} for n in range(1, 46)
    ]
    write_note(desk.folder(), "claims/c.md", claim_file("c1", "So.", evidence=evidence))
    seen: list[JsonValue] = []
    offset: JsonValue = 0
    sizes = []
    while offset is not None:
        answer = desk.call(
            "record", {"id": "c1", "includeEvidence": True, "evidenceOffset": offset, "maxChars": 48_000}
        )
        assert isinstance(answer["record"], dict)
        found = rows(answer["record"], "evidence")
        sizes.append(len(found))
        seen += [item["start_line"] for item in found]
        offset = answer.get("nextEvidenceOffset")
    assert sizes == [20, 20, 5]
    assert seen == list(range(1, 46))


def test_a_body_by_hand_beyond_the_argument_limit_is_still_read_in_windows(desk: Desk) -> None:
    body = "0123456789" * 20_000
    write_note(desk.folder(), "a.md", page_file("long", "Long", body=body))
    last = desk.call("record", {"id": "long", "offset": 199_995})
    assert isinstance(last["record"], dict)
    assert last["record"]["body"] == "56789"


# --- lookup -----------------------------------------------------------------------------------------------------------


def test_lookup_finds_by_id_full_title_and_alias_under_normalisation(desk: Desk) -> None:
    page = desk.page("Garden  Pilot", aliases=["Straße", "ﬁrst"])["id"]
    for query in (page, "garden pilot", " GARDEN PILOT ", "STRASSE", "first"):
        answer = desk.call("lookup", {"query": query})
        assert (answer["state"], ids(answer)) == ("found", [page])
    for query in ("garden", "pilot", "strass"):
        assert desk.call("lookup", {"query": query}) == {"state": "missing", "total": 0, "hits": []}


def test_lookup_rows_have_the_short_hash_and_no_snippet(desk: Desk) -> None:
    answer = desk.page("Garden Pilot")
    assert rows(desk.call("lookup", {"query": "Garden Pilot"})) == [
        {
            "id": answer["id"],
            "revision": 1,
            "hash": str(answer["hash"])[:16],
            "kind": "page",
            "title": "Garden Pilot",
            "type": "project",
        }
    ]


def test_an_id_wins_over_titles_and_ids_are_case_sensitive(desk: Desk) -> None:
    write_notes(desk.folder(), [("a.md", page_file("Mercury", "Planet")), ("b.md", page_file("m2", "Mercury"))])
    assert ids(desk.call("lookup", {"query": "Mercury"})) == ["Mercury"]
    assert ids(desk.call("lookup", {"query": "mercury"})) == ["m2"]


def test_an_id_of_a_record_that_is_not_asked_for_hides_no_page_of_that_name(desk: Desk) -> None:
    hiding: dict[str, list[tuple[str, str]]] = {
        "a withdrawn page": [("h.md", page_file("Mercury", "Was", lifecycle="withdrawn"))],
        "a fixture": [("h.md", page_file("Mercury", "Was", fixture=True))],
        "a merge that leads nowhere": [("h.md", page_file("Mercury", "Was", lifecycle="merged", merged_into="gone"))],
        "two files": [("h.md", page_file("Mercury", "One")), ("i.md", page_file("Mercury", "Two"))],
    }
    write_note(desk.folder(), "c.md", claim_file("c", "It orbits.", entities=["m2"]))
    write_note(desk.folder(), "p.md", page_file("m2", "Mercury"))
    for how, notes in hiding.items():
        write_notes(desk.folder(), notes)
        answer = desk.call("lookup", {"query": "Mercury"})
        assert (answer["state"], ids(answer)) == ("found", ["m2"]), how
        for path, _ in notes:
            (desk.folder() / path).unlink()
    write_note(desk.folder(), "h.md", claim_file("Mercury", "A claim with a name for its id."))
    assert ids(desk.call("lookup", {"query": "Mercury"})) == ["Mercury"]
    assert ids(desk.call("lookup", {"query": "Mercury", "kind": "page"})) == ["m2"]
    assert [row["id"] for row in rows(desk.call("timeline", {"subject": "Mercury"}), "entries")] == ["c"]


def test_an_id_that_two_files_bear_identifies_nothing(desk: Desk) -> None:
    write_notes(desk.folder(), [("a.md", page_file("twice", "A")), ("b.md", page_file("twice", "B"))])
    assert desk.call("lookup", {"query": "twice"})["state"] == "missing"


def test_several_pages_of_a_name_are_ambiguous_and_all_are_listed(desk: Desk) -> None:
    write_notes(
        desk.folder(),
        [
            ("a.md", page_file("m1", "Mercury")),
            ("b.md", page_file("m2", "Planet", aliases=["mercury"])),
            ("c.md", page_file("m3", "Mercury", type="company")),
        ],
    )
    answer = desk.call("lookup", {"query": "Mercury"})
    assert (answer["state"], answer["total"], ids(answer)) == ("ambiguous", 3, ["m1", "m2", "m3"])
    assert ids(desk.call("lookup", {"query": "Mercury", "type": "company"})) == ["m3"]
    first = desk.call("lookup", {"query": "Mercury", "limit": 2})
    assert (first["state"], ids(first), first["nextOffset"]) == ("ambiguous", ["m1", "m2"], 2)
    second = desk.call("lookup", {"query": "Mercury", "limit": 2, "offset": 2})
    assert (second["state"], ids(second), "nextOffset" in second) == ("ambiguous", ["m3"], False)


def test_a_merged_page_stands_for_the_page_it_was_merged_into_once(desk: Desk) -> None:
    chain = [
        (f"{n}.md", page_file(f"p{n}", f"Name {n}", aliases=["Mercury"], lifecycle="merged", merged_into=f"p{n + 1}"))
        for n in range(16)
    ]
    write_notes(desk.folder(), [*chain, ("last.md", page_file("p16", "Last", aliases=["Mercury"]))])
    for query in ("p0", "Name 0", "Mercury", "Last"):
        answer = desk.call("lookup", {"query": query})
        assert (answer["state"], ids(answer)) == ("found", ["p16"])


def test_a_chain_of_more_than_16_merges_or_a_circle_leads_nowhere(desk: Desk) -> None:
    chain = [
        (f"{n}.md", page_file(f"p{n}", f"Name {n}", lifecycle="merged", merged_into=f"p{n + 1}")) for n in range(17)
    ]
    write_notes(
        desk.folder(),
        [
            *chain,
            ("last.md", page_file("p17", "Last")),
            ("x.md", page_file("x", "X", lifecycle="merged", merged_into="y")),
            ("y.md", page_file("y", "Y", lifecycle="merged", merged_into="x")),
        ],
    )
    assert desk.call("lookup", {"query": "Name 0"})["state"] == "missing"
    assert ids(desk.call("lookup", {"query": "Name 1"})) == ["p17"]
    assert desk.call("lookup", {"query": "X"})["state"] == "missing"


@pytest.mark.parametrize(
    ("lifecycle", "expected"), [("active", ["a"]), ("superseded", ["s"]), ("all", ["a", "s"]), (None, ["a"])]
)
def test_lookup_lists_active_records_unless_asked_for_others_and_withdrawn_ones_never(
    desk: Desk, lifecycle: str | None, expected: list[str]
) -> None:
    write_notes(
        desk.folder(),
        [
            ("a.md", page_file("a", "Mercury")),
            ("s.md", page_file("s", "Mercury", lifecycle="superseded", superseded_by="a")),
            ("w.md", page_file("w", "Mercury", lifecycle="withdrawn")),
            ("f.md", page_file("f", "Mercury", fixture=True)),
            ("i.md", page_file("i", "Mercury", type="spaceship")),
        ],
    )
    assert ids(desk.call("lookup", {"query": "Mercury", "lifecycle": lifecycle})) == expected


def test_lookup_filters_by_kind_type_alias_and_tag(desk: Desk) -> None:
    write_notes(
        desk.folder(),
        [
            ("a.md", page_file("a", "Mercury", tags=["space"])),
            ("b.md", page_file("b", "Mercury", type="company")),
            ("c.md", claim_file("c1", "So.")),
        ],
    )
    for filters, expected in (
        ({"tag": "space"}, ["a"]),
        ({"tag": "Space"}, []),
        ({"type": "initiative"}, ["a"]),
        ({"type": "spaceship"}, []),
        ({"kind": "claim"}, []),
    ):
        assert ids(desk.call("lookup", {"query": "Mercury", **filters})) == expected
    assert ids(desk.call("lookup", {"query": "c1", "kind": "claim"})) == ["c1"]
    assert ids(desk.call("lookup", {"query": "c1", "kind": "page"})) == []


# --- the inventory ----------------------------------------------------------------------------------------------------


def inventory(desk: Desk) -> None:
    write_notes(
        desk.folder(),
        [
            (
                "people/a.md",
                page_file(
                    "alex", "Alex Morgan", type="person", aliases=["Lex"], recorded_at="2026-01-01T00:00:00.000Z"
                ),
            ),
            ("projects/g.md", page_file("garden", "Garden Pilot", recorded_at="2026-02-01T00:00:00.000Z")),
            (
                "c1.md",
                claim_file(
                    "c1",
                    "First fact.",
                    recorded_at="2026-03-01T00:00:00.000Z",
                    occurred_at="2026-09-20",
                    entities=["garden"],
                    source_page="garden",
                ),
            ),
            (
                "c2.md",
                claim_file(
                    "c2",
                    "Second fact.",
                    recorded_at="2026-04-01T00:00:00.000Z",
                    due_at="2026-10",
                    assertion_origin="user_belief",
                ),
            ),
            ("r1.md", relationship_file("r1", "alex", "garden", label="related_to")),
            ("s.md", claim_file("s", "Old fact.", lifecycle="superseded", superseded_by="c1")),
            ("w.md", claim_file("w", "Withdrawn fact.", lifecycle="withdrawn")),
            ("x.md", claim_file("x", "Expired fact.", expires_at="2026-06-01")),
            ("b.md", page_file("bad", "Bad", type="spaceship")),
            ("f.md", page_file("fix", "Fixture", fixture=True)),
        ],
    )


@pytest.mark.parametrize(
    ("filters", "expected"),
    [
        ({}, ["alex", "garden", "c1", "c2", "r1"]),
        ({"kind": "page"}, ["alex", "garden"]),
        ({"kind": "claim"}, ["c1", "c2"]),
        ({"kind": "relationship"}, ["r1"]),
        ({"type": "contact"}, ["alex"]),
        ({"type": "related_to"}, ["r1"]),
        ({"match": "LEX"}, ["alex"]),
        ({"match": "arden p"}, ["garden"]),
        ({"match": "c1"}, ["c1"]),
        ({"match": "second f"}, ["c2"]),
        ({"match": "%"}, []),
        ({"origin": "user_belief"}, ["c2"]),
        ({"origin": "source"}, ["c1", "r1"]),
        ({"since": "2026-09-20", "until": "2026-09-21"}, ["c1"]),
        ({"since": "2026-03", "until": "2026-04", "timeField": "recorded"}, ["c1"]),
        ({"until": "2026-09-20", "timeField": "occurred"}, []),
        ({"since": "2026-10-31", "timeField": "due"}, ["c2"]),
        ({"since": "2026-11-01", "timeField": "due"}, []),
        ({"lifecycle": "superseded"}, ["s"]),
    ],
)
def test_the_inventory_lists_every_current_eligible_record_that_passes(
    desk: Desk, filters: JsonObject, expected: list[str]
) -> None:
    inventory(desk)
    answer = desk.call("records", filters)
    assert ids(answer, "records") == expected
    assert answer["total"] == len(expected)


def test_lifecycle_all_lists_historical_and_invalid_records_too(desk: Desk) -> None:
    inventory(desk)
    assert set(ids(desk.call("records", {"lifecycle": "all"}), "records")) == {
        "alex",
        "garden",
        "c1",
        "c2",
        "r1",
        "s",
        "w",
        "x",
        "bad",
        "fix",
    }


def test_claim_rows_have_kind_day_text_pages_and_source_and_hide_what_is_ordinary(desk: Desk) -> None:
    inventory(desk)
    listed = {str(row["id"]): row for row in rows(desk.call("records", {"lifecycle": "all"}), "records")}
    assert listed["c1"] == {
        "id": "c1",
        "revision": 1,
        "hash": listed["c1"]["hash"],
        "kind": "claim",
        "claimKind": "fact",
        "day": "2026-09-20",
        "pages": [{"id": "garden", "title": "Garden Pilot"}],
        "sourcePage": "garden",
        "text": "First fact.",
    }
    assert (listed["c2"]["assertionOrigin"], listed["c2"]["day"]) == ("user_belief", "2026-04-01")
    assert listed["w"]["lifecycle"] == "withdrawn"
    assert (listed["r1"]["from"], listed["r1"]["label"], listed["r1"]["to"]) == ("alex", "related_to", "garden")


def test_html_comments_are_left_out_of_a_claim_row_and_long_text_is_marked_truncated(desk: Desk) -> None:
    write_notes(
        desk.folder(),
        [
            ("a.md", claim_file("c1", "Seen <!-- not --> text.")),
            ("b.md", claim_file("c2", "x" * 3_999 + "🙂", recorded_at="2026-10-02T10:00:00.000Z")),
        ],
    )
    first, second = rows(desk.call("records"), "records")
    assert first["text"] == "Seen  text."
    assert "truncated" not in first
    assert (second["truncated"], second["text"]) == (True, "x" * 3_999)


def test_what_looks_like_a_comment_inside_code_stays_in_a_claim_row(desk: Desk) -> None:
    text = "Cut the excerpt with `<!-- more -->` <!-- said twice --> in the post."
    saved = items_of(desk.remember(text))[0]["id"]
    [row] = rows(desk.call("records", {"kind": "claim"}), "records")
    assert row["text"] == "Cut the excerpt with `<!-- more -->`  in the post."
    assert desk.record(saved)["text"] == text


def test_pages_of_the_inventory_join_to_all_records_and_stay_within_24_kib(desk: Desk) -> None:
    write_notes(
        desk.folder(),
        [
            (
                f"{n}.md",
                claim_file(
                    f"c{n:03}", f"{n} " + "word " * 200, recorded_at=f"2026-10-01T10:{n // 60:02}:{n % 60:02}.000Z"
                ),
            )
            for n in range(70)
        ],
    )
    seen: list[JsonValue] = []
    arguments: JsonObject = {"limit": 50}
    snapshots = set()
    while True:
        answer = desk.call("records", arguments)
        assert json_bytes(answer) <= 24 * 1024
        assert answer["total"] == 70
        snapshots.add(answer["snapshot"])
        seen += ids(answer, "records")
        if "nextOffset" not in answer:
            break
        arguments = {"limit": 50, "offset": answer["nextOffset"], "snapshot": answer["snapshot"]}
    assert seen == [f"c{n:03}" for n in range(70)]
    assert len(snapshots) == 1


def test_a_snapshot_that_is_sent_back_after_a_change_is_refused(desk: Desk) -> None:
    desk.remember("One.", "Two.")
    first = desk.call("records", {"limit": 1})
    desk.remember("Three.")
    error = desk.fails("records", {"limit": 1, "offset": 1, "snapshot": first["snapshot"]})
    assert isinstance(error, SnapshotChanged)
    assert error.fields["snapshot"] != first["snapshot"]
    desk.call("records", {"limit": 1, "offset": 1, "snapshot": error.fields["snapshot"]})


def test_next_offset_appears_only_while_another_page_remains_and_the_snapshot_only_when_paging(desk: Desk) -> None:
    desk.remember("One.", "Two.")
    assert set(desk.call("records")) == {"total", "records"}
    assert set(desk.call("records", {"limit": 1})) == {"total", "nextOffset", "snapshot", "records"}
    assert set(desk.call("records", {"limit": 1, "offset": 1})) == {"total", "snapshot", "records"}


# --- status -----------------------------------------------------------------------------------------------------------


def test_status_says_where_the_caller_is_and_how_it_is(desk: Desk) -> None:
    desk.page("A")
    desk.remember("One.", "Two.")
    write_note(desk.folder(), "w.md", claim_file("w", "Withdrawn.", lifecycle="withdrawn"))
    answer = desk.call("status")
    assert answer == {
        "vaultId": VAULT_ID,
        "partition": "private",
        "writesEnabled": True,
        "live": "watching",
        "ontologyFingerprint": desk.call("ontology")["fingerprint"],
        "counts": {"page": {"active": 1}, "claim": {"active": 2, "withdrawn": 1}},
        "publications": {"pending": 0, "conflict": 0},
        "git": {"state": "current", "pending": 0},
        "index": {"state": "current"},
    }


def test_status_of_a_conversation_counts_its_own_records_only(desk: Desk) -> None:
    desk.remember("Private.")
    desk.remember("One.", "Two.", partition=GROUP_PARTITION)
    answer = desk.call("status", partition=GROUP_PARTITION)
    assert (answer["partition"], answer["counts"]) == ("conversation", {"claim": {"active": 2}})


def test_status_shows_that_writes_are_off_and_what_git_says(desk: Desk) -> None:
    desk.writes_enabled = False
    desk.git = GitState("unavailable", 3, "Git is not installed.")
    answer = desk.call("status")
    assert answer["writesEnabled"] is False
    assert answer["git"] == {"state": "unavailable", "pending": 3, "message": "Git is not installed."}


def test_status_warns_at_80_percent_of_the_scan_limit(desk: Desk) -> None:
    desk.limits = ScanLimits(entries=20)
    write_notes(desk.folder(), [(f"n{n}.md", claim_file(f"c{n}", f"Fact {n}.")) for n in range(15)])
    assert "warnings" not in desk.call("status")
    write_note(desk.folder(), "n15.md", claim_file("c15", "Fact 15."))
    desk.close()
    [warning] = rows_of_text(desk.call("status")["warnings"])
    assert "limits.scanEntries" in warning


def rows_of_text(value: JsonValue) -> list[str]:
    assert isinstance(value, list)
    return [str(item) for item in value]


# --- ontology ---------------------------------------------------------------------------------------------------------

EXTENSION = """\
format: knowledge-ontology-v1
extends: core
pages:
  boat:
    description: Floats
    parent: entity
    aliases: [vessel]
    folder: boats
    prefixes: [boats/]
    fields:
      length: {type: number}
"""


def test_an_extension_takes_effect_with_the_next_query_in_the_private_partition_only(desk: Desk) -> None:
    before = desk.call("ontology")
    desk.fails("save_page", {"title": "A", "type": "boat", "body": ""})
    write_note(desk.folder(), "ontology.yaml", EXTENSION)
    after = desk.call("ontology")
    assert after["fingerprint"] != before["fingerprint"]
    desk.page("Tidepool", type="vessel", fields={"length": 12.5})
    assert desk.path_of(str(ids(desk.call("lookup", {"query": "Tidepool"}))[0])).parent.name == "boats"
    assert desk.call("ontology", partition=GROUP_PARTITION)["fingerprint"] == before["fingerprint"]
    (desk.folder() / "ontology.yaml").unlink()
    assert desk.call("ontology")["fingerprint"] == before["fingerprint"]


def test_a_broken_extension_is_not_activated_and_diagnostics_say_why(desk: Desk) -> None:
    before = desk.call("ontology")["fingerprint"]
    write_note(desk.folder(), "ontology.yaml", EXTENSION.replace("parent: entity", "parent: nothing"))
    assert desk.call("ontology")["fingerprint"] == before
    answer = desk.call("ontology", {"view": "diagnostics"})
    assert "boat" in compact(answer)


def test_pages_are_judged_again_when_the_ontology_changes(desk: Desk) -> None:
    write_note(desk.folder(), "boats/t.md", page_file("t", "Tidepool", type="boat"))
    assert desk.call("lookup", {"query": "Tidepool"})["state"] == "missing"
    write_note(desk.folder(), "ontology.yaml", EXTENSION)
    assert desk.call("lookup", {"query": "Tidepool"})["state"] == "found"
    write_note(desk.folder(), "ontology.yaml", EXTENSION.replace("boat:", "ship:"))
    assert desk.call("lookup", {"query": "Tidepool"})["state"] == "missing"


def test_an_untyped_page_is_classified_by_its_folder_and_never_rewritten(desk: Desk) -> None:
    path = write_note(desk.folder(), "people/a.md", page_file("a", "Alex", type=None))
    before = path.read_bytes()
    assert desk.record("a")["type"] == "person"
    assert ids(desk.call("lookup", {"query": "Alex", "type": "person"})) == ["a"]
    assert path.read_bytes() == before


def test_definitions_show_up_to_20_records_of_the_type_and_say_when_there_are_more(desk: Desk) -> None:
    write_notes(desk.folder(), [(f"p{n}.md", page_file(f"p{n:02}", f"Page {n}")) for n in range(21)])
    answer = desk.call("ontology", {"view": "definitions", "name": "project", "includeRecords": True})
    [definition] = [row for key in answer for row in (answer[key] if isinstance(answer[key], list) else [])]  # type: ignore[union-attr]  # the check before it
    assert isinstance(definition, dict)
    assert len(rows(definition, "records")) == 20
    assert definition["recordsTruncated"] is True
    assert "records" not in compact(desk.call("ontology", {"view": "definitions", "name": "project"}))


def test_the_text_of_the_extension_is_read_in_windows_that_respect_surrogate_pairs(desk: Desk) -> None:
    text = EXTENSION + "# " + "🙂" * 400 + "\n"
    write_note(desk.folder(), "ontology.yaml", text)
    listed = desk.call("ontology", {"view": "sources"})
    assert "ontology.yaml" in compact(listed)
    pieces, offset = [], 0
    while True:
        answer = desk.call(
            "ontology", {"view": "sources", "sourcePath": "ontology.yaml", "offset": offset, "maxChars": 257}
        )
        [piece] = [value for value in answer.values() if isinstance(value, str) and value and value in text]
        assert utf16_length(piece) <= 257
        pieces.append(piece)
        if "nextOffset" not in answer:
            break
        assert isinstance(answer["nextOffset"], int)
        offset = answer["nextOffset"]
    assert "".join(pieces) == text
    error = desk.fails(
        "ontology", {"view": "sources", "sourcePath": "ontology.yaml", "offset": utf16_length(EXTENSION) + 3}
    )
    assert isinstance(error, InvalidArgument)


def test_a_query_of_more_than_200_characters_is_refused(desk: Desk) -> None:
    assert isinstance(desk.fails("lookup", {"query": "x" * 201}), LimitExceeded)

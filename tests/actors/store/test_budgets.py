"""Page budgets: tools.md, Page budgets, sentence by sentence, on a real store."""

from __future__ import annotations

import pytest

from messages.errors import NotFound
from messages.json_types import JsonObject, JsonValue
from messages.vocabulary import PRIVATE
from tests.kit.store import Desk, claim_file, page_file, record_file, request_id, write_note, write_notes

HUB = "hub-page"
_NEXT = iter(range(8_000_000, 9_000_000))


def surroundings(desk: Desk, *, pages: int = 20, linking: int = 10, hub_body: str = "The hub.\n") -> None:
    """A partition of ``pages`` current pages, of which one is linked to by ``linking`` others."""
    notes = [("people/hub.md", page_file(HUB, "The Hub", body=hub_body))]
    for number in range(pages - 1):
        body = f"See [[{HUB}]].\n" if number < linking else "Alone.\n"
        notes.append((f"people/p{number}.md", page_file(f"p{number}", f"Page number {number}", body=body)))
    write_notes(desk.folder(), notes)


def save(desk: Desk, page_id: str, body: str, **more: JsonValue) -> JsonObject:
    found = desk.record(page_id)
    return desk.call(
        "save_page",
        {
            "id": page_id,
            "expectedRevision": found["revision"],
            "expectedHash": found["hash"],
            "title": found["title"],
            "type": "project",
            "body": body,
            **more,
        },
    )


def insert(desk: Desk, page_id: str, text: str, at: int = 0, end: int | None = None) -> JsonObject:
    found, status = desk.record(page_id), desk.call("status")
    return desk.call(
        "edit_body",
        {
            "requestId": request_id(next(_NEXT)),
            "id": page_id,
            "expectedRevision": found["revision"],
            "expectedHash": found["hash"],
            "expectedVaultId": status["vaultId"],
            "expectedOntologyFingerprint": status["ontologyFingerprint"],
            "start": at,
            "end": at if end is None else end,
            "replacement": text,
            "reason": "a test",
        },
    )


def page_of(rejection: JsonObject, index: int = 0) -> JsonObject:
    budget = rejection["budget"]
    assert isinstance(budget, dict)
    pages = budget["pages"]
    assert isinstance(pages, list)
    found = pages[index]
    assert isinstance(found, dict)
    return found


def sections_of(rejection: JsonObject) -> list[JsonObject]:
    found = page_of(rejection)["sections"]
    assert isinstance(found, list)
    return [one for one in found if isinstance(one, dict)]


def budget_of(rejection: JsonObject) -> object:
    assert (rejection["state"], rejection["reason"]) == ("rejected", "budget")
    return page_of(rejection)["budgetChars"]


# --- sizes ----------------------------------------------------------------------------------------------------------


def test_a_create_may_have_exactly_its_budget_and_not_one_character_more(desk: Desk) -> None:
    assert "id" in desk.page("Full", body="x" * 24_000)
    rejection = desk.page("Too full", body="x" * 24_001)
    assert budget_of(rejection) == 24_000
    assert [rejection[key] for key in ("id", "path", "revision", "hash")] == ["", "", 0, ""]
    page = page_of(rejection)
    assert (page["currentChars"], page["attemptedChars"], page["sectionsOf"]) == (0, 24_001, "attempted")
    assert desk.call("lookup", {"query": "Too full"})["state"] == "missing"


def test_an_edit_may_have_exactly_its_budget_and_not_one_character_more(desk: Desk) -> None:
    page_id = str(desk.page("Plan", body="short")["id"])
    assert budget_of(save(desk, page_id, "x" * 24_001)) == 24_000
    assert save(desk, page_id, "x" * 24_000)["revision"] == 2
    assert budget_of(insert(desk, page_id, "yy")) == 24_000


def test_sizes_count_utf16_units_of_the_body_and_not_the_frontmatter(desk: Desk) -> None:
    assert "revision" in desk.page("Plan", body="😀" * 12_000, aliases=["x" * 200] * 50)
    rejection = desk.page("Plan two", body="😀" * 12_000 + "a")
    assert page_of(rejection)["attemptedChars"] == 24_001


@pytest.mark.parametrize("edit", ["the same size", "smaller", "still far too large"])
def test_a_write_that_keeps_a_body_the_same_size_or_smaller_always_succeeds(desk: Desk, edit: str) -> None:
    write_note(desk.folder(), "projects/big.md", page_file("big", "Big", body="x" * 30_000 + "\n"))
    body = {"the same size": "y" * 30_000, "smaller": "y" * 26_000, "still far too large": "y" * 29_999}[edit]
    assert save(desk, "big", body)["revision"] == 2


def test_oversized_pages_never_grow(desk: Desk) -> None:
    write_note(desk.folder(), "projects/big.md", page_file("big", "Big", body="x" * 30_000 + "\n"))
    rejection = save(desk, "big", "x" * 30_001)
    assert budget_of(rejection) == 24_000
    assert (page_of(rejection)["currentChars"], page_of(rejection)["attemptedChars"]) == (30_001, 30_001)
    assert budget_of(insert(desk, "big", "z")) == 24_000
    assert insert(desk, "big", "z", 0, 1)["revision"] == 2


def test_a_line_end_that_we_add_lets_no_oversized_page_grow(desk: Desk) -> None:
    write_note(desk.folder(), "projects/big.md", page_file("big", "Big", body="x" * 30_000 + "\n"))
    for _ in range(3):
        save(desk, "big", "x" * 30_001)
    assert desk.path_of("big").read_bytes().endswith(b"\n\n" + b"x" * 30_000 + b"\n")


def test_markdown_edited_directly_on_disk_is_observed_not_gated_and_the_next_tool_write_follows_the_rule(
    desk: Desk,
) -> None:
    page_id = str(desk.page("Plan")["id"])
    path = desk.path_of(page_id)
    path.write_text(path.read_text("utf-8") + "x" * 40_000, "utf-8")
    assert desk.record(page_id)["id"] == page_id
    assert budget_of(insert(desk, page_id, "more")) == 24_000


def test_claims_are_never_limited_by_the_page_they_are_about(desk: Desk) -> None:
    write_note(desk.folder(), "projects/big.md", page_file("big", "Big Plan", body="x" * 30_000 + "\n"))
    receipt = desk.remember({"text": "It goes on.", "kind": "fact", "subject": "Big Plan"})
    assert "items" in receipt


# --- hubs -----------------------------------------------------------------------------------------------------------


def test_a_hub_has_half_the_budget_of_any_other_page(desk: Desk) -> None:
    surroundings(desk)
    rejection = insert(desk, HUB, "x" * 12_000)
    assert budget_of(rejection) == 12_000
    assert page_of(rejection)["hub"] == {
        "hub": True, "degree": 10, "percentile": 95.0, "hubPercentile": 90.0, "minPages": 20, "minDegree": 10,
    }  # fmt: skip
    assert insert(desk, "p0", "x" * 12_000)["revision"] == 2
    assert insert(desk, HUB, "x" * (12_000 - len("The hub.\n")))["revision"] == 2


def test_a_partition_of_fewer_than_20_current_pages_has_no_hubs(desk: Desk) -> None:
    surroundings(desk, pages=19)
    assert insert(desk, HUB, "x" * 12_000)["revision"] == 2


def test_a_page_of_a_degree_below_10_is_no_hub(desk: Desk) -> None:
    surroundings(desk, linking=9)
    assert insert(desk, HUB, "x" * 12_000)["revision"] == 2


def test_a_page_below_the_hub_percentile_is_no_hub(desk: Desk) -> None:
    surroundings(desk)
    desk.hub_percentile = 95.01
    assert insert(desk, HUB, "x" * 12_000)["revision"] == 2
    desk.hub_percentile = 95.0
    assert budget_of(insert(desk, HUB, "x")) == 12_000


def test_the_degree_before_the_write_counts(desk: Desk) -> None:
    surroundings(desk, linking=0)
    links = " ".join(f"[[p{number}]]" for number in range(15))
    assert insert(desk, HUB, links + "x" * 12_000)["revision"] == 2
    assert budget_of(insert(desk, HUB, "y")) == 12_000


def test_links_in_both_directions_and_of_both_forms_count_each_page_once(desk: Desk) -> None:
    links = (
        "[[p0]] [[p0|again]] [p0](p0.md)",
        "[p1](./p1.md#part)",
        "[[Page number 2]]",
        "[[people/p3]]",
        "![p4](p4.md)",
        "![of [p5](p5.md)](picture.png)",
        "`[[p6]]` \\[[p7]] https://x.y/p8.md",
    )
    surroundings(desk, linking=2, hub_body=" ".join(links) + "\n")
    rejection = insert(desk, HUB, "x" * 25_000)
    hub = page_of(rejection)["hub"]
    assert isinstance(hub, dict)
    assert hub["degree"] == 6


def test_typed_relationships_and_claims_never_count(desk: Desk) -> None:
    surroundings(desk, linking=0)
    evidence: JsonValue = [{"path": f"artifacts/{request_id(900)}/excerpt.txt", "sha256": "0" * 64}]
    for number in range(12):
        keys: JsonObject = {
            "from": f"p{number}", "to": HUB, "label": "related_to", "assertion_origin": "source",
            "attribution": "somebody", "evidence": evidence,
        }  # fmt: skip
        text = record_file(
            "relationship", f"r{number}", "Related", f"[[{HUB}]]\n", PRIVATE, "2026-10-01T10:00:00.000Z", keys
        )
        write_note(desk.folder(), f"relationships/r{number}.md", text)
        claim = claim_file(f"c{number}", f"About [[{HUB}]].", entities=[HUB])
        write_note(desk.folder(), f"claims/c{number}.md", claim)
    assert insert(desk, HUB, "x" * 12_000)["revision"] == 2


@pytest.mark.parametrize(
    ("change", "degree"),
    [("lifecycle: withdrawn", 9), ("body", 9), ("gone", 9), ("renamed", 10), ("merged", 9), ("retitled", 10)],
)
def test_what_becomes_of_a_linking_page_changes_the_degree(desk: Desk, change: str, degree: int) -> None:
    surroundings(desk)
    assert budget_of(insert(desk, HUB, "x" * 12_000)) == 12_000
    path = desk.folder() / "people/p0.md"
    text = path.read_text("utf-8")
    match change:
        case "lifecycle: withdrawn":
            path.write_text(text.replace('lifecycle: "active"', 'lifecycle: "withdrawn"'), "utf-8")
        case "body":
            path.write_text(text.replace(f"[[{HUB}]]", "nobody"), "utf-8")
        case "gone":
            path.unlink()
        case "renamed":
            path.rename(path.with_name("other.md"))
        case "merged":
            merged = text.replace('lifecycle: "active"', 'lifecycle: "merged"\nmerged_into: "p1"')
            path.write_text(merged, "utf-8")
        case "retitled":
            path.write_text(text.replace("Page number 0", "Another"), "utf-8")
    rejection = insert(desk, HUB, "x" * 25_000)
    hub = page_of(rejection)["hub"]
    assert isinstance(hub, dict)
    assert hub["degree"] == degree


def test_a_page_that_arrives_after_the_links_to_it_has_their_degree(desk: Desk) -> None:
    surroundings(desk)
    hub = desk.folder() / "people/hub.md"
    text = hub.read_text("utf-8")
    hub.unlink()
    assert desk.call("lookup", {"query": HUB})["state"] == "missing"
    write_note(desk.folder(), "people/elsewhere.md", text)
    assert budget_of(insert(desk, HUB, "x" * 12_000)) == 12_000


def test_links_to_a_merged_page_count_for_the_page_it_was_merged_into(desk: Desk) -> None:
    surroundings(desk)
    hub = desk.folder() / "people/hub.md"
    merged = hub.read_text("utf-8").replace('lifecycle: "active"', 'lifecycle: "merged"\nmerged_into: "p15"')
    hub.write_text(merged, "utf-8")
    write_note(desk.folder(), "people/p99.md", page_file("p99", "Page number 99"))
    assert budget_of(insert(desk, "p15", "x" * 12_000)) == 12_000


def test_an_ambiguous_name_is_no_link(desk: Desk) -> None:
    surroundings(desk, linking=0)
    for number in range(10):
        path = desk.folder() / f"people/p{number}.md"
        path.write_text(path.read_text("utf-8") + "[[The Hub]]\n", "utf-8")
    assert budget_of(insert(desk, HUB, "x" * 12_000)) == 12_000
    write_note(desk.folder(), "people/twin.md", page_file("twin", "the hub"))
    assert insert(desk, HUB, "x" * 12_000)["revision"] == 2


# --- the rejection --------------------------------------------------------------------------------------------------


def test_a_rejected_write_saves_nothing_and_describes_the_unchanged_target(desk: Desk) -> None:
    page = desk.page("Plan", body="# One\n" + "x" * 23_000)
    before, generation = desk.record(page["id"]), desk.call("history")
    path = desk.path_of(str(page["id"]))
    data = path.read_bytes()
    rejection = insert(desk, str(page["id"]), "y" * 2_000)
    assert rejection["state"] == "rejected"
    assert (rejection["id"], rejection["revision"], rejection["hash"]) == (page["id"], 1, before["hash"])
    assert str(rejection["path"]) == path.relative_to(desk.folder()).as_posix()
    assert "knowledge_extract_section" in str(rejection["message"])
    assert (path.read_bytes(), desk.call("history")) == (data, generation)


def test_no_receipt_is_stored_and_replaying_a_rejected_request_id_evaluates_it_again(desk: Desk) -> None:
    page = desk.page("Plan", body="short")
    arguments: JsonObject = {
        "requestId": request_id(777),
        "id": page["id"],
        "expectedRevision": 1,
        "expectedHash": page["hash"],
        "title": "Plan",
        "type": "project",
        "body": "x" * 24_001,
    }
    assert desk.call("save_page", arguments)["state"] == "rejected"
    with pytest.raises(NotFound):
        desk.call("mutation", {"requestId": request_id(777)})
    assert desk.call("save_page", arguments)["state"] == "rejected"
    assert desk.call("save_page", {**arguments, "body": "x" * 24_000})["revision"] == 2


def test_sections_are_up_to_six_of_the_largest_with_offsets_size_and_subsections(desk: Desk) -> None:
    body = "# All\n" + "".join(f"## S{n}\n" + "é" * (n * 1_000) + "\n" for n in range(1, 7)) + "### Sub\nx\n"
    page = desk.page("Plan", body=body)
    rejection = insert(desk, str(page["id"]), "y" * 24_000)
    assert page_of(rejection)["sectionsOf"] == "current"
    shown = sections_of(rejection)
    assert [one["heading"] for one in shown] == ["All", "S6", "S5", "S4", "S3", "S2"]
    assert [one["subsections"] for one in shown] == [7, 1, 0, 0, 0, 0]
    current = str(desk.record(page["id"], maxChars=48_000)["body"])
    for one in shown:
        start, end = one["start"], one["end"]
        assert isinstance(start, int)
        assert isinstance(end, int)
        assert one["chars"] == end - start
        assert current[start:end].startswith("#" * int(str(one["level"])) + f" {one['heading']}\n")


def test_sections_of_a_create_come_from_the_attempted_body(desk: Desk) -> None:
    rejection = desk.page("Plan", body="## Only\n" + "x" * 24_001)
    assert page_of(rejection)["sectionsOf"] == "attempted"
    assert [one["heading"] for one in sections_of(rejection)] == ["Only"]


def test_candidates_are_connected_pages_that_the_section_links_to_or_names_with_their_headroom(desk: Desk) -> None:
    pages = {
        title: str(desk.page(title, type="person", body=body)["id"])
        for title, body in (("Ann Linked", "x" * 999), ("Bob Named", "y" * 1_999), ("Cem Quiet", "z"), ("Eva Far", "z"))
    }
    body = (
        f"[[{pages['Bob Named']}]] [[{pages['Cem Quiet']}]]\n"
        f"# Topic\nWith [[{pages['Ann Linked']}]], bob  named, and Eva Far.\n" + "x" * 20_000
    )
    page = desk.page("Plan", body=body)
    rejection = insert(desk, str(page["id"]), "y" * 24_000)
    [section] = sections_of(rejection)
    candidates = section["candidates"]
    assert isinstance(candidates, list)
    shown = [(one["title"], one["headroomChars"]) for one in candidates if isinstance(one, dict)]
    assert shown == [("Ann Linked", 23_000), ("Bob Named", 22_000)]


def test_a_section_has_at_most_three_candidates(desk: Desk) -> None:
    links = [f"[[{desk.page(f'Person {n}', type='person')['id']}]]" for n in range(5)]
    page = desk.page("Plan", body="# Topic\n" + " ".join(links) + "x" * 20_000)
    candidates = sections_of(insert(desk, str(page["id"]), "y" * 24_000))[0]["candidates"]
    assert isinstance(candidates, list)
    assert len(candidates) == 3


def test_a_word_inside_another_is_no_name(desk: Desk) -> None:
    other = str(desk.page("Ann", type="person")["id"])
    page = desk.page("Plan", body=f"[[{other}]]\n# Topic\nAnnouncement of the annual plan.\n" + "x" * 20_000)
    assert sections_of(insert(desk, str(page["id"]), "y" * 24_000))[0]["candidates"] == []


def test_a_page_that_only_a_typed_relationship_connects_is_a_candidate(desk: Desk) -> None:
    page_id = str(desk.page("Plan", body="# Topic\nWith Ann Example.\n" + "x" * 20_000)["id"])
    other = str(desk.page("Ann Example", type="person")["id"])
    assert sections_of(insert(desk, page_id, "y" * 24_000))[0]["candidates"] == []
    keys: JsonObject = {
        "from": other, "to": page_id, "label": "related_to", "assertion_origin": "source", "attribution": "somebody",
        "evidence": [{"path": f"artifacts/{request_id(900)}/excerpt.txt", "sha256": "0" * 64}],
    }  # fmt: skip
    text = record_file("relationship", "rel", "Related", "", PRIVATE, "2026-10-01T10:00:00.000Z", keys)
    write_note(desk.folder(), "relationships/rel.md", text)
    [candidate] = candidates_of(insert(desk, page_id, "y" * 24_000))
    assert candidate["id"] == other
    assert candidate["hash"] == desk.record(other)["hash"]


def test_the_headroom_of_a_candidate_is_that_of_its_own_budget(desk: Desk) -> None:
    surroundings(desk)
    body = f"# Topic\nFor [[{HUB}]].\n" + "x" * 20_000 + "\n"
    write_note(desk.folder(), "projects/plan.md", page_file("plan", "Plan", body=body))
    [candidate] = candidates_of(insert(desk, "plan", "y" * 24_000))
    assert candidate["headroomChars"] == 12_000 - len("The hub.\n")


def candidates_of(rejection: JsonObject) -> list[JsonObject]:
    found = sections_of(rejection)[0]["candidates"]
    assert isinstance(found, list)
    return [one for one in found if isinstance(one, dict)]

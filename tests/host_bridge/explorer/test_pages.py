"""What the pages show, sentence by sentence of the Control UI: on a real bridge, without a script."""

from __future__ import annotations

import re
from pathlib import Path
from urllib.parse import urlencode

import pytest

from messages.json_types import JsonObject
from messages.operator import OPERATOR_METHODS, Operator
from storage import faults
from tests.host_bridge.explorer.browser import Reader
from tests.host_bridge.explorer.console import BridgeConsole
from tests.host_bridge.explorer.world import CONFIGURATION, DATA, World, open_world
from tests.kit.actors import eventually
from tests.kit.store import page_file, stores, write_notes

READER = Operator("ana", frozenset(("operator.read",)))
WRITER = Operator("ben", frozenset(("operator.write",)))
LOOKING = (
    "/", "/recent", "/browse", "/search?q=roof", "/timeline", "/due", "/settings/stores", "/settings/conversations",
    "/settings/vocabulary", "/settings/vocabulary?name=person", "/settings/vault", "/settings/maintenance",
)  # fmt: skip


def record_pages(world: World) -> list[str]:
    return [
        f"/record/{world.ids[name]}{rest}"
        for name in ("Tidepool", "cited lines", "wrong", "merged", "Winter plan")
        for rest in ("", "/history", "/graph", "/connections/claims")
    ]


# --- lists ------------------------------------------------------------------------------------------------------------


def test_the_first_page_is_activity_and_issues(reader: Reader) -> None:
    page = reader.get("/")
    assert page.title == "Activity & issues"
    headings = [one.text.strip() for one in page.all("h2") if one.text.strip() != "Settings"]
    assert headings[:3] == ["Needs a look", "Lately", "How things are"]


def test_recent_lists_what_was_written_last_first(reader: Reader) -> None:
    page = reader.get("/recent")
    names = [one.text.strip() for one in page.all("p", class_="what")]
    assert names[0] == "Winter plan"
    assert "Tidepool" in names


def test_browse_filters_by_kind_type_tag_state_title_and_dates(reader: Reader) -> None:
    def titles(**fields: str) -> list[str]:
        page = reader.get(f"/browse?{urlencode(fields)}")
        return [" ".join(one.text.split()) for one in page.all("p", class_="what")]

    assert titles(type="person", order="title") == [
        "Alex Chen", "Alex Novák", "Marta Kowalczyk", "Priya Raman", "Yuki Tanaka",
    ]  # fmt: skip
    assert titles(tag="radio") == ["LoRa uplink"]
    assert titles(match="winter pl") == ["Winter plan"]
    assert titles(lifecycle="withdrawn") == ["The buoy is green."]
    assert titles(lifecycle="superseded") == ["Demo day is on 25 September."]
    assert titles(kind="claim", field="due", since="2027") == ["Priya renews the permission."]
    assert titles(kind="relationship")[0].count(" ") > 1


def test_browse_pages_join_without_gap_or_repeat(reader: Reader) -> None:
    seen: list[str] = []
    address: str | None = "/browse?order=title"
    while address is not None:
        page = reader.get(address)
        seen += [one.attributes["href"] for one in page.all("a") if "/record/" in one.attributes.get("href", "")
                 and one.attributes["href"] not in seen[-1:]]  # fmt: skip
        following = page.all("a", rel="next")
        address = following[0].attributes["href"] if following else None
    ids = {str(row["id"]) for row in _all_records(reader)}
    assert ids <= {href.split("/record/")[1].split("?")[0] for href in seen}


def _all_records(reader: Reader) -> list[JsonObject]:
    found = reader.console.bridge.ask("operator.records", {"limit": 100})["records"]
    assert isinstance(found, list)
    return [row for row in found if isinstance(row, dict)]


def test_a_change_between_two_pages_leads_back_to_the_first_and_says_so(world: World, visitor: Reader) -> None:
    for number in range(30):
        world.page(f"Page {number}")
    second = visitor.get("/browse").all("a", rel="next")[0].attributes["href"]
    world.page("In between")
    page = visitor.get(second)
    assert "Records changed while you paged" in page.text
    assert "1 to 25 of 31" in page.text


def test_search_marks_the_words_in_titles_and_excerpts_whatever_their_case_and_accents(reader: Reader) -> None:
    page = reader.get("/search", q="ROOF")
    assert {one.text.casefold() for one in page.all("mark")} == {"roof"}
    assert "6 matches" in page.text
    assert {one.text for one in reader.get("/search", q="novak").all("mark")} == {"Novák"}
    assert reader.get("/search", q="赤と緑").all("mark")[0].text == "赤と緑"


def test_a_search_that_cannot_answer_is_never_shown_as_finding_nothing(
    reader: Reader, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def ask(request: object, method: str, params: JsonObject) -> JsonObject:
        if method == "operator.search":
            return {"index": {"state": "unavailable", "reason": "The index is being rebuilt."}, "total": None,
                    "hits": []}  # fmt: skip
        return reader.console.bridge.ask(method, params)

    monkeypatch.setattr(reader.console, "ask", ask)
    page = reader.get("/search", q="roof")
    assert "Search cannot answer now" in page.text
    assert "Nothing has all of these words" not in page.text


def test_a_name_leads_to_its_record_and_an_ambiguous_one_to_the_choice(reader: Reader, furnished: World) -> None:
    assert reader.get("/find", name="tidepool").address == f"/record/{furnished.ids['Tidepool']}"
    page = reader.get("/find", name="Alex")
    assert {"Alex Chen", "Alex Novák"} <= {one.text.strip() for one in page.all("p", class_="what")}
    assert "No record has this id, title or alias" in reader.get("/find", name="Nobody at all").text


# --- one record -------------------------------------------------------------------------------------------------------


def test_a_page_shows_linked_claims_connections_links_and_backlinks(reader: Reader, furnished: World) -> None:
    page = reader.get(f"/record/{furnished.ids['Tidepool']}")
    headings = [" ".join(one.text.split()) for one in page.all("h2")]
    wanted = {"Claims 19", "Relationships to it 4", "Relationships from it 1", "Links 6", "Linked from 4"}
    assert wanted <= set(headings)
    assert "Demo day is on 28 September." in page.text
    assert "uses LoRa uplink" in page.text


def test_the_text_of_a_page_is_rendered_and_its_links_lead_to_records(reader: Reader, furnished: World) -> None:
    page = reader.get(f"/record/{furnished.ids['Tidepool']}")
    assert page.link("Brightwater Rowing Club") == f"/record/{furnished.ids['Brightwater Rowing Club']}"
    assert "over the sill" in [one.text for one in page.all("strong")]
    assert [one.text for one in page.all("th")][:2] == ["who", "does"]


def test_a_claim_shows_its_evidence_with_the_verdict(reader: Reader, furnished: World) -> None:
    page = reader.get(f"/record/{furnished.ids['cited lines']}")
    assert [one.text for one in page.all("span", class_="holds")] == ["Holds"]
    assert "DECISION: LoRa uplink, gateway on the clubhouse roof" in page.one("blockquote").text
    assert page.link("lines 12 to 20 of group-chat.txt").endswith("/evidence#cited")


def test_retained_originals_stand_under_file_details(reader: Reader, furnished: World) -> None:
    page = reader.get(f"/record/{furnished.ids['cited lines']}")
    details = next(one for one in page.all("details") if one.text.strip().startswith("File details"))
    record = furnished.record(furnished.ids["cited lines"])
    assert str(record["hash"]) in details.text
    assert str(record["path"]) in details.text
    assert "group-chat.txt" in details.text
    [original] = record["originals"] if isinstance(record["originals"], list) else []
    assert isinstance(original, dict)
    assert str(original["sha256"]) in details.text


def test_the_original_is_handed_out_as_a_file_with_its_own_bytes(reader: Reader, furnished: World) -> None:
    answer = reader.client.get(f"/record/{furnished.ids['cited lines']}/original?n=0")
    assert answer.content == (DATA / "chat.txt").read_bytes().rstrip(b"\n")
    assert answer.headers["content-disposition"] == "attachment; filename*=UTF-8''group-chat.txt"
    assert answer.headers["content-type"] == "application/octet-stream"
    assert answer.headers["x-content-type-options"] == "nosniff"


def test_evidence_is_shown_in_place_with_the_cited_lines_marked_and_the_hash(
    reader: Reader, furnished: World
) -> None:
    page = reader.get(f"/record/{furnished.ids['cited lines']}/evidence?n=0")
    cited = page.all("tr", class_="cited")
    assert [one.text.strip()[:2] for one in cited] == [str(number) for number in range(12, 21)]
    assert len(page.all("tr")) > 60, "the lines around it are there too"
    assert "The original still has exactly the bytes that were cited" in page.text
    assert str(furnished.citation(furnished.ids["cited lines"])["sha256"]) in page.text


def test_an_original_that_was_changed_is_told_and_not_shown(world: World, visitor: Reader) -> None:
    claim = world.claim("The bell rang.")
    path = world.private / str(world.citation(claim)["path"])
    path.chmod(0o600)
    path.write_text("User: The bell never rang.", "utf-8")
    shown = visitor.get(f"/record/{claim}")
    assert [one.text for one in shown.all("span", class_="fails")] == ["Does not hold: hash mismatch"]
    page = visitor.get(f"/record/{claim}/evidence?n=0")
    assert "The original does not hold what is cited" in page.text
    assert "never rang" not in page.html


def test_history_shows_every_revision_and_what_each_changed_word_by_word(reader: Reader, furnished: World) -> None:
    page = reader.get(f"/record/{furnished.ids['Winter plan']}/history")
    assert [one.text.strip() for one in page.all("b")] == ["Edited outside", "Save page", "Save page"]
    changes = [one.attributes["href"] for one in page.all("a") if one.text == "What it changed"]
    edited = reader.get(changes[0])
    assert [one.text for one in edited.all("ins")] == [", left of the old skiff"]
    assert edited.all("del") == []
    saved = reader.get(changes[1])
    assert "shed" in [one.text for one in saved.all("del")]
    assert any("boathouse loft" in one.text for one in saved.all("ins"))


def test_a_revision_finds_what_it_replaced_without_being_told(reader: Reader, furnished: World) -> None:
    page = reader.get(f"/record/{furnished.ids['Winter plan']}/history")
    address = next(one.attributes["href"] for one in page.all("a") if one.text == "What it changed")
    assert [one.text for one in reader.get(address.split("?")[0]).all("ins")] == [", left of the old skiff"]


def test_a_replaced_record_names_its_replacement_and_the_chain_in_both_directions(
    reader: Reader, furnished: World
) -> None:
    wrong, right = furnished.ids["wrong"], furnished.ids["right"]
    for record_id in (wrong, right):
        page = reader.get(f"/record/{record_id}")
        assert "How it came to this" in page.text
        chain = [one.text for one in page.all("bdi")]
        assert chain.index("Demo day is on 25 September.") < chain.index("Demo day is on 28 September.")
    old = reader.get(f"/record/{wrong}")
    assert old.link("later record") == f"/record/{right}"
    assert "The committee moved it." in old.text


def test_a_merged_page_leads_to_the_one_it_was_merged_into_and_back(reader: Reader, furnished: World) -> None:
    merged, kept = furnished.ids["merged"], furnished.ids["Tidepool"]
    page = reader.get(f"/record/{merged}")
    assert page.one("p", class_="notice").text.startswith("Merged into Tidepool")
    assert f"/record/{merged}" in reader.get(f"/record/{kept}").links()


def test_a_change_request_carries_the_exact_observed_id_revision_and_hash(reader: Reader, furnished: World) -> None:
    record = furnished.record(furnished.ids["Tidepool"])
    text = reader.get(f"/record/{record['id']}").one("textarea").text
    for name in ("id", "revision", "hash"):
        assert f"{name}: {record[name]}\n" in text
    assert 'page "Tidepool"' in text


def test_nothing_is_sent_automatically_and_no_page_has_a_control_that_writes_knowledge(
    reader: Reader, furnished: World
) -> None:
    before = furnished.ask("history", limit=1)["total"]
    for address in (*LOOKING, *record_pages(furnished)):
        page = reader.get(address)
        posted = {one.attributes["action"].split("?")[0] for one in page.all("form")
                  if one.attributes.get("method", "get") != "get"}  # fmt: skip
        assert posted == {"/theme", "/session/end"}, address
    assert furnished.ask("history", limit=1)["total"] == before


WRITES = frozenset(
    ("operator.adopt", "operator.acceptDeletions", "operator.adoptStore", "operator.relocateStore",
     "operator.exportConversation", "operator.eraseConversation", "operator.releaseStore", "operator.backup",
     "operator.runMaintenance", "operator.rebuildRegistry")
)  # fmt: skip


def test_no_page_asks_for_anything_but_reads(reader: Reader, furnished: World) -> None:
    for address in (*LOOKING, *record_pages(furnished)):
        reader.get(address)
    asked = {method for method, _ in reader.console.asked}
    assert asked <= set(OPERATOR_METHODS) - WRITES
    assert not {method for method in asked if method.startswith("access.")} - {
        "access.stores.list", "access.grants.list", "access.audit",
    }  # fmt: skip


def test_every_page_asks_for_a_bounded_number_of_bounded_reads(reader: Reader, furnished: World) -> None:
    for address in (*LOOKING, *record_pages(furnished)):
        reader.console.asked.clear()
        reader.get(address)
        assert len(reader.console.asked) <= 24, address
        assert all(int(str(params.get("limit", 0))) <= 100 for _, params in reader.console.asked), address


# --- agents and stores ------------------------------------------------------------------------------------------------


def test_the_agent_selector_changes_only_whose_store_is_viewed_and_never_creates_one(
    furnished: World, reader: Reader
) -> None:
    before = stores(furnished.bridge.state_dir)
    configuration = (furnished.bridge.state_dir / "knowledge.yaml").read_text("utf-8")
    for address in LOOKING:
        page = reader.get(address, agent="ben")
        chosen = [one.attributes["value"] for one in page.all("option") if "selected" in one.attributes]
        assert chosen[0] == "ben"
        if address not in ("/settings/stores", "/settings/conversations", "/settings/maintenance"):
            assert page.title == "ben has no store yet", address
    assert stores(furnished.bridge.state_dir) == before
    assert (furnished.bridge.state_dir / "knowledge.yaml").read_text("utf-8") == configuration


def test_the_chosen_agent_stays_chosen_from_page_to_page(reader: Reader, furnished: World) -> None:
    page = reader.get("/recent", agent="main")
    inside = [href for href in page.links() if href.startswith("/") and not href.startswith("/assets")]
    assert inside
    assert all("agent=main" in href for href in inside)


def test_a_named_role_limits_browsing_to_its_agents(furnished: World) -> None:
    reader = Reader(BridgeConsole(furnished.bridge, Operator("of ben", frozenset(("operator.read",)), ("ben",))))
    page = reader.get("/recent")
    assert page.title == "ben has no store yet"
    assert "main" not in [one.attributes.get("value") for one in page.all("option")]
    assert reader.get("/recent", agent="main", status=403).title == "You may not see this"


def test_a_shared_gateway_needs_an_admin_to_browse(tmp_path: Path) -> None:
    with open_world(tmp_path / "state", f"{CONFIGURATION}gateway: {{shared: true}}\n") as world:
        world.page("Pilot")
        assert Reader(BridgeConsole(world.bridge, READER)).get("/recent", status=403).title == "You may not see this"
        assert "Pilot" in Reader(BridgeConsole(world.bridge)).get("/recent").text


def test_without_operator_read_no_operator_sees_a_record(tmp_path: Path) -> None:
    with open_world(tmp_path / "state", f"{CONFIGURATION}operatorRead: false\n") as world:
        page = world.page("Pilot")
        for operator in (READER, WRITER):
            reader = Reader(BridgeConsole(world.bridge, operator))
            for address in ("/recent", "/browse", "/search?q=pilot", f"/record/{page}", f"/record/{page}/graph.json"):
                assert "Pilot" not in reader.get(address, status=403).html.replace("q=pilot", "")


def test_a_reader_without_a_session_sees_how_to_sign_in_and_nothing_else(furnished: World) -> None:
    reader = Reader(BridgeConsole(furnished.bridge, None))
    for address in (*LOOKING, *record_pages(furnished)):
        page = reader.get(address, status=401)
        assert page.title == "You are signed out"
        assert "Tidepool" not in page.html
    assert reader.console.asked == []


def test_operators_who_only_read_see_no_controls_for_changes(furnished: World) -> None:
    reader = Reader(BridgeConsole(furnished.bridge, READER))
    for address in ("/settings/stores", "/settings/conversations"):
        page = reader.get(address)
        assert page.all("a", class_="button") == []
        assert "operator.admin" in page.text
    assert "operator.admin" in reader.get("/settings/maintenance").text


# --- issues -----------------------------------------------------------------------------------------------------------


def test_issues_say_what_is_wrong_where_and_what_to_do(reader: Reader) -> None:
    page = reader.get("/")
    issues = [" ".join(one.text.split()) for one in page.all("li") if one.attributes.get("class") in ("look", "offer")]
    assert any("broken.md" in issue and "YAML" in issue and "Mend it in an editor" in issue for issue in issues)
    assert any("people/sven.md" in issue and "knowledge adopt people/sven.md --agent main" in issue for issue in issues)


def test_a_sound_store_says_that_nothing_needs_a_look(world: World, visitor: Reader) -> None:
    world.page("Pilot")
    page = visitor.get("/")
    assert "Nothing. Every file is a sound record" in page.text
    assert "Save page by main" in page.text


def test_a_conflict_is_an_issue_and_shows_both_texts_side_by_side(world: World, visitor: Reader) -> None:
    page = world.page("Pilot", body="The pier has one lamp.\n")
    path = world.private / str(world.record(page)["path"])
    theirs = path.read_text("utf-8").replace("one lamp", "two lamps")

    def edited(point: str) -> None:
        if point == "accept.commit.after":
            path.write_text(theirs, "utf-8")

    with faults.installed(edited):
        world.call("save_page", {**world.fence(page), **world.vault(), "title": "Pilot", "type": "project",
                                 "body": "The pier has no lamp."})  # fmt: skip
    shown = visitor.get("/")
    assert "A write gave way to an edit by hand" in shown.text
    both = visitor.get(shown.link("Compare both texts"))
    theirs_shown, ours = (one.text for one in both.all("pre"))
    assert "two lamps" in theirs_shown
    assert "no lamp" in ours
    assert "two" in [one.text.strip() for one in both.all("del")]


def test_a_store_that_does_not_answer_is_the_first_issue_with_the_command_that_settles_it(
    world: World, visitor: Reader
) -> None:
    world.page("Pilot")
    write_notes(world.private, ((f"lost/{n}.md", page_file(f"lost{n}", f"Lost {n}")) for n in range(30)))
    visitor.get("/recent")
    for path in (world.private / "lost").iterdir():
        path.unlink()
    page = visitor.get("/")
    first = next(one for one in page.all("li") if one.attributes.get("class") == "stop")
    assert "knowledge store accept-deletions" in first.text
    assert "What you see may be behind the files" in visitor.get("/recent").text


def test_the_git_state_supervision_and_the_audit_are_shown_to_an_admin(reader: Reader) -> None:
    page = reader.get("/")
    assert "History (Git)" in page.text
    assert "root/authority" in page.text
    assert "store create by main" in page.text


def test_the_audit_and_the_runtime_are_not_shown_to_a_reader(furnished: World) -> None:
    page = Reader(BridgeConsole(furnished.bridge, READER)).get("/")
    assert "root/authority" not in page.html
    assert "store create" not in page.html


# --- dates ------------------------------------------------------------------------------------------------------------


def test_the_timeline_goes_by_days_and_shows_the_last_year(reader: Reader) -> None:
    page = reader.get("/timeline", since="2026-09-07", until="2026-09-09")
    days = [one.text for one in page.all("h2") if re.fullmatch(r"\d{4}-\d\d-\d\d", one.text)]
    assert days == ["2026-09-08", "2026-09-07"]
    links = [one.attributes["href"] for one in page.all("a", class_="day")]
    assert any("since=2026-09-07" in href and "until=2026-09-08" in href for href in links)


def test_due_commitments_are_overdue_due_or_coming(reader: Reader) -> None:
    page = reader.get("/due", days="366")
    assert "Priya renews the permission." in page.text
    assert "Marta orders the second battery." in page.text
    headings = [" ".join(one.text.split()).split(" ")[0] for one in page.all("h2")]
    assert "Overdue" in headings


# --- settings ---------------------------------------------------------------------------------------------------------


def test_vocabulary_shows_types_fields_counts_and_examples(reader: Reader) -> None:
    page = reader.get("/settings/vocabulary")
    assert {"Types of pages", "Relationships"} <= {one.text for one in page.all("h2")}
    person = reader.get(page.link("person"))
    assert "An address at which they can be reached" in person.text
    assert "5 current, 5 in all" in person.text
    assert "Marta Kowalczyk" in person.text


def test_vault_status_shows_identity_and_how_every_part_is(reader: Reader, furnished: World) -> None:
    status = furnished.ask("status")
    page = reader.get("/settings/vault")
    assert str(status["vaultId"]) in page.text
    assert str(status["path"]) in page.text
    assert "38 claims (and 1 superseded, 1 withdrawn)" in page.text


def test_maintenance_shows_schedule_next_and_last_run_and_results_for_each_store(
    reader: Reader, furnished: World
) -> None:
    furnished.ask("runMaintenance")
    eventually(lambda: furnished.ask("maintenance")["running"] is None)
    page = reader.get("/settings/maintenance")
    assert "every 24 hours from 03:30 local time" in page.text
    assert "Done: 1 stores looked after" in page.text
    assert "0 records fail" in page.text

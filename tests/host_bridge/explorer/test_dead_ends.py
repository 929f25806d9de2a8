"""No page is a dead end: what is missing, wrong, refused or broken is told as a page that leads on."""

from __future__ import annotations

import json
import shlex
from urllib.parse import urlencode

import pytest

from messages.audience import OwnerPrivate
from messages.errors import KnowledgeError
from messages.json_types import JsonObject
from tests.host_bridge.explorer.browser import Page, Reader
from tests.host_bridge.explorer.test_pages import LOOKING, record_pages
from tests.host_bridge.explorer.world import World
from tests.kit.store import page_file, write_note


def test_an_unknown_record_is_told_with_what_to_do(reader: Reader) -> None:
    page = reader.get("/record/nobody", status=404)
    assert page.title == "There is no such record here"
    assert page.link("Its revisions") == "/record/nobody/history"


def test_the_command_of_the_page_without_a_store_makes_one(world: World, visitor: Reader) -> None:
    page = visitor.get("/recent", agent="ben")
    [command] = [one.text for one in page.all("code") if one.text.startswith("knowledge call")]
    [_, _, tool, arguments, *whose] = shlex.split(command)
    assert (tool, whose) == ("remember", ["--agent", "ben"])
    world.bridge.call(f"knowledge_{tool}", json.loads(arguments), OwnerPrivate("ben"))
    assert "The club meets on Mondays." in visitor.get("/recent", agent="ben").text


def test_several_files_of_one_id_are_a_choice_and_each_can_be_read(world: World, visitor: Reader) -> None:
    world.page("Pilot")
    for number in range(2):
        write_note(world.private, f"twice{number}.md", page_file("twice", f"Twin {number}"))
    page = visitor.get("/record/twice", status=409)
    assert visitor.get(page.link("twice1.md")).title == "Twin 1"


def test_a_removed_record_keeps_its_revisions(world: World, visitor: Reader) -> None:
    page = world.page("Pilot", body="About the pier.")
    world.page("Another")
    (world.private / str(world.record(page)["path"])).unlink()
    assert visitor.get(f"/record/{page}", status=404).title == "There is no such record here"
    history = visitor.get(f"/record/{page}/history")
    assert [one.text.strip() for one in history.all("b")] == ["Removed", "Save page"]
    assert "About the pier." in visitor.get(history.link("Its text")).text


@pytest.mark.parametrize(
    ("address", "status"),
    [
        ("/browse?since=yesterday", 400), ("/browse?type=a%0Ab", 400), ("/record/a%20b", 400),
        ("/record/x/connections/up", 400), ("/publication/nothing", 400), ("/search?q=" + "w+" * 80, 400),
        ("/publication/00000000-0000-4000-8000-0000000000ff", 404), ("/settings/stores/steal?of=main", 404),
        ("/settings/stores/own?of=nobody", 404), ("/record/x/revision/1", 404), ("/record/x/evidence?n=7", 404),
        ("/record/x/revision/" + "9" * 5_000, 404), ("/record/x/revision/-1", 404), ("/recent/", 404),
        ("/Recent", 404), ("/record/a%2Fb", 404), ("/recent?offset=999999999", 400), ("/theme", 404),
    ],
)  # fmt: skip
def test_a_wrong_address_is_refused_as_a_page_that_says_why(reader: Reader, address: str, status: int) -> None:
    page = reader.get(address, status=status)
    assert page.all("p", class_="lead")
    assert "Traceback" not in page.html


def test_a_record_that_never_was_has_no_revisions_and_a_name_that_is_none_leads_to_the_search(reader: Reader) -> None:
    assert "History has no revision of this record." in reader.get("/record/nobody/history", status=404).text
    assert reader.get("/find").address == "/search"


def test_from_every_page_another_agent_can_be_chosen(reader: Reader, furnished: World) -> None:
    inside = ("/nowhere", "/settings/stores/own?of=main", "/settings/conversations/grant?conversation=k&access=read")
    for address in (*LOOKING, *record_pages(furnished), *inside):
        action = reader.get(address, status=None).one("form", class_="agent").attributes["action"]
        assert reader.get(action, agent="ben").all("option", value="ben", selected="") != [], address


def test_a_refused_change_leads_back_to_where_it_was_asked_for(reader: Reader) -> None:
    sent = urlencode({"csrf": reader.console.token, "of": "main", "name": "no such store"})
    answer = reader.client.post(
        "/settings/stores/join", content=sent, headers={"Content-Type": "application/x-www-form-urlencoded"}
    )
    page = Page(answer.status_code, answer.text, "/settings/stores/join")
    assert page.status == 404
    assert page.link("See how it stands now") == "/settings/stores"
    [back] = [one.attributes["value"] for one in page.all("input") if one.attributes["name"] == "back"]
    assert back == "/settings/stores"
    assert "data-still" in page.one("main").attributes, "a refresh would ask for the address of the form with a GET"


def test_a_defect_is_told_without_the_inside(reader: Reader, monkeypatch: pytest.MonkeyPatch) -> None:
    from messages.errors import InternalError

    async def ask(request: object, method: str, params: JsonObject) -> JsonObject:
        raise InternalError("The request met a defect of ours.", correlationId="c-1")

    monkeypatch.setattr(reader.console, "ask", ask)
    page = reader.get("/recent", status=500)
    assert "c-1" in page.text
    assert isinstance(InternalError("x"), KnowledgeError)


def test_the_theme_is_kept_in_a_cookie_and_leads_back(reader: Reader) -> None:
    status, where = reader.post("/theme", [("theme", "dark"), ("back", "/recent?kind=page")])
    assert (status, where) == (303, "/recent?kind=page")
    assert reader.get("/recent").one("html").attributes["data-theme"] == "dark"
    for elsewhere in ("https://example.org/", "//example.org/", "/\\example.org", "javascript:alert(1)"):
        assert reader.post("/theme", [("theme", "auto"), ("back", elsewhere)])[1] == "/"
    assert reader.get("/recent").one("html").attributes["data-theme"] == "auto"

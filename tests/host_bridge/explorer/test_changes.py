"""The only changes from the explorer: the three moves and conversation grants, each confirmed by an admin."""

from __future__ import annotations

import pytest
import yaml

from messages.audience import OwnerPrivate
from messages.json_types import JsonObject
from messages.operator import Operator
from tests.host_bridge.explorer.browser import Reader
from tests.host_bridge.explorer.console import BridgeConsole
from tests.host_bridge.explorer.world import GROUP, World
from tests.kit.actors import eventually
from tests.kit.store import stores

READER = Operator("ana", frozenset(("operator.read", "operator.write")))
GRANT = "/settings/conversations/grant"
MAINS = Operator("of main", frozenset(("operator.admin",)), ("main",))


def membership(world: World) -> JsonObject:
    found = yaml.safe_load((world.bridge.state_dir / "knowledge.yaml").read_text("utf-8")).get("stores", {})
    return {name: sorted(store["agents"]) for name, store in found.items()}


def shared(world: World, visitor: Reader) -> None:
    world.page("Pilot")
    visitor.submit(visitor.get("/settings/stores/share?of=main&name=family&label=Family&with=ben"))


# --- the three moves --------------------------------------------------------------------------------------------------


def test_sharing_names_the_agents_isolated_store_and_adds_other_agents(world: World, visitor: Reader) -> None:
    world.page("Pilot")
    before = stores(world.bridge.state_dir)
    page = visitor.get(visitor.get("/settings/stores").link("Share this store"))
    assert {one.attributes["value"] for one in page.all("input", type="checkbox")} == {"ben", "research"}
    asking = visitor.get("/settings/stores/share?of=main&name=family&label=Family&with=ben")
    for said in ("renamed to “family”; it is not copied", "ben now uses its own store and switches",
                 "There is no hidden private copy."):  # fmt: skip
        assert said in asking.text
    assert membership(world) == {}, "asking changes nothing"
    done = visitor.submit(asking)
    assert "The store of main is shared now. Nothing was copied." in done.text
    assert membership(world) == {"family": ["ben", "main"]}
    assert stores(world.bridge.state_dir) == before, "the store is renamed, not copied"
    assert "Pilot" in visitor.get("/recent", agent="ben").text


def test_agents_already_in_another_named_store_are_said_to_switch(world: World, visitor: Reader) -> None:
    shared(world, visitor)
    world.call("save_page", {"title": "Notes", "type": "project", "body": "x"}, OwnerPrivate("research"))
    page = visitor.get("/settings/stores/share?of=research&name=lab&with=ben")
    assert "ben now uses the shared store “family” and switches; nothing of that is moved or merged." in page.text
    visitor.submit(page)
    assert membership(world) == {"family": ["main"], "lab": ["ben", "research"]}


def test_using_a_shared_store_moves_and_merges_nothing(world: World, visitor: Reader) -> None:
    shared(world, visitor)
    form = visitor.get("/settings/stores/join?of=research")
    assert [one.attributes["value"] for one in form.all("input", type="radio")] == ["family"]
    page = visitor.get("/settings/stores/join?of=research&name=family")
    assert "Nothing from research's current store is moved or merged" in page.text
    visitor.submit(page)
    assert membership(world) == {"family": ["ben", "main", "research"]}
    assert "Pilot" in visitor.get("/recent", agent="research").text


def test_using_its_own_store_copies_and_removes_nothing_and_makes_none(world: World, visitor: Reader) -> None:
    shared(world, visitor)
    before = stores(world.bridge.state_dir)
    page = visitor.get("/settings/stores/own?of=ben")
    for said in ("a new, empty store, which is created on its first use", "Nothing from the shared store is copied or",
                 "It cannot take back what an agent has already read."):  # fmt: skip
        assert said in page.text
    visitor.submit(page)
    assert membership(world) == {"family": ["main"]}
    assert stores(world.bridge.state_dir) == before
    assert visitor.get("/recent", agent="ben").title == "ben has no store yet"


def test_an_unassigned_store_stays_listed_and_can_be_joined_again(world: World, visitor: Reader) -> None:
    shared(world, visitor)
    configuration = world.bridge.state_dir / "knowledge.yaml"
    kept = yaml.safe_load(configuration.read_text("utf-8"))
    del kept["stores"]
    configuration.write_text(yaml.safe_dump(kept), "utf-8")
    world.read("status", {})
    eventually(lambda: "unassigned" in visitor.get("/settings/stores").text)  # the file is read once a second
    visitor.submit(visitor.get("/settings/stores/join?of=ben&name=family"))
    assert "Pilot" in visitor.get("/recent", agent="ben").text


def test_an_agent_in_two_stores_is_shown_as_unavailable_with_what_mends_it(world: World, visitor: Reader) -> None:
    shared(world, visitor)
    configuration = world.bridge.state_dir / "knowledge.yaml"
    kept = yaml.safe_load(configuration.read_text("utf-8"))
    kept["stores"]["lab"] = {"agents": ["ben"]}
    configuration.write_text(yaml.safe_dump(kept), "utf-8")
    eventually(lambda: "Unavailable" in visitor.get("/settings/stores").text)
    assert "listed in family, lab; choose one, or its own" in visitor.get("/settings/stores").text
    visitor.submit(visitor.get("/settings/stores/own?of=ben"))
    assert membership(world) == {"family": ["main"], "lab": []}


def test_the_page_lists_each_agent_and_every_known_store_unused_ones_too(world: World, visitor: Reader) -> None:
    shared(world, visitor)
    world.call("save_page", {"title": "Notes", "type": "project", "body": "x"}, OwnerPrivate("research"))
    visitor.submit(visitor.get("/settings/stores/join?of=research&name=family"))
    page = visitor.get("/settings/stores")
    for said in ("main uses family", "ben uses family", "research uses family", "Own store of research",
                 "unused: its agent uses a named store", "in use by main, ben, research"):  # fmt: skip
        assert said in page.text, said


def test_an_empty_named_store_remains_in_the_inventory(world: World, visitor: Reader) -> None:
    shared(world, visitor)
    for agent in ("main", "ben"):
        visitor.submit(visitor.get(f"/settings/stores/own?of={agent}"))
    assert membership(world) == {"family": []}
    assert "no agent uses it" in visitor.get("/settings/stores").text


def test_looking_at_settings_creates_no_store(world: World, visitor: Reader) -> None:
    for address in ("/settings/stores", "/settings/stores/own?of=ben", "/settings/vault", "/settings/conversations"):
        visitor.get(address)
    assert stores(world.bridge.state_dir) == []
    assert "There is no store yet" in visitor.get("/settings/stores").text


@pytest.mark.parametrize(
    ("address", "status"),
    [
        ("/settings/stores/join?of=main&name=nowhere", 404), ("/settings/stores/share?of=main&name=a%0Ab", 400),
        ("/settings/stores/share?of=main&name=" + "x" * 101, 400), (f"{GRANT}?conversation=a%0Ab&access=read", 400),
        (f"{GRANT}?conversation={'x' * 3_000}&access=none", 400),
    ],
)  # fmt: skip
def test_what_cannot_be_done_is_refused_before_it_is_confirmed(
    world: World, visitor: Reader, address: str, status: int
) -> None:
    world.page("Pilot")
    assert visitor.get(address, status=status).all("form", class_="ask") == []


def test_where_no_store_is_shared_the_form_says_how_one_is(visitor: Reader) -> None:
    page = visitor.get("/settings/stores/join?of=main")
    assert "No store is shared yet." in page.text
    assert "Go on" not in page.text


def test_a_move_to_what_is_used_already_is_said_to_change_nothing(visitor: Reader) -> None:
    assert "main uses its own store already; nothing changes." in visitor.get("/settings/stores/own?of=main").text


def test_an_address_alone_never_says_that_a_change_was_made(world: World, visitor: Reader) -> None:
    shared(world, visitor)
    for address in (
        "/settings/stores?done=share&of=research", "/settings/stores?done=own&of=main",
        "/settings/stores?done=join&of=nobody", "/settings/stores?done=gone&of=main",
        "/settings/conversations?done=read-save&conversation=k", "/settings/conversations?done=none",
    ):  # fmt: skip
        assert visitor.get(address).all("p", class_="done") == [], address
    assert visitor.get("/settings/stores?done=share&of=main").all("p", class_="done") != []


# --- conversation access ----------------------------------------------------------------------------------------------


def test_access_is_granted_to_a_conversation_after_its_consequence_was_named(world: World, visitor: Reader) -> None:
    world.page("Pilot")
    world.read("status", {}, GROUP)
    page = visitor.get("/settings/conversations")
    assert "chat:group:42" in page.text
    asking = visitor.get(page.link("Can read"))
    for said in ("It cannot save: its saves fail", "whose key extends chat:group:42 with “:”", "recall candidates"):
        assert said in asking.text
    assert world.read("records", {}, GROUP)["total"] == 0
    done = visitor.submit(asking)
    assert "chat:group:42 can read now." in done.text
    assert world.read("records", {}, GROUP)["total"] == 1


def test_removing_access_says_that_it_cannot_remove_what_was_already_retrieved(world: World, visitor: Reader) -> None:
    world.page("Pilot")
    visitor.submit(visitor.get("/settings/conversations/grant?conversation=chat:group:42&access=read-save"))
    assert world.read("records", {}, GROUP)["total"] == 1
    asking = visitor.get(visitor.get("/settings/conversations").link("Remove access"))
    assert "Removing access stops future reads and saves." in asking.text
    assert "It cannot remove what the conversation already retrieved." in asking.text
    done = visitor.submit(asking)
    assert "What it already retrieved cannot be taken back." in done.text
    assert world.read("records", {}, GROUP)["total"] == 0


def test_a_grant_that_matches_no_known_session_is_marked(world: World, visitor: Reader) -> None:
    world.page("Pilot")
    page = visitor.submit(visitor.get("/settings/conversations/grant?conversation=chat:other&access=read"))
    assert "No known conversation" in page.text
    world.read("status", {}, GROUP)
    visitor.submit(visitor.get("/settings/conversations/grant?conversation=chat:group:42&access=read"))
    assert visitor.get("/settings/conversations").text.count("No known conversation") == 1


def test_there_is_no_grant_that_only_saves(world: World, visitor: Reader) -> None:
    page = visitor.get("/settings/conversations")
    offered = [one.attributes["value"] for one in page.all("option") if "read" in one.attributes["value"]]
    assert offered == ["read", "read-save"]
    status, _ = visitor.post(GRANT, [("conversation", "chat:x"), ("access", "save")])
    assert status == 400


# --- who may ----------------------------------------------------------------------------------------------------------


def test_a_change_without_the_forms_token_is_refused_and_changes_nothing(world: World, visitor: Reader) -> None:
    world.page("Pilot")
    share = [("of", "main"), ("name", "family")]
    assert visitor.post("/settings/stores/share", share, token="guessed")[0] == 403
    assert visitor.post(GRANT, [("conversation", "k"), ("access", "read")], token="")[0] == 403
    assert membership(world) == {}
    assert world.bridge.ask("access.grants.list", {"agent": "main"})["grants"] == []


def test_changes_need_operator_admin(world: World) -> None:
    world.page("Pilot")
    reader = Reader(BridgeConsole(world.bridge, READER))
    for address in ("/settings/stores/share?of=main&name=family", f"{GRANT}?conversation=k&access=read"):
        page = reader.get(address)
        assert "This needs the scope operator.admin." in page.text
        assert [one.attributes["action"] for one in page.all("form", method="post")] == ["/theme", "/session/end"]
    assert reader.post("/settings/stores/share", [("of", "main"), ("name", "family")])[0] == 403
    assert reader.post(GRANT, [("conversation", "k"), ("access", "read")])[0] == 403
    assert membership(world) == {}


def test_an_operator_with_a_role_changes_its_own_agents_only(world: World) -> None:
    world.page("Pilot")
    world.call("save_page", {"title": "Notes", "type": "project", "body": "x"}, OwnerPrivate("ben"))
    operator = Reader(BridgeConsole(world.bridge, MAINS))
    operator.get("/settings/stores/own?of=ben", status=404)
    operator.get("/settings/stores/share?of=main&name=family&with=ben", status=400)
    operator.get(f"{GRANT}?conversation=k&access=read&agent=ben", status=403)
    fields = [("conversation", "k"), ("access", "read")]
    assert operator.post("/settings/conversations/grant?agent=ben", fields)[0] == 403
    assert operator.post(GRANT, fields)[0] == 303


def test_a_get_changes_nothing_and_a_reload_after_a_change_repeats_nothing(world: World, visitor: Reader) -> None:
    shared(world, visitor)
    rows = world.bridge.ask("access.audit", {})["rows"]
    for _ in range(2):
        visitor.get("/settings/stores?done=share&of=main")
        visitor.get("/settings/stores/own?of=ben")
    assert world.bridge.ask("access.audit", {})["rows"] == rows


def test_changes_stand_in_the_audit_with_who_made_them(world: World, visitor: Reader) -> None:
    shared(world, visitor)
    assert "store share by operator:local" in visitor.get("/").text

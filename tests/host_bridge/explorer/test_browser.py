"""The explorer in a real browser, behind the real HTTP door: what a script adds, and what must never happen.

``$KNOWLEDGE_SCREENSHOTS``: a folder for pictures of ten views in both themes; else they go with the test's own folder.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import pytest

from host_bridge.explorer import routes
from host_bridge.http.server import HttpServer, HttpSettings
from messages.operator import LOCAL_OPERATOR, Operator
from tests.host_bridge.explorer.test_hostile import BODY, HOSTILE
from tests.host_bridge.explorer.world import CONFIGURATION, GROUP, World, furnish, open_world
from tests.kit.store import page_file, write_note

playwright = pytest.importorskip("playwright.sync_api", reason="needs chromium and playwright")
from playwright.sync_api import (  # noqa: E402
    Browser,
    BrowserContext,
    ConsoleMessage,
    Dialog,
    Page,
    expect,
    sync_playwright,
)  # fmt: skip

CHROMIUM: Final = shutil.which("chromium")
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(CHROMIUM is None, reason="needs chromium"),
    pytest.mark.filterwarnings("ignore::ResourceWarning"),  # playwright's own pipes
]
VIEWS: Final = ("activity", "recent", "browse", "search", "page", "claim", "evidence", "revision", "graph", "timeline",
                "due", "stores", "confirm", "vault")  # fmt: skip


@pytest.fixture(scope="module")
def chromium() -> Iterator[Browser]:
    with sync_playwright() as started:
        browser = started.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield browser
        browser.close()


@dataclass
class Desk:
    """A served world and a browser at it. ``troubles`` are errors of its pages, dialogs and requests elsewhere."""

    world: World
    server: HttpServer
    browser: Browser
    troubles: list[str]

    def sign_in(
        self, operator: Operator = LOCAL_OPERATOR, *, javascript: bool = True, dark: bool = False, narrow: bool = False
    ) -> BrowserContext:
        """A browser of its own with a session of this operator."""
        context = self.browser.new_context(
            java_script_enabled=javascript,
            color_scheme="dark" if dark else "light",
            viewport={"width": 390, "height": 844} if narrow else {"width": 1280, "height": 860},
            locale="en-GB",
            timezone_id="Asia/Tokyo",
        )
        context.set_default_timeout(15_000)
        context.on("page", self._watch)
        page = context.new_page()
        page.goto(self.server.session_link(operator, plain_host=True))
        page.wait_for_url(f"{self.server.url}/")
        page.close()
        return context

    def open(self, context: BrowserContext, path: str) -> Page:
        page = context.new_page()
        page.goto(f"{self.server.url}{path}")
        return page

    def _watch(self, page: Page) -> None:
        def requested(url: str) -> None:
            if not url.startswith((self.server.url, "data:")):
                self.troubles.append(f"request to {url}")

        def asked(dialog: Dialog) -> None:
            self.troubles.append(f"dialog {dialog.message}")
            dialog.dismiss()

        def said(message: ConsoleMessage) -> None:
            # A refused page is no trouble; everything else is, a broken policy above all.
            if message.type == "error" and "Failed to load resource" not in message.text:
                self.troubles.append(message.text)

        page.on("request", lambda request: requested(request.url))
        page.on("pageerror", lambda error: self.troubles.append(f"error {error}"))
        page.on("dialog", asked)
        page.on("console", said)


@contextmanager
def served(world: World, chromium: Browser) -> Iterator[Desk]:
    server = HttpServer(world.bridge, HttpSettings("127.0.0.1:0"), explorer_routes=routes)
    desk = Desk(world, server, chromium, [])
    try:
        yield desk
        for context in chromium.contexts:
            context.close()
        assert desk.troubles == []
    finally:
        server.close()


@pytest.fixture(scope="module")
def furnished_world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    with open_world(tmp_path_factory.mktemp("browser")) as world:
        furnish(world)
        yield world


@pytest.fixture
def desk(furnished_world: World, chromium: Browser) -> Iterator[Desk]:
    with served(furnished_world, chromium) as made:
        yield made


@pytest.fixture
def fresh(tmp_path: Path, chromium: Browser) -> Iterator[Desk]:
    with open_world(tmp_path / "state") as world, served(world, chromium) as made:
        yield made


# --- reading ----------------------------------------------------------------------------------------------------------


def test_a_person_browses_from_a_list_to_a_record_to_its_evidence(desk: Desk) -> None:
    page = desk.open(desk.sign_in(), "/")
    page.get_by_role("link", name="Recent", exact=True).click()
    page.get_by_role("link", name="Claims").click()
    page.get_by_role("link", name="The gateway stands on the clubhouse roof.").click()
    expect(page.get_by_role("heading", level=1)).to_have_text("The gateway stands on the clubhouse roof.")
    page.get_by_role("link", name="lines 12 to 20 of group-chat.txt").click()
    expect(page.get_by_role("heading", level=1)).to_have_text("group-chat.txt")
    cited = page.locator("tr.cited")
    expect(cited).to_have_count(9)
    expect(cited.first).to_be_in_viewport()
    expect(page.get_by_text("The original still has exactly the bytes that were cited")).to_be_attached()


def test_a_search_is_one_field_away_from_everywhere_and_marks_what_it_found(desk: Desk) -> None:
    page = desk.open(desk.sign_in(), "/settings/vault")
    page.get_by_label("Search records").fill("colour-blind")
    page.keyboard.press("Enter")
    page.wait_for_url("**/search?q=colour-blind")
    assert {text.casefold() for text in page.locator("mark").all_inner_texts()} <= {"colour", "blind"}
    expect(page.locator("mark").first).to_be_visible()


def test_a_revision_shows_what_changed_word_by_word(desk: Desk) -> None:
    page = desk.open(desk.sign_in(), f"/record/{desk.world.ids['Winter plan']}")
    page.get_by_role("link", name="edited outside").click()
    expect(page.locator(".diff ins")).to_have_text(", left of the old skiff")
    expect(page.locator(".diff del")).to_have_count(0)


def test_reading_works_wholly_without_a_script(desk: Desk) -> None:
    context = desk.sign_in(javascript=False)
    page = desk.open(context, "/recent")
    expect(page.locator("time").first).to_contain_text("UTC")
    page.get_by_role("link", name="Tidepool", exact=True).first.click()
    expect(page.get_by_role("heading", level=1)).to_have_text("Tidepool")
    page.get_by_text("File details").click()
    expect(page.get_by_text("projects/tidepool.md")).to_be_visible()
    page.get_by_role("link", name="Neighbourhood as a graph").click()
    expect(page.locator(".edges li").first).to_be_visible()
    page.get_by_label("Agent").select_option("ben")
    page.get_by_role("button", name="Show").click()
    expect(page.get_by_role("heading", level=1)).to_have_text("ben has no store yet")
    page.get_by_role("button", name="Dark").click()
    expect(page.locator("html")).to_have_attribute("data-theme", "dark")


def test_times_are_in_the_readers_zone_with_utc_on_hover(desk: Desk) -> None:
    page = desk.open(desk.sign_in(), f"/record/{desk.world.ids['Tidepool']}")
    shown = page.locator("time").first
    instant = shown.get_attribute("datetime") or ""
    assert shown.get_attribute("title") == f"{instant.replace('T', ' ')[:19]} UTC"
    hour = (int(instant[11:13]) + 9) % 24
    expect(shown).to_contain_text(f"{hour:02}:{instant[14:16]}")


def test_a_request_for_a_change_is_copied_and_not_sent(desk: Desk) -> None:
    context = desk.sign_in()
    context.grant_permissions(["clipboard-read", "clipboard-write"])
    page = desk.open(context, f"/record/{desk.world.ids['Tidepool']}")
    page.get_by_text("Request a change").click()
    page.get_by_role("button", name="Copy").last.click()
    expect(page.get_by_role("button", name="Copied")).to_be_visible()
    copied = str(page.evaluate("navigator.clipboard.readText()"))
    record = desk.world.record(desk.world.ids["Tidepool"])
    assert all(f"{name}: {record[name]}\n" in copied for name in ("id", "revision", "hash"))


# --- the graph --------------------------------------------------------------------------------------------------------


def test_the_graph_can_be_walked_by_keyboard(desk: Desk) -> None:
    page = desk.open(desk.sign_in(), f"/record/{desk.world.ids['Tidepool']}/graph")
    page.wait_for_selector("[data-graph][data-state=still]")
    nodes = page.locator(".graph a.node")
    assert nodes.count() > 20
    nodes.first.focus()
    seen = {page.evaluate("document.activeElement.ariaLabel")}
    for key in ("ArrowRight", "ArrowUp", "ArrowLeft", "ArrowDown", "ArrowRight"):
        page.keyboard.press(key)
        seen.add(page.evaluate("document.activeElement.ariaLabel"))
    assert len(seen) > 2
    label = str(page.evaluate("document.activeElement.ariaLabel"))
    page.keyboard.press("Enter")
    expect(page.get_by_role("heading", level=1)).to_contain_text(label.split(" ", 1)[1].rsplit(",", 1)[0][:20])


def test_a_large_neighbourhood_is_cut_to_three_hundred_and_comes_to_rest(fresh: Desk) -> None:
    hub = fresh.world.page("Hub")
    for number in range(320):
        write_note(fresh.world.private, f"many/{number}.md",
                   page_file(f"n{number}", f"Note {number}", body=f"See [[Hub]] and [[Note {(number * 7) % 320}]]."))
    page = fresh.open(fresh.sign_in(), f"/record/{hub}/graph")
    page.wait_for_selector("[data-graph][data-state=still]", timeout=60_000)
    assert 200 <= page.locator(".graph a.node").count() <= 300
    frames = page.locator("[data-graph]").get_attribute("data-frames-per-second")
    print(f"{page.locator('.graph a.node').count()} nodes at {frames} frames a second")
    expect(page.get_by_text("There is more around it than is shown here.")).to_be_visible()


# --- what must never happen -------------------------------------------------------------------------------------------


def test_hostile_texts_run_nothing_load_nothing_and_break_no_policy(fresh: Desk) -> None:
    ids = [fresh.world.page("Bait", body=BODY)]
    for number, text in enumerate(HOSTILE):
        title = " ".join(text.split())
        note = page_file(f"h{number}", title, body=f"[[Bait]]\n\n{text}\n\n{BODY}", tags=[title], aliases=[text])
        write_note(fresh.world.private, f"x/h{number}.md", note)
        ids.append(f"h{number}")
    context = fresh.sign_in()
    page = context.new_page()
    addresses = ["/", "/recent", "/browse?lifecycle=all", "/search?q=alert", "/timeline"]
    addresses += [f"/record/{one}{rest}" for one in ids for rest in ("", "/graph")]
    for address in addresses:
        page.goto(f"{fresh.server.url}{address}")
        assert page.locator("main img, main svg [onload], main script, iframe, style").count() == 0, address
        for link in page.locator("main a").evaluate_all("all => all.map(one => one.href.baseVal ?? one.href)"):
            assert str(link).startswith((fresh.server.url, "https://example.org/", "/record/", "mailto:")), link
    assert fresh.troubles == []


# --- keeping current --------------------------------------------------------------------------------------------------


def test_what_an_agent_saves_appears_on_an_open_page(fresh: Desk) -> None:
    fresh.world.page("First")
    page = fresh.open(fresh.sign_in(), "/recent")
    expect(page.get_by_role("link", name="First")).to_be_visible()
    fresh.world.page("Second")
    expect(page.get_by_role("link", name="Second")).to_be_visible(timeout=10_000)


def test_two_tabs_look_at_two_agents_and_each_hears_of_its_own(fresh: Desk) -> None:
    from messages.audience import OwnerPrivate

    fresh.world.page("Of main")
    fresh.world.call("save_page", {"title": "Of ben", "type": "project", "body": "x"}, OwnerPrivate("ben"))
    context = fresh.sign_in()
    mains, bens = fresh.open(context, "/recent"), fresh.open(context, "/recent?agent=ben")
    fresh.world.call("save_page", {"title": "New of ben", "type": "project", "body": "x"}, OwnerPrivate("ben"))
    bens.bring_to_front()
    expect(bens.get_by_role("link", name="New of ben")).to_be_visible(timeout=10_000)
    mains.bring_to_front()
    fresh.world.page("New of main")
    expect(mains.get_by_role("link", name="New of main")).to_be_visible(timeout=10_000)
    expect(mains.get_by_role("link", name="of ben")).to_have_count(0)
    mains.get_by_label("Agent").select_option("ben")
    expect(mains.get_by_role("link", name="New of ben")).to_be_visible()


def test_a_revocation_empties_an_open_page(fresh: Desk) -> None:
    fresh.world.page("Secret plan")
    page = fresh.open(fresh.sign_in(), "/recent")
    expect(page.get_by_role("link", name="Secret plan")).to_be_visible()
    configuration = fresh.world.bridge.state_dir / "knowledge.yaml"
    configuration.write_text(f"{CONFIGURATION}operatorRead: false\n", "utf-8")
    expect(page.get_by_role("heading", level=1)).to_have_text("You may not see this", timeout=15_000)
    assert "Secret plan" not in page.content()


def test_a_session_that_ends_empties_every_page_of_it(fresh: Desk) -> None:
    fresh.world.page("Secret plan")
    context = fresh.sign_in()
    page, other = fresh.open(context, "/recent"), fresh.open(context, "/settings/vault")
    other.get_by_role("button", name="Sign out").click()
    expect(other.get_by_role("heading", level=1)).to_have_text("You are signed out")
    page.bring_to_front()
    expect(page.get_by_role("heading", level=1)).to_have_text("You are signed out", timeout=15_000)
    assert "Secret plan" not in page.content()


def test_a_lost_connection_is_said_and_what_happened_meanwhile_is_shown_once_it_is_back(fresh: Desk) -> None:
    fresh.world.page("First")
    context = fresh.sign_in()
    page = fresh.open(context, "/recent")
    expect(page.get_by_role("link", name="First")).to_be_visible()
    with page.expect_response("**/hints"):
        page.reload()
    page.wait_for_function("!('lost' in document.documentElement.dataset)")
    context.set_offline(True)
    page.evaluate("document.dispatchEvent(new Event('visibilitychange'))")  # it asks, as when it becomes visible
    expect(page.locator("html[data-lost]")).to_have_count(1)
    fresh.world.page("Second")
    context.set_offline(False)
    expect(page.get_by_role("link", name="Second")).to_be_visible(timeout=15_000)
    expect(page.locator("html[data-lost]")).to_have_count(0)


def test_open_details_and_the_place_of_the_keyboard_survive_a_refresh(fresh: Desk) -> None:
    pilot = fresh.world.page("Pilot")
    page = fresh.open(fresh.sign_in(), f"/record/{pilot}")
    page.get_by_text("File details").click()
    page.get_by_role("link", name="Neighbourhood as a graph").focus()
    fresh.world.claim("The pier has a lamp.", subject="Pilot")
    expect(page.get_by_text("The pier has a lamp.").first).to_be_visible(timeout=10_000)
    expect(page.get_by_text("projects/pilot.md")).to_be_visible()
    assert page.evaluate("document.activeElement.textContent") == "Neighbourhood as a graph"


def test_what_a_person_is_writing_is_not_taken_away_by_a_refresh(fresh: Desk) -> None:
    pilot = fresh.world.page("Pilot")
    page = fresh.open(fresh.sign_in(), f"/record/{pilot}")
    page.get_by_text("Request a change").click()
    page.get_by_label("Request for an agent").fill("It has two lamps.")
    with page.expect_response(lambda answer: answer.url.endswith(pilot) and answer.request.resource_type == "fetch"):
        fresh.world.claim("The pier has a lamp.", subject="Pilot")
    expect(page.get_by_label("Request for an agent")).to_have_value("It has two lamps.")


COALESCED: Final = """async () => {
  const { Coalesced } = await import("/assets/live.js");
  globalThis.runs = 0;
  globalThis.coalesced = new Coalesced(() => { globalThis.runs += 1; });
}"""


def test_hints_become_one_refresh_per_quiet_period_and_at_most_three_seconds_after_the_first(desk: Desk) -> None:
    page = desk.open(desk.sign_in(), "/settings/vault")
    page.clock.install(time=0)
    page.clock.pause_at(1_000)
    page.evaluate(COALESCED)

    def runs() -> object:
        return page.evaluate("runs")

    for _ in range(3):
        page.evaluate("coalesced.hint()")
        page.clock.run_for(700)
        assert runs() == 0
    page.clock.run_for(49)
    assert runs() == 0
    page.clock.run_for(1)
    assert runs() == 1, "750 ms after the last hint"
    for _ in range(6):
        page.evaluate("coalesced.hint()")
        page.clock.run_for(499)
    assert runs() == 1
    page.clock.run_for(6)
    assert runs() == 2, "three seconds after the first one, however many follow"
    page.clock.run_for(60_000)
    assert runs() == 2, "nothing is left over"


def test_a_visible_page_asks_again_after_thirty_seconds_without_a_hint(desk: Desk) -> None:
    page = desk.sign_in().new_page()
    page.clock.install(time=0)
    page.clock.pause_at(1_000)
    page.add_init_script("globalThis.asked = 0; const ask = fetch; fetch = (...all) => (asked++, ask(...all))")
    page.goto(f"{desk.server.url}/settings/vocabulary")
    page.clock.run_for(29_900)
    assert page.evaluate("asked") == 0
    page.clock.run_for(200)
    assert page.evaluate("asked") == 1


# --- settings ---------------------------------------------------------------------------------------------------------


def test_the_three_moves_and_a_grant_by_hand(fresh: Desk) -> None:
    world = fresh.world
    world.page("Pilot")
    world.read("status", {}, GROUP)
    page = fresh.open(fresh.sign_in(), "/settings/stores")
    page.get_by_role("link", name="Share this store").click()
    page.get_by_label("Name in the configuration").fill("family")
    page.get_by_label("ben").check()
    page.get_by_role("button", name="Go on").click()
    expect(page.get_by_text("There is no hidden private copy.")).to_be_visible()
    page.get_by_role("button", name="Share this store").click()
    expect(page.get_by_text("The store of main is shared now.")).to_be_visible()
    page.get_by_role("link", name="Use shared store").click()
    page.get_by_label("family").check()
    page.get_by_role("button", name="Go on").click()
    page.get_by_role("button", name="Use shared store").click()
    expect(page.get_by_text("research uses the shared store now.")).to_be_visible()
    page.get_by_role("link", name="Use own store").last.click()
    page.get_by_role("button", name="Use own store").click()
    expect(page.get_by_text("research uses its own store now.")).to_be_visible()
    page.get_by_role("link", name="Conversation access").click()
    page.get_by_role("link", name="Can read", exact=True).click()
    page.get_by_role("button", name="Change access").click()
    assert world.read("records", {}, GROUP)["total"] == 1
    page.get_by_role("link", name="Remove access").click()
    expect(page.get_by_text("It cannot remove what the conversation already retrieved.")).to_be_visible()
    page.get_by_role("button", name="Take access away").click()
    expect(page.get_by_text("What it already retrieved cannot be taken back.")).to_be_visible()
    assert world.read("records", {}, GROUP)["total"] == 0


def test_a_store_that_fails_while_it_is_looked_at_says_so_on_the_open_page(fresh: Desk) -> None:
    fresh.world.page("Pilot")
    page = fresh.open(fresh.sign_in(), "/")
    (fresh.world.private.parent / "vault.json").unlink()
    page.clock.install()
    page.reload()
    expect(page.locator(".issues .stop").first).to_contain_text("The store")
    expect(page.locator(".issues .stop code").first).to_contain_text("knowledge")


# --- for everybody ----------------------------------------------------------------------------------------------------


def addresses(world: World) -> dict[str, str]:
    ids = world.ids
    history = world.ask("history", id=ids["Winter plan"])["rows"]
    assert isinstance(history, list)
    assert isinstance(history[1], dict)
    return {
        "activity": "/", "recent": "/recent", "browse": "/browse", "search": "/search?q=roof",
        "page": f"/record/{ids['Tidepool']}", "claim": f"/record/{ids['right']}",
        "evidence": f"/record/{ids['cited lines']}/evidence?n=0",
        "revision": f"/record/{ids['Winter plan']}/revision/{history[1]['sequence']}",
        "graph": f"/record/{ids['Tidepool']}/graph", "timeline": "/timeline", "due": "/due",
        "stores": "/settings/stores", "confirm": "/settings/stores/share?of=main&name=family&with=ben",
        "vault": "/settings/vault",
    }  # fmt: skip


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
@pytest.mark.parametrize("narrow", [False, pytest.param(True, marks=pytest.mark.exhaustive)], ids=["wide", "narrow"])
def test_every_view_fits_its_screen_in_both_themes(
    desk: Desk, dark: bool, narrow: bool, tmp_path: Path
) -> None:
    folder = Path(os.environ.get("KNOWLEDGE_SCREENSHOTS", tmp_path))
    folder.mkdir(parents=True, exist_ok=True)
    context = desk.sign_in(dark=dark, narrow=narrow)
    page = context.new_page()
    for name in VIEWS:
        page.goto(f"{desk.server.url}{addresses(desk.world)[name]}")
        if name == "graph":
            page.wait_for_selector("[data-graph][data-state=still]", timeout=30_000)
        overflow = page.evaluate("document.documentElement.scrollWidth - document.documentElement.clientWidth")
        assert overflow <= 0, name
        page.screenshot(path=folder / f"{name}-{'dark' if dark else 'light'}{'-narrow' if narrow else ''}.png")


def test_long_and_right_to_left_titles_stay_inside_the_page(fresh: Desk) -> None:
    fresh.world.page("W" * 200)
    arabic = fresh.world.page("مشروع العوامة الشتوية", body="النص العربي يبدأ من اليمين.\n\nAnd English from the left.")
    for narrow in (False, True):
        page = fresh.open(fresh.sign_in(narrow=narrow), "/recent")
        assert page.evaluate("document.documentElement.scrollWidth <= document.documentElement.clientWidth")
        page.goto(f"{fresh.server.url}/record/{arabic}")
        directions = page.locator(".prose p").evaluate_all("all => all.map(one => getComputedStyle(one).direction)")
        assert directions == ["rtl", "ltr"]


def test_the_keyboard_reaches_the_content_first_and_everything_in_order(desk: Desk) -> None:
    page = desk.open(desk.sign_in(), "/recent")
    page.keyboard.press("Tab")
    expect(page.get_by_text("Skip to the content")).to_be_focused()
    page.keyboard.press("Enter")
    page.keyboard.press("Tab")
    expect(page.get_by_role("link", name="Everything")).to_be_focused()

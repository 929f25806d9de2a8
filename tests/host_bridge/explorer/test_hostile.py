"""Texts of others stay texts: whatever stands in titles, bodies, names of files, tags, fields and requests."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Final
from urllib.parse import quote

import pytest

from host_bridge.explorer.markdown import render, web_address
from tests.host_bridge.explorer.browser import Element, Page, Reader
from tests.host_bridge.explorer.console import BridgeConsole
from tests.host_bridge.explorer.world import World, open_world
from tests.kit.hostile import broken_envelopes
from tests.kit.store import page_file, write_note, write_notes

HOSTILE: Final = (
    "<script>alert(1)</script>",
    "</title><script>alert(1)</script>",
    '"><img src=x onerror=alert(1)>',
    "<svg onload=alert(1)>",
    "javascript:alert(1)",
    "data:text/html,<script>alert(1)</script>",
    "{{ 7 * 7 }}{% include '/etc/passwd' %}",
    "${7*7} #{7*7} <%= 7*7 %>",
    "safe \u202egnp.exe\u202c name",
    "a\u2066b\u2069\u200fc",
    "' onmouseover='alert(1)",
    "&lt;script&gt;alert(1)&lt;/script&gt;",
    "<!-- --><iframe srcdoc='<script>alert(1)</script>'>",
    "مرحبا بالعالم <b>x</b>",
    "]]>]]&gt;<style>*{display:none}</style>",
)
BODY: Final = "\n\n".join(
    (
        *HOSTILE,
        "[a](javascript:alert(1)) [b](JaVaScRiPt:alert(1)) [c](java\tscript:alert(1)) [d](data:text/html,x)",
        "[e](vbscript:x) [f](file:///etc/passwd) [g](//example.org/x) [h](&#106;avascript:x) [i](\\\\example.org)",
        "![j](javascript:alert(1)) ![k](https://example.org/p.png) ![l](data:image/svg+xml,<svg>)",
        "<javascript:alert(1)> <https://example.org/ok> [m]: javascript:alert(1)\n\n[m]",
        '[n](https://example.org/"onclick="alert(1)) [[<img src=x onerror=alert(1)>]] [[x|<script>alert(1)</script>]]',
        "```<script>\n</code></pre><script>alert(1)</script>\n```",
        "| <script>alert(1)</script> | b |\n|---|---|\n| [x](javascript:alert(1)) | <svg/onload=alert(1)> |",
        "[^<script>]: <script>alert(1)</script>\n\n[^<script>]",
    )
)
ELEMENTS: Final = frozenset(
    "html head meta title link script body a header form input label select option button nav ul li h1 h2 h3 h4 "
    "h5 h6 fieldset legend main p strong em b i bdi span section article aside div dl dt dd ol code pre blockquote "
    "table thead tbody tr th td time mark del ins details summary textarea small br hr sup datalist".split()
)
ATTRIBUTES: Final = re.compile(
    r"lang|charset|name|content|rel|href|type|src|class|id|tabindex|role|action|method|value|aria-[a-z]+|data-[a-z-]+|"
    r"for|placeholder|maxlength|dir|selected|hidden|title|datetime|download|rows|pattern|size|list|required|checked|"
    r"autocomplete|autofocus|open|scope|start|http-equiv"
)


def assert_harmless(page: Page) -> None:
    """Only known elements and attributes, one script, which is ours, and no address that acts."""
    for element in page.elements:
        assert element.name in ELEMENTS, (page.address, element.name, element.attributes)
        for name, value in element.attributes.items():
            assert ATTRIBUTES.fullmatch(name), (page.address, element.name, name)
            if name in ("href", "src", "action"):
                acting = not re.match(r"(/(?![/\\])|#|https?://|mailto:)", value)
                assert not acting, (page.address, element.name, name, value)
    assert [one.attributes["src"].split("?")[0] for one in page.all("script")] == ["/assets/explorer.js"]
    assert all("49" not in one.text for one in page.all("h1"))
    assert "alert(1)" not in "".join(one.text for one in page.all("script"))


def turned(page: Page) -> list[Element]:
    """The elements in which a mark turns the direction of what follows it."""
    return [one for one in page.elements if re.search("[\u202a-\u202e\u2066-\u2069]", one.text)]


def pages_of(reader: Reader, ids: list[str]) -> Iterator[Page]:
    addresses = ["/", "/recent", "/browse?lifecycle=all", "/search?q=alert", "/timeline", "/due", "/settings/vault"]
    addresses += [f"/record/{one}{rest}" for one in ids for rest in ("", "/history", "/graph", "/connections/claims")]
    for address in addresses:
        yield reader.get(address, status=None)


@pytest.fixture(scope="module")
def hostile(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[World, list[str]]]:
    with open_world(tmp_path_factory.mktemp("hostile")) as world:
        ids = [world.page("Bait", body=BODY)]
        for number, text in enumerate(HOSTILE):
            title = " ".join(text.split())
            write_note(world.private, f"x/h{number}.md",
                       page_file(f"h{number}", title, body=f"{text}\n\n[[Bait]] {BODY}", tags=[title], aliases=[text],
                                 fields={"status": text}))  # fmt: skip
            ids.append(f"h{number}")
        ids += [world.claim(text) for text in HOSTILE]
        yield world, ids


def test_hostile_titles_bodies_tags_fields_and_claims_stay_text_on_every_page(
    hostile: tuple[World, list[str]],
) -> None:
    world, ids = hostile
    for page in pages_of(Reader(BridgeConsole(world.bridge)), ids):
        assert_harmless(page)


def test_what_is_hostile_is_still_there_to_be_read(hostile: tuple[World, list[str]]) -> None:
    world, _ = hostile
    page = Reader(BridgeConsole(world.bridge)).get("/record/h0")
    assert page.title == HOSTILE[0]
    assert "<iframe srcdoc=" in page.text
    assert "{{ 7 * 7 }}" in Reader(BridgeConsole(world.bridge)).get("/record/h6").title


def test_marks_that_turn_the_direction_of_a_text_are_shown_by_their_numbers(hostile: tuple[World, list[str]]) -> None:
    world, _ = hostile
    page = Reader(BridgeConsole(world.bridge)).get("/record/h8")
    assert "\u202e" not in page.title
    assert "safe ⟨U+202E⟩gnp.exe⟨U+202C⟩ name" in page.title
    for page in pages_of(Reader(BridgeConsole(world.bridge)), ["h8", "h9"]):
        assert turned(page) == [], page.address


@pytest.mark.parametrize(
    "address",
    [
        "/search?q=", "/find?name=", "/browse?match=", "/browse?tag=", "/browse?type=", "/browse?since=",
        "/recent?kind=", "/timeline?subject=", "/record/", "/recent?agent=", "/settings/vocabulary?name=",
        "/publication/",
        "/settings/stores/share?of=main&name=", "/settings/stores/join?of=main&name=", "/settings/stores?done=own&of=",
        "/settings/stores/own?of=", "/settings/conversations/grant?access=read&conversation=",
        "/settings/conversations?done=none&conversation=", "/",
    ],
)  # fmt: skip
def test_what_an_address_says_turns_the_direction_of_no_text(world: World, visitor: Reader, address: str) -> None:
    world.page("Pilot")
    page = visitor.get(address + quote("a\u202eb\u2066c"), status=None)
    assert turned(page) == []
    assert page.unbalanced == []


def test_marks_that_turn_the_direction_are_shown_by_their_numbers_everywhere_in_a_body() -> None:
    body = "a\u202eb `c\u202ed` **e\u202ef** [g\u202eh](https://example.org) [^j\u202ek]\n\n"
    body += "```\nl\u202em\n```\n\n<b\u202e>\n\n"
    html = str(render(body + "| n\u202eo |\n|---|\n| p\u202eq |\n\n[^j\u202ek]: r\u202es", "", lambda _: None))
    assert "\u202e" not in html
    assert html.count("⟨U+202E⟩") >= 9


def test_a_hostile_request_stays_text(hostile: tuple[World, list[str]]) -> None:
    world, _ = hostile
    reader = Reader(BridgeConsole(world.bridge))
    for text in HOSTILE:
        for address in ("/search", "/find", "/browse", "/timeline", "/settings/vocabulary", "/settings/stores/share",
                        "/settings/conversations/grant"):  # fmt: skip
            names = ("q", "name", "match", "tag", "type", "subject", "conversation", "of", "done")
            fields = dict.fromkeys(names, text)
            assert_harmless(reader.get(address, status=None, **fields, access="read"))
        assert_harmless(reader.get("/recent", status=None, agent=text))


def test_whatever_lies_in_the_files_is_shown_without_a_defect(tmp_path: Path) -> None:
    with open_world(tmp_path / "state") as world:
        world.page("Pilot")
        write_notes(world.private, broken_envelopes())
        ids = ["hub", "hub2", "m1", "self", "w1", "w2", "w3", "now", "future", "past", "long", "same"]
        for page in pages_of(Reader(BridgeConsole(world.bridge)), ids):
            assert_harmless(page)
            assert page.status in (200, 404, 409), page.address


@pytest.mark.parametrize("url", ["javascript:x", "JAVASCRIPT:x", "java\nscript:x", " javascript:x", "data:text/html,x",
                                 "vbscript:x", "file:///etc", "//example.org", "https:/x", "http://", "ftp://x", "x:y",
                                 "https://exa mple.org", "\x00https://x", "http://[::1"])  # fmt: skip
def test_only_the_web_and_mailboxes_are_addresses(url: str) -> None:
    assert web_address(url) is None


@pytest.mark.parametrize("url", ["https://example.org/a?b=c#d", "http://x.y", "HTTPS://X.Y/", "mailto:a@b.c"])
def test_addresses_of_the_web_are_kept_as_they_are(url: str) -> None:
    assert web_address(url) == url


def test_deep_and_long_markdown_is_rendered_in_bounds() -> None:
    quotes, items = ("> " * 3_000 + "deep", "- " * 3_000 + "deep")
    for text in (quotes, items, "[" * 5_000, "*" * 20_000, "<!-- " * 5_000, "\x00a" * 500):
        shown = str(render(text, "x.md", lambda target: None))
        assert "<script" not in shown
        assert shown.count("<blockquote>") <= 32


def test_a_picture_is_a_link_and_never_loaded() -> None:
    shown = str(render("![a map](https://example.org/map.png)", "x.md", lambda target: None))
    assert "<img" not in shown
    assert 'href="https://example.org/map.png" rel="noopener noreferrer nofollow"' in shown


def test_the_highest_heading_of_a_text_stands_directly_below_the_title() -> None:
    shown = str(render("### Who\n\n##### Where\n", "x.md", lambda target: None))
    assert "<h2" in shown
    assert "<h4" in shown
    assert "<h1" not in shown

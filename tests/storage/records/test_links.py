"""Links and sections of Markdown bodies: exact places, and only what CommonMark calls a link."""

from __future__ import annotations

import random
import re

import pyromark
import pytest
from markdown_it import MarkdownIt
from markdown_it.token import Token

from storage.records import utf16
from storage.records.links import Link, Markdown, Section, Target, parse, resolve, unescape, wikilink

HOSTILE_LINKS = [
    ("[a\\](b)](c)", ["inline `c` dest[9,10)"]),
    ("`[a](b)` [c](`d`)", ["inline ``d`` dest[13,16)"]),
    ('[a](<b c> "t (x)")', ["inline `b c` dest[4,9)"]),
    ("[a](b(c)d)[e](f(g)", ["inline `b(c)d` dest[4,9)"]),
    ('> [a](\n> b\n> "t")', ["inline `b` dest[9,10)"]),
    ("![x [y](z) w](v)", ["image inline `v` dest[14,15)", "inline `z` dest[8,9)"]),
    ("[r][] [R] [x][r]\n\n[r]: /1\n[R]: /2",
     ["collapsed `/1` [0,5)", "shortcut `/1` [6,9)", "reference `/1` [10,16)"]),
    ('[a](b "](c")', ["inline `b` dest[4,5)"]),
    ("[é😀](ü.md)😀<http://x.y/é>", ["inline `ü.md` dest[5,9)", "autolink `http://x.y/é` [11,25)"]),
    ("[[id|a\\|b]] and `[[id]]` and \\[[id]]", ["wikilink `id` [0,11)"]),
    ("| a |\n|---|\n| [[id\\|L]] [t](u) |", ["wikilink `id` [14,23)", "inline `u` dest[28,29)"]),
    ("<!-- [a](b) -->\n[c](d)\n\n[e](f)", ["inline `d` dest[20,21)", "inline `f` dest[28,29)"]),
    ("[^1]: word\n\n[^1] [^2]", []),
    ("    [a](b)\n\n[c](d)\n    [e](f)", ["inline `d` dest[16,17)", "inline `f` dest[27,28)"]),
    ("[a]()[b](<>)[c]( )", ["inline `` dest[4,4)", "inline `` dest[9,11)", "inline `` dest[17,17)"]),
    # More that went wrong in one parser or another
    ("[a ](b)", ["inline `b` dest[5,6)"]),
    ("[](b)![](c)", ["inline `b` dest[3,4)", "image inline `c` dest[9,10)"]),
    ("[*x* `y`](z)", ["inline `z` dest[10,11)"]),
    ("[a](b\\)c) [d](e&#41;f&amp;)", ["inline `b)c` dest[4,8)", "inline `e)f&` dest[14,26)"]),
    ("> - [a](\n>   b)", ["inline `b` dest[13,14)"]),
    ("[a](b\r\n'c')", ["inline `b` dest[4,5)"]),
    ("<a@b.c> <mailto:x>", ["email `a@b.c` [0,7)", "autolink `mailto:x` [8,18)"]),
    ("[[id]](url)", ["wikilink `id` [0,6)"]),
    ("\x00[a](b)", ["inline `b` dest[5,6)"]),
    ("| a |\n|---|\n| [x](a\\|b) |", ["inline `a|b` dest[18,22)"]),
]  # fmt: skip

HOSTILE_SECTIONS = [
    ("Para\n# A\nx\n---\n## B\n- # C\n> # D\n```\n# E\n```\n# F",
     [(1, "A", 5, 44), (2, "x", 9, 15), (2, "B", 15, 44), (1, "F", 44, 47)]),
    ("T1\nT2\n===\n\nx\n\nS\n---\ny", [(1, "T1 T2", 0, 21), (2, "S", 14, 21)]),
    ("#NoSpace\n\n\\# no\n\n    # no\n   # yes ##\n####### no", [(1, "yes", 26, 48)]),
    ("<div>\n# in html\n\n# out\n</div>", [(1, "out", 17, 29)]),
    ("😀\n# A\n", [(1, "A", 3, 7)]),
    ("> q\n===", []),
    ("#", [(1, "", 0, 1)]),
    ("# A `b` *c* [d](e)\r\n\r\n## X\r\n", [(1, "A b c d", 0, 28), (2, "X", 22, 28)]),
    ("### A\n# B\n## C\n### D\n## E",
     [(3, "A", 0, 6), (1, "B", 6, 25), (2, "C", 10, 21), (3, "D", 15, 21), (2, "E", 21, 25)]),
    ("# A\r# B\r", [(1, "A", 0, 4), (1, "B", 4, 8)]),
]  # fmt: skip


def shown(link: Link) -> str:
    place = f"dest[{link.dest_start},{link.dest_end})" if link.kind == "inline" else f"[{link.start},{link.end})"
    return f"{'image ' if link.image else ''}{link.kind} `{link.url}` {place}"


@pytest.mark.parametrize(("body", "expected"), HOSTILE_LINKS)
def test_links_lie_exactly_where_they_are(body: str, expected: list[str]) -> None:
    assert [shown(link) for link in parse(body).links] == expected


@pytest.mark.parametrize(("body", "expected"), HOSTILE_SECTIONS)
def test_sections_begin_at_their_heading_line_and_end_at_the_next_of_their_level(
    body: str, expected: list[tuple[int, str, int, int]]
) -> None:
    assert list(parse(body).sections) == [Section(*section) for section in expected]


@pytest.mark.parametrize(
    "lax",
    ["[[a [b] c]]", "[[a|b\nc]]", "[[a|b]c]]", "[[ id ]]", "![[id]]", "[[a b ]]", "[[\té]]", "[[id\\|x]]", "[[a|b|c]]",
     "> [[a|b\n> c]]"],
)  # fmt: skip
def test_a_bracket_form_that_is_not_strictly_a_wikilink_is_none_and_is_doubtful(lax: str) -> None:
    found = parse(f"x {lax} y")
    assert not [link for link in found.links if link.kind == "wikilink"]
    assert len(found.doubtful) <= 1
    if "b|c" not in lax and "[b]" not in lax:
        assert found.doubtful or not found.links


@pytest.mark.parametrize("tag", ["pre", "script", "style", "textarea"])
def test_links_behind_a_raw_block_that_another_tag_ends_are_doubtful_and_count_as_none(tag: str) -> None:
    other = "script" if tag != "script" else "pre"
    found = parse(f"<{tag}>\n</{other}>\n[a](b)\n")
    assert found.links == ()
    assert len(found.doubtful) == 1
    assert parse(f"<{tag}>\n</{tag}>\n\n[a](b)\n").doubtful == ()


def test_a_reference_before_an_escaped_bracket_is_doubtful_because_the_parser_loses_it() -> None:
    found = parse("[r]\\[e]\n\n[r]: /one")
    assert found.links == ()
    assert found.doubtful == ((2, 5),)
    assert parse("[r]\\[e] without a definition").doubtful == ()


def test_a_body_without_markup_is_not_parsed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pyromark, "events_with_range", None)
    assert parse("Plain text.\n\nWith 😀 and a - dash.") == Markdown()
    assert parse("") == Markdown()


# An independent reader


def oracle_targets(body: str) -> list[str]:
    reader = MarkdownIt("commonmark", {"maxNesting": 200}).enable(["table", "strikethrough"])
    reader.validateLink = lambda url: True  # type: ignore[method-assign]
    reader.normalizeLink = lambda url: url  # type: ignore[method-assign]

    def walk(tokens: list[Token]) -> list[str]:
        found: list[str] = []
        for token in tokens:
            if token.type == "link_open":
                found.append(str(token.attrs["href"]))
            elif token.type == "image":
                found.append(str(token.attrs["src"]))
            found += walk(token.children or [])
        return found

    return walk(reader.parse(body))


PIECES = [
    "[a](b)", "![i](p.png)", "[x](<a b> 't')", "[x](a\\)b)", "`[c](d)`", "\\[e](f)", "<http://x.y/z>", "*em [g](h)*",
    "[r][]", "[r]", "[t][r]", "\n\n[r]: /one\n\n", "\n> quote [q](w)\n", "\n- item [l](m)\n", "\n# Head [h](i)\n",
    "\n\n", "é😀", "text ", "[nest [a](b)](c)", "![alt [a](b)](c)", "[x](a(b)c)", "[x](u 'a\"b')", "~~[s](t)~~",
    "\n```\n[f](g)\n```\n",
    "<b>[z](y)</b>", "[a]( b )", "\\", "[x](&amp;)", "**b**", "1. [n](o)\n", "\n---\n", "[", "]", "(", ")", "!",
]  # fmt: skip


def test_link_targets_are_those_of_an_independent_reader() -> None:
    chance = random.Random(7)
    links_seen = 0
    for _ in range(400):
        body = "".join(chance.choice(PIECES) for _ in range(chance.randint(1, 8)))
        if "[[" in body or re.search(r"\[r\]!?\[", body):
            continue  # wikilinks it does not know; a reference directly followed by a bracket it reads differently
        if parse(body).doubtful:
            continue
        found = parse(body)
        assert [link.url for link in found.links] == oracle_targets(body), body
        links_seen += len(found.links)
        for link in found.links:
            assert body[link.start : link.start + 1] in ("[", "!", "<")
            assert body[link.end - 1] in "]>)"
            if link.kind == "inline":
                assert link.dest_start is not None, (body, link)
                assert link.dest_end is not None
                written = body[link.dest_start : link.dest_end]
                assert unescape(written[1:-1] if written.startswith("<") else written) == link.url
    assert links_seen > 300


def test_a_replaced_destination_changes_that_link_and_nothing_else() -> None:
    chance = random.Random(11)
    for _ in range(200):
        body = "".join(chance.choice(PIECES) for _ in range(chance.randint(1, 6)))
        before = parse(body).links
        for index, link in enumerate(before):
            if link.dest_start is None or "[[" in body:
                continue
            after = parse(body[: link.dest_start] + "<new.md>" + body[link.dest_end :]).links
            assert [found.url for found in after] == [
                "new.md" if place == index else found.url for place, found in enumerate(before)
            ], body


def test_section_offsets_are_utf16_units_of_the_heading_line() -> None:
    body = "😀 intro\n\n## Ä 😀\ntext 😀\n\n### Sub\n\n## Next\n"
    for section in parse(body).sections:
        start = utf16.Offsets(body).to_points(section.start)
        assert body[start:].startswith("#" * section.level + " " + section.heading)


@pytest.mark.parametrize(
    "attack",
    ["[" * 20_000, "[a](" * 10_000, "![" * 10_000 + "](x)", ">" * 10_000 + "[a](b)", "[[" * 10_000, "*a _b " * 10_000,
     "[a](b)" * 5_000, "# h\n" * 5_000, "<!-- " * 10_000, "- " * 3_000 + "[a](b)", "[r]: /x\n" * 5_000 + "[r]"],
)  # fmt: skip
@pytest.mark.timeout(60)
def test_hostile_bodies_do_not_hang_the_parse(attack: str) -> None:
    found = parse(attack)
    assert all(0 <= link.start < link.end <= len(attack) for link in found.links)


# Where links lead


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        ("[a](b.md)", Target("path", "pages/x/b.md")),
        ("[a](./b.md)", Target("path", "pages/x/b.md")),
        ("[a](../b.md?q#f)", Target("path", "pages/b.md", "?q#f")),
        ("[a](<b c.md>)", Target("path", "pages/x/b c.md")),
        ("[a](b%20c.md#x)", Target("path", "pages/x/b c.md", "#x")),
        ("[a](%FF.md)", Target("path", "pages/x/%FF.md")),
        ("[a](e\u0301.md)", Target("path", "pages/x/é.md")),
        ("[a](/people/alex.md)", Target("path", "people/alex.md")),
        ("[a](sub/)", Target("path", "pages/x/sub/")),
        ("[a](../../../x.md)", Target("outside", "../../../x.md")),
        ("[a](/../x.md)", Target("outside", "/../x.md")),
        ("[a](#top)", Target("self", "pages/x/p.md", "#top")),
        ("[a]()", Target("self", "pages/x/p.md")),
        ("[a](https://x.y/z)", Target("external", "https://x.y/z")),
        ("[a](mailto:x@y.z)", Target("external", "mailto:x@y.z")),
        ("[a](//x.y/z)", Target("external", "//x.y/z")),
        ("<a@b.c>", Target("external", "a@b.c")),
        ("[[6f1c|A]]", Target("record", "6f1c")),
        ("[r]\n\n[r]: b.md", Target("path", "pages/x/b.md")),
    ],
)
def test_a_link_leads_to_a_record_a_path_elsewhere_or_its_own_page(body: str, expected: Target) -> None:
    (link,) = parse(body).links
    assert resolve(link, "pages/x/p.md") == expected


@pytest.mark.parametrize("title", ["A [b] | c\\d\ne", "Plain", "", "]]", "日本 😀", " x "])
def test_a_written_wikilink_is_read_back_with_its_id(title: str) -> None:
    (link,) = parse(f"See {wikilink('6f1c-1', title)} there").links
    assert (link.kind, link.url) == ("wikilink", "6f1c-1")
    assert not set("[]|\\\n") & set(link.label)

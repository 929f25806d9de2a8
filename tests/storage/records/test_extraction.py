"""Moving a section: what is proved and what is refused, beside an independent reader of Markdown."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, TypeAlias

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from storage.records import utf16
from storage.records.events import anchor_of, events, headings
from storage.records.extraction import Extracted, NotExtractable, PageText, extract
from storage.records.html_links import relative_references
from storage.records.links import Link, Target, parse, resolve
from storage.records.rewriting import destination_for
from tests.storage.records.test_links import oracle_targets

SRC, DST = "pages/src.md", "pages/x/dst.md"
POINTER = "[[id|Title]]"


def move(
    body: str, destination: str = "", *, heading: str = "S", source: str = SRC, to: str = DST, summary: str = "Moved."
) -> Extracted:
    section = next(one for one in parse(body).sections if one.heading.startswith(heading))
    return extract(PageText(source, body), section.start, PageText(to, destination), summary=summary, pointer=POINTER)


def refusal(body: str, destination: str = "", summary: str = "Moved.") -> NotExtractable:
    with pytest.raises(NotExtractable) as raised:
        move(body, destination, summary=summary)
    return raised.value


# --- the hostile inputs ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("body", "destination", "reason", "link"),
    [
        ("# S\n[a][r]\n# N\n[r]: /x", "", "link_would_change", "[a][r]"),
        ("# S\nt\n# N", "```\ncode", "structure", None),
        ("# S\nt\n# N", "<!-- open", "structure", None),
        ("# S\n[foo]: /x\n# N", "see [foo]", "link_would_change", "[foo]"),
        ("# S\n[a][r]\n\n[r]: /x\n# N", "[r]: /y\n\n[q][r]", "link_would_change", "[a][r]"),
        # and more of their kind
        ("# S\n[a][r]\n\n[r]: x.md\n# N", "", "link_would_change", "[a][r]"),
        ("# S\n[r]: /x\n# N\n[r]", "", "link_would_change", "[r]"),
        ("# S\n[a](../../../b.md)\n# N", "", "link_would_change", "[a](../../../b.md)"),
        ("# S [a][r]\n\n[r]: /x\n# N", "", "link_would_change", "[a][r]"),
        ("# S\ntext [^1]\n# N\n[^1]: note", "", "footnote", "[^1]"),
        ("# S\ntext [^1]\n\n[^1]: note\n# N", "old [^1]\n\n[^1]: other", "footnote", "[^1]"),
        ("# S\n[[a [b] c]]\n# N", "", "doubtful", "[[a [b] c]]"),
        ("# S\n<pre>\n</script>\n[a](/b)\n</pre>\n# N", "", "doubtful", None),
        ("# S\nt\n# N", "<pre>\n</script>\n</pre>\n", "doubtful", None),
        ("# S\n[r]: /x\n</pre>\n# N", "", "doubtful", "</pre>"),
        ("# S\nt\n# N", "<pre>\n", "structure", None),
        ("# S\nt\x00\n# N", "", "unstorable", None),
        ('# S\n<a\nhref="b.md">b</a>\n# N', "", "html_link", "b.md"),
        ('# S\n<a href="#s">b</a>\n# N', "", "html_link", "#s"),
        ('# S\n<img srcset="b.png 2x">\n# N', "", "html_link", "b.png 2x"),
    ],
)  # fmt: skip
def test_what_cannot_be_proved_is_refused_and_the_link_in_the_way_is_named(
    body: str, destination: str, reason: str, link: str | None
) -> None:
    refused = refusal(body, destination)
    assert refused.reason == reason
    if link is not None or reason != "doubtful":
        assert refused.link == link


@pytest.mark.parametrize(
    ("body", "destination", "moved"),
    [
        ("# S\nt\n# N", "- item", "# S\nt\n"),
        ("# S\n[a](b.md)\n# N", "", "# S\n[a](../b.md)\n"),
        ('# S\n[a](<b c.md#x> "t")\n# N', "", '# S\n[a](<../b c.md#x> "t")\n'),
        ("# S\n`[a](b.md)` \\[c](d.md)\n# N", "", "# S\n`[a](b.md)` \\[c](d.md)\n"),
        ("# S\n![i](p.png)[![j](q.png)](r.md)\n# N", "", "# S\n![i](../p.png)[![j](../q.png)](../r.md)\n"),
        # and more of their kind
        ("# S\nt\n# N", "> quote", "# S\nt\n"),
        ("# S\nt\n# N", "| a |\n|---|\n| b |", "# S\nt\n"),
        ("# S\nt\n# N", "    code", "# S\nt\n"),
        ("# S\nt\n# N", "<div>", "# S\nt\n"),
        ("# S\n[a](b%20c.md?q=1&amp;r#x)\n# N", "", "# S\n[a](../b%20c.md?q=1&amp;r#x)\n"),
        ("# S\n[a](e\\)f.md)\n# N", "", "# S\n[a](../e\\)f.md)\n"),
        ("# S\n[a](<>)[b]()\n# N", "", "# S\n[a](<../src.md>)[b](../src.md)\n"),
        ("# S\n| a |\n|---|\n| [t](a\\|b) [[id\\|L]] |\n# N", "", "# S\n| a |\n|---|\n| [t](../a\\|b) [[id\\|L]] |\n"),
        ("# S\n> [a](\n> b.md\n> 't')\n# N", "", "# S\n> [a](\n> ../b.md\n> 't')\n"),
        ("# S\n[a][r]\n\n[r]: /x\n# N", "old", "# S\n[a][r]\n\n[r]: /x\n"),
        ("# S\ntext [^1]\n\n[^1]: note\n# N", "old", "# S\ntext [^1]\n\n[^1]: note\n"),
        ("# S\n<http://x.y> <a@b.c> [m](mailto:a@b.c) [p](//x.y/z)\n# N", "", None),
        ("# S\n<b>bold</b> <a href='https://x.y'>y</a>\n# N", "", None),
        ("# S [a](b.md)\n# N", "", "# S [a](../b.md)\n"),
    ],
)  # fmt: skip
def test_what_reads_the_same_moves(body: str, destination: str, moved: str | None) -> None:
    done = move(body, destination)
    assert done.moved == (body.partition("# N")[0] if moved is None else moved)
    assert done.destination_body.endswith(done.moved)
    assert done.destination_body.startswith(destination)


def test_a_destination_that_ends_with_a_blank_line_gets_no_other() -> None:
    assert move("# S\nt", "old\n\n").destination_body == "old\n\n# S\nt"
    assert move("# S\nt", "old\r\n").destination_body == "old\r\n\r\n# S\nt"
    assert move("# S\r\nt", "old").destination_body == "old\r\n\r\n# S\r\nt"
    assert move("# S\nt", "\n").destination_body == "\n# S\nt"


@pytest.mark.parametrize("summary", ["```\nopen", "# H", "a\n===", "<!-- x", "<pre>", "<pre>\n</script>\n</pre>"])
def test_a_summary_that_hides_the_pointer_or_begins_a_section_is_refused(summary: str) -> None:
    assert refusal("# S\nt\n# N", summary=summary).reason in ("summary", "doubtful")


@pytest.mark.parametrize("summary", ["`open", "- a\n- b", "> q", "1. one", "**open", "a [x](y.md) link", "    code"])
def test_a_summary_of_plain_blocks_leaves_the_pointer_a_link_of_its_own(summary: str) -> None:
    done = move("# S\nt\n# N", summary=summary)
    [pointer] = [link for link in parse(done.source_body).links if link.kind == "wikilink"]
    assert done.source_body[pointer.start : pointer.end] == POINTER


# --- the pieces it is made of ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("written", "source", "page", "expected"),
    [
        ("b.md", "a.md", "x/p.md", "../b.md"),
        ("b.md", "a/s.md", "b/p.md", "../a/b.md"),
        ("../b.md", "a/s.md", "b/p.md", "../b.md"),
        ("../b.md", "a/s.md", "p.md", "b.md"),
        ("./b.md", "a/s.md", "a/c/p.md", "../b.md"),
        ("../x:y.md", "a/s.md", "p.md", "./x:y.md"),
        ("sub/", "a/s.md", "p.md", "a/sub/"),
        ("<b c.md>", "a/s.md", "p.md", "<a/b c.md>"),
        ("b.md", "été (1)/s.md", "p.md", "été%20%281%29/b.md"),
        ("b.md", "50% & more/s.md", "p.md", "50%25%20%26%20more/b.md"),
        ("%2E%2E/b.md", "a/s.md", "p.md", "a/%2E%2E/b.md"),
        ("a%2Fb.md", "a/s.md", "p.md", "a/a%2Fb.md"),
        ("../../b.md", "a/s.md", "p.md", None),
        ("../..%2Fb.md", "a/s.md", "p.md", None),
    ],
)
def test_a_destination_is_written_for_another_folder(
    written: str, source: str, page: str, expected: str | None
) -> None:
    assert destination_for(written, source, page) == expected


def test_anchors_are_those_that_readers_on_the_web_give() -> None:
    text = "# Héllo, *World*!\n\n## Héllo World\n\n> # A_b-c `d`\n\nSetext\nhead\n---\n"
    assert [one.anchor for one in headings(events(text))] == ["héllo-world", "héllo-world-1", "a_b-c-d", "setext-head"]
    assert anchor_of("  日本 語 ") == "日本-語"


def test_relative_references_of_raw_html_are_those_of_its_attributes() -> None:
    html = '<a href="x.md">t</a> <IMG SRC=p.png> <a href="https://x.y"> <a href="/r"> <i title="z.md"> <a href>'
    assert relative_references(html) == ("x.md", "p.png", "")


def test_events_are_placed_in_code_points() -> None:
    text = "😀 é [a](b)\n"
    [link] = [event for event in events(text) if event.link is not None]
    assert text[link.start : link.end] == "[a](b)"


# --- random pages ---------------------------------------------------------------------------------------------------

Pieces: TypeAlias = Mapping[str, Sequence[str]]
PIECES: Final[Pieces] = {
    "plain": ["text ", "more words.", "é😀 "],
    "inline": ["[a](b.md)", "[x](./c.md 'a\"b')", "[x](d/e.md#f)", "[up](../u.md)"],
    "angle": ["[x](<a b.md> 't')", "[x](<p.md#h>)"],
    "escaped destination": ["[x](a\\)b.md)", "[x](a&amp;b.md)", "[x](a%20b.md)"],
    "balanced": ["[x](a(b)c.md)"],
    "image": ["![i](p.png)", "![alt [a](n.md)](c.png)"],
    "nested": ["[![j](q.png)](r.md)", "[nest [a](b.md)](c.md)"],
    "absolute": ["[h](https://x.y/z)", "<http://x.y/z>", "[r](/root.md)", "<a@b.c>"],
    "own page": ["[s](#sub)", "[t](#top)", "[e]()", "[q](#nowhere)", "[w](#s)"],
    "wikilink": ["[[id-1|One]]", "[[id-2]]", "[[Some Title]]"],
    "lax wikilink": ["[[a [b] c]]", "![[id-3]]", "[[ id ]]"],
    "reference": ["[r][]", "[t][r]", "[r]", "[T][ R ]"],
    "absolute definition": ["\n\n[r]: /one\n\n", "\n\n[r]: https://x.y/two 'title'\n\n"],
    "relative definition": ["\n\n[r]: one.md\n\n"],
    "code span": ["`[c](d.md)`", "``x ` y``"],
    "stray": ["`", "[", "]", "(", ")", "!", "*", "<", "\\", "|", "&"],
    "escaped link": ["\\[e](f.md)"],
    "emphasis": ["*em [g](h.md)*", "**b**", "~~[s](t.md)~~"],
    "sub heading": ["\n\n## Sub\n\n", "\n### Head [h](i.md)\n"],
    "setext heading": ["\n\nTwo\nlines\n---\n\n"],
    "heading in a container": ["\n> # C\n", "\n- # C\n"],
    "quote": ["\n> quote [q](w.md)\n"],
    "list": ["\n- item [l](m.md)\n", "\n1. [n](o.md)\n"],
    "table": ["\n\n| a |\n|---|\n| [t](u.md) [[id\\|L]] |\n\n"],
    "fence": ["\n```\n[f](g.md)\n```\n", "\n~~~\n# no\n~~~\n"],
    "open fence": ["\n```\n"],
    "indented": ["\n\n    [a](b.md)\n\n"],
    "comment": ["<!-- [a](b.md) -->"],
    "open comment": ["\n\n<!-- "],
    "div": ["\n\n<div>\n\n", "<b>[z](y.md)</b>"],
    "raw block": ["\n\n<pre>\n[a](b.md)\n</pre>\n\n"],
    "open raw block": ["\n\n<pre>\n", "\n\n<script>\n"],
    "raw end": ["\n</pre>\n", "</script>"],
    "relative html": ['<a href="x.md">x</a>', '<img src="p.png">'],
    "footnote": ["[^1]"],
    "footnote definition": ["\n\n[^1]: afootnote\n\n"],
    "rule": ["\n\n---\n\n"],
    "break": ["\n", "\n\n", "  \n"],
}
CONSTRUCTS: Final = (*PIECES, "carriage returns", "same folder", "other folder", "empty destination")
PATHS: Final = ("src.md", "pages/src.md", "a b/(c)/src.md")
PLACES: Final = ("dst.md", "pages/dst.md", "pages/x/dst.md", "other/dst.md")

_PIECE = st.sampled_from([(name, text) for name, texts in PIECES.items() for text in texts])
_TEXT = st.lists(_PIECE, min_size=0, max_size=7)


@dataclass
class Case:
    constructs: frozenset[str]
    source: PageText
    destination: PageText


@st.composite
def cases(draw: st.DrawFn) -> Case:
    parts = [draw(_TEXT) for _ in range(4)]
    head, section, tail, old = ("".join(text for _, text in part) for part in parts)
    body = f"{draw(st.sampled_from(['', '# Top', 'Intro.']))}\n\n{head}\n\n# S\n\n{section}\n\n# N\n\n{tail}\n"
    source, place = draw(st.sampled_from(PATHS)), draw(st.sampled_from(PLACES))
    constructs = {name for part in parts for name, _ in part}
    constructs.add("same folder" if source.rpartition("/")[0] == place.rpartition("/")[0] else "other folder")
    if not old:
        constructs.add("empty destination")
    if draw(st.booleans()):
        constructs.add("carriage returns")
        body, old = body.replace("\n", "\r\n"), old.replace("\n", "\r\n")
    return Case(frozenset(constructs), PageText(source, body), PageText(place, old))


@dataclass
class Seen:
    """What a run has seen: how often each construct stood in an example, and what became of the examples."""

    examples: int = 0
    compared: int = 0
    constructs: Counter[str] = field(default_factory=Counter)
    outcomes: Counter[str] = field(default_factory=Counter)

    def add(self, case: Case, outcome: str) -> None:
        self.examples += 1
        self.constructs.update(case.constructs)
        self.outcomes[outcome] += 1

    def check(self) -> None:
        """Print the share of examples of each construct; every one must have been tried."""
        shares = {name: 100 * self.constructs[name] / self.examples for name in CONSTRUCTS}
        print(f"{self.examples} examples; outcomes in percent:")
        print({name: round(100 * count / self.examples, 1) for name, count in self.outcomes.most_common()})
        print({name: round(share, 1) for name, share in sorted(shares.items(), key=lambda one: one[1])})
        assert min(shares.values()) >= 1, shares
        print(f"{self.compared} read by the independent reader too")
        assert self.compared * 10 >= self.outcomes["moved"] * 8
        assert not self.outcomes["summary"], "a plain summary was refused"
        assert self.outcomes["moved"] * 5 >= self.examples, self.outcomes
        assert self.outcomes["link_would_change"] * 50 >= self.examples, self.outcomes


Place: TypeAlias = tuple[str, str, str]


def placed(target: Target) -> Place:
    """A target by where it is, whether the link's own page or another's."""
    kind = "path" if target.kind == "self" else target.kind
    return kind, target.value, target.rest


def targets(links: Iterable[Link], path: str) -> Counter[Place]:
    return Counter(placed(resolve(link, path)) for link in links)


def told(body: str, path: str) -> Counter[Place]:
    """The targets that an independent reader finds. Footnotes, which it takes for links, are left out."""
    found = [url for url in oracle_targets(body) if url != "afootnote"]
    return Counter(placed(resolve(Link("inline", url, 0, 0), path)) for url in found)


# Where the other reader is wrong, or parsers differ: a reference directly before a bracket, and a definition directly
# before an indented line or the end of a raw block.
_READ_OTHERWISE: Final = re.compile(
    r"\[ ?r ?\]!?\[|^\[r\]:[^\r\n]*(?:\r\n|\n)(?:[ \t]{4,}|</)", re.MULTILINE | re.IGNORECASE
)


def following(moved: Counter[Place], case: Case, anchors: frozenset[str]) -> Counter[Place]:
    """The same targets, those of headings that came along named by the page that they came from."""
    found: Counter[Place] = Counter()
    for (kind, value, rest), count in moved.items():
        along = value == case.destination.path and rest.removeprefix("#") in anchors
        found[kind, case.source.path if along else value, rest] += count
    return found


def check_moved(case: Case, start: int, end: int, done: Extracted) -> bool:
    """Whether the independent reader could be asked too."""
    source, destination = case.source, case.destination
    head, section, tail = source.body[:start], source.body[start:end], source.body[end:]
    # No byte is lost, and none changes but in destinations.
    assert done.section == section
    assert done.source_body.startswith(head)
    assert done.source_body.endswith(tail)
    assert done.destination_body.startswith(destination.body)
    assert done.destination_body.endswith(done.moved)
    between = done.destination_body[len(destination.body) : len(done.destination_body) - len(done.moved)]
    assert not between.strip("\r\n")
    kept, position = [], start
    for link in sorted(done.links, key=lambda one: one.dest_start or 0):
        if link.dest_start is not None and link.dest_end is not None:
            kept.append(source.body[position : link.dest_start])
            position = link.dest_end
    kept.append(source.body[position:end])
    assert re.fullmatch(r"[^\r\n]*".join(map(re.escape, kept)), done.moved), (section, done.moved)
    if source.path.rpartition("/")[0] == destination.path.rpartition("/")[0] and "](#" not in section:
        assert done.moved == section or "]()" in section
    # Every link leads where it led, by our own reading and by another's.
    anchors = frozenset(one.anchor for one in headings(events(source.body)) if start <= one.start < end)
    pointer = Counter({("record", "id", ""): 1})
    had, now = parse(source.body).links, parse(done.source_body).links
    begin = len(done.destination_body) - len(done.moved)
    come = [link for link in parse(done.destination_body).links if link.start >= begin]
    old = [link for link in parse(done.destination_body).links if link.start < begin]
    assert targets(old, destination.path) == targets(parse(destination.body).links, destination.path)
    moved = following(targets(come, destination.path), case, anchors)
    assert targets(had, source.path) + pointer == moved + targets(now, source.path)
    bodies = (source.body, destination.body, done.source_body, done.destination_body)
    if any(_READ_OTHERWISE.search(body) for body in bodies):
        return False
    whole = told(done.destination_body, destination.path)
    whole.subtract(told(destination.body, destination.path))
    assert min(whole.values(), default=0) >= 0, (case, done)
    moved = following(whole, case, anchors)
    assert told(source.body, source.path) == moved + told(done.source_body, source.path), (case, done)
    return True


def try_case(case: Case, seen: Seen) -> None:
    section = next((one for one in parse(case.source.body).sections if one.heading == "S"), None)
    if section is None:
        seen.add(case, "no section")
        return
    offsets = utf16.Offsets(case.source.body)
    start, end = offsets.to_points(section.start), offsets.to_points(section.end)
    try:
        done = extract(case.source, section.start, case.destination, summary="It moved.", pointer=POINTER)
    except NotExtractable as refused:
        seen.add(case, refused.reason)
        return
    seen.compared += check_moved(case, start, end, done)
    seen.add(case, "moved")


def try_many(examples: int, *, repeatable: bool) -> None:
    seen = Seen()

    @settings(
        max_examples=examples,
        derandomize=repeatable,
        database=None,
        deadline=None,
        suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
    )
    @given(case=cases())
    def tried(case: Case) -> None:
        try_case(case, seen)

    tried()
    seen.check()


def test_an_extraction_keeps_every_byte_and_every_links_target() -> None:
    try_many(300, repeatable=True)


@pytest.mark.exhaustive
@pytest.mark.timeout(1_200)
def test_an_extraction_keeps_every_byte_and_every_links_target_of_five_thousand_random_pages() -> None:
    try_many(5_000, repeatable=False)

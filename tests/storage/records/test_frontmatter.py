"""Reading and changing the frontmatter of record files."""

from __future__ import annotations

import random

import pytest
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st

from messages.json_types import JsonValue
from messages.vocabulary import FRONTMATTER_MAX_DEPTH
from storage.records import _yaml_fast, frontmatter, yaml_core
from storage.records.findings import Finding
from storage.records.frontmatter import ABSENT, Change, Document, Frontmatter
from tests.storage.records.strategies import HOSTILE, frontmatters, keys, values

HAND_WRITTEN = """\
---
# who wrote this
format: knowledge-record-v1   # do not touch
id: 6f1c1b0e
revision: 3
title: 'It''s a title'
tags:
  - one
  # between
  - two

note: |
  first
    second

folded: >-
  a
  b
other: {x: 1, y: [2, 3]}
multi: "one
  two"
empty:
last: plain text
  continued
# the end
---

Body.
"""


def read(text: str) -> Frontmatter:
    found = frontmatter.read(text.encode())
    assert isinstance(found, Frontmatter), found
    return found


def refused(text: str | bytes) -> Finding:
    found = frontmatter.read(text if isinstance(text, bytes) else text.encode())
    assert isinstance(found, Finding), found
    return found


# YAML 1.2 core


@pytest.mark.parametrize(
    ("written", "value"),
    [
        ("yes", "yes"), ("No", "No"), ("on", "on"), ("y", "y"),
        ("true", True), ("True", True), ("FALSE", False), ("tRUE", "tRUE"),
        ("null", None), ("~", None), ("", None), ("Null", None), ("nULL", "nULL"),
        ("12:30:45", "12:30:45"), ("190:20:30", "190:20:30"),
        ("012", 12), ("+7", 7), ("-0", 0), ("0o17", 15), ("0x1F", 31), ("0b11", "0b11"), ("0o9", "0o9"),
        ("1_000", "1_000"), ("1e3", 1000.0), (".5", 0.5), ("1.", 1.0), ("-1.5E-2", -0.015), ("1e", "1e"),
        ("2026-09-20", "2026-09-20"), ("2026-09-21T10:00:00Z", "2026-09-21T10:00:00Z"),
        ("2001-12-14 21:59:43.10 -5", "2001-12-14 21:59:43.10 -5"), ("<<", "<<"), ("=", "="),
        ('"null"', "null"), ("'12'", "12"), ('"\\x41\\u00e9\\U0001F600"', "Aé😀"), ('"a\\/b"', "a/b"),
    ],
)  # fmt: skip
def test_plain_words_follow_yaml_1_2_core_rules(written: str, value: JsonValue) -> None:
    for yaml in (f"key: {written}\n", f"key: {written} # comment\n", f"  key: {written}\n"):
        found = read(f"---\n{yaml}---\n").values["key"]
        assert found == value
        assert type(found) is type(value)


def test_the_old_line_breaks_of_yaml_1_1_are_ordinary_characters() -> None:
    for mark in "\x85\u2028\u2029":
        assert read(f"---\ntitle: a{mark}b\nquoted: 'c{mark} d'\n---\n").values == {
            "title": f"a{mark}b",
            "quoted": f"c{mark} d",
        }


def test_a_merge_key_is_an_ordinary_key() -> None:
    assert read("---\n<<: {a: 1}\nb: 2\n---\n").values == {"<<": {"a": 1}, "b": 2}


@pytest.mark.parametrize("number", [".inf", "-.INF", ".nan", "1e999", "123456789012345678901", "0xFFFFFFFFFFFFFFFFF"])
def test_a_number_that_json_cannot_hold_stays_text_with_a_note(number: str) -> None:
    found = read(f"---\na: {number}\n---\n")
    assert found.values == {"a": number}
    assert [(finding.code, finding.field, finding.severity) for finding in found.findings] == [
        ("yaml_number", "a", "note")
    ]


def test_a_key_that_reads_as_a_number_is_taken_as_text_with_a_note() -> None:
    found = read("---\n2024: x\nfields: {true: 1}\n---\n")
    assert found.values == {"2024": "x", "fields": {"true": 1}}
    assert {(finding.code, finding.line) for finding in found.findings} == {("yaml_key", 2), ("yaml_key", 3)}


# What is refused, and by which name


@pytest.mark.parametrize(
    ("yaml", "code", "line"),
    [
        ("a: 1\nb: 2\na: 3\n", "yaml_duplicate_key", 4),
        ('a: {"x": 1, "x": 2}\n', "yaml_duplicate_key", 2),
        ('a: {"x"  :1,"x":2,"y":"\\":"}\n', "yaml_duplicate_key", 2),
        ('a:\n  - {"x": 1, "x": 2}\n', "yaml_duplicate_key", 3),
        ('"a": 1\na: 3\n', "yaml_duplicate_key", 3),
        ("a: &x 1\n", "yaml_anchor", 2),
        ("a: *x\n", "yaml_alias", 2),
        ("a: !!str 1\n", "yaml_tag", 2),
        ("a: !local 1\n", "yaml_tag", 2),
        ("a: ! 1\n", "yaml_tag", 2),
        ("%YAML 1.1\n", "yaml_syntax", 3),
        ("a: [1, 2\n", "yaml_syntax", 3),
        ("a: b: c\n", "yaml_syntax", 2),
        ("a: 1\n\tb: 2\n", "yaml_syntax", 3),
        ("a: 'open\n", "yaml_syntax", 3),
        ("? [a, b]\n: c\n", "yaml_key", 2),
        ("a: 1\n--- \nb: 2\n", None, None),
        ("a: 1\n--- b\n", "yaml_documents", 3),
        ("- a\n- b\n", "frontmatter_not_a_mapping", 1),
        ("just text\n", "frontmatter_not_a_mapping", 1),
        ("", "frontmatter_not_a_mapping", 1),
        ("# nothing\n", "frontmatter_not_a_mapping", 1),
        ("a: x\x01y\n", "yaml_syntax", 2),
        ("a: x\x00y\n", "nul", 2),
    ],
)
def test_what_cannot_be_read_is_a_named_diagnostic_with_its_line(yaml: str, code: str | None, line: int | None) -> None:
    found = frontmatter.read(f"---\n{yaml}---\n\nbody\n".encode())
    if code is None:
        assert isinstance(found, Frontmatter)
        return
    assert isinstance(found, Finding)
    assert (found.code, found.line) == (code, line)


def test_an_alias_bomb_is_refused_at_its_first_anchor() -> None:
    bomb = "a: &a [x, x, x, x, x, x, x, x, x]\n" + "".join(
        f"{chr(98 + level)}: &{chr(98 + level)} [{', '.join(['*' + chr(97 + level)] * 9)}]\n" for level in range(20)
    )
    assert refused(f"---\n{bomb}---\n").code == "yaml_anchor"


@pytest.mark.parametrize("opening", ["[", '{"a": ', "{a: ", "- ", "[{a: "])
def test_nesting_beyond_the_limit_is_a_diagnostic_however_deep(opening: str) -> None:
    for depth in (FRONTMATTER_MAX_DEPTH, 1_000, 50_000):
        assert refused(f"---\nx:\n  {opening * depth}\n---\n").code == "yaml_depth"


def test_nesting_up_to_the_limit_is_read() -> None:
    deepest = FRONTMATTER_MAX_DEPTH - 1
    for nested in ("[" * deepest + "]" * deepest, '{"a":' * deepest + "1" + "}" * deepest):
        assert read(f"---\nx: {nested}\n---\n").values["x"] is not None
    assert refused(f"---\nx: {'[' * (deepest + 1)}{']' * (deepest + 1)}\n---\n").code == "yaml_depth"


def test_bytes_that_are_not_utf8_are_a_diagnostic_with_their_place() -> None:
    found = refused(b"---\na: 1\nb: \xff\n---\n")
    assert (found.code, found.line) == ("not_utf8", 3)
    assert refused("---\na: 1\n---\n".encode("utf-16")).code == "not_utf8"
    assert refused(b"---\na: \xed\xa0\x80\n---\n").code == "not_utf8"


def test_a_file_without_fences_is_a_diagnostic() -> None:
    assert refused("# A note\n").code == "frontmatter_missing"
    assert refused(" ---\na: 1\n---\n").code == "frontmatter_missing"
    assert refused("").code == "frontmatter_missing"
    assert refused("---\na: 1\n").code == "frontmatter_not_closed"
    assert refused("---\na: 1\n ---\n----\n--- x\n").code == "frontmatter_not_closed"


def test_no_message_repeats_the_text_of_the_file() -> None:
    for yaml in ("secret: &secret 1\n", "secret: !secret x\n", "a: [secret\n", "a: 1\na: secret\n", "a: 'secret\n"):
        assert "secret" not in refused(f"---\n{yaml}---\n").message


@given(st.binary(max_size=200) | st.text(st.sampled_from(HOSTILE + "ab"), max_size=80).map(str.encode))
def test_reading_never_raises(data: bytes) -> None:
    for whole in (data, b"---\n" + data + b"\n---\n", b"\xef\xbb\xbf---\r\na: " + data + b"\r\n---"):
        assert isinstance(frontmatter.read(whole), Frontmatter | Finding)


# Fences and line ends


@pytest.mark.parametrize("end", ["\n", "\r\n", "\r"])
@pytest.mark.parametrize("bom", ["", "\ufeff"])
def test_line_ends_and_byte_order_marks_are_understood_and_kept(end: str, bom: str) -> None:
    text = bom + end.join(["---", "a: 1", "b: [x, y]", "---", "", "Body", ""])
    document = read(text).document
    assert read(text).values == {"a": 1, "b": ["x", "y"]}
    assert (document.body, document.newline) == (f"Body{end}", end)
    changed = frontmatter.replace_lines(document, {"a": 2, "c": "new"})
    assert changed == bom + end.join(["---", "a: 2", "b: [x, y]", 'c: "new"', "---", "", "Body", ""])


def test_at_most_one_empty_line_separates_the_body() -> None:
    for separator, body in (("", "Body"), ("\n", "Body"), ("\n\n", "\nBody"), (" \n", " \nBody")):
        assert read(f"---\na: 1\n---\n{separator}Body").document.body == body
    assert read("---\na: 1\n---").document.body == ""
    assert read("---\na: 1\n---\n\n").document.body == ""


def test_the_body_may_hold_fences() -> None:
    assert read("---  \na: 1\n---\t\nx\n---\ny").document.body == "x\n---\ny"


# The fast parser against the C loader

FRAGMENTS = [
    "a: 1", "b: x", "a: y", "c:", "  - x", '  - "y"', '  - {"k": 1}', "  -", "- z", "#", "# c", "", " ", "d: [1, 2]",
    'e: {"a": 1, "b": {"c": []}}', 'f: {"a": 1, "a": 2}', 'g: {"a" : 1}', 'h: "x" # c', "i: x # c", "j: x: y", "k: x ",
    "l:  x", "m: ", "n: |", "  text", "o: >-", "p: 'x'", "q: &a x", "r: *a", "s: !t x", "null: 1", "true: 1", "1: 1",
    "t: 012", "u: 1e400", "v: 12345678901234567890", "w: [12345678901234567890]", "x: [1e400]", "y: -5", "z: .5",
    "aa: 2026-09-20", 'bb: "\\ud83d\\ude00"', 'cc: "\\u2028"', "dd: a\u2028b", "ee: a\x85b", 'ff: "a\tb"', "gg: a\tb",
    "hh:\tx", "ii: [", "jj: ]", 'kk: "', "ll: {x: 1}", "mm: [x, y]", "nn: a]b", "oo: a, b", "pp: https://x.y/z#f",
    "qq: a:b", "rr: a:", "ss: @x", "tt: `x`", "uu: %x", "vv: ---", "---", "...", "--- x", "%YAML 1.2", "? a", ": b",
    "ww: 😀", "é: 1", "xx: 日本", "yy: \xa0x", "zz: a\u200bb", '"quoted": 1', "a-b: 1", "a.b: 1", "a b: 1", "\ta: 1",
    'ab: [{"a": [{"b": [{"c": [[[[[[1]]]]]]}]}]}]', "ac: 0x1F", "ad: 0o17", "ae: Null", "af: NULL", "ag: ~", "ah: 1.",
    "ai: [1.5, -0, -0.0, 1E5, true, null]", 'aj: ["a", "b"', 'ak: "a" "b"', "al: 1 2", "am: ++", "an: 1a", "ao: ²",
    "ap: " + "9" * 16, "aq: " + "9" * 17, "ar: [" + "9" * 15 + ", " + "9" * 19 + "]", "as: \ufeffx", "x" * 1100 + ": 1",
    'at: {"' + "k" * 1100 + '": 1}', 'au: "' + "v" * 2000 + '"', 'av: ["' + "v" * 2000 + '"]', "aw: a\rb", "ax: \x7f",
]  # fmt: skip


def assert_equal_where_both_answer(yaml: str) -> bool:
    """Whether the fast parser took it; then the C loader must say exactly the same."""
    fast = _yaml_fast.parse(yaml)
    if fast is None:
        return False
    slow = yaml_core.load("---\n" + yaml)
    assert slow.broken is None, (yaml, fast, slow.broken)
    assert slow.findings == [], yaml
    assert isinstance(slow.value, dict)
    assert list(fast) == list(slow.value), yaml
    assert frontmatter.to_json(fast) == frontmatter.to_json(slow.value), yaml
    return True


@settings(max_examples=400)
@given(st.lists(st.sampled_from(FRAGMENTS), max_size=5), st.sampled_from(["\n", "\r\n", "\r"]))
def test_the_fast_parser_says_what_the_c_loader_says_on_hostile_lines(lines: list[str], end: str) -> None:
    assert_equal_where_both_answer("".join(line + end for line in lines))


def test_the_fast_parser_says_what_the_c_loader_says_on_every_pair_of_hostile_lines() -> None:
    taken = 0
    singles = [line + "\n" for line in FRAGMENTS]
    for first in singles:
        taken += assert_equal_where_both_answer(first)
    for first in ("c:\n", "a: 1\n", "b: x\n", "  - x\n", "n: |\n"):
        for second in singles:
            taken += assert_equal_where_both_answer(first + second)
    assert taken > 100, "the fast parser took so little that this test says nothing"


@settings(max_examples=200)
@given(frontmatters, st.randoms(use_true_random=False))
def test_the_fast_parser_says_what_the_c_loader_says_on_damaged_files_of_ours(
    wanted: dict[str, JsonValue], chance: random.Random
) -> None:
    yaml = frontmatter.emit(wanted)
    for _ in range(chance.randint(0, 3)):
        at = chance.randrange(len(yaml) + 1)
        piece = chance.choice(["", chance.choice(HOSTILE), chance.choice(FRAGMENTS), " ", "\n"])
        yaml = yaml[:at] + piece + yaml[at + chance.randint(0, 2) :]
    assert_equal_where_both_answer(yaml)


@given(frontmatters)
@example({"a": "\x7f\x85\u2028\ufeff\ufffe"})
@example({"a": [{"b": 1}, {}], "c": [{}, 1], "d": []})
def test_what_we_emit_reads_back_as_it_was(wanted: dict[str, JsonValue]) -> None:
    assume(all("\x00" not in key for key in wanted))
    text = f"---\n{frontmatter.emit(wanted)}---\n"
    for found in (frontmatter.read(text.encode()), frontmatter.read_with_c_loader(text.encode())):
        assert isinstance(found, Frontmatter), (found, text)
        assert list(found.values) == list(wanted)
        assert frontmatter.to_json(found.values) == frontmatter.to_json(wanted)


def test_a_file_of_ours_never_needs_the_c_loader(monkeypatch: pytest.MonkeyPatch) -> None:
    def asked(text: str) -> yaml_core.Loaded:
        raise AssertionError("the C loader was asked")

    monkeypatch.setattr(yaml_core, "load", asked)
    ours: dict[str, JsonValue] = {
        "format": "knowledge-record-v1",
        "revision": 3,
        "title": "Zoë's “plan” — 50 % 😀 日本: #1",
        "scope": {"visibility": "private"},
        "entities": ["a", "b"],
        "fields": {"amount": 1.5, "open": True, "nested": {"x": [1, None]}},
        "evidence": [{"path": "artifacts/x/y.txt", "sha256": "e3" * 32, "start_line": 12}],
    }
    for text in (
        frontmatter.emit(ours),
        "id: 6f1c1b0e-6a0e\ndue_at: 2026-09-25\nattribution: Alex, line 12\nfixture: true\n",
    ):
        assert read(f"---\n{text}---\n").values


# Writing touches only the lines of what changes


def change(text: str, changes: dict[str, Change]) -> str:
    return frontmatter.replace_lines(read(text).document, changes)


def test_a_changed_key_keeps_every_other_byte() -> None:
    assert change(HAND_WRITTEN, {"revision": 4}) == HAND_WRITTEN.replace("revision: 3", "revision: 4")


def test_a_comment_behind_a_changed_value_stays() -> None:
    changed = change(HAND_WRITTEN, {"format": "x"})
    assert changed == HAND_WRITTEN.replace("format: knowledge-record-v1   # do", 'format: "x"   # do')


@pytest.mark.parametrize(
    ("key", "lines"),
    [
        ("title", "title: 'It''s a title'\n"),
        ("tags", "tags:\n  - one\n  # between\n  - two\n"),
        ("note", "note: |\n  first\n    second\n"),
        ("folded", "folded: >-\n  a\n  b\n"),
        ("other", "other: {x: 1, y: [2, 3]}\n"),
        ("multi", 'multi: "one\n  two"\n'),
        ("empty", "empty:\n"),
        ("last", "last: plain text\n  continued\n"),
    ],
)
def test_only_the_lines_of_the_key_are_replaced_or_removed(key: str, lines: str) -> None:
    assert change(HAND_WRITTEN, {key: "new"}) == HAND_WRITTEN.replace(lines, f'{key}: "new"\n')
    assert change(HAND_WRITTEN, {key: ABSENT}) == HAND_WRITTEN.replace(lines, "")


def test_new_keys_go_after_the_last() -> None:
    changed = change(HAND_WRITTEN, {"a": 1, "b": [{"x": 1}, {"y": 2}]})
    assert changed == HAND_WRITTEN.replace("  continued\n", '  continued\na: 1\nb:\n  - {"x": 1}\n  - {"y": 2}\n')


def test_a_value_that_is_already_there_keeps_its_bytes() -> None:
    same: dict[str, Change] = {"title": "It's a title", "other": {"y": [2, 3], "x": 1}, "gone": ABSENT, "empty": None}
    assert change(HAND_WRITTEN, {**same, "other": {"x": 1, "y": [2, 3]}}) == HAND_WRITTEN


def test_true_and_one_are_different_values() -> None:
    assert change("---\na: true\nb: 1\n---\n", {"a": 1, "b": 1.0}) == "---\na: 1\nb: 1.0\n---\n"


def test_an_indented_frontmatter_keeps_its_indentation() -> None:
    text = "---\n  a: 1\n  b: 2\n---\nBody"
    assert change(text, {"a": [{"x": 1}], "c": 3}) == '---\n  a:\n    - {"x": 1}\n  b: 2\n  c: 3\n---\nBody'


@pytest.mark.parametrize("text", ["---\n{a: 1, b: two}\n---\nBody", "---\n? a\n: 1\n? b\n: two\n---\nBody"])
def test_a_layout_without_lines_of_its_own_still_gets_the_right_values(text: str) -> None:
    changed = change(text, {"a": 2, "c": None})
    assert read(changed).values == {"a": 2, "b": "two", "c": None}
    assert changed.endswith("---\nBody")


def test_all_keys_can_be_removed() -> None:
    assert change("---\n# kept\na: 1\n# too\n---\nBody", {"a": ABSENT}) == "---\n# kept\n# too\n---\nBody"


def plain_entries(end: str) -> st.SearchStrategy[tuple[str, list[str]]]:
    """One key by hand: its name is filled in later; what stands before and behind it is not its own."""
    forms = ["{k}: 1", "{k}: plain text", "{k}: 'q'", '{k}: "x # y"', "{k}: [a, b]", "{k}:", "{k}: {{x: 1}}",
             "{k}: |" + end + "  one" + end + "    two", "{k}: >-" + end + "  one",
             "{k}:" + end + "  - a" + end + "  - b",
             "{k}:" + end + "- a", "{k}:" + end + "  x: 1" + end + "  y: [2]", "{k}: plain" + end + "  goes on",
             "{k}: é😀\u2028",
             '{k}: "one' + end + end + '  two"', "{k}:" + end + "  # inside" + end + "  - a"]  # fmt: skip
    around = st.lists(st.sampled_from(["", "# comment", "   # indented comment 😀"]), max_size=2)
    return st.tuples(st.sampled_from(forms), around)


@st.composite
def hand_written(draw: st.DrawFn) -> tuple[str, str, list[tuple[str, str, str]]]:
    """A file by hand: what stands before the keys, the line end, and for each key (name, its lines, what follows)."""
    end = draw(st.sampled_from(["\n", "\r\n", "\r"]))
    entries = draw(st.lists(plain_entries(end), min_size=1, max_size=5))
    before = draw(st.sampled_from(["", "\ufeff"])) + "---" + draw(st.sampled_from(["", "  "])) + end
    parts: list[tuple[str, str, str]] = []
    for number, (form, around) in enumerate(entries):
        name = f"key{number}"
        if ": |" in form or ": >" in form:  # an indented comment would be part of the text
            around = [line for line in around if not line.startswith(" ")]
        parts.append((name, form.format(k=name) + end, "".join(line + end for line in around)))
    return before, end, parts


@settings(max_examples=200)
@given(hand_written(), st.data())
def test_every_byte_outside_the_changed_keys_stays(
    file: tuple[str, str, list[tuple[str, str, str]]], data: st.DataObject
) -> None:
    before, end, parts = file
    tail = f"---{end}{end}Body 😀{end}---{end}"
    text = before + "".join(lines + after for _, lines, after in parts) + tail
    old = read(text)
    names = [name for name, _, _ in parts]
    chosen = data.draw(st.lists(st.sampled_from([*names, "new1", "new2"]), unique=True, max_size=4))
    changes: dict[str, Change] = {name: data.draw(st.one_of(st.just(ABSENT), values)) for name in chosen}

    changed = frontmatter.replace_lines(old.document, changes)

    expected = before
    open_block = False
    for name, lines, after in parts:
        change = changes.get(name, ABSENT)
        if name not in changes or (change is not ABSENT and frontmatter.same(old.values[name], change)):
            expected += lines
            open_block = ": |" in lines or ": >" in lines
        elif change is not ABSENT:
            expected += frontmatter.emit({name: change}, end)
            open_block = False
        if name == names[-1]:
            fresh = {key: value for key, value in changes.items() if key not in old.values and value is not ABSENT}
            expected += frontmatter.emit(fresh, end)
            open_block = open_block and not fresh
        if change is ABSENT and name in changes and open_block:
            # The comment behind the removed key would now be read as part of the text before it.
            after = "".join(line.lstrip(" ") for line in after.splitlines(keepends=True))
        expected += after
        open_block = open_block and not after.strip()
    expected += tail
    assert changed == expected
    wanted = {key: value for key, value in {**old.values, **changes}.items() if value is not ABSENT}
    if wanted:
        assert frontmatter.to_json(dict(sorted(read(changed).values.items()))) == frontmatter.to_json(
            dict(sorted(wanted.items()))
        )


@settings(max_examples=120)
@given(frontmatters, st.dictionaries(keys, st.one_of(st.just(ABSENT), values), max_size=4))
def test_changes_of_any_file_of_ours_read_back_as_wanted(
    before: dict[str, JsonValue], changes: dict[str, Change]
) -> None:
    document = frontmatter.cut(f"---\n{frontmatter.emit(before)}---\nBody".encode())
    assert isinstance(document, Document)
    changed = frontmatter.replace_lines(document, changes)
    wanted = {key: value for key, value in {**before, **changes}.items() if value is not ABSENT}
    assert changed.endswith("---\nBody")
    if wanted:
        found = read(changed).values
        assert found.keys() == wanted.keys()
        assert all(frontmatter.same(found[key], wanted[key]) for key in wanted)


def test_a_comment_behind_a_removed_key_never_becomes_part_of_the_text_before_it() -> None:
    text = "---\na: |\n  one\nb: 1\n   # about b\n---\n"
    assert change(text, {"b": ABSENT}) == "---\na: |\n  one\n# about b\n---\n"
    assert change(text, {"b": ABSENT, "c": 2}) == "---\na: |\n  one\nc: 2\n   # about b\n---\n"


def test_a_comment_is_never_taken_for_the_end_of_a_block_text() -> None:
    text = "---\na: |\n  one\n  # text\n# comment\nb: 1\n---\n"
    assert change(text, {"a": "x"}) == '---\na: "x"\n# comment\nb: 1\n---\n'


def test_what_json_cannot_hold_is_refused_when_written() -> None:
    for value in (float("nan"), float("inf"), "\ud800"):
        with pytest.raises(ValueError):
            frontmatter.to_json(value)

"""Envelopes for plain Markdown: every byte of the body, the mark and the line ends stay."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from messages.json_types import JsonObject
from storage.records import Finding, ParsedRecord, frontmatter, parse_record
from storage.records.adoption import PlainNote, plain_note, with_envelope

ENVELOPE: JsonObject = {
    "format": "knowledge-record-v1",
    "id": "6f1c1b0e-6a0e-4b7e-9d4d-3f2d8f0a4c11",
    "revision": 1,
    "kind": "page",
    "title": "A title",
    "recorded_at": "2026-09-21T10:00:00.000Z",
    "updated_at": "2026-09-21T10:00:00.000Z",
    "scope": {"visibility": "private"},
    "lifecycle": "active",
    "type": "note",
}


def adopted(data: bytes) -> ParsedRecord:
    parsed = parse_record(with_envelope(data, ENVELOPE), "a.md")
    assert isinstance(parsed, ParsedRecord), parsed
    assert parsed.valid, parsed.findings
    return parsed


def note(data: bytes, path: str = "people/Ada Byron.md") -> PlainNote:
    found = plain_note(data, path)
    assert isinstance(found, PlainNote), found
    return found


def refused(data: bytes) -> Finding:
    found = plain_note(data, "a.md")
    assert isinstance(found, Finding)
    return found


@pytest.mark.parametrize(
    "body",
    ["", "x", "\n", "\n\n# Late\n", "# T\r\n\r\ntext\r\n", "mac\rlines\r", "no end", "---- no fence\n", "\ttab\n"],
)
@pytest.mark.parametrize("mark", ["", "\ufeff"])
def test_the_body_is_kept_byte_for_byte_with_its_mark_and_line_ends(body: str, mark: str) -> None:
    data = with_envelope((mark + body).encode(), ENVELOPE)
    assert data.startswith((mark + "---").encode())
    assert data.endswith(body.encode())
    assert adopted((mark + body).encode()).record.body == body
    newline = "\r\n" if "\r\n" in body else "\r" if "\r" in body and "\n" not in body else "\n"
    document = frontmatter.cut(data)
    assert isinstance(document, frontmatter.Document)
    assert document.newline == newline


@given(st.text(alphabet=st.characters(codec="utf-8", exclude_characters="\x00"), max_size=60))
def test_any_text_that_can_be_adopted_is_its_own_body_afterwards(body: str) -> None:
    if isinstance(plain_note(body.encode(), "a.md"), Finding):
        return
    data = with_envelope(body.encode(), ENVELOPE)
    parsed = parse_record(data, "a.md")
    assert isinstance(parsed, ParsedRecord)
    before = frontmatter.read(body.encode())
    text = before.document.body if isinstance(before, frontmatter.Frontmatter) else body.removeprefix("\ufeff")
    assert parsed.record.body == text


def test_a_foreign_frontmatter_keeps_its_keys_and_comments_and_gets_the_envelope_after_them() -> None:
    foreign = "---\r\n# mine\r\ntags: [a, b]   # two\r\ncssclass: wide\r\n---\r\n\r\nText\r\n"
    data = with_envelope(foreign.encode(), ENVELOPE).decode()
    assert data.startswith("---\r\n# mine\r\ntags: [a, b]   # two\r\ncssclass: wide\r\nformat: ")
    assert data.endswith("\r\n---\r\n\r\nText\r\n")
    assert "\n" not in data.replace("\r\n", "")
    record = adopted(foreign.encode()).record
    assert (record.tags, record.unknown, record.body) == (("a", "b"), {"cssclass": "wide"}, "Text\r\n")


def test_its_own_title_type_and_id_count_and_stay() -> None:
    data = b"---\ntitle: Mine\ntype: person\nid: ada\n---\n# Heading\n"
    assert note(data) == PlainNote("Mine", "ada", "person")
    record = adopted(data).record
    assert (record.title, record.type, record.id) == ("Mine", "person", "ada")


@pytest.mark.parametrize(
    ("data", "title"),
    [
        (b"intro\n\n## *Second* level\n# First\n", "Second level"),
        (b"#\n\n# Real\n", "Real"),
        (b"no heading\n", "Ada Byron"),
        (b"```\n# code\n```\n", "Ada Byron"),
        (b"# " + "\U0001f422".encode() * 150 + b"\n", "\U0001f422" * 100),
    ],
)
def test_the_title_is_the_first_heading_else_the_file_name(data: bytes, title: str) -> None:
    assert note(data).title == title


@pytest.mark.parametrize("name", [".md", "\u0001.md"])
def test_a_name_that_cannot_be_a_title_gives_untitled(name: str) -> None:
    assert note(b"text", f"notes/{name}").title == "Untitled"


@pytest.mark.parametrize(
    ("data", "code", "field"),
    [
        (b"---\nformat: knowledge-record-v1\nid: a\nkind: page\n---\n", "already_a_record", "format"),
        (b"---\nformat: knowledge-record-v9\n---\n", "already_a_record", "format"),
        (b"---\nlifecycle: old\n---\n", "key_conflict", "lifecycle"),
        (b"---\nformat: html\n---\n", "key_conflict", "format"),
        (b"---\nid: 20260101\n---\n", "key_conflict", "id"),
        (b"---\nid: 'two words'\n---\n", "key_conflict", "id"),
        (b"---\ntype: [a]\n---\n", "key_conflict", "type"),
        (b"---\ntitle: 5\n---\n", "key_conflict", "title"),
        (b"---\n- a\n---\n", "frontmatter_not_a_mapping", ""),
        (b"---\n---\ntext\n", "frontmatter_not_a_mapping", ""),
        (b"---\nopen\n", "frontmatter_not_closed", ""),
        (b"\xff\xfe", "not_utf8", ""),
        (b"a\x00b", "nul", "body"),
    ],
)
def test_what_cannot_be_adopted_is_named(data: bytes, code: str, field: str) -> None:
    found = refused(data)
    assert (found.code, found.field) == (code, field)

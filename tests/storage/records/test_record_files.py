"""Record files: parsed, rendered and rewritten."""

from __future__ import annotations

import dataclasses

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from messages.json_types import JsonValue
from messages.vocabulary import RECORD_KINDS
from storage.records import (
    ABSENT,
    BrokenRecord,
    EvidenceCitation,
    Finding,
    LifecycleChange,
    ParsedRecord,
    Recall,
    Record,
    Scope,
    changes_between,
    content_hash,
    errors,
    frontmatter,
    frontmatter_values,
    parse_date,
    parse_record,
    render_new,
    rewrite,
)

ID = "6f1c1b0e-6a0e-4b7e-9d4d-3f2d8f0a4c11"
SHA = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"
ENVELOPE = f"""\
format: knowledge-record-v1
id: {ID}
revision: 3
kind: page
title: Garden Pilot
recorded_at: 2026-09-21T10:00:00.000Z
updated_at: 2026-09-21T10:05:00.000Z
scope: {{"visibility": "private"}}
lifecycle: active
"""

CLAIM = f"""\
---
{ENVELOPE.replace("kind: page", "kind: claim")}claim_kind: commitment
assertion_origin: source
attribution: Alex, meeting transcript line 12
subject_hint: Garden Pilot release
entities: ["p1", "p2"]
owner: p3
occurred_at: 2026-09-20
due_at: 2026-09
expires_at: 2027
source_page: p4
dependencies: ["m1"]
evidence:
  - {{"path": "artifacts/{ID}/excerpt.txt", "sha256": "{SHA}", "start_line": 12, "end_line": 12, "quote": "Fri", "n":3}}
---

Alex committed to delivering the release on Friday.
"""


def parsed(text: str, path: str = "pages/x.md") -> ParsedRecord:
    found = parse_record(text.encode(), path)
    assert isinstance(found, ParsedRecord), found
    return found


def broken(text: str) -> BrokenRecord:
    found = parse_record(text.encode(), "pages/x.md")
    assert isinstance(found, BrokenRecord), found
    return found


def page(*lines: str, body: str = "") -> str:
    return f"---\n{ENVELOPE}{''.join(line + chr(10) for line in lines)}---\n\n{body}"


def found_in(text: str) -> dict[str, Finding]:
    return {finding.field: finding for finding in parsed(text).findings}


def test_a_claim_is_read_with_all_its_fields() -> None:
    found = parsed(CLAIM)
    assert found.findings == ()
    assert found.valid
    assert not found.read_only
    assert found.hash == content_hash(CLAIM.encode())
    assert found.record == Record(
        id=ID,
        kind="claim",
        title="Garden Pilot",
        recorded_at="2026-09-21T10:00:00.000Z",
        updated_at="2026-09-21T10:05:00.000Z",
        revision=3,
        body="Alex committed to delivering the release on Friday.\n",
        claim_kind="commitment",
        assertion_origin="source",
        attribution="Alex, meeting transcript line 12",
        subject_hint="Garden Pilot release",
        entities=("p1", "p2"),
        owner="p3",
        occurred_at=parse_date("2026-09-20"),
        due_at=parse_date("2026-09"),
        expires_at=parse_date("2027"),
        source_page="p4",
        dependencies=("m1",),
        evidence=(
            EvidenceCitation(
                f"artifacts/{ID}/excerpt.txt", SHA, start_line=12, end_line=12, quote="Fri", extra={"n": 3}
            ),
        ),
    )
    assert found.record.text == "Alex committed to delivering the release on Friday."


def test_every_field_of_every_kind_survives_a_round_trip() -> None:
    citation = EvidenceCitation("artifacts/r/a b.txt", SHA, "who", "f", "text/plain", 7, 1, 2, "q", {"x": [1]})
    common: dict[str, object] = {
        "id": ID,
        "title": "Ünïcode 😀: #1",
        "recorded_at": "2026-09-21T10:00:00.000Z",
        "updated_at": "2026-09-21T10:05:00.001Z",
        "revision": 7,
        "scope": Scope("conversation", "s1"),
        "body": "Text\u2028 with 😀\n",
        "aliases": ("a", "b: c"),
        "tags": ("t",),
        "dependencies": ("d",),
        "evidence": (citation,),
        "supersedes": "old",
        "superseded_by": "new",
        "lifecycle": "superseded",
        "lifecycle_change": LifecycleChange("why", "2026-09-21T10:00:00.000Z", "main", "r"),
        "identity_uncertainty": "Perhaps two people",
        "attribution_confidence": "low",
        "continuity": ("c1",),
        "fixture": True,
        "recall": Recall("s", ("t",), 7, ("p",), "owner", "2026-09-21T10:00:00.000Z"),
        "source_page": "sp",
        "unknown": {"mine": {"x": 1}, "more": [1, {"y": None}]},
    }
    statement: dict[str, object] = {
        "assertion_origin": "user_belief",
        "attribution": "A",
        "subject_hint": "S",
        "entities": ("e",),
        "owner": "o",
        "occurred_at": parse_date("2026"),
        "due_at": parse_date("2026-01-02T03:04:05+01:00"),
        "expires_at": parse_date("2026-02"),
    }
    of_kind: dict[str, dict[str, object]] = {
        "page": {"type": "person", "fields": {"a": 1, "b": None, "c": [1.5]}, "merged_into": "m"},
        "claim": {**statement, "claim_kind": "belief"},
        "relationship": {**statement, "from_id": "f", "to_id": "t", "label": "uses", "fields": {"since": "2026"}},
    }
    covered: set[str] = set()
    for kind in RECORD_KINDS:
        record = Record(**{**common, **of_kind[kind], "kind": kind})  # type: ignore[arg-type]
        covered |= {
            part.name for part in dataclasses.fields(record) if getattr(record, part.name) not in (None, (), {}, False)
        }
        found = parsed(render_new(record).decode())
        assert found.record == record
        assert found.findings == ()
    assert covered == {part.name for part in dataclasses.fields(Record)}


def test_a_new_file_uses_line_feeds_and_ends_with_one() -> None:
    record = parsed(CLAIM).record
    for body in ("", "x", "x\n", "\nx"):
        text = render_new(dataclasses.replace(record, body=body)).decode()
        assert "\r" not in text
        assert text.endswith("\n")
        assert not text.endswith("\n\n\n")
        assert parsed(text).record.body == (body if body in ("", "x\n") else f"{body}\n")


def test_a_field_that_its_kind_does_not_have_is_not_written() -> None:
    with pytest.raises(ValueError, match="claim_kind"):
        render_new(dataclasses.replace(parsed(page()).record, claim_kind="fact"))
    with pytest.raises(ValueError, match="title"):
        render_new(dataclasses.replace(parsed(page()).record, unknown={"title": "x"}))


# Broken files and tolerant records


@pytest.mark.parametrize(
    ("yaml", "fields"),
    [
        (ENVELOPE.replace("format: knowledge-record-v1\n", ""), {"format"}),
        (ENVELOPE.replace("record-v1", "note-v1"), {"format"}),
        (ENVELOPE.replace("kind: page", "kind: thing"), {"kind"}),
        (ENVELOPE.replace("kind: page", "kind: [page]"), {"kind"}),
        (ENVELOPE.replace(ID, "a b"), {"id"}),
        (ENVELOPE.replace(ID, '"' + "x" * 129 + '"'), {"id"}),
        (ENVELOPE.replace(ID, "null"), {"id"}),
        ("a: 1\n", {"format", "kind", "id"}),
    ],
)
def test_a_file_without_identity_is_broken_and_says_why(yaml: str, fields: set[str]) -> None:
    found = broken(f"---\n{yaml}---\n")
    assert {finding.field for finding in found.findings} == fields
    assert not found.adoptable


def test_plain_markdown_is_offered_to_be_adopted() -> None:
    assert broken("# A note\n").adoptable
    assert not broken("---\na: [\n---\n").adoptable


def test_any_opaque_id_is_accepted_on_read() -> None:
    for written, record_id in (
        ("a.B_c:d-1", "a.B_c:d-1"),
        ("12345", "12345"),
        ('"001"', "001"),
        ("x" * 128, "x" * 128),
    ):
        assert parsed(page().replace(ID, written)).record.id == record_id


@pytest.mark.parametrize(
    ("line", "field", "code"),
    [
        ("title: [x]", "title", "not_text"),
        ("title: 12", "title", "not_text"),
        ("recorded_at: yesterday", "recorded_at", "not_a_time"),
        ("recorded_at: 2026-09-21", "recorded_at", "not_a_time"),
        ("updated_at: 2026-02-30T00:00:00Z", "updated_at", "not_a_time"),
        ("lifecycle: candidate", "lifecycle", "not_allowed"),
        ("lifecycle: null", "lifecycle", "missing"),
    ],
)
def test_a_bad_envelope_field_makes_the_record_invalid_but_not_unreadable(line: str, field: str, code: str) -> None:
    key = line.split(":")[0]
    envelope = "".join(kept + "\n" for kept in ENVELOPE.splitlines() if not kept.startswith(key))
    found = parsed(f"---\n{envelope}{line}\n---\n\nBody", "people/alex.md")
    assert not found.valid
    assert code in {finding.code for finding in errors(found.findings) if finding.field == field}
    assert found.record.body == "Body"
    assert found.record.id == ID


def test_a_record_without_a_title_is_shown_under_its_file_name() -> None:
    assert parsed(page().replace("title: Garden Pilot\n", "")).record.title == "x"


@pytest.mark.parametrize("revision", ["0", "-1", "1.5", "true", "x", "null"])
def test_a_revision_that_cannot_be_read_is_below_any_known_one(revision: str) -> None:
    found = parsed(page().replace("revision: 3", f"revision: {revision}"))
    assert found.record.revision == 0
    assert found.valid
    assert [finding.code for finding in found.findings] == ["revision"]


@pytest.mark.parametrize(
    ("line", "field", "code"),
    [
        ("aliases: Alex", "aliases", "not_a_list"),
        ("aliases: [Alex, 3]", "aliases[1]", "not_text"),
        ("dependencies: [a b]", "dependencies[0]", "not_an_id"),
        ("fields: [1]", "fields", "not_a_mapping"),
        ('fields: {"a": "\\u0000"}', "fields", "nul"),
        ('fields: {"a": [{"b\\u0000": 1}]}', "fields", "nul"),
        ('type: "a\\u0000b"', "type", "nul"),
        ("fixture: yes", "fixture", "not_boolean"),
        ("attribution_confidence: total", "attribution_confidence", "not_allowed"),
        ("evidence: [{path: x}]", "evidence[0].path", "evidence"),
        ("evidence: [{path: artifacts/../x, sha256: y}]", "evidence[0].path", "evidence"),
        ("evidence: [{path: artifacts/r/.., sha256: y}]", "evidence[0].path", "evidence"),
        ("evidence: [{path: /artifacts/r/x, sha256: y}]", "evidence[0].path", "evidence"),
        ("evidence: [{path: artifacts/r/x/y, sha256: y}]", "evidence[0].path", "evidence"),
        ("evidence: [{path: artifacts/r/x, sha256: ABC}]", "evidence[0].sha256", "evidence"),
        (f"evidence: [{{path: artifacts/r/x, sha256: {SHA.upper()}}}]", "evidence[0].sha256", "evidence"),
        (
            f"evidence: [{{path: artifacts/r/x, sha256: {SHA}, start_line: 0}}]",
            "evidence[0].start_line",
            "not_in_range",
        ),
        (f"evidence: [{{path: artifacts/r/x, sha256: {SHA}, end_line: 3}}]", "evidence[0].end_line", "evidence"),
        (
            f"evidence: [{{path: artifacts/r/x, sha256: {SHA}, start_line: 5, end_line: 3}}]",
            "evidence[0].end_line",
            "evidence",
        ),
        ("lifecycle_change: {reason: x}", "lifecycle_change", "lifecycle_change"),
    ],
)
def test_one_bad_field_is_named_and_the_rest_is_read(line: str, field: str, code: str) -> None:
    found = parsed(page(line, "tags: [kept]", body="Body"))
    assert (code, "error") in {(finding.code, finding.severity) for finding in found.findings if finding.field == field}
    assert found.record.tags == ("kept",)
    assert not found.valid


def test_a_finding_names_the_line_of_its_value_or_of_what_is_around_it() -> None:
    found = parsed(
        page("# c", "aliases:", "  - ok", "  - 3", "evidence:", "  - {path: x}", "tags: 1").replace("title", "t")
    )
    lines = {finding.field: finding.line for finding in found.findings}
    assert lines == {"aliases[1]": 14, "evidence[0].path": 16, "tags": 17, "title": None}


def test_half_an_approval_approves_nothing_and_does_no_harm() -> None:
    for block in (
        "x",
        "{}",
        "{summary: s, importance: 11}",
        "{summary: s, triggers: t}",
        "{summary: s, approved_at: x}",
    ):
        found = parsed(page(f"recall: {block}"))
        assert found.record.recall is None
        assert found.valid
        assert [finding.code for finding in found.findings] == ["recall"]
    assert parsed(page("recall: {summary: s}")).record.recall == Recall("s")


def test_what_exceeds_a_limit_by_hand_is_a_record_with_a_diagnostic() -> None:
    long_title = "x" * 201
    found = parsed(page(f"aliases: [{', '.join('a' * 3 for _ in range(101))}]").replace("Garden Pilot", long_title))
    assert found.valid
    assert found.record.title == long_title
    assert len(found.record.aliases) == 101
    assert {(finding.code, finding.field) for finding in found.findings} == {
        ("too_long", "title"),
        ("too_many", "aliases"),
    }
    assert parsed(page().replace("Garden Pilot", "😀" * 100)).findings == ()
    assert [f.code for f in parsed(page().replace("Garden Pilot", "😀" * 101)).findings] == ["too_long"]


@pytest.mark.parametrize("key", ["claim_kind", "assertion_origin", "attribution", "evidence"])
def test_a_claim_needs_kind_origin_attribution_and_evidence(key: str) -> None:
    without = "".join(
        line + "\n"
        for line in CLAIM.splitlines()
        if not line.startswith(key) and not (key == "evidence" and line[:3] == "  -")
    )
    found = parsed(without)
    assert [(finding.code, finding.field) for finding in errors(found.findings)] == [("missing", key)]
    emptied = without.replace("---\n\nAlex", f"{key}:\n---\n\nAlex")
    assert [(finding.code, finding.field) for finding in errors(parsed(emptied).findings)] == [("missing", key)]


def test_a_claim_needs_text() -> None:
    assert [f.field for f in errors(parsed(CLAIM.split("\n\n")[0] + "\n\n \n").findings)] == ["body"]


def test_a_bare_year_is_a_date_though_yaml_reads_a_number() -> None:
    due = parsed(CLAIM.replace("due_at: 2026-09", "due_at: 2026")).record.due_at
    assert due == parse_date("2026")
    assert [f.code for f in parsed(CLAIM.replace("due_at: 2026-09", "due_at: 26")).findings] == ["not_a_date"]


def test_a_merged_page_names_its_destination_and_a_superseded_record_its_replacement() -> None:
    merged = page("x: 1").replace("lifecycle: active", "lifecycle: merged")
    assert [f.field for f in errors(parsed(merged).findings)] == ["merged_into"]
    superseded = page("x: 1").replace("lifecycle: active", "lifecycle: superseded")
    assert [f.field for f in errors(parsed(superseded).findings)] == ["superseded_by"]


def test_scope_comes_from_the_partition_so_a_wrong_one_is_only_noted() -> None:
    found = parsed(page().replace('{"visibility": "private"}', '{"visibility": "public"}'))
    assert found.valid
    assert {finding.field for finding in found.findings} == {"scope"}


def test_a_nul_in_the_body_makes_the_record_invalid() -> None:
    assert [f.code for f in errors(parsed(page(body="a\x00b")).findings)] == ["nul"]


def test_a_record_of_a_newer_format_is_listed_and_never_rewritten() -> None:
    text = page("shape: new").replace("record-v1", "record-v2")
    found = parsed(text)
    assert found.read_only
    assert found.record.title == "Garden Pilot"
    assert "newer_format" in {finding.code for finding in found.findings}
    with pytest.raises(ValueError, match="format"):
        rewrite(text.encode(), {"title": "x"})


def test_a_record_expires_when_the_whole_of_its_date_is_past() -> None:
    record = parsed(CLAIM).record
    date = parse_date("2027")
    assert date is not None
    assert not record.expired(date.start_ms)
    assert not record.expired(date.end_ms - 1)
    assert record.expired(date.end_ms)


hostile = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(st.characters(codec="utf-8")),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from(["path", "sha256", "summary", "at", "size"]), inner)
    ),
)
FIELDS = ["aliases", "evidence", "fields", "recall", "lifecycle_change", "due_at", "type"]


@settings(max_examples=60)
@given(st.dictionaries(st.sampled_from(FIELDS), hostile))
def test_parsing_never_raises_whatever_the_values_are(values: dict[str, JsonValue]) -> None:
    for kind in RECORD_KINDS:
        text = page(frontmatter.emit(values)).replace("kind: page", f"kind: {kind}")
        found = parse_record(text.encode(), "x.md")
        if isinstance(found, ParsedRecord):
            frontmatter_values(found.record)


# Rewriting


def test_unknown_keys_and_comments_survive_a_rewrite() -> None:
    text = page("# mine", "colour: blue   # really", "type: person", body="Body\n")
    before = parsed(text)
    after = dataclasses.replace(before.record, revision=4, type="company", aliases=("X",))
    changed = rewrite(text.encode(), changes_between(before.record, after), "New body\n").decode()
    assert changed == text.replace("revision: 3", "revision: 4").replace(
        "type: person\n", 'type: "company"\naliases: ["X"]\n'
    ).replace("Body\n", "New body\n")
    assert parsed(changed).record == dataclasses.replace(after, body="New body\n")


def test_a_key_that_could_not_be_read_keeps_its_bytes_until_it_is_set() -> None:
    text = page("aliases: nonsense")
    before = parsed(text).record
    kept = rewrite(text.encode(), changes_between(before, dataclasses.replace(before, title="T"))).decode()
    assert "aliases: nonsense\n" in kept
    assert changes_between(before, dataclasses.replace(before, aliases=("a",))) == {"aliases": ["a"]}


def test_an_emptied_field_goes_away() -> None:
    text = page("tags: [a]", "type: person")
    before = parsed(text).record
    changes = changes_between(before, dataclasses.replace(before, tags=(), type=None))
    assert changes == {"tags": ABSENT, "type": ABSENT}
    assert rewrite(text.encode(), changes).decode() == page()


@pytest.mark.parametrize("end", ["\n", "\r\n"])
@pytest.mark.parametrize("separator", [0, 1])
def test_a_new_body_is_written_as_it_is_behind_what_separates_it(end: str, separator: int) -> None:
    head = end.join(["---", *ENVELOPE.splitlines(), "---", ""]) + end * separator
    original = f"{head}Old{end}".encode()
    for body in ("New", "New\n", f"New{end}more"):
        assert rewrite(original, {}, body) == (head + body).encode()
    for body in ("", "\nNew", "\r\nNew", "Old" + end):
        changed = rewrite(original, {}, body)
        assert changed.startswith(head.encode())
        assert parsed(changed.decode()).record.body == body


def test_a_body_is_added_to_a_file_that_ends_with_its_fence() -> None:
    for text in (f"---\n{ENVELOPE}---", f"---\n{ENVELOPE}---\n"):
        assert rewrite(text.encode(), {}, "Body").decode() == f"---\n{ENVELOPE}---\n\nBody"
        assert rewrite(text.encode(), {}, "") == text.encode()


def test_a_rewrite_refuses_what_would_lose_a_record() -> None:
    text = page(body="x").encode()
    for changes in ({"id": "other"}, {"kind": "claim"}, {"format": "x"}, {"id": ABSENT}):
        with pytest.raises(ValueError):
            rewrite(text, changes)
    for body in ("a\x00", "\ud800"):
        with pytest.raises(ValueError):
            rewrite(text, {}, body)
    with pytest.raises(ValueError):
        rewrite(b"no envelope", {"title": "x"})
    with pytest.raises(ValueError):
        changes_between(parsed(page()).record, dataclasses.replace(parsed(page()).record, id="x"))

"""From ontology files to the effective ontology: all of an extension, or nothing of it."""

from __future__ import annotations

import hashlib

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from messages.vocabulary import ONTOLOGY_MAX_BYTES
from storage import faults
from storage.ontology import INFERENCE_TYPES, Activation, Issue, activate, core_activation
from storage.ontology.activation import FAULT_POINTS

HEAD = "format: knowledge-ontology-v1\nextends: core\n"

# The example of the specification: it speaks of a shipped type and label again.
DEAL = (
    HEAD
    + """\
pages:
  deal:
    description: A sale or purchase under negotiation
    parent: entity
    aliases: [opportunity]
    folder: deals
    prefixes: [deals/, pipeline/]
    fields:
      status: {type: enum, values: [open, won, lost], description: Where it stands}
      amount: {type: number}
      contact: {type: page, of: [person]}
relationships:
  works_at: {from: [person], to: [company], inverse: employs, symmetric: false, fields: {since: {type: date}}}
"""
)


def extended(yaml: str) -> Activation:
    found = activate((HEAD + yaml).encode())
    assert found.issues == (), found.issues
    return found


def issues(yaml: str | bytes) -> list[tuple[str, str, int | None]]:
    found = activate(yaml if isinstance(yaml, bytes) else (HEAD + yaml).encode())
    assert found.issues
    assert found.ontology == core_activation().ontology
    assert [source.valid for source in found.sources] == [True, False]
    return [(issue.code, issue.path, issue.line) for issue in found.issues]


def test_the_shipped_types_and_labels_are_all_there() -> None:
    ontology = core_activation().ontology
    assert set(ontology.pages) == {
        "entity", "person", "company", "project", "repository", "concept", "deal", "place", "event", "meeting", "note",
        "work", "source", "artifact",
    }  # fmt: skip
    assert set(ontology.relationships) == {
        "works_at", "member_of", "reports_to", "founded", "owns", "part_of", "depends_on", "uses", "related_to",
        "attended", "authored", "invested_in", "located_in", "succeeds", "about",
    }  # fmt: skip
    assert ontology.pages["entity"].abstract
    assert ontology.pages["project"].fields["status"].values == ("active", "paused", "completed", "cancelled")
    assert set(ontology.pages["source"].fields) == {"key", "url", "sha256", "size", "modified"}
    assert [name for name in ontology.pages if ontology.infers_subject(name)] == [
        name for name in ontology.pages if name in INFERENCE_TYPES
    ]


def test_every_shipped_definition_is_described_and_can_be_filed() -> None:
    ontology = core_activation().ontology
    for page in ontology.pages.values():
        assert len(page.description) > 20
        assert page.abstract or page.folder
        assert all(field.description for field in page.fields.values()), page.name
        if not page.abstract:
            assert ontology.classify(f"{page.folder}/x.md") == page.name
    for relationship in ontology.relationships.values():
        assert len(relationship.description) > 20
        assert all(field.description for field in relationship.fields.values()), relationship.name
        assert relationship.symmetric == (relationship.inverse is None)


def test_the_shipped_file_is_read_once_and_only_inside_its_fault_point() -> None:
    core_activation.cache_clear()
    passed: list[str] = []
    with faults.installed(passed.append):
        core_activation()
        activate(None)
        activate(DEAL.encode())
    assert passed == [name + end for name, _ in FAULT_POINTS for end in ("", ".after")]


def test_without_an_extension_core_is_effective() -> None:
    assert activate(None) == core_activation()
    assert len(activate(None).sources) == 1


def test_the_example_of_the_specification_is_active() -> None:
    found = activate(DEAL.encode())
    assert found.issues == ()
    assert [source.valid for source in found.sources] == [True, True]
    deal = found.ontology.pages["deal"]
    assert deal.sources == ("core.yaml", "ontology.yaml")
    assert deal.fields["status"].description == "Where it stands"
    assert deal.fields["currency"].type == "string"
    assert found.ontology.relationships["works_at"].fields.keys() == {"since", "until", "role"}


# Inheritance


def test_fields_and_constraints_are_inherited_along_the_chain() -> None:
    ontology = extended("""\
pages:
  customer: {parent: company, fields: {tier: {type: enum, values: [a, b, c]}, since: {type: date, required: true}}}
  key_customer: {parent: customer, fields: {tier: {type: enum, values: [a]}}}
""").ontology
    customer = ontology.pages["key_customer"]
    assert customer.chain == ("key_customer", "customer", "company", "entity")
    assert customer.fields["tier"].values == ("a",)
    assert customer.fields["since"].required
    assert customer.field_owners == {
        "website": "entity", "industry": "company", "founded": "company", "tier": "key_customer", "since": "customer",
    }  # fmt: skip
    assert customer.folder == "companies"
    assert ontology.is_a("key_customer", "company")
    assert not ontology.is_a("company", "key_customer")
    assert ontology.types_within("company") == {"company", "customer", "key_customer"}
    assert ontology.infers_subject("key_customer")


def test_declaration_order_does_not_matter() -> None:
    one = extended("pages:\n  a: {parent: b}\n  b: {fields: {x: {type: text}}}\n").ontology
    assert one.pages["a"].fields["x"].type == "text"


def test_a_type_without_a_folder_is_filed_under_its_own_name() -> None:
    assert extended("pages:\n  big_idea: {}\n").ontology.pages["big_idea"].folder == "big-idea"


# What an extension may add


def test_an_extension_adds_fields_aliases_values_and_endpoints_to_shipped_names() -> None:
    ontology = extended("""\
pages:
  person: {aliases: [colleague], fields: {shoe_size: {type: number}}}
  project: {fields: {status: {type: enum, values: [active, paused, completed, cancelled, dreaming]}}}
  robot: {parent: entity}
relationships:
  works_at: {from: [robot]}
  admires: {from: [person], to: [entity]}
""").ontology
    assert ontology.page_type("Colleague") is ontology.pages["person"]
    assert ontology.pages["person"].aliases[:1] == ("people",)
    assert "email" in ontology.pages["person"].fields
    assert ontology.pages["project"].fields["status"].values[-1] == "dreaming"
    assert ontology.relationships["works_at"].from_types == ("person", "robot")
    assert ontology.relationships["admires"].sources == ("ontology.yaml",)


def test_an_endpoint_of_any_page_stays_any_page() -> None:
    assert extended("relationships:\n  about: {to: [person]}\n").ontology.relationships["about"].to_types == ()


@pytest.mark.parametrize(
    ("yaml", "code", "path", "line"),
    [
        ("pages:\n  person:\n    parent: company\n", "parent_changed", "pages.person.parent", 5),
        ("pages:\n  person: {abstract: true}\n", "abstract_changed", "pages.person.abstract", 4),
        ("pages:\n  deal: {fields: {amount: {type: text}}}\n", "field_changed", "pages.deal.fields.amount", 4),
        ("pages:\n  deal:\n    fields:\n      status: {type: enum, values: [open]}\n", "field_changed",
         "pages.deal.fields.status", 6),
        ("pages:\n  deal: {fields: {amount: {type: number, required: true}}}\n", "field_changed",
         "pages.deal.fields.amount", 4),
        ("relationships:\n  works_at: {inverse: pays}\n", "inverse_changed", "relationships.works_at.inverse", 4),
        ("relationships:\n  about: {symmetric: true}\n", "symmetric_changed", "relationships.about.symmetric", 4),
        ("pages:\n  a: {parent: nobody}\n", "parent_missing", "pages.a.parent", 4),
        ("pages:\n  a: {aliases: [person]}\n", "alias_taken", "pages.a.aliases[0]", 4),
        ("pages:\n  a: {aliases: [x, \"Call\"]}\n", "malformed", "pages.a.aliases[1]", 4),
        ("pages:\n  a:\n    aliases:\n      - x1\n      - call\n", "alias_taken", "pages.a.aliases[1]", 7),
        ("pages:\n  a: {folder: claims/x}\n", "folder_reserved", "pages.a.folder", 4),
        ("pages:\n  artifacts: {}\n", "folder_reserved", "pages.artifacts.folder", 4),
        ("pages:\n  a: {folder: ../x}\n", "malformed", "pages.a.folder", 4),
        ("pages:\n  a: {folder: /x}\n", "malformed", "pages.a.folder", 4),
        ("pages:\n  a: {folder: .hidden}\n", "malformed", "pages.a.folder", 4),
        ("pages:\n  a: {prefixes: [x/../y/]}\n", "prefix", "pages.a.prefixes[0]", 4),
        ("pages:\n  a: {prefixes: [artifacts/]}\n", "prefix", "pages.a.prefixes[0]", 4),
        ("pages:\n  a: {prefixes: [z/]}\n  b: {prefixes: [z/]}\n", "prefix", "pages.b.prefixes[0]", 5),
        ("pages:\n  a: {abstract: true, prefixes: [z/]}\n", "prefix", "pages.a.prefixes[0]", 4),
        ("pages:\n  A: {}\n", "malformed", "pages.A", 4),
        ("pages:\n  a: {colour: blue}\n", "unknown_key", "pages.a.colour", 4),
        ("pages:\n  a: {fields: {x: {type: colour}}}\n", "not_allowed", "pages.a.fields.x.type", 4),
        ("pages:\n  a: {fields: {x: {}}}\n", "missing", "pages.a.fields.x.type", 4),
        ("pages:\n  a: {fields: {x: {type: enum}}}\n", "values", "pages.a.fields.x.values", 4),
        ("pages:\n  a: {fields: {x: {type: enum, values: [1]}}}\n", "not_text", "pages.a.fields.x.values[0]", 4),
        ("pages:\n  a: {fields: {x: {type: text, values: [q]}}}\n", "values", "pages.a.fields.x.values", 4),
        ("pages:\n  a: {fields: {x: {type: page, of: [nobody]}}}\n", "type_unknown", "pages.a.fields.x.of[0]", 4),
        ("pages:\n  a: {fields: {x: {type: page, of: 3}}}\n", "of", "pages.a.fields.x.of", 4),
        ("pages:\n  a: {fields: {x: {type: text, of: [person]}}}\n", "of", "pages.a.fields.x.of", 4),
        ("pages:\n  a: {fields: {x: {type: list}}}\n", "of", "pages.a.fields.x.of", 4),
        ("pages:\n  a: {fields: {x: {type: list, of: [person]}}}\n", "of", "pages.a.fields.x.of", 4),
        ("pages:\n  a: {fields: {x: {type: list, of: colour}}}\n", "not_allowed", "pages.a.fields.x.of.type", 4),
        ("pages:\n  a: {fields: {x: {type: list, of: {type: list, of: {type: list, of: {type: list, of: text}}}}}}\n",
         "of", "pages.a.fields.x.of.of.of.of", 4),
        ("relationships:\n  r: {from: [nobody]}\n", "type_unknown", "relationships.r.from[0]", 4),
        ("relationships:\n  r: {symmetric: true, inverse: q}\n", "symmetric", "relationships.r.inverse", 4),
        ("relationships:\n  r: {symmetric: true, from: [person]}\n", "symmetric", "relationships.r.symmetric", 4),
        ("relationships:\n  r: {inverse: uses}\n", "inverse", "relationships.r.inverse", 4),
        ("pages:\n  a: {}\n  a: {}\n", "yaml_duplicate_key", "pages.a", 5),
        ("pages: &x {}\n", "yaml_anchor", "pages", 3),
        ("pages: [\n", "yaml_syntax", "", 4),
        ("colours: {}\n", "unknown_key", "colours", 3),
    ],
)  # fmt: skip
def test_any_error_keeps_core_effective_and_is_named_with_its_line(yaml: str, code: str, path: str, line: int) -> None:
    assert (code, path, line) in issues(yaml)


def test_every_error_is_named_not_only_the_first() -> None:
    found = issues("pages:\n  a: {parent: nobody}\n  b: {folder: claims}\nrelationships:\n  r: {to: [nobody]}\n")
    assert [line for _, _, line in found] == [4, 5, 7]


def test_an_error_of_inheritance_names_the_chain() -> None:
    found = activate(
        (
            HEAD + "pages:\n  a: {parent: c}\n  b: {parent: a}\n  c: {parent: b}\n  d: {parent: meeting, "
            "fields: {attendees: {type: text}}}\n"
        ).encode()
    )
    chains = {issue.path: issue.chain for issue in found.issues}
    assert chains["pages.a.parent"] == ("a", "c", "b", "a")
    assert chains["pages.d.fields.attendees"] == ("d", "meeting", "event")
    shown = next(issue for issue in found.issues if issue.path == "pages.d.fields.attendees").to_json()
    assert shown["chain"] == ["d", "meeting", "event"]
    assert shown["line"] == 7


@pytest.mark.parametrize(
    "change",
    ["{type: text}", "{type: enum, values: [a, z]}", "{type: enum, values: [a], required: false}"],
)
def test_a_child_may_only_narrow_an_inherited_field(change: str) -> None:
    parent = "pages:\n  p: {fields: {x: {type: enum, values: [a, b], required: true}}}\n"
    assert issues(f"{parent}  c: {{parent: p, fields: {{x: {change}}}}}\n") == [
        ("field_conflict", "pages.c.fields.x", 5)
    ]
    extended(f"{parent}  c: {{parent: p, fields: {{x: {{type: enum, values: [b], required: true}}}}}}\n")


@pytest.mark.parametrize(
    ("data", "code", "line"),
    [
        (b"", "not_a_mapping", None),
        (b"- a\n", "not_a_mapping", None),
        (b"extends: core\n", "format", None),
        (b"format: knowledge-ontology-v2\nextends: core\n", "format", 1),
        (b"format: knowledge-ontology-v1\n", "extends", None),
        (b"format: knowledge-ontology-v1\nextends: other\n", "not_allowed", 2),
        (HEAD.encode() + b"x: \xff\n", "not_utf8", None),
        (HEAD.encode() + b"#" * ONTOLOGY_MAX_BYTES, "too_large", None),
        (HEAD.encode() + b"pages: {2024: {}}\n", "yaml_key", 3),
    ],
)
def test_a_file_that_is_no_extension_is_an_issue(data: bytes, code: str, line: int | None) -> None:
    assert code in {found[0] for found in issues(data)}
    assert {found[2] for found in issues(data) if found[0] == code} == {line}


def test_an_extension_of_exactly_the_limit_is_read() -> None:
    data = HEAD.encode()
    assert activate(data + b"#" * (ONTOLOGY_MAX_BYTES - len(data))).issues == ()


@settings(max_examples=60)
@given(st.binary(max_size=80) | st.text(max_size=60).map(str.encode))
def test_activation_never_raises(data: bytes) -> None:
    for whole in (data, HEAD.encode() + data, HEAD.encode() + b"pages:\n  a: {" + data + b"}\n"):
        found = activate(whole)
        assert (found.issues == ()) == found.sources[-1].valid
        assert all(isinstance(issue, Issue) for issue in found.issues)


# Classification


def test_the_first_prefix_in_order_classifies_and_an_extension_comes_first() -> None:
    ontology = extended("pages:\n  pitch: {parent: deal, prefixes: [pipeline/early/, deals/]}\n").ontology
    assert ontology.classify("pipeline/early/x.md") == "pitch"
    assert ontology.classify("pipeline/x.md") == "deal"
    assert ontology.classify("deals/x.md") == "pitch"
    assert ontology.classify("elsewhere/x.md") is None
    assert core_activation().ontology.classify("deals/x.md") == "deal"


# Fingerprint


def test_the_fingerprint_depends_on_what_is_effective_and_on_nothing_else() -> None:
    core = core_activation().ontology.fingerprint
    assert len(core) == hashlib.sha256().digest_size * 2
    assert extended("").ontology.fingerprint == core
    assert extended("# comment\npages: {}\n").ontology.fingerprint == core
    assert activate((HEAD + "pages: [").encode()).ontology.fingerprint == core
    seen = {core}
    for yaml in (
        "pages:\n  a: {}\n",
        "pages:\n  a: {aliases: [b1]}\n",
        "pages:\n  a: {description: x}\n",
        "pages:\n  a: {prefixes: [z/]}\n",
        "pages:\n  a: {fields: {x: {type: text}}}\n",
        "pages:\n  a: {fields: {x: {type: text, required: true}}}\n",
        "relationships:\n  r: {}\n",
        "relationships:\n  r: {from: [person]}\n",
        "relationships:\n  r: {symmetric: true}\n",
    ):
        fingerprint = extended(yaml).ontology.fingerprint
        assert fingerprint not in seen
        seen.add(fingerprint)
        assert extended(yaml.replace("pages:", "# c\npages:")).ontology.fingerprint == fingerprint


def test_an_effective_ontology_cannot_be_changed_by_a_reader() -> None:
    person = core_activation().ontology.pages["person"]
    with pytest.raises(TypeError):
        person.fields["x"] = person.fields["email"]  # type: ignore[index]

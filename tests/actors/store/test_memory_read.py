"""``memory.read`` and ``memory.status``, sentence by sentence (memory-provider.md, Shared memory reads)."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from messages.errors import (
    Ambiguous,
    InvalidArgument,
    KnowledgeError,
    NotFound,
    PublicationPending,
    ReferenceChanged,
    ReferenceForeign,
)
from messages.json_types import JsonObject, JsonValue
from messages.tools import json_bytes
from tests.kit.store import (
    GROUP_PARTITION,
    VAULT_ID,
    Desk,
    claim_file,
    items_of,
    page_file,
    request_id,
    write_note,
)


def ref(desk: Desk, record_id: JsonValue) -> JsonObject:
    """The reference to a record as it is now, current or not."""
    [entry] = desk.partition().catalogue.by_id(str(record_id))
    return {
        "provider": "knowledge",
        "store": VAULT_ID,
        "id": entry.id,
        "revision": entry.revision,
        "hash": entry.hash,
    }


def read(desk: Desk, record_id: JsonValue, **more: JsonValue) -> JsonObject:
    return desk.consult("read", {"ref": ref(desk, record_id), **more})


def lines(answer: JsonObject) -> list[JsonValue]:
    found = answer["lines"]
    assert isinstance(found, list)
    return found


def refused(desk: Desk, params: JsonObject) -> KnowledgeError:
    with pytest.raises(KnowledgeError) as error:
        desk.consult("read", params)
    return error.value


# --- what is read -------------------------------------------------------------------------------------------


def test_a_page_is_read_as_its_title_and_its_body(desk: Desk) -> None:
    page = desk.page("Garden Pilot", body="One.\n\nTwo.\n")
    assert read(desk, page["id"]) == {
        "ref": ref(desk, page["id"]),
        "kind": "page",
        "startLine": 1,
        "totalLines": 5,
        "evidence": [],
        "lines": ["# Garden Pilot", "", "One.", "", "Two."],
    }


def test_a_claim_is_read_with_its_attribution_origin_and_evidence_locators(desk: Desk) -> None:
    [claim] = items_of(desk.remember("The harbor is open."))
    answer = read(desk, claim["id"])
    assert lines(answer) == [
        "# The harbor is open.",
        "Attribution: user in session 8f3a, 2026-11-02 (source)",
        "",
        "The harbor is open.",
    ]
    found = answer["evidence"]
    assert isinstance(found, list)
    [locator] = found
    assert str(locator["path"]).startswith("artifacts/")
    assert len(str(locator["sha256"])) == 64
    assert "quote" not in locator
    assert "excerpt" not in locator


def test_a_relationship_is_read_with_its_attribution(desk: Desk) -> None:
    ana, acme = desk.page("Ana", "person"), desk.page("Acme", "company")
    tie = desk.call(
        "create_relationship",
        {
            **desk.vault(),
            "from": ana["id"],
            "to": acme["id"],
            "label": "works_at",
            "assertion_origin": "source",
            "attribution": "Ana, on the phone",
            "body": "Since spring.",
            "evidence": [desk.retained("I work at Acme.")],
        },
    )
    assert lines(read(desk, tie["id"]))[1:] == ["Attribution: Ana, on the phone (source)", "", "Since spring."]


def test_reads_use_1_based_lines_100_by_default(desk: Desk) -> None:
    page = desk.page("Long", body="\n".join(f"line {number}" for number in range(1, 399)))
    answer = read(desk, page["id"])
    assert (len(lines(answer)), answer["nextStartLine"], answer["totalLines"]) == (100, 101, 400)
    assert lines(answer)[:3] == ["# Long", "", "line 1"]
    found, start = list[JsonValue](), 1
    while start:
        answer = read(desk, page["id"], startLine=start, lines=150)
        found += lines(answer)
        start = int(str(answer.get("nextStartLine", 0)))
    assert found == ["# Long", "", *(f"line {number}" for number in range(1, 399))]
    assert lines(read(desk, page["id"], startLine=400, lines=1)) == ["line 398"]
    beyond = read(desk, page["id"], startLine=401)
    assert (lines(beyond), "nextStartLine" in beyond) == ([], False)


@pytest.mark.parametrize(
    ("more", "field"),
    [
        ({"lines": 201}, "lines"),
        ({"lines": 0}, "lines"),
        ({"startLine": 0}, "startLine"),
        ({"startLine": -1}, "startLine"),
        ({"offset": 1}, "offset"),
    ],
)
def test_at_most_200_lines_per_request_and_no_line_before_the_first(desk: Desk, more: JsonObject, field: str) -> None:
    page = desk.page("Long", body="x\n" * 300)
    error = refused(desk, {"ref": ref(desk, page["id"]), **more})
    assert (isinstance(error, InvalidArgument), error.fields["field"]) == (True, field)
    assert len(lines(read(desk, page["id"], lines=200))) == 200


def test_crlf_lf_and_cr_end_a_line_and_nothing_else_does(desk: Desk) -> None:
    body = "a\r\nb\nc\rd\r\n\r\ne\u2028f\u2029g\x0bh\x0ci\x85j\r\n"
    write_note(desk.folder(), "projects/p.md", page_file("p", "Ends", body=body))
    assert lines(read(desk, "p"))[2:] == ["a", "b", "c", "d", "", "e\u2028f\u2029g\x0bh\x0ci\x85j"]


def test_a_title_and_an_attribution_of_several_lines_are_one_line_each(desk: Desk) -> None:
    text = claim_file("c", "The harbor is open.", attribution="Ana\nIgnore\u2028all")
    write_note(desk.folder(), "claims/c.md", text)
    assert lines(read(desk, "c"))[1] == "Attribution: Ana Ignore all (source)"


def test_an_answer_is_bounded_where_one_line_has_5_mb_and_says_what_was_cut(desk: Desk) -> None:
    for record_id, character, size in (("ascii", "x", 4_990_000), ("wide", "猫", 1_600_000), ("marks", '"', 4_990_000)):
        text = page_file(record_id, "Long", body=f"{character * size}\nlast\n")
        write_note(desk.folder(), f"projects/{record_id}.md", text)
        answer = read(desk, record_id, startLine=2)
        assert (lines(answer), answer["nextStartLine"]) == ([""], 3)
        answer = read(desk, record_id, startLine=3)
        assert json_bytes(answer) <= 24 * 1024
        [shown] = lines(answer)
        assert isinstance(shown, str)
        assert set(shown) == {character}
        assert len(json.dumps(shown, ensure_ascii=False).encode()) > 20_000
        assert answer["cut"] == {"line": 3, "chars": size, "shownChars": len(shown)}
        assert answer["nextStartLine"] == 4
        assert lines(read(desk, record_id, startLine=4)) == ["last"]


def test_lines_that_do_not_fit_together_are_given_next(desk: Desk) -> None:
    write_note(desk.folder(), "projects/p.md", page_file("p", "Long", body=f"{'ü' * 500}\n" * 90))
    first = read(desk, "p", lines=200)
    assert json_bytes(first) <= 24 * 1024
    second = read(desk, "p", startLine=first["nextStartLine"], lines=200)
    assert len(lines(first)) < 92
    assert "cut" not in first
    assert len(lines(second)) > 1


def citation(number: int, **keys: JsonValue) -> JsonObject:
    return {"path": f"artifacts/{request_id(number)}/excerpt.txt", "sha256": "0" * 64, "start_line": number, **keys}


def test_reads_add_up_to_20_retained_evidence_locators(desk: Desk) -> None:
    text = claim_file("c", "The harbor is open.", evidence=[citation(n, end_line=n, size=5) for n in range(1, 31)])
    write_note(desk.folder(), "claims/c.md", text)
    answer = read(desk, "c")
    found = answer["evidence"]
    assert isinstance(found, list)
    assert (len(found), answer["evidenceTotal"]) == (20, 30)
    assert found[0] == {
        "path": f"artifacts/{request_id(1)}/excerpt.txt", "sha256": "0" * 64, "startLine": 1, "endLine": 1, "size": 5
    }  # fmt: skip
    longer = claim_file("d", "It is.", evidence=[citation(n, attribution="ü" * 5_000) for n in range(1, 31)])
    write_note(desk.folder(), "claims/d.md", longer)
    bounded = read(desk, "d")
    assert json_bytes(bounded) <= 17 * 1024
    kept = bounded["evidence"]
    assert isinstance(kept, list)
    assert 5 < len(kept) < 20
    assert bounded["evidenceTotal"] == 30


# --- references ---------------------------------------------------------------------------------------------


def test_a_changed_revision_rejects_the_read(desk: Desk) -> None:
    page = desk.page("Plan")
    old = ref(desk, page["id"])
    desk.call("save_page", {**desk.observed(page["id"]), "title": "Plan", "type": "project", "body": "Other."})
    error = refused(desk, {"ref": old})
    assert (isinstance(error, ReferenceChanged), error.fields["reason"]) == (True, "changed")
    now = ref(desk, page["id"])
    others: list[JsonObject] = [{"revision": 1}, {"hash": "0" * 64}, {"revision": 3}]
    for wrong in others:
        assert isinstance(refused(desk, {"ref": {**now, **wrong}}), ReferenceChanged)
    assert read(desk, page["id"])


def test_an_edit_by_hand_changes_the_hash_and_rejects_the_read(desk: Desk) -> None:
    page = desk.page("Plan")
    old = ref(desk, page["id"])
    path = desk.path_of(str(page["id"]))
    path.write_text(path.read_text("utf-8").replace("About it.", "About that."), "utf-8")
    assert isinstance(refused(desk, {"ref": old}), ReferenceChanged)


@pytest.mark.parametrize("wrong", [{"store": "99999999-9999-4999-8999-999999999999"}, {"provider": "memory-core"}])
def test_a_reference_from_another_store_or_provider_is_rejected(desk: Desk, wrong: JsonObject) -> None:
    page = desk.page("Plan")
    error = refused(desk, {"ref": {**ref(desk, page["id"]), **wrong}})
    assert (isinstance(error, ReferenceForeign), error.fields["field"]) == (True, f"ref.{next(iter(wrong))}")


@pytest.mark.parametrize("key", ["provider", "store", "id", "revision", "hash"])
def test_a_reference_carries_provider_store_id_revision_and_hash_and_nothing_else(desk: Desk, key: str) -> None:
    page = desk.page("Plan")
    whole = ref(desk, page["id"])
    lacking = {name: value for name, value in whole.items() if name != key}
    assert refused(desk, {"ref": lacking}).fields["field"] == f"ref.{key}"
    wrongs: list[JsonValue] = [None, "", [], {"a": 1}, "\x00", -1]
    for wrong in wrongs:
        assert isinstance(refused(desk, {"ref": {**whole, key: wrong}}), KnowledgeError)
    assert refused(desk, {"ref": {**whole, "path": "x"}}).fields["field"] == "ref.path"
    assert refused(desk, {"ref": {**whole, "hash": str(whole["hash"])[:16]}}).fields["field"] == "ref.hash"


def test_a_record_of_another_partition_is_refused_as_one_that_never_existed(desk: Desk) -> None:
    page = desk.page("Plan")
    private = ref(desk, page["id"])
    said = []
    for record_id in (private["id"], "never-was"):
        with pytest.raises(NotFound) as error:
            desk.consult("read", {"ref": {**private, "id": record_id}}, partition=GROUP_PARTITION)
        said.append((error.value.message, error.value.to_data()))
    assert said[0] == said[1]


@pytest.mark.parametrize(
    ("reason", "keys"),
    [
        ("withdrawn", {"lifecycle": "withdrawn"}),
        ("superseded", {"lifecycle": "superseded"}),
        ("merged", {"lifecycle": "merged"}),
        ("fixture", {"fixture": True}),
        ("invalid", {"assertion_origin": "rumour"}),
        ("expired", {"expires_at": "2026-10-02"}),
    ],
)
def test_a_record_that_is_not_current_any_more_is_refused_by_name(desk: Desk, reason: str, keys: JsonObject) -> None:
    [(key, value)] = keys.items()
    line = f"{key}: {json.dumps(value)}"
    text = claim_file("c", "The harbor is open.")
    kept = [found for found in text.splitlines(keepends=True) if not found.startswith(f"{key}:")]
    write_note(desk.folder(), "claims/c.md", "".join([*kept[:2], line + "\n", *kept[2:]]))
    error = refused(desk, {"ref": ref(desk, "c")})
    assert (isinstance(error, ReferenceChanged), error.fields["reason"]) == (True, reason)


def test_a_withdrawn_record_stays_with_the_exact_tools(desk: Desk) -> None:
    page = desk.page("Plan")
    old = ref(desk, page["id"])
    desk.call("withdraw", {**desk.observed(page["id"]), "reason": "It was wrong."})
    assert refused(desk, {"ref": old}).fields["reason"] == "withdrawn"
    assert desk.record(page["id"])["lifecycle"] == "withdrawn"


def test_an_id_that_several_files_bear_is_not_read(desk: Desk) -> None:
    page = desk.page("Plan")
    whole = ref(desk, page["id"])
    path = desk.path_of(str(page["id"]))
    (path.parent / "copy.md").write_bytes(path.read_bytes())
    assert isinstance(refused(desk, {"ref": whole}), Ambiguous)


# --- health -------------------------------------------------------------------------------------------------


def test_health_reports_vault_and_ontology_validation_of_the_partition_only(desk: Desk) -> None:
    desk.page("Plan")
    sound = desk.consult("status")
    assert (sound["ready"], sound["records"]) == (True, 1)
    assert sound["vault"] == {"valid": True, "findings": 0}
    assert sound["ontology"]["valid"] is True  # type: ignore[call-overload, index]
    write_note(desk.folder(), "projects/broken.md", "---\nharbor\n")
    (desk.folder() / "ontology.yaml").write_text("format: nothing\n", "utf-8")
    broken = desk.consult("status")
    assert broken["vault"]["valid"] is False  # type: ignore[call-overload, index]
    assert broken["ontology"]["valid"] is False  # type: ignore[call-overload, index]
    group = desk.consult("status", partition=GROUP_PARTITION)
    assert (group["partition"], group["records"], group["vault"]) == ("conversation", 0, sound["vault"])


def test_health_is_told_while_a_partition_cannot_be_read(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    page = desk.page("Plan")
    whole = ref(desk, page["id"])

    def pending(*_: object) -> None:
        raise PublicationPending("An accepted publication is not finished.")

    monkeypatch.setattr("storage.session.PartitionSession.refresh", pending)
    health = desk.consult("status")
    assert (health["ready"], health["reason"]) == (False, "publication_pending")
    for method, params in (("read", {"ref": whole}), ("search", {"query": "x"}), ("candidates", {"kind": "trigger"})):
        with pytest.raises(PublicationPending):
            desk.consult(method, params)


def test_nothing_of_a_path_is_said(desk: Desk, tmp_path: Path) -> None:
    desk.page("Plan")
    assert str(tmp_path) not in json.dumps(desk.consult("status"))

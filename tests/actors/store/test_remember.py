"""knowledge_remember: five steps, one publication (tools.md, Remembering claims)."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pytest

from actors.store.operations.claim_titles import claim_title
from messages.errors import (
    EvidenceInvalid,
    InvalidArgument,
    LimitExceeded,
    OntologyChanged,
    PartitionFull,
    RequestIdReused,
    VaultMismatch,
)
from messages.json_types import JsonObject
from storage import faults
from storage.vault import ScanLimits
from tests.kit.store import (
    GROUP_PARTITION,
    VAULT_ID,
    Desk,
    claim_file,
    items_of,
    page_file,
    remembering,
    request_id,
    write_note,
    write_notes,
)


def subject_of(answer: JsonObject, index: int = 0) -> JsonObject:
    found = items_of(answer)[index]["subject"]
    assert isinstance(found, dict)
    return found


def notes(folder: Path) -> list[Path]:
    return sorted(folder.rglob("*.md"))


# --- step 1: subjects by exact lookup ---------------------------------------------------------------------------------


@pytest.mark.parametrize("subject", ["Garden Pilot", "garden  PILOT", "the pilot", "garden-1"])
def test_a_subject_is_resolved_by_page_id_title_or_alias(desk: Desk, subject: str) -> None:
    write_note(desk.folder(), "projects/g.md", page_file("garden-1", "Garden Pilot", aliases=["The Pilot"]))
    answer = desk.remember({"text": "It ships sooner.", "kind": "decision", "subject": subject})
    assert subject_of(answer) == {"state": "found", "id": "garden-1"}
    assert desk.record(items_of(answer)[0]["id"])["pages"] == [{"id": "garden-1", "title": "Garden Pilot"}]


def test_an_ambiguous_subject_saves_the_claim_unlinked_and_says_so(desk: Desk) -> None:
    write_notes(
        desk.folder(), [("a.md", page_file("mercury-1", "Mercury")), ("b.md", page_file("mercury-2", "Mercury"))]
    )
    answer = desk.remember({"text": "It was delayed.", "kind": "fact", "subject": "Mercury"})
    assert subject_of(answer) == {"state": "ambiguous"}
    assert "pages" not in desk.record(items_of(answer)[0]["id"])


def test_a_missing_subject_saves_the_claim_unlinked_and_says_so(desk: Desk) -> None:
    answer = desk.remember({"text": "It was delayed.", "kind": "fact", "subject": "Mercury"})
    assert subject_of(answer) == {"state": "missing"}
    assert "pages" not in desk.record(items_of(answer)[0]["id"])


def test_a_page_that_is_not_active_is_no_subject(desk: Desk) -> None:
    write_note(desk.folder(), "a.md", page_file("old", "Mercury", lifecycle="withdrawn"))
    for subject in ("Mercury", "old"):
        assert subject_of(desk.remember({"text": f"By {subject}.", "kind": "fact", "subject": subject})) == {
            "state": "missing"
        }


def test_a_claim_is_no_subject_even_by_its_id(desk: Desk) -> None:
    claim = items_of(desk.remember("Something is so."))[0]["id"]
    assert subject_of(desk.remember({"text": "About it.", "kind": "fact", "subject": claim})) == {"state": "missing"}


def test_a_merged_subject_links_the_page_it_was_merged_into(desk: Desk) -> None:
    write_notes(
        desk.folder(),
        [
            ("a.md", page_file("old", "Garden", lifecycle="merged", merged_into="middle")),
            ("b.md", page_file("middle", "Gardens", lifecycle="merged", merged_into="new")),
            ("c.md", page_file("new", "Garden Pilot")),
        ],
    )
    for number, subject in enumerate(["Garden", "old", "middle"]):
        answer = desk.remember({"text": f"Fact {number}.", "kind": "fact", "subject": subject})
        assert subject_of(answer) == {"state": "found", "id": "new"}


def test_a_circle_of_merges_is_no_subject(desk: Desk) -> None:
    write_notes(
        desk.folder(),
        [
            ("a.md", page_file("one", "Garden", lifecycle="merged", merged_into="two")),
            ("b.md", page_file("two", "Gardens", lifecycle="merged", merged_into="one")),
        ],
    )
    assert subject_of(desk.remember({"text": "So.", "kind": "fact", "subject": "Garden"})) == {"state": "missing"}


# --- step 2: subjects inferred ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("about", "text", "state"),
    [
        ("Garden Pilot", "It ships sooner.", "found"),  # the whole hint names the page
        ("hot reload, Garden Pilot; PR #12", "It ships sooner.", "found"),  # a part of it does
        (None, "We chose option B for Garden Pilot today.", "found"),  # the text names exactly one entity page
        (None, "For Garden Pilot and Blue Harbor the date is open.", "ambiguous"),  # a second name competes
        (None, "It ships sooner.", "missing"),
        (None, "We heard from Alex today.", "missing"),  # a bare first name is not guessed
    ],
)
def test_an_omitted_subject_is_inferred_from_about_then_from_the_text(
    desk: Desk, about: str | None, text: str, state: str
) -> None:
    write_notes(
        desk.folder(),
        [
            ("a.md", page_file("garden", "Garden Pilot")),
            ("b.md", page_file("harbor", "Blue Harbor", type="company")),
            ("c.md", page_file("alex", "Alex Morgan", type="person", aliases=["Alex"])),
        ],
    )
    found = subject_of(desk.remember({"text": text, "kind": "fact", "about": about}))
    assert found["state"] == state
    assert found.get("id") == ("garden" if state == "found" else None)


def test_infer_subject_false_turns_inference_off_for_that_item_alone(desk: Desk) -> None:
    write_note(desk.folder(), "a.md", page_file("garden", "Garden Pilot"))
    answer = desk.remember(
        {"text": "We chose B for Garden Pilot.", "kind": "fact", "infer_subject": False},
        {"text": "We chose C for Garden Pilot.", "kind": "fact"},
    )
    assert subject_of(answer, 0) == {"state": "missing"}
    assert subject_of(answer, 1) == {"state": "found", "id": "garden"}


def test_about_is_stored_as_subject_hint_and_needs_no_page(desk: Desk) -> None:
    about = "bundled plugin hot reload, PR #180466"
    answer = desk.remember({"text": "It reloads in a second.", "kind": "fact", "about": about})
    assert desk.record(items_of(answer)[0]["id"])["subjectHint"] == about
    assert subject_of(answer) == {"state": "missing"}


# --- step 3: duplicates -----------------------------------------------------------------------------------------------


def test_an_exact_repeat_is_reported_with_the_existing_id_revision_and_hash(desk: Desk) -> None:
    first = items_of(desk.remember("Option B ships sooner."))[0]
    second = items_of(desk.remember("Option  b SHIPS sooner.", "Something new."))
    assert second[0] == {
        "id": first["id"],
        "revision": first["revision"],
        "hash": first["hash"],
        "duplicate": True,
        "subject": {"state": "missing"},
    }
    assert "duplicate" not in second[1]


@pytest.mark.parametrize(
    "item",
    [
        {"text": "Option B ships sooner", "kind": "fact"},  # punctuation counts
        {"text": "Option B ships sooner.", "kind": "decision"},
        {"text": "Option B ships sooner.", "kind": "fact", "subject": "Garden Pilot"},
    ],
)
def test_another_text_kind_or_subject_is_no_duplicate(desk: Desk, item: JsonObject) -> None:
    write_note(desk.folder(), "a.md", page_file("garden", "Garden Pilot"))
    desk.remember("Option B ships sooner.")
    assert "duplicate" not in items_of(desk.remember(item))[0]


def test_an_item_repeats_an_earlier_item_of_the_same_call(desk: Desk) -> None:
    answer = items_of(desk.remember("Option B ships sooner.", "option b ships sooner."))
    assert answer[1] == {**answer[0], "duplicate": True}
    assert len(notes(desk.folder())) == 1


@pytest.mark.parametrize("lifecycle", ["superseded", "withdrawn"])
def test_a_claim_that_is_not_active_is_not_repeated(desk: Desk, lifecycle: str) -> None:
    write_note(desk.folder(), "claims/a.md", claim_file("old", "Option B ships sooner.", lifecycle=lifecycle))
    assert "duplicate" not in items_of(desk.remember("Option B ships sooner."))[0]


def test_an_expired_claim_is_not_repeated(desk: Desk) -> None:
    write_note(desk.folder(), "claims/a.md", claim_file("old", "Option B ships sooner.", expires_at="2026-10-02"))
    assert "duplicate" not in items_of(desk.remember("Option B ships sooner."))[0]


def test_a_claim_that_a_person_wrote_is_repeated(desk: Desk) -> None:
    write_note(desk.folder(), "claims/a.md", claim_file("by-hand", "Option B ships sooner."))
    assert items_of(desk.remember("option b ships sooner."))[0]["id"] == "by-hand"


def test_a_claim_of_a_merged_page_is_repeated_by_the_same_text_about_the_page_it_was_merged_into(desk: Desk) -> None:
    write_notes(
        desk.folder(),
        [
            ("a.md", page_file("old", "Garden", lifecycle="merged", merged_into="new")),
            ("b.md", page_file("new", "Garden Pilot")),
            ("claims/c.md", claim_file("claim", "Option B ships sooner.", entities=["old"])),
        ],
    )
    item = items_of(desk.remember({"text": "Option B ships sooner.", "kind": "fact", "subject": "Garden Pilot"}))[0]
    assert (item["id"], item.get("duplicate")) == ("claim", True)


def test_a_call_of_duplicates_publishes_and_retains_nothing_and_leaves_its_id_free(desk: Desk) -> None:
    desk.remember("Option B ships sooner.")
    before = desk.session.publisher.pair, sorted(desk.folder().rglob("*"))
    answer = desk.call("remember", {**remembering("option B ships sooner."), "requestId": request_id(50)})
    assert [item["duplicate"] for item in items_of(answer)] == [True]
    assert set(answer) == {"ontologyFingerprint", "items"}
    assert (desk.session.publisher.pair, sorted(desk.folder().rglob("*"))) == before
    assert desk.fails("mutation", {"requestId": request_id(50)}).code == "not_found"
    assert (
        "duplicate"
        not in items_of(desk.call("remember", {**remembering("Another thing."), "requestId": request_id(50)}))[0]
    )


# --- step 4: the excerpt ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "excerpt",
    [
        "User: use option B, it ships sooner.",
        "two\r\nlines\r\n",
        "no end\n\nempty lines\n\n\n",
        "emoji 🙂, 庭園計画, e\u0301, tab\t, trailing space ",
        "a line separator\u2028and a next line\x85and\x0cform\x0bfeeds\x1c",
        "old mac\rline ends",
        "ﬁ".ljust(5_400, "é"),
    ],
)
def test_the_excerpt_is_retained_byte_for_byte_and_every_claim_cites_it(desk: Desk, excerpt: str) -> None:
    answer = desk.call("remember", {**remembering("One.", "Two."), "excerpt": excerpt, "requestId": request_id(7)})
    retained = desk.folder() / "artifacts" / request_id(7) / "excerpt.txt"
    assert retained.read_bytes() == excerpt.encode()
    for item in items_of(answer):
        shown = desk.call("record", {"id": item["id"], "includeEvidence": True, "maxChars": 48_000})
        record = shown["record"]
        assert isinstance(record, dict)
        [citation] = record["evidence"]
        assert citation["path"] == f"artifacts/{request_id(7)}/excerpt.txt"
        assert citation["sha256"] == hashlib.sha256(excerpt.encode()).hexdigest()
        assert citation["attribution"] == "user in session 8f3a, 2026-11-02"
        assert citation["excerpt"], "the citation was verified: its lines are those of the file"


def test_an_excerpt_of_more_than_16_kib_is_refused(desk: Desk) -> None:
    desk.call("remember", {**remembering("One."), "excerpt": "x" * 16_384})
    error = desk.fails("remember", {**remembering("Two."), "excerpt": "é" * 8_193})
    assert isinstance(error, LimitExceeded)
    assert error.fields["field"] == "excerpt"


def test_without_an_excerpt_nothing_is_remembered(desk: Desk) -> None:
    for excerpt in ("", "  \n"):
        error = desk.fails("remember", {**remembering("One."), "excerpt": excerpt})
        assert isinstance(error, InvalidArgument | EvidenceInvalid)


# --- step 5: one publication ------------------------------------------------------------------------------------------


def test_a_batch_is_one_publication_with_one_receipt_and_one_sync(desk: Desk) -> None:
    desk.partition()
    points: list[str] = []
    with faults.installed(points.append):
        answer = desk.remember(*[f"Fact number {n}." for n in range(20)])
    assert len(items_of(answer)) == len({item["id"] for item in items_of(answer)}) == 20
    assert desk.session.publisher.pair.generation == 1
    assert points.count("accept.commit") == 1
    assert [p for p in points if "fsync" in p or p.startswith("sync.")] == []
    rows = desk.call("history", {"limit": 100})["rows"]
    assert isinstance(rows, list)
    assert {row["sequence"] for row in rows if isinstance(row, dict)} == {1}


def test_items_stand_in_the_receipt_in_input_order_each_with_its_text_in_the_store(desk: Desk) -> None:
    texts = [f"Fact {n} of many." for n in (3, 1, 2)]
    answer = desk.remember(*texts)
    assert [desk.record(item["id"])["text"] for item in items_of(answer)] == texts
    assert all(item["revision"] == 1 and len(str(item["hash"])) == 64 for item in items_of(answer))


def test_a_receipt_names_no_single_record_and_no_state_when_published(desk: Desk) -> None:
    assert set(desk.remember("One.")) == {"ontologyFingerprint", "items"}


def test_every_argument_of_an_item_is_kept_on_its_claim(desk: Desk) -> None:
    answer = desk.remember(
        {
            "text": "We ship on Friday.",
            "kind": "commitment",
            "origin": "user_belief",
            "about": "release",
            "occurred_at": "2026-09",
            "due_at": "2026-12-04",
            "expires_at": "2027",
        }
    )
    found = desk.record(items_of(answer)[0]["id"])
    assert found["claimKind"] == "commitment"
    assert found["assertionOrigin"] == "user_belief"
    assert found["attribution"] == "user in session 8f3a, 2026-11-02"
    assert (found["occurredAt"], found["dueAt"], found["expiresAt"]) == ("2026-09", "2026-12-04", "2027")


def test_agent_inference_is_rejected_with_the_reason(desk: Desk) -> None:
    error = desk.fails("remember", remembering({"text": "So.", "kind": "fact", "origin": "agent_inference"}))
    assert isinstance(error, InvalidArgument)
    assert error.fields["field"] == "items[0].origin"
    assert "inference" in error.message


def test_claims_lie_by_month_and_hex_and_no_page_is_created_or_rewritten(desk: Desk) -> None:
    page = write_note(desk.folder(), "projects/g.md", page_file("garden", "Garden Pilot"))
    before = page.read_bytes()
    desk.remember({"text": "Option B ships sooner.", "kind": "fact", "subject": "Garden Pilot"})
    [claim] = [path for path in notes(desk.folder()) if path != page]
    relative = claim.relative_to(desk.folder())
    assert relative.parts[:3] == ("claims", "2026", "11")
    assert len(relative.parts[3]) == 2
    assert relative.name == "option-b-ships-sooner.md"
    assert page.read_bytes() == before


def test_recorded_times_rise_strictly_within_a_partition(desk: Desk) -> None:
    desk.remember("One.", "Two.")
    desk.now_ms -= 3_600_000  # the clock was set back
    desk.remember("Three.")
    listed = desk.call("records", {"kind": "claim"})["records"]
    assert isinstance(listed, list)
    times = [desk.partition().catalogue.one(str(row["id"])) for row in listed if isinstance(row, dict)]
    stamps = [entry.recorded_at for entry in times if entry is not None]
    assert stamps == sorted(set(stamps))
    assert len(stamps) == 3


@pytest.mark.parametrize(
    ("text", "title"),
    [
        ("Option B ships sooner. It is cheaper too.", "Option B ships sooner."),
        ("庭園計画は金曜日。そのあと休み。", "庭園計画は金曜日。"),
        ("one line\nand another", "one line and another"),
        ("word " * 40, ("word " * 15).strip() + "…"),
        ("🙂" * 60, "🙂" * 39 + "…"),
        ("x" * 200, "x" * 79 + "…"),
        ("a\x07b \x1b[31mred\x9f", "a b [31mred"),
    ],
)
def test_a_title_is_the_first_sentence_at_most_80_units_cut_at_a_word(text: str, title: str) -> None:
    assert claim_title(text) == title
    assert len(claim_title(text).encode("utf-16-le")) <= 160


# --- replays and fences -----------------------------------------------------------------------------------------------


def test_the_same_request_again_gives_the_stored_receipt(desk: Desk) -> None:
    request = {**remembering("One.", "Two."), "requestId": request_id(9)}
    first = desk.call("remember", request)
    desk.remember("Something in between.")
    desk.close()
    assert desk.call("remember", request) == first
    assert len(notes(desk.folder())) == 3


def test_the_same_request_id_with_another_payload_or_operation_is_refused(desk: Desk) -> None:
    desk.call("remember", {**remembering("One."), "requestId": request_id(9)})
    for tool, arguments in (
        ("remember", remembering("Two.")),
        ("save_page", {"title": "One", "type": "project", "body": ""}),
    ):
        error = desk.fails(tool, {**arguments, "requestId": request_id(9)})
        assert isinstance(error, RequestIdReused)
        assert error.fields["requestId"] == request_id(9)
        assert error.retry == "never"


def test_a_replay_is_not_judged_again_by_the_fences_that_it_carried(desk: Desk) -> None:
    fingerprint = desk.call("status")["ontologyFingerprint"]
    request = {**remembering("One."), "requestId": request_id(9), "expectedOntologyFingerprint": fingerprint}
    first = desk.call("remember", request)
    write_note(
        desk.folder(),
        "ontology.yaml",
        "format: knowledge-ontology-v1\nextends: core\npages:\n  boat: {parent: entity, folder: boats}\n",
    )
    assert desk.call("status")["ontologyFingerprint"] != fingerprint
    assert desk.call("remember", request) == first


def test_another_vault_or_ontology_than_the_expected_one_is_refused_and_nothing_is_stored(desk: Desk) -> None:
    wrong_vault = desk.fails("remember", remembering("One.", expectedVaultId=request_id(1)))
    assert isinstance(wrong_vault, VaultMismatch)
    assert wrong_vault.fields["vaultId"] == VAULT_ID
    wrong_ontology = desk.fails("remember", remembering("One.", expectedOntologyFingerprint="0" * 64))
    assert isinstance(wrong_ontology, OntologyChanged)
    assert wrong_ontology.fields["ontologyFingerprint"] == desk.call("status")["ontologyFingerprint"]
    assert notes(desk.folder()) == []
    desk.remember("One.", expectedVaultId=VAULT_ID)


def test_a_batch_that_would_pass_the_scan_limit_is_refused_and_stores_nothing(desk: Desk) -> None:
    desk.limits = ScanLimits(entries=40)
    error = desk.fails("remember", remembering(*[f"Fact {n}." for n in range(11)]))
    assert isinstance(error, PartitionFull)
    assert notes(desk.folder()) == []
    desk.remember("One.")


def test_a_conversation_keeps_its_claims_and_excerpts_in_its_own_folder_and_scope(desk: Desk) -> None:
    answer = desk.remember("The group meets on Monday.", partition=GROUP_PARTITION)
    [claim] = notes(desk.folder(GROUP_PARTITION))
    assert f'"sessionId": "{GROUP_PARTITION.session_id}"' in claim.read_text("utf-8").replace('":"', '": "')
    assert list((desk.folder(GROUP_PARTITION) / "artifacts").rglob("excerpt.txt"))
    assert notes(desk.folder()) == []
    found = desk.call("record", {"id": items_of(answer)[0]["id"], "includeEvidence": True}, partition=GROUP_PARTITION)
    assert isinstance(found["record"], dict)
    assert found["record"]["evidence"]

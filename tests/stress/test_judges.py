"""Each judge of a run: what it accepts, and what it objects to, from ledgers made by hand."""

from __future__ import annotations

import hashlib
import itertools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

import pytest

from messages.json_types import JsonObject
from stress import judges
from stress.aftermath import Inspector, OnDisk, Row
from stress.damages import Finding
from stress.judges import JUDGES, Evidence, Judge
from stress.ledger import Access, Caller, Edit, Ledger, Life, Operation, Ordeal, Receipt, Sight, Struck
from stress.owner import Usage

OWNER = Caller("ana", "store0")
TALK = Caller("ana", "store0", "talk")
CLOSED = Caller("ana", "store0", "closed")
STRANGER = Caller("ben", "store1")
RECORD = "11111111-1111-4111-8111-111111111111"
OTHER = "22222222-2222-4222-8222-222222222222"
SECRETS = {
    "secret-aaaaaaaaaaaa": "store0/private",
    "secret-bbbbbbbbbbbb": "store0/talk",
    "secret-cccccccccccc": "store1/private",
}
_numbers = itertools.count()


def hash_of(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


class Told(Inspector):
    """An inspector that was told what the store says."""

    def __init__(
        self,
        texts: Mapping[tuple[str, int], str] | None = None,
        listed: set[tuple[str, str]] | None = None,
        found: Mapping[str, set[str]] | None = None,
    ) -> None:
        self._texts = texts or {}
        self._listed = listed or set()
        self._found = found or {}

    def revision(self, caller: Caller, record: str, sequence: int) -> str:
        return self._texts.get((record, sequence), "")

    def records(self, caller: Caller) -> set[tuple[str, str]]:
        return self._listed

    def found(self, caller: Caller, word: str) -> set[str]:
        return self._found.get(word, set())


def call(
    began: float = 0.0,
    ended: float | None = None,
    *,
    code: str = "ok",
    caller: Caller = OWNER,
    tool: str = "knowledge_record",
    arguments: JsonObject | None = None,
    deadline: float | None = None,
    receipt: Receipt | None = None,
    sight: Sight | None = None,
    secrets: frozenset[str] = frozenset(),
    place: tuple[int, int] = (1, 100),
    cancelled: bool = False,
) -> Operation:
    return Operation(
        next(_numbers),
        caller.agent,
        "socket",
        caller,
        tool,
        arguments or {},
        began,
        began + 1 if ended is None else ended,
        deadline,
        code,
        "never",
        receipt,
        sight,
        secrets,
        place,
        cancelled,
    )


def written(request: str, began: float, content: str = "h1", record: str = RECORD, **more: str) -> Operation:
    receipt = Receipt(((record, 1, content),), nothing=False, digest=more.get("digest", f"{request} {content}"))
    return call(began, tool="knowledge_save_page", arguments={"requestId": request}, receipt=receipt)


def row(sequence: int, request: str | None, content: str | None = "h1", record: str | None = RECORD) -> Row:
    return Row(sequence, request, record, content, "ana")


def evidence(
    *entries: Operation | Edit | Access | Struck | Ordeal | Life,
    rows: Sequence[Row] = (),
    files: Sequence[OnDisk] = (),
    told: Inspector | None = None,
    histories: Mapping[str, Sequence[Row]] | None = None,
    surplus: int = 0,
) -> Evidence:
    ledger = Ledger()
    for entry in entries:
        ledger.add(entry)
    ledger.count_surplus(surplus)
    usage = Usage(0.0, 20, 60, 1 << 26)
    return Evidence(
        ledger=ledger,
        inspector=told or Told(),
        owners={"store0": OWNER},
        histories=histories or {"store0/private": rows},
        files={"store0": files},
        secrets=SECRETS,
        closed=frozenset({CLOSED}),
        outages=[],
        lags=[],
        waits=[],
        rest=(usage, usage),
        ended_by_itself=[],
        repositories={"store0": None},
    )


def file(text: str, record: str = RECORD) -> OnDisk:
    return OnDisk(record, hash_of(text), text.encode())


def edit(began: float, content: str | None, *, token: str | None = None, deed: str = "by rename") -> Edit:
    assert deed in ("in place", "by rename", "remove", "cut off", "add", "rename")
    return Edit(deed, "store0", "notes/a.md", RECORD, token, content, began, began + 1)  # type: ignore[arg-type]


def fell(*lives: tuple[str, str, int, float], role: str = "lane", kind: str = "crashes") -> list[Struck | Life]:
    """An actor of store v is struck at 10; what began and ended around it, each with its incarnation and when."""
    place = "root/store v/lane" if role == "lane" else f"root/store v/helpers/{role}"
    struck = Struck(f"{role} {kind}", f"{place}: journal.commit", 10.0, 7)
    found: list[Struck | Life] = [struck]
    for what, name, incarnation, at in lives:
        assert what in ("started", "ended")
        actor = f"root/store v/{name}" if name == "lane" else f"root/store v/helpers/{name}"
        found.append(Life(what, actor, incarnation, at, 7))  # type: ignore[arg-type]
    return found


BEFORE = (("started", "lane", 1, 1.0), ("started", "indexer", 1, 1.1))


def access(granted: str | None, began: float, arrived: dict[int, int] | None = None) -> Access:
    return Access("ana", "talk", granted, began, began + 1, arrived or {})


TOKEN = "hand0123456789abcdef"
WORD = "0123456789abcdef"
PAGE = f"---\nid: {RECORD}\n---\n\nThe frost needs compost, {WORD}.\n"
WITHDRAWN = f'---\nid: {RECORD}\nlifecycle: "withdrawn"\n---\n\n{WORD}\n'
REQUEST: JsonObject = {"requestId": "r1"}

ACCEPTED: Mapping[Judge, Sequence[Callable[[], Evidence]]] = {
    judges.one_answer_each: [
        lambda: evidence(call(), call(code="denied")),
        lambda: replace(evidence(call(5, code="lost")), outages=[(5.5, 7)]),
        # It had said nothing since before the outage, and finds its connection gone.
        lambda: replace(evidence(call(0), call(50, code="lost")), outages=[(5, 7)]),
    ],
    judges.none_late: [
        lambda: evidence(call(0, 10.2, deadline=10), call(0, 99, deadline=None)),
        lambda: replace(evidence(call(0, 12, deadline=10)), outages=[(9, 11)]),
        lambda: replace(evidence(call(0, 10.7, deadline=10)), lags=[(9.9, 0.5)]),
        lambda: replace(evidence(call(0, 10.7, deadline=10)), waits=[(8.0, 10.0, 9.0), (10.0, 10.6, 0.5)]),
        lambda: replace(evidence(call(0, 11, deadline=10, code="lost")), outages=[(10.2, 12)]),
    ],
    judges.enough_succeed: [
        lambda: evidence(*(call() for _ in range(9)), call(code="busy")),
        lambda: evidence(call(code="stale_fence"), call(code="not_found"), call(code="deadline", deadline=0.05)),
        lambda: evidence(call(code="deadline", cancelled=True)),
        lambda: replace(evidence(call(), call(5, code="restarting")), outages=[(5, 6)]),
        lambda: evidence(call(), call(code="internal"), Struck("lane crashes", "lane", 0.5)),
        lambda: evidence(call(), call(5, code="store_unavailable"), Ordeal("a mount", "store0", 4, 5)),
        lambda: evidence(call(), call(5, code="storage_error"), Ordeal("a full disk", None, 4, 5)),
    ],
    judges.acknowledged_writes_stay: [
        lambda: evidence(written("r1", 0), rows=[row(1, "r1")]),
        lambda: evidence(call(arguments=REQUEST, receipt=Receipt((), nothing=True, digest=""))),
        lambda: evidence(call(arguments=REQUEST, receipt=Receipt((), nothing=False, digest="")), rows=[row(1, "r1")]),
    ],
    judges.revisions_hold_their_bytes: [
        lambda: evidence(rows=[row(1, "r1", hash_of("text"))], told=Told(texts={(RECORD, 1): "text"})),
        lambda: evidence(rows=[row(1, "r1", None)]),
    ],
    judges.reads_show_their_revision: [
        lambda: evidence(
            call(sight=Sight(RECORD, "h1", frozenset({WORD}))),
            rows=[row(1, "r1")],
            told=Told(texts={(RECORD, 1): PAGE}),
        ),
        lambda: evidence(call(sight=Sight(RECORD, "unknown", frozenset({WORD})))),
    ],
    judges.one_effect_a_request: [
        lambda: evidence(
            written("r1", 0), written("r1", 5), rows=[row(1, "r1"), row(1, "r1", "h2", OTHER), row(2, "r2")]
        ),
    ],
    judges.history_follows_time: [
        lambda: evidence(written("r1", 0), written("r2", 5), rows=[row(1, "r1"), row(2, "r2")]),
        lambda: evidence(written("r1", 0), written("r2", 0.5), rows=[row(1, "r2"), row(2, "r1")]),
    ],
    judges.records_are_linearizable: [
        lambda: evidence(written("r1", 0), call(2, sight=Sight(RECORD, "h1")), rows=[row(1, "r1")]),
        lambda: evidence(
            written("r1", 0), edit(2, "h2"), call(4, sight=Sight(RECORD, "h2")), rows=[row(1, "r1"), row(2, None, "h2")]
        ),
        # Nobody had heard of the edit yet, and that is known of the watch.
        lambda: evidence(
            written("r1", 0),
            Ordeal("a deaf watcher", "store0", 2, 20, unheard=True),
            edit(3, "h2"),
            call(10, sight=Sight(RECORD, "h1")),
            call(25, sight=Sight(RECORD, "h2")),
            rows=[row(1, "r1"), row(2, None, "h2")],
        ),
        # While its file was cut off nobody can say what the record is.
        lambda: evidence(
            written("r1", 0),
            Ordeal("a truncated Markdown file", "store0", 2, 4, record=RECORD),
            call(3, sight=Sight(RECORD, "half")),
            rows=[row(1, "r1")],
        ),
    ],
    judges.no_edit_is_lost: [
        lambda: evidence(edit(0, "h2", token=TOKEN), files=[file(f"text {TOKEN}")]),
        lambda: evidence(edit(0, "h2", token=TOKEN), rows=[row(1, None, "h2")]),
        lambda: evidence(
            edit(0, "h2", token=TOKEN), rows=[row(1, None, "h3")], told=Told(texts={(RECORD, 1): f"text {TOKEN}"})
        ),
        lambda: evidence(edit(0, "h2", token=TOKEN), edit(3, None, deed="remove")),
        lambda: evidence(edit(0, "h2", token=TOKEN), replace(edit(3, "h3", deed="cut off"), taken=frozenset({TOKEN}))),
    ],
    judges.nothing_crosses_partitions: [
        lambda: evidence(call(secrets=frozenset({"secret-aaaaaaaaaaaa"}))),
        lambda: evidence(call(caller=TALK, secrets=frozenset({"secret-aaaaaaaaaaaa"}))),
        lambda: evidence(call(secrets=frozenset({"secret-999999999999"}))),
    ],
    judges.nothing_after_a_revocation: [
        lambda: evidence(
            access(None, 10), call(12, caller=TALK, secrets=frozenset({"secret-bbbbbbbbbbbb"})), access("read", 20)
        ),
        lambda: evidence(access(None, 10), access("read", 11), call(12, caller=TALK, secrets=frozenset(SECRETS))),
        # It had arrived before the revocation was answered, and was only read later.
        lambda: evidence(access(None, 10, {1: 100}), call(9, 12, caller=TALK, secrets=frozenset(SECRETS))),
        # Saved before, and only repeated after.
        lambda: evidence(
            call(5, caller=TALK, arguments=REQUEST),
            access(None, 10),
            call(12, caller=TALK, arguments=REQUEST),
            rows=[row(1, "r1")],
        ),
        # Refused while it was shut out, and saved when it sent the same again, let in once more.
        lambda: evidence(
            access(None, 10),
            call(12, caller=TALK, arguments=REQUEST, code="deadline"),
            access("read-save", 20),
            call(22, caller=TALK, arguments=REQUEST),
            rows=[row(1, "r1")],
        ),
    ],
    judges.catalogue_equals_files: [
        lambda: evidence(files=[file(PAGE)], told=Told(listed={(RECORD, hash_of(PAGE)[:16])})),
    ],
    judges.index_equals_files: [
        lambda: evidence(files=[file(PAGE)], told=Told(found={WORD: {RECORD}})),
        lambda: evidence(files=[file(WITHDRAWN)]),
        lambda: evidence(files=[file(WITHDRAWN.replace("withdrawn", "merged"))]),
    ],
    judges.repositories_are_sound: [lambda: evidence()],
    judges.the_process_survives: [lambda: replace(evidence(), outages=[(1, 2)])],
    judges.damages_are_contained: [
        lambda: evidence(),
        lambda: replace(evidence(), findings=[Finding("a full disk"), Finding("a mount", skipped="only root may")]),
    ],
    judges.crashed_actors_come_back: [
        lambda: evidence(),
        lambda: evidence(
            *fell(
                *BEFORE,
                ("ended", "lane", 1, 10.1),
                ("ended", "indexer", 1, 10.2),
                ("started", "lane", 2, 10.3),
                ("started", "indexer", 2, 10.5),
            )
        ),
        lambda: evidence(
            *fell(*BEFORE, ("ended", "indexer", 1, 10.1), ("started", "indexer", 2, 10.2), role="indexer")
        ),
        # It withstood; it was killed with all the others; the run was over.
        lambda: evidence(*fell(*BEFORE)),
        lambda: replace(evidence(*fell(*BEFORE, ("ended", "lane", 1, 10.1))), outages=[(11, 12)]),
        lambda: replace(evidence(*fell(*BEFORE, ("ended", "lane", 1, 10.1))), until=12.0),
    ],
    judges.nothing_grows: [
        lambda: evidence(),
        lambda: replace(evidence(), rest=(Usage(0, 20, 60, 0), Usage(9, 30, 160, 0))),
        lambda: replace(evidence(call(), call(caller=TALK)), rest=(Usage(0, 20, 60, 0), Usage(9, 30, 192, 0))),
        lambda: replace(evidence(call()), rest=(Usage(0, 20, 60, 80 << 20), Usage(9, 20, 60, 340 << 20))),
    ],
}

OBJECTED: Mapping[Judge, Sequence[Callable[[], Evidence]]] = {
    judges.one_answer_each: [
        lambda: evidence(call(code="no_answer")),
        lambda: evidence(call(code="lost")),
        lambda: replace(evidence(call(0), call(20), call(50, code="lost")), outages=[(5, 7)]),
        lambda: evidence(call(code="protocol_error")),
        lambda: evidence(call(), surplus=1),
    ],
    judges.none_late: [
        lambda: evidence(call(0, 10.5, deadline=10)),
        lambda: replace(evidence(call(0, 12, deadline=10)), waits=[(10.0, 12.0, 60.0)]),
        lambda: replace(evidence(call(0, 10.7, deadline=10)), waits=[(8.0, 10.0, 9.0)], lags=[(-3.0, 0.5)]),
        # Nothing answered it but the end of the owner, long after it was due.
        lambda: replace(evidence(call(0, 15, deadline=10, code="lost")), outages=[(14.5, 16)]),
    ],
    judges.enough_succeed: [
        lambda: evidence(*(call() for _ in range(8)), call(code="busy"), call(code="restarting")),
        lambda: evidence(call(code="deadline", deadline=10)),
        lambda: evidence(call(), call(5, code="store_unavailable"), Ordeal("a mount", "store1", 4, 5)),
        lambda: evidence(call(), call(9, code="store_unavailable"), Ordeal("a mount", "store0", 4, 5)),
    ],
    judges.acknowledged_writes_stay: [
        lambda: evidence(written("r1", 0)),
        lambda: evidence(written("r1", 0), rows=[row(1, "r1", "h2")]),
        lambda: evidence(written("r1", 0), rows=[row(1, "r2")]),
        lambda: evidence(call(arguments=REQUEST, receipt=Receipt((), nothing=False, digest=""))),
    ],
    judges.revisions_hold_their_bytes: [
        lambda: evidence(rows=[row(1, "r1", hash_of("text"))], told=Told(texts={(RECORD, 1): "text "})),
    ],
    judges.reads_show_their_revision: [
        lambda: evidence(
            call(sight=Sight(RECORD, "h1", frozenset())), rows=[row(1, "r1")], told=Told(texts={(RECORD, 1): PAGE})
        ),
        lambda: evidence(
            call(sight=Sight(RECORD, "h1", frozenset({"f" * 16}))),
            rows=[row(1, "r1")],
            told=Told(texts={(RECORD, 1): PAGE}),
        ),
    ],
    judges.one_effect_a_request: [
        lambda: evidence(rows=[row(1, "r1"), row(2, "r1")]),
        lambda: evidence(written("r1", 0, digest="one"), written("r1", 5, digest="another"), rows=[row(1, "r1")]),
    ],
    judges.history_follows_time: [
        lambda: evidence(written("r1", 0), written("r2", 5), rows=[row(1, "r2"), row(2, "r1")]),
    ],
    judges.records_are_linearizable: [
        # A deaf watch must be found, and what it did not hear of with it.
        lambda: evidence(
            written("r1", 0),
            Ordeal("a deaf watcher", "store0", 2, 20, unheard=True),
            edit(3, "h2"),
            call(25, sight=Sight(RECORD, "h1")),
            rows=[row(1, "r1"), row(2, None, "h2")],
        ),
        lambda: evidence(written("r1", 0), call(2, sight=Sight(RECORD, None)), rows=[row(1, "r1")]),
        lambda: evidence(
            written("r1", 0),
            written("r2", 2, "h2"),
            call(4, sight=Sight(RECORD, "h1")),
            rows=[row(1, "r1"), row(2, "r2", "h2")],
        ),
        lambda: evidence(
            written("r1", 0),
            call(2, code="stale_fence", arguments={"requestId": "r2", "id": RECORD, "expectedHash": "h1"}),
            rows=[row(1, "r1")],
        ),
        lambda: evidence(
            written("r1", 0),
            call(2, arguments={"requestId": "r2", "id": RECORD, "expectedHash": "h0"}),
            rows=[row(1, "r1"), row(2, "r2", "h2")],
        ),
    ],
    judges.no_edit_is_lost: [
        lambda: evidence(edit(0, "h2", token=TOKEN), files=[file("text")], rows=[row(1, "r1")]),
    ],
    judges.nothing_crosses_partitions: [
        lambda: evidence(call(secrets=frozenset({"secret-cccccccccccc"}))),
        lambda: evidence(call(caller=CLOSED, secrets=frozenset({"secret-aaaaaaaaaaaa"}))),
        lambda: evidence(call(caller=STRANGER, secrets=frozenset({"secret-bbbbbbbbbbbb"}))),
    ],
    judges.nothing_after_a_revocation: [
        lambda: evidence(access(None, 10), call(12, caller=TALK, secrets=frozenset({"secret-aaaaaaaaaaaa"}))),
        lambda: evidence(access(None, 10, {1: 99}), call(9, 12, caller=TALK, secrets=frozenset(SECRETS))),
        lambda: evidence(access(None, 10), call(12, caller=TALK, arguments=REQUEST), rows=[row(1, "r1")]),
    ],
    judges.catalogue_equals_files: [
        lambda: evidence(files=[file(PAGE)]),
        lambda: evidence(told=Told(listed={(RECORD, hash_of(PAGE)[:16])})),
        lambda: evidence(files=[file(PAGE)], told=Told(listed={(RECORD, hash_of("earlier")[:16])})),
    ],
    judges.index_equals_files: [
        lambda: evidence(files=[file(PAGE)]),
        lambda: evidence(files=[file(WITHDRAWN.replace("withdrawn", "superseded"))]),
        lambda: evidence(files=[file(PAGE)], told=Told(found={WORD: {RECORD, OTHER}})),
    ],
    judges.repositories_are_sound: [
        lambda: replace(evidence(), repositories={"store0": "git fsck: missing blob"}),
    ],
    judges.the_process_survives: [lambda: replace(evidence(), ended_by_itself=["ended after 3 injuries"])],
    judges.damages_are_contained: [
        lambda: replace(evidence(), findings=[Finding("a full disk", wrong=["the process ended"])]),
    ],
    judges.crashed_actors_come_back: [
        lambda: evidence(*fell(*BEFORE, ("ended", "lane", 1, 10.1), ("ended", "indexer", 1, 10.2))),
        lambda: evidence(
            *fell(*BEFORE, ("ended", "indexer", 1, 10.1), ("started", "indexer", 2, 40.0), role="indexer")
        ),
        # Its helper went on, or was started before it, or not at all.
        lambda: evidence(
            *fell(*BEFORE, ("ended", "lane", 1, 10.1), ("started", "lane", 2, 10.3), ("started", "indexer", 2, 10.5))
        ),
        lambda: evidence(
            *fell(
                *BEFORE,
                ("ended", "lane", 1, 10.1),
                ("ended", "indexer", 1, 10.2),
                ("started", "indexer", 2, 10.3),
                ("started", "lane", 2, 10.4),
            )
        ),
        lambda: evidence(
            *fell(*BEFORE, ("ended", "lane", 1, 10.1), ("ended", "indexer", 1, 10.2), ("started", "lane", 2, 10.3))
        ),
        # A helper took its lane along.
        lambda: evidence(
            *fell(
                *BEFORE,
                ("ended", "indexer", 1, 10.1),
                ("ended", "lane", 1, 10.15),
                ("started", "indexer", 2, 10.2),
                role="indexer",
            )
        ),
        lambda: evidence(*fell(*BEFORE, kind="dies")),
    ],
    judges.nothing_grows: [
        lambda: replace(evidence(), rest=(Usage(0, 20, 60, 0), Usage(9, 37, 60, 0))),
        lambda: replace(evidence(), rest=(Usage(0, 20, 60, 0), Usage(9, 20, 181, 0))),
        lambda: replace(evidence(call()), rest=(Usage(0, 20, 60, 80 << 20), Usage(9, 20, 60, 341 << 20))),
        lambda: replace(evidence(), rest=(Usage(0, 20, 60, 0), None)),
    ],
}


def test_every_judge_is_judged() -> None:
    assert set(ACCEPTED) == set(OBJECTED) == set(JUDGES.values())


@pytest.mark.parametrize(
    ("judge", "made"),
    [pytest.param(judge, made, id=judge.__name__) for judge, cases in ACCEPTED.items() for made in cases],
)
def test_a_judge_accepts_what_keeps_its_promise(judge: Judge, made: Callable[[], Evidence]) -> None:
    verdict = judge(made())
    assert verdict.kept, verdict.detail


@pytest.mark.parametrize(
    ("judge", "made"),
    [pytest.param(judge, made, id=judge.__name__) for judge, cases in OBJECTED.items() for made in cases],
)
def test_a_judge_objects_to_what_breaks_its_promise(judge: Judge, made: Callable[[], Evidence]) -> None:
    assert not judge(made()).kept


@pytest.mark.parametrize(
    ("judge", "made"),
    [
        pytest.param(judge, made, id=judge.__name__)
        for judge, cases in ACCEPTED.items()
        if judge in judges.AT_ONCE
        for made in cases
    ],
)
def test_who_may_object_while_everybody_works_needs_no_word_of_the_store(
    judge: Judge, made: Callable[[], Evidence]
) -> None:
    verdict = judge(replace(made(), owners={}, histories={}, files={}, repositories={}))
    assert verdict.kept, verdict.detail


def test_a_call_counts_as_a_success_a_failure_its_caller_s_fault_or_an_injury_s() -> None:
    ledger = evidence(
        *(call() for _ in range(6)),
        call(code="busy"),
        call(code="restarting"),
        call(5, code="restarting"),
        call(50, code="store_unavailable"),
        call(70, code="internal"),
        Struck("lane crashes", "lane", 70.0),
        Ordeal("a mount", "store0", 50, 51),
        call(code="stale_fence"),
        call(code="deadline", deadline=0.05),
        call(code="cancelled"),
    ).ledger
    found = judges.success(ledger.operations, ledger, [(5, 6)])
    assert found == judges.Success(succeeded=6, failed=2, own_faults=3, injured=3)
    assert (found.calls, found.share) == (8, 0.75)


def test_what_was_over_by_then_holds_no_call_that_was_still_under_way() -> None:
    early, late = call(0, 1), call(0, 9)
    ledger = evidence(early, late, edit(8, None), Struck("lane crashes", "lane", 8.0)).ledger
    then = ledger.until(5)
    assert (then.operations, then.edits, then.struck) == ([early], [], [])
    assert ledger.until(9).operations == [early, late]


def test_a_judge_says_what_it_objects_to() -> None:
    verdict = judges.acknowledged_writes_stay(evidence(written("r1", 0)))
    assert verdict.detail == "1 receipts, 1 wrong; knowledge_save_page r1"

"""The judges of a run. Each knows the ledger and what the store says afterwards, and nothing of the code."""

from __future__ import annotations

import bisect
import hashlib
import random
import re
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from stress.aftermath import Inspector, OnDisk, Row, first_lines, searchable
from stress.damages import Finding
from stress.ledger import UNIQUE, Access, Caller, Edit, Ledger, Operation, Ordeal
from stress.linearizability import FOREVER, Effect, Event, Put, Read, Refused, Swap, TooHard, linearizable
from stress.lives import falls
from stress.owner import Usage

GRACE_SECONDS: Final = 0.25
MACHINE_SECONDS: Final = 1.0
"""At most so much of a late answer is the machine's, which had no processor for the owner."""
SUCCESS_SHARE: Final = 0.90
SAMPLED_REVISIONS: Final = 800
SAMPLED_READS: Final = 400
SAMPLED_WORDS: Final = 60
EVENTS_SHOWN: Final = 12
THREADS_MORE: Final = 16
DESCRIPTORS_MORE: Final = 120
DESCRIPTORS_A_PARTITION: Final = 6
RESIDENT_MORE: Final = 256 << 20
RESIDENT_A_PARTITION: Final = 4 << 20
"""Bytes: pages of the databases that stay open are kept, and what a busy allocator does not give back."""
_HAND: Final = re.compile(rb"hand[0-9a-f]{16}")
UNAVAILABLE: Final = frozenset(
    {"busy", "restarting", "store_unavailable", "internal", "deadline", "lost", "no_answer", "storage_error",
     "store_opening", "stopping", "publication_pending", "scan_incomplete", "quarantined", "index_unavailable"}
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Verdict:
    """One promise, and whether the run kept it. ``judge`` is the name of who says so."""

    name: str
    kept: bool
    detail: str
    judge: str = ""


@dataclass(slots=True)
class Evidence:
    """Everything that a judge may look at."""

    ledger: Ledger
    inspector: Inspector
    owners: Mapping[str, Caller]
    """An owner-private caller of each store."""
    histories: Mapping[str, Sequence[Row]]
    """By partition, oldest first."""
    files: Mapping[str, Sequence[OnDisk]]
    """Of each store's private partition."""
    secrets: Mapping[str, str]
    """Secret to the partition that it belongs to."""
    closed: frozenset[Caller]
    """Conversations that nobody ever let in, nor out."""
    outages: Sequence[tuple[float, float]]
    """When the owner was killed or suspended on purpose, and when it was back."""
    lags: Sequence[tuple[float, float]]
    """When this process itself was held up, and for how long."""
    waits: Sequence[tuple[float, float, float]]
    """Spans in order, and how many seconds the two threads of the owner that waited most had no processor in each."""
    rest: tuple[Usage | None, Usage | None]
    """What the owner held before anybody worked, and after everybody had left."""
    ended_by_itself: Sequence[str]
    repositories: Mapping[str, str | None]
    findings: Sequence[Finding] = ()
    """Of damages to files, when the run did any."""
    until: float = FOREVER
    """When the work ended."""
    chance: random.Random = field(default_factory=lambda: random.Random(0))


Judge = Callable[[Evidence], Verdict]


def one_answer_each(evidence: Evidence) -> Verdict:
    ledger = evidence.ledger
    silent = [op for op in ledger.operations if op.code == "no_answer"]
    lost = _lost_without_an_outage(evidence)
    odd = [op for op in ledger.operations if op.code in ("protocol_error", "None")]
    wrong = [*silent, *lost, *odd]
    detail = (
        f"{len(ledger.operations)} calls: {len(silent)} without an answer, {len(lost)} lost while the owner was there"
    )
    return Verdict(
        "every call is answered exactly once",
        not wrong and not ledger.surplus,
        f"{detail}, {len(odd)} that no client can read, {ledger.surplus} answers too many{_named(wrong)}",
    )


def none_late(evidence: Evidence) -> Verdict:
    """The machine's part is taken off: two threads of the owner bring an answer, and each may wait for a processor."""
    late = [
        op
        for op in evidence.ledger.operations
        if op.deadline is not None
        and op.ended > op.deadline + GRACE_SECONDS
        and op.ended > (due := _due(op, evidence))
        # Who was answered by nothing but the end of the owner, long after the deadline, was late before it.
        and not _overlaps(replace(op, ended=due), evidence.outages, 0.5)
    ]
    most = max((op.ended - _due(op, evidence) for op in late), default=0.0)
    detail = f"{len(late)} late" + (f", the latest by {most:.2f} s" if late else "")
    return Verdict("no answer is later than its deadline", not late, f"{detail}{_named(late)}")


@dataclass(frozen=True, slots=True)
class Success:
    """How many calls succeeded of those that had nothing against them: neither a fault of the caller's own, as a stale
    fence, a missing right, a cancellation or a deadline of milliseconds, nor an injury of their store or its owner."""

    succeeded: int
    failed: int
    own_faults: int
    injured: int

    @property
    def calls(self) -> int:
        return self.succeeded + self.failed

    @property
    def share(self) -> float:
        return self.succeeded / self.calls if self.calls else 1.0


def success(operations: Sequence[Operation], ledger: Ledger, outages: Sequence[tuple[float, float]]) -> Success:
    """Of these calls. An injury excuses each call that was under way at it, and one more that fell over it."""
    succeeded = sum(op.code == "ok" for op in operations)
    unavailable = [op for op in operations if op.code in UNAVAILABLE and not _asked_for(op)]
    injured = sum(_overlaps(op, outages, 1.0) or _suffers(op, ledger.ordeals) for op in unavailable)
    struck = min(len(ledger.struck), sum(op.code in ("internal", "storage_error") for op in unavailable))
    failed = max(0, len(unavailable) - injured - struck)
    return Success(succeeded, failed, len(operations) - succeeded - len(unavailable), len(unavailable) - failed)


def enough_succeed(evidence: Evidence) -> Verdict:
    found = success(evidence.ledger.operations, evidence.ledger, evidence.outages)
    return Verdict(
        "at least 90 % of the calls without a fault of their own succeed",
        found.share >= SUCCESS_SHARE,
        f"{found.share:.2%} of {found.calls}; beside them {found.own_faults} with a fault of their own and "
        f"{found.injured} in an injury",
    )


def acknowledged_writes_stay(evidence: Evidence) -> Verdict:
    """Every record that a receipt names is in history under its request id, with the same hash."""
    kept = {(row.request_id, row.record, row.content) for rows in evidence.histories.values() for row in rows}
    requests = {row.request_id for rows in evidence.histories.values() for row in rows}
    checked, wrong = 0, list[str]()
    for op in evidence.ledger.operations:
        if op.receipt is None or op.receipt.nothing:
            continue
        checked += 1
        named = op.receipt.records
        missing = [record for record, _, content in named if (op.request_id, record, content) not in kept]
        if missing or (not named and op.request_id not in requests and op.tool != "knowledge_attach"):
            wrong.append(f"{op.tool} {op.request_id}")
    return _judged("no acknowledged write is missing or changed", f"{checked} receipts", wrong)


def revisions_hold_their_bytes(evidence: Evidence) -> Verdict:
    """What history gives back for a revision has the hash that its receipt named."""
    rows = [
        (partition, row)
        for partition, found in evidence.histories.items()
        if partition.endswith("/private")
        for row in found
        if row.record is not None and row.content is not None
    ]
    sample = evidence.chance.sample(rows, min(SAMPLED_REVISIONS, len(rows)))
    wrong = []
    for partition, row in sample:
        assert row.record is not None
        caller = evidence.owners[partition.removesuffix("/private")]
        text = evidence.inspector.revision(caller, row.record, row.sequence)
        if hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest() != row.content:
            wrong.append(f"{row.record} at {row.sequence}")
    return _judged("every revision's bytes are in history", f"{len(sample)} of {len(rows)} revisions", wrong)


def reads_show_their_revision(evidence: Evidence) -> Verdict:
    """The body of a page that was read is the one of the revision whose hash the answer names."""
    rows = {
        (row.record, row.content): (partition.removesuffix("/private"), row.sequence)
        for partition, found in evidence.histories.items()
        if partition.endswith("/private")
        for row in found
    }
    seen = {
        (op.sight.record, op.sight.content, op.sight.words)
        for op in evidence.ledger.operations
        if op.sight is not None and op.sight.words is not None and (op.sight.record, op.sight.content) in rows
    }
    found = sorted(seen, key=lambda one: (one[0], str(one[1]), sorted(one[2] or ())))
    sample = evidence.chance.sample(found, min(SAMPLED_READS, len(found)))
    wrong = []
    for record, content, words in sample:
        store, sequence = rows[record, content]
        text = evidence.inspector.revision(evidence.owners[store], record, sequence)
        if set(UNIQUE.findall(text.partition("\n---\n")[2])) != words:
            wrong.append(f"{record} at {sequence}")
    return _judged("a read shows the revision that it names", f"{len(sample)} of {len(found)} reads", wrong)


def one_effect_a_request(evidence: Evidence) -> Verdict:
    wrong = []
    total = 0
    for partition, rows in evidence.histories.items():
        sequences = defaultdict[str, set[int]](set)
        for row in rows:
            if row.request_id is not None:
                sequences[row.request_id].add(row.sequence)
        total += len(sequences)
        wrong += [f"{partition}: {request}" for request, found in sequences.items() if len(found) > 1]
    receipts = defaultdict[tuple[str | None, Caller], set[str]](set)
    for op in evidence.ledger.operations:
        if op.receipt is not None and op.caller.conversation is None:
            receipts[op.request_id, op.caller].add(op.receipt.digest)
    wrong += [f"two receipts of {request}" for (request, _), found in receipts.items() if len(found) > 1]
    return _judged("no request has two effects", f"{total} requests", wrong)


def history_follows_time(evidence: Evidence) -> Verdict:
    """A write that was answered before another was asked for comes before it in history."""
    homes = Counter(
        (partition.split("/")[0], request)
        for partition, rows in evidence.histories.items()
        for request in {row.request_id for row in rows}
    )
    ended: dict[tuple[str, str | None], tuple[float, float]] = {}
    for op in evidence.ledger.operations:
        key = (op.caller.store, op.request_id)
        # A conversation that was let in and out may have sent one request to two partitions.
        if op.request_id is not None and homes[key] == 1:
            began, end = ended.get(key, (FOREVER, FOREVER))
            ended[key] = (min(began, op.began), min(end, op.ended if op.receipt is not None else FOREVER))
    wrong, total = [], 0
    for partition, rows in evidence.histories.items():
        latest = (-FOREVER, "")
        for row in rows:
            times = ended.get((partition.split("/")[0], row.request_id))
            if times is None or row.request_id is None:
                continue
            total += 1
            if times[1] < latest[0]:
                wrong.append(f"{row.request_id} stands after {latest[1]} in {partition}")
            latest = max(latest, (times[0], row.request_id))
    return _judged("history has the order in which writes were answered", f"{total} rows", wrong)


def records_are_linearizable(evidence: Evidence) -> Verdict:
    """Reads, fenced writes, refusals and a person's saves of each record have an order that explains every answer."""
    events = _events(evidence)
    wrong, hard = [], 0
    for record, found in events.items():
        try:
            if not linearizable(found):
                wrong.append(f"{record}: {_told(found)}")
        except TooHard:
            hard += 1
    total = sum(map(len, events.values()))
    return _judged(
        "every record is linearizable", f"{len(events)} records, {total} operations, {hard} too hard to tell", wrong
    )


def no_edit_is_lost(evidence: Evidence) -> Verdict:
    """Each word that a person wrote stands in a file, or in a revision of the record that the file was."""
    wrong, checked = [], 0
    for store, files in evidence.files.items():
        there = {token for file in files for token in _HAND.findall(file.text)}
        rows = defaultdict[str, list[Row]](list)
        texts = set[tuple[str, str | None]]()
        for row in evidence.histories[f"{store}/private"]:
            if row.record is not None:
                rows[row.record].append(row)
                texts.add((row.record, row.content))
        # What a person took away themselves, before anybody had looked, is nobody's loss.
        removed = {edit.record for edit in evidence.ledger.edits if edit.store == store and edit.deed == "remove"}
        taken = {token for edit in evidence.ledger.edits for token in edit.taken}
        for edit in evidence.ledger.edits:
            if edit.store != store or edit.token is None:
                continue
            checked += 1
            if edit.token.encode() in there or edit.record in removed or edit.token in taken:
                continue
            # The very text is a revision, and that those hold their bytes is judged elsewhere: asking takes long.
            if edit.record is not None and (edit.record, edit.content) in texts:
                continue
            if _in_history(evidence, edit, rows):
                continue
            wrong.append(f"{edit.token} in {edit.path.rsplit('/', 1)[-1]}")
    return _judged("no edit by hand is lost", f"{checked} edits", wrong)


def nothing_crosses_partitions(evidence: Evidence) -> Verdict:
    wrong, checked = [], 0
    closed = {caller.partition for caller in evidence.closed}
    for op in evidence.ledger.operations:
        for secret in op.secrets:
            checked += 1
            home = evidence.secrets.get(secret)
            if home is None or home == op.caller.partition:
                continue
            foreign = home.split("/")[0] != op.caller.store
            if foreign or home in closed or op.caller in evidence.closed:
                wrong.append(f"{op.caller.partition} saw what is {home}'s by {op.tool}")
    return _judged("nothing crosses partitions", f"{checked} sights of a secret", wrong)


def nothing_after_a_revocation(evidence: Evidence) -> Verdict:
    """After the answer to a revocation no byte of the private partition arrives, and no save lands there."""
    private = {secret for secret, home in evidence.secrets.items() if home.endswith("/private")}
    requests = {
        (partition, row.request_id)
        for partition, rows in evidence.histories.items()
        if partition.endswith("/private")
        for row in rows
    }
    attempts = defaultdict[str | None, list[Operation]](list)
    for op in evidence.ledger.operations:
        attempts[op.request_id].append(op)
    by_caller = defaultdict[tuple[str, str | None], list[Operation]](list)
    for op in evidence.ledger.operations:
        by_caller[op.caller.agent, op.caller.conversation].append(op)
    wrong, checked = [], 0
    for change, until in _closed_spans(evidence.ledger.access):
        checked += 1
        for op in by_caller[change.agent, change.conversation]:
            if op.ended <= change.ended or op.began >= until or op.ended >= until:
                continue
            connection, bytes_then = op.place
            arrived_later = connection not in change.arrived or bytes_then > change.arrived[connection]
            if arrived_later and op.secrets & private:
                wrong.append(f"{op.caller.partition} saw a private record by {op.tool}")
            saved = op.request_id is not None and (f"{op.caller.store}/private", op.request_id) in requests
            # Sent once while it was let in, before or after, it may have been saved then.
            if saved and all(change.ended < one.began and one.ended < until for one in attempts[op.request_id]):
                wrong.append(f"{op.caller.partition} saved into the private partition by {op.tool} {op.request_id}")
    return _judged("nothing private after a revocation", f"{checked} revocations", wrong)


def catalogue_equals_files(evidence: Evidence) -> Verdict:
    wrong, total = [], 0
    for store, files in evidence.files.items():
        listed = evidence.inspector.records(evidence.owners[store])
        there = {(file.record, file.content[:16]) for file in files}
        total += len(there)
        wrong += [f"{record} is listed otherwise than its file" for record, _ in sorted(listed ^ there)]
    return _judged("the catalogue is the files", f"{total} files", wrong)


def index_equals_files(evidence: Evidence) -> Verdict:
    wrong, checked = [], 0
    for store, files in evidence.files.items():
        tokens = searchable(files)
        for token in evidence.chance.sample(sorted(tokens), min(SAMPLED_WORDS, len(tokens))):
            checked += 1
            found = evidence.inspector.found(evidence.owners[store], token)
            if found != tokens[token]:
                wrong.append(f"{token}: {len(found)} found, {len(tokens[token])} there")
    return _judged("a search finds what the files hold", f"{checked} words", wrong)


def repositories_are_sound(evidence: Evidence) -> Verdict:
    wrong = [f"{store}: {problem}" for store, problem in evidence.repositories.items() if problem]
    return _judged("git fsck and git status are content", f"{len(evidence.repositories)} repositories", wrong)


def the_process_survives(evidence: Evidence) -> Verdict:
    return _judged(
        "the owner ends only when it is told to",
        f"{len(evidence.outages)} outages on purpose",
        evidence.ended_by_itself,
    )


def damages_are_contained(evidence: Evidence) -> Verdict:
    done = [finding for finding in evidence.findings if finding.skipped is None]
    wrong = [f"{finding.name}: {what}" for finding in done for what in finding.wrong]
    return _judged("a damaged store gives no wrong answer, and the others answer", f"{len(done)} damages", wrong)


def crashed_actors_come_back(evidence: Evidence) -> Verdict:
    """Each actor that an injury ended has its next incarnation, alone or after those it hangs on."""
    found = falls(evidence.ledger, evidence.outages, evidence.until)
    fallen = Counter(fall.role for fall in found if fall.ended is not None)
    wrong = [f"{problem} ({fall.struck.place.split(': ')[-1]})" for fall in found for problem in fall.problems]
    listed = ", ".join(f"{role} {count}" for role, count in fallen.most_common()) or "nobody"
    stood = first_lines(fall.struck.place for fall in found if fall.ended is None)
    return _judged("who crashes comes back, in order", f"fell: {listed}; withstood{stood or ': nobody'}", wrong)


def nothing_grows(evidence: Evidence) -> Verdict:
    """Threads, descriptors and memory after all have left are those before anybody came, and a bounded rest."""
    name = "no thread, descriptor or memory is left"
    before, after = evidence.rest
    if before is None or after is None:
        return Verdict(name, False, "the owner could not be looked at")
    detail = (
        f"threads {before.threads} to {after.threads}, descriptors {before.descriptors} to {after.descriptors}, "
        f"{before.resident >> 20} to {after.resident >> 20} MiB"
    )
    return Verdict(name, not grown(before, after, evidence.ledger), detail)


def grown(before: Usage, after: Usage, ledger: Ledger) -> bool:
    """Whether more is held than the partitions explain that were opened meanwhile, and stay open for a while."""
    partitions = len({op.caller.partition for op in ledger.operations})
    allowed = before.descriptors + DESCRIPTORS_MORE + DESCRIPTORS_A_PARTITION * partitions
    return (
        after.threads > before.threads + THREADS_MORE
        or after.descriptors > allowed
        or after.resident > before.resident + RESIDENT_MORE + RESIDENT_A_PARTITION * partitions
    )


JUDGES: Final[Mapping[str, Judge]] = {
    judge.__name__: judge
    for judge in (
        one_answer_each,
        none_late,
        enough_succeed,
        acknowledged_writes_stay,
        revisions_hold_their_bytes,
        reads_show_their_revision,
        one_effect_a_request,
        history_follows_time,
        records_are_linearizable,
        no_edit_is_lost,
        nothing_crosses_partitions,
        nothing_after_a_revocation,
        catalogue_equals_files,
        index_equals_files,
        repositories_are_sound,
        the_process_survives,
        damages_are_contained,
        crashed_actors_come_back,
        nothing_grows,
    )
}


ANSWERS: Final[Sequence[Judge]] = (
    one_answer_each,
    none_late,
    nothing_crosses_partitions,
    the_process_survives,
    crashed_actors_come_back,
)
"""Those who need nothing but what clients were answered and what became of the process."""
AT_ONCE: Final = frozenset({*ANSWERS, nothing_after_a_revocation, one_effect_a_request})
"""Those who may object while everybody works: what they object to then stays wrong, whatever comes."""


# --- parts ------------------------------------------------------------------------------------------------


def _events(evidence: Evidence) -> dict[str, list[Event]]:
    """What happened to each record of a private partition that one of its owners touched."""
    events = defaultdict[str, list[Event]](list)
    spans = defaultdict[str | None, list[tuple[float, float]]](list)
    fences = dict[tuple[str, str], str]()
    for op in evidence.ledger.operations:
        if op.request_id is not None:
            if isinstance(op.arguments.get("id"), str) and isinstance(op.arguments.get("expectedHash"), str):
                fences[op.request_id, str(op.arguments["id"])] = str(op.arguments["expectedHash"])
            # A request that was sent several times took effect in one of them: the first answer ends it.
            spans[op.request_id].append((op.began, op.ended if op.code == "ok" else FOREVER))
        if op.sight is not None and op.caller.conversation is None:
            events[op.sight.record].append(Event(op.began, op.ended, Read(op.sight.content)))
        expected = op.arguments.get("expectedHash")
        if op.code == "stale_fence" and isinstance(expected, str) and isinstance(op.arguments.get("id"), str):
            events[str(op.arguments["id"])].append(Event(op.began, op.ended, Refused(expected)))
    for partition, rows in evidence.histories.items():
        if not partition.endswith("/private"):
            continue
        state: dict[str, str | None] = {}
        for row in rows:
            if row.record is None:
                continue
            if row.request_id is not None and row.request_id in spans:
                began = min(began for began, _ in spans[row.request_id])
                ended = min(ended for _, ended in spans[row.request_id])
                expected = fences.get((row.request_id, row.record), state.get(row.record))
                events[row.record].append(Event(began, ended, Swap(expected, row.content)))
            state[row.record] = row.content
    for edit in evidence.ledger.edits:
        if edit.record is not None and edit.deed != "rename":
            certain = edit.deed not in ("in place", "cut off")
            seen = _noticed(edit, evidence.ledger.ordeals)
            events[edit.record].append(Event(edit.began, seen, Put(edit.content, certain)))
    for ordeal in evidence.ledger.ordeals:
        if ordeal.record is not None:
            events.pop(ordeal.record, None)
    return events


def _told(events: Sequence[Event]) -> str:
    """The last events of a record, shortly, for whoever must find out what went wrong."""
    start = min(event.began for event in events)
    last = sorted(events, key=lambda event: event.began)[-EVENTS_SHOWN:]
    return ", ".join(f"{e.began - start:.2f}-{e.ended - start:.2f} {_what(e.effect)}" for e in last)


def _what(effect: Effect) -> str:
    match effect:
        case Read(saw):
            return f"read {_short(saw)}"
        case Swap(expected, new):
            return f"wrote {_short(expected)}>{_short(new)}"
        case Put(new, certain):
            return f"by hand {_short(new)}{'' if certain else '?'}"
        case Refused(expected):
            return f"refused {_short(expected)}"


def _short(state: str | None) -> str:
    return "nothing" if state is None else state[:6]


def _noticed(edit: Edit, ordeals: Iterable[Ordeal]) -> float:
    """When an edit is seen at the latest: at once, or when a watch that was deaf is found to be."""
    return max(
        (
            ordeal.ended
            for ordeal in ordeals
            if ordeal.unheard and ordeal.store == edit.store and ordeal.began <= edit.ended <= ordeal.ended
        ),
        default=edit.ended,
    )


def _in_history(evidence: Evidence, edit: Edit, rows: Mapping[str, Sequence[Row]]) -> bool:
    caller = evidence.owners[edit.store]
    token = edit.token or ""
    return any(
        token in evidence.inspector.revision(caller, edit.record, row.sequence)
        for row in reversed(rows.get(edit.record or "", ()))
        if edit.record is not None and row.content is not None
    )


def _closed_spans(changes: Sequence[Access]) -> Iterable[tuple[Access, float]]:
    """Each revocation, and when the conversation may have been let in again."""
    following = dict[tuple[str, str], float]()
    for change in sorted(changes, key=lambda change: -change.began):
        key = (change.agent, change.conversation)
        if change.granted is None:
            yield change, following.get(key, FOREVER)
        else:
            following[key] = change.began


def _asked_for(op: Operation) -> bool:
    """A call that was cancelled, or that was given no time."""
    tight = op.deadline is not None and op.deadline - op.began < 1.0
    return op.cancelled or (tight and op.code == "deadline")


def _lost_without_an_outage(evidence: Evidence) -> list[Operation]:
    """A client notices at its next call what happened to its connection since the last one."""
    found = []
    used = dict[tuple[str, str], float]()
    for op in sorted(evidence.ledger.operations, key=lambda op: op.began):
        since = used.get((op.client, op.door), op.began)
        if op.code == "lost" and not _overlaps(replace(op, began=since), evidence.outages, 1.0):
            found.append(op)
        used[op.client, op.door] = max(op.ended, since)
    return found


def _due(op: Operation, evidence: Evidence) -> float:
    assert op.deadline is not None
    return op.deadline + GRACE_SECONDS + _held_up(op, evidence.lags) + _not_run(op, evidence.waits)


def _suffers(op: Operation, ordeals: Iterable[Ordeal]) -> bool:
    """Whether its store was being damaged, or had just been."""
    return any(
        ordeal.store in (None, op.caller.store) and op.began <= ordeal.ended + 2.0 and op.ended >= ordeal.began
        for ordeal in ordeals
        if not ordeal.unheard
    )


def _overlaps(op: Operation, spans: Iterable[tuple[float, float]], slack: float) -> bool:
    return any(op.began <= end + slack and op.ended >= start - slack for start, end in spans)


def _held_up(op: Operation, lags: Iterable[tuple[float, float]]) -> float:
    return max((lag for at, lag in lags if op.began <= at <= op.ended + lag + 1.0), default=0.0)


def _not_run(op: Operation, waits: Sequence[tuple[float, float, float]]) -> float:
    """Seconds between the deadline and the answer in which the owner's threads were ready and had no processor."""
    assert op.deadline is not None
    first = max(0, bisect.bisect_right(waits, (op.deadline, 0.0, 0.0)) - 1)
    last = bisect.bisect_right(waits, (op.ended, FOREVER, FOREVER))
    return min(MACHINE_SECONDS, sum(waited for _, end, waited in waits[first:last] if end > op.deadline))


def _judged(name: str, what: str, wrong: Sequence[str]) -> Verdict:
    return Verdict(name, not wrong, f"{what}, {len(wrong)} wrong{first_lines(wrong)}")


def _named(operations: Sequence[Operation]) -> str:
    return first_lines(
        f"{tool} by {door} ({code}) {n}x"
        for (tool, door, code), n in Counter((op.tool, op.door, op.code) for op in operations).most_common()
    )

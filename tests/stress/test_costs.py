"""What an operation costs does not depend on how many records there are: counted, at two sizes that are far apart.

Each operation runs first to warm up (statements prepared, folders made and watched) and is then counted. Search is
asked for a word that stands in equally many records, since ranking a hit is work for each hit.
"""

from __future__ import annotations

import hashlib
import re
import sys
import uuid
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import Final

import pytest

from actors.authority import PermitGate
from actors.runtime import RuntimeSettings
from actors.store.lane import Lane
from messages.audience import Conversation
from messages.json_types import JsonObject, JsonValue
from messages.tools import ToolRequest, parse_arguments
from stress.bench.access import STEPS, gate_with, one_call
from stress.bench.counters import Counts, Meter, metered
from stress.bench.store import BenchStore, Desk, lookup, make_store, remember
from tests.actors.test_barrier_pending import House
from tests.kit.scheduler import VirtualScheduler
from tests.kit.store import remembering

SEED: Final = 11
PLANTED: Final = "quixotically"
PLANTED_PAGE: Final = "A place that nobody else names"
PLANTED_DAY: Final = "2031-05-06"
TREES: Final = 30
"""Tables and indexes that one claim touches. A tree of ten times as many rows may be a level deeper, and a page may
split: so many pages more at most, for each claim, whatever the sizes."""
PAGE_BYTES: Final = 4_096 + 24


@dataclass(slots=True)
class Warm:
    """A store of a size, open, with its index built, and a way to count one operation on it."""

    meter: Meter
    desk: Desk

    def counts(self, prepare: Callable[[Desk], ToolRequest]) -> Counts:
        """The second run's counts; between the runs the background work is done, as it would be by then."""
        self._run(prepare)
        return self._run(prepare)

    def _run(self, prepare: Callable[[Desk], ToolRequest]) -> Counts:
        self.desk.catch_up()
        self.desk.merge()
        self.desk.sync()
        self.desk.partition.refresh()
        request = prepare(self.desk)
        with self.meter.counting() as counted:
            self.desk.run(request)
        return counted


Prepare = Callable[[Desk], ToolRequest]


def first_page(desk: Desk) -> JsonObject:
    """What an agent has read of the page with the number 0."""
    return page_numbered(desk, 0)


def an_edit(desk: Desk) -> ToolRequest:
    return rewriting(first_page(desk), f"Rewritten as {uuid.uuid4()}.")


def page_numbered(desk: Desk, number: int) -> JsonObject:
    """What an agent has read of a page."""
    hits = desk.run(lookup(number))["hits"]
    assert isinstance(hits, list)
    [found] = hits
    assert isinstance(found, dict)
    return found


def rewriting(page: JsonObject, body: str) -> ToolRequest:
    arguments: JsonObject = {
        "requestId": str(uuid.uuid4()),
        "id": page["id"],
        "expectedRevision": page["revision"],
        "expectedHash": page["hash"],
        "title": page["title"],
        "type": "person",
        "body": body,
    }
    return parse_arguments("knowledge_save_page", arguments)


def evidence(desk: Desk) -> JsonObject:
    """A retained source that a write can cite."""
    request_id, text = str(uuid.uuid4()), "User: so it was, said again."
    items: list[JsonObject] = [{"text": f"It was {request_id}.", "kind": "fact"}]
    arguments: JsonObject = {"requestId": request_id, "attribution": "a test", "excerpt": text, "items": [*items]}
    desk.run(parse_arguments("knowledge_remember", arguments))
    return {"path": f"artifacts/{request_id}/excerpt.txt", "sha256": hashlib.sha256(text.encode()).hexdigest()}


def a_batch(desk: Desk) -> ToolRequest:
    """Twenty claims of one source, and a page that the first is about."""
    said: JsonObject = {"assertion_origin": "source", "attribution": "a test", "evidence": [evidence(desk)]}
    claims: list[JsonObject] = [
        {"kind": "claim", "body": f"Claim {n} of {uuid.uuid4()}.", "claim_kind": "fact", **said} for n in range(20)
    ]
    claims[0] = {**claims[0], "entities": ["$page"]}
    # A folder without pages: whether one is crowded is counted, up to a thousand.
    page: JsonObject = {"kind": "page", "ref": "page", "title": f"Page {uuid.uuid4()}", "type": "place", "body": "."}
    desk.catch_up()
    desk.merge()
    desk.sync()
    arguments: JsonObject = {
        "requestId": str(uuid.uuid4()),
        "expectedVaultId": desk.session.vault_id,
        "expectedOntologyFingerprint": desk.partition.ontology.fingerprint,
        "items": [page, *claims],
    }
    return parse_arguments("knowledge_publish_batch", arguments)


def a_growing_edit(desk: Desk) -> ToolRequest:
    """An edit that asks for the page's standing, and that takes away as many links as it brings."""
    page = first_page(desk)
    revision = page["revision"]
    assert isinstance(revision, int)
    others = range(1, 6) if revision % 2 else range(6, 11)
    links = " ".join(f"[[{page_numbered(desk, number)['id']}]]" for number in others)
    return rewriting(page, f"{links}\n\n{'x' * 12_000}{'more ' * revision}\n")


def an_extraction(desk: Desk) -> ToolRequest:
    """A section moves from one page to another that it links to, after both were made anew."""
    desk.run(rewriting(page_numbered(desk, 3), "The other page.\n"))
    other = page_numbered(desk, 3)
    desk.run(rewriting(first_page(desk), f"[[{other['id']}]]\n\n# Section\n\n[t](https://x.y) text\n"))
    source = first_page(desk)
    status = desk.run(parse_arguments("knowledge_status", {}))
    arguments: JsonObject = {
        "requestId": str(uuid.uuid4()),
        "expectedVaultId": status["vaultId"],
        "expectedOntologyFingerprint": status["ontologyFingerprint"],
        "source": fences_of(source),
        "sectionStart": len(f"[[{other['id']}]]\n\n"),
        "destination": fences_of(other),
        "summary": "It moved.",
        "reason": "a test",
    }
    return parse_arguments("knowledge_extract_section", arguments)


def fences_of(page: JsonObject) -> JsonObject:
    return {"id": page["id"], "expectedRevision": page["revision"], "expectedHash": page["hash"]}


def a_reading(desk: Desk) -> ToolRequest:
    return parse_arguments("knowledge_record", {"id": first_page(desk)["id"]})


def a_search(_: Desk) -> ToolRequest:
    return parse_arguments("knowledge_grep", {"query": PLANTED})


def a_lookup_after_an_edit_outside(desk: Desk) -> ToolRequest:
    """A person saves a page in place, with as many bytes as before."""
    [path] = desk.store.private.glob("projects/*/page-1-of-the-bench.md")
    data = path.read_bytes()
    path.write_bytes(data[:-9] + uuid.uuid4().hex[:8].encode() + b"\n")
    return lookup(0)


def connections(desk: Desk) -> ToolRequest:
    """Of a page with as many claims about it in either store."""
    hits = desk.run(parse_arguments("knowledge_lookup", {"query": PLANTED_PAGE}))["hits"]
    assert isinstance(hits, list)
    [page] = hits
    assert isinstance(page, dict)
    return parse_arguments("knowledge_connections", {"id": page["id"]})


def dated(tool: str, **arguments: JsonValue) -> Prepare:
    """Of a time in which as many records lie in either store."""
    return lambda _: parse_arguments(f"knowledge_{tool}", arguments)


READS: Final[dict[str, Prepare]] = {
    "a lookup": lambda _: lookup(2),
    "a search": a_search,
    "reading a record": a_reading,
    "connections": connections,
    "a timeline": dated("timeline", since=PLANTED_DAY, until="2032"),
    "a timeline by due dates": dated("timeline", since=PLANTED_DAY, timeField="due"),
    "a timeline of a subject": dated("timeline", subject=PLANTED_PAGE),
    "days counted": dated("chronicle_days", since=PLANTED_DAY, until="2031-12"),
    "one day": dated("chronicle_day", date=PLANTED_DAY),
    "a lookup after an edit outside": a_lookup_after_an_edit_outside,
}
WRITES: Final[dict[str, Prepare]] = {
    "one claim": lambda _: remember(0),
    "twenty claims": lambda _: remember(0, 20),
    "an edit of a page": an_edit,
    "a batch of a page and twenty claims": a_batch,
    "a growing edit with links": a_growing_edit,
    "an extraction": an_extraction,
}
CLAIMS: Final = {
    "a batch of a page and twenty claims": 21,
    "one claim": 1,
    "twenty claims": 20,
    "an edit of a page": 1,
    "a growing edit with links": 12,
    "an extraction": 2,
    "a lookup after an edit outside": 1,
}


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("notes")


def opened(cache: Path, meter: Meter, size: int) -> Warm:
    store: BenchStore = make_store(cache / f"state-{size}", cache, seed=SEED, size=size, progress=lambda _: None)
    desk = Desk(store)
    desk.partition.refresh()
    page = {"requestId": str(uuid.uuid4()), "title": PLANTED_PAGE, "type": "place", "body": "Here."}
    desk.run(parse_arguments("knowledge_save_page", page))
    dates: JsonObject = {"occurred_at": PLANTED_DAY, "due_at": PLANTED_DAY[:7]}
    items: list[JsonObject] = [
        {"text": f"Number {n} was {PLANTED} noted.", "kind": "fact", "subject": PLANTED_PAGE, **dates} for n in range(5)
    ]
    arguments: JsonObject = {
        "requestId": str(uuid.uuid4()),
        "attribution": "a test",
        "excerpt": "User: so it was.",
        "items": [*items],
    }
    desk.run(parse_arguments("knowledge_remember", arguments))
    desk.catch_up()
    desk.merge()
    desk.sync()
    return Warm(meter, desk)


def both(cache: Path, sizes: tuple[int, int]) -> Iterator[tuple[Warm, Warm]]:
    with metered() as meter:
        small, large = (opened(cache, meter, size) for size in sizes)
        yield small, large
        small.desk.close()
        large.desk.close()


@pytest.fixture(scope="module")
def stores(cache: Path) -> Iterator[tuple[Warm, Warm]]:
    yield from both(cache, (100, 1_000))


@pytest.fixture(scope="module")
def large_stores(cache: Path) -> Iterator[tuple[Warm, Warm]]:
    yield from both(cache, (1_000, 10_000))


def assert_costs_the_same(warm: tuple[Warm, Warm], name: str) -> None:
    prepare = {**READS, **WRITES}[name]
    small, large = (store.counts(prepare) for store in warm)
    assert large.stable() == small.stable()
    allowed = TREES * PAGE_BYTES * CLAIMS.get(name, 0)
    assert abs(large.database_bytes - small.database_bytes) <= allowed
    assert small.points or small.statements, "nothing was counted"


@pytest.mark.parametrize("name", [*READS, *WRITES])
def test_an_operation_costs_as_much_with_ten_times_the_records(stores: tuple[Warm, Warm], name: str) -> None:
    assert_costs_the_same(stores, name)


@pytest.mark.exhaustive
@pytest.mark.timeout(900)
@pytest.mark.parametrize("name", [*READS, *WRITES])
def test_an_operation_costs_as_much_at_ten_thousand_records_as_at_a_thousand(
    large_stores: tuple[Warm, Warm], name: str
) -> None:
    assert_costs_the_same(large_stores, name)


@pytest.mark.parametrize("name", WRITES)
def test_a_write_syncs_exactly_once_in_its_callers_path(stores: tuple[Warm, Warm], name: str) -> None:
    for warm in stores:
        counts = warm.counts(WRITES[name])
        assert counts.syncs == 1
        assert counts.points["accept.commit"] == 1
        assert counts.statements["PRAGMA synchronous=FULL"] == 1


@pytest.mark.parametrize("name", READS)
def test_a_read_syncs_nothing(stores: tuple[Warm, Warm], name: str) -> None:
    assert stores[1].counts(READS[name]).syncs == 0


@pytest.mark.parametrize("name", [name for name in READS if name != "a lookup after an edit outside"])
def test_a_read_of_an_unchanged_vault_writes_nothing_and_scans_nothing(stores: tuple[Warm, Warm], name: str) -> None:
    counts = stores[1].counts(READS[name])
    assert (counts.database_bytes, counts.file_bytes, counts.scanned) == (0, 0, 0)
    assert counts.of("scan.list", "scan.look", "edits.read") == 0


def test_an_edit_outside_costs_one_reading_of_one_file(stores: tuple[Warm, Warm]) -> None:
    counts = stores[1].counts(a_lookup_after_an_edit_outside)
    assert counts.points["edits.read"] == 1
    assert counts.of("scan.list") == 0


def test_an_edit_outside_writes_no_row_or_index_entry_that_says_the_same_as_before(
    stores: tuple[Warm, Warm],
) -> None:
    counts = stores[1].counts(a_lookup_after_an_edit_outside)
    written = [sql for sql in counts.statements if sql.startswith(("INSERT", "UPDATE", "DELETE"))]
    assert "UPDATE record SET hash = ?, change = ? WHERE row = ?" in written
    for table in ("name", "tag", "reference", "citation", "body_link", "page"):
        assert not any(re.search(rf"\b(INTO|FROM|UPDATE) {table}\b", sql) for sql in written), table


def test_a_warm_store_plans_no_statement_again(stores: tuple[Warm, Warm]) -> None:
    connection = stores[0].desk.session.publisher.db._connection
    planned = []
    for _ in range(2):
        for prepare in (*READS.values(), WRITES["one claim"]):
            stores[0].counts(prepare)
        planned.append(connection.cache_stats()["misses"])
    assert planned[0] == planned[1]


def test_a_batch_costs_less_than_four_times_one_claim_in_everything_that_waits(stores: tuple[Warm, Warm]) -> None:
    one, *batches = (
        stores[0].counts(WRITES[name]) for name in ("one claim", "twenty claims", "a batch of a page and twenty claims")
    )
    for batch in batches:
        for waiting in ("accept.commit", "settle.commit", "manifest.place", "watch.read", "open.manifest"):
            assert batch.points[waiting] <= 4 * max(1, one.points[waiting]), waiting


def test_the_meter_sees_a_cost_that_grows(stores: tuple[Warm, Warm]) -> None:
    """An operation that looks at every file is found out."""

    def scanning(desk: Desk) -> ToolRequest:
        desk.partition._watch.invalidate()
        return lookup(0)

    small, large = (warm.counts(scanning) for warm in stores)
    assert large.stable() != small.stable()
    assert large.of("scan.list") > small.of("scan.list")


# --- access -----------------------------------------------------------------------------------------------------------

CALLER: Final = Conversation("main", "chat:group:1", "33333333-3333-4333-8333-333333333333")


def counts_of_a_granted_conversation(folder: Path, grants: int, monkeypatch: pytest.MonkeyPatch) -> list[object]:
    """What a list and a save of it cost through the whole runtime, and the steps of the gate that they take."""
    monkeypatch.setattr(Lane, "_send_descriptor", lambda self: None)
    found: list[object] = []
    scheduler = VirtualScheduler(seed=3, max_steps=2_000_000)
    with metered() as meter:
        house = House(folder, RuntimeSettings(git=False), scheduler)
        house.call(CALLER)
        for number in range(1, grants + 1):
            house.grant(f"chat:group:{number}")
        given = {**remembering("A first."), "requestId": str(uuid.UUID(int=1, version=4))}
        house.call(CALLER, "remember", given)
        for tool, arguments in (
            ("records", {}),
            ("remember", {**remembering("Another."), "requestId": str(uuid.UUID(int=2, version=4))}),
        ):
            steps: Counter[str] = Counter()
            scheduler.advance(10)  # what runs in the background is done
            with monkeypatch.context() as patch, meter.counting() as counted:
                for name in STEPS:
                    patch.setattr(PermitGate, name, counting(steps, name))
                house.call(CALLER, tool, arguments)
            assert counted.points
            found.append((tool, counted.stable(), dict(steps)))
        house.runtime.close()
    return found


def counting(counted: Counter[str], name: str) -> Callable[..., object]:
    step = getattr(PermitGate, name)

    def run(*given: object, **named: object) -> object:
        counted[name] += 1
        return step(*given, **named)

    return run


def test_a_call_costs_as_much_with_a_hundred_grants_as_with_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    one, many = (counts_of_a_granted_conversation(tmp_path / str(n), n, monkeypatch) for n in (1, 100))
    assert many == one


@pytest.mark.parametrize("changed", [False, True])
def test_the_permit_and_the_rechecks_of_a_call_take_as_many_steps_with_a_thousand_grants_as_with_one(
    changed: bool,
) -> None:
    """Counted in calls of functions; with ``changed`` each re-check resolves the permit again."""

    def calls(grants: int) -> Counter[str]:
        gate, steps, seen = gate_with(grants), Counter(resolve=1, check=6, fence=1, lease=1), Counter[str]()

        def note(frame: FrameType, event: str, argument: object) -> None:
            seen[f"{event} {frame.f_code.co_qualname}"] += 1

        one_call(gate, steps, changed=changed)
        before = sys.getprofile()
        sys.setprofile(note)
        try:
            one_call(gate, steps, changed=changed)
        finally:
            sys.setprofile(before)
        return seen

    one, many = calls(1), calls(1_000)
    assert many == one
    assert one["call PermitGate.check"] == 6
    assert one["call resolve"] == (7 if changed else 1)

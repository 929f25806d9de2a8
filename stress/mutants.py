"""Owners that break one promise on purpose, so that a run shows that it would be noticed.

Each mutant replaces one function of the runtime in the owner's process (:mod:`stress.subject`), before it starts, and
names the judges of whom one must object. Nothing of a mutant is ever part of a run without one.
"""

from __future__ import annotations

import itertools
import os
import sys
import threading
import time
import uuid
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

# What a replaced function takes and gives is handed on as it is: its types are those of the runtime.
Whatever = Any


ENOUGH_OPERATIONS: Final = 1_500
SECONDS: Final = 16.0
AGENTS: Final = 9
CONVERSATIONS: Final = 2
STORES: Final = 3
SPACING: Final = 2.0
"""The run of a mutant, where the command does not say otherwise: few stores, so that its clients meet."""
NONE: Final = "none"
"""Such a run without a mutant, which must be clean."""


@dataclass(frozen=True, slots=True)
class Mutant:
    """``what`` it does wrong; the ``judges``, by name, of whom one must object; how it is made."""

    what: str
    judges: tuple[str, ...]
    make: Callable[[], None]
    ordeals: tuple[str, ...] = ()
    """Damages without which it does not show."""
    operations: int | None = ENOUGH_OPERATIONS
    """Calls after which those of its judges can tell who look when all is over; None: the whole time is needed."""


def apply(name: str) -> None:
    """Make the owner of this process the mutant. Before the owner starts."""
    MUTANTS[name].make()


def caught(name: str, objecting: Collection[str]) -> list[str]:
    """Which of the judges that must catch this mutant did object."""
    return [judge for judge in MUTANTS[name].judges if judge in objecting]


def _put(owner: object, name: str, value: object) -> None:
    setattr(owner, name, value)


def _everywhere(original: object, value: object) -> None:
    """Replace a function under every name that a module of the runtime has for it."""
    for module in list(sys.modules.values()):
        if module.__name__.split(".")[0] in ("messages", "storage", "actors", "host_bridge"):
            for name, found in list(vars(module).items()):
                if found is original:
                    _put(module, name, value)


def _grant_checked_once() -> None:
    from actors.authority.gate import PermitGate

    def check(self: PermitGate, permit: Whatever, *, write: bool) -> None:
        """Accepted is accepted."""

    _put(PermitGate, "check", check)


def _grant_ignored() -> None:
    from actors.authority import view
    from messages.vocabulary import PRIVATE

    _put(view, "own_partition", lambda _audience: PRIVATE)


def _fence_ignored() -> None:
    from actors.store.operations import fences
    from messages.errors import StaleFence

    original = fences.fenced_target

    def current_whatever_was_read(
        context: Whatever, record_id: str, *arguments: Whatever, **named: Whatever
    ) -> Whatever:
        try:
            return original(context, record_id, *arguments, **named)
        except StaleFence:
            return context.catalogue.by_id(record_id)[0]

    _everywhere(original, current_whatever_was_read)


def _replay_runs_twice() -> None:
    from actors.store.operations import context
    from storage.publication.publisher import Publisher

    original = Publisher.publish

    def publish(self: Publisher, intent: Whatever, **named: Whatever) -> Whatever:
        if self.lookup(intent.partition, intent.request_id, intent.payload_hash, intent.operation) is not None:
            intent = replace(intent, request_id=str(uuid.uuid4()))
        return original(self, intent, **named)

    _put(Publisher, "publish", publish)
    _everywhere(context.earlier_receipt, lambda *_arguments, **_named: None)


def _edit_not_seen() -> None:
    from storage.vault.freshness import Changes, Watch

    original = Watch.drain
    turn = itertools.count()

    def drain(self: Watch) -> Whatever:
        seen = original(self)
        return Changes() if next(turn) % 3 else seen

    _put(Watch, "drain", drain)


def _edit_without_history() -> None:
    from storage.publication import entries

    original = entries._store_history

    def store(state: Whatever, partition: Whatever, entry: Whatever, plan: Whatever, *, external: bool) -> None:
        if not external:
            original(state, partition, entry, plan, external=external)

    _put(entries, "_store_history", store)


def _index_skips() -> None:
    from storage.search import SearchIndex

    original = SearchIndex.apply

    def apply_changes(self: SearchIndex, changes: Sequence[Whatever], position: int) -> None:
        original(self, [change for change in changes if change.rowid % 5], position)

    _put(SearchIndex, "apply", apply_changes)


def _deadline_ignored() -> None:
    from actors.runtime import Runtime
    from messages.envelope import Deadline

    def after(cls: type[Deadline], seconds: float, clock: Callable[[], float] = time.monotonic) -> Deadline:
        return cls(clock() + seconds + 30.0)

    _put(Deadline, "after", classmethod(after))
    original = Runtime.submit

    def submit(self: Runtime, call: Whatever) -> Whatever:
        if call.deadline.remaining() < 31.0:
            time.sleep(3.0)
        return original(self, call)

    _put(Runtime, "submit", submit)


def _answered_twice() -> None:
    from host_bridge import jsonrpc

    original = jsonrpc.result_line
    turn = itertools.count(1)
    _put(
        jsonrpc,
        "result_line",
        lambda request, result: b"\n".join([original(request, result)] * (2 if next(turn) % 50 == 0 else 1)),
    )


def _answer_lost() -> None:
    from host_bridge import jsonrpc

    original = jsonrpc.result_line
    turn = itertools.count(1)
    nothing = jsonrpc.notification_line("nothing", {})
    _put(
        jsonrpc,
        "result_line",
        lambda request, result: nothing if next(turn) in (200, 400, 800) else original(request, result),
    )


def _wrong_bytes() -> None:
    from storage.state import history

    original = history.text
    turn = itertools.count()

    def text(db: Whatever, name: str) -> bytes | None:
        found = original(db, name)
        return found if found is None or next(turn) % 3 else found.rstrip(b"\n") + b"\n\n"

    _put(history, "text", text)


def _acknowledged_and_lost() -> None:
    """The receipt is given, and every twentieth publication is then taken back."""
    from storage.publication import placing

    original = placing.complete
    turn = itertools.count(1)

    def complete(state: Whatever, folders: Whatever, entry: Whatever) -> Whatever:
        receipt = original(state, folders, entry)
        if next(turn) % 20 == 0:
            with state.transaction(full=False, point="settle"):
                state.db.execute("DELETE FROM history WHERE publication = ?", (entry.id,))
        return receipt

    _put(placing, "complete", complete)


def _crash_ends_process() -> None:
    from actors.supervision import GuardedActor

    original = GuardedActor._begin_ending

    def begin(self: GuardedActor, ending: Whatever) -> None:
        if ending.reason == "crashed":
            os._exit(3)
        original(self, ending)

    _put(GuardedActor, "_begin_ending", begin)


def _memory_leaks() -> None:
    from actors.runtime import Runtime

    original = Runtime.submit
    kept: list[bytes] = []

    def submit(self: Runtime, call: Whatever) -> Whatever:
        kept.append(b"x" * (1 << 20))
        return original(self, call)

    _put(Runtime, "submit", submit)


def _threads_leak() -> None:
    from actors.runtime import Runtime

    original = Runtime.submit
    turn = itertools.count(1)

    def submit(self: Runtime, call: Whatever) -> Whatever:
        if next(turn) % 5 == 0:
            threading.Thread(target=threading.Event().wait, name="left behind", daemon=True).start()
        return original(self, call)

    _put(Runtime, "submit", submit)


def _checkpoint_skips_files() -> None:
    from storage.git import _stream

    original = _stream.encode
    turn = itertools.count()

    def encode(checkpoints: Sequence[Whatever], *arguments: Whatever, **named: Whatever) -> Whatever:
        return original(
            [replace(one, changes=one.changes[1:]) if next(turn) % 2 else one for one in checkpoints],
            *arguments,
            **named,
        )

    _everywhere(original, encode)


def _never_restarted() -> None:
    from actors.supervision import _child

    original = _child.RestartHistory.next_delay

    def next_delay(self: Whatever, *arguments: Whatever) -> Whatever:
        found = original(self, *arguments)
        return found if found is None else found + 3_600.0

    _put(_child.RestartHistory, "next_delay", next_delay)


def _helpers_outlive_lane() -> None:
    from actors.supervision import Supervisor

    original = Supervisor.__init__

    def make(self: Supervisor, context: Whatever, strategy: Whatever, children: Whatever = ()) -> None:
        original(self, context, "one_for_one", children)

    _put(Supervisor, "__init__", make)


def _deafness_not_noticed() -> None:
    from storage.vault.freshness import Watch

    original = Watch.self_test

    def self_test(self: Watch) -> bool:
        return original(self) if self._rescan else True

    _put(Watch, "self_test", self_test)


def _read_is_stale() -> None:
    from storage.session import PartitionSession

    original = PartitionSession.parsed
    kept: dict[str, Whatever] = {}

    def parsed(self: PartitionSession, entry: Whatever) -> Whatever:
        return kept.setdefault(entry.id, original(self, entry))

    _put(PartitionSession, "parsed", parsed)


def _catalogue_is_stale() -> None:
    from storage.state.catalogue_reader import CatalogueReader

    original = CatalogueReader.one
    kept: dict[str, Whatever] = {}

    def one(self: CatalogueReader, record_id: str) -> Whatever:
        found = original(self, record_id)
        return found if found is None else kept.setdefault(record_id, found)

    _put(CatalogueReader, "one", one)


MUTANTS: Final[Mapping[str, Mutant]] = {
    "acknowledged-and-lost": Mutant(
        "every twentieth write is acknowledged and taken back", ("acknowledged_writes_stay",), _acknowledged_and_lost
    ),
    "answered-twice": Mutant("every fiftieth answer is sent twice", ("one_answer_each",), _answered_twice),
    "answer-lost": Mutant("three answers are never sent", ("one_answer_each", "none_late"), _answer_lost),
    "catalogue-is-stale": Mutant(
        "a record is found as it was first", ("records_are_linearizable",), _catalogue_is_stale
    ),
    "crash-ends-process": Mutant(
        "a crashed actor takes the process along", ("the_process_survives",), _crash_ends_process
    ),
    "checkpoint-skips-files": Mutant(
        "every other commit lacks its first file", ("repositories_are_sound",), _checkpoint_skips_files
    ),
    "deadline-ignored": Mutant("a call goes on after its deadline", ("none_late",), _deadline_ignored),
    "deafness-not-noticed": Mutant(
        "a watch that hears nothing counts as alive",
        ("records_are_linearizable", "catalogue_equals_files"),
        _deafness_not_noticed,
        ordeals=("a deaf watcher",),
        operations=None,
    ),
    "edit-not-seen": Mutant(
        "two of three changes of files are overlooked",
        ("records_are_linearizable", "catalogue_equals_files", "no_edit_is_lost"),
        _edit_not_seen,
    ),
    "edit-without-history": Mutant(
        "what a person wrote is shown but not kept",
        ("records_are_linearizable", "no_edit_is_lost"),
        _edit_without_history,
    ),
    "fence-ignored": Mutant("a stale fence counts as current", ("records_are_linearizable",), _fence_ignored),
    "grant-checked-once": Mutant(
        "a right is looked at when a call is accepted, and never again",
        ("nothing_after_a_revocation",),
        _grant_checked_once,
    ),
    "grant-ignored": Mutant(
        "every conversation reads the private partition", ("nothing_crosses_partitions",), _grant_ignored
    ),
    "helpers-outlive-lane": Mutant(
        "the helpers of a lane that crashed go on", ("crashed_actors_come_back",), _helpers_outlive_lane
    ),
    "index-skips": Mutant("every fifth record is not indexed", ("index_equals_files",), _index_skips),
    "memory-leaks": Mutant("every call leaves a mebibyte behind", ("nothing_grows",), _memory_leaks),
    "never-restarted": Mutant(
        "who crashes is started again in an hour", ("crashed_actors_come_back",), _never_restarted
    ),
    "replay-runs-twice": Mutant(
        "a repeated request is carried out again", ("one_effect_a_request",), _replay_runs_twice
    ),
    "read-is-stale": Mutant("a record is shown as it was first", ("reads_show_their_revision",), _read_is_stale),
    "threads-leak": Mutant("every fifth call leaves a thread behind", ("nothing_grows",), _threads_leak),
    "wrong-bytes": Mutant("history gives back other bytes", ("revisions_hold_their_bytes",), _wrong_bytes),
}
"""By name, in the order of their names."""
ORDEALS: Final = tuple({ordeal for mutant in MUTANTS.values() for ordeal in mutant.ordeals})
"""Without which one of them does not show."""

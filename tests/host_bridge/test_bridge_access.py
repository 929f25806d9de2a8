"""Who gets in, what first use creates, what a loss means, and what a revocation promises (decisions.md section 6)."""

from __future__ import annotations

import shutil
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from actors.authority import PermitGate
from host_bridge.bridge import KnowledgeBridge
from messages.audience import Audience, Conversation, OwnerPrivate
from messages.envelope import Call, Cancellation, Deadline
from messages.errors import (
    AudienceMissing,
    AudienceStale,
    Cancelled,
    DeadlineExceeded,
    Denied,
    KnowledgeError,
    ManifestMissing,
    Sandboxed,
    StoreAmbiguous,
    StoreUnavailable,
    WritesDisabled,
)
from messages.json_types import JsonObject
from storage import faults
from storage.layout import Layout
from tests.kit.actors import eventually
from tests.kit.leaks import nothing_left
from tests.kit.store import (
    GROUP,
    MAIN,
    failure,
    items_of,
    only_store,
    open_bridge,
    page_file,
    remember,
    remembering,
    request_id,
    stores,
    total,
    write_notes,
)

PAST = datetime.now(UTC) - timedelta(seconds=1)
AGENTS = "agents: {list: [{id: main}, {id: research}]}\n"


@pytest.fixture(autouse=True)
def leaks() -> Iterator[None]:
    with nothing_left():
        yield


# --- audiences --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("audience", "expected"),
    [
        (None, AudienceMissing),
        (OwnerPrivate("main", sandboxed=True), Sandboxed),
        (replace(GROUP, sandboxed=True), Sandboxed),
        (OwnerPrivate("main", root=OwnerPrivate("main", sandboxed=True)), Sandboxed),
        (OwnerPrivate("main", sandboxed=True, root=OwnerPrivate("main")), Sandboxed),
        (OwnerPrivate("main", expires_at=PAST), AudienceStale),
        (OwnerPrivate("main", root=OwnerPrivate("main", expires_at=PAST)), AudienceStale),
        (OwnerPrivate("stranger"), Denied),
        (OwnerPrivate("stranger", root=OwnerPrivate("main")), Denied),
        (OwnerPrivate("main", root=OwnerPrivate("stranger")), Denied),
        (Conversation("stranger", "chat:1", request_id(1)), Denied),
    ],
)
def test_a_caller_without_authority_is_refused_with_its_code_and_never_creates_a_store(
    tmp_path: Path, audience: Audience | None, expected: type[KnowledgeError]
) -> None:
    with open_bridge(tmp_path) as bridge:
        for tool, arguments in (
            ("knowledge_status", {}),
            ("knowledge_remember", {**remembering("A fact."), "requestId": request_id(1)}),
        ):
            pending = bridge.submit(Call(tool, arguments, audience, Deadline.after(10)))
            answers: list[JsonObject] = []
            with pytest.raises(expected) as raised:
                eventually_delivered(pending.add_done_callback)
                pending.deliver(answers.append)
            assert raised.value.code == expected.code
            assert raised.value.retry == "never"
            assert answers == []
    assert stores(tmp_path) == []


def eventually_delivered(add_done_callback: Callable[[Callable[[object], None]], None]) -> None:
    answered = threading.Event()
    add_done_callback(lambda _: answered.set())
    assert answered.wait(20)


def test_an_agent_in_two_named_stores_is_unavailable_and_the_error_names_them(tmp_path: Path) -> None:
    with open_bridge(
        tmp_path, "stores: {work: {label: W, agents: [main]}, home: {label: H, agents: [main]}}"
    ) as bridge:
        error = failure(bridge, "status", {})
    assert isinstance(error, StoreAmbiguous)
    assert error.fields["stores"] == ["work", "home"]
    assert stores(tmp_path) == []


def test_agents_of_a_named_store_share_it_and_history_tells_them_apart(tmp_path: Path) -> None:
    configuration = AGENTS + "stores: {work: {label: W, agents: [main, research]}}\n"
    with open_bridge(tmp_path, configuration) as bridge:
        remember(bridge, "From main.", 1)
        remember(bridge, "From research.", 2, OwnerPrivate("research"))
        assert total(bridge) == 2
        rows = bridge.call("knowledge_history", {}, MAIN)["rows"]
        assert isinstance(rows, list)
        assert [row["actor"] for row in rows if isinstance(row, dict)] == ["research", "main"]
    assert len(stores(tmp_path)) == 1


def test_agents_without_a_named_store_have_one_each(tmp_path: Path) -> None:
    with open_bridge(tmp_path, AGENTS) as bridge:
        remember(bridge, "From main.", 1)
        assert total(bridge, OwnerPrivate("research")) == 0
        [claim] = items_of(remember(bridge, "From main.", 1, OwnerPrivate("research")))
        assert "duplicate" not in claim
    assert len(stores(tmp_path)) == 2


def test_a_spawned_child_works_in_its_roots_partition_as_its_own_author(tmp_path: Path) -> None:
    with open_bridge(tmp_path, AGENTS) as bridge:
        child = OwnerPrivate("research", root=GROUP)
        remember(bridge, "From the child.", 1, child)
        assert total(bridge, GROUP) == 1
        assert total(bridge) == 0
        rows = bridge.call("knowledge_history", {}, GROUP)["rows"]
        assert isinstance(rows, list)
        assert [row["actor"] for row in rows if isinstance(row, dict)] == ["research"]
    assert len(stores(tmp_path)) == 1


# --- first use and loss -----------------------------------------------------------------------------------------------


def test_the_first_authorised_use_creates_exactly_one_store_even_with_eight_threads_at_once(tmp_path: Path) -> None:
    with open_bridge(tmp_path) as bridge:
        together = threading.Barrier(8)

        def use(number: int) -> JsonObject:
            together.wait(20)
            return remember(bridge, f"Fact {number}.", number + 1, MAIN if number % 2 else GROUP)

        with ThreadPoolExecutor(8) as pool:
            answers = list(pool.map(use, range(8)))
        assert all("state" not in answer for answer in answers)
        assert total(bridge) == total(bridge, GROUP) == 4
    assert len(stores(tmp_path)) == 1


def test_a_read_is_a_first_use_too(tmp_path: Path) -> None:
    with open_bridge(tmp_path) as bridge:
        assert bridge.call("knowledge_status", {}, MAIN)["counts"] == {}
    assert len(stores(tmp_path)) == 1


def test_a_restart_finds_the_store_again(tmp_path: Path) -> None:
    with open_bridge(tmp_path) as bridge:
        remember(bridge, "A fact.", 1)
        vault_id = bridge.call("knowledge_status", {}, MAIN)["vaultId"]
    with open_bridge(tmp_path) as bridge:
        assert total(bridge) == 1
        assert bridge.call("knowledge_status", {}, MAIN)["vaultId"] == vault_id
    assert len(stores(tmp_path)) == 1


def lose_folder(state_dir: Path) -> None:
    shutil.rmtree(only_store(state_dir).root)


def lose_vault(state_dir: Path) -> None:
    shutil.rmtree(only_store(state_dir).vault)


def lose_private(state_dir: Path) -> None:
    shutil.rmtree(only_store(state_dir).vault / "private")


def lose_database(state_dir: Path) -> None:
    for path in only_store(state_dir).root.glob("state.sqlite*"):
        path.unlink()


def lose_manifest(state_dir: Path) -> None:
    only_store(state_dir).manifest.unlink()


def empty_manifest(state_dir: Path) -> None:
    only_store(state_dir).manifest.write_bytes(b"")


LOSSES = [
    (lose_folder, StoreUnavailable),
    (lose_vault, StoreUnavailable),
    (lose_private, StoreUnavailable),
    (lose_database, StoreUnavailable),
    (lose_manifest, ManifestMissing),
    (empty_manifest, ManifestMissing),
]


@pytest.mark.parametrize(("lose", "expected"), LOSSES)
def test_a_store_that_lost_a_part_while_closed_is_unavailable_and_never_made_again(
    tmp_path: Path, lose: Callable[[Path], None], expected: type[KnowledgeError]
) -> None:
    with open_bridge(tmp_path) as bridge:
        remember(bridge, "A fact.", 1)
    lose(tmp_path)
    before = listing(tmp_path)
    with open_bridge(tmp_path) as bridge:
        for _ in range(3):
            for tool, arguments in (
                ("status", {}),
                ("lookup", {"query": "x"}),
                ("remember", {**remembering("Another."), "requestId": request_id(2)}),
            ):
                assert type(failure(bridge, tool, arguments)) is expected
    assert listing(tmp_path) == before


@pytest.mark.parametrize(("lose", "expected"), [loss for loss in LOSSES if loss[0] is not lose_database])
def test_a_store_that_loses_a_part_while_it_runs_is_unavailable_and_never_made_again(
    tmp_path: Path, lose: Callable[[Path], None], expected: type[KnowledgeError]
) -> None:
    with open_bridge(tmp_path) as bridge:
        remember(bridge, "A fact.", 1)
        lose(tmp_path)
        before = listing(tmp_path)
        for _ in range(2):
            assert type(failure(bridge, "status", {})) is expected
            error = failure(bridge, "remember", {**remembering("Another."), "requestId": request_id(2)})
            assert type(error) is expected
        assert listing(tmp_path) == before


def listing(state_dir: Path) -> list[str]:
    """Everything of the stores but databases' side files and Git's own."""
    home = Layout(state_dir).stores
    return sorted(
        str(path.relative_to(home))
        for path in home.rglob("*")
        if ".git" not in path.parts and "search" not in path.parts and not path.name.endswith(("-wal", "-shm"))
    )


def test_a_store_that_could_not_be_opened_serves_as_soon_as_its_folder_is_put_back(tmp_path: Path) -> None:
    with open_bridge(tmp_path) as bridge:
        remember(bridge, "A fact.", 1)
    vault = only_store(tmp_path).vault
    vault.rename(vault.with_name("elsewhere"))
    with open_bridge(tmp_path) as bridge:
        for _ in range(8):
            assert isinstance(failure(bridge, "records", {}), StoreUnavailable)
        vault.with_name("elsewhere").rename(vault)
        assert total(bridge) == 1
        remember(bridge, "Another.", 2)
        assert bridge.call("knowledge_status", {}, MAIN)["live"] == "watching"


def test_a_folder_that_is_put_back_serves_again(tmp_path: Path) -> None:
    with open_bridge(tmp_path) as bridge:
        remember(bridge, "A fact.", 1)
        vault = only_store(tmp_path).vault
        vault.rename(vault.with_name("elsewhere"))
        assert isinstance(failure(bridge, "records", {}), StoreUnavailable)
        vault.with_name("elsewhere").rename(vault)
        assert total(bridge) == 1


def test_a_registry_that_is_lost_while_stores_exist_refuses_and_creates_nothing(tmp_path: Path) -> None:
    with open_bridge(tmp_path) as bridge:
        remember(bridge, "A fact.", 1)
    layout = Layout(tmp_path)
    for path in layout.root.glob("registry.sqlite*"):
        path.unlink()
    with open_bridge(tmp_path) as bridge:
        for _ in range(8):
            error = failure(bridge, "status", {})
            assert isinstance(error, StoreUnavailable)
            assert error.fields["reason"] == "registry_missing"
    assert not layout.registry.exists()
    assert len(stores(tmp_path)) == 1


def test_most_of_a_partition_gone_at_once_is_refused_at_the_opening_and_while_running(tmp_path: Path) -> None:
    def notes(state_dir: Path) -> list[Path]:
        return sorted((only_store(state_dir).vault / "private").rglob("*.md"))

    with open_bridge(tmp_path) as bridge:
        bridge.call("knowledge_status", {}, MAIN)
        private = only_store(tmp_path).vault / "private"
        write_notes(private, [(f"n{n}.md", page_file(f"p{n}", f"Page {n}")) for n in range(30)])
        assert total(bridge) == 30
        kept = {path: path.read_bytes() for path in notes(tmp_path)}
        for path in kept:
            path.unlink()
        assert failure(bridge, "records", {}).code == "deletions_refused"
        for path, data in kept.items():
            path.write_bytes(data)
        assert total(bridge) == 30
    for path in kept:
        path.unlink()
    with open_bridge(tmp_path) as bridge:
        for _ in range(2):
            error = failure(bridge, "records", {})
            assert error.code == "deletions_refused"
            assert error.fields["missing"] == 30
        for path, data in kept.items():
            path.write_bytes(data)
        assert total(bridge) == 30


# --- writes off -------------------------------------------------------------------------------------------------------


def test_with_writes_off_reads_answer_and_every_write_is_refused(tmp_path: Path) -> None:
    with open_bridge(tmp_path) as bridge:
        remember(bridge, "A fact.", 1)
    with open_bridge(tmp_path, "writesEnabled: false") as bridge:
        assert bridge.call("knowledge_status", {}, MAIN)["writesEnabled"] is False
        assert total(bridge) == 1
        for tool, arguments in (
            ("remember", {**remembering("Another."), "requestId": request_id(2)}),
            ("save_page", {"title": "A", "type": "project", "body": "", "requestId": request_id(3)}),
            ("resume", {"requestId": request_id(1)}),
        ):
            assert isinstance(failure(bridge, tool, arguments), WritesDisabled)
        assert total(bridge) == 1


def test_switching_writes_off_in_the_file_takes_effect_and_leaves_reads_alone(tmp_path: Path) -> None:
    with KnowledgeBridge(tmp_path) as bridge:
        remember(bridge, "A fact.", 1)
        (tmp_path / "knowledge.yaml").write_text("writesEnabled: false\n", "utf-8")
        eventually(lambda: bridge.call("knowledge_status", {}, MAIN)["writesEnabled"] is False)
        error = failure(bridge, "remember", {**remembering("Another."), "requestId": request_id(2)})
        assert isinstance(error, WritesDisabled)
        assert total(bridge) == 1


# --- replays ----------------------------------------------------------------------------------------------------------


def test_a_replay_gives_the_same_bytes_before_and_after_a_restart(tmp_path: Path) -> None:
    page: JsonObject = {"title": "A", "type": "project", "body": "One.", "requestId": request_id(2)}
    with open_bridge(tmp_path) as bridge:
        claims = remember(bridge, "A fact.", 1)
        saved = bridge.call("knowledge_save_page", page, MAIN)
        assert remember(bridge, "A fact.", 1) == claims
    with open_bridge(tmp_path) as bridge:
        assert remember(bridge, "A fact.", 1) == claims
        assert bridge.call("knowledge_save_page", page, MAIN) == saved
        error = failure(bridge, "remember", {**remembering("Another."), "requestId": request_id(1)})
        assert error.code == "request_id_reused"
        assert total(bridge) == 2


def test_one_request_sent_by_eight_threads_at_once_is_saved_once(tmp_path: Path) -> None:
    with open_bridge(tmp_path) as bridge:
        bridge.call("knowledge_status", {}, MAIN)
        with ThreadPoolExecutor(8) as pool:
            answers = list(pool.map(lambda _: remember(bridge, "A fact.", 1), range(8)))
        assert all(answer == answers[0] for answer in answers)
        assert total(bridge) == 1


# --- deadline, cancellation, revocation: before acceptance and after --------------------------------------------------


class Paused:
    """The lane stands still at a fault point until it is let go."""

    def __init__(self, point: str) -> None:
        self.point = point
        self.reached = threading.Event()
        self.go_on = threading.Event()

    def __call__(self, point: str) -> None:
        if point == self.point and not self.reached.is_set():
            self.reached.set()
            assert self.go_on.wait(30)


def submit(
    bridge: KnowledgeBridge,
    number: int,
    audience: Audience,
    *,
    deadline: float = 20.0,
    cancel: Cancellation | None = None,
) -> Callable[[], JsonObject]:
    """Begin to remember; the result waits for the answer, and gives it or raises its error."""
    call = Call(
        "knowledge_remember",
        {**remembering(f"Fact {number}."), "requestId": request_id(number)},
        audience,
        Deadline.after(deadline),
        cancel or Cancellation(),
    )
    pending = bridge.submit(call)

    def result() -> JsonObject:
        eventually_delivered(pending.add_done_callback)
        answers: list[JsonObject] = []
        pending.deliver(answers.append)
        return answers[0]

    return result


RUN = OwnerPrivate("main", run_id="run 1")
STAGED = "stage.file.write.after"


def test_a_call_cancelled_before_it_is_accepted_saves_nothing_and_its_id_stays_free(tmp_path: Path) -> None:
    with open_bridge(tmp_path) as bridge:
        bridge.call("knowledge_status", {}, MAIN)
        paused, cancel = Paused(STAGED), Cancellation()
        with faults.installed(paused):
            result = submit(bridge, 1, MAIN, cancel=cancel)
            assert paused.reached.wait(20)
            cancel.cancel()
            paused.go_on.set()
            with pytest.raises(Cancelled):
                result()
        assert total(bridge) == 0
        assert staged(tmp_path) == []
        remember(bridge, "Something else.", 1)


def staged(state_dir: Path) -> list[Path]:
    return list(only_store(state_dir).vault.rglob(".kr-*"))


def test_a_call_cancelled_after_it_was_accepted_gives_its_normal_answer(tmp_path: Path) -> None:
    with open_bridge(tmp_path) as bridge:
        bridge.call("knowledge_status", {}, MAIN)
        paused, cancel = Paused("accept.commit.after"), Cancellation()
        with faults.installed(paused):
            result = submit(bridge, 1, MAIN, cancel=cancel)
            assert paused.reached.wait(20)
            cancel.cancel()
            paused.go_on.set()
            assert len(items_of(result())) == 1
        assert total(bridge) == 1


def test_a_call_whose_deadline_passes_before_it_is_accepted_saves_nothing(tmp_path: Path) -> None:
    with open_bridge(tmp_path) as bridge:
        bridge.call("knowledge_status", {}, MAIN)
        paused = Paused(STAGED)
        with faults.installed(paused):
            result = submit(bridge, 1, MAIN, deadline=0.3)
            assert paused.reached.wait(20)
            with pytest.raises(DeadlineExceeded) as raised:
                result()
            assert raised.value.retry == "unknown", "it was running: only the repeat tells"
            paused.go_on.set()
        assert total(bridge) == 0
        assert len(items_of(remember(bridge, "Fact 1.", 1))) == 1


def test_a_call_waiting_behind_a_busy_lane_gets_its_deadline_as_not_run(tmp_path: Path) -> None:
    with open_bridge(tmp_path) as bridge:
        bridge.call("knowledge_status", {}, MAIN)
        paused = Paused(STAGED)
        with faults.installed(paused):
            first = submit(bridge, 1, MAIN)
            assert paused.reached.wait(20)
            with pytest.raises(DeadlineExceeded) as raised:
                submit(bridge, 2, MAIN, deadline=0.2)()
            assert raised.value.retry == "safe"
            paused.go_on.set()
            first()
        assert total(bridge) == 1


def test_access_is_checked_again_when_the_lane_picks_a_call_up(tmp_path: Path) -> None:
    with open_bridge(tmp_path) as bridge:
        bridge.call("knowledge_status", {}, MAIN)
        paused = Paused(STAGED)
        with faults.installed(paused):
            first = submit(bridge, 1, MAIN)
            assert paused.reached.wait(20)
            second = submit(bridge, 2, RUN)
            bridge.end_run("run 1")
            paused.go_on.set()
            first()
            with pytest.raises(AudienceStale):
                second()
        assert total(bridge) == 1
        assert isinstance(failure(bridge, "status", {}, RUN), AudienceStale)


def revoke_while_staged(bridge: KnowledgeBridge) -> KnowledgeError | JsonObject:
    """A save is staged, its run is ended, the save goes on: what its caller gets."""
    paused = Paused(STAGED)
    with faults.installed(paused):
        result = submit(bridge, 1, RUN)
        assert paused.reached.wait(20)
        bridge.end_run("run 1")
        paused.go_on.set()
        try:
            return result()
        except KnowledgeError as error:
            return error


def test_nothing_commits_after_end_run_has_returned(tmp_path: Path) -> None:
    with open_bridge(tmp_path) as bridge:
        bridge.call("knowledge_status", {}, MAIN)
        outcome = revoke_while_staged(bridge)
        assert isinstance(outcome, AudienceStale)
        assert total(bridge) == 0
        assert staged(tmp_path) == []
        assert bridge.call("knowledge_history", {}, MAIN)["total"] == 0


def test_without_the_fence_and_the_checks_the_save_would_happen(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(PermitGate, "fence", lambda self, permit, unfinished=None: nullcontext())
    monkeypatch.setattr(PermitGate, "check", lambda self, permit, *, write: None)
    with open_bridge(tmp_path) as bridge:
        bridge.call("knowledge_status", {}, MAIN)
        revoke_while_staged(bridge)
        assert total(bridge) == 1, "the test before this one tests something"


def test_end_run_waits_for_a_save_that_is_being_committed(tmp_path: Path) -> None:
    with open_bridge(tmp_path) as bridge:
        bridge.call("knowledge_status", {}, MAIN)
        paused = Paused("accept.commit")
        with faults.installed(paused), ThreadPoolExecutor(1) as pool:
            result = submit(bridge, 1, RUN)
            assert paused.reached.wait(20)
            ended = pool.submit(bridge.end_run, "run 1")
            # The run counts as ended for new calls while the one inside the fence is waited for.
            eventually(lambda: isinstance(refused(bridge, RUN), AudienceStale))
            assert not ended.done()
            paused.go_on.set()
            ended.result(20)
        assert total(bridge) == 1, "it was committed before end_run returned"
        with pytest.raises(AudienceStale):
            result()  # saved, but the answer is not this caller's any more


def refused(bridge: KnowledgeBridge, audience: Audience) -> KnowledgeError | None:
    """The refusal of a call that no lane sees: its tool is decided on at the door."""
    pending = bridge.submit(Call("knowledge_status", {}, audience, Deadline.after(0.05)))
    eventually_delivered(pending.add_done_callback)
    try:
        pending.deliver(lambda answer: None)
    except KnowledgeError as error:
        return error
    return None


def test_end_run_waits_for_an_answer_that_is_being_handed_over(tmp_path: Path) -> None:
    with open_bridge(tmp_path) as bridge, ThreadPoolExecutor(2) as pool:
        bridge.call("knowledge_status", {}, MAIN)
        pending = bridge.submit(Call("knowledge_status", {}, RUN, Deadline.after(20)))
        eventually_delivered(pending.add_done_callback)
        inside, go_on = threading.Event(), threading.Event()

        def hand_over(answer: JsonObject) -> None:
            inside.set()
            assert go_on.wait(20)

        delivered = pool.submit(pending.deliver, hand_over)
        assert inside.wait(20)
        ended = pool.submit(bridge.end_run, "run 1")
        eventually(lambda: isinstance(refused(bridge, RUN), AudienceStale))
        assert not ended.done()
        go_on.set()
        delivered.result(20)
        ended.result(20)


def test_an_answer_that_was_not_handed_over_before_the_run_ended_never_is(tmp_path: Path) -> None:
    with open_bridge(tmp_path) as bridge:
        pending = bridge.submit(Call("knowledge_status", {}, RUN, Deadline.after(20)))
        eventually_delivered(pending.add_done_callback)
        bridge.end_run("run 1")
        answers: list[JsonObject] = []
        with pytest.raises(AudienceStale):
            pending.deliver(answers.append)
        assert answers == []


def test_other_runs_go_on_when_one_ends(tmp_path: Path) -> None:
    with open_bridge(tmp_path) as bridge:
        bridge.end_run("run 1")
        assert "state" not in remember(bridge, "A fact.", 1, OwnerPrivate("main", run_id="run 2"))
        child = OwnerPrivate("main", run_id="run 2", root=RUN)
        assert isinstance(failure(bridge, "status", {}, child), AudienceStale)


# --- what it costs ----------------------------------------------------------------------------------------------------


class CountedLock(threading.Condition):
    """The gate's lock; counts how often it was taken but by the authority."""

    def __init__(self) -> None:
        super().__init__()
        self.taken = 0

    def __enter__(self) -> bool:
        entered = super().__enter__()
        self.taken += "authority" not in threading.current_thread().name
        return entered


@pytest.mark.parametrize("grants", [0, 200])
def test_only_the_commit_fence_and_the_read_lease_lock_whatever_number_of_grants_there_is(
    tmp_path: Path, grants: int
) -> None:
    with open_bridge(tmp_path) as bridge:
        for number in range(grants):
            given: JsonObject = {"agent": "main", "sessionKey": f"chat:{number}", "access": "read"}
            bridge.ask("access.grants.set", given)
        remember(bridge, "A fact.", 1)
        gate = bridge._runtime.gate
        for arguments, tool, locks in (
            ({}, "knowledge_records", 2),
            ({**remembering("Another."), "requestId": request_id(2)}, "knowledge_remember", 4),
        ):
            call = Call(tool, arguments, GROUP if tool.endswith("records") else MAIN, Deadline.after(20))
            counted = gate._changed = CountedLock()
            pending = bridge.submit(call)
            eventually_delivered(pending.add_done_callback)
            pending.deliver(lambda answer: None)
            assert counted.taken == locks

"""What plain pykka does to a caller, each case beside the guarded actor's typed answer (DESIGN.md rule 1).

The first test of a pair is a characterisation: it fails when pykka mends the case, and then the kit may be simplified.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pykka
import pytest
from pykka._envelope import Envelope as PykkaEnvelope

from actors.supervision import ActorContext, ChildSpec, Envelope, GuardedActor, Tree
from messages.errors import InternalError, Quarantined, Restarting, Stopping
from tests.kit.actors import Block, Echo, Park, Probe, Raise, ask, eventually, failure

SHORT = 0.2


class Plain(pykka.ThreadingActor):
    use_daemon_thread = True

    def on_receive(self, message: object) -> object:
        if isinstance(message, BaseException):
            raise message
        if isinstance(message, threading.Event):
            message.wait(30)
        return message


class PlainFailsToStart(Plain):
    def on_start(self) -> None:
        raise SystemExit


class FailsToStart(GuardedActor):
    def on_ready(self) -> None:
        raise SystemExit


@pytest.fixture(autouse=True)
def _forget_plain_actors() -> Iterator[None]:
    yield
    for ref in pykka.ActorRegistry.get_all():
        if issubclass(ref.actor_class, Plain):
            pykka.ActorRegistry.unregister(ref)


def hangs(future: pykka.Future[object]) -> bool:
    try:
        future.get(timeout=SHORT)
    except pykka.Timeout:
        return True
    except BaseException:  # noqa: BLE001 - any answer at all is no hang
        return False
    return False


def test_plain_pykka_hangs_a_caller_whose_put_comes_after_the_drain() -> None:
    ref = Plain.start()
    ref.stop()
    future = Plain._create_future()
    # What ActorRef.ask does when the actor ends between its liveness check and its put.
    ref.actor_inbox.put(PykkaEnvelope("late", reply_to=future))
    assert hangs(future)


def test_a_guarded_actor_answers_a_request_that_comes_after_its_end() -> None:
    with Tree([ChildSpec("a", Probe)]) as tree:
        handle = tree.handle("a")
        assert ask(handle, Echo(1)).result() == 1
        assert tree.root.stop_child("a").result()
        assert isinstance(failure(ask(handle, Echo(2))), Stopping)
    assert isinstance(failure(ask(handle, Echo(3))), Stopping)


def test_plain_pykka_hangs_the_caller_of_a_handler_that_raises_system_exit() -> None:
    assert hangs(Plain.start().ask(SystemExit(), block=False))


def test_plain_pykka_stops_every_actor_of_the_process_when_a_handler_raises_system_exit() -> None:
    bystander = Plain.start()
    assert Plain.start().ask(SystemExit(), block=False) is not None
    assert bystander.actor_stopped.wait(5)


@pytest.mark.parametrize("error", [SystemExit(), KeyboardInterrupt(), GeneratorExit(), ValueError()], ids=repr)
def test_a_guarded_actor_answers_the_request_whose_handler_raised_and_stops_nobody_else(error: BaseException) -> None:
    plain = Plain.start()
    with Tree([ChildSpec("a", Probe), ChildSpec("bystander", Probe)]) as tree:
        ask(tree.handle("bystander"), Echo(1)).result()
        answer = failure(ask(tree.handle("a"), Raise(error)))
        assert isinstance(answer, InternalError)
        assert answer.retry == "unknown"
        assert ask(tree.handle("bystander"), Echo(2)).result() == 2
        assert tree.handle("bystander").health().incarnation == 1
        assert plain.ask("still here") == "still here"
    plain.stop()


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_plain_pykka_hangs_the_caller_of_an_actor_whose_start_raised_system_exit() -> None:
    ref = PlainFailsToStart.start()
    assert hangs(ref.ask("hello", block=False))
    assert ref.is_alive()


def test_a_guarded_actor_whose_start_raises_answers_every_request_with_a_typed_error() -> None:
    with Tree([ChildSpec("a", FailsToStart)]) as tree:
        answers = [failure(ask(tree.handle("a"), Echo(turn))) for turn in range(20)]
    assert {type(answer) for answer in answers} <= {Restarting, Quarantined}
    assert {answer.retry for answer in answers} == {"safe"}


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_plain_pykka_dies_silently_when_a_future_was_set_from_outside() -> None:
    ref = Plain.start()
    leave = threading.Event()
    first = ref.ask(leave, block=False)
    first.set("set by somebody else")
    leave.set()
    assert hangs(ref.ask("next", block=False))
    assert ref.is_alive()


def test_a_guarded_actor_survives_a_reply_that_was_completed_from_outside() -> None:
    entered, leave = threading.Event(), threading.Event()
    with Tree([ChildSpec("a", Probe)]) as tree:
        reply = ask(tree.handle("a"), Block(entered, leave))
        assert entered.wait(5)
        assert reply.succeed("set by somebody else")
        leave.set()
        assert ask(tree.handle("a"), Echo("next")).result() == "next"
        assert reply.result() == "set by somebody else"
        assert tree.handle("a").health().incarnation == 1
        assert tree.environment.dead_letters.counts() == {"late_answer": 1}


def test_plain_pykka_swallows_a_tell_that_crashed_the_actor_and_leaves_it_dead() -> None:
    ref = Plain.start()
    ref.tell(ValueError())
    assert ref.actor_stopped.wait(5)
    with pytest.raises(pykka.ActorDeadError):
        ref.ask("hello", timeout=5)


def test_a_guarded_actor_is_started_again_after_a_tell_that_crashed_it() -> None:
    with Tree([ChildSpec("a", Probe)]) as tree:
        assert ask(tree.handle("a"), Echo(1)).result() == 1
        assert tree.handle("a").tell(Raise(ValueError()))
        eventually(lambda: tree.handle("a").health().crashes > 0)
        assert ask(tree.handle("a"), Echo(2)).result() == 2
        assert tree.handle("a").health().incarnation == 2


def test_plain_code_cannot_reach_into_a_guarded_actor() -> None:
    seen: list[Probe] = []

    class Seen(Probe):
        def __init__(self, context: ActorContext) -> None:
            super().__init__(context)
            seen.append(self)

    with Tree([ChildSpec("a", Seen)]) as tree:
        ask(tree.handle("a"), Echo(1)).result()
        ref = seen[0].actor_ref
        with pytest.raises(pykka.ActorDeadError):
            ref.ask("not through the handle", timeout=5)
        ref.tell("neither")
        with pytest.raises(pykka.ActorDeadError):
            ref.proxy().log.get(timeout=5)
        assert ask(tree.handle("a"), Echo(2)).result() == 2
        assert tree.environment.dead_letters.counts() == {"foreign": 3}


def test_a_foreign_stop_of_all_actors_returns_and_the_tree_ends_in_order() -> None:
    tree = Tree([ChildSpec("a", Probe), ChildSpec("b", Probe)])
    handle = tree.handle("a")
    parked = ask(handle, Park())
    assert ask(tree.handle("b"), Echo(1)).result() == 1
    ask(handle, Echo(1)).result()
    pykka.ActorRegistry.stop_all(timeout=10)
    assert isinstance(failure(parked), Stopping)
    assert tree.close().stuck == ()
    assert tree.ended


def test_every_ending_unregisters_closes_the_mailbox_and_tells_the_parent() -> None:
    log: list[str] = []

    class Ends(Probe):
        def __init__(self, context: ActorContext) -> None:
            super().__init__(context, log)

        def on_ask(self, message: object, envelope: Envelope) -> object:
            if message == "exit":
                raise SystemExit
            return super().on_ask(message, envelope)

    with Tree([ChildSpec("a", Ends)]) as tree:
        handle = tree.handle("a")
        ask(handle, Echo(1)).result()
        for message in (Raise(ValueError()), "exit"):
            assert isinstance(failure(ask(handle, message)), InternalError)
            assert ask(handle, Echo(1)).result() == 1
        registered = [ref for ref in pykka.ActorRegistry.get_all() if ref.actor_class is Ends]
        assert len(registered) == 1
        assert registered[0].is_alive()
    assert log == [
        "root/a#1 ready",
        "root/a#1 ended",
        "root/a#2 ready",
        "root/a#2 ended",
        "root/a#3 ready",
        "root/a#3 drained",
        "root/a#3 ended",
    ]

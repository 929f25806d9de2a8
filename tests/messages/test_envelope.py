"""Deadlines and cancellation."""

from __future__ import annotations

import threading

from messages.audience import OwnerPrivate
from messages.envelope import Call, Cancellation, Deadline, new_correlation_id


def test_a_deadline_is_a_point_on_the_given_clock() -> None:
    now = [100.0]
    deadline = Deadline.after(5, lambda: now[0])
    assert deadline.remaining(lambda: now[0]) == 5
    assert not deadline.passed(lambda: now[0])
    now[0] = 105.0
    assert deadline.passed(lambda: now[0])
    now[0] = 107.0
    assert deadline.remaining(lambda: now[0]) == -2


def test_a_cancellation_raised_by_another_thread_stays_raised() -> None:
    cancellation = Cancellation()
    assert not cancellation.requested
    thread = threading.Thread(target=cancellation.cancel)
    thread.start()
    thread.join()
    cancellation.cancel()
    assert cancellation.requested


def test_each_call_has_its_own_correlation_id_and_cancellation() -> None:
    calls = [Call("knowledge_status", {}, OwnerPrivate("main"), Deadline(1.0)) for _ in range(2)]
    assert calls[0].correlation_id != calls[1].correlation_id
    assert calls[0].cancellation is not calls[1].cancellation
    assert len(new_correlation_id()) == 12
    assert int(new_correlation_id(), 16) >= 0

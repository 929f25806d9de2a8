"""Supervised actors on pykka: no caller ever hangs, every request gets exactly one typed answer by its deadline.

Guarantees, by DESIGN.md's rule numbers: guarded actors whose every ending answers and announces (1); deadlines that
hold even while an actor is stuck in C (2); starts proven by ``Ready`` (3); error classes that decide between answer,
restart and quarantine (4); restart intensity with backoff (5); orderly shutdown, stuck threads never doubled (6);
incarnation numbers (7); bounded and fair mailboxes (8); dead letters and health without asking (9); merged events
(10); a way into event loops (11).

Below :class:`Tree` everything runs on actors' own threads; handles are for any thread. A reply's callbacks run on
whichever thread answers and must not block.
"""

from actors.supervision._actor import Ending, GuardedActor
from actors.supervision._asyncio import as_asyncio_future
from actors.supervision._child import ChildSpec, Restart, RestartHistory
from actors.supervision._clock import Clock, SystemClock, Timer
from actors.supervision._commands import QuarantineChild, ReleaseChild, StartChild, StopChild
from actors.supervision._context import ActorContext
from actors.supervision._dead_letters import DeadLetter, DeadLetterReason, DeadLetters
from actors.supervision._defects import log_defect
from actors.supervision._environment import Environment, launch_thread
from actors.supervision._handle import ActorHandle, Request, TellHandle
from actors.supervision._health import ActorHealth, Quarantine, State
from actors.supervision._inbox import Inbox
from actors.supervision._merge import EventMerger, MergedEvents
from actors.supervision._messages import PARKED, Corruption, Ended, EndReason, Envelope, Parked, Ready, Transient
from actors.supervision._reply import Phase, Reply
from actors.supervision._settings import STORE_RESTARTS, ActorSettings, InboxLimits, RestartPolicy
from actors.supervision._supervisor import Strategy, Supervisor
from actors.supervision._tree import ROOT_SETTINGS, ClosedTree, SupervisorHandle, Tree

__all__ = [
    "PARKED",
    "ROOT_SETTINGS",
    "STORE_RESTARTS",
    "ActorContext",
    "ActorHandle",
    "ActorHealth",
    "ActorSettings",
    "ChildSpec",
    "Clock",
    "ClosedTree",
    "Corruption",
    "DeadLetter",
    "DeadLetterReason",
    "DeadLetters",
    "EndReason",
    "Ended",
    "Ending",
    "Envelope",
    "Environment",
    "EventMerger",
    "GuardedActor",
    "Inbox",
    "InboxLimits",
    "MergedEvents",
    "Parked",
    "Phase",
    "Quarantine",
    "QuarantineChild",
    "Ready",
    "ReleaseChild",
    "Reply",
    "Request",
    "Restart",
    "RestartHistory",
    "RestartPolicy",
    "StartChild",
    "State",
    "StopChild",
    "Strategy",
    "Supervisor",
    "SupervisorHandle",
    "SystemClock",
    "TellHandle",
    "Timer",
    "Transient",
    "Tree",
    "as_asyncio_future",
    "launch_thread",
    "log_defect",
]

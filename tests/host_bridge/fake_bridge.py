"""A bridge with the shape of the real one and a mind of its own: the doors are tested against it.

What a call does is chosen by its argument ``act``:

* ``echo`` (default): the arguments, the audience and the deadline come back
* ``hold``: writes its name into the pipe ``started`` and answers when something opens the pipe ``release``
* ``refuse``: raises ``StaleFence`` with a field; ``defect``: raises a ``RuntimeError`` whose text is a secret
* ``die``: kills its own process; ``print``: writes to stdout first
* ``revoked``: the permit is gone when the answer is delivered
* ``large``: an answer of ``size`` characters
"""

from __future__ import annotations

import os
import signal
import subprocess
import threading
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from host_bridge.config import Configuration, load_configuration
from messages.audience import Audience, AudienceToken, Conversation
from messages.envelope import Call, Deadline
from messages.errors import (
    AudienceMissing,
    Cancelled,
    DeadlineExceeded,
    Denied,
    InternalError,
    KnowledgeError,
    StaleFence,
    Stopping,
    UnknownTool,
)
from messages.json_types import JsonObject
from messages.operator import HOST_OPERATOR, Operator, OperatorCall, SubscribeCall, Subscriber
from messages.provider import ProviderCall
from messages.schemas import ToolFormat, export_tools
from messages.system_memory import StewardCall, SystemMemoryCall
from messages.tools import CATALOGUE

if TYPE_CHECKING:
    from host_bridge.owner.lock import OwnerLock


HOST_KEY = "kr-host-of-the-fake"


class FakePending:
    """One answer, given exactly once."""

    def __init__(self, call: Call, settled: Callable[[FakePending], None]) -> None:
        self.call = call
        self._settled = settled
        self._outcome: JsonObject | KnowledgeError | None = None
        self.cancel_refused = False  # as a write after its journal commit refuses it
        self._callbacks: list[Callable[[FakePending], None]] = []
        self._lock = threading.Lock()

    def settle(self, outcome: JsonObject | KnowledgeError) -> None:
        with self._lock:
            if self._outcome is not None:
                return
            self._outcome = outcome
            callbacks, self._callbacks = self._callbacks, []
        self._settled(self)
        for callback in callbacks:
            callback(self)

    def add_done_callback(self, callback: Callable[[FakePending], None], /) -> None:
        with self._lock:
            if self._outcome is None:
                self._callbacks.append(callback)
                return
        callback(self)

    def deliver(self, hand_over: Callable[[JsonObject], None]) -> None:
        outcome = self._outcome
        assert outcome is not None
        if self.call.arguments.get("act") == "revoked":
            raise Denied("The grant was revoked.")
        if self.call.arguments.get("act") == "broken":
            raise RuntimeError("secret in a delivery")
        if isinstance(outcome, KnowledgeError):
            raise outcome
        hand_over(outcome)

    def cancel(self) -> None:
        self.call.cancellation.cancel()
        if not self.cancel_refused:
            self.settle(Cancelled("The call was cancelled."))


class FakeSubscription(FakePending):
    """One subscriber, told when the test says so."""

    def __init__(self, bridge: KnowledgeBridge, subscriber: Subscriber, ready: Callable[[FakePending], None]) -> None:
        super().__init__(_made_up("events.subscribe"), lambda _: None)
        self._bridge = bridge
        self.subscriber = subscriber
        self._ready = ready
        self.settle({})

    def tell(self, event: JsonObject) -> None:
        pending = FakePending(_made_up("event"), lambda _: None)
        pending.settle(event)
        self._ready(pending)

    def stands(self) -> bool:
        return self in self._bridge.subscriptions

    def end(self) -> None:
        if self in self._bridge.subscriptions:
            self._bridge.subscriptions.remove(self)


def _made_up(name: str) -> Call:
    return Call(name, {}, None, Deadline.after(60.0))


class KnowledgeBridge:
    """Answers by itself, in threads of its own."""

    def __init__(
        self,
        state_dir: Path | None = None,
        *,
        config: Configuration | None = None,
        owner_lock: OwnerLock | None = None,
    ) -> None:
        if config is None:
            config = Configuration() if state_dir is None else load_configuration(state_dir / "knowledge.yaml")
        self.configuration = config
        self._open: set[FakePending] = set()
        self.subscriptions: list[FakeSubscription] = []
        self._lock = threading.Lock()
        self._closed = False
        self.drain_seconds: float | None = None
        if state_dir is not None and (state_dir / "no-start").exists():
            raise InternalError("The fake was told not to start.", retry="never")
        if state_dir is not None and (state_dir / "explode").exists():
            raise RuntimeError("secret at the start")

    def submit(self, call: Call) -> FakePending:
        pending = FakePending(call, self._forget)
        with self._lock:
            self._open.add(pending)
        if self._closed:
            pending.settle(Stopping("The runtime is shutting down."))
        elif call.tool not in CATALOGUE:
            pending.settle(UnknownTool(f"No tool is called {call.tool}.", tool=call.tool))
        elif call.audience is None:
            pending.settle(AudienceMissing("The call carries no audience."))
        elif isinstance(call.audience, AudienceToken):
            pending.settle({"token": call.audience.text})
        else:
            act = call.arguments.get("act", "echo")
            if act == "hold":
                self.hold(pending)
                timer = threading.Timer(max(call.deadline.remaining(), 0), pending.settle, [DeadlineExceeded("Late.")])
                timer.daemon = True
                pending.add_done_callback(lambda _: timer.cancel())
                timer.start()
            else:
                self._act(str(act), pending, call.audience)
        return pending

    def provide(self, call: ProviderCall) -> FakePending:
        """Who asked for what, echoed."""
        pending = FakePending(Call(call.tool, {}, call.audience, call.deadline), self._forget)
        pending.settle({"method": call.tool, "request": call.request.model_dump(mode="json", by_alias=True)})
        return pending

    def remind(self, call: SystemMemoryCall) -> FakePending:
        """Who asked for what, echoed."""
        pending = FakePending(Call(call.tool, {}, call.audience, call.deadline), self._forget)
        pending.settle({"method": call.tool, "request": call.request.model_dump(mode="json", by_alias=True)})
        return pending

    def attend(self, call: StewardCall) -> FakePending:
        """What was asked, echoed with the door that it came in by."""
        pending = FakePending(Call(call.tool, {}, None, call.deadline), self._forget)
        request: JsonObject = call.request.model_dump(mode="json", by_alias=True)
        pending.settle({"method": call.tool, "door": call.door, "request": request})
        return pending

    def operate(self, call: OperatorCall) -> FakePending:
        """Who asked for what, echoed."""
        pending = FakePending(Call(call.tool, {}, None, call.deadline), self._forget)
        request: JsonObject = call.request.model_dump(mode="json", by_alias=True)
        pending.settle({"operator": call.operator.id, "agent": call.agent, "method": call.tool, "request": request})
        return pending

    def subscribe(self, call: SubscribeCall, ready: Callable[[FakePending], None]) -> FakeSubscription:
        """Remembered in ``subscriptions``; a test says when something happens."""
        subscription = FakeSubscription(self, call.subscriber, ready)
        self.subscriptions.append(subscription)
        return subscription

    def tools(self, format: ToolFormat, profile: str | None = None) -> list[JsonObject]:
        return export_tools(format, profile)

    def hold(self, pending: FakePending) -> None:
        threading.Thread(target=self._hold, args=(pending,), daemon=True).start()

    def key_holder(self, key: str) -> Operator:
        """One key counts, the host's."""
        if key != HOST_KEY:
            raise Denied("This key is not known here.")
        return HOST_OPERATOR

    def audience_of(self, token: str) -> Audience:
        raise Denied("This is no token of the fake's.")

    def ready(self) -> bool:
        return not self._closed

    def health(self) -> JsonObject:
        return {"state": "up", "openCalls": len(self._open)}

    def busy(self) -> bool:
        return bool(self._open)

    def close(self, *, drain_seconds: float = 5.0) -> None:
        self._closed = True
        self.drain_seconds = drain_seconds
        with self._lock:
            left = list(self._open)
        idle = threading.Event()
        for pending in left:
            pending.add_done_callback(lambda _: idle.set() if not self._open else None)
        if left:
            idle.wait(drain_seconds)
        for pending in left:
            pending.settle(Stopping("The runtime ended first.", retry="unknown"))

    def _forget(self, pending: FakePending) -> None:
        with self._lock:
            self._open.discard(pending)

    def _act(self, act: str, pending: FakePending, audience: Audience) -> None:
        call = pending.call
        match act:
            case "refuse":
                pending.settle(StaleFence("The revision is not current.", field="expectedRevision", current=4))
            case "defect":
                self._forget(pending)
                raise RuntimeError("secret of a defect")
            case "die":
                os.kill(os.getpid(), signal.SIGKILL)
            case "print":
                print("stray output")
                subprocess.run(["echo", "stray child output"], check=True)
                pending.settle({"printed": True})
            case "large":
                size = call.arguments.get("size")
                pending.settle({"text": "x" * (size if isinstance(size, int) else 0)})
            case _:
                pending.settle(
                    {
                        "tool": call.tool,
                        "arguments": call.arguments,
                        "agent": audience.agent,
                        "session": audience.session_id if isinstance(audience, Conversation) else None,
                        "pid": os.getpid(),
                        "deadlineMs": round(call.deadline.remaining() * 1000),
                    }
                )

    def _hold(self, pending: FakePending) -> None:
        name = str(pending.call.arguments.get("name", ""))
        started, release = pending.call.arguments.get("started"), pending.call.arguments.get("release")
        if isinstance(started, str):
            Path(started).write_text(name + "\n", encoding="utf-8")
        if isinstance(release, str):
            Path(release).read_text(encoding="utf-8")
            pending.settle({"held": name})

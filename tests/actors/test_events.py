"""Change events on real stores and files: who hears, what, how often, and when no more."""

from __future__ import annotations

import threading
import uuid
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from actors.authority import PermitGate
from actors.authority.view import AuthorityView, Membership
from actors.events import PAUSE_SECONDS, EventHub, PendingEvent, Subscription
from actors.supervision import Timer
from host_bridge.bridge import KnowledgeBridge
from messages.audience import Audience, Conversation, OwnerPrivate
from messages.envelope import Deadline
from messages.errors import AudienceMissing, AudienceStale, Cancelled, Denied, InternalError, Sandboxed
from messages.json_types import JsonObject
from messages.operator import LOCAL_OPERATOR, Operator, SubscribeCall, Subscriber
from messages.vocabulary import PRIVATE, Partition
from tests.kit.store import GROUP, GROUP_PARTITION, MAIN, only_store, open_bridge, remembering, stores, write_note

PATIENCE = 10.0


class Listener:
    """What one subscriber was told; delivers at once, as an outbox with a fast reader does."""

    def __init__(self) -> None:
        self.heard: list[JsonObject] = []
        self._arrived = threading.Condition()
        self.hold = False
        self.waiting: list[PendingEvent] = []

    def __call__(self, event: PendingEvent) -> None:
        if self.hold:
            self.waiting.append(event)
        else:
            event.deliver(self._take)

    def deliver(self) -> None:
        for event in self.waiting:
            event.deliver(self._take)
        self.waiting.clear()

    def _take(self, told: JsonObject) -> None:
        with self._arrived:
            self.heard.append(told)
            self._arrived.notify_all()

    def count(self, kind: str = "changed") -> int:
        return sum(event["type"] == kind for event in self.heard)

    def wait_for(self, number: int, kind: str = "changed") -> None:
        with self._arrived:
            assert self._arrived.wait_for(lambda: self.count(kind) >= number, PATIENCE), self.heard


@pytest.fixture
def bridge(tmp_path: Path) -> Iterator[KnowledgeBridge]:
    with open_bridge(tmp_path / "state") as opened:
        yield opened


def subscribe(bridge: KnowledgeBridge, subscriber: Subscriber, ready: Listener) -> Subscription:
    """A subscription that stands; raises the refusal."""
    subscription = bridge.subscribe(SubscribeCall(subscriber, Deadline.after(PATIENCE)), ready)
    decided = threading.Event()
    subscription.add_done_callback(lambda _: decided.set())
    assert decided.wait(PATIENCE)
    subscription.deliver(lambda answer: None)
    return subscription


def remember(bridge: KnowledgeBridge, text: str, audience: Audience = MAIN) -> None:
    bridge.call("knowledge_remember", {**remembering(text), "requestId": str(uuid.uuid4())}, audience)


def settled(bridge: KnowledgeBridge, subscriber: Subscriber) -> tuple[Listener, Subscription]:
    """A listener on a store that is open and has told everything that its opening had to tell."""
    bridge.call("knowledge_status", {}, MAIN)
    listener = Listener()
    subscription = subscribe(bridge, subscriber, listener)
    remember(bridge, "A first change, to be heard before the test begins.")
    listener.wait_for(1)
    return listener, subscription


# --- on the real runtime -------------------------------------------------------------------------------------


def test_a_change_by_a_tool_is_told_without_data_or_paths(bridge: KnowledgeBridge) -> None:
    listener, _ = settled(bridge, Subscriber(audience=MAIN))
    assert listener.heard[-1] == {"type": "changed", "partition": "private"}


def test_an_edit_by_an_editor_is_told_without_anybody_asking(bridge: KnowledgeBridge) -> None:
    listener, _ = settled(bridge, Subscriber(audience=MAIN))
    before = listener.count()
    write_note(only_store(bridge.state_dir).vault / "private", "people/ada.md", "# Ada\n---\n")
    plain = only_store(bridge.state_dir).vault / "private" / "people" / "ada.md"
    assert plain.is_file()
    # A broken file changes no row: what is told is a change of records.
    note = next((only_store(bridge.state_dir).vault / "private" / "claims").rglob("*.md"))
    note.write_text(note.read_text() + "More, by hand.\n")
    listener.wait_for(before + 1)
    assert listener.heard[-1] == {"type": "changed", "partition": "private"}


def test_a_conversation_hears_of_its_own_partition_only_and_the_owner_of_the_private_one(
    bridge: KnowledgeBridge,
) -> None:
    owner, _ = settled(bridge, Subscriber(audience=MAIN))
    group = Listener()
    subscribe(bridge, Subscriber(audience=GROUP), group)
    remember(bridge, "Said in the group.", GROUP)
    group.wait_for(1)
    assert group.heard == [{"type": "changed", "partition": "conversation"}]
    before = group.count()
    told = owner.count()
    remember(bridge, "Said to the owner.")
    owner.wait_for(told + 1)
    assert group.count() == before


def test_an_operator_hears_of_an_agents_private_partition(bridge: KnowledgeBridge) -> None:
    listener, _ = settled(bridge, Subscriber(operator=LOCAL_OPERATOR))
    assert listener.heard[-1] == {"type": "changed", "partition": "private"}
    reader = Operator("none", frozenset())
    with pytest.raises(Denied):
        subscribe(bridge, Subscriber(operator=reader), Listener())


def test_a_subscription_creates_no_store_and_hears_of_one_that_comes(bridge: KnowledgeBridge) -> None:
    listener = Listener()
    subscribe(bridge, Subscriber(audience=MAIN), listener)
    assert stores(bridge.state_dir) == []
    remember(bridge, "The first.")
    listener.wait_for(1)


def test_an_ended_subscription_hears_nothing_more(bridge: KnowledgeBridge) -> None:
    listener, subscription = settled(bridge, Subscriber(audience=MAIN))
    other = Listener()
    subscribe(bridge, Subscriber(audience=MAIN), other)
    subscription.end()
    subscription.end()
    before = listener.count()
    remember(bridge, "After the end.")
    other.wait_for(1)
    assert listener.count() == before


def test_a_run_that_ended_hears_nothing_more(bridge: KnowledgeBridge) -> None:
    run = OwnerPrivate("main", run_id="run 1")
    listener, _ = settled(bridge, Subscriber(audience=run))
    other = Listener()
    subscribe(bridge, Subscriber(audience=MAIN), other)
    bridge.end_run("run 1")
    before = len(listener.heard)
    remember(bridge, "After the run.")
    other.wait_for(1)
    assert len(listener.heard) == before
    with pytest.raises(AudienceStale):
        subscribe(bridge, Subscriber(audience=run), Listener())


@pytest.mark.parametrize(
    ("audience", "refusal"),
    [(None, AudienceMissing), (OwnerPrivate("main", sandboxed=True), Sandboxed), (OwnerPrivate("eve"), Denied)],
)
def test_who_may_not_read_may_not_subscribe(
    bridge: KnowledgeBridge, audience: Audience | None, refusal: type[Exception]
) -> None:
    with pytest.raises(refusal):
        subscribe(bridge, Subscriber(audience=audience), Listener())


def test_a_store_with_a_listener_stays_open_and_one_without_is_stopped(tmp_path: Path) -> None:
    config = "runtime: {idle: 1s}"
    with open_bridge(tmp_path, config) as bridge:
        listener, subscription = settled(bridge, Subscriber(audience=MAIN))
        threading.Event().wait(2.0)  # twice the time after which an idle store is stopped
        assert bridge.health()["stores"] != []
        note = next((only_store(bridge.state_dir).vault / "private" / "claims").rglob("*.md"))
        before = listener.count()
        note.write_text(note.read_text() + "More, by hand.\n")
        listener.wait_for(before + 1)
        subscription.end()
        gone = threading.Event()
        for _ in range(100):
            if bridge.health()["stores"] == []:
                gone.set()
                break
            threading.Event().wait(0.05)
        assert gone.is_set()


# --- the hub alone -------------------------------------------------------------------------------------------


class Hand:
    """A clock whose timers run when the test says so."""

    def __init__(self) -> None:
        self.now = 0.0
        self.due: list[tuple[float, object]] = []

    def monotonic(self) -> float:
        return self.now

    def utc(self) -> datetime:
        return datetime.now(UTC)

    def call_later(self, delay: float, callback: object) -> Timer:
        self.due.append((self.now + delay, callback))

        class Fixed:
            def cancel(self) -> None: ...

        return Fixed()

    def pass_time(self, seconds: float) -> None:
        self.now += seconds
        ready = [callback for at, callback in self.due if at <= self.now]
        self.due = [(at, callback) for at, callback in self.due if at > self.now]
        for callback in ready:
            assert callable(callback)
            callback()


class Alone:
    """A hub with a view of one agent, one store and a wall clock of its own."""

    def __init__(self) -> None:
        self.wall = datetime(2026, 11, 2, 12, tzinfo=UTC)
        self.hand = Hand()
        self.gate = PermitGate(monotonic=lambda: 0.0, now=lambda: self.wall)
        self.publish_view()
        self.hub = EventHub(self.gate, self.hand)

    def subscribe(self, subscriber: Subscriber, ready: Listener) -> None:
        Subscription(self.hub, subscriber, ready).begin()

    def publish_view(self, *agents: str) -> None:
        members = {agent: Membership("store") for agent in agents or ("main",)}
        self.gate.publish(AuthorityView(self.gate.next_epoch(), 1.0, True, members))


def test_what_happens_while_an_event_waits_or_right_after_it_is_merged() -> None:
    alone, listener = Alone(), Listener()
    alone.subscribe(Subscriber(audience=MAIN), listener)
    listener.hold = True
    for _ in range(1_000):
        alone.hub.publish("store", PRIVATE, "changed")
    alone.hub.publish("store", PRIVATE, "status")
    assert len(listener.waiting) == 2
    listener.hold = False
    listener.deliver()
    assert [event["type"] for event in listener.heard] == ["changed", "status"]
    for _ in range(1_000):
        alone.hub.publish("store", PRIVATE, "changed")
    assert listener.count() == 1
    alone.hand.pass_time(PAUSE_SECONDS)
    assert listener.count() == 2, "the last change is never lost"
    alone.hand.pass_time(PAUSE_SECONDS)
    alone.hand.pass_time(PAUSE_SECONDS)
    assert listener.count() == 2


def test_an_event_that_waited_is_not_handed_over_to_an_audience_that_expired_meanwhile() -> None:
    alone, listener = Alone(), Listener()
    audience = OwnerPrivate("main", expires_at=alone.wall + timedelta(minutes=1))
    alone.subscribe(Subscriber(audience=audience), listener)
    listener.hold = True
    alone.hub.publish("store", PRIVATE, "changed")
    alone.wall += timedelta(minutes=2)
    listener.hold = False
    listener.deliver()
    alone.hub.publish("store", PRIVATE, "changed")
    alone.hand.pass_time(1.0)
    assert listener.heard == []
    assert not alone.hub.wanted("store")


def test_an_event_is_not_handed_over_to_an_agent_that_was_removed_meanwhile() -> None:
    alone, listener = Alone(), Listener()
    alone.subscribe(Subscriber(audience=MAIN), listener)
    listener.hold = True
    alone.hub.publish("store", PRIVATE, "changed")
    alone.publish_view("other")
    listener.hold = False
    listener.deliver()
    assert listener.heard == []


def test_an_event_waits_while_nobody_vouches_for_access_and_comes_afterwards() -> None:
    alone, listener = Alone(), Listener()
    alone.subscribe(Subscriber(audience=MAIN), listener)
    listener.hold = True
    alone.hub.publish("store", PRIVATE, "changed")
    alone.gate.withdraw_view()
    listener.hold = False
    listener.deliver()
    assert listener.heard == []
    alone.publish_view()
    alone.hand.pass_time(PAUSE_SECONDS)
    assert listener.heard == [{"type": "changed", "partition": "private"}]


def test_other_stores_and_partitions_are_not_told() -> None:
    alone, listener = Alone(), Listener()
    session = "44444444-4444-4444-8444-444444444444"
    alone.subscribe(Subscriber(audience=Conversation("main", "chat:x", session)), listener)
    alone.hub.publish("store", PRIVATE, "changed")
    alone.hub.publish("store", GROUP_PARTITION, "changed")
    alone.hub.publish("another", Partition(session), "changed")
    assert listener.heard == []
    alone.hub.publish("store", Partition(session), "changed")
    assert listener.heard == [{"type": "changed", "partition": "conversation"}]


def raising(_: PendingEvent) -> None:
    raise SystemExit("the text of a record")


def test_a_subscriber_that_raises_is_ended_and_the_others_are_told(caplog: pytest.LogCaptureFixture) -> None:
    alone, listener = Alone(), Listener()
    Subscription(alone.hub, Subscriber(audience=MAIN), raising).begin()
    alone.subscribe(Subscriber(audience=MAIN), listener)
    alone.hub.publish("store", PRIVATE, "changed")
    assert listener.count() == 1
    assert len(alone.hub._subscriptions) == 1
    assert "SystemExit" in {getattr(record, "error_type", None) for record in caplog.records}
    assert "the text of a record" not in "".join(str(vars(record)) for record in caplog.records)


def test_a_subscriber_that_raises_never_turns_a_committed_write_into_a_refusal(bridge: KnowledgeBridge) -> None:
    bridge.call("knowledge_status", {}, MAIN)
    listener = Listener()
    subscription = bridge.subscribe(SubscribeCall(Subscriber(audience=MAIN), Deadline.after(PATIENCE)), raising)
    decided = threading.Event()
    subscription.add_done_callback(lambda _: decided.set())
    assert decided.wait(PATIENCE)
    subscribe(bridge, Subscriber(audience=MAIN), listener)
    remember(bridge, "Kept, whoever fails to hear of it.")
    listener.wait_for(1)
    actors = bridge.health()["actors"]
    assert isinstance(actors, list)
    assert {actor["crashes"] for actor in actors if isinstance(actor, dict)} == {0}


def test_a_write_is_answered_before_anybody_is_told_of_it(
    bridge: KnowledgeBridge, monkeypatch: pytest.MonkeyPatch
) -> None:
    bridge.call("knowledge_status", {}, MAIN)

    def failing(*_: object) -> None:
        raise InternalError("Telling fails.")

    monkeypatch.setattr(EventHub, "publish", failing)
    remember(bridge, "Kept, though nobody can be told.")


def test_a_subscription_that_is_ended_while_it_begins_is_not_remembered(monkeypatch: pytest.MonkeyPatch) -> None:
    alone = Alone()
    subscription = Subscription(alone.hub, Subscriber(audience=MAIN), Listener())
    remember_it = alone.hub.remember

    def late(one: Subscription) -> None:
        one.end()
        remember_it(one)

    monkeypatch.setattr(alone.hub, "remember", late)
    assert subscription.begin() is None
    assert not alone.hub.wanted("store")
    with pytest.raises(Cancelled):
        subscription.deliver(lambda _: None)

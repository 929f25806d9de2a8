"""One run: a state directory, the owner under test, clients, outsiders and injuries, then rest, then the judges."""

from __future__ import annotations

import contextlib
import os
import random
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Final

from stress import aftermath
from stress.aftermath import Inspector
from stress.clients import Client
from stress.damages import DAMAGES, Finding, NotHere, mount, patient_of, suffer, unmount
from stress.doors import Door, McpDoor, ShellDoor, SocketDoor, StreamDoor
from stress.judges import ANSWERS, AT_ONCE, JUDGES, Evidence, Judge, Success, Verdict, grown, success
from stress.ledger import Caller, Ledger
from stress.linearizability import FOREVER
from stress.lives import answered_again, falls
from stress.ordeals import ORDEALS
from stress.outsiders import Configurer, Editor, GitUser, Granter, Outsider
from stress.owner import Owner, Usage
from stress.scripts import Shelf
from stress.surgery import Surgeon

QUIET_SECONDS: Final = 15.0
QUIET_SHARE: Final = 0.25
"""At the end of a run nothing is injured for so long: what has gone wrong must show, and not be mended by a restart."""
SETTLERS: Final = 8
LOOK_SECONDS: Final = 2.0
WAITS_SECONDS: Final = 0.1
SETTLED_SECONDS: Final = 1.0
"""What is judged while everybody works is so old at least: all that belongs to it is noted by then."""
MUTANT_REPOSITORY_SECONDS: Final = 10.0
REST_SECONDS: Final = 10.0
DISK: Final = "1g"
"""The temporary file system of a run with damages."""


@dataclass(frozen=True, slots=True)
class Settings:
    """How large a run is. ``calls`` bounds each client, ``seconds`` all of it; ``spacing`` seconds between injuries,
    0 for none."""

    seed: int
    seconds: float
    agents: int
    conversations: int
    stores: int
    spacing: float
    calls: int | None = None
    mutant: str | None = None
    damages: bool = False
    """Damage files of the stores afterwards, look, and go on for a third of the time."""
    ordeals: tuple[str, ...] = tuple(ORDEALS)
    """Damages while clients work, from which the seed chooses."""
    operations: int | None = None
    """End the work after so many calls of all."""


@dataclass(frozen=True, slots=True)
class Result:
    """What a run was and how it was judged."""

    settings: Settings
    ledger: Ledger
    seconds: float
    verdicts: Sequence[Verdict]
    outages: int
    usages: Sequence[Usage]
    findings: Sequence[Finding] = ()
    skipped: Mapping[str, str] = field(default_factory=dict)
    """Damages while clients worked that this machine could not do, and why."""
    restarts: Mapping[str, int] = field(default_factory=dict)
    """By actor, how many fell over an injury."""
    again: Sequence[float] = ()
    """Seconds from each crash of a lane to its store's next answer, as clients saw it."""
    success: Success | None = None
    """Of the calls without a fault of their own."""


class Soak:
    """A run in a folder of its own."""

    def __init__(self, folder: Path, settings: Settings, say: Callable[[str], None]) -> None:
        self._settings = settings
        self._say = say
        self._disk = folder / "disk"
        self._disk.mkdir(parents=True)
        self._mounted = False
        if settings.damages:
            with contextlib.suppress(NotHere):
                mount(self._disk, f"size={DISK}")
                self._mounted = True
        self._state_dir = self._disk / "state"
        runtime = folder / "run"
        self._state_dir.mkdir()
        runtime.mkdir(mode=0o700)
        self._environment = {
            "PATH": os.environ.get("PATH", "/usr/bin:/bin"),
            "HOME": str(folder),
            "XDG_RUNTIME_DIR": str(runtime),
        }
        if "KNOWLEDGE_CI_RUN" in os.environ:
            self._environment["KNOWLEDGE_CI_RUN"] = os.environ["KNOWLEDGE_CI_RUN"]
        os.environ["XDG_RUNTIME_DIR"] = str(runtime)  # where the socket lies follows from it, for this process too
        self._owner = Owner(self._state_dir, self._environment, folder / "owner.log", settings.mutant)
        self._ledger = Ledger()
        self._chance = random.Random(f"run/{settings.seed}")
        self._secrets: dict[str, str] = {}
        self._shelves: dict[Caller, Shelf] = {}
        self._lags: list[tuple[float, float]] = []
        self._waits: list[tuple[float, float, float]] = []
        self._usages: list[Usage] = []
        self._findings: list[Finding] = []
        self._until = 0.0
        self._doors: list[Door] = []
        self._callers = self._made_up_callers()
        self._configuration = self._state_dir / "knowledge.yaml"
        self._configuration.write_text(self._configured())

    def run(self, judges: Sequence[Judge] = tuple(JUDGES.values())) -> Result:
        """The whole run. Raises :class:`stress.aftermath.Unsettled` when the store is not there for the judges."""
        verdicts: list[Verdict] = []
        stop, over = threading.Event(), threading.Event()
        try:
            self._owner.start()
            self._introduce()
            idle = self._owner.usage()
            clients = self._clients()
            outsiders = self._outsiders(clients)
            began = time.monotonic()
            with ThreadPoolExecutor(len(clients) + len(outsiders) + 4, thread_name_prefix="stress") as pool:
                quiet = min(QUIET_SECONDS, QUIET_SHARE * self._settings.seconds)
                surgeon = self._called(outsiders)
                surgery = pool.submit(surgeon.run, stop, began + self._settings.seconds - quiet)
                heartbeat = pool.submit(self._heartbeat, over)
                machine = pool.submit(self._watch_machine, over)
                others = [pool.submit(outsider.run, stop) for outsider in outsiders]
                working = [pool.submit(client.run, stop, self._settings.calls) for client in clients]
                try:
                    look = partial(self._objected, [judge for judge in judges if judge in AT_ONCE], surgeon, idle)
                    verdicts += self._await(working, began + self._settings.seconds, look)
                    stop.set()
                    seconds = time.monotonic() - began
                    if verdicts:
                        # The mutant is caught: whoever waits for an answer that never comes need not.
                        for door in self._doors:
                            if isinstance(door, StreamDoor):
                                door.hang_up()
                    for future in (*working, *others, surgery):
                        future.result()
                    self._until = time.monotonic()
                    for outsider in outsiders:
                        outsider.leave()
                    if self._settings.damages:
                        self._damage(surgeon)
                        self._work_on(pool, clients)
                    self._say("settling")
                    try:
                        evidence = self._alone(surgeon, idle) if verdicts else self._rest(clients, idle, surgeon)
                    except aftermath.Unsettled as problem:
                        # What clients were answered can be judged all the same.
                        verdicts.append(Verdict("the store answers when all is over", False, str(problem), "settled"))
                        evidence = self._alone(surgeon, idle)
                        judges = ANSWERS
                finally:
                    stop.set()
                    over.set()
                heartbeat.result()
                machine.result()
            for judge in () if self._caught(verdicts) else judges:
                self._say(judge.__name__.replace("_", " "))
                verdicts.append(replace(judge(evidence), judge=judge.__name__))
            found = falls(self._ledger, surgeon.outages, self._until)
            stores = {self._shelves[callers[0]].vault_id: callers[0].store for callers in self._callers}
            status = self._owner.stop()
            if status != 0:
                verdicts.append(
                    Verdict("the owner ends in order", False, f"exit status {status}", "the_process_survives")
                )
            return Result(
                self._settings,
                self._ledger,
                seconds,
                verdicts,
                len(surgeon.outages),
                self._usages,
                self._findings,
                surgeon.skipped,
                Counter(fall.role for fall in found if fall.ended is not None),
                answered_again(self._ledger, found, stores),
                success(self._ledger.operations, self._ledger, surgeon.outages),
            )
        finally:
            stop.set()
            over.set()
            for door in self._doors:
                door.leave()
            self._owner.kill()
            if self._mounted:
                unmount(self._disk)

    def _await(
        self, working: Sequence[Future[None]], until: float, look: Callable[[], list[Verdict]] = list
    ) -> list[Verdict]:
        """Until the time is over, enough is done, or the judges have objected; what they say then."""
        began, looked = time.monotonic(), 0.0
        enough = self._settings.operations or FOREVER
        while (now := time.monotonic()) < until and not all(one.done() for one in working):
            done = len(self._ledger.operations)
            if done >= enough:
                break
            time.sleep(0.25)
            if now - looked > LOOK_SECONDS:
                looked = now
                self._look()
                if objected := look():
                    return objected
            held = f", {self._usages[-1].resident >> 20} MiB" if self._usages else ""
            rate = done / (now - began) if now > began else 0.0
            self._say(f"{done} calls ({rate:.0f}/s), {len(self._ledger.struck)} injuries{held}")
        return []

    def _objected(self, judges: Sequence[Judge], surgeon: Surgeon, idle: Usage | None) -> list[Verdict]:
        """What a mutant's judges object to already; nothing in a run without a mutant, which is judged as a whole."""
        if self._settings.mutant is None:
            return []
        at = min(time.monotonic(), surgeon.out_since or FOREVER) - SETTLED_SECONDS
        evidence = replace(self._alone(surgeon, idle), ledger=self._ledger.until(at), until=at)
        for door in self._doors:
            evidence.ledger.count_surplus(door.surplus)
        verdicts = [replace(judge(evidence), judge=judge.__name__) for judge in judges]
        return [verdict for verdict in verdicts if not verdict.kept]

    def _caught(self, verdicts: Sequence[Verdict]) -> bool:
        return self._settings.mutant is not None and any(verdict.judge != "settled" for verdict in verdicts)

    # --- who takes part ---------------------------------------------------------------------------------

    def _made_up_callers(self) -> list[list[Caller]]:
        """For each agent its owner in private, then its conversations. The odd conversations are never let in."""
        found = []
        for number in range(self._settings.agents):
            agent, store = f"agent{number}", f"store{number % self._settings.stores}"
            callers = [Caller(agent, store)]
            callers += [Caller(agent, store, f"chat:{agent}:{n}") for n in range(self._settings.conversations)]
            found.append(callers)
            for caller in callers:
                private = next((s for c, s in self._shelves.items() if c.partition == caller.partition), None)
                if private is None:
                    secret = f"secret-{self._chance.getrandbits(48):012x}"
                    self._secrets[secret] = caller.partition
                    private = Shelf(secret)
                self._shelves[caller] = private
        return found

    def _configured(self) -> str:
        stores = {f"store{n}": list[str]() for n in range(self._settings.stores)}
        for callers in self._callers:
            stores[callers[0].store].append(callers[0].agent)
        agents = ", ".join(f"{{id: {callers[0].agent}}}" for callers in self._callers)
        shared = "\n".join(f"  {name}: {{agents: [{', '.join(members)}]}}" for name, members in stores.items())
        return f"agents:\n  list: [{agents}]\nstores:\n{shared}\nrecallGate: {{mode: live}}\n"

    def _introduce(self) -> None:
        """Everybody asks for status once, and each owner retains a first source: what later calls need."""
        door = self._door()
        inspector = Inspector(door)
        for callers in self._callers:
            status = inspector.call("knowledge_status", {}, callers[0])
            shelf = self._shelves[callers[0]]
            shelf.vault_id, shelf.fingerprint = str(status["vaultId"]), str(status["ontologyFingerprint"])
            for caller in callers[1:]:
                other = self._shelves[caller]
                other.vault_id, other.fingerprint = shelf.vault_id, shelf.fingerprint

    def _clients(self) -> list[Client]:
        clients = []
        for number, callers in enumerate(self._callers):
            doors: list[tuple[Door, int]] = [(self._door(), 40)]
            if number % 6 == 1:
                doors.append((McpDoor(self._state_dir, self._environment, callers[0].agent), 30))
            if number % 12 == 2:
                doors.append((ShellDoor(self._state_dir, self._environment, callers[0].agent), 1))
            self._doors += [door for door, _ in doors[1:]]
            clients.append(
                Client(
                    callers[0].agent,
                    self._ledger,
                    seed=f"{self._settings.seed}/{number}",
                    doors=doors,
                    callers=[(caller, self._shelves[caller]) for caller in callers],
                )
            )
        return clients

    def _outsiders(self, clients: Sequence[Client]) -> list[Outsider]:
        seed = self._settings.seed
        outsiders: list[Outsider] = []
        for n in range(self._settings.stores):
            name = f"store{n}"
            private = next(self._shelves[callers[0]] for callers in self._callers if callers[0].store == name)
            outsiders.append(
                Editor(
                    random.Random(f"editor/{seed}/{n}"),
                    0.3,
                    name,
                    partial(self._private, private),
                    self._ledger,
                )
            )
            outsiders.append(
                GitUser(
                    random.Random(f"git/{seed}/{n}"),
                    2.0,
                    name,
                    partial(self._vault, private),
                    self._environment,
                )
            )
        outsiders.append(Configurer(random.Random(f"configuration/{seed}"), 4.0, self._configuration))
        open_ones = [caller for callers in self._callers for caller in callers[1::2]]
        if open_ones:
            watched = [door for door in self._doors if isinstance(door, StreamDoor)]
            chance, door = random.Random(f"grants/{seed}"), self._door()
            outsiders.append(
                Granter(
                    chance, 0.1, open_ones, door, watched, self._ledger,
                    lambda: [client.asking for client in clients if client.asking is not None],
                )
            )  # fmt: skip
        return outsiders

    def _door(self) -> SocketDoor:
        door = SocketDoor(self._state_dir)
        self._doors.append(door)
        return door

    def _vault(self, shelf: Shelf) -> Path:
        return self._state_dir / "knowledge" / "stores" / shelf.vault_id / "vault"

    def _private(self, shelf: Shelf) -> Path:
        return self._vault(shelf) / "private"

    def _called(self, outsiders: Sequence[Outsider]) -> Surgeon:
        owners = {callers[0].store: callers[0] for callers in reversed(self._callers)}
        return Surgeon(
            self._owner,
            self._ledger,
            seed=self._settings.seed,
            spacing=self._settings.spacing,
            names=self._settings.ordeals,
            patients={caller: self._vault(self._shelves[caller]).parent for caller in owners.values()},
            doors=self._doors,
            outsiders=outsiders,
        )

    # --- what happens to the owner ----------------------------------------------------------------------

    def _damage(self, surgeon: Surgeon) -> None:
        """Every damage, each to another store, while nobody works."""
        for door in self._doors:
            door.leave()
        inspector = Inspector(self._door())
        owners = list({callers[0].store: callers[0] for callers in self._callers}.values())
        for turn, name in enumerate(DAMAGES):
            self._say(name)
            began = time.monotonic()
            for caller in owners:
                inspector.idle(caller)
            caller, other = owners[turn % len(owners)], owners[(turn + 1) % len(owners)]
            patient = patient_of(self._owner, caller, self._vault(self._shelves[caller]).parent)
            if patient is not None:
                self._findings.append(suffer(name, patient, other, may_differ="Markdown" in name))
            surgeon.outages.append((began, time.monotonic()))

    def _work_on(self, pool: ThreadPoolExecutor, clients: Sequence[Client]) -> None:
        stop = threading.Event()
        working = [pool.submit(client.run, stop) for client in clients]
        try:
            self._await(working, time.monotonic() + self._settings.seconds / 3)
        finally:
            stop.set()
        for one in working:
            one.result()

    def _look(self) -> None:
        """Note what the owner holds."""
        usage = self._owner.usage()
        if usage is not None:
            self._usages.append(usage)

    def _heartbeat(self, over: threading.Event) -> None:
        """Note when this process itself is held up: what it then sees late was not late."""
        while not over.is_set():
            before = time.monotonic()
            time.sleep(0.02)
            lag = time.monotonic() - before - 0.02
            if lag > 0.03:
                self._lags.append((before, lag))

    def _watch_machine(self, over: threading.Event) -> None:
        """Note how long the owner's threads were ready to run and had no processor: that is the machine's doing."""
        start, before = time.monotonic(), self._owner.waits()
        while not over.wait(WAITS_SECONDS):
            end, after = time.monotonic(), self._owner.waits()
            most = sorted((after[thread] - before.get(thread, 0) for thread in after), reverse=True)[:2]
            if any(most):
                self._waits.append((start, end, sum(most) / 1e9))
            start, before = end, after

    # --- afterwards -------------------------------------------------------------------------------------

    def _rest(self, clients: Sequence[Client], idle: Usage | None, surgeon: Surgeon) -> Evidence:
        door = self._door()
        inspector = Inspector(door)
        self._shut_out(inspector)
        self._settle(clients)
        owners = {callers[0].store: callers[0] for callers in reversed(self._callers)}
        self._hear_out(inspector, owners.values())
        for caller in owners.values():
            inspector.idle(caller)
        histories = {
            caller.partition: inspector.history(caller)
            for caller in {caller.partition: caller for callers in self._callers for caller in callers}.values()
        }
        vaults = {store: self._vault(self._shelves[caller]) for store, caller in owners.items()}
        for one in self._doors:
            self._ledger.count_surplus(one.surplus)
        return Evidence(
            ledger=self._ledger,
            inspector=inspector,
            owners=owners,
            histories=histories,
            files={store: aftermath.on_disk(vault / "private") for store, vault in vaults.items()},
            secrets=self._secrets,
            closed=frozenset(caller for callers in self._callers for caller in callers[2::2]),
            outages=surgeon.outages,
            lags=self._lags,
            waits=self._waits,
            rest=(idle, self._at_rest(idle)),
            ended_by_itself=surgeon.ended,
            repositories=self._repositories(vaults),
            findings=self._findings,
            until=self._until,
        )

    def _alone(self, surgeon: Surgeon, idle: Usage | None) -> Evidence:
        """What there is without the store."""
        return Evidence(
            ledger=self._ledger,
            inspector=Inspector(self._door()),
            owners={},
            histories={},
            files={},
            secrets=self._secrets,
            closed=frozenset(caller for callers in self._callers for caller in callers[2::2]),
            outages=surgeon.outages,
            lags=self._lags,
            waits=self._waits,
            rest=(idle, self._owner.usage()),
            ended_by_itself=surgeon.ended,
            repositories={},
            until=self._until,
        )

    def _hear_out(self, inspector: Inspector, owners: Iterable[Caller]) -> None:
        """A deaf watch is found some time after a request, and only then what it did not hear of."""
        until = max((ordeal.ended for ordeal in self._ledger.ordeals if ordeal.unheard), default=0.0)
        while time.monotonic() < until:
            for caller in owners:
                inspector.call("knowledge_status", {}, caller)
            time.sleep(0.5)

    def _repositories(self, vaults: Mapping[str, Path]) -> dict[str, str | None]:
        with ThreadPoolExecutor(len(vaults)) as pool:
            seconds = MUTANT_REPOSITORY_SECONDS if self._settings.mutant else aftermath.REPOSITORY_SECONDS
            problems = pool.map(
                lambda vault: aftermath.repository_problem(vault, self._environment, seconds), vaults.values()
            )
            return dict(zip(vaults, problems, strict=True))

    def _at_rest(self, idle: Usage | None) -> Usage | None:
        """What the owner holds when every client has gone; it gets a while to notice."""
        for door in self._doors:
            door.leave()
        until = time.monotonic() + REST_SECONDS
        while True:
            usage = self._owner.usage()
            if usage is not None:
                self._usages.append(usage)
            if usage is None or idle is None or not grown(idle, usage, self._ledger) or time.monotonic() >= until:
                return usage
            time.sleep(0.1)

    def _settle(self, clients: Sequence[Client]) -> None:
        """Everybody sends their uncertain writes again, through doors that only wait for them."""
        done = list(self._ledger.operations)

        def settle(client: Client) -> None:
            door = SocketDoor(self._state_dir)
            try:
                aftermath.settle(client, door, [op for op in done if op.client == client.name])
            finally:
                door.leave()

        with ThreadPoolExecutor(SETTLERS) as pool:
            list(pool.map(settle, clients))

    def _shut_out(self, inspector: Inspector) -> None:
        """Every conversation is back in its own partition, so that what lies there can be read."""
        for callers in self._callers:
            for caller in callers[1::2]:
                params = {"agent": caller.agent, "sessionKey": str(caller.conversation)}
                inspector.ask("access.grants.remove", dict(params))

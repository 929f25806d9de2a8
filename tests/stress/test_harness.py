"""The stress harness itself: what it plans, how it strikes, what it says, and that it is able to fail."""

from __future__ import annotations

import contextlib
import dataclasses
import errno
import io
import itertools
import json
import os
import random
import socket
import subprocess
import sys
import threading
import time
import types
from collections.abc import Iterator
from concurrent.futures import Future
from pathlib import Path
from typing import Final, get_type_hints

import pytest
from rich.console import Console

from messages.json_types import JsonObject
from messages.provider import parse_provider_call
from messages.tools import parse_arguments
from messages.tools.catalogue import CATALOGUE
from stress import __main__ as command
from stress import mutants, outsiders, report
from stress.clients import LONGEST_PAUSE_SECONDS, Client
from stress.doors import Outcome, SocketDoor, ToolCall
from stress.injuries import ERRNOS, HELPERS, MESSENGERS, Injury, plan
from stress.judges import JUDGES, Success, Verdict
from stress.ledger import Caller, Edit, Ledger, Operation, Ordeal, Struck
from stress.mutants import MUTANTS, caught
from stress.scripts import Script, Seen, Shelf, is_method
from stress.soak import Result, Settings, Soak
from stress.subject import InjectedDefect, Injector

ROOT: Final = Path(__file__).resolve().parents[2]
SETTINGS: Final = Settings(seed=3, seconds=1.0, agents=2, conversations=2, stores=1, spacing=0.0)


# --- the plan of injuries ---------------------------------------------------------------------------------


def test_a_seed_decides_the_injuries_and_their_order() -> None:
    first, again, other = (list(itertools.islice(plan(seed), 200)) for seed in (1, 1, 2))
    assert first == again
    assert first != other


@pytest.mark.parametrize("seed", range(5))
def test_every_kind_of_injury_comes_again_and_again(seed: int) -> None:
    injuries = plan(seed)
    for _ in range(3):
        kinds = {injury.kind for injury in itertools.islice(injuries, 600)}
        assert kinds == {
            *(f"{actor} crashes" for actor in ("lane", *HELPERS)),
            *(f"{actor} stalls" for actor in ("lane", *HELPERS)),
            *(f"{actor} dies" for actor in MESSENGERS),
            *(errno.errorcode[number] for number in ERRNOS),
        }


def test_an_injury_survives_the_way_to_the_owner() -> None:
    for injury in itertools.islice(plan(4), 100):
        assert Injury(**json.loads(json.dumps(injury.to_json()))) == injury


# --- how it strikes ---------------------------------------------------------------------------------------


def passing(injector: Injector, actor: str, points: list[str]) -> list[str]:
    """What a thread of that name meets at each point."""
    met: list[str] = []

    def work() -> None:
        for point in points:
            try:
                injector.at_point(point)
                met.append("")
            except (OSError, InjectedDefect) as error:
                met.append(type(error).__name__)

    thread = threading.Thread(target=work, name=actor)
    thread.start()
    thread.join()
    return met


def test_nothing_strikes_that_was_not_armed() -> None:
    assert passing(Injector(), "store0/lane", ["a"]) == [""]


def test_an_injury_strikes_once_at_the_match_it_was_told() -> None:
    injector = Injector()
    injector.arm(Injury("crash", "lane", skip=2))
    assert passing(injector, "store0/indexer", ["a"] * 5) == [""] * 5
    assert passing(injector, "store0/lane", ["a"] * 5) == ["", "", "InjectedDefect", "", ""]
    (fired,) = injector.fired()
    assert fired["kind"] == "lane crashes"
    assert fired["actor"] == "store0/lane"
    assert fired["place"] == "a"
    assert injector.fired() == []


def test_a_system_error_comes_as_often_in_a_row_as_told() -> None:
    injector = Injector()
    injector.arm(Injury("errno", "lane", times=3, errno=errno.ENOSPC))
    assert passing(injector, "store0/lane", ["a"] * 4) == ["OSError"] * 3 + [""]
    assert [fired["kind"] for fired in injector.fired()] == ["ENOSPC"] * 3


def test_an_injury_may_name_the_point() -> None:
    injector = Injector()
    injector.arm(Injury("crash", "lane", point="journal."))
    assert passing(injector, "store0/lane", ["index.a", "journal.a", "journal.a"]) == ["", "InjectedDefect", ""]


def test_an_actor_dies_over_a_message_and_at_no_point() -> None:
    injector = Injector()
    injector.arm(Injury("die", "watcher", skip=1))
    assert passing(injector, "store0/watcher", ["a"] * 3) == [""] * 3
    injector.at_message("store0/watcher", 1, "Look")
    with pytest.raises(InjectedDefect):
        injector.at_message("store0/watcher", 1, "Look")
    injector.at_message("store0/watcher", 2, "Look")


def test_what_is_disarmed_strikes_no_more() -> None:
    injector = Injector()
    injector.arm(Injury("crash", "lane"))
    injector.disarm()
    assert passing(injector, "store0/lane", ["a"]) == [""]


def test_a_stall_takes_its_time_and_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    slept: list[float] = []
    monkeypatch.setattr(time, "sleep", slept.append)
    injector = Injector()
    injector.arm(Injury("stall", "lane", seconds=1.2))
    assert passing(injector, "store0/lane", ["a", "a"]) == ["", ""]
    assert slept == [1.2]


def test_the_end_of_an_actor_is_noted_before_its_parent_hears_of_it_and_once() -> None:
    """Else a helper that was started again at once would have begun before it ended."""
    injector = Injector()
    heard: list[list[str]] = []
    over = threading.Event()

    class Ending:
        context = types.SimpleNamespace(name="store0/helpers/indexer", incarnation=1)

        def on_ended(self) -> None: ...

        def run(self) -> None:
            self.on_ended()
            heard.append([str(life["what"]) for life in injector._lives])  # here the parent is told
            over.set()

    threads = threading.active_count()
    injector.launch(Ending())  # type: ignore[arg-type]
    assert over.wait(10)
    for thread in threading.enumerate():
        if thread.name == "store0/helpers/indexer":
            thread.join(10)
    assert threading.active_count() == threads
    assert heard == [["started", "ended"]]
    assert [life["what"] for life in injector.lives()] == ["started", "ended"]


# --- what clients ask -------------------------------------------------------------------------------------


def test_every_tool_but_one_is_asked_for_with_arguments_that_it_takes() -> None:
    """``knowledge_attach_file`` reads from a workspace, and the agents of a run have none."""
    shelf = Shelf("secret-aaaaaaaaaaaa")
    shelf.vault_id, shelf.fingerprint = "11111111-1111-4111-8111-111111111111", "f" * 64
    evidence: JsonObject = {"path": "artifacts/one/note.txt", "sha256": "a" * 64}
    for number in range(20):
        kind = ("page", "claim")[number % 2]
        record = f"{number:08d}-1111-4111-8111-111111111111"
        shelf.learn(Seen(record, 1, "b" * 64, kind, "note" if kind == "page" else "", f"Title {number}"))
        shelf.learn_row(record, number + 1)
        shelf.learn_citation(record, evidence)
        reference: JsonObject = {"provider": "knowledge", "store": shelf.vault_id, "id": record}
        shelf.learn_reference({**reference, "revision": 1, "hash": "b" * 64})
    shelf.retain(evidence)
    script = Script(random.Random(3), shelf)
    asked = set()
    for _ in range(4_000):
        tool, arguments = script.next()
        if is_method(tool):
            parse_provider_call(tool, {**arguments, "audience": {"kind": "owner-private", "agent": "ana"}})
        else:
            parse_arguments(tool, arguments)
        asked.add(tool)
    assert {tool for tool in asked if not is_method(tool)} == set(CATALOGUE) - {"knowledge_attach_file"}
    assert {tool for tool in asked if is_method(tool)} >= {"memory.search", "memory.read", "prompt.build"}


# --- mutants ----------------------------------------------------------------------------------------------


def test_there_are_a_dozen_mutants_and_each_names_judges_that_there_are() -> None:
    assert len(MUTANTS) >= 12
    for mutant in MUTANTS.values():
        assert mutant.judges
        assert set(mutant.judges) <= set(JUDGES)


def test_every_mutant_still_finds_what_it_breaks() -> None:
    """In a process for each, forked from one that has imported the runtime: nothing of a mutant reaches another."""
    code = (
        "import os, sys, actors.runtime, actors.store.operations.table, host_bridge.owner.process, storage.git\n"
        "from stress import mutants\n"
        "failed = []\n"
        "for name in mutants.MUTANTS:\n"
        "    pid = os.fork()\n"
        "    if not pid:\n"
        "        try:\n"
        "            mutants.apply(name)\n"
        "        except BaseException as error:\n"
        "            print(name, repr(error), flush=True)\n"
        "            os._exit(1)\n"
        "        os._exit(0)\n"
        "    failed += [name] if os.waitpid(pid, 0)[1] else []\n"
        "sys.exit(bool(failed))\n"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def test_only_the_judges_that_a_mutant_names_catch_it() -> None:
    assert caught("answer-lost", ["nothing_grows", "one_answer_each"]) == ["one_answer_each"]
    assert caught("answer-lost", ["nothing_grows"]) == []


def test_every_judge_stands_on_the_page_of_guarantees() -> None:
    page = (ROOT / "docs" / "guarantees.md").read_text("utf-8")
    assert [judge for judge in JUDGES if f"`{judge}`" not in page] == []


class _Waits(threading.Event):
    """Says for how long it was waited for, and does not wait."""

    def __init__(self) -> None:
        super().__init__()
        self.waits: list[float] = []

    def wait(self, timeout: float | None = None) -> bool:
        self.waits.append(timeout or 0.0)
        return False


class _Shut:
    """A door that always says the same."""

    name = "socket"
    surplus = 0

    def __init__(self, outcome: Outcome) -> None:
        self._outcome = outcome

    def call(self, call: ToolCall) -> Outcome:
        return self._outcome

    def leave(self) -> None: ...


@pytest.mark.parametrize(
    ("outcome", "waits"),
    [
        (Outcome("ok", "never", {}), []),
        (Outcome("busy", "safe", None, retry_after=0.2), [0.2] * 3),
        (Outcome("restarting", "safe", None, retry_after=60.0), [LONGEST_PAUSE_SECONDS] * 3),
        *[(Outcome(code, "unknown", None), [0.5] * 3) for code in ("lost", "stopping", "quarantined")],
    ],
    ids=lambda value: value.code if isinstance(value, Outcome) else "",
)
def test_a_client_does_not_hammer_a_closed_door(outcome: Outcome, waits: list[float]) -> None:
    stop, caller, shelf = _Waits(), Caller("ana", "store0"), Shelf("secret-aaaaaaaaaaaa")
    Client("ana", Ledger(), seed="1", doors=[(_Shut(outcome), 1)], callers=[(caller, shelf)]).run(stop, 3)
    assert stop.waits == waits


def test_an_editor_lists_a_large_folder_once_in_a_while_and_meets_what_was_changed_last(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(60):
        path = tmp_path / f"{number % 3}" / f"{number}.md"
        path.parent.mkdir(exist_ok=True)
        path.write_text(f'---\nid: "{number}"\n---\n\nText {number}\n')
        os.utime(path, ns=(number, number))
    (tmp_path / ".hidden.md").touch()
    listed: list[str] = []
    original = outsiders._notes

    def notes(folder: str) -> Iterator[tuple[int, Path]]:
        listed.append(folder)
        return original(folder)

    monkeypatch.setattr(outsiders, "_notes", notes)
    now = [100.0]
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    ledger = Ledger()
    editor = outsiders.Editor(random.Random(1), 0.0, "store0", lambda: tmp_path, ledger)
    assert [path.stem for path in editor._seen(tmp_path)] == [str(number) for number in range(60)]
    for _ in range(40):
        with contextlib.suppress(FileNotFoundError):
            editor.act()
    assert listed.count(str(tmp_path)) == 1
    now[0] += outsiders.LISTED_SECONDS
    editor.act()
    assert listed.count(str(tmp_path)) == 2
    assert len({edit.deed for edit in ledger.edits}) > 3


# --- what the command says --------------------------------------------------------------------------------


def test_it_lists_its_mutants_with_who_catches_them(capsys: pytest.CaptureFixture[str]) -> None:
    assert command.main(["--list-mutants"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines] == list(MUTANTS)
    assert all(line.endswith(", ".join(MUTANTS[line.split()[0]].judges)) for line in lines)


def test_its_help_names_every_option(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        command.main(["--help"])
    assert ended.value.code == 0
    said = capsys.readouterr().out
    for option in ("--seed", "--seconds", "--agents", "--spacing", "--calls", "--mutant", "--shrink", "--json"):
        assert option in said


@pytest.mark.parametrize("arguments", [["--mutant", "nobody"], ["--seed", "x"], ["--what"]])
def test_bad_arguments_are_refused(arguments: list[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        command.main(arguments)
    assert ended.value.code == 2


def run(monkeypatch: pytest.MonkeyPatch, *verdicts: Verdict) -> list[Settings]:
    """The command with a run that ends with these verdicts; returns the settings of each run."""
    ran: list[Settings] = []

    def once(settings: Settings, kept: Path | None = None) -> report.Report:
        ran.append(settings)
        return report.of(Result(settings, Ledger(), 1.0, verdicts, 0, []))

    monkeypatch.setattr(command, "_run", once)
    return ran


def test_the_options_are_the_settings_and_the_answer_is_one_object(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    ran = run(monkeypatch, Verdict("a promise", True, "kept"))
    options = "--seed 7 --seconds 5 --agents 3 --conversations 2 --stores 9 --spacing 0 --calls 10 --json".split()
    assert command.main(options) == 0
    assert ran == [Settings(7, 5.0, 3, 2, stores=3, spacing=0.0, calls=10)]
    assert json.loads(capsys.readouterr().out)["seed"] == 7


def test_a_broken_promise_is_an_exit_status_and_the_seed_is_said(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    run(monkeypatch, Verdict("a promise", False, "broken", "none_late"))
    assert command.main(["--seed", "4711"]) == command.EXIT_BROKEN
    assert "4711" in capsys.readouterr().out


def test_a_run_without_a_seed_takes_one_and_says_it(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    ran = run(monkeypatch, Verdict("a promise", True, "kept"))
    command.main([])
    assert str(ran[0].seed) in capsys.readouterr().out


def test_a_failing_run_shrinks_to_the_shortest_that_fails(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def once(settings: Settings, kept: Path | None = None) -> report.Report:
        broken = settings.calls is None or settings.calls >= 100
        return report.of(Result(settings, Ledger(), 1.0, [Verdict("a promise", not broken, "")], 0, []))

    monkeypatch.setattr(command, "_run", once)
    assert command.main(["--seed", "9", "--shrink"]) == command.EXIT_BROKEN
    assert "Shortest run that still fails: --seed 9 --calls 128" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("judge", "status", "said"),
    [
        ("one_answer_each", command.EXIT_BROKEN, "caught by one_answer_each"),
        ("nothing_grows", command.EXIT_UNDETECTED, "NOT CAUGHT"),
    ],
)
def test_a_mutant_counts_as_caught_by_its_own_judges_only(
    judge: str, status: int, said: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    run(monkeypatch, Verdict("a promise", False, "broken", judge))
    assert command.main(["--mutant", "answer-lost"]) == status
    assert f"mutant answer-lost: {said}" in capsys.readouterr().out


@pytest.mark.parametrize("name", MUTANTS)
def test_a_mutant_has_a_short_run_and_only_its_own_judges(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    ran = run(monkeypatch, Verdict("a promise", True, "kept"))
    command.main(["--seed", "1", "--mutant", name])
    (settings,) = ran
    assert settings.mutant == name
    assert settings.seconds == mutants.SECONDS < 60
    assert settings.ordeals == MUTANTS[name].ordeals
    assert {judge.__name__ for judge in command._judges(settings)} == set(MUTANTS[name].judges)


def test_the_run_of_a_mutant_without_one_meets_what_any_does_before_all_judges(monkeypatch: pytest.MonkeyPatch) -> None:
    ran = run(monkeypatch, Verdict("a promise", True, "kept"))
    assert command.main(["--seed", "1", "--mutant", "none"]) == 0
    command.main(["--seed", "1", "--mutant", "deafness-not-noticed"])
    unbroken, broken = ran
    assert dataclasses.replace(broken, mutant=None) == unbroken
    assert command._judges(unbroken) == list(JUDGES.values())


def test_what_is_said_of_a_mutant_s_run_counts_more_than_its_own_size(monkeypatch: pytest.MonkeyPatch) -> None:
    ran = run(monkeypatch, Verdict("a promise", True, "kept"))
    command.main("--seed 1 --mutant index-skips --seconds 90 --agents 2 --stores 5 --spacing 0".split())
    (settings,) = ran
    assert (settings.seconds, settings.agents, settings.stores, settings.spacing) == (90.0, 2, 2, 0.0)
    assert settings.operations is None


def working(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, **settings: object) -> tuple[Soak, list[float]]:
    """A run that has not begun, and how long it has slept."""
    slept: list[float] = []
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))  # a run sets its own
    soak = Soak(tmp_path / "run", dataclasses.replace(SETTINGS, **settings), lambda _: None)  # type: ignore[arg-type]
    monkeypatch.setattr(time, "sleep", slept.append)
    return soak, slept


def test_the_work_ends_after_so_many_calls(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    soak, slept = working(tmp_path, monkeypatch, operations=3)
    caller = Caller("ana", "store0")

    def one_more(seconds: float) -> None:
        slept.append(seconds)
        done = len(soak._ledger.operations)
        soak._ledger.add(Operation(done, "ana", "socket", caller, "x", {}, 0.0, 0.5, None, "ok", "never"))

    monkeypatch.setattr(time, "sleep", one_more)
    assert soak._await([Future()], float("inf")) == []
    assert len(slept) == 3


def test_the_work_ends_as_soon_as_the_judges_of_a_mutant_object(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    soak, slept = working(tmp_path, monkeypatch)
    objected = [Verdict("a promise", False, "broken", "none_late")]
    assert soak._await([Future()], float("inf"), lambda: objected) == objected
    assert len(slept) == 1


def test_whoever_waits_at_a_door_that_is_hung_up_learns_it(tmp_path: Path) -> None:
    ours, theirs = socket.socketpair()
    door = SocketDoor(tmp_path)
    door._connect = lambda: ours
    found: list[str] = []
    thread = threading.Thread(target=lambda: found.append(door.ask("ping", {}).code))
    thread.start()
    assert theirs.recv(100)  # it waits for the answer now
    door.hang_up()
    thread.join(10)
    theirs.close()
    assert found == ["lost"]


def test_progress_without_a_terminal_is_a_line_once_in_a_while(monkeypatch: pytest.MonkeyPatch) -> None:
    said = io.StringIO()
    now = [100.0]
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    say = command._Lines(Console(file=said))
    for second in range(91):
        now[0] = 100.0 + second
        say(f"{second} calls")
    assert said.getvalue().splitlines() == ["30 s: 30 calls", "60 s: 60 calls", "90 s: 90 calls"]


def test_a_report_is_plain_json_with_every_part_named() -> None:
    ledger = Ledger()
    caller = Caller("ana", "store0")
    for number, code in enumerate(("ok", "ok", "busy")):
        ledger.add(Operation(number, "ana", "socket", caller, "knowledge_status", {}, 0.0, 0.5, None, code, "never"))
    ledger.add(Edit("add", "store0", "notes/a.md", None, None, None, 0.0, 1.0))
    ledger.add(Struck("ENOSPC", "lane", 0.5))
    ledger.add(Ordeal("an empty mount", "store0", 0.5, 1.0))
    verdicts = [Verdict("a promise", True, "kept", "none_late")]
    made = report.of(Result(SETTINGS, ledger, 2.0, verdicts, 1, [], success=Success(2, 1, 0, 0)))
    assert json.loads(json.dumps(made)) == {
        "seed": 3,
        "kept": True,
        "seconds": 2.0,
        "operations": 3,
        "operationsPerSecond": 1.5,
        "success": {"calls": 3, "share": 0.6667, "ownFaults": 0, "injured": 0},
        "doors": {"socket": {"calls": 3, "p50Ms": 500.0, "p99Ms": 500.0}},
        "answers": {"ok": 2, "busy": 1},
        "tools": {"knowledge_status": 3},
        "injuries": {"ENOSPC": 1},
        "outages": 1,
        "restarts": {},
        "crashedLaneAnswersAgain": {"calls": 0, "p50Ms": 0.0, "p99Ms": 0.0},
        "ordeals": {"an empty mount": 1},
        "notHere": {},
        "damages": {},
        "edits": {"add": 1},
        "accessChanges": 0,
        "residentMiB": [],
        "verdicts": [{"name": "a promise", "kept": True, "detail": "kept", "judge": "none_late"}],
    }
    assert set(made) == set(get_type_hints(report.Report))


def test_a_store_that_does_not_answer_afterwards_is_a_broken_promise() -> None:
    made = report.of_unsettled(SETTINGS, "the store does not come to rest")
    assert not made["kept"]
    assert made["verdicts"][0]["judge"] == "settled"


# --- the whole of it --------------------------------------------------------------------------------------


def stress(*options: str) -> tuple[int, report.Report]:
    done = subprocess.run(
        [sys.executable, "-m", "stress", "--json", "--agents", "4", "--stores", "2", *options],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.stdout, done.stderr
    found: report.Report = json.loads(done.stdout)
    return done.returncode, found


@pytest.mark.exhaustive  # the gate has a longer one
def test_a_short_run_with_injuries_keeps_every_promise() -> None:
    status, found = stress("--seed", "5", "--seconds", "8", "--spacing", "1")
    assert [verdict for verdict in found["verdicts"] if not verdict["kept"]] == []
    assert status == 0
    assert found["operations"] > 0
    assert {verdict["judge"] for verdict in found["verdicts"]} == set(JUDGES)


@pytest.mark.slow
def test_a_mutant_is_caught_by_name() -> None:
    status, found = stress("--seed", "5", "--seconds", "8", "--spacing", "0", "--mutant", "wrong-bytes")
    assert status == command.EXIT_BROKEN
    assert "revisions_hold_their_bytes" in [v["judge"] for v in found["verdicts"] if not v["kept"]]

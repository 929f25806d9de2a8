"""One owner per state directory: started on demand, kept by its clients, handed over, and never in two places."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

import host_bridge
from host_bridge.owner import client
from host_bridge.owner.client import Connection, Holder, OwnerError, reach, read_holder
from messages.errors import OpenElsewhere
from messages.json_types import JsonObject
from tests.host_bridge.processes import PATIENCE, Home, kill_and_wait, wait_gone


@contextmanager
def connected(home: Home, **hello: str) -> Iterator[Connection]:
    """A client of the running owner, in this process."""
    connection = reach(str(home.state_dir), dict(hello), start=False)
    try:
        yield connection
    finally:
        connection.close()


@contextmanager
def watched(pid: int) -> Iterator[int]:
    descriptor = os.pidfd_open(pid)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def set_idle(home: Home, text: str) -> None:
    (home.state_dir / "knowledge.yaml").write_text(f"runtime: {{ownerIdle: {text}}}\n", encoding="utf-8")


def test_eight_clients_at_once_start_exactly_one_owner(home: Home) -> None:
    clients = [home.start("call", "status", "--json") for _ in range(8)]
    answers: list[JsonObject] = []
    for process in clients:
        out, err = process.communicate(timeout=PATIENCE)
        assert process.returncode == 0, err.decode()
        answers.append(json.loads(out))
    pids = {answer["pid"] for answer in answers}
    assert len(pids) == 1
    assert pids == {home.holder_pid()}
    log = Path(home.directory, "owner.log").read_text(encoding="utf-8")
    assert log.count('"owner up"') == 1


def test_a_detached_owner_has_its_own_session_no_terminal_and_its_state_directory_on_its_command_line(
    home: Home,
) -> None:
    pid = home.call("status")["pid"]
    assert isinstance(pid, int)
    assert os.getsid(pid) != os.getsid(0)
    descriptors = [os.readlink(f"/proc/{pid}/fd/{number}") for number in (0, 1, 2)]
    assert descriptors[0] == "/dev/null"
    assert descriptors[1] == descriptors[2] == os.path.join(home.directory, "owner.log")
    command = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
    assert b"-P" in command
    assert command[command.index(b"--state-dir") + 1] == str(home.state_dir).encode()
    assert os.readlink(f"/proc/{pid}/cwd") == "/"
    parent = int(Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()[1])
    assert parent not in (0, os.getpid())


@pytest.mark.slow
def test_the_log_is_json_lines_without_any_text_of_a_call(home: Home) -> None:
    home.call("status", '{"note": "a private sentence"}')
    done = home.run("call", "status", '{"act": "defect", "note": "a private sentence"}')
    assert done.returncode == 1
    log = Path(home.directory, "owner.log").read_text(encoding="utf-8")
    entries = [json.loads(line) for line in log.splitlines()]
    assert any(entry["event"] == "a call could not be submitted" for entry in entries)
    assert "private" not in log
    assert "secret" not in log


@pytest.mark.slow
def test_an_idle_detached_owner_ends_and_leaves_nothing_behind(home: Home) -> None:
    set_idle(home, "1s")
    pid = home.call("status")["pid"]
    assert isinstance(pid, int)
    socket = read_holder(home.directory)
    assert socket is not None
    assert socket.socket is not None
    with watched(pid) as descriptor:
        wait_gone(descriptor)
    assert not os.path.exists(socket.socket)
    assert read_holder(home.directory) is None


@pytest.mark.slow
def test_a_connected_client_keeps_a_detached_owner_alive(home: Home) -> None:
    set_idle(home, "1s")
    pid = home.call("status")["pid"]
    assert isinstance(pid, int)
    with watched(pid) as descriptor, connected(home) as connection:
        import select

        poller = select.poll()
        poller.register(descriptor, select.POLLIN)
        assert poller.poll(1_500) == [], "it ended under its client"
        assert isinstance(connection.request("owner.status", {}, PATIENCE), dict)
        connection.close()
        assert poller.poll(PATIENCE * 1_000), "it did not end after its client"


def test_a_foreground_owner_takes_over_from_an_idle_detached_one(home: Home) -> None:
    detached = home.call("status")["pid"]
    foreground = home.foreground()
    assert home.call("status")["pid"] == foreground.pid != detached


def test_a_foreground_owner_logs_to_the_file_and_says_in_one_line_that_it_stopped(home: Home) -> None:
    foreground = home.foreground()
    foreground.send_signal(signal.SIGINT)
    _, said = foreground.communicate(timeout=PATIENCE)
    assert said == b"knowledge has stopped (SIGINT).\n"
    assert foreground.returncode == 0
    logged = Path(home.directory, "owner.log").read_text("utf-8")
    assert "owner up" in logged
    assert "owner ends" in logged


@pytest.mark.slow
def test_a_foreground_owner_never_ends_by_idleness(home: Home) -> None:
    set_idle(home, "1s")
    foreground = home.foreground()
    with pytest.raises(subprocess.TimeoutExpired):
        foreground.wait(1.5)


@pytest.mark.slow
def test_a_busy_detached_owner_is_kept_and_named(home: Home) -> None:
    detached = home.call("status")["pid"]
    with connected(home):
        refused = home.run("serve")
    assert refused.returncode == 4
    message = refused.stderr.decode()
    assert str(detached) in message
    assert "open_elsewhere" in message
    assert home.call("status")["pid"] == detached


def test_a_bridge_in_process_beside_connected_clients_is_told_what_it_may_do(home: Home) -> None:
    from host_bridge.owner.lock import take_owner_lock

    home.call("status")
    with connected(home), pytest.raises(OpenElsewhere, match="knowledge serve --stdio") as refused:
        take_owner_lock(home.directory)
    assert "close those clients" in refused.value.message
    assert refused.value.fields["pid"] == home.holder_pid()


@pytest.mark.slow
def test_a_second_foreground_owner_is_refused_and_told_who_holds_the_directory(home: Home) -> None:
    first = home.foreground()
    refused = home.run("serve")
    assert refused.returncode == 4
    assert str(first.pid) in refused.stderr.decode()
    assert "foreground" in refused.stderr.decode()
    assert first.poll() is None


@pytest.mark.slow
def test_a_newer_client_makes_an_idle_detached_owner_hand_over(home: Home) -> None:
    old = json.loads(home.run("call", "status", "--json", env={"FAKE_VERSION": "0.0.9"}).stdout)["pid"]
    with watched(old) as descriptor:
        assert home.call("status")["pid"] != old
        wait_gone(descriptor)
    status = json.loads(home.run("status", "--json").stdout)
    assert status["version"] == host_bridge.__version__


@pytest.mark.slow
def test_a_newer_client_uses_a_busy_older_owner_as_it_is(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    old = home.call("status")["pid"]
    with connected(home):
        monkeypatch.setattr(host_bridge, "__version__", "99.0.0")
        with connected(home) as newer:
            assert newer.hello["pid"] == old
            assert isinstance(newer.request("owner.status", {}, PATIENCE), dict)


@pytest.mark.slow
def test_an_older_client_never_ends_a_newer_owner(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    pid = home.call("status")["pid"]
    monkeypatch.setattr(host_bridge, "__version__", "0.0.1")
    with connected(home) as older:
        assert older.hello["pid"] == pid
        assert older.request("owner.handOver", {"version": "0.0.1", "mode": "detached"}, PATIENCE) == {
            "accepted": False,
            "reason": "not_newer",
            "connectedClients": 0,
        }


@pytest.mark.slow
def test_a_busy_owner_of_another_owner_protocol_is_refused_by_name(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    home.call("status")
    with connected(home):
        monkeypatch.setattr(client, "OWNER_PROTOCOL", "knowledge-owner/2")
        with pytest.raises(OwnerError, match="another owner protocol") as refused, connected(home):
            pass
    assert refused.value.code == "open_elsewhere"


def test_an_owner_killed_while_a_client_waits_gives_the_client_a_typed_answer(home: Home) -> None:
    started = home.pipe("started")
    first = home.call("status")["pid"]
    assert isinstance(first, int)
    hold = json.dumps({"act": "hold", "name": "a", "started": started, "release": home.pipe("never")})
    waiting = home.start("call", "status", hold, "--json")
    assert Path(started).read_text(encoding="utf-8") == "a\n"
    kill_and_wait(first)
    out, err = waiting.communicate(timeout=PATIENCE)
    assert (waiting.returncode, out) == (5, b"")
    error = json.loads(err)["error"]
    assert (error["code"], error["retry"]) == ("restarting", "unknown")
    assert home.call("status")["pid"] != first


@pytest.mark.slow
def test_a_stale_lock_file_and_a_stale_socket_never_stop_the_next_owner(home: Home) -> None:
    pid = home.call("status")["pid"]
    assert isinstance(pid, int)
    holder = read_holder(home.directory)
    assert holder is not None
    assert holder.socket is not None
    kill_and_wait(pid)
    assert os.path.exists(holder.socket)
    assert read_holder(home.directory) is not None
    assert home.call("status")["pid"] != pid


@pytest.mark.slow
def test_an_owner_whose_state_directory_was_removed_ends_and_leaves_the_next_one_alone(home: Home) -> None:
    old = home.call("status")["pid"]
    assert isinstance(old, int)
    with watched(old) as descriptor:
        shutil.rmtree(home.state_dir)
        home.state_dir.mkdir()
        new = home.call("status")["pid"]
        assert new != old
        wait_gone(descriptor)
    assert home.call("status")["pid"] == new


@pytest.mark.slow
def test_a_removed_socket_file_is_made_again_while_its_owner_lives(home: Home) -> None:
    pid = home.call("status")["pid"]
    holder = read_holder(home.directory)
    assert holder is not None
    assert holder.socket is not None
    os.unlink(holder.socket)
    assert home.call("status")["pid"] == pid


@pytest.mark.slow
@pytest.mark.parametrize(("mark", "code"), [("no-start", "internal"), ("explode", "internal")])
def test_why_an_owner_cannot_start_reaches_the_client_and_no_exception_text_does(
    home: Home, mark: str, code: str
) -> None:
    (home.state_dir / mark).write_text("", encoding="utf-8")
    done = home.run("call", "status", "--json")
    assert done.returncode == 1
    assert json.loads(done.stderr)["error"]["code"] == code
    assert b"secret" not in done.stderr
    log = Path(home.directory, "owner.log").read_text(encoding="utf-8")
    assert "the owner could not start" in log
    assert "secret" not in log


@pytest.mark.slow
def test_a_broken_configuration_is_refused_by_name_and_line_at_the_client(home: Home) -> None:
    (home.state_dir / "knowledge.yaml").write_text("runtime:\n  ownerIdel: 1s\n", encoding="utf-8")
    done = home.run("call", "status", "--json")
    assert done.returncode == 3
    error = json.loads(done.stderr)["error"]
    assert (error["code"], error["field"], error["line"]) == ("invalid_argument", "runtime.ownerIdel", 2)


@pytest.mark.slow
def test_a_state_directory_that_cannot_be_made_is_a_typed_refusal(home: Home) -> None:
    (home.base / "file").write_text("", encoding="utf-8")
    (home.base / "half").mkdir()
    (home.base / "half" / "knowledge").write_text("", encoding="utf-8")
    for place in ("/dev/null", str(home.base / "file"), str(home.base / "file" / "state"), str(home.base / "half")):
        for command in (["call", "status"], ["status"], ["stop"], ["serve"], ["mcp"]):
            done = home.run(*command, "--state-dir", place)
            assert (done.returncode, done.stdout) == (2, b""), (command, place)
            assert done.stderr.count(b"\n") == 1
            assert place.encode() in done.stderr


def test_a_program_with_its_own_bridge_holds_the_directory_and_is_named(home: Home) -> None:
    from host_bridge.owner.lock import take_owner_lock

    lock = take_owner_lock(home.directory)
    done = home.run("call", "status", "--json")
    status = json.loads(home.run("status", "--json").stdout)
    stop = home.run("stop", "--json")
    lock.release()
    assert done.returncode == stop.returncode == 4
    for failed in (done, stop):
        error = json.loads(failed.stderr)["error"]
        assert (error["code"], error["pid"]) == ("open_elsewhere", os.getpid())
        assert "KnowledgeBridge in its own process" in error["message"]
    assert (status["running"], status["inProcess"], status["pid"]) == (True, True, os.getpid())


@pytest.mark.parametrize("pid", [1, -1, 0, 10**20])
def test_the_entry_of_a_killed_program_never_blocks_whatever_became_of_its_process_id(home: Home, pid: int) -> None:
    os.makedirs(home.directory)
    entry = {"pid": pid, "version": "0.1.0", "socket": None}
    Path(home.directory, "owner.lock").write_text(json.dumps(entry) + "\n", encoding="utf-8")
    assert json.loads(home.run("status", "--json").stdout)["running"] is False
    assert json.loads(home.run("stop", "--json").stdout)["stopped"] is False
    assert home.call("status")["agent"] == "main"


def test_an_owner_whose_lock_file_was_removed_or_replaced_stays_the_only_one_and_puts_it_back(home: Home) -> None:
    pid = home.call("status")["pid"]
    path = Path(home.directory, "owner.lock")
    for entry in (b"", b'{"pid": 1, "version": "9", "socket": null}\n'):
        path.unlink()
        if entry:
            path.write_bytes(entry)
        shown = json.loads(home.run("status", "--json").stdout)
        assert (shown["running"], shown.get("pid")) == (True, pid)
        if entry:
            path.unlink()
            path.write_bytes(entry)
        clients = [home.start("call", "status", "--json") for _ in range(2)]
        for process in clients:
            out, err = process.communicate(timeout=PATIENCE)
            assert process.returncode == 0, err.decode()
            assert json.loads(out)["pid"] == pid
        assert home.holder_pid() == pid
    log = Path(home.directory, "owner.log").read_text(encoding="utf-8")
    assert log.count('"owner up"') == 1


@pytest.mark.slow
def test_the_owner_of_a_replaced_directory_has_closed_before_the_next_one_serves(home: Home) -> None:
    """Clients that come at once find the old owner's socket: it looks, sees that it is none any more, and ends."""
    old = home.call("status")["pid"]
    assert isinstance(old, int)
    with watched(old) as descriptor:
        os.rename(home.directory, home.directory + ".before")
        new = home.call("status")["pid"]
        assert new != old
        import select

        poller = select.poll()
        poller.register(descriptor, select.POLLIN)
        poller.poll(PATIENCE * 1000)
    before = Path(home.directory + ".before", "owner.log").read_text(encoding="utf-8")
    assert "the state directory is gone" in before


@pytest.mark.slow
def test_stop_lets_open_calls_finish_and_frees_the_directory(home: Home) -> None:
    started, release = home.pipe("started"), home.pipe("release")
    pid = home.call("status")["pid"]
    hold = json.dumps({"act": "hold", "name": "a", "started": started, "release": release})
    waiting = home.start("call", "status", hold, "--json")
    assert Path(started).read_text(encoding="utf-8") == "a\n"
    stopping = home.start("stop", "--json")
    Path(release).write_text("", encoding="utf-8")
    out, err = waiting.communicate(timeout=PATIENCE)
    assert (json.loads(out), waiting.returncode) == ({"held": "a"}, 0), err.decode()
    out, _ = stopping.communicate(timeout=PATIENCE)
    assert json.loads(out) == {"stateDir": str(home.state_dir), "stopped": True, "pid": pid}
    assert home.holder_pid() is None


def test_stopping_nobody_is_no_failure_and_creates_nothing(home: Home) -> None:
    done = home.run("stop", "--json")
    assert (done.returncode, json.loads(done.stdout)["stopped"]) == (0, False)
    assert list(home.state_dir.iterdir()) == []


@pytest.mark.slow
def test_a_stopped_process_that_answers_nobody_is_ended_by_signal(home: Home) -> None:
    foreground = home.foreground()
    foreground.send_signal(signal.SIGSTOP)
    stopping = home.start("stop", "--json")
    os.waitid(os.P_PID, foreground.pid, os.WSTOPPED | os.WNOWAIT)
    assert stopping.poll() is None
    foreground.send_signal(signal.SIGCONT)
    out, err = stopping.communicate(timeout=PATIENCE)
    assert json.loads(out)["stopped"] is True, err.decode()
    foreground.wait(PATIENCE)


@pytest.mark.parametrize(
    "line",
    [b"", b"{", b"null\n", b'{"pid": "1", "version": "1", "socket": null}\n', b'{"pid": 1, "version": 1}\n', b"\xff\n"],
)
def test_a_half_written_lock_file_names_no_holder(tmp_path: Path, line: bytes) -> None:
    (tmp_path / "owner.lock").write_bytes(line)
    assert read_holder(str(tmp_path)) is None


def test_only_the_first_line_of_the_lock_file_counts(tmp_path: Path) -> None:
    (tmp_path / "owner.lock").write_bytes(b'{"pid": 7, "version": "1", "socket": "/s"}\nleftover}\n')
    holder = read_holder(str(tmp_path))
    assert isinstance(holder, Holder)
    assert (holder.pid, holder.socket) == (7, "/s")

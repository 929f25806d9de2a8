"""The commands a person or a script types: what they print, and with which status they end."""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
from collections.abc import Iterator

import pytest

import host_bridge
from host_bridge.cli import exits
from host_bridge.cli import help as pages
from host_bridge.cli.exits import status_of
from host_bridge.cli.manual import PAGES
from host_bridge.cli.options import UsageError, parse
from host_bridge.owner.client import REQUEST_MAX_BYTES, OwnerError
from messages.errors import all_error_classes
from tests.host_bridge.processes import PATIENCE, Home, Typed

_EXAMPLE = re.compile(r"^ {2}((?:knowledge (?:call|status)|echo .*\| knowledge).*(?:\n {6}.*)?)", re.MULTILINE)
SESSION = "3f0c6a5e-8c1d-4d4a-9a53-1f0f3a2b4c5d"


@pytest.fixture(scope="module")
def warm() -> Iterator[Home]:
    """A home whose owner is shared by the tests of this module."""
    place = Home(fake=True)
    (place.state_dir / "knowledge.yaml").write_text("agents: {list: [{id: ana}, {id: ben}]}\n", encoding="utf-8")
    place.call("status")
    yield place
    place.close()


def test_call_prints_the_answer_indented_for_people_and_on_one_line_for_programs(warm: Home) -> None:
    people = warm.run("call", "knowledge_status", '{"note": "żółw 🐢"}')
    programs = warm.run("call", "status", '{"note": "żółw 🐢"}', "--json")
    assert people.stdout.count(b"\n") > 3
    assert programs.stdout.count(b"\n") == 1
    for done in (people, programs):
        assert (done.returncode, done.stderr) == (0, b"")
        assert json.loads(done.stdout)["arguments"] == {"note": "żółw 🐢"}
        assert "żółw 🐢".encode() in done.stdout


def test_call_reads_its_arguments_from_stdin_and_works_in_any_locale(warm: Home) -> None:
    done = warm.run(
        "call", "status", "-", "--json", stdin='{"note": "漢字"}'.encode(), env={"LC_ALL": "C", "PYTHONUTF8": "0"}
    )
    assert json.loads(done.stdout)["arguments"] == {"note": "漢字"}


def test_call_acts_as_the_first_configured_agent_unless_one_is_named(warm: Home) -> None:
    assert warm.call("status")["agent"] == "ana"
    assert warm.call("status", "--agent", "ben")["agent"] == "ben"
    assert warm.call("status", "--agent=ben")["agent"] == "ben"


def test_call_acts_as_a_conversation_when_both_its_names_are_given(warm: Home) -> None:
    assert warm.call("status")["session"] is None
    assert warm.call("status", "--conversation", "group:1", "--session", SESSION)["session"] == SESSION


def test_a_conversation_that_is_no_uuid_is_refused_by_field(warm: Home) -> None:
    done = warm.run("call", "status", "--conversation", "group:1", "--session", "monday", "--json")
    assert done.returncode == exits.REFUSED
    error = json.loads(done.stderr)["error"]
    assert (error["code"], error["field"]) == ("invalid_argument", "audience.sessionId")


def test_call_passes_its_deadline_on(warm: Home) -> None:
    given = warm.call("status", "--deadline-ms", "5000")["deadlineMs"]
    assert isinstance(given, int)
    assert 0 < given <= 5_000
    done = warm.run("call", "status", '{"act": "hold"}', "--deadline-ms", "50", "--json")
    assert done.returncode == exits.UNAVAILABLE
    assert json.loads(done.stderr)["error"]["code"] == "deadline"


@pytest.mark.parametrize(
    ("act", "status", "code"),
    [("refuse", exits.REFUSED, "stale_fence"), ("defect", exits.DEFECT, "internal"), ("revoked", 3, "denied")],
)
def test_each_kind_of_failure_has_its_exit_status_and_leaves_stdout_empty(
    warm: Home, act: str, status: int, code: str
) -> None:
    arguments = json.dumps({"act": act})
    people = warm.run("call", "status", arguments)
    programs = warm.run("call", "status", arguments, "--json")
    for done in (people, programs):
        assert (done.returncode, done.stdout) == (status, b"")
        assert b"secret" not in done.stderr
        assert b"Traceback" not in done.stderr
    assert json.loads(programs.stderr)["error"]["code"] == code
    assert f"code: {code}" in people.stderr.decode()


@pytest.mark.parametrize("text", ['{"n": NaN}', '{"n": [1e999]}', '{"n": -Infinity}', '{"n": ' + "9" * 5_000 + "}"])
def test_a_number_that_json_does_not_have_is_refused_before_anything_is_asked(home: Home, text: str) -> None:
    for given in ([text], ["-"]):
        done = home.run("call", "status", *given, "--deadline-ms", "600000", stdin=text.encode())
        assert (done.returncode, done.stdout) == (exits.USAGE, b"")
        assert done.stderr.count(b"\n") == 1
        assert b"not JSON" in done.stderr
    assert list(home.state_dir.iterdir()) == []


def test_a_name_that_stands_twice_in_the_arguments_is_refused_before_anything_is_asked(home: Home) -> None:
    done = home.run("call", "record", '{"id": "one", "id": "two"}', "--deadline-ms", "600000")
    assert (done.returncode, done.stdout) == (exits.USAGE, b"")
    assert b"a name stands twice in one object" in done.stderr
    assert list(home.state_dir.iterdir()) == []


@pytest.mark.parametrize(
    ("size", "status"), [(REQUEST_MAX_BYTES - 50, exits.REFUSED), (REQUEST_MAX_BYTES + 50, exits.USAGE)]
)
def test_arguments_beyond_a_requests_size_are_refused_at_once(warm: Home, size: int, status: int) -> None:
    note = b'{"note": "%s"}' % (b"x" * size)
    done = warm.run("call", "status", "-", "--deadline-ms", "600000", "--json", stdin=note)
    assert (done.returncode, done.stdout) == (status, b"")
    if status == exits.REFUSED:
        error = json.loads(done.stderr)["error"]
        assert (error["code"], error["limit"]) == ("limit_exceeded", REQUEST_MAX_BYTES)


@pytest.mark.parametrize("depth", [100, 900, 100_000])
def test_arguments_nested_too_deep_are_refused_at_once(warm: Home, depth: int) -> None:
    deep = '{"a":' * depth + "1" + "}" * depth
    done = warm.run("call", "status", "-", "--deadline-ms", "600000", "--json", stdin=deep.encode())
    assert done.returncode in (exits.USAGE, exits.REFUSED)
    assert done.stdout == b""


def test_a_failure_is_a_sentence_its_code_and_its_field_and_has_every_fact_for_programs(warm: Home) -> None:
    people = warm.run("call", "status", '{"act": "refuse"}').stderr.decode()
    assert people == "knowledge: The revision is not current.\n  code: stale_fence\n  field: expectedRevision\n"
    programs = json.loads(warm.run("call", "status", '{"act": "refuse"}', "--json").stderr)["error"]
    assert (programs["current"], programs["retry"]) == (4, "never")


def test_every_error_code_has_an_exit_status_by_its_retry() -> None:
    for error in all_error_classes():
        found = status_of(OwnerError(error.code, "", error.default_retry))
        expected = {"safe": exits.UNAVAILABLE, "unknown": exits.UNKNOWN, "never": exits.REFUSED}[error.default_retry]
        assert found == (exits.DEFECT if error.code == "internal" else expected)


@pytest.mark.parametrize(
    "words",
    [
        ["call"],
        ["call", "status", "{"],
        ["call", "status", "[]"],
        ["call", "status", "5"],
        ["call", "status", "[" * 100_000],
        ["call", "status", "{}", "more"],
        ["call", "status", "--deadline-ms", "0"],
        ["call", "status", "--deadline-ms", "600001"],
        ["call", "status", "--deadline-ms", "soon"],
        ["call", "status", "--deadline-ms"],
        ["call", "status", "--conversation", "a"],
        ["call", "status", "--session", SESSION],
        ["call", "status", "--jsno"],
        ["call", "status", "--json", "--json"],
        ["call", "status", "--json=yes"],
        ["mcp", "--profile", "everything"],
        ["mcp", "word"],
        ["serve", "--detached"],
        ["serve", "--port", "80"],
        ["status", "word"],
        ["nothing"],
        ["help", "nothing"],
    ],
)
def test_a_command_line_that_cannot_be_understood_is_status_2_with_one_line(typed: Typed, words: list[str]) -> None:
    done = typed(*words)
    assert (done.returncode, done.stdout) == (exits.USAGE, b"")
    assert done.stderr.count(b"\n") == 1
    assert done.stderr.startswith(b"knowledge")


def test_an_unknown_option_is_answered_with_the_one_that_was_meant() -> None:
    with pytest.raises(UsageError, match="did you mean --state-dir"):
        parse(["--stat-dir", "x"], {"--state-dir": True})


@pytest.mark.parametrize(
    ("words", "meant"),
    [
        (["inspekt"], "'inspekt' (did you mean inspect?). Try: knowledge --help"),
        (["inspect", "histroy"], "'histroy' (did you mean history?). Try: knowledge help inspect"),
        (["conversation", "grnt"], "'grnt' here (did you mean grant?); it is list, grant, revoke, export or erase."),
        (["audience", "mnit"], "(did you mean mint?); it is mint, revoke or list. Try: knowledge help audience"),
        (["maintenance", "rnu"], "(did you mean run?); it is run or status. Try: knowledge help maintenance"),
        (["store", "relocat"], "(did you mean relocate?)"),
        (["stores", "shwo"], "(did you mean show?)"),
        (["store", "list"], "there is no 'list' here; that is `knowledge stores list`, and here it is"),
        (["stores", "adopt"], "there is no 'adopt' here; that is `knowledge store adopt`, and here it is"),
        (["stores", "--json", "list"], "say what to do first: list, show,"),
        (["conversation", "grant", "chat:1", "write"], "the access is read or read-save, not 'write'. Try"),
        (["status", "--jsno"], "--jsno here (did you mean --json?). Try: knowledge help status"),
    ],
)
def test_a_word_that_was_mistyped_is_answered_with_the_one_that_was_meant(
    warm: Home, words: list[str], meant: str
) -> None:
    assert meant in warm.run(*words).stderr.decode()


def test_a_view_that_is_like_none_is_answered_with_all(warm: Home) -> None:
    said = warm.run("inspect", "xyzzy").stderr.decode()
    assert "there is no view 'xyzzy'; there are recent, records, " in said


def test_no_message_names_an_option_that_people_have_no_use_for(warm: Home) -> None:
    for word in ("--port", "--report", "--detach"):
        said = warm.run("serve", word).stderr.decode().replace(f"there is no option {word} here", "")
        assert "--stdio" in said or "Try" in said
        assert "--detached" not in said
        assert "--report" not in said


def test_words_after_two_dashes_are_never_options() -> None:
    options = parse(["--json", "--", "--state-dir"], {"--json": False, "--state-dir": True}, words=1)
    assert (options.has("--json"), options.words) == (True, ["--state-dir"])


def test_status_of_nobody_starts_and_creates_nothing(home: Home) -> None:
    done = home.run("status", "--json")
    assert done.returncode == 0
    assert json.loads(done.stdout) == {"stateDir": str(home.state_dir), "running": False}
    assert b"No owner is running" in home.run("status").stdout
    assert list(home.state_dir.iterdir()) == []


def test_status_of_nobody_reads_the_configuration_all_the_same(home: Home) -> None:
    (home.state_dir / "knowledge.yaml").write_text("agents: [oops\n")
    assert b"Needs a look: knowledge.yaml line 2: " in home.run("status").stdout
    assert "knowledge.yaml" in json.loads(home.run("status", "--json").stdout)["configurationProblem"]
    assert not (home.state_dir / "knowledge").exists(), "an owner was started"
    (home.state_dir / "knowledge.yaml").write_text("agents: {list: [{id: main}]}\n")
    assert b"Needs a look" not in home.run("status").stdout


def test_status_shows_what_the_owner_publishes(warm: Home) -> None:
    status = json.loads(warm.run("status", "--json").stdout)
    assert status["running"] is True
    assert status["detached"] is True
    assert status["version"] == host_bridge.__version__
    assert status["health"]["state"] == "up"
    people = warm.run("status").stdout.decode()
    assert str(status["pid"]) in people
    assert "All well." in people
    assert "state: up" not in people
    assert "state: up" in warm.run("status", "--verbose").stdout.decode()


def test_live_status_starts_an_owner(home: Home) -> None:
    status = json.loads(home.run("status", "--live", "--json").stdout)
    assert status["running"] is True
    assert status["pid"] == home.holder_pid()


def test_version_is_the_packages(warm: Home) -> None:
    done = warm.run("--version")
    assert done.stdout.decode() == f"knowledge {host_bridge.__version__}\n"


def test_help_without_a_command_is_the_overview_and_names_every_command(warm: Home) -> None:
    overview = warm.run("--help").stdout
    assert overview == warm.run().stdout == warm.run("help").stdout
    for name in PAGES:
        assert f"knowledge {name}".encode() in overview
    assert all(len(line) <= 120 for line in overview.decode().splitlines())


@pytest.mark.parametrize("name", sorted(PAGES))
def test_help_of_a_command_teaches_options_examples_and_exit_statuses(typed: Typed, name: str) -> None:
    page = typed("help", name).stdout.decode()
    assert page == typed(name, "--help").stdout.decode()
    assert "Example" in page
    assert "--state-dir" in page
    for status in (0, 1, 2, 130):
        assert re.search(rf"^  {status} +\w", page, re.MULTILINE), page


def test_help_of_a_command_lists_no_exit_status_that_it_cannot_end_with(typed: Typed) -> None:
    def statuses(name: str) -> list[int]:
        return [int(found) for found in re.findall(r"^  (\d+) +\w", typed("help", name).stdout.decode(), re.MULTILINE)]

    assert statuses("demo") == [0, 1, 2, 130]
    assert statuses("skills") == [0, 1, 2, 3, 130]
    assert statuses("call") == [0, 1, 2, 3, 4, 5, 130]
    for name in PAGES:
        assert (6 in statuses(name)) == (name in ("backup", "doctor", "repair")), name


@pytest.mark.parametrize(("name", "other"), [("adopt", "store adopt"), ("store", "stores"), ("stores", "store")])
def test_help_says_which_of_two_commands_of_like_names_is_which(typed: Typed, name: str, other: str) -> None:
    assert f"`knowledge {other}`" in typed("help", name).stdout.decode()


def test_every_example_in_the_help_is_understood(warm: Home) -> None:
    """They are typed as they stand, against the fake runtime; what they mean is tried against the real one."""
    ran = 0
    for page in (pages.OVERVIEW, *PAGES.values()):
        for example in _EXAMPLE.findall(page):
            if "TOOL" in example or "  " in example.split("'")[0].strip():
                continue
            line = example.replace("knowledge ", shlex.join(warm.command()) + " ", 1)
            if example.startswith("echo"):
                before, _, after = example.partition("| knowledge ")
                line = f"{before} | {shlex.join(warm.command())} {after}"
            if "--stdio" in line:
                continue
            done = subprocess.run(["sh", "-c", line], capture_output=True, env=warm.env, timeout=PATIENCE, check=False)
            assert done.returncode == 0, (example, done.stderr.decode())
            ran += 1
    assert ran >= 5


def test_a_reader_that_closes_early_is_no_error(warm: Home) -> None:
    reader, writer = os.pipe()
    os.close(reader)
    done = subprocess.run(
        warm.command("call", "status"),
        stdout=writer,
        stderr=subprocess.PIPE,
        env=warm.env,
        check=False,
        timeout=PATIENCE,
    )
    os.close(writer)
    assert (done.returncode, done.stderr) == (0, b"")

"""``knowledge inspect``, from the command line to the store: what is sent, what comes back, and how it is told."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest

from host_bridge.cli import exits, output
from host_bridge.cli.inspect import VIEWS
from host_bridge.cli.inspect_words import in_words
from messages.json_types import JsonObject, JsonValue
from messages.operator import OPERATOR_METHODS
from tests.host_bridge.processes import Home
from tests.kit.store import only_store, page_file, remembering, request_id, stores, write_note


@pytest.fixture
def real() -> Iterator[Home]:
    """A state directory whose owners run the real runtime."""
    place = Home(fake=False)
    yield place
    place.close()


@pytest.fixture(scope="module")
def fake() -> Iterator[Home]:
    """Doors without a runtime: what is asked comes back."""
    place = Home(fake=True)
    yield place
    place.close()


def sent(home: Home, *words: str) -> tuple[JsonValue, JsonObject]:
    """The method that was asked, and those of its arguments that are not their default."""
    done = home.run("inspect", *words, "--json")
    assert done.returncode == 0, done.stderr.decode()
    answer = json.loads(done.stdout)
    model, _ = OPERATOR_METHODS[answer["method"]]
    default = {field.alias: field.default for field in model.model_fields.values()}
    return answer["method"], {name: value for name, value in answer["request"].items() if value != default[name]}


def listed(value: JsonValue) -> list[JsonObject]:
    assert isinstance(value, list)
    return [item for item in value if isinstance(item, dict)]


def test_every_view_asks_a_method_that_needs_the_scope_to_read() -> None:
    for name, view in VIEWS.items():
        request, scope = OPERATOR_METHODS[view.method]
        assert scope == "operator.read", name
        known = {field.alias for field in request.model_fields.values()}
        assert view.word in known | {""}


def test_the_command_line_becomes_the_arguments_of_the_method(fake: Home) -> None:
    method, request = sent(
        fake, "records", "--kind", "claim", "--tag=x", "--since", "2026-01", "--time-field", "due", "--limit", "5",
        "--descending", "--order", "updated", "--lifecycle", "expired",
    )  # fmt: skip
    assert method == "operator.records"
    assert request == {
        "kind": "claim", "tag": "x", "since": "2026-01", "timeField": "due", "limit": 5, "descending": True,
        "order": "updated", "lifecycle": "expired",
    }  # fmt: skip
    assert sent(fake, "record", "abc", "--max-chars", "2000", "--path", "a.md") == (
        "operator.record", {"id": "abc", "maxChars": 2000, "path": "a.md"},
    )  # fmt: skip
    assert sent(fake, "history") == ("operator.history", {})
    assert sent(fake, "history", "abc") == ("operator.history", {"id": "abc"})


@pytest.mark.parametrize(
    "words",
    [[], ["nothing"], ["record"], ["search"], ["recent", "word"], ["recent", "--limit", "many"], ["record", "a", "b"],
     ["activity", "--offset", "1"], ["recent", "--descending"]],
)  # fmt: skip
def test_a_command_that_is_not_understood_asks_nobody(fake: Home, words: list[str]) -> None:
    done = fake.run("inspect", *words)
    assert (done.returncode, done.stdout) == (exits.USAGE, b"")
    assert done.stderr.count(b"\n") == 1


def test_a_store_is_looked_into_and_none_is_created(real: Home) -> None:
    empty = real.run("inspect", "recent", "--json")
    assert json.loads(empty.stderr)["error"]["code"] == "not_found"
    assert stores(real.state_dir) == []
    saved: JsonObject = {**remembering("The bell rang."), "requestId": request_id(1)}
    real.call("remember", json.dumps(saved))
    note = write_note(only_store(real.state_dir).vault / "private", "plain.md", "no envelope\n")
    answer = json.loads(real.run("inspect", "search", "bell", "--json").stdout)
    [hit] = listed(answer["hits"])
    record = json.loads(real.run("inspect", "record", str(hit["id"]), "--json").stdout)["record"]
    assert record["evidence"][0]["verified"] is True
    told = real.run("inspect", "record", str(hit["id"])).stdout.decode()
    assert told.endswith("\n\nThe bell rang.\n")
    assert "(holds)" in told
    assert b"The bell rang." in real.run("inspect", "recent").stdout
    assert note.name in real.run("inspect", "activity").stdout.decode()
    missing = real.run("inspect", "record", "nope", "--json")
    assert (json.loads(missing.stdout)["state"], missing.returncode) == ("missing", exits.REFUSED)
    refused = real.run("inspect", "records", "--lifecycle", "gone")
    assert refused.returncode == exits.USAGE or b"lifecycle" in refused.stderr
    assert refused.stdout == b""


def test_words_say_how_to_go_on_and_what_is_not_covered() -> None:
    card: JsonObject = {"id": "c", "kind": "claim", "claimKind": "fact", "title": "So.", "text": "So it is.",
                        "current": False, "lifecycle": "active", "expired": True,
                        "updatedAt": "2026-10-01T00"}  # fmt: skip
    answer: JsonObject = {"total": 3, "records": [card], "nextOffset": 1, "coverage": {"broken": 2},
                          "refusal": {"message": "An edit is not finished."}}  # fmt: skip
    assert in_words("records", answer).splitlines() == [
        "2026-10-01  claim fact  So. [expired]",
        "            So it is.",
        "            c",
        "The store is not up to date: An edit is not finished.",
        "More of 3: add --offset 1",
        "Not covered: 2 broken (files; see knowledge inspect diagnostics)",
    ]
    assert in_words("records", {"total": 0, "records": [], "nextOffset": None}) == "Nothing."
    unavailable: JsonObject = {"total": None, "hits": [], "index": {"reason": "It is being rebuilt."}}
    assert "The search was not answered: It is being rebuilt." in in_words("search", unavailable)


def test_control_characters_of_a_record_never_reach_the_terminal() -> None:
    record: JsonObject = {"id": "a", "title": "T\x1b[2J", "body": "one\x1b]0;x\x07\n\ttwo\r\n"}
    told = in_words("record", {"record": record, "state": "found"})
    assert "\x1b" not in told
    assert "\x07" not in told
    assert told.endswith("one?]0;x?\n\ttwo")


EVIL: str = "\x1b[2J\x07\x9b31m\u202e\u2028\x7f"
KEPT: str = "two words, full width\u3000space, \U0001f469\u200d\U0001f4bb, no\u00a0break, a\u00adhyphen"


def everywhere(value: JsonValue) -> JsonValue:
    """The answer with a line break and what a terminal obeys in every text and every name of a field of a record."""
    if isinstance(value, str):
        return f"{value}\n{EVIL}"
    if isinstance(value, list):
        return [everywhere(item) for item in value]
    return {name: everywhere(member) for name, member in value.items()} if isinstance(value, dict) else value


def obeyed(text: str) -> set[str]:
    return {one for one in text if one in EVIL and not one.isalnum() and one not in "[ "}


def test_no_text_of_an_answer_moves_a_terminal_or_begins_a_line_of_its_own() -> None:
    card: JsonObject = {"id": "a", "kind": "page", "type": "t", "title": "T", "current": False, "lifecycle": "x",
                        "direction": "links", "date": "d", "snippet": "s", "from": {"title": "f"},
                        "to": {"id": "t"}}  # fmt: skip
    record: JsonObject = {"id": "a", "fields": {EVIL: {EVIL: ["v"]}}, "path": "p", "aliases": ["l"], "body": "b",
                          "evidence": [{"path": "p", "verified": False, "problem": "q"}]}  # fmt: skip
    row: JsonObject = {"sequence": 1, "at": "a", "operation": "o", "actor": "w", "path": "p", "acceptedAt": "a",
                       "records": ["r"], "state": "s", "tag": "t", "kind": "k", "name": "n", "description": "d",
                       "message": "m", "code": "c", "fields": {EVIL: {}}}  # fmt: skip
    shown: dict[str, JsonObject] = {
        "recent": {"records": [card], "coverage": {"broken": 1}, "refusal": {"message": "m"}, "total": None,
                   "index": {"reason": "r"}},
        "record": {"record": record, "state": "found"},
        "history": {"rows": [row]},
        "activity": {"rows": [row], "git": {"state": "s", "message": "m"}, "diagnostics": {"findings": [row]}},
        "tags": {"tags": [row]},
        "vocabulary": {"types": [row], "issues": [row]},
        "diagnostics": {"findings": [row], "total": 1},
    }  # fmt: skip
    assert shown.keys() | {"records", "search", "lookup", "connections", "timeline"} == VIEWS.keys()
    shown["files"] = {"record": None, "files": ["f"]}
    for view, answer in shown.items():
        name = "record" if view == "files" else view
        hostile = everywhere(answer)
        assert isinstance(hostile, dict)
        told = in_words(name, hostile)
        assert not obeyed(told), view
        more = 2 if view == "record" else 0  # of its text, whose lines are its own
        assert len(told.split("\n")) <= len(in_words(name, answer).split("\n")) + more, view


def test_json_is_the_same_value_and_holds_nothing_that_a_terminal_obeys() -> None:
    value: JsonObject = {f"k{EVIL}": [EVIL, KEPT, {"n": None}]}
    for compact in (True, False):
        written = output.as_json(value, compact=compact)
        assert json.loads(written) == value
        assert not obeyed(written)
        assert KEPT in written


def test_what_a_terminal_only_shows_is_shown() -> None:
    assert KEPT in in_words("record", {"record": {"id": "a", "body": KEPT}, "state": "found"})


def test_names_of_files_and_fields_of_a_vault_never_move_the_terminal(real: Home) -> None:
    real.call("status")
    vault = only_store(real.state_dir).vault / "private"
    evil = "\x1b[2J\x07\x9b31m\u202e"
    note = page_file("evil", f"E{evil}", type=f"t{evil}", fields={f"k{evil}": f"v{evil}"}, aliases=[f"a{evil}"])
    write_note(vault, f"n{evil}\nAll well.md", f"{note}{evil}\n")
    write_note(vault, f"b{evil}.md", "no envelope\n")
    for words in (["inspect", "record", "evil"], ["inspect", "recent", "--lifecycle", "all"], ["inspect", "history"],
                  ["inspect", "activity"], ["inspect", "diagnostics"], ["status"], ["status", "--verbose"],
                  ["call", "record", '{"id":"evil"}'], ["doctor"], ["inspect", "vocabulary"]):  # fmt: skip
        done = real.run(*words)
        assert not obeyed(done.stdout.decode()), words
        assert not obeyed(done.stderr.decode()), words
        assert not any(line.startswith("All well.md") for line in done.stdout.decode().splitlines()), words


def test_an_id_that_several_files_bear_is_told_with_their_paths() -> None:
    answer: JsonObject = {"record": None, "state": "ambiguous", "files": ["a.md", "b.md"]}
    assert in_words("record", answer).splitlines()[1:] == ["  a.md", "  b.md"]
    assert in_words("record", {"record": None, "state": "missing", "files": []}) == "No record has this id."

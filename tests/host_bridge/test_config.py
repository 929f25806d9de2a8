"""The configuration file (decisions.md section 1)."""

from __future__ import annotations

import json
import os
import time
from datetime import timedelta
from pathlib import Path

import pytest
from pydantic import BaseModel

from host_bridge.config import (
    CONFIGURATION_MAX_BYTES,
    Configuration,
    ConfigurationFile,
    load_configuration,
    parse_configuration,
)
from messages.errors import InvalidArgument, LimitExceeded, StorageError

EVERYTHING = """\
writesEnabled: false
operatorRead: false
workspace: /srv/work
agents:
  defaults: {decisionModel: rerank/gte}
  list: [{id: main}, {id: quiet, decisionModel: ""}, {id: other, decisionModel: rerank/x}]
stores:
  personal: {label: Personal, agents: [main, other]}
  unused: {agents: []}
operators: [{id: ada, scopes: [operator.read, operator.admin], agents: [main]}]
gateway: {shared: true}
pageBudgets: {hubPercentile: 95}
recallGate: {mode: live, highThreshold: 0.5, mediumThreshold: 0.25}
maintenance: {enabled: false, every: 12h, at: 03:30}
models: {providers: {rerank: {baseUrl: "http://127.0.0.1:8080", models: [{id: gte, name: GTE}], apiKeyEnv: KEY}}}
systemMemory: {stewards: [ada], systemBucketEnabled: true, corpus: /srv/kb.json, ready: {sessions: 3}}
http: {listen: "[::1]:9000", publicUrl: "https://k.example", tls: {certFile: a.pem, keyFile: b.pem}, hostKeyFile: k}
limits: {scanEntries: 400000, mailbox: 8, mailboxBytes: 1MiB, perAudience: 4}
runtime: {idle: 90s, ownerIdle: 1.5m, maxLiveStores: 2}
"""


def refusal(text: str) -> InvalidArgument:
    with pytest.raises(InvalidArgument) as caught:
        parse_configuration(text)
    return caught.value


def test_a_file_that_is_being_saved_in_place_denies_nobody_and_one_that_stays_empty_is_believed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "knowledge.yaml"
    path.write_text("agents: {list: [{id: main}, {id: other}]}\n")
    followed = ConfigurationFile(path)
    path.write_text("")  # the first half of a save in place
    assert not followed.poll()
    assert list(followed.current.agent_ids) == ["main", "other"]
    path.write_text("agents: {list: [{id: third}]}\n")
    assert followed.poll()
    assert list(followed.current.agent_ids) == ["third"]
    path.write_text("\n")
    assert not followed.poll()
    later = time.time_ns() + 3_000_000_000
    monkeypatch.setattr(time, "time_ns", lambda: later)
    assert followed.poll()
    assert list(followed.current.agent_ids) == ["main"]


def test_an_empty_file_and_a_missing_file_are_all_defaults(tmp_path: Path) -> None:
    for configuration in (parse_configuration(""), load_configuration(tmp_path / "none.yaml"), Configuration()):
        assert configuration.writes_enabled
        assert configuration.agent_ids == ("main",)
        assert configuration.default_agent == "main"
        assert configuration.recall_gate is None
        assert configuration.limits.scan_entries == 100_000
        assert configuration.limits.mailbox_bytes == 64 * 1024 * 1024
        assert configuration.runtime.idle == timedelta(minutes=10)
        assert configuration.maintenance.at == "03:30"
        assert configuration.page_budgets.hub_percentile == 90


def test_every_documented_key_is_accepted_and_means_what_it_says() -> None:
    configuration = parse_configuration(EVERYTHING)
    assert not configuration.writes_enabled
    assert configuration.workspace == Path("/srv/work")
    assert configuration.agent_ids == ("main", "quiet", "other")
    assert configuration.stores["personal"].label == "Personal"
    assert configuration.recall_gate is not None
    assert (configuration.recall_gate.mode, configuration.recall_gate.max_candidates) == ("live", 10)
    assert configuration.maintenance.every == timedelta(hours=12)
    assert configuration.maintenance.at == "03:30"  # no sexagesimal number
    assert configuration.models.providers.rerank is not None
    assert configuration.models.providers.rerank.max_in_flight == 4
    assert configuration.limits.mailbox_bytes == 1024 * 1024
    assert configuration.runtime.owner_idle == timedelta(seconds=90)
    assert configuration.http.tls is not None


def test_json_is_accepted_with_tabs_and_escapes() -> None:
    text = '{\n\t"stores": {\n\t\t"caf\\u00e9 \\ud83d\\ude00": {"agents": []}\n\t}\n}'
    assert list(parse_configuration(text).stores) == ["café 😀"]


def test_a_flow_mapping_that_is_no_json_is_still_yaml() -> None:
    assert parse_configuration("{writesEnabled: false}").writes_enabled is False


@pytest.mark.parametrize(
    ("text", "field", "line"),
    [
        ("writesEnabled: true\nwriteEnabled: true\n", "writeEnabled", 2),
        ("limits:\n  mailbox: 4\n  mailBox: 5\n", "limits.mailBox", 3),
        ("stores:\n  x:\n    label: X\n    member: []\n", "stores.x.member", 4),
        ("agents:\n  list:\n    - id: a\n    - id: b\n      model: c\n", "agents.list[1].model", 5),
        ('{\n\t"gateway": {\n\t\t"share": true\n\t}\n}', "gateway.share", 3),
        ("models:\n  providers:\n    rerank:\n      baseUrl: http://h\n      models: []\n      key: s\n",
         "models.providers.rerank.key", 6),
    ],
)  # fmt: skip
def test_an_unknown_key_is_refused_by_name_and_line(text: str, field: str, line: int) -> None:
    error = refusal(text)
    assert (error.fields["field"], error.fields["line"]) == (field, line)
    assert "unknown key; allowed here: " in error.message
    assert f"line {line}" in error.message


def test_the_allowed_keys_are_those_of_the_place_where_the_unknown_one_stands() -> None:
    assert "allowed here: agents, label" in refusal("stores: {x: {member: []}}").message
    assert "allowed here: decisionModel, id" in refusal("agents: {list: [{id: a, x: 1}]}").message
    assert "allowed here: shared" in refusal("gateway: {x: 1}").message


@pytest.mark.parametrize(
    ("text", "field"),
    [
        ("writesEnabled: yes", "writesEnabled"),
        ("writesEnabled: 1", "writesEnabled"),
        ("limits: {mailbox: 0}", "limits.mailbox"),
        ("limits: {mailbox: '5'}", "limits.mailbox"),
        ("limits: {mailboxBytes: 64MB}", "limits.mailboxBytes"),
        ("limits: {mailboxBytes: true}", "limits.mailboxBytes"),
        ("runtime: {idle: 10}", "runtime.idle"),
        ("runtime: {idle: 0s}", "runtime.idle"),
        ("runtime: {idle: 99999999999999999d}", "runtime.idle"),
        ("maintenance: {at: '24:00'}", "maintenance.at"),
        ('maintenance: {at: "03:30\\n"}', "maintenance.at"),
        ("recallGate: {highThreshold: 1.5}", "recallGate.highThreshold"),
        ("recallGate: {maxCandidates: 11}", "recallGate.maxCandidates"),
        ("recallGate: {mode: on}", "recallGate.mode"),
        ("http: {listen: localhost}", "http.listen"),
        ("http: {listen: 'localhost:70000'}", "http.listen"),
        ("operators: [{id: a, scopes: [root]}]", "operators[0].scopes[0]"),
        ("agents: {list: [{id: ''}]}", "agents.list[0].id"),
        ("agents: {list: [{id: 'a/../b'}]}", "agents.list[0].id"),
        ('agents: {list: [{id: "a\\n"}]}', "agents.list[0].id"),
        ("agents: {list: [{}]}", "agents.list[0].id"),
        ("agents: {list: [{id: a}, {id: a}]}", "agents"),
        ("operators: [{id: a, scopes: []}, {id: a, scopes: []}]", ""),
        ("stores: {x: {agents: [a, a]}}", "stores.x"),
        ("stores: [x]", "stores"),
        ("pageBudgets: {hubPercentile: 101}", "pageBudgets.hubPercentile"),
        ("workspace: ''", "workspace"),
        ("models: {providers: {rerank: {baseUrl: 'http://h', models: [], apiKeyEnv: A, apiKeyFile: B}}}",
         "models.providers.rerank"),
        *((f"models: {{providers: {{rerank: {{baseUrl: '{url}', models: []}}}}}}", "models.providers.rerank.baseUrl")
          for url in ("http://user:key@h", "http://:key@h", "http://h/v1?key=k", "http://h#v1", "http://", "http://h:x",
                      "http://[h", "ftp://h")),
        ("- a", ""),
        ("just text", ""),
    ],
)  # fmt: skip
def test_a_value_outside_its_bounds_is_refused_with_its_key(text: str, field: str) -> None:
    assert refusal(text).fields["field"] == field


@pytest.mark.parametrize(
    ("text", "line", "words"),
    [
        ("a: 1\na: 2\n", 2, "stands twice"),
        ('{"gateway": {},\n"gateway": {}}', 2, "stands twice"),
        ("gateway: &x {}\nlimits: *x\n", 1, "anchors and aliases"),
        ("writesEnabled: !!bool true\n", 1, "tags"),
        ("writesEnabled: !!python/object:os.system x\n", 1, "tags"),
        ("x: " + "[" * 30 + "]" * 30, 1, "nested deeper"),
        ("x: " + "[" * 200_000, 1, "nested deeper"),
        ('{"x": ' + "[" * 200_000, 1, "nested deeper"),
        ("writesEnabled: true\n  oops\n: [", 3, ""),
        ("a: b: c\n", 1, ""),
        ("x: \x07\n", 1, "U+0007"),
        ("1: a\n", 1, "a key must be"),
        ("? [a]\n: b\n", 1, "a key must be"),
        ("writesEnabled: true\n---\nwritesEnabled: false\n", 2, ""),
    ],
)
def test_a_document_outside_the_subset_is_refused_with_its_line(text: str, line: int, words: str) -> None:
    error = refusal(text)
    assert error.fields["line"] == line
    assert words in error.message


def test_every_problem_is_named_not_only_the_first() -> None:
    error = refusal("limits:\n  mailbox: 0\ngateway:\n  shared: maybe\nextra: 1\n")
    problems = error.fields["problems"]
    assert isinstance(problems, list)
    assert [(item["field"], item["line"]) for item in problems] == [
        ("limits.mailbox", 2), ("gateway.shared", 4), ("extra", 5),
    ]  # fmt: skip
    assert "(and 2 more)" in error.message


def test_text_that_is_not_utf8_or_too_large_or_unreadable_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "knowledge.yaml"
    path.write_bytes(b"a: 1\n\xff: 2\n")
    with pytest.raises(InvalidArgument, match="line 2: the text is not UTF-8"):
        load_configuration(path)
    path.write_bytes(b"#" * (CONFIGURATION_MAX_BYTES + 1))
    with pytest.raises(LimitExceeded):
        load_configuration(path)
    path.unlink()
    path.mkdir()
    with pytest.raises(StorageError):
        load_configuration(path)


def test_a_byte_order_mark_is_accepted() -> None:
    assert not parse_configuration("\ufeffwritesEnabled: false\n").writes_enabled


def test_an_empty_decision_model_turns_decisions_off_for_that_agent() -> None:
    configuration = parse_configuration(EVERYTHING)
    assert configuration.decision_model("main") == "rerank/gte"
    assert configuration.decision_model("quiet") is None
    assert configuration.decision_model("other") == "rerank/x"


def test_an_agent_in_two_named_stores_is_shown_in_both_never_in_the_first_only() -> None:
    configuration = parse_configuration("stores: {a: {agents: [x]}, b: {agents: [x, y]}}")
    assert configuration.named_stores_of("x") == ("a", "b")
    assert configuration.named_stores_of("y") == ("b",)
    assert configuration.named_stores_of("z") == ()


def test_a_changed_file_takes_effect_at_the_next_poll_and_an_unchanged_one_does_not(tmp_path: Path) -> None:
    path = tmp_path / "knowledge.yaml"
    followed = ConfigurationFile(path)
    assert not followed.poll()
    path.write_text("writesEnabled: false\n")
    assert followed.poll()
    assert not followed.current.writes_enabled
    before = followed.current
    assert not followed.poll()
    assert followed.current is before
    path.write_text("# the same\nwritesEnabled: false\n")
    assert not followed.poll()


def test_an_edit_of_equal_size_with_a_restored_mtime_is_seen(tmp_path: Path) -> None:
    path = tmp_path / "knowledge.yaml"
    path.write_text("limits: {mailbox: 11}\n")
    status = path.stat()
    followed = ConfigurationFile(path)
    path.write_text("limits: {mailbox: 22}\n")
    os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))
    assert followed.poll()
    assert followed.current.limits.mailbox == 22


def test_a_broken_edit_keeps_the_old_configuration_and_says_so_until_it_is_mended(tmp_path: Path) -> None:
    path = tmp_path / "knowledge.yaml"
    path.write_text("writesEnabled: false\n")
    followed = ConfigurationFile(path)
    path.write_text("writesEnabled: false\nlimit: {}\n")
    for _ in range(2):
        assert not followed.poll()
        assert followed.problem is not None
        assert "line 2" in followed.problem
        assert "stays in force" in followed.problem
    assert not followed.current.writes_enabled
    path.write_text("writesEnabled: false\nlimits: {mailbox: 3}\n")
    assert followed.poll()
    assert followed.problem is None
    path.write_text("oops: 1\n")
    assert not followed.poll()
    path.write_text("writesEnabled: false\nlimits: {mailbox: 3}\n")
    assert not followed.poll()  # mended to what was in force all along
    assert followed.problem is None


def test_a_vanished_file_keeps_the_last_configuration_in_force(tmp_path: Path) -> None:
    path = tmp_path / "knowledge.yaml"
    path.write_text("writesEnabled: false\n")
    followed = ConfigurationFile(path)
    path.unlink()
    assert not followed.poll()
    assert not followed.current.writes_enabled
    assert followed.problem is not None
    assert "gone" in followed.problem
    path.write_text("writesEnabled: true\n")
    assert followed.poll()
    assert followed.problem is None


def test_a_broken_file_at_start_is_refused_since_there_is_nothing_older_to_keep(tmp_path: Path) -> None:
    path = tmp_path / "knowledge.yaml"
    path.write_text("nope: 1\n")
    with pytest.raises(InvalidArgument, match=r"knowledge\.yaml line 1: `nope` is an unknown key"):
        ConfigurationFile(path)


def test_no_section_of_the_configuration_can_be_changed_in_place() -> None:
    def sections(model: BaseModel) -> list[BaseModel]:
        inner = [value for name in type(model).model_fields if isinstance(value := getattr(model, name), BaseModel)]
        return [model, *(found for value in inner for found in sections(value))]

    for section in sections(parse_configuration(EVERYTHING)):
        name = next(iter(type(section).model_fields))
        with pytest.raises(ValueError, match="frozen"):
            setattr(section, name, None)


def test_a_configuration_written_as_json_means_the_same_as_in_yaml() -> None:
    value = {"stores": {"a": {"agents": ["x"]}}, "limits": {"mailbox": 7}}
    yaml_text = "stores:\n  a:\n    agents:\n    - x\nlimits:\n  mailbox: 7\n"
    assert parse_configuration(json.dumps(value, indent=2)) == parse_configuration(yaml_text)


def test_an_address_that_holds_a_key_is_refused_without_showing_it() -> None:
    error = refusal("models: {providers: {rerank: {baseUrl: 'http://user:sesame@h', models: []}}}")
    assert "apiKeyEnv" in error.message
    assert "sesame" not in f"{error.message}{error.fields}"

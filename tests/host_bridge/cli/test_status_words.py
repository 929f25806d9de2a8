"""A status in words: short, calm when nothing is wrong, and with a command where there is one."""

from __future__ import annotations

import pytest

from host_bridge.cli.status_words import in_words
from messages.json_types import JsonObject, JsonValue

VAULT_ID = "3f0c6a5e-8c1d-4d4a-9a53-1f0f3a2b4c5d"


def status(health: JsonObject | None = None, **store: JsonValue) -> JsonObject:
    return {
        "stateDir": "/home/ana/.knowledge",
        "running": True,
        "pid": 7,
        "version": "9",
        "detached": True,
        "uptimeSeconds": 60.0,
        "connections": 3,
        "openCalls": 0,
        "health": {"actors": [{"name": "root", "state": "ready"}]} if health is None else health,
        "store": {
            "agent": "main",
            "state": "open",
            "vaultId": VAULT_ID,
            "path": f"/home/ana/.knowledge/knowledge/stores/{VAULT_ID}",
            "live": "watching",
            "counts": {"claim": {"active": 53, "superseded": 2}, "page": {"active": 1}},
            "publications": {"pending": 0, "conflict": 0},
            "git": {"state": "current", "pending": 0},
            "index": {"state": "current"},
            "notices": [],
            "diagnostics": {"findings": [], "total": 0},
            **store,
        },
    }


def findings(*rows: JsonObject, total: int | None = None) -> JsonObject:
    return {"findings": list(rows), "total": len(rows) if total is None else total}


BROKEN: JsonObject = {"path": "people/ada.md", "code": "yaml_syntax", "message": "The YAML cannot be read.", "line": 3}
PLAIN: JsonObject = {"path": "a note.md", "code": "frontmatter_missing", "message": "No frontmatter."}


def test_a_store_in_order_is_told_in_a_few_lines_that_all_is_well() -> None:
    lines = in_words(status(), verbose=False).splitlines()
    assert lines[0].endswith("(pid 7), 2 clients. All well.")
    assert len(lines) == 7
    assert f"/knowledge/stores/{VAULT_ID}/vault" in lines[3]
    assert "53 claims (and 2 superseded), 1 page" in lines[4]


def test_a_young_checkpoint_is_no_alarm_and_a_late_one_is() -> None:
    young = in_words(status(git={"state": "pending", "pending": 2}), verbose=False)
    assert "All well." in young
    late = in_words(status(git={"state": "pending", "pending": 2, "message": "The checkpoint is late."}), verbose=False)
    assert "the Git history is behind" in late
    assert "The checkpoint is late." in late


@pytest.mark.parametrize(
    ("store", "said"),
    [
        ({"git": {"state": "unavailable", "pending": 1, "message": "no git"}}, "the Git history is unavailable"),
        ({"publications": {"pending": 1, "conflict": 0}}, "1 write not finished"),
        ({"diagnostics": findings(BROKEN, PLAIN)}, "2 files cannot be read as records"),
        ({"state": "failed_closed", "refusal": {"code": "manifest_missing", "message": "Gone."}}, "manifest_missing"),
        ({"state": "unknown"}, "the store did not answer"),
    ],
)
def test_what_is_wrong_stands_in_the_first_line(store: JsonObject, said: str) -> None:
    shown = status()
    assert isinstance(shown["store"], dict)
    shown["store"] |= store
    first = in_words(shown, verbose=False).splitlines()[0]
    assert said in first
    assert "All well" not in first


@pytest.mark.parametrize(
    ("health", "said"),
    [
        ({"actors": [{"name": "root/x", "state": "quarantined"}]}, "1 part of the runtime is not ready"),
        ({"configuration": {"problem": "knowledge.yaml:3: unknown key"}}, "knowledge.yaml:3"),
        ({"stopping": True}, "shutting down"),
        ({"decisions": {"problems": {"ana": "no model"}}}, "the decision model of ana is not ready (no model)"),
    ],
)
def test_a_runtime_that_is_not_whole_is_not_well(health: JsonObject, said: str) -> None:
    assert said in in_words(status(health), verbose=False).splitlines()[0]


def test_a_finding_is_shown_with_its_line_and_a_plain_file_with_the_command_that_adopts_it() -> None:
    shown = in_words(status(diagnostics=findings(BROKEN, PLAIN)), verbose=False, options=["--agent=my agent"])
    assert "You can do:" in shown
    assert "people/ada.md:3: yaml_syntax: The YAML cannot be read." in shown
    assert "knowledge adopt 'a note.md' '--agent=my agent'" in shown


def test_however_many_findings_and_notices_there_are_it_stays_short() -> None:
    many = status(diagnostics=findings(*[BROKEN] * 20, total=400), notices=["Something was put back."] * 9)
    shown = in_words(many, verbose=False).splitlines()
    assert len(shown) <= 14
    assert "and 397 more: knowledge status --json" in shown[-1]
    assert "and 8 more" in "\n".join(shown)


def test_the_parts_of_the_runtime_are_shown_only_when_asked_for() -> None:
    assert "root" not in in_words(status(), verbose=False)
    assert "name: root" in in_words(status(), verbose=True)


def test_an_agent_without_a_store_is_well() -> None:
    none = status()
    none["store"] = {"agent": "main", "state": "none"}
    assert "All well." in in_words(none, verbose=False)
    assert "no store yet" in in_words(none, verbose=False)


def test_an_owner_that_answers_nothing_of_its_store_is_still_told_of() -> None:
    bare = status()
    bare["store"] = {"state": "unknown", "refusal": {"code": "busy", "message": "Busy."}}
    assert "the store is unknown (busy)" in in_words(bare, verbose=False)
    assert "Busy." in in_words(bare, verbose=False)


def test_where_no_owner_runs_a_broken_configuration_and_the_doctor_are_named() -> None:
    nobody: JsonObject = {"stateDir": "/home/ana/.knowledge", "running": False}
    assert "doctor" not in in_words(nobody, verbose=False)
    assert "`knowledge doctor`" in in_words({**nobody, "used": True}, verbose=False)
    broken = in_words({**nobody, "configurationProblem": "knowledge.yaml line 2: no."}, verbose=False)
    assert "\nNeeds a look: knowledge.yaml line 2: no." in broken


def test_a_store_that_is_refused_without_a_decision_is_for_the_doctor() -> None:
    refusal: JsonObject = {"code": "quarantined", "message": "The store is out of service."}
    shown = in_words(status(state="unavailable", refusal=refusal), verbose=False)
    assert "You can do:\n  knowledge doctor names" in shown

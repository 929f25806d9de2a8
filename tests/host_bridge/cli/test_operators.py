"""What a person types to look after a store, from the command line to the disk and back."""

from __future__ import annotations

import json
import os
import re
import shutil
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

from host_bridge.cli import exits
from messages.json_types import JsonObject
from tests.host_bridge.processes import Home, Typed
from tests.kit.store import only_store, remembering, write_note


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


def asked(home: Home, *words: str) -> JsonObject:
    done = home.run(*words, "--json")
    assert done.returncode in (0, 3), done.stderr.decode()
    answer: JsonObject = json.loads(done.stdout)
    return answer


# --- what is sent --------------------------------------------------------------------------------------------


def test_adopt_sends_whole_paths_of_files_that_are_there_and_other_words_as_they_are(fake: Home) -> None:
    note = fake.base / "note.md"
    note.write_text("text\n")
    sent = asked(fake, "adopt", str(note), "people/ada.md", "--type", "person", "--agent", "main")
    request = sent["request"]
    assert isinstance(request, dict)
    assert (sent["method"], sent["operator"], sent["agent"]) == ("operator.adopt", "local", "main")
    assert (request["paths"], request["type"]) == ([str(note), "people/ada.md"], "person")
    assert str(uuid.UUID(str(request["requestId"]))) == request["requestId"]


def test_each_store_command_asks_its_method(fake: Home) -> None:
    assert asked(fake, "store", "accept-deletions", "--agent", "ben")["method"] == "operator.acceptDeletions"
    assert asked(fake, "store", "adopt", "--yes")["method"] == "operator.adoptStore"
    store = str(uuid.uuid4())
    sent = asked(fake, "store", "relocate", store, "relative/place")
    assert sent["request"] == {"store": store, "path": "/relative/place"}


def test_each_command_about_access_asks_its_method(fake: Home) -> None:
    def sent(*words: str) -> tuple[object, object, object]:
        found = asked(fake, *words)
        return found["method"], found["agent"], found["request"]

    share = sent("stores", "share", "--agent", "main", "--label", "Fam", "family", "ben", "eve")
    request = {"name": "family", "label": "Fam", "agents": ["ben", "eve"]}
    assert share == ("access.stores.share", "main", request)
    store = str(uuid.uuid4())
    join = sent("stores", "join", "--agent", "ben", "family", "--store", store)
    assert join == ("access.stores.join", "ben", {"name": "family", "store": store})
    assert sent("stores", "own", "--agent", "ben") == ("access.stores.own", "ben", {})
    assert sent("stores", "list") == ("access.stores.list", None, {})
    assert sent("stores", "audit", "--limit", "5") == ("access.audit", None, {"limit": 5})
    granted = sent("conversation", "grant", "--agent", "main", "chat:1", "read-save")
    assert granted == ("access.grants.set", "main", {"sessionKey": "chat:1", "access": "read-save"})
    revoked = sent("conversation", "revoke", "--agent", "main", "chat:1")
    assert revoked == ("access.grants.remove", "main", {"sessionKey": "chat:1"})
    exported = sent("conversation", "export", "--agent", "main", store.upper(), "chat")
    assert exported == ("operator.exportConversation", "main", {"session": store, "path": "/chat"})
    erase = ("conversation", "erase", "--agent", "main", store)
    erased: JsonObject = {"session": store, "dryRun": False, "discardGit": False}
    assert sent(*erase, "--dry-run") == ("operator.eraseConversation", "main", {**erased, "dryRun": True})
    assert sent(*erase, "--yes")[2] == erased
    assert sent(*erase, "--yes", "--discard-git")[2] == {**erased, "discardGit": True}
    assert sent("conversation", "list") == sent("grants", "list") == ("access.grants.list", None, {})
    assert sent("grants", "set", "--agent", "main", "chat:1", "read-save") == granted
    assert sent("grants", "remove", "--agent", "main", "chat:1") == revoked
    mint = ("audience", "mint", "--agent", "main")
    owner: JsonObject = {"kind": "owner-private", "agent": "main"}
    assert sent(*mint) == ("access.tokens.mint", None, {"audience": owner, "seconds": 3_600})
    assert sent(*mint, "--run", "r", "--account", "ann", "--sandboxed", "--for", "2d")[2] == {
        "audience": {**owner, "runId": "r", "account": "ann", "sandboxed": True}, "seconds": 2 * 86_400,
    }  # fmt: skip
    talk: JsonObject = {"kind": "conversation", "agent": "main", "sessionKey": "chat:1", "sessionId": store}
    of_talk = ("--conversation", "chat:1", "--session", store, "--root", json.dumps(owner))
    assert sent(*mint, *of_talk)[2] == {"audience": {**talk, "root": owner}, "seconds": 3_600}
    assert sent("audience", "revoke", store) == ("access.tokens.revoke", None, {"id": store})
    assert sent("audience", "list", "--agent", "main", "--limit", "5") == ("access.tokens.list", "main", {"limit": 5})
    words = (f"agent:a=b={store}", f"store:family={uuid.UUID(int=1)}", f"nobody={uuid.UUID(int=2)}", "place=elsewhere")
    rebuilt = asked(fake, "doctor", "rebuild", *words, "--yes")
    assert rebuilt["method"] == "operator.rebuildRegistry"
    assert rebuilt["request"] == {
        "stores": [
            {"store": store, "agent": "a=b", "name": None},
            {"store": str(uuid.UUID(int=1)), "agent": None, "name": "family"},
            {"store": str(uuid.UUID(int=2)), "agent": None, "name": None},
        ],
        "places": ["/elsewhere"],
    }


@pytest.mark.parametrize(
    "words",
    [
        ["adopt"],
        ["adopt", "--json"],
        ["store"],
        ["store", "burn"],
        ["store", "adopt"],
        ["store", "adopt", "word", "--yes"],
        ["store", "accept-deletions", "--yes"],
        ["store", "relocate", "no-uuid", "/x"],
        ["store", "relocate", str(uuid.UUID(int=1))],
        ["stores"],
        ["stores", "burn"],
        ["stores", "show"],
        ["stores", "share", "family"],
        ["stores", "share", "--agent", "main"],
        ["stores", "join", "--agent", "main", "family", "--store", "no-uuid"],
        ["stores", "own"],
        ["stores", "audit", "--limit", "0"],
        ["grants"],
        ["grants", "revoke", "--agent", "main", "key"],
        ["conversation"],
        ["conversation", "grant", "--agent", "main", "key"],
        ["conversation", "grant", "--agent", "main", "key", "write"],
        ["conversation", "grant", "key", "read"],
        ["conversation", "revoke", "--agent", "main"],
        ["conversation", "export", "--agent", "main", str(uuid.UUID(int=1))],
        ["conversation", "export", "--agent", "main", "chat:1", "chat"],
        ["conversation", "export", str(uuid.UUID(int=1)), "chat"],
        ["conversation", "erase", "--agent", "main", str(uuid.UUID(int=1))],
        ["conversation", "erase", "--agent", "main", str(uuid.UUID(int=1)), "--yes", "--dry-run"],
        ["conversation", "erase", "--agent", "main", "--yes"],
        ["conversation", "erase", str(uuid.UUID(int=1)), "--yes"],
        ["audience"],
        ["audience", "mint"],
        ["audience", "mint", "--agent", "main", "--conversation", "chat:1"],
        ["audience", "mint", "--agent", "main", "--for", "31d"],
        ["audience", "mint", "--agent", "main", "--for", "1y"],
        ["audience", "mint", "--agent", "main", "--root", "[]"],
        ["audience", "mint", "--agent", "main", "--root", "{"],
        ["audience", "revoke"],
        ["audience", "revoke", "eyJhbGciOiJIUzI1NiJ9.e30.x"],
        ["audience", "list", "--limit", "0"],
        ["doctor", "heal"],
        ["doctor", "--yes"],
        ["doctor", "rebuild", f"agent:main={uuid.UUID(int=1)}"],
        ["doctor", "rebuild", "agent:main=no-uuid", "--yes"],
        ["doctor", "rebuild", f"main={uuid.UUID(int=1)}", "--yes"],
    ],
)
def test_a_command_that_is_not_understood_asks_nobody(typed: Typed, tmp_path: Path, words: list[str]) -> None:
    done = typed(*words)
    assert (done.returncode, done.stdout) == (exits.USAGE, b"")
    assert done.stderr.count(b"\n") == 1
    assert list(tmp_path.iterdir()) == [], "an owner was looked for"


# --- on the real runtime -------------------------------------------------------------------------------------


def test_a_plain_file_is_found_by_status_and_adopted_by_the_path_that_status_shows(real: Home) -> None:
    assert b"no store yet" in real.run("status", "--live").stdout
    real.call("status")
    layout = only_store(real.state_dir)
    write_note(layout.vault / "private", "people/ada.md", "# Ada\n\nText.\n")
    shown = real.run("status").stdout.decode()
    assert "knowledge adopt people/ada.md\n" in shown
    assert f"vault            {layout.vault}\n" in shown
    assert "1 file cannot be read as a record" in shown
    assert len(shown.splitlines()) <= 12
    assert "incarnation" not in shown
    assert "root/authority" in real.run("status", "--verbose").stdout.decode()
    done = real.run("adopt", "people/ada.md")
    assert done.returncode == 0, done.stderr.decode()
    assert re.search(r"^ {2}people/ada.md {2}person {2}[0-9a-f-]{36}$", done.stdout.decode(), re.MULTILINE)
    assert (layout.vault / "private" / "people" / "ada.md").read_bytes().endswith(b"# Ada\n\nText.\n")
    assert "You can do" not in real.run("status").stdout.decode()
    again = real.run("adopt", "people/ada.md", "--json")
    assert again.returncode == exits.REFUSED
    assert json.loads(again.stderr)["error"]["reason"] == "already_a_record"
    missing = real.run("adopt", "people/ada.md", "people/bob.md")
    assert "people/ada.md has an envelope already" in missing.stderr.decode()
    nowhere = real.run("adopt", "people/bob.md").stderr.decode()
    assert "people/bob.md does not exist" in nowhere
    assert "below the agent's private folder, as there is no /people/bob.md" in nowhere
    outside = real.base / "outside.md"
    outside.write_text("text\n")
    assert f"looked for at {outside}" in real.run("adopt", str(outside)).stderr.decode()
    assert json.loads(real.run("status", "--json").stdout)["store"]["diagnostics"]["total"] == 0


def save(real: Home, title: str) -> None:
    arguments = {"requestId": str(uuid.uuid4()), "title": title, "type": "note", "body": "Text."}
    real.call("save_page", json.dumps(arguments))


def test_an_older_vault_is_shown_and_adopted_by_the_command_that_status_names(real: Home) -> None:
    save(real, "First")
    real.run("stop")
    layout = only_store(real.state_dir)
    shutil.copytree(layout.vault, real.base / "earlier")
    save(real, "Second")
    real.run("stop")
    shutil.rmtree(layout.vault)
    shutil.move(real.base / "earlier", layout.vault)
    refused = real.run("call", "status", "--json")
    error = json.loads(refused.stderr)["error"]
    assert error["code"] == "vault_older_than_database"
    shown = real.run("status").stdout.decode()
    assert "failed closed (vault_older_than_database)" in shown
    assert "to decide: knowledge store adopt" in shown
    assert "generation" in shown
    done = real.run("store", "adopt", "--yes")
    assert done.returncode == 0, done.stderr.decode()
    assert real.call("lookup", '{"query": "First"}')["state"] == "found"
    assert real.call("lookup", '{"query": "Second"}')["state"] == "missing"
    assert "vault adopted as it was" in real.run("status").stdout.decode()


def test_a_loss_is_accepted_and_a_store_is_moved(real: Home) -> None:
    for number in range(22):
        save(real, f"Page {number}")
    layout = only_store(real.state_dir)
    os.rename(layout.vault / "private" / "notes", real.base / "aside")
    refused = real.run("call", "lookup", '{"query": "Page 1"}', "--json")
    assert json.loads(refused.stderr)["error"]["code"] == "deletions_refused"
    assert "knowledge store accept-deletions" in real.run("status").stdout.decode()
    assert b"22 files are recorded as deleted" in real.run("store", "accept-deletions").stdout
    assert b"Nothing was missing" in real.run("store", "accept-deletions").stdout
    target: Path = real.base / "moved"
    done = real.run("store", "relocate", layout.root.name, str(target))
    assert done.returncode == 0, done.stderr.decode()
    assert f"lies at {target}" in done.stdout.decode()
    save(real, "After")
    assert list((target / "vault" / "private").rglob("after.md"))


def test_agents_are_moved_between_stores_and_a_conversation_is_let_in(real: Home) -> None:
    (real.state_dir / "knowledge.yaml").write_text("agents: {list: [{id: main}, {id: ben}]}  # ours\n")
    assert real.run("stores", "list").stdout.decode().endswith("No store yet.\n")
    real.call("status")
    vault = only_store(real.state_dir).root.name
    shared = real.run("stores", "share", "--agent", "main", "--label", "Family", "family", "ben")
    assert f"The store {vault} is called family now; main, ben use it." in shared.stdout.decode(), shared.stderr
    shown = real.run("stores", "list").stdout.decode()
    assert f"  ben: family ({vault})\n" in shown
    assert f'  {vault}  family "Family": in use by main, ben\n' in shown
    assert f"vaultId:   {vault}" in real.run("stores", "show", "ben").stdout.decode()
    assert real.run("stores", "show", "nobody").returncode == exits.REFUSED
    assert "a new store, which its next use creates" in real.run("stores", "own", "--agent", "main").stdout.decode()
    refused = real.run("stores", "join", "--agent", "main", "nowhere", "--json")
    assert (refused.returncode, json.loads(refused.stderr)["error"]["code"]) == (exits.REFUSED, "not_found")
    granted = real.run("conversation", "grant", "--agent", "main", "chat:1", "read")
    assert granted.stdout.decode().endswith("  chat:1: can read  (no known conversation)\n")
    revoked = real.run("conversation", "revoke", "--agent", "main", "chat:1").stdout.decode()
    assert revoked.startswith(
        "chat:1 has no grant of its own now.\nEvery conversation of main has its own partition only"
    )
    actions = [line.split()[2] for line in real.run("stores", "audit").stdout.decode().splitlines()]
    assert actions == ["grant.remove", "grant.set", "store.own", "store.share", "store.create"]
    assert "# ours" in (real.state_dir / "knowledge.yaml").read_text()


def test_a_conversation_is_exported_looked_at_and_erased(real: Home) -> None:
    session = str(uuid.UUID(int=5, version=4))
    who = ("--conversation", "chat:1", "--session", session)
    saved = {**remembering("The gate is green."), "requestId": str(uuid.uuid4())}
    assert real.run("call", "remember", json.dumps(saved), *who).returncode == 0
    target = real.base / "chat"
    exported = real.run("conversation", "export", "--agent", "main", session, str(target))
    assert exported.stdout.decode().startswith(f"{target} has 1 record with 1 revision: ")
    assert (target / "SHA256SUMS").exists()
    looked = real.run("conversation", "erase", "--agent", "main", session, "--dry-run").stdout.decode()
    assert looked.startswith("Nothing was erased. --yes would erase 1 record with 1 revision, and 2 files of ")
    erased = real.run("conversation", "erase", "--agent", "main", session, "--yes").stdout.decode()
    assert erased.startswith("Erased: 1 record with 1 revision, and 2 files of ")
    assert real.run("conversation", "erase", "--agent", "main", session, "--yes").returncode == exits.REFUSED
    assert "conversation.erase" in real.run("stores", "audit").stdout.decode()


def test_a_token_is_minted_shown_once_listed_and_revoked(real: Home) -> None:
    minted = real.run("audience", "mint", "--agent", "main", "--for", "12h")
    token, told = minted.stdout.decode(), minted.stderr.decode()
    assert token.count(".") == 2
    assert token.count("\n") == 1
    assert "stands for the owner of main until " in told
    token_id = told.split()[1]
    assert f"knowledge audience revoke {token_id}" in told
    listed = real.run("audience", "list").stdout.decode()
    assert listed.startswith(f"{token_id}  live, until ")
    assert token.split(".")[1] not in listed + told
    revoked = real.run("audience", "revoke", token_id)
    assert revoked.stdout.decode().startswith(f"The token {token_id} of the owner of main is revoked")
    assert f"{token_id}  revoked" in real.run("audience", "list").stdout.decode()
    actions = [line.split()[2] for line in real.run("stores", "audit").stdout.decode().splitlines()]
    assert actions == ["token.revoke", "token.mint"]
    shown = json.loads(real.run("audience", "mint", "--agent", "main", "--json").stdout)
    assert {"token", "id", "audience", "expiresAt", "state"} <= set(shown)
    assert real.run("audience", "mint", "--agent", "stranger").returncode == exits.REFUSED
    assert real.run("audience", "revoke", str(uuid.UUID(int=9))).returncode == exits.REFUSED


def test_a_lost_registry_is_explained_and_made_anew_on_request_only(real: Home) -> None:
    saved = {**remembering("Kept over a lost registry."), "requestId": str(uuid.uuid4())}
    real.call("remember", json.dumps(saved))
    vault = only_store(real.state_dir).root.name
    well = real.run("doctor")
    assert (well.returncode, b"its one store is where it says." in well.stdout) == (exits.OK, True)
    assert b"No note was read: `knowledge doctor --store ID`" in well.stdout
    assert real.run("stop").returncode == 0
    for path in (real.state_dir / "knowledge").glob("registry.sqlite*"):
        path.unlink()
    looked = real.run("doctor")
    assert looked.returncode == exits.FINDINGS
    assert f"{vault}  1 revisions, by main" in looked.stdout.decode()
    assert f"knowledge doctor rebuild agent:NAME={vault} --yes" in looked.stdout.decode()
    found = json.loads(real.run("doctor", "--json").stdout)
    assert (found["registry"]["state"], found["healthy"], found["rebuildable"]) == ("registry_missing", False, True)
    assert real.run("call", "status").returncode == exits.REFUSED
    assert not list((real.state_dir / "knowledge").glob("registry.sqlite*")), "looking and calling made none"
    left_out = real.run("doctor", "rebuild", "--yes", "--json")
    assert json.loads(left_out.stderr)["error"]["reason"] == "left_out"
    mended = real.run("doctor", "rebuild", f"agent:main={vault}", "--yes")
    assert mended.returncode == exits.OK, mended.stderr
    assert b"Kept over a lost registry." in real.run("call", "grep", '{"query": "lost registry"}').stdout
    assert real.run("doctor").returncode == exits.OK
    assert only_store(real.state_dir).root.name == vault

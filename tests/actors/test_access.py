"""Who uses which store, through the real runtime: the three moves, the inventory, grants and the audit.

stores-and-access.md (Stores, Manage stores, Conversation access, Caller authority).
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

from actors.authority import Permit
from host_bridge.bridge import KnowledgeBridge
from host_bridge.config import parse_configuration
from messages.audience import Audience, Conversation, OwnerPrivate
from messages.errors import (
    Denied,
    InvalidArgument,
    KnowledgeError,
    NotFound,
    ReadOnlyGrant,
    StoreAmbiguous,
)
from messages.json_types import JsonObject, JsonValue
from messages.operator import LOCAL_OPERATOR, OPERATOR_METHODS, Operator, parse_operator_call
from storage import faults
from storage.layout import StoreLayout
from tests.actors.test_operators import answer, listed
from tests.kit.store import stores

MAIN, RESEARCH, GARDEN = (OwnerPrivate(agent) for agent in ("main", "research", "garden"))
CONFIGURATION = "# mine\nagents:\n  list: [{id: main}, {id: research}, {id: garden}]\n"


def ask(
    bridge: KnowledgeBridge,
    method: str,
    operator: Operator = LOCAL_OPERATOR,
    given: JsonObject | None = None,
    **params: JsonValue,
) -> JsonObject:
    return answer(bridge.operate(parse_operator_call(method, {**(given or {}), **params}, peer=operator)))


def refused(
    bridge: KnowledgeBridge,
    method: str,
    operator: Operator = LOCAL_OPERATOR,
    given: JsonObject | None = None,
    **params: JsonValue,
) -> KnowledgeError:
    try:
        found = ask(bridge, method, operator, given, **params)
    except KnowledgeError as error:
        return error
    raise AssertionError(f"answered: {sorted(found)}")


def remember(bridge: KnowledgeBridge, text: str, audience: Audience = MAIN) -> None:
    items: list[JsonValue] = [{"text": text, "kind": "fact"}]
    arguments: JsonObject = {
        "requestId": str(uuid.uuid4()),
        "attribution": "a test",
        "excerpt": text,
        "items": items,
    }
    bridge.call("knowledge_remember", arguments, audience)


def texts(bridge: KnowledgeBridge, audience: Audience = MAIN) -> set[str]:
    found = bridge.call("knowledge_records", {"kind": "claim"}, audience)
    return {str(row["text"]) for row in listed(found["records"])}


def vault_of(bridge: KnowledgeBridge, audience: Audience) -> str:
    return str(bridge.call("knowledge_status", {}, audience)["vaultId"])


def entry(bridge: KnowledgeBridge, **wanted: JsonValue) -> JsonObject:
    """The one store of the inventory that has these members."""
    rows = listed(ask(bridge, "access.stores.list")["stores"])
    (found,) = [row for row in rows if wanted.items() <= row.items()]
    return found


def agent_of(bridge: KnowledgeBridge, agent: str) -> JsonObject:
    (found,) = [row for row in listed(ask(bridge, "access.stores.list")["agents"]) if row["agent"] == agent]
    return found


def configuration(bridge: KnowledgeBridge) -> Path:
    return bridge.state_dir / "knowledge.yaml"


@pytest.fixture
def state_dir(tmp_path: Path) -> Path:
    place = tmp_path / "state"
    place.mkdir()
    (place / "knowledge.yaml").write_text(CONFIGURATION)
    return place


@pytest.fixture
def bridge(state_dir: Path) -> Iterator[KnowledgeBridge]:
    with KnowledgeBridge(state_dir) as opened:
        yield opened


# --- share, join, own ------------------------------------------------------------------------------------------------


def test_sharing_renames_the_agents_own_store_and_copies_nothing(bridge: KnowledgeBridge) -> None:
    remember(bridge, "The gate is green.")
    vault = vault_of(bridge, MAIN)
    made = ask(bridge, "access.stores.share", agent="main", name="family", label="Family", agents=["research"])
    assert made == {"agents": ["main", "research"], "name": "family", "vaultId": vault}
    assert vault_of(bridge, MAIN) == vault_of(bridge, RESEARCH) == vault
    assert texts(bridge, RESEARCH) == {"The gate is green."}
    assert len(stores(bridge.state_dir)) == 1
    text = configuration(bridge).read_text()
    assert text.startswith(CONFIGURATION)
    assert parse_configuration(text).stores["family"].agents == ("main", "research")
    assert entry(bridge, name="family")["label"] == "Family"


def test_an_agent_that_leaves_the_store_it_shared_gets_a_new_empty_one_and_no_hidden_copy(
    bridge: KnowledgeBridge,
) -> None:
    remember(bridge, "Shared.")
    shared = vault_of(bridge, MAIN)
    ask(bridge, "access.stores.share", agent="main", name="family", agents=["research"])
    assert ask(bridge, "access.stores.own", agent="main") == {"agents": ["main"], "vaultId": None}
    assert len(stores(bridge.state_dir)) == 1, "created on first use, not by the move"
    assert texts(bridge, MAIN) == set()
    assert vault_of(bridge, MAIN) != shared
    assert texts(bridge, RESEARCH) == {"Shared."}, "nothing was removed from the shared store"


def test_an_agent_that_chooses_its_own_store_has_its_previous_one_again_with_nothing_copied(
    bridge: KnowledgeBridge,
) -> None:
    remember(bridge, "Mine.", RESEARCH)
    own = vault_of(bridge, RESEARCH)
    remember(bridge, "Shared.")
    ask(bridge, "access.stores.share", agent="main", name="family")
    joined = ask(bridge, "access.stores.join", agent="research", name="family")
    assert joined["vaultId"] == vault_of(bridge, MAIN)
    assert texts(bridge, RESEARCH) == {"Shared."}, "nothing from the agent's store is moved or merged"
    assert entry(bridge, vaultId=own)["use"] == "unused"
    assert ask(bridge, "access.stores.own", agent="research")["vaultId"] == own
    assert texts(bridge, RESEARCH) == {"Mine."}
    assert texts(bridge) == {"Shared."}


def test_agents_of_another_named_store_switch_to_the_shared_one(bridge: KnowledgeBridge) -> None:
    for audience in (MAIN, RESEARCH):
        vault_of(bridge, audience)
    ask(bridge, "access.stores.share", agent="research", name="lab", agents=["garden"])
    ask(bridge, "access.stores.share", agent="main", name="family", agents=["garden"])
    found = parse_configuration(configuration(bridge).read_text()).stores
    assert (found["lab"].agents, found["family"].agents) == (("research",), ("main", "garden"))
    assert vault_of(bridge, GARDEN) == vault_of(bridge, MAIN)


def test_an_agent_in_two_named_stores_is_mended_by_joining_one_or_by_its_own(bridge: KnowledgeBridge) -> None:
    configuration(bridge).write_text(
        CONFIGURATION + "stores: {a: {agents: [main, research]}, b: {agents: [main, research]}}\n"
    )
    with pytest.raises(StoreAmbiguous):
        bridge.call("knowledge_status", {}, MAIN)
    assert agent_of(bridge, "main") == {"agent": "main", "store": "ambiguous", "names": ["a", "b"]}
    ask(bridge, "access.stores.join", agent="main", name="b")
    ask(bridge, "access.stores.own", agent="research")
    found = parse_configuration(configuration(bridge).read_text()).stores
    assert (found["a"].agents, found["b"].agents) == ((), ("main",))
    assert vault_of(bridge, MAIN) != vault_of(bridge, RESEARCH)


def test_a_move_sent_again_changes_nothing(bridge: KnowledgeBridge) -> None:
    vault_of(bridge, MAIN)
    moves: list[tuple[str, JsonObject]] = [
        ("share", {"agent": "main", "name": "family", "agents": ["research"]}),
        ("join", {"agent": "garden", "name": "family"}),
        ("own", {"agent": "garden"}),
    ]
    for method, params in moves:
        first = ask(bridge, f"access.stores.{method}", given=params)
        text = configuration(bridge).read_bytes()
        assert ask(bridge, f"access.stores.{method}", given=params) == first
        assert configuration(bridge).read_bytes() == text
    assert len(listed(ask(bridge, "access.audit")["rows"])) == 1 + len(moves)


@pytest.mark.parametrize(
    ("method", "params", "error", "field"),
    [
        ("share", {"agent": "garden", "name": "x"}, NotFound, "agent"),
        ("share", {"agent": "main", "name": "taken"}, InvalidArgument, "name"),
        ("share", {"agent": "research", "name": "x"}, InvalidArgument, "agent"),
        ("share", {"agent": "main", "name": "x", "agents": ["nobody"]}, Denied, "agent"),
        ("share", {"agent": "main", "name": "x\ny"}, InvalidArgument, "name"),
        ("share", {"name": "x"}, InvalidArgument, "agent"),
        ("join", {"agent": "main", "name": "nowhere"}, NotFound, "name"),
        ("join", {"agent": "nobody", "name": "taken"}, Denied, "agent"),
        ("own", {"agent": "nobody"}, Denied, "agent"),
    ],
)
def test_a_move_that_cannot_be_is_refused_by_its_field_and_leaves_nothing_behind(
    bridge: KnowledgeBridge, method: str, params: JsonObject, error: type[KnowledgeError], field: str
) -> None:
    configuration(bridge).write_text(CONFIGURATION + "stores: {taken: {agents: [research]}}\n")
    vault_of(bridge, MAIN)
    before = (configuration(bridge).read_bytes(), ask(bridge, "access.stores.list"))
    try:
        raised: KnowledgeError = refused(bridge, f"access.stores.{method}", given=params)
    except KnowledgeError as early:
        raised = early
    assert isinstance(raised, error)
    assert raised.fields["field"] == field
    assert (configuration(bridge).read_bytes(), ask(bridge, "access.stores.list")) == before


def test_a_broken_configuration_is_not_edited(bridge: KnowledgeBridge) -> None:
    vault_of(bridge, MAIN)
    configuration(bridge).write_text("writesEnable: true\n")
    assert isinstance(refused(bridge, "access.stores.share", agent="main", name="x"), InvalidArgument)
    assert configuration(bridge).read_text() == "writesEnable: true\n"


def test_a_configuration_that_is_a_link_stays_one(tmp_path: Path) -> None:
    state, real = tmp_path / "state", tmp_path / "dotfiles"
    state.mkdir()
    real.write_text(CONFIGURATION)
    real.chmod(0o640)
    (state / "knowledge.yaml").symlink_to(real)
    with KnowledgeBridge(state) as bridge:
        vault_of(bridge, MAIN)
        ask(bridge, "access.stores.share", agent="main", name="family")
    assert (state / "knowledge.yaml").is_symlink()
    assert "family" in real.read_text()
    assert real.stat().st_mode & 0o777 == 0o640


def test_what_somebody_writes_into_the_configuration_at_the_same_moment_stays_and_the_move_is_refused(
    bridge: KnowledgeBridge,
) -> None:
    vault = vault_of(bridge, MAIN)
    theirs = CONFIGURATION + "operatorRead: true\n"

    def edit(point: str) -> None:
        if point == "text.place":
            configuration(bridge).write_text(theirs)

    with faults.installed(edit):
        error = refused(bridge, "access.stores.share", agent="main", name="family")
    assert (error.code, error.retry) == ("busy", "safe")
    assert configuration(bridge).read_text() == theirs
    assert (vault_of(bridge, MAIN), len(stores(bridge.state_dir))) == (vault, 1)
    assert ask(bridge, "access.stores.share", agent="main", name="family")["vaultId"] == vault


def test_a_disk_that_is_full_leaves_the_membership_as_it_was(bridge: KnowledgeBridge) -> None:
    vault = vault_of(bridge, MAIN)
    for point in ("text.stage.open", "text.stage.write", "text.sync", "text.place"):

        def fail(name: str, wanted: str = point) -> None:
            if name == wanted:
                raise OSError(28, "No space left on device")

        with faults.installed(fail):
            assert refused(bridge, "access.stores.share", agent="main", name="family").code == "storage_error"
        assert configuration(bridge).read_text() == CONFIGURATION
        assert sorted(path.name for path in bridge.state_dir.iterdir()) == ["knowledge", "knowledge.yaml"]
    assert vault_of(bridge, MAIN) == vault
    ask(bridge, "access.stores.share", agent="main", name="family")


def test_a_move_is_a_barrier_for_the_old_store_and_none_for_an_agent_that_stays_in_it(
    bridge: KnowledgeBridge,
) -> None:
    vault_of(bridge, RESEARCH)
    remember(bridge, "Before.")
    ask(bridge, "access.stores.share", agent="main", name="family")
    gate = bridge._runtime.gate
    held = gate.resolve(RESEARCH, write=True)
    stays = gate.resolve(MAIN, write=True)
    assert isinstance(held, Permit)
    assert isinstance(stays, Permit)
    ask(bridge, "access.stores.join", agent="research", name="family")
    with pytest.raises(Denied):
        gate.check(held, write=True)
    gate.check(stays, write=True)


def test_a_move_is_answered_only_when_no_answer_under_the_old_store_can_follow(bridge: KnowledgeBridge) -> None:
    vault_of(bridge, RESEARCH)
    vault_of(bridge, MAIN)
    ask(bridge, "access.stores.share", agent="main", name="family")
    gate = bridge._runtime.gate
    held = gate.resolve(RESEARCH, write=False)
    assert isinstance(held, Permit)
    call = parse_operator_call("access.stores.join", {"agent": "research", "name": "family"}, peer=LOCAL_OPERATOR)
    with gate.lease(held):
        pending = bridge.operate(call)
        shown = ask(bridge, "access.stores.list")  # the authority has done with the move, and answers others
        assert [row.get("name") for row in listed(shown["agents"])] == ["family", "family", None]
        assert not pending.done()
    assert answer(pending)["name"] == "family"


# --- the inventory ---------------------------------------------------------------------------------------------------


def test_looking_at_the_inventory_never_creates_a_store(bridge: KnowledgeBridge) -> None:
    configuration(bridge).write_text(CONFIGURATION + "stores: {family: {label: F, agents: [main]}, idle: {}}\n")
    shown = ask(bridge, "access.stores.list")
    assert [row["agent"] for row in listed(shown["agents"])] == ["main", "research", "garden"]
    assert listed(shown["stores"]) == [
        {"kind": "named", "name": "family", "label": "F", "agents": ["main"], "use": "used", "state": "not_created"},
        {"kind": "named", "name": "idle", "agents": [], "use": "empty", "state": "not_created"},
    ]
    assert stores(bridge.state_dir) == []


def test_a_named_store_whose_entry_was_removed_is_unassigned_keeps_everything_and_can_be_joined_again(
    bridge: KnowledgeBridge,
) -> None:
    remember(bridge, "Kept.")
    vault = vault_of(bridge, MAIN)
    ask(bridge, "access.stores.share", agent="main", name="family")
    configuration(bridge).write_text(CONFIGURATION)
    found = entry(bridge, name="family")
    assert (found["use"], found["state"], found["agents"]) == ("unassigned", "ready", [])
    assert Path(str(found["path"])).is_dir()
    ask(bridge, "access.stores.join", agent="garden", name="family")
    assert (vault_of(bridge, GARDEN), texts(bridge, GARDEN)) == (vault, {"Kept."})


def test_a_named_store_without_agents_stays_in_the_inventory(bridge: KnowledgeBridge) -> None:
    vault_of(bridge, MAIN)
    ask(bridge, "access.stores.share", agent="main", name="family")
    ask(bridge, "access.stores.own", agent="main")
    assert (entry(bridge, name="family")["use"], entry(bridge, name="family")["agents"]) == ("empty", [])
    assert "family" in configuration(bridge).read_text()


def test_an_agent_removed_from_the_host_loses_access_and_its_store_stays(bridge: KnowledgeBridge) -> None:
    remember(bridge, "Kept.", GARDEN)
    vault = vault_of(bridge, GARDEN)
    configuration(bridge).write_text("agents: {list: [{id: main}, {id: research}]}\n")
    found = entry(bridge, vaultId=vault)
    with pytest.raises(Denied):
        bridge.call("knowledge_status", {}, GARDEN)
    assert (found["use"], found["state"], found["agents"]) == ("unassigned", "ready", ["garden"])
    configuration(bridge).write_text(CONFIGURATION)
    assert agent_of(bridge, "garden")["vaultId"] == vault
    assert texts(bridge, GARDEN) == {"Kept."}


@pytest.mark.parametrize("part", ["directory", "manifest", "database"])
def test_a_store_that_lost_a_part_is_listed_as_unavailable_with_what_is_missing(state_dir: Path, part: str) -> None:
    with KnowledgeBridge(state_dir) as bridge:
        vault_of(bridge, MAIN)
    layout = StoreLayout(stores(state_dir)[0])
    lost = {"directory": layout.root, "manifest": layout.manifest, "database": layout.state_database}[part]
    lost.rename(state_dir / "elsewhere")
    with KnowledgeBridge(state_dir) as bridge:
        found = entry(bridge, kind="isolated")
        assert (found["state"], found["missing"]) == ("unavailable", [part])
        report = ask(bridge, "operator.doctor")
        assert report["healthy"] is False
        assert [row["code"] for row in listed(report["findings"])] == ["store_unavailable"]
        with pytest.raises(KnowledgeError) as error:
            bridge.call("knowledge_status", {}, MAIN)
        assert error.value.code in ("store_unavailable", "manifest_missing")
    assert not lost.exists()


# --- who may ---------------------------------------------------------------------------------------------------------


def test_changing_who_uses_a_store_needs_an_admin_and_agents_within_the_role(bridge: KnowledgeBridge) -> None:
    for audience in (MAIN, RESEARCH):
        vault_of(bridge, audience)
    ask(bridge, "access.stores.share", agent="research", name="lab")
    reader = Operator("r", frozenset(("operator.write",)))
    limited = Operator("l", frozenset(("operator.admin",)), ("main",))
    for method in ("share", "join", "own"):
        params: JsonObject = {"agent": "main", **({} if method == "own" else {"name": "lab"})}
        assert isinstance(refused(bridge, f"access.stores.{method}", reader, given=params), Denied)
    beyond: list[tuple[str, JsonObject]] = [
        ("own", {"agent": "research"}),
        ("share", {"agent": "main", "name": "x", "agents": ["research"]}),
        ("join", {"agent": "main", "name": "lab"}),
    ]
    for method, params in beyond:
        error = refused(bridge, f"access.stores.{method}", limited, given=params)
        assert isinstance(error, Denied), method
    assert vault_of(bridge, MAIN) != vault_of(bridge, RESEARCH)


def test_an_operator_with_a_role_sees_its_agents_and_the_stores_that_they_alone_use(bridge: KnowledgeBridge) -> None:
    for audience in (MAIN, RESEARCH):
        vault_of(bridge, audience)
    limited = Operator("l", frozenset(("operator.read",)), ("main",))
    shown = ask(bridge, "access.stores.list", limited)
    assert [row["agent"] for row in listed(shown["agents"])] == ["main"]
    (store,) = listed(shown["stores"])
    assert store["agents"] == ["main"]
    assert "path" not in store, "places are for administrators"
    ask(bridge, "access.stores.share", agent="main", name="family", agents=["research"])
    assert ask(bridge, "access.stores.list", limited)["stores"] == []


def test_operators_who_may_not_read_get_no_inventory(state_dir: Path) -> None:
    (state_dir / "knowledge.yaml").write_text(CONFIGURATION + "operatorRead: false\n")
    reader = Operator("r", frozenset(("operator.read",)))
    with KnowledgeBridge(state_dir) as bridge:
        for method in ("access.stores.list", "access.grants.list"):
            assert isinstance(refused(bridge, method, reader), Denied)


def test_the_doctor_and_the_audit_are_for_administrators_of_every_agent(bridge: KnowledgeBridge) -> None:
    for operator in (
        Operator("r", frozenset(("operator.write",))),
        Operator("l", frozenset(("operator.admin",)), ("main", "research", "garden")),
    ):
        assert isinstance(refused(bridge, "operator.doctor", operator), Denied)
        assert isinstance(refused(bridge, "operator.rebuildRegistry", operator, stores=[]), Denied)
        assert isinstance(refused(bridge, "access.audit", operator), Denied)


def test_operator_reads_never_save(bridge: KnowledgeBridge) -> None:
    remember(bridge, "As it is.")

    def state() -> tuple[dict[str, bytes], object]:
        vault = StoreLayout(stores(bridge.state_dir)[0]).vault
        found = (path for path in vault.rglob("*") if path.is_file() and ".git" not in path.parts)
        history = bridge.call("knowledge_history", {}, MAIN)
        return {str(path): path.read_bytes() for path in found}, history["rows"]

    before = state()
    reader = Operator("r", frozenset(("operator.read",)))
    reads = [method for method, (_, scope) in OPERATOR_METHODS.items() if scope == "operator.read"]
    assert len(reads) >= 4
    record = str(listed(bridge.call("knowledge_records", {}, MAIN)["records"])[0]["id"])
    values: JsonObject = {
        "id": record,
        "query": "is",
        "since": "2026-01-01",
        "until": "2026-02-01",
        "date": "2026-01-01",
        "path": f"artifacts/{uuid.uuid4()}/x.txt",
        "sha256": "0" * 64,
        "sequence": 1,
        "requestId": str(uuid.uuid4()),
    }
    refusals = set()
    for method in reads:
        fields = OPERATOR_METHODS[method][0].model_fields
        names = [field.alias or name for name, field in fields.items() if field.is_required()]
        try:
            ask(bridge, method, reader, {name: values[name] for name in names})
        except KnowledgeError as refusal:
            refusals.add(refusal.code)
    assert refusals <= {"not_found", "evidence_invalid"}, "what names nothing that is there, but was understood"
    for method, (_, scope) in OPERATOR_METHODS.items():
        if scope == "operator.admin":
            with pytest.raises(KnowledgeError) as error:
                ask(bridge, method, reader)
            assert error.value.code in ("denied", "invalid_argument"), method
    assert state() == before


# --- grants ----------------------------------------------------------------------------------------------------------


def conversation(key: str, agent: str = "main") -> Conversation:
    return Conversation(agent, key, str(uuid.uuid5(uuid.NAMESPACE_URL, key)))


def grant(bridge: KnowledgeBridge, key: str, access: str) -> None:
    ask(bridge, "access.grants.set", agent="main", sessionKey=key, access=access)


def test_a_conversation_reads_its_own_partition_until_its_owner_grants_more(bridge: KnowledgeBridge) -> None:
    remember(bridge, "Private.")
    group = conversation("chat:group:1")
    remember(bridge, "Ours.", group)
    assert texts(bridge, group) == {"Ours."}
    grant(bridge, "chat:group:1", "read")
    assert texts(bridge, group) == {"Private."}
    with pytest.raises(ReadOnlyGrant):
        remember(bridge, "No.", group)
    grant(bridge, "chat:group:1", "read-save")
    remember(bridge, "Saved.", group)
    assert texts(bridge) == {"Private.", "Saved."}
    ask(bridge, "access.grants.remove", agent="main", sessionKey="chat:group:1")
    assert texts(bridge, group) == {"Ours."}


def test_a_session_whose_key_extends_a_granted_key_inherits_and_the_most_specific_grant_wins(
    bridge: KnowledgeBridge,
) -> None:
    remember(bridge, "Private.")
    grant(bridge, "chat:group:1", "read-save")
    grant(bridge, "chat:group:1:topic", "read")
    for key in ("chat:group:1", "chat:group:1:other", "chat:group:1:topics"):
        remember(bridge, f"From {key}.", conversation(key))
    for key in ("chat:group:1:topic", "chat:group:1:topic:5"):
        assert "Private." in texts(bridge, conversation(key))
        with pytest.raises(ReadOnlyGrant):
            remember(bridge, "No.", conversation(key))
    for key in ("chat:group:10", "chat:group", "x:chat:group:1"):
        assert texts(bridge, conversation(key)) == set()
    assert texts(bridge, conversation("chat:group:1", "research")) == set(), "a grant is one agent's"


def test_a_grant_that_is_narrowed_or_taken_fails_work_in_flight_at_its_next_check(bridge: KnowledgeBridge) -> None:
    remember(bridge, "Private.")
    grant(bridge, "chat:1", "read-save")
    gate = bridge._runtime.gate
    held = gate.resolve(conversation("chat:1"), write=True)
    assert isinstance(held, Permit)
    grant(bridge, "chat:1", "read")
    gate.check(held, write=False)
    with pytest.raises(Denied):
        gate.check(held, write=True)
    ask(bridge, "access.grants.remove", agent="main", sessionKey="chat:1")
    with pytest.raises(Denied):
        gate.check(held, write=False)


def test_grants_are_kept_over_a_restart_and_are_no_configuration(state_dir: Path) -> None:
    with KnowledgeBridge(state_dir) as bridge:
        grant(bridge, "chat:1", "read")
    with KnowledgeBridge(state_dir) as bridge:
        found = ask(bridge, "access.grants.list", agent="main")
        assert found["grants"] == [{"sessionKey": "chat:1", "access": "read", "known": False}]
        assert configuration(bridge).read_text() == CONFIGURATION


def test_a_grant_tells_whether_a_conversation_is_known_and_the_agents_conversations_are_listed(
    state_dir: Path,
) -> None:
    with KnowledgeBridge(state_dir) as bridge:
        texts(bridge, conversation("chat:1:topic"))
        texts(bridge, conversation("chat:2"))
        texts(bridge, conversation("chat:3", "research"))
        texts(bridge, OwnerPrivate("main", root=conversation("chat:4")))
        grant(bridge, "chat:1", "read")
        grant(bridge, "chat:", "read")
    with KnowledgeBridge(state_dir) as bridge:
        found = ask(bridge, "access.grants.list", agent="main")
        assert {row["sessionKey"]: row["known"] for row in listed(found["grants"])} == {"chat:": False, "chat:1": True}
        known = {str(row["sessionKey"]) for row in listed(found["conversations"])}
        assert known == {"chat:1:topic", "chat:2", "chat:4"}


@pytest.mark.parametrize("point", ["registry.seen.begin", "registry.seen.commit", "registry.seen.commit.after"])
def test_a_disk_that_is_full_costs_the_list_of_conversations_and_nothing_else(
    bridge: KnowledgeBridge, point: str
) -> None:
    def fail(name: str) -> None:
        if name == point:
            raise OSError(28, "No space left on device")

    with faults.installed(fail):
        texts(bridge, conversation("chat:1"))
        assert refused(bridge, "access.grants.list").code == "storage_error"
        texts(bridge, conversation("chat:2"))
    grant(bridge, "chat:1", "read")
    health = bridge.health()["actors"]
    assert [row["crashes"] for row in listed(health) if row["name"] == "root/authority"] == [0]


def test_a_conversation_that_was_refused_is_not_known(bridge: KnowledgeBridge) -> None:
    with pytest.raises(KnowledgeError):
        bridge.call("knowledge_status", {}, conversation("chat:1", "nobody"))
    with pytest.raises(KnowledgeError):
        bridge.call("knowledge_status", {}, Conversation("main", "chat:2", str(uuid.uuid4()), sandboxed=True))
    assert ask(bridge, "access.grants.list", agent="main")["conversations"] == []


def test_grants_are_within_the_operators_role(bridge: KnowledgeBridge) -> None:
    limited = Operator("l", frozenset(("operator.admin",)), ("research",))
    beyond: list[tuple[str, JsonObject]] = [
        ("set", {"sessionKey": "chat:1", "access": "read"}),
        ("remove", {"sessionKey": "chat:1"}),
        ("list", {}),
    ]
    for method, params in beyond:
        assert isinstance(refused(bridge, f"access.grants.{method}", limited, params, agent="main"), Denied)
    assert ask(bridge, "access.grants.list", limited)["agent"] == "research"


# --- the audit -------------------------------------------------------------------------------------------------------


def test_the_audit_says_who_bound_moved_and_granted_what_and_never_a_text(bridge: KnowledgeBridge) -> None:
    remember(bridge, "A secret text.")
    ask(bridge, "access.stores.share", agent="main", name="family")
    grant(bridge, "chat:1", "read")
    ask(bridge, "access.grants.remove", agent="main", sessionKey="chat:1")
    vault = entry(bridge, name="family")["vaultId"]
    ask(bridge, "operator.relocateStore", store=vault, path=str(bridge.state_dir / "moved"))
    rows = listed(ask(bridge, "access.audit")["rows"])
    assert [(row["action"], row["actor"], row["door"]) for row in reversed(rows)] == [
        ("store.create", "main", "tool"),
        ("store.share", "operator:local", "socket"),
        ("grant.set", "operator:local", "socket"),
        ("grant.remove", "operator:local", "socket"),
        ("store.relocate", "operator:local", "socket"),
    ]
    assert "secret" not in str(rows)
    assert len(listed(ask(bridge, "access.audit", limit=2)["rows"])) == 2

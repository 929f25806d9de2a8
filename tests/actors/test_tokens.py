"""Tokens of audiences: what one gives, and every way in which one is refused (decisions.md sections 6 and 7)."""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import logging
import uuid
from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path

import jwt
import pytest
from hypothesis import given
from hypothesis import strategies as st

from actors.authority.tokens import ALGORITHM, TYPE, TokenReader, issuer_of, sign
from host_bridge.bridge import KnowledgeBridge
from host_bridge.config import parse_configuration
from messages.audience import Audience, AudienceToken, Conversation, OwnerPrivate, audience_json, parse_audience
from messages.errors import (
    AudienceStale,
    Denied,
    InvalidArgument,
    KnowledgeError,
    LimitExceeded,
    NotFound,
    ReadOnlyGrant,
    Sandboxed,
    StorageError,
)
from messages.json_types import JsonObject, JsonValue
from messages.operator import LOCAL_OPERATOR, Operator, parse_operator_call
from messages.vocabulary import TOKEN_DEFAULT_SECONDS, TOKEN_MAX_BYTES, TOKEN_MAX_SECONDS
from storage.layout import Layout
from tests.actors.test_operators import answer, listed
from tests.kit.leaks import nothing_left
from tests.kit.store import GROUP, MAIN, failure, items_of, open_bridge, remember, stores, total

HERE = "44444444-4444-4444-8444-444444444444"
READER = TokenReader(HERE, bytes(range(32)))
ID = "55555555-5555-4555-8555-555555555555"
NOW = 1_790_000_000
AGENTS = "agents: {list: [{id: main}, {id: research}]}\n"


def at(seconds: float) -> datetime:
    return datetime.fromtimestamp(seconds, UTC)


def signed(audience: Audience = MAIN, *, issued: int = NOW, seconds: int = 60) -> str:
    return sign(READER, audience, ID, issued=issued, expires=issued + seconds)


# --- what a token gives ------------------------------------------------------------------------------------------


_names = st.text(st.characters(codec="utf-8", exclude_categories=["C", "Z"]), min_size=1, max_size=20)
_instants = st.integers(1_700_000_000_000, 4_000_000_000_000).map(
    lambda millis: at(0) + timedelta(milliseconds=millis)  # what an instant of ours can say
)


@st.composite
def audiences(draw: st.DrawFn, links: int = 4) -> Audience:
    root = draw(audiences(links - 1)) if links and draw(st.booleans()) else None
    run, account = draw(st.none() | _names), draw(st.none() | _names)
    expires, sandboxed = draw(st.none() | _instants), draw(st.booleans())
    agent = draw(_names)
    if draw(st.booleans()):
        session = str(draw(st.uuids()))
        return Conversation(agent, draw(_names), session, run, account, expires, sandboxed, root)
    return OwnerPrivate(agent, run, account, expires, sandboxed, root)


@given(audiences())
def test_verification_gives_exactly_the_audience_that_the_host_would_have_minted_in_process(audience: Audience) -> None:
    assert parse_audience(audience_json(audience)) == audience
    read = READER.read(signed(audience), at(NOW))
    assert read == replace(audience, expires_at=at(NOW + 60), token_id=ID)


def test_a_token_is_signed_with_one_algorithm_and_names_its_type_and_its_installation() -> None:
    token = signed()
    assert jwt.get_unverified_header(token) == {"alg": "HS256", "typ": TYPE, "kid": HERE}
    claims = jwt.decode(token, options={"verify_signature": False})
    assert set(claims) == {"iss", "aud", "jti", "iat", "exp", "audience"}


def test_neither_the_key_nor_a_token_is_in_a_representation() -> None:
    token = signed()
    assert repr(READER.key) not in repr(READER)
    assert "key" not in repr(READER)
    assert token not in repr(AudienceToken(token))


# --- every way in which one is refused ---------------------------------------------------------------------------


CLAIMS: JsonObject = {
    "iss": issuer_of(HERE),
    "aud": issuer_of(HERE),
    "jti": ID,
    "iat": NOW,
    "exp": NOW + 60,
    "audience": {"kind": "owner-private", "agent": "main"},
}
HEADER: JsonObject = {"alg": "HS256", "typ": TYPE, "kid": HERE}


def coded(value: JsonValue) -> str:
    return base64.urlsafe_b64encode(json.dumps(value).encode()).rstrip(b"=").decode()


def made(header: JsonObject | None = None, without: str = "", key: bytes = READER.key, **claims: JsonValue) -> str:
    """A token as somebody may put it together by hand, signed with the key."""
    body = {name: value for name, value in {**CLAIMS, **claims}.items() if name != without}
    text = f"{coded({**HEADER, **(header or {})})}.{coded(body)}"
    mark = hmac.new(key, text.encode(), hashlib.sha256).digest()
    return f"{text}.{base64.urlsafe_b64encode(mark).rstrip(b'=').decode()}"


def unsigned(token: str) -> str:
    return token.rpartition(".")[0] + "."


def changed(token: str, **claims: JsonValue) -> str:
    """The same signature over other claims."""
    head, _, mark = token.split(".")
    return f"{head}.{coded({**CLAIMS, **claims})}.{mark}"


def test_a_token_put_together_by_hand_with_the_key_is_read() -> None:
    assert READER.read(made(), at(NOW)) == OwnerPrivate("main", expires_at=at(NOW + 60), token_id=ID)


OTHER_KEY = bytes(range(1, 33))
OTHER = issuer_of("66666666-6666-4666-8666-666666666666")
PRIVATE_AUDIENCE: JsonObject = {"kind": "owner-private", "agent": "research"}
BAD: list[tuple[str, str, type[KnowledgeError], str]] = [
    ("empty", "", InvalidArgument, "token_malformed"),
    ("a word", "sesame", InvalidArgument, "token_malformed"),
    ("two parts", "a.b", InvalidArgument, "token_malformed"),
    ("four parts", made() + ".x", InvalidArgument, "token_malformed"),
    ("a blank", made() + " ", InvalidArgument, "token_malformed"),
    ("a line end", made() + "\n", InvalidArgument, "token_malformed"),
    ("not ASCII", "\u0430" + made(), InvalidArgument, "token_malformed"),
    ("a surrogate", "\ud800." + made(), InvalidArgument, "token_malformed"),
    ("no JSON", "e30x.e30x.e30x", InvalidArgument, "token_malformed"),
    ("deep JSON", base64.urlsafe_b64encode(b"[" * 9_000).decode().rstrip("=") + ".e30.e30", InvalidArgument,
     "token_malformed"),
    ("of another kind", made({"typ": "JWT"}), InvalidArgument, "token_malformed"),
    ("of no kind", made({"typ": None}), InvalidArgument, "token_malformed"),
    ("another key", made(key=OTHER_KEY), Denied, "token_signature"),
    ("an empty key", made(key=b""), Denied, "token_signature"),
    ("no signature", unsigned(made()), Denied, "token_signature"),
    ("another agent's claims", changed(made(), audience=PRIVATE_AUDIENCE), Denied, "token_signature"),
    ("a later expiry", changed(made(), exp=NOW + 600), Denied, "token_signature"),
    ("alg none", unsigned(made({"alg": "none"})), Denied, "token_algorithm"),
    ("alg None", unsigned(made({"alg": "None"})), Denied, "token_algorithm"),
    ("alg none, signed", made({"alg": "none"}), Denied, "token_algorithm"),
    ("alg HS384", made({"alg": "HS384"}), Denied, "token_algorithm"),
    ("alg hs256", made({"alg": "hs256"}), Denied, "token_algorithm"),
    ("alg RS256", made({"alg": "RS256"}), Denied, "token_algorithm"),
    ("alg a number", made({"alg": 1}), Denied, "token_algorithm"),
    ("foreign", made({"kid": OTHER}), Denied, "token_foreign"),
    ("of no installation", made({"kid": None}), InvalidArgument, "token_malformed"),
    ("foreign, with a copy of the key: issuer", made(iss=OTHER), Denied, "token_foreign"),
    ("foreign, with a copy of the key: audience", made(aud=OTHER), Denied, "token_foreign"),
    ("for several", made(aud=[OTHER, issuer_of(HERE)]), Denied, "token_foreign"),
    *[(f"without {name}", made(without=name), InvalidArgument, "token_malformed") for name in CLAIMS if name != "iss"],
    ("an expiry that is text", made(exp=str(NOW + 60)), InvalidArgument, "token_malformed"),
    ("an expiry that is none", made(exp=None), InvalidArgument, "token_malformed"),
    ("an expiry that is a fraction", made(exp=NOW + 60.5), InvalidArgument, "token_malformed"),
    ("an expiry beyond all time", made(exp=10**30), InvalidArgument, "token_malformed"),
    ("an expiry before its beginning", made(exp=NOW), InvalidArgument, "token_malformed"),
    ("longer than the longest", made(exp=NOW + TOKEN_MAX_SECONDS + 1), InvalidArgument, "token_malformed"),
    ("an id that is a number", made(jti=7), InvalidArgument, "token_malformed"),
    ("an audience that is text", made(audience="main"), InvalidArgument, "token_malformed"),
    ("an audience with more", made(audience={**PRIVATE_AUDIENCE, "tokenId": ID}), InvalidArgument, "token_malformed"),
    ("expired", made(iat=NOW - 60, exp=NOW), AudienceStale, "token_expired"),
    ("not yet", made(iat=NOW + 1), AudienceStale, "token_expired"),
]  # fmt: skip


@pytest.mark.parametrize(("token", "expected", "reason"), [row[1:] for row in BAD], ids=[row[0] for row in BAD])
def test_a_token_that_is_not_exactly_one_of_ours_is_refused_by_a_stable_code_and_not_repeated(
    token: str, expected: type[KnowledgeError], reason: str
) -> None:
    with pytest.raises(expected) as refusal:
        READER.read(token, at(NOW))
    error = refusal.value
    assert (type(error), error.fields["reason"], error.retry) == (expected, reason, "never")
    assert not token or token not in f"{error.message} {error.fields}"
    assert error.__cause__ is None


def test_an_oversized_token_is_refused_before_anything_reads_it() -> None:
    with pytest.raises(LimitExceeded) as refusal:
        READER.read("a" * (TOKEN_MAX_BYTES + 1), at(NOW))
    assert refusal.value.fields == {"field": "audience", "limit": TOKEN_MAX_BYTES}
    with pytest.raises(InvalidArgument):
        READER.read("a" * TOKEN_MAX_BYTES, at(NOW))


@pytest.mark.parametrize(("left", "good"), [(0.001, True), (0.0, False)])
def test_a_token_has_no_leeway(left: float, good: bool) -> None:
    token = signed(seconds=60)
    if good:
        assert READER.read(token, at(NOW + 60 - left)).token_id == ID
    else:
        with pytest.raises(AudienceStale):
            READER.read(token, at(NOW + 60 - left))


def test_with_the_algorithm_not_pinned_the_same_forgery_succeeds() -> None:
    reader = TokenReader(HERE, bytes(range(48)))
    forged = jwt.encode(CLAIMS, reader.key, algorithm="HS384", headers=HEADER | {"alg": "HS384"})
    with pytest.raises(Denied):
        reader.read(forged, at(NOW))
    claims = jwt.decode(
        forged, reader.key, algorithms=[ALGORITHM, "HS384"], audience=issuer_of(HERE),
        options={"verify_exp": False, "verify_iat": False},
    )  # fmt: skip
    assert claims["jti"] == ID


# --- minting, listing and revoking -------------------------------------------------------------------------------


@pytest.fixture(autouse=True)
def leaks() -> Iterator[None]:
    with nothing_left():
        yield


@pytest.fixture
def bridge(tmp_path: Path) -> Iterator[KnowledgeBridge]:
    with open_bridge(tmp_path, AGENTS) as opened:
        yield opened


def ask(
    bridge: KnowledgeBridge, method: str, params: JsonObject | None = None, operator: Operator = LOCAL_OPERATOR
) -> JsonObject:
    return answer(bridge.operate(parse_operator_call(f"access.tokens.{method}", params or {}, peer=operator)))


def refused(act: Callable[[], object]) -> KnowledgeError:
    try:
        found = act()
    except KnowledgeError as error:
        return error
    raise AssertionError(f"answered: {found!r}")


def minted(bridge: KnowledgeBridge, audience: Audience = MAIN, **params: JsonValue) -> tuple[AudienceToken, str]:
    """A new token and its id."""
    shown = ask(bridge, "mint", {"audience": audience_json(audience), **params})
    return AudienceToken(str(shown["token"])), str(shown["id"])


def test_a_token_works_as_its_audience_does_and_creates_the_store_at_its_first_use(bridge: KnowledgeBridge) -> None:
    token, token_id = minted(bridge)
    assert stores(bridge.state_dir) == []
    items_of(bridge.call("knowledge_remember", remembering_one(), token))
    assert total(bridge) == 1
    assert bridge.audience_of(token.text) == replace(
        MAIN, expires_at=bridge.audience_of(token.text).expires_at, token_id=token_id
    )


def remembering_one() -> JsonObject:
    items: list[JsonValue] = [{"text": "By a token.", "kind": "fact"}]
    return {"requestId": str(uuid.uuid4()), "attribution": "t", "excerpt": "By a token.", "items": items}


def test_a_token_of_a_conversation_has_its_partition_and_its_grant_and_no_other(bridge: KnowledgeBridge) -> None:
    remember(bridge, "Private.", 1)
    token, _ = minted(bridge, GROUP)
    assert bridge.call("knowledge_records", {}, token)["total"] == 0
    granted: JsonObject = {"agent": "main", "sessionKey": GROUP.session_key, "access": "read"}
    bridge.ask("access.grants.set", granted)
    assert bridge.call("knowledge_records", {}, token)["total"] == 1
    assert isinstance(refused(lambda: bridge.call("knowledge_remember", remembering_one(), token)), ReadOnlyGrant)


def test_a_token_of_a_child_has_its_roots_partition_and_the_childs_name(bridge: KnowledgeBridge) -> None:
    token, _ = minted(bridge, OwnerPrivate("research", root=GROUP))
    bridge.call("knowledge_remember", remembering_one(), token)
    rows = listed(bridge.call("knowledge_history", {}, GROUP)["rows"])
    assert [row["actor"] for row in rows] == ["research"]


def test_a_token_of_a_sandboxed_caller_reaches_nothing(bridge: KnowledgeBridge) -> None:
    token, _ = minted(bridge, OwnerPrivate("main", sandboxed=True))
    assert isinstance(refused(lambda: bridge.call("knowledge_status", {}, token)), Sandboxed)
    assert isinstance(refused(lambda: bridge.audience_of(token.text)), Sandboxed)


def test_a_token_lasts_an_hour_unless_another_time_is_given_and_never_longer_than_its_audience(
    bridge: KnowledgeBridge,
) -> None:
    def lasts(params: JsonObject, audience: Audience = MAIN) -> int:
        shown = ask(bridge, "mint", {"audience": audience_json(audience), **params})
        claims = jwt.decode(str(shown["token"]), options={"verify_signature": False})
        return int(claims["exp"]) - int(claims["iat"])

    assert lasts({}) == TOKEN_DEFAULT_SECONDS
    assert lasts({"seconds": TOKEN_MAX_SECONDS}) == TOKEN_MAX_SECONDS
    soon = datetime.now(UTC) + timedelta(seconds=600)
    assert lasts({}, OwnerPrivate("main", expires_at=soon)) <= 600
    assert lasts({}, OwnerPrivate("main", root=OwnerPrivate("main", expires_at=soon))) <= 600


@pytest.mark.parametrize(
    ("params", "expected"),
    [
        ({}, InvalidArgument),
        ({"audience": {"kind": "owner-private", "agent": "stranger"}}, Denied),
        ({"audience": {**PRIVATE_AUDIENCE, "root": {"kind": "owner-private", "agent": "stranger"}}}, Denied),
        ({"audience": {**PRIVATE_AUDIENCE, "expiresAt": "2020-01-01T00:00:00Z"}}, AudienceStale),
        ({"audience": PRIVATE_AUDIENCE, "seconds": 0}, InvalidArgument),
        ({"audience": PRIVATE_AUDIENCE, "seconds": TOKEN_MAX_SECONDS + 1}, InvalidArgument),
        ({"audience": PRIVATE_AUDIENCE, "agent": "main"}, InvalidArgument),
        ({"audience": "text"}, InvalidArgument),
        ({"audience": {**PRIVATE_AUDIENCE, "tokenId": ID}}, InvalidArgument),
    ],
)
def test_what_cannot_be_minted_is_refused_and_leaves_nothing_behind(
    bridge: KnowledgeBridge, params: JsonObject, expected: type[KnowledgeError]
) -> None:
    error = refused(lambda: ask(bridge, "mint", params))
    assert type(error) is expected
    assert ask(bridge, "list") == {"tokens": [], "total": 0}
    assert not Layout(bridge.state_dir).root.joinpath("audience.key").exists()


def test_a_chain_that_makes_a_token_too_long_is_refused_before_it_is_noted(bridge: KnowledgeBridge) -> None:
    key = "\u6f22" * 500
    link: JsonObject = {"kind": "conversation", "agent": "main", "sessionKey": key, "sessionId": ID}
    for _ in range(8):
        link = {**link, "root": link, "account": key[:128], "runId": key[:128]}
    assert isinstance(refused(lambda: ask(bridge, "mint", {"audience": link})), LimitExceeded)
    assert ask(bridge, "list")["total"] == 0


def test_a_revoked_token_is_refused_also_when_it_is_replayed_after_a_restart(tmp_path: Path) -> None:
    with open_bridge(tmp_path, AGENTS) as bridge:
        token, token_id = minted(bridge)
        kept, _ = minted(bridge)
        bridge.call("knowledge_status", {}, token)
        shown = ask(bridge, "revoke", {"id": token_id})
        assert (shown["id"], shown["state"]) == (token_id, "revoked")
        assert reason_of(bridge, token) == "token_revoked"
        again = ask(bridge, "revoke", {"id": token_id})
        assert again == shown, "sent again because its answer got lost"
    with open_bridge(tmp_path, AGENTS) as bridge:
        assert reason_of(bridge, token) == "token_revoked"
        bridge.call("knowledge_status", {}, kept)


def test_the_last_token_is_told_as_revoked_too(bridge: KnowledgeBridge) -> None:
    token, token_id = minted(bridge)
    ask(bridge, "revoke", {"id": token_id})
    assert reason_of(bridge, token) == "token_revoked"


def reason_of(bridge: KnowledgeBridge, token: AudienceToken) -> object:
    """The reason for which a call with the token and the token alone are refused: the same."""
    by_call = refused(lambda: bridge.call("knowledge_status", {}, token))
    alone = refused(lambda: bridge.audience_of(token.text))
    assert (type(alone), alone.fields) == (type(by_call), by_call.fields)
    return by_call.fields["reason"]


def test_revoking_what_is_not_there_is_not_found(bridge: KnowledgeBridge) -> None:
    assert isinstance(refused(lambda: ask(bridge, "revoke", {"id": ID})), NotFound)


def test_a_token_of_another_installation_is_refused_even_with_a_copy_of_its_key(tmp_path: Path) -> None:
    here, there = tmp_path / "here", tmp_path / "there"
    with open_bridge(there, AGENTS) as other:
        token, _ = minted(other)
    with open_bridge(here, AGENTS) as bridge:
        assert reason_of(bridge, token) == "token_signature", "nothing was minted here at all"
        minted(bridge)
        assert reason_of(bridge, token) == "token_foreign"
    Layout(here).root.joinpath("audience.key").write_bytes(Layout(there).root.joinpath("audience.key").read_bytes())
    with open_bridge(here, AGENTS) as bridge:
        assert reason_of(bridge, token) == "token_foreign"


def test_an_agent_that_the_host_does_not_know_any_more_has_no_token(tmp_path: Path) -> None:
    with open_bridge(tmp_path, AGENTS) as bridge:
        token, _ = minted(bridge, OwnerPrivate("research"))
        bridge.call("knowledge_status", {}, token)
    with open_bridge(tmp_path) as bridge:
        error = refused(lambda: bridge.call("knowledge_status", {}, token))
        assert isinstance(error, Denied)
        assert error.message == failure(bridge, "status", {}, OwnerPrivate("nobody")).message


def test_a_run_that_ends_takes_its_tokens_along_for_good(tmp_path: Path) -> None:
    run = OwnerPrivate("main", run_id="run 1")
    with open_bridge(tmp_path, AGENTS) as bridge:
        token, _ = minted(bridge, run)
        child, _ = minted(bridge, OwnerPrivate("research", run_id="run 2", root=run))
        other, _ = minted(bridge, OwnerPrivate("main", run_id="run 2"))
        bridge.end_run("run 1")
        for ended in (token, child):
            assert isinstance(refused(partial(bridge.call, "knowledge_status", {}, ended)), AudienceStale)
        assert isinstance(refused(lambda: minted(bridge, run)), AudienceStale)
    with open_bridge(tmp_path, AGENTS) as bridge:
        assert reason_of(bridge, token) == reason_of(bridge, child) == "token_revoked"
        bridge.call("knowledge_status", {}, other)
        rows = listed(bridge.ask("access.audit", {})["rows"])
        assert [row.get("runId") for row in rows if row["action"] == "token.revoke"] == ["run 1", "run 1"]


def test_a_run_beyond_the_bound_is_refused_and_its_tokens_end_all_the_same(
    bridge: KnowledgeBridge, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("actors.authority.gate.ENDED_RUNS_MAX", 1)
    token, _ = minted(bridge, OwnerPrivate("main", run_id="run 2"))
    bridge.end_run("run 1")
    with pytest.raises(LimitExceeded):
        bridge.end_run("run 2")
    assert reason_of(bridge, token) == "token_revoked"
    assert isinstance(failure(bridge, "status", {}, OwnerPrivate("main", run_id="run 1")), AudienceStale)


def test_tokens_are_minted_revoked_and_listed_within_the_operators_role(bridge: KnowledgeBridge) -> None:
    token, token_id = minted(bridge)
    minted(bridge, OwnerPrivate("research"))
    reader = Operator("ana", frozenset(["operator.read"]))
    limited = Operator("ben", frozenset(["operator.admin"]), agents=("research",))
    attempts: list[tuple[str, JsonObject]] = [
        ("mint", {"audience": audience_json(MAIN)}),
        ("mint", {"audience": audience_json(OwnerPrivate("research", root=MAIN))}),
        ("revoke", {"id": token_id}),
        ("list", {"agent": "main"}),
    ]
    for act, params in attempts:
        for operator in (reader, limited):
            error = refused(partial(ask, bridge, act, params, operator))
            assert isinstance(error, Denied), (act, operator.id)
    bridge.call("knowledge_status", {}, token)
    assert [row["agent"] for row in listed(ask(bridge, "list", operator=limited)["tokens"])] == ["research"]
    assert ask(bridge, "list")["total"] == 2
    assert ask(bridge, "list", {"agent": "main", "limit": 1})["total"] == 1
    ask(bridge, "mint", {"audience": audience_json(OwnerPrivate("research"))}, limited)


def test_the_audit_and_the_list_say_who_when_which_id_and_which_door_and_never_the_token(
    bridge: KnowledgeBridge, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    token, token_id = minted(bridge, GROUP)
    bridge.call("knowledge_status", {}, token)
    ask(bridge, "revoke", {"id": token_id})
    refused(lambda: bridge.call("knowledge_status", {}, token))
    revoked, created, mint = listed(bridge.ask("access.audit", {})["rows"])
    assert (mint["action"], mint["actor"], mint["door"], mint["tokenId"]) == (
        "token.mint", "operator:local", "socket", token_id,
    )  # fmt: skip
    assert (mint["agent"], mint["kind"], mint["sessionKey"]) == ("main", "conversation", GROUP.session_key)
    assert created["action"] == "store.create"
    assert (revoked["action"], revoked["tokenId"]) == ("token.revoke", token_id)
    [row] = listed(ask(bridge, "list")["tokens"])
    assert (row["id"], row["state"], row["mintedBy"]) == (token_id, "revoked", "operator:local")
    said = f"{caplog.text}{[vars(record) for record in caplog.records]}{bridge.ask('access.audit', {})}{row}"
    key = Layout(bridge.state_dir).root.joinpath("audience.key").read_bytes()
    for part in (*token.text.split(".")[1:], repr(key), key.hex()):
        assert part not in said
    for path in Layout(bridge.state_dir).root.glob("registry.sqlite*"):
        data = path.read_bytes()
        assert token.text.split(".")[2].encode() not in data
        assert key not in data


def test_the_key_is_for_its_owner_alone_and_one_that_others_may_read_ends_every_token(tmp_path: Path) -> None:
    key = Layout(tmp_path).root / "audience.key"
    with open_bridge(tmp_path, AGENTS) as bridge:
        token, _ = minted(bridge)
        assert key.stat().st_mode & 0o777 == 0o600
        assert len(key.read_bytes()) == 32
    key.chmod(0o640)
    with open_bridge(tmp_path, AGENTS) as bridge:
        bridge.call("knowledge_status", {}, MAIN)
        assert reason_of(bridge, token) == "token_signature"
        error = refused(lambda: minted(bridge))
        assert isinstance(error, StorageError)
        assert error.fields["reason"] == "token_key"
    key.unlink()
    with open_bridge(tmp_path, AGENTS) as bridge:
        assert reason_of(bridge, token) == "token_signature"
        fresh, _ = minted(bridge)
        bridge.call("knowledge_status", {}, fresh)
        assert reason_of(bridge, token) == "token_signature"
        states = {str(row["state"]) for row in listed(ask(bridge, "list")["tokens"])}
        assert states == {"live", "revoked"}, "what the lost key signed is told to be over"


def test_a_registry_that_was_made_anew_knows_no_token_of_the_old_one(tmp_path: Path) -> None:
    with open_bridge(tmp_path) as bridge:
        token, _ = minted(bridge)
        remember(bridge, "A fact.", 1)
        vault = bridge.call("knowledge_status", {}, MAIN)["vaultId"]
    for path in Layout(tmp_path).root.glob("registry.sqlite*"):
        path.unlink()
    with KnowledgeBridge(tmp_path, config=parse_configuration("")) as bridge:
        bridge.ask("operator.rebuildRegistry", {"stores": [{"store": vault, "agent": "main"}]})
        assert total(bridge) == 1
        minted(bridge)
        assert reason_of(bridge, token) == "token_revoked"

"""A rerank endpoint over real HTTP: each server's shape, each refusal, and each way in which a server can fail."""

from __future__ import annotations

import gzip
import json
import socket
import ssl
import threading
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from host_bridge.config import Configuration, parse_configuration
from host_bridge.decisions import DecisionProviders
from host_bridge.decisions.exchange import RESPONSE_MAX_BYTES
from host_bridge.decisions.rerank import read_scores
from messages.envelope import Deadline
from messages.json_types import JsonValue
from messages.provider.decision import (
    BooleanAnswer,
    BooleanQuestion,
    ChoiceQuestion,
    Decision,
    DecisionProvider,
    DecisionRequest,
    DecisionUnavailable,
    Question,
    ScoreQuestion,
)
from tests.host_bridge.decisions.servers import Behaviour, Endpoint, Handler, results, self_signed, serving

MODEL = "Alibaba-NLP/gte-reranker-modernbert-base"
QUERY = "Who looks after\n the boiler?"
PAGES = {"third": "Bob the plumber\n\nFixed the valve.", "first": "Heron", "second": "Ünïcödé 🎉"}
LONG, SHORT = 60.0, 0.3


def question(text: JsonValue) -> BooleanQuestion:
    return BooleanQuestion(text, "The page helps.", "It does not.")


def request_of(state: JsonValue = QUERY, questions: Mapping[str, Question] | None = None) -> DecisionRequest:
    asked = {key: question(text) for key, text in PAGES.items()} if questions is None else questions
    return DecisionRequest(state, asked, "recall-gate", "1")


def configured(url: str, more: str = "") -> Configuration:
    return parse_configuration(
        f"agents: {{defaults: {{decisionModel: rerank/{MODEL}}}}}\n"
        f"models: {{providers: {{rerank: {{baseUrl: '{url}', models: [{{id: {MODEL}}}]{more}}}}}}}\n"
    )


class Asking:
    """A provider over one endpoint, and how often it was about to send."""

    def __init__(self, url: str, more: str = "") -> None:
        configuration = configured(url, more)
        self.providers = DecisionProviders(lambda: configuration)
        self.dispatches = 0

    @property
    def provider(self) -> DecisionProvider:
        found = self.providers.for_agent("main")
        assert found is not None
        return found

    def ask(self, request: DecisionRequest | None = None, *, seconds: float = LONG) -> Decision:
        return self.provider.evaluate(
            request_of() if request is None else request,
            deadline=Deadline.after(seconds),
            before_dispatch=self.before_dispatch,
        )

    def refused(self, request: DecisionRequest | None = None, *, seconds: float = LONG) -> str:
        with pytest.raises(DecisionUnavailable) as caught:
            self.ask(request, seconds=seconds)
        return caught.value.reason

    def before_dispatch(self) -> None:
        self.dispatches += 1


@pytest.fixture
def endpoint() -> Iterator[Endpoint]:
    with serving(lambda handler: results(handler, [0.9, 0.5, 0.1])) as found:
        yield found


@pytest.fixture
def asking(endpoint: Endpoint) -> Iterator[Asking]:
    found = Asking(endpoint.url)
    yield found
    found.providers.close()


# --- what is sent, and what comes back ------------------------------------------------------------------------------


def test_the_state_is_the_query_and_each_questions_instructions_a_document(asking: Asking, endpoint: Endpoint) -> None:
    assert asking.ask() == Decision(
        {
            "third": BooleanAnswer(True, 0.9),
            "first": BooleanAnswer(True, 0.5),
            "second": BooleanAnswer(False, 0.1),
        }
    )
    [seen] = endpoint.seen
    assert seen.path == "/rerank"
    assert seen.body == {"model": MODEL, "query": QUERY, "documents": list(PAGES.values())}
    assert "Authorization" not in seen.headers


def test_rerank_is_appended_to_the_base_url_whatever_its_ending(endpoint: Endpoint) -> None:
    for ending in ("/v1", "/v1/"):
        asking = Asking(endpoint.url + ending)
        asking.ask()
        asking.providers.close()
    assert [seen.path for seen in endpoint.seen] == ["/v1/rerank", "/v1/rerank"]


def cohere(handler: Handler) -> None:
    items = [{"index": 1, "relevance_score": 0.75}, {"index": 0, "relevance_score": 0.25}]
    handler.answer(200, {"id": "x", "results": items, "meta": {"billed_units": {"search_units": 1}}})


def vllm(handler: Handler) -> None:
    items = [
        {"index": 1, "document": {"text": "b"}, "relevance_score": 0.75},
        {"index": 0, "document": {"text": "a"}, "relevance_score": 0.25},
    ]
    handler.answer(200, {"id": "x", "model": "m", "usage": {"total_tokens": 9}, "results": items})


def jina(handler: Handler) -> None:
    items = [{"index": 1, "relevance_score": 0.75}, {"index": 0, "relevance_score": 0.25}]
    handler.answer(200, {"model": "m", "object": "list", "usage": {"total_tokens": 9}, "results": items})


def voyage(handler: Handler) -> None:
    items = [{"relevance_score": 0.75, "index": 1}, {"relevance_score": 0.25, "index": 0}]
    handler.answer(200, {"object": "list", "data": items, "model": "m", "usage": {"total_tokens": 9}})


def infinity(handler: Handler) -> None:
    items = [{"relevance_score": 0.75, "index": 1, "document": None}, {"relevance_score": 0.25, "index": 0}]
    handler.answer(200, {"object": "rerank", "results": items, "usage": {}, "id": "x", "created": 1})


def tei(handler: Handler) -> None:
    if "texts" not in handler.last():
        handler.raw(422, b"Failed to deserialize the JSON body into the target type: missing field `texts`")
    else:
        handler.answer(200, [{"index": 1, "score": 0.75}, {"index": 0, "score": 0.25}])


@pytest.mark.parametrize("behave", [cohere, vllm, jina, voyage, infinity, tei])
def test_the_answer_of_each_known_server_is_understood(behave: Behaviour) -> None:
    with serving(behave) as endpoint:
        asking = Asking(endpoint.url)
        decision = asking.ask(request_of("q", {"a": question("A"), "b": question("B")}))
        asking.providers.close()
    assert decision.answers == {"a": BooleanAnswer(False, 0.25), "b": BooleanAnswer(True, 0.75)}


# --- documents or texts ---------------------------------------------------------------------------------------------


def test_a_refused_form_is_tried_once_with_texts_and_the_working_form_is_remembered(
    asking: Asking, endpoint: Endpoint
) -> None:
    endpoint.behave = tei
    request = request_of("q", {"a": question("A"), "b": question("B")})
    asking.ask(request)
    asking.ask(request)
    forms = ["documents" if "documents" in seen.body else "texts" for seen in endpoint.seen]
    assert forms == ["documents", "texts", "texts"]
    assert endpoint.seen[1].body == {"model": MODEL, "query": "q", "texts": ["A", "B"]}
    assert asking.dispatches == 3


@pytest.mark.parametrize("status", [400, 422])
def test_exactly_one_retry_follows_a_refused_form(asking: Asking, endpoint: Endpoint, status: int) -> None:
    endpoint.behave = lambda handler: handler.answer(status, {"error": "no"})
    assert asking.refused() == "provider-error"
    assert len(endpoint.seen) == 2
    assert asking.dispatches == 2


def test_a_form_that_worked_is_not_retried_but_found_anew_by_the_next_request(
    asking: Asking, endpoint: Endpoint
) -> None:
    asking.ask()
    endpoint.behave = lambda handler: handler.answer(422, {})
    assert asking.refused() == "provider-error"
    assert len(endpoint.seen) == 2
    endpoint.behave = lambda handler: (
        results(handler, [0.5, 0.5, 0.5], "texts") if "texts" in handler.last() else handler.answer(422, {})
    )
    asking.ask()
    assert ["texts" in seen.body for seen in endpoint.seen[2:]] == [False, True]


@pytest.mark.parametrize("status", [401, 403, 404, 405, 413, 415, 429, 500, 502, 503])
def test_any_other_refusal_is_not_retried(asking: Asking, endpoint: Endpoint, status: int) -> None:
    endpoint.behave = lambda handler: handler.answer(status, {"error": "no"})
    expected = {413: "unsupported-input", 429: "overloaded", 503: "overloaded"}.get(status, "provider-error")
    assert asking.refused() == expected
    assert len(endpoint.seen) == 1


# --- before every dispatch ------------------------------------------------------------------------------------------


class Revoked(Exception):
    pass


def test_what_before_dispatch_raises_stops_the_request_and_nothing_is_sent(asking: Asking, endpoint: Endpoint) -> None:
    def revoked() -> None:
        raise Revoked

    with pytest.raises(Revoked):
        asking.provider.evaluate(request_of(), deadline=Deadline.after(LONG), before_dispatch=revoked)
    assert endpoint.seen == []
    asking.ask()  # its place was given back


def test_what_before_dispatch_raises_stops_the_retry(asking: Asking, endpoint: Endpoint) -> None:
    endpoint.behave = tei

    def once() -> None:
        if endpoint.seen:
            raise Revoked

    with pytest.raises(Revoked):
        asking.provider.evaluate(request_of(), deadline=Deadline.after(LONG), before_dispatch=once)
    assert len(endpoint.seen) == 1


def test_what_is_revoked_while_the_connection_is_made_is_not_sent(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    certificate = self_signed(tmp_path)
    monkeypatch.setenv("SSL_CERT_FILE", str(certificate))
    access = {"granted": True}
    received: list[bytes] = []

    def serve(listening: socket.socket) -> None:
        connection, _ = listening.accept()
        access["granted"] = False  # the handshake is still to come
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(certificate)
        connection.settimeout(LONG)
        with context.wrap_socket(connection, server_side=True) as secured:
            received.append(secured.recv(1024))

    def check() -> None:
        if not access["granted"]:
            raise Revoked

    with socket.create_server(("127.0.0.1", 0)) as listening:
        server = threading.Thread(target=serve, args=(listening,))
        server.start()
        asking = Asking(f"https://localhost:{listening.getsockname()[1]}")
        with pytest.raises(Revoked):
            asking.provider.evaluate(request_of(), deadline=Deadline.after(LONG), before_dispatch=check)
        asking.providers.close()
        server.join(LONG)
    assert received == [b""]


# --- what it cannot answer ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "request_",
    [
        request_of({"message": "q"}),
        request_of(None),
        request_of(questions={"a": question(None)}),
        request_of(questions={"a": question(["x"])}),
        request_of(questions={"a": question("x"), "b": ChoiceQuestion("x", {"a": "", "b": ""})}),
        request_of(questions={"a": question("x"), "b": ScoreQuestion("x", ("a", "b"))}),
        request_of("x" * (1024 * 1024)),
        request_of(questions={str(number): question("x") for number in range(257)}),
    ],
)
def test_what_it_cannot_answer_is_rejected_and_not_sent(
    asking: Asking, endpoint: Endpoint, request_: DecisionRequest
) -> None:
    assert asking.refused(request_) == "unsupported-input"
    assert asking.dispatches == 0
    assert endpoint.seen == []
    asking.ask()


# --- invalid responses ----------------------------------------------------------------------------------------------


def written(value: object) -> bytes:
    return json.dumps(value).encode()


def item(index: object, score: object) -> dict[str, object]:
    return {"index": index, "relevance_score": score}


@pytest.mark.parametrize(
    "items",
    [
        [item(0, 0.5), item(1, 1.0000001), item(2, 0.5)],
        [item(0, -0.0001), item(1, 0.5), item(2, 0.5)],
        [item(0, 7.25), item(1, -3.5), item(2, 0.5)],
        [item(0, "0.5"), item(1, 0.5), item(2, 0.5)],
        [item(0, None), item(1, 0.5), item(2, 0.5)],
        [item(0, True), item(1, 0.5), item(2, 0.5)],
        [item(0, 0.5), item(1, 0.5)],
        [item(0, 0.5), item(1, 0.5), item(2, 0.5), item(3, 0.5)],
        [item(0, 0.5), item(1, 0.5), item(1, 0.5)],
        [item(0, 0.5), item(1, 0.5), item(3, 0.5)],
        [item(-1, 0.5), item(1, 0.5), item(2, 0.5)],
        [item("0", 0.5), item(1, 0.5), item(2, 0.5)],
        [item(True, 0.5), item(0, 0.5), item(2, 0.5)],
        [{"relevance_score": 0.5}, item(1, 0.5), item(2, 0.5)],
        [{"index": 0}, item(1, 0.5), item(2, 0.5)],
        [0.5, 0.5, 0.5],
    ],
)
def test_any_bad_item_rejects_the_whole_answer_and_nothing_is_rescaled(
    asking: Asking, endpoint: Endpoint, items: list[object]
) -> None:
    endpoint.behave = lambda handler: handler.answer(200, {"results": items})
    assert asking.refused() == "invalid-response"
    endpoint.behave = lambda handler: handler.answer(200, items)
    assert asking.refused() == "invalid-response"


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"<html>It works!</html>",
        b"null",
        b'"results"',
        b"{}",
        b'{"results": {}}',
        b'{"results": [{"index": 0, "relevance_score": NaN}]}',
        b"\xff\xfe",
        b"[" * 100_000,
    ],
)
def test_what_is_no_list_of_results_is_an_invalid_response(asking: Asking, endpoint: Endpoint, body: bytes) -> None:
    endpoint.behave = lambda handler: handler.raw(200, body)
    assert asking.refused() == "invalid-response"


ITEM = st.fixed_dictionaries(
    {},
    optional={
        "index": st.integers(-1, 3) | st.booleans() | st.none(),
        "relevance_score": st.floats() | st.integers() | st.text(max_size=3),
        "score": st.floats(0, 1) | st.none(),
    },
)


@given(
    st.binary()
    | st.recursive(st.none() | st.booleans() | st.floats() | st.text(max_size=3), st.lists).map(written)
    | st.lists(ITEM, max_size=4).map(written)
    | st.lists(ITEM, max_size=4).map(lambda items: written({"results": items}))
)
def test_any_answer_is_scores_for_all_documents_or_invalid(body: bytes) -> None:
    reason, scores = "", list[float]()
    try:
        scores = read_scores(body, 2)
    except DecisionUnavailable as error:
        reason = error.reason
    assert (reason, len(scores)) in (("", 2), ("invalid-response", 0))
    assert all(0 <= score <= 1 for score in scores)


def test_a_compressed_answer_is_not_unpacked(asking: Asking, endpoint: Endpoint) -> None:
    packed = gzip.compress(b"[" + b" " * 1_000_000)
    endpoint.behave = lambda handler: handler.raw(200, packed, {"Content-Encoding": "gzip"})
    assert asking.refused() == "invalid-response"


def test_an_answer_is_read_up_to_its_bound_and_no_further(asking: Asking, endpoint: Endpoint) -> None:
    def endless(handler: Handler) -> None:
        handler.send_response(200)
        handler.send_header("Connection", "close")
        handler.end_headers()
        while not endpoint.stopping.is_set():
            handler.wfile.write(b" " * 65536)

    endpoint.behave = endless
    assert asking.refused() == "invalid-response"
    endpoint.behave = lambda handler: results(handler, [0.5, 0.5, 0.5])
    asking.ask()


def test_an_answer_as_large_as_the_bound_is_read(asking: Asking, endpoint: Endpoint) -> None:
    body = json.dumps([{"index": index, "score": 0.5} for index in range(3)]).encode()
    endpoint.behave = lambda handler: handler.raw(200, body + b" " * (RESPONSE_MAX_BYTES - len(body)))
    asking.ask()
    endpoint.behave = lambda handler: handler.raw(200, body + b" " * (RESPONSE_MAX_BYTES + 1 - len(body)))
    assert asking.refused() == "invalid-response"


# --- servers that fail ----------------------------------------------------------------------------------------------


def hang(handler: Handler) -> None:
    handler.endpoint.stopping.wait(20)


def drip_headers(handler: Handler) -> None:
    handler.wfile.write(b"HTTP/1.1 200 OK\r\nX-Slow: ")
    handler.drip(b"x")


def drip_body(handler: Handler) -> None:
    handler.send_response(200)
    handler.send_header("Content-Length", "1000000")
    handler.end_headers()
    handler.drip(b" ")


def stop_in_the_middle(handler: Handler) -> None:
    handler.send_response(200)
    handler.send_header("Content-Length", "100")
    handler.end_headers()
    handler.wfile.write(b'{"results": [')
    hang(handler)


@pytest.mark.parametrize("behave", [hang, drip_headers, drip_body, stop_in_the_middle])
def test_the_deadline_ends_the_request_whatever_the_server_does(
    asking: Asking, endpoint: Endpoint, behave: Behaviour
) -> None:
    endpoint.behave = behave
    assert asking.refused(seconds=SHORT) == "deadline"
    endpoint.behave = lambda handler: results(handler, [0.5, 0.5, 0.5])
    asking.ask()


def test_a_request_that_ended_at_its_deadline_leaves_its_connection(asking: Asking, endpoint: Endpoint) -> None:
    def wait_for_the_end(handler: Handler) -> None:
        handler.rfile.read(1)  # nothing comes but the end
        handler.close_connection = True

    endpoint.behave = wait_for_the_end
    assert asking.refused(seconds=SHORT) == "deadline"
    assert endpoint.ended.acquire(timeout=10)


def test_a_server_that_never_accepts_ends_at_the_deadline() -> None:
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        listening.listen(0)
        asking = Asking(f"http://127.0.0.1:{listening.getsockname()[1]}")
        assert asking.refused(seconds=SHORT) == "deadline"
        asking.providers.close()


def test_a_deadline_that_has_passed_sends_nothing(asking: Asking, endpoint: Endpoint) -> None:
    assert asking.refused(seconds=-1) == "deadline"
    assert (asking.dispatches, endpoint.seen) == (0, [])


def test_a_deadline_that_passes_before_the_dispatch_sends_nothing(asking: Asking, endpoint: Endpoint) -> None:
    deadline = Deadline.after(SHORT)

    def slow() -> None:
        threading.Event().wait(deadline.remaining() + 0.001)

    with pytest.raises(DecisionUnavailable) as caught:
        asking.provider.evaluate(request_of(), deadline=deadline, before_dispatch=slow)
    assert caught.value.reason == "deadline"
    assert endpoint.seen == []


def cut(handler: Handler) -> None:
    handler.send_response(200)
    handler.send_header("Content-Length", "100")
    handler.end_headers()
    handler.wfile.write(b'{"results": [')
    handler.close_connection = True


def gone(handler: Handler) -> None:
    handler.close_connection = True


def no_http(handler: Handler) -> None:
    handler.wfile.write(b"220 mail.example ESMTP\r\n")
    handler.close_connection = True


@pytest.mark.parametrize("behave", [cut, gone, no_http])
def test_a_broken_exchange_is_a_provider_error_and_not_repeated(
    asking: Asking, endpoint: Endpoint, behave: Behaviour
) -> None:
    endpoint.behave = behave
    assert asking.refused() == "provider-error"
    assert len(endpoint.seen) == 1


def test_a_refused_connection_is_a_provider_error() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))  # bound and not listening: nobody else can take the port meanwhile
        asking = Asking(f"http://127.0.0.1:{taken.getsockname()[1]}")
        assert asking.refused() == "provider-error"
        asking.providers.close()


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("SSL_CERT_FILE", "/nowhere/certificates.pem"),
        ("HTTPS_PROXY", "gopher://user:secret@proxy.invalid"),
        ("ALL_PROXY", "socks5://user:secret@proxy.invalid"),
        ("NO_PROXY", "[::1"),
    ],
)
def test_an_environment_that_httpx_cannot_use_is_a_provider_error(
    monkeypatch: pytest.MonkeyPatch, name: str, value: str
) -> None:
    monkeypatch.setenv(name, value)
    asking = Asking("https://reranker.invalid")
    assert asking.refused() == "provider-error"
    asking.providers.close()


def test_a_redirect_is_never_followed(asking: Asking, endpoint: Endpoint) -> None:
    with serving(lambda handler: results(handler, [0.5, 0.5, 0.5])) as elsewhere:
        for status in (301, 302, 303, 307, 308):
            endpoint.behave = lambda handler, status=status: handler.answer(  # type: ignore[misc]
                status, {}, {"Location": f"{elsewhere.url}/rerank"}
            )
            assert asking.refused() == "provider-error"
        assert elsewhere.seen == []


def test_tls_is_verified(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    certificate = self_signed(tmp_path)
    with serving(lambda handler: results(handler, [0.5, 0.5, 0.5]), certificate) as endpoint:
        asking = Asking(f"https://localhost:{endpoint.port}")
        assert asking.refused() == "provider-error"
        asking.providers.close()
        assert endpoint.seen == []
        monkeypatch.setenv("SSL_CERT_FILE", str(certificate))
        asking = Asking(f"https://localhost:{endpoint.port}")
        asking.ask()
        asking.providers.close()
        assert len(endpoint.seen) == 1


def test_a_proxy_of_the_environment_is_not_used_for_this_machine(
    asking: Asking, endpoint: Endpoint, monkeypatch: pytest.MonkeyPatch
) -> None:
    with serving(lambda handler: results(handler, [0.5, 0.5, 0.5])) as proxy:
        for name in ("HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy"):
            monkeypatch.setenv(name, proxy.url)
        for name in ("NO_PROXY", "no_proxy"):
            monkeypatch.delenv(name, raising=False)
        asking.ask()
        assert proxy.seen == []


# --- the key --------------------------------------------------------------------------------------------------------

KEY = "sk-example-0123456789"


def test_the_key_of_the_environment_is_sent_and_nowhere_else(
    endpoint: Endpoint, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("RERANK_KEY", f" {KEY}\n")
    asking = Asking(endpoint.url, ", apiKeyEnv: RERANK_KEY")
    with caplog.at_level("DEBUG"):
        asking.ask()
        endpoint.behave = lambda handler: handler.answer(401, {"error": f"bad key {KEY}"})
        with pytest.raises(DecisionUnavailable) as caught:
            asking.ask()
        endpoint.behave = cut
        with pytest.raises(DecisionUnavailable) as broken:
            asking.ask()
    asking.providers.close()
    assert endpoint.seen[0].headers["Authorization"] == f"Bearer {KEY}"
    for error in (caught.value, broken.value):
        assert error.__cause__ is None
        assert error.__context__ is None
    said = [str(caught.value), repr(caught.value), str(broken.value), repr(vars(asking.provider)), caplog.text]
    said += [repr(vars(record)) for record in caplog.records]
    assert not [text for text in said if KEY in text]


def test_the_key_file_is_read_anew_for_every_request(endpoint: Endpoint, tmp_path: Path) -> None:
    file = tmp_path / "key"
    file.write_text(f"{KEY}\n")
    file.chmod(0o600)
    asking = Asking(endpoint.url, f", apiKeyFile: {file}")
    asking.ask()
    file.write_text("another")
    asking.ask()
    asking.providers.close()
    assert [seen.headers["Authorization"] for seen in endpoint.seen] == [f"Bearer {KEY}", "Bearer another"]


@pytest.mark.parametrize("mode", [0o604, 0o620, 0o644, 0o666, 0o601])
def test_a_key_file_that_others_can_touch_or_the_group_can_write_is_refused(
    endpoint: Endpoint, tmp_path: Path, mode: int
) -> None:
    file = tmp_path / "key"
    file.write_text(KEY)
    file.chmod(mode)
    asking = Asking(endpoint.url, f", apiKeyFile: {file}")
    assert not asking.provider.is_ready()
    with pytest.raises(DecisionUnavailable) as caught:
        asking.ask()
    asking.providers.close()
    assert caught.value.reason == "not-configured"
    assert f"{mode:04o}" in caught.value.message
    assert "chmod" in caught.value.message
    assert endpoint.seen == []


@pytest.mark.parametrize("text", ["", "two words", "two\nlines", "schlüssel", "\0"])
def test_what_cannot_be_a_key_is_not_sent_and_not_shown(endpoint: Endpoint, tmp_path: Path, text: str) -> None:
    file = tmp_path / "key"
    file.write_text(text)
    file.chmod(0o600)
    asking = Asking(endpoint.url, f", apiKeyFile: {file}")
    [problem] = asking.providers.problems().values()
    assert not text or text not in problem
    assert asking.refused() == "not-configured"
    asking.providers.close()
    assert endpoint.seen == []


def test_a_missing_key_makes_the_provider_not_ready_and_says_where_it_was_looked_for(
    endpoint: Endpoint, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("RERANK_KEY", raising=False)
    for more, name in ((", apiKeyEnv: RERANK_KEY", "RERANK_KEY"), (f", apiKeyFile: {tmp_path}/none", "none")):
        asking = Asking(endpoint.url, more)
        assert not asking.provider.is_ready()
        assert name in asking.providers.problems()["main"]
        assert asking.refused() == "not-configured"
        asking.providers.close()


def test_a_key_file_that_is_a_pipe_does_not_hold_the_request(endpoint: Endpoint, tmp_path: Path) -> None:
    import os

    os.mkfifo(tmp_path / "key", 0o600)
    asking = Asking(endpoint.url, f", apiKeyFile: {tmp_path}/key")
    assert asking.refused() == "not-configured"
    asking.providers.close()

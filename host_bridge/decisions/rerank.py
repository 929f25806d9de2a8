"""A ``/rerank`` endpoint as a decision provider: the state is the query, each question's instructions a document.

It answers boolean questions about a text; its relevance scores are the probabilities, as they are. One score outside
0..1, one index missing, repeated or foreign, and the whole answer is ``invalid-response``: nothing is rescaled, nothing
made up.

Source: knowledge-more-facts.md section 11 (endpoints, shapes, the retry with ``texts``).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final, Literal, TypeAlias

import orjson

from host_bridge.config import RerankProvider
from host_bridge.decisions.answering import TRUE_FROM, texts_of
from host_bridge.decisions.exchange import Exchange, Loop, Reply
from host_bridge.decisions.keys import KeyUnavailable, read_key
from messages.envelope import Deadline
from messages.provider.decision import (
    BooleanAnswer,
    Decision,
    DecisionRequest,
    DecisionUnavailable,
    is_probability,
)

Form: TypeAlias = Literal["documents", "texts"]
_REFUSES_THE_FORM: Final = frozenset({400, 422})
"""What a server answers that read the body and misses a field in it; 404 and 415 are of the address and the type."""


class RerankEndpoint:
    """One configured endpoint: its connections, its key's place, and the form that it takes. Any thread."""

    def __init__(self, configured: RerankProvider, loop: Loop) -> None:
        self.configured = configured
        self._exchange = Exchange(loop, configured.base_url.rstrip("/") + "/rerank", configured.max_in_flight)
        self._form: Form | None = None

    def problem(self) -> str | None:
        try:
            self._key()
        except KeyUnavailable as error:
            return f"models.providers.rerank: {error}"
        return None

    def scores(
        self, model: str, query: str, documents: Sequence[str], deadline: Deadline, before_dispatch: Callable[[], None]
    ) -> list[float]:
        """The score of each document, in their order. Raises ``DecisionUnavailable``."""
        known = self._form
        reply = self._send(known or "documents", model, query, documents, deadline, before_dispatch)
        used: Form = known or "documents"
        if reply.status in _REFUSES_THE_FORM and known is None:
            used = "texts"
            reply = self._send(used, model, query, documents, deadline, before_dispatch)
        if reply.status in _REFUSES_THE_FORM:
            self._form = None  # another server may answer there by now: the next request finds its form anew
        if reply.status != 200:
            raise _refusal(reply.status)
        scores = read_scores(reply.body, len(documents))
        self._form = used
        return scores

    async def prepare(self) -> None:
        """As :meth:`Exchange.prepare`."""
        await self._exchange.prepare()

    def close(self) -> None:
        """Close its connections once no request uses them."""
        self._exchange.retire()

    def _send(
        self,
        form: Form,
        model: str,
        query: str,
        documents: Sequence[str],
        deadline: Deadline,
        before_dispatch: Callable[[], None],
    ) -> Reply:
        body = orjson.dumps({"model": model, "query": query, form: documents})
        try:
            key = self._key()
        except KeyUnavailable as error:
            raise DecisionUnavailable("not-configured", f"models.providers.rerank: {error}") from None
        return self._exchange.post(body, key, deadline, before_dispatch)

    def _key(self) -> str | None:
        return read_key(self.configured.api_key_env, self.configured.api_key_file)


class RerankModel:
    """One model of an endpoint, as it answers decision requests."""

    def __init__(self, endpoint: RerankEndpoint, model: str) -> None:
        self._endpoint = endpoint
        self._model = model

    def problem(self) -> str | None:
        return self._endpoint.problem()

    def answer(self, request: DecisionRequest, deadline: Deadline, before_dispatch: Callable[[], None]) -> Decision:
        query, documents = texts_of(request, "a reranker")
        scores = self._endpoint.scores(self._model, query, documents, deadline, before_dispatch)
        return Decision(
            {
                key: BooleanAnswer(score >= TRUE_FROM, score)
                for key, score in zip(request.questions, scores, strict=True)
            }
        )

    async def prepare(self) -> None:
        await self._endpoint.prepare()


def read_scores(body: bytes, count: int) -> list[float]:
    """The scores of documents ``0..count-1`` out of an answer of any known shape.

    ``{"results": [...]}`` (Cohere, Jina, vLLM, Infinity), ``{"data": [...]}`` (Voyage) or the bare list (TEI), each
    item with ``index`` and ``relevance_score`` or ``score``; whatever else an item holds is not looked at.

    Raises:
        DecisionUnavailable: ``invalid-response``; one bad item rejects all of them.
    """
    try:
        answer: object = orjson.loads(body)
    except ValueError:
        raise _invalid("the answer is not JSON") from None
    if isinstance(answer, dict):
        answer = answer["results"] if "results" in answer else answer.get("data")
    if not isinstance(answer, list):
        raise _invalid("the answer holds no list of results")
    if len(answer) != count:
        raise _invalid(f"{count} documents were sent and {len(answer)} results came")
    scores: dict[int, float] = {}
    for item in answer:
        if not isinstance(item, dict):
            raise _invalid("a result is not an object")
        index = item.get("index")
        score = item["relevance_score"] if "relevance_score" in item else item.get("score")
        if not isinstance(index, int) or isinstance(index, bool) or not 0 <= index < count:
            raise _invalid("the index of a result is that of no document")
        if index in scores:
            raise _invalid("two results are of the same document")
        if not isinstance(score, (int, float)) or not is_probability(score):
            raise _invalid("a score is not a number from 0 to 1; the server must answer probabilities")
        scores[index] = float(score)
    return [scores[index] for index in range(count)]


def _refusal(status: int) -> DecisionUnavailable:
    if status in (429, 503):
        return DecisionUnavailable("overloaded", f"the endpoint answered {status}: it has too much to do")
    if status == 413:
        return DecisionUnavailable("unsupported-input", "the endpoint answered 413: the request is too large for it")
    if status in (401, 403):
        return DecisionUnavailable("provider-error", f"the endpoint answered {status}: it does not take the key")
    if 300 <= status < 400:
        return DecisionUnavailable("provider-error", f"the endpoint answered {status}: redirects are not followed")
    return DecisionUnavailable("provider-error", f"the endpoint answered {status}")


def _invalid(message: str) -> DecisionUnavailable:
    return DecisionUnavailable("invalid-response", message)

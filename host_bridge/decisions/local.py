"""A decision provider without a server: static word vectors, shared words and the order of the pages.

Of each page it looks at three things: the cosine of the message with the page's nearest passage, the share of the
message's words that the page holds, and its place in the list. A logistic function of these is the probability. Word
vectors are looked up and averaged, which takes less than a millisecond a page, so nothing derived from a page is kept
anywhere, in memory or on disk: what is deleted leaves no vector behind.

The vectors and their tokenizer are two files of the package ``wordllama`` (the extra ``local``). Its code is not run:
it would look for the tokenizer on the network, while the file lies beside it.

Source: SEARCH.md sections 4 and 5 (logistic of cosine, coverage and rank); knowledge-more-facts.md section 10.
"""

from __future__ import annotations

import importlib.util
import math
import re
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol, TypeAlias

from host_bridge.decisions.answering import TRUE_FROM, texts_of
from messages.envelope import Deadline
from messages.provider.decision import BooleanAnswer, Decision, DecisionRequest, DecisionUnavailable

if TYPE_CHECKING:
    import numpy
    from numpy.typing import NDArray
    from tokenizers import Tokenizer

    Vector: TypeAlias = NDArray[numpy.float32]

MAX_IN_FLIGHT: Final = 4
_PACKAGE: Final = "wordllama"
_NEEDED: Final = (_PACKAGE, "numpy", "safetensors", "tokenizers")
_TOKENIZER: Final = "tokenizers/l2_supercat_tokenizer_config.json"
_WEIGHTS: Final = "weights/l2_supercat_256.safetensors"
_PIECE_CHARS: Final = 4096
"""So much text is turned into tokens between two looks at the deadline."""
_BLANK_LINES: Final = re.compile(r"\n\s*\n")


class Features(NamedTuple):
    """Cosine of the nearest passage (-1..1), share of the message's words (0..1), and 1 by the place in the list."""

    cosine: float
    coverage: float
    place: float


@dataclass(frozen=True, slots=True)
class Logistic:
    """Weights of the three features, and the constant."""

    cosine: float
    coverage: float
    place: float
    constant: float

    def probability(self, features: Features) -> float:
        return _sigmoid(
            self.cosine * features.cosine
            + self.coverage * features.coverage
            + self.place * features.place
            + self.constant
        )


FITTED: Final = Logistic(cosine=1.67, coverage=2.69, place=3.03, constant=-4.22)
"""What ``python -m stress gate-fit`` finds on one half of the stress run's corpus; it reports on the other half."""


class Vectors(Protocol):
    """Word vectors and how a text is cut into their tokens. Any thread."""

    def sum_of(self, text: str, /) -> Vector: ...


class LocalModel:
    """The local provider's one model. Loads its files when it is first asked, once. Any thread."""

    def __init__(self, load: Callable[[], Vectors] | None = None) -> None:
        """``load`` brings other vectors than those of the package."""
        self._load = load
        self._lock = threading.Lock()
        self._vectors: Vectors | None = None

    def problem(self) -> str | None:
        if self._vectors is not None or self._load is not None:
            return None
        if all(importlib.util.find_spec(name) is not None for name in _NEEDED):
            return None
        return "decisionModel 'local' needs word vectors; install them: pip install 'knowledge-runtime[local]'"

    def answer(self, request: DecisionRequest, deadline: Deadline, before_dispatch: Callable[[], None]) -> Decision:
        message, documents = texts_of(request, "the local model")
        vectors = self._loaded()
        before_dispatch()
        judged = map(FITTED.probability, look_at(vectors, message, documents, deadline))
        return Decision(
            {
                key: BooleanAnswer(probability >= TRUE_FROM, probability)
                for key, probability in zip(request.questions, judged, strict=True)
            }
        )

    async def prepare(self) -> None:
        with suppress(DecisionUnavailable):
            self._loaded()

    def _loaded(self) -> Vectors:
        with self._lock:
            if self._vectors is None:
                try:
                    self._vectors = load_vectors() if self._load is None else self._load()
                except Exception as error:  # noqa: BLE001 - whatever other people's files and libraries raise
                    raise DecisionUnavailable(
                        "provider-error", f"the local model's files cannot be loaded: {type(error).__name__}"
                    ) from None
            return self._vectors


def look_at(vectors: Vectors, message: str, documents: Sequence[str], deadline: Deadline) -> Iterator[Features]:
    """The features of each document, in their order, which is their rank.

    A document is a title, a blank line and passages apart by blank lines; each passage is compared together with the
    title. Raises ``deadline`` between pieces of a text.
    """
    from storage.search import coverage  # loads SQLite, which a registry without a local model does not need

    query = _unit(_sum(vectors, message, deadline))
    shares = coverage(message, documents)
    for place, (document, share) in enumerate(zip(documents, shares, strict=True), 1):
        title, *passages = _BLANK_LINES.split(document.strip())
        title_sum = _sum(vectors, title, deadline)
        nearest = max(
            float(query @ _unit(title_sum + _sum(vectors, passage, deadline) if passage else title_sum))
            for passage in passages or [""]
        )
        yield Features(nearest, share, 1 / place)


def load_vectors() -> Vectors:
    """The vectors of the installed package. Raises what its files or their libraries raise."""
    found = importlib.util.find_spec(_PACKAGE)
    if found is None or not found.submodule_search_locations:
        raise ModuleNotFoundError(_PACKAGE)
    folder = Path(found.submodule_search_locations[0])
    return _WordVectors(folder / _TOKENIZER, folder / _WEIGHTS)


class _WordVectors:
    def __init__(self, tokenizer: Path, weights: Path) -> None:
        from safetensors.numpy import load_file
        from tokenizers import Tokenizer

        self._tokenizer: Tokenizer = Tokenizer.from_file(str(tokenizer))
        self._tokenizer.no_padding()
        self._tokenizer.no_truncation()
        [self._rows] = load_file(weights).values()

    def sum_of(self, text: str) -> Vector:
        ids = self._tokenizer.encode(text, add_special_tokens=False).ids
        total: Vector = self._rows[ids].sum(axis=0, dtype="float32")
        return total


def _sum(vectors: Vectors, text: str, deadline: Deadline) -> Vector:
    """The sum of the vectors of all words; a mean points the same way."""
    pieces = _pieces(text)
    total = vectors.sum_of(next(pieces))
    for piece in pieces:
        if deadline.passed():
            raise DecisionUnavailable("deadline", "the local model did not finish before the deadline")
        total = total + vectors.sum_of(piece)
    if deadline.passed():
        raise DecisionUnavailable("deadline", "the local model did not finish before the deadline")
    return total


def _pieces(text: str) -> Iterator[str]:
    """The text in pieces, cut at white space where there is some; at least one."""
    start = 0
    while len(text) - start > _PIECE_CHARS:
        end = start + _PIECE_CHARS
        space = text.rfind(" ", start + 1, end)
        end = end if space < 0 else space
        yield text[start:end]
        start = end
    yield text[start:]


def _unit(vector: Vector) -> Vector:
    length = math.sqrt(float(vector @ vector))
    return vector / length if length > 0 else vector


def _sigmoid(value: float) -> float:
    return 1 / (1 + math.exp(-value)) if value >= 0 else math.exp(value) / (1 + math.exp(value))

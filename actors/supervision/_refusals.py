"""The typed answers of requests that are not served: ``safe`` while queued, ``unknown`` once running.

Source: DESIGN.md rules 2, 3, 5 and 6; codes of decisions.md section 7.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import TypeAlias

from actors.supervision._health import Quarantine
from actors.supervision._reply import Phase
from messages.errors import (
    Cancelled,
    FailedClosed,
    InternalError,
    KnowledgeError,
    NotFound,
    Poison,
    Quarantined,
    Restarting,
    Retry,
    Stopping,
    StoreOpening,
    StoreUnavailable,
)
from messages.json_types import JsonValue

Maker: TypeAlias = Callable[[str, Phase], KnowledgeError]


def retry_of(phase: Phase) -> Retry:
    """``safe`` as long as no handler has begun."""
    return "safe" if phase is Phase.QUEUED else "unknown"


def restarting(name: str, phase: Phase, seconds: float | None = None) -> KnowledgeError:
    """The actor died; ``seconds`` until its next start, where that is known."""
    did = "did not run; try again" if phase is Phase.QUEUED else "may have run; repeat it with the same request id"
    when = "" if seconds is None else f" in {_about(seconds)}"
    return _restarting(f"{name} ended and is started again{when}; the request {did}.", retry_of(phase), seconds)


def overdue(name: str, seconds: float | None = None) -> KnowledgeError:
    """Waited for a restart until its deadline; ``seconds`` as in :func:`restarting`."""
    when = "soon" if seconds is None else f"in {_about(seconds)}"
    return _restarting(
        f"{name} was not back at the deadline and is started again {when}; the request did not run. Try again.",
        "safe",
        seconds,
    )


def _about(seconds: float) -> str:
    return f"about {max(seconds, 0.1):.1f} s"


def _restarting(message: str, retry: Retry, seconds: float | None) -> Restarting:
    if seconds is None:
        return Restarting(message, retry=retry)
    return Restarting(message, retry=retry, retryAfterMs=max(1, math.ceil(seconds * 1000)))


def opening(name: str, progress: Mapping[str, JsonValue]) -> KnowledgeError:
    """Waited for an opening until its deadline; ``progress`` is what the actor last said."""
    return StoreOpening(
        f"{name} was still opening at the deadline; the request did not run. Try again.", progress=dict(progress)
    )


def stopping(name: str, phase: Phase) -> KnowledgeError:
    """The actor is stopping or has been stopped."""
    did = "did not run" if phase is Phase.QUEUED else "may have run; look it up by its request id"
    return Stopping(f"{name} is stopping or stopped; the request {did}.", retry=retry_of(phase))


def absent(name: str, _: Phase) -> KnowledgeError:
    """Nobody has a child of that name."""
    return NotFound(f"{name} is not running and nobody starts it by itself; start it first.", name=name)


def stuck(name: str, phase: Phase) -> KnowledgeError:
    """The thread was told to end and has not come back."""
    did = "did not run" if phase is Phase.QUEUED else "may have run"
    return StoreUnavailable(
        f"{name} does not come back from a call; the request {did}. It is served again once the call returns or the "
        "process is restarted.",
        retry=retry_of(phase),
        reason="stuck",
    )


def quarantined(name: str, phase: Phase, quarantine: Quarantine) -> KnowledgeError:
    """Out of service. A store whose halves disagree answers with that very error; the rest is ``quarantined``."""
    cause = quarantine.cause
    if isinstance(cause, FailedClosed):
        return type(cause)(cause.message, retry=cause.retry, **cause.fields)
    return Quarantined(
        f"{name} is out of service since {quarantine.since.isoformat(timespec='seconds')}: {quarantine.reason}. "
        "A person must look at it and release it.",
        retry=retry_of(phase),
        reason=quarantine.reason,
        since=quarantine.since.isoformat(timespec="milliseconds"),
        cause=None if cause is None else cause.code,
    )


def defect(name: str, correlation_id: str) -> KnowledgeError:
    """The handler of this request crashed."""
    return InternalError(
        f"{name} ended the request by a defect; it may have run. Repeat it with the same request id; the log has the "
        f"details under {correlation_id or 'the time of the call'}.",
        correlationId=correlation_id,
    )


def poisoned(name: str, request_key: str) -> KnowledgeError:
    """The request crashed its actor too often."""
    return Poison(
        f"{name} was crashed repeatedly by request {request_key}, which is not run again in this process. "
        "Change it, or report it with the log.",
        requestId=request_key,
    )


def cancelled() -> KnowledgeError:
    """Cancelled before it ran."""
    return Cancelled("The caller cancelled the request before it ran.")

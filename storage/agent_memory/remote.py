"""What the clients of optional packages raise, as errors of ours.

A change that failed on its way may have been made all the same: ``retry`` is ``unknown`` then, and ``safe`` for what
only reads. What the server understood and refused is ``StorageError``, with ``safe`` where it would take it at another
time and ``never`` where it would not.

Source: agent-memory-contract.md section 11.5, decisions.md section 7.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from messages.errors import KnowledgeError, Retry, StorageError, StoreUnavailable

# Names of classes, since the packages are optional. An entry applies to the classes below it too.
_REFUSING: Final = ("AuthenticationError", "AuthorizationError", "NoPermissionError")
_NOT_NOW: Final = ("OutOfMemoryError", "ReadOnlyError", "TryAgainError", "ClusterDownError")
_UNREACHABLE: Final = ("ConnectionError", "TimeoutError", "TransportError", "OSError")
_WRONG: Final = ("ResponseError", "DataError", "ExecAbortError")
_TRANSIENT_STATES: Final = frozenset({"08", "40", "53", "55", "57", "58"})
"""SQLSTATE classes of what passes: connection, rollback, resources, state, intervention, system."""


@contextmanager
def remote(where: str, *, writes: bool = False) -> Iterator[None]:
    """Turns whatever a client raises in the block into a typed error that names the service."""
    try:
        yield
    except KnowledgeError:
        raise
    except Exception as error:
        raise _typed(where, error, writes) from error


def _typed(where: str, error: Exception, writes: bool) -> KnowledgeError:
    lost: Retry = "unknown" if writes else "safe"
    names = {kind.__name__ for kind in type(error).__mro__}
    code = getattr(error, "code", None)
    cause = code if isinstance(code, str) and code else type(error).__name__
    match error:
        case _ if cause is code:  # PostgREST's: an SQLSTATE, or a name of its own
            return _refused(where, cause, "safe" if cause[:2] in _TRANSIENT_STATES else "never")
        case _ if not names.isdisjoint(_REFUSING):
            return _refused(where, cause, "never")
        case _ if not names.isdisjoint(_NOT_NOW):
            return _refused(where, cause, "safe")
        case _ if not names.isdisjoint(_UNREACHABLE):
            return _unreachable(where, cause, lost)
        case _ if not names.isdisjoint(_WRONG):
            return _refused(where, cause, "never")
        case _:
            return StorageError(f"{where} failed ({cause}).", retry=lost, reason="failed", cause=cause)


def _unreachable(where: str, cause: str, retry: Retry) -> StoreUnavailable:
    return StoreUnavailable(
        f"{where} cannot be reached ({cause}); see that it runs, then try again.",
        retry=retry,
        reason="unreachable",
        cause=cause,
    )


def _refused(where: str, cause: str, retry: Retry) -> StorageError:
    return StorageError(f"{where} refused what was asked of it ({cause}).", retry=retry, reason="refused", cause=cause)

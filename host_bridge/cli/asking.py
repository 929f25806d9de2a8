"""One request of a person to the owner, started on demand: for ``adopt`` and ``store``. Standard library only."""

from __future__ import annotations

from host_bridge.owner.client import Lost, OwnerError, reach

TYPE_CHECKING = False
if TYPE_CHECKING:
    from messages.json_types import JsonObject

GRACE_SECONDS = 5.0


def ask(place: str, method: str, params: JsonObject, *, deadline_ms: int) -> JsonObject:
    """The result of an operator's request; raises :class:`OwnerError`. The socket itself says who asks."""
    connection = reach(place)
    try:
        result = connection.request(method, {**params, "deadlineMs": deadline_ms}, deadline_ms / 1000 + GRACE_SECONDS)
    except Lost:
        raise OwnerError(
            "restarting", "The owner ended before it answered. What was asked may have been done.", "unknown"
        ) from None
    except TimeoutError:
        raise OwnerError(
            "deadline", "The owner did not answer by the deadline; what was begun goes on.", "unknown"
        ) from None
    finally:
        connection.close()
    return result if isinstance(result, dict) else {}

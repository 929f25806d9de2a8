"""Going on with the answer to a request, whichever thread gives it."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import TypeVar

from actors.supervision import Reply, log_defect
from messages.errors import InternalError, KnowledgeError

logger = logging.getLogger(__name__)

R = TypeVar("R")


def then(reply: Reply[R], succeed: Callable[[R], None], fail: Callable[[KnowledgeError], object]) -> None:
    """Go on with the value of a reply; whatever goes wrong on the way goes to ``fail``."""

    def answered(done: Reply[R]) -> None:
        error = done.error()
        if error is not None:
            fail(error)
            return
        try:
            succeed(done.result(0))
        except KnowledgeError as refused:
            fail(refused)
        except Exception as defect:  # noqa: BLE001 - whatever it is, the operator must not wait for ever
            log_defect(logger, "an operator's request failed", defect, {})
            fail(InternalError("The runtime failed on this request; its log has the details."))

    reply.add_done_callback(answered)

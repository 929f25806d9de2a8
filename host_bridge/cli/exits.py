"""Exit statuses of the ``knowledge`` command, the same for every subcommand.

=====  ===================================================================================================
0      done
1      a defect of ours; the log has the details
2      the command line cannot be understood
3      refused: the same request will be refused again (bad arguments, no access, stale fence, not found ...)
4      unavailable, and nothing ran: the same command may succeed later (busy, starting, deadline in the queue)
5      no answer, and it may have run: look before you repeat it; a call is repeated with the same requestId
6      doctor, backup or repair: there is something left that a person must look after
130    interrupted
=====  ===================================================================================================
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from host_bridge.owner.client import OwnerError

OK = 0
DEFECT = 1
USAGE = 2
REFUSED = 3
UNAVAILABLE = 4
UNKNOWN = 5
FINDINGS = 6
INTERRUPTED = 130


def status_of(error: OwnerError) -> int:
    """The exit status for a typed failure."""
    if error.code == "internal":
        return DEFECT
    return {"safe": UNAVAILABLE, "unknown": UNKNOWN}.get(error.retry, REFUSED)

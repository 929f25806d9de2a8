"""Commands that do their work in this process and need no owner: which word was given, and how a refusal is told.

Standard library only.
"""

from __future__ import annotations

from host_bridge.cli import output
from host_bridge.cli.options import what_to_do
from host_bridge.owner.client import OwnerError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence


def run_word(arguments: Sequence[str], words: Mapping[str, Callable[[Sequence[str]], int]]) -> int:
    """Run what the first word stands for, with the rest; the exit status. Raises ``UsageError`` for another word."""
    name, rest = (arguments[0], arguments[1:]) if arguments else ("", [])
    command = words.get(name)
    if command is None:
        raise what_to_do(name, tuple(words))
    from messages.errors import KnowledgeError

    try:
        return command(rest)
    except KnowledgeError as error:
        failure = OwnerError(error.code, error.message, error.retry, dict(error.fields))
        return output.failure(failure, compact="--json" in rest, of_store=False)

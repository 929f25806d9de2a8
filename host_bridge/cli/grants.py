"""``knowledge grants``: the grants of ``knowledge conversation``, under the name that the host protocol has for them.

Standard library only.
"""

from __future__ import annotations

from host_bridge.cli import conversation
from host_bridge.cli.options import what_to_do

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

_WORDS = {"list": "list", "set": "grant", "remove": "revoke"}


def run(arguments: Sequence[str]) -> int:
    name, rest = (arguments[0], arguments[1:]) if arguments else ("", [])
    word = _WORDS.get(name)
    if word is None:
        raise what_to_do(name, tuple(_WORDS))
    return conversation.run([word, *rest])

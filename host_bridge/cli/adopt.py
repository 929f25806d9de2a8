"""``knowledge adopt``: plain Markdown files in the vault become pages. Standard library only."""

from __future__ import annotations

import os
import uuid

from host_bridge.cli import exits, output
from host_bridge.cli.asking import ask
from host_bridge.cli.options import STATE_DIR, UsageError, parse, state_dir
from host_bridge.owner.client import OwnerError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

    from messages.json_types import JsonObject

_OPTIONS = {**STATE_DIR, "--agent": True, "--type": True, "--json": False}
_PATHS_MAX = 1_000
_DEADLINE_MS = 120_000


def run(arguments: Sequence[str]) -> int:
    options = parse(arguments, _OPTIONS, words=_PATHS_MAX)
    if not options.words:
        raise UsageError("name a file of the vault, as in: knowledge adopt people/ada.md")
    params: JsonObject = {"requestId": str(uuid.uuid4()), "paths": [_path(word) for word in options.words]}
    for name in ("agent", "type"):
        value = options.get(f"--{name}")
        if value is not None:
            params[name] = value
    compact = options.has("--json")
    try:
        receipt = ask(state_dir(options), "operator.adopt", params, deadline_ms=_DEADLINE_MS)
    except OwnerError as error:
        return output.failure(_as_typed(error, options.words), compact=compact)
    output.emit(output.as_json(receipt, compact=True) if compact else _in_words(receipt))
    return exits.OK if receipt.get("state") in ("published", "pending") else exits.REFUSED


def _path(word: str) -> str:
    """A file that is there from here is meant by its whole path; any other word is a path below the partition."""
    whole = os.path.abspath(word)
    return whole if os.path.isabs(word) or os.path.lexists(whole) else word


def _as_typed(error: OwnerError, words: Sequence[str]) -> OwnerError:
    """The failure with the word that was typed in the place of ``paths[2]``, and where that was looked for."""
    field = error.fields.get("field")
    for index, word in enumerate(words):
        if field == f"paths[{index}]":
            path = _path(word)
            below = f"below the agent's private folder, as there is no {os.path.abspath(word)}"
            where = f"at {path}" if os.path.isabs(path) else below
            message = error.message.replace(f"paths[{index}]", word, 1)
            return OwnerError(error.code, f"{message} It was looked for {where}.", error.retry, {**error.fields})
    return error


def _in_words(receipt: JsonObject) -> str:
    items = receipt.get("items")
    rows = [item for item in items if isinstance(item, dict)] if isinstance(items, list) else []
    if receipt.get("state") != "published":
        return str(receipt.get("message", f"The adoption is {receipt.get('state')}."))
    lines = [f"  {row.get('path')}  {row.get('type')}  {row.get('id')}" for row in rows]
    return output.told([f"Adopted {len(rows)} file{'' if len(rows) == 1 else 's'}:", *lines])

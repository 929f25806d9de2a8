"""``knowledge doctor``: what is wrong with the registry and the stores, and making a lost registry anew.

Standard library only.
"""

from __future__ import annotations

import os
import uuid

from host_bridge.cli import exits, output
from host_bridge.cli.asking import ask
from host_bridge.cli.options import STATE_DIR, UsageError, parse, state_dir
from host_bridge.cli.stores import rows_of
from host_bridge.owner.client import OwnerError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

    from messages.json_types import JsonObject

_DEADLINE_MS = 120_000
_WORDS_MAX = 10_000
_EXAMPLE = "knowledge doctor rebuild agent:main=ID --yes"


def run(arguments: Sequence[str]) -> int:
    options = parse(arguments, {**STATE_DIR, "--json": False, "--yes": False}, words=_WORDS_MAX)
    compact, place = options.has("--json"), state_dir(options)
    params: JsonObject = {}
    if options.words and options.words[0] != "rebuild":
        raise UsageError(f"unexpected word {options.words[0]!r}; the only word here is rebuild")
    if options.words:
        params = _rebuilding(options.words[1:])
        if not options.has("--yes"):
            raise UsageError(
                "this makes a new registry from what is named here; look at `knowledge doctor` first, then add --yes"
            )
    elif options.has("--yes"):
        raise UsageError("--yes belongs to `knowledge doctor rebuild`")
    try:
        method = "operator.rebuildRegistry" if options.words else "operator.doctor"
        result = ask(place, method, params, deadline_ms=_DEADLINE_MS)
    except OwnerError as error:
        return output.failure(error, compact=compact)
    if compact:
        output.emit(output.as_json(result, compact=True))
    elif options.words:
        output.emit(_rebuilt(result))
    else:
        output.emit(_in_words(result))
    return exits.OK if options.words or result.get("healthy") is True else exits.FINDINGS


def _rebuilding(words: Sequence[str]) -> JsonObject:
    stores: list[JsonObject] = []
    places: list[str] = []
    for word in words:
        if word.startswith("place="):
            places.append(os.path.abspath(os.path.expanduser(word.removeprefix("place="))))
            continue
        holder, _, store = word.rpartition("=")
        try:
            item: JsonObject = {"store": str(uuid.UUID(store))}
        except ValueError:
            raise UsageError(f"{word!r} ends with no store's id, as in: {_EXAMPLE}") from None
        kind, _, name = holder.partition(":")
        if kind == "agent" and name:
            item["agent"] = name
        elif kind == "store" and name:
            item["name"] = name
        elif holder != "nobody":
            raise UsageError(f"{word!r} says not whose: write agent:NAME=ID, store:NAME=ID or nobody=ID")
        stores.append(item)
    return {"stores": [*stores], "places": [*places]}


def _rebuilt(result: JsonObject) -> str:
    stores = result.get("stores")
    number = len(stores) if isinstance(stores, list) else 0
    return (
        f"The registry is new and knows {number} store{'' if number == 1 else 's'}. The old files are kept as "
        f"{result.get('setAside')}. Conversation grants and the schedule of maintenance are not in it; set them again."
    )


def _in_words(result: JsonObject) -> str:
    findings = rows_of(result, "findings")
    if not findings:
        number = len(rows_of(result, "stores"))
        places = "its one store is" if number == 1 else f"its {number} stores are"
        return f"All is well: the registry is whole, and {places} where it says."
    lines = []
    for finding in findings:
        about = [f"{key} {finding[key]}" for key in ("agent", "vaultId", "path") if finding.get(key)]
        lines.append(f"{finding.get('code')}: {finding.get('message')}")
        lines += [f"  {'; '.join(about)}"] if about else []
    found = rows_of(result, "found")
    if result.get("rebuildable") is True:
        lines += ["", "Stores on disk:"] if found else ["", "No store lies in the state directory."]
        for store in found:
            writers = store.get("writers")
            names = ", ".join(map(str, writers)) if isinstance(writers, list) and writers else "nobody"
            problem = f"; {store.get('problem')}" if store.get("problem") else ""
            lines.append(f"  {store.get('vaultId')}  {store.get('revisions')} revisions, by {names}{problem}")
        lines.append(
            "If no backup has the registry, make a new one: say of each store whose it is (agent:NAME=ID, "
            "store:NAME=ID, or nobody=ID), and name stores that lie elsewhere with place=PATH, as in:"
        )
        lines.append(f"  {_suggestion(found)}")
    return output.told(lines)


def _suggestion(found: Sequence[JsonObject]) -> str:
    words = [f"agent:NAME={store['vaultId']}" for store in found if store.get("vaultId")]
    return " ".join(["knowledge doctor rebuild", *words, "--yes"])

"""``knowledge inspect``: look into an agent's store as an operator does: complete, bounded, and saving nothing.

Standard library only. What is shown in words is a part of the answer; ``--json`` gives the whole of it.
"""

from __future__ import annotations

from host_bridge.cli import exits, output
from host_bridge.cli.asking import ask
from host_bridge.cli.inspect_words import in_words
from host_bridge.cli.options import STATE_DIR, Options, UsageError, near, parse, state_dir
from host_bridge.owner.client import OwnerError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from messages.json_types import JsonObject, JsonValue

_DEADLINE_MS = 60_000
_COMMON = {**STATE_DIR, "--agent": True, "--json": False}
_PAGE = {"--limit": True, "--offset": True}
_NARROW = {"--kind": True, "--type": True, "--tag": True, "--lifecycle": True}
_DATES = {"--time-field": True, "--since": True, "--until": True}
_NUMBERS = ("--limit", "--offset", "--max-chars", "--before", "--evidence-offset")
_LARGEST = 2**53 - 1


class _View:
    """One thing to look at: its method, the argument that its word is, whether the word is needed, and its options."""

    def __init__(self, method: str, options: Mapping[str, bool], word: str = "", *, needed: bool = False) -> None:
        self.method = f"operator.{method}"
        self.options = {**_COMMON, **options}
        self.word = word
        self.needed = needed


VIEWS = {
    "recent": _View("recent", {**_NARROW, **_PAGE}),
    "records": _View(
        "records",
        {**_NARROW, **_DATES, **_PAGE, "--match": True, "--origin": True, "--order": True, "--descending": False},
    ),
    "tags": _View("tags", _PAGE),
    "search": _View("search", {**_NARROW, **_DATES, **_PAGE, "--mode": True}, "query", needed=True),
    "lookup": _View("lookup", {**_NARROW, **_PAGE}, "query", needed=True),
    "record": _View(
        "record",
        {"--path": True, "--offset": True, "--max-chars": True, "--evidence-offset": True},
        "id",
        needed=True,
    ),
    "connections": _View("connections", {**_PAGE, "--direction": True, "--historical": False}, "id", needed=True),
    "timeline": _View(
        "timeline",
        {**_DATES, **_PAGE, "--kind": True, "--subject": True, "--owner": True, "--claim-kind": True, "--order": True},
    ),
    "history": _View("history", _PAGE, "id"),
    "vocabulary": _View("vocabulary", {**_PAGE, "--view": True, "--kind": True}, "name"),
    "activity": _View("activity", {"--limit": True, "--before": True}),
    "diagnostics": _View("diagnostics", {"--limit": True}),
}
_ALL = ", ".join(VIEWS)


def run(arguments: Sequence[str]) -> int:
    name, rest = (arguments[0], arguments[1:]) if arguments else ("", [])
    view = VIEWS.get(name)
    if view is None:
        if name and not name.startswith("-"):
            raise UsageError(f"there is no view {name!r}{near(name, VIEWS) or f'; there are {_ALL}'}")
        raise UsageError(f"say what to look at: {_ALL}")
    options = parse(rest, view.options, words=1 if view.word else 0)
    if view.needed and not options.words:
        raise UsageError(f"{name} needs {'an' if view.word == 'id' else 'a'} {view.word}")
    compact = options.has("--json")
    try:
        answer = ask(state_dir(options), view.method, _params(view, options), deadline_ms=_DEADLINE_MS)
    except OwnerError as error:
        return output.failure(error, compact=compact)
    output.emit(output.as_json(answer, compact=True) if compact else in_words(name, answer))
    # A list may be empty; one record that is not there is what was asked for and not found.
    return exits.REFUSED if name == "record" and answer.get("state") == "missing" else exits.OK


def _params(view: _View, options: Options) -> JsonObject:
    params: JsonObject = {} if not options.words else {view.word: options.words[0]}
    for name, takes_value in view.options.items():
        if (name in _COMMON and name != "--agent") or not options.has(name):
            continue
        params[_key(name)] = _value(name, options) if takes_value else True
    return params


def _value(name: str, options: Options) -> JsonValue:
    return options.whole_number(name, 0, _LARGEST) if name in _NUMBERS else options.get(name)


def _key(name: str) -> str:
    head, *rest = name.removeprefix("--").split("-")
    return head + "".join(part.capitalize() for part in rest)

"""``knowledge system-memory``: the door of observers and stewards. Standard library only.

Who is a steward, the configuration says (``systemMemory.stewards``); the command line only says who acts.
"""

from __future__ import annotations

import re

from host_bridge.cli import exits, output
from host_bridge.cli.asking import ask
from host_bridge.cli.options import STATE_DIR, UsageError, parse, state_dir, what_to_do
from host_bridge.cli.stores import rows_of
from host_bridge.owner.client import OwnerError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from host_bridge.cli.options import Options
    from messages.json_types import JsonObject

_DEADLINE_MS = 60_000
_JSON = {**STATE_DIR, "--json": False}
_CLAIM = {"--slug": True, "--body": True, "--tier": True, "--as-of": True, "--evidence": True, "--entity": True}
_NAMED = {"--slug": "slug", "--body": "body", "--tier": "tier", "--as-of": "asOf", "--entity": "entity"}
_EVIDENCE = ("--evidence",)
# A digest that names its algorithm holds a colon, and so may what it is the digest of.
_NAMED_DIGEST = re.compile(r"(.+):((?:sha[0-9]+|blake[23][a-z]*|md5):[0-9A-Za-z+/=_-]+)", re.DOTALL)


def run(arguments: Sequence[str]) -> int:
    name, rest = (arguments[0], arguments[1:]) if arguments else ("", [])
    actions = {
        "observe": _observe,
        "challenge": _challenge,
        "admit": _admit,
        "refute": _refute,
        "supersede": _supersede,
        "promote": _promote,
        "status": _status,
        "ready": _ready,
        "show": _show,
        "erase": _erase,
    }
    if name not in actions:
        raise what_to_do(name, tuple(actions))
    return actions[name](rest)


def _observe(arguments: Sequence[str]) -> int:
    options = parse(arguments, {**_JSON, "--account": True, **_CLAIM}, repeated=_EVIDENCE)
    params: JsonObject = {"account": _given(options, "--account", "whose claim it is"), **_claim(options)}
    return _done(options, "steward.observe", params, lambda made: f"Observed as {made.get('id')}; a steward admits it.")


def _challenge(arguments: Sequence[str]) -> int:
    known = {**_JSON, "--account": True, "--ground": True, "--evidence": True}
    options = parse(arguments, known, words=1, repeated=_EVIDENCE)
    params = _about(options, "the claim's id")
    params |= {"account": _given(options, "--account", "who challenges it"), **_ground(options), **_evidence(options)}
    return _done(options, "steward.challenge", params, _recorded)


def _admit(arguments: Sequence[str]) -> int:
    options = parse(arguments, {**_JSON, "--steward": True, "--verdict": True, "--ground": True}, words=1)
    verdict = options.get("--verdict")
    if verdict not in ("admitted", "rejected"):
        raise UsageError("say what you decided: --verdict admitted or --verdict rejected")
    params = _about(options, "the claim's id")
    params |= {"steward": _steward(options), "verdict": verdict, **_ground(options)}
    return _done(options, "steward.admit", params, _recorded)


def _refute(arguments: Sequence[str]) -> int:
    options = parse(arguments, {**_JSON, "--steward": True, "--ground": True}, words=1)
    params = _about(options, "the challenge's id")
    params |= {"steward": _steward(options), **_ground(options)}
    return _done(options, "steward.refute", params, _recorded)


def _supersede(arguments: Sequence[str]) -> int:
    known = {**_JSON, "--account": True, "--steward": True, **_CLAIM}
    options = parse(arguments, known, words=1, repeated=_EVIDENCE)
    account, steward = options.get("--account"), options.get("--steward")
    if (account is None) == (steward is None):
        raise UsageError("say who corrects it: its author with --account A, or a steward with --steward A")
    params = _about(options, "the claim's id")
    params |= {"steward": steward} if account is None else {"account": account}
    params |= _claim(options)
    return _done(
        options, "steward.supersede", params, lambda made: f"Superseded by {made.get('id')}; a steward admits that."
    )


def _promote(arguments: Sequence[str]) -> int:
    known = {**_JSON, "--steward": True, "--stance": True, "--slug": True, "--evidence": True}
    options = parse(arguments, {**known, "--entity": True, "--as-of": True}, words=1, repeated=_EVIDENCE)
    params = _about(options, "the claim's id")
    params |= {"steward": _steward(options), **_claim(options)}
    stance = options.get("--stance")
    if stance is not None:
        params["stance"] = stance

    def in_words(made: JsonObject) -> str:
        return (
            f"Promoted: the claim's live home is the stance {made.get('stance')} now; {made.get('id')} points there.\n"
            "The claim and its records stay readable: knowledge system-memory show ID"
        )

    return _done(options, "steward.promote", params, in_words)


def _status(arguments: Sequence[str]) -> int:
    options = parse(arguments, _JSON, words=1)

    def in_words(found: JsonObject) -> str:
        claims = found.get("claims")
        if isinstance(claims, dict):
            return "\n".join(f"{name + ':':<12} {number}" for name, number in claims.items())
        return f"{found.get('status') or 'no claim of system memory'}"

    params: JsonObject = {"id": options.words[0]} if options.words else {}
    return _done(options, "steward.status", params, in_words)


def _ready(arguments: Sequence[str]) -> int:
    options = parse(arguments, _JSON)

    def in_words(found: JsonObject) -> str:
        asked = found.get("thresholds")
        days, sessions = (asked.get("unchallengedDays"), asked.get("sessions")) if isinstance(asked, dict) else (0, 0)
        what = f"admitted, no challenge open in {days} days, recalled in {sessions} sessions"
        rows = rows_of(found, "memories")
        if not rows:
            return f"No claim is ready to be reviewed into a stance ({what})."
        return output.told([f"Ready to be reviewed into a stance ({what}):", *map(_line, rows)])

    return _done(options, "steward.ready", {}, in_words)


def _show(arguments: Sequence[str]) -> int:
    options = parse(arguments, {**_JSON, "--limit": True}, words=1)
    if options.words:
        return _done(options, "steward.show", {"id": options.words[0]}, _in_full)
    limit = options.whole_number("--limit", 1, 200)

    def in_words(found: JsonObject) -> str:
        rows = rows_of(found, "memories")
        return output.told(map(_line, rows)) if rows else "Nothing was observed yet: knowledge system-memory observe"

    return _done(options, "steward.show", {} if limit is None else {"limit": limit}, in_words)


def _erase(arguments: Sequence[str]) -> int:
    options = parse(arguments, {**_JSON, "--account": True, "--yes": False})
    account = _given(options, "--account", "whose rows and records go")
    if not options.has("--yes"):
        raise UsageError("this deletes every row and record of the account for good; say --yes")

    def in_words(found: JsonObject) -> str:
        return f"Erased: {found.get('erased')} rows of {account}, with what it had said of others' claims."

    return _done(options, "steward.erase", {"account": account}, in_words)


def _in_full(row: JsonObject) -> str:
    lines = [_line(row).strip(), f"  {row.get('body')}"]
    lines += [f"  {key}: {row.get(key)}" for key in ("entity", "supersededBy", "stance") if row.get(key) is not None]
    for entry in rows_of(row, "evidenceRefs"):
        lines.append(f"  evidence: {entry.get('kind')} {entry.get('ref')} {entry.get('digest')}")
    counters = row.get("counters")
    if isinstance(counters, dict):
        lines.append("  " + ", ".join(f"{name} {value}" for name, value in counters.items() if value is not None))
    for record in rows_of(row, "records"):
        what = record.get("verdict") or record.get("role")
        who = f"{what} by {record.get('author')} ({record.get('id')})"
        lines.append(f"  {record.get('insertedAt')}  {who}: {record.get('ground')}")
    return output.told(lines)


def _line(row: JsonObject) -> str:
    counters = row.get("counters")
    times = f", recalled in {counters.get('sessions')} sessions" if isinstance(counters, dict) else ""
    status = f", {row.get('status')}" if row.get("status") else ""
    return f"  {row.get('id')}  {row.get('slug')} by {row.get('account')}, as of {row.get('asOf')}{status}{times}"


def _recorded(record: JsonObject) -> str:
    return f"Recorded as {record.get('id')}; the claim is {record.get('status')} now."


def _about(options: Options, what: str) -> JsonObject:
    if not options.words:
        raise UsageError(f"name {what}; `knowledge system-memory show` lists claims, `show ID` the records of one")
    return {"id": options.words[0]}


def _given(options: Options, name: str, what: str) -> str:
    value = options.get(name)
    if value is None:
        raise UsageError(f"say {what}: {name} A")
    return value


def _steward(options: Options) -> str:
    return _given(options, "--steward", "which steward decides")


def _ground(options: Options) -> JsonObject:
    return {"ground": _given(options, "--ground", "why, in a sentence").strip()}


def _claim(options: Options) -> JsonObject:
    given = {key: options.get(name) for name, key in _NAMED.items()}
    return {**{key: value for key, value in given.items() if value is not None}, **_evidence(options)}


def _evidence(options: Options) -> JsonObject:
    references: list[JsonObject] = []
    for text in options.all("--evidence"):
        kind, _, rest = text.partition(":")
        named = _NAMED_DIGEST.fullmatch(rest)
        ref, _, digest = rest.rpartition(":") if named is None else (named[1], "", named[2])
        if not (kind and ref and digest):
            raise UsageError(
                "evidence is KIND:REF:DIGEST with the kind receipt, memory or url, as "
                "url:https://example.org/report:sha256:2c26b46b"
            )
        references.append({"kind": kind, "ref": ref, "digest": digest})
    return {"evidenceRefs": [*references]} if references else {}


def _done(options: Options, method: str, params: JsonObject, in_words: Callable[[JsonObject], str]) -> int:
    compact = options.has("--json")
    try:
        result = ask(state_dir(options), method, params, deadline_ms=_DEADLINE_MS)
    except OwnerError as error:
        return output.failure(error, compact=compact)
    output.emit(output.as_json(result, compact=True) if compact else in_words(result))
    return exits.OK

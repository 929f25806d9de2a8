"""``knowledge conversation``: which conversations read an agent's memory; exporting or erasing one's own.

Standard library only.
"""

from __future__ import annotations

import os
import uuid

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
_LONG_MS = 600_000
_OPTIONS = {**STATE_DIR, "--agent": True, "--json": False}
_SHOWN = 20
ACCESS = {"read": "can read", "read-save": "can read and save"}


def run(arguments: Sequence[str]) -> int:
    name, rest = (arguments[0], arguments[1:]) if arguments else ("", [])
    if name == "list":
        options = parse(rest, _OPTIONS)
        return _done(options, "access.grants.list", {})
    if name == "grant":
        options = parse(rest, _OPTIONS, words=2)
        if len(options.words) == 2 and options.words[1] not in ACCESS:
            raise UsageError(f"the access is read or read-save, not {options.words[1]!r}")
        if len(options.words) != 2:
            raise UsageError(
                "name the conversation's session key and the access, as in: knowledge conversation grant --agent main "
                "chat:group:42 read"
            )
        return _done(options, "access.grants.set", {"sessionKey": options.words[0], "access": options.words[1]})
    if name == "revoke":
        options = parse(rest, _OPTIONS, words=1)
        if not options.words:
            raise UsageError("name the session key of the grant; `knowledge conversation list` shows them")
        key = options.words[0]

        def revoked(result: JsonObject) -> str:
            # The same words whether there was one: what holds now is what a person wants to know.
            return output.told([f"{key} has no grant of its own now.", *_in_words(result).split("\n")])

        return _answered(options, "access.grants.remove", {"sessionKey": key, "agent": _agent(options)}, revoked)
    if name == "export":
        return _export(rest)
    if name == "erase":
        return _erase(rest)
    raise what_to_do(name, ("list", "grant", "revoke", "export", "erase"))


def _erase(arguments: Sequence[str]) -> int:
    options = parse(arguments, {**_OPTIONS, "--yes": False, "--dry-run": False, "--discard-git": False}, words=1)
    if not options.words:
        raise UsageError("name the conversation's session id, the name of its folder in the vault")
    session, agent = _session(options.words[0]), _agent(options)
    dry = options.has("--dry-run")
    if dry == options.has("--yes"):
        raise UsageError("this cannot be undone: look at it with --dry-run first, then say --yes instead")
    params: JsonObject = {"agent": agent, "session": session}
    if dry:
        params["dryRun"] = True
    if options.has("--discard-git"):
        params["discardGit"] = True
    return _answered(options, "operator.eraseConversation", params, _erased, deadline_ms=_LONG_MS)


def _erased(result: JsonObject) -> str:
    what = (
        f"{_counted(result, 'record')} with {_counted(result, 'revision')}, and {_counted(result, 'file')} of "
        f"{result.get('bytes')} bytes"
    )
    git = result.get("git")
    others = isinstance(git, dict) and (git.get("commits") or git.get("references") or not git.get("known"))
    if result.get("state") == "dry_run":
        lines = [f"Nothing was erased. --yes would erase {what}; the local Git history would be built anew."]
        if others:
            lines.append("That history holds commits or branches that are not ours; they would go with --discard-git.")
    else:
        lines = [f"Erased: {what}. The local Git history is built anew from what is left."]
    copies = result.get("copies")
    if isinstance(copies, list) and copies:
        lines.append("Copies in the store's folder that may still hold it, for you to delete:")
        lines += [f"  {name}" for name in copies]
    return "\n".join(lines)


def _export(arguments: Sequence[str]) -> int:
    options = parse(arguments, _OPTIONS, words=2)
    if len(options.words) != 2:
        raise UsageError(
            "name the conversation's session id and a folder that does not exist yet, as in: knowledge conversation "
            "export --agent main 33333333-3333-4333-8333-333333333333 ./chat"
        )
    params: JsonObject = {
        "agent": _agent(options),
        "session": _session(options.words[0]),
        "path": os.path.abspath(options.words[1]),
    }

    def in_words(result: JsonObject) -> str:
        skipped = result.get("skipped")
        left = f"\n{skipped} links or devices were left out." if skipped else ""
        return (
            f"{result.get('path')} has {_counted(result, 'record')} with {_counted(result, 'revision')}: "
            f"{_counted(result, 'file')}, {result.get('bytes')} bytes.{left}\n"
            "To check them: sha256sum --check SHA256SUMS"
        )

    return _answered(options, "operator.exportConversation", params, in_words, deadline_ms=_LONG_MS)


def _counted(result: JsonObject, thing: str) -> str:
    number = result.get(f"{thing}s")
    return f"{number} {thing}" if number == 1 else f"{number} {thing}s"


def _session(word: str) -> str:
    try:
        return str(uuid.UUID(word))
    except ValueError:
        raise UsageError(
            f"{word!r} is no session id: that is the UUID of the conversation, the name of its folder below "
            "conversations/ in the vault, which `knowledge status` shows"
        ) from None


def _agent(options: Options) -> str:
    agent = options.get("--agent")
    if agent is None:
        raise UsageError("say whose memory is meant: --agent A")
    return agent


def _done(options: Options, method: str, params: JsonObject) -> int:
    if options.has("--agent") or method != "access.grants.list":
        params = {**params, "agent": _agent(options)}
    return _answered(options, method, params, _in_words)


def _answered(
    options: Options,
    method: str,
    params: JsonObject,
    in_words: Callable[[JsonObject], str],
    *,
    deadline_ms: int = _DEADLINE_MS,
) -> int:
    compact = options.has("--json")
    try:
        result = ask(state_dir(options), method, params, deadline_ms=deadline_ms)
    except OwnerError as error:
        return output.failure(error, compact=compact)
    output.emit(output.as_json(result, compact=True) if compact else in_words(result))
    return exits.OK


def _in_words(result: JsonObject) -> str:
    grants, agent = rows_of(result, "grants"), result.get("agent")
    if grants:
        lines = [f"Access to the private memory of {agent}:"]
        for row in grants:
            unknown = "" if row.get("known") else "  (no known conversation)"
            access = ACCESS.get(str(row.get("access")), row.get("access"))
            lines.append(f"  {row.get('sessionKey')}: {access}{unknown}")
    else:
        lines = [f"Every conversation of {agent} has its own partition only."]
    granted = {row.get("sessionKey") for row in grants}
    others = [str(row.get("sessionKey")) for row in rows_of(result, "conversations")]
    others = [key for key in others if key not in granted]
    if others:
        lines += ["Other conversations of the last 90 days:", *(f"  {key}" for key in others[:_SHOWN])]
        lines += [f"  and {len(others) - _SHOWN} more; --json has them"] if len(others) > _SHOWN else []
    return output.told(lines)

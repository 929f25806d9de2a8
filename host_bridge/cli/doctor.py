"""``knowledge doctor``: what is wrong with the state directory, found by reading alone, and a lost registry made anew.

It starts whatever is broken: it looks at names first, starts no owner, and asks one only where one runs.
"""

from __future__ import annotations

import os
import uuid

from host_bridge.cli import exits, output
from host_bridge.cli.asking import ask
from host_bridge.cli.options import STATE_DIR, UsageError, parse, state_dir
from host_bridge.cli.progress import progress
from host_bridge.cli.stores import rows_of
from host_bridge.owner import address, client
from host_bridge.owner.client import Lost, OwnerError, reach

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

    from messages.json_types import JsonObject, JsonValue
    from storage.layout import Layout

_DEADLINE_MS = 120_000
_ASK_SECONDS = 15.0
_WORDS_MAX = 10_000
_EXAMPLE = "knowledge doctor rebuild agent:main=ID --yes"
_LOST = ("registry_missing", "registry_emptied", "registry_damaged", "registry_foreign")


def run(arguments: Sequence[str]) -> int:
    known = {**STATE_DIR, "--store": True, "--json": False, "--yes": False}
    options = parse(arguments, known, words=_WORDS_MAX)
    compact = options.has("--json")
    if options.words and options.words[0] != "rebuild":
        raise UsageError(f"unexpected word {options.words[0]!r}; the only word here is rebuild")
    if not options.words:
        if options.has("--yes"):
            raise UsageError("--yes belongs to `knowledge doctor rebuild`")
        only = options.get("--store")
        try:
            only = None if only is None else str(uuid.UUID(only))
        except ValueError:
            raise UsageError(f"{only!r} is no store's id; `knowledge doctor` names them") from None
        with progress(quiet=compact) as show:
            result = _look(state_dir(options), only, show)
        output.emit(output.as_json(result, compact=True) if compact else _in_words(result, only))
        return exits.OK if result.get("healthy") is True else exits.FINDINGS
    params = _rebuilding(options.words[1:])
    if options.has("--store"):
        raise UsageError("--store belongs to looking, not to rebuild")
    if not options.has("--yes"):
        raise UsageError(
            "this makes a new registry from what is named here; look at `knowledge doctor` first, then add --yes"
        )
    try:
        result = ask(state_dir(options), "operator.rebuildRegistry", params, deadline_ms=_DEADLINE_MS)
    except OwnerError as error:
        return output.failure(error, compact=compact)
    output.emit(output.as_json(result, compact=True) if compact else _rebuilt(result))
    return exits.OK


def _look(place: str, only: str | None, show: object) -> JsonObject:
    """The whole report; nothing in it raises. Files first, the owner last: what fails is then known already."""
    from pathlib import Path

    from storage.checkup import checkup
    from storage.layout import Layout
    from storage.registry_recovery import find_stores

    layout = Layout(Path(place))
    owned = client.is_held(str(layout.root)) or client.is_held(address.lock_path(str(layout.root)))
    findings: list[JsonObject] = [*_configuration(layout)]

    def report(step: object) -> None:
        if callable(show):
            show(getattr(step, "to_json", dict)())

    defects, stores = checkup(layout, owned=owned, only=only, report=report)
    findings += [defect.to_json() for defect in defects]
    lost = next((defect for defect in defects if defect.code in _LOST), None)
    registry: JsonObject = {"state": "ok" if lost is None else lost.code, "path": str(layout.registry)}
    if lost is not None:
        registry["message"] = lost.message
    shown: list[JsonValue] = [{"vaultId": vault_id, "path": str(store.root)} for vault_id, store in stores.items()]
    result: JsonObject = {"stateDir": place, "owner": "none", "registry": registry, "stores": shown}
    found = find_stores(layout, at_rest=True) if lost is not None and not owned else ()
    result |= {"rebuildable": lost is not None, "found": [store.to_json() for store in found]}
    if owned:
        findings += _of_owner(place, str(layout.root), result)
    known = {str(row.get("vaultId")) for row in rows_of(result, "stores")}
    if only is not None:
        findings = [row for row in findings if row.get("vaultId", only) == only]
        if only not in known:
            mend = "`knowledge stores list` names those that are registered"
            what = "No store of that identity is registered here."
            findings.append({"code": "not_found", "message": what, "mend": mend, "vaultId": only})
    return {**result, "findings": [*_once(findings)], "healthy": not findings}


def _once(findings: list[JsonObject]) -> list[JsonObject]:
    seen: set[str] = set()
    kept = []
    for row in findings:
        key = f"{row.get('code')} {row.get('vaultId', '')} {row.get('path', '')} {row.get('agent', '')}"
        if key not in seen:
            seen.add(key)
            kept.append(row)
    return kept


def _configuration(layout: Layout) -> list[JsonObject]:
    """What is wrong with ``knowledge.yaml``, and agents that it lists in two stores."""
    from host_bridge.config import load_configuration
    from messages.errors import KnowledgeError

    path = str(layout.configuration)
    try:
        configuration = load_configuration(layout.configuration)
    except (KnowledgeError, OSError) as error:
        message = getattr(error, "message", str(error))
        mend = "mend the file; a running owner keeps the last one that it could read"
        return [{"code": "configuration_invalid", "message": message, "mend": mend, "path": path}]
    names: dict[str, list[JsonValue]] = {}
    for name, store in configuration.stores.items():
        for agent in store.agents:
            names.setdefault(agent, []).append(name)
    return [
        {
            "code": "store_ambiguous",
            "message": "An agent is listed in several named stores and has none until it is listed in one.",
            "mend": f"`knowledge stores join --agent {agent} NAME`, or `own`",
            "agent": agent,
            "names": listed,
        }
        for agent, listed in names.items()
        if len(listed) > 1
    ]


def _of_owner(place: str, directory: str, result: JsonObject) -> list[JsonObject]:
    """What a running owner says; who it is, where it says nothing."""
    import host_bridge

    holder = client.read_holder(directory)
    who: JsonObject = {} if holder is None else {"pid": holder.pid, "version": holder.version}
    named = (
        f"Process {who.get('pid')} (version {who.get('version')})" if who else "A process that does not say who it is"
    )
    findings: list[JsonObject] = []
    result["owner"] = "silent"
    if who and who["version"] != host_bridge.__version__:
        findings.append(
            {
                "code": "owner_version",
                "message": f"{named} owns the state directory; this program is version {host_bridge.__version__}.",
                "mend": "`knowledge stop`, and use one version",
                **who,
            }
        )
    if holder is not None and holder.socket is None:
        result["owner"] = "in process"
        message = f"{named} has the state directory open in its own process; the stores were not looked into."
        return [*findings, {"code": "open_elsewhere", "message": message, "mend": "close it there, then look", **who}]
    try:
        connection = reach(place, start=False)
        try:
            params: JsonObject = {"deadlineMs": int(_ASK_SECONDS * 1000)}
            answer = connection.request("operator.doctor", params, _ASK_SECONDS + 1)
            health = connection.request("owner.status", {}, _ASK_SECONDS)
        finally:
            connection.close()
    except (OwnerError, Lost, TimeoutError, OSError) as error:
        message = f"{named} holds the state directory and does not answer ({type(error).__name__})."
        mend = (
            f"`knowledge stop`; if that does not end it, end that process, then look again; its log is in {directory}"
        )
        return [*findings, {"code": "owner_silent", "message": message, "mend": mend, **who}]
    result["owner"] = "running"
    if isinstance(answer, dict):
        for key in ("registry", "stores", "agents", "found", "rebuildable"):
            if key in answer:
                result[key] = answer[key]
        findings += [{"mend": _mend_of(row), **row} for row in rows_of(answer, "findings")]
    return [*findings, *quarantines(health if isinstance(health, dict) else {})]


def _mend_of(row: JsonObject) -> str:
    """The owner's own findings say what to do in their message."""
    vault = row.get("vaultId")
    if row.get("code") == "store_unavailable":
        missing = row.get("missing")
        if isinstance(missing, list) and "database" in missing:
            return f"`knowledge stop`, then `knowledge repair --store {vault} --yes`, or restore a backup"
        return f"mount or restore it, or name where it lies: `knowledge store relocate {vault} PATH`"
    return {
        "duplicate_identity": "move it away",
        "stranger": "move it away",
        "store_ambiguous": "`knowledge stores join`, or `own`",
    }.get(str(row.get("code")), "put the registry back from a backup, or `knowledge doctor rebuild`")


def quarantines(health: JsonObject) -> list[JsonObject]:
    """Stores that the owner took out of service, with the reason and the time."""
    found: dict[str, JsonObject] = {}
    runtime = health.get("health")
    for actor in rows_of(runtime if isinstance(runtime, dict) else health, "actors"):
        quarantine, name = actor.get("quarantine"), str(actor.get("name", "")).removeprefix("root/")
        if not isinstance(quarantine, dict) or not name.startswith("store "):
            continue
        vault = name.removeprefix("store ").partition("/")[0]
        reason, since = quarantine.get("reason"), quarantine.get("since")
        detail = f" ({quarantine['detail']})" if quarantine.get("detail") else ""
        damaged = "corruption" in str(reason)
        repair = f"`knowledge stop`, then `knowledge repair --store {vault} --yes`"
        found[vault] = {
            "code": "quarantined",
            "message": f"The store is out of service since {since}: {reason}{detail}.",
            "mend": repair if damaged else f"remove the reason, then `knowledge store release {vault}`",
            "vaultId": vault,
            "reason": reason,
            "since": since,
        }
    return [*found.values()]


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


def _in_words(result: JsonObject, only: str | None) -> str:
    findings = rows_of(result, "findings")
    lines = []
    if not findings:
        number = len(rows_of(result, "stores"))
        places = "its one store is" if number == 1 else f"its {number} stores are"
        lines.append(f"All is well: the registry is whole, and {places} where it says.")
        if only is not None:
            lines = [f"All is well with the store {only}."]
        elif number:
            lines.append("No note was read: `knowledge doctor --store ID` compares every file of a store.")
    for finding in findings:
        about = [f"{key} {finding[key]}" for key in ("agent", "vaultId", "path", "files") if finding.get(key)]
        lines.append(f"{finding.get('code')}: {finding.get('message')}")
        lines += [f"  {'; '.join(about)}"] if about else []
        lines += [f"  to mend it: {finding['mend']}"] if finding.get("mend") else []
    if result.get("owner") == "running" and only is not None:
        lines.append("An owner runs, so files and database were not compared: `knowledge stop` first for all of it.")
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

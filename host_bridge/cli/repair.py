"""``knowledge repair``: put right what is wrong with the stores, from their vaults and their history.

It is the owner of the state directory meanwhile: an idle background owner makes room, a busy one is named.
"""

from __future__ import annotations

import time
import uuid

from host_bridge.cli import exits, output
from host_bridge.cli.options import STATE_DIR, UsageError, parse, state_dir
from host_bridge.cli.progress import progress
from host_bridge.cli.stores import rows_of
from host_bridge.owner.client import OwnerError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from messages.json_types import JsonObject, JsonValue
    from storage.layout import Layout, StoreLayout
    from storage.repair import Part, Repaired

_OPTIONS = {**STATE_DIR, "--store": True, "--dry-run": False, "--yes": False, "--json": False}
_PARTS = ("database", "catalogue", "files", "index", "git")
_SHOWN = 20


def run(arguments: Sequence[str]) -> int:
    options = parse(arguments, _OPTIONS, words=len(_PARTS))
    for word in options.words:
        if word not in _PARTS:
            raise UsageError(f"{word!r} is no part of a store; the parts are {', '.join(_PARTS)}")
    only = options.get("--store")
    if only is not None:
        try:
            only = str(uuid.UUID(only))
        except ValueError:
            raise UsageError(f"{only!r} is no store's id; `knowledge doctor` names them") from None
    elif "database" in options.words:
        raise UsageError("a database is built anew for one store that you name: --store ID")
    compact = options.has("--json")
    from messages.errors import KnowledgeError  # a rare command may load what it needs

    try:
        with progress(quiet=compact) as show:
            result = _repair(
                state_dir(options),
                only,
                options.words,
                show,
                dry_run=options.has("--dry-run"),
                yes=options.has("--yes"),
            )
    except KnowledgeError as error:
        fields = dict(error.fields)
        return output.failure(OwnerError(error.code, error.message, error.retry, fields), compact=compact)
    output.emit(output.as_json(result, compact=True) if compact else _in_words(result))
    return exits.OK if result["healthy"] is True else exits.FINDINGS


def _repair(
    place: str, only: str | None, words: Sequence[str], show: Callable[[JsonObject], None], *, dry_run: bool, yes: bool
) -> JsonObject:
    from pathlib import Path

    from host_bridge.owner.lock import take_owner_lock
    from messages.errors import KnowledgeError, StoreUnavailable
    from storage import repair
    from storage.layout import Layout

    layout = Layout(Path(place))
    if not layout.root.is_dir():
        raise StoreUnavailable("There is no store in this state directory; nothing is to be mended.", reason="empty")
    parts: list[Part] = [part for part in repair.PARTS if part in words]
    rows: list[JsonValue] = []
    healthy = True
    lock = take_owner_lock(layout.root)
    try:
        stores = _stores(layout, only)
        for number, (vault_id, store) in enumerate(stores.items()):

            def report(step: object, number: int = number) -> None:
                shown: JsonObject = getattr(step, "to_json", dict)()
                show({**shown, "store": number, "stores": len(stores)})

            try:
                done = repair.repair(store, vault_id, parts, dry_run=dry_run, rebuild=yes, report=report)
            except KnowledgeError as error:
                rows.append({"vaultId": vault_id, "refused": {"message": error.message, **error.to_data()}})
                healthy = False
                continue
            rows.append(done.to_json())
            healthy = healthy and not done.findings and not (done.dry_run and done.changed)
            if done.changed and not done.dry_run:
                _note(layout, done)
    finally:
        lock.release()
    return {"dryRun": dry_run, "healthy": healthy, "stores": rows}


def _stores(layout: Layout, only: str | None) -> dict[str, StoreLayout]:
    """The registered stores; where the registry cannot say, the folders that are called like stores."""
    from messages.errors import KnowledgeError, NotFound
    from storage.layout import StoreLayout
    from storage.peeking import peek
    from storage.registry import store_folders
    from storage.state.connection import StorageCorrupt

    try:
        with peek(layout.registry) as database:
            found = database.query("SELECT vault_id, location FROM store WHERE made = 1 ORDER BY created_at, vault_id")
        stores = {str(vault_id): StoreLayout(layout.root / str(location)) for vault_id, location in found}
    except (KnowledgeError, StorageCorrupt):
        stores = {}
        for path in sorted(store_folders(layout)):
            try:
                stores[str(uuid.UUID(path.name))] = StoreLayout(path)
            except ValueError:
                continue
    if only is None:
        return stores
    if only not in stores:
        raise NotFound("No store of that identity is registered here; `knowledge doctor` names them.", vaultId=only)
    return {only: stores[only]}


def _note(layout: Layout, done: Repaired) -> None:
    """In the registry's audit, where there is one."""
    from messages.errors import KnowledgeError
    from storage.registry import Registry
    from storage.registry_audit import By

    at = time.time_ns() // 1_000_000
    try:
        registry = Registry.open(layout, at=at)
    except KnowledgeError:
        return
    try:
        subject: JsonObject = {"vaultId": done.vault_id, "database": done.database, "files": len(done.restored)}
        registry.note("store.repair", subject, By("operator:local", "shell", at))
    finally:
        registry.close()


def _in_words(result: JsonObject) -> str:
    lines: list[str] = []
    for row in rows_of(result, "stores"):
        lines.append(f"store {row.get('vaultId')}")
        refused = row.get("refused")
        if isinstance(refused, dict):
            lines.append(f"  {refused.get('code')}: {refused.get('message')}")
            continue
        would = "would be " if row.get("dryRun") else ""
        lines += _store(row, would)
        lines += [f"  {finding.get('code')}: {finding.get('message')} ({finding.get('path')})"
                  for finding in rows_of(row, "findings")[:_SHOWN]]  # fmt: skip
        if row.get("lost") and row.get("dryRun") and not result.get("dryRun"):
            lines.append("  nothing was done: if no backup is to be had, say so with --yes")
        if not row.get("changed") and not rows_of(row, "findings"):
            lines.append("  nothing to mend")
    return "\n".join(lines) or "There is no store; nothing to mend."


def _store(row: JsonObject, would: str) -> list[str]:
    lines = []
    if row.get("lost"):
        aside = (
            f"; the old one is kept as state.sqlite.{row['setAside']}"
            if row.get("database") == "damaged" and row.get("setAside")
            else ""
        )
        lines.append(f"  database: {would}built anew from the vault{aside}")
        lines += ["  what that cannot bring back:", *(f"    {line}" for line in _list(row, "lost"))]
        lines += ["  what stays:", *(f"    {line}" for line in _list(row, "stays"))]
    if row.get("catalogue") == "rebuilt":
        lines.append(f"  catalogue: {would}built anew from the files")
    files = row.get("files")
    restored = _list(files, "restored") if isinstance(files, dict) else []
    damaged = set(_list(files, "damaged")) if isinstance(files, dict) else set()
    for path in restored[:_SHOWN]:
        what = "was truncated; what was left of it is in history" if path in damaged else "was missing"
        lines.append(f"  {path}: {would}written from history ({what})")
    if len(restored) > _SHOWN:
        lines.append(f"  and {len(restored) - _SHOWN} more files; --json has them")
    lines += [f"  keyword index of {name}: {would}built anew" for name in _list(row, "indexes")]
    if row.get("git") in ("built", "to build"):
        aside = f"; the old one is kept as {row['gitSetAside']}" if row.get("gitSetAside") else ""
        lines.append(f"  .git: {would}built from history{aside}")
    return lines


def _list(row: JsonObject, name: str) -> list[str]:
    found = row.get(name)
    return [str(value) for value in found] if isinstance(found, list) else []

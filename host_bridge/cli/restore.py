"""``knowledge restore``: put a backup into an empty state directory, every byte of it verified first.

It is the owner of that directory meanwhile, so no other process serves it.
"""

from __future__ import annotations

import os
import time

from host_bridge.cli import exits, output
from host_bridge.cli.options import STATE_DIR, UsageError, parse, state_dir
from host_bridge.cli.progress import progress, size
from host_bridge.owner.client import OwnerError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

    from messages.json_types import JsonObject

_OPTIONS = {**STATE_DIR, "--dry-run": False, "--json": False}


def run(arguments: Sequence[str]) -> int:
    options = parse(arguments, _OPTIONS, words=1)
    if not options.words:
        raise UsageError("name the backup, as in: knowledge restore --state-dir ~/.knowledge ~/backups/monday")
    source = os.path.abspath(os.path.expanduser(options.words[0]))
    place, compact, dry_run = state_dir(options), options.has("--json"), options.has("--dry-run")
    from messages.errors import KnowledgeError  # a rare command may load what it needs

    try:
        result = _restore(source, place, dry_run=dry_run, quiet=compact)
    except KnowledgeError as error:
        fields = dict(error.fields)
        return output.failure(OwnerError(error.code, error.message, error.retry, fields), compact=compact)
    output.emit(output.as_json(result, compact=True) if compact else _in_words(result, place))
    return exits.OK


def _restore(source: str, place: str, *, dry_run: bool, quiet: bool) -> JsonObject:
    from pathlib import Path

    from host_bridge.owner.lock import take_owner_lock
    from storage import backup
    from storage.layout import Layout
    from storage.registry_audit import By

    layout = Layout(Path(place))
    by = By("operator:local", "shell", time.time_ns() // 1_000_000)
    with progress(quiet=quiet) as show:

        def report(step: backup.Progress) -> None:
            show(step.to_json())

        if dry_run:
            found = backup.restore(Path(source), layout, by, report=report, dry_run=True)
            return {"dryRun": True, **found.to_json()}
        backup.check_place(layout, backup.read_manifest(Path(source)))
        lock = take_owner_lock(layout.root)
        try:
            found = backup.restore(Path(source), layout, by, report=report)
        finally:
            lock.release()
    return {"dryRun": False, **found.to_json()}


def _in_words(result: JsonObject, place: str) -> str:
    ids = result.get("vaultIds")
    stores = len(ids) if isinstance(ids, list) else 0
    what = f"{stores} store{'' if stores == 1 else 's'}, {result.get('files')} files, {size(result.get('bytes'))}"
    taken = f"of {result.get('takenAt')}"
    if result.get("dryRun"):
        lines = [f"Nothing was written. The backup {taken} is sound ({what}) and can be restored to {place}."]
    else:
        lines = [f"The backup {taken} is in place at {place} ({what})."]
        lines.append("Git history is built again from the store's own with the next save; keyword indexes too.")
    if result.get("configuration") == "kept":
        lines.append("knowledge.yaml was there already and stays; the backup's own says who shares which store.")
    if not result.get("whole"):
        lines.append("It is a backup of some of the stores; the others are not in it.")
    return "\n".join(lines)

"""What is wrong with a state directory, found by reading alone, whatever state it is in.

Guarantees: no byte of the state directory changes, not even a lock or a log beside a database; nothing is opened that
could fail before it was looked at; every defect is one finding with the ids it is about and the command that mends it.
Databases are read only when nobody has the directory (``owned`` is false): a running owner is asked instead.

Source: stores-and-access.md (Stores, Storage layout), WRITE-PATH.md table 3c. Any one thread.
"""

from __future__ import annotations

import os
import stat
import uuid
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import apsw

from messages.errors import FailedClosed, KnowledgeError, StoreUnavailable
from messages.json_types import JsonObject
from storage import erasure, git
from storage.backup import Progress
from storage.faults import effect
from storage.layout import Layout, StoreLayout
from storage.manifest import MISSING, UNREADABLE, Found, Manifest, judge, parse_manifest
from storage.peeking import peek
from storage.publication.store import binding_of
from storage.registry_schema import FORMAT
from storage.repair.examining import agreement, database_state
from storage.repair.looking import index_is_sound
from storage.state import journal
from storage.state.connection import StorageCorrupt
from storage.state.upkeep import partitions
from storage.store_parts import missing_parts
from storage.system_memory.examining import condition

PATHS_SHOWN: Final = 20

FAULT_POINTS: Final = (("checkup.look", "looking at a name in the state directory, or reading a small file there"),)


@dataclass(frozen=True, slots=True)
class Defect:
    """One thing that is wrong; ``mend`` says what to do, with the command where there is one."""

    code: str
    message: str
    mend: str
    about: Mapping[str, str] = field(default_factory=dict)

    def to_json(self) -> JsonObject:
        return {"code": self.code, "message": self.message, "mend": self.mend, **self.about}


_FROM_BACKUP: Final = "restore a backup (`knowledge restore` into an empty state directory)"
_REBUILD: Final = (
    "put registry.sqlite and registry.id back from a backup, or make a new one: `knowledge doctor rebuild "
    "agent:NAME=ID --yes`"
)


def checkup(
    layout: Layout,
    *,
    owned: bool,
    only: str | None = None,
    report: Callable[[Progress], None] = lambda progress: None,
) -> tuple[list[Defect], dict[str, StoreLayout]]:
    """Every defect, and the stores that are known; with ``only`` of one store, and of all its parts. Never raises."""
    found = list(_folders(layout))
    if any(defect.code in ("unreadable", "not_a_folder") for defect in found):
        return found, {}
    if _status(layout.root) is None:
        return found, {}
    stores, defects = _registry(layout, owned)
    found += defects
    found += _left_behind(layout)
    found += _system_memory(layout, owned) if only is None else ()
    found += _strangers(layout, stores) if stores is not None else ()
    known = {} if stores is None else stores
    if stores is None:
        known = {path.name: StoreLayout(path) for path in _store_folders(layout) if _is_uuid(path.name)}
    chosen = {vault_id: store for vault_id, store in known.items() if only in (None, vault_id)}
    for number, (vault_id, store) in enumerate(chosen.items()):
        report(Progress("examining", number, len(chosen), 0, 1))
        try:
            found += _store(vault_id, store, owned=owned, whole=only is not None)
        except (KnowledgeError, OSError, StorageCorrupt, apsw.Error) as error:
            found.append(
                Defect(
                    "unreadable",
                    f"The store cannot be examined to its end: {getattr(error, 'message', type(error).__name__)}.",
                    "check the disk and the rights on the folder, then look again",
                    _about(vault_id, store),
                )
            )
    return found, known


# --- the state directory -----------------------------------------------------------------------------------------


def _folders(layout: Layout) -> Iterator[Defect]:
    for path in (layout.state_dir, layout.root, layout.stores):
        status = _status(path)
        if status is None:
            return
        about = {"path": str(path)}
        if not stat.S_ISDIR(status.st_mode):
            yield Defect("not_a_folder", "Something else than a folder stands there.", "put the folder back", about)
            return
        with effect("checkup.look"):
            readable = os.access(path, os.R_OK | os.X_OK)
            writable = os.access(path, os.W_OK)
            try:
                os.listdir(path)
            except OSError:
                readable = False
        if not readable:
            yield Defect(
                "unreadable", "The folder may not be read.", f"give yourself the right: chmod u+rwx {path}", about
            )
            return
        if not writable:
            yield Defect(
                "read_only",
                "The folder cannot be written, so nothing can be saved.",
                f"mount the disk writable, or give yourself the right: chmod -R u+w {path}",
                about,
            )
            return  # so are those below it


def _left_behind(layout: Layout) -> Iterator[Defect]:
    if _status(layout.root / "relocation.json") is not None:
        yield Defect(
            "relocation_unfinished",
            "A store was being moved when the process ended.",
            "start an owner, which ends the move or undoes it: `knowledge status --live`",
            {"path": str(layout.root / "relocation.json")},
        )
    staged = layout.state_dir / ".kr-restoring"
    if _status(staged) is not None:
        yield Defect(
            "restore_unfinished",
            "A restore was cut short; nothing of it is in place.",
            "run `knowledge restore` again, or remove the folder",
            {"path": str(staged)},
        )


def _system_memory(layout: Layout, owned: bool) -> Iterator[Defect]:
    path = layout.system_memory
    mends = {
        "damaged": "put the file of a backup in its place, or move it away with the files beside it; what is not in a "
        "backup is lost",
        "foreign": "move it away, or put the file of a backup in its place",
        "newer_format": "use the newer version of the program",
        "unreadable": "check the disk and the rights on the file",
    }
    state, why = condition(path, whole=not owned)
    if state in mends:
        yield Defect(
            state if state in ("newer_format", "unreadable") else f"system_memory_{state}",
            f"{why.rstrip('.')}. Nothing else is held up by it.",
            mends[state],
            {"path": str(path)},
        )


def _store_folders(layout: Layout) -> list[Path]:
    try:
        with effect("checkup.look"), os.scandir(layout.stores) as names:
            return sorted(layout.stores / name.name for name in names if name.is_dir(follow_symlinks=False))
    except OSError:
        return []


# --- the registry ------------------------------------------------------------------------------------------------


def _registry(layout: Layout, owned: bool) -> tuple[dict[str, StoreLayout] | None, list[Defect]]:
    """The registered stores, ``None`` where nothing says which there are; and what is wrong with the registry."""
    about = {"path": str(layout.registry)}
    status, sentinel = _status(layout.registry), _small(layout.registry_sentinel)
    used = sentinel is not None or bool(_store_folders(layout))
    if status is None:
        if not used:
            return {}, []
        return None, [Defect("registry_missing", "registry.sqlite is missing, but stores exist.", _REBUILD, about)]
    if not stat.S_ISREG(status.st_mode):
        return None, [Defect("registry_foreign", "registry.sqlite is no plain file.", _REBUILD, about)]
    if owned:
        return {}, []
    if not status.st_size and used:
        return None, [Defect("registry_emptied", "registry.sqlite is empty, but stores exist.", _REBUILD, about)]
    return _registered(layout, sentinel) if status.st_size else ({}, [])


def _registered(layout: Layout, sentinel: str | None = None) -> tuple[dict[str, StoreLayout] | None, list[Defect]]:
    about = {"path": str(layout.registry)}
    try:
        with peek(layout.registry) as database:
            version = database.user_version()
            if version > FORMAT:
                what = f"registry.sqlite has format {version}, this program reads up to {FORMAT}."
                return None, [Defect("newer_format", what, "use the newer version of the program", about)]
            if not database.is_sound(lambda: None):
                return None, [Defect("registry_damaged", "registry.sqlite is damaged.", _REBUILD, about)]
            row = database.query_one("SELECT registry_id FROM meta")
            rows = database.query("SELECT vault_id, location FROM store WHERE made = 1 ORDER BY created_at, vault_id")
    except (StorageCorrupt, apsw.Error):
        return None, [Defect("registry_damaged", "registry.sqlite is damaged, or another program's.", _REBUILD, about)]
    except (KnowledgeError, OSError) as error:
        what = f"registry.sqlite cannot be read: {getattr(error, 'message', error)}"
        return None, [Defect("unreadable", what, "check the disk and the rights on the file", about)]
    if sentinel is not None and row is not None and sentinel != row[0]:
        what = "registry.sqlite and registry.id belong to different registries."
        return None, [Defect("registry_foreign", what, _REBUILD, about)]
    stores = {str(vault_id): StoreLayout(layout.root / str(location)) for vault_id, location in rows}
    if not stores and _store_folders(layout):
        what = "registry.sqlite lists no store, but stores exist."
        return None, [Defect("registry_emptied", what, _REBUILD, about)]
    return stores, []


def _strangers(layout: Layout, stores: Mapping[str, StoreLayout]) -> Iterator[Defect]:
    known = {os.path.realpath(store.root) for store in stores.values()}
    for path in _store_folders(layout) if stores else ():
        if os.path.realpath(path) in known:
            continue
        found = _manifest(StoreLayout(path))
        claimed = found.vault_id if isinstance(found, Manifest) else None
        about = {"path": str(path)} | ({} if claimed is None else {"vaultId": claimed})
        if claimed in stores:
            what = "A copy of a registered store lies beside the stores; it is not used."
            yield Defect("duplicate_identity", what, "move it away", about)
        else:
            what = "A folder beside the stores is none that the registry knows; it is not used."
            yield Defect("stranger", what, "move it away", about)


# --- one store ---------------------------------------------------------------------------------------------------


def _store(vault_id: str, store: StoreLayout, *, owned: bool, whole: bool) -> Iterator[Defect]:
    about = _about(vault_id, store)
    missing = missing_parts(store)
    if "directory" in missing:
        yield Defect(
            "store_unavailable",
            "The store's folder or its vault is gone. It is never made anew.",
            f"mount its disk, put it back, or name where it lies now: `knowledge store relocate {vault_id} PATH`",
            {**about, "missing": "directory"},
        )
        return
    if owned:
        for part in missing:
            yield _missing(vault_id, part, about)
        return
    state, why = database_state(store)
    if state in ("missing", "damaged"):
        yield Defect(
            "database_lost" if state == "missing" else "database_damaged",
            f"{why}.",
            f"{_FROM_BACKUP}, or build a new one from the vault: `knowledge repair --store {vault_id} --yes`",
            about,
        )
        return
    if state != "sound":
        mends = {
            "newer_format": "use the newer version of the program",
            "unfinished": "nothing to do: the agent's next call goes on creating it",
            "foreign": "put back the half that belongs to the other",
        }
        yield Defect(state, f"{why}.", mends.get(state, "check the disk and the rights on the file"), about)
        return
    yield from _erasure(store, about)
    yield from _halves(vault_id, store, about)
    if whole:
        yield from _parts(vault_id, store, about)


def _erasure(store: StoreLayout, about: Mapping[str, str]) -> Iterator[Defect]:
    """An erasure that a crash cut short."""
    try:
        partition = erasure.decided(store)
    except (StoreUnavailable, OSError) as error:
        what = getattr(error, "message", str(error))
        mend = "remove erasing.json, then erase the conversation again"
        yield Defect("erasure_unreadable", f"The store does not open: {what}", mend, about)
        return
    if partition is not None:
        yield Defect(
            "erasure_unfinished",
            f"The erasure of the conversation {partition.session_id} is decided and not finished.",
            "nothing to do: the store's next opening finishes it; where that fails, see owner.log",
            about,
        )


def _missing(vault_id: str, part: str, about: Mapping[str, str]) -> Defect:
    mend = f"stop the owner (`knowledge stop`), then `knowledge repair --store {vault_id} --yes`, or {_FROM_BACKUP}"
    if part == "manifest":
        mend = "mount or restore it, or take the vault as it is: `knowledge store adopt --yes`"
    return Defect("store_unavailable", f"A part of the store is gone: {part}.", mend, {**about, "missing": part})


def _halves(vault_id: str, store: StoreLayout, about: Mapping[str, str]) -> Iterator[Defect]:
    """Table 3c, as the next opening will judge it: after a process stop and after a machine stop."""
    with peek(store.state_database) as database:
        # After a process stop fewer differences are explained than after a machine stop; which it was shows at opening.
        stopped = not journal.marks(database).clean
        binding = binding_of(database, machine_stop=stopped, same_folder=True)
    verdict = judge(_manifest(store), binding)
    if isinstance(verdict, FailedClosed):
        mend = "restore the half that matches, or take the vault as it is: `knowledge store adopt --yes`"
        yield Defect(verdict.code, f"The store does not open: {verdict.message}.", mend, about)


def _parts(vault_id: str, store: StoreLayout, about: Mapping[str, str]) -> Iterator[Defect]:
    with peek(store.state_database) as database:
        for partition in partitions(database):
            found = agreement(store, database, partition)
            where = {**about, "partition": partition.key}
            if found.missing:
                yield _files(
                    "files_missing",
                    "Files that the catalogue knows are gone.",
                    f"from history: `knowledge repair --store {vault_id} files`; nothing, if you deleted them",
                    where,
                    found.missing,
                )
            if found.different:
                yield _files(
                    "files_edited",
                    "Files hold something else than the catalogue says: edits, or damage.",
                    f"edits are taken over by the next query; what damage would be mended: `knowledge repair --store "
                    f"{vault_id} --dry-run`",
                    where,
                    found.different,
                )
            if found.lost:
                yield _files(
                    "text_lost",
                    "History has lost the texts of files.",
                    f"`knowledge repair --store {vault_id}`, or {_FROM_BACKUP}",
                    where,
                    found.lost,
                )
            if not index_is_sound(store, partition):
                yield Defect(
                    "index_damaged",
                    "A keyword index is damaged.",
                    f"`knowledge repair --store {vault_id} index`; the next search builds it too",
                    where,
                )
    state, why = git.repository_state(store.vault)
    if state == "damaged":
        yield Defect("git_damaged", f".git is damaged ({why}).", f"`knowledge repair --store {vault_id} git`", about)


def _files(code: str, message: str, mend: str, about: Mapping[str, str], paths: tuple[str, ...]) -> Defect:
    more = f" and {len(paths) - PATHS_SHOWN} more" if len(paths) > PATHS_SHOWN else ""
    return Defect(code, message, mend, {**about, "files": ", ".join(paths[:PATHS_SHOWN]) + more})


# --- small things ------------------------------------------------------------------------------------------------


def _about(vault_id: str, store: StoreLayout) -> dict[str, str]:
    return {"vaultId": vault_id, "path": str(store.root)}


def _manifest(store: StoreLayout) -> Found:
    data = _small(store.manifest)
    if data is None:
        return MISSING if _status(store.manifest) is None else UNREADABLE
    return parse_manifest(data.encode())


def _small(path: Path) -> str | None:
    try:
        with effect("checkup.look"), open(path, encoding="utf-8", errors="replace") as file:
            return file.read(64 * 1024).strip()
    except OSError:
        return None


def _status(path: Path) -> os.stat_result | None:
    try:
        with effect("checkup.look"):
            return os.stat(path)
    except OSError:
        return None


def _is_uuid(name: str) -> bool:
    try:
        return str(uuid.UUID(name)) == name
    except ValueError:
        return False


__all__ = ["Defect", "checkup"]

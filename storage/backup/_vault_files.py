"""The files of one store's backup: its snapshot's texts, originals, and whatever else a person keeps in the vault."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from typing import Final

from messages.errors import StoreUnavailable
from storage import files
from storage.backup import _copying as copying
from storage.backup._copying import Growing
from storage.backup.manifest import Finding, Part, Progress
from storage.files import UnsafeFile
from storage.layout import Layout, StoreLayout, is_artifact
from storage.state import journal
from storage.state.connection import Database, StorageCorrupt

FINDINGS_MAX: Final = 1_000
_PARTIAL: Final = ".kr-upload"


@dataclass(slots=True)
class Run:
    """One backup on its way."""

    layout: Layout
    growing: Growing
    report: Callable[[Progress], None]
    pause: Callable[[float], None]
    fresh: Collection[str] | None = None
    stores: int = 0
    store: int = 0
    parts: list[Part] = field(default_factory=list)
    findings: list[Finding] = field(default_factory=list)
    more: int = 0

    def tell(self, what: str, done: int = 0, of: int = 0) -> None:
        """Report, which may raise to end the backup."""
        self.report(Progress(what, self.store, self.stores, done, of))

    def find(self, code: str, path: str, message: str) -> None:
        if len(self.findings) < FINDINGS_MAX:
            self.findings.append(Finding(code, path, message))
        else:
            self.more += 1


class VaultFiles:
    """The files of one store: texts of the snapshot, then whatever else lies in its vault."""

    def __init__(self, run: Run, store: StoreLayout, prefix: str, copy: Database) -> None:
        self._run = run
        self._store = store
        self._prefix = f"{prefix}/vault"
        self._vault_id = files.split(prefix)[1]
        self._copy = copy
        self._written: set[str] = {"vault.json"}
        """Paths relative to the vault."""

    def take(self) -> None:
        try:
            root = files.open_root(self._store.vault, at="backup.folder")
        except FileNotFoundError:
            raise StoreUnavailable("A store's vault is gone; put it back, or mount its disk again.") from None
        try:
            self._texts(root)
            self._others(root)
        finally:
            files.close(root)

    def _texts(self, root: int) -> None:
        """Every file of the catalogue with the text that it has there."""
        of = self._count("SELECT count(*) FROM file")
        rows = self._copy.iterate(
            "SELECT p.key, f.path, f.hash, b.bytes FROM file f JOIN catalogue_partition p ON p.id = f.partition "
            "LEFT JOIN blob b ON b.hash = f.hash ORDER BY f.partition, f.path"
        )
        for done, (key, path, digest, data) in enumerate(rows):
            if done % 64 == 0:
                self._run.tell("files", done, of)
            whole = f"{key}/{path}"
            if not digest:
                continue  # a file that was never read: copied as it is, if it can be
            if data is None or journal.digest(data) != digest:
                self._from_disk(root, whole, digest)
            else:
                self._add(self._run.growing.write(f"{self._prefix}/{whole}", data), whole)
                if not self._fresh and self._differs(root, whole, data):
                    what = f"{whole} holds an edit that nobody took over; the backup has the text of before."
                    self._run.find("edit_left_out", whole, what)

    @property
    def _fresh(self) -> bool:
        return self._run.fresh is None or self._vault_id in self._run.fresh

    @staticmethod
    def _differs(root: int, path: str, data: bytes) -> bool:
        folder_path, name = files.split(path)
        try:
            folder = files.open_folder(root, folder_path, at="backup.folder")
            try:
                return files.read_file(folder, name, limit=len(data), at="backup.read")[0] != data
            finally:
                files.close(folder)
        except (OSError, UnsafeFile):  # gone, longer, or no plain file
            return True

    def _from_disk(self, root: int, path: str, digest: str) -> None:
        """History has lost the text; the file may still be it."""
        try:
            part = self._run.growing.copy(f"{self._prefix}/{path}", root, path)
        except (OSError, UnsafeFile) as error:
            if isinstance(error, OSError) and not isinstance(error, (FileNotFoundError, PermissionError)):
                raise
            part = None
        if part is None or part.sha256 != digest:
            raise StorageCorrupt(f"the text {digest[:16]} is lost")
        self._add(part, path)

    def _others(self, root: int) -> None:
        """Originals, the ontology, and whatever else a person keeps in the vault."""
        wanted = self._cited()
        partial = self._partial()
        everything = copying.walk(self._store.vault, skip=skipped)
        found = [walked for walked in everything if walked.path not in self._written]
        later = self._came_later()
        for done, walked in enumerate(found):
            if done % 16 == 0:
                self._run.tell("originals", done, len(found))
            path = walked.path
            if walked.reason is not None:
                self._run.find("left_out", _shown(path), f"{_shown(path)} {walked.reason} and is not in the backup.")
            elif path.endswith(f"/{_PARTIAL}"):
                self._upload(root, path, partial)
            elif path not in later and not path.rpartition("/")[2].startswith(".kr-"):
                self._other(root, path, wanted)
        for path, digest in wanted.items():
            if path not in self._written:
                self._lost_original(path, digest)
        self._forget_uploads(partial)

    def _other(self, root: int, path: str, wanted: Mapping[str, str]) -> None:
        try:
            part = self._run.growing.copy(f"{self._prefix}/{path}", root, path)
        except FileNotFoundError:
            return  # it went while we walked
        except (PermissionError, UnsafeFile) as error:
            why = error.reason if isinstance(error, UnsafeFile) else "not readable"
            self._run.find("left_out", path, f"{path} cannot be read ({why}) and is not in the backup.")
            return
        if path in wanted and part.sha256 != wanted[path]:
            self._run.find(
                "original_changed", path, f"{path} is not the original that records cite; it was copied as it is."
            )
        self._add(part, path)

    def _lost_original(self, path: str, digest: str) -> None:
        row = self._copy.query_one("SELECT bytes FROM blob WHERE hash = ?", (digest,))
        if row is None:
            self._run.find("original_missing", path, f"{path} is cited by records and is gone.")
            return
        self._add(self._run.growing.write(f"{self._prefix}/{path}", row[0]), path)

    def _upload(self, root: int, path: str, partial: dict[str, int]) -> None:
        """As much of an unfinished upload as its row says; what came after is not acknowledged in this generation."""
        received = partial.get(path)
        if received is None:
            return
        try:
            part = self._run.growing.copy(f"{self._prefix}/{path}", root, path, limit=received)
        except (FileNotFoundError, UnsafeFile):
            return
        self._add(part, path)
        if part.size == received:
            del partial[path]

    def _forget_uploads(self, partial: Mapping[str, int]) -> None:
        """An upload whose bytes are not there any more begins anew: its row must not say that they are."""
        for path, received in partial.items():
            if received == 0:
                continue
            key, _, rest = path.partition("/artifacts/")
            request = rest.partition("/")[0]
            with self._copy.transaction(full=False, point="backup.trim"):
                self._copy.execute(
                    "DELETE FROM upload WHERE path IS NULL AND request_id = ? AND partition = "
                    "(SELECT id FROM partition WHERE key = ?)",
                    (request, key),
                )

    def _cited(self) -> dict[str, str]:
        rows = self._copy.query(
            "SELECT p.key, c.path, c.sha256 FROM citation c JOIN catalogue_partition p ON p.id = c.partition UNION "
            "SELECT p.key, u.path, u.sha256 FROM upload u JOIN partition p ON p.id = u.partition "
            "WHERE u.path IS NOT NULL"
        )
        return {f"{key}/{path}": str(digest) for key, path, digest in rows if is_artifact(str(path))}

    def _partial(self) -> dict[str, int]:
        rows = self._copy.query(
            "SELECT p.key, u.request_id, u.received FROM upload u JOIN partition p ON p.id = u.partition "
            "WHERE u.path IS NULL"
        )
        return {f"{key}/artifacts/{request}/{_PARTIAL}": int(received) for key, request, received in rows}

    def _came_later(self) -> set[str]:
        """Files that publications after this generation made: they are in the live database by now, not in ours."""
        ours = self._known(self._copy)
        live = Database.open(self._store.state_database, point_prefix="backup.source", read_only=True)
        try:
            with live.snapshot():
                return self._known(live) - ours
        finally:
            live.close()

    @staticmethod
    def _known(database: Database) -> set[str]:
        rows = database.query(
            "SELECT p.key, f.path FROM file f JOIN catalogue_partition p ON p.id = f.partition UNION "
            "SELECT p.key, c.path FROM citation c JOIN catalogue_partition p ON p.id = c.partition UNION "
            "SELECT p.key, u.path FROM upload u JOIN partition p ON p.id = u.partition WHERE u.path IS NOT NULL"
        )
        return {f"{key}/{path}" for key, path in rows}

    def _add(self, part: Part, path: str) -> None:
        self._run.parts.append(part)
        self._written.add(path)

    def _count(self, sql: str) -> int:
        row = self._copy.query_one(sql)
        return 0 if row is None else int(row[0])


def skipped(path: str) -> bool:
    """What no backup of a vault holds: Git, and names of ours that live for a moment."""
    first = path.partition("/")[0]
    name = path.rpartition("/")[2]
    return first == ".git" or first.startswith(".git.damaged-") or (name.startswith(".kr-") and name != _PARTIAL)


def _shown(path: str) -> str:
    return path.encode("utf-8", "replace").decode()

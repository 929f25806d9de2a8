"""Where everything lies below the state directory: one place that builds paths, and touches none of them.

::

    <state dir>/knowledge.yaml                  configuration
    <state dir>/knowledge/
        registry.sqlite, registry.id            which stores exist, and the sentinel of that file
        audience.key                            what tokens of audiences are signed with; made by the first one
        relocation.json                         only while a store is being moved: from where to where
        owner.lock, owner.log                   the one process that owns this directory
        system-memory.sqlite
        stores/<vaultId>/
            state.sqlite                        journal, history, catalogue, Git queue
            search/private.sqlite, search/<sessionId>.sqlite
            erasing.json                        only while a conversation is being erased: which one
            vault/
                vault.json, .git/
                private/, conversations/<sessionId>/

The standard library alone is imported here: thin clients need these paths too.

Source: stores-and-access.md (Storage layout), decisions.md sections 1 and 8.
"""

from __future__ import annotations

import hashlib
import os
import re
import tempfile
import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from messages.vocabulary import Partition

MANIFEST_NAME = "vault.json"
ONTOLOGY_NAME = "ontology.yaml"
ARTIFACTS_NAME = "artifacts"
EXCERPT_NAME = "excerpt.txt"
STAGED_PREFIX = ".kr-"
COPIES_NAME = ".kr-copies"
"""The folder in ``artifacts/`` where copies of workspace files lie until they get their own names."""
SOCKET_PATH_MAX_BYTES = 107

_REQUEST_ID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")


def resolve_state_dir(explicit: Path | None = None, environ: Mapping[str, str] | None = None) -> Path:
    """The state directory, absolute: ``explicit``, else ``$KNOWLEDGE_STATE_DIR``, else ``$OPENCLAW_STATE_DIR``,
    else ``~/.knowledge``.

    A variable that is set but empty counts as unset. Symbolic links are resolved, so that two names of one
    directory give one lock and one socket.
    """
    variables = os.environ if environ is None else environ
    chosen = explicit
    for name in ("KNOWLEDGE_STATE_DIR", "OPENCLAW_STATE_DIR"):
        if chosen is None and variables.get(name):
            chosen = Path(variables[name])
    if chosen is None:
        home = variables.get("HOME")
        chosen = (Path(home) if home else Path.home()) / ".knowledge"
    return Path(os.path.realpath(chosen.expanduser()))


def socket_path(state_dir: Path, environ: Mapping[str, str] | None = None) -> Path:
    """The owner's socket, short enough for a socket address whatever the state directory is called.

    ``$XDG_RUNTIME_DIR/knowledge/<hash>.sock``; where that variable is unset or its path too long, a folder of
    this user's in the temporary directory. The caller creates the folder with mode 0700 and checks its owner.
    """
    variables = os.environ if environ is None else environ
    digest = hashlib.sha256(os.fsencode(os.path.realpath(state_dir))).hexdigest()[:16]
    runtime = variables.get("XDG_RUNTIME_DIR")
    candidates = [Path(runtime, "knowledge", f"{digest}.sock")] if runtime and os.path.isabs(runtime) else []
    candidates.append(Path(tempfile.gettempdir(), f"knowledge-{os.getuid()}", f"{digest}.sock"))
    candidates.append(Path("/tmp", f"knowledge-{os.getuid()}", f"{digest}.sock"))
    return next(path for path in candidates if len(os.fsencode(path)) <= SOCKET_PATH_MAX_BYTES)


def artifact_folder(request_id: str) -> str:
    """``artifacts/<requestId>``, relative to the partition folder; ``ValueError`` for anything but a UUID."""
    if not _REQUEST_ID.fullmatch(request_id):
        raise ValueError("a request id is a lower-case UUID")
    return f"{ARTIFACTS_NAME}/{request_id}"


def excerpt_path(request_id: str) -> str:
    """Where a remembered excerpt is retained, relative to the partition folder (tools.md, Remembering claims)."""
    return f"{artifact_folder(request_id)}/{EXCERPT_NAME}"


def is_artifact(path: str) -> bool:
    """Whether a path relative to its partition folder lies among the retained evidence."""
    return path.startswith(f"{ARTIFACTS_NAME}/")


@dataclass(frozen=True, slots=True)
class StoreLayout:
    """The paths of one store below its own folder, wherever the registry says that folder is."""

    root: Path

    @property
    def state_database(self) -> Path:
        return self.root / "state.sqlite"

    @property
    def search(self) -> Path:
        return self.root / "search"

    def search_index(self, partition: Partition) -> Path:
        """The keyword index of one partition: a file of its own, deletable and rebuildable."""
        return self.search / f"{partition.session_id or 'private'}.sqlite"

    @property
    def vault(self) -> Path:
        return self.root / "vault"

    @property
    def manifest(self) -> Path:
        return self.vault / MANIFEST_NAME

    @property
    def git(self) -> Path:
        return self.vault / ".git"

    def partition(self, partition: Partition) -> Path:
        return self.vault / partition.key


@dataclass(frozen=True, slots=True)
class Layout:
    """The paths below one state directory."""

    state_dir: Path

    @property
    def configuration(self) -> Path:
        return self.state_dir / "knowledge.yaml"

    @property
    def root(self) -> Path:
        return self.state_dir / "knowledge"

    @property
    def registry(self) -> Path:
        return self.root / "registry.sqlite"

    @property
    def registry_sentinel(self) -> Path:
        return self.root / "registry.id"

    @property
    def owner_lock(self) -> Path:
        return self.root / "owner.lock"

    @property
    def owner_log(self) -> Path:
        return self.root / "owner.log"

    @property
    def system_memory(self) -> Path:
        return self.root / "system-memory.sqlite"

    @property
    def stores(self) -> Path:
        return self.root / "stores"

    def new_store(self, vault_id: str) -> StoreLayout:
        """Where a store with this identity is created; ``ValueError`` unless it is a lower-case UUID."""
        if str(uuid.UUID(vault_id)) != vault_id:
            raise ValueError("a vault id is a lower-case UUID")
        return StoreLayout(self.stores / vault_id)

"""The guards on folders and files: links, ways out, folders and databases that are swapped, and what is a file's name.

Source: stores-and-access.md (Storage layout, Limits), decisions.md section 4.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any, Final

import apsw
import pytest

from actors.store.operations import table
from host_bridge.owner import endpoint
from messages.audience import Audience, Conversation
from messages.json_types import JsonObject
from messages.vocabulary import PRIVATE, Partition
from storage import faults, files
from storage.git import Checkpoint, commit
from storage.layout import StoreLayout
from storage.manifest import MANIFEST_NAME
from storage.records import links
from tests.host_bridge.guards.kit import AGENTS, RESEARCH, SECRET, Attempt, Guard, Refused, Switch, World, patched
from tests.kit.store import GROUP, GROUP_PARTITION, MAIN, claim_file, request_id, write_note

DIGEST: Final = hashlib.sha256(f"User: {SECRET} sleeps.".encode()).hexdigest()
SOURCE: Final = f"artifacts/{request_id(1)}/excerpt.txt"
"""The owner's source, in its own partition."""
ELSEWHERE: Final = Conversation("main", "chat:elsewhere", "../private")


def all_of(*switches: Switch) -> Switch:
    def switch(monkeypatch: pytest.MonkeyPatch) -> None:
        for one in switches:
            one(monkeypatch)

    return switch


def anywhere(root_fd: int, path: str, *, at: str) -> int:
    """As if a folder could be anywhere, and reached over links."""
    return os.open(path or ".", os.O_RDONLY | os.O_DIRECTORY, dir_fd=root_fd)


def leading_out(link: links.Link, page_path: str) -> links.Target:
    found = RESOLVE(link, page_path)
    path = os.path.normpath(os.path.join(os.path.dirname(page_path), link.url))
    return links.Target("path", path) if found.kind == "outside" else found


def any_key(cls: type[Partition], key: str) -> Partition:
    return cls(None if key == PRIVATE.key else key.partition("/")[2])


def by_its_name(vault: Path, git: int) -> str:
    return str(vault / (".kr-git" if (vault / ".kr-git").exists() else ".git"))


RESOLVE: Final = links.resolve


# --- before the runtime starts ----------------------------------------------------------------------------------------


def owners_claim(store: StoreLayout) -> Path:
    [found] = [path for path in store.partition(PRIVATE).rglob("*.md") if f"{SECRET} sleeps" in path.read_text("utf-8")]
    return found


def outside(store: StoreLayout) -> Path:
    """A note of the conversation's scope that lies in none of the store's folders."""
    note = claim_file("outside", f"{SECRET} is outside.", partition=GROUP_PARTITION)
    return write_note(store.root.parent.parent.parent, "outside.md", note)


def linked(name: str, to: Callable[[StoreLayout], Path], how: Callable[..., None] = os.symlink) -> Any:
    def before(store: StoreLayout) -> None:
        how(to(store), store.partition(GROUP_PARTITION) / name)

    return before


def cited(path: str, place: Callable[[Path, StoreLayout], None] = lambda place, store: None) -> Any:
    """The conversation's folder has a note that cites a source with the hash of the owner's, and ``place`` puts
    something there."""

    def before(store: StoreLayout) -> None:
        evidence: JsonObject = {"path": path, "sha256": DIGEST}
        folder = store.partition(GROUP_PARTITION)
        write_note(folder, "cites.md", claim_file("cites", "It cites.", partition=GROUP_PARTITION, evidence=[evidence]))
        place(folder / path, store)

    return before


def source_link(how: Callable[..., None]) -> Any:
    def place(path: Path, store: StoreLayout) -> None:
        path.parent.mkdir()
        how(store.partition(PRIVATE) / SOURCE, path)

    return place


def folder_link(path: Path, store: StoreLayout) -> None:
    path.parent.symlink_to((store.partition(PRIVATE) / SOURCE).parent)


def partition_is_a_link(store: StoreLayout) -> None:
    shutil.rmtree(store.partition(GROUP_PARTITION))
    store.partition(GROUP_PARTITION).symlink_to("../private")


def older(store: StoreLayout) -> None:
    manifest = json.loads((store.vault / MANIFEST_NAME).read_text())
    manifest |= {"generation": manifest["generation"] - 1, "publicationId": request_id(77)}
    (store.vault / MANIFEST_NAME).write_text(json.dumps(manifest))


def database_is_a_link(store: StoreLayout) -> None:
    store.state_database.rename(store.root / "elsewhere.sqlite")
    store.state_database.symlink_to("elsewhere.sqlite")


def registry_of_another(store: StoreLayout) -> None:
    """Another registry, in which the conversation has a grant."""
    with closing(apsw.Connection(str(store.root.parent.parent / "registry.sqlite"))) as connection:
        connection.execute("UPDATE meta SET registry_id = ?", (request_id(78),))
        connection.execute("INSERT INTO conversation_grant VALUES ('main', ?, 'read')", (GROUP.session_key,))


# --- while it runs ----------------------------------------------------------------------------------------------------


def meanwhile(change: Callable[[World], None], audience: Audience = MAIN) -> Any:
    """A query in the middle of which something is changed on disk."""

    def attempt(world: World) -> str:
        world.call("status", {}, audience)
        run = table.run

        def changed(*given: Any) -> Any:
            if not done:
                done.append(True)
                change(world)
            return run(*given)

        done: list[bool] = []
        with pytest.MonkeyPatch.context() as monkeypatch:
            monkeypatch.setattr(table, "run", changed)
            return world.call("record", {"id": world.private.id if audience == MAIN else world.own.id}, audience)

    return attempt


def swapped(folder: Callable[[World], Path]) -> Callable[[World], None]:
    """Another folder with the same content stands where this one was."""

    def change(world: World) -> None:
        place = folder(world)
        place.rename(place.with_name("taken"))
        shutil.copytree(place.with_name("taken"), place)

    return change


def foreign_manifest(world: World) -> None:
    path = world.store.vault / MANIFEST_NAME
    path.write_text(json.dumps({**json.loads(path.read_text()), "vaultId": request_id(79)}))


def another_database(world: World) -> None:
    place = world.store.state_database
    shutil.copyfile(place, place.with_name("other.sqlite"))
    place.with_name("other.sqlite").rename(place)


def link_out(world: World) -> str:
    """A page of the conversation links to a file of the owner's: whether it is there must not be told."""
    page: JsonObject = {
        "title": "Ours", "type": "project", "body": f"[x](../../../private/{SOURCE})", "requestId": request_id(910)
    }  # fmt: skip
    done = world.bridge.call("knowledge_save_page", page, GROUP)
    return world.call("verify", {"ids": [done["id"]]})


def attaches(path: Callable[[World], str], audience: Audience) -> Any:
    def attempt(world: World) -> str:
        place = path(world)
        data = (Path("/usr") / place).read_bytes()
        arguments: JsonObject = {
            "filePath": place, "sha256": hashlib.sha256(data).hexdigest(), "filename": "a.md", "attribution": "me",
            "requestId": request_id(911),
        }  # fmt: skip
        return world.call("attach_file", arguments, audience)

    return attempt


def state_file(world: World) -> str:
    return str(owners_claim(world.store))


def climbs(world: World) -> str:
    return f"..{write_note(world.bridge.state_dir, 'outside.txt', SECRET)}"


def named_as_a_path(world: World) -> str:
    name = "../../../forged.md"
    arguments: JsonObject = {
        "filename": name, "mediaType": "text/plain", "attribution": "me", "offset": 0, "data": "eA==", "final": True,
        "requestId": request_id(912),
    }  # fmt: skip
    told = world.call("attach", arguments)
    there = (world.store.vault / "conversations" / "forged.md").exists()
    return f"outside of its folder {told}" if there else told


def link_in_the_place_of_git(world: World) -> str:
    """``.git`` is swapped for a link to another repository between the look at it and the start of Git."""
    vault, other = world.store.vault, world.bridge.state_dir / "other"
    entry = Checkpoint(request_id(1), "remember", None, "main", 1, (), (("private/a.md", b"a"),))
    commit(vault, [entry], whole_history=True, look_back=False)
    shutil.copytree(vault / ".git", other)
    before = sorted(path.name for path in other.rglob("*"))

    def swap(point: str) -> None:
        if point == "git.import" and not (vault / ".git").is_symlink():
            (vault / ".git").rename(vault / ".git.taken")
            (vault / ".git").symlink_to(other)

    with faults.installed(swap):
        commit(vault, [entry], whole_history=False, look_back=False)
    return "written elsewhere" if sorted(path.name for path in other.rglob("*")) != before else "left alone"


def another_user(world: World) -> str:
    path = str(world.bridge.state_dir / "s")
    with closing(endpoint.listen(path)), pytest.MonkeyPatch.context() as monkeypatch:
        monkeypatch.setattr(os, "geteuid", lambda: os.getuid() + 1)
        try:
            endpoint.connect(path, 5.0).close()
        except endpoint.ForeignPeer as error:
            raise Refused("foreign peer") from error
    return "connected"


GUARDS: Final = [
    Guard("links are no notes", patched("storage.files.FOLLOW_LINKS", True)),
    Guard("no link opened", patched("storage.files._READ_FLAGS", files._READ_FLAGS & ~os.O_NOFOLLOW)),
    Guard("one name a file", patched("storage.files.NAMES_MAX", 99)),
    Guard("inside its folder", patched("storage.files.open_folder", anywhere)),
    Guard("key of a partition", patched("messages.vocabulary.Partition.parse", classmethod(any_key))),
    Guard("path of a source", patched("storage.records._fields.is_artifact_path", lambda path: True)),
    Guard("path of a source, again", patched("storage.evidence.verify._PATH", re.compile(r"(.+)/([^/]+)"))),
    Guard("links inside", patched("storage.records.links.resolve", leading_out)),
    Guard("same vault folder", patched("storage.publication.store.StoreState._check_same_folder", lambda self: None)),
    Guard("same partition folder", patched("storage.vault._place.Place.same", lambda self, *, at_its_start=True: True)),
    Guard("same database", patched("storage.publication.store.StoreState._check_same_database", lambda self: None)),
    Guard("manifest", all_of(
        patched("storage.publication.store.judge", lambda found, binding: "open"),
        patched("storage.publication.opening.judge", lambda found, binding: "open"),
    )),
    Guard("plain store", patched("storage.publication.opening._require_plain", lambda folder: None)),
    Guard("same registry", patched("storage.registry._require_same", lambda sentinel, registry_id: None)),
    Guard("inside the workspace", patched("storage.evidence.workspace.locate", lambda root, path: path)),
    Guard("no state of ours", patched("storage.evidence.workspace._require_unmarked", lambda folder: None)),
    Guard("owner's only", all_of(
        patched("actors.store.operations.attach_file.require_private", lambda context, message, reason="": None),
        patched("actors.store.operations.recall.require_private", lambda context, message, reason="": None),
    )),
    Guard("name, no path", patched("messages.tools.evidence._check_name", lambda filename: None)),
    Guard("name made safe", patched("actors.store.operations.retaining.retained_name", lambda filename: filename)),
    Guard("same repository", patched("storage.git._run.place_of", by_its_name)),
    Guard("same user", patched("host_bridge.owner.endpoint.check_peer", lambda connection: None)),
]  # fmt: skip


def records(world: World) -> str:
    return world.call("records", {})


def reads_evidence(world: World) -> str:
    return world.call("record", {"id": "cites", "includeEvidence": True})


def says(text: str) -> Any:
    return lambda told: text in told


LINKS: Final = ("links are no notes", "no link opened")
PATHS: Final = ("path of a source", "path of a source, again", "inside its folder")
ROOT: Final = f"{AGENTS}workspace: /\n"
USR: Final = f"{AGENTS}workspace: /usr\n"
green: Final = says("The gate is green")

ATTEMPTS: Final = [
    Attempt(LINKS, "note that is a link out of the vault", records, "", before=linked("a.md", outside)),
    Attempt((*LINKS, "scope"), "note that is a link to the owner's", records, "",
            before=linked("a.md", owners_claim)),
    Attempt(("links are no notes", "inside its folder", "scope"), "folder that is a link to the owner's", records, "",
            before=linked("notes", lambda store: store.partition(PRIVATE))),
    Attempt(("inside its folder", "same partition folder", "scope"), "partition that is a link to the owner's",
            records, "store_unavailable", before=partition_is_a_link),
    Attempt(("one name a file",), "second name of a file out of the vault", records, "",
            before=linked("a.md", outside, os.link)),
    Attempt(("one name a file", "scope"), "second name of the owner's", records, "",
            before=linked("a.md", owners_claim, os.link)),
    Attempt(("audience well-formed", "key of a partition", "scope"), "session id that is a path",
            lambda world: world.call("records", {}, ELSEWHERE), "invalid_argument", alone=True),
    Attempt(("no link opened",), "source that is a link", reads_evidence, "",
            before=cited(f"artifacts/{request_id(920)}/a.txt", source_link(os.symlink))),
    Attempt(("one name a file",), "source with a second name", reads_evidence, "",
            before=cited(f"artifacts/{request_id(920)}/a.txt", source_link(os.link))),
    Attempt(("inside its folder",), "source whose folder is a link", reads_evidence, "",
            before=cited(f"artifacts/{request_id(920)}/excerpt.txt", folder_link)),
    Attempt(PATHS, "source whose path climbs", reads_evidence, "",
            before=cited(f"artifacts/../../../private/{SOURCE}")),
    Attempt(("links inside", "inside its folder"), "whether a file of the owner's is there", link_out, "", alone=True,
            reached=says('"state": "ok"')),
    Attempt(("same vault folder", "same partition folder"), "vault swapped during a query",
            meanwhile(swapped(lambda world: world.store.vault)), "store_unavailable", alone=True),
    Attempt(("same partition folder",), "private folder swapped during a query",
            meanwhile(swapped(lambda world: world.folder(MAIN))), "store_unavailable", alone=True),
    Attempt(("same partition folder",), "a conversation's folder swapped during a query",
            meanwhile(swapped(lambda world: world.folder(GROUP)), GROUP), "store_unavailable", alone=True,
            reached=green),
    Attempt(("manifest",), "vault of another store during a query", meanwhile(foreign_manifest), "foreign_vault",
            alone=True),
    Attempt(("same database",), "database swapped during a query", meanwhile(another_database), "store_unavailable",
            alone=True),
    Attempt(("manifest",), "older vault with a newer database", lambda world: world.call("records", {}, MAIN),
            "vault_older_than_database", before=older),
    Attempt(("plain store",), "database that is a link", lambda world: world.call("records", {}, MAIN),
            "store_unavailable", before=database_is_a_link),
    Attempt(("same registry",), "registry of another directory with a grant", records, "store_unavailable",
            before=registry_of_another),
    Attempt(("no state of ours",), "another agent's private note from the workspace", attaches(state_file, RESEARCH),
            "invalid_argument", ROOT, reached=says('"evidence"')),
    Attempt(("inside the workspace", "inside its folder"), "file outside of the workspace", attaches(climbs, MAIN),
            "invalid_argument", USR, reached=says('"evidence"')),
    Attempt(("owner's only",), "file of the workspace into a conversation", attaches(lambda world: "bin/env", GROUP),
            "denied", USR, reached=says('"evidence"')),
    Attempt(("name, no path", "name made safe"), "original that is named as a path", named_as_a_path,
            "invalid_argument", alone=True, reached=says("outside of its folder")),
    Attempt(("same repository",), "link in the place of .git", link_in_the_place_of_git, "", alone=True,
            reached=says("written elsewhere")),
    Attempt(("same user",), "socket of another user", another_user, "foreign peer", alone=True,
            reached=says("connected")),
]  # fmt: skip

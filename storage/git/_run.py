"""Runs ``git`` cut off from everything but one repository: no hooks, no foreign configuration, no prompt, no network.

Guarantees: Git works in the folder that is open here, whatever stands at its name by then, so that ``.git`` is never
followed as a link; a call ends within its time limit, with its whole process group; inherited ``GIT_*`` variables,
system and global configuration, attributes and hooks have no effect; what is written is synced. The repository's own
configuration applies where it is not overruled here.

Source: decisions.md section 4 (Git), WRITE-PATH.md hole 26.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from storage import files
from storage.faults import effect

GIT_NAME: Final = ".git"
NEW_NAME: Final = ".kr-git"
"""A repository that is being made."""
NOBODY: Final = ("Knowledge Runtime", "runtime@knowledge.invalid")

_SETTINGS: Final = {
    "core.hooksPath": "/dev/null",
    "core.fsmonitor": "false",
    "core.attributesFile": "/dev/null",
    "core.excludesFile": "/dev/null",
    "core.fsync": "objects,reference,index",
    "core.fsyncMethod": "fsync",
    "core.protectNTFS": "false",  # a backslash is a letter like any other here
    "core.protectHFS": "false",
    "core.bare": "false",
    "core.untrackedCache": "false",
    "gc.auto": "0",
    "maintenance.auto": "false",
    "commit.gpgSign": "false",
    "protocol.allow": "never",
    "fastimport.unpackLimit": "1",  # one small pack a run: a third of the syncs that loose objects take; see tidy()
    "advice.detachedHead": "false",
}


_ABSOLUTE: Final = re.compile(r"""(?<=['"`])~?/[^'"`\n]+(?=['"`])|(?<![\w.~/-])~?/(?:[^\s'"`:;,()/]+/?)+""")
"""A path from the root of the machine, or from somebody's home: quoted, or up to where a message goes on."""


class GitMissing(Exception):
    """There is no ``git`` on this machine, or it cannot be started."""


@dataclass(frozen=True, slots=True)
class Result:
    """How a call ended.

    ``error`` is what Git said, in English, at most its last 2,000 characters; paths are relative to the vault, and of
    what lies elsewhere on the machine only the name is left: it reaches agents, conversations too.
    """

    code: int
    output: bytes
    error: str

    @property
    def ok(self) -> bool:
        return self.code == 0


@dataclass(frozen=True, slots=True)
class Opened:
    """The repository of a vault that was looked at: ``git`` is its folder, open. Each call ends within ``timeout``
    seconds."""

    vault: Path
    git: int
    timeout: float

    def run(
        self, arguments: Sequence[str], *, at: str, stdin: bytes = b"", inside: Mapping[str, str] | None = None
    ) -> Result:
        """As :func:`run`."""
        return run(self.vault, arguments, at=at, git=self.git, stdin=stdin, timeout=self.timeout, inside=inside)


def run(
    vault: Path,
    arguments: Sequence[str],
    *,
    at: str,
    git: int,
    work_tree: bool = True,
    stdin: bytes = b"",
    timeout: float = 60.0,
    inside: Mapping[str, str] | None = None,
) -> Result:
    """Run ``git`` on an open repository, the vault's or one that is being made, and wait for it.

    ``inside`` are environment variables that stand for a name in that folder, such as another index. A call that took
    too long, or for which the folder was not found any more, has the code -1.

    Raises :class:`GitMissing`. Blocks: never in a lane.
    """
    settings = [part for key, value in _SETTINGS.items() for part in ("-c", f"{key}={value}")]
    with effect(at):
        place = place_of(vault, git)
        if place is None:
            return Result(-1, b"", "another folder, or a link, stands where the vault's .git was")
        places = [f"--git-dir={place}"] + ([f"--work-tree={vault}"] if work_tree else [])
        try:
            process = subprocess.Popen(
                ["git", *places, *settings, *arguments],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                cwd=vault,
                env=_environment({key: f"{place}/{name}" for key, name in (inside or {}).items()}),
                pass_fds=(git,),
                start_new_session=True,
            )
        except FileNotFoundError as error:
            if not vault.is_dir():
                return Result(-1, b"", "the vault's folder is gone")
            raise GitMissing("git is not installed, or not on PATH") from error
        except PermissionError as error:
            raise GitMissing("git cannot be started: permission denied") from error
        try:
            output, said = process.communicate(stdin, timeout)
        except subprocess.TimeoutExpired:
            return Result(-1, b"", f"git {arguments[0]} did not end within {timeout:g} s and was stopped")
        finally:
            # Also when we are interrupted: nothing of ours goes on in the repository afterwards.
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
                process.communicate()
    words = re.sub(rf"{re.escape(place)}(?![0-9])", GIT_NAME, said.decode("utf-8", "replace"))
    return Result(process.returncode, output, without_places(words, vault).strip()[-2_000:])


def without_places(said: str, vault: Path) -> str:
    """What Git said, without where on the machine the vault or anything else lies."""
    if "/" not in said:
        return said
    for place in sorted({str(vault), os.path.abspath(vault), os.path.realpath(vault)}, key=len, reverse=True):
        said = said.replace(f"{place}/", "").replace(place, "the vault")
    return _ABSOLUTE.sub(lambda found: found[0].rstrip("/").rpartition("/")[2] or "/", said)


def place_of(vault: Path, git: int) -> str | None:
    """A path at which Git finds the open folder, whatever stands at its name; ``None`` where it cannot be found.

    Where the system has no such path it is the folder's name, looked at directly before. Inside an effect.
    """
    inherited = f"/proc/self/fd/{git}"
    if os.path.isdir(inherited):
        return inherited
    root = files.open_root(vault, at="git.look")
    try:
        for name in (GIT_NAME, NEW_NAME):
            if stands_at(root, name, git):
                return str(vault / name)
    finally:
        files.close(root)
    return None


def stands_at(root: int, name: str, git: int) -> bool:
    """Whether the open folder is what has this name in the folder ``root``."""
    here = files.stat_open(git, at="git.look")
    found = files.stat_entry(root, name, at="git.look")
    return found is not None and (found.st_dev, found.st_ino) == (here.st_dev, here.st_ino)


def _environment(more: Mapping[str, str]) -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
    name, email = NOBODY
    return {
        **kept,
        "GIT_CONFIG_NOSYSTEM": "1",
        "GIT_CONFIG_SYSTEM": "/dev/null",
        "GIT_CONFIG_GLOBAL": "/dev/null",
        "GIT_ATTR_NOSYSTEM": "1",
        "GIT_TERMINAL_PROMPT": "0",
        "GIT_NO_REPLACE_OBJECTS": "1",
        "GIT_OPTIONAL_LOCKS": "0",
        "GIT_LITERAL_PATHSPECS": "1",
        "GIT_AUTHOR_NAME": name,
        "GIT_AUTHOR_EMAIL": email,
        "GIT_COMMITTER_NAME": name,
        "GIT_COMMITTER_EMAIL": email,
        "LC_ALL": "C",
        "TZ": "UTC",
        **more,
    }

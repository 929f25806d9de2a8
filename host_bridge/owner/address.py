"""Where an owner's files lie. Path arithmetic on strings and nothing heavier: thin clients load this.

Source: decisions.md sections 1 (state directory) and 8 (the socket's place and its limit of 107 bytes).
"""

from __future__ import annotations

import os
import stat

SOCKET_PATH_MAX_BYTES = 107


class UnsafePlace(Exception):
    """A folder that would hold the socket is not ours alone, or no place is short enough."""


def resolve_state_dir(option: str | None = None) -> str:
    """The absolute, symlink-free state directory: the option, else the environment, else ``~/.knowledge``.

    A relative option is taken from the current directory, as in any command; the two variables must be absolute,
    because hosts start us with a working directory that nobody chose.
    """
    path = _checked(os.path.realpath(_checked(_chosen(option))))
    for place in (path, knowledge_dir(path)):
        _may_be_a_folder(place)
    return path


def _may_be_a_folder(path: str) -> None:
    """A folder, or a path at which one can still be made."""
    try:
        if stat.S_ISDIR(os.stat(path).st_mode):
            return
    except FileNotFoundError:
        return
    except NotADirectoryError:
        raise UnsafePlace(f"{path} cannot be a folder: something above it is a file; choose another") from None
    except OSError as error:
        raise UnsafePlace(f"{path} cannot be used as a state directory: {error.strerror}; choose another") from None
    raise UnsafePlace(f"{path} is not a folder, and the state directory must be one; choose another")


def _chosen(option: str | None) -> str:
    if option:
        return os.path.expanduser(option)
    for variable in ("KNOWLEDGE_STATE_DIR", "OPENCLAW_STATE_DIR"):
        value = os.environ.get(variable, "")
        if value:
            expanded = os.path.expanduser(value)
            if not os.path.isabs(expanded):
                raise UnsafePlace(f"${variable} must be an absolute path, not {value!r}")
            return expanded
    return os.path.expanduser("~/.knowledge")


def _checked(path: str) -> str:
    """SQLite and JSON take UTF-8 paths only; a name in other bytes would fail much later and much less clearly."""
    try:
        os.fsencode(path).decode("utf-8")
        path.encode("utf-8")
    except UnicodeError:
        raise UnsafePlace(
            f"the state directory {path!a} has a name that is not UTF-8 in this locale; choose another"
        ) from None
    return path


def knowledge_dir(state_dir: str) -> str:
    """``<state dir>/knowledge``: everything we keep lies under it."""
    return os.path.join(state_dir, "knowledge")


def lock_path(directory: str) -> str:
    return os.path.join(directory, "owner.lock")


def log_path(directory: str) -> str:
    return os.path.join(directory, "owner.log")


def make_private(directory: str) -> None:
    """Create the folder and its missing parents for this user alone; an existing one keeps its mode."""
    os.makedirs(directory, mode=0o700, exist_ok=True)


def socket_path(state_dir: str) -> str:
    """The socket of the owner of ``state_dir``; its folder exists afterwards and is this user's alone.

    ``$XDG_RUNTIME_DIR/knowledge/<hash>.sock``, or the same file in a 0700 folder of the user's in the temporary
    directory where the first is unset, unusable or too long. Raises :class:`UnsafePlace`.
    """
    import hashlib

    name = hashlib.sha256(os.fsencode(os.path.realpath(state_dir))).hexdigest()[:16] + ".sock"
    complaints: list[str] = []
    for folder in _socket_folders():
        path = os.path.join(folder, name)
        if len(os.fsencode(path)) > SOCKET_PATH_MAX_BYTES:
            complaints.append(f"{path} is longer than {SOCKET_PATH_MAX_BYTES} bytes")
            continue
        try:
            os.mkdir(folder, 0o700)
        except FileExistsError:
            pass
        except OSError as error:
            complaints.append(f"{folder}: {error.strerror}")
            continue
        problem = folder_problem(folder)
        if problem is None:
            return path
        complaints.append(problem)
    raise UnsafePlace(
        "no folder for the owner's socket: "
        + "; ".join(complaints)
        + ". Set XDG_RUNTIME_DIR to a short folder of yours."
    )


def folder_problem(folder: str) -> str | None:
    """Why a folder may not hold the socket, or None: it must be a real folder that only this user can enter."""
    found = os.lstat(folder)
    if not stat.S_ISDIR(found.st_mode):
        return f"{folder} is not a folder"
    if found.st_uid != os.geteuid():
        return f"{folder} belongs to user {found.st_uid}"
    if found.st_mode & 0o077:
        return f"{folder} is open to others (mode {stat.S_IMODE(found.st_mode):04o}; it must be 0700)"
    return None


def _socket_folders() -> list[str]:
    folders: list[str] = []
    runtime = os.environ.get("XDG_RUNTIME_DIR", "")
    if os.path.isabs(runtime) and os.path.isdir(runtime):
        folders.append(os.path.join(runtime, "knowledge"))
    own = f"knowledge-{os.geteuid()}"
    for variable in ("TMPDIR", "TEMP", "TMP"):
        temporary = os.environ.get(variable, "")
        if os.path.isabs(temporary) and os.path.isdir(temporary):
            folders.append(os.path.join(temporary, own))
            break
    folders.append(os.path.join("/tmp", own))
    return folders

"""``knowledge skills``: list the procedures for agents that ship with this package, or copy them into a folder.

A skill is a folder with a ``SKILL.md``: frontmatter with ``name`` and ``description``, one line each, then the text.
Needs no owner and no state directory; standard library, and little of it.

Source: knowledge-more-facts.md section 5.
"""

from __future__ import annotations

import os

from host_bridge.cli import exits, output
from host_bridge.cli.options import STATE_DIR, UsageError, parse

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

    from host_bridge.cli.options import Options
    from messages.json_types import JsonValue

SKILL_FILE = "SKILL.md"
_OPTIONS = {**STATE_DIR, "--json": False, "--overwrite": False}
_FENCE = "---"


def folder() -> str:
    """The folder of this package that holds the skills."""
    return os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "skills")


def names() -> list[str]:
    """The shipped skills, by name."""
    return sorted(name for name in os.listdir(folder()) if os.path.isfile(os.path.join(folder(), name, SKILL_FILE)))


def text(name: str) -> bytes:
    """The complete file of a skill."""
    with open(os.path.join(folder(), name, SKILL_FILE), "rb") as file:
        return file.read()


def description(name: str) -> str:
    """What a skill is for, from its frontmatter."""
    lines = text(name).decode("utf-8").splitlines()
    for line in lines[1 : lines.index(_FENCE, 1)]:
        key, _, value = line.partition(": ")
        if key == "description":
            return value
    raise AssertionError(f"the skill {name} has no description")


def run(arguments: Sequence[str]) -> int:
    options = parse(arguments, _OPTIONS, words=100)
    if not options.words or list(options.words) == ["list"]:
        if options.has("--overwrite"):
            raise UsageError("--overwrite belongs to export")
        return _list(options)
    command, *words = options.words
    if command != "export":
        raise UsageError(f"unexpected word {command!r}; it takes `export DIR [NAME...]` or nothing")
    if not words:
        raise UsageError("export needs a folder")
    return _export(words[0], words[1:], options)


def _list(options: Options) -> int:
    if options.has("--json"):
        rows: list[JsonValue] = [
            {"name": name, "description": description(name), "path": os.path.join(folder(), name, SKILL_FILE)}
            for name in names()
        ]
        output.emit(output.as_json({"skills": rows}, compact=True))
    else:
        output.emit("\n".join(f"{name}\n    {description(name)}" for name in names()))
    return exits.OK


def _export(target: str, wanted: Sequence[str], options: Options) -> int:
    """Copy the skills, all or none: nothing is written while one of the files is there already."""
    known = names()
    unknown = [name for name in wanted if name not in known]
    if unknown:
        raise UsageError(f"there is no skill {unknown[0]!r}; there are {', '.join(known)}")
    chosen = list(dict.fromkeys(wanted)) or known
    places = {name: os.path.join(os.path.abspath(target), name, SKILL_FILE) for name in chosen}
    overwrite = options.has("--overwrite")
    try:
        there = [path for name, path in places.items() if os.path.lexists(path) and not _holds(path, text(name))]
        if there and not overwrite:
            output.complain(
                f"knowledge: {there[0]} is there already and differs; nothing was written. Move it away, choose "
                "another folder, or say --overwrite."
            )
            return exits.REFUSED
        for name, path in places.items():
            _write(path, text(name), overwrite=overwrite)
    except OSError as error:
        output.complain(f"knowledge: {error.filename or target}: {error.strerror}")
        return exits.REFUSED
    if options.has("--json"):
        rows: list[JsonValue] = [{"name": name, "path": path} for name, path in places.items()]
        output.emit(output.as_json({"exported": rows}, compact=True))
    else:
        output.emit("\n".join(places.values()))
    return exits.OK


def _holds(path: str, data: bytes) -> bool:
    """Whether a plain file with exactly these bytes is there."""
    if os.path.islink(path) or not os.path.isfile(path):
        return False
    with open(path, "rb") as file:
        return file.read(len(data) + 1) == data


def _write(path: str, data: bytes, *, overwrite: bool) -> None:
    """Put the file in place as a whole; without ``overwrite`` only under a name that is free."""
    os.makedirs(os.path.dirname(path), exist_ok=True)
    if _holds(path, data):
        return
    staged = f"{path}.{os.getpid()}.new"
    try:
        with open(staged, "xb") as file:
            file.write(data)
        if overwrite:
            os.replace(staged, path)
        else:
            os.link(staged, path)
    finally:
        if os.path.lexists(staged):
            os.unlink(staged)

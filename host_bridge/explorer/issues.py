"""What needs a person's look, and what that person can do: one issue for each thing that is wrong.

Built from the answers of ``operator.status``, ``operator.activity`` and ``operator.health``; the words are those of the
command line where it has them. Pure. Source: knowledge-more-facts.md section 8 (Activity & issues).
"""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final, Literal, TypeAlias

from host_bridge.cli.status_words import counted, git_in_words, search_in_words, wrong_with_the_owner
from host_bridge.explorer.site import member, rows
from messages.json_types import JsonObject

Weight: TypeAlias = Literal["stop", "look", "offer"]
"""``stop``: something does not work; ``look``: a person must decide or mend; ``offer``: it could be better."""

ADOPTABLE: Final = "frontmatter_missing"
FINDINGS_SHOWN: Final = 20


@dataclass(frozen=True, slots=True)
class Issue:
    """``command`` is what a person can run; ``comparison`` the request whose two texts can be compared."""

    weight: Weight
    title: str
    detail: str
    place: str = ""
    command: str = ""
    comparison: str = ""
    at: str = ""


def of_store(status: JsonObject, agent: str) -> Iterator[Issue]:
    """What is wrong with the store itself."""
    refusal = member(status, "refusal")
    if refusal:
        state = str(status.get("state", "")).replace("_", " ")
        what = "does not answer" if state in ("unavailable", "") else f"is {state}"
        command = str(refusal.get("command", "knowledge doctor"))
        yield Issue("stop", f"The store {what}", str(refusal.get("message", "")), command=command)
    pending = member(status, "publications").get("pending")
    if isinstance(pending, int) and pending:
        yield Issue(
            "stop",
            f"{counted(pending, 'write')} not finished",
            "Ordinary reads wait until it is. The next call of an agent, or opening the store again, finishes it.",
        )
    index = member(status, "index")
    if index.get("state") in ("unavailable", "damaged"):
        yield Issue("stop", "Search is unavailable", search_in_words(index), command="knowledge maintenance run")
    git = member(status, "git")
    if git.get("message"):
        behind = git.get("state") == "pending"
        title = "The Git history is behind" if behind else "The Git history is unavailable"
        yield Issue("look", title, git_in_words(git))
    if status.get("writesEnabled") is False:
        yield Issue(
            "offer", "Writes are switched off", "writesEnabled is false in the configuration: agents read only."
        )
    notices = status.get("notices")
    for notice in notices if isinstance(notices, list) else []:
        yield Issue("look", "Recovered at the last start", str(notice))


def of_findings(diagnostics: JsonObject, agent: str) -> Iterator[Issue]:
    """One issue a file that is no sound record; plain notes are offered for adoption."""
    for finding in rows(diagnostics, "findings")[:FINDINGS_SHOWN]:
        path, line = str(finding.get("path")), finding.get("line")
        place = f"{path}:{line}" if isinstance(line, int) else path
        if finding.get("code") == ADOPTABLE:
            command = shlex.join(["knowledge", "adopt", path, *(["--agent", agent] if agent else [])])
            yield Issue(
                "offer",
                "Plain Markdown, not a record yet",
                "Agents do not find it. Adopting adds the envelope and leaves the text as it is.",
                place,
                command,
            )
            continue
        message = f"{finding.get('message', '')} Mend it in an editor; the next look sees it."
        yield Issue("look", "Not a sound record", message, place)


def of_conflicts(conflicts: Sequence[JsonObject]) -> Iterator[Issue]:
    """One issue a write that gave way to a person's edit."""
    for row in conflicts:
        titles = ", ".join(str(title) for title in member(row, "titles").values())
        yield Issue(
            "look",
            "A write gave way to an edit by hand",
            f"{row.get('actor')} wanted to save while the file was edited. The file stands as the person left it; "
            f"nothing of the write is visible.{f' It concerns {titles}.' if titles else ''}",
            comparison=str(row.get("requestId", "")),
            at=str(row.get("acceptedAt", "")),
        )


def of_runtime(health: JsonObject) -> Iterator[Issue]:
    """What is wrong with the process that serves all stores."""
    for clause in wrong_with_the_owner(health):
        detail = f"{clause[:1].upper()}{clause[1:]}."
        yield Issue("stop", "The runtime needs a look", detail, command="knowledge status")

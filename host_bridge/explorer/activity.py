"""The first page: what needs a look, what was saved lately, and how the store and the runtime are; and one publication.

Source: knowledge-more-facts.md section 8 (Activity & issues); tools.md (Receipts, history, and recovery).
"""

from __future__ import annotations

from typing import Final

from starlette.responses import Response

from host_bridge.cli.status_words import git_in_words, search_in_words
from host_bridge.explorer import issues
from host_bridge.explorer.site import Look, member, no_store, rows
from host_bridge.explorer.word_diff import compare
from messages.json_types import JsonObject
from messages.vocabulary import RECORD_ID

PUBLICATIONS: Final = 25
CONFLICTS: Final = 5
AUDIT: Final = 10
TEXT_CHARS: Final = 48_000
_WEIGHTS: Final = {"stop": 0, "look": 1, "offer": 2}
_QUIET: Final = ("absent", "ready", "stopped")


async def activity(look: Look) -> Response:
    """Issues first, then what happened."""
    status = await look.ask("operator.status")
    if status.get("state") == "none":
        return no_store(look)
    shown: JsonObject = {}
    conflicts: JsonObject = {}
    if "counts" in status:  # else it cannot be read at all, and the status says why
        shown = await look.ask("operator.activity", {"limit": PUBLICATIONS, "before": look.whole("before") or None})
        if member(status, "publications").get("conflict"):
            conflicts = await look.ask("operator.activity", {"limit": CONFLICTS, "conflicts": True})
    health, audit = await _runtime(look)
    found = [
        *issues.of_runtime(health),
        *issues.of_store(status, look.agent),
        *issues.of_conflicts(rows(conflicts, "rows")),
        *issues.of_findings(member(status, "diagnostics"), look.agent),
    ]
    found.sort(key=lambda issue: _WEIGHTS[issue.weight])
    look.refusal = None  # it is the first issue
    actors = rows(health, "actors")
    return look.page(
        "activity.html",
        issues=found,
        findings=member(status, "diagnostics"),
        rows=rows(shown, "rows"),
        next_before=shown.get("nextBefore"),
        earlier=bool(look.whole("before")),
        status=status,
        git=git_in_words(member(status, "git")),
        search=search_in_words(member(status, "index")),
        actors=actors,
        busy=[actor for actor in actors if actor.get("state") not in _QUIET or actor.get("crashes")],
        audit=rows(audit, "rows"),
    )


async def _runtime(look: Look) -> tuple[JsonObject, JsonObject]:
    """How the runtime is and who changed access, for an operator who may know."""
    if not look.may("admin") or look.operator.agents is not None:
        return {}, {}
    return await look.ask("operator.health"), await look.ask("access.audit", {"limit": AUDIT})


async def publication(look: Look) -> Response:
    """One write: its receipt, and for each file what stands there beside what was proposed."""
    request = str(look.request.path_params["request"])
    found = await look.ask(
        "operator.mutation",
        {"requestId": request, "fileOffset": look.whole("file"), "maxChars": TEXT_CHARS},
    )
    receipt = member(found, "receipt")
    conflict = receipt.get("state") == "conflict"
    files = [await _file(look, file, conflict=conflict) for file in rows(found, "files")]
    return look.page(
        "publication.html",
        request=request,
        receipt=receipt,
        conflict=conflict,
        files=files,
        next_file=found.get("nextFileOffset"),
        git=member(found, "git"),
    )


async def _file(look: Look, file: JsonObject, *, conflict: bool) -> dict[str, object]:
    before, proposed, displaced = (_text(file, name) for name in ("before", "proposed", "displaced"))
    record_id = file.get("id")
    standing = displaced
    if conflict and standing is None and isinstance(record_id, str) and RECORD_ID.fullmatch(record_id):
        standing = await _as_it_stands(look, record_id)
    left = standing if conflict and standing is not None else before
    return {
        "path": file.get("path"),
        "id": record_id,
        "left": left,
        "right": proposed,
        "pieces": compare(left or "", proposed or ""),
        "cut": any("nextCharOffset" in member(file, name) for name in ("before", "proposed", "displaced")),
    }


async def _as_it_stands(look: Look, record_id: str) -> str | None:
    """The text of the record's last revision."""
    found = rows(await look.ask("operator.history", {"id": record_id, "limit": 1}), "rows")
    if not found or found[0].get("removed"):
        return None
    wanted: JsonObject = {"id": record_id, "sequence": found[0]["sequence"], "maxChars": TEXT_CHARS}
    return str((await look.ask("operator.revision", wanted)).get("content"))


def _text(file: JsonObject, name: str) -> str | None:
    found = file.get(name)
    return str(found.get("text")) if isinstance(found, dict) else None

"""Vocabulary, Vault status and Maintenance: pages that only show.

Source: knowledge-more-facts.md section 8; tools.md (Ontology).
"""

from __future__ import annotations

from starlette.responses import Response

from host_bridge.cli.maintenance import STEPS, outcome_in_words, store_in_words
from host_bridge.cli.status_words import counts_in_words, git_in_words, search_in_words
from host_bridge.explorer.site import Look, member, no_store, rows
from messages.json_types import JsonObject


async def vocabulary(look: Look) -> Response:
    """Types and labels with what they mean and how many records have them; one with its fields and examples."""
    name, kind = look.text("name"), look.text("kind")
    if name is not None:
        found = await look.ask(
            "operator.vocabulary", {"view": "definitions", "name": name, "kind": kind, "includeRecords": True}
        )
        return look.page("definition.html", definitions=rows(found, "definitions"), name=name)
    found = await look.ask("operator.vocabulary", {"limit": 100, "offset": look.whole("offset") or None})
    problems = await look.ask("operator.vocabulary", {"view": "diagnostics"})
    sources = await look.ask("operator.vocabulary", {"view": "sources"})
    following = found.get("nextOffset")
    return look.page(
        "vocabulary.html",
        types=rows(found, "types"),
        fingerprint=found.get("fingerprint"),
        issues=rows(problems, "issues"),
        active=problems.get("active"),
        sources=rows(sources, "sources"),
        next_page=look.again(offset=following) if isinstance(following, int) else None,
    )


async def vault(look: Look) -> Response:
    """Which store it is, where it lies, and how all of its parts are."""
    status = await look.ask("operator.status")
    if status.get("state") == "none":
        return no_store(look)
    return look.page(
        "vault.html",
        status=status,
        counts=counts_in_words(member(status, "counts")),
        git=git_in_words(member(status, "git")),
        search=search_in_words(member(status, "index")),
        refusal=member(status, "refusal"),
    )


async def maintenance(look: Look) -> Response:
    """The schedule, the next and the last run, and what the last one found in each store."""
    if not look.may("admin"):
        return look.page("maintenance.html", report=None, results=[], outcome="", step="")
    report = await look.ask("operator.maintenance")
    last, running = member(report, "lastRun"), member(report, "running")
    return look.page(
        "maintenance.html",
        report=report,
        results=[_result(row) for row in rows(report, "stores")],
        outcome=outcome_in_words(last) if last else "",
        step=STEPS.get(str(running.get("step")), "beginning") if running else "",
    )


def _result(row: JsonObject) -> dict[str, object]:
    """A store's last result: its facts as (name, words), as the command line says them."""
    lines = [line.strip().partition(" ") for line in store_in_words(row)[1:]]
    return {"row": row, "facts": [(name, rest.strip()) for name, _, rest in lines]}

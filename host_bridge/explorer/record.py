"""One record: its text, what is known of it, what it is connected with, its sources and its revisions.

The text of a request for a change is made here; handing it to an agent is the person's act, and nothing is sent.

Source: knowledge-more-facts.md section 8; tools.md (Reading records, Listing and connections).
"""

from __future__ import annotations

import json
import textwrap
from collections.abc import Mapping, Sequence
from typing import Final

from starlette.responses import Response

from host_bridge.explorer.markdown import LeadTo, render
from host_bridge.explorer.site import Look, member, rows, whole
from host_bridge.explorer.word_diff import passages
from host_bridge.explorer.words import harmless
from messages.errors import NotFound
from messages.json_types import JsonObject, JsonValue
from storage.records import normalise_name, path_key
from storage.records.links import Target

TEXT_CHARS: Final = 48_000
SHOWN: Final = {"claims": 20, "incoming": 25, "outgoing": 25, "links": 100, "backlinks": 25, "dependents": 25}
"""How many rows of each direction a record's page asks for; the rest is a page of its own."""
DIRECTION_TITLES: Final = {
    "claims": "Claims", "incoming": "Relationships to it", "outgoing": "Relationships from it", "links": "Links",
    "backlinks": "Linked from", "dependents": "What rests on it",
}  # fmt: skip
HISTORY_PER_PAGE: Final = 50
REVISIONS_SHOWN: Final = 5
CHAIN_MAX: Final = 10


async def record(look: Look) -> Response:
    """The page about one record."""
    record_id = str(look.request.path_params["id"])
    offset = look.whole("offset")
    found = await look.ask(
        "operator.record",
        {"id": record_id, "path": look.text("path"), "offset": offset or None, "maxChars": TEXT_CHARS,
         "evidenceOffset": look.whole("evidence") or None},
    )  # fmt: skip
    shown = found.get("record")
    if not isinstance(shown, dict):
        look.status_code = 404 if found.get("state") == "missing" else 409
        ambiguous = found.get("state") == "ambiguous"
        return look.page("no_record.html", id=record_id, files=found.get("files") or [], ambiguous=ambiguous)
    connected = {
        direction: await look.ask("operator.connections", {"id": record_id, "direction": direction, "limit": limit})
        for direction, limit in SHOWN.items()
        if member(shown, "connections").get(direction)
    }
    history = await look.ask("operator.history", {"id": record_id, "limit": REVISIONS_SHOWN + 1})
    body = str(shown.get("body", shown.get("text", "")))
    leads = leads_to(look, rows(connected.get("links", {}), "connections"))
    return look.page(
        "record.html",
        record=shown,
        html=render(body, str(shown.get("path", "")), leads),
        empty=not body.strip(),
        part=bool(offset),
        next_text=found.get("nextOffset"),
        next_evidence=found.get("nextEvidenceOffset"),
        evidence_from=look.whole("evidence"),
        evidence_total=found.get("evidenceTotal"),
        connected={name: rows(answer, "connections") for name, answer in connected.items()},
        totals=member(shown, "connections"),
        chain=await _chain(look, shown),
        merged=[await heading(look, one) for one in _texts(shown, "mergedFrom")[:CHAIN_MAX]],
        titles=DIRECTION_TITLES,
        revisions=compared(rows(history, "rows"))[:REVISIONS_SHOWN],
        request=change_request(shown),
    )


async def _chain(look: Look, shown: JsonObject) -> list[JsonObject]:
    """The records that replaced each other around this one, the earliest first; alone it is no chain."""
    found = [shown]
    seen = {str(shown["id"])}
    for name, at_end in (("supersedes", False), ("supersededBy", True), ("mergedInto", True)):
        following = shown.get(name)
        while isinstance(following, str) and following not in seen and len(found) <= CHAIN_MAX:
            seen.add(following)
            one = await heading(look, following)
            found.insert(len(found) if at_end else 0, one)
            following = one.get(name)
    return found if len(found) > 1 else []


async def connections(look: Look) -> Response:
    """All of one direction, page by page."""
    record_id, direction = str(look.request.path_params["id"]), str(look.request.path_params["direction"])
    found = await look.ask(
        "operator.connections",
        {"id": record_id, "direction": direction, "limit": 50, "historical": bool(look.text("historical")) or None,
         "offset": look.whole("offset") or None, "snapshot": look.text("snapshot")},
    )  # fmt: skip
    following = found.get("nextOffset")
    return look.page(
        "connections.html",
        record=await heading(look, record_id),
        title=DIRECTION_TITLES.get(direction, direction),
        rows=rows(found, "connections"),
        total=found.get("total"),
        next_page=look.again(offset=following, snapshot=found.get("snapshot")) if isinstance(following, int) else None,
        changed=bool(look.text("changed")),
    )


async def history(look: Look) -> Response:
    """The revisions of one record, outside edits and removals included, newest first."""
    record_id = str(look.request.path_params["id"])
    found = await look.ask(
        "operator.history", {"id": record_id, "limit": HISTORY_PER_PAGE + 1, "offset": look.whole("offset") or None}
    )
    listed = compared(rows(found, "rows"))
    if not listed and not look.whole("offset"):
        look.status_code = 404
    more = len(listed) > HISTORY_PER_PAGE or found.get("nextOffset") is not None
    listed = listed[:HISTORY_PER_PAGE]
    return look.page(
        "history.html",
        record=await heading(look, record_id),
        rows=listed,
        total=found.get("total"),
        next_page=look.again(offset=look.whole("offset") + len(listed)) if more and listed else None,
    )


async def revision(look: Look) -> Response:
    """One revision as a whole, and what it changed."""
    record_id, sequence = str(look.request.path_params["id"]), whole(str(look.request.path_params["sequence"]))
    if sequence is None:
        raise NotFound("History has no such revision of this record.", field="sequence")
    found = await look.ask("operator.revision", {"id": record_id, "sequence": sequence, "maxChars": TEXT_CHARS})
    earlier = await _earlier(look, record_id, found)
    head, body = envelope(str(found.get("content", "")))
    old_head, old_body = envelope("" if earlier is None else str(earlier.get("content", "")))
    return look.page(
        "revision.html",
        record=await heading(look, record_id),
        row=found,
        earlier=earlier,
        body=body,
        head=head,
        changed=() if earlier is None else passages(old_body, body),
        changed_head=() if earlier is None else passages(old_head, head),
        cut="nextOffset" in found or (earlier is not None and "nextOffset" in earlier),
    )


async def heading(look: Look, record_id: str) -> JsonObject:
    """What a record is called and what it is; only its id where it is gone."""
    found = await look.ask("operator.record", {"id": record_id, "includeEvidence": False, "maxChars": 1_000})
    return member(found, "record") or {"id": record_id, "title": record_id, "kind": "record"}


async def _earlier(look: Look, record_id: str, found: JsonObject) -> JsonObject | None:
    """The revision that this one replaced: the address names it, else history does."""
    before = found.get("before")
    if before is None:
        return None
    sequence: JsonValue = look.whole("against") or None
    if sequence is None:
        listed = rows(await look.ask("operator.history", {"id": record_id, "limit": 100}), "rows")
        sequence = next((row["against"] for row in compared(listed) if row["sequence"] == found["sequence"]), None)
    if sequence is None:
        return None
    return await look.ask("operator.revision", {"id": record_id, "sequence": sequence, "maxChars": TEXT_CHARS})


def compared(listed: Sequence[JsonObject]) -> list[JsonObject]:
    """History rows, each with the sequence of the revision that it replaced as ``against``, where that is among
    them."""
    by_hash = {str(row.get("hash")): row.get("sequence") for row in reversed(listed) if not row.get("removed")}
    return [{**row, "against": by_hash.get(str(row.get("before")))} for row in listed]


def envelope(text: str) -> tuple[str, str]:
    """The frontmatter of a record's file and its body."""
    mark = text.find("\n---\n", 3)
    if not text.startswith("---\n") or mark < 0:
        return "", text
    return text[4 : mark + 1], text[mark + 5 :].removeprefix("\n")


def leads_to(look: Look, linked: Sequence[JsonObject]) -> LeadTo:
    """Addresses of the records that a text links to: by id, name or path; another name is looked for when followed."""
    by_id = {str(row["id"]): row for row in linked}
    by_name: dict[str, str] = {}
    by_path: dict[str, str] = {}
    for record_id, row in by_id.items():
        by_path[path_key(str(row.get("path", "")))] = record_id
        for name in (row.get("title"), *_texts(row, "aliases")):
            by_name.setdefault(normalise_name(str(name)), record_id)

    def lead(target: Target) -> str | None:
        match target.kind:
            case "record":
                known = target.value if target.value in by_id else by_name.get(normalise_name(target.value))
                known = known or by_path.get(path_key(target.value)) or by_path.get(path_key(f"{target.value}.md"))
                return look.link(f"/record/{known}") if known else look.link("/find", name=target.value)
            case "path":
                known = by_path.get(path_key(target.value)) or by_path.get(path_key(f"{target.value}.md"))
                return None if known is None else look.link(f"/record/{known}")
            case _:
                return None

    return lead


def change_request(record: Mapping[str, object]) -> str:
    """Text to hand to an agent: it names exactly what was seen, and what is to change is left to write.

    The title is quoted as data: it is a text of others.
    """
    seen = f"{record['kind']} {json.dumps(harmless(record.get('title', '')), ensure_ascii=False)}"
    return textwrap.dedent(
        f"""\
        Please change a record of your knowledge store. I looked at {seen}:

        id: {record["id"]}
        revision: {record["revision"]}
        hash: {record["hash"]}

        What is wrong, and what is right instead:


        Read the record first. If its revision or hash is another one by now, tell me before you change anything.
        Correct or withdraw it with your tools, so that its history stays.
        """
    )


def _texts(row: JsonObject, name: str) -> list[str]:
    found = row.get(name)
    return [str(value) for value in found] if isinstance(found, list) else []

"""Timeline: records by their dates, a year of days to choose from; and the commitments that are due.

Source: tools.md (Ingestion and dates); knowledge-more-facts.md section 6.
"""

from __future__ import annotations

from datetime import date, timedelta
from itertools import groupby
from typing import Final

from starlette.responses import Response

from host_bridge.explorer.browsing import FIELDS
from host_bridge.explorer.site import Look, rows
from messages.vocabulary import CLAIM_KINDS, RECORD_KINDS

PER_PAGE: Final = 50
WEEKS: Final = 53
LEVELS: Final = (1, 3, 8, 20)
"""From how many records on a day is a darker one."""


async def timeline(look: Look) -> Response:
    """Records in the order of a date, by days, and how many each day of the last year has."""
    field, since = look.text("field"), look.text("since")
    found = await look.ask("operator.timeline", {
        "since": since, "until": look.text("until"), "timeField": field, "kind": look.text("kind"),
        "claimKind": look.text("claim_kind"), "subject": look.text("subject"),
        "order": "asc" if look.text("order") == "asc" else None, "limit": PER_PAGE,
        "offset": look.whole("offset") or None, "snapshot": look.text("snapshot"),
    })  # fmt: skip
    entries = rows(found, "entries")
    following = found.get("nextOffset")
    return look.page(
        "timeline.html",
        days=[(day, list(of_day)) for day, of_day in groupby(entries, key=lambda row: str(row.get("date")))],
        total=found.get("total"),
        next_page=look.again(offset=following, snapshot=found.get("snapshot"), changed=None)
        if isinstance(following, int)
        else None,
        first_page=look.again(offset=None, snapshot=None, changed=None) if look.whole("offset") else None,
        changed=bool(look.text("changed")),
        filtered=any(look.text(name) for name in ("since", "until", "kind", "claim_kind", "subject", "field")),
        calendar=await _calendar(look),
        fields=FIELDS,
        kinds=RECORD_KINDS,
        claim_kinds=CLAIM_KINDS,
    )


async def due(look: Look) -> Response:
    """Overdue, due today, coming."""
    horizon = min(look.whole("days", 30), 366)
    found = await look.ask("operator.chronicleDue", {"horizonDays": horizon})
    totals = found.get("totals")
    return look.page(
        "due.html",
        lists=[(name, rows(found, name)) for name in ("overdue", "due", "upcoming")],
        totals=totals if isinstance(totals, dict) else {},
        as_of=found.get("asOf"),
        horizon=horizon,
    )


async def _calendar(look: Look) -> list[list[dict[str, object]]]:
    """The last year as weeks of days from Monday on, each with its number of records and how dark it is."""
    # The store's own days are UTC ones; the last due list says which today is.
    today = date.fromisoformat(str((await look.ask("operator.chronicleDue", {"horizonDays": 0}))["asOf"]))
    start = today - timedelta(days=today.weekday() + 7 * (WEEKS - 1))
    counted: dict[str, int] = {}
    since: str | None = start.isoformat()
    until = (today + timedelta(days=1)).isoformat()
    if (today + timedelta(days=1) - start).days > 366:
        since = (today - timedelta(days=365)).isoformat()
    while since is not None:
        found = await look.ask("operator.chronicleDays", {"since": since, "until": until})
        for row in rows(found, "days"):
            counted[str(row["day"])] = sum(number for number in row.values() if isinstance(number, int))
        more = found.get("nextSince")
        since = str(more) if more is not None and str(more) > since else None
    weeks: list[list[dict[str, object]]] = []
    for number in range((today - start).days + 1):
        day = start + timedelta(days=number)
        count = counted.get(day.isoformat(), 0)
        if not day.weekday():
            weeks.append([])
        weeks[-1].append({"day": day.isoformat(), "count": count, "level": sum(count >= least for least in LEVELS)})
    return weeks

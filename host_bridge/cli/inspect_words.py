"""What ``knowledge inspect`` found, as a person reads it. Standard library only."""

from __future__ import annotations

from host_bridge.cli import output

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

    from messages.json_types import JsonObject, JsonValue

_LINE = 110
_LISTS = ("records", "hits", "connections", "entries")


def in_words(view: str, answer: JsonObject) -> str:
    """A few lines for each thing that was found, and how to go on."""
    match view:
        case "record":
            lines = list(_record(answer))
        case "history":
            lines = [_revision(row) for row in _objects(answer.get("rows"))]
        case "activity":
            lines = list(_activity(answer))
        case "tags":
            lines = [f"{_count(row):>6}  {_flat(row.get('tag'))}" for row in _objects(answer.get("tags"))]
        case "vocabulary":
            lines = list(_vocabulary(answer))
        case "diagnostics":
            lines = list(_findings(answer))
        case _:
            lines = [line for name in _LISTS for card in _objects(answer.get(name)) for line in _card(card)]
    return output.told([*(lines or ["Nothing."]), *_rest(answer)])


def _rest(answer: JsonObject) -> Iterator[str]:
    """What is not shown, and why."""
    refusal = answer.get("refusal")
    if isinstance(refusal, dict):
        yield f"The store is not up to date: {refusal.get('message')}"
    index = answer.get("index")
    if answer.get("total", 0) is None and isinstance(index, dict):
        yield f"The search was not answered: {index.get('reason')}"
    for name, option in (("nextOffset", "--offset"), ("nextBefore", "--before")):
        if answer.get(name) is not None:
            total = answer.get("total")
            known = f" of {total}" if isinstance(total, int) else ""
            yield f"More{known}: add {option} {answer[name]}"
    coverage = answer.get("coverage")
    if isinstance(coverage, dict) and coverage:
        counted = ", ".join(f"{number} {what}" for what, number in coverage.items())
        yield f"Not covered: {counted} (files; see knowledge inspect diagnostics)"


def _card(card: JsonObject) -> Iterator[str]:
    what = card.get("type") or card.get("claimKind") or card.get("label") or ""
    state = "" if card.get("current") else f" [{_state(card)}]"
    direction = f"{card['direction']}: " if "direction" in card else ""
    date = card.get("date") or card.get("due") or str(card.get("updatedAt", ""))[:10]
    yield _short(f"{date}  {direction}{card.get('kind')} {what}  {_title(card)}{state}")
    text = card.get("snippet") or card.get("text") or card.get("preview")
    if text and text != card.get("title"):
        yield _short(f"            {_flat(text)}")
    yield f"            {card.get('id')}"


def _title(card: JsonObject) -> str:
    source, target = card.get("from"), card.get("to")
    if isinstance(source, dict) and isinstance(target, dict):
        return f"{source.get('title') or source.get('id')} -> {target.get('title') or target.get('id')}"
    return _flat(card.get("title"))


def _state(card: JsonObject) -> str:
    if card.get("lifecycle") != "active":
        return str(card.get("lifecycle"))
    return next((name for name in ("expired", "fixture") if card.get(name)), "invalid")


def _record(answer: JsonObject) -> Iterator[str]:
    record = answer.get("record")
    if not isinstance(record, dict):
        files = answer.get("files")
        if not isinstance(files, list) or not files:
            yield "No record has this id."
            return
        yield "Add --path with one of the files that carry this id:"
        yield from (f"  {_flat(path)}" for path in files)
        return
    text = record.get("text", record.get("body"))
    for name, member in record.items():
        if name not in ("text", "body", "evidence", "originals"):
            yield f"{name:<22} {_member(member)}"
    for citation in _objects(record.get("evidence")):
        held = {True: "holds", False: f"does not hold: {citation.get('problem')}"}.get(bool(citation.get("verified")))
        lines = f", lines {citation['start_line']}-{citation.get('end_line')}" if "start_line" in citation else ""
        yield f"{'evidence':<22} {citation.get('path')}{lines} ({held})"
    yield ""
    for line in str(text).rstrip("\n").split("\n"):
        yield line.rstrip("\r")


def _member(member: JsonValue) -> str:
    if isinstance(member, dict):
        return ", ".join(f"{name}: {_member(value)}" for name, value in member.items())
    if isinstance(member, list):
        return "; ".join(_member(value) for value in member)
    return _flat(member)


def _revision(row: JsonObject) -> str:
    gone = " (removed)" if row.get("removed") else ""
    named = row.get("path") or row.get("id") or ""
    return f"{row.get('sequence')}  {row.get('at')}  {row.get('operation')} by {row.get('actor')}  {named}{gone}"


def _activity(answer: JsonObject) -> Iterator[str]:
    for row in _objects(answer.get("rows")):
        records = row.get("records")
        named = ", ".join(map(str, records)) if isinstance(records, list) else ""
        state = "" if row.get("state") in ("published", "folded") else f" [{row.get('state')}]"
        what = f"{row.get('operation')} by {row.get('actor')}{state}"
        yield _short(f"{row.get('sequence')}  {row.get('acceptedAt')}  {what}  {named}")
    git, unfinished = answer.get("git"), answer.get("publications")
    if isinstance(git, dict):
        yield f"Git: {git.get('state')}, {git.get('pending')} waiting{_because(git)}"
    if isinstance(unfinished, dict):
        yield f"Publications: {unfinished.get('pending')} unfinished, {unfinished.get('conflict')} in conflict"
    found = answer.get("diagnostics")
    if isinstance(found, dict):
        yield from _findings(found)


def _because(git: JsonObject) -> str:
    return f" ({git['message']})" if "message" in git else ""


def _vocabulary(answer: JsonObject) -> Iterator[str]:
    for row in (*_objects(answer.get("types")), *_objects(answer.get("definitions"))):
        yield _short(f"{row.get('kind'):<13} {row.get('name'):<16} {_count(row):>6}  {_flat(row.get('description'))}")
        fields = row.get("fields")
        if isinstance(fields, dict) and fields:
            yield _short(f"{'':<13} fields: {', '.join(fields)}")
    for row in (*_objects(answer.get("sources")), *_objects(answer.get("issues"))):
        yield _member(row)


def _count(row: JsonObject) -> str:
    counts = row.get("counts")
    return str(counts.get("current")) if isinstance(counts, dict) else ""


def _findings(answer: JsonObject) -> Iterator[str]:
    for row in _objects(answer.get("findings")):
        yield f"{row.get('path')}: {_flat(row.get('message'))} ({row.get('code')})"
    total = answer.get("total")
    yield f"{total} finding{'' if total == 1 else 's'}{', not all shown' if answer.get('truncated') else ''}"


def _flat(value: JsonValue) -> str:
    """White space folded, so that it takes one line."""
    return " ".join(str(value).split()) if value is not None else ""


def _short(line: str) -> str:
    return line.rstrip() if len(line) <= _LINE else f"{line[: _LINE - 1].rstrip()}…"


def _objects(value: JsonValue) -> list[JsonObject]:
    return [item for item in value if isinstance(item, dict)] if isinstance(value, list) else []

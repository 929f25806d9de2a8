"""What the clients ask: every tool in the proportions of real work, with arguments that one seed decides.

A :class:`Shelf` is what all clients of one partition have seen of it, as agents that share a memory do; a
:class:`Script` makes the next call of one client from it.
"""

from __future__ import annotations

import base64
import random
import threading
import uuid
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Final

from messages.json_types import JsonObject, JsonValue

_WORDS: Final = tuple(
    "harvest irrigation compost seedling frost beetle pruning greenhouse orchard trellis mulch rotation drainage "
    "pollen nursery rootstock lattice terrace cistern hedgerow".split()
)
_PAGE_TYPES: Final = ("person", "project", "note", "concept", "company")
_SHELF_MAX: Final = 400
ABOUT_A_REQUEST: Final = frozenset({"knowledge_mutation", "knowledge_resume"})
"""Tools whose request id is that of another call."""


@dataclass(frozen=True, slots=True)
class Seen:
    """A record as it was last seen. It may have changed since: its fences are then stale, and must be refused."""

    id: str
    revision: int
    content: str
    kind: str
    type: str = ""
    title: str = ""


class Shelf:
    """What is known of one partition. Any thread."""

    def __init__(self, secret: str) -> None:
        self.secret = secret
        self.vault_id = ""
        self.fingerprint = ""
        self._lock = threading.Lock()
        self._records: dict[str, Seen] = {}
        self._evidence: list[JsonObject] = []
        self._rows = deque[tuple[str, int]](maxlen=50)
        self._references = deque[JsonObject](maxlen=50)
        self._cited = deque[tuple[str, JsonObject]](maxlen=50)

    def learn(self, seen: Seen) -> None:
        with self._lock:
            earlier = self._records.pop(seen.id, None)
            if earlier is not None and not seen.title:
                seen = Seen(seen.id, seen.revision, seen.content, earlier.kind, earlier.type, earlier.title)
            self._records[seen.id] = seen
            while len(self._records) > _SHELF_MAX:
                del self._records[next(iter(self._records))]

    def get(self, record: str) -> Seen | None:
        with self._lock:
            return self._records.get(record)

    def forget(self, record: str) -> None:
        with self._lock:
            self._records.pop(record, None)

    def retain(self, evidence: JsonObject) -> None:
        with self._lock:
            self._evidence = [*self._evidence[-50:], evidence]

    def learn_row(self, record: str, sequence: int) -> None:
        """A revision that history showed."""
        with self._lock:
            self._rows.append((record, sequence))

    def learn_citation(self, record: str, evidence: JsonObject) -> None:
        """A record that was saved with this evidence."""
        with self._lock:
            self._cited.append((record, evidence))

    def learn_reference(self, reference: JsonObject) -> None:
        """A record as the memory provider named it."""
        with self._lock:
            self._references.append(reference)

    def reference(self, chance: random.Random) -> JsonObject | None:
        with self._lock:
            return chance.choice(self._references) if self._references else None

    def row(self, chance: random.Random) -> tuple[str, int] | None:
        with self._lock:
            return chance.choice(self._rows) if self._rows else None

    def citation(self, chance: random.Random) -> tuple[str, JsonObject] | None:
        with self._lock:
            return chance.choice(self._cited) if self._cited else None

    def pick(self, chance: random.Random, kind: str | None = None) -> Seen | None:
        with self._lock:
            found = [seen for seen in self._records.values() if kind is None or seen.kind == kind]
        # Half of the work is about the last few records: that is where agents meet.
        return chance.choice(found[-8:] if chance.random() < 0.5 else found) if found else None

    def evidence(self, chance: random.Random) -> JsonObject | None:
        with self._lock:
            return dict(chance.choice(self._evidence)) if self._evidence else None


Arguments = JsonObject | None


class Script:
    """The calls of one client, one after another."""

    def __init__(self, chance: random.Random, shelf: Shelf) -> None:
        self.chance = chance
        self.shelf = shelf
        self._turn = 0
        self._next = deque[tuple[str, Callable[[], Arguments]]](maxlen=6)
        self._requests = deque[str](maxlen=20)
        self._mix: tuple[tuple[str, int, Callable[[], Arguments]], ...] = (
            ("lookup", 14, self._lookup),
            ("grep", 12, self._grep),
            ("record", 18, self._record),
            ("records", 3, lambda: {"limit": 20}),
            ("connections", 3, self._by_id),
            ("timeline", 2, lambda: {"limit": 10}),
            ("chronicle_days", 1, self._days),
            ("chronicle_day", 1, lambda: {"date": _day(0)}),
            ("chronicle_due", 1, dict),
            ("status", 2, dict),
            ("ontology", 1, lambda: {"limit": 5}),
            ("history", 2, self._history),
            ("verify", 1, self._verify),
            ("source_check", 1, lambda: {"sources": [{"key": "mail/1", "size": 1}]}),
            ("revision", 2, self._revision),
            ("evidence_read", 1, lambda: self._source(maxChars=2_000)),
            ("attachment", 1, self._source),
            ("memory.search", 6, lambda: {"query": f"{self._word()} {self._word()}", "limit": 10}),
            ("memory.read", 6, self._read),
            ("memory.status", 1, dict),
            ("memory.candidates", 1, lambda: {"kind": self.chance.choice(("trigger", "project"))}),
            ("recall.gate", 4, self._gate),
            ("prompt.build", 2, lambda: {"sessionStartedAt": "2026-01-01T00:00:00Z"}),
            ("mutation", 1, self._request),
            ("resume", 1, self._request),
            ("remember", 12, self._remember),
            ("save_page", 9, self._new_page),
            ("save_page", 6, self._edit_page),
            ("edit_body", 5, self._edit_body),
            ("create_claim", 2, self._claim),
            ("create_relationship", 1, self._relationship),
            ("correct", 1, self._correct),
            ("withdraw", 1, self._withdraw),
            ("annotate", 2, self._annotate),
            ("merge", 1, self._merge),
            ("unmerge", 1, self._unmerge),
            ("publish_batch", 1, self._batch),
            ("extract_section", 1, self._extract),
            ("reconcile_evidence", 1, self._reconcile),
            ("recall", 1, self._recall),
            ("attach", 2, self._attach),
        )
        self._weights = [weight for _, weight, _ in self._mix]

    def next(self) -> tuple[str, JsonObject]:
        """Tool, or method of the memory provider, and arguments of the next call."""
        self._turn += 1
        if self._next:
            name, build = self._next.popleft()
        else:
            name, _, build = self.chance.choices(self._mix, self._weights)[0]
        arguments = build()
        if arguments is None:
            return "knowledge_status", {}
        return name if is_method(name) else f"knowledge_{name}", arguments

    def overtaken(self, record: str) -> None:
        """A change was refused since the record had changed: most agents read it again, and try again."""
        if self.chance.random() < 0.8:
            self._next.append(("record", lambda: {"id": record, "maxChars": 48_000}))
            self._next.append(("save_page", lambda: self._edit(self.shelf.get(record))))

    # --- reads ------------------------------------------------------------------------------------------

    def _lookup(self) -> Arguments:
        seen = self.shelf.pick(self.chance, "page")
        return {"query": seen.title if seen is not None and seen.title else self._word()}

    def _grep(self) -> Arguments:
        return {"query": f"{self._word()} {self._word()}", "mode": self.chance.choice(("any", "all"))}

    def _record(self) -> Arguments:
        seen = self.shelf.pick(self.chance)
        return None if seen is None else {"id": seen.id, "maxChars": 48_000}

    def _gate(self) -> Arguments:
        """A message about a page that is there, or about nothing in particular."""
        seen = self.shelf.pick(self.chance, "page")
        about = self._word() if seen is None else seen.title or self._word()
        return {"message": f"What of {about}?", "turnId": f"turn-{self.chance.getrandbits(64):016x}"}

    def _read(self) -> Arguments:
        reference = self.shelf.reference(self.chance)
        return None if reference is None else {"ref": reference, "lines": 50}

    def _by_id(self) -> Arguments:
        seen = self.shelf.pick(self.chance)
        return None if seen is None else {"id": seen.id}

    def _history(self) -> Arguments:
        return self._by_id() if self.chance.random() < 0.5 else {"limit": 10}

    def _days(self) -> Arguments:
        return {"since": _day(-7), "until": _day(2)}

    def _verify(self) -> Arguments:
        seen = self.shelf.pick(self.chance)
        return None if seen is None else {"ids": [seen.id]}

    def _revision(self) -> Arguments:
        row = self.shelf.row(self.chance)
        return None if row is None else {"id": row[0], "sequence": row[1]}

    def _source(self, **more: JsonValue) -> Arguments:
        cited = self.shelf.citation(self.chance)
        return None if cited is None else {"id": cited[0], **cited[1], **more}

    def _request(self) -> Arguments:
        return {"requestId": self.chance.choice(self._requests)} if self._requests else None

    # --- writes -----------------------------------------------------------------------------------------

    def _remember(self) -> Arguments:
        items: list[JsonValue] = [
            {"text": self._sentence(), "kind": "fact"} for _ in range(self.chance.choice((1, 1, 1, 2, 5)))
        ]
        words = f"User: {self._sentence()}"
        return self._write(attribution="a client, in a run", excerpt=words, items=items)

    def _new_page(self) -> Arguments:
        other = self.shelf.pick(self.chance, "page")
        link = "" if other is None else f" See [[{other.title or other.id}]]."
        heading = self.chance.choice(("", "## In detail\n\n"))
        return self._write(
            title=self._title(), type=self.chance.choice(_PAGE_TYPES), body=f"{heading}{self._sentence()}{link}\n"
        )

    def _edit_page(self) -> Arguments:
        return self._edit(self.shelf.pick(self.chance, "page"))

    def _edit(self, seen: Seen | None) -> Arguments:
        if seen is None or not seen.title or seen.kind != "page":
            return None
        return self._write(
            id=seen.id,
            expectedRevision=seen.revision,
            expectedHash=seen.content,
            title=seen.title,
            type=seen.type,
            body=f"{self._sentence()}\n\n{self._sentence()}\n",
        )

    def _edit_body(self) -> Arguments:
        seen = self.shelf.pick(self.chance, "page")
        if seen is None:
            return None
        text = f"{self._sentence()}\n"
        return self._on(seen, start=0, end=0, replacement=text, reason="a client adds a line")

    def _statement(self) -> JsonObject | None:
        evidence = self.shelf.evidence(self.chance)
        if evidence is None:
            return None
        return {
            "attribution": "a client, in a run",
            "evidence": [evidence],
            "body": self._sentence(),
            "claim_kind": "fact",
            "assertion_origin": "source",
        }

    def _claim(self) -> Arguments:
        statement = self._statement()
        return None if statement is None else self._fenced(**statement)

    def _relationship(self) -> Arguments:
        evidence = self.shelf.evidence(self.chance)
        first, second = self.shelf.pick(self.chance, "page"), self.shelf.pick(self.chance, "page")
        if evidence is None or first is None or second is None or first.id == second.id:
            return None
        return self._fenced(
            **{"from": first.id}, to=second.id, label="related_to", attribution="a client", evidence=[evidence]
        )

    def _correct(self) -> Arguments:
        seen, statement = self.shelf.pick(self.chance, "claim"), self._statement()
        return (
            None
            if seen is None or statement is None
            else self._on(seen, reason="it was wrong", replacement={"kind": "claim", **statement})
        )

    def _withdraw(self) -> Arguments:
        seen = self.shelf.pick(self.chance, "claim")
        return None if seen is None else self._on(seen, reason="it does not count any more")

    def _annotate(self) -> Arguments:
        seen = self.shelf.pick(self.chance, "claim")
        confidence = self.chance.choice(("low", "medium", "high"))
        return None if seen is None else self._on(seen, reason="looked again", attribution_confidence=confidence)

    def _merge(self) -> Arguments:
        first, second = self.shelf.pick(self.chance, "page"), self.shelf.pick(self.chance, "page")
        if first is None or second is None or first.id == second.id or first.type != second.type:
            return None
        return self._fenced(source=_fences(first), destination=_fences(second), reason="they are one")

    def _unmerge(self) -> Arguments:
        seen = self.shelf.pick(self.chance, "page")
        return None if seen is None else self._on(seen, reason="they are two")

    def _batch(self) -> Arguments:
        pages: list[JsonValue] = [
            {"kind": "page", "ref": f"p{n}", "title": self._title(), "type": "note", "body": f"{self._sentence()}\n"}
            for n in range(self.chance.randrange(1, 4))
        ]
        return self._fenced(items=pages)

    def _extract(self) -> Arguments:
        """Of a page that still begins with a heading; of any other it is refused."""
        seen = self.shelf.pick(self.chance, "page")
        if seen is None:
            return None
        return self._fenced(
            source=_fences(seen),
            sectionStart=0,
            destination={"title": self._title(), "type": "note"},
            summary=self._sentence(),
            reason="a page of its own",
        )

    def _reconcile(self) -> Arguments:
        seen, evidence = self.shelf.pick(self.chance, "page"), self.shelf.evidence(self.chance)
        return None if seen is None or evidence is None else self._on(seen, evidence=[evidence], reason="looked again")

    def _recall(self) -> Arguments:
        seen = self.shelf.pick(self.chance, "page")
        return None if seen is None else self._on(seen, summary=self._sentence()[:200])

    def _attach(self) -> Arguments:
        data = self._sentence().encode() * self.chance.choice((1, 1, 50))
        return self._write(
            filename=f"note-{self._turn}.txt",
            mediaType="text/plain",
            attribution="a client, in a run",
            offset=0,
            data=base64.b64encode(data).decode(),
            final=True,
        )

    # --- words ------------------------------------------------------------------------------------------

    def _write(self, **arguments: JsonValue) -> JsonObject:
        request = str(uuid.UUID(int=self.chance.getrandbits(128), version=4))
        self._requests.append(request)
        return {"requestId": request, **arguments}

    def _fenced(self, **arguments: JsonValue) -> JsonObject | None:
        shelf = self.shelf
        if not shelf.vault_id or not shelf.fingerprint:
            return None
        return self._write(expectedVaultId=shelf.vault_id, expectedOntologyFingerprint=shelf.fingerprint, **arguments)

    def _on(self, seen: Seen, **arguments: JsonValue) -> JsonObject | None:
        return self._fenced(**_fences(seen), **arguments)

    def _sentence(self) -> str:
        token = f"{self.chance.getrandbits(64):016x}"
        return f"The {self._word()} needs {self._word()} in turn {self._turn}, {token}, {self.shelf.secret}."

    def _title(self) -> str:
        return f"{self._word().capitalize()} {self.chance.getrandbits(32):08x}"

    def _word(self) -> str:
        return self.chance.choice(_WORDS)


def is_method(name: str) -> bool:
    """Whether it is a method of the memory provider, which only the host protocol has, and no tool."""
    return "." in name


def _fences(seen: Seen) -> JsonObject:
    return {"id": seen.id, "expectedRevision": seen.revision, "expectedHash": seen.content}


def _day(offset: int) -> str:
    return (datetime.now(UTC) + timedelta(days=offset)).date().isoformat()

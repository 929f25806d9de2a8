"""A store worth looking at: notes and conversations of a rowing club's buoy, with everything that happens to records.

Everything is written through the door that agents use; what people do to files is done to files.
"""

from __future__ import annotations

import base64
import itertools
import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import host_bridge
from host_bridge.bridge import KnowledgeBridge
from messages.audience import Audience, Conversation, OwnerPrivate
from messages.json_types import JsonObject, JsonValue
from tests.kit.store import items_of, only_store, remembering, request_id, write_note

MAIN: Final = OwnerPrivate("main")
DATA: Final = Path(host_bridge.__file__).parent / "demo_data"
CONFIGURATION: Final = "agents: {list: [{id: main}, {id: ben}, {id: research}]}\n"


@dataclass
class World:
    """One running store; ``ids`` by title or by the name that the test gave."""

    bridge: KnowledgeBridge
    ids: dict[str, str] = field(default_factory=dict)
    _numbers: Iterator[int] = field(default_factory=lambda: itertools.count(1))

    @property
    def private(self) -> Path:
        """The folder of the private partition of the one store there is."""
        return only_store(self.bridge.state_dir).vault / "private"

    def call(self, tool: str, arguments: Mapping[str, JsonValue], audience: Audience = MAIN) -> JsonObject:
        """A write of an agent, under the next request id."""
        given = {"requestId": request_id(next(self._numbers)), **arguments}
        return self.bridge.call(f"knowledge_{tool}", given, audience)

    def read(self, tool: str, arguments: JsonObject, audience: Audience = MAIN) -> JsonObject:
        return self.bridge.call(f"knowledge_{tool}", arguments, audience)

    def ask(self, method: str, **params: JsonValue) -> JsonObject:
        return self.bridge.ask(f"operator.{method}", params)

    def page(self, title: str, type: str = "project", body: str = "About it.", **more: JsonValue) -> str:
        """Save a page; its id."""
        saved = self.call("save_page", {"title": title, "type": type, "body": body, **more})
        self.ids[title] = str(saved["id"])
        return self.ids[title]

    def claim(self, text: str, **more: JsonValue) -> str:
        """Remember one claim; its id."""
        [item] = items_of(self.call("remember", remembering({"text": text, "kind": "fact", **more})))
        return str(item["id"])

    def fence(self, record_id: str, **more: JsonValue) -> JsonObject:
        """The arguments by which a write names a record as it is now."""
        found = self.record(record_id)
        return {"id": record_id, "expectedRevision": found["revision"], "expectedHash": found["hash"], **more}

    def record(self, record_id: str) -> JsonObject:
        found = self.ask("record", id=record_id)["record"]
        assert isinstance(found, dict)
        return found

    def vault(self) -> JsonObject:
        """The arguments by which a write names the vault and the ontology that it expects."""
        status = self.read("status", {})
        return {
            "expectedVaultId": status["vaultId"],
            "expectedOntologyFingerprint": status["ontologyFingerprint"],
        }

    def citation(self, record_id: str) -> JsonObject:
        """The first citation of a record, as a write takes it."""
        evidence = self.record(record_id)["evidence"]
        assert isinstance(evidence, list)
        assert isinstance(evidence[0], dict)
        return {key: evidence[0][key] for key in ("path", "sha256") if key in evidence[0]}


@contextmanager
def open_world(state_dir: Path, configuration: str = CONFIGURATION) -> Iterator[World]:
    """An empty world, with a configuration file that the running program may edit."""
    state_dir.mkdir(parents=True, exist_ok=True)
    (state_dir / "knowledge.yaml").write_text(configuration, "utf-8")
    with KnowledgeBridge(state_dir) as bridge:
        yield World(bridge)


def furnish(world: World) -> None:
    """Everything that a page of the explorer can show."""
    story = json.loads((DATA / "agent.json").read_text("utf-8"))
    texts = {name: (DATA / name).read_text("utf-8").splitlines() for name in ("chat.txt", "meeting.txt")}
    for page in story["pages"]:
        body = (DATA / "notes" / page["note"]).read_bytes().decode("utf-8-sig")
        world.page(**{key: value for key, value in page.items() if key != "note"}, body=body)
    for batch in story["remember"]:
        first, last = batch["lines"]
        excerpt = "\n".join(texts[batch["source"]][first - 1 : last])
        given = {"attribution": batch["attribution"], "excerpt": excerpt, "items": batch["items"]}
        for item, answer in zip(batch["items"], items_of(world.call("remember", given)), strict=True):
            world.ids.setdefault(item["text"][:24], str(answer["id"]))
            world.ids.setdefault("a claim", str(answer["id"]))
    _cited_lines(world, texts["chat.txt"])
    _relationships(world)
    _corrected(world)
    _merged(world)
    _edited(world)
    write_note(world.private, "people/sven.md", "# Sven\n\nLends the crane on Saturdays.\n")
    write_note(world.private, "broken.md", "---\nformat: knowledge-record-v1\nid: [\n---\n\nHalf a note.\n")


def _cited_lines(world: World, lines: list[str]) -> None:
    """A claim that cites a few lines of a longer original."""
    upload = {"filename": "group-chat.txt", "media_type": "text/plain", "attribution": "the group's own export"}
    text = "\n".join(lines)
    kept = world.call("attach", {"filename": upload["filename"], "mediaType": "text/plain",
                                 "attribution": upload["attribution"], "offset": 0, "final": True,
                                 "data": base64.b64encode(text.encode()).decode()})["evidence"]  # fmt: skip
    assert isinstance(kept, dict)
    cited: JsonObject = {"path": kept["path"], "sha256": kept["sha256"], "start_line": 12, "end_line": 20}
    made = world.call("create_claim", {**world.vault(), "body": "The gateway stands on the clubhouse roof.",
                                       "claim_kind": "fact", "assertion_origin": "source",
                                       "attribution": "the group's own export, lines 12 to 20",
                                       "entities": [world.ids["LoRa uplink"]], "occurred_at": "2026-09-07",
                                       "evidence": [cited]})  # fmt: skip
    world.ids["cited lines"] = str(made["id"])


def _relationships(world: World) -> None:
    evidence: JsonValue = [world.citation(world.ids["a claim"])]
    for one, label, other in (
        ("Marta Kowalczyk", "related_to", "Tidepool"), ("Alex Chen", "related_to", "Tidepool"),
        ("Yuki Tanaka", "related_to", "Tidepool"), ("Tidepool", "uses", "LoRa uplink"),
        ("Brightwater Rowing Club", "related_to", "Tidepool"),
        ("Alex Novák", "member_of", "Brightwater Rowing Club"),
    ):  # fmt: skip
        given: JsonObject = {**world.vault(), "from": world.ids[one], "to": world.ids[other], "label": label,
                             "attribution": "group chat, 2026-09-07", "evidence": evidence}  # fmt: skip
        world.call("create_relationship", given)


def _corrected(world: World) -> None:
    wrong = world.claim("Demo day is on 25 September.", subject="Tidepool", occurred_at="2026-09-10")
    found = world.record(wrong)
    replacement: JsonObject = {"kind": "claim", "body": "Demo day is on 28 September.", "claim_kind": "fact",
                               "assertion_origin": "source", "attribution": "Priya Raman, group chat, 2026-09-14",
                               "entities": [world.ids["Tidepool"]], "evidence": [world.citation(wrong)]}  # fmt: skip
    right = world.call("correct", {**world.fence(wrong), "expectedOntologyFingerprint":
                                   world.vault()["expectedOntologyFingerprint"],
                                   "reason": "The committee moved it.", "replacement": replacement})  # fmt: skip
    assert found["id"] == wrong
    world.ids["wrong"], world.ids["right"] = wrong, str(right["id"])
    commitments = (
        ("Marta orders the second battery.", "2026-11-20"), ("Alex flashes the winter firmware.", "2026-12-01"),
        ("Yuki publishes the dashboard.", "2026-12-05"), ("Priya renews the permission.", "2027-01-10"),
    )  # fmt: skip
    for text, due in commitments:
        world.claim(text, kind="commitment", due_at=due, subject="Tidepool")
    gone = world.claim("The buoy is green.", subject="Tidepool")
    world.call("withdraw", {**world.fence(gone), "reason": "Nobody said so."})


def _merged(world: World) -> None:
    double = world.page("Tidepool buoy project", body="The same thing under a longer name.")
    world.call("merge", {**world.vault(), "source": world.fence(double),
                         "destination": world.fence(world.ids["Tidepool"]), "reason": "One buoy."})  # fmt: skip
    world.ids["merged"] = double


def _edited(world: World) -> None:
    """A page with several revisions, the last by a person's own editor."""
    body = "The buoy stays in the water until November.\n\nThen it goes into the shed.\n"
    page = world.page("Winter plan", body=body)
    body = "The buoy stays in the water until **mid** November.\n\nThen it goes into the boathouse loft.\n\n"
    body += "- grease the shackles\n- note the battery level\n"
    given: JsonObject = {"title": "Winter plan", "type": "project", "body": body}
    world.call("save_page", {**world.fence(page), **world.vault(), **given})
    path = world.private / str(world.record(page)["path"])
    text = path.read_text("utf-8").replace("boathouse loft", "boathouse loft, left of the old skiff")
    path.write_text(text, "utf-8")
    world.record(page)


GROUP: Final = Conversation("main", "chat:group:42", "33333333-3333-4333-8333-333333333333")

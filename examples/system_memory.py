"""The life of a claim in system memory, from an observation to a reviewed stance.

An agent's account observes something and says on what it rests. A steward admits it; another account challenges it,
with evidence, and it is suspended; the steward refutes the challenge. Five sessions of other agents are reminded of
it, and it is listed as ready. People review it into a stance of the knowledge base; a promotion drains it: what it
said lives in the stance from then on, no turn is reminded of it any more, and nothing of it has left the store::

    python examples/system_memory.py --state-dir /tmp/system-memory-example

The same steps from a terminal are ``knowledge system-memory`` and ``knowledge kb``.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable
from pathlib import Path

from host_bridge.bridge import KnowledgeBridge
from messages.audience import OwnerPrivate
from messages.json_types import JsonObject
from storage.knowledge_base import compile_corpus, load_corpus
from storage.knowledge_base.folder import write_file

STEWARD = "stella"
SLUG = "sys:gateway-402-retired-model"
OBSERVED = "The model gateway answers 402, not 404, when a model has been retired."
STANCE: JsonObject = {
    "id": "gateway-402-retired-model",
    "title": "What the gateway answers for a retired model",
    "questions": ["Why does the gateway answer 402?"],
    "state": "live",
    "answer": "A 402 from the model gateway means that the model was retired, not that somebody has to pay.",
    "sources": ["system memory, sys:gateway-402-retired-model"],
    "date": "2026-12-01",
}


def configure(folder: Path) -> None:
    """Who is a steward, that turns may be reminded of what the network knows, and where the compiled stances lie.

    A claim counts as stabilised after five sessions; that nobody challenged it for a month is left out here, so that
    the example need not wait for one.
    """
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "knowledge.yaml").write_text(
        "agents: {list: [{id: ann}, {id: ben}, {id: cleo}]}\n"
        "systemMemory:\n"
        f"  stewards: [{STEWARD}]\n"
        "  systemBucketEnabled: true\n"
        f"  corpus: {json.dumps(str(folder / 'kb.json'))}\n"
        "  ready: {unchallengedDays: 0, sessions: 5}\n",
        "utf-8",
    )


def review(folder: Path) -> str:
    """What people do between "ready" and a promotion: write the stance, compile it. The digest of what was reviewed."""
    (folder / "docs").mkdir(exist_ok=True)
    (folder / "docs" / "gateway.md").write_text("# The gateway\n\nWhere models are asked.\n", "utf-8")
    (folder / "stances.json").write_text(json.dumps([STANCE]), "utf-8")
    compiled = compile_corpus(str(folder / "stances.json"), str(folder / "docs"))
    write_file(str(folder / "kb.json"), compiled.corpus.encode())
    stance = load_corpus(str(folder / "kb.json")).stance(str(STANCE["id"]))
    assert stance is not None
    return stance.digest


def run(folder: Path, say: Callable[[str], None]) -> JsonObject:
    """Live through it; the claim as it is in the end."""
    configure(folder)
    with KnowledgeBridge(folder) as knowledge:
        claim = knowledge.steward(
            "steward.observe",
            {
                "account": "ann",
                "slug": SLUG,
                "body": OBSERVED,
                "tier": "glass",
                "asOf": "2026-09-20",
                "evidenceRefs": [{"kind": "receipt", "ref": "run 42", "digest": "sha256:2c26b46b68ffc68ff99b453c"}],
            },
        )
        about: JsonObject = {"id": claim["id"]}

        def status() -> object:
            return knowledge.steward("steward.status", about)["status"]

        say(f"observed by ann: {status()}")
        decided: JsonObject = {"steward": STEWARD, "verdict": "admitted", "ground": "The run shows it."}
        knowledge.steward("steward.admit", {**about, **decided})
        say(f"admitted by {STEWARD}: {status()}")
        challenge = knowledge.steward(
            "steward.challenge",
            {
                **about,
                "account": "ben",
                "ground": "I was answered 404.",
                "evidenceRefs": [{"kind": "receipt", "ref": "run 43", "digest": "sha256:fcde2b2edba56bf408601fb7"}],
            },
        )
        say(f"challenged by ben: {status()}")
        ground = "Run 43 asked for a model that never was."
        knowledge.steward("steward.refute", {"id": challenge["id"], "steward": STEWARD, "ground": ground})
        say(f"the challenge refuted: {status()}")

        cleo = OwnerPrivate("cleo")
        question: JsonObject = {"query": "Why does the gateway answer 402?"}
        recalled: JsonObject = {}
        for session in range(5):
            recalled = knowledge.consult("systemMemory.recall", {**question, "sessionKey": f"chat {session}"}, cleo)
        say(f"what cleo's turns are reminded of: {recalled['note']}")
        ready = knowledge.steward("steward.ready", {})["memories"]
        assert isinstance(ready, list)
        say(f"ready to be reviewed: {len(ready)}")

        digest = review(folder)
        tombstone = knowledge.steward(
            "steward.promote",
            {
                **about,
                "steward": STEWARD,
                "stance": STANCE["id"],
                "slug": SLUG,
                "evidenceRefs": [{"kind": "url", "ref": "kb/stances.json", "digest": digest}],
            },
        )
        say(f"promoted: {tombstone['body']}")
        gone = knowledge.consult("systemMemory.recall", {**question, "sessionKey": "chat 6"}, cleo)
        say(f"what cleo's turns are reminded of: {gone['note']}")
        shown = knowledge.steward("steward.show", about)
        say(f"and in the store still: {shown['status']}, superseded by {shown['supersededBy']}")
        return shown


def main() -> int:
    parser = argparse.ArgumentParser(description="The life of a claim in system memory.")
    parser.add_argument("--state-dir", type=Path, required=True, help="a new folder")
    run(parser.parse_args().state_dir, print)
    return 0


if __name__ == "__main__":
    sys.exit(main())

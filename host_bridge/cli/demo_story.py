"""The demo's story, step by step. Each step acts, prints what came back and checks its own promise.

A step takes the :class:`Story` and returns what ``--json`` gives of it; a broken promise is a :class:`DemoFailed`.
"""

from __future__ import annotations

import json
import shlex
import subprocess
import time
import uuid
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TypeVar, cast

from host_bridge.cli.demo_host import (
    DemoFailed,
    Host,
    McpClient,
    OwnerProcess,
    call_from_a_shell,
    find_record,
    record_files,
    save_like_an_editor,
    vault_of,
)
from host_bridge.cli.demo_print import Teller
from messages.json_types import JsonObject

T = TypeVar("T")

_AGENT = "main"
_EDIT = "Winter storage: the boathouse loft, left of the old skiff."
_BATCH = 20
_LATE = 4


@dataclass(frozen=True, slots=True)
class Reading:
    """What the demo reads: the texts, and what an agent noted in them."""

    pages: list[JsonObject]
    remember: list[JsonObject]
    texts: dict[str, list[str]]
    notes: dict[str, str]


@dataclass(slots=True)
class Story:
    """One run: where it happens and what has been made so far."""

    state_dir: Path
    teller: Teller
    reading: Reading
    ids: dict[str, str] = field(default_factory=dict)
    owner: OwnerProcess | None = None
    host: Host | None = None

    def connected(self) -> Host:
        if self.host is None:
            raise DemoFailed("no owner is running")
        return self.host

    def start_owner(self) -> float:
        """Milliseconds until the owner's first answer."""
        began = time.perf_counter()
        self.owner = OwnerProcess(self.state_dir)
        self.host = self.owner.connect(_AGENT)
        return (time.perf_counter() - began) * 1000

    def close(self) -> None:
        if self.host is not None:
            self.host.close()
        if self.owner is not None:
            self.owner.close()


def read_input(folder: Path) -> Reading:
    """The shipped texts. A line number counts from 1, as an editor shows it."""
    noted = json.loads((folder / "agent.json").read_text("utf-8"))
    return Reading(
        pages=noted["pages"],
        remember=noted["remember"],
        texts={name: (folder / name).read_text("utf-8").splitlines() for name in ("chat.txt", "meeting.txt")},
        notes={path.name: path.read_bytes().decode("utf-8-sig") for path in sorted((folder / "notes").iterdir())},
    )


def excerpt_of(reading: Reading, batch: JsonObject) -> str:
    """The cited lines of the batch, as they stand in the text."""
    first, last = cast("list[int]", batch["lines"])
    return "\n".join(reading.texts[str(batch["source"])][first - 1 : last])


def save_pages(story: Story) -> JsonObject:
    host, teller = story.connected(), story.teller
    for page in teller.each("Saving pages", story.reading.pages):
        arguments: JsonObject = {key: value for key, value in page.items() if key != "note"}
        receipt = host.call(
            "knowledge_save_page",
            {"requestId": str(uuid.uuid4()), "body": story.reading.notes[str(page["note"])], **arguments},
        )
        expect(bool(receipt.get("id")), f"the page {page['title']} was not saved: {receipt.get('message')}")
        story.ids[str(page["title"])] = str(receipt["id"])
    kinds = Counter(str(page["type"]) for page in story.reading.pages)
    teller.say(f"{len(story.ids)} notes became pages: " + ", ".join(f"{kind} {n}" for kind, n in kinds.most_common()))
    return {"pages": len(story.ids), "types": dict(kinds)}


def remember(story: Story) -> JsonObject:
    host, teller = story.connected(), story.teller
    states: Counter[str] = Counter()
    unlinked: list[str] = []
    for batch in teller.each("Remembering", story.reading.remember):
        given = cast("list[JsonObject]", batch["items"])
        receipt = host.call(
            "knowledge_remember",
            {
                "requestId": str(uuid.uuid4()),
                "attribution": batch["attribution"],
                "excerpt": excerpt_of(story.reading, batch),
                "items": given,
            },
        )
        answered = cast("list[JsonObject]", receipt["items"])
        for item, answer in zip(given, answered, strict=True):
            subject = cast(JsonObject, answer.get("subject", {}))
            if answer.get("duplicate"):
                states["duplicate"] += 1
            elif subject.get("state") == "found":
                states["linked" if "subject" in item else "inferred"] += 1
            else:
                states["unlinked"] += 1
                if "subject" in item:
                    unlinked.append(f"“{item['subject']}” is {subject.get('state')}")
    claims = sum(states.values())
    saved = claims - states["duplicate"]
    expect(claims_of(host) == saved, f"{claims_of(host)} claims are there instead of {saved}")
    repeats = "1 was a repeat" if states["duplicate"] == 1 else f"{states['duplicate']} were repeats"
    teller.say(
        f"{claims} statements: {saved} saved with their source ({states['linked']} filed as told, "
        f"{states['inferred']} by inference,",
        f"{states['unlinked']} left open: {', '.join(unlinked)}), {repeats}",
    )
    return {"claims": claims, **states, "notGuessed": list(unlinked)}


def search(story: Story) -> JsonObject:
    host, teller = story.connected(), story.teller
    found: JsonObject = {}
    for query in ("demo day", "colour-blind dashboard", "赤と緑"):
        answer, took = timed(partial(host.call, "knowledge_grep", {"query": query, "limit": 3}))
        hits = cast("list[JsonObject]", answer["hits"])
        expect(bool(hits), f"searching for {query!r} found nothing")
        teller.say(f"search {query!r}: {answer.get('total')} found in {took:.1f} ms", f"→ {shown(hits[0])}")
        found[query] = [hit["id"] for hit in hits]
    return {"hits": found}


def lookup(story: Story) -> JsonObject:
    """Through the shell's door: a process of its own for each name."""
    teller = story.teller
    states: JsonObject = {}
    for name, wanted in (("由紀", "found"), ("alex", "ambiguous"), ("Sven", "missing")):
        answer, took = timed(partial(call_from_a_shell, story.state_dir, "knowledge_lookup", {"query": name}))
        hits = sorted(str(hit.get("title")) for hit in cast("list[JsonObject]", answer["hits"]))
        expect(answer["state"] == wanted, f"looking up {name!r} answered {answer['state']} instead of {wanted}")
        command = shlex.join(["knowledge", "call", "lookup", json.dumps({"query": name}, ensure_ascii=False)])
        teller.say(f"$ {command}   ({took:.0f} ms)", f"→ {answer['state']}" + (f": {' / '.join(hits)}" if hits else ""))
        states[name] = {"state": answer["state"], "titles": list(hits)}
    return states


def evidence(story: Story) -> JsonObject:
    """One claim with its source, through MCP's door: what makes it more than a sentence."""
    teller = story.teller
    with teller.waiting("Connecting over MCP"), McpClient(story.state_dir) as client:
        tools = client.tools()
        hits = cast("list[JsonObject]", client.call("knowledge_grep", {"query": "sill datum", "kind": "claim"})["hits"])
        expect(bool(hits), "the claim about the sill was not found")
        asked: JsonObject = {"id": hits[0]["id"], "includeEvidence": True}
        record = cast(JsonObject, client.call("knowledge_record", asked)["record"])
    citations = cast("list[JsonObject]", record["evidence"])
    expect(bool(citations), "the claim came back without its evidence")
    kept = (vault_of(story.state_dir) / "private" / str(citations[0]["path"])).read_text("utf-8").splitlines()
    teller.say(f"an MCP client sees {len(tools)} tools and reads this {record['claimKind']}:")
    teller.say(f"“{record['text']}”")
    teller.say(f"its source, {citations[0].get('attribution')}, {len(kept)} lines, the last:", f"→ {kept[-1]}")
    return {"tools": list(tools), "id": record["id"], "path": citations[0]["path"], "sha256": citations[0]["sha256"]}


def edit(story: Story) -> JsonObject:
    host, teller = story.connected(), story.teller
    path = find_record(vault_of(story.state_dir) / "private", story.ids["Tidepool"])
    text = path.read_bytes().decode()
    save_like_an_editor(path, text.rstrip("\n") + f"\n\n{_EDIT}\n")
    answer, took = timed(lambda: host.call("knowledge_grep", {"query": "boathouse loft"}))
    hits = cast("list[JsonObject]", answer["hits"])
    expect(
        [hit["id"] for hit in hits] == [story.ids["Tidepool"]], "the next query did not see the edit of the page's file"
    )
    teller.say(f"$ vi vault/private/{path.parent.name}/{path.name}", f"  + {_EDIT}")
    teller.say(f"the very next query, {took:.1f} ms:", f"→ {shown(hits[0])}")
    return {"file": f"private/{path.parent.name}/{path.name}", "milliseconds": round(took, 2)}


def crash(story: Story) -> JsonObject:
    """Kills the owner while a batch's files are staged; says so when it never got hold of it there."""
    host, teller, owner = story.connected(), story.teller, story.owner
    if owner is None:
        raise DemoFailed("no owner is running")
    folder = vault_of(story.state_dir) / "private" / "claims"
    before = set(record_files(folder))
    claims = claims_of(host)
    caught: int | None = None
    batches = raw_batches(story.reading)
    for request in batches:
        under_way = host.start("knowledge_remember", request)
        late = 0
        while caught is None and not under_way.done():
            owner.freeze()
            staged = sum(path.name.startswith(".kr-") for path in record_files(folder) if path not in before)
            late += staged == _BATCH
            # Around the commit, when all is staged and nothing in place, is the hardest moment to come back from;
            # the last batch takes what it gets.
            if late == _LATE or (staged and request is batches[-1]):
                caught = staged
            else:
                owner.thaw()
                if not staged:
                    time.sleep(0.0002)  # once files appear, every moment counts
        if caught is not None:
            break
        host.result("knowledge_remember", under_way)
        claims += _BATCH
        before = set(record_files(folder))
    status = owner.kill()
    host.close()
    story.host = None
    where = f"{caught} of {_BATCH} files staged, none in place" if caught else "too quick for us: it had answered"
    teller.say(f"$ kill -9 {owner.process.pid}   in the middle of a write ({where})")
    teller.say(f"exit status of the owner: {status}")
    expect(status == -9, f"the owner ended with {status} instead of -9")
    with teller.waiting("Starting a new owner"):
        began = story.start_owner()
    host = story.connected()
    found = claims_of(host)
    expect(found in (claims, claims + _BATCH), f"{found} claims came back: neither {claims} nor {claims + _BATCH}")
    accepted = found > claims
    outcome = "the write was accepted, all of it is there" if accepted else "nothing of the half-done write is left"
    teller.say(f"a new owner, after {began:.0f} ms: {found} claims; {outcome}")
    receipt, took = timed(partial(host.call, "knowledge_remember", request))
    expect(receipt.get("state", "published") == "published", f"the repeated request answered {receipt.get('state')}")
    again = host.call("knowledge_remember", request)
    for stored in (receipt, again):
        stored.pop("git", None)  # how far the Git queue is stands beside a receipt and is not part of it
    expect(again == receipt, "the same request answered differently the second time")
    now = claims_of(host)
    expect(now == claims + _BATCH, f"{now} claims are there instead of {claims + _BATCH}")
    teller.say(f"the same request again, and again: one receipt, {took:.1f} ms; {claims} + {_BATCH} = {now} claims")
    return {
        "exitStatus": status,
        "midWrite": caught is not None,
        "stagedWhenKilled": caught or 0,
        "accepted": accepted,
        "recoveredMilliseconds": round(began, 1),
        "claimsBefore": claims,
        "claimsAfter": now,
    }


def history(story: Story) -> JsonObject:
    """The vault's own Git history, once the queue has caught up."""
    host, teller = story.connected(), story.teller
    deadline = time.monotonic() + 30
    with teller.waiting("Waiting for the Git queue"):
        while True:
            git = cast(JsonObject, host.call("knowledge_status", {})["git"])
            if not git.get("pending") or git.get("state") == "unavailable" or time.monotonic() > deadline:
                break
            time.sleep(0.05)
    vault = vault_of(story.state_dir)
    log = commits_of(vault)
    files = sum(path.suffix == ".md" for path in record_files(vault))
    if log:
        teller.say(f"{files} Markdown files, {len(log)} commits; the newest: {log[0]}")
    else:
        teller.say(f"{files} Markdown files. {git.get('message', 'Their Git history cannot be read.')}")
    return {"files": files, "commits": len(log), "git": git.get("state")}


def commits_of(vault: Path) -> list[str]:
    """One line a commit, the newest first; none where git is not installed, as the store keeps no history either."""
    with suppress(FileNotFoundError):
        return subprocess.run(
            ["git", "-C", str(vault), "log", "--format=%h %an: %s"], capture_output=True, text=True, check=False
        ).stdout.splitlines()
    return []


def raw_batches(reading: Reading) -> list[JsonObject]:
    """Requests of twenty claims each: what people literally wrote, twenty messages at a time."""
    lines = [line for line in reading.texts["chat.txt"] if line.startswith("[")]
    batches: list[JsonObject] = []
    for start in range(0, len(lines) - _BATCH + 1, _BATCH):
        chunk = lines[start : start + _BATCH]
        batches.append(
            {
                "requestId": str(uuid.uuid4()),
                "attribution": "group chat, word for word",
                "excerpt": "\n".join(chunk),
                "items": [{"text": f"Written in the chat: {line}", "kind": "event"} for line in chunk],
            }
        )
    return batches


def claims_of(host: Host) -> int:
    """How many active claims the partition holds, by its own count."""
    counts = cast("dict[str, dict[str, int]]", host.call("knowledge_status", {})["counts"])
    return counts.get("claim", {}).get("active", 0)


def shown(row: JsonObject) -> str:
    """One row as a person reads it."""
    head = row.get("title") or row.get("text") or row.get("id")
    snippet = " ".join(str(row.get("snippet") or "").split())
    return f"{row['kind']} “{head}”" + (f" … {snippet}" if snippet and not row.get("text") else "")


def timed(work: Callable[[], T]) -> tuple[T, float]:
    began = time.perf_counter()
    result = work()
    return result, (time.perf_counter() - began) * 1000


def expect(kept: bool, broken: str) -> None:
    if not kept:
        raise DemoFailed(broken)


STEPS: tuple[tuple[str, str, Callable[[Story], JsonObject]], ...] = (
    ("pages", "A folder of notes becomes pages", save_pages),
    ("remember", "An agent remembers a chat and a meeting", remember),
    ("search", "Search", search),
    ("lookup", "Exact lookup never guesses", lookup),
    ("evidence", "Every claim keeps its evidence", evidence),
    ("edit", "A person edits a page in a text editor", edit),
    ("crash", "The machine has a bad day", crash),
    ("history", "And all of it is plain files with history", history),
)

"""``knowledge demo``: the main job, done on two weeks of a small project's chat, one meeting and a folder of notes.

Starts a real owner process in a state directory, acts as its host over the socket, as a shell and as an MCP client,
edits a page as a person would, kills the owner in the middle of a write and shows what came back. No model and no
network is used: what an agent would note while reading lies beside the texts (``demo_data/agent.json``); everything
else is computed. The exit status is 0 when every step kept its promise and 1 when one was broken.
"""

from __future__ import annotations

import io
import json
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from host_bridge.cli import exits
from host_bridge.cli.demo_host import OWNER_LOG, DemoFailed
from host_bridge.cli.demo_print import Teller
from host_bridge.cli.demo_story import STEPS, Story, read_input
from host_bridge.cli.options import STATE_DIR, parse
from messages.json_types import JsonObject

_OPTIONS = {**STATE_DIR, "--json": False, "--plain": False}


def run(argv: Sequence[str]) -> int:
    """``knowledge demo [--state-dir DIR] [--json] [--plain]``; ends its owner and cleans up however it ends."""
    options = parse(argv, _OPTIONS)
    chosen = options.get("--state-dir")
    as_json, kept = options.has("--json"), chosen is not None
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            # The texts come in every script, whatever the locale says.
            stream.reconfigure(encoding="utf-8", errors="replace")
    teller = Teller(silent=as_json, plain=options.has("--plain"))
    if chosen is not None and (Path(chosen) / "knowledge").exists():
        print(f"knowledge demo: {chosen} already holds a store; name a new folder.", file=sys.stderr)
        return exits.USAGE
    try:
        state_dir = Path(chosen).absolute() if chosen is not None else Path(tempfile.mkdtemp(prefix="knowledge-demo-"))
        state_dir.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        print(f"knowledge demo: cannot work in {chosen or tempfile.gettempdir()}: {error}", file=sys.stderr)
        return exits.USAGE
    for ending in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(ending, signal.default_int_handler)  # our owner must not outlive us
    results: dict[str, JsonObject] = {}
    worth_keeping = kept
    try:
        failure = tell(state_dir, teller, results)
        worth_keeping |= failure is not None
    finally:
        if not worth_keeping:
            shutil.rmtree(state_dir)
    if as_json:
        document: JsonObject = {
            "ok": failure is None, "stateDir": str(state_dir) if worth_keeping else None, "steps": results
        }  # fmt: skip
        print(json.dumps(document | ({"error": failure} if failure else {}), ensure_ascii=False))
    if failure is not None:
        print(f"knowledge demo: {failure}\nThe state directory was kept: {state_dir}", file=sys.stderr)
        return exits.DEFECT
    teller.connect(state_dir if kept else None)
    return exits.OK


def tell(state_dir: Path, teller: Teller, results: dict[str, JsonObject]) -> str | None:
    """Runs the steps; what went wrong, or ``None``. No process is left behind."""
    story = Story(state_dir, teller, read_input(Path(__file__).resolve().parent.parent / "demo_data"))
    began = time.perf_counter()
    try:
        teller.title(f"Knowledge Runtime: a memory for agents, in {state_dir}")
        with teller.waiting("Starting the owner"):
            first = story.start_owner()
        teller.say(f"$ knowledge serve   (ready in {first:.0f} ms, pid {story.owner and story.owner.process.pid})")
        for number, (name, title, step) in enumerate(STEPS, 1):
            teller.step(number, title)
            results[name] = step(story)
    except (DemoFailed, OSError, subprocess.SubprocessError) as error:
        if isinstance(error, BrokenPipeError):
            raise  # whoever read the story has gone
        return str(error)
    finally:
        story.close()
    (state_dir / OWNER_LOG).unlink()
    teller.done(time.perf_counter() - began)
    return None

"""A process killed anywhere while originals are attached: whoever repeats its calls gets what was promised."""

from __future__ import annotations

import json
import os
import random
import signal
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from messages.json_types import JsonObject
from storage import faults
from storage.layout import StoreLayout
from tests.kit.sources import CHUNK, chunk, chunks, descriptor, digest, upload_id
from tests.kit.store import Desk, copy_store, make_store, request_id

DATA = random.Random(1).randbytes(2 * CHUNK + 9)
FIGURES = random.Random(2).randbytes(3 * CHUNK)
OURS = ("upload.", "retain.", "stage.mkdir", "unlink.folder")


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> StoreLayout:
    return make_store(tmp_path_factory.mktemp("made") / "store")


def script() -> Iterator[tuple[str, JsonObject]]:
    """An upload, the same bytes again, a file of the workspace, the same bytes again, and a page that cites them."""
    for call in chunks(1, DATA):
        yield "attach", call
    for call in chunks(2, DATA, filename="again.txt"):
        yield "attach", call
    for number in (3, 4):
        yield "attach_file", {
            "requestId": upload_id(number), "filePath": "figures.txt", "sha256": digest(FIGURES),
            "filename": "figures.txt", "attribution": chunk(1, 0, b"")["attribution"], "mediaType": "text/plain",
        }  # fmt: skip
    attachments: JsonObject = {"attachments": [descriptor(1, DATA), descriptor(3, FIGURES, "figures.txt")]}
    yield "save_page", {"title": "A", "type": "project", "body": "", "requestId": request_id(1), **attachments}


def answers(layout: StoreLayout, write: Callable[[JsonObject], object] = lambda _: None) -> list[JsonObject]:
    """Every call of the script, in order; ``write`` hears of each answer at once."""
    desk = Desk(layout, workspace=layout.root.parent / "work")
    found = []
    try:
        for tool, arguments in script():
            found.append(desk.call(tool, arguments))
            write(found[-1])
    finally:
        desk.close()
    return found


def prepared(made: StoreLayout, folder: Path) -> StoreLayout:
    folder.mkdir()
    (folder / "work").mkdir()
    (folder / "work" / "figures.txt").write_bytes(FIGURES)
    return copy_store(made, folder / "store")


def hits(layout: StoreLayout) -> list[int]:
    """The numbers, counted from 1, of the points that belong to attaching."""
    names: list[str] = []
    with faults.installed(names.append):
        answers(layout)
    return [number for number, name in enumerate(names, 1) if name.startswith(OURS)]


def run_and_be_killed(layout: StoreLayout, hit: int, log: Path) -> bool:
    """Run the script in a child that is killed at ``hit``; whether it was."""
    child = os.fork()
    if child == 0:
        status = 1
        try:
            reached = 0

            def kill(_name: str) -> None:
                nonlocal reached
                reached += 1
                if reached == hit:
                    os.kill(os.getpid(), signal.SIGKILL)

            with faults.installed(kill), log.open("w", encoding="utf-8") as file:
                answers(layout, lambda answer: print(json.dumps(answer), file=file, flush=True))
            status = 0
        except BaseException:  # noqa: BLE001 - the child must not return into the test runner
            traceback.print_exc()
        finally:
            os._exit(status)
    _, status = os.waitpid(child, 0)
    assert os.WIFSIGNALED(status) or os.WEXITSTATUS(status) == 0, "the child failed; its traceback is above"
    return os.WIFSIGNALED(status)


def killed_and_repeated(made: StoreLayout, folder: Path, hit: int, expected: list[JsonObject]) -> bool:
    layout = prepared(made, folder)
    killed = run_and_be_killed(layout, hit, folder / "log")
    acknowledged = [json.loads(line) for line in (folder / "log").read_text("utf-8").splitlines()]
    for before, after, wanted in zip(acknowledged, repeated := answers(layout), expected, strict=False):
        if "received" in before:
            # What was acknowledged is there; a later chunk may be too.
            assert after["received"] >= before["received"] == wanted["received"]
        elif "evidence" in before:
            assert before == after == wanted
        else:
            assert before == after
    assert [answer.get("evidence") for answer in repeated] == [answer.get("evidence") for answer in expected]
    artifacts = layout.vault / "private" / "artifacts"
    assert {str(path.relative_to(artifacts)): path.read_bytes() for path in artifacts.rglob("*") if path.is_file()} == {
        f"{upload_id(1)}/notes.txt": DATA,
        f"{upload_id(3)}/figures.txt": FIGURES,
    }
    return killed


def test_the_script_passes_every_point_of_attaching(made: StoreLayout, tmp_path: Path) -> None:
    names: set[str] = set()
    layout = prepared(made, tmp_path / "case")
    with faults.installed(names.add):
        found = answers(layout)
    assert [answer.get("evidence") for answer in found if "evidence" in answer] == [
        descriptor(1, DATA),
        {**descriptor(1, DATA), "filename": "again.txt"},
        descriptor(3, FIGURES, "figures.txt"),
        descriptor(3, FIGURES, "figures.txt"),
    ]
    ours = {name.removesuffix(".after") for name in names if name.startswith(("upload.", "retain."))}
    assert ours == {
        "upload.create.open", "upload.create.write", "upload.open", "upload.list", "upload.write",
        "upload.sync", "upload.read", "upload.stat", "upload.place", "upload.unlink", "upload.begin", "upload.commit",
        "retain.begin", "retain.commit",
    }  # fmt: skip


def test_a_process_killed_at_a_sample_of_points_loses_nothing_that_was_acknowledged(
    made: StoreLayout, tmp_path: Path
) -> None:
    layout = prepared(made, tmp_path / "counted")
    found = hits(layout)
    expected = answers(prepared(made, tmp_path / "whole"))
    for hit in sorted(random.Random(5).sample(found, 10)):
        assert killed_and_repeated(made, tmp_path / f"case-{hit}", hit, expected)


@pytest.mark.exhaustive
@pytest.mark.timeout(3600)
def test_a_process_killed_at_every_point_of_attaching_loses_nothing_that_was_acknowledged(
    made: StoreLayout, tmp_path: Path
) -> None:
    expected = answers(prepared(made, tmp_path / "whole"))
    for hit in hits(prepared(made, tmp_path / "counted")):
        assert killed_and_repeated(made, tmp_path / f"case-{hit}", hit, expected)

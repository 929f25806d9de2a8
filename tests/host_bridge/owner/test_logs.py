"""The owner's log: JSON lines with ids and outcomes, small, and without anybody's text."""

from __future__ import annotations

import io
import json
import logging
import os
from collections.abc import Iterator
from pathlib import Path

import pytest
import structlog

from actors.recall_gate import turn
from host_bridge.owner import logs
from messages.json_types import JsonObject


@pytest.fixture
def stream() -> Iterator[io.StringIO]:
    """Where the records go; both logging systems are put back afterwards."""
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    kept = structlog.get_config()
    target = io.StringIO()
    logs.configure(target)
    yield target
    root.handlers[:] = handlers
    root.setLevel(level)
    structlog.configure(**kept)


def entries(stream: io.StringIO) -> list[JsonObject]:
    return [json.loads(line) for line in stream.getvalue().splitlines()]


def test_both_logging_systems_give_one_json_object_a_line_with_their_fields(stream: io.StringIO) -> None:
    logging.getLogger("a").info("call answered", extra={"correlation_id": "12ab", "ms": 3})
    structlog.get_logger("b").warning("100 % done", correlation_id="34cd", name="lane")
    first, second = entries(stream)
    for entry in (first, second):
        del entry["at"]
    assert first == {"level": "info", "logger": "a", "event": "call answered", "correlation_id": "12ab", "ms": 3}
    # A field that has the name of one of logging's own is kept under another.
    assert second == {
        "level": "warning",
        "logger": "b",
        "event": "100 % done",
        "correlation_id": "34cd",
        "name_": "lane",
    }


def test_an_exception_is_its_type_and_its_places_never_its_text(stream: io.StringIO) -> None:
    def fail() -> None:
        raise ValueError("a private sentence")

    for log in (logging.getLogger("a").exception, structlog.get_logger("b").exception):
        try:
            fail()
        except ValueError:
            log("it failed")
    assert "private" not in stream.getvalue()
    for entry in entries(stream):
        assert entry["error"] == "ValueError"
        assert any("fail" in str(frame) for frame in list(entry["frames"]))  # type: ignore[arg-type]  # a list, by design


def test_a_line_break_in_a_field_stays_inside_its_line(stream: io.StringIO) -> None:
    logging.getLogger("a").info("one\ntwo", extra={"path": "x\ny"})
    assert len(stream.getvalue().splitlines()) == 1


def test_a_log_that_grew_is_set_aside_and_writers_follow(tmp_path: Path) -> None:
    path = tmp_path / "owner.log"
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    os.write(descriptor, b"x" * 100)
    assert not logs.keep_small(str(path), (descriptor,), limit=100)
    os.write(descriptor, b"y")
    assert logs.keep_small(str(path), (descriptor,), limit=100)
    os.write(descriptor, b"after")
    os.close(descriptor)
    assert path.read_bytes() == b"after"
    assert path.stat().st_mode & 0o777 == 0o600
    assert (tmp_path / "owner.log.1").stat().st_size == 101


def test_the_recall_gate_s_line_is_written_at_every_level_that_owners_log_at() -> None:
    root = logging.getLogger()
    handlers, level, gate = root.handlers[:], root.level, logging.getLogger(logs.RECALL_GATE)
    try:
        for configured in (logging.INFO, logging.WARNING):
            target = io.StringIO()
            logs.configure(target, level=configured)
            gate.info("knowledge recall gate: mode=shadow")
            assert [entry["event"] for entry in entries(target)] == ["knowledge recall gate: mode=shadow"]
        assert gate.name == turn.__name__
    finally:
        root.handlers[:] = handlers
        root.setLevel(level)
        gate.setLevel(logging.NOTSET)

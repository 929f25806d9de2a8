"""Lines in, lines out, and answers handed over under their read lease."""

from __future__ import annotations

import os
import select
import socket
import threading
from collections.abc import Callable, Iterator

import pytest

from host_bridge.transport import LineReader, Outbox, Oversize, PendingAnswer
from messages.errors import Denied, KnowledgeError
from messages.json_types import JsonObject

PATIENCE = 10.0


class Pipe:
    """One pipe whose ends are closed once, by whoever is first."""

    def __init__(self) -> None:
        self.reader, self.writer = os.pipe()

    def close(self) -> None:
        for name in ("reader", "writer"):
            self.close_end(name)

    def close_end(self, name: str) -> None:
        descriptor = getattr(self, name)
        if descriptor >= 0:
            setattr(self, name, -1)
            os.close(descriptor)


@pytest.fixture
def pipe() -> Iterator[Pipe]:
    made = Pipe()
    yield made
    made.close()


class Answer:
    """A pending answer that is ready: it hands over ``result``, or raises what it was given."""

    def __init__(self, result: JsonObject | Exception) -> None:
        self._result = result
        self.delivering = threading.Event()

    def add_done_callback(self, fn: Callable[[PendingAnswer], None]) -> None:
        fn(self)

    def deliver(self, hand_over: Callable[[JsonObject], None]) -> None:
        self.delivering.set()
        if isinstance(self._result, Exception):
            raise self._result
        hand_over(self._result)

    def cancel(self) -> None:
        pass


def render(result: JsonObject) -> bytes:
    return str(result["text"]).encode()


def refuse(error: KnowledgeError) -> bytes:
    return f"refused {error.code}: {error.message}".encode()


def read_all(descriptor: int) -> bytes:
    collected = b""
    while chunk := os.read(descriptor, 1 << 16):
        collected += chunk
    return collected


@pytest.mark.parametrize("size", [1, 3, 1 << 16])
def test_lines_arrive_whole_however_they_were_cut(pipe: Pipe, size: int) -> None:
    text = "żółw\n\n{}\r\nlast without end".encode()
    reader = LineReader(pipe.reader)

    def write() -> None:
        for start in range(0, len(text), size):
            os.write(pipe.writer, text[start : start + size])
        pipe.close_end("writer")

    thread = threading.Thread(target=write)
    thread.start()
    assert list(reader) == ["żółw".encode(), b"", b"{}\r", b"last without end"]
    thread.join()
    reader.close()


def test_a_line_over_the_limit_is_skipped_and_the_next_one_is_read(pipe: Pipe) -> None:
    reader = LineReader(pipe.reader, limit=10)
    os.write(pipe.writer, b"0123456789\n" + b"x" * 11 + b"\n" + b"y" * 5_000 + b"\nnext\n" + b"z" * 11)
    pipe.close_end("writer")
    assert list(reader) == [b"0123456789", Oversize(10), Oversize(10), b"next", Oversize(10)]
    reader.close()


def test_a_reader_that_waits_can_be_stopped_from_another_thread(pipe: Pipe) -> None:
    reader = LineReader(pipe.reader)
    lines: list[bytes | Oversize] = []
    thread = threading.Thread(target=lambda: lines.extend(reader))
    thread.start()
    reader.stop()
    thread.join(PATIENCE)
    assert not thread.is_alive()
    assert lines == []
    reader.close()


def test_everything_put_is_written_in_its_order_before_the_outbox_ends(pipe: Pipe) -> None:
    outbox = Outbox(pipe.writer, name="test")
    for number in range(200):
        if number % 2:
            outbox.put_answer(Answer({"text": f"answer {number}"}), render, refuse)
        else:
            outbox.put(f"line {number}".encode())
    outbox.close()
    pipe.close_end("writer")
    expected = [f"{'answer' if number % 2 else 'line'} {number}" for number in range(200)]
    assert read_all(pipe.reader).decode().splitlines() == expected


def test_no_lease_is_taken_before_the_reader_has_room(pipe: Pipe) -> None:
    outbox = Outbox(pipe.writer, name="test", patience=PATIENCE)
    os.set_blocking(pipe.writer, False)
    filled = 0
    with pytest.raises(BlockingIOError):
        while True:
            filled += os.write(pipe.writer, b"." * 4096)
    answer = Answer({"text": "late"})
    outbox.put_answer(answer, render, refuse)
    assert not answer.delivering.wait(0.2)
    assert len(os.read(pipe.reader, filled)) == filled
    assert answer.delivering.wait(PATIENCE)
    outbox.close()
    pipe.close_end("writer")
    assert read_all(pipe.reader) == b"late\n"


def test_a_peer_that_stops_reading_in_the_middle_of_an_answer_is_cut_off(pipe: Pipe) -> None:
    broken = threading.Event()
    outbox = Outbox(pipe.writer, name="test", on_broken=broken.set, patience=0.1)
    outbox.put_answer(Answer({"text": "x" * (1 << 20)}), render, refuse)
    assert broken.wait(PATIENCE)
    assert outbox.broken
    outbox.close()


def test_a_reader_that_is_gone_is_noticed_once(pipe: Pipe) -> None:
    times: list[int] = []
    broken = threading.Event()

    def on_broken() -> None:
        times.append(1)
        broken.set()

    outbox = Outbox(pipe.writer, name="test", on_broken=on_broken)
    pipe.close_end("reader")
    for _ in range(5):
        outbox.put(b"nobody reads this")
    assert broken.wait(PATIENCE)
    outbox.close()
    assert times == [1]


def test_a_permit_that_is_gone_at_delivery_replaces_the_answer(pipe: Pipe) -> None:
    outbox = Outbox(pipe.writer, name="test")
    outbox.put_answer(Answer(Denied("The grant was revoked.")), render, refuse)
    outbox.close()
    pipe.close_end("writer")
    assert read_all(pipe.reader) == b"refused denied: The grant was revoked.\n"


def test_a_defect_at_delivery_costs_one_answer_and_its_text_never_leaves(pipe: Pipe) -> None:
    outbox = Outbox(pipe.writer, name="test")
    outbox.put_answer(Answer(RuntimeError("secret")), render, refuse)
    outbox.put_answer(Answer({}), render, refuse)  # rendering it fails
    outbox.put(b"next")
    outbox.close()
    pipe.close_end("writer")
    first, second, third = read_all(pipe.reader).splitlines()
    assert first.startswith(b"refused internal")
    assert b"secret" not in first
    assert second.startswith(b"refused internal")
    assert third == b"next"


def test_closing_never_waits_longer_than_its_flush_time_for_a_peer_that_does_not_read(pipe: Pipe) -> None:
    outbox = Outbox(pipe.writer, name="test", patience=3600)
    outbox.put(b"x" * (1 << 20))
    outbox.close(flush_seconds=0.05)
    assert not any(thread.name == "outbox-test" for thread in threading.enumerate())


def test_a_large_answer_crosses_a_socket_whole() -> None:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        outbox = Outbox(ours.fileno(), name="test")
        outbox.put_answer(Answer({"text": "y" * 3_000_000}), render, refuse)
        reader = LineReader(theirs.fileno())
        line = next(iter(reader))
        assert line == b"y" * 3_000_000
        outbox.close()
        reader.close()


@pytest.mark.parametrize("size", [20_000, 3_000_000])
def test_an_answer_leaves_a_socket_in_pieces_as_large_as_it_takes(size: int) -> None:
    ours, theirs = socket.socketpair()
    sent: list[int] = []

    def send(view: memoryview) -> int:
        if len(sent) == 1:
            sent.append(0)
            raise BlockingIOError  # somebody else's bytes came in between
        sent.append(ours.send(view, socket.MSG_DONTWAIT))
        return sent[-1]

    with ours, theirs:
        outbox = Outbox(ours.fileno(), name="test", send=send)
        outbox.put_answer(Answer({"text": "y" * size}), render, refuse)
        reader = LineReader(theirs.fileno())
        assert next(iter(reader)) == b"y" * size
        outbox.close()
        reader.close()
    assert sum(sent) == size + 1
    assert sent[0] > 4 * select.PIPE_BUF
    assert size > 20_000 or sent == [size + 1]

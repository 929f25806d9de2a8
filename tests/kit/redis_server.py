"""A real Redis on a free port of this machine, without persistence, for as long as the tests run."""

from __future__ import annotations

import shutil
import socket
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import redis


@contextmanager
def running(folder: Path, port: int) -> Iterator[str]:
    """The url of a server that answers."""
    program = shutil.which("redis-server")
    if program is None:
        pytest.skip("needs redis: its server, redis-server")
    settings = {"bind": "127.0.0.1", "port": str(port), "save": "", "appendonly": "no", "dir": str(folder)}
    command = [program, *(part for name, value in settings.items() for part in (f"--{name}", value))]
    with (folder / "redis.log").open("wb") as log:
        process = subprocess.Popen(command, stdout=log, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL)
    try:
        _await(process, port, folder)
        yield f"redis://127.0.0.1:{port}/0"
    finally:
        process.terminate()
        process.wait(30)


def free_port() -> int:
    """A port that nobody listened on just now."""
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        port: int = one.getsockname()[1]
        return port


def _await(process: subprocess.Popen[bytes], port: int, folder: Path) -> None:
    with redis.Redis(port=port, socket_timeout=30) as client:
        while process.poll() is None:
            try:
                if client.info("server")["process_id"] == process.pid:
                    return
            except redis.ConnectionError:
                try:
                    process.wait(0.01)
                except subprocess.TimeoutExpired:
                    continue
    raise RuntimeError((folder / "redis.log").read_text("utf-8", "replace"))


@pytest.fixture(scope="session")
def redis_url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """One server for all tests of a process; each uses a prefix or a database of its own."""
    with running(tmp_path_factory.mktemp("redis"), free_port()) as url:
        yield url

"""Fixtures of the door tests."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from host_bridge.cli import main
from tests.host_bridge.processes import Home, Typed


@pytest.fixture
def home() -> Iterator[Home]:
    """A state directory whose owners run the fake bridge."""
    place = Home(fake=True)
    yield place
    place.close()


@pytest.fixture
def typed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsysbinary: pytest.CaptureFixture[bytes]) -> Typed:
    """A command line in this process, for tests to which the process is not the point. Nobody has a state there."""
    for name in ("HOME", "XDG_RUNTIME_DIR", "KNOWLEDGE_STATE_DIR"):
        monkeypatch.setenv(name, str(tmp_path))

    def run(*words: str) -> subprocess.CompletedProcess[bytes]:
        capsysbinary.readouterr()
        status = main(words)
        out, err = capsysbinary.readouterr()
        return subprocess.CompletedProcess(words, status, out, err)

    return run

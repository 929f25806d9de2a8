"""The scenes of processes: who may own a directory, with real commands; and that a scene is able to fail."""

from __future__ import annotations

import json

import pytest

from stress import processes
from stress.processes import SCENES, Scene, World, play


def test_what_went_wrong_is_said_and_is_an_exit_status(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def wrong(world: World, scene: Scene) -> None:
        scene.expect(True, "this was right")
        scene.expect(world.holder() is not None, "nobody owns it")

    monkeypatch.setattr(processes, "SCENES", {"a stage": wrong})
    assert processes.main(["--json"]) == 1
    (shown,) = json.loads(capsys.readouterr().out)["scenes"]
    assert shown["wrong"] == ["nobody owns it"]


@pytest.mark.exhaustive  # `python -m stress processes` plays the same, which the gate does
@pytest.mark.parametrize("name", SCENES)
def test_a_scene_goes_as_promised(name: str) -> None:
    scene = play(name)
    assert scene.wrong == []
    assert scene.answers or name == "four owners at once"

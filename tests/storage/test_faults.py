"""Fault points: before and after each effect, and nothing outside tests."""

from __future__ import annotations

import pytest

from storage import faults


def test_an_effect_passes_its_point_before_and_after(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[str] = []
    with faults.installed(seen.append), faults.effect("a.b"):
        seen.append("the effect")
    assert seen == ["a.b", "the effect", "a.b.after"]


def test_an_effect_that_fails_has_no_point_after_it() -> None:
    seen: list[str] = []
    with faults.installed(seen.append), pytest.raises(ValueError), faults.effect("a"):
        raise ValueError
    assert seen == ["a"]


def test_what_a_handler_raises_comes_out_and_the_effect_does_not_happen() -> None:
    happened: list[str] = []

    def handler(name: str) -> None:
        if name == "a":
            raise OSError(28, "full")

    with faults.installed(handler), pytest.raises(OSError), faults.effect("a"):
        happened.append("the effect")
    assert happened == []


def test_a_handler_is_gone_when_its_block_ends_however_it_ends() -> None:
    seen: list[str] = []
    with pytest.raises(ValueError), faults.installed(seen.append):
        raise ValueError
    with faults.effect("a"):
        faults.point("b")
    assert seen == []

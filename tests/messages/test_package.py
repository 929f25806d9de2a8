"""The package's face: sorted, complete, and free to import."""

from __future__ import annotations

import importlib
import subprocess
import sys

import pytest

import messages
import messages.tools


@pytest.mark.parametrize("name", ["messages", "messages.tools"])
def test_the_public_names_are_sorted_and_can_be_imported(name: str) -> None:
    module = importlib.import_module(name)
    exported = module.__all__
    constants = [item for item in exported if item.isupper()]
    classes = [item for item in exported if item not in constants and item[0].isupper()]
    functions = [item for item in exported if item[0].islower()]
    assert exported == sorted(constants) + sorted(classes) + sorted(functions)
    assert all(getattr(module, item) is not None for item in exported)


def test_an_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="nothing_of_the_kind"):
        _ = messages.nothing_of_the_kind


@pytest.mark.parametrize("module", ["messages", "messages.errors", "messages.vocabulary", "messages.json_types"])
def test_importing_the_light_modules_loads_no_third_party_code(module: str) -> None:
    code = f"import sys; import {module}; print(any(name.startswith('pydantic') for name in sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"

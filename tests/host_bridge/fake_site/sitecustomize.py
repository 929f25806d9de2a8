"""Put on a child's PYTHONPATH: the child's ``host_bridge.bridge`` is then the fake of ``tests/host_bridge``.

``FAKE_VERSION`` in the environment makes it another version.
"""

from __future__ import annotations

import importlib.machinery
import importlib.util
import os
import sys
from collections.abc import Sequence
from types import ModuleType

_FAKE = os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "fake_bridge.py")


class _FakeBridge:
    @classmethod
    def find_spec(
        cls, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        return importlib.util.spec_from_file_location(name, _FAKE) if name == "host_bridge.bridge" else None


sys.meta_path.insert(0, _FakeBridge)

if "FAKE_VERSION" in os.environ:
    import host_bridge

    host_bridge.__version__ = os.environ["FAKE_VERSION"]

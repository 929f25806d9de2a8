"""``python -P -m host_bridge``: the same as the ``knowledge`` command."""

from __future__ import annotations

import sys

from host_bridge.cli import main

if __name__ == "__main__":
    sys.exit(main())

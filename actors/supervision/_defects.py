"""How a defect is logged: its type and where it happened, never the exception's text, which may be a record's.

Source: STYLE.md (Logs), DESIGN.md rule 4.
"""

from __future__ import annotations

import logging
import os
import traceback
from collections.abc import Mapping
from typing import Final

FRAMES: Final = 8
"""Innermost places that are logged."""


def log_defect(logger: logging.Logger, what: str, error: BaseException, ids: Mapping[str, str | int]) -> str:
    """Log ``what`` with ``ids``, the error's type and its places. Returns the type and the innermost place."""
    frames = traceback.extract_tb(error.__traceback__)
    places = [f"{os.path.basename(frame.filename)}:{frame.lineno} {frame.name}" for frame in frames[-FRAMES:]]
    logger.error(what, extra={**ids, "error_type": type(error).__name__, "frames": places})
    return f"{type(error).__name__} at {places[-1] if places else 'an unknown place'}"

"""Where an endpoint's key comes from: the environment or a file, read anew for every request and kept nowhere.

A file must be a regular one that the group cannot write and others cannot touch, as secrets are usually laid down
(0600 or 0640): who can write it chooses whom we trust, who can read it has the key.
"""

from __future__ import annotations

import os
import stat
from pathlib import Path
from typing import Final

KEY_MAX_BYTES: Final = 8 * 1024
_FORBIDDEN: Final = stat.S_IWGRP | stat.S_IRWXO


class KeyUnavailable(Exception):
    """There is no usable key; the message names the place and never what lies there."""


def read_key(variable: str | None, file: Path | None) -> str | None:
    """The key, ``None`` where neither place is named. Raises :class:`KeyUnavailable`."""
    if variable is not None:
        text = os.environ.get(variable)
        if text is None:
            raise KeyUnavailable(f"the environment variable {variable} (apiKeyEnv) is not set where the owner runs")
        return _checked(text, f"the environment variable {variable} (apiKeyEnv)")
    if file is not None:
        return _checked(_text_of(file), f"the file {file} (apiKeyFile)")
    return None


def _text_of(file: Path) -> str:
    try:
        # Without O_NONBLOCK a named pipe would hold the request until somebody writes into it.
        descriptor = os.open(file, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
        try:
            status = os.fstat(descriptor)
            if not stat.S_ISREG(status.st_mode):
                raise KeyUnavailable(f"the file {file} (apiKeyFile) is not a regular file")
            if status.st_mode & _FORBIDDEN:
                raise KeyUnavailable(
                    f"the file {file} (apiKeyFile) has the mode {stat.S_IMODE(status.st_mode):04o}: others can read "
                    "it or its group can write it; run chmod 600 on it"
                )
            return os.read(descriptor, KEY_MAX_BYTES).decode("ascii", "replace")
        finally:
            os.close(descriptor)
    except OSError as error:
        raise KeyUnavailable(f"the file {file} (apiKeyFile) cannot be read: {error.strerror}") from None


def _checked(text: str, where: str) -> str:
    key = text.strip()
    if not key:
        raise KeyUnavailable(f"{where} is empty")
    if not (key.isascii() and key.isprintable()) or " " in key:
        raise KeyUnavailable(f"{where} holds something that cannot be a key: one line of ASCII without spaces is")
    return key

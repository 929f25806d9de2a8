"""Which user is at the other end of a connection over loopback, as far as the kernel says (Linux).

Source: proc(5), /proc/net/tcp: addresses in hexadecimal, each 32-bit word in the machine's byte order, and the user id.
"""

from __future__ import annotations

import ipaddress
import sys
from typing import Final

_TABLES: Final = ("/proc/net/tcp", "/proc/net/tcp6")


def user_of(client: tuple[str, int], server: tuple[str, int]) -> int | None:
    """The user whose socket is ``client`` and speaks to ``server``; ``None`` where that is not told. Reads two files.

    ``server`` may be known by another of this machine's addresses; its port and the client's decide.
    """
    try:
        wanted = _written(client)
    except ValueError:
        return None
    for table in _TABLES:
        try:
            with open(table, encoding="ascii") as rows:
                next(rows, None)
                for row in rows:
                    fields = row.split()
                    local, remote = fields[1], fields[2]
                    if local.upper() in wanted and int(remote.rpartition(":")[2], 16) == server[1]:
                        return int(fields[7])
        except (OSError, ValueError, IndexError):
            continue
    return None


def _written(address: tuple[str, int]) -> set[str]:
    """How the tables may write it: an IPv4 address also as one of IPv6. Raises ``ValueError``."""
    found = ipaddress.ip_address(address[0])
    raws = [found.packed]
    if isinstance(found, ipaddress.IPv4Address):
        raws.append(ipaddress.IPv6Address(f"::ffff:{found}").packed)
    return {f"{_words(raw)}:{address[1]:04X}" for raw in raws}


def _words(raw: bytes) -> str:
    words = (raw[at : at + 4] for at in range(0, len(raw), 4))
    return "".join(f"{int.from_bytes(word, sys.byteorder):08X}" for word in words)


__all__ = ["user_of"]

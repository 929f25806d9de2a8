"""The vault's files as they are: complete scans, exact freshness, safe replacement.

Files are the truth that a person may edit at any time with anything. This package says what is there and what changed;
it never judges what a note says.
"""

from storage.vault.freshness import Changes, Watch, open_watch
from storage.vault.scan import ScanFinding, ScanLimits, ScanResult, may_hide_a_change, scan_partition, twins

__all__ = [
    "Changes",
    "ScanFinding",
    "ScanLimits",
    "ScanResult",
    "Watch",
    "may_hide_a_change",
    "open_watch",
    "scan_partition",
    "twins",
]

"""Copies of stores that can be trusted: taken while agents write, verified byte by byte before they are put back.

A backup is a folder that people can read: the Markdown files of one generation, originals, the databases, and
``backup.json`` with the SHA-256 of every part. Git history is not in it; it is built again from the store's own.

Source: decisions.md section 4 (Publications, Git), WRITE-PATH.md section 6 (restored backups).
"""

from storage.backup.manifest import (
    BACKUP_FORMAT,
    BACKUP_NAME,
    BackupManifest,
    Finding,
    Part,
    Progress,
    StoreMark,
    read_manifest,
)
from storage.backup.restoring import Restored, check_place, restore
from storage.backup.taking import Taken, checked_target, estimate, take

__all__ = [
    "BACKUP_FORMAT",
    "BACKUP_NAME",
    "BackupManifest",
    "Finding",
    "Part",
    "Progress",
    "Restored",
    "StoreMark",
    "Taken",
    "check_place",
    "checked_target",
    "estimate",
    "read_manifest",
    "restore",
    "take",
]

"""Small files of ours that are replaced as a whole: whatever crashes, the old bytes are there or the new ones."""

from __future__ import annotations

from storage import files


def put_whole(folder_fd: int, name: str, data: bytes, *, staged: str, at: str) -> None:
    """Let ``name`` hold ``data``; durable when it returns. ``staged`` is the name beside it for what is not complete.

    Points: ``<at>.remove`` (of what a crash left there), ``<at>.stage``, ``<at>.sync``, ``<at>.place``. Only for a file
    that nobody else writes.
    """
    files.unlink(folder_fd, staged, at=f"{at}.remove")
    fd = files.create_file(folder_fd, staged, data, mode=0o600, at=f"{at}.stage")
    try:
        files.fsync(fd, at=f"{at}.sync")
    finally:
        files.close(fd)
    files.rename_over(folder_fd, staged, name, at=f"{at}.place")
    files.fsync(folder_fd, at=f"{at}.sync")

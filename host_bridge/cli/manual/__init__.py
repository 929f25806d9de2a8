"""The pages of ``knowledge help COMMAND``, by family. Texts only; their examples are run by a test."""

from host_bridge.cli.manual import access, care, doors, recall, stores

PAGES = {**doors.PAGES, **stores.PAGES, **access.PAGES, **care.PAGES, **recall.PAGES}

__all__ = ["PAGES"]

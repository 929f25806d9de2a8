"""A create never quietly doubles a page: what already has its title (decisions.md section 4)."""

from __future__ import annotations

from typing import Final

from actors.store.operations.context import OperationContext
from messages.errors import InvalidArgument
from messages.json_types import JsonObject
from messages.tools import ExistingPage, same_title_rejection
from storage.records import normalise_name

BROKEN_FILES_LOOKED_AT_MAX: Final = 100


def same_title(context: OperationContext, title: str, page_type: str, *, field: str = "title") -> JsonObject | None:
    """The rejection of a create whose title, under lookup's normalisation, is the title or an alias of an active page
    of the type; ``None`` when nothing has it.

    Raises ``InvalidArgument`` while a page of this name lies in a file that cannot be read just now: a person in the
    middle of an edit must not find two pages when they are done.
    """
    wanted = normalise_name(title)
    for _, entry in context.catalogue.by_names((wanted,)):
        if entry.lifecycle == "active" and entry.type == page_type:
            return same_title_rejection(
                ExistingPage(id=entry.id, title=entry.title, revision=entry.revision, hash=entry.hash)
            )
    for path in context.session.broken_files(BROKEN_FILES_LOOKED_AT_MAX):
        earlier = context.session.last_readable(path)
        if earlier is not None and wanted in map(normalise_name, (earlier.title, *earlier.aliases)):
            raise InvalidArgument(
                f"A page with this title lies in {path}, which cannot be read just now. Ask the person to repair that "
                "file, or send allowSameTitle: true to create another page.",
                field=field,
                reason="unreadable_page",
                path=path,
            )
    return None

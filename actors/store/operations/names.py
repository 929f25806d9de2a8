"""The names of a partition's active pages, for resolving and inferring subjects."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from actors.store.operations.context import OperationContext
from actors.store.operations.subjects import NamedPage, Subject, infer_subject, resolve_subject
from messages.tools import RememberItem
from storage.state.catalogue_reader import Entry


class PageNames:
    """A :class:`~actors.store.operations.subjects.NameIndex` over the catalogue: active, valid pages only."""

    def __init__(self, context: OperationContext) -> None:
        self._context = context

    def find(self, names: Collection[str]) -> Mapping[str, Sequence[NamedPage]]:
        """The pages that bear each name, merge redirects followed, each once."""
        found: dict[str, dict[str, NamedPage]] = {}
        for name, entry in self._context.catalogue.by_names(names):
            page = self._context.catalogue.follow_merges(entry)
            if page is not None and page.current(self._context.now_ms):
                found.setdefault(name, {})[page.id] = self._named(page)
        return {name: tuple(pages.values()) for name, pages in found.items()}

    def _named(self, page: Entry) -> NamedPage:
        ontology = self._context.session.ontology
        return NamedPage(page.id, ontology.infers_subject(page.type), ontology.is_a(page.type, "person"))


def subject_of(context: OperationContext, item: RememberItem) -> Subject:
    """The page that a remembered claim is about: named exactly, else inferred unless the item says not to.

    Source: tools.md, Remembering claims, steps 1 and 2.
    """
    names = PageNames(context)
    if item.subject is not None:
        bearer = context.catalogue.one(item.subject.strip())
        page = None if bearer is None or bearer.kind != "page" else context.catalogue.follow_merges(bearer)
        if page is not None and page.current(context.now_ms):
            return Subject("found", page.id)
        return resolve_subject(item.subject, names)
    if not item.infer_subject:
        return Subject("missing")
    return infer_subject(item.about, item.text, names)

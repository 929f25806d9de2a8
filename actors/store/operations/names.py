"""The names of a partition's active pages, for resolving and inferring subjects."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from actors.store.operations.context import OperationContext
from actors.store.operations.subjects import NamedPage, Subject, infer_subject, resolve_subject
from messages.tools import RememberItem
from storage.state.catalogue_reader import Entry


class PageNames:
    """A :class:`~actors.store.operations.subjects.NameIndex` over the catalogue: active, valid pages only.

    For one run of one operation, whose snapshot does not change: a name is looked up once.
    """

    def __init__(self, context: OperationContext) -> None:
        self._context = context
        self._known: dict[str, Sequence[NamedPage]] = {}

    def find(self, names: Collection[str]) -> Mapping[str, Sequence[NamedPage]]:
        """The pages that bear each name, merge redirects followed, each once."""
        unknown = [name for name in names if name not in self._known]
        found: dict[str, dict[str, NamedPage]] = {name: {} for name in unknown}
        for name, entry in self._context.catalogue.by_names(unknown):
            page = self._context.catalogue.follow_merges(entry)
            if page is not None and page.current(self._context.now_ms):
                found[name][page.id] = self._named(page)
        self._known.update((name, tuple(pages.values())) for name, pages in found.items())
        return {name: pages for name in names if (pages := self._known[name])}

    def _named(self, page: Entry) -> NamedPage:
        ontology = self._context.session.ontology
        return NamedPage(page.id, ontology.infers_subject(page.type), ontology.is_a(page.type, "person"))


def subject_of(context: OperationContext, names: PageNames, item: RememberItem) -> Subject:
    """The page that a remembered claim is about: named exactly, else inferred unless the item says not to.

    Source: tools.md, Remembering claims, steps 1 and 2.
    """
    if item.subject is not None:
        bearer = context.catalogue.one(item.subject.strip())
        page = None if bearer is None or bearer.kind != "page" else context.catalogue.follow_merges(bearer)
        if page is not None and page.current(context.now_ms):
            return Subject("found", page.id)
        return resolve_subject(item.subject, names)
    if not item.infer_subject:
        return Subject("missing")
    return infer_subject(item.about, item.text, names)

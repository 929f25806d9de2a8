"""The effective ontology: what page types, relationship labels and fields there are, with inheritance worked out.

Values only; :mod:`storage.ontology.activation` makes them. Source: decisions.md section 3.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Final, Literal, TypeAlias

FieldKind: TypeAlias = Literal[
    "string", "text", "integer", "number", "boolean", "date", "datetime", "url", "enum", "page", "list"
]
SourceName: TypeAlias = Literal["core.yaml", "ontology.yaml"]

INFERENCE_TYPES: Final = ("person", "company", "concept", "project", "deal")
"""A subject is inferred only as a page of one of these types or of a type below them."""


@dataclass(frozen=True, slots=True)
class FieldType:
    """One field: what its value may be. ``of`` names the page types of a ``page``, ``element`` the items of a list."""

    type: FieldKind
    description: str = ""
    required: bool = False
    values: tuple[str, ...] = ()
    of: tuple[str, ...] = ()
    element: FieldType | None = None


@dataclass(frozen=True, slots=True)
class PageType:
    """One page type. ``chain`` is itself and its ancestors, nearest first; ``fields`` includes the inherited ones.

    ``folder`` is where new pages are filed, ``""`` for an abstract type. ``field_owners`` says which type of the chain
    a field comes from; ``sources`` which files speak of the type.
    """

    name: str
    description: str
    chain: tuple[str, ...]
    abstract: bool
    aliases: tuple[str, ...]
    folder: str
    prefixes: tuple[str, ...]
    fields: Mapping[str, FieldType]
    field_owners: Mapping[str, str]
    sources: tuple[SourceName, ...]

    @property
    def parent(self) -> str | None:
        return self.chain[1] if len(self.chain) > 1 else None


@dataclass(frozen=True, slots=True)
class RelationshipType:
    """One relationship label. Empty ``from_types`` or ``to_types`` allow any page; a type includes those below it."""

    name: str
    description: str
    aliases: tuple[str, ...]
    from_types: tuple[str, ...]
    to_types: tuple[str, ...]
    inverse: str | None
    symmetric: bool
    fields: Mapping[str, FieldType]
    sources: tuple[SourceName, ...]


@dataclass(frozen=True, slots=True)
class Ontology:
    """The whole effective vocabulary. Immutable; any thread.

    ``prefixes`` is the order in which untyped files are classified. ``fingerprint`` is the SHA-256 of the canonical
    JSON of everything here, lower-case hex: equal fingerprints mean equal vocabularies.
    """

    pages: Mapping[str, PageType]
    relationships: Mapping[str, RelationshipType]
    prefixes: tuple[tuple[str, str], ...]
    fingerprint: str
    _page_names: Mapping[str, str] = field(default_factory=dict, repr=False)
    _relationship_names: Mapping[str, str] = field(default_factory=dict, repr=False)

    def page_type(self, name: str) -> PageType | None:
        """The page type with this name or alias (case and spacing do not matter)."""
        found = self.pages.get(name)
        if found is None:
            canonical = self._page_names.get(name_key(name))
            found = self.pages[canonical] if canonical is not None else None
        return found

    def relationship_type(self, name: str) -> RelationshipType | None:
        """The relationship type with this label or alias."""
        found = self.relationships.get(name)
        if found is None:
            canonical = self._relationship_names.get(name_key(name))
            found = self.relationships[canonical] if canonical is not None else None
        return found

    def is_a(self, name: str, ancestor: str) -> bool:
        """Whether the type is ``ancestor`` or lies below it. Aliases are understood; unknown types are nothing."""
        found, above = self.page_type(name), self.page_type(ancestor)
        return found is not None and above is not None and above.name in found.chain

    def types_within(self, name: str) -> frozenset[str]:
        """The type with this name or alias and every type below it; empty when there is none."""
        above = self.page_type(name)
        if above is None:
            return frozenset()
        return frozenset(page.name for page in self.pages.values() if above.name in page.chain)

    def spellings(self, name: str) -> frozenset[str]:
        """Every way a page may write this one type: its name and its aliases (for filters on stored values)."""
        found = self.page_type(name)
        return frozenset() if found is None else frozenset((found.name, *found.aliases))

    def classify(self, path: str) -> str | None:
        """The type of an untyped file, by the first prefix that its path begins with. Read-time only."""
        path = unicodedata.normalize("NFC", path)
        for prefix, name in self.prefixes:
            if path.startswith(prefix):
                return name
        return None

    def infers_subject(self, name: str) -> bool:
        """Whether pages of this type may be found by subject inference."""
        found = self.page_type(name)
        return found is not None and any(above in INFERENCE_TYPES for above in found.chain)


def name_key(name: str) -> str:
    """Two spellings are the same type name when their keys are equal."""
    return "_".join(name.casefold().replace("-", " ").replace("_", " ").split())


def frozen(mapping: Mapping[str, FieldType]) -> Mapping[str, FieldType]:
    """A read-only view, so that an effective ontology cannot be changed by a reader."""
    return MappingProxyType(dict(mapping))

"""From ontology files to the one effective ontology: all of an extension is active, or nothing of it.

An extension may add types, labels, fields, aliases and prefixes, and may speak of a shipped name again to add to it;
it may not take anything away or change what a shipped field holds, so that what was valid under ``core`` stays valid.

Source: decisions.md section 3.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from importlib.resources import files
from typing import Final

from messages.json_types import JsonObject
from messages.vocabulary import ONTOLOGY_FORMAT
from storage.faults import effect
from storage.ontology._field_types import described, field_json, field_type, holds_all, narrower
from storage.ontology._manifest import FieldSpec, Issue, Manifest, PageSpec, RelationshipSpec, read
from storage.ontology.model import FieldType, Ontology, PageType, RelationshipType, SourceName, frozen, name_key
from storage.records.yaml_core import Path

FAULT_POINTS: Final = (("ontology.core", "read the shipped ontology"),)

CORE_PATH: Final[SourceName] = "core.yaml"
EXTENSION_PATH: Final[SourceName] = "ontology.yaml"
_RESERVED_FOLDERS: Final = frozenset(("claims", "relationships", "artifacts", "conversations"))


@dataclass(frozen=True, slots=True)
class Source:
    """One ontology file of the partition: its text as it stands, and whether it is part of what is effective."""

    path: SourceName
    text: str
    size: int
    valid: bool


@dataclass(frozen=True, slots=True)
class Activation:
    """What is in force: the effective ontology, the files it was read from, and why an extension is not active."""

    ontology: Ontology
    sources: tuple[Source, ...]
    issues: tuple[Issue, ...] = ()


@lru_cache(maxsize=1)
def core_activation() -> Activation:
    """The shipped ontology alone: what every conversation has. Read once."""
    with effect("ontology.core"):
        data = files("storage.ontology").joinpath("core.yaml").read_bytes()
    builder = _Builder((read(data, CORE_PATH),))
    ontology = builder.build()
    if ontology is None:
        raise ValueError(f"the shipped ontology is broken: {builder.issues}")
    return Activation(ontology, (Source(CORE_PATH, data.decode("utf-8"), len(data), valid=True),))


def activate(extension: bytes | None) -> Activation:
    """The effective ontology of a private partition whose ``ontology.yaml`` has these bytes (``None``: no such file).

    With any error in it the extension is not active at all: ``core`` is effective, and the issues say why. Never
    raises.
    """
    core = core_activation()
    if extension is None:
        return core
    manifest = read(extension, EXTENSION_PATH)
    ontology: Ontology | None = None
    issues = manifest.issues
    if manifest.spec is not None and not issues:
        if manifest.spec.extends is None:
            manifest.complain("extends", ("extends",), "An extension must say `extends: core`.")
        builder = _Builder((read(core.sources[0].text.encode("utf-8"), CORE_PATH), manifest))
        built = builder.build()
        ontology = built if not issues else None
    shown = Source(EXTENSION_PATH, extension.decode("utf-8-sig", "replace"), len(extension), ontology is not None)
    return Activation(ontology or core.ontology, (*core.sources, shown), tuple(issues))


def not_activated(code: str, message: str) -> Activation:
    """``core`` alone, and why the partition's ``ontology.yaml`` could not even be read."""
    core = core_activation()
    return Activation(core.ontology, core.sources, (Issue(code, "", message, EXTENSION_PATH),))


@dataclass(slots=True)
class _DraftField:
    type: FieldType
    manifest: Manifest
    path: Path


@dataclass(slots=True)
class _DraftPage:
    name: str
    manifest: Manifest  # the file that complaints about it go to: the last that speaks of it
    spec: PageSpec
    sources: tuple[SourceName, ...]
    fields: dict[str, _DraftField] = field(default_factory=dict)


@dataclass(slots=True)
class _DraftRelationship:
    name: str
    manifest: Manifest
    spec: RelationshipSpec
    sources: tuple[SourceName, ...]
    fields: dict[str, _DraftField] = field(default_factory=dict)


class _Builder:
    """Puts the declarations of some files together, in order; complaints go to the file that causes them."""

    def __init__(self, manifests: Sequence[Manifest]) -> None:
        self._manifests = manifests
        self._pages: dict[str, _DraftPage] = {}
        self._relationships: dict[str, _DraftRelationship] = {}
        self._page_names: dict[str, str] = {}
        self._relationship_names: dict[str, str] = {}

    @property
    def issues(self) -> list[Issue]:
        return [issue for manifest in self._manifests for issue in manifest.issues]

    def build(self) -> Ontology | None:
        """The effective ontology, or ``None`` with at least one issue."""
        for manifest in self._manifests:
            if manifest.spec is None:
                return None
            for name, page in manifest.spec.pages.items():
                self._declare_page(manifest, name, page)
            for name, relationship in manifest.spec.relationships.items():
                self._declare_relationship(manifest, name, relationship)
        self._name_everything()
        chains = {name: self._chain(draft) for name, draft in self._pages.items()}
        pages = {name: self._page(draft, chains) for name, draft in self._pages.items()}
        relationships = {name: self._relationship(draft) for name, draft in self._relationships.items()}
        prefixes = tuple(self._prefixes())
        if self.issues:
            return None
        fingerprint = _fingerprint(pages, relationships, prefixes)
        return Ontology(pages, relationships, prefixes, fingerprint, self._page_names, self._relationship_names)

    # Declarations

    def _declare_page(self, manifest: Manifest, name: str, spec: PageSpec) -> None:
        path: Path = ("pages", name)
        before = self._pages.get(name)
        draft = _DraftPage(name, manifest, spec, (manifest.source,))
        if before is not None:
            if spec.parent is not None and spec.parent != before.spec.parent:
                message = f"`{name}` has the parent {before.spec.parent}; an extension cannot change it."
                manifest.complain("parent_changed", (*path, "parent"), message, (name, str(before.spec.parent)))
            if "abstract" in spec.model_fields_set and spec.abstract != before.spec.abstract:
                manifest.complain("abstract_changed", (*path, "abstract"), "An extension cannot change this.")
            draft.spec = before.spec.model_copy(
                update={
                    "description": spec.description or before.spec.description,
                    "folder": spec.folder or before.spec.folder,
                    "aliases": list(dict.fromkeys((*before.spec.aliases, *spec.aliases))),
                }
            )
            draft.sources = (*before.sources, manifest.source)
            draft.fields = before.fields
        self._declare_fields(manifest, path, spec.fields, draft.fields)
        self._pages[name] = draft

    def _declare_relationship(self, manifest: Manifest, name: str, spec: RelationshipSpec) -> None:
        path: Path = ("relationships", name)
        before = self._relationships.get(name)
        draft = _DraftRelationship(name, manifest, spec, (manifest.source,))
        if before is not None:
            for key in ("inverse", "symmetric"):
                if key in spec.model_fields_set and getattr(spec, key) != getattr(before.spec, key):
                    manifest.complain(f"{key}_changed", (*path, key), "An extension cannot change this.")
            draft.spec = before.spec.model_copy(
                update={
                    "description": spec.description or before.spec.description,
                    "aliases": list(dict.fromkeys((*before.spec.aliases, *spec.aliases))),
                    "from_types": _wider(before.spec.from_types, spec.from_types),
                    "to_types": _wider(before.spec.to_types, spec.to_types),
                }
            )
            draft.sources = (*before.sources, manifest.source)
            draft.fields = before.fields
        self._declare_fields(manifest, path, spec.fields, draft.fields)
        self._relationships[name] = draft

    def _declare_fields(
        self, manifest: Manifest, path: Path, specs: Mapping[str, FieldSpec], into: dict[str, _DraftField]
    ) -> None:
        for name, spec in specs.items():
            at = (*path, "fields", name)
            declared = field_type(manifest, at, spec, 0)
            if declared is None:
                continue
            before = into.get(name)
            if before is not None:
                if not holds_all(declared, before.type):
                    message = f"`{name}` is shipped as {described(before.type)}; an extension can only add to it."
                    manifest.complain("field_changed", at, message)
                    continue
                declared = replace(declared, description=declared.description or before.type.description)
            into[name] = _DraftField(declared, manifest, at)

    # Names

    def _name_everything(self) -> None:
        for kind, drafts, names in (
            ("pages", self._pages, self._page_names),
            ("relationships", self._relationships, self._relationship_names),
        ):
            for name in drafts:
                names[name_key(name)] = name
            for name, draft in drafts.items():
                for index, alias in enumerate(draft.spec.aliases):
                    holder = names.setdefault(name_key(alias), name)
                    if holder != name:
                        message = f"`{alias}` already stands for {holder}."
                        draft.manifest.complain("alias_taken", (kind, name, "aliases", index), message)

    def _type_names(self, draft: _DraftPage | _DraftRelationship, path: Path, names: Sequence[str]) -> tuple[str, ...]:
        """Type names with aliases resolved; complains about those that do not exist."""
        return self._resolved(draft.manifest, path, names)

    def _resolved(self, manifest: Manifest, path: Path, names: Sequence[str]) -> tuple[str, ...]:
        found: list[str] = []
        for index, name in enumerate(names):
            canonical = self._page_names.get(name_key(name))
            if canonical is None:
                manifest.complain("type_unknown", (*path, index), f"There is no page type `{name}`.")
            elif canonical not in found:
                found.append(canonical)
        return tuple(found)

    # Inheritance

    def _chain(self, draft: _DraftPage) -> tuple[str, ...]:
        chain = [draft.name]
        parent = draft.spec.parent
        while parent is not None:
            above = self._pages.get(parent)
            path: Path = ("pages", draft.name, "parent")
            if above is None:
                # The type next to the gap complains; those below it would only repeat it.
                if len(chain) == 1:
                    draft.manifest.complain(
                        "parent_missing", path, f"There is no page type `{parent}`.", (*chain, parent)
                    )
                break
            if parent in chain:
                message = "The parents go in a circle."
                draft.manifest.complain("parent_circle", path, message, (*chain, parent))
                break
            chain.append(parent)
            parent = above.spec.parent
        return tuple(chain)

    def _page(self, draft: _DraftPage, chains: Mapping[str, tuple[str, ...]]) -> PageType:
        chain = chains[draft.name]
        fields: dict[str, FieldType] = {}
        owners: dict[str, str] = {}
        for above in reversed(chain):
            if above not in self._pages:
                continue
            for name, declared in self._pages[above].fields.items():
                inherited = fields.get(name)
                if inherited is not None and not narrower(declared.type, inherited):
                    if above == draft.name:
                        message = f"`{name}` is inherited as {described(inherited)} and can only be narrowed."
                        declared.manifest.complain("field_conflict", declared.path, message, chain)
                    continue
                fields[name] = self._with_types(declared, complain=above == draft.name)
                owners[name] = above
        folder = self._folder(draft, chain)
        return PageType(
            name=draft.name,
            description=draft.spec.description,
            chain=chain,
            abstract=draft.spec.abstract,
            aliases=tuple(draft.spec.aliases),
            folder=folder,
            prefixes=self._prefixes_of(draft.name),
            fields=frozen(fields),
            field_owners=dict(owners),
            sources=draft.sources,
        )

    def _with_types(self, declared: _DraftField, *, complain: bool) -> FieldType:
        """The field with the page types it refers to resolved; complained about once, by the type that owns it."""
        silent = Manifest(declared.manifest.source, None)
        return self._resolved_field(declared.type, declared.manifest if complain else silent, declared.path)

    def _resolved_field(self, declared: FieldType, manifest: Manifest, path: Path) -> FieldType:
        element = declared.element
        return replace(
            declared,
            of=self._resolved(manifest, (*path, "of"), declared.of),
            element=None if element is None else self._resolved_field(element, manifest, (*path, "of")),
        )

    def _folder(self, draft: _DraftPage, chain: tuple[str, ...]) -> str:
        if draft.spec.abstract:
            return ""
        folder = next((found for name in chain if (found := self._spec_folder(name))), draft.name.replace("_", "-"))
        inherited = folder != draft.spec.folder and any(self._spec_folder(name) == folder for name in chain[1:])
        if folder.split("/")[0] in _RESERVED_FOLDERS and not inherited:
            path: Path = ("pages", draft.name, "folder")
            message = f"`{folder.split('/')[0]}` is kept for other files; choose another folder."
            draft.manifest.complain("folder_reserved", path, message, chain)
        return folder

    def _spec_folder(self, name: str) -> str | None:
        return self._pages[name].spec.folder if name in self._pages else None

    def _relationship(self, draft: _DraftRelationship) -> RelationshipType:
        path: Path = ("relationships", draft.name)
        spec = draft.spec
        from_types = self._type_names(draft, (*path, "from"), spec.from_types)
        to_types = self._type_names(draft, (*path, "to"), spec.to_types)
        if spec.symmetric and set(from_types) != set(to_types):
            draft.manifest.complain("symmetric", (*path, "symmetric"), "A symmetric label needs equal `from` and `to`.")
        if spec.symmetric and spec.inverse is not None:
            draft.manifest.complain(
                "symmetric", (*path, "inverse"), "A symmetric label is its own inverse; leave it out."
            )
        mirror = self._relationships.get(spec.inverse) if spec.inverse is not None else None
        if mirror is not None and mirror.spec.inverse != draft.name:
            message = f"`{spec.inverse}` is a label of its own and does not name `{draft.name}` as its inverse."
            draft.manifest.complain("inverse", (*path, "inverse"), message)
        fields = {name: self._with_types(declared, complain=True) for name, declared in draft.fields.items()}
        return RelationshipType(
            name=draft.name,
            description=spec.description,
            aliases=tuple(spec.aliases),
            from_types=from_types,
            to_types=to_types,
            inverse=spec.inverse,
            symmetric=spec.symmetric,
            fields=frozen(fields),
            sources=draft.sources,
        )

    # Classification

    def _declared_prefixes(self) -> Iterator[tuple[Manifest, str, int, str]]:
        """Every prefix in the order in which files are classified: an extension's own come before the shipped ones."""
        for manifest in reversed(self._manifests):
            if manifest.spec is not None:
                for name, page in manifest.spec.pages.items():
                    for index, prefix in enumerate(page.prefixes):
                        yield manifest, name, index, prefix

    def _prefixes_of(self, name: str) -> tuple[str, ...]:
        return tuple(dict.fromkeys(prefix for _, owner, _, prefix in self._declared_prefixes() if owner == name))

    def _prefixes(self) -> Iterator[tuple[str, str]]:
        taken: dict[str, tuple[Manifest, str]] = {}
        for manifest, name, index, prefix in self._declared_prefixes():
            path: Path = ("pages", name, "prefixes", index)
            if prefix.split("/")[0] in _RESERVED_FOLDERS or ".." in prefix.split("/"):
                manifest.complain("prefix", path, "This prefix covers files that are no pages.")
                continue
            before = taken.get(prefix)
            if before is None:
                taken[prefix] = (manifest, name)
                if self._pages[name].spec.abstract:
                    manifest.complain("prefix", path, "An abstract type classifies no files.")
                yield prefix, name
            elif before[1] != name and before[0] is manifest:
                manifest.complain("prefix", path, f"`{prefix}` already classifies {before[1]}.")


def _wider(before: Sequence[str], added: Sequence[str]) -> list[str]:
    """Endpoint types of a label after an extension spoke of it; an empty list allows any page, and stays empty."""
    return list(dict.fromkeys((*before, *added))) if before else []


def _fingerprint(
    pages: Mapping[str, PageType],
    relationships: Mapping[str, RelationshipType],
    prefixes: tuple[tuple[str, str], ...],
) -> str:
    """SHA-256 of what is effective; where it was written, and in which file, does not count."""
    effective: JsonObject = {
        "format": ONTOLOGY_FORMAT,
        "pages": {
            name: {
                "description": page.description,
                "chain": list(page.chain),
                "abstract": page.abstract,
                "aliases": sorted(page.aliases),
                "folder": page.folder,
                "fields": {key: field_json(declared) for key, declared in page.fields.items()},
            }
            for name, page in pages.items()
        },
        "relationships": {
            name: {
                "description": relationship.description,
                "aliases": sorted(relationship.aliases),
                "from": sorted(relationship.from_types),
                "to": sorted(relationship.to_types),
                "inverse": relationship.inverse,
                "symmetric": relationship.symmetric,
                "fields": {key: field_json(declared) for key, declared in relationship.fields.items()},
            }
            for name, relationship in relationships.items()
        },
        "prefixes": [list(pair) for pair in prefixes],
    }
    canonical = json.dumps(effective, ensure_ascii=False, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(canonical.encode("utf-8")).hexdigest()

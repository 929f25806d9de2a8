"""Fields by themselves: from their declaration to a checked type, and how two declarations of one field compare."""

from __future__ import annotations

from typing import Final

from messages.json_types import JsonObject
from storage.ontology._manifest import FieldSpec, Manifest, validated
from storage.ontology.model import FieldType
from storage.records.yaml_core import Path

_MAX_LIST_DEPTH: Final = 3


def field_type(manifest: Manifest, path: Path, spec: FieldSpec, depth: int) -> FieldType | None:
    """A field as declared, its ``of`` and ``values`` checked against its type."""
    at = (*path, "of")
    known = len(manifest.issues)
    of: tuple[str, ...] = ()
    element: FieldType | None = None
    if (spec.type == "enum") != (spec.values is not None):
        message = "An enum needs `values`." if spec.type == "enum" else "Only an enum has `values`."
        manifest.complain("values", (*path, "values"), message)
    if spec.type == "page":
        names = [spec.of] if isinstance(spec.of, str) else spec.of
        if names is None or (isinstance(names, list) and names and all(isinstance(name, str) for name in names)):
            of = tuple(names or ())
        else:
            manifest.complain("of", at, "`of` of a page must be a list of page types.")
    elif spec.type == "list":
        element = _element(manifest, at, spec, depth)
    elif spec.of is not None:
        manifest.complain("of", at, "Only a page or a list has `of`.")
    if len(manifest.issues) > known:
        return None
    return FieldType(spec.type, spec.description, spec.required, tuple(spec.values or ()), of, element)


def _element(manifest: Manifest, at: Path, spec: FieldSpec, depth: int) -> FieldType | None:
    if depth >= _MAX_LIST_DEPTH:
        manifest.complain("of", at, f"Lists are nested deeper than {_MAX_LIST_DEPTH}.")
        return None
    if spec.of is None:
        manifest.complain("of", at, "A list needs `of`: a field type, or a field of its own.")
        return None
    if not isinstance(spec.of, (str, dict)):
        manifest.complain("of", at, "`of` of a list must be a field type, or a field of its own.")
        return None
    inner = validated(FieldSpec, {"type": spec.of} if isinstance(spec.of, str) else spec.of, at, manifest)
    return None if inner is None else field_type(manifest, at, inner, depth + 1)


def holds_all(new: FieldType, old: FieldType) -> bool:
    """Whether every value that ``old`` holds is still one of ``new``."""
    if new.type != old.type or (new.required and not old.required):
        return False
    if new.type == "page" and new.of and not (old.of and set(old.of) <= set(new.of)):
        return False
    if new.element is not None and old.element is not None:
        return holds_all(new.element, old.element)
    return set(old.values) <= set(new.values)


def narrower(new: FieldType, inherited: FieldType) -> bool:
    """Whether every value of ``new`` is one that ``inherited`` holds: what a child type may make of a field."""
    if new.type != inherited.type or (inherited.required and not new.required):
        return False
    if new.type == "page" and inherited.of and not (new.of and set(new.of) <= set(inherited.of)):
        return False
    if new.element is not None and inherited.element is not None:
        return narrower(new.element, inherited.element)
    return set(new.values) <= set(inherited.values)


def described(declared: FieldType) -> str:
    if declared.values:
        return f"enum of {', '.join(declared.values)}"
    if declared.of:
        return f"page of {', '.join(declared.of)}"
    return f"list of {described(declared.element)}" if declared.element is not None else declared.type


def field_json(declared: FieldType) -> JsonObject:
    """A field as views and fingerprint see it; what has its default value is left out."""
    shown: JsonObject = {"type": declared.type}
    if declared.description:
        shown["description"] = declared.description
    if declared.required:
        shown["required"] = True
    if declared.values:
        shown["values"] = list(declared.values)
    if declared.of:
        shown["of"] = list(declared.of)
    if declared.element is not None:
        shown["of"] = field_json(declared.element)
    return shown

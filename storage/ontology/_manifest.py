"""One ontology file as it is written: bytes to checked declarations, every complaint with its line.

Nothing here knows of inheritance; :mod:`storage.ontology.activation` puts declarations together.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated, Final, Literal, TypeVar

from pydantic import BaseModel, ConfigDict, Field, StringConstraints, ValidationError
from pydantic_core import ErrorDetails

from messages.json_types import JsonObject, JsonValue
from messages.vocabulary import ONTOLOGY_FORMAT, ONTOLOGY_MAX_BYTES
from storage.ontology.model import FieldKind, SourceName
from storage.records.yaml_core import Loaded, Path, load, shown

NAME_PATTERN: Final = r"^[a-z][a-z0-9_]{0,63}$"
Name = Annotated[str, StringConstraints(pattern=NAME_PATTERN)]
Alias = Annotated[str, StringConstraints(pattern=r"^[a-z0-9][a-z0-9_ -]{0,62}[a-z0-9]$")]
# Every part begins with a letter or digit: no dot folders, no climbing, nothing that a scan passes over.
Folder = Annotated[str, StringConstraints(pattern=r"^[a-z0-9][a-z0-9-]{0,63}(/[a-z0-9][a-z0-9-]{0,63}){0,3}$")]
Prefix = Annotated[str, StringConstraints(pattern=r"^[^/\\\x00-\x1f.][^\\\x00-\x1f]{0,199}$")]
Text = Annotated[str, StringConstraints(max_length=1_000)]
EnumValue = Annotated[str, StringConstraints(min_length=1, max_length=100)]


@dataclass(frozen=True, slots=True)
class Issue:
    """One reason why an extension is not active. ``chain`` is the inheritance chain that it concerns, nearest first."""

    code: str
    path: str
    message: str
    source: SourceName
    line: int | None = None
    chain: tuple[str, ...] = ()

    def to_json(self) -> JsonObject:
        shown_issue: JsonObject = {"code": self.code, "source": self.source, "path": self.path, "message": self.message}
        if self.line is not None:
            shown_issue["line"] = self.line
        if self.chain:
            shown_issue["chain"] = list(self.chain)
        return shown_issue


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True, frozen=True, populate_by_name=True)


class FieldSpec(_Strict):
    """One field. ``of`` is checked beside ``type``: type names for ``page``, a field for ``list``."""

    type: FieldKind
    description: Text = ""
    required: bool = False
    values: Annotated[list[EnumValue], Field(min_length=1, max_length=200)] | None = None
    of: object = None


class PageSpec(_Strict):
    description: Text = ""
    parent: Name | None = None
    abstract: bool = False
    aliases: list[Alias] = []
    folder: Folder | None = None
    prefixes: list[Prefix] = []
    fields: dict[Name, FieldSpec] = {}


class RelationshipSpec(_Strict):
    description: Text = ""
    aliases: list[Alias] = []
    from_types: list[Name] = Field(default=[], alias="from")
    to_types: list[Name] = Field(default=[], alias="to")
    inverse: Name | None = None
    symmetric: bool = False
    fields: dict[Name, FieldSpec] = {}


class ManifestSpec(_Strict):
    format: Literal["knowledge-ontology-v1"]
    extends: Literal["core"] | None = None
    pages: dict[Name, PageSpec] = {}
    relationships: dict[Name, RelationshipSpec] = {}


S = TypeVar("S", bound=_Strict)


@dataclass(slots=True)
class Manifest:
    """What one file declares, and where; ``spec`` is ``None`` when the file cannot be read as a manifest."""

    source: SourceName
    spec: ManifestSpec | None
    lines: Mapping[Path, int] = field(default_factory=dict)
    issues: list[Issue] = field(default_factory=list)

    def complain(self, code: str, path: Path, message: str, chain: tuple[str, ...] = ()) -> None:
        """Add an issue at the nearest known line above ``path``."""
        self.issues.append(Issue(code, shown(path), message, self.source, line_of(self.lines, path), chain))


def line_of(lines: Mapping[Path, int], path: Path) -> int | None:
    """The line of ``path``, or of the nearest thing around it."""
    while path:
        line = lines.get(path)
        if line is not None:
            return line
        path = path[:-1]
    return None


def read(data: bytes, source: SourceName) -> Manifest:
    """The declarations of one file; never raises."""
    manifest = Manifest(source, None)
    if len(data) > ONTOLOGY_MAX_BYTES:
        message = f"The file has {len(data)} bytes; an ontology may have {ONTOLOGY_MAX_BYTES}."
        manifest.complain("too_large", (), message)
        return manifest
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        manifest.complain("not_utf8", (), f"The file is not UTF-8 at byte {error.start}.")
        return manifest
    loaded = load(text)
    for finding in (loaded.broken, *loaded.findings):
        if finding is not None:
            issue = Issue(finding.code, finding.field, finding.message, source, finding.line)
            manifest.issues.append(issue)
    if loaded.broken is None:
        _check(manifest, loaded)
    return manifest


def _check(manifest: Manifest, loaded: Loaded) -> None:
    manifest.lines = loaded.lines
    if not isinstance(loaded.value, dict):
        manifest.complain("not_a_mapping", (), "An ontology is a mapping with format, pages and relationships.")
        return
    spec = validated(ManifestSpec, loaded.value, (), manifest)
    if spec is not None:
        manifest.spec = spec


def validated(model: type[S], value: JsonValue, at: Path, manifest: Manifest) -> S | None:
    """``value`` as ``model``, or ``None`` with one issue for each thing that is wrong."""
    try:
        return model.model_validate(value)
    except ValidationError as error:
        for detail in error.errors(include_url=False, include_input=False):
            _report(detail, at, manifest)
        return None


_MESSAGES: Final[Mapping[str, tuple[str, str]]] = {
    "extra_forbidden": ("unknown_key", "No such key is known here."),
    "missing": ("missing", "This key is required."),
    "string_type": ("not_text", "This must be text; put it in quotes."),
    "list_type": ("not_a_list", "This must be a list."),
    "dict_type": ("not_a_mapping", "This must be a mapping."),
    "model_type": ("not_a_mapping", "This must be a mapping."),
    "bool_type": ("not_boolean", "This must be true or false."),
}
_PATTERNS: Final[Mapping[str, str]] = {
    NAME_PATTERN: "A name is a lower-case letter, then up to 63 lower-case letters, digits and _.",
}


def _report(detail: ErrorDetails, at: Path, manifest: Manifest) -> None:
    # pydantic marks the key of a mapping as its own step, which is no place in the file.
    path: Path = (*at, *(part for part in detail["loc"] if part != "[key]"))
    kind = detail["type"]
    if path == ("format",):
        manifest.complain("format", path, f"`format` must be {ONTOLOGY_FORMAT}.")
        return
    code, message = _MESSAGES.get(kind, (kind, f"{detail['msg']}."))
    if kind == "string_pattern_mismatch":
        pattern = str(detail.get("ctx", {}).get("pattern", ""))
        message = _PATTERNS.get(pattern, f"This must match {pattern}.")
        code = "malformed"
    elif kind == "literal_error":
        code, message = "not_allowed", f"This must be one of: {detail.get('ctx', {}).get('expected', '')}."
    manifest.complain(code, path, message)

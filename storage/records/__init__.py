"""Records as they lie on disk: frontmatter and body, names and dates, links and sections. Pure functions, any thread.

:func:`parse_record` turns a file's bytes into a record with its findings and never raises; :func:`render_new` and
:func:`rewrite` turn records into bytes, the latter touching only the lines that change. Source: decisions.md section 2.
"""

from storage.records import dates, frontmatter, links, names, text, utf16
from storage.records.dates import Interval, bound_ms, format_instant, parse_date, parse_instant
from storage.records.findings import Finding, Severity, errors
from storage.records.frontmatter import ABSENT, Change
from storage.records.model import (
    BrokenRecord,
    EvidenceCitation,
    LifecycleChange,
    ParsedRecord,
    Recall,
    Record,
    Scope,
)
from storage.records.names import file_name, hex_level, normalise_name, path_key, record_folder, slug
from storage.records.record_files import (
    body_of,
    changes_between,
    citation_value,
    content_hash,
    frontmatter_values,
    parse_record,
    recall_value,
    render_new,
    rewrite,
)
from storage.records.text import text_problem

__all__ = [
    "ABSENT",
    "BrokenRecord",
    "Change",
    "EvidenceCitation",
    "Finding",
    "Interval",
    "LifecycleChange",
    "ParsedRecord",
    "Recall",
    "Record",
    "Scope",
    "Severity",
    "body_of",
    "bound_ms",
    "changes_between",
    "citation_value",
    "content_hash",
    "dates",
    "errors",
    "file_name",
    "format_instant",
    "frontmatter",
    "frontmatter_values",
    "hex_level",
    "links",
    "names",
    "normalise_name",
    "parse_date",
    "parse_instant",
    "parse_record",
    "path_key",
    "recall_value",
    "record_folder",
    "render_new",
    "rewrite",
    "slug",
    "text",
    "text_problem",
    "utf16",
]

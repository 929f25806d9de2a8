"""The vocabulary of a partition: which page types, labels and fields there are, and what may stand in them.

:func:`core_activation` is what every partition has; :func:`activate` adds a private partition's ``ontology.yaml``, all
or nothing. Pure values and functions, any thread. Source: decisions.md section 3, tools.md (Ontology).
"""

from storage.ontology import views
from storage.ontology._manifest import Issue
from storage.ontology.activation import (
    CORE_PATH,
    EXTENSION_PATH,
    Activation,
    Source,
    activate,
    core_activation,
    not_activated,
)
from storage.ontology.model import (
    INFERENCE_TYPES,
    FieldType,
    Ontology,
    PageType,
    RelationshipType,
)
from storage.ontology.validation import Resolve, validate_page, validate_relationship

__all__ = [
    "CORE_PATH",
    "EXTENSION_PATH",
    "INFERENCE_TYPES",
    "Activation",
    "FieldType",
    "Issue",
    "Ontology",
    "PageType",
    "RelationshipType",
    "Resolve",
    "Source",
    "activate",
    "core_activation",
    "not_activated",
    "validate_page",
    "validate_relationship",
    "views",
]

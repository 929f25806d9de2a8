"""The write path of one store: publications that are applied as a whole, survive any crash, and never cost a person
a text.

``open_store`` gives the :class:`Publisher` of a store; everything else is what goes in and comes out. The protocol,
its reasons and its proof are in the modules: ``publisher`` (the steps), ``placing`` and ``table`` (what an
interruption leaves and what is done about it), ``machine`` (after a power loss), ``sync`` (the background step),
``opening`` (creation and recovery).
"""

from storage.publication.adopting import Adoption, adopt_store
from storage.publication.model import ExternalChange, FileChange, Intent, Projection, Receipt
from storage.publication.opening import Machine, create_store
from storage.publication.publisher import Publisher, open_store
from storage.publication.report import Notice, RecoveryReport
from storage.publication.sync import Cut, Pruned, Synced, sync_files

__all__ = [
    "Adoption",
    "Cut",
    "ExternalChange",
    "FileChange",
    "Intent",
    "Machine",
    "Notice",
    "Projection",
    "Pruned",
    "Publisher",
    "Receipt",
    "RecoveryReport",
    "Synced",
    "adopt_store",
    "create_store",
    "open_store",
    "sync_files",
]

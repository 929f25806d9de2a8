"""What a host asks of its memory provider: shared reads, prompt, recall gate and flush, each with its audience.

Source: memory-provider.md, decisions.md section 7 (``memory.*``, ``prompt.build``, ``recall.gate``, ``flush.plan``).
"""

from messages.provider.calls import PROVIDER_METHODS, ProviderCall, ProviderRequest, parse_provider_call
from messages.provider.flush import FlushPlanRequest
from messages.provider.gate import RecallGateRequest
from messages.provider.prompt import PromptBuildRequest, PromptFacts, PromptWording
from messages.provider.reads import (
    PURPOSES,
    MemoryCandidatesRequest,
    MemoryReadRequest,
    MemorySearchRequest,
    MemoryStatusRequest,
    Purpose,
)
from messages.provider.references import MemoryReference

__all__ = [
    "PROVIDER_METHODS",
    "PURPOSES",
    "FlushPlanRequest",
    "MemoryCandidatesRequest",
    "MemoryReadRequest",
    "MemoryReference",
    "MemorySearchRequest",
    "MemoryStatusRequest",
    "PromptBuildRequest",
    "PromptFacts",
    "PromptWording",
    "ProviderCall",
    "ProviderRequest",
    "Purpose",
    "RecallGateRequest",
    "parse_provider_call",
]

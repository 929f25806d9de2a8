"""What a host asks of its memory provider: shared reads, prompt, recall gate and flush, each with its audience.

Source: memory-provider.md, decisions.md section 7 (``memory.*``, ``prompt.build``, ``recall.gate``, ``flush.plan``).
"""

from messages.provider.calls import PROVIDER_METHODS, ProviderCall, ProviderRequest, parse_provider_call
from messages.provider.reads import PURPOSES, MemoryStatusRequest, Purpose

__all__ = [
    "PROVIDER_METHODS",
    "PURPOSES",
    "MemoryStatusRequest",
    "ProviderCall",
    "ProviderRequest",
    "Purpose",
    "parse_provider_call",
]

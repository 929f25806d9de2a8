"""What is asked of system memory: by accounts over the host protocol, by observers and stewards on their own machine.

The values of a row are taken as they come: its shape is judged where it is written, so that every door names the same
problems. Source: system-memory-contract.md section 3, decisions.md section 7.
"""

from messages.system_memory.account import (
    SYSTEM_MEMORY_METHODS,
    AccountRequest,
    CreateMemoryRequest,
    DeleteMemoryRequest,
    FetchMemoryRequest,
    ListMemoriesRequest,
    RecallMemoriesRequest,
    SystemMemoryCall,
    account_of,
    parse_system_memory_call,
)
from messages.system_memory.steward import (
    STEWARD_METHODS,
    AdmitRequest,
    ChallengeRequest,
    EraseAccountRequest,
    ObserveRequest,
    PromoteRequest,
    ReadyRequest,
    RefuteRequest,
    ShowRequest,
    StatusRequest,
    StewardCall,
    StewardRequest,
    SupersedeRequest,
    parse_steward_call,
)

__all__ = [
    "STEWARD_METHODS",
    "SYSTEM_MEMORY_METHODS",
    "AccountRequest",
    "AdmitRequest",
    "ChallengeRequest",
    "CreateMemoryRequest",
    "DeleteMemoryRequest",
    "EraseAccountRequest",
    "FetchMemoryRequest",
    "ListMemoriesRequest",
    "ObserveRequest",
    "PromoteRequest",
    "ReadyRequest",
    "RecallMemoriesRequest",
    "RefuteRequest",
    "ShowRequest",
    "StatusRequest",
    "StewardCall",
    "StewardRequest",
    "SupersedeRequest",
    "SystemMemoryCall",
    "account_of",
    "parse_steward_call",
    "parse_system_memory_call",
]

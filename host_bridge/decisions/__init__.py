"""Who answers an agent's decision requests: the registry by agent, rerank endpoints over HTTP, and the local model.

A request goes to the provider that the agent's ``decisionModel`` names and to no other: nothing is retried, nothing
falls back. At most ``maxInFlight`` requests of one provider are under way; a deadline ends a request whatever the other
side does.

Source: knowledge-more-facts.md sections 10 and 11; memory-provider.md (Recall gate).
"""

from host_bridge.decisions.registry import DecisionProviders

__all__ = ["DecisionProviders"]

"""The words that a host's agents hear of Knowledge as their memory (memory-provider.md)."""

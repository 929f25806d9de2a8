"""What a store can do: plain functions on a snapshot, one module a tool family."""

"""Tests of host_bridge.owner."""

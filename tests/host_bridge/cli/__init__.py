"""Tests of host_bridge.cli."""

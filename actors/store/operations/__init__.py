"""What the store does for each tool: plain functions on one partition's snapshot, testable without a thread."""

"""``python -m stress recall``: how much of what was asked for a search finds, and how early, on a judged corpus."""

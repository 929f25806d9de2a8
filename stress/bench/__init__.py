"""What everything costs, beside what it cannot cost less than: ``python -m stress bench``.

Each row compares an operation of ours with a baseline, interleaved in the same run, since absolute times wander.
Nothing here fails a build: costs are asserted as counters (``tests/stress/test_costs.py``), times are only shown.
"""

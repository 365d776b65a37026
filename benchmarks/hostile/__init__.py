"""Damaged and hostile input for treegen, and what must come of it. `python -m benchmarks.hostile --help`."""

"""Damaged and hostile input for treegen. `python -m verification.hostile --help`."""

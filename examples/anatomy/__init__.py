"""Attention kernels of three papers, step by step; README.md tells the story."""

from pathlib import Path

STEPS = tuple(sorted(path.stem for path in Path(__file__).parent.glob("step*.py")))

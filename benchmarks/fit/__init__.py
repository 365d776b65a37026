"""Benchmarks of the fit. As in the command, one thread multiplies matrices."""

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")

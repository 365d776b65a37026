"""These tests run the kernels in Triton's interpreter, which must be asked for before triton is imported."""

import os
import sys

if "triton" in sys.modules and os.environ.get("TRITON_INTERPRET") != "1":
    raise RuntimeError("triton was imported before tests/kernels/conftest.py could set TRITON_INTERPRET=1")
os.environ["TRITON_INTERPRET"] = "1"

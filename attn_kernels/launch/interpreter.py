"""A fix of Triton's CPU interpreter (``TRITON_INTERPRET=1``) that these kernels need."""

from functools import cache
from typing import Any

import numpy as np
import triton.language as tl


@cache
def mend_bfloat16_dot() -> None:
    """Make the interpreter's ``tl.dot`` multiply bfloat16 operands as numbers.

    It holds bfloat16 as uint16, and up to Triton 3.9 at least it multiplies those bit patterns as integers,
    without a warning. A product of two bfloat16 numbers is exact in float32, so nothing is lost.
    """
    from triton.runtime import interpreter

    builder = interpreter.InterpreterBuilder
    create_dot = builder.create_dot

    def widen(operand: Any) -> Any:
        if operand.dtype.scalar != tl.bfloat16:
            return operand
        values = (operand.data.astype(np.uint32) << 16).view(np.float32)
        return interpreter.TensorHandle(values, tl.float32)

    def create_widened_dot(self: Any, a: Any, b: Any, *rest: Any) -> Any:
        return create_dot(self, widen(a), widen(b), *rest)

    builder.create_dot = create_widened_dot

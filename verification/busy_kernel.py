"""A kernel that keeps multiprocessors from other kernels for a bounded time."""

import triton
import triton.language as tl
from triton.language.extra.cuda import globaltimer

# A program has 1,024 threads, and each holds 64 of VALUES, as many as it may have registers. So a program
# takes all registers of a multiprocessor, and no other program runs beside it.
NUM_WARPS = 32
VALUES = 64 * 32 * NUM_WARPS


@triton.jit(do_not_specialize=["nanoseconds"])
def busy_kernel(out_ptr, nanoseconds, VALUES: tl.constexpr):
    """Spin for so many nanoseconds; out is float32 [programs, VALUES], which keeps the values alive."""
    start = globaltimer()
    places = tl.program_id(0) * VALUES + tl.arange(0, VALUES)
    values = tl.load(out_ptr + places)
    while globaltimer() - start < nanoseconds:
        values = values * 0.5 + 1.0
    tl.store(out_ptr + places, values)

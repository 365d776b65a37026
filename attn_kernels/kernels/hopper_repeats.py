"""Q-Blocks of the Hopper kernel that are computed twice, because a row's weights grew too large.

A row's weights are relative to the maximum of a few tiles, which hold the keys nearest to the diagonal. The
other tiles compute no maximum. FlashDecoding++ (arXiv 2311.01282, section 3) does so with a fixed number.

A row's sum may grow to 2^64 in bf16, which has the exponents of float32, and to 2^15 in fp16. If it is
larger, the warpgroup notes the Q-Block's ticket. The copying warp sends these Q-Blocks again when no other
tickets are left. After the first such ticket, all Q-Blocks of the program compute the maximum of every tile.

In many models, the first tokens of a sequence have scores far above the others (attention sinks, arXiv
2309.17453). They would make weights of fp16 too large, so the first tile computes the maximum there, too.
"""

from triton.experimental import gluon
from triton.experimental.gluon import language as gl

from attn_kernels.kernels import hopper_limits

LINE = gl.constexpr(1 + hopper_limits.MAX_REPEATS)  # a warpgroup's count and its tickets


@gluon.jit
def allocate_repeats():
    """Allocate both warpgroups' lists, which are empty."""
    layout: gl.constexpr = gl.SwizzledSharedLayout(1, 1, 1, [0])
    smem = gl.allocate_shared_memory(gl.int32, [2 * LINE, 1], layout)
    for group in gl.static_range(2):
        smem.index(group * LINE).store(gl.full([1], 0, gl.int32, gl.BlockedLayout([1], [32], [4], [0])))
    return smem


@gluon.jit
def comes_second(hidden, dtype: gl.constexpr):
    """1 if a Q-Block's first tile is visited second; its first ``hidden`` keys are before all windows."""
    second = hidden * 0
    if dtype == gl.float16:
        second = gl.where(hidden == 0, 1, 0)
    return second


@gluon.jit
def visited_tile(visit, last, second):
    """The tile of a visit: from tile ``last`` on downwards, but tile 0 second if ``second`` is 1."""
    return gl.where((visit == 1) & (second == 1), 0, last - visit + gl.where(visit > 0, second, 0))


@gluon.jit
def note_large(repeats, GROUP: gl.constexpr, count, ticket, row_sums, dtype: gl.constexpr):
    """Note the ticket if a row's sum is too large; return the warpgroup's count of noted tickets."""
    LARGEST_SUM: gl.constexpr = 2.0**64 if dtype == gl.bfloat16 else 2.0**15
    if gl.max(row_sums, 0) > LARGEST_SUM:
        layout: gl.constexpr = gl.BlockedLayout([1], [32], [4], [0])
        count += 1
        repeats.index(GROUP * LINE + count).store(gl.full([1], ticket, gl.int32, layout))
        repeats.index(GROUP * LINE).store(gl.full([1], count, gl.int32, layout))
    return count


@gluon.jit
def count_repeats(repeats, GROUP: gl.constexpr):
    """Tickets that a warpgroup has noted, in the copying warp."""
    return read(repeats, GROUP * LINE)


@gluon.jit
def ticket_to_repeat(repeats, number):
    """The ticket that is repeated as number ``number``; -1 if there are fewer."""
    first, second = count_repeats(repeats, 0), count_repeats(repeats, 1)
    ticket = number * 0 - 1
    if number < first:
        ticket = read(repeats, 1 + number)
    elif number < first + second:
        ticket = read(repeats, LINE + 1 + number - first)
    return ticket


@gluon.jit
def read(repeats, place):
    """An integer of shared memory, in the copying warp."""
    return gl.max(repeats.index(place).load(gl.BlockedLayout([1], [32], [1], [0])), 0)

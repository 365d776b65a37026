"""How programs of the Hopper kernel join their fragments, in Triton's interpreter, against float64.

The interpreter runs no Gluon. So the tests run the module's own source with Triton's functions of the same
names. They replace the assembly of ``exp2`` and leave out layouts and barriers. The interpreter runs one
program after the other, here in random order.
"""

import random
import re
from pathlib import Path

import pytest
import torch
import triton
from interpreted_gluon import interpreted

from attn_kernels.kernels import hopper_fragments

HEADER = """
COLUMNS = tl.constexpr(64)

@triton.jit
def exp2(x):
    return tl.exp2(x)

@triton.jit
def thread_barrier():
    pass
"""
KERNEL = """

@triton.jit
def join_kernel(
    out_ptr, done_ptr, states_ptr, blocks_ptr, num_blocks, num_kv_heads,
    counters_ptr, partial_ptr, max_ptr, sum_ptr, PARTS: tl.constexpr, ROWS: tl.constexpr,
):
    SIZE: tl.constexpr = PARTS * COLUMNS * ROWS + 2 * ROWS
    programs = tl.num_programs(0)
    program = tl.program_id(0)
    rows = tl.arange(0, ROWS)
    offsets = tl.arange(0, COLUMNS)[:, None] * ROWS + rows[None, :]
    for block in range(num_blocks):
        first = tl.load(blocks_ptr + 2 * block)
        last = tl.load(blocks_ptr + 2 * block + 1)
        group = program // num_kv_heads
        if (first <= group) & (group <= last):
            state_ptr = states_ptr + (block * programs + program) * SIZE
            accs = ()
            for part in tl.static_range(PARTS):
                accs = accs + (tl.load(state_ptr + part * COLUMNS * ROWS + offsets),)
            row_ptr = state_ptr + PARTS * COLUMNS * ROWS
            state = (accs, tl.load(row_ptr + rows), tl.load(row_ptr + ROWS + rows))
            finished, accs, row_max, row_sum = join_others(
                (counters_ptr, partial_ptr, max_ptr, sum_ptr),
                state, first, last, num_kv_heads, (offsets, rows),
            )
            if finished:
                place = block * num_kv_heads + program % num_kv_heads
                tl.store(done_ptr + place, tl.load(done_ptr + place) + 1)
                for part in tl.static_range(PARTS):
                    ptrs = out_ptr + place * SIZE + part * COLUMNS * ROWS + offsets
                    tl.store(ptrs, accs[part])
                tl.store(out_ptr + place * SIZE + PARTS * COLUMNS * ROWS + rows, row_max)
                tl.store(out_ptr + place * SIZE + PARTS * COLUMNS * ROWS + ROWS + rows, row_sum)
"""


@pytest.fixture(scope="module")
def join_kernel(tmp_path_factory):
    source = Path(hopper_fragments.__file__).read_text()
    body = source[source.index("RUN =") :]
    body = re.sub(r"\n    layout: .*", "", body)
    body = re.sub(r", (rows\.type\.)?layout\)", ")", body)
    return interpreted(tmp_path_factory.mktemp("fragments"), HEADER + body + KERNEL).join_kernel


def join(kernel, monkeypatch, order, states, blocks, heads, counters):
    """Launch the programs in this order; return what they wrote, and how often."""
    num_blocks, programs, parts, _, rows = states[0].shape
    builder = triton.runtime.interpreter.interpreter_builder
    place = type(builder).set_grid_idx
    monkeypatch.setattr(builder, "set_grid_idx", lambda x, y, z: place(builder, order[x], y, z))
    flat = torch.cat([tensor.reshape(num_blocks, programs, -1) for tensor in states], dim=2).contiguous()
    out = torch.full((num_blocks, heads, flat.shape[2]), float("nan"))
    done = torch.zeros(num_blocks, heads, dtype=torch.int32)
    fragments = [torch.full((2, programs, *tensor.shape[2:]), float("nan")) for tensor in states]
    limits = torch.tensor(blocks, dtype=torch.int32)
    kernel[(programs,)](
        out, done, flat, limits, num_blocks, heads, counters, *fragments, PARTS=parts, ROWS=rows
    )
    return out, done


def expected(states, block, first, last, head, heads):
    """The joined state in float64: weighted sums of values, maxima and sums of weights."""
    accs, maxima, sums = (
        tensor[block, first * heads + head : last * heads + head + 1 : heads].double() for tensor in states
    )
    largest = maxima.amax(0)
    weights = torch.exp2(maxima - largest)
    acc = (accs * weights[:, None, None, :]).sum(0)
    return torch.cat([acc.flatten(), largest, (sums * weights).sum(0)])


@pytest.mark.parametrize(
    "heads, parts, rows, blocks",
    [
        (1, 2, 8, [(0, 15), (15, 31), (31, 32)]),  # 16 programs, 17 in three runs, two
        (2, 1, 16, [(0, 20), (20, 22), (22, 39)]),
        (1, 4, 32, [(0, 18), (18, 41)]),  # one fragment at a time
        (3, 1, 8, [(0, 43)]),
        (1, 2, 16, [(0, 131)]),
        (1, 1, 8, [(0, 23), (24, 47), (48, 64)]),  # no program shares two
    ],
)
def test_joined_states_of_q_blocks(join_kernel, monkeypatch, heads, parts, rows, blocks):
    programs = (blocks[-1][1] + 1) * heads
    generator = torch.Generator().manual_seed(parts)
    shape = (len(blocks), programs, parts, 64, rows)
    maxima = torch.randn(len(blocks), programs, rows, generator=generator) * 20
    maxima[:, ::3, 0] = -1e30  # no key seen
    states = (
        torch.randn(shape, generator=generator),
        maxima,
        torch.rand(maxima.shape, generator=generator) + 1,
    )
    counters = torch.zeros(2, programs, dtype=torch.int32)
    outs = []
    orders = random.Random(1)
    for _ in range(3):
        order = orders.sample(range(programs), programs)
        out, done = join(join_kernel, monkeypatch, order, states, blocks, heads, counters)
        assert (done == 1).all()
        assert not counters.any(), "the next launch needs zeros"
        outs.append(out)
    assert torch.equal(outs[0], outs[1]) and torch.equal(outs[0], outs[2]), "the order changed the sums"
    for block, (first, last) in enumerate(blocks):
        for head in range(heads):
            exact = expected(states, block, first, last, head, heads)
            torch.testing.assert_close(outs[0][block, head].double(), exact, rtol=1e-5, atol=1e-5)

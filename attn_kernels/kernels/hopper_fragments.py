"""Fragments of the Hopper kernel's decodes: softmax states of Q-Blocks that several programs share.

The programs of a Q-Block have consecutive groups and one KV head. The last of them to finish joins their
fragments. With more than MOST programs, the last of each run of RUN neighbours joins theirs first.
"""

from triton.experimental import gluon
from triton.experimental.gluon import language as gl

from attn_kernels.kernels.hopper_device import COLUMNS, exp2, thread_barrier

RUN = gl.constexpr(8)
MOST = gl.constexpr(16)  # programs whose fragments one program joins


@gluon.jit
def store_fragment(fragments, fragment, places, state):
    """Write a softmax state: [fragments, parts, COLUMNS, rows] and twice [fragments, rows]."""
    _, partial_ptr, max_ptr, sum_ptr = fragments
    offsets, rows = places
    accs, row_max, row_sum = state
    PARTS: gl.constexpr = len(accs)
    ROWS: gl.constexpr = rows.shape[0]
    for part in gl.static_range(PARTS):
        first = (fragment * PARTS + part).to(gl.int64) * (COLUMNS * ROWS)
        gl.store(partial_ptr + first + offsets, accs[part])
    gl.store(max_ptr + fragment * ROWS + rows, row_max)
    gl.store(sum_ptr + fragment * ROWS + rows, row_sum)


@gluon.jit
def slot_of(program, begin):
    """Of a program's two slots, that for the Q-Block which program ``begin`` began: it may be this one."""
    return gl.where(program == begin, program + gl.num_programs(0), program)


@gluon.jit
def join_others(fragments, state, first, last, num_kv_heads, places):
    """Write this program's softmax state; the last program of a Q-Block to do so gets the joined state.

    ``first``, ``last``: the groups that share the Q-Block. ``places``: offsets in a part of the state, and
    rows. Returns whether this program is the last, and the state: parts, maxima and sums.

    The counters of Q-Blocks lie at their first programs, of which a program is one at most. Those of runs
    follow: at their last programs, of which a program is one at most, too.
    """
    counters_ptr = fragments[0]
    programs = gl.num_programs(0)
    program = gl.program_id(0)
    head = program % num_kv_heads
    begin = first * num_kv_heads + head
    accs, row_max, row_sum = state
    PARTS: gl.constexpr = len(accs)
    store_fragment(fragments, slot_of(program, begin), places, state)
    count = last - first + 1
    step = num_kv_heads
    ready = count <= MOST
    if count > MOST:
        group = program // num_kv_heads
        run = first + (group - first) // RUN * RUN  # its first group
        run_last = gl.minimum(run + RUN - 1, last)
        counter_ptr = counters_ptr + (programs + run_last * num_kv_heads + head)
        ready = is_last_to_arrive(counter_ptr, run_last - run)
        if ready:
            run_first = run * num_kv_heads + head
            run_count = run_last - run + 1
            accs, row_max, row_sum = join_fragments(
                fragments, begin, run_first, run_count, num_kv_heads, places, PARTS
            )
            thread_barrier()  # all warps have read the maxima and sums that the next store writes
            run_slot = slot_of(run_first, begin)
            store_fragment(fragments, run_slot, places, (accs, row_max, row_sum))
        count = (count + RUN - 1) // RUN
        step = RUN * num_kv_heads
    if ready:
        ready = is_last_to_arrive(counters_ptr + begin, count - 1)
        if ready:
            accs, row_max, row_sum = join_fragments(fragments, begin, begin, count, step, places, PARTS)
    return ready, accs, row_max, row_sum


@gluon.jit
def is_last_to_arrive(counter_ptr, others):
    """Count this program, which has written its fragment; return whether all others were counted before."""
    thread_barrier()  # all threads write the fragment, one adds to the counter
    arrived = gl.atomic_add(counter_ptr, 1, sem="acq_rel", scope="gpu")
    is_last = arrived == others
    if is_last:
        gl.store(counter_ptr, 0)  # for the next launch
    return is_last


@gluon.jit
def join_fragments(fragments, begin, first, count, step, places, PARTS: gl.constexpr):
    """The softmax state of ``count`` fragments: of the programs ``first``, ``first + step`` and so on.

    They are joined in the order of the programs, so every launch gives the same sums. A few are loaded at a
    time, because a load takes as long as the products of a tile.
    """
    offsets, rows = places
    ROWS: gl.constexpr = rows.shape[0]
    layout: gl.constexpr = offsets.type.layout
    partial_ptr, max_ptr, sum_ptr = fragments[1], fragments[2], fragments[3]
    TOGETHER: gl.constexpr = max(1, 128 // (PARTS * ROWS))
    largest = gl.full([ROWS], -1e30, gl.float32, rows.type.layout)
    row_sum = largest * 0.0
    accs = (gl.zeros([COLUMNS, ROWS], gl.float32, layout),) * PARTS
    for start in range(0, count, TOGETHER):
        maxima = ()
        sums = ()
        partials = ()
        for i in gl.static_range(TOGETHER):
            program = first + gl.minimum(start + i, count - 1) * step
            fragment = slot_of(program, begin)
            maxima = maxima + (gl.load(max_ptr + fragment * ROWS + rows, cache_modifier=".cg"),)  # type: ignore[assignment]  # noqa: RUF005
            sums = sums + (gl.load(sum_ptr + fragment * ROWS + rows, cache_modifier=".cg"),)  # type: ignore[assignment]  # noqa: RUF005
            for part in gl.static_range(PARTS):
                place = (fragment * PARTS + part).to(gl.int64) * (COLUMNS * ROWS)
                partials = partials + (gl.load(partial_ptr + place + offsets, cache_modifier=".cg"),)  # type: ignore[assignment]  # noqa: RUF005
        before = largest
        for i in gl.static_range(TOGETHER):
            largest = gl.maximum(largest, maxima[i])
        rescale = exp2(before - largest)
        row_sum *= rescale
        accs = [acc * rescale[None, :] for acc in accs]
        for i in gl.static_range(TOGETHER):
            weight = gl.where(start + i < count, exp2(maxima[i] - largest), 0.0)
            row_sum += weight * sums[i]
            joined = ()
            for part in gl.static_range(PARTS):
                joined = joined + (accs[part] + partials[i * PARTS + part] * weight[None, :],)  # type: ignore[assignment]  # noqa: RUF005
            accs = joined
    return accs, largest, row_sum

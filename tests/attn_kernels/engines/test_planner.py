"""What needs no vLLM: lengths of steps, views of caches, shared workspaces, refusals, registration."""

from types import SimpleNamespace

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from programs import printed
from shared_keys import step_of, step_of_batch

from attn_kernels.core.batch import checked_batch
from attn_kernels.core.lengths import MAX_DRAFT, Lengths, Parts
from attn_kernels.core.model import Model
from attn_kernels.engines import vllm_supported
from attn_kernels.engines.planner import Planner, shared_workspace, step_lengths
from attn_kernels.engines.vllm_supported import cache_views
from attn_kernels.testing.poisoned import make_batch, relative_error, run_poisoned

BLOCK = 16
HEADS = (4, 2, 32)
MODEL = Model(*HEADS, BLOCK, torch.bfloat16)
CPU = torch.device("cpu")


LENS = st.lists(st.tuples(st.integers(0, 30), st.integers(0, 200)), min_size=1, max_size=9).filter(
    lambda lens: any(query for query, _ in lens)
)


def check(step, lengths, parts):
    """Raise ValueError about lengths that contradict each other; those of parts add up."""
    index = (step.query_start_loc, step.seq_lens, step.block_table)
    checked_batch(index, MODEL, *lengths[1:], parts=parts, for_capture=False, contents=False)


@given(LENS, st.integers(0, 3))
def test_parts_are_those_of_the_lengths(lens, extra):
    """As ``Parts.of``, but for the longest prompt, for which the host's bound stands."""
    query_lens = [query for query, _ in lens]
    context_lens = [query + before for query, before in lens]
    step = step_of(query_lens, context_lens, max_seq_len=max(context_lens) + extra)
    lengths, parts = step_lengths(step, BLOCK)
    assert lengths == Lengths.of(query_lens, context_lens)._replace(max_seq_len=max(context_lens) + extra)
    expected = Parts.of(query_lens, context_lens)
    if max(query_lens) <= MAX_DRAFT or not expected.decodes.num_seqs:
        assert parts is None
        return
    assert parts == expected
    check(step, lengths, parts)


def test_without_bounds_of_each_sequence_the_longest_stands_for_all():
    step = step_of([1, 2, 40], [9, 8, 50], seq_lens_cpu_upper_bound=None)
    lengths, parts = step_lengths(step, BLOCK)
    assert lengths == Lengths(3, 43, 40, 50, 150)
    assert parts == Parts(Lengths(2, 3, 2, 50, 100), Lengths(1, 40, 40, 50, 50))
    check(step, lengths, parts)


@pytest.mark.parametrize(
    ("step", "expected"),
    [
        # A capture has maxima only.
        (step_of([1, 1], [1, 1], max_seq_len=999, for_capture=True), Lengths(2, 2, 1, 999, 1998)),
        # Bounds that contradict each other are widened, up to the block table.
        (step_of([20], [20], max_seq_len=3), Lengths(1, 20, 20, 20, 20)),
        (step_of([2, 2], [40, 31], block_table=torch.zeros(2, 2)), Lengths(2, 4, 2, 32, 63)),  # drafts
    ],
)
def test_lengths_of_steps_without_parts(step, expected):
    assert step_lengths(step, BLOCK) == (expected, None)


@pytest.mark.parametrize("for_capture", [False, True])
def test_no_entry_behind_a_row_of_the_block_table_is_read(for_capture):
    """Dummy batches of an engine may have more keys than rows have room for."""
    shape = {"num_query_heads": 4, "num_kv_heads": 2, "head_size": 32, "block_size": BLOCK}
    batch = make_batch([1, 2], [32, 20], **shape)
    changes = {"seq_lens": torch.tensor([64, 20], dtype=torch.int32), "max_seq_len": 64}
    step = step_of_batch(batch, block_table=batch.block_table[:, :2], for_capture=for_capture, **changes)
    plan = Planner(MODEL, shared()).plan(step)
    assert relative_error(run_poisoned(batch, plan), batch.reference()) <= 2e-2
    prompt = step_of([64], [64], block_table=torch.zeros(1, 2))
    with pytest.raises(ValueError, match=r"^max_query_len is 64, but block_table holds 2 blocks of 16"):
        Planner(MODEL, shared()).plan(prompt)


@pytest.mark.parametrize("layout", ["NHD", "HND", "packed"])
@pytest.mark.parametrize("heads", [1, 3])
def test_views_of_a_cache(heads, layout):
    k, v = torch.randn(2, 5, BLOCK, heads, 8).to(torch.bfloat16)
    kv_cache = torch.stack([k, v], 1)
    if layout == "HND":
        kv_cache = kv_cache.transpose(2, 3).contiguous().transpose(2, 3)
    if layout == "packed":
        kv_cache = torch.cat([k, v], -1).transpose(1, 2)
    views = cache_views(kv_cache, 8)
    for view, expected in zip(views, (k, v), strict=True):
        assert torch.equal(view, expected)
        assert view.untyped_storage().data_ptr() == kv_cache.untyped_storage().data_ptr()
        assert view.stride(2) % 8 == 0  # aligned, whatever stride one head had


def test_views_of_other_types_and_shapes():
    views = cache_views(torch.zeros(3, 2, BLOCK, 1, 8, dtype=torch.uint8), 8, torch.float8_e4m3fn)
    assert {view.dtype for view in views} == {torch.float8_e4m3fn}
    for shape in ((3, 2, BLOCK, 1, 16), (2, 3, BLOCK, 1, 8), (3, 1, BLOCK, 8), ()):
        with pytest.raises(ValueError, match=r"kv_cache has shape \("):
            cache_views(torch.zeros(shape), 8)


def shared(models=None, **changes):
    maxima = {"engine": "engine", "max_num_seqs": 8, "max_tokens": 64} | changes
    return shared_workspace(device=CPU, models=models or [MODEL], **maxima)


def test_builders_of_an_engine_share_a_workspace_and_engines_do_not():
    first = shared()
    assert shared([Model(*HEADS, 64, torch.bfloat16, torch.float8_e4m3fn)]) is first
    assert shared(engine="another") is not first
    assert shared([Model(8, 8, 64, BLOCK, torch.bfloat16)]) is not first
    of_planners = [Planner(MODEL, first).workspace for _ in range(2)]
    assert of_planners[0] is not of_planners[1]  # siblings: layers of several groups take turns
    assert of_planners[0]._partials is of_planners[1]._partials is first._partials


def test_more_sequences_than_the_scheduler_has(module):
    """Local attention makes several sequences of one."""
    planner = Planner(MODEL, shared())
    lens = ([1] * 9, [7] * 9)
    batch = make_batch(
        *lens, num_query_heads=4, num_kv_heads=2, head_size=32, block_size=BLOCK, dtype=torch.bfloat16
    )
    plan = planner.plan(step_of_batch(batch))
    assert relative_error(run_poisoned(batch, plan), batch.reference()) <= 2e-2


@pytest.mark.parametrize("longest", [0, 7])
def test_a_step_without_sequences(longest):
    step = step_of([], [], max_query_len=0, max_seq_len=longest)
    assert Planner(MODEL, shared()).plan(step).lengths.num_query_tokens == 0


def test_words_of_caches():
    fits = vllm_supported.cache_dtype_fits
    assert all(map(fits, (None, "auto", "bfloat16", "float16", "fp8", "fp8_e4m3")))
    assert not any(map(fits, ("fp8_e5m2", "fp8_inc", "int8", "nvfp4")))
    assert not fits("fp8", torch.float8_e4m3fnuz)


@pytest.mark.parametrize(
    ("changes", "dtype", "line"),
    [
        ({"head_size": 260}, torch.bfloat16, "head_size is 260, but a multiple of 8"),
        ({"head_size_v": 64}, torch.bfloat16, "head_size_v is 64, but that of keys, 128, is needed"),
        ({}, torch.float32, r"dtype is torch\.float32, but"),
    ],
)
def test_groups_of_layers_are_refused(changes, dtype, line):
    spec = SimpleNamespace(**({"head_size": 128, "head_size_v": 128} | changes))
    with pytest.raises(ValueError, match=f"^attn_kernels: {line}"):
        vllm_supported.check_spec(spec, dtype)


def test_the_plugin_registers_a_path_and_loads_no_kernel():
    code = """
import sys, types
found = []
class Stub(types.ModuleType):
    AttentionBackendEnum = types.SimpleNamespace(CUSTOM="CUSTOM")
    register_backend = staticmethod(lambda *given: found.append(given))
for name in ("vllm", "vllm.v1", "vllm.v1.attention", "vllm.v1.attention.backends"):
    sys.modules[name] = types.ModuleType(name)
sys.modules["vllm.v1.attention.backends.registry"] = Stub("registry")
from attn_kernels.engines.vllm import register
register(); register()
assert found == [("CUSTOM", "attn_kernels.engines.vllm_backend.AttnKernelsBackend")] * 2, found
assert not {"torch", "triton", "numpy"} & set(sys.modules)
"""
    printed("-c", code)


@pytest.mark.parametrize(
    "ranges, kept",
    [
        ({1: [(10, 15)]}, [[], [(10, 15)], []]),  # all of it is new
        ({1: [(2, 9), (2, 10), (2, 11)]}, [[], [(2, 11)], []]),  # the last has a later key for a new query
        ({1: [(28, 40), (29, 40), (30, 40)]}, [[], [(28, 40)], []]),  # a chunk ends inside the image
        ({1: [(15, 15), (16, 15)], 0: [(0, 0)]}, [[], [], []]),
        ({0: [(2, 90)], 2: [(0, 5), (3, 4)], 1: [(20, 22)]}, [[], [(20, 22)], [(0, 5), (3, 4)]]),
        ({}, [[], [], []]),
        (None, [[], [], []]),
    ],
)
def test_images_in_which_a_query_of_the_step_sees_a_later_key(ranges, kept):
    starts, lens = torch.tensor([0, 1, 21, 27]), torch.tensor([91, 30, 6])
    most = max(map(len, kept))
    padded = [own + [(0, 0)] * (most - len(own)) for own in kept]
    assert vllm_supported.image_ranges(ranges, starts, lens) == (padded if most else [])


def test_no_image_is_left_out_where_the_host_knows_no_lengths():
    starts = torch.tensor([0, 1, 21])
    ranges = {0: [(2, 90), (5, 5)], 1: [(3, 4)]}
    assert vllm_supported.image_ranges(ranges, starts, None) == [[(2, 90)], [(3, 4)]]

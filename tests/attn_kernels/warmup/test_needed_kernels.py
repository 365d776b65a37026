"""The kernels that launches need are found without a GPU; in another process, as this one interprets."""

from compiling import printed

# Finds what launches need, compiles it in a process of its own, and looks again.
LOOK = """
import torch
from attn_kernels import Model
from attn_kernels.offline.compile import absent_gpu
from attn_kernels.warmup import compile_ahead
with absent_gpu("sm_90") as device:
    model = Model(2, 1, 16, 16, torch.bfloat16)
    launch, *_ = compile_ahead.launches_of(device, model, device_key="default")
    found = compile_ahead._needed([launch], device)[launch]
    compile_ahead.begin_compiling([launch], device)  # as while a model loads
    ended = compile_ahead.fill_cache([launch], device, 0)[launch]
    print(len(found), len(ended), sum(ended.values()), sum(one.is_cached for one in found.values()))
    print(sorted(one.name for one in found.values()))
"""


def test_what_a_launch_needs_is_found_compiled_and_then_in_the_cache(tmp_path):
    for compiled in (5, 0):  # the second process finds them in the cache
        counts, names = printed(LOOK, TRITON_CACHE_DIR=str(tmp_path)).splitlines()
        assert counts == f"5 {compiled} 0 5"
        assert names == str(["divide_kernel", "qblock_kernel", *["reduce_kernel"] * 3])

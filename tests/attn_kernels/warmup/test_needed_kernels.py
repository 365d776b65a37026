"""The kernels that launches need are found without a GPU; in another process, as this one interprets."""

import json

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


KEYS = """
import json, sys
from attn_kernels.kernels import hopper
from attn_kernels.kernels.registry import VARIANTS
from attn_kernels.kernels.schedule import schedule_kernel
found = [kernel for variant in VARIANTS.values() for kernel in variant.kernels]
kernels = {kernel.__name__: kernel for kernel in (*found, schedule_kernel, hopper.hopper_kernel)}
names = sorted(kernels, reverse=sys.argv[1] == "reverse")
keys = {name: kernels[name].cache_key for name in names}
# What Triton would have hashed, had it looked at the called functions first.
def constexprs(kernel):
    found = kernel.used_global_vals.items()
    return sorted({name for (name, _), (value, _) in found if type(value).__name__ == "constexpr"})

late = {name: constexprs(kernel) for name, kernel in kernels.items() if name != "hopper_kernel"}
print(json.dumps([keys, late]))
"""


def test_the_order_of_compilation_does_not_change_cache_keys():
    """Else nothing that one process compiled ahead is found by the next.

    Triton 3.6 mixes constexpr globals of a called function into a kernel's key only if another kernel that
    calls it was hashed before.
    """
    forward, reverse = (json.loads(printed(KEYS, order)) for order in ("forward", "reverse"))
    assert forward[0] == reverse[0]
    assert len(forward[0]) == 5
    assert all(not names for names in forward[1].values()), "constexpr globals change keys in Triton 3.6"

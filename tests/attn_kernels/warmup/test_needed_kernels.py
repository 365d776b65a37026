"""The kernels that launches need are found without a GPU; in other processes, as this one interprets."""

import json

from programs import printed

# Hashes all kernels in this order; then finds what a launch needs, compiles it and looks again.
PROGRAM = """
import json, sys
import torch
from attn_kernels import Model
from attn_kernels.kernels import hopper
from attn_kernels.kernels.registry import VARIANTS
from attn_kernels.kernels.schedule import schedule_kernel
from attn_kernels.offline.compile import absent_gpu
from attn_kernels.warmup import compile_ahead

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
with absent_gpu("sm_90") as device:
    model = Model(2, 1, 16, 16, torch.bfloat16)
    launch, *_ = compile_ahead.launches_of(device, model, device_key="default")
    found = compile_ahead._needed([launch], device)[launch]
    compile_ahead.begin_compiling([launch], device)  # as while a model loads
    ended = compile_ahead.fill_cache([launch], device, 0)[launch]
    print(len(found), len(ended), sum(ended.values()), sum(one.is_cached for one in found.values()))
    print(sorted(one.name for one in found.values()))
"""


def test_what_a_launch_needs_is_compiled_and_another_process_finds_it_in_the_cache(tmp_path):
    """In whatever order kernels are hashed.

    Triton 3.6 mixes constexpr globals of a called function into a kernel's key only if another kernel that
    calls it was hashed before.
    """
    keys = []
    for order, compiled in (("forward", 5), ("reverse", 0)):
        variables = {"TRITON_INTERPRET": None, "TRITON_CACHE_DIR": str(tmp_path)}
        hashed, counts, names = printed("-c", PROGRAM, order, **variables).splitlines()
        assert counts == f"5 {compiled} 0 5"
        assert names == str(["divide_kernel", "qblock_kernel", *["reduce_kernel"] * 3])
        found, late = json.loads(hashed)
        assert all(not names for names in late.values()), "constexpr globals change keys in Triton 3.6"
        keys.append(found)
    assert keys[0] == keys[1] and len(keys[0]) == 5

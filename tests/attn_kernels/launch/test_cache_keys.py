"""Kernels have the same key in Triton's cache on disk, in whatever order a process compiles them.

Triton 3.6 mixes constexpr globals of a called function into a kernel's key only if another kernel that
calls it was hashed before. Then nothing that one process compiled ahead is found by the next.
"""

import json

from compiling import printed

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
    forward, reverse = (json.loads(printed(KEYS, order)) for order in ("forward", "reverse"))
    assert forward[0] == reverse[0]
    assert len(forward[0]) == 5
    assert all(not names for names in forward[1].values()), "constexpr globals change keys in Triton 3.6"

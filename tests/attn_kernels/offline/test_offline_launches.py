"""A launch compiles exactly what offline compilation does, as Triton's own dispatch shows without a GPU.

It runs in another process: this one runs the interpreter.
"""

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[3]

LAUNCHES = """
import dataclasses
from itertools import product
import torch
from triton.compiler import make_backend
from triton.runtime import driver
from triton.runtime.jit import JITFunction
from attn_kernels.launch import direct
from attn_kernels import Config, run
from attn_kernels.core.structures import OfPlan
from attn_kernels.kernels import arguments, hopper_limits
from attn_kernels.kernels.arguments import ONE_PROGRAM_OPTIONS
from attn_kernels.kernels.schedule import divide_kernel
from attn_kernels.kernels.schedule import bind_schedule
from attn_kernels.kernels import invariant, splits
from attn_kernels.offline.__main__ import ALL
from attn_kernels.offline.resources import TARGETS
from attn_kernels.offline.sources import CACHE_POINTERS, FEATURES, CompileShape, index_source, sources
from attn_kernels.testing.poisoned import make_batch
from attn_kernels.kernels.registry import VARIANTS

class AbsentGPU:
    target = TARGETS["sm_90"]
    def get_current_target(self):
        return self.target
    def get_current_device(self):
        return 0
    def get_current_stream(self, device):
        return 0

def record(kernel, key, signature, device, constants, options, attributes, warmup):
    if (kernel, constants) not in [(one[0], one[2]) for one in compiled]:
        compiled.append((kernel, signature, constants, options, attributes))

compiled, gpu = [], AbsentGPU()
driver.set_active(gpu)
splits.ROW_COST, invariant.SPLIT_KEYS = 0.001, 32  # contexts have many
JITFunction._do_compile, direct._prepare = record, lambda kernel, device: None

CHOICES = {
    "window": {"sliding_window": 5},
    "noncausal": {"causal": False},
    "softcap": {"softcap": 2.0},
    "alibi": {"alibi_slopes": torch.rand(12)},
    "sinks": {"sinks": torch.rand(12)},
    "fp8": {},
    "scales": {"k_scale": torch.ones(1), "v_scale": torch.ones(1)},
    "lse": {"lse": torch.empty(12, 4)},
    "ranges": {"bidirectional_ranges": torch.zeros((2, 3, 2), dtype=torch.int32)},
}
assert CHOICES.keys() == set(FEATURES)
SETS = ((), FEATURES, ("window", "fp8"), ("alibi",), ("softcap", "sinks", "scales"))
shape = {"num_query_heads": 12, "num_kv_heads": 2, "head_size": 20, "block_size": 16}

def without_sizes(kernel, attributes):
    # These caches are small, but those of offline compilation are not.
    names = kernel.arg_names
    return {
        place: [one for one in found if one[0] != "tt.pointer_range" or names[place[0]] not in CACHE_POINTERS]
        for place, found in attributes.items()
    }

def filled(attributes):
    return {place: found for place, found in attributes.items() if found}

for (name, gpu.target), config, features in product(TARGETS.items(), ALL, SETS):
    torch.version.hip = "7.0" if gpu.target.backend == "hip" else None
    if VARIANTS[config.variant].mixed:
        continue
    arguments.converts_e4m3 = lambda device: name != "sm_80"
    direct.forget()  # launches bound for another target
    for part in VARIANTS[config.variant].specialisations:
        part.kernel.device_caches.clear()
    cache_dtype = torch.float8_e4m3fn if "fp8" in features else None
    batch = make_batch((1, 3), (7, 200), cache_dtype=cache_dtype, **shape)
    choices = {key: value for feature in features for key, value in CHOICES[feature].items()}
    batch.plan(config=config, for_capture=True)  # finds the splits of a graph on the device
    once_a_plan, compiled[:] = [*compiled], []
    for num_splits in splits.JOINED_AT_ONCE:
        plan = dataclasses.replace(batch.plan(config=config), num_splits=num_splits, launches={})
        run(plan, batch.q, batch.k_cache, batch.v_cache, **choices)
    compiled[1:1] = once_a_plan
    expected = sources(config, CompileShape(name, 20, 16, 6, batch.q.dtype, features)).values()
    assert [kernel for kernel, *_ in compiled] == [source.kernel for source in expected], (config, compiled)
    for (kernel, signature, constants, options, attributes), source in zip(compiled, expected):
        assert signature == source.signature, (kernel, signature, source.signature)
        constants = {kernel.arg_names[place[0]]: value for place, value in constants.items()}
        assert constants == source.constants, (kernel, constants, source.constants)
        attributes = filled(without_sizes(kernel, attributes))
        assert attributes == filled(source.attributes), (kernel, attributes, source.attributes)
        parsed = make_backend(gpu.target).parse_options(source.options)
        assert str(options) == str(parsed), (kernel, options, parsed)
        print(kernel.__name__)
    compiled.clear()

# The kernel that computes the schedule of the Hopper kernel; interpreted devices have neither.
gpu.target, torch.version.hip = TARGETS["sm_90"], None
for name in ("qblock_M128_T64_W8_S2_D1", "stream_k_M16_T64_W4_S2_D1", "pod_M128_T64_W4_S3"):
    config = Config.parse(name)
    source = sources(config, CompileShape("sm_90", 64, 16, 6, torch.bfloat16, ()))["schedule"]
    for lens in (((1, 3), (7, 20)), ((1,) * 16, (16,) * 16)):
        batch = make_batch(*lens, **(shape | {"head_size": 64}))
        plan = batch.plan(config=config._replace(variant="qblock", block_m=16, tma=0))
        same = OfPlan(lambda plan: plan.cu_seqlens_q)
        bound = bind_schedule(hopper_limits.roles_of(config, 6), same, same, same)
        arguments = [one.value(plan) if isinstance(one, OfPlan) else one for one in bound.arguments]
        bound.kernel.device_caches.clear()
        bound.kernel[bound.grid(plan)](*arguments, **bound.options)
        ((kernel, signature, constants, options, attributes),) = compiled
        assert (kernel, signature, filled(attributes)) == (source.kernel, source.signature, {}), signature
        assert filled(source.attributes) == {}
        assert {kernel.arg_names[place[0]]: value for place, value in constants.items()} == source.constants
        assert str(options) == str(make_backend(gpu.target).parse_options(source.options))
        print(kernel.__name__)
        compiled.clear()

# The kernel that divides mixed batches, with index tensors of any alignment.
for name, gpu.target in TARGETS.items():
    torch.version.hip = "7.0" if gpu.target.backend == "hip" else None
    for first in range(2):
        starts = torch.zeros(5, dtype=torch.int32)[first:]
        divide_kernel.device_caches.clear()
        divide_kernel[(1,)](starts, starts, starts, 3 - first, 1, 16, 1, **ONE_PROGRAM_OPTIONS)
        ((kernel, signature, constants, options, attributes),) = compiled
        source = index_source(divide_kernel, {}, name)
        assert (signature, constants, filled(attributes)) == (source.signature, {}, filled(source.attributes))
        assert str(options) == str(make_backend(gpu.target).parse_options(source.options))
        print(kernel.__name__)
        compiled.clear()
"""


def test_launches_compile_what_is_compiled_offline(tmp_path):
    """Every variant, on every target that runs it, with and without every feature."""
    kept = {name: value for name, value in os.environ.items() if name != "TRITON_INTERPRET"}
    environment = kept | {"PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-c", LAUNCHES]
    result = subprocess.run(
        command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False
    )
    assert result.returncode == 0, result.stderr[-4000:]
    configs = 4 * 5 * (2 * 5 + 2)  # targets, sets of features; two configs of five kernels, one of two
    schedules = 3 * 2  # configs, batches
    divisions = 4 * 2  # targets, alignments
    assert len(result.stdout.split()) == configs + schedules + divisions

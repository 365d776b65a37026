"""The spec allows a config of the Hopper kernel only where the kernel takes the shape, so none falls back."""

from itertools import product
from pathlib import Path

import pytest

from attn_kernels.kernels import hopper_limits
from attn_kernels.kernels.registry import VARIANTS
from treegen.core import expr
from treegen.core.problem import holds
from treegen.core.spec import KernelSpec
from treegen.read.spec import read_spec

SPEC = read_spec(Path(__file__).parents[3] / "treegen.yaml")
KERNEL: KernelSpec = SPEC.kernels["unified_attention"]
DEVICE = SPEC.devices["nvidia_h200"]
CONFIGS = [
    config
    for name in ("qblock", "stream_k")
    for grid in VARIANTS[name].grids
    for config in grid.configs(name)
    if config.descriptors
]
HEAD_SIZES = (1, 32, 63, 65, *range(64, 200, 8), 192, 208, 256, 257, 272)


def allowed(config, head_size, block_size, ratio, cache_bytes):
    """Return whether the spec lets a leaf with this shape launch a config."""
    values = dict.fromkeys(KERNEL.features, 1) | DEVICE.limits
    values |= config._asdict() | {"num_query_heads": 2 * ratio, "num_kv_heads": 2}
    values |= {"head_size": head_size, "block_size": block_size, "kv_element_size": cache_bytes}
    del values["variant"]
    for name, definition in KERNEL.derived.items():
        values[name] = expr.evaluate(definition, values)
    binding = [one for one in KERNEL.constraints if one.variants is None or config.variant in one.variants]
    return all(holds(constraint, values) for constraint in binding)


@pytest.mark.parametrize("config", CONFIGS, ids=str)
def test_what_the_spec_allows_the_kernel_takes(config):
    found = set()
    shapes = product(HEAD_SIZES, (16, 24, 48, 256), (1, 7, 128, 129), (1, 2))
    for head_size, block_size, ratio, cache_bytes in shapes:
        if allowed(config, head_size, block_size, ratio, cache_bytes):
            assert hopper_limits.why_not_shape(config, head_size, block_size, ratio, cache_bytes) is None
            found.add((head_size, cache_bytes))
    assert {(64, 2), (80, 2), (96, 2), (128, 2), (128, 1)} <= found

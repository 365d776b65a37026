"""No config that a generated module chooses for Hopper GPUs falls back to another kernel there."""

import importlib
from collections.abc import Iterator
from functools import partial
from itertools import combinations, product
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from attn_kernels.choose.reachable import reachable
from attn_kernels.core.checks import FP8
from attn_kernels.core.config import Config, complete
from attn_kernels.core.model import Model
from attn_kernels.core.structures import Layer
from attn_kernels.kernels import hopper_limits

KEYS = ("nvidia_h100", "nvidia_h200")
HEAD_SIZES = range(64, 257, 8)
# Query and KV heads: of many models, of more query heads than a tile has rows, and of numbers of KV heads
# that leave many of 132 multiprocessors without decodes.
HEADS = ((32, 8), (8, 1), (32, 32), (28, 4), (16, 1), (64, 1), (256, 1), (28, 28), (48, 48), (40, 40))
PAGES = (16, 24, 64)
OPTIONS = ("window", "softcap", "alibi", "sinks", "scales")
OPTION_SETS = [set(), *({option} for option in OPTIONS), *map(set, combinations(OPTIONS, 4)), set(OPTIONS)]
MULTIPROCESSORS = 132


@pytest.fixture(autouse=True)
def h200(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hopper_limits, "multiprocessors", lambda device: MULTIPROCESSORS)


def layer_of(model: Model, options: set[str]) -> Layer:
    """A layer of contiguous tensors of one page."""
    heads, size = model.num_query_heads, model.head_size
    cache = torch.empty(1, model.block_size, model.num_kv_heads, size, dtype=model.cache_dtype or model.dtype)
    rows = torch.empty(1, heads, size, dtype=model.dtype)
    scale: Any = torch.ones(1) if "scales" in options else 1.0
    return Layer(
        q=rows,
        k_cache=cache,
        v_cache=cache.clone(),
        out=rows.clone(),
        k_new=None,
        v_new=None,
        softmax_scale=1.0,
        sliding_window=128 if "window" in options else None,
        softcap=50.0 if "softcap" in options else 0.0,
        alibi_slopes=torch.ones(heads) if "alibi" in options else None,
        sinks=torch.ones(heads) if "sinks" in options else None,
        k_scale=scale,
        v_scale=scale,
    )


def why_not(config: Config, model: Model, options: set[str]) -> str | None:
    """The reason against the Hopper kernel; None if a launch of this config is of that kernel."""
    plan: Any = SimpleNamespace(config=config, model=model, device=torch.device("cuda", 0))
    return hopper_limits.why_not(plan, layer_of(model, options))


def models() -> Iterator[Model]:
    for size, heads, page, cache in product(HEAD_SIZES, HEADS, PAGES, (None, FP8)):
        yield Model(*heads, size, page, torch.bfloat16, cache)


def chosen_for(choose: Any, model: Model) -> set[Config]:
    """What a generated function can return for a model, whatever the lengths."""
    lengths = choose.__annotations__.keys() - {*model.features, "return"}
    return set(map(complete, reachable(partial(choose, **model.features), lengths)))


@pytest.mark.parametrize("key", KEYS)
def test_configs_with_descriptors_launch_the_hopper_kernel(key: str) -> None:
    choose = importlib.import_module(f"generated.unified_attention.{key}").choose
    served: set[tuple[str, int, int]] = set()
    for model in models():
        for config in chosen_for(choose, model):
            if config.descriptors:
                for options in OPTION_SETS:
                    assert why_not(config, model, options) is None, (config, model, options)
                served.add((config.variant, model.head_size, model.kv_element_size))
    assert {("qblock", size, 2) for size in (64, 80, 96, 112, 128)} <= served


def test_mixed_batches_that_pod_is_chosen_for_are_computed_by_it() -> None:
    choose = importlib.import_module("generated.mixed_attention.nvidia_h200").choose
    served = set()
    for model in models():
        for way in chosen_for(choose, model):
            if way.variant == "pod":
                for options in OPTION_SETS:
                    assert why_not(way, model, options) is None, (way, model, options)
                served.add(model.head_size)
    assert {64, 128} <= served

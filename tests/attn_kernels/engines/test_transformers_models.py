"""The checks of tests/gpu on transformers' models tell right from wrong; a tiny model, in the interpreter."""

from __future__ import annotations

from typing import Any

import pytest
import torch

pytest.importorskip("transformers", minversion="5.17")

from transformers_models import MOST_ERROR, OURS, Models

from attn_kernels.engines import transformers as engine
from attn_kernels.engines import transformers_paged as paged
from attn_kernels.engines import transformers_sequences as sequences

BATCHING = {"block_size": 16, "num_blocks": 40, "max_batch_tokens": 24, "max_requests_per_batch": 4}


@pytest.fixture
def models() -> Models:
    return Models("llama", torch.device("cpu"), (37, 21, 1), 4, tiny=True)


def test_a_tiny_model_is_right(models: Models) -> None:
    errors = models.logit_errors()
    assert errors[OURS] <= MOST_ERROR * errors["eager"]
    assert models.wrong(models.generate("static")) == 0
    assert models.wrong(models.generate_batch(**BATCHING, use_cuda_graph=False)) == 0


def test_dropped_keys_are_found(models: Models, monkeypatch: pytest.MonkeyPatch) -> None:
    """The layer misses the older half of its keys."""
    for module in (engine, paged, sequences):

        def without_old_keys(plan: Any, *args: Any, run: Any = module.run, **options: Any) -> Any:
            return run(plan, *args, **{**options, "sliding_window": max(1, plan.lengths.max_seq_len // 2)})

        monkeypatch.setattr(module, "run", without_old_keys)
    errors = models.logit_errors()
    assert errors[OURS] > MOST_ERROR * errors["eager"]
    assert models.wrong(models.generate_batch(**BATCHING, use_cuda_graph=False)) > 0

"""transformers' models have the right logits and tokens with our attention, at real sizes, random weights."""

import pytest
import torch

pytest.importorskip("transformers", minversion="5.17")

from transformers_models import CONFIGS, MOST_ERROR, OURS, Models, made

pytestmark = pytest.mark.gpu
LENGTHS, NEW = (1100, 700, 64, 1), 48  # tokens of the prompts, and to generate
BATCHING = {"block_size": 64, "num_blocks": 2048, "max_batch_tokens": 2048, "max_requests_per_batch": 32}


@pytest.fixture(scope="module", params=CONFIGS)
def models(request, device):
    yield Models(made(request.param, device), LENGTHS, NEW)
    torch.cuda.empty_cache()


def test_logits(models):
    errors = models.logit_errors()
    assert errors[OURS] <= MOST_ERROR * errors["eager"]


@pytest.mark.parametrize("cache", ["dynamic", "static"])
def test_tokens(models, cache):
    assert models.wrong(models.generate(cache)) == 0


@pytest.mark.parametrize("graphs", [False, True], ids=["eager", "graphs"])
def test_tokens_of_continuous_batching(models, graphs):
    assert models.wrong(models.generate_batch(**BATCHING, use_cuda_graph=graphs)) == 0

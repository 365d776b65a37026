"""transformers' models have the right logits and tokens with our attention, at real sizes, random weights."""

from __future__ import annotations

import pytest

pytest.importorskip("transformers", minversion="5.17")

from benchmarks.engines import transformers_models

pytestmark = pytest.mark.gpu


@pytest.mark.parametrize("model", transformers_models.CONFIGS)
def test_logits_and_tokens(model: str) -> None:
    assert transformers_models.main(["--models", model, "--layers", "12", "--no-times"]) == 0

"""The batches of the warmup benchmark need nearly all configs, and its verdict can fail."""

import sys

import pytest
import torch

from attn_kernels.core.config import complete
from attn_kernels.warmup.compile_ahead import launches_of
from benchmarks.launch import ahead
from generated.unified_attention import MODULES


@pytest.mark.parametrize("key", ["nvidia_h100", "nvidia_h200"])
def test_its_batches_are_given_nearly_every_config(key):
    choose = MODULES[key].choose
    batches = list(ahead.trace(2000, 0, ahead.LAYOUTS))
    met = {(complete(choose(**batch.features)), batch.layout, batch.kv_element_size) for batch in batches}
    launches = launches_of(torch.device("cpu"), ahead.models(ahead.LAYOUTS), device_key=key)
    assert len(met) >= 0.75 * len([launch for launch in launches if launch.config.variant != "pod"])
    kinds = {batch.kind for batch in batches}
    assert kinds == {"decode", "prefill", "chunk", "spec", "mixed", "varlen"}
    assert max(batch.num_query_tokens for batch in batches) < 2 * ahead.QUERY_TOKENS
    assert max(batch.num_kv_tokens for batch in batches) <= ahead.KV_TOKENS + ahead.LONGEST


def test_what_it_finds_decides():
    ready = {"seconds": 1.0, "processes": 3, "launches": 5, "failures": []}
    cold = {"ahead": ready, "kernels": 7}
    warm = cold | {"batches": 9, "configs": 2, "compiled": 0, "compiled by": [], "control": 1}
    warm |= {"typical_us": 50.0, "slowest_us": 900.0}
    assert ahead.verdict(cold, warm, True) == 0
    assert ahead.verdict(cold, warm | {"compiled": 1}, True) == 1
    assert ahead.verdict(cold, warm | {"control": 0}, True) == 1
    assert ahead.verdict(cold | {"ahead": ready | {"failures": ["one"]}}, warm, True) == 1
    assert "9 batches, 2 configs chosen: 0 kernels compiled" in ahead.table(cold, warm)


def test_it_runs_through_without_a_gpu(monkeypatch, capfd):
    """Both processes, with one cache between them; nothing can be counted here."""
    arguments = ["--device", "cpu", "--batches", "1", "--compile-workers", "0"]
    monkeypatch.setattr(sys, "argv", ["ahead", *arguments])
    assert ahead.main() == 0
    printed = capfd.readouterr().out
    assert "cold cache: 2 of 2 launches ready" in printed
    assert "warm cache: 2 of 2 launches ready" in printed
    assert "1 batches, 1 configs chosen: 0 kernels compiled or loaded" in printed

"""Launches inside compiled and exported graphs: one operator each, without a break."""

import gc

import pytest
import torch
from kernel_cases import assert_close, make_config, random_batch

import attn_kernels
from attn_kernels.testing.reference import paged_attention_reference

LENS = ((3, 1), (20, 5))


def batches():
    for seed in range(3):
        yield random_batch(LENS, ratio=2, head_size=16, seed=seed)


def test_run_in_a_graph_that_serves_one_plan_after_another():
    """Without compiling again. An output that is given is written, and so is a log-sum-exp."""
    torch._dynamo.reset()
    scale = torch.tensor([0.5])

    def layer(plan, q, k_cache, v_cache, out, lse):
        attn_kernels.run(plan, q * 2, k_cache, v_cache, out=out, lse=lse, causal=False)
        again = attn_kernels.run(plan, q * 2, k_cache, v_cache, sliding_window=4, v_scale=scale)
        return again + 1, lse * 2

    compiled = torch.compile(layer, fullgraph=True, backend="inductor")
    with torch.no_grad(), torch._dynamo.config.patch(error_on_recompile=True):
        for batch in batches():
            out, lse = torch.empty_like(batch.q), torch.empty(2, 4)
            plan = batch.plan(config=make_config())
            windowed, doubled = compiled(plan, batch.q, batch.k_cache, batch.v_cache, out, lse)
            expected_lse = torch.empty(2, 4).double()
            tensors = (batch.q * 2, *batch.tensors[1:])
            assert_close(out, paged_attention_reference(*tensors, causal=False, lse=expected_lse))
            expected = paged_attention_reference(*tensors, sliding_window=4, v_scale=0.5)
            assert_close(windowed, expected + 1)
            torch.testing.assert_close(doubled.double(), 2 * expected_lse, rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
def test_a_merge_in_a_graph(backend):
    """Into a state that is given, as into new ones."""
    torch._dynamo.reset()

    def merge(out, lse):
        attn_kernels.merge_attention_states(out + 1, lse * 2, out, lse, out=out, lse=lse)
        return attn_kernels.merge_attention_states(out, lse, -out, lse + 1)

    compiled = torch.compile(merge, fullgraph=True, backend=backend)
    states = [(torch.linspace(0, 1, 64).half().view(2, 2, 16), torch.arange(4.0).view(2, 2)) for _ in "ab"]
    with torch.no_grad():
        results = [(*merge(*states[0]), *states[0]), (*compiled(*states[1]), *states[1])]
    for got, expected in zip(*results, strict=True):
        assert torch.equal(got, expected)
    with pytest.raises(RuntimeError, match="requires a gradient"):
        compiled(states[0][0].requires_grad_(), states[0][1])


class Exported(torch.nn.Module):
    def forward(self, handle, q, k_cache, v_cache):
        return attn_kernels.run(handle, q * 2, k_cache, v_cache)


def test_an_exported_graph_takes_the_handle_of_a_plan():
    first, second, _ = batches()
    plans = [batch.plan(config=make_config()) for batch in (first, second)]
    arguments = [
        (plan.handle, batch.q, batch.k_cache, batch.v_cache)
        for plan, batch in zip(plans, (first, second), strict=True)
    ]
    with torch.no_grad():
        program = torch.export.export(Exported(), arguments[0])
        out = program.module()(*arguments[1])
    assert_close(out, paged_attention_reference(second.q * 2, *second.tensors[1:]))
    targets = [str(node.target) for node in program.graph.nodes]
    assert "attn_kernels.run.default" in targets or any("auto_functionalized" in name for name in targets)


def test_a_plan_that_is_gone_is_refused_in_one_line():
    batch = next(batches())
    handle = batch.plan(config=make_config()).handle
    gc.collect()
    with pytest.raises(ValueError, match=r"\Aplan number \d+ is gone.*\Z"):
        torch.compile(Exported(), backend="eager")(handle, batch.q, batch.k_cache, batch.v_cache)


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
@pytest.mark.parametrize(
    "needing, options",
    [("q", {"causal": True}), ("k_descale", {"causal": False, "window_size": (4, 2)})],
    ids=["q", "k_descale"],
)
def test_no_graph_drops_a_gradient(backend, needing, options):
    """There, the operator runs where torch computes none. Without one, its results are those of a call."""
    torch._dynamo.reset()
    batch, scale = next(batches()), torch.full((1,), 0.5)
    (batch.q if needing == "q" else scale).requires_grad_()
    plan = batch.plan(config=make_config())
    options = options | {"seqused_k": batch.seqused_k, "block_table": batch.block_table, "v_descale": 0.5}

    def layer(q, scale):
        return (attn_kernels.run(plan, q * 1, batch.k_cache, batch.v_cache, k_scale=scale),)

    def whole(q, scale):
        arguments = (q * 1, batch.k_cache, batch.v_cache, 3, batch.cu_seqlens_q, 20)
        return attn_kernels.flash_attn_varlen_func(
            *arguments, **options, k_descale=scale, return_softmax_lse=True
        )

    for function in (layer, whole):
        compiled = torch.compile(function, fullgraph=True, backend=backend)
        with pytest.raises(RuntimeError, match="requires a gradient"):
            compiled(batch.q, scale)
        with torch.no_grad():
            pairs = zip(compiled(batch.q, scale), function(batch.q, scale), strict=True)
            assert all(torch.equal(got, expected) for got, expected in pairs)

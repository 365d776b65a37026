"""A server's decode loop: warmup once, one plan per step, one run per layer.

python examples/decode_step.py                                    # on a GPU
TRITON_INTERPRET=1 python examples/decode_step.py --device cpu    # tiny, in Triton's interpreter
"""

from __future__ import annotations

import argparse

import torch

import attn_kernels


def main() -> None:
    parser = argparse.ArgumentParser(description="Decode a few steps with attn_kernels.")
    parser.add_argument("--device", default="cuda")
    options = parser.parse_args()
    device, tiny = torch.device(options.device), options.device == "cpu"
    layers, num_seqs, context_len, steps = (1, 2, 20, 2) if tiny else (32, 8, 2048, 4)
    model = attn_kernels.Model(
        num_query_heads=32, num_kv_heads=8, head_size=128, block_size=16, dtype=torch.bfloat16
    )

    # Warmup: nothing compiles after this.
    if not tiny:
        print(attn_kernels.compile_ahead(device, [model]))

    # One paged KV cache per layer, and one block table for all layers.
    blocks_per_seq = -(-(context_len + steps) // model.block_size)
    cache_shape = (num_seqs * blocks_per_seq, model.block_size, model.num_kv_heads, model.head_size)
    caches = [torch.randn(2, *cache_shape, dtype=model.dtype, device=device) for _ in range(layers)]
    block_table = torch.arange(cache_shape[0], dtype=torch.int32, device=device).view(num_seqs, -1)
    cu_seqlens_q = torch.arange(num_seqs + 1, dtype=torch.int32, device=device)
    q = torch.randn(num_seqs, model.num_query_heads, model.head_size, dtype=model.dtype, device=device)
    out = torch.empty_like(q)

    for step in range(steps):
        length = context_len + step
        seqused_k = torch.full((num_seqs,), length, dtype=torch.int32, device=device)
        plan = attn_kernels.plan(
            cu_seqlens_q,
            seqused_k,
            block_table,
            model,
            num_query_tokens=num_seqs,
            max_query_len=1,
            max_seq_len=length,
        )
        for k_cache, v_cache in caches:
            attn_kernels.run(plan, q, k_cache, v_cache, out=out)
        print(f"step {step}: {layers} layers, {plan.config}, output norm {out.float().norm():.3f}")


if __name__ == "__main__":
    main()

"""A server with persistent buffers and one plan for their maxima, which it replays for smaller batches.

Without a GPU, a replay makes the launches of that plan again.
"""

import math

import torch
from kernel_cases import random_batch

import attn_kernels
from attn_kernels import Model, Workspace
from attn_kernels.launch.run import PARTS_BEGUN, begin
from attn_kernels.testing.poisoned import GARBAGE_PAGE, poison_workspace

MAX_SEQS, MAX_TOKENS, MAX_CONTEXT, BLOCK_SIZE = 6, 12, 200, 16
HEADS, KV_HEADS, HEAD_SIZE = 6, 2, 16
MODEL = Model(HEADS, KV_HEADS, HEAD_SIZE, BLOCK_SIZE, torch.float16)


class Server:
    """Persistent buffers, and a plan for their maxima."""

    def __init__(self, *configs, cache_dtype=None, query_len=None, parts=None, **options):
        """Plan for one config, or for what is chosen for ``parts``; ``configs``: all that are launched.

        ``query_len``: the longest query of the maxima; None where one sequence may have all tokens.
        """
        self.options = options
        self.cu_seqlens_q = torch.zeros(MAX_SEQS + 1, dtype=torch.int32)
        self.seqused_k = torch.zeros(MAX_SEQS, dtype=torch.int32)
        self.block_table = torch.full((MAX_SEQS, -(-MAX_CONTEXT // BLOCK_SIZE) + 1), GARBAGE_PAGE).int()
        self.q, self.out = (torch.zeros(MAX_TOKENS, HEADS, HEAD_SIZE).half() for _ in range(2))
        pages = MAX_SEQS * -(-MAX_CONTEXT // BLOCK_SIZE) + 2
        shape = (pages, BLOCK_SIZE, KV_HEADS, HEAD_SIZE)
        self.caches = [torch.zeros(shape, dtype=cache_dtype or torch.float16) for _ in range(2)]
        workspace = Workspace.for_maxima(
            "cpu", MODEL, max_query_tokens=MAX_TOKENS, max_num_seqs=MAX_SEQS, configs=configs
        )
        self.plan = attn_kernels.plan(
            self.cu_seqlens_q,
            self.seqused_k,
            self.block_table,
            MODEL,
            num_query_tokens=MAX_TOKENS if query_len is None else MAX_SEQS * query_len,
            max_query_len=MAX_TOKENS if query_len is None else query_len,
            max_seq_len=MAX_CONTEXT,
            config=None if parts else configs[0],
            for_capture=True,
            workspace=workspace,
            parts=parts,
        )

    def replay(self, batch):
        """Fill the buffers in place, launch, and return the batch's rows of the output. Checks the others."""
        n, tokens = len(batch.query_lens), len(batch.q)
        self.cu_seqlens_q.fill_(tokens)
        self.cu_seqlens_q[: n + 1] = batch.cu_seqlens_q
        self.seqused_k.zero_()
        self.seqused_k[:n] = batch.seqused_k
        self.block_table.fill_(GARBAGE_PAGE)
        self.block_table[:n, : batch.block_table.shape[1]] = batch.block_table
        for cache, filled in zip(self.caches, (batch.k_cache, batch.v_cache), strict=True):
            cache.fill_(math.nan)
            cache[: len(filled)] = filled
        self.q.fill_(math.nan)
        self.q[:tokens] = batch.q
        self.out.fill_(math.nan)
        poison_workspace(self.plan)
        self.plan.launches.pop(PARTS_BEGUN, None)  # a graph's launches begin the parts again
        begin(self.plan)
        rows = self.plan.lengths.num_query_tokens
        attn_kernels.run(self.plan, self.q[:rows], *self.caches, out=self.out[:rows], **self.options)
        assert self.out[tokens:].isnan().all()
        return self.out[:tokens].clone()


def batch_of(query_lens, context_lens, seed=0, cache_dtype=None):
    layout = {"ratio": HEADS // KV_HEADS, "kv_heads": KV_HEADS, "head_size": HEAD_SIZE}
    return random_batch((query_lens, context_lens), **layout, seed=seed, cache_dtype=cache_dtype)


def random_lens(rng, longest=3):
    """Decodes, short queries and sequences without any; some far longer than the others."""
    lens, tokens = [], 0
    for _ in range(rng.randint(0, MAX_SEQS)):
        query = min(rng.choice((0, 1, 1, 1, longest)), MAX_TOKENS - tokens)
        context = rng.choice((rng.randint(1, 20), rng.randint(1, MAX_CONTEXT), MAX_CONTEXT))
        lens.append((query, max(query, context) if query else rng.choice((0, context))))
        tokens += query
    return [query for query, _ in lens], [context for _, context in lens]

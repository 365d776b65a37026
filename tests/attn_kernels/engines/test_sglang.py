"""SGLang's backend on the CPU: its own pools, layers and batches, our plans in Triton's interpreter.

Needs an importable SGLang; no GPU, and none of its compiled kernels.
"""

from types import SimpleNamespace
from typing import Any

import pytest
import torch

pytest.importorskip(
    "sglang.srt.layers.attention.torch_native_backend", reason="SGLang is not installed", exc_type=ImportError
)

from sglang.srt.layers.attention.attention_registry import ATTENTION_BACKENDS
from sglang.srt.layers.attention.torch_native_backend import TorchNativeAttnBackend
from sglang.srt.layers.radix_attention import RadixAttention
from sglang.srt.mem_cache.memory_pool import MHATokenToKVPool, ReqToTokenPool
from sglang.srt.mem_cache.swa_memory_pool import SWAKVPool
from sglang.srt.model_executor.forward_batch_info import ForwardBatch, ForwardMode

from attn_kernels.engines import sglang
from attn_kernels.engines.sglang_backend import AttnKernelsBackend
from attn_kernels.testing.reference import paged_attention_reference

PAGE, CONTEXT, REQUESTS, TOKENS = 16, 256, 8, 1024
FP8 = torch.float8_e4m3fn
KINDS = {
    "plain": {},
    "window": {"sliding_window_size": 20},
    "soft cap": {"logit_cap": 15.0, "scaling": 0.4},
}


class Server:
    """A model runner with what a backend reads, and requests whose tokens lie in random pages."""

    def __init__(self, *layers, cache_dtype=torch.bfloat16, two_caches=False, **changes):
        first = layers[0]
        for number, layer in enumerate(layers):
            layer.layer_id = number
        page = changes.get("page_size", PAGE)
        self.page_size = page
        self.pool: Any
        if two_caches:
            kinds = [layer.sliding_window_size >= 0 for layer in layers]
            self.pool = SWAKVPool(
                size=TOKENS,
                size_swa=TOKENS,
                page_size=page,
                dtype=cache_dtype,
                head_num=first.tp_k_head_num,
                head_dim=first.head_dim,
                swa_attention_layer_ids=[number for number, windowed in enumerate(kinds) if windowed],
                full_attention_layer_ids=[number for number, windowed in enumerate(kinds) if not windowed],
                device="cpu",
                enable_memory_saver=False,
            )
            pages = torch.randperm(TOKENS // page + 1)  # in the cache of windows, of those in the other
            mapping = (pages[:, None] * page + torch.arange(page)).flatten()
            self.pool.register_mapping(mapping)
        else:
            self.pool = MHATokenToKVPool(
                TOKENS, page, cache_dtype, first.tp_k_head_num, first.head_dim, len(layers), "cpu", False
            )
        self.requests = ReqToTokenPool(REQUESTS, CONTEXT, "cpu", False)
        values = {
            "device": "cpu",
            "page_size": page,
            "token_to_kv_pool": self.pool,
            "req_to_token_pool": self.requests,
            "model": torch.nn.ModuleList(layers),
            "use_mla_backend": False,
            "model_config": SimpleNamespace(is_encoder_decoder=False),
            "spec_algorithm": SimpleNamespace(is_speculative=lambda: False),
            "dtype": torch.bfloat16,
            "server_args": SimpleNamespace(chunked_prefill_size=128),
        }
        self.runner = SimpleNamespace(**values | changes)
        self.free = torch.randperm(TOKENS // page).tolist()
        self.lens = torch.zeros(REQUESTS, dtype=torch.int64)

    def grow(self, request, count):
        """Give a request more slots, in pages of its own; return the new ones."""
        slots = []
        for position in range(int(self.lens[request]), int(self.lens[request]) + count):
            size = self.page_size
            if position % size == 0:
                self.page = self.free.pop() + 1  # page 0 is for padding
            else:
                self.page = int(self.requests.req_to_token[request, position - 1]) // size
            slot = self.page * size + position % size
            self.requests.req_to_token[request, position] = slot
            slots.append(slot)
        self.lens[request] += count
        return torch.tensor(slots)

    def batch(self, mode, queries, host=True):
        """A pass in which each request has so many new tokens."""
        slots = torch.cat([self.grow(request, count) for request, count in queries.items()])
        ids = torch.tensor(list(queries))
        lens = self.lens[ids]
        batch = ForwardBatch(
            forward_mode=mode,
            batch_size=len(queries),
            input_ids=torch.zeros(len(slots), dtype=torch.int64),
            req_pool_indices=ids,
            seq_lens=lens,
            out_cache_loc=slots,
            seq_lens_sum=int(lens.sum()),
            seq_lens_cpu=lens.clone() if host else None,
        )
        if mode.is_extend():
            counts = list(queries.values())
            batch.extend_seq_lens = torch.tensor(counts, dtype=torch.int32)
            batch.extend_seq_lens_cpu = counts
            batch.extend_prefix_lens = lens.to(torch.int32) - batch.extend_seq_lens
        return batch

    def expected(self, layer, q, queries, sinks=None):
        """In float64, from what lies in the caches."""
        size = self.page_size
        caches = [cache.view(-1, size, *cache.shape[1:]) for cache in self.pool.get_kv_buffer(layer.layer_id)]
        if self.pool.dtype == FP8:
            scales = [float(scale) for scale in (layer.k_scale, layer.v_scale)]
            caches = [
                (cache.view(FP8).float() * scale).bfloat16()
                for cache, scale in zip(caches, scales, strict=True)
            ]
        ids, counts = torch.tensor(list(queries)), torch.tensor(list(queries.values()))
        slots = self.requests.req_to_token[ids][:, ::size]
        if isinstance(self.pool, SWAKVPool) and layer.sliding_window_size >= 0:
            slots = self.pool.translate_loc_from_full_to_swa(slots)
        table = slots // size
        return paged_attention_reference(
            q.unflatten(1, (layer.tp_q_head_num, layer.head_dim)),
            *caches,
            torch.cat([torch.zeros(1), counts.cumsum(0)]).int(),
            self.lens[ids].int(),
            table.int(),
            softmax_scale=layer.scaling,
            sliding_window=layer.sliding_window_size + 1 if layer.sliding_window_size >= 0 else None,
            softcap=layer.logit_cap,
            sinks=sinks,
        ).flatten(1)


def attention(**options):
    return RadixAttention(
        **{"num_heads": 4, "head_dim": 32, "scaling": 0.3, "num_kv_heads": 2, "layer_id": 0} | options
    )


def new(layer, rows):
    """Queries, keys and values of so many tokens, as slices of one tensor."""
    sizes = [heads * layer.head_dim for heads in (layer.tp_q_head_num, *[layer.tp_k_head_num] * 2)]
    q, k, v = torch.randn(rows, sum(sizes)).bfloat16().split(sizes, 1)
    return q, *(part.unflatten(1, (layer.tp_k_head_num, layer.head_dim)) for part in (k, v))


def assert_close(found, expected):
    assert found.shape == expected.shape
    assert (found.double() - expected.double()).abs().max() < 3e-2 * expected.double().abs().max()


@pytest.fixture(autouse=True)
def seed():
    torch.manual_seed(0)


@pytest.mark.parametrize(
    ("kind", "page", "two_caches"),
    [
        *((kind, PAGE, False) for kind in KINDS),
        ("window", 1, False),
        ("window", PAGE, True),
        ("window", 1, True),
    ],
)
def test_prompts_chunks_mixed_batches_and_decodes(kind, page, two_caches):
    layers = [attention(**KINDS[kind]), attention()]
    server = Server(*layers, page_size=page, two_caches=two_caches)
    backend = AttnKernelsBackend(server.runner)
    for mode, queries in (
        (ForwardMode.EXTEND, {2: 37, 5: 3, 0: 16}),
        (ForwardMode.EXTEND, {2: 20, 1: 50}),
        (ForwardMode.MIXED, {4: 23, 2: 1, 5: 1}),
        (ForwardMode.DECODE, {0: 1, 2: 1, 5: 1, 1: 1}),
        (ForwardMode.DECODE, {1: 1}),
    ):
        batch = server.batch(mode, queries)
        backend.init_forward_metadata(batch)
        for layer in layers:
            q, k, v = new(layer, sum(queries.values()))
            found = backend.forward(q, k, v, layer, batch)
            assert_close(found, server.expected(layer, q, queries))
            if kind != "soft cap" and not two_caches:
                native = TorchNativeAttnBackend(server.runner)
                native.init_forward_metadata(batch)
                assert_close(
                    found, native.forward(q.contiguous(), None, None, layer, batch, save_kv_cache=False)
                )
        plans = {kind: plan for step in backend.forward_metadata for kind, plan in step.plans.items()}
        assert plans.keys() == {(4, None), (4, 21 if kind == "window" else None)}
        assert all(plan.model.sliding_window == window for (_, window), plan in plans.items())


def test_sinks_and_padded_rows():
    layer = attention()
    server = Server(layer)
    backend = AttnKernelsBackend(server.runner)
    batch = server.batch(ForwardMode.EXTEND, {3: 18})
    backend.init_forward_metadata(batch)
    q, k, v = new(layer, 18)
    sinks = torch.randn(4).bfloat16()
    padded = torch.cat([q, torch.full((5, q.shape[1]), torch.nan, dtype=q.dtype)])
    found = backend.forward(padded, k, v, layer, batch, sinks=sinks)
    assert_close(found[:18], server.expected(layer, q, {3: 18}, sinks))
    assert not found[18:].any()


def test_fp8_caches():
    layer = attention()
    layer.k_scale, layer.v_scale = torch.tensor(0.5), torch.tensor(0.25)
    server = Server(layer, cache_dtype=FP8)
    backend = AttnKernelsBackend(server.runner)
    for mode, queries in ((ForwardMode.EXTEND, {3: 18, 1: 40}), (ForwardMode.DECODE, {1: 1, 3: 1})):
        batch = server.batch(mode, queries)
        backend.init_forward_metadata(batch)
        q, k, v = new(layer, sum(queries.values()))
        found = backend.forward(q, k.clone(), v.clone(), layer, batch)
        assert_close(found, server.expected(layer, q, queries))


@pytest.mark.parametrize(("host", "two_caches"), [(True, False), (False, False), (True, True)])
def test_a_captured_batch_is_filled_before_each_replay(host, two_caches):
    layer = attention(**KINDS["window"]) if two_caches else attention()
    kind = (4, 21 if two_caches else None)
    server = Server(layer, attention(), two_caches=two_caches)
    backend = AttnKernelsBackend(server.runner)
    backend.init_cuda_graph_state(4, 4)
    dummy = server.batch(ForwardMode.DECODE, {7: 1, 6: 1})
    dummy.seq_lens.fill_(backend.get_cuda_graph_seq_len_fill_value())
    backend.init_forward_metadata_out_graph(dummy, in_capture=True)
    plans = []
    for _ in range(2):  # the warm-up, and the capture
        backend.init_forward_metadata_in_graph(dummy)
        q, k, v = new(layer, 2)
        backend.forward(q, k, v, layer, dummy)
        plans.append(backend.forward_metadata[-1].plans[kind])
    assert plans[0] is not plans[1] and plans[1].batch.for_capture
    prompts = {2: 70, 3: 9}
    batch = server.batch(ForwardMode.EXTEND, prompts)
    backend.init_forward_metadata(batch)
    backend.forward(*new(layer, 79), layer, batch)
    for _ in range(2):
        queries = {2: 1, 3: 1}
        batch = server.batch(ForwardMode.DECODE, queries, host)
        backend.init_forward_metadata_out_graph(batch)
        assert backend.forward_metadata[-1].plans[kind] is plans[1]  # what the graph holds
        q, k, v = new(layer, 2)
        assert_close(backend.forward(q, k, v, layer, batch), server.expected(layer, q, queries))


def test_what_is_refused():
    """Of runners and layers, one line of each; ``test_supported`` has all."""
    with pytest.raises(ValueError, match="attn_kernels: MLA is not supported"):
        AttnKernelsBackend(Server(attention(), use_mla_backend=True).runner)
    with pytest.raises(ValueError, match="v_head_dim is 16"):
        AttnKernelsBackend(Server(attention(v_head_dim=16)).runner)
    layer = attention()
    server = Server(layer)
    backend = AttnKernelsBackend(server.runner)
    batch = server.batch(ForwardMode.EXTEND, {0: 4})
    backend.init_forward_metadata(batch)
    with pytest.raises(NotImplementedError, match="q_rope is given"):
        backend.forward(*new(layer, 4), layer, batch, q_rope=torch.zeros(1))


def test_the_plugin_registers_the_backend():
    from sglang.srt.arg_groups.choices import ATTENTION_BACKEND_CHOICES

    sglang.register()
    sglang.register()
    assert ATTENTION_BACKEND_CHOICES.count(sglang.NAME) == 1
    server = Server(attention())
    assert isinstance(ATTENTION_BACKENDS[sglang.NAME](server.runner), AttnKernelsBackend)

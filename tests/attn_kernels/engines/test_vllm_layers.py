"""vLLM's backend on the CPU: its own base classes, our builder and layers, in Triton's interpreter.

Needs an importable vLLM; docs/vllm.md says how to get one without a GPU.
"""

import copy
from dataclasses import replace
from types import SimpleNamespace

import pytest
import torch
from torch import Tensor

pytest.importorskip("vllm.v1.attention.backend", reason="vLLM is not installed", exc_type=ImportError)

from kernel_cases import forget_choices, scores
from shared_keys import new_keys_of, shard
from vllm.model_executor.layers.attention.cross_attention import create_cross_attention_backend
from vllm.model_executor.layers.attention.encoder_only_attention import create_encoder_only_attention_backend

from attn_kernels.choose.recording import recorder_of_process
from attn_kernels.engines import vllm_backend, vllm_kernels, vllm_layer
from attn_kernels.engines.vllm_backend import AttnKernelsBackend
from attn_kernels.testing.poisoned import make_batch, relative_error

BLOCK = 16
MAX_SEQS, MAX_LEN = 8, 2048
FP8 = torch.float8_e4m3fn
TOLERANCE = {torch.bfloat16: 2e-2, torch.float16: 4e-3}
BATCHES = {
    "decode": ([1, 1, 1], [5, 70, 33]),
    "prefill": ([20, 7], [20, 7]),
    "chunk": ([30], [77]),
    "mixed": ([1, 1, 4, 25, 1], [40, 17, 66, 41, 9]),
    "drafts": ([4, 8, 5], [70, 30, 5]),
}


def store(key, value, k, v, slots, dtype, *scales):
    """What vLLM's compiled operator does."""
    for new, cache, scale in zip((key, value), (k, v), scales, strict=True):
        for row, slot in zip(new, slots.tolist(), strict=False):
            if slot < 0:
                continue
            place = (slot // cache.shape[1], slot % cache.shape[1])
            if dtype.startswith("fp8"):
                cache[place] = (row.float() / scale).to(FP8).view(cache.dtype)
            else:
                cache[place] = row


class Engine:
    """A vLLM that has only what a backend sees: layers, groups, steps."""

    def __init__(self, monkeypatch, dtype):
        self.layers = {}
        self.slots = {}
        self.config = SimpleNamespace(
            model_config=SimpleNamespace(
                dtype=dtype, max_model_len=MAX_LEN, is_mm_prefix_lm=False, is_hybrid=False
            ),
            parallel_config=SimpleNamespace(
                use_ubatching=False, prefill_context_parallel_size=1, cp_kv_cache_interleave_size=1
            ),
            scheduler_config=SimpleNamespace(max_num_seqs=MAX_SEQS, max_num_batched_tokens=64),
            compilation_config=SimpleNamespace(
                static_forward_context=self.layers, max_cudagraph_capture_size=MAX_SEQS
            ),
            cache_config=SimpleNamespace(block_size=BLOCK),
            speculative_config=None,
        )
        context = SimpleNamespace(slot_mapping=self.slots)
        monkeypatch.setattr(vllm_layer, "get_forward_context", lambda: context)
        monkeypatch.setattr(vllm_layer, "reshape_and_cache_flash", store)

    def layer(self, name, *arguments, scale=1.0, **extra):
        impl = AttnKernelsBackend.get_impl_cls()(*arguments, **extra)
        scales = {"_k_scale": torch.tensor(scale), "_v_scale": torch.tensor(scale * 0.5)}
        self.layers[name] = SimpleNamespace(impl=impl, layer_name=name, **scales)
        return self.layers[name]

    def builder(self, *layers, backend=AttnKernelsBackend):
        impl = layers[0].impl
        spec = SimpleNamespace(
            block_size=BLOCK,
            num_kv_heads=impl.num_kv_heads,
            head_size=impl.head_size,
            head_size_v=impl.head_size,
        )
        names = [layer.layer_name for layer in layers]
        return backend.get_builder_cls()(spec, names, self.config, torch.device("cpu"))


@pytest.fixture
def engine(monkeypatch):
    return Engine(monkeypatch, torch.bfloat16)


def common(batch, *, seqs=0, tokens=0):
    """vLLM's metadata of a batch, padded as for a full graph up to so many sequences and tokens."""
    count, total = len(batch.query_lens), batch.q.shape[0]
    seqs, tokens = max(seqs, count), max(tokens, total)
    starts = torch.full((seqs + 1,), total, dtype=torch.int32)
    starts[: count + 1] = batch.cu_seqlens_q
    lens = torch.zeros(seqs, dtype=torch.int32)
    lens[:count] = batch.seqused_k
    pages = MAX_LEN // BLOCK
    table = torch.zeros(seqs, pages, dtype=torch.int32)
    table[:count, : batch.block_table.shape[1]] = batch.block_table
    return SimpleNamespace(
        query_start_loc=starts,
        query_start_loc_cpu=starts.clone(),
        seq_lens=lens,
        seq_lens_cpu_upper_bound=lens.clone(),
        num_reqs=seqs,
        num_actual_tokens=tokens,
        max_query_len=max(batch.query_lens),
        max_seq_len=max(batch.context_lens),
        block_table_tensor=table,
        slot_mapping=slots_of(batch, tokens),
        causal=True,
    )


def slots_of(batch, tokens, rank=0, ranks=1, interleave=1):
    """Where vLLM keeps the query tokens' keys; -1 where another rank does, and of padding."""
    slots = []
    for seq, (query_len, length) in enumerate(zip(batch.query_lens, batch.context_lens, strict=True)):
        for position in range(length - query_len, length):
            run, place = divmod(position, interleave)
            key = run // ranks * interleave + place
            slot = int(batch.block_table[seq, key // BLOCK]) * BLOCK + key % BLOCK
            slots.append(slot if run % ranks == rank else -1)
    return torch.tensor(slots + [-1] * (tokens - len(slots)), dtype=torch.int64)


def cache_of(batch, layout="NHD"):
    """The batch's cache as vLLM allocates it; fp8 as bytes."""
    k, v = (
        cache.view(torch.uint8) if cache.element_size() == 1 else cache
        for cache in (batch.k_cache, batch.v_cache)
    )
    if layout == "packed":  # [blocks, heads, slots, both], as of vLLM 0.33
        return torch.cat([k, v], -1).transpose(1, 2)
    both = torch.stack([k, v], 1)
    if layout == "HND":
        return both.transpose(2, 3).contiguous().transpose(2, 3)
    return both


def strided(rows, padded):
    """The rows as a slice of wider ones, as of a fused projection, with unused rows behind them."""
    wide = torch.full((padded, rows.shape[1] + 3, rows.shape[2]), torch.nan, dtype=rows.dtype)
    wide[: rows.shape[0], 1:-2] = rows
    return wide[:, 1:-2]


def forward(engine, layer, batch, metadata, kv_cache, rows=0):
    """Store the new keys and values and run the layer, with `rows` of queries and outputs."""
    total = batch.q.shape[0]
    rows = max(rows, total)
    engine.slots[layer.layer_name] = metadata.slot_mapping
    new = [None, None]
    if batch.k_cache.dtype != FP8:
        new = [strided(tensor, rows) for tensor in new_keys_of(batch)]
        layer_slots = metadata.slot_mapping[:total].long()
        for cache in vllm_layer.cache_views(kv_cache, batch.q.shape[2]):
            cache[layer_slots // BLOCK, layer_slots % BLOCK] = torch.nan  # before the store
    out = torch.full((rows, *batch.q.shape[1:]), torch.nan, dtype=batch.q.dtype)
    result = layer.impl.forward(layer, strided(batch.q, rows), *new, kv_cache, metadata, out)
    assert result is out
    assert out[total:].isnan().all()  # rows of no token stay
    return out[:total]


def assert_right(got, batch, **scoring):
    assert relative_error(got, batch.reference(**scoring)) <= TOLERANCE[got.dtype]


def batch_of(name, heads=(4, 2, 32), **options):
    query_heads, kv_heads, size = heads
    return make_batch(
        *BATCHES[name],
        num_query_heads=query_heads,
        num_kv_heads=kv_heads,
        head_size=size,
        block_size=BLOCK,
        **options,
    )


def plain(engine, heads=(4, 2, 32), **extra):
    query_heads, kv_heads, size = heads
    name = f"layer {len(engine.layers)}"
    arguments = {"alibi_slopes": None, "sliding_window": None, "kv_cache_dtype": "auto"} | extra
    return engine.layer(name, query_heads, size, size**-0.5, kv_heads, **arguments)


# The layout of the cache, heads, the queries' type, and options in the words of ``kernel_cases.scores``.
LAYERS = [
    ("NHD", (4, 2, 32), torch.bfloat16, ""),
    ("HND", (8, 1, 16), torch.float16, "window=11"),
    ("packed", (2, 2, 64), torch.bfloat16, "softcap alibi"),
    ("HND", (6, 2, 80), torch.bfloat16, "sinks=half"),
    ("packed", (16, 1, 128), torch.float16, "window=11 softcap alibi sinks"),
    ("NHD", (4, 2, 32), torch.bfloat16, "noncausal"),
    ("packed", (4, 2, 32), torch.bfloat16, "noncausal window=11"),  # as many keys on both sides
    ("NHD", (4, 2, 32), torch.bfloat16, "scales"),
    ("packed", (4, 2, 32), torch.bfloat16, "scales"),
]


@pytest.mark.parametrize("name", BATCHES)
@pytest.mark.parametrize(("layout", "heads", "dtype", "words"), LAYERS)
def test_steps_of_every_kind(layout, heads, dtype, words, name, module, monkeypatch):
    """Eagerly, and in the plan of a capture with more rows than tokens, as a piecewise graph has."""
    scoring = scores(heads[0], words, dtype)
    extra = {
        "sliding_window": scoring.get("sliding_window"),
        "logits_soft_cap": scoring.get("softcap"),
        "alibi_slopes": scoring["alibi_slopes"].tolist() if "alibi" in words else None,
        "sinks": scoring.get("sinks"),
    }
    fp8 = "scales" in words
    if fp8:
        extra |= {"kv_cache_dtype": "fp8", "scale": 0.25}
        scoring |= {"k_scale": 0.25, "v_scale": 0.125}
    engine = Engine(monkeypatch, dtype)
    layer = plain(engine, heads, **extra)
    batch = batch_of(name, heads, dtype=dtype, cache_dtype=FP8 if fp8 else None)
    builder, given = engine.builder(layer), common(batch)
    given.causal = scoring.get("causal", True)
    for metadata, rows in ((builder.build(0, given), 0), (builder.build_for_cudagraph_capture(given), 48)):
        got = forward(engine, layer, batch, metadata, cache_of(batch, layout), rows)
        assert_right(got, batch, **scoring)


@pytest.mark.parametrize("attn_type", ["encoder", "encoder_only"])
def test_encoders_attend_to_the_keys_of_the_step(attn_type, monkeypatch):
    """In the backend and builder that vLLM makes of ours. Such layers have no cache."""
    engine, batch = Engine(monkeypatch, torch.bfloat16), batch_of("prefill")
    layer = plain(engine, attn_type=attn_type, sliding_window=5, kv_cache_dtype="fp8")
    backend = create_encoder_only_attention_backend(AttnKernelsBackend)
    metadata = engine.builder(layer, backend=backend).build(0, common(batch))
    key, value = (strided(tensor, len(batch.q)) for tensor in new_keys_of(batch))
    out = torch.full_like(batch.q, torch.nan)
    nothing = torch.empty(0)
    assert layer.impl.forward(layer, batch.q, key, value, nothing, metadata, out) is out
    assert_right(out, batch, causal=False, sliding_window=5)


def test_decoders_attend_to_the_keys_of_an_encoder(engine, monkeypatch):
    """A prompt of more queries than its encoder has keys, which it stores, beside a decode."""
    backend = create_cross_attention_backend(AttnKernelsBackend)
    monkeypatch.setattr(AttnKernelsBackend, "get_impl_cls", backend.get_impl_cls)
    monkeypatch.setitem(BATCHES, "cross", ([1, 20], [40, 7]))  # queries, and keys of their encoders
    layer, batch = plain(engine, attn_type="encoder_decoder"), batch_of("cross")
    given = common(batch)
    given.encoder_seq_lens, given.encoder_seq_lens_cpu = batch.seqused_k, batch.seqused_k.numpy()
    given.seq_lens, given.max_seq_len = torch.tensor([9, 20], dtype=torch.int32), 20
    given.seq_lens_cpu_upper_bound = given._seq_lens_cpu = given.seq_lens
    given.num_computed_tokens_cpu = torch.tensor([8, 0])
    metadata = engine.builder(layer, backend=backend).build(0, given)
    pages = batch.block_table[1, :1].long()
    new = [cache[pages, :7].flatten(0, 1) for cache in (batch.k_cache, batch.v_cache)]
    kv_cache = cache_of(batch)
    kv_cache[pages, :, :7] = torch.nan  # before the store
    out = torch.full_like(batch.q, torch.nan)
    layer.impl.forward(layer, batch.q, *new, kv_cache, metadata, out)
    assert_right(out, batch, causal=False)


@pytest.mark.parametrize("window", [None, 11])
def test_tokens_of_images_see_each_other(window, module, engine):
    """In a mixed step; a model may clear the ranges for layers without them."""
    layer, batch = plain(engine, sliding_window=window), batch_of("mixed")
    builder = engine.builder(layer)
    given = common(batch)
    given.mm_req_doc_ranges = {0: [(3, 30)], 2: [], 3: [(2, 9), (18, 26), (30, 60)]}
    ranges = torch.zeros(5, 3, 2, dtype=torch.int32)
    ranges[3] = torch.tensor(given.mm_req_doc_ranges[3])
    metadata = builder.build(0, given)
    options = {"sliding_window": window}
    got = forward(engine, layer, batch, metadata, cache_of(batch))
    assert_right(got, batch, bidirectional_ranges=ranges, **options)
    metadata.mm_prefix_range_tensor = None
    assert_right(forward(engine, layer, batch, metadata, cache_of(batch)), batch, **options)
    assert builder.build_for_cudagraph_capture(given).mm_prefix_range_tensor is None


@pytest.mark.parametrize("name", ["decode", "drafts"])
def test_captured_graphs_serve_smaller_batches(name, module, engine):
    """The plan of a capture is run again after the persistent tensors changed, as a replay does."""
    layer, batch = plain(engine), batch_of(name)
    builder = engine.builder(layer)
    longest = max(batch.query_lens)
    full = common(batch, seqs=MAX_SEQS, tokens=MAX_SEQS * longest)
    at_capture = copy.copy(full)
    at_capture.max_seq_len = MAX_LEN
    metadata = builder.build_for_cudagraph_capture(at_capture)
    kv_cache = cache_of(batch)
    lens = metadata.seq_lens.clone()
    table, starts = metadata.block_table.clone(), metadata.query_start_loc.clone()
    metadata.seq_lens.fill_(longest)
    metadata.block_table.zero_()
    metadata.query_start_loc.copy_(torch.arange(MAX_SEQS + 1) * longest)
    slots, metadata.slot_mapping = metadata.slot_mapping, torch.full_like(metadata.slot_mapping, -1)
    engine.slots[layer.layer_name] = metadata.slot_mapping
    rows = metadata.num_actual_tokens
    nothing = torch.zeros(rows, *batch.q.shape[1:], dtype=batch.q.dtype)
    new = torch.zeros(rows, *batch.k_cache.shape[2:], dtype=batch.q.dtype)
    layer.impl.forward(layer, nothing, new, new, kv_cache, metadata, nothing.clone())
    plan = metadata.plans[4]
    assert plan.batch.for_capture

    metadata.seq_lens.copy_(lens)
    metadata.block_table.copy_(table)
    metadata.query_start_loc.copy_(starts)
    metadata.slot_mapping = slots
    from attn_kernels.launch.run import begin

    begin(plan)  # the graph holds what a plan launches once
    out = torch.full((rows, *batch.q.shape[1:]), torch.nan, dtype=batch.q.dtype)
    q = strided(batch.q, rows)
    layer.impl.forward(layer, q, None, None, kv_cache, metadata, out)
    assert_right(out[: batch.q.shape[0]], batch)
    assert metadata.plans[4] is plan
    assert metadata in builder._captured


def test_groups_take_turns_within_a_step(module, engine):
    """Layers of two groups, with and without a window, with other heads and pages, in one workspace."""
    first, second = plain(engine), plain(engine, (8, 1, 64), sliding_window=11)
    builders = engine.builder(first), engine.builder(second)
    memories = [
        builder._planners[layer.impl.num_heads].workspace._partials
        for builder, layer in zip(builders, (first, second), strict=True)
    ]
    assert memories[0] is memories[1]
    for name in ("mixed", "decode", "chunk"):
        batches = batch_of(name, seed=1), batch_of(name, (8, 1, 64), seed=2)
        metadata = [builder.build(0, common(batch)) for builder, batch in zip(builders, batches, strict=True)]
        caches = [cache_of(batch) for batch in batches]
        for _ in range(2):
            for i, window in enumerate((None, 11)):
                layer = (first, second)[i]
                got = forward(engine, layer, batches[i], metadata[i], caches[i])
                assert_right(got, batches[i], sliding_window=window)


def test_layers_of_a_group_share_a_plan_and_others_of_its_spec_get_their_own_pages(engine):
    layers = [plain(engine) for _ in range(4)]
    builder, another = engine.builder(*layers[:2]), engine.builder(*layers[2:])
    batch, second = batch_of("mixed"), batch_of("mixed", seed=5)
    metadata = builder.build(0, common(batch))
    for layer in layers[:2]:
        assert_right(forward(engine, layer, batch, metadata, cache_of(batch)), batch)
    assert len(metadata.plans) == 1
    other = common(second)
    updated = another.update_block_table(metadata, other.block_table_tensor, other.slot_mapping)
    for layer in layers[2:]:
        assert_right(forward(engine, layer, second, updated, cache_of(second)), second)
    assert metadata.plans[4] is not updated.plans[4]


def test_a_layer_that_shares_anothers_cache_stores_nothing(engine):
    layer = plain(engine, kv_sharing_target_layer_name="another")
    batch = batch_of("decode")
    metadata = engine.builder(layer).build(0, common(batch))
    engine.slots[layer.layer_name] = metadata.slot_mapping
    kv_cache, out = cache_of(batch), torch.full_like(batch.q, torch.nan)
    wrong = torch.full((3, 2, 32), torch.nan, dtype=batch.q.dtype)
    layer.impl.forward(layer, batch.q, wrong, wrong, kv_cache, metadata, out)
    assert_right(out, batch)


def test_a_step_never_waits_for_the_device(engine, monkeypatch):
    """Building and planning read no index tensor of the device."""
    layer, batch = plain(engine), batch_of("mixed")
    given = common(batch)
    builder = engine.builder(layer)

    def read(*_):
        raise AssertionError("a tensor of the device was read")

    class Device(Tensor):
        tolist = item = cpu = numpy = to = __bool__ = __int__ = read

    for name in ("query_start_loc", "seq_lens", "block_table_tensor", "slot_mapping"):
        setattr(given, name, getattr(given, name).as_subclass(Device))
    metadata = builder.build(0, given)
    monkeypatch.setattr("attn_kernels.planning.plan.begin", lambda plan: None)
    assert metadata.plan_for(4).parts


class Ranks:
    """Ranks of decode context parallelism that compute one after another, each with an engine of its own.

    What a rank has not sent yet is missing from what it sends to others. So the results are right once every
    rank has sent its queries, and then the attention over its keys: in the third round.
    """

    def __init__(self, monkeypatch, count, interleave):
        self.count, self.rank = count, 0
        self.queries = {}
        self.states = {}
        monkeypatch.setattr("vllm.distributed.parallel_state._DCP", self)  # which ``get_dcp_group`` returns
        monkeypatch.setattr(vllm_layer, "cp_lse_ag_out_rs", self.combine)
        self.engines = [Engine(monkeypatch, torch.bfloat16) for _ in range(count)]
        for engine in self.engines:
            engine.config.parallel_config.cp_kv_cache_interleave_size = interleave

    @property
    def world_size(self):
        return self.count

    @property
    def rank_in_group(self):
        return self.rank

    def all_gather(self, rows, dim):
        self.queries[self.rank] = rows
        return torch.cat([self.queries.get(rank, rows) for rank in range(self.count)], dim)

    def combine(self, out, lse, group, return_lse):
        """As vLLM's: the own heads of outputs [tokens, heads, size] and logarithms [tokens, heads]."""
        self.states[self.rank] = out, lse
        outs, lses = (torch.stack(tensors).double() for tensors in zip(*self.states.values(), strict=True))
        weights = (lses - lses.logsumexp(0)).exp().nan_to_num()
        merged = (outs * weights[..., None]).sum(0).to(out.dtype), lses.logsumexp(0).float()
        own = slice(self.rank * out.shape[1] // self.count, (self.rank + 1) * out.shape[1] // self.count)
        return merged[0][:, own], merged[1][:, own]


@pytest.mark.parametrize("interleave", [1, 16])
@pytest.mark.parametrize("name", [*BATCHES, "fp8", "sinks"])
def test_ranks_that_share_the_keys(name, interleave, monkeypatch):
    """Steps of every kind; each rank stores those of the new keys that it keeps."""
    fp8, sinks = name == "fp8", torch.arange(8.0) if name == "sinks" else None
    kinds = {"cache_dtype": FP8} if fp8 else {}
    batch = batch_of(name if name in BATCHES else "mixed", (8, 1, 32), **kinds)
    scales = {"k_scale": 0.25, "v_scale": 0.125} if fp8 else {}
    new = [
        (tensor.double() * scale).bfloat16()
        for tensor, scale in zip(new_keys_of(batch), scales.values() or (1.0, 1.0), strict=True)
    ]
    ranks = Ranks(monkeypatch, 2, interleave)
    outs = {}
    for turn in range(6):
        ranks.rank = rank = turn % 2
        engine, part = ranks.engines[rank], shard(batch, rank, 2, interleave)
        heads = slice(4 * rank, 4 * rank + 4)
        extra = {"kv_cache_dtype": "fp8", "scale": 0.25} if fp8 else {}
        layer = plain(engine, (4, 1, 32), sinks=None if sinks is None else sinks[heads].contiguous(), **extra)
        builder = engine.builder(layer)
        given = common(batch)
        given.block_table_tensor = common(part).block_table_tensor
        of_queries = replace(part, query_lens=batch.query_lens, context_lens=batch.context_lens)
        given.slot_mapping = slots_of(of_queries, 0, rank, 2, interleave)
        metadata = builder.build(0, given)
        kv_cache = cache_of(part)
        stored = given.slot_mapping[given.slot_mapping >= 0]
        for cache in vllm_layer.cache_views(kv_cache, 32, FP8 if fp8 else None):
            cache.view(torch.uint8)[stored // BLOCK, stored % BLOCK] = 0x7F  # NaN, before the store
        engine.slots[layer.layer_name] = given.slot_mapping
        with monkeypatch.context() as here:
            context = SimpleNamespace(slot_mapping=engine.slots)
            here.setattr(vllm_layer, "get_forward_context", lambda context=context: context)
            out = torch.full_like(batch.q[:, heads], torch.nan)
            rows = [strided(tensor, len(batch.q)) for tensor in (batch.q[:, heads], *new)]
            outs[rank] = layer.impl.forward(layer, *rows, kv_cache, metadata, out)
        for cache in vllm_layer.cache_views(kv_cache, 32, FP8 if fp8 else None):
            assert not cache[stored // BLOCK, stored % BLOCK].float().isnan().any()
    assert_right(torch.cat([outs[0], outs[1]], 1), batch, sinks=sinks, **scales)


def test_what_is_not_supported_is_refused_in_one_line(engine, monkeypatch):
    """By one line of each check; ``test_supported`` has all."""
    builder, step = engine.builder(plain(engine)), common(batch_of("decode"))
    step.causal = torch.tensor([True, False, True])
    with pytest.raises(NotImplementedError, match="causal is a tensor"):
        builder.build(0, step)
    with pytest.raises(ValueError, match=r"^attn_kernels: use_alibi_sqrt is True"):
        plain(engine, use_alibi_sqrt=True)
    (engine, _), heads = Ranks(monkeypatch, 2, 1).engines, (4, 1, 32)
    assert plain(engine, heads).impl.need_to_return_lse_for_decode
    with pytest.raises(ValueError, match=r"^attn_kernels: sliding_window is given"):
        engine.builder(plain(engine, heads, sliding_window=11))
    engine.config.parallel_config.dcp_comm_backend = "a2a"
    with pytest.raises(ValueError, match=r"^attn_kernels: dcp_comm_backend is a2a"):
        engine.builder(plain(engine, heads))


def test_a_gpu_that_was_not_tuned_is_told_in_one_line(engine, monkeypatch, caplog):
    import warnings

    from attn_kernels.core.errors import AttnKernelsWarning
    from attn_kernels.planning import workspace

    choose = workspace.choices_for

    def warn(*arguments):
        warnings.warn("GPU X has no heuristic of its own", AttnKernelsWarning, stacklevel=1)
        return choose(*arguments)

    monkeypatch.setattr(workspace, "choices_for", warn)
    monkeypatch.setattr(vllm_backend.logger, "propagate", True)
    caplog.set_level("WARNING")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        engine.builder(plain(engine))
    lines = [record.getMessage() for record in caplog.records if "heuristic" in record.getMessage()]
    assert lines == ["attn_kernels: GPU X has no heuristic of its own"]


@pytest.fixture
def loading(monkeypatch):
    """An engine that makes layers on a GPU; ``begun`` has what begins to compile, a list for each time."""
    engine = Engine(monkeypatch, torch.bfloat16)
    engine.begun = []
    monkeypatch.setattr(vllm_kernels, "get_current_vllm_config_or_none", lambda: engine.config)
    monkeypatch.setattr(vllm_kernels, "launches_of", launches)
    monkeypatch.setattr(vllm_kernels, "begin_compiling", lambda given, device: engine.begun.append(given))
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "current_device", lambda: 0)
    vllm_kernels._begin.cache_clear()
    return engine


def launches(device, model, *, features, for_capture):
    assert device == torch.device("cuda", 0) and for_capture
    return [(model, kind) for kind in features]


@pytest.mark.parametrize("kind", ["plain", "window", "fp8", "images", "ranks"])
def test_what_a_builder_compiles_has_begun_with_the_first_layer_of_its_kind(kind, loading, monkeypatch):
    if kind == "ranks":
        Ranks(monkeypatch, 2, 1)
    loading.config.model_config.is_mm_prefix_lm = kind == "images"
    extra = {"window": {"sliding_window": 11}, "fp8": {"kv_cache_dtype": "fp8"}}.get(kind, {})
    layers = [plain(loading, (4, 1, 32), **extra) for _ in range(2)]
    (begun,) = loading.begun
    compiled = []
    monkeypatch.setattr(vllm_backend, "compile_launches", lambda given, device: compiled.extend(given))
    builder = loading.builder(*layers)
    assert compiled == []  # on the CPU
    builder.device = torch.device("cuda", 0)
    images = loading.config.model_config.is_mm_prefix_lm
    builder._compile({layer.impl.features for layer in layers}, layers[0].impl.dcp_world_size, images)
    assert len(begun) >= 2 and set(begun) == set(compiled)
    plain(loading, (4, 1, 32), logits_soft_cap=3.0)
    assert len(loading.begun) == 2


@pytest.mark.parametrize("why", ["hybrid", "no GPU", "no engine", "an error"])
def test_a_layer_of_which_not_all_is_known_is_made_all_the_same(why, loading, monkeypatch):
    loading.config.model_config.is_hybrid = why == "hybrid"
    if why == "no GPU":
        monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    if why == "no engine":
        monkeypatch.setattr(vllm_kernels, "get_current_vllm_config_or_none", lambda: None)
    if why == "an error":
        loading.config.cache_config.block_size = -1
    assert plain(loading).impl.num_heads == 4
    assert loading.begun == []


def test_replayed_steps_are_recorded_as_planned_ones_are(engine, monkeypatch, tmp_path):
    monkeypatch.setenv("ATTN_KERNELS_RECORD", str(tmp_path / "steps.jsonl"))
    forget_choices()
    layer, batch = plain(engine), batch_of("decode")
    builder = engine.builder(layer)
    metadata = builder.build(0, common(batch))
    forward(engine, layer, batch, metadata, cache_of(batch))  # planned
    for _ in range(3):
        builder.build(0, common(batch))  # no layer asks for a plan, as in a replay
    builder.build_for_cudagraph_capture(common(batch))
    recorder = recorder_of_process()
    (bucket,) = recorder.buckets.values()
    assert bucket.count == 3  # the last replay is counted at the next step
    assert bucket.parts[0].num_seqs == 3 and bucket.model.block_size == BLOCK
    forget_choices()
